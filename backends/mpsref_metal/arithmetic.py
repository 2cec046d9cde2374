"""Arithmetic of two images through ``msl/arithmetic.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.arithmetic import Arithmetic, ArithmeticForward, ArithmeticGradient
from mpsref.kernels.broadcasting import Operand
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.broadcasting import fold_rows, pairing, types_of
from mpsref_metal.launch import Launcher, typedef

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


def _known(spec: Arithmetic, g: Array, x: Array, y: Array) -> tuple[str, ...]:
    operation = f"constant int OPERATION = {OPERATIONS[spec.operation]};"
    clamped = f"constant bool CLAMPED = {str(spec.clamps).lower()};"
    return typedef("Gradient", g), *types_of(x, y), operation, clamped


def forward(launch: Launcher, problem: ArithmeticForward, x: Array, y: Array, out: Array) -> None:
    """Fill ``out`` with r."""
    spec = problem.spec
    buffers = [x, y, pairing(problem, out.size), _numbers(spec)]
    known = _known(spec, x, x, y)
    launch.into(PARTS, "forward", buffers, out, known)


def gradient(
    launch: Launcher, problem: ArithmeticGradient, g: Array, *operands: Array, out: Array | tuple[Array, ...]
) -> None:
    """Fill ``out`` with dx, dy or both: sum within rows, sum over rows, and scatter into the operand's region."""
    scales = _scales(problem.spec)
    x, y = problem.sources(operands, g)
    for k, target in zip(problem.of, out if isinstance(out, tuple) else (out,), strict=True):
        slope = scales[k], scales[1 - k], 1 - k if problem.spec.operation == "multiply" else -1
        operand = problem.spec.operands[k]
        sums = _within_rows(launch, problem, slope, operand, g, x, y)
        folded = sums if operand.strides[0] else fold_rows(launch, sums)
        target.fill(0)
        with np.errstate(over="ignore"):
            operand.part(target)[...] = folded


def _within_rows(
    launch: Launcher,
    problem: ArithmeticGradient,
    slope: tuple[float, float, int],
    operand: Operand,
    *images: Array,
) -> Array:
    n, height, width, channels = problem.shape
    _, walks_x, walks_c = operand.strides
    shape = n, height, width if walks_x else 1, channels if walks_c else 1
    fields = [("scale", "f4"), ("other_scale", "f4"), ("other", "i4"), ("columns", "u4"), ("channels", "u4")]
    struct = np.array([(*slope, 1 - walks_x, 1 - walks_c)], fields)
    buffers = [*images, pairing(problem, int(np.prod(shape))), _numbers(problem.spec), struct]
    known = _known(problem.spec, *images)
    return launch.run(PARTS, "gradient", buffers, [(shape, np.float32)], known)[0]


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Arithmetic, "forward"): forward,
    (Arithmetic, "gradient"): gradient,
}
