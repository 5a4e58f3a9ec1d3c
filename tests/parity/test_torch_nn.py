"""The bricks with torch.nn's weights give what torch.nn gives, in training and evaluation: <= 1e-5 in float32.

Polarity differs: torch's boolean masks say True for "ignore", ours for "may attend".
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from qkv.models.transformer import TransformerDecoder, TransformerEncoder
from qkv.nn.attention import MultiHeadAttention, attention_weights
from qkv.nn.blocks import DecoderBlock, EncoderBlock, feed_forward, residual
from qkv.nn.masks import AttentionMask, padding_mask
from qkv.nn.positions import Embedding, Sinusoidal

D_MODEL, N_HEADS, D_FF, SYMBOLS = 32, 4, 48, 13
REAL = padding_mask(torch.tensor([9, 5, 1]), 9).keys  # (3, 9), True on real tokens
FUTURE = torch.ones(9, 9, dtype=torch.bool).triu(1)  # torch's form of the causal mask

train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
norm_and_activation = pytest.mark.parametrize(
    ("pre_norm", "activation"), [(True, "relu"), (True, "gelu"), (False, "relu"), (False, "gelu")], ids=str
)


def same(have, want):
    assert_close(have, want, atol=1e-5, rtol=0)


def same_gradients(have, want, *inputs):
    """Gradients of the inputs through both, along one random direction."""
    direction = torch.randn(have.shape)
    for ours, theirs in zip(
        torch.autograd.grad(have, inputs, direction), torch.autograd.grad(want, inputs, direction), strict=True
    ):
        assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def randomise(module):
    """Biases and norms away from their first values 0 and 1, so that none is forgotten unseen."""
    for parameter in module.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, 0.5, 0.5)
    return module


@torch.no_grad()
def copy_linear(ours, weight, bias):
    ours.weight.copy_(weight)
    ours.bias.copy_(bias)


def copy_attention(ours, theirs):
    together = theirs.in_proj_weight
    weights = (
        together.chunk(3)
        if together is not None
        else (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    )
    for name, weight, bias in zip(("query", "key", "value"), weights, theirs.in_proj_bias.chunk(3), strict=True):
        copy_linear(getattr(ours, name), weight, bias)
    copy_linear(ours.out, theirs.out_proj.weight, theirs.out_proj.bias)
    return ours


def copy_norm(slots, theirs):
    [norm] = [module for module in (slots.before, slots.after) if isinstance(module, nn.LayerNorm)]
    norm.load_state_dict(theirs.state_dict())


def copy_feed_forward(ours, theirs):
    copy_linear(ours.up, theirs.linear1.weight, theirs.linear1.bias)
    copy_linear(ours.down, theirs.linear2.weight, theirs.linear2.bias)


def attention():
    return MultiHeadAttention(D_MODEL, N_HEADS)


def encoder_block(theirs, pre_norm, activation):
    block = EncoderBlock(
        copy_attention(attention(), theirs.self_attn),
        feed_forward(D_MODEL, D_FF, activation, 0.0),
        lambda: residual(D_MODEL, 0.0, "layer", pre_norm),
    )
    copy_feed_forward(block.feed_forward, theirs)
    copy_norm(block.attention_residual, theirs.norm1)
    copy_norm(block.feed_forward_residual, theirs.norm2)
    return block


def decoder_block(theirs, pre_norm, activation):
    block = DecoderBlock(
        copy_attention(attention(), theirs.self_attn),
        copy_attention(attention(), theirs.multihead_attn),
        feed_forward(D_MODEL, D_FF, activation, 0.0),
        lambda: residual(D_MODEL, 0.0, "layer", pre_norm),
    )
    copy_feed_forward(block.feed_forward, theirs)
    copy_norm(block.self_attention_residual, theirs.norm1)
    copy_norm(block.cross_attention_residual, theirs.norm2)
    copy_norm(block.feed_forward_residual, theirs.norm3)
    return block


def weights_of(ours, query, memory, mask):
    split = ours.query(query).unflatten(-1, (N_HEADS, -1)).transpose(1, 2)
    return attention_weights(split, ours.remember(memory).keys, mask=mask)


MASKS = {
    "none": (None, {}),
    "padding": (AttentionMask(REAL), {"key_padding_mask": ~REAL}),
    "causal": (AttentionMask(causal=True), {"attn_mask": FUTURE}),
    "both": (AttentionMask(REAL, causal=True), {"key_padding_mask": ~REAL, "attn_mask": FUTURE}),
}


@train_and_eval
@pytest.mark.parametrize("mask", MASKS)
def test_self_attention(mask, training):
    theirs = randomise(nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=True)).train(training)
    ours = copy_attention(attention(), theirs).train(training)
    x = torch.randn(3, 9, D_MODEL, requires_grad=True)
    our_mask, their_mask = MASKS[mask]
    expected, weights = theirs(x, x, x, need_weights=True, average_attn_weights=False, **their_mask)
    same(ours(x, mask=our_mask), expected)
    same(ours(x, mask=our_mask), theirs(x, x, x, need_weights=False, **their_mask)[0])
    same(weights_of(ours, x, x, our_mask), weights)
    same_gradients(ours(x, mask=our_mask), expected, x)


@train_and_eval
@pytest.mark.parametrize("d_memory", [D_MODEL, 20])
@pytest.mark.parametrize("padded", [True, False])
def test_cross_attention(padded, d_memory, training):
    theirs = nn.MultiheadAttention(D_MODEL, N_HEADS, kdim=d_memory, vdim=d_memory, batch_first=True)
    theirs = randomise(theirs).train(training)
    ours = copy_attention(MultiHeadAttention(D_MODEL, N_HEADS, d_memory=d_memory), theirs).train(training)
    query = torch.randn(3, 4, D_MODEL, requires_grad=True)
    memory = torch.randn(3, 9, d_memory, requires_grad=True)
    ignore, mask = (~REAL, AttentionMask(REAL)) if padded else (None, None)
    expected, weights = theirs(query, memory, memory, key_padding_mask=ignore, average_attn_weights=False)
    same(ours(query, memory, mask=mask), expected)
    same(weights_of(ours, query, memory, mask), weights)
    same_gradients(ours(query, memory, mask=mask), expected, query, memory)


def test_keys_and_values_from_different_places():
    theirs = randomise(nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=True))
    query, key, value = torch.randn(3, 3, 9, D_MODEL)
    same(copy_attention(attention(), theirs)(query, key, value), theirs(query, key, value)[0])


def test_attention_without_biases():
    theirs = nn.MultiheadAttention(D_MODEL, N_HEADS, bias=False, batch_first=True)
    ours = MultiHeadAttention(D_MODEL, N_HEADS, bias=False)
    for name, weight in zip(("query", "key", "value"), theirs.in_proj_weight.chunk(3), strict=True):
        ours.get_submodule(name).weight.data.copy_(weight)
    ours.out.weight.data.copy_(theirs.out_proj.weight)
    x = torch.randn(3, 9, D_MODEL)
    same(ours(x), theirs(x, x, x)[0])


@train_and_eval
@norm_and_activation
@pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])
def test_encoder_layer(causal, pre_norm, activation, training):
    theirs = nn.TransformerEncoderLayer(D_MODEL, N_HEADS, D_FF, 0.0, activation, batch_first=True, norm_first=pre_norm)
    theirs = randomise(theirs).train(training)
    ours = encoder_block(theirs, pre_norm, activation).train(training)
    x = torch.randn(3, 9, D_MODEL, requires_grad=True)
    expected = theirs(x, src_mask=FUTURE if causal else None, src_key_padding_mask=~REAL)
    output = ours(x, AttentionMask(REAL, causal=causal))
    same(output, expected)
    same_gradients(output, expected, x)


@train_and_eval
@norm_and_activation
def test_decoder_layer(pre_norm, activation, training):
    theirs = nn.TransformerDecoderLayer(D_MODEL, N_HEADS, D_FF, 0.0, activation, batch_first=True, norm_first=pre_norm)
    theirs = randomise(theirs).train(training)
    ours = decoder_block(theirs, pre_norm, activation).train(training)
    x, memory = torch.randn(3, 9, D_MODEL, requires_grad=True), torch.randn(3, 6, D_MODEL, requires_grad=True)
    of_memory = padding_mask(torch.tensor([6, 2, 4])).keys
    expected = theirs(x, memory, FUTURE, None, ~REAL, ~of_memory)
    output = ours(x, memory, mask=AttentionMask(REAL, causal=True), memory_mask=AttentionMask(of_memory))
    same(output, expected)
    same_gradients(output, expected, x, memory)


def whole_transformer(pre_norm, activation):
    """nn.Transformer, and our bodies with its weights; it ends both stacks in a norm even when they are post-norm."""
    options = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": pre_norm}
    # The fast path of nested tensors, which warns and drops the pads, is no part of the meaning.
    stack = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(D_MODEL, N_HEADS, D_FF, **options), 2, nn.LayerNorm(D_MODEL), False
    )
    theirs = nn.Transformer(D_MODEL, N_HEADS, 2, 3, D_FF, custom_encoder=stack, **options)
    randomise(theirs)
    source, target = (Embedding(SYMBOLS, D_MODEL, Sinusoidal(D_MODEL), dropout=0.0) for _ in range(2))
    encoder = [encoder_block(layer, pre_norm, activation) for layer in theirs.encoder.layers]
    decoder = [decoder_block(layer, pre_norm, activation) for layer in theirs.decoder.layers]
    return (
        theirs,
        TransformerEncoder(source, encoder, theirs.encoder.norm),
        TransformerDecoder(target, decoder, theirs.decoder.norm),
    )


@train_and_eval
@norm_and_activation
def test_the_whole_transformer(pre_norm, activation, training):
    theirs, encoder, decoder = whole_transformer(pre_norm, activation)
    for module in (theirs, encoder, decoder):
        module.train(training)
    source, target = torch.randint(SYMBOLS, (3, 9)), torch.randint(SYMBOLS, (3, 7))
    embedded = [body.embedding(x, torch.arange(x.size(1))[None]) for body, x in ((encoder, source), (decoder, target))]
    expected = theirs(*embedded, tgt_mask=FUTURE[:7, :7], src_key_padding_mask=~REAL, memory_key_padding_mask=~REAL)
    output = decoder(target, encoder(source, REAL), REAL)
    same(output, expected)
    vectors = encoder.embedding.tokens.weight, decoder.embedding.tokens.weight
    same_gradients(output, expected, *vectors)


def test_torchs_masks_mean_the_opposite():
    theirs = randomise(nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=True))
    ours, x = copy_attention(attention(), theirs), torch.randn(3, 9, D_MODEL)
    swapped = theirs(x, x, x, attn_mask=AttentionMask(causal=True).to_dense(9, 9)[0, 0], need_weights=False)[0]
    only_later = ours(x, mask=AttentionMask(dense=FUTURE[None, None]))
    same(swapped[:, :-1], only_later[:, :-1])
    assert (swapped - ours(x, mask=AttentionMask(causal=True)))[:, :-1].abs().max() > 0.1
