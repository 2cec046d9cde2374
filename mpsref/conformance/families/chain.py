"""Tests of chains, which only backends that compile have."""

from __future__ import annotations

from hypothesis import strategies as st

from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.strategies import pairs
from mpsref.frameworks.chains import MOST, PARAMETERS, WORDS, Chain
from mpsref.operations import Problem

PRODUCTS = 2
"""Steps of a chain with a parameter: sums of products of more of them are not exact in float32."""


@st.composite
def problems(draw: st.DrawFn, method: str) -> Problem:
    """Draw steps around a window, and an image that is large enough for them."""
    steps = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=MOST))
    shape = (draw(st.integers(1, 2)), *draw(pairs(2, 9)), draw(st.sampled_from((1, 2, 3, 4, 8))))
    kept: list[str] = []
    problem = None
    for step in steps:  # a step that does not fit is left out
        if step in PARAMETERS and sum(one in PARAMETERS for one in kept) == PRODUCTS:
            continue
        try:
            problem = Chain.problems[method](Chain((*kept, step)), shape)
        except ValueError:
            continue
        kept.append(step)
    found: Problem = problem or Chain.problems[method](Chain(("sum3",)), shape)
    return found


FAMILY = Family("chain", {Chain: KernelTests(problems, {"gradient": ()})})
