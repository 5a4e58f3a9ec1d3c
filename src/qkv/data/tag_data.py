"""A person's own words with tags as data for tagging: what `--data.tag N` and the like mean."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from qkv.data import splits
from qkv.data.files.conll import Conll, Sentence, read_conll
from qkv.data.files.encoding import some
from qkv.data.files.reading import FileConfig
from qkv.data.pair_data import shares_of
from qkv.data.segment import normalise
from qkv.data.spans import as_bio, entity_counts, scheme_of
from qkv.data.texts import Tagged, Texts
from qkv.errors import UserError, nearest

NAME = "tags"


@dataclass(frozen=True)
class TagConfig(FileConfig):
    """The person's own words with tags, one word a line and a blank line between sentences (CoNLL).

    train, dev, test  files; without dev and test, parts of train
    word, tag         columns from 1; tag 0 is the last one
    split             shares of train, dev and test: by document where -DOCSTART- lines part them, else by sentence
    symbols           auto, characters, graphemes, spaces (whole words), bpe:SIZE, unigram:SIZE
    normalise         none, NFC or NFD, of words
    """

    train: str = ""
    dev: str = ""
    test: str = ""
    word: int = 1
    tag: int = 0
    split: str = "0.8,0.1,0.1"
    symbols: str = "auto"
    normalise: Literal["none", "NFC", "NFD"] = "none"

    def __post_init__(self):
        if not self.train:
            raise ValueError("a file is needed: --data.train FILE")
        shares_of(self.split)


OPTIONS: Mapping[str, Any] = {one.name: one.default for one in fields(TagConfig)}


def texts_of(config: TagConfig) -> Texts:
    """Reads, counts and splits. Raises UserError naming file and line for what cannot be used."""
    files = _files(config)
    notes = [f"{one.name}: {note}" for one in files.values() for note in one.notes]
    sentences = {part: cleaned(config.normalise, one) for part, one in files.items()}
    notes += [note for part, one in files.items() for note in _rewritten(one, sentences[part])]
    _refuse_tags(files, sentences)
    parts, more = _complete(config, sentences, files["train"].documents)
    tags = tuple(sorted({tag for one in parts["train"] for tag in one.tags}))
    if len(tags) < 2:
        raise UserError(f"{config.train}: all tags are {''.join(tags)!r}, there is nothing to tell apart")
    said = json.dumps([{part: one.sha256 for part, one in files.items()}, asdict(config)], sort_keys=True)
    return Texts(
        train=parts["train"], dev=parts["dev"], test=parts["test"],
        name=NAME, task="tagging", labels=tags, symbols=config.symbols,
        fingerprint=hashlib.sha256(said.encode()).hexdigest(), notes=[*notes, *more],
    )  # fmt: skip


def tag_report(config: TagConfig) -> dict[str, Any]:
    """What a person should know before training, as plain values that fit JSON.

    Keys: files, task, sentences, words, documents, longest (words of the longest sentence), tags (counts), entities
    (counts by type, where the tags mark entities), scheme, notes, problem (why it cannot be trained on, "" where it
    can), examples (of each part), command (to paste). Raises UserError for files that cannot be read.
    """
    files, data, problem = _files(config), None, ""
    try:
        data = texts_of(config)
    except UserError as error:
        problem = str(error)
    every = [one for conll in files.values() for one in cleaned(config.normalise, conll)]
    tags = Counter(tag for one in every for tag in one.tags)
    return {
        "files": {part: {"name": one.name, "form": "conll", "encoding": one.encoding, "columns": one.columns}
                  for part, one in files.items()},
        "task": "tagging",
        "sentences": len(every),
        "words": tags.total(),
        "documents": sum(one.documents for one in files.values()),
        "longest": max(len(one.words) for one in every),
        "tags": dict(tags.most_common()),
        "scheme": scheme_of(one.tags for conll in files.values() for one in conll.sentences),
        "entities": entity_counts(one.tags for one in every),
        "notes": data.notes if data else [note for one in files.values() for note in one.notes],
        "problem": problem,
        "examples": {part: len(several) for part, several in data.splits.items()} if data else {},
        "shown": [{"words": one.words, "tags": one.tags} for one in every[:3]],
        "command": f"qkv train {config.train} --task tagging --minutes 5",
    }  # fmt: skip


def _files(config: TagConfig) -> dict[str, Conll]:
    files = {"train": config.train, "dev": config.dev, "test": config.test}
    how: dict[str, Any] = {"word": config.word, "tag": config.tag, "encoding": config.encoding or None}
    return {part: read_conll(file, **how) for part, file in files.items() if file}


def cleaned(form: str, conll: Conll) -> list[Sentence]:
    """Words in a normal form; where tags mark entities, 0 is O, as its typists mean it, and IOB1 becomes BIO."""
    entities = any(tag[:2] in ("B-", "I-") for one in conll.sentences for tag in one.tags)
    return [
        replace(
            one,
            words=tuple(normalise(word, form) for word in one.words),
            tags=as_bio(_with_o(one.tags)) if entities else one.tags,
        )
        for one in conll.sentences
    ]


def _with_o(tags: Sequence[str]) -> tuple[str, ...]:
    return tuple("O" if tag == "0" else tag for tag in tags)


def _rewritten(conll: Conll, sentences: Sequence[Sentence]) -> list[str]:
    changed = [
        (one.line + place, tag)
        for one, clean in zip(conll.sentences, sentences, strict=True)
        for place, (tag, now) in enumerate(zip(one.tags, clean.tags, strict=True)) if tag != now
    ]  # fmt: skip
    zeros, opened = ([line for line, tag in changed if (tag == "0") == zero] for zero in (True, False))
    notes = [f"{conll.name}: 0 is read as O in {some(zeros)}."] if zeros else []
    if opened:
        scheme = "its tags are IOB1" if scheme_of(one.tags for one in conll.sentences) == "IOB1" else "I- without B-"
        notes.append(f"{conll.name}: {len(opened):,} entities begin with I- ({scheme}): read as B-, {some(opened)}.")
    return notes


def _refuse_tags(files: Mapping[str, Conll], sentences: Mapping[str, Sequence[Sentence]]) -> None:
    known = {tag for one in sentences["train"] for tag in one.tags}
    unseen = {
        tag: f"{tag!r} ({files[part].name}, line {one.line + place})"
        for part, several in sentences.items() if part != "train"
        for one in several for place, tag in enumerate(one.tags) if tag not in known
    }  # fmt: skip
    if unseen:
        near = nearest(next(iter(unseen)), sorted(known))
        listed = ", ".join(list(unseen.values())[:10])
        raise UserError(f"tags that {files['train'].name} never has: {listed}.{near}")


def _complete(
    config: TagConfig, sentences: Mapping[str, Sequence[Sentence]], documents: int
) -> tuple[dict[str, list[Tagged]], list[str]]:
    notes: list[str] = []
    given = {part: [Tagged(one.words, one.tags) for one in several] for part, several in sentences.items()}
    missing = [part for part in ("dev", "test") if part not in given]
    if missing:
        shares = shares_of(config.split)
        shares = (shares[0], shares[1] if "dev" in missing else 0.0, shares[2] if "test" in missing else 0.0)
        made, notes = cut(sentences["train"], shares, documents)
        given = {**given, **{part: made[part] for part in ("train", *missing)}}
    for part in ("train", "dev", "test"):
        if not given[part]:
            raise UserError(f"there are too few sentences for a {part} part: give --data.{part} FILE, or more of them")
    sizes = ", ".join(f"{part} {len(given[part]):,}" for part in ("train", "dev", "test"))
    return given, [*notes, f"{'Split' if missing else 'Given'}: {sizes} sentences."]


def cut(
    sentences: Sequence[Sentence], shares: tuple[float, float, float], documents: int
) -> tuple[dict[str, list[Tagged]], list[str]]:
    """Three parts: by document where there are ten or more, else by sentence; equal sentences on one side."""
    words = [" ".join(one.words) for one in sentences]
    whole = documents >= 10
    notes = ["Split by document." if whole else "Split by a hash of the sentence, equal ones on one side."]
    again = len(words) - len(set(words))
    if again:
        notes.insert(0, f"{again:,} sentences stand more than once.")
    keys = [str(one.document) for one in sentences] if whole else words
    labels, groups = [""] * len(words), splits.joined(keys, words)
    places = splits.stratified(groups, labels, keys, shares)
    return {
        part: [Tagged(sentences[row].words, sentences[row].tags) for row in rows] for part, rows in places.items()
    }, notes
