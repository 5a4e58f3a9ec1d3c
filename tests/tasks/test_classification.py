"""Classification: what a model reads, what that costs, and how answers, figures and probabilities come about."""

import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qkv.data.symbols import BOS, EOS, PAD
from qkv.data.texts import Labelled, Texts
from qkv.errors import UserError
from qkv.models.encoder_only import EncoderOnly
from qkv.models.heads import Pooled
from qkv.nn.positions import Embedding, Sinusoidal, real_positions
from qkv.tasks.classification import Classification, ClassificationConfig

WORDS = {"good": ("fine", "great", "lovely"), "bad": ("awful", "poor", "dull"), "odd": ("strange", "queer")}
FILL = ("the", "a", "film", "play", "was", "is", "so")


def sentence(draw, label, length):
    return " ".join([*draw.choices(FILL, k=length - 1), draw.choice(WORDS[label])])


def data_of(train, several=False):
    labels = tuple(sorted({label for example in train for label in example.labels}))
    return Texts(train, train, train, "invented", "classification", labels, "0", several=several)


def some(kind="one", n=40):
    draw = random.Random(0)
    rows = [(label, sentence(draw, label, draw.randint(2, 12))) for label in draw.choices(list(WORDS), (5, 3, 1), k=n)]
    if kind == "several":
        return data_of([Labelled(text, (label, "long") if len(text) > 40 else (label,)) for label, text in rows], True)
    if kind == "pairs":
        return data_of([Labelled(sentence(draw, "odd", 3), (label,), text) for label, text in rows])
    return data_of([Labelled(text, (label,)) for label, text in rows])


def task_of(kind="one", **changes):
    return Classification.of(ClassificationConfig(**changes), some(kind), kind="spaces")


class Body(nn.Module):
    """The smallest encoder that knows order, segments and padding."""

    def __init__(self, n_tokens, n_segments, d_model=16):
        super().__init__()
        self.embedding = Embedding(n_tokens, d_model, Sinusoidal(d_model), 0.0, n_segments=n_segments)
        self.inside = nn.Linear(d_model, d_model)

    def forward(self, tokens, mask=None, segments=None):
        pos = real_positions(mask, tokens.size(1), tokens.device)
        return self.inside(self.embedding(tokens, pos, segments)).tanh()


def model_of(task):
    sizes = task.sizes
    return EncoderOnly(Body(sizes["n_tokens"], sizes["n_segments"]), Pooled(16, sizes["n_labels"], "mean", 0.0)).eval()


KINDS = ("one", "several", "pairs")
long_and_short = [Labelled("the film was " * 20 + "great", ("good",)), Labelled("awful", ("bad",))]


def test_vocabulary_and_labels_are_of_the_training_split_and_of_both_texts():
    task = task_of()
    assert "great" in task.source
    assert task.labels == ("bad", "good", "odd")
    assert task.sizes == {"n_tokens": len(task.source), "n_labels": 3, "n_segments": 1}
    pairs = Classification.of(
        ClassificationConfig(), data_of([Labelled("a", ("x",), "only here"), Labelled("b", ("y",))]), kind="spaces"
    )
    assert "only" in pairs.source
    assert pairs.sizes["n_segments"] == 2


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.lists(st.integers(0, 39), min_size=1, max_size=6))
def test_a_batch_holds_what_its_items_say(kind, rows):
    task, examples = task_of(kind), some(kind).train
    items = task.items([examples[row] for row in rows])
    batch = task.collate(items)
    tokens, mask = batch.inputs["tokens"], batch.inputs["mask"]
    for row, number in enumerate(rows):
        first, second = (task.source.encode(text) for text in (examples[number].text, examples[number].second))
        wanted = [BOS, *first, EOS, *second, EOS] if kind == "pairs" else [BOS, *first]
        assert tokens[row][mask[row]].tolist() == wanted
        assert set(tokens[row][~mask[row]].tolist()) <= {PAD}
        assert mask[row].tolist() == sorted(mask[row].tolist(), reverse=True)
        if kind == "pairs":
            assert batch.inputs["segments"][row][mask[row]].tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
        holds = [label in examples[number].labels for label in task.labels]
        assert batch.targets[row].tolist() == (holds if kind == "several" else holds.index(True))
    assert batch.weights is None
    assert batch.n_targets == len(rows)
    assert batch.n_tokens == int(mask.sum())
    assert [length for length, _ in task.lengths(items)] == mask.sum(1).tolist()
    assert task.lengths(items[:]) == task.lengths(items)


def reference_loss(task, logits, batch):
    """Summed, in float64, written out: the right label (of several: each) gets 1 - s and all of them s / count."""
    logits, smoothing = logits.double().numpy(), task.config.label_smoothing
    weights = np.ones(len(logits)) if batch.weights is None else batch.weights.numpy()
    if not task.several:
        log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        right = np.eye(logits.shape[1])[batch.targets.numpy()] * (1 - smoothing) + smoothing / logits.shape[1]
        return -((right * log_probs).sum(1) * weights).sum()
    there = batch.targets.numpy()
    right, held = there * (1 - smoothing) + smoothing / 2, 1 / (1 + np.exp(-logits))
    cells = -(right * np.log(held) + (1 - right) * np.log(1 - held))
    if task.config.balance == "weights":
        counts, n = np.array(task.classes.counts), task.classes.examples
        cells = cells * np.where(there > 0, n / (2 * counts), n / (2 * (n - counts)))
    return (cells.sum(1) * weights).sum()


@pytest.mark.parametrize("kind", ["one", "several"])
@pytest.mark.parametrize("balance", ["none", "weights"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_formula_summed_over_rows_by_their_weights(kind, balance, smoothing):
    task = task_of(kind, balance=balance, label_smoothing=smoothing, window=8)
    batch = task.collate(task.items(some(kind).train))
    logits = torch.randn(len(batch.targets), len(task.labels))
    assert float(task.loss(logits, batch)) == pytest.approx(reference_loss(task, logits, batch), rel=1e-5)
    assert task.loss(logits.bfloat16(), batch).dtype == torch.float32
    # Weighing moves what counts from label to label, and over all of training adds nothing.
    assert batch.n_targets == pytest.approx(len(some(kind).train))
    assert batch.weights is not None


@pytest.mark.parametrize("balance", ["none", "weights"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_costs_what_its_rows_cost_alone(kind, balance):
    task = task_of(kind, window=10, balance=balance)
    model, items = model_of(task), task.items(some(kind).train[:12])
    together, alone = task.collate(items), [task.collate([item]) for item in items]
    assert sum(batch.n_targets for batch in alone) == pytest.approx(together.n_targets)
    assert sum(batch.n_tokens for batch in alone) == together.n_tokens
    with torch.no_grad():
        wanted = sum(float(task.loss(model(**batch.inputs), batch)) for batch in alone)
        assert float(task.loss(model(**together.inputs), together)) == pytest.approx(wanted, rel=1e-5)


def test_a_long_text_weighs_as_much_as_a_short_one_in_training():
    task = task_of(window=16)
    items = task.items(long_and_short)
    assert len(items) > 3
    assert task.collate(items).n_targets == pytest.approx(2.0)
    assert task.collate(items[-1:]).weights is None


def test_balanced_batches_repeat_the_examples_of_rare_classes():
    data, task = some(), task_of(balance="batches")
    targets = task.collate(task.items(data.train)).targets
    counts = np.bincount(targets.numpy())
    assert set(counts) == {max(task.classes.counts)}
    with pytest.raises(UserError, match="batches needs one label"):
        task_of("several", balance="batches")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pool", ["mean", "max", "first"])
def test_scores_are_those_of_all_windows_pooled(kind, pool):
    task = task_of(kind, window=12, pool=pool)
    model, texts = model_of(task), [(e.text * 3, e.second) for e in some(kind).train[:6]]
    found = task.read(model, texts)
    for text, read in zip(texts, found, strict=True):
        pieces = task._pieces([text])
        rows = [torch.tensor([ids]) for ids, _ in pieces]
        segments = [torch.tensor([[0] * n_first + [1] * (len(ids) - n_first)]) for ids, n_first in pieces]
        with torch.no_grad():
            logits = torch.cat([model(row, None, one) for row, one in zip(rows, segments, strict=True)])
        scores = logits if kind == "several" else logits.log_softmax(1)
        wanted = {"mean": scores.mean(0), "max": scores.amax(0), "first": scores[0]}[pool]
        assert read.scores == pytest.approx(wanted.numpy(), abs=1e-5)
        assert (len(pieces) == 1) == (pool == "first" or read.beyond == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_does_not_depend_on_what_else_is_asked(kind):
    task = task_of(kind, window=10)
    model = model_of(task)
    texts = [f"{e.text}\t{e.second}" if kind == "pairs" else e.text for e in some(kind).train]
    done = []
    together = task.predict(model, texts, advance=done.append)
    assert [one.text for one in together] == texts
    assert sum(done) == len(texts)
    for text, one in list(zip(texts, together, strict=True))[::5]:
        (alone,) = task.predict(model, [text])
        assert alone.output == one.output
        assert alone.probabilities == pytest.approx(one.probabilities, abs=1e-6)


def test_all_labels_come_with_their_probabilities_best_first():
    task = task_of()
    for one in task.predict(model_of(task), ["the film was great", "so dull"]):
        assert sorted(label for label, _ in one.n_best) == list(task.labels)
        assert one.n_best[0] == (one.output, one.score)
        assert one.probabilities == sorted((held for _, held in one.n_best), reverse=True)
        assert sum(one.probabilities) == pytest.approx(1.0)
        assert one.finished


def test_symbols_unseen_in_training_are_named_once_each():
    task, pairs = task_of(), task_of("pairs")
    found = task.predict(model_of(task), ["the film", "zany film quite zany"])
    assert [one.unknown for one in found] == [[], ["zany", "quite"]]
    (one,) = pairs.predict(model_of(pairs), [("zany film", "mad zany")])
    assert one.unknown == ["zany", "mad"]


def test_a_pair_is_two_texts_with_a_tab_between_or_a_tuple():
    task = task_of("pairs")
    model = model_of(task)
    as_line, as_tuple = task.predict(model, ["the film\tso dull", ("the film", "so dull")])
    assert as_line == as_tuple
    assert task.predict(model, ["so dull\tthe film"])[0].probabilities != as_line.probabilities
    assert task.is_empty("the film\t ")
    assert not task.is_empty("the film\tso dull")


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("one", "", "text 2 of 3 is empty"),
        ("one", ("a", "b"), "text 2 of 3 has 2 parts: one text is expected"),
        ("pairs", "one text", "text 2 of 3 has 1 part: two texts .* FIRST<tab>SECOND"),
        ("pairs", "a\tb\tc", "text 2 of 3 has 3 parts"),
        ("pairs", "the film\t ", "text 2 of 3 is empty"),
    ],
)
def test_texts_that_cannot_be_judged_are_refused_and_said_which(kind, text, said):
    task = task_of(kind)
    good = "film\tfilm" if kind == "pairs" else "film"
    with pytest.raises(UserError, match=said):
        task.predict(model_of(task), [good, text, good])
    assert task.predict(model_of(task), []) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_task_is_the_same_task(kind, tmp_path):
    task = task_of(kind, balance="weights")
    task.temperature = 1.5
    task.save(tmp_path)
    again, examples = Classification.load(tmp_path, task.config), some(kind).train
    assert again.sizes == task.sizes
    assert (again.labels, again.pairs, again.temperature) == (task.labels, task.pairs, 1.5)
    assert list(map(str, again.items(examples))) == list(map(str, task.items(examples)))
    assert again.collate(again.items(examples)).n_targets == task.collate(task.items(examples)).n_targets


@pytest.mark.parametrize(
    "damage", [{"temperature": 0.0}, {"temperature": "hot"}, {"pairs": None}, {"labels": ["a"]}, "tokenizer.json"]
)
def test_damaged_and_missing_files_are_named(tmp_path, damage):
    task = task_of()
    task.save(tmp_path)
    name, path = ("labels.json", tmp_path / "labels.json") if isinstance(damage, dict) else (damage, None)
    if path is None:
        (tmp_path / damage).unlink()
    else:
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | damage), encoding="utf-8")
    with pytest.raises(UserError, match=name):
        Classification.load(tmp_path, task.config)


@pytest.mark.parametrize(
    "settings",
    [{"window": 7}, {"stride": -1}, {"stride": 300}, {"label_smoothing": 1.0}, {"threshold": 0.0}, {"threshold": 1.0},
     {"pool": "sum"}, {"balance": "yes"}],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        ClassificationConfig(**settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_learns_what_the_labels_say(kind):
    task, examples = task_of(kind, window=9), some(kind).train
    model, batch = model_of(task).train(), task.collate(task.items(examples))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(60):
        optimiser.zero_grad()
        loss = task.loss(model(**batch.inputs), batch) / batch.n_targets
        loss.backward()
        optimiser.step()
    before, after = task.evaluate(model_of(task), examples), task.evaluate(model.eval(), examples)
    assert after[task.metric] > 80 > before[task.metric]
