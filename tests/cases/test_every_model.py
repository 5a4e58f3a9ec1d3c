"""Silent bugs as properties of every architecture: padding, neighbours and the future change nothing."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from qkv.models.registry import models

SMALL = {
    "tied": "none",
    "d_model": 16,
    "n_heads": 4,
    "d_ff": 24,
    "n_layers": 2,
    "d_hidden": 12,
    "n_filters": 8,
    "dropout": 0.0,
}
SYMBOLS, LABELS = 20, 3
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


def choices():
    """Every architecture with each head, and with each pooling and attention that it offers."""
    for name, entry in models().items():
        for head in entry.heads if not entry.fitted else ():
            fields = {field.name for field in dataclasses.fields(entry.config)}
            ways = {"pooled": ("pooling", ["mean", "max", "first", "last"]), "next_token": ("attention",
                    ["none", "dot", "scaled_dot", "additive"])}  # fmt: skip
            field, values = ways.get(head, ("", []))
            if field not in fields:
                yield pytest.param(name, head, {}, id=f"{name}-{head}")
            for value in values if field in fields else ():
                allowed = str(entry.config.__annotations__[field])
                if f"'{value}'" in allowed or f'"{value}"' in allowed:
                    yield pytest.param(name, head, {field: value}, id=f"{name}-{head}-{value}")


def build(name, head, changes):
    torch.manual_seed(0)
    entry = models()[name]
    fields = {field.name for field in dataclasses.fields(entry.config)}
    sizes = (
        {"n_source": SYMBOLS, "n_target": SYMBOLS}
        if head == "next_token"
        else {"n_tokens": SYMBOLS, "n_labels": LABELS}
    )
    config = entry.config(**{k: v for k, v in SMALL.items() if k in fields} | changes)
    return entry.build(head, config, **sizes).eval()


every = pytest.mark.parametrize(("name", "head", "changes"), [*choices()])
reading = pytest.mark.parametrize(
    ("name", "head", "changes"), [one for one in choices() if one.values[1] != "next_token"]
)
writing = pytest.mark.parametrize(
    ("name", "head", "changes"), [one for one in choices() if one.values[1] == "next_token"]
)


def rows():
    draw = torch.Generator().manual_seed(3)
    return [torch.randint(4, SYMBOLS, (n,), generator=draw) for n in (6, 1, 4, 9)]


def padded(several, left, right):
    width = max(map(len, several)) + left + right
    tokens, mask = torch.full((len(several), width), 7), torch.zeros(len(several), width, dtype=torch.bool)
    for row, ids in enumerate(several):
        tokens[row, left : left + len(ids)] = ids
        mask[row, left : left + len(ids)] = True
    return tokens, mask


@reading
@pytest.mark.parametrize(("left", "right"), [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_padding_and_neighbours_change_no_answer(name, head, changes, left, right):
    model = build(name, head, changes)
    tokens, mask = padded(rows(), left, right)
    together = model(tokens, mask)
    for row, ids in enumerate(rows()):
        alone = model(ids[None])[0]
        found = together[row] if head == "pooled" else together[row, left : left + len(ids)]
        assert_close(found, alone, **CLOSE)


@reading
def test_a_text_is_read_to_its_last_token_and_in_its_order(name, head, changes):
    model = build(name, head, changes)
    ids = rows()[3][None]
    other = ids.clone()
    other[0, -1] = (other[0, -1] - 4 + 5) % (SYMBOLS - 4) + 4
    if changes.get("pooling") != "first" or name == "transformer":
        assert (model(ids) - model(other)).abs().max() > 1e-4
    assert (model(ids) - model(ids.flip(1))).abs().max() > 1e-4


@writing
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_of_a_source_and_neighbours_change_nothing_written(name, head, changes, side):
    model = build(name, head, changes)
    source, mask = padded(rows(), *((0, 2) if side == "right" else (2, 0)))
    target = torch.tensor([[1, 5, 9, 4]]).expand(4, 4)
    together = model(source, target, mask)
    for row, ids in enumerate(rows()):
        assert_close(together[row], model(ids[None], target[:1])[0], **CLOSE)


@writing
def test_no_symbol_knows_of_a_later_one_at_any_place(name, head, changes):
    model = build(name, head, changes)
    source, target = rows()[0][None], torch.tensor([[1, 5, 9, 4, 11, 6]])
    whole = model(source, target)
    for cut in range(1, 6):
        other = torch.cat([target[:, :cut], (target[:, cut:] + 3) % 16 + 4], 1)
        assert_close(model(source, other)[:, :cut], whole[:, :cut], **CLOSE)
    embedded = model.decoder.embedding.tokens.weight
    for place in range(6):
        model.zero_grad()
        model(source, target)[0, place].sum().backward()
        later = set(target[0, place + 1 :].tolist()) - set(target[0, : place + 1].tolist())
        assert all(not embedded.grad[symbol].any() for symbol in later)


@writing
def test_prompts_padded_on_the_left_and_step_by_step_are_the_same(name, head, changes):
    model = build(name, head, changes)
    source, target = rows()[0][None], torch.tensor([[1, 5, 9, 4, 11]])
    whole = model(source, target)
    prompt, mask = torch.tensor([[7, 7, 1, 5]]), torch.tensor([[False, False, True, True]])
    logits, state = model.prefill({"source": source, "target": prompt, "target_mask": mask})
    assert_close(logits, whole[:, 1], **CLOSE)
    for place in range(2, 5):
        logits, state = model.step(target[:, place], state)
        assert_close(logits, whole[:, place], **CLOSE)


@every
def test_gradients_are_finite_with_padding(name, head, changes):
    model = build(name, head, changes)
    tokens, mask = padded(rows(), 0, 2)
    logits = model(tokens, torch.tensor([[1, 5]]).expand(4, 2), mask) if head == "next_token" else model(tokens, mask)
    logits.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
