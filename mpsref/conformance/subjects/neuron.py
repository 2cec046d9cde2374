"""Neurons under test: random parameters, the values at kinks, and what sums and linear maps have in common."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator, runner
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import batch_in_pieces, repeatable, same
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.subject import Subject, seldom
from mpsref.kernels import ErrorBound
from mpsref.kernels.neuron import TYPES, Neuron, NeuronGradient
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS", "problems", "specs"]


def _eighths(low: int, high: int) -> st.SearchStrategy[float]:
    """Draw numbers that float32 holds exactly, so that kinks lie where they are computed."""
    return st.integers(low, high).map(lambda k: k / 8)


def _floats() -> st.SearchStrategy[float]:
    return _eighths(-16, 16) | seldom(0.5, st.floats(-2, 2, width=32).map(lambda v: v if abs(v) > 2**-10 else 0.25))


_FACTORS = _eighths(2, 16).flatmap(lambda a: st.sampled_from([a, -a]))
"""Neither tiny nor zero: an argument is divided by them to find its x."""

_PARAMETERS: Mapping[str, dict[str, st.SearchStrategy[Any]]] = {
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


PANEL = (
    *(Neuron(kind) for kind in ("none", "sigmoid", "absolute", "softsign", "gelu")),
    *(Neuron("relu"), Neuron("relu", a=0.25), Neuron("elu", a=0.5), Neuron("prelu", data=(0.25, -0.5, 2.0))),
    *(Neuron("linear", a=2, b=1), Neuron("tanh", a=1.5, b=0.5), Neuron("softplus", a=0.5, b=2)),
    *(Neuron("hardsigmoid", a=0.25, b=0.5), Neuron("hardsigmoid", a=-0.5, b=1)),
    *(Neuron("relun", a=0.25, b=2), Neuron("relun", a=-0.5, b=1), Neuron("relun", a=1, b=-2)),
    *(Neuron("power", a=1, b=0.25, c=c) for c in (-1, 0, 2, 3)),
    *(Neuron("power", a=0.5, b=4.25, c=c) for c in (0.5, 1.5)),
    *(Neuron("exponential", a=0.5, b=0.25, c=c) for c in (-1, 2)),
    *(Neuron("logarithm", a=1, b=8.5, c=c) for c in (-1, 2)),
)
"""Neurons of every type, with exact parameters, for a table of values at points among which their kinks are."""

POINTS = np.array([0, -0.0, 1, -1, 2, -2, 4, -4, 0.5, -0.5, 3, -3, 8, -8, 0.75, -0.125], np.float32)


def specs(kind: str, channels: int) -> st.SearchStrategy[Neuron]:
    """Draw parameters of one type, for an image with so many channels."""
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


def table(case: Case, backend: Backend) -> None:
    """Some neurons of the panel, drawn by the case, are right at all points: at kinks as the rules say, exactly.

    One case has one type; without this, the cases of a check would leave some types out.
    """
    x = np.repeat(POINTS, 3).reshape(1, 1, -1, 3)
    inputs = (x,) if case.problem.method == "forward" else (np.ones_like(x), x)
    first = zlib.crc32(str(case).encode())
    for k in range(3):
        neuron = PANEL[(first + 9 * k) % len(PANEL)]
        problem = Neuron.problems[case.problem.method](neuron, x.shape)
        (found,) = compute(problem, backend, *inputs)
        (reference,), (terms,) = runner.references(problem, *inputs), runner.terms(problem, *inputs)
        try:
            comparator.check(found, reference, _without_motion(neuron, terms, reference), "float32")
        except Mismatch as mismatch:
            index = mismatch.index or (0, 0, 0, 0)
            raise Mismatch(f"table: {neuron} at x = {x[index]}: {mismatch}") from None


def _without_motion(neuron: Neuron, terms: ErrorBound, reference: Array) -> ErrorBound:
    """Return the terms of the bound with nothing left of a jump: here every argument is exact."""
    stepped = ("relu", "prelu", "elu", "absolute", "relun", "hardsigmoid")
    return ErrorBound.of_error(abs(reference) * 2.0**-20) if neuron.type in stepped else terms


def linear_in_g(case: Case, backend: Backend) -> None:
    """Twice the source gradient gives twice the gradient."""
    g, x = case.inputs()
    (once,), (twice,) = compute(case.problem, backend, g, x), compute(case.problem, backend, 2 * g, x)
    terms = expected(case)[0][1]
    with np.errstate(over="ignore"):  # float16 ends at 65504
        same("linear in g", 2 * once, twice, ErrorBound(2 * terms.magnitude, terms.m))


def pieces_add_up(case: Case, backend: Backend) -> None:
    """The gradients for the slopes of each image add up to those of the batch."""
    assert isinstance(case.problem, NeuronGradient)
    n, height, width, c = case.problem.source_shape
    g, x = case.inputs()
    one = replace(case.problem, source_shape=(1, height, width, c))
    (whole,) = compute(case.problem, backend, g, x)
    parts = [compute(one, backend, g[k : k + 1], x[k : k + 1])[0].astype(np.float64) for k in range(n)]
    same("pieces add up", whole, np.sum(parts, 0).astype(whole.dtype), expected(case)[0][1])


SUBJECTS: dict[type[Spec], Subject] = {
    Neuron: Subject(
        problems,
        {
            "forward": (repeatable, batch_in_pieces, table),
            "gradient": (repeatable, batch_in_pieces, table, linear_in_g),
            "parameter_gradient": (repeatable, pieces_add_up),
        },
        {
            "parameter_gradient": frozenset(
                {"height and width are swapped", "channels-first code on channels-last memory"}
            )
        },
    )
}
