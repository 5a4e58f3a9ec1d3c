"""`qkv data`."""

import re
from pathlib import Path

import pytest

from qkv.data import catalogue


def test_list(qkv, words):
    rows = {row["name"]: row for row in qkv.json("data", "list")["data"]}
    assert set(rows) == set(catalogue.CATALOGUE)
    assert set(rows["words"]) == {"name", "title", "task", "size_mb", "licence", "split", "source"}
    out, err = qkv("data", "list")
    assert err == ""
    assert re.search("^words +seq2seq ", out, re.MULTILINE)
    assert "Invented words" in out
    for line in ("licence: none needed", f"split: {rows['words']['split']}", f"source: {rows['words']['source']}"):
        assert line in out


def test_get_prints_the_place_and_nothing_else(qkv, words):
    out, err = qkv("data", "get", "words")
    assert err == ""
    path = Path(out.removesuffix("\n"))
    assert path.is_file()
    assert qkv.json("data", "get", "words") == {"name": "words", "path": str(path)}


def test_show(qkv, words):
    found = qkv.json("data", "show", "words")
    assert found["name"] == "words"
    assert found["options"] == {"stress": False}
    assert sum(found["examples"][split] for split in ("train", "dev", "test")) == found["examples"]["all"]
    assert set(found["symbols"]["source"]) == set("bcdfgklmnaeiou")
    out, err = qkv("data", "show", "words")
    assert err == ""
    assert "Invented words" in out
    for arguments in (("words", "--stress", "true"), ("--stress", "true", "words"), ("--stress=true", "words")):
        assert qkv.json("data", "show", *arguments)["options"] == {"stress": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "wrods"], "no data set 'wrods' in the catalogue. Did you mean 'words'? Known: "),
        (["show", "wrods"], "no data set 'wrods' in the catalogue. Did you mean 'words'?"),
        (["show", "words", "--stres", "true"], "words has no option 'stres'. Did you mean 'stress'?"),
        (["show", "words", "--stress", "maybe"], "option 'stress' of words is 'maybe'; it must be of type bool"),
        (["show", "words", "--stress"], "--stress needs a value"),
        (["show", "--stress", "true"], "which file or data set? qkv data show FILE"),
        (["show", "words", "more"], "unexpected argument 'more'"),
        (["get"], "Missing argument 'NAME'"),
    ],
)
def test_mistakes(qkv, words, arguments, message):
    assert message in qkv.refused("data", *arguments)


def test_a_download_that_cannot_be_is_said(qkv, words, monkeypatch, tmp_path):
    monkeypatch.setenv("QKV_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    message = qkv.refused("data", "get", "words")
    assert "could not get words-1.0-py3-none-any.whl" in message
    assert list((tmp_path / "downloads").iterdir()) == []
