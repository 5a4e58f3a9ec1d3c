"""Heads: states in, what the task asks for out.

Letters: B batch, T time, D d_model, V vocabulary.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


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
