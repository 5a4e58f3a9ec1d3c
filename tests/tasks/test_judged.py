"""Figures of a classifier, against scikit-learn and the definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax
from sklearn import metrics as reference

from qkv.tasks.judged import COOLEST, HOTTEST, Judged, temperature

LABELS = ("a", "b", "c", "d")
seeds = st.integers(0, 2**32 - 1)


def drawn(seed, several, n_classes=4):
    """Few examples, so that classes are often absent; answers are right more often than not."""
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 15))
    truth = random.integers(n_classes, size=n)
    scores = random.normal(size=(n, n_classes)) + np.eye(n_classes)[truth]
    if several:
        truth = random.random((n, n_classes)) < 0.3
        return Judged.of(LABELS[:n_classes], expit(scores - 1 + 2 * truth), truth)
    return Judged.of(LABELS[:n_classes], np.exp(log_softmax(scores, 1)), truth)


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
@given(seed=seeds)
def test_figures_are_those_of_scikit_learn(several, seed):
    judged = drawn(seed, several)
    truth, answers = judged.truth, judged.answers
    assert judged.accuracy == pytest.approx(100 * reference.accuracy_score(truth, answers))
    named = [c for c in range(4) if (truth[:, c] | answers[:, c]).any()] if several else None
    wanted = reference.f1_score(truth, answers, average="macro", labels=named, zero_division=0) if named != [] else 0.0
    assert judged.macro_f1 == pytest.approx(100 * wanted)
    assert judged.micro_f1 == pytest.approx(100 * reference.f1_score(truth, answers, average="micro", zero_division=0))
    columns = reference.precision_recall_fscore_support(truth, answers, labels=range(4), zero_division=0)
    rows = judged.per_class()
    assert [row["label"] for row in rows] == list(LABELS)
    for name, column in zip(("precision", "recall", "f1"), columns[:3], strict=True):
        assert [row[name] for row in rows] == pytest.approx(100 * column)
    assert [row["support"] for row in rows] == columns[3].tolist()
    said = answers.sum(0) if several else np.bincount(answers, minlength=4)
    assert [row["predicted"] for row in rows] == said.tolist()


@given(seed=seeds)
def test_confusion_is_that_of_scikit_learn(seed):
    judged = drawn(seed, several=False)
    wanted = reference.confusion_matrix(judged.truth, judged.answers, labels=range(4))
    assert judged.confusion().tolist() == wanted.tolist()


def test_several_labels_have_no_confusion_table():
    with pytest.raises(ValueError, match="per_class"):
        drawn(0, several=True).confusion()


def test_a_class_that_is_absent_and_never_said_is_left_out_of_macro_f1():
    two = Judged.of(("a", "b"), np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 1]))
    three = Judged.of(("a", "b", "c"), np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]), np.array([0, 1]))
    assert two.macro_f1 == three.macro_f1 == 100.0
    said = Judged.of(("a", "b", "c"), np.array([[0.9, 0.1, 0.0], [0.2, 0.0, 0.8]]), np.array([0, 1]))
    assert said.macro_f1 == pytest.approx(100 / 3)


def test_no_label_anywhere_gives_0_and_no_warning():
    judged = Judged.of(("a", "b"), np.full((3, 2), 0.1), np.zeros((3, 2), bool))
    assert (judged.accuracy, judged.micro_f1, judged.macro_f1) == (100.0, 0.0, 0.0)


def ece_by_loop(confidence, right, bins):
    """Guo et al. 2017, equation 3, bin by bin."""
    total = 0.0
    for one in range(bins):
        inside = (confidence > one / bins) & (confidence <= (one + 1) / bins)
        if one == 0:
            inside |= confidence == 0
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return 100 * total


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
@given(seed=seeds, bins=st.integers(1, 20))
def test_calibration_error_is_the_formula(several, seed, bins):
    judged = drawn(seed, several)
    if several:
        confidence, right = judged.probabilities.ravel(), judged.truth.ravel()
    else:
        confidence, right = judged.probabilities.max(1), judged.answers == judged.truth
    assert judged.ece(bins) == pytest.approx(ece_by_loop(confidence, right, bins), abs=1e-6)


def test_calibration_error_of_probabilities_0_and_1():
    sure = Judged.of(("a", "b"), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 1, 1, 1]))
    assert sure.ece() == pytest.approx(25.0)


def test_the_most_wrong_are_wrong_and_the_surest_first():
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.05, 0.95], [0.2, 0.8]])
    judged = Judged.of(("a", "b"), probabilities, np.array([0, 1, 0, 1, 0]))
    assert judged.most_wrong() == [4, 2, 1]
    assert judged.most_wrong(2) == [4, 2]


def test_of_several_labels_the_surest_wrong_decision_counts_said_or_left_out():
    probabilities = np.array([[0.9, 0.1], [0.99, 0.01], [0.6, 0.4]])
    judged = Judged.of(("a", "b"), probabilities, np.array([[1, 0], [1, 1], [0, 0]], dtype=bool))
    assert judged.most_wrong() == [1, 2]  # "b" of example 1 was ruled out with 0.99


def test_the_threshold_decides_which_labels_are_said():
    probabilities, truth = np.array([[0.4, 0.7]]), np.array([[True, True]])
    assert Judged.of(("a", "b"), probabilities, truth).answers.tolist() == [[False, True]]
    assert Judged.of(("a", "b"), probabilities, truth, threshold=0.3).accuracy == 100.0


@pytest.mark.parametrize(
    ("labels", "probabilities", "truth", "said"),
    [
        (("a", "b"), np.zeros((0, 2)), np.zeros(0, int), "no example"),
        (("a",), np.zeros((3, 2)), np.zeros(3, int), "1 labels, probabilities \\(3, 2\\)"),
        (("a", "b"), np.zeros((3, 2)), np.zeros(4, int), "truth \\(4,\\)"),
    ],
)
def test_what_does_not_go_together_is_refused(labels, probabilities, truth, said):
    with pytest.raises(ValueError, match=said):
        Judged.of(labels, probabilities, truth)


def nll(scores, truth):
    if truth.ndim == 2:
        return -np.log(np.where(truth, expit(scores), expit(-scores))).mean()
    return -log_softmax(scores, 1)[np.arange(len(truth)), truth].mean()


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
@pytest.mark.parametrize("sharpened", [0.4, 1.0, 3.0])
def test_the_temperature_is_where_the_likelihood_is_highest(several, sharpened):
    random = np.random.default_rng(0)
    scores = random.normal(size=(3000, 4)) * 2
    if several:
        truth = random.random((3000, 4)) < expit(scores)
    else:
        truth = (scores + random.gumbel(size=scores.shape)).argmax(1)  # a draw from the softmax of the scores
    found = temperature(sharpened * scores, truth)
    wanted = minimize_scalar(
        lambda t: nll(sharpened * scores / t, truth),
        bounds=(COOLEST, HOTTEST),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert found == pytest.approx(wanted.x, rel=1e-3)
    assert found == pytest.approx(sharpened, rel=0.1)  # what the draw was made with


def test_examples_without_a_mistake_ask_for_the_coolest_and_all_wrong_for_the_hottest():
    scores = np.array([[3.0, 0.0], [0.0, 2.0]])
    assert temperature(scores, np.array([0, 1])) == pytest.approx(COOLEST)
    assert temperature(scores, np.array([1, 0])) == pytest.approx(HOTTEST)
