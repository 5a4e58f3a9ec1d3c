"""Where the events of training can go: TensorBoard, or a tracker of the user's own."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from qkv.errors import UserError
from qkv.training.events import Event, Listener, logger

TENSORBOARD = "tensorboard"


class TensorBoard(Listener):
    """Curves of loss, rate, gradient norm, speed and dev figures in RUN/tensorboard, for `tensorboard --logdir RUN`."""

    def __init__(self):
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise UserError(f'--track {TENSORBOARD} needs {error.name}: pip install "qkv[track]"') from None
        self._open, self._writer = SummaryWriter, None

    def on(self, event: Event) -> None:
        kind, step = event["event"], event["step"]
        if kind == "start":
            # What a killed run wrote after its last checkpoint comes once more.
            self._writer = self._open(str(Path(event["run"]) / TENSORBOARD), purge_step=step + 1)
        elif kind == "train":
            self._add("train", step, {name: event[name] for name in ("loss", "lr", "grad_norm", "tokens_per_s")})
        elif kind == "evaluation":
            self._add(event["split"], step, event["metrics"])
        elif kind == "end":
            self._add("test", step, event["test"])

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _add(self, group: str, step: int, figures: dict[str, float]) -> None:
        assert self._writer is not None, "start comes first"
        for name, value in figures.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)


class Tolerated(Listener):
    """A tracker whose failure is said once and costs no training."""

    def __init__(self, name: str, tracker: Any):
        self._name, self._tracker, self._failed = name, tracker, False

    def on(self, event: Event) -> None:
        self._call("on", event)

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, *arguments: object) -> None:
        if self._failed:
            return
        try:
            with redirect_stdout(sys.stderr):  # standard output belongs to the command: one object with --json
                getattr(self._tracker, method)(*arguments)
        except (Exception, SystemExit) as error:
            self._failed = True
            logger.warning(
                "the tracker %s failed (%s: %s) and hears no more; training goes on",
                self._name, type(error).__name__, error,
            )  # fmt: skip


def tracker(name: str) -> Listener:
    """The tracker of that name: tensorboard, or FILE.py:CLASS, a subclass of Listener that is made without arguments.

    Raises UserError when there is no such file or class, or it cannot be made.
    """
    if name == TENSORBOARD:
        return Tolerated(name, TensorBoard())
    file, colon, wanted = name.rpartition(":")
    path = Path(file)
    if not colon or path.suffix != ".py":
        raise UserError(f"unknown tracker {name!r}: {TENSORBOARD}, or FILE.py:CLASS for one of your own")
    if not path.is_file():
        raise UserError(f"--track {name}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"qkv_tracker_{path.stem}", path)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for what a class's annotations mean
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
            made = getattr(module, wanted)()
    except (Exception, SystemExit) as error:
        raise UserError(f"--track {name}: {type(error).__name__}: {error}") from error
    for method in ("on", "flush", "close"):
        if not callable(getattr(made, method, None)):
            raise UserError(
                f"--track {name}: it has no {method}(); make it a subclass of {Listener.__module__}.Listener"
            )
    return Tolerated(name, made)
