"""Max and L2-norm pooling: tables in the layout of ``msl/windows.metal``, and launches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.operations import cached_in_problem
from mpsref.tables import Reads, Touching
from mpsref_metal.launch import Launcher, Tables, packs_together, shapes_of, short_sums, types, width_of

WINDOW = np.dtype([("before", "f4"), ("first", "i4"), ("count", "i4"), ("after", "f4")])
CANDIDATES = np.dtype([("pixel", "i4"), ("first", "i4"), ("count", "i4"), ("start", "i4")])

MAX = "windows", "pooling_max"

CHEAPER = 2
"""Maxima within rows, then over rows, replace maxima of windows if they reduce the number of reads by this factor."""


def _structs(table: Reads) -> Array:
    """Return the columns of a table as an array of structs."""
    structs = np.empty(len(table.first), WINDOW)
    structs["before"], structs["first"], structs["count"] = table.before, table.first, table.count
    structs["after"] = table.after
    return structs


def _windows(reads: tuple[Reads, Reads]) -> Tables:
    """Return the windows of both axes, and the values common to all windows of an axis."""
    axes = np.array([[axis.step, axis.low, axis.high] for axis in reads], np.int32)
    return Tables([*map(_structs, reads), axes])


def forward_of(family: str) -> Callable[..., None]:
    """Return the implementation of ``forward`` with ``msl/FAMILY.metal``."""

    def forward(launch: Launcher, problem: PoolingForward, x: Array, out: Array) -> None:
        launch(("windows", family), "forward", [x], _tables(problem), out, _terms(problem))

    return forward


def max_forward(launch: Launcher, problem: PoolingForward, x: Array, out: Array) -> None:
    """Run ``forward`` once, or for large windows that overlap within rows first, then over rows."""
    tables, columns, width = _max_tables(problem)
    if columns is not None:
        x = _within_rows(launch, x, columns, width, _terms(problem))
    launch(MAX, "forward", [x], tables, out, _terms(problem))


@cached_in_problem
def _max_tables(problem: PoolingForward) -> tuple[Tables, Tables | None, int]:
    """Return the windows of the result, those within rows if there are two steps, and the columns of both."""
    (down, across), height = problem.reads(), problem.source_shape[1]
    width = len(across.first)
    if _is_cheaper_in_two((down, across), height):
        return _windows((down, _single(width))), _windows((_single(height), across)), width
    return _tables(problem), None, width


def _is_cheaper_in_two(reads: tuple[Reads, Reads], height: int) -> bool:
    """Return whether maxima within rows of an image, then over rows, read far fewer pixels than maxima of windows."""
    down, across = (int(axis.count.max()) for axis in reads)
    outputs = len(reads[0].first)
    in_two = height * (across + 2) + outputs * down  # 2: the maxima of rows are written and read
    return outputs * down * across > CHEAPER * in_two


def _within_rows(launch: Launcher, x: Array, windows: Tables, width: int, terms: int) -> Array:
    """Return the maxima of the windows of every row of x, ``width`` of them."""
    n, height, _, channels = x.shape
    within = launch.empty((n, height, width, channels))
    launch(MAX, "forward", [x], windows, within, terms)
    return within


def _single(length: int) -> Reads:
    """Return the reads of windows of one pixel each."""
    zeros, pixels = np.zeros(length, np.int64), np.arange(length, dtype=np.int32)
    return Reads(zeros, pixels, np.ones(length, np.int32), zeros, 1, -1, -1)


def _itself(length: int) -> Touching:
    """Return, for pixels that only their own window reads, these windows."""
    pixels = np.arange(length, dtype=np.int32)
    return Touching(pixels, pixels, np.ones(length, np.int32))


@cached_in_problem
def _tables(problem: PoolingForward) -> Tables:
    """Return the windows of both axes, and the values common to all windows of an axis."""
    return _windows(problem.reads())


@cached_in_problem
def _terms(problem: PoolingForward | PoolingGradient) -> int:
    """Return the maximum number of pixels of a window, and of windows that read a pixel."""
    of_windows = math.prod(int(axis.count.max()) + 2 for axis in problem.reads())
    if isinstance(problem, PoolingForward):
        return of_windows
    return max(of_windows, math.prod(int(axis.count.max()) for axis in problem.touching()))


class _Axes(NamedTuple):
    """The tables of a gradient for both axes."""

    windows: Tables
    candidates: Tables
    """For each pixel the windows that read it, and for each of these pairs a value."""

    @classmethod
    def of(
        cls,
        axes: Sequence[tuple[Reads, Touching]],
        of_pairs: Callable[[Reads, Array, Array], Array],
    ) -> _Axes:
        """Return the tables of two axes; ``of_pairs(reads, windows, pixels)`` are the values of pairs."""
        candidates, values = [], []
        for reads, touching in axes:
            structs = np.empty(len(touching.pixel), CANDIDATES)
            structs["pixel"], structs["first"], structs["count"] = touching.pixel, touching.first, touching.count
            end = np.cumsum(touching.count)
            structs["start"] = end - touching.count
            windows = np.arange(end[-1]) - np.repeat(structs["start"] - touching.first, touching.count)
            candidates.append(structs)
            table = of_pairs(reads, windows, np.repeat(touching.pixel, touching.count))
            values.append(table if table.size else np.zeros(1, table.dtype))
        (y, _), (x, _) = axes
        return cls(_windows((y, x)), Tables([*candidates, *values]))


class _Gradient(NamedTuple):
    """What both steps of a gradient have in common."""

    launch: Launcher
    files: tuple[str, str]
    images: tuple[Array, Array]
    """g and x."""
    axes: _Axes
    width: int
    together: int
    constants: tuple[str, ...]
    stored: dict[str, np.dtype[Any]]
    """The types of other images by their names in MSL."""

    @property
    def known(self) -> tuple[str, ...]:
        """The lines of MSL before the prelude."""
        g, x = self.images
        return (*types(self.width, Storage=x, Gradient=g, **self.stored), *self.constants)

    def of_windows(self, function: str, dtype: DTypeLike) -> Array:
        """Run a function that computes a value for each window from x."""
        g, x = self.images
        buffers = [x, self.axes.windows, shapes_of(x.shape, g.shape, self.width, self.together)]
        count = g.size // self.width // self.together
        return self.launch.run(self.files, function, buffers, [(g.shape, dtype)], self.known, count)[0]

    def gather(self, images: list[Array], out: Array) -> None:
        """Run ``gradient`` on these images."""
        shapes = shapes_of(self.images[0].shape, out.shape, self.width, self.together)
        buffers = [*images, self.axes.candidates, shapes]
        count = out.size // self.width // self.together
        self.launch.into(self.files, "gradient", buffers, out, self.known, count)


def _tap_of(reads: Reads, windows: Array, pixels: Array) -> tuple[Array, Array]:
    """Return, for pairs of a window and a pixel, the tap of the run that reads the pixel, and whether there is one."""
    tap, rest = np.divmod(pixels.astype(np.int64) - reads.first[windows], reads.step)
    return tap, (rest == 0) & (tap >= 0) & (tap < reads.count[windows])


def first_groups(reads: Reads, windows: Array, pixels: Array) -> Array:
    """Return, for pairs of a window and a pixel, the first group of taps that reads the pixel, or -1."""
    tap, inside = _tap_of(reads, windows, pixels)
    leading = (reads.before[windows] > 0).astype(np.int64)
    behind = np.where((reads.after[windows] > 0) & (pixels == reads.high), leading + reads.count[windows], -1)
    group = np.where(inside, leading + tap, behind)
    return np.where((leading > 0) & (pixels == reads.low), 0, group).astype(np.int32)


def times_reading(reads: Reads, windows: Array, pixels: Array) -> Array:
    """Return, for pairs of a window and a pixel, how many taps of the window read the pixel, float32."""
    _, inside = _tap_of(reads, windows, pixels)
    before = np.where(pixels == reads.low, reads.before[windows], 0)
    after = np.where(pixels == reads.high, reads.after[windows], 0)
    return (before + inside + after).astype(np.float32)


def max_gradient(launch: Launcher, problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``selected_taps``, then ``gradient``; for large windows that overlap over rows first, then within rows.

    The selected tap of a window is in the first row with the maximum, where it is that of the window within the row.
    """
    terms, (axes, over_rows, groups, tap) = _terms(problem), _max_axes(problem)
    width = width_of(out.shape[3], g, x, out)
    together = launch.gpu.together_of(min(g.size, out.size), out.shape[3], width, terms)
    constants = (
        *short_sums(terms),
        *packs_together(together),
        f"constant constexpr uint GROUPS = {groups};",
    )
    if over_rows is not None:
        within = _within_rows(launch, x, axes.windows, g.shape[2], terms)
        step = _Gradient(launch, MAX, (g, within), over_rows, width, together, constants, {"Tap": tap})
        of_rows = launch.empty(within.shape)
        step.gather([g, step.of_windows("selected_taps", tap)], of_rows)
        g = of_rows
    step = _Gradient(launch, MAX, (g, x), axes, width, together, constants, {"Tap": tap})
    step.gather([g, step.of_windows("selected_taps", tap)], out)


@cached_in_problem
def _max_axes(problem: PoolingGradient) -> tuple[_Axes, _Axes | None, int, np.dtype[Any]]:
    """Return the tables within windows, or over rows, then within them; groups of taps of a row, and type of a tap."""
    reads, touching, height = problem.reads(), problem.touching(), problem.source_shape[1]
    rows, columns = (int(axis.count.max()) + 2 for axis in reads)  # the taps before and after are a group
    groups = 1 << max(4, (columns - 1).bit_length())
    (y, x), over_rows = zip(reads, touching, strict=True), None
    if _is_cheaper_in_two(reads, height) and np.array_equal(touching[0].pixel, np.arange(height)):
        outputs = len(reads[1].first)
        over_rows = _Axes.of([y, (_single(outputs), _itself(outputs))], first_groups)
        y = _single(height), _itself(height)
    return _Axes.of([y, x], first_groups), over_rows, groups, np.min_scalar_type(rows * groups - 1)


def l2norm_gradient(launch: Launcher, problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``reciprocals``, which computes those of the norms, then ``gradient``."""
    width = width_of(out.shape[3], g, x, out)
    files, constants = ("windows", "pooling_l2norm"), short_sums(_terms(problem))
    step = _Gradient(launch, files, (g, x), _l2norm_axes(problem), width, 1, constants, {})
    step.gather([g, x, step.of_windows("reciprocals", np.float32)], out)


@cached_in_problem
def _l2norm_axes(problem: PoolingGradient) -> _Axes:
    return _Axes.of([*zip(problem.reads(), problem.touching(), strict=True)], times_reading)
