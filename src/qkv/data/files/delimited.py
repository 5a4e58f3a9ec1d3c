"""Text with separators to fields that know their line. A quote means something only where it wraps a whole field.

The standard csv module glues lines together behind a quote that is never closed, and cannot say where a row began.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from qkv.errors import UserError

SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}

Record = tuple[int, list[str]]
"""The physical line where a row begins, from 1, and its fields."""


def records(text: str, separator: str, where: str, first: int = 1, strict: bool = True) -> Iterator[Record]:
    """The rows of `text`, whose lines end in LF; `first` is the number of its first line.

    A field in quotes may hold separators, line breaks, and quotes written twice. Where a quote opens a field and does
    not close it, strict reading raises UserError with line and column; else (tab-separated files, which seldom quote)
    it is a character like any other.
    """
    gap = re.escape(separator)
    quoted = re.compile(rf'"([^"]*(?:""[^"]*)*)"(?={gap}|\n|\Z)')
    plain = re.compile(rf"[^{gap}\n]*")
    place, line = 0, first
    while place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        begun, fields = line, list[str]()
        if text.find('"', place, end) < 0:
            yield begun, text[place:end].split(separator)
            place, line = end + 1, line + 1
            continue
        while True:
            opened = text.startswith('"', place)
            found = quoted.match(text, place) if opened else None
            if found:
                fields.append(found[1].replace('""', '"'))
                line += found[1].count("\n")
            elif opened and strict:
                raise UserError(
                    f"{where}, line {line}, column {len(fields) + 1}: a quote opens here and is not closed before a "
                    f"{SEPARATORS.get(separator, separator)} or the end of a line; a quote inside a field in quotes is "
                    'written twice: ""'
                )
            else:
                found = plain.match(text, place)
                assert found
                fields.append(found[0])
            place = found.end()
            if not text.startswith(separator, place):
                break
            place += 1
        place, line = place + 1, line + 1
        yield begun, fields


def guess_separator(text: str, where: str, suffix: str) -> str | None:
    """What separates the fields: the sign that gives the most lines the same number of fields, two or more.

    Counting signs would take the commas of a text for separators. None when nothing separates every line alike.
    """
    if suffix in (".tsv", ".tab"):
        return "\t"
    best: tuple[float, int, str] | None = None
    for separator in SEPARATORS:
        try:
            sample = [fields for _, fields in islice(records(text, separator, where, strict=separator != "\t"), 200)]
        except UserError:
            continue
        counts = Counter(len(fields) for fields in sample if any(fields))
        if not counts:
            continue
        n_fields, often = counts.most_common(1)[0]
        alike = often / counts.total()
        if n_fields > 1 and alike > 0.5 and (best is None or (alike, n_fields) > best[:2]):
            best = (alike, n_fields, separator)
    if best is None and suffix == ".csv":
        return ","
    return best[2] if best else None
