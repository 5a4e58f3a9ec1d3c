"""Which target symbols each source symbol says, learned from pairs of sequences alone.

Letters: N pairs of one size, n source symbols, m target symbols, k targets that one source symbol says, U units.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

Symbols = tuple[str, ...]
Pair = tuple[Symbols, Symbols]

# For k = 0, 1, 2 (m at most): (N, n, m + 1 - k), the unit of source symbol i saying targets[j : j + k].
Units = list[np.ndarray]

# Source symbols x target symbols, summed over pairs; the pronouncing dictionary has 6 million.
LEARNING_CELLS, BLOCK_CELLS = 1_000_000, 500_000
FLOOR = 1e-12  # probability of a unit that learning has not seen
TINY = float(np.finfo(float).tiny)


def align(pairs: Sequence[Pair], *, rounds: int = 5) -> list[list[Symbols] | None]:
    """For each pair, what each of its source symbols says: n chunks of 0, 1 or 2 targets, in order.

    Learns the probabilities of units (source symbol, chunk) by expectation-maximisation from uniform ones, as in the
    joint-sequence models of Bisani & Ney (2008, section 3) with one source symbol a unit, on an even sample of the
    pairs; then takes the most probable alignment of each. None for a pair with more than 2 n targets or no source.
    """
    found: list[list[Symbols] | None] = [None] * len(pairs)
    fitting = [i for i, (source, target) in enumerate(pairs) if source and len(target) <= 2 * len(source)]
    if not fitting:
        return found
    codes = _Codes(pairs)
    learning = [fitting[i] for i in thin([pairs[i] for i in fitting], LEARNING_CELLS)]
    sample = [codes.units(sources, targets) for sources, targets, _ in codes.blocks(learning)]
    known = np.unique(np.concatenate([part.ravel() for units in sample for part in units]))  # (U,)
    sample = [_places(known, units) for units in sample]
    probability = np.full(len(known), 1.0 / len(known))
    for _ in range(rounds):
        counts = np.zeros(len(known))
        for units in sample:
            _expect(units, probability, counts)
        probability = counts / counts.sum()
    scores = np.log(np.maximum(np.append(probability, 0.0), FLOOR))  # (U + 1,), the last one for unknown units
    for sources, targets, rows in codes.blocks(fitting):
        widths = _best_path([scores[part] for part in _places(known, codes.units(sources, targets))])
        for row, ends in zip(rows, widths.cumsum(1).tolist(), strict=True):
            target = pairs[row][1]
            found[row] = [target[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    return found


def thin(pairs: Sequence[Pair], cells: int) -> range:
    """An even sample of the places of `pairs`, all of them if they have at most `cells` source x target symbols."""
    total = sum(len(source) * len(target) for source, target in pairs)
    return range(0, len(pairs), max(1, -(-total // cells)))


def _expect(units: Units, probability: np.ndarray, counts: np.ndarray) -> None:
    """Adds to `counts` (U,) how often each unit is expected in N pairs: forward-backward, scaled at each symbol."""
    given = [probability[part] for part in units]
    n_pairs, n, ends = given[0].shape  # ends = m + 1
    forward = np.zeros((n + 1, n_pairs, ends))
    forward[0, :, 0] = 1.0
    for i in range(n):
        for k, part in enumerate(given):
            forward[i + 1, :, k:] += forward[i, :, : ends - k] * part[:, i]
        forward[i + 1] /= np.maximum(forward[i + 1].sum(1, keepdims=True), TINY)
    backward = np.zeros((n_pairs, ends))
    backward[:, -1] = 1.0
    for i in reversed(range(n)):
        onward = [part[:, i] * backward[:, k:] for k, part in enumerate(given)]  # k: (N, m + 1 - k)
        expected = [forward[i, :, : ends - k] * part for k, part in enumerate(onward)]
        total = np.maximum(sum(part.sum(1) for part in expected), TINY)
        for unit, part in zip(units, expected, strict=True):
            np.add.at(counts, unit[:, i], part / total[:, None])
        backward = np.zeros((n_pairs, ends))
        for k, part in enumerate(onward):
            backward[:, : ends - k] += part
        backward /= np.maximum(backward.sum(1, keepdims=True), TINY)


def _best_path(scores: list[np.ndarray]) -> np.ndarray:
    """How many targets each source symbol says, (N, n), on the path with the largest sum of scores (Viterbi)."""
    n_pairs, n, ends = scores[0].shape
    best = np.full((n_pairs, ends), -np.inf)
    best[:, 0] = 0.0
    choice = np.zeros((n, n_pairs, ends), dtype=np.int8)
    for i in range(n):
        reached = np.full((len(scores), n_pairs, ends), -np.inf)
        for k, part in enumerate(scores):
            reached[k, :, k:] = best[:, : ends - k] + part[:, i]
        choice[i], best = reached.argmax(0), reached.max(0)
    widths = np.zeros((n_pairs, n), dtype=np.int64)
    end, every = np.full(n_pairs, ends - 1), np.arange(n_pairs)
    for i in reversed(range(n)):
        widths[:, i] = choice[i, every, end]
        end = end - widths[:, i]
    return widths


def _places(known: np.ndarray, units: Units) -> Units:
    """Where in `known` (U,), sorted, each unit is; U for one that isn't there."""
    places: Units = []
    for part in units:
        place = np.minimum(np.searchsorted(known, part), len(known) - 1)
        places.append(np.where(known[place] == part, place, len(known)))
    return places


class _Codes:
    """Units as numbers: source symbol, first and second target symbol are the digits of one int64 (0: no symbol)."""

    def __init__(self, pairs: Sequence[Pair]):
        sources: dict[str, int] = {}
        targets: dict[str, int] = {}
        self.rows = [
            (
                [sources.setdefault(symbol, len(sources)) for symbol in source],
                [targets.setdefault(symbol, len(targets) + 1) for symbol in target],
            )
            for source, target in pairs
        ]
        self.base = len(targets) + 1

    def blocks(self, chosen: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray, list[int]]]:
        """Pairs of one size together: sources (N, n), targets (N, m), and which pairs they are."""
        sizes: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i in chosen:
            source, target = self.rows[i]
            sizes[len(source), len(target)].append(i)
        for (n, m), rows in sizes.items():
            step = max(1, BLOCK_CELLS // (n * (m + 1)))
            for some in (rows[begin : begin + step] for begin in range(0, len(rows), step)):
                sources = np.array([self.rows[i][0] for i in some], dtype=np.int64)
                targets = np.array([self.rows[i][1] for i in some], dtype=np.int64).reshape(len(some), m)
                yield sources, targets, some

    def units(self, sources: np.ndarray, targets: np.ndarray) -> Units:
        """The units of N pairs, sources (N, n) and targets (N, m)."""
        n_pairs, m = targets.shape
        one = targets * self.base
        chunks = [np.zeros((n_pairs, m + 1), dtype=np.int64), one, one[:, :-1] + targets[:, 1:]]
        whole = sources[:, :, None] * self.base**2  # (N, n, 1)
        return [whole + chunk[:, None, :] for chunk in chunks[: m + 1]]  # (N, n, m + 1 - k)
