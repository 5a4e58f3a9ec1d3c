"""Data in numbers: sizes, lengths, symbols, examples, as plain values that fit JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from qkv.data.ids import learn
from qkv.data.pairs import Example, Pairs, SymbolKind
from qkv.data.texts import Texts


def pairs_in_numbers(pairs: Pairs) -> dict[str, Any]:
    """What a person wants to know of pairs.

    Keys: notes, fingerprint; examples (per split and in all), several_targets (examples with more than one right
    target), length (of source and of the first target: mean, longest), symbols (of source and target: how often each
    occurs, most frequent first; every target counts), shown (five examples spread over the training split).
    """
    examples = [example for split in pairs.splits.values() for example in split]
    source, source_lengths = count_symbols(([e.source] for e in examples), pairs.source_symbols)
    target, target_lengths = count_symbols((e.targets for e in examples), pairs.target_symbols)
    return {
        "notes": pairs.notes,
        "fingerprint": pairs.fingerprint,
        "examples": {"all": len(examples), **{split: len(part) for split, part in pairs.splits.items()}},
        "several_targets": sum(len(example.targets) > 1 for example in examples),
        "length": {"source": _lengths(source_lengths), "target": _lengths(target_lengths)},
        "symbols": {"source": source, "target": target},
        "shown": [_shown(example) for example in pairs.train[:: max(1, len(pairs.train) // 5)][:5]],
    }


def texts_in_numbers(data: Texts) -> dict[str, Any]:
    """What a person wants to know of labelled texts.

    Keys: notes, fingerprint; examples (per split and in all), labels (how often each occurs in train, most frequent
    first), length (mean and longest, in words of tagged sentences, else in characters), shown (five examples).
    """
    every: list[Any] = [example for split in data.splits.values() for example in split]
    tagged = data.task == "tagging"
    counts = Counter(label for example in data.train for label in (example.tags if tagged else example.labels))
    lengths = [len(example.words) if tagged else len(example.text) + len(example.second) for example in every]
    shown: Sequence[Any] = data.train[:: max(1, len(data.train) // 5)][:5]
    return {
        "notes": data.notes,
        "fingerprint": data.fingerprint,
        "examples": {"all": len(every), **{split: len(part) for split, part in data.splits.items()}},
        "labels": dict(counts.most_common()),
        "length": _lengths(lengths),
        "shown": [
            {"text": " ".join(e.words), "labels": list(e.tags)}
            if tagged
            else {"text": e.text, "labels": list(e.labels)}
            for e in shown
        ],
    }


def count_symbols(groups: Iterable[Sequence[str]], kind: SymbolKind) -> tuple[dict[str, int], list[int]]:
    """How often each symbol occurs, most frequent first, and the length in symbols of the first text of each group."""
    kept = [list(group) for group in groups]
    split = learn((text for group in kept for text in group), kind).split
    counts: Counter[str] = Counter()
    lengths: list[int] = []
    for group in kept:
        for number, text in enumerate(group):
            symbols = split(text)
            counts.update(symbols)
            if number == 0:
                lengths.append(len(symbols))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))), lengths


def _lengths(lengths: list[int]) -> dict[str, float]:
    return {"mean": sum(lengths) / max(1, len(lengths)), "longest": max(lengths, default=0)}


def _shown(example: Example) -> dict[str, Any]:
    return {"text": example.source, "targets": list(example.targets)}
