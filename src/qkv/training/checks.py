"""What a run asks of its task: the figure that it is judged by, whether it can read its data, how it searches."""

from __future__ import annotations

from qkv.errors import UserError, nearest
from qkv.run.stream import MOST_UNKNOWN
from qkv.tasks.metrics import Metric, metric
from qkv.tasks.registry import Data, Task
from qkv.training.events import logger

ENOUGH = 20
"""Examples below which a share of unknown tokens says more about how few they are than about the vocabulary."""


def chosen_metric(asked: str, task: Task) -> Metric:
    """The figure that the best model is chosen by. Raises UserError for one that this data and task do not have."""
    chosen = metric(asked or task.metric)
    if chosen.name not in task.metrics:
        raise UserError(
            f"keep.metric {asked!r}: this data and task have no such figure.{nearest(asked, task.metrics)} They have: "
            f"{', '.join(task.metrics)}"
        )
    return chosen


def unknown_tokens(task: Task, data: Data, allow: bool, say: bool) -> None:
    """Says what share of the tokens of dev and test the task's vocabulary lacks.

    Raises UserError above 5 % unless `allow`. Whole words are only counted: there are always more of them. So is a
    share of few examples: a dozen texts always lack most of the language.
    """
    share = getattr(task, "unknown_share", None)
    if share is None:
        return
    found = {"dev": share(data.dev), "test": share(data.test)}
    said = ", ".join(f"{part} {value:.2f} %" for part, value in found.items())
    if say:
        logger.info("unknown tokens: %s", said)
    told = [value for part, value in found.items() if len(data.splits[part]) >= ENOUGH]
    if max(told, default=0.0) > MOST_UNKNOWN and not allow and not getattr(task, "whole_words", False):
        raise UserError(
            f"too many tokens are unknown to the vocabulary learnt from the training texts: {said} (at most "
            f"{MOST_UNKNOWN:g} %). Use other --data.symbols (characters, bpe:8000), more training texts, or --allow-unk"
        )


def searched(task: Task, quick: bool) -> dict[str, int]:
    """How wide answers are searched for, where they are: what an event of evaluation says beside the figures."""
    beam = getattr(task.config, "beam", None)
    return {} if beam is None else {"beam": 1 if quick else beam}
