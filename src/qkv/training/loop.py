"""The loop: knows batches, losses and steps; knows no model and no task by name.

One optimiser step is one group of batches; the loss is averaged over the targets of the whole group, wherever its rows
are computed.
"""

from __future__ import annotations

import logging
import math
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from qkv.data.batches import length_batches
from qkv.tasks.batch import Batch
from qkv.training import memory
from qkv.training.average import Average
from qkv.training.config import TrainingConfig
from qkv.training.guard import NOWHERE, NotFinite, first_bad_gradient, first_not_finite
from qkv.training.optimiser import learning_rate, make_optimiser
from qkv.training.precision import Precision
from qkv.training.processes import Processes
from qkv.training.state import Progressed, random_state, restore_random_state

logger = logging.getLogger("qkv")


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


class Group(list[Batch]):
    """The batches of one step, of which `digest` tells in eight hex digits: which rows, in which order."""

    def __init__(self, batches: Sequence[Batch], rows: Sequence[Sequence[int]]):
        super().__init__(batches)
        found = 0
        for one in rows:
            found = zlib.crc32(np.asarray(one, dtype="<i8").tobytes(), found)
        self.digest = f"{found:08x}"


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
        together: Processes | None = None,
    ):
        self.model, self.task, self.items, self.config = model, task, items, config
        self.precision, self.steps = precision, steps
        self.device = next(model.parameters()).device
        self.together = together or Processes(self.device)
        self.sharded = any(memory.is_cut(parameter) for parameter in model.parameters())
        self._trained: nn.Module = model
        if self.together.count > 1 and not self.sharded:
            self._trained = DistributedDataParallel(model)
        self.optimiser = make_optimiser(model, config)
        self.average: Average | None = None
        self.progressed = Progressed()
        self._lengths = task.lengths(items)

    def groups(self) -> Iterator[Group]:
        """Groups of batches from the present place on, epoch after epoch, without end.

        Of several processes each gets its share of the rows of each batch.
        """
        here = self.progressed
        while True:
            batches = length_batches(self._lengths, self.config.batch_tokens, self.config.seed, here.epoch)
            while here.batch < len(batches):
                chosen = batches[here.batch : here.batch + self.config.accumulate]
                here.batch += len(chosen)
                yield Group([self._share(rows) for rows in chosen], chosen)
            here.epoch, here.batch = here.epoch + 1, 0

    def step(self, group: Sequence[Batch]) -> Stepped:
        """One optimiser step. Raises NotFinite, before anything is updated, naming the first module at fault."""
        self.model.train()
        n_targets, n_tokens = self.together.summed(
            sum(batch.n_targets for batch in group), sum(batch.n_tokens for batch in group)
        )
        before = random_state()
        own = sum(self._backward(batch, n_targets, batch is group[-1]) for batch in group)
        (loss,) = self.together.summed(own)
        total = nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        norm = float(memory.whole(total))
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise self._not_finite(f"step {self.progressed.step + 1}", group, before, loss)
        if self.config.clip:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.clip, total)
        lr = learning_rate(self.config, self.progressed.step, self.steps)
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = lr
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.progressed.step += 1
        self.progressed.tokens += round(n_tokens)
        if self.average is not None:
            self.average.update(self.progressed.step)
        return Stepped(loss, round(n_tokens), lr, norm)

    def averaged(self) -> AbstractContextManager[None]:
        """The model with the weights that are evaluated and kept: their running average, where there is one."""
        return self.average.in_place() if self.average is not None else nullcontext()

    def mean_loss(self, items: Sequence[Any]) -> float:
        """Loss a target over `items`, in eval mode. Raises NotFinite, naming the first module at fault."""
        self.model.eval()
        total = n_targets = 0.0
        bad: list[Batch] = []
        for rows in length_batches(self.task.lengths(items), self.config.batch_tokens, 0, 0, shuffle=False):
            # A model that is cut computes with all its processes at once: then each takes all rows.
            mine = rows if self.sharded else self.together.share(rows)
            if not mine:
                continue
            batch = self.task.collate([items[i] for i in mine]).to(self.device)
            with torch.no_grad(), self.precision.autocast(self.device):
                logits = self.model(**batch.inputs)
            loss = float(self.task.loss(logits, batch))
            if not math.isfinite(loss) and not bad:
                bad.append(batch)
            total += loss
            n_targets += batch.n_targets
        total, n_targets = self.together.summed(total, n_targets)
        if not math.isfinite(total):
            raise self._not_finite(f"evaluation after step {self.progressed.step}", bad, random_state(), total)
        return total / max(n_targets, 1)

    def tokens_per_step(self) -> float:
        """Mean real tokens, source and target, of one optimiser step."""
        batches = length_batches(self._lengths, self.config.batch_tokens, self.config.seed, 0)
        return sum(map(sum, self._lengths)) / math.ceil(len(batches) / self.config.accumulate)

    def seconds_per_step(self, timed: int = 20, untimed: int = 20) -> float:
        """Mean time of `timed` steps, after which weights, place in the data and random state are as they were.

        Not those before them: in bfloat16 each new shape of a batch is compiled first, and the steps to come are not.
        """
        kept = self.optimiser, self.progressed, self.steps, self.average
        weights, state = [p.detach().clone() for p in self.model.parameters()], random_state()
        self.optimiser, self.progressed, self.average = make_optimiser(self.model, self.config), Progressed(), None
        # A run without end: the schedule stays in its warm-up, as the first steps of the real run do.
        self.steps = 10**9
        groups = self.groups()
        started = time.perf_counter()
        try:
            for done in range(untimed + timed):
                if done == untimed:
                    started = time.perf_counter()
                self.step(next(groups))
            seconds = (time.perf_counter() - started) / timed
        finally:
            with torch.no_grad():
                for parameter, value in zip(self.model.parameters(), weights, strict=True):
                    parameter.copy_(value)
            self.optimiser, self.progressed, self.steps, self.average = kept
            restore_random_state(state)
        return seconds

    def state(self) -> dict[str, Any]:
        """All that the numbers to come depend on, as whole tensors on the CPU: the same for any number of processes.

        Empty in all but the first where that one has everything.
        """
        random = self.together.gathered(random_state())
        if not self.together.first and not self.sharded:
            return {}
        return {
            "model": memory.whole(self.model.state_dict()),
            "optimiser": memory.whole(self.optimiser.state_dict()),
            "average": memory.whole(self.average.values) if self.average is not None else [],
            "progressed": vars(self.progressed),
            "random": random,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes back to what `state` returned, in this or another process.

        With another number of processes the random numbers to come are others: they cannot be the same.
        """
        memory.load_weights(self.model, state["model"])
        memory.load_optimiser(self.optimiser, state["optimiser"])
        if self.average is not None:
            self.average.values = [
                memory.part_of(value, like).to(like.device)
                for value, like in zip(state["average"], self.average.values, strict=True)
            ]
        self.progressed = Progressed(**state["progressed"])
        if len(state["random"]) == self.together.count:
            restore_random_state(state["random"][self.together.rank])
        else:
            logger.info("saved by %d processes, going on with %d", len(state["random"]), self.together.count)
            self.seed(self.progressed.step)

    def seed(self, place: int = 0) -> None:
        """Random numbers of this process alone, from the run's seed and a step."""
        draw = np.random.default_rng([self.config.seed, place, self.together.rank, self.together.count])
        torch.manual_seed(int(draw.integers(2**63)))

    def _share(self, rows: Sequence[int]) -> Batch:
        mine = self.together.share(rows)
        batch = self.task.collate([self.items[i] for i in mine or rows[:1]]).to(self.device)
        # A process without a row computes as the others do, since they wait for it, and adds nothing.
        return batch if mine else replace(batch, n_targets=0, n_tokens=0)

    def _backward(self, batch: Batch, n_targets: float, last: bool) -> float:
        with self._gradients_summed(last):
            with self.precision.autocast(self.device):
                logits = self._trained(**batch.inputs)
            loss = self.task.loss(logits, batch) / n_targets * (1.0 if batch.n_targets else 0.0)
            (loss * self.together.count).backward()  # several processes take the mean of their gradients
        return float(loss.detach())

    def _gradients_summed(self, last: bool) -> AbstractContextManager[object]:
        # Between processes they are summed once a step, with its last batch. A model that is cut sums them each time.
        if isinstance(self._trained, DistributedDataParallel) and not last:
            return self._trained.no_sync()
        return nullcontext()

    def _not_finite(self, when: str, group: Sequence[Batch], before: dict[str, Any], loss: float) -> NotFinite:
        def again() -> None:
            restore_random_state(before)
            with self.precision.autocast(self.device):
                for batch in group:
                    self.model(**batch.inputs)

        # Gradients are not clipped yet: they are as the backward pass left them. The forward repeats its dropout.
        own = first_bad_gradient(self.model) if math.isfinite(loss) else first_not_finite(self.model, again)
        found = self.together.gathered(own)
        where = next((one for one in found if one != NOWHERE), own)
        self.optimiser.zero_grad(set_to_none=True)
        what = "a gradient" if math.isfinite(loss) else "the loss"
        return NotFinite(
            f"{when}: {what} is not finite. First at fault: {where}. The best model so far is kept. Try a smaller "
            f"--training.lr (now {self.config.lr:g}), --training.clip 1, or --training.precision float32"
        )
