"""Spatial and local contrast normalization: the buffers of their MSL functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.normalization_windows import WindowedForward, WindowedGradient, WindowedProblem
from mpsref_metal.launch import Launcher, extent, short_sums, types, width_of

Parameters = Callable[[WindowedProblem], Array]
"""Returns the struct ``Parameters`` of a problem."""


def forward_of(family: str, parameters: Parameters) -> Callable[..., None]:
    """Return the implementation of ``forward`` with ``msl/FAMILY.metal``."""

    def forward(launch: Launcher, problem: WindowedForward, x: Array, out: Array) -> None:
        width = width_of(x.shape[3], x, out)
        known = *types(width, Storage=x, Gradient=x), *short_sums(problem.spec.taps)
        buffers = [x, *problem.reads(), _sizes(problem, out, width), parameters(problem)]
        launch.into(("powers", "normalization_windows", family), "forward", buffers, out, known, out.size // width)

    return forward


def gradient_of(family: str, parameters: Parameters, planes: int) -> Callable[..., None]:
    """Return the implementation of ``gradient``: ``planes`` values for each output, then their sums."""

    def gradient(launch: Launcher, problem: WindowedGradient, g: Array, x: Array, out: Array) -> None:
        width, files = width_of(x.shape[3], g, x, out), ("powers", "normalization_windows", family)
        known = *types(width, Storage=x, Gradient=g), *short_sums(problem.spec.taps)
        buffers = [g, x, *problem.reads(), _sizes(problem, g, width), parameters(problem)]
        terms = launch.run(files, "shares", buffers, [(g.shape, np.float32)] * planes, known, g.size // width)
        buffers = [x, *terms, *problem.readers(), _sizes(problem, out, width), parameters(problem)]
        launch.into(files, "gradient", buffers, out, known, out.size // width)

    return gradient


def _sizes(problem: WindowedProblem, result: Array, width: int) -> Array:
    """Return the struct ``Sizes``."""
    _, height, columns, channels = problem.source_shape
    packs = channels // width
    sizes = result.size // width, packs, height, columns, *problem.output_size, *extent(*result.shape[1:3], packs)
    return np.array(sizes, np.uint32)
