"""to_svg(): one element that can stand in any page, beside others, in light and dark, and is the same every time."""

import base64
import re
import struct
from html.parser import HTMLParser

import pytest
import torch

from qkv.inspection import figures
from qkv.inspection.canvas import INK, shown
from qkv.inspection.svg import to_svg

NASTY = ['</script><img src=x onerror="alert(1)">', ' id="x" href="#y" url(#z)', f'"font: 12px {INK}', "&lt;b&gt;"]


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def ids(self):
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]


def head(columns=("a", "b", "c"), rows=("x", "y"), title=""):
    weights = torch.linspace(0, 1, len(rows) * len(columns)).view(len(rows), len(columns))
    return figures.heatmap(weights, rows, columns, peaks=True, title=title).figure


def test_text_stays_text_and_no_markup_comes_out_of_it():
    page = Page("".join(to_svg(head(columns=NASTY, title=text)) for text in NASTY))
    assert set(NASTY) <= set(page.texts)
    assert {shown(text) for text in NASTY} <= set(page.texts)
    assert {tag for tag, _ in page.tags} <= {"svg", "defs", "g", "path", "text", "image", "use", "clippath", "rect"}
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)


def test_two_pictures_share_a_page():
    one, two = to_svg(head()), to_svg(head(columns=("a", "b", "d")))
    ids = Page(one + two).ids()
    assert len(ids) == len(set(ids))
    for svg in (one, two):
        used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
        assert used, "clip paths and markers are used"
        assert {a or b for a, b in used} <= set(Page(svg).ids())
    twice = Page(to_svg(head(), prefix="first") + to_svg(head(), prefix="second")).ids()
    assert len(twice) == len(set(twice))


def test_it_is_the_same_every_time_and_asks_for_nothing():
    svg = to_svg(head())
    assert svg == to_svg(head())
    assert "http" not in svg
    assert not re.search(r"<(style|script|metadata|title|!--|\?xml|!DOCTYPE)", svg)
    assert svg.startswith("<svg ")
    assert svg.rstrip().endswith("</svg>")


@pytest.mark.parametrize(
    "figure",
    [
        head(),
        figures.learning_curve({"train": [(0, 1.0), (9, 0.5)]}, reference=("baseline", 0.7)).figure,
        figures.positions_heatmap(torch.rand(5, 4) - 0.5).figure,
        figures.positions_waves(torch.rand(5, 4)).figure,
    ],
    ids=["heatmap", "curve", "positions", "waves"],
)
def test_text_and_lines_take_the_colour_and_the_font_of_the_page(figure):
    svg = to_svg(figure)
    assert INK not in svg
    assert "#000000" not in svg
    assert "currentColor" in svg
    styles = [attrs.get("style", "") for tag, attrs in Page(svg).tags if tag == "text"]
    assert styles
    assert all("fill: currentColor" in style and re.search(r"font-size: [\d.]+px", style) for style in styles)
    assert not any("font-family" in style or "font:" in style for style in styles)


def test_a_cell_is_one_pixel_scaled_without_blur():
    images = [attrs for tag, attrs in Page(to_svg(head())).tags if tag == "image"]
    sizes = []
    for attrs in images:
        assert "pixelated" in attrs["style"]
        png = base64.b64decode(attrs["href"].split("base64,")[1])
        sizes.append(struct.unpack(">II", png[16:24]))
    assert sizes[0] == (3, 2)


def test_the_label_is_for_people_who_do_not_see_the_picture():
    (root,) = [attrs for tag, attrs in Page(to_svg(head(), 'a "b" <c>')).tags if tag == "svg"]
    assert (root["role"], root["aria-label"]) == ("img", 'a "b" <c>')
    assert {"width", "height", "viewbox"} <= set(root)


def test_glyphs_that_matplotlib_lacks_are_left_to_the_browser():
    svg = to_svg(head(columns=("\u6211", "\u559c\u6b22", "\u0645\u0631\u062d\u0628\u0627")))
    assert "\u559c\u6b22" in svg
