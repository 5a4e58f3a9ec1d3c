"""A running average of the weights, evaluated and kept in place of the weights themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from qkv.training.memory import cut_again


class Average:
    """The exponential moving average (EMA) of a model's parameters (Polyak and Juditsky 1992).

    After step t (from 1) each average becomes d * average + (1 - d) * parameter, d = min(decay, (1 + t) / (10 + t)):
    the first steps, far from where training ends, are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay, self._model, self._parameters = decay, model, list(model.parameters())
        self.values = [parameter.detach().clone() for parameter in self._parameters]

    def update(self, step: int) -> None:
        """Takes in the parameters as they are after `step` steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(self.values, [p.detach() for p in self._parameters], step)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model with averaged weights while the block runs."""
        own = [parameter.detach().clone() for parameter in self._parameters]
        self._set(self.values)
        try:
            yield
        finally:
            self._set(own)

    @torch.no_grad()
    def _set(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)
        cut_again(self._model)
