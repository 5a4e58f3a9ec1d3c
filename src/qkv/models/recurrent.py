"""Recurrent encoders for texts and tags: RNN, GRU, LSTM.

Letters: B batch, T time, H width of a state, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from qkv.models.encoder_only import EncoderOnly
from qkv.models.heads import PerToken, Pooled, pooled
from qkv.nn.dropout import Dropout
from qkv.nn.positions import Embedding, Positions, real_positions
from qkv.nn.recurrent import Cell, Recurrent, RecurrentState


@dataclass(frozen=True)
class RecurrentConfig:
    """A recurrent model. The cell (rnn, gru, lstm) is the model's name.

    d_model        width of the token vectors
    d_hidden       width of a state, of each direction
    bidirectional  whether texts are read from both ends; a decoder reads forward in any case
    pooling        of a text: the last states of both directions, or the mean or the maximum of all states
    attention      of seq2seq: what the decoder compares with the encoder's states, each time it writes: none (one
                   context vector for all), dot or scaled_dot with its present state (Luong et al. 2015), additive with
                   the state before (Bahdanau et al. 2015)
    context        of seq2seq without attention: every (the context vector is read at every step, Cho et al. 2014) or
                   first (the decoder begins with it and never sees it again, Sutskever et al. 2014)
    """

    d_model: int = 128
    d_hidden: int = 128
    n_layers: int = 1
    dropout: float = 0.3
    bidirectional: bool = True
    pooling: Literal["last", "mean", "max"] = "max"
    attention: Literal["none", "dot", "scaled_dot", "additive"] = "additive"
    context: Literal["every", "first"] = "every"

    def __post_init__(self):
        for name in ("d_model", "d_hidden", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be 1 or more")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout {self.dropout}: must be between 0 and 1, and 1 itself leaves nothing")


class RecurrentEncoder(nn.Module):
    """Token vectors and recurrent layers."""

    def __init__(self, embedding: Embedding, layers: Recurrent):
        super().__init__()
        self.embedding, self.layers = embedding, layers

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T H"]:
        """States of all tokens, 0 at padding, which may stand on either side (`mask` True on real tokens)."""
        return self.read(tokens, mask, segments)[0]

    def read(
        self, tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None, segments: Tensor | None = None
    ) -> tuple[Float[Tensor, "B T H"], RecurrentState]:
        """All states, and the last one of each row."""
        pos = real_positions(mask, tokens.size(1), tokens.device)
        return self.layers(self.embedding(tokens, pos, segments), mask)


class LastStates(nn.Module):
    """Logits over classes from the ends of each row: of the second half of the states, which read backward, the first.

    The last position of a backward state has read one token alone.
    """

    def __init__(self, d_hidden: int, bidirectional: bool, n_labels: int, dropout: float):
        super().__init__()
        self.d_hidden = d_hidden
        self.dropout = Dropout(dropout)
        self.projection = nn.Linear(d_hidden * (1 + bidirectional), n_labels)

    def forward(self, states: Float[Tensor, "B T H"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B C"]:
        forward, backward = states[..., : self.d_hidden], states[..., self.d_hidden :]
        ends = torch.cat([pooled(forward, mask, "last"), pooled(backward, mask, "first")], 1)  # (B, H)
        return self.projection(self.dropout(ends))


def encoder(config: RecurrentConfig, cell: Cell, n_tokens: int, n_segments: int = 1) -> RecurrentEncoder:
    """The body for a vocabulary of `n_tokens`."""
    embedding = Embedding(n_tokens, config.d_model, Positions(), config.dropout, n_segments=n_segments)
    layers = Recurrent(cell, config.d_model, config.d_hidden, config.n_layers, config.bidirectional, config.dropout)
    return RecurrentEncoder(embedding, layers)


def build_pooled(
    config: RecurrentConfig, n_tokens: int, n_labels: int, n_segments: int = 1, *, cell: Cell
) -> EncoderOnly:
    """A classifier of texts: logits (B, C)."""
    body = encoder(config, cell, n_tokens, n_segments)
    if config.pooling == "last":
        head = LastStates(config.d_hidden, config.bidirectional, n_labels, config.dropout)
        return EncoderOnly(body, head)
    return EncoderOnly(body, Pooled(body.layers.d_out, n_labels, config.pooling, config.dropout))


def build_per_token(
    config: RecurrentConfig, n_tokens: int, n_labels: int, n_segments: int = 1, *, cell: Cell
) -> EncoderOnly:
    """A classifier of tokens: logits (B, T, C)."""
    body = encoder(config, cell, n_tokens, n_segments)
    return EncoderOnly(body, PerToken(body.layers.d_out, n_labels, config.dropout))
