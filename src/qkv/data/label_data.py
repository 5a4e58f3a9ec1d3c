"""A person's own texts with labels as data for classification: what `--data.label NAME` and the like mean."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from qkv.data import splits
from qkv.data.files import columns
from qkv.data.files.encoding import some
from qkv.data.files.header import LABELS, OUTER, SOURCES
from qkv.data.files.reading import FileConfig
from qkv.data.files.table import LeftOut, Table
from qkv.data.pair_data import shares_of
from qkv.data.segment import normalise
from qkv.data.texts import Labelled, Texts
from qkv.errors import UserError, nearest

NAME = "labels"

MANY_NUMBERS = 20
"""Different numbers as labels beyond which they are likely no names of classes."""

_UNSEEN = OUTER + "\u200c\u200d\u2060\u00ad"


@dataclass(frozen=True)
class LabelConfig(FileConfig):
    """The person's own texts with labels; how their files are read is in FileConfig.

    train, dev, test  files: TSV, CSV, JSON lines, Parquet or Excel; without dev and test, parts of train
    text, label       columns, by name or position from 1
    second            the column of a second text, where two are judged together
    several           the sign between labels, where a text may have any number of them
    split             shares of train, dev and test, each label in its share; or time:COLUMN, the newest rows for test
    group             a column whose equal values stay on one side
    symbols           auto, characters, graphemes, spaces, words, inventory:FILE, bpe:SIZE, unigram:SIZE
    normalise         none, NFC or NFD, of texts and labels
    """

    train: str = ""
    dev: str = ""
    test: str = ""
    text: str | int = ""
    label: str | int = ""
    second: str | int = ""
    several: str = ""
    split: str = "0.8,0.1,0.1"
    group: str | int = ""
    symbols: str = "auto"
    normalise: Literal["none", "NFC", "NFD"] = "none"

    def __post_init__(self):
        if not self.train:
            raise ValueError("a file is needed: --data.train FILE")
        if not self.split.startswith("time:"):
            shares_of(self.split)


OPTIONS: Mapping[str, Any] = {one.name: one.default for one in fields(LabelConfig)}


@dataclass(frozen=True)
class LabelRows:
    """Usable rows of one file with their lines, what decides their side, rows left out, and what should be told.

    `lengths` are of the texts as typed, in characters.
    """

    name: str
    lines: list[int]
    examples: list[Labelled]
    groups: list[str | None]
    times: list[str]
    lengths: list[int]
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def texts_of(config: LabelConfig) -> Texts:
    """Reads, cleans, counts and splits. Raises UserError naming file, line and column for what cannot be used."""
    files = {"train": config.train, "dev": config.dev, "test": config.test}
    tables = {part: config.table(file) for part, file in files.items() if file}
    rows = {part: rows_of(config, table) for part, table in tables.items()}
    _refuse_labels(rows)
    notes = [f"{tables[part].name}: {note}" for part, one in rows.items() for note in one.notes]
    parts, more = _complete(config, rows)
    labels = tuple(sorted({label for example in parts["train"] for label in example.labels}))
    if len(labels) < 2 and not config.several:
        raise UserError(f"{config.train}: all labels are {''.join(labels)!r}, there is nothing to tell apart")
    said = json.dumps([{part: table.sha256 for part, table in tables.items()}, asdict(config)], sort_keys=True)
    return Texts(
        **parts, name=NAME, task="classification", labels=labels, symbols=config.symbols,
        several=bool(config.several), fingerprint=hashlib.sha256(said.encode()).hexdigest(),
        notes=[*notes, *more, *_counted(parts)],
    )  # fmt: skip


def rows_of(config: LabelConfig, table: Table) -> LabelRows:
    """The rows of one table. Rows without a text or a label are left out and named."""
    text, label, notes = _columns(config, table)
    second, group = (_asked(table, name, what) for name, what in ((config.second, "second"), (config.group, "group")))
    when = _asked(table, config.split.removeprefix("time:"), "split") if config.split.startswith("time:") else None
    found = LabelRows(table.name, [], [], [], [], [], list(table.left_out), [*table.notes, *notes])
    changed = 0
    for line, values in table.rows:
        read = normalise(values[text].strip(OUTER), config.normalise)
        other = "" if second is None else normalise(values[second].strip(OUTER), config.normalise)
        said = values[label].split(config.several) if config.several else [values[label]]
        clean = [normalise(one.strip(_UNSEEN), config.normalise) for one in said]
        changed += clean != said
        given = tuple(dict.fromkeys(one for one in clean if one))
        if not read or (second is not None and not other):
            found.left_out.append(LeftOut(line, "text is empty"))
        elif not given and not config.several:
            found.left_out.append(LeftOut(line, "label is empty"))
        else:
            found.lines.append(line)
            found.lengths.append(len(values[text]) + (0 if second is None else len(values[second])))
            found.examples.append(Labelled(read, given, other))
            found.groups.append(None if group is None else values[group])
            found.times.append("" if when is None else values[when])
    if changed:
        spellings = len({values[label] for _, values in table.rows}), len({e.labels for e in found.examples})
        found.notes.append(
            f"White space that is not seen taken off labels in {changed:,} rows: of {spellings[0]} spellings "
            f"{spellings[1]} are left."
        )
    for reason in dict.fromkeys(one.reason for one in found.left_out):
        found.notes.append(f"Left out, {reason}: {some([o.line for o in found.left_out if o.reason == reason])}.")
    if not found.examples:
        raise UserError(f"{table.name} has no row with both a text and a label")
    return found


def looks_labelled(table: Table) -> bool:
    """Whether one of the columns holds labels: few different short values that come back, or a usual name for them."""
    if len(table.columns) < 2 or table.form in ("dict", "parallel"):
        return False
    try:
        text, label, _ = _columns(None, table)
    except UserError:
        return False
    values = [row.values[label].strip(_UNSEEN) for row in table.rows]
    kinds, named = len(set(values)), table.header and table.columns[label].strip(OUTER).casefold() in LABELS
    texts = len({row.values[text] for row in table.rows})
    named = named and (kinds < len(values) or all(map(_is_number, values)))
    if kinds < 2 or max(map(len, values)) > 60:
        return named
    return named or (kinds <= 100 and len(values) >= 3 * kinds and texts > kinds)


def _columns(config: LabelConfig | None, table: Table) -> tuple[int, int, list[str]]:
    """The places of text and label: as asked, by their usual names, else by what is in them."""
    if len(table.columns) < 2:
        raise UserError(f"{table.name} has one column: a text and a label are expected, separated by a tab or a comma")
    text = None if config is None else _asked(table, config.text, "text")
    label = None if config is None else _asked(table, config.label, "label")
    others = set() if config is None else {_asked(table, name, "second") for name in (config.second, config.group)}
    left = [place for place in range(len(table.columns)) if place not in {text, label, *others}]
    if label is None:
        named = [place for place in left if table.header and table.columns[place].strip(OUTER).casefold() in LABELS]
        label = named[0] if len(named) == 1 else min(left, key=lambda place: _kinds(table, place))
        left = [place for place in left if place != label]
    if text is None:
        named = [place for place in left if table.header and table.columns[place].strip(OUTER).casefold() in SOURCES]
        text = named[0] if len(named) == 1 else max(left, key=lambda place: _length(table, place), default=None)
    if text is None or text == label:
        raise UserError(f"{table.name}: which columns are text and label? Say so with --data.text and --data.label")
    names = [f"column {place + 1} ({table.columns[place]!r})" for place in (text, label)]
    return text, label, [f"Text: {names[0]}; label: {names[1]}."]


def _asked(table: Table, name: str | int, what: str) -> int | None:
    return None if name == "" else columns.find(table, name, what, [])


def _kinds(table: Table, place: int) -> int:
    return len({row.values[place] for row in table.rows})


def _length(table: Table, place: int) -> int:
    return sum(len(row.values[place]) for row in table.rows)


def _refuse_labels(rows: Mapping[str, LabelRows]) -> None:
    known = {label for example in rows["train"].examples for label in example.labels}
    unseen = [
        f"{label!r} ({one.name}, line {line})"
        for part, one in rows.items() if part != "train"
        for line, example in zip(one.lines, one.examples, strict=True)
        for label in example.labels if label not in known
    ]  # fmt: skip
    if unseen:
        listed = ", ".join(unseen[:10]) + (f" and {len(unseen) - 10:,} more" if len(unseen) > 10 else "")
        near = nearest(unseen[0].split("'")[1], sorted(known))
        raise UserError(f"labels that {rows['train'].name} never has: {listed}.{near} Labels: {_short(sorted(known))}")
    total = len(rows["train"].examples)
    if len(known) > MANY_NUMBERS and len(known) > total / 10 and all(map(_is_number, known)):
        raise UserError(
            f"{rows['train'].name}: the labels are {len(known):,} different numbers in {total:,} rows. Is a number "
            "to be predicted (regression, which there is none of here)? As classes, write them as ranges, such as 0-9"
        )


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label.replace(",", ".")))
    except ValueError:
        return False


def _short(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20:,} more" if len(names) > 20 else "")


def _complete(config: LabelConfig, rows: Mapping[str, LabelRows]) -> tuple[dict[str, list[Labelled]], list[str]]:
    """All three parts: the missing ones cut out of train, in which each text with one verdict is used once."""
    train, notes = _once(rows["train"])
    parts = {part: list(rows[part].examples) for part in ("dev", "test") if part in rows}
    missing = [part for part in ("dev", "test") if part not in parts]
    if missing:
        made, said = _cut(config, train, missing)
        notes += said
        parts = {**made, **parts}
    else:
        parts["train"] = train.examples
    for part in ("train", "dev", "test"):
        if not parts[part]:
            raise UserError(f"there are too few rows for a {part} part: give --data.{part} FILE, or more rows")
    sizes = ", ".join(f"{part} {len(parts[part]):,}" for part in ("train", "dev", "test"))
    return parts, [*notes, *_in_two(parts), f"{'Split' if missing else 'Given'}: {sizes}."]


def _once(rows: LabelRows) -> tuple[LabelRows, list[str]]:
    """The rows without those that say again what another says."""
    first = {example: place for place, example in reversed(list(enumerate(rows.examples)))}
    kept = sorted(first.values())
    verdicts = Counter((one.text, one.second) for one in first)
    disagree = [text for (text, _), count in verdicts.items() if count > 1]
    notes: list[str] = []
    if len(kept) < len(rows.examples):
        notes.append(f"{len(rows.examples) - len(kept):,} rows say again what another says; each is used once.")
    if disagree:
        notes.append(f"{len(disagree):,} texts have different labels in different rows, as {disagree[0][:60]!r}.")
    places: dict[str, Any] = {
        name: [getattr(rows, name)[place] for place in kept]
        for name in ("lines", "examples", "groups", "times", "lengths")
    }
    return replace(rows, **places), notes


def _cut(config: LabelConfig, rows: LabelRows, missing: Sequence[str]) -> tuple[dict[str, list[Labelled]], list[str]]:
    texts = [f"{one.text}\t{one.second}" for one in rows.examples]
    near = [splits.near_key(text) for text in texts]
    timed = config.split.startswith("time:")
    shares = (0.8, 0.1, 0.1) if timed else shares_of(config.split)
    shares = (shares[0], shares[1] if "dev" in missing else 0.0, shares[2] if "test" in missing else 0.0)
    alike = len(near) - len(set(near))
    notes = (
        [f"{alike:,} texts differ from another in case, signs or digits only: they stay on one side."] if alike else []
    )
    if timed:
        places = splits.by_time(rows.times, shares)
        old = {near[row] for row in places["train"]}
        again = [row for part in ("dev", "test") for row in places[part] if near[row] in old]
        places = {part: [row for row in several if row not in set(again)] for part, several in places.items()}
        notes = [
            f"Split by time: the oldest rows are train, the newest test; {len(again):,} of those are old: left out."
        ]
    else:
        labels = [one.labels[0] if one.labels else "" for one in rows.examples]
        places = splits.stratified(splits.joined(near, rows.groups), labels, texts, shares)
        notes.append("Split by label and a hash of the text" + (", groups kept together." if config.group else "."))
    return {part: [rows.examples[row] for row in several] for part, several in places.items()
            if part == "train" or part in missing}, notes  # fmt: skip


def _in_two(parts: Mapping[str, Sequence[Labelled]]) -> list[str]:
    known = {(one.text, one.second) for one in parts["train"]}
    both = {part: sum((one.text, one.second) in known for one in parts[part]) for part in ("dev", "test")}
    return [
        f"{count:,} of {len(parts[part]):,} {part} texts are in train too: {part} figures are too good by that."
        for part, count in both.items() if count
    ]  # fmt: skip


def _counted(parts: Mapping[str, Sequence[Labelled]]) -> list[str]:
    counts = {part: Counter(label for one in several for label in one.labels) for part, several in parts.items()}
    usual, _ = counts["train"].most_common(1)[0]
    single = [label for label, count in sum(counts.values(), Counter()).items() if count == 1]
    notes = [f"Labels with one example: {_short(single)}."] if single else []
    share = 100.0 * sum(usual in one.labels for one in parts["test"]) / len(parts["test"])
    listed = ", ".join(f"{label} {count:,}" for label, count in counts["train"].most_common(20))
    return [*notes, f"Labels in train: {listed}. Always saying {usual!r} is right in {share:.1f} % of test."]
