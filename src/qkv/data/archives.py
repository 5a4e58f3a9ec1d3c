"""Members of downloaded archives, read in memory: nothing is unpacked to disk, nothing of them is run."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from qkv.errors import UserError


def members(path: Path, inner: str = "") -> Iterator[tuple[str, bytes]]:
    """(name, content) of every file in a wheel or a tar.gz, in its order; with `inner`, of the tar of that name in it.

    Names have no folder of the release in front. Raises UserError for what is no archive, or lacks `inner`.
    """
    try:
        found = _zipped(path) if zipfile.is_zipfile(path) else _tarred(path.read_bytes())
        if inner:
            content = next((data for name, data in found if name == inner), None)
            if content is None:
                raise UserError(f"{path} has no {inner}: it is not the expected file")
            found = _tarred(content)
        yield from found
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} cannot be read as an archive ({error})") from error


def member(path: Path, name: str) -> bytes:
    """The content of one file. Raises UserError when the archive has none of that name."""
    for found, content in members(path):
        if found == name:
            return content
    raise UserError(f"{path} has no {name}: it is not the expected file")


def _zipped(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith("/"):
                yield name, archive.read(name)


def _tarred(content: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for one in archive:
            data = archive.extractfile(one) if one.isfile() else None
            if data is not None:
                yield one.name.partition("/")[2] or one.name, data.read()
