"""A baseline that needs no network and no training loop, so that a model's score has something honest beside it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qkv.errors import UserError
from qkv.experiments.alignment import Symbols, align, thin

ALIGNED_CELLS = 20_000_000
"""Source symbols x target symbols that `fit` learns from, summed over pairs: some 20 s on one core."""

Row = tuple[tuple[list[int], list[int]], int]  # (ids of a padded source, of what its symbols say), the place meant


@dataclass(frozen=True)
class LetterContext:
    """Says for each source symbol what the training data say most often in the longest context they share with it.

    What a source symbol says (0 to 2 targets, found by `align`) is looked up by its neighbours, nearest first: one to
    the right, one to the left, what the one to the left has just said, two to the right, and so on. The longest such
    context with `min_count` occurrences decides, as in the trees of Daelemans & van den Bosch (1997). A source symbol
    that never occurred says nothing. Deterministic. `notes` are sentences on what was learned from and left out.
    """

    name = "longest known context"

    roots: dict[int, Context]
    source_ids: dict[str, int]
    chunks: list[Symbols]
    order: list[tuple[int, int]]
    notes: list[str]

    @classmethod
    def fit(
        cls, pairs: Sequence[tuple[Symbols, Symbols]], *, window: int = 4, past: int = 2, min_count: int = 1
    ) -> LetterContext:
        """Learns from pairs of source and target symbols; of very many, from an even sample.

        window     neighbours looked at on either side
        past       how many of the left neighbours are looked at for what they said, too
        min_count  occurrences that a context needs

        Raises UserError when no example can be aligned.
        """
        sample = [pairs[i] for i in thin(pairs, ALIGNED_CELLS)]
        aligned = [(source, said) for (source, _), said in zip(sample, align(sample), strict=True) if said is not None]
        if not aligned:
            raise UserError(f"none of {len(pairs)} pairs has at most two targets for each source symbol: no baseline")
        order: list[tuple[int, int]] = []
        for distance in range(1, window + 1):
            order += [(0, distance), (0, -distance), *([(1, -distance)] if distance <= past else [])]
        source_ids: dict[str, int] = {}
        chunk_ids: dict[Symbols, int] = {(): 0}
        rows: dict[int, list[Row]] = defaultdict(list)
        for source, said in aligned:
            line = _padded((source_ids.setdefault(symbol, len(source_ids) + 1) for symbol in source), window, edge=0)
            chunks = _padded((chunk_ids.setdefault(chunk, len(chunk_ids)) for chunk in said), window, edge=-1)
            for place in range(window, window + len(source)):
                rows[line[place]].append(((line, chunks), place))
        roots = {symbol: _grow(some, order, min_count) for symbol, some in rows.items()}
        return cls(roots, source_ids, list(chunk_ids), order, _notes(len(pairs), len(sample), len(aligned)))

    def predict(self, source: Sequence[str]) -> list[str]:
        """The target symbols for the source symbols."""
        window = max((distance for _, distance in self.order), default=0)
        line = _padded((self.source_ids.get(symbol, -1) for symbol in source), window, edge=0)
        said = [-1] * window
        for place in range(window, window + len(source)):
            said.append(self._say(((line, said), place)))
        return [symbol for chunk in said[window:] for symbol in self.chunks[chunk]]

    def _say(self, row: Row) -> int:
        lines, place = row
        context = self.roots.get(lines[0][place])
        if context is None:
            return 0
        for which, distance in self.order:
            longer = context.longer.get(lines[which][place + distance])
            if longer is None:
                break
            context = longer
        return context.chunk


@dataclass(slots=True)
class Context:
    """What is said most often in one context, and the contexts that are one symbol longer."""

    chunk: int
    longer: dict[int, Context]


def _grow(rows: list[Row], order: list[tuple[int, int]], min_count: int) -> Context:
    counts = Counter([chunks[place] for (_, chunks), place in rows])
    context = Context(min(counts, key=lambda chunk: (-counts[chunk], chunk)), {})
    if len(counts) > 1 and order:  # where all rows agree, longer contexts would only repeat it
        which, distance = order[0]
        parts: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            parts[row[0][which][row[1] + distance]].append(row)
        context.longer = {
            symbol: _grow(part, order[1:], min_count) for symbol, part in parts.items() if len(part) >= min_count
        }
    return context


def _padded(ids: Iterable[int], window: int, *, edge: int) -> list[int]:
    return [edge] * window + list(ids) + [edge] * window


def _notes(n_pairs: int, n_sample: int, n_aligned: int) -> list[str]:
    notes = [f"Learned from {n_aligned:,} of {n_pairs:,} pairs."]
    if n_aligned < n_sample:
        notes.append(f"{n_sample - n_aligned:,} were left out: more than two targets for each source symbol.")
    if n_sample < n_pairs:
        notes.append(f"An even sample of {n_sample:,} keeps the time short.")
    return notes
