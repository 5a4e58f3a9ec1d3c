"""A dictionary of invented words, small enough to learn from in a second, as one more data set of the catalogue.

Run as a program this is the `qkv` command with that data set known: `python dictionary.py train --data words ...`.
"""

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from qkv.data import catalogue, cmudict

FILE = "words-1.0-py3-none-any.whl"
SMALL = {
    "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "batch_tokens": 512, "warmup": 5, "lr": 3e-3,
    "steps": 24, "evaluations": 3, "precision": "float32", "beam": 2,
}  # fmt: skip


def lines() -> list[str]:
    """Words of two or three syllables; c is S before e and i, a final e is silent, one word in ten has a second way."""
    syllables = [consonant + vowel for consonant in "bcdfgklmn" for vowel in "aeiou"]
    words = ["".join(pair) for pair in itertools.product(syllables[::4], syllables[::3])]
    words += ["".join(three) for three in zip(words[::2], syllables * 5, strict=False)]
    written = []
    for number, word in enumerate(sorted(set(words))):
        written.append(f"{word} {' '.join(sounds(word))}")
        if number % 10 == 0:
            written.append(f"{word}(2) {' '.join(sounds(word)[::-1])}")
    return written


def sounds(word: str) -> list[str]:
    """What a word says, by rule."""
    said = ["S" if a == "c" and b in "ei" else a.upper() for a, b in itertools.pairwise(word + " ")]
    return said[:-1] if word.endswith("e") else said


def register(cache: Path) -> catalogue.Entry:
    """The entry `words`, its file lying in `cache` as if it had been fetched."""
    path = cache / "downloads" / FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo(cmudict.MEMBER), "\n".join(lines()))
    content = path.read_bytes()
    return catalogue.Entry(
        name="words", title="Invented words", task="seq2seq", size=len(content), licence="none needed",
        split="by a hash of the word: 1/20 test, 1/20 dev",
        source="pypi:words==1.0", file=FILE, sha256=hashlib.sha256(content).hexdigest(), read=cmudict.load,
        options=catalogue.CATALOGUE["cmudict"].options,
    )  # fmt: skip


class Words:
    """The data set `words`, and how to use it here and in another process."""

    settings = SMALL

    def __init__(self, cache: Path):
        self.cache = cache

    def arguments(self, **changes) -> list[str]:
        """--data words and the small settings, as for the command line; None leaves one out."""
        chosen = {"data": "words", **SMALL, **changes}
        return [part for name, value in chosen.items() if value is not None for part in (f"--{name}", str(value))]

    @staticmethod
    def forget_training(folder: Path) -> None:
        """Leaves of a run what its config says: without events and checkpoints, the newest and the one before."""
        (folder / "metrics.jsonl").unlink()
        for path in folder.glob("checkpoint*.pt"):
            path.unlink()

    def start(self, *arguments, processes=0, **options) -> subprocess.Popen:
        """`qkv ARGUMENTS` in a process of its own, or in several that torchrun starts."""
        environment = {
            **os.environ, "QKV_CACHE": str(self.cache), "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1",
            "PYTHONWARNINGS": "error",
        }  # fmt: skip
        started = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes else []
        command = [sys.executable, *started, __file__, *map(str, arguments)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        return subprocess.Popen(command, env=environment, **{**streams, **options})

    def run(self, *arguments, code=0, **options) -> tuple[str, str]:
        """Standard output and standard error of `qkv ARGUMENTS`, which must end with `code`."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, out + err
        return out, err


@pytest.fixture(scope="session")
def words_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def words(monkeypatch, words_cache):
    """The data set `words` in the catalogue, for one test."""
    monkeypatch.setenv("QKV_CACHE", str(words_cache))
    monkeypatch.setitem(catalogue.CATALOGUE, "words", register(words_cache))
    return Words(words_cache)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, words_cache):
    """The folder of a finished run on `words`, to be read only."""
    from qkv.training.train import train

    folder = tmp_path_factory.mktemp("runs") / "finished"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QKV_CACHE", str(words_cache))
        patch.setitem(catalogue.CATALOGUE, "words", register(words_cache))
        train("words", out=folder, listeners=[], **SMALL)
    return folder


@pytest.fixture
def run_copy(finished_run, tmp_path):
    """A copy of a finished run, to be damaged."""
    return shutil.copytree(finished_run, tmp_path / "run")


if __name__ == "__main__":
    from qkv.cli.main import main

    catalogue.CATALOGUE["words"] = register(Path(os.environ["QKV_CACHE"]))
    main()
