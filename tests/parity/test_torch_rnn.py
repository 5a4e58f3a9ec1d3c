"""Recurrent nets against torch's, and against their formulas written out in float64."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from qkv.models.recurrent import RecurrentConfig
from qkv.models.recurrent_decoder import build_seq2seq
from qkv.nn.recurrent import Recurrent

TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
LENGTHS = torch.tensor([7, 3, 1, 5])
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def batch(width=5):
    draw = torch.Generator().manual_seed(1)
    mask = torch.arange(7) < LENGTHS[:, None]
    return torch.randn(4, 7, width, generator=draw), mask


def both(cell, layers, bidirectional):
    torch.manual_seed(0)
    ours = Recurrent(cell, 5, 6, layers, bidirectional)
    theirs = TORCH[cell](5, 6, layers, batch_first=True, bidirectional=bidirectional)
    copied = {}
    for name, value in ours.state_dict().items():
        _, layer, kind = name.split(".")
        copied[kind.replace("l0", f"l{layer}")] = value
    theirs.load_state_dict(copied)
    return ours, theirs


@pytest.mark.parametrize("cell", TORCH)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_each_row_is_what_torch_says_of_it_alone(cell, layers, bidirectional):
    ours, theirs = both(cell, layers, bidirectional)
    x, mask = batch()
    states, last = ours(x, mask)
    for row, length in enumerate(LENGTHS.tolist()):
        alone, end = theirs(x[row : row + 1, :length])
        assert_close(states[row, :length], alone[0], **CLOSE)
        hidden = end[0] if cell == "lstm" else end
        assert_close(last.hidden[row], hidden[:, 0].unflatten(0, (layers, -1)).flatten(1), **CLOSE)
        if cell == "lstm":
            assert_close(last.cell[row], end[1][:, 0].unflatten(0, (layers, -1)).flatten(1), **CLOSE)
    assert (states[~mask] == 0).all()


@pytest.mark.parametrize("cell", TORCH)
def test_gradients_are_torchs(cell):
    ours, theirs = both(cell, 2, True)
    x, _ = batch()
    grads = []
    for net in (ours, theirs):
        net.zero_grad()
        net(x)[0].square().sum().backward()
        grads.append({name: p.grad for name, p in net.named_parameters()})
    for name, grad in grads[0].items():
        _, layer, kind = name.split(".")
        assert_close(grad, grads[1][kind.replace("l0", f"l{layer}")], **CLOSE)


def weights(layer):
    return [p.double() for p in (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)]


def rnn_step(layer, x, h, c):
    w, u, b, d = weights(layer)
    return torch.tanh(w @ x + b + u @ h + d), c


def gru_step(layer, x, h, c):
    w, u, b, d = weights(layer)
    (r, z, n), (rh, zh, nh) = (w @ x + b).chunk(3), (u @ h + d).chunk(3)
    r, z = torch.sigmoid(r + rh), torch.sigmoid(z + zh)
    return (1 - z) * torch.tanh(n + r * nh) + z * h, c


def lstm_step(layer, x, h, c):
    w, u, b, d = weights(layer)
    i, f, g, o = (w @ x + b + u @ h + d).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


STEPS = {"rnn": rnn_step, "gru": gru_step, "lstm": lstm_step}


@pytest.mark.parametrize("cell", TORCH)
def test_each_step_is_the_formula(cell):
    torch.manual_seed(0)
    net = Recurrent(cell, 5, 6)
    x, _ = batch()
    states, _ = net(x)
    h, c = torch.zeros(6).double(), torch.zeros(6).double()
    for place in range(7):
        h, c = STEPS[cell](net.layers[0], x[0, place].double(), h, c)
        assert_close(states[0, place].double(), h, **CLOSE)


def written_out(model, source, target, cell):
    """Logits of one pair by the papers' formulas, in float64: Luong et al. 2015 or Bahdanau et al. 2015."""
    decoder, kind = model.decoder, model.decoder.kind
    memory = model.encoder(source).double()[0]  # (Ts, M)
    half = decoder.d_half
    ends = torch.cat([memory[-1, :half], memory[0, half:]])
    attention = decoder.cross_attention
    h = torch.tanh(decoder.bridge[0].weight.double() @ ends + decoder.bridge[0].bias.double())
    c = torch.zeros_like(h)
    keys = memory @ attention.key.weight.double().T

    def context(state):
        if kind == "additive":
            asked = attention.query.weight.double() @ state + attention.query.bias.double()
            scores = torch.tanh(asked + keys) @ attention.score.weight.double()[0]
        else:
            scores = keys @ state / (state.numel() ** 0.5 if kind == "scaled_dot" else 1.0)
        return scores.softmax(0) @ memory  # (M,)

    embedded = (model.decoder.embedding.tokens.weight * model.decoder.embedding.scale).double()[target[0]]
    logits = []
    for x in embedded:
        if kind == "additive":
            told = context(h)  # the state before
            h, c = STEPS[cell](decoder.layers.layers[0], torch.cat([x, told]), h, c)
        else:
            h, c = STEPS[cell](decoder.layers.layers[0], x, h, c)
            told = context(h)  # the present state
        both = torch.cat([told, h])
        out = torch.tanh(decoder.combine.weight.double() @ both + decoder.combine.bias.double())
        logits.append(model.head.projection.weight.double() @ out + model.head.projection.bias.double())
    return torch.stack(logits)


@pytest.mark.parametrize("cell", TORCH)
@pytest.mark.parametrize("attention", ["additive", "dot", "scaled_dot"])
def test_attention_is_bahdanaus_with_the_state_before_and_luongs_with_the_present_one(cell, attention):
    torch.manual_seed(0)
    config = RecurrentConfig(d_model=6, d_hidden=5, attention=attention)
    model = build_seq2seq(config, 11, 9, cell=cell).eval()
    source, target = torch.tensor([[4, 7, 5, 10]]), torch.tensor([[1, 5, 8]])
    with torch.no_grad():
        assert_close(model(source, target)[0].double(), written_out(model, source, target, cell), **CLOSE)


@pytest.mark.parametrize(("context", "moves"), [("every", True), ("first", True)])
def test_without_attention_one_vector_is_all_that_the_decoder_has_of_the_source(context, moves):
    torch.manual_seed(0)
    config = RecurrentConfig(d_model=6, d_hidden=5, attention="none", context=context)
    model = build_seq2seq(config, 11, 9, cell="gru").eval()
    source, target = torch.tensor([[4, 7, 5, 10]]), torch.tensor([[1, 5, 8]])
    state = model.decoder.start(model.encoder(source))
    assert state.keys is None
    assert state.memory is None
    assert state.context.shape == (1, 10)
    assert (model(source, target) != model(torch.tensor([[4, 7, 6, 10]]), target)).any() == moves


@pytest.mark.parametrize("cell", TORCH)
@pytest.mark.parametrize("attention", ["additive", "dot", "scaled_dot"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_attention_over_a_padded_source_is_the_formula_of_the_source_alone(cell, attention, side):
    torch.manual_seed(0)
    model = build_seq2seq(RecurrentConfig(d_model=6, d_hidden=5, attention=attention), 11, 9, cell=cell).eval()
    source, target = torch.tensor([[4, 7, 5, 10, 6, 8], [9, 4, 3, 3, 3, 3]]), torch.tensor([[1, 5, 8], [1, 7, 2]])
    mask = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    if side == "left":
        source, mask = source.flip(1), mask.flip(1)
    with torch.no_grad():
        found = model(source, target, source_mask=mask).double()
        for row in range(2):
            alone = written_out(model, source[row : row + 1, mask[row]], target[row : row + 1], cell)
            assert_close(found[row], alone, **CLOSE)


@pytest.mark.parametrize("cell", TORCH)
@pytest.mark.parametrize("context", ["every", "first"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_one_context_vector_is_read_at_every_step_or_begins_the_decoder_only(cell, context, bidirectional):
    torch.manual_seed(0)
    config = RecurrentConfig(d_model=6, d_hidden=5, bidirectional=bidirectional, attention="none", context=context)
    model = build_seq2seq(config, 11, 9, cell=cell).eval()
    source, target = torch.tensor([[4, 7, 5, 10]]), torch.tensor([[1, 5, 8]])
    decoder, head = model.decoder.double(), model.head.double()
    with torch.no_grad():
        memory = model.encoder(source)[0].double()
        ends = torch.cat([memory[-1, : decoder.d_half], memory[0, decoder.d_half :]])
        plain = context == "first" and not bidirectional
        h = ends if plain else torch.tanh(decoder.bridge[0](ends))
        c, logits = torch.zeros_like(h), []
        for x in decoder.embedding.tokens.weight[target[0]] * decoder.embedding.scale:
            read = torch.cat([x, ends]) if context == "every" else x
            h, c = STEPS[cell](decoder.layers.layers[0], read, h, c)
            logits.append(head.projection(h if context == "first" else decoder.combine(torch.cat([ends, h])).tanh()))
        found = head(decoder(target, model.encoder(source).double()))
    assert_close(found[0], torch.stack(logits), **CLOSE)
