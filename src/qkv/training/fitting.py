"""Training of a model that is fitted to all examples at once: one step, and no gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

import torch

from qkv.data.batches import length_batches
from qkv.tasks.batch import Batch
from qkv.training.loop import Group, Loop, Stepped


class Fitted(Protocol):
    """What such a model offers."""

    def fit(self, batches: Iterable[Batch]) -> None: ...


class Fitting(Loop):
    """A Loop of one step, in which the model is fitted."""

    def groups(self) -> Iterator[Group]:
        """One group of all batches, in the order of the data as far as lengths allow."""
        batches = length_batches(self._lengths, self.config.batch_tokens, self.config.seed, 0, shuffle=False)
        yield Group([self.task.collate([self.items[i] for i in rows]) for rows in batches], batches)

    def step(self, group: Sequence[Batch]) -> Stepped:
        """Fits the model; the loss is that of the fitted model on what it was fitted to."""
        n_tokens = sum(batch.n_tokens for batch in group)
        cast(Fitted, self.model).fit(group)
        self.progressed.step += 1
        self.progressed.epoch, self.progressed.tokens = 1, n_tokens
        self.model.eval()
        with torch.no_grad():
            total = sum(float(self.task.loss(self.model(**batch.inputs), batch)) for batch in group)
        return Stepped(total / max(sum(batch.n_targets for batch in group), 1), n_tokens, 0.0, 0.0)

    def restore(self, state: dict[str, Any]) -> None:
        """Fits anew: that takes less than a checkpoint is worth."""
