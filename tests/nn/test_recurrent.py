"""Recurrent nets over rows of different length: padding and neighbours change nothing, states go on."""

import pytest
import torch
from torch.testing import assert_close

from qkv.nn.recurrent import Recurrent

CELLS = ["rnn", "gru", "lstm"]
CLOSE = {"atol": 1e-6, "rtol": 1e-5}


def net(cell="lstm", layers=2, bidirectional=True):
    torch.manual_seed(0)
    return Recurrent(cell, 4, 3, layers, bidirectional).eval()


def same(a, b):
    assert_close(a.hidden, b.hidden, **CLOSE)
    assert (a.cell is None) == (b.cell is None)
    if a.cell is not None:
        assert_close(a.cell, b.cell, **CLOSE)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("left", [0, 2, 5])
@pytest.mark.parametrize("right", [0, 3])
def test_padding_on_either_side_changes_nothing(cell, bidirectional, left, right):
    made = net(cell, bidirectional=bidirectional)
    x = torch.randn(2, 6, 4)
    states, last = made(x)
    noise = 100 * torch.randn(2, left + 6 + right, 4)
    noise[:, left : left + 6] = x
    mask = torch.zeros(2, left + 6 + right, dtype=torch.bool)
    mask[:, left : left + 6] = True
    padded, end = made(noise, mask)
    assert_close(padded[:, left : left + 6], states, **CLOSE)
    assert (padded[~mask] == 0).all()
    same(end, last)


@pytest.mark.parametrize("cell", CELLS)
def test_neighbours_and_their_lengths_change_nothing(cell):
    made, x = net(cell), torch.randn(3, 7, 4)
    for lengths in ([7, 2, 5], [1, 7, 3], [3, 3, 3]):
        mask = torch.arange(7) < torch.tensor(lengths)[:, None]
        states, last = made(x, mask)
        for row, length in enumerate(lengths):
            alone, end = made(x[row : row + 1, :length])
            assert_close(states[row, :length], alone[0], **CLOSE)
            assert_close(last.hidden[row], end.hidden[0], **CLOSE)


def test_in_both_directions_the_last_state_has_read_to_both_ends():
    made, x = net("gru", layers=1), torch.randn(2, 5, 4)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    states, last = made(x, mask)
    for row, length in enumerate((5, 3)):
        assert_close(last.hidden[row, 0, :3], states[row, length - 1, :3], **CLOSE)
        assert_close(last.hidden[row, 0, 3:], states[row, 0, 3:], **CLOSE)


@pytest.mark.parametrize("cell", CELLS)
def test_a_row_without_a_token_gives_zeros_and_keeps_its_state(cell):
    made, x = net(cell, bidirectional=False), torch.randn(2, 4, 4)
    mask = torch.tensor([[True] * 4, [False] * 4])
    states, last = made(x, mask)
    assert (states[1] == 0).all()
    assert (last.hidden[1] == 0).all()
    _, begun = made(torch.randn(2, 2, 4))
    _, kept = made(x, mask, begun)
    assert_close(kept.hidden[1], begun.hidden[1])
    assert not torch.equal(kept.hidden[0], begun.hidden[0])


@pytest.mark.parametrize("cell", CELLS)
def test_going_on_from_a_state_is_one_pass(cell):
    made, x = net(cell, bidirectional=False), torch.randn(2, 6, 4)
    whole, last = made(x)
    first, state = made(x[:, :2])
    rest = [made(x[:, 2:5], None, state)]
    rest.append(made(x[:, 5:], None, rest[0][1]))
    assert_close(torch.cat([first, rest[0][0], rest[1][0]], 1), whole, **CLOSE)
    same(rest[1][1], last)


def test_nothing_is_left_on_the_module_and_dropout_is_between_layers_only():
    made = Recurrent("gru", 4, 3, 2, p=0.5)
    before = set(vars(made))
    x = torch.randn(2, 5, 4)
    made.train()
    assert not torch.equal(made(x)[0], made(x)[0])
    assert set(vars(made)) == before
    assert torch.equal(made.eval()(x)[0], made(x)[0])
    one = Recurrent("gru", 4, 3, 1, p=0.5).train()
    assert torch.equal(one(x)[0], one(x)[0])
    mask = torch.arange(5) < torch.tensor([[5], [2]])
    assert not torch.equal(made.train()(x, mask)[0], made(x, mask)[0])


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="d_hidden 0"):
        Recurrent("gru", 4, 0, 1)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_rows_padded_on_different_sides_are_what_they_are_alone(cell, bidirectional):
    made, x = net(cell, bidirectional=bidirectional), torch.randn(4, 7, 4)
    spans = [(0, 7), (4, 7), (0, 2), (2, 5)]
    place = torch.arange(7)
    mask = torch.stack([(place >= a) & (place < b) for a, b in spans])
    states, last = made(x, mask)
    for row, (a, b) in enumerate(spans):
        alone, end = made(x[row : row + 1, a:b])
        assert_close(states[row, a:b], alone[0], **CLOSE)
        assert_close(last.hidden[row], end.hidden[0], **CLOSE)
        if cell == "lstm":
            assert_close(last.cell[row], end.cell[0], **CLOSE)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_batch_of_empty_rows_gives_zeros_and_keeps_hidden_and_cell(cell, bidirectional):
    made, none = net(cell, bidirectional=bidirectional), torch.zeros(2, 3, dtype=torch.bool)
    states, last = made(torch.randn(2, 3, 4), none)
    assert (states == 0).all()
    assert all((part == 0).all() for part in (last.hidden, last.cell) if part is not None)
    _, begun = made(torch.randn(2, 2, 4))
    same(made(torch.randn(2, 3, 4), none, begun)[1], begun)


@pytest.mark.parametrize("cell", CELLS)
def test_going_on_with_padding_is_one_pass_of_the_real_tokens(cell):
    made, x = net(cell, bidirectional=False), torch.randn(2, 6, 4)
    mask = torch.tensor([[True] * 4, [False, False, True, True]])
    _, state = made(x[:, :2])
    states, last = made(x[:, 2:], mask, state)
    for row, kept in enumerate((x[:1], torch.cat([x[1:, :2], x[1:, 4:]], 1))):
        alone, end = made(kept)
        assert_close(states[row, mask[row]], alone[0, 2:], **CLOSE)
        assert_close(last.hidden[row], end.hidden[0], **CLOSE)


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_do_not_reach_padding(cell):
    x = torch.randn(2, 5, 4, requires_grad=True)
    mask = torch.tensor([[True, True, True, False, False], [False, True, True, True, True]])
    states, last = net(cell)(x, mask)
    (states.square().sum() + last.hidden.square().sum()).backward()
    assert (x.grad[~mask] == 0).all()
    assert (x.grad[mask].abs().sum(-1) > 0).all()


def test_another_batch_between_changes_no_answer():
    made, x = net(), torch.randn(2, 5, 4)
    before = made(x)
    made(torch.randn(3, 2, 4))
    after = made(x)
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[1].hidden, before[1].hidden)
