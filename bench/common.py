"""What the measurements share: the machine, timing in turns, results on disk, one table."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
CACHE = ROOT / "bench" / ".cache"

# What decides how quick products in small number formats are; x86 and ARM names as torch reports them.
_FLAGS = (
    "avx2", "fma3", "avx512_f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "avx10_1", "amx_tile",
    "amx_bf16", "amx_int8", "asimd", "bf16", "i8mm", "dotprod", "sve", "sve2", "sme",
)  # fmt: skip
_PACKAGES = ("torch", "numpy", "transformers", "ctranslate2")


def machine() -> dict[str, Any]:
    """Processor, cores, instruction flags, threads and system, as plain values."""
    capabilities: dict[str, Any] = torch.cpu.get_capabilities()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_model() or str(capabilities.get("cpu_name") or platform.processor()),
        "architecture": platform.machine(),
        "cores": cores,
        "flags": [flag for flag in _FLAGS if capabilities.get(flag)],
        "torch_kernels": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    """Model and family number where Linux tells them: cloud machines hide the first behind a common name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""
    fields = dict(line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    known = {name.strip(): value.strip() for name, value in fields.items()}
    numbers = [f"{name} {known[name]}" for name in ("cpu family", "model") if name in known]
    return ", ".join([*filter(None, [known.get("model name")]), *numbers])


def versions() -> dict[str, str]:
    """Versions of the packages that are measured; "not installed" for those that are missing."""
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def load() -> float | None:
    """Processes that wanted to run in the last minute, where the system tells."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def options(doc: str | None) -> argparse.Namespace:
    """The command line that all scripts share: --quick and --out."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that the script works; the figures mean nothing"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for the JSON (default: bench/results, with --quick bench/.cache/quick)"
    )
    chosen = parser.parse_args()
    chosen.out = chosen.out or (CACHE / "quick" if chosen.quick else RESULTS)
    return chosen


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


class Measurements:
    """Samples of several systems, taken in turns, kept on disk after each round.

    A script that is killed goes on from the last whole round when it is started again with the same settings on the
    same machine with the same versions; otherwise it begins anew.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], options: argparse.Namespace):
        self.name, self.settings = name, dict(settings)
        self.out, self.quick = options.out, options.quick
        self.machine, self.versions = machine(), versions()
        self.load, self._started, self._saved = load(), time.monotonic(), 0.0
        identity = {"settings": self.settings, "machine": self.machine, "versions": self.versions}
        self._partial = CACHE / "partial" / f"{name}-{digest(identity)}.json"
        self.samples: dict[str, dict[str, list[float]]] = {}
        self.resumed = self._partial.is_file()
        if self.resumed:
            self.samples = json.loads(self._partial.read_text(encoding="utf-8"))

    def rounds(
        self,
        group: str,
        systems: Mapping[str, Callable[[int], float]],
        count: int,
        warm_up: Callable[[], object] | None = None,
    ) -> None:
        """`count` rounds, in each of which every system is asked once, in turn: A B C A B C.

        A system is called with the number of the round and returns what is measured. `warm_up` runs once before the
        first round that is still to do.
        """
        kept = self.samples.setdefault(group, {})
        done = min((len(kept.get(system, [])) for system in systems), default=0)
        if done < count and warm_up is not None:
            warm_up()
        for number in range(done, count):
            values = {system: measure(number) for system, measure in systems.items()}
            for system, value in values.items():
                kept[system] = [*kept.get(system, [])[:number], value]
            if number + 1 == count or time.monotonic() - self._saved > 1.0:
                write_json(self._partial, self.samples)
                self._saved = time.monotonic()

    def median(self, group: str, system: str) -> float:
        return statistics.median(self.samples[group][system])

    def ratio(self, group: str, system: str, other: str) -> dict[str, float]:
        """How many times `system` is `other`: the quotient of their medians, and the range over the rounds."""
        pairs = zip(self.samples[group][system], self.samples[group][other], strict=True)
        each = [a / b for a, b in pairs]
        whole = self.median(group, system) / self.median(group, other)
        return {"ratio": round(whole, 3), "lowest": round(min(each), 3), "highest": round(max(each), 3)}

    def finish(self, **results: Any) -> Path:
        """Writes NAME.json with all medians and what the script adds, and removes the unfinished file."""
        medians = {
            group: {
                system: {
                    "median": significant(statistics.median(values)), "lowest": significant(min(values)),
                    "highest": significant(max(values)), "rounds": len(values),
                }
                for system, values in systems.items()
            }
            for group, systems in self.samples.items()
        }  # fmt: skip
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        heading = {
            "name": self.name, "date": now, "machine": self.machine, "load_before": self.load,
            "versions": self.versions, "quick": self.quick,
            "resumed": self.resumed, "seconds": round(time.monotonic() - self._started, 1),
            "settings": self.settings,
        }  # fmt: skip
        write_json(self.out / f"{self.name}.json", {**heading, "medians": medians, **results})
        self._partial.unlink(missing_ok=True)
        return self.out / f"{self.name}.json"

    def notes(self) -> list[str]:
        """What a reader of the table must know about this run."""
        said = ["A run with --quick: these figures mean nothing."] if self.quick else []
        said += [
            f"{self.machine['cpu']}: {self.machine['cores']} cores, {self.machine['threads']} threads, "
            f"{' '.join(self.machine['flags']) or 'no instruction flags known'}; "
            + ", ".join(f"{name} {version}" for name, version in self.versions.items())
        ]
        if self.load is not None and self.load > 0.5:
            said.append(f"Other programs were running (load {self.load} at the start): these figures are disturbed.")
        if self.resumed:
            said.append("An interrupted run was continued: some rounds are from another time.")
        return said

    def target_notes(self, targets: Sequence[Mapping[str, Any]]) -> list[str]:
        """One line a target, unless the figures mean nothing."""
        said: list[str] = []
        for one in [] if self.quick else targets:
            measured = "not measured" if one["measured"] is None else f"measured {one['measured']:g}"
            verdict = {True: "reached", False: "NOT reached", None: one["does_not_apply"] or "open"}[one["reached"]]
            said.append(f"{one['target']}: {measured}, {verdict}")
        return said


def digest(settings: Any) -> str:
    """A short name for settings that fit JSON: the same for equal ones."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def significant(value: float, digits: int = 5) -> float:
    return float(f"{value:.{digits}g}")


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all: a script killed here leaves the previous file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    part.replace(path)


def target(
    what: str, measured: float | None, wanted: float, at_most: bool = False, applies: str = ""
) -> dict[str, Any]:
    """One line of what must be reached. `applies` says why it doesn't count on this machine, when it doesn't."""
    reached = None if measured is None or applies else (measured <= wanted if at_most else measured >= wanted)
    sign = "<=" if at_most else ">="
    value = None if measured is None else round(measured, 3)
    return {"target": f"{what} {sign} {wanted:g}", "measured": value, "reached": reached, "does_not_apply": applies}


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """One table, its first column on the left and figures on the right, and notes under it."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    console.print(title, style="bold", markup=False)
    console.print(table)
    for note in notes:
        console.print(f"  {note}", markup=False, soft_wrap=True)
