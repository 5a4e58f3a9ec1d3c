"""Blocks: each branch is its formula in float64, and pre- and post-norm differ in which slot holds the norm."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from qkv.nn.attention import MultiHeadAttention
from qkv.nn.blocks import (
    ACTIVATIONS,
    NORMS,
    BlockState,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    Residual,
    SwiGLU,
    feed_forward,
    residual,
)
from qkv.nn.masks import AttentionMask, padding_mask
from qkv.nn.positions import Placement, Rotary


def linear(layer, x):
    return x @ layer.weight.T + layer.bias


def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


@pytest.mark.parametrize(("name", "activation"), [("relu", lambda x: x.clamp_min(0)), ("gelu", gelu)])
def test_feed_forward_is_the_papers_formula(name, activation):
    module, x = feed_forward(6, 10, name, dropout=0.0).double(), torch.randn(2, 3, 6).double()
    assert isinstance(module, FeedForward)
    assert_close(module(x), linear(module.down, activation(linear(module.up, x))))


def test_swiglu_is_shazeers_equation_6():
    module, x = feed_forward(6, 10, "swiglu", dropout=0.0).double(), torch.randn(2, 3, 6).double()
    assert isinstance(module, SwiGLU)
    gate = linear(module.gate, x)
    assert_close(module(x), linear(module.down, gate / (1 + torch.exp(-gate)) * linear(module.up, x)))


def test_an_unknown_activation_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'tanh': relu, gelu or swiglu"):
        feed_forward(6, 10, "tanh")


@pytest.mark.parametrize("name", [*ACTIVATIONS, "swiglu"])
def test_feed_forward_drops_inside_and_only_in_training(name):
    module, x = feed_forward(8, 64, name, dropout=0.5), torch.randn(2, 3, 8)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))
    everything = feed_forward(8, 64, name, dropout=1.0)
    assert_close(everything(x), everything.down.bias.expand(2, 3, 8))


def exact_norm(name, x):
    if name == "rms":
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + torch.finfo(torch.float64).eps)
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("pre_norm", [True, False])
def test_the_norm_fills_the_slot_that_is_asked_for(norm, pre_norm):
    slots, x, branch = residual(8, 0.0, norm, pre_norm).double(), *torch.randn(2, 2, 3, 8).double()
    if pre_norm:
        assert_close(slots.enter(x), exact_norm(norm, x))
        assert torch.equal(slots.join(x, branch), x + branch)
    else:
        assert torch.equal(slots.enter(x), x)
        assert_close(slots.join(x, branch), exact_norm(norm, x + branch))


def test_empty_slots_are_the_identity_and_only_the_branch_is_dropped():
    x, branch = torch.randn(2, 2, 3, 8)
    empty = Residual(dropout=0.0)
    assert torch.equal(empty.enter(x), x)
    assert torch.equal(empty.join(x, branch), x + branch)
    assert torch.equal(Residual(dropout=1.0).join(x, branch), x)


def blocks_of(pre_norm=True, cross=True, dropout=0.0):
    def slots():
        return residual(16, dropout, "layer", pre_norm)

    own, other = (MultiHeadAttention(16, 4, dropout=dropout) for _ in range(2))
    return DecoderBlock(own, other if cross else None, feed_forward(16, 32, dropout=dropout), slots)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_an_encoder_block_is_two_residuals_in_order(pre_norm):
    attention, branch = MultiHeadAttention(16, 4), feed_forward(16, 32, dropout=0.0)
    block = EncoderBlock(attention, branch, lambda: residual(16, 0.0, "layer", pre_norm))
    x, mask = torch.randn(2, 5, 16), padding_mask(torch.tensor([5, 3]))
    if pre_norm:
        middle = x + attention(nn.functional.layer_norm(x, (16,)), mask=mask)
        expected = middle + branch(nn.functional.layer_norm(middle, (16,)))
    else:
        middle = nn.functional.layer_norm(x + attention(x, mask=mask), (16,))
        expected = nn.functional.layer_norm(middle + branch(middle), (16,))
    assert_close(block(x, mask), expected)


def test_every_residual_has_a_norm_of_its_own():
    block = blocks_of()
    norms = [module for module in block.modules() if isinstance(module, nn.LayerNorm)]
    assert len({id(norm) for norm in norms}) == len(norms) == 3


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("cross", [True, False], ids=["cross", "decoder only"])
def test_steps_of_a_decoder_block_equal_the_whole(pre_norm, cross):
    block = blocks_of(pre_norm, cross)
    x, memory = torch.randn(2, 6, 16), torch.randn(2, 4, 16) if cross else None
    masks = {"mask": AttentionMask(causal=True), "memory_mask": padding_mask(torch.tensor([4, 2])) if cross else None}
    pos = torch.arange(6)[None]
    whole = block(x, memory, **masks, place=Placement(Rotary(), pos))
    state, parts = block.start(memory), []
    for chunk, chunk_pos in zip(x.split([3, 1, 2], 1), pos.split([3, 1, 2], 1), strict=True):
        part, state = block.step(chunk, state, **masks, place=Placement(Rotary(), chunk_pos))
        parts.append(part)
    assert_close(torch.cat(parts, 1), whole)


def test_a_decoder_block_sees_no_future_and_all_of_the_memory():
    block, x, memory = blocks_of(), torch.randn(1, 5, 16, requires_grad=True), torch.randn(1, 4, 16, requires_grad=True)
    block(x, memory, mask=AttentionMask(causal=True))[0, 2].sum().backward()
    assert (x.grad[0, 3:] == 0).all()
    assert (x.grad[0, :3].abs().sum(-1) > 0).all()
    assert (memory.grad.abs().sum(-1) > 0).all()


def test_a_missing_memory_is_refused_and_never_replaced_by_the_target():
    x, memory = torch.randn(1, 5, 16), torch.randn(1, 4, 16)
    for use in (
        lambda: blocks_of()(x, mask=AttentionMask(causal=True)),
        lambda: blocks_of().start(),
        lambda: blocks_of().step(x, BlockState()),
        lambda: blocks_of(cross=False)(x, memory),
        lambda: blocks_of(cross=False).start(memory),
    ):
        with pytest.raises(ValueError, match="needs a memory"):
            use()


def test_dropout_acts_in_training_only():
    block, x, memory = blocks_of(dropout=0.3), torch.randn(1, 5, 16), torch.randn(1, 4, 16)
    assert not torch.equal(block(x, memory), block(x, memory))
    block.eval()
    assert torch.equal(block(x, memory), block(x, memory))
