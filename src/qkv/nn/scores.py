"""What attention compares queries and keys with.

Letters: B batch, H heads, Tq and Tk queries and keys, d width of one head.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn


@runtime_checkable
class Score(Protocol):
    """Compares every query with every key.

    Projections stay outside, so that keys are projected once and not at every decoding step. `dot_scale(d)` is the
    factor on the dot product for heads of width d, which lets a fused kernel stand in; None means that the scores
    must be computed by calling.
    """

    def dot_scale(self, d: int) -> float | None: ...

    def __call__(
        self, query: Float[Tensor, "B H Tq d"], key: Float[Tensor, "B H Tk d"]
    ) -> Float[Tensor, "B H Tq Tk"]: ...


class _Dot:
    """q . k times a scale. In float16 the product is taken in float32: q . k there overflows past 65,504."""

    def __init__(self, name: str, scaled: bool):
        self._name, self._scaled = name, scaled

    def dot_scale(self, d: int) -> float:
        return 1.0 / math.sqrt(d) if self._scaled else 1.0

    def __call__(self, query: Float[Tensor, "B H Tq d"], key: Float[Tensor, "B H Tk d"]) -> Float[Tensor, "B H Tq Tk"]:
        if query.dtype == torch.float16:
            query, key = query.float(), key.float()
        scale = self.dot_scale(query.size(-1))
        return torch.matmul(query if scale == 1.0 else query * scale, key.transpose(-2, -1))

    def __repr__(self) -> str:
        return self._name

    # One object each: a copied or reloaded model still finds the score it was built with.
    def __reduce__(self) -> str:
        return self._name


scaled_dot = _Dot("scaled_dot", scaled=True)
"""q . k / sqrt(d): the variance of q . k is d for unit q and k (Vaswani et al. 2017, section 3.2.1, equation 1)."""

dot = _Dot("dot", scaled=False)
"""q . k (Luong et al. 2015, section 3.1)."""


class Additive(nn.Module):
    """w . tanh(q + k), with q and k already projected (Bahdanau et al. 2015, appendix A.1.2).

    The paper's W_a s and U_a h are the projections of queries and keys; `weight` is its v_a, one vector a head.
    """

    def __init__(self, d_head: int, n_heads: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_heads, d_head))
        bound = 1.0 / math.sqrt(d_head)
        nn.init.uniform_(self.weight, -bound, bound)

    def dot_scale(self, d: int) -> None:
        return None

    def forward(self, query: Float[Tensor, "B H Tq d"], key: Float[Tensor, "B H Tk d"]) -> Float[Tensor, "B H Tq Tk"]:
        pairs = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # (B, H, Tq, Tk, d)
        return torch.einsum("bhqkd,hd->bhqk", pairs, self.weight)
