"""What a search asks of a model, what it gives back, and the checks that all searches share.

Letters: B rows of the batch, Tp symbols of the prompt, V symbols of the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from qkv.errors import UserError

State = TypeVar("State")


class Decodes(Protocol[State]):
    """A model that writes one symbol after the other.

    The state is whatever `qkv.nn.state.select_rows` can choose rows of: a tree of batch-first tensors. A search
    drops, repeats and reorders rows with it, so a model has no method for that.
    """

    def prefill(self, inputs: dict[str, Tensor]) -> tuple[Tensor, State]:
        """Reads all `inputs`, the prompt "target" (B, Tp) among them: (logits of the next symbol (B, V), state)."""
        ...

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Reads one symbol more a row, `tokens` (B,): (logits of the symbol after it (B, V), state)."""
        ...


def decodes(model: nn.Module) -> Decodes[Any]:
    """The model as what a search needs. Raises UserError when it has no `prefill` and `step`, naming its class."""
    if not (hasattr(model, "prefill") and hasattr(model, "step")):
        raise UserError(f"{type(model).__name__} cannot write one symbol after the other: it has no prefill and step")
    return cast("Decodes[Any]", model)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output for one row.

    tokens     the generated symbols: no prompt, no eos
    score      what hypotheses are ranked by: log_prob / length ** length_penalty, where length counts the generated
               symbols, eos included, and never the prompt. Greedy search ranks nothing: there it is log_prob
    log_prob   natural logarithm of the probability of the generated symbols, eos included, given inputs and prompt
    finished   False when `max_length` came before eos: the output was cut
    """

    tokens: list[int]
    score: float
    log_prob: float
    finished: bool


def start(
    model: Decodes[State], inputs: dict[str, Tensor], *, bos: int, eos: int, max_length: int
) -> tuple[Tensor, State]:
    """The model's first answer, after what every search checks.

    `inputs` without "target" get the prompt bos alone. Raises UserError for a `max_length` below 1, for a prompt that
    is empty or doesn't start with bos (after the pads that "target_mask" marks), for a model in training mode (its
    dropout would make the search random) and for an eos that the model can't say.
    """
    if max_length < 1:
        raise UserError(f"max_length must be 1 or more generated symbols (eos counts), got {max_length}")
    if getattr(model, "training", False):
        raise UserError("the model is in training mode: its dropout would disturb the search; call model.eval() first")
    logits, state = model.prefill(_with_prompt(inputs, bos))
    if not 0 <= eos < logits.size(1):
        raise UserError(f"eos must be one of the model's symbols, 0 to {logits.size(1) - 1}, got {eos}")
    return logits, state


def check_beam(beam: int, n_best: int, length_penalty: float, max_length: int) -> None:
    """Raises UserError for settings of a beam search that can't be, saying what can."""
    if beam < 1:
        raise UserError(f"beam must be 1 (greedy) or more hypotheses, got {beam}")
    if not 1 <= n_best <= beam:
        raise UserError(f"n_best must be from 1 to beam ({beam}), got {n_best}: use a wider beam for more hypotheses")
    # Scores are float32: length ** length_penalty must stay well inside its range.
    if not math.isfinite(length_penalty) or abs(length_penalty) * math.log(max(max_length, 2)) > 80:
        raise UserError(
            f"length_penalty must be a number near 0 (none) or 1 (mean log-probability), got {length_penalty}"
        )


def refuse_broken(broken: bool) -> None:
    """Raises UserError when a search met scores that aren't numbers."""
    if broken:
        raise UserError("the model's scores are not numbers (NaN): its weights are damaged or its training diverged")


def _with_prompt(inputs: dict[str, Tensor], bos: int) -> dict[str, Tensor]:
    if "target" not in inputs:
        if not inputs:
            raise UserError("there is nothing to decode from: give the model's inputs, such as source and source_mask")
        first = next(iter(inputs.values()))
        return {**inputs, "target": torch.full((len(first), 1), bos, device=first.device)}
    prompt, mask = inputs["target"], inputs.get("target_mask")
    if prompt.dim() != 2 or prompt.size(1) == 0:
        raise UserError(
            f"the prompt (target) must be (rows, symbols) with bos ({bos}) first, got shape {tuple(prompt.shape)}"
        )
    begin = torch.zeros_like(prompt[:, 0]) if mask is None else mask.to(torch.uint8).argmax(1)
    wrong = (prompt.gather(1, begin[:, None])[:, 0] != bos).nonzero()
    if len(wrong):
        row = int(wrong[0])
        raise UserError(f"each prompt (target) must start with bos ({bos}); row {row} is {prompt[row].tolist()}")
    return inputs
