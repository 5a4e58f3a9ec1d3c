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

    n_targets counts the targets that the loss is summed over, n_tokens all real tokens in and out.
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    n_targets: int
    n_tokens: int

    def to(self, device: torch.device) -> Batch:
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in self.inputs.items()}
        return Batch(moved, self.targets.to(device, non_blocking=True), self.n_targets, self.n_tokens)
