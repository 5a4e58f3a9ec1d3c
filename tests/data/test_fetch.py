"""Fetching against a real index on the loopback interface that can also answer badly."""

import hashlib
import io
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from qkv.data.fetch import Remote, fetch
from qkv.errors import UserError

FILE = "tiny-1.0-py3-none-any.whl"


def tiny_wheel():
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("tiny/data/words.txt", "one W AH1 N\n" * 20_000)
    return whole.getvalue()


CONTENT = tiny_wheel() + bytes(100_000)  # more than one chunk
PYTHON, OPENSSL = sys.executable, shutil.which("openssl")
WANTED = Remote("tiny", FILE, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Index(ThreadingHTTPServer):
    """A package index. `way` is how it answers; `asked` are the paths it was asked for."""

    daemon_threads = True

    def __init__(self, way):
        super().__init__(("127.0.0.1", 0), Answer)
        self.way, self.asked, self.scheme = way, [], "http"

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server_port}/simple"

    def handle_error(self, request, client_address):
        """A client that hangs up early is part of some tests."""


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        way = self.server.way
        self.server.asked.append(self.path)
        if way == "busy":
            self.send_error(503)
        elif self.path == "/simple/tiny/" and way != "without the project":
            self.page(way)
        elif self.path.startswith("/files/"):
            self.file(way)
        else:
            self.send_error(404)

    def page(self, way):
        link = f"../../files/{FILE.replace('1.0', '0.9') if way == 'without the file' else FILE}"
        kind, text = "text/html", f'<html><body><a href="{link}#sha256=0">{Path(link).name}</a></body></html>'
        if way == "json":
            kind = "application/vnd.pypi.simple.v1+json"
            files = [{"filename": FILE, "url": link, "hashes": {}}]
            text = json.dumps({"meta": {"api-version": "1.0"}, "name": "tiny", "files": files})
        elif way == "not an index":
            kind, text = "image/png", "?"
        self.reply(text.encode(), kind)

    def file(self, way):
        length = len(CONTENT)
        if way == "wrong":
            self.reply(CONTENT[:-1] + b"x")
        elif way == "long":
            self.reply(CONTENT + b"x")
        elif way == "cut":
            self.reply(CONTENT[: length // 2], length=length)
        elif way == "stalled":
            self.reply(CONTENT[: length // 2], length=length, pause=0.05)
            time.sleep(1)
        elif way == "cut unsaid":
            self.reply(CONTENT[: length // 2], length=None)
        else:
            self.reply(CONTENT, pause=0.02 if way == "slow" else 0)

    def reply(self, body, kind="application/octet-stream", length=-1, pause=0.0):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.end_headers()
        for begin in range(0, len(body), 1 << 15):
            self.wfile.write(body[begin : begin + (1 << 15)])
            time.sleep(pause)

    def log_message(self, format, *args):
        """Nothing: the test says what it looks at."""


@pytest.fixture
def serve():
    running = []

    def start(way="well", certificate=None):
        index = Index(way)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            index.socket = context.wrap_socket(index.socket, server_side=True)
            index.scheme = "https"
        threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        running.append(index)
        return index

    yield start
    for index in running:
        index.shutdown()
        index.server_close()


@pytest.fixture(autouse=True)
def downloads(monkeypatch, tmp_path):
    """The download folder of an empty cache on a machine without pip: only the environment counts, and it's quick."""
    for name in list(os.environ):
        if name.upper().startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "a 缓存"))
    return tmp_path / "a 缓存" / "downloads"


def left(downloads):
    return sorted(path.name for path in downloads.glob("*"))


@pytest.mark.parametrize("way", ["well", "json"])
def test_a_file_is_fetched_once_and_then_used_without_the_network(serve, monkeypatch, downloads, way):
    index = serve(way)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    seen = []
    path = fetch(WANTED, lambda *progress: seen.append(progress))
    assert path == downloads / FILE
    assert path.read_bytes() == CONTENT
    assert seen == sorted(seen)
    assert len(seen) > 1
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert len(index.asked) == 2
    assert fetch(WANTED) == path
    assert len(index.asked) == 2
    assert left(downloads) == [FILE]


HALF = f"{len(CONTENT) // 2:,} of {len(CONTENT):,} bytes"


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("wrong", f"{len(CONTENT):,} of {len(CONTENT):,} bytes, sha256 expected {WANTED.sha256}, received "),
        ("wrong", f"received {hashlib.sha256(CONTENT[:-1] + b'x').hexdigest()}"),
        ("long", f"more than the expected {len(CONTENT):,} bytes"),
        ("cut", f"the download was cut off after {HALF}"),
        ("cut unsaid", f"only part of it: {HALF}, sha256 expected {WANTED.sha256}, received"),
        ("stalled", "the download stood still after "),
        ("busy", "answered 503"),
        ("without the project", "has no project tiny"),
        ("without the file", f"lists no file {FILE}"),
        ("not an index", "is not a package index"),
    ],
)
def test_a_bad_answer_is_said_and_leaves_nothing(serve, monkeypatch, downloads, way, said):
    index = serve(way)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    monkeypatch.setenv("PIP_TIMEOUT", "0.5")
    with pytest.raises(UserError) as raised:
        fetch(WANTED)
    message = str(raised.value)
    assert f"{index.url}: " in message
    assert said in message
    for part in (FILE, WANTED.sha256, "PIP_INDEX_URL", str(downloads)):
        assert part in message
    assert left(downloads) == []


def test_mirrors_are_tried_in_order_and_each_is_heard(serve, monkeypatch, downloads):
    cut, wrong, good = serve("cut"), serve("wrong"), serve()
    monkeypatch.setenv("PIP_INDEX_URL", cut.url)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", wrong.url)
    with pytest.raises(UserError) as raised:
        fetch(WANTED)
    assert str(raised.value).index(f"{cut.url}: the download was cut off after") < str(raised.value).index(wrong.url)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{wrong.url} {good.url}")
    assert fetch(WANTED).read_bytes() == CONTENT
    assert left(downloads) == [FILE]


def test_an_index_that_cannot_be_reached_is_named_without_its_password(serve, monkeypatch, downloads):
    gone = serve()
    gone.server_close()
    monkeypatch.setenv("PIP_INDEX_URL", gone.url.replace("//", "//user:secret@"))
    with pytest.raises(UserError) as raised:
        fetch(WANTED)
    assert f"{gone.url}: Failed to establish a new connection" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert left(downloads) == []


def test_a_damaged_file_in_the_cache_is_fetched_again(serve, monkeypatch, downloads):
    downloads.mkdir(parents=True)
    for damaged, said in ((CONTENT[:-1], f"{len(CONTENT) - 1:,} bytes"), (CONTENT[:-1] + b"x", "damaged: sha256")):
        (downloads / FILE).write_bytes(damaged)
        monkeypatch.setenv("PIP_INDEX_URL", serve("without the file").url)
        with pytest.raises(UserError, match=said):
            fetch(WANTED)
        monkeypatch.setenv("PIP_INDEX_URL", serve().url)
        assert fetch(WANTED).read_bytes() == CONTENT


def test_two_processes_at_once_both_get_the_file(serve, monkeypatch, downloads):
    monkeypatch.setenv("PIP_INDEX_URL", serve("slow").url)
    code = f"from qkv.data.fetch import *; print(fetch({WANTED!r}).stat().st_size)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [PYTHON, "-c", code]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == [str(len(CONTENT))] * 2
    assert left(downloads) == [FILE]


def test_an_interruption_leaves_nothing(serve, monkeypatch, downloads):
    monkeypatch.setenv("PIP_INDEX_URL", serve().url)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(WANTED, interrupt)
    assert left(downloads) == []


def test_unfinished_files_of_dead_processes_are_removed_after_a_day(serve, monkeypatch, downloads):
    monkeypatch.setenv("PIP_INDEX_URL", serve().url)
    downloads.mkdir(parents=True)
    for name, age in (("old.part", 90_000), ("new.part", 60)):
        (downloads / name).touch()
        os.utime(downloads / name, (time.time() - age,) * 2)
    fetch(WANTED)
    assert left(downloads) == ["new.part", FILE]


@pytest.mark.skipif(not OPENSSL, reason="openssl makes the certificate")
def test_the_certificate_and_the_trusted_hosts_of_pip_are_used(serve, monkeypatch, tmp_path):
    pem = tmp_path / "both.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", str(pem), "-out", str(tmp_path / "certificate.pem")]
    command = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    certificate = tmp_path / "certificate.pem"
    pem.write_bytes(pem.read_bytes() + certificate.read_bytes())
    index = serve(certificate=pem)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    with pytest.raises(UserError, match="certificate was refused"):
        fetch(WANTED)
    monkeypatch.setenv("PIP_CERT", str(certificate))
    fetch(WANTED).unlink()
    monkeypatch.delenv("PIP_CERT")
    monkeypatch.setenv("PIP_TRUSTED_HOST", f"127.0.0.1:{index.server_port}")
    assert fetch(WANTED).read_bytes() == CONTENT
