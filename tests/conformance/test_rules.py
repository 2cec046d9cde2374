"""Rules: each allows the difference that it is about, and nothing else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpsref import Backend, CropAndResizeBilinear, GroupNormalization, Loss, Neuron, ResizeBilinear
from mpsref.arguments.arrays import Array
from mpsref.conformance import check, comparator, rules
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import checked_cases, layer_cases, outcome_of, random_cases
from mpsref.conformance.rules import RULES
from mpsref.conformance.runner import references, run_case
from mpsref.kernels.loss import weighted
from mpsref.kernels.pooling import window_of
from mpsref.kernels.reduce import AXES
from mpsref.kernels.reference import UNIT_ROUNDOFF, gamma
from mpsref.operations import Operation

pytestmark = pytest.mark.slow

Formula = Callable[..., Any]


def relu_at_0(problem: Any, g: Array, x: Array) -> Array:
    """Slope 0 at 0, where MPS has 1."""
    (dx,) = references(problem, g, x)
    kinked = problem.spec.type in ("relu", "prelu", "elu", "relun")
    below = np.where(x == 0, np.nextafter(x, -1), x)
    (other,) = references(problem, g, below)
    return np.where(x == 0, other, dx) if kinked else dx


def relu_at_1(problem: Any, g: Array, x: Array) -> Array:
    (dx,) = references(problem, g, x)
    return np.where((x == 1) & (problem.spec.type == "relu"), dx * 0.5, dx)


def sigmoid_slope(problem: Any, g: Array, x: Array) -> Array:
    """y (1 - y) of the result, in float32."""
    (dx,) = references(problem, g, x)
    if problem.spec.type != "sigmoid":
        return dx
    y = (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    return g * (y * (np.float32(1) - y))


def tanh_slope(problem: Any, g: Array, x: Array) -> Array:
    """1 - t**2 in float32, of a tanh that is off by 5 units."""
    (dx,) = references(problem, g, x)
    if problem.spec.type != "tanh":
        return dx
    t = np.tanh(np.float64(problem.spec.b) * x)
    t = np.clip(t + 5 * np.spacing(t.astype(np.float32)) * np.where(g > 0, 1, -1), -1, 1).astype(np.float32)
    return g * (np.float32(1) - t * t) * np.float32(problem.spec.a * problem.spec.b)


def mean_of_taps(problem: Any, *inputs: Array) -> Array:
    """Means of as many times the values as there are taps, with a rounded reciprocal."""
    n = np.float32(math.prod(window.kernel for window in problem.spec.windows))
    return references(problem, *(one * n for one in inputs))[0].astype(np.float32) * (1 / n)


def clamp_inclusive(problem: Any, g: Array, *operands: Array) -> tuple[Array, ...]:
    spec = problem.spec
    low, high = (float(np.nextafter(b, s * np.inf)) for b, s in ((spec.minimum_value, -1), (spec.maximum_value, 1)))
    wider = replace(spec, minimum_value=low, maximum_value=high)
    return references(replace(problem, spec=wider), g, *operands)


def folded(problem: Any, *inputs: Array) -> Array:
    """y = a x + b in float32."""
    given = problem.named(inputs)
    with np.errstate(all="ignore"):
        a = (1 / np.sqrt(given.variance + np.float32(problem.spec.epsilon))).astype(np.float32)
        a = a if given.gamma is None else a * given.gamma
        b = -given.mean * a if given.beta is None else given.beta - given.mean * a
        y = given.x * a + b
    return y if problem.spec.neuron is None else references(problem, *inputs)[0]


def plain_sums(problem: Any, x: Array, *state: Array) -> tuple[Array, Array]:
    if state:
        return references(problem, x, *state)  # type: ignore[return-value]
    pixels = x.astype(np.float32).reshape(-1, x.shape[3])
    mean = np.add.accumulate(pixels, dtype=np.float32)[-1] / np.float32(len(pixels))
    return mean, ((pixels - mean) ** 2).sum(axis=0, dtype=np.float64)


def grouped(problem: Any, inputs: tuple[Array, ...]) -> tuple[Array, Array, Array]:
    x = inputs[0].astype(np.float32)
    x = x.reshape(problem.grouped_shape)
    mean = np.asarray(x.sum((1, 2, 4), dtype=np.float32, keepdims=True) / np.float32(problem.count))
    return x, mean, np.asarray(((x - mean) ** 2).mean((1, 2, 4), dtype=np.float32, keepdims=True))


def mean_rounded(problem: Any, *inputs: Array) -> Array:
    """The mean is one rounding away from the pixels, also if these are equal; a mean of 0 is exact."""
    x, _, _ = grouped(problem, inputs)
    mean = x.mean((1, 2, 4), dtype=np.float64, keepdims=True).astype(np.float32)
    mean = np.where(mean == 0, mean, np.nextafter(mean, np.float32(np.inf)))
    variance = ((x.astype(np.float64) - mean) ** 2).mean((1, 2, 4), keepdims=True)
    return _scaled(problem, inputs, (x - mean.astype(np.float64)) / np.sqrt(variance + problem.spec.epsilon))


def from_squares(problem: Any, *inputs: Array) -> Array:
    x, mean, _ = grouped(problem, inputs)
    squares = (x * x).sum((1, 2, 4), dtype=np.float32, keepdims=True) / np.float32(problem.count)
    variance = np.maximum(squares - mean * mean, 0)
    exact = x.astype(np.float64) - x.astype(np.float64).mean((1, 2, 4), keepdims=True)
    return _scaled(problem, inputs, exact / np.sqrt(variance.astype(np.float64) + problem.spec.epsilon))


def _scaled(problem: Any, inputs: tuple[Array, ...], xhat: Array) -> Array:
    gamma, beta = problem.parameters(inputs[1:], float)
    return gamma * xhat.reshape(problem.source_shape) + beta


def tf32(array: Array) -> Array:
    """Cut to 11 bits."""
    mantissa, exponent = np.frexp(array.astype(np.float64))
    return np.ldexp(np.trunc(mantissa * 2.0**11) / 2.0**11, exponent)


def in_tf32(problem: Any, x: Array, *others: Array) -> Any:
    """The pixels, or the gradient, and the weights in TF32; not the biases, nor the gradient of a bias."""
    found = references(problem, tf32(x), *(tf32(one) if one.ndim == 4 else one for one in others))
    results = references(problem, x, *others)
    return (found[0], *results[1:]) if problem.spec.neuron is None else results


def by_transform(problem: Any, *inputs: Array) -> Any:
    """With an error in each element that is relative to the largest of the image, where a transform is possible."""
    first, *others = references(problem, *inputs)
    if problem.spec.neuron is None and problem.spec.strides == (1, 1) and problem.spec.size != (1, 1):
        first = first + 2.0**-24 * abs(first).max(axis=(1, 2), keepdims=True)
    return (first, *others)


def cross_entropy_of_one(problem: Any, *inputs: Array) -> Array:
    """The slope at positive labels of the cross entropy of logits is 1 minus a sigmoid, in float32."""
    g, y, t, weights = problem.named_inputs(inputs)
    (dy,) = references(problem, *inputs)
    if problem.spec.type != "sigmoidcrossentropy":
        return dy
    a, b = problem.spec.smoothing
    slope = (1 - 1 / (1 + np.exp(y.astype(np.float32)))) - (a * t[..., : y.shape[3]] + b)
    return np.asarray(weighted(problem, slope, weights) * (1 if g is None else problem.source_gradient(g)))


def huber_by_minimum(problem: Any, *inputs: Array) -> Array:
    """The gradient of q**2 / 2 + delta (a - q), q the smaller of a = abs(y - t) and delta, term by term."""
    g, y, t, weights = problem.named_inputs(inputs)
    signed, delta = y - t[..., : y.shape[3]], np.float32(problem.spec.delta)
    size = abs(signed)
    upstream = weighted(problem, np.ones_like(y), weights).astype(np.float32)
    upstream = upstream if g is None else upstream * problem.source_gradient(g)
    inner = np.where(size < delta, upstream * size - upstream * delta, np.float32(0))
    return (inner + upstream * delta) * np.sign(signed)


def softsign_by_quotient(problem: Any, g: Array, x: Array) -> Array:
    divisor = np.float32(1) + abs(x)
    return g / divisor - g * (x / divisor / divisor) * np.sign(x)


def cross_entropy_by_logarithm(problem: Any, y: Array, t: Array) -> Array:
    return (np.float32(1) - t) * y - (np.minimum(y, np.float32(0)) - np.log1p(np.exp(-abs(y))))


def gelu_by_horner(problem: Any, x: Array) -> Array:
    """On [2.5, 3], with the polynomial of a Chebyshev interpolation."""

    def erf(z: Array) -> Array:
        return np.array([math.erf(one / math.sqrt(2)) for one in z])

    fitted = np.polynomial.Chebyshev.interpolate(erf, 5, [2.5, 3])
    value = np.float32(0)
    for one in fitted.convert(kind=np.polynomial.Polynomial, domain=[-1, 1], window=[-1, 1]).coef[::-1]:
        value = (np.float32(one) + abs(x).astype(np.float64) * value).astype(np.float32)  # a fused multiply-add
    return np.asarray(x * np.float32(0.5) * (np.float32(1) + np.sign(x) * value))


LINE = (1, 1, 2000, 1)
OF_TERMS: list[tuple[str, Any, Formula, tuple[float, ...]]] = [
    (
        "Huber's slope relative to delta",
        Loss.problems["gradient"](Loss("huber", "none", delta=3.0), LINE),
        huber_by_minimum,
        (-0.01, 0.0),
    ),
    ("softsign by a quotient", Neuron.problems["gradient"](Neuron("softsign"), LINE), softsign_by_quotient, (0, 40, 1)),
    (
        "cross entropy by a logarithm",
        Loss.problems["forward"](Loss("sigmoidcrossentropy", "none"), LINE),
        cross_entropy_by_logarithm,
        (-9, -4, 0),
    ),
    ("GELU by polynomials", Neuron.problems["forward"](Neuron("gelu"), LINE), gelu_by_horner, (-3, -2.5)),
]
"""A rule, a problem, a formula whose terms cancel, and where: the limits of a range, and another input."""


@pytest.mark.parametrize(("rule", "problem", "formula", "given"), OF_TERMS, ids=[one[0] for one in OF_TERMS])
def test_a_rule_for_terms_that_cancel(rule: str, problem: Any, formula: Formula, given: tuple[float, ...]) -> None:
    low, high, *others = given
    numbers = {"x": np.linspace(low, high, 2000), "y": np.linspace(low, high, 2000), "g": np.ones(2000)}
    numbers |= {"t": np.full(2000, *(others or [0]))}
    inputs = [numbers[name].reshape(LINE).astype(np.float32) for name in problem.input_shapes]
    (right,) = references(problem, *inputs)
    with np.errstate(all="ignore"):
        found = formula(problem, *inputs)
    limits = []
    for following in ((), (rule,)):
        with rules.applied(following):
            (bound,) = rules.widened(problem, tuple(inputs), problem.operation.bounds(problem, *inputs))
        limits.append(comparator.bound(found, right, bound))
    error = abs(found.astype(np.float64) - right)
    assert (error > limits[0]).any()
    assert (error <= limits[1]).all()
    assert (abs(right) * 2.0**-6 > limits[1]).any()


def test_bounds_are_computed_once_for_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.parse("Convolution.forward:n1h5w5c2,k3x3,co2,out3x3,float32,seed=1")
    calls = []
    bounds = Operation.bounds
    monkeypatch.setattr(Operation, "bounds", lambda *given: calls.append(1) or bounds(*given))
    inputs = tuple(one.astype(np.float64) for one in case.inputs())
    with rules.applied(("flushes subnormals", "transformed convolutions", "TF32 convolutions")):
        (plain,) = case.problem.operation.bounds(case.problem, *inputs)
        (wide,) = rules.widened(case.problem, inputs, (plain,))
    assert len(calls) == 1
    assert (wide.limit > plain.limit).all()


def by_product(problem: Any, g: Array, mask: Array) -> Array:
    return g * mask.astype(g.dtype) * problem.spec.scale


def relu_of_infinity(problem: Any, x: Array) -> Array:
    """0 * -inf is 0."""
    (y,) = references(problem, x)
    return np.where(np.isneginf(x) & (problem.spec.type == "relu"), 0, y)


def ties_shared(problem: Any, g: Array, x: Array) -> Array:
    """Equal maxima get equal parts."""
    dx = np.zeros(problem.source_shape)
    (py, px), (rows, columns) = problem.primary_offset, problem.included
    for a, b in itertools.product(rows, columns):
        _, (ys, _), (xs, _) = window_of(problem, x, a, b)
        pixels = sorted({(y, x_) if min(y, x_) >= 0 else (-1, -1) for y, x_ in itertools.product(ys, xs)})
        values = np.stack([x[:, y, x_] if y >= 0 else np.zeros_like(x[:, 0, 0]) for y, x_ in pixels])
        tied = values == values.max(axis=0)
        for (y, x_), share in zip(pixels, tied / tied.sum(axis=0), strict=True):
            if y >= 0:
                dx[:, y, x_] += g[:, py + a, px + b] * share
    return np.asarray(problem.place(dx))


def softmax_again(problem: Any, g: Array, y: Array) -> Array:
    """The softmax of the logarithm of y, in float32, with an error of 4 units."""
    with np.errstate(divide="ignore"):
        e = np.exp(np.log(y.astype(np.float32)))
    p = e / e.sum(axis=3, keepdims=True) * np.float32(1 + 2.0**-21)
    return np.asarray(p * (g - (g * p).sum(axis=3, keepdims=True)))


def folded_sums(problem: Any, *inputs: Array) -> tuple[Array, Array]:
    """Sums of g and of g x in float32, one after the other."""
    dbeta, dgamma = references(problem, *inputs)
    given = problem.named(inputs)
    if problem.count or problem.spec.neuron is not None:
        return dbeta, dgamma
    r = (1 / np.sqrt(given.variance.astype(np.float64) + problem.spec.epsilon)).astype(np.float32)
    of_g, of_gx = (
        np.add.accumulate(one.astype(np.float32).reshape(-1, len(r)), dtype=np.float32)[-1]
        for one in (given.g, given.g * given.x)
    )
    return dbeta, (of_gx - given.mean.astype(np.float32) * of_g) * r


def without_small_probabilities(problem: Any, *inputs: Array) -> Array:
    (y,) = references(problem, *inputs)
    return np.where(y < 2.0**-125, 0, y)


def in_float16(problem: Any, *inputs: Array) -> Any:
    """Each step in float16; a factor or a bias of MPS is float32."""
    halves = [one.astype(np.float16) for one in inputs]
    return problem.operation.formula(problem, *halves)


def fully_connected_in_float16(problem: Any, x: Array, weights: Array, *biases: Array) -> Array:
    """The bias, the sum and the result are rounded."""
    if problem.spec.neuron is not None:
        return references(problem, x, weights, *biases)[0]
    (y,) = references(replace(problem, biased=False), x, weights)
    return y.astype(np.float16) + (biases[0].astype(np.float16) if biases else np.float16(0))


def by_numpy(problem: Any, x: Array) -> Array:
    """NaN is the extremum."""
    spec, axes = problem.spec, AXES[problem.spec.over]
    function = getattr(np, spec.operation.replace("ument", ""))
    found: Array = function(problem.part(x), axis=axes if axes[1:] else axes[0], keepdims=True)
    return found if spec.operation.startswith("arg") else found * np.float32(spec.weight)


def maxima_by_numpy(problem: Any, x: Array) -> Array:
    """NaN is the extremum."""
    y = np.zeros(problem.result_shapes[0], x.dtype)
    for a, b in np.ndindex(*problem.output_size):
        y[:, a, b] = window_of(problem, x, a, b)[0].max(axis=1)
    return y


def to_nan(problem: Any, g: Array, x: Array) -> Array:
    """A NaN receives the gradient, as an infinity does."""
    return references(problem, g, np.where(np.isnan(x), np.float32(np.inf), x))[0]


TURNS = itertools.cycle((-np.inf, np.inf))


def other_bits(problem: Any, *inputs: Array) -> Array:
    """What is rounded is so in turn down and up."""
    (exact,) = references(problem, *inputs)
    nearest = exact.astype(np.float32)
    return np.where(nearest == exact, nearest, np.nextafter(nearest, np.float32(next(TURNS))))


NAN = "NaN by another formula"
HALF = "float16 arithmetic"

MISTAKES: list[tuple[str, str, Formula]] = [
    ("slope at a kink", "Neuron.gradient", relu_at_0),
    ("slope at a kink", "Arithmetic.gradient", clamp_inclusive),
    ("slope from the result", "Neuron.gradient", sigmoid_slope),
    ("slope from the result", "Neuron.gradient", tanh_slope),
    ("folded scale and shift", "BatchNormalization.forward", folded),
    ("plain sums", "BatchNormalization.statistics", plain_sums),
    ("folded sums", "BatchNormalization.statistics_gradient", folded_sums),
    ("small probabilities are 0", "SoftMax.forward", without_small_probabilities),
    ("softmax recomputed", "SoftMax.gradient", softmax_again),
    ("rounded means", "InstanceNormalization.forward", mean_rounded),
    ("variance from squares", "GroupNormalization.forward", from_squares),
    ("TF32 convolutions", "Convolution.forward", in_tf32),
    ("TF32 products", "FullyConnected.gradient_weights", in_tf32),
    ("transformed convolutions", "ConvolutionTranspose.forward", by_transform),
    ("cross entropy relative to 1", "Loss.gradient", cross_entropy_of_one),
    ("zeros by products", "Dropout.gradient", by_product),
    ("atomic sums", "UpsamplingBilinear.gradient", other_bits),
    ("NaN is the extremum", "Reduce.forward", by_numpy),
    ("NaN is the extremum", "PoolingMax.forward", maxima_by_numpy),
    ("NaN is the extremum", "PoolingMax.gradient", to_nan),
    ("NaN by another formula", "Neuron.forward", relu_of_infinity),
    (HALF, "FullyConnected.forward", fully_connected_in_float16),
    (HALF, "Neuron.forward", in_float16),
    (HALF, "PoolingAverage.gradient", in_float16),
]

IN_FLOAT16 = [formula for rule, _, formula in MISTAKES if rule == HALF]


def backend(name: str, formula: Formula, following: tuple[str, ...]) -> Backend:
    def run(problem: Any, *inputs: Array, out: Any) -> None:
        results = formula(problem, *inputs)
        outs = out if isinstance(out, tuple) else (out,)
        for target, result in zip(outs, results if isinstance(results, tuple) else (results,), strict=True):
            target[...] = result

    dtypes = ("float16" if HALF in following or formula in IN_FLOAT16 else "float32",)
    return Backend("ruled", {operation_named(name): run}, dtypes=dtypes, rules=following)


def fails(backend: Backend, operation: Operation) -> bool:
    """Whether a case of a check fails, which is not made smaller."""
    random, layers = checked_cases(operation, backend.dtypes, 30, 0), (case for _, case in layer_cases(operation))
    cases = itertools.chain(random, (case for case in layers if case.dtype in backend.dtypes))
    return any(outcome_of(case, backend).status == "failed" for case in cases)


@pytest.mark.parametrize(("rule", "name", "formula"), MISTAKES, ids=[f"{r}-{n}-{f.__name__}" for r, n, f in MISTAKES])
def test_a_rule_allows_what_it_is_about(rule: str, name: str, formula: Formula) -> None:
    operation = operation_named(name)
    assert fails(backend(name, formula, ()), operation)
    following = tuple(dict.fromkeys((rule, NAN)))
    (ruled,) = check([backend(name, formula, following)], [operation], number=30).rows
    assert ruled.status == "passed", ruled.failures
    assert rule in ruled.rules


def test_plain_sums_of_gradients_are_allowed_and_no_more() -> None:
    case = Case.parse("BatchNormalization.statistics_gradient:n1h32770w1c2,eps0.001,float32,hard,seed=7")
    name = "BatchNormalization.statistics_gradient"

    def plain_gradient_sums(problem: Any, *inputs: Array) -> tuple[Array, Array]:
        dbeta, dgamma = references(problem, *inputs)
        return np.add.accumulate(inputs[0].reshape(-1, len(dbeta)), dtype=np.float32)[-1], dgamma

    def twice_as_much(problem: Any, *inputs: Array) -> tuple[Array, Array]:
        dbeta, dgamma = references(problem, *inputs)
        return dbeta + 2 * gamma(problem.pixels) * abs(inputs[0].astype(np.float64)).sum(axis=(0, 1, 2)), dgamma

    for formula, following, status in (
        (plain_gradient_sums, ("plain sums",), "passed"),
        (plain_gradient_sums, (), "failed"),
        (twice_as_much, ("plain sums",), "failed"),
    ):
        assert run_case(case, backend(name, formula, following)).status == status


@pytest.mark.parametrize(("rule", "name"), sorted({(rule, name) for rule, name, _ in MISTAKES}))
def test_a_rule_allows_nothing_else(rule: str, name: str) -> None:
    def wrong(problem: Any, *inputs: Array) -> Any:
        return tuple(result * (1 + 2.0**-6) for result in references(problem, *inputs))

    assert fails(backend(name, wrong, (rule,)), operation_named(name))


@pytest.mark.parametrize(
    ("name", "kind", "units"),
    [
        ("Neuron.forward", "exponential", 8),
        ("Neuron.forward", "logarithm", 15),
        ("Neuron.forward", "tanh", 10),
        ("Neuron.forward", "power", 32),
        ("CrossChannelNormalization.forward", "", 32),
        ("SoftMax.forward", "", 24),
    ],
)
def test_functions_as_in_metal_are_wrong_where_more_accurate_ones_are_stated(name: str, kind: str, units: int) -> None:
    operation = operation_named(name)

    def run(problem: Any, *inputs: Array) -> Array:
        (y,) = references(problem, *inputs)
        return y * (1 + units * UNIT_ROUNDOFF * (not kind or problem.spec.type == kind))

    wide, tight = (
        {run_case(case, backend(name, run, following)).status for case in random_cases(operation, ("float32",), 60, 0)}
        for following in ((), (rules.ACCURATE,))
    )
    assert "failed" not in wide
    assert "failed" in tight


def test_another_value_at_another_place_is_wrong() -> None:
    name = "Neuron.gradient"
    assert fails(backend(name, relu_at_1, ("slope at a kink",)), operation_named(name))


TIES = [
    f"PoolingMax.gradient:{problem},float32,hard,seed={seed}"
    for problem in ("n2h4w5c2,k3x3,s2x2,clamp", "n1h3w2c2,k4x5,s1x1,o2x1,clamp", "n1h4w4c2,k2x3", "n1h4w4c2,k2x2,d2x1")
    for seed in (8192, 28688)
]


@pytest.mark.parametrize("case", TIES)
def test_ties_may_be_shared_but_nothing_else(case: str) -> None:
    def wrong(problem: Any, g: Array, x: Array) -> Array:
        return ties_shared(problem, g, x) * (1 + 2.0**-6)

    following = ("ties shared",)
    assert run_case(Case.parse(case), backend("PoolingMax.gradient", ties_shared, ())).status == "failed"
    outcome = run_case(Case.parse(case), backend("PoolingMax.gradient", ties_shared, following))
    assert outcome.status == "passed", outcome.message
    assert run_case(Case.parse(case), backend("PoolingMax.gradient", wrong, following)).status == "failed"


def last_of_ties(problem: Any, g: Array, x: Array) -> Array:
    """The gradient of a window goes to the last of its equal maxima."""
    dx = np.zeros(problem.source_shape)
    for a, b in np.ndindex(*problem.gradient_size):
        values, (ys, _), (xs, _) = window_of(problem, x, a, b)
        last = values.shape[1] - 1 - values[:, ::-1].argmax(axis=1)
        for n, c in np.ndindex(*last.shape):
            y, u = ys[last[n, c] // len(xs)], xs[last[n, c] % len(xs)]
            if y >= 0 and u >= 0:
                dx[n, y, u, c] += g[n, a, b, c]
    return dx


@pytest.mark.parametrize("case", TIES)
def test_any_of_equal_maxima_may_be_chosen_but_nothing_else(case: str) -> None:
    def wrong(problem: Any, g: Array, x: Array) -> Array:
        return last_of_ties(problem, g, x) * 1.5 + 1

    following = ("another of equal maxima",)
    assert run_case(Case.parse(case), backend("PoolingMax.gradient", last_of_ties, ())).status == "failed"
    outcome = run_case(Case.parse(case), backend("PoolingMax.gradient", last_of_ties, following))
    assert outcome.status == "passed", outcome.message
    assert run_case(Case.parse(case), backend("PoolingMax.gradient", wrong, following)).status == "failed"


@pytest.mark.parametrize("method", ["forward", "gradient"])
def test_a_mean_of_seven_equal_values_may_be_rounded_but_nothing_else(method: str) -> None:
    def wrong(problem: Any, *inputs: Array) -> Array:
        return mean_of_taps(problem, *inputs) * np.float32(1 + 2.0**-20)

    name, following = f"PoolingAverage.{method}", ("means of all taps",)
    case = Case.parse(f"{name}:n1h1w1c1,k1x7,clamp,float32,exact,seed=4096")
    assert run_case(case, backend(name, mean_of_taps, ())).status == "failed"
    outcome = run_case(case, backend(name, mean_of_taps, following))
    assert outcome.status == "passed", outcome.message
    assert run_case(case, backend(name, wrong, following)).status == "failed"
    even = replace(case, problem=replace(case.problem, spec=replace(case.problem.spec, kernel_size=(1, 8))))
    nearly = lambda problem, *inputs: references(problem, *inputs)[0] * (1 + 2.0**-23)  # noqa: E731
    assert run_case(even, backend(name, nearly, following)).status == "failed", "means of 8 values are exact"


def test_a_kink_of_the_argument() -> None:
    """At x = 2, 0.25 x + 0.5 is 1, and is also rounded to 1 at the next number."""
    problem = Neuron.problems["gradient"](Neuron("hardsigmoid", a=0.25, b=0.5), (1, 1, 1, 4))
    x = np.array([2, -2, 1.5, 2.5]).reshape(1, 1, 1, 4)
    extra = RULES["slope at a kink"].extra
    assert extra is not None
    assert extra(problem, (np.ones_like(x), x))[0].ravel().tolist() == [0.25, 0.25, 0, 0]


@pytest.mark.parametrize("a", [0.125, -0.125])
def test_two_kinks_at_0(a: float) -> None:
    """The slope of ReLUN below x = 0 counts, although the value at the next number is at the bound of 0, or above."""
    problem = Neuron.problems["gradient"](Neuron("relun", a=a, b=0.0), (1, 1, 1, 1))
    extra = RULES["slope at a kink"].extra
    assert extra is not None
    assert extra(problem, (np.full((1, 1, 1, 1), -2.0), np.zeros((1, 1, 1, 1))))[0].item() == 0.25


def test_a_variance_that_cancels_enlarges_what_folding_rounds() -> None:
    """With the scale of a variance of 0, in float32 a x + b is further from the reference than the scale makes it."""
    spec = GroupNormalization()
    problem = spec.problems["forward"](spec, (1, 1, 2, 2), scaled=False, shifted=False)
    x = np.array([127.875, 128, 127.875, 128], np.float32).reshape(1, 1, 2, 2)
    scale = np.float32(1 / np.sqrt(spec.epsilon)) * np.float32(1.0001)
    folded = x * scale - x.mean(dtype=np.float32) * scale
    given = (x.astype(np.float64),)
    allowed = sum(RULES[name].extra(problem, given)[0] for name in ("folded scale and shift", "variance from squares"))  # type: ignore[misc]
    assert (abs(folded - references(problem, x)[0]) <= allowed).all()


@pytest.mark.parametrize(("box", "edge"), [((0, 0, 0, 0), []), ((0, 1e-12, 0, 1.5), [0, 2]), ((0, 0.25, 0, 1), [3])])
def test_a_position_at_the_edge_may_be_outside(box: tuple[float, ...], edge: list[int]) -> None:
    problem = CropAndResizeBilinear.problems["forward"](CropAndResizeBilinear((1, 4), box), (1, 1, 2, 1))
    extra = RULES["rounded positions"].extra
    assert extra is not None
    (allowed,) = extra(problem, (np.ones((1, 1, 2, 1)),))
    assert np.flatnonzero(allowed.ravel() >= 1).tolist() == edge


def test_positions_move_weight_within_an_image() -> None:
    problem = ResizeBilinear.problems["forward"](ResizeBilinear((3, 3)), (2, 2, 2, 2))
    x = np.ones((2, 2, 2, 2)) * np.array([1, 1000]).reshape(2, 1, 1, 1) * np.array([1, 16])
    extra = RULES["rounded positions"].extra
    assert extra is not None
    (allowed,) = extra(problem, (x,))
    np.testing.assert_allclose(allowed, allowed[:1, :, :, :1] * x[:, :1, :1], rtol=1e-12)
    assert allowed[0, 0, 0, 0] == 0, "the first position is exact"
    np.testing.assert_allclose(allowed[0, 1:, 0, 0] / gamma(8), [4 / 3, 8 / 3])


def test_small_results_of_a_fused_sigmoid_may_be_0() -> None:
    name = "BatchNormalization.forward"
    case = Case.parse(f"{name}:n1h1w1c2,eps0.001,neuron:sigmoid,gamma,float32,exact,seed=64")  # 4e-42 is among them
    status = [
        run_case(case, backend(name, without_small_probabilities, following)).status
        for following in ((), ("small probabilities are 0",))
    ]
    assert status == ["failed", "passed"]


def test_rules_end_with_the_case() -> None:
    case = Case.parse("Neuron.gradient:n1h1w1c4,relu,a0.5,float32,exact,seed=3")
    run_case(case, backend("Neuron.gradient", relu_at_0, ("slope at a kink",)))
    assert rules.current(case.problem.operation) == ()


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="rules"):
        check([backend("Neuron.gradient", relu_at_0, ("anything goes",))], [operation_named("Neuron.gradient")], 1)


@pytest.mark.parametrize("name", list(RULES))
def test_rules_are_described(name: str) -> None:
    rule = RULES[name]
    assert rule.about.endswith(".")
    assert rule.operations
    assert rule.extra or rule.without or name == rules.ACCURATE
