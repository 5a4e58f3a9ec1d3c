"""However a run is stopped, the same call goes on with it, to the same numbers."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from qkv.errors import UserError
from qkv.run.folder import read_events
from qkv.run.run import load
from qkv.training import lock
from qkv.training.events import Listener
from qkv.training.processes import Interrupted
from qkv.training.train import train

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal or limit")


class At(Listener):
    """A listener that does something at an event."""

    def __init__(self, kind, step, act):
        self.kind, self.step, self.act = kind, step, act

    def on(self, event):
        if (event["event"], event["step"]) == (self.kind, self.step):
            self.act()


def fail():
    raise RuntimeError("pulled the plug")


def interrupt():
    signal.raise_signal(signal.SIGINT)


def numbers(folder):
    """Every number of a run that doesn't depend on the clock."""
    clock = ("seconds", "tokens_per_s")
    events = [event for event in load(folder).events() if event["event"] != "start"]
    return [{key: value for key, value in event.items() if key not in clock} for event in events]


def same_run(folder, wanted):
    """Equal events, none twice, and equal weights."""
    assert numbers(folder) == numbers(wanted)
    assert (folder / "model.safetensors").read_bytes() == (wanted / "model.safetensors").read_bytes()


# Evaluations, and with them checkpoints, follow steps 8, 16 and 24.
MOMENTS = [("train", 1), ("train", 8), ("evaluation", 8), ("train", 9), ("train", 24), ("evaluation", 24), ("end", 24)]


@pytest.mark.parametrize(("kind", "step"), MOMENTS)
def test_a_run_that_failed_goes_on_from_its_checkpoint(words, tmp_path, finished_run, kind, step):
    with pytest.raises(RuntimeError, match="pulled the plug"):
        train("words", out=tmp_path, listeners=[At(kind, step, fail)], **words.settings)
    train("words", out=tmp_path, listeners=[], **words.settings)
    same_run(tmp_path, finished_run)


@pytest.mark.parametrize(("kind", "step"), [("train", 5), ("train", 8), ("evaluation", 16), ("train", 24)])
def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(words, tmp_path, finished_run, caplog, kind, step):
    before = signal.getsignal(signal.SIGINT)
    caplog.set_level("INFO", "qkv")
    with pytest.raises(Interrupted) as raised:
        train("words", out=tmp_path, listeners=[At(kind, step, interrupt)], **words.settings)
    assert signal.getsignal(signal.SIGINT) is before
    assert str(raised.value) == (
        f"stopped at step {step} of 24 and saved; the same command goes on from there ({tmp_path})"
    )
    assert "finishing this step, then saving" in caplog.text
    assert [event["step"] for event in read_events(tmp_path) if event["event"] == "train"] == list(range(1, step + 1))
    train("words", out=tmp_path, listeners=[], **words.settings)
    assert f"going on from step {step} of 24" in caplog.text
    same_run(tmp_path, finished_run)


def test_a_second_ctrl_c_stops_at_once_and_loses_only_what_was_not_saved(words, tmp_path, finished_run):
    def twice():
        interrupt()
        interrupt()

    with pytest.raises(KeyboardInterrupt) as raised:
        train("words", out=tmp_path, listeners=[At("train", 10, twice)], **words.settings)
    assert raised.type is KeyboardInterrupt
    train("words", out=tmp_path, listeners=[], **words.settings)
    same_run(tmp_path, finished_run)


def test_a_run_that_could_not_begin_closes_what_listens_and_frees_its_folder(words, tmp_path):
    class Closed(Listener):
        count = 0

        def close(self):
            self.count += 1

    ear, broken = Closed(), {"lr": 1e30, "clip": 0.0, "warmup": 0, "steps": 0, "minutes": 0.01}
    with pytest.raises(UserError, match="not finite") as raised:  # while the speed is measured
        train("words", out=tmp_path, listeners=[ear], **{**words.settings, **broken})
    assert ear.count == 1
    assert train("words", out=tmp_path, listeners=[], **words.settings).metrics()
    assert raised.tb is not None  # what it holds held the lock too


def test_a_listener_that_fails_to_close_keeps_nobody_else_open(words, tmp_path):
    class Stuck(Listener):
        def close(self):
            raise RuntimeError("stuck")

    with pytest.raises(RuntimeError, match="stuck") as raised:
        train("words", out=tmp_path, listeners=[Stuck()], **words.settings)
    assert read_events(tmp_path)[-1]["event"] == "end"
    lock.own(tmp_path).release()
    assert raised.tb is not None


def test_a_run_in_a_thread_leaves_signals_alone(words, tmp_path, finished_run):
    found = []

    def work():
        found.append(train("words", out=tmp_path, listeners=[], **words.settings).metrics())

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is before
    assert found == [load(finished_run).metrics()]


def test_a_damaged_checkpoint_is_said_and_without_it_the_run_begins_anew(words, tmp_path, finished_run):
    with pytest.raises(RuntimeError):
        train("words", out=tmp_path, listeners=[At("train", 10, fail)], **words.settings)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"checkpoint.pt is damaged \(.*delete .*checkpoint.pt.* to begin anew"):
        train("words", out=tmp_path, listeners=[], **words.settings)
    path.unlink()
    train("words", out=tmp_path, listeners=[], **words.settings)
    same_run(tmp_path, finished_run)


def test_a_best_model_that_is_gone_is_said_before_training_goes_on(words, tmp_path, finished_run):
    with pytest.raises(RuntimeError):
        train("words", out=tmp_path, listeners=[At("train", 10, fail)], **words.settings)
    (tmp_path / "model.safetensors").unlink()
    said = r"has no model.safetensors, the best model so far \(of step 8\): delete checkpoint.pt .*to begin anew"
    with pytest.raises(UserError, match=said):
        train("words", out=tmp_path, listeners=[At("train", 11, fail)], **words.settings)
    (tmp_path / "checkpoint.pt").unlink()
    train("words", out=tmp_path, listeners=[], **words.settings)
    same_run(tmp_path, finished_run)


def test_a_damaged_vocabulary_is_written_again_when_the_run_goes_on(words, tmp_path, finished_run, caplog):
    with pytest.raises(RuntimeError):
        train("words", out=tmp_path, listeners=[At("train", 10, fail)], **words.settings)
    for name in ("tokenizer.json", "target_tokenizer.json"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:100])
    caplog.set_level("INFO", "qkv")
    train("words", out=tmp_path, listeners=[], **words.settings)
    assert "training on cpu in float32 (as before)" in caplog.text
    same_run(tmp_path, finished_run)


def test_lines_that_a_crash_cut_or_wrote_ahead_are_not_counted_twice(words, tmp_path, finished_run):
    with pytest.raises(RuntimeError):
        train("words", out=tmp_path, listeners=[At("train", 12, fail)], **words.settings)
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"event": "evaluation", "step": 12, "metrics": {}}\n{"event": "train", "st')
    train("words", out=tmp_path, listeners=[], **words.settings)
    same_run(tmp_path, finished_run)


def test_what_a_killed_process_left_half_written_is_in_nobodys_way(words, tmp_path):
    (tmp_path / "config.toml.4321.part").write_text("[mod", encoding="utf-8")
    train("words", out=tmp_path, listeners=[], **{**words.settings, "steps": 1})
    assert list(tmp_path.glob("*.part")) == []


@posix
def test_a_full_disk_is_said_and_the_run_goes_on_from_the_previous_checkpoint(words, tmp_path, finished_run):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        # Room for some of the lines that wait, for no checkpoint.
        size = (tmp_path / "metrics.jsonl").stat().st_size + 100
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    try:
        with pytest.raises(UserError, match=r"cannot write .*: File too large"):
            train("words", out=tmp_path, listeners=[At("train", 12, fill)], **words.settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.glob("*.part")) == []
    train("words", out=tmp_path, listeners=[], **words.settings)
    same_run(tmp_path, finished_run)


LONG = {"steps": 400, "evaluations": 20}


@posix
@pytest.mark.slow
def test_killed_at_ten_random_moments_a_run_ends_in_the_same_numbers(words, tmp_path):
    long_run = tmp_path / "uninterrupted"
    words.run("train", "--out", long_run, *words.arguments(**LONG))
    out, draw, killed = tmp_path / "run", random.Random(os.getpid()), 0
    while killed < 10:
        process = words.start("train", "--out", out, *words.arguments(**LONG))
        for line in process.stderr:
            if line.startswith("training on"):
                break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0.0, 0.8))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        assert process.returncode in (-signal.SIGKILL, 0)
        if process.returncode == 0:
            break  # it was done before the moment came
    words.run("train", "--out", out, *words.arguments(**LONG))
    assert killed >= 5
    same_run(out, long_run)


@posix
@pytest.mark.slow
def test_ctrl_c_on_the_command_line(words, tmp_path, finished_run):
    out = tmp_path / "run"
    process = words.start("train", "--out", out, *words.arguments(steps=5000, evaluations=500))
    while not (out / "checkpoint.pt").exists():
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == ""
    assert "finishing this step, then saving" in err
    assert "of 5000 and saved; the same command goes on from there" in err
    assert "Traceback" not in err
    steps = [event["step"] for event in read_events(out) if event["event"] == "train"]
    assert steps == list(range(1, steps[-1] + 1))
