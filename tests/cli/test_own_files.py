"""A person's own file from `data show` through `train` to `predict`, on the command line."""

import json
import os
import shlex
import subprocess
import sys
import tomllib

import pytest

TINY = ["--steps", "6", "--d_model", "16", "--d_ff", "32", "--n_layers", "1", "--beam", "2", "--evaluations", "1"]
ROWS = [(f"{a}{b}", f"{a.upper()} {b.upper()}") for a in "bcdfgk" for b in "aeiou"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "词 表.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in ROWS) + "the\tð ə\nthe\tð i\nno target\t \n", encoding="utf-8")
    return path


@pytest.fixture
def run(qkv, file, tmp_path):
    folder = tmp_path / "run"
    qkv("train", file, "--data.symbols", "spaces", "--max_length", "5", *TINY, "--out", folder)
    return folder


def test_the_command_that_show_prints_trains(qkv, file, tmp_path):
    shown = qkv.json("data", "show", file)
    assert (shown["usable"], len(shown["left_out"]), shown["conflicts"]) == (32, 1, 1)
    words = shlex.split(shown["command"])
    assert words[:3] == ["qkv", "train", str(file)]
    out, _ = qkv(*words[1:-2], *TINY, "--max_length", "5", "--out", tmp_path / "pasted", "--json")
    assert {"wer", "per"} <= json.loads(out).keys()


def test_show_tells_people_what_they_need(qkv, file):
    out, _ = qkv("data", "show", file)
    for said in ("tsv, utf-8, separator tab; 33 rows", "line 33 of", "target is empty", "(U+00F0 LATIN SMALL",
                 "train with:", "sources with several targets: 1"):  # fmt: skip
        assert said in out, out


def test_a_long_cell_is_never_printed_whole(qkv, tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(f'text,label\n"{"word, " * 50_000}",x\nshort,y\nlast,z\nmore,z\n', encoding="utf-8")
    labelled, _ = qkv("data", "show", path)
    assert "longest 300,000" in labelled
    assert max(map(len, labelled.splitlines())) < 400
    out, _ = qkv("data", "show", path, "--task", "seq2seq")
    assert "line 2 of long.csv: 299,999" in out
    assert max(map(len, out.splitlines())) < 400
    refused = qkv.refused("train", path, "--task", "seq2seq", *TINY, "--out", tmp_path / "r")
    assert "1 rows are longer than 500 symbols (long.csv, line 2: 299,999)" in refused
    assert not (tmp_path / "r").exists()


def test_a_lexicon_answers_exactly_and_leaves_the_rest_to_the_model(qkv, run, file):
    found = qkv.json("predict", run, "--input", "-", "--lexicon", file, "--nbest", "2", stdin=b"the\nba\nbabe\n\n")
    the, ba, other, empty = found["predictions"]
    assert [answer for answer, _ in the["n_best"]] == ["ð ə", "ð i"]
    assert ba["output"] == "B A"
    assert other["output"] not in ("", None)
    assert empty["output"] == ""
    assert (found["lines"], found["empty"], found["from_lexicon"]) == (4, 1, 2)


def test_a_table_keeps_its_columns_and_rows_and_gets_the_answers_behind(qkv, run, tmp_path):
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    table.write_text('id,word,note\n001,ba,"a, b"\n002,,x\n003,ce,"two\nlines"\n', encoding="utf-8")
    _, err = qkv("predict", run, "--input", table, "-o", out, "--lexicon", _lexicon(tmp_path))
    assert "texts: column 2 (word)" in err
    assert out.read_text(encoding="utf-8-sig") == (
        'id,word,note,prediction\n001,ba,"a, b",known\n002,,x,\n003,ce,"two\nlines",known too\n'
    )


def _lexicon(tmp_path):
    path = tmp_path / "lexicon.tsv"
    path.write_text("ba\tknown\nce\tknown too\n", encoding="utf-8")
    return path


def test_improbable_answers_are_left_out_and_the_first_never(qkv, run):
    every = qkv.json("predict", run, "ba", "--nbest", "2")["predictions"][0]
    assert len(every["n_best"]) == 2
    assert all(0 <= held <= 1 for held in every["probabilities"])
    likely = qkv.json("predict", run, "ba", "--nbest", "2", "--min-prob", "1")["predictions"][0]
    assert likely["n_best"] == every["n_best"][:1]


@pytest.mark.parametrize(("policy", "said"), [("truncate", True), ("drop", False)])
def test_texts_longer_than_those_trained_on(qkv, run, policy, said):
    text = ("b" * 501 + "\nba\n").encode()
    _, err = qkv("predict", run, "--input", "-", code=2, stdin=text)
    assert "line 1 has 501 symbols; this run was trained on up to 500" in err
    out, err = qkv("predict", run, "--input", "-", "--too-long", policy, stdin=text)
    assert "1 lines were too long (1)" in err
    assert (out.split("\n")[0] != "") == said
    assert len(out.split("\n")) == 3


def test_two_files_and_own_parts(qkv, tmp_path):
    for name, words in (("a.en", "one two three four five six"), ("a.de", "eins zwei drei vier funf sechs")):
        (tmp_path / name).write_text(words.replace(" ", "\n"), encoding="utf-8")
    sides = ["--data.source", tmp_path / "a.en", "--data.target", tmp_path / "a.de"]
    assert qkv.json("data", "show", *sides)["usable"] == 6
    assert "wer" in qkv.json("train", *sides, *TINY, "--max_length", "5", "--out", tmp_path / "r")


def test_how_a_file_is_read_is_said_on_the_command_line_and_kept_in_one_table(qkv, tmp_path):
    path, out = tmp_path / "words.txt", tmp_path / "r"
    path.write_bytes("".join(f"é{n};x\tA{n}, B\n" for n in range(9)).encode("cp1252"))
    said = ["--data.separator", "tab", "--data.header", "true", "--data.encoding", "cp1252", "--data.variants", ", "]
    shown = qkv.json("data", "show", path, *said)
    assert (shown["usable"], shown["examples"]["all"]) == (16, 8)
    assert shown["files"]["train"]["columns"] == ["é0;x", "A0, B"]
    pasted = shlex.split(shown["command"])
    qkv(*pasted[1:-2], *TINY, "--max_length", "5", "--out", out)
    table = tomllib.loads((out / "config.toml").read_text(encoding="utf-8"))["data"]
    settings = {"separator": "tab", "header": "true", "encoding": "cp1252", "variants": ", "}
    assert settings.items() <= table.items()
    (tmp_path / "recipe.toml").write_text(
        f"[data]\nname = 'pairs'\ntrain = '{path}'\nheader = true\nseparator = 'tab'\nencoding = 'cp1252'\n"
        "variants = ', '\nsymbols = 'characters,characters'\n",
        encoding="utf-8",
    )
    again = ["--config", tmp_path / "recipe.toml", *TINY, "--max_length", "5", "--out", tmp_path / "again"]
    assert qkv.json("train", *again).keys() >= {"wer", "per"}
    assert tomllib.loads((tmp_path / "again" / "config.toml").read_text(encoding="utf-8"))["data"] == table


def test_a_scraped_lexicon_names_the_setting_that_splits_it(qkv, tmp_path):
    path = tmp_path / "scraped.tsv"
    path.write_text("wind\t/wɪnd/, /waɪnd/\nvase\t[veɪs] or [vɑːz]\nhat\t/hæt/\nend\t/ɛnd/\n", encoding="utf-8")
    plain, _ = qkv("data", "show", path)
    assert "2 cells look like several targets (lines 1, 2; the first is '/wɪnd/, /waɪnd/')" in plain
    assert "--data.variants auto" in plain
    split = qkv.json("data", "show", path, "--data.variants", "auto")
    assert (split["usable"], split["examples"]["all"]) == (6, 4)
    assert not set("/[],") & set(split["symbols"]["target"])


def test_symbols_that_end_a_line_or_are_unseen_are_shown_escaped(qkv, tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text('text,target\n"a\nb",x\nc d,y\ne\u2028f,z\n\u200bg\u200bh,x\n', encoding="utf-8")
    out, _ = qkv("data", "show", path)
    shown = next(line for line in out.splitlines() if "most frequent first" in line)
    for symbol in ("'\\n'", "' '", r"'\u2028'", r"'\u200b'"):
        assert symbol in shown
    assert "separator comma;" in out


def test_spellings_of_one_label_are_listed_with_what_merges_them(qkv, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("text,label\n" + "".join(f"t{n},{one}\n" for n, one in enumerate(
        ["thé", "the\u0301", "Thé", "eau", "eau", "eau"])), encoding="utf-8")  # fmt: skip
    out, _ = qkv("data", "show", path)
    assert "labels: eau 3, thé 1," in out
    assert "'Thé' looks like thé (U+0074 U+0068 U+00E9), the\u0301 (U+0074 U+0068 U+0065 U+0301)" in out
    assert "--data.normalise NFC merges 1 with another; others are merged by correcting the file" in out


def test_two_files_of_different_length_are_refused_and_nothing_is_written(qkv, tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\nthree\n")
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    sides = ["--data.source", tmp_path / "a.en", "--data.target", tmp_path / "a.de"]
    for words in (["data", "show", *sides], ["train", *sides, *TINY, "--out", tmp_path / "r"]):
        assert "a.en has 3 lines" in qkv.refused(*words)
    assert not (tmp_path / "r").exists()


def test_a_file_with_other_content_of_the_same_size_and_time_is_told_apart(qkv, tmp_path):
    path, prints = tmp_path / "data.tsv", set()
    for a, b in (("up", "on"), ("on", "up")):
        path.write_text("".join(f"w{chr(97 + n)}\t{a if n % 2 else b}\n" for n in range(12)))
        os.utime(path, (1_600_000_000, 1_600_000_000))
        prints |= {
            qkv.json("data", "show", path, "--task", task)["fingerprint"] for task in ("seq2seq", "classification")
        }
    assert len(prints) == 4


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp950", "gbk"])
def test_consoles_of_any_encoding_and_locale(file, encoding):
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    words = [sys.executable, "-m", "qkv", "data", "show", str(file)]
    shown = subprocess.run(words, capture_output=True, env=environment, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert b"UnicodeEncodeError" not in shown.stderr
    assert "usable: 32 pairs".encode(encoding) in shown.stdout
