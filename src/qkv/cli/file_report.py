"""What `qkv data show FILE` prints for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from qkv.data.files.delimited import SEPARATORS

CELL = 60
"""Characters of a cell that a terminal is shown at most."""


def print_texts(report: dict[str, Any]) -> None:
    """The report of `data.label_report` or `data.tag_data`: labels or tags, and what will be left out."""
    for part, file in report["files"].items():
        click.echo(f"{file['name']} ({part}): {file['form']}, {file['encoding']}; columns {file['columns']}")
    click.echo(f"task: {report['task']}")
    if "labels" in report:
        click.echo(f"usable: {report['usable']:,} texts; left out: {len(report['left_out']):,}")
        listed(f"line {one['line']} of {one['file']}: {one['reason']}" for one in report["left_out"])
        counts = report["labels"]["counts"]
        click.echo(f"length: mean {report['length']['mean']:.0f} characters, longest {report['length']['longest']:,}")
    else:
        counts = report["tags"]
        click.echo(f"{report['sentences']:,} sentences, {report['words']:,} words, {report['documents']:,} documents")
        click.echo(f"longest sentence: {report['longest']:,} words; scheme {report['scheme']}")
        if report["entities"]:
            click.echo(f"entities: {_counts(report['entities'])}")
    click.echo(f"{len(counts):,} labels: {_counts(counts)}")
    if "labels" in report:
        look_alikes(report["labels"])
    if report["examples"]:
        click.echo(f"parts: {', '.join(f'{part} {count:,}' for part, count in report['examples'].items())}")
    for note in report["notes"]:
        click.echo(f"note: {note}")
    if report.get("problem"):
        click.echo(f"\ncannot be trained on as it is: {report['problem']}")
    click.echo(f"\ntrain with:\n  {report['command']}")


def _counts(counts: dict[str, int]) -> str:
    named = ", ".join(f"{short(label)} {count:,}" for label, count in list(counts.items())[:30])
    return named + (f" and {len(counts) - 30:,} more" if len(counts) > 30 else "")


def print_report(report: dict[str, Any]) -> None:
    """The report of `data.file_report`, shortest answer first, the command to paste last."""
    for part, file in report["files"].items():
        sep = SEPARATORS.get(file["separator"], file["separator"])
        how = ", ".join(filter(None, [file["form"], file["encoding"], sep and f"separator {sep}"]))
        columns = ", ".join(repr(name) for name in file["columns"])
        click.echo(f"{file['name']} ({part}): {how}; {file['rows']:,} rows; columns {columns}")
    click.echo(f"task: {report['task']}")
    sizes = ", ".join(f"{part} {count:,}" for part, count in report["examples"].items() if part != "all")
    click.echo(f"usable: {report['usable']:,} pairs, {report['examples']['all']:,} different sources ({sizes})")
    click.echo(f"left out: {len(report['left_out']):,}")
    listed(f"line {one['line']} of {one['file']}: {one['reason']}" for one in report["left_out"])
    click.echo(f"said twice: {report['duplicates']:,}; sources with several targets: {report['conflicts']:,}")
    for side in ("source", "target"):
        length, symbols = report["length"][side], report["symbols"][side]
        common = " ".join(_plain(symbol) for symbol in list(symbols)[:40])
        click.echo(f"{side}: {len(symbols):,} symbols, length {length['mean']:.1f} (longest {length['longest']:,})")
        click.echo(f"  most frequent first: {common}{' ...' if len(symbols) > 40 else ''}")
        few = report["rare"][side]
        if few:
            click.echo(f"  seen fewer than 5 times: {len(few):,}")
            listed(_rare(one) for one in few)
    if report["too_long"]:
        click.echo(f"longer than {report['longest']} symbols: {len(report['too_long']):,}")
        listed(f"line {one['line']} of {one['file']}: {one['length']:,}" for one in report["too_long"])
    if report["control_like"]:
        click.echo(f"look like control symbols, and are data here: {' '.join(report['control_like'])}")
    if report["labels"]:
        counts = report["labels"]["counts"]
        click.echo(f"labels: {', '.join(f'{short(label)} {count:,}' for label, count in list(counts.items())[:30])}")
        look_alikes(report["labels"])
    click.echo("examples:")
    for one in report["shown"]:
        click.echo(f"  {short(one['text'])!r}: {' / '.join(repr(short(target)) for target in one['targets'])}")
    for note in report["notes"]:
        click.echo(f"note: {note}")
    click.echo(f"\ntrain with:\n  {report['command']}")


def listed(lines: Iterable[str], shown: int = 10) -> None:
    every = list(lines)
    for line in every[:shown]:
        click.echo(f"  {line}")
    if len(every) > shown:
        click.echo(f"  and {len(every) - shown:,} more (--json lists all)")


def look_alikes(labels: dict[str, Any]) -> None:
    alike = labels["look_alikes"]
    listed(f"{short(one)!r} looks like {', '.join(others)}" for one, others in alike.items())
    if alike:
        composed = labels["composed"]
        form = f"--data.normalise NFC merges {composed:,} with another; " if composed else ""
        click.echo(f"  each spelling is a label of its own; {form}others are merged by correcting the file")


def _plain(symbol: str) -> str:
    """A symbol that neither ends the line nor is unseen."""
    cut = short(symbol, 12)
    return cut if cut.isprintable() and not cut.isspace() else repr(cut)


def _rare(one: dict[str, Any]) -> str:
    alike = f"; looks like {', '.join(one['look_alikes'])}" if one["look_alikes"] else ""
    return f"{short(one['symbol'])!r} {one['count']} ({one['code_points']}){alike}"


def short(text: str, length: int = CELL) -> str:
    return text if len(text) <= length else f"{text[:length]}... ({len(text):,} characters)"
