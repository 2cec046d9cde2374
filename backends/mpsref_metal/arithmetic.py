"""Arithmetic of two images through ``msl/arithmetic.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.arithmetic import Arithmetic, ArithmeticForward, ArithmeticGradient
from mpsref.kernels.broadcasting import BroadcastProblem
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.broadcasting import pair_width, pairing, types_of
from mpsref_metal.fold import fold
from mpsref_metal.launch import Launcher, types
from mpsref_metal.softmax import lanes_of

PARTS = ("lanes", "operands", "arithmetic")
OPERATIONS = {"add": 0, "subtract": 0, "multiply": 1, "divide": 2}
NUMBERS = np.dtype(
    [*((name, "u4") for name in ("operation", "clamps")), *((name, "f4") for name in ("p", "q", "bias", "low", "high"))]
)
SLOPE = np.dtype([("scale", "f4"), ("other_scale", "f4"), ("other", "i4")])
LARGEST = float(np.finfo(np.float32).max)


def _scales(spec: Arithmetic) -> tuple[float, float]:
    """Return p and q; a difference is the sum with -q."""
    return spec.primary_scale, -spec.secondary_scale if spec.operation == "subtract" else spec.secondary_scale


def _numbers(spec: Arithmetic) -> Array:
    """Return the struct ``Arithmetic``; infinite bounds are replaced, since fast math has no infinity."""
    bounds = np.clip([spec.minimum_value, spec.maximum_value], -LARGEST, LARGEST)
    with np.errstate(over="ignore"):
        return np.array([(OPERATIONS[spec.operation], spec.clamps, *_scales(spec), spec.bias, *bounds)], NUMBERS)


def _known(problem: BroadcastProblem, g: Array, x: Array, y: Array, width: int) -> tuple[str, ...]:
    return *types_of(problem, x, y, width), *types(width, Gradient=g)[-1:]


def forward(launch: Launcher, problem: ArithmeticForward, x: Array, y: Array, out: Array) -> None:
    """Fill ``out`` with r."""
    width = pair_width(problem, x, y, out)
    count = out.size // width
    buffers = [x, y, pairing(problem, count, width), _numbers(problem.spec)]
    known = *_known(problem, x, x, y, width), "constant constexpr uint LANES = 1;"
    launch.into(PARTS, "forward", buffers, out, known, count)


def gradient(
    launch: Launcher, problem: ArithmeticGradient, g: Array, *operands: Array, out: Array | tuple[Array, ...]
) -> None:
    """Fill ``out`` with dx, dy or both: sum within rows, sum over rows, and scatter into the operand's region."""
    images = g, *problem.sources(operands, g)
    targets = dict(zip(problem.of, out if isinstance(out, tuple) else (out,), strict=True))
    whole = {k: target for k, target in targets.items() if _is_whole(problem, k, target)}
    if len(targets) == 2 and whole:
        first = min(whole)
        groups: list[tuple[int, ...]] = [(first, 1 - first)]
    else:
        groups = [(k,) for k in targets]
    for group in groups:
        terms = _within_rows(launch, problem, group, [whole.get(k) for k in group], *images)
        for k, sums in zip(group, terms, strict=True):
            if k not in whole:
                operand, target = problem.spec.operands[k], targets[k]
                target.fill(0)
                with np.errstate(over="ignore"):
                    operand.part(target)[...] = sums if operand.strides[0] else fold(launch, sums)[:, None]


def _is_whole(problem: ArithmeticGradient, k: int, target: Array) -> bool:
    """Return whether operand k has one element for each of the result."""
    operand = problem.spec.operands[k]
    return target.shape == problem.shape and operand.strides == (1, 1, 1) and operand.offset == (0, 0, 0)


def _within_rows(
    launch: Launcher, problem: ArithmeticGradient, of: tuple[int, ...], targets: list[Array | None], *images: Array
) -> list[Array]:
    """Return the gradients for the operands ``of``, for the last one summed within rows; in ``targets`` where given.

    If there are two, the first one has one element for each of the result.
    """
    n, height, columns, channels = problem.shape
    _, walks_x, walks_c = problem.spec.operands[of[-1]].strides
    g, x, y = images
    width = pair_width(problem, x, y, g, *(target for target in targets if target is not None))
    lanes = 1 if walks_c else lanes_of(channels // width)
    shape = n, height, columns if walks_x else 1, channels if walks_c else 1
    threads = *shape[1:3], shape[3] // (width if walks_c else 1)
    count = n * math.prod(threads) * lanes
    scales, product = _scales(problem.spec), problem.spec.operation == "multiply"
    slopes = np.array([(scales[k], scales[1 - k], 1 - k if product else -1) for k in of], SLOPE)
    folds = np.array([1 - walks_x, 1 - walks_c], np.uint32)
    buffers = [*images, pairing(problem, count, width, threads), _numbers(problem.spec), folds, slopes]
    known = *_known(problem, g, x, y, width), f"constant constexpr uint LANES = {lanes};"
    outs = tuple(launch.empty(shape) if target is None else target for target in targets)
    launch.into(PARTS, "gradients" if len(of) == 2 else "gradient", buffers, outs, known, count)
    return list(outs)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Arithmetic, "forward"): forward,
    (Arithmetic, "gradient"): gradient,
}
