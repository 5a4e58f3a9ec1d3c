"""The graphs say what the model says, for batches and lengths that were never traced."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from qkv.data.symbols import BOS, EOS, PAD
from qkv.export.loop import greedy_graph
from qkv.export.trace import OPSET, names, trace
from qkv.generation.greedy import greedy

MAX_LENGTH = 12

SETTINGS = {
    "sinusoidal, as the paper": {"positions": "sinusoidal", "pre_norm": False, "tied": "none"},
    "learned, one vocabulary": {"positions": "learned", "tied": "all", "n_decoder_layers": 1},
    "rotary, few key heads": {"positions": "rotary", "n_kv_heads": 2, "activation": "swiglu", "norm": "rms"},
    "alibi, one key head": {"positions": "alibi", "n_kv_heads": 1, "activation": "gelu", "n_decoder_layers": 3},
    "no positions, post-norm": {"positions": "none", "norm": "rms", "pre_norm": False},
}


def session(graph):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph.SerializeToString(), options)


def sources(batch, time):
    """Rows of different lengths, one as long as `time`, each ending in eos and padded on the right."""
    lengths = torch.randint(1, time + 1, (batch,))
    lengths[0] = time
    mask = torch.arange(time) < lengths[:, None]
    source = torch.randint(4, 30, (batch, time)).masked_fill(~mask, PAD)
    source[torch.arange(batch), lengths - 1] = EOS
    return source, mask


def agrees(run, model, batch, time):
    """Whether the graph says what greedy search says; the lengths of the answers."""
    source, mask = sources(batch, time)
    expected = greedy(model, {"source": source, "source_mask": mask}, bos=BOS, eos=EOS, max_length=MAX_LENGTH)
    target, length, log_prob = run.run(None, {"source": source.numpy()})
    for one, row, end, score in zip(expected, target, length, log_prob, strict=True):
        said = [*one.tokens, *([EOS] if one.finished else [])]
        assert row.tolist() == said + [PAD] * (target.shape[1] - len(said))
        assert end == len(one.tokens)
        assert score == pytest.approx(one.log_prob, abs=1e-4)
    assert target.shape[1] == max(len(one.tokens) + one.finished for one in expected)
    return [len(one.tokens) for one in expected]


def step_by_step(graphs, source):
    """Greedy search on encoder.onnx and decoder_step.onnx by hand: symbols of each row up to the first eos."""
    encoder, step = session(graphs.encoder), session(graphs.step)
    memory = dict(zip((o.name for o in encoder.get_outputs()), encoder.run(None, {"source": source}), strict=True))
    past = {i.name: i.shape for i in step.get_inputs() if i.name.startswith("past_")}
    past = {name: np.zeros((len(source), shape[1], 0, shape[3]), np.float32) for name, shape in past.items()}
    token, said = np.full(len(source), BOS), []
    for _ in range(MAX_LENGTH):
        logits, *present = step.run(None, {"token": token, **memory, **past})
        past = dict(zip(past, present, strict=True))
        token = logits.argmax(1)
        said.append(token)
    rows = np.stack(said, 1).tolist()
    return [row[: row.index(EOS)] if EOS in row else row for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_configuration_says_what_greedy_search_says(random_model, settings):
    model = random_model(**settings)
    graphs = trace(model)
    whole = greedy_graph(graphs, MAX_LENGTH)
    for graph in (whole, graphs.encoder, graphs.step):
        onnx.checker.check_model(graph, full_check=True)
        assert {entry.version for entry in graph.opset_import if entry.domain == ""} == {OPSET}
        assert not graph.functions
    run, lengths = session(whole), []
    for batch in (1, 3, 7):
        for time in (1, 2, 3, 5, 8, 13, 30):
            lengths += agrees(run, model, batch, time)
    assert len(set(lengths)) > 1  # rows of one batch ended at different steps
    assert agrees(run, model, 2, 130)  # longer than the sizes at which torch takes another kernel
    source, mask = sources(7, 9)
    expected = greedy(model, {"source": source, "source_mask": mask}, bos=BOS, eos=EOS, max_length=MAX_LENGTH)
    assert step_by_step(graphs, source.numpy()) == [one.tokens for one in expected]


@pytest.mark.slow
def test_a_batch_stops_when_all_rows_have_ended_and_axes_have_names(random_model):
    model = random_model(positions="none", n_decoder_layers=1)
    with torch.no_grad():
        model.head.projection.bias[EOS] = 1e4
    graphs = trace(model)
    run = session(greedy_graph(graphs, MAX_LENGTH))
    target, length, log_prob = run.run(None, {"source": sources(3, 4)[0].numpy()})
    assert target.tolist() == [[EOS]] * 3
    assert length.tolist() == [0] * 3
    assert log_prob.tolist() == [0.0] * 3
    shapes = {value.name: value.shape for value in session(graphs.step).get_inputs()}
    assert shapes["token"] == ["batch"]
    assert shapes["source_mask"] == ["batch", "source_time"]
    assert {tuple(shapes[name]) for name in names("memory", 1)} == {("batch", 4, "source_time", 8)}
    assert {tuple(shapes[name]) for name in names("past", 1)} == {("batch", 4, "past_time", 8)}


@pytest.mark.slow
def test_one_matrix_that_encoder_and_decoder_share_is_written_once(random_model):
    graph = greedy_graph(trace(random_model(positions="none", tied="all", n_source=40, n_target=40)), MAX_LENGTH).graph
    shapes = [tuple(weight.dims) for weight in graph.initializer]
    assert shapes.count((40, 32)) == 1
    assert shapes.count((32, 40)) == 1  # the head's, turned
