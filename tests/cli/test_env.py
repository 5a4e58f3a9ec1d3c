"""`qkv env`."""

import os
import socket
import subprocess
import sys
import time

import pytest

import qkv as package


@pytest.fixture(autouse=True)
def mirrors(monkeypatch, tmp_path):
    """A configured index with a password in its address, and no connection to anywhere."""
    for name in list(os.environ):
        if name.upper().startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:secret@mirror.example/simple")
    monkeypatch.setenv("PIP_PROXY", "me:secret@proxy.example:3128")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path))

    def refuse(*_):
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_a_person_is_told_what_there_is(qkv):
    out, err = qkv("env")
    assert err == ""
    for said in (f"qkv          {package.__version__}; Python 3.", "[train] ", "tokenizers", "[onnx]", "processor",
                 "OMP_NUM_THREADS", "--device auto takes", "GFLOP/s", "--precision auto takes", "Chinese text",
                 "https://mirror.example/simple", "proxy.example:3128", "cache", "0.0 MB", "terminal"):  # fmt: skip
        assert said in out, out
    assert "secret" not in out


def test_everything_is_one_json_object_in_a_moment_and_without_secrets(qkv):
    began = time.perf_counter()
    found = qkv.json("env")
    assert time.perf_counter() - began < 10.0  # pip is asked for its configuration in a process of its own
    assert found["mirrors"] == ["https://mirror.example/simple"]
    assert found["proxy"] == "proxy.example:3128"
    assert found["cores"] >= 1
    assert found["threads"] == 1
    assert found["omp_num_threads"] == os.environ.get("OMP_NUM_THREADS")
    speed = found["precision"]
    assert speed["device"] == found["devices"][0]["name"]
    if speed["device"] != "mps":
        assert set(speed["gflops"]) == {"float32", "bfloat16"}
        ratio = speed["gflops"]["bfloat16"] / speed["gflops"]["float32"]
        assert speed["auto"] == ("bfloat16" if ratio >= 1.5 else "float32")


def test_what_is_missing_is_said_with_the_extra_that_brings_it(qkv, monkeypatch):
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["no-such-thing>=1; extra == 'data'", "torch>=2"])
    assert '[data]       no-such-thing missing (pip install "qkv[data]" brings what is missing)' in qkv("env")[0]


@pytest.mark.slow
def test_it_works_where_no_optional_library_is_installed():
    missing = ["tokenizers", "safetensors", "pydantic", "rapidfuzz", "tomli_w", "pypi_simple", "requests", "filelock"]
    code = f"import sys; sys.modules.update(dict.fromkeys({missing})); from qkv.cli.main import main; main(['env'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "GFLOP/s" in done.stdout
