"""Architectures by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from qkv.errors import UserError, nearest
from qkv.models import encoder_decoder


@dataclass(frozen=True)
class Entry:
    """One architecture: its config, how it is built, what it reads and which heads it can carry."""

    name: str
    config: type[Any]
    build: Callable[..., nn.Module]
    reads: frozenset[str]
    heads: frozenset[str]
    summary: str


_ENTRIES = (
    Entry(
        "encoder_decoder",
        encoder_decoder.EncoderDecoderConfig,
        encoder_decoder.build,
        reads=frozenset({"tokens"}),
        heads=frozenset({"next_token"}),
        summary="the full Transformer: an encoder reads the source, a decoder writes the target",
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
