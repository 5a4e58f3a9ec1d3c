"""A source with several right targets in training: each counts 1, or they share 1, or only the first is learned."""

import copy

import pytest
import torch
import torch.nn.functional as F

from qkv.data.pairs import Example, Pairs, SymbolKind
from qkv.data.symbols import PAD
from qkv.errors import UserError
from qkv.models.encoder_decoder import EncoderDecoderConfig, build
from qkv.run.run import task_config
from qkv.tasks.seq2seq import Seq2Seq, Seq2SeqConfig
from qkv.training.config import TrainingConfig
from qkv.training.loop import Loop
from qkv.training.precision import choose_precision

TRAIN = [
    Example("ab", ("A B", "B", "A B A B")), Example("b", ("B",)), Example("aab", ("A A B", "A")),
    Example("ba", ("B A",)),
]  # fmt: skip


def task_of(targets, smoothing=0.1):
    pairs = Pairs(TRAIN, TRAIN, TRAIN, "", SymbolKind(), SymbolKind("spaces"), [], "")
    return Seq2Seq.of(Seq2SeqConfig(targets=targets, label_smoothing=smoothing), pairs)


def by_hand(logits, targets, smoothing):
    """Each row's sum, in float64: the right symbol gets 1 - s and every symbol s / V."""
    log_probs = logits.double() - logits.double().logsumexp(-1, keepdim=True)
    right = log_probs.gather(-1, targets[..., None])[..., 0]
    each = -(1 - smoothing) * right - smoothing * log_probs.mean(-1)
    return (each * (targets != PAD)).sum(1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_the_weighted_loss_is_the_formula_with_each_row_by_its_weight(smoothing):
    task = task_of("weighted", smoothing)
    batch = task.collate(task.items(TRAIN))
    weights = torch.tensor([1 / 3, 1 / 3, 1 / 3, 1, 1 / 2, 1 / 2, 1], dtype=torch.float64)
    logits = torch.randn(7, batch.targets.size(1), len(task.target)) * 3
    wanted = weights @ by_hand(logits, batch.targets, smoothing)
    assert float(task.loss(logits, batch)) == pytest.approx(float(wanted), rel=1e-6)
    assert batch.n_targets == pytest.approx(3 / 3 + 2 / 3 + 5 / 3 + 2 + 4 / 2 + 2 / 2 + 3)
    assert batch.n_tokens == int(batch.inputs["source_mask"].sum()) + int((batch.targets != PAD).sum())


def test_padding_does_not_move_the_weighted_loss():
    task = task_of("weighted")
    items = list(task.items(TRAIN))
    logits = {len(item[1]): torch.randn(len(item[1]) + 1, len(task.target)) for item in items}
    together, alone = task.collate(items), [task.collate([item]) for item in items]
    rows = [
        F.pad(logits[len(item[1])], (0, 0, 0, together.targets.size(1) - len(item[1]) - 1), value=9) for item in items
    ]
    wanted = sum(float(task.loss(logits[len(i[1])][None], b)) for i, b in zip(items, alone, strict=True))
    assert float(task.loss(torch.stack(rows), together)) == pytest.approx(wanted, rel=1e-6)
    assert sum(batch.n_targets for batch in alone) == pytest.approx(together.n_targets)


def test_all_is_what_it_was_bit_for_bit():
    task = task_of("all")
    assert task.config == task_of("all").config
    items = [(task.source.encode(e.source), task.target.encode(t)) for e in TRAIN for t in e.targets]
    assert list(task.items(TRAIN)) == items
    batch = task.collate(task.items(TRAIN))
    assert batch.weights is None
    assert (batch.n_targets, type(batch.n_targets)) == (int((batch.targets != PAD).sum()), int)
    logits = torch.randn(7, batch.targets.size(1), len(task.target))
    flat = {"ignore_index": PAD, "reduction": "sum", "label_smoothing": 0.1}
    wanted = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), **flat)
    assert torch.equal(task.loss(logits, batch), wanted)


def test_first_learns_one_target_of_each_source():
    task = task_of("first")
    assert list(task.items(TRAIN)) == [(task.source.encode(e.source), task.target.encode(e.targets[0])) for e in TRAIN]
    assert task.collate(task.items(TRAIN)).weights is None
    assert len(task.target) == len(task_of("all").target)


def test_weights_move_with_their_batch():
    batch = task_of("weighted").collate(task_of("weighted").items(TRAIN))
    moved = batch.to(torch.device("meta"))
    assert moved.weights is not None
    assert moved.weights.device.type == "meta"
    assert moved.n_targets == batch.n_targets


def test_accumulated_batches_are_one_large_batch_when_rows_are_weighted():
    task = task_of("weighted")
    items = list(task.items(TRAIN))
    model = build(EncoderDecoderConfig(d_model=16, n_heads=2, d_ff=32, n_layers=1, dropout=0.0), **task.sizes)
    config = TrainingConfig(steps=10, clip=0.0, lr=1e-12)
    found = []
    for parts in ([items[:2], items[2:3], items[3:]], [items]):
        loop = Loop(
            copy.deepcopy(model), task, items, config, choose_precision("float32", torch.device("cpu")), config.steps
        )
        found.append(loop.step([task.collate(part) for part in parts]))
        found.append(loop.mean_loss(items))
    assert found[0].loss == pytest.approx(found[2].loss, rel=1e-5)
    assert found[0].norm == pytest.approx(found[2].norm, rel=1e-4)
    assert found[1] == pytest.approx(found[0].loss, rel=1e-5)


def test_another_word_is_refused_and_the_right_ones_are_said():
    with pytest.raises(ValueError, match="all, weighted, first, got 'both'"):
        Seq2SeqConfig(targets="both")
    with pytest.raises(UserError, match="targets"):
        task_config({"targets": "both"})
    assert task_config({}).targets == "all"
