"""A run as ONNX files, each of them run beside the model before the export counts as done."""

from __future__ import annotations

import copy
import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from qkv.data import sources as data_sources
from qkv.data.pairs import spread
from qkv.data.symbols import EOS
from qkv.errors import UserError
from qkv.export import caller, check, place, vocabulary
from qkv.export.loop import greedy_graph
from qkv.export.report import ExportReport, Figures, readme
from qkv.export.trace import OPSET, Graphs, trace
from qkv.models.encoder_decoder import EncoderDecoder
from qkv.models.transformer import TransformerEncoder
from qkv.nn.positions import Learned
from qkv.run.run import Run

MOST_WORDS = 1000
LEAST_INT8 = 98.0
"""Percent of words below which the int8 files are warned of."""

LARGEST = 2**31 - 1
"""Bytes that one ONNX file without a second one beside it can hold."""


def export_run(run: Run, folder: Path, *, int8: bool = False, words: Sequence[str] | None = None) -> ExportReport:
    """Writes greedy.onnx, encoder.onnx, decoder_step.onnx, symbols.json, caller.py, README.md and export.json.

    int8   also NAME.int8.onnx, with weights in 8 bits
    words  texts to compare with torch on; by default up to 1,000 of the run's test data

    Nothing is written unless all is: an earlier export in `folder` is replaced at the end. Raises UserError for a
    model or vocabulary that cannot be exported, for a folder that holds something else, for data that cannot be had
    and, with the number of words, when the float32 graph says something else than torch.
    """
    if not isinstance(run.model, EncoderDecoder) or not isinstance(run.model.encoder, TransformerEncoder):
        name = run.config["model"]["name"]
        raise UserError(f"only runs of the model encoder_decoder are exported yet, and {run.folder} holds a {name}")
    place.check(folder)
    model = copy.deepcopy(run.model).cpu().float().eval()
    if 4 * sum(weight.numel() for weight in model.parameters()) > LARGEST // 2:
        raise UserError("the model is too large for one ONNX file (2 GB)")
    with place.replacing(folder) as part:
        return _Export(run, model, folder, part).write(int8, words)


class _Export:
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
        versions = {name: version(name) for name in ("qkv", "torch", "onnx", "onnxruntime")}
        report = ExportReport(
            self.folder, {}, figures, OPSET, versions, self.max_length, self.max_source, self.warnings
        )
        (self.part / "README.md").write_text(readme(report), encoding="utf-8")
        report = replace(report, files=self._sizes())
        (self.part / place.REPORT).write_text(json.dumps(report.as_json(), indent=1), encoding="utf-8")
        return report

    def _sources(self, symbols: dict[str, Any], words: Sequence[str] | None) -> list[list[int]]:
        """Ids of the words to compare on, as the exported caller makes them, which must be as the run makes them."""
        texts = self._words(_data_words(self.run) if words is None else list(words), given=words is not None)
        rows = [[*self.run.task.source.encode(text), EOS] for text in texts]
        for text, row in zip(texts, rows, strict=True):
            if symbols["normalise"] == "none" and caller.encode(self.part, symbols, text) != row:
                raise UserError(f"the exported symbols read {text!r} otherwise than the run: nothing was exported")
        return rows

    def _words(self, texts: list[str], given: bool) -> list[str]:
        """At most 1,000 of the texts, those that the model can read; the rest is said where a person gave them."""
        if not texts:
            raise UserError("there are no words to compare the export with torch on: give some")
        limit = self.max_source or LARGEST
        fitting = [text for text in texts if 0 < len(self.run.task.source.encode(text)) < limit][:MOST_WORDS]
        if not fitting:
            raise UserError("none of the words to compare the export with torch on can be read by the model")
        if given and len(fitting) < len(texts):
            self.warnings.append(
                f"{len(texts) - len(fitting)} of {len(texts)} words were not compared: empty, too long for the model, "
                f"or beyond {MOST_WORDS}"
            )
        return fitting

    def _save(self, graphs: Graphs, kind: str) -> None:
        made = {"greedy": greedy_graph(graphs, self.max_length), "encoder": graphs.encoder, "decoder_step": graphs.step}
        for name, graph in made.items():
            onnx.checker.check_model(graph, full_check=True)
            onnx.save(graph, self.part / f"{name}{kind}.onnx")

    def _in_int8(self, graphs: Graphs) -> Graphs:
        made: list[onnx.ModelProto] = []
        for graph in (graphs.encoder, graphs.step):
            path = self.part / "unfinished.onnx"
            with _no_remarks():
                quantize_dynamic(graph, path, per_channel=True, weight_type=QuantType.QInt8)
            made.append(onnx.load(path))
            path.unlink()
        return Graphs(*made)

    def _figures(self, sources: list[list[int]], int8: bool) -> dict[str, Figures]:
        reference = check.Torch(self.model, self.max_length)
        with check.torch_threads():
            expected, speed = check.measured(reference, sources)
        weights = {id(weight): weight.numel() for weight in self.model.parameters()}
        figures = {"torch": Figures(_megabytes(4 * sum(weights.values())), speed)}
        for name, kind in (("float32", ""), ("int8", ".int8"))[: 1 + int8]:
            path = self.part / f"greedy{kind}.onnx"
            said, speed = check.measured(check.Graph(path), sources)
            found, wrong = check.agreement(reference, sources, said, expected)
            figures[name] = Figures(_megabytes(path.stat().st_size), speed, found)
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

    def _sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in sorted(self.part.iterdir())}


def _data_words(run: Run) -> list[str]:
    try:
        pairs = data_sources.data_of(run.config.get("data", {}))
    except UserError as error:
        raise UserError(f"the run's data are needed to check the export ({error}); or give words to check on") from None
    return [example.source for example in spread(pairs.test or pairs.dev or pairs.train, MOST_WORDS)]


def _megabytes(size: int) -> float:
    return round(size / 1e6, 3)


@contextmanager
def _no_remarks() -> Iterator[None]:
    """Without the quantiser's advice to prepare the graph first, which is for convolutions."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
