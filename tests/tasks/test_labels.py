"""Labels: their places, how rare ones are weighed, and their file."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from qkv.data.texts import Labelled
from qkv.errors import UserError
from qkv.tasks.labels import Labels, evened


def one(*labels):
    return Labelled("text", labels)


ONE = Labels.of(("ham", "spam", "typo"), [one("ham")] * 6 + [one("spam")] * 3 + [one("typo")], several=False)
SEVERAL = Labels.of(("fun", "new"), [one("new"), one("fun", "new"), one(), one("new")], several=True)


def test_truth_is_the_place_of_the_label_or_which_of_several_hold():
    assert ONE.truth([one("typo"), one("ham")]).tolist() == [2, 0]
    assert SEVERAL.truth([one("new"), one(), one("new", "fun")]).tolist() == [[0, 1], [0, 0], [1, 1]]
    assert SEVERAL.truth([]).shape == (0, 2)


def test_labels_keep_their_names_whatever_they_look_like():
    labels = Labels.of(("-1", "001", "1"), [one("1"), one("-1"), one("001")], several=False)
    assert labels.truth([one("001"), one("-1"), one("1")]).tolist() == [1, 0, 2]


def test_a_label_that_training_has_not_is_refused_with_the_example_and_the_nearest():
    with pytest.raises(UserError, match="example 2 has the label 'spma', .* Did you mean 'spam'.* Labels: ham, spam"):
        ONE.truth([one("ham"), one("spma")])


@pytest.mark.parametrize("labels", [(), ("ham", "spam")])
def test_another_number_of_labels_than_one_is_refused(labels):
    with pytest.raises(UserError, match=f"example 1 has {len(labels)} labels: one is expected"):
        ONE.truth([one(*labels)])


@pytest.mark.parametrize(("names", "several"), [(("ham",), False), ((), False), ((), True)])
def test_where_there_is_nothing_to_tell_apart_training_is_refused(names, several):
    with pytest.raises(UserError, match="all 1 training examples .* nothing to tell apart"):
        Labels.of(names, [one(*names)], several)


def test_the_usual_answer_is_the_most_frequent_one():
    assert ONE.usual == 0
    assert SEVERAL.usual.tolist() == [False, True]  # 1 and 3 of 4


def test_weights_are_those_of_scikit_learn_and_their_mean_over_training_is_1():
    truth = np.repeat([0, 1, 2], [6, 3, 1])
    wanted = compute_class_weight("balanced", classes=np.arange(3), y=truth)
    found = ONE.weights(torch.from_numpy(truth))
    assert found.tolist() == pytest.approx(wanted[truth].tolist())
    assert float(found.mean()) == pytest.approx(1.0)


def test_of_several_labels_presence_and_absence_of_each_weigh_the_same():
    targets = torch.tensor([[0.0, 1], [1, 1], [0, 0], [0, 1]])  # as in training
    found = SEVERAL.weights(targets)
    for column, there in zip(found.T, targets.T, strict=True):
        assert float(column[there > 0].sum()) == pytest.approx(2.0)
        assert float(column[there == 0].sum()) == pytest.approx(2.0)


@pytest.mark.parametrize("truth", [[0] * 7 + [1] * 2 + [3] * 3, [2], []])
def test_evened_examples_have_all_and_each_class_as_often_as_the_largest(truth):
    truth = np.array(truth, dtype=np.int64)
    places = evened(truth)
    assert set(places) == set(range(len(truth)))
    counts = np.bincount(truth[places])
    assert set(counts[counts > 0]) <= {np.bincount(truth).max() if len(truth) else 0}
    repeated = np.bincount(places, minlength=1)
    for one_class in set(truth):
        assert np.ptp(repeated[truth == one_class]) <= 1


@pytest.mark.parametrize("labels", [ONE, SEVERAL])
def test_a_saved_file_makes_the_same_labels(tmp_path, labels):
    labels.save(tmp_path / "labels.json", pairs=True)
    assert Labels.load(tmp_path / "labels.json") == (labels, {"pairs": True})
    assert [path.name for path in tmp_path.iterdir()] == ["labels.json"]


def test_labels_are_written_as_they_are_read(tmp_path):
    labels = Labels.of(("好评", "差评"), [one("好评"), one("差评")], several=False)
    labels.save(tmp_path / "labels.json")
    assert '"好评"' in (tmp_path / "labels.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "damage",
    ["", "[1]", "{}", '{"labels": ["a"], "counts": [1, 2], "examples": 3, "several": false}',
     '{"labels": [1], "counts": [1], "examples": 3, "several": false}',
     '{"labels": ["a"], "counts": ["x"], "examples": 3, "several": false}'],
)  # fmt: skip
def test_a_damaged_file_is_named(tmp_path, damage):
    (tmp_path / "labels.json").write_text(damage, encoding="utf-8")
    with pytest.raises(UserError, match=r"labels.json are damaged"):
        Labels.load(tmp_path / "labels.json")


def test_a_missing_file_and_one_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the labels .*labels.json"):
        Labels.load(tmp_path / "labels.json")
    with pytest.raises(UserError, match=r"cannot write .*labels.json"):
        ONE.save(tmp_path / "nowhere" / "labels.json")
