"""The loop: knows batches, losses and steps; knows no model and no task by name.

One optimiser step is one group of batches; the loss is averaged over the targets of the whole group.
"""

from __future__ import annotations

import copy
import math
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from qkv.data.batches import length_batches
from qkv.tasks.batch import Batch
from qkv.training.checkpoint import Progressed, random_state, restore_random_state
from qkv.training.config import TrainingConfig
from qkv.training.guard import NotFinite, first_bad_gradient, first_not_finite
from qkv.training.optimiser import learning_rate, make_optimiser
from qkv.training.precision import Precision


class Trainable(Protocol):
    """What the loop asks of a task."""

    def lengths(self, items: Sequence[Any]) -> list[tuple[int, int]]: ...

    def collate(self, items: Sequence[Any]) -> Batch: ...

    def loss(self, logits: Tensor, batch: Batch) -> Tensor: ...


@dataclass(frozen=True)
class Stepped:
    """One optimiser step: mean loss a target, real tokens in and out, learning rate, gradient norm."""

    loss: float
    tokens: int
    lr: float
    norm: float


def digest(group: Sequence[Batch]) -> str:
    """Eight hex digits that tell which rows, in which order, a step was made of."""
    found = 0
    for batch in group:
        for name in sorted(batch.inputs):
            found = zlib.crc32(batch.inputs[name].cpu().contiguous().numpy().tobytes(), found)
    return f"{found:08x}"


class Loop:
    """A model, its optimiser and its place in the data.

    `steps` is the length of the whole run, which the schedule needs; it may be set until warm-up ends.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Trainable,
        items: Sequence[Any],
        config: TrainingConfig,
        precision: Precision,
        steps: int,
    ):
        self.model, self.task, self.items, self.config = model, task, items, config
        self.precision, self.steps = precision, steps
        self.device = next(model.parameters()).device
        self.optimiser = make_optimiser(model, config)
        self.progressed = Progressed()
        self._lengths = task.lengths(items)

    def groups(self) -> Iterator[list[Batch]]:
        """Groups of batches from the present place on, epoch after epoch, without end."""
        here = self.progressed
        while True:
            batches = length_batches(self._lengths, self.config.batch_tokens, self.config.seed, here.epoch)
            while here.batch < len(batches):
                chosen = batches[here.batch : here.batch + self.config.accumulate]
                here.batch += len(chosen)
                yield [self.task.collate([self.items[i] for i in rows]).to(self.device) for rows in chosen]
            here.epoch, here.batch = here.epoch + 1, 0

    def step(self, group: Sequence[Batch]) -> Stepped:
        """One optimiser step. Raises NotFinite, before anything is updated, naming the first module at fault."""
        self.model.train()
        n_targets = sum(batch.n_targets for batch in group)
        before = random_state()
        loss = sum(self._backward(batch, n_targets) for batch in group)
        total = nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        norm = float(total)
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise self._not_finite(f"step {self.progressed.step + 1}", group, before, loss)
        if self.config.clip:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.clip, total)
        lr = learning_rate(self.config, self.progressed.step, self.steps)
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = lr
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        tokens = sum(batch.n_tokens for batch in group)
        self.progressed.step += 1
        self.progressed.tokens += tokens
        return Stepped(loss, tokens, lr, norm)

    def mean_loss(self, items: Sequence[Any]) -> float:
        """Loss a target over `items`, in eval mode. Raises NotFinite, naming the first module at fault."""
        self.model.eval()
        total, n_targets = 0.0, 0
        for rows in length_batches(self.task.lengths(items), self.config.batch_tokens, 0, 0, shuffle=False):
            batch = self.task.collate([items[i] for i in rows]).to(self.device)
            with torch.no_grad(), self.precision.autocast(self.device):
                logits = self.model(**batch.inputs)
            loss = float(self.task.loss(logits, batch))
            if not math.isfinite(loss):
                when = f"evaluation after step {self.progressed.step}"
                raise self._not_finite(when, [batch], random_state(), loss)
            total += loss
            n_targets += batch.n_targets
        return total / max(n_targets, 1)

    def tokens_per_step(self) -> float:
        """Mean real tokens, source and target, of one optimiser step."""
        batches = length_batches(self._lengths, self.config.batch_tokens, self.config.seed, 0)
        return sum(map(sum, self._lengths)) / math.ceil(len(batches) / self.config.accumulate)

    def seconds_per_step(self, timed: int = 20, untimed: int = 20) -> float:
        """Mean time of `timed` steps on a copy: weights, place in the data and random state stay as they are.

        Not those before them: in bfloat16 each new shape of a batch is compiled first, and the steps to come are not.
        """
        state = random_state()
        # A run without end: the schedule stays in its warm-up, as the first steps of the real run do.
        trial = Loop(copy.deepcopy(self.model), self.task, self.items, self.config, self.precision, 10**9)
        groups = trial.groups()
        started = time.perf_counter()
        try:
            for done in range(untimed + timed):
                if done == untimed:
                    started = time.perf_counter()
                trial.step(next(groups))
        finally:
            restore_random_state(state)
        return (time.perf_counter() - started) / timed

    def _backward(self, batch: Batch, n_targets: int) -> float:
        with self.precision.autocast(self.device):
            logits = self.model(**batch.inputs)
        loss = self.task.loss(logits, batch) / n_targets
        loss.backward()
        return float(loss.detach())

    def _not_finite(self, when: str, group: Sequence[Batch], before: dict[str, Any], loss: float) -> NotFinite:
        def again() -> None:
            restore_random_state(before)
            with self.precision.autocast(self.device):
                for batch in group:
                    self.model(**batch.inputs)

        # Gradients are not clipped yet: they are as the backward pass left them. The forward repeats its dropout.
        where = first_bad_gradient(self.model) if math.isfinite(loss) else first_not_finite(self.model, again)
        self.optimiser.zero_grad(set_to_none=True)
        what = "a gradient" if math.isfinite(loss) else "the loss"
        return NotFinite(
            f"{when}: {what} is not finite. First at fault: {where}. The best model so far is kept. Try a smaller "
            f"--training.lr (now {self.config.lr:g}), --training.clip 1, or --training.precision float32"
        )
