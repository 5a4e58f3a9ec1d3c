"""The main job: from nothing to a trained, scored and inspected Transformer in a few minutes."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from qkv.data import catalogue
from qkv.data.pairs import Pairs
from qkv.experiments.baselines import LetterContext
from qkv.experiments.report import Example, NextStep
from qkv.experiments.run_report import report_run
from qkv.inspection import figures, shapes
from qkv.inspection.record import record
from qkv.run.folder import make_folder, typed_path
from qkv.run.run import Run, build_model, resolve_device
from qkv.tasks.metrics import error_rates
from qkv.tasks.prediction import Prediction
from qkv.tasks.seq2seq import Seq2Seq, Seq2SeqConfig
from qkv.training.events import Event, Listener, Progress
from qkv.training.settings import Settings, resolve
from qkv.training.train import stored_run, train

CONFIG = resources.files("qkv.experiments") / "demo.toml"
CURVE = resources.files("qkv.experiments") / "demo_curve.json"
FIRST_WORD = "attention"
NEW_WORDS = (
    "transformerly", "softmaxed", "tokenizable", "attentionless", "backpropped", "quasineural", "zorbifying",
    "hyperloom", "phlogistonic", "cryptowhale", "unlearnability", "wordpiecer", "embeddingless", "neuroflex",
)  # fmt: skip


@dataclass(frozen=True)
class Demo:
    """What `run_demo` did: the run, its page, the baseline's metrics, and how new words are pronounced.

    `passes` says how often the model has read the training words; the baseline has counted them all.
    """

    run: Run
    report: Path
    baseline: dict[str, float]
    new_words: list[Prediction]
    passes: float

    @property
    def verdict(self) -> str:
        """Who is ahead, in a sentence."""
        wer = self.run.metrics()["wer"]
        read = f"the model has read the training words {self.passes:.1f} times"
        if wer < self.baseline["wer"]:
            return f"The Transformer is ahead of the baseline: {read}."
        return (
            f"The baseline is still ahead: it has counted every training word, and {read}. Longer training passes it: "
            "the README has the figure of the full recipe."
        )


def run_demo(
    out: Path,
    minutes: float | None = None,
    device: str = "auto",
    console: Console | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Demo:
    """Fetches the data, shows an untrained model, trains it, scores it beside a baseline and writes the report.

    `minutes` of training (the config's own by default). The same call again goes on with an unfinished run. Raises
    UserError as `train` does.
    """
    console = console or Console(stderr=True)
    changes: dict[str, Any] = {} if minutes is None else {"minutes": minutes}
    with resources.as_file(CONFIG) as config:
        wanted = resolve(config, None, None, changes)
        stored_run(out, wanted)  # a mistake is said now, not after the baseline
        resolve_device(device)
        pairs = catalogue.entry("cmudict").load(catalogue.get("cmudict", progress))
        make_folder(out.parent)
        first_look(pairs, wanted, out.parent / f"{out.name}-first-look.png", console)
        console.print(
            "\nA baseline first: the pronunciation of each letter in the longest context that training knows."
        )
        baseline, seconds = _baseline(pairs)
        console.print(f"WER {baseline['wer']:.1f} %, PER {baseline['per']:.1f} % on test, after {seconds:.0f} s\n")
        run = train(out=out, config=config, device=device, listeners=[_Expectation(console), Progress()], **changes)
    known = {example.source for split in pairs.splits.values() for example in split}
    new_words = run.predict([word for word in NEW_WORDS if word not in known][:10])
    unseen = [Example(p.text, p.output, score=p.score) for p in new_words]
    page = report_run(
        run,
        pairs.test,
        baseline=baseline,
        baseline_name=LetterContext.name,
        unseen=unseen,
        next_steps=next_steps(run.folder),
    )
    return Demo(run, page, baseline, new_words, _passes(run, pairs))


def next_steps(folder: Path) -> list[NextStep]:
    """What a newcomer may try after the demo."""
    run = typed_path(folder)
    return [
        NextStep("Pronounce your own words", f"qkv predict {run} yourword another --nbest 3 --beam 5 --scores"),
        NextStep("See every shape on the way", f"qkv shapes {run}"),
        NextStep("Change the model: rotary positions", "qkv train --minutes 3 --positions rotary --out runs/rotary"),
        NextStep("Change it more: no positions at all", "qkv train --minutes 3 --positions none --out runs/nopos"),
        NextStep("Train the full recipe", "qkv train --config recipes/cmudict.toml --out runs/cmudict"),
    ]


def first_look(pairs: Pairs, settings: Settings, picture: Path, console: Console) -> None:
    """Before any training: the shapes of every step for one word, and a picture of one head."""
    task = Seq2Seq.of(Seq2SeqConfig(), pairs)
    torch.manual_seed(settings.training.seed)
    model = build_model(settings.model, task.sizes).eval()
    example = next(e for split in pairs.splits.values() for e in split if e.source == FIRST_WORD)
    item = (task.source.encode(example.source), task.target.encode(example.targets[0]))
    inputs = task.collate([item]).inputs
    console.print(f"\nEvery step of an untrained Transformer reading '{FIRST_WORD}', with its shapes:\n")
    console.print(shapes.table(shapes.trace(model, inputs)))
    with torch.no_grad(), record(model) as seen:
        model(**inputs)
    letters = [*example.source, "eos"]
    axes = figures.heatmap(seen[0].weights[0, 0], letters, letters, title=f"{seen[0].path}, head 0, before training")
    figures.save(axes, picture)
    console.print(f"\nIts first head, before training: {picture}", markup=False)


def expected_wer(tokens: float) -> float | None:
    """Test WER in percent that the demo's model reached after `tokens` tokens, between measured points.

    Straight lines in log(tokens); None outside what was measured.
    """
    points = _measured()
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= tokens <= x1:
            share = (math.log(tokens) - math.log(x0)) / (math.log(x1) - math.log(x0))
            return y0 + share * (y1 - y0)
    return None


def _measured() -> list[list[float]]:
    """[tokens, test WER] of the measured runs, fewest tokens first."""
    return sorted(json.loads(CURVE.read_text(encoding="utf-8"))["points"])


def _reach(tokens: float) -> str:
    """What to expect in words: past the measured points, that it is less, or more, than the last of them."""
    wer = expected_wer(tokens)
    if wer is not None:
        return f"about {wer:.0f} % WER on test"
    points = _measured()
    first, last = points[0], points[-1]
    return f"more than {first[1]:.0f} % WER on test" if tokens < first[0] else f"less than {last[1]:.0f} % WER on test"


class _Expectation(Listener):
    """Says before training what this machine's speed will lead to."""

    def __init__(self, console: Console):
        self._console = console

    def on(self, event: Event) -> None:
        if event["event"] != "start":
            return
        tokens = event["expected_tokens"]
        reach = _reach(tokens)
        self._console.print(f"At this machine's speed: {event['steps']:,} steps, {tokens:,} tokens, {reach}.\n")


def _passes(run: Run, pairs: Pairs) -> float:
    tokens = [event["tokens"] for event in run.events() if event["event"] == "end"][-1]
    return tokens / sum(map(sum, run.task.lengths(run.task.items(pairs.train))))


def _baseline(pairs: Pairs) -> tuple[dict[str, float], float]:
    started = time.perf_counter()
    # Letters and phonemes are what stands there: no vocabulary is needed.
    model = LetterContext.fit([(tuple(e.source), tuple(t.split())) for e in pairs.train for t in e.targets])
    outputs = [model.predict(example.source) for example in pairs.test]
    references = [[t.split() for t in e.targets] for e in pairs.test]
    return error_rates(outputs, references), time.perf_counter() - started
