"""Rules: documented differences of a backend from MPS, by name.

A backend declares the rules that it follows, ``Backend(rules=("slope at a kink",))``. A rule widens the bound of the
elements that it is about by what it allows, derived as the bounds themselves are, or leaves out a property that cannot
hold; one states that functions are more accurate than in Metal, which makes bounds tighter. The report names the rules
of a row. There is no free tolerance.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import choice
from mpsref.errors import UnsupportedError
from mpsref.kernels import (
    Arithmetic,
    BatchNormalization,
    Convolution,
    ConvolutionTranspose,
    CropAndResizeBilinear,
    CrossChannelNormalization,
    Dropout,
    FullyConnected,
    GraphPoolingMax,
    GraphResizeBilinear,
    GraphResizeNearest,
    GroupNormalization,
    InstanceNormalization,
    LocalContrastNormalization,
    LogSoftMax,
    Loss,
    Neuron,
    Pad,
    PoolingAverage,
    PoolingL2Norm,
    PoolingMax,
    Reduce,
    ResizeBilinear,
    SoftMax,
    SpatialNormalization,
    UpsamplingBilinear,
)
from mpsref.kernels.arithmetic import ArithmeticGradient, fold, terms
from mpsref.kernels.batch_normalization import BatchProblem, Reduction, normalized, scaled, upstream
from mpsref.kernels.convolution import WeightedProblem
from mpsref.kernels.cross_channel_normalization import CrossChannelProblem, bases
from mpsref.kernels.group_normalization import ALL_VALUES, GroupsProblem
from mpsref.kernels.interpolation import Rounding, Sampling, rounded
from mpsref.kernels.loss import LossForward, LossGradient, weighted
from mpsref.kernels.neuron import ACTIVATIONS, NeuronGradient, argument, value
from mpsref.kernels.normalization import FLT_MIN, chain, over_power
from mpsref.kernels.pooling import PoolingGradient, count_of_windows, window_of
from mpsref.kernels.pooling_average import AverageForward, AverageGradient
from mpsref.kernels.reference import OF_METAL, UNIT_ROUNDOFF, ErrorBound, Functions, functions, gamma, stated
from mpsref.kernels.upsampling import SampledProblem, matrix
from mpsref.operations import Operation, OperationKey, Problem

Extra: TypeAlias = tuple[Array, ...]
"""For each result, how much larger than its bound the error of each element may be."""


class Rule(NamedTuple):
    """A documented difference from MPS."""

    about: str
    """What it is, in a sentence."""
    operations: frozenset[OperationKey]
    """The operations that it concerns."""
    extra: Callable[[Any, tuple[Array, ...]], Extra] | None = None
    """``extra(problem, inputs)``, all in float64; the problem is one of these operations."""
    without: frozenset[str] = frozenset()
    """Names of properties that do not hold, and of families of data on which results are others."""


RULES: dict[str, Rule] = {}
"""The rules that a backend may declare, by name."""


def _of(spec_types: Sequence[type], *methods: str) -> frozenset[OperationKey]:
    return frozenset(Operation(spec_type, method) for spec_type in spec_types for method in methods)


GROUPS = (InstanceNormalization, GroupNormalization)

FUSED = (BatchNormalization, Convolution, ConvolutionTranspose, FullyConnected)
"""The kernels that may end with a neuron."""

SUMS_OF_WINDOWS = (PoolingAverage, UpsamplingBilinear)

NORMALIZATIONS = (CrossChannelNormalization, LocalContrastNormalization, SpatialNormalization)
"""Those with a power."""

WEIGHTED = ("forward", "gradient_data", "gradient_weights")

ACCURATE = "functions within 2 units"

WITHIN_TWO_UNITS = Functions(exp=4, log=4, tanh=4, power=4, logarithm_of_base=0)

Widening = TypeVar("Widening", bound=Callable[..., Extra])


def _rule(
    name: str, operations: frozenset[OperationKey], *abouts: str, without: frozenset[str] = frozenset()
) -> Callable[[Widening], Widening]:
    """Declare the rule that a function is about, in its first words."""

    def declare(extra: Widening) -> Widening:
        about = abouts[0] if abouts else " ".join(str(extra.__doc__).split())
        RULES[name] = Rule(about, operations, extra, without)
        return extra

    return declare


RULES[ACCURATE] = Rule(
    "Exponentials, logarithms, hyperbolic tangents and powers are within 2 units in the last place: bounds are "
    "evaluated with this instead of the 4 to 16 units of Metal's table.",
    _of([Neuron, Loss, LogSoftMax, *NORMALIZATIONS], "forward", "gradient")
    | _of([SoftMax, *FUSED], "forward")
    | _of([Loss], "gradient_labels"),
)
RULES["NaN by another formula"] = Rule(
    "NaN and infinities are not tested: 0 times infinity may be 0, a product with 0 NaN.",
    _of([Neuron], "forward", "gradient", "parameter_gradient") | _of([Arithmetic, PoolingL2Norm, Dropout], "gradient"),
    without=frozenset({"nonfinite"}),
)
RULES["NaN is the extremum"] = Rule(
    "A minimum, a maximum or its index is that of a NaN, where MPS skips NaN: reductions and max pooling of NaN and "
    "infinities are not tested.",
    _of([Reduce, GraphPoolingMax], "forward") | _of([PoolingMax], "forward", "gradient"),
    without=frozenset({"nonfinite", "extrema_of_nan"}),
)
RULES["zeros by products"] = Rule(
    "A dropped element is its product with 0: its sign and NaN stay.",
    _of([Dropout], "forward", "gradient"),
    without=frozenset({"dropped_is_zero"}),
)
RULES["atomic sums"] = Rule(
    "The terms of a sum are added in an order that may be another in each call.",
    _of([UpsamplingBilinear], "gradient"),
    without=frozenset({"repeatable"}),
)


@_rule("slope at a kink", _of([Neuron, Arithmetic], "gradient"))
def _kink(problem: NeuronGradient | ArithmeticGradient, inputs: tuple[Array, ...]) -> Extra:
    """Where a slope jumps, as that of ReLU at 0 and of a clamp at its bounds, it is that of either side."""
    if isinstance(problem, ArithmeticGradient):
        return _clamp_kink(problem, inputs)
    neuron, (g, x) = problem.spec, inputs
    u = argument(neuron, x)  # a x + b may round x and its neighbour to the same number
    beside = (u, np.nextafter(u, -np.inf), np.nextafter(u, np.inf))
    at, below, above = (ACTIVATIONS[neuron.type].slope(neuron, v) for v in beside)
    with np.errstate(invalid="ignore"):
        jump = np.maximum(abs(at - below), abs(at - above))
    if neuron.type == "relun" and neuron.b == 0:  # a minimum of equal numbers passes the slope of the ReLU at its kink
        jump = np.where(u == 0, abs(neuron.a), jump)
    return (abs(g) * np.where(jump > 2.0**-20, jump, 0),)


def _clamp_kink(problem: ArithmeticGradient, inputs: tuple[Array, ...]) -> Extra:
    """Allow a source gradient to count where the result is equal to a bound of the clamp."""
    spec = problem.spec
    wider = replace(
        spec,
        minimum_value=float(np.nextafter(spec.minimum_value, -np.inf)),
        maximum_value=float(np.nextafter(spec.maximum_value, np.inf)),
    )
    strict, inclusive = (terms(one, *inputs) for one in (problem, replace(problem, spec=wider)))
    return tuple(
        fold(spec.operands[k], shape, abs(inclusive[k] - strict[k]) * (1 + gamma(8)))
        for k, shape in zip(problem.of, problem.result_shapes, strict=True)
    )


@_rule("slope of a loss at a kink", _of([Loss], "gradient", "gradient_labels"))
def _loss_kink(problem: LossGradient, inputs: tuple[Array, ...]) -> Extra:
    """The slope of an absolute error at 0 is that of either side."""
    # The reference has the slope 0 there.
    _, y, t, _ = problem.named_inputs(inputs)
    at_kink = (y == t[..., : y.shape[3]]) & (problem.spec.type == "meanabsoluteerror")
    return _of_slope(problem, inputs, at_kink)


@_rule("cross entropy relative to 1", _of([Loss], "gradient"))
def _cross_entropy_of_one(problem: LossGradient, inputs: tuple[Array, ...]) -> Extra:
    """The slope of a cross entropy of logits is 1 minus a sigmoid: its error is relative to 1."""
    return _of_slope(problem, inputs, np.asarray(gamma(4) * (problem.spec.type == "sigmoidcrossentropy")))


@_rule("Huber's slope relative to delta", _of([Loss], "gradient", "gradient_labels"))
def _huber_by_minimum(problem: LossGradient, inputs: tuple[Array, ...]) -> Extra:
    """Huber's loss is q**2 / 2 + delta (a - q) with q the smaller of a = abs(y - t) and delta: of its slope, terms of
    the size of delta cancel.
    """
    # g q, g delta twice, the difference of the first two and its sum with the third are rounded.
    delta = problem.spec.delta * (problem.spec.type == "huber")
    return _of_slope(problem, inputs, np.asarray(gamma(5) * delta))


@_rule("softsign by a quotient", _of([Neuron], "gradient"))
def _softsign_by_quotient(problem: NeuronGradient, inputs: tuple[Array, ...]) -> Extra:
    """The slope of softsign is that of a quotient: 1 / (1 + abs(x)) minus abs(x) / (1 + abs(x))**2."""
    # Rounded are 1 + abs(x), of the second term twice, its square and a product, the quotients and products with g.
    g, x = inputs
    first, quotient = 1 / (1 + abs(x)), functions().quotient
    found = gamma(2 + quotient) * first + gamma(5 + quotient) * abs(x) * first**2
    return (abs(g) * found * (problem.spec.type == "softsign"),)


@_rule("cross entropy by a logarithm", _of([Loss], "forward"))
def _cross_entropy_by_logarithm(problem: LossForward, inputs: tuple[Array, ...]) -> Extra:
    """The cross entropy of logits is (1 - t) y - log(sigmoid(y)), which cancels where y is negative."""
    # There the product of 1 - t and y has two roundings, and min(y, 0) - log1p(exp(-abs(y))) one relative to y.
    y, t = inputs[:2]
    weights = inputs[2] if len(inputs) > 2 else None
    a, b = problem.spec.smoothing
    found = gamma(1) * (2 * abs(1 - (a * t[..., : y.shape[3]] + b)) + 1) * np.maximum(-y, 0)
    of_element = abs(weighted(problem, found * (problem.spec.type == "sigmoidcrossentropy"), weights))
    if problem.spec.reduction == "none":
        return (of_element,)
    return (problem.loss_image(of_element.sum(axis=(1, 2, 3)), weights),)


@_rule("GELU by polynomials", _of([Neuron], "forward"))
def _gelu_by_polynomials(problem: Problem, inputs: tuple[Array, ...]) -> Extra:
    """The error function of GELU is a polynomial of degree 5 on each quarter of an octave, by Horner's rule."""
    (x,) = inputs
    if not isinstance(problem.spec, Neuron) or problem.spec.type != "gelu":
        return (np.zeros_like(x),)
    size = np.clip(abs(x), 2.0**-4, 8)  # below, the error is less than that of all of them, and beyond it is 1
    octave = np.floor(np.log2(size))
    quarter = np.floor(4 * (size / 2**octave - 1))
    error = np.zeros_like(x)
    for place in np.unique(np.stack([octave.ravel(), quarter.ravel()], axis=1), axis=0):
        error[(octave == place[0]) & (quarter == place[1])] = _error_of_horner(*place.tolist())
    return (abs(x) / 2 * error,)


@functools.cache
def _error_of_horner(octave: float, quarter: float) -> float:
    """Return the error that Horner's rule makes in erf(x / sqrt(2)) on a quarter of an octave.

    Each step rounds its coefficient and its result, which the following ones multiply by x.
    """
    low, high = (2**octave * (1 + (quarter + k) / 4) for k in (0, 1))

    def function(x: Array) -> Array:
        return np.array([math.erf(one / math.sqrt(2)) for one in x])

    fitted = np.polynomial.Chebyshev.interpolate(function, 5, [low, high])
    x = np.linspace(low, high, 33)
    value, error = np.zeros_like(x), np.zeros_like(x)
    for coefficient in fitted.convert(kind=np.polynomial.Polynomial, domain=[-1, 1], window=[-1, 1]).coef[::-1]:
        value = coefficient + x * value
        error = x * error + UNIT_ROUNDOFF * (abs(coefficient) + abs(value))
    return float((error + abs(fitted(x) - function(x))).max())


def _of_slope(problem: LossGradient, inputs: tuple[Array, ...], change: Array) -> Extra:
    """Return how the gradient of a loss changes with its slope."""
    g, y, _, weights = problem.named_inputs(inputs)
    upstream = 1 if g is None else problem.source_gradient(g)
    extra = np.zeros(problem.result_shapes[0])
    extra[..., : y.shape[3]] = abs(weighted(problem, np.broadcast_to(change, y.shape) * 1.0, weights) * upstream)
    return (extra,)


@_rule(
    "rounded positions",
    _of([UpsamplingBilinear, GraphResizeBilinear, GraphResizeNearest], "forward", "gradient")
    | _of([ResizeBilinear, CropAndResizeBilinear], "forward"),
)
def _positions(problem: SampledProblem, inputs: tuple[Array, ...]) -> Extra:
    """Positions of interpolation are rounded relative to themselves, which is an error of the weights, and at the edge
    of the image decides whether it is read. Where a position is rounded to a pixel, it may become another pixel.
    """
    # A rounding moves so much of the weight to a neighbour.
    (values,), forward = inputs, problem.method == "forward"
    tables = [_moved_weights(axis) for axis in problem.axes]
    (y, of_y), (x, of_x) = tables if forward else [(weights.T, moved.T) for weights, moved in tables]
    extra = sum(
        np.einsum("ay,nyxc,bx->nabc", rows, abs(values), columns, optimize=True)
        for rows, columns in ((of_y, x), (y + of_y, of_x))
    )
    if isinstance(problem.spec, CropAndResizeBilinear):
        edge = np.logical_or.outer(*map(_at_the_edge, problem.axes))
        extra = extra + edge[:, :, None] * abs(values).max(axis=(1, 2), keepdims=True)
    return (np.asarray(extra),)


def _moved_weights(axis: Sampling) -> tuple[Array, Array]:
    """Return the weights of the pixels of an axis, (outputs, length), and how much a rounded position moves them.

    A position at a pixel may be before or behind it, so that its neighbours on both sides get weight.
    """
    weights = matrix(axis.forward(), axis.length)
    if axis.rounding:
        return weights, _other_pixels(axis, axis.rounding)
    positions = [(axis.start + i * axis.numerator) / axis.denominator for i in range(axis.outputs)]
    size = np.maximum(np.abs(positions), abs(axis.start) / axis.denominator)
    near = (
        abs(np.subtract.outer(np.clip(positions, 0, axis.length - 1), np.arange(axis.length)))
        <= 1 + gamma(8) * size[:, None]
    )
    return weights, np.where(near & weights.any(axis=1, keepdims=True), gamma(8) * size[:, None], 0)


def _other_pixels(axis: Sampling, rule: Rounding) -> Array:
    """Return which pixels, (outputs, length), positions may be rounded to; none where their fractions are binary."""
    moved = np.zeros((axis.outputs, axis.length))
    for i in range(axis.outputs if axis.denominator & (axis.denominator - 1) else 0):
        position = Fraction(axis.start + i * axis.numerator, axis.denominator)
        error = Fraction(float(gamma(8))) * max(abs(position), Fraction(abs(axis.start), axis.denominator))
        near = {rounded(rule, p.numerator, p.denominator) for p in (position - error, position + error)}
        if len(near) > 1:
            moved[i, np.clip(list(near), 0, axis.length - 1)] = 1
    return moved


def _at_the_edge(axis: Sampling) -> Array:
    """Return which outputs may lie inside or outside of the image, by the rounding of their positions; 0 is exact."""
    last, error = axis.length - 1, gamma(8) * axis.length
    positions = [(axis.start + i * axis.numerator) / axis.denominator for i in range(axis.outputs)]
    return np.array([p != 0 and min(abs(p), abs(p - last)) <= error for p in positions])


@_rule("slope from the result", _of([Neuron], "gradient"))
def _from_result(problem: NeuronGradient, inputs: tuple[Array, ...]) -> Extra:
    """The slopes of sigmoid, tanh and ELU are y (1 - y), 1 - y**2 and y + a of the rounded result."""
    # A tanh may be off by 5 units, its square 10: the accuracy table of Metal [doc].
    neuron, (g, x) = problem.spec, inputs
    errors = {"sigmoid": gamma(4), "tanh": gamma(12) * abs(neuron.a * neuron.b), "elu": gamma(4) * abs(neuron.a)}
    return (abs(g) * np.where(np.isfinite(x), errors.get(neuron.type, 0.0), 0),)


@_rule("sigmoid relative to 1", _of([Neuron, *FUSED], "forward"))
def _sigmoid_of_one(problem: Problem, inputs: tuple[Array, ...]) -> Extra:
    """Sigmoid is 1/2 plus an odd function: its error is relative to 1, not to the result."""
    return (np.full(problem.result_shapes[0], gamma(4) if _is_sigmoid(problem) else 0.0),)


def _is_sigmoid(problem: Problem) -> bool:
    """Return whether an operation ends with a sigmoid."""
    neuron = problem.spec if isinstance(problem.spec, Neuron) else getattr(problem.spec, "neuron", None)
    return neuron is not None and neuron.type == "sigmoid"


@_rule("gradient at logits", _of([SoftMax], "gradient"))
def _at_logits(problem: Problem, inputs: tuple[Array, ...]) -> Extra:
    """Softmax is differentiated at the logarithms of its result."""
    # The logarithms of y are rounded, relative to their size.
    g, y = inputs
    size = 1 - np.log(np.maximum(y, 2.0**-149)).min(axis=3, keepdims=True)
    return (gamma(8) * size * y * (abs(g) + abs(g * y).sum(axis=3, keepdims=True)),)


@_rule("folded scale and shift", _of([BatchNormalization, *GROUPS], "forward") | _of([GroupNormalization], "gradient"))
def _folded(problem: BatchProblem | GroupsProblem, inputs: tuple[Array, ...]) -> Extra:
    """A normalization is computed as a x + b, and the gradient of group normalization as a g + b x + c: what cancels in
    these sums is rounded before.
    """
    # That is a = gamma r, and b = beta - mean a.
    if isinstance(problem, BatchProblem):
        given = problem.named(inputs)
        r, xhat = normalized(problem, given)
        scale = r if given.gamma is None else abs(given.gamma) * r
        shift = 0 if given.beta is None else abs(given.beta)
        error = gamma(8) * (abs(given.x) + abs(given.mean)) * scale + gamma(4) * shift
        if problem.spec.neuron is None:
            return (error,)
        z = scaled(xhat, given)
        ends = [abs(value(problem.spec.neuron, z + sign * error) - value(problem.spec.neuron, z)) for sign in (-1, 1)]
        return (np.maximum(*ends),)
    if problem.method == "gradient":
        return _folded_gradient(problem, inputs)
    x = inputs[0].reshape(problem.grouped_shape)
    mean, variance = _moments(problem, inputs)
    deviation = np.sqrt(variance + problem.spec.epsilon)
    scale, shift = (abs(one) for one in problem.parameters(inputs[1:], x.dtype))  # type: ignore[attr-defined]
    terms = ((abs(x) + abs(mean)) / deviation).reshape(problem.source_shape)
    return (gamma(8) * terms * scale + gamma(4) * shift,)


def _folded_gradient(problem: GroupsProblem, inputs: tuple[Array, ...]) -> Extra:
    """Allow the rounding of dx = r h + b x + c with b = (mean sum(h) - sum(h x)) r**3 / M, and of sums that are so."""
    g, x, *vectors = inputs
    scale = problem.parameters(tuple(vectors), x.dtype)  # type: ignore[attr-defined]
    mean, variance = _moments(problem, inputs)
    r, m, grouped = 1 / np.sqrt(variance + problem.spec.epsilon), problem.count, abs(x.reshape(problem.grouped_shape))
    h, of_channel = abs(g * scale).reshape(grouped.shape), abs(g).reshape(grouped.shape)
    largest = grouped + abs(mean)
    growth = gamma(chain(m) + 8)
    of_sum = growth * (h * largest).sum(ALL_VALUES, keepdims=True)
    b = (abs((h * largest).sum(ALL_VALUES, keepdims=True)) + of_sum) * r**3 / m
    of_dx = (largest * of_sum) * r**3 / m + gamma(6) * (b * largest + (h + h.sum(ALL_VALUES, keepdims=True) / m) * r)
    of_dgamma = growth * (of_channel * largest * r).reshape(problem.source_shape).sum(axis=(1, 2))
    return of_dx.reshape(problem.source_shape), of_dgamma, np.zeros_like(of_dgamma)


@_rule("rounded means", _of(GROUPS, "forward", "gradient"), without=frozenset({"instance_is_group"}))
def _rounded_means(problem: GroupsProblem, inputs: tuple[Array, ...]) -> Extra:
    """A mean is rounded relative to itself: a constant differs from its mean."""
    # So a constant is not its mean, either.
    mean, variance = _moments(problem, inputs)
    of_mean = gamma(6 + math.ceil(math.log2(problem.count))) * abs(mean)
    return _through_moments(problem, inputs, of_mean, of_mean**2 + 2 * of_mean * np.sqrt(variance))


@_rule("plain means", _of(GROUPS, "forward", "gradient"))
def _plain_means(problem: GroupsProblem, inputs: tuple[Array, ...]) -> Extra:
    """The values of a group, and the terms of sums over the pixels, are added one after the other in float32."""
    mean, variance = _moments(problem, tuple(map(abs, inputs)))
    of_mean = gamma(problem.count + 6) * mean
    extra = _through_moments(problem, inputs, of_mean, of_mean**2 + (2 * of_mean + gamma(problem.count)) * variance)
    if len(extra) == 1:
        return extra
    (g, x), (of_dx, of_dgamma, _) = inputs[:2], extra
    mean, variance = _moments(problem, inputs)
    xhat = ((x.reshape(problem.grouped_shape) - mean) / np.sqrt(variance + problem.spec.epsilon)).reshape(x.shape)
    of_dgamma, of_dbeta = (
        extra + gamma(g[0, ..., 0].size) * abs(terms).sum(axis=(1, 2))
        for extra, terms in ((of_dgamma, g * xhat), (0, g))
    )
    return of_dx, of_dgamma, of_dbeta


@_rule("variance from squares", _of([GroupNormalization], "forward", "gradient"))
def _squares(problem: GroupsProblem, inputs: tuple[Array, ...]) -> Extra:
    """A variance is the mean of squares minus the squared mean, in float32: it cancels where the mean is large."""
    mean, variance = _moments(problem, inputs)
    return _through_moments(problem, inputs, 0 * mean, gamma(chain(problem.count) + 8) * 2 * (mean**2 + variance))


def _moments(problem: GroupsProblem, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
    """Return mean and variance of each group, which broadcast."""
    x = [one for one in inputs if one.ndim == 4][-1].reshape(problem.grouped_shape)
    return x.mean(ALL_VALUES, keepdims=True), x.var(ALL_VALUES, keepdims=True)


def _through_moments(problem: GroupsProblem, inputs: tuple[Array, ...], of_mean: Array, of_variance: Array) -> Extra:
    """Return what errors of mean and variance make of the results of instance and group normalization."""
    *g, x = (one for one in inputs if one.ndim == 4)
    vectors = tuple(one for one in inputs if one.ndim == 1)
    m, shape = problem.count, problem.source_shape
    mean, variance = _moments(problem, inputs)
    square = variance + problem.spec.epsilon
    deviation, xhat = np.sqrt(square), (x.reshape(problem.grouped_shape) - mean) / np.sqrt(square)
    rho = np.sqrt(square / (np.maximum(variance - of_variance, 0) + problem.spec.epsilon)) - 1
    folded = gamma(8) * (abs(x.reshape(xhat.shape)) + abs(mean))  # what "folded scale and shift" rounds is larger, too
    of_xhat = of_mean / deviation + abs(xhat) * rho + (of_mean + folded) / deviation * rho
    if not g:
        scale, _ = problem.parameters(vectors, x.dtype)  # type: ignore[attr-defined]
        return (of_xhat.reshape(shape) * abs(scale),)
    scale = problem.parameters(vectors, x.dtype)  # type: ignore[attr-defined]
    upstream = abs(g[0] * scale).reshape(xhat.shape)
    size = abs(xhat) + of_xhat
    sums = [np.sum(one, ALL_VALUES, keepdims=True) / m for one in (upstream, upstream * size, upstream * of_xhat)]
    of_dx = rho * (upstream + sums[0] + size * sums[1]) + (1 + rho) * (size * sums[2] + of_xhat * sums[1])
    of_dgamma = (abs(g[0]) * of_xhat.reshape(shape)).sum(axis=(1, 2))
    return (of_dx / deviation).reshape(shape), of_dgamma, np.zeros_like(of_dgamma)


@_rule("means of all taps", _of([PoolingAverage], "forward", "gradient"))
def _means_of_taps(problem: AverageForward | AverageGradient, inputs: tuple[Array, ...]) -> Extra:
    """The average of a window that shrinks is the mean of all its taps, multiplied by their number and divided by that
    of the taps inside.
    """
    # Where the factor is no power of 2, three roundings: it, its reciprocal and their product.
    (bound,) = _plain.get()
    mantissa, _ = math.frexp(math.prod(window.kernel for window in problem.spec.windows))
    return (gamma(3) * bound.magnitude * (mantissa != 0.5),)


@_rule("running sums", _of([CrossChannelNormalization], "forward"))
def _running_sums(problem: CrossChannelProblem, inputs: tuple[Array, ...]) -> Extra:
    """The sum of a window is that of the window before, plus one square, minus another."""
    spec, (x,) = problem.spec, inputs
    base = bases(problem, x)
    of_base = gamma(2 * x.shape[3] + 8) * spec.alpha / spec.kernel_size * (x**2).sum(axis=3, keepdims=True)
    return (abs(x * over_power(base, spec.beta + 1) * spec.beta) * of_base * 2,)


@_rule(
    "plain sums",
    _of([BatchNormalization], "statistics", "statistics_gradient"),
    without=frozenset({"constant_channels"}),
)
def _plain_sums(problem: Any, inputs: tuple[Array, ...]) -> Extra:
    """The pixels of a batch are added one after the other in float32, not relative to one of them."""
    if problem.operation.method == "statistics_gradient":
        given = problem.named(inputs)
        _, xhat = normalized(problem, given)
        terms = abs(upstream(problem, xhat, given))
        of_dbeta, of_dgamma = (gamma(problem.pixels + 4) * (terms * f).sum(axis=(0, 1, 2)) for f in (1, abs(xhat)))
        return of_dbeta, of_dgamma
    x, *state = inputs
    _, m2 = problem.operation.formula(problem, *inputs)
    n = problem.pixels + problem.count
    total = abs(x).sum(axis=(0, 1, 2)) + (problem.count * abs(state[0]) if state else 0)
    of_mean = gamma(problem.pixels + 4) * total / n
    return of_mean, gamma(problem.pixels + 4) * m2 + n * (of_mean**2 + 2 * of_mean * np.sqrt(m2 / n))


@_rule("ties shared", _of([PoolingMax], "gradient"))
def _shared_ties(problem: PoolingGradient, inputs: tuple[Array, ...]) -> Extra:
    """Equal maxima of a window share its gradient."""
    # Each pixel once, or as often as taps read it.
    g, x = inputs
    extra = np.zeros(problem.source_shape)
    for a, b, of_window in problem.counted(abs(g)):
        values, *axes = window_of(problem, x, a, b)
        (ys, y_times), (xs, x_times) = axes
        first = np.unravel_index(values.argmax(axis=1), (len(ys), len(xs)))
        (y, y_index, y_count), (x_, x_index, x_count) = _distinct(ys, y_times), _distinct(xs, x_times)
        values = values.reshape(len(x), len(ys), len(xs), -1)[:, y_index[:, None], x_index]
        times = np.multiply.outer(y_count, x_count)[:, :, None]
        inside = ((y >= 0)[:, None] & (x_ >= 0))[:, :, None]
        tied = values == values.max(axis=(1, 2), keepdims=True)
        shares, inner = (
            [one / one.sum((1, 2), keepdims=True) for one in (t, t * times)] for t in (tied, tied & inside)
        )
        selected = (ys[first[0]][:, None, None] == y[:, None, None]) & (xs[first[1]][:, None, None] == x_[:, None])
        share = np.where(selected, 1 - np.minimum(*shares), np.maximum(*inner))
        share += gamma(times.sum() + 4) * (times.max() > 1)  # shares of copies of a pixel are added again
        here = np.ix_(np.arange(len(x)), y[y >= 0], x_[x_ >= 0], np.arange(x.shape[3]))
        extra[here] += (np.where(tied, share, 0) * of_window[:, None, None])[:, y >= 0][:, :, x_ >= 0]
    return (problem.place(extra) * (1 + gamma(count_of_windows(problem) + 4)),)


@_rule("another of equal maxima", _of([PoolingMax], "gradient"))
def _any_tie(problem: PoolingGradient, inputs: tuple[Array, ...]) -> Extra:
    """The gradient of a window with equal maxima goes to any one of them, which Apple leaves open."""
    # Also a tap outside the image may be the one.
    g, x = inputs
    extra = np.zeros(problem.source_shape)
    for a, b, of_window in problem.counted(abs(g)):
        values, (ys, _), (xs, _) = window_of(problem, x, a, b)
        values = values.reshape(len(x), len(ys), len(xs), -1)
        tied = values == values.max(axis=(1, 2), keepdims=True)
        several = tied & (tied.sum(axis=(1, 2), keepdims=True) > 1)
        moved = np.where(several, of_window[:, None, None], 0)
        for (i, y), (k, x_) in itertools.product(enumerate(ys), enumerate(xs)):
            if y >= 0 and x_ >= 0:
                extra[:, y, x_] += moved[:, i, k]
    return (problem.place(extra) * (1 + gamma(count_of_windows(problem) + 4)),)


def _distinct(pixels: Array, times: Array) -> tuple[Array, Array, Array]:
    """Return the pixels of an axis without repetition, the first position of each, and the number of its taps."""
    found, first, inverse = np.unique(pixels, return_index=True, return_inverse=True)
    return found, first, np.bincount(inverse, times)


@_rule("folded sums", _of([BatchNormalization], "statistics_gradient"))
def _folded_sums(problem: BatchProblem, inputs: tuple[Array, ...]) -> Extra:
    """The gradient of the scale of batch normalization is the sum of g x minus the mean times that of g."""
    # Both sums are rounded, of all pixels one after the other.
    given = problem.named(inputs)
    r, xhat = normalized(problem, given)
    terms = abs(upstream(problem, xhat, given)) * (abs(given.x) + abs(given.mean)) * r
    of_dgamma = gamma(problem.pixels + 8) * terms.sum(axis=(0, 1, 2))
    return np.zeros_like(of_dgamma), of_dgamma


@_rule("small probabilities are 0", _of([SoftMax, Neuron, *FUSED], "forward"))
def _vanishing(problem: Problem, inputs: tuple[Array, ...]) -> Extra:
    """A result of softmax or sigmoid below 2**-125 may be 0."""
    if not isinstance(problem.spec, SoftMax) and not _is_sigmoid(problem):
        return (np.zeros(problem.result_shapes[0]),)
    y = problem.operation.formula(problem, *inputs)
    return (np.where(y < 2.0**-125, y, 0),)


@_rule("softmax recomputed", _of([SoftMax, LogSoftMax], "gradient"))
def _recomputed(problem: Problem, inputs: tuple[Array, ...]) -> Extra:
    """The gradient of softmax is that at the logarithm of the given result, whose softmax is computed again."""
    g, y = inputs
    logarithmic = isinstance(problem.spec, LogSoftMax)
    p, logs = (np.exp(y), y) if logarithmic else (y, np.log(y))
    largest = np.where(np.isfinite(logs), abs(logs), 0).max(axis=3, keepdims=True)
    change = 2 * (gamma(p.shape[3] + 12) + UNIT_ROUNDOFF * largest)
    if logarithmic:
        return (p * change * abs(g.sum(axis=3, keepdims=True)),)
    return (p * change * (abs(g) + 2 * (abs(g) * p).sum(axis=3, keepdims=True)),)


TF32 = (1 + 2.0**-10) ** 2 - 1
"""The relative error of a product whose factors are cut to 11 bits, as by cuDNN on an H200."""


@_rule(
    "TF32 convolutions",
    _of([Convolution, ConvolutionTranspose], *WEIGHTED),
    "Pixels, weights and gradients of convolutions are cut or rounded to 11 bits, in the format TF32.",
)
@_rule(
    "TF32 products",
    _of([FullyConnected], *WEIGHTED),
    "Inputs, weights and gradients of fully connected layers are cut or rounded to 11 bits, in the format TF32.",
)
def _short_factors(problem: Problem, inputs: tuple[Array, ...]) -> Extra:
    """Allow both factors of each product to be cut to 11 bits; the gradient of a bias has no products."""
    first, *others = _plain.get()
    return TF32 * np.asarray(first.magnitude), *(np.zeros_like(one.magnitude) for one in others)


@_rule(
    "flushes subnormals",
    _of([Convolution, ConvolutionTranspose, FullyConnected], *WEIGHTED)
    | _of([PoolingAverage], "forward", "gradient")
    | _of([Arithmetic, Neuron, Reduce], "forward"),
)
def _underflow(problem: Problem, inputs: tuple[Array, ...]) -> Extra:
    """Products and results below the smallest normal number, 1.2e-38, may be 0 or rounded to a multiple of 1.4e-45."""
    # Each term of a sum may lose the smallest normal number.
    return tuple(
        np.broadcast_to(np.maximum(one.roundings, 1) * FLT_MIN, np.shape(one.magnitude)) for one in _plain.get()
    )


WINOGRAD = 256
"""The largest sum of absolute terms of a result of Winograd's F(4 x 4, 3 x 3), relative to that of its products.

On an axis the terms of the last of four results sum to 48 times the largest product; plain taps sum to 3 times that.
"""


@_rule("transformed convolutions", _of([Convolution, ConvolutionTranspose], *WEIGHTED))
def _transformed(problem: WeightedProblem, inputs: tuple[Array, ...]) -> Extra:
    """Convolutions without strides and dilations are products of transformed images (FFT, Winograd): an element is
    rounded relative to the largest of its image and channel, and to terms that cancel.
    """
    # A transform mixes the pixels of an image, or the taps of a pair of channels. Only convolutions of several taps,
    # with strides and dilations of 1, are computed so.
    first, *others = _plain.get()
    spec = problem.spec
    assert isinstance(spec, Convolution | ConvolutionTranspose)
    dilations = spec.dilations if isinstance(spec, Convolution) else (1, 1)
    transforms = math.prod(spec.size) > 1 and spec.strides == dilations == (1, 1)
    largest = first.limit.max(axis=(1, 2), keepdims=True, initial=0) * (WINOGRAD if transforms else 0)
    return (np.broadcast_to(largest, first.limit.shape), *(np.zeros_like(one.limit) for one in others))


HALF = 2.0**13
"""The unit roundoff of float16 in units of that of float32."""


@_rule(
    "float16 arithmetic",
    _of([Convolution, ConvolutionTranspose], *WEIGHTED)
    | _of([FullyConnected], "forward", "gradient_weights")
    | _of([BatchNormalization], "statistics")
    | _of([Neuron], "forward", "gradient", "parameter_gradient")
    | _of([SoftMax, Reduce], "forward")
    | _of([Arithmetic, PoolingAverage, UpsamplingBilinear], "forward", "gradient")
    | _of([Pad, PoolingMax], "gradient"),
)
def _in_float16(problem: Problem, inputs: tuple[Array, ...]) -> Extra:
    """Intermediate results, and gradients of parameters and statistics, are rounded to float16 where MPS has float32:
    each rounding of a bound is 2**-11 instead of 2**-24. Beyond its range nothing is compared.
    """
    # That is gamma of 2**-11, and 2**-25 among subnormals.
    if isinstance(problem.spec, Neuron) and problem.method != "parameter_gradient":
        return _neuron_in_float16(problem.spec, inputs)
    if isinstance(problem, Reduction):
        mean, m2 = problem.operation.formula(problem, *inputs)
        bounds = ErrorBound.of_terms(abs(mean), 2), ErrorBound.of_terms(m2 / problem.pixels, 2)
        of_mean, of_variance = (_rounded_to_float16(problem, bound) for bound in bounds)
        return of_mean, (of_variance + of_mean**2) * problem.pixels  # the mean that is subtracted may be rounded
    if isinstance(problem.spec, SoftMax):  # roundings of the powers, of their sum and of the quotient
        y = problem.operation.formula(problem, *inputs)
        return (_rounded_to_float16(problem, ErrorBound.of_terms(y, 3)),)
    if isinstance(problem.spec, Arithmetic):  # a scaled subnormal is a factor of other numbers
        scales = [abs(one) for one in (problem.spec.primary_scale, problem.spec.secondary_scale) if one]
        inputs = tuple(abs(one) + 2.0**-14 / min(1.0, *scales) for one in inputs)
        return tuple(_rounded_to_float16(problem, one) for one in problem.operation.bounds(problem, *inputs))
    return tuple(_rounded_to_float16(problem, one) for one in _plain.get())


def _rounded_to_float16(problem: Problem, bound: ErrorBound) -> Array:
    m = np.minimum(bound.roundings, _roundings_to_float16(problem)) * (bound.limit > 0)
    if (HALF * UNIT_ROUNDOFF * m >= 0.5).any():
        raise UnsupportedError(f"{int(m.max())} roundings to float16 in sequence leave no digit to compare")
    terms = math.prod(w.kernel for w in problem.spec.windows) if isinstance(problem.spec, PoolingAverage) else 1
    _in_range(np.maximum(bound.magnitude, 1) * terms)  # the number of terms is a float16, too
    return np.where(m > 0, gamma(HALF * m) * bound.magnitude + m * 2.0**-25, 0)


def _in_range(magnitude: Array) -> None:
    if np.max(magnitude, initial=0) > np.finfo(np.float16).max / 2:
        raise UnsupportedError("an intermediate result may exceed 65504, the largest float16")


def _roundings_to_float16(problem: Problem) -> float:
    """Return how many results are rounded in sequence at most, if a function of PyTorch adds in float32.

    These are a sum, a bias, a factor and their result. Taps that are spread over pixels, and the weight gradients of
    the images of a batch, are added in float16.
    """
    spec, method = problem.spec, problem.method
    if isinstance(spec, FullyConnected | Reduce) or (method == "forward" and isinstance(spec, SUMS_OF_WINDOWS)):
        return 4
    if not isinstance(spec, Convolution | ConvolutionTranspose):
        return math.inf
    if method == "gradient_weights":
        return 4 + problem.input_shapes["g"][0]
    spreads = method == ("forward" if isinstance(spec, ConvolutionTranspose) else "gradient_data")
    return 4 + (math.prod(spec.size) if spreads else 0)


def _neuron_in_float16(neuron: Neuron, inputs: tuple[Array, ...]) -> Extra:
    """Allow six roundings of the argument, such as those of a and a x, and six of the function and its factors."""
    *g, x = inputs
    activation = ACTIVATIONS[neuron.type]
    function, u = activation.slope if g else activation.value, argument(neuron, x)
    magnitude = abs(neuron.a * x) + abs(neuron.b) if activation.affine else abs(x)
    shift = gamma(6 * HALF) * (magnitude + 2.0**-14)
    at, below, above = (function(neuron, v) for v in (u, u - shift, u + shift))
    _in_range(abs(at * (g[0] if g else 1)))
    error = np.maximum(abs(below - at), abs(above - at)) + gamma(6 * HALF) * (abs(at) + 2.0**-14)
    if not g:
        return (error,)
    (from_result,) = _from_result(Neuron.problems["gradient"](neuron, x.shape), inputs)
    return (abs(g[0]) * error + HALF * from_result + 2.0**-23,)


_current: ContextVar[tuple[str, ...]] = ContextVar("rules", default=())
_plain: ContextVar[tuple[ErrorBound, ...]] = ContextVar("bounds")
"""The bounds that are being widened, without any rule."""


def concerning(rules: Sequence[str], operation: OperationKey) -> tuple[str, ...]:
    """Return those of the rules that concern an operation; raise ``ValueError`` for an unknown one.

    >>> from mpsref import Neuron
    >>> concerning(["slope at a kink", "rounded means"], (Neuron, "gradient"))
    ('slope at a kink',)
    """
    for name in rules:
        choice("rules", name, tuple(RULES))
    return tuple(name for name in rules if operation in RULES[name].operations)


@contextlib.contextmanager
def applied(rules: tuple[str, ...]) -> Iterator[None]:
    """Evaluate bounds under these rules inside a ``with`` block."""
    token = _current.set(rules)
    errors = stated.set(WITHIN_TWO_UNITS if ACCURATE in rules else OF_METAL)
    try:
        yield
    finally:
        stated.reset(errors)
        _current.reset(token)


def current(operation: OperationKey) -> tuple[str, ...]:
    """Return the rules that are applied to an operation now."""
    return concerning(_current.get(), operation)


def not_widening() -> tuple[str, ...]:
    """Return the rules that are applied now and leave bounds those of a number of terms."""
    return tuple(name for name in _current.get() if RULES[name].extra is None)


def left_out(name: str, operation: OperationKey) -> bool:
    """Return whether a property does not hold, or a family is not tested, under the rules that are applied now."""
    return any(name in RULES[rule].without for rule in current(operation))


def widened(problem: Problem, inputs: tuple[Array, ...], bounds: tuple[ErrorBound, ...]) -> tuple[ErrorBound, ...]:
    """Return the bounds of the results, wider where a rule that is applied now allows it."""
    _plain.set(bounds)
    for name in current(problem.operation):
        extra = RULES[name].extra
        if extra is not None:
            with np.errstate(all="ignore"):
                allowed = extra(problem, inputs)
                bounds = tuple(map(_wider, bounds, allowed))
    return bounds


def _wider(bound: ErrorBound, extra: Array) -> ErrorBound:
    extra = np.where(np.isnan(extra), 0, extra)  # of NaN and infinities, which must agree
    return ErrorBound(bound.limit + extra, np.asarray(bound.exact) & (extra == 0))
