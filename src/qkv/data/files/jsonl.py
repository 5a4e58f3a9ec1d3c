"""JSON lines, or one JSON array of objects, to rows of strings exactly as they were typed."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from qkv.data.files.delimited import Row
from qkv.data.files.encoding import lines
from qkv.errors import UserError

LOOKS_LIKE_JSON = re.compile(r'\s*(\[\s*)?\{\s*"')
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK = re.compile(r"\s*")


class _Number(str):
    """A number as typed: 1.0 stays "1.0"."""


class _NotUsable(Exception):
    """Valid JSON that is no row."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _NotUsable(f"the name {twice!r} stands twice in one object")
    return found


_JSON = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number, object_pairs_hook=_object)

Numbered = list[tuple[int, dict[str, Any]]]


def read(text: str, path: Path) -> tuple[list[str], list[Row], list[str]]:
    """Column names, rows and notes. A missing value or null is an empty string.

    Where one column holds lists of values, each value makes a row; any other list or object is kept as its JSON text.
    Raises UserError with line and column for text that is not JSON, or not an object.
    """
    array = text.lstrip().startswith("[")
    objects = _array("\n".join(lines(text)), path) if array else _each_line(text, path)
    if not objects:
        raise UserError(f"{path} has no rows")
    columns, rows, notes = tabulate(objects)
    if "\\u" in text:
        for number, values in rows:
            if any(map(_SURROGATE.search, values)):
                raise UserError(f"{path}, line {number}: half a character (a lone \\ud800 to \\udfff)")
    return columns, rows, notes


def tabulate(objects: Numbered) -> tuple[list[str], list[Row], list[str]]:
    """Numbered objects as `read` returns them."""
    columns = list(dict.fromkeys(key for _, one in objects for key in one))
    kinds: dict[str, set[str]] = defaultdict(set)
    for _, one in objects:
        for key, value in one.items():
            kinds[key].add(_kind(value))
    lists = [key for key in columns if "list" in kinds[key]]
    several = lists[0] if len(lists) == 1 and "object" not in kinds[lists[0]] else None
    rows: list[Row] = []
    for number, one in objects:
        value = one.get(several) if several is not None else None
        for choice in value or [None] if isinstance(value, list) else [value]:
            typed = [_text(choice if key == several else one.get(key)) for key in columns]
            rows.append(Row(number, tuple(typed)))
    mixed = [key for key in columns if {"string", "number"} <= kinds[key]]
    nested = [key for key in columns if key != several and kinds[key] & {"list", "object"}]
    notes = [f"Column {key} holds numbers and strings; all are read as strings, as typed." for key in mixed]
    if several is not None:
        notes.append(f"Column {several} holds lists: each value makes a row, {len(rows):,} from {len(objects):,}.")
    if nested:
        notes.append(f"Lists or objects in {', '.join(nested)}: kept as their JSON text.")
    return columns, rows, notes


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "object" if any(isinstance(one, (list, dict)) for one in value) else "list"
    if isinstance(value, dict):
        return "object"
    return "string" if isinstance(value, str) and not isinstance(value, _Number) else "number"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    """JSON with its numbers as typed."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_json, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k, ensure_ascii=False)}: {_json(v)}' for k, v in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def _value(text: str, place: int, path: Path, line: int) -> tuple[dict[str, Any], int]:
    """The object at `place` and where it ends; `line` is the line of `text`'s first character."""
    try:
        found, end = _JSON.raw_decode(text, place)
    except json.JSONDecodeError as error:
        where = f"{path}, line {line + error.lineno - 1}, column {error.colno}"
        raise UserError(f"{where}: not JSON ({error.msg})") from None
    except _NotUsable as error:
        what = str(error)
    except RecursionError:
        what = "too many brackets inside each other"
    else:
        if isinstance(found, dict):
            return found, end
        what = 'an object is expected, {"source": ..., "target": ...}'
    raise UserError(f"{path}, line {line + text.count(chr(10), 0, place)}: {what}")


def _each_line(text: str, path: Path) -> Numbered:
    found: Numbered = []
    for number, line in enumerate(lines(text), 1):
        if not line.strip():
            continue
        start = len(line) - len(line.lstrip())
        one, end = _value(line, start, path, number)
        if line[end:].strip():
            raise UserError(f"{path}, line {number}, column {end + 1}: one object a line is expected")
        found.append((number, one))
    return found


def _array(text: str, path: Path) -> Numbered:
    """The objects of one array, each with the line where it begins."""
    found: Numbered = []
    place, line, counted = _skip(text, text.index("[") + 1), 1, 0
    while not text.startswith("]", place):
        line, counted = line + text.count("\n", counted, place), place
        one, end = _value(text, place, path, 1)
        found.append((line, one))
        place = _skip(text, end)
        if text.startswith(",", place):
            place = _skip(text, place + 1)
        elif not text.startswith("]", place):
            raise UserError(f"{path}, {_at(text, place)}: a comma or ] is expected behind an object")
    rest = _skip(text, place + 1)
    if rest < len(text):
        raise UserError(f"{path}, {_at(text, rest)}: more text behind the array")
    return found


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    assert found
    return found.end()


def _at(text: str, place: int) -> str:
    line = text.count("\n", 0, place) + 1
    return f"line {line}, column {place - text.rfind(chr(10), 0, place)}"
