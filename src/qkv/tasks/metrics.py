"""Edit-distance metrics, defined once."""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein


def error_rates(outputs: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> dict[str, float]:
    """Sequence and symbol errors in percent, each output against the nearest of its references.

    wer  outputs that equal no reference, per output (for words to phonemes: the word error rate)
    per  edits (insert, delete, replace) to the nearest reference, summed, per symbol of those references; between
         equally near references the longest counts

    Raises ValueError when the two differ in length, when there is nothing to score, or when an output has no reference.
    """
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs and {len(references)} sets of references")
    if not outputs or any(not several for several in references):
        raise ValueError("error rates need at least one output, and at least one reference for each")
    wrong = edits = symbols = 0
    for output, several in zip(outputs, references, strict=True):
        distance, length = min((Levenshtein.distance(output, one), -len(one)) for one in several)
        wrong += distance > 0
        edits += distance
        symbols -= length
    return {"wer": 100.0 * wrong / len(outputs), "per": 100.0 * edits / max(symbols, 1)}
