"""The report page of a run: what it scores, what it gets wrong, and what it looks at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from qkv.data import sources
from qkv.data.pairs import Example as Pair
from qkv.data.pairs import spread
from qkv.errors import UserError
from qkv.experiments.report import Attention, Curve, Example, Metric, NextStep, PositionTable, Summary, write_report
from qkv.experiments.text_report import inputs_of_text, report_texts
from qkv.inspection import figures
from qkv.inspection.record import Record, record
from qkv.inspection.shapes import Row, trace
from qkv.nn.positions import Sinusoidal, sinusoid
from qkv.run.run import Run
from qkv.tasks.seq2seq import Seq2Seq

SENTENCE = "the-cat-sat-on-the-mat"
WORDS = ("transformer", "attention", "knowledge", "through", "phoenix", "queue")
LONGEST = 24
"""Symbols of a text of the run's own that is drawn: more cannot be read in a picture."""

LEADS = {"encoder_decoder": "A full Transformer"}
LABELS = {
    "wer": ("WER", "words that match no pronunciation in the dictionary"),
    "per": ("PER", "phonemes inserted, deleted or replaced, against the nearest pronunciation"),
}


def report_run(
    run: Run,
    test: Sequence[Pair] = (),
    *,
    baseline: Mapping[str, float] | None = None,
    baseline_name: str = "baseline",
    unseen: Sequence[Example] = (),
    next_steps: Sequence[NextStep] = (),
) -> Path:
    """Writes RUN/report/index.html, beside it alignment.png, and returns the page's path.

    Of a run on labelled texts the page is that of `text_report`. `test` are examples to show outputs for, right and
    wrong; `baseline` metrics stand beside the run's own.
    """
    if not isinstance(run.task, Seq2Seq):
        return report_texts(run)
    words = _words(run)
    right, wrong = _right_and_wrong(run, test)
    alignments = [one for word in words if (one := _alignment(run, word)) is not None]
    page = write_report(
        run.folder / "report" / "index.html",
        title=f"{run.config['model']['name']} on {run.config['data']['name']}",
        summary=_summary(run),
        metrics=_metrics(run, baseline, baseline_name),
        learning=_curves(run, baseline, baseline_name),
        unseen=unseen,
        unseen_title="Words that are in no split of the dictionary",
        examples_right=right,
        examples_wrong=wrong,
        alignments=alignments,
        self_attention=_self_attention(run),
        shapes=steps_of(run, words[0]) if words else (),
        positions=_positions(run),
        next_steps=next_steps,
    )
    if alignments:
        _picture(alignments[0], page.parent / "alignment.png")
    return page


def _words(run: Run) -> list[str]:
    """Texts to look at: the usual words that the run can read, else three short ones of its own test data."""
    words = [w for w in WORDS if all(symbol in run.task.source for symbol in run.task.source.split(w))]
    if words:
        return words
    try:
        data = sources.data_of(run.config.get("data", {}))
    except UserError:  # moved away since
        return []
    short = [one.source for one in data.test if len(run.task.source.split(one.source)) <= LONGEST]
    return spread(short, 3)


def _picture(one: Attention, path: Path) -> None:
    axes = figures.heads(one.weights, one.rows, one.columns, names=one.axes, limit=1.0, peaks=True)
    figures.save(axes[0], path)


def steps_of(run: Run, text: str) -> list[Row]:
    """The shapes of every step of one forward over `text`, and over the model's own answer where it writes one."""
    if not isinstance(run.task, Seq2Seq):
        return trace(run.model, inputs_of_text(run, text))
    inputs, _ = _inputs(run, text)
    return trace(run.model, inputs)


def _inputs(run: Run, text: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The inputs of a forward over `text` and the run's own answer to it, and that answer's symbols."""
    source, _ = run.task.source.encode_text(text)
    [[best]] = run.task.decode(run.model, [source], beam=1)
    batch = run.task.collate([(source, best.tokens)])
    return batch.to(next(run.model.parameters()).device).inputs, run.task.target.decode(best.tokens, controls=True)


def _recorded(run: Run, text: str) -> tuple[list[Record], list[str], list[str]]:
    inputs, output = _inputs(run, text)
    with torch.no_grad(), record(run.model) as seen:
        run.model(**inputs)
    return list(seen), output, run.task.source.split(text)


def _alignment(run: Run, text: str) -> Attention | None:
    """All heads of the decoder layer that looks at the source most sharply; None where none looks."""
    seen, output, letters = _recorded(run, text)
    cross: dict[str, list[torch.Tensor]] = {}  # additive attention looks once for each symbol written
    for one in seen:
        if one.path.endswith("cross_attention"):
            cross.setdefault(one.path, []).append(one.weights)
    if not cross:
        return None
    layers = {path: torch.cat(several, 2)[0] for path, several in cross.items()}  # (H, Tt, Ts)
    sharpest = min(layers, key=lambda path: float(_entropy(layers[path])))
    return Attention(
        title=f"{text}: {run.task.target.join(output)}",
        rows=[*output, "eos"],
        columns=[*letters, "eos"],
        weights=layers[sharpest],
        axes=("symbol being written", "source symbol"),
        note=f"{sharpest}, the layer with the lowest mean entropy for this word",
    )


def _entropy(weights: torch.Tensor) -> torch.Tensor:
    return -(weights * weights.clamp_min(1e-9).log()).sum(-1).mean()


def _self_attention(run: Run) -> Attention | None:
    if any(symbol not in run.task.source for symbol in run.task.source.split(SENTENCE)):
        return None
    seen, _, letters = _recorded(run, SENTENCE)
    first = next((one for one in seen if one.path.startswith("encoder.")), None)
    if first is None:
        return None
    sharpest = min(first.weights[0], key=lambda head: float(_entropy(head)))
    labels = [*letters, "eos"]
    return Attention(
        title=SENTENCE,
        rows=labels,
        columns=labels,
        weights=sharpest,
        axes=("query", "key"),
        note=f"{first.path}, its sharpest head. The model was trained on words: the sentence is written as one word, "
        "with hyphens for spaces",
    )


def _positions(run: Run) -> PositionTable | None:
    found = [m for m in run.model.modules() if isinstance(m, Sinusoidal)]
    if not found:
        return None
    d_model = found[0].d_model
    waves = [2 * math.pi * found[0].base ** (2 * (i // 2) / d_model) for i in range(d_model)]
    return PositionTable(sinusoid(torch.arange(64), d_model), waves)


def _right_and_wrong(run: Run, test: Sequence[Pair], shown: int = 20) -> tuple[list[Example], list[Example]]:
    if not test:
        return [], []
    chosen = spread(test, 200)
    predictions = run.task.decode(run.model, [run.task.source.encode(e.source) for e in chosen])
    right: list[Example] = []
    wrong: list[Example] = []
    for example, hypotheses in zip(chosen, predictions, strict=True):
        output = run.task.target.text(hypotheses[0].tokens)
        row = Example(example.source, output, list(example.targets), hypotheses[0].score)
        (right if output in example.targets else wrong).append(row)
    return right[:shown], wrong[:shown]


def _metrics(run: Run, baseline: Mapping[str, float] | None, name: str) -> list[Metric]:
    return [
        Metric(
            LABELS[key][0],
            value,
            baseline[key] if baseline else None,
            baseline_name=name,
            meaning=LABELS[key][1],
            digits=2,
        )
        for key, value in run.metrics().items()
        if key in LABELS
    ]


def _curves(run: Run, baseline: Mapping[str, float] | None, name: str) -> list[Curve]:
    events = run.events()
    train = [(e["step"], e["loss"]) for e in events if e["event"] == "train"]
    dev = [e for e in events if e["event"] == "evaluation"]
    thinned = train[:: max(1, len(train) // 400)]
    loss = Curve(
        "Loss a target symbol, with label smoothing", {"train": thinned, "dev": [_point(e, "loss") for e in dev]}
    )
    errors = Curve(
        "Error on dev, greedy",
        {"WER": [_point(e, "wer") for e in dev], "PER": [_point(e, "per") for e in dev]},
        y_label="percent",
        reference=(f"WER of the {name}", baseline["wer"]) if baseline else None,
    )
    return [loss, errors] if dev else [loss]


def _point(event: Mapping[str, Any], key: str) -> tuple[float, float]:
    return event["step"], event["metrics"][key]


def _summary(run: Run) -> Summary:
    ends = [e for e in run.events() if e["event"] == "end"]
    end = ends[-1] if ends else None
    data, name = run.config["data"], run.config["model"]["name"]
    options = ", ".join(f"{key} {value}" for key, value in data.items() if key not in ("name", "fingerprint"))
    parameters = sum(p.numel() for p in run.model.parameters())
    facts = [("Parameters", f"{parameters:,}")]
    if end:
        facts += [("Training", f"{end['step']:,} steps, {end['tokens']:,} tokens, {end['seconds'] / 60:.1f} minutes")]
    return Summary(
        lead=f"{LEADS.get(name, f'The model {name}')}, trained from nothing, and what it looks at.",
        data=f"{data['name']} ({options})" if options else data["name"],
        split=f"{end['test_examples']:,} test words, chosen by a hash of the word; none was seen in training"
        if end
        else "training is not finished",
        seeds=[run.config["training"]["seed"]],
        scoring=f"any listed pronunciation counts as right; beam {run.task.config.beam}",
        facts=facts,
    )
