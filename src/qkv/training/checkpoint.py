"""Everything a stopped run needs to go on with the same numbers: weights, optimiser, place in the data, random state."""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from qkv.errors import UserError
from qkv.run import folder as files

FILE = "checkpoint.pt"


@dataclass
class Progressed:
    """How far training is. `batch` batches of `epoch` are done; `best` is the best dev metric so far."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float = float("inf")
    best_step: int = 0


def save(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, progressed: Progressed) -> None:
    """Replaces the checkpoint in one move; the previous one stays when the disk is full."""
    state = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "progressed": asdict(progressed),
        "random": _random_state(),
    }
    with files.replacing(folder / FILE) as part:
        try:
            torch.save(state, part)
        except RuntimeError as error:  # torch reports a full disk so
            raise OSError(str(error).splitlines()[0]) from error


def load(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progressed | None:
    """Restores the checkpoint into model, optimiser and random state; None when there is none.

    Raises UserError when the file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        _restore_random_state(state["random"])
        return Progressed(**state["progressed"])
    except (RuntimeError, KeyError, TypeError, EOFError, ValueError, OSError, pickle.UnpicklingError) as error:
        raise UserError(
            f"{path} is damaged ({str(error).splitlines()[0]}): delete it to begin the run anew, or use another --out"
        ) from None


def _random_state() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _restore_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
