"""Grids of labelled cells on one page, for :mod:`mpsref.viz.plotting`.

A panel is a grid with a title, in array order: y downwards, x to the right. Long axes are shortened, with gaps at the
omitted indices. Lengths are in cells. matplotlib is imported when a page is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from mpsref.viz.figures import figure_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = 0.42
"""Size of a cell in inches."""
MARGIN, BETWEEN = 0.6, 1.5
WIDEST = 33.0
"""Maximum width of a page, unless a single panel is wider."""
MOST, FEW = 15, 10
"""Maximum number of indices of an axis, and the number shown of a longer one: both ends and the focus."""
INK, FAINT = "#1F2933", "#5A6672"
HEADING, TITLE, TEXT = 17.0, 13.0, 11.5
"""Font sizes in points."""


class Style(NamedTuple):
    """Colours of a cell, and the text of its entry in the key; a style without a text has no entry."""

    face: str
    edge: str
    ink: str = INK
    dashed: bool = False
    key: str = ""


BLANK = Style("none", "none")

Item = TypeVar("Item")

Cell = tuple[Style, str]
"""Style and text."""


class Mark(NamedTuple):
    """Colour and line style of a frame or a dot."""

    color: str
    line: str | tuple[float, tuple[float, ...]] = "-"


def shown(indices: range, focus: range = range(0)) -> list[int]:
    """Return the indices of an axis to show: all of a short one, else both ends and those in ``focus``.

    >>> shown(range(5))
    [0, 1, 2, 3, 4]
    >>> shown(range(100), range(50, 53))
    [0, 1, 2, 50, 51, 52, 97, 98, 99]
    """
    if len(indices) <= MOST:
        return list(indices)
    middle = [i for i in focus[: FEW - 2] if i in indices]
    ends = max(2, (FEW - len(middle)) // 2)
    return sorted({*indices[:ends], *middle, *indices[-ends:]})


class Ruler:
    """Positions of the shown indices of one axis, with a gap at omitted indices."""

    def __init__(self, indices: Sequence[int]) -> None:
        """Compute the positions."""
        self.indices = list(indices)
        self.at: dict[int, float] = {}
        self.gaps: list[float] = []
        position = 0.0
        for before, index in zip([None, *self.indices], self.indices, strict=False):
            if before is not None and index != before + 1:
                self.gaps.append(position)
                position += 1
            self.at[index] = position
            position += 1
        self.length = position

    def span(self, first: int, last: int) -> tuple[float, float] | None:
        """Return the start and end of a range of indices, extended by half a gap where its end is omitted."""
        inside = [i for i in self.indices if first <= i <= last]
        if not inside:
            return None
        begin, end = self.at[inside[0]], self.at[inside[-1]] + 1
        return begin - (inside[0] > first) / 2, end + (inside[-1] < last) / 2


@dataclass
class Panel:
    """A grid of cells with marks."""

    title: str
    rows: Ruler
    columns: Ruler
    cell: Callable[[int, int], Cell]
    """Style and text of the cell at (row, column)."""
    names: dict[int, str] = field(default_factory=dict)
    """Labels of rows; the default is the index."""
    after: dict[int, str] = field(default_factory=dict)
    """Texts to the right of rows."""
    note: str = ""
    frames: list[tuple[tuple[int, int], tuple[int, int], Mark, float]] = field(default_factory=list)
    """Rows (first, last), columns (first, last), mark, inset from the border of the cells."""
    dots: list[tuple[int, int, Mark]] = field(default_factory=list)
    rings: list[tuple[int, int]] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Width of the row labels."""
        names = [self.names.get(i, str(i)) for i in self.rows.indices]
        return max(_width(name, TEXT) for name in names) + 0.35

    @property
    def width(self) -> float:
        """Width from the row labels to the texts after the rows, or that of the title or note."""
        tail = max((_width(text, TEXT) + 0.5 for text in self.after.values()), default=0)
        words = max(_width(self.title, TITLE), _width(self.note, TEXT))
        return max(self.left + self.columns.length + tail, words)

    @property
    def head(self) -> float:
        """Height of the column labels; labels wider than a column are rotated."""
        widest = max(_width(str(j), TEXT) for j in self.columns.indices)
        return 0.85 if widest < 0.95 else widest + 0.3

    @property
    def height(self) -> float:
        """Height of title, column labels, rows and note."""
        return 1.25 + self.head + self.rows.length + (1.1 if self.note else 0)

    def styles(self) -> Iterable[Style]:
        """Yield the styles that occur."""
        for i in self.rows.indices:
            for j in self.columns.indices:
                yield self.cell(i, j)[0]

    def draw(self, axes: Axes, x: float, y: float) -> None:
        """Draw the panel with its top left corner at (x, y)."""
        _text(axes, x, y + 0.5, self.title, TITLE, weight="bold")
        left, top = x + self.left, y + 1.15 + self.head
        for j, column in self.columns.at.items():
            turn = {"rotation": 90, "va": "bottom"} if self.head > 1 else {}
            _text(axes, left + column + 0.5, top - (0.15 if turn else 0.42), f"{j}", TEXT, FAINT, "center", **turn)
        for i, row in self.rows.at.items():
            _text(axes, left - 0.3, top + row + 0.5, self.names.get(i, f"{i}"), TEXT, FAINT, "right")
            for j, column in self.columns.at.items():
                _cell(axes, left + column, top + row, *self.cell(i, j))
            _text(axes, left + self.columns.length + 0.4, top + row + 0.5, self.after.get(i, ""), TEXT)
        for column in self.columns.gaps:
            _text(axes, left + column + 0.5, top - 0.42, "···", TEXT, FAINT, "center")
        for row in self.rows.gaps:
            _text(axes, left - 0.3, top + row + 0.5, "···", TEXT, FAINT, "right", rotation=90)
        self._marks(axes, left, top)
        _text(axes, left, top + self.rows.length + 0.65, self.note, TEXT)

    def _marks(self, axes: Axes, left: float, top: float) -> None:
        from matplotlib.patches import Circle, Rectangle

        for rows, columns, mark, inset in self.frames:
            vertical, horizontal = self.rows.span(*rows), self.columns.span(*columns)
            if vertical and horizontal:
                corner = left + horizontal[0] + inset, top + vertical[0] + inset
                size = (s[1] - s[0] - 2 * inset for s in (horizontal, vertical))
                style: dict[str, Any] = {"edgecolor": mark.color, "linestyle": mark.line, "joinstyle": "round"}
                axes.add_patch(Rectangle(corner, *size, fill=False, linewidth=2.6, **style))
        for i, j, mark in self.dots:
            if i in self.rows.at and j in self.columns.at:
                center = left + self.columns.at[j] + 0.5, top + self.rows.at[i] + 0.5
                axes.add_patch(Circle(center, 0.15, facecolor=mark.color, edgecolor="white", linewidth=1))
        for i, j in self.rings:
            if i in self.rows.at and j in self.columns.at:
                center = left + self.columns.at[j] + 0.5, top + self.rows.at[i] + 0.5
                color = self.cell(i, j)[0].ink
                axes.add_patch(Circle(center, 0.37, fill=False, edgecolor=color, linewidth=1.6))


def page(heading: str, subtitle: str, rows: Sequence[Sequence[Panel]]) -> Figure:
    """Return a page with rows of panels and one key; rows are joined if that makes the page shorter."""
    panels = [panel for row in rows for panel in row]
    separate = [line for row in rows for line in _flow([(p.width, p) for p in row], BETWEEN)]
    joined = _flow([(p.width, p) for p in panels], BETWEEN)
    lines = min(separate, joined, key=len) if len(joined) > 1 else joined
    keys = [s for s in dict.fromkeys(style for panel in panels for style in panel.styles()) if s.key]
    wide = max(sum(p.width + BETWEEN for p in line) - BETWEEN for line in lines)
    wide = max(wide, _width(heading, HEADING), _width(subtitle, TEXT))
    legend = _flow([(_width(style.key, TEXT) + 1.4, style) for style in keys], 1.0, wide)
    high = 3.0 + sum(max(p.height for p in line) + 1.1 for line in lines) + 1.3 * len(legend) - 0.3
    wide, high = wide + 2 * MARGIN, high + MARGIN
    figure = figure_type()(figsize=(wide * CELL, high * CELL), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, wide), ylim=(high, 0))
    axes.set_axis_off()
    _text(axes, MARGIN, MARGIN + 0.5, heading, HEADING, weight="bold")
    _text(axes, MARGIN, MARGIN + 1.6, subtitle, TEXT, FAINT)
    y = MARGIN + 2.6
    for line in lines:
        x = MARGIN
        for panel in line:
            panel.draw(axes, x, y)
            x += panel.width + BETWEEN
        y += max(panel.height for panel in line) + 1.1
    for row in legend:
        x = MARGIN
        for style in row:
            _cell(axes, x, y, style, "")
            _text(axes, x + 1.3, y + 0.5, style.key, TEXT)
            x += _width(style.key, TEXT) + 2.4
        y += 1.3
    return figure


def _flow(items: Sequence[tuple[float, Item]], between: float, widest: float = WIDEST) -> list[list[Item]]:
    """Break a row of items with given widths into lines."""
    lines: list[list[Item]] = []
    used = 0.0
    for width, item in items:
        if not lines or used + between + width > widest:
            lines.append([item])
            used = width
        else:
            lines[-1].append(item)
            used += between + width
    return lines


def _cell(axes: Axes, x: float, y: float, style: Style, text: str) -> None:
    from matplotlib.patches import Rectangle

    line = "--" if style.dashed else "-"
    axes.add_patch(Rectangle((x + 0.05, y + 0.05), 0.9, 0.9, fc=style.face, ec=style.edge, lw=1.1, ls=line))
    size = min(TEXT, TEXT * 0.84 / max(_width(text, TEXT), 0.1))
    _text(axes, x + 0.5, y + 0.5, text, size, style.ink, "center")


def _text(
    axes: Axes, x: float, y: float, text: str, size: float, color: str = INK, align: str = "left", **style: Any
) -> None:
    if text:
        style = {"va": "center" if "rotation" in style else "center_baseline", **style}
        axes.text(x, y, text.replace("-", "\N{MINUS SIGN}"), size=size, color=color, ha=align, **style)


@cache
def _width(text: str, size: float) -> float:
    """Return the width of a line of text in cells; titles and headings are bold."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size, weight="bold" if size >= TITLE else "normal")
    points, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(points) / 72 / CELL
