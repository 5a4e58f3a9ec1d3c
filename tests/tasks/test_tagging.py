"""Tagging: tags at the first piece of each word, long sentences in windows, entities whole."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qkv.data.symbols import BOS, UNK
from qkv.data.texts import Tagged, Texts
from qkv.errors import UserError
from qkv.tasks.tagging import IGNORED, Tagging, TaggingConfig
from qkv.tasks.word_windows import word_windows

TRAIN = [
    Tagged(("Ana", "left", "New", "Oslo"), ("B-PER", "O", "B-LOC", "I-LOC")),
    Tagged(("Bo", "stays"), ("B-PER", "O")),
]
LABELS = ("B-LOC", "B-PER", "I-LOC", "O")


def task(kind="characters", labels=LABELS, train=TRAIN, **settings):
    data = Texts(train, train, train, "words", "tagging", labels, "0")
    return Tagging.of(TaggingConfig(**settings), data, kind=kind)


class Knows(nn.Module):
    """Says for each first piece the tag that a table has for its id, the same everywhere."""

    def __init__(self, table):
        super().__init__()
        self.table = nn.Parameter(table)

    def forward(self, tokens, mask=None, segments=None):
        return self.table[tokens]


def knowing(made, words):
    """A model that knows the tag of the first character of each word."""
    table = torch.full((len(made.source), len(made.labels)), -5.0)
    for word, tag in words.items():
        table[made.source.encode(word)[0], made.labels.index(tag)] = 5.0
    return Knows(table)


@pytest.mark.parametrize("kind", ["characters", "spaces", "words", "bpe:60"])
def test_targets_stand_at_the_first_piece_of_each_word(kind):
    made = task(kind)
    [item, _] = made.items(TRAIN)
    batch = made.collate(made.items(TRAIN))
    assert batch.n_targets == 6
    assert batch.inputs["tokens"][0, 0] == BOS
    assert item.ids[0] == BOS
    assert [made.labels[tag] for tag in item.tags] == list(TRAIN[0].tags)
    asked = (batch.targets != IGNORED).sum(1)
    assert asked.tolist() == [4, 2]
    for place, word in zip(item.begins, TRAIN[0].words, strict=True):
        assert item.ids[place : place + len(made.source.encode(word))] == made.source.encode(word)


def test_the_loss_is_a_sum_over_words_alone():
    made = task()
    batch = made.collate(made.items(TRAIN))
    logits = torch.randn(*batch.targets.shape, len(LABELS))
    by_hand = sum(
        -logits[row, place].log_softmax(-1)[tag]
        for row, item in enumerate(made.items(TRAIN))
        for place, tag in zip(item.begins, item.tags, strict=True)
    )
    torch.testing.assert_close(made.loss(logits, batch), by_hand)


def test_a_word_that_makes_no_piece_keeps_its_tag():
    odd = Tagged(("Ana", "\ue000", "\u200d", "left"), ("B-PER", "O", "O", "O"))
    for kind in ("characters", "bpe:60", "words"):
        made = task(kind)
        [item] = made.items([odd])
        assert len(item.begins) == len(item.tags) == 4
        [said] = made.read(Knows(torch.randn(len(made.source), 4)), [odd.words])
        assert len(said.tags) == 4


def test_what_is_written_can_be_and_is_scored_whole():
    words = {"Ana": "B-PER", "left": "O", "New": "B-LOC", "Oslo": "I-LOC", "Bo": "B-PER", "stays": "O"}
    made = task()
    found = made.evaluate(knowing(made, words), TRAIN)
    assert found["entity_f1"] == found["entity_precision"] == found["accuracy"] == 100.0
    # An I- without its B- is never written, even where the model would rather.
    model = knowing(made, {**words, "New": "I-LOC"})
    [free] = task(valid=False).predict(model, ["Bo New"])
    [valid] = made.predict(model, ["Bo New"])
    assert free.output == "B-PER I-LOC"
    assert valid.output != free.output
    assert "I-LOC" not in valid.output or "B-LOC" in valid.output


def test_parts_of_speech_are_scored_by_word():
    train = [Tagged(("a", "b"), ("NN", "VB")), Tagged(("c",), ("NN",))]
    made = task(labels=("NN", "VB"), train=train)
    assert made.metric == "accuracy"
    assert "entity_f1" not in made.metrics
    found = made.evaluate(knowing(made, {"a": "NN", "b": "NN", "c": "NN"}), train)
    assert found["accuracy"] == pytest.approx(100 * 2 / 3)
    rows = {row["type"]: row for row in made.by_type(knowing(made, {"a": "NN", "b": "NN", "c": "NN"}), train)}
    assert (rows["NN"]["precision"], rows["NN"]["recall"]) == (pytest.approx(100 * 2 / 3), 100.0)
    assert rows["VB"]["f1"] == 0.0


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(3, 12), st.integers(1, 12))
def test_windows_cover_every_word_and_none_is_cut(sizes, window, stride):
    found = word_windows(sizes, window, min(stride, window))
    assert found[0][0] == 0
    assert found[-1][1] == len(sizes)
    for (a, b), (c, d) in itertools.pairwise(found):
        assert a < c <= b < d
    for start, end in found:
        assert sum(sizes[start:end]) <= window or end == start + 1


def test_a_long_sentence_is_read_whole_and_as_it_would_be_in_one_window():
    draw = np.random.default_rng(0)
    words = tuple(draw.choice(["Ana", "left", "New", "Oslo", "Bo", "stays"], 700).tolist())
    long = Tagged(words, tuple("O" for _ in words))
    narrow, wide = task(window=32), task(window=10_000)
    model = Knows(torch.randn(len(wide.source), len(LABELS)))
    assert narrow.read(model, [words])[0].tags == wide.read(model, [words])[0].tags
    found = narrow.evaluate(model, [long])
    assert 90 < found["beyond_limit"] < 100
    assert wide.evaluate(model, [long])["beyond_limit"] == 0.0
    [said] = narrow.predict(model, [" ".join(words)])
    assert len(said.output.split()) == 700


def test_unknown_pieces_are_counted_and_named(tmp_path):
    made = task()
    strange = [Tagged(("Ωmega", "Bo"), ("O", "B-PER"))]
    assert made.unknown_share(strange) == pytest.approx(100 * 3 / 7)
    [said] = made.predict(Knows(torch.randn(len(made.source), 4)), ["Ω Bo"])
    assert said.unknown == ["Ω"]
    assert made.source.encode("Ω") == [UNK]


def test_what_cannot_be_is_said(tmp_path):
    made = task()
    with pytest.raises(UserError, match="sentence 1 has the tag 'B-ORG', which no training sentence has"):
        made.items([Tagged(("a",), ("B-ORG",))])
    with pytest.raises(UserError, match="text 2 of 2 is empty"):
        made.predict(Knows(torch.randn(len(made.source), 4)), ["Ana", "  "])
    with pytest.raises(ValueError, match="window 4"):
        TaggingConfig(window=4)
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        Tagging.load(tmp_path, made.config)


def test_saved_and_loaded_it_is_the_same(tmp_path):
    made = task()
    made.save(tmp_path)
    again = Tagging.load(tmp_path, made.config)
    assert again.labels == made.labels
    assert again.sizes == made.sizes
    assert again.items(TRAIN) == made.items(TRAIN)
