"""Ctrl-C, and a scheduler's request to stop: the step is finished and saved first."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from qkv.training.processes import started_by_torchrun

logger = logging.getLogger("qkv")


@contextmanager
def finish_the_step() -> Iterator[list[str]]:
    """A list that is empty until the first SIGINT or SIGTERM, which then only mark it; a second one ends at once."""
    stop: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def mark(number: int, frame: object) -> None:
        stop.append(signal.Signals(number).name)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the shell had it ignored
        # A scheduler signals each process, and torchrun sends it on to each: once more is no second wish.
        again = signal.SIG_IGN if started_by_torchrun() else signal.SIG_DFL
        signal.signal(signal.SIGTERM, again)
        logger.info("finishing this step, then saving")

    for number in before:
        signal.signal(number, mark)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
