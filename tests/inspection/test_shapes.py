"""trace(): every step in call order with its shapes, and the model as it was before."""

import io
import json

import pytest
import torch
from rich.console import Console
from torch import nn

from qkv.inspection.shapes import LEGEND, spelled, table, trace
from qkv.models.encoder_decoder import EncoderDecoderConfig, build

INPUTS = {
    "source": torch.tensor([[4, 5, 6, 7, 8], [4, 5, 6, 0, 0]]),
    "source_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool(),
    "target": torch.tensor([[1, 4, 5], [1, 6, 7]]),
}


def small(**changes):
    torch.manual_seed(0)
    return build(EncoderDecoderConfig(**{"d_model": 16, "n_heads": 4, "d_ff": 24, "n_layers": 1, **changes}), 10, 11)


def hooks(model):
    return [h for m in model.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]


def test_inside_attention_q_k_v_scores_weights_heads_are_spelled():
    rows = [row for row in trace(small(), INPUTS) if row.path == "decoder.blocks.0.cross_attention" and row.letters]
    assert [(row.name, row.outputs[0][1], row.letters) for row in rows] == [
        ("q", (2, 4, 3, 4), "(B, H, Tq, d)"),
        ("k", (2, 4, 5, 4), "(B, H, Tk, d)"),
        ("v", (2, 4, 5, 4), "(B, H, Tk, d_v)"),
        ("scores", (2, 4, 3, 5), "(B, H, Tq, Tk)"),
        ("weights", (2, 4, 3, 5), "(B, H, Tq, Tk)"),
        ("heads", (2, 4, 3, 4), "(B, H, Tq, d_v)"),
    ]
    assert rows[3].inputs == (("q", (2, 4, 3, 4)), ("k", (2, 4, 5, 4)))
    assert rows[5].inputs == (("weights", (2, 4, 3, 5)), ("v", (2, 4, 5, 4)))


def test_fewer_key_heads_have_their_own_letter():
    rows = {row.name: row for row in trace(small(n_kv_heads=2), INPUTS) if row.letters}
    assert (rows["k"].letters, rows["k"].outputs[0][1]) == ("(B, Hk, Tk, d)", (2, 2, 5, 4))
    assert rows["scores"].outputs[0][1] == (2, 4, 3, 5)


def test_modules_stand_in_call_order_under_the_module_that_called_them():
    rows = trace(small(), INPUTS)
    assert [(row.path, row.depth) for row in rows[:5]] == [
        ("", 0), ("encoder", 1), ("encoder.embedding", 2), ("encoder.embedding.tokens", 3),
        ("encoder.embedding.dropout", 3),
    ]  # fmt: skip
    assert rows[0].inputs == (("source", (2, 5)), ("target", (2, 3)), ("source_mask", (2, 5)))
    assert rows[0].outputs == (("", (2, 3, 11)),)
    attention = [row.name for row in rows if row.path.startswith("encoder.blocks.0.attention") and row.depth == 4]
    assert attention == ["query", "key", "value", "q", "k", "v", "scores", "weights", "heads", "out"]
    order = [row.path for row in rows if row.depth == 1]
    assert order == ["encoder", "decoder", "head"]
    assert [row.name for row in rows if row.depth == 2][1] == "blocks.0"


def test_masks_and_nested_inputs_are_named():
    block = next(row for row in trace(small(), INPUTS) if row.path == "decoder.blocks.0")
    assert block.inputs == (
        ("x", (2, 3, 16)), ("memory", (2, 5, 16)), ("memory_mask.keys", (2, 5)), ("place.pos", (1, 3)),
    )  # fmt: skip
    assert spelled(block.inputs[:2]) == "x (2, 3, 16), memory (2, 5, 16)"
    assert spelled(block.outputs) == "(2, 3, 16)"


def test_the_model_is_as_it_was():
    model = small(dropout=0.5).train()
    model.decoder.eval()  # a frozen part must stay frozen
    modes = [m.training for m in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    trace(model, INPUTS)
    assert [m.training for m in model.modules()] == modes
    assert hooks(model) == []
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_batch_norm_counts_nothing():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    rows = trace(model, {"input": torch.randn(5, 3)})
    assert [row.outputs[0][1] for row in rows] == [(5, 4), (5, 4), (5, 4)]
    assert int(model[1].num_batches_tracked) == 0


def test_hooks_are_gone_after_the_forward_raised():
    model = small().train()
    with pytest.raises(IndexError):
        trace(model, {**INPUTS, "target": torch.full((2, 3), 99)})
    assert hooks(model) == []
    assert all(m.training for m in model.modules())
    assert torch.overrides._get_current_function_mode_stack() == []


def test_a_module_that_survives_a_failing_part_keeps_its_place():
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.wrong, self.right = nn.Linear(7, 2), nn.Linear(3, 2)

        def forward(self, x):
            try:
                return self.wrong(x)
            except RuntimeError:
                return self.right(x)

    rows = trace(Careful(), {"x": torch.randn(4, 3)})
    assert [(row.name, row.depth, row.outputs) for row in rows] == [
        ("Careful", 0, (("", (4, 2)),)),
        ("wrong", 1, ()),
        ("right", 1, (("", (4, 2)),)),
    ]


def test_rows_are_json():
    rows = trace(small(), INPUTS)
    back = json.loads(json.dumps([row.as_dict() for row in rows]))
    assert back[0] == {
        "path": "", "name": "EncoderDecoder", "kind": "EncoderDecoder", "depth": 0,
        "inputs": [
            {"name": "source", "shape": [2, 5]}, {"name": "target", "shape": [2, 3]},
            {"name": "source_mask", "shape": [2, 5]},
        ],
        "outputs": [{"name": "", "shape": [2, 3, 11]}], "letters": "",
    }  # fmt: skip
    assert len(back) == len(rows)


def test_the_table_shows_every_row_and_explains_the_letters():
    rows = trace(small(), INPUTS)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(rows))
    lines = console.export_text().splitlines()
    assert any(line.split()[0] == "weights" and "(2, 4, 3, 5) (B, H, Tq, Tk)" in line for line in lines)
    assert any("memory_mask.keys (2, 5)" in line for line in lines)
    assert LEGEND in " ".join(lines)
    assert len([line for line in lines if line.strip()]) == len(rows) + 2
