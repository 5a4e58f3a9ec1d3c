"""From what a person wrote to checked settings: file, then arguments; flat, dotted or as tables."""

import math
from dataclasses import asdict

import pytest

from qkv.errors import UserError
from qkv.tasks.seq2seq import Seq2SeqConfig
from qkv.training.config import TrainingConfig
from qkv.training.settings import resolve

RECIPE = """
[data]
name = "cmudict"
stress = true

[model]
d_model = 64

[task]
beam = 3

[training]
lr = 0.002
steps = 50
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_defaults_are_those_of_the_configs():
    found = resolve(None, None, None, {"steps": 7})
    assert found.data == {"name": "cmudict", "stress": False}
    assert found.model["name"] == "encoder_decoder"
    assert found.model["d_model"] == 256
    assert found.task == Seq2SeqConfig()
    assert found.training == TrainingConfig(steps=7)


@pytest.mark.parametrize(
    "settings",
    [
        {"d_model": 128, "lr": 1e-3, "beam": 2, "stress": False},
        {"model.d_model": 128, "training.lr": 1e-3, "task.beam": 2, "data.stress": False},
        {"model": {"d_model": 128}, "training": {"lr": 1e-3}, "task": {"beam": 2}, "data": {"stress": False}},
        {"model": {"d_model": "128"}, "training.lr": "1e-3", "beam": "2", "data.stress": False},
    ],
)
def test_arguments_override_the_file_in_any_form(recipe, settings):
    found = resolve(recipe, None, None, settings)
    assert found.model["d_model"] == 128
    assert found.training == TrainingConfig(lr=1e-3, steps=50)
    assert found.task.beam == 2
    assert found.data["stress"] is False


def test_the_file_overrides_the_defaults_key_by_key(recipe):
    found = resolve(recipe, "cmudict", "encoder_decoder", {})
    assert found.model["d_model"] == 64
    assert found.model["n_heads"] == 4
    assert found.training == TrainingConfig(lr=0.002, steps=50)
    assert found.task == Seq2SeqConfig(beam=3)
    assert found.data["stress"] is True


def test_the_config_of_a_run_is_a_recipe_for_the_same_run(tmp_path):
    import tomli_w

    settings = resolve(None, None, None, {"steps": 7, "d_model": 32}).with_data("0123")
    path = tmp_path / "config.toml"
    path.write_text(tomli_w.dumps(settings.as_table("0.1")), encoding="utf-8")
    assert resolve(path, None, None, {}).with_data("0123") == settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_modle": 1}, r"unknown setting 'd_modle'. Did you mean 'd_model'\? Settings: .*d_model"),
        ({"model.d_modle": 1}, r"unknown setting 'model.d_modle'. Did you mean 'd_model'\? Settings: d_model, n_heads"),
        ({"model.lr": 1}, r"unknown setting 'model.lr'"),
        ({"modle.d_model": 1}, r"unknown table in 'modle.d_model'. Did you mean 'model'\? Tables: data, model, task"),
        ({"model": {"d_modle": 1}}, r"model has no setting 'd_modle'. Did you mean 'd_model'\?"),
        ({"stres": True}, r"unknown setting 'stres'. Did you mean 'stress'\?"),
        ({"zzzzz": 1}, r"unknown setting 'zzzzz'. Settings:"),
        ({"training": 3}, r"unknown setting 'training'"),
        ({"d_model": "wide"}, r"model.d_model: .*integer.*'wide'"),
        ({"schedule": "linear"}, r"training.schedule: .*'cosine', 'inverse_sqrt' or 'constant'.*'linear'"),
        ({"lr": -1}, r"training: lr must be positive.*, got -1"),
        ({"lr": math.nan}, r"training: lr must be positive.*, got nan"),
        ({"lr": math.inf}, r"training: lr must be .*, got inf"),
        ({"minutes": math.inf}, r"training: minutes must be .*, got inf"),
        ({"batch_tokens": 0}, "training: batch_tokens must be positive.*, got 0"),
        ({"accumulate": 0}, "training: accumulate must be positive.*, got 0"),
        ({"steps": -5}, "training: steps must be .*not negative, got -5"),
        ({"clip": -1.0}, "training: clip must be .*not negative, got -1"),
        ({"warmup": 2.5}, r"training.warmup: .*integer.*2.5"),
        ({"seed": 2**70}, r"training: seed must be"),
        ({"label_smoothing": 1.0}, r"task: label_smoothing must be in \[0, 1\), got 1.0"),
        ({"n_layers": 0}, "model: n_layers.*0"),
        ({"steps": 0}, r"how long to train is not said: give minutes \(--minutes 5\) or steps \(--steps 2000\)"),
    ],
)
def test_what_cannot_be_is_refused_with_the_nearest_right_name(settings, message):
    with pytest.raises(UserError, match=message):
        resolve(None, None, None, {"steps": 7, **settings})


def test_unknown_names_of_data_and_model_come_with_the_nearest():
    with pytest.raises(
        UserError, match=r"no data set 'cmudikt' in the catalogue, and no such file. Did you mean 'cmudict'\?"
    ):
        resolve(None, "cmudikt", None, {"steps": 7})
    with pytest.raises(UserError, match=r"unknown model 'encoder-decoder'. Did you mean 'encoder_decoder'\?"):
        resolve(None, None, "encoder-decoder", {"steps": 7})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[modle]\nd_model = 1\n", r"recipe.toml has no table \[modle\]. Did you mean 'model'\? Tables: data, model"),
        ("d_model = 1\n", r"recipe.toml has no table \[d_model\]"),
        ("model = 1\n", r"recipe.toml: model must be a table, \[model\]"),
        ("[[model]]\nd_model = 1\n", r"recipe.toml: model must be a table"),
        ("[model]\nd_modle = 1\n", r"model has no setting 'd_modle'. Did you mean 'd_model'\?"),
        ("[model]\nd_model = 1\nd_ff = \n", r"recipe.toml is not valid TOML: .*line 3"),
        ("[model]\nname = 3\n", r"unknown model '3'"),
        ('[task]\nname = "seq2sec"\n', r"unknown task 'seq2sec'. Did you mean 'seq2seq'\?"),
        ("[data]\nstres = true\n", r"no (setting|option) 'stres'. Did you mean 'stress'\?"),
        ('[data]\nstress = "yes"\n', r"stress.*'yes'"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_with_the_place(tmp_path, content, message):
    path = tmp_path / "recipe.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        resolve(path, None, None, {"steps": 7})


def test_data_options_of_a_command_line_become_what_they_must_be():
    assert resolve(None, None, None, {"steps": 7, "stress": True}).data["stress"] is True
    with pytest.raises(UserError, match=r"option 'stress' of cmudict is 'maybe'; it must be of type bool"):
        resolve(None, None, None, {"steps": 7, "stress": "maybe"})


def stored_of(settings, **training):
    table = settings.as_table("0.1")
    return {**table, "training": {**table["training"], **training}}


def test_a_stored_run_of_the_same_settings_lends_what_it_worked_out(tmp_path):
    asked = resolve(None, None, None, {"minutes": 2})
    stored = stored_of(asked, steps=345, precision="bfloat16")
    stored["task"]["max_length"] = 40
    found = asked.matching(stored, tmp_path)
    assert asdict(found.training) == stored["training"]
    assert found.task.max_length == 40
    assert found.data == asked.data


def test_every_differing_setting_is_listed(tmp_path):
    there = resolve(None, None, None, {"steps": 7}).with_data("0123")
    here = resolve(None, None, None, {"steps": 8, "d_model": 32, "beam": 1, "stress": True}).with_data("4567")
    with pytest.raises(UserError) as raised:
        here.matching(there.as_table("0.1"), tmp_path / "run")
    message = str(raised.value)
    for line in (
        "data.stress is False there and True here", "data.fingerprint is '0123' there and '4567' here",
        "model.d_model is 256 there and 32 here", "task.beam is 5 there and 1 here", "training.steps is 7 there and 8",
    ):  # fmt: skip
        assert line in message
    assert message.startswith(f"{tmp_path / 'run'} holds a run with other settings: ")
    assert "Choose another --out" in message
    assert "n_heads" not in message


def test_more_minutes_than_the_stored_run_had_are_other_settings(tmp_path):
    stored = stored_of(resolve(None, None, None, {"minutes": 2}), steps=345)
    with pytest.raises(UserError, match=r"training.minutes is 2.0 there and 3.0 here"):
        resolve(None, None, None, {"minutes": 3}).matching(stored, tmp_path)
    asked = resolve(None, None, None, {"minutes": 2, "precision": "float32"})
    with pytest.raises(UserError, match=r"training.precision is 'bfloat16' there and 'float32' here"):
        asked.matching(stored_of(asked, precision="bfloat16"), tmp_path)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"steps": "many"}, r"config.toml: training.steps: .*'many'"),
        ({"lr": -1.0}, r"config.toml: training: lr must be positive"),
        ({"stepps": 3}, r"config.toml: training has no setting 'stepps'"),
    ],
)
def test_a_stored_run_that_cannot_be_read_is_said(tmp_path, training, message):
    asked = resolve(None, None, None, {"minutes": 2})
    with pytest.raises(UserError, match=message):
        asked.matching(stored_of(asked, **training), tmp_path)
