"""Masked language modelling: some tokens are hidden, and the model says what they were (Devlin et al. 2019, 3.1).

Letters: B batch, T time, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
        names = source.decode(range(len(source)), controls=True)
        subwords = source.kind in ("bpe", "unigram")
        self._begins = torch.tensor([not subwords or name.startswith("▁") for name in names])  # (V,)

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
        asked = self._chosen(tokens, mask)
        targets = torch.where(asked, tokens, IGNORED)
        draw = torch.rand(tokens.shape)  # (B, T)
        other = torch.randint(UNK + 1, max(len(self.source), UNK + 2), tokens.shape)
        hidden, replaced = self.config.hidden, self.config.hidden + self.config.replaced
        shown = torch.where(draw < hidden, self.mask_id, torch.where(draw < replaced, other, tokens))
        inputs = {"tokens": torch.where(asked, shown, tokens), "mask": mask}
        return Batch(inputs, targets, int(asked.sum()), int(mask.sum()))

    def _chosen(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Which tokens are asked for, (B, T): the words with the lowest draws, until the share is full."""
        may = mask & (tokens != BOS)
        begins = self._begins[tokens] | (torch.arange(tokens.size(1)) <= 1)
        word = begins.cumsum(1) - 1 if self.config.whole_word else torch.arange(tokens.size(1)).expand_as(tokens)
        draw = torch.rand(tokens.shape).gather(1, word).masked_fill(~may, 2.0)  # (B, T)
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

        Nothing but sums is kept of a batch. `quick` and `divide` change nothing: every process does all of it. Raises
        ValueError when there is no example.
        """
        items = self.items(examples)
        if not items:
            raise ValueError("there is no text to score")
        total = right = count = 0.0
        device = next(model.parameters()).device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for rows in length_batches(self.lengths(items), BATCH_TOKENS, 0, 0, shuffle=False):
                batch = self.collate([items[row] for row in rows]).to(device)
                with torch.no_grad():
                    logits = model(**batch.inputs)
                    total += float(self.loss(logits, batch))
                asked = batch.targets != IGNORED
                right += float((logits[asked].argmax(-1) == batch.targets[asked]).sum())
                count += batch.n_targets
                if advance:
                    advance(len(rows))
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
        """Each text with its marks [MASK] filled in; n_best are the likeliest symbols for the first.

        Raises UserError for a text without a mark, or longer than a window, saying which.
        """
        found: list[Prediction] = []
        for number, text in enumerate(texts, 1):
            if MARK not in text:
                raise UserError(
                    f"text {number} of {len(texts)} has no {MARK}: write it where a word is to be filled in"
                )
            ids = self._marked(text)
            if len(ids) > self.config.window:
                raise UserError(
                    f"text {number} of {len(texts)} has {len(ids) - 1} tokens; this run reads {self.config.window - 1}"
                )
            found.append(self._filled(model, text, ids))
            if advance:
                advance(1)
        return found

    def _marked(self, text: str) -> list[int]:
        ids = [BOS]
        for place, part in enumerate(text.split(MARK)):
            ids += [self.mask_id] * (place > 0) + (self.source.encode(part.strip()) if part.strip() else [])
        return ids

    def _filled(self, model: nn.Module, text: str, ids: list[int]) -> Prediction:
        tokens = torch.tensor([ids], device=next(model.parameters()).device)
        with torch.no_grad():
            held = (
                model(tokens=tokens, mask=torch.ones_like(tokens).bool())[0].float().log_softmax(-1).exp().cpu()
            )  # (T, V)
        held[:, : UNK + 1] = 0.0
        places = [place for place, id_ in enumerate(ids) if id_ == self.mask_id]
        whole = list(ids)
        for place in places:
            whole[place] = int(held[place].argmax())
        best = held[places[0]].topk(min(SHOWN, held.size(1)))
        named = [self.source.text([id_]).strip() for id_ in best.indices.tolist()]
        ranked = list(zip(named, best.values.tolist(), strict=True))
        unknown = self.source.encode_text(text.replace(MARK, " "))[1]
        output = self.source.text(whole[1:])
        n_best = [(output, ranked[0][1]), *ranked[1:]]
        return Prediction(text, output, ranked[0][1], True, unknown, n_best, [probability for _, probability in ranked])

    def save(self, folder: Path) -> None:
        """Writes tokenizer.json."""
        self.source.save(folder / "tokenizer.json")

    @classmethod
    def load(cls, folder: Path, config: MaskedLMConfig) -> MaskedLM:
        """The task of a run folder. Raises UserError when its vocabulary is missing or damaged."""
        return cls(config, Symbols.load(folder / "tokenizer.json"))


def _texts(examples: Any) -> Sequence[Labelled]:
    return examples
