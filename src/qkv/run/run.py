"""A trained model with what is needed to use it: what the verbs pass around."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from qkv.errors import UserError, nearest
from qkv.models import registry as models
from qkv.run import folder as files
from qkv.run.config import typed
from qkv.tasks import registry as tasks
from qkv.tasks.prediction import Prediction
from qkv.tasks.seq2seq import Seq2Seq


@dataclass(frozen=True)
class Run:
    """`folder` it lives in, `config` as in config.toml, `model` in eval mode, `task` that collates and decodes."""

    folder: Path
    config: dict[str, Any]
    model: nn.Module = field(repr=False)
    task: Any = field(repr=False)

    def predict(
        self, texts: Sequence[str], *, advance: Callable[[int], None] | None = None, **options: Any
    ) -> list[Prediction]:
        """One Prediction for each text, in order. `options` are those of the task's own `predict`.

        Of seq2seq: beam, length_penalty (by default the run's own) and n_best. Symbols unseen in training are listed in
        each Prediction's `unknown`. Raises UserError for an empty text, for an option that the task does not have, and
        for settings that cannot be (n_best larger than beam).
        """
        if isinstance(texts, str):
            raise UserError("predict takes a list of texts: predict([text])")
        known = tasks.options_of(self.task)
        for name in options:
            if name not in known:
                has = f"has {', '.join(known)}" if known else "has none"
                raise UserError(f"the task {self.task.name} has no option {name!r}.{nearest(name, known)} It {has}")
        self.model.eval()
        return self.task.predict(self.model, texts, advance=advance, **options)

    def events(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return files.read_events(self.folder)

    def metrics(self) -> dict[str, float]:
        """The test metrics by name, empty while the run is unfinished."""
        ends = [event for event in self.events() if event["event"] == "end"]
        return dict(ends[-1]["test"]) if ends else {}


def build_model(config: Mapping[str, Any], sizes: Mapping[str, int], head: str = Seq2Seq.head) -> nn.Module:
    """The model of a [model] table, whose `name` is an architecture, with the head and the sizes of a task.

    Raises UserError for a setting that cannot be, and for a head that the architecture does not carry.
    """
    settings = dict(config)
    entry = models.find(str(settings.pop("name", "")))
    try:
        return entry.build(head, typed(entry.config, settings, "model"), **sizes)
    except ValueError as error:
        raise UserError(f"model: {error}") from None


def load(run: str | Path, device: str = "cpu") -> Run:
    """The run in a folder. Raises UserError for a folder that is none or is damaged, saying which file."""
    folder = Path(run)
    config = files.read_config(folder)
    for table in ("model", "task"):
        if table not in config:
            raise UserError(f"{folder / files.CONFIG} has no [{table}] table: it is damaged or not a run's config")
    task = tasks.load(task_config(config["task"]), folder)
    model = build_model(config["model"], task.sizes, task.head)
    files.read_weights(folder, model)
    return Run(folder, config, model.to(resolve_device(device)).eval(), task)


def task_config(table: Mapping[str, Any]) -> Any:
    """The settings of a [task] table, whose `name` is a task. UserError for a setting that cannot be."""
    settings = dict(table)
    entry = tasks.find(str(settings.pop("name", Seq2Seq.name)))
    return typed(entry.config, settings, "task")


def resolve_device(name: str) -> torch.device:
    """auto (cuda, else mps, else cpu), cpu, cuda, cuda:N or mps. UserError when the machine has no such device."""
    available = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available, "cpu": lambda: True}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind]())
    kind = name.split(":")[0]
    if kind not in available or not re.fullmatch(r"[a-z]+(:\d+)?", name):
        raise UserError(f"unknown device {name!r}.{nearest(name, available)} Use auto, cpu, cuda, cuda:N or mps")
    if not available[kind]():
        raise UserError(f"this machine has no usable {kind} device: use --device auto or --device cpu")
    device = torch.device(name)
    if kind == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"there is no device {name!r}: this machine has {torch.cuda.device_count()}, from cuda:0 on")
    return device
