"""Where examples come from: a data set of the catalogue by name, or a person's own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.data import catalogue, fetch, pair_data, prepared
from qkv.data.pairs import Pairs
from qkv.errors import UserError, nearest


@dataclass(frozen=True)
class Source:
    """A name, its options with their defaults, and how the examples are had.

    `config` is the dataclass that the options make, None where `check` alone says what they may be.
    """

    name: str
    options: Mapping[str, Any]
    config: type[Any] | None
    check: Callable[[Mapping[str, Any]], None]
    load: Callable[[Mapping[str, Any], fetch.Progress | None], Pairs]


def find(name: str) -> Source:
    """The source of that name. Raises UserError with the nearest and all known names."""
    if name == pair_data.NAME:
        return Source(name, pair_data.OPTIONS, pair_data.PairConfig, lambda options: None, _own)
    if name not in catalogue.CATALOGUE:
        known = ", ".join(catalogue.CATALOGUE)
        raise UserError(
            f"there is no data set '{name}' in the catalogue, and no such file.{nearest(name, catalogue.CATALOGUE)} "
            f"Known: {known}."
        )
    entry = catalogue.entry(name)

    def load(options: Mapping[str, Any], progress: fetch.Progress | None) -> Pairs:
        return entry.load(catalogue.get(name, progress), **options)

    return Source(name, entry.options, None, entry.check, load)


def pairs_of(table: Mapping[str, Any], progress: fetch.Progress | None = None) -> Pairs:
    """The examples that the [data] table of a config means. Raises UserError for a name or data that cannot be had."""
    options = {key: value for key, value in table.items() if key not in ("name", "fingerprint")}
    return find(str(table.get("name", ""))).load(options, progress)


def table_of(data: str) -> dict[str, Any]:
    """The [data] table that a word stands for: a name of the catalogue, or a file to train on."""
    if data in catalogue.CATALOGUE or data == pair_data.NAME:
        return {"name": data}
    if Path(data).suffix or Path(data).exists():
        return {"name": pair_data.NAME, "train": data}
    return {"name": data}


def _own(options: Mapping[str, Any], progress: fetch.Progress | None) -> Pairs:
    return prepared.pairs_of(pair_data.PairConfig(**options))
