"""What a file is for, where nobody says: pairs, labels or tags."""

import pytest

from qkv.data import guess, sources
from qkv.errors import UserError

ANIMALS = """ant bee cat dog elk fox gnu hen ibis jay kite lark mole newt owl pig quail rat seal toad"""
WORDS = ANIMALS.split()
CSV = "text,label\n" + "".join(
    f"{a} {b},{'xy'[n % 2]}\n" for n, (a, b) in enumerate(zip(WORDS, WORDS[::-1], strict=True))
)
PAIRS = "".join(f"{word}\t{' '.join(word)}\n" for word in WORDS)
CONLL = "".join(f"{word} B-ANIMAL\nruns O\n. O\n\n" for word in WORDS)
POS = "".join(f"{word}\tNN\nruns\tVB\n.\t.\n\n" for word in WORDS)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", CSV, "labels"), ("a.tsv", PAIRS, "pairs"), ("a.txt", CONLL, "tags"), ("a.tsv", POS, "tags"),
        ("a.conll", POS, "tags"), ("a.txt", "one line\nand another\n", "pairs"),
    ],
)  # fmt: skip
def test_a_file_is_taken_for_what_it_looks_like(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert guess.own_name(str(path), {}) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"data.label": "b"}, "labels"),
        ({"data.target": "b"}, "pairs"),
        ({"data.tag": 2}, "tags"),
        ({"data": {"label": 1}}, "labels"),
    ],
)  # fmt: skip
def test_a_setting_that_one_reader_alone_has_decides(tmp_path, settings, expected):
    (tmp_path / "a.tsv").write_text(PAIRS, encoding="utf-8")
    assert guess.own_name(str(tmp_path / "a.tsv"), settings) == expected


def test_of_a_large_file_the_beginning_is_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(guess, "ENOUGH", 300)
    (tmp_path / "a.csv").write_text(CSV * 5 + "unclosed,\x00", encoding="utf-8")
    assert guess.own_name(str(tmp_path / "a.csv"), {}) == "labels"


def test_a_task_that_is_said_wins_and_an_unknown_name_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text(CSV, encoding="utf-8")
    path = str(tmp_path / "a.csv")
    assert sources.table_of(path) == {"name": "labels", "train": path}
    assert sources.table_of(path, "seq2seq") == {"name": "pairs", "train": path}
    with pytest.raises(UserError, match="no data set 'zh-revews'.*'zh-reviews'"):
        sources.find("zh-revews")


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UserError, match=r"none\.csv"):
        guess.own_name(str(tmp_path / "none.csv"), {})


def test_many_numbers_under_the_name_label_are_labels_which_their_reader_then_asks_about(tmp_path):
    (tmp_path / "a.csv").write_text(
        "text,label\n" + "".join(f"w{n} x,{n / 3:.2f}\n" for n in range(40)), encoding="utf-8"
    )
    assert guess.own_name(str(tmp_path / "a.csv"), {}) == "labels"
