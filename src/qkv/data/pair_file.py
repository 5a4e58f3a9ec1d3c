"""Tables to pairs: rows cleaned and counted, targets of one source grouped, splits cut by source.

What is left out is named by line; nothing is changed without a note.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from qkv.data.files import variants
from qkv.data.files.columns import OUTER, choose
from qkv.data.files.encoding import some
from qkv.data.files.table import LeftOut, Table
from qkv.data.pairs import Example
from qkv.data.segment import normalise
from qkv.data.symbols import Symbols
from qkv.errors import UserError

_MARKS, _TIES = "\u0300-\u035b\u035d-\u0360\u0362-\u036f", "\u035c\u0361"
_RAISED = "\u02b0-\u02b8\u02c0\u02c1\u02d0\u02d1\u02de\u02e0-\u02e4\u1d2c-\u1d6a\u1d9b-\u1dbf\u207f"
_LETTER = rf"[^\W\d_{_RAISED}][{_MARKS}]*"
_SOUND = re.compile(rf"{_LETTER}(?:[{_TIES}]{_LETTER}[{_RAISED}]*|[{_RAISED}]+)|[\u02e5-\u02e9]{{2,}}")
"""What IPA writes with several characters and means as one: letters with a tie, a raised or long sign, a tone."""

_RARE = re.compile(rf"[{_TIES}{_RAISED}\u02e5-\u02e9]")
"""One of these is in every such sound; most texts have none, which is sooner found."""


ENDLESS = 1_000_000
"""Characters beyond which a cell is no text to learn from, whatever the limit: it is not even cut into symbols."""


@dataclass(frozen=True)
class Rows:
    """Usable rows as (line, source, target), those left out, and what a person should be told."""

    name: str
    rows: list[tuple[int, str, str]]
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def rows_of(table: Table, source: str | int | None, target: str | int | None, form: str, several: str = "") -> Rows:
    """The two columns of `table`, outer white space off, normalised to `form` ("none", "NFC", "NFD").

    `several` is how cells with more than one target are split, as `variants.split` has it; each target makes a row.
    Rows with an empty side are left out and named. Raises UserError when no row is left.
    """
    chosen = choose(table, source, target)
    kept: list[tuple[int, str, str]] = []
    left_out, stripped, changed = list(table.left_out), 0, 0
    for line, values in table.rows:
        raw = values[chosen.source], values[chosen.target]
        a, b = raw[0].strip(OUTER), raw[1].strip(OUTER)
        stripped += (a, b) != raw
        before = a, b
        a, b = normalise(a, form), normalise(b, form)
        changed += (a, b) != before
        if a and b:
            kept.append((line, a, b))
        else:
            left_out.append(LeftOut(line, "source is empty" if not a else "target is empty"))
    endless = [line for line, a, b in kept if max(len(a), len(b)) > ENDLESS]
    if endless:
        left_out += [LeftOut(line, f"over {ENDLESS:,} characters") for line in endless]
        kept = [row for row in kept if row[0] not in set(endless)]
    kept, without, said = variants.split(kept, several)
    left_out += without
    notes = [*table.notes, *chosen.notes, *said]
    if stripped:
        notes.append(f"White space at the ends of cells taken off in {stripped:,} rows.")
    if form != "none":
        notes.append(f"Normalised to {form}: {changed:,} rows changed.")
    for reason in dict.fromkeys(one.reason for one in left_out):
        where = [one.line for one in left_out if one.reason == reason]
        notes.append(f"Left out, {reason}: {some(where)}.")
    if not kept:
        raise UserError(f"{table.name} has no row with both a source and a target")
    return Rows(table.name, kept, left_out, notes)


def grouped(rows: Iterable[tuple[int, str, str]]) -> tuple[list[Example], int]:
    """One Example for each source, in the order of the file, with its different targets; and the exact duplicates."""
    found: dict[str, tuple[str, ...]] = {}
    duplicates = 0
    for _, source, target in rows:
        known = found.get(source)
        if known is None:
            found[source] = (target,)
        elif target in known:
            duplicates += 1
        else:
            found[source] = (*known, target)
    return [Example(source, targets) for source, targets in found.items()], duplicates


def cut(examples: Sequence[Example], shares: tuple[float, float, float]) -> dict[str, list[Example]]:
    """Train, dev and test by a hash of the source, so that a growing file keeps its old rows where they were.

    With a dozen examples a hash leaves parts empty: dev and test then get one each, the last two by that hash.
    """
    train, dev, _ = shares
    total = sum(shares)
    placed = sorted(((_share(example.source), example) for example in examples), key=lambda two: two[0])
    splits: dict[str, list[Example]] = {"train": [], "dev": [], "test": []}
    for place, example in placed:
        splits["train" if place < train / total else "dev" if place < (train + dev) / total else "test"].append(example)
    for part, share in (("test", shares[2]), ("dev", dev)):
        if share and not splits[part] and len(splits["train"]) > 1:
            splits[part].append(splits["train"].pop())
    order = {example.source: place for place, example in enumerate(examples)}
    return {part: sorted(several, key=lambda e: order[e.source]) for part, several in splits.items()}


def _share(source: str) -> float:
    return int(hashlib.sha1(source.encode("utf-8", "surrogatepass")).hexdigest()[:13], 16) / 16**13


def guess_kinds(examples: Sequence[Example]) -> tuple[str, str, str]:
    """Kinds of symbols for source and target, and why. A few thousand examples tell."""
    some_of = examples[:: max(1, len(examples) // 3000)]
    targets = [target for example in some_of for target in example.targets]
    spaced = sum(" " in target for target in targets) / max(len(targets), 1)
    source_spaced = sum(" " in example.source for example in some_of) / max(len(some_of), 1)
    words = Counter(word for target in targets for word in target.split())
    few = len(words) <= max(16, min(400, 4 * len(targets)))
    if spaced > 0.5 and source_spaced < 0.5 and few:
        return "characters", "spaces", f"targets are {len(words)} symbols separated by blanks"
    if spaced > 0.5 and source_spaced > 0.5 and len(examples) >= 2000:
        return "bpe", "bpe", "both sides are sentences"
    return "characters", "characters", "neither side looks like symbols separated by blanks"


def cut_sounds(texts: Iterable[str], symbols: Symbols, side: str, shown: int = 8) -> list[str]:
    """A note on what IPA means as one sound and `symbols` cut into several, where they are characters of some kind."""
    if symbols.kind not in ("characters", "graphemes"):
        return []
    counts = Counter(sound for text in texts if _RARE.search(text) for sound in _SOUND.findall(text))
    pieces = {sound: cut for sound in counts if len(cut := symbols.split(sound)) > 1}
    if not pieces:
        return []
    first = sorted(pieces, key=lambda sound: (-len(pieces[sound]), -counts[sound], sound))[:shown]
    named = ", ".join(f"{sound} is {len(pieces[sound])} ({' '.join(pieces[sound])})" for sound in first)
    more = f", and {len(pieces) - shown:,} more" if len(pieces) > shown else ""
    return [
        f"By {symbols.kind}, some sounds of the {side} are several symbols: {named}{more}. --data.symbols "
        "inventory:FILE, with a list of the sounds, keeps each whole."
    ]
