"""A person's own plain text, one text a line, as data for a language model of masked tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from qkv.data import splits
from qkv.data.files.encoding import decode, lines, odd_characters, read
from qkv.data.files.reading import FileConfig
from qkv.data.pair_data import shares_of
from qkv.data.segment import normalise
from qkv.data.texts import Labelled, Texts
from qkv.errors import UserError

NAME = "lines"


@dataclass(frozen=True)
class LineConfig(FileConfig):
    """The person's own text files, one text a line.

    train, dev, test  files; without dev and test, parts of train
    split             shares of train, dev and test, by a hash of the line: equal lines stay on one side
    symbols           auto, characters, graphemes, spaces, words, bpe:SIZE, unigram:SIZE
    normalise         none, NFC or NFD
    """

    train: str = ""
    dev: str = ""
    test: str = ""
    split: str = "0.9,0.05,0.05"
    symbols: str = "auto"
    normalise: Literal["none", "NFC", "NFD"] = "none"

    def __post_init__(self):
        if not self.train:
            raise ValueError("a file is needed: --data.train FILE")
        shares_of(self.split)


OPTIONS: Mapping[str, Any] = {one.name: one.default for one in fields(LineConfig)}


def texts_of(config: LineConfig) -> Texts:
    """Reads, counts and splits. Raises UserError naming the file, or the setting, for what cannot be used."""
    for one in fields(FileConfig):
        if one.name != "encoding" and getattr(config, one.name) != one.default:
            raise UserError(f"lines of text have no columns: --data.{one.name} is for tables")
    files = {part: file for part, file in (("train", config.train), ("dev", config.dev), ("test", config.test)) if file}
    digest, notes = hashlib.sha256(json.dumps(asdict(config), sort_keys=True).encode()), list[str]()
    given: dict[str, list[str]] = {}
    for part, file in files.items():
        raw = read(file)
        digest.update(hashlib.sha256(raw).digest())
        decoded = decode(raw, file, config.encoding or None)
        found = lines(decoded.text)
        notes += [f"{file}: {note}" for note in (*decoded.notes, *odd_characters(found))]
        given[part] = [text for line in found if (text := normalise(line.strip(), config.normalise))]
        if not given[part]:
            raise UserError(f"{file} has no text")
        if len(given[part]) < len(found):
            notes.append(f"{file}: {len(found) - len(given[part]):,} blank lines ignored.")
    parts = _complete(config, given)
    made = {part: [Labelled(text, ()) for text in several] for part, several in parts.items()}
    known = set(parts["train"])
    for part in ("dev", "test"):
        again = sum(text in known for text in parts[part])
        if again:
            notes.append(f"{again:,} of {len(parts[part]):,} {part} lines are in train too: its figures are too good.")
    sizes = ", ".join(f"{part} {len(several):,}" for part, several in parts.items())
    return Texts(
        train=made["train"], dev=made["dev"], test=made["test"], name=NAME,
        task="masked_lm", labels=(), symbols=config.symbols, fingerprint=digest.hexdigest(),
        notes=[*notes, f"{'Given' if len(given) == 3 else 'Split by a hash of the line'}: {sizes} texts."],
    )  # fmt: skip


def _complete(config: LineConfig, given: Mapping[str, list[str]]) -> dict[str, list[str]]:
    missing = [part for part in ("dev", "test") if part not in given]
    shares = shares_of(config.split)
    shares = (shares[0], shares[1] if "dev" in missing else 0.0, shares[2] if "test" in missing else 0.0)
    places = splits.by_hash(given["train"], shares)
    parts = {part: given[part] if part in given and part != "train" else [given["train"][row] for row in places[part]]
             for part in ("train", "dev", "test")}  # fmt: skip
    for part, several in parts.items():
        if not several:
            raise UserError(f"there are too few lines for a {part} part: give --data.{part} FILE, or more lines")
    return parts
