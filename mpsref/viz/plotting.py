"""Figures of the windows of a problem: taps, centres, padding, N(x), and the terms of a gradient pixel.

Needs matplotlib (``pip install -e ".[plot]"``), which is imported on first use.

>>> import mpsref
>>> from mpsref.viz.plotting import plot
>>> pool = mpsref.PoolingAverage(kernel_size=3, strides=2, edge_mode="clamp")
>>> figure = plot(pool.problems["forward"](pool, (1, 5, 5, 1)))
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from mpsref.arguments import text
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.errors import UnsupportedError
from mpsref.geometry import Window, by_axis, clip, effective_offset
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.kernels.pooling_average import PoolingAverage
from mpsref.registry import Problem
from mpsref.viz.explain import of_windows
from mpsref.viz.figures import figure_type
from mpsref.viz.grid_figure import BLANK, FAINT, Cell, Mark, Panel, Ruler, Style, page, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE = "#005A9C"
PIXEL = Style("#EDF0F3", "#C3CAD1", FAINT)
TAP = Style(BLUE, BLUE, "#FFFFFF", key="tap inside the image, with its number")
GRADIENT = Style("#FBE3B5", "#B98A1D", key="pixel of g")
NEAR_TAPS = Style("#FDF5E1", "#EBDCB4")
INSERTED = Style("#FFFFFF", "#CBD2D9", FAINT, key="inserted zero")
EXCLUDED = Style("#FFFFFF", "#B98A1D", FAINT, dashed=True, key="pixel of g that does not count")
HIT = Style(BLUE, BLUE, "#FFFFFF", key="tap of the rotated window on a pixel of g")
MISS = Style("#CFE2F1", "#7FAFD3", BLUE, key="tap on a zero")
UNTOUCHED = Style("#FFFFFF", "#8A949E", FAINT, dashed=True, key="0: outside the clip, or no source pixel")
MARKS = (Mark("#C44E00"), Mark("#00785A", (0, (4, 1.4))), Mark("#8A4B9E", (0, (1.2, 1.0))))

Location = Literal["inside", "zero", "outside", "edge"]
"""Class of a coordinate: in the image, zero included in N, outside and not included in N, copy of the edge pixel."""

OUTSIDE: dict[Location, tuple[Style, Style]] = {
    "zero": (
        Style("#FFFFFF", "#8A949E", FAINT, key="padding: a zero that counts"),
        Style("#FFFFFF", BLUE, BLUE, key="tap on padding that counts"),
    ),
    "outside": (
        Style("#FFFFFF", "#C3CAD1", FAINT, dashed=True, key="outside: does not count"),
        Style("#FFFFFF", "#8A949E", FAINT, dashed=True, key="tap that does not count"),
    ),
    "edge": (
        Style("#FFFFFF", "#8A949E", FAINT, dashed=True, key="outside: reads the edge pixel"),
        Style("#E6F0F8", BLUE, BLUE, dashed=True, key="tap that reads the edge pixel"),
    ),
}
"""Styles of a coordinate outside the image and of a tap on it."""


def plot(problem: Problem, path: str | os.PathLike[str] | None = None, *, pixel: PairLike | None = None) -> Figure:
    """Draw the windows of a pooling or convolution problem.

    Parameters
    ----------
    problem : Problem
        One call of an operation, for example ``Case.parse(text).problem``.
    path : path-like, optional
        Write the figure to this file; the suffix (``.png``, ``.svg``, ``.pdf``) selects the format.
    pixel : tuple of int, optional
        For a gradient, the result pixel (y, x) whose terms are shown; by default one with the most terms.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook draws it.

    Raises
    ------
    UnsupportedError
        If matplotlib is not installed, or the operation has no windows.
    ValueError
        If ``pixel`` is outside the image or given for a forward problem, or the suffix is unknown.
    """
    figure_type()  # raises where matplotlib is missing
    drawn = of_windows(problem)
    if isinstance(drawn, PoolingForward):
        if pixel is not None:
            raise ValueError(f"pixel is {text.shown(pixel)}; it is only legal for a gradient problem: omit it")
        rows = _forward(drawn)
    elif isinstance(drawn, PoolingGradient):
        rows = _gradient(drawn, _pixel(drawn, pixel))
    else:
        raise UnsupportedError(f"{problem.operation} has no windows to draw; pooling and convolution have")
    figure = page(f"{problem.operation}", _parameters(drawn), rows)
    if path is not None:
        figure.savefig(path, dpi=200)
    return figure


def _parameters(problem: PoolingForward | PoolingGradient) -> str:
    """Return all parameters of the spec and the arguments of the call that differ from their defaults."""
    call = [f for f in dataclasses.fields(problem) if f.name not in ("spec", "source_shape")]
    named = {f.name: getattr(problem.spec, f.name) for f in dataclasses.fields(problem.spec)}
    named |= {f.name: getattr(problem, f.name) for f in call if getattr(problem, f.name) != f.default}
    words = [f"{name.replace('_', ' ')} {value}" for name, value in named.items()]
    return "  ·  ".join([f"image {problem.source_shape[1:3]}", *words])


def _pixel(problem: PoolingGradient, pixel: PairLike | None) -> Pair:
    """Check the chosen pixel, or choose one with the most terms."""
    lengths = problem.source_shape[1:3]
    if pixel is None:
        return by_axis(lambda runs: int(runs.count.argmax()), problem.runs())
    chosen = pair("pixel", pixel, low=0)
    if any(q >= n for q, n in zip(chosen, lengths, strict=True)):
        raise ValueError(f"pixel is {chosen}; it must lie in the image, (y, x) below {lengths}")
    return chosen


# ------------------------------------------------------------------------------------------------------ forward


def _forward(problem: PoolingForward) -> list[list[Panel]]:
    """The image with some of its windows, N of each window, and each axis separately."""
    windows, outputs = problem.spec.windows, _windows(problem)
    corner = outputs[0][-1], outputs[1][-1]
    picked = list(dict.fromkeys([(0, 0), (0, min(1, corner[1])), corner]))
    columns = [_extent(w, n, length) for w, n, length in zip(windows, outputs, problem.source_shape[1:3], strict=True)]

    names = ", ".join(f"({a}, {b})" for a, b in picked)
    image = Panel(
        f"Image, and window{'s' * (len(picked) > 1)} {names}",
        Ruler(columns[0]),
        Ruler(columns[1]),
        partial(image_pixel, problem),
    )
    image.note = "dot: centre of a window"
    for number, (mark, location) in enumerate(zip(MARKS, picked, strict=False)):
        starts = [w.start(i) for w, i in zip(windows, location, strict=True)]
        y, x = ((first, first + w.extent - 1) for w, first in zip(windows, starts, strict=True))
        image.frames.append((y, x, mark, 0.02 + 0.08 * number))
        image.dots.append((y[0] + windows[0].center, x[0] + windows[1].center, mark))
    counts = _counts(problem)
    counts.frames += [((a, a), (b, b), mark, 0.06) for mark, (a, b) in zip(MARKS, picked, strict=False)]
    return [[image, counts], [_taps(problem, axis, columns[axis]) for axis in separate_axes(problem)]]


def image_pixel(problem: PoolingForward | PoolingGradient, y: int, x: int) -> Cell:
    """Return the cell of a pixel that windows read, which may lie outside the image."""
    location = _both(_location(problem, 0, y), _location(problem, 1, x))
    return (PIXEL, "") if location == "inside" else (OUTSIDE[location][0], "0" if location == "zero" else "")


def _extent(window: Window, outputs: range, length: int) -> list[int]:
    """Return the coordinates to show: those of the image and of windows that extend beyond it."""
    last = window.start(outputs[-1]) + window.extent - 1
    return shown(range(min(0, window.start(0)), max(length - 1, last) + 1))


def _taps(problem: PoolingForward, axis: int, columns: list[int]) -> Panel:
    """One axis: a row for each window, with its taps over their coordinates."""
    window, n = problem.spec.windows[axis], problem.output_size[axis]
    rows = [i for i in shown(range(n)) if window.start(i) + window.center in columns] or [0]

    def look(i: int, j: int) -> Cell:
        location = _location(problem, axis, j)
        tap, rest = divmod(j - window.start(i), window.dilation)
        if rest or not 0 <= tap < window.kernel:
            return (PIXEL if location == "inside" else BLANK), ""
        return (TAP if location == "inside" else OUTSIDE[location][1]), f"{tap}"

    panel = Panel(f"{_name(problem, axis)}: a row for each window", Ruler(rows), Ruler(columns), look)
    panel.note = "ring: centre of the window"
    panel.rings = [(i, window.start(i) + window.center) for i in rows]
    panel.after = {i: f"N = {_count(problem, axis, i)}" for i in rows} if _averages(problem) else {}
    return panel


def _location(problem: PoolingForward | PoolingGradient, axis: int, j: int) -> Location:
    """Return the class of coordinate ``j``."""
    length, spec = problem.source_shape[1 + axis], problem.spec
    if 0 <= j < length:
        return "inside"
    if spec.edge_mode == "zero":
        return "zero"
    if isinstance(spec, PoolingAverage):
        return "zero" if -spec.zero_pad[axis] <= j < length + spec.zero_pad[axis] else "outside"
    return "edge"


def _both(y: Location, x: Location) -> Location:
    """Return the class of a pixel from those of its coordinates."""
    worst: tuple[Location, ...] = ("outside", "edge", "zero")
    return next((location for location in worst if location in (y, x)), "inside")


# ------------------------------------------------------------------------------------------------------ gradient


def _gradient(problem: PoolingGradient, pixel: Pair) -> list[list[Panel]]:
    """The result, the zero-inserted gradient under the window, N of the windows, and each axis separately."""
    lines = [Inserted(problem, axis) for axis in (0, 1)]
    panels = [_gathered(problem, lines, pixel), kernel_over_gradient(lines, pixel)]
    panels[1].note = _sum(problem, pixel)
    if _averages(problem) and all(problem.included):
        panels.append(_counts(problem))
    return [panels, [rotated(problem, lines[axis], pixel[axis]) for axis in separate_axes(problem)]]


def _gathered(problem: PoolingGradient, lines: Sequence[Inserted], pixel: Pair) -> Panel:
    """The number of gradient pixels that each result pixel sums."""
    near = [shown(range(line.length), range(q - 1, q + 2)) for line, q in zip(lines, pixel, strict=True)]
    counts = [{q: len(problem.gathered(line.axis, q)) for q in some} for line, some in zip(lines, near, strict=True)]
    most = max(counts[0].values()) * max(counts[1].values())

    def look(y: int, x: int) -> Cell:
        if not (lines[0].taps(y) and lines[1].taps(x)):
            return UNTOUCHED, "0"
        return _heat(counts[0][y] * counts[1][x], most)

    title = "pixels of g that each pixel gathers" if _averages(problem) else "windows that read each pixel"
    panel = Panel(f"dx: {title}", Ruler(near[0]), Ruler(near[1]), look)
    panel.frames.append(((pixel[0],) * 2, (pixel[1],) * 2, MARKS[0], 0.04))
    return panel


def kernel_over_gradient(lines: Sequence[Inserted], pixel: Pair, near: Sequence[Iterable[int]] | None = None) -> Panel:
    """The zero-inserted gradient and the position of the rotated window for one result pixel.

    The panel has room for the kernels of the rows and columns ``near`` of the result; by default for this one.
    """
    taps = [line.taps(q) for line, q in zip(lines, pixel, strict=True)]

    def look(y: int, x: int) -> Cell:
        (v, u), under = (lines[0].pixel(y), lines[1].pixel(x)), y in taps[0] and x in taps[1]
        if v is None or u is None:
            return (MISS if under else INSERTED), "0"
        if not (lines[0].counts(y) and lines[1].counts(x)):
            return EXCLUDED, f"{v},{u}"
        return (HIT if under else GRADIENT), f"{v},{u}"

    room = near or [[q] for q in pixel]
    rows, columns = (Ruler(line.coordinates(n, q)) for line, q, n in zip(lines, pixel, room, strict=True))
    panel = Panel(f"g with zeros inserted, kernel for dx[{pixel[0]}, {pixel[1]}]", rows, columns, look)
    if taps[0] and taps[1]:
        panel.frames.append(((taps[0][0], taps[0][-1]), (taps[1][0], taps[1][-1]), MARKS[0], 0.0))
    return panel


def rotated(problem: PoolingGradient, line: Inserted, chosen: int) -> Panel:
    """One axis: the zero-inserted gradient, then a row for each result pixel with the rotated window."""
    near = shown(range(line.length), range(chosen - 1, chosen + 2))
    columns = line.coordinates(near, chosen)
    pixels = [q for q in near if q == chosen or not line.taps(q) or line.center(q) in columns]
    head = pixels[0] - 1  # the row of the gradient itself

    def look(q: int, m: int) -> Cell:
        u, tap = line.pixel(m), line.tap(q, m)
        if q == head:
            return (INSERTED, "0") if u is None else (GRADIENT if line.counts(m) else EXCLUDED, f"g{u}")
        if tap is None:
            return (NEAR_TAPS if u is not None else BLANK), ""
        return (HIT if line.counts(m) else MISS), f"{tap}"

    title = f"{_name(problem, line.axis)}: g, then a row for each pixel of dx"
    panel = Panel(title, Ruler([head, *pixels]), Ruler(columns), look, names={head: "g"})
    panel.note = (
        f"effective offset {line.effective} = stride {line.window.stride} × primary offset {line.primary} "
        f"+ kernel offset {line.kernel_offset}"
    )
    panel.rings = [(q, line.center(q)) for q in pixels if line.taps(q)]
    for q in pixels:
        hits = problem.gathered(line.axis, q)
        joint = " + " if _averages(problem) else ", "
        panel.after[q] = joint.join(f"g[{u}]" for u in hits) if len(hits) < 4 else f"{len(hits)} pixels of g"
        panel.after[q] = panel.after[q] or "0"
    if line.taps(chosen):
        panel.frames.append(((chosen, chosen), (line.taps(chosen)[0], line.taps(chosen)[-1]), MARKS[0], 0.0))
    return panel


class Inserted:
    """One axis of the gradient with ``s - 1`` zeros between its pixels, and the rotated window over it."""

    def __init__(self, problem: PoolingGradient, axis: int) -> None:
        self.axis, self.window, self.length = axis, problem.spec.windows[axis], problem.source_shape[1 + axis]
        self.primary, self.size = problem.primary_offset[axis], problem.gradient_size[axis]
        origin, size = (corner[axis] for corner in problem.clip) if problem.clip else (0, None)
        self.origin, n = clip(origin, size, self.length)
        self._clip = range(self.origin, self.origin + n)
        known = problem.kernel_offset
        self.kernel_offset = known[axis] if known else self.window.kernel_offset(self.origin)
        self.effective = effective_offset(self.primary, self.kernel_offset, self.window.stride)
        included = problem.included[axis]
        self._included = range(self.primary + included.start, self.primary + included.stop)

    def pixel(self, m: int) -> int | None:
        """Return the gradient pixel at inserted coordinate ``m``, or ``None`` if there is none."""
        u, rest = divmod(m, self.window.stride)
        return u if not rest and 0 <= u < self.size else None

    def counts(self, m: int) -> bool:
        """Return whether the gradient pixel at ``m`` belongs to a window."""
        return self.pixel(m) in self._included

    def center(self, q: int) -> int:
        """Return the position of the centre of the kernel for result pixel ``q``."""
        return q - self.origin + self.effective

    def taps(self, q: int) -> range:
        """Return the coordinates of the rotated window; empty if ``q`` is clipped or represents no source pixel."""
        represented = self.window.represented_pixel(q - self.origin, self.kernel_offset)
        if q not in self._clip or not 0 <= represented < self.length:
            return range(0)
        first = self.center(q) - self.window.center
        return range(first, first + self.window.extent, self.window.dilation)

    def tap(self, q: int, m: int) -> int | None:
        """Return the index in the forward window of the tap at ``m``."""
        taps = self.taps(q)
        return self.window.kernel - 1 - taps.index(m) if m in taps else None

    def coordinates(self, pixels: Iterable[int], chosen: int) -> list[int]:
        """Return the coordinates to show: the gradient and the kernels of these pixels."""
        ends = [taps[end] for taps in map(self.taps, pixels) if taps for end in (0, -1)]
        low, high = min([0, *ends]), max([(self.size - 1) * self.window.stride, *ends])
        focus = self.taps(chosen)
        return shown(range(low, high + 1), range(focus[0], focus[-1] + 1) if focus else range(0))


def _sum(problem: PoolingGradient, pixel: Pair) -> str:
    """Return the terms of one result pixel, or only their number if there are more than four."""
    (py, px), name = problem.primary_offset, f"dx[{pixel[0]}, {pixel[1]}]"
    rows, columns = (problem.gathered(axis, q) for axis, q in enumerate(pixel))
    pixels = [(v, u) for v in rows for u in columns]
    if not pixels:
        return f"{name} = 0"
    if len(pixels) > 4:
        return f"{name}: {len(pixels)} windows"
    if not _averages(problem):
        return f"{name}: window{'s' * (len(pixels) > 1)} of " + ", ".join(f"g[{v}, {u}]" for v, u in pixels)
    counts = [_count(problem, 0, v - py) * _count(problem, 1, u - px) for v, u in pixels]
    return f"{name} = " + " + ".join(f"g[{v}, {u}]/{n}" for (v, u), n in zip(pixels, counts, strict=True))


# ---------------------------------------------------------------------------------------------------------- both


def _averages(problem: PoolingForward | PoolingGradient) -> bool:
    return isinstance(problem.spec, PoolingAverage)


def _count(problem: PoolingForward | PoolingGradient, axis: int, i: int) -> int:
    """Return N of window ``i``; for a kernel that does not average, the number of its taps inside the image."""
    if isinstance(problem.spec, PoolingAverage):
        return problem.spec.divisor(axis, i, problem.source_shape)
    return problem.spec.windows[axis].divisor(i, problem.source_shape[1 + axis], "clamp")


def _counts(problem: PoolingForward | PoolingGradient) -> Panel:
    """N of each window as a heat map."""
    counts = [{i: _count(problem, axis, i) for i in shown(w)} for axis, w in enumerate(_windows(problem))]
    most = max(counts[0].values()) * max(counts[1].values())
    title = "N of each window" if _averages(problem) else "Taps inside the image, of each window"
    rows, columns = (Ruler(list(count)) for count in counts)
    return Panel(title, rows, columns, lambda a, b: _heat(counts[0][a] * counts[1][b], most))


def _heat(value: int, most: int) -> Cell:
    """Return a cell that is darker for a larger number."""
    fraction = value / most if most else 0
    face = "#" + "".join(f"{round(0xF4 + fraction * (dark - 0xF4)):02X}" for dark in (0x2B, 0x6F, 0xA8))
    return Style(face, "#9FB6C9", "#FFFFFF" if fraction > 0.6 else "#1F2933"), f"{value}"


def _windows(problem: PoolingForward | PoolingGradient) -> list[range]:
    """Return the windows of each axis."""
    return [range(n) for n in problem.output_size] if isinstance(problem, PoolingForward) else list(problem.included)


def _same(problem: PoolingForward | PoolingGradient) -> bool:
    """Return whether both axes have the same windows and sizes."""
    y, x = ([value[axis] if isinstance(value, tuple) else value for value in _pairs_of(problem)] for axis in (0, 1))
    return y == x


def _pairs_of(problem: PoolingForward | PoolingGradient) -> list[object]:
    """Return the per-axis values of a problem."""
    values = [problem.source_shape[1:3], problem.spec.windows, getattr(problem.spec, "zero_pad_size", None)]
    if isinstance(problem, PoolingForward):
        return [*values, problem.output_size]
    clip = problem.clip or (None, None)
    return [*values, problem.gradient_size, problem.primary_offset, problem.source_size, problem.kernel_offset, *clip]


def separate_axes(problem: PoolingForward | PoolingGradient) -> list[int]:
    """Return the axes with a panel: no axis of one pixel, and one of two equal axes."""
    trivial = [problem.source_shape[1 + axis] == problem.spec.windows[axis].kernel == 1 for axis in (0, 1)]
    if _same(problem) or trivial[0]:
        return [1]
    return [0] if trivial[1] else [1, 0]


def _name(problem: PoolingForward | PoolingGradient, axis: int) -> str:
    return "Both axes" if _same(problem) else f"{'yx'[axis]} axis"
