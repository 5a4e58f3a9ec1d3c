"""A run from text to text as ONNX files."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from qkv.data.symbols import EOS
from qkv.errors import UserError
from qkv.export import caller, check, vocabulary
from qkv.export.common import MOST_TEXTS, data_texts, in_int8, megabytes
from qkv.export.loop import greedy_graph
from qkv.export.report import ExportReport, Figures, versions, written
from qkv.export.trace import OPSET, Graphs, trace
from qkv.models.encoder_decoder import EncoderDecoder
from qkv.nn.positions import Learned
from qkv.run.run import Run

LEAST_INT8 = 98.0
"""Percent of words below which the int8 files are warned of."""

_ABOUT = """`python caller.py TEXT ...` answers texts; it needs onnxruntime and numpy.

- `greedy.onnx`: source (batch, time) int64, each row's ids, then eos, then pads; gives target (batch, steps) with
  eos and pads, length (batch) without them, log_prob (batch). At most {} symbols.
- `encoder.onnx`, `decoder_step.onnx`: the same in two parts, for a beam search. Begin with pasts of length 0;
  `memory_*` and `source_mask` come from the encoder, `present_*` are the next step's `past_*`.
- `symbols.json`: symbols by id and how a text is cut.
"""


class PairExport:
    """greedy.onnx with the loop inside, encoder.onnx and decoder_step.onnx for a beam, symbols.json, caller.py."""

    def __init__(self, run: Run, model: EncoderDecoder, folder: Path, part: Path):
        self.run, self.model, self.folder, self.part = run, model, folder, part
        table = model.decoder.embedding.positions
        self.max_source = table.max_len if isinstance(table, Learned) else None
        wanted = run.task.config.max_length
        self.max_length = min(wanted, self.max_source or wanted)
        self.warnings: list[str] = []
        if self.max_length < wanted:
            self.warnings.append(
                f"answers are cut at {self.max_length} symbols, where the learned positions end; "
                f"the run allows {wanted}"
            )

    def write(self, int8: bool, words: Sequence[str] | None) -> ExportReport:
        self.run.task.save(self.part)
        normalise = str(self.run.config.get("data", {}).get("normalise", "none"))
        symbols = vocabulary.describe(
            self.part, normalise=normalise, max_source=self.max_source, max_length=self.max_length
        )
        (self.part / "symbols.json").write_text(json.dumps(symbols, ensure_ascii=False, indent=1), encoding="utf-8")
        shutil.copyfile(caller.__file__, self.part / "caller.py")
        sources = self._sources(symbols, words)
        graphs = trace(self.model)
        self._save(graphs, "")
        if int8:
            self._save(self._in_int8(graphs), ".int8")
        figures = self._figures(sources, int8)
        report = ExportReport(
            self.folder, {}, figures, OPSET, versions(), "words", self.max_length, self.max_source, self.warnings
        )
        return written(self.part, report, _ABOUT.format(self.max_length))

    def _sources(self, symbols: dict[str, Any], words: Sequence[str] | None) -> list[list[int]]:
        """Ids of the words to compare on, as the exported caller makes them, which must be as the run makes them."""
        texts = self._words(data_texts(self.run) if words is None else list(words), given=words is not None)
        rows = [[*self.run.task.source.encode(text), EOS] for text in texts]
        for text, row in zip(texts, rows, strict=True):
            if symbols["normalise"] == "none" and caller.encode(self.part, symbols, text) != row:
                raise UserError(f"the exported symbols read {text!r} otherwise than the run: nothing was exported")
        return rows

    def _words(self, texts: list[str], given: bool) -> list[str]:
        """At most 1,000 of the texts, those that the model can read; the rest is said where a person gave them."""
        if not texts:
            raise UserError("there are no words to compare the export with torch on: give some")
        limit = self.max_source or sys.maxsize
        fitting = [text for text in texts if 0 < len(self.run.task.source.encode(text)) < limit][:MOST_TEXTS]
        if not fitting:
            raise UserError("none of the words to compare the export with torch on can be read by the model")
        if given and len(fitting) < len(texts):
            self.warnings.append(
                f"{len(texts) - len(fitting)} of {len(texts)} words were not compared: empty, too long for the model, "
                f"or beyond {MOST_TEXTS}"
            )
        return fitting

    def _save(self, graphs: Graphs, kind: str) -> None:
        made = {"greedy": greedy_graph(graphs, self.max_length), "encoder": graphs.encoder, "decoder_step": graphs.step}
        for name, graph in made.items():
            onnx.checker.check_model(graph, full_check=True)
            onnx.save(graph, self.part / f"{name}{kind}.onnx")

    def _in_int8(self, graphs: Graphs) -> Graphs:
        return Graphs(*(in_int8(graph, self.part) for graph in (graphs.encoder, graphs.step)))

    def _figures(self, sources: list[list[int]], int8: bool) -> dict[str, Figures]:
        reference = check.Torch(self.model, self.max_length)
        with check.torch_threads():
            expected, speed = check.measured(reference, sources)
        weights = {id(weight): weight.numel() for weight in self.model.parameters()}
        figures = {"torch": Figures(megabytes(4 * sum(weights.values())), speed)}
        for name, kind in (("float32", ""), ("int8", ".int8"))[: 1 + int8]:
            path = self.part / f"greedy{kind}.onnx"
            said, speed = check.measured(check.Graph(path), sources)
            found, wrong = check.agreement(reference, sources, said, expected)
            figures[name] = Figures(megabytes(path.stat().st_size), speed, found)
            if name == "float32" and wrong:
                word = "".join(self.run.task.source.decode(sources[wrong[0]]))
                raise UserError(
                    f"the exported graph differs from torch in {len(wrong)} of {found.words} words, first in {word!r}: "
                    "nothing was exported. This is a defect of qkv or of onnxruntime; please report it with the run"
                )
            if name == "float32" and found.near_ties:
                self.warnings.append(
                    f"{found.near_ties} of {found.words} words differ from torch, each where two symbols are equally "
                    f"good to within {check.NEAR_TIE:g}"
                )
            if name == "int8" and found.percent < LEAST_INT8:
                self.warnings.append(
                    f"int8 says the same as torch for only {found.percent:.1f} % of {found.words} words (below "
                    f"{LEAST_INT8:g} %): score it on your own data before you use it, or use the float32 files"
                )
        return figures
