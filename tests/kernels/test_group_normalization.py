"""Instance and group normalization: worked examples, brute force, hard data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import GroupNormalization, InstanceNormalization, registry
from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.runner import run_case
from mpsref.kernels.normalization import FLT_MIN
from tests import examples
from tests.kernels import oracle_normalization as oracle
from tests.kernels.oracle_normalization import noise

SPECS = [InstanceNormalization(1e-3), GroupNormalization(2, 1e-3)]


def close(result: Array, expected: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(
        np.asarray(result, np.float64).ravel(), np.ravel(expected), rtol=tolerance, atol=tolerance
    )


# --- worked examples --------------------------------------------------------------------------------------------------


def test_instance_worked_example(backend: str) -> None:
    x = np.array([[[1, 10], [3, 14]], [[0, 2], [4, 2]]], np.float32).reshape(2, 1, 2, 2)
    g = np.array([[[1, 1], [2, 0]], [[-1, 3], [1, 1]]], np.float32).reshape(2, 1, 2, 2)
    norm = InstanceNormalization(3)
    y = norm.forward(x, [2, 3], [0, 1], backend=backend)
    close(y[0], [-1, -1.26778684, 1, 3.26778684])
    close(y[1], [-1.51185789, 1, 1.51185789, 1])
    dx, dgamma, dbeta = norm.gradient(g, x, [2, 3], backend=backend)
    close(dx[0], [-0.375, 0.24297716, 0.375, -0.24297716])
    close(dx[1], [-0.32396955, 1.73205081, 0.32396955, -1.73205081])
    close(dgamma, [0.5, -0.75592895, 1.51185789, 0])
    close(dbeta, [3, 1, 0, 4])
    assert dgamma.shape == dbeta.shape == (2, 2)


def test_group_worked_example(backend: str) -> None:
    x = np.array([1, 3, 2, 6, 5, 7, 2, 10], np.float32).reshape(1, 1, 2, 4)
    g = np.array([1, 0, 2, 0, 0, 1, 0, 1], np.float32).reshape(1, 1, 2, 4)
    norm = GroupNormalization(groups=2, epsilon=4)
    y = norm.forward(x, [1, 2, 1, 0.5], [0, 0, 1, 1], backend=backend)
    close(y, [-1, -0.66666667, 0.22540333, 1.12909944, 0.33333333, 2, 0.22540333, 1.64549722])
    dx, dgamma, dbeta = norm.gradient(g, x, [1, 2, 1, 0.5], backend=backend)
    close(dx[0, 0, 0], [0.16666667, -0.22222222, 0.30983867, -0.1463127])
    close(dx[0, 0, 1], [-0.27777778, 0.33333333, -0.20655911, 0.04303315])
    close(dgamma, [-1, 1, -1.54919334, 1.29099445])
    close(dbeta, [1, 1, 2, 1])


def test_no_gamma_is_1_and_no_beta_is_0(backend: str) -> None:
    x, g = noise((2, 3, 4, 4)), noise((2, 3, 4, 4), seed=1)
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    for norm in SPECS:
        for vectors in ({}, {"gamma": ones}, {"beta": zeros}):
            same = norm.forward(x, ones, zeros, backend=backend)
            np.testing.assert_array_equal(norm.forward(x, **vectors, backend=backend), same)
        for one, other in zip(
            norm.gradient(g, x, backend=backend), norm.gradient(g, x, ones, backend=backend), strict=True
        ):
            np.testing.assert_array_equal(one, other)


# --- other computations of the same -----------------------------------------------------------------------------------

shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5))


@examples(25)
@given(shape=shapes, groups=st.integers(1, 3), size=st.integers(1, 3), dtype=st.sampled_from(["float16", "float32"]))
def test_forward_is_the_brute_force(shape: Any, groups: int, size: int, dtype: str) -> None:
    channels = groups * size
    x, gamma, beta = noise((*shape, channels), dtype=dtype), noise((channels,), 1), noise((channels,), 2)
    y = GroupNormalization(groups, 0.01).forward(x, gamma, beta)
    assert y.dtype == dtype
    close(y, oracle.grouped(x, groups, 0.01, gamma, beta), 4e-3 if dtype == "float16" else 2e-5)
    alone = InstanceNormalization(0.01).forward(x, gamma, beta)
    close(alone, oracle.grouped(x, channels, 0.01, gamma, beta), 4e-3 if dtype == "float16" else 2e-5)


# --- hard data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.1, 3.0, 12345.678, -1e-3])
def test_constant_groups_give_exactly_0(backend: str, value: float) -> None:
    x = np.full((2, 25, 40, 6), value, np.float32)
    beta, g = noise((6,), 1), noise(x.shape, 2)
    for norm in (InstanceNormalization(), GroupNormalization(3), GroupNormalization(1)):
        y = norm.forward(x, noise((6,)), beta, backend=backend)
        np.testing.assert_array_equal(y, np.broadcast_to(beta, x.shape))
        _, dgamma, _ = norm.gradient(g, x, backend=backend)
        assert not dgamma.any()


def test_a_single_value_has_no_gradient(backend: str) -> None:
    x, g = noise((3, 1, 1, 4)), noise((3, 1, 1, 4), 1)
    for norm in (InstanceNormalization(), InstanceNormalization(0.5), GroupNormalization(4)):
        np.testing.assert_array_equal(norm.forward(x, None, [1, 2, 3, 4], backend=backend)[0, 0, 0], [1, 2, 3, 4])
        dx, dgamma, dbeta = norm.gradient(g, x, noise((4,), 2), backend=backend)
        assert not dx.any()
        assert not dgamma.any()
        np.testing.assert_array_equal(dbeta, g[:, 0, 0])


@pytest.mark.parametrize("method", ["forward", "gradient"])
@pytest.mark.parametrize("shape", [(1, 33, 31, 3), (2, 40, 60, 5), (1, 70, 70, 1), (1, 20, 30, 300)], ids=str)
def test_a_mean_of_ten_thousand_deviations(backend: str, shape: tuple[int, ...], method: str) -> None:
    """The error stays within the bound, which sums of squares in float32 miss by far."""
    generator = np.random.default_rng(0)
    x = (1e4 + generator.standard_normal(shape)).astype(np.float32)
    x[0, 0, 0, 0] = 2e4  # the first pixel lies far off
    g, gamma, beta = noise(shape, 1), noise(shape[3:], 2), noise(shape[3:], 3)
    for spec in (InstanceNormalization(1e-5), GroupNormalization(1, 1e-5)):
        problem = spec.problems[method](spec, shape)
        case = Fixed(problem, (x, gamma, beta) if method == "forward" else (g, x, gamma))
        outcome = run_case(case, registry.get_backend(backend))
        assert outcome.status == "passed", outcome.message


class Fixed(Case):
    """A case on data of its own."""

    def __new__(cls, *args: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, problem: Any, arrays: tuple[Array, ...]) -> None:
        super().__init__(problem)
        object.__setattr__(self, "arrays", arrays)

    def inputs(self) -> tuple[Array, ...]:
        return self.__dict__["arrays"]  # type: ignore[no-any-return]

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def test_no_epsilon_and_no_deviation_follow_ieee(ieee_backend: str) -> None:
    x = np.ones((1, 2, 2, 1), np.float32)
    norm = InstanceNormalization(0)
    assert np.isnan(norm.forward(x, backend=ieee_backend)).all()
    dx, dgamma, dbeta = norm.gradient(noise(x.shape), x, backend=ieee_backend)
    assert not np.isfinite(dx).any()
    assert np.isnan(dgamma).all()
    assert np.isfinite(dbeta).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_group(ieee_backend: str, bad: float) -> None:
    x, g = noise((2, 3, 3, 4)), noise((2, 3, 3, 4), 1)
    x[0, 1, 1, 1] = bad
    norm = GroupNormalization(2, 1e-3)
    clean = noise((2, 3, 3, 4))
    for broken, whole in (
        (norm.forward(x, backend=ieee_backend), norm.forward(clean, backend=ieee_backend)),
        (norm.gradient(g, x, backend=ieee_backend)[0], norm.gradient(g, clean, backend=ieee_backend)[0]),
    ):
        assert not np.isfinite(broken[0, ..., :2]).any()
        np.testing.assert_array_equal(broken[0, ..., 2:], whole[0, ..., 2:])
        np.testing.assert_array_equal(broken[1], whole[1])


def test_epsilon_is_the_smallest_normal_number_by_default() -> None:
    assert InstanceNormalization().epsilon == GroupNormalization().epsilon == FLT_MIN == 1.1754943508222875e-38
    assert GroupNormalization().groups == 1
