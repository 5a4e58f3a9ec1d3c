"""A table of people's own: any of the usual formats to named columns and rows that know their line."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qkv.data.files import columnar, jsonl
from qkv.data.files.delimited import SEPARATORS, Record, guess_separator, records
from qkv.data.files.encoding import decode, lines, odd_characters, read, some
from qkv.errors import UserError

KNOWN = {
    "text", "label", "labels", "source", "target", "src", "tgt", "trg", "word", "words", "phonemes", "pronunciation",
    "ipa", "input", "output", "sentence", "category", "class", "title", "id", "en", "de", "fr", "es", "zh", "ja",
    "score",     "内容", "类别", "原文", "译文", "文本", "标签", "词", "音", "拼音", "标题",
}  # fmt: skip
"""Names that make a first row a header."""


@dataclass(frozen=True)
class LeftOut:
    """A row that is not used, and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class Table:
    """Columns and rows of a file. `rows` holds (physical line where the row begins, values); values are as typed.

    form is tsv, csv, jsonl, parquet, xlsx, parallel, dict or text; `header` says whether the file named its columns
    (else they are column 1, column 2, ...). `sha256` is of the bytes; `notes` are what a person should be told.
    """

    name: str
    form: str
    columns: list[str]
    rows: list[Record]
    sha256: str
    encoding: str = ""
    separator: str | None = None
    header: bool = True
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_table(path: str | Path, *, encoding: str | None = None, header: bool | None = None) -> Table:
    """The table in a file, its form found by content and suffix. Raises UserError naming file, line and column."""
    path = Path(path)
    raw = read(path)
    digest = hashlib.sha256(raw).hexdigest()
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".xlsx") or raw[:4] in (b"PAR1", b"PK\x03\x04"):
        form = "parquet" if suffix == ".parquet" or raw[:4] == b"PAR1" else "xlsx"
        columns, rows = columnar.read(path, form)
        return _with_rows(Table(path.name, form, columns, rows, digest), path)
    decoded = decode(raw, path, encoding)
    table = Table(
        path.name, "", [], [], digest, decoded.encoding, notes=[*decoded.notes, *odd_characters(decoded.text)]
    )
    if suffix in (".jsonl", ".json", ".ndjson"):
        columns, rows, notes = jsonl.read(decoded.text, path)
        return _with_rows(replace(table, form="jsonl", columns=columns, rows=rows, notes=[*table.notes, *notes]), path)
    return _with_rows(_delimited(table, "\n".join([*lines(decoded.text), ""]), path, header), path)


def read_parallel(source: str | Path, target: str | Path, *, encoding: str | None = None) -> Table:
    """Two text files, line n of one beside line n of the other. Raises UserError when their lengths differ."""
    texts, notes, digest, names = [], list[str](), hashlib.sha256(), list[str]()
    for path in (Path(source), Path(target)):
        raw = read(path)
        digest.update(hashlib.sha256(raw).digest())
        decoded = decode(raw, path, encoding)
        texts.append(lines(decoded.text))
        notes += [f"{path.name}: {note}" for note in (*decoded.notes, *odd_characters(decoded.text))]
        names.append(decoded.encoding)
    if len(texts[0]) != len(texts[1]):
        raise UserError(
            f"{source} has {len(texts[0]):,} lines, {target} {len(texts[1]):,}: line n of one must belong to line n of "
            f"the other. {_gap(texts[0], texts[1])}"
        )
    rows = [(number, [a, b]) for number, (a, b) in enumerate(zip(*texts, strict=True), 1)]
    encodings = "/".join(dict.fromkeys(names))
    name = f"{Path(source).name} + {Path(target).name}"
    return Table(name, "parallel", ["source", "target"], rows, digest.hexdigest(), encodings, notes=notes)


def _gap(first: Sequence[str], second: Sequence[str]) -> str:
    """Where a line seems to be missing: the place from which the pairs fit better when shifted by one."""
    longer, shorter = (first, second) if len(first) > len(second) else (second, first)
    ratio = (sum(map(len, longer)) + 1) / (sum(map(len, shorter)) + 1)

    def misfit(a: str, b: str) -> float:
        return abs(len(a) - ratio * len(b)) / (len(a) + ratio * len(b) + 1)

    shift = len(longer) - len(shorter)
    straight = [misfit(a, b) for a, b in zip(longer, shorter, strict=False)]
    shifted = [misfit(a, b) for a, b in zip(longer[shift:], shorter, strict=True)]
    cost, costs = sum(shifted), list[float]()
    for here, there in zip(straight, shifted, strict=True):
        costs.append(cost)
        cost += here - there
    costs.append(cost)
    place = min(range(len(costs)), key=costs.__getitem__)
    if costs[place] > 0.8 * min(sum(straight), sum(shifted)):
        return "The lengths of the lines do not tell where"
    return f"By the lengths of lines, one seems to be missing near line {place + 1}"


def _delimited(table: Table, text: str, path: Path, header: bool | None) -> Table:
    first, notes = 1, list(table.notes)
    declared = re.match(r"sep=(.)\n", text)
    if declared:
        text, first = text[declared.end() :], 2
        notes.append("The first line says which separator follows; it is no row.")
    separator = declared[1] if declared else guess_separator(text, str(path), path.suffix.lower())
    if separator is None:
        return _without_separator(replace(table, notes=notes), text, path)
    strict = separator != "\t"
    found = list(records(text, separator, str(path), first, strict))
    rows = [record for record in found if any(value.strip() for value in record[1])]
    blank = len(found) - len(rows)
    if blank:
        notes.append(f"{blank:,} blank row{'s' if blank > 1 else ''} ignored.")
    if not rows:
        raise UserError(f"{path} has no rows")
    form = "tsv" if separator == "\t" else "csv"
    if separator not in "\t," or path.suffix.lower() not in (".tsv", ".csv"):
        notes.append(f"Separator: {SEPARATORS.get(separator, separator)}.")
    if header is None:
        header, why = _looks_like_header(rows)
        notes.append(why)
    names = [name.strip() for name in rows[0][1]] if header else []
    return replace(
        table, form=form, separator=separator, header=header, rows=rows[1:] if header else rows,
        columns=rows[0][1] if header else [], notes=notes + _unnamed(names),
    )  # fmt: skip


def _unnamed(names: list[str]) -> list[str]:
    empty = [str(place) for place, name in enumerate(names, 1) if not name]
    return [f"Columns without a name: {', '.join(empty)}."] if empty else []


def _looks_like_header(rows: list[Record]) -> tuple[bool, str]:
    names = [value.strip().strip("\ufeff").casefold() for value in rows[0][1]]
    if any(name in KNOWN for name in names):
        return True, "The first row is taken for a header: it has a usual column name."
    below = [fields for _, fields in rows[1:200]]
    for place, name in enumerate(names):
        numbers = [_number(fields[place]) for fields in below if place < len(fields)]
        if numbers and all(numbers) and not _number(name):
            return True, "The first row is taken for a header: the rows below it have numbers where it has a word."
    return False, "No header: the first row looks like the others (--data.header true if it is one)."


def _number(text: str) -> bool:
    return bool(re.fullmatch(r"\s*[-+]?\d+([.,]\d+)?\s*", text))


def _without_separator(table: Table, text: str, path: Path) -> Table:
    """A dictionary (word, blanks, symbols; CMU's form too), else one text a line."""
    every = list(enumerate(text.split("\n"), 1))
    comments = sum(line.startswith(";;;") for _, line in every)
    kept = [(number, line) for number, line in every if line.strip() and not line.startswith(";;;")]
    if not kept:
        raise UserError(f"{path} has no rows")
    if not (path.suffix.lower() in (".dict", ".lex", ".lexicon") or comments):
        return replace(table, form="text", columns=["text"], header=False, rows=[(n, [line]) for n, line in kept])
    notes = [*table.notes, "Each line is read as a word, blanks, and its symbols."]
    if comments:
        notes.append(f"{comments} comment line{'s' if comments > 1 else ''} (;;;) ignored.")
    rows, variants = list[Record](), 0
    for number, line in kept:
        word, *symbols = line.split()
        plain = re.sub(r"\(\d+\)$", "", word)
        variants += plain != word
        rows.append((number, [plain, " ".join(symbols)]))
    if variants:
        notes.append(f"{variants} numbered variant{'s' if variants > 1 else ''}: WORD(2) is another line for WORD.")
    return replace(table, form="dict", columns=["word", "symbols"], header=True, rows=rows, notes=notes)


def _with_rows(table: Table, path: Path) -> Table:
    """The table with rows of one width: pasted headers left out, surplus empty cells dropped, other rows refused."""
    if not table.rows:
        raise UserError(f"{path} has a header and no rows")
    width = len(table.columns) or Counter(len(fields) for _, fields in table.rows).most_common(1)[0][0]
    columns = table.columns or [f"column {n}" for n in range(1, width + 1)]
    wrong = [(n, f) for n, f in table.rows if len(f) != width and (len(f) < width or any(v.strip() for v in f[width:]))]
    wrong += _mixed(table.rows) if table.form == "tsv" else []
    if wrong:
        wrong.sort(key=lambda record: record[0])
        named = "; ".join(f"line {n}: {_what(fields, table.separator)}" for n, fields in wrong[:10])
        more = f"; and {len(wrong) - 10:,} more" if len(wrong) > 10 else ""
        sign = SEPARATORS.get(table.separator or "", table.separator)
        raise UserError(f"{path}: {width} fields separated by {sign} are expected. {named}{more}")
    again = [n for n, fields in table.rows if table.header and fields == table.columns and len(set(fields)) > 1]
    rows = [(n, fields[:width]) for n, fields in table.rows if n not in again] if again else table.rows
    if not again and any(len(fields) > width for _, fields in rows):
        rows = [(n, fields[:width]) for n, fields in rows]
    left_out = [*table.left_out, *(LeftOut(n, "the header again") for n in again)]
    notes = [*table.notes, *([f"The header again in {some(again)}: left out."] if again else [])]
    return replace(table, columns=columns, rows=rows, left_out=left_out, notes=notes)


def _mixed(rows: list[Record]) -> list[Record]:
    """Rows with blanks where all others have a tab: only their first fields hold blanks, several in a row."""
    blanks = [record for record in rows if " " in record[1][0].strip()]
    wide = [record for record in blanks if re.search(r"\S {2,}\S", record[1][0])]
    return wide if len(wide) == len(blanks) < len(rows) / 2 else []


def _what(fields: list[str], separator: str | None) -> str:
    if separator == "\t" and re.search(r"\S {1,}\S", fields[0]) and (len(fields) == 1 or "  " in fields[0]):
        return f"blanks where a tab should be, {fields[0][:40]!r}"
    return f"{len(fields)} field{'s' if len(fields) != 1 else ''}, {fields[0][:40]!r}"
