"""float32 or bfloat16: decided by timing one matrix product, and said."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Precision:
    """What the products run in. Weights and optimiser stay in float32. `gflops` are the rates timed to choose it."""

    dtype: torch.dtype
    reason: str
    gflops: Mapping[str, float] = field(default_factory=dict)

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(device.type, dtype=self.dtype)

    @property
    def name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def matrix_rate(dtype: torch.dtype, device: torch.device, rows: int = 2048, width: int = 512) -> float:
    """Floating-point operations per second of one (rows x width) by (width x width) product: the best of five.

    A processor without arithmetic for `dtype` would take seconds: where a 16th of the rows is slow, its rate is told.
    """
    own = torch.Generator(device).manual_seed(0)  # what training draws must not depend on what was timed
    a = torch.randn(rows, width, device=device, generator=own).to(dtype)
    b = torch.randn(width, width, device=device, generator=own).to(dtype)

    def seconds(n_rows: int) -> float:
        _finish(device)
        start = time.perf_counter()
        torch.mm(a[:n_rows], b)
        _finish(device)
        return time.perf_counter() - start

    few = rows // 16
    seconds(few)  # sets up the kernel
    trial = seconds(few)
    if trial > 0.02:
        return 2.0 * few * width * width / trial
    return 2.0 * rows * width * width / min(seconds(rows) for _ in range(5))


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def choose_precision(wanted: str, device: torch.device) -> Precision:
    """The precision that `wanted` names; auto takes bfloat16 where its products are 1.5 times as quick."""
    if wanted != "auto":
        return Precision(getattr(torch, wanted), "as asked")
    if device.type == "mps":
        return Precision(torch.float32, "float32 on mps")
    # On a GPU a small product is over before the next one is launched.
    rows, width = (4096, 4096) if device.type == "cuda" else (2048, 512)
    rates = {dtype: matrix_rate(dtype, device, rows, width) for dtype in (torch.float32, torch.bfloat16)}
    ratio = rates[torch.bfloat16] / rates[torch.float32]
    chosen = torch.bfloat16 if ratio >= 1.5 else torch.float32
    figures = f"bfloat16 {rates[torch.bfloat16] / 1e9:.0f}, float32 {rates[torch.float32] / 1e9:.0f} GFLOP/s"
    gflops = {str(dtype).removeprefix("torch."): rate / 1e9 for dtype, rate in rates.items()}
    return Precision(chosen, f"matrix products here: {figures}", gflops)
