"""`qkv export`."""

import json

import jaxtyping
import pytest

from qkv.export import check


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """One thread, and annotations not enforced: the size of a tensor in tracing is not an int."""
    monkeypatch.setattr(check, "THREADS", 1)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.slow
def test_the_figures_are_printed_beside_torchs(qkv, finished_run, tmp_path, words):
    out, _ = qkv("export", finished_run, "--to", "onnx", "--int8", "-o", tmp_path / "my export")
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines[1:]] == ["torch", "float32", "int8", "written:", "next:"]
    assert f'"{tmp_path / "my export" / "caller.py"}"' in out
    assert lines[2][4:6] == ["100.0", "%"]
    (tmp_path / "words.txt").write_bytes("\ufeffbaba\r\n\r\ncice\n".encode())
    found = qkv.json("export", finished_run, "--to", "onnx", "-o", tmp_path / "b", "--words", tmp_path / "words.txt")
    assert found["figures"]["float32"]["agreement"] == {"words": 2, "same": 2, "near_ties": 0, "percent": 100.0}
    assert found == json.loads((tmp_path / "b" / "export.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "onnx"], "Missing option '-o' / '--out'"),
        (["-o", "x"], "Missing option '--to'"),
        (["--to", "coreml", "-o", "x"], "'coreml' is not 'onnx'"),
        (["--to", "onnx", "-o", "x", "--words", "nowhere.txt"], "cannot read nowhere.txt: No such file"),
        (["--to", "onnx", "-o", "."], ". exists and is not an export"),
    ],
)
def test_mistakes(qkv, finished_run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.txt").write_text("precious")
    assert message in qkv.refused("export", finished_run, *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_is_no_run(qkv, tmp_path):
    assert "is not a run folder" in qkv.refused("export", tmp_path / "nowhere", "--to", "onnx", "-o", tmp_path / "x")
