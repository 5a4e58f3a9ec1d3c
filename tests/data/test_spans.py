"""Entities in tags: counted as conlleval counts them, and only sequences that can be."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities

from qkv.data.spans import (
    Span,
    allowed,
    as_bio,
    best_sequence,
    entity_counts,
    scheme_of,
    scores,
    spans,
    tags_entities,
)

TAGS = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC"))]
BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("I-PER I-PER O I-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("I-PER B-PER I-LOC", [("PER", 0, 1), ("PER", 1, 2), ("LOC", 2, 3)]),
        ("B-PER E-PER S-LOC O", [("PER", 0, 2), ("LOC", 2, 3)]),
        ("O O", []),
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("B-PER", [("PER", 0, 1)]),
    ],
)
def test_spans_of_every_scheme(tags, expected):
    assert spans(tags.split()) == [Span(*one) for one in expected]


@given(st.lists(st.sampled_from(TAGS), max_size=12))
def test_spans_are_those_of_a_published_implementation(tags):
    assert [tuple(one) for one in spans(tags)] == [(kind, start, end + 1) for kind, start, end in get_entities(tags)]


sentences = st.lists(
    st.integers(1, 8).flatmap(lambda n: st.tuples(*[st.lists(st.sampled_from(BIO), min_size=n, max_size=n)] * 2)),
    min_size=1,
    max_size=6,
)


@given(sentences)
@pytest.mark.filterwarnings("ignore")
def test_scores_are_those_of_a_published_implementation(pairs):
    said, right = [a for a, _ in pairs], [b for _, b in pairs]
    found = scores(said, right)
    if not any(spans(tags) for tags in right):
        assert found[""].there == 0
        return
    report = classification_report(right, said, output_dict=True, zero_division=0)
    for name, kind in (("micro avg", ""), ("PER", "PER"), ("LOC", "LOC")):
        if name in report:
            theirs = report[name]
            ours = found[kind]
            assert ours.precision == pytest.approx(100 * theirs["precision"])
            assert ours.recall == pytest.approx(100 * theirs["recall"])
            assert ours.f1 == pytest.approx(100 * theirs["f1-score"])
            assert ours.there == theirs["support"]


def test_a_sentence_of_another_length_is_refused():
    with pytest.raises(ValueError, match="2 tags were said of a sentence of 1 words"):
        scores([["O", "O"]], [["O"]])


@pytest.mark.parametrize("tags", [BIO, TAGS], ids=["BIO", "BIOES"])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_the_best_sequence_is_the_best_of_all_that_can_be(tags, length):
    rules = allowed(tags)
    begins, follows, ends = rules

    def can_be(way):
        inside = all(follows[a, b] for a, b in itertools.pairwise(way))
        return begins[way[0]] and inside and ends[way[-1]]

    draw = np.random.default_rng(length)
    ways = [way for way in itertools.product(range(len(tags)), repeat=length) if can_be(way)]
    for _ in range(20):
        log_probs = draw.normal(size=(length, len(tags)))
        best = max(ways, key=lambda way: sum(log_probs[t, tag] for t, tag in enumerate(way)))
        assert best_sequence(log_probs, rules) == list(best)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-A O I-B B-B I-B", "B-A I-A O B-B B-B I-B"),
        ("B-A I-B I-B", "B-A B-B I-B"),
        ("B-A I-A O", "B-A I-A O"),
        ("S-A O B-A E-A", "S-A O B-A E-A"),
        ("NN VB", "NN VB"),
    ],
)
def test_entities_stay_the_same_with_b_in_front(tags, expected):
    assert as_bio(tags.split()) == tuple(expected.split())
    assert spans(tags.split()) == spans(expected.split())


def test_rules_of_bio_and_bioes():
    def follows(tags, a, b):
        return bool(allowed(tags)[1][tags.index(a), tags.index(b)])

    assert follows(BIO, "B-PER", "I-PER")
    assert not follows(BIO, "B-PER", "I-LOC")
    assert not follows(BIO, "O", "I-PER")
    assert follows(BIO, "B-PER", "O")
    assert not follows(TAGS, "B-PER", "O")
    assert follows(TAGS, "I-PER", "E-PER")
    assert not follows(TAGS, "E-PER", "I-PER")
    assert not allowed(TAGS)[2][TAGS.index("B-PER")]


def test_schemes_and_counts():
    assert scheme_of([["B-PER", "I-PER", "O"]]) == "BIO"
    assert scheme_of([["I-PER", "I-PER", "B-PER", "O"], ["I-LOC", "I-PER"]]) == "IOB1"
    assert scheme_of([["I-PER", "O"], ["B-PER", "O"]]) == "BIO"
    assert scheme_of([["S-PER", "O"]]) == "BIOES"
    assert scheme_of([["NN", "VB"]]) == "plain"
    assert not tags_entities(["O", "NN"])
    assert not tags_entities(["O"])
    assert entity_counts([["B-PER", "I-PER", "O"], ["B-LOC", "B-LOC"]]) == {"LOC": 2, "PER": 1}
    assert entity_counts([["NN", "VB"]]) == {}
