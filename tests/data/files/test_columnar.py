"""Parquet files and Excel workbooks."""

import datetime
import sys

import pytest

from qkv.data.files.table import read_table
from qkv.errors import UserError


@pytest.fixture
def parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def make(**columns):
        parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
        return read_table(tmp_path / "t.parquet", header=None)

    return make


@pytest.fixture
def workbook(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")

    def make(*rows, sheets=(), **options):
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        for name in sheets:
            book.create_sheet(name)
        book.save(tmp_path / "t.xlsx")
        return read_table(tmp_path / "t.xlsx", **options)

    return make


def test_parquet_values_are_strings(parquet):
    found = parquet(word=["a", None], n=[1, 2], x=[1.0, 0.5], yes=[True, False])
    assert (found.form, found.columns) == ("parquet", ["word", "n", "x", "yes"])
    assert found.rows == [(1, ("a", "1", "1.0", "true")), (2, ("", "2", "0.5", "false"))]


def test_a_parquet_column_of_lists_makes_a_row_for_each_value(parquet):
    found = parquet(word=["read", "a"], ipa=[["rid", "red"], ["x"]])
    assert found.rows == [(1, ("read", "rid")), (1, ("read", "red")), (2, ("a", "x"))]


def test_a_workbook_has_rows_as_the_sheet_numbers_them(workbook):
    found = workbook(
        ["word", "sound", None], ["001", 7, None], [None, None, None], ["nan", datetime.datetime(2021, 3, 4), None],
        sheets=["more"],
    )  # fmt: skip
    assert found.columns == ["word", "sound"]
    assert found.rows == [(2, ("001", "7")), (4, ("nan", "2021-03-04"))]
    assert found.notes == [
        "Only the first sheet is read, 'Sheet'; there are 1 more.", "1 blank row ignored.",
        "Empty columns without a name ignored: 3.",
    ]  # fmt: skip


def test_a_workbook_without_a_header_and_with_cells_that_have_no_name(workbook):
    found = workbook(["cat", "k a t"], ["dog", "d o g"], header=False)
    assert (found.columns, found.header) == (["column 1", "column 2"], False)
    assert found.rows == [(1, ("cat", "k a t")), (2, ("dog", "d o g"))]
    found = workbook(["word", None, "sound"], ["cat", "kept", "k a t"])
    assert found.rows == [(2, ("cat", "kept", "k a t"))]
    assert "Columns without a name: 2." in found.notes


def test_settings_that_do_not_apply_are_said(workbook):
    found = workbook(["word", "sound"], ["a", "b"], encoding="gbk", separator="comma")
    assert found.notes == [
        "encoding 'gbk' is not used: a xlsx file says that itself.",
        "separator ',' is not used: a xlsx file says that itself.",
    ]


@pytest.mark.parametrize("name", ["bad.xlsx", "bad.parquet"])
def test_damaged_files_are_refused(table, name):
    pytest.importorskip("pyarrow")
    pytest.importorskip("openpyxl")
    with pytest.raises(UserError, match=rf"{name} cannot be read as {name[4:]}"):
        table(name, b"PK\x03\x04 nothing of the kind")


@pytest.mark.parametrize(("name", "library"), [("t.xlsx", "openpyxl"), ("t.parquet", "pyarrow")])
def test_a_missing_library_is_named_with_how_to_get_it(table, monkeypatch, name, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=rf'needs {library}: pip install "qkv\[data\]"'):
        table(name, b"whatever")
