"""`qkv predict`."""

import random

import pytest
import torch

from qkv.data.symbols import EOS
from qkv.run.folder import write_weights
from qkv.run.run import load

LINES = ["baba", "cice", "muno", "de", "kake", "guglo", "fefi", "", "nono", "lili"]


@pytest.fixture
def answers(finished_run):
    """What the run says to each line, by line."""
    return {p.text: p.output for p in load(finished_run).predict([line for line in LINES if line])} | {"": ""}


def written(tmp_path, content):
    path = tmp_path / "文 1.txt"
    path.write_bytes(content)
    return path


def test_texts_on_the_command_line_are_answered_each_on_its_line(qkv, finished_run, answers):
    out, _ = qkv("predict", finished_run, "baba", "cice")
    assert out == f"baba\t{answers['baba']}\ncice\t{answers['cice']}\n"


@pytest.mark.parametrize("place", ["file", "stdin"])
def test_every_row_of_the_input_has_one_row_of_output_in_the_same_order(qkv, finished_run, answers, tmp_path, place):
    lines = random.sample(LINES * 4, 40)
    content = "".join(line + "\n" for line in lines).encode()
    if place == "stdin":
        out, err = qkv("predict", finished_run, "--input", "-", stdin=content)
    else:
        out, err = qkv("predict", finished_run, "--input", written(tmp_path, content))
    assert out.split("\n") == [*(answers[line] for line in lines), ""]
    assert "warning: 4 of 40 lines are empty; so are their outputs" in err


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"baba\r\ncice\r\n", ["baba", "cice"]),
        (b"baba\ncice", ["baba", "cice"]),
        (b"\xef\xbb\xbfbaba\ncice\n", ["baba", "cice"]),
        (b"\nbaba\n\n", ["", "baba", ""]),
        (b"\n", [""]),
        ("ba\u2028ba\x0bb\x85a\n".encode(), ["ba\u2028ba\x0bb\x85a"]),
        (b"ba ba\n", ["ba ba"]),
    ],
)
def test_only_line_feeds_end_a_line_whatever_system_wrote_the_file(qkv, finished_run, tmp_path, content, texts):
    found = qkv.json("predict", finished_run, "--input", written(tmp_path, content))["predictions"]
    assert [prediction["text"] for prediction in found] == texts
    assert [prediction["output"] for prediction in found if not prediction["text"]] == [""] * texts.count("")


def test_several_answers_and_scores(qkv, finished_run, tmp_path):
    path = written(tmp_path, b"baba\n\ncice\n")
    out, _ = qkv("predict", finished_run, "--input", path, "--beam", "3", "--nbest", "2", "--scores")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["baba", "baba", "", "cice", "cice"]
    assert all(float(row[2]) <= 0 for row in rows)
    found = qkv.json("predict", finished_run, "--input", path, "--beam", "3", "--nbest", "2")["predictions"]
    assert [len(prediction["n_best"]) for prediction in found] == [2, 1, 2]
    for prediction, row in zip(found, (rows[0], rows[2], rows[3]), strict=True):
        assert prediction["output"] == prediction["n_best"][0][0] == row[1]
        assert f"{prediction['score']:.4f}" == row[2]


@pytest.mark.parametrize("value", ["7", "-1", "nan"])
def test_a_probability_that_is_none_is_refused(qkv, finished_run, value):
    _, err = qkv("predict", finished_run, "baba", "--nbest", "2", "--min-prob", value, code=2)
    assert "a probability is from 0 to 1" in err


def test_the_input_is_not_written_over(qkv, finished_run, tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("baba\n", encoding="utf-8")
    _, err = qkv("predict", finished_run, "--input", file, "-o", file, code=2)
    assert "would write over the input" in err
    assert file.read_text(encoding="utf-8") == "baba\n"


def test_symbols_unseen_in_training_are_said_with_their_number(qkv, finished_run):
    out, err = qkv("predict", finished_run, "baba", "café", "néé", "x")
    assert len(out.splitlines()) == 4
    assert "warning: symbols that the model has never seen" in err
    assert "'é' (U+00E9) in 2, 'x' (U+0078) in 1" in err
    found = qkv.json("predict", finished_run, "baba", "café", "néé", "x")
    assert found["unknown"] == {"é": 2, "x": 1}
    assert [prediction["unknown"] for prediction in found["predictions"]] == [[], ["é"], ["é"], ["x"]]
    assert "never seen" not in qkv("predict", finished_run, "baba")[1]


def test_outputs_that_were_cut_are_said(qkv, run_copy):
    model = load(run_copy).model
    with torch.no_grad():
        model.head.projection.bias[EOS] = -1e4  # never ends by itself
    write_weights(run_copy, model)
    found = qkv.json("predict", run_copy, "baba", "cice")["predictions"]
    assert [prediction["finished"] for prediction in found] == [False, False]
    _, err = qkv("predict", run_copy, "baba", "cice")
    assert "warning: 2 of 2 outputs reached the length limit before they ended" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no texts: give some after the run folder, or --input FILE (- for standard input)"),
        (["baba", "--input", "-"], "give texts or --input, not both"),
        (["baba", ""], "text 2 of 2 is empty"),
        (["baba", "--nbest", "3"], "n_best must be from 1 to beam (2), got 3"),
        (["baba", "--beam", "3", "--nbest", "4"], "n_best must be from 1 to beam (3), got 4"),
        (["baba", "--nbest", "0"], "n_best must be from 1 to beam"),
        (["baba", "--beam", "0"], "beam must be 1 (greedy) or more hypotheses, got 0"),
        (["baba", "--device", "gpu"], "unknown device 'gpu'"),
        (["--input", "nowhere.txt"], "there is no file nowhere.txt"),
        (["--input", "."], ". is a folder"),
        (["--input", "-"], "no texts"),
    ],
)
def test_mistakes(qkv, finished_run, arguments, message):
    assert message in qkv.refused("predict", finished_run, *arguments)


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        (b"baba\ncice\nca\xe9\nmuno\n", ("line 3: byte 0xE9 is not UTF-8",) * 2),
        (b"", ("is empty", "no texts in -")),
    ],
)
def test_input_that_is_no_text_is_said_with_the_line(qkv, finished_run, tmp_path, content, messages):
    path = written(tmp_path, content)
    said = qkv.refused("predict", finished_run, "--input", path)
    assert messages[0] in said
    assert messages[1] in qkv.refused("predict", finished_run, "--input", "-", stdin=content)
    if content:
        assert said.startswith(str(path))


def test_a_file_in_another_encoding_is_read(qkv, finished_run, tmp_path):
    assert qkv("predict", finished_run, "--input", written(tmp_path, "baba\n".encode("utf-16")))[0].count("\n") == 1


def test_a_folder_that_is_no_run_or_a_damaged_one(qkv, tmp_path, run_copy):
    assert "nowhere is not a run folder: it does not exist" in qkv.refused("predict", tmp_path / "nowhere", "baba")
    (tmp_path / "empty").mkdir()
    assert "it has no config.toml. `qkv train" in qkv.refused("predict", tmp_path / "empty", "baba")
    for name in ("model.safetensors", "tokenizer.json", "config.toml"):
        path = run_copy / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        assert name in qkv.refused("predict", run_copy, "baba")
        path.write_bytes(whole)
