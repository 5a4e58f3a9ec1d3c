"""A model that labels texts or tags tokens as one ONNX graph whose batch and length are free.

Letters: B batch, T time, F n-grams, C classes.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.export import Dim

from qkv.data.symbols import PAD
from qkv.export.cells import Cells
from qkv.export.trace import OPSET, exported, without_limits
from qkv.models.ngrams import NGramClassifier
from qkv.models.recurrent import RecurrentEncoder
from qkv.nn.convolution import CausalBlock


def text_graph(model: nn.Module, n_tokens: int, pairs: bool) -> onnx.ModelProto:
    """tokens (B, T) int64, 0 at padding on the right and, of `pairs`, segments (B, T), to logits (B, C) or (B, T, C).

    The model is on the CPU and in eval mode. Raises UserError when torch cannot trace it.
    """
    if isinstance(model, NGramClassifier):
        return _counting(model)
    tokens = torch.tensor([[1, 4, 5, 6, 7], [1, 4, 5, 0, 0], [1, 4, 0, 0, 0]]).clamp(max=n_tokens - 1)
    inputs, names = [tokens], ["tokens"]
    if pairs:
        inputs, names = [tokens, torch.zeros_like(tokens)], ["tokens", "segments"]
    free = [{0: Dim.DYNAMIC, 1: Dim.DYNAMIC}] * len(inputs)
    return exported(_Masked(_traceable(model)), tuple(inputs), free, names, ["logits"])


class _Masked(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        return self.model(tokens, tokens != PAD, segments)


def _traceable(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    without_limits(model)
    for module in [*model.modules()]:
        if isinstance(module, RecurrentEncoder):
            module.layers = Cells(module.layers)  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(module, CausalBlock):
            module.first, module.second = _plain(module.first), _plain(module.second)
    return model


def _plain(convolution: nn.Module) -> nn.Module:
    """A convolution with weight norm as one without: `remove_parametrizations` would spoil the model of the copy."""
    old = cast(nn.Conv1d, convolution)
    new = nn.Conv1d(old.in_channels, old.out_channels, old.kernel_size[0], dilation=old.dilation[0])
    new.weight.data, new.bias = old.weight.data, old.bias
    return new


def _counting(model: NGramClassifier) -> onnx.ModelProto:
    """tf-idf of the known n-grams, and one matrix: the formulas of `NGramClassifier` in ONNX's own operators."""
    digits, codes = model.n_tokens + 1, model.codes.numpy()
    sizes = np.searchsorted([digits**n for n in range(1, model.config.n)], codes, side="right") + 1  # (F,)
    pool = [
        codes[sizes == n, None] // digits ** np.arange(n - 1, -1, -1) % digits - 1 for n in range(1, sizes.max() + 1)
    ]  # of each length n, (F_n, n): the codes are sorted, so that shorter ones come first
    counts = helper.make_node(
        "TfIdfVectorizer", ["tokens"], ["count"], mode="TF", min_gram_length=1, max_gram_length=len(pool),
        max_skip_count=0, ngram_counts=np.cumsum([0, *(part.size for part in pool[:-1])]).tolist(),
        ngram_indexes=list(range(len(codes))), pool_int64s=np.concatenate([part.ravel() for part in pool]).tolist(),
    )  # fmt: skip
    kept: dict[str, Any] = {
        "idf": model.idf, "weight": model.weight, "bias": model.bias, "one": torch.ones(()),
        "tiny": torch.tensor(1e-30), "axis": torch.tensor([1]),
    }  # fmt: skip
    nodes = [
        counts,
        helper.make_node("Max", ["count", "one"], ["at_least_one"]),
        helper.make_node("Log", ["at_least_one"], ["log"]),
        helper.make_node("Min", ["count", "one"], ["there"]),
        helper.make_node("Add", ["there", "log"], ["tf"]),
        helper.make_node("Mul", ["tf", "idf"], ["tf_idf"]),
        helper.make_node("ReduceL2", ["tf_idf", "axis"], ["length"]),
        helper.make_node("Max", ["length", "tiny"], ["divisor"]),  # a text without a known n-gram has the biases alone
        helper.make_node("Div", ["tf_idf", "divisor"], ["x"]),
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes, "ngrams", [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "time"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", model.n_labels])],
        [numpy_helper.from_array(one.detach().numpy(), name) for name, one in kept.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
