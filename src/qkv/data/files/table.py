"""A table of people's own: any of the usual formats to named columns and rows that know their line."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qkv.data.files import columnar, jsonl, lexicon
from qkv.data.files.delimited import SEPARATORS, Row, guess_separator, records
from qkv.data.files.encoding import decode, lines, local, odd_characters, read, some
from qkv.data.files.gap import missing_line
from qkv.data.files.header import OUTER, looks_like_header
from qkv.errors import UserError, nearest

BLANKS = " "
"""The separator of dictionaries: a word, blanks, its symbols."""


@dataclass(frozen=True)
class LeftOut:
    """A row that is not used, and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class Table:
    """Columns and rows of a file. `rows` hold the physical line where each begins, and its values as typed.

    form is tsv, csv, jsonl, parquet, xlsx, parallel, dict or text; `header` says whether the file named its columns
    (else they are column 1, column 2, ...). `sha256` is of the bytes; `notes` are what a person should be told.
    """

    name: str
    form: str
    columns: list[str]
    rows: list[Row]
    sha256: str
    encoding: str = ""
    separator: str | None = None
    header: bool = True
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_table(
    path: str | Path, *, encoding: str | None = None, header: bool | None = None, separator: str | None = None
) -> Table:
    """The table in a file, its form found by content and suffix. Raises UserError naming file, line and column.

    encoding, header and separator (a sign, or its name: tab, comma, semicolon, bar, blanks) replace what would be
    guessed; where a form has none of its own, a note says so.
    """
    path, chosen = Path(path), _separator(separator)
    raw = read(path)
    digest, suffix = hashlib.sha256(raw).hexdigest(), path.suffix.lower()
    if suffix in (".parquet", ".xlsx") or raw[:4] in (b"PAR1", b"PK\x03\x04"):
        form = "parquet" if suffix == ".parquet" or raw[:4] == b"PAR1" else "xlsx"
        columns, rows, notes = columnar.read(local(path), form, header)
        asked = {"encoding": encoding, "separator": chosen, "header": header if form == "parquet" else None}
        table = Table(path.name, form, columns, rows, digest, header=bool(columns), notes=notes + _unused(form, asked))
        return _with_rows(table, path)
    decoded = decode(raw, path, encoding)
    found = lines(decoded.text)
    table = Table(path.name, "", [], [], digest, decoded.encoding, notes=[*decoded.notes, *odd_characters(found)])
    named_so = suffix in (".jsonl", ".json", ".ndjson")
    if named_so or (chosen is None and suffix not in (".csv", ".tsv") and jsonl.LOOKS_LIKE_JSON.match(decoded.text)):
        columns, rows, notes = jsonl.read(decoded.text, path)
        notes = [*table.notes, *notes, *_unused("jsonl", {"separator": chosen, "header": header})]
        return _with_rows(replace(table, form="jsonl", columns=columns, rows=rows, notes=notes), path)
    text = "\n".join([*found, ""])
    del decoded, found, raw  # a large file need not be held three times
    return _with_rows(_delimited(table, text, path, header, chosen), path)


def read_parallel(source: str | Path, target: str | Path, *, encoding: str | None = None) -> Table:
    """Two text files, line n of one beside line n of the other. Raises UserError when their lengths differ."""
    texts, notes, digest, names = [], list[str](), hashlib.sha256(), list[str]()
    for path in (Path(source), Path(target)):
        raw = read(path)
        digest.update(hashlib.sha256(raw).digest())
        decoded = decode(raw, path, encoding)
        texts.append(lines(decoded.text))
        notes += [f"{path.name}: {note}" for note in (*decoded.notes, *odd_characters(texts[-1]))]
        names.append(decoded.encoding)
    if len(texts[0]) != len(texts[1]):
        raise UserError(
            f"{source} has {len(texts[0]):,} lines, {target} {len(texts[1]):,}: line n of one must belong to line n of "
            f"the other. {missing_line(texts[0], texts[1])}"
        )
    rows = [Row(number, pair) for number, pair in enumerate(zip(*texts, strict=True), 1)]
    encodings = "/".join(dict.fromkeys(names))
    name = f"{Path(source).name} + {Path(target).name}"
    return Table(name, "parallel", ["source", "target"], rows, digest.hexdigest(), encodings, notes=notes)


def _separator(asked: str | None) -> str | None:
    if asked is None:
        return None
    by_name = {"blanks": BLANKS, "\\t": "\t", **{name: sign for sign, name in SEPARATORS.items()}}
    sign = by_name.get(asked, asked)
    if len(sign) != 1 or sign in '"\r\n':
        raise UserError(f"separator {asked!r}: one sign, or of {', '.join(by_name)}.{nearest(asked, by_name)}")
    return sign


def _unused(form: str, asked: dict[str, object]) -> list[str]:
    return [f"{name} {value!r} is not used: a {form} file says that itself." for name, value in asked.items()
            if value is not None]  # fmt: skip


def _delimited(table: Table, text: str, path: Path, header: bool | None, separator: str | None) -> Table:
    first, notes, suffix = 1, list(table.notes), path.suffix.lower()
    declared = re.match(r"sep=(.)\n", text)
    if declared:
        text, first = text[declared.end() :], 2
        notes.append("The first line says which separator follows; it is no row.")
    separator = separator or (declared[1] if declared else guess_separator(text, str(path), suffix))
    if separator is None or separator == BLANKS:
        return _without_separator(replace(table, notes=notes), text, path, header, separator == BLANKS)
    doubtful: list[int] = []
    found = list(records(text, separator, str(path), first, separator != "\t", doubtful))
    rows = [row for row in found if any(value and not value.isspace() for value in row.values)]
    if len(rows) < len(found):
        blank = len(found) - len(rows)
        notes.append(f"{blank:,} blank row{'s' if blank > 1 else ''} ignored.")
    if not rows:
        raise UserError(f"{path} has no rows")
    if doubtful:
        notes.append(f"A quote opens in {some(doubtful)} and closes lines later; each line is a row by itself here.")
    if separator not in "\t," or suffix not in (".tsv", ".csv"):
        notes.append(f"Separator: {SEPARATORS.get(separator, separator)}.")
    if header is None:
        header, why = looks_like_header(rows)
        notes.append(why)
    form, columns = "tsv" if separator == "\t" else "csv", list(rows[0].values) if header else []
    rows = rows[1:] if header else rows
    return replace(table, form=form, separator=separator, header=header, rows=rows, columns=columns, notes=notes)


def _without_separator(table: Table, text: str, path: Path, header: bool | None, asked: bool) -> Table:
    """A dictionary (word, blanks, symbols; CMU's form too), else one text a line."""
    if asked or lexicon.looks_like_lexicon(text, path.suffix.lower()):
        rows, notes = lexicon.read(text, path)
        if header:
            rows = rows[1:]
        notes = [*table.notes, *notes]
        return replace(table, form="dict", columns=["word", "symbols"], rows=rows, notes=notes)
    rows = [Row(number, (line,)) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    columns = list(rows[0].values) if header and rows else ["text"]
    return replace(table, form="text", columns=columns, header=bool(header), rows=rows[1:] if header else rows)


def _with_rows(table: Table, path: Path) -> Table:
    """The table with rows of one width: pasted headers left out, surplus empty cells dropped, other rows refused."""
    if not table.rows:
        raise UserError(f"{path} has {'a header and no rows' if table.columns and table.header else 'no rows'}")
    given = len(table.columns) or Counter(len(row.values) for row in table.rows).most_common(1)[0][0]
    names = [name.strip(OUTER) for name in table.columns] or [""] * given
    width, ignored = _used(names, table.rows)
    _refuse_other_widths(table, width, path)
    columns = table.columns[:width] or [f"column {n}" for n in range(1, width + 1)]
    notes = list(table.notes)
    if ignored:
        notes.append(f"Empty columns without a name ignored: {', '.join(map(str, ignored))}.")
    unnamed = [str(place) for place, name in enumerate(names[:width], 1) if not name] if table.columns else []
    if unnamed:
        notes.append(f"Columns without a name: {', '.join(unnamed)}.")
    rows, again = table.rows, list[int]()
    if table.header and len(set(names[:width])) > 1:
        head = tuple(columns)
        again = [row.line for row in rows if row.values[:width] == head]
        rows = [row for row in rows if row.values[:width] != head] if again else rows
    if again:
        notes.append(f"The header again in {some(again)}: left out.")
    if not rows:
        raise UserError(f"{path} has a header and no rows")
    if any(len(row.values) != width for row in rows):
        rows = [Row(row.line, row.values[:width]) for row in rows]
    left_out = [*table.left_out, *(LeftOut(line, "the header again") for line in again)]
    return replace(table, columns=columns, rows=rows, left_out=left_out, notes=notes)


def _used(names: Sequence[str], rows: Sequence[Row]) -> tuple[int, list[int]]:
    """The number of columns up to the last with a name or a value, and the positions of the empty ones behind."""
    named = max((place for place, name in enumerate(names, 1) if name), default=0)
    if named == len(names):
        return named, []
    used = named
    for row in rows:
        if len(row.values) > used:
            used = max([used, *(n for n, value in enumerate(row.values[: len(names)], 1) if value.strip(OUTER))])
    return max(used, 1), list(range(max(used, 1) + 1, len(names) + 1))


def _refuse_other_widths(table: Table, width: int, path: Path) -> None:
    wrong = [
        row for row in table.rows
        if len(row.values) < width or (len(row.values) > width and any(map(str.strip, row.values[width:])))
    ]  # fmt: skip
    wrong += lexicon.mixed(table.rows) if table.form == "tsv" else []
    if wrong:
        sign = SEPARATORS.get(table.separator or "", table.separator)
        said = {row.line: _what(row.values, table.separator) for row in sorted(wrong)}
        raise UserError(f"{path}: {width} fields separated by {sign} are expected. {lexicon.named(said.items())}")


def _what(fields: Sequence[str], separator: str | None) -> str:
    blanks = separator == "\t" and re.search(r"\S +\S", fields[0])
    if blanks and (len(fields) == 1 or "  " in fields[0] or len(fields) == 2):
        return f"blanks where a tab should be, {fields[0][:40]!r}"
    return f"{len(fields)} field{'s' if len(fields) != 1 else ''}, {fields[0][:40]!r}"
