"""Classification: what a text, or two that are judged together, is about; one label or any number of them.

Letters: B batch, T time, N texts, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.data.ids import encode, learn
from qkv.data.pair_data import symbol_kind
from qkv.data.symbols import Symbols
from qkv.data.texts import Labelled, Texts
from qkv.errors import UserError
from qkv.tasks.batch import Batch
from qkv.tasks.judged import Judged, temperature
from qkv.tasks.labels import Labels, evened
from qkv.tasks.prediction import Prediction
from qkv.tasks.seq2seq import Divide
from qkv.tasks.windows import Item, Items, Pieces, Pool, Read, inputs_of, read

Balance = Literal["none", "weights", "batches"]
Advance = Callable[[int], None] | None
Sides = tuple[str, str]  # a text and its second one, "" where there is none


@dataclass(frozen=True)
class ClassificationConfig:
    """How texts are read and what is learnt of them.

    window           most tokens read at once, control symbols included: a longer text is read in several windows
    stride           tokens from the start of a window to that of the next; 0: three quarters of a window
    pool             scores of a text with several windows: their mean, their max, or the first window's alone
    label_smoothing  share of the right label's probability spread over all labels (Szegedy et al. 2016, section 7)
    balance          rare classes: weights (all count the same in the loss), batches (examples are repeated until all
                     classes are equally large), or none
    threshold        probability from which on a label is said, where several may hold
    """

    window: int = 256
    stride: int = 0
    pool: Pool = "mean"
    label_smoothing: float = 0.0
    balance: Balance = "none"
    threshold: float = 0.5

    def __post_init__(self):
        if self.window < 8 or not 0 <= self.stride <= self.window:
            raise ValueError(
                f"window must be >= 8 and stride from 0 to window, got window {self.window} and stride {self.stride}"
            )
        if not (0.0 <= self.label_smoothing < 1.0 and 0.0 < self.threshold < 1.0):
            smoothing, threshold = self.label_smoothing, self.threshold
            raise ValueError(f"label_smoothing must be in [0, 1), threshold in (0, 1), got {smoothing} and {threshold}")
        for name, kinds in (("pool", Pool), ("balance", Balance)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kinds))}, got {getattr(self, name)!r}")


class Classification:
    """Collates, scores and labels texts. Knows windows and classes; knows no model.

    labels       their names; `classes` has more of them
    pairs        whether two texts are judged together
    temperature  what scores are divided by before they become probabilities: `calibrate` finds it
    """

    name = "classification"
    head = "pooled"

    def __init__(
        self, config: ClassificationConfig, source: Symbols, classes: Labels, pairs: bool, temperature: float = 1.0
    ):
        self.config, self.source, self.classes, self.labels = config, source, classes, classes.names
        self.several, self.pairs, self.temperature = classes.several, pairs, temperature

    @classmethod
    def of(cls, config: ClassificationConfig, data: Texts, *, kind: str) -> Classification:
        """The task with the vocabulary of the training split. Raises UserError where there is nothing to tell apart."""
        train = cast(Sequence[Labelled], data.train)
        if data.several and config.balance == "batches":
            raise UserError("task.balance batches needs one label a text: where several may hold, use weights")
        pairs = any(example.second for example in train)
        texts = (text for e in train for text in ((e.text, e.second) if pairs else (e.text,)))
        classes = Labels.of(data.labels, train, data.several)
        return cls(config, learn(texts, symbol_kind(kind), "text"), classes, pairs)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes, as the architectures' builders name them."""
        return {"n_tokens": len(self.source), "n_labels": len(self.labels), "n_segments": 1 + self.pairs}

    @property
    def metric(self) -> str:
        """What the best checkpoint is chosen by, where nobody says otherwise: rare classes count in it too."""
        return "micro_f1" if self.several else "macro_f1"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the figures on dev, of which the best model may be chosen by one."""
        return (*(("micro_f1",) if self.several else ()), "macro_f1", "accuracy", "loss")

    @property
    def whole_words(self) -> bool:
        """Whether tokens are words, of which every text has some that training has not seen."""
        return self.source.kind in ("words", "spaces")

    def is_empty(self, text: str) -> bool:
        """Whether there is nothing in a text, or in one of a pair, to predict from."""
        return not all(map(self.source.split, text.split("\t") if self.pairs else (text,)))

    def items(self, examples: Sequence[Labelled]) -> Items:
        """The windows of every example, with its labels.

        With `balance` batches the examples of each class are repeated until it has as many as the largest. Raises
        UserError for a label that training has not, naming the example.
        """
        truth = self.classes.truth(examples)
        order = evened(truth) if self.config.balance == "batches" else np.arange(len(truth))
        return Items(self._pieces(_texts(examples)), truth, order)

    def lengths(self, items: Sequence[Item]) -> list[tuple[int, int]]:
        """Tokens of each window, control symbols included."""
        if isinstance(items, Items):
            return [(length, 0) for length in items.lengths.tolist()]
        return [(len(item.piece[0]), 0) for item in items]

    def collate(self, items: Sequence[Item]) -> Batch:
        """Windows padded on the right. The targets are classes (B,) or, where several may hold, 0 and 1 (B, C)."""
        inputs = inputs_of([item.piece for item in items], self.pairs)
        weights = torch.tensor([item.weight for item in items], dtype=torch.float64)  # (B,)
        targets = torch.from_numpy(np.stack([item.target for item in items]))  # (B,) or (B, C)
        targets, counted = targets.float() if self.several else targets, weights
        if self.config.balance == "weights":
            each = self.classes.weights(targets).double()  # (B,) or (B, C)
            counted = weights * (each.mean(1) if self.several else each)
        weights = weights if self.several else counted
        told = None if bool((weights == 1).all()) else weights.float()
        return Batch(inputs, targets, float(counted.sum()), int(inputs["mask"].sum()), told)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy with label smoothing, summed over the rows (B,) by their weights. logits (B, C).

        Where several labels may hold: of C sigmoids, summed over the labels too.
        """
        smoothing, targets = self.config.label_smoothing, batch.targets
        if self.several:
            soft = targets * (1.0 - smoothing) + 0.5 * smoothing
            weights = self.classes.weights(targets) if self.config.balance == "weights" else None
            each = F.binary_cross_entropy_with_logits(logits.float(), soft, weights, reduction="none").sum(1)  # (B,)
        else:
            each = F.cross_entropy(logits.float(), targets, reduction="none", label_smoothing=smoothing)  # (B,)
        return (each if batch.weights is None else each * batch.weights).sum()

    def _pieces(self, texts: Sequence[Sides]) -> Pieces:
        first = encode((text for text, _ in texts), self.source)
        second = encode((text for _, text in texts), self.source) if self.pairs else None
        return Pieces(first, second, self.config.window, self.config.stride, self.config.pool == "first")

    def read(
        self, model: nn.Module, texts: Sequence[Sides], *, advance: Advance = None, divide: Divide | None = None
    ) -> list[Read]:
        """What the model makes of each text, or pair of texts, in order.

        Scores are log-probabilities or, where several labels may hold, logits. `divide(work, items)` returns
        `work(items)`, and may have several processes do it.
        """
        scored = torch.clone if self.several else partial(torch.log_softmax, dim=1)

        def work(some: Sequence[Sides]) -> list[Read]:
            return read(model, self._pieces(some), len(self.labels), self.config.pool, scored, advance=advance)

        return divide(work, texts) if divide is not None else work(texts)

    def evaluate(
        self,
        model: nn.Module,
        examples: Sequence[Labelled],
        *,
        quick: bool = False,
        advance: Advance = None,
        divide: Divide | None = None,
    ) -> dict[str, float]:
        """What `score` returns of these examples. `quick` changes nothing: there is one way to read a text."""
        return self.score(examples, self.read(model, _texts(examples), advance=advance, divide=divide))

    def score(self, examples: Sequence[Labelled], found: Sequence[Read]) -> dict[str, float]:
        """Figures in percent of what `read` has found for these examples.

        accuracy       right answers; of several labels, those right in every one
        macro_f1       mean F1 of the labels of training; one that no example has and none was said to have is left out
        micro_f1       of several labels: F1 of all decisions together
        ece            expected calibration error of the probabilities that `predict` gives
        majority       accuracy of who always says the most frequent label of training (of several: those most have)
        unknown        tokens that training has not seen
        beyond_limit   tokens beyond what one window holds; read all the same, unless `pool` is first

        Raises ValueError when there is no example.
        """
        judged = self.judged(examples, found)
        n_tokens = max(sum(one.tokens for one in found), 1)
        return {
            "accuracy": judged.accuracy,
            "macro_f1": judged.macro_f1,
            **({"micro_f1": judged.micro_f1} if self.several else {}),
            "ece": judged.ece(),
            "majority": replace(judged, answers=np.full_like(judged.truth, self.classes.usual)).accuracy,
            "unknown": 100.0 * sum(one.unknown for one in found) / n_tokens,
            "beyond_limit": 100.0 * sum(one.beyond for one in found) / n_tokens,
        }

    def judged(self, examples: Sequence[Labelled], found: Sequence[Read]) -> Judged:
        """What `read` has found for these examples, beside what is right. Raises ValueError when there is none."""
        scores = self._scores(found)
        return Judged(self.labels, self.probabilities(scores), self.classes.truth(examples), self.answers(scores))

    def _scores(self, found: Sequence[Read]) -> np.ndarray:
        return np.array([one.scores for one in found]).reshape(-1, len(self.labels))  # (N, C)

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """(N, C) of scores (N, C), at the temperature that `calibrate` found."""
        logits = torch.from_numpy(scores) / self.temperature
        return (logits.sigmoid() if self.several else logits.log_softmax(1).exp()).numpy()

    def answers(self, scores: np.ndarray) -> np.ndarray:
        """Classes (N,) or, where several may hold, (N, C) bool, of scores (N, C): whatever the temperature."""
        limit = math.log(self.config.threshold / (1.0 - self.config.threshold))
        return scores >= limit if self.several else scores.argmax(1)

    def calibrate(
        self, model: nn.Module, examples: Sequence[Labelled], *, advance: Advance = None, divide: Divide | None = None
    ) -> tuple[float, float]:
        """Sets the temperature that suits `examples`, which the model was not trained on (Guo et al. 2017).

        Returns the expected calibration error on them, in percent, as it was and as it is. Raises ValueError when there
        is no example.
        """
        found = self.read(model, _texts(examples), advance=advance, divide=divide)
        before = self.judged(examples, found)
        self.temperature = temperature(self._scores(found), before.truth)
        return before.ece(), self.judged(examples, found).ece()

    def unknown_share(self, examples: Sequence[Labelled]) -> float:
        """Percent of the tokens of these examples that training has not seen."""
        pieces = self._pieces(_texts(examples))
        return 100.0 * float(pieces.unknown.sum()) / max(int(pieces.tokens.sum()), 1)

    def predict(self, model: nn.Module, texts: Sequence[str | Sides], *, advance: Advance = None) -> list[Prediction]:
        """One Prediction for each text, in order; of pairs a text is two with a tab between, or a tuple.

        n_best holds all labels with their probabilities, in the order of `Labels.ranked`. Raises UserError for an empty
        text and for one that is no pair where pairs are judged, saying which.
        """
        asked = [self._sides(text, f"text {number} of {len(texts)}") for number, text in enumerate(texts, 1)]
        found = self.read(model, asked, advance=advance)
        scores = self._scores(found)
        return list(map(self._prediction, asked, found, self.probabilities(scores), self.answers(scores)))

    def _sides(self, text: str | Sides, where: str) -> Sides:
        sides = tuple(text.split("\t") if self.pairs else (text,)) if isinstance(text, str) else text
        if len(sides) != 1 + self.pairs:
            wanted = "two texts are judged together, as FIRST<tab>SECOND" if self.pairs else "one text is expected"
            raise UserError(f"{where} has {len(sides)} part{'s' * (len(sides) > 1)}: {wanted}")
        if not all(map(self.source.split, sides)):
            raise UserError(f"{where} is empty: there is nothing to predict from")
        return sides[0], sides[1] if self.pairs else ""

    def _prediction(self, sides: Sides, read: Read, probabilities: np.ndarray, answer: Any) -> Prediction:
        ranked = self.classes.ranked(probabilities, answer)
        unknown = [symbol for side in sides for symbol in self.source.encode_text(side)[1]] if read.unknown else []
        text = "\t".join(sides[: 1 + self.pairs])
        return Prediction(text, *ranked[0], True, list(dict.fromkeys(unknown)), ranked, [held for _, held in ranked])

    def save(self, folder: Path) -> None:
        """Writes the vocabulary as a standard tokenizer file, and labels.json, each in one step or not at all."""
        self.source.save(folder / "tokenizer.json")
        self.classes.save(folder / "labels.json", pairs=self.pairs, temperature=self.temperature)

    @classmethod
    def load(cls, folder: Path, config: ClassificationConfig) -> Classification:
        """The task of a run folder. Raises UserError for a file that is missing or damaged."""
        classes, kept = Labels.load(path := folder / "labels.json")
        pairs, temperature = kept.get("pairs"), kept.get("temperature")
        if not isinstance(pairs, bool) or not isinstance(temperature, float) or not temperature > 0:
            raise UserError(f"the labels {path} are damaged: pairs {pairs!r}, temperature {temperature!r}.")
        return cls(config, Symbols.load(folder / "tokenizer.json"), classes, pairs, temperature)


def _texts(examples: Sequence[Labelled]) -> list[Sides]:
    return [(example.text, example.second) for example in examples]
