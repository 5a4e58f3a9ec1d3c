"""One call of `train`: from a built model to a finished run, with its evaluations, files and events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import qkv
from qkv.data.pairs import spread
from qkv.errors import UserError
from qkv.models import registry as models
from qkv.run import folder as files
from qkv.run.run import Run, build_model, load
from qkv.tasks import registry as tasks
from qkv.tasks.registry import Data
from qkv.training import checkpoint, checks, lock, memory
from qkv.training.average import Average
from qkv.training.events import JsonLines, Listener, counting, logger
from qkv.training.fitting import Fitting
from qkv.training.interrupt import finish_the_step
from qkv.training.loop import Group, Loop
from qkv.training.precision import choose_precision
from qkv.training.processes import Interrupted, Processes
from qkv.training.settings import Settings
from qkv.training.state import Progressed

DEV_EXAMPLES = 1000
"""How many dev examples an evaluation during training decodes, spread evenly over the split."""

SAVE_EVERY = 60.0
"""Seconds between checkpoints."""


class Trainer:
    """A model on its way to a finished run. Of several processes the first writes the files and speaks."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        data: Data,
        together: Processes,
        listeners: Sequence[Listener],
        continued: bool,
        allow_unk: bool = False,
    ):
        self.folder, self.data, self.together, self.continued = folder, data, together, continued
        # The file comes last: should the disk be full, the others are closed by then.
        self.listeners = [*listeners, JsonLines(folder)] if together.first else []
        torch.manual_seed(settings.training.seed)
        self.model_entry = models.find(settings.model["name"])
        self.task = tasks.make(settings.task, data, self.model_entry)
        self.metric = checks.chosen_metric(settings.keep.metric, self.task)
        checks.unknown_tokens(self.task, data, allow_unk, say=together.first and not continued)
        self.settings, self.network = settings, self._network(settings)
        if together.first:
            files.make_folder(folder)
            self.lock = lock.own(folder)

    def run(self, before: Callable[[], object] | None = None) -> Run:
        """Trains to the end. `before` is called when the folder is this run's own and nothing is trained yet."""
        try:
            if before is not None:
                before()
            self._prepare()
            self._begin()
            with finish_the_step() as stop:
                self._train(stop)
            return self._end()
        finally:
            self._close()

    def _prepare(self) -> None:
        settings, together = self.settings, self.together
        if together.first:
            files.sweep(self.folder)
        precision = together.agreed(lambda: choose_precision(settings.training.precision, together.device))
        why = "as before" if self.continued else precision.reason
        logger.info("training on %s in %s (%s)", self._where(), precision.name, why)
        config = replace(settings.training, precision=precision.name)
        items = self.task.items(self.data.train)
        kind = Fitting if self.model_entry.fitted else Loop
        self.loop = kind(self.network, self.task, items, config, precision, config.steps, together)
        if not config.steps:
            seconds = self.loop.seconds_per_step()
            config = replace(config, steps=together.agreed(lambda: max(1, round(60.0 * config.minutes / seconds))))
            logger.info("%g minutes are %d steps on this machine", config.minutes, config.steps)
            self.loop.steps = config.steps
        if settings.keep.ema:
            self.loop.average = Average(self.network, settings.keep.ema)
        keep = replace(settings.keep, metric=self.metric.name)
        self.settings = replace(settings, training=config, task=self.task.config, keep=keep)
        self.steps, self.patience = config.steps, keep.patience
        every = max(config.evaluations, 1)
        self.evaluate_at = {round(self.steps * (k + 1) / every) for k in range(every)} | {self.steps}

    def _network(self, settings: Settings) -> nn.Module:
        network = build_model(settings.model, self.task.sizes, self.task.head)
        if settings.memory.gradient_checkpointing:
            memory.recompute(network)
        if settings.memory.fsdp:
            memory.shard(network, self.together)
            return network
        return network.to(self.together.device)

    def _where(self) -> str:
        count = self.together.count
        return str(self.together.device) if count == 1 else f"{count} processes, {self.together.device.type},"

    def _train(self, stop: Sequence[str]) -> None:
        here, groups = self.loop.progressed, self.loop.groups()
        started, saved = time.monotonic() - here.seconds, time.monotonic()
        while (due := self._evaluation_is_due()) or (here.step < self.steps and not self._stale()):
            if due:
                paused = time.monotonic()
                self._evaluate()
                started += time.monotonic() - paused
            else:
                self._step(next(groups), started)
            late = self.together.first and time.monotonic() - saved > SAVE_EVERY
            asked, late = self.together.summed(len(stop), late)
            if asked or due or late:
                self._save()
                saved = time.monotonic()
            if asked:
                raise Interrupted(
                    f"stopped at step {here.step} of {self.steps} and saved; the same command goes on from there "
                    f"({self.folder})"
                )

    def _evaluation_is_due(self) -> bool:
        here = self.loop.progressed
        return here.step in self.evaluate_at and here.evaluated < here.step

    def _stale(self) -> bool:
        return 0 < self.patience <= self.loop.progressed.stale

    def _begin(self) -> None:
        if self.together.count > 1:
            self.loop.seed()
        done = checkpoint.load(self.folder, self.loop.restore) if self.continued else False
        here = self.loop.progressed
        if len(set(self.together.gathered((done, here.step)))) > 1:
            raise UserError(f"the processes read different checkpoints in {self.folder}: is it one folder for all?")
        if done and here.best_step and not (self.folder / files.WEIGHTS).is_file():
            raise UserError(
                f"{self.folder} has no {files.WEIGHTS}, the best model so far (of step {here.best_step}): "
                f"delete {checkpoint.FILE} and {checkpoint.PREVIOUS} to begin anew, or use another --out"
            )
        if done:
            logger.info("going on from step %d of %d", here.step, self.steps)
        if self.together.first:
            if not done:
                files.write_config(self.folder, self.settings.as_table(qkv.__version__))
            self.task.save(self.folder)
            files.keep_events(self.folder, lambda event: done and event["step"] <= _last_step(event, here))
        expected = round(self.steps * self.loop.tokens_per_step())
        self._say(
            {
                "event": "start",
                "step": here.step,
                "steps": self.steps,
                "expected_tokens": expected,
                "run": str(self.folder),
                "config": self.settings.as_table(qkv.__version__),
            }
        )

    def _step(self, group: Group, started: float) -> None:
        begun = time.perf_counter()
        stepped = self.loop.step(group)
        here = self.loop.progressed
        here.seconds = time.monotonic() - started
        self._say(
            {
                "event": "train",
                "step": here.step,
                "epoch": here.epoch,
                "loss": stepped.loss,
                "lr": stepped.lr,
                "grad_norm": stepped.norm,
                "batches": group.digest,
                "tokens": here.tokens,
                "tokens_per_s": round(stepped.tokens / (time.perf_counter() - begun), 1),
                "seconds": round(here.seconds, 3),
            }
        )

    def _evaluate(self) -> None:
        here, sample = self.loop.progressed, spread(self.data.dev, DEV_EXAMPLES)
        # What a task draws to evaluate is the same each time, and no part of training's numbers.
        with self.loop.averaged(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.training.seed)
            loss = self.loop.mean_loss(self.task.items(sample))
            found = {"loss": loss, **self._scores(sample, quick=True)}
            metrics = self.together.agreed(lambda: found)  # what is kept and when to stop hangs on them
            here.evaluated = here.step
            if here.judge(metrics[self.metric.name], self.metric.lower_is_better):
                self._keep()
        self._say(
            {
                "event": "evaluation",
                "step": here.step,
                "split": "dev",
                "examples": len(sample),
                **checks.searched(self.task, quick=True),
                "tokens": here.tokens,
                "seconds": round(here.seconds, 3),
                "metrics": metrics,
            }
        )
        if self._stale() and here.step < self.steps:
            best = f"{self.metric.name} {here.best:.2f} at step {here.best_step}"
            logger.info("stopping early: no better dev %s in %d evaluations (%s)", self.metric.name, here.stale, best)

    def _scores(
        self, examples: Sequence[Any], quick: bool, advance: Callable[[int], None] | None = None
    ) -> dict[str, float]:
        self.loop.model.eval()
        # In float32, as `predict` computes. A model that is cut computes with all its processes at once.
        divide = None if self.loop.sharded else self.together.divide
        return self.task.evaluate(self.loop.model, examples, quick=quick, advance=advance, divide=divide)

    def _keep(self) -> None:
        model = self.loop.model
        if self.loop.sharded:
            with torch.random.fork_rng(devices=[]):
                model = build_model(self.settings.model, self.task.sizes, self.task.head)
            model.load_state_dict(memory.whole(self.loop.model.state_dict()))
        if self.together.first:
            files.write_weights(self.folder, model)

    def _end(self) -> Run:
        self.together.wait()  # until the best weights are written
        best = build_model(self.settings.model, self.task.sizes, self.task.head)
        files.read_weights(self.folder, best)
        memory.load_weights(self.loop.model, best.state_dict())
        self._calibrate()
        logger.info("scoring %d test examples", len(self.data.test))
        mine = self.data.test if self.loop.sharded else self.together.share(self.data.test)
        test = self._scores(self.data.test, quick=False, advance=counting(len(mine), "scored"))
        here = self.loop.progressed
        self._say(
            {
                "event": "end",
                "step": here.step,
                "seconds": round(here.seconds, 3),
                "best_step": here.best_step,
                "tokens": here.tokens,
                "test_examples": len(self.data.test),
                **checks.searched(self.task, quick=False),
                "test": test,
            }
        )
        for listener in self.listeners:
            listener.flush()
        self.together.wait()
        # A model that had to be cut is not asked to fit one GPU.
        return load(self.folder, "cpu" if self.loop.sharded else str(self.loop.device))

    def _calibrate(self) -> None:
        """Has a task that answers with probabilities make them honest on dev, where it can."""
        calibrate = getattr(self.task, "calibrate", None)
        if calibrate is not None:
            calibrate(self.loop.model.eval(), self.data.dev)
            if self.together.first:
                self.task.save(self.folder)

    def _save(self) -> None:
        for listener in self.listeners:
            listener.flush()
        state = self.loop.state()
        if self.together.first:
            checkpoint.save(self.folder, state)

    def _close(self) -> None:
        with ExitStack() as closing:  # whatever one of them raises, the others are closed too
            if self.together.first:
                closing.callback(self.lock.release)
            for listener in reversed(self.listeners):
                closing.callback(listener.close)

    def _say(self, event: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener.on(deepcopy(event))  # what one of them changes is no other's concern


def _last_step(event: dict[str, Any], done: Progressed) -> int:
    # A checkpoint may be of the step that an evaluation was due after, and of the time before it.
    return done.evaluated if event["event"] == "evaluation" else done.step
