"""The shape of every step of one forward, as rows for a terminal, a page or JSON.

Letters: B batch, H heads (Hk of keys and values, where fewer), Tq and Tk queries and keys, d width of a head, d_v of a
value.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from qkv.inspection.record import AttentionCalls, Record

Shape = tuple[int, ...]
Named = tuple[tuple[str, Shape], ...]

LEGEND = (
    "B batch, H heads, Hk heads of keys and values where fewer, Tq queries, Tk keys, d width of one head, "
    "d_v width of one value"
)


@dataclass(frozen=True)
class Row:
    """One step: a module's call, or a stage inside attention.

    path     the module, as in ``model.named_modules()`` ("" is the model itself)
    name     the path from the row above that encloses this one, or the stage: q, k, v, scores, weights, heads
    kind     the module's class, or what the stage is
    depth    how many rows enclose this one
    inputs   (name, shape) of each tensor that went in; outputs likewise
    letters  the output's axes spelled, for stages of attention: "(B, H, Tq, Tk)"
    """

    path: str
    name: str
    kind: str
    depth: int
    inputs: Named
    outputs: Named
    letters: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The row as plain lists and dicts, ready for JSON."""
        sides = {
            side: [{"name": name, "shape": list(shape)} for name, shape in getattr(self, side)]
            for side in ("inputs", "outputs")
        }
        return {
            "path": self.path, "name": self.name, "kind": self.kind, "depth": self.depth, **sides,
            "letters": self.letters,
        }  # fmt: skip


def trace(model: nn.Module, inputs: Mapping[str, Any]) -> list[Row]:
    """The steps of ``model(**inputs)`` in call order, without gradients and without dropout.

    The model is left as it was: hooks are removed and each module is back in its own mode, even when the forward
    raises. Modules that are never called (lists, empty ``Identity`` slots) have no row.
    """
    tracer = _Tracer()
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_evaluating(model))
        stack.enter_context(tracer.hooked(model))
        stack.enter_context(AttentionCalls(model, tracer.attention))
        model(**inputs)
    return tracer.rows


class _Tracer:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._open: list[tuple[int, str]] = []  # (index of the row, path) of the calls that are running

    @contextmanager
    def hooked(self, model: nn.Module) -> Iterator[None]:
        with ExitStack() as stack:
            for path, module in model.named_modules():
                if not isinstance(module, nn.Identity):
                    for handle in self._hooks(path, module):
                        stack.callback(handle.remove)
            yield

    def _hooks(self, path: str, module: nn.Module) -> Iterator[Any]:
        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._enter(path, module, args, kwargs)

        def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self._leave(output)

        yield module.register_forward_pre_hook(before, with_kwargs=True)
        # Also when it raises: the module that called may go on without it.
        yield module.register_forward_hook(after, always_call=True)

    def _leave(self, output: Any) -> None:
        index, _ = self._open.pop()
        self.rows[index] = dataclasses.replace(self.rows[index], outputs=tuple(shapes_in(output)))

    def _enter(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            given: Mapping[Any, Any] = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):  # no signature, or the wrong arguments: the call itself will say so
            given = {**dict(enumerate(args)), **kwargs}
        parent = self._open[-1][1] if self._open else ""
        name = path.removeprefix(f"{parent}.") if parent else path
        kind = type(module).__name__
        row = Row(path, name or kind, kind, len(self._open), tuple(shapes_in(given)), ())
        self._open.append((len(self.rows), path))
        self.rows.append(row)

    def attention(self, seen: Record) -> None:
        """The stages of one call of attention, which stand before what the module does after it."""
        of, weights = seen.shapes, tuple(seen.weights.shape)
        keys = "(B, H, Tk, " if of["key"][1] == of["query"][1] else "(B, Hk, Tk, "
        q, k, v = (("q", of["query"]),), (("k", of["key"]),), (("v", of["value"]),)
        stages: list[tuple[str, str, Named, Shape, str]] = [
            ("q", "queries", (), of["query"], "(B, H, Tq, d)"),
            ("k", "keys", (), of["key"], f"{keys}d)"),
            ("v", "values", (), of["value"], f"{keys}d_v)"),
            ("scores", "q compared with k", q + k, weights, "(B, H, Tq, Tk)"),
            ("weights", "softmax over keys", (("scores", weights),), weights, "(B, H, Tq, Tk)"),
            ("heads", "weights times v", (("weights", weights), *v), of["output"], "(B, H, Tq, d_v)"),
        ]
        self.rows.extend(
            Row(seen.path, name, kind, len(self._open), taken, (("", shape),), letters)
            for name, kind, taken, shape, letters in stages
        )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; each module gets back the mode it had, which need not be its parent's."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def shapes_in(value: Any, name: str = "") -> Iterator[tuple[str, Shape]]:
    """(name, shape) of each tensor in a tree of dicts, lists and dataclasses (masks and decoder states are such)."""
    if isinstance(value, Tensor):
        yield name, tuple(value.shape)
        return
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    else:
        return
    for key, part in parts:
        yield from shapes_in(part, f"{name}.{key}" if name else str(key))


def spelled(shapes: Named) -> str:
    """Shapes in one line: ``(2, 7)``, or with names where there are several: ``x (2, 7, 32), mask.keys (2, 7)``."""
    if len(shapes) == 1:
        return str(shapes[0][1])
    return ", ".join(f"{name} {shape}".strip() for name, shape in shapes)


def table(rows: Sequence[Row]) -> Table:
    """The rows for a terminal: `rich.print(table(rows))`. The caption says what the letters stand for."""
    drawn = Table("step", "what", "in", "out", box=None, header_style="bold", caption=LEGEND, caption_justify="left")
    for row in rows:
        style = "" if not row.letters else "cyan"
        out = " ".join(part for part in (spelled(row.outputs), row.letters) if part)
        cells = ("  " * row.depth + row.name, row.kind, spelled(row.inputs), out)
        drawn.add_row(*(Text(cell, style=style) for cell in cells))
    return drawn
