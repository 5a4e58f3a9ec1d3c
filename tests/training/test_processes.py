"""Several processes train as one: the same numbers, one writer, and none waits for ever."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import safetensors.torch
import torch

from qkv.errors import UserError
from qkv.run.folder import read_events
from qkv.training import memory
from qkv.training.events import Listener
from qkv.training.processes import Processes, is_first, joined

several = pytest.mark.skipif(
    sys.platform == "win32" or not torch.distributed.is_available(), reason="torchrun cannot connect processes here"
)


def losses(folder):
    return {event["step"]: event["loss"] for event in read_events(folder) if event["event"] == "train"}


def scores(folder):
    return [event.get("metrics") or event["test"] for event in read_events(folder) if event["event"] in SCORED]


SCORED = ("evaluation", "end")


def weights(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def same_weights(a, b, atol):
    a, b = weights(a), weights(b)
    assert a.keys() == b.keys()
    # A bias of the keys adds the same to all scores of a row: its gradient is rounding, which Adam makes steps of.
    told = [name for name in a if atol == 0.0 or not name.endswith("key.bias")]
    far = [name for name in told if not torch.allclose(a[name], b[name], atol=atol, rtol=0.0)]
    assert not far


@pytest.fixture(scope="module")
def long_settings():
    return {"dropout": 0.0, "steps": 200, "evaluations": 2, "lr": 1e-3}


@several
@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "changes"),
    [
        (2, {}),
        (3, {"accumulate": 2}),
        (2, {"fsdp": "true"}),
        (2, {"fsdp": "true", "accumulate": 2, "gradient_checkpointing": "true", "ema": 0.99}),
    ],
)
def test_several_processes_equal_one_over_200_steps(words, tmp_path, long_settings, processes, changes):
    plain = {name: value for name, value in changes.items() if name in ("accumulate", "ema")}
    words.run("train", "--out", tmp_path / "one", *words.arguments(**long_settings, **plain))
    out, err = words.run(
        "train", "--out", tmp_path / "several", "--json", *words.arguments(**long_settings, **changes),
        processes=processes,
    )  # fmt: skip
    one, others = losses(tmp_path / "one"), losses(tmp_path / "several")
    assert list(others) == list(range(1, 201))
    assert max(abs(one[step] - others[step]) for step in one) < 1e-4
    same_weights(tmp_path / "one", tmp_path / "several", 1e-4)
    assert scores(tmp_path / "several") == [pytest.approx(figures, abs=1e-4) for figures in scores(tmp_path / "one")]
    digests = [[e["batches"] for e in read_events(tmp_path / n) if e["event"] == "train"] for n in ("one", "several")]
    assert digests[0] == digests[1]
    assert json.loads(out)["per"] == pytest.approx(scores(tmp_path / "one")[-1]["per"])  # one object: one process spoke
    assert f"training on {processes} processes, cpu, in float32" in err
    assert err.count("scoring") == 1


@several
@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
def test_fewer_rows_than_processes_hang_nobody(words, tmp_path, rows):
    file = tmp_path / "few.tsv"
    file.write_text("word\tsound\n" + "".join(f"{'ab' * n}\tA B\n" for n in range(1, rows + 1)), encoding="utf-8")
    for part in ("dev", "test"):
        (tmp_path / f"{part}.tsv").write_text("word\tsound\nab\tA B\n", encoding="utf-8")
    settings = words.arguments(data=None, steps=4, dropout=0.0)
    given = [part for name in ("dev", "test") for part in (f"--data.{name}", tmp_path / f"{name}.tsv")]
    found = []
    for processes in (1, 3):
        out = tmp_path / str(processes)
        words.run("train", file, *given, "--out", out, *settings, processes=processes)
        found.append((losses(out), scores(out)))
    assert found[1][0] == pytest.approx(found[0][0], abs=1e-5)
    assert found[1][1] == [pytest.approx(figures, abs=1e-4) for figures in found[0][1]]


@several
@pytest.mark.slow
@pytest.mark.parametrize("fsdp", ["false", "true"])
def test_a_run_of_two_processes_stops_and_goes_on_to_the_same_numbers(words, tmp_path, fsdp):
    settings = words.arguments(steps=150, evaluations=3, dropout=0.1, fsdp=fsdp)
    words.run("train", "--out", tmp_path / "whole", *settings, processes=2)
    process = words.start("train", "--out", tmp_path / "parts", *settings, processes=2)
    metrics = tmp_path / "parts" / "metrics.jsonl"
    while not (metrics.exists() and '"step": 40,' in metrics.read_text(encoding="utf-8")):
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=25)
    assert "of 150 and saved; the same command goes on from there" in err
    reached = max(losses(tmp_path / "parts"))
    _, err = words.run("train", "--out", tmp_path / "parts", *settings, processes=2)
    assert f"going on from step {reached} of 150" in err
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert scores(tmp_path / "parts") == scores(tmp_path / "whole")
    same_weights(tmp_path / "parts", tmp_path / "whole", 0.0)


@several
@pytest.mark.slow
def test_another_number_of_processes_goes_on_with_a_run(words, tmp_path):
    from qkv.training.processes import Interrupted
    from qkv.training.train import train

    settings = {**words.settings, "dropout": 0.0, "steps": 60}

    class Stop(Listener):
        def on(self, event):
            if event["event"] == "train" and event["step"] == 25:
                signal.raise_signal(signal.SIGINT)

    train("words", out=tmp_path / "whole", listeners=[], **settings)
    with pytest.raises(Interrupted):
        train("words", out=tmp_path / "parts", listeners=[Stop()], **settings)
    arguments = words.arguments(dropout=0.0, steps=60, fsdp="true")
    _, err = words.run("train", "--out", tmp_path / "parts", *arguments, processes=2)
    assert "saved by 1 processes, going on with 2" in err
    whole, parts = losses(tmp_path / "whole"), losses(tmp_path / "parts")
    assert max(abs(whole[step] - parts[step]) for step in whole) < 1e-4
    same_weights(tmp_path / "parts", tmp_path / "whole", 1e-4)


@several
@pytest.mark.slow
def test_a_mistake_is_said_by_every_process_and_ends_them_all(words, tmp_path):
    process = words.start("train", "--out", tmp_path / "run", *words.arguments(d_model=250, n_heads=8), processes=2)
    out, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "error: " in err
    assert "d_model" in err
    assert out == ""
    assert not (tmp_path / "run").exists()


@several
@pytest.mark.slow
def test_dropout_differs_between_processes_and_costs_nothing(words, tmp_path):
    """The loss after 60 steps, three seeds: one process and two differ by no more than seeds do."""
    means = []
    for processes in (0, 2):
        last = []
        for seed in (1, 2, 3):
            out = tmp_path / f"{processes}-{seed}"
            settings = words.arguments(steps=60, evaluations=1, dropout=0.2, seed=seed)
            words.run("train", "--out", out, *settings, processes=processes)
            last.append(sum(list(losses(out).values())[-20:]) / 20)
        means.append(last)
    spread = max(means[0]) - min(means[0])
    assert abs(sum(means[0]) - sum(means[1])) / 3 < max(spread, 0.05)
    assert means[0] != means[1]


def test_one_process_is_alone():
    with joined("cpu") as together:
        assert (together.rank, together.count, together.first) == (0, 1, True)
        assert together.share([1, 2, 3]) == [1, 2, 3]
        assert together.divide(lambda items: [2 * item for item in items], [1, 2]) == [2, 4]
        assert together.summed(1.5, 2) == [1.5, 2]
        assert together.agreed(lambda: "x") == "x"
        assert together.gathered("x") == ["x"]
    assert is_first()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shares_are_a_partition_of_nearly_equal_parts(count):
    items = list(range(7))
    shares = [Processes(torch.device("cpu"), rank, count).share(items) for rank in range(count)]
    assert sorted(item for share in shares for item in share) == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


CUT = """
import copy
import torch
from qkv.models.encoder_decoder import EncoderDecoderConfig, build
from qkv.training import memory
from qkv.training.average import Average
from qkv.training.processes import joined

with joined("cpu") as together:
    torch.manual_seed(0)
    model = build(EncoderDecoderConfig(16, 2, 32, 1, dropout=0.0), n_source=9, n_target=9).eval()
    plain, doubled = copy.deepcopy(model), copy.deepcopy(model)
    memory.shard(model, together)
    tokens = torch.ones(2, 5, dtype=torch.long)
    average = Average(model, 0.5)
    with torch.no_grad():
        for value in (*average.values, *doubled.parameters()):
            value.mul_(2.0)
        for _ in range(2):
            assert torch.allclose(model(tokens, tokens), plain(tokens, tokens), atol=1e-5)
            with average.in_place():
                assert torch.allclose(model(tokens, tokens), doubled(tokens, tokens), atol=1e-5)
"""


@several
@pytest.mark.slow
def test_a_cut_model_forgets_the_average_it_was_evaluated_with(tmp_path):
    script = tmp_path / "cut.py"
    script.write_text(CUT, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr


def test_a_model_is_cut_among_several_processes_only():
    with pytest.raises(UserError, match="memory.fsdp cuts a model among processes, and here is one"):
        memory.shard(torch.nn.Linear(2, 2), Processes(torch.device("cpu")))


def test_a_model_without_blocks_has_nothing_to_compute_again():
    with pytest.raises(UserError, match="gradient_checkpointing: this model has no blocks"):
        memory.recompute(torch.nn.Linear(2, 2))
