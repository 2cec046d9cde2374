"""Reductions through ``msl/reduce.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.kernels.reduce import Reduce, ReduceForward, ReduceGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.launch import Launcher, extent, short_sums, types, width_of
from mpsref_metal.softmax import lanes_of

FILES = "lanes", "reduce"
OPERATIONS = {"sum": 0, "mean": 0, "min": 1, "max": 2, "argumentmin": 3, "argumentmax": 4}
INDEX_OPERATIONS = 3
"""The first of the operations whose results are indices."""

IN_A_THREAD = 64
"""Maximum number of pixels that one thread folds, if rows and columns can be folded one after the other."""


def _struct(scale: float, *numbers: int) -> Array:
    """Return a struct of unsigned integers followed by a float."""
    return np.frombuffer(np.array(numbers, np.uint32).tobytes() + np.float32(scale).tobytes(), np.uint32)


def _reduce(
    launch: Launcher, operation: int, scale: float, x: Array, origin: Shape, folded: Shape, shape: Shape, *out: Array
) -> Array:
    """Fold rows, columns and channels of a part of ``x`` that begins at ``origin``; return the result, or ``out``."""
    width = width_of(x.shape[3], x, *out) if folded[2] == 1 else 1
    # There are at least as many channels as threads.
    lanes = lanes_of(folded[2]) if operation < INDEX_OPERATIONS else 1
    count = math.prod(shape) // width * lanes
    sizes = count, *extent(*shape[1:3], shape[3] // width), *folded, *x.shape[1:3], x.shape[3] // width, *origin
    known = *_known(x, operation, width, lanes), *short_sums(math.prod(folded))
    if not out:
        return launch.run(FILES, "reduce", [x, _struct(scale, *sizes)], [(shape, np.float32)], known, count)[0]
    launch.into(FILES, "reduce", [x, _struct(scale, *sizes)], out[0], known, count)
    return out[0]


def forward(launch: Launcher, problem: ReduceForward, x: Array, out: Array) -> None:
    """Fill ``out`` with the reduced image; large images are folded within rows first, then over rows."""
    operation = OPERATIONS[problem.spec.operation]
    kept, clipped = problem.kept, problem.clipped_shape[1:]
    rows, columns, depth = (1 if keep else length for keep, length in zip(kept, clipped, strict=True))
    origin = problem.region[0]
    if operation < INDEX_OPERATIONS and depth == 1 and rows * columns > IN_A_THREAD:
        n, height, width, channels = problem.clipped_shape
        width = width if kept[1] else 1
        within = _reduce(launch, operation, 1.0, x, origin, (1, columns, 1), (n, height, width, channels))
        if rows > 1:  # in two steps, so that enough threads run and none waits for many rows
            parts = next(k for k in range(math.isqrt(rows), 0, -1) if rows % k == 0)
            within = within.reshape(n * parts, rows // parts, width, channels)
            shape = n * parts, 1, width, channels
            within = _reduce(launch, operation, 1.0, within, (0, 0), (rows // parts, 1, 1), shape)
            within, rows = within.reshape(n, parts, width, channels), parts
        _reduce(launch, operation, problem.scale, within, (0, 0), (rows, 1, 1), out.shape, out)
    else:
        _reduce(launch, operation, problem.scale, x, origin, (rows, columns, depth), out.shape, out)


def gradient(launch: Launcher, problem: ReduceGradient, g: Array, out: Array) -> None:
    """Fill ``out`` with the gradient of the spatial mean."""
    origin, size = problem.region
    width = width_of(out.shape[3], g, out)
    count = out.size // width
    struct = _struct(problem.scale, count, *extent(*out.shape[1:3], out.shape[3] // width), *origin, *size)
    launch.into(FILES, "spread", [g, struct], out, (*_known(g, 0, width), *short_sums(1)), count)


def _known(source: Array, operation: int, width: int, lanes: int = 1) -> tuple[str, ...]:
    constants = f"constant int OPERATION = {operation};", f"constant constexpr uint LANES = {lanes};"
    return *types(width, Storage=source, Gradient=source), *constants


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Reduce, "forward"): forward, (Reduce, "gradient"): gradient}
