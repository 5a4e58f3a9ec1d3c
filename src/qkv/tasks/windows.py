"""Texts longer than a model should take at once, read in windows that overlap: nothing is cut off unsaid.

Letters: B batch, T time, N texts, P pieces (windows of all texts, one behind the other), C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from qkv.data.batches import length_batches, pad
from qkv.data.compact import Ids
from qkv.data.symbols import BOS, EOS, PAD, UNK

Pool = Literal["mean", "max", "first"]

Piece = tuple[list[int], int]
"""What a model reads of one text: ids with their control symbols, and how many of them belong to the first text."""


def windows(n_tokens: int, window: int, stride: int) -> list[tuple[int, int]]:
    """(start, end) of the windows that cover `n_tokens` tokens, `stride` from start to start.

    The last one is moved back so that it is as long as the others. A text that fits is one window, an empty one too.
    Raises ValueError for a window below 1, and for a stride that would leave tokens out.
    """
    if window < 1 or not 1 <= stride <= window:
        raise ValueError(f"window {window} and stride {stride}: a stride is from 1 to the window")
    if n_tokens <= window:
        return [(0, n_tokens)]
    return [(start, start + window) for start in (*range(0, n_tokens - window, stride), n_tokens - window)]


def _overlapping(n_tokens: int, window: int, stride: int) -> list[tuple[int, int]]:
    return windows(n_tokens, window, min(stride or window - window // 4, window))


def _spans(n_first: int, n_second: int | None, window: int, stride: int) -> list[tuple[int, int, int, int]]:
    """What stands of the first text and of the second, (start, end, start, end), in each window of `window` tokens.

    Of a pair the shorter text stays whole where it takes less than half of the room. Where both are longer they run
    side by side: the same part of each is read together.
    """
    if n_second is None:
        return [(*span, 0, 0) for span in _overlapping(n_first, window - 1, stride)]
    room = window - 3
    for_second = min(n_second, max(room // 2, room - n_first))
    first = _overlapping(n_first, max(room - for_second, 1), stride)
    second = _overlapping(n_second, max(for_second, 1), stride)
    count = max(len(first), len(second))
    return [(*first[i * len(first) // count], *second[i * len(second) // count]) for i in range(count)]


class Pieces(Sequence[Piece]):
    """The windows of all texts: [BOS] text or, of pairs, [BOS] first [EOS] second [EOS], `window` tokens at most.

    texts   (P,) which text a piece is of
    counts  (N,) pieces of each text
    tokens, unknown, beyond  (N,) tokens of each text, control symbols aside; how many of them are unknown, and how many
            are beyond what its first window holds
    """

    def __init__(self, first: Ids, second: Ids | None, window: int, stride: int, only_first: bool = False):
        """`only_first`: the first window of each text and no other."""
        self._sides = [first] if second is None else [first, second]
        lengths = [side.lengths for side in self._sides]
        seconds = [None] * len(first) if second is None else lengths[1].tolist()
        found = [_spans(a, b, window, stride) for a, b in zip(lengths[0].tolist(), seconds, strict=True)]
        held = np.array([_held(several[0]) for several in found], dtype=np.int64)
        kept = [several[:1] for several in found] if only_first else found
        self.counts = np.fromiter(map(len, kept), dtype=np.int64, count=len(kept))
        self.texts = np.repeat(np.arange(len(kept)), self.counts)
        self._spans = np.array([span for several in kept for span in several], dtype=np.int64).reshape(-1, 4)
        self.tokens = np.sum(lengths, axis=0)
        self.unknown = np.sum([_per_row(side, side.values == UNK) for side in self._sides], axis=0)
        self.beyond = self.tokens - held

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, place: int) -> Piece:  # pyright: ignore[reportIncompatibleMethodOverride]
        text, (start, end, *rest) = int(self.texts[place]), self._spans[place].tolist()
        ids = [BOS, *self._sides[0][text][start:end]]
        if not self.pairs:
            return ids, len(ids)
        return [*ids, EOS, *self._sides[1][text][slice(*rest)], EOS], len(ids) + 1

    @property
    def pairs(self) -> bool:
        return len(self._sides) == 2

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each piece, control symbols included, (P,)."""
        start, end, start_2, end_2 = self._spans.T
        return end - start + end_2 - start_2 + (3 if self.pairs else 1)

    def of_texts(self, texts: np.ndarray) -> np.ndarray:
        """The places of all pieces of these texts, in their order; a text may come again."""
        counts = self.counts[texts]
        firsts = (np.cumsum(self.counts) - self.counts)[texts]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(firsts, counts) + within


def _held(span: tuple[int, int, int, int]) -> int:
    return span[1] - span[0] + span[3] - span[2]


def _per_row(rows: Ids, marked: np.ndarray) -> np.ndarray:
    """How many values of each row are marked, (N,)."""
    return np.diff(np.concatenate([[0], np.cumsum(marked)])[rows.ends])


class Item(NamedTuple):
    """One window to learn from: what is read, the class (or of each class whether it holds), how much it counts."""

    piece: Piece
    target: Any
    weight: float


class Items(Sequence[Item]):
    """The windows of examples; all windows of an example together count 1. `order` (E,): the examples, as often."""

    def __init__(self, pieces: Pieces, truth: np.ndarray, order: np.ndarray):
        self.pieces, self._truth, self._places = pieces, truth, pieces.of_texts(order)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        piece = int(self._places[place])
        text = int(self.pieces.texts[piece])
        return Item(self.pieces[piece], self._truth[text], 1.0 / int(self.pieces.counts[text]))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each item, (E,)."""
        return self.pieces.lengths[self._places]


class PooledScores:
    """Scores (N, C) of texts, of the scores of their windows as these come in: only (N, C) numbers are kept."""

    def __init__(self, counts: np.ndarray, n_classes: int, how: Pool):
        """`counts` (N,) windows of each text. `how`: first takes the mean too, over the one window that is read."""
        self._counts, self._left, self._max = counts, counts.copy(), how == "max"
        self._scores = np.full((len(counts), n_classes), -np.inf if self._max else 0.0)

    def add(self, texts: np.ndarray, scores: np.ndarray) -> int:
        """Takes in windows' `scores` (R, C), which are of `texts` (R,). Returns how many texts are complete by that."""
        if self._max:
            np.maximum.at(self._scores, texts, scores)
        else:
            np.add.at(self._scores, texts, scores / self._counts[texts, None])
        np.subtract.at(self._left, texts, 1)
        return int((self._left[np.unique(texts)] == 0).sum())

    @property
    def scores(self) -> np.ndarray:
        """(N, C)"""
        return self._scores


class Read(NamedTuple):
    """What was read of one text: scores (C,) pooled over its windows; how many tokens, unknown, beyond one window."""

    scores: np.ndarray
    tokens: int
    unknown: int
    beyond: int


def inputs_of(pieces: Sequence[Piece], pairs: bool) -> dict[str, Tensor]:
    """A model's inputs, padded on the right: tokens (B, T), mask (B, T) and, of pairs, segments (B, T), 0 and 1."""
    tokens, mask = pad([ids for ids, _ in pieces], PAD)  # (B, T)
    inputs = {"tokens": tokens, "mask": mask}
    if pairs:
        first = torch.tensor([count for _, count in pieces])  # (B,)
        inputs["segments"] = (torch.arange(tokens.size(1)) >= first[:, None]).long() * mask  # (B, T)
    return inputs


def read(
    model: nn.Module,
    pieces: Pieces,
    n_classes: int,
    how: Pool,
    scored: Callable[[Tensor], Tensor],
    *,
    batch_tokens: int = 4096,
    advance: Callable[[int], None] | None = None,
) -> list[Read]:
    """What `model` makes of each text, in order; windows of like length share a batch of `batch_tokens` at most.

    `scored` makes of a batch's logits (B, C) the scores that are pooled. `advance(n)` is called with the number of
    texts done.
    """
    pooled, device = PooledScores(pieces.counts, n_classes, how), next(model.parameters()).device
    lengths = [(length, 0) for length in pieces.lengths.tolist()]
    for rows in length_batches(lengths, batch_tokens, seed=0, epoch=0, shuffle=False):
        inputs = {name: one.to(device) for name, one in inputs_of([pieces[i] for i in rows], pieces.pairs).items()}
        with torch.no_grad():
            scores = scored(model(**inputs).float())  # (B, C)
        done = pooled.add(pieces.texts[rows], scores.cpu().numpy())
        if advance and done:
            advance(done)
    counts = (one.tolist() for one in (pieces.tokens, pieces.unknown, pieces.beyond))
    return list(map(Read, pooled.scores, *counts))
