"""What was worked out once from large data, kept in the cache folder as safetensors files.

A file is found by the sha256 of the content it was made from and of every option that had a part in it, never by a
name, a size or a time. A damaged one is made again; where nothing can be kept, everything is made each time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from qkv.data import fetch

logger = logging.getLogger("qkv")


@dataclass(frozen=True)
class Stored:
    """What one file holds: arrays by name, and anything that fits JSON."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    about: Any = None


def folder() -> Path:
    """Where the files are; all of them may be deleted at any time. Not created here."""
    return fetch.cache_dir() / "prepared"


def key(*parts: Any) -> str:
    """The name of a file made from `parts`, which fit JSON, by this version of the program."""
    return hashlib.sha256(json.dumps([_version(), parts], sort_keys=True).encode()).hexdigest()


@cache
def _version() -> list[str]:
    # The code itself is the version of the format: no change to a reader can be forgotten here.
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    return [code.hexdigest(), tokenizers.__version__, unicodedata.unidata_version]


def kept(name: str, make: Callable[[], Stored]) -> Stored:
    """What is kept under that key; else what `make` returns, which then is kept."""
    found = read(name)
    if found is None:
        found = make()
        write(name, found)
    return found


def read(name: str) -> Stored | None:
    """What is kept under that key; None, said in a warning where that is news, when there is nothing that is whole."""
    path = _path(name)
    try:
        if not path.is_file():
            return None
        with safe_open(path, "np") as file:
            arrays = {part: file.get_tensor(part) for part in file.keys()}  # noqa: SIM118 (not a dict)
            said = file.metadata() or {}
    except OSError as error:
        _warn_once(f"cannot use the cache folder {path.parent}: {error.strerror or error}")
        return None
    except SafetensorError as error:
        logger.warning("%s is damaged (%s) and made again", path, error)
        return None
    if said.get("sha256") != _digest(name, arrays, said.get("about", "")):
        logger.warning("%s is damaged (its sha256 is another) and made again", path)
        return None
    return Stored(arrays, json.loads(said["about"]))


def write(name: str, stored: Stored) -> None:
    """Keeps `stored` in one step or not at all. Where that is impossible it is said, once a process."""
    path, about = _path(name), json.dumps(stored.about)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fetch.sweep(path.parent)
        try:
            said = {"about": about, "sha256": _digest(name, stored.arrays, about)}
            save_file(dict(stored.arrays), unfinished, said)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or error
        _warn_once(f"cannot keep prepared data in {path.parent} ({why}): the next start will prepare them again")


def _path(name: str) -> Path:
    return folder() / f"{name}.safetensors"


def _digest(name: str, arrays: Mapping[str, np.ndarray], about: str) -> str:
    digest = hashlib.sha256(f"{name}\n{about}\n".encode())
    for part in sorted(arrays):
        digest.update(f"{part} {arrays[part].dtype} {arrays[part].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[part]).data)
    return digest.hexdigest()


@cache
def _warn_once(message: str) -> None:
    logger.warning("%s", message)
