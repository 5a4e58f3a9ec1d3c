"""Masked language modelling: what is hidden, what is asked, what is filled in."""

import math

import pytest
import torch
from torch import nn

from qkv.data.symbols import BOS, UNK
from qkv.data.texts import Labelled, Texts
from qkv.errors import UserError
from qkv.tasks.masked_lm import IGNORED, MaskedLM, MaskedLMConfig

LINES = ["the cat sat on the mat", "the dog sat on the log", "a bird sings in the tall tree by the lake"]


def task(kind="spaces", lines=LINES, **settings):
    examples = [Labelled(line, ()) for line in lines]
    data = Texts(examples, examples, examples, "lines", "masked_lm", (), "0")
    return MaskedLM.of(MaskedLMConfig(**settings), data, kind=kind)


class Table(nn.Module):
    """The same answer everywhere."""

    def __init__(self, made):
        super().__init__()
        self.logits = nn.Parameter(torch.randn(len(made.source)))

    def forward(self, tokens, mask=None, segments=None):
        return self.logits.expand(*tokens.shape, -1)


def test_a_share_is_asked_and_of_it_most_is_hidden():
    made = task()
    items = [[BOS, *range(UNK + 1, UNK + 11)] * 1 for _ in range(2000)]
    torch.manual_seed(0)
    batch = made.collate(items)
    asked = batch.targets != IGNORED
    assert asked.sum(1).tolist() == [2] * 2000  # 15 % of 10, rounded
    tokens, true = batch.inputs["tokens"][asked], batch.targets[asked]
    hidden = (tokens == made.mask_id).float().mean()
    kept = (tokens == true).float().mean()
    assert hidden == pytest.approx(0.8, abs=0.03)
    assert kept == pytest.approx(0.1 + 0.1 / (len(made.source) - UNK - 1), abs=0.03)
    assert not asked[:, 0].any()
    places = asked.float().mean(0)[1:]
    assert places.min() > 0.15
    assert places.max() < 0.25
    assert batch.n_targets == 4000


def test_what_is_not_asked_is_as_it_was_and_one_token_at_least_is_asked():
    made = task()
    items = made.items([Labelled("the cat", ()), Labelled("the", ())])
    batch = made.collate(items)
    assert ((batch.targets != IGNORED).sum(1) == 1).all()
    same = batch.targets == IGNORED
    shown = batch.inputs["tokens"]
    assert shown[0][same[0]].tolist() == [t for t, s in zip(items[0], same[0].tolist(), strict=True) if s]


def test_sub_words_of_a_word_go_together():
    made = task("bpe:40", whole_word=True, share=0.3)
    items = made.items([Labelled(line, ()) for line in LINES])
    for _ in range(20):
        batch = made.collate(items)
        for row, item in enumerate(items):
            asked = (batch.targets[row] != IGNORED).tolist()
            names = made.source.decode(item, controls=True)
            for place in range(2, len(item)):
                if not names[place].startswith("▁"):
                    assert asked[place] == asked[place - 1]


def test_long_lines_are_in_windows_and_nothing_is_lost():
    made = task(window=4)
    items = made.items([Labelled(LINES[2], ())])
    assert [len(item) for item in items] == [4, 4, 4, 2]
    assert [i for item in items for i in item[1:]] == made.source.encode(LINES[2])


def test_figures_are_those_of_a_known_model_and_the_same_each_time():
    made = task()
    model, examples = Table(made), [Labelled(line, ()) for line in LINES * 5]
    first, again = made.evaluate(model, examples), made.evaluate(model, examples)
    assert first == again
    assert first["unknown"] == 0.0
    assert first["perplexity"] > 1.0
    uniform = Table(made)
    uniform.logits.data.zero_()
    assert made.evaluate(uniform, examples)["perplexity"] == pytest.approx(len(made.source))
    batch = made.collate(made.items(examples))
    asked = batch.targets != IGNORED
    by_hand = -model.logits.log_softmax(0)[batch.targets[asked]].sum()
    torch.testing.assert_close(made.loss(model(**batch.inputs), batch), by_hand)


def test_evaluation_leaves_the_random_numbers_of_training_alone():
    made = task()
    model = Table(made)
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    made.evaluate(model, [Labelled(LINES[0], ())])
    assert torch.equal(torch.rand(3), expected)


def test_marks_are_filled_in():
    made = task()
    model = Table(made)
    [found] = made.predict(model, ["the [MASK] sat on the [MASK]"])
    best = made.source.text([int(model.logits[UNK + 1 :].argmax()) + UNK + 1])
    assert found.output == f"the {best} sat on the {best}"
    assert found.n_best[0][0] == found.output
    assert len(found.n_best) == 5
    assert found.probabilities == sorted(found.probabilities, reverse=True)
    assert math.isclose(found.score, found.probabilities[0])
    for texts, message in (
        (["the cat"], r"text 1 of 1 has no \[MASK\]"),
        (["[MASK] " * 200], "has 200 tokens; this run reads"),
    ):
        with pytest.raises(UserError, match=message):
            made.predict(model, texts)


def test_saved_and_loaded_it_is_the_same(tmp_path):
    made = task("bpe:40")
    made.save(tmp_path)
    again = MaskedLM.load(tmp_path, made.config)
    assert (
        again.sizes == made.sizes == {"n_tokens": len(made.source) + 1, "n_labels": len(made.source), "n_segments": 1}
    )
    assert again.mask_id == made.mask_id


@pytest.mark.parametrize("settings", [{"share": 0.0}, {"hidden": 0.9, "replaced": 0.2}, {"window": 1}])
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        MaskedLMConfig(**settings)
