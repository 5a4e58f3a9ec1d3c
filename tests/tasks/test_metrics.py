"""Edit-distance metrics, against a Levenshtein distance written out in full."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.tasks.metrics import error_rates

SYMBOLS = ("AA", "B", "CH", "D")
sequences = st.lists(st.sampled_from(SYMBOLS), max_size=7)
references = st.lists(st.lists(st.sampled_from(SYMBOLS), min_size=1, max_size=7), min_size=1, max_size=4)


def distance(a, b):
    """Wagner and Fischer 1974, the whole table."""
    table = [[i + j if not i * j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            replaced = table[i - 1][j - 1] + (a[i - 1] != b[j - 1])
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, replaced)
    return table[-1][-1]


@given(st.lists(st.tuples(sequences, references), min_size=1, max_size=6))
def test_wer_and_per_are_what_the_definition_says(rows):
    outputs, several = zip(*rows, strict=True)
    wrong = sum(output not in refs for output, refs in rows)
    nearest = [min(refs, key=lambda ref: (distance(output, ref), -len(ref))) for output, refs in rows]
    edits = sum(distance(output, ref) for output, ref in zip(outputs, nearest, strict=True))
    assert error_rates(outputs, several) == pytest.approx(
        {"wer": 100 * wrong / len(rows), "per": 100 * edits / sum(map(len, nearest))}
    )


def test_per_is_summed_over_all_outputs_and_is_no_mean_of_rates():
    found = error_rates([["A"], ["A"] * 9], [[["B"]], [["A"] * 9]])
    assert found == {"wer": 50.0, "per": 10.0}


def test_any_reference_will_do_and_the_nearest_one_is_counted():
    several = [[["A", "B", "C", "D"], ["X", "Y"], ["A", "B"]]]
    assert error_rates([["A", "B"]], several) == {"wer": 0.0, "per": 0.0}
    assert error_rates([["X"]], several) == {"wer": 100.0, "per": 50.0}
    assert error_rates([[]], [[["A", "B"]]]) == {"wer": 100.0, "per": 100.0}


def test_between_equally_near_references_the_longest_counts_whatever_their_order():
    several = [["A", "B"], ["A", "B", "C", "D"]]  # both one edit from A B C
    for refs in (several, several[::-1]):
        assert error_rates([["A", "B", "C"]], [refs]) == {"wer": 100.0, "per": 25.0}


def test_outputs_longer_than_their_references_may_exceed_100_percent():
    assert error_rates([["A"] * 5], [[["B"]]])["per"] == 500.0


def test_a_symbol_is_one_symbol_however_it_is_spelled():
    # As text "AA B" and "A AB" are two edits apart; as symbols both differ.
    assert error_rates([["AA", "B"]], [[["A", "AB"]]])["per"] == 100.0
    assert error_rates([("B", "AA")], [[["B", "AA"]]])["wer"] == 0.0


def test_the_order_of_the_rows_makes_no_difference():
    rows = [([random.choice(SYMBOLS) for _ in range(5)], [[random.choice(SYMBOLS)] * 4]) for _ in range(20)]
    mixed = random.sample(rows, len(rows))
    assert error_rates(*zip(*rows, strict=True)) == error_rates(*zip(*mixed, strict=True))


@pytest.mark.parametrize(
    ("outputs", "several", "message"),
    [
        ([["A"]], [[["A"]], [["B"]]], "1 outputs and 2 sets of references"),
        ([], [], "at least one output"),
        ([["A"], ["B"]], [[["A"]], []], "at least one reference for each"),
    ],
)
def test_what_cannot_be_scored_is_refused(outputs, several, message):
    with pytest.raises(ValueError, match=message):
        error_rates(outputs, several)
