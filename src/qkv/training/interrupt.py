"""Ctrl-C, and a scheduler's request to stop: the step is finished and saved first."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("qkv")


class Interrupted(KeyboardInterrupt):
    """Training was stopped after saving; the message says how to go on."""


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
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        logger.info("finishing this step, then saving")

    for number in before:
        signal.signal(number, mark)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
