"""Large files are read once: the second start has the same pairs, and no change of the data goes unnoticed."""

import json
import os

import pytest

from qkv.data import kept, pair_data, prepared
from qkv.data.compact import Examples
from qkv.data.pair_data import PairConfig
from qkv.errors import UserError

ROWS = "".join(f"w{n}\tw a{n % 7}\nw{n}\tw b{n % 3}\n" for n in range(300))


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch, tmp_path):
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepared, "LARGE", 100)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "rows.tsv").write_text(ROWS, encoding="utf-8")
    return tmp_path / "rows.tsv"


def plain(pairs):
    about = {name: value for name, value in vars(pairs).items() if name not in prepared.SPLITS}
    return {split: list(examples) for split, examples in pairs.splits.items()}, about


@pytest.mark.parametrize("changes", [{}, {"symbols": "bpe:60"}, {"normalise": "NFC", "split": "0.8,0.1,0.1"}])
def test_the_second_reading_is_from_the_cache_and_is_the_same(file, changes, monkeypatch):
    config = PairConfig(train=str(file), **changes)
    wanted = plain(pair_data.load(config).pairs)
    first = prepared.pairs_of(config)
    assert isinstance(first.train, Examples)
    with monkeypatch.context() as patch:
        patch.delattr(pair_data, "load")  # so that nothing could be read
        second = prepared.pairs_of(config)
    assert plain(first) == plain(second) == wanted


def test_a_file_changed_in_place_is_noticed_though_size_and_time_are_the_same(file):
    config, before = PairConfig(train=str(file)), file.stat()
    prepared.pairs_of(config)
    file.write_text(ROWS.replace("w7\t", "v7\t"), encoding="utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert plain(prepared.pairs_of(config)) == plain(pair_data.load(config).pairs)
    assert any(e.source == "v7" for several in prepared.pairs_of(config).splits.values() for e in several)


def test_every_setting_and_every_file_counts(file, tmp_path):
    inventory, dev = tmp_path / "list.txt", tmp_path / "dev.tsv"
    signs = "\n".join([*"wab0123456789"])
    dev.write_text("x\ty\n", encoding="utf-8")
    configs = [
        {"symbols": "spaces"}, {"symbols": "characters"}, {"dev": str(dev)}, {"longest": 20}, {"too_long": "drop"},
        {"source": "2", "target": "1"}, {"symbols": f"graphemes,inventory:{inventory}", "source": "2", "target": "1"},
    ]  # fmt: skip
    inventory.write_text(f"{signs}\na1\n", encoding="utf-8")
    keys = [prepared._key(PairConfig(train=str(file), **one)) for one in configs]
    inventory.write_text(f"{signs}\na2\n", encoding="utf-8")
    dev.write_text("x\tz\n", encoding="utf-8")
    keys += [prepared._key(PairConfig(train=str(file), **configs[place])) for place in (2, 6)]
    assert "" not in keys
    assert len(set(keys)) == len(configs) + 2


def test_two_text_files_are_kept_too(tmp_path):
    for side in "ab":
        (tmp_path / side).write_text("".join(f"{side}{n}\n" for n in range(200)), encoding="utf-8")
    config = PairConfig(source=str(tmp_path / "a"), target=str(tmp_path / "b"))
    assert plain(prepared.pairs_of(config)) == plain(prepared.pairs_of(config)) == plain(pair_data.load(config).pairs)
    assert len(list(kept.folder().iterdir())) == 1
    (tmp_path / "b").write_text("".join(f"c{n}\n" for n in range(200)), encoding="utf-8")
    assert plain(prepared.pairs_of(config)) == plain(pair_data.load(config).pairs)


def test_small_data_are_lists_and_nothing_is_kept(file, monkeypatch):
    monkeypatch.setattr(prepared, "LARGE", 301)
    assert isinstance(prepared.pairs_of(PairConfig(train=str(file))).train, list)
    assert not kept.folder().exists()


def test_what_is_wrong_with_the_files_is_said_as_ever(file, tmp_path):
    with pytest.raises(UserError, match="there is no file"):
        prepared.pairs_of(PairConfig(train=str(tmp_path / "none.tsv")))
    with pytest.raises(UserError, match="is a folder"):
        prepared.pairs_of(PairConfig(train=str(tmp_path)))
    with pytest.raises(UserError, match="longer than 1 symbols"):
        prepared.pairs_of(PairConfig(train=str(file), longest=1))
    assert not kept.folder().exists()


def test_training_is_the_same_without_a_cache_on_the_first_start_and_from_the_cache(tmp_path, monkeypatch):
    from qkv.training.train import train

    (tmp_path / "l.tsv").write_text("".join(f"w{n}\tw {n % 97} {n % 89}\n" for n in range(2000)), encoding="utf-8")
    small = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "steps": 4, "evaluations": 1, "beam": 1}
    found = []
    for out, large in (("plain", 10**9), ("first", 100), ("second", 100)):
        monkeypatch.setattr(prepared, "LARGE", large)
        train(str(tmp_path / "l.tsv"), out=tmp_path / out, listeners=[], precision="float32", **small)
        lines = (tmp_path / out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found.append(
            [{k: v for k, v in json.loads(line).items() if "second" not in k and k[-2:] != "_s"} for line in lines]
        )
    assert any("batches" in event for event in found[0])
    assert found[0] == found[1] == found[2]
    assert len(list(kept.folder().iterdir())) == 5
