"""Input values of a family and a seed.

exact      integers that no sum of moderate size rounds; where every divisor is a power of two results must be *equal*
real       random floats, magnitudes from 2**-20 up: no product of them is a subnormal, so fast math changes nothing
hard       channels in turn of: a large mean with a small deviation, tiny values, a constant, ties, cancellation
nonfinite  those of "exact", among them NaN and infinities; for kernels that define what these give
small      integers from -3 to 3 without 0, of which no sum of a million products is rounded

Values differ from their neighbours and are never all ones, so that a transposed window or a swapped axis is detected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.layouts import repeated
from mpsref.registry import Problem

DataFamily: TypeAlias = Literal["exact", "real", "hard", "nonfinite", "small"]

FINITE: tuple[DataFamily, ...] = ("exact", "real", "hard")
"""The families of which random cases are drawn."""

INTEGERS: tuple[DataFamily, ...] = ("exact", "small")
"""Those on which results must be equal where nothing is rounded."""

PERIOD = 126
"""In the exact family this many consecutive values are distinct: the integers from -63 to 63 without 0."""

PART = 1 << 16
"""Random values that are drawn at once."""


def inputs(
    problem: Problem, dtype: str, family: DataFamily, seed: int, layouts: tuple[str, ...] = ()
) -> tuple[Array, ...]:
    """Return a legal array for each input of ``problem``; its images have ``dtype``.

    ``layouts`` are those of the inputs, if one repeats elements.
    """
    dtypes = problem.input_dtypes(np.dtype(dtype))
    drawn = {
        name: values(shape, dtype, family, seed, stream)
        for stream, (name, shape) in enumerate(problem.input_shapes.items())
    }
    for name, layout in zip(drawn, layouts, strict=False):
        drawn[name] = repeated(drawn[name], layout)
    legal = problem.legal(drawn)
    if family == "nonfinite":
        floats = [(name, stream) for stream, name in enumerate(legal) if dtypes[name].kind == "f"]
        legal = legal | {name: _with_nonfinite(legal[name], seed, stream) for name, stream in floats}
        legal = problem.legal_nonfinite(legal)
    return tuple(array.astype(dtypes[name], copy=False) for name, array in legal.items())


def values(shape: Shape, dtype: str, family: DataFamily, seed: int, stream: int = 0) -> Array:
    """Return an array of ``shape``; ``stream`` is the number of the input, whose values differ from those of others.

    Seed 0 counts up (exact: 1, 2, 3, ...), so that a shrunk case can be followed by hand.

    >>> values((1, 1, 5, 1), "float32", "exact", seed=0).ravel().tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    size = math.prod(shape)
    generator = np.random.default_rng((seed, stream, get_args(DataFamily).index(family)))
    if family in ("exact", "nonfinite"):
        flat = _ramp(size) if seed == 0 else _distinct(size, generator)
    elif family == "small":
        flat = generator.choice([-3.0, -2, -1, 1, 2, 3], size)
    elif family == "real":
        flat = 1 + _ramp(size) / 8 if seed == 0 else _normal(size, dtype, generator)
    else:
        return _hard(shape, seed, 256.0 if dtype == "float16" else 4096.0, generator).astype(dtype)
    return flat.reshape(shape).astype(dtype, copy=False)


def _ramp(size: int) -> Array:
    return np.arange(size) % (PERIOD // 2) + 1.0


def _distinct(size: int, generator: np.random.Generator) -> Array:
    """Return a permutation of the non-zero integers from -63 to 63, repeated."""
    numbers = np.delete(np.arange(-(PERIOD // 2), PERIOD // 2 + 1), PERIOD // 2)
    tile = generator.permutation(numbers)
    return np.resize(tile, size).astype(np.float64)


def _normal(size: int, dtype: str, generator: np.random.Generator) -> Array:
    """Return normal values of magnitude 2**-20 and more, computed in float64, in parts that stay in the cache."""
    made = np.empty(size, dtype)
    for start in range(0, size, PART):
        part = generator.standard_normal(min(PART, size - start))
        part[np.abs(part) < 2.0**-20] = 2.0**-20
        made[start : start + PART] = part
    return made


def _away_from_zero(flat: Array, least: float) -> Array:
    return np.where(np.abs(flat) < least, least, flat)


def _hard(shape: Shape, first: int, large: float, generator: np.random.Generator) -> Array:
    """Return five kinds of channels in turn, from kind ``first``, so that images of few channels have all of them.

    No sum of a few hundred of them overflows, none is a subnormal.
    """
    normal, choice = generator.standard_normal, generator.choice
    kinds: tuple[Callable[[Shape], Array], ...] = (
        lambda shape: large / 4 + normal(shape),
        lambda shape: _away_from_zero(normal(shape) * 2.0**-12, 2.0**-14),
        lambda shape: normal(shape[-1]) + 3,
        lambda shape: choice([-2.0, -2.0, 0.0, 0.0, 1.0], size=shape),  # 0 is often the largest
        lambda shape: choice([-large, large], size=shape) * _growing(shape[-1]) + normal(shape),
    )
    made = np.empty(shape)
    for k in range(min(5, shape[-1])):
        channels = made[..., k::5]
        channels[...] = kinds[(first + k) % 5](channels.shape)
    return made


def _growing(channels: int) -> Any:
    """Return factors up to 1, the largest for the last of many channels: the largest of the first ones is smaller."""
    return np.linspace(0.5, 1, channels) if channels > 25 else 1.0


def _with_nonfinite(array: Array, seed: int, stream: int) -> Array:
    """Return ``array`` with NaN and infinities; of channels in turn there are few, many, and only negative infinities.

    Some windows have several NaN, others an infinity and no NaN, others nothing but negative infinities.
    """
    generator = np.random.default_rng((seed, stream, 1))
    few = generator.choice([np.nan, np.inf, -np.inf, 0], p=[0.08, 0.04, 0.04, 0.84], size=array.shape)
    many = generator.choice([np.nan, np.inf, -np.inf, 0], p=[0.3, 0.1, 0.1, 0.5], size=array.shape)
    negative = generator.choice([-np.inf, 0], p=[0.8, 0.2], size=array.shape)
    added = np.choose((np.arange(array.shape[-1]) + seed) % 3, [few, many, negative])
    planted: Array = array + added.astype(array.dtype)
    return planted
