"""Tests of arithmetic and comparison: all 64 combinations of strides; stride 0 is repetition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self, TypeAlias

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array, ImageShape, as_shape
from mpsref.arguments.parameters import Triple
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.conformance.layer import Layer
from mpsref.conformance.mutants import MutantTable, computed, correct, nonfinite_mutants, of_result, of_results, of_spec
from mpsref.conformance.properties import (
    Counterparts,
    EquivalentProblem,
    adjoint,
    equivalent,
    one_image_at_a_time,
    repeatable,
)
from mpsref.conformance.strategies import often, seldom
from mpsref.kernels import Arithmetic, Compare
from mpsref.kernels.arithmetic import (
    NAMES,
    WANTED,
    ArithmeticForward,
    ArithmeticGradient,
    Name,
    before_clamp,
    fold,
    terms,
)
from mpsref.kernels.broadcasting import BroadcastProblem, Operand
from mpsref.kernels.compare import COMPARISONS, CompareForward
from mpsref.registry import Backend, Implementation, Operation, OperationKey, Problem

ArithmeticProblem: TypeAlias = ArithmeticForward | ArithmeticGradient

# --- strategies -------------------------------------------------------------------------------------------------------


PLAIN: dict[str, Triple] = {"primary_strides": (1, 1, 1), "secondary_strides": (1, 1, 1)}
SCALES = st.integers(-16, 16).filter(bool).map(lambda eighths: eighths / 8)


BITS, OFFSETS = (st.tuples(*[st.integers(0, most)] * 3) for most in (1, 2))
STRIDES, BEHIND = seldom((1, 1, 1), BITS) | BITS, seldom((0, 0, 0), OFFSETS)


@st.composite
def operands(draw: st.DrawFn) -> tuple[dict[str, Triple], ImageShape, ImageShape]:
    """Draw strides and offsets, and the shapes of two operands that they fit."""
    size = draw(st.tuples(*[st.integers(1, 7)] * 3))
    n = draw(st.integers(1, 3))
    fields: dict[str, Triple] = {}
    shapes = []
    for name in ("primary", "secondary"):
        strides, behind, more = draw(STRIDES), draw(BEHIND), draw(OFFSETS)
        fields |= {f"{name}_strides": strides, f"{name}_offset": behind}
        shapes.append(
            [n, *(o + (length if t else 1 + k) for o, length, t, k in zip(behind, size, strides, more, strict=True))]
        )
    x, y = (as_shape("shape", tuple(shape)) for shape in shapes)
    return fields, x, y


BOUNDS = st.tuples(st.integers(-12, 4), st.integers(0, 16), st.sampled_from([0.25, 2.0])).map(
    lambda drawn: (drawn[0] * drawn[2], (drawn[0] + drawn[1]) * drawn[2])
)
"""Small ones, and some that contain all sums and products of the integers."""


@st.composite
def problems_of_arithmetic(draw: st.DrawFn, method: str) -> Problem:
    """Draw a problem of one method with scales, bias and bounds that are multiples of 1/8."""
    fields, x, y = draw(operands())
    names = [name for name in NAMES if method == "forward" or name != "divide"]
    low, high = draw(st.just((-math.inf, math.inf)) | BOUNDS | BOUNDS)
    spec = Arithmetic(
        draw(st.sampled_from(names)),
        draw(often(1.0, SCALES)),
        draw(often(1.0, SCALES)),
        draw(st.just(0.0) | SCALES),
        **fields,
        minimum_value=draw(st.sampled_from([low, low, -math.inf])),
        maximum_value=draw(st.sampled_from([high, high, math.inf])),
    )
    if method == "forward":
        return ArithmeticForward(spec, x, y)
    return ArithmeticGradient(spec, x, y, draw(seldom("both", st.sampled_from(WANTED))))


@st.composite
def problems_of_compare(draw: st.DrawFn, method: str) -> Problem:
    """Draw a comparison; thresholds are multiples of 1/4, as the operands are."""
    fields, x, y = draw(operands())
    spec = Compare(draw(st.sampled_from(COMPARISONS)), draw(st.sampled_from([0.0, 0.25, 0.5, 2.0])), **fields)
    return CompareForward(spec, x, y)


# --- properties -------------------------------------------------------------------------------------------------------


def as_plain(problem: BroadcastProblem) -> BroadcastProblem:
    """Return the problem of operands that are already as large as the result."""
    offsets: dict[str, Any] = {"primary_offset": (0, 0, 0), "secondary_offset": (0, 0, 0)}
    spec = replace(problem.spec, **PLAIN, **offsets)
    return replace(problem, spec=spec, source_shape=problem.shape, secondary_shape=problem.shape)


@equivalent
def stride_0_repeats(problem: BroadcastProblem, *inputs: Array) -> EquivalentProblem | None:
    """A repeated operand gives the same result; its gradient, summed up afterwards, is also the same."""
    spread = [
        np.ascontiguousarray(image if name == "g" else problem.spread_one("xy".index(name), image))
        for name, image in zip(problem.input_shapes, inputs, strict=True)
    ]
    if not isinstance(problem, ArithmeticGradient):
        return EquivalentProblem(as_plain(problem), spread)
    if inputs[0].dtype == np.float16:
        return None  # the terms would be rounded before they are summed up
    places = [(problem.spec.operands[k], shape) for k, shape in zip(problem.of, problem.result_shapes, strict=True)]
    return EquivalentProblem(
        as_plain(problem),
        spread,
        lambda results: [
            fold(*place, terms.astype(np.float64)).astype(terms.dtype)
            for place, terms in zip(places, results, strict=True)
        ],
    )


def linear_in_both(problem: ArithmeticProblem) -> Counterparts | None:
    """Return the counterparts of sums and differences without a bias."""
    return _counterparts(problem, ("add", "subtract"))


def linear_in_each(problem: ArithmeticProblem) -> Counterparts | None:
    """Return the counterparts of products without a bias."""
    return _counterparts(problem, ("multiply",))


def _counterparts(problem: ArithmeticProblem, names: tuple[str, ...]) -> Counterparts | None:
    if problem.spec.operation not in names or problem.spec.clamps:
        return None
    spec = replace(problem.spec, bias=0.0)
    shapes = problem.source_shape, problem.secondary_shape
    return Counterparts(ArithmeticForward(spec, *shapes), ArithmeticGradient(spec, *shapes))


# --- mutants ----------------------------------------------------------------------------------------------------------

Index = Callable[[Operand, Operand, int, Array], Array]
"""``index(own, other, axis, i)`` returns the element that an operand reads on an axis for element i of the result."""


def _reading(index: Index) -> Implementation:
    """Read the operands by another rule, as far as there is something to read, then compute correctly."""

    def formula(problem: BroadcastProblem, *inputs: Array) -> Array:
        spread = [
            _picked(image, [index(own, other, axis, np.arange(n)) for axis, n in enumerate(problem.shape[1:])])
            for own, other, image in zip(problem.spec.operands, problem.spec.operands[::-1], inputs, strict=True)
        ]
        return correct(as_plain(problem), *spread)

    return computed(formula)


def _picked(image: Array, indices: list[Array]) -> Array:
    for axis, index in enumerate(indices, start=1):
        image = image.take(np.clip(index, 0, image.shape[axis] - 1), axis)
    return image


OPERANDS: MutantTable = {
    "the offset is ignored": _reading(lambda own, _, axis, i: own.strides[axis] * i),
    "the offset is multiplied by the stride": _reading(
        lambda own, _, axis, i: own.strides[axis] * (own.offset[axis] + i)
    ),
    "stride 0 advances": _reading(lambda own, _, axis, i: own.offset[axis] + i),
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


def _exchanged(problem: BroadcastProblem, x: Array, y: Array) -> Array:
    """Compute y op x instead of x op y."""
    spec, (primary, secondary) = problem.spec, problem.spec.operands
    fields: Any = {"primary_strides": secondary.strides, "primary_offset": secondary.offset}
    fields |= {"secondary_strides": primary.strides, "secondary_offset": primary.offset}
    shapes = {"source_shape": problem.secondary_shape, "secondary_shape": problem.source_shape}
    return correct(replace(problem, spec=replace(spec, **fields), **shapes), y, x)


def _bias_after_clamp(result: Array, problem: ArithmeticForward, x: Array, y: Array) -> Array:
    spec = problem.spec
    bare = before_clamp(replace(problem, spec=replace(spec, bias=0.0)), x, y)
    return np.asarray(np.clip(bare, spec.minimum_value, spec.maximum_value) + spec.bias)


def _clamped_nan(result: Array, problem: ArithmeticForward, x: Array, y: Array) -> Array:
    """A NaN becomes a bound: ``fmax`` and ``fmin`` return the number of a number and a NaN."""
    spec = problem.spec
    return np.asarray(np.fmin(np.fmax(before_clamp(problem, x, y), spec.minimum_value), spec.maximum_value))


def _scaled_divisor(result: Array, problem: ArithmeticForward, x: Array, y: Array) -> Array:
    """(p x / y) q: the scale of the divisor multiplies."""
    if problem.spec.operation != "divide":
        return result
    wrong = replace(problem, spec=replace(problem.spec, secondary_scale=1 / problem.spec.secondary_scale))
    return correct(wrong, x, y)


SCALE_MUTANTS: MutantTable = {
    "the primary scale is ignored": of_spec(primary_scale=lambda spec: 1.0),
    "the secondary scale is ignored": of_spec(secondary_scale=lambda spec: 1.0),
}
FORWARD: MutantTable = {
    "the scales are exchanged": of_spec(
        primary_scale=lambda spec: spec.secondary_scale, secondary_scale=lambda spec: spec.primary_scale
    ),
    "the bias is ignored": of_spec(bias=lambda spec: 0.0),
    "the bias is subtracted": of_spec(bias=lambda spec: -spec.bias),
    "the bias is added after the clamp": of_result(_bias_after_clamp),
    "the lower bound is ignored": of_spec(minimum_value=lambda spec: -np.inf),
    "the upper bound is ignored": of_spec(maximum_value=lambda spec: np.inf),
    "the operands are exchanged": computed(_exchanged),
    "the scale of a divisor multiplies": of_result(_scaled_divisor),
    "a NaN is clamped to a bound": of_result(_clamped_nan),
}


def _of_terms(change: Callable[..., Array]) -> Implementation:
    """Sum up other terms: ``change(terms, problem, k, g, *operands)`` for the gradient of operand k."""

    def compute(results: tuple[Array, ...], problem: ArithmeticGradient, *inputs: Array) -> tuple[Array, ...]:
        spread = terms(problem, *inputs)
        return tuple(
            fold(problem.spec.operands[k], shape, change(spread[k], problem, k, *inputs))
            for k, shape in zip(problem.of, problem.result_shapes, strict=True)
        )

    return of_results(compute)


def _masked_by(rule: Callable[..., Array]) -> Implementation:
    """Mask by ``rule(r', spec)`` instead of the two strict bounds."""

    def change(values: Array, problem: ArithmeticGradient, k: int, g: Array, *operands: Array) -> Array:
        if not problem.spec.clamps:
            return values
        free = replace(problem, spec=replace(problem.spec, minimum_value=-np.inf, maximum_value=np.inf))
        whole = terms(free, g, *(operands[one] for one in free.reads))[k]
        return np.where(rule(before_clamp(problem, *operands), problem.spec), whole, 0)

    return _of_terms(change)


def _mask_as_factor(values: Array, problem: ArithmeticGradient, k: int, g: Array, *operands: Array) -> Array:
    """The mask multiplies: 0 times a NaN is a NaN."""
    return np.asarray(values + 0 * g)


def _own_operand(values: Array, problem: ArithmeticGradient, k: int, g: Array, *operands: Array) -> Array:
    """dx = g x: the gradient of a product takes the operand that it belongs to."""
    if problem.spec.operation != "multiply" or problem.wanted != "both":
        return values
    return terms(problem, g, *operands)[1 - k]


def _one_scale(values: Array, problem: ArithmeticGradient, *_: object) -> Array:
    return values / problem.spec.secondary_scale if problem.spec.operation == "multiply" else values


def _no_sign(values: Array, problem: ArithmeticGradient, k: int, *_: Array) -> Array:
    return -values if k and problem.spec.operation == "subtract" else values


def _of_results(change: Callable[[Array, Operand, float], Array]) -> Implementation:
    """Change each result by ``change(result, operand, number of terms of each element)``."""

    def changed(results: tuple[Array, ...], problem: ArithmeticGradient, *_: Array) -> tuple[Array, ...]:
        return tuple(
            change(result, problem.spec.operands[k], problem.terms_of(k))
            for result, k in zip(results, problem.of, strict=True)
        )

    return of_results(changed)


def _everywhere(result: Array, operand: Operand, count: float) -> Array:
    """The sum is in every element along a folded axis, not only in the one that was read."""
    whole = result.copy()
    for axis, (t, o) in enumerate(zip(operand.strides, operand.offset, strict=True), start=1):
        if t == 0:
            whole[...] = whole.take([o], axis)
    return whole


def _over_the_batch(result: Array, operand: Operand, count: float) -> Array:
    """A repeated operand is taken to be one for all images."""
    return np.broadcast_to(result.sum(axis=0), result.shape) if 0 in operand.strides else result


def _only(axis: int) -> Implementation:
    """The sum over one of the folded axes is missing: the first element is taken."""

    def change(values: Array, problem: ArithmeticGradient, k: int, *_: Array) -> Array:
        if problem.spec.operands[k].strides[axis - 1]:
            return values
        first = np.arange(values.shape[axis]) == 0
        return np.asarray(values * first.reshape([-1 if one == axis else 1 for one in range(4)]))

    return _of_terms(change)


GRADIENT: MutantTable = {
    "the gradient of a product has one scale": _of_terms(_one_scale),
    "the sign of the second operand is lost": _of_terms(_no_sign),
    "the gradient of a product takes its own operand": _of_terms(_own_operand),
    "the bias is added to the gradient": of_result(lambda result, problem, *_: result + problem.spec.bias),
    "the mask is a factor": _of_terms(_mask_as_factor),
    "the mask is ignored": _masked_by(lambda r, spec: np.ones_like(r)),
    "the mask includes the bounds": _masked_by(lambda r, spec: (spec.minimum_value <= r) & (r <= spec.maximum_value)),
    "the mask ignores the bias": _masked_by(
        lambda r, spec: (spec.minimum_value < r - spec.bias) & (r - spec.bias < spec.maximum_value)
    ),
    "the mask ignores the lower bound": _masked_by(lambda r, spec: r < spec.maximum_value),
    "rows are not summed up": _only(1),
    "columns are not summed up": _only(2),
    "channels are not summed up": _only(3),
    "the mean is taken, not the sum": _of_results(lambda result, operand, count: result / count),
    "the sum is in all elements": _of_results(_everywhere),
    "the gradient begins at element 0": _of_results(
        lambda result, operand, count: np.roll(result, [-o for o in operand.offset], axis=(1, 2, 3))
    ),
    "sums include the batch": _of_results(_over_the_batch),
}


def _where_nan(value: Callable[[str], bool]) -> Implementation:
    """Return ``value(comparison)`` where an operand is NaN."""

    def change(result: Array, problem: CompareForward, x: Array, y: Array) -> Array:
        first, second = problem.spread(x, y)
        return np.where(np.isnan(first) | np.isnan(second), value(problem.spec.comparison_type), result)

    return of_result(change)


def _equal_infinities(result: Array, problem: CompareForward, x: Array, y: Array) -> Array:
    """Equal infinities are equal, although their difference is NaN."""
    first, second = problem.spread(x, y)
    kind = problem.spec.comparison_type
    same_infinity = (first == second) & np.isinf(first)
    return np.where(same_infinity & (kind in ("equal", "notequal")), kind == "equal", result)


def _other(**names: str) -> Implementation:
    """Take one comparison for another."""
    return of_spec(comparison_type=lambda spec: names.get(spec.comparison_type, spec.comparison_type))


def _ordered_by_threshold(result: Array, problem: CompareForward, x: Array, y: Array) -> Array:
    """Compute x < y + threshold."""
    if problem.spec.comparison_type in ("equal", "notequal"):
        return result
    return correct(problem, x, y + problem.spec.threshold)


COMPARE: MutantTable = {
    "the threshold is ignored": of_spec(threshold=lambda spec: 0.0),
    "a difference equal to the threshold is too large": of_spec(threshold=lambda spec: np.nextafter(spec.threshold, 0)),
    "less includes equal": _other(less="lessorequal"),
    "greater includes equal": _other(greater="greaterorequal"),
    "less or equal excludes equal": _other(lessorequal="less"),
    "greater or equal excludes equal": _other(greaterorequal="greater"),
    "less is greater": _other(less="greater", greater="less"),
    "not equal is equal": _other(notequal="equal"),
    "the operands are exchanged": computed(_exchanged),
    "orderings use the threshold": of_result(_ordered_by_threshold),
    "comparisons with NaN hold": _where_nan(lambda kind: True),
    "no comparison with NaN holds": _where_nan(lambda kind: False),
    "an ordering is the negation of its opposite": _where_nan(lambda kind: kind != "equal"),
    "equal infinities are equal": of_result(_equal_infinities),
}

MUTANTS: dict[OperationKey, MutantTable] = {
    Operation(Arithmetic, "forward"): {**OPERANDS, **SCALE_MUTANTS, **FORWARD},
    Operation(Arithmetic, "gradient"): {**SCALE_MUTANTS, **GRADIENT},
    Operation(Compare, "forward"): {**OPERANDS, **COMPARE},
}


# --- golden values ----------------------------------------------------------------------------------------------------


CHAINS: dict[str, tuple[Name, str]] = {
    "graph-add-then-add": ("add", "y"),
    "graph-add-then-subtract": ("add", "y"),
    "arithmetic-minus-divide-metaltensors": ("subtract", "z"),
}
"""Entries of two operations: the first is on x and y, the second on its result and this image."""


def forward(operation: Name) -> Adapter:
    """Return the adapter of an operation of two images."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        x, y = entry.image("x"), entry.image("y")
        if entry.id in CHAINS:
            before, other = CHAINS[entry.id]
            x, y = Arithmetic(before).forward(x, y, backend=backend), entry.image(other)
        r = Arithmetic(operation, **entry.parameters).forward(x, y, backend=backend)
        yield Comparison("r", r, entry.expected["r"])

    return adapter


def gradient(operation: Name) -> Adapter:
    """Return the adapter of a gradient node; ``d`` may be either of its results."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        g = entry.image("g")
        sources: list[Any] = [entry.image(name) if name in entry.inputs else g.shape for name in ("x", "y")]
        dx, dy = Arithmetic(operation).gradient(g, *sources, backend=backend)
        for name, got in (("dx", dx), ("dy", dy), ("d", dx), ("d", dy)):
            if name in entry.expected:
                yield Comparison(name, got, entry.expected[name])

    return adapter


# --- layers -----------------------------------------------------------------------------------------------------------


class PairedLayer(Layer):
    """A layer with two operands; axes of the second one that are as long as those of the first stay so."""

    @classmethod
    def read(cls, *, source_shape: ImageShape, parameters: dict[str, Any], **row: Any) -> Self:  # type: ignore[override]
        """Return the layer of a row; the second operand has one row, column or channel where its stride is 0."""
        strides = parameters.get("secondary_strides", (1, 1, 1))
        shape = source_shape[0], *(length if t else 1 for length, t in zip(source_shape[1:], strides, strict=True))
        return super().read(source_shape=source_shape, parameters=parameters, call={"secondary_shape": shape}, **row)

    def _fitted(self, changed: Self) -> Self:
        shapes = zip(self.source_shape, changed.source_shape, self.call["secondary_shape"], strict=True)
        return replace(changed, call={"secondary_shape": tuple(new if y == old else y for old, new, y in shapes)})


_ARITHMETIC = (
    repeatable,
    one_image_at_a_time,
    stride_0_repeats,
    adjoint(linear_in_both),
    adjoint(linear_in_each, each=True),
)

FAMILY = Family(
    "arithmetic",
    kernels={
        Arithmetic: KernelTests(
            problems_of_arithmetic,
            {"forward": _ARITHMETIC, "gradient": _ARITHMETIC},
            nonfinite=("forward", "gradient"),
        ),
        Compare: KernelTests(
            problems_of_compare,
            {"forward": (repeatable, one_image_at_a_time, stride_0_repeats)},
            # The result is 0 or 1.
            equivalent_mutants={"forward": frozenset({"accumulation in float16", *nonfinite_mutants()})},
            nonfinite=("forward",),
        ),
    },
    mutants=MUTANTS,
    golden={
        "MPSNNAdditionNode": forward("add"),
        "MPSNNSubtractionNode": forward("subtract"),
        "MPSNNMultiplicationNode": forward("multiply"),
        "MPSNNDivisionNode": forward("divide"),
        "MPSImageAdd": forward("add"),  # the image kernel with the formula of MPSCNNAdd
        "MPSNNAdditionGradientNode": gradient("add"),
        "MPSNNMultiplicationGradientNode": gradient("multiply"),
    },
    layer=PairedLayer.read,
)
