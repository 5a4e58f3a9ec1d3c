"""The catalogue, and what is known of each data set, counted in the real download."""

import gc
import json
import re
import time
import zipfile
from collections import Counter

import pytest

from qkv.data import catalogue, cmudict
from qkv.data.batches import length_batches
from qkv.data.symbols import UNK, Symbols
from qkv.errors import UserError


def test_an_unknown_name_is_answered_with_the_nearest_and_all_names():
    with pytest.raises(UserError, match=r"no data set 'cmu_dict'.* Did you mean 'cmudict'\? Known: cmudict"):
        catalogue.get("cmu_dict")
    with pytest.raises(UserError, match="no data set 'zzz' in the catalogue. Known: "):
        catalogue.load("zzz")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stres": True}, r"cmudict has no option 'stres'\. Did you mean 'stress'\? Its options: stress\."),
        ({"zzz": True}, r"cmudict has no option 'zzz'\. Its options: stress\."),
        ({"stress": "yes"}, "option 'stress' of cmudict is 'yes'; it must be of type bool"),
    ],
)
def test_a_wrong_option_is_said_before_anything_is_read(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        catalogue.entry("cmudict").load(tmp_path / "missing", **options)


def test_every_entry_says_what_it_is_and_is_pinned():
    for name, entry in catalogue.CATALOGUE.items():
        assert entry.name == name
        assert len(bytes.fromhex(entry.sha256)) == 32
        registry, version = entry.remote.registry, re.split("==|@", entry.source)[-1]
        assert registry in ("pypi", "npm")
        assert entry.source.startswith(f"{registry}:{entry.remote.project}")
        assert entry.remote.project in entry.file.lower().replace("_", "-")
        assert version in entry.file
        assert entry.title
        assert entry.licence
        assert entry.size_mb == entry.size / 1_000_000


@pytest.fixture(scope="module")
def pairs():
    return catalogue.load("cmudict")


@pytest.mark.slow
def test_cmudict_is_what_was_counted(pairs):
    shown = catalogue.describe("cmudict")
    assert json.loads(json.dumps(shown)) == shown
    assert shown["examples"] == {"all": 126_052, "train": 113_414, "dev": 6_344, "test": 6_294}
    assert len(shown["symbols"]["target"]) == 39
    assert (len(shown["symbols"]["source"]), sum(shown["symbols"]["source"].values())) == (29, 944_046)
    assert {side: round(length["mean"], 2) for side, length in shown["length"].items()} == {
        "source": 7.49,
        "target": 6.35,
    }
    assert {side: length["longest"] for side, length in shown["length"].items()} == {"source": 28, "target": 28}
    assert shown["fingerprint"] == pairs.fingerprint
    assert len(shown["shown"]) == 5
    texts = [example.source for example in pairs.train + pairs.dev + pairs.test]
    assert len(set(texts)) == 126_052


@pytest.mark.slow
def test_cmudict_with_stress_is_what_was_counted(pairs):
    shown = catalogue.describe("cmudict", stress=True)
    assert shown["options"] == {"stress": True}
    assert len(shown["symbols"]["target"]) == 69
    with zipfile.ZipFile(catalogue.get("cmudict")) as archive:
        lines = archive.read(cmudict.MEMBER).decode().splitlines()
    counts = Counter(re.sub(r"\(\d+\)$", "", line.split()[0]) for line in lines)
    assert (len(lines), len(counts), sum(count > 1 for count in counts.values())) == (135_166, 126_052, 8_447)
    # Two words, mormonism and tribalism, have the same pronunciation twice.
    assert shown["several_targets"] == 8_445
    stressed = catalogue.load("cmudict", stress=True)
    assert sum(len(e.targets) for part in stressed.splits.values() for e in part) == 135_164
    assert [example.source for example in stressed.test] == [example.source for example in pairs.test]
    assert stressed.fingerprint != pairs.fingerprint


@pytest.mark.slow
def test_cmudict_is_quick_to_read_and_encode():
    path = catalogue.get("cmudict")
    gc.collect()
    start = time.process_time()
    pairs = catalogue.CATALOGUE["cmudict"].load(path)
    read = time.process_time() - start
    symbols = Symbols.learn(example.source for example in pairs.train)
    start = time.process_time()
    ids = [symbols.encode(example.source) for example in pairs.train + pairs.dev + pairs.test]
    encoded = time.process_time() - start
    assert len(ids) == 126_052
    assert not any(UNK in word for word in ids)
    assert read < 1.5
    assert encoded < 2.0


@pytest.mark.slow
def test_cmudict_in_batches_of_4096_tokens_wastes_less_than_three_percent(pairs):
    lengths = [(len(example.source), len(target.split()) + 1) for example in pairs.train for target in example.targets]
    batches = length_batches(lengths, 4096, seed=0, epoch=0)
    padded = sum(len(b) * (max(lengths[i][0] for i in b) + max(lengths[i][1] for i in b)) for b in batches)
    assert 1 - sum(map(sum, lengths)) / padded < 0.015
