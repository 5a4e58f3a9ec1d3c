"""Words with tags, a word a line, as files have it."""

import pytest

from qkv.data.files.conll import looks_like_conll, read_conll
from qkv.errors import UserError


def write(folder, text, name="a.conll"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def tags_of(found):
    return [list(zip(one.words, one.tags, strict=True)) for one in found.sentences]


PLAIN = "Ana B-PER\nleft O\n\nLima B-LOC\n"
EXPECTED = [[("Ana", "B-PER"), ("left", "O")], [("Lima", "B-LOC")]]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("\n", "\r\n"),
        "\ufeff" + PLAIN,
        PLAIN.replace(" ", "\t"),
        PLAIN.replace(" ", "  \t "),
        PLAIN.replace("\n\n", "\n \t\n\n"),
        PLAIN + "\n\n",
        "# a comment\n" + PLAIN,
    ],
)
def test_one_file_in_many_dresses(tmp_path, text):
    assert tags_of(read_conll(write(tmp_path, text))) == EXPECTED


def test_other_encodings_are_found(tmp_path):
    text = "我 O\n爱 O\n北 B-LOC\n京 I-LOC\n"
    for encoding in ("utf-8", "utf-16", "gb18030"):
        assert tags_of(read_conll(write(tmp_path, text.encode(encoding))))[0][2] == ("北", "B-LOC")


def test_a_number_sign_is_a_word_where_a_word_stands(tmp_path):
    found = read_conll(write(tmp_path, "# this is said first\nwas O\n\n# O\n1 O\n\nwon O\n# O\n# sent_id\nx O\n"))
    assert tags_of(found)[:2] == [[("was", "O")], [("#", "O"), ("1", "O")]]
    assert tags_of(found)[2][:2] == [("won", "O"), ("#", "O")]
    assert "Comments: 1 lines." in found.notes


def test_documents_begin_at_their_mark_with_or_without_a_blank_line(tmp_path):
    text = "-DOCSTART- -X- O\n\na O\n\nb O\n-DOCSTART- -X- O\nc O\n"
    found = read_conll(write(tmp_path, text))
    assert [(one.words, one.document) for one in found.sentences] == [(("a",), 0), (("b",), 0), (("c",), 1)]
    assert found.documents == 2


def test_columns_are_chosen_and_the_last_is_the_tag(tmp_path):
    path = write(tmp_path, "Ana NNP x B-PER\nleft VBD y O\n")
    assert tags_of(read_conll(path)) == [[("Ana", "B-PER"), ("left", "O")]]
    assert tags_of(read_conll(path, word=3, tag=2)) == [[("x", "NNP"), ("y", "VBD")]]
    with pytest.raises(UserError, match="has 4 columns: --data.tag 5 is none of them"):
        read_conll(path, tag=5)


def test_a_line_with_a_column_missing_is_named_with_the_zeros_beside(tmp_path):
    path = write(tmp_path, "Ana NN B-PER\nleft O\n\nLima NN 0\nis VB O\n")
    with pytest.raises(UserError, match=r"3 columns are expected.*not so in line 2\. A zero .* in line 4"):
        read_conll(path)


def test_a_table_of_texts_is_told_from_a_file_of_tags(tmp_path):
    path = write(tmp_path, "text,label\na good film,p\na bad film,n\n").rename(tmp_path / "reviews.csv")
    with pytest.raises(UserError, match=r"3 columns .*not so in line 1\. .*texts is for --task classification"):
        read_conll(path)


@pytest.mark.parametrize(
    ("text", "message"), [("", "is empty|no words"), ("a\nb\n", "has one column"), ("\n\n", "no words|empty")]
)
def test_files_without_words_and_tags_are_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_conll(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("".join(f"w{n} B-PER\nx O\n\n" for n in range(20)), "a.txt", True),
        ("".join(f"w{n}\tNN\nx\tVB\n\n" for n in range(20)), "a.tsv", True),
        ("".join(f"word{n}\tw o r d {n}\n" for n in range(20)), "a.tsv", False),
        ("a text,label\n" * 9, "a.csv", False),
        ("some plain text\n\nand more of it\n", "a.txt", False),
        ("-DOCSTART- O\n\na O\n", "a", True),
    ],
)
def test_what_looks_like_it(tmp_path, text, name, expected):
    assert looks_like_conll(write(tmp_path, text, name)) is expected
