"""Which precision the products run in, and that deciding it changes nothing else."""

import re
import time

import pytest
import torch
from torch import nn

from qkv.training import precision
from qkv.training.precision import Precision, choose_precision, matrix_rate

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_precision_that_was_asked_for_is_taken(name):
    chosen = choose_precision(name, CPU)
    assert (chosen.name, chosen.dtype, chosen.reason) == (name, getattr(torch, name), "as asked")


def test_auto_times_both_in_a_moment_says_what_it_found_and_draws_no_random_numbers():
    before, start = torch.get_rng_state(), time.perf_counter()
    chosen = choose_precision("auto", CPU)
    assert time.perf_counter() - start < 3.0  # also where bfloat16 has no arithmetic of its own
    assert torch.equal(torch.get_rng_state(), before)
    found = re.fullmatch(r"matrix products here: bfloat16 (\d+), float32 (\d+) GFLOP/s", chosen.reason)
    bfloat16, float32 = map(int, found.groups())
    assert float32 > 0
    if not 1.4 < bfloat16 / float32 < 1.6:  # else the rounded figures could tell either
        assert chosen.name == ("bfloat16" if bfloat16 / float32 >= 1.5 else "float32")


@pytest.mark.parametrize(("ratio", "name"), [(0.3, "float32"), (1.4, "float32"), (1.6, "bfloat16"), (9.0, "bfloat16")])
def test_auto_takes_bfloat16_where_it_is_clearly_quicker(monkeypatch, ratio, name):
    rates = {torch.float32: 1e11, torch.bfloat16: ratio * 1e11}
    monkeypatch.setattr(precision, "matrix_rate", lambda dtype, *_: rates[dtype])
    assert choose_precision("auto", CPU).name == name


def test_a_rate_is_a_number_of_operations_a_second():
    assert 1e7 < matrix_rate(torch.float32, CPU, rows=256, width=256) < 1e14


def test_float32_is_exact_and_bfloat16_keeps_the_weights_in_float32():
    model, x = nn.Linear(64, 64), torch.randn(8, 64)
    wanted = model(x)
    with Precision(torch.float32, "").autocast(CPU):
        assert torch.equal(model(x), wanted)
    with Precision(torch.bfloat16, "").autocast(CPU):
        product = model(x)
        assert product.dtype == torch.bfloat16
    assert model.weight.dtype == torch.float32
    assert torch.allclose(product.float(), wanted, atol=0.05)
    assert not torch.equal(product.float(), wanted)
