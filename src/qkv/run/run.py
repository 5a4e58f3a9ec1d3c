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
from qkv.models import registry
from qkv.run import folder as files
from qkv.run.config import typed
from qkv.tasks.seq2seq import Prediction, Seq2Seq, Seq2SeqConfig


@dataclass(frozen=True)
class Run:
    """`folder` it lives in, `config` as in config.toml, `model` in eval mode, `task` that collates and decodes."""

    folder: Path
    config: dict[str, Any]
    model: nn.Module = field(repr=False)
    task: Seq2Seq = field(repr=False)

    def predict(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        advance: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """One Prediction for each text, in order; `beam` and `length_penalty` default to the run's own.

        Symbols unseen in training are listed in each Prediction's `unknown`. Raises UserError for an empty text and
        for settings that cannot be (n_best larger than beam).
        """
        if isinstance(texts, str):
            raise UserError("predict takes a list of texts: predict([text])")
        self.model.eval()
        return self.task.predict(
            self.model,
            texts,
            beam=beam,
            length_penalty=length_penalty,
            n_best=n_best,
            advance=advance,
        )

    def events(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return files.read_events(self.folder)

    def metrics(self) -> dict[str, float]:
        """The test metrics by name, empty while the run is unfinished."""
        ends = [event for event in self.events() if event["event"] == "end"]
        return dict(ends[-1]["test"]) if ends else {}


def build_model(config: Mapping[str, Any], sizes: Mapping[str, int]) -> nn.Module:
    """The model of a [model] table, whose `name` is an architecture. UserError for a setting that cannot be."""
    settings = dict(config)
    entry = registry.find(str(settings.pop("name", "")))
    try:
        return entry.build(typed(entry.config, settings, "model"), **sizes)
    except ValueError as error:
        raise UserError(f"model: {error}") from None


def load(run: str | Path, device: str = "cpu") -> Run:
    """The run in a folder. Raises UserError for a folder that is none or is damaged, saying which file."""
    folder = Path(run)
    config = files.read_config(folder)
    for table in ("model", "task"):
        if table not in config:
            raise UserError(f"{folder / files.CONFIG} has no [{table}] table: it is damaged or not a run's config")
    task = Seq2Seq.load(folder, task_config(config["task"]))
    model = build_model(config["model"], task.sizes)
    files.read_weights(folder, model)
    return Run(folder, config, model.to(resolve_device(device)).eval(), task)


def task_config(table: Mapping[str, Any]) -> Seq2SeqConfig:
    """The config of a [task] table, whose `name` is a task. UserError for a setting that cannot be."""
    settings = dict(table)
    name = settings.pop("name", Seq2Seq.name)
    if name != Seq2Seq.name:
        raise UserError(f"unknown task {name!r}.{nearest(str(name), [Seq2Seq.name])} Known tasks: {Seq2Seq.name}")
    return typed(Seq2SeqConfig, settings, "task")


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
