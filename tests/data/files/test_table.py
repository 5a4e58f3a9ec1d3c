"""Files of every usual form to rows that know their line; what is wrong is named with its place."""

import json
import time
import tracemalloc

import pytest

from qkv.data.files.table import read_parallel, read_table
from qkv.errors import UserError


@pytest.fixture
def table(tmp_path):
    def make(name, text, encoding="utf-8", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return read_table(path, **options)

    return make


def test_words_that_look_like_missing_values_are_words(table):
    words = ["null", "NA", "nan", "None", "n/a", "-", "inf", "1e3", "true", "001", "1.0"]
    found = table("w.tsv", "".join(f"{word}\tx {word}\n" for word in words))
    assert [values[0] for _, values in found.rows] == words
    assert (found.form, found.header, found.columns) == ("tsv", False, ["column 1", "column 2"])


def test_a_quote_in_a_tab_separated_file_glues_no_lines_together(table):
    text = 'hello\tgreet\n"well, he said\tother\nsize 20" pipe\torder\n"a\tb"\tquoted\nbye "friend"\tbye\n'
    assert [(line, values) for line, values in table("t.tsv", text).rows] == [
        (1, ["hello", "greet"]),
        (2, ['"well, he said', "other"]),
        (3, ['size 20" pipe', "order"]),
        (4, ["a\tb", "quoted"]),
        (5, ['bye "friend"', "bye"]),
    ]


def test_cells_in_quotes_hold_separators_line_breaks_and_quotes(table):
    text = 'text,label\r\n"two\r\nlines, one cell",a\r\n"say ""hi""",b\r\n"",c\r\nlast,d'
    found = table("c.csv", text)
    assert found.rows == [
        (2, ["two\nlines, one cell", "a"]), (4, ['say "hi"', "b"]), (5, ["", "c"]), (6, ["last", "d"]),
    ]  # fmt: skip


def test_a_quote_that_never_closes_in_csv_is_named(table):
    with pytest.raises(UserError, match=r"line 3, column 1: a quote opens here and is not closed"):
        table("c.csv", 'text,label\na,b\n"c,d\ne,f\n')


def test_the_separator_is_the_one_that_every_row_agrees_on(table):
    text = 'sep=;\nid;text;score\n1;"good, clean, nice";3,5\n2;loud, narrow, cold, dear;1,5\n'
    found = table("s.csv", text)
    assert found.separator == ";"
    assert found.columns == ["id", "text", "score"]
    assert found.rows[1] == (4, ["2", "loud, narrow, cold, dear", "1,5"])
    assert table("p.txt", "a|b, c|d\ne|f|g\n").separator == "|"


def test_a_mark_and_quotes_before_the_first_name_go(table):
    assert table("b.csv", '"text","label"\na,b\n', "utf-8-sig").columns == ["text", "label"]


def test_excel_leavings_are_ignored_and_said(table):
    found = table("x.csv", "内容,类别,,\r\n好,正,,\r\n坏,负,,\r\n,,,\r\n,,,\r\n\r\n", "gb18030")
    assert found.encoding == "gb18030"
    assert [line for line, _ in found.rows] == [2, 3]
    assert "3 blank rows ignored." in found.notes
    assert "Columns without a name: 3, 4." in found.notes


def test_the_header_pasted_again_is_left_out_and_named(table):
    found = table("again.csv", "text,label\none,a\ntext,label\ntwo,b\n")
    assert [line for line, _ in found.rows] == [2, 4]
    assert [(one.line, one.reason) for one in found.left_out] == [(3, "the header again")]


@pytest.mark.parametrize(
    ("text", "header"),
    [("text,label\na,b\n", True), ("a,b\nc,d\n", False), ("word x,count\nc,1\nd,2\n", True), ("a,1\nb,2\n", False)],
)
def test_whether_there_is_a_header_is_guessed_and_said(table, text, header):
    found = table("h.csv", text)
    assert found.header == header
    assert any("header" in note for note in found.notes)
    assert table("h.csv", text, header=not header).header != header


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("only.csv", "text,label\n", "has a header and no rows"),
        ("short.csv", "text,label\na,b\nc\nd,e,f\n", r"2 fields.*line 3: 1 field, 'c'; line 4: 3 fields"),
        (
            "mix.tsv",
            "cat\tk a t\nsun  s u\tn\nbird\n",
            r"line 2: blanks where a tab should be.*line 3: 1 field, 'bird'",
        ),
        ("blank.tsv", "\n\n", "has no rows"),
        ("bad.jsonl", '{"a": 1}\n{"a": \n', r"bad\.jsonl, line 2, column 7: not JSON"),
        ("list.jsonl", "[1, 2]\n", "an array of objects is expected"),
        ("deep.jsonl", '{"a": {"b": 1}, "c": 2}\n', "line 1: a holds"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(table, name, text, message):
    with pytest.raises(UserError, match=message):
        table(name, text)


def test_dictionaries_with_blanks_and_comments_and_numbered_variants(table):
    found = table("cmu.dict", ";;; comment\nCAT  K AE1 T\nREAD  R IY1 D\nREAD(2)  R EH1 D\n")
    assert [values for _, values in found.rows] == [["CAT", "K AE1 T"], ["READ", "R IY1 D"], ["READ", "R EH1 D"]]
    assert found.rows[0][0] == 2
    assert any("1 comment line" in note for note in found.notes)
    assert any("1 numbered variant" in note for note in found.notes)


def test_json_values_are_strings_as_typed(table):
    values = ("1", '"1"', "1.0", "true", "null")
    rows = "".join(f'{{"text": "a", "label": {value}}}\n' for value in values)
    found = table("v.jsonl", rows + '{"text": "f"}\n')
    assert [values[1] for _, values in found.rows] == ["1", "1", "1.0", "true", "", ""]
    assert found.notes == ["Column label holds numbers and strings; all are read as strings, as typed."]
    several = table("l.json", json.dumps([{"word": "read", "ipa": ["rid", "red"]}, {"word": "a", "ipa": ["x"]}]))
    assert several.rows == [(1, ["read", "rid"]), (1, ["read", "red"]), (2, ["a", "x"])]


def test_parquet_and_workbooks(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"word": ["a", None], "n": [1, 2]}), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").rows == [(1, ["a", "1"]), (2, ["", "2"])]
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["word", "sound", None], ["cat", "k a t", None], ["001", 7, None]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    found = read_table(tmp_path / "t.xlsx")
    assert found.columns == ["word", "sound"]
    assert found.rows == [(2, ["cat", "k a t"]), (3, ["001", "7"])]
    (tmp_path / "bad.xlsx").write_bytes(b"PK\x03\x04 no workbook")
    with pytest.raises(UserError, match="cannot be read as xlsx"):
        read_table(tmp_path / "bad.xlsx")


def test_parallel_files_keep_their_partners(tmp_path):
    (tmp_path / "a").write_text("one\ntwo\u2028lines\n\nfour", encoding="utf-8")
    (tmp_path / "b").write_text("uno\ndos\ntres\ncuatro\n", encoding="utf-8")
    found = read_parallel(tmp_path / "a", tmp_path / "b")
    assert found.rows == [
        (1, ["one", "uno"]), (2, ["two\u2028lines", "dos"]), (3, ["", "tres"]), (4, ["four", "cuatro"]),
    ]  # fmt: skip


def test_parallel_files_of_different_length_are_refused_with_where_the_gap_seems(tmp_path):
    texts = ["x" * n for n in (3, 30, 5, 40, 4, 35, 6, 28, 3, 31)]
    (tmp_path / "a").write_text("\n".join(texts))
    (tmp_path / "b").write_text("\n".join(texts[:4] + texts[5:]))
    with pytest.raises(UserError, match=r"a has 10 lines, .*b 9.*near line [456]"):
        read_parallel(tmp_path / "a", tmp_path / "b")


def test_a_cell_of_three_hundred_thousand_characters(table):
    assert len(table("long.csv", f'text,label\n"{"word, " * 50_000}",x\nshort,y\n').rows[0][1][0]) == 300_000


@pytest.mark.slow
def test_a_million_rows_take_seconds_and_half_a_gigabyte(tmp_path):
    path = tmp_path / "big.tsv"
    path.write_text("".join(f"word{n}\tw o r d {n % 97}\n" for n in range(1_000_000)))
    begun = time.process_time()
    assert len(read_table(path).rows) == 1_000_000
    assert time.process_time() - begun < 10
    tracemalloc.start()
    read_table(path)
    assert tracemalloc.get_traced_memory()[1] < 700e6
    tracemalloc.stop()
