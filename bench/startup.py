"""What a person waits for before anything happens, and the demo's memory. Every figure is a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import common

FULL = {"rounds": 7, "demo_minutes": 0.3}
QUICK = {"rounds": 1, "demo_minutes": 0}

BEYOND_TORCH = """
import time
import torch
started = time.perf_counter()
{code}
print(time.perf_counter() - started)
"""
IMPORT = "import qkv, then nothing"
USED = "import qkv, then qkv.train, qkv.load and qkv.record"
HELP = "qkv --help, the whole process"
TORCH = "import torch, the whole process"


def timed_inside(code: str) -> Callable[[int], float]:
    """Seconds that `code` takes in a Python that has torch already."""
    program = BEYOND_TORCH.format(code=code)
    return lambda _: float(subprocess.check_output([sys.executable, "-c", program], text=True))


def timed(arguments: Sequence[str]) -> Callable[[int], float]:
    """Seconds of a whole process, Python's own start included."""
    command = [sys.executable, *arguments]
    return lambda _: common.seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def demo_memory(minutes: float) -> float | None:
    """Peak resident memory of `qkv demo`, in GB (10**9 bytes); None where the system doesn't tell.

    Raises RuntimeError with the end of what the demo said when it fails.
    """
    if not minutes or not hasattr(os, "wait4"):
        return None
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        command = [sys.executable, "-m", "qkv", "demo", "--minutes", str(minutes), "--out", str(Path(folder) / "demo")]
        demo = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(demo.pid, 0)
        demo.returncode = os.waitstatus_to_exitcode(status)
        if demo.returncode:
            said.seek(0)
            tail = said.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"qkv demo ended with {demo.returncode}: ...{tail}")
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, the others KiB
    return usage.ru_maxrss * unit / 1e9


def main() -> None:
    options = common.options(__doc__)
    settings = QUICK if options.quick else FULL
    measured = common.Measurements("startup", settings, options)
    systems = {
        IMPORT: timed_inside("import qkv"),
        USED: timed_inside("import qkv\nqkv.train, qkv.load, qkv.record"),
        HELP: timed(["-m", "qkv", "--help"]),
        TORCH: timed(["-c", "import torch"]),
    }
    warm_up = None if options.quick else lambda: [run(0) for run in systems.values()]  # files into the disk cache
    measured.rounds("seconds", systems, settings["rounds"], warm_up)
    memory = demo_memory(settings["demo_minutes"])
    targets = [
        common.target("import qkv beyond import torch, s", measured.median("seconds", IMPORT), 0.3, at_most=True),
        common.target("qkv --help, s", measured.median("seconds", HELP), 0.3, at_most=True),
        common.target(
            "peak memory of the demo, GB", memory, 1.5, at_most=True,
            applies="" if memory else "left out with --quick, and where the system doesn't tell",
        ),
    ]  # fmt: skip
    measured.finish(unit="s", demo_peak_gb=memory and round(memory, 3), targets=targets)
    rows = [[system, f"{measured.median('seconds', system):.3f} s"] for system in systems]
    rows.append(
        [f"peak memory, qkv demo --minutes {FULL['demo_minutes']}", f"{memory:.2f} GB" if memory else "left out"]
    )
    notes = [*measured.target_notes(targets), *measured.notes()]
    common.show("Start and memory, medians", ["", "beyond torch or whole"], rows, notes)


if __name__ == "__main__":
    main()
