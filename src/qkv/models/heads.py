"""Heads: states in, what the task asks for out.

Letters: B batch, T time, D d_model, V vocabulary, C classes.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from qkv.nn.dropout import Dropout

Pooling = Literal["mean", "max", "first", "last"]


class NextToken(nn.Module):
    """Logits over the vocabulary at each position.

    With `tied` the matrix is the very tensor of that embedding (Press and Wolf 2017), so both train as one.
    """

    def __init__(self, d_model: int, n_tokens: int, tied: nn.Embedding | None = None):
        super().__init__()
        self.projection = nn.Linear(d_model, n_tokens)
        nn.init.normal_(self.projection.weight, std=d_model**-0.5)
        nn.init.zeros_(self.projection.bias)
        if tied is not None:
            if tied.weight.shape != self.projection.weight.shape:
                raise ValueError(
                    f"cannot tie an embedding of shape {tuple(tied.weight.shape)} to a head of shape "
                    f"{tuple(self.projection.weight.shape)}"
                )
            self.projection.weight = tied.weight

    def forward(self, states: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        return self.projection(states)


def pooled(states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None, how: Pooling) -> Float[Tensor, "B D"]:
    """One vector a row, of its real tokens (mask True) only: their mean, their maximum, the first or the last of them.

    A row without a real token gives 0.
    """
    if mask is None:
        mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)  # (B, T)
    if how == "mean":
        return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)  # (B, D)
    there = mask.any(1, keepdim=True)  # (B, 1)
    if how == "max":
        return states.masked_fill(~mask[..., None], -torch.inf).amax(1).masked_fill(~there, 0.0)  # (B, D)
    steps = mask.to(torch.uint8) if how == "first" else mask.cumsum(1) * mask  # (B, T)
    place = steps.argmax(1)[:, None, None].expand(-1, 1, states.size(2))  # (B, 1, D)
    return states.gather(1, place)[:, 0].masked_fill(~there, 0.0)  # (B, D)


class Pooled(nn.Module):
    """Logits over classes for each row: pooled states, dropout, one matrix."""

    def __init__(self, d_model: int, n_labels: int, how: Pooling = "mean", dropout: float = 0.1):
        super().__init__()
        self.how: Pooling = how
        self.dropout = Dropout(dropout)
        self.projection = nn.Linear(d_model, n_labels)

    def forward(self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B C"]:
        return self.projection(self.dropout(pooled(states, mask, self.how)))


class PerToken(nn.Module):
    """Logits over tags at each position: dropout, one matrix."""

    def __init__(self, d_model: int, n_labels: int, dropout: float = 0.1):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.projection = nn.Linear(d_model, n_labels)

    def forward(
        self, states: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T C"]:
        return self.projection(self.dropout(states))
