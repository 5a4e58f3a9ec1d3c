"""From settings to a trained run: data, model, loop, evaluation, files."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import qkv
from qkv.data import sources
from qkv.data.pairs import Example, Pairs
from qkv.errors import UserError
from qkv.run import folder as files
from qkv.run.run import Run, build_model, load, resolve_device
from qkv.tasks.seq2seq import Seq2Seq
from qkv.training import checkpoint, lock
from qkv.training.events import JsonLines, Listener, Progress, counting, logger
from qkv.training.loop import Loop, digest
from qkv.training.precision import choose_precision
from qkv.training.settings import Settings, resolve

DEV_EXAMPLES = 1000
"""How many dev examples an evaluation during training decodes, spread evenly over the split."""

SAVE_EVERY = 60.0
"""Seconds between checkpoints."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C after saving; the message says how to go on."""


def train(
    data: str | None = None,
    model: str | None = None,
    *,
    out: str | Path | None = None,
    config: str | Path | None = None,
    device: str = "auto",
    listeners: Sequence[Listener] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Run:
    """Trains a model and returns its run; the files are in `out` (runs/DATA-MODEL by default).

    data         a name from the catalogue (`qkv data list`), or a file of pairs (`qkv data show FILE` explains it)
    model        a name from the registry (`qkv models`)
    config       a TOML file with tables [data], [model], [task], [training]; the other arguments override it
    settings     any setting by its own name (minutes=2, d_model=128) or by table (training={"lr": 1e-3})
    listeners    who hears of events; by default a progress line on stderr
    progress     called with (bytes done, bytes in all) while data are fetched

    The same call again resumes an unfinished run and returns a finished one. Raises UserError for settings that
    cannot be, for data that cannot be had, and when `out` holds another run.
    """
    wanted = resolve(config, data, model, settings)
    folder = Path(out) if out is not None else Path("runs") / f"{wanted.data_name}-{wanted.model['name']}"
    stored, where = stored_run(folder, wanted), resolve_device(device)
    pairs = sources.pairs_of(wanted.data, progress)
    wanted = wanted.with_data(pairs.fingerprint)
    if stored is not None:
        wanted = wanted.matching(stored, folder)
        if _finished(folder):
            logger.info("%s is finished; nothing to train", folder)
            return load(folder, device)
    return _Training(wanted, folder, pairs, where, listeners, continued=stored is not None).run()


def stored_run(folder: Path, wanted: Settings) -> dict[str, Any] | None:
    """The config of the run in `folder`, None when there is none.

    Raises UserError when that run has other settings than `wanted`, and when the folder holds something else.
    """
    if (folder / files.CONFIG).is_file():
        stored = files.read_config(folder)
        wanted.matching(stored, folder)
        return stored
    if folder.is_dir() and not all(p.name == lock.NAME or files.unfinished(p) for p in folder.iterdir()):
        raise UserError(f"{folder} exists and is not a run: choose another --out, so that nothing there is overwritten")
    return None


def _finished(folder: Path) -> bool:
    return any(event["event"] == "end" for event in files.read_events(folder))


def _last_step(event: dict[str, Any], done: checkpoint.Progressed) -> int:
    # A checkpoint may be of the step that an evaluation was due after, and of the time before it.
    return done.evaluated if event["event"] == "evaluation" else done.step


def spread(examples: Sequence[Example], count: int) -> list[Example]:
    """At most `count` examples at even distances: files are often sorted."""
    if len(examples) <= count:
        return list(examples)
    return [examples[i * len(examples) // count] for i in range(count)]


@contextmanager
def _finish_the_step() -> Iterator[list[str]]:
    """A list that is empty until the first Ctrl-C, which then only marks it; a second one interrupts at once."""
    stop: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def mark(number: int, frame: object) -> None:
        stop.append("asked")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the shell had it ignored
        logger.info("finishing this step, then saving")

    signal.signal(signal.SIGINT, mark)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


class _Training:
    """One call of `train`, from a built model to a finished run."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        pairs: Pairs,
        where: torch.device,
        listeners: Sequence[Listener] | None,
        continued: bool,
    ):
        self.folder, self.pairs = folder, pairs
        torch.manual_seed(settings.training.seed)
        self.task = Seq2Seq.of(settings.task, pairs)
        network = build_model(settings.model, self.task.sizes).to(where)
        files.make_folder(folder)
        self.lock = lock.own(folder)
        files.sweep(folder)
        precision = choose_precision(settings.training.precision, where)
        logger.info("training on %s in %s (%s)", where, precision.name, precision.reason)
        config = replace(settings.training, precision=precision.name)
        self.loop = Loop(network, self.task, self.task.items(pairs.train), config, precision, config.steps)
        if not config.steps:
            steps = max(1, round(60.0 * config.minutes / self.loop.seconds_per_step()))
            config = replace(config, steps=steps)
            logger.info("%g minutes are %d steps on this machine", config.minutes, steps)
            self.loop.steps = steps
        self.settings = replace(settings, training=config, task=self.task.config)
        self.steps = config.steps
        every = max(config.evaluations, 1)
        self.evaluate_at = {round(self.steps * (k + 1) / every) for k in range(every)} | {self.steps}
        # The file comes last: should the disk be full, the others are closed by then.
        self.listeners = [*([Progress()] if listeners is None else listeners), JsonLines(folder)]
        self.continued = continued

    def run(self) -> Run:
        try:
            self._begin()
            with _finish_the_step() as stop:
                self._train(stop)
            return self._end()
        finally:
            self._close()

    def _train(self, stop: Sequence[str]) -> None:
        here, groups = self.loop.progressed, self.loop.groups()
        started, saved = time.monotonic() - here.seconds, time.monotonic()
        while (due := self._evaluation_is_due()) or here.step < self.steps:
            if due:
                paused = time.monotonic()
                self._evaluate()
                started += time.monotonic() - paused
            else:
                self._step(groups, started)
            if stop or due or time.monotonic() - saved > SAVE_EVERY:
                self._save()
                saved = time.monotonic()
            if stop:
                raise Interrupted(
                    f"stopped at step {here.step} of {self.steps} and saved; the same command goes on from there "
                    f"({self.folder})"
                )

    def _evaluation_is_due(self) -> bool:
        here = self.loop.progressed
        return here.step in self.evaluate_at and here.evaluated < here.step

    def _begin(self) -> None:
        done = checkpoint.load(self.folder, self.loop.model, self.loop.optimiser) if self.continued else None
        if done is not None:
            self.loop.progressed = done
            files.keep_events(self.folder, lambda event: event["step"] <= _last_step(event, done))
            logger.info("going on from step %d of %d", done.step, self.steps)
        else:
            files.write_config(self.folder, self.settings.as_table(qkv.__version__))
            self.task.save(self.folder)
            files.keep_events(self.folder, lambda event: False)
        expected = round(self.steps * self.loop.tokens_per_step())
        self._say(
            {
                "event": "start",
                "step": self.loop.progressed.step,
                "steps": self.steps,
                "expected_tokens": expected,
            }
        )

    def _step(self, groups: Any, started: float) -> None:
        begun, group = time.perf_counter(), next(groups)
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
                "batches": digest(group),
                "tokens": here.tokens,
                "tokens_per_s": round(stepped.tokens / (time.perf_counter() - begun), 1),
                "seconds": round(here.seconds, 3),
            }
        )

    def _evaluate(self) -> None:
        here, sample = self.loop.progressed, spread(self.pairs.dev, DEV_EXAMPLES)
        loss = self.loop.mean_loss(self.task.items(sample))
        metrics = {"loss": loss, **self._scores(sample, beam=1)}
        here.evaluated = here.step
        if metrics[self.task.metric] <= here.best:
            here.best, here.best_step = metrics[self.task.metric], here.step
            files.write_weights(self.folder, self.loop.model)
        self._say(
            {
                "event": "evaluation",
                "step": here.step,
                "split": "dev",
                "examples": len(sample),
                "beam": 1,
                "tokens": here.tokens,
                "seconds": round(here.seconds, 3),
                "metrics": metrics,
            }
        )

    def _scores(
        self, examples: Sequence[Example], beam: int | None, advance: Callable[[int], None] | None = None
    ) -> dict[str, float]:
        self.loop.model.eval()
        return self.task.evaluate(
            self.loop.model, examples, beam=beam, advance=advance
        )  # in float32, as `predict` computes

    def _end(self) -> Run:
        files.read_weights(self.folder, self.loop.model)
        logger.info("scoring %d test examples", len(self.pairs.test))
        test = self._scores(self.pairs.test, beam=None, advance=counting(len(self.pairs.test), "scored"))
        here = self.loop.progressed
        self._say(
            {
                "event": "end",
                "step": here.step,
                "seconds": round(here.seconds, 3),
                "best_step": here.best_step,
                "tokens": here.tokens,
                "test_examples": len(self.pairs.test),
                "beam": self.task.config.beam,
                "test": test,
            }
        )
        return load(self.folder, str(self.loop.device))

    def _save(self) -> None:
        for listener in self.listeners:
            listener.flush()
        checkpoint.save(self.folder, self.loop.model, self.loop.optimiser, self.loop.progressed)

    def _close(self) -> None:
        for listener in self.listeners:
            listener.close()
        self.lock.release()

    def _say(self, event: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener.on(event)
