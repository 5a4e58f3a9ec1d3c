"""The files from which a stopped run goes on: the newest checkpoint, and the one before in case it is damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from qkv.errors import UserError
from qkv.run import folder as files

FILE, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"

logger = logging.getLogger("qkv")

DAMAGE = (
    LookupError, RuntimeError, TypeError, AttributeError, ValueError, EOFError, OSError, UnpicklingError,
)  # fmt: skip
"""What reading a damaged file may raise."""


class Damaged(UserError):
    """A checkpoint that cannot be read."""


def save(folder: Path, state: Mapping[str, Any]) -> None:
    """Replaces the checkpoint in one move and keeps the one before; when the disk is full, both stay as they are.

    Raises UserError naming the file and how much room it needs.
    """
    with files.replacing(folder / FILE) as part:
        try:
            torch.save(dict(state), part)
        except RuntimeError as error:  # torch reports a full disk so
            copies = 4 if state.get("average") else 3  # the weights, Adam's two, their running average
            size = sum(t.numel() * t.element_size() for t in state["model"].values()) * copies / 1e6
            raise OSError(f"{str(error).splitlines()[0]} (about {size:.0f} MB are needed)") from error
        if (folder / FILE).is_file():
            (folder / FILE).replace(folder / PREVIOUS)


def load(folder: Path, restore: Callable[[dict[str, Any]], None]) -> bool:
    """Gives `restore` the newest checkpoint that can be read and restored; False when there is none.

    A damaged newest one is said and the one before taken. Raises UserError when every one that is there is damaged.
    """
    there = [folder / name for name in (FILE, PREVIOUS) if (folder / name).is_file()]
    for last, path in enumerate(there, 1):
        try:
            _read(path, restore)
            return True
        except Damaged as error:
            if last == len(there):
                names = " and ".join(one.name for one in there)
                raise UserError(f"{error}: delete {names} to begin anew, or use another --out") from None
            logger.warning("%s. Going on from %s, the one before", error, PREVIOUS)
    return False


def _read(path: Path, restore: Callable[[dict[str, Any]], None]) -> None:
    try:
        restore(torch.load(path, map_location="cpu", weights_only=True))
    except PermissionError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except DAMAGE as error:
        what = (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0]
        raise Damaged(f"{path} is damaged ({what})") from None
