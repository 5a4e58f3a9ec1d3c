"""The temporal convolutional network: causal, dilated, residual (Bai, Kolter and Koltun 2018).

Letters: B batch, T time, D d_model, H d_hidden, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from qkv.models.encoder_only import EncoderOnly
from qkv.models.heads import PerToken, Pooled
from qkv.nn.convolution import CausalBlock
from qkv.nn.positions import Embedding, Positions, real_positions


@dataclass(frozen=True)
class TcnConfig:
    """A TCN. Block i has dilation 2**i, so that n_layers of them see 1 + 2 (kernel - 1) (2**n_layers - 1) positions.

    d_hidden  width of the blocks
    pooling   of a text: the mean or the maximum of its tokens, or the last one, which has seen all
    """

    d_model: int = 128
    d_hidden: int = 128
    n_layers: int = 4
    kernel: int = 3
    dropout: float = 0.2
    pooling: Literal["mean", "max", "last"] = "max"

    def __post_init__(self):
        for name in ("d_model", "d_hidden", "n_layers", "kernel"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be 1 or more")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout {self.dropout}: must be between 0 and 1, and 1 itself leaves nothing")

    @property
    def reach(self) -> int:
        """Positions that an output sees, its own one included."""
        return 1 + 2 * (self.kernel - 1) * (2**self.n_layers - 1)


class TcnEncoder(nn.Module):
    """Token vectors and causal blocks: a state knows of its own and earlier tokens, up to `TcnConfig.reach`."""

    def __init__(self, embedding: Embedding, blocks: list[CausalBlock]):
        super().__init__()
        self.embedding = embedding
        self.blocks = nn.ModuleList(blocks)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T H"]:
        """States of all tokens, 0 at padding, which may stand on either side (`mask` True on real tokens)."""
        x = self.embedding(tokens, real_positions(mask, tokens.size(1), tokens.device), segments)
        for block in self.blocks:
            x = block(x, mask)
        return x


def encoder(config: TcnConfig, n_tokens: int, n_segments: int = 1) -> TcnEncoder:
    """The body for a vocabulary of `n_tokens`."""
    embedding = Embedding(n_tokens, config.d_model, Positions(), config.dropout, n_segments=n_segments)
    widths = [config.d_model, *[config.d_hidden] * config.n_layers]
    return TcnEncoder(
        embedding,
        [CausalBlock(widths[i], widths[i + 1], config.kernel, 2**i, config.dropout) for i in range(config.n_layers)],
    )


def build_pooled(config: TcnConfig, n_tokens: int, n_labels: int, n_segments: int = 1) -> EncoderOnly:
    """A classifier of texts: logits (B, C)."""
    head = Pooled(config.d_hidden, n_labels, config.pooling, config.dropout)
    return EncoderOnly(encoder(config, n_tokens, n_segments), head)


def build_per_token(config: TcnConfig, n_tokens: int, n_labels: int, n_segments: int = 1) -> EncoderOnly:
    """A classifier of tokens, each by what stands before it: logits (B, T, C)."""
    return EncoderOnly(encoder(config, n_tokens, n_segments), PerToken(config.d_hidden, n_labels, config.dropout))
