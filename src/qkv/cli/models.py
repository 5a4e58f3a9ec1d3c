"""`qkv models`."""

from __future__ import annotations

import dataclasses

import click

from qkv.cli.options import json_option, print_json


@click.command()
@json_option
def command(as_json: bool) -> None:
    """List the architectures: what each one reads, its heads, and its settings with their defaults."""
    from qkv.models.registry import models

    rows = [
        {
            "name": entry.name,
            "summary": entry.summary,
            "reads": sorted(entry.reads),
            "heads": sorted(entry.heads),
            "settings": {f.name: f.default for f in dataclasses.fields(entry.config)},
            "help": entry.config.__doc__,
        }
        for entry in models().values()
    ]
    if as_json:
        print_json({"models": rows})
        return
    for row in rows:
        click.echo(f"{row['name']}: {row['summary']}")
        click.echo(f"  reads {', '.join(row['reads'])}; heads {', '.join(row['heads'])}")
        for name, default in row["settings"].items():
            click.echo(f"  --model.{name:18} {default}")
        click.echo()
        click.echo(row["help"])
