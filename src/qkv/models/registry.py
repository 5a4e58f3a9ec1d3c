"""Architectures by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from qkv.errors import UserError, nearest
from qkv.models import cnn, encoder_decoder, ngrams, recurrent, recurrent_decoder, tcn, transformer_encoder
from qkv.nn.recurrent import Cell


@dataclass(frozen=True)
class Entry:
    """One architecture: its config, what it reads, and how it is built with each head that it can carry.

    `builds` maps a head to a builder that is called with the config and the sizes that the task knows:

    next_token  n_source, n_target             the model writes a target
    pooled      n_tokens, n_labels, n_segments it judges a text
    per_token   n_tokens, n_labels, n_segments it judges each token

    `symbols` says, by task, how texts are best cut for it where that is not what suits the other models. `fitted`: the
    model has `fit(batches)` and is not trained in steps.
    """

    name: str
    config: type[Any]
    builds: Mapping[str, Callable[..., nn.Module]]
    summary: str
    reads: frozenset[str] = frozenset({"tokens"})
    symbols: Mapping[str, str] = field(default_factory=dict)
    fitted: bool = False

    @property
    def heads(self) -> list[str]:
        return sorted(self.builds)

    def build(self, head: str, config: Any, **sizes: int) -> nn.Module:
        """The model with that head. Raises UserError as `check_head` does."""
        self.check_head(head)
        return self.builds[head](config, **sizes)

    def check_head(self, head: str) -> None:
        """Raises UserError for a head that the model cannot carry, naming the models that can."""
        if head not in self.builds:
            others = [entry.name for entry in models().values() if head in entry.builds]
            raise UserError(
                f"the model {self.name} has no {head} head, which this task needs. Models that have: "
                f"{', '.join(others) or 'none'}"
            )


_RECURRENT: dict[Cell, str] = {
    "rnn": "a simple recurrent net with tanh, read from both ends",
    "gru": "a gated recurrent net, read from both ends",
    "lstm": "a long short-term memory, read from both ends",
}

_ENTRIES = (
    Entry(
        "encoder_decoder",
        encoder_decoder.EncoderDecoderConfig,
        {"next_token": encoder_decoder.build},
        summary="the full Transformer: an encoder reads the source, a decoder writes the target",
    ),
    Entry(
        "transformer",
        transformer_encoder.TransformerEncoderConfig,
        {"pooled": transformer_encoder.build_pooled, "per_token": transformer_encoder.build_per_token},
        summary="the encoder-only Transformer: self-attention over a text, as in BERT",
    ),
    *(
        Entry(
            cell,
            recurrent.RecurrentConfig,
            recurrent_decoder.builders(cell),
            summary=f"{what}, alone or with attention",
        )
        for cell, what in _RECURRENT.items()
    ),
    Entry(
        "cnn",
        cnn.CnnConfig,
        {"pooled": cnn.build_pooled},
        summary="the text CNN: filters over neighbouring tokens, each at its strongest",
    ),
    Entry(
        "tcn",
        tcn.TcnConfig,
        {"pooled": tcn.build_pooled, "per_token": tcn.build_per_token},
        summary="causal dilated convolutions, residual: looks back only",
    ),
    Entry(
        "ngrams",
        ngrams.NGramsConfig,
        {"pooled": ngrams.build_pooled, "per_token": ngrams.build_per_token},
        summary="the baseline: bags of n-grams and logistic regression; of tags, the most frequent one of each word",
        symbols={"classification": "words", "tagging": "spaces"},
        fitted=True,
    ),
)


def models() -> dict[str, Entry]:
    """All architectures, by name."""
    return {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> Entry:
    """The architecture of that name; UserError with the nearest names when there is none."""
    known = models()
    if name not in known:
        raise UserError(f"unknown model {name!r}.{nearest(name, known)} Known models: {', '.join(sorted(known))}")
    return known[name]
