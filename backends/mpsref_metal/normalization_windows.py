"""Spatial and local contrast normalization: the buffers of their MSL functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.normalization_windows import WindowedForward, WindowedGradient, WindowedProblem
from mpsref_metal.launch import Launcher, typedef

Parameters = Callable[[WindowedProblem], Array]
"""Returns the struct ``Parameters`` of a problem."""


def forward_of(family: str, parameters: Parameters) -> Callable[..., None]:
    """Return the implementation of ``forward`` with ``msl/FAMILY.metal``."""

    def forward(launch: Launcher, problem: WindowedForward, x: Array, out: Array) -> None:
        files, known = ("normalization_windows", family), (typedef("Storage", x), typedef("Gradient", x))
        buffers = [x, *problem.reads(), _sizes(problem, out), parameters(problem)]
        launch.into(files, "forward", buffers, out, known)

    return forward


def gradient_of(family: str, parameters: Parameters, planes: int) -> Callable[..., None]:
    """Return the implementation of ``gradient``: ``planes`` values for each output, then their sums."""

    def gradient(launch: Launcher, problem: WindowedGradient, g: Array, x: Array, out: Array) -> None:
        files, known = ("normalization_windows", family), (typedef("Storage", x), typedef("Gradient", g))
        buffers = [g, x, *problem.reads(), _sizes(problem, g), parameters(problem)]
        terms = launch.run(files, "shares", buffers, [(g.shape, np.float32)] * planes, known)
        buffers = [x, *terms, *problem.readers(), _sizes(problem, out), parameters(problem)]
        launch.into(files, "gradient", buffers, out, known)

    return gradient


def _sizes(problem: WindowedProblem, result: Array) -> Array:
    """Return the struct ``Sizes``."""
    _, height, width, channels = problem.source_shape
    return np.array([result.size, channels, height, width, *problem.output_size], np.uint32)
