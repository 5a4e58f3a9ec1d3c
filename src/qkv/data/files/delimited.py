"""Text with separators to fields that know their line. A quote means something only where it wraps a whole field.

The standard csv module glues lines together behind a quote that is never closed, and cannot say where a row began.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import NamedTuple

from qkv.errors import UserError

SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}


class Row(NamedTuple):
    """The physical line where a row begins, from 1, and its values as typed."""

    line: int
    values: tuple[str, ...]


@dataclass(frozen=True)
class _Fields:
    """How one text is cut: what a field in quotes is, with and without line breaks, and what any other field is."""

    separator: str
    quoted: re.Pattern[str]
    quoted_in_line: re.Pattern[str]
    plain: re.Pattern[str]

    @classmethod
    def of(cls, separator: str) -> _Fields:
        gap = re.escape(separator)
        # Possessive: a quote that closes nothing is found in one pass, however long the file.
        wrapped = rf'"([^"{{}}]*+(?:""[^"{{}}]*+)*+)"(?={gap}|\n|\Z)'
        quoted, in_line = (re.compile(wrapped.replace("{}", no)) for no in ("", r"\n"))
        return cls(separator, quoted, in_line, re.compile(rf"[^{gap}\n]*"))

    def row(self, text: str, place: int, quoted: re.Pattern[str]) -> tuple[list[str], int, tuple[int, int] | None]:
        """Fields from `place`, where they end, and the first quote that opens and does not close (place, field)."""
        fields, unclosed = list[str](), None
        while True:
            found = quoted.match(text, place) if text.startswith('"', place) else None
            if found:
                fields.append(found[1].replace('""', '"'))
            else:
                if text.startswith('"', place) and unclosed is None:
                    unclosed = place, len(fields) + 1
                found = self.plain.match(text, place)
                assert found
                fields.append(found[0])
            place = found.end()
            if not text.startswith(self.separator, place):
                return fields, place, unclosed
            place += 1


def records(
    text: str, separator: str, where: str, first: int = 1, strict: bool = True, doubtful: list[int] | None = None
) -> Iterator[Row]:
    """The rows of `text`, whose lines end in LF; `first` is the number of its first line.

    A field in quotes may hold separators, line breaks, and quotes written twice. Where a quote opens a field and does
    not close it, strict reading raises UserError with line and column. Else (tab-separated files, which seldom quote)
    it is a character like any other, and quotes join lines only where the lines by themselves are no rows; lines that
    could have been joined and were not are added to `doubtful`.
    """
    cut = _Fields.of(separator)
    width = 0 if strict else _usual_width(text, separator)
    place, line = 0, first
    while place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        if text.find('"', place, end) < 0:
            yield Row(line, tuple(text[place:end].split(separator)))
            place, line = end + 1, line + 1
            continue
        fields, end, unclosed = cut.row(text, place, cut.quoted if strict else cut.quoted_in_line)
        if unclosed and strict:
            raise UserError(
                f"{where}, line {line + text.count(chr(10), place, unclosed[0])}, column {unclosed[1]}: a quote opens "
                f"here and is not closed before a {SEPARATORS.get(separator, separator)} or the end of a line; a quote "
                'inside a field in quotes is written twice: ""'
            )
        if unclosed and width > 1:
            joined, far, still = cut.row(text, place, cut.quoted)
            if far > end and still is None and len(joined) == width:
                if _rows_of_their_own(text[place:far], separator, width):
                    if doubtful is not None:
                        doubtful.append(line)
                else:
                    fields, end = joined, far
        yield Row(line, tuple(fields))
        line += text.count("\n", place, end) + 1
        place = end + 1


def _usual_width(text: str, separator: str) -> int:
    """The number of fields that most lines have, by those without quotes where there are any."""
    some = [found[0] for found in islice(re.finditer(r"[^\n]+", text), 1000)]
    clear = [line for line in some if '"' not in line] or some
    counts = Counter(line.count(separator) + 1 for line in clear)
    return counts.most_common(1)[0][0] if counts else 0


def _rows_of_their_own(text: str, separator: str, width: int) -> bool:
    return all(line.count(separator) + 1 == width for line in text.split("\n"))


def guess_separator(text: str, where: str, suffix: str) -> str | None:
    """What separates the fields: the sign that gives the most lines the same number of fields, two or more.

    Counting signs would take the commas of a text for separators. None when nothing separates every line alike.
    """
    if suffix in (".tsv", ".tab"):
        return "\t"
    best: tuple[float, bool, int, str] | None = None
    for separator in SEPARATORS:
        try:
            sample = [row.values for row in islice(records(text, separator, where, strict=separator != "\t"), 200)]
        except UserError:
            continue
        counts = Counter(len(fields) for fields in sample if any(fields))
        if not counts:
            continue
        n_fields, often = counts.most_common(1)[0]
        alike = often / counts.total()
        rank = (alike, separator != "," or not _decimals(sample), n_fields)
        if n_fields > 1 and alike > 0.5 and (best is None or rank > best[:3]):
            best = (*rank, separator)
    if best is None and suffix == ".csv":
        return ","
    return best[3] if best else None


def _decimals(sample: list[tuple[str, ...]]) -> bool:
    """Whether every comma of the sample stands inside a number, as in 3,5."""
    pairs = [pair for fields in sample for pair in pairwise(fields)]
    return all(a[-1:].isdecimal() and b[:1].isdecimal() for a, b in pairs)
