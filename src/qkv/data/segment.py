"""What helps a person to see what the symbols of a file are: normal forms, an inventory's file, rare symbols."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from qkv.data.files.encoding import decode, lines, read, some
from qkv.errors import UserError, nearest

FORMS = ("none", "NFC", "NFD")

_DRAWN_ALIKE = (
    "aаαɑ", "cс", "dԁ", "eе", "gɡ", "hһ", "iіı", "jј", "oоο", "pрρ", "sѕ", "vν", "xхχ", "yуγɣ",
    "ɛεє", "əә", "ɵө", "ʒӡ", "ʃ∫", "ɸφ", "ʋυ", "ɩι", "ꞵβ",
    ":ː꞉∶˸", "·ˑ", "'ʼ’‘ˈ′´`ʹ", ",ˌ", "-‐‑–—−", "!ǃ", "|ǀ", "?ʔ", "~∼",
)  # fmt: skip
"""Signs that people take for one another, Latin first: IPA, Cyrillic and Greek letters, apostrophes, dashes."""

_SAME = str.maketrans({sign: signs[0] for signs in _DRAWN_ALIKE for sign in signs[1:]})
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)


@dataclass(frozen=True)
class RareSymbol:
    """A symbol seen seldom: how often, its code points, and Unicode's name of each character.

    `look_alikes` is what it may be a slip for: other symbols of the same data, each with its code points.
    """

    symbol: str
    count: int
    code_points: str
    names: list[str]
    look_alikes: list[str]


def normalise(text: str, form: str) -> str:
    """`text` in the Unicode normal form "NFC" or "NFD", or as it is for "none". Raises UserError for another form."""
    if form not in FORMS:
        raise UserError(f"unknown normal form {form!r}.{nearest(form, FORMS)} Forms: {', '.join(FORMS)}")
    return text if form == "none" else unicodedata.normalize(cast(Literal["NFC", "NFD"], form), text)


def code_points(symbol: str) -> str:
    """ "U+0261 LATIN SMALL LETTER SCRIPT G" for a character; only the numbers for several."""
    if len(symbol) == 1:
        return f"U+{ord(symbol):04X} {unicodedata.name(symbol, '')}".strip()
    return " ".join(f"U+{ord(character):04X}" for character in symbol)


def rare(counts: Mapping[str, int], below: int = 5) -> list[RareSymbol]:
    """The symbols that occur fewer than `below` times, rarest first, with what they may be a slip for.

    Look-alikes are equal once compatibility forms, case, combining marks, invisible characters and the differences of
    signs that are drawn alike are taken off.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    for symbol in counts:
        alike[_skeleton(symbol)].append(symbol)
    seldom = sorted((symbol for symbol in counts if counts[symbol] < below), key=lambda s: (counts[s], s))
    return [
        RareSymbol(
            symbol, counts[symbol], code_points(symbol), [unicodedata.name(character, "") for character in symbol],
            [f"{other} ({code_points(other)})" for other in alike[_skeleton(symbol)] if other != symbol],
        )
        for symbol in seldom
    ]  # fmt: skip


def _skeleton(symbol: str) -> str:
    # Twice, since some signs (´) have a compatibility form that looks otherwise, and case is folded in between.
    folded = unicodedata.normalize("NFKC", symbol.translate(_SAME)).casefold().translate(_SAME)
    plain = unicodedata.normalize("NFD", folded).translate(_SAME)
    return "".join(filter(_is_seen, plain)) or plain


def _is_seen(character: str) -> bool:
    invisible = unicodedata.category(character) == "Cf" or ord(character) in _VARIATION_SELECTORS
    return not (invisible or unicodedata.combining(character))


def read_inventory(path: str | Path) -> list[str]:
    """The symbols of an inventory's file, one a line; blank lines and white space at the ends do not count.

    Raises UserError for a file that is missing or empty, says a symbol twice, or has a tab inside a line.
    """
    where: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines(decode(read(path), path).text), 1):
        symbol = line.strip()
        if "\t" in symbol:
            raise UserError(f"{path}, line {number}: {symbol[:60]!r} holds a tab: one symbol a line is expected")
        if symbol:
            where[symbol].append(number)
    if not where:
        raise UserError(f"{path} has no symbols: one a line is expected")
    twice = [f"{symbol} ({some(numbers)})" for symbol, numbers in where.items() if len(numbers) > 1]
    if twice:
        raise UserError(f"{path} lists some symbols twice: {', '.join(twice[:10])}")
    return list(where)
