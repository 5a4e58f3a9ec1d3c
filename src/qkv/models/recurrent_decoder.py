"""Recurrent encoder-decoders: one context vector, or attention over the source each time a symbol is written.

Letters: B batch, Ts source time, Tt target time, D d_model, M width of the memory, H d_hidden, L layers, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from qkv.models.encoder_decoder import EncoderDecoder
from qkv.models.heads import NextToken, pooled
from qkv.models.recurrent import RecurrentConfig, build_per_token, build_pooled, encoder
from qkv.nn.attention import attend
from qkv.nn.dropout import Dropout
from qkv.nn.masks import AttentionMask
from qkv.nn.positions import Embedding, Positions
from qkv.nn.recurrent import Cell, Recurrent, RecurrentState
from qkv.nn.scores import Additive, Score, dot, scaled_dot


@dataclass(frozen=True)
class RecurrentDecoderState:
    """What the decoder keeps: its own state, and of the source keys (B, 1, Ts, H), states (B, 1, Ts, M), mask, context.

    `context` (B, M) is the one vector that a decoder without attention has of the source.
    """

    own: RecurrentState
    keys: Tensor | None = None
    memory: Tensor | None = None
    memory_mask: Tensor | None = None
    context: Tensor | None = None


class SourceAttention(nn.Module):
    """One head that compares decoder states with the memory. Keys are projected once for a whole source.

    Luong's dot product is taken with projected keys (their score "general"), as the memory is wider than the state.
    """

    def __init__(self, d_memory: int, d_hidden: int, kind: str):
        super().__init__()
        self.key = nn.Linear(d_memory, d_hidden, bias=False)
        self.query = nn.Linear(d_hidden, d_hidden) if kind == "additive" else nn.Identity()
        self.score: Score = Additive(d_hidden) if kind == "additive" else {"dot": dot, "scaled_dot": scaled_dot}[kind]

    def keys(self, memory: Float[Tensor, "B Ts M"]) -> Float[Tensor, "B 1 Ts H"]:
        return self.key(memory)[:, None]

    def forward(self, states: Float[Tensor, "B Tt H"], source: RecurrentDecoderState) -> Float[Tensor, "B Tt M"]:
        """The context of each state: the mean of the memory, weighted by the score."""
        assert source.keys is not None
        assert source.memory is not None
        mask = None if source.memory_mask is None else AttentionMask(keys=source.memory_mask)
        query = self.query(states)[:, None]  # (B, 1, Tt, H)
        return attend(query, source.keys, source.memory, mask=mask, score=self.score)[:, 0]  # (B, Tt, M)


class RecurrentDecoder(nn.Module):
    """Writes with a recurrent net that begins from the ends of the memory.

    attention none: every step reads the one context vector beside the symbol (Cho et al. 2014), or with `context` first
    only the beginning knows of it (Sutskever et al. 2014). dot and scaled_dot: the state after the symbol asks (Luong
    et al. 2015, equations 5 to 7, without feeding the answer back). additive: the state before the symbol asks, and its
    context is read with the symbol (Bahdanau et al. 2015, appendix A.1.2).
    """

    def __init__(self, embedding: Embedding, config: RecurrentConfig, cell: Cell, d_memory: int):
        super().__init__()
        self.embedding, self.kind, self.context = embedding, config.attention, config.context
        self.cell, self.d_half = cell, config.d_hidden if config.bidirectional else d_memory
        hidden = config.d_hidden
        reads_context = self.kind == "additive" or (self.kind == "none" and self.context == "every")
        d_in = config.d_model + (d_memory if reads_context else 0)
        self.layers = Recurrent(cell, d_in, hidden, config.n_layers, p=config.dropout)
        plain = self.kind == "none" and self.context == "first" and d_memory == hidden
        self.bridge = nn.Identity() if plain else nn.Sequential(nn.Linear(d_memory, hidden), nn.Tanh())
        self.cross_attention = None if self.kind == "none" else SourceAttention(d_memory, hidden, self.kind)
        only_state = self.kind == "none" and self.context == "first"
        self.combine = None if only_state else nn.Linear(d_memory + hidden, hidden)
        self.dropout = Dropout(config.dropout)

    def start(
        self, memory: Float[Tensor, "B Ts M"], memory_mask: Bool[Tensor, "B Ts"] | None = None
    ) -> RecurrentDecoderState:
        """The state before any symbol: every layer begins with the ends of the memory."""
        forward, backward = memory[..., : self.d_half], memory[..., self.d_half :]
        ends = torch.cat([pooled(forward, memory_mask, "last"), pooled(backward, memory_mask, "first")], 1)  # (B, M)
        begun = self.bridge(ends)[:, None].expand(-1, len(self.layers.layers), -1).contiguous()  # (B, L, H)
        own = RecurrentState(begun, torch.zeros_like(begun) if self.cell == "lstm" else None)
        if self.cross_attention is None:
            return RecurrentDecoderState(own, context=ends)
        return RecurrentDecoderState(own, self.cross_attention.keys(memory), memory[:, None], memory_mask)

    def forward(
        self,
        tokens: Int[Tensor, "B Tt"],
        memory: Float[Tensor, "B Ts M"],
        memory_mask: Bool[Tensor, "B Ts"] | None = None,
        mask: Bool[Tensor, "B Tt"] | None = None,
    ) -> Float[Tensor, "B Tt H"]:
        """States of all symbols, each read after the one before it was right. `mask` is for padding on the left."""
        return self.step(tokens, self.start(memory, memory_mask), mask)[0]

    def step(
        self, tokens: Int[Tensor, "B Tt"], state: RecurrentDecoderState, mask: Bool[Tensor, "B Tt"] | None = None
    ) -> tuple[Float[Tensor, "B Tt H"], RecurrentDecoderState]:
        """States of the next symbols after those that `state` has read, and the new state."""
        x = self.embedding(tokens, torch.zeros_like(tokens))
        if self.kind == "additive":
            return self._additive(x, state, mask)
        if self.kind == "none" and self.context == "every":
            assert state.context is not None
            x = torch.cat([x, state.context[:, None].expand(-1, x.size(1), -1)], 2)  # (B, Tt, D + M)
        states, own = self.layers(x, mask, state.own)
        kept = RecurrentDecoderState(own, state.keys, state.memory, state.memory_mask, state.context)
        if self.cross_attention is not None:
            return self._combined(self.cross_attention(states, state), states), kept
        if state.context is None or self.combine is None:
            return self.dropout(states), kept
        return self._combined(state.context[:, None].expand(-1, x.size(1), -1), states), kept

    def _additive(
        self, x: Tensor, state: RecurrentDecoderState, mask: Tensor | None
    ) -> tuple[Tensor, RecurrentDecoderState]:
        assert self.cross_attention is not None
        contexts: list[Tensor] = []
        states: list[Tensor] = []
        for place in range(x.size(1)):
            context = self.cross_attention(state.own.hidden[:, -1:], state)  # (B, 1, M)
            now = None if mask is None else mask[:, place : place + 1]
            after, own = self.layers(torch.cat([x[:, place : place + 1], context], 2), now, state.own)
            state = RecurrentDecoderState(own, state.keys, state.memory, state.memory_mask)
            contexts.append(context)
            states.append(after)
        return self._combined(torch.cat(contexts, 1), torch.cat(states, 1)), state  # (B, Tt, H)

    def _combined(self, context: Tensor, states: Tensor) -> Tensor:
        assert self.combine is not None
        return self.dropout(self.combine(torch.cat([context, states], 2)).tanh())  # (B, Tt, H)


def build_seq2seq(config: RecurrentConfig, n_source: int, n_target: int, *, cell: Cell) -> EncoderDecoder:
    """The encoder-decoder for vocabularies of `n_source` and `n_target` symbols."""
    body = encoder(config, cell, n_source)
    embedding = Embedding(n_target, config.d_model, Positions(), config.dropout)
    decoder = RecurrentDecoder(embedding, config, cell, body.layers.d_out)
    return EncoderDecoder(body, decoder, NextToken(config.d_hidden, n_target))


def builders(cell: Cell) -> dict[str, Callable[..., nn.Module]]:
    """The builders of one cell by head."""
    made = {"pooled": build_pooled, "per_token": build_per_token, "next_token": build_seq2seq}
    return {head: partial(build, cell=cell) for head, build in made.items()}
