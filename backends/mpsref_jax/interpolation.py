"""Bilinear interpolation at any positions, by ``jax.scipy.ndimage.map_coordinates``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates

from mpsref.kernels.interpolation import Sampling
from mpsref_jax.run import Function, JaxArray


def sampled(axes: tuple[Sampling, Sampling]) -> Function:
    """Return the interpolation of an image; a position outside of a bounded axis gives 0."""
    rows, columns = (
        [(axis.start + i * axis.numerator) / axis.denominator for i in range(axis.outputs)] for axis in axes
    )
    positions = np.meshgrid(np.array(rows, np.float32), np.array(columns, np.float32), indexing="ij")
    outside = np.logical_or.outer(*([not axis.reads(i) for i in range(axis.outputs)] for axis in axes))
    mode = "nearest" if axes[0].edge_mode == "clamp" else "constant"

    def plane(x: JaxArray) -> JaxArray:
        return jnp.where(outside, 0, map_coordinates(x, positions, order=1, mode=mode))

    image: Function = jax.vmap(jax.vmap(plane, in_axes=2, out_axes=2))
    return image


def forward(problem: Any) -> Function:
    return sampled(problem.axes)
