"""How far training is, and the random numbers to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Progressed:
    """How far training is. `batch` batches of `epoch` are done; `best` is the best dev metric so far.

    `evaluated` is the step of the last evaluation on dev, `best_step` that of the best one, `stale` the number of
    evaluations since one was better than all before.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    evaluated: int = 0
    stale: int = 0

    def judge(self, value: float, lower_is_better: bool) -> bool:
        """Takes in the figure of an evaluation after the present step; True when none before was better."""
        gain = None if self.best is None else (self.best - value if lower_is_better else value - self.best)
        self.stale = 0 if gain is None or gain > 0 else self.stale + 1
        if gain is not None and gain < 0:
            return False
        self.best, self.best_step = value, self.step
        return True


def random_state() -> dict[str, Any]:
    """The state of every generator that torch draws from."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    mps = [torch.mps.get_rng_state()] if torch.backends.mps.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda, "mps": mps}


def restore_random_state(state: dict[str, Any]) -> None:
    """Goes back to what `random_state` returned."""
    torch.set_rng_state(state["cpu"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])
    if state["mps"] and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"][0])
