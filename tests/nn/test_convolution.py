"""Convolutions: by their formulas, without a leak of padding or of the future."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from qkv.models.tcn import TcnConfig, encoder
from qkv.nn.convolution import CausalBlock, NGramConvolution

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def filters(widths=(2, 3), d_in=4, count=5):
    torch.manual_seed(0)
    return NGramConvolution(d_in, count, widths)


def test_filters_are_kims_formula():
    made, x = filters(), torch.randn(1, 6, 4)
    found = made(x)[0].double()
    by_hand = []
    for width, convolution in zip((2, 3), made.filters, strict=True):
        weight, bias = convolution.weight.double(), convolution.bias.double()
        heard = [
            torch.stack([bias[f] + (weight[f].T * x[0, i : i + width].double()).sum() for f in range(5)])
            for i in range(6 - width + 1)
        ]
        by_hand.append(torch.stack(heard).max(0).values.clamp_min(0))
    assert_close(found, torch.cat(by_hand), **CLOSE)


@pytest.mark.parametrize("length", [1, 2, 3, 6])
@pytest.mark.parametrize(("left", "right"), [(0, 4), (3, 0), (2, 2)])
def test_padding_changes_no_filter(length, left, right):
    made, x = filters((1, 2, 4)), torch.randn(2, length, 4)
    noise = 100 * torch.ones(2, left + length + right, 4)
    noise[:, left : left + length] = x
    mask = torch.zeros(2, left + length + right, dtype=torch.bool)
    mask[:, left : left + length] = True
    assert_close(made(noise, mask), made(x), **CLOSE)


def test_a_row_without_tokens_gives_zero_and_gradients_are_finite():
    made = filters()
    x = torch.randn(2, 5, 4, requires_grad=True)
    found = made(x, torch.tensor([[False] * 5, [True] * 5]))
    assert (found[0] == 0).all()
    found.sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad[0] == 0).all()


@pytest.mark.parametrize("widths", [(), (0, 2)])
def test_widths_that_cannot_be_are_refused(widths):
    with pytest.raises(ValueError, match="widths"):
        NGramConvolution(4, 5, widths)


@pytest.mark.parametrize(("kernel", "dilation", "d_out"), [(1, 1, 4), (3, 1, 4), (3, 4, 6), (2, 2, 4)])
def test_a_causal_block_is_the_papers_formula(kernel, dilation, d_out):
    torch.manual_seed(0)
    block = CausalBlock(4, d_out, kernel, dilation).eval()
    x = torch.randn(1, 9, 4)

    def convolved(convolution, rows):
        weight, bias = convolution.weight.double(), convolution.bias.double()
        out = []
        for t in range(9):
            total = bias.clone()
            for k in range(kernel):
                place = t - (kernel - 1 - k) * dilation
                if place >= 0:
                    total = total + weight[:, :, k] @ rows[place]
            out.append(total)
        return torch.stack(out).relu()

    rows = x[0].double()
    inside = convolved(block.second, convolved(block.first, rows))
    shortcut = rows if d_out == 4 else block.shortcut.double()(rows)
    expected = (shortcut + inside).relu()
    block.float()
    assert_close(block(x)[0].double(), expected, **CLOSE)


@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_nothing_of_the_future_is_seen_at_any_prefix(kernel):
    torch.manual_seed(0)
    body = encoder(TcnConfig(d_model=6, d_hidden=5, n_layers=3, kernel=kernel, dropout=0.0), 20).eval()
    tokens = torch.randint(20, (1, 10))
    whole = body(tokens)
    for cut in range(1, 10):
        other = torch.cat([tokens[:, :cut], (tokens[:, cut:] + 7) % 20], 1)
        assert_close(body(other)[:, :cut], whole[:, :cut], **CLOSE)
        assert_close(body(tokens[:, :cut]), whole[:, :cut], **CLOSE)


def test_a_state_sees_as_far_back_as_the_config_says():
    config = TcnConfig(d_model=6, d_hidden=5, n_layers=2, kernel=3, dropout=0.0)
    torch.manual_seed(0)
    body = encoder(config, 30).eval()
    # relu may close a way by chance: what is seen is gathered over many texts.
    seen = torch.zeros(40, dtype=torch.bool)
    for seed in range(60):
        draw = torch.Generator().manual_seed(seed)
        tokens = torch.randint(30, (1, 40), generator=draw)
        embedded = body.embedding(tokens, torch.zeros_like(tokens)).detach().requires_grad_()
        x = embedded
        for block in body.blocks:
            x = block(x)
        x[0, -1].sum().backward()
        seen |= embedded.grad[0].abs().sum(1) > 0
    assert config.reach == 1 + 2 * 2 * 3
    assert seen.nonzero().min() == 40 - config.reach


@pytest.mark.parametrize(("left", "right"), [(0, 4), (3, 0), (2, 5)])
def test_padding_changes_no_state(left, right):
    torch.manual_seed(0)
    block, x = CausalBlock(4, 6, 3, 2).eval(), torch.randn(2, 6, 4)
    noise = 100 * torch.ones(2, left + 6 + right, 4)
    noise[:, left : left + 6] = x
    mask = torch.zeros(2, left + 6 + right, dtype=torch.bool)
    mask[:, left : left + 6] = True
    found = block(noise, mask)
    assert_close(found[:, left : left + 6], block(x), **CLOSE)
    assert (found[~mask] == 0).all()


def test_weight_norm_begins_with_the_weights_that_were_drawn():
    torch.manual_seed(0)
    block = CausalBlock(64, 64, 3, 1)
    for convolution in (block.first, block.second):
        assert convolution.weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 3)), rel=0.05)
        lengths = convolution.weight.flatten(1).norm(dim=1)
        assert_close(convolution.parametrizations.weight.original0.flatten(), lengths, **CLOSE)
        assert not convolution.bias.any()
    assert isinstance(block.shortcut, nn.Identity)


@pytest.mark.parametrize("sizes", [(0, 1), (3, 0)])
def test_a_kernel_or_dilation_of_zero_is_refused(sizes):
    with pytest.raises(ValueError, match="must be 1 or more"):
        CausalBlock(4, 4, *sizes)


@pytest.mark.parametrize("kernel", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 3])
def test_gradients_of_a_state_reach_nothing_behind_it(kernel, dilation):
    torch.manual_seed(0)
    block = CausalBlock(4, 5, kernel, dilation, dropout=0.0)
    for place in range(9):
        x = torch.randn(1, 9, 4, requires_grad=True)
        block(x)[0, place].sum().backward()
        assert (x.grad[0, place + 1 :] == 0).all()
        assert x.grad[0, place].abs().sum() > 0


@pytest.mark.parametrize(("kernel", "n_layers", "reach"), [(1, 3, 1), (2, 1, 3), (2, 3, 15), (3, 1, 5), (4, 2, 19)])
def test_an_output_sees_exactly_its_reach(kernel, n_layers, reach):
    config = TcnConfig(d_model=6, d_hidden=5, n_layers=n_layers, kernel=kernel, dropout=0.0)
    torch.manual_seed(0)
    body = encoder(config, 30).eval()
    with torch.no_grad():
        for block in body.blocks:
            for convolution in (block.first, block.second):
                convolution.weight = convolution.weight.abs() * 0.1  # so that relu closes no way
    x = torch.rand(1, 40, 6, requires_grad=True)
    states = x
    for block in body.blocks:
        if isinstance(block.shortcut, nn.Linear):
            block.shortcut.weight.data.abs_()
        states = block(states)
    states[0, -1].sum().backward()
    assert config.reach == reach
    assert (x.grad[0].abs().sum(1) > 0).tolist() == [False] * (40 - reach) + [True] * reach


@pytest.mark.parametrize("kind", ["filters", "block"])
def test_rows_of_different_length_are_what_they_are_alone(kind):
    torch.manual_seed(0)
    made = filters((1, 2, 4)) if kind == "filters" else CausalBlock(4, 6, 3, 2).eval()
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            nn.init.uniform_(parameter, 0.5, 1.5)  # zeros at first: what leaks through a bias would not be seen
    x, spans = torch.randn(4, 7, 4), [(0, 7), (6, 7), (0, 3), (2, 5)]
    place = torch.arange(7)
    mask = torch.stack([(place >= a) & (place < b) for a, b in spans])
    found = made(x, mask)
    for row, (a, b) in enumerate(spans):
        alone = made(x[row : row + 1, a:b])[0]
        assert_close(found[row] if kind == "filters" else found[row, a:b], alone, **CLOSE)
