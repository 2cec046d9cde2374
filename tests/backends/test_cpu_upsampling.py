"""Weighted sums on the cpu backend: fewer elements than a vector has, whole vectors and rests, few and many taps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from mpsref import UpsamplingBilinear, UpsamplingNearest, registry
from mpsref.conformance.case import Case
from mpsref.conformance.runner import run_case
from mpsref.registry import Problem
from mpsref_cpu.resampling import interpolation

CHANNELS = [1, 2, 7, 8, 9, 15, 16, 21, 64]


def problems(factors: tuple[int, int], channels: int) -> Iterator[Problem]:
    """Yield upsampling forward and backward: the gradient has up to twice as many taps as the factor."""
    for spec in (
        UpsamplingBilinear(factors, align_corners=True),
        UpsamplingBilinear(factors, edge_mode="clamp"),
        UpsamplingNearest(factors),
    ):
        for method in ("forward", "gradient"):
            yield spec.problems[method](spec, (2, 3, 4, channels))


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_within_the_bound(channels: int, dtype: str) -> None:
    cpu = registry.get_backend("cpu")
    for factors in ((2, 2), (1, 3), (3, 5), (2, 9)):
        for problem in problems(factors, channels):
            outcome = run_case(Case(problem, dtype, "real", channels), cpu)
            assert outcome.status == "passed", outcome.message


@pytest.mark.parametrize("channels", [3, 11])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sums_of_many_terms_are_float64(channels: int, dtype: str) -> None:
    cpu = registry.get_backend("cpu")
    for problem in problems((40, 17), channels):
        if problem.method == "gradient":
            _, columns = interpolation._tables(problem.axes, True)  # type: ignore[attr-defined]
            if isinstance(problem.spec, UpsamplingBilinear):
                assert columns.weights.dtype == np.float64
            outcome = run_case(Case(problem, dtype, "hard", channels), cpu)
            assert outcome.status == "passed", outcome.message


@pytest.mark.parametrize("channels", CHANNELS)
def test_pixels_do_not_influence_each_other(channels: int) -> None:
    """NaN in one pixel reaches those that are made of it, and no others; also the last one, beyond which is nothing."""
    spec = UpsamplingBilinear((1, 2), align_corners=True)
    x = np.random.default_rng(1).standard_normal((1, 1, 6, channels)).astype(np.float32)
    reads = spec.forward(np.eye(6, dtype=np.float32).reshape(1, 1, 6, 6))[0, 0] != 0
    clean = spec.forward(x, backend="cpu")[0, 0]
    for place in range(6):
        spoiled = x.copy()
        spoiled[0, 0, place] = np.nan
        y = spec.forward(spoiled, backend="cpu")[0, 0]
        untouched = ~reads[:, place]
        assert untouched.sum() >= 8
        np.testing.assert_array_equal(y[untouched], clean[untouched])
        assert np.isnan(y[~untouched]).all()
