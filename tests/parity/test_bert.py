"""The encoder-only body as BERT: equal to transformers' BertModel of a tiny random config, weights copied."""

import pytest
import torch
from torch.testing import assert_close
from transformers import BertConfig, BertModel

from qkv.models.transformer_encoder import TransformerEncoderConfig, encoder

D, HEADS, FF, LAYERS, VOCABULARY = 24, 4, 40, 2, 50


@pytest.fixture(scope="module")
def theirs():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=D, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=FF,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager", initializer_range=0.3,
    )  # fmt: skip
    return BertModel(config, add_pooling_layer=False).eval()


@pytest.fixture(scope="module")
def ours(theirs):
    config = TransformerEncoderConfig(
        d_model=D, n_heads=HEADS, d_ff=FF, n_layers=LAYERS, dropout=0.0, activation="gelu", pre_norm=False,
        positions="learned", embedding_norm=True,
    )  # fmt: skip
    body = encoder(config, VOCABULARY, n_segments=2).eval()
    state = theirs.state_dict()
    embeddings = {
        "tokens.weight": state["embeddings.word_embeddings.weight"] / D**0.5,  # the house multiplies by it
        "positions.table.weight": state["embeddings.position_embeddings.weight"],
        "segments.weight": state["embeddings.token_type_embeddings.weight"],
        "norm.weight": state["embeddings.LayerNorm.weight"],
        "norm.bias": state["embeddings.LayerNorm.bias"],
    }
    copied = {f"embedding.{name}": value for name, value in embeddings.items()}
    names = {
        "attention.query": "attention.self.query", "attention.key": "attention.self.key",
        "attention.value": "attention.self.value", "attention.out": "attention.output.dense",
        "attention_residual.after": "attention.output.LayerNorm", "feed_forward.up": "intermediate.dense",
        "feed_forward.down": "output.dense", "feed_forward_residual.after": "output.LayerNorm",
    }  # fmt: skip
    for layer in range(LAYERS):
        for here, there in names.items():
            for part in ("weight", "bias"):
                copied[f"blocks.{layer}.{here}.{part}"] = state[f"encoder.layer.{layer}.{there}.{part}"]
    assert set(copied) == set(body.state_dict())
    body.load_state_dict(copied)
    for module in body.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-12
    return body


def batch(side):
    draw = torch.Generator().manual_seed(2)
    tokens = torch.randint(1, VOCABULARY, (3, 9), generator=draw)
    mask = torch.arange(9) < torch.tensor([[9], [4], [6]])
    segments = (torch.arange(9) > 2).long().expand(3, 9).contiguous()
    return tokens, mask, segments if side == "pairs" else torch.zeros_like(segments)


@pytest.mark.parametrize("side", ["single", "pairs"])
def test_states_of_real_tokens_are_berts(ours, theirs, side):
    tokens, mask, segments = batch(side)
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long(), token_type_ids=segments).last_hidden_state
        found = ours(tokens, mask, segments)
    assert_close(found[mask], expected[mask], atol=1e-5, rtol=1e-5)
    if side == "single":
        assert_close(ours(tokens, mask), found, atol=1e-6, rtol=1e-6)


def test_gradients_are_berts(ours, theirs):
    tokens, mask, segments = batch("pairs")
    grads = []
    for model, states in (
        (theirs, theirs(tokens, attention_mask=mask.long(), token_type_ids=segments).last_hidden_state),
        (ours, ours(tokens, mask, segments)),
    ):
        model.zero_grad()
        states[mask].square().sum().backward()
        first = model.encoder.layer[0] if model is theirs else model.blocks[0]
        query = first.attention.self.query if model is theirs else first.attention.query
        grads.append(query.weight.grad)
    assert_close(grads[0], grads[1], atol=1e-4, rtol=1e-4)


def test_padding_on_the_left_is_bert_with_positions_from_the_first_real_token(ours, theirs):
    tokens, mask, segments = (part.flip(1) for part in batch("pairs"))
    positions = (mask.long().cumsum(1) - 1).clamp_min(0)
    with torch.no_grad():
        expected = theirs(
            tokens, attention_mask=mask.long(), token_type_ids=segments, position_ids=positions
        ).last_hidden_state
        found = ours(tokens, mask, segments)
        other = ours(torch.where(mask, tokens, 7), mask, segments)
    assert_close(found[mask], expected[mask], atol=1e-5, rtol=1e-5)
    assert_close(other[mask], found[mask], atol=1e-6, rtol=1e-6)
