"""Parquet and Excel workbooks, through the libraries that know them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from qkv.data.files import jsonl
from qkv.data.files.delimited import Row
from qkv.errors import UserError

Read = tuple[list[str], list[Row], list[str]]


def read(path: Path, form: str, header: bool | None = None) -> Read:
    """Column names, rows of strings, notes; the line of a row is its place, in a workbook the sheet's own row number.

    `header` is of workbooks: unless False, the first row that is not blank names the columns.
    Raises UserError for a damaged file, and naming what to install where the library is missing.
    """
    try:
        return _parquet(path) if form == "parquet" else _xlsx(path, header is not False)
    except ModuleNotFoundError as error:
        raise UserError(f'reading {path} needs {error.name}: pip install "qkv[data]"') from None
    except UserError:
        raise
    except Exception as error:  # both libraries raise many kinds for damaged files
        raise UserError(f"{path} cannot be read as {form}: {error}") from None


def _parquet(path: Path) -> Read:
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(path)
    if any(pyarrow.types.is_nested(column.type) for column in table.schema):
        objects = [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]
        return jsonl.tabulate(list(enumerate(objects, 1)))
    columns = [[_text(value) for value in column.to_pylist()] for column in table.columns]
    rows = [Row(n, values) for n, values in enumerate(zip(*columns, strict=True), 1)]
    return list(table.column_names), rows, []


def _plain(value: Any) -> Any:
    """`value` with nothing in it that JSON lacks."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if value is None else _text(value)


def _xlsx(path: Path, header: bool) -> Read:
    from openpyxl import load_workbook

    book = load_workbook(path, read_only=True, data_only=True)
    try:
        first, *others = book.worksheets
        cells = [(n, [_cell(value) for value in row]) for n, row in enumerate(first.iter_rows(values_only=True), 1)]
    finally:
        book.close()
    notes = [f"Only the first sheet is read, {first.title!r}; there are {len(others)} more."] if others else []
    width = max((len(values) for _, values in cells), default=0)
    rows = [
        Row(n, (*values, *[""] * (width - len(values)))) for n, values in cells if any(one.strip() for one in values)
    ]
    if not rows:
        raise UserError(f"{path}: the first sheet is empty")
    blank = rows[-1].line - rows[0].line + 1 - len(rows)
    if blank:
        notes.append(f"{blank:,} blank row{'s' if blank > 1 else ''} ignored.")
    if not header:
        return [], rows, notes
    return list(rows[0].values), rows[1:], notes


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a workbook keeps every number as a float
    return _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()  # a date, which both formats keep with a time of midnight
    if isinstance(value, bytes):
        return value.decode()
    return str(value)
