"""Cells with several targets: noticed, split where asked, and what is taken off is counted."""

import pytest

from qkv.data.files.variants import enclosed, split


def rows(*cells):
    return [(line, f"w{line}", cell) for line, cell in enumerate(cells, 1)]


@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        ("/a/, /b/", ["a", "b"]),
        ("[a] or [b c]", ["a", "b c"]),
        ("/a/;/b/ 或 [ c ]", ["a", "b", "c"]),
        ("/a/\r\n/b/", ["a", "b"]),
        ("/a/", ["a"]),
        ("a, b", []),
        ("/a/ /b/", []),  # as likely two symbols with a blank between
        ("[CLS] x [SEP]", []),
        ("/a/ (US), /b/", []),
        ("/usr/bin/", []),
        ("and/or", []),
        ("/", []),
        ("//", []),
        ("", []),
    ],
)
def test_texts_that_slashes_or_brackets_enclose(cell, texts):
    assert enclosed(cell) == texts


def test_each_target_of_a_cell_is_one_of_its_own():
    kept, left_out, notes = split(rows("/a/, /b/", "/c/", "[d] or [e]", "f"), "auto")
    assert kept == [(1, "w1", "a"), (1, "w1", "b"), (2, "w2", "c"), (3, "w3", "d"), (3, "w3", "e"), (4, "w4", "f")]
    assert left_out == []
    assert notes == [
        "2 cells hold several targets, each in slashes or brackets: 4 rows make 6 pairs.",
        "Slashes or brackets around 5 targets taken off.",
    ]


def test_a_sign_of_ones_own_stands_between():
    kept, left_out, notes = split(rows("a b | c", "d", "|e", "/f/ | /g/", "/h/ | i"), " | ")
    assert [target for _, _, target in kept] == ["a b", "c", "d", "|e", "f", "g", "/h/", "i"]
    assert left_out == []
    assert notes[0] == "3 cells hold several targets, with ' | ' between them: 5 rows make 8 pairs."
    assert notes[1:] == [
        "Slashes or brackets around 2 targets taken off.",
        "Slashes or brackets that enclose no whole target are kept: line 5.",
    ]
    kept, left_out, _ = split(rows("a,,b", "/c/, / /"), ",")
    assert [target for _, _, target in kept] == ["a", "b", "c"]
    assert [(one.line, one.reason) for one in left_out] == [
        (1, "one of several targets is empty"), (2, "one of several targets is empty"),
    ]  # fmt: skip


def test_slashes_that_enclose_no_whole_target_are_kept_and_named():
    kept, _, notes = split(rows("/a/ (US), /b/", "/c/", "[d"), "auto")
    assert [target for _, _, target in kept] == ["/a/ (US), /b/", "c", "[d"]
    assert notes[-1] == "Slashes or brackets that enclose no whole target are kept: lines 1, 3."


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (("/a/, /b/", "x", "[c] or [d]"), r"2 cells look like several targets (lines 1, 3; the first is '/a/, /b/')"),
        (("/a/ /b/", "/c/", "d"), "2 targets stand in slashes or brackets"),
        (("ə; eɪ", "x", "y;z"), "2 targets have ';' inside (lines 1, 3; the first is 'ə; eɪ')"),
        (("b a | r", "3,5", "[CLS] x [SEP]", "ph a_T5", "/"), ""),
    ],
)
def test_without_being_asked_nothing_changes_and_the_setting_is_named(cells, said):
    kept, left_out, notes = split(rows(*cells), "")
    assert (kept, left_out) == (rows(*cells), [])
    assert len(notes) == bool(said)
    assert said in "".join(notes)
    assert "--data.variants" in "".join(notes) or not said


def test_commas_in_sentences_are_no_targets():
    assert split([(1, "we came and saw", "nous sommes venus, nous avons vu")], "")[2] == []


@pytest.mark.parametrize("cell", ["/" * 100_000, "[" * 100_000, "/a/" + " \n" * 100_000 + "b/", "/a/," * 50_000])
def test_a_cell_of_any_length_takes_no_time(cell):
    assert enclosed(cell) == []
