"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qkv.errors import UserError

REPORT = "export.json"


def check(folder: Path) -> None:
    """Raises UserError when `folder` is there and is no export of before, so that nothing in it is overwritten."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / REPORT).is_file():
        raise UserError(f"{folder} exists and is not an export: choose another folder, so that nothing is overwritten")


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A folder to write into; it takes the place of `folder` when the block ends well, and is removed when not.

    Raises UserError as `check` does, and when the disk is full, read-only or otherwise refuses.
    """
    check(folder)
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    old = folder.with_name(f"{folder.name}.{os.getpid()}.old")
    try:
        part.mkdir(parents=True)
        yield part
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
    except OSError as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise UserError(f"cannot write {folder}: {error.strerror or error}. What was there before is intact") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
