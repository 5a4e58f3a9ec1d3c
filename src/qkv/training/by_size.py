"""Settings that depend on how many examples there are, where the person has not said them."""

from __future__ import annotations

import math
from typing import Any

from qkv.training.settings import Settings

FEW = 10_000
"""Training examples below which a smaller model, held back more from learning them by heart, is better sooner."""

SMALL = {"model.d_model": 128, "model.d_ff": 512, "model.dropout": 0.2}


def for_examples(wanted: Settings, count: int) -> tuple[Settings, list[str]]:
    """`wanted` with what suits `count` training examples in place of defaults, and notes on what was changed.

    Where nobody says otherwise, batches hold about a token for each eighth example, from 256 to 4,096: few examples
    make few steps otherwise. The figures behind it are in docs/decisions.md.
    """
    suited: dict[str, Any] = {"training.batch_tokens": 2 ** min(12, max(8, round(math.log2(max(count, 1) / 8))))}
    if count < FEW and SMALL.keys() <= {f"model.{name}" for name in wanted.model}:
        # One size by itself says nothing about the other.
        sized = {"model.d_model", "model.d_ff"} & wanted.given
        suited |= {name: value for name, value in SMALL.items() if not sized or name == "model.dropout"}
    found = wanted.suited(suited)
    if found == wanted:
        return found, []
    said = ", ".join(f"--{name} {value}" for name, value in suited.items() if name not in wanted.given)
    return found, [f"{count:,} training examples are few: {said}, unless you say otherwise"]
