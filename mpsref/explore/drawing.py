"""Pictures as SVG: the panels of the figures of the documentation, with brackets, and with pixels to choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.etree.ElementTree import Element

from mpsref.viz.grid_figure import FAINT, INK, Panel
from mpsref.viz.page import add

CELL, GAP = 36.0, 1.2
"""Size of a cell and half the distance of two cells, in units of the SVG."""

LEAST = 24.0
"""Minimum size of a cell on a screen, in pixels, for a finger."""

ROOM = 26.8
"""Width of the text of a cell, beside which the frames of windows lie."""

LEVEL, MOST_LEVELS = 19.0, 4
"""Height of a row of brackets, and the maximum number of rows of brackets that do not overlap."""

LABELS = 24.0
"""Room for the numbers of rows and columns."""

Pixel = tuple[int, int]

COLORS = (
    ("#C44E00", "#00785A", "#8A4B9E"),
    ("#005A9C", "#A3122F", "#776500"),
    ("#B0337D", "#0A7484", "#5B5B5B"),
)
"""Of the windows (a, b), each on white and below white text; windows that are neighbours have different colours."""


def color(window: Pixel) -> str:
    """Return the colour of a window, of its pixel of y or g, and of its pixels of the image."""
    return COLORS[window[0] % 3][window[1] % 3]


def tint(of: str, share: float = 0.22) -> str:
    """Return a colour mixed with white.

    >>> tint("#C44E00")
    '#F2D8C7'
    """
    parts = (int(of[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (part - 255)):02X}" for part in parts)


class Bracket(NamedTuple):
    """A window over the rows or the columns of an image."""

    first: int
    last: int
    text: str
    color: str
    chosen: bool


@dataclass
class Picture:
    """A panel, and what belongs to its pixels."""

    panel: Panel
    sentence: str
    about: str
    """What else there is to say, on demand."""
    name: str
    """Of the input or result whose pixels are shown; the same name in two pictures links their pixels."""
    pixels: dict[Pixel, tuple[Pixel, str]] = field(default_factory=dict)
    """By cell: the pixel of ``name`` that is chosen by it, and its description."""
    below: dict[Pixel, str] = field(default_factory=dict)
    """By cell: a second, smaller text."""
    stripes: dict[Pixel, list[str]] = field(default_factory=dict)
    """By cell: the colours of its windows."""
    brackets: tuple[Sequence[Bracket], Sequence[Bracket]] = ((), ())
    """Of the rows and of the columns."""
    changed: frozenset[Pixel] = frozenset()
    is_editable: bool = False
    has_windows: bool = False
    """Whether it is the image that the windows read or write."""


def draw(parent: Element, picture: Picture) -> None:
    """Append a picture as SVG."""
    panel = picture.panel
    levels = [_levels(brackets) for brackets in picture.brackets]
    wide = max(len(panel.names.get(i, f"{i}")) for i in panel.rows.indices)
    labels = LABELS + 6 * (wide - 1), LABELS
    left, top = (at + LEVEL * (1 + max(level, default=-1)) for at, level in zip(labels, levels, strict=True))
    tail = max((8 + 6.6 * len(text) for text in panel.after.values()), default=0.0)
    width, height = left + CELL * panel.columns.length + tail + 4, top + CELL * panel.rows.length + 4
    size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
    least = "min-width: {:.0f}px; min-height: {:.0f}px".format(*(LEAST / CELL * n for n in (width, height)))
    svg = add(parent, "svg", role="group", aria_label=panel.title, style=least, **size)
    for i, row in panel.rows.at.items():
        _text(svg, left - 6, top + CELL * (row + 0.5), panel.names.get(i, f"{i}"), anchor="end", ink=FAINT)
        for j, column in panel.columns.at.items():
            _cell(svg, picture, (i, j), left + CELL * column, top + CELL * row)
        _text(svg, width - tail, top + CELL * (row + 0.5), panel.after.get(i, ""), anchor="start")
    for j, column in panel.columns.at.items():
        _text(svg, left + CELL * (column + 0.5), top - 10, f"{j}", ink=FAINT)
    for gap in panel.columns.gaps:
        _text(svg, left + CELL * (gap + 0.5), top - 10, "···", ink=FAINT)
    for gap in panel.rows.gaps:
        _text(svg, left - 6, top + CELL * (gap + 0.5), "···", anchor="end", ink=FAINT)
    for axis, ruler in enumerate((panel.rows, panel.columns)):
        for level, bracket in zip(levels[axis], picture.brackets[axis], strict=True):
            span = ruler.span(bracket.first, bracket.last)
            if span is not None:
                ends = [(left if axis else top) + CELL * end for end in span]
                _bracket(svg, bracket, axis, ends, (top if axis else left) - labels[axis] - LEVEL * level)
    _marks(svg, panel, left, top)


def _levels(brackets: Sequence[Bracket]) -> list[int]:
    """Return a level for each bracket such that those of one level do not overlap."""
    ends: list[int] = []
    found = []
    for bracket in brackets:  # which are in the order of their first pixels
        level = next((k for k, end in enumerate(ends) if end < bracket.first), len(ends))
        ends[level : level + 1] = [bracket.last]
        found.append(level)
    return found


def _bracket(svg: Element, bracket: Bracket, axis: int, ends: list[float], at: float) -> None:
    """Draw a bracket over columns (axis 1) or left of rows (axis 0), and its text in its middle."""
    begin, end = ends[0] + 3, ends[1] - 3
    path = f"M{begin:g},{at + 4:g}V{at:g}H{end:g}v4" if axis else f"M{at + 4:g},{begin:g}H{at:g}V{end:g}h4"
    style = f"fill:none;stroke:{bracket.color};stroke-width:{3 if bracket.chosen else 1.3:g}"
    add(svg, "path", d=path, style=style)
    middle, weight = (begin + end) / 2, "700" if bracket.chosen else "400"
    x, y = (middle, at - 6) if axis else (at - 6, middle)
    turn = {} if axis else {"transform": f"rotate(-90 {x:g} {y:g})"}
    _text(svg, x, y, bracket.text, ink=bracket.color, size=10.5, weight=weight, **turn)


def _cell(svg: Element, picture: Picture, place: Pixel, x: float, y: float) -> None:
    style, text = picture.panel.cell(*place)
    group = svg
    if place in picture.pixels:
        pixel, label = picture.pixels[place]
        data = {"data_name": picture.name, "data_pixel": "{},{}".format(*pixel), "tabindex": "-1", "role": "button"}
        if picture.is_editable:
            data["data_value"] = text
        group = add(svg, "g", aria_label=label, **data)
    if style.face != "none" or group is not svg:
        dash = ";stroke-dasharray:4 3" if style.dashed else ""
        size = {"width": f"{CELL - 2 * GAP:g}", "height": f"{CELL - 2 * GAP:g}", "rx": "2"}
        look = f"fill:{style.face};stroke:{style.edge}{dash}"
        add(group, "rect", x=f"{x + GAP:g}", y=f"{y + GAP:g}", style=look, **size)
    below, colors = picture.below.get(place, ""), picture.stripes.get(place, [])
    for k, one in enumerate(colors):
        wide = (CELL - 2 * GAP - 6) / len(colors)
        box = {"x": f"{x + GAP + 3 + k * wide:g}", "y": f"{y + CELL - 9:g}", "width": f"{wide - 1:g}", "height": "4"}
        add(group, "rect", style=f"fill:{one}", **box)
    middle = y + CELL / 2 - (6 if below else 0) - (2 if colors else 0)
    if place in picture.changed:
        corner = f"M{x + CELL - 12:g},{y + GAP:g}h{12 - GAP:g}v{12 - GAP:g}z"
        add(group, "path", d=corner, style=f"fill:{INK}")
    _text(group, x + CELL / 2, middle, text, ink=style.ink, size=_size(text, 12))
    _text(group, x + CELL / 2, middle + 12, below, ink=style.ink, size=_size(below, 9))


def _marks(svg: Element, panel: Panel, left: float, top: float) -> None:
    """Draw the frames, dots and rings of a panel."""
    for rows, columns, mark, inset in panel.frames:
        vertical, horizontal = panel.rows.span(*rows), panel.columns.span(*columns)
        if vertical and horizontal:
            box = {
                "x": f"{left + CELL * (horizontal[0] + inset):g}",
                "y": f"{top + CELL * (vertical[0] + inset):g}",
                "width": f"{CELL * (horizontal[1] - horizontal[0] - 2 * inset):g}",
                "height": f"{CELL * (vertical[1] - vertical[0] - 2 * inset):g}",
            }
            add(svg, "rect", class_="frame", rx="3", style=f"fill:none;stroke:{mark.color};stroke-width:1.8", **box)
    rings = [(i, j, 0.5, f"fill:none;stroke:{panel.cell(i, j)[0].ink};stroke-width:1.5", 13) for i, j in panel.rings]
    dots = [(i, j, 0.2, f"fill:{mark.color};stroke:white", 4) for i, j, mark in panel.dots]  # beside the number
    for i, j, at, look, radius in dots + rings:
        if i in panel.rows.at and j in panel.columns.at:
            x, y = left + CELL * (panel.columns.at[j] + at), top + CELL * (panel.rows.at[i] + at)
            add(svg, "circle", class_="mark", cx=f"{x:g}", cy=f"{y:g}", r=f"{radius}", style=look)


def _size(text: str, largest: float) -> float:
    """Return the size at which a number fits into a cell."""
    return min(largest, ROOM / max(1.0, sum(0.34 if char in ". " else 0.64 for char in text)))


def _text(
    parent: Element, x: float, y: float, text: str, *, ink: str = INK, size: float = 12, anchor: str = "middle",
    weight: str = "400", **attributes: str,
) -> None:  # fmt: skip
    if text:
        style = f"fill:{ink};font-size:{size:g}px;text-anchor:{anchor};font-weight:{weight}"
        add(parent, "text", text.replace("-", "\N{MINUS SIGN}"), x=f"{x:g}", y=f"{y:g}", style=style, **attributes)
