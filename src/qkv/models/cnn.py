"""The text CNN: filters over neighbouring tokens, each at its strongest, and one matrix (Kim 2014).

Letters: B batch, T time, D d_model, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from qkv.nn.convolution import NGramConvolution
from qkv.nn.dropout import Dropout
from qkv.nn.positions import Embedding, Positions, real_positions


@dataclass(frozen=True)
class CnnConfig:
    """The text CNN; its vectors are learnt from nothing (the paper's CNN-rand).

    n_filters  of each width
    widths     neighbouring tokens that a filter reads, separated by commas
    dropout    on the token vectors and on what the filters found
    """

    d_model: int = 128
    n_filters: int = 100
    widths: str = "3,4,5"
    dropout: float = 0.5

    def __post_init__(self):
        if self.d_model < 1 or self.n_filters < 1:
            raise ValueError(f"d_model {self.d_model} and n_filters {self.n_filters}: both must be 1 or more")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout {self.dropout}: must be between 0 and 1, and 1 itself leaves nothing")
        if min(self.numbers) < 1:
            raise ValueError(f"widths {self.widths!r}: each must be 1 or more")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The widths. Raises ValueError when they are no numbers."""
        try:
            return tuple(int(width) for width in self.widths.split(","))
        except ValueError:
            raise ValueError(f"widths {self.widths!r}: numbers separated by commas are expected, as in 3,4,5") from None


class Cnn(nn.Module):
    """Token vectors, n-gram filters, one matrix."""

    def __init__(self, embedding: Embedding, filters: NGramConvolution, head: nn.Linear, dropout: float):
        super().__init__()
        self.embedding, self.filters, self.head = embedding, filters, head
        self.dropout = Dropout(dropout)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B C"]:
        """Logits of each row; `mask` is True on real tokens, `segments` tells the texts of a pair apart."""
        pos = real_positions(mask, tokens.size(1), tokens.device)
        return self.head(self.dropout(self.filters(self.embedding(tokens, pos, segments), mask)))


def build_pooled(config: CnnConfig, n_tokens: int, n_labels: int, n_segments: int = 1) -> Cnn:
    """A classifier of texts: logits (B, C)."""
    embedding = Embedding(n_tokens, config.d_model, Positions(), config.dropout, n_segments=n_segments)
    filters = NGramConvolution(config.d_model, config.n_filters, config.numbers)
    head = nn.Linear(config.n_filters * len(config.numbers), n_labels)
    return Cnn(embedding, filters, head, config.dropout)
