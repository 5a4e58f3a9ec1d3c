"""The n-gram baseline that stands beside every model of labelled texts: a run of its own, in the run's folder."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import torch

from qkv.models import registry
from qkv.run import folder as files
from qkv.run.run import Run, load
from qkv.tasks import registry as tasks
from qkv.tasks.registry import Data
from qkv.training.config import KeepConfig
from qkv.training.events import logger
from qkv.training.memory import MemoryConfig
from qkv.training.processes import Processes
from qkv.training.settings import FITTED, Settings
from qkv.training.trainer import Trainer

FOLDER = "baseline"
MODEL = "ngrams"


def is_wanted(settings: Settings) -> bool:
    """Whether the task has a baseline, and the model is not it."""
    entry = registry.find(MODEL)
    return tasks.find(tasks.name_of(settings.task)).task.head in entry.builds and settings.model["name"] != MODEL


def fit(settings: Settings, folder: Path, data: Data) -> Run:
    """The baseline on the same splits, fitted in seconds and kept in `folder`/baseline; said with its test figures.

    Random numbers of the caller stay as they were.
    """
    place = folder / FOLDER
    if not files.is_finished(place):
        config = registry.find(MODEL).config()
        wanted = replace(
            settings,
            model={"name": MODEL, **asdict(config)},
            data={**settings.data, "symbols": "auto"},
            training=replace(settings.training, **FITTED),
            keep=KeepConfig(metric=settings.keep.metric),
            memory=MemoryConfig(),
        )
        with torch.random.fork_rng(devices=[]):
            own = replace(data, symbols="auto") if hasattr(data, "symbols") else data
            Trainer(wanted, place, own, Processes(torch.device("cpu")), [], continued=False, allow_unk=True).run()
    run = load(place)
    said = ", ".join(f"{name} {value:.1f}" for name, value in run.metrics().items())
    logger.info("baseline (%s, the same splits): %s; it predicts like any run: %s", MODEL, said, place)
    return run


def metrics_beside(folder: Path) -> dict[str, float]:
    """The test figures of the baseline in a run's folder, empty where there is none."""
    ends = [event for event in files.read_events(folder / FOLDER) if event["event"] == "end"]
    return dict(ends[-1]["test"]) if ends else {}
