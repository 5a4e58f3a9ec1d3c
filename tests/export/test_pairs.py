"""An export of a trained run: whole, checked against torch, and used by a program that knows neither torch nor qkv."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from qkv.errors import UserError
from qkv.export import check, pairs
from qkv.export.check import Speed
from qkv.export.onnx import export_run
from qkv.run.run import load
from qkv.tasks.seq2seq import Seq2Seq

FILES = {
    "greedy", "encoder", "decoder_step", "greedy.int8", "encoder.int8", "decoder_step.int8"
}  # fmt: skip

CALL = """
import runpy, sys
sys.argv = ["caller.py", *sys.argv[1:]]
runpy.run_path("caller.py", run_name="__main__")
assert not {"torch", "qkv", "tokenizers"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def texts():
    return ["baba", "cice", "munogu", "de", "kake", "guglo", "fefi", "nono", "xö", "b" * 40]


@pytest.fixture
def trained(finished_run):
    return load(finished_run)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(check, "THREADS", 1)


def answers_of(folder, *texts):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CALL, *texts], cwd=folder, capture_output=True, encoding="utf-8", env=environment
    )
    return done.stdout, done.stderr, done.returncode


@pytest.mark.slow
def test_the_export_is_whole_and_says_what_the_run_says(trained, texts, tmp_path, words):
    folder = tmp_path / "导出" / "one"
    report = export_run(trained, folder, int8=True)
    assert {path.stem for path in folder.glob("*.onnx")} == FILES
    others = {"symbols.json", "caller.py", "README.md", "export.json", "tokenizer.json", "target_tokenizer.json"}
    assert {path.name for path in folder.iterdir()} == {f"{name}.onnx" for name in FILES} | others
    assert list(folder.parent.iterdir()) == [folder]
    stored = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(report.as_json()))
    for name, size in report.files.items():
        assert (folder / name).stat().st_size == size
    found = report.figures["float32"].agreement
    assert found.same == found.words == stored["figures"]["float32"]["agreement"]["words"]
    found8 = report.figures["int8"].agreement
    assert stored["figures"]["int8"]["agreement"]["percent"] == pytest.approx(found8.percent, abs=0.01)
    assert report.figures["int8"].megabytes < report.figures["float32"].megabytes

    expected = "".join(f"{p.text}\t{p.output}\n" for p in trained.predict(texts, beam=1))
    assert answers_of(folder, *texts) == (expected, "", 0)
    assert answers_of(folder, "--int8", *texts)[0].count("\n") == len(texts)
    out, err, code = answers_of(folder, "")
    assert (out, code) == ("", 1)
    assert "'' has 0 symbols" in err

    again = export_run(trained, folder, words=texts)
    assert again.figures.keys() == {"torch", "float32"}
    assert again.figures["float32"].agreement.words == len(texts)
    assert not list(folder.glob("*.int8.onnx"))
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.slow
def test_a_graph_that_says_something_else_is_no_export(trained, texts, tmp_path, monkeypatch):
    honest = check.Torch.__call__

    def other(self, sources):
        return [[*answer[:-1], 5, 2] if len(source) == 5 else answer for source, answer in
                zip(sources, honest(self, sources), strict=True)]  # fmt: skip

    monkeypatch.setattr(check.Torch, "__call__", other)
    with pytest.raises(
        UserError, match=r"differs from torch in \d+ of 10 words, first in 'baba': nothing was exported"
    ):
        export_run(trained, tmp_path / "out", words=texts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_int8_that_seldom_agrees_is_warned_of_with_the_figure(trained, texts, tmp_path, monkeypatch):
    class Worse(check.Graph):
        def __init__(self, path):
            super().__init__(path)
            self.wrong = "int8" in path.name

        def __call__(self, sources):
            return [[4, 2]] * len(sources) if self.wrong else super().__call__(sources)

    monkeypatch.setattr(check, "Graph", Worse)
    report = export_run(trained, tmp_path / "out", int8=True, words=texts)
    percent = report.figures["int8"].agreement.percent
    [warning] = report.warnings
    assert warning.startswith(f"int8 says the same as torch for only {percent:.1f} % of 10 words (below 98 %)")
    assert f"**Warning:** {warning}." in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_what_cannot_be_exported_is_refused_before_any_work(trained, tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError("traced")

    monkeypatch.setattr(pairs, "trace", never)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="mine exists and is not an export"):
        export_run(trained, tmp_path / "mine")
    with pytest.raises(UserError, match="there are no words"):
        export_run(trained, tmp_path / "out", words=[])
    with pytest.raises(UserError, match="none of the words"):
        export_run(trained, tmp_path / "out", words=[""])
    trained.config["data"]["name"] = "gone"
    with pytest.raises(UserError, match=r"data are needed to check the export .*'gone'.*or give words"):
        export_run(trained, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_the_end_of_learned_positions_is_the_end_of_answers_and_is_said(trained, random_model, tmp_path):
    long = Seq2Seq(replace(trained.task.config, max_length=600), trained.task.source, trained.task.target)
    run = replace(trained, model=random_model(**trained.task.sizes, positions="learned"), task=long)
    made = pairs.PairExport(run, run.model, tmp_path / "out", tmp_path)
    assert (made.max_source, made.max_length) == (512, 512)
    assert made.warnings == [
        "answers are cut at 512 symbols, where the learned positions end; the run allows 600"
    ]  # fmt: skip
    assert made._words(["baba", "b" * 511, "b" * 512, ""], given=True) == ["baba", "b" * 511]
    assert made.warnings[1:] == ["2 of 4 words were not compared: empty, too long for the model, or beyond 1000"]
    with pytest.raises(UserError, match="holds encoder_decoder for the task seq2seq, which cannot be exported"):
        export_run(replace(trained, model=nn.Linear(2, 2)), tmp_path / "out")


def test_speed_is_of_all_words_and_answers_keep_their_order():
    sources = [[4 + i, 2] for i in range(70)]
    said, speed = check.measured(lambda rows: [row[:1] for row in rows], sources)
    assert said == [[4 + i] for i in range(70)]
    assert isinstance(speed, Speed)
    assert min(speed.batches, speed.alone) > 0


def test_ctrl_c_while_a_graph_is_traced_stops_and_is_no_fault_of_the_model(trained, texts, tmp_path, monkeypatch):
    forward = type(trained.model.encoder).forward

    def interrupted(*args, **kwargs):
        if torch.compiler.is_compiling():
            raise KeyboardInterrupt
        return forward(*args, **kwargs)

    monkeypatch.setattr(type(trained.model.encoder), "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_run(trained, tmp_path / "exported", words=texts)
    assert not (tmp_path / "exported").exists()
