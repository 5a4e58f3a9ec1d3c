import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.errors import UserError
from qkv.generation.beam import _best, beam
from qkv.generation.greedy import greedy

SOURCES = [[3, 1], [5], [2, 2, 7], [8, 8, 8, 8], [1]]


def search(toys, model, sources, prompts=None, **options):
    return beam(model, toys.batch(sources, prompts), bos=toys.BOS, eos=toys.EOS, **options)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.5, -0.7])
@pytest.mark.parametrize("max_length", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_as_wide_as_all_outputs_is_exhaustive_search(toys, seed, max_length, alpha):
    model = toys.Chain(seed, sharpness=1.0 + seed)
    found = search(toys, model, SOURCES, max_length=max_length, beam=4**max_length, length_penalty=alpha, n_best=4)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        wanted = toys.exhaustive(model, source, max_length=max_length, alpha=alpha, n_best=4)
        toys.same(hypotheses, wanted)


@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 6),
    data=st.data(),
    max_length=st.integers(1, 9),
    alpha=st.sampled_from([0.0, 0.5, 1.0, 1.7, -1.0]),
    sharpness=st.sampled_from([0.5, 2.0, 5.0]),
    vocabulary=st.integers(3, 8),
    forbidden=st.sampled_from([0.0, 0.3, 0.6]),
)
def test_stopping_early_and_batching_change_nothing(
    toys, seed, width, data, max_length, alpha, sharpness, vocabulary, forbidden
):
    model = toys.Chain(seed, vocabulary, sharpness, forbidden)
    n_best = data.draw(st.integers(1, width))
    options = {"max_length": max_length, "n_best": n_best}
    found = search(toys, model, SOURCES, beam=width, length_penalty=alpha, **options)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        toys.same(hypotheses, toys.reference(model, source, alpha=alpha, width=width, **options))


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0, -1.0])
def test_a_beam_of_one_is_greedy(toys, alpha):
    for seed in range(5):
        model, inputs = toys.Chain(seed, vocabulary=6), toys.batch(SOURCES)
        limits = {"bos": toys.BOS, "eos": toys.EOS, "max_length": 8}
        wanted = greedy(model, inputs, **limits)
        found = beam(model, inputs, **limits, beam=1, length_penalty=alpha)
        for (one,), greedy_one in zip(found, wanted, strict=True):
            assert (one.tokens, one.finished) == (greedy_one.tokens, greedy_one.finished)
            assert one.log_prob == pytest.approx(greedy_one.log_prob, abs=1e-5)


@given(seed=st.integers(0, 10**6), order=st.permutations(range(12)), kept=st.integers(1, 12))
def test_a_row_does_not_depend_on_the_others(toys, seed, order, kept):
    model = toys.Chain(seed, vocabulary=5)
    sources = [[i % 9, (3 * i) % 7, i] for i in range(12)]
    options = {"max_length": 7, "beam": 3, "n_best": 2}
    everywhere = search(toys, model, sources, **options)
    some = order[:kept]
    for row, found in zip(some, search(toys, model, [sources[row] for row in some], **options), strict=True):
        toys.same(found, everywhere[row])


def test_length_is_what_was_generated_and_never_the_prompt(toys):
    # L01: a chain whose every symbol has the same log-probability scores every length alike, whatever the prompt.
    model = toys.Chain(0)
    model.table = torch.full_like(model.table, math.log(0.25))
    for prompt in ([toys.BOS], [toys.BOS, 3, 3, 3, 3, 3, 3]):
        (found,) = search(toys, model, [[4]], [prompt], max_length=4, beam=64, n_best=64, length_penalty=1.0)
        assert {len(h.tokens) + h.finished for h in found} == {1, 2, 3, 4}
        assert [h.score for h in found] == pytest.approx([math.log(0.25)] * 64, abs=1e-5)


class FirstOrder:
    """A table of log-probabilities of a symbol after the one before it."""

    def __init__(self, table):
        self.table = torch.as_tensor(table, dtype=torch.float64)

    def prefill(self, inputs):
        return self.step(inputs["target"][:, -1], None)

    def step(self, tokens, state):
        return self.table[tokens].log().float(), state


def test_search_goes_on_while_a_longer_hypothesis_can_still_win(toys):
    # L02: 1 -> eos has probability 0.50 in one step; 1 -> 3 -> 0 -> eos has 0.48 in three, a better mean.
    table = [[0.02, 0.0, 0.98, 0.0], [0.01, 0.0, 0.50, 0.49], [0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]]
    limits = {"bos": toys.BOS, "eos": toys.EOS, "max_length": 4, "beam": 2}
    inputs = toys.batch([[4]])
    ((by_mean,),) = beam(FirstOrder(table), inputs, **limits, length_penalty=1.0)
    ((by_sum,),) = beam(FirstOrder(table), inputs, **limits, length_penalty=0.0)
    assert by_mean.tokens == [3, 0]
    assert by_mean.log_prob == pytest.approx(math.log(0.49 * 0.98), abs=1e-5)
    assert by_mean.score == pytest.approx(by_mean.log_prob / 3, abs=1e-5)
    assert by_sum.tokens == []
    assert by_sum.score == pytest.approx(math.log(0.50), abs=1e-5)


def test_search_stops_when_nothing_live_can_win(toys):
    # eos comes first with 0.9: without a length penalty no other output can reach it, however long the limit.
    model = toys.Chain(0, vocabulary=5)
    model.table = torch.tensor([0.025, 0.025, 0.9, 0.025, 0.025]).double().log().expand_as(model.table)
    search(toys, model, SOURCES, max_length=1000, beam=4, length_penalty=0.0)
    assert len(model.widths) == 1
    # By the mean, one symbol at 0.025 could still win within 60 symbols, two could not: 2 log(0.025) / 60 < log(0.9).
    model.widths.clear()
    search(toys, model, SOURCES, max_length=60, beam=10, length_penalty=1.0)
    assert len(model.widths) == 2


def test_finished_rows_leave_the_batch_and_wait_for_no_other(toys):
    # L03: row 0 says eos at once, row 1 never does.
    class Rows:
        def prefill(self, inputs):
            return self.step(inputs["target"][:, -1], inputs["source"][:, 0])

        def step(self, tokens, state):
            widths.append(len(tokens))
            logits = torch.zeros(len(tokens), 4)
            logits[:, toys.EOS] = torch.where(state == 0, 50.0, -50.0)
            return logits, state

    widths: list[int] = []
    found = beam(Rows(), toys.batch([[0], [7]]), bos=toys.BOS, eos=toys.EOS, max_length=6, beam=3, length_penalty=0.0)
    assert widths == [2, 3, 3, 3, 3, 3]
    assert [(len(h.tokens), h.finished) for (h,) in found] == [(0, True), (6, False)]


def test_hypotheses_are_distinct_and_best_first(toys):
    model = toys.Chain(3, vocabulary=6, sharpness=1.0)
    for hypotheses in search(toys, model, SOURCES, max_length=6, beam=20, n_best=20):
        assert len({tuple(h.tokens) for h in hypotheses}) == len(hypotheses) == 20
        scores = [h.score for h in hypotheses if h.finished]
        assert scores == sorted(scores, reverse=True)
        ends = [h.finished for h in hypotheses]
        assert ends == sorted(ends, reverse=True)


def test_impossible_outputs_are_not_returned(toys):
    # Two outputs are possible at all: eos, and 3 eos.
    table = [[0, 0, 0, 1], [0, 0, 0.5, 0.5], [0, 0, 1, 0], [0, 0, 1, 0]]
    (found,) = beam(FirstOrder(table), toys.batch([[4]]), bos=toys.BOS, eos=toys.EOS, max_length=9, beam=5, n_best=5)
    assert [h.tokens for h in found] == [[3], []]
    assert [h.log_prob for h in found] == pytest.approx([math.log(0.5)] * 2, abs=1e-6)


@given(data=st.data(), width=st.integers(1, 12), k=st.integers(1, 12))
def test_the_best_are_those_of_a_stable_sort(data, width, k):
    value = st.sampled_from([-math.inf, -2.0, -1.0, -1.0, 0.0])
    rows = st.lists(st.lists(value, min_size=width, max_size=width), min_size=1, max_size=4)
    values = torch.tensor(data.draw(rows))
    k = min(k, width)
    wanted, places = values.sort(dim=1, descending=True, stable=True)
    top, index = _best(values, k)
    assert torch.equal(top, wanted[:, :k])
    possible = top > -math.inf  # which of several impossible ones comes first says nothing
    assert torch.equal(index[possible], places[:, :k][possible])


def test_equal_candidates_keep_the_order_of_beams_and_symbols(toys):
    model = toys.Chain(0, vocabulary=6)
    model.table = torch.full_like(model.table, math.log(1 / 6))
    (found,) = search(toys, model, [[4]], max_length=2, beam=8, n_best=8, length_penalty=1.0)
    # First step: the symbols 0 to 5, of which eos (2) finishes; then five live beams share seven places.
    assert [h.tokens for h in found] == [[], [0], [0, 0], [0, 1], [0, 3], [0, 4], [0, 5], [1, 0]]
    assert [h.finished for h in found] == [True, True] + 6 * [False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam must be 1"),
        ({"beam": 2, "n_best": 3}, r"n_best must be from 1 to beam \(2\)"),
        ({"n_best": 0}, "n_best must be from 1"),
        ({"max_length": 0}, "max_length must be 1 or more"),
        ({"length_penalty": math.nan}, "length_penalty"),
        ({"length_penalty": math.inf}, "length_penalty"),
        ({"length_penalty": -500.0}, "length_penalty"),
    ],
)
def test_settings_that_cannot_be_are_refused(toys, options, message):
    with pytest.raises(UserError, match=message):
        search(toys, toys.Chain(0), [[1]], **{"max_length": 5, **options})


def test_scores_that_are_not_numbers_are_refused(toys):
    model = toys.Chain(0)
    model.table[:, 3] = math.nan
    with pytest.raises(UserError, match="NaN"):
        search(toys, model, [[1]], max_length=5)
