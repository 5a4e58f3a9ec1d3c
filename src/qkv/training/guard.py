"""When a loss or gradient stops being finite: which module was the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from qkv.errors import UserError

NOWHERE = "the loss itself, or the backward pass"
"""Where it was when nothing before it is at fault."""


class NotFinite(UserError):
    """The loss or a gradient became NaN or infinite. The message names the first module; nothing was saved over."""


def first_not_finite(model: nn.Module, forward: Callable[[], object]) -> str:
    """Runs `forward` again and names what first holds a NaN or an infinity: a parameter, or a module's output."""
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"the parameter {name} (the step before this one broke it)"
    found: list[str] = []

    def watch(path: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                found.append(f"the output of {path or 'the model'} ({type(module).__name__})")

        return hook

    handles = [module.register_forward_hook(watch(path)) for path, module in model.named_modules()]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else NOWHERE


def first_bad_gradient(model: nn.Module) -> str:
    """Names the parameter nearest to the output whose gradient is not finite."""
    bad = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all())
    ]
    return f"the gradient of {bad[-1]} (and of {len(bad) - 1} other parameters)" if bad else "the gradient norm"
