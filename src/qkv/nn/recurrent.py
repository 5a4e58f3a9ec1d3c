"""RNN, GRU and LSTM over rows of different length: packed, so that padding is never read.

Letters: B batch, T time, D width of the input, H width of a state (both directions together), L layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from qkv.nn.dropout import dropout

Cell = Literal["rnn", "gru", "lstm"]

_KERNELS: dict[str, type[nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


@dataclass(frozen=True)
class RecurrentState:
    """The last state of every layer: `hidden` (B, L, H), of an LSTM also `cell` (B, L, H).

    In both directions the first half of H has read the row to its last real token, the second back to its first.
    """

    hidden: Tensor
    cell: Tensor | None = None


class Recurrent(nn.Module):
    """RNN with tanh (Elman 1990), GRU (Cho et al. 2014) or LSTM (Hochreiter and Schmidhuber 1997), in layers.

    Torch's kernels step; rows are packed, one after the other, whichever side their padding is on. Of `d_hidden` each
    direction has all, so that states are twice as wide in both directions.
    """

    def __init__(
        self, cell: Cell, d_in: int, d_hidden: int, n_layers: int = 1, bidirectional: bool = False, p: float = 0.0
    ):
        super().__init__()
        if cell not in _KERNELS:
            raise ValueError(f"unknown cell {cell!r}: rnn, gru or lstm")
        if min(d_in, d_hidden, n_layers) < 1:
            raise ValueError(f"d_in {d_in}, d_hidden {d_hidden}, n_layers {n_layers}: each must be 1 or more")
        self.cell, self.d_hidden, self.bidirectional, self.p = cell, d_hidden, bidirectional, p
        self.d_out = d_hidden * (1 + bidirectional)
        widths = [d_in, *[self.d_out] * (n_layers - 1)]
        kernel: Any = _KERNELS[cell]
        self.layers = nn.ModuleList(
            kernel(width, d_hidden, batch_first=True, bidirectional=bidirectional) for width in widths
        )

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"] | None = None,
        state: RecurrentState | None = None,
    ) -> tuple[Float[Tensor, "B T H"], RecurrentState]:
        """States of all tokens, 0 at padding (mask False), and the last state of each row.

        `state` is where to begin; zeros without it. Real tokens of a row stand side by side. A row without one keeps
        the state that it began with.
        """
        if mask is None or bool(mask.all()):
            return self._run(x, state)
        lengths = mask.sum(1)  # (B,)
        first = mask.to(torch.uint8).argmax(1, keepdim=True)  # (B, 1)
        steps = torch.arange(x.size(1), device=x.device)[None]  # (1, T)
        moved = _take(x, (steps + first) % x.size(1))  # (B, T, D), padding behind
        packed = pack_padded_sequence(moved, lengths.clamp_min(1).cpu(), batch_first=True, enforce_sorted=False)
        states, last = self._run(packed, state, x.size(0))
        padded, _ = pad_packed_sequence(cast(PackedSequence, states), batch_first=True, total_length=x.size(1))
        back = _take(padded, (steps - first) % x.size(1))  # (B, T, H)
        return back * mask[..., None], _kept(last, state, lengths > 0)

    def _run(self, x: Any, state: RecurrentState | None, batch: int | None = None) -> tuple[Any, RecurrentState]:
        count = x.size(0) if batch is None else batch
        hidden: list[Tensor] = []
        cells: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            if number:
                x = self._dropped(x)
            x, last = layer(x, self._begun(state, number, count))
            h, c = last if self.cell == "lstm" else (last, None)
            hidden.append(_flat(h))
            if c is not None:
                cells.append(_flat(c))
        return x, RecurrentState(torch.stack(hidden, 1), torch.stack(cells, 1) if cells else None)  # (B, L, H)

    def _dropped(self, x: Any) -> Any:
        if not self.training or self.p == 0.0:
            return x
        if isinstance(x, PackedSequence):
            return x._replace(data=dropout(x.data, self.p))
        return dropout(x, self.p)

    def _begun(self, state: RecurrentState | None, layer: int, batch: int) -> Any:
        if state is None:
            return None
        parts = [
            _split(part[:, layer], 1 + self.bidirectional) for part in (state.hidden, state.cell) if part is not None
        ]
        return (parts[0], parts[1]) if self.cell == "lstm" else parts[0]


def _take(x: Tensor, places: Tensor) -> Tensor:
    return x.gather(1, places[..., None].expand(-1, -1, x.size(2)))  # (B, T, D)


def _flat(state: Tensor) -> Tensor:
    return state.transpose(0, 1).flatten(1)  # (directions, B, d) -> (B, H)


def _split(state: Tensor, directions: int) -> Tensor:
    return state.view(state.size(0), directions, -1).transpose(0, 1).contiguous()  # (directions, B, d)


def _kept(last: RecurrentState, before: RecurrentState | None, there: Tensor) -> RecurrentState:
    """The last states, those of rows without a real token being the ones before (zeros where there were none)."""

    def kept(new: Tensor | None, old: Tensor | None) -> Tensor | None:
        if new is None:
            return None
        return torch.where(there[:, None, None], new, torch.zeros_like(new) if old is None else old)

    hidden = kept(last.hidden, None if before is None else before.hidden)
    return RecurrentState(cast(Tensor, hidden), kept(last.cell, None if before is None else before.cell))
