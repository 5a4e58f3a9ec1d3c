"""The only attention in the house.

Letters: B batch, H heads, Tq and Tk queries and keys, D d_model, d width of one head, d_v width of a value.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from qkv.nn.checks import check_fits, check_heads, check_shapes
from qkv.nn.dropout import dropout
from qkv.nn.masks import AttentionMask, as_mask
from qkv.nn.positions import Placement
from qkv.nn.scores import Score, scaled_dot
from qkv.nn.state import KeyValues


def attention_weights(
    query: Float[Tensor, "B H Tq d"],
    key: Float[Tensor, "B Hk Tk d"],
    *,
    mask: AttentionMask | Tensor | None = None,
    score: Score = scaled_dot,
    bias: Tensor | None = None,
) -> Float[Tensor, "B H Tq Tk"]:
    """softmax(score(query, key) + bias) over the allowed keys, in float32, before dropout; differentiable.

    A query that may attend to nothing gets weights 0. Vaswani et al. 2017, equation 1, without the values. Raises
    ValueError as `attend` does.
    """
    check_shapes(query, key, key)
    key = _one_key_head_each(key, query)
    allowed = _allowed(as_mask(mask), query, key)
    weights, empty = _softmax(query, key, allowed, score, bias)
    return weights if empty is None else weights.masked_fill(empty, 0.0)


def attend(
    query: Float[Tensor, "B H Tq d"],
    key: Float[Tensor, "B Hk Tk d"],
    value: Float[Tensor, "B Hk Tk d_v"],
    *,
    mask: AttentionMask | Tensor | None = None,
    score: Score = scaled_dot,
    bias: Tensor | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H Tq d_v"]:
    """Weighted mean of the values, the weights being `attention_weights` (Vaswani et al. 2017, equation 1).

    mask       AttentionMask, or a boolean tensor (B|1, H|1, Tq|1, Tk); True means "may attend"
    score      what queries and keys are compared with; scaled dot product by default
    bias       (B|1, H|1, Tq|1, Tk|1), added to the scores
    dropout_p  probability of dropping a weight; the caller passes 0 when not training

    Keys and values may have fewer heads (Hk divides H): each then serves H / Hk query heads in a row
    (Ainslie et al. 2023). A query that may attend to nothing gets output 0 and gradient 0.

    Raises ValueError for shapes or masks that do not fit, naming them.
    """
    if has_torch_function((query, key, value)):
        return handle_torch_function(
            attend, (query, key, value), query, key, value, mask=mask, score=score, bias=bias, dropout_p=dropout_p
        )
    check_shapes(query, key, value)
    key, value = _one_key_head_each(key, query), _one_key_head_each(value, query)
    merged = as_mask(mask)
    scale = score.dot_scale(query.size(-1))
    if scale is not None and _fused_is_faster(query, key, bias, dropout_p):
        return _fused(query, key, value, merged, bias, dropout_p, scale)
    weights, empty = _softmax(query, key, _allowed(merged, query, key), score, bias)
    output = torch.matmul(dropout(weights, dropout_p).to(value.dtype), value)  # (B, H, Tq, d_v)
    return output if empty is None else output.masked_fill(empty, 0.0)


def _fused_is_faster(query: Tensor, key: Tensor, bias: Tensor | None, dropout_p: float) -> bool:
    """Which of two ways that mean the same is quicker; measured with torch 2.13, `bench/attention.py` repeats it.

    Off the CPU always the fused kernel: it never holds the (Tq, Tk) weights. On a CPU that kernel refuses dropout
    and biases that need a gradient (torch then takes a slow way of its own), loses to plain products on short
    sequences, and in bfloat16 up to several hundred keys.
    """
    if query.device.type != "cpu":
        return True
    if dropout_p > 0.0 or (bias is not None and bias.requires_grad):
        return False
    return min(query.size(2), key.size(2)) >= (96 if query.dtype == torch.float32 else 384)


def _fused(
    query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask | None, bias: Tensor | None, p: float, scale: float
) -> Tensor:
    q_len, k_len = query.size(2), key.size(2)
    # torch aligns is_causal top-left: the same as ours only for equal lengths.
    if bias is None and mask is not None and mask.is_only_causal and q_len == k_len:
        mask.check(q_len, k_len)
        return F.scaled_dot_product_attention(query, key, value, None, p, True, scale=scale)
    allowed = _allowed(mask, query, key)
    if bias is not None:
        check_fits("bias", bias, query, key)
        bias = bias.to(query.dtype)
        allowed = bias if allowed is None else bias.masked_fill(~allowed, float("-inf"))
    if allowed is not None:
        allowed = allowed.expand(-1, -1, q_len, k_len)
    return F.scaled_dot_product_attention(query, key, value, allowed, p, False, scale=scale)


def _allowed(mask: AttentionMask | None, query: Tensor, key: Tensor) -> Tensor | None:
    one_query_sees_all = mask is not None and mask.is_only_causal and mask.size is None and query.size(2) == 1
    if mask is None or mask.is_empty or one_query_sees_all:
        return None
    allowed = mask.to_dense(query.size(2), key.size(2), query.device)
    check_fits("mask", allowed, query, key)
    return allowed


def _softmax(
    query: Tensor, key: Tensor, allowed: Tensor | None, score: Score, bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Weights in float32 and which rows have no allowed key (None: none has). Those rows' weights mean nothing yet."""
    scores = score(query, key)  # (B, H, Tq, Tk)
    if bias is not None:
        check_fits("bias", bias, query, key)
        scores = scores.to(_accumulate(scores)) + bias
    if allowed is None:
        return torch.softmax(scores, -1, dtype=_accumulate(scores)), None
    empty: Tensor | None = ~allowed.any(-1, keepdim=True)  # (B|1, H|1, Tq|1, 1)
    # An empty row is let through and zeroed after: -inf in every column would be NaN forward and backward.
    # Looking is free on a CPU; elsewhere it would wait for the device, and a traced graph cannot branch on data.
    if empty.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(empty.any()):
        empty = None
    else:
        allowed = allowed | empty
    scores = scores.masked_fill(~allowed, float("-inf"))
    return torch.softmax(scores, -1, dtype=_accumulate(scores)), empty


def _accumulate(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)


def _one_key_head_each(x: Tensor, query: Tensor) -> Tensor:
    n_heads, n_kv_heads = query.size(1), x.size(1)
    if n_heads == n_kv_heads:
        return x
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_kv_heads} key/value heads cannot serve {n_heads} query heads: no even share")
    return x.repeat_interleave(n_heads // n_kv_heads, 1)


class MultiHeadAttention(nn.Module):
    """Attention in H subspaces side by side (Vaswani et al. 2017, section 3.2.2).

    head_i = attend(query W_q_i, key W_k_i, value W_v_i); output = concat(head_1 .. head_H) W_o. The paper's W_q, W_k,
    W_v, W_o are the modules `query`, `key`, `value`, `out`.

    d_model     width of queries and of the output
    n_heads     H; must divide d_model
    n_kv_heads  heads of keys and values, H by default; fewer saves cache (must divide H)
    d_memory    width of keys and values where it differs from d_model
    dropout     probability of dropping an attention weight in training
    score       what queries and keys are compared with

    Raises ValueError when head counts do not divide, naming the nearest that do.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        d_memory: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        score: Score = scaled_dot,
    ):
        super().__init__()
        check_heads(d_model, n_heads)
        n_kv_heads = n_kv_heads or n_heads
        if n_heads % n_kv_heads:
            raise ValueError(f"n_kv_heads {n_kv_heads} must divide n_heads {n_heads}")
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, n_kv_heads, d_model // n_heads
        self.dropout, self.score = dropout, score
        d_memory = d_memory or d_model
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key = nn.Linear(d_memory, n_kv_heads * self.d_head, bias=bias)
        self.value = nn.Linear(d_memory, n_kv_heads * self.d_head, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)
        for projection in (self.query, self.key, self.value, self.out):
            nn.init.xavier_uniform_(projection.weight)
            if bias:
                nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Float[Tensor, "B Tq D"],
        key: Float[Tensor, "B Tk D_m"] | None = None,
        value: Float[Tensor, "B Tk D_m"] | None = None,
        *,
        mask: AttentionMask | Tensor | None = None,
        place: Placement | None = None,
    ) -> Float[Tensor, "B Tq D"]:
        """Self-attention with `query` alone; cross-attention with `key` (and `value`, which is `key` by default).

        `place` says where the tokens of self-attention stand, for rotary positions and score biases.
        """
        if key is not None:
            return self.read(query, self.remember(key, value), mask=mask)
        if value is not None:
            raise ValueError("value without key: self-attention takes query alone, cross-attention query and key")
        q, k, v = self._project(query, place)
        return self._merge(q, k, v, mask, place.bias if place else None)

    def step(
        self,
        query: Float[Tensor, "B Tq D"],
        past: KeyValues | None,
        *,
        mask: AttentionMask | Tensor | None = None,
        place: Placement | None = None,
    ) -> tuple[Float[Tensor, "B Tq D"], KeyValues]:
        """Self-attention of new tokens over what is kept and themselves: (output, what to keep)."""
        q, k, v = self._project(query, place)
        kept = KeyValues(k, v) if past is None else past.append(k, v)
        return self._merge(q, kept.keys, kept.values, mask, place.bias if place else None), kept

    def remember(self, key: Float[Tensor, "B Tk D_m"], value: Float[Tensor, "B Tk D_m"] | None = None) -> KeyValues:
        """Keys and values of a memory, projected once for all the queries that will read it."""
        keys, values = self.key(key), self.value(key if value is None else value)
        # Whole in memory: a decoder reads them at every step, and products would copy strided heads each time.
        keys = self._split(keys, self.n_kv_heads).contiguous()  # (B, Hk, Tk, d)
        values = self._split(values, self.n_kv_heads).contiguous()  # (B, Hk, Tk, d)
        return KeyValues(keys, values)

    def read(
        self,
        query: Float[Tensor, "B Tq D"],
        memory: KeyValues,
        *,
        mask: AttentionMask | Tensor | None = None,
    ) -> Float[Tensor, "B Tq D"]:
        """Cross-attention over a memory from `remember`."""
        return self._merge(self._split(self.query(query), self.n_heads), memory.keys, memory.values, mask, None)

    def _project(self, x: Tensor, place: Placement | None) -> tuple[Tensor, Tensor, Tensor]:
        q = self._split(self.query(x), self.n_heads)  # (B, H, T, d)
        k = self._split(self.key(x), self.n_kv_heads)  # (B, Hk, T, d)
        v = self._split(self.value(x), self.n_kv_heads)  # (B, Hk, T, d)
        if place is not None:
            q, k = place.positions.rotate(q, k, place.pos, place.pos)
        return q, k, v

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.size(0), x.size(1), heads, self.d_head).transpose(1, 2)  # (B, heads, T, d)

    def _merge(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask | Tensor | None, bias: Tensor | None
    ) -> Tensor:
        p = self.dropout if self.training else 0.0
        heads = attend(q, k, v, mask=mask, score=self.score, bias=bias, dropout_p=p)  # (B, H, Tq, d)
        return self.out(heads.transpose(1, 2).flatten(2))  # (B, Tq, D)

    def extra_repr(self) -> str:
        heads = f"n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}, d_head={self.d_head}"
        return f"{heads}, dropout={self.dropout}, score={self._score_name()}"

    def _score_name(self) -> str:
        score: Any = self.score
        return type(score).__name__ if isinstance(score, nn.Module) else repr(score)
