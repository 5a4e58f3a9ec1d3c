"""What every reader of labelled text returns: texts with labels, or words with tags, in three splits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

SUBWORDS = 8000
"""Sub-words of a vocabulary at most, where nobody says how many."""

_NO_BLANKS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
"""Letters of scripts that put no blank between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text (or two, which are judged together) and what is said of it.

    `labels` holds one label; where several may hold together, any number of them, none too.
    """

    text: str
    labels: tuple[str, ...]
    second: str = ""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence of words, each with its tag: both are of one length."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """Examples in three splits, what is asked of them, and what identifies the data.

    task         the task they are for: classification or masked_lm (of Labelled), or tagging (of Tagged)
    labels       all labels or tags of the training split, sorted
    several      whether a text may have any number of labels
    symbols      how text becomes tokens, as `pair_data.symbol_kind` reads it; "auto" leaves it to the task
    notes        sentences for the reader of a report (what was dropped or changed)
    fingerprint  a sha256 of the examples and of the options they were read with
    """

    train: Sequence[Any]
    dev: Sequence[Any]
    test: Sequence[Any]
    name: str
    task: str
    labels: tuple[str, ...]
    fingerprint: str
    symbols: str = "auto"
    several: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def splits(self) -> dict[str, Sequence[Any]]:
        """The splits by name, in the order train, dev, test."""
        return {"train": self.train, "dev": self.dev, "test": self.test}


def usual_symbols(data: Texts) -> str:
    """The kind of symbols that suits these texts: characters where no blanks stand between words, else sub-words."""
    texts = " ".join(_text(example) for example in islice(data.train, 2000))
    letters = sum(map(str.isalpha, texts))
    return "characters" if 2 * len(_NO_BLANKS.findall(texts)) > letters else f"bpe:{SUBWORDS}"


def _text(example: Labelled | Tagged) -> str:
    return example.text if isinstance(example, Labelled) else " ".join(example.words)
