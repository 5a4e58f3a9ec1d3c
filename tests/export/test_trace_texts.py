"""One graph of each model that labels or tags says what the model says, for batches and lengths never traced."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from qkv.data.symbols import BOS, PAD
from qkv.export.trace_texts import text_graph
from qkv.models import registry
from qkv.models.ngrams import NGramClassifier, NGramsConfig, NGramTagger
from qkv.run.run import build_model
from qkv.tasks.batch import Batch

N_TOKENS, N_LABELS = 30, 4
SMALL = {"d_model": 16}
SETTINGS = {
    "rnn": {"d_hidden": 6, "n_layers": 2, "bidirectional": False},
    "gru": {"d_hidden": 6, "n_layers": 2, "pooling": "last"},
    "lstm": {"d_hidden": 6, "n_layers": 2, "pooling": "last"},
    "cnn": {"n_filters": 5, "widths": "1,3,9"},
    "tcn": {"d_hidden": 12, "n_layers": 3, "kernel": 2, "pooling": "last"},
    "transformer": {"n_heads": 4, "d_ff": 24, "n_kv_heads": 2, "positions": "rotary"},
}
MORE = [
    ("transformer", {"n_heads": 4, "d_ff": 24, "positions": "learned", "pre_norm": False, "pooling": "first"}),
    ("transformer", {"n_heads": 2, "d_ff": 24, "positions": "alibi", "norm": "rms", "activation": "swiglu"}),
    ("lstm", {"d_hidden": 6, "bidirectional": False, "pooling": "mean"}),
    ("tcn", {"d_hidden": 16, "kernel": 1, "pooling": "max"}),
]
ALL = [
    *[(name, settings, head) for name, settings in SETTINGS.items() for head in ("pooled", "per_token")],
    *[(name, settings, "pooled") for name, settings in MORE],
]  # fmt: skip
ALL = [one for one in ALL if one[2] in registry.find(one[0]).heads]


def rows(batch, time):
    """Rows of different lengths behind BOS, one as long as `time`, padded on the right; unknown tokens among them."""
    mask = torch.arange(time) < torch.randint(1, time + 1, (batch, 1))
    mask[0] = True
    tokens = torch.randint(3, N_TOKENS, (batch, time)).masked_fill(~mask, PAD)
    tokens[:, 0] = BOS
    return tokens, mask


def session(graph):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(graph.SerializeToString(), options)


def built(name, settings, head, n_segments=1):
    torch.manual_seed(2)
    sizes = {"n_tokens": N_TOKENS, "n_labels": N_LABELS, "n_segments": n_segments}
    return build_model({"name": name, **SMALL, **settings}, sizes, head).eval()


def agrees(run, model, batch, time, pairs=False):
    tokens, mask = rows(batch, time)
    inputs = {"tokens": tokens}
    if pairs:
        inputs["segments"] = (torch.arange(time) >= time // 2).long() * mask
    with torch.no_grad():
        expected = model(tokens, mask, inputs.get("segments"))
    found = run.run(["logits"], {one.name: inputs[one.name].numpy() for one in run.get_inputs()})[0]
    if expected.dim() == 3:  # what stands at padding is nobody's
        expected, found = expected[mask], found[mask.numpy()]
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings", "head"), ALL)
def test_every_model_says_in_onnx_what_it_says_in_torch(name, settings, head):
    model = built(name, settings, head)
    graph = text_graph(model, N_TOKENS, pairs=False)
    onnx.checker.check_model(graph, full_check=True)
    run = session(graph)
    for batch in (1, 2, 7):
        for time in (1, 2, 5, 13, 40):
            agrees(run, model, batch, time)
    shapes = {one.name: one.shape for one in (*run.get_inputs(), *run.get_outputs())}
    assert shapes["tokens"] == ["batch", "time"]
    assert shapes["logits"] == (["batch", N_LABELS] if head == "pooled" else ["batch", "time", N_LABELS])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_segments_of_pairs_are_an_input(name):
    model = built(name, SETTINGS[name], "pooled", n_segments=2)
    run = session(text_graph(model, N_TOKENS, pairs=True))
    assert [one.name for one in run.get_inputs()] == ["tokens", "segments"]
    for batch, time in ((1, 6), (5, 3), (3, 21)):
        agrees(run, model, batch, time, pairs=True)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("min_count", [1, 3])
def test_bags_of_n_grams_are_counted_by_an_operator_of_onnx(n, min_count):
    torch.manual_seed(3)
    model = NGramClassifier(NGramsConfig(n=n, min_count=min_count), N_TOKENS, N_LABELS).eval()
    tokens, mask = rows(60, 12)
    targets = torch.arange(60) % N_LABELS
    model.fit([Batch({"tokens": tokens, "mask": mask}, targets, 60.0, int(mask.sum()), None)])
    graph = text_graph(model, N_TOKENS, pairs=False)
    onnx.checker.check_model(graph, full_check=True)
    run = session(graph)
    for batch, time in ((1, 1), (1, 2), (7, 30), (3, 13)):
        agrees(run, model, batch, time)
    nothing = np.array([[BOS, 3, 3, PAD]])  # no n-gram that training knows: the biases
    np.testing.assert_array_equal(run.run(None, {"tokens": nothing})[0][0], model.bias.detach().numpy())


def test_the_most_frequent_tags_are_a_table():
    torch.manual_seed(4)
    model = NGramTagger(N_TOKENS, N_LABELS).eval()
    tokens, mask = rows(20, 9)
    targets = torch.randint(0, N_LABELS, tokens.shape).masked_fill(~mask | (tokens == BOS), -100)
    model.fit([Batch({"tokens": tokens, "mask": mask}, targets, 1.0, 1, None)])
    run = session(text_graph(model, N_TOKENS, pairs=False))
    for batch, time in ((1, 1), (4, 17)):
        agrees(run, model, batch, time)
