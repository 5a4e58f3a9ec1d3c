"""What every task answers with."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prediction:
    """One answer: `output` for `text`, the `score` it was ranked by, symbols of `text` unseen in training.

    `finished` is False when the output reached the length limit before it ended. `n_best` holds all answers asked
    for, best first, as (output, score); the first one is `output`. `probabilities` are those of the same answers, as
    the model holds them.
    """

    text: str
    output: str
    score: float
    finished: bool
    unknown: list[str] = field(default_factory=list)
    n_best: list[tuple[str, float]] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
