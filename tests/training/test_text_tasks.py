"""Runs on labelled texts: the baseline beside them, the same numbers after a stop, several processes, honest notes."""

import json
import logging
from pathlib import Path

import pytest

from qkv.data import catalogue
from qkv.data.sources import data_of
from qkv.errors import UserError
from qkv.run.folder import read_events
from qkv.run.run import load
from qkv.training import baseline
from qkv.training.events import Listener
from qkv.training.settings import resolve
from qkv.training.train import train

RECIPES = Path(__file__).parents[2] / "recipes"
WORDS = ["film", "story", "cast", "music", "ending", "camera", "dialogue", "hero", "villain", "plot"]
SMALL = {
    "d_model": 16, "n_heads": 2, "d_ff": 24, "n_layers": 1, "batch_tokens": 400, "steps": 12, "evaluations": 3,
    "precision": "float32", "lr": 3e-3,
}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    rows = [f"{a} {word} {b},{label}" for a in WORDS for b in WORDS if a != b
            for word, label in ((f"good{len(a) % 3}", "good"), (f"bad{len(b) % 3}", "bad"))]  # fmt: skip
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    path.write_text("\n".join(f"the {a} and the {b} of the {c}" for a in WORDS for b in WORDS for c in WORDS[:2]))
    return str(path)


def told(run):
    """The events but for clocks; a run that goes on starts twice."""
    return [
        {name: value for name, value in event.items() if name not in ("seconds", "tokens_per_s")}
        for event in read_events(run.folder)
        if event["event"] != "start"
    ]


class Stop(Listener):
    def __init__(self, step):
        self.step = step

    def on(self, event):
        if event["event"] == "train" and event["step"] == self.step:
            raise RuntimeError("pulled the plug")


@pytest.mark.parametrize("stop", [1, 5, 9])
@pytest.mark.parametrize("task", ["classification", "masked_lm"])
def test_a_run_that_was_stopped_ends_in_the_same_numbers(file, lines, tmp_path, stop, task):
    data, settings = (file, SMALL) if task == "classification" else (lines, {**SMALL, "task": task})
    whole = train(data, "transformer", out=tmp_path / "whole", listeners=[], **settings)
    with pytest.raises(RuntimeError, match="pulled the plug"):
        train(data, "transformer", out=tmp_path / "cut", listeners=[Stop(stop)], **settings)
    again = train(data, "transformer", out=tmp_path / "cut", listeners=[], **settings)
    assert told(again) == told(whole)
    kept = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert kept[0] == kept[1]


def test_the_baseline_is_fitted_first_on_the_same_splits_and_said(file, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "qkv"):
        run = train(file, "cnn", out=tmp_path / "run", listeners=[], **{k: v for k, v in SMALL.items() if k in
                    ("d_model", "batch_tokens", "steps", "evaluations", "precision", "lr")})  # fmt: skip
    said = [record.getMessage() for record in caplog.records]
    place = next(n for n, line in enumerate(said) if line.startswith("baseline (ngrams, the same splits): accuracy"))
    assert any(line.startswith("training on") for line in said[place:])
    own = load(tmp_path / "run" / "baseline")
    assert own.config["model"]["name"] == "ngrams"
    assert own.config["data"]["fingerprint"] == run.config["data"]["fingerprint"]
    assert baseline.metrics_beside(run.folder) == own.metrics()
    data = data_of(run.config["data"])
    assert own.task.evaluate(own.model, data.test) == pytest.approx(own.metrics())
    assert own.metrics()["accuracy"] == 100.0


def test_a_fitted_model_needs_no_steps_and_is_finished_at_once(file, tmp_path):
    run = train(file, "ngrams", out=tmp_path, listeners=[])
    assert run.config["training"]["steps"] == 1
    assert [event["event"] for event in run.events()] == ["start", "train", "evaluation", "end"]
    assert not (tmp_path / "baseline").exists()
    before = (tmp_path / "model.safetensors").read_bytes()
    assert train(file, "ngrams", out=tmp_path, listeners=[]).metrics() == run.metrics()
    for path in tmp_path.glob("checkpoint*.pt"):
        path.unlink()
    (tmp_path / "metrics.jsonl").unlink()
    train(file, "ngrams", out=tmp_path, listeners=[])
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_probabilities_are_calibrated_at_the_end_and_kept(file, tmp_path):
    run = train(file, "transformer", out=tmp_path, listeners=[], **SMALL)
    kept = json.loads((tmp_path / "labels.json").read_text(encoding="utf-8"))
    assert kept["temperature"] == run.task.temperature
    assert load(tmp_path).task.temperature == run.task.temperature != 1.0
    dev = data_of(run.config["data"]).dev
    before, after = run.task.calibrate(run.model, dev)
    assert run.task.temperature == pytest.approx(kept["temperature"], rel=1e-6)
    assert after == pytest.approx(before)


def test_texts_that_the_vocabulary_lacks_are_refused_unless_allowed(tmp_path):
    rows = [f"{a} {b},{'xy'[n % 2]}" for n, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    for part in ("dev", "test"):
        (tmp_path / f"{part}.csv").write_text("text,label\n" + "很好很好,x\n不好,y\n" * 10, encoding="utf-8")
    files = {f"data.{part}": str(tmp_path / f"{part}.csv") for part in ("train", "dev", "test")}
    settings = {**SMALL, **files, "steps": 2}
    with pytest.raises(UserError, match=r"too many tokens are unknown.*dev 7\d.*--allow-unk"):
        train(None, "transformer", out=tmp_path / "run", listeners=[], **settings)
    assert not (tmp_path / "run").exists()
    run = train(None, "transformer", out=tmp_path / "run", listeners=[], allow_unk=True, **settings)
    assert run.metrics()["unknown"] > 70
    few = tmp_path / "few.csv"
    few.write_text("text,label\n很好很好,x\n不好,y\n", encoding="utf-8")
    settings |= {"data.dev": str(few), "data.test": str(few)}
    assert train(None, "transformer", out=tmp_path / "few", listeners=[], **settings).metrics()["unknown"] > 70


def test_the_best_model_is_kept_by_the_figure_asked_for(file, tmp_path):
    run = train(file, "transformer", out=tmp_path, listeners=[], metric="accuracy", **SMALL)
    assert run.config["keep"]["metric"] == "accuracy"
    found = [event for event in run.events() if event["event"] == "evaluation"]
    best = max(found, key=lambda event: event["metrics"]["accuracy"])
    assert run.events()[-1]["best_step"] == best["step"] or best["metrics"]["accuracy"] == max(
        event["metrics"]["accuracy"] for event in found if event["step"] == run.events()[-1]["best_step"]
    )
    with pytest.raises(UserError, match="have no such figure.*macro_f1"):
        train(file, "transformer", out=tmp_path / "other", listeners=[], metric="wer", **SMALL)


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_is_whole_and_says_what_to_expect(recipe):
    wanted = resolve(recipe, None, None, {})
    assert wanted.data_name in catalogue.CATALOGUE
    head = recipe.read_text(encoding="utf-8").split("[data]")[0]
    assert f"recipes/{recipe.name} --out" in head
