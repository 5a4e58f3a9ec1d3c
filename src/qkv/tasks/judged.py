"""Probabilities of classes, reduced to what a person judges a classifier by.

Letters: N examples, C classes. Figures are in percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

COOLEST, HOTTEST = 0.1, 10.0
"""Temperatures that `temperature` chooses from: examples without a mistake ask for 0."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What was said of N examples, and what is right.

    probabilities  (N, C)
    truth          (N,) the right class of each example; or (N, C) bool, where several may hold together
    answers        like truth: what was said

    Raises ValueError when there is no example, and for shapes that do not go together.
    """

    labels: Sequence[str]
    probabilities: np.ndarray
    truth: np.ndarray
    answers: np.ndarray

    def __post_init__(self):
        n_examples, n_classes = self.probabilities.shape
        if not n_examples:
            raise ValueError("there is no example to judge by")
        shapes = [(n_examples,), (n_examples, n_classes)]
        if len(self.labels) != n_classes or self.truth.shape not in shapes or self.answers.shape != self.truth.shape:
            raise ValueError(
                f"{len(self.labels)} labels, probabilities {self.probabilities.shape}, truth {self.truth.shape} and "
                f"answers {self.answers.shape} do not go together"
            )

    @classmethod
    def of(cls, labels: Sequence[str], probabilities: np.ndarray, truth: np.ndarray, threshold: float = 0.5) -> Judged:
        """With the most probable class as the answer or, where several may hold, all from `threshold` on."""
        answers = probabilities >= threshold if truth.ndim == 2 else probabilities.argmax(1)
        return cls(labels, probabilities, truth, answers)

    @property
    def several(self) -> bool:
        """Whether an example may have any number of labels."""
        return self.truth.ndim == 2

    @property
    def right(self) -> np.ndarray:
        """(N,) bool: the answer is the right one; of several labels, every one of them."""
        return (self.answers == self.truth).all(1) if self.several else self.answers == self.truth

    @property
    def accuracy(self) -> float:
        """Right answers; of several labels, those that are right in every one."""
        return 100.0 * float(self.right.mean())

    @property
    def macro_f1(self) -> float:
        """F1, mean over the classes that occur or were said: of another class there is nothing to be said.

        0 where there is no such class.
        """
        met, said, there = self._counts
        named = said + there > 0
        return 100.0 * float((2 * met[named] / (said + there)[named]).mean()) if named.any() else 0.0

    @property
    def micro_f1(self) -> float:
        """F1 of all decisions together; 0 where no label occurs and none was said. Of one label it is the accuracy."""
        met, said, there = (int(counts.sum()) for counts in self._counts)
        return 100.0 * _share(2 * met, said + there)

    def per_class(self) -> list[dict[str, Any]]:
        """Of each class: label, precision, recall, f1, support (examples that have it), predicted (said to have it).

        What cannot be computed, because no example has the class or none was said to, is 0.
        """
        return [
            {
                "label": label,
                "precision": 100.0 * _share(met, said),
                "recall": 100.0 * _share(met, there),
                "f1": 100.0 * _share(2 * met, said + there),
                "support": there,
                "predicted": said,
            }
            for label, met, said, there in zip(self.labels, *(c.tolist() for c in self._counts), strict=True)
        ]

    def confusion(self) -> np.ndarray:
        """(C, C) int: how many examples of the class of the row were said to be of the class of the column.

        Raises ValueError where several labels may hold: there is no one class that another was taken for.
        """
        if self.several:
            raise ValueError("several labels may hold together: there is no confusion table, per_class() tells of each")
        n_classes = len(self.labels)
        counts = np.bincount(self.truth * n_classes + self.answers, minlength=n_classes**2)
        return counts.reshape(n_classes, n_classes)

    def most_wrong(self, count: int = 20) -> list[int]:
        """At most `count` places of wrong answers, the one held for most probable first.

        Of several labels that is the wrong decision held for most probable, the label said or left out.
        """
        if self.several:
            held = np.where(self.answers, self.probabilities, 1.0 - self.probabilities)
            surest = np.where(self.answers != self.truth, held, -np.inf).max(1)  # (N,)
        else:
            surest = self._confidence
        wrong = np.flatnonzero(~self.right)
        return wrong[np.argsort(-surest[wrong], kind="stable")][:count].tolist()

    def ece(self, bins: int = 15) -> float:
        """Expected calibration error: probability against share of right answers (Guo et al. 2017, eq. 3).

        Answers are put into `bins` of equal width, (0, 1/bins] to (1 - 1/bins, 1], by their probability. Of several
        labels, each label's probability is compared with how often it holds.
        """
        confidence = self.probabilities.ravel() if self.several else self._confidence
        held = self.truth.ravel() if self.several else self.right
        places = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
        # |share right - mean probability| times the share of the bin: counts cancel out.
        gaps = np.bincount(places, weights=held - confidence, minlength=bins)
        return 100.0 * float(np.abs(gaps).sum()) / len(confidence)

    @property
    def _confidence(self) -> np.ndarray:
        return np.take_along_axis(self.probabilities, self.answers[:, None], 1)[:, 0]  # (N,)

    @cached_property
    def _counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each class (C,): examples that have it and were said to, that were said to, that have it."""
        if self.several:
            return (self.answers & self.truth).sum(0), self.answers.sum(0), self.truth.sum(0)
        n_classes = len(self.labels)
        places = self.truth[self.right], self.answers, self.truth
        met, said, there = (np.bincount(some, minlength=n_classes) for some in places)
        return met, said, there


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def temperature(logits: np.ndarray, truth: np.ndarray) -> float:
    """What to divide `logits` (N, C) by so that the right answers are the most probable (Guo et al. 2017, section 4.2).

    `truth` as in Judged; of several labels each has its own sigmoid. The negative log-likelihood is convex in 1 / T:
    its slope is followed to 0, between COOLEST and HOTTEST.
    """
    scores, right = torch.from_numpy(logits).double(), torch.from_numpy(truth)

    def slope(inverse: float) -> float:
        if truth.ndim == 2:
            return float((scores * ((inverse * scores).sigmoid() - right.double())).sum())
        held = (inverse * scores).log_softmax(1).exp()  # (N, C)
        return float((held * scores).sum() - scores.gather(1, right[:, None]).sum())

    low, high = 1.0 / HOTTEST, 1.0 / COOLEST
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return 1.0 / (low * high) ** 0.5
