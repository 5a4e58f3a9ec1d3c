"""Tagging: a tag for each word, by the first of its sub-words; entities scored whole.

Letters: B batch, T sub-words, C tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.data.batches import length_batches, pad
from qkv.data.ids import learn
from qkv.data.pair_data import symbol_kind
from qkv.data.spans import SpanScores, allowed, best_sequence, scores, tags_entities
from qkv.data.symbols import PAD, UNK, Symbols
from qkv.data.texts import Tagged, Texts
from qkv.errors import UserError
from qkv.tasks.batch import Batch
from qkv.tasks.labels import Labels
from qkv.tasks.prediction import Prediction
from qkv.tasks.word_windows import Item, window_of, word_windows

IGNORED = -100
"""The target of a position where no tag is asked."""

BATCH_TOKENS = 4096

Advance = Callable[[int], None] | None
Divide = Callable[[Callable[[Sequence[Any]], list[Any]], Sequence[Any]], list[Any]]


@dataclass(frozen=True)
class TaggingConfig:
    """How sentences are read and what is learnt of them.

    window           most sub-words read at once, the first control symbol included: a longer sentence is read in
                     several windows, cut between words
    stride           sub-words from the start of a window to that of the next; 0: half a window
    label_smoothing  share of the right tag's probability spread over all tags
    valid            write only sequences that can be: no I- without its B-
    """

    window: int = 256
    stride: int = 0
    label_smoothing: float = 0.0
    valid: bool = True

    def __post_init__(self):
        if self.window < 8 or not 0 <= self.stride < self.window:
            raise ValueError(f"window {self.window} must be 8 or more, and stride {self.stride} from 0 to below it")
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")


class Said(NamedTuple):
    """What was said of one sentence: tags, the probability of each, sub-words, unknown ones, those beyond a window."""

    tags: list[int]
    held: list[float]
    tokens: int
    unknown: int
    beyond: int


class Tagging:
    """Cuts words, asks at their first pieces, decodes and scores. Knows no model."""

    name = "tagging"
    head = "per_token"

    def __init__(self, config: TaggingConfig, source: Symbols, tags: Labels):
        self.config, self.source, self.tags, self.labels = config, source, tags, tags.names
        self.entities = tags_entities(self.labels)
        self._places = {tag: place for place, tag in enumerate(self.labels)}
        self._rules = allowed(self.labels) if self.entities and config.valid else None

    @classmethod
    def of(cls, config: TaggingConfig, data: Texts, *, kind: str) -> Tagging:
        """The task with the vocabulary of the training words."""
        words = (word for example in data.train for word in _tagged(example).words)
        counts = Counter(tag for example in data.train for tag in _tagged(example).tags)
        tags = Labels(data.labels, tuple(counts[tag] for tag in data.labels), counts.total())
        return cls(config, learn(words, symbol_kind(kind), "word"), tags)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes, as the architectures' builders name them."""
        return {"n_tokens": len(self.source), "n_labels": len(self.labels), "n_segments": 1}

    @property
    def metric(self) -> str:
        """What the best checkpoint is chosen by, where nobody says otherwise."""
        return "entity_f1" if self.entities else "accuracy"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the figures on dev, of which the best model may be chosen by one."""
        entity = ("entity_f1", "entity_precision", "entity_recall") if self.entities else ()
        return (*entity, "accuracy", "loss")

    @property
    def whole_words(self) -> bool:
        """Whether words are not cut: then there are always some that training has not."""
        return self.source.kind in ("spaces", "words")

    def is_empty(self, text: str) -> bool:
        """Whether a line has no word."""
        return not text.split()

    def items(self, examples: Sequence[Tagged]) -> list[Item]:
        """The windows of every sentence. Raises UserError for a tag that training has not, naming the sentence."""
        found: list[Item] = []
        for number, example in enumerate(examples, 1):
            strange = next((tag for tag in example.tags if tag not in self._places), None)
            if strange is not None:
                raise UserError(f"sentence {number} has the tag {strange!r}, which no training sentence has")
            found += self._windows(self._cut(example.words), [self._places[tag] for tag in example.tags])
        return found

    def _cut(self, words: Sequence[str]) -> list[list[int]]:
        """The sub-words of each word; of a word that makes none, UNK."""
        return [self.source.encode(word) or [UNK] for word in words]

    def _windows(self, pieces: Sequence[Sequence[int]], tags: Sequence[int]) -> list[Item]:
        return [
            window_of(pieces[start:end], tags[start:end], start)
            for start, end in word_windows([len(one) for one in pieces], self.config.window - 1, self._stride)
        ]

    @property
    def _stride(self) -> int:
        return self.config.stride or (self.config.window - 1) // 2

    def lengths(self, items: Sequence[Item]) -> list[tuple[int, int]]:
        """Sub-words of each window, BOS included."""
        return [(len(item.ids), 0) for item in items]

    def collate(self, items: Sequence[Item]) -> Batch:
        """Windows padded on the right; targets (B, T) are tags at the first piece of each word, else IGNORED."""
        tokens, mask = pad([item.ids for item in items], PAD)  # (B, T)
        targets = torch.full_like(tokens, IGNORED)
        for row, item in enumerate(items):
            targets[row, torch.tensor(item.begins)] = torch.tensor(item.tags)
        n_targets = sum(len(item.tags) for item in items)
        return Batch({"tokens": tokens, "mask": mask}, targets, n_targets, int(mask.sum()))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy summed over the words. logits (B, T, C)."""
        return F.cross_entropy(
            logits.flatten(0, 1).float(), batch.targets.flatten(), reduction="sum", ignore_index=IGNORED,
            label_smoothing=self.config.label_smoothing,
        )  # fmt: skip

    def read(self, model: nn.Module, sentences: Sequence[Sequence[str]], *, advance: Advance = None) -> list[Said]:
        """The tags of each sentence, in order. A word in several windows is tagged where no edge is near."""
        cut = [self._cut(words) for words in sentences]
        windows = [self._windows(pieces, [0] * len(pieces)) for pieces in cut]
        flat = [(place, item) for place, several in enumerate(windows) for item in several]
        log_probs = [np.zeros((len(words), len(self.labels)), np.float32) for words in sentences]
        known = [np.full(len(words), -len(words)) for words in sentences]
        device = next(model.parameters()).device
        for rows in length_batches(self.lengths([item for _, item in flat]), BATCH_TOKENS, 0, 0, shuffle=False):
            batch = self.collate([flat[row][1] for row in rows]).to(device)
            with torch.no_grad():
                found = model(**batch.inputs).float().log_softmax(-1).cpu()  # (B, T, C)
            for row, one in zip(rows, found, strict=True):
                place, item = flat[row]
                count = len(item.begins)
                edge = np.minimum(np.arange(count) + (item.first == 0) * 10**9, np.arange(count)[::-1])
                where = slice(item.first, item.first + count)
                rank = edge * len(cut[place]) - item.first  # of two windows alike the first one, in whatever order
                better = rank > known[place][where]
                log_probs[place][where][better] = one[item.begins].numpy()[better]
                known[place][where][better] = rank[better]
            if advance:
                advance(len({flat[row][0] for row in rows}))
        first = [len(several[0].begins) for several in windows]
        return [self._said(*one) for one in zip(log_probs, cut, first, strict=True)]

    def _said(self, log_probs: np.ndarray, pieces: Sequence[Sequence[int]], first: int) -> Said:
        best = log_probs.argmax(1).tolist() if self._rules is None else best_sequence(log_probs, self._rules)
        held = np.exp(log_probs[np.arange(len(best)), best]).tolist()
        unknown = sum(piece == UNK for word in pieces for piece in word)
        return Said(best, held, sum(map(len, pieces)), unknown, sum(map(len, pieces[first:])))

    def evaluate(
        self,
        model: nn.Module,
        examples: Sequence[Tagged],
        *,
        quick: bool = False,
        advance: Advance = None,
        divide: Divide | None = None,
    ) -> dict[str, float]:
        """Figures in percent: accuracy of words and, where the tags mark entities, F1, precision and recall of these.

        unknown: sub-words that training has not; beyond_limit: sub-words beyond the first window, read all the same.
        `quick` changes nothing: there is one way to read. `divide(work, items)` returns `work(items)`, and may have
        several processes do it. Raises ValueError when there is no example.
        """
        if not examples:
            raise ValueError("there is no sentence to score")

        def work(sentences: Sequence[Sequence[str]]) -> list[Said]:
            return self.read(model, sentences, advance=advance)

        words = [example.words for example in examples]
        found = divide(work, words) if divide is not None else work(words)
        said = [[self.labels[tag] for tag in one.tags] for one in found]
        right = sum(a == b for one, e in zip(said, examples, strict=True) for a, b in zip(one, e.tags, strict=True))
        tokens = sum(one.tokens for one in found)
        figures = {"accuracy": 100.0 * right / sum(map(len, said))}
        if self.entities:
            whole = scores(said, [example.tags for example in examples])[""]
            figures = {
                "entity_f1": whole.f1, "entity_precision": whole.precision, "entity_recall": whole.recall, **figures
            }  # fmt: skip
        return {
            **figures,
            "unknown": 100.0 * sum(one.unknown for one in found) / tokens,
            "beyond_limit": 100.0 * sum(one.beyond for one in found) / tokens,
        }

    def by_type(self, model: nn.Module, examples: Sequence[Tagged]) -> list[dict[str, Any]]:
        """Of each type of entity, or of each tag where they mark none: precision, recall, f1, support, predicted."""
        found = self.read(model, [example.words for example in examples])
        said = [[self.labels[tag] for tag in one.tags] for one in found]
        right = [example.tags for example in examples]
        if self.entities:
            kinds = {kind: one for kind, one in scores(said, right).items() if kind}
        else:
            pairs = [two for one, tags in zip(said, right, strict=True) for two in zip(one, tags, strict=True)]
            both, a, b = (Counter(x for x, y in pairs if x == y), *map(Counter, zip(*pairs, strict=True)))
            kinds = {tag: _share(both[tag], a[tag], b[tag]) for tag in self.labels}
        return [
            {"type": kind, "precision": one.precision, "recall": one.recall, "f1": one.f1, "support": one.there,
             "predicted": one.said}
            for kind, one in kinds.items()
        ]  # fmt: skip

    def unknown_share(self, examples: Sequence[Tagged]) -> float:
        """Percent of the sub-words of these sentences that training has not."""
        ids = [piece for example in examples for word in self._cut(example.words) for piece in word]
        return 100.0 * ids.count(UNK) / max(len(ids), 1)

    def predict(
        self, model: nn.Module, texts: Sequence[str | Sequence[str]], *, advance: Advance = None
    ) -> list[Prediction]:
        """The tags of each line of words (separated by blanks, or a list of them), joined by blanks, one for each word.

        The score is the mean probability of the tags. Raises UserError for a line without words, saying which.
        """
        sentences = [text.split() if isinstance(text, str) else list(text) for text in texts]
        for number, words in enumerate(sentences, 1):
            if not words:
                raise UserError(f"text {number} of {len(sentences)} is empty: there is nothing to predict from")
        found = self.read(model, sentences, advance=advance)
        return [self._prediction(words, said) for words, said in zip(sentences, found, strict=True)]

    def _prediction(self, words: Sequence[str], said: Said) -> Prediction:
        output = " ".join(self.labels[tag] for tag in said.tags)
        held = float(np.mean(said.held))
        unknown = list(dict.fromkeys(symbol for word in words for symbol in self.source.encode_text(word)[1]))
        return Prediction(" ".join(words), output, held, True, unknown, [(output, held)], [held])

    def save(self, folder: Path) -> None:
        """Writes tokenizer.json and labels.json."""
        self.source.save(folder / "tokenizer.json")
        self.tags.save(folder / "labels.json")

    @classmethod
    def load(cls, folder: Path, config: TaggingConfig) -> Tagging:
        """The task of a run folder. Raises UserError when one of its files is missing or damaged."""
        return cls(config, Symbols.load(folder / "tokenizer.json"), Labels.load(folder / "labels.json")[0])


def _share(right: int, said: int, there: int) -> SpanScores:
    def of(whole: int) -> float:
        return 100.0 * right / whole if whole else 0.0

    return SpanScores(of(said), of(there), 2.0 * of(said + there), right, said, there)


def _tagged(example: Any) -> Tagged:
    assert isinstance(example, Tagged)
    return example
