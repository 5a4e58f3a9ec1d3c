"""A whole run: its folder, its numbers, and what the same call or another one does to a folder that exists."""

import logging
import math
import tomllib
from dataclasses import replace

import pytest
import safetensors.torch
import torch

import qkv
from qkv.data import catalogue, cmudict
from qkv.errors import UserError
from qkv.run import folder as files
from qkv.run.run import load
from qkv.training import trainer as module
from qkv.training.events import Listener
from qkv.training.guard import NotFinite
from qkv.training.train import train

NOISY = {"lr": 0.1, "schedule": "constant", "evaluations": 6, "clip": 0.0}  # a rate at which PER goes up and down


def steps_of(run, kind="train"):
    return [event["step"] for event in run.events() if event["event"] == kind]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_leaves_all_that_is_needed_to_use_it(words, finished_run):
    assert set(contents(finished_run)) == {
        "config.toml", "model.safetensors", "tokenizer.json", "target_tokenizer.json", "metrics.jsonl", "checkpoint.pt",
            "checkpoint.previous.pt", ".lock",
    }  # fmt: skip
    run = load(finished_run)
    assert steps_of(run) == list(range(1, 25))
    assert steps_of(run, "evaluation") == [8, 16, 24]
    assert (steps_of(run, "start"), steps_of(run, "end")) == ([0], [24])
    start, end = run.events()[0], run.events()[-1]
    assert end["tokens"] == pytest.approx(start["expected_tokens"], rel=0.05)
    assert set(end["test"]) == {"wer", "per", "unfinished"}
    assert run.config["data"]["fingerprint"] == catalogue.load("words").fingerprint
    assert run.config["task"]["max_length"] > 0
    losses = [event["loss"] for event in run.events() if event["event"] == "train"]
    assert losses[-1] < losses[0] - 0.5


def test_one_seed_is_one_result_and_another_seed_another(words, finished_run, tmp_path):
    again = qkv.train("words", out=tmp_path / "again", listeners=[], **words.settings)
    assert again.metrics() == load(finished_run).metrics()
    assert contents(tmp_path / "again")["model.safetensors"] == contents(finished_run)["model.safetensors"]
    train("words", out=tmp_path / "other", listeners=[], **words.settings, seed=1)
    assert contents(tmp_path / "other")["model.safetensors"] != contents(finished_run)["model.safetensors"]


def test_the_same_call_on_a_finished_run_says_so_and_changes_nothing(words, finished_run, caplog):
    before = contents(finished_run)
    with caplog.at_level(logging.INFO, "qkv"):
        run = train("words", out=finished_run, listeners=[], **words.settings)
    assert f"{finished_run} is finished; nothing to train" in caplog.text
    assert contents(finished_run) == before
    assert run.metrics() == load(finished_run).metrics()


def test_other_settings_on_a_folder_with_a_run_are_refused_with_the_key(words, finished_run):
    before = contents(finished_run)
    with pytest.raises(UserError) as raised:
        train("words", out=finished_run, listeners=[], **{**words.settings, "lr": 0.5, "n_heads": 4})
    assert "training.lr is 0.003 there and 0.5 here" in str(raised.value)
    assert "model.n_heads is 2 there and 4 here" in str(raised.value)
    assert contents(finished_run) == before


def test_data_that_changed_since_are_refused(words, finished_run, monkeypatch):
    entry = catalogue.entry("words")

    def read(path, **options):
        pairs = cmudict.load(path, **options)
        return replace(pairs, fingerprint="0" * 64)

    monkeypatch.setitem(catalogue.CATALOGUE, "words", replace(entry, read=read))
    with pytest.raises(UserError, match=r"the data have changed since the run in .* began.*choose another --out"):
        train("words", out=finished_run, listeners=[], **words.settings)


def test_a_folder_with_something_else_is_left_alone(words, tmp_path):
    (tmp_path / "thesis.docx").write_text("important", encoding="utf-8")
    with pytest.raises(UserError, match="exists and is not a run: choose another --out"):
        train("words", out=tmp_path, listeners=[], **words.settings)
    assert contents(tmp_path) == {"thesis.docx": b"important"}


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_place_that_cannot_be_written_is_said_and_nothing_is_left(words, tmp_path, below):
    in_the_way = tmp_path / "a file"
    in_the_way.write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot write to .*a file.*Choose another place with --out"):
        train("words", out=in_the_way / below, listeners=[], **words.settings)
    assert contents(tmp_path) == {"a file": b"mine"}


@pytest.mark.parametrize(
    "settings", [{"d_model": 250, "n_heads": 8}, {"positions": "no"}, {"tied": "all"}, {"device": "cpuu"}]
)
def test_a_run_that_cannot_be_leaves_no_folder(words, tmp_path, settings):
    with pytest.raises(UserError):
        train("words", out=tmp_path / "run", listeners=[], **{**words.settings, **settings})
    assert list(tmp_path.iterdir()) == []


def test_minutes_become_steps_which_a_later_call_uses(words, tmp_path):
    asked = {**words.settings, "steps": 0, "minutes": 0.01}
    run = train("words", out=tmp_path / "run", listeners=[], **asked)
    steps = run.config["training"]["steps"]
    assert steps >= 1
    assert run.config["training"]["minutes"] == 0.01
    assert steps_of(run) == list(range(1, steps + 1))
    words.forget_training(tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    again = train("words", out=tmp_path / "run", listeners=[], **asked)
    assert again.config == run.config
    assert again.metrics() == run.metrics()
    # The same steps without a clock are the same run: measuring the speed changed no number.
    by_steps = train("words", out=tmp_path / "steps", listeners=[], **{**words.settings, "steps": steps})
    assert contents(tmp_path / "steps")["model.safetensors"] == contents(tmp_path / "run")["model.safetensors"]
    assert by_steps.metrics() == run.metrics()


def test_the_precision_that_auto_chose_is_kept(words, tmp_path):
    run = train("words", out=tmp_path, listeners=[], **{**words.settings, "precision": "auto", "steps": 2})
    chosen = run.config["training"]["precision"]
    assert chosen in ("float32", "bfloat16")
    words.forget_training(tmp_path)
    before = contents(tmp_path)["model.safetensors"]
    again = train("words", out=tmp_path, listeners=[], **{**words.settings, "precision": "auto", "steps": 2})
    assert again.config["training"]["precision"] == chosen
    assert contents(tmp_path)["model.safetensors"] == before


def test_bfloat16_trains_float32_weights(words, tmp_path):
    run = train("words", out=tmp_path, listeners=[], **{**words.settings, "precision": "bfloat16", "steps": 4})
    assert {parameter.dtype for parameter in run.model.parameters()} == {torch.float32}
    assert math.isfinite(run.metrics()["per"])


def test_the_best_model_is_kept_and_not_the_last(words, tmp_path):
    run = train("words", out=tmp_path, listeners=[], **{**words.settings, **NOISY})
    found = {event["step"]: event["metrics"] for event in run.events() if event["event"] == "evaluation"}
    best = min(reversed(found), key=lambda step: found[step]["per"])
    assert best < 24, "choose settings whose last evaluation is not the best"
    assert run.events()[-1]["best_step"] == best
    dev = catalogue.load("words").dev
    kept = run.task.evaluate(run.model, dev, beam=1)
    assert kept == pytest.approx({name: found[best][name] for name in kept})
    test = catalogue.load("words").test
    assert run.metrics() == pytest.approx(run.task.evaluate(run.model, test))


def test_evaluations_are_spread_evenly_and_the_last_step_has_one(words, tmp_path):
    for evaluations, steps, wanted in ((0, 3, [3]), (4, 6, [2, 3, 4, 6]), (10, 3, [1, 2, 3])):
        out = tmp_path / str(evaluations)
        run = train("words", out=out, listeners=[], **{**words.settings, "evaluations": evaluations, "steps": steps})
        assert steps_of(run, "evaluation") == wanted


def test_options_of_the_data_reach_it(words, tmp_path):
    run = train("words", out=tmp_path / "run", listeners=[], **{**words.settings, "steps": 1}, stress=True)
    assert run.config["data"]["stress"] is True
    assert run.config["data"]["fingerprint"] == catalogue.load("words", stress=True).fingerprint


def test_a_person_sees_progress_by_default_and_listeners_hear_events(words, tmp_path, capsys):
    heard = []

    class Ear:
        on = staticmethod(heard.append)

        def flush(self):
            heard.append("flush")

        def close(self):
            heard.append("close")

    train("words", out=tmp_path / "a", listeners=[Ear()], **{**words.settings, "steps": 3})
    said = [event if isinstance(event, str) else event["event"] for event in heard]
    evaluated = ["train", "evaluation", "flush"]
    assert said == ["start", *evaluated * 3, "end", "flush", "close"]
    assert capsys.readouterr().err == ""
    train("words", out=tmp_path / "b", **{**words.settings, "steps": 3})
    out, err = capsys.readouterr()
    assert out == ""
    assert "step 3/3: dev loss " in err


class Breaker(Listener):
    """Breaks a weight of the model under training after a step."""

    def __init__(self, monkeypatch, step):
        self.step, build = step, module.build_model
        monkeypatch.setattr(module, "build_model", lambda *args: setattr(self, "model", build(*args)) or self.model)

    def on(self, event):
        if event["event"] == "train" and event["step"] == self.step:
            with torch.no_grad():
                self.model.decoder.blocks[0].cross_attention.out.weight[0, 0] = math.nan


@pytest.mark.parametrize(("step", "when"), [(10, "step 11"), (16, "evaluation after step 16")])
def test_numbers_that_break_name_the_module_and_leave_the_last_good_weights(
    words, tmp_path, monkeypatch, finished_run, step, when
):
    with monkeypatch.context() as patch, pytest.raises(NotFinite) as raised:
        train("words", out=tmp_path, listeners=[Breaker(patch, step)], **words.settings)
    assert str(raised.value).startswith(f"{when}: the loss is not finite. First at fault: the parameter decoder.blocks")
    good = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in good.values())
    assert load(tmp_path).predict(["baba"])
    run = train("words", out=tmp_path, listeners=[], **words.settings)
    assert run.metrics() == load(finished_run).metrics()
    assert contents(tmp_path)["model.safetensors"] == contents(finished_run)["model.safetensors"]


def test_a_rate_that_explodes_is_said(words, tmp_path):
    with pytest.raises(NotFinite, match=r"First at fault: the (parameter|output).*Try a smaller --training.lr"):
        train("words", out=tmp_path, listeners=[], **{**words.settings, "lr": 1e30, "warmup": 0})
    with pytest.raises(UserError, match=r"has no model.safetensors: the run was stopped before its first evaluation"):
        load(tmp_path)


def test_the_config_of_a_run_makes_the_same_run(words, finished_run, tmp_path):
    run = train(config=finished_run / "config.toml", out=tmp_path / "again", listeners=[])
    assert run.metrics() == load(finished_run).metrics()
    with (tmp_path / "again" / files.CONFIG).open("rb") as file:
        assert tomllib.load(file) == load(finished_run).config
