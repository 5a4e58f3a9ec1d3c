"""The report of a run as one offline HTML file.

It knows no model and no task: it is handed numbers, texts, and weights with their labels. The page asks for nothing
from anywhere (its own policy forbids it), runs no script, and shows every text as text.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from matplotlib.axes import Axes

from qkv.errors import UserError
from qkv.inspection import figures, shapes
from qkv.inspection.canvas import array_of
from qkv.inspection.svg import to_svg


@dataclass(frozen=True)
class Summary:
    """What the numbers are about: each must be said for a number to mean something.

    ``facts`` are further (name, text) lines, such as the size of the model and the time it trained.
    """

    lead: str
    data: str
    split: str
    seeds: Sequence[int]
    scoring: str
    facts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Metric:
    """One headline number beside the baseline's, in ``unit``; ``meaning`` says in words what is counted."""

    name: str
    value: float
    baseline: float | None = None
    baseline_name: str = "baseline"
    unit: str = "%"
    meaning: str = ""
    digits: int = 1


@dataclass(frozen=True)
class Curve:
    """Lines of (x, y) points by name; ``reference`` is a (name, y) level to compare with."""

    title: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    x_label: str = "step"
    y_label: str = "loss"
    reference: tuple[str, float] | None = None


@dataclass(frozen=True)
class Example:
    """One input, what the model made of it, and every output that counts as right (none when nobody knows)."""

    source: str
    output: str
    references: Sequence[str] = ()
    score: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows of texts and numbers under column names; numbers stand to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    note: str = ""


@dataclass(frozen=True)
class Attention:
    """Weights (Tq, Tk) of one head or (H, Tq, Tk) of all heads of a layer, for one input, with a label per token.

    ``axes`` say what rows and columns are, as those of a record do.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: Any
    axes: tuple[str, str] = ("query", "key")
    note: str = ""


@dataclass(frozen=True)
class PositionTable:
    """A position encoding (T, D) and, where it has any, the wavelength of each dimension in positions."""

    table: Any
    wavelengths: Sequence[float] | None = None
    note: str = ""


@dataclass(frozen=True)
class NextStep:
    """Something to try, and the command for it."""

    text: str
    command: str = ""


def write_report(
    path: str | Path,
    *,
    title: str,
    summary: Summary,
    metrics: Sequence[Metric],
    learning: Sequence[Curve] = (),
    unseen: Sequence[Example] = (),
    unseen_title: str = "Inputs that are in no data set",
    examples_right: Sequence[Example] = (),
    examples_wrong: Sequence[Example] = (),
    tables: Sequence[Table] = (),
    alignments: Sequence[Attention] = (),
    self_attention: Attention | None = None,
    shapes: Sequence[shapes.Row] = (),
    positions: PositionTable | None = None,
    next_steps: Sequence[NextStep] = (),
) -> Path:
    """Writes the page to ``path`` (folders are made, an older page is replaced in one step) and returns the path.

    What is empty has no section. Raises UserError when the file cannot be written, ValueError when weights and labels
    do not fit.
    """
    drawing = _Drawing()
    page = {
        "title": title, "summary": summary, "metrics": metrics, "unseen": unseen, "unseen_title": unseen_title,
        "right": examples_right, "wrong": examples_wrong, "shapes": shapes, "next_steps": next_steps,
        "positions": positions, "tables": tables,
        "curves": [(curve, drawing.curve(curve)) for curve in learning],
        "alignments": [(one, drawing.attention(one, aligned=True)) for one in alignments],
        "self_attention": self_attention and (self_attention, drawing.attention(self_attention)),
        "position_pictures": drawing.positions(positions) if positions else (),
    }  # fmt: skip
    # A lone surrogate cannot be written as UTF-8: it is shown by its number.
    return _write(Path(path), _template().render(page).encode("utf-8", "backslashreplace"))


class _Drawing:
    """Figures as inline SVG, each with its own prefix for ids."""

    def __init__(self) -> None:
        self._count = 0

    def _svg(self, ax: Axes, label: str) -> Markup:
        self._count += 1
        return Markup(to_svg(ax.get_figure(root=True), label, f"figure{self._count}"))  # type: ignore[arg-type]

    def curve(self, curve: Curve) -> Markup:
        ax = figures.learning_curve(
            curve.series, x_label=curve.x_label, y_label=curve.y_label, reference=curve.reference
        )
        last = [f"{name} ends at {points[-1][1]:.3g}" for name, points in curve.series.items() if points]
        return self._svg(ax, f"{curve.title}, {curve.y_label} by {curve.x_label}: {'; '.join(last)}")

    def attention(self, one: Attention, aligned: bool = False) -> Markup:
        """Alignments share the scale 0 to 1, so that one word compares with the next, and ring each row's strongest."""
        draw = figures.heads if array_of(one.weights).ndim == 3 else figures.heatmap
        limit = 1.0 if aligned else None
        drawn = draw(one.weights, one.rows, one.columns, names=one.axes, limit=limit, peaks=aligned)
        label = f"Attention weights of {one.title}: rows are {one.axes[0]}s, columns {one.axes[1]}s"
        return self._svg(drawn[0] if isinstance(drawn, list) else drawn, label)

    def positions(self, positions: PositionTable) -> tuple[Markup, Markup]:
        length, width = array_of(positions.table).shape
        return (
            self._svg(
                figures.positions_heatmap(positions.table),
                f"Heatmap of the position encoding: {length} positions by {width} dimensions",
            ),
            self._svg(
                figures.positions_waves(positions.table, wavelengths=positions.wavelengths),
                "Single dimensions along the positions, from dimension 0 on top to the last at the bottom",
            ),
        )


def differences(example: Example) -> list[tuple[str, bool]]:
    """The output in pieces, True for what differs from the nearest reference: word by word, or letter by letter
    where the output has no spaces. The pieces joined are the output."""
    glue = " " if " " in example.output else ""
    output = example.output.split(" ") if glue else list(example.output)
    matchers = [SequenceMatcher(None, output, r.split(" ") if glue else list(r), False) for r in example.references]
    if not matchers:
        return [(example.output, False)]
    nearest = max(matchers, key=lambda matcher: matcher.ratio())
    pieces: list[tuple[str, bool]] = []
    for operation, start, end, _, _ in nearest.get_opcodes():
        if end > start:
            if pieces and glue:
                pieces.append((glue, False))
            pieces.append((glue.join(output[start:end]), operation != "equal"))
    return pieces


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("qkv.experiments"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(differences=differences, legend=shapes.LEGEND)
    return environment.get_template("report.html.j2")


def _write(path: Path, content: bytes) -> Path:
    if not path.name:
        raise UserError(f"cannot write the report to {path}: it names a folder, a file such as report.html is needed")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise UserError(f"cannot write the report to {path}: {error.strerror or error}") from error
    return path
