"""What a stopped run needs to go on with the same numbers: weights, optimiser, place in the data, random state."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import nn

from qkv.errors import UserError
from qkv.run import folder as files

FILE, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"

logger = logging.getLogger("qkv")

DAMAGE = (
    LookupError, RuntimeError, TypeError, AttributeError, ValueError, EOFError, OSError, UnpicklingError,
)  # fmt: skip
"""What reading a damaged file may raise."""


@dataclass
class Progressed:
    """How far training is. `batch` batches of `epoch` are done; `best` is the best dev metric so far.

    `evaluated` is the step of the last evaluation on dev, `best_step` that of the best one.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float = float("inf")
    best_step: int = 0
    evaluated: int = 0


def save(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, progressed: Progressed) -> None:
    """Replaces the checkpoint in one move and keeps the one before; when the disk is full, both stay as they are.

    Raises UserError naming the file and how much room it needs.
    """
    state = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "progressed": asdict(progressed),
        "random": random_state(),
    }
    with files.replacing(folder / FILE) as part:
        try:
            torch.save(state, part)
        except RuntimeError as error:  # torch reports a full disk so
            size = sum(t.numel() * t.element_size() for t in model.state_dict().values()) * 3 / 1e6  # with Adam's two
            raise OSError(f"{str(error).splitlines()[0]} (about {size:.0f} MB are needed)") from error
        if (folder / FILE).is_file():
            (folder / FILE).replace(folder / PREVIOUS)


def load(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progressed | None:
    """Restores the newest checkpoint that can be read into model, optimiser and random state; None when there is none.

    A damaged newest one is said and the one before taken. Raises UserError when every one that is there is damaged.
    """
    there = [folder / name for name in (FILE, PREVIOUS) if (folder / name).is_file()]
    for last, path in enumerate(there, 1):
        try:
            return _read(path, model, optimiser)
        except UserError as error:
            if last == len(there):
                raise
            logger.warning("%s. Going on from %s, the one before", error, PREVIOUS)
    return None


def _read(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progressed:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        restore_random_state(state["random"])
        return Progressed(**state["progressed"])
    except PermissionError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except DAMAGE as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} is damaged ({what}): delete it to begin anew, or use another --out") from None


def random_state() -> dict[str, Any]:
    """The state of every generator that torch draws from."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    mps = [torch.mps.get_rng_state()] if torch.backends.mps.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda, "mps": mps}


def restore_random_state(state: dict[str, Any]) -> None:
    """Goes back to what `random_state` returned."""
    torch.set_rng_state(state["cpu"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if state["mps"] and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"][0])
