"""Windows over long texts: every token is read, what is pooled is what the windows said."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.compact import Ids
from qkv.data.symbols import BOS, EOS, UNK
from qkv.tasks.windows import Items, Pieces, PooledScores, inputs_of, windows

sizes = st.integers(1, 20).flatmap(lambda window: st.tuples(st.just(window), st.integers(1, window)))
texts = st.lists(st.integers(UNK, 9), max_size=60)


@given(st.integers(0, 200), sizes)
def test_windows_cover_every_token_in_order_and_all_are_full(n_tokens, sizes):
    window, stride = sizes
    found = windows(n_tokens, window, stride)
    assert sorted({place for start, end in found for place in range(start, end)}) == list(range(n_tokens))
    assert {end - start for start, end in found} == {min(n_tokens, window)}
    starts = [start for start, _ in found]
    steps = np.diff(starts)
    assert all(0 < step <= stride for step in steps)
    assert all(step == stride for step in steps[:-1])


def test_a_text_that_fits_is_one_window_and_an_empty_one_too():
    assert windows(10, 10, 3) == [(0, 10)]
    assert windows(0, 10, 3) == [(0, 0)]
    assert windows(11, 10, 10) == [(0, 10), (1, 11)]


@pytest.mark.parametrize(("window", "stride"), [(0, 1), (4, 0), (4, 5), (4, -1)])
def test_windows_that_would_leave_tokens_out_are_refused(window, stride):
    with pytest.raises(ValueError, match=f"window {window} and stride {stride}"):
        windows(10, window, stride)


@given(st.lists(texts, min_size=1, max_size=5), st.integers(8, 30), st.integers(0, 8))
def test_pieces_of_single_texts_hold_all_their_tokens(several, window, stride):
    pieces = Pieces(Ids.of(several), None, window, stride)
    assert [len(ids) for ids, _ in pieces] == pieces.lengths.tolist()
    assert pieces.lengths.max() <= window
    assert not pieces.pairs
    for number, text in enumerate(several):
        own = [pieces[place][0] for place in np.flatnonzero(pieces.texts == number)]
        assert len(own) == pieces.counts[number]
        assert all(ids[0] == BOS for ids in own)
        spans = windows(len(text), window - 1, min(stride or window - 1 - (window - 1) // 4, window - 1))
        assert [ids[1:] for ids in own] == [text[start:end] for start, end in spans]
        assert pieces.tokens[number] == len(text)
        assert pieces.unknown[number] == text.count(UNK)
        assert pieces.beyond[number] == max(0, len(text) - (window - 1))


@given(texts, texts, st.integers(8, 30), st.integers(0, 8))
def test_windows_of_a_pair_hold_all_tokens_of_both_texts(first, second, window, stride):
    a, b = [10 + n for n in range(len(first))], [100 + n for n in range(len(second))]  # every token once
    pieces = Pieces(Ids.of([a]), Ids.of([b]), window, stride)
    read = [[], []]
    for ids, n_first in pieces:
        assert len(ids) <= window
        assert [ids[0], ids[n_first - 1], ids[-1]] == [BOS, EOS, EOS]
        read[0] += ids[1 : n_first - 1]
        read[1] += ids[n_first:-1]
    assert [sorted(set(one)) for one in read] == [a, b]
    assert pieces.lengths.tolist() == [len(ids) for ids, _ in pieces]
    assert (len(pieces) == 1) == (len(a) + len(b) <= window - 3)
    assert pieces.beyond[0] == len(a) + len(b) - (len(pieces[0][0]) - 3)


def test_the_shorter_text_of_a_pair_stays_whole_beside_every_window_of_the_longer():
    pieces = Pieces(Ids.of([list(range(10, 60))]), Ids.of([[4, 5, 6]]), 23, 0)
    assert len(pieces) > 1
    assert {tuple(ids[n_first:-1]) for ids, n_first in pieces} == {(4, 5, 6)}
    assert {n_first for _, n_first in pieces} == {19}


def test_the_first_window_alone_is_read_when_asked_and_what_is_beyond_is_still_counted():
    several = Ids.of([list(range(4, 34)), [4, 5]])
    every, first = Pieces(several, None, 11, 0), Pieces(several, None, 11, 0, only_first=True)
    assert list(first) == [every[0], every[len(every) - 1]]
    assert first.counts.tolist() == [1, 1]
    assert first.beyond.tolist() == every.beyond.tolist() == [20, 0]


def test_items_share_the_weight_of_their_example_and_may_come_again():
    pieces = Pieces(Ids.of([[4] * 30, [5, 6]]), None, 11, 0)
    items = Items(pieces, np.array([7, 8]), np.array([1, 0, 1]))
    assert [item.target for item in items] == [8, *[7] * int(pieces.counts[0]), 8]
    assert sum(item.weight for item in items) == pytest.approx(3.0)
    assert [len(item.piece[0]) for item in items] == items.lengths.tolist()
    assert items[-1] == items[0] == items[:1][0]
    assert len(items[1:]) == len(items) - 1


@pytest.mark.parametrize(("how", "reduce"), [("mean", np.mean), ("max", np.max), ("first", np.mean)])
def test_pooled_scores_do_not_depend_on_the_order_of_windows(how, reduce):
    counts = np.array([1, 4, 2])
    of = np.repeat(np.arange(3), counts)
    scores = np.random.default_rng(0).normal(size=(7, 5))
    order = np.random.default_rng(1).permutation(7)
    pooled = PooledScores(counts, 5, how)
    done = [pooled.add(of[some], scores[some]) for some in np.array_split(order, 3)]
    assert sum(done) == 3
    assert np.allclose(pooled.scores, [reduce(scores[of == text], axis=0) for text in range(3)])


def test_inputs_tell_real_tokens_and_segments():
    inputs = inputs_of([([BOS, 5, EOS, 6, 7, EOS], 3), ([BOS, EOS, 8, EOS], 2)], pairs=True)
    assert inputs["tokens"].tolist() == [[1, 5, 2, 6, 7, 2], [1, 2, 8, 2, 0, 0]]
    assert inputs["mask"].tolist() == [[True] * 6, [True] * 4 + [False] * 2]
    assert inputs["segments"].tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]]
    assert inputs["mask"].dtype == torch.bool
    assert "segments" not in inputs_of([([BOS, 5], 2)], pairs=False)
