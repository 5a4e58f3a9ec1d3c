"""The full Transformer: an encoder reads the source, a decoder writes the target (Vaswani et al. 2017).

Letters: B batch, Ts source time, Tt target time, V target vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from qkv.models.heads import NextToken
from qkv.models.transformer import TransformerDecoder, TransformerEncoder, make_positions
from qkv.nn.attention import MultiHeadAttention
from qkv.nn.blocks import NORMS, DecoderBlock, EncoderBlock, Residual, feed_forward, residual
from qkv.nn.checks import check_heads
from qkv.nn.positions import Embedding


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """The full Transformer. Sizes are the paper's names.

    n_layers          encoder blocks; also decoder blocks unless n_decoder_layers says otherwise
    pre_norm          norm before each branch and at the end of each stack; false: the paper's post-norm
    positions         rotary, sinusoidal (the paper's), learned (up to 512), alibi or none
    tied              none; output: target embedding and output matrix are one; all: the source embedding too
    n_kv_heads        heads of keys and values; 0: as many as n_heads
    """

    d_model: int = 256
    n_heads: int = 4
    d_ff: int = 1024
    n_layers: int = 3
    n_decoder_layers: int = 0
    dropout: float = 0.1
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    norm: Literal["layer", "rms"] = "layer"
    pre_norm: bool = True
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = "rotary"
    tied: Literal["none", "output", "all"] = "output"
    n_kv_heads: int = 0

    def __post_init__(self):
        for name in ("d_model", "n_heads", "d_ff", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be 1 or more")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout {self.dropout}: must be between 0 and 1, and 1 itself leaves nothing")
        for name in ("n_decoder_layers", "n_kv_heads"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)}: must not be negative")


class EncoderDecoder(nn.Module):
    """Any encoder body and any decoder body, with a head over the target vocabulary.

    The encoder is called `encoder(source, mask)`. The decoder is called `decoder(target, memory, memory_mask, mask)`,
    and writes symbol by symbol with `start(memory, memory_mask)` and `step(tokens, state, mask)`.
    """

    def __init__(self, encoder: Any, decoder: Any, head: NextToken):
        super().__init__()
        self.encoder, self.decoder, self.head = encoder, decoder, head

    def forward(
        self,
        source: Int[Tensor, "B Ts"],
        target: Int[Tensor, "B Tt"],
        source_mask: Bool[Tensor, "B Ts"] | None = None,
        target_mask: Bool[Tensor, "B Tt"] | None = None,
    ) -> Float[Tensor, "B Tt V"]:
        """Logits of the symbol after each target position, the target being shifted right (it starts with bos).

        Masks are True on real tokens. `target_mask` is needed for padding on the left only.
        """
        memory = self.encoder(source, source_mask)
        return self.head(self.decoder(target, memory, source_mask, target_mask))

    def prefill(self, inputs: dict[str, Tensor]) -> tuple[Float[Tensor, "B V"], Any]:
        """Reads the source and the prompt: (logits of the next symbol, state).

        `inputs` has "source" (B, Ts), "target" (B, Tp), the prompt, which starts with bos, and optionally
        "source_mask" and "target_mask" (prompts of different lengths are padded on the left).

        Raises ValueError for prompts that end in padding: the next symbol would follow a pad.
        """
        source_mask, target_mask = inputs.get("source_mask"), inputs.get("target_mask")
        if target_mask is not None and not bool(target_mask[:, -1].all()):
            raise ValueError("target_mask marks padding at the end of a prompt: pad prompts on the left")
        state = self.decoder.start(self.encoder(inputs["source"], source_mask), source_mask)
        states, state = self.decoder.step(inputs["target"], state, target_mask)
        return self.head(states[:, -1:])[:, 0], state  # (B, V)

    def step(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        """One symbol more for each row: (logits of the symbol after it, state)."""
        states, state = self.decoder.step(tokens[:, None], state)
        return self.head(states)[:, 0], state  # (B, V)


def build(config: EncoderDecoderConfig, n_source: int, n_target: int) -> EncoderDecoder:
    """The model for vocabularies of `n_source` and `n_target` symbols.

    Raises ValueError for sizes that do not go together, naming them.
    """
    check_heads(config.d_model, config.n_heads)

    def residuals() -> Residual:
        return residual(config.d_model, config.dropout, config.norm, config.pre_norm)

    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(
            config.d_model, config.n_heads, n_kv_heads=config.n_kv_heads or None, dropout=config.dropout
        )

    def branch() -> nn.Module:
        return feed_forward(config.d_model, config.d_ff, config.activation, config.dropout)

    def embedding(n_tokens: int) -> Embedding:
        positions = make_positions(config.positions, config.d_model, config.n_heads)
        return Embedding(n_tokens, config.d_model, positions, config.dropout)

    def last_norm() -> nn.Module | None:
        return NORMS[config.norm](config.d_model) if config.pre_norm else None

    source, target = embedding(n_source), embedding(n_target)
    if config.tied == "all":
        if n_source != n_target:
            raise ValueError(
                f"tied = 'all' needs one vocabulary for both sides, here source has {n_source} symbols and target "
                f"{n_target}: use tied = 'output'"
            )
        source.tokens = target.tokens
    encoder = [EncoderBlock(attention(), branch(), residuals) for _ in range(config.n_layers)]
    decoder = [
        DecoderBlock(attention(), attention(), branch(), residuals)
        for _ in range(config.n_decoder_layers or config.n_layers)
    ]
    head = NextToken(config.d_model, n_target, tied=None if config.tied == "none" else target.tokens)
    return EncoderDecoder(
        TransformerEncoder(source, encoder, last_norm()), TransformerDecoder(target, decoder, last_norm()), head
    )
