"""AdamW and how its rate changes."""

from __future__ import annotations

import math

import torch
from torch import nn

from qkv.training.config import TrainingConfig


def make_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) with betas (0.9, 0.98); weight decay on matrices that are not embeddings."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    matrices = [p for p in model.parameters() if p.ndim > 1 and id(p) not in tables]
    others = [p for p in model.parameters() if p.ndim <= 1 or id(p) in tables]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=config.lr, betas=(0.9, 0.98), fused=True)


def learning_rate(config: TrainingConfig, step: int, steps: int) -> float:
    """The rate of optimiser step `step` (from 0) of `steps`: linear warm-up, then the schedule."""
    warmup = min(config.warmup, max(steps // 2, 1))
    if step < warmup:
        return config.lr * (step + 1) / warmup
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(warmup / (step + 1)) if warmup else config.lr / math.sqrt(step + 1)
    if config.schedule == "cosine":
        done = (step - warmup) / max(steps - warmup, 1)
        return config.lr * 0.5 * (1.0 + math.cos(math.pi * done))
    return config.lr
