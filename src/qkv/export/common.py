"""What every kind of export needs: texts to check on, and weights in 8 bits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from qkv.data import sources
from qkv.data.pairs import spread
from qkv.data.texts import Labelled, Tagged
from qkv.errors import UserError
from qkv.run.run import Run

MOST_TEXTS = 1000
"""On how many texts an export is compared with torch."""


def data_texts(run: Run) -> list[str]:
    """Up to 1,000 texts of the run's test data (else dev, else training), as `predict` takes them."""
    try:
        data = sources.data_of(run.config.get("data", {}))
    except UserError as error:
        raise UserError(f"the run's data are needed to check the export ({error}); or give words to check on") from None
    return [_text(example) for example in spread(data.test or data.dev or data.train, MOST_TEXTS)]


def in_int8(graph: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The graph with weights in 8 bits; it is written to `folder` on the way."""
    path = folder / "unfinished.onnx"
    with _no_remarks():
        quantize_dynamic(graph, path, per_channel=True, weight_type=QuantType.QInt8)
    made = onnx.load(path)
    path.unlink()
    return made


def megabytes(size: int) -> float:
    """Of bytes."""
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


def _text(example: Any) -> str:
    if isinstance(example, Tagged):
        return " ".join(example.words)
    if isinstance(example, Labelled):
        return f"{example.text}\t{example.second}" if example.second else example.text
    return example.source
