"""Sequence to sequence: one source, one or several right targets (Sutskever et al. 2014).

Letters: B batch, Ts source time, Tt target time, V target vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.data.batches import length_batches, pad
from qkv.data.compact import Item, Items, Taken, columns
from qkv.data.ids import encode, learn
from qkv.data.pairs import Example, Pairs
from qkv.data.symbols import BOS, EOS, PAD, Symbols
from qkv.errors import UserError
from qkv.generation.beam import beam as beam_search
from qkv.generation.greedy import greedy
from qkv.generation.protocol import Hypothesis, check_beam, decodes
from qkv.tasks.batch import Batch
from qkv.tasks.metrics import error_rates, text_rates, without_marks
from qkv.tasks.prediction import Prediction

Divide = Callable[[Callable[[Sequence[Any]], list[Any]], Sequence[Any]], list[Any]]
"""Has work on a list done in parts, and returns the whole of it."""


@dataclass(frozen=True)
class Seq2SeqConfig:
    """How the task is trained and decoded.

    label_smoothing  share of the target's probability spread over the vocabulary (Szegedy et al. 2016, section 7)
    beam             hypotheses kept while decoding; 1 is greedy
    length_penalty   hypotheses rank by log-probability / length ** this (Wu et al. 2016 use another form)
    max_length       longest output in symbols; 0: twice the longest training target
    targets          of a source with k of them, in training: all count 1, weighted counts each 1 / k, first learns one
    """

    label_smoothing: float = 0.1
    beam: int = 5
    length_penalty: float = 1.0
    max_length: int = 0
    targets: Taken = "all"

    def __post_init__(self):
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")
        if self.beam < 1 or self.max_length < 0:
            raise ValueError(f"beam must be >= 1 and max_length >= 0, got {self.beam} and {self.max_length}")
        if not 0.0 <= self.length_penalty <= 10.0:
            raise ValueError(f"length_penalty must be from 0 to 10, got {self.length_penalty}")
        if self.targets not in get_args(Taken):
            raise ValueError(f"targets must be one of {', '.join(get_args(Taken))}, got {self.targets!r}")


class Seq2Seq:
    """Collates, scores and decodes pairs. Knows bos, eos and the shift; knows no model."""

    name = "seq2seq"
    head = "next_token"
    metric = "per"

    def __init__(self, config: Seq2SeqConfig, source: Symbols, target: Symbols):
        if config.max_length < 1:
            raise ValueError("a task needs its max_length: make it with `Seq2Seq.of`")
        self.config, self.source, self.target = config, source, target

    @classmethod
    def of(cls, config: Seq2SeqConfig, pairs: Pairs) -> Seq2Seq:
        """The task with the vocabularies of the training split, and its length limit where the config has none."""
        sources, targets, _ = columns(pairs.train)
        source = learn(sources, pairs.source_symbols, "source")
        target = learn(targets, pairs.target_symbols, "target")
        limit = config.max_length or 2 * int(encode(targets, target).lengths.max())
        return cls(replace(config, max_length=limit), source, target)

    @property
    def sizes(self) -> dict[str, int]:
        """Vocabulary sizes, as the architectures' builders name them."""
        return {"n_source": len(self.source), "n_target": len(self.target)}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the figures on dev, of which the best model may be chosen by one."""
        marked = any(without_marks([symbol]) != [symbol] for symbol in self.target.decode(range(len(self.target))))
        plain = ("per_plain",) if marked else ()
        return ("wer", "per", *plain, "loss", *(("bleu", "chrf") if self._writes_text else ()))

    @property
    def _writes_text(self) -> bool:
        return self.target.kind in ("bpe", "unigram")  # sentences, whose words are what a reader judges

    def is_empty(self, text: str) -> bool:
        """Whether there is nothing in a text to predict from."""
        return not self.source.split(text)

    def items(self, examples: Sequence[Example]) -> Items:
        """One training pair for every target of every example that `config.targets` takes, with its weight."""
        sources, targets, counts = columns(examples)
        return Items(encode(sources, self.source), encode(targets, self.target), counts, self.config.targets)

    def lengths(self, items: Sequence[Item]) -> list[tuple[int, int]]:
        """Tokens of source and target, with eos and bos."""
        if isinstance(items, Items):
            source, target = (items.lengths + 1).T.tolist()
            return list(zip(source, target, strict=True))
        return [(len(item[0]) + 1, len(item[1]) + 1) for item in items]

    def collate(self, items: Sequence[Item]) -> Batch:
        """Source with eos; target shifted right behind bos as input, and followed by eos as what to say."""
        source, source_mask = pad([[*item[0], EOS] for item in items], PAD)  # (B, Ts)
        shifted, _ = pad([[BOS, *item[1]] for item in items], PAD)  # (B, Tt)
        targets, target_mask = pad([[*item[1], EOS] for item in items], PAD)  # (B, Tt)
        inputs = {"source": source, "source_mask": source_mask, "target": shifted}
        lengths = target_mask.sum(1)  # (B,)
        n_targets = int(lengths.sum())
        n_tokens = n_targets + int(source_mask.sum())
        weights = torch.tensor([item[2] for item in items if len(item) == 3], dtype=torch.float64)  # (B,) or none
        if not len(weights):
            return Batch(inputs, targets, n_targets, n_tokens)
        return Batch(inputs, targets, float(weights @ lengths.double()), n_tokens, weights.float())

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy with label smoothing, summed over the real targets by their weights. logits (B, Tt, V)."""
        flat, targets = logits.flatten(0, 1).float(), batch.targets.flatten()  # (B * Tt, V), (B * Tt)
        how = {"ignore_index": PAD, "label_smoothing": self.config.label_smoothing}
        if batch.weights is None:
            return F.cross_entropy(flat, targets, reduction="sum", **how)
        each = F.cross_entropy(flat, targets, reduction="none", **how)  # (B * Tt)
        return (each.view_as(batch.targets) * batch.weights[:, None]).sum()

    def decode(
        self,
        model: nn.Module,
        sources: Sequence[Sequence[int]],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        batch_tokens: int = 4096,
        advance: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each source, in the given order; sources of like length share a batch.

        `advance(n)` is called after each batch with the number of sources done. Raises UserError for settings that
        cannot be (n_best larger than beam).
        """
        beam = self.config.beam if beam is None else beam
        alpha = self.config.length_penalty if length_penalty is None else length_penalty
        check_beam(beam, n_best, alpha, self.config.max_length)
        device, searched = next(model.parameters()).device, decodes(model)
        lengths = [(len(s) + 1, len(s) + 1) for s in sources]
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for rows in length_batches(lengths, max(1, batch_tokens // beam), seed=0, epoch=0, shuffle=False):
            source, mask = pad([[*sources[i], EOS] for i in rows], PAD)  # (B, Ts)
            prompt = torch.full((len(rows), 1), BOS)
            inputs = {"source": source.to(device), "source_mask": mask.to(device), "target": prompt.to(device)}
            limits = {"bos": BOS, "eos": EOS, "max_length": self.config.max_length}
            if beam == 1 and n_best == 1:
                answers = [[_scored(one, alpha)] for one in greedy(searched, inputs, **limits)]
            else:
                answers = beam_search(searched, inputs, **limits, beam=beam, length_penalty=alpha, n_best=n_best)
            for i, answer in zip(rows, answers, strict=True):
                found[i] = answer
            if advance:
                advance(len(rows))
        return found

    def evaluate(
        self,
        model: nn.Module,
        examples: Sequence[Example],
        *,
        quick: bool = False,
        beam: int | None = None,
        advance: Callable[[int], None] | None = None,
        divide: Divide | None = None,
    ) -> dict[str, float]:
        """WER and PER in percent against the nearest target of each example, and the share of unfinished outputs.

        Where targets are cut into sub-words also BLEU and chrF of the sentences. `quick`: by greedy search, whatever
        the beam. `divide(work, items)` returns `work(items)`, and may have several processes do it.
        """

        def work(sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
            return self.decode(model, sources, beam=1 if quick else beam, advance=advance)

        sources = [self.source.encode(e.source) for e in examples]
        found = divide(work, sources) if divide is not None else work(sources)
        return self.score(examples, found)

    def score(self, examples: Sequence[Example], found: Sequence[Sequence[Hypothesis]]) -> dict[str, float]:
        """What `evaluate` returns, of hypotheses that `decode` has found for these examples: the first of each counts.

        Raises ValueError when there is no example.
        """
        outputs = [self.target.decode(hypotheses[0].tokens, controls=True) for hypotheses in found]
        unfinished = sum(not hypotheses[0].finished for hypotheses in found)
        references = [[self.target.split(t) for t in e.targets] for e in examples]
        rates = error_rates(outputs, references)
        if self._writes_text:
            said = [self.target.join(output) for output in outputs]
            rates |= text_rates(said, [e.targets for e in examples])
        return {**rates, "unfinished": 100.0 * unfinished / len(found)}

    def predict(
        self,
        model: nn.Module,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        advance: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """One Prediction for each text, in order. Raises UserError for an empty text, saying which."""
        encoded = [self.source.encode_text(text) for text in texts]
        for number, (ids, _) in enumerate(encoded, 1):
            if not ids:
                raise UserError(f"text {number} of {len(texts)} is empty: there is nothing to predict from")
        found = self.decode(
            model, [ids for ids, _ in encoded], beam=beam, length_penalty=length_penalty, n_best=n_best, advance=advance
        )
        return [
            self._prediction(text, unknown, hypotheses)
            for text, (_, unknown), hypotheses in zip(texts, encoded, found, strict=True)
        ]

    def _prediction(self, text: str, unknown: list[str], hypotheses: list[Hypothesis]) -> Prediction:
        answers = [(self.target.text(h.tokens), h.score) for h in hypotheses]
        held = [math.exp(min(h.log_prob, 0.0)) for h in hypotheses]
        return Prediction(text, answers[0][0], answers[0][1], hypotheses[0].finished, unknown, answers, held)

    def save(self, folder: Path) -> None:
        """Writes the vocabularies as standard tokenizer files."""
        self.source.save(folder / "tokenizer.json")
        self.target.save(folder / "target_tokenizer.json")

    @classmethod
    def load(cls, folder: Path, config: Seq2SeqConfig) -> Seq2Seq:
        """The task of a run folder. Raises UserError when a vocabulary is missing or damaged."""
        return cls(config, Symbols.load(folder / "tokenizer.json"), Symbols.load(folder / "target_tokenizer.json"))


def _scored(found: Hypothesis, alpha: float) -> Hypothesis:
    # Greedy search ranks nothing; its answers are scored as a beam's are, so that the two can be compared.
    length = len(found.tokens) + found.finished
    return replace(found, score=found.log_prob / length**alpha)
