"""What a person's file is for, where nobody says."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from qkv.data import label_data, line_data, pair_data, tag_data
from qkv.data.files import conll
from qkv.data.files.encoding import local, read
from qkv.data.files.reading import FileConfig
from qkv.errors import UserError

ENOUGH = 1_000_000
"""Bytes of a text file that tell what the rest is like."""

_CONFIGS = {
    pair_data.NAME: pair_data.PairConfig,
    label_data.NAME: label_data.LabelConfig,
    tag_data.NAME: tag_data.TagConfig,
    line_data.NAME: line_data.LineConfig,
}


def own_name(path: str, settings: Mapping[str, Any]) -> str:
    """The name of the reader that fits the file at `path`: pairs, labels or tags.

    A setting that only one reader has (data.label) decides; else what the file looks like. What cannot be read is left
    to the reader of pairs, which says why. Raises UserError for a file that is not there.
    """
    if not local(path).exists():
        read(path)  # which says so
    inside = settings.get("data")
    asked = {key.removeprefix("data.") for key in settings} | set(inside if isinstance(inside, Mapping) else ())
    for name, config in _CONFIGS.items():
        others = {one.name for other in _CONFIGS.values() if other is not config for one in fields(other)}
        if asked & ({one.name for one in fields(config)} - others):
            return name
    given = {key.removeprefix("data."): value for key, value in settings.items()}
    reading = FileConfig(**{one.name: given[one.name] for one in fields(FileConfig) if one.name in given})
    try:
        return _looks(local(path), reading)
    except (UserError, OSError):
        return pair_data.NAME


def _looks(path: Path, reading: FileConfig) -> str:
    if path.suffix.lower() in (".parquet", ".xlsx") or path.stat().st_size <= ENOUGH:
        return _of(path, reading)
    with path.open("rb") as file, tempfile.TemporaryDirectory() as folder:
        head = Path(folder) / path.name
        head.write_bytes(file.read(ENOUGH).rpartition(b"\n")[0] + b"\n")
        return _of(head, reading)


def _of(path: Path, reading: FileConfig) -> str:
    if conll.looks_like_conll(path, reading.encoding or None):
        return tag_data.NAME
    table = reading.table(str(path))
    return label_data.NAME if label_data.looks_labelled(table) else pair_data.NAME
