"""Lines of text to ids: a vocabulary, and every line in it. Of large data both are kept in the cache folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from qkv.data.compact import Ids, Texts
from qkv.data.kept import Stored, kept, key
from qkv.data.pairs import SymbolKind
from qkv.data.symbols import Symbols


def learn(texts: Iterable[str], kind: SymbolKind, name: str = "") -> Symbols:
    """The vocabulary of `texts`. Raises UserError as `Symbols.learn` does."""

    def learned() -> Symbols:
        return Symbols.learn(texts, kind.kind, size=kind.size, inventory=kind.inventory, name=name)

    if not isinstance(texts, Texts):
        return learned()
    made = kept(key("vocabulary", texts.digest, asdict(kind)), lambda: Stored(about=learned().dumps()))
    return Symbols.loads(made.about)


def encode(texts: Iterable[str], symbols: Symbols) -> Ids:
    """The ids of every text."""

    def encoded() -> Ids:
        return Ids.of(map(symbols.encode, texts))

    if not isinstance(texts, Texts):
        return encoded()
    made = kept(key("ids", texts.digest, symbols.dumps()), lambda: Stored(encoded().arrays()))
    return Ids(**made.arrays)
