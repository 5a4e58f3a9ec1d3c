"""What is kept is what was made; damage and folders that cannot be used are said and cost time only."""

import sys

import numpy as np
import pytest

from qkv.data import kept
from qkv.data.kept import Stored

STORED = Stored({"a": np.arange(1000, dtype=np.int64), "none": np.zeros(0, dtype=np.int32)}, {"said": ["ʃ", None, 1]})


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def same(one, other):
    return one.about == other.about and {n: a.tolist() for n, a in one.arrays.items()} == {
        n: a.tolist() for n, a in other.arrays.items()
    }


def forbidden():
    raise AssertionError("made again")


def test_what_is_kept_is_not_made_again():
    assert kept.read(kept.key("x")) is None
    assert kept.kept(kept.key("x"), lambda: STORED) is STORED
    assert same(kept.kept(kept.key("x"), forbidden), STORED)
    assert [path.suffix for path in kept.folder().iterdir()] == [".safetensors"]


def test_a_key_is_of_all_its_parts():
    keys = {kept.key(*parts) for parts in (("x",), ("x", 1), ("x", "1"), ("x", {"a": 1}), (["x"],))}
    assert len(keys) == 5
    assert kept.key({"a": 1, "b": 2}) == kept.key({"b": 2, "a": 1})


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"no such file",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: flipped(content, len(content) - 8),
        lambda content: content.replace(b"said", b"sald"),
    ],
    ids=["empty", "another", "half", "cut", "longer", "a bit", "a word"],
)
def test_damage_is_said_and_made_again(damage, caplog):
    kept.write(kept.key("x"), STORED)
    [path] = kept.folder().iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert kept.kept(kept.key("x"), lambda: STORED) is STORED
    assert f"{path} is damaged" in caplog.text
    caplog.clear()
    assert same(kept.kept(kept.key("x"), forbidden), STORED)
    assert not caplog.text


def test_a_file_of_another_key_is_not_taken_for_this_one(caplog):
    kept.write(kept.key("x"), STORED)
    [path] = kept.folder().iterdir()
    path.rename(path.with_name(f"{kept.key('y')}.safetensors"))
    assert kept.read(kept.key("y")) is None
    assert "is damaged" in caplog.text


def test_a_folder_that_cannot_be_is_said_once_and_work_goes_on(cache, caplog):
    cache.write_text("a file where the folder should be", encoding="utf-8")
    for _ in range(3):
        assert kept.kept(kept.key("x"), lambda: STORED) is STORED
    assert len(caplog.records) == 1
    assert f"cannot keep prepared data in {kept.folder()}" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="files have no size limit there")
def test_a_full_disk_is_said_once_and_leaves_nothing(caplog):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        for _ in range(2):
            assert kept.kept(kept.key("x"), lambda: STORED) is STORED
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(caplog.records) == 1
    assert "cannot keep prepared data" in caplog.text
    assert list(kept.folder().iterdir()) == []
