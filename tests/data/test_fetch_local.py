"""Fetching from folders, and the cache folder itself."""

import hashlib
import os
from pathlib import Path

import pytest

from qkv.data.fetch import Remote, cache_dir, fetch
from qkv.errors import UserError

FILE = "tiny-1.0-py3-none-any.whl"
CONTENT = b"some bytes"
WANTED = Remote("tiny", FILE, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty cache on a machine without pip, whose environment names no index."""
    for name in list(os.environ):
        if name.upper().startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("written", ["path", "file URL"])
def test_a_folder_of_files(monkeypatch, tmp_path, cache, written):
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / FILE).write_bytes(CONTENT)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder) if written == "path" else folder.as_uri())
    assert fetch(WANTED) == cache / "downloads" / FILE
    assert (cache / "downloads" / FILE).read_bytes() == CONTENT


def test_an_index_in_a_folder_with_files_or_with_pages(monkeypatch, tmp_path, cache):
    monkeypatch.delenv("PIP_NO_INDEX")
    index = tmp_path / "one 索引" / "simple"
    (index / "tiny").mkdir(parents=True)
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    (index / "tiny" / FILE).write_bytes(CONTENT)
    fetch(WANTED).unlink()
    (tmp_path / "one 索引" / "files").mkdir()
    (index / "tiny" / FILE).rename(tmp_path / "one 索引" / "files" / FILE)
    page = f'<a href="../../files/{FILE}#sha256={WANTED.sha256}">{FILE}</a>'
    (index / "tiny" / "index.html").write_text(page, encoding="utf-8")
    assert fetch(WANTED).read_bytes() == CONTENT


def test_a_folder_without_the_file_is_said_and_the_next_one_tried(monkeypatch, tmp_path, cache):
    for name in ("empty", "wrong", "good"):
        (tmp_path / name).mkdir()
    (tmp_path / "wrong" / FILE).write_bytes(b"other byte")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'empty'} {tmp_path / 'wrong'}")
    with pytest.raises(UserError) as raised:
        fetch(WANTED)
    assert f"{tmp_path / 'empty'}: no such file there" in str(raised.value)
    assert f"{tmp_path / 'wrong'}: sent another file" in str(raised.value)
    assert list((cache / "downloads").iterdir()) == []
    (tmp_path / "good" / FILE).write_bytes(CONTENT)
    monkeypatch.setenv("PIP_FIND_LINKS", " ".join(str(tmp_path / name) for name in ("empty", "wrong", "good")))
    assert fetch(WANTED).read_bytes() == CONTENT


def test_a_file_that_a_person_put_into_the_cache_is_used(cache):
    with pytest.raises(UserError, match="no index and no folder") as raised:
        fetch(WANTED)
    assert f"put the file into {cache / 'downloads'} yourself" in str(raised.value)
    (cache / "downloads" / FILE).write_bytes(CONTENT)
    assert fetch(WANTED) == cache / "downloads" / FILE


def test_a_cache_that_cannot_be_written_to_is_said(monkeypatch, tmp_path):
    in_the_way = tmp_path / "in the way"
    in_the_way.write_text("a file", encoding="utf-8")
    monkeypatch.setenv("QKV_CACHE", str(in_the_way / "cache"))
    with pytest.raises(UserError, match=r"in the way.*QKV_CACHE"):
        fetch(WANTED)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the administrator may write anywhere")
def test_a_read_only_cache_is_said(monkeypatch, tmp_path, cache):
    (tmp_path / FILE).write_bytes(CONTENT)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (cache / "downloads").mkdir(parents=True)
    (cache / "downloads").chmod(0o555)
    with pytest.raises(UserError, match=r"Permission denied.*QKV_CACHE"):
        fetch(WANTED)


def test_the_platforms_folder_for_caches(monkeypatch, tmp_path):
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.setenv("QKV_CACHE", "~/mine")
    assert cache_dir() == Path.home() / "mine"
    monkeypatch.delenv("QKV_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    expected = {
        "linux": Path.home() / ".cache" / "qkv",
        "darwin": Path.home() / "Library" / "Caches" / "qkv",
        "win32": tmp_path / "local" / "qkv",
    }
    for platform, folder in expected.items():
        monkeypatch.setattr("sys.platform", platform)
        assert cache_dir() == folder
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "qkv"
