"""Bytes to text by a rule of our own, never by the system's: the same file reads the same on every machine."""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from qkv.errors import UserError, nearest

ODD = {"\u2028": "LINE SEPARATOR", "\u2029": "PARAGRAPH SEPARATOR", "\x85": "NEXT LINE", "\v": "VT", "\f": "FF"}
"""Characters that other programs take for the end of a line; here they are data."""


@dataclass(frozen=True)
class Decoded:
    """A file's text without a byte-order mark, the encoding it was read in, and what a person should be told."""

    text: str
    encoding: str
    notes: list[str]


def read(path: str | Path) -> bytes:
    """The bytes of a file. Raises UserError for one that is missing, a folder, empty, or not allowed to be read."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder: give a file")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        folder = path.parent
        hint = nearest(path.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""
        raise UserError(f"there is no file {path}.{hint}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    if not raw:
        raise UserError(f"{path} is empty: there is nothing in it")
    return raw


def decode(raw: bytes, path: str | Path, encoding: str | None = None) -> Decoded:
    """Text of `raw`: UTF-8 (byte-order mark or not), UTF-16 by its mark, else GB18030 if the whole file is that.

    `encoding` names one instead. Raises UserError with line and byte where no encoding, or not that one, explains it.
    """
    if encoding is not None:
        try:
            name = codecs.lookup(encoding).name
        except LookupError:
            raise UserError(f"unknown encoding {encoding!r}: utf-8, utf-16, gb18030, latin-1 are usual") from None
        return Decoded(_strict(raw, name, path).removeprefix("\ufeff"), name, [])
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Decoded(_strict(raw, "utf-16", path), "utf-16", ["Encoding UTF-16, by its byte-order mark."])
    try:
        return Decoded(raw.decode("utf-8-sig"), "utf-8", [])
    except UnicodeDecodeError as error:
        try:
            text = raw.decode("gb18030")
        except UnicodeDecodeError:
            raise _undecodable(raw, error, path, "UTF-8 (nor is the whole file GB18030)") from None
    return Decoded(text, "gb18030", ["Encoding GB18030: the file is not UTF-8, and is GB18030 as a whole."])


def _strict(raw: bytes, name: str, path: str | Path) -> str:
    try:
        return raw.decode(name)
    except UnicodeDecodeError as error:
        raise _undecodable(raw, error, path, name.upper()) from None


def _undecodable(raw: bytes, error: UnicodeDecodeError, path: str | Path, what: str) -> UserError:
    before = raw[: error.start].decode(error.encoding, errors="replace")
    line, rows = before.count("\n") + 1, before.count("\r\n") + 1
    where = f"{path}, line {line}" + (f" (row {rows}: cells hold line breaks)" if 1 < rows < line else "")
    byte = f"byte 0x{raw[error.start]:02X}" if error.start < len(raw) else "the end"
    cut = (
        " (half a character: the file was cut)" if error.reason in ("truncated data", "unexpected end of data") else ""
    )
    return UserError(f"{where}: {byte} is not {what}{cut}. --data.encoding names another encoding")


def lines(text: str) -> list[str]:
    """The lines of a text, without their ends; a last line needs none.

    LF or CRLF ends a line; CR alone in a text without LF (old Macintosh); NEL in a text with neither (mainframes).
    """
    if "\n" in text:
        found = text.split("\n")
        if "\r" in text:
            found = [line.removesuffix("\r") for line in found]
    else:
        found = text.split("\r" if "\r" in text else "\x85")
    return found[:-1] if found[-1] == "" else found


def odd_characters(text: str) -> list[str]:
    """Notes on characters in the middle of lines that some programs take for line ends."""
    if "\n" not in text or not any(character in text for character in ODD):
        return []
    where: dict[str, list[int]] = defaultdict(list)
    pattern = re.compile(f"[{''.join(ODD)}]")
    for number, line in enumerate(lines(text), 1):
        for character in dict.fromkeys(pattern.findall(line)):
            where[character].append(number)
    return [
        f"U+{ord(c):04X} ({ODD[c]}) stands inside {some(numbers)}; it is kept as data and ends no line."
        for c, numbers in where.items()
    ]  # fmt: skip


def some(numbers: list[int], shown: int = 10) -> str:
    """Line numbers in words, the first of many."""
    named = ", ".join(map(str, numbers[:shown]))
    more = f" and {len(numbers) - shown:,} more" if len(numbers) > shown else ""
    return f"line{'s' if len(numbers) > 1 else ''} {named}{more}"
