"""Classification, tagging and masked words from the command line, on small files of a person's own."""

import json
import re

import pytest

from qkv.cli.options import name_and_settings
from qkv.experiments.run_report import report_run
from qkv.training.train import train

WORDS = ["film", "story", "cast", "music", "ending", "camera", "dialogue", "hero", "villain", "plot"]
GOOD, BAD = ["lovely", "warm", "clever", "funny", "bright"], ["dull", "cold", "stupid", "boring", "grey"]
NAMES, PLACES = ["Ana", "Bo", "Chen", "Dora", "Emil", "Fatou"], ["Lima", "Oslo", "Quito", "Riga", "Seoul", "Tunis"]
TINY = ["--batch_tokens", "512", "--precision", "float32", "--steps", "40", "--evaluations", "2", "--lr", "3e-3"]
SMALL = {
    "transformer": ["--d_model", "16", "--d_ff", "32", "--n_layers", "1"],
    "lstm": ["--d_model", "16", "--d_hidden", "12"],
    "gru": ["--d_model", "16", "--d_hidden", "12", "--bidirectional", "false"],
    "rnn": ["--d_model", "16", "--d_hidden", "12", "--pooling", "last"],
    "cnn": ["--d_model", "16", "--n_filters", "8", "--widths", "1,2"],
    "tcn": ["--d_model", "16", "--d_hidden", "12", "--n_layers", "2"],
    "ngrams": [],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("texts")
    rows = [
        (f"the {a} is {word} and the {b} is {other}", label)
        for a in WORDS for b in WORDS if a != b
        for words, label in ((GOOD, "good"), (BAD, "bad"))
        for word, other in [(words[len(a) % 5], words[len(b) % 5])]
    ]  # fmt: skip
    text = "text,label\n" + "".join(f"{one},{label}\n" for one, label in rows)
    (made / "reviews.csv").write_text(text, encoding="utf-8")
    blocks = [f"{a} B-PER\nleft O\n{b} B-LOC\n" for a in NAMES for b in PLACES]
    (made / "names.conll").write_text("\n".join(blocks), encoding="utf-8")
    lines = [f"{a} went from {b} to {c} ." for a in NAMES for b in PLACES for c in PLACES if b != c]
    (made / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    return made


def trained(folder, file, model, out):
    _, settings = name_and_settings([*SMALL[model], *TINY])
    report_run(train(str(folder / file), model, out=out, listeners=[], **settings))
    return out


@pytest.fixture(scope="module")
def reviewed(folder):
    return trained(folder, "reviews.csv", "cnn", folder / "reviewed")


@pytest.fixture(scope="module")
def tagged(folder):
    return trained(folder, "names.conll", "transformer", folder / "tagged")


@pytest.mark.parametrize("model", SMALL)
def test_every_model_classifies_a_file(qkv, folder, tmp_path, model):
    arguments = ["train", folder / "reviews.csv", "--model", model, *SMALL[model], *TINY, "--out", tmp_path / "run"]
    found = qkv.json(*arguments)
    assert found["accuracy"] > 80
    assert found["majority"] == pytest.approx(50, abs=15)
    assert ("baseline" in found) == (model != "ngrams")
    text = "the film is lovely and the cast is warm"
    [answer] = qkv.json("predict", tmp_path / "run", text, "--nbest", "2")["predictions"]
    assert (answer["output"], sum(answer["probabilities"])) == ("good", pytest.approx(1.0))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert qkv.json(*arguments) == found
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before


@pytest.mark.parametrize("model", ["transformer", "lstm", "tcn", "ngrams"])
def test_every_model_that_can_tags_a_file(qkv, folder, tmp_path, model):
    run = tmp_path / "run"
    found = qkv.json("train", folder / "names.conll", "--model", model, *SMALL[model], *TINY, "--out", run)
    assert found["accuracy"] > 60
    assert {"entity_f1", "entity_precision", "entity_recall"} <= found.keys()
    [answer] = qkv.json("predict", run, "Ana left Oslo", "--allow-unk")["predictions"]
    assert len(answer["output"].split(" ")) == 3


def test_the_baseline_is_a_run_and_stands_on_the_page(qkv, reviewed):
    page = (reviewed / "report" / "index.html").read_text(encoding="utf-8")
    for said in ("n-gram baseline", "Each label on test", "Which label was taken for which", "macro F1"):
        assert said in page
    own = qkv.json("eval", reviewed / "baseline")
    told = json.loads((reviewed / "baseline" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert own["metrics"] == pytest.approx(told["test"])
    out, _ = qkv("predict", reviewed / "baseline", "the music is grey")
    assert out == "the music is grey\tbad\n"


def test_a_table_keeps_its_rows_and_an_empty_line_its_place(qkv, reviewed, folder, tmp_path):
    qkv("predict", reviewed, "--input", folder / "reviews.csv", "-o", tmp_path / "out.csv")
    rows = (tmp_path / "out.csv").read_text(encoding="utf-8-sig").splitlines()
    assert rows[0] == "text,label,prediction"
    assert len(rows) == 181
    out, err = qkv("predict", reviewed, "--input", "-", stdin=b"the film is warm\n\nthe cast is dull\n")
    assert len(out.splitlines()) == 3
    assert out.splitlines()[1] == ""
    assert "unknown tokens: 0.00 %" in err


def test_scores_are_calibrated_probabilities_of_every_label(qkv, reviewed):
    out, _ = qkv("predict", reviewed, "the film is warm", "--nbest", "2", "--scores")
    rows = [line.split("\t") for line in out.splitlines()]
    assert {row[1] for row in rows} == {"good", "bad"}
    assert sum(float(row[2]) for row in rows) == pytest.approx(1.0, abs=1e-3)
    kept = json.loads((reviewed / "labels.json").read_text(encoding="utf-8"))
    assert kept["labels"] == ["bad", "good"]
    assert kept["temperature"] != 1.0


def test_texts_of_another_language_are_refused_unless_allowed(qkv, reviewed):
    assert "are unknown to this run" in qkv.refused("predict", reviewed, "很好很好")
    out, err = qkv("predict", reviewed, "很好很好", "--allow-unk")
    assert out.split("\t")[1].strip() in ("good", "bad")
    assert "unknown tokens: 80.00 %" in err  # of five pieces one, the beginning of a word, is known


def test_words_in_a_file_get_a_tag_each(qkv, tagged, folder, tmp_path):
    qkv("predict", tagged, "--input", folder / "names.conll", "-o", tmp_path / "out.conll")
    said = (tmp_path / "out.conll").read_text(encoding="utf-8")
    given = (folder / "names.conll").read_text(encoding="utf-8")
    assert [line.split()[:1] for line in said.split("\n")[:30]] == [line.split()[:1] for line in given.split("\n")[:30]]
    assert {line.split("\t")[1] for line in said.splitlines() if line} <= {"O", "B-PER", "B-LOC"}


def test_eval_on_another_file_gives_figures_of_each_label_and_each_answer(qkv, reviewed, tagged, folder, tmp_path):
    other = tmp_path / "other.tsv"
    other.write_text("bad\tthe film is dull\ngood\tthe film is warm\nbad\tthe cast is grey\n", encoding="utf-8")
    found = qkv.json("eval", reviewed, "--data", other, "-o", tmp_path / "answers.jsonl")
    assert found["examples"] == 3
    assert {row["label"] for row in found["per_label"]} == {"good", "bad"}
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert answers == found["answers"]
    assert [one["labels"] for one in answers] == [["bad"], ["good"], ["bad"]]
    other.write_text("awful\tthe film is dull\ngood\tthe film is warm\ngood\tthe hero is warm\n", encoding="utf-8")
    assert "labels that the run does not know: 'awful' (line 1)" in qkv.refused("eval", reviewed, "--data", other)
    out, _ = qkv("eval", tagged, "--data", folder / "names.conll")
    assert "entity F1" in out
    assert "PER" in out
    assert "--beam is not for it" in qkv.refused("eval", reviewed, "--beam", "3")


def test_masked_words_are_filled_in(qkv, folder, tmp_path):
    run = tmp_path / "run"
    arguments = ["--task", "masked_lm", "--data.symbols", "words", *SMALL["transformer"], *TINY, "--out", run]
    found = qkv.json("train", folder / "lines.txt", *arguments)
    assert found["perplexity"] > 1
    out, _ = qkv("predict", run, "ana went [MASK] oslo to riga .")
    assert out.split("\t")[1].startswith("ana went ")
    assert "has no [MASK]" in qkv.refused("predict", run, "ana went from oslo")
    assert "perplexity" in qkv.json("eval", run, "--data", folder / "lines.txt")["metrics"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["names.conll", "--model", "cnn"], "the model cnn has no per_token head.*lstm"),
        (["names.conll", "--model", "encoder_decoder"], "has no per_token head"),
        (["reviews.csv", "--task", "classificaton"], "unknown task 'classificaton'.*classification"),
        (["reviews.csv", "--metric", "wer"], "have no such figure.*macro_f1"),
        (["reviews.csv", "--data.label", "lable"], "no column 'lable'"),
        (["lines.txt"], "has one column"),
        (["reviews.csv", "--task", "tagging"], "columns? are expected|has one column"),
    ],
)
def test_what_cannot_be_is_said_and_leaves_nothing(qkv, folder, tmp_path, arguments, message):
    said = qkv.refused("train", folder / arguments[0], *arguments[1:], *TINY, "--out", tmp_path / "run")
    assert re.search(message, said), said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("run", ["reviewed", "tagged"])
def test_shapes_of_such_runs_are_shown(qkv, request, run):
    assert qkv.json("shapes", request.getfixturevalue(run), "--text", "the film")["steps"]
