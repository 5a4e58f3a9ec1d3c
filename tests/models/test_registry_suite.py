"""What every architecture of the registry must do, in every setting that its config offers.

The settings come from the types of each config, so a new choice is tested without a line here.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

from qkv.errors import UserError
from qkv.models.registry import Entry, find, models
from qkv.nn.attention import attend, attention_weights

SYMBOLS = 13
SMALL = {"d_model": 16, "n_heads": 4, "d_ff": 24, "n_layers": 1, "d_hidden": 12, "n_filters": 8}
# Numbers whose other values are other code. Choices and switches are found by their types.
NUMBERS = {"n_kv_heads": (1, 2), "n_decoder_layers": (2,)}


def small(entry: Entry, **changes):
    fields = {field.name for field in dataclasses.fields(entry.config)}
    return entry.config(**{name: value for name, value in SMALL.items() if name in fields} | changes)


def settings():
    """Every architecture with every head: with its defaults, and with each field changed to each of its other values.

    Those that are fitted and not trained have tests of their own.
    """
    for name, entry in models().items():
        for head in entry.heads if not entry.fitted else ():
            yield pytest.param(name, head, {}, id=f"{name}-{head}")
            default = small(entry)
            for field, kind in get_type_hints(entry.config).items():
                values = get_args(kind) if get_origin(kind) is Literal else (True, False) if kind is bool else ()
                for value in (*values, *NUMBERS.get(field, ())):
                    if value != getattr(default, field):
                        yield pytest.param(name, head, {field: value}, id=f"{name}-{head}-{field}-{value}")


def build(name, head="next_token", changes=None, seed=0):
    torch.manual_seed(seed)
    entry = find(name)
    sizes = {"n_source": SYMBOLS, "n_target": SYMBOLS}
    if head != "next_token":
        sizes = {"n_tokens": SYMBOLS, "n_labels": SYMBOLS, "n_segments": 2}
    return entry.build(head, small(entry, **(changes or {})), **sizes)


def batch(head):
    draw = torch.Generator().manual_seed(5)
    source, target = (torch.randint(SYMBOLS, (2, n), generator=draw) for n in (7, 6))
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    if head == "next_token":
        return {"source": source, "source_mask": mask, "target": target}
    return {"tokens": source, "mask": mask, "segments": (torch.arange(7) > 2).long().expand(2, 7)}


SHAPES = {"next_token": (2, 6, SYMBOLS), "per_token": (2, 7, SYMBOLS), "pooled": (2, SYMBOLS)}


def loss(model, head):
    """Of a task that asks for another symbol at each place."""
    logits = model(**batch(head)).reshape(-1, SYMBOLS)
    return nn.functional.cross_entropy(logits, torch.arange(len(logits)) % SYMBOLS)


def gradients(model, head):
    model.zero_grad()
    loss(model, head).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


every_setting = pytest.mark.parametrize(("name", "head", "changes"), [*settings()])


@every_setting
def test_logits_have_their_shape_and_are_finite_in_training_and_evaluation(name, head, changes):
    model = build(name, head, changes)
    for training in (True, False):
        logits = model.train(training)(**batch(head))
        assert logits.shape == SHAPES[head]
        assert logits.dtype == torch.float32
        assert logits.isfinite().all()


@every_setting
def test_every_parameter_gets_a_gradient(name, head, changes):
    for parameter, gradient in gradients(build(name, head, changes), head).items():
        assert gradient is not None, parameter
        assert gradient.isfinite().all(), parameter
        # The softmax over keys does not change when all keys move together: without rotation their bias has none.
        if not parameter.endswith("key.bias"):
            assert gradient.abs().sum() > 0, parameter


@every_setting
def test_evaluation_is_deterministic_and_training_is_not(name, head, changes):
    model = build(name, head, changes)
    assert not torch.equal(model(**batch(head)), model(**batch(head)))
    model.eval()
    assert torch.equal(model(**batch(head)), model(**batch(head)))


@every_setting
def test_one_seed_gives_one_model(name, head, changes):
    first, again, other = (build(name, head, changes, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@every_setting
def test_nothing_is_saved_that_can_be_recomputed(name, head, changes):
    model = build(name, head, changes)
    assert [*model.buffers()] == []
    parameters = dict(model.named_parameters(remove_duplicate=False))
    assert set(model.state_dict()) == set(parameters)
    assert all(parameter.requires_grad for parameter in parameters.values())


@every_setting
def test_saving_and_loading_keeps_the_logits_and_the_tying(name, head, changes, tmp_path):
    model, other = build(name, head, changes, 1).eval(), build(name, head, changes, 2).eval()
    save_model(model, str(tmp_path / "model.safetensors"))
    assert not torch.equal(model(**batch(head)), other(**batch(head)))
    missing, unexpected = load_model(other, str(tmp_path / "model.safetensors"))
    assert not missing
    assert not unexpected
    assert torch.equal(model(**batch(head)), other(**batch(head)))
    assert shared(other) == shared(model)
    other.load_state_dict(build(name, head, changes, 3).state_dict())
    assert shared(other) == shared(model)


def shared(model):
    """Groups of names that are one parameter."""
    groups = {}
    for parameter_name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(parameter_name)
    return sorted(group for group in groups.values() if len(group) > 1)


@every_setting
def test_a_copy_is_the_same_and_independent(name, head, changes):
    model = build(name, head, changes).eval()
    before = model(**batch(head))
    twin = copy.deepcopy(model)
    assert torch.equal(twin(**batch(head)), before)
    assert shared(twin) == shared(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert torch.equal(model(**batch(head)), before)
    assert not torch.equal(twin(**batch(head)), before)


@every_setting
def test_an_optimiser_step_lowers_the_loss_and_keeps_the_tying(name, head, changes):
    model = build(name, head, changes).eval()
    together = shared(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(4):
        optimiser.zero_grad()
        found = loss(model, head)
        found.backward()
        optimiser.step()
        losses.append(found.item())
    assert losses[-1] < losses[0]
    assert shared(model) == together


@every_setting
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-4), (torch.bfloat16, 0.15)], ids=str)
def test_another_precision_moves_everything_and_changes_little(name, head, changes, dtype, tolerance):
    model = build(name, head, changes).eval()
    expected, together = model(**batch(head)), shared(model)
    moved = model.to(dtype)
    logits = moved(**batch(head))
    assert logits.dtype == dtype
    assert shared(moved) == together
    assert_close(logits.double(), expected.double(), atol=tolerance, rtol=0)
    assert all(g.isfinite().all() and g.dtype == dtype for g in gradients(moved, head).values())


@pytest.mark.parametrize(("name", "head", "changes"), [one for one in settings() if one.values[1] == "next_token"])
def test_prefill_and_step_continue_what_forward_says(name, head, changes):
    model, inputs = build(name, head, changes).eval(), batch(head)
    with torch.no_grad():
        whole = model(**inputs)
        logits, state = model.prefill({**inputs, "target": inputs["target"][:, :4]})
        assert_close(logits, whole[:, 3], atol=2e-5, rtol=1e-4)
        logits, state = model.step(inputs["target"][:, 4], state)
        assert_close(logits, whole[:, 4], atol=2e-5, rtol=1e-4)


class Watching(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.weights = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is attend:
            asked = {name: kwargs[name] for name in ("mask", "score", "bias")}
            self.weights.append(attention_weights(*args[:2], **asked))
        return func(*args, **kwargs)


@every_setting
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_looking_at_every_attention_changes_nothing(name, head, changes, training):
    model = build(name, head, changes).train(training)
    torch.manual_seed(1)
    unseen = model(**batch(head))
    torch.manual_seed(1)
    with Watching() as watched:
        seen = model(**batch(head))
    assert torch.equal(seen, unseen)
    for weights in watched.weights:
        assert weights.dtype == torch.float32
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@pytest.mark.parametrize(
    ("tied", "groups"),
    [
        ("none", []),
        ("output", [["decoder.embedding.tokens.weight", "head.projection.weight"]]),
        ("all", [["encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight", "head.projection.weight"]]),
    ],
)
def test_tied_means_one_tensor_that_stays_one(tied, groups):
    model = build("encoder_decoder", changes={"tied": tied})
    assert shared(model) == groups
    assert shared(copy.deepcopy(model).to(torch.bfloat16)) == groups


def test_the_full_transformer_has_the_parameters_that_its_sizes_say():
    d, f, layers = SMALL["d_model"], SMALL["d_ff"], SMALL["n_layers"]
    attention, branch, norm = 4 * (d * d + d), 2 * d * f + f + d, 2 * d
    encoder = layers * (attention + branch + 2 * norm) + norm
    decoder = layers * (2 * attention + branch + 3 * norm) + norm
    head = 2 * SYMBOLS * d + SYMBOLS

    def count(**changes):
        return sum(parameter.numel() for parameter in build("encoder_decoder", changes=changes).parameters())

    assert count() == encoder + decoder + head
    assert count(pre_norm=False) == count() - 2 * norm
    assert count(tied="none") == count() + SYMBOLS * d
    assert count(tied="all") == count() - SYMBOLS * d
    assert count(n_kv_heads=1) == count() - layers * 3 * 2 * (d * d + d) * 3 // 4
    for computed in ("rotary", "alibi", "none"):
        assert count(positions=computed) == count()


def test_an_unknown_architecture_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"'encoder_decodr'.*encoder_decoder"):
        find("encoder_decodr")


def test_names_and_summaries_are_for_people():
    for name, entry in models().items():
        assert entry.name == name
        assert entry.summary
        assert entry.reads <= {"tokens", "frames", "pixels", "values"}
        assert entry.heads
        assert dataclasses.is_dataclass(entry.config)
