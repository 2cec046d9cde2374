"""Average pooling by brute force: one window, one tap and one pixel at a time, as its definition reads.

Nothing here calls the code under test. Of a :class:`mpsref.PoolingAverage` only the parameters are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mpsref import PoolingAverage
from mpsref.arguments.arrays import Array

Axis = dict[str, Any]


class Answer(NamedTuple):
    """A result in float64, the sum of the absolute values of its terms, and how many there are."""

    value: Array
    magnitude: Array
    terms: Array


def axes(pool: PoolingAverage) -> list[Axis]:
    """The parameters of y and those of x."""
    names: dict[str, Any] = {"k": pool.kernel_size, "s": pool.strides, "o": pool.offset, "z": pool.zero_pad_size}
    return [{name: pair[k] for name, pair in names.items()} | {"edge": pool.edge_mode} for k in (0, 1)]


def taps(axis: Axis, i: int) -> list[int]:
    """The coordinates that window i reads, inside the image or not."""
    return [axis["o"] + axis["s"] * i - axis["k"] // 2 + t for t in range(axis["k"])]


def divisor_of(axis: Axis, i: int, length: int) -> int:
    """What the sum of window i is divided by."""
    if axis["edge"] == "zero":
        return int(axis["k"])
    return sum(-axis["z"] <= j < length + axis["z"] for j in taps(axis, i))


def inside(axis: Axis, i: int, length: int) -> list[int]:
    return [j for j in taps(axis, i) if 0 <= j < length]


def forward(pool: PoolingAverage, x: Array, output_size: tuple[int, int]) -> Answer:
    batch, height, width, channels = x.shape
    y_axis, x_axis = axes(pool)
    answer = Answer(*(np.zeros((batch, *output_size, channels)) for _ in range(3)))
    for a, b in np.ndindex(output_size):
        divisor = divisor_of(y_axis, a, height) * divisor_of(x_axis, b, width)
        for y in inside(y_axis, a, height):
            for column in inside(x_axis, b, width):
                _add(answer, (a, b), x[:, y, column].astype(np.float64) / divisor)
    return answer


def gradient(
    pool: PoolingAverage,
    g: Array,
    shape: tuple[int, ...],
    primary_offset: tuple[int, int] = (0, 0),
    source_size: tuple[int, int] | None = None,
    kernel_offset: tuple[int, int] | None = None,
    clip: tuple[tuple[int, int], tuple[int, int]] | None = None,
) -> Answer:
    """Scatter each included gradient pixel into the whole source, then move the clip's pixels to their place."""
    _, height, width, _ = shape
    y_axis, x_axis = axes(pool)
    whole = Answer(*(np.zeros(shape) for _ in range(3)))
    for u in included(g.shape[1], primary_offset[0], source_size and source_size[0]):
        for v in included(g.shape[2], primary_offset[1], source_size and source_size[1]):
            a, b = u - primary_offset[0], v - primary_offset[1]
            divisor = divisor_of(y_axis, a, height) * divisor_of(x_axis, b, width)
            for y in inside(y_axis, a, height):
                for column in inside(x_axis, b, width):
                    _add(whole, (y, column), g[:, u, v].astype(np.float64) / divisor)
    origin, size = clip or ((0, 0), (height, width))
    placed = Answer(*(np.zeros(shape) for _ in range(3)))
    moves = [
        list(represented(axis, origin[k], size[k], kernel_offset and kernel_offset[k], shape[1 + k]))
        for k, axis in enumerate((y_axis, x_axis))
    ]
    for to_y, from_y in moves[0]:
        for to_x, from_x in moves[1]:
            for moved, full in zip(placed, whole, strict=True):
                moved[:, to_y, to_x] = full[:, from_y, from_x]
    return placed


def included(length: int, p0: int, size: int | None) -> list[int]:
    """The gradient pixels that count."""
    return [u for u in range(length) if u >= p0 and (size is None or u < p0 + size)]


def represented(axis: Axis, origin: int, size: int, ko: int | None, length: int) -> Iterator[tuple[int, int]]:
    """Yield (result pixel, source pixel) of one axis of the clip."""
    even = 1 - axis["k"] % 2
    for q in range(min(size, length - origin)):
        j = origin + q if ko is None else q + ko + axis["o"] - even
        if 0 <= j < length:
            yield origin + q, j


def _add(answer: Answer, at: tuple[int, int], term: Array) -> None:
    for total, part in zip(answer, (term, np.abs(term), 1), strict=True):
        total[:, *at] += part


def unit_roundoff(backend: str, dtype: Any) -> float:
    """Half the spacing at 1 of the arithmetic that a backend computes in: float32, but for the reference."""
    if backend == "reference":
        return 2.0**-53
    if backend == "reference:input-dtype":
        return float(np.finfo(dtype).eps) / 2
    return 2.0**-24


def assert_close(actual: Array, answer: Answer, backend: str) -> None:
    """Require the bound ``gamma(m) * sum |terms| + ulp / 2`` with m = terms + 4, and exact zeros where nothing is read.

    The brute force itself rounds like float64, hence a second gamma.
    """
    assert actual.shape == answer.value.shape
    m = answer.terms + 4
    limit = np.full(actual.shape, 0.0)
    for u in (unit_roundoff(backend, actual.dtype), 2.0**-53):
        limit += m * u / (1 - m * u) * answer.magnitude
    larger = np.maximum(np.abs(actual), np.abs(answer.value)).astype(actual.dtype)
    limit += np.where(answer.terms > 0, np.spacing(larger).astype(np.float64) / 2, 0)
    error = np.abs(actual.astype(np.float64) - answer.value)
    worst = np.unravel_index(np.argmax(error - limit), error.shape)
    assert (error <= limit).all(), f"at {worst}: {actual[worst]}, brute force says {answer.value[worst]}"
