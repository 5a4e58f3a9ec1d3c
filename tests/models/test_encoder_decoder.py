"""The full Transformer: padding, caching and the order of rows change nothing, whatever the positions.

Every comparison is between two ways that mean the same, so no expected number is written down.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from qkv.models.encoder_decoder import EncoderDecoderConfig, build
from qkv.models.transformer import LEARNED_MAX_LEN
from qkv.nn.state import select_rows

SYMBOLS = 13
BASE = EncoderDecoderConfig(d_model=16, n_heads=4, d_ff=32, n_layers=1, n_decoder_layers=2)
VARIANTS = {
    "sinusoidal": {},
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "none": {"positions": "none"},
    "post-norm": {"pre_norm": False},
    "two key heads": {"n_kv_heads": 2, "positions": "rotary"},
}
every_variant = pytest.mark.parametrize("model", VARIANTS, indirect=True)


def make(**changes):
    torch.manual_seed(3)
    return build(dataclasses.replace(BASE, **changes), SYMBOLS, SYMBOLS)


@pytest.fixture
def model(request):
    return make(**VARIANTS[request.param]).eval()


def symbols(*shape):
    return torch.randint(4, SYMBOLS, shape)


def padded(lengths, width, side):
    """Where the real symbols stand when rows of `lengths` are padded to `width` on one side."""
    steps, lengths = torch.arange(width), torch.tensor(lengths)[:, None]
    return steps < lengths if side == "right" else steps >= width - lengths


def same(have, want):
    assert_close(have, want, atol=2e-5, rtol=1e-4)


# 120 is long enough for the fused kernel, which the short ones do not reach.
@every_variant
@pytest.mark.parametrize("width", [7, 120])
@pytest.mark.parametrize(("source_side", "target_side"), [("right", "right"), ("left", "left"), ("right", "left")])
def test_a_padded_row_equals_the_row_alone(model, source_side, target_side, width):
    source, target = symbols(3, width), symbols(3, width - 1)
    source_mask = padded([width, 4, 1], width, source_side)
    target_mask = padded([2, width - 1, 3], width - 1, target_side)
    together = model(source, target, source_mask, target_mask)
    assert together.isfinite().all()
    for row in range(3):
        alone = model(source[row, source_mask[row]][None], target[row, target_mask[row]][None])[0]
        same(together[row, target_mask[row]], alone)


@every_variant
def test_what_stands_in_the_padding_does_not_matter(model):
    source, target = symbols(2, 6), symbols(2, 5)
    source_mask, target_mask = padded([6, 3], 6, "right"), padded([5, 2], 5, "left")
    before = model(source, target, source_mask, target_mask)
    source, target = torch.where(source_mask, source, 0), torch.where(target_mask, target, 1)
    assert torch.equal(model(source, target, source_mask, target_mask)[target_mask], before[target_mask])


@every_variant
def test_padding_behind_the_target_needs_no_mask(model):
    source, target = symbols(1, 6), symbols(1, 5)
    longer = torch.cat([target, symbols(1, 4)], 1)
    same(model(source, longer)[:, :5], model(source, target))


@every_variant
@pytest.mark.parametrize("width", [7, 120])
def test_steps_and_chunks_equal_the_whole(model, width):
    source, target, source_mask = symbols(2, width), symbols(2, width), padded([width, 3], width, "right")
    with torch.no_grad():
        whole = model(source, target, source_mask)
        inputs = {"source": source, "target": target[:, :1], "source_mask": source_mask}
        logits, state = model.prefill(inputs)
        stepped = [logits]
        for step in range(1, 7):
            logits, state = model.step(target[:, step], state)
            stepped.append(logits)
        same(torch.stack(stepped, 1), whole[:, :7])
        state, parts = model.decoder.start(model.encoder(source, source_mask), source_mask), []
        # Saying that all symbols are real, from the second chunk on, is the same as saying nothing.
        for chunk, mask in zip(target.split([2, 1, width - 3], 1), (None, torch.ones(2, 1).bool(), None), strict=True):
            part, state = model.decoder.step(chunk, state, mask)
            parts.append(model.head(part))
        same(torch.cat(parts, 1), whole)


def alone_after(model, source, prompt, steps):
    """Logits of one row by itself, without cache: after the prompt and after each step."""
    target = torch.cat([prompt, steps])[None]
    return model(source[None], target)[0, len(prompt) - 1 :]


@every_variant
@pytest.mark.parametrize("source_side", ["left", "right"])
def test_prompts_of_different_lengths_go_on_as_if_alone(model, source_side):
    source, prompt, steps = symbols(3, 6), symbols(3, 4), symbols(3, 3)
    source_mask, target_mask = padded([6, 2, 4], 6, source_side), padded([1, 4, 3], 4, "left")
    inputs = {"source": source, "source_mask": source_mask, "target": prompt, "target_mask": target_mask}
    with torch.no_grad():
        logits, state = model.prefill(inputs)
        together = [logits]
        for step in steps.T:
            logits, state = model.step(step, state)
            together.append(logits)
        for row in range(3):
            alone = alone_after(model, source[row, source_mask[row]], prompt[row, target_mask[row]], steps[row])
            same(torch.stack(together, 1)[row], alone)


@every_variant
@pytest.mark.parametrize("index", [[2, 0, 1], [1, 1, 1, 0], [2]], ids=["reorder", "repeat", "drop"])
def test_a_state_with_chosen_rows_goes_on_as_those_rows(model, index):
    source, prompt, first, second = symbols(3, 6), symbols(3, 4), symbols(3), symbols(len(index))
    source_mask, target_mask = padded([6, 2, 4], 6, "right"), padded([1, 4, 3], 4, "left")
    inputs = {"source": source, "source_mask": source_mask, "target": prompt, "target_mask": target_mask}
    with torch.no_grad():
        _, state = model.prefill(inputs)
        _, state = model.step(first, state)
        logits, state = model.step(second, select_rows(state, torch.tensor(index)))
        more, _ = model.step(second, select_rows(state, torch.arange(len(index))))
        for place, row in enumerate(index):
            steps = torch.stack([first[row], second[place], second[place]])
            alone = alone_after(model, source[row, source_mask[row]], prompt[row, target_mask[row]], steps)
            same(logits[place], alone[2])
            same(more[place], alone[3])


@every_variant
def test_two_continuations_of_one_state_do_not_disturb_each_other(model):
    source, prompt = symbols(2, 6), symbols(2, 3)
    left, right = symbols(2, 4), symbols(2, 4)
    with torch.no_grad():
        _, start = model.prefill({"source": source, "target": prompt})
        _, start = model.step(left[:, 0], start)
        states, logits = [start, start], [None, None]
        for step in range(1, 4):
            for which, tokens in enumerate((left, right)):
                logits[which], states[which] = model.step(tokens[:, step], states[which])
        for which, tokens in enumerate((left, right)):
            target = torch.cat([prompt, left[:, :1], tokens[:, 1:]], 1)
            same(logits[which], model(source, target)[:, -1])


@every_variant
def test_gradients_through_the_cache_equal_those_of_the_whole(model):
    source, target = symbols(2, 6), symbols(2, 4)
    mask = padded([6, 3], 6, "right")
    parameters = [*model.parameters()]
    direction = torch.randn(2, 4, SYMBOLS)
    whole = torch.autograd.grad(model(source, target, mask), parameters, direction)
    logits, state = model.prefill({"source": source, "source_mask": mask, "target": target[:, :1]})
    stepped = [logits]
    for step in range(1, 4):
        logits, state = model.step(target[:, step], state)
        stepped.append(logits)
    for have, want in zip(torch.autograd.grad(torch.stack(stepped, 1), parameters, direction), whole, strict=True):
        assert_close(have, want, atol=1e-4, rtol=1e-3)


@every_variant
def test_no_position_sees_a_later_target_and_all_see_the_source(model):
    source, target = symbols(1, 6), symbols(1, 5)
    before = model(source, target)
    changed = target.clone()
    changed[0, 3] = 4 + (target[0, 3] - 4 + 1) % (SYMBOLS - 4)
    after = model(source, changed)
    assert torch.equal(after[:, :3], before[:, :3])
    assert ((after - before)[:, 3:].abs().amax(-1) > 0).all()
    assert ((model(symbols(1, 6), target) - before).abs().amax(-1) > 0).all()


@every_variant
def test_a_source_that_is_all_padding_gives_numbers_and_gradients(model):
    mask = padded([5, 0], 5, "right")
    logits = model.train()(symbols(2, 5), symbols(2, 4), mask)
    logits.square().mean().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_depth_and_widths_are_those_of_the_config():
    model = make(n_kv_heads=1)
    assert (len(model.encoder.blocks), len(model.decoder.blocks)) == (1, 2)
    assert len(make(n_decoder_layers=0).decoder.blocks) == 1
    attention = model.decoder.blocks[0].cross_attention
    assert (attention.n_heads, attention.n_kv_heads, attention.d_head) == (4, 1, 4)
    assert model.encoder.blocks[0].feed_forward.up.out_features == 32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 250, "n_heads": 8}, "d_model 250 .* n_heads 8.* 5 or 10"),
        ({"d_model": 250, "n_heads": 8, "positions": "rotary"}, "d_model 250 .* n_heads 8.* 5 or 10"),
        ({"n_heads": 0, "positions": "alibi"}, "n_heads 0"),
        ({"d_model": 12, "positions": "rotary"}, "even head width, d_model 12 / n_heads 4 gives 3"),
        ({"n_kv_heads": 3}, "n_kv_heads 3 must divide n_heads 4"),
        ({"dropout": 1.5}, "between 0 and 1"),
    ],
    ids=str,
)
def test_sizes_that_do_not_go_together_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_one_table_for_two_vocabularies_is_refused():
    with pytest.raises(ValueError, match="source has 12 symbols and target 13"):
        build(dataclasses.replace(BASE, tied="all"), 12, 13)


def test_prompts_that_end_in_padding_are_refused():
    inputs = {"source": symbols(2, 5), "target": symbols(2, 3), "target_mask": padded([3, 2], 3, "right")}
    with pytest.raises(ValueError, match="pad prompts on the left"):
        make().prefill(inputs)


def test_a_learned_table_ends_in_training_and_in_decoding():
    model = make(positions="learned", n_layers=1, n_decoder_layers=1).eval()
    source, target = symbols(1, 3), symbols(1, LEARNED_MAX_LEN)
    with torch.no_grad():
        _, state = model.prefill({"source": source, "target": target})
        with pytest.raises(ValueError, match=f"position {LEARNED_MAX_LEN} is past the learned table"):
            model.step(symbols(1), state)
        with pytest.raises(ValueError, match="past the learned table"):
            model(torch.cat([target, source], 1), source)


def test_an_odd_width_is_fine_for_sinusoids():
    assert make(d_model=15, n_heads=3, positions="sinusoidal")(symbols(1, 4), symbols(1, 3)).shape == (1, 3, SYMBOLS)
