"""What queries are compared with keys by: formulas written out element by element in float64."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch.testing import assert_close

from qkv.nn.attention import MultiHeadAttention, attend, attention_weights
from qkv.nn.masks import AttentionMask
from qkv.nn.scores import Additive, Score, dot, scaled_dot


def heads(q_len=3, k_len=5, n=2, d=6, dtype=torch.float64):
    return torch.randn(2, n, q_len, d, dtype=dtype), torch.randn(2, n, k_len, d, dtype=dtype)


def test_scaled_dot_and_dot_are_their_formulas():
    query, key = heads()
    expected = (query[:, :, :, None] * key[:, :, None]).sum(-1)
    assert_close(dot(query, key), expected)
    assert_close(scaled_dot(query, key), expected / math.sqrt(6))
    assert (dot.dot_scale(6), scaled_dot.dot_scale(6)) == (1.0, 1 / math.sqrt(6))


@pytest.mark.parametrize("n_vectors", [1, 3])
def test_additive_is_bahdanaus_formula(n_vectors):
    query, key = heads(n=3)
    score = Additive(6, n_vectors).double()
    expected = torch.empty(2, 3, 3, 5, dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, expected.shape)).tolist():
        compared = zip(score.weight[h if n_vectors > 1 else 0], query[b, h, i], key[b, h, j], strict=True)
        expected[b, h, i, j] = sum(v * math.tanh(q + k) for v, q, k in compared)
    assert_close(score(query, key), expected)
    assert score.dot_scale(6) is None


def test_additive_gradients_against_finite_differences():
    query, key = (x[:1, :, :2, :3].requires_grad_() for x in heads())
    score = Additive(3, 2).double()
    assert torch.autograd.gradcheck(
        lambda q, k, w: torch.func.functional_call(score, {"weight": w}, (q, k)), (query, key, score.weight)
    )


@pytest.mark.parametrize("length", [4, 120])
def test_attend_calls_a_score_that_is_no_dot_product(length):
    score = Additive(4, 2)
    query, key = heads(length, length, d=4, dtype=torch.float32)
    mask = AttentionMask(causal=True)
    scores = score(query, key).double().masked_fill(~mask.to_dense(length, length), -math.inf)
    weights = attention_weights(query, key, mask=mask, score=score)
    assert_close(weights.double(), scores.softmax(-1), atol=1e-6, rtol=1e-5)
    value = torch.randn(2, 2, length, 3)
    expected = scores.softmax(-1) @ value.double()
    assert_close(attend(query, key, value, mask=mask, score=score).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("length", [4, 120])
def test_attend_takes_the_unscaled_dot_on_either_path(length):
    query, key = heads(length, length, d=4, dtype=torch.float32)
    value = torch.randn(2, 2, length, 3)
    expected = dot(query.double(), key.double()).softmax(-1) @ value.double()
    assert_close(attend(query, key, value, score=dot).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("d", [4, 64, 256])
def test_the_variance_of_a_dot_product_is_d_and_scaling_makes_it_one(d):
    query, key = heads(200, 200, n=1, d=d, dtype=torch.float32)
    # 80,000 products, of which 2 x 200 vectors are independent: the spread of the estimate is about 10 percent.
    assert dot(query, key).var().item() == pytest.approx(d, rel=0.15)
    assert scaled_dot(query, key).var().item() == pytest.approx(1.0, rel=0.15)


def test_without_scaling_wide_heads_saturate_the_softmax():
    query, key = heads(50, 50, d=256, dtype=torch.float32)
    sharp, soft = (attention_weights(query, key, score=score).amax(-1).mean() for score in (dot, scaled_dot))
    assert sharp > 0.8
    assert soft < 0.3


def test_half_precision_products_do_not_overflow():
    query = torch.full((1, 1, 1, 64), 60.0, dtype=torch.float16)
    assert dot(query, query).item() == 64 * 60.0**2 > torch.finfo(torch.float16).max


@pytest.mark.parametrize("score", [dot, scaled_dot], ids=repr)
def test_a_copied_or_reloaded_score_is_the_same_object(score):
    assert copy.deepcopy(score) is score
    assert pickle.loads(pickle.dumps(score)) is score
    assert copy.deepcopy(MultiHeadAttention(8, 2, score=score)).score is score


def test_scores_are_scores_and_an_additive_one_trains_with_its_module():
    assert all(isinstance(score, Score) for score in (dot, scaled_dot, Additive(4)))
    module = MultiHeadAttention(8, 2, score=Additive(4, 2))
    module(torch.randn(2, 5, 8)).square().sum().backward()
    assert module.state_dict()["score.weight"].shape == (2, 4)
    assert module.score.weight.grad.abs().min() > 0
