import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qkv.errors import UserError
from qkv.generation.greedy import greedy
from qkv.generation.protocol import decodes

SOURCES = [[3, 1], [5], [2, 2, 7], [8, 8, 8, 8], [1]]


def search(toys, model, sources, prompts=None, max_length=8):
    return greedy(model, toys.batch(sources, prompts), bos=toys.BOS, eos=toys.EOS, max_length=max_length)


def by_hand(toys, model, source, prompt, max_length):
    written, log_prob = [], 0.0
    while len(written) < max_length:
        options = model.log_probs(source, prompt, written)
        symbol = max(range(len(options)), key=options.__getitem__)
        log_prob += options[symbol]
        if symbol == toys.EOS:
            return written, log_prob, True
        written.append(symbol)
    return written, log_prob, False


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 30),
    max_length=st.integers(1, 12),
    prompt=st.lists(st.integers(0, 4), max_size=3),
)
def test_every_row_is_the_most_probable_symbol_each_time(toys, seed, rows, max_length, prompt):
    # Rows finish at different steps, each stays finished (L03), and rows that leave take nothing with them.
    model = toys.Chain(seed, vocabulary=5)
    sources = [[i % 9, (5 * i) % 8] for i in range(rows)]
    prompt = [toys.BOS, *prompt]
    found = search(toys, model, sources, [prompt] * rows, max_length)
    for source, one in zip(sources, found, strict=True):
        tokens, log_prob, finished = by_hand(toys, model, source, prompt, max_length)
        assert (one.tokens, one.finished) == (tokens, finished)
        assert one.log_prob == pytest.approx(log_prob, abs=1e-4)
        assert one.score == one.log_prob


@given(seed=st.integers(0, 10**6), order=st.permutations(range(12)), kept=st.integers(1, 12))
def test_a_row_does_not_depend_on_the_others(toys, seed, order, kept):
    model = toys.Chain(seed, vocabulary=5)
    sources = [[i % 9, (3 * i) % 7, i] for i in range(12)]
    everywhere = search(toys, model, sources)
    some = order[:kept]
    assert search(toys, model, [sources[row] for row in some]) == [everywhere[row] for row in some]


def test_finished_rows_leave_the_batch(toys):
    class Countdown:
        """Row i says eos as its i-th symbol."""

        def prefill(self, inputs):
            return self.step(None, inputs["source"][:, 0])

        def step(self, tokens, state):
            widths.append(len(state))
            logits = torch.zeros(len(state), 4)
            logits[:, 3] = 1.0
            logits[state == 1, toys.EOS] = 2.0
            return logits, state - 1

    widths: list[int] = []
    lengths = [20, 1, 2, 3, 3, 3, 3, 4, 5, 20]
    found = search(toys, Countdown(), [[n] for n in lengths], max_length=30)
    assert [len(h.tokens) + 1 for h in found] == lengths
    assert all(h.finished for h in found)
    assert widths == [10, 10, 10, 4, 3] + 15 * [2]


def test_an_output_that_is_cut_says_so(toys):
    model = toys.Chain(0)
    model.table[:, toys.EOS] = -math.inf
    for one in search(toys, model, SOURCES, max_length=3):
        assert len(one.tokens) == 3
        assert not one.finished


def test_eos_as_the_last_symbol_allowed_is_an_end(toys):
    model = toys.Chain(0)
    model.table[:, toys.EOS] = 5.0
    assert [(h.tokens, h.finished) for h in search(toys, model, SOURCES, max_length=1)] == [([], True)] * len(SOURCES)


def test_low_precision_logits_are_added_up_in_float32(toys):
    class Half(toys.Chain):
        def _answer(self, history):
            _, state = super()._answer(history)
            return self.table[history].bfloat16(), state

    model = Half(1, sharpness=1.0)
    model.table[:, toys.EOS] = -30.0
    model.table = model.table.bfloat16().double()
    (one,) = search(toys, model, [[5]], max_length=20)
    written, log_prob, _ = by_hand(toys, model, [5], [toys.BOS], 20)
    normaliser = sum(
        float(torch.tensor(model.log_probs([5], [toys.BOS], written[:place])).logsumexp(0)) for place in range(20)
    )
    assert one.tokens == written
    assert one.log_prob == pytest.approx(log_prob - normaliser, abs=1e-4)


def test_a_missing_prompt_is_bos_alone(toys):
    model, inputs = toys.Chain(0), toys.batch(SOURCES)
    limits = {"bos": toys.BOS, "eos": toys.EOS, "max_length": 6}
    without = {name: part for name, part in inputs.items() if name != "target"}
    assert greedy(model, without, **limits) == greedy(model, inputs, **limits)


def test_no_rows_give_no_hypotheses(toys):
    inputs = {name: part[:0] for name, part in toys.batch(SOURCES).items()}
    assert greedy(toys.Chain(0), inputs, bos=toys.BOS, eos=toys.EOS, max_length=4) == []


def test_gradients_are_not_recorded(toys):
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = nn.Parameter(torch.randn(4))

        def prefill(self, inputs):
            return self.step(inputs["target"][:, 0], None)

        def step(self, tokens, state):
            assert torch.is_inference_mode_enabled()
            return self.scores.expand(len(tokens), -1), state

    model = Weighted()
    with pytest.raises(UserError, match=r"training mode.*eval\(\)"):
        search(toys, model, SOURCES)
    assert len(search(toys, model.eval(), SOURCES)) == len(SOURCES)
    assert model.scores.grad is None


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[], []], "bos .1. first, got shape .2, 0."),
        ([[1, 3], [3, 1]], "row 1 is"),
    ],
)
def test_prompts_without_bos_are_refused(toys, prompts, message):
    with pytest.raises(UserError, match=message):
        search(toys, toys.Chain(0), [[3], [4]], prompts)


def test_prompts_padded_on_the_left_start_after_the_pads(toys):
    inputs = toys.batch([[3], [4]], [[0, 1, 3], [1, 3, 3]])
    limits = {"bos": toys.BOS, "eos": toys.EOS, "max_length": 4}
    with pytest.raises(UserError, match="row 0 is"):
        greedy(toys.Chain(0), inputs, **limits)
    mask = torch.tensor([[False, True, True], [True, True, True]])
    assert len(greedy(toys.Chain(0), {**inputs, "target_mask": mask}, **limits)) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_length": 0}, "max_length must be 1 or more"),
        ({"eos": 4}, "0 to 3, got 4"),
        ({"eos": -1}, "0 to 3, got -1"),
    ],
)
def test_settings_that_cannot_be_are_refused(toys, change, message):
    with pytest.raises(UserError, match=message):
        greedy(toys.Chain(0), toys.batch([[1]]), **{"bos": toys.BOS, "eos": toys.EOS, "max_length": 5, **change})


def test_scores_that_are_not_numbers_are_refused(toys):
    model = toys.Chain(0)
    model.table[:, 3] = math.nan
    with pytest.raises(UserError, match="NaN"):
        search(toys, model, [[1]])


def test_inputs_that_are_empty_are_refused(toys):
    with pytest.raises(UserError, match="nothing to decode"):
        greedy(toys.Chain(0), {}, bos=toys.BOS, eos=toys.EOS, max_length=4)


def test_a_model_that_cannot_decode_is_named(toys):
    with pytest.raises(UserError, match="Linear cannot write one symbol after the other"):
        decodes(nn.Linear(2, 2))
    model = toys.Chain(0)
    assert decodes(model) is model
