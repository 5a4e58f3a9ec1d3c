"""Transformer bodies: an encoder and a decoder, tokens in, states out.

Letters: B batch, T time (Ts source, Tt target), D d_model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from qkv.nn.blocks import BlockState, DecoderBlock, EncoderBlock
from qkv.nn.masks import AttentionMask
from qkv.nn.positions import (
    ALiBi,
    Embedding,
    Learned,
    Placement,
    Positions,
    Rotary,
    Sinusoidal,
    real_positions,
)

LEARNED_MAX_LEN = 512


class TransformerEncoder(nn.Module):
    """Embedding, blocks, and a last norm where the blocks are pre-norm (Vaswani et al. 2017, section 3.1)."""

    def __init__(self, embedding: Embedding, blocks: list[EncoderBlock], norm: nn.Module | None = None):
        super().__init__()
        self.embedding = embedding
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or nn.Identity()

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """States of all tokens. `mask` (B, T) is True on real tokens; padding may stand on either side.

        `segments` (B, T) tells texts of a pair apart, where the embedding has vectors for them.
        """
        pos = real_positions(mask, tokens.size(1), tokens.device)
        positions = self.embedding.positions
        place = Placement(positions, pos, positions.bias(pos, pos))
        x = self.embedding(tokens, pos, segments)
        keys = _keys(mask)
        for block in self.blocks:
            x = block(x, keys, place)
        return self.norm(x)


@dataclass(frozen=True)
class DecoderState:
    """What a decoder keeps between steps. `mask` (B, T) is True on real tokens so far; None: all are."""

    blocks: tuple[BlockState, ...]
    pos: Tensor
    mask: Tensor | None = None
    memory_mask: Tensor | None = None


class TransformerDecoder(nn.Module):
    """Embedding, causal blocks that also read a memory, and a last norm where the blocks are pre-norm."""

    def __init__(self, embedding: Embedding, blocks: list[DecoderBlock], norm: nn.Module | None = None):
        super().__init__()
        self.embedding = embedding
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or nn.Identity()

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        memory: Float[Tensor, "B Ts D_m"] | None = None,
        memory_mask: Bool[Tensor, "B Ts"] | None = None,
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """States of all tokens at once, as in training.

        `mask` (B, T) is needed for padding on the left only: behind the last real token nothing reads the pads.
        """
        pos = real_positions(mask, tokens.size(1), tokens.device)
        positions = self.embedding.positions
        place = Placement(positions, pos, positions.bias(pos, pos))
        x = self.embedding(tokens, pos)
        causal, keys = AttentionMask(mask, causal=True), _keys(memory_mask)
        for block in self.blocks:
            x = block(x, memory, mask=causal, memory_mask=keys, place=place)
        return self.norm(x)

    def start(
        self,
        memory: Float[Tensor, "B Ts D_m"] | None = None,
        memory_mask: Bool[Tensor, "B Ts"] | None = None,
        batch: int = 1,
        device: torch.device | None = None,
    ) -> DecoderState:
        """The state before any token: the memory projected once for every block."""
        blocks = tuple(block.start(memory) for block in self._typed_blocks())
        if memory is not None:
            batch, device = memory.size(0), memory.device
        if _keys(memory_mask) is None:
            memory_mask = None
        return DecoderState(blocks, torch.zeros(batch, 0, dtype=torch.long, device=device), None, memory_mask)

    def step(
        self, tokens: Int[Tensor, "B T"], state: DecoderState, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], DecoderState]:
        """States of the next T tokens after those that `state` holds, and the new state.

        Equal to the last T states of `forward` over everything so far. `mask` (B, T) is for prompts padded on the left.
        """
        so_far = _joined_mask(state, tokens, mask)
        pos = _next_positions(state, tokens, so_far)
        all_pos = torch.cat([state.pos, pos.expand(tokens.size(0), -1)], 1)  # (B, T so far)
        positions = self.embedding.positions
        place = Placement(positions, pos, positions.bias(pos, all_pos))
        x = self.embedding(tokens, pos)
        causal, keys = AttentionMask(so_far, causal=True), _keys(state.memory_mask)
        kept: list[BlockState] = []
        for block, block_state in zip(self._typed_blocks(), state.blocks, strict=True):
            x, new = block.step(x, block_state, mask=causal, memory_mask=keys, place=place)
            kept.append(new)
        return self.norm(x), DecoderState(tuple(kept), all_pos, so_far, state.memory_mask)

    def _typed_blocks(self) -> Iterable[DecoderBlock]:
        return cast(Iterable[DecoderBlock], self.blocks)  # torch's ModuleList forgets what it holds


def _keys(mask: Tensor | None) -> AttentionMask | None:
    """The mask of real keys; None when nothing is padded, where looking is free (batches of one length are common)."""
    if mask is None or (mask.device.type == "cpu" and not torch.compiler.is_compiling() and bool(mask.all())):
        return None
    return AttentionMask(keys=mask)


def _joined_mask(state: DecoderState, tokens: Tensor, mask: Tensor | None) -> Tensor | None:
    if mask is None and state.mask is None:
        return None
    before, now = state.mask, mask
    if before is None:
        before = torch.ones(tokens.size(0), state.pos.size(1), dtype=torch.bool, device=tokens.device)
    if now is None:
        now = torch.ones_like(tokens, dtype=torch.bool)
    return torch.cat([before, now], 1)  # (B, T so far)


def _next_positions(state: DecoderState, tokens: Tensor, so_far: Tensor | None) -> Tensor:
    length = state.pos.size(1) + tokens.size(1)
    return real_positions(so_far, length, tokens.device)[:, state.pos.size(1) :]  # (B|1, T)


def make_positions(kind: str, d_model: int, n_heads: int) -> Positions:
    """The positions of that name: sinusoidal, learned (up to 512), rotary, alibi or none.

    Raises ValueError for rotary positions of heads whose width is odd.
    """
    if kind == "rotary" and (d_model // n_heads) % 2:
        raise ValueError(
            f"rotary positions need an even head width, d_model {d_model} / n_heads {n_heads} gives "
            f"{d_model // n_heads}"
        )
    makers: dict[str, Callable[[], Positions]] = {
        "sinusoidal": lambda: Sinusoidal(d_model),
        "learned": lambda: Learned(d_model, LEARNED_MAX_LEN),
        "rotary": Rotary,
        "alibi": lambda: ALiBi(n_heads),
        "none": Positions,
    }
    return makers[kind]()
