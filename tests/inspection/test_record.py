"""record(): the weights are those of the formula, the outputs are those without recording, and nothing stays behind."""

import math

import pytest
import torch
from torch import nn

from qkv.inspection.record import record
from qkv.models.encoder_decoder import EncoderDecoderConfig, build
from qkv.nn.attention import MultiHeadAttention
from qkv.nn.masks import AttentionMask
from qkv.nn.scores import Additive


def small(**changes):
    torch.manual_seed(0)
    config = EncoderDecoderConfig(**{"d_model": 32, "n_heads": 4, "d_ff": 48, "n_layers": 2, **changes})
    return build(config, 12, 14).eval()


def batch():
    torch.manual_seed(1)
    lengths = torch.tensor([[7], [4], [1]])
    return {
        "source": torch.randint(4, 12, (3, 7)),
        "source_mask": torch.arange(7)[None] < lengths,
        "target": torch.randint(4, 14, (3, 5)),
    }


def formula(query, key, allowed, scale):
    """softmax(q k^T scale) over allowed keys in float64; a row without any is 0."""
    scores = torch.einsum("bhqd,bhkd->bhqk", query.double(), key.double()) * scale
    exponentials = (scores - scores.amax(-1, keepdim=True)).exp() * allowed
    total = exponentials.sum(-1, keepdim=True)
    return torch.where(total > 0, exponentials / total.clamp_min(1e-300), 0.0)


def split(x, heads):
    return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_weights_are_the_formula_in_float64(n_kv_heads):
    torch.manual_seed(2)
    attention = MultiHeadAttention(32, 4, n_kv_heads=n_kv_heads)
    x, memory = torch.randn(3, 5, 32), torch.randn(3, 6, 32)
    allowed = torch.rand(3, 4, 5, 6) > 0.4
    allowed[1, 2, 3] = False  # a query that may attend to nothing
    with record(attention) as seen:
        attention(x, memory, mask=allowed)
    query = split(attention.query(x), 4)
    key = split(attention.key(memory), n_kv_heads).repeat_interleave(4 // n_kv_heads, 1)
    expected = formula(query, key, allowed, 1 / math.sqrt(8))
    assert seen[0].weights.dtype == torch.float32
    torch.testing.assert_close(seen[0].weights.double(), expected, atol=1e-6, rtol=0)
    assert seen[0].weights[1, 2, 3].eq(0).all()


def test_score_biases_are_part_of_the_weights():
    model = small(positions="alibi", n_layers=1)
    with record(model) as seen:
        model(**batch())
    block = model.encoder.blocks[0]
    x = model.encoder.embedding(batch()["source"], torch.arange(7)[None])
    x = block.attention_residual.enter(x)
    query, key = split(block.attention.query(x), 4), split(block.attention.key(x), 4)
    distance = (torch.arange(7)[:, None] - torch.arange(7)).abs()
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])
    scores = (query @ key.mT).double() / math.sqrt(8) - slopes[:, None, None] * distance
    scores = scores.masked_fill(~batch()["source_mask"][:, None, None], -math.inf)
    torch.testing.assert_close(seen[0].weights.double(), scores.softmax(-1), atol=1e-6, rtol=0)


def test_records_come_in_call_order_with_path_and_axes():
    model = small()
    with record(model) as seen:
        model(**batch())
    assert [(r.path, r.axes, tuple(r.weights.shape)) for r in seen] == [
        ("encoder.blocks.0.attention", ("source token", "source token"), (3, 4, 7, 7)),
        ("encoder.blocks.1.attention", ("source token", "source token"), (3, 4, 7, 7)),
        ("decoder.blocks.0.self_attention", ("target token", "target token"), (3, 4, 5, 5)),
        ("decoder.blocks.0.cross_attention", ("target token", "source token"), (3, 4, 5, 7)),
        ("decoder.blocks.1.self_attention", ("target token", "target token"), (3, 4, 5, 5)),
        ("decoder.blocks.1.cross_attention", ("target token", "source token"), (3, 4, 5, 7)),
    ]
    for r in seen:
        assert isinstance(model.get_submodule(r.path), MultiHeadAttention)
        torch.testing.assert_close(r.weights.sum(-1), torch.ones(r.weights.shape[:-1]))
    assert seen[2].weights.triu(1).eq(0).all()
    assert seen[3].weights.masked_select(~batch()["source_mask"][:, None, None]).eq(0).all()


def test_decoding_step_by_step_gives_the_rows_of_the_whole():
    model, inputs = small(), batch()
    with record(model) as whole:
        model(**inputs)
    with record(model) as seen:
        _, state = model.prefill({**inputs, "target": inputs["target"][:, :1]})
        for t in range(1, 5):
            _, state = model.step(inputs["target"][:, t], state)
    path = "decoder.blocks.1.cross_attention"
    steps = torch.cat([r.weights for r in seen if r.path == path], 2)
    torch.testing.assert_close(steps, next(r.weights for r in whole if r.path == path))
    assert {r.path for r in seen} == {r.path for r in whole}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("training", [False, True])
def test_recording_changes_neither_output_nor_gradient_by_one_bit(dtype, training):
    model, inputs = small(dropout=0.3).to(dtype), batch()
    model.train(training)

    def run():
        torch.manual_seed(3)
        model.zero_grad()
        output = model(**inputs)
        output.float().square().sum().backward()
        return output, [p.grad.clone() for p in model.parameters()], torch.rand(1)

    plain, plain_gradients, plain_next = run()
    with record(model) as seen:
        recorded, gradients, recorded_next = run()
    assert len(seen) == 6
    assert torch.equal(plain, recorded)
    assert all(torch.equal(a, b) for a, b in zip(plain_gradients, gradients, strict=True))
    assert torch.equal(plain_next, recorded_next), "recording drew random numbers"


def test_weights_are_before_dropout_and_detached():
    model = small(dropout=0.5).train()
    with record(model) as seen:
        model(**batch())
    for r in seen:
        torch.testing.assert_close(r.weights.sum(-1), torch.ones(r.weights.shape[:-1]))
        assert not r.weights.requires_grad


@pytest.mark.parametrize("how", ["bfloat16 model", "autocast"])
def test_low_precision_models_are_recomputed_in_float32(how):
    torch.manual_seed(4)
    attention = MultiHeadAttention(32, 4)
    x = torch.randn(2, 6, 32)
    if how == "bfloat16 model":
        attention, x = attention.bfloat16(), x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"), record(attention) as seen:
        attention(x)
        query, key = split(attention.query(x), 4), split(attention.key(x), 4)
    assert query.dtype == torch.bfloat16
    expected = formula(query, key, torch.ones(2, 4, 6, 6), 1 / math.sqrt(8))
    torch.testing.assert_close(seen[0].weights.double(), expected, atol=1e-6, rtol=0)


def test_a_score_with_parameters_is_used_and_left_alone():
    torch.manual_seed(5)
    score = Additive(8, 4)
    attention = MultiHeadAttention(32, 4, score=score).bfloat16()
    before = score.weight
    x = torch.randn(2, 6, 32, dtype=torch.bfloat16)
    with record(attention) as seen:
        attention(x)
    query, key = split(attention.query(x), 4).double(), split(attention.key(x), 4).double()
    scores = ((query[..., :, None, :] + key[..., None, :, :]).tanh() * score.weight.double()[:, None, None]).sum(-1)
    torch.testing.assert_close(seen[0].weights.double(), scores.softmax(-1), atol=1e-6, rtol=0)
    assert score.weight is before
    assert score.weight.dtype == torch.bfloat16


def hooks(model):
    return [
        hook
        for module in model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]


def test_nothing_stays_behind_after_an_exception():
    model, kept = small(), []

    def fail_inside():
        with record(model) as seen:
            kept.append(seen)
            model(**batch())
            raise RuntimeError("from inside")

    with pytest.raises(RuntimeError, match="from inside"):
        fail_inside()
    assert len(kept[0]) == 6
    model(**batch())
    assert len(kept[0]) == 6, "still recording"
    assert hooks(model) == []
    assert torch.overrides._get_current_function_mode_stack() == []


def test_nothing_stays_behind_after_the_model_itself_raised():
    model = small()
    with pytest.raises(IndexError), record(model) as seen:
        model(source=torch.full((1, 3), 99), target=torch.zeros(1, 2, dtype=torch.long))
    assert len(seen) == 0
    with record(model) as again:
        model(**batch())
    assert again[0].path == "encoder.blocks.0.attention"


def test_a_model_without_attention_has_no_records():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with record(model) as seen:
        model(torch.randn(2, 4))
    assert list(seen) == []
    assert len(seen) == 0


def test_another_model_in_the_block_is_left_out_and_recordings_nest():
    first, second = MultiHeadAttention(8, 2), MultiHeadAttention(8, 1)
    x = torch.randn(1, 3, 8)
    with record(first) as of_first, record(second) as of_second:
        first(x)
        second(x)
    assert [r.weights.size(1) for r in of_first] == [2]
    assert [r.weights.size(1) for r in of_second] == [1]


def test_the_model_itself_may_be_the_attention():
    attention = MultiHeadAttention(8, 2)
    with record(attention) as seen:
        attention(torch.randn(1, 3, 8), mask=AttentionMask(causal=True))
    assert (seen[0].path, seen[0].axes) == ("", ("query", "key"))
    assert seen[0].shapes == {"query": (1, 2, 3, 4), "key": (1, 2, 3, 4), "value": (1, 2, 3, 4), "output": (1, 2, 3, 4)}


def test_gradients_flow_through_recorded_weights_when_asked():
    layer = MultiHeadAttention(8, 2)
    x = torch.randn(1, 4, 8, requires_grad=True)
    with record(layer, detach=False) as seen:
        layer(x)
    (slope,) = torch.autograd.grad(seen[0].weights[..., 0].sum(), x)
    assert slope.abs().sum() > 0
    with record(layer) as detached:
        layer(x)
    assert not detached[0].weights.requires_grad
    assert torch.equal(detached[0].weights, seen[0].weights.detach())


def test_what_is_no_module_is_refused():
    with pytest.raises(TypeError, match="not into a int"), record(3):
        pass
