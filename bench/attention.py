"""The fused attention kernel against plain products, over lengths: what `_fused_is_faster` in nn/attention.py rests on.

Letters: B rows, H heads, T length, d width of one head. Always about the same number of tokens, in rows of T.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench import common
from qkv.nn import attention
from qkv.nn.dropout import dropout, keep_mask
from qkv.nn.masks import AttentionMask, padding_mask

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MASKS = ("none", "padding", "causal")
PASSES = ("forward", "forward+backward")
PATHS = ("fused", "explicit")
FULL = {
    "tokens": 4096, "heads": 4, "d_head": 64, "lengths": [8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024],
    "one_query": {"rows": 256, "keys": [8, 16, 32, 128, 512]}, "rounds": 7, "dropout_elements": 1 << 20,
}  # fmt: skip
QUICK = {
    "tokens": 64, "heads": 2, "d_head": 8, "lengths": [8, 128], "one_query": {"rows": 4, "keys": [8]}, "rounds": 1,
    "dropout_elements": 1 << 10,
}  # fmt: skip
TOLERATED = 1.10
"""The chosen path may be this many times the better one before the thresholds are said not to fit."""

Case = tuple[str, str, str, int]
"""dtype, pass, mask ("one query": a decoding step over padded keys), length of the keys."""


def main() -> None:
    options = common.options(__doc__)
    settings = QUICK if options.quick else FULL
    measured = common.Measurements("attention", settings, options)
    for case in cases(settings):
        if name(case) not in measured.samples:
            torch.manual_seed(0)
        measure(measured, case, settings)
    measure_dropout(measured, settings)
    thresholds = {dtype: threshold(measured, dtype, settings) for dtype in DTYPES}
    masks = {other: measured.ratio("dropout", f"{other}: torch", f"{other}: qkv") for other in ("mask", "whole")}
    measured.finish(unit="ms", thresholds=thresholds, dropout_ratios=masks)
    notes = [said(dtype, found) for dtype, found in thresholds.items()]
    notes.append(dropout_note(measured, "mask", "bernoulli_ and keep_mask"))
    notes.append(dropout_note(measured, "whole", "F.dropout and dropout, forward+backward"))
    common.show(
        f"Attention over {settings['tokens']} tokens in rows of T, fused / explicit, ms", *table(measured, settings),
        [*notes, *measured.notes()],
    )  # fmt: skip


def cases(settings: dict[str, Any]) -> Iterator[Case]:
    for length in settings["lengths"]:
        yield from ((d, p, m, length) for d in DTYPES for p in PASSES for m in MASKS)
    yield from ((d, "forward", "one query", length) for d in DTYPES for length in settings["one_query"]["keys"])


def name(case: Case) -> str:
    dtype, which, mask, length = case
    return f"{dtype} {which}, mask {mask}, T {length}"


def measure(measured: common.Measurements, case: Case, settings: dict[str, Any]) -> None:
    """Both paths in turns, through `attend` itself: what is timed is what runs."""
    dtype, which, mask_name, length = case
    single = mask_name == "one query"
    rows = settings["one_query"]["rows"] if single else max(1, settings["tokens"] // length)
    shape = (rows, settings["heads"], length, settings["d_head"])
    backward = which != "forward"
    query, key, value = (torch.randn(shape).to(DTYPES[dtype]).requires_grad_(backward) for _ in range(3))
    if single:
        query = query[:, :, :1]
    mask = make_mask("padding" if single else mask_name, rows, length)
    gradient = torch.randn(query.shape).to(query.dtype)

    def run() -> None:
        if backward:
            torch.autograd.grad(attention.attend(query, key, value, mask=mask), (query, key, value), gradient)
        else:
            with torch.no_grad():
                attention.attend(query, key, value, mask=mask)

    repeats = [1]

    def warm_up() -> None:
        for path in PATHS:
            with forced(path):
                once = common.seconds(run)
        repeats[0] = max(1, math.ceil(0.005 / once))  # at least 5 ms a sample, so that the clock is no matter

    def timed(path: str) -> Callable[[int], float]:
        def sample(_: int) -> float:
            with forced(path):
                return 1e3 * common.seconds(lambda: [run() for _ in range(repeats[0])]) / repeats[0]

        return sample

    rounds = settings["rounds"] if length < 256 else min(3, settings["rounds"])
    measured.rounds(name(case), {path: timed(path) for path in PATHS}, rounds, warm_up)


def make_mask(kind: str, rows: int, length: int) -> AttentionMask | None:
    if kind == "padding":
        return padding_mask(torch.randint(length // 2, length + 1, (rows,)), length)
    return AttentionMask(causal=True) if kind == "causal" else None


@contextmanager
def forced(path: str) -> Iterator[None]:
    """`attend` takes the fused kernel, or plain products, whatever it would choose."""
    chosen = attention._fused_is_faster
    attention._fused_is_faster = lambda *_: path == "fused"
    try:
        yield
    finally:
        attention._fused_is_faster = chosen


def threshold(measured: common.Measurements, dtype: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What the house's rule costs at each length (geometric mean over masks and passes), and what would be best."""
    gains: dict[int, float] = {}  # length -> explicit / fused: above 1 the fused kernel is quicker
    for length in settings["lengths"]:
        logs = [
            math.log(measured.median(name(case), "explicit") / measured.median(name(case), "fused"))
            for case in ((dtype, p, m, length) for p in PASSES for m in MASKS)
        ]
        gains[length] = math.exp(sum(logs) / len(logs))
    chosen = {length: fused_is_chosen(dtype, length) for length in gains}
    losses = {length: max(1.0, 1 / gain if chosen[length] else gain) for length, gain in gains.items()}
    slower = [length for length, gain in gains.items() if gain < 1]
    best_from = next((length for length in gains if not slower or length > max(slower)), None)
    return {
        "house_rule_fused_from": next((length for length in gains if chosen[length]), None),
        "fused_quicker_from": best_from,
        "explicit_over_fused": {str(length): round(gain, 3) for length, gain in gains.items()},
        "worst_loss": {"length": max(losses, key=losses.__getitem__), "times": round(max(losses.values()), 3)},
        "fits": max(losses.values()) <= TOLERATED,
    }


def fused_is_chosen(dtype: str, length: int) -> bool:
    empty = torch.empty(1, 1, length, 8, dtype=DTYPES[dtype])
    return attention._fused_is_faster(empty, empty, None, 0.0)


def said(dtype: str, found: dict[str, Any]) -> str:
    best, worst = found["fused_quicker_from"], found["worst_loss"]
    verdict = "fits this machine" if found["fits"] else "does NOT fit this machine"
    return (
        f"{dtype}: fused is quicker {f'from {best} on' if best else 'at no length measured'}; the rule takes it from "
        f"{found['house_rule_fused_from']} on and {verdict} (at worst {worst['times']} times the better path, "
        f"at {worst['length']})"
    )


def measure_dropout(measured: common.Measurements, settings: dict[str, Any]) -> None:
    """The draw alone, and dropout forward and backward, each beside torch's."""
    x = torch.randn(settings["dropout_elements"], requires_grad=True)
    gradient, p = torch.ones_like(x), 0.1

    def sample(function: Callable[[], object]) -> Callable[[int], float]:
        return lambda _: 1e3 * common.seconds(function)

    def both_ways(function: Callable[[Tensor, float], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(x, p), x, gradient)

    systems = {
        "mask: torch": lambda: torch.empty_like(gradient).bernoulli_(1 - p),
        "mask: qkv": lambda: keep_mask(x.shape, p),
        "whole: torch": both_ways(F.dropout),
        "whole: qkv": both_ways(dropout),
    }
    rounds = 1 if settings is QUICK else 4 * settings["rounds"]
    measured.rounds(
        "dropout", {system: sample(function) for system, function in systems.items()}, rounds,
        warm_up=lambda: [function() for function in systems.values()],
    )  # fmt: skip


def dropout_note(measured: common.Measurements, which: str, what: str) -> str:
    theirs, ours = (measured.median("dropout", f"{which}: {whose}") for whose in ("torch", "qkv"))
    return f"dropout, {what}: {theirs:.2f} and {ours:.2f} ms, {theirs / ours:.1f} times"


def table(measured: common.Measurements, settings: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    columns = ["mask", "T", *(f"{dtype} {which}" for dtype in DTYPES for which in PASSES)]
    lengths = dict.fromkeys(MASKS, settings["lengths"]) | {"one query": settings["one_query"]["keys"]}
    rows: list[list[str]] = []
    for mask, several in lengths.items():
        for length in several:
            row = [mask, str(length)]
            for case in ((d, p, mask, length) for d in DTYPES for p in PASSES):
                known = name(case) in measured.samples
                row.append(" / ".join(f"{measured.median(name(case), path):.2f}" for path in PATHS) if known else "")
            rows.append(row)
    return columns, rows


if __name__ == "__main__":
    main()
