"""Encoder and decoder blocks, with slots that are filled and not flags that are tested.

Letters: B batch, T time (Ts source, Tt target), D d_model, F d_ff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from qkv.nn.attention import MultiHeadAttention
from qkv.nn.dropout import Dropout
from qkv.nn.masks import AttentionMask
from qkv.nn.positions import Placement
from qkv.nn.state import KeyValues

NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
"""Norms by name: LayerNorm (Ba et al. 2016), RMSNorm (Zhang and Sennrich 2019)."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """act(x W_1 + b_1) W_2 + b_2 at each position alone (Vaswani et al. 2017, section 3.3).

    activation "relu" or "gelu" (Hendrycks and Gimpel 2016, exact form).
    """

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu", dropout: float = 0.1):
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.down(self.dropout(self.activation(self.up(x))))  # (B, T, F) inside


class SwiGLU(nn.Module):
    """(silu(x W) * x V) W_2 (Shazeer 2020, equation 6). Three matrices: for equal size take d_ff at 2/3."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.1):
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.down(self.dropout(F.silu(self.gate(x)) * self.up(x)))  # (B, T, F) inside


def feed_forward(d_model: int, d_ff: int, activation: str = "relu", dropout: float = 0.1) -> nn.Module:
    """FeedForward for "relu" and "gelu", SwiGLU for "swiglu"; ValueError for another name."""
    if activation == "swiglu":
        return SwiGLU(d_model, d_ff, dropout)
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}: relu, gelu or swiglu")
    return FeedForward(d_model, d_ff, activation, dropout)


class Residual(nn.Module):
    """after(x + dropout(branch(before(x)))): the slots `before` and `after` hold a norm or nothing.

    Post-norm (Vaswani et al. 2017) fills `after`; pre-norm (Xiong et al. 2020) fills `before`, and then the stack needs
    one more norm at its end. Use `join(x, branch(enter(x)))`.
    """

    def __init__(self, before: nn.Module | None = None, after: nn.Module | None = None, dropout: float = 0.1):
        super().__init__()
        self.before = before or nn.Identity()
        self.after = after or nn.Identity()
        self.dropout = Dropout(dropout)

    def enter(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.before(x)

    def join(self, x: Float[Tensor, "B T D"], branch: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.after(x + self.dropout(branch))


def residual(d_model: int, dropout: float = 0.1, norm: str = "layer", pre_norm: bool = True) -> Residual:
    """A Residual with the named norm in the slot that pre- or post-norm says."""
    made = NORMS[norm](d_model)
    return Residual(before=made, dropout=dropout) if pre_norm else Residual(after=made, dropout=dropout)


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward, each in a residual (Vaswani et al. 2017, section 3.1)."""

    def __init__(self, attention: MultiHeadAttention, feed_forward: nn.Module, residuals: Callable[[], Residual]):
        super().__init__()
        self.attention = attention
        self.attention_residual = residuals()
        self.feed_forward = feed_forward
        self.feed_forward_residual = residuals()

    def forward(
        self, x: Float[Tensor, "B T D"], mask: AttentionMask | None = None, place: Placement | None = None
    ) -> Float[Tensor, "B T D"]:
        inside = self.attention_residual.enter(x)
        x = self.attention_residual.join(x, self.attention(inside, mask=mask, place=place))
        inside = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual.join(x, self.feed_forward(inside))


@dataclass(frozen=True)
class BlockState:
    """What a decoder block keeps: its own keys and values, and those of the memory."""

    own: KeyValues | None = None
    memory: KeyValues | None = None


class DecoderBlock(nn.Module):
    """Masked self-attention, cross-attention, feed-forward, each in a residual (Vaswani et al. 2017, section 3.1).

    Without `cross_attention` it is the block of a decoder-only model.
    """

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention | None,
        feed_forward: nn.Module,
        residuals: Callable[[], Residual],
    ):
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = residuals()
        self.cross_attention = cross_attention
        self.cross_attention_residual = residuals() if cross_attention else None
        self.feed_forward = feed_forward
        self.feed_forward_residual = residuals()

    def forward(
        self,
        x: Float[Tensor, "B Tt D"],
        memory: Float[Tensor, "B Ts D_m"] | None = None,
        *,
        mask: AttentionMask | None = None,
        memory_mask: AttentionMask | None = None,
        place: Placement | None = None,
    ) -> Float[Tensor, "B Tt D"]:
        """All positions at once, as in training. Raises ValueError when a memory is missing or has no reader."""
        self._check(memory)
        inside = self.self_attention_residual.enter(x)
        x = self.self_attention_residual.join(x, self.self_attention(inside, mask=mask, place=place))
        return self._after_own(x, lambda reader, inside: reader(inside, memory, mask=memory_mask))

    def start(self, memory: Float[Tensor, "B Ts D_m"] | None = None) -> BlockState:
        """The state before any token: the memory's keys and values, projected once for all steps."""
        self._check(memory)
        if self.cross_attention is None or memory is None:
            return BlockState()
        return BlockState(memory=self.cross_attention.remember(memory))

    def step(
        self,
        x: Float[Tensor, "B T D"],
        state: BlockState,
        *,
        mask: AttentionMask | None = None,
        memory_mask: AttentionMask | None = None,
        place: Placement | None = None,
    ) -> tuple[Float[Tensor, "B T D"], BlockState]:
        """The next T positions after what `state` keeps: (output, new state)."""
        self._check(state.memory)
        inside = self.self_attention_residual.enter(x)
        read, own = self.self_attention.step(inside, state.own, mask=mask, place=place)
        x = self.self_attention_residual.join(x, read)
        kept = cast(KeyValues, state.memory)  # used only by a block that has a reader, and then `_check` saw it
        x = self._after_own(x, lambda reader, inside: reader.read(inside, kept, mask=memory_mask))
        return x, BlockState(own, state.memory)

    def _after_own(self, x: Tensor, read: Callable[[MultiHeadAttention, Tensor], Tensor]) -> Tensor:
        if self.cross_attention is not None and self.cross_attention_residual is not None:
            inside = self.cross_attention_residual.enter(x)
            x = self.cross_attention_residual.join(x, read(self.cross_attention, inside))
        inside = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual.join(x, self.feed_forward(inside))

    def _check(self, memory: object | None) -> None:
        # Without this, cross-attention without a memory would read the target itself, future included.
        if (self.cross_attention is None) != (memory is None):
            raise ValueError("a decoder block with cross_attention needs a memory, and one without it takes none")
