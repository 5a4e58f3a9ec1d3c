"""What a training run says while it goes: four kinds of event, for a file, a terminal, or anybody's tracker."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qkv.run import folder as files

Event = dict[str, Any]
"""{"event": "start" | "train" | "evaluation" | "end", "step": int, ...}; values that fit JSON."""


class Listener:
    """Anything that wants to know. A tracker of your own overrides `on`, and needs no more.

    "start" carries also "run", the run's folder, and "config", its tables; a run that goes on starts again, with the
    step it had reached. `flush` comes before each checkpoint, `close` when training ends or fails.
    """

    def on(self, event: Event) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class JsonLines(Listener):
    """Appends events to metrics.jsonl, about once a second and with each checkpoint, not with each step.

    What a killed run wrote after its last checkpoint is dropped when it goes on.
    """

    def __init__(self, folder: Path):
        self._folder, self._waiting, self._written = folder, list[Event](), time.monotonic()

    def on(self, event: Event) -> None:
        self._waiting.append({key: value for key, value in event.items() if key not in ("run", "config")})
        if time.monotonic() - self._written > 1.0:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            files.append_events(self._folder, self._waiting)
            self._waiting = []
        self._written = time.monotonic()

    def close(self) -> None:
        self.flush()


class Progress(Listener):
    """Rate and time left on stderr: a live bar on a terminal, else a line every ten seconds."""

    def __init__(self):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, soft_wrap=True)
        self._live = self._console.is_terminal and (sys.stderr.encoding or "").lower().startswith("utf")
        self._bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, said="")
        self._steps, self._last, self._first = 0, time.monotonic(), (time.monotonic(), 0)
        self._open = False

    def on(self, event: Event) -> None:
        kind = event["event"]
        if kind == "start":
            self._steps, self._first = event["steps"], (time.monotonic(), event["step"])
            if self._live:
                self._bar.update(self._task, total=self._steps, completed=event["step"])
                self._bar.start()
                self._open = True
        elif kind == "train":
            self._train(event)
        elif kind == "evaluation":
            figures = " ".join(f"{k} {v:.2f}" for k, v in event["metrics"].items())
            self._say(f"step {event['step']}/{self._steps}: dev {figures}")
        elif kind == "end":
            self.close()

    def close(self) -> None:
        if self._open:
            self._bar.stop()
            self._open = False

    def _train(self, event: Event) -> None:
        said = f"loss {event['loss']:.3f}, {event['tokens_per_s']:,.0f} tokens/s"
        if self._live:
            self._bar.update(self._task, completed=event["step"], said=said)
        elif time.monotonic() - self._last >= 10.0:
            started, first = self._first
            left = (time.monotonic() - started) / max(event["step"] - first, 1) * (self._steps - event["step"])
            self._last = time.monotonic()
            self._say(f"step {event['step']}/{self._steps}: {said}, {left:.0f} s left")

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False)


logger = logging.getLogger("qkv")


def counting(total: int, verb: str, every: float = 10.0) -> Callable[[int], None]:
    """A callback for work of `total` pieces that is told how many more are done: a line with time left now and then."""
    started = last = time.monotonic()
    done = 0

    def advance(more: int) -> None:
        nonlocal done, last
        done, now = done + more, time.monotonic()
        if now - last >= every and done < total:
            last = now
            logger.info("%s %d of %d, %.0f s left", verb, done, total, (now - started) / done * (total - done))

    return advance
