"""attend() means one thing whatever runs below it: the formula here, in float64, with every mask as a dense table."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

from qkv.nn import attention
from qkv.nn.attention import MultiHeadAttention, attend, attention_weights
from qkv.nn.dropout import dropout
from qkv.nn.masks import AttentionMask, look_ahead_mask, padding_mask, window_mask
from qkv.nn.scores import Additive, dot

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 4e-2, torch.float16: 4e-3}


@pytest.fixture(params=["explicit", "fused"])
def path(request, monkeypatch):
    """Both ways of computing, at lengths where only one of them would be chosen."""
    monkeypatch.setattr(attention, "_fused_is_faster", lambda *_: request.param == "fused")
    return request.param


def formula(query, key, value, allowed=None, bias=None):
    """softmax(q k^T / sqrt(d) + bias) over the allowed keys, times the values; nothing where no key is allowed."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    scores = scores if bias is None else scores + bias
    mass = torch.exp(scores - scores.amax(-1, keepdim=True).detach())
    mass = mass if allowed is None else mass * allowed
    total = mass.sum(-1, keepdim=True)
    return mass / torch.where(total > 0, total, 1.0) @ value


def qkv_of(q_len=5, k_len=7, *, heads=4, kv_heads=None, d=8, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shapes = (2, heads, q_len, d), (2, kv_heads or heads, k_len, d), (2, kv_heads or heads, k_len, d + 2)
    return [torch.randn(shape, generator=draw).to(dtype).requires_grad_() for shape in shapes]


def agrees_with_formula(q_len, k_len, mask, bias, dtype, heads=4):
    """Output and gradients of attend() against those of the formula, fed the same (rounded) numbers in float64."""
    inputs = qkv_of(q_len, k_len, heads=heads, dtype=dtype)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    allowed = mask.to_dense(q_len, k_len)
    output = attend(*inputs, mask=mask, bias=bias)
    expected = formula(*exact, allowed, None if bias is None else bias.double())
    assert output.dtype == dtype
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    output.backward(direction)
    expected.backward(direction.double())
    tolerance = TOLERANCE[dtype]
    assert_close(output.double(), expected, atol=tolerance, rtol=tolerance)
    for have, want in zip(inputs, exact, strict=True):
        assert_close(have.grad.double(), want.grad, atol=4 * tolerance, rtol=4 * tolerance)


MASKS = {
    "none": lambda q, k: AttentionMask(),
    "causal": lambda q, k: AttentionMask(causal=True),
    "padding": lambda q, k: padding_mask(torch.tensor([k, k - 3]), k),
    "all padding": lambda q, k: padding_mask(torch.tensor([k, 0]), k),
    "window": lambda q, k: window_mask(2, 1, dilation=2),
    "segments": lambda q, k: AttentionMask(segments=(torch.arange(q)[None] // 2, torch.arange(k)[None] // 3)),
    "dense": lambda q, k: AttentionMask(dense=torch.rand(2, 4, q, k, generator=torch.Generator().manual_seed(3)) > 0.4),
    "left padding and causal": lambda q, k: AttentionMask(torch.arange(k) >= torch.tensor([[0], [3]]), causal=True),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("with_bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("lengths", [(6, 6), (3, 7), (7, 4)], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_both_paths_equal_the_formula_forward_and_gradient(path, mask, lengths, with_bias, dtype):
    bias = torch.randn(1, 4, *lengths, generator=torch.Generator().manual_seed(2)) if with_bias else None
    agrees_with_formula(*lengths, MASKS[mask](*lengths), bias, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_chosen_path_equals_the_formula_on_short_and_long_sequences(dtype):
    for q_len, fused in ((8, False), (160 if dtype == torch.float32 else 400, True)):
        query, key, _ = qkv_of(q_len, q_len, heads=1, d=4, dtype=dtype)
        assert attention._fused_is_faster(query, key, None, 0.0) is fused
        for mask in (AttentionMask(causal=True), MASKS["left padding and causal"](q_len, q_len)):
            agrees_with_formula(q_len, q_len, mask, None, dtype, heads=1)


def test_gradients_against_finite_differences(path):
    query, key, value = (x.detach().double()[:1].requires_grad_() for x in qkv_of(3, 4, heads=2, d=2))
    bias = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    mask = AttentionMask(torch.tensor([[False, True, True, True]]), causal=True)
    assert torch.autograd.gradcheck(lambda *qkvb: attend(*qkvb[:3], mask=mask, bias=qkvb[3]), (query, key, value, bias))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("with_bias", [False, True], ids=["no bias", "bias"])
def test_a_row_without_keys_gets_zeros(path, with_bias, dtype):
    inputs = qkv_of(4, 6, dtype=dtype)
    bias = torch.randn(1, 4, 4, 6) if with_bias else None
    rows = torch.tensor([True, False, True, False])[:, None]
    mask = AttentionMask(dense=rows.expand(4, 6)[None, None]) & padding_mask(torch.tensor([6, 4]), 6)
    output = attend(*inputs, mask=mask, bias=bias)
    weights = attention_weights(*inputs[:2], mask=mask, bias=bias)
    assert (output[:, :, 1::2] == 0).all()
    assert (weights[:, :, 1::2] == 0).all()
    assert output[:, :, ::2].abs().min() > 0
    (output.float().sum() + weights.square().sum()).backward()
    query, key, value = inputs
    assert (query.grad[:, :, 1::2] == 0).all()
    assert (key.grad[1, :, 4:] == 0).all()
    assert (value.grad[1, :, 4:] == 0).all()
    assert all(x.grad.isfinite().all() and x.grad.abs().sum() > 0 for x in inputs)


def test_a_row_without_keys_stays_zero_under_dropout():
    inputs = qkv_of(4, 6)
    output = attend(*inputs, mask=MASKS["all padding"](4, 6), dropout_p=0.5)
    output.sum().backward()
    assert (output[1] == 0).all()
    assert all((x.grad[1] == 0).all() and x.grad.isfinite().all() for x in inputs)


def test_causal_is_aligned_bottom_right(path):
    query, key, value = qkv_of(6, 6)
    whole = attend(query, key, value, mask=AttentionMask(causal=True))
    suffix = attend(query[:, :, 4:], key, value, mask=AttentionMask(causal=True))
    assert_close(suffix, whole[:, :, 4:])
    assert_close(attend(query, key, value, mask=look_ahead_mask(6)), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_weights_are_per_head_float32_and_sum_to_one(dtype):
    query, key, _ = qkv_of(5, 7, dtype=dtype)
    weights = attention_weights(query, key, mask=AttentionMask(causal=True))
    assert weights.dtype == torch.float32
    assert weights.shape == (2, 4, 5, 7)
    assert_close(weights.sum(-1), torch.ones(2, 4, 5))
    weights[..., 0].sum().backward()
    assert query.grad.abs().sum() > 0


def test_dropout_falls_on_the_weights_and_the_shown_weights_are_from_before_it():
    query, key, value = qkv_of(5, 7)
    torch.manual_seed(5)
    output = attend(query, key, value, mask=AttentionMask(causal=True), dropout_p=0.4)
    weights = attention_weights(query, key, mask=AttentionMask(causal=True))
    torch.manual_seed(5)
    assert_close(output, dropout(weights, 0.4) @ value)
    many = [x[:1].expand(4000, -1, -1, -1) for x in (query, key, value)]
    assert (attend(*many, dropout_p=0.4).mean(0) - attend(query, key, value)[0]).abs().max() < 0.1


def test_fewer_key_value_heads_serve_neighbouring_query_heads(path):
    query, key, value = qkv_of(heads=4, kv_heads=2)
    shared = attend(query, key, value)
    assert torch.equal(shared, attend(query, key[:, [0, 0, 1, 1]], value[:, [0, 0, 1, 1]]))
    weights = attention_weights(query, key)
    assert torch.equal(weights, attention_weights(query, key[:, [0, 0, 1, 1]]))


def test_large_products_do_not_overflow_in_float16(path):
    query, key, value = (300 * x.detach() for x in qkv_of(dtype=torch.float16))
    assert not (query @ key.transpose(-2, -1)).isfinite().all()
    expected = formula(query.double(), key.double(), value.double())
    assert_close(attend(query, key, value).double(), expected, atol=1.0, rtol=4e-3)


def test_shapes_and_masks_that_do_not_fit_are_refused(path):
    query, key, value = qkv_of(5, 7)
    for ambiguous in (torch.ones(2, 7), torch.ones(5, 7), torch.ones(2, 5, 7)):
        with pytest.raises(ValueError, match=r"AttentionMask\(keys=mask\)"):
            attend(query, key, value, mask=ambiguous.bool())
    with pytest.raises(ValueError, match="True means 'may attend'"):
        attend(query, key, value, mask=torch.ones(2, 1, 5, 7))
    with pytest.raises(ValueError, match=r"\(5, 7\)"):
        attend(query, key, value, mask=look_ahead_mask(5))
    with pytest.raises(ValueError, match="does not fit scores of shape"):
        attend(query, key, value, mask=AttentionMask(keys=torch.ones(3, 7, dtype=torch.bool)))
    for bias in (torch.ones(4, 5, 7), torch.ones(1, 2, 5, 7), torch.ones(5, 7)):
        with pytest.raises(ValueError, match="bias of shape .* does not fit"):
            attend(query, key, value, bias=bias)
    with pytest.raises(ValueError, match="3 key/value heads cannot serve 4"):
        attend(query, *(x[:, :3] for x in (key, value)))
    with pytest.raises(ValueError, match="differ in length"):
        inspect.unwrap(attend)(query, key, value[:, :, :6])


class Seen(TorchFunctionMode):
    """What a recorder does: watches attend, asks for the weights, lets everything pass."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is attend:
            query, key, _ = args
            asked = {name: kwargs[name] for name in ("mask", "score", "bias")}
            self.calls.append((args, kwargs, attention_weights(query, key, **asked)))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("score", [None, dot, "additive"], ids=str)
def test_a_function_mode_sees_attend_whole_and_changes_nothing(path, score):
    query, key, value = qkv_of()
    asked = {"mask": AttentionMask(causal=True), "bias": torch.randn(1, 4, 5, 7)}
    if score is not None:
        asked["score"] = Additive(8, 4) if score == "additive" else score
    plain = attend(query, key, value, **asked)
    with Seen() as seen:
        watched = attend(query, key, value, **asked)
    assert torch.equal(plain, watched)
    [(args, kwargs, weights)] = seen.calls
    assert all(have is want for have, want in zip(args, (query, key, value), strict=True))
    assert all(kwargs[name] is want for name, want in asked.items())
    assert set(kwargs) == {"mask", "score", "bias", "dropout_p"}
    assert_close(weights @ value, plain)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_asking_for_weights_never_changes_what_a_module_gives(training):
    module = MultiHeadAttention(16, 4, dropout=0.2).train(training)
    x, mask = torch.randn(2, 5, 16), AttentionMask(causal=True)
    torch.manual_seed(0)
    plain = module(x, mask=mask)
    torch.manual_seed(0)
    with Seen() as seen:
        watched = module(x, mask=mask)
    assert torch.equal(plain, watched)
    assert seen.calls[0][1]["dropout_p"] == (0.2 if training else 0.0)


@pytest.mark.parametrize(
    ("d_model", "n_heads", "nearest"), [(250, 8, "5 or 10"), (256, 0, "1"), (7, 2, "1 or 7"), (12, 20, "12")]
)
def test_heads_that_do_not_divide_are_refused_with_the_nearest_that_do(d_model, n_heads, nearest):
    with pytest.raises(ValueError, match=rf"d_model {d_model} .* n_heads {n_heads}.* {nearest}$"):
        MultiHeadAttention(d_model, n_heads)


def test_key_value_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match=r"n_kv_heads 3 .* n_heads 4"):
        MultiHeadAttention(16, 4, n_kv_heads=3)


@pytest.mark.parametrize("n_kv_heads", [None, 2, 1])
def test_steps_over_what_is_kept_equal_the_whole(n_kv_heads):
    module = MultiHeadAttention(16, 4, n_kv_heads=n_kv_heads)
    x = torch.randn(2, 6, 16)
    whole = module(x, mask=AttentionMask(causal=True))
    kept, parts = None, []
    for chunk in x.split([2, 1, 3], 1):
        part, kept = module.step(chunk, kept, mask=AttentionMask(causal=True))
        parts.append(part)
    assert_close(torch.cat(parts, 1), whole)


def test_a_memory_is_projected_once_and_read_many_times():
    module = MultiHeadAttention(16, 4, d_memory=10)
    query, memory, mask = torch.randn(2, 3, 16), torch.randn(2, 5, 10), padding_mask(torch.tensor([5, 2]))
    kept = module.remember(memory)
    assert torch.equal(module.read(query, kept, mask=mask), module(query, memory, mask=mask))
    assert torch.equal(module(query, memory, memory, mask=mask), module(query, memory, mask=mask))
    assert kept.keys.shape == (2, 4, 5, 4)
    with pytest.raises(ValueError, match="value without key"):
        module(query, value=memory)


TRACED = """
import torch
from qkv.nn.attention import attend
from qkv.nn.masks import AttentionMask

class Causal(torch.nn.Module):
    def forward(self, query, key, value, real):
        return attend(query, key, value, mask=AttentionMask(real, causal=True))

for length in (6, 128):
    inputs = *torch.randn(3, 2, 4, length, 8).unbind(0), torch.arange(length) < torch.tensor([[length], [0]])
    exported = torch.export.export(Causal(), inputs).module()
    compiled = torch.compile(Causal(), fullgraph=True, backend="eager")
    for real in (inputs[3], ~inputs[3]):
        expected = Causal()(*inputs[:3], real)
        torch.testing.assert_close(exported(*inputs[:3], real), expected)
        torch.testing.assert_close(compiled(*inputs[:3], real), expected)
"""


@pytest.mark.slow
def test_attend_passes_export_and_whole_graph_compilation():
    # In a process of its own: a graph cannot hold the checks of annotations that the tests switch on.
    subprocess.run([sys.executable, "-c", TRACED], check=True, timeout=300)
