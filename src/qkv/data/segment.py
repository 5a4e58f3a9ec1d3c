"""What helps a person to see what the symbols of a file are: an inventory's file, rare symbols, look-alikes."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qkv.data.files.encoding import decode, lines, read
from qkv.errors import UserError

_CONFUSABLE = str.maketrans({
    "ɡ": "g", "ː": ":", "ˑ": "·", "ʼ": "'", "’": "'", "‘": "'", "ˈ": "'", "ε": "ɛ", "α": "ɑ", "β": "ꞵ", "ı": "i",
    "а": "a", "е": "e", "о": "o", "р": "p", "с": "c", "х": "x", "у": "y", "і": "i", "ο": "o",
    "‐": "-", "–": "-", "—": "-",
})  # fmt: skip
"""Signs that are drawn alike: IPA, Cyrillic and Greek letters beside Latin ones, apostrophes, dashes."""


@dataclass(frozen=True)
class Rare:
    """A symbol seen seldom: how often, its code points, and other symbols of the same data that look like it."""

    symbol: str
    count: int
    code_points: str
    look_alikes: list[str]


def code_points(symbol: str) -> str:
    """ "U+0261 LATIN SMALL LETTER SCRIPT G" for a character; only the numbers for several."""
    if len(symbol) == 1:
        return f"U+{ord(symbol):04X} {unicodedata.name(symbol, '')}".strip()
    return " ".join(f"U+{ord(character):04X}" for character in symbol)


def rare(counts: Mapping[str, int], below: int = 5) -> list[Rare]:
    """The symbols that occur fewer than `below` times, rarest first, with what they may be a slip for."""
    alike: dict[str, list[str]] = defaultdict(list)
    for symbol in counts:
        alike[_skeleton(symbol)].append(symbol)
    seldom = sorted((symbol for symbol in counts if counts[symbol] < below), key=lambda s: (counts[s], s))
    return [
        Rare(
            symbol, counts[symbol], code_points(symbol),
            [f"{other} ({code_points(other)})" for other in alike[_skeleton(symbol)] if other != symbol],
        )
        for symbol in seldom
    ]  # fmt: skip


def _skeleton(symbol: str) -> str:
    plain = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", symbol).translate(_CONFUSABLE).casefold())
    return "".join(character for character in plain if not unicodedata.combining(character)) or plain


def read_inventory(path: str | Path) -> list[str]:
    """The symbols of an inventory's file, one a line. Raises UserError for a file that is missing, empty or repeats."""
    found = [line.strip() for line in lines(decode(read(path), path).text)]
    symbols = [symbol for symbol in found if symbol]
    if not symbols:
        raise UserError(f"{path} has no symbols: one a line is expected")
    twice = [symbol for symbol in dict.fromkeys(symbols) if symbols.count(symbol) > 1]
    if twice:
        raise UserError(f"{path} lists some symbols twice: {', '.join(twice[:10])}")
    return symbols
