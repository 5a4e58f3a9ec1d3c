"""symbols.json: what a caller has to know to turn text into ids and ids into text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from qkv.data.symbols import BOS, EOS, PAD, UNK

# What `tokenizers` takes for white space: Unicode's, and not U+001C to U+001F, which Python's \s has as well.
_NO_SPACE = "[^\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+"
_GRAPHEMES = r"\X"


def describe(folder: Path, *, normalise: str, max_source: int | None, max_length: int) -> dict[str, Any]:
    """The content of symbols.json for the tokenizer files in `folder`, as plain values that fit JSON.

    source and target hold "symbols" by id. "pattern" finds the symbols of a text; None where only the package
    tokenizers can. "join" stands between symbols, and with "subwords" the sign U+2581 stands for a blank.
    """
    source, source_layout = _read(folder / "tokenizer.json")
    target, target_layout = _read(folder / "target_tokenizer.json")
    return {
        "source": {"symbols": source, "pattern": _pattern(source_layout)},
        "target": {
            "symbols": target,
            "join": " " if target_layout["pre_tokenizer"]["type"] == "WhitespaceSplit" else "",
            "subwords": target_layout["pre_tokenizer"]["type"] == "Metaspace",
        },
        "pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK,
        "normalise": normalise, "max_source": max_source, "max_length": max_length,
    }  # fmt: skip


def _read(path: Path) -> tuple[list[str], dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    ids = Tokenizer.from_str(text).get_vocab()
    names = sorted(ids, key=ids.__getitem__)
    return [name.strip() if i <= UNK else name for i, name in enumerate(names)], json.loads(text)


def _pattern(layout: dict[str, Any]) -> str | None:
    cutter = layout["pre_tokenizer"]
    if cutter["type"] == "WhitespaceSplit":
        return _NO_SPACE
    if cutter["type"] != "Split" or cutter["pattern"]["Regex"] == _GRAPHEMES:
        return None
    return str(cutter["pattern"]["Regex"])
