"""What a decoder keeps: longer at each step, never shared by accident, chosen by rows."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from qkv.nn.state import KeyValues, select_rows


def pair(length, batch=2):
    return torch.randn(batch, 3, length, 4), torch.randn(batch, 3, length, 5)


def holds(kept, *pairs):
    assert torch.equal(kept.keys, torch.cat([keys for keys, _ in pairs], 2))
    assert torch.equal(kept.values, torch.cat([values for _, values in pairs], 2))


@pytest.fixture(params=[True, False], ids=["grad", "no grad"], autouse=True)
def gradients(request):
    with torch.set_grad_enabled(request.param):
        yield


def test_appending_gives_the_whole():
    pairs = [pair(n) for n in (3, 1, 1, 20, 1)]
    kept = KeyValues(*pairs[0])
    for part in pairs[1:]:
        kept = kept.append(*part)
    holds(kept, *pairs)
    assert kept.length == 26


def test_what_was_given_is_never_written_to():
    first, second = pair(3), pair(1)
    before = [x.clone() for x in first]
    KeyValues(*first).append(*second).append(*second)
    assert all(torch.equal(have, want) for have, want in zip(first, before, strict=True))


def test_two_continuations_of_one_state_do_not_overwrite_each_other():
    start, common, left, right, more = (pair(n) for n in (2, 1, 1, 1, 2))
    kept = KeyValues(*start).append(*common)
    a, b = kept.append(*left), kept.append(*right)
    a2, b2 = a.append(*more), b.append(*more)
    kept.append(*more)
    holds(kept, start, common)
    holds(a, start, common, left)
    holds(b, start, common, right)
    holds(a2, start, common, left, more)
    holds(b2, start, common, right, more)


# A run of choices: which of the states so far goes on, by how many positions, and which of its rows.
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20), st.lists(st.integers(0, 1), min_size=2, max_size=2))))
def test_any_tree_of_continuations_equals_plain_copies(choices):
    start = pair(1)
    states, copies = [KeyValues(*start)], [start]
    for number, (of, length, rows) in enumerate(choices):
        of, index = of % len(states), torch.tensor(rows)
        part = [torch.full((2, 3, length, width), float(number)) for width in (4, 5)]
        states.append(states[of].append(*part).rows(index))
        copies.append(tuple(torch.cat([old, new], 2)[index] for old, new in zip(copies[of], part, strict=True)))
    for state, (keys, values) in zip(states, copies, strict=True):
        assert torch.equal(state.keys, keys)
        assert torch.equal(state.values, values)


@pytest.mark.parametrize("index", [[1, 0, 2], [0, 0, 2], [2], [], [2, 1, 0, 0, 1]], ids=str)
def test_rows_are_reordered_repeated_and_dropped(index):
    first, second = pair(2, batch=3), pair(1, batch=3)
    kept = KeyValues(*first).append(*second)
    chosen = kept.rows(torch.tensor(index, dtype=torch.long))
    holds(chosen, *([part[index] for part in pairs] for pairs in (first, second)))
    more = pair(2, batch=len(index))
    holds(chosen.append(*more), *([part[index] for part in pairs] for pairs in (first, second)), more)
    holds(kept, first, second)


def test_a_state_from_inference_mode_goes_on_outside():
    parts = [pair(1) for _ in range(4)]
    with torch.inference_mode():
        kept = KeyValues(*parts[0]).append(*parts[1])
    with torch.no_grad():
        holds(kept.append(*parts[2]).append(*parts[3]), *parts)


@pytest.mark.parametrize("learns", ["keys", "values", "query"])
def test_gradients_flow_through_appends(learns):
    torch.set_grad_enabled(True)
    parts = [pair(1) for _ in range(3)]
    for keys, values in parts:
        keys.requires_grad_(learns == "keys")
        values.requires_grad_(learns == "values")
    query = torch.randn(2, 3, 1, 4, requires_grad=learns == "query")
    kept, total = KeyValues(*parts[0]), torch.zeros(())
    for part in parts[1:]:
        kept = kept.append(*part)
        total = total + ((query @ kept.keys.transpose(2, 3)).square() @ kept.values).sum()
    total.backward()
    learned = [query] if learns == "query" else [part[0 if learns == "keys" else 1] for part in parts]
    assert all(x.grad.abs().min() > 0 for x in learned)


@dataclasses.dataclass(frozen=True)
class Kept:
    hidden: torch.Tensor
    name: str
    deeper: tuple[torch.Tensor, None] | None = None


class Cells(NamedTuple):
    hidden: torch.Tensor
    cell: torch.Tensor


def test_rows_are_chosen_in_every_kind_of_tree():
    x = torch.arange(3)
    tree = {
        "list": [x, None, 7],
        "tuple": (x[:, None], {"inner": x}),
        "cells": Cells(x, x + 1),
        "dataclass": Kept(x, "kept", (x, None)),
        "own": KeyValues(*pair(2, batch=3)),
    }
    chosen = select_rows(tree, torch.tensor([2, 0]))
    assert list(chosen) == list(tree)
    assert chosen["list"][0].tolist() == [2, 0]
    assert chosen["list"][1:] == [None, 7]
    assert chosen["tuple"][0].tolist() == [[2], [0]]
    assert chosen["tuple"][1]["inner"].tolist() == [2, 0]
    assert chosen["cells"].cell.tolist() == [3, 1]
    assert (chosen["dataclass"].name, chosen["dataclass"].deeper[1]) == ("kept", None)
    assert chosen["dataclass"].hidden.tolist() == chosen["dataclass"].deeper[0].tolist() == [2, 0]
    assert_close(chosen["own"].keys, tree["own"].keys[[2, 0]])


@pytest.mark.parametrize("wrong", [{1, 2}, object(), Kept], ids=["set", "object", "class"])
def test_what_has_no_rows_is_refused_by_name(wrong):
    with pytest.raises(TypeError, match=rf"of a {type(wrong).__name__}"):
        select_rows({"deep": [wrong]}, torch.tensor([0]))
