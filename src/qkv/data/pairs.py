"""What every reader of source-target data returns: examples of symbols in three splits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Separation = Literal["characters", "spaces"]  # how symbols are found in a line of text


@dataclass(frozen=True, slots=True)
class Example:
    """One source with every target that counts as right.

    `source` and each target are symbols, not ids. `targets` is not empty; the first one is the one to learn when
    only one is used. `text` is the source as a person would type it.
    """

    source: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]
    text: str


@dataclass(frozen=True)
class Pairs:
    """Examples in three splits, how each side is separated into symbols, and what identifies the data.

    `notes` are sentences for the reader of a report (what was dropped or changed). `fingerprint` is a sha256 of
    the examples and of the options they were read with: two runs on the same data have the same one.
    """

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    name: str
    source_symbols: Separation
    target_symbols: Separation
    notes: list[str]
    fingerprint: str

    @property
    def splits(self) -> dict[str, list[Example]]:
        """The splits by name, in the order train, dev, test."""
        return {"train": self.train, "dev": self.dev, "test": self.test}


def fingerprint(splits: Mapping[str, Sequence[Example]], options: Mapping[str, object]) -> str:
    """The sha256 (64 hex digits) of the examples, their order and splits, and the options; `options` must fit JSON."""
    digest = hashlib.sha256(json.dumps(dict(options), sort_keys=True).encode())
    for name, examples in splits.items():
        # Column by column: three long lists are written twice as fast as 100,000 short ones.
        columns = [[e.text for e in examples], [e.source for e in examples], [e.targets for e in examples]]
        for column in (name, *columns):
            digest.update(json.dumps(column).encode() + b"\n")
    return digest.hexdigest()
