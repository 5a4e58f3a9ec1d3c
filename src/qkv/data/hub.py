"""Data sets of a hub in the Hugging Face form, as hf:OWNER/NAME: files over plain HTTPS, kept and used offline after.

A file is called hf:OWNER/NAME@COMMIT/PATH wherever a file's name is expected. HF_ENDPOINT names a mirror, HF_TOKEN a
person, HF_HUB_OFFLINE=1 forbids the network; proxies are those of the environment. Nothing of a data set is run.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from qkv.data.fetch import cache_dir
from qkv.errors import UserError

ENDPOINT = "https://huggingface.co"
TIMEOUT = 8.0  # seconds without an answer

_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w.-]+))?(?:/(.*))?")


def is_reference(name: str | Path) -> bool:
    """Whether it names a data set of a hub, or a file in one."""
    return str(name).startswith("hf:")


def files_of(name: str) -> list[str]:
    """The files of the data set, or of a folder in it, as references that say the commit.

    Raises UserError where neither hub nor cache knows it, saying what can be done.
    """
    owner, revision, inside = _parsed(name)
    listing = _listing(owner, revision or "main")
    files = [one for one in listing["files"] if not inside or one == inside or one.startswith(f"{inside}/")]
    if not files:
        folders = sorted({str(PurePosixPath(one).parent) for one in listing["files"]} - {"."})
        raise UserError(f"hf:{owner} has nothing in {inside!r}. Its folders: {', '.join(folders) or 'none'}")
    return [f"hf:{owner}@{listing['commit']}/{one}" for one in files]


def local(reference: str | Path) -> Path:
    """The path of a file of a hub on this machine, fetched if it is not there. With a `*`, all that fit, as one file.

    Raises UserError as `files_of` does.
    """
    reference = str(reference).replace("\\", "/")
    owner, commit, inside = _parsed(reference)
    if not commit or not inside:
        raise UserError(f"{reference}: a file is expected, as hf:OWNER/NAME@COMMIT/PATH")
    folder = _folder(owner) / commit
    if "*" not in inside:
        return _got(owner, commit, inside, folder / inside)
    whole = folder / inside.replace("*", "all")
    if not whole.exists():
        several = [one for one in _listing(owner, commit)["files"] if fnmatchcase(one, inside)]
        _put(whole, _joined([_got(owner, commit, one, folder / one) for one in several]))
    return whole


def _parsed(name: str) -> tuple[str, str, str]:
    found = _NAME.fullmatch(name)
    if not found:
        raise UserError(
            f"{name}: hf:OWNER/NAME is expected, with @REVISION and /FOLDER behind it where they are needed"
        )
    return found[1], found[2] or "", (found[3] or "").strip("/")


def _folder(owner: str) -> Path:
    return cache_dir() / "hub" / "datasets" / owner.replace("/", "--")


def _listing(owner: str, revision: str) -> dict[str, Any]:
    """The commit that `revision` is and its files: what the hub says, and when it cannot be asked what it said last."""
    kept = _folder(owner) / f"{revision}.json"
    known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else None
    if known and known["commit"] == revision:
        return known
    try:
        said = json.loads(b"".join(_get(f"api/datasets/{owner}/revision/{quote(revision, safe='')}", owner)))
        listing = {"commit": said["sha"], "files": sorted(one["rfilename"] for one in said["siblings"])}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{_endpoint()} does not answer as a hub does ({error!r}): is HF_ENDPOINT right?") from None
    except _Unreachable as error:
        if known:
            return known
        raise UserError(_ways_out(f"hf:{owner}", str(error))) from None
    content = json.dumps(listing).encode()
    for name in (revision, listing["commit"]):
        _put(_folder(owner) / f"{name}.json", [content])
    return listing


def _got(owner: str, commit: str, inside: str, path: Path) -> Path:
    if not path.exists():
        try:
            _put(path, _get(f"datasets/{owner}/resolve/{commit}/{quote(inside)}", owner))
        except _Unreachable as error:
            raise UserError(_ways_out(f"{inside} of hf:{owner}", str(error))) from None
    return path


class _Unreachable(Exception):
    """The hub gave no answer; the message says why."""


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def _get(address: str, owner: str) -> Iterator[bytes]:
    import requests

    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise _Unreachable("HF_HUB_OFFLINE is set")
    token = os.environ.get("HF_TOKEN")
    headers = {"User-Agent": "qkv", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        # A mirror may not know HEAD, and may answer with an address elsewhere: GET alone, and the token stays here.
        with requests.get(f"{_endpoint()}/{address}", headers=headers, timeout=TIMEOUT, stream=True) as answer:
            if answer.status_code in (401, 403, 404):
                raise UserError(
                    f"{_endpoint()} has no data set hf:{owner}, or not this of it, or not for you "
                    f"({answer.status_code} {answer.reason}). Check the name; for data that need a permission set "
                    "HF_TOKEN"
                )
            if not answer.ok:
                raise _Unreachable(f"answered {answer.status_code} {answer.reason}")
            yield from answer.iter_content(1 << 16)
    except requests.RequestException as error:
        cause = getattr(error.args[0], "reason", None) if error.args else None
        raise _Unreachable(re.sub(r"^(<.*?>|HTTPS?Connection\w*\(.*?\)): ", "", str(cause or error))) from None


def _ways_out(what: str, why: str) -> str:
    return (
        f"could not get {what} from {_endpoint()} ({why}), and it is not in the cache {cache_dir() / 'hub'}. "
        "Name a mirror with HF_ENDPOINT=ADDRESS, or give a folder with the files, or take a set of `qkv data list`"
    )


def _put(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file in the cache in one step or not at all."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("xb") as out:
            for chunk in chunks:
                out.write(chunk)
        unfinished.replace(path)
    except OSError as error:
        raise UserError(f"cannot use the cache {path.parent}: {error.strerror or error}. Set QKV_CACHE") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _joined(shards: Sequence[Path]) -> list[bytes]:
    """The content of one file that has the rows of all."""
    ways: dict[str, Callable[[Sequence[Path]], list[bytes]]] = {".parquet": _parquet, ".jsonl": _lines}
    return ways[shards[0].suffix](shards)


def _parquet(shards: Sequence[Path]) -> list[bytes]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError('Parquet needs pyarrow: pip install "qkv[data]"') from None
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(map(pq.read_table, shards)), sink)
    return [sink.getvalue().to_pybytes()]


def _lines(shards: Sequence[Path]) -> list[bytes]:
    return [content if content.endswith(b"\n") else content + b"\n" for content in (one.read_bytes() for one in shards)]
