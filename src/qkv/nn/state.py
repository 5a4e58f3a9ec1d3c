"""What a decoder keeps between steps: a tree of batch-first tensors.

Letters: B batch, H heads, T positions so far, d width of one head.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

Tree = TypeVar("Tree")


class KeyValues:
    """Keys and values of the positions seen so far: `.keys` (B, H, T, d) and `.values` (B, H, T, d_v).

    `append` behaves as if it returned a longer copy. The newest holder of a buffer writes into spare room instead
    (one copy per doubling, not one per step); an older holder gets a copy, so two continuations of one state never
    overwrite each other. With gradients on, it concatenates, because autograd refuses writes into what it saved.
    """

    def __init__(self, keys: Tensor, values: Tensor, length: int | None = None, filled: list[int] | None = None):
        self._keys, self._values = keys, values
        self.length = keys.size(2) if length is None else length
        # Shared by all holders of one buffer: how far it has been written.
        self._filled = [self.length] if filled is None else filled

    @property
    def keys(self) -> Float[Tensor, "B H T d"]:
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Float[Tensor, "B H T d_v"]:
        return self._values[:, :, : self.length]

    def append(self, key: Float[Tensor, "B H N d"], value: Float[Tensor, "B H N d_v"]) -> KeyValues:
        """The same with N more positions at the end."""
        end = self.length + key.size(2)
        if torch.is_grad_enabled():
            return KeyValues(torch.cat([self.keys, key], 2), torch.cat([self.values, value], 2))
        foreign = self._keys.is_inference() and not torch.is_inference_mode_enabled()
        if self._filled[0] != self.length or end > self._keys.size(2) or foreign:
            return self._copy(room=max(16, 2 * end)).append(key, value)
        self._keys[:, :, self.length : end] = key
        self._values[:, :, self.length : end] = value
        self._filled[0] = end
        return KeyValues(self._keys, self._values, end, self._filled)

    def rows(self, index: Int[Tensor, " rows"]) -> KeyValues:
        """Batch rows chosen by `index`, which may drop, repeat and reorder."""
        return KeyValues(self._keys.index_select(0, index), self._values.index_select(0, index), self.length)

    def _copy(self, room: int) -> KeyValues:
        keys = self._keys.new_empty(*self._keys.shape[:2], room, self._keys.size(3))
        values = self._values.new_empty(*self._values.shape[:2], room, self._values.size(3))
        keys[:, :, : self.length] = self.keys
        values[:, :, : self.length] = self.values
        return KeyValues(keys, values, self.length)


def select_rows(state: Tree, index: Int[Tensor, " rows"]) -> Tree:
    """Batch rows of every tensor in a tree of tensors, dicts, lists, tuples, dataclasses and None.

    `index` (rows,) may drop, repeat and reorder rows: a beam search needs no method of the model for it.
    An object with a method `rows(index)` chooses its own rows. Strings and numbers are kept as they are.

    Raises TypeError for anything else, naming the type.
    """
    return cast(Tree, _select(state, index))


def _select(node: Any, index: Tensor) -> Any:
    if isinstance(node, Tensor):
        return node.index_select(0, index)  # several times as quick as node[index]
    if hasattr(node, "rows"):
        return node.rows(index)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = [field.name for field in dataclasses.fields(node)]
        return dataclasses.replace(node, **{name: _select(getattr(node, name), index) for name in fields})
    if isinstance(node, dict):
        return {name: _select(part, index) for name, part in cast(dict[Any, Any], node).items()}
    if isinstance(node, tuple | list):
        sequence = cast(list[Any], node)
        parts = [_select(part, index) for part in sequence]
        kind: Any = type(sequence)
        return kind(*parts) if hasattr(sequence, "_fields") else kind(parts)  # named tuples have fields
    if node is None or isinstance(node, str | int | float):
        return node
    raise TypeError(f"select_rows cannot choose batch rows of a {type(node).__name__}")
