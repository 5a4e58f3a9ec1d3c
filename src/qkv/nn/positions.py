"""How a model knows where a token stands.

Three hooks, identity by default: `embed` adds to the input, `rotate` turns queries and keys, `bias` is added to the
attention scores. Positions are given, never assumed to be 0, 1, 2, ...: left padding and packed documents work. What
can be computed is computed in float32 from the positions at every call: no table, no maximum length, no drift in
bfloat16.

Letters: B batch (or 1, when all rows agree), T time, D d_model, H heads, d width of one head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from qkv.errors import InputTooLong
from qkv.nn.dropout import Dropout


class Positions(nn.Module):
    """No positions: attention alone cannot tell one order of the keys from another."""

    def embed(self, x: Float[Tensor, "B T D"], pos: Int[Tensor, "#B T"]) -> Float[Tensor, "B T D"]:
        return x

    def rotate(
        self,
        query: Float[Tensor, "B H Tq d"],
        key: Float[Tensor, "B Hk Tk d"],
        q_pos: Int[Tensor, "#B Tq"],
        k_pos: Int[Tensor, "#B Tk"],
    ) -> tuple[Float[Tensor, "B H Tq d"], Float[Tensor, "B Hk Tk d"]]:
        return query, key

    def bias(self, q_pos: Int[Tensor, "#B Tq"], k_pos: Int[Tensor, "#B Tk"]) -> Float[Tensor, "#B H Tq Tk"] | None:
        return None


def sinusoid(positions: Int[Tensor, "*where"], d_model: int, base: float = 10_000.0) -> Float[Tensor, "*where D"]:
    """PE(pos, 2i) = sin(pos / base^(2i/D)), PE(pos, 2i+1) = cos(same) (Vaswani et al. 2017, section 3.5).

    Dimension 0 has the shortest wavelength, 2 pi positions; the last the longest. For odd D the last sine has no
    cosine. float32.
    """
    even = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float32)
    angle = positions.unsqueeze(-1).float() * torch.exp(even * (-math.log(base) / d_model))  # (..., ceil(D/2))
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :d_model]  # (..., D)


class Sinusoidal(Positions):
    """Adds `sinusoid` to the input. Can be computed for any position; whether quality holds there is to be measured."""

    def __init__(self, d_model: int, base: float = 10_000.0):
        super().__init__()
        self.d_model, self.base = d_model, base

    def embed(self, x: Float[Tensor, "B T D"], pos: Int[Tensor, "#B T"]) -> Float[Tensor, "B T D"]:
        return x + sinusoid(pos, self.d_model, self.base).to(x.dtype)


class Learned(Positions):
    """Adds one learned vector a position (Gehring et al. 2017; BERT). Has no vector past `max_len`."""

    def __init__(self, d_model: int, max_len: int):
        super().__init__()
        self.max_len = max_len
        self.table = nn.Embedding(max_len, d_model)
        nn.init.normal_(self.table.weight, std=0.02)

    def embed(self, x: Float[Tensor, "B T D"], pos: Int[Tensor, "#B T"]) -> Float[Tensor, "B T D"]:
        """Raises ValueError for a position past the table, naming it."""
        if pos.numel() and int(pos.max()) >= self.max_len:
            raise InputTooLong(
                f"position {int(pos.max())} is past the learned table of {self.max_len} positions "
                f"(0 to {self.max_len - 1}): shorten the input, or use positions that "
                "are computed (sinusoidal, rotary, alibi)"
            )
        return x + self.table(pos)


class Rotary(Positions):
    """Turns each pair (2i, 2i+1) of query and key by pos * base^(-2i/d) (Su et al. 2021, equation 15).

    The dot product then depends on the distance only. Keys are kept in a cache after turning, each by its own
    position, and are never turned again.
    """

    def __init__(self, base: float = 10_000.0):
        super().__init__()
        self.base = base

    def rotate(
        self,
        query: Float[Tensor, "B H Tq d"],
        key: Float[Tensor, "B Hk Tk d"],
        q_pos: Int[Tensor, "#B Tq"],
        k_pos: Int[Tensor, "#B Tk"],
    ) -> tuple[Float[Tensor, "B H Tq d"], Float[Tensor, "B Hk Tk d"]]:
        """Raises ValueError when the width of a head is odd: it turns pairs."""
        if query.size(-1) % 2:
            raise ValueError(f"rotary positions turn pairs of dimensions: the head width {query.size(-1)} is odd")
        return self._turn(query, q_pos), self._turn(key, k_pos)

    def _turn(self, x: Tensor, pos: Tensor) -> Tensor:
        even = torch.arange(0, x.size(-1), 2, device=x.device, dtype=torch.float32)
        angle = pos[:, None, :, None].float() * torch.exp(even * (-math.log(self.base) / x.size(-1)))  # (B, 1, T, d/2)
        # One complex product turns a pair: four times as quick on a CPU as products of strided halves.
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2).contiguous())  # (B, H, T, d/2)
        turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle))  # (B, H, T, d/2, 2)
        return turned.flatten(-2).to(x.dtype)  # (B, H, T, d)


class ALiBi(Positions):
    """Adds -slope * |distance| to the scores, one slope a head (Press et al. 2022, section 3).

    The paper's decoder looks back only; here the distance is symmetric, which is the same under a causal mask and
    serves encoders too.
    """

    def __init__(self, n_heads: int):
        super().__init__()
        self.n_heads = n_heads

    def slopes(self, device: torch.device | None = None) -> Float[Tensor, " H"]:
        """2^(-8/H), 2^(-16/H), ...; for H that is no power of two, the paper's interleaving of the next one's."""
        below = 2 ** int(math.log2(self.n_heads))
        values = [2.0 ** (-8.0 * (i + 1) / below) for i in range(below)]
        values += [2.0 ** (-4.0 * (2 * i + 1) / below) for i in range(self.n_heads - below)]
        return torch.tensor(values, device=device)

    def bias(self, q_pos: Int[Tensor, "#B Tq"], k_pos: Int[Tensor, "#B Tk"]) -> Float[Tensor, "#B H Tq Tk"]:
        distance = (q_pos[:, :, None] - k_pos[:, None, :]).abs().float()  # (B, Tq, Tk)
        return -self.slopes(distance.device)[:, None, None] * distance[:, None]  # (B, H, Tq, Tk)


@dataclass(frozen=True)
class Placement:
    """Where the tokens of one forward stand, made once and used by every layer.

    `pos` (B|1, T) positions of the tokens that come in, `bias` what the positions add to the scores.
    """

    positions: Positions
    pos: Tensor
    bias: Tensor | None = None


def real_positions(mask: Tensor | None, length: int, device: torch.device) -> Int[Tensor, "#B T"]:
    """Positions counted from the first real token, whatever padding is before it.

    `mask` (B, T) bool, True on real tokens; without it all rows are 0, 1, 2, ... as (1, T). Pads get clamped to 0.
    """
    steps = torch.arange(length, device=device)[None]  # (1, T)
    if mask is None:
        return steps
    first = mask.to(torch.uint8).argmax(1, keepdim=True)  # (B, 1)
    return (steps - first).clamp_min(0)  # (B, T)


class Embedding(nn.Module):
    """Token vectors times sqrt(d_model), plus positions, then dropout (Vaswani et al. 2017, section 3.4).

    Vectors start with standard deviation 1/sqrt(d_model), so that after scaling a word weighs as much as a position.
    With `n_segments` above 1 a learned vector of the token's segment is added, and `norm` stands before the dropout
    (both as in BERT: Devlin et al. 2019, section 3).
    """

    def __init__(
        self,
        n_tokens: int,
        d_model: int,
        positions: Positions,
        dropout: float = 0.1,
        *,
        n_segments: int = 1,
        norm: nn.Module | None = None,
    ):
        super().__init__()
        self.tokens = nn.Embedding(n_tokens, d_model)
        nn.init.normal_(self.tokens.weight, std=d_model**-0.5)
        self.positions = positions
        self.segments = nn.Embedding(n_segments, d_model) if n_segments > 1 else None
        self.norm = norm or nn.Identity()
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(d_model)

    def forward(
        self, tokens: Int[Tensor, "B T"], pos: Int[Tensor, "#B T"], segments: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """`segments` is read where there are vectors for them; None: all tokens are of segment 0."""
        x = self.positions.embed(self.tokens(tokens) * self.scale, pos)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(tokens) if segments is None else segments)
        return self.dropout(self.norm(x))
