"""The exported caller reads a text as the run's own vocabularies do."""

import json

import pytest

from qkv.data.symbols import EOS, Symbols
from qkv.export import caller, vocabulary

TEXTS = ["ba ba", "né e\u0301 ka", "tʃa tsch", "a\u2028b c\u001fd", "<pad> x <unk>"]
KINDS = {
    "characters": {}, "graphemes": {}, "spaces": {}, "bpe": {"size": 60}, "unigram": {"size": 60},
    "inventory": {"inventory": sorted(set("".join(TEXTS)) | {"tʃ", "tsch", "b c", "."})},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_becomes_the_same_ids_and_ids_the_same_text(tmp_path, kind):
    symbols = Symbols.learn(TEXTS, kind, **KINDS[kind])
    for name in ("tokenizer.json", "target_tokenizer.json"):
        symbols.save(tmp_path / name)
    said = vocabulary.describe(tmp_path, normalise="none", max_source=None, max_length=9)
    said = json.loads(json.dumps(said))
    for text in [*TEXTS, "unseen Ж ba", "tschtʃ"]:
        ids = symbols.encode(text)
        assert caller.encode(tmp_path, said, text) == [*ids, EOS]
        assert caller.decode(said, ids) == symbols.text(ids)


def test_normalising_and_the_length_of_a_source(tmp_path):
    symbols = Symbols.learn(["né"], "characters")
    for name in ("tokenizer.json", "target_tokenizer.json"):
        symbols.save(tmp_path / name)
    said = vocabulary.describe(tmp_path, normalise="NFC", max_source=4, max_length=9)
    assert caller.encode(tmp_path, said, "ne\u0301n") == [*symbols.encode("nén"), EOS]
    with pytest.raises(ValueError, match=r"'nénn' has 4 symbols, and the model reads 1 to 3"):
        caller.encode(tmp_path, said, "nénn")
    with pytest.raises(ValueError, match=r"'' has 0 symbols, and the model reads 1 to 3"):
        caller.encode(tmp_path, said, "")
