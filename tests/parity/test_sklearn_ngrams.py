"""The n-gram baseline against the same pipeline of scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from qkv.data.batches import pad
from qkv.models.ngrams import NGramsConfig, build_pooled
from qkv.tasks.batch import Batch


def texts(count, classes):
    draw = np.random.default_rng(0)
    rows, labels = [], []
    for n in range(count):
        label = n % classes
        words = draw.choice(np.arange(4, 30), draw.integers(1, 12)).tolist() + [4 + label] * int(draw.integers(0, 3))
        rows.append([1, *words])
        labels.append(label)
    return rows, labels


def batches(rows, targets):
    for start in range(0, len(rows), 16):
        tokens, mask = pad(rows[start : start + 16])
        part = targets[start : start + 16]
        yield Batch({"tokens": tokens, "mask": mask}, part, len(part), int(mask.sum()))


def pipeline(classifier, n):
    words = CountVectorizer(analyzer="word", token_pattern=r"\d+", ngram_range=(1, n), lowercase=False)
    return make_pipeline(words, TfidfTransformer(sublinear_tf=True), classifier)


def written(rows):
    return [" ".join(map(str, row[1:])) for row in rows]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_probabilities_are_scikit_learns(classes, n):
    rows, labels = texts(120, classes)
    model = build_pooled(NGramsConfig(n=n, c=3.0), 40, classes)
    model.fit(batches(rows, torch.tensor(labels)))
    theirs = pipeline(LogisticRegression(C=3.0, max_iter=1000, tol=1e-6), n).fit(written(rows), labels)
    others, _ = texts(30, classes)
    others = [[1, *row[1:], 35, 36] for row in others]  # tokens that training has not
    tokens, mask = pad(others)
    found = model(tokens, mask).log_softmax(1).exp().detach().numpy()
    np.testing.assert_allclose(found, theirs.predict_proba(written(others)), atol=2e-3)
    assert (found.argmax(1) == theirs.predict(written(others))).mean() > 0.99


def test_several_labels_are_one_against_the_rest():
    rows, labels = texts(120, 3)
    targets = np.zeros((120, 4))
    targets[np.arange(120), labels] = 1
    targets[::2, 2] = 1
    targets[:, 3] = 1  # all have it
    model = build_pooled(NGramsConfig(c=3.0), 40, 4)
    model.fit(batches(rows, torch.tensor(targets).float()))
    theirs = pipeline(OneVsRestClassifier(LogisticRegression(C=3.0, max_iter=1000, tol=1e-6)), 2)
    theirs.fit(written(rows), targets[:, :3].astype(int))
    tokens, mask = pad(rows)
    found = model(tokens, mask).sigmoid().detach().numpy()
    np.testing.assert_allclose(found[:, :3], theirs.predict_proba(written(rows)), atol=2e-3)
    assert (found[:, 3] > 0.99).all()


def test_rows_count_by_their_weights():
    rows, labels = texts(60, 2)
    weights = torch.tensor([1.0, 0.25] * 30)
    model = build_pooled(NGramsConfig(c=3.0), 40, 2)
    tokens, mask = pad(rows)
    model.fit([Batch({"tokens": tokens, "mask": mask}, torch.tensor(labels), 60, 0, weights)])
    theirs = pipeline(LogisticRegression(C=3.0, max_iter=1000, tol=1e-6), 2)
    theirs.fit(written(rows), labels, logisticregression__sample_weight=weights.numpy())
    found = model(tokens, mask).log_softmax(1).exp().detach().numpy()
    np.testing.assert_allclose(found, theirs.predict_proba(written(rows)), atol=2e-3)


@pytest.mark.parametrize("classes", [2, 4])
def test_with_the_same_tolerance_of_the_solver_probabilities_agree_to_five_places(classes):
    rows, labels = texts(120, classes)
    model = build_pooled(NGramsConfig(n=2, c=3.0), 40, classes)
    model.fit(batches(rows, torch.tensor(labels)))
    theirs = pipeline(LogisticRegression(C=3.0, max_iter=1000), 2).fit(written(rows), labels)
    tokens, mask = pad(rows)
    found = model(tokens, mask).softmax(1).detach().numpy()
    np.testing.assert_allclose(found, theirs.predict_proba(written(rows)), atol=1e-5)


def test_with_the_same_tolerance_several_labels_agree_to_five_places():
    rows, labels = texts(120, 3)
    targets = np.zeros((120, 3), int)
    targets[np.arange(120), labels] = 1
    targets[::2, 2] = 1
    model = build_pooled(NGramsConfig(c=3.0), 40, 3)
    model.fit(batches(rows, torch.tensor(targets).float()))
    theirs = pipeline(OneVsRestClassifier(LogisticRegression(C=3.0, max_iter=1000)), 2).fit(written(rows), targets)
    tokens, mask = pad(rows)
    found = model(tokens, mask).sigmoid().detach().numpy()
    np.testing.assert_allclose(found, theirs.predict_proba(written(rows)), atol=1e-5)
