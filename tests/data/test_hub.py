"""Data sets of a hub and in folders: which files are taken, that they are kept, and what is said where they are not."""

import importlib.util
from pathlib import Path

import pytest

from qkv.data import hub, parts, sources
from qkv.data.files import columnar
from qkv.errors import UserError

_spec = importlib.util.spec_from_file_location("hub_server", Path(__file__).parent / "hub_server.py")
_server = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_server)

ROWS = [f"the {thing} is {word}\t{label}" for thing in ("film", "cast", "plot", "hero", "music", "story")
        for word, label in (("warm", "good"), ("dull", "bad"), ("funny", "good"), ("grey", "bad"))]  # fmt: skip
TSV = ("text\tlabel\n" + "\n".join(ROWS) + "\n").encode()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def serve(monkeypatch):
    running = []

    def start(files, **options):
        running.append(_server.Hub(files, **options))
        monkeypatch.setenv("HF_ENDPOINT", running[-1].endpoint)
        return running[-1]

    yield start
    for one in running:
        one.close()


def test_a_data_set_is_fetched_once_read_and_used_without_the_hub(serve, monkeypatch):
    server = serve({"README.md": b"words", "data/train.tsv": TSV, "data/validation.tsv": TSV, "data/test.tsv": TSV})
    table = sources.table_of("hf:me/tiny")
    start = f"hf:me/tiny@{'0' * 40}/data/"
    names = {"train": "train.tsv", "dev": "validation.tsv", "test": "test.tsv"}
    assert table == {"name": "labels", **{part: start + name for part, name in names.items()}}
    data = sources.data_of(table)
    assert (len(data.train), data.labels) == (24, ("bad", "good"))
    asked = len(server.asked)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert sources.table_of("hf:me/tiny") == table
    assert sources.data_of(table).fingerprint == data.fingerprint
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert sources.data_of(table).fingerprint == data.fingerprint
    assert len(server.asked) == asked
    assert not any("README" in path for path in server.asked)


def test_a_hub_that_goes_on_is_followed_and_the_old_commit_stays(serve):
    serve({"train.tsv": TSV}, commit="a" * 40)
    old = sources.table_of("hf:me/tiny")
    serve({"train.tsv": TSV + b"one more\tgood\n"}, commit="b" * 40)
    new = sources.table_of("hf:me/tiny")
    assert [hub.local(one["train"]).read_bytes().count(b"\n") for one in (old, new)] == [25, 26]
    assert sources.table_of(f"hf:me/tiny@{'a' * 40}") == old


def test_shards_are_one_file(serve, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = {"data/test-00000-of-00001.parquet": b""}
    for place in range(2):
        half = [row.split("\t") for row in ROWS[place::2]]
        pq.write_table(pa.table({"text": [a for a, _ in half], "label": [b for _, b in half]}), tmp_path / "one")
        files[f"data/train-0000{place}-of-00002.parquet"] = (tmp_path / "one").read_bytes()
    serve(files)
    found = parts.in_folder("hf:me/tiny")
    assert found["train"].endswith("/data/train-*.parquet")
    columns, rows, _ = columnar.read(hub.local(found["train"]), "parquet")
    assert columns == ["text", "label"]
    assert [row.values for row in rows] == [tuple(row.split("\t")) for row in ROWS[::2] + ROWS[1::2]]


def test_nothing_is_asked_of_a_dead_hub_twice_and_the_ways_out_are_said(cache):
    with pytest.raises(UserError) as error:
        sources.table_of("hf:me/tiny")
    for said in ("http://127.0.0.1:9", str(cache), "HF_ENDPOINT=", "folder", "qkv data list"):
        assert said in str(error.value)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ({"a.tsv": TSV}, "hf:me/other", "no data set hf:me/other.*404.*HF_TOKEN"),
        ({"a.tsv": TSV}, "hf:tiny", "hf:OWNER/NAME is expected"),
        ({"a.tsv": TSV}, "hf:me/tiny/en", "nothing in 'en'. Its folders: none"),
        ({"README.md": b"", ".gitattributes": b""}, "hf:me/tiny", "no table or text"),
        ({"a.tsv": TSV, "b.tsv": TSV}, "hf:me/tiny", "which file is the training data.*a.tsv, b.tsv"),
        ({"de/train.tsv": TSV, "en/train.tsv": TSV}, "hf:me/tiny", "several data sets .de, en.: .*hf:me/tiny/de"),
        ({"train-1.tsv": TSV, "train-2.tsv": TSV}, "hf:me/tiny", "several files for one part: train-1.tsv"),
    ],
)
def test_what_cannot_be_taken_is_said(serve, files, name, message):
    serve(files)
    with pytest.raises(UserError, match=message):
        sources.table_of(name)


def test_an_answer_that_is_none_and_a_broken_download_leave_nothing(serve, cache):
    server = serve({"train.tsv": TSV})
    table = sources.table_of("hf:me/tiny")
    for path in cache.rglob("train.tsv"):
        path.unlink()
    server.files.clear()
    with pytest.raises(UserError, match="404"):
        sources.data_of(table)
    server.answer = lambda _: (200, b"<html>")
    with pytest.raises(UserError, match="does not answer as a hub does"):
        sources.table_of("hf:me/tiny@other")
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".json"]


def test_a_folder_is_read_by_the_names_of_its_files(tmp_path):
    folder = tmp_path / "set"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "README.txt").write_text("words")
    (folder / "dev.tsv").write_bytes(TSV)
    (folder / "other.tsv").write_bytes(TSV)
    with pytest.raises(UserError, match="which file is the training data"):
        sources.table_of(str(folder))
    (folder / "other.tsv").rename(folder / "my_train-v2.tsv")
    table = sources.table_of(str(folder))
    assert table == {"name": "labels", "train": str(folder / "my_train-v2.tsv"), "dev": str(folder / "dev.tsv")}
    assert sources.data_of(table).labels == ("bad", "good")
    assert sources.table_of(str(folder), "seq2seq")["name"] == "pairs"


def test_a_folder_with_one_file_is_that_file(tmp_path):
    (tmp_path / "all.tsv").write_bytes(TSV)
    assert sources.table_of(str(tmp_path)) == {"name": "labels", "train": str(tmp_path / "all.tsv")}
