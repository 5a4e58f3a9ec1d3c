"""`qkv train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qkv.cli.options import PASS_SETTINGS, device_option, download_bar, json_option, name_and_settings, print_json
from qkv.errors import UserError

if TYPE_CHECKING:
    from qkv.run.run import Run


@click.command(context_settings=PASS_SETTINGS, options_metavar="[FILE] [OPTIONS] [--SETTING VALUE]...")
@click.option(
    "--data", metavar="NAME", help="A data set of the catalogue (`qkv data list`) or a file.  [default: cmudict]"
)
@click.option("--model", metavar="NAME", help="An architecture (`qkv models`).  [default: encoder_decoder]")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="The run folder.  [default: runs/DATA-MODEL]"
)
@click.option("--config", metavar="FILE", help="A TOML file of settings, as config.toml of a run.")
@click.option("--minutes", type=float, help="Training time, turned into steps at this machine's measured speed.")
@click.option(
    "--track", multiple=True, metavar="NAME", help="tensorboard, or FILE.py:CLASS of your own; may be given again."
)
@click.option("--steps", type=int, help="Optimiser steps, instead of minutes.")
@click.option("--task", metavar="NAME", help="seq2seq, classification, tagging or masked_lm.  [default: what FILE is]")
@click.option("--allow-unk", is_flag=True, help="Train although over 5 % of the tokens of dev or test are unknown.")
@device_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, data: str | None, model: str | None, out: Path | None, as_json: bool, **named: Any
) -> None:
    """Train a model and write a run folder: config, weights, vocabularies, metrics, and a report page.

    FILE is your own: pairs, or texts with labels, in two columns of a TSV, CSV, JSON lines, Parquet or Excel file; or
    words with tags (CoNLL). `qkv data show FILE` tells how it is read and for which task; without a file, a data set of
    the catalogue. Beside a model of labels or tags an n-gram baseline is fitted on the same splits.

    Any setting is changed by name: --model.d_model 128 --training.lr 2e-3 --task.beam 3, or without the table where
    only one has it: --d_model 128 --lr 2e-3 (`qkv models` lists them).

    The same command again goes on with an unfinished run (after Ctrl-C too) and leaves a finished one as it is.

    \b
    qkv train words.tsv --minutes 10 --out runs/mine
    qkv train reviews.csv --model lstm --minutes 2
    qkv train --data.train a.csv --data.dev b.csv --data.source word --data.target sound --minutes 10
    qkv train --config recipes/cmudict.toml --out runs/cmudict
    """
    from qkv.experiments.run_report import report_run
    from qkv.training.baseline import metrics_beside
    from qkv.training.processes import is_first
    from qkv.training.train import train

    file, settings = name_and_settings(ctx.args)
    if file is not None and data is not None:
        raise UserError(f"{file} and --data {data} both say what to train on: give one of them")
    if named["minutes"] is not None and named["steps"] is not None:
        raise UserError("--minutes and --steps both say how long to train: give one of them")
    settings.update({name: named.pop(name) for name in ("minutes", "steps", "task") if named[name] is not None})
    how = {name: named[name] for name in ("config", "device", "track", "allow_unk")}
    with download_bar() as progress:
        run = train(data or file, model, out=out, progress=progress, **how, **settings)
    if not is_first():
        return
    page = report_run(run)
    if as_json:
        beside = metrics_beside(run.folder)
        print_json(
            {"run": str(run.folder), "report": str(page), **run.metrics(), **({"baseline": beside} if beside else {})}
        )
        return
    _say(run, page)


def _say(run: Run, page: Path) -> None:
    from qkv.run.folder import typed_path
    from qkv.training.baseline import metrics_beside

    click.echo(f"test:     {_figures(run.metrics())}")
    if beside := metrics_beside(run.folder):
        click.echo(f"baseline: {_figures(beside)}")
    click.echo(f"run:      {run.folder}\nreport:   {page}")
    click.echo(f"next:     qkv predict {typed_path(run.folder)} --input FILE")


def _figures(metrics: dict[str, float]) -> str:
    from qkv.tasks.metrics import METRICS

    return ", ".join(
        f"{METRICS[name].short} {value:.2f} {METRICS[name].unit}".rstrip() for name, value in metrics.items()
    )
