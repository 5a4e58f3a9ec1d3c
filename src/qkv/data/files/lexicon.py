"""Dictionaries whose lines are a word, blanks, and its symbols, as CMU's; and what is wrong with a mixed one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from qkv.data.files.delimited import Row
from qkv.errors import UserError

SUFFIXES = (".dict", ".lex", ".lexicon")
_ENTRY = re.compile(r"\S+ {2,}\S+( \S+)*\s*")
_VARIANT = re.compile(r"(?<=.)\(\d+\)$")


def looks_like_lexicon(text: str, suffix: str) -> bool:
    """Whether lines without a usual separator are dictionary entries.

    By suffix, by CMU's comments, or because in every line two blanks or more follow the first word, and no others.
    """
    if suffix in SUFFIXES or re.search("^;;;", text, re.MULTILINE):
        return True
    kept = [line for line in text.split("\n") if line.strip()]
    return bool(kept) and all(map(_ENTRY.fullmatch, kept))


def read(text: str, path: Path) -> tuple[list[Row], list[str]]:
    """Rows of word and symbols (one blank between them), and notes; a word without symbols has "".

    Comment lines (;;;) go, and in CMU's form the number of WORD(2) and what stands behind " # ".
    Raises UserError that names every line with a tab in it.
    """
    every = list(enumerate(text.split("\n"), 1))
    comments = sum(line.startswith(";;;") for _, line in every)
    kept = [(number, line) for number, line in every if line.strip(" \t") and not line.startswith(";;;")]
    tabs = [(number, f"a tab, {line[:40]!r}") for number, line in kept if "\t" in line.strip()]
    if tabs:
        raise UserError(f"{path}: a word, blanks, and symbols with blanks between them are expected. {named(tabs)}")
    split = [(number, [part for part in line.split(" ") if part]) for number, line in kept]
    variants = sum(_VARIANT.search(parts[0]) is not None for _, parts in split)
    remarks = 0
    rows = list[Row]()
    for number, (word, *symbols) in split:
        if "#" in symbols and (comments or variants):
            symbols, remarks = symbols[: symbols.index("#")], remarks + 1
        rows.append(Row(number, (_VARIANT.sub("", word), " ".join(symbols))))
    notes = ["Each line is read as a word, blanks, and its symbols."]
    if comments:
        notes.append(f"{comments} comment line{'s' if comments > 1 else ''} (;;;) ignored.")
    if remarks:
        notes.append(f"{remarks} remark{'s' if remarks > 1 else ''} behind # ignored.")
    if variants:
        notes.append(f"{variants} numbered variant{'s' if variants > 1 else ''}: WORD(2) is another line for WORD.")
    return rows, notes


def mixed(rows: Sequence[Row]) -> list[Row]:
    """Rows of a tab-separated lexicon that have blanks where the others have their tab.

    Only where most targets of the other rows are several symbols: a first field with several blanks in a row, or one
    whose words behind the first are all symbols of the other rows, which the one of "New York" is not.
    """
    pairs = [row for row in rows if len(row.values) == 2]
    blanks = [row for row in pairs if " " in row.values[0].strip()]
    if not blanks or len(blanks) > len(pairs) / 2:
        return []
    suspects = {row.line for row in blanks}
    targets = [row.values[1].split(" ") for row in pairs if row.line not in suspects]
    if sum(len(target) > 1 for target in targets) < 0.8 * len(targets):
        return []
    symbols = {part for target in targets for part in target}
    return [
        row for row in blanks
        if re.search(r"\S {2,}\S", row.values[0]) or set(row.values[0].split()[1:]) <= symbols
    ]  # fmt: skip


def named(found: Iterable[tuple[int, str]], shown: int = 10) -> str:
    """Lines and what is wrong in them, the first of many."""
    every = list(found)
    more = f"; and {len(every) - shown:,} more" if len(every) > shown else ""
    return "; ".join(f"line {number}: {what}" for number, what in every[:shown]) + more
