"""Planted faults of arithmetic and comparison: in what is read of the operands, in the formula, in the sums of R."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, honest, of_problem, of_result, of_results, with_spec
from mpsref.kernels import Arithmetic, Compare
from mpsref.kernels.arithmetic import ArithmeticGradient, before_clamp, fold, terms
from mpsref.kernels.broadcasting import BroadcastProblem, Operand
from mpsref.registry import Operation, Problem

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]

Index = Callable[[Operand, Operand, int, Array], Array]
"""``index(own, other, axis, i) -> elements``: what an operand reads on an axis for the result's elements i."""


def _reading(index: Index) -> Callable[..., None]:
    """Read the operands by another rule, as far as there is something to read, then compute honestly."""

    def run(problem: BroadcastProblem, *inputs: Array, out: Any) -> None:
        spread = [
            _picked(image, [index(own, other, axis, np.arange(n)) for axis, n in enumerate(problem.shape[1:])])
            for own, other, image in zip(problem.spec.operands, problem.spec.operands[::-1], inputs, strict=True)
        ]
        plain: Any = {f"{name}_strides": (1, 1, 1) for name in ("primary", "secondary")}
        plain |= {f"{name}_offset": (0, 0, 0) for name in ("primary", "secondary")}
        shapes = {"source_shape": problem.shape, "secondary_shape": problem.shape}
        with np.errstate(over="ignore", invalid="ignore"):
            out[...] = honest(replace(problem, spec=replace(problem.spec, **plain), **shapes), *spread)

    return run


def _picked(image: Array, indices: list[Array]) -> Array:
    for axis, index in enumerate(indices, start=1):
        image = image.take(np.clip(index, 0, image.shape[axis] - 1), axis)
    return image


def _operands() -> Table:
    return {
        "the offset is ignored": _reading(lambda own, _, axis, i: own.strides[axis] * i),
        "the offset is multiplied by the stride": _reading(
            lambda own, _, axis, i: own.strides[axis] * (own.offset[axis] + i)
        ),
        "stride 0 walks along": _reading(lambda own, _, axis, i: own.offset[axis] + i),
        "stride 0 repeats the last element": _reading(
            lambda own, _, axis, i: own.offset[axis] + i if own.strides[axis] else i - i + 10**6
        ),
        "the offset of the other operand is taken": _reading(
            lambda own, other, axis, i: other.offset[axis] + own.strides[axis] * i
        ),
        "the offsets of y and x are exchanged": _reading(
            lambda own, _, axis, i: own.offset[(1, 0, 2)[axis]] + own.strides[axis] * i
        ),
        "the strides of the other operand are taken": _reading(
            lambda own, other, axis, i: own.offset[axis] + other.strides[axis] * i
        ),
    }


def _exchanged(problem: Any, x: Array, y: Array, out: Array) -> None:
    """y op x instead of x op y."""
    spec, (primary, secondary) = problem.spec, problem.spec.operands
    fields: Any = dict(
        zip(("primary_strides", "primary_offset"), secondary, strict=True),
        **dict(zip(("secondary_strides", "secondary_offset"), primary, strict=True)),
    )
    shapes = {"source_shape": problem.secondary_shape, "secondary_shape": problem.source_shape}
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        out[...] = honest(replace(problem, spec=replace(spec, **fields), **shapes), y, x)


def _bias_after_clamp(result: Array, problem: Any, x: Array, y: Array) -> Array:
    spec = problem.spec
    bare = before_clamp(replace(problem, spec=replace(spec, bias=0.0)), x.astype(np.float64), y.astype(np.float64))
    return np.asarray(np.clip(bare, spec.minimum_value, spec.maximum_value) + spec.bias)


def _scaled_divisor(result: Array, problem: Any, x: Array, y: Array) -> Array:
    """(p x / y) q: the scale of the divisor multiplies."""
    if problem.spec.operation != "divide":
        return result
    wrong = replace(problem, spec=replace(problem.spec, secondary_scale=1 / problem.spec.secondary_scale))
    return honest(wrong, x, y)


def _forward() -> Table:
    return {
        "the primary scale is ignored": of_problem(with_spec(primary_scale=lambda spec: 1.0)),
        "the secondary scale is ignored": of_problem(with_spec(secondary_scale=lambda spec: 1.0)),
        "the scales are exchanged": of_problem(
            with_spec(primary_scale=lambda spec: spec.secondary_scale, secondary_scale=lambda spec: spec.primary_scale)
        ),
        "the bias is ignored": of_problem(with_spec(bias=lambda spec: 0.0)),
        "the bias is subtracted": of_problem(with_spec(bias=lambda spec: -spec.bias)),
        "the bias is added after the clamp": of_result(_bias_after_clamp),
        "the lower bound is ignored": of_problem(with_spec(minimum_value=lambda spec: -np.inf)),
        "the upper bound is ignored": of_problem(with_spec(maximum_value=lambda spec: np.inf)),
        "the operands are exchanged": _exchanged,
        "the scale of a divisor multiplies": of_result(_scaled_divisor),
    }


def _of_terms(change: Callable[..., Array]) -> Callable[..., None]:
    """Sum other terms up: ``change(terms, problem, k, g, *operands)`` for the gradient of operand k."""

    def compute(results: tuple[Array, ...], problem: ArithmeticGradient, *inputs: Array) -> tuple[Array, ...]:
        wide = [array.astype(np.float64) for array in inputs]
        spread = terms(problem, *wide)
        return tuple(
            fold(problem.spec.operands[k], shape, change(spread[k], problem, k, *wide))
            for k, shape in zip(problem.of, problem.result_shapes, strict=True)
        )

    return of_results(compute)


def _masked_by(rule: Callable[..., Array]) -> Callable[..., None]:
    """Mask by ``rule(r', spec)`` instead of the two strict bounds."""

    def change(values: Array, problem: Any, k: int, g: Array, *operands: Array) -> Array:
        if not problem.spec.clamps:
            return values
        free = replace(problem, spec=replace(problem.spec, minimum_value=-np.inf, maximum_value=np.inf))
        whole = terms(free, g, *(operands[one] for one in free.reads))[k]
        return np.where(rule(before_clamp(problem, *operands), problem.spec), whole, 0)

    return _of_terms(change)


def _own_operand(values: Array, problem: Any, k: int, g: Array, *operands: Array) -> Array:
    """dx = g x: a product's gradient takes the operand that it is the gradient for."""
    if problem.spec.operation != "multiply" or problem.wanted != "both":
        return values
    return terms(problem, g, *operands)[1 - k]


def _one_scale(values: Array, problem: Any, k: int, *_: Array) -> Array:
    """A product's gradient is scaled by one of the scales alone."""
    return values / problem.spec.secondary_scale if problem.spec.operation == "multiply" else values


def _no_sign(values: Array, problem: Any, k: int, *_: Array) -> Array:
    return -values if k and problem.spec.operation == "subtract" else values


def _operands_of(problem: ArithmeticGradient) -> list[Operand]:
    return [problem.spec.operands[k] for k in problem.of]


def _mean(results: tuple[Array, ...], problem: Any, *_: Array) -> tuple[Array, ...]:
    return tuple(result / problem.terms_of(k) for result, k in zip(results, problem.of, strict=True))


def _everywhere(results: tuple[Array, ...], problem: Any, *_: Array) -> tuple[Array, ...]:
    """The sum stands in every element along a folded axis, not only in the one that was read."""
    spread = []
    for operand, result in zip(_operands_of(problem), results, strict=True):
        whole = result.copy()
        for axis, (t, o) in enumerate(zip(operand.strides, operand.offset, strict=True), start=1):
            if t == 0:
                whole[...] = whole.take([o], axis)
        spread.append(whole)
    return tuple(spread)


def _at_the_start(results: tuple[Array, ...], problem: Any, *_: Array) -> tuple[Array, ...]:
    """The gradient begins at element 0, not at the offset."""
    moved = []
    for operand, result in zip(_operands_of(problem), results, strict=True):
        moved.append(np.roll(result, [-o for o in operand.offset], axis=(1, 2, 3)))
    return tuple(moved)


def _over_the_batch(results: tuple[Array, ...], problem: Any, *_: Array) -> tuple[Array, ...]:
    """What is repeated is taken to be one for all images."""
    return tuple(
        np.broadcast_to(result.sum(axis=0), result.shape) if 0 in operand.strides else result
        for operand, result in zip(_operands_of(problem), results, strict=True)
    )


def _only(axis: int) -> Callable[..., None]:
    """The sum over one of the folded axes is forgotten: the first element stands for it."""

    def change(values: Array, problem: Any, k: int, *_: Array) -> Array:
        if problem.spec.operands[k].strides[axis - 1]:
            return values
        kept = np.zeros_like(values)
        index = [slice(None)] * 4
        index[axis] = slice(0, 1)
        kept[tuple(index)] = values[tuple(index)]
        return kept

    return _of_terms(change)


def _gradient() -> Table:
    return {
        "the primary scale is ignored": of_problem(with_spec(primary_scale=lambda spec: 1.0)),
        "the secondary scale is ignored": of_problem(with_spec(secondary_scale=lambda spec: 1.0)),
        "a product's gradient has one scale": _of_terms(_one_scale),
        "the sign of the second operand is lost": _of_terms(_no_sign),
        "a product's gradient takes its own operand": _of_terms(_own_operand),
        "the bias comes into the gradient": of_result(lambda result, problem, *_: result + problem.spec.bias),
        "the mask is ignored": _masked_by(lambda r, spec: np.ones_like(r)),
        "the mask takes in the bounds": _masked_by(
            lambda r, spec: (spec.minimum_value <= r) & (r <= spec.maximum_value)
        ),
        "the mask forgets the bias": _masked_by(
            lambda r, spec: (spec.minimum_value < r - spec.bias) & (r - spec.bias < spec.maximum_value)
        ),
        "the mask forgets the lower bound": _masked_by(lambda r, spec: r < spec.maximum_value),
        "rows are not summed up": _only(1),
        "columns are not summed up": _only(2),
        "channels are not summed up": _only(3),
        "the mean is taken, not the sum": of_results(_mean),
        "the sum stands in all elements": of_results(_everywhere),
        "the gradient begins at element 0": of_results(_at_the_start),
        "sums go over the batch": of_results(_over_the_batch),
    }


def _compare() -> Table:
    def other(**words: str) -> Callable[..., None]:
        return of_problem(with_spec(comparison_type=lambda spec: words.get(spec.comparison_type, spec.comparison_type)))

    return {
        "the threshold is ignored": of_problem(with_spec(threshold=lambda spec: 0.0)),
        "the threshold itself is not near": of_problem(
            with_spec(threshold=lambda spec: np.nextafter(spec.threshold, 0))
        ),
        "less takes in equal": other(less="lessorequal"),
        "greater takes in equal": other(greater="greaterorequal"),
        "less or equal leaves out equal": other(lessorequal="less"),
        "greater or equal leaves out equal": other(greaterorequal="greater"),
        "less is greater": other(less="greater", greater="less"),
        "not equal is equal": other(notequal="equal"),
        "the operands are exchanged": _exchanged,
        "orderings use the threshold": _ordered_by_threshold,
        "what holds is -1": of_result(lambda result, *_: -result),
    }


def _ordered_by_threshold(problem: Problem, x: Array, y: Array, out: Array) -> None:
    """x < y + threshold."""
    spec = cast(Compare, problem.spec)
    if spec.comparison_type in ("equal", "notequal"):
        out[...] = honest(problem, x, y)
    else:
        out[...] = honest(problem, x.astype(np.float64), y.astype(np.float64) + spec.threshold)


def faults() -> Iterator[Fault]:
    """Yield the faults of arithmetic and comparison, beside those that every kernel can have."""
    for operation, table in {
        Operation(Arithmetic, "forward"): _operands() | _forward(),
        Operation(Arithmetic, "gradient"): _gradient(),
        Operation(Compare, "forward"): _operands() | _compare(),
    }.items():
        for name, run in table.items():
            yield Fault(name, operation, run)
