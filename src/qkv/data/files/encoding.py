"""Bytes to text by a rule of our own, never by the system's: the same file reads the same on every machine."""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qkv.data import hub
from qkv.errors import UserError, nearest

ODD = {
    "\u2028": "LINE SEPARATOR", "\u2029": "PARAGRAPH SEPARATOR", "\x85": "NEXT LINE", "\v": "VT", "\f": "FF",
    "\r": "CR", "\x1c": "FS", "\x1d": "GS", "\x1e": "RS",
}  # fmt: skip
"""Characters that other programs take for the end of a line; inside a line they are data here."""

_ODD = re.compile(f"[{''.join(ODD)}]")

OTHER = {
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file: save it as .xlsx, or as CSV in UTF-8",
    b"\x1f\x8b": "compressed (gzip): unpack it first",
    b"BZh": "compressed (bzip2): unpack it first",
    b"\xfd7zXZ": "compressed (xz): unpack it first",
    b"%PDF": "a PDF: export its table as CSV first",
}
"""How files begin that people take for tables, and what to do with them."""

_LATIN = re.compile(r"[A-Za-z][\u3400-\u9fff\ue000-\uf8ff]|[\u3400-\u9fff\ue000-\uf8ff][a-z]")


@dataclass(frozen=True)
class Decoded:
    """A file's text without a byte-order mark, the encoding it was read in, and what a person should be told."""

    text: str
    encoding: str
    notes: list[str]


def read(path: str | Path) -> bytes:
    """The bytes of a file, which may be one of a hub (see `qkv.data.hub`).

    Raises UserError for one that is missing, a folder, empty, or not allowed to be read.
    """
    path = local(path)
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
        raise UserError(f"{path} is empty")
    for start, what in OTHER.items():
        if raw.startswith(start):
            raise UserError(f"{path} is {what}")
    return raw


def local(path: str | Path) -> Path:
    """Where a file lies on this machine: of a hub, in the cache."""
    return hub.local(path) if hub.is_reference(path) else Path(path)


def decode(raw: bytes, path: str | Path, encoding: str | None = None) -> Decoded:
    """Text of `raw`: UTF-8 (byte-order mark or not), UTF-16 by its mark, else GB18030 if the whole file is that.

    `encoding` names one instead. Raises UserError with line and byte where no encoding, or not that one, explains it.
    """
    if encoding is not None:
        try:
            name = codecs.lookup(encoding).name
            return Decoded(_strict(raw, name, path).removeprefix("\ufeff"), name, [])
        except LookupError:  # of the name, or of a codec that is none of text, as "hex"
            raise UserError(f"unknown encoding {encoding!r}: utf-8, utf-16, gb18030, latin-1 are usual") from None
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = _no_zeros(_strict(raw, "utf-16", path), path, "utf-32")
        return Decoded(text, "utf-16", ["Encoding UTF-16, by its byte-order mark."])
    try:
        return Decoded(_no_zeros(raw.decode("utf-8-sig"), path, "utf-16-le (or utf-16-be)"), "utf-8", [])
    except UnicodeDecodeError as error:
        return _gb18030(raw, error, path)


def _no_zeros(text: str, path: str | Path, likely: str) -> str:
    """`text` itself. Raises UserError where so many characters are zeros that it must be read in another encoding."""
    if text.count("\0") * 10 > len(text):
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}, line {line}: zero bytes between the letters; try --data.encoding {likely}")
    return text


def _gb18030(raw: bytes, utf8: UnicodeDecodeError, path: str | Path) -> Decoded:
    try:
        text = raw.decode("gb18030")
    except UnicodeDecodeError as error:
        tried = "UTF-8 (nor is the whole file GB18030)"
        if error.start > utf8.start:  # Chinese up to here: then this is the byte to look at, not the first one
            tried = f"GB18030 (nor is the file UTF-8: see line {_line(raw, utf8)})"
        raise _undecodable(raw, max(utf8, error, key=lambda one: one.start), path, tried) from None
    notes = ["Encoding GB18030: the file is not UTF-8, and is GB18030 as a whole."]
    # A letter of Latin-1 above 127 swallows its neighbour and looks like one Chinese character amid Latin letters.
    outside = sum(not character.isascii() for character in text)
    amid = sum(1 for _ in _LATIN.finditer(text))
    if amid * 2 > outside:
        notes.append(
            f"{amid:,} of {outside:,} characters that are not ASCII stand inside Latin words: if they look wrong, give "
            "--data.encoding cp1252"
        )
    return Decoded(text, "gb18030", notes)


def _line(raw: bytes, error: UnicodeDecodeError) -> int:
    return raw[: error.start].decode(error.encoding, errors="replace").count("\n") + 1


def _strict(raw: bytes, name: str, path: str | Path) -> str:
    try:
        return raw.decode(name)
    except UnicodeDecodeError as error:
        raise _undecodable(raw, error, path, name.upper()) from None
    except UnicodeError as error:  # utf-16 and utf-32 by name, punycode: no position
        raise UserError(f"{path} is not {name.upper()}: {error}. --data.encoding names another encoding") from None


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


def odd_characters(found: Sequence[str]) -> list[str]:
    """Notes on characters in the middle of lines that some programs take for line ends, with the lines' numbers."""
    where: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(found, 1):
        if _ODD.search(line):
            for character in dict.fromkeys(_ODD.findall(line)):
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
