"""Entities in sequences of tags: where they begin and end, how they are scored, and which sequences can be.

Letters: T words, C tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np


class Span(NamedTuple):
    """An entity: its type, its first word, and the word behind its last, from 0."""

    kind: str
    start: int
    end: int


def is_entity_tag(tag: str) -> bool:
    """Whether a tag is O or a prefix of BIO or BIOES with a type behind it."""
    return tag == "O" or (len(tag) > 2 and tag[1] == "-" and tag[0] in "BIESLU")


def tags_entities(tags: Sequence[str]) -> bool:
    """Whether these tags mark entities, and not parts of speech: some of them, and O beside them alone."""
    return any(tag != "O" for tag in tags) and all(map(is_entity_tag, tags))


def spans(tags: Sequence[str]) -> list[Span]:
    """The entities of a sequence, as the conlleval script counts chunks: of BIO, IOB1 and BIOES (also BILOU) alike.

    One begins at B, S or U, at I or E behind another type, behind O or behind an end; it ends before one begins, before
    O, and at E, L, S or U.
    """
    found: list[Span] = []
    start, before = 0, ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-") if tag != "O" else ("O", "", "")
        if before[0] != "O" and (before[0] in "ESLU" or prefix in "OBSU" or kind != before[1]):
            found.append(Span(before[1], start, place))
            before = ("O", "")
        if prefix != "O" and before[0] == "O":
            start = place
        before = (prefix, kind)
    return found


def scheme_of(sentences: Iterable[Sequence[str]]) -> str:
    """BIO, IOB1 (B only where an entity follows another of its type), BIOES, or "plain" where tags mark no entities."""
    several = list(sentences)
    known = {tag for tags in several for tag in tags}
    if not tags_entities(sorted(known)):
        return "plain"
    if any(tag[:2] in ("E-", "S-", "L-", "U-") for tag in known):
        return "BIOES"
    opened = Counter(_opened(tags, one) for tags in several for one in spans(tags))
    return "IOB1" if opened["I"] and not opened["B"] else "BIO"


def _opened(tags: Sequence[str], span: Span) -> str:
    """I, B, or "needed" for a B that parts an entity from one of its type."""
    needed = span.start > 0 and tags[span.start - 1][2:] == span.kind
    return "needed" if needed else tags[span.start][0]


def as_bio(tags: Sequence[str]) -> tuple[str, ...]:
    """The same entities with B in front of each; tags of BIOES, and such as mark none, are left as they are."""
    if any(tag[:2] not in ("B-", "I-") and tag != "O" for tag in tags):
        return tuple(tags)
    opens = {span.start for span in spans(tags)}
    return tuple(f"B{tag[1:]}" if place in opens else tag for place, tag in enumerate(tags))


def entity_counts(sentences: Iterable[Sequence[str]]) -> dict[str, int]:
    """How many entities of each type, empty for tags that mark none."""
    several = list(sentences)
    if not tags_entities(sorted({tag for tags in several for tag in tags})):
        return {}
    return dict(Counter(span.kind for tags in several for span in spans(tags)).most_common())


class SpanScores(NamedTuple):
    """Precision, recall and F1 in percent, and what they are of: entities that are right, said, and there."""

    precision: float
    recall: float
    f1: float
    right: int
    said: int
    there: int


def scores(said: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> dict[str, SpanScores]:
    """Of all types together ("") and of each by itself. An entity is right when its type and both its ends are.

    Raises ValueError when sentences or their lengths differ.
    """
    met, predicted, there = Counter[str](), Counter[str](), Counter[str]()
    for ours, theirs in zip(said, right, strict=True):
        if len(ours) != len(theirs):
            raise ValueError(f"{len(ours)} tags were said of a sentence of {len(theirs)} words")
        a, b = set(spans(ours)), set(spans(theirs))
        met.update(span.kind for span in a & b)
        predicted.update(span.kind for span in a)
        there.update(span.kind for span in b)
    found = {"": _scored(met.total(), predicted.total(), there.total())}
    kinds = sorted(predicted.keys() | there.keys())
    return found | {kind: _scored(met[kind], predicted[kind], there[kind]) for kind in kinds}


def _scored(right: int, said: int, there: int) -> SpanScores:
    def share(part: int, whole: int) -> float:
        return 100.0 * part / whole if whole else 0.0

    return SpanScores(share(right, said), share(right, there), share(2 * right, said + there), right, said, there)


def allowed(tags: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which tag may begin (C,), follow another (C, C: row before column), and end a sentence (C,).

    I and E stand behind B or I of their type; with E among the tags (BIOES) B and I must go on.
    """
    closed = any(tag[:2] in ("E-", "L-") for tag in tags)
    inside = np.array([tag[:2] in ("I-", "E-", "L-") for tag in tags])
    opens = np.array([tag[:2] in ("B-", "I-") for tag in tags])
    same = np.array([[a[2:] == b[2:] for b in tags] for a in tags])
    goes_on = opens[:, None] & inside[None] & same  # (C, C)
    follows = goes_on | ~inside[None] & ~(closed & opens[:, None])
    return ~inside, follows, ~(closed & opens)


def best_sequence(log_probs: np.ndarray, rules: tuple[np.ndarray, np.ndarray, np.ndarray]) -> list[int]:
    """The most probable sequence that `rules` (of `allowed`) let be, of log-probabilities (T, C): Viterbi 1967."""
    begins, follows, ends = rules
    score = np.where(begins, log_probs[0], -np.inf)  # (C,)
    came: list[np.ndarray] = []
    for row in log_probs[1:]:
        ways = np.where(follows, score[:, None], -np.inf)  # (C, C)
        came.append(ways.argmax(0))
        score = ways.max(0) + row
    score = np.where(ends, score, -np.inf)
    best = [int(score.argmax() if np.isfinite(score).any() else log_probs[-1].argmax())]
    for back in reversed(came):
        best.append(int(back[best[-1]]))
    return best[::-1]
