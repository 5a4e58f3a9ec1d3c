"""Masked language modelling: some tokens are hidden, and the model says what they were (Devlin et al. 2019, 3.1).

Letters: B batch, T time, V vocabulary.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.data.batches import length_batches, pad
from qkv.data.ids import learn
from qkv.data.pair_data import symbol_kind
from qkv.data.symbols import BOS, PAD, UNK, Symbols
from qkv.data.texts import Labelled, Texts
from qkv.errors import UserError
from qkv.tasks.batch import Batch
from qkv.tasks.prediction import Prediction

IGNORED = -100
"""The target of a position where nothing is asked."""

MARK = "[MASK]"
"""What stands for a token to be filled in, in a text to predict from."""

BATCH_TOKENS = 4096
SHOWN = 5
"""Symbols that a prediction offers for its first mark."""

BEGIN = "\u2581"
"""Begins the sub-word that begins a word."""


@dataclass(frozen=True)
class MaskedLMConfig:
    """What is hidden.

    share       of the tokens that are asked for; at least one of each text
    hidden      of those, the share that the mask symbol replaces
    replaced    and the share that another symbol replaces; the rest stays as it is
    whole_word  all sub-words of a word together
    window      most tokens read at once, the first control symbol included: a longer text is read in several windows
    """

    share: float = 0.15
    hidden: float = 0.8
    replaced: float = 0.1
    whole_word: bool = True
    window: int = 128

    def __post_init__(self):
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"share {self.share}: must be between 0 and 1")
        if min(self.hidden, self.replaced) < 0.0 or self.hidden + self.replaced > 1.0:
            raise ValueError(f"hidden {self.hidden} and replaced {self.replaced}: shares that add up to 1 at most")
        if self.window < 2:
            raise ValueError(f"window {self.window}: must be 2 or more")


class MaskedLM:
    """Hides tokens, asks for them, scores and fills in. Knows no model."""

    name = "masked_lm"
    head = "per_token"
    metric = "perplexity"
    metrics = ("perplexity", "accuracy", "loss")

    def __init__(self, config: MaskedLMConfig, source: Symbols):
        self.config, self.source = config, source
        self.mask_id = len(source)
        self._names = source.decode(range(len(source)), controls=True)
        self._subwords = source.kind in ("bpe", "unigram")
        self._begins = torch.tensor([not self._subwords or name.startswith(BEGIN) for name in self._names])  # (V,)
        blank = BEGIN if self._subwords else ""
        self._sayable = torch.tensor([i > UNK and name != blank for i, name in enumerate(self._names)])  # (V,)

    @classmethod
    def of(cls, config: MaskedLMConfig, data: Texts, *, kind: str) -> MaskedLM:
        """The task with the vocabulary of the training texts."""
        return cls(config, learn((example.text for example in _texts(data.train)), symbol_kind(kind), "text"))

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes, as the architectures' builders name them: the mask is one symbol more to read, and none to say."""
        return {"n_tokens": len(self.source) + 1, "n_labels": len(self.source), "n_segments": 1}

    @property
    def whole_words(self) -> bool:
        """Whether words are not cut: then there are always some that training has not."""
        return self.source.kind in ("spaces", "words")

    def is_empty(self, text: str) -> bool:
        """Whether there is nothing in a text."""
        return not self.source.split(text)

    def items(self, examples: Sequence[Labelled]) -> list[list[int]]:
        """The windows of every text, BOS in front: all tokens are in one of them."""
        room = self.config.window - 1
        found: list[list[int]] = []
        for example in examples:
            ids = self.source.encode(example.text)
            found += [[BOS, *ids[start : start + room]] for start in range(0, len(ids), room)]
        return found

    def lengths(self, items: Sequence[list[int]]) -> list[tuple[int, int]]:
        """Tokens of each window."""
        return [(len(ids), 0) for ids in items]

    def collate(self, items: Sequence[list[int]]) -> Batch:
        """Windows with hidden tokens, and what these were; which ones is drawn from torch's generator each time."""
        tokens, mask = pad(items, PAD)  # (B, T)
        return self._hidden(tokens, mask, torch.rand(3, *tokens.shape))

    def _collated_to_score(self, items: Sequence[list[int]]) -> Batch:
        """What is asked of a window follows from the window alone, whatever stands beside it."""
        tokens, mask = pad(items, PAD)  # (B, T)
        draws = torch.zeros(3, *tokens.shape)
        for row, ids in enumerate(items):
            own = torch.Generator().manual_seed(zlib.crc32(str(ids).encode()))
            draws[:, row, : len(ids)] = torch.rand(3, len(ids), generator=own)
        return self._hidden(tokens, mask, draws)

    def _hidden(self, tokens: Tensor, mask: Tensor, draws: Tensor) -> Batch:
        """Tokens (B, T) with some of them hidden. `draws` (3, B, T): which, what becomes of each, the other symbol."""
        asked = self._chosen(tokens, mask, draws[0])
        targets = torch.where(asked, tokens, IGNORED)
        count = max(len(self.source) - UNK - 1, 1)
        other = UNK + 1 + (draws[2] * count).long().clamp_max(count - 1)  # (B, T)
        hidden, replaced = self.config.hidden, self.config.hidden + self.config.replaced
        shown = torch.where(draws[1] < hidden, self.mask_id, torch.where(draws[1] < replaced, other, tokens))
        inputs = {"tokens": torch.where(asked, shown, tokens), "mask": mask}
        return Batch(inputs, targets, int(asked.sum()), int(mask.sum()))

    def _chosen(self, tokens: Tensor, mask: Tensor, draw: Tensor) -> Tensor:
        """Which tokens are asked for, (B, T): the words with the lowest draws, until the share is full."""
        may = mask & (tokens != BOS)
        begins = self._begins[tokens] | (torch.arange(tokens.size(1)) <= 1)
        word = begins.cumsum(1) - 1 if self.config.whole_word else torch.arange(tokens.size(1)).expand_as(tokens)
        draw = draw.gather(1, word).masked_fill(~may, 2.0)  # (B, T)
        count = (may.sum(1, keepdim=True) * self.config.share).round().long().clamp_min(1)  # (B, 1)
        limit = draw.sort(1).values.gather(1, count - 1)  # (B, 1)
        return (draw <= limit) & may

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy summed over the tokens asked for. logits (B, T, V)."""
        asked = batch.targets != IGNORED
        return F.cross_entropy(logits[asked].float(), batch.targets[asked], reduction="sum")

    def evaluate(
        self,
        model: nn.Module,
        examples: Sequence[Labelled],
        *,
        quick: bool = False,
        advance: Callable[[int], None] | None = None,
        divide: Any = None,
    ) -> dict[str, float]:
        """Perplexity and accuracy (percent) of the tokens asked for, which are the same each time.

        `advance(n)` is called with the number of texts done; of texts in several windows, by their share. Nothing but
        sums is kept of a batch. `quick` and `divide` change nothing: every process does all of it. Raises ValueError
        when there is no example.
        """
        items = self.items(examples)
        if not items:
            raise ValueError("there is no text to score")
        total = right = count = done = 0.0
        device = next(model.parameters()).device
        for rows in length_batches(self.lengths(items), BATCH_TOKENS, 0, 0, shuffle=False):
            batch = self._collated_to_score([items[row] for row in rows]).to(device)
            with torch.no_grad():
                logits = model(**batch.inputs)
                total += float(self.loss(logits, batch))
            asked = batch.targets != IGNORED
            right += float((logits[asked].argmax(-1) == batch.targets[asked]).sum())
            count += batch.n_targets
            before, done = done, done + len(rows) * len(examples) / len(items)
            if advance:
                advance(round(done) - round(before))
        ids = [id_ for item in items for id_ in item[1:]]
        return {
            "perplexity": math.exp(min(total / count, 700.0)),
            "accuracy": 100.0 * right / count,
            "unknown": 100.0 * ids.count(UNK) / max(len(ids), 1),
        }

    def unknown_share(self, examples: Sequence[Labelled]) -> float:
        """Percent of the tokens of these texts that training has not."""
        ids = [id_ for example in examples for id_ in self.source.encode(example.text)]
        return 100.0 * ids.count(UNK) / max(len(ids), 1)

    def predict(
        self, model: nn.Module, texts: Sequence[str], *, advance: Callable[[int], None] | None = None
    ) -> list[Prediction]:
        """Each text, as it was typed, with its marks [MASK] filled in; n_best differ in the first of them.

        Sub-words are offered as the text asks for them: behind a blank those that begin a word, else those that go on.
        Raises UserError for a text without a mark, or longer than a window, saying which.
        """
        marked = [self._marked(text, f"text {number} of {len(texts)}") for number, text in enumerate(texts, 1)]
        found: dict[int, Prediction] = {}
        device = next(model.parameters()).device
        for rows in length_batches(self.lengths(marked), BATCH_TOKENS, 0, 0, shuffle=False):
            tokens, mask = pad([marked[row] for row in rows], PAD)  # (B, T)
            with torch.no_grad():
                logits = model(tokens=tokens.to(device), mask=mask.to(device))
                held = logits[tokens == self.mask_id].float().log_softmax(-1).exp().cpu()  # (marks of all rows, V)
            counts = [marked[row].count(self.mask_id) for row in rows]
            for row, own in zip(rows, held.split(counts), strict=True):
                found[row] = self._filled(texts[row], own)
            if advance:
                advance(len(rows))
        return [found[row] for row in range(len(texts))]

    def _marked(self, text: str, where: str) -> list[int]:
        if MARK not in text:
            raise UserError(f"{where} has no {MARK}: write it where a word is to be filled in")
        ids = [BOS]
        for place, part in enumerate(text.split(MARK)):
            ids += [self.mask_id] * (place > 0) + self._part(part, behind_a_mark=place > 0)
        if len(ids) > self.config.window:
            raise UserError(f"{where} has {len(ids) - 1} tokens; this run reads {self.config.window - 1}")
        return ids

    def _part(self, part: str, behind_a_mark: bool) -> list[int]:
        """The ids of the text between two marks. A mark stands for a sub-word with the blank before it."""
        if not self._subwords:
            return self.source.encode(part)
        ids = self.source.encode(part.strip()) if part.strip() else []
        if ids and behind_a_mark and not part[0].isspace():  # goes on with the word: the blank that begins one is none
            rest = self._names[ids[0]].removeprefix(BEGIN)
            known = rest in self.source
            ids[:1] = [self._names.index(rest, UNK + 1)] if known else ids[:1] if rest else []
        return ids

    def _filled(self, text: str, held: Tensor) -> Prediction:
        """The text with a symbol at each of its M marks; `held` (M, V) are the probabilities there."""
        parts = text.split(MARK)
        may = torch.stack([self._may(before, place == 0) for place, before in enumerate(parts[:-1])])  # (M, V)
        held = held.masked_fill(~may, 0.0)
        best = held[0].topk(max(1, min(SHOWN, int(may[0].sum()))))
        rest = [self.source.text([id_]) for id_ in held[1:].argmax(1).tolist()]
        texts = [
            "".join(chain.from_iterable(zip(parts, [self.source.text([id_]), *rest, ""], strict=True)))
            for id_ in best.indices.tolist()
        ]
        probabilities = best.values.tolist()
        unknown = self.source.encode_text(text.replace(MARK, " "))[1]
        n_best = list(zip(texts, probabilities, strict=True))
        return Prediction(text, texts[0], probabilities[0], True, unknown, n_best, probabilities)

    def _may(self, before: str, first: bool) -> Tensor:
        """Which symbols fit behind that text, (V,): of sub-words, those that begin a word or those that go on."""
        if not self._subwords:
            return self._sayable
        begins = before[-1].isspace() if before else first
        return self._sayable & (self._begins == begins)

    def save(self, folder: Path) -> None:
        """Writes tokenizer.json."""
        self.source.save(folder / "tokenizer.json")

    @classmethod
    def load(cls, folder: Path, config: MaskedLMConfig) -> MaskedLM:
        """The task of a run folder. Raises UserError when its vocabulary is missing or damaged."""
        return cls(config, Symbols.load(folder / "tokenizer.json"))


def _texts(examples: Any) -> Sequence[Labelled]:
    return examples
