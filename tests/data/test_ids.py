"""Vocabularies and ids: the same from a list, from compact texts, and from the cache."""

import pytest

from qkv.data import kept
from qkv.data.compact import Texts
from qkv.data.ids import encode, learn
from qkv.data.pairs import SymbolKind
from qkv.errors import UserError

LINES = [f"w{n} ab{n % 7}c é\u0301 k{n % 3}" for n in range(300)]
KINDS = [
    SymbolKind(), SymbolKind("graphemes"), SymbolKind("spaces"), SymbolKind("bpe", 90), SymbolKind("unigram", 90),
    SymbolKind("inventory", inventory=(*"w0123456789abck é\u0301", "ab", "k1")),
]  # fmt: skip


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_compact_texts_give_what_a_list_gives_at_first_and_from_the_cache(kind):
    plain = learn(LINES, kind)
    wanted, others = encode(LINES, plain), ["w1 new ʃ", "", *LINES[:3]]
    assert not kept.folder().exists()
    for kept_files in (2, 2):
        symbols = learn(Texts.of(LINES), kind)
        assert symbols.dumps() == plain.dumps()
        assert symbols.kind == plain.kind
        assert list(encode(Texts.of(LINES), symbols)) == list(wanted) == list(map(plain.encode, LINES))
        assert list(map(symbols.encode, others)) == list(map(plain.encode, others))
        assert [symbols.text(symbols.encode(line)) for line in LINES[:9]] == LINES[:9]
        assert len(list(kept.folder().iterdir())) == kept_files


def test_ids_are_of_these_texts_in_this_vocabulary():
    texts, fewer = Texts.of(LINES), Texts.of(LINES[:-1])
    one, two = learn(texts, SymbolKind("spaces")), learn(fewer, SymbolKind("spaces"))
    for symbols in (one, two):
        for column in (texts, fewer):
            assert list(encode(column, symbols)) == list(map(symbols.encode, column))
    assert one.dumps() != two.dumps()


def test_texts_that_cannot_be_learned_are_refused_as_ever_and_nothing_is_kept():
    with pytest.raises(UserError, match="does not cover 300 sources"):
        learn(Texts.of(LINES), SymbolKind("inventory", inventory=("w",)), "source")
    with pytest.raises(UserError, match="half of a character pair"):
        learn(Texts.of(["a\ud800"]), SymbolKind())
    assert not kept.folder().exists()
