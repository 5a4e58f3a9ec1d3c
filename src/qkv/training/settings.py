"""The whole config of a run: defaults, then a file, then what the caller asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from qkv.data import sources
from qkv.errors import UserError, nearest
from qkv.models import registry
from qkv.run.config import merged, read_toml, typed
from qkv.run.folder import CONFIG
from qkv.run.run import task_config
from qkv.tasks import registry as tasks
from qkv.training.config import KeepConfig, TrainingConfig
from qkv.training.memory import MemoryConfig

TABLES = ("data", "model", "task", "training", "keep", "memory")

SHARED = {"training": TrainingConfig, "keep": KeepConfig, "memory": MemoryConfig}
"""Tables that have the same settings for every model and task."""

USUAL_MODEL = {
    "seq2seq": "encoder_decoder",
    "classification": "transformer",
    "tagging": "transformer",
    "masked_lm": "transformer",
}

FITTED = {"steps": 1, "minutes": 0.0, "precision": "float32", "evaluations": 1}
"""How long a model trains that is fitted to all examples at once."""

BY_SIZE = ("model.d_model", "model.d_ff", "model.dropout", "training.batch_tokens")
"""Settings whose defaults depend on how many examples there are."""


@dataclass(frozen=True)
class Settings:
    """One table each: `data` and `model` by name with their options, the others typed.

    `given` names what somebody said ("model.dropout"): no default takes its place.
    """

    data: dict[str, Any]
    model: dict[str, Any]
    task: Any
    training: TrainingConfig
    keep: KeepConfig
    memory: MemoryConfig
    given: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def data_name(self) -> str:
        """A short name of the data: of the catalogue, or the file's without its suffix."""
        own = self.data.get("train") or self.data.get("source")
        return Path(str(own)).stem if own else self.data["name"]

    def with_data(self, fingerprint: str) -> Settings:
        return replace(self, data={**self.data, "fingerprint": fingerprint})

    def suited(self, values: Mapping[str, Any]) -> Settings:
        """These settings with other values of [model] and [training], by dotted name, except where one was given."""
        new: dict[str, dict[str, Any]] = {"model": {}, "training": {}}
        for name, value in values.items():
            if name not in self.given:
                table, _, key = name.partition(".")
                new[table][key] = value
        return replace(self, model={**self.model, **new["model"]}, training=replace(self.training, **new["training"]))

    def as_table(self, version: str) -> dict[str, Any]:
        """What config.toml says."""
        task = {"name": tasks.name_of(self.task), **asdict(self.task)}
        typed_ones = {name: asdict(getattr(self, name)) for name in ("training", "keep", "memory")}
        return {"qkv": version, "data": self.data, "model": self.model, "task": task, **typed_ones}

    def matching(self, stored: Mapping[str, Any], folder: Path, sized: bool = True) -> Settings:
        """These settings with what a stored run of the same settings has worked out (steps, precision, length limit).

        With `sized` false also what depends on the number of examples, which then is not known yet. Raises UserError
        listing every setting in which the stored run differs.
        """
        trained = typed(TrainingConfig, stored.get("training", {}), f"{folder / CONFIG}: training")
        found = {"training": asdict(trained), "model": stored.get("model", {})}
        values = {name: value for name in BY_SIZE if (value := _at(found, name)) is not None}
        settings = self if sized else self.suited(values)
        training = replace(
            settings.training,
            steps=self.training.steps or trained.steps,
            precision=trained.precision if self.training.precision == "auto" else self.training.precision,
        )
        stored_task = task_config(stored.get("task", {}))
        kept = typed(KeepConfig, stored.get("keep", {}), f"{folder / CONFIG}: keep")
        task = self.task
        if type(task) is type(stored_task) and hasattr(task, "max_length"):
            task = replace(task, max_length=task.max_length or stored_task.max_length)
        keep = replace(self.keep, metric=self.keep.metric or kept.metric)
        same = replace(settings, training=training, task=task, keep=keep)
        asked = same.as_table("")
        # A setting that came later than the run has its default there.
        usual = {"data": sources.find(self.data["name"]).options, "task": asdict(stored_task), "keep": asdict(kept)}
        stored = merged(usual, stored)
        differing = [
            f"{name}.{key} is {there!r} there and {here!r} here"
            for name in TABLES
            if name != "memory"  # which changes nothing but the room it takes
            for key, here in asked[name].items()
            if (there := stored.get(name, {}).get(key)) != here
        ]
        if len(differing) == 1 and differing[0].startswith("data.fingerprint"):
            raise UserError(
                f"the data have changed since the run in {folder} began, or the way they are read: choose another "
                "--out, or bring the old data back to go on with it"
            )
        if differing:
            raise UserError(
                f"{folder} holds a run with other settings: {'; '.join(differing)}. Choose another --out, or give the "
                f"settings of {folder / CONFIG} to go on with it"
            )
        return same


def resolve(config: str | Path | None, data: str | None, model: str | None, settings: Mapping[str, Any]) -> Settings:
    """Checked settings. Raises UserError for an unknown name or a value that cannot be, with the nearest right one."""
    tables = _tables(config)
    settings = dict(settings)
    if isinstance(task := settings.get("task"), str):
        tables = merged(tables, {"task": {"name": settings.pop("task")}})
    asked = tables.get("task", {}).get("name")
    if asked is not None:
        tasks.find(asked)
    names = {"data": sources.table_of(data, asked, settings) if data else {}, "model": {"name": model} if model else {}}
    tables = merged(tables, names)
    tables = merged({"data": _usual_data(settings, asked)}, tables)
    source = sources.find(str(tables["data"]["name"]))
    task = tasks.find(asked or source.task)
    if task.task.name != source.task:
        raise UserError(f"{source.name} is data for the task {source.task}, not {asked}")
    tables = merged({"model": {"name": USUAL_MODEL[source.task]}, "task": {"name": source.task}}, tables)
    entry = registry.find(str(tables["model"]["name"]))
    try:
        entry.check_head(task.task.head)
    except UserError as error:
        taken = (
            ""
            if asked
            else f". {source.name} is data for {source.task} as it was read; --task says what else it is for"
        )
        raise UserError(f"{error}{taken}") from None
    types = {"model": entry.config, "task": task.config, **SHARED}
    known = {"data": list(source.options)}
    known |= {name: [one.name for one in dataclasses.fields(kind)] for name, kind in types.items()}
    tables = merged(tables, by_table(settings, known))
    if entry.fitted:
        tables = merged(tables, {"training": FITTED})
    training = typed(TrainingConfig, tables.get("training", {}), "training")
    if not training.steps and not training.minutes:
        raise UserError("how long to train is not said: give minutes (--minutes 5) or steps (--steps 2000)")
    options = {key: value for key, value in tables["data"].items() if key not in ("name", "fingerprint")}
    source.check(options)
    if source.config is not None:
        options = asdict(typed(source.config, options, "data"))
    model_settings = {key: value for key, value in tables["model"].items() if key != "name"}
    return Settings(
        data={"name": source.name, **source.options, **options},
        model={"name": entry.name, **asdict(typed(entry.config, model_settings, "model"))},
        task=task_config(tables["task"]),
        training=training,
        keep=typed(KeepConfig, tables.get("keep", {}), "keep"),
        memory=typed(MemoryConfig, tables.get("memory", {}), "memory"),
        given=frozenset(f"{name}.{key}" for name in TABLES for key in tables.get(name, {})),
    )


def _tables(config: str | Path | None) -> dict[str, Any]:
    tables: dict[str, Any] = read_toml(config) if config is not None else {}
    for name in tables:
        if name not in (*TABLES, "qkv"):
            raise UserError(f"{config} has no table [{name}].{nearest(name, TABLES)} Tables: {', '.join(TABLES)}")
        if name in TABLES and not isinstance(tables[name], dict):
            raise UserError(f"{config}: {name} must be a table, [{name}]")
    return tables


def _at(tables: Mapping[str, Mapping[str, Any]], name: str) -> Any:
    table, _, key = name.partition(".")
    return tables[table].get(key)


def _usual_data(settings: Mapping[str, Any], task: str | None) -> dict[str, Any]:
    """The data where none are named: the person's own where a file of theirs is, else the dictionary of the demo."""
    inside = settings.get("data")
    asked = {key.removeprefix("data."): value for key, value in settings.items() if key.startswith("data.")}
    asked |= inside if isinstance(inside, Mapping) else {}
    if file := asked.get("train"):
        return {"name": sources.table_of(str(file), task, settings)["name"]}
    if task in (None, "seq2seq") and not asked.keys() & {"source", "target"}:
        return {"name": "cmudict"}
    return {"name": sources.OWN[task or "seq2seq"]}


def by_table(settings: Mapping[str, Any], known: Mapping[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Settings given flat, dotted or as tables, sorted into tables.

    A flat name belongs to the only table that has it. Raises UserError for one that none has, with the nearest.
    """
    result: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        table, _, name = key.rpartition(".")
        if not table and key in known and isinstance(value, Mapping):
            result.setdefault(key, {}).update(value)
            continue
        homes = [table] if table else [t for t, names in known.items() if name in names]
        if len(homes) > 1:
            raise UserError(f"{key!r} is a setting of several tables: {' or '.join(f'{t}.{name}' for t in homes)}")
        if table and table not in known:
            raise UserError(f"unknown table in {key!r}.{nearest(table, known)} Tables: {', '.join(known)}")
        if len(homes) != 1 or name not in known[homes[0]]:
            names = known[table] if table else [n for several in known.values() for n in several]
            raise UserError(f"unknown setting {key!r}.{nearest(name, names)} Settings: {', '.join(names)}")
        result.setdefault(homes[0], {})[name] = value
    return result
