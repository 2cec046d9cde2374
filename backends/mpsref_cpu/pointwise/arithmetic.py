"""Arithmetic of two images, and its gradients: lines of the operands, one loop over each line, no temporary images.

The gradient of an operand that repeats elements is a sum over lines: terms are computed line by line in a scratch
vector and reduced at once. Workspace: three lines a thread; for reduced rows, less than half of the source gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from mpsref.arguments.arrays import Array
from mpsref.kernels.arithmetic import Arithmetic, ArithmeticForward, ArithmeticGradient
from mpsref.kernels.broadcasting import BroadcastProblem
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, generic, inlined, uncounted
from mpsref_cpu.data_movement.gather import copy
from mpsref_cpu.pointwise.broadcasting import (
    BLOCK,
    Walk,
    expand,
    is_direct,
    is_whole,
    pixels_of_a_line,
    repeats,
    start_of,
    walk_of,
)
from mpsref_cpu.reduction.axis_reductions import LANES, WIDE, ReductionPlan, Total, add_runs, reduce_run
from mpsref_cpu.threads import as_storage, for_rows


class Sum(NamedTuple):
    """``p x + q y + bias``, clamped; a difference has the negative q. All of these hold float32 numbers."""

    p: Any
    q: Any
    bias: Any
    low: Any
    high: Any


class Product(NamedTuple):
    """``(p x) (q y) + bias``, clamped."""

    p: Any
    q: Any
    bias: Any
    low: Any
    high: Any


class Quotient(NamedTuple):
    """``(p x) / (q y) + bias``, clamped."""

    p: Any
    q: Any
    bias: Any
    low: Any
    high: Any


SUMMED = 4
"""Least number of pixels of a line that is reduced: as many as are added at once."""

FORMULAS = {"add": Sum, "subtract": Sum, "multiply": Product, "divide": Quotient}


@cached_in_problem
def _formula(spec: Arithmetic) -> Any:
    q = -spec.secondary_scale if spec.operation == "subtract" else spec.secondary_scale
    numbers = spec.primary_scale, q, spec.bias, spec.minimum_value, spec.maximum_value
    with np.errstate(over="ignore"):
        return FORMULAS[spec.operation](*map(np.float32, numbers))


@generic
def before_clamp(formula, x, y):
    """Return the result before the clamp."""

    def total(formula, x, y):
        return formula.p * x + formula.q * y + formula.bias

    def product(formula, x, y):
        return (formula.p * x) * (formula.q * y) + formula.bias

    def quotient(formula, x, y):
        return np.divide(formula.p * x, formula.q * y) + formula.bias

    return {Sum: total, Product: product, Quotient: quotient}.get(formula.instance_class)


def value(formula: Any, x: Any, y: Any) -> Any:
    """Return the result for two elements; other kernels on two images add overloads for their formulas."""
    raise NotImplementedError("for compiled code only")


@overload(value)
def _value(formula, x, y):
    if formula.instance_class not in FORMULAS.values():
        return None

    def clamped(formula, x, y):
        r = before_clamp(formula, x, y)
        r = formula.low if r < formula.low else r
        return formula.high if r > formula.high else r

    return clamped


def combine_images(problem: BroadcastProblem, formula: Any, x: Array, y: Array, out: Array) -> None:
    """Fill ``out`` with ``value(formula, x, y)``, element by element."""
    kernel, rows, places = _lines(problem)
    for_rows(kernel, rows, formula, x, y, out, *places)


@cached_in_problem
def _lines(problem: BroadcastProblem) -> tuple[Any, int, tuple[Any, ...]]:
    """Return the kernel, the number of its rows, and where the lines of both images are."""
    n, height, width, channels = problem.shape
    shapes = problem.input_shapes["x"], problem.input_shapes["y"]
    walks = tuple(walk_of(operand, shape) for operand, shape in zip(problem.spec.operands, shapes, strict=True))
    if all(is_whole(walk, problem.shape) for walk in walks):
        return _blocks, -(-math.prod(problem.shape) // BLOCK), ()
    return _rows, n * height, ((height, width, channels, pixels_of_a_line(width, channels)), *walks)


def forward(problem: ArithmeticForward, x: Array, y: Array, out: Array) -> None:
    """Fill ``out`` with r."""
    combine_images(problem, _formula(problem.spec), x, y, out)


@inlined
def _line(formula, x, at_x, y, at_y, out, at, size):
    a, b, to = np.uintp(at_x), np.uintp(at_y), np.uintp(at)
    for k in range(np.uintp(size)):
        out[to + k] = value(formula, x[a + k], y[b + k])


@compiled
def _blocks(begin, end, formula, x, y, out):
    first = begin * BLOCK
    _line(formula, x, first, y, first, out, first, min(end * BLOCK, out.size) - first)


@compiled
def _rows(begin, end, formula, x, y, out, sizes, walk_x, walk_y):
    height, width, channels, pixels = sizes
    a, b = np.empty(pixels * channels, x.dtype), np.empty(pixels * channels, y.dtype)
    direct_x, direct_y = is_direct(walk_x, channels), is_direct(walk_y, channels)
    same_x, same_y = repeats(walk_x, width, pixels), repeats(walk_y, width, pixels)
    for row in range(begin, end):
        n, i = row // height, row % height
        for column in range(0, width, pixels):
            count = min(pixels, width - column)
            at, size = (row * width + column) * channels, count * channels
            start_x, start_y = start_of(walk_x, n, i, column), start_of(walk_y, n, i, column)
            fresh = column == 0 and (row == begin or i == 0)
            if not direct_x and (fresh or not same_x):
                expand(x, start_x, walk_x, a, count, channels)
            if not direct_y and (fresh or not same_y):
                expand(y, start_y, walk_y, b, count, channels)
            from_x, at_x = (x, start_x) if direct_x else (a, 0)
            from_y, at_y = (y, start_y) if direct_y else (b, 0)
            _line(formula, from_x, at_x, from_y, at_y, out, at, size)


def gradient(problem: ArithmeticGradient, g: Array, *operands: Array, out: Any) -> None:
    """Fill ``out`` with dx and dy, or with the one that is wanted: copies of g at once, others one after the other."""
    outs, plans = out if isinstance(out, tuple) else (out,), _plans(problem)
    if None in plans:
        copy(g, *[target for target, plan in zip(outs, plans, strict=True) if plan is None])
        if not any(plans):
            return
    nbytes = sum([image.nbytes for image in (g, *operands)])
    images = [as_storage(image) for image in (g, *problem.sources(operands, g))]
    for target, plan in zip(outs, plans, strict=True):
        if plan is not None:
            _fill(plan, images, target, nbytes + target.nbytes)


class Slope(NamedTuple):
    """dr/d(operand): ``scale``, times ``other_scale`` times the operand number ``other`` unless that is -1."""

    scale: Any
    other_scale: Any
    other: int


@cached_in_problem
def _plans(problem: ArithmeticGradient) -> list[tuple[Any, ...] | None]:
    """Return for each result the operand, the shape of its partial results, and arguments of the kernel; None for g."""
    spec, shape, scales = problem.spec, problem.shape, _formula(problem.spec)[:2]
    n, height, width, channels = shape
    pixels = max(pixels_of_a_line(width, channels), min(width, SUMMED))
    shapes = problem.source_shape, problem.secondary_shape
    walks = [walk_of(operand, image) for operand, image in zip(spec.operands, shapes, strict=True)]
    plans: list[tuple[Any, ...] | None] = []
    for of in problem.of:
        strides, whole = spec.operands[of].strides, is_whole(walks[of], shape)
        plan = ReductionPlan.of(shape, (0, 0, 0) if whole else strides)
        group = _group(width, channels) if strides[1:] == (0, 1) else 1
        partial = 0 if whole else n, plan.chunks, plan.pixels * group, plan.channels
        sizes = height, width, channels, pixels, plan.rows, plan.chunks, plan.pixels * group * plan.channels
        slope = Slope(scales[of], scales[1 - of], 1 - of if spec.operation == "multiply" else -1)
        is_g = whole and not problem.reads and slope.scale == 1
        fixed = tuple(_formula(spec)), spec.clamps, slope
        plans.append(None if is_g else (spec.operands[of], fixed, partial, (sizes, *walks, strides)))
    return plans


def _fill(plan: tuple[Any, ...], images: Sequence[Array], out: Array, nbytes: int) -> None:
    operand, fixed, shape, places = plan
    partial, whole = np.empty(shape), shape[0] == 0
    arrays = *images, as_storage(out), partial.reshape(-1)
    for_rows(_terms, len(out) * shape[1], *fixed, *arrays, whole, *places, nbytes=nbytes)
    if not whole:
        if operand.part(out).size < out.size:
            out.fill(0)
        axes = (() if operand.strides[0] else (1,)) + ((2,) if shape[2] > 1 and not operand.strides[1] else ())
        with np.errstate(over="ignore"):
            operand.part(out)[...] = partial.sum(axis=axes, keepdims=True)


def _group(width: int, channels: int) -> int:
    """Return the number of pixels of a row whose channels are summed apart: loops are long for few channels, too."""
    group, whole = WIDE // channels, LANES // math.gcd(LANES, channels)  # if possible, whole vectors
    return max(1, min(group // whole * whole or group, width))


@compiled
def _terms(begin, end, numbers, masked, slope, g, x, y, out, partial, whole, sizes, walk_x, walk_y, strides):
    """Write the terms of each element of the result, or reduce those of each chunk of rows."""
    size = sizes[3] * sizes[2]
    lines = np.empty(size, x.dtype), np.empty(size, y.dtype), np.empty(size, np.float32)
    operands = Operands(numbers, masked, slope, g, x, y, walk_x, walk_y)
    _terms_of_chunks(begin, end, operands, lines, out, partial, whole, sizes, strides)


@uncounted
def _terms_of_chunks(begin, end, operands, lines, out, partial, whole, sizes, strides):
    height, width, channels, pixels, rows, chunks, length = sizes
    a, b, line = lines
    same = repeats(operands.walk_x, width, pixels), repeats(operands.walk_y, width, pixels)
    for chunk in range(begin, end):
        n, first = chunk // chunks, chunk % chunks * rows
        if not whole:
            for k in range(chunk * length, (chunk + 1) * length):
                partial[k] = 0.0
        for i in range(first, min(first + rows, height)):
            for column in range(0, width, pixels):
                count = min(pixels, width - column)
                at = ((n * height + i) * width + column) * channels
                fresh = i == first and column == 0
                place = n, i, column, count, channels, at, fresh or not same[0], fresh or not same[1]
                if whole:
                    _terms_of_line(operands, place, a, b, out, at)
                    continue
                _terms_of_line(operands, place, a, b, line, 0)
                size, to = count * channels, chunk * length
                if strides[2] == 1:
                    row = strides[1] == 1
                    add_runs(line, size, partial, to + column * channels if row else to, size if row else length)
                elif strides[1] == 1:
                    for p in range(count):
                        partial[to + column + p] += reduce_run(Total(0.0), line, p * channels, channels)
                else:
                    partial[to] += reduce_run(Total(0.0), line, 0, size)


class Operands(NamedTuple):
    """The operands of the terms of a gradient."""

    numbers: Any
    """Those of a :class:`Sum` or a :class:`Product`, which has ``slope.other``."""
    masked: bool
    slope: Slope
    g: Any
    x: Any
    y: Any
    walk_x: Walk
    walk_y: Walk


@inlined
def _terms_of_line(operands, place, a, b, out, to):
    """Write the terms of the line at ``place`` to ``out`` from ``to`` on; ``a`` and ``b`` are scratch lines."""
    numbers, masked, slope, g, x, y, walk_x, walk_y = operands
    n, i, column, pixels, channels, at, fresh_x, fresh_y = place
    start_x, start_y = start_of(walk_x, n, i, column), start_of(walk_y, n, i, column)
    size = pixels * channels
    if fresh_x and (masked or (slope.other == 0 and not is_direct(walk_x, channels))):
        expand(x, start_x, walk_x, a, pixels, channels)
    if fresh_y and (masked or (slope.other == 1 and not is_direct(walk_y, channels))):
        expand(y, start_y, walk_y, b, pixels, channels)
    if masked:
        _masked_line(numbers, slope, g, at, a, b, out, to, size)
    elif slope.other == -1:
        _scaled_line(slope, g, at, out, to, size)
    elif slope.other == 0:
        other, start = (x, start_x) if is_direct(walk_x, channels) else (a, 0)
        _product_line(slope, g, at, other, start, out, to, size)
    else:
        another, start = (y, start_y) if is_direct(walk_y, channels) else (b, 0)
        _product_line(slope, g, at, another, start, out, to, size)


@inlined
def _scaled_line(slope, g, at, out, to, size):
    p, q = np.uintp(at), np.uintp(to)
    for k in range(np.uintp(size)):
        out[q + k] = slope.scale * g[p + k]


@inlined
def _product_line(slope, g, at, other, start, out, to, size):
    p, q, r = np.uintp(at), np.uintp(to), np.uintp(start)
    for k in range(np.uintp(size)):
        out[q + k] = (slope.scale * g[p + k]) * (slope.other_scale * other[r + k])


@inlined
def _masked_line(numbers, slope, g, at, x, y, out, to, size):
    p, q = np.uintp(at), np.uintp(to)
    scale_x, scale_y, bias, low, high = numbers
    for k in range(np.uintp(size)):
        a, b = x[k], y[k]
        term = slope.scale * g[p + k]
        if slope.other >= 0:
            r = before_clamp(Product(scale_x, scale_y, bias, low, high), a, b)
            term = term * (slope.other_scale * (b if slope.other else a))
        else:
            r = before_clamp(Sum(scale_x, scale_y, bias, low, high), a, b)
        out[q + k] = term if low < r and r < high else np.float32(0)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Arithmetic, "forward"): forward,
    (Arithmetic, "gradient"): gradient,
}
