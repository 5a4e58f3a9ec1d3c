"""The `qkv` command in this process, and the small data set that these tests train on."""

import importlib.util
import io
import json
import logging
from pathlib import Path

import pytest

from qkv.cli.main import main

_spec = importlib.util.spec_from_file_location("dictionary", Path(__file__).parents[1] / "dictionary.py")
_dictionary = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_dictionary)

words, words_cache = _dictionary.words, _dictionary.words_cache
finished_run, run_copy = _dictionary.finished_run, _dictionary.run_copy


class Command:
    """Calls `qkv ARGUMENTS` and gives (standard output, standard error); the exit code must be `code`."""

    def __init__(self, capsys, monkeypatch):
        self.capsys, self.monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments, code=0, stdin=b""):
        self.capsys.readouterr()
        with self.monkeypatch.context() as patch:
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            with pytest.raises(SystemExit) as ended:
                main([str(argument) for argument in arguments])
        out, err = self.capsys.readouterr()
        assert ended.value.code == code, out + err
        return out, err

    def json(self, *arguments, **options):
        """The one JSON object that `qkv ARGUMENTS --json` prints."""
        out, _ = self(*arguments, "--json", **options)
        assert out.count("\n") == 1
        return json.loads(out)

    def refused(self, *arguments, **options):
        """The message of bad input: one line or more on standard error, no traceback, nothing on standard output."""
        out, err = self(*arguments, code=2, **options)
        assert out == ""
        assert err.startswith("error: ")
        assert "Traceback" not in err
        return err.removeprefix("error: ").rstrip("\n")


@pytest.fixture
def qkv(capsys, monkeypatch):
    yield Command(capsys, monkeypatch)
    logging.getLogger("qkv").setLevel(logging.NOTSET)
