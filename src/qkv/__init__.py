"""qkv: a workbench for attention models. Train, look, check, compare."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qkv.inspection.record import record
    from qkv.run.run import Run, load
    from qkv.training.train import train

__version__ = "0.1.0"

__all__ = ["Run", "__version__", "load", "record", "train"]

# Where each name lives: imported when first used, so that `import qkv` and `qkv --help` do not wait for torch.
_HOMES = {
    "Run": "qkv.run.run",
    "load": "qkv.run.run",
    "record": "qkv.inspection.record",
    "train": "qkv.training.train",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'qkv' has no attribute {name!r}")
