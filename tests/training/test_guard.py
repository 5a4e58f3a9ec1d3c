"""Which module is named when numbers stop being finite: the first one, whatever came of it later."""

import math

import pytest
import torch
from torch import nn

from qkv.errors import UserError
from qkv.training.guard import NotFinite, first_bad_gradient, first_not_finite


class Apply(nn.Module):
    """A module that does one thing."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Inner(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.broken, self.after = Apply(function), nn.Linear(4, 4)

    def forward(self, x):
        return self.after(self.broken(x))


def stack(function):
    return nn.Sequential(nn.Linear(4, 4), Inner(function), nn.Linear(4, 4))


def test_not_finite_is_the_users_to_mend():
    assert issubclass(NotFinite, UserError)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_broken_parameter_is_named_before_any_output(value):
    model = stack(torch.tanh)
    with torch.no_grad():
        model[1].after.weight[2, 1] = value
    named = first_not_finite(model, lambda: model(torch.ones(2, 4)))
    assert named == "the parameter 1.after.weight (the step before this one broke it)"


@pytest.mark.parametrize("function", [lambda x: x / 0, lambda x: (x - 9e9).log(), lambda x: x * 1e38 * 1e38])
def test_the_first_module_whose_output_is_broken_is_named_not_those_that_contain_or_follow_it(function):
    model = stack(function)
    assert first_not_finite(model, lambda: model(torch.ones(2, 4))) == "the output of 1.broken (Apply)"


def test_a_fault_of_the_models_own_forward_is_the_models():
    class Whole(nn.Linear):
        def forward(self, x):
            return super().forward(x) / 0

    model = Whole(4, 4)
    assert first_not_finite(model, lambda: model(torch.ones(2, 4))) == "the output of the model (Whole)"


def test_when_every_output_is_finite_the_rest_is_named():
    model = stack(torch.tanh)
    assert first_not_finite(model, lambda: model(torch.ones(2, 4))) == "the loss itself, or the backward pass"


def test_looking_leaves_no_hooks_and_no_gradients_even_when_the_forward_fails():
    def fail():
        model(torch.ones(2, 4))
        raise RuntimeError("no")

    model = stack(lambda x: x / 0)
    with pytest.raises(RuntimeError, match="no"):
        first_not_finite(model, fail)
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_broken_gradient_is_named_nearest_to_the_output_and_the_others_counted():
    model = stack(lambda x: (x * 0).sqrt())  # 0 forward, infinite backward
    model(torch.ones(2, 4)).sum().backward()
    assert first_bad_gradient(model) == "the gradient of 0.bias (and of 1 other parameters)"


def test_finite_gradients_whose_norm_overflows():
    model = nn.Linear(4, 4)
    model.weight.grad = torch.full((4, 4), 3e38)
    assert first_bad_gradient(model) == "the gradient norm"
