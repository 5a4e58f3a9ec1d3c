"""float32 or bfloat16: decided by timing one matrix product, and said."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Precision:
    """What the products run in. Weights, optimiser and softmax stay in float32."""

    dtype: torch.dtype
    reason: str

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(device.type, dtype=self.dtype)

    @property
    def name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def matrix_rate(dtype: torch.dtype, device: torch.device, rows: int = 2048, width: int = 512) -> float:
    """Floating-point operations per second of one (rows x width) by (width x width) product: the best of five."""
    a = torch.randn(rows, width, device=device).to(dtype)
    b = torch.randn(width, width, device=device).to(dtype)
    best = float("inf")
    for _ in range(6):  # the first one also sets up the kernel; the best of the rest is taken with it
        start = time.perf_counter()
        c = a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
        del c
    return 2.0 * rows * width * width / best


def choose_precision(wanted: str, device: torch.device) -> Precision:
    """The precision that `wanted` names; auto takes bfloat16 where its products are 1.5 times as quick."""
    if wanted != "auto":
        return Precision(getattr(torch, wanted), "as asked")
    if device.type == "mps":
        return Precision(torch.float32, "float32 on mps")
    rates = {dtype: matrix_rate(dtype, device) for dtype in (torch.float32, torch.bfloat16)}
    ratio = rates[torch.bfloat16] / rates[torch.float32]
    chosen = torch.bfloat16 if ratio >= 1.5 else torch.float32
    figures = f"bfloat16 {rates[torch.bfloat16] / 1e9:.0f}, float32 {rates[torch.float32] / 1e9:.0f} GFLOP/s"
    return Precision(chosen, f"matrix products here: {figures}")
