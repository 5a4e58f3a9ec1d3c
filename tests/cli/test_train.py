"""`qkv train`."""

import json

import pytest

from qkv.run.run import load


def test_train_prints_one_object_with_the_metrics_by_name_and_again_when_finished(qkv, words, tmp_path):
    out = tmp_path / "runs" / "mine"
    arguments = ("train", "--out", out, *words.arguments())
    found = qkv.json(*arguments)
    assert found["run"] == str(out)
    assert found["report"] == str(out / "report" / "index.html")
    assert {"wer", "per"} <= set(found)
    assert {name: found[name] for name in ("wer", "per", "unfinished")} == load(out).metrics()
    page = (out / "report" / "index.html").read_text(encoding="utf-8")
    assert "encoder_decoder on words" in page
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert qkv.json(*arguments) == found
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    said, _ = qkv(*arguments)
    assert f"test:     WER {found['wer']:.2f} %, PER {found['per']:.2f} %" in said
    assert f"report:   {found['report']}" in said
    assert f"qkv predict {out}" in said
    message = qkv.refused("train", "--out", out, *words.arguments(lr=0.5))
    assert "training.lr is 0.003 there and 0.5 here" in message
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


def test_a_recipe_with_changes_from_the_command_line(qkv, words, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[data]\nname = "words"\n[model]\nd_model = 16\nn_heads = 2\nd_ff = 16\nn_layers = 1\n'
        '[training]\nsteps = 3\nevaluations = 1\nprecision = "float32"\n[task]\nbeam = 1\n',
        encoding="utf-8",
    )
    out = tmp_path / "run"
    qkv("train", "--config", recipe, "--out", out, "--steps", "2", "--model.d_ff=24", "--batch-tokens", "256")
    config = load(out).config
    assert config["training"]["steps"] == 2
    assert config["training"]["batch_tokens"] == 256
    assert config["model"]["d_ff"] == 24
    assert config["model"]["d_model"] == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--d_model", "250", "--n_heads", "8"], "250"),
        (["--data", "wrods"], "no data set 'wrods' in the catalogue, and no such file. Did you mean 'words'?"),
        (["--model", "encoderdecoder"], "unknown model 'encoderdecoder'. Did you mean 'encoder_decoder'?"),
        (["--d_modle", "8"], "unknown setting 'd_modle'. Did you mean 'd_model'?"),
        (["--modle.d_model", "8"], "unknown table in 'modle.d_model'. Did you mean 'model'?"),
        (["--lr", "fast"], "training.lr: "),
        (["--lr", "-1"], "training: lr must be positive"),
        (["--steps", "0"], "how long to train is not said: give minutes (--minutes 5) or steps (--steps 2000)"),
        (["--training.minutes", "-1"], "training: minutes must be"),
        (["--minutes", "1"], "--minutes and --steps both say how long to train: give one of them"),
        (["--steps", "many"], "'many' is not a valid integer"),
        (["--stress", "maybe"], "option 'stress' of words is 'maybe'; it must be of type bool"),
        (["--device", "cpuu"], "unknown device 'cpuu'. Did you mean 'cpu'?"),
        (["--config", "missing.toml"], "cannot read missing.toml: "),
        (["words", "more"], "unexpected argument 'more': settings are written --NAME VALUE"),
        (["--lr"], "--lr needs a value: --lr VALUE"),
        (["--positions", "rotary", "--d_model", "12", "--n_heads", "4"], "rotary positions need an even head width"),
    ],
)
def test_mistakes_end_with_code_2_and_leave_nothing(qkv, words, tmp_path, arguments, message):
    out = tmp_path / "run"
    assert message in qkv.refused("train", "--data", "words", "--steps", "2", "--out", out, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_heads_that_do_not_divide_the_width_are_answered_with_those_that_do(qkv, words, tmp_path):
    arguments = words.arguments(d_model=250, n_heads=8)
    out, err = qkv("train", *arguments, "--out", tmp_path / "run", "--json", code=2)
    message = json.loads(out)["error"]
    assert err == f"error: {message}\n"
    for number in ("250", "8", "5", "10"):
        assert number in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "runs/mine"])
def test_a_place_that_cannot_be_written(qkv, words, tmp_path, below):
    (tmp_path / "a file").write_text("mine", encoding="utf-8")
    message = qkv.refused("train", *words.arguments(), "--out", tmp_path / "a file" / below)
    assert "cannot write to" in message
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]


def test_a_folder_with_something_else(qkv, words, tmp_path):
    (tmp_path / "thesis.docx").write_text("mine", encoding="utf-8")
    assert "exists and is not a run" in qkv.refused("train", *words.arguments(), "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.docx"]


@pytest.mark.slow
def test_in_a_process_of_its_own_logs_are_on_standard_error(words, tmp_path):
    out, err = words.run("train", "--out", tmp_path / "run", *words.arguments(), "--json")
    assert set(json.loads(out)) >= {"run", "report", "wer", "per"}
    assert out.count("\n") == 1
    for said in ("training on cpu in float32 (as asked)", "step 24/24: dev loss ", "scoring 15 test examples"):
        assert said in err
    out, err = words.run("train", "--out", tmp_path / "run", *words.arguments(), "--json")
    assert json.loads(out)["run"] == str(tmp_path / "run")
    assert err == f"{tmp_path / 'run'} is finished; nothing to train\n"
    out, err = words.run("train", "--out", tmp_path / "other", *words.arguments(n_heads=3), code=2)
    assert out == ""
    assert err.splitlines()[-1].startswith("error: model: ")
    assert "Traceback" not in err
