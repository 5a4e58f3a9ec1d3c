"""A trained run on pairs: its metrics, for which kinds of example they are worse, and each answer."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rapidfuzz.distance import Levenshtein

from qkv.data import fetch, sources
from qkv.data.files.reading import FileConfig
from qkv.data.files.table import LeftOut, Table, read_parallel
from qkv.data.pair_file import grouped, rows_of
from qkv.data.pairs import Example
from qkv.errors import UserError
from qkv.generation.protocol import Hypothesis
from qkv.run.config import typed
from qkv.run.folder import CONFIG
from qkv.run.run import Run
from qkv.tasks.metrics import recall_at
from qkv.tasks.seq2seq import Seq2Seq
from qkv.training.events import counting

FEW = 20
"""A slice of fewer examples is too small to judge."""


@dataclass(frozen=True)
class Given:
    """What to evaluate on: where it is from, examples, rows that were left out, and what a person should be told."""

    name: str
    examples: Sequence[Any]
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Slice:
    """Examples that have something in common: `name` says what, among the slices by the same property."""

    by: str
    name: str
    examples: int
    metrics: dict[str, float]

    @property
    def small(self) -> bool:
        """Whether its figures may be chance."""
        return self.examples < FEW


@dataclass(frozen=True)
class Answer:
    """One example and what the run said: `distance` edits from the nearest target, `right` where there are none."""

    source: str
    targets: tuple[str, ...]
    output: str
    right: bool
    distance: int
    n_best: list[str]


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    metrics       as `Seq2Seq.evaluate` gives them
    wer_interval  in percent; of many such samples of examples, 95 % have one that holds the true WER (Wilson 1927)
    recall        "recall@k" for k from 1 to n_best, where several answers were asked for
    unseen        in how many sources and in how many targets each symbol stands that training never saw
    counts        examples with an unseen symbol in the source (unseen), longer than the run was trained for (too_long),
                  without a target that the run can write (unwritable)
    slices        by source length (quartiles), unseen symbols and number of right targets, where those differ
    """

    metrics: dict[str, float]
    wer_interval: tuple[float, float]
    recall: dict[str, float]
    unseen: dict[str, Counter[str]]
    counts: dict[str, int]
    slices: list[Slice]
    answers: list[Answer]


def own_test(run: Run, progress: fetch.Progress | None = None) -> Given:
    """The test split that the run was scored on when training ended.

    Raises UserError when its data cannot be read any more, or are others than those it was trained on.
    """
    table = run.config.get("data", {})
    try:
        config = sources.find(str(table.get("name", ""))).config
        if config is not None:
            options = {key: value for key, value in table.items() if key not in ("name", "fingerprint")}
            typed(config, options, f"{run.folder / CONFIG}: data")
        pairs = sources.data_of(table, progress)
    except UserError as error:
        raise UserError(
            f"the data that {run.folder} was trained on cannot be read: give --data FILE ({error})"
        ) from None
    if pairs.fingerprint != table.get("fingerprint"):
        raise UserError(
            f"the data that {run.folder} was trained on, or the way they are read, have changed since (fingerprint "
            f"{table.get('fingerprint')} then, {pairs.fingerprint} now): their test split may hold what was trained "
            "on. Give --data FILE, or bring the old data back"
        )
    name = table.get("train") or table.get("source") or table["name"]
    return Given(f"the test split of {name}, the run's own data", pairs.test, notes=pairs.notes)


def own_file(run: Run, file: str | None, source: str | None, target: str | None, reading: FileConfig) -> Given:
    """The pairs in a file, or without one in the two text files `source` and `target`, normalised as the run's data.

    Cells with several targets are split as `reading` says, else as the run's data were.
    `source` and `target` are columns by name or position from 1; without them those of the run's data, where this file
    has them, else the usual ones. Raises UserError naming file, line and column for what cannot be read.
    """
    data = run.config.get("data", {})
    if file is None:
        table = read_parallel(str(source), str(target), encoding=reading.encoding or None)
        columns = None, None
    else:
        table = reading.table(file)
        columns = source or _as_trained(table, data, "source"), target or _as_trained(table, data, "target")
    rows = rows_of(table, *columns, data.get("normalise", "none"), reading.variants or data.get("variants", ""))
    examples, duplicates = grouped(rows.rows)
    again = [f"{duplicates:,} of {len(rows.rows):,} rows say again what another says."] if duplicates else []
    return Given(table.name, examples, rows.left_out, [*rows.notes, *again])


def _as_trained(table: Table, data: dict[str, Any], side: str) -> str | None:
    name = str(data.get(side, "")) if data.get("train") else ""
    there = name in table.columns or (name.isdecimal() and 1 <= int(name) <= len(table.columns))
    return name if name and there else None


def evaluate(run: Run, examples: Sequence[Example], *, beam: int | None = None, n_best: int = 1) -> Evaluation:
    """Decodes each source once and scores the answers; `beam` is the run's own by default.

    Raises UserError when there is no example, and for settings that cannot be (n_best larger than beam).
    """
    if not examples:
        raise UserError("there is no example to evaluate on")
    task = run.task
    encoded = [task.source.encode_text(example.source) for example in examples]
    advance = counting(len(examples), "decoded")
    found = task.decode(run.model, [ids for ids, _ in encoded], beam=beam, n_best=n_best, advance=advance)
    references = [[task.target.split(target) for target in example.targets] for example in examples]
    said = [[task.target.decode(one.tokens, controls=True) for one in hypotheses] for hypotheses in found]
    answers = [_answer(task, *one) for one in zip(examples, found, said, references, strict=True)]
    unknown = [symbols for _, symbols in encoded]
    lengths = [len(task.source.split(example.source)) for example in examples]
    unwritten = [[task.target.encode_text(target)[1] for target in example.targets] for example in examples]
    longest = int(run.config.get("data", {}).get("longest", 0))
    return Evaluation(
        metrics=task.score(examples, found),
        wer_interval=wilson(sum(not answer.right for answer in answers), len(answers)),
        recall=recall_at(said, references) if n_best > 1 else {},
        unseen={
            "source": Counter(symbol for symbols in unknown for symbol in symbols),
            "target": Counter(symbol for several in unwritten for symbols in several for symbol in symbols),
        },
        counts={
            "unseen": sum(map(bool, unknown)),
            "too_long": sum(length > longest for length in lengths) if longest else 0,
            "unwritable": sum(
                all(symbols or len(one) > task.config.max_length for symbols, one in zip(*both, strict=True))
                for both in zip(unwritten, references, strict=True)
            ),
        },
        slices=_slices(task, examples, found, lengths, unknown),
        answers=answers,
    )


def _answer(
    task: Seq2Seq,
    example: Example,
    hypotheses: Sequence[Hypothesis],
    said: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
) -> Answer:
    distance = min(Levenshtein.distance(said[0], one) for one in references)
    texts = [task.target.text(one.tokens) for one in hypotheses]
    return Answer(example.source, example.targets, texts[0], distance == 0, distance, texts)


def wilson(wrong: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The interval, in percent, for a share of which `wrong` of `count` were seen (Wilson 1927); 95 % with this z."""
    share, middle = wrong / count, z * z / count
    half = z * math.sqrt(share * (1 - share) / count + middle / (4 * count))
    low, high = (100.0 * (share + middle / 2 + sign * half) / (1 + middle) for sign in (-1, 1))
    return max(low, 0.0), min(high, 100.0)


def _slices(
    task: Seq2Seq,
    examples: Sequence[Example],
    found: Sequence[Sequence[Hypothesis]],
    lengths: Sequence[int],
    unknown: Sequence[Sequence[str]],
) -> list[Slice]:
    """The slices of each way to cut that makes more than one."""
    ordered = sorted(lengths)
    limits = [ordered[(len(ordered) * quarter + 3) // 4 - 1] for quarter in (1, 2, 3)]
    ways: dict[str, tuple[list[int], Callable[[int, list[int]], str]]] = {
        "source length": (
            [bisect_left(limits, length) for length in lengths],
            lambda _, places: _span([lengths[place] for place in places]),
        ),
        "symbols of the source": (
            [int(bool(symbols)) for symbols in unknown],
            lambda some, _: "some unseen in training" if some else "all seen in training",
        ),
        "right targets": (
            [min(len(example.targets), 3) for example in examples],
            lambda count, _: "3 or more" if count == 3 else str(count),
        ),
    }
    slices: list[Slice] = []
    for by, (keys, named) in ways.items():
        parts: dict[int, list[int]] = defaultdict(list)
        for place, key in enumerate(keys):
            parts[key].append(place)
        for key in sorted(parts) if len(parts) > 1 else ():
            places = parts[key]
            metrics = task.score([examples[place] for place in places], [found[place] for place in places])
            slices.append(Slice(by, named(key, places), len(places), metrics))
    return slices


def _span(lengths: Sequence[int]) -> str:
    low, high = min(lengths), max(lengths)
    return str(low) if low == high else f"{low} to {high}"
