"""What each kind of symbols takes for a symbol: clusters, inventories, sub-words, and marks of other programs."""

import subprocess
import sys

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from qkv.data.symbols import CONTROLS, KINDS, UNK, Symbols
from qkv.errors import UserError

PHONES = ["t͡ʃʰ", "t͡ʃ", "t", "ʃ", "a", "˥˩", "˥", "aː", "n̩", "ɡ"]
SUBWORDS = ("bpe", "unigram")
MARKS = "<s> </s> <unk> <pad> <eps> <|end|> <blank> [CLS] [unused3] #0 _ | { } ##b \u2581c Ġd ph_T5 a"
CONTROL_LIKE = {"<s>", "</s>", "<unk>", "<pad>", "<eps>", "<|end|>", "<blank>", "[CLS]", "[unused3]", "#0"}
CLUSTERS = ["e\u0301", "각", "👩\u200d🚀", "🇳🇵", "\r\n", "นี่", "1\ufe0f\u20e3", " \u0301"]
LINE = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("ab \u2581\u2582\u2583\u2584\u3000"))
)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_grapheme_is_what_a_person_sees_as_one(cluster):
    text = f"a{cluster}b"
    symbols = Symbols.learn([text], "graphemes")
    assert symbols.split(text) == ["a", cluster, "b"] == regex.findall(r"\X", text)
    assert Symbols.learn([text], "characters").split(text) == list(text)
    assert symbols.text(symbols.encode(text)) == text


def test_a_tie_and_a_raised_letter_do_not_make_one_grapheme():
    assert Symbols.learn(["k͡pʰ"], "graphemes").split("k͡pʰ") == ["k͡", "p", "ʰ"]


@given(LINE)
def test_graphemes_lose_nothing(text):
    symbols = Symbols.learn(["a"], "graphemes")
    assert symbols.join(symbols.split(text)) == text


def test_symbols_of_several_letters_stay_whole_between_spaces():
    symbols = Symbols.learn(["tʃ ɪ n", "dʒ oɪ", "t\u00a0\u3000ɪ"], "spaces")
    assert {"tʃ", "dʒ", "oɪ", "ɪ", "n", "t"} == set(symbols.decode(range(4, len(symbols))))
    assert symbols.split(" tʃ\t ɪ ") == ["tʃ", "ɪ"]
    assert symbols.text(symbols.encode("dʒ ɪ tʃ")) == "dʒ ɪ tʃ"


def test_an_inventory_takes_the_longest_symbol_that_fits():
    symbols = Symbols.learn(["t͡ʃʰa˥˩", "taː", "t͡ʃa", "n̩˥"], "inventory", inventory=PHONES)
    assert symbols.split("t͡ʃʰa˥˩") == ["t͡ʃʰ", "a", "˥˩"]
    assert symbols.split("taː˥") == ["t", "aː", "˥"]
    assert symbols.split("n̩t͡ʃ") == ["n̩", "t͡ʃ"]
    assert symbols.encode_text("taxqta") == ([*symbols.encode("ta"), UNK, UNK, *symbols.encode("ta")], ["x", "q"])
    assert "ɡ" not in symbols  # listed, and never seen in training


@given(st.lists(st.sampled_from(PHONES), max_size=8).map("".join))
def test_what_an_inventory_covers_comes_back_in_its_symbols(text):
    symbols = Symbols.learn([text], "inventory", inventory=PHONES)
    assert symbols.text(symbols.encode(text)) == text
    rest, expected = text, []
    while rest:
        expected.append(max((phone for phone in PHONES if rest.startswith(phone)), key=len))
        rest = rest.removeprefix(expected[-1])
    assert symbols.split(text) == expected


@pytest.mark.parametrize("symbol", [".", "a|b", "\\", "[", "(?", "#", " ", "\n", "^$", "-", "&&"])
def test_signs_of_patterns_are_symbols_of_an_inventory(symbol):
    symbols = Symbols.learn([f"x{symbol}x"], "inventory", inventory=["x", symbol])
    assert symbols.split(f"x{symbol}x") == ["x", symbol, "x"]


def test_a_text_that_an_inventory_does_not_cover_is_named_with_its_code_points():
    with pytest.raises(UserError) as error:
        Symbols.learn(["ta", "tgʷa", "q", "tgʷ"], "inventory", inventory=PHONES, name="target")
    assert str(error.value) == (
        "the inventory does not cover 3 targets: in 'tgʷa' nothing fits at 'gʷ' (U+0067 U+02B7), elsewhere at 'q'. "
        "Add the symbols to its file, or use another kind"
    )
    with pytest.raises(UserError, match=r"--data\.normalise NFC would make it fit"):
        Symbols.learn(["te\u0301"], "inventory", inventory=["t", "\u00e9"])


@pytest.mark.parametrize(("inventory", "message"), [(None, "need the list"), ([], "need the list"), (["a", ""], "''"),
                                                    ([CONTROLS[0], "a"], "' <pad>', which cannot be")])  # fmt: skip
def test_an_inventory_of_nothing_is_refused(inventory, message):
    with pytest.raises(UserError, match=message):
        Symbols.learn(["a"], "inventory", inventory=inventory)


@given(LINE, st.sampled_from(SUBWORDS))
def test_sub_words_lose_no_blank_and_no_mark(text, kind):
    symbols = Symbols.learn([text, "ab"], kind)
    ids, unknown = symbols.encode_text(text)
    assert unknown == []
    assert symbols.text(ids) == text == symbols.join(symbols.split(text))


@pytest.mark.parametrize("kind", SUBWORDS)
def test_sub_words_keep_to_their_size_and_name_the_characters_they_lack(kind):
    texts = [f"{a} {b}ing {a}{b}" for a in ("read", "train", "bread", "rain") for b in ("er", "ed", "s", "ers")]
    small, large = (Symbols.learn(texts, kind, size=size) for size in (20, 60))
    assert len(small) <= 20 < len(large) <= 60
    assert len(large.split("trainers")) < len(small.split("trainers")) <= 9
    ids, unknown = large.encode_text("rażd żé\u2581")
    assert unknown == ["ż", "é", "\u2581"]
    assert UNK in ids
    assert large.split("trainers read")[-1] == "\u2581read"


@pytest.mark.parametrize("kind", SUBWORDS)
def test_a_size_without_room_for_the_characters_is_refused(kind):
    with pytest.raises(UserError, match="9 sub-words are too few: the sources have 6 different characters.* 10 is"):
        Symbols.learn(["abc def"[:6], "c"], kind, size=9, name="source")
    assert len(Symbols.learn(["abc de"], kind, size=10)) == 10


@pytest.mark.parametrize("kind", SUBWORDS)
def test_little_data_give_few_sub_words(kind):
    assert len(Symbols.learn([], kind)) == len(CONTROLS)
    assert 5 < len(Symbols.learn(["aab"], kind, size=8000)) < 20


SAME = """
import hashlib, sys
from qkv.data.symbols import Symbols
begins, ends = ("ba", "mo", "ru", "sti"), ("n", "d", "no", "ta", "ine", "po")
texts = [f"{a}{b} {b}{a}" for a in begins for b in ends]
for kind in ("bpe", "unigram"):
    Symbols.learn(texts, kind, size=40).save(sys.argv[1])
    print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())
"""


def test_the_same_data_give_the_same_sub_words_in_every_process(tmp_path):
    call = [sys.executable, "-c", SAME, str(tmp_path / "tokenizer.json")]
    said = [subprocess.run(call, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    assert len(said[0].split()) == 2
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "words"])
def test_marks_of_other_programs_are_data(kind):
    symbols = Symbols.learn([MARKS, "a a"], kind, inventory=[*MARKS.split(), " "])
    ids, unknown = symbols.encode_text(MARKS)
    assert min(ids) > UNK
    assert unknown == []
    assert symbols.text(ids) == MARKS
    if kind in ("spaces", "inventory"):
        assert set(symbols.looks_like_control()) == CONTROL_LIKE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("typed", CONTROLS)
def test_our_own_control_symbols_are_never_read_from_text(typed, kind):
    symbols = Symbols.learn(["AH a b"], kind, inventory=["AH", " ", "a", "b"])
    assert set(symbols.encode(f"AH {typed} AH")) & {0, 1, 2} == set()
    assert typed not in symbols
    learnt = Symbols.learn([f"AH {typed} b", typed], kind, inventory=["AH", *sorted({*typed, *"b"})])
    assert min(learnt.encode(f"AH {typed} b")) > UNK


def test_words_are_cut_alike_here_and_in_the_file_that_is_kept(tmp_path):
    text = "Don't STOP: 我们喜欢 Café über x2 テスト naïve_foo!"
    symbols = Symbols.learn([text], "words")
    cut = [
        "don",
        "'",
        "t",
        "stop",
        ":",
        "我",
        "们",
        "喜",
        "欢",
        "café",
        "über",
        "x2",
        "テ",
        "ス",
        "ト",
        "naïve",
        "_",
        "foo",
        "!",
    ]
    assert symbols.split(text) == cut
    assert min(symbols.encode(text)) > UNK
    symbols.save(tmp_path / "tokenizer.json")
    again = Symbols.load(tmp_path / "tokenizer.json")
    assert again.kind == "words"
    assert again.encode(text.upper()) == symbols.encode(text)
    assert again.encode_text("don't go") == ([*symbols.encode("don't"), UNK], ["go"])
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(text).tokens == cut
