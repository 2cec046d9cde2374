"""Tests of softmax and log-softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.conformance.case import Case
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.golden_entries import Adapter, Comparison, Entry, Values
from mpsref.conformance.mutants import MutantTable, computed
from mpsref.conformance.properties import near, one_image_at_a_time, repeatable, same
from mpsref.conformance.runner import compute, expected, terms
from mpsref.kernels import LogSoftMax, SoftMax
from mpsref.registry import Backend, Implementation, Problem, Spec

# --- strategies -------------------------------------------------------------------------------------------------------


def problems(spec_type: type[Spec], method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation; some pixels have more channels than a SIMD register has elements."""
    several = st.integers(2, 9)
    channels = several | several | st.integers(1, 70) | st.integers(1, 3)  # the gradient of a single one is 0
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), channels)
    return st.builds(spec_type.problems[method], st.just(spec_type()), shapes)


# --- properties -------------------------------------------------------------------------------------------------------


def _require_sum(name: str, values: Array, expected_sum: Array | float, limit: Array) -> None:
    """Require that the channels of each pixel sum to a number, within the sum of their error limits."""
    total, rounding = values.sum(3), 1e-12 * abs(values).sum(3)
    near(name, total, np.broadcast_to(expected_sum, total.shape), limit.sum(3) + rounding)


def sums_to_one(case: Case, backend: Backend) -> None:
    """The channels of a pixel sum to 1; those of log-softmax after exp."""
    (y,) = compute(case.problem, backend, *case.inputs())
    reference, bound = expected(case)[0]
    limit = comparator.bound(y, reference, bound)
    if isinstance(case.problem.spec, LogSoftMax):
        powers = np.exp(y.astype(np.float64))
        _require_sum("exp sums to one", powers, 1.0, powers * np.expm1(limit))
    else:
        _require_sum("sums to one", y.astype(np.float64), 1.0, limit)


def gradients_sum_to_zero(case: Case, backend: Backend) -> None:
    """The result does not depend on a constant added to a pixel: gradients sum to 0 as far as y sums to 1."""
    g, y = (array.astype(np.float64) for array in case.inputs())
    (dx,) = compute(case.problem, backend, *case.inputs())
    reference, bound = expected(case)[0]
    limit = comparator.bound(dx, reference, bound)
    if isinstance(case.problem.spec, LogSoftMax):
        lost = g.sum(3) * (1 - np.exp(y).sum(3))
    else:
        lost = (g * y).sum(3) * (1 - y.sum(3))
    _require_sum("gradients sum to zero", dx.astype(np.float64), lost, limit)


def shift_invariant(case: Case, backend: Backend) -> None:
    """A constant added to all channels of a pixel changes nothing, however large. Here the addition is exact."""
    (x,) = case.inputs()
    shift = x.dtype.type(64 if x.dtype == np.float16 else 2**16)
    x = np.round(16 * np.fmod(x, 8)) / x.dtype.type(16)
    (first,), (second,) = compute(case.problem, backend, x), compute(case.problem, backend, x + shift)
    same("shift invariant", first, second, terms(case.problem, x)[0])


PROPERTIES = {
    "forward": (repeatable, one_image_at_a_time, sums_to_one, shift_invariant),
    "gradient": (repeatable, one_image_at_a_time, gradients_sum_to_zero),
}

# --- mutants ----------------------------------------------------------------------------------------------------------


def _formula(compute: Callable[..., Array]) -> Implementation:
    """Compute another formula of the inputs."""
    return computed(lambda problem, *inputs: compute(*inputs))


def _sum(terms: Array) -> Array:
    return np.asarray(terms.sum(3, keepdims=True))


def _below(x: Array) -> Array:
    return np.asarray(x - x.max(3, keepdims=True))


def _with_padding_channels(x: Array) -> Array:
    """Return x with its channels filled up with zeros to a multiple of 4, as textures store them."""
    return np.pad(x, ((0, 0), (0, 0), (0, 0), (0, -x.shape[3] % 4)))


def _powers(x: Array) -> tuple[Array, Array]:
    """Return the exponentials, and their sum."""
    powers = np.exp(_below(x))
    return powers, _sum(powers)


def _without_nan(x: Array) -> tuple[Array, Array]:
    _, total = _powers(np.where(np.isnan(x), -np.inf, x))
    return np.exp(x - np.fmax.reduce(x, axis=3, keepdims=True)), total


def _forward(log: bool) -> MutantTable:
    def of(powers_and_total: Callable[[Array], tuple[Array, Array]]) -> Implementation:
        def formula(x: Array) -> Array:
            powers, total = powers_and_total(x)
            return np.asarray(np.log(powers) - np.log(total) if log else powers / total)

        return _formula(formula)

    return {
        "a NaN stays in its channel": of(_without_nan),
        "a pixel of negative infinities has equal channels": of(
            lambda x: _powers(np.where((x == -np.inf).all(3, keepdims=True), 0, x))
        ),
        "the base is 2": of(lambda x: (2.0 ** _below(x), _sum(2.0 ** _below(x)))),
        "the maximum is not subtracted, in float32": of(
            lambda x: (np.exp(x.astype(np.float32)), _sum(np.exp(x.astype(np.float32))))
        ),
        "padding channels are included in the sum": of(
            lambda x: (np.exp(_below(x)), _sum(np.exp(_below(_with_padding_channels(x)))))
        ),
        "the last channel is not counted": of(
            lambda x: (np.exp(_below(x)), np.maximum(_sum(np.exp(_below(x))[..., :-1]), 2.0**-20))
        ),
    }


def _maximum_and_logarithm_first(x: Array) -> Array:
    """Subtract the sum of the maximum and the logarithm, which loses the digits of the latter: fast math may do so."""
    largest = x.max(3, keepdims=True)
    return np.asarray(x - (largest + np.log(_sum(np.exp(x - largest)))).astype(np.float32))


MUTANTS = {
    (SoftMax, "forward"): _forward(log=False),
    (SoftMax, "gradient"): {
        "the mean is taken, not the sum": _formula(lambda g, y: y * (g - (g * y).mean(3, keepdims=True))),
        "the sum is of g, not of g * y": _formula(lambda g, y: y * (g - _sum(g))),
        "only the diagonal of the Jacobian counts": _formula(lambda g, y: g * y * (1 - y)),
    },
    (LogSoftMax, "forward"): {
        **_forward(log=True),
        "maximum and logarithm are added first": _formula(_maximum_and_logarithm_first),
    },
    (LogSoftMax, "gradient"): {
        "the mean is taken, not the sum": _formula(lambda g, y: g - np.exp(y) * g.mean(3, keepdims=True)),
        "the gradient is that of softmax": _formula(lambda g, y: np.exp(y) * (g - _sum(g * np.exp(y)))),
        "the base is 2": _formula(lambda g, y: g - 2.0**y * _sum(g)),
    },
}

# --- golden results ---------------------------------------------------------------------------------------------------


def _golden_forward(kernel: SoftMax | LogSoftMax, on_cpu: Callable[[Array], Array]) -> Adapter:
    """Return the adapter of a forward kernel; the pixels of a relation are those of one row of an image."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        if entry.kind != "relation":
            yield Comparison("y", kernel.forward(entry.image("x"), backend=backend), entry.expected["y"])
            return
        for case, draw in entry.cases():
            x = draw((case["n"], 1, 1, case["c"])).astype(entry.dtype or "float32")
            expected = Values.all_given(on_cpu(x.astype(np.float64)))
            yield Comparison("y", kernel.forward(x, backend=backend), expected)

    return adapter


def _golden_gradient(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare the gradient of softmax, which reads the forward result; an entry holds the source instead."""
    y = SoftMax().forward(entry.image("x_of_forward"), backend=backend)
    yield Comparison("dx", SoftMax().gradient(entry.image("g"), y, backend=backend), entry.expected["dx"])


def _softmax(x: Array) -> Array:
    return np.asarray(np.exp(x) / np.exp(x).sum(3, keepdims=True))


_SOFTMAX = _golden_forward(SoftMax(), _softmax)
_LOG_SOFTMAX = _golden_forward(LogSoftMax(), lambda x: np.log(_softmax(x)))

GOLDEN: dict[str, Adapter] = {
    "MPSCNNSoftMax": _SOFTMAX,
    "MPSCNNLogSoftMax": _LOG_SOFTMAX,
    "MPSMatrixSoftMax": _SOFTMAX,
    "MPSMatrixLogSoftMax": _LOG_SOFTMAX,
    "MPSMatrixSoftMaxGradient": _golden_gradient,
}

FAMILY = Family(
    "softmax",
    {
        spec_type: KernelTests(
            partial(problems, spec_type), PROPERTIES, {"forward": frozenset(equivalent)}, nonfinite=("forward",)
        )
        for spec_type, equivalent in (
            (SoftMax, ("0 / 0 is NaN", "an infinity becomes the largest float16")),  # no result is infinite
            (LogSoftMax, ("0 / 0 is NaN",)),
        )
    },
    MUTANTS,
    GOLDEN,
)
