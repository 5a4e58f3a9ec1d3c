"""Recurrent models from text to text by the command line: every attention trains, answers and has its page."""

import re

import pytest

from qkv.errors import UserError
from qkv.experiments.run_report import _alignment
from qkv.run.run import load

TINY = {"d_model": 16, "n_heads": None, "d_ff": None, "n_layers": 1, "steps": 12, "evaluations": 1}


@pytest.mark.parametrize("attention", ["none", "dot", "additive"])
def test_the_page_shows_where_a_recurrent_decoder_looked(qkv, words, tmp_path, attention):
    out = tmp_path / "run"
    given = words.arguments(model="gru", attention=attention, d_hidden=12, **TINY)
    qkv.json("train", *given, "--out", out)
    page = (out / "report" / "index.html").read_text(encoding="utf-8")
    looked = re.findall(r"decoder[.\w]*cross_attention, the layer", page)
    assert bool(looked) == (attention != "none")
    [answer] = qkv.json("predict", out, "baba", "--beam", "1")["predictions"]
    drawn = _alignment(load(out), "baba")
    if attention == "none":
        assert drawn is None
        return
    steps = len(answer["output"].split()) + 1 if answer["finished"] else drawn.weights.shape[1]
    assert drawn.weights.shape == (1, steps, len("baba") + 1)  # a row for each symbol written and eos
    assert drawn.weights.sum(-1).tolist()[0] == pytest.approx([1.0] * steps, abs=1e-5)


def test_attention_that_there_is_none_of_is_refused(qkv, words, tmp_path):
    given = words.arguments(model="gru", attention="multi", d_hidden=12, **TINY)
    assert "additive" in qkv.refused("train", *given, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError):
        load(tmp_path / "run")
