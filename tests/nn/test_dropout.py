"""Cheap dropout draws from the same distribution as any other; only the draw is cheap."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from qkv.nn.dropout import Dropout, dropout, keep_mask

N = 1 << 20
SPREAD = 5.0  # standard deviations allowed: one run in a million fails by chance, and the seed is fixed


def within(count: float, n: int, p: float) -> bool:
    """Is `count` of `n` what a binomial of probability p gives?"""
    return abs(count - n * p) < SPREAD * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("p", [0.01, 0.1, 0.3, 0.5, 0.9])
def test_the_rate_is_p(p):
    assert within((1 - keep_mask(torch.Size([N]), p)).sum().item(), N, p)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_the_four_lanes_of_a_draw_have_the_same_rate(p):
    for lane in (1 - keep_mask(torch.Size([N // 4, 4]), p)).sum(0).tolist():
        assert within(lane, N // 4, p)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_neighbours_and_lanes_are_independent(p):
    dropped = (1 - keep_mask(torch.Size([N]), p)).double() - p
    for distance in (1, 2, 3, 4, 5, 8, 64):
        correlation = (dropped[:-distance] * dropped[distance:]).mean() / (p * (1 - p))
        assert abs(correlation) < SPREAD / math.sqrt(N)
    lanes = torch.corrcoef(dropped.view(-1, 4).T)
    assert (lanes - torch.eye(4)).abs().max() < SPREAD / math.sqrt(N / 4)


def test_two_draws_are_independent():
    first, second = ((1 - keep_mask(torch.Size([N]), 0.5)).double() - 0.5 for _ in range(2))
    assert abs((first * second).mean() / 0.25) < SPREAD / math.sqrt(N)


@pytest.mark.parametrize("p", [1e-3, 1 / 3, 0.1, 0.999])
def test_the_scale_follows_the_rate_that_is_drawn(p):
    drawn = round(p * 65536) / 65536
    output = dropout(torch.ones(N), p)
    kept = output[output != 0]
    assert_close(kept, torch.full_like(kept, 1 / (1 - drawn)), atol=0, rtol=1e-6)
    assert abs(p - drawn) <= 0.5 / 65536
    assert within(N - kept.numel(), N, drawn)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (5, 7), (2, 0, 3), (2, 3, 5, 7)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_any_shape_and_type_stays_what_it_is(shape, dtype):
    output = dropout(torch.ones(shape, dtype=dtype), 0.5)
    assert output.shape == shape
    assert output.dtype == dtype
    assert ((output == 0) | (output == 2)).all()


def test_a_transposed_input_is_dropped_like_its_values():
    x = torch.randn(40, 30).T
    output = dropout(x, 0.5)
    assert_close(output, torch.where(output == 0, 0.0, 2 * x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_gradient_is_the_mask(dtype):
    x = torch.randn(1000, dtype=dtype, requires_grad=True)
    output = dropout(x, 0.3)
    output.sum().backward()
    assert_close(x.grad, (output / x).detach(), atol=1e-6, rtol=1e-6)
    assert 0 < (x.grad == 0).sum() < 1000


def test_one_seed_gives_one_result():
    x = torch.ones(1000)
    first, second, again = (torch.manual_seed(seed) and dropout(x, 0.4) for seed in (7, 8, 7))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_eval_is_the_identity_and_draws_nothing():
    x = torch.randn(100)
    before = torch.get_rng_state()
    assert dropout(x, 0.5, training=False) is x
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(Dropout(0.5)(x), x)


@pytest.mark.parametrize("p", [1.0, 1 - 1e-9])
def test_everything_can_be_dropped(p):
    x = torch.randn(100, requires_grad=True)
    output = dropout(x, p)
    output.sum().backward()
    assert (output == 0).all()
    assert (x.grad == 0).all()


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(p):
    for use in (lambda: dropout(torch.ones(3), p), lambda: Dropout(p), lambda: dropout(torch.ones(3), p, False)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            use()
