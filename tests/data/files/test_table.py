"""Files of every usual form to rows that know their line; what is wrong is named with its place."""

import hashlib
import subprocess
import sys
import time
import tracemalloc

import pytest

from qkv.data.files.table import Row, read_parallel, read_table
from qkv.errors import UserError


def test_words_that_look_like_missing_values_or_numbers_are_words(table):
    words = ["null", "NA", "nan", "None", "n/a", "-", "inf", "1e3", "true", "001", "1.0"]
    found = table("w.tsv", "".join(f"{word}\tx {word}\n" for word in words))
    assert [row.values[0] for row in found.rows] == words
    assert (found.form, found.header, found.columns) == ("tsv", False, ["column 1", "column 2"])
    assert found.rows[9] == Row(10, ("001", "x 001"))


def test_a_table_says_what_was_read(table):
    found = table("t.csv", "text;label\na;b\n", "utf-8-sig")
    assert (found.name, found.encoding, found.separator, found.header) == ("t.csv", "utf-8", ";", True)
    assert found.sha256 == hashlib.sha256("text;label\na;b\n".encode("utf-8-sig")).hexdigest()


def test_lines_that_could_be_one_quoted_cell_or_rows_are_said(table):
    found = table("t.tsv", 'a b\tx\n"well\ty\nsize 20"\tz\n')
    assert "A quote opens in line 2 and closes lines later; each line is a row by itself here." in found.notes
    assert len(found.rows) == 3


def test_the_line_of_the_separator_is_no_row(table):
    found = table("s.csv", 'sep=;\r\n"id";"text";"score"\r\n1;good, clean;3,5\r\n')
    assert (found.separator, found.columns) == (";", ["id", "text", "score"])
    assert found.rows == [(3, ("1", "good, clean", "3,5"))]


def test_the_separator_can_be_given(table):
    assert table("s.csv", "a-b,c\n", separator="-").rows == [(1, ("a", "b,c"))]
    assert table("s.txt", "a,b\tc\n", separator="comma").rows == [(1, ("a", "b\tc"))]
    with pytest.raises(UserError, match=r"separator 'coma': one sign, or of .*Did you mean 'comma'"):
        table("s.txt", "a,b\n", separator="coma")


def test_a_mark_and_quotes_before_the_first_name_go(table):
    assert table("b.csv", '"text","label"\na,b\n', "utf-8-sig").columns == ["text", "label"]


def test_excel_leavings_are_ignored_and_said(table):
    found = table("x.csv", "内容,类别,,\r\n好,正,,\r\n坏,负,,\r\n差,负\r\n,,,\r\n,,,\r\n\r\n", "gb18030")
    assert (found.encoding, found.columns) == ("gb18030", ["内容", "类别"])
    assert found.rows == [(2, ("好", "正")), (3, ("坏", "负")), (4, ("差", "负"))]
    assert "3 blank rows ignored." in found.notes
    assert "Empty columns without a name ignored: 3, 4." in found.notes
    found = table("y.csv", "text,label,\na,b,\nc,d,more\n")
    assert found.columns == ["text", "label", ""]
    assert "Columns without a name: 3." in found.notes


def test_the_header_pasted_again_is_left_out_and_named(table):
    found = table("again.csv", "text,label\none,a\ntext,label\ntwo,b\n")
    assert [row.line for row in found.rows] == [2, 4]
    assert [(one.line, one.reason) for one in found.left_out] == [(3, "the header again")]


def test_a_name_that_stands_twice_keeps_both_columns(table):
    found = table("dup.csv", "text,label,text\none,a,uno\n")
    assert found.columns == ["text", "label", "text"]
    assert found.rows == [(2, ("one", "a", "uno"))]


@pytest.mark.parametrize(("text", "header"), [("text,label\na,b\n", True), ("a,b\nc,d\n", False)])
def test_whether_there_is_a_header_is_guessed_said_and_may_be_given(table, text, header):
    found = table("h.csv", text)
    assert found.header == header
    assert any("header" in note for note in found.notes)
    assert table("h.csv", text, header=not header).header != header


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("only.csv", "text,label\n", "has a header and no rows"),
        ("twice.csv", "text,label\ntext,label\n", "has a header and no rows"),
        ("short.csv", "text,label\na,b\nc\nd,e,f\n", r"2 fields.*line 3: 1 field, 'c'; line 4: 3 fields"),
        ("q.csv", 'text,label\n"two\nlines",b\nc\n', "line 4: 1 field"),
        ("mix.tsv", "cat\tk a t\nsun  s u\tn\nbird\n", "line 2: blanks where a tab.*line 3: 1 field, 'bird'"),
        ("blank.tsv", "\n\n", "has no rows"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(table, name, text, message):
    with pytest.raises(UserError, match=message):
        table(name, text)


def test_empty_fields_behind_the_last_are_nothing_wrong(table):
    assert table("t.csv", "text,label\na,b,,\nc,d\n").rows == [(2, ("a", "b")), (3, ("c", "d"))]


def test_lines_of_text_without_columns(table):
    found = table("lines.txt", "alpha\r\n\r\n  beta gamma\r\n")
    assert (found.form, found.columns) == ("text", ["text"])
    assert found.rows == [(1, ("alpha",)), (3, ("  beta gamma",))]


def test_parallel_files_keep_their_partners(tmp_path):
    (tmp_path / "a").write_text("one\ntwo\u2028lines\n\nfour", encoding="utf-8")
    (tmp_path / "b").write_text("uno\ndos\ntres\ncuatro\n", encoding="utf-8")
    found = read_parallel(tmp_path / "a", tmp_path / "b")
    assert found.rows == [
        (1, ("one", "uno")), (2, ("two\u2028lines", "dos")), (3, ("", "tres")), (4, ("four", "cuatro")),
    ]  # fmt: skip
    assert found.notes[0].startswith("a: U+2028 (LINE SEPARATOR) stands inside line 2")


def test_parallel_files_of_different_length_are_refused_with_both_counts(tmp_path):
    texts = ["x" * n for n in (3, 30, 5, 40, 4, 35, 6, 28, 3, 31)]
    (tmp_path / "a").write_text("\n".join(texts))
    (tmp_path / "b").write_text("\n".join(texts[:4] + texts[5:]))
    with pytest.raises(UserError, match=r"a has 10 lines, .*b 9.*near line [456]"):
        read_parallel(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("name", ["long.csv", "long.tsv", "long.jsonl"])
def test_a_cell_of_any_length_is_whole(table, name):
    cell = "word " * 60_000
    text = f'{{"text": "{cell}", "label": "x"}}\n' if name.endswith("l") else f'"{cell}"\tx\ny\tz\n'
    found = table(name, text.replace("\t", ",") if name.endswith("csv") else text)
    assert len(found.rows[0].values[0]) == 300_000


@pytest.mark.parametrize("locale", ["C", "zh_CN.GBK", "en_US.ISO-8859-1"])
def test_the_system_s_locale_changes_nothing(tmp_path, locale):
    (tmp_path / "n.csv").write_text("text,label\n“好”…,正\n", encoding="utf-8")
    code = "import sys; from qkv.data.files.table import read_table; print(ascii(read_table(sys.argv[1]).rows))"
    env = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "n.csv")], env=env, capture_output=True, text=True, check=True
    )
    assert found.stdout == ascii([Row(2, ("“好”…", "正"))]) + "\n"


@pytest.mark.slow
def test_a_million_rows_take_seconds(tmp_path):
    path = tmp_path / "big.tsv"
    path.write_text("".join(f"word{n}\tw o r d {n % 97}\n" for n in range(1_000_000)))
    begun = time.process_time()
    assert len(read_table(path).rows) == 1_000_000
    assert time.process_time() - begun < 10


def test_a_row_takes_a_few_hundred_bytes(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("".join(f"word{n}\tw o r d {n % 97}\n" for n in range(20_000)))
    tracemalloc.start()
    read_table(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 600 * 20_000


def test_a_file_that_may_not_be_read_is_said(tmp_path, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "t.tsv").write_text("a\tb\n")
    monkeypatch.setattr(type(tmp_path), "read_bytes", refuse)
    with pytest.raises(UserError, match=r"cannot read .*t\.tsv: Permission denied"):
        read_table(tmp_path / "t.tsv")
