"""What a machine offers to qkv: versions, processor, memory, devices, fonts, package mirrors, cache, terminal.

Needs no optional library, so that it can say which are missing, and opens no connection.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import matplotlib
import torch
from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

from qkv.data import fetch, mirrors
from qkv.inspection.canvas import STYLE

HAN = "\N{CJK UNIFIED IDEOGRAPH-6C49}"

_REQUIRED = re.compile(r"(?P<name>[\w.-]+).*?; extra == ['\"](?P<extra>[\w-]+)['\"]")
_NOT_OFFERED = ("all", "dev")  # the first only repeats others, the second is for work on qkv itself
_SECRET = re.compile(r"(?<=/)(?:[^/]*:[^/]*@[^/]*|(?=[^/]*\d)[^/]{16,})(?=/|$)")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def environment() -> dict[str, Any]:
    """Everything as plain values that fit JSON; sizes in bytes, None for what the system does not tell.

    Keys: python, torch (versions), libraries, system, processor, cores (that this process may use), threads (that
    torch uses), omp_num_threads (as set outside, else None), memory, devices (the one that `auto` takes first), fonts,
    mirrors, proxy, cache, terminal. Addresses are without user name, password, query, and what looks like a token.
    """
    known = mirrors.configured()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "libraries": libraries(),
        "system": platform.platform(),
        "processor": str(torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine()),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "memory": memory(),
        "devices": devices(),
        "fonts": chinese_fonts(),
        "mirrors": [str(place.folder or without_secrets(place.address)) for place in known.places],
        "proxy": without_secrets(known.proxy) if known.proxy else None,
        "cache": cache(),
        "terminal": terminal(),
    }


def libraries() -> list[dict[str, Any]]:
    """The optional libraries by name, with their version (None: missing) and the extras that bring them.

    Empty where qkv is used without having been installed: then nothing says what is optional.
    """
    try:
        required = importlib.metadata.requires("qkv") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    extras: dict[str, list[str]] = {}
    for found in filter(None, map(_REQUIRED.match, required)):
        if found["extra"] not in _NOT_OFFERED:
            extras.setdefault(found["name"], []).append(found["extra"])
    return [{"name": name, "version": _version(name), "extras": several} for name, several in extras.items()]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def memory() -> int | None:
    """Bytes of memory that programs here may use in all: the machine's, or less where a container is limited."""
    limits = [int(path.read_text(encoding="ascii")) for path in map(Path, _LIMITS) if _is_number(path)]
    there = _windows_memory() if sys.platform == "win32" else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([there, *limits]) if there > 0 else None


def _is_number(path: Path) -> bool:
    return path.is_file() and path.read_text(encoding="ascii").strip().isdigit()  # "max": no limit


def _windows_memory() -> int:
    kilobytes = ctypes.c_ulonglong()
    ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kilobytes))  # pyright: ignore[reportAttributeAccessIssue]
    return kilobytes.value * 1024


def devices() -> list[dict[str, Any]]:
    """What can be given to --device, in the order in which `auto` looks for it; memory of its own in bytes, or None."""
    found: list[dict[str, Any]] = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        card = torch.cuda.get_device_properties(number)
        found.append({"name": f"cuda:{number}", "title": card.name, "memory": card.total_memory})
    if torch.backends.mps.is_available():
        found.append({"name": "mps", "title": "Apple GPU", "memory": torch.mps.recommended_max_memory()})
    return [*found, {"name": "cpu", "title": "processor", "memory": None}]


def chinese_fonts() -> dict[str, list[str]]:
    """Families that have Chinese characters: `installed`, and of those `used`, which figures fall back on."""
    installed = sorted({font.name for font in font_manager.fontManager.ttflist if _has_han(font.fname)})
    with matplotlib.rc_context(STYLE):
        settings: dict[Any, Any] = dict(matplotlib.rcParams)
    families = [name for family in settings["font.family"] for name in settings.get(f"font.{family}", [family])]
    return {"installed": installed, "used": [name for name in families if name in installed]}


def _has_han(path: str) -> bool:
    if "LastResort" in Path(path).name:  # has a box for every character
        return False
    try:
        return bool(FT2Font(path).get_char_index(ord(HAN)))
    except (OSError, RuntimeError):  # removed since matplotlib listed it, or no font that it can read
        return False


def without_secrets(address: str) -> str:
    """A URL, or HOST:PORT, as it may be shown to anybody."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        parts.port  # noqa: B018 (raises when a password with a slash in it stands where the port should)
    except ValueError:
        return "(an address that cannot be read)"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, _SECRET.sub("***", parts.path), "", "")).removeprefix("//")


def cache() -> dict[str, Any]:
    """The folder of downloads and the bytes in it, 0 while nothing has been fetched."""
    folder = fetch.cache_dir()
    return {"folder": str(folder), "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())}


def terminal() -> dict[str, Any]:
    """The encoding of standard output, and whether Chinese can be written in it."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        HAN.encode(encoding)
    except UnicodeEncodeError:
        return {"encoding": encoding, "chinese": False}
    return {"encoding": encoding, "chinese": True}
