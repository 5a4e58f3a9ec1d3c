"""One writer for a run folder: two processes that train into one would overwrite each other's files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from qkv.errors import UserError

NAME = ".lock"


def own(folder: Path) -> FileLock:
    """The lock of `folder`, held until it is released or the process ends, however it ends.

    Raises UserError naming the process that holds it.
    """
    lock = FileLock(folder / NAME, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        holder = ""
        with suppress(OSError):  # Windows lets nobody else read a locked file
            holder = f" (process {(folder / NAME).read_text(encoding='ascii', errors='replace').strip()})"
        raise UserError(
            f"another process{holder} is training into {folder}: wait for it or stop it, or choose another --out"
        ) from None
    with suppress(OSError):
        (folder / NAME).write_text(str(os.getpid()), encoding="ascii")
    return lock
