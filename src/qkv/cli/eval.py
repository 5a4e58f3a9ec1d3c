"""`qkv eval`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qkv.cli.options import console, device_option, download_bar, json_option, named_symbol, print_json
from qkv.errors import UserError

if TYPE_CHECKING:
    from qkv.data.files.reading import FileConfig
    from qkv.experiments.evaluate import Answer, Evaluation, Given, Slice
    from qkv.run.run import Run

SHOWN = 10
"""Symbols that a terminal is shown at most."""


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", metavar="FILE", help="Pairs to evaluate on.  [default: the run's own test split]")
@click.option("--source", "--data.source", "source", metavar="NAME",
              help="Its column of sources, by name or position; without --data a text file.  [default: as trained]",
)  # fmt: skip
@click.option("--target", "--data.target", "target", metavar="NAME", help="Its column of right answers, likewise.")
@click.option("--encoding", "--data.encoding", "encoding", metavar="NAME",
              help="Where it is not UTF-8, UTF-16 with a mark, or GB18030.")  # fmt: skip
@click.option("--header", "--data.header", "header", type=click.Choice(["auto", "true", "false"]), default="auto",
              show_default=True, help="Whether the first row names the columns.")  # fmt: skip
@click.option("--separator", "--data.separator", "separator", metavar="SIGN",
              help="Of columns: a sign, or tab, comma, semicolon, bar, blanks.")  # fmt: skip
@click.option("--variants", "--data.variants", "variants", metavar="HOW",
              help="Splits cells with several targets: auto, or the text between them.  [default: as trained]",
)  # fmt: skip
@click.option("--beam", type=int, help="Hypotheses kept while decoding; 1 is greedy.  [default: the run's own]")
@click.option("--nbest", "n_best", type=int, default=1, show_default=True,
              help="Answers a source, at most --beam; recall@K tells how many right targets are among the first K.",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write each example and its answer here, as JSON lines.")
@device_option
@json_option
def command(
    run: Path,
    data: str | None,
    source: str | None,
    target: str | None,
    encoding: str | None,
    header: str,
    separator: str | None,
    variants: str | None,
    beam: int | None,
    n_best: int,
    output: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Score the run in folder RUN: on a file, or on its own test split while its data are still there.

    Of a run on pairs it prints the metrics that training ends with, and those of slices: short and long sources,
    sources with symbols that training never saw, sources with several right targets. Of a run on labels, tags or masked
    words: its figures, those of short and long texts, and those of each label; --source and --target are then the
    columns of text and label. What is left out of the file is counted and named by line.

    \b
    qkv eval runs/mine --data other.tsv
    qkv eval runs/mine --data other.csv --source word --target sound --beam 5 --nbest 3 -o answers.jsonl
    """
    from qkv.data.files.reading import FileConfig
    from qkv.run.config import typed
    from qkv.run.run import load

    asked = {"encoding": encoding, "header": None if header == "auto" else header, "separator": separator,
             "variants": variants}  # fmt: skip
    asked = {name: value for name, value in asked.items() if value is not None}
    _check(data, source, target, asked, output)
    loaded = load(run, device)
    reading = typed(FileConfig, asked, "data")
    if loaded.task.name != "seq2seq":
        from qkv.cli import eval_texts

        eval_texts.refuse_options(loaded, {"beam": beam, "nbest": n_best > 1, "variants": variants})
        eval_texts.evaluate(loaded, data, reading, (source, target), output, as_json)
    else:
        _evaluate(loaded, (data, source, target), reading, (beam, n_best), output, as_json)


def _evaluate(
    run: Run,
    where: tuple[str | None, str | None, str | None],
    reading: FileConfig,
    search: tuple[int | None, int],
    output: str | None,
    as_json: bool,
) -> None:
    """Of pairs. `where` is the file and its columns of source and target, `search` beam and answers."""
    from qkv.experiments import evaluate

    data, source, _ = where
    if data is not None or source is not None:
        given = evaluate.own_file(run, *where, reading)
    else:
        with download_bar() as progress:
            given = evaluate.own_test(run, progress)
    click.echo(f"evaluating on {given.name}: {len(given.examples):,} examples", err=True)
    beam, n_best = search
    found = evaluate.evaluate(run, given.examples, beam=beam, n_best=n_best)
    if output is not None:
        _write(Path(output), found.answers, n_best)
    if as_json:
        print_json(_as_json(run, given, found, beam))
        return
    _print(run, given, found)


def _check(
    data: str | None, source: str | None, target: str | None, reading: dict[str, str], output: str | None
) -> None:
    if data is None and (source is None) != (target is None):
        raise UserError("--source and --target are columns of --data FILE, or together two text files; give the rest")
    if data is None and source is None and reading:
        raise UserError(f"--{next(iter(reading))} tells how a file is read: give it with --data FILE")
    if data is None and source is not None and reading.keys() & {"header", "separator"}:
        raise UserError("two text files have no columns: --header and --separator are of one, --data FILE")
    if output is None:
        return
    path = Path(output)
    if path.is_dir() or not path.parent.is_dir():
        wrong = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UserError(f"cannot write {path}: {wrong}. -o takes a file")
    if any(name is not None and path.resolve() == Path(name).resolve() for name in (data, source, target)):
        raise UserError(f"-o {path} would write over the data: choose another file")


def _write(path: Path, answers: Sequence[Answer], n_best: int) -> None:
    from qkv.run.folder import replacing

    with replacing(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(_row(answer, n_best), ensure_ascii=False) + "\n" for answer in answers)


def _row(answer: Answer, n_best: int) -> dict[str, Any]:
    row = asdict(answer)
    if n_best == 1:
        del row["n_best"]
    return row


def _as_json(run: Run, given: Given, found: Evaluation, beam: int | None) -> dict[str, Any]:
    n_best = len(found.recall) or 1
    return {
        "run": str(run.folder),
        "data": given.name,
        "beam": run.task.config.beam if beam is None else beam,
        "examples": len(given.examples),
        "metrics": found.metrics,
        "wer_interval": found.wer_interval,
        "recall": found.recall,
        "left_out": [asdict(one) for one in given.left_out],
        "notes": given.notes,
        "unseen": found.unseen,
        "counts": found.counts,
        "slices": [{**asdict(one), "small": one.small} for one in found.slices],
        "answers": [_row(answer, n_best) for answer in found.answers],
    }


def _print(run: Run, given: Given, found: Evaluation) -> None:
    from rich.table import Table

    from qkv.tasks.metrics import METRICS

    for line in _told(run, given, found):
        click.echo(line)
    low, high = found.wer_interval
    for name, value in found.metrics.items():
        interval = f" (95 % interval {low:.2f} to {high:.2f})" if name == "wer" else ""
        click.echo(f"{name:12} {value:6.2f} {METRICS[name].unit:1} {METRICS[name].title}{interval}")
    for name, value in found.recall.items():
        rank = name.partition("@")[2]
        what = "right targets that are the first answer" if rank == "1" else f"and that are among the first {rank}"
        click.echo(f"{name:12} {value:6.2f} % {what}")
    if not found.slices:
        return
    table = Table("slice", "", "examples", *found.metrics, "", box=None, pad_edge=False)
    for column in table.columns[2:-1]:
        column.justify = "right"
    for one in found.slices:
        table.add_row(*_cells(one, found.metrics))
    click.echo()
    console().print(table, highlight=False)


def _cells(one: Slice, names: Any) -> list[str]:
    # Where no reference of a slice has tone or stress, the metric without them is not there.
    figures = [f"{one.metrics[name]:.2f}" if name in one.metrics else "-" for name in names]
    return [one.by, one.name, f"{one.examples:,}", *figures, "too small to judge" if one.small else ""]


def _told(run: Run, given: Given, found: Evaluation) -> list[str]:
    """What a person should know before the figures."""
    told = [f"note: {note}" for note in given.notes]
    if given.left_out:
        told.append(f"left out: {len(given.left_out):,} rows (--json lists each)")
    counts, total = found.counts, len(given.examples)
    if counts["unseen"]:
        told.append(
            f"{counts['unseen']:,} of {total:,} sources hold symbols unseen in training: "
            f"{_named(found.unseen['source'])}. Their outputs are a guess"
        )
    if found.unseen["target"]:
        told.append(f"targets hold symbols that the run cannot write: {_named(found.unseen['target'])}")
    if counts["unwritable"]:
        told.append(
            f"{counts['unwritable']:,} of {total:,} examples cannot come out right: each of their targets has such a "
            f"symbol or is longer than {run.task.config.max_length} symbols, the most that the run writes"
        )
    if counts["too_long"]:
        longest = run.config["data"]["longest"]
        told.append(
            f"{counts['too_long']:,} of {total:,} sources are longer than {longest} symbols, the most that the run was "
            "trained on; they are scored all the same"
        )
    return told


def _named(symbols: Counter[str]) -> str:
    listed = ", ".join(f"{named_symbol(symbol)} in {count:,}" for symbol, count in symbols.most_common(SHOWN))
    return listed + (f" and {len(symbols) - SHOWN:,} more (--json lists all)" if len(symbols) > SHOWN else "")
