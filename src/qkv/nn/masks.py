"""Which query may attend to which key. One meaning everywhere: boolean, and True means "may attend".

Letters: B batch, H heads, Tq and Tk queries and keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Window:
    """Keys near the query's own position: `left` keys before it and `right` after, every `dilation`-th position.

    The query's own position is found on the bottom-right diagonal (the last query sits on the last key).
    `global_keys` (B, Tk) marks keys that every query sees whatever its distance (Beltagy et al. 2020, section 3.1).
    """

    left: int
    right: int
    dilation: int = 1
    global_keys: Tensor | None = None

    def __post_init__(self):
        if self.left < 0 or self.right < 0 or self.dilation < 1:
            raise ValueError(f"a window needs left >= 0, right >= 0, dilation >= 1: got {self}")
        if self.global_keys is not None:
            _require_bool("global_keys", self.global_keys, 2, "(B, Tk)")

    def to_dense(self, q_len: int, k_len: int, device: torch.device | None) -> Bool[Tensor, "#B 1 Tq Tk"]:
        distance = _key_minus_query(q_len, k_len, device)
        near = (distance >= -self.left * self.dilation) & (distance <= self.right * self.dilation)
        near = (near & (distance % self.dilation == 0))[None, None]  # (1, 1, Tq, Tk)
        return near if self.global_keys is None else near | self.global_keys[:, None, None, :]  # (B, 1, Tq, Tk)


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """What is allowed, as the AND of the fields that are set; True means "may attend".

    keys      (B, Tk) bool: real keys, False on padding
    causal    no key after the query, aligned bottom-right: the last query sees the last key, so cached decoding
              (Tq < Tk) is the same code as the whole sequence
    window    keys near the query, see `Window`
    segments  ((B, Tq), (B, Tk)) integers: only keys with the query's own number (packed documents)
    dense     (B|1, H|1, Tq|1, Tk) bool: anything else
    size      (Tq, Tk) that the mask was made for, when it was made for one

    `to_dense` is the meaning: whatever fast path runs must equal it. Combine with `&`.
    """

    keys: Tensor | None = None
    causal: bool = False
    window: Window | None = None
    segments: tuple[Tensor, Tensor] | None = None
    dense: Tensor | None = None
    size: tuple[int, int] | None = None

    def __post_init__(self):
        if self.keys is not None:
            _require_bool("keys", self.keys, 2, "(B, Tk)")
        if self.dense is not None:
            _require_bool("dense", self.dense, 4, "(B|1, H|1, Tq|1, Tk)")
        if self.segments is not None and any(part.ndim != 2 for part in self.segments):
            shapes = [tuple(part.shape) for part in self.segments]
            raise ValueError(f"segments must be two tensors (B, Tq) and (B, Tk), got shapes {shapes}")

    @property
    def is_empty(self) -> bool:
        """Nothing is forbidden."""
        return not self.causal and all(f is None for f in (self.keys, self.window, self.segments, self.dense))

    @property
    def is_only_causal(self) -> bool:
        return self.causal and all(f is None for f in (self.keys, self.window, self.segments, self.dense))

    def to_dense(
        self, q_len: int | None = None, k_len: int | None = None, device: torch.device | None = None
    ) -> Bool[Tensor, "#B #H #Tq Tk"]:
        """The whole mask as one boolean tensor that broadcasts to (B, H, Tq, Tk).

        Lengths may be left out when the mask knows them. Raises ValueError when they disagree with what it was made
        for, naming both.
        """
        q_len, k_len = self._lengths(q_len, k_len)
        parts: list[Tensor] = []
        if self.keys is not None:
            parts.append(self.keys[:, None, None, :])  # (B, 1, 1, Tk)
        if self.causal:
            parts.append((_key_minus_query(q_len, k_len, self._device(device)) <= 0)[None, None])  # (1, 1, Tq, Tk)
        if self.window is not None:
            parts.append(self.window.to_dense(q_len, k_len, self._device(device)))  # (B|1, 1, Tq, Tk)
        if self.segments is not None:
            of_query, of_key = self.segments
            parts.append((of_query[:, :, None] == of_key[:, None, :])[:, None])  # (B, 1, Tq, Tk)
        if self.dense is not None:
            parts.append(self.dense)
        if not parts:
            return torch.ones(1, 1, q_len, k_len, dtype=torch.bool, device=device)
        whole = parts[0]
        for part in parts[1:]:
            whole = whole & part
        return whole

    def check(self, q_len: int, k_len: int) -> None:
        """Raises ValueError when the mask was made for other lengths, naming both."""
        self._lengths(q_len, k_len)

    def __and__(self, other: AttentionMask) -> AttentionMask:
        """Allowed by both. Raises ValueError for two windows that no single window expresses."""
        if not isinstance(other, AttentionMask):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"an AttentionMask combines with an AttentionMask, not with a {type(other).__name__}")
        if self.size and other.size and self.size != other.size:
            raise ValueError(f"masks made for different sizes: {self.size} and {other.size}")
        return AttentionMask(
            keys=_and(self.keys, other.keys),
            causal=self.causal or other.causal,
            window=_narrower(self.window, other.window),
            segments=_both_segments(self.segments, other.segments),
            dense=_and(self.dense, other.dense),
            size=self.size or other.size,
        )

    def _lengths(self, q_len: int | None, k_len: int | None) -> tuple[int, int]:
        known_q, known_k = self._known_lengths()
        q_len = next((n for n in (q_len, *known_q, *known_k) if n is not None), None)
        k_len = next((n for n in (k_len, *known_k, q_len) if n is not None), None)
        if q_len is None or k_len is None:
            raise ValueError("this mask fits any length: give q_len and k_len")
        # A length of 1 would broadcast silently, so every part is compared.
        if any(n != q_len for n in known_q) or any(n != k_len for n in known_k):
            made_for = f"Tq {known_q} and Tk {known_k}"
            fits_any = "; AttentionMask(causal=True) fits any lengths" if self.size and self.causal else ""
            raise ValueError(f"a mask made for {made_for} was used with (Tq, Tk) = ({q_len}, {k_len}){fits_any}")
        return q_len, k_len

    def _known_lengths(self) -> tuple[list[int], list[int]]:
        """The Tq and the Tk of every part that has one."""
        of_queries, of_keys = ([self.size[0]], [self.size[1]]) if self.size else ([], [])
        if self.keys is not None:
            of_keys.append(self.keys.size(1))
        if self.window is not None and self.window.global_keys is not None:
            of_keys.append(self.window.global_keys.size(1))
        if self.segments is not None:
            of_queries.append(self.segments[0].size(1))
            of_keys.append(self.segments[1].size(1))
        if self.dense is not None:
            of_queries += [self.dense.size(2)] if self.dense.size(2) > 1 else []
            of_keys.append(self.dense.size(3))
        return of_queries, of_keys

    def _device(self, device: torch.device | None) -> torch.device | None:
        given = [self.keys, self.dense, *(self.segments or ())]
        return next((part.device for part in given if part is not None), device)


def padding_mask(lengths: Int[Tensor, " B"], max_len: int | None = None) -> AttentionMask:
    """Keys that are real when sequences of `lengths` (B,) are padded on the right to `max_len`.

    Raises ValueError when a length is negative or larger than `max_len`.
    """
    longest = int(lengths.max()) if lengths.numel() else 0
    width = longest if max_len is None else max_len
    if longest > width or bool((lengths < 0).any()):
        raise ValueError(f"lengths must be between 0 and max_len {width}, got {lengths}")
    return AttentionMask(keys=torch.arange(width, device=lengths.device) < lengths[:, None])  # (B, Tk)


def look_ahead_mask(seq_len: int) -> AttentionMask:
    """Every position sees itself and what is before it, in a sequence of `seq_len` (Vaswani et al. 2017, 3.2.3).

    For a mask that fits any length, and cached decoding, use `AttentionMask(causal=True)`. Raises ValueError when
    `seq_len` is negative.
    """
    if seq_len < 0:
        raise ValueError(f"seq_len must not be negative, got {seq_len}")
    return AttentionMask(causal=True, size=(seq_len, seq_len))


def window_mask(
    left: int, right: int = 0, *, dilation: int = 1, global_keys: Bool[Tensor, "B Tk"] | None = None
) -> AttentionMask:
    """`left` keys before the query's position and `right` after it, and the keys marked in `global_keys`."""
    return AttentionMask(window=Window(left, right, dilation, global_keys))


def as_mask(mask: AttentionMask | Tensor | None) -> AttentionMask | None:
    """An AttentionMask from what a caller may pass: itself, None, or a boolean tensor (B|1, H|1, Tq|1, Tk).

    Raises ValueError for tensors of other ranks: (B, T) and (T, T) cannot be told apart by shape.
    """
    if mask is not None and not isinstance(mask, AttentionMask | Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a mask is an AttentionMask or a boolean tensor, not a {type(mask).__name__}")
    if isinstance(mask, Tensor):
        if mask.ndim == 4 or mask.dtype != torch.bool:
            return AttentionMask(dense=mask)
        raise ValueError(
            f"a mask tensor of shape {tuple(mask.shape)} is ambiguous. Say what it means: AttentionMask(keys=mask) for "
            "padding (B, Tk); AttentionMask(causal=True) or look_ahead_mask(seq_len) for causal; "
            "AttentionMask(dense=mask[:, None]) for (B, Tq, Tk); AttentionMask(dense=mask[None, None]) for (Tq, Tk)"
        )
    return mask


def _key_minus_query(q_len: int, k_len: int, device: torch.device | None) -> Int[Tensor, "Tq Tk"]:
    query = torch.arange(k_len - q_len, k_len, device=device)
    return torch.arange(k_len, device=device) - query[:, None]  # (Tq, Tk)


def _require_bool(name: str, mask: Tensor, ndim: int, shape: str) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"{name} must be a boolean mask in which True means 'may attend', got {mask.dtype}. For 1/0 masks use "
            "mask.bool(); for masks in which True means 'ignore' use ~mask; for -inf masks use mask == 0"
        )
    if mask.ndim != ndim:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(mask.shape)}")


def _and(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _narrower(a: Window | None, b: Window | None) -> Window | None:
    if a is None or b is None:
        return b if a is None else a
    if a.dilation != b.dilation or a.global_keys is not None or b.global_keys is not None:
        raise ValueError("two windows combine only when both have the same dilation and no global keys")
    return replace(a, left=min(a.left, b.left), right=min(a.right, b.right))


def _both_segments(a: tuple[Tensor, Tensor] | None, b: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
    if a is None or b is None:
        return b if a is None else a
    # Steps of a's number are longer than the range of b's: equal sums mean equal in both.
    a, b = (a[0].long(), a[1].long()), (b[0].long(), b[1].long())
    step = torch.maximum(b[0].max(), b[1].max()) - torch.minimum(b[0].min(), b[1].min()) + 1
    return a[0] * step + b[0], a[1] * step + b[1]
