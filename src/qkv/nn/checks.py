"""What attention refuses, by name: sizes that do not divide, shapes that do not go together.

Letters: B batch, H heads, Tq and Tk queries and keys, d width of one head.
"""

from __future__ import annotations

from torch import Tensor


def check_heads(d_model: int, n_heads: int) -> None:
    """Raises ValueError when `d_model` is not divisible by `n_heads`, naming both and the nearest counts that do."""
    if n_heads < 1 or d_model % n_heads:
        counts = [n for n in range(1, d_model + 1) if d_model % n == 0]
        below = [n for n in counts if n < n_heads][-1:]
        above = [n for n in counts if n > n_heads][:1]
        nearest = " or ".join(map(str, below + above))
        raise ValueError(
            f"d_model {d_model} is not divisible by n_heads {n_heads}: the nearest head counts that divide it are "
            f"{nearest}"
        )


def check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raises ValueError when the three do not go together: (B, H, Tq, d), (B, Hk, Tk, d), (B, Hk, Tk, d_v)."""
    shapes = [tuple(x.shape) for x in (query, key, value)]
    if any(len(shape) != 4 for shape in shapes):
        raise ValueError(f"query, key and value must have shapes (B, H, T, d), got {shapes}")
    # Compared, not gathered in a set: the size of a traced tensor cannot be hashed.
    if any(shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(f"query, key and value must have one batch size, got shapes {shapes}")
    if query.size(3) != key.size(3):
        raise ValueError(f"query and key must have heads of one width, got {query.size(3)} and {key.size(3)}")
    if key.size(2) != value.size(2):
        raise ValueError(f"keys and values differ in length: {tuple(key.shape)} and {tuple(value.shape)}")


def check_fits(name: str, x: Tensor, query: Tensor, key: Tensor) -> None:
    """Raises ValueError when a mask or bias does not broadcast to the scores (B, H, Tq, Tk), naming both shapes."""
    wanted = (*query.shape[:3], key.size(2))
    if x.ndim != 4 or any(have != 1 and have != want for have, want in zip(x.shape, wanted, strict=True)):
        raise ValueError(f"{name} of shape {tuple(x.shape)} does not fit scores of shape (B, H, Tq, Tk) = {wanted}")
