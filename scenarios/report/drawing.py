"""The elements of pictures as vector graphics: shapes, text, and the colors and styles of series."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

from fedsvm.federation.text import visible

WIDTH = 440
"""Of a plot, in the units of its view box: shown at this size, or half as large again, letters are 12 to 18 pixels."""

COLOURS = ("#1f77b4", "#d9730d", "#2a9d5c", "#8e5bb5", "#b08900", "#17889c", "#c2528b", "#7f8c3b", "#5b6fd6", "#8c6d5a")
"""Of series, on a light ground; a page has its own for a dark one."""

DASHES = ("", "6 3", "2 3")

Shape = Literal["circle", "square", "diamond", "triangle"]

SHAPES: tuple[Shape, ...] = ("circle", "square", "diamond", "triangle")

MODEL, SITES, EXCHANGE, HUB = "var(--k1)", "var(--k0)", "var(--k1)", "var(--k2)"
"""The model, where there is one; sites by themselves, sites with each other, and the coordinator."""

PAPER = "var(--paper)"


def colour(index: int) -> str:
    """Return the color of the nth series."""
    return f"var(--c{index % len(COLOURS)})"


@dataclass(frozen=True)
class Style:
    """The drawing style of a series."""

    colour: str
    dash: str = ""
    shape: Shape = "circle"


def style(number: int) -> Style:
    """Return the style of the nth of many series. The first thirty all differ."""
    return Style(colour(number), DASHES[number // len(COLOURS) % len(DASHES)], SHAPES[number % len(SHAPES)])


def shorten(name: str, letters: int) -> str:
    """Return a name with unprintable characters escaped, cut to a length."""
    shown = visible(name)
    return shown if len(shown) <= letters else f"{shown[: letters - 1]}…"


def element(tag: str, content: str = "", /, **attributes: str | float | None) -> str:
    """Return an element of a picture around its content, which must be escaped already.

    attributes: by their names with underscores; None is left out. All are escaped.
    """
    said = "".join(
        f' {name if name == "viewBox" else name.replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{said}>{content}</{tag}>" if content else f"<{tag}{said}/>"


def _attribute(value: str | float) -> str:
    return escape(visible(value)) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def text(x: float, y: float, words: str, *, halo: bool = False, **attributes: str | float | None) -> str:
    """Return text at a position. halo: outline it with the background color, over lines."""
    around: dict[str, str | float] = {}
    if halo:
        around = {"paint_order": "stroke", "stroke": PAPER, "stroke_width": 4, "stroke_linejoin": "round"}
    return element("text", escape(visible(words)), x=x, y=y, **{"fill": "currentColor", **around, **attributes})
