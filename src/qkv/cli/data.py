"""`qkv data`."""

from __future__ import annotations

from typing import Any

import click

from qkv.cli.options import PASS_SETTINGS, NamedCommands, download_bar, json_option, name_and_settings, print_json
from qkv.errors import UserError


@click.group(cls=NamedCommands)
def command() -> None:
    """List, fetch and describe the data sets of the catalogue."""


@command.command(name="list")
@json_option
def list_all(as_json: bool) -> None:
    """List the data sets that can be fetched by name."""
    from qkv.data.catalogue import CATALOGUE

    rows = [
        {"name": e.name, "title": e.title, "task": e.task, "size_mb": round(e.size_mb, 2), "licence": e.licence}
        for e in CATALOGUE.values()
    ]
    if as_json:
        print_json({"data": rows})
        return
    for row in rows:
        click.echo(f"{row['name']:12} {row['task']:10} {row['size_mb']:7.2f} MB  {row['title']}")
        click.echo(f"{'':12} licence: {row['licence']}")


@command.command()
@click.argument("name")
@json_option
def get(name: str, as_json: bool) -> None:
    """Fetch a data set into the cache, verified, and print where it is."""
    from qkv.data import catalogue

    with download_bar() as progress:
        path = catalogue.get(name, progress)
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        click.echo(path)


@command.command(context_settings=PASS_SETTINGS)
@click.argument("name")
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Describe a data set: sizes, lengths, symbols, examples. Options of the data set go by name: --stress true."""
    from qkv.data import catalogue

    chosen, options = name_and_settings([name, *ctx.args])
    if chosen is None:
        raise UserError("which data set? `qkv data list` lists them")
    found = catalogue.describe(chosen, **options)
    if as_json:
        print_json(found)
        return
    for key, value in found.items():
        click.echo(f"{key}: {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {_text(part)}" for key, part in value.items())
    if isinstance(value, list):
        return "".join(f"\n  {_text(part)}" for part in value)
    return f"{value:.2f}" if isinstance(value, float) else str(value)
