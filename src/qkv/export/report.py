"""What an export says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qkv.export.check import THREADS, Agreement, Speed


@dataclass(frozen=True)
class Figures:
    """One kind of weights: `megabytes` of greedy.onnx (of the run's weights for torch), speed, agreement with torch."""

    megabytes: float
    speed: Speed
    agreement: Agreement | None = None


@dataclass(frozen=True)
class ExportReport:
    """What was written and what it is worth; export.json holds the same.

    files     name to bytes
    figures   "torch", "float32" and, where asked for, "int8"
    warnings  what a user has to know before using the files
    """

    folder: Path
    files: Mapping[str, int]
    figures: Mapping[str, Figures]
    opset: int
    versions: Mapping[str, str]
    max_length: int
    max_source: int | None
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain values that fit JSON, the percentages beside the counts they come from."""
        plain = {**asdict(self), "folder": str(self.folder)}
        for name, figures in self.figures.items():
            if figures.agreement is not None:
                plain["figures"][name]["agreement"]["percent"] = round(figures.agreement.percent, 2)
        return plain


def table(report: ExportReport) -> list[str]:
    """One line for each kind of weights: size, speed, agreement with torch."""
    lines = [f"{'':8} {'MB':>8} {'words/s, 32 at once':>20} {'one at a time':>14}  same words as torch"]
    for name, one in report.figures.items():
        same = f"{one.agreement.percent:.1f} % of {one.agreement.words:,}" if one.agreement else ""
        lines.append(
            f"{name:8} {one.megabytes:8.2f} {one.speed.batches:20,.0f} {one.speed.alone:14,.0f}  {same}".rstrip()
        )
    return lines


def readme(report: ExportReport) -> str:
    """README.md of an export."""
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    figures = "\n".join(f"    {line}" for line in table(report))
    warnings = "".join(f"\n**Warning:** {warning}.\n" for warning in report.warnings)
    return f"""# A model in ONNX, opset {report.opset}

`python caller.py TEXT ...` answers texts; it needs onnxruntime and numpy. Made by {versions}.

- `greedy.onnx`: source (batch, time) int64, each row's ids, then eos, then pads; gives target (batch, steps) with
  eos and pads, length (batch) without them, log_prob (batch). At most {report.max_length} symbols.
- `encoder.onnx`, `decoder_step.onnx`: the same in two parts, for a beam search. Begin with pasts of length 0;
  `memory_*` and `source_mask` come from the encoder, `present_*` are the next step's `past_*`.
- `symbols.json`: symbols by id and how a text is cut. `*.int8.onnx`: weights in 8 bits, where they were asked for.

Measured with {THREADS} threads on the machine of the export:

{figures}
{warnings}"""
