"""Windows over a sentence that is cut into sub-words: whole words, each tagged at its first piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from qkv.data.symbols import BOS


class Item(NamedTuple):
    """One window: sub-words behind BOS, where each word begins among them, the words' tags, the first word's place."""

    ids: list[int]
    begins: list[int]
    tags: list[int]
    first: int


def word_windows(sizes: Sequence[int], window: int, stride: int) -> list[tuple[int, int]]:
    """Spans of words (start, end) of at most `window` sub-words, or of one longer word, that cover all words.

    Each begins at the first word that is `stride` sub-words or more behind the start of the one before.
    """
    ends = np.concatenate([[0], np.cumsum(sizes)])

    def end_of(start: int) -> int:
        return max(int(np.searchsorted(ends, ends[start] + window, side="right")) - 1, start + 1)

    found = [(0, end_of(0))]
    while (last := found[-1])[1] < len(sizes):
        start = min(max(int(np.searchsorted(ends, ends[last[0]] + stride)), last[0] + 1), last[1])
        while end_of(start) <= last[1]:  # a long word ahead: the window would show nothing new
            start += 1
        found.append((start, end_of(start)))
    return found


def window_of(pieces: Sequence[Sequence[int]], tags: Sequence[int], first: int) -> Item:
    ids, begins = [BOS], list[int]()
    for piece in pieces:
        begins.append(len(ids))
        ids += piece
    return Item(ids, begins, list(tags), first)
