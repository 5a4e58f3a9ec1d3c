"""Figures show the numbers they are given, with labels that can be read, and leave matplotlib's global state alone."""

import math
import subprocess
import sys
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from qkv.errors import UserError
from qkv.inspection import figures
from qkv.nn.positions import sinusoid

SENTENCE = [
    "the", "animal", "did", "not", "cross", "the", "street", "because", "it", "was", "too", "tired", "and",
    "the", "road", "was", "wide", ",", "so", "it", "lay", "down", "under", "a", "large", "old", "tree", "until",
    "evening", ".",
]  # fmt: skip


def weights(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).mul(2).softmax(-1)


def drawn(axes):
    FigureCanvasAgg(axes.figure).draw()
    return axes


def boxes(axis):
    return [label.get_window_extent() for label in axis.get_ticklabels()]


def test_heatmap_draws_the_weights_under_their_labels():
    w = weights(3, 4)
    axes = figures.heatmap(w, ["a", "b", "c"], ["e", "f", "g", "h"], names=("target token", "source token"), title="t")
    assert isinstance(axes, Axes)
    np.testing.assert_array_equal(axes.images[0].get_array(), w.double().numpy())
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a", "b", "c"]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["e", "f", "g", "h"]
    assert (axes.get_ylabel(), axes.get_xlabel(), axes.get_title(loc="left")) == ("target token", "source token", "t")
    assert axes.yaxis_inverted(), "the first query is on top"
    assert axes.images[0].get_clim() == (0.0, pytest.approx(w.max().item()))


def test_no_weight_is_transparent_and_the_limit_is_opaque():
    image = figures.heatmap([[0.0, 0.25, 0.5]], ["q"], ["a", "b", "c"]).images[0]
    alpha = image.to_rgba(image.get_array())[0, :, 3]
    np.testing.assert_allclose(alpha, [0.0, 0.5, 1.0], atol=2e-3)


@pytest.mark.parametrize("tokens", [SENTENCE[:6], SENTENCE], ids=["6 tokens", "30 tokens"])
def test_labels_can_be_read(tokens):
    axes = drawn(figures.heatmap(weights(len(tokens), len(tokens)), tokens, tokens, title="head 3"))
    assert len(tokens) in (6, 30)
    whole = axes.figure.bbox
    labels = boxes(axes.yaxis) + boxes(axes.xaxis)
    for box in [*labels, axes.xaxis.label.get_window_extent(), axes.yaxis.label.get_window_extent()]:
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1  # noqa: PT018
    rows = sorted(boxes(axes.yaxis), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 for low, high in pairwise(rows)), "row labels overlap"
    label = axes.get_xticklabels()[0]
    assert label.get_fontsize() >= 8
    step = axes.bbox.width / len(tokens)
    if label.get_rotation():
        # Tilted labels are parallel bands: they are apart when the distance across them is more than a line of text.
        assert step * math.sin(math.radians(45)) >= 0.8 * label.get_fontsize() * axes.figure.dpi / 72
    else:
        columns = sorted(boxes(axes.xaxis), key=lambda box: box.x0)
        assert all(left.x1 <= right.x0 for left, right in pairwise(columns))


def test_a_token_is_drawn_as_it_is():
    tokens = ["$x_1$", " ", "", "\n", "\x00", "\u202eab", "a\u200cb", "\u732b"]
    axes = figures.heatmap(weights(8, 8), tokens, tokens)
    texts = axes.get_yticklabels()
    shown = [t.get_text() for t in texts]
    assert shown == ["$x_1$", "\u2423", "\u201c\u201d", "\\n", "\\x00", "\\u202eab", "a\u200cb", "\u732b"]
    assert not any(t.get_parse_math() for t in texts)


@pytest.mark.parametrize(("heads", "lines"), [(1, 1), (4, 1), (6, 2), (8, 2)])
def test_heads_are_one_panel_each_on_one_scale(heads, lines):
    w = weights(heads, 12, 10)
    all_axes = figures.heads(w, [str(i) for i in range(12)], [str(i) for i in range(10)])
    assert [axes.get_title(loc="left") for axes in all_axes] == [f"head {i}" for i in range(heads)]
    for head, axes in enumerate(all_axes):
        np.testing.assert_array_equal(axes.images[0].get_array(), w[head].double().numpy())
    assert {axes.images[0].get_clim() for axes in all_axes} == {(0.0, w.double().max().item())}
    assert len({round(axes.get_position().y0, 4) for axes in all_axes}) == lines
    assert all_axes[0].figure.get_figwidth() <= 9.8
    places = [axes.get_position() for axes in all_axes]
    assert all(p.min.min() >= 0 and p.max.max() <= 1 for p in places)


def test_alignment_rings_the_strongest_source_token_of_each_row():
    w = torch.tensor([[0.1, 0.9, 0.0], [0.0, 0.0, 0.0], [0.5, 0.1, 0.4]])  # the second row attends to nothing
    axes = figures.alignment(w, ["x", "y", "z"], ["a", "b", "c"])
    (rings,) = axes.lines
    assert list(zip(rings.get_ydata(), rings.get_xdata(), strict=True)) == [(0, 1), (2, 0)]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("target token", "source token")
    assert axes.images[0].get_clim() == (0.0, 1.0)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (2, 3, 3), (1, 1, 3, 3)])
def test_labels_that_do_not_fit_are_refused(shape):
    with pytest.raises(ValueError, match=r"do not fit 3 row and 3 column labels: expected \(rows, columns\)"):
        figures.heatmap(torch.zeros(*shape), ["a", "b", "c"], ["a", "b", "c"])
    with pytest.raises(ValueError, match="no cell"):
        figures.heads(torch.zeros(0, 3, 3), ["a", "b", "c"], ["a", "b", "c"])


def test_weights_that_are_not_numbers_leave_holes():
    axes = drawn(figures.heatmap([[math.nan, 0.5]], ["q"], ["a", "b"], peaks=True))
    assert axes.images[0].get_clim() == (0.0, 0.5)


def test_position_heatmap_is_the_table():
    table = sinusoid(torch.arange(20), 16)
    axes = figures.positions_heatmap(table)
    np.testing.assert_array_equal(axes.images[0].get_array(), table.double().numpy())
    assert axes.images[0].get_clim() == (-1.0, 1.0)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dimension", "position")


def test_waves_run_from_fast_dimension_0_on_top_to_slow():
    table = sinusoid(torch.arange(400), 32)
    axes = figures.positions_waves(table)
    waves = [line for line in axes.lines if line.get_gid()]
    dimensions = [int(line.get_gid().removeprefix("dimension-")) for line in waves]
    assert dimensions[0] == 0
    assert dimensions[-1] == 30
    assert dimensions == sorted(dimensions)
    levels = axes.get_yticks()
    assert list(levels) == sorted(levels, reverse=True), "dimension 0 is on top"
    crossings = []
    for line, dimension, level in zip(waves, dimensions, levels, strict=True):
        wave = line.get_ydata() - level
        np.testing.assert_allclose(wave, table[:, dimension], atol=1e-6)
        crossings.append(int((np.diff(np.sign(wave[1:])) != 0).sum()))
    assert crossings == sorted(crossings, reverse=True)
    assert crossings[0] == int(399 / math.pi)  # sin(position) changes sign every pi positions
    assert crossings[-1] == 0


def test_waves_of_odd_and_tiny_widths():
    assert figures.wave_dimensions(1) == [0]
    assert figures.wave_dimensions(5) == [0, 2, 4]
    axes = figures.positions_waves(sinusoid(torch.arange(9), 5), wavelengths=[2 * math.pi, 0, 250.0, 0, 54410.3])
    assert [t.get_text() for t in axes.get_yticklabels()] == [
        "dimension 0, wavelength 6.28", "dimension 2, wavelength 250", "dimension 4, wavelength 54,410",
    ]  # fmt: skip


def test_learning_curve_shows_every_line_the_baseline_and_where_it_broke():
    axes = figures.learning_curve(
        {"train": [(0, 3.0), (10, math.inf), (20, 1.0)], "dev $x$": [(20, 1.5)]},
        reference=("baseline", 2.0),
        y_label="%",
    )
    train, dev, baseline = axes.lines
    np.testing.assert_array_equal(train.get_ydata(), [3.0, math.nan, 1.0])
    assert list(dev.get_xdata()) == [20]
    assert set(baseline.get_ydata()) == {2.0}
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["train", "dev $x$", "baseline"]
    assert train.get_linestyle() != dev.get_linestyle(), "told apart without colour"
    assert axes.get_ylim()[0] == 0.0
    drawn(axes)


def test_no_points_is_an_empty_picture():
    assert drawn(figures.learning_curve({})).lines[:] == []


def test_a_given_axes_is_drawn_into():
    figure = matplotlib.figure.Figure()
    first, second, third = figure.subplots(1, 3)
    assert figures.heatmap(weights(2, 2), ["a", "b"], ["a", "b"], ax=first) is first
    assert figures.positions_heatmap(weights(3, 4), ax=second) is second
    assert figures.learning_curve({"a": [(0, 1), (1, 2)]}, ax=third) is third
    assert len(figure.axes) == 3


def test_global_state_is_left_alone(tmp_path):
    code = (
        "import matplotlib, sys; before = matplotlib.rcParams.copy(); from qkv.inspection import figures\n"
        "figures.heatmap([[1.0]], ['a'], ['b']).figure.savefig(sys.argv[1])\n"
        "assert dict(dict.items(matplotlib.rcParams)) == dict(dict.items(before))\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "head.png")], check=True)
    assert (tmp_path / "head.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_is_saved_whole_and_a_bad_path_is_named(tmp_path):
    ax = figures.heatmap([[1.0, 0.0], [0.5, 0.5]], ["a", "b"], ["c", "d"])
    figures.save(ax, tmp_path / "head.png")
    assert (tmp_path / "head.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="nowhere"):
        figures.save(ax, tmp_path / "nowhere" / "head.png")
    with pytest.raises(UserError, match=r"head\.xyz"):
        figures.save(ax, tmp_path / "head.xyz")
