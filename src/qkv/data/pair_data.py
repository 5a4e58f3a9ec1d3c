"""A person's own pair files as data for training: what `--data.train FILE` and the other `--data.` settings mean."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from qkv.data.files.reading import FileConfig
from qkv.data.files.table import Table, read_parallel
from qkv.data.pair_file import Rows, cut, cut_sounds, grouped, guess_kinds, rows_of
from qkv.data.pairs import Example, Pairs, SymbolKind
from qkv.data.segment import read_inventory
from qkv.data.too_long import TooLong
from qkv.errors import UserError, nearest

NAME = "pairs"
KINDS = ("characters", "graphemes", "spaces", "words", "inventory:FILE", "bpe", "unigram")


@dataclass(frozen=True)
class PairConfig(FileConfig):
    """The person's own pairs of source and target; how their files are read is in FileConfig.

    train, dev, test  files: TSV, CSV, JSON lines, Parquet, Excel, or a dictionary; without dev and test, parts of train
    source, target    columns, by name or position from 1; or, without train, two text files with a line beside a line
    split             shares of train, dev and test, by a hash of the source, where no dev or test file is given
    symbols           of the target: auto, characters, graphemes, spaces, inventory:FILE, bpe:SIZE, unigram:SIZE; two,
                      separated by a comma, are of source and target
    normalise         none, NFC or NFD, on both sides
    longest           symbols of a source or a target beyond which a row is too long
    too_long          what becomes of it: error (before training), drop, or truncate; both are counted and said
    """

    train: str = ""
    dev: str = ""
    test: str = ""
    source: str | int = ""
    target: str | int = ""
    split: str = "0.9,0.05,0.05"
    symbols: str = "auto"
    normalise: Literal["none", "NFC", "NFD"] = "none"
    longest: int = 500
    too_long: Literal["error", "drop", "truncate"] = "error"

    def __post_init__(self):
        if not self.train and not (self.source and self.target):
            raise ValueError("a file is needed: --data.train FILE, or two with --data.source FILE --data.target FILE")
        if self.longest < 1:
            raise ValueError(f"longest {self.longest}: must be 1 or more")
        shares_of(self.split)

    @property
    def columns(self) -> tuple[str | int | None, str | int | None]:
        """The columns asked for, None where nobody said; 0 is an answer, if a wrong one."""
        return tuple(None if one == "" else one for one in (self.source, self.target))  # pyright: ignore[reportReturnType]


OPTIONS: Mapping[str, Any] = {field.name: field.default for field in fields(PairConfig)}


def shares_of(split: str) -> tuple[float, float, float]:
    """The three numbers of `split`. Raises ValueError when they are not."""
    try:
        train, dev, test = map(float, split.split(","))
    except ValueError:
        raise ValueError(f"split {split!r}: three shares are expected, train,dev,test, as in 0.9,0.05,0.05") from None
    if not (train > 0 and dev >= 0 and test >= 0 and train + dev + test < math.inf):
        raise ValueError(f"split {split!r}: shares must be numbers, not negative, and train's not 0")
    return train, dev, test


@dataclass(frozen=True)
class Loaded:
    """Pairs, and what was counted on the way: left-out rows by file, duplicates, conflicts, sources in two splits."""

    pairs: Pairs
    tables: dict[str, Table]
    rows: dict[str, Rows]
    duplicates: int
    conflicts: int
    shared: dict[str, list[str]]


def load(config: PairConfig, refuse: bool = True) -> Loaded:
    """Reads, cleans, groups and splits. Raises UserError naming file, line and column for what cannot be read.

    With `refuse` also for rows that are too long, where the config says so; without, they are left as they are.
    """
    tables = _tables(config)
    columns = config.columns if config.train else (None, None)
    rows = {part: rows_of(table, *columns, config.normalise, config.variants) for part, table in tables.items()}
    splits, duplicates = dict[str, list[Example]](), 0
    for part, one in rows.items():
        splits[part], more = grouped(one.rows)
        duplicates += more
    conflicts = sum(len(example.targets) > 1 for several in splits.values() for example in several)
    notes = [f"{tables[part].name}: {note}" for part, one in rows.items() for note in one.notes]
    splits, more_notes = _complete(splits, shares_of(config.split))
    source, target, why = _kinds(config, splits["train"])
    long = TooLong.of(config, source, target)
    if refuse:
        long.refuse(rows)
    splits, more = long.handle(splits)
    more_notes += more
    every = [example for several in splits.values() for example in several]
    sounds = [
        *cut_sounds((e.source for e in every), long.source, "source"),
        *cut_sounds((target for e in every for target in e.targets), long.target, "target"),
    ]
    shared = _shared(splits)
    pairs = Pairs(
        **splits, name=NAME, source_symbols=source, target_symbols=target, fingerprint=_fingerprint(config, tables),
        notes=[*notes, *_counted(splits, duplicates, conflicts, shared), *more_notes, why, *sounds],
    )  # fmt: skip
    return Loaded(pairs, tables, rows, duplicates, conflicts, shared)


def _tables(config: PairConfig) -> dict[str, Table]:
    if not config.train:
        if config.dev or config.test:
            raise UserError("two text files are split here: --data.dev and --data.test take files of two columns")
        if config.header != "auto" or config.separator:
            raise UserError("two text files have no columns: --data.header and --data.separator are of one file")
        return {"train": read_parallel(str(config.source), str(config.target), encoding=config.encoding or None)}
    files = {"train": config.train, "dev": config.dev, "test": config.test}
    return {part: config.table(file) for part, file in files.items() if file}


def _complete(
    splits: dict[str, list[Example]], shares: tuple[float, float, float]
) -> tuple[dict[str, list[Example]], list[str]]:
    """All three splits: the missing ones cut out of train."""
    missing = [part for part in ("dev", "test") if part not in splits]
    if not missing:
        return splits, []
    wanted = (shares[0], shares[1] if "dev" in missing else 0.0, shares[2] if "test" in missing else 0.0)
    made = cut(splits["train"], wanted)
    for part in ("dev", "test"):
        splits[part] = splits.get(part) or made[part]
    splits["train"] = made["train"]
    sizes = ", ".join(f"{part} {len(splits[part]):,}" for part in ("train", *missing))
    note = f"Split by a hash of the source, equal sources on one side: {sizes}."
    for part in missing:
        if not splits[part] and not wanted[("train", "dev", "test").index(part)]:
            raise UserError(f"data.split gives the {part} part nothing: give it a share, or --data.{part} FILE")
        if not splits[part]:
            raise UserError(
                f"there are too few different sources for a {part} part ({len(splits['train'])} in train): give "
                f"--data.{part} FILE, or more rows"
            )
    return splits, [note]


def _kinds(config: PairConfig, train: list[Example]) -> tuple[SymbolKind, SymbolKind, str]:
    guessed = guess_kinds(train)
    asked = [part.strip() for part in config.symbols.split(",")]
    if config.symbols == "auto":
        source, target, why = guessed
        said = f"Symbols: source {source}, target {target} (guessed: {why})."
    else:
        target = asked[-1]
        subwords = target.split(":")[0] in ("bpe", "unigram", "graphemes", "characters")
        source = asked[0] if len(asked) == 2 else target if subwords else "characters"
        said = f"Symbols: source {source}, target {target}."
    if len(asked) > 2:
        raise UserError(f"data.symbols {config.symbols!r}: one kind, or two for source and target")
    return symbol_kind(source), symbol_kind(target), said


def symbol_kind(said: str) -> SymbolKind:
    """ "bpe:4000" and the like as a SymbolKind. Raises UserError for an unknown kind, with the nearest."""
    kind, _, rest = said.partition(":")
    if kind == "inventory" and rest:
        return SymbolKind(kind, inventory=tuple(read_inventory(rest)))
    if kind in ("bpe", "unigram") and (not rest or rest.isdigit()):
        return SymbolKind(kind, size=int(rest)) if rest else SymbolKind(kind)
    if kind in ("characters", "graphemes", "spaces", "words") and not rest:
        return SymbolKind(kind)
    raise UserError(f"unknown symbols {said!r}.{nearest(kind, KINDS)} Kinds: {', '.join(KINDS)}")


def _shared(splits: Mapping[str, list[Example]]) -> dict[str, list[str]]:
    known = {example.source for example in splits["train"]}
    return {part: [e.source for e in splits[part] if e.source in known] for part in ("dev", "test")}


def _counted(
    splits: Mapping[str, list[Example]], duplicates: int, conflicts: int, shared: Mapping[str, list[str]]
) -> list[str]:
    notes: list[str] = []
    if duplicates:
        notes.append(f"{duplicates:,} rows say again what another says; each pair is used once.")
    if conflicts:
        notes.append(f"{conflicts:,} sources have several targets; any of them counts as right.")
    notes += [
        f"{len(both):,} of {len(splits[part]):,} {part} sources are in train too: {part} figures are too good by that."
        for part, both in shared.items() if both
    ]  # fmt: skip
    return notes


def _fingerprint(config: PairConfig, tables: Mapping[str, Table]) -> str:
    content = {part: table.sha256 for part, table in tables.items()}
    inventory = [symbol_kind(one).inventory for one in config.symbols.split(",") if one.startswith("inventory:")]
    # These came later: data read without them keep the fingerprint that they had before.
    settings = {name: value for name, value in asdict(config).items() if value or name not in ("separator", "variants")}
    said = json.dumps([content, settings, inventory], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(said.encode()).hexdigest()
