import itertools
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.errors import UserError
from qkv.experiments import alignment, baselines
from qkv.experiments.alignment import align, thin
from qkv.experiments.baselines import LetterContext


def example(source, *targets):
    """The pairs of source and target symbols that a word with these targets makes."""
    return [(tuple(source), tuple(target.split())) for target in targets]


SHIP = [("ship", "SH IH P"), ("hip", "H IH P"), ("sip", "S IH P"), ("pish", "P IH SH"), ("his", "H IH S")]
PAIRS = [(tuple(source), tuple(target.split())) for source, target in SHIP]


def test_alignment_finds_what_each_letter_says():
    found = dict(zip((source for source, _ in SHIP), align(PAIRS * 3), strict=False))
    assert found["hip"] == [("H",), ("IH",), ("P",)]
    # Two letters say SH together: one says it, the other nothing.
    assert sorted(map(len, found["ship"])) == [0, 1, 1, 1]
    assert found["ship"][2:] == [("IH",), ("P",)]


def test_one_letter_may_say_two_symbols():
    pairs = [("ax", "AE K S"), ("ox", "AA K S"), ("a", "AE"), ("o", "AA"), ("xa", "K S AE"), ("ko", "K AA")]
    found = align([(tuple(source), tuple(target.split())) for source, target in pairs])
    assert found[0] == [("AE",), ("K", "S")]
    assert found[4] == [("K", "S"), ("AE",)]


symbols = st.text("abc", max_size=5).map(tuple)


@given(st.lists(st.tuples(symbols, symbols), max_size=12))
def test_chunks_put_together_are_the_target(pairs):
    for (source, target), chunks in zip(pairs, align(pairs), strict=True):
        if chunks is None:
            assert not source or len(target) > 2 * len(source)
        else:
            assert [len(chunk) <= 2 for chunk in chunks] == [True] * len(source)
            assert tuple(itertools.chain(*chunks)) == target


def test_blocks_and_samples_change_the_cost_only(monkeypatch):
    whole = align(PAIRS)
    monkeypatch.setattr(alignment, "BLOCK_CELLS", 1)
    assert align(PAIRS) == whole
    assert list(thin(PAIRS, 10**6)) == [0, 1, 2, 3, 4]
    cells = sum(len(source) * len(target) for source, target in PAIRS)
    assert list(thin(PAIRS, cells - 1)) == [0, 2, 4]
    monkeypatch.setattr(alignment, "LEARNING_CELLS", 10)
    assert [chunks is not None for chunks in align(PAIRS)] == [True] * 5


def test_long_pairs_do_not_underflow():
    # Nearly every symbol must say two: paths that end elsewhere outweigh those by hundreds of orders of magnitude.
    pairs = [(("a",) * 400, ("b",) * 799), *[(("a",), ("b",))] * 50]
    found = align(pairs)
    assert found[0] is not None
    assert sorted(map(len, found[0])) == [1] + [2] * 399


# Words of one letter leave the alignment of longer ones no choice.
ONE_EACH = [
    pair for two in ("a1", "b2", "d3", "e4", "c8", "c9", "pP", "rR", "qQ", "x1", "x2") for pair in example(*two)
]


def test_the_longest_known_context_decides():
    train = [*ONE_EACH, *example("ac", "1 9", "1 9"), *example("bc", "2 8"), *example("dc", "3 8")]
    model = LetterContext.fit([*train, *example("ec", "4 8")])
    assert model.predict("ac") == ["1", "9"]
    assert model.predict("bc") == ["2", "8"]
    # c was at the end of a word with 8 four times, with 9 three times, and never behind another c or an x.
    assert model.predict("xc")[1:] == ["8"]


def test_a_context_needs_its_occurrences():
    train = [*ONE_EACH, *example("bc", *["2 8"] * 5), *example("ac", "1 9")]
    assert LetterContext.fit(train).predict("ac") == ["1", "9"]
    assert LetterContext.fit(train, min_count=2).predict("ac") == ["1", "8"]


def test_what_was_just_said_is_context():
    # The letters beside the second x are the same in both: only what the first x said tells what it says.
    train = [*ONE_EACH, *example("pxxq", "P 1 1 Q"), *example("rxxq", "R 2 2 Q")]
    assert LetterContext.fit(train, window=1, past=1).predict("rxxq") == ["R", "2", "2", "Q"]
    assert LetterContext.fit(train, window=1, past=0).predict("rxxq") == ["R", "2", "1", "Q"]


def test_every_target_is_learned_from_and_ties_go_to_the_first():
    assert LetterContext.fit(example("a", "1", "2")).predict("a") == ["1"]
    assert LetterContext.fit(example("a", "1", "2", "2")).predict("a") == ["2"]


def test_unknown_and_missing_symbols():
    model = LetterContext.fit(PAIRS)
    assert model.predict("") == []
    assert model.predict("zhipz") == ["H", "IH", "P"]


def test_what_was_left_out_is_said(monkeypatch):
    train = [*example("ab", "1 2"), *example("a", "1 1 1"), *example("b", "2")]
    assert LetterContext.fit(train).notes == [
        "Learned from 2 of 3 pairs.",
        "1 were left out: more than two targets for each source symbol.",
    ]
    monkeypatch.setattr(baselines, "ALIGNED_CELLS", 4)
    assert LetterContext.fit(train).notes[-1] == "An even sample of 2 keeps the time short."
    with pytest.raises(UserError, match="none of 1 pairs has at most two targets"):
        LetterContext.fit(example("a", "1 1 1"))
    with pytest.raises(UserError, match="none of 0 pairs"):
        LetterContext.fit([])


def made_up(seed, n_words):
    """A language with a rule for each letter: c depends on the next letter, e at the end is silent, x says two."""
    rules = {"a": "A", "b": "B", "d": "D", "i": "I", "x": "K S", "n": "N", "t": "T", "o": "O"}
    words, draw = [], random.Random(seed)
    for _ in range(n_words):
        word = "".join(draw.choices("abcdeinotx", k=draw.randint(2, 9)))
        said = []
        for place, letter in enumerate(word):
            if letter == "c":
                said += "S" if word[place + 1 : place + 2] in ("e", "i") else "K"
            elif letter == "e":
                said += "E" if place + 1 < len(word) else ""
            else:
                said += rules[letter].split()
        words += example(word, " ".join(said))
    return words


def test_rules_of_context_are_learned_and_the_result_is_the_same_each_time():
    train, unseen = made_up(0, 3000), made_up(1, 300)
    model, again = LetterContext.fit(train), LetterContext.fit(train)
    right = sum(tuple(model.predict(source)) == target for source, target in unseen)
    assert right >= 0.98 * len(unseen)
    assert [model.predict(source) for source, _ in unseen] == [again.predict(source) for source, _ in unseen]


@pytest.mark.slow
def test_a_hundred_thousand_words_take_seconds():
    train = made_up(0, 100_000)
    begin = time.process_time()
    LetterContext.fit(train)
    assert time.process_time() - begin < 40
