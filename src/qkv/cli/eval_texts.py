"""What `qkv eval` prints of a run on labelled texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qkv.cli.options import console, download_bar, print_json
from qkv.errors import UserError

if TYPE_CHECKING:
    from qkv.data.files.reading import FileConfig
    from qkv.experiments.evaluate import Given
    from qkv.experiments.evaluate_texts import TextEvaluation
    from qkv.run.run import Run


def evaluate(
    run: Run, data: str | None, reading: FileConfig, columns: tuple[str | None, str | None], output: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Scores a run on a file or on its own test split. `columns` are those of text and label."""
    from dataclasses import asdict

    from qkv.experiments.evaluate import own_test
    from qkv.experiments.evaluate_texts import evaluate_texts, own_file

    if data is not None:
        given = own_file(run, data, reading, *columns)
    else:
        with download_bar() as progress:
            given = own_test(run, progress)
    click.echo(f"evaluating on {given.name}: {len(given.examples):,} examples", err=True)
    found = evaluate_texts(run, given.examples)
    if output is not None:
        _write(Path(output), found.answers)
    if as_json:
        print_json(
            {"run": str(run.folder), "data": given.name, "examples": len(given.examples), "metrics": found.metrics,
             "left_out": [asdict(one) for one in given.left_out], "notes": given.notes,
             "slices": [asdict(one) for one in found.slices], "per_label": found.per_label, "answers": found.answers}
        )  # fmt: skip
        return
    _print(given, found)


def refuse_options(run: Run, asked: dict[str, Any]) -> None:
    """Raises UserError for options that only a run that writes has."""
    for name, value in asked.items():
        if value:
            raise UserError(
                f"{run.folder} is a run of {run.task.name}, which searches for nothing: --{name} is not for it"
            )


def _write(path: Path, answers: list[dict[str, Any]]) -> None:
    from qkv.run.folder import replacing

    with replacing(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)


def _print(given: Given, found: TextEvaluation) -> None:
    from rich.table import Table

    from qkv.tasks.metrics import METRICS

    for note in given.notes:
        click.echo(f"note: {note}")
    if given.left_out:
        click.echo(f"left out: {len(given.left_out):,} rows (--json lists each)")
    for name, value in found.metrics.items():
        click.echo(f"{METRICS[name].short:16} {value:6.2f} {METRICS[name].unit:1} {METRICS[name].title}")
    if found.slices:
        table = Table("length", "examples", *(METRICS[name].short for name in found.metrics), box=None, pad_edge=False)
        for one in found.slices:
            table.add_row(one.name, f"{one.examples:,}", *(f"{one.metrics[name]:.2f}" for name in found.metrics))
        click.echo()
        console().print(table, highlight=False)
    if found.per_label:
        names = list(found.per_label[0])
        table = Table(*(name.replace("f1", "F1") for name in names), box=None, pad_edge=False)
        for row in sorted(found.per_label, key=lambda row: -row["support"])[:40]:
            table.add_row(
                *(f"{v:.2f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v for v in row.values())
            )
        click.echo()
        console().print(table, highlight=False, markup=False)


def _cell(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}"
