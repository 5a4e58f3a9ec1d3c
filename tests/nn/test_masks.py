"""A mask means what a loop over its entries in plain Python says, alone, combined, and inside attend()."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.nn import attention
from qkv.nn.attention import attend, attention_weights
from qkv.nn.masks import AttentionMask, Window, as_mask, look_ahead_mask, padding_mask, window_mask

BATCH, HEADS, WIDTH = 2, 3, 4


def may_attend(mask, b, h, q, k, q_len, k_len):
    """One entry of the mask, from the words of its docstring."""
    own = q + k_len - q_len  # the key that the query sits on: the last query on the last key

    def row_of(tensor):
        return tensor[b if tensor.size(0) > 1 else 0]

    if mask.keys is not None and not row_of(mask.keys)[k]:
        return False
    if mask.causal and k > own:
        return False
    if mask.window is not None:
        window = mask.window
        reach = range(-window.left * window.dilation, window.right * window.dilation + 1, window.dilation)
        is_global = window.global_keys is not None and bool(row_of(window.global_keys)[k])
        if not is_global and k - own not in reach:
            return False
    if mask.segments is not None:
        of_query, of_key = mask.segments
        if row_of(of_query)[q] != row_of(of_key)[k]:
            return False
    if mask.dense is not None:
        heads = row_of(mask.dense)
        rows = heads[h if heads.size(0) > 1 else 0]
        return bool(rows[q if rows.size(0) > 1 else 0][k])
    return True


def oracle(masks, q_len, k_len):
    entries = itertools.product(range(BATCH), range(HEADS), range(q_len), range(k_len))
    allowed = [all(may_attend(mask, *entry, q_len, k_len) for mask in masks) for entry in entries]
    return torch.tensor(allowed).view(BATCH, HEADS, q_len, k_len)


def formula(query, key, value, allowed):
    """Row by row in float64: exponentials of the allowed scores over their sum, nothing where no key is allowed."""
    scores = query.double() @ key.double().transpose(-2, -1) / math.sqrt(query.size(-1))
    mass = torch.exp(scores) * allowed
    weights = mass / mass.sum(-1, keepdim=True).clamp_min(1e-300)
    return weights, weights @ value.double()


@st.composite
def bools(draw, *shape):
    n = math.prod(shape)
    bits = draw(st.integers(0, 2**n - 1))
    return torch.tensor([bool(bits >> i & 1) for i in range(n)]).view(shape)


@st.composite
def windows(draw, k_len):
    global_keys = draw(st.none() | bools(draw(st.sampled_from([1, BATCH])), k_len))
    return Window(draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.integers(1, 3)), global_keys)


@st.composite
def segment_pairs(draw, q_len, k_len):
    def numbers(length):
        row = st.lists(st.integers(-2, 2), min_size=length, max_size=length)
        return torch.tensor(draw(st.lists(row, min_size=BATCH, max_size=BATCH)))

    return numbers(q_len), numbers(k_len)


@st.composite
def masks(draw, q_len, k_len, with_window=True):
    dense = draw(
        st.none() | bools(*(draw(st.sampled_from([1, n])) for n in (BATCH, HEADS, q_len)), k_len),
    )
    return AttentionMask(
        keys=draw(st.none() | bools(draw(st.sampled_from([1, BATCH])), k_len)),
        causal=draw(st.booleans()),
        window=draw(st.none() | windows(k_len)) if with_window else None,
        segments=draw(st.none() | segment_pairs(q_len, k_len)),
        dense=dense,
        size=draw(st.none() | st.just((q_len, k_len))),
    )


@st.composite
def sized_masks(draw):
    q_len, k_len = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    return q_len, k_len, draw(masks(q_len, k_len)), draw(st.none() | masks(q_len, k_len, with_window=False))


def some(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(4)) > 0.4


PARTS = {
    "keys": AttentionMask(keys=some(BATCH, 6)),
    "keys of all rows": AttentionMask(keys=some(1, 6)),
    "causal": AttentionMask(causal=True),
    "window": window_mask(2, 1),
    "narrow window": window_mask(1, 2),
    "dilated window": window_mask(2, 1, dilation=2),
    "window and global keys": window_mask(1, global_keys=some(BATCH, 6)),
    "segments": AttentionMask(segments=(torch.tensor([[0, 0, 1, 2], [3, 0, 0, 1]]), torch.arange(6).expand(2, 6) // 2)),
    "negative segments": AttentionMask(
        segments=(torch.tensor([[-2, -1, 0, 1]]), torch.tensor([[-1, 1, -2, 0, 1, -2]]))
    ),
    "dense": AttentionMask(dense=some(BATCH, HEADS, 4, 6)),
    "dense of one query": AttentionMask(dense=some(1, HEADS, 1, 6)),
    "size": AttentionMask(size=(4, 6)),
}


@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("second", PARTS)
def test_every_two_parts_combine_to_what_both_allow(first, second):
    a, b = PARTS[first], PARTS[second]
    windows = [mask.window for mask in (a, b) if mask.window]
    if len(windows) == 2 and (("dilated" in first + second and first != second) or "global" in first + second):
        with pytest.raises(ValueError, match="same dilation and no global keys"):
            a & b
    else:
        assert torch.equal((a & b).to_dense(4, 6).expand(BATCH, HEADS, 4, 6), oracle([a, b], 4, 6))


@settings(deadline=None, max_examples=150)
@given(sized_masks())
def test_the_dense_form_and_the_combination_are_what_the_words_say(drawn):
    q_len, k_len, mask, other = drawn
    together = mask if other is None else mask & other
    expected = oracle([mask] if other is None else [mask, other], q_len, k_len)
    dense = together.to_dense(q_len, k_len)
    assert dense.dtype == torch.bool
    assert torch.equal(dense.expand(BATCH, HEADS, q_len, k_len), expected)


@settings(deadline=None, max_examples=150)
@given(drawn=sized_masks(), seed=st.integers(0, 100))
def test_attend_on_both_paths_equals_the_formula_under_any_mask(drawn, seed):
    q_len, k_len, mask, other = drawn
    mask = mask if other is None else mask & other
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(BATCH, HEADS, n, WIDTH, generator=generator).requires_grad_() for n in (q_len, k_len, k_len)]
    allowed = mask.to_dense(q_len, k_len)
    expected_weights, expected = formula(*inputs, allowed)
    wanted = torch.autograd.grad(expected.sum(), inputs)
    weights = attention_weights(inputs[0], inputs[1], mask=mask)
    torch.testing.assert_close(weights.double(), expected_weights, atol=1e-5, rtol=1e-5)
    for fused in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "_fused_is_faster", lambda *_, fused=fused: fused)
            output = attend(*inputs, mask=mask)
        torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=1e-5)
        for have, want in zip(torch.autograd.grad(output.sum(), inputs), wanted, strict=True):
            torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-4)


@settings(deadline=None, max_examples=60)
@given(
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(1, 3),
)
def test_two_windows_with_one_dilation_combine(first, second, dilation):
    a, b = window_mask(*first, dilation=dilation), window_mask(*second, dilation=dilation)
    assert torch.equal((a & b).to_dense(5, 7), a.to_dense(5, 7) & b.to_dense(5, 7))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: AttentionMask(keys=x),
        lambda x: AttentionMask(dense=x[None, None]),
        lambda x: Window(1, 1, global_keys=x),
        lambda x: as_mask(x[None, None]),
    ],
    ids=["keys", "dense", "global keys", "tensor"],
)
def test_other_dtypes_than_bool_are_refused_with_the_way_to_convert(make, dtype):
    with pytest.raises(ValueError, match=r"True means 'may attend', got torch\..*use ~mask"):
        make(torch.ones(2, 5, dtype=dtype))


@pytest.mark.parametrize("shape", [(5,), (2, 5), (5, 5), (2, 5, 5), (1, 1, 2, 5, 5)], ids=str)
def test_tensors_that_are_not_four_dimensional_are_refused_with_the_constructors(shape):
    with pytest.raises(ValueError, match="ambiguous") as refused:
        as_mask(torch.ones(shape, dtype=torch.bool))
    for constructor in ("AttentionMask(keys=mask)", "look_ahead_mask(seq_len)", "dense=mask[None, None]"):
        assert constructor in str(refused.value)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: AttentionMask(keys=torch.ones(5, dtype=torch.bool)), r"\(B, Tk\), got \(5,\)"),
        (lambda: AttentionMask(dense=torch.ones(2, 5, dtype=torch.bool)), r"Tk\), got \(2, 5\)"),
        (lambda: AttentionMask(segments=(torch.ones(5), torch.ones(2, 5))), r"\(5,\), \(2, 5\)"),
    ],
    ids=["keys", "dense", "segments"],
)
def test_fields_of_another_rank_are_refused(make, shape):
    with pytest.raises(ValueError, match=shape):
        make()


def ones(*shape):
    return torch.ones(shape, dtype=torch.bool)


@pytest.mark.parametrize(
    "mask",
    [
        AttentionMask(keys=ones(2, 1)),
        AttentionMask(dense=ones(1, 1, 1, 1)),
        AttentionMask(dense=ones(1, 1, 4, 7)),
        AttentionMask(keys=ones(2, 1), dense=ones(1, 1, 1, 7)),
        AttentionMask(keys=ones(2, 7), dense=ones(1, 1, 1, 1)),
        AttentionMask(segments=(ones(2, 5), ones(2, 1))),
        AttentionMask(segments=(ones(2, 1), ones(2, 7))),
        AttentionMask(keys=ones(2, 7), size=(5, 5)),
        window_mask(2, global_keys=ones(2, 1)),
        window_mask(2, global_keys=ones(2, 8)),
        look_ahead_mask(5),
        look_ahead_mask(7),
    ],
    ids=lambda mask: " ".join(name for name, field in vars(mask).items() if field is not None and field is not False),
)
def test_lengths_that_disagree_are_refused_and_never_broadcast(mask):
    with pytest.raises(ValueError, match=r"\(5, 7\)"):
        mask.to_dense(5, 7)


def test_masks_of_different_sizes_and_other_types_are_not_combined():
    with pytest.raises(ValueError, match=r"\(4, 4\) and \(5, 5\)"):
        look_ahead_mask(4) & look_ahead_mask(5)
    with pytest.raises(TypeError, match="with a Tensor"):
        AttentionMask().__and__(torch.ones(2, 5, dtype=torch.bool))


@pytest.mark.parametrize("arguments", [(-1, 0), (0, -1), (1, 1, 0)], ids=str)
def test_windows_without_sense_are_refused(arguments):
    with pytest.raises(ValueError, match="left >= 0"):
        Window(*arguments)


def test_padding_mask_is_true_on_real_keys():
    mask = padding_mask(torch.tensor([3, 0, 1]), 4)
    assert mask.keys.tolist() == [[True] * 3 + [False], [False] * 4, [True] + [False] * 3]
    assert padding_mask(torch.tensor([3, 1])).keys.shape == (2, 3)
    for lengths, width in (([5], 4), ([-1], 4)):
        with pytest.raises(ValueError, match=r"between 0 and max_len 4"):
            padding_mask(torch.tensor(lengths), width)


def test_look_ahead_mask_is_the_lower_triangle_of_its_length():
    assert torch.equal(look_ahead_mask(4).to_dense()[0, 0], torch.ones(4, 4, dtype=torch.bool).tril())


def test_lengths_may_be_left_out_where_the_mask_knows_them():
    keys = torch.tensor([[True, False, True]])
    assert (look_ahead_mask(3) & AttentionMask(keys=keys)).to_dense().shape == (1, 1, 3, 3)
    with pytest.raises(ValueError, match="give q_len and k_len"):
        AttentionMask(causal=True).to_dense()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_segments_of_any_integer_type_combine_exactly(dtype):
    a, b = torch.tensor([[0, 1, 1, 0]]).to(dtype), torch.tensor([[1, 1, 0, 0]]).to(dtype)
    a, b = (a, b) if dtype == torch.bool else (a * 200 if dtype == torch.uint8 else a * 100_000, b * 100)
    first, second = AttentionMask(segments=(a, a)), AttentionMask(segments=(b, b))
    assert torch.equal((first & second).to_dense(4, 4), first.to_dense(4, 4) & second.to_dense(4, 4))
