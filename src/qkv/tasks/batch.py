"""What a task hands to a model and to its loss.

Letters: B batch, T time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """`inputs` are the model's keyword arguments (masks (B, T) bool, True on real tokens), `targets` what to say.

    n_targets counts the targets that the loss is summed over, by their rows' `weights` (B,) where they do not all count
    1; n_tokens counts all real tokens in and out.
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    n_targets: float
    n_tokens: int
    weights: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in self.inputs.items()}
        weights = None if self.weights is None else self.weights.to(device, non_blocking=True)
        targets = self.targets.to(device, non_blocking=True)
        return Batch(moved, targets, self.n_targets, self.n_tokens, weights)
