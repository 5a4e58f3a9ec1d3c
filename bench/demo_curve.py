"""How far the demo's model gets with how many tokens: the curve that `qkv demo` reads before it trains.

Each point is a run of its own, with its own schedule from start to end. Runs stay in bench/.cache: a script that is
killed goes on where it was, and more points can be added later.
"""

from __future__ import annotations

import argparse
import json
from importlib import resources
from pathlib import Path
from typing import Any

import qkv
from bench import common
from qkv.run.config import read_toml

CONFIG = resources.files("qkv.experiments") / "demo.toml"
CURVE = common.ROOT / "src" / "qkv" / "experiments" / "demo_curve.json"
STEPS = (60, 120, 250, 500, 1000, 2000, 4000)
QUICK = {"model": {"d_model": 16, "n_heads": 2, "d_ff": 16, "n_layers": 1}, "task": {"beam": 1, "max_length": 2}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="optimiser steps of each run")
    parser.add_argument("--quick", action="store_true", help="a tiny model, to see that the script works")
    parser.add_argument(
        "--out", type=Path, help="the JSON file (default: the package's own; with --quick in bench/.cache)"
    )
    options = parser.parse_args()
    out = options.out or (common.CACHE / "quick" / "demo_curve.json" if options.quick else CURVE)
    with resources.as_file(CONFIG) as path:
        config = read_toml(path)
    if options.quick:
        config = {**config, **{table: {**config[table], **changes} for table, changes in QUICK.items()}}
    del config["training"]["minutes"]  # every point has its own number of steps
    steps = [2] if options.quick else sorted(set(options.steps))
    points = known_points(out, config)
    rows: list[list[str]] = []
    for count in steps:
        end = point(config, count)
        points[end["tokens"]] = round(end["test"]["wer"], 2)
        test = end["test"]
        rows.append(
            [f"{count:,}", f"{end['tokens']:,}", f"{end['seconds']:.0f}", f"{test['wer']:.1f}", f"{test['per']:.1f}"]
        )
        common.write_json(out, {"config": config, "points": sorted(points.items()), "machine": common.machine()})
    common.show(
        "The demo's model after runs of different length", ["steps", "tokens", "seconds", "test WER %", "test PER %"],
        rows, [f"written to {out}"],
    )  # fmt: skip


def known_points(path: Path, config: dict[str, Any]) -> dict[int, float]:
    """Test WER by tokens, as measured before with the same config: a new point joins them."""
    if not path.is_file():
        return {}
    known = json.loads(path.read_text(encoding="utf-8"))
    return dict(known["points"]) if known["config"] == config else {}


def point(config: dict[str, Any], steps: int) -> dict[str, Any]:
    """The last event of a whole run of `steps` steps; an unfinished or finished one is taken up again."""
    settings = {f"{table}.{key}": value for table, values in config.items() for key, value in values.items()}
    names = {table: settings.pop(f"{table}.name") for table in ("data", "model", "task")}
    settings["training.steps"] = steps
    folder = common.CACHE / f"demo-curve-{common.digest(settings)}"
    run = qkv.train(names["data"], names["model"], out=folder, device="cpu", **settings)
    return next(event for event in run.events() if event["event"] == "end")


if __name__ == "__main__":
    main()
