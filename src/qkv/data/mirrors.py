"""Where packages come from on this machine: the places that pip, uv and npm are configured with."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    import requests

PUBLIC_INDEX = "https://pypi.org/simple"
PUBLIC_NPM = "https://registry.npmjs.org"

_LISTED = re.compile(r"(?P<section>[\w:-]+)\.(?P<option>[\w.-]+)=(?P<value>.*)")
_REGISTRY = re.compile(r"""^[ \t]*registry[ \t]*=[ \t]*["']?([^\s"';#]+)""", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SECTIONS = ("global", "download", "install")  # the later one wins


@dataclass(frozen=True)
class Place:
    """Where a file may be: an index (a page for each project), or a page or folder of files ("find-links").

    `address` is a URL or a local path, as configured.
    """

    address: str
    is_index: bool

    @property
    def folder(self) -> Path | None:
        """The local folder it stands for, or None when it is reached over the network."""
        if "://" not in self.address and not self.address.startswith("file:"):
            return Path(self.address).expanduser()
        parts = urlsplit(self.address)
        return Path(url2pathname(parts.path)) if parts.scheme == "file" else None

    def __str__(self) -> str:
        """The address without a user name and password in it."""
        if "://" not in self.address:
            return self.address
        parts = urlsplit(self.address)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@dataclass(frozen=True)
class Mirrors:
    """The places to look in, local ones first, and how to reach the others. `timeout` is in seconds."""

    places: tuple[Place, ...]
    certificate: str | None = None
    timeout: float = 15.0
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()


def configured() -> Mirrors:
    """What this machine's package client is configured with.

    Read, in rising precedence: pip's configuration files (asked of pip itself) and PIP_* in the environment; uv's
    UV_DEFAULT_INDEX, UV_INDEX_URL, UV_INDEX, UV_EXTRA_INDEX_URL and UV_FIND_LINKS add to that. Without any of
    these the public index is used.
    """
    options = _pip_options()
    uv = {name.removeprefix("UV_"): value for name, value in os.environ.items() if name.startswith("UV_")}
    main = [options.get("index-url"), uv.get("DEFAULT_INDEX"), uv.get("INDEX_URL")]
    indexes = [address for address in main if address] or [PUBLIC_INDEX]
    indexes += options.get("extra-index-url", "").split()
    # UV_INDEX may name its indexes: "name=address".
    indexes += [re.sub(r"^[\w.-]+=", "", word) for word in uv.get("INDEX", "").split()]
    indexes += uv.get("EXTRA_INDEX_URL", "").split()
    if options.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        indexes = []
    links = options.get("find-links", "").split() + re.split(r"[\s,]+", uv.get("FIND_LINKS", ""))
    places = [Place(a, is_index=False) for a in links if a] + [Place(a.rstrip("/"), is_index=True) for a in indexes]
    return Mirrors(
        places=tuple(sorted(dict.fromkeys(places), key=lambda place: place.folder is None)),
        certificate=options.get("cert") or None,
        timeout=_seconds(options),
        proxy=options.get("proxy") or None,
        trusted_hosts=tuple(options.get("trusted-host", "").split()),
    )


def npm_registry() -> str:
    """The address of the npm registry: the environment's, that of .npmrc here or at home, else the public one."""
    given = {name.lower(): value for name, value in os.environ.items() if value}
    if address := given.get("npm_config_registry"):
        return address.rstrip("/")
    for file in (Path.cwd() / ".npmrc", Path(given.get("npm_config_userconfig") or Path.home() / ".npmrc")):
        try:
            found = _REGISTRY.findall(file.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError):
            continue
        if found:
            return _VARIABLE.sub(lambda name: os.environ.get(name[1], name[0]), found[-1]).rstrip("/")
    return PUBLIC_NPM


def npm_tarball(registry: str, project: str, file: str, session: requests.Session, timeout: float) -> str:
    """Where the registry says that `file` of a project is; where registries usually keep it, if this one doesn't say.

    Raises requests.RequestException when the registry can't be reached.
    """
    usual = f"{registry}/{project}/-/{file}"
    version = file.removeprefix(f"{project.rpartition('/')[2]}-").removesuffix(".tgz")
    try:
        answer = session.get(f"{registry}/{quote(project, safe='@')}", timeout=timeout)
        said = str(answer.json()["versions"][version]["dist"]["tarball"])
        here, there = urlsplit(registry), urlsplit(said)
    except (ValueError, KeyError, TypeError):
        return usual
    if said.startswith(f"{PUBLIC_NPM}/"):
        # A mirror that passes on what the public registry says.
        return usual
    # The configured address may have a password in front of the host, which the registry does not repeat.
    return urlunsplit(there._replace(netloc=here.netloc)) if there.hostname == here.hostname else said


def _seconds(options: Mapping[str, str]) -> float:
    try:
        return float(options.get("timeout") or options.get("default-timeout") or 15.0)
    except ValueError:
        return 15.0


def _pip_options() -> dict[str, str]:
    """pip's options by their long names, from its files and then from the environment."""
    sections: dict[str, dict[str, str]] = {}
    for line in _pip_config_list().splitlines():
        if listed := _LISTED.fullmatch(line.strip()):
            try:
                value = str(ast.literal_eval(listed["value"]))
            except (ValueError, SyntaxError):
                continue
            sections.setdefault(listed["section"], {})[listed["option"]] = value
    options = {option: value for name in _SECTIONS for option, value in sections.get(name, {}).items()}
    for name, value in os.environ.items():
        # pip, too, takes an empty variable for one that is not set.
        if name.upper().startswith("PIP_") and value:
            options[name[4:].lower().replace("_", "-")] = value
    return options


def _pip_config_list() -> str:
    """What `pip config list` prints, or "" on a machine without pip."""
    # -P: a file called pip.py in the working folder must not run.
    commands = [[sys.executable, "-P", "-m", "pip"]]
    commands += [[found] for name in ("pip", "pip3") if (found := shutil.which(name))]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONIOENCODING": "utf-8"}
    for command in commands:
        try:
            done = subprocess.run(
                [*command, "config", "list"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env=environment,
                timeout=30,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return done.stdout
    return ""
