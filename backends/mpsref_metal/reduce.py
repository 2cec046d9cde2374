"""Reductions through ``msl/reduce.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.reduce import Reduce, ReduceForward, ReduceGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.launch import Launcher, typedef

OPERATIONS = {"sum": 0, "mean": 0, "min": 1, "max": 2, "argumentmin": 3, "argumentmax": 4}


def _struct(scale: float, *numbers: int) -> Array:
    """Return a struct of unsigned integers followed by a float."""
    return np.frombuffer(np.array(numbers, np.uint32).tobytes() + np.float32(scale).tobytes(), np.uint32)


def _run(launch: Launcher, function: str, source: Array, struct: Array, out: Array, operation: int) -> None:
    known = typedef("Storage", source), typedef("Gradient", source), f"constant int OPERATION = {operation};"
    launch.into(("reduce",), function, [source, struct], out, known)


def forward(launch: Launcher, problem: ReduceForward, x: Array, out: Array) -> None:
    """Fill ``out`` with the reduced image."""
    folded = (1 if keep else length for keep, length in zip(problem.kept, problem.clipped_shape[1:], strict=True))
    struct = _struct(problem.scale, out.size, *out.shape[1:], *folded, *x.shape[1:], *problem.region[0])
    _run(launch, "reduce", x, struct, out, OPERATIONS[problem.spec.operation])


def gradient(launch: Launcher, problem: ReduceGradient, g: Array, out: Array) -> None:
    """Fill ``out`` with the gradient of the spatial mean."""
    origin, size = problem.region
    _run(launch, "spread", g, _struct(problem.scale, out.size, *out.shape[1:], *origin, *size), out, 0)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Reduce, "forward"): forward, (Reduce, "gradient"): gradient}
