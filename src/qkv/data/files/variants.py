"""Several targets in one cell, as scraped dictionaries have them: /a/, /b/, or [a] or [b], or a sign between."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from qkv.data.files.encoding import some
from qkv.data.files.header import OUTER
from qkv.data.files.table import LeftOut

Pair = tuple[int, str, str]
"""Line, source, target."""

AUTO = "auto"

_ENCLOSED = re.compile(r"/([^/]+)/|\[([^\[\]]+)\]")
_BETWEEN = frozenset({",", ";", "|", "~", "、", "，", "；", "or", "oder", "ou", "或"})
# Neither a decimal comma nor a sign that stands for itself between blanks.
_SIGN = re.compile(r"(?<=[^\s\d])[,;|、，；](?=\s?[^\s\d])")
_WORD = 12
"""Characters of a source, on average, up to which commas in its target are worth a word."""


def split(rows: Sequence[Pair], asked: str) -> tuple[list[Pair], list[LeftOut], list[str]]:
    """Rows with one target each, those left out, and notes. Without `asked` nothing changes but what is said.

    asked   "auto" splits cells of which each target stands in slashes or brackets; any other text splits where it
            stands. Slashes or brackets that enclose every target of a cell are taken off.
    """
    if not asked:
        return list(rows), [], _looks(rows)
    kept, left_out, cells, bare, odd = list[Pair](), list[LeftOut](), 0, 0, list[int]()
    for line, source, cell in rows:
        pieces = [cell] if asked == AUTO else [piece.strip(OUTER) for piece in cell.split(asked)]
        inside = [enclosed(piece) for piece in pieces if piece]
        if inside and all(len(one) == 1 or (one and asked == AUTO) for one in inside):
            pieces = [text for one in inside for text in one] + [""] * pieces.count("")
            bare += len(pieces) - pieces.count("")
        elif any(piece[0] in "/[" or piece[-1] in "/]" for piece in pieces if piece):
            odd.append(line)
        cells += len(pieces) > 1
        kept += [(line, source, piece) for piece in pieces if piece]
        left_out += [LeftOut(line, "one of several targets is empty") for piece in pieces if not piece]
    between = "each in slashes or brackets" if asked == AUTO else f"with {asked!r} between them"
    notes = [f"{cells:,} cells hold several targets, {between}: {len(rows):,} rows make {len(kept):,} pairs."]
    if bare:
        notes.append(f"Slashes or brackets around {bare:,} targets taken off.")
    if odd:
        notes.append(f"Slashes or brackets that enclose no whole target are kept: {some(odd)}.")
    return kept, left_out, notes


def enclosed(cell: str) -> list[str]:
    """The texts in slashes or brackets of which a cell consists, a sign or a new line between them; else none."""
    if cell[:1] not in ("/", "[") or cell[-1:] not in ("/", "]"):
        return []
    found = list(_ENCLOSED.finditer(cell))
    if not found or found[0].start() or found[-1].end() < len(cell):
        return []
    gaps = [cell[a.end() : b.start()] for a, b in pairwise(found)]
    if any(gap.strip(OUTER).casefold() not in _BETWEEN and not (gap.isspace() and "\n" in gap) for gap in gaps):
        return []
    return [(one[1] or one[2]).strip(OUTER) for one in found]


def _looks(rows: Sequence[Pair]) -> list[str]:
    """Notes on cells that look as if they held several targets, or one in slashes or brackets."""
    several = [(line, cell) for line, _, cell in rows if len(enclosed(cell)) > 1]
    around = sum(cell[0] in "/[" and cell[-1] in "/]" for _, _, cell in rows)
    if several:
        return [
            f"{len(several):,} cells look like several targets ({_named(several)}); their slashes, brackets and the "
            "signs between are data as it is. --data.variants auto makes each a target of its own, without them."
        ]
    if around and around * 2 >= len(rows):
        return [
            f"{around:,} targets stand in slashes or brackets, which are data as it is. --data.variants auto takes "
            "them off."
        ]
    if sum(len(source) for _, source, _ in rows) > _WORD * len(rows):
        return []  # texts: there, commas are what they are
    signs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for line, _, cell in rows:
        for sign in dict.fromkeys(_SIGN.findall(cell)):
            signs[sign].append((line, cell))
    return [
        f"{len(found):,} targets have {sign!r} inside ({_named(found)}). If it stands between several targets, "
        f"--data.variants '{sign}' makes each one of its own."
        for sign, found in signs.items()
    ]  # fmt: skip


def _named(cells: Sequence[tuple[int, str]]) -> str:
    cell = cells[0][1]
    shown = cell if len(cell) <= 40 else f"{cell[:40]}..."
    return f"{some([line for line, _ in cells], 5)}; the first is {shown!r}"
