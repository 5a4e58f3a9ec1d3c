"""What every reader of source-target data returns: examples of text in three splits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Example:
    """One line of source text with every line of target text that counts as right.

    `targets` is not empty; the first one is the one to learn when only one is used.
    """

    source: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class SymbolKind:
    """How a side's lines become symbols: a kind that `Symbols.learn` knows, with what that kind needs.

    size is the largest vocabulary of sub-words; inventory lists the symbols of kind "inventory".
    """

    kind: str = "characters"
    size: int = 8000
    inventory: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Pairs:
    """Examples in three splits, how each side is separated into symbols, and what identifies the data.

    `notes` are sentences for the reader of a report (what was dropped or changed). `fingerprint` is a sha256 of
    the examples and of the options they were read with: two runs on the same data have the same one.
    """

    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]
    name: str
    source_symbols: SymbolKind
    target_symbols: SymbolKind
    notes: list[str]
    fingerprint: str

    @property
    def splits(self) -> dict[str, Sequence[Example]]:
        """The splits by name, in the order train, dev, test."""
        return {"train": self.train, "dev": self.dev, "test": self.test}


def fingerprint(splits: Mapping[str, Sequence[Example]], options: Mapping[str, object]) -> str:
    """The sha256 (64 hex digits) of the examples, their order and splits, and the options; `options` must fit JSON."""
    digest = hashlib.sha256(json.dumps(dict(options), sort_keys=True).encode())
    for name, examples in splits.items():
        # Column by column: two long lists are written twice as fast as 100,000 short ones.
        for column in (name, [e.source for e in examples], [e.targets for e in examples]):
            digest.update(json.dumps(column).encode() + b"\n")
    return digest.hexdigest()


def fingerprint_of(splits: Mapping[str, Sequence[Any]], options: Mapping[str, object]) -> str:
    """The same of examples of any dataclass, field by field."""
    digest = hashlib.sha256(json.dumps(dict(options), sort_keys=True).encode())
    for name, examples in splits.items():
        digest.update(json.dumps(name).encode() + b"\n")
        for field in fields(examples[0]) if examples else ():
            digest.update(json.dumps([getattr(one, field.name) for one in examples]).encode() + b"\n")
    return digest.hexdigest()


def spread(examples: Sequence[T], count: int) -> list[T]:
    """At most `count` examples at even distances: files are often sorted."""
    if len(examples) <= count:
        return list(examples)
    return [examples[i * len(examples) // count] for i in range(count)]
