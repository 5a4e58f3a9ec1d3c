"""Words with tags, a word a line: the CoNLL form, as it is found."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qkv.data.files.encoding import decode, lines, odd_characters, read, some
from qkv.errors import UserError

DOCSTART = "-DOCSTART-"

_BLANKS = re.compile(r"[ \t]+")
_TAG = re.compile(r"[A-Za-z][\w.$*+:'`,#()-]*|O|0|[.,:()'`$#-]+")


@dataclass(frozen=True)
class Sentence:
    """Words and tags of one sentence, the line of its first word, and the number of its document from 0."""

    line: int
    words: tuple[str, ...]
    tags: tuple[str, ...]
    document: int


@dataclass(frozen=True)
class Conll:
    """A file in CoNLL form. `documents` counts -DOCSTART- lines, 0 where there are none."""

    name: str
    sentences: list[Sentence]
    documents: int
    sha256: str
    encoding: str
    columns: int
    notes: list[str] = field(default_factory=list)


def read_conll(path: str | Path, *, word: int = 1, tag: int = 0, encoding: str | None = None) -> Conll:
    """The sentences of a file. `word` and `tag` are columns from 1; tag 0 is the last one.

    Sentences end at blank lines (of blanks and tabs too); a line that begins with "# " where a sentence would begin is
    a comment, unless it is as wide as the others with a tag behind; -DOCSTART- begins a document. Raises UserError
    naming the lines whose columns are not as many as the others', and for a column that is not there.
    """
    path = Path(path)
    raw = read(path)
    decoded = decode(raw, path, encoding)
    found = lines(decoded.text)
    rows, documents = _rows(found)
    rows, comments = _without_comments(rows)
    if not rows:
        raise UserError(f"{path} has no words: a word and its tag are expected on each line")
    width = _width(rows)
    _check(path, rows, width, word, tag)
    sentences = _sentences(rows, word - 1, (tag or width) - 1)
    notes = [*decoded.notes, *odd_characters(found)]
    if comments:
        notes.append(f"Comments: {comments:,} lines.")
    digest = hashlib.sha256(raw).hexdigest()
    return Conll(path.name, sentences, documents, digest, decoded.encoding, width, notes)


def read_words(path: str | Path, *, word: int = 1, encoding: str | None = None) -> list[tuple[str, ...]]:
    """The words of each sentence of a file in this form, whatever stands behind them, or nothing does.

    Raises UserError naming the lines that have no such column.
    """
    rows, _ = _rows(lines(decode(read(path), path, encoding).text))
    rows, _ = _without_comments(rows)
    short = [line for line, cells, _ in rows if len(cells) < word and cells != [DOCSTART]]
    if short:
        raise UserError(f"{path} has no column {word} in {some(short)}")
    found: dict[int, list[str]] = {}
    for _, cells, sentence in rows:
        if cells != [DOCSTART]:
            found.setdefault(sentence, []).append(cells[word - 1])
    return [tuple(words) for words in found.values()]


def looks_like_conll(path: str | Path, encoding: str | None = None) -> bool:
    """Whether most lines of a text file are a few columns with a tag behind, and blank lines part them."""
    raw = read(path)
    if raw[:4] in (b"PAR1", b"PK\x03\x04"):
        return False
    found = lines(decode(raw, path, encoding).text)[:5000]
    if Path(path).suffix.lower() in (".conll", ".conllu", ".iob", ".bio", ".iob2"):
        return True
    rows, documents = _rows(found)
    blank = sum(not line.strip() for line in found)
    if documents:
        return True
    tags = Counter(cells[-1] for _, cells, _ in rows if len(cells) > 1)
    short = sum(len(cells) in (2, 3, 4) and bool(_TAG.fullmatch(cells[-1])) for _, cells, _ in rows)
    few = len(tags) <= 100 and 3 * len(tags) <= len(rows)
    spoken = any(tag[:2] in ("B-", "I-", "S-", "E-") for tag in tags)
    return bool(rows) and short > 0.9 * len(rows) and few and blank >= 1 and (spoken or blank > len(rows) / 60)


Row = tuple[int, list[str], int]


def _rows(found: Sequence[str]) -> tuple[list[Row], int]:
    """(line, cells, sentence number) of every line that is not blank, and the documents."""
    rows: list[Row] = []
    documents = sentence = 0
    for number, line in enumerate(found, 1):
        bare = line.strip(" \t\ufeff")
        if not bare or bare.startswith(DOCSTART):
            documents += bool(bare)
            sentence += 1
            if bare:
                rows.append((number, [DOCSTART], sentence))
            continue
        rows.append((number, bare.split("\t") if "\t" in bare and " " not in bare else _BLANKS.split(bare), sentence))
    return rows, documents


def _width(rows: Sequence[Row]) -> int:
    return Counter(len(cells) for _, cells, _ in rows).most_common(1)[0][0]


def _without_comments(rows: list[Row]) -> tuple[list[Row], int]:
    """The rows that are words, and how many are comments: "# " before the words of a sentence, and no tag behind."""
    signs = [row for row in rows if row[1][0] == "#" and len(row[1]) > 1]
    if not signs or len(signs) == len(rows):
        return rows, 0
    others = [row for row in rows if row not in signs]
    width, tags = _width(others), {cells[-1] for _, cells, _ in others}
    begun: set[int] = set()
    kept: list[Row] = []
    for row in rows:
        _, cells, sentence = row
        if row in signs and sentence not in begun and not (len(cells) == width and cells[-1] in tags):
            continue
        begun.add(sentence)
        kept.append(row)
    return kept, len(rows) - len(kept)


def _check(path: Path, rows: Sequence[Row], width: int, word: int, tag: int) -> None:
    wrong = [line for line, cells, _ in rows if len(cells) != width and cells != [DOCSTART]]
    if width < 2:
        raise UserError(f"{path} has one column: a word and its tag are expected on each line, separated by a tab")
    if wrong:
        is_table = path.suffix.lower() in (".csv", ".jsonl", ".json", ".parquet", ".xlsx")
        zeros = [line for line, cells, _ in rows if cells[-1] == "0"]
        raise UserError(
            f"{path}: {width} columns are expected, as most lines have, a word and its tag among them; not so in "
            f"{some(wrong)}"
            + (f". A zero stands where O is meant in {some(zeros)}" if zeros else "")
            + (". One word a line is a file of tags; a table of texts is for --task classification" * is_table)
        )
    for name, place in (("word", word), ("tag", tag or width)):
        if not 1 <= place <= width:
            raise UserError(f"{path} has {width} columns: --data.{name} {place} is none of them")


def _sentences(rows: Sequence[Row], word: int, tag: int) -> list[Sentence]:
    made: list[Sentence] = []
    held: list[Row] = []
    document = -1

    def end() -> None:
        if held:
            words, tags = zip(*((cells[word], cells[tag]) for _, cells, _ in held), strict=True)
            made.append(Sentence(held[0][0], words, tags, max(document, 0)))
            held.clear()

    number = None
    for row in rows:
        if row[2] != number or row[1] == [DOCSTART]:
            end()
            number = row[2]
        if row[1] == [DOCSTART]:
            document += 1
            continue
        held.append(row)
    end()
    return made
