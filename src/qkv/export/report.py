"""What an export says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qkv.export import place
from qkv.export.check import THREADS, Agreement, Speed


@dataclass(frozen=True)
class Figures:
    """One kind of weights: `megabytes` of the graph (of the run's weights for torch), speed, agreement with torch."""

    megabytes: float
    speed: Speed
    agreement: Agreement | None = None


@dataclass(frozen=True)
class ExportReport:
    """What was written and what it is worth; export.json holds the same.

    files     name to bytes
    figures   "torch", "float32" and, where asked for, "int8"
    unit      what was compared and counted: words, or texts
    warnings  what a user has to know before using the files
    """

    folder: Path
    files: Mapping[str, int]
    figures: Mapping[str, Figures]
    opset: int
    versions: Mapping[str, str]
    unit: str = "words"
    max_length: int | None = None
    max_source: int | None = None
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
    heads = f"{report.unit}/s, 32 at once", f"same {report.unit} as torch"
    lines = [f"{'':8} {'MB':>8} {heads[0]:>20} {'one at a time':>14}  {heads[1]}"]
    for name, one in report.figures.items():
        same = f"{one.agreement.percent:.1f} % of {one.agreement.words:,}" if one.agreement else ""
        lines.append(
            f"{name:8} {one.megabytes:8.2f} {one.speed.batches:20,.0f} {one.speed.alone:14,.0f}  {same}".rstrip()
        )
    return lines


def readme(report: ExportReport, about: str) -> str:
    """README.md of an export; `about` says what is in it."""
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    figures = "\n".join(f"    {line}" for line in table(report))
    warnings = "".join(f"\n**Warning:** {warning}.\n" for warning in report.warnings)
    return f"""# A model in ONNX, opset {report.opset}

{about}
`*.int8.onnx`, where they were asked for, have weights in 8 bits. Made by {versions}.

Measured with {THREADS} threads on the machine of the export:

{figures}
{warnings}"""


def written(part: Path, report: ExportReport, about: str) -> ExportReport:
    """The report, its README.md and export.json now in the folder `part`, and with the sizes of what lies there."""
    (part / "README.md").write_text(readme(report, about), encoding="utf-8")
    files = {path.name: path.stat().st_size for path in sorted(part.iterdir())}
    report = replace(report, files=files)
    (part / place.REPORT).write_text(json.dumps(report.as_json(), indent=1), encoding="utf-8")
    return report


def versions() -> dict[str, str]:
    """Of the packages that an export depends on."""
    return {name: version(name) for name in ("qkv", "torch", "onnx", "onnxruntime")}
