"""Everything that `qkv data show FILE` says: how a file is read, what is in it, what will be left out and why."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import chain
from typing import Any

from qkv.data.describe import pairs_in_numbers
from qkv.data.files.columns import choose
from qkv.data.files.header import LABELS, OUTER
from qkv.data.pair_data import Loaded, PairConfig, load
from qkv.data.pairs import SymbolKind
from qkv.data.segment import normalise, rare
from qkv.data.symbols import Symbols
from qkv.data.too_long import TooLong

FEW = 5
"""Symbols seen less often than this are listed."""


def file_report(config: PairConfig) -> dict[str, Any]:
    """What a person should know before training, as plain values that fit JSON.

    Keys: files (name, form, encoding, separator, header, columns, rows), task (what the targets look like), usable and
    left_out (line and reason), duplicates, conflicts, in_two_splits, longest and too_long (rows over it), and those of
    `describe.pairs_in_numbers`; rare (symbols of source and target seen fewer than five times, with code points and
    look-alikes), control_like, labels (when the targets look like labels: counts, look_alikes, and how many fewer
    they would be in NFC, composed), command (to paste).

    Raises UserError as `pair_data.load` does.
    """
    loaded = load(config, refuse=False)
    numbers = pairs_in_numbers(loaded.pairs)
    long = TooLong.of(config, loaded.pairs.source_symbols, loaded.pairs.target_symbols)
    too_long = [
        {"file": rows.name, "line": line, "length": length}
        for rows in loaded.rows.values() for line, length in long.rows(rows)
    ]  # fmt: skip
    labels = _labels(config, loaded)
    return {
        "files": {part: _file(loaded, part) for part in loaded.tables},
        "task": _task(labels),
        "usable": sum(len(rows.rows) for rows in loaded.rows.values()),
        "left_out": [
            {"file": rows.name, **asdict(one)} for rows in loaded.rows.values() for one in rows.left_out
        ],
        "duplicates": loaded.duplicates,
        "conflicts": loaded.conflicts,
        "in_two_splits": {part: len(both) for part, both in loaded.shared.items()},
        "longest": config.longest,
        "too_long": too_long,
        **numbers,
        "rare": {side: [asdict(one) for one in rare(counts, FEW)] for side, counts in numbers["symbols"].items()},
        "control_like": _control_like(numbers["symbols"]),
        "labels": labels,
        "command": command(config, loaded, bool(too_long)),
    }  # fmt: skip


def _file(loaded: Loaded, part: str) -> dict[str, Any]:
    table = loaded.tables[part]
    return {
        "name": table.name, "form": table.form, "encoding": table.encoding, "separator": table.separator,
        "header": table.header, "columns": table.columns, "rows": len(table.rows), "sha256": table.sha256,
    }  # fmt: skip


def _labels(config: PairConfig, loaded: Loaded) -> dict[str, Any] | None:
    """Counts of the targets, and which look alike, when they are few and come back often: then they are labels.

    A column that is named so holds labels even where they seldom come back. What looks alike counts as one label here:
    three people who type three labels make nine of them.
    """
    counts = Counter(target for rows in loaded.rows.values() for _, _, target in rows.rows)
    if len(counts) < 2 or len(counts) > 1000:
        return None
    every = rare(counts, counts.total() + 1)
    kinds = round(sum(1 / (1 + len(one.look_alikes)) for one in every))
    if counts.total() < 3 * kinds and (counts.total() == kinds or not _named_so(config, loaded)):
        return None
    return look_alikes(counts)


def look_alikes(counts: Counter[str]) -> dict[str, Any]:
    """Counts of labels, which of them look alike, and how many fewer they would be in NFC ("composed")."""
    alike = {one.symbol: one.look_alikes for one in rare(counts, counts.total() + 1) if one.look_alikes}
    composed = len(counts) - len({normalise(label, "NFC") for label in counts})
    return {"counts": dict(counts.most_common()), "look_alikes": alike, "composed": composed}


def _named_so(config: PairConfig, loaded: Loaded) -> bool:
    table = loaded.tables["train"]
    if not (config.train and table.header):
        return False
    chosen = choose(table, *config.columns)
    return table.columns[chosen.target].strip(OUTER).casefold() in LABELS


def _task(labels: dict[str, Any] | None) -> str:
    if labels is None:
        return "seq2seq"
    return "seq2seq; the targets look like labels, which are written out as text"


def _control_like(symbols: Mapping[str, Mapping[str, int]]) -> list[str]:
    found = [Symbols.learn(counts, "spaces").looks_like_control() for counts in symbols.values()]
    return list(dict.fromkeys(chain.from_iterable(found)))


def command(config: PairConfig, loaded: Loaded, too_long: bool) -> str:
    """The command that trains on this file as it was read here."""
    words = ["qkv", "train", *([config.train] if config.train else [])]
    for field in fields(PairConfig):
        value = getattr(config, field.name)
        if field.name not in ("train", "symbols") and value != field.default:
            words += [f"--data.{field.name}", str(value)]
    kinds = [_said(kind) for kind in (loaded.pairs.source_symbols, loaded.pairs.target_symbols)]
    asked = config.symbols if config.symbols != "auto" else ",".join(kinds)
    words += ["--data.symbols", asked]
    if too_long and config.too_long == "error":
        words += ["--too-long", "drop"]
    return shlex.join([*words, "--minutes", "10"])


def _said(kind: SymbolKind) -> str:
    return f"{kind.kind}:{kind.size}" if kind.kind in ("bpe", "unigram") else kind.kind
