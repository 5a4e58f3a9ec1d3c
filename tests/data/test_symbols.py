"""Symbols: ids and back, unknown and reserved symbols, and the saved file read by `tokenizers` itself."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from qkv.data.symbols import BOS, CONTROLS, EOS, PAD, UNK, Symbols
from qkv.errors import UserError

CHARACTER = st.characters(exclude_categories=["Cs"])
WORD = st.text(CHARACTER, min_size=1, max_size=4).filter(lambda w: len(w.split()) == 1 and w.split()[0] == w)
# Text with the control symbols, odd spaces and known symbols in it more often than chance gives.
PIECE = st.one_of(CHARACTER, st.sampled_from([*CONTROLS, " ", "\u3000", "\x1c", "\x85", "\n", "AH", "B", "a"]))
TEXT = st.lists(PIECE, max_size=12).map("".join)


def test_ids_start_with_the_control_symbols_then_the_most_frequent():
    symbols = Symbols.learn(["banana", "nab"], "characters")
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert symbols.decode(range(len(symbols)), controls=True) == ["<pad>", "<bos>", "<eos>", "<unk>", "a", "n", "b"]
    assert symbols.encode("ban") == [6, 4, 5]
    assert symbols.separation == "characters"


def test_learning_does_not_depend_on_the_order_of_the_data():
    one = Symbols.learn([["B", "A"], ["C"]], "spaces")
    two = Symbols.learn([["C"], ["A", "B"]], "spaces")
    assert one.encode(["A", "B", "C"]) == two.encode(["A", "B", "C"]) == [4, 5, 6]


@given(st.lists(st.lists(WORD, max_size=6), min_size=1, max_size=6))
def test_what_was_learnt_comes_back(sequences):
    symbols = Symbols.learn(sequences, "spaces")
    for sequence in sequences:
        ids = symbols.encode(sequence)
        assert UNK not in ids
        assert symbols.decode(ids) == sequence
        assert symbols.encode_text(symbols.join(sequence)) == (ids, [])


@given(st.lists(st.text(CHARACTER, max_size=9), min_size=1, max_size=6))
def test_characters_come_back_spaces_included(texts):
    symbols = Symbols.learn(texts, "characters")
    for text in texts:
        ids, unknown = symbols.encode_text(text)
        assert (symbols.join(symbols.decode(ids)), unknown) == (text, [])


@settings(max_examples=200)
@given(TEXT, st.sampled_from(["characters", "spaces"]))
def test_the_saved_file_means_the_same_to_the_tokenizers_library(tmp_path_factory, text, split):
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    known = ["a", "b", "<", "p", " "] if split == "characters" else ["AH", "B", "a"]
    symbols = Symbols.learn([known], split)
    symbols.save(path)
    theirs = Tokenizer.from_file(str(path))
    ids, _ = symbols.encode_text(text)
    assert theirs.encode(text).ids == ids
    clean = [i for i in ids if i != UNK]
    assert theirs.decode(clean) == symbols.join(symbols.decode(clean))


def test_unknown_symbols_are_named_once_in_order():
    symbols = Symbols.learn(["abc"], "characters")
    assert symbols.encode_text("a9bé9") == ([4, UNK, 5, UNK, UNK], ["9", "é"])


@pytest.mark.parametrize("typed", CONTROLS)
def test_a_control_symbol_in_text_is_unknown(typed):
    symbols = Symbols.learn([["AH"]], "spaces")
    assert symbols.encode_text(f"AH {typed} AH") == ([4, UNK, 4], [typed])
    assert symbols.encode([typed]) == [UNK]
    assert typed not in symbols
    assert "AH" in symbols


def test_decode_leaves_out_what_was_never_said():
    symbols = Symbols.learn([["AH", "B"]], "spaces")
    assert symbols.decode([BOS, 4, UNK, 5, EOS, PAD]) == ["AH", "<unk>", "B"]
    with pytest.raises(ValueError, match="id 6 .* 0 to 5"):
        symbols.decode([6])
    with pytest.raises(ValueError, match="id -1"):
        symbols.decode([-1])


@pytest.mark.parametrize(
    ("sequence", "split", "message"),
    [
        (["AH", "<pad>"], "spaces", "'<pad>', which is reserved"),
        (["<eos>"], "characters", "'<eos>', which is reserved"),
        (["AH"], "characters", "'AH' is not one character"),
        ([""], "characters", "'' is not one character"),
        ([""], "spaces", "'' is empty or has a space"),
        (["new york"], "spaces", "'new york' is empty or has a space"),
        (["a\u3000b"], "spaces", "is empty or has a space"),
        (["\ud800"], "characters", "half of a character pair"),
        (["a"], "words", "not by 'words'"),
    ],
)
def test_symbols_that_could_not_be_read_back_are_refused(sequence, split, message):
    with pytest.raises(UserError, match=message):
        Symbols.learn([sequence], split)


@pytest.mark.parametrize("split", ["characters", "spaces"])
def test_saved_and_loaded_is_the_same(tmp_path, split):
    path = tmp_path / "词 表" / "tokenizer.json"
    path.parent.mkdir()
    symbols = Symbols.learn(["xyz", 'é\\"词'], split)
    symbols.save(path)
    loaded = Symbols.load(path)
    every = range(len(symbols))
    assert loaded.separation == split
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


@pytest.mark.parametrize(("name", "new_id"), [("<pad>", 9), ("a", 40)])
def test_a_vocabulary_with_other_ids_is_refused(tmp_path, name, new_id):
    path = tmp_path / "tokenizer.json"
    Symbols.learn(["abc"], "characters").save(path)
    layout = json.loads(path.read_text(encoding="utf-8"))
    layout["model"]["vocab"][name] = new_id
    path.write_text(json.dumps(layout), encoding="utf-8")
    with pytest.raises(UserError, match="not written by qkv"):
        Symbols.load(path)
