"""What the pictures share: colours for light and dark ground, labels as they can be drawn, room for each label."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

INK = "#010203"  # text and lines; a colour nothing else uses, so that svg.py can turn it into currentColor
BLUE, ORANGE, GREEN, PURPLE = "#3d7fd9", "#d9762b", "#3f9a5f", "#9467bd"  # legible on white and on near black
LINES = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (PURPLE, ":"))

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "font.family": ["sans-serif"],
    "axes.titlesize": 9.0,
    "axes.linewidth": 0.6,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
}


def fade(*colours: str) -> LinearSegmentedColormap:
    """Transparent to a colour; of two, the first at the low end, the second at the high end, transparent between."""
    ends = [(*to_rgb(colour), 1.0) for colour in colours]
    clear = [(*to_rgb(colour), 0.0) for colour in colours]
    stops = [clear[0], ends[0]] if len(ends) == 1 else [ends[0], clear[0], clear[1], ends[1]]
    places = [0.0, 1.0] if len(ends) == 1 else [0.0, 0.5, 0.5, 1.0]
    return LinearSegmentedColormap.from_list("fade", list(zip(places, stops, strict=True)), N=512)


WEIGHTS, SIGNED = fade(BLUE), fade(ORANGE, BLUE)


def shown(token: str) -> str:
    """The token as it can be drawn: a space as an open box, nothing as empty quotes, control characters spelled out."""
    if token == "":
        return "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
    joiners = "\u200c\u200d"  # zero width, but they change how Persian, Indic and emoji sequences look
    return "".join(
        "\N{OPEN BOX}" if c == " " else c if c.isprintable() or c in joiners else c.encode("unicode_escape").decode()
        for c in token
    )


def em_width(label: str) -> float:
    """Width of a label in units of its font size: measured by script, because the page's font is not known here."""
    return sum(
        0.0 if unicodedata.combining(c) else 1.05 if unicodedata.east_asian_width(c) in "WF" else 0.62 for c in label
    )


def array_of(values: Any) -> np.ndarray:
    """A tensor, array or nested list as float64 numpy."""
    return np.asarray(values.detach().cpu().double() if hasattr(values, "detach") else values, dtype=np.float64)


def labelled(weights: Any, ndim: int, *sides: Sequence[str]) -> np.ndarray:
    """The weights as an array of ``ndim`` axes, the last two as long as the labels; ValueError when they are not."""
    array = array_of(weights)
    expected = tuple(len(side) for side in sides)
    if array.size == 0:
        raise ValueError(f"weights of shape {array.shape} have no cell to draw")
    if array.ndim != ndim or array.shape[-len(sides) :] != expected:
        rows, columns = expected
        raise ValueError(
            f"weights of shape {array.shape} do not fit {rows} row and {columns} column labels: "
            f"expected {'(heads, rows, columns)' if ndim == 3 else '(rows, columns)'}, for one example"
        )
    return array


def full_colour(array: np.ndarray) -> float:
    """The largest finite weight, or 1 where there is none above 0."""
    return float(np.max(array, where=np.isfinite(array), initial=0.0)) or 1.0


class Panels:
    """Equal panels of square cells on a figure that leaves each label the room it needs (all in inches)."""

    def __init__(self, rows: list[str], columns: list[str], count: int = 1, title: bool = False) -> None:
        longest = max(len(rows), len(columns), 1)
        small = count > 1
        self.cell = min(0.24, max(0.15, 1.95 / longest)) if small else min(0.42, max(0.17, 7.0 / longest))
        self.font = min(8.0 if small else 9.5, self.cell * 72 * 0.8)
        em = self.font / 72
        widest = max((em_width(c) for c in columns), default=0.0) * em
        self.tilted = widest > self.cell * 0.95
        reach = widest * math.sin(math.radians(45)) if self.tilted else em
        self.left = max((em_width(r) for r in rows), default=0.0) * em + 0.32
        self.over = reach + em + 0.22 + (0.28 if title or small else 0.0)
        self.gap = 0.22 + (max(0.0, reach - 0.3) if self.tilted else 0.0)
        self.under = 0.36
        self.width, self.height = max(len(columns), 1) * self.cell, max(len(rows), 1) * self.cell
        fit = int((9.6 - self.left) // (self.width + self.gap)) or 1
        down = math.ceil(count / fit)
        self.across = math.ceil(count / down)  # lines of equal length: 6 heads are 3 and 3, not 5 and 1
        total = (self.left + self.across * (self.width + self.gap) + 0.1, down * (self.over + self.height) + self.under)
        self.figure = Figure(figsize=total)
        self.axes = [self._place(i, total) for i in range(count)]

    def _place(self, index: int, total: tuple[float, float]) -> Axes:
        line, column = divmod(index, self.across)
        x = self.left + column * (self.width + self.gap)
        y = total[1] - (line + 1) * (self.over + self.height)
        return self.figure.add_axes((x / total[0], y / total[1], self.width / total[0], self.height / total[1]))


def strip(figure: Figure, place: tuple[float, float, float, float], cmap: Colormap, low: str, high: str) -> None:
    """A strip from no to full colour with its two ends named; ``place`` is left, bottom, width, height in inches."""
    width, height = figure.get_size_inches()
    bar = figure.add_axes((place[0] / width, place[1] / height, place[2] / width, place[3] / height))
    bar.imshow(np.linspace(0.0, 1.0, 64)[None], cmap=cmap, vmin=0.0, vmax=1.0, aspect="auto", interpolation="none")
    bar.set(xticks=[], yticks=[])
    bar.spines[:].set_alpha(0.35)
    bar.text(-0.06, 0.45, low, transform=bar.transAxes, ha="right", va="center", fontsize=7.5)
    bar.text(1.06, 0.45, high, transform=bar.transAxes, ha="left", va="center", fontsize=7.5)
