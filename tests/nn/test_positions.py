"""Where a token stands: formulas in float64, any positions given, nothing remembered that can be computed."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from qkv.nn.attention import MultiHeadAttention, attend, attention_weights
from qkv.nn.masks import AttentionMask
from qkv.nn.positions import (
    ALiBi,
    Embedding,
    Learned,
    Placement,
    Positions,
    Rotary,
    Sinusoidal,
    real_positions,
    sinusoid,
)

FAR = torch.tensor([[0, 1, 2, 63, 511, 2047, 9999]])


def exact_sinusoid(positions, d_model):
    rows = []
    for pos in positions.flatten().tolist():
        angles = [pos / 10_000 ** (2 * (j // 2) / d_model) for j in range(d_model)]
        rows.append([math.cos(a) if j % 2 else math.sin(a) for j, a in enumerate(angles)])
    return torch.tensor(rows, dtype=torch.float64).view(*positions.shape, d_model)


@pytest.mark.parametrize("d_model", [1, 2, 7, 64, 255, 256])
def test_sinusoids_are_the_papers_formula(d_model):
    encoded = sinusoid(FAR, d_model)
    assert encoded.dtype == torch.float32
    assert encoded.shape == (1, 7, d_model)
    # float32 knows an angle of 10,000 to 1e-3.
    assert_close(encoded.double(), exact_sinusoid(FAR, d_model), atol=2e-3, rtol=0)
    near = FAR[:, :4]
    assert_close(sinusoid(near, d_model).double(), exact_sinusoid(near, d_model), atol=1e-5, rtol=0)


def test_low_dimensions_change_quickly_and_high_ones_slowly():
    encoded = sinusoid(torch.arange(20_000), 64)
    turns = ((encoded[1:] >= 0) != (encoded[:-1] >= 0)).sum(0)[::2]
    assert turns[0] == pytest.approx(20_000 / math.pi, rel=1e-3)
    assert (turns.diff() <= 0).all()
    assert turns[-1] == 0


@pytest.mark.parametrize("shift", [1, 5, 40])
def test_a_shifted_sinusoid_is_one_rotation_whatever_the_position(shift):
    positions, d_model = torch.arange(100), 32
    here, there = sinusoid(positions, d_model).double(), sinusoid(positions + shift, d_model).double()
    angle = shift * 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    turn = torch.block_diag(*(torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]]) for a in angle)).double()
    assert_close(here @ turn.T, there, atol=2e-5, rtol=0)


def test_sinusoids_are_added_where_the_token_stands():
    x, pos = torch.randn(2, 3, 7), torch.tensor([[4, 5, 6], [0, 0, 90]])
    assert_close(Sinusoidal(7).embed(x, pos), x + exact_sinusoid(pos, 7).float(), atol=1e-5, rtol=0)


def exact_rotation(x, pos):
    """Each pair (2i, 2i+1) as a complex number, turned by pos / 10000^(2i/d)."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    speed = 10_000.0 ** (-torch.arange(0, x.size(-1), 2, dtype=torch.float64) / x.size(-1))
    turned = pairs * torch.polar(torch.ones(()).double(), pos.double()[:, None, :, None] * speed)
    return torch.view_as_real(turned).flatten(-2)


@pytest.mark.parametrize("d", [2, 6, 64])
def test_rotary_is_the_papers_rotation(d):
    query, key = torch.randn(2, 4, 7, d), torch.randn(2, 2, 7, d)
    turned = Rotary().rotate(query, key, FAR, FAR + 5)
    for have, want in zip(turned, (exact_rotation(query, FAR), exact_rotation(key, FAR + 5)), strict=True):
        assert_close(have.double(), want, atol=5e-3, rtol=0)
    near = torch.arange(7)[None]
    assert_close(Rotary().rotate(query, key, near, near)[0].double(), exact_rotation(query, near), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shift", [1, 17, 1000])
def test_rotary_products_depend_on_the_distance_only(shift):
    query, key, pos = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8), torch.arange(6)[None]
    near, far = (attention_weights(*Rotary().rotate(query, key, p, p)) for p in (pos, pos + shift))
    assert_close(near, far, atol=2e-4, rtol=0)
    other = attention_weights(*Rotary().rotate(query, key, pos, pos.flip(1)))
    assert (near - other).abs().max() > 0.05


def test_rotary_keeps_lengths_and_position_zero():
    query = torch.randn(1, 2, 3, 8)
    turned, still = Rotary().rotate(query, query, torch.tensor([[3, 50, 7]]), torch.zeros(1, 3, dtype=torch.long))
    assert_close(turned.norm(dim=-1), query.norm(dim=-1))
    assert torch.equal(still, query)


def test_rotary_refuses_an_odd_head_width():
    with pytest.raises(ValueError, match="head width 5 is odd"):
        Rotary().rotate(torch.randn(1, 1, 2, 5), torch.randn(1, 1, 2, 5), FAR[:, :2], FAR[:, :2])


# Press et al. 2022: 1/2 .. 1/256 for 8 heads; for 12 the 8 of these and then every second of the 16.
@pytest.mark.parametrize(
    ("n_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (4, [2, 4, 6, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_alibi_slopes_are_the_papers(n_heads, exponents):
    assert_close(ALiBi(n_heads).slopes().double(), 2.0 ** -torch.tensor(exponents).double())


def test_alibi_bias_is_minus_slope_times_distance():
    q_pos, k_pos = torch.tensor([[5, 9]]), torch.tensor([[0, 5, 12]])
    expected = -torch.tensor([2.0**-4, 2.0**-8])[None, :, None, None] * torch.tensor([[5.0, 0, 7], [9, 4, 3]])
    assert torch.equal(ALiBi(2).bias(q_pos, k_pos), expected)


@pytest.mark.parametrize("length", [12, 150])
def test_alibi_in_attend_equals_the_formula_in_float64(length):
    query, key, value = torch.randn(3, 1, 4, length, 8).unbind(0)
    bias = ALiBi(4).bias(*[torch.arange(length)[None]] * 2)
    allowed = AttentionMask(causal=True).to_dense(length, length)
    scores = query.double() @ key.double().transpose(2, 3) / math.sqrt(8) + bias.double()
    expected = scores.masked_fill(~allowed, -math.inf).softmax(-1) @ value.double()
    output = attend(query, key, value, mask=AttentionMask(causal=True), bias=bias)
    assert_close(output.double(), expected, atol=1e-5, rtol=1e-5)


def test_learned_positions_are_rows_of_a_table_that_ends():
    learned, x = Learned(6, 8), torch.randn(2, 3, 6)
    pos = torch.tensor([[0, 1, 2], [5, 6, 7]])
    assert torch.equal(learned.embed(x, pos), x + learned.table.weight[pos])
    with pytest.raises(ValueError, match=r"position 8 is past the learned table of 8 positions .*are computed"):
        learned.embed(x, pos + 1)
    with pytest.raises(ValueError, match="table of 1 positions"):
        Learned(6, 1).embed(x, pos)


KINDS = {
    "none": Positions,
    "sinusoidal": lambda: Sinusoidal(8),
    "learned": lambda: Learned(8, 64),
    "rotary": Rotary,
    "alibi": lambda: ALiBi(2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_can_be_recomputed_is_not_saved(kind):
    positions = KINDS[kind]()
    assert [*positions.state_dict()] == (["table.weight"] if kind == "learned" else [])
    assert [*positions.buffers()] == []
    assert all(x.is_meta for x in positions.to("meta").state_dict().values())


def embedded_attention(kind):
    """Embedding and one causal layer: where a token stands is all that could go wrong."""
    positions = KINDS[kind]()
    embedding, layer = Embedding(11, 8, positions, dropout=0.0), MultiHeadAttention(8, 2)

    def run(tokens, mask=None):
        pos = real_positions(mask, tokens.size(1), tokens.device)
        place = Placement(positions, pos, positions.bias(pos, pos))
        return layer(embedding(tokens, pos), mask=AttentionMask(mask, causal=True), place=place)

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_padding_before_the_text_changes_nothing(kind):
    run, tokens = embedded_attention(kind), torch.randint(11, (2, 6))
    mask = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    together = run(tokens, mask)
    assert_close(together[1:, 2:], run(tokens[1:, 2:]), atol=1e-6, rtol=1e-5)
    assert_close(together[:1], run(tokens[:1]), atol=1e-6, rtol=1e-5)


def test_positions_count_from_the_first_real_token():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]]).bool()
    expected = [[0, 0, 0, 1], [0, 1, 2, 3], [0, 1, 2, 3], [0, 0, 1, 2]]
    assert real_positions(mask, 4, torch.device("cpu")).tolist() == expected
    assert real_positions(None, 3, torch.device("cpu")).tolist() == [[0, 1, 2]]


def test_words_weigh_as_much_as_positions():
    embedding = Embedding(5000, 64, Positions(), dropout=0.0)
    words = embedding(torch.arange(5000)[None], torch.zeros(1, 5000, dtype=torch.long))
    assert_close(words, embedding.tokens.weight[None] * 8)
    assert words.norm(dim=-1).mean().item() == pytest.approx(8.0, rel=0.02)
    assert sinusoid(torch.arange(100), 64).norm(dim=-1).mean().item() == pytest.approx(math.sqrt(32), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_low_precision_rounds_the_result_and_never_the_angle(dtype):
    x = torch.randn(1, 2, 7, 32).to(dtype)
    wide = x.float()
    for have, want in zip(Rotary().rotate(x, x, FAR, FAR), Rotary().rotate(wide, wide, FAR, FAR), strict=True):
        assert have.dtype == dtype
        assert_close(have.float(), want, atol=2e-2, rtol=1e-2)
    added = Sinusoidal(32).embed(torch.zeros(1, 7, 32, dtype=dtype), FAR)
    assert added.dtype == dtype
    assert_close(added.float(), sinusoid(FAR, 32), atol=4e-3, rtol=0)
