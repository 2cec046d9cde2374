"""Tests of neurons: random parameters, values at kinks, sums over pixels."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator, rules, runner
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.golden_entries import Adapter, Comparison, Entry, Values
from mpsref.conformance.layer import Layer
from mpsref.conformance.mutants import (
    LAYOUT_MUTANTS,
    MutantTable,
    OtherField,
    computed,
    of_problem,
    of_result,
    with_spec,
)
from mpsref.conformance.properties import one_image_at_a_time, repeatable, same
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.strategies import seldom
from mpsref.kernels.neuron import TYPES, Neuron, NeuronForward, NeuronGradient, slope, value
from mpsref.kernels.reference import FAR, ErrorBound
from mpsref.registry import Backend, Implementation, Problem

# --- strategies -------------------------------------------------------------------------------------------------------


def _eighths(low: int, high: int) -> st.SearchStrategy[float]:
    """Draw numbers that float32 represents exactly, so that kinks are exactly where they are computed."""
    return st.integers(low, high).map(lambda k: k / 8)


def _floats() -> st.SearchStrategy[float]:
    return _eighths(-16, 16) | seldom(0.5, st.floats(-2, 2, width=32).map(lambda v: v if abs(v) > 2**-10 else 0.25))


_FACTORS = _eighths(2, 16).flatmap(lambda a: st.sampled_from([a, -a]))
"""Neither tiny nor zero: an argument is divided by them to find its x."""

_PARAMETERS: Mapping[str, dict[str, st.SearchStrategy[object]]] = {
    "relu": {"a": st.just(0.0) | _floats()},
    "linear": {"a": _floats(), "b": _floats()},
    "hardsigmoid": {"a": st.none() | _eighths(-8, 8) | _floats(), "b": st.none() | _eighths(0, 8)},
    "tanh": {"a": _floats(), "b": _floats()},
    "softplus": {"a": _floats(), "b": _floats()},
    "elu": {"a": _floats()},
    "relun": {"a": _floats(), "b": st.integers(-4, 6) | _floats()},
    "power": {
        "a": _FACTORS,
        "b": _eighths(-16, 16),
        "c": st.sampled_from([2.0, 3.0, 0.5, 1.5, 4.0, -1.0, 0.0, 1.0, -0.5, -2.0]),
    },
    "exponential": {"a": _eighths(-8, 8), "b": _eighths(-8, 8), "c": st.sampled_from([-1.0, 2.0, 0.5, 1.0, 2.5])},
    "logarithm": {"a": _FACTORS, "b": _eighths(-16, 16), "c": st.sampled_from([-1.0, 2.0, 0.5, 10.0])},
}


@cache  # Hypothesis examines every new strategy
def specs(kind: str, channels: int) -> st.SearchStrategy[Neuron]:
    """Draw parameters of one type, for images of this number of channels."""
    if kind == "prelu":
        return st.builds(Neuron, st.just(kind), data=st.lists(_floats(), min_size=channels, max_size=channels))
    return st.builds(Neuron, st.just(kind), **_PARAMETERS.get(kind, {}))


def problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation."""
    kinds = st.just("prelu") if method == "parameter_gradient" else st.sampled_from(TYPES)
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
    return st.tuples(kinds, shapes).flatmap(
        lambda drawn: st.builds(Neuron.problems[method], specs(drawn[0], drawn[1][3]), st.just(drawn[1]))
    )


# --- properties -------------------------------------------------------------------------------------------------------

PANEL = (
    *(Neuron(kind) for kind in ("none", "sigmoid", "absolute", "softsign", "gelu")),
    *(
        Neuron("relu"),
        Neuron("relu", a=0.25),
        Neuron("relu", a=-0.25),
        Neuron("elu", a=0.5),
        Neuron("prelu", data=(0.25, -0.5, 2.0)),
    ),
    *(Neuron("linear", a=2, b=1), Neuron("tanh", a=1.5, b=0.5), Neuron("softplus", a=0.5, b=2)),
    *(Neuron("hardsigmoid", a=0.25, b=0.5), Neuron("hardsigmoid", a=-0.5, b=1)),
    *(Neuron("relun", a=0.25, b=2), Neuron("relun", a=-0.5, b=1), Neuron("relun", a=1, b=-2)),
    *(Neuron("power", a=1, b=0.25, c=c) for c in (-1, 0, 2, 3)),
    *(Neuron("power", a=0.5, b=4.25, c=c) for c in (0.5, 1.5)),
    *(Neuron("exponential", a=0.5, b=0.25, c=c) for c in (-1, 2)),
    *(Neuron("logarithm", a=1, b=8.5, c=c) for c in (-1, 2)),
)
"""Neurons of every type with exact parameters, whose kinks are among the points of the property ``table``."""

POINTS = np.array([0, -0.0, 1, -1, 2, -2, 4, -4, 0.5, -0.5, 3, -3, 8, -8, 0.75, -0.125], np.float32)

FAR_POINTS = np.array([FAR, -FAR], np.float32)
"""Further points of types whose values and slopes are numbers there."""


def table(case: Case, backend: Backend) -> None:
    """Three neurons of the panel, chosen by the case, agree at all points, at kinks exactly.

    A case has one type only; without this property the cases of a check would leave some types out.
    """
    first = zlib.crc32(str(case).encode())
    for k in range(3):
        neuron = PANEL[(first + 9 * k) % len(PANEL)]
        points = POINTS if neuron.type in ("power", "exponential", "logarithm") else np.append(POINTS, FAR_POINTS)
        x = np.repeat(points, 3).reshape(1, 1, -1, 3).astype(case.dtype)
        inputs = (x,) if case.problem.method == "forward" else (np.ones_like(x), x)
        problem = Neuron.problems[case.problem.method](neuron, x.shape)
        (found,) = compute(problem, backend, *inputs)
        (reference,) = runner.references(problem, *inputs)
        with rules.applied(()):
            (bound,) = runner.terms(problem, *inputs)
        (bound,) = rules.widened(problem, inputs, (_of_exact_argument(neuron, bound, reference),))
        try:
            comparator.check(found, reference, bound, case.dtype)
        except Mismatch as mismatch:
            index = mismatch.index or (0, 0, 0, 0)
            raise Mismatch(f"table: {neuron} at x = {x[index]}: {mismatch}") from None


def _of_exact_argument(neuron: Neuron, bound: ErrorBound, reference: Array) -> ErrorBound:
    """Return the bound without its allowance for a jump at a kink: here every argument is exact."""
    kinked = ("relu", "prelu", "elu", "absolute", "relun", "hardsigmoid")
    return ErrorBound(abs(reference) * 2.0**-20) if neuron.type in kinked else bound


def linear_in_g(case: Case, backend: Backend) -> None:
    """Twice the source gradient gives twice the gradient."""
    g, x = case.inputs()
    (once,), (twice,) = compute(case.problem, backend, g, x), compute(case.problem, backend, 2 * g, x)
    bound = expected(case)[0][1]
    same("linear in g", 2 * once, twice, bound.times(2))


def images_add_up(case: Case, backend: Backend) -> None:
    """The gradients for the slopes of the images add up to that of the batch."""
    problem = case.of(NeuronGradient)
    n, height, width, c = problem.source_shape
    g, x = case.inputs()
    one = replace(problem, source_shape=(1, height, width, c))
    (whole,) = compute(problem, backend, g, x)
    singles = [compute(one, backend, g[k : k + 1], x[k : k + 1])[0].astype(np.float64) for k in range(n)]
    same("images add up", whole, np.sum(singles, 0).astype(whole.dtype), expected(case)[0][1])


# --- mutants ----------------------------------------------------------------------------------------------------------


def _of_type(kinds: str, formula: Callable[[Neuron, Array], Array]) -> Implementation:
    """Compute ``formula(neuron, x)`` as the value, or as the slope, of some types; the others are correct."""

    def change(result: Array, problem: NeuronForward | NeuronGradient, *inputs: Array) -> Array | None:
        if problem.spec.type not in kinds.split():
            return None
        *g, x = inputs
        found = formula(problem.spec, x)
        return g[0] * found if g else found

    return of_result(change)


def _with(kinds: str, **changes: OtherField) -> Implementation:
    """Compute with other parameters for some types."""
    change = with_spec(**changes)
    return of_problem(lambda problem: change(problem) if problem.spec.type in kinds.split() else problem)


_PARAMETER_MUTANTS: MutantTable = {
    "a is ignored": _with("relu linear tanh softplus elu exponential", a=lambda spec: 1.0),
    "b is ignored": _with(
        "linear hardsigmoid exponential tanh softplus", b=lambda spec: float(spec.type in ("tanh", "softplus"))
    ),
    "a and b are swapped": _with(
        "linear tanh softplus hardsigmoid", a=lambda spec: spec.b, b=lambda spec: spec.a
    ),
    "the base c is ignored": _with("exponential logarithm", c=lambda spec: -1.0),
    "c = -1 means base 2": _with("exponential logarithm", c=lambda spec: 2.0 if spec.c == -1 else spec.c),
    "every channel takes the first slope": _with("prelu", data=lambda spec: (spec.data[0],) * len(spec.data)),
}  # fmt: skip


def _relu(n: Neuron, x: Array) -> Array:
    return np.where(x >= 0, x, n.a * x)


def _tanh_gelu(n: Neuron, x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _slope_below_at_zero(n: Neuron, x: Array) -> Array:
    a: float | Array = n.a if n.data is None else np.array(n.data)
    return np.where(x > 0, 1.0, a * np.exp(np.minimum(x, 0)) if n.type == "elu" else a)


def _printed_gelu_slope(n: Neuron, x: Array) -> Array:
    """Return Apple's formula, read literally: brackets are missing, and its second term is twice the correct one."""
    return slope(n, x) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


MUTANTS = {
    (Neuron, "forward"): {
        **_PARAMETER_MUTANTS,
        "ReLU of a NaN is 0": _of_type("relu prelu", lambda n, x: np.where(np.isnan(x), 0, value(n, x))),
        "a NaN is clamped to a bound": _of_type(
            "relun hardsigmoid", lambda n, x: np.where(np.isnan(x), n.b if n.type == "relun" else 0, value(n, x))
        ),
        "GELU is approximated by tanh": _of_type("gelu", _tanh_gelu),
        "ELU subtracts 1 after the product with a": _of_type(
            "elu", lambda n, x: np.where(x >= 0, x, n.a * np.exp(np.minimum(x, 0)) - 1)
        ),
        "ReLUN is not clamped": _of_type("relun", _relu),
        "hard sigmoid goes down to -1": _of_type("hardsigmoid", lambda n, x: np.clip(n.a * x + n.b, -1, 1)),
        "softsign squares x in place of its magnitude": _of_type("softsign", lambda n, x: x / (1 + x * x)),
        "softplus adds a": _of_type("softplus", lambda n, x: n.a + np.log1p(np.exp(n.b * x))),
        "a power keeps the sign": _of_type("power", lambda n, x: np.sign(n.a * x + n.b) * abs(n.a * x + n.b) ** n.c),
        "sigmoid has twice the argument": _of_type("sigmoid", lambda n, x: 0.5 + 0.5 * np.tanh(x)),
    },
    (Neuron, "gradient"): {
        **_PARAMETER_MUTANTS,
        "the slope at a NaN is that for negative numbers": _of_type(
            "relu prelu", lambda n, x: np.where(np.isnan(x), n.a, slope(n, x))
        ),
        "the slope at 0 is that for negative numbers": _of_type("relu prelu elu", _slope_below_at_zero),
        "the slope of the magnitude at 0 is 1": _of_type("absolute", lambda n, x: np.where(x >= 0, 1.0, -1.0)),
        "ReLUN has the slope b above its clamp": _of_type(
            "relun", lambda n, x: np.where(_relu(n, x) >= n.b, n.b, np.where(x >= 0, 1.0, n.a))
        ),
        "ReLUN still rises at its clamp": _of_type(
            "relun", lambda n, x: np.where(_relu(n, x) > n.b, 0.0, np.where(x >= 0, 1.0, n.a))
        ),
        "hard sigmoid is flat at its ends": _of_type(
            "hardsigmoid", lambda n, x: np.where((n.a * x + n.b > 0) & (n.a * x + n.b < 1), n.a, 0.0)
        ),
        "the slope of GELU is the formula that Apple prints": _of_type("gelu", _printed_gelu_slope),
        "the slope is computed from x as if it were the result": _of_type(
            "sigmoid tanh", lambda n, x: n.a * n.b - x * x if n.a else x * (1 - x)
        ),
        "the factor b of the chain rule is missing": _of_type(
            "tanh softplus", lambda n, x: np.where(n.b == 0, 0.0, slope(n, x) / (n.b or 1.0))
        ),
        "the factor 1 / ln(c) of a logarithm is missing": _with("logarithm", c=lambda spec: -1.0),
        "the factor c of a power is missing": _of_type("power", lambda n, x: n.a * (n.a * x + n.b) ** (n.c - 1)),
        "the slope of softsign is not squared": _of_type("softsign", lambda n, x: 1 / (1 + abs(x))),
    },
    (Neuron, "parameter_gradient"): {
        "only the first image counts": computed(
            lambda problem, g, x: np.where(x[:1] < 0, g[:1] * x[:1], 0).sum((0, 1, 2))
        ),
        "a NaN in x does not count": computed(lambda problem, g, x: np.where(x < 0, g * x, 0).sum((0, 1, 2))),
        "the sum is over all channels": of_result(lambda result, *_: np.full_like(result, result.sum())),
    },
}

# --- golden results ---------------------------------------------------------------------------------------------------

SOURCE_SHAPE = 1, 12, 12, 4
"""Where a relation names no image size."""


def _golden_neuron(entry: Entry) -> Neuron:
    parameters = {name: value for name, value in entry.parameters.items() if name not in ("neuron_type", "alpha")}
    return Neuron(str(entry.parameters["neuron_type"]).lower(), **parameters)


def _golden_images(relations: Mapping[Neuron, Callable[[Array], Array]]) -> Adapter:
    """Return the adapter of a neuron class, forward; ``relations`` are the CPU functions of some neurons."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        if entry.kind != "relation":
            y = _golden_neuron(entry).forward(entry.image("x"), backend=backend)
            yield Comparison("y", y, entry.expected["y"])
            return
        for case, draw in entry.cases():
            shape = tuple(
                case.get("shape") or (1, *(case.get(k, n) for k, n in zip("hwc", SOURCE_SHAPE[1:], strict=True)))
            )
            x = draw(shape).astype(entry.dtype or "float32")
            for neuron, on_cpu in relations.items():
                y = neuron.forward(x, backend=backend)
                yield Comparison(f"{neuron}: y", y, Values.all_given(on_cpu(x.astype(np.float64))))

    return adapter


def _matrix_argument(entry: Entry) -> Array:
    """Return ``alpha*x + bias``, the argument of the function of a matrix neuron."""
    bias = entry.inputs["bias"].array if "bias" in entry.inputs else 0.0
    return np.asarray(entry.parameters["alpha"] * entry.inputs["x"].array + bias, entry.dtype or "float32")


def _golden_matrix(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare ``MPSMatrixNeuron``: y = f(alpha*x + bias)."""
    y = _golden_neuron(entry).forward(_matrix_argument(entry), backend=backend)
    yield Comparison("y", y, entry.expected["y"])


def _golden_matrix_gradient(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare ``MPSMatrixNeuronGradient``: dx = alpha * g * f'(u), and the sum of g * f'(u) over the rows."""
    slopes = _golden_neuron(entry).gradient(entry.image("g"), _matrix_argument(entry), backend=backend)
    found = {"dx": entry.parameters["alpha"] * slopes, "dbias": slopes.sum((0, 1, 2))}
    for name, values in entry.expected.items():
        yield Comparison(name, found[name].astype(slopes.dtype), values)


def _leaky(a: float) -> Callable[[Array], Array]:
    return lambda x: np.where(x < 0, a * x, x)


_RELATIONS: Mapping[str, Mapping[Neuron, Callable[[Array], Array]]] = {
    "ReLU": {Neuron("relu", a=a): _leaky(a) for a in (0.0, -0.0125, 0.025)},
    "TanH": {Neuron("tanh"): np.tanh},
    "Sigmoid": {Neuron("sigmoid"): lambda x: 0.5 * (1 + np.tanh(0.5 * x))},
    "HardSigmoid": {Neuron("hardsigmoid", a=1 / 6, b=0.5): lambda x: np.clip(x / 6 + 0.5, 0, 1)},
}

GOLDEN: dict[str, Adapter] = {
    **{f"MPSCNNNeuron{kind}": _golden_images(_RELATIONS.get(kind, {})) for kind in ("Absolute", "Linear", *_RELATIONS)},
    "MPSMatrixNeuron": _golden_matrix,
    "MPSMatrixNeuronGradient": _golden_matrix_gradient,
}

# --- layers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NeuronLayer(Layer):
    """A layer whose neuron may have a slope for each channel; only slopes have a gradient."""

    @classmethod
    def read(cls, *, slopes: int = 0, parameters: dict[str, Any], **row: Any) -> Self:  # type: ignore[override]
        """Return the layer of a row; ``slopes`` is the number of slopes, with values as learning may give them."""
        data = tuple(0.25 + 0.5 * (c % 7 - 3) / 8 for c in range(slopes))
        return super().read(parameters={**parameters, "data": data or None}, **row)

    @property
    def methods(self) -> tuple[str, ...]:
        """The operations that this layer has."""
        known = tuple(self.spec.problems)
        return known if isinstance(self.spec, Neuron) and self.spec.data else known[:2]

    def _fitted(self, changed: Self) -> Self:
        spec = self.spec
        if isinstance(spec, Neuron) and spec.data:
            slopes = (*itertools.islice(itertools.cycle(spec.data), changed.source_shape[3]),)
            return replace(changed, spec=replace(spec, data=slopes))
        return changed


FAMILY = Family(
    "neuron",
    {
        Neuron: KernelTests(
            problems,
            {
                "forward": (repeatable, one_image_at_a_time, table),
                "gradient": (repeatable, one_image_at_a_time, table, linear_in_g),
                "parameter_gradient": (repeatable, images_add_up),
            },
            {"parameter_gradient": LAYOUT_MUTANTS},
            nonfinite=("forward", "gradient", "parameter_gradient"),
        )
    },
    MUTANTS,
    GOLDEN,
    layer=NeuronLayer.read,
)
