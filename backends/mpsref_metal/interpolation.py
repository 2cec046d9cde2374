"""Interpolation through ``msl/interpolation.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.interpolation import Sampling
from mpsref_metal.launch import Launcher


def resample(launch: Launcher, axes: tuple[Sampling, Sampling], gradient: bool, source: Array, out: Array) -> None:
    """Fill ``out`` with ``source`` interpolated along y and x, or with the gradient of the interpolation."""
    buffers, terms = [], 1
    for axis in axes:
        first, number, start, weights = axis.gradient() if gradient else axis.forward()
        terms *= int(number.max())
        buffers += [np.stack([first, number, start], axis=1), weights.astype(np.float32)]
    launch(("interpolation",), "resample", [source], buffers, out, terms, groups=True)
