"""All measurements in turn, each in a process of its own: python -m bench [NAME ...] [--quick] [--out DIR].

Needs nothing installed by itself, so that it runs as `python bench` too; what it starts needs qkv[train,bench].
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ORDER = ("attention", "training", "classification", "decoding", "startup")
MORE = ("demo_curve",)
"""Only when named: takes long, and writes into the package."""


def main(arguments: list[str]) -> int:
    """Runs what is named, or all; returns the largest exit code. Code 2 for a name that is none."""
    if any(argument in ("-h", "--help") for argument in arguments):
        print(f"{__doc__}\nNames: {', '.join(ORDER)}; only when named: {', '.join(MORE)}")
        return 0
    first_option = next((i for i, argument in enumerate(arguments) if argument.startswith("-")), len(arguments))
    names, options = arguments[:first_option] or list(ORDER), arguments[first_option:]
    unknown = [name for name in names if name not in (*ORDER, *MORE)]
    if unknown:
        print(f"bench: no {', '.join(unknown)}. There are: {', '.join((*ORDER, *MORE))}", file=sys.stderr)
        return 2
    # As qkv.cli.main.TORCH_MEMORY, which cannot be imported here; the peers have them too.
    environment = {"THP_MEM_ALLOC_ENABLE": "1", "LRU_CACHE_CAPACITY": "64", **os.environ}
    codes: list[int] = []
    for name in names:
        started = time.monotonic()
        command = [sys.executable, "-m", f"bench.{name}", *options]
        codes.append(subprocess.run(command, cwd=ROOT, env=environment).returncode)
        verdict = f"FAILED (exit {codes[-1]})" if codes[-1] else "done"
        print(f"--- {name}: {verdict} in {time.monotonic() - started:.0f} s\n", flush=True)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
