"""Compact columns: what goes in comes out, and items are what the lists were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.compact import Examples, Ids, Items, Texts, columns
from qkv.data.pairs import Example

TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # halves of character pairs too
EXAMPLES = st.lists(st.builds(Example, TEXT, st.lists(TEXT, min_size=1, max_size=3).map(tuple)), max_size=12)


@given(st.lists(TEXT), st.lists(st.lists(st.integers(0, 2**31 - 1))))
def test_texts_and_ids_come_out_as_they_went_in(texts, rows):
    assert list(Texts.of(texts)) == texts
    assert list(Ids.of(rows)) == rows
    assert Ids.of(rows).lengths.tolist() == list(map(len, rows))


@given(st.lists(TEXT), st.lists(TEXT))
def test_two_columns_have_one_digest_when_they_are_equal(one, other):
    assert (Texts.of(one).digest == Texts.of(other).digest) == (one == other)


@given(EXAMPLES, st.slices(12))
def test_examples_are_a_sequence_like_the_list(examples, part):
    compact = Examples.of(examples)
    assert list(compact) == examples
    assert compact[part] == examples[part]
    assert list(Examples.from_arrays(compact.arrays())) == examples
    if examples:
        assert compact[-1] == examples[-1]
    with pytest.raises(IndexError):
        compact[len(examples)]


@given(EXAMPLES)
def test_columns_are_the_same_of_a_list_and_of_compact_examples(examples):
    (sources, targets, counts), compact = columns(examples), columns(Examples.of(examples))
    assert (list(compact[0]), list(compact[1]), compact[2].tolist()) == (sources, targets, counts.tolist())
    assert sources == [e.source for e in examples]
    assert targets == [t for e in examples for t in e.targets]


def test_a_million_rows_take_little_more_than_their_content():
    rows = Ids.of([7, 8] for _ in range(1_000_000))
    assert sum(array.nbytes for array in rows.arrays().values()) == 4 * 2_000_000 + 8 * 1_000_001


@pytest.mark.parametrize(
    ("variants", "wanted"),
    [
        ("all", [([4], [5]), ([4], [6, 6]), ([8, 9], [7])]),
        ("first", [([4], [5]), ([8, 9], [7])]),
        ("weighted", [([4], [5], 0.5), ([4], [6, 6], 0.5), ([8, 9], [7], 1.0)]),
    ],
)
def test_items_by_what_is_done_with_several_targets(variants, wanted):
    items = Items(Ids.of([[4], [8, 9]]), Ids.of([[5], [6, 6], [7]]), np.array([2, 1]), variants)
    assert list(items) == wanted
    assert items[1:] == wanted[1:]
    assert items.lengths.tolist() == [[len(item[0]), len(item[1])] for item in wanted]
