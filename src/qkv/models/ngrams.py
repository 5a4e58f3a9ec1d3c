"""Baselines that count: bags of n-grams with logistic regression, and the most frequent tag of each token.

They are fitted in closed form and then are modules like any other: tokens in, logits out.

Letters: B batch, T time, V vocabulary, F n-grams, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from qkv.errors import UserError
from qkv.models.regression import logistic_regression

FIRST_SYMBOL = 4
"""Ids below are pad, bos, eos and unk, which are no words."""


@dataclass(frozen=True)
class NGramsConfig:
    """The baseline. It is fitted to all examples at once: there are no steps to choose.

    n          longest n-grams of a text: 2 counts tokens and pairs of neighbours
    min_count  texts that an n-gram must stand in to be counted
    c          inverse strength of the regularisation of logistic regression
    """

    n: int = 2
    min_count: int = 1
    c: float = 10.0

    def __post_init__(self):
        if not 1 <= self.n <= 3 or self.min_count < 1:
            raise ValueError(f"n {self.n} must be 1, 2 or 3, and min_count {self.min_count} 1 or more")
        if not 0.0 < self.c < float("inf"):
            raise ValueError(f"c {self.c}: must be positive and finite")


@runtime_checkable
class Examples(Protocol):
    """A batch as tasks make it: inputs tokens (B, T) and mask, targets, weights of the rows (B,)."""

    inputs: Mapping[str, Tensor]
    targets: Tensor
    weights: Tensor | None


class Sized(nn.Module):
    """A module whose tensors get their sizes by fitting, and take those of a state that is loaded."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name, tensor in [*self.named_parameters(recurse=False), *self.named_buffers(recurse=False)]:
            found = state_dict.get(prefix + name)
            if found is not None and found.shape != tensor.shape:
                new = torch.empty_like(found, device=tensor.device)
                setattr(self, name, nn.Parameter(new) if isinstance(tensor, nn.Parameter) else new)
        super()._load_from_state_dict(state_dict, prefix, *args)


class NGramClassifier(Sized):
    """tf-idf of the n-grams of a text, and one matrix.

    tf is 1 + log(count), idf is log((1 + N) / (1 + texts with it)) + 1, each text has length 1 (scikit-learn's
    TfidfTransformer with sublinear_tf). `codes` (F,) are the n-grams that training had, sorted: ids as digits of one
    number. Others count for nothing.
    """

    codes: Tensor
    idf: Tensor

    def __init__(self, config: NGramsConfig, n_tokens: int, n_labels: int):
        super().__init__()
        if (n_tokens + 1.0) ** config.n >= 2.0**63:
            raise ValueError(f"n {config.n} is too much for a vocabulary of {n_tokens:,}: take a smaller one")
        self.config, self.n_tokens, self.n_labels = config, n_tokens, n_labels
        self.register_buffer("codes", torch.zeros(1, dtype=torch.long))
        self.register_buffer("idf", torch.zeros(1))
        self.weight = nn.Parameter(torch.zeros(1, n_labels))
        self.bias = nn.Parameter(torch.zeros(n_labels))

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B C"]:
        """Logits of each row; `segments` is not read."""
        row, feature, value = self.features(tokens, mask)
        logits = self.bias.expand(tokens.size(0), -1)  # (B, C)
        return logits.index_add(0, row, value[:, None] * self.weight[feature])

    def features(
        self, tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None
    ) -> tuple[Int[Tensor, " K"], Int[Tensor, " K"], Float[Tensor, " K"]]:
        """Row, n-gram and tf-idf of each of the K known n-grams in a batch."""
        row, code, count = self._counted(tokens, mask)
        place = torch.searchsorted(self.codes, code).clamp_max(len(self.codes) - 1)
        known = self.codes[place] == code
        row, place = row[known], place[known]
        value = (1.0 + count[known].to(self.idf.dtype).log()) * self.idf[place]
        length = value.new_zeros(tokens.size(0)).index_add(0, row, value.square()).sqrt()  # (B,)
        return row, place, value / length[row]

    def _counted(self, tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Row, code and count of each different n-gram of each row."""
        there = tokens >= FIRST_SYMBOL if mask is None else mask & (tokens >= FIRST_SYMBOL)  # (B, T)
        rows: list[Tensor] = []
        codes: list[Tensor] = []
        for n in range(1, min(self.config.n, tokens.size(1)) + 1):
            windows, whole = tokens.unfold(1, n, 1) + 1, there.unfold(1, n, 1).all(2)  # (B, T - n + 1, n)
            digits = (self.n_tokens + 1) ** torch.arange(n - 1, -1, -1, device=tokens.device)
            rows.append(whole.nonzero()[:, 0])
            codes.append((windows * digits).sum(2)[whole])
        both = torch.stack([torch.cat(rows), torch.cat(codes)])  # (2, K)
        found, count = both.unique(dim=1, return_counts=True)
        return found[0], found[1].contiguous(), count

    @torch.no_grad()
    def fit(self, batches: Iterable[Examples]) -> None:
        """Finds n-grams, their idf and the weights. Targets are classes (B,) or, where several hold, 0 and 1 (B, C).

        Raises UserError when no n-gram stands in min_count texts.
        """
        device, batches = self.bias.device, list(batches)
        read = [(b.inputs["tokens"].cpu(), b.inputs["mask"].cpu()) for b in batches]
        codes, texts = torch.cat([self._counted(*some)[1] for some in read]).unique(return_counts=True)
        often = texts >= self.config.min_count
        if not bool(often.any()):
            raise UserError(f"no n-gram stands in {self.config.min_count:,} texts: take a smaller model.min_count")
        targets = torch.cat([b.targets for b in batches]).cpu().numpy()
        counts = [torch.ones(len(b.targets)) if b.weights is None else b.weights.cpu() for b in batches]
        self.codes, self.idf = codes[often], ((1.0 + len(targets)) / (1.0 + texts[often])).log() + 1.0
        x = self._matrix(read)
        weight, bias = logistic_regression(x, targets, torch.cat(counts).numpy(), self.config.c, self.n_labels)
        self.weight, self.bias = nn.Parameter(torch.from_numpy(weight)), nn.Parameter(torch.from_numpy(bias))
        self.to(device)

    def _matrix(self, read: Sequence[tuple[Tensor, Tensor]]) -> Any:
        from scipy.sparse import csr_matrix

        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        done = 0
        for tokens, mask in read:
            row, feature, value = self.features(tokens, mask)
            parts.append(((row + done).numpy(), feature.numpy(), value.numpy()))
            done += len(tokens)
        row, feature, value = (np.concatenate(part) for part in zip(*parts, strict=True))
        return csr_matrix((value, (row, feature)), shape=(done, len(self.codes)), dtype=np.float64)


class NGramTagger(nn.Module):
    """The most frequent tag of each token; of a token that training has not, that of tokens seen once.

    `counts` (V, C): how often each token had each tag.
    """

    def __init__(self, n_tokens: int, n_labels: int):
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(n_tokens, n_labels))

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Log-probabilities, a little of them for each tag. Neighbours are not looked at."""
        smoothed = self.counts[tokens] + 0.01  # (B, T, C)
        return (smoothed / smoothed.sum(-1, keepdim=True)).log()

    @torch.no_grad()
    def fit(self, batches: Iterable[Examples]) -> None:
        """Counts. Targets (B, T) are below 0 where no tag is asked."""
        counts = torch.zeros_like(self.counts, device="cpu")
        for batch in batches:
            tokens, targets = batch.inputs["tokens"].cpu(), batch.targets.cpu()
            pairs = (tokens * counts.size(1) + targets)[targets >= 0]
            counts.view(-1).index_add_(0, pairs, torch.ones(len(pairs)))
        once = counts[FIRST_SYMBOL:][counts[FIRST_SYMBOL:].sum(1) == 1].sum(0)
        counts[counts.sum(1) == 0] = once if bool(once.any()) else counts.sum(0)
        self.counts.copy_(counts)


def build_pooled(config: NGramsConfig, n_tokens: int, n_labels: int, n_segments: int = 1) -> NGramClassifier:
    """A classifier of texts, to be fitted: logits (B, C)."""
    return NGramClassifier(config, n_tokens, n_labels)


def build_per_token(config: NGramsConfig, n_tokens: int, n_labels: int, n_segments: int = 1) -> NGramTagger:
    """A classifier of tokens, to be fitted: logits (B, T, C)."""
    return NGramTagger(n_tokens, n_labels)
