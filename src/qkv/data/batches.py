"""Batches of examples of like length, and padding them to rectangles.

Shape letters: B rows of the batch, T the longest row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from qkv.errors import UserError


def length_batches(
    lengths: Sequence[tuple[int, int]], budget: int, seed: int, epoch: int, shuffle: bool = True
) -> list[list[int]]:
    """Lists of example indices, each a batch of at most `budget` padded tokens; every index occurs exactly once.

    `lengths` gives each example's (source, target) length in tokens. A batch of n rows costs
    n * (longest source + longest target); an example that alone exceeds the budget makes a batch of its own.
    Which examples of equal length meet, and the order of the batches, depend on (seed, epoch) only. With
    `shuffle=False` equal lengths stay in the given order and batches run from short to long.

    Raises UserError for a budget below 1 or a negative seed or epoch.
    """
    if budget < 1:
        raise UserError(f"the token budget of a batch is {budget}; it must be at least 1 (4096 is usual).")
    if seed < 0 or epoch < 0:
        raise UserError(f"seed {seed} and epoch {epoch} must not be negative.")
    if not len(lengths):
        return []
    # Far quicker than numpy's own way from a list of tuples.
    source, target = np.fromiter(chain.from_iterable(lengths), dtype=np.int64, count=2 * len(lengths)).reshape(-1, 2).T
    generator = np.random.default_rng([seed, epoch])
    start = generator.permutation(len(source)) if shuffle else np.arange(len(source))
    order = start[_by_length(source[start], target[start])]
    batches = _cut(order, source[order], target[order], budget)
    if shuffle:
        batches = [batches[i] for i in generator.permutation(len(batches)).tolist()]
    return batches


def _by_length(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    # Targets run up for one source length and down for the next: a batch that spans two source lengths then
    # holds neighbours in both. Ties keep their order, since lexsort is stable.
    rising = np.where(source % 2 == 0, target, -target)
    return np.lexsort((rising, source))


def _cut(order: np.ndarray, source: np.ndarray, target: np.ndarray, budget: int) -> list[list[int]]:
    batches: list[list[int]] = []
    begin = 0
    while begin < len(order):
        # As many rows as could fit were all of them as short as the first, and one more.
        most = begin + budget // max(1, int(source[begin] + target[begin])) + 1
        longest = np.maximum.accumulate(source[begin:most]) + np.maximum.accumulate(target[begin:most])
        fitting = int(np.searchsorted(longest * np.arange(1, len(longest) + 1), budget, side="right"))
        end = begin + max(1, fitting)
        batches.append(order[begin:end].tolist())
        begin = end
    return batches


def pad(rows: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of ids, padded on the right: (ids (B, T) long, mask (B, T) bool), True = a real id, not padding."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    longest = int(lengths.max(initial=0))
    mask = np.arange(longest) < lengths[:, None]  # (B, T)
    ids = np.full((len(rows), longest), pad_id, dtype=np.int64)
    ids[mask] = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
    return torch.from_numpy(ids), torch.from_numpy(mask)
