"""The run folder's files: whole or as before, and errors that name the file."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from qkv.errors import UserError
from qkv.run import folder as files


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_moved_into_place_when_it_is_whole(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old", encoding="utf-8")
    with files.replacing(path) as part:
        part.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
    assert path.read_text(encoding="utf-8") == "new"
    assert names(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), RuntimeError("other"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, fault):
    path = tmp_path / "out.txt"
    path.write_text("old", encoding="utf-8")

    def write():
        with files.replacing(path) as part:
            part.write_text("half", encoding="utf-8")
            raise fault

    wanted = UserError if isinstance(fault, OSError) else type(fault)
    with pytest.raises(wanted) as raised:
        write()
    if wanted is UserError:
        assert str(raised.value).startswith(f"cannot write {path}: No space left on device. What was there before")
    assert path.read_text(encoding="utf-8") == "old"
    assert names(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_folder_that_cannot_be_made_is_said(tmp_path, below):
    in_the_way = tmp_path / "in the way"
    in_the_way.write_text("a file", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot write to .*in the way.*Choose another place with --out"):
        files.make_folder(in_the_way / below)
    assert in_the_way.read_text(encoding="utf-8") == "a file"


def test_a_folder_is_made_with_its_parents_and_left_empty(tmp_path):
    files.make_folder(tmp_path / "一" / "two")
    files.make_folder(tmp_path / "一" / "two")
    assert list((tmp_path / "一" / "two").iterdir()) == []


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    (tmp_path / "model.safetensors.123.part").write_bytes(b"half")
    (tmp_path / ".77.part").write_bytes(b"")
    others = ["a.part.txt", "config.toml", "film.001.part", "film.part"]
    for other in others:
        (tmp_path / other).write_bytes(b"")
    files.make_folder(tmp_path)
    assert len(names(tmp_path)) == 6
    files.sweep(tmp_path)
    assert names(tmp_path) == others


def test_the_config_is_read_as_it_was_written(tmp_path):
    config = {"qkv": "0", "model": {"name": "ü", "lr": 1e-05, "deep": False}, "training": {"steps": 3}}
    files.write_config(tmp_path, config)
    assert files.read_config(tmp_path) == config


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"is not a run folder: it has no config.toml. `qkv train ... --out .*` makes one"),
        (b"[model]\nname = \n", r"config.toml is not valid TOML: .*line 2"),
        (b"\x00\xff", r"config.toml is not valid TOML"),
        (b"model = 3\n", r"config.toml: model must be a table, \[model\]"),
        (b"[model]\n[task]\n[training]\ndata = 1\n[[data]]\n", r"config.toml: data must be a table"),
    ],
)
def test_a_damaged_config_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(UserError, match=message):
        files.read_config(tmp_path)


def test_a_missing_folder_is_no_run_folder(tmp_path):
    with pytest.raises(UserError, match="nowhere is not a run folder: it does not exist"):
        files.read_config(tmp_path / "nowhere")


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self, width=3):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)
        self.b.weight = self.a.weight


def test_weights_come_back_bit_for_bit_and_tied_ones_stay_tied(tmp_path):
    model, other = Tied(), Tied()
    files.write_weights(tmp_path, model)
    files.read_weights(tmp_path, other)
    assert other.b.weight is other.a.weight
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert (tmp_path / "model.safetensors").stat().st_size < 2 * 4 * (9 + 3 + 3) + 400


def test_damaged_or_foreign_weights_are_named(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(UserError, match=r"has no model.safetensors: the run was stopped before its first evaluation"):
        files.read_weights(tmp_path, Tied())
    files.write_weights(tmp_path, Tied())
    whole = path.read_bytes()
    for damaged in (b"", b"rubbish", whole[:-4], whole[: len(whole) // 2], whole + b"more", b"\xff" * len(whole)):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"model.safetensors is damaged \("):
            files.read_weights(tmp_path, Tied())
    files.write_weights(tmp_path, Tied(width=4))
    with pytest.raises(UserError, match=r"(?s)model.safetensors does not fit .*config.toml.*size mismatch"):
        files.read_weights(tmp_path, Tied())
    files.write_weights(tmp_path, nn.Linear(3, 3))
    with pytest.raises(UserError, match=r"(?s)does not fit the model.*Missing key"):
        files.read_weights(tmp_path, Tied())


EVENTS = [{"event": "train", "step": step, "loss": 0.5} for step in range(1, 5)]


def test_events_are_lines_of_json_added_at_the_end(tmp_path):
    files.append_events(tmp_path, EVENTS[:2])
    files.append_events(tmp_path, EVENTS[2:])
    assert files.read_events(tmp_path) == EVENTS
    lines = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == EVENTS
    files.keep_events(tmp_path, lambda event: event["step"] <= 2)
    assert files.read_events(tmp_path) == EVENTS[:2]


@pytest.mark.parametrize("cut", [b'{"event": "tr', b"\xff\xfe\n", b"3\n", b"null\n", b"{}\n", b"\x00" * 40])
def test_a_last_line_cut_by_a_crash_is_left_out_and_not_built_upon(tmp_path, cut):
    files.append_events(tmp_path, EVENTS[:2])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(cut)
    assert files.read_events(tmp_path) == EVENTS[:2]
    files.keep_events(tmp_path, lambda event: True)
    files.append_events(tmp_path, EVENTS[2:])
    assert files.read_events(tmp_path) == EVENTS


def test_no_events_are_an_empty_list(tmp_path):
    assert files.read_events(tmp_path) == []


FULL_DISK = """
import resource, sys
from pathlib import Path
import torch
from qkv.errors import UserError
from qkv.run import folder as files

folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
writes = {
    "model.safetensors": lambda: files.write_weights(folder, torch.nn.Linear(100, 100)),
    "config.toml": lambda: files.write_config(folder, {"model": {"name": "x" * 9000}}),
    "metrics.jsonl": lambda: files.append_events(folder, [{"event": "train", "step": 1}] * 1000),
}
for name, write in writes.items():
    try:
        write()
    except UserError as error:
        assert str(error).startswith(f"cannot write {folder / name}: "), error
    else:
        raise AssertionError(name)
print(len(files.read_events(folder)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of a file")
@pytest.mark.slow
def test_a_full_disk_is_said_and_what_was_there_stays(tmp_path):
    files.write_weights(tmp_path, nn.Linear(2, 2))
    files.write_config(tmp_path, {"qkv": "old"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1000
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.pop("metrics.jsonl")
    assert after == before
