"""Where examples come from: a data set of the catalogue by name, or a person's own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.data import catalogue, fetch, guess, hub, label_data, line_data, pair_data, parts, prepared, tag_data
from qkv.data.pairs import Pairs
from qkv.data.texts import Texts
from qkv.errors import UserError, nearest


@dataclass(frozen=True)
class Source:
    """A name, its options with their defaults, and how the examples are had.

    `config` is the dataclass that the options make, None where `check` alone says what they may be.
    """

    name: str
    task: str
    options: Mapping[str, Any]
    config: type[Any] | None
    check: Callable[[Mapping[str, Any]], None]
    load: Callable[[Mapping[str, Any], fetch.Progress | None], Pairs | Texts]


OWN = {
    "seq2seq": pair_data.NAME,
    "classification": label_data.NAME,
    "tagging": tag_data.NAME,
    "masked_lm": line_data.NAME,
}
"""What a person's own files are called in a config, by task."""

_READERS: dict[str, tuple[type[Any], Mapping[str, Any], Callable[[Any], Pairs | Texts]]] = {
    pair_data.NAME: (pair_data.PairConfig, pair_data.OPTIONS, prepared.pairs_of),
    label_data.NAME: (label_data.LabelConfig, label_data.OPTIONS, label_data.texts_of),
    tag_data.NAME: (tag_data.TagConfig, tag_data.OPTIONS, tag_data.texts_of),
    line_data.NAME: (line_data.LineConfig, line_data.OPTIONS, line_data.texts_of),
}

CONFIGS: Mapping[str, type[Any]] = {name: config for name, (config, _, _) in _READERS.items()}
"""The settings of a person's own files, by the name of their reader."""


def find(name: str) -> Source:
    """The source of that name. Raises UserError with the nearest and all known names."""
    if name in _READERS:
        config, options, read = _READERS[name]
        task = next(task for task, own in OWN.items() if own == name)
        return Source(name, task, options, config, lambda _: None, lambda table, _: read(config(**table)))
    if name not in catalogue.CATALOGUE:
        known = ", ".join(catalogue.CATALOGUE)
        raise UserError(
            f"there is no data set '{name}' in the catalogue, and no such file.{nearest(name, catalogue.CATALOGUE)} "
            f"Known: {known}."
        )
    entry = catalogue.entry(name)

    def load(options: Mapping[str, Any], progress: fetch.Progress | None) -> Pairs | Texts:
        return entry.load(catalogue.get(name, progress), **options)

    return Source(name, entry.task, entry.options, None, entry.check, load)


def data_of(table: Mapping[str, Any], progress: fetch.Progress | None = None) -> Any:
    """The examples that the [data] table of a config means. Raises UserError for a name or data that cannot be had."""
    options = {key: value for key, value in table.items() if key not in ("name", "fingerprint")}
    return find(str(table.get("name", ""))).load(options, progress)


def table_of(data: str, task: str | None = None, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The [data] table that a word stands for: a name of the catalogue, a file to train on, a folder or hf:OWNER/NAME.

    What a file is for is said by `task`, else by the columns that `settings` name, else by what is in it.
    """
    if data in catalogue.CATALOGUE or data in _READERS:
        return {"name": data}
    if hub.is_reference(data) or Path(data).is_dir():
        found = parts.in_folder(data)
        name = OWN[task] if task in OWN else guess.own_name(found["train"], settings or {})
        return {"name": name, **found}
    if Path(data).suffix or Path(data).exists():
        return {"name": OWN[task] if task in OWN else guess.own_name(data, settings or {}), "train": data}
    return {"name": data}
