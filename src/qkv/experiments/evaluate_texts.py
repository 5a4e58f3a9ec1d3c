"""A trained run on labelled texts, tagged words or plain lines: its figures, for which it is worse, and each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

from qkv.data import sources
from qkv.data.files.conll import read_conll
from qkv.data.files.encoding import decode, lines, read
from qkv.data.files.reading import FileConfig
from qkv.data.label_data import LabelConfig, rows_of
from qkv.data.segment import normalise
from qkv.data.tag_data import cleaned
from qkv.data.texts import Labelled, Tagged
from qkv.errors import UserError, nearest
from qkv.experiments.evaluate import Given, Slice
from qkv.run.run import Run
from qkv.tasks.classification import Classification
from qkv.tasks.prediction import Prediction
from qkv.tasks.tagging import Tagging
from qkv.training.events import counting


@dataclass(frozen=True)
class TextEvaluation:
    """What `evaluate_texts` found: figures, those of quarters by length, of each label or type, and each answer."""

    metrics: dict[str, float]
    slices: list[Slice]
    per_label: list[dict[str, Any]]
    answers: list[dict[str, Any]]


def own_file(run: Run, file: str, reading: FileConfig, text: str | None, label: str | None) -> Given:
    """The examples of a file, read as the run's data were; `text` and `label` are columns, where others are meant.

    Raises UserError naming file and line for what cannot be read, and for labels that the run does not know.
    """
    data = run.config["data"]
    known = sources.CONFIGS.get(data["name"])
    asked = {one.name: data[one.name] for one in fields(known) if one.name in data} if known else {}
    asked |= {name: value for name, value in asdict(reading).items() if value not in ("", "auto")}
    if run.task.name == "tagging":
        return _tagged(run, file, {"word": int(text or asked.get("word", 1)), "tag": int(label or asked.get("tag", 0))},
                       asked)  # fmt: skip
    if run.task.name != "classification":
        found = lines(decode(read(file), file, asked.get("encoding") or None).text)
        form = asked.get("normalise", "none")
        return Given(file, [Labelled(one, ()) for line in found if (one := normalise(line.strip(), form))])
    # The sides of a split are of no concern here: there is none.
    kept = {
        name: asked[name] for name in ("text", "label", "second", "several", "normalise", *_READING) if name in asked
    }
    kept |= {name: value for name, value in (("text", text), ("label", label)) if value}
    config = LabelConfig(**{**kept, "train": file})
    rows = rows_of(_fitting(config), config.table(file))
    _refuse(
        run, [(line, label) for line, one in zip(rows.lines, rows.examples, strict=True) for label in one.labels], file
    )
    return Given(rows.name, rows.examples, rows.left_out, rows.notes)


_MEANT = ("text", "label", "second", "several", "normalise")
_READING = tuple(one.name for one in fields(FileConfig))


def _fitting(config: LabelConfig) -> LabelConfig:
    """The config without columns that this file does not have: they were found there, and are found here."""
    columns = config.table(config.train).columns
    there = {name: getattr(config, name) for name in ("text", "label") if str(getattr(config, name)) in columns
             or str(getattr(config, name)).isdecimal()}  # fmt: skip
    return LabelConfig(**{**asdict(config), "text": "", "label": "", **there})


def _tagged(run: Run, file: str, columns: dict[str, int], asked: dict[str, Any]) -> Given:
    found = read_conll(file, **columns, encoding=asked.get("encoding") or None)
    sentences = cleaned(asked.get("normalise", "none"), found)
    _refuse(run, [(one.line + place, tag) for one in sentences for place, tag in enumerate(one.tags)], file)
    examples = [Tagged(one.words, one.tags) for one in sentences]
    return Given(found.name, examples, notes=found.notes)


def _refuse(run: Run, said: Sequence[tuple[int, str]], file: str) -> None:
    known = set(run.task.labels)
    strange = [f"{label!r} (line {line})" for line, label in said if label not in known]
    if strange:
        near = nearest(strange[0].split("'")[1], sorted(known))
        listed = ", ".join(strange[:10]) + (f" and {len(strange) - 10:,} more" if len(strange) > 10 else "")
        raise UserError(
            f"{file} has labels that the run does not know: {listed}.{near} It knows {', '.join(sorted(known))}"
        )


def evaluate_texts(run: Run, examples: Sequence[Any]) -> TextEvaluation:
    """Reads each text once and scores the answers. Raises UserError when there is no example."""
    if not examples:
        raise UserError("there is no example to evaluate on")
    run.model.eval()
    advance = counting(len(examples), "read")
    task = run.task
    metrics = task.evaluate(run.model, examples, advance=advance)
    quarters = [(name, [examples[i] for i in places]) for name, places in _quarters(examples)]
    slices = [Slice("length", name, len(some), task.evaluate(run.model, some)) for name, some in quarters]
    if isinstance(task, Classification):
        return TextEvaluation(metrics, slices, *_judged(run, task, examples))
    if isinstance(task, Tagging):
        said = task.predict(run.model, [one.words for one in examples])
        answers = [_tagged_answer(one, answer) for one, answer in zip(examples, said, strict=True)]
        return TextEvaluation(metrics, slices, task.by_type(run.model, examples), answers)
    return TextEvaluation(metrics, slices, [], [])


def _judged(
    run: Run, task: Classification, examples: Sequence[Labelled]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    judged = task.judged(examples, task.read(run.model, [(one.text, one.second) for one in examples]))
    said = task.predict(run.model, [(one.text, one.second) if task.pairs else one.text for one in examples])
    answers: list[dict[str, Any]] = []
    for one, answer, right in zip(examples, said, judged.right, strict=True):
        given = {"text": one.text, **({"second": one.second} if task.pairs else {}), "labels": list(one.labels)}
        answers.append({**given, "output": answer.output, "probability": answer.score, "right": bool(right)})
    return judged.per_class(), answers


def _tagged_answer(one: Tagged, answer: Prediction) -> dict[str, Any]:
    output = answer.output.split(" ")
    given = {"words": list(one.words), "tags": list(one.tags)}
    return {**given, "output": output, "score": answer.score, "right": output == given["tags"]}


def _quarters(examples: Sequence[Any]) -> list[tuple[str, list[int]]]:
    """Quarters by length (words of tagged sentences, else characters), where lengths differ: (name, places)."""
    lengths = [len(one.words) if isinstance(one, Tagged) else len(one.text) + len(one.second) for one in examples]
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    if len(set(lengths)) < 2 or len(order) < 4:
        return []
    cuts = [len(order) * n // 4 for n in range(5)]
    parts = [order[a:b] for a, b in pairwise(cuts)]
    return [(f"{lengths[part[0]]:,} to {lengths[part[-1]]:,}", sorted(part)) for part in parts]
