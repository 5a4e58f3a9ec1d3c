"""JSON lines, or one JSON array of objects, to rows of strings exactly as typed."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from qkv.data.files.delimited import Record
from qkv.data.files.encoding import lines
from qkv.errors import UserError

_JSON = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)


def read(text: str, path: Path) -> tuple[list[str], list[Record], list[str]]:
    """Column names, rows and notes. A missing value or null is an empty string; a list of strings makes several rows.

    Raises UserError with line and column for text that is not JSON, or not an object.
    """
    objects = _array(text, path) if text.lstrip().startswith("[") else _each_line(text, path)
    columns = list(dict.fromkeys(key for _, one in objects for key in one))
    kinds: dict[str, set[str]] = defaultdict(set)
    rows: list[Record] = []
    for number, one in objects:
        for key, value in one.items():
            kinds[key].add("null" if value is None else "string" if _typed(value) else "number")
        lists = [key for key, value in one.items() if isinstance(value, list)]
        if len(lists) > 1:
            raise UserError(
                f"{path}, line {number}: lists in {', '.join(lists)}; only one column may hold several values"
            )
        for value in one[lists[0]] if lists else [None]:
            rows.append(
                (number, [_text(value if key in lists else one.get(key), path, number, key) for key in columns])
            )
    mixed = [key for key, found in kinds.items() if {"string", "number"} <= found]
    notes = [f"Column {key} holds numbers and strings; all are read as strings, as typed." for key in mixed]
    return columns, rows, notes


def _typed(value: Any) -> bool:
    return isinstance(value, (_Typed, list, dict))


class _Typed(str):
    """A string that stood in quotes; numbers are plain str."""


def _mark(value: Any, quoted: Any) -> Any:
    return _Typed(value) if isinstance(quoted, str) and isinstance(value, str) else value


def _loads(text: str) -> dict[str, Any]:
    # Parsed twice: as typed (1.0 stays "1.0"), and plainly, which tells what stood in quotes.
    typed, plain = _JSON.decode(text), json.loads(text)
    if not isinstance(typed, dict):
        raise TypeError
    return {key: _mark(value, plain[key]) for key, value in typed.items()}


def _each_line(text: str, path: Path) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines(text), 1):
        if not line.strip():
            continue
        try:
            found.append((number, _loads(line)))
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}, column {error.colno}: not JSON ({error.msg})") from None
        except TypeError:
            raise UserError(f'{path}, line {number}: an object is expected, {{"source": ..., "target": ...}}') from None
    if not found:
        raise UserError(f"{path} has no rows")
    return found


def _array(text: str, path: Path) -> list[tuple[int, dict[str, Any]]]:
    try:
        every = _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from None
    if not every or not all(isinstance(one, dict) for one in every):
        raise UserError(f"{path}: an array of objects is expected")
    return list(enumerate(every, 1))


def _text(value: Any, path: Path, number: int, key: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value)
    raise UserError(
        f"{path}, line {number}: {key} holds {json.dumps(value)[:60]}; a string or a list of strings is expected"
    )
