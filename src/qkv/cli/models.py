"""`qkv models`."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import click

from qkv.cli.options import json_option, print_json


@click.command()
@json_option
def command(as_json: bool) -> None:
    """List the architectures and every setting with its default: of each model, of files, of the task, of training."""
    from qkv.data.sources import CONFIGS
    from qkv.models.registry import models
    from qkv.tasks.registry import TASKS
    from qkv.training.config import KeepConfig, TrainingConfig
    from qkv.training.memory import MemoryConfig

    rows = [
        {
            "name": entry.name,
            "summary": entry.summary,
            "reads": sorted(entry.reads),
            "heads": entry.heads,
            "tasks": [name for name, one in TASKS.items() if one.task.head in entry.builds],
            **_described(entry.config),
        }
        for entry in models().values()
    ]
    tasks = {name: _described(entry.config) for name, entry in TASKS.items()}
    files = {name: _described(config) for name, config in CONFIGS.items()}
    tables = {"training": TrainingConfig, "keep": KeepConfig, "memory": MemoryConfig}
    shared = {table: _described(config) for table, config in tables.items()}
    if as_json:
        print_json({"models": rows, "tasks": tasks, "files": files, **shared})
        return
    for row in rows:
        click.echo(f"{row['name']}: {row['summary']}")
        click.echo(f"  reads {', '.join(row['reads'])}; heads {', '.join(row['heads'])}; for {', '.join(row['tasks'])}")
        _print_settings("model", row)
    for name, described in tasks.items():
        click.echo(f"\ntask {name}")
        _print_settings("task", described)
    for name, described in files.items():
        click.echo(f"\nyour own files: {name}")
        _print_settings("data", described)
    for table, described in shared.items():
        click.echo(f"\n{table}: the same for every model")
        _print_settings(table, described)


def _described(config: type[Any]) -> dict[str, Any]:
    settings = {field.name: field.default for field in dataclasses.fields(config)}
    return {"settings": settings, "help": inspect.getdoc(config)}


def _print_settings(table: str, described: dict[str, Any]) -> None:
    for name, default in described["settings"].items():
        click.echo(f"  --{table}.{name:18} {default}")
    click.echo(f"\n{described['help']}")
