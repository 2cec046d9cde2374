"""Spatial and local contrast normalization: the buffers of their MSL functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.normalization_windows import WindowedForward, WindowedGradient, WindowedProblem
from mpsref_metal.launch import Launcher, extent, short_sums, types, width_of

STRIPS, COLUMNS = (7, 2, 1), (9, 7)
"""Numbers of results of a strip, which a thread computes, and of pixels of a row that it reads together. The largest
that fits the window is used, or 3 pixels."""

Parameters = Callable[[WindowedProblem], Array]
"""Returns the struct ``Parameters`` of a problem."""


def forward_of(family: str, parameters: Parameters, in_strips: bool = False) -> Callable[..., None]:
    """Return the implementation of ``forward`` with ``msl/FAMILY.metal``, which may compute strips of results."""

    def forward(launch: Launcher, problem: WindowedForward, x: Array, out: Array) -> None:
        width = width_of(x.shape[3], x, out)
        form = _Form(problem, width, in_strips)
        known, sizes = (*types(width, Storage=x, Gradient=x), *form.known), form.sizes(out)
        buffers = [x, *problem.reads(), sizes, parameters(problem)]
        launch.into((*form.files, family), "forward", buffers, out, known, int(sizes[0]))

    return forward


def gradient_of(family: str, parameters: Parameters, planes: int, in_strips: bool = False) -> Callable[..., None]:
    """Return the implementation of ``gradient``: ``planes`` values for each output, then their sums."""

    def gradient(launch: Launcher, problem: WindowedGradient, g: Array, x: Array, out: Array) -> None:
        width = width_of(x.shape[3], g, x, out)
        form = _Form(problem, width, in_strips)
        known, files, sizes = (*types(width, Storage=x, Gradient=g), *form.known), (*form.files, family), form.sizes(g)
        buffers = [g, x, *problem.reads(), sizes, parameters(problem)]
        terms = launch.run(files, "shares", buffers, [(g.shape, np.float32)] * planes, known, int(sizes[0]))
        sizes = form.sizes(out)
        buffers = [x, *terms, *problem.readers(), sizes, parameters(problem)]
        launch.into(files, "gradient", buffers, out, known, int(sizes[0]))

    return gradient


class _Form:
    """The files and constants of a function, and how many results a thread computes."""

    def __init__(self, problem: WindowedProblem, width: int, in_strips: bool) -> None:
        tall, wide = (window.kernel for window in problem.spec.windows)
        self.problem, self.width, self.strip = problem, width, 1
        self.files: tuple[str, ...] = "powers", "normalization_windows"
        self.known = short_sums(problem.spec.taps)
        if in_strips:
            self.strip = next(number for number in STRIPS if number <= tall)
            columns = next((number for number in COLUMNS if number <= wide), 3)
            constants = {"uint STRIP": self.strip, "int COLUMNS": columns}
            self.files += ("strips",)
            self.known = tuple(f"constant constexpr {name} = {value};" for name, value in constants.items())

    def sizes(self, result: Array) -> Array:
        """Return the struct ``WindowSizes``; the first number is that of the threads."""
        n, height, columns, channels = result.shape
        packs, strips, source = channels // self.width, -(-height // self.strip), self.problem.source_shape[1:3]
        threads, outputs = n * strips * columns * packs, self.problem.output_size
        return np.array([threads, packs, *source, *outputs, *extent(strips, columns, packs)], np.uint32)
