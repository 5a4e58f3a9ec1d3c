"""`qkv predict`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qkv.cli.options import device_option, json_option, print_json
from qkv.errors import UserError

if TYPE_CHECKING:
    from qkv.run.run import Run
    from qkv.tasks.seq2seq import Prediction


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1)
@click.option("--input", "source", metavar="FILE", help="Texts, one a line; - reads standard input.")
@click.option("--beam", type=int, help="Hypotheses kept while decoding; 1 is greedy.  [default: the run's own]")
@click.option("--nbest", "n_best", type=int, default=1, show_default=True, help="Answers a text; at most --beam.")
@click.option("--scores", is_flag=True, help="Print the score of each answer: log-probability a symbol.")
@device_option
@json_option
def command(
    run: Path,
    texts: tuple[str, ...],
    source: str | None,
    beam: int | None,
    n_best: int,
    scores: bool,
    device: str,
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

    loaded = load(run, device)
    if source is None:
        predictions = loaded.predict(lines, beam=beam, n_best=n_best)
    else:
        predictions = _line_by_line(loaded, lines, beam=beam, n_best=n_best)
    unknown = Counter(symbol for prediction in predictions for symbol in prediction.unknown)
    _warn(predictions, unknown)
    if as_json:
        print_json({"predictions": [vars(prediction) for prediction in predictions], "unknown": unknown})
        return
    for prediction in predictions:
        for output, score in prediction.n_best:
            parts = [prediction.text, output, *([f"{score:.4f}"] if scores else [])]
            click.echo("\t".join(parts) if n_best > 1 or scores or not source else output)


def _line_by_line(run: Run, lines: list[str], **settings: Any) -> list[Prediction]:
    """One Prediction a line: for an empty line an empty one, so that output and input stay side by side."""
    from qkv.tasks.seq2seq import Prediction

    empty = [not run.task.source.split(line) for line in lines]
    found = iter(run.predict([line for line, nothing in zip(lines, empty, strict=True) if not nothing], **settings))
    if any(empty):
        click.echo(f"warning: {sum(empty)} of {len(lines)} lines are empty; so are their outputs", err=True)
    nothing_to_say = [("", 0.0)]
    return [
        Prediction(line, "", 0.0, True, n_best=nothing_to_say) if nothing else next(found)
        for line, nothing in zip(lines, empty, strict=True)
    ]


def _warn(predictions: list[Prediction], unknown: Counter[str]) -> None:
    if unknown:
        named = ", ".join(f"{_named(symbol)} in {count}" for symbol, count in unknown.items())
        click.echo(
            f"warning: symbols that the model has never seen, and how many texts have them: {named}. Their outputs are "
            "a guess", err=True,
        )  # fmt: skip
    cut = sum(not prediction.finished for prediction in predictions)
    if cut:
        click.echo(f"warning: {cut} of {len(predictions)} outputs reached the length limit before they ended", err=True)


def _named(symbol: str) -> str:
    return f"{symbol!r} (U+{ord(symbol):04X})" if len(symbol) == 1 else repr(symbol)


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
