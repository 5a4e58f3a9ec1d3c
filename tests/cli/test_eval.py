"""`qkv eval`: the same figures as training ends with, what is wrong with a file, and where a run is weak."""

import json
import shutil

import pytest

from qkv.data.files.table import read_table
from qkv.data.pair_file import grouped, rows_of
from qkv.run.folder import read_config, write_config
from qkv.run.run import load
from qkv.training.train import train

SOURCES = ["baba", "gige", "muno", "de", "kake", "gubdo", "bebi", "nono", "kiki", "bagidu", "né"]
TINY = {
    "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "steps": 80, "warmup": 5, "lr": 3e-3,
    "batch_tokens": 512, "evaluations": 1, "beam": 2, "precision": "float32",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that has read enough to answer each source with something."""
    folder = tmp_path_factory.mktemp("eval")
    rows = [f"{a}{v}{b}{w}\t{a.upper()} {v} {b} {w}" for a in "bdgkmn" for v in "aeiou" for b in "bdg" for w in "eio"]
    (folder / "words.tsv").write_text("\n".join(rows), encoding="utf-8")
    return train(str(folder / "words.tsv"), symbols="spaces", out=folder / "run", listeners=[], **TINY).folder


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of it, to be changed."""
    return shutil.copytree(trained, tmp_path / "copied run")


@pytest.fixture(scope="module")
def said(trained):
    """What the run says to each source."""
    found = {p.text: p.output for p in load(trained).predict(SOURCES)}
    assert all(found.values())
    return found


@pytest.fixture
def file(tmp_path, said):
    """Pairs of which the run has the first six right, with two rows that cannot be used and one that is there twice."""
    rows = [(source, said[source] if place < 6 else "B Q") for place, source in enumerate(SOURCES)]
    rows += [("baba", "K a"), ("gige", said["gige"]), ("", "A"), ("nothing", " ")]
    path = tmp_path / "对 1.csv"
    path.write_text("word,id,phonemes\n" + "".join(f"{a},7,{b}\n" for a, b in rows), encoding="utf-8")
    return path


def test_the_run_s_own_test_split_gives_the_figures_that_training_ended_with(qkv, words, finished_run):
    run = load(finished_run)
    found = qkv.json("eval", finished_run)
    assert found["metrics"] == pytest.approx(run.metrics())
    assert found["data"] == "the test split of words, the run's own data"
    assert found["examples"] == len(found["answers"]) == run.events()[-1]["test_examples"]
    out, err = qkv("eval", finished_run)
    assert f"evaluating on the test split of words, the run's own data: {found['examples']} examples" in err
    assert f"wer          {run.metrics()['wer']:6.2f} % outputs that equal no reference (95 % interval" in out


def test_own_pairs_are_read_again_from_their_file(qkv, trained):
    found = qkv.json("eval", trained)
    assert found["metrics"] == pytest.approx(load(trained).metrics())
    assert found["data"] == f"the test split of {trained.parent / 'words.tsv'}, the run's own data"
    assert any(note.startswith("Split by a hash of the source") for note in found["notes"])


def test_figures_of_a_file_are_those_of_the_task(qkv, trained, file):
    run = load(trained)
    found = qkv.json("eval", trained, "--data", file, "--beam", "1")
    examples, _ = grouped(rows_of(read_table(file), "word", "phonemes", "none").rows)
    assert found["metrics"] == run.task.evaluate(run.model, examples, beam=1)
    assert (found["data"], found["examples"], found["beam"]) == (file.name, 11, 1)


def test_every_answer_is_told_and_written(qkv, trained, file, said, tmp_path):
    out = tmp_path / "answers.jsonl"
    found = qkv.json("eval", trained, "--data", file, "-o", out)
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert written == found["answers"]
    assert [row["source"] for row in written] == SOURCES
    assert [row["output"] for row in written] == list(said.values())
    assert written[0]["targets"] == [said["baba"], "K a"]
    assert [row["right"] for row in written] == [True] * 6 + [False] * 5
    assert [row["distance"] == 0 for row in written] == [row["right"] for row in written]
    assert set(written[0]) == {"source", "targets", "output", "right", "distance"}
    assert found["metrics"]["wer"] == pytest.approx(100 * 5 / 11)


def test_what_cannot_be_used_or_was_never_seen_is_counted_and_said(qkv, trained, file):
    found = qkv.json("eval", trained, "--data", file)
    assert found["left_out"] == [
        {"line": 15, "reason": "source is empty"}, {"line": 16, "reason": "target is empty"}
    ]  # fmt: skip
    assert found["unseen"] == {"source": {"é": 1}, "target": {"Q": 5}}
    assert found["counts"] == {"unseen": 1, "too_long": 0, "unwritable": 5}
    out, _ = qkv("eval", trained, "--data", file)
    for said in ("left out: 2 rows", "note: Left out, source is empty: line 15.", "1 of 13 rows say again",
                 "1 of 11 sources hold symbols unseen in training: 'é' (U+00E9) in 1. Their outputs are a guess",
                 "targets hold symbols that the run cannot write: 'Q' (U+0051) in 5",
                 "5 of 11 examples cannot come out right"):  # fmt: skip
        assert said in out, out


def test_slices_add_up_and_small_ones_are_marked(qkv, trained, file):
    found = qkv.json("eval", trained, "--data", file)
    slices = {(one["by"], one["name"]): one for one in found["slices"]}
    assert list(slices) == [
        ("source length", "2 to 4"), ("source length", "5 to 6"), ("symbols of the source", "all seen in training"),
        ("symbols of the source", "some unseen in training"), ("right targets", "1"), ("right targets", "2"),
    ]  # fmt: skip
    for by in {by for by, _ in slices}:
        parts = [one for one in found["slices"] if one["by"] == by]
        assert sum(one["examples"] for one in parts) == 11
        wrong = sum(one["examples"] * one["metrics"]["wer"] for one in parts)
        assert wrong / 11 == pytest.approx(found["metrics"]["wer"])
        assert all(one["small"] for one in parts)
    assert slices["right targets", "2"]["metrics"]["wer"] == 0.0
    assert slices["symbols of the source", "some unseen in training"]["metrics"]["wer"] == 100.0
    assert qkv("eval", trained, "--data", file)[0].count("too small to judge") == 6


def test_a_slice_of_twenty_is_judged_and_one_that_is_the_whole_is_left_out(qkv, trained, tmp_path):
    path = tmp_path / "many.tsv"
    path.write_text("".join(f"{a}{b}ba\tA\n" for a in "bdgk" for b in "aeiou"), encoding="utf-8")
    assert qkv.json("eval", trained, "--data", path)["slices"] == []
    with path.open("a", encoding="utf-8") as more:
        more.write("né\tA\n")
    assert [one["small"] for one in qkv.json("eval", trained, "--data", path)["slices"]] == [False, True]


def test_recall_of_several_answers_rises_with_their_number(qkv, trained, file):
    found = qkv.json("eval", trained, "--data", file, "--beam", "4", "--nbest", "3")
    recall = list(found["recall"].values())
    assert list(found["recall"]) == ["recall@1", "recall@2", "recall@3"]
    assert recall == sorted(recall)
    assert recall[0] <= 100 - found["metrics"]["wer"]
    assert all(row["n_best"][0] == row["output"] and len(row["n_best"]) == 3 for row in found["answers"])
    one = qkv.json("eval", trained, "--data", file, "--beam", "4")
    assert one["metrics"] == pytest.approx(found["metrics"])
    assert one["recall"] == {}
    assert "recall@3" in qkv("eval", trained, "--data", file, "--beam", "4", "--nbest", "3")[0]


def test_columns_files_and_normalisation_are_as_asked_or_as_trained(qkv, copied, file, tmp_path):
    wanted = qkv.json("eval", copied, "--data", file)["metrics"]
    for names in (["--source", "word", "--target", "3"], ["--data.source", "1", "--data.target", "phonemes"]):
        assert qkv.json("eval", copied, "--data", file, *names)["metrics"] == wanted
    mixed = file.read_bytes().decode("utf-8").replace("é", "e\u0301")
    file.write_text(mixed, encoding="utf-16")
    config = read_config(copied)
    write_config(copied, {**config, "data": {**config["data"], "normalise": "NFC", "longest": 5}})
    found = qkv.json("eval", copied, "--data", file)
    assert found["metrics"] == wanted
    assert found["counts"] == {"unseen": 1, "too_long": 1, "unwritable": 5}
    out, _ = qkv("eval", copied, "--data", file)
    assert "1 of 11 sources are longer than 5 symbols, the most that the run was trained on" in out
    said = file.read_text(encoding="utf-16").replace("B Q", "B Q|K a").replace(",", ";")
    file.write_text(said, encoding="utf-8")
    slices = qkv.json("eval", copied, "--data", file, "--separator", "semicolon", "--variants", "|")["slices"]
    assert ("right targets", "2", 6) in [(one["by"], one["name"], one["examples"]) for one in slices]
    for name, column in (("a.src", 0), ("a.tgt", 2)):
        lines = [line.split(",")[column] for line in mixed.splitlines()[1:-2]]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    sides = ["--source", tmp_path / "a.src", "--target", tmp_path / "a.tgt"]
    assert qkv.json("eval", copied, *sides)["metrics"] == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere.tsv"], "there is no file nowhere.tsv"),
        (["--data", "FILE", "--source", "wrd"], "has no column 'wrd'. Did you mean 'word'? Columns: 'word', 'id', 'ph"),
        (["--data", "FILE", "--target", "4"], "has 3 columns: --data.target 4 is none of them"),
        (["--data", "FILE", "--source", "phonemes", "--target", "3"], "source and target are both column 3"),
        (["--data", "FILE", "--nbest", "3"], "n_best must be from 1 to beam (2), got 3"),
        (["--data", "FILE", "--beam", "0"], "beam must be 1 (greedy) or more hypotheses, got 0"),
        (["--data", "FILE", "--encoding", "utf-9"], "unknown encoding 'utf-9'"),
        (["--data", "FILE", "-o", "nowhere/out.jsonl"], "cannot write nowhere/out.jsonl: there is no folder nowhere"),
        (["--data", "FILE", "-o", "."], "cannot write .: it is a folder"),
        (["--data", "FILE", "-o", "FILE"], "would write over the data"),
        (["--source", "word"], "--source and --target are columns of --data FILE, or together two text files"),
        (["--header", "true"], "--header tells how a file is read: give it with --data FILE"),
        (["--source", "a", "--target", "b", "--header", "true"], "two text files have no columns: --header"),
    ],
)
def test_mistakes(qkv, trained, file, arguments, message):
    before = file.read_bytes()
    given = [str(file) if argument == "FILE" else argument for argument in arguments]
    assert message in refused(qkv, trained, *given)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def refused(qkv, *arguments):
    """The message of bad input; what is read may have been said before it."""
    out, err = qkv("eval", *arguments, code=2)
    assert out == ""
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("word,sound\n", "no rows"),
        ("word,sound\n,\nba,\n", "no row with both a source and a target"),
        ("word\nba\n", "has one column"),
        ("word,sound\nba,B A\nde\n", "line 3"),
    ],
)
def test_files_that_hold_no_pairs(qkv, trained, tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_text(content, encoding="utf-8")
    found = refused(qkv, trained, "--data", path)
    assert message in found
    assert "bad.csv" in found


def test_a_folder_that_is_no_run(qkv, tmp_path, file):
    assert "is not a run folder: it does not exist" in refused(qkv, tmp_path / "nowhere", "--data", file)
    assert "is not a run folder: it has no config.toml" in refused(qkv, tmp_path, "--data", file)


def test_a_run_whose_data_are_gone_or_others_needs_a_file(qkv, copied):
    config = read_config(copied)
    changed = {**config["data"], "fingerprint": "0" * 64}
    write_config(copied, {**config, "data": changed})
    message = refused(qkv, copied)
    assert f"have changed since (fingerprint {'0' * 64} then, " in message
    assert "Give --data FILE" in message
    for data, why in (
        ({"name": "cmudikt"}, "there is no data set 'cmudikt'"),
        ({"name": "pairs", "train": "gone.csv"}, "there is no file gone.csv"),
        ({"name": "pairs", "train": "gone.csv", "colour": 1}, "data has no setting 'colour'"),
    ):
        write_config(copied, {**config, "data": data})
        message = refused(qkv, copied)
        assert "was trained on cannot be read: give --data FILE" in message
        assert why in message
