"""Settings of training, and the whole config of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained.

    lr             highest learning rate
    schedule       after warm-up: cosine to 0, inverse_sqrt (Vaswani et al. 2017, section 5.3), or constant
    warmup         steps over which the rate rises from 0 to lr; at most half of all steps
    steps          optimiser steps; 0: as many as fit in `minutes`
    minutes        training time, measured on this machine and turned into steps before training starts
    batch_tokens   padded source and target tokens of one batch; not said, fewer where there are few examples
    accumulate     batches added up for one step
    clip           largest gradient norm; 0: no limit
    weight_decay   on matrices, not on norms, biases and embeddings
    precision      auto times one matrix product to choose; bfloat16 keeps weights in float32
    evaluations    evaluations on dev, spread evenly, the last at the end (there is always that one); the best is kept
    seed           of initialisation, order and dropout
    """

    lr: float = 1e-3
    schedule: Literal["cosine", "inverse_sqrt", "constant"] = "cosine"
    warmup: int = 200
    steps: int = 0
    minutes: float = 0.0
    batch_tokens: int = 4096
    accumulate: int = 1
    clip: float = 1.0
    weight_decay: float = 0.01
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    evaluations: int = 5
    seed: int = 0

    def __post_init__(self):
        positive = {"lr": self.lr, "batch_tokens": self.batch_tokens, "accumulate": self.accumulate}
        at_least_0 = {
            "steps": self.steps,
            "minutes": self.minutes,
            "warmup": self.warmup,
            "clip": self.clip,
            "weight_decay": self.weight_decay,
            "evaluations": self.evaluations,
            "seed": self.seed,
        }
        for name, value in positive.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")
        for name, value in at_least_0.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {value}")
        if self.steps > 10**9 or self.batch_tokens > 10**9:
            raise ValueError(f"steps and batch_tokens must be at most 1e9, got {self.steps} and {self.batch_tokens}")
        if self.seed >= 2**63:
            raise ValueError(f"seed must be below 2**63, got {self.seed}")


@dataclass(frozen=True)
class KeepConfig:
    """Which of the models that training passes through is kept, and when there is no better one to wait for.

    metric    the figure on dev that the kept model is best in; "": the task's own (of pairs: per)
    patience  evaluations in a row without a better one after which training stops early; 0: it goes on to its end
    ema       share that a running average of the weights keeps at each step (0.999 is usual; 0: none); the average is
              then what is evaluated and kept
    """

    metric: str = ""
    patience: int = 0
    ema: float = 0.0

    def __post_init__(self):
        if self.patience < 0:
            raise ValueError(f"patience must not be negative, got {self.patience}")
        if not 0.0 <= self.ema < 1.0:
            raise ValueError(f"ema must be in [0, 1), got {self.ema}")
