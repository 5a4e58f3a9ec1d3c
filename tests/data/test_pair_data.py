"""A person's own pair files: what is used, what is left out, how it is split, and what is said about it."""

from pathlib import Path

import pytest

from qkv.data import pair_data
from qkv.data.pair_data import PairConfig
from qkv.data.pair_file import cut, grouped, guess_kinds
from qkv.data.pairs import Example, SymbolKind
from qkv.errors import UserError

WORDS = "".join(f"w{n}\tw a{n % 7}\n" for n in range(200))


def test_rows_are_grouped_counted_and_split_by_source(write):
    loaded = pair_data.load(
        PairConfig(train=write("w.tsv", WORDS + "w1\tother\nw1\tw a1\n\u00a0x \ty y\nempty\t\u3000\n"))
    )
    every = [e for several in loaded.pairs.splits.values() for e in several]
    assert len(every) == 201
    assert next(e for e in every if e.source == "w1").targets == ("w a1", "other")
    assert (loaded.duplicates, loaded.conflicts) == (1, 1)
    assert [(one.line, one.reason) for one in loaded.rows["train"].left_out] == [(204, "target is empty")]
    assert any(e.source == "x" and e.targets == ("y y",) for e in every)
    sizes = [len(several) for several in loaded.pairs.splits.values()]
    assert sizes[0] > 150
    assert min(sizes[1:]) >= 3
    notes = " ".join(loaded.pairs.notes)
    for said in (
        "Left out, target is empty: line 204",
        "1 rows say again",
        "1 sources have several",
        "taken off in 2 rows",
    ):
        assert said in notes


def test_a_growing_file_keeps_its_rows_in_their_splits():
    some = [Example(f"w{n}", ("x",)) for n in range(300)]
    before, after = cut(some[:200], (0.8, 0.1, 0.1)), cut(some, (0.8, 0.1, 0.1))
    for part in before:
        assert {e.source for e in before[part]} <= {e.source for e in after[part]}


def test_a_dozen_words_still_have_a_dev_and_a_test_part():
    for count in range(3, 20):
        parts = cut([Example(f"w{n}", ("x",)) for n in range(count)], (0.9, 0.05, 0.05))
        assert all(parts.values())
        assert sum(map(len, parts.values())) == count


def test_too_few_sources_are_said(write):
    with pytest.raises(UserError, match="too few different sources for a dev part"):
        pair_data.load(PairConfig(train=write("w.tsv", "a\tb\na\tc\n")))


def test_own_dev_and_test_files_and_sources_in_two_of_them(write):
    train, dev = write("tr.csv", "word,ipa\na,x\nb,y\nc,z\n"), write("dv.csv", "ipa,word\ny,b\nq,d\n")
    loaded = pair_data.load(PairConfig(train=train, dev=dev, test=dev, source="word", target="ipa"))
    assert [len(several) for several in loaded.pairs.splits.values()] == [3, 2, 2]
    assert loaded.pairs.dev[1] == Example("d", ("q",))
    assert loaded.shared == {"dev": ["b"], "test": ["b"]}
    assert any("1 of 2 dev sources are in train too" in note for note in loaded.pairs.notes)


def test_a_column_0_is_refused_and_not_taken_for_unsaid(tmp_path):
    file = tmp_path / "words.tsv"
    file.write_text("word\tsound\n" + "".join(f"w{n}\tS {n}\n" for n in range(40)), encoding="utf-8")
    with pytest.raises(UserError, match="0"):
        pair_data.load(PairConfig(train=str(file), source=0))


@pytest.mark.parametrize(
    ("split", "said"), [("nan,0.5,0.5", "numbers"), ("inf,1,1", "numbers"), ("1,0,0", "gives the dev part nothing")]
)
def test_shares_that_cannot_be_are_said(tmp_path, split, said):
    file = tmp_path / "words.tsv"
    file.write_text("word\tsound\n" + "".join(f"w{n}\tS {n}\n" for n in range(40)), encoding="utf-8")
    with pytest.raises((UserError, ValueError), match=said):
        pair_data.load(PairConfig(train=str(file), split=split))


def test_a_cell_without_end_is_left_out_by_line_and_never_cut_into_symbols(tmp_path):
    file = tmp_path / "words.tsv"
    rows = "".join(f"w{n}\tS {n}\n" for n in range(40))
    file.write_text(f"word\tsound\n{rows}{'a' * 1_000_001}\tS\n", encoding="utf-8")
    loaded = pair_data.load(PairConfig(train=str(file)))
    assert "Left out, over 1,000,000 characters: line 42." in loaded.rows["train"].notes
    assert sum(map(len, loaded.pairs.splits.values())) == 40


def test_two_text_files_side_by_side(write):
    source, target = write("a.en", "one\n\nthree\nfour\nfive\n"), write("a.de", "eins\nzwei\n\u00a0\nvier\nfunf\n")
    loaded = pair_data.load(PairConfig(source=source, target=target))
    assert sum(map(len, loaded.pairs.splits.values())) == 3
    assert [one.line for one in loaded.rows["train"].left_out] == [2, 3]


def test_what_only_a_file_with_columns_has_is_refused_for_two_text_files(write):
    sides = {"source": write("a.en", "one\n"), "target": write("a.de", "eins\n")}
    for setting in ({"separator": "tab"}, {"header": "true"}):
        with pytest.raises(UserError, match="two text files have no columns"):
            pair_data.load(PairConfig(**sides, **setting))


def test_a_separator_and_the_text_between_targets_as_said(write):
    file = write("s.txt", "".join(f"w{n}-/a b{n}/ ~ /c/\n" for n in range(20)) + "x-y ~ \n")
    loaded = pair_data.load(PairConfig(train=file, separator="-", variants=" ~"))
    every = [e for several in loaded.pairs.splits.values() for e in several]
    assert every[0].targets == ("a b0", "c")
    assert (len(every), len(loaded.rows["train"].rows)) == (21, 41)
    assert [(one.line, one.reason) for one in loaded.rows["train"].left_out] == [
        (21, "one of several targets is empty")
    ]


@pytest.mark.parametrize(("form", "length"), [("NFC", 1), ("NFD", 2), ("none", None)])
def test_normalising_is_said(write, form, length):
    config = PairConfig(
        train=write("n.tsv", "".join(f"\u00e9{n}\tx\ne\u0301{n}z\ty\n" for n in range(9))), normalise=form
    )
    loaded = pair_data.load(config)
    sources = [e.source for several in loaded.pairs.splits.values() for e in several]
    lengths = {len(s.rstrip("z0123456789")) for s in sources}
    assert lengths == ({length} if length else {1, 2})
    assert any(f"Normalised to {form}: 9 rows changed." in note for note in loaded.pairs.notes) == (length is not None)


def test_the_fingerprint_follows_content_not_name_size_or_time(write):
    one = pair_data.load(PairConfig(train=write("d.tsv", WORDS))).pairs.fingerprint
    assert pair_data.load(PairConfig(train=write("d.tsv", WORDS))).pairs.fingerprint == one
    assert pair_data.load(PairConfig(train=write("d.tsv", WORDS.replace("w7\t", "v7\t")))).pairs.fingerprint != one
    assert pair_data.load(PairConfig(train=write("d.tsv", WORDS), separator="tab")).pairs.fingerprint != one


def test_settings_that_came_later_leave_the_fingerprints_of_runs_from_before(write, monkeypatch):
    monkeypatch.chdir(Path(write("d.tsv", WORDS)).parent)
    config = PairConfig(train="d.tsv", symbols="spaces")
    assert (
        pair_data.load(config).pairs.fingerprint == "f9456a6e551094d476f22a493b964c52cc1b7905371047069d6c08a832732874"
    )


def test_kinds_of_symbols_are_guessed_from_what_the_sides_look_like():
    assert guess_kinds([Example(f"chip{n}", ("tʃ ɪ p",)) for n in range(9)])[:2] == ("characters", "spaces")
    assert guess_kinds([Example("abc", ("xyz",))])[:2] == ("characters", "characters")
    sentences = [Example(f"we saw {n} cats", (f"nous avons vu {n} chats",)) for n in range(3000)]
    assert guess_kinds(sentences)[:2] == ("bpe", "bpe")


@pytest.mark.parametrize(
    ("said", "source", "target"),
    [
        ("spaces", SymbolKind(), SymbolKind("spaces")),
        ("graphemes", SymbolKind("graphemes"), SymbolKind("graphemes")),
        ("bpe:300", SymbolKind("bpe", 300), SymbolKind("bpe", 300)),
        ("graphemes, spaces", SymbolKind("graphemes"), SymbolKind("spaces")),
    ],
)
def test_kinds_of_symbols_as_asked(write, said, source, target):
    pairs = pair_data.load(PairConfig(train=write("w.tsv", WORDS), symbols=said)).pairs
    assert (pairs.source_symbols, pairs.target_symbols) == (source, target)


def test_an_inventory_from_a_file(write):
    inventory = write("phones.txt", "t͡ɕʰ\na\n\n˥˩\n")
    text = "".join(f"w{n}\tt͡ɕʰa˥˩\n" for n in range(20))
    pairs = pair_data.load(PairConfig(train=write("i.tsv", text), symbols=f"inventory:{inventory}")).pairs
    assert pairs.target_symbols == SymbolKind("inventory", inventory=("t͡ɕʰ", "a", "˥˩"))
    twice = write("twice.txt", "a\nb\na\n")
    with pytest.raises(UserError, match="lists some symbols twice: a"):
        pair_data.symbol_kind(f"inventory:{twice}")
    with pytest.raises(UserError, match="unknown symbols 'grapheme'.*graphemes"):
        pair_data.symbol_kind("grapheme")


@pytest.mark.parametrize(
    ("symbols", "said"),
    [
        ("graphemes", "By graphemes, some sounds of the target are several symbols: d͡ʒʷ is 3 (d͡ ʒ ʷ), oː is 2 (o ː), "
                      "˥˩ is 2 (˥ ˩)."),
        ("auto", "By characters, some sounds of the target are several symbols: d͡ʒʷ is 4 (d ͡ ʒ ʷ), oː is 2 (o ː), "),
        ("inventory:FILE", ""),
        ("spaces", ""),
    ],
)  # fmt: skip
def test_sounds_that_the_symbols_cut_into_several_are_said(write, symbols, said):
    inventory = write("sounds.txt", "d͡ʒʷ\noː\n˥˩\na\n")
    file = write("s.tsv", "".join(f"ʻokina Straßen {n}\td͡ʒʷa˥˩oː\n" for n in range(9)) + "vowel\toː\n")
    notes = pair_data.load(PairConfig(train=file, symbols=symbols.replace("FILE", inventory))).pairs.notes
    found = [note for note in notes if "some sounds" in note]
    assert len(found) == bool(said)
    assert said in "".join(found)


def long_file(write):
    return write("l.tsv", WORDS + f"{'q' * 30}\tx\nshort\t{'y ' * 12}\n")


def test_rows_that_are_too_long_are_refused_by_line_dropped_or_cut(write):
    file = long_file(write)
    with pytest.raises(UserError, match=r"1 rows are longer than 20 symbols \(l\.tsv, line 201: 30\).*--too-long drop"):
        pair_data.load(PairConfig(train=file, longest=20, symbols="spaces"))
    for policy, count, longest in (("drop", 201, 5), ("truncate", 202, 20)):
        loaded = pair_data.load(PairConfig(train=file, longest=20, symbols="spaces", too_long=policy))
        sources = [e.source for several in loaded.pairs.splits.values() for e in several]
        assert (len(sources), max(map(len, sources))) == (count, longest)
        assert any("1 sources had a side longer than 20 symbols" in note for note in loaded.pairs.notes)
    ten = pair_data.load(PairConfig(train=file, longest=10, symbols="spaces", too_long="truncate")).pairs
    assert max(len(t.split()) for several in ten.splits.values() for e in several for t in e.targets) == 10


@pytest.mark.parametrize("split", ["0.9,0.1", "a,b,c", "0,1,1", "1,-1,0"])
def test_splits_that_cannot_be(split):
    with pytest.raises(ValueError, match="split"):
        PairConfig(train="x", split=split)


def test_grouping_keeps_the_order_of_the_file():
    examples, duplicates = grouped([(1, "the", "ð ə"), (2, "one", "w"), (3, "the", "ð i"), (4, "the", "ð ə")])
    assert examples == [Example("the", ("ð ə", "ð i")), Example("one", ("w",))]
    assert duplicates == 1
