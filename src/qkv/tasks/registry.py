"""Tasks by name, and what the rest of the house asks of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from qkv.data.pair_data import symbol_kind
from qkv.data.pairs import Pairs
from qkv.data.texts import Texts, usual_symbols
from qkv.errors import UserError, nearest
from qkv.models.registry import Entry as Model
from qkv.tasks.batch import Batch
from qkv.tasks.classification import Classification, ClassificationConfig
from qkv.tasks.masked_lm import MaskedLM, MaskedLMConfig
from qkv.tasks.prediction import Prediction
from qkv.tasks.seq2seq import Seq2Seq, Seq2SeqConfig
from qkv.tasks.tagging import Tagging, TaggingConfig

Data = Pairs | Texts
"""What a run learns from."""


class Task(Protocol):
    """What is asked of a model: how examples become batches, what is lost, what is scored, what is answered.

    name    as in the config
    head    of the model (`models.registry.Entry`)
    metric  the figure on dev that the best model is chosen by, where nobody says otherwise
    config  the settings, a frozen dataclass
    """

    name: str
    head: str
    config: Any

    @property
    def metric(self) -> str: ...

    @property
    def metrics(self) -> tuple[str, ...]: ...

    @property
    def sizes(self) -> dict[str, int]: ...

    def is_empty(self, text: str) -> bool: ...

    def items(self, examples: Any) -> Sequence[Any]: ...

    def lengths(self, items: Sequence[Any]) -> list[tuple[int, int]]: ...

    def collate(self, items: Sequence[Any]) -> Batch: ...

    def loss(self, logits: Tensor, batch: Batch) -> Tensor: ...

    def evaluate(
        self,
        model: nn.Module,
        examples: Any,
        *,
        quick: bool = False,
        advance: Callable[[int], None] | None = None,
        divide: Any = None,
    ) -> dict[str, float]: ...

    def predict(
        self, model: nn.Module, texts: Sequence[Any], *, advance: Callable[[int], None] | None = None
    ) -> list[Prediction]: ...

    def save(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class Entry:
    """One task: the class, and the dataclass of its settings."""

    task: type[Any]
    config: type[Any]


TASKS: dict[str, Entry] = {
    entry.task.name: entry
    for entry in (
        Entry(Seq2Seq, Seq2SeqConfig),
        Entry(Classification, ClassificationConfig),
        Entry(Tagging, TaggingConfig),
        Entry(MaskedLM, MaskedLMConfig),
    )
}


def find(name: str) -> Entry:
    """The task of that name. Raises UserError with the nearest and all known names."""
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}.{nearest(name, TASKS)} Known tasks: {', '.join(TASKS)}")
    return TASKS[name]


def name_of(config: Any) -> str:
    """The name of the task whose settings these are."""
    return next(name for name, entry in TASKS.items() if type(config) is entry.config)


def make(config: Any, data: Data, model: Model) -> Task:
    """The task of these settings, its vocabulary learnt from the training split of `data`.

    How texts are cut is said by the data, else by the model, else it is what suits the texts. Raises UserError for data
    of another task.
    """
    name = name_of(config)
    needed = "seq2seq" if isinstance(data, Pairs) else data.task
    if needed != name:
        raise UserError(f"{data.name} is data for the task {needed}, not {name}")
    if isinstance(data, Pairs):
        return Seq2Seq.of(config, data)
    kind = data.symbols if data.symbols != "auto" else model.symbols.get(name) or usual_symbols(data)
    symbol_kind(kind)
    return TASKS[name].task.of(config, data, kind=kind)


def load(config: Any, folder: Path) -> Task:
    """The task of a run folder. Raises UserError for a file of it that is missing or damaged."""
    return TASKS[name_of(config)].task.load(folder, config)


def options_of(task: Task) -> Mapping[str, Any]:
    """What `task.predict` may be asked for beside the texts, with the defaults."""
    import inspect

    parameters = inspect.signature(task.predict).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "advance"}
