"""`qkv demo`: what it promises, what it leaves, and that what it recommends can be typed."""

import json
import math
import re
import shlex
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from qkv.cli.options import settings_from
from qkv.data import catalogue, cmudict
from qkv.errors import UserError
from qkv.experiments import demo
from qkv.run.config import read_toml
from qkv.run.run import load
from qkv.training.settings import resolve

ROOT = Path(__file__).parents[2]
POINTS = [[100_000, 80.0], [1_000_000, 50.0], [400_000, 60.0]]


@pytest.fixture
def curve(monkeypatch, tmp_path):
    path = tmp_path / "curve.json"
    path.write_text(json.dumps({"points": POINTS}), encoding="utf-8")
    monkeypatch.setattr(demo, "CURVE", path)


def test_the_expected_error_lies_on_straight_lines_in_the_logarithm_of_tokens(curve):
    for tokens, wer in POINTS:
        assert demo.expected_wer(tokens) == pytest.approx(wer)
    assert demo.expected_wer(math.sqrt(100_000 * 400_000)) == pytest.approx(70.0)
    assert demo.expected_wer(400_000 * 2.5**0.25) == pytest.approx(57.5)
    assert demo.expected_wer(99_999) is None
    assert demo.expected_wer(1_000_001) is None


def test_the_measured_curve_is_of_this_demo_and_gets_better_with_tokens():
    measured = json.loads(demo.CURVE.read_text(encoding="utf-8"))
    points = sorted(measured["points"])
    assert len(points) >= 4
    assert [wer for _, wer in points] == sorted((wer for _, wer in points), reverse=True)
    assert all(demo.expected_wer(tokens) == pytest.approx(wer) for tokens, wer in points)
    config = read_toml(demo.CONFIG)
    del config["training"]["minutes"]
    assert measured["config"] == config


@pytest.mark.parametrize(("baseline", "ahead"), [(0.0, "The baseline is still ahead"), (100.1, "The Transformer is")])
def test_the_verdict_says_who_is_ahead_and_how_much_was_read(finished_run, baseline, ahead):
    made = demo.Demo(load(finished_run), Path("page"), {"wer": baseline, "per": baseline}, [], passes=1.25)
    assert made.verdict.startswith(ahead)
    assert "1.2 times" in made.verdict


def test_what_is_recommended_can_be_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    for step in demo.next_steps(Path("runs/demo")):
        program, verb, *arguments = shlex.split(step.command)
        assert program == "qkv"
        assert step.text
        if verb != "train":
            assert arguments[0] == str(Path("runs/demo"))
            continue
        settings = settings_from(arguments)
        settings.pop("out")
        assert resolve(settings.pop("config", None), None, None, settings).training


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minutes": 0.0}, "how long to train is not said"),
        ({"minutes": -1.0}, "training: minutes must be"),
        ({"device": "cpuu"}, "unknown device 'cpuu'"),
    ],
)
def test_mistakes_are_said_before_any_work(tmp_path, monkeypatch, settings, message):
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=message):
        demo.run_demo(tmp_path / "demo", **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_another_run_is_refused_before_any_work(finished_run, tmp_path, monkeypatch):
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="other settings: data.name is 'words' there and 'cmudict' here"):
        demo.run_demo(finished_run)
    assert list(tmp_path.iterdir()) == []


class Links(HTMLParser):
    """Everything that a page would fetch."""

    def __init__(self, text):
        super().__init__()
        self.found = re.findall(r"url\(\s*['\"]?(?!data:|#)([^)]*)", text) + re.findall(r"@import[^;]*", text)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "action") and not value.startswith(("#", "data:")):
                self.found.append(f"{tag} {name}={value}")


@pytest.fixture
def fewer_words(monkeypatch):
    """The real dictionary, one word in eighty of it, with the demo's first word."""
    entry = catalogue.entry("cmudict")

    def read(path, **options):
        pairs = cmudict.load(path, **options)
        shown = [e for split in pairs.splits.values() for e in split if e.source == demo.FIRST_WORD]
        return replace(pairs, train=pairs.train[::80] + shown, dev=pairs.dev[::80], test=pairs.test[::80])

    monkeypatch.setitem(catalogue.CATALOGUE, "cmudict", replace(entry, read=read))


@pytest.mark.slow
def test_the_demo_shows_trains_scores_and_leaves_one_offline_page(qkv, fewer_words, tmp_path):
    out = tmp_path / "the [b] 演示"
    found = qkv.json("demo", "--minutes", "0.05", "--out", out)
    assert set(found) >= {"run", "report", "wer", "per", "baseline", "new_words"}
    assert set(found["baseline"]) == {"wer", "per"}
    assert len(found["new_words"]) == 10
    assert all(set(said.split()) <= set(load(out).task.target._names) for said in found["new_words"].values())
    page = Path(found["report"]).read_text(encoding="utf-8")
    for words in ("WER", "PER", "longest known context", f"{found['baseline']['wer']:.2f}", *found["new_words"]):
        assert words in page
    assert Links(page).found == []
    picture = tmp_path / "the [b] 演示-first-look.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert set(tmp_path.iterdir()) == {out, picture}

    said, _ = qkv("demo", "--minutes", "0.05", "--out", out)
    assert f"{found['wer']:.1f}" in said
    assert f"The report, one offline page: {out / 'report' / 'index.html'}\n" in said
    assert str(picture) in said.replace("\n", "")
    assert "What to try next" in said
    assert "cross_attention" in said
    step = next(step for step in demo.next_steps(out) if "predict" in step.command)
    program, verb, folder, *arguments = shlex.split(step.command)
    assert (program, verb, folder) == ("qkv", "predict", str(out))
    lines, _ = qkv("predict", folder, *arguments)
    assert lines.count("\n") == 2 * 3
    assert "training.minutes is 0.05 there and 0.2 here" in qkv.refused("demo", "--minutes", "0.2", "--out", out)


@pytest.mark.slow
def test_the_first_look_takes_seconds_and_says_what_to_expect(fewer_words, tmp_path, curve):
    with (tmp_path / "said.txt").open("w", encoding="utf-8") as file:
        console = Console(file=file, width=160)
        pairs = catalogue.load("cmudict")
        started = time.process_time()
        demo.first_look(pairs, resolve(demo.CONFIG, None, None, {}), tmp_path / "look.png", console)
        assert time.process_time() - started < 5.0
        demo._Expectation(console).on({"event": "start", "steps": 1234, "expected_tokens": 1_000_000})
        demo._Expectation(console).on({"event": "start", "steps": 1, "expected_tokens": 10})
        demo._Expectation(console).on({"event": "start", "steps": 9, "expected_tokens": 9_000_000})
    said = (tmp_path / "said.txt").read_text(encoding="utf-8")
    for words in ("scores", "weights", "heads", "cross_attention", "look.png"):
        assert words in said
    assert "1,234 steps, 1,000,000 tokens, about 50 % WER on test" in said
    assert "1 steps, 10 tokens, more than 80 % WER on test" in said
    assert "9 steps, 9,000,000 tokens, less than 50 % WER on test" in said
