"""The small data set, a run on it, and models whose answers end at different steps."""

import importlib.util
from pathlib import Path

import jaxtyping
import pytest
import torch

from qkv.data.symbols import EOS
from qkv.models.encoder_decoder import EncoderDecoderConfig, build

_spec = importlib.util.spec_from_file_location("dictionary", Path(__file__).parents[1] / "dictionary.py")
_dictionary = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_dictionary)

words, words_cache = _dictionary.words, _dictionary.words_cache
finished_run, run_copy = _dictionary.finished_run, _dictionary.run_copy


@pytest.fixture(autouse=True)
def no_checked_shapes():
    """Without the enforced annotations: the size of a tensor in tracing is not an int to beartype."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def random_model():
    """A function that makes a small model of given settings whose answers differ much and end now and then."""

    def make(n_source=30, n_target=30, **settings):
        torch.manual_seed(5)
        config = EncoderDecoderConfig(d_model=32, n_heads=4, d_ff=48, n_layers=2, **settings)
        model = build(config, n_source, n_target).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.mul_(2.0) if weight.dim() > 1 and "tokens" not in name else weight.add_(
                    0.1 * torch.randn_like(weight)
                )
            model.head.projection.bias[EOS] += 2.0
        return model

    return make
