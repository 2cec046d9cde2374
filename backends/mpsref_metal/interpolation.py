"""Interpolation through ``msl/interpolation.metal``."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.interpolation import Sampling
from mpsref_metal.launch import Launcher, Tables


def resample(launch: Launcher, axes: tuple[Sampling, Sampling], gradient: bool, source: Array, out: Array) -> None:
    """Fill ``out`` with ``source`` interpolated along y and x, or with the gradient of the interpolation."""
    tables, terms = _tables(axes, gradient)
    launch(("interpolation",), "resample", [source], tables, out, terms, groups=True)


@lru_cache(256)
def _tables(axes: tuple[Sampling, Sampling], gradient: bool) -> tuple[Tables, int]:
    """Return the tables of both axes, and the largest number of terms of a result."""
    tables, terms = [], 1
    for axis in axes:
        first, number, start, weights = axis.gradient() if gradient else axis.forward()
        terms *= int(number.max())
        tables += [np.stack([first, number, start], axis=1), weights.astype(np.float32)]
    return Tables(tables), terms
