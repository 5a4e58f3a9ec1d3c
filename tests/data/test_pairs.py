"""The fingerprint of data: the same for the same content and options, another one for any change."""

import hashlib

import pytest

from qkv.data.pairs import Example, Pairs, SymbolKind, fingerprint, spread


def word(text, *targets):
    return Example(text, targets)


SPLITS = {"train": [word("ab", "A B", "A")], "dev": [word("a", "A")], "test": []}


def test_the_fingerprint_is_stable():
    assert fingerprint(SPLITS, {"stress": False}) == fingerprint(dict(SPLITS), {"stress": False})
    # Written out, since run folders keep it: it must not change between versions unnoticed.
    written = b'{"stress": true}"train"\n["ab"]\n[["A", "B C"]]\n'
    expected = hashlib.sha256(written).hexdigest()
    assert fingerprint({"train": [word("ab", "A", "B C")]}, {"stress": True}) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {**SPLITS, "train": [word("ab", "A", "A B")]},
        {**SPLITS, "train": [word("ab", "A B A")]},
        {**SPLITS, "dev": [word("b", "A")]},
        {**SPLITS, "dev": [], "test": [word("a", "A")]},
        {**SPLITS, "train": []},
    ],
)
def test_any_change_of_the_content_changes_it(changed):
    assert fingerprint(changed, {"stress": False}) != fingerprint(SPLITS, {"stress": False})


def test_options_change_it():
    assert fingerprint(SPLITS, {"stress": True}) != fingerprint(SPLITS, {"stress": False})


def test_splits_by_name():
    pairs = Pairs(
        **SPLITS,
        name="toy",
        source_symbols=SymbolKind(),
        target_symbols=SymbolKind("spaces"),
        notes=[],
        fingerprint="0",
    )
    assert pairs.splits == SPLITS
    assert list(pairs.splits) == ["train", "dev", "test"]


def test_examples_are_spread_over_a_sorted_split():
    assert spread(range(10), 20) == list(range(10))
    assert spread(range(10), 5) == [0, 2, 4, 6, 8]
    assert len(set(spread(range(6344), 2000))) == 2000
