"""Batch normalization on the cpu backend: every branch of its loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import Array
from mpsref.kernels import Neuron
from mpsref.kernels.batch_normalization import BatchNormalization
from mpsref_cpu.normalization import batch_normalization as kernels

SHAPES = [
    (4, 64, 64, 48),  # several pixels a strip, several strips a block
    (1, 5, 7, 3),  # less than one strip
    (2, 9, 9, 700),  # a strip of two tiles
    (3, 40, 41, 5),  # blocks whose strips do not come out even
    (1, 1, 1, 1),
    (2, 8, 8, 512),
]


def images(shape: tuple[int, ...], dtype: str = "float32") -> tuple[Array, Array]:
    x, g = np.random.default_rng(sum(shape)).standard_normal((2, *shape))
    return (3 + x).astype(dtype), g.astype(dtype)


def step(shape: tuple[int, ...], dtype: str, neuron: Any = None) -> list[Array]:
    """Every result of a training step, and of one with frozen statistics."""
    x, g = images(shape, dtype)
    norm, how = BatchNormalization(1e-5, neuron), {"backend": "cpu"}
    channels = shape[3]
    gamma, beta = np.linspace(-1, 2, channels, dtype=np.float32), np.linspace(3, -1, channels, dtype=np.float32)
    seen = norm.statistics(x, norm.statistics(x[:1], **how), **how)
    given = seen.mean, seen.variance, gamma, beta
    sums = norm.statistics_gradient(g, x, *given, norm.statistics_gradient(g[:1], x[:1], *given, **how), **how)
    images_ = (
        norm.forward(x, *given, **how),
        norm.gradient(g, x, *given, sums, **how),
        norm.gradient(g, x, *given, **how),
    )
    return [seen.mean, seen.m2, sums.dbeta, sums.dgamma, *images_]


@pytest.mark.parametrize("neuron", [None, "relu", "prelu"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_length_of_a_strip(shape: tuple[int, ...], neuron: Any) -> None:
    """Against the formulas, in float64."""
    slopes = np.linspace(-0.5, 0.5, shape[3])
    spec = None if neuron is None else Neuron("prelu", data=slopes) if neuron == "prelu" else Neuron("relu", a=0.25)
    x, g = (array.astype(np.float64) for array in images(shape))
    n, axes = x[..., 0].size + x[:1, ..., 0].size, (0, 1, 2)
    both = np.concatenate([x.reshape(-1, shape[3]), x[:1].reshape(-1, shape[3])])
    mean, m2 = both.mean(0), both.var(0) * n
    gamma, beta = np.linspace(-1, 2, shape[3]), np.linspace(3, -1, shape[3])
    r = 1 / np.sqrt(m2 / n + 1e-5)
    xhat = (x - mean) * r
    z = gamma * xhat + beta
    negative = {None: 1.0, "relu": 0.25, "prelu": slopes}[neuron]
    slope = np.where(z >= 0, 1.0, negative)
    dz = g * slope
    dbeta = dz.sum(axes) + dz[:1].sum(axes)
    dgamma = (dz * xhat).sum(axes) + (dz * xhat)[:1].sum(axes)
    expected = [
        *(mean, m2, dbeta, dgamma),
        *(z * slope, gamma * r * (dz - dbeta / n - xhat * dgamma / n), gamma * r * dz),
    ]
    far_from_kinks = abs(z) > 1e-3
    for name, actual, wanted in zip(
        ("mean", "m2", "dbeta", "dgamma", "y", "dx", "frozen dx"), step(shape, "float32", spec), expected, strict=True
    ):
        scale = np.abs(wanted).max() + 1e-3
        kept = far_from_kinks if actual.ndim == 4 else slice(None)
        np.testing.assert_allclose(actual[kept] / scale, wanted[kept] / scale, atol=3e-5, err_msg=name)


def test_blocks_are_equal_and_cover_all_pixels() -> None:
    for shape in SHAPES:
        problem = BatchNormalization.problems["statistics"](BatchNormalization(), shape)
        block = kernels._block(problem)
        count = len(kernels._block_sums(problem))
        assert (count - 1) * block < problem.pixels <= count * block


def test_a_far_shift_is_corrected() -> None:
    """The first pixel of a long block is the shift; squares of distances to it would drown those to the mean."""
    x = np.random.default_rng(1).standard_normal((1, 512, 512, 1)).astype(np.float32)
    x[0, 0, 0] = 1e5
    assert kernels._block(BatchNormalization.problems["statistics"](BatchNormalization(), x.shape)) > 4096
    seen = BatchNormalization().statistics(x, backend="cpu")
    exact = x.astype(np.float64)
    np.testing.assert_allclose(seen.m2, exact.var((0, 1, 2)) * x.size, rtol=1e-6)
    np.testing.assert_allclose(seen.mean, exact.mean((0, 1, 2)), rtol=1e-6)
