"""`qkv data`."""

from __future__ import annotations

from typing import Any

import click

from qkv.cli.options import PASS_SETTINGS, NamedCommands, download_bar, json_option, name_and_settings, print_json
from qkv.errors import UserError


@click.group(cls=NamedCommands)
def command() -> None:
    """Describe your own files, or list, fetch and describe the data sets of the catalogue."""


@command.command(name="list")
@json_option
def list_all(as_json: bool) -> None:
    """List the data sets that can be fetched by name."""
    from qkv.data.catalogue import CATALOGUE

    rows = [
        {"name": e.name, "title": e.title, "task": e.task, "size_mb": round(e.size_mb, 2), "licence": e.licence,
         "split": e.split, "source": e.source}
        for e in CATALOGUE.values()
    ]  # fmt: skip
    if as_json:
        print_json({"data": rows})
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        click.echo(f"{row['name']:{width}}  {row['task']:14} {row['size_mb']:5.1f} MB  {row['title']}")
        for key in ("licence", "split", "source"):
            click.echo(f"{'':{width}}  {key}: {row[key]}")


@command.command()
@click.argument("name")
@json_option
def get(name: str, as_json: bool) -> None:
    """Fetch a data set into the cache and print where it is: a name of `qkv data list`, verified, or hf:OWNER/NAME."""
    from qkv.data import catalogue, hub, parts

    if hub.is_reference(name):
        found = parts.in_folder(name)
        if as_json:
            paths = {part: str(hub.local(file)) for part, file in found.items()}
            print_json({"name": name, "files": found, "paths": paths})
            return
        for one in found.values():
            click.echo(hub.local(one))
        return
    with download_bar() as progress:
        path = catalogue.get(name, progress)
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        click.echo(path)


@command.command(context_settings=PASS_SETTINGS, options_metavar="FILE|NAME [OPTIONS] [--SETTING VALUE]...")
@json_option
@click.pass_context
def show(ctx: click.Context, as_json: bool) -> None:
    """Describe a file or a data set, before anything is trained: qkv data show FILE, qkv data show NAME.

    Of a file, a folder, or hf:OWNER/NAME: encoding, columns, rows, what will be left out and why, lengths, duplicates,
    labels or rare symbols and their look-alikes, and the command that trains on it. It takes the same settings as
    `qkv train`: --data.source COLUMN --data.symbols spaces, or two text files with --data.source FILE --data.target
    FILE. Where the guess is wrong, --task classification, tagging, masked_lm or seq2seq says what the file is for,
    --data.separator ";", --data.header true and --data.encoding cp1252 how it is read, and --data.variants auto splits
    cells with several targets. Options of a data set go by name too: qkv data show cmudict --stress true.
    """
    from qkv.data import catalogue, sources
    from qkv.run.config import typed

    chosen, given = name_and_settings(ctx.args)
    task = given.pop("task", None)
    options = {key.removeprefix("data."): value for key, value in given.items()}
    if chosen is None and not options.keys() & {"train", "source"}:
        raise UserError("which file or data set? qkv data show FILE; `qkv data list` lists the data sets")
    file = chosen if chosen is not None else options.get("train")
    table = sources.table_of(str(file), task, given) if file else {"name": sources.OWN[task or "seq2seq"]}
    if table["name"] in sources.CONFIGS:
        settings = {key: value for key, value in (table | options).items() if key != "name"}
        _show_own(table["name"], typed(sources.CONFIGS[table["name"]], settings, "data"), as_json)
        return
    found = catalogue.describe(table["name"], **options)
    if as_json:
        print_json(found)
        return
    _show(found)


def _show_own(name: str, config: Any, as_json: bool) -> None:
    from qkv.cli.file_report import print_report, print_texts
    from qkv.data import label_data, line_data, tag_data
    from qkv.data.describe import texts_in_numbers
    from qkv.data.file_report import file_report
    from qkv.data.label_report import label_report

    shown: Any = print_report
    if name == line_data.NAME:
        report = {"task": "masked_lm", **texts_in_numbers(line_data.texts_of(config))}
        shown = _show
    elif name == tag_data.NAME:
        report, shown = tag_data.tag_report(config), print_texts
    elif name == label_data.NAME:
        report, shown = label_report(config), print_texts
    else:
        report = file_report(config)
    print_json(report) if as_json else shown(report)


def _show(found: dict[str, Any]) -> None:
    for key, value in found.items():
        if key != "shown":
            click.echo(f"{key}: {_text(value)}")
    click.echo("examples:")
    for one in found["shown"]:
        click.echo(f"  {_example(one, found['task'])}")


def _example(one: dict[str, Any], task: str) -> str:
    from qkv.cli.file_report import CELL, short

    if task == "tagging":
        tagged = zip(one["text"].split(" "), one["labels"], strict=True)
        return short(" ".join(f"{word}/{tag}" for word, tag in tagged), 2 * CELL)
    answers = one["targets"] if "targets" in one else one["labels"]
    return f"{short(one['text'])!r}: {' / '.join(map(short, answers))}" if answers else repr(short(one["text"]))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {_text(part)}" for key, part in value.items())
    if isinstance(value, list):
        return "".join(f"\n  {_text(part)}" for part in value)
    return f"{value:.2f}" if isinstance(value, float) else str(value)
