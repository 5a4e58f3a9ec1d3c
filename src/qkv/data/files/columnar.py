"""Parquet and Excel workbooks, through the libraries that know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qkv.data.files.delimited import Record
from qkv.errors import UserError


def read(path: Path, form: str) -> tuple[list[str], list[Record]]:
    """Column names and rows of strings; the line of a row is its place, with a workbook's header as line 1.

    Raises UserError for a damaged file, and naming what to install where the library is missing.
    """
    try:
        return _parquet(path) if form == "parquet" else _xlsx(path)
    except ModuleNotFoundError as error:
        raise UserError(f'reading {path} needs {error.name}: pip install "qkv[data]"') from None
    except UserError:
        raise
    except Exception as error:  # both libraries raise many kinds for damaged files
        raise UserError(f"{path} cannot be read as {form}: {error}") from None


def _parquet(path: Path) -> tuple[list[str], list[Record]]:
    from pyarrow import parquet

    table = parquet.read_table(path)
    columns = [[_text(value) for value in column.to_pylist()] for column in table.columns]
    return list(table.column_names), [(n, list(values)) for n, values in enumerate(zip(*columns, strict=True), 1)]


def _xlsx(path: Path) -> tuple[list[str], list[Record]]:
    from openpyxl import load_workbook

    book = load_workbook(path, read_only=True, data_only=True)
    try:
        sheet = book.worksheets[0]
        found = [(n, [_text(value) for value in row]) for n, row in enumerate(sheet.iter_rows(values_only=True), 1)]
    finally:
        book.close()
    found = [(n, values) for n, values in found if any(value.strip() for value in values)]
    if not found:
        raise UserError(f"{path}: the first sheet is empty")
    used = [i for i, name in enumerate(found[0][1]) if name.strip()]
    return [found[0][1][i] for i in used], [(n, [values[i] for i in used]) for n, values in found[1:]]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a workbook keeps every number as a float
    return str(value)
