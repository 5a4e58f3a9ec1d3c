"""Masked language modelling: what is hidden, what is asked, what is filled in."""

import math
import re

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


class Bigram(nn.Module):
    """Answers by the token at a place and the one before it."""

    def __init__(self, made):
        super().__init__()
        count = len(made.source)
        self.here, self.before = nn.Embedding(count + 1, count), nn.Embedding(count + 1, count)

    def forward(self, tokens, mask=None, segments=None):
        return self.here(tokens) + self.before(torch.roll(tokens, 1, 1))


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


@pytest.mark.parametrize("kind", ["spaces", "bpe:40"])
def test_what_is_asked_in_evaluation_follows_from_the_text_alone(kind):
    made, examples = task(kind, window=6), [Labelled(line, ()) for line in LINES * 3]
    model = Bigram(made)
    assert made.evaluate(model, examples[::-1]) == pytest.approx(made.evaluate(model, examples))
    alone, together = (made._collated_to_score(made.items(some)) for some in (examples[1:2], examples))
    rows, width = alone.targets.shape
    first = len(made.items(examples[:1]))
    for small, large in ((alone.inputs["tokens"], together.inputs["tokens"]), (alone.targets, together.targets)):
        assert torch.equal(small, large[first : first + rows, :width])
    assert (alone.targets != IGNORED).any(1).all()


def test_progress_counts_texts_and_not_windows():
    made, told = task(window=3), []
    made.evaluate(Table(made), [Labelled(line, ()) for line in LINES], advance=told.append)
    assert sum(told) == len(LINES)


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
    assert len({answer for answer, _ in found.n_best}) == 5
    assert all(answer.startswith("the ") and answer.endswith(f"sat on the {best}") for answer, _ in found.n_best)
    assert found.probabilities == sorted(found.probabilities, reverse=True)
    assert math.isclose(found.score, found.probabilities[0])
    for texts, message in (
        (["the cat"], r"text 1 of 1 has no \[MASK\]"),
        (["[MASK] " * 200], "has 200 tokens; this run reads"),
    ):
        with pytest.raises(UserError, match=message):
            made.predict(model, texts)


@pytest.mark.parametrize("kind", ["spaces", "words", "characters", "bpe:60", "unigram:60"])
def test_the_rest_of_a_text_stays_as_it_was_typed(kind):
    made = task(kind)
    text = "The  CAT [MASK] on\tthe quokka[MASK]."
    [found] = made.predict(Table(made), [text])
    assert re.fullmatch(r"The  CAT .+ on\tthe quokka.+\.", found.output)
    assert found.text == text
    assert found.unknown
    assert made.predict(Table(made), ["the cat [MASK]"])[0].unknown == []


def test_texts_of_a_batch_are_answered_as_each_alone():
    made = task("bpe:60")
    model = Bigram(made)
    texts = ["the [MASK]", "[MASK] sat on the [MASK] mat", "a bird [MASK] in the tall [MASK]", "the [MASK]"]
    together = made.predict(model, texts)
    for text, one in zip(texts, together, strict=True):
        [alone] = made.predict(model, [text])
        assert (one.text, one.output) == (text, alone.output)
        assert one.probabilities == pytest.approx(alone.probabilities)


@pytest.mark.parametrize(
    ("text", "begin"), [("the [MASK]", "\u2581"), ("[MASK] cat", "\u2581"), ("the ca[MASK]", ""), ("ca[MASK] sat", "")]
)
def test_sub_words_are_offered_as_the_text_asks_for_them(text, begin):
    made = task("bpe:60")
    [found] = made.predict(Table(made), [text])
    before, after = text.split("[MASK]")
    for answer, _ in found.n_best:
        said = answer.removeprefix(before).removesuffix(after)
        assert said
        assert f"{begin}{said}" in made.source


def test_what_stands_behind_a_mark_goes_on_with_the_word_unless_a_blank_is_between():
    made = task("bpe:24", lines=["the cat sat.", "the dog ran.", "a bird sings."])
    ids = {name: i for i, name in enumerate(made.source.decode(range(len(made.source)), controls=True))}
    assert made._marked("the [MASK].", "")[-2:] == [made.mask_id, ids["."]]
    assert made._marked("[MASK] . [MASK][MASK]", "")[1:] == [
        made.mask_id, ids["\u2581"], ids["."], made.mask_id, made.mask_id
    ]  # fmt: skip
    assert made._marked("\t[MASK]o", "") == [BOS, made.mask_id, ids["o"]]


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
