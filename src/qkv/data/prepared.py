"""A person's own pairs, large files read only once: the next start takes them from the cache folder."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from qkv.data import kept, pair_data
from qkv.data.compact import Examples
from qkv.data.files.encoding import local
from qkv.data.pair_data import PairConfig
from qkv.data.pairs import Pairs, SymbolKind

LARGE = 50_000
"""Examples from which on data are held compactly and kept."""

SPLITS = ("train", "dev", "test")


def pairs_of(config: PairConfig) -> Pairs:
    """The pairs of a person's own files, from the cache where these have been read so before.

    Raises UserError as `pair_data.load` does.
    """
    key = _key(config)
    found = kept.read(key) if key else None
    if found is not None:
        return _pairs(found)
    pairs = pair_data.load(config).pairs
    if sum(map(len, pairs.splits.values())) < LARGE:
        return pairs
    made = _stored(pairs)
    if key and _key(config) == key:  # else a file was written to meanwhile, and the key is of what it was before
        kept.write(key, made)
    return _pairs(made)


def _key(config: PairConfig) -> str:
    """What identifies the pairs: settings and content. "" where a file is missing: reading it says what is wrong."""
    settings = asdict(config)
    needed = [config.train, config.dev, config.test] if config.train else [str(config.source), str(config.target)]
    needed += [file for one in config.symbols.split(",") if (file := one.strip().partition("inventory:")[2])]
    try:
        # Any setting that happens to name a file counts with its content, so that none is forgotten here.
        named = {*needed, *(value for value in settings.values() if isinstance(value, str))}
        content = {name: _sha256(path) for name in sorted(named - {""}) if (path := local(name)).is_file()}
    except OSError:
        return ""
    return kept.key("pairs", settings, content) if all(name in content for name in needed if name) else ""


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _stored(pairs: Pairs) -> kept.Stored:
    arrays: dict[str, Any] = {}
    for split, examples in pairs.splits.items():
        arrays |= {f"{split}.{name}": one for name, one in Examples.of(examples).arrays().items()}
    about = {one.name: getattr(pairs, one.name) for one in fields(Pairs) if one.name not in SPLITS}
    for side in ("source_symbols", "target_symbols"):
        about[side] = asdict(about[side])
    return kept.Stored(arrays, about)


def _pairs(stored: kept.Stored) -> Pairs:
    about = dict(stored.about)
    for side in ("source_symbols", "target_symbols"):
        inventory = about[side]["inventory"]
        about[side] = SymbolKind(**{**about[side], "inventory": None if inventory is None else tuple(inventory)})
    return Pairs(**{split: Examples.from_arrays(stored.arrays, f"{split}.") for split in SPLITS}, **about)
