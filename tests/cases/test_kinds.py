"""Faults that raise no error, by kind, as properties that hold for every brick: numbers, positions, axes.

Each test names a property that a whole kind of fault breaks, whatever the line of code it hides in.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from qkv.data.symbols import PAD, Symbols
from qkv.models.encoder_decoder import EncoderDecoderConfig, build
from qkv.nn.attention import MultiHeadAttention, attend, attention_weights
from qkv.nn.blocks import NORMS
from qkv.nn.masks import AttentionMask, padding_mask, window_mask
from qkv.nn.positions import ALiBi, Embedding, Learned, Placement, Positions, Rotary, Sinusoidal
from qkv.nn.scores import dot
from qkv.tasks.batch import Batch
from qkv.tasks.seq2seq import Seq2Seq, Seq2SeqConfig

SYMBOLS = 11
POSITIONS = ["sinusoidal", "learned", "rotary", "alibi", "none"]
HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
every_position = pytest.mark.parametrize("positions", POSITIONS)


def model_of(**changes):
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "dropout": 0.0}
    return build(EncoderDecoderConfig(**sizes | changes), SYMBOLS, SYMBOLS).eval()


def symbols(*shape):
    return torch.randint(SYMBOLS, shape)


class Layer(nn.Module):
    """Embedding and one self-attention: the smallest model in which each brick is at work."""

    def __init__(self, positions, d_model=16, n_heads=2):
        super().__init__()
        self.positions = positions
        self.embedding = Embedding(SYMBOLS, d_model, positions, dropout=0.0)
        self.attention = MultiHeadAttention(d_model, n_heads)

    def forward(self, tokens, mask=None, pos=None):
        pos = torch.arange(tokens.size(1))[None] if pos is None else pos
        place = Placement(self.positions, pos, self.positions.bias(pos, pos))
        return self.attention(self.embedding(tokens, pos), mask=mask, place=place)


def positions_of(kind, d_model=16, max_len=64):
    makers = {
        "sinusoidal": lambda: Sinusoidal(d_model),
        "learned": lambda: Learned(d_model, max_len),
        "rotary": Rotary,
        "alibi": lambda: ALiBi(2),
        "none": Positions,
    }
    return makers[kind]()


class TestNumbers:
    """NaN, infinity and what does not fit into half precision."""

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
    @every_position
    def test_rows_without_keys_spoil_no_gradient_even_when_they_are_dropped_later(self, positions, dtype):
        layer, tokens = Layer(positions_of(positions)).to(dtype), symbols(2, 8)
        real = padding_mask(torch.tensor([8, 3]), 8)
        output = layer(tokens, real & window_mask(1) & AttentionMask(causal=True))
        output[real.keys].float().square().mean().backward()
        assert output.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
        assert layer.attention.value.weight.grad.abs().sum() > 0

    @HALVES
    @pytest.mark.parametrize("norm", NORMS)
    def test_a_model_runs_and_learns_in_half_precision(self, norm, dtype):
        model = model_of(norm=norm).to(dtype)
        mask = torch.tensor([[True] * 6, [False] * 6])
        logits = model(symbols(2, 6), symbols(2, 5), mask)
        logits.float().logsumexp(-1).mean().backward()
        assert logits.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())

    @HALVES
    @pytest.mark.parametrize("score", [None, dot], ids=["scaled", "unscaled"])
    @pytest.mark.parametrize("length", [4, 400])
    def test_scores_past_the_range_of_half_precision_still_choose_the_largest(self, length, score, dtype):
        # Row i is the number i in signs: its product with itself, 16 * 300 ** 2, is the largest of its row.
        signs = torch.where(torch.arange(length)[:, None] >> torch.arange(16) & 1 == 1, 300.0, -300.0)
        keys = signs[None, None].to(dtype).requires_grad_()
        values = torch.randn(1, 1, length, 3, dtype=dtype)
        output = attend(keys, keys, values, **({} if score is None else {"score": score}))
        output.sum().backward()
        assert_close(output, values)
        assert keys.grad.isfinite().all()

    @HALVES
    @pytest.mark.parametrize("norm", NORMS)
    @pytest.mark.parametrize("row", [0.0, 1e-3, 100.0])
    def test_constant_rows_have_a_norm(self, norm, row, dtype):
        x = torch.full((1, 2, 16), row, dtype=dtype, requires_grad=True)
        normed = NORMS[norm](16).to(dtype)(x)
        normed.sum().backward()
        assert normed.isfinite().all()
        assert x.grad.isfinite().all()

    def test_weights_that_underflow_to_zero_have_a_gradient(self):
        query = torch.tensor([[[[1.0, 0.0]]]], requires_grad=True)
        key = torch.tensor([[[[0.0, 1.0], [-400.0, 1.0], [-900.0, 1.0]]]], requires_grad=True)
        weights = attention_weights(query, key)
        assert weights[..., 1:].eq(0).all()
        (weights.square().sum() + attend(query, key, key).sum()).backward()
        assert query.grad.isfinite().all()
        assert key.grad.isfinite().all()

    @pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
    def test_the_loss_of_a_symbol_held_for_impossible_is_a_number(self, label_smoothing):
        known = Symbols.learn(["ab"])
        task = Seq2Seq(Seq2SeqConfig(label_smoothing=label_smoothing, max_length=3), known, known)
        logits = torch.zeros(1, 2, len(known))
        logits[..., 4] = 500.0
        logits.requires_grad_()
        targets = torch.tensor([[5, PAD]])
        loss = task.loss(logits, Batch({}, targets, n_targets=1, n_tokens=1))
        loss.backward()
        assert 400 < loss.item() < 501
        assert logits.grad.isfinite().all()


class TestPositions:
    @pytest.mark.parametrize("d_model", [1, 7, 15])
    @pytest.mark.parametrize("positions", ["sinusoidal", "learned", "alibi", "none"])
    def test_any_width_has_positions(self, positions, d_model):
        kind = ALiBi(1) if positions == "alibi" else positions_of(positions, d_model)
        layer = Layer(kind, d_model, n_heads=1)
        assert layer(symbols(2, 5)).shape == (2, 5, d_model)

    @every_position
    @pytest.mark.parametrize("length", [1, 2, 16])
    def test_a_row_does_not_know_its_place_in_the_batch(self, positions, length):
        layer, tokens = Layer(positions_of(positions)), symbols(length, length)
        assert_close(layer(tokens.flip(0)).flip(0), layer(tokens), atol=1e-6, rtol=0)
        each = torch.arange(length).expand(length, length)
        assert_close(layer(tokens, pos=each), layer(tokens), atol=1e-6, rtol=0)

    @every_position
    def test_the_order_of_words_is_seen_or_there_are_no_positions(self, positions):
        layer, tokens = Layer(positions_of(positions)), torch.arange(6)[None]
        order = torch.tensor([3, 0, 5, 1, 4, 2])
        moved = (layer(tokens[:, order]) - layer(tokens)[:, order]).abs().max()
        assert moved < 1e-6 if positions == "none" else moved > 1e-3

    def test_a_causal_mask_shows_order_without_positions(self):
        layer, tokens = Layer(Positions()), torch.tensor([[1, 2, 3], [2, 1, 3]])
        last = layer(tokens, AttentionMask(causal=True))[:, 1]
        assert (last[0] - last[1]).abs().max() > 1e-3

    @every_position
    def test_equal_words_at_different_places_differ_unless_there_are_no_positions(self, positions):
        layer = Layer(positions_of(positions, max_len=600))
        for tokens in (torch.full((1, 6), 3), torch.full((1, 600), 3)):
            tokens[:, 0] = 4
            steps = layer(tokens)[0, -3:].diff(dim=0).abs().amax(-1)
            assert (steps < 1e-6).all() if positions == "none" else (steps > 0).all()

    @every_position
    def test_far_positions_in_low_precision_stay_near_those_in_float32(self, positions):
        layer = Layer(positions_of(positions, max_len=2048))
        tokens, pos = symbols(1, 12), torch.arange(2036, 2048)[None]
        wide = layer(tokens, pos=pos)
        assert_close(layer.bfloat16()(tokens, pos=pos).float(), wide, atol=0.05, rtol=0)

    @every_position
    @pytest.mark.parametrize("pads", [1, 3])
    def test_positions_count_from_the_first_word_on_either_side_of_the_model(self, positions, pads):
        model, source, target = model_of(positions=positions), symbols(1, 5), symbols(1, 4)
        real = torch.tensor([[False] * pads + [True] * 5])
        alone = model(source, target)
        padded = torch.cat([symbols(1, pads), source], 1), torch.cat([symbols(1, pads), target], 1)
        together = model(*padded, real, real[:, :-1])
        assert_close(together[:, pads:], alone, atol=2e-5, rtol=0)

    def test_no_position_past_a_table_is_clamped_or_wrapped(self):
        layer = Layer(Learned(16, 4))
        assert layer(symbols(1, 4)).isfinite().all()
        for tokens, pos in ((symbols(1, 5), None), (symbols(1, 2), torch.tensor([[0, 4]]))):
            with pytest.raises(ValueError, match="position 4 is past the learned table of 4 positions"):
                layer(tokens, pos=pos)

    @every_position
    def test_positions_are_not_remembered_from_the_call_before(self, positions):
        layer, tokens = Layer(positions_of(positions)), symbols(1, 5)
        first = layer(tokens)
        layer(symbols(1, 9), pos=torch.arange(20, 29)[None])
        assert torch.equal(layer(tokens), first)


class TestAxes:
    """Reshapes, transpositions and scales. Sizes are equal on purpose: then a wrong axis raises no error."""

    def test_time_steps_are_not_mixed_by_the_split_into_heads(self):
        module, x = MultiHeadAttention(16, 4), torch.randn(4, 4, 16)
        order = torch.tensor([2, 0, 3, 1])
        assert_close(module(x[:, order]), module(x)[:, order], atol=1e-6, rtol=0)
        query, memory = torch.randn(4, 4, 16), torch.randn(4, 4, 16)
        assert_close(module(query, memory[:, order]), module(query, memory), atol=1e-6, rtol=0)

    def test_head_j_is_columns_j_of_its_own_token(self):
        module, x = MultiHeadAttention(16, 4), torch.randn(2, 5, 16)
        query, key, value = (layer(x) for layer in (module.query, module.key, module.value))
        heads = []
        for j in range(4):
            columns = slice(4 * j, 4 * (j + 1))
            scores = query[..., columns] @ key[..., columns].transpose(1, 2) / 2.0
            heads.append(scores.softmax(-1) @ value[..., columns])
        assert_close(module(x), module.out(torch.cat(heads, -1)), atol=1e-6, rtol=1e-5)

    @pytest.mark.parametrize("mask", [None, AttentionMask(causal=True), padding_mask(torch.tensor([4, 1, 2, 3]))])
    def test_weights_sum_to_one_over_the_keys_and_over_nothing_else(self, mask):
        query, key = torch.randn(2, 4, 4, 4, 4)
        weights = attention_weights(query, key, mask=mask)
        assert_close(weights.sum(-1), torch.ones(4, 4, 4))
        for axis in (0, 1, 2):
            assert (weights.sum(axis) - 1).abs().max() > 0.05

    @pytest.mark.parametrize("n_kv_heads", [4, 1])
    @pytest.mark.parametrize("padded", [True, False])
    def test_rows_of_a_batch_do_not_see_each_other(self, n_kv_heads, padded):
        module, x = MultiHeadAttention(16, 4, n_kv_heads=n_kv_heads), torch.randn(4, 4, 16, requires_grad=True)
        keys = padding_mask(torch.tensor([4, 1, 2, 3])).keys
        whole = module(x, mask=AttentionMask(keys) if padded else None)
        for row in range(4):
            mask = AttentionMask(keys[row : row + 1]) if padded else None
            assert_close(module(x[row : row + 1], mask=mask)[0], whole[row], atol=1e-6, rtol=0)
        (gradient,) = torch.autograd.grad(whole[0].sum(), x)
        assert (gradient[1:] == 0).all()

    @every_position
    def test_rows_of_a_model_do_not_see_each_other(self, positions):
        model, source, target = model_of(positions=positions), symbols(4, 4), symbols(4, 4)
        whole = model(source, target)
        for row in range(4):
            assert_close(model(source[row : row + 1], target[row : row + 1])[0], whole[row], atol=1e-5, rtol=0)

    def test_every_sample_has_its_own_padding_in_every_head(self):
        query, key = torch.randn(2, 3, 3, 4, 4)
        lengths = torch.tensor([4, 1, 2])
        weights = attention_weights(query, key, mask=padding_mask(lengths))
        seen = (weights > 0).all(2)
        assert seen.sum(-1).tolist() == [[4] * 3, [1] * 3, [2] * 3]

    @pytest.mark.parametrize("d_model", [16, 256])
    def test_attention_is_neither_sharp_nor_flat_before_training(self, d_model):
        module, x = MultiHeadAttention(d_model, 4), torch.randn(2, 32, d_model)
        query, key = (layer(x).unflatten(-1, (4, -1)).transpose(1, 2) for layer in (module.query, module.key))
        weights = attention_weights(query, key)
        entropy = -(weights * weights.log()).sum(-1).mean().item() / math.log(32)
        assert 0.7 < entropy < 0.99
        assert module.score(query, key).std().item() == pytest.approx(1.0, abs=0.35)

    def test_depth_keeps_the_size_of_the_signal(self):
        shallow, deep = (model_of(n_layers=n) for n in (1, 12))
        for model in (shallow, deep):
            assert 0.2 < model(symbols(4, 8), symbols(4, 8)).std().item() < 5.0

    def test_the_three_projections_are_three(self):
        module, x = MultiHeadAttention(16, 4), torch.randn(2, 5, 16)
        before = module(x)
        for name in ("query", "key", "value", "out"):
            changed = MultiHeadAttention(16, 4)
            changed.load_state_dict(module.state_dict())
            changed.get_submodule(name).weight.data.mul_(-1)
            assert (changed(x) - before).abs().max() > 1e-3
