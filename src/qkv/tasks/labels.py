"""The labels of a task that classifies: their places, how frequent they are, their file in a run folder.

Letters: B batch, N examples, C labels.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.data.texts import Labelled
from qkv.errors import UserError, nearest


@dataclass(frozen=True)
class Labels:
    """Names of labels by place; `counts` examples of training have each, of `examples` in all.

    several  whether an example may have any number of them
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    examples: int
    several: bool = False

    @classmethod
    def of(cls, names: Sequence[str], train: Sequence[Labelled], several: bool) -> Labels:
        """Raises UserError where there is nothing to tell apart."""
        if len(names) < 2 and not (several and names):
            raise UserError(
                f"all {len(train):,} training examples have the same label{''.join(f' {name!r}' for name in names)}: "
                "there is nothing to tell apart"
            )
        counts = Counter(label for example in train for label in example.labels)
        return cls(tuple(names), tuple(counts[name] for name in names), len(train), several)

    def __len__(self) -> int:
        return len(self.names)

    def truth(self, examples: Sequence[Labelled]) -> np.ndarray:
        """(N,) the place of each example's label; (N, C) bool, which hold, where several may.

        Raises UserError naming the example, for a label that training has not, and where one label is expected.
        """
        places = {name: place for place, name in enumerate(self.names)}
        found = np.zeros((len(examples), len(self)), bool) if self.several else np.zeros(len(examples), np.int64)
        for number, example in enumerate(examples, 1):
            if not self.several and len(example.labels) != 1:
                raise UserError(f"example {number} has {len(example.labels)} labels: one is expected")
            for label in example.labels:
                if label not in places:
                    known = ", ".join(self.names[:20]) + (" ..." if len(self) > 20 else "")
                    raise UserError(
                        f"example {number} has the label {label!r}, which no training example has."
                        f"{nearest(label, self.names)} Labels: {known}"
                    )
                if self.several:
                    found[number - 1, places[label]] = True
                else:
                    found[number - 1] = places[label]
        return found

    @property
    def usual(self) -> Any:
        """The answer of who reads nothing: place of the most frequent label; of several, those most have, (C,)."""
        counts = np.array(self.counts)
        return 2 * counts > self.examples if self.several else counts.argmax()

    def weights(self, targets: Tensor) -> Tensor:
        """Weights with which all classes weigh the same in training, in their mean 1.

        targets (B,) places: (B,), by class. targets (B, C) of 0 and 1: (B, C); there each label's presence weighs as
        much as its absence.
        """
        counts = torch.tensor(self.counts, dtype=torch.float32, device=targets.device)
        if not self.several:
            return self.examples / (len(self) * counts.clamp_min(1))[targets]  # (B,)
        return self.examples / (2 * torch.where(targets > 0.5, counts, self.examples - counts).clamp_min(1))  # (B, C)

    def ranked(self, probabilities: np.ndarray, answer: Any) -> list[tuple[str, float]]:
        """All labels with their probabilities (C,), the most probable first.

        Where several may hold, the whole `answer` (C,) bool comes before them: its labels joined by " | ", with the
        product of what each decision is held for.
        """
        order = np.argsort(-probabilities, kind="stable").tolist()
        ranked = [(self.names[place], float(probabilities[place])) for place in order]
        if not self.several:
            return ranked
        said = " | ".join(self.names[place] for place in np.flatnonzero(answer))
        return [(said, float(np.where(answer, probabilities, 1.0 - probabilities).prod())), *ranked]

    def save(self, path: Path, **also: Any) -> None:
        """Writes a JSON file, with what is to be kept beside, in one step or not at all."""
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            own = {"labels": self.names, "counts": self.counts, "examples": self.examples, "several": self.several}
            text = json.dumps({**own, **also}, ensure_ascii=False, indent=1)
            unfinished.write_text(text + "\n", encoding="utf-8", newline="\n")
            unfinished.replace(path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}.") from error
        finally:
            unfinished.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> tuple[Labels, dict[str, Any]]:
        """What `save` wrote, and what was kept beside. Raises UserError for a file that is missing or damaged."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            names, counts = kept.pop("labels"), kept.pop("counts")
            labels = cls(tuple(names), tuple(map(int, counts)), int(kept.pop("examples")), bool(kept.pop("several")))
        except OSError as error:
            raise UserError(f"cannot read the labels {path}: {error.strerror or error}.") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"the labels {path} are damaged: {error!r}.") from error
        if not names or not all(isinstance(name, str) for name in names) or len(counts) != len(set(names)):
            raise UserError(f"the labels {path} are damaged: names and counts do not go together.")
        return labels, kept


def evened(truth: np.ndarray) -> np.ndarray:
    """Places of the examples (N,) such that each class comes as often as the largest: smaller ones are repeated."""
    places = [np.flatnonzero(truth == one) for one in np.unique(truth)]
    most = max(map(len, places), default=0)
    return np.sort(np.concatenate([np.arange(0), *(np.resize(some, most) for some in places)]))
