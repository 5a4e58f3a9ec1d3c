"""Classification: figures, answers of several labels, calibrated probabilities, of models whose answers are known."""

import random
import weakref

import pytest
import torch
from torch import nn

from qkv.data.texts import Labelled, Texts
from qkv.tasks.classification import Classification, ClassificationConfig
from qkv.tasks.metrics import METRICS

ONE = [
    *[Labelled("great film", ("good",))] * 5,
    *[Labelled("awful so dull", ("bad",))] * 3,
    Labelled("queer", ("odd",)),
]
SEVERAL = [
    *[Labelled("great film", ("good", "long"))] * 3,
    Labelled("awful so dull", ("bad",)),
    Labelled("so", ("odd",)),
]


def task_of(train=ONE, **changes):
    labels = tuple(sorted({label for example in train for label in example.labels}))
    data = Texts(train, [], [], "invented", "classification", labels, "0", several=train is SEVERAL)
    return Classification.of(ClassificationConfig(**changes), data, kind="spaces")


class Fixed(nn.Module):
    """Gives each row the logits of the last word in it that `says` knows, else `otherwise`."""

    def __init__(self, task, says, otherwise):
        super().__init__()
        self.anchor = nn.Parameter(torch.zeros(()))
        self.says = {task.source.encode(word)[0]: logits for word, logits in says.items()}
        self.otherwise = otherwise

    def forward(self, tokens, mask, segments=None):
        rows = [[self.says[i] for i in row if i in self.says] or [self.otherwise] for row in tokens.tolist()]
        return torch.tensor([row[-1] for row in rows])


def test_of_several_labels_all_above_the_threshold_are_said_and_perhaps_none():
    task = task_of(SEVERAL, threshold=0.6)
    assert task.labels == ("bad", "good", "long", "odd")
    model = Fixed(task, {"great": [-3.0, 2.0, 3.0, 0.2], "dull": [0.3, -1.0, -1.0, -2.0]}, [0.0] * 4)
    both, none = task.predict(model, ["great", "dull"])
    assert (both.output, none.output) == ("good | long", "")
    held = torch.tensor([3.0, 2, -0.2, 3]).sigmoid()  # of what was decided, of each label
    assert both.n_best[0] == (both.output, both.score) == ("good | long", pytest.approx(float(held.prod())))
    assert [label for label, _ in both.n_best[1:]] == ["long", "good", "odd", "bad"]
    assert dict(both.n_best[1:])["odd"] == pytest.approx(float(torch.tensor(0.2).sigmoid()))


def keyword_model(task):
    return Fixed(task, {"great": [0.0, 3.0, 0.0], "awful": [2.0, 0.0, 0.0], "queer": [0.0, 1.0, 0.0]}, [0.0, 1.0, 0.0])


ASKED = [
    Labelled("great film", ("good",)), Labelled("awful film", ("bad",)), Labelled("queer", ("odd",)),
    Labelled("zany great", ("good",)), Labelled("great", ("bad",)),
]  # fmt: skip


def test_figures_are_what_the_definitions_say():
    task = task_of(window=8)
    found = task.evaluate(keyword_model(task), ASKED)
    assert found["accuracy"] == pytest.approx(60.0)
    # good: 2 of 4 said; bad: 1 said of 2; odd: never said.
    assert found["macro_f1"] == pytest.approx(100 * (2 * 2 / (4 + 2) + 2 * 1 / (1 + 2) + 0) / 3)
    assert task.labels[task.classes.usual] == "good"
    assert found["majority"] == pytest.approx(40.0)
    assert found["unknown"] == pytest.approx(100 / 8) == task.unknown_share(ASKED)
    assert found["beyond_limit"] == 0.0
    assert set(found) | {"loss"} == {*task.metrics, "ece", "majority", "unknown", "beyond_limit", "loss"}
    assert set(found) <= set(METRICS)
    assert task.metric == "macro_f1"


def test_of_several_labels_accuracy_is_of_all_of_them_and_micro_f1_of_each():
    task = task_of(SEVERAL)
    asked = [Labelled("great", ("good", "long")), Labelled("dull", ("bad",)), Labelled("film", ())]
    model = Fixed(task, {"great": [-3.0, 2.0, 3.0, -3.0], "dull": [3.0, -3, 3, -3]}, [-3.0] * 4)
    found = task.evaluate(model, asked)
    assert found["accuracy"] == pytest.approx(200 / 3)
    assert found["micro_f1"] == pytest.approx(100 * 2 * 3 / (4 + 3))
    assert found["majority"] == pytest.approx(100 / 3)  # good and long, which more than half of training has
    assert task.metric == "micro_f1"
    assert "micro_f1" in task.metrics


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_tokens_beyond_one_window_are_counted_and_only_first_leaves_them_out(pool):
    task = task_of(window=16, pool=pool)
    long = Labelled("the film was so " * 10 + "awful", ("bad",))
    model = Fixed(task, {"awful": [99.0, 0.0, 0.0]}, [0.0, 1.0, 0.0])
    found = task.evaluate(model, [long])
    assert found["beyond_limit"] == pytest.approx(100 * (41 - 15) / 41)
    assert found["accuracy"] == (100.0 if pool == "mean" else 0.0)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_several_processes_give_the_figures_of_one(count):
    task = task_of(window=8)
    model, examples = keyword_model(task), ASKED * 3

    def divide(work, items):
        parts = [work(items[rank::count]) for rank in range(count)]
        return [parts[place % count][place // count] for place in range(len(items))]

    assert task.evaluate(model, examples, divide=divide) == pytest.approx(task.evaluate(model, examples))


def test_evaluation_keeps_no_logits_of_earlier_batches():
    task, alive, most = task_of(window=8), [], []

    class Watched(Fixed):
        def forward(self, tokens, mask, segments=None):
            most.append(sum(one() is not None for one in alive))
            logits = super().forward(tokens, mask, segments)
            alive.append(weakref.ref(logits))
            return logits

    task.evaluate(Watched(task, {}, [0.0, 1.0, 0.0]), [Labelled("film " * 400, ("bad",))] * 40)
    assert len(most) > 5
    assert max(most) <= 1


def test_calibration_sets_probabilities_right_and_changes_no_answer(tmp_path):
    task, draw = task_of(), random.Random(1)
    # Sure of "good" where that is right in two of three.
    asked = [Labelled("great", (draw.choice(("good", "good", "bad")),)) for _ in range(300)]
    model = Fixed(task, {"great": [0.0, 9.0, 0.0]}, [0.0, 1.0, 0.0])
    (sure,), figures = task.predict(model, ["great"]), task.evaluate(model, asked)
    before, after = task.calibrate(model, asked)
    (calibrated,), again = task.predict(model, ["great"]), task.evaluate(model, asked)
    assert (before, after) == (pytest.approx(figures["ece"]), pytest.approx(again["ece"]))
    assert after < 5 < before
    assert task.temperature > 1
    assert calibrated.output == sure.output
    assert sure.score > 0.99
    assert calibrated.score == pytest.approx(figures["accuracy"] / 100, abs=0.05)
    assert again["accuracy"] == figures["accuracy"]
    task.save(tmp_path)
    assert Classification.load(tmp_path, task.config).predict(model, ["great"]) == [calibrated]


def test_the_threshold_of_several_labels_is_not_moved_by_the_temperature():
    task = task_of(SEVERAL, threshold=0.7)
    model = Fixed(task, {"great": [0.9, 2.0, 0.8, -1.0]}, [0.0] * 4)
    before = task.predict(model, ["great"])[0].output
    task.temperature = 4.0
    assert task.predict(model, ["great"])[0].output == before == "bad | good"
