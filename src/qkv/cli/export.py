"""`qkv export`."""

from __future__ import annotations

from pathlib import Path

import click

from qkv.cli.options import json_option, print_json
from qkv.errors import UserError


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--to", "target", type=click.Choice(["onnx"]), required=True, help="The kind of files.")
@click.option("--int8", is_flag=True, help="Also files with weights in 8 bits, and how often they agree with torch.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The folder to make.")
@click.option(
    "--words", metavar="FILE", help="Texts to check the files on, one a line.  [default: the run's test data]"
)
@json_option
def command(run: Path, target: str, int8: bool, out: Path, words: str | None, as_json: bool) -> None:
    """Write the run in folder RUN as files for other programs, and check that they say what torch says.

    A run from text to text: DIR gets greedy.onnx (source ids in, answers out), encoder.onnx and decoder_step.onnx (for
    a beam search) and symbols.json. A run that classifies or tags, a baseline too: model.onnx, task.json and
    tokenizer.json. Both get caller.py, which answers texts without torch. An earlier export in DIR is replaced.

    \b
    qkv export runs/demo --to onnx --int8 -o exported
    python exported/caller.py transformer attention
    """
    from qkv.export.onnx import export_run
    from qkv.export.report import table
    from qkv.run.folder import typed_path
    from qkv.run.run import load

    report = export_run(load(run, "cpu"), out, int8=int8, words=None if words is None else _lines(words))
    for warning in report.warnings:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json(report.as_json())
        return
    for line in table(report):
        click.echo(line)
    click.echo(f"written: {out}")
    click.echo(f"next:    python {typed_path(out / 'caller.py')} TEXT ...")


def _lines(path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.start} of the file)") from None
    return [line for line in (line.removesuffix("\r") for line in text.split("\n")) if line]
