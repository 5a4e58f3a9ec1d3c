"""What a model attends to, without changing the model.

``attend`` hands every call to an active ``TorchFunctionMode`` whole, so nothing is installed in the model: there are
no hooks to remove, and outputs are the very numbers of an unrecorded run. Letters: B batch, H heads, Tq and Tk queries
and keys.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from qkv.nn.attention import attend, attention_weights

_ATTEND = inspect.signature(attend)


@dataclass(frozen=True)
class Record:
    """One call of attention.

    path     the module that called, as in ``model.named_modules()``: "decoder.blocks.0.cross_attention"
    axes     what the rows and the columns of the weights are: ("target token", "source token")
    weights  (B, H, Tq, Tk) float32, before dropout, detached unless asked; a row that may attend to nothing is 0
    shapes   of "query", "key", "value" as the call got them and of "output", what it returned
    """

    path: str
    axes: tuple[str, str]
    weights: Tensor
    shapes: dict[str, tuple[int, ...]]


@dataclass
class Recording:
    """The records of a ``with record(model)`` block, in call order; empty when no attention was computed."""

    records: list[Record] = field(default_factory=list)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Record:
        return self.records[index]


@contextmanager
def record(model: nn.Module, *, detach: bool = True) -> Iterator[Recording]:
    """Records every attention that ``model`` computes inside the block, by ``forward``, ``prefill`` or ``step`` alike.

        with record(model) as seen:
            model(source=source, target=target)
        seen[0].weights  # (B, H, Tq, Tk)

    Weights are computed a second time from the query, key, mask, score and bias of the call, in float32. With
    ``detach=False`` gradients flow through them, for a loss on attention. Attention of modules outside ``model`` is
    left out.
    """
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"record looks into a torch.nn.Module, not into a {type(model).__name__}")
    seen = Recording()
    with AttentionCalls(model, seen.records.append, detach):
        yield seen


class AttentionCalls(TorchFunctionMode):
    """Passes a Record to ``on_record`` after each call of ``attend`` by a module of ``model``; changes no result."""

    def __init__(self, model: nn.Module, on_record: Callable[[Record], object], detach: bool = True) -> None:
        super().__init__()
        self._detach = detach
        self._paths = {module: path for path, module in model.named_modules()}
        self._on_record = on_record

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func is attend and (path := self._caller()) is not None:
            call = _ATTEND.bind(*args, **(kwargs or {})).arguments
            shapes = {name: tuple(call[name].shape) for name in ("query", "key", "value")}
            shapes["output"] = tuple(output.shape)
            self._on_record(Record(path, axes_of(path), weights_of(call, self._detach), shapes))
        return output

    def _caller(self) -> str | None:
        """The path of the innermost module whose method is running.

        Read from the call stack and not from hooks: decoders call ``step`` and ``read``, which no hook sees.
        """
        frame = sys._getframe(2)
        while frame is not None:
            caller = frame.f_locals.get("self")
            if isinstance(caller, nn.Module) and caller in self._paths:
                return self._paths[caller]
            frame = frame.f_back
        return None


def weights_of(call: dict[str, Any], detach: bool = True) -> Tensor:
    """Weights (B, H, Tq, Tk) of the arguments of one ``attend`` call: float32, before dropout."""
    query, key, score = call["query"], call["key"], call.get("score")
    given = {name: call[name] for name in ("mask", "bias") if name in call}
    gradients = torch.is_grad_enabled() and not detach
    with torch.set_grad_enabled(gradients), torch.autocast(query.device.type, enabled=False):
        if query.dtype not in (torch.float32, torch.float64):
            query, key = query.float(), key.float()
        if isinstance(score, nn.Module):
            score = _InDtype(score, query.dtype)
        if score is not None:
            given["score"] = score
        return attention_weights(query, key, **given).float()


class _InDtype:
    """A score with parameters, computed in ``dtype`` without touching the parameters themselves."""

    def __init__(self, score: nn.Module, dtype: torch.dtype) -> None:
        tensors = {**dict(score.named_parameters()), **dict(score.named_buffers())}
        self._score = score
        self._tensors = {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}

    def dot_scale(self, d: int) -> None:
        return None

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return functional_call(self._score, self._tensors, (query, key))


def axes_of(path: str) -> tuple[str, str]:
    """What rows and columns of the weights at ``path`` are, as far as the names of the modules say it.

    "cross" reads the source from the target; otherwise "decoder" and "encoder" read themselves; where no name says
    more, ("query", "key").
    """
    if "cross" in path:
        return "target token", "source token"
    if "decoder" in path:
        return "target token", "target token"
    if "encoder" in path:
        return "source token", "source token"
    return "query", "key"
