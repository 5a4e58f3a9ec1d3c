"""Pictures of attention, positions and learning, drawn with matplotlib and without pyplot.

Every function makes its own ``Figure`` (or draws into the ``ax`` it is given) and returns the ``Axes``; the figure is
``axes.figure``, so ``axes.figure.savefig("head.pdf")`` is all that a paper needs. Cells are drawn from transparent (0)
to full colour (the limit), so that one picture sits on a light and on a dark page; ``svg.to_svg`` makes its text
follow the page.

Letters: H heads, Tq queries (rows), Tk keys (columns), T positions, D ``d_model``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from qkv.errors import UserError
from qkv.inspection.canvas import (
    BLUE,
    INK,
    LINES,
    SIGNED,
    STYLE,
    WEIGHTS,
    Panels,
    array_of,
    full_colour,
    labelled,
    shown,
    strip,
)


def heatmap(
    weights: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    names: tuple[str, str] = ("query", "key"),
    limit: float | None = None,
    peaks: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """One head: weights (Tq, Tk), each row a query and what it attends to.

    ``limit`` is the weight drawn in full colour (default: the largest there is); ``names`` are the axes of the record.
    Raises ValueError when the labels do not fit the weights.
    """
    matrix = labelled(weights, 2, rows, columns)
    row_labels, column_labels = [shown(r) for r in rows], [shown(c) for c in columns]
    limit = limit or full_colour(matrix)
    with matplotlib.rc_context(STYLE):
        panels = None
        if ax is None:
            panels = Panels(row_labels, column_labels, title=bool(title))
            ax = panels.axes[0]
            strip(panels.figure, (panels.left + 0.2, 0.1, 0.9, 0.09), WEIGHTS, "0", f"{limit:.2g} weight")
        _cells(ax, matrix, limit)
        _labels(ax, row_labels, column_labels, panels.font if panels else 8.0, panels.tilted if panels else True)
        if peaks:
            _peaks(ax, matrix)
        ax.set_ylabel(names[0], fontsize=8.0)
        ax.set_xlabel(names[1], fontsize=8.0)
        if title:
            ax.set_title(title, loc="left", pad=8, parse_math=False)
    return ax


def heads(
    weights: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    names: tuple[str, str] = ("query", "key"),
    limit: float | None = None,
    peaks: bool = False,
) -> list[Axes]:
    """Every head of one layer side by side on one colour scale: weights (H, Tq, Tk), as many in a line as fit a page.

    Row labels stand at the left of each line, column labels over each panel. Raises ValueError as `heatmap` does.
    """
    cube = labelled(weights, 3, rows, columns)
    row_labels, column_labels = [shown(r) for r in rows], [shown(c) for c in columns]
    limit = limit or full_colour(cube)
    with matplotlib.rc_context(STYLE):
        panels = Panels(row_labels, column_labels, len(cube), title=True)
        for index, (ax, matrix) in enumerate(zip(panels.axes, cube, strict=True)):
            first = index % panels.across == 0
            _cells(ax, matrix, limit)
            _labels(ax, row_labels if first else None, column_labels, panels.font, panels.tilted)
            if peaks:
                _peaks(ax, matrix)
            ax.set_title(f"head {index}", loc="left", fontsize=8.0, pad=6)
            ax.set_xlabel(names[1], fontsize=7.0)
            if first:
                ax.set_ylabel(names[0], fontsize=7.0)
        strip(panels.figure, (panels.left + 0.2, 0.1, 0.9, 0.09), WEIGHTS, "0", f"{limit:.2g} weight")
    return panels.axes


def alignment(
    weights: Any, target: Sequence[str], source: Sequence[str], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Which source token each target token was read from: weights (Tq, Tk) of one cross-attention head on a fixed scale
    of 0 to 1, a ring on the strongest source token of each row (Bahdanau et al. 2015, figure 3)."""
    names = ("target token", "source token")
    return heatmap(weights, target, source, title=title, names=names, limit=1.0, peaks=True, ax=ax)


def positions_heatmap(table: Any, *, ax: Axes | None = None) -> Axes:
    """A position encoding (T, D) as it is added to the embeddings: one row a position, one column a dimension."""
    array = array_of(table)
    limit = full_colour(np.abs(array))
    with matplotlib.rc_context(STYLE):
        if ax is None:
            figure = Figure(figsize=(7.0, 3.5))
            ax = figure.add_axes((0.55 / 7.0, 0.8 / 3.5, 6.35 / 7.0, 2.6 / 3.5))
            strip(figure, (0.85, 0.1, 1.4, 0.09), SIGNED, f"{-limit:.2g}", f"{limit:.2g}")
        ax.imshow(array, cmap=SIGNED, vmin=-limit, vmax=limit, aspect="auto", interpolation="none")
        ax.spines[:].set_alpha(0.35)
        ax.set(xlabel="dimension", ylabel="position")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
    return ax


def wave_dimensions(d_model: int, count: int = 8) -> list[int]:
    """Even dimensions (the sines) spread over the encoding, from 0, the fastest, to the last, the slowest."""
    pairs = np.linspace(0, (d_model - 1) // 2, min(count, (d_model + 1) // 2))
    return [2 * round(float(pair)) for pair in pairs]


def positions_waves(
    table: Any,
    *,
    dimensions: Sequence[int] | None = None,
    wavelengths: Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Single dimensions of a position encoding (T, D) along the positions, dimension 0 on top.

    In the sinusoid dimension 0 is the fastest, wavelength 2 pi, and the last pair the slowest, 2 pi 10000^((D-2)/D)
    (Vaswani et al. 2017, section 3.5). ``wavelengths`` (D,), in positions, are written beside the lines when given.
    """
    array = array_of(table)
    picked = wave_dimensions(array.shape[1]) if dimensions is None else list(dimensions)
    step = 2.6 * full_colour(np.abs(array[:, picked]))
    with matplotlib.rc_context(STYLE):
        if ax is None:
            ax = Figure(figsize=(7.0, 0.55 + 0.42 * len(picked)), layout="constrained").add_subplot()
        for line, dimension in enumerate(picked):
            ax.axhline(-line * step, color=INK, lw=0.4, alpha=0.25)
            ax.plot(array[:, dimension] - line * step, color=BLUE, lw=1.2, gid=f"dimension-{dimension}")
        names = [f"dimension {d}" for d in picked]
        if wavelengths is not None:
            names = [f"{name}, wavelength {_rounded(wavelengths[d])}" for name, d in zip(names, picked, strict=True)]
        ax.set_yticks([-line * step for line in range(len(picked))], names)
        ax.tick_params(axis="y", length=0)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.set(xlabel="position", xlim=(0, max(len(array) - 1, 1)))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax


def learning_curve(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str = "step",
    y_label: str = "loss",
    reference: tuple[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Lines of (x, y) points by name, such as the loss in training and on held-out data.

    ``reference`` (name, y) is a level to compare with, such as a baseline, drawn as a thin horizontal line. Points that
    are not finite leave a gap, so that a run that broke shows where.
    """
    with matplotlib.rc_context(STYLE):
        if ax is None:
            ax = Figure(figsize=(7.0, 3.0), layout="constrained").add_subplot()
        for index, (name, points) in enumerate(series.items()):
            colour, dash = LINES[index % len(LINES)]
            x, y = [p[0] for p in points], [p[1] if math.isfinite(p[1]) else math.nan for p in points]
            marker = "o" if len(points) <= 40 else None
            ax.plot(x, y, color=colour, ls=dash, lw=1.5, marker=marker, ms=3, label=name)
        if reference is not None:
            ax.axhline(reference[1], color=INK, lw=0.9, ls=(0, (4, 3)), label=reference[0])
        ax.grid(axis="y", color=INK, alpha=0.12, lw=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set(xlabel=x_label, ylabel=y_label)
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
        if series or reference:
            for text in ax.legend(loc="best", fontsize=8.0).get_texts():
                text.set_parse_math(False)
    return ax


def save(ax: Axes, path: str | Path, dpi: int = 160) -> None:
    """Writes the whole figure of `ax`; the suffix says the form (.png, .svg, .pdf). The ground is white, as on paper.

    Raises UserError naming the path when it cannot be written, or a suffix that no writer knows.
    """
    figure = ax.get_figure(root=True)
    if not isinstance(figure, Figure):
        raise ValueError("these axes belong to no figure")
    try:
        figure.savefig(path, dpi=dpi, facecolor="white")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"cannot write {path}: {error}") from None


def _cells(ax: Axes, weights: np.ndarray, limit: float) -> None:
    ax.imshow(weights, cmap=WEIGHTS, vmin=0.0, vmax=limit, interpolation="none", aspect="equal")
    ax.spines[:].set_alpha(0.35)
    ax.tick_params(length=0, pad=2.5)
    ax.set(xticks=[], yticks=[])


def _labels(ax: Axes, rows: list[str] | None, columns: list[str] | None, font: float, tilted: bool) -> None:
    text = {"fontsize": font, "parse_math": False}  # a token "$x$" is a token, not a formula
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    if columns is not None:
        turned = {"rotation": 45, "ha": "left", "va": "bottom", "rotation_mode": "anchor"} if tilted else {}
        ax.set_xticks(range(len(columns)), columns, **text, **turned)
    if rows is not None:
        ax.set_yticks(range(len(rows)), rows, **text)


def _peaks(ax: Axes, weights: np.ndarray) -> None:
    """A ring on the strongest key of each row; a row that attends to nothing has none."""
    rows = [i for i, row in enumerate(weights) if row.max() > 0]
    ax.plot(weights[rows].argmax(-1), rows, "o", ms=3.2, mfc="none", mec=INK, mew=0.7, zorder=3)


def _rounded(number: float) -> str:
    """Three significant digits, grouped, never in powers of ten: 6.28, 628, 54,410."""
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
