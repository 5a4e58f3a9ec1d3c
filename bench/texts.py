"""Every architecture on one data set of texts, for equal minutes: python -m bench.texts DATA [DATA ...] [--minutes 2].

DATA is a name of the catalogue, an option of it behind a colon: zh-people-daily:layer=ner.

Each model is a run under bench/.cache/texts and is not trained again when it is finished; the table is written to
bench/results/texts-DATA.json. Settings are the defaults of `qkv train`; the n-gram baseline is fitted, not timed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench import common
from qkv.data import catalogue
from qkv.models import registry
from qkv.tasks import registry as tasks
from qkv.tasks.metrics import METRICS
from qkv.training.train import train

FIGURES = {"classification": ("accuracy", "macro_f1", "ece"), "tagging": ("accuracy", "entity_f1")}


def models_for(task: str) -> list[str]:
    """Every architecture with the head that the task needs, the fitted one first."""
    head = tasks.find(task).task.head
    found = [entry for entry in registry.models().values() if head in entry.builds]
    return [entry.name for entry in sorted(found, key=lambda entry: not entry.fitted)]


def parsed(data: str) -> tuple[str, str, dict[str, str]]:
    """Of DATA: the catalogue's name, what its files are called, and the settings."""
    name, _, option = data.partition(":")
    key, _, value = option.partition("=")
    return name, f"{name}-{value}" if value else name, {f"data.{key}": value} if value else {}


def trained(data: str, model: str, minutes: float, folder: Path) -> dict[str, Any]:
    """One row of the table: the test figures of a run of that model, which is trained if it is not there."""
    name, label, settings = parsed(data)
    out = folder / f"{label}-{model}-{minutes:g}"
    run = train(name, model, minutes=minutes, out=out, listeners=[], allow_unk=True, **settings)
    end = run.events()[-1]
    return {
        "model": model, "parameters": sum(p.numel() for p in run.model.parameters()), "seconds": end["seconds"],
        "steps": end["step"], "best_step": end["best_step"], "tokens": end["tokens"],
        "test_examples": end["test_examples"], "seed": run.config["training"]["seed"], "test": run.metrics(),
        "precision": run.config["training"]["precision"],
    }  # fmt: skip


def table(data: str, minutes: float, out: Path, only: str) -> None:
    """Trains what is missing, writes the JSON and prints the table, best first."""
    name, label, _ = parsed(data)
    task = catalogue.entry(name).task
    rows = []
    for model in only.split(",") if only else models_for(task):
        rows.append(trained(data, model, minutes, common.CACHE / "texts"))
        common.write_json(out / f"texts-{label}.json", _result(data, minutes, rows))
    figures = [name for name in FIGURES[task] if name in rows[0]["test"]]
    best = sorted(rows, key=lambda row: -row["test"][figures[0]])
    shown = [
        [
            row["model"], *(f"{row['test'][name]:.1f}" for name in figures), f"{row['parameters'] / 1e6:.2f} M",
            f"{row['seconds'] / 60:.1f}", f"{row['steps']:,}",
        ]
        for row in best
    ]  # fmt: skip
    majority = rows[0]["test"].get("majority")
    if majority is not None:
        shown.append(["most frequent label", f"{majority:.1f}", *[""] * (len(figures) + 2)])
    columns = [f"{label}, test", *(METRICS[name].short for name in figures), "parameters", "minutes", "steps"]
    notes = [f"{rows[0]['test_examples']:,} test examples, one seed; {common.machine()['threads']} threads"]
    common.show(f"{task}: {minutes:g} minutes of training each, default settings", columns, shown, notes)


def _result(data: str, minutes: float, rows: list[dict[str, Any]]) -> dict[str, Any]:
    name, label, settings = parsed(data)
    return {
        "name": f"texts-{label}", "data": name, "settings": settings, "source": catalogue.entry(name).source,
        "minutes": minutes,
        "machine": common.machine(), "versions": common.versions(), "rows": rows,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="names of the catalogue, as NAME or NAME:OPTION=VALUE")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--models", default="", help="of them only these, separated by commas")
    parser.add_argument("--out", type=Path, default=common.RESULTS)
    chosen = parser.parse_args()
    for data in chosen.data:
        table(data, chosen.minutes, chosen.out, chosen.models)


if __name__ == "__main__":
    main()
