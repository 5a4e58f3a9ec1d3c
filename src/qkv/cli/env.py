"""`qkv env`."""

from __future__ import annotations

from typing import Any

import click

from qkv.cli.options import json_option, print_json


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Print what this machine offers to qkv: versions, devices, speed, fonts, package mirrors, cache.

    Paste it into a question or a bug report: passwords in addresses are left out. Nothing is fetched; the speed is
    that of a few matrix products, timed for a moment as training does before it chooses its precision.
    """
    import torch

    import qkv
    from qkv.run.environment import environment
    from qkv.training.precision import choose_precision

    found = environment()
    device = found["devices"][0]["name"]
    chosen = choose_precision("auto", torch.device(device))
    speed = {"device": device, "gflops": chosen.gflops, "auto": chosen.name, "reason": chosen.reason}
    found = {"qkv": qkv.__version__, **found, "precision": speed}
    if as_json:
        print_json(found)
        return
    for name, value in _lines(found):
        click.echo(f"{name:12} {value}")


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    set_outside = found["omp_num_threads"]
    said = "not set" if set_outside is None else set_outside
    speed = found["precision"]
    rates = ", ".join(f"{dtype} {rate:,.0f} GFLOP/s" for dtype, rate in speed["gflops"].items()) or "not timed"
    return [
        ("qkv", f"{found['qkv']}; Python {found['python']}, torch {found['torch']}"),
        *_libraries(found["libraries"]),
        ("system", found["system"]),
        ("processor", f"{found['processor']}; {found['cores']} cores, torch uses {_threads(found['threads'])}"),
        ("", f"OMP_NUM_THREADS {said}; memory {_size(found['memory'])}"),
        *(
            ("device" if place == 0 else "", _device(one) + (" (what --device auto takes)" if place == 0 else ""))
            for place, one in enumerate(found["devices"])
        ),
        ("speed", f"on {speed['device']}: {rates}; --precision auto takes {speed['auto']}"),
        ("fonts", _fonts(found["fonts"])),
        *(("mirrors" if place == 0 else "", address) for place, address in enumerate(found["mirrors"])),
        *([("proxy", found["proxy"])] if found["proxy"] else []),
        ("cache", f"{found['cache']['folder']}: {_size(found['cache']['bytes'])}"),
        ("terminal", _terminal(found["terminal"])),
    ]


def _libraries(libraries: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """One line for each extra, with what is missing and how to get it."""
    extras = list(dict.fromkeys(extra for one in libraries for extra in one["extras"]))
    lines: list[tuple[str, str]] = []
    for extra in extras:
        own = [one for one in libraries if extra in one["extras"]]
        there = ", ".join(f"{one['name']} {one['version'] or 'missing'}" for one in own)
        hint = "" if all(one["version"] for one in own) else f' (pip install "qkv[{extra}]" brings what is missing)'
        lines.append((f"[{extra}]", there + hint))
    return lines


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _device(one: dict[str, Any]) -> str:
    room = "" if one["memory"] is None else f", {_size(one['memory'])}"
    return f"{one['name']}: {one['title']}{room}"


def _fonts(fonts: dict[str, list[str]]) -> str:
    if fonts["used"]:
        return f"Chinese text in figures: {', '.join(fonts['used'])}"
    boxes = "Chinese text in PNG and PDF figures comes out as boxes (the report page has the browser's fonts)"
    if not fonts["installed"]:
        return f"{boxes}: no font here has it; Noto Sans CJK SC is a free one"
    family = fonts["installed"][0]
    return f"{boxes}: a line `font.sans-serif: DejaVu Sans, {family}` in matplotlibrc makes figures use {family}"


def _terminal(terminal: dict[str, Any]) -> str:
    hint = "" if terminal["chinese"] else " (cannot write Chinese: set PYTHONUTF8=1)"
    return f"{terminal['encoding']}{hint}"


def _size(count: int | None) -> str:
    if count is None:
        return "not known"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
