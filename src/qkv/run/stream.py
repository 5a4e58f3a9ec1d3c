"""Predicting line by line: one answer for each line, in order, with what is known answered from a lexicon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from qkv.data.segment import normalise
from qkv.data.symbols import UNK
from qkv.errors import UserError
from qkv.run.run import Run
from qkv.tasks.masked_lm import MARK
from qkv.tasks.prediction import Prediction
from qkv.tasks.registry import options_of

MOST_UNKNOWN = 5.0
"""Percent of unknown tokens above which a run does not fit the texts."""

CHUNK = 1024
"""Lines answered at once: sources of like length share a batch, and memory stays the same for any number of lines."""


@dataclass
class Asked:
    """How to answer. `lexicon` maps a text to its right answers; `longest` is the most symbols of a text, 0 any."""

    beam: int | None = None
    n_best: int = 1
    min_prob: float = 0.0
    lexicon: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    longest: int = 0
    too_long: str = "error"
    allow_unk: bool = False


@dataclass
class Counted:
    """What a person should be told in the end."""

    lines: int = 0
    empty: int = 0
    known: int = 0
    unfinished: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    too_long: list[int] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def unknown_share(self) -> float:
        """Percent of the tokens that training never saw, of tasks that read texts and write none."""
        return 100.0 * self.unknown_tokens / max(self.tokens, 1)


def answers(run: Run, lines: Iterable[str], asked: Asked, counted: Counted, chunk: int = CHUNK) -> Iterator[Prediction]:
    """One Prediction a line, empty for an empty line; `counted` is filled on the way.

    Raises UserError at the first line that is longer than `asked.longest`, unless those are to be cut or left empty.
    """
    rest = iter(lines)
    while several := list(islice(rest, chunk)):
        yield from _chunk(run, several, asked, counted)


def _chunk(run: Run, lines: list[str], asked: Asked, counted: Counted) -> Iterator[Prediction]:
    found: dict[int, Prediction] = {}
    ask: dict[int, str] = {}
    for place, line in enumerate(lines):
        counted.lines += 1
        text = _as_trained(run, line.strip())
        if run.task.is_empty(text):
            counted.empty += 1
            found[place] = _nothing(line)
        elif text in asked.lexicon:
            counted.known += 1
            found[place] = _known(text, asked)
        elif (fitting := _fitting(run, text, asked, counted)) is None:
            found[place] = _nothing(line)
        else:
            ask[place] = fitting
    _refuse_unknown(run, list(ask.values()), asked, counted)
    for place, one in zip(ask, run.predict(list(ask.values()), **_options(run, asked)), strict=True):
        counted.unfinished += not one.finished
        counted.unknown.update(one.unknown)
        found[place] = _likely(replace(one, text=lines[place].strip()), asked)
    return (found[place] for place in range(len(lines)))


def _refuse_unknown(run: Run, texts: list[str], asked: Asked, counted: Counted) -> None:
    if not hasattr(run.task, "whole_words"):
        return
    for text in texts:
        parts = text.split() if run.task.name == "tagging" else text.replace(MARK, " ").split("\t")
        ids = [id_ for part in parts for id_ in run.task.source.encode(part)]
        counted.tokens += len(ids)
        counted.unknown_tokens += ids.count(UNK)
    if counted.unknown_share > MOST_UNKNOWN and not (asked.allow_unk or run.task.whole_words):
        raise UserError(
            f"{counted.unknown_share:.1f} % of the tokens of the first {counted.lines:,} lines are unknown to this run "
            f"(at most {MOST_UNKNOWN:g} %): it was trained on texts of another kind, or these were decoded wrongly. "
            "--allow-unk answers all the same"
        )


def _options(run: Run, asked: Asked) -> dict[str, Any]:
    """What the task is asked beside the texts: how wide to search, where it searches."""
    searched = "n_best" in options_of(run.task)
    return ({"beam": asked.beam} if asked.beam is not None else {}) | ({"n_best": asked.n_best} if searched else {})


def _as_trained(run: Run, text: str) -> str:
    return normalise(text, run.config.get("data", {}).get("normalise", "none"))


def _fitting(run: Run, text: str, asked: Asked, counted: Counted) -> str | None:
    """The text, cut where it is too long and that was asked for; None where it is to be left empty."""
    if not asked.longest or len(text) <= asked.longest:
        return text
    symbols = run.task.source.split(text)
    if len(symbols) <= asked.longest:
        return text
    counted.too_long.append(counted.lines)
    if asked.too_long == "error":
        raise UserError(
            f"line {counted.lines} has {len(symbols):,} symbols; this run was trained on up to {asked.longest}. "
            "--too-long truncate cuts such lines, --too-long drop leaves their answers empty"
        )
    return run.task.source.join(symbols[: asked.longest]) if asked.too_long == "truncate" else None


def _nothing(line: str) -> Prediction:
    return Prediction(line, "", 0.0, True, n_best=[("", 0.0)], probabilities=[0.0])


def _known(text: str, asked: Asked) -> Prediction:
    right = asked.lexicon[text][: asked.n_best]
    return Prediction(text, right[0], 0.0, True, [], [(one, 0.0) for one in right], [1.0] * len(right))


def _likely(one: Prediction, asked: Asked) -> Prediction:
    """The best answer, and of the others asked for those that the model holds for likely enough."""
    held = one.probabilities[: asked.n_best]
    kept = [place for place, probability in enumerate(held) if place == 0 or probability >= asked.min_prob]
    return replace(one, n_best=[one.n_best[i] for i in kept], probabilities=[one.probabilities[i] for i in kept])
