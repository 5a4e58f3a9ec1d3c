"""Convolutions along time whose padding never leaks: filters over n-grams, and causal dilated blocks.

Letters: B batch, T time, D width of a token, K kernel size, W number of filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from qkv.nn.dropout import Dropout


def real(mask: Tensor | None, x: Tensor) -> Bool[Tensor, "B T"]:
    """`mask`, or one of ones for x (B, T, D)."""
    return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask


class NGramConvolution(nn.Module):
    """Filters of several widths over neighbouring tokens, each at its strongest place (Kim 2014, equations 1 to 4).

    A window counts where it begins on a real token; what it reaches behind the last one is 0. So a text shorter than a
    filter has one window, and padding on either side changes nothing. A row without a real token gives 0.
    """

    def __init__(self, d_in: int, n_filters: int, widths: Sequence[int]):
        super().__init__()
        if not widths or min(widths) < 1:
            raise ValueError(f"widths {', '.join(map(str, widths))}: each must be 1 or more")
        self.widths = tuple(widths)
        self.filters = nn.ModuleList(nn.Conv1d(d_in, n_filters, width) for width in widths)

    def forward(self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B W_all"]:
        """One number a filter: relu of its highest response. `mask` is True on real tokens."""
        there = real(mask, x)
        channels = (x * there[..., None]).transpose(1, 2)  # (B, D, T)
        found: list[Tensor] = []
        for width, convolution in zip(self.widths, self.filters, strict=True):
            heard = convolution(F.pad(channels, (0, width - 1)))  # (B, W, T)
            begins = _begins(there, width)[:, None]  # (B, 1, T)
            found.append(heard.masked_fill(~begins, -torch.inf).amax(2).clamp_min(0.0))  # (B, W)
        return torch.cat(found, 1)


def _begins(there: Tensor, width: int) -> Tensor:
    """Where a window counts, (B, T): wholly on real tokens, or on the first token of a text that is too short."""
    length = there.sum(1, keepdim=True)  # (B, 1)
    place = there.cumsum(1)  # 1 on the first real token
    return there & ((place <= length - width + 1) | (place == 1))


class CausalBlock(nn.Module):
    """Two causal convolutions with dilation, weight norm, relu and dropout, around which the input is added.

    Bai, Kolter and Koltun 2018, section 3.3: o = relu(x + F(x)), with a 1x1 convolution of x where the widths differ.
    """

    def __init__(self, d_in: int, d_out: int, kernel: int, dilation: int, dropout: float = 0.1):
        super().__init__()
        if kernel < 1 or dilation < 1:
            raise ValueError(f"kernel {kernel} and dilation {dilation}: both must be 1 or more")
        self.reach = (kernel - 1) * dilation
        self.first = _convolution(d_in, d_out, kernel, dilation)
        self.second = _convolution(d_out, d_out, kernel, dilation)
        self.shortcut = nn.Linear(d_in, d_out) if d_in != d_out else nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T D_out"]:
        """States that know of their own and earlier positions. At padding (mask False) they are 0."""
        there = real(mask, x)[..., None]  # (B, T, 1)
        x = x * there
        inside = self.dropout(self._causal(self.first, x).relu()) * there
        inside = self.dropout(self._causal(self.second, inside).relu())
        return (cast(Tensor, self.shortcut(x)) + inside).relu() * there

    def _causal(self, convolution: nn.Module, x: Tensor) -> Tensor:
        padded = F.pad(x.transpose(1, 2), (self.reach, 0))  # (B, D, reach + T)
        return cast(Tensor, convolution(padded)).transpose(1, 2)  # (B, T, D_out)


def _convolution(d_in: int, d_out: int, kernel: int, dilation: int) -> nn.Module:
    # Drawn before weight norm splits it into length and direction: the length is then that of what was drawn.
    made = nn.Conv1d(d_in, d_out, kernel, dilation=dilation)
    nn.init.kaiming_normal_(made.weight, nonlinearity="relu")
    nn.init.zeros_(cast(Tensor, made.bias))
    return weight_norm(made)
