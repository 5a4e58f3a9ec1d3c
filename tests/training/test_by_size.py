"""Few examples get other defaults than many, said, written down, and never in place of what somebody asked for."""

import logging

import pytest

from qkv.errors import UserError
from qkv.run.run import load
from qkv.training.by_size import for_examples
from qkv.training.settings import resolve
from qkv.training.train import train


@pytest.mark.parametrize(
    ("count", "tokens", "d_model", "dropout"),
    [
        (1, 256, 128, 0.2),
        (3600, 512, 128, 0.2),
        (9999, 1024, 128, 0.2),
        (10_000, 1024, 256, 0.1),
        (106_000, 4096, 256, 0.1),
    ],
)
def test_defaults_by_the_number_of_examples(count, tokens, d_model, dropout):
    found, notes = for_examples(resolve(None, None, None, {"steps": 1}), count)
    assert (found.training.batch_tokens, found.model["d_model"], found.model["dropout"]) == (tokens, d_model, dropout)
    assert found.model["d_ff"] == 4 * d_model
    assert bool(notes) == (tokens < 4096)


@pytest.mark.parametrize("where", ["arguments", "file"])
def test_what_was_asked_for_stays(tmp_path, where):
    file, asked = tmp_path / "c.toml", {"batch_tokens": 4096, "model.dropout": 0.1}
    file.write_text("[training]\nbatch_tokens = 4096\n[model]\ndropout = 0.1\n", encoding="utf-8")
    given = asked if where == "arguments" else {}
    found, notes = for_examples(resolve(None if given else file, None, None, {"steps": 1, **given}), 100)
    assert (found.training.batch_tokens, found.model["dropout"]) == (4096, 0.1)
    assert "--model.d_model 128" in notes[0]
    wide, _ = for_examples(resolve(None, None, None, {"steps": 1, "d_ff": 2048, **given}), 100)
    assert (wide.model["d_model"], wide.model["d_ff"]) == (256, 2048)


def test_it_is_said_written_down_and_the_same_when_the_run_goes_on(words, tmp_path, caplog):
    settings = {name: value for name, value in words.settings.items() if name != "batch_tokens"}
    with caplog.at_level(logging.INFO, "qkv"):
        run = train("words", out=tmp_path, listeners=[], **settings)
    assert "training examples are few: --training.batch_tokens 256, --model.dropout 0.2, unless you say" in caplog.text
    assert run.config["training"]["batch_tokens"] == 256
    assert run.config["model"]["dropout"] == 0.2
    words.forget_training(tmp_path)
    assert train("words", out=tmp_path, listeners=[], **settings).metrics() == run.metrics()
    assert load(tmp_path).config == run.config


def test_a_run_with_another_size_is_not_gone_on_with_by_defaults(words, tmp_path):
    settings = {name: value for name, value in words.settings.items() if name != "batch_tokens"}
    train("words", out=tmp_path, listeners=[], batch_tokens=300, **settings)
    with pytest.raises(UserError, match="training.batch_tokens is 300 there and 256 here"):
        train("words", out=tmp_path, listeners=[], **settings)
