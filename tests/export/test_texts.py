"""Runs that classify and tag, exported and used by a program that knows neither torch nor qkv."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from qkv.errors import UserError
from qkv.export import check, texts, texts_caller
from qkv.export.onnx import export_run
from qkv.run.run import load
from qkv.training.train import train

FILES = {"model.onnx", "task.json", "tokenizer.json", "caller.py", "README.md", "export.json"}
TINY = {"batch_tokens": 512, "precision": "float32", "steps": 20, "lr": 3e-3}
SMALL = {"d_model": 16, "d_ff": 32, "n_layers": 1}
ADJECTIVES = {"good": ["lovely", "warm", "clever", "很好"], "bad": ["dull", "cold", "grey", "很差"]}

CALL = """
import runpy, sys
sys.argv = ["caller.py", *sys.argv[1:]]
runpy.run_path("caller.py", run_name="__main__")
assert not {"torch", "qkv"} & set(sys.modules)
"""


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(check, "THREADS", 1)


@pytest.fixture(scope="module")
def rows():
    names = ["film", "story", "cast", "music", "ending", "camera", "hero", "plot"]
    return [
        (f"the {a} is {word} and the {b} is {words[len(b) % 4]}", label)
        for a in names for b in names if a != b for label, words in ADJECTIVES.items() for word in words[:2]
    ]  # fmt: skip


def trained(folder, text, name, model="transformer", **settings):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    shape = SMALL if model == "transformer" else {}
    training = {} if model == "ngrams" else TINY
    return train(str(path), model, out=folder / "run", listeners=[], **training, **shape, **settings)


def answers_of(folder, *given):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CALL, *given], cwd=folder, capture_output=True, encoding="utf-8", env=environment
    )
    return done.stdout, done.stderr, done.returncode


def lines_of(run, given):
    found = zip(given, run.predict(given), strict=True)
    return "".join(f"{text}\t{one.output}\t{one.score:.3f}\n" for text, one in found)


@pytest.mark.slow
def test_a_classifier_and_its_baseline_answer_as_they_do_here(rows, tmp_path):
    csv = "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)
    trained(tmp_path, csv, "reviews.csv", **{"task.window": 10})
    given = ["the film is lovely", "the cast is 很差 and cold", "zzz", "the plot is dull " * 9]
    for name in (".", "baseline"):
        run = load(tmp_path / "run" / name)
        report = export_run(run, tmp_path / "出" / "one", int8=True)
        folder = report.folder
        assert {path.name for path in folder.iterdir()} == FILES | {"model.int8.onnx"}
        assert json.loads((folder / "export.json").read_text(encoding="utf-8")) == json.loads(
            json.dumps(report.as_json())
        )
        found = report.figures["float32"].agreement
        assert found.same == found.words > 5
        assert answers_of(folder, *given) == (lines_of(run, given), "", 0)
        assert answers_of(folder, "--int8", *given)[0].count("\n") == len(given)
        assert answers_of(folder, "")[1:] == ("error: '': a text is expected\n", 1)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["mean", "max", "first"])
def test_pairs_of_texts_are_read_in_the_same_windows(rows, tmp_path, pool):
    both = zip(rows, rows[3:], strict=False)
    csv = "a\tb\tlabel\n" + "".join(f"{one}\t{other}\t{label}\n" for (one, label), (other, _) in both)
    table = {"data.text": "a", "data.second": "b", "data.label": "label"}
    run = load(trained(tmp_path, csv, "pairs.tsv", "ngrams", **table, **{"task.window": 12, "task.pool": pool}).folder)
    given = [f"{'the film is lovely ' * n}\t{'the hero is cold ' * m}" for n in (1, 3, 9) for m in (1, 2, 7)]
    folder = export_run(run, tmp_path / "out", words=given).folder
    assert answers_of(folder, *given)[0] == lines_of(run, given)
    assert "FIRST<tab>SECOND" in answers_of(folder, "alone")[1]


@pytest.mark.slow
def test_of_several_labels_all_that_hold_are_said(rows, tmp_path):
    csv = "text;labels\n" + "".join(f"{text};{label}|{'很' if '很' in text else 'plain'}\n" for text, label in rows)
    settings = {"data.text": "text", "data.label": "labels", "data.several": "|", "task.threshold": 0.3}
    run = load(trained(tmp_path, csv, "several.csv", "ngrams", **settings).folder)
    given = [text for text, _ in rows[:7]] + ["film", "zzz"]
    folder = export_run(run, tmp_path / "out", words=given).folder
    assert answers_of(folder, *given)[0] == lines_of(run, given)
    assert " | " in answers_of(folder, *given)[0]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["transformer", "ngrams"])
@pytest.mark.parametrize("valid", [True, False])
def test_a_tagger_says_one_tag_a_word_and_only_what_can_be(tmp_path, model, valid):
    people, places = ["Ana Lee", "Bo", "Chen Wu", "Dora"], ["New York", "Oslo", "Quito", "Riga"]

    def tagged(name, kind):
        return "".join(f"{word} {'IB'[place == 0]}-{kind}\n" for place, word in enumerate(name.split()))

    blocks = [f"{tagged(a, 'PER')}left O\n{tagged(b, 'LOC')}" for a in people for b in places for _ in range(3)]
    settings = {"task.window": 8, "task.valid": valid, "data.symbols": "bpe:70"}
    run = load(trained(tmp_path, "\n".join(blocks), "names.conll", model, **settings).folder)
    given = ["Ana Lee left New York", "York left left Bo", "Riga", "Ana Lee left New York and " * 6 + "Bo"]
    folder = export_run(run, tmp_path / "out", words=given).folder
    assert answers_of(folder, *given) == (lines_of(run, given), "", 0)
    assert (json.loads((folder / "task.json").read_text(encoding="utf-8"))["rules"] is None) == (not valid)
    assert "words are expected" in answers_of(folder, " ")[1]


@pytest.mark.slow
def test_a_graph_that_says_something_else_is_no_export(rows, tmp_path, monkeypatch):
    csv = "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)
    run = load(trained(tmp_path, csv, "reviews.csv", "ngrams").folder)
    monkeypatch.setattr(texts_caller, "log_softmax", lambda logits: np.flip(logits, -1))
    with pytest.raises(UserError, match=r"differs from torch in \d+ of 10 texts, first in 'the .*nothing was exported"):
        export_run(run, tmp_path / "out", words=[text for text, _ in rows[:10]])
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="no texts to compare"):
        export_run(run, tmp_path / "out", words=["", " "])


def test_few_answers_that_differ_where_both_are_as_probable_are_rounding_and_many_are_not():
    right = [("a", 0.5)] * 200
    found, wrong = texts._agreement([("b", 0.50001), *right[1:]], right)
    assert (found.same, found.near_ties, wrong) == (199, 1, [])
    found, wrong = texts._agreement([("b", 0.6), *right[1:]], right)
    assert (found.near_ties, wrong) == (0, [0])
    assert texts._agreement([("b", 0.5)] * 200, right)[1] == list(range(200))
    assert texts._agreement([("a", 0.7), *right[1:]], right)[1] == [0]


def test_a_model_of_masked_words_is_refused(tmp_path):
    names = [
        "Oslo",
        "Riga",
        "Lima",
        "Rome",
        "Bonn",
        "Kyiv",
        "Bern",
        "Baku",
        "Cork",
        "Doha",
        "Faro",
        "Giza",
        "Hilo",
        "Jena",
        "Kobe",
        "Lodz",
    ]
    text = "\n".join(f"Ana went from {a} to {b} ." for a in names for b in names)
    run = load(trained(tmp_path, text, "lines.txt", **{"task": "masked_lm", "data.symbols": "words"}).folder)
    with pytest.raises(UserError, match="transformer for the task masked_lm, which cannot be exported yet"):
        export_run(run, tmp_path / "out")
