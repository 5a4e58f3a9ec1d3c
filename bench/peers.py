"""One trained model in three programs: the house's own, transformers (Marian) and CTranslate2, with equal weights.

A missing package makes its function raise ImportError; the caller says "not installed".
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.data.symbols import BOS, EOS, PAD, Symbols
from qkv.models.encoder_decoder import EncoderDecoder
from qkv.nn.attention import MultiHeadAttention
from qkv.nn.positions import sinusoid

MAX_POSITIONS = 128


def marian(model: EncoderDecoder, sizes: dict[str, Any], n_source: int, n_target: int) -> Any:
    """A `MarianMTModel` in float32 with the weights of a post-norm model with sinusoids and a tied output.

    Marian writes its sinusoids as all sines, then all cosines; ours stand in pairs, so its table is overwritten.
    """
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=n_source, decoder_vocab_size=n_target, share_encoder_decoder_embeddings=False,
        max_position_embeddings=MAX_POSITIONS, d_model=sizes["d_model"], scale_embedding=True,
        encoder_layers=sizes["n_layers"], decoder_layers=sizes["n_layers"],
        encoder_attention_heads=sizes["n_heads"], decoder_attention_heads=sizes["n_heads"],
        encoder_ffn_dim=sizes["d_ff"], decoder_ffn_dim=sizes["d_ff"], activation_function="relu",
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS, forced_eos_token_id=None,
    )  # fmt: skip
    peer = MarianMTModel(config).eval()
    peer.generation_config = GenerationConfig(
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS, num_beams=1, do_sample=False,
        use_cache=True,
    )  # fmt: skip
    with torch.no_grad():
        for theirs, ours in _matching(peer, model):
            theirs.copy_(ours)
    return peer


def _matching(peer: Any, model: EncoderDecoder) -> Iterable[tuple[Tensor, Tensor]]:
    """Every weight of Marian with ours."""
    yield peer.final_logits_bias[0], model.head.projection.bias
    yield peer.lm_head.weight, model.head.projection.weight
    for theirs, ours in ((peer.model.encoder, model.encoder), (peer.model.decoder, model.decoder)):
        yield theirs.embed_tokens.weight, ours.embedding.tokens.weight
        table = theirs.embed_positions.weight
        yield table, sinusoid(torch.arange(table.size(0)), table.size(1))
        for layer, block in zip(theirs.layers, ours.blocks, strict=True):
            reads_itself = getattr(block, "attention", None) or block.self_attention
            residual = getattr(block, "attention_residual", None) or block.self_attention_residual
            yield from _attention(layer.self_attn, reads_itself)
            yield from _affine(layer.self_attn_layer_norm, residual.after)
            if hasattr(layer, "encoder_attn"):
                yield from _attention(layer.encoder_attn, block.cross_attention)
                yield from _affine(layer.encoder_attn_layer_norm, block.cross_attention_residual.after)
            yield from _affine(layer.fc1, block.feed_forward.up)
            yield from _affine(layer.fc2, block.feed_forward.down)
            yield from _affine(layer.final_layer_norm, block.feed_forward_residual.after)


def _attention(theirs: Any, ours: MultiHeadAttention) -> Iterable[tuple[Tensor, Tensor]]:
    names = {"q_proj": ours.query, "k_proj": ours.key, "v_proj": ours.value, "out_proj": ours.out}
    for name, projection in names.items():
        yield from _affine(getattr(theirs, name), projection)


def _affine(theirs: nn.Module, ours: nn.Module) -> Iterable[tuple[Tensor, Tensor]]:
    return [(theirs.weight, ours.weight), (theirs.bias, ours.bias)]  # pyright: ignore[reportReturnType]


def ctranslate2_folder(peer: Any, source: Symbols, target: Symbols, folder: Path) -> Path:
    """Writes `peer`, a Marian model, as a CTranslate2 model in float32; the program quantises when it loads it.

    The converter's own Marian loader starts the decoder from a zero vector, as the original Marian does; here it
    starts from bos, so the loader of the layers is called and the start is stated.
    """
    from ctranslate2.converters.transformers import BartLoader

    peer.config.normalize_before, peer.config.normalize_embedding = False, False
    with torch.no_grad():
        spec = BartLoader().get_model_spec(peer)
    spec.register_source_vocabulary(source.decode(range(len(source)), controls=True))
    spec.register_target_vocabulary(target.decode(range(len(target)), controls=True))
    bos, eos, unknown = target.decode([BOS, EOS, 3], controls=True)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = bos, eos, unknown
    spec.config.decoder_start_token = bos
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    return folder


def compute_types() -> list[str]:
    """What CTranslate2 can compute in on this processor; its "int8" keeps float32 between the products."""
    import ctranslate2

    wanted = ("float32", "int8", "bfloat16", "int8_bfloat16")
    supported = ctranslate2.get_supported_compute_types("cpu")
    return [name for name in wanted if name in supported]
