"""`qkv predict`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from qkv.cli.options import device_option, json_option, print_json
from qkv.errors import UserError


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1)
@click.option("--input", "source", metavar="FILE", help="Texts, one a line; - reads standard input.")
@click.option("--beam", type=int, help="Hypotheses kept while decoding; 1 is greedy.  [default: the run's own]")
@click.option("--nbest", "n_best", type=int, default=1, show_default=True, help="Answers for each text; at most --beam.")
@click.option("--scores", is_flag=True, help="Print the score of each answer: log-probability a symbol.")
@device_option
@json_option
def command(
    run: Path, texts: tuple[str, ...], source: str | None, beam: int | None, n_best: int, scores: bool, device: str,
    as_json: bool,
) -> None:
    """Predict with the run in folder RUN: one output line for each text.

    \b
    qkv predict runs/demo transformer attention
    qkv predict runs/demo --input words.txt --beam 5 --nbest 3 --scores
    """
    lines = _lines(source) if source is not None else list(texts)
    if source is not None and texts:
        raise UserError("give texts or --input, not both")
    if not lines:
        raise UserError("no texts: give some after the run folder, or --input FILE (- for standard input)")
    from qkv.run.run import load

    predictions = load(run, device).predict(lines, beam=beam, n_best=n_best)
    unknown = {}
    for prediction in predictions:
        for symbol in prediction.unknown:
            unknown[symbol] = unknown.get(symbol, 0) + 1
    if unknown:
        named = ", ".join(f"{s!r} (U+{ord(s):04X})" if len(s) == 1 else repr(s) for s in unknown)
        click.echo(f"warning: symbols that the model has never seen: {named}. Their texts are a guess", err=True)
    cut = sum(not prediction.finished for prediction in predictions)
    if cut:
        click.echo(f"warning: {cut} of {len(predictions)} outputs reached the length limit before they ended", err=True)
    if as_json:
        print_json({"predictions": [vars(prediction) for prediction in predictions], "unknown": unknown})
        return
    for prediction in predictions:
        for output, score in prediction.n_best:
            parts = [prediction.text, output, *([f"{score:.4f}"] if scores else [])]
            click.echo("\t".join(parts) if n_best > 1 or scores or not source else output)


def _lines(source: str) -> list[str]:
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {source}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UserError(f"{source}, line {line}: not UTF-8 (byte 0x{raw[error.start]:02X})") from None
    # Only line feeds end a line: str.splitlines would also split at U+2028 and its kin inside a text.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines and not lines[-1] else lines
