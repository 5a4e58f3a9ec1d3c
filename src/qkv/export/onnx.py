"""A run as ONNX files, each of them run beside the model before the export counts as done."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from qkv.errors import UserError
from qkv.export import pairs, place, texts
from qkv.export.report import ExportReport
from qkv.models.encoder_decoder import EncoderDecoder
from qkv.models.transformer import TransformerEncoder
from qkv.run.run import Run
from qkv.tasks.classification import Classification
from qkv.tasks.tagging import Tagging

LARGEST = 2**31 - 1
"""Bytes that one ONNX file without a second one beside it can hold."""


def export_run(run: Run, folder: Path, *, int8: bool = False, words: Sequence[str] | None = None) -> ExportReport:
    """Writes the graphs of a run, what a caller needs beside them, caller.py, README.md and export.json.

    A Transformer from text to text becomes greedy.onnx, encoder.onnx and decoder_step.onnx (see `qkv.export.pairs`),
    a model of any kind that labels or tags texts model.onnx (see `qkv.export.texts`).

    int8   also NAME.int8.onnx, with weights in 8 bits
    words  texts to compare with torch on; by default up to 1,000 of the run's test data

    Nothing is written unless all is: an earlier export in `folder` is replaced at the end. Raises UserError for a
    model or vocabulary that cannot be exported, for a folder that holds something else, for data that cannot be had
    and, with their number, when the float32 graph answers some texts otherwise than torch.
    """
    attending = isinstance(run.model, EncoderDecoder) and isinstance(run.model.encoder, TransformerEncoder)
    if not attending and not isinstance(run.task, Classification | Tagging):
        name = run.config["model"]["name"]
        raise UserError(
            f"{run.folder} holds {name} for the task {run.task.name}, which cannot be exported yet: runs that "
            "classify or tag can be, with any model, and of the task seq2seq those of encoder_decoder"
        )
    place.check(folder)
    model = copy.deepcopy(run.model).cpu().float().eval()
    if 4 * sum(weight.numel() for weight in model.parameters()) > LARGEST // 2:
        raise UserError("the model is too large for one ONNX file (2 GB)")
    with place.replacing(folder) as part:
        if isinstance(model, EncoderDecoder):
            return pairs.PairExport(run, model, folder, part).write(int8, words)
        return texts.TextExport(run, model, folder, part).write(int8, words)
