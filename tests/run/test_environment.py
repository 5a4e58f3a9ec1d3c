"""What a machine offers, said without secrets."""

import importlib.metadata
import shutil
import sys

import matplotlib
import pytest
import torch
from matplotlib import font_manager

from qkv.data import fetch
from qkv.run import environment
from qkv.run.run import resolve_device


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://pypi.org/simple", "https://pypi.org/simple"),
        ("https://me:pw@host.example:8443/simple", "https://host.example:8443/simple"),
        ("https://token@host.example/simple/?key=pw#pw", "https://host.example/simple/"),
        ("https://me:a@b@host.example/simple", "https://host.example/simple"),
        ("https://me:a/b@host.example/simple", "(an address that cannot be read)"),
        ("https://m/e:pw@host.example/simple", "https://m/***/simple"),
        ("https://host.example/4f5XkQ9sL2mN8pRt/me/", "https://host.example/***/me/"),
        ("me:pw@proxy.example:3128", "proxy.example:3128"),
        ("proxy.example:3128", "proxy.example:3128"),
        ("https://[::1/simple", "(an address that cannot be read)"),
    ],
)
def test_addresses_are_shown_without_secrets(address, shown):
    assert environment.without_secrets(address) == shown


def test_the_first_device_is_the_one_that_auto_takes():
    found = environment.devices()
    assert resolve_device("auto").type == torch.device(found[0]["name"]).type
    assert found[-1]["name"] == "cpu"
    assert all(resolve_device(one["name"]) for one in found)


def test_optional_libraries_are_told_with_the_extras_that_bring_them(monkeypatch):
    found = {one["name"]: one for one in environment.libraries()}
    assert found["tokenizers"] == {
        "name": "tokenizers", "version": importlib.metadata.version("tokenizers"), "extras": ["train"]
    }  # fmt: skip
    assert found["pyarrow"]["extras"] == ["data"]
    assert "torch" not in found
    assert "pytest" not in found
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: ["nothing-of-that-name>=1; extra == 'data'"])
    assert environment.libraries() == [{"name": "nothing-of-that-name", "version": None, "extras": ["data"]}]


@pytest.mark.parametrize(("limit", "share"), [("max\n", 1), ("1000000\n", 0), ("9223372036854771712\n", 1)])
def test_a_container_may_have_less_memory_than_the_machine(monkeypatch, tmp_path, limit, share):
    monkeypatch.setattr(environment, "_LIMITS", ())
    machine = environment.memory()
    path = tmp_path / "memory.max"
    path.write_text(limit, encoding="ascii")
    monkeypatch.setattr(environment, "_LIMITS", (str(path), str(tmp_path / "nothing")))
    assert environment.memory() == (machine if share else 1_000_000)
    assert machine > 1e8


def test_a_font_counts_when_it_has_chinese_characters_and_figures_use_it_only_by_name(monkeypatch):
    last_resort = next(font for font in font_manager.fontManager.ttflist if "Last Resort" in font.name)
    latin = next(font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans")
    gone = font_manager.FontEntry(fname="/no/such/font.ttf", name="Gone")
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [last_resort, latin, gone])
    assert environment.chinese_fonts() == {"installed": [], "used": []}
    monkeypatch.setattr(environment, "HAN", "A")  # as if that were one: no Chinese font comes with matplotlib
    assert environment.chinese_fonts() == {"installed": ["DejaVu Sans"], "used": ["DejaVu Sans"]}
    with matplotlib.rc_context({"font.sans-serif": ["Nimbus Sans"]}):
        assert environment.chinese_fonts() == {"installed": ["DejaVu Sans"], "used": []}


def test_the_cache_is_told_with_its_size(monkeypatch, tmp_path):
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "缓存"))
    assert environment.cache() == {"folder": str(fetch.cache_dir()), "bytes": 0}
    (tmp_path / "缓存" / "downloads").mkdir(parents=True)
    shutil.copy(__file__, tmp_path / "缓存" / "downloads" / "file")
    assert environment.cache()["bytes"] == (tmp_path / "缓存" / "downloads" / "file").stat().st_size


@pytest.mark.parametrize(("encoding", "chinese"), [("utf-8", True), ("gbk", True), ("cp1252", False), (None, False)])
def test_what_the_terminal_can_write(monkeypatch, encoding, chinese):
    class Screen:
        def __init__(self):
            self.encoding = encoding

    monkeypatch.setattr(sys, "stdout", Screen())
    assert environment.terminal() == {"encoding": encoding or "ascii", "chinese": chinese}
