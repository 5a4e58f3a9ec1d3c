"""The run folder: what training writes and the other verbs read.

config.toml, model.safetensors (best so far), tokenizer.json, target_tokenizer.json, metrics.jsonl, report/. Every file
is written whole under another name and then moved into place, so that a crash leaves the old one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import tomli_w
from torch import nn

from qkv.errors import UserError
from qkv.run.config import read_toml

CONFIG, WEIGHTS, METRICS = "config.toml", "model.safetensors", "metrics.jsonl"

_UNFINISHED = re.compile(
    r"(config\.toml|model\.safetensors|metrics\.jsonl|checkpoint(\.previous)?\.pt|(target_)?tokenizer\.json|labels\.json)?\.\d+\.part"
)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to; moved onto `path` when the block ends well, removed when not.

    Raises UserError naming the path when the disk is full, read-only or otherwise refuses.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())  # or a power cut could leave the new name on an empty file
        part.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}. What was there before is intact") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def unfinished(path: Path) -> bool:
    """Whether `path` is what a process that was killed while it wrote a run left behind."""
    return bool(_UNFINISHED.fullmatch(path.name))


def typed_path(path: Path) -> str:
    """`path` as it is typed in a shell: in quotes where it has a space."""
    return f'"{path}"' if " " in str(path) else str(path)


def make_folder(folder: Path) -> None:
    """Creates the folder and checks that it can be written, before any work is done. UserError when not."""
    if folder.exists() and not folder.is_dir():
        raise UserError(
            f"cannot write to {folder}: it is a file, and a run needs a folder. Choose another place with --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}.part"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror or error}. Choose another place with --out"
        ) from None


def sweep(folder: Path) -> None:
    """Removes what killed processes left in a run folder."""
    for path in filter(unfinished, folder.iterdir()):
        path.unlink(missing_ok=True)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    with replacing(folder / CONFIG) as part:
        part.write_text(tomli_w.dumps(dict(config)), encoding="utf-8", newline="\n")


def read_config(folder: Path) -> dict[str, Any]:
    """The run's config. Raises UserError saying what a run folder is when `folder` is none."""
    path = folder / CONFIG
    if not path.is_file():
        missing = "does not exist" if not folder.exists() else f"has no {CONFIG}"
        raise UserError(f"{folder} is not a run folder: it {missing}. `qkv train ... --out {folder}` makes one")
    config = read_toml(path)
    for name, table in config.items():
        if name != "qkv" and not isinstance(table, dict):
            raise UserError(f"{path}: {name} must be a table, [{name}]")
    return config


def write_weights(folder: Path, model: nn.Module) -> None:
    """Writes model.safetensors; tensors that are one in the model are written once."""
    with replacing(folder / WEIGHTS) as part:
        size = sum(t.numel() * t.element_size() for t in model.state_dict().values()) / 1e6
        _guard_os(lambda: safetensors.torch.save_model(model, str(part)), f" (about {size:.0f} MB are needed)")
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)  # safetensors makes files that nobody else can read


def read_weights(folder: Path, model: nn.Module) -> None:
    """Loads model.safetensors into `model`. Raises UserError when it is missing, damaged or of another model."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise UserError(f"{folder} has no {WEIGHTS}: the run was stopped before its first evaluation, or damaged")
    try:
        safetensors.torch.load_model(model, str(path))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}): train again, or copy the file again") from None
    except RuntimeError as error:
        raise UserError(f"{path} does not fit the model of {folder / CONFIG}: {error}") from None


def append_events(folder: Path, events: list[dict[str, Any]]) -> None:
    """Adds lines to metrics.jsonl."""
    text = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
    try:
        with (folder / METRICS).open("a", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"cannot write {folder / METRICS}: {error.strerror or error}") from None


def is_finished(folder: Path) -> bool:
    """Whether the run in a folder has been trained to its end and scored."""
    return any(event["event"] == "end" for event in read_events(folder))


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, up to the first that is no event: a crash may have cut the last one."""
    path = folder / METRICS
    if not path.is_file():
        return []
    events: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            break
        if not isinstance(event, dict) or not {"event", "step"} <= event.keys():
            break
        events.append(event)
    return events


def keep_events(folder: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrites metrics.jsonl with the events for which `keep` is true."""
    kept = [event for event in read_events(folder) if keep(event)]
    with replacing(folder / METRICS) as part:
        part.write_text("".join(json.dumps(e, ensure_ascii=False) + "\n" for e in kept), encoding="utf-8", newline="\n")


def _guard_os(write: Callable[[], None], needed: str) -> None:
    # safetensors reports a full disk as its own error; for `replacing` it is an OSError like any other.
    try:
        write()
    except safetensors.SafetensorError as error:
        raise OSError(f"{error}{needed}") from error
