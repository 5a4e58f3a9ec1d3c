"""Tables of settings to typed configs, with errors that name the key and the nearest right one."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from qkv.errors import UserError, nearest

Config = TypeVar("Config")


def typed(cls: type[Config], table: Mapping[str, Any], where: str) -> Config:
    """`table` as the frozen dataclass `cls`; strings from a command line become numbers and truth values.

    A number where a text is expected is that text: a file may be called 2024.

    Raises UserError naming `where`, the key, and what would be right: for a key that `cls` lacks, for a value of the
    wrong type, and for a value that `cls` itself refuses.
    """
    kinds = {f.name: f.type for f in dataclasses.fields(cls)}  # pyright: ignore[reportArgumentType]
    names = list(kinds)
    for key in table:
        if key not in names:
            raise UserError(f"{where} has no setting {key!r}.{nearest(key, names)} Settings: {', '.join(names)}")
    texts = {key for key, value in table.items() if kinds[key] in (str, "str") and type(value) in (int, float)}
    try:
        return TypeAdapter(cls).validate_python({k: str(v) if k in texts else v for k, v in table.items()})
    except ValidationError as error:
        lines = [_line(where, problem) for problem in error.errors()]
        raise UserError("; ".join(lines)) from None


def _line(where: str, problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    given = f", got {problem['input']!r}" if key else ""
    return f"{where}{'.' if key else ''}{key}: {message}{given}"


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as a dict. Raises UserError naming the file, and the line where it does not parse."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `changes` in place; tables merge key by key."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
