"""Logistic regression by scikit-learn, its weights given back as arrays.

Letters: N rows, F features, C classes.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any, cast

import numpy as np

logger = logging.getLogger("qkv")


def logistic_regression(
    x: Any, y: np.ndarray, counts: np.ndarray, c: float, n_labels: int
) -> tuple[np.ndarray, np.ndarray]:
    """Weights (F, C) and biases (C,) for classes y (N,) or, where several hold, 0 and 1 (N, C), each by itself.

    x (N, F) is sparse, `counts` (N,) how much each row counts, `c` the inverse strength of the regularisation.
    """
    weight, bias = np.zeros((x.shape[1], n_labels), np.float32), np.zeros(n_labels, np.float32)
    if y.ndim == 1:
        classes, found, at = _fitted(x, y, counts, c)
        if len(classes) == 2:  # scikit-learn keeps the second class's weights alone
            found, at = np.stack([np.zeros_like(found[0]), found[0]]), np.array([0.0, at[0]])
        weight[:, classes], bias[:] = found.T, -1e4  # a class that no example has is never said
        bias[classes] = at
        return weight, bias
    for label in range(n_labels):
        if len(set(y[:, label])) == 1:  # all have it, or none
            bias[label] = 10.0 if y[0, label] else -10.0
            continue
        _, found, at = _fitted(x, y[:, label], counts, c)
        weight[:, label], bias[label] = found[0], at[0]
    return weight, bias


def _fitted(x: Any, y: np.ndarray, weights: np.ndarray, c: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LogisticRegression(C=c, max_iter=1000).fit(x, y, sample_weight=weights)
    if said:
        logger.info("logistic regression stopped before its end: %s", str(said[0].message).splitlines()[0])
    return model.classes_.astype(int), cast(np.ndarray, model.coef_), cast(np.ndarray, model.intercept_)
