"""The loop: one step means the same however its batch is cut, and nothing but steps changes a run."""

import copy
import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from qkv.data.pairs import Example, Pairs, SymbolKind
from qkv.models.encoder_decoder import EncoderDecoderConfig, build
from qkv.tasks.batch import Batch
from qkv.tasks.seq2seq import Seq2Seq, Seq2SeqConfig
from qkv.training.config import TrainingConfig
from qkv.training.guard import NotFinite
from qkv.training.loop import Loop
from qkv.training.precision import Precision

FLOAT32 = Precision(torch.float32, "")


def some_items(count=60):
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdef", k=draw.randint(1, 9))) for _ in range(count)]
    examples = [Example(w, (w.upper()[: draw.randint(1, 9)],)) for w in words]
    pairs = Pairs(examples, [], [], "", SymbolKind(), SymbolKind(), [], "")
    task = Seq2Seq.of(Seq2SeqConfig(), pairs)
    return task, task.items(examples)


def make_loop(model=None, seed=0, dropout=0.0, steps=20, **config):
    task, items = some_items()
    if model is None:
        torch.manual_seed(seed)
        model = build(EncoderDecoderConfig(16, 2, 32, 1, dropout=dropout), **task.sizes)
    config = TrainingConfig(**{"steps": steps, "batch_tokens": 120, "warmup": 2, "seed": seed, **config})
    return Loop(model, task, items, config, FLOAT32, steps)


def weights(loop):
    return torch.cat([p.detach().flatten() for p in loop.model.parameters()])


def gradients_of(loop, group):
    """What the optimiser is given in one step, and what the step says."""
    seen = []
    parameters = list(loop.model.parameters())
    handle = loop.optimiser.register_step_pre_hook(lambda *_: seen.extend(p.grad.clone() for p in parameters))
    stepped = loop.step(group)
    handle.remove()
    return torch.cat([gradient.flatten() for gradient in seen]), stepped


def unequal_groups(loop):
    """Batches of very different numbers of targets, and the same pairs as one batch."""
    items = sorted(loop.items, key=lambda item: len(item[1]))
    parts = [items[:1], items[1:4], items[-20:]]
    assert len({sum(len(target) + 1 for _, target in part) for part in parts}) == 3
    return [loop.task.collate(part) for part in parts], [loop.task.collate([i for part in parts for i in part])]


def test_accumulated_batches_are_one_large_batch():
    loop = make_loop(clip=0.0)
    parts, whole = unequal_groups(loop)
    wanted, said = gradients_of(copy.deepcopy(loop), whole)
    found, stepped = gradients_of(copy.deepcopy(loop), parts)
    assert torch.allclose(found, wanted, atol=1e-6)
    assert stepped.loss == pytest.approx(said.loss, rel=1e-5)
    assert stepped.norm == pytest.approx(said.norm, rel=1e-5)
    assert stepped.tokens == said.tokens == sum(batch.n_tokens for batch in parts)


def test_the_loss_is_the_mean_over_all_targets_not_a_mean_of_means():
    loop = make_loop(clip=0.0)
    parts, _ = unequal_groups(loop)
    model = copy.deepcopy(loop.model).double()
    sums = [loop.task.loss(model(**batch.inputs).float(), batch) for batch in parts]
    mean = sum(sums) / sum(batch.n_targets for batch in parts)
    mean.backward()
    wanted = torch.cat([p.grad.flatten() for p in model.parameters()]).float()
    found, stepped = gradients_of(loop, parts)
    assert stepped.loss == pytest.approx(float(mean.detach()), rel=1e-5)
    assert torch.allclose(found, wanted, atol=1e-5)
    mean_of_means = sum(float(s.detach()) / b.n_targets for s, b in zip(sums, parts, strict=True)) / 3
    assert abs(stepped.loss - mean_of_means) > 1e-3


def test_gradients_of_an_earlier_step_are_not_added():
    loop = make_loop(clip=0.0, lr=1e-12)
    _, whole = unequal_groups(loop)
    first, _ = gradients_of(loop, whole)
    second, _ = gradients_of(loop, whole)
    assert torch.allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("clip", [0.01, 0.3, 1e6, 0.0])
def test_clipping_shortens_the_gradient_and_keeps_its_direction(clip):
    loop = make_loop(clip=0.0)
    _, whole = unequal_groups(loop)
    wanted, said = gradients_of(copy.deepcopy(loop), whole)
    clipped = make_loop(model=copy.deepcopy(loop.model), clip=clip)
    found, stepped = gradients_of(clipped, whole)
    assert stepped.norm == pytest.approx(float(wanted.double().norm()), rel=1e-4)  # what it was before
    limit = min(clip or math.inf, said.norm)
    assert float(found.norm()) == pytest.approx(limit, rel=1e-3)
    assert torch.allclose(found, wanted * (limit / said.norm), atol=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_one_seed_is_one_result_bit_for_bit(dropout):
    def trained(seed):
        loop = make_loop(seed=seed, dropout=dropout)
        groups = loop.groups()
        losses = [loop.step(next(groups)).loss for _ in range(6)]
        return losses, weights(loop)

    (losses, found), (again, same), (others, other) = trained(3), trained(3), trained(4)
    assert losses == again
    assert torch.equal(found, same)
    assert losses != others
    assert not torch.equal(found, other)


class Indices:
    """A task whose batches say which items they hold."""

    def lengths(self, items):
        return [(n % 7 + 1, n % 3 + 1) for n in items]

    def collate(self, items):
        ids = torch.tensor(items)
        return Batch({"source": ids}, ids, len(items), len(items))

    def loss(self, logits, batch):
        return logits.sum()


def index_loop(count, budget, accumulate, seed=0):
    config = TrainingConfig(batch_tokens=budget, accumulate=accumulate, seed=seed, steps=1)
    return Loop(nn.Linear(1, 1), Indices(), list(range(count)), config, FLOAT32, 1)


def taken(groups, loop, epoch):
    """The items of each group until `epoch` is over."""
    found = []
    for group in groups:
        if loop.progressed.epoch > epoch:
            return found, group
        found.append([batch.targets.tolist() for batch in group])
    return found, None


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(2, 80), st.integers(1, 4), st.integers(0, 3))
def test_an_epoch_has_every_item_once_in_groups_of_the_asked_size(count, budget, accumulate, seed):
    loop = index_loop(count, budget, accumulate, seed)
    groups = loop.groups()
    first, _ = taken(groups, loop, 0)
    assert sorted(i for group in first for batch in group for i in batch) == list(range(count))
    assert {len(group) for group in first[:-1]} <= {accumulate}
    assert 1 <= len(first[-1]) <= accumulate


def test_epochs_differ_in_order_and_a_seed_gives_the_same_order_again():
    loop = index_loop(60, 40, 2)
    groups = loop.groups()
    first, begun = taken(groups, loop, 0)
    rest, _ = taken(groups, loop, 1)
    second = [[batch.targets.tolist() for batch in begun], *rest]
    assert sorted(i for group in second for batch in group for i in batch) == list(range(60))
    assert second != first
    again = index_loop(60, 40, 2)
    assert taken(again.groups(), again, 0)[0] == first
    other = index_loop(60, 40, 2, seed=1)
    assert taken(other.groups(), other, 0)[0] != first


@pytest.mark.parametrize("accumulate", [1, 3])
def test_groups_go_on_from_any_place(accumulate):
    loop = index_loop(40, 30, accumulate)
    groups, places, seen = loop.groups(), [], []
    for _ in range(25):
        places.append(replace(loop.progressed))
        seen.append([batch.targets.tolist() for batch in next(groups)])
    assert loop.progressed.epoch >= 1
    for start in (0, 1, 7, 24):
        resumed = index_loop(40, 30, accumulate)
        resumed.progressed = places[start]
        rest = resumed.groups()
        assert [[b.targets.tolist() for b in next(rest)] for _ in range(25 - start)] == seen[start:]


def test_timing_leaves_weights_random_state_place_and_gradients_as_they_were():
    loop = make_loop(dropout=0.1)
    before, state = weights(loop), torch.get_rng_state()
    assert 0 < loop.seconds_per_step(timed=2, untimed=1) < 10
    assert torch.equal(weights(loop), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert vars(loop.progressed) == vars(make_loop().progressed)
    assert all(parameter.grad is None for parameter in loop.model.parameters())
    assert not loop.optimiser.state
    stepped = loop.step(next(loop.groups()))
    untimed = make_loop(dropout=0.1)
    assert untimed.step(next(untimed.groups())) == stepped
    assert torch.equal(weights(loop), weights(untimed))


def test_the_mean_loss_is_over_targets_in_eval_mode_and_any_batches():
    loop = make_loop(dropout=0.5)
    found = loop.mean_loss(loop.items)
    assert not loop.model.training
    batch = loop.task.collate(loop.items)
    with torch.no_grad():
        wanted = float(loop.task.loss(loop.model(**batch.inputs), batch)) / batch.n_targets
    assert found == pytest.approx(wanted, rel=1e-5)
    assert make_loop(model=loop.model, batch_tokens=20).mean_loss(loop.items) == pytest.approx(wanted, rel=1e-5)


def test_a_step_counts_and_trains_in_train_mode_at_the_rate_of_its_place():
    loop = make_loop(lr=0.01, schedule="constant", dropout=0.5)
    loop.model.eval()
    groups = loop.groups()
    stepped = [loop.step(next(groups)) for _ in range(4)]
    assert loop.model.training
    assert [one.lr for one in stepped] == pytest.approx([0.005, 0.01, 0.01, 0.01])
    assert loop.progressed.step == 4
    assert loop.progressed.tokens == sum(one.tokens for one in stepped)


def test_the_expected_tokens_of_a_step_are_those_of_an_epoch():
    for accumulate in (1, 3):
        loop = make_loop(accumulate=accumulate)
        groups, tokens, steps = loop.groups(), 0, 0
        for group in groups:
            if loop.progressed.epoch:
                break
            tokens, steps = tokens + sum(batch.n_tokens for batch in group), steps + 1
        assert loop.tokens_per_step() == pytest.approx(tokens / steps)


@pytest.mark.parametrize("name", ["encoder.blocks.0.feed_forward", "decoder.blocks.0.cross_attention"])
def test_a_broken_weight_is_named_and_nothing_is_updated(name):
    loop = make_loop(dropout=0.1)
    loop.step(next(loop.groups()))
    module = loop.model.get_submodule(name)
    parameter, tensor = next(iter(module.named_parameters()))
    with torch.no_grad():
        tensor[(0,) * tensor.ndim] = math.nan
    before, step = weights(loop), copy.deepcopy(loop.progressed.step)
    momentum = copy.deepcopy(loop.optimiser.state_dict()["state"])
    with pytest.raises(NotFinite, match=f"step 2: the loss is not finite. First .*: the parameter {name}.{parameter}"):
        loop.step(next(loop.groups()))
    assert torch.equal(weights(loop).nan_to_num(), before.nan_to_num())
    assert loop.progressed.step == step
    after = loop.optimiser.state_dict()["state"]
    assert all(torch.equal(after[i][key], momentum[i][key]) for i in momentum for key in momentum[i])
    assert all(p.grad is None for p in loop.model.parameters())
    with pytest.raises(NotFinite, match=f"evaluation after step 1: the loss is not finite. First.* {name}.{parameter}"):
        loop.mean_loss(loop.items)


class Overflow(nn.Module):
    """What it wraps, until `armed`; then infinity."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.armed = inner, False

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs) * (math.inf if self.armed else 1)


def test_the_module_that_overflowed_first_is_named_not_those_behind_it():
    loop = make_loop(dropout=0.3)
    broken = Overflow(loop.model.encoder.blocks[0].feed_forward)
    loop.model.encoder.blocks[0].feed_forward = broken
    groups = loop.groups()
    loop.step(next(groups))
    broken.armed = True
    with pytest.raises(NotFinite) as raised:
        loop.step(next(groups))
    assert "First at fault: the output of encoder.blocks.0.feed_forward (Overflow)" in str(raised.value)
    assert "Try a smaller --training.lr (now 0.001), --training.clip 1, or" in str(raised.value)
    broken.armed = False
    assert math.isfinite(loop.step(next(groups)).loss)


def test_a_gradient_that_is_not_finite_is_named_though_the_loss_is():
    loop = make_loop()
    early = loop.model.encoder.blocks[0].feed_forward.up
    early.bias.register_hook(lambda gradient: gradient * math.nan)
    named = r"the gradient of encoder.blocks.0.feed_forward.up.bias \(and of 0 other"
    with pytest.raises(NotFinite, match=f"step 1: a gradient is not finite. First at fault: {named}"):
        loop.step(next(loop.groups()))
