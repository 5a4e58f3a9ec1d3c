"""A million examples without a million objects: columns of text and of ids, each one flat array with offsets.

An element is made when it is asked for. Letters: N elements, E examples, L the sum of all lengths.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Self, TypeVar, overload

import numpy as np

from qkv.data.pairs import Example

T_co = TypeVar("T_co", covariant=True)

Item = tuple[list[int], list[int]] | tuple[list[int], list[int], float]
"""Source and target ids of one training pair, without control symbols; and its weight, where not all count alike."""

Taken = Literal["all", "weighted", "first"]


class _Compact(Sequence[T_co]):
    """A sequence whose elements are made by `_at` each time; a slice is a list."""

    @abstractmethod
    def _at(self, place: int) -> T_co: ...

    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> list[T_co]: ...
    def __getitem__(self, place: int | slice) -> T_co | list[T_co]:
        found = range(len(self))[place]
        return self._at(found) if isinstance(found, int) else list(map(self._at, found))

    def __iter__(self) -> Iterator[T_co]:
        return map(self._at, range(len(self)))


class _Ragged(_Compact[T_co]):
    """Rows of any length: `values` (L,) holds one behind the other, row n is values[ends[n] : ends[n + 1]]."""

    def __init__(self, values: np.ndarray, ends: np.ndarray):
        self.values, self.ends = values, ends

    @classmethod
    def of_lengths(cls, values: np.ndarray, lengths: Sequence[int]) -> Self:
        ends = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=ends[1:])
        return cls(values, ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(N,) int64. Of texts in bytes."""
        return np.diff(self.ends)

    @property
    def digest(self) -> str:
        """The sha256 of the content."""
        digest = hashlib.sha256(self.ends.data)
        digest.update(self.values.data)
        return digest.hexdigest()

    def arrays(self) -> dict[str, np.ndarray]:
        """What makes the same again: the arguments of the class."""
        return {"values": self.values, "ends": self.ends}


class Texts(_Ragged[str]):
    """Lines of text, as UTF-8 (L,) uint8. Half of a character pair, as JSON can hold, is kept."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        return cls.of_lengths(np.frombuffer(b"".join(encoded), dtype=np.uint8), list(map(len, encoded)))

    def _at(self, place: int) -> str:
        return str(self.values[self.ends[place] : self.ends[place + 1]].data, "utf-8", "surrogatepass")


class Ids(_Ragged[list[int]]):
    """Rows of ids, (L,) int32."""

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ids:
        values, lengths = array("i"), array("q")
        for row in rows:
            values.extend(row)
            lengths.append(len(row))
        return cls.of_lengths(np.frombuffer(values, dtype=np.int32), lengths)

    def _at(self, place: int) -> list[int]:
        return self.values[self.ends[place] : self.ends[place + 1]].tolist()


class Examples(_Compact[Example]):
    """Examples of one split: `sources` and `targets` in the same order, firsts (E + 1,) as offsets into `targets`."""

    def __init__(self, sources: Texts, targets: Texts, firsts: np.ndarray):
        self.sources, self.targets, self.firsts = sources, targets, firsts

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Examples:
        counts = [len(example.targets) for example in examples]
        sources = Texts.of(example.source for example in examples)
        targets = Texts.of(target for example in examples for target in example.targets)
        return cls(sources, targets, np.cumsum([0, *counts]))

    def arrays(self) -> dict[str, np.ndarray]:
        """What `from_arrays` makes the same examples of."""
        sides = {"sources": self.sources, "targets": self.targets}
        flat = {f"{side}.{name}": one for side, texts in sides.items() for name, one in texts.arrays().items()}
        return {**flat, "firsts": self.firsts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Examples:
        sources, targets = (
            Texts(arrays[f"{prefix}{side}.values"], arrays[f"{prefix}{side}.ends"]) for side in ("sources", "targets")
        )
        return cls(sources, targets, arrays[f"{prefix}firsts"])

    def __len__(self) -> int:
        return len(self.sources)

    def _at(self, place: int) -> Example:
        first, end = self.firsts[place : place + 2].tolist()
        return Example(self.sources[place], tuple(self.targets[first:end]))


class Items(_Compact[Item]):
    """Training pairs of examples: source ids (E rows), ids of all their targets, and which targets are used.

    taken     "all" targets count 1, "weighted" 1 / k where a source has k, "first": only the first one is used
    """

    def __init__(self, source: Ids, target: Ids, counts: np.ndarray, taken: Taken):
        self.source, self.target = source, target
        firsts = np.cumsum(counts) - counts
        alone = taken == "first"
        self._target_of = firsts if alone else np.arange(len(target))
        self._source_of = np.arange(len(source)) if alone else np.repeat(np.arange(len(source)), counts)
        self._weights = np.repeat(1.0 / counts, counts) if taken == "weighted" else None

    def __len__(self) -> int:
        return len(self._target_of)

    @property
    def lengths(self) -> np.ndarray:
        """Ids of source and target of each pair, (N, 2) int64."""
        return np.stack([self.source.lengths[self._source_of], self.target.lengths[self._target_of]], axis=1)

    def _at(self, place: int) -> Item:
        source, target = self.source[int(self._source_of[place])], self.target[int(self._target_of[place])]
        return (source, target) if self._weights is None else (source, target, float(self._weights[place]))


def columns(examples: Sequence[Example]) -> tuple[Sequence[str], Sequence[str], np.ndarray]:
    """The sources, the targets of all examples one behind the other, and how many targets each example has, (E,)."""
    if isinstance(examples, Examples):
        return examples.sources, examples.targets, np.diff(examples.firsts)
    counts = np.array([len(example.targets) for example in examples], dtype=np.int64)
    return [e.source for e in examples], [target for e in examples for target in e.targets], counts
