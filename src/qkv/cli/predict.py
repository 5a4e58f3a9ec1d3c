"""`qkv predict`."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from qkv.cli.options import device_option, json_option, named_symbol, print_json
from qkv.errors import UserError

if TYPE_CHECKING:
    from qkv.data.files.table import Table
    from qkv.data.pairs import Example
    from qkv.run.stream import Counted
    from qkv.tasks.prediction import Prediction


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1)
@click.option("--input", "source", metavar="FILE", help="Texts, one a line, or a table; - reads standard input.")
@click.option("-o", "--output", metavar="FILE", help="Write here; with a table, its columns and the answers behind.")
@click.option("--column", metavar="NAME", help="The column of a table that holds the texts.  [default: as trained]")
@click.option("--beam", type=int, help="Hypotheses kept while decoding; 1 is greedy.  [default: the run's own]")
@click.option("--nbest", "n_best", type=int, default=1, show_default=True, help="Answers a text; at most --beam.")
@click.option("--min-prob", type=float, default=0.0, help="Of several answers only those at least this probable.")
@click.option("--lexicon", metavar="FILE", help="Pairs that are answered as they stand there; the model has the rest.")
@click.option("--too-long", type=click.Choice(["error", "truncate", "drop"]), default="error", show_default=True,
              help="What becomes of a text longer than training took (data.longest).")  # fmt: skip
@click.option("--allow-unk", is_flag=True, help="Answer although over 5 % of the tokens are unknown to the run.")
@click.option("--scores", is_flag=True, help="Print the score of each answer: log-probability a symbol.")
@device_option
@json_option
def command(
    run: Path,
    texts: tuple[str, ...],
    source: str | None,
    output: str | None,
    column: str | None,
    beam: int | None,
    n_best: int,
    min_prob: float,
    lexicon: str | None,
    too_long: str,
    allow_unk: bool,
    scores: bool,
    device: str,
    as_json: bool,
) -> None:
    """Predict with the run in folder RUN: one output line for each text, in order, empty for an empty one.

    A run of tags answers a line of words with a tag for each; a file of words, one a line (CoNLL), with the tag behind
    each word.

    \b
    qkv predict runs/demo transformer attention
    qkv predict runs/demo --input words.txt --beam 5 --nbest 3 --scores
    qkv predict runs/mine --input table.csv -o answers.csv --lexicon known.tsv
    """
    _check(texts, source, output, min_prob)
    from qkv.run.run import load
    from qkv.run.stream import Asked, Counted, answers

    loaded = load(run, device)
    data = loaded.config.get("data", {})
    conll = loaded.task.name == "tagging" and column is None and _is_conll(source)
    table, lines = _words(str(source), data) if conll else _texts(texts, source, column, data)
    known = {e.source: e.targets for e in _lexicon(lexicon, data)} if lexicon is not None else {}
    asked = Asked(beam, n_best, min_prob, known, int(data.get("longest", 0)), too_long, allow_unk)
    counted = Counted()
    # Standard input may come from somebody who types: a line is answered when it is there.
    found = answers(loaded, lines, asked, counted, 1 if source == "-" and sys.stdin.isatty() else 1024)
    if as_json:
        every = list(found)
        _warn(counted, source)
        print_json({"predictions": [vars(one) for one in every], "unknown": counted.unknown, "lines": counted.lines,
                    "empty": counted.empty, "from_lexicon": counted.known, "too_long": counted.too_long})  # fmt: skip
        return
    shown_text = n_best > 1 or scores or source is None
    shown = _in_conll if conll else lambda one: _lines(one, shown_text, scores)
    _write(output, table, found, shown, scores)
    _warn(counted, source)


def _check(texts: tuple[str, ...], source: str | None, output: str | None, min_prob: float) -> None:
    if not 0.0 <= min_prob <= 1.0:
        raise UserError(f"--min-prob {min_prob}: a probability is from 0 to 1")
    if source is not None and output is not None and Path(source).resolve() == Path(output).resolve():
        raise UserError(f"-o {output} would write over the input: choose another file")
    if source is not None and texts:
        raise UserError("give texts or --input, not both")
    if source is None and not texts:
        raise UserError("no texts: give some after the run folder, or --input FILE (- for standard input)")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise UserError(f"text {number} of {len(texts)} is empty: there is nothing to predict from")


def _lines(one: Prediction, shown_text: bool, scores: bool) -> Iterator[str]:
    for answer, score in one.n_best:
        parts = [*([one.text] if shown_text else []), answer, *([f"{score:.4f}"] if scores else [])]
        yield "\t".join(parts)


def _in_conll(one: Prediction) -> Iterator[str]:
    """A word and its tag on each line, and a blank one behind the sentence."""
    yield from (f"{word}\t{tag}" for word, tag in zip(one.text.split(" "), one.output.split(" "), strict=True))
    yield ""


def _is_conll(source: str | None) -> bool:
    from qkv.data.files.conll import looks_like_conll

    return source not in (None, "-") and looks_like_conll(str(source))


def _words(source: str, data: Mapping[str, Any]) -> tuple[None, Iterator[str]]:
    from qkv.data.files.conll import read_words

    return None, (" ".join(words) for words in read_words(source, word=int(data.get("word", 1))))


def _write(
    output: str | None,
    table: Table | None,
    found: Iterable[Prediction],
    shown: Callable[[Prediction], Iterator[str]],
    scores: bool,
) -> None:
    from qkv.run.folder import replacing

    if output is None:
        for line in (line for one in found for line in shown(one)):
            click.echo(line)
        return
    with (
        replacing(Path(output)) as part,
        part.open("w", encoding="utf-8-sig" if table else "utf-8", newline="") as file,
    ):
        if table is not None:
            _write_table(file, table, found, scores)
            return
        for one in found:
            file.writelines(f"{line}\n" for line in shown(one))


def _write_table(file: TextIO, table: Table, found: Iterable[Prediction], scores: bool) -> None:
    """The table as it was read, every column and row in order, with a column of answers behind (and of scores)."""
    out = csv.writer(file, delimiter=table.separator or ",", lineterminator="\n")
    if table.header:
        out.writerow([*table.columns, "prediction", *(["score"] if scores else [])])
    for (_, values), one in zip(table.rows, found, strict=True):
        said = " | ".join(answer for answer, _ in one.n_best)
        out.writerow([*values, said, *([f"{one.score:.4f}"] if scores else [])])


def _texts(
    texts: tuple[str, ...], source: str | None, column: str | None, data: dict[str, object]
) -> tuple[Table | None, Iterator[str]]:
    """The table that the file is, if it has columns, and its texts; or those that were given."""
    from qkv.data.files.columns import one
    from qkv.data.files.encoding import decode, lines, read
    from qkv.data.files.header import SOURCES
    from qkv.data.files.table import read_table

    if source is None:
        return None, iter(texts)
    if source == "-":
        return None, (_decoded(line, number) for number, line in enumerate(sys.stdin.buffer, 1))
    if column is None and Path(source).suffix.lower() not in (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx"):
        return None, iter(lines(decode(read(source), source).text))
    table = read_table(source)
    usual = [n for n, name in enumerate(table.columns) if name in (data.get("source"), data.get("text")) and name]
    usual += [n for n, name in enumerate(table.columns) if name.strip().casefold() in SOURCES]
    place = one(table, column) if column is not None else usual[0] if usual else 0
    click.echo(f"texts: column {place + 1} ({table.columns[place]})", err=True)
    second = data.get("second")
    if second and data.get("name") == "labels":
        other = one(table, str(second))
        return table, (f"{values[place]}\t{values[other]}" for _, values in table.rows)
    return table, (values[place] for _, values in table.rows)


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input, line {number}: byte 0x{line[error.start]:02X} is not UTF-8") from None


def _lexicon(path: str, data: Mapping[str, Any]) -> list[Example]:
    from qkv.data.files.table import read_table
    from qkv.data.pair_file import grouped, rows_of

    # Read as the run's data were, so that the same word is the same text.
    rows = rows_of(read_table(path), None, None, data.get("normalise", "none"), data.get("variants", ""))
    return grouped(rows.rows)[0]


def _warn(counted: Counted, source: str | None) -> None:
    if not counted.lines:
        raise UserError(f"no texts in {source}")
    if counted.empty:
        click.echo(f"warning: {counted.empty} of {counted.lines} lines are empty; so are their outputs", err=True)
    if counted.unknown:
        click.echo(f"warning: {_never_seen(counted.unknown)}. Their outputs are a guess", err=True)
    if counted.tokens:
        click.echo(f"unknown tokens: {counted.unknown_share:.2f} %", err=True)
    if counted.too_long:
        named = ", ".join(map(str, counted.too_long[:10]))
        click.echo(f"warning: {len(counted.too_long)} lines were too long ({named}): cut or left empty", err=True)
    if counted.unfinished:
        click.echo(
            f"warning: {counted.unfinished} of {counted.lines} outputs reached the length limit before they ended",
            err=True,
        )


def _never_seen(unknown: Counter[str]) -> str:
    named = ", ".join(f"{named_symbol(symbol)} in {count}" for symbol, count in unknown.items())
    upper = [s for s in unknown if s != s.lower()]
    case = " (upper case is another symbol than lower case)" if upper else ""
    return f"symbols that the model has never seen, and how many texts have them{case}: {named}"
