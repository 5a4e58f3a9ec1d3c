"""A run that classifies or tags as one ONNX graph, with all that answers are made of beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from torch import nn

from qkv.data.spans import allowed
from qkv.data.symbols import BOS, EOS, PAD, UNK
from qkv.errors import UserError
from qkv.export import check, texts_caller
from qkv.export.common import MOST_TEXTS, data_texts, in_int8, megabytes
from qkv.export.report import ExportReport, Figures, versions, written
from qkv.export.trace import OPSET
from qkv.export.trace_texts import text_graph
from qkv.run.run import Run
from qkv.tasks.tagging import Tagging

LEAST_INT8 = 98.0
"""Percent of texts below which the int8 file is warned of."""

_ABOUT = """`python caller.py TEXT ...` answers texts; it needs onnxruntime, numpy and tokenizers.

- `model.onnx`: tokens (batch, time) int64, each row's ids behind {begin}, pads on the right{segments}; gives
  logits {shape}.
- `task.json`: how texts become rows (windows, control ids) and logits answers{answers}.
- `tokenizer.json`: how a text is cut and the ids of its pieces, for the library tokenizers.
"""

Answers = list[tuple[str, float]]


class TextExport:
    """model.onnx, task.json, tokenizer.json and caller.py."""

    def __init__(self, run: Run, model: nn.Module, folder: Path, part: Path):
        self.run, self.model, self.folder, self.part = run, model, folder, part
        self.warnings: list[str] = []

    def write(self, int8: bool, words: Sequence[str] | None) -> ExportReport:
        task = self.run.task
        told = described(task, str(self.run.config.get("data", {}).get("normalise", "none")))
        (self.part / "task.json").write_text(json.dumps(told, ensure_ascii=False, indent=1), encoding="utf-8")
        task.source.save(self.part / "tokenizer.json")
        shutil.copyfile(texts_caller.__file__, self.part / "caller.py")
        graph = text_graph(self.model, task.sizes["n_tokens"], task.sizes["n_segments"] > 1)
        onnx.checker.check_model(graph, full_check=True)
        onnx.save(graph, self.part / "model.onnx")
        if int8:
            onnx.save(in_int8(graph, self.part), self.part / "model.int8.onnx")
        figures = self._figures(self._texts(words), int8)
        report = ExportReport(self.folder, {}, figures, OPSET, versions(), "texts", warnings=self.warnings)
        return written(self.part, report, _about(told))

    def _texts(self, given: Sequence[str] | None) -> list[str]:
        """At most 1,000 texts that are not empty; the rest is said where a person gave them."""
        texts = data_texts(self.run) if given is None else list(given)
        some = [text for text in texts if not self.run.task.is_empty(text)][:MOST_TEXTS]
        if not some:
            raise UserError("there are no texts to compare the export with torch on: give some")
        if given is not None and len(some) < len(texts):
            left = len(texts) - len(some)
            self.warnings.append(f"{left} of {len(texts)} texts were not compared: empty, or beyond {MOST_TEXTS}")
        return some

    def _figures(self, texts: list[str], int8: bool) -> dict[str, Figures]:
        def by_torch(some: Sequence[str]) -> Answers:
            found = self.run.task.predict(self.model, some)
            return [(one.output, one.score) for one in found]

        with check.torch_threads():
            expected, speed = check.measured(by_torch, texts)
        size = sum(one.numel() * one.element_size() for one in self.model.state_dict().values())
        figures = {"torch": Figures(megabytes(size), speed)}
        for name, kind in (("float32", ""), ("int8", ".int8"))[: 1 + int8]:
            caller: Any = texts_caller.Model(self.part, int8=bool(kind), options=check.options())
            said, speed = check.measured(caller, texts)
            found, wrong = _agreement(said, expected)
            weighs = megabytes((self.part / f"model{kind}.onnx").stat().st_size)
            figures[name] = Figures(weighs, speed, found)
            if name == "float32" and wrong:
                raise UserError(
                    f"the exported graph differs from torch in {len(wrong)} of {found.words} texts, first in "
                    f"{texts[wrong[0]][:80]!r} ({said[wrong[0]]} instead of {expected[wrong[0]]}): nothing was "
                    "exported. This is a defect of qkv or of onnxruntime; please report it with the run"
                )
            if name == "int8" and found.percent < LEAST_INT8:
                self.warnings.append(
                    f"int8 says the same as torch for only {found.percent:.1f} % of {found.words} texts (below "
                    f"{LEAST_INT8:g} %): score it on your own data before you use it, or use the float32 file"
                )
        return figures


def described(task: Any, normalise: str) -> dict[str, Any]:
    """The content of task.json, as plain values that fit JSON.

    Of tags, `rules` are which may begin, follow another (row before column) and end, or None where all may.
    """
    config = task.config
    shared = {
        "task": task.name, "labels": list(task.labels), "window": config.window, "stride": config.stride,
        "pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK, "normalise": normalise,
    }  # fmt: skip
    if isinstance(task, Tagging):
        rules = allowed(task.labels) if task.entities and config.valid else None
        return {**shared, "rules": None if rules is None else [rule.astype(int).tolist() for rule in rules]}
    return {
        **shared, "several": task.several, "pairs": task.pairs, "pool": config.pool, "threshold": config.threshold,
        "temperature": task.temperature,
    }  # fmt: skip


def _about(told: dict[str, Any]) -> str:
    tags, pairs = told["task"] == "tagging", told.get("pairs", False)
    return _ABOUT.format(
        begin="bos; of a pair the first text's, eos, the second's, eos" if pairs else "bos",
        segments=", and segments (batch, time), 1 on the second text" if pairs else "",
        shape="(batch, time, labels); a word's are those of its first piece" if tags else "(batch, labels)",
        answers=" (which tags may follow each other)" if tags else " (temperature, pooling of windows)",
    )


def _agreement(said: Answers, expected: Answers) -> tuple[check.Agreement, list[int]]:
    """How often two lists of answers agree, and which differ by more than rounding.

    A difference counts as rounding where both are held for equally probable; a hundredth of the texts at most.
    """
    both = list(enumerate(zip(said, expected, strict=True)))
    differ = [i for i, (one, other) in both if one[0] != other[0]]
    far = [i for i, (one, other) in both if abs(one[1] - other[1]) > check.NEAR_TIE]
    ties = [i for i in differ if i not in far]
    wrong = differ if len(ties) > max(1, len(said) // 100) else far
    return check.Agreement(len(said), len(said) - len(differ), len(ties)), wrong
