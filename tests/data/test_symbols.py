"""Symbols: ids and back, unknown and reserved symbols, and the saved file read by `tokenizers` itself."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from qkv.data.symbols import BOS, CONTROLS, EOS, KINDS, PAD, UNK, Symbols
from qkv.errors import UserError

CHARACTER = st.characters(exclude_categories=["Cs"])
WORD = st.text(CHARACTER, min_size=1, max_size=4).filter(lambda w: len(w.split()) == 1 and w.split()[0] == w)
# Text with the control symbols, odd spaces and known symbols in it more often than chance gives.
PIECE = st.one_of(
    CHARACTER,
    st.sampled_from(
        [*CONTROLS, " ", "\u3000", "\x1c", "\x85", "\n", "AH", "B", "ab", "<p", "\u2581", "\u2582", "\u0301"]
    ),
)
TEXT = st.lists(PIECE, max_size=12).map("".join)


def test_ids_start_with_the_control_symbols_then_the_most_frequent():
    symbols = Symbols.learn(["banana", "nab"], "characters")
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert symbols.decode(range(len(symbols)), controls=True) == ["<pad>", "<bos>", "<eos>", "<unk>", "a", "n", "b"]
    assert symbols.encode("ban") == [6, 4, 5]
    assert symbols.kind == "characters"


def test_learning_does_not_depend_on_the_order_of_the_data():
    one = Symbols.learn(["B A", "C"], "spaces")
    two = Symbols.learn(["C", "A B"], "spaces")
    assert one.encode("A B C") == two.encode("A B C") == [4, 5, 6]


LINES = st.lists(st.lists(WORD, min_size=1, max_size=5).map(" ".join), min_size=1, max_size=6)


@given(LINES, st.sampled_from(["characters", "graphemes", "spaces", "bpe", "unigram"]))
def test_what_was_learnt_comes_back(texts, kind):
    symbols = Symbols.learn(texts, kind, size=300)
    for text in texts:
        ids, unknown = symbols.encode_text(text)
        assert ids == symbols.encode(text)
        assert unknown == []
        assert UNK not in ids
        assert symbols.text(ids) == text


@given(st.lists(st.text(CHARACTER, max_size=9), min_size=1, max_size=6), st.sampled_from(["characters", "graphemes"]))
def test_characters_come_back_spaces_included(texts, kind):
    symbols = Symbols.learn(texts, kind)
    for text in texts:
        assert symbols.join(symbols.split(text)) == text
        assert symbols.text(symbols.encode(text)) == text


@settings(max_examples=200)
@given(TEXT, st.sampled_from(KINDS))
def test_the_saved_file_means_the_same_to_the_tokenizers_library(tmp_path_factory, text, kind):
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    known = ["ab<p ab<p "] if kind == "inventory" else ["AH B a", "b a \u2581"]
    symbols = Symbols.learn(known, kind, inventory=["a", "ab", "<p", " ", "b"])
    symbols.save(path)
    theirs = Tokenizer.from_file(str(path))
    ids, _ = symbols.encode_text(text)
    assert theirs.encode(text).ids == ids
    assert Symbols.load(path).kind == kind
    assert Symbols.load(path).encode_text(text) == symbols.encode_text(text)
    clean = [i for i in ids if i != UNK]
    assert theirs.decode(clean) == symbols.text(clean)


def test_unknown_symbols_are_named_once_in_order():
    symbols = Symbols.learn(["abc"], "characters")
    assert symbols.encode_text("a9bé9") == ([4, UNK, 5, UNK, UNK], ["9", "é"])


def test_decode_leaves_out_what_was_never_said():
    symbols = Symbols.learn(["AH B"], "spaces")
    assert symbols.decode([BOS, 4, UNK, 5, EOS, PAD]) == ["AH", "<unk>", "B"]
    with pytest.raises(ValueError, match="id 6 .* 0 to 5"):
        symbols.decode([6])
    with pytest.raises(ValueError, match="id -1"):
        symbols.decode([-1])


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_a_character_pair_is_refused_in_data_and_unknown_later(kind):
    with pytest.raises(UserError, match=r"'a\\ud800' has half of a character pair, '\\ud800': it was decoded wrongly"):
        Symbols.learn(["a", "a\ud800"], kind, inventory=["a"])
    symbols = Symbols.learn(["a"], kind, inventory=["a"])
    ids, unknown = symbols.encode_text("\udcffa")
    assert UNK in ids
    assert unknown == ["\ufffda" if kind == "spaces" else "\ufffd"]
    assert symbols.encode("\udcffa") == ids


def test_an_unknown_kind_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="unknown kind of symbols 'charcters'.*characters"):
        Symbols.learn(["a"], "charcters")


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same(tmp_path, kind):
    path = tmp_path / "词 表" / "tokenizer.json"
    path.parent.mkdir()
    symbols = Symbols.learn(["xyz", 'é\\"词'], kind, inventory=["xy", "z", *'é\\"词'])
    symbols.save(path)
    loaded = Symbols.load(path)
    every = range(len(symbols))
    assert loaded.kind == kind
    assert loaded.decode(every, controls=True) == symbols.decode(every, controls=True)
    assert loaded.encode_text("xé x词") == symbols.encode_text("xé x词")
    assert [file.name for file in path.parent.iterdir()] == ["tokenizer.json"]


def test_saving_over_a_file_replaces_it_and_a_missing_folder_is_said(tmp_path):
    path = tmp_path / "tokenizer.json"
    Symbols.learn(["abc"], "characters").save(path)
    Symbols.learn(["xyz"], "characters").save(path)
    assert "x" in Symbols.load(path)
    with pytest.raises(UserError, match=r"cannot write .*nowhere"):
        Symbols.learn(["xyz"], "characters").save(tmp_path / "nowhere" / "tokenizer.json")


def test_a_missing_damaged_or_foreign_file_is_said(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match=r"cannot read .*tokenizer\.json"):
        Symbols.load(path)
    Symbols.learn(["abc"], "characters").save(path)
    whole = path.read_text(encoding="utf-8")
    for damaged in (whole[: len(whole) // 2], "", "[]", whole.replace("WordLevel", "Worldlevel")):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(UserError, match="damaged"):
            Symbols.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="damaged"):
        Symbols.load(path)


@pytest.mark.parametrize(("name", "new_id"), [(CONTROLS[0], 9), ("a", 40)])
def test_a_vocabulary_with_other_ids_is_refused(tmp_path, name, new_id):
    path = tmp_path / "tokenizer.json"
    Symbols.learn(["abc"], "characters").save(path)
    layout = json.loads(path.read_text(encoding="utf-8"))
    layout["model"]["vocab"][name] = new_id
    path.write_text(json.dumps(layout), encoding="utf-8")
    with pytest.raises(UserError, match="not written by qkv"):
        Symbols.load(path)


def test_files_of_the_first_version_still_open(tmp_path):
    path = tmp_path / "tokenizer.json"
    symbols = Symbols.learn(["b a b"], "spaces")
    symbols.save(path)
    text = path.read_text(encoding="utf-8")
    for name in CONTROLS:
        text = text.replace(json.dumps(name), json.dumps(name.strip()))
    path.write_text(text, encoding="utf-8")
    assert Symbols.load(path).encode_text("a b <pad>") == ([5, 4, UNK], ["<pad>"])


def test_a_table_of_another_program_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    theirs = Tokenizer(models.WordLevel({name: i for i, name in enumerate(CONTROLS)}, unk_token=CONTROLS[UNK]))
    for cutter in (None, pre_tokenizers.Split("a", "isolated"), pre_tokenizers.Whitespace()):
        if cutter is not None:
            theirs.pre_tokenizer = cutter
        theirs.save(str(path))
        with pytest.raises(UserError, match=f"the vocabulary {re.escape(str(path))}"):
            Symbols.load(path)
