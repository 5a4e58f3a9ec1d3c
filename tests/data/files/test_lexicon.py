"""Dictionaries with blanks: word, blanks, symbols."""

import pytest

from qkv.errors import UserError


def test_comments_and_remarks_go_and_numbered_variants_are_of_one_word(table):
    found = table(
        "cmu.dict", ";;; comment\nCAT  K AE1 T\nREAD  R IY1 D\nREAD(2)  R EH1 D # past\n(1)  W AH N\n;;; end\nNONE\n"
    )
    assert (found.form, found.columns) == ("dict", ["word", "symbols"])
    assert found.rows == [
        (2, ("CAT", "K AE1 T")), (3, ("READ", "R IY1 D")), (4, ("READ", "R EH1 D")), (5, ("(1)", "W AH N")),
        (7, ("NONE", "")),
    ]  # fmt: skip
    assert found.notes[1:] == [
        "2 comment lines (;;;) ignored.", "1 remark behind # ignored.",
        "1 numbered variant: WORD(2) is another line for WORD.",
    ]  # fmt: skip


def test_a_number_sign_is_a_symbol_where_nothing_says_cmu(table):
    assert table("x.dict", "cat k # t\n").rows == [(1, ("cat", "k # t"))]


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.txt", "cat  k a t\ndog  d o g\n", "dict"),
        ("a.dict", "cat k a t\ndog d o g\n", "dict"),
        ("a.txt", "cat k a t\ndog d o g\n", "text"),
        ("a.txt", "Two blanks  in one line\nand none here\n", "text"),
    ],
)
def test_a_dictionary_is_known_by_its_suffix_or_its_blanks(table, name, text, form):
    assert table(name, text).form == form
    assert table(name, text, separator="blanks").form == "dict"


def test_every_line_that_mixes_tabs_and_blanks_is_named(table):
    with pytest.raises(UserError, match=r"x\.dict: a word, blanks.*line 2: a tab, .*line 3: a tab") as caught:
        table("x.dict", "cat  k a t\ndog\td o g\nsun  s u\tn\nhat  h a t\nfog  f o g\n")
    assert "line 4" not in str(caught.value)
    rows = [f"w{n}\tk a t n s u" for n in range(40)]
    for line in range(2, 14):
        rows[line - 1] = "sun  s u\tn"
    with pytest.raises(UserError, match=r"2 fields separated by tab.*line 2: blanks where.*line 11: .*; and 2 more$"):
        table("x.tsv", "\n".join(rows))
    with pytest.raises(UserError, match="line 3: blanks where a tab should be, 'sun s u'"):
        table("x.tsv", "cat\tk a t\nsun\ts u n\nsun s u\tn\n")


def test_words_and_sentences_with_blanks_are_no_mistake(table):
    text = "York\tj ɔ k\nNew York\tn j u j ɔ k\nLa\tl a\n"
    assert [row.values[0] for row in table("x.tsv", text).rows] == ["York", "New York", "La"]
    assert len(table("x.tsv", "dog\tdog\nhot dog\thot dog\ncat\tcat\n").rows) == 3
    assert len(table("x.tsv", "hi\tgreet\nsee  you\tbye\nyes\tok\n").rows) == 3
