"""Rare symbols with their look-alikes, inventories read from files, normal forms."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.segment import RareSymbol, normalise, rare, read_inventory
from qkv.errors import UserError


def test_a_rare_symbol_comes_with_code_points_names_and_look_alikes():
    found = rare({"g": 40, "ɡ": 2, "tʃ": 1, "k": 5})
    assert found == [
        RareSymbol("tʃ", 1, "U+0074 U+0283", ["LATIN SMALL LETTER T", "LATIN SMALL LETTER ESH"], []),
        RareSymbol(
            "ɡ", 2, "U+0261 LATIN SMALL LETTER SCRIPT G", ["LATIN SMALL LETTER SCRIPT G"],
            ["g (U+0067 LATIN SMALL LETTER G)"],
        ),
    ]  # fmt: skip
    assert [one.symbol for one in rare({"g": 40, "ɡ": 2, "k": 5}, below=6)] == ["ɡ", "k"]


ALIKE = [
    "g ɡ", ": ː", ": ：", "' ʼ", "' ’", "' ˈ", "ε ɛ", "a а", "a α", "o о", "o ο", "e е", "p р", "p ρ", "c с", "x х",
    "x χ", "y у", "y γ", "ə ә", "a ａ", "A a", "A А", "é e", "é e\u0301", "t͡s ts", "ﬁ fi", "a a\u200b", "☎ ☎\ufe0e",
    "- –", "ɡː g:", "ˈa 'a", "´ '", "Straße strasse",
]  # fmt: skip


@pytest.mark.parametrize("pair", ALIKE)
def test_symbols_that_are_taken_for_one_another(pair):
    one, other = pair.split(" ")
    assert one != other
    found = {rare_one.symbol: rare_one.look_alikes for rare_one in rare({one: 1, other: 1, "z": 1})}
    assert [alike.partition(" (")[0] for alike in found[one]] == [other]
    assert [alike.partition(" (")[0] for alike in found[other]] == [one]
    assert found["z"] == []
    assert f"U+{ord(other[0]):04X}" in found[one][0]


@pytest.mark.parametrize("pair", ["b d", "ɪ i", "ʃ s", "ŋ n", "1 2", "t d", "\u0301 \u0300", "θ t", "ʊ u", "əː əi"])
def test_symbols_that_differ_to_the_eye(pair):
    one, other = pair.split(" ")
    assert [found.look_alikes for found in rare({one: 1, other: 1})] == [[], []]


def test_an_inventory_is_read_as_people_save_it(tmp_path):
    path = tmp_path / "音素.txt"
    path.write_bytes("\ufefft͡ɕ\r\n\r\n  a \r\n#\r\n\u3000˥˩".encode())
    assert read_inventory(path) == ["t͡ɕ", "a", "#", "˥˩"]
    path.write_bytes("ɡ\na".encode("utf-16"))
    assert read_inventory(str(path)) == ["ɡ", "a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n\t\n", "has no symbols: one a line is expected"),
        ("a\nʃ\n\na\nʃ\nʃ\n".encode(), r"lists some symbols twice: a \(lines 1, 4\), ʃ \(lines 2, 5, 6\)"),
        (b"a\nb\t12\n", r"line 2: 'b\\t12' holds a tab: one symbol a line"),
    ],
)
def test_an_inventory_that_cannot_be_one_is_refused(tmp_path, content, message):
    path = tmp_path / "phones.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_inventory(path)
    assert "phones.txt" in str(error.value)


def test_a_missing_inventory_is_said_with_the_nearest_file(tmp_path):
    (tmp_path / "phones.txt").write_text("a", encoding="utf-8")
    with pytest.raises(UserError, match=r"there is no file .*phone\.txt.*phones\.txt"):
        read_inventory(tmp_path / "phone.txt")


@given(st.text(max_size=10))
def test_normal_forms_are_those_of_unicode(text):
    assert normalise(text, "none") == text
    assert normalise(text, "NFC") == unicodedata.normalize("NFC", text)
    assert normalise(text, "NFD") == unicodedata.normalize("NFD", text)


def test_another_normal_form_is_refused():
    with pytest.raises(UserError, match="unknown normal form 'nfc'. Did you mean 'NFC'"):
        normalise("a", "nfc")
