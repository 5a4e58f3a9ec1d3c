"""Whether the first row of a file names its columns: by usual names, or because it is unlike the rows below."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from qkv.data.files.delimited import Row

OUTER = " \t\r\n\xa0\u3000\u200b\ufeff"
"""White space at the ends of cells that people do not see: no-break, ideographic and zero-width space, mark."""

SOURCES = {"source", "src", "text", "word", "words", "input", "sentence", "en", "原文", "词", "内容", "文本"}
LABELS = {"label", "labels", "category", "class", "类别", "标签"}
"""Usual names of a column of labels."""

TARGETS = {
    "target", "tgt", "trg", "output", "symbols", "phonemes", "pronunciation", "ipa", "label", "labels", "译文", "音",
    "拼音", "类别", "标签",
}  # fmt: skip
"""Usual names of the two columns of pairs."""

KNOWN = SOURCES | TARGETS | LABELS | {"title", "id", "score", "de", "fr", "es", "zh", "ja", "标题"}
"""Names that make a first row a header, unless it is like the rows below it all the same."""

_NUMBER = re.compile(r"\s*[-+]?\d+([.,]\d+)?\s*")


def looks_like_header(rows: Sequence[Row]) -> tuple[bool, str]:
    """Whether rows[0] is a header, and a sentence that says why."""
    names = [value.strip(OUTER) for value in rows[0].values]
    below = [
        [row.values[place].strip(OUTER) for row in rows[1:200] if place < len(row.values)]
        for place in range(len(names))
    ]
    given = [place for place, name in enumerate(names) if name]
    known = [place for place in given if names[place].casefold() in KNOWN]
    signs = {place: _unlike(names[place], below[place]) for place in given if place not in known}
    against = [place for place, sign in signs.items() if sign < 0]
    if known and not against:
        return True, "The first row is taken for a header: it has a usual column name."
    if any(_all_numbers(below[place]) and not _NUMBER.fullmatch(names[place]) for place in given):
        return True, "The first row is taken for a header: the rows below it have numbers where it has a word."
    if sum(sign > 0 for sign in signs.values()) >= 2 and not against:
        return True, "The first row is taken for a header: it is unlike the rows below (--data.header false if not)."
    return False, "No header: the first row looks like the others (--data.header true if it is one)."


def _all_numbers(values: Sequence[str]) -> bool:
    return bool(values) and all(map(_NUMBER.fullmatch, values))


def _unlike(name: str, below: Sequence[str]) -> int:
    """1 where `name` is unlike the column below it, -1 where it is like it, 0 where nothing tells."""
    if not below:
        return 0
    spaced = sum(" " in value for value in below) / len(below)
    if spaced > 0.5 and " " in name:
        return -1
    if name in below:
        return -1
    if spaced == 1 and len(below) >= 3:
        # One short symbol may be a whole pronunciation; a name is longer than any symbol of its column.
        return int(len(name) > 3 and name not in {part for value in below for part in value.split()})
    counts = Counter(below)
    return int(len(below) >= 4 and len(counts) <= len(below) / 2 and min(counts.values()) > 1)
