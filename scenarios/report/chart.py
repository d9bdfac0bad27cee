"""Plots as vector graphics, in the colours of whoever shows them: lines, columns, bars, and spans of time.

A `Chart` is a picture with its title, a caption and the keys of its series. In a page (`svg`) colours are variables of
the page's style sheet, and every mark says what it stands for in `data-tip`, which the page's script shows beside the
pointer. As a file of its own (`file`) it has its keys below it, and colours that any viewer knows. Nothing is measured
by a renderer: letters are taken to be as wide as they are on average.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from fedsvm.federation.text import visible
from fedsvm.scenarios.report.axes import ChartAxis, Number, PictureScale, format_tick
from fedsvm.scenarios.report.drawing import (
    COLOURS,
    PAPER,
    SITES,
    WIDTH,
    Shape,
    Style,
    element,
    shorten,
    text,
)

_NAMED = {
    "paper": "#fff",
    "ink": "#1d2329",
    "soft": "#d5dbe0",
    "grey": "#8a949c",
    "bad": "#c0392b",
    "k0": "#a9bdd1",
    "k1": "#44688f",
    "k2": "#20303f",
}

_LETTER = 6.6
"""Width of a letter of 12 units, on average."""

_FOR_SCRIPTS = re.compile(r' data-[a-z]+="[^"]*"')
"""Attributes that only a page's script looks at."""

_HEAD = 22

_HEIGHT = 250

_TOP, _RIGHT, _BOTTOM = 12, 14, 42

_LEAST_SHARE = 0.003
"""Of the longest bar: what is nowhere as much could not be seen, and has no key."""

_MAX_MARKS = 300
"""Of a series: of more points, one in so many is drawn."""


@dataclass(frozen=True)
class Series:
    """Points (x, y) under one name; series of the same name have one key.

    line: whether they are joined. spread: of each point the least and the largest of what it is the mean of. tips: what
    is said of each point; its figures without them. shift: of the whole series to the right, so that what coincides
    with another is seen. hollow: whether marks are outlines.
    """

    name: str
    points: Sequence[tuple[float, float]]
    style: Style
    line: bool = True
    spread: Sequence[tuple[float, float]] = ()
    tips: Sequence[str] = ()
    shift: float = 0.0
    hollow: bool = False


@dataclass(frozen=True)
class Level:
    """A line across the plot that says what should be reached."""

    name: str
    value: float


@dataclass(frozen=True)
class Key:
    """A series in the legend."""

    name: str
    colour: str
    dash: str = ""


@dataclass(frozen=True)
class Chart:
    """A drawn picture."""

    title: str
    caption: str
    height: float
    body: str
    keys: tuple[Key, ...] = ()
    width: float = WIDTH

    @property
    def svg(self) -> str:
        """For a page that has the colours as variables."""
        told = element("title", escape(visible(self.title))) + element("desc", escape(visible(self.caption)))
        box = f"0 0 {self.width:g} {self.height:g}"
        return element("svg", told + self.body, viewBox=box, role="img", data_plot="")

    def file(self) -> str:
        """Return a separate SVG file: black on white, with title and keys."""
        below, row = [], -1
        for key, x, row in _set_in_rows(self.keys, self.width):
            y = self.height + 16 + 18 * row
            line = {"d": f"M{x} {y - 4}h18", "stroke": key.colour, "stroke_dasharray": key.dash or None}
            below += [element("path", **line, stroke_width=3), text(x + 23, y, key.name)]
        height = self.height + _HEAD + 18 * (row + 1) + 8
        head = [
            element("title", escape(visible(self.title))),
            element("desc", escape(visible(self.caption))),
            element("rect", y=-_HEAD, width=self.width, height=height, fill="#fff"),
            text(8, -7, self.title, font_weight="bold"),
        ]
        whole_picture = element(
            "svg",
            "".join([*head, self.body, *below]),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 {-_HEAD} {self.width:g} {height:g}",
            width=1.5 * self.width,
            height=1.5 * height,
            font_family="sans-serif",
            font_size=12,
        )
        for name, value in [*((f"c{place}", each) for place, each in enumerate(COLOURS)), *_NAMED.items()]:
            whole_picture = whole_picture.replace(f"var(--{name})", value)
        return _FOR_SCRIPTS.sub("", whole_picture) + "\n"


def lines(
    title: str,
    caption: str,
    x: ChartAxis,
    y: ChartAxis,
    series: Sequence[Series],
    *,
    levels: Sequence[Level] = (),
    has_diagonal: bool = False,
    names: Sequence[str] = (),
) -> Chart:
    """Draw lines or points over an axis of numbers, or over `names` by their positions x.

    has_diagonal: where two shares are the same; both axes then hold all from 0 to 1.
    """
    drawn = [_thin_points(each) for each in series if each.points]
    whole_range = [0.0, 1.0] if has_diagonal else []
    if names:
        across = PictureScale(-0.5, len(names) - 0.5, 0, 1, False)
    else:
        across = PictureScale.over([*(px for each in drawn for px, _ in each.points), *whole_range], x)
    heights = [
        value
        for each in drawn
        for value in [*(py for _, py in each.points), *(v for pair in each.spread for v in pair)]
    ]
    up = PictureScale.over([*heights, *(level.value for level in levels), *whole_range], y)
    left = _beside([format_tick(y, tick) for tick in up.ticks()])
    across, up = across.between(left, WIDTH - _RIGHT), up.between(_HEIGHT - _BOTTOM, _TOP)
    marks = [(place, shorten(name, max(4, 60 // len(names)))) for place, name in enumerate(names)]
    body = [_frame(x, y, across, up, marks if names else None)]
    if has_diagonal:
        ends = {"x1": across(0), "y1": up(0), "x2": across(1), "y2": up(1)}
        body.append(element("line", **ends, stroke="var(--grey)", stroke_dasharray="3 3"))
    for level in levels:
        at = up(level.value)
        ends = {"x1": across.start, "x2": across.end, "y1": at, "y2": at}
        body.append(element("line", **ends, stroke="var(--bad)", stroke_dasharray="5 3"))
        body.append(text(across.start + 4, at - 4, level.name, fill="var(--bad)", halo=True))
    keys = {each.name: Key(each.name, each.style.colour, each.style.dash) for each in drawn}
    body += [_series(list(keys).index(each.name), each, across, up, x, y, names) for each in drawn]
    return Chart(title, caption, _HEIGHT, "".join(body), tuple(keys.values()) if len(keys) > 1 else ())


def boxes(title: str, caption: str, x: str, y: ChartAxis, values: Mapping[str, Sequence[float]]) -> Chart:
    """Draw a box for each name: quartiles, median, and whiskers to the farthest values within 1.5 boxes.

    What lies beyond is a mark of its own. x: what the names are of.
    """
    names = list(values)
    up = PictureScale.over([value for each in values.values() for value in each], y)
    left = _beside([format_tick(y, tick) for tick in up.ticks()])
    across, up = (
        PictureScale(-0.5, len(names) - 0.5, left, WIDTH - _RIGHT, False),
        up.between(_HEIGHT - _BOTTOM, _TOP),
    )
    marks = [(place, shorten(name, max(4, 60 // len(names)))) for place, name in enumerate(names)]
    half = min(22.0, 0.3 * (across.end - across.start) / len(names))
    body = [_frame(ChartAxis(x), y, across, up, marks)]
    body += [_box(name, each, across(place), half, up, y) for place, (name, each) in enumerate(values.items())]
    return Chart(title, caption, _HEIGHT, "".join(body))


def _box(name: str, values: Sequence[float], at: float, half: float, up: PictureScale, y: ChartAxis) -> str:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    reach = 1.5 * (high - low)
    near = [value for value in values if low - reach <= value <= high + reach]
    ends = ((min(near), low), (high, max(near)))
    whiskers = "".join(f"M{at:.1f} {up(start):.1f}V{up(end):.1f}" for start, end in ends)
    said = ", ".join(
        f"{word} {y.number(value)}" for word, value in (("median", middle), ("quartiles", low), ("and", high))
    )
    size = {"x": at - half, "y": up(high), "width": 2 * half, "height": max(1.0, up(low) - up(high))}
    body = [
        element("path", d=whiskers, stroke="var(--c0)"),
        element("rect", **size, fill=PAPER, stroke="var(--c0)", stroke_width=1.6, data_tip=f"{name}: {said}"),
        element("path", d=f"M{at - half:.1f} {up(middle):.1f}h{2 * half:.1f}", stroke="var(--c0)", stroke_width=2.5),
    ]
    for value in values:
        if value not in near:
            body.append(
                element(
                    "path",
                    d=_outline("circle", at, up(value), 2.4),
                    fill="var(--c0)",
                    data_mark="",
                    data_tip=f"{name}: {y.number(value)}",
                )
            )
    return "".join(body)


@dataclass(frozen=True)
class ChartColumn:
    """A column that stands on the horizontal axis."""

    x: float
    y: float
    series: str
    colour: str
    tip: str


def columns(title: str, caption: str, x: ChartAxis, y: ChartAxis, drawn: Sequence[ChartColumn]) -> Chart:
    """Draw columns side by side. If there are very many, draw the highest of neighbors."""
    step = max(1, math.ceil(len(drawn) / _MAX_MARKS))
    shown = [max(drawn[first : first + step], key=lambda each: each.y) for first in range(0, len(drawn), step)]
    low, high = min(each.x for each in shown), max(each.x for each in shown)
    up = PictureScale.over([each.y for each in shown], y)
    left = _beside([format_tick(y, tick) for tick in up.ticks()])
    across, up = (
        PictureScale(low - step / 2, high + step / 2, left, WIDTH - _RIGHT, False),
        up.between(_HEIGHT - _BOTTOM, _TOP),
    )
    body, keys = [_frame(x, y, across, up)], {each.series: Key(each.series, each.colour) for each in shown}
    places = {name: number for number, name in enumerate(keys)}
    width = max(0.8, 0.86 * step * (across.end - across.start) / (across.high - across.low))
    for each in shown:
        top = up(each.y)
        body.append(
            element(
                "rect",
                data_series=places[each.series],
                x=across(each.x) - width / 2,
                y=top,
                width=width,
                height=max(0.5, up.start - top),
                fill=each.colour,
                data_tip=each.tip,
            )
        )
    return Chart(title, caption, _HEIGHT, "".join(body), tuple(keys.values()))


def bars(
    title: str, caption: str, number: Number, rows: Mapping[str, Mapping[str, float]], colours: Mapping[str, str]
) -> Chart:
    """Draw a bar for each row, made of parts, with its name above and its total at its end."""
    largest = max((sum(parts.values()) for parts in rows.values()), default=0) or 1
    ends = [number(sum(parts.values())) for parts in rows.values()]
    room = WIDTH - 14 - _LETTER * max(map(len, ends), default=0)
    seen = {name for parts in rows.values() for name, count in parts.items() if count > _LEAST_SHARE * largest}
    present = [name for name in colours if name in seen]
    body, y = [], 4.0
    for (name, parts), end in zip(rows.items(), ends, strict=True):
        body.append(text(0, y + 11, shorten(name, 60)))
        x = 0.0
        for place, part in enumerate(present):
            if count := parts.get(part, 0):
                width, tip = room * count / largest, f"{name}, {part}: {number(count)}"
                size = {"x": x, "y": y + 17, "width": max(width, 0.7), "height": 14}
                body.append(element("rect", data_series=place, **size, fill=colours[part], data_tip=tip))
                x += width
        body.append(text(x + 6, y + 28, end, opacity=0.8))
        y += 40
    return Chart(title, caption, y, "".join(body), tuple(Key(name, colours[name]) for name in present))


@dataclass(frozen=True)
class TimeSpan:
    """From when until when; is_out: nothing happened there."""

    start: float
    end: float
    tip: str
    is_out: bool = False


@dataclass(frozen=True)
class TimedEvent:
    """Something that happened to a row at a time."""

    row: str
    at: float
    name: str


def spans(
    title: str, caption: str, x: ChartAxis, rows: Mapping[str, Sequence[TimeSpan]], strikes: Sequence[TimedEvent] = ()
) -> Chart:
    """Draw a strip of time for each row, and the events in it."""
    names = {name: shorten(name, 20) for name in rows}
    left = _beside(list(names.values()), label=False)
    end = max((span.end for each in rows.values() for span in each), default=1.0)
    height = 26.0 * len(rows) + _BOTTOM + 8
    across = PictureScale(
        0, end or 1.0, left, WIDTH - 2 * _RIGHT, False
    )  # its last tick, of words, may stand at the end
    body = [_across(x, across, height - _BOTTOM)]
    places = {name: 8.0 + 26 * number for number, name in enumerate(rows)}
    for name, own in rows.items():
        y = places[name]
        body.append(text(left - 6, y + 12, names[name], text_anchor="end"))
        for span in own:
            size = {
                "x": across(span.start),
                "width": max(0.5, across(span.end) - across(span.start)),
                "y": y,
                "height": 16,
            }
            body.append(element("rect", **size, fill="var(--soft)" if span.is_out else SITES, data_tip=span.tip))
    for strike in strikes:
        at, y = across(strike.at), places[strike.row] + 8
        cross = f"M{at - 5:.1f} {y - 5}l10 10m0 -10l-10 10"
        tip = f"{strike.name} {strike.row} after {x.number(strike.at)}"
        body.append(element("path", d=cross, stroke=PAPER, stroke_width=5))
        body.append(element("path", d=cross, stroke="var(--bad)", stroke_width=2.5, data_tip=tip))
        place, anchor = (at + 9, "start") if at < WIDTH - 90 else (at - 9, "end")
        body.append(text(place, y + 4, strike.name, text_anchor=anchor, fill="var(--bad)", halo=True))
    return Chart(title, caption, height, "".join(body))


# How numbers become places.


def _beside(labels: Sequence[str], *, label: bool = True) -> float:
    """Return the room on the left for the labels of ticks and of the axis."""
    return (20 if label else 0) + 9 + _LETTER * max(map(len, labels), default=0)


# What is drawn.


def _frame(
    x: ChartAxis,
    y: ChartAxis,
    across: PictureScale,
    up: PictureScale,
    marks: Sequence[tuple[float, str]] | None = None,
) -> str:
    body = [_across(x, across, up.start, marks)]
    for tick in up.ticks():
        at = up(tick)
        body.append(element("line", x1=across.start, x2=across.end, y1=at, y2=at, stroke="var(--soft)"))
        body.append(text(across.start - 6, at + 4, format_tick(y, tick), text_anchor="end", opacity=0.8))
    turned = f"translate(11 {(up.start + up.end) / 2:.1f}) rotate(-90)"
    body.append(text(0, 0, shorten(y.label, 36), transform=turned, text_anchor="middle"))
    return "".join(body)


def _across(x: ChartAxis, across: PictureScale, bottom: float, marks: Sequence[tuple[float, str]] | None = None) -> str:
    """Draw the horizontal axis, with ticks, or with marks at names."""
    body = [element("line", x1=across.start, x2=across.end, y1=bottom, y2=bottom, stroke="var(--grey)")]
    for tick, label in (
        marks if marks is not None else [(tick, format_tick(x, tick)) for tick in _whole(across.ticks(), x)]
    ):
        at = across(tick)
        body.append(element("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, stroke="var(--grey)"))
        body.append(text(at, bottom + 17, label, text_anchor="middle", opacity=0.8))
    body.append(text((across.start + across.end) / 2, bottom + 35, shorten(x.label, 60), text_anchor="middle"))
    return "".join(body)


def _whole(ticks: Sequence[float], axis: ChartAxis) -> list[float]:
    """Return the ticks of a counting axis that are whole numbers."""
    return [tick for tick in ticks if axis.number(tick)]


def _series(
    number: int, of: Series, across: PictureScale, up: PictureScale, x: ChartAxis, y: ChartAxis, names: Sequence[str]
) -> str:
    places = [(across(px) + of.shift, up(py)) for px, py in of.points]
    body = []
    if of.line and len(places) > 1:
        joined = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        line = {"points": joined, "stroke": of.style.colour, "stroke_dasharray": of.style.dash or None}
        body.append(element("polyline", **line, fill="none", stroke_width=2))
    for (px, _), (low, high) in zip(places, of.spread, strict=False):
        body.append(element("path", d=f"M{px:.1f} {up(low):.1f}V{up(high):.1f}", stroke=of.style.colour, opacity=0.6))
    size = 2.4 if of.line and len(places) > 40 else 3.2 if of.line else 4.2
    for place, ((px, py), (vx, vy)) in enumerate(zip(places, of.points, strict=True)):
        at = names[round(vx)] if names else f"{x.label} {x.number(vx)}"
        tip = of.tips[place] if of.tips else f"{of.name + ': ' if of.name else ''}{at}, {y.label} {y.number(vy)}"
        drawn: dict[str, str | float] = {"fill": of.style.colour}
        if of.hollow:
            drawn = {"fill": PAPER, "stroke": of.style.colour, "stroke_width": 1.6}
        body.append(element("path", d=_outline(of.style.shape, px, py, size), **drawn, data_mark="", data_tip=tip))
    return element("g", "".join(body), data_series=number)


def _outline(shape: Shape, x: float, y: float, size: float) -> str:
    """Return the path around a mark."""
    if shape == "square":
        return f"M{x - size:.1f} {y - size:.1f}h{2 * size:.1f}v{2 * size:.1f}h{-2 * size:.1f}z"
    if shape == "diamond":
        far = 1.4 * size
        return f"M{x:.1f} {y - far:.1f}l{far:.1f} {far:.1f}l{-far:.1f} {far:.1f}l{-far:.1f} {-far:.1f}z"
    if shape == "triangle":
        far = 1.3 * size
        return f"M{x:.1f} {y - far:.1f}l{far:.1f} {2 * far:.1f}h{-2 * far:.1f}z"
    return f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size:.1f} 0a{size} {size} 0 1 0 {-2 * size:.1f} 0z"


def _thin_points(of: Series) -> Series:
    """Return a limited number of points, including the first and the last."""
    if len(of.points) <= _MAX_MARKS:
        return of
    last = len(of.points) - 1
    kept = sorted({round(place * last / (_MAX_MARKS - 1)) for place in range(_MAX_MARKS)})
    tips = [of.tips[place] for place in kept] if of.tips else ()
    return replace(of, points=[of.points[place] for place in kept], spread=(), tips=tips)


def _set_in_rows(keys: Sequence[Key], width: float) -> Iterator[tuple[Key, float, int]]:
    """Yield keys with their positions: distance from the left, and row."""
    x, row = 8.0, 0
    for key in keys:
        wide = 36 + _LETTER * len(key.name)
        if x > 8 and x + wide > width:
            x, row = 8.0, row + 1
        yield key, x, row
        x += wide
