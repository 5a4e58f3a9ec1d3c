"""What `qkv eval` computes beyond the task's own metrics."""

import pytest

from qkv.errors import UserError
from qkv.experiments.evaluate import evaluate, wilson


@pytest.mark.parametrize(
    ("wrong", "count", "low", "high"),
    [
        # Newcombe (1998), table I, method 3 (score, no continuity correction)
        (81, 263, 25.53, 36.62),
        (15, 148, 6.24, 16.05),
        (0, 20, 0.0, 16.11),
        (1, 29, 0.61, 17.18),
    ],
)
def test_the_interval_is_wilson_s(wrong, count, low, high):
    assert wilson(wrong, count) == pytest.approx((low, high), abs=0.01)
    mirrored = wilson(count - wrong, count)
    assert mirrored == pytest.approx((100 - high, 100 - low), abs=0.01)
    assert 0.0 <= mirrored[0] <= mirrored[1] <= 100.0


def test_nothing_to_evaluate_on_is_refused():
    with pytest.raises(UserError, match="no example to evaluate on"):
        evaluate(None, [])
