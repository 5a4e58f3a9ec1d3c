"""Symbols of the kind "words": how text is cut, here and by any reader of the file that is kept."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from qkv.data.pair_data import symbol_kind
from qkv.data.symbols import UNK, Symbols
from qkv.errors import UserError

SIGNS = st.sampled_from("aB1 _-'\u3000我カは\u0301éİßПр한")
LINE = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), SIGNS))
OLD = st.text(st.one_of(st.characters(codec="latin-1"), SIGNS))
"""Characters on which all versions of Unicode agree."""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't STOP", ["don", "'", "t", "stop"]),
        ("Café über naïve", ["café", "über", "naïve"]),
        ("cafe\u0301", ["cafe\u0301"]),
        ("1,000 x2 3.5%", ["1", ",", "000", "x2", "3", ".", "5", "%"]),
        ("...!?", [".", ".", ".", "!", "?"]),
        ("a_b <pad> €5", ["a", "_", "b", "<", "pad", ">", "€", "5"]),
        ("我们喜欢GPU3", ["我", "们", "喜", "欢", "gpu3"]),
        ("テストです", ["テ", "ス", "ト", "で", "す"]),
        ("𠮷野家", ["𠮷", "野", "家"]),
        ("Привет мир", ["привет", "мир"]),
        ("한국어 좋다", ["한국어", "좋다"]),
        ("a\u3000b\u00a0c\t d", ["a", "b", "c", "d"]),
        ("", []),
        (" \t", []),
    ],
)
def test_words_signs_and_han_characters(text, words):
    symbols = Symbols.learn([text], "words")
    assert symbols.split(text) == words
    assert symbols.join(symbols.split(text)) == " ".join(words)
    assert [symbols.text([id_]) for id_ in symbols.encode(text)] == words


@given(LINE)
def test_any_reader_of_the_file_cuts_as_we_do(text):
    symbols = Symbols.learn([text], "words")
    found = Tokenizer.from_str(symbols.dumps()).encode(text)
    assert found.tokens == symbols.split(text)
    assert found.ids == symbols.encode(text)
    assert UNK not in found.ids


@given(OLD)
def test_nothing_but_case_and_blanks_is_lost_and_each_piece_is_of_one_sort(text):
    words = Symbols.learn([], "words").split(text)
    assert "".join(words) == re.sub(r"[^\S\x1c-\x1f]", "", text.lower())
    for word in words:
        sorts = {unicodedata.category(character)[0] in "LMN" for character in word}
        assert sorts == {True} or (len(word) == 1 and sorts == {False})


def test_case_is_no_matter_and_unknown_words_are_named():
    symbols = Symbols.learn(["The cat"], "words")
    assert symbols.encode("THE CAT") == symbols.encode("the cat")
    [the] = symbols.encode("the")
    assert symbols.encode_text("The Quokka, the quokka") == ([the, UNK, UNK, the, UNK], ["quokka", ","])


def test_the_file_says_which_kind_it_is(tmp_path):
    symbols = Symbols.learn(["Ana went, and 我 too"], "words")
    symbols.save(tmp_path / "tokenizer.json")
    again = Symbols.load(tmp_path / "tokenizer.json")
    assert again.kind == "words"
    assert again.dumps() == symbols.dumps()
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab_size() == len(symbols)


def test_the_kind_has_no_size():
    assert symbol_kind("words").kind == "words"
    with pytest.raises(UserError, match="unknown symbols 'words:100'"):
        symbol_kind("words:100")
    with pytest.raises(UserError, match="Did you mean 'words'"):
        symbol_kind("wrods")
