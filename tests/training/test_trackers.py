"""Trackers hear what a run does, and a bad one costs no training."""

import logging
import sys

import pytest

from qkv.errors import UserError
from qkv.run.run import load
from qkv.training.events import Listener
from qkv.training.train import train

TEN_LINES = """
from pathlib import Path
from qkv.training.events import Listener

class Diary(Listener):
    def on(self, event):
        if event["event"] == "start":
            self.file = Path(event["run"]) / "diary.txt"
            self.file.write_text(f"d_model {event['config']['model']['d_model']}\\n", encoding="utf-8")
        elif event["event"] == "evaluation":
            with self.file.open("a", encoding="utf-8") as file:
                file.write(f"{event['step']} {event['metrics']['per']}\\n")
"""


@pytest.fixture
def diary(tmp_path):
    path = tmp_path / "diary.py"
    path.write_text(TEN_LINES, encoding="utf-8")
    return path


def test_a_tracker_of_ones_own_hears_the_whole_run(words, tmp_path, diary):
    run = train("words", out=tmp_path / "run", listeners=[], track=[f"{diary}:Diary"], **words.settings)
    said = (tmp_path / "run" / "diary.txt").read_text(encoding="utf-8").splitlines()
    found = [event for event in run.events() if event["event"] == "evaluation"]
    assert said == ["d_model 16", *(f"{event['step']} {event['metrics']['per']}" for event in found)]
    assert "config" not in run.events()[0]
    assert "run" not in run.events()[0]


def test_the_curves_of_tensorboard_are_those_of_the_run_also_when_it_was_stopped(words, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class Fail(Listener):
        def on(self, event):
            if (event["event"], event["step"]) == ("train", 13):
                raise RuntimeError("pulled the plug")

    with pytest.raises(RuntimeError):
        train("words", out=tmp_path, listeners=[Fail()], track=["tensorboard"], **words.settings)
    run = train("words", out=tmp_path, listeners=[], track=["tensorboard"], **words.settings)
    curves = EventAccumulator(str(tmp_path / "tensorboard"))
    curves.Reload()
    found = {event.step: event.value for event in curves.Scalars("train/loss")}
    assert found == pytest.approx({e["step"]: e["loss"] for e in run.events() if e["event"] == "train"}, rel=1e-6)
    dev = {event.step: event.value for event in curves.Scalars("dev/per")}
    assert dev == pytest.approx({e["step"]: e["metrics"]["per"] for e in run.events() if e["event"] == "evaluation"})
    assert curves.Scalars("test/wer")[-1].value == pytest.approx(run.metrics()["wer"])


@pytest.mark.parametrize("moment", ["on", "flush", "close"])
def test_a_tracker_that_fails_is_said_once_and_training_goes_on(words, tmp_path, caplog, moment, finished_run):
    path = tmp_path / "bad.py"
    quiet = "from qkv.training.events import Listener\n\nclass Bad(Listener):\n    def on(self, event):\n        pass\n"
    failing = f"    def {moment}(self, *event):\n        raise OSError('no network')\n"
    path.write_text(quiet + failing, encoding="utf-8")
    with caplog.at_level(logging.WARNING, "qkv"):
        run = train("words", out=tmp_path / "run", listeners=[], track=[f"{path}:Bad"], **words.settings)
    assert caplog.text.count("bad.py:Bad failed (OSError: no network) and hears no more; training goes on") == 1
    assert run.metrics() == load(finished_run).metrics()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wandb", "unknown tracker 'wandb': tensorboard, or FILE.py:CLASS"),
        ("nowhere.py:Mine", "there is no file nowhere.py"),
        ("{diary}:Dairy", "has no attribute 'Dairy'"),
        ("{diary}:Path", "it has no on(); make it a subclass of qkv.training.events.Listener"),
    ],
)
def test_a_tracker_that_cannot_be_is_refused_before_training(words, tmp_path, diary, name, said):
    with pytest.raises(UserError) as raised:
        train("words", out=tmp_path / "run", listeners=[], track=[name.format(diary=diary)], **words.settings)
    assert said in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_tensorboard_that_is_not_installed_is_named_with_what_installs_it(words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UserError, match=r'pip install "qkv\[track\]"'):
        train("words", out=tmp_path / "run", listeners=[], track=["tensorboard"], **words.settings)


QUIET = "from qkv.training.events import Listener\n\nclass Own(Listener):\n    def on(self, event):\n"


def test_what_a_tracker_does_to_an_event_reaches_nobody_else(words, tmp_path, finished_run):
    path = tmp_path / "own.py"
    path.write_text(f"{QUIET}        event.get('metrics', {{}}).clear()\n        event.clear()\n", encoding="utf-8")
    run = train("words", out=tmp_path / "run", listeners=[], track=[f"{path}:Own"], **words.settings)
    assert run.metrics() == load(finished_run).metrics()
    assert all(event["metrics"] for event in run.events() if event["event"] == "evaluation")


def test_a_tracker_that_wants_to_exit_costs_no_training(words, tmp_path, caplog):
    path = tmp_path / "own.py"
    path.write_text(f"{QUIET}        raise SystemExit(0)\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING, "qkv"):
        run = train("words", out=tmp_path / "run", listeners=[], track=[f"{path}:Own"], **words.settings)
    assert run.metrics()
    assert "own.py:Own failed (SystemExit: 0)" in caplog.text
    path.write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    with pytest.raises(UserError, match="SystemExit: 0"):
        train("words", out=tmp_path / "other", listeners=[], track=[f"{path}:Own"], **words.settings)


def test_what_a_tracker_prints_goes_to_standard_error(words, tmp_path, capsys):
    path = tmp_path / "own.py"
    path.write_text(f"print('read')\n{QUIET}        print('heard')\n", encoding="utf-8")
    train("words", out=tmp_path / "run", listeners=[], track=[f"{path}:Own"], **words.settings)
    out, err = capsys.readouterr()
    assert out == ""
    assert {"read", "heard"} <= set(err.splitlines())


def test_a_tracker_may_be_a_dataclass_with_postponed_annotations(words, tmp_path):
    path = tmp_path / "own.py"
    kept = "@dataclass\nclass Kept(Listener):\n    heard: int = 0\n"
    future = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    path.write_text(f"{future}{QUIET}        pass\n\n{kept}", encoding="utf-8")
    assert train("words", out=tmp_path / "run", listeners=[], track=[f"{path}:Kept"], **words.settings).metrics()
