"""Recurrent layers as ONNX has them: torch's exporter would write one node for each step.

Letters: B batch, T time, D width of the input, H width of a state, both directions together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from qkv.nn.recurrent import Recurrent, RecurrentState

_GATES = {"rnn": (0,), "gru": (1, 0, 2), "lstm": (0, 3, 1, 2)}
"""The place in torch's weights of each gate, in the order of ONNX: GRU z, r, n; LSTM i, o, f, c."""


class Cells(nn.Module):
    """`Recurrent` in eval mode, begun with zeros, for rows whose padding is on the right."""

    def __init__(self, layers: Recurrent):
        super().__init__()
        self.cell, self.d_hidden, self.directions = layers.cell, layers.d_hidden, 1 + layers.bidirectional
        self.n_layers = len(layers.layers)
        for number, layer in enumerate(layers.layers):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                both = [getattr(layer, f"{name}_l0{end}") for end in ("", "_reverse")[: self.directions]]
                self.register_buffer(f"{name}_{number}", torch.stack([self._ordered(one.detach()) for one in both]))

    def _ordered(self, weight: Tensor) -> Tensor:
        gates = weight.split(self.d_hidden)
        return torch.cat([gates[place] for place in _GATES[self.cell]])

    def forward(
        self, x: Tensor, mask: Tensor, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState | None]:
        """States of all tokens, 0 at padding, (B, T, H); no last states."""
        lengths = mask.sum(1).to(torch.int32)  # (B,)
        x = x.transpose(0, 1)  # (T, B, D)
        for number in range(self.n_layers):
            x = self._layer(x, number, lengths)  # (T, B, H)
        return x.transpose(0, 1), None

    def _layer(self, x: Tensor, number: int, lengths: Tensor) -> Tensor:
        weight, inner, bias, inner_bias = (
            getattr(self, f"{name}_{number}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        steps, batch = x.size(0), x.size(1)
        ends: Sequence[Sequence[int | torch.SymInt]] = [(self.directions, batch, self.d_hidden)] * (
            1 + (self.cell == "lstm")
        )
        states, *_ = torch.onnx.ops.symbolic_multi_out(
            self.cell.upper(),
            (x, weight, inner, torch.cat([bias, inner_bias], 1), lengths),
            {
                "hidden_size": self.d_hidden,
                "direction": "bidirectional" if self.directions == 2 else "forward",
                **({"linear_before_reset": 1} if self.cell == "gru" else {}),
            },
            dtypes=[x.dtype] * (1 + len(ends)),
            shapes=[(steps, self.directions, batch, self.d_hidden), *ends],
        )
        return states.transpose(1, 2).reshape(steps, batch, self.directions * self.d_hidden)  # (T, B, H)
