"""One encoder and one head: what classifies texts and tags words.

Letters: B batch, T time, D d_model, C classes.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


class EncoderOnly(nn.Module):
    """Any encoder body that gives states (B, T, D) of tokens, with a head over classes.

    The encoder is called as `encoder(tokens, mask, segments)`.
    """

    def __init__(self, encoder: nn.Module, head: nn.Module):
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B *T C"]:
        """Logits of each row (head Pooled) or of each token (PerToken).

        `mask` is True on real tokens; `segments` tells the texts of a pair apart (0 and 1).
        """
        return self.head(self.encoder(tokens, mask, segments), mask)
