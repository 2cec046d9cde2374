"""The normalizations by brute force, one element at a time, as their definitions read; float64 throughout.

Nothing here calls the code under test. Gradients are central differences of the loss ``sum(g * y)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import Array

Forward = Callable[[Array], Array]


def noise(shape: Sequence[int], seed: int = 0, dtype: str = "float32") -> Array:
    """Numbers whose squares are neither tiny nor large."""
    return np.random.default_rng((seed, *shape)).uniform(-2, 2, tuple(shape)).astype(dtype)


def grouped(x: Array, groups: int, epsilon: float, gamma: Any = None, beta: Any = None) -> Array:
    """Group normalization: collect the values of each group of an image, then normalize them one by one."""
    x = x.astype(np.float64)
    n, height, width, channels = x.shape
    y = np.empty_like(x)
    for image, group in itertools.product(range(n), range(groups)):
        members = [c for c in range(channels) if c // (channels // groups) == group]
        values = [x[image, i, k, c] for i, k in np.ndindex(height, width) for c in members]
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / len(values)
        for c in members:
            scale = 1.0 if gamma is None else float(gamma[c])
            shift = 0.0 if beta is None else float(beta[c])
            y[image, ..., c] = scale * (x[image, ..., c] - mean) / np.sqrt(variance + epsilon) + shift
    return y


def taps(x: Array, centre: tuple[int, int], kernel: tuple[int, int]) -> Iterator[Array]:
    """What each tap of a window reads, (N, C): from ``centre - K // 2`` on, K of them; zeros outside the image."""
    for i, k in np.ndindex(*kernel):
        row, column = centre[0] - kernel[0] // 2 + i, centre[1] - kernel[1] // 2 + k
        yield pixel(x, row, column)


def pixel(x: Array, row: int, column: int) -> Array:
    inside = 0 <= row < x.shape[1] and 0 <= column < x.shape[2]
    return x[:, row, column] if inside else np.zeros((x.shape[0], x.shape[3]))


def windowed(x: Array, spec: Any, size: tuple[int, int], value: Callable[[Any, Array, list[Array]], Array]) -> Array:
    """Apply ``value(spec, centre, taps)`` at each output."""
    x = x.astype(np.float64)
    y = np.empty((x.shape[0], *size, x.shape[3]))
    for i, k in np.ndindex(*size):
        centre = i + spec.offset[0], k + spec.offset[1]
        y[:, i, k] = value(spec, pixel(x, *centre), list(taps(x, centre, spec.kernel_size)))
    return y


def spatial(spec: Any, centre: Array, read: list[Array]) -> Array:
    squares = sum((value**2 for value in read), np.zeros_like(centre))
    return np.asarray(centre / (spec.delta + spec.alpha * squares / len(read)) ** spec.beta)


def local_contrast(spec: Any, centre: Array, read: list[Array]) -> Array:
    mean = sum(read, np.zeros_like(centre)) / len(read)
    variance = sum(((value - mean) ** 2 for value in read), np.zeros_like(centre)) / len(read)
    return np.asarray(spec.pm + spec.ps * (centre - spec.p0 * mean) / (spec.delta + spec.alpha * variance) ** spec.beta)


def cross_channel(x: Array, spec: Any) -> Array:
    """Walk over the channels of the window, those that exist."""
    x = x.astype(np.float64)
    channels, size = x.shape[-1], spec.kernel_size
    y = np.empty_like(x)
    for k in range(channels):
        window = [q for q in range(k - size // 2, k - size // 2 + size) if 0 <= q < channels]
        squares = sum((x[..., q] ** 2 for q in window), np.zeros_like(x[..., 0]))
        y[..., k] = x[..., k] / (spec.delta + spec.alpha * squares / size) ** spec.beta
    return y


def slope(forward: Forward, values: Array, g: Array, step: float = 1e-5) -> Array:
    """Differentiate ``sum(g * forward(values))`` by central differences, one element at a time."""
    values = values.astype(np.float64)
    result = np.empty(values.size)
    for k in range(values.size):
        losses = []
        for sign in (1, -1):
            moved = values.copy()
            moved.reshape(-1)[k] += sign * step
            losses.append(float((g * forward(moved)).sum()))
        result[k] = (losses[0] - losses[1]) / (2 * step)
    return result.reshape(values.shape)


def torch_or_skip() -> ModuleType:
    module: ModuleType = pytest.importorskip("torch", reason="the oracle of this test is PyTorch")
    return module


def nchw(torch: ModuleType, x: Array) -> Any:
    return torch.from_numpy(np.ascontiguousarray(x.astype(np.float64).transpose(0, 3, 1, 2)))


def by_torch(torch: ModuleType, function: Callable[[Any], Any], x: Array, g: Array) -> tuple[Array, Array]:
    """Value and gradient of a function of PyTorch in float64, as (N, H, W, C)."""
    image = nchw(torch, x).requires_grad_()
    y = function(image)
    (dx,) = torch.autograd.grad(y, image, nchw(torch, g))
    return y.detach().numpy().transpose(0, 2, 3, 1), dx.numpy().transpose(0, 2, 3, 1)
