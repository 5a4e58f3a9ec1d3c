"""A checkpoint holds all that the numbers depend on, replaces the last one whole, and says when it is damaged."""

import random
import subprocess
import sys

import pytest
import torch
from torch import nn

from qkv.errors import UserError
from qkv.training import checkpoint
from qkv.training.average import Average
from qkv.training.config import TrainingConfig
from qkv.training.loop import Loop
from qkv.training.precision import Precision
from qkv.training.state import Progressed


class Noise:
    """A task without data."""

    def lengths(self, items):
        return []


def loop(seed=0, model=None, **progressed):
    torch.manual_seed(seed)
    model = model or nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 3))
    made = Loop(model, Noise(), [], TrainingConfig(lr=0.1), Precision(torch.float32, ""), 9)
    made.average = Average(model, 0.9)
    made.progressed = Progressed(**progressed)
    return made


def step(made):
    loss = made.model(torch.randn(4, 3)).square().mean()
    loss.backward()
    made.optimiser.step()
    made.optimiser.zero_grad()
    made.progressed.step += 1
    made.average.update(made.progressed.step)
    return float(loss.detach())


def load(folder, into=None):
    """What is loaded, None when nothing is there."""
    into = into or loop(seed=9)
    return into.progressed if checkpoint.load(folder, into.restore) else None


def test_a_restored_run_goes_on_with_the_same_numbers(tmp_path):
    done = Progressed(step=0, epoch=1, batch=2, tokens=77, seconds=1.5, best=12.5, best_step=2, evaluated=3, stale=4)
    made = loop(**vars(done))
    for _ in range(3):
        step(made)
    done.step = 3
    checkpoint.save(tmp_path, made.state())
    wanted = [step(made) for _ in range(3)]
    other = loop(seed=9)
    assert load(tmp_path, other) == done
    assert [step(other) for _ in range(3)] == wanted
    assert all(torch.equal(a, b) for a, b in zip(made.model.parameters(), other.model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(made.average.values, other.average.values, strict=True))


def test_a_run_before_its_first_evaluation_has_no_best_yet(tmp_path):
    checkpoint.save(tmp_path, loop(step=1).state())
    assert load(tmp_path).best is None


def test_no_checkpoint_is_none(tmp_path):
    assert load(tmp_path) is None


def damaged_copies(whole):
    yield from (b"", b"PK", b"rubbish" * 40, b"\x80\x02}q\x00.", whole[:-1], whole[: len(whole) // 2], whole[40:])
    draw = random.Random(0)
    for _ in range(40):
        start = draw.randrange(len(whole))
        yield whole[:start] + draw.randbytes(60) + whole[start + 60 :]


def test_a_damaged_checkpoint_is_named_or_harmless_and_never_a_crash(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(tmp_path, loop(step=3).state())
    said = []
    for content in damaged_copies(path.read_bytes()):
        path.write_bytes(content)
        try:
            load(tmp_path)
        except UserError as error:
            said.append(str(error))
    assert len(said) > 7
    assert all(
        line.startswith(f"{path} is damaged (") and "delete checkpoint.pt to begin anew" in line for line in said
    )


@pytest.mark.parametrize(
    "content",
    [3, [], {}, {"model": {}, "optimiser": {}, "progressed": {}, "random": {}}, torch.ones(2), "checkpoint"],
)
def test_a_file_of_something_else_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match=r"checkpoint.pt is damaged \(.+\)"):
        load(tmp_path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    checkpoint.save(tmp_path, loop(step=3).state())
    with pytest.raises(UserError, match=r"checkpoint.pt is damaged"):
        load(tmp_path, loop(model=nn.Linear(3, 3)))


def test_no_code_in_a_checkpoint_is_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("sprung").mkdir, ())

    torch.save({"model": Trap()}, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match="checkpoint.pt is damaged"):
        load(tmp_path)
    assert not (tmp_path / "sprung").exists()


FULL_DISK = """
import resource, sys
from pathlib import Path
import torch
from qkv.errors import UserError
from qkv.training import checkpoint

state = {"model": torch.nn.Linear(300, 300).state_dict()}
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    checkpoint.save(Path(sys.argv[1]), state)
except UserError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of a file")
@pytest.mark.slow
def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path):
    checkpoint.save(tmp_path, loop(step=3).state())
    before = (tmp_path / "checkpoint.pt").read_bytes()
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"cannot write {tmp_path / 'checkpoint.pt'}: ")
    assert "What was there before is intact" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert load(tmp_path).step == 3


def test_the_checkpoint_before_is_taken_when_the_newest_is_damaged(tmp_path, caplog):
    for number in (11, 22):
        checkpoint.save(tmp_path, loop(step=number).state())
    newest = tmp_path / checkpoint.FILE
    for content in (newest.read_bytes()[: newest.stat().st_size // 2], b""):
        newest.write_bytes(content)
        assert load(tmp_path).step == 11
        assert "is damaged" in caplog.text
        assert "Going on from checkpoint.previous.pt" in caplog.text
    (tmp_path / checkpoint.PREVIOUS).write_bytes(b"")
    with pytest.raises(UserError, match="is damaged"):
        load(tmp_path)
