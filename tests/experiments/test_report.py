"""The report: one offline page in which every text is text, readable by keyboard, and written whole or not at all."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
import torch

from qkv.errors import UserError
from qkv.experiments.report import (
    Attention,
    Curve,
    Example,
    Metric,
    NextStep,
    PositionTable,
    Summary,
    differences,
    write_report,
)
from qkv.inspection.record import record
from qkv.inspection.shapes import trace
from qkv.models.encoder_decoder import EncoderDecoderConfig, build
from qkv.nn.positions import sinusoid

NASTY = "</script><img src=x onerror=alert(1)>"
VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """The document as (tag, attributes) in order and the text under each tag; unbalanced tags raise."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._open = [], [], []
        self.feed(text)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", data))

    def of(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    def said(self, tag):
        return [text for under, text in self.texts if under == tag]


SUMMARY = Summary(
    lead="Trained for two minutes.", data="cmudict, 125,770 words", split="1/20 test by hash of the word", seeds=[0, 7],
    scoring="beam 5, any listed pronunciation counts", facts=[("Model", "3 + 3 layers")],
)  # fmt: skip
METRICS = [Metric("WER", 37.64, 92.4, "most frequent sound", meaning="words wrong"), Metric("PER", 9.31)]


def attention(title, source, target, heads=4):
    weights = torch.randn(heads, len(target), len(source)).mul(3).softmax(-1)
    return Attention(title, target, source, weights, ("target token", "source token"), "decoder.blocks.0")


@pytest.fixture(scope="module")
def full():
    torch.manual_seed(0)
    model = build(EncoderDecoderConfig(d_model=32, n_heads=4, d_ff=64, n_layers=3), 30, 40).eval()
    inputs = {"source": torch.randint(4, 30, (2, 9)), "target": torch.randint(4, 40, (2, 7))}
    with torch.no_grad(), record(model) as seen:
        model(**inputs)
    first = seen[0]
    tokens = [f"s{i}" for i in range(9)]
    words = ["transformer", "attention", "knight", "through", "psychology", NASTY[:12]]
    phonemes = ["T", "R", "AE", "N", "S", "F", "AO", "R", "M", "ER"]
    return {
        "title": "Words to sounds", "summary": SUMMARY, "metrics": METRICS,
        "learning": [
            Curve("Loss", {"train": [(i, 3 / (1 + i / 99)) for i in range(300)], "dev": [(100, 2.0), (200, 1.5)]}),
            Curve("WER on dev", {"dev": [(100, 90.0), (200, 60.0)]}, y_label="%", reference=("baseline", 92.4)),
        ],
        "unseen": [Example("blorp", "B L AO R P", score=-0.25), Example(NASTY, "EH R"), Example("\u732b", "M AW")],
        "unseen_title": "Words in no dictionary",
        "examples_right": [Example("hello", "HH AH L OW", ["HH AH L OW", "HH EH L OW"], -0.1)],
        "examples_wrong": [Example("yacht", "Y AE CH T", ["Y AA T"], -0.7)],
        "alignments": [attention(word, list(word), phonemes) for word in words],
        "self_attention": Attention("a sentence", tokens, tokens, first.weights[0, 0], first.axes),
        "shapes": trace(model, inputs),
        "positions": PositionTable(sinusoid(torch.arange(64), 32), [2 * math.pi] * 32, "Sinusoids."),
        "next_steps": [NextStep("Train longer.", "qkv train --data cmudict --minutes 40")],
    }  # fmt: skip


@pytest.fixture(scope="module")
def written(full, tmp_path_factory):
    return write_report(tmp_path_factory.mktemp("run") / "report" / "index.html", **full)


@pytest.fixture(scope="module")
def page(written):
    return Page(written.read_text(encoding="utf-8"))


def test_every_section_is_there_in_order_and_linked(page):
    sections = [attrs["id"] for attrs in page.of("section")]
    assert sections == [
        "numbers", "learning", "unseen", "examples", "alignment", "self-attention", "shapes", "positions", "next"
    ]  # fmt: skip
    links = [attrs["href"] for attrs in page.of("a")]
    assert links == ["#content", *(f"#{section}" for section in sections)]
    assert "Words in no dictionary" in page.said("h2")


def test_numbers_stand_beside_the_baseline_with_what_they_are_about(page):
    assert page.said("span")[:4] == ["WER", "37.6", "most frequent sound: 92.4 %", "words wrong"]
    assert page.said("dd") == [SUMMARY.data, SUMMARY.split, "0, 7", SUMMARY.scoring, "3 + 3 layers"]
    assert page.said("dt") == ["Data", "Split", "Seeds", "Scoring", "Model"]


def test_every_text_is_text(full, tmp_path):
    def nasty(value):
        if isinstance(value, str):
            return f"{value}{NASTY}&amp;'\""
        if isinstance(value, (list, tuple)):
            return type(value)(nasty(part) for part in value)
        if isinstance(value, dict):
            return {nasty(name): part for name, part in value.items()}
        if isinstance(value, int):
            return value
        names = [n for n, part in vars(value).items() if isinstance(part, (str, list, tuple, dict))]
        return replace(value, **{n: nasty(getattr(value, n)) for n in names})

    infected = {name: nasty(value) if name not in ("positions", "learning") else value for name, value in full.items()}
    infected["learning"] = [Curve(NASTY, {NASTY: [(0, 1.0), (1, 0.5)]}, NASTY, NASTY, (NASTY, 0.7))]
    page = Page(write_report(tmp_path / "index.html", **infected).read_text(encoding="utf-8"))
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img", "iframe", "object", "link", "base"})
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    for tag in ("title", "h1", "h2", "dd", "th", "bdi", "text", "code", "figcaption", "li"):
        assert any(NASTY in text for text in page.said(tag)), f"the text under <{tag}> was lost"
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_the_page_is_offline(page, written):
    text = written.read_text(encoding="utf-8")
    policy = next(attrs["content"] for attrs in page.of("meta") if attrs.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    for tag, attrs in page.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href"):
            assert attrs.get(name, "#").startswith(("#", "data:image/png;base64,")), (tag, attrs)
    assert not re.search(r"@import|url\((?!#)|https?://", text)


def test_it_can_be_read_by_keyboard_and_aloud(page):
    assert page.of("html") == [{"lang": "en"}]
    assert len(page.of("h1")) == 1
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    first = next(attrs for tag, attrs in page.tags if tag in ("a", "button", "summary", "input"))
    assert first == {"class": "skip", "href": "#content"}
    assert any(attrs.get("id") == "content" for attrs in page.of("main"))
    scrolling = [attrs for _, attrs in page.tags if attrs.get("class") == "scroll"]
    assert len(scrolling) >= 13
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in scrolling)
    pictures = page.of("svg")
    assert len(pictures) == 2 + 6 + 1 + 2
    assert all(attrs["role"] == "img" and len(attrs["aria-label"]) > 10 for attrs in pictures)
    assert all(attrs["scope"] in ("row", "col") for attrs in page.of("th"))


def test_it_follows_light_dark_and_paper(written):
    text = written.read_text(encoding="utf-8")
    assert "@media (prefers-color-scheme: dark)" in text
    assert "@media print" in text
    assert '<meta name="color-scheme" content="light dark">' in text
    assert text.count("currentColor") > 100
    assert "Noto Sans CJK SC" in text


def test_each_alignment_shows_all_heads_with_its_labels(page):
    labels = [attrs["aria-label"] for attrs in page.of("svg") if attrs["aria-label"].startswith("Attention weights")]
    assert labels[0] == "Attention weights of transformer: rows are target tokens, columns source tokens"
    assert len(labels) == 7
    assert page.said("text").count("head 3") == 6
    assert set("transformer") | {"AE", "ER"} <= set(page.said("text"))


def test_all_steps_are_listed_and_folded(page, full):
    assert page.said("summary") == [f"{len(full['shapes'])} steps"]
    assert page.of("details") == [{}], "folded at first"
    assert page.said("span").count("(B, H, Tq, Tk)") == 9 * 2
    assert "(2, 4, 7, 9)" in page.said("span")


def test_what_differs_is_marked_and_nothing_else(page):
    assert page.said("mark") == ["AE CH"]
    wrong = Example("w", "A B C D", ["X Y", "A B D D E"])
    assert differences(wrong) == [("A B", False), (" ", False), ("C", True), (" ", False), ("D", False)]
    assert differences(Example("w", "abc", ["adc"])) == [("a", False), ("b", True), ("c", False)]
    assert differences(Example("w", "abc")) == [("abc", False)]
    assert differences(Example("w", "", ["a"])) == []
    for example in (wrong, Example("w", "a  b", ["a b"]), Example("w", " x", ["x"])):
        assert "".join(text for text, _ in differences(example)) == example.output


def test_what_is_empty_has_no_section(tmp_path):
    path = write_report(tmp_path / "index.html", title="t", summary=SUMMARY, metrics=METRICS[1:])
    page = Page(path.read_text(encoding="utf-8"))
    assert [attrs["id"] for attrs in page.of("section")] == ["numbers"]
    assert [attrs["href"] for attrs in page.of("a")] == ["#content", "#numbers"]
    assert page.of("svg") == []
    assert not [attrs for attrs in page.of("span") if attrs.get("class") == "beside"], "no baseline, none shown"


@pytest.mark.slow
def test_the_size_of_a_full_page_is_bounded(full, tmp_path):
    words = ["internationalizations", "misunderstandings"]
    big = full | {
        "alignments": [attention(w, list(w), [f"P{i}" for i in range(20)], heads=8) for w in words * 3],
        "self_attention": Attention("s", ["w"] * 60, ["w"] * 60, torch.rand(60, 60)),
        "shapes": full["shapes"] * 3,
        "positions": PositionTable(sinusoid(torch.arange(256), 512)),
    }
    assert write_report(tmp_path / "index.html", **big).stat().st_size <= 3_000_000


def test_the_same_report_is_the_same_file(full, written, tmp_path):
    assert write_report(tmp_path / "index.html", **full).read_bytes() == written.read_bytes()


def test_an_older_page_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "\u62a5\u544a of a run" / "index.html"
    for title in ("first", "second \ud800"):  # a lone surrogate has no UTF-8
        assert write_report(str(path), title=title, summary=SUMMARY, metrics=METRICS) == path
    assert "second \\ud800" in path.read_text(encoding="utf-8")
    assert list(path.parent.iterdir()) == [path]


def test_a_path_that_cannot_be_written_is_said_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "index.html", tmp_path / "folder"):
        with pytest.raises(UserError, match="cannot write the report to .*" + path.name):
            write_report(path, title="t", summary=SUMMARY, metrics=METRICS)
    with pytest.raises(UserError, match="a file such as report.html is needed"):
        write_report(".", title="t", summary=SUMMARY, metrics=METRICS)
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_weights_that_do_not_fit_are_refused_before_anything_is_written(tmp_path):
    wrong = Attention("t", ["a"], ["b"], torch.zeros(2, 2))
    with pytest.raises(ValueError, match="do not fit"):
        write_report(tmp_path / "x.html", title="t", summary=SUMMARY, metrics=METRICS, self_attention=wrong)
    assert list(tmp_path.iterdir()) == []
