"""Heads: pooled over real tokens only; and which model carries which."""

import pytest
import torch
from torch.testing import assert_close

from qkv.errors import UserError
from qkv.models.heads import pooled
from qkv.models.recurrent import LastStates
from qkv.models.registry import find

STATES = torch.randn(3, 6, 4)
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0]]).bool()


@pytest.mark.parametrize(
    ("how", "expected"),
    [("mean", lambda x: x.mean(0)), ("max", lambda x: x.amax(0)), ("first", lambda x: x[0]), ("last", lambda x: x[-1])],
)
def test_pooling_is_over_real_tokens_and_an_empty_row_is_zero(how, expected):
    found = pooled(STATES, MASK, how)
    assert_close(found[0], expected(STATES[0]))
    assert_close(found[1], expected(STATES[1, 2:5]))
    assert (found[2] == 0).all()
    assert_close(pooled(STATES, None, how)[1], expected(STATES[1]))


def test_gradients_reach_real_tokens_only():
    for how in ("mean", "max", "first", "last"):
        x = STATES.clone().requires_grad_()
        pooled(x, MASK, how).square().sum().backward()
        assert x.grad.isfinite().all()
        assert (x.grad[~MASK] == 0).all()
        assert (x.grad[MASK] != 0).any()


def test_the_ends_of_both_directions_are_read():
    head = LastStates(2, True, 3, 0.0).eval()
    ends = torch.cat([STATES[1, 4, :2], STATES[1, 2, 2:]])
    assert_close(head(STATES, MASK)[1], head.projection(ends))


def test_a_head_that_a_model_has_not_is_refused_with_the_models_that_have():
    with pytest.raises(UserError, match="the model cnn has no per_token head.*lstm.*tcn|tcn.*lstm"):
        find("cnn").check_head("per_token")
    find("lstm").check_head("next_token")


@pytest.mark.parametrize("how", ["mean", "max", "first", "last"])
@pytest.mark.parametrize(("left", "right"), [(0, 3), (3, 0), (2, 2)])
def test_padding_on_either_side_changes_no_pooling(how, left, right):
    x = torch.randn(2, 4, 5) - 3  # below zero, where zeros at padding would be the maximum
    padded = torch.full((2, left + 4 + right, 5), 100.0)
    padded[:, left : left + 4] = x
    mask = torch.zeros(padded.shape[:2], dtype=torch.bool)
    mask[:, left : left + 4] = True
    assert_close(pooled(padded, mask, how), pooled(x, None, how))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_last_states_of_an_empty_row_are_the_bias_and_of_one_direction_the_last_token(bidirectional):
    states, head = torch.randn(3, 6, 4), LastStates(2 if bidirectional else 4, bidirectional, 3, 0.0).eval()
    found = head(states, MASK)
    assert_close(found[2], head.projection.bias)
    if not bidirectional:
        assert_close(found[1], head.projection(states[1, 4]))


def test_an_entry_refuses_before_it_builds():
    with pytest.raises(UserError, match="the model ngrams has no next_token head"):
        find("ngrams").build("next_token", None)
