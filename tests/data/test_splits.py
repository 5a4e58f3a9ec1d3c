"""Splits: labels in their shares, groups whole, time in order, near-duplicates on one side."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data import splits

SHARES = (0.8, 0.1, 0.1)


def test_near_duplicates_have_one_key():
    assert splits.near_key("The film, 12 times!") == splits.near_key("the FILM (3) times")
    assert splits.near_key("café") != splits.near_key("cafe")
    assert splits.near_key("12:30") == "12:30"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40))
def test_rows_that_share_a_key_of_either_kind_are_joined(rows):
    found = splits.joined([a for a, _ in rows], [b for _, b in rows])
    for i, (a, b) in enumerate(rows):
        for j, (c, d) in enumerate(rows):
            if a == c or b == d:
                assert found[i] == found[j]
    for group in set(found):
        # What is joined is connected: a walk over shared keys reaches every member.
        members = [i for i, one in enumerate(found) if one == group]
        reached, waiting = {members[0]}, [members[0]]
        while waiting:
            here = waiting.pop()
            near = [
                j for j in members if j not in reached and (rows[j][0] == rows[here][0] or rows[j][1] == rows[here][1])
            ]
            reached.update(near)
            waiting += near
        assert reached == set(members)


def test_none_joins_nothing():
    assert splits.joined([None, None, "a", "a"]) == [0, 1, 2, 2]


def test_each_label_has_its_share_and_one_of_three_is_in_each_part():
    labels = ["often"] * 800 + ["seldom"] * 20 + ["three"] * 3 + ["two"] * 2 + ["one"]
    texts = [f"text {n}" for n in range(len(labels))]
    places = splits.stratified(range(len(labels)), labels, texts, SHARES)
    assert sorted(row for rows in places.values() for row in rows) == list(range(len(labels)))
    counts = {part: Counter(labels[row] for row in rows) for part, rows in places.items()}
    assert counts["test"] == {"often": 80, "seldom": 2, "three": 1}
    assert counts["dev"] == {"often": 80, "seldom": 2, "three": 1}
    assert counts["train"]["one"] == 1
    assert counts["train"]["two"] == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), min_size=1, max_size=60))
def test_groups_are_never_parted_and_the_order_of_the_file_decides_nothing(rows):
    labels, groups = [label for label, _ in rows], [group for _, group in rows]
    texts = [f"{group} {label}" for label, group in rows]
    places = splits.stratified(groups, labels, texts, SHARES)
    side = {row: part for part, several in places.items() for row in several}
    for group in set(groups):
        assert len({side[row] for row, one in enumerate(groups) if one == group}) == 1
    assert places["train"]


def test_a_growing_file_moves_few_of_its_old_rows():
    texts = [f"text {n}" for n in range(1100)]
    old, new = (splits.stratified(range(n), ["x"] * n, texts[:n], SHARES) for n in (1000, 1100))
    side = {row: part for part, rows in new.items() for row in rows}
    moved = sum(side[row] != part for part, rows in old.items() for row in rows)
    assert moved < 40


@pytest.mark.parametrize(
    ("times", "newest"),
    [
        ([str(n) for n in range(20)], {"18", "19"}),
        ([f"2024-01-{n:02}" for n in range(1, 21)], {"2024-01-19", "2024-01-20"}),
    ],
)
def test_by_time_the_newest_are_tested_on(times, newest):
    shuffled = times[::-1]
    places = splits.by_time(shuffled, SHARES)
    assert {shuffled[row] for row in places["test"]} == newest
    assert max(shuffled[row] for row in places["train"]) < min(newest) or times[0] == "0"
    assert len(places["train"]) == 16


def test_by_hash_equal_keys_are_on_one_side_whatever_else_there_is():
    keys = [f"k{n % 50}" for n in range(200)]
    places = splits.by_hash(keys, SHARES)
    side = {keys[row]: part for part, rows in places.items() for row in rows}
    again = splits.by_hash(keys[:10], SHARES)
    assert all(side[keys[row]] == part for part, rows in again.items() for row in rows)
    assert {len({keys[row] for row in rows}) > 0 for rows in places.values()} == {True}
