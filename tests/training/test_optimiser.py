"""AdamW's groups and the shape of the learning rate over a run."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qkv.models.encoder_decoder import EncoderDecoderConfig, build
from qkv.training.config import TrainingConfig
from qkv.training.optimiser import learning_rate, make_optimiser


def rates(steps, **settings):
    return [learning_rate(TrainingConfig(**settings), step, steps) for step in range(steps)]


def test_warm_up_rises_in_equal_steps_to_the_highest_rate():
    found = rates(1000, lr=0.5, warmup=100, schedule="constant")
    assert found[:100] == pytest.approx([0.5 * (step + 1) / 100 for step in range(100)])
    assert set(found[100:]) == {0.5}


def test_cosine_falls_from_the_highest_rate_to_almost_nothing():
    found = rates(1000, lr=0.5, warmup=100, schedule="cosine")
    wanted = [0.25 * (1 + math.cos(math.pi * (step - 100) / 900)) for step in range(100, 1000)]
    assert found[100:] == pytest.approx(wanted)
    assert 0 < found[-1] < 1e-5
    assert found[100 + 450] == pytest.approx(0.25)


def test_inverse_square_root_is_that_of_the_paper():
    """Vaswani et al. 2017, equation 3, with steps counted from 1, scaled to reach `lr` at the end of warm-up."""
    found = rates(5000, lr=0.5, warmup=400, schedule="inverse_sqrt")
    scale = 0.5 * math.sqrt(400)
    wanted = [scale * min(n**-0.5, n * 400**-1.5) for n in range(1, 5001)]
    assert found == pytest.approx(wanted)
    assert rates(3, lr=0.5, warmup=0, schedule="inverse_sqrt") == pytest.approx([0.5, 0.5 / 2**0.5, 0.5 / 3**0.5])


@given(
    st.integers(1, 300), st.integers(0, 400), st.sampled_from(["cosine", "inverse_sqrt", "constant"]),
    st.floats(1e-6, 10.0),
)  # fmt: skip
def test_the_rate_is_positive_never_above_lr_and_reaches_it(steps, warmup, schedule, lr):
    found = rates(steps, lr=lr, warmup=warmup, schedule=schedule)
    assert all(0 < rate <= lr * (1 + 1e-12) for rate in found)
    assert max(found) == pytest.approx(lr)
    top = found.index(max(found))
    assert found[: top + 1] == sorted(found[: top + 1])
    assert found[top:] == sorted(found[top:], reverse=True)


def test_a_short_run_warms_up_over_half_of_it_at_most():
    found = rates(10, lr=1.0, warmup=200, schedule="constant")
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("tied", ["none", "output", "all"])
def test_only_matrices_decay_not_norms_biases_or_embeddings(tied):
    model = build(EncoderDecoderConfig(d_model=8, n_heads=2, d_ff=8, n_layers=1, tied=tied), 9, 9)
    optimiser = make_optimiser(model, TrainingConfig(lr=0.1, weight_decay=0.5))
    grouped = [id(p) for group in optimiser.param_groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for name, parameter in model.named_parameters():
        factor = 0.95 if parameter.ndim > 1 and id(parameter) not in tables else 1.0
        assert torch.allclose(parameter, before[name] * factor, atol=1e-7), name


def test_a_model_without_matrices_can_be_optimised():
    model = nn.LayerNorm(4)
    optimiser = make_optimiser(model, TrainingConfig())
    assert [len(group["params"]) for group in optimiser.param_groups] == [2]


def test_one_step_is_adamw():
    """Loshchilov and Hutter 2019, algorithm 2, with betas 0.9 and 0.98, in float64."""
    model = nn.Linear(3, 2, bias=False)
    before, gradients = model.weight.detach().double(), torch.randn(2, 2, 3).double()
    optimiser = make_optimiser(model, TrainingConfig(lr=0.01, weight_decay=0.1))
    wanted, m, v = before.clone(), torch.zeros(2, 3).double(), torch.zeros(2, 3).double()
    for t, gradient in enumerate(gradients, 1):
        model.weight.grad = gradient.float()
        optimiser.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.98 * v + 0.02 * gradient**2
        update = (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-8)
        wanted = wanted - 0.01 * (update + 0.1 * wanted)
    assert torch.allclose(model.weight.double(), wanted, atol=1e-6)
