"""A matplotlib figure as SVG inside a page: text stays text, its colour and font are the page's, ids never collide."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from qkv.inspection.canvas import INK, STYLE

_SAVE: dict[Any, Any] = {
    **STYLE,  # ticks are made while drawing
    "svg.fonttype": "none",  # text as text: selectable, found by search, drawn with the page's own glyphs
    "svg.hashsalt": "qkv",  # ids from the content and not from a random number: the same figure gives the same bytes
    "svg.image_inline": True,
    "image.composite_image": False,  # keeps one pixel a cell instead of resampling to the figure's resolution
}


def to_svg(figure: Figure, label: str = "", prefix: str = "") -> str:
    """The figure as one ``<svg>`` element for an HTML page, on light and dark ground.

    ``label`` says in words what the picture shows (for people who do not see it). Every id starts with ``prefix``
    (default: a hash of the picture), so that several figures share a page; a page that shows one figure twice gives two
    prefixes. No date, no style that reaches outside the element, no address: the same figure gives the same text.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(_SAVE), warnings.catch_warnings():
        # The browser draws the glyphs; matplotlib only lacks them for measuring.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>\s*", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r"<style[^>]*>.*?</style>\s*", "", drawing, flags=re.DOTALL)  # it would restyle the whole page
    drawing = re.sub(r"<!--.*?-->\s*", "", drawing, flags=re.DOTALL)
    prefix = prefix or "f" + hashlib.sha256(drawing.encode("utf-8", "backslashreplace")).hexdigest()[:10]
    return re.sub(r"<[^>]+>", lambda tag: _tag(tag[0], prefix, label), drawing)


def _tag(tag: str, prefix: str, label: str) -> str:
    """One tag (never the text between tags, which is the user's) as the page needs it."""
    if tag.startswith("<svg"):
        return _root(tag, label)
    tag = re.sub(r'(?<=")font: (?:[a-z0-9]+ )*?([\d.]+px)[^;"]*', r"font-size: \1", tag)
    tag = re.sub(r' font-family: [^;"]*;?', "", tag)
    tag = tag.replace(INK, "currentColor").replace("xlink:href", "href")
    return re.sub(r'(\sid="|href="#|url\(#)', lambda found: f"{found[1]}{prefix}-", tag)


def _root(tag: str, label: str) -> str:
    """The opening tag, without namespaces (HTML knows them), with what the removed style sheet said."""
    size = re.findall(r'\s(?:width|height|viewBox)="[^"]*"', tag)
    name = f' role="img" aria-label="{escape(label)}"' if label else ' role="img"'
    return f'<svg{"".join(sorted(size))}{name} style="stroke-linejoin:round;stroke-linecap:butt" fill="currentColor">'
