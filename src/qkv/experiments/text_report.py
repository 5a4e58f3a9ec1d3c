"""The report page of a run on labelled texts: figures beside the baseline's, label by label, the surest mistakes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from qkv.data import sources
from qkv.data.texts import Labelled, Tagged, Texts
from qkv.errors import UserError
from qkv.experiments.report import Curve, Metric, NextStep, Summary, Table, write_report
from qkv.run.folder import typed_path
from qkv.run.run import Run
from qkv.tasks.classification import Classification
from qkv.tasks.metrics import METRICS
from qkv.tasks.tagging import Tagging
from qkv.training.baseline import metrics_beside

logger = logging.getLogger("qkv")

MOST_WRONG = 20
CONFUSED = 20
"""Labels up to which a table of who is taken for whom can be read."""

HEADLINES = ("macro_f1", "micro_f1", "accuracy", "entity_f1", "perplexity", "ece")
SHOWN_LENGTH = 300
"""Characters of a text that the page shows."""


def report_texts(run: Run) -> Path:
    """Writes RUN/report/index.html and returns its path. What needs the data is left out where they cannot be read."""
    data = _data(run)
    tables: list[Table] = []
    if isinstance(run.task, Classification) and data is not None:
        tables = _judged(run, run.task, data.test)
    elif isinstance(run.task, Tagging) and data is not None:
        tables = _by_type(run, run.task, data.test)
    return write_report(
        run.folder / "report" / "index.html",
        title=f"{run.config['model']['name']} on {_name(run)}",
        summary=_summary(run, data),
        metrics=_metrics(run),
        learning=_curves(run),
        tables=tables,
        next_steps=[
            NextStep("Judge texts of your own:", f"qkv predict {typed_path(run.folder)} --input FILE"),
            NextStep("See every shape on the way:", f"qkv shapes {typed_path(run.folder)}"),
        ],
    )


def inputs_of_text(run: Run, text: str) -> dict[str, Tensor]:
    """The inputs of a forward over one text (of a pair: both are that text)."""
    task: Any = run.task
    if isinstance(task, Tagging):
        words = tuple(text.split())
        items: Any = task.items([Tagged(words, task.labels[:1] * len(words))])
    elif isinstance(task, Classification):
        items = task.items([Labelled(text, () if task.several else task.labels[:1], text if task.pairs else "")])
    else:
        items = task.items([Labelled(text, ())])
    if not items:
        raise UserError(f"{text!r} has no token that this run reads")
    return task.collate(items[:1]).to(next(run.model.parameters()).device).inputs


def _data(run: Run) -> Texts | None:
    table = run.config["data"]
    try:
        found = sources.data_of(table)
    except UserError as error:
        logger.info("the page shows no examples: %s", error)
        return None
    same = found.fingerprint == table.get("fingerprint")
    return found if same and isinstance(found, Texts) else None


def _name(run: Run) -> str:
    data = run.config["data"]
    return Path(str(data["train"])).name if data.get("train") else data["name"]


def _judged(run: Run, task: Classification, examples: Sequence[Any]) -> list[Table]:
    found = task.read(run.model, [(one.text, one.second) for one in examples])
    judged = task.judged(examples, found)
    columns = ["label", "precision", "recall", "f1", "support", "predicted"]
    rows = sorted(judged.per_class(), key=lambda row: -row["support"])
    tables = [
        Table(
            "Each label on test", [name.replace("f1", "F1") for name in columns],
            [[row[name] for name in columns] for row in rows],
            "In percent; support: texts that have it; predicted: texts that were said to",
        )
    ]  # fmt: skip
    if not judged.several and len(task.labels) <= CONFUSED:
        tables.append(_confusion(task.labels, judged.confusion()))
    places = judged.most_wrong(MOST_WRONG)
    wrong = [_mistake(examples[place], task, judged.answers[place], judged.probabilities[place]) for place in places]
    if wrong:
        title = f"The {len(wrong)} mistakes that it was surest of"
        tables.append(Table(title, ["text", "said", "right", "held for, %"], wrong, "Some are mistakes of the labels"))
    return tables


def _confusion(labels: Sequence[str], counts: np.ndarray) -> Table:
    rows = [[label, *map(int, row)] for label, row in zip(labels, counts, strict=True)]
    return Table("Which label was taken for which", ["right \\ said", *labels], rows, "Rows: the right label")


def _mistake(example: Labelled, task: Classification, answer: np.ndarray, held: np.ndarray) -> list[str | float]:
    said = [label for label, yes in zip(task.labels, answer, strict=True) if yes] if task.several else [
        task.labels[int(answer)]
    ]  # fmt: skip
    text = f"{example.text} | {example.second}" if example.second else example.text
    right = " | ".join(example.labels) or "none"
    return [_cut(text), " | ".join(said) or "none", right, 100.0 * float(held.max())]


def _by_type(run: Run, task: Tagging, examples: Sequence[Tagged]) -> list[Table]:
    rows = task.by_type(run.model, examples)
    columns = ["type", "precision", "recall", "f1", "support", "predicted"]
    shown = [[row[name] for name in columns] for row in sorted(rows, key=lambda row: -row["support"])]
    title = "Each type of entity on test" if task.entities else "Each tag on test"
    return [Table(title, [name.replace("f1", "F1") for name in columns], shown[:100], "In percent")]


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]} ... ({len(text):,} characters)"


def _metrics(run: Run) -> list[Metric]:
    found, beside = run.metrics(), metrics_beside(run.folder)
    return [
        Metric(
            METRICS[name].short, found[name], beside.get(name), "n-gram baseline", METRICS[name].unit,
            METRICS[name].title,
        )
        for name in HEADLINES
        if name in found
    ]  # fmt: skip


def _curves(run: Run) -> list[Curve]:
    events = run.events()
    train = [(e["step"], e["loss"]) for e in events if e["event"] == "train"]
    dev = [e for e in events if e["event"] == "evaluation"]
    if len(train) < 2:
        return []
    losses = {"train": train[:: max(1, len(train) // 400)], "dev": [_point(e, "loss") for e in dev]}
    curves = [Curve("Loss", losses)]
    names = [name for name in HEADLINES if METRICS[name].unit == "%" and name != "ece"]
    shown = {METRICS[n].short: [_point(e, n) for e in dev] for n in names if dev and n in dev[0]["metrics"]}
    beside = metrics_beside(run.folder)
    first = next((name for name in names if name in beside), None)
    level = (f"{METRICS[first].short} of the n-gram baseline on test", beside[first]) if first else None
    return [*curves, Curve("On dev", shown, y_label="percent", reference=level)] if shown else curves


def _point(event: Mapping[str, Any], name: str) -> tuple[float, float]:
    return event["step"], event["metrics"][name]


def _summary(run: Run, data: Texts | None) -> Summary:
    end = next((e for e in reversed(run.events()) if e["event"] == "end"), None)
    found = run.metrics()
    facts = [("Parameters", f"{sum(p.numel() for p in run.model.parameters()):,}")]
    if end:
        facts.append(
            ("Training", f"{end['step']:,} steps, {end['tokens']:,} tokens, {end['seconds'] / 60:.1f} minutes")
        )
    if "majority" in found:
        facts.append(("Always the most frequent label", f"{found['majority']:.1f} % right"))
    shares = {"unknown": "Unknown tokens on test", "beyond_limit": "Tokens beyond one window"}
    facts += [(title, f"{found[name]:.2f} %") for name, title in shares.items() if name in found]
    chosen = run.config["keep"]["metric"]
    return Summary(
        lead=f"Task {run.task.name}, trained from nothing, beside an n-gram baseline on the same splits.",
        data=_name(run) if data is None else f"{_name(run)}: {' '.join(data.notes)}",
        split=f"{end['test_examples']:,} test examples, none of them in training"
        if end
        else "training is not finished",
        seeds=[run.config["training"]["seed"]],
        scoring=f"the model kept is the best in {METRICS[chosen].short} on dev" if chosen in METRICS else chosen,
        facts=facts,
    )
