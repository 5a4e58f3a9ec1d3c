"""The encoder-only Transformer: classifies texts, tags words, fills in masked ones (Devlin et al. 2019).

Letters: B batch, T time, D d_model, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qkv.models.encoder_only import EncoderOnly
from qkv.models.heads import PerToken, Pooled, Pooling
from qkv.models.transformer import TransformerEncoder, make_positions
from qkv.nn.attention import MultiHeadAttention
from qkv.nn.blocks import NORMS, EncoderBlock, Residual, feed_forward, residual
from qkv.nn.checks import check_heads
from qkv.nn.positions import Embedding


@dataclass(frozen=True)
class TransformerEncoderConfig:
    """An encoder-only Transformer. Sizes are the paper's names.

    pre_norm        norm before each branch and at the end of the stack; false: post-norm, as BERT
    positions       rotary, sinusoidal, learned (up to 512), alibi or none
    pooling         of a text: the mean or the maximum of its tokens, or its first token (BERT's [CLS])
    embedding_norm  a norm right behind the embeddings, as BERT
    n_kv_heads      heads of keys and values; 0: as many as n_heads
    """

    d_model: int = 128
    n_heads: int = 4
    d_ff: int = 512
    n_layers: int = 2
    dropout: float = 0.1
    activation: Literal["relu", "gelu", "swiglu"] = "gelu"
    norm: Literal["layer", "rms"] = "layer"
    pre_norm: bool = True
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = "rotary"
    pooling: Literal["mean", "max", "first"] = "mean"
    embedding_norm: bool = False
    n_kv_heads: int = 0

    def __post_init__(self):
        for name in ("d_model", "n_heads", "d_ff", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be 1 or more")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout {self.dropout}: must be between 0 and 1, and 1 itself leaves nothing")
        if self.n_kv_heads < 0:
            raise ValueError(f"n_kv_heads {self.n_kv_heads}: must not be negative")


def encoder(config: TransformerEncoderConfig, n_tokens: int, n_segments: int = 1) -> TransformerEncoder:
    """The body for a vocabulary of `n_tokens`. Raises ValueError for sizes that do not go together."""
    check_heads(config.d_model, config.n_heads)
    norm = NORMS[config.norm]

    def residuals() -> Residual:
        return residual(config.d_model, config.dropout, config.norm, config.pre_norm)

    def block() -> EncoderBlock:
        attention = MultiHeadAttention(
            config.d_model, config.n_heads, n_kv_heads=config.n_kv_heads or None, dropout=config.dropout
        )
        branch = feed_forward(config.d_model, config.d_ff, config.activation, config.dropout)
        return EncoderBlock(attention, branch, residuals)

    embedding = Embedding(
        n_tokens,
        config.d_model,
        make_positions(config.positions, config.d_model, config.n_heads),
        config.dropout,
        n_segments=n_segments,
        norm=norm(config.d_model) if config.embedding_norm else None,
    )
    blocks = [block() for _ in range(config.n_layers)]
    return TransformerEncoder(embedding, blocks, norm(config.d_model) if config.pre_norm else None)


def build_pooled(config: TransformerEncoderConfig, n_tokens: int, n_labels: int, n_segments: int = 1) -> EncoderOnly:
    """A classifier of texts: logits (B, C)."""
    how: Pooling = config.pooling
    return EncoderOnly(encoder(config, n_tokens, n_segments), Pooled(config.d_model, n_labels, how, config.dropout))


def build_per_token(config: TransformerEncoderConfig, n_tokens: int, n_labels: int, n_segments: int = 1) -> EncoderOnly:
    """A classifier of tokens: logits (B, T, C)."""
    return EncoderOnly(encoder(config, n_tokens, n_segments), PerToken(config.d_model, n_labels, config.dropout))
