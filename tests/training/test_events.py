"""What a run says: to a file in one piece, to a person with rate and time left."""

import io
import json
import time

import pytest

from qkv.errors import UserError
from qkv.training.events import JsonLines, Progress, counting

TRAIN = {"event": "train", "step": 3, "loss": 1.2345, "tokens_per_s": 12345.6}
EVALUATION = {"event": "evaluation", "step": 5, "metrics": {"loss": 0.5, "wer": 31.25}}


def test_lines_wait_for_a_flush_and_are_written_once(tmp_path):
    lines, path = JsonLines(tmp_path), tmp_path / "metrics.jsonl"
    lines.on(TRAIN)
    lines.on(EVALUATION)
    assert not path.exists()
    lines.flush()
    lines.flush()
    lines.on({"event": "end", "step": 5})
    lines.flush()
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert found == [TRAIN, EVALUATION, {"event": "end", "step": 5}]


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    lines = JsonLines(tmp_path)
    lines.on(TRAIN)
    with pytest.raises(UserError, match=r"cannot write .*metrics.jsonl"):
        lines.flush()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when a test says so."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_without_a_terminal_a_line_every_ten_seconds_with_rate_and_time_left(capsys, clock):
    progress = Progress()
    progress.on({"event": "start", "step": 20, "steps": 100})
    for step in range(21, 71):
        clock.now += 0.5
        progress.on({**TRAIN, "step": step})
    progress.flush()
    progress.on({"event": "end", "step": 100})
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "step 40/100: loss 1.234, 12,346 tokens/s, 30 s left",
        "step 60/100: loss 1.234, 12,346 tokens/s, 20 s left",
    ]


def test_every_evaluation_is_said(capsys):
    progress = Progress()
    progress.on({"event": "start", "step": 0, "steps": 100})
    progress.on(EVALUATION)
    progress.close()
    assert capsys.readouterr().err == "step 5/100: dev loss 0.50 wer 31.25\n"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_on_a_terminal_a_bar_that_is_gone_at_the_end(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    progress = Progress()
    progress.on({"event": "start", "step": 2, "steps": 10})
    progress.on(TRAIN)
    progress.on(EVALUATION)
    progress.close()
    progress.close()
    shown = screen.getvalue()
    assert "step 3/10" in shown
    assert "loss 1.234, 12,346 tokens/s" in shown
    assert "dev loss 0.50 wer 31.25" in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the line of the bar is erased
    assert "\x1b[?25h" in shown  # and the cursor is back


def test_a_terminal_that_cannot_show_the_bar_gets_lines(monkeypatch):
    screen = Terminal()
    screen.encoding = "cp1252"
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    progress = Progress()
    progress.on({"event": "start", "step": 0, "steps": 10})
    progress.on(EVALUATION)
    progress.close()
    assert screen.getvalue().splitlines() == ["step 5/10: dev loss 0.50 wer 31.25"]


def test_long_work_says_how_much_is_done_and_the_time_left(clock, caplog):
    caplog.set_level("INFO", logger="qkv")
    advance = counting(400, "scored")
    for _ in range(4):
        clock.now += 6
        advance(100)
    assert [record.getMessage() for record in caplog.records] == ["scored 200 of 400, 12 s left"]
