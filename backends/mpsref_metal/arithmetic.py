"""Arithmetic of two images through ``msl/arithmetic.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.arithmetic import Arithmetic, ArithmeticForward, ArithmeticGradient
from mpsref.kernels.broadcasting import BroadcastProblem, Operand
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.broadcasting import fold_rows, pair_width, pairing, types_of
from mpsref_metal.launch import Launcher, types

PARTS = ("operands", "arithmetic")
OPERATIONS = {"add": 0, "subtract": 0, "multiply": 1, "divide": 2}
LARGEST = float(np.finfo(np.float32).max)


def _scales(spec: Arithmetic) -> tuple[float, float]:
    """Return p and q; a difference is the sum with -q."""
    return spec.primary_scale, -spec.secondary_scale if spec.operation == "subtract" else spec.secondary_scale


def _numbers(spec: Arithmetic) -> Array:
    """Return the struct ``Numbers``; infinite bounds are replaced, since fast math has no infinity."""
    bounds = np.clip([spec.minimum_value, spec.maximum_value], -LARGEST, LARGEST)
    return np.array([*_scales(spec), spec.bias, *bounds]).astype(np.float32)


def _known(problem: BroadcastProblem, g: Array, x: Array, y: Array, width: int) -> tuple[str, ...]:
    spec = problem.spec
    assert isinstance(spec, Arithmetic)
    operation = f"constant int OPERATION = {OPERATIONS[spec.operation]};"
    clamped = f"constant bool CLAMPED = {str(spec.clamps).lower()};"
    return *types_of(problem, x, y, width), *types(width, Gradient=g)[-1:], operation, clamped


def forward(launch: Launcher, problem: ArithmeticForward, x: Array, y: Array, out: Array) -> None:
    """Fill ``out`` with r."""
    width = pair_width(problem, x, y, out)
    count = out.size // width
    buffers = [x, y, pairing(problem, count, width), _numbers(problem.spec)]
    launch.into(PARTS, "forward", buffers, out, _known(problem, x, x, y, width), count)


def gradient(
    launch: Launcher, problem: ArithmeticGradient, g: Array, *operands: Array, out: Array | tuple[Array, ...]
) -> None:
    """Fill ``out`` with dx, dy or both: sum within rows, sum over rows, and scatter into the operand's region."""
    scales = _scales(problem.spec)
    x, y = problem.sources(operands, g)
    for k, target in zip(problem.of, out if isinstance(out, tuple) else (out,), strict=True):
        slope = scales[k], scales[1 - k], 1 - k if problem.spec.operation == "multiply" else -1
        operand = problem.spec.operands[k]
        if target.shape == problem.shape and operand.strides == (1, 1, 1) and operand.offset == (0, 0, 0):
            _within_rows(launch, problem, slope, operand, target, g, x, y)
            continue
        sums = _within_rows(launch, problem, slope, operand, None, g, x, y)
        folded = sums if operand.strides[0] else fold_rows(launch, sums)
        target.fill(0)
        with np.errstate(over="ignore"):
            operand.part(target)[...] = folded


def _within_rows(
    launch: Launcher,
    problem: ArithmeticGradient,
    slope: tuple[float, float, int],
    operand: Operand,
    target: Array | None,
    *images: Array,
) -> Array:
    """Return the sums within rows, in ``target`` if that is not ``None``."""
    n, height, columns, channels = problem.shape
    _, walks_x, walks_c = operand.strides
    shape = n, height, columns if walks_x else 1, channels if walks_c else 1
    g, x, y = images
    width = pair_width(problem, x, y, g, *(() if target is None else (target,)))
    count = math.prod(shape) // (width if walks_c else 1)
    fields = [("scale", "f4"), ("other_scale", "f4"), ("other", "i4"), ("columns", "u4"), ("channels", "u4")]
    struct = np.array([(*slope, 1 - walks_x, 1 - walks_c)], fields)
    buffers = [*images, pairing(problem, count, width), _numbers(problem.spec), struct]
    known = _known(problem, g, x, y, width)
    if target is None:
        return launch.run(PARTS, "gradient", buffers, [(shape, np.float32)], known, count)[0]
    launch.into(PARTS, "gradient", buffers, target, known, count)
    return target


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Arithmetic, "forward"): forward,
    (Arithmetic, "gradient"): gradient,
}
