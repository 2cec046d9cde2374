"""Cross-channel normalization: worked examples, brute force, powers, windows."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import CrossChannelNormalization
from mpsref.arguments.arrays import Array
from tests import examples
from tests.kernels import oracle_normalization as oracle
from tests.kernels.oracle_normalization import noise

X = np.array([1, 2, 3, 0, 1], np.float32).reshape(1, 1, 1, 5)
G = np.array([1, 0, 1, 2, 1], np.float32).reshape(1, 1, 1, 5)


def close(result: Array, expected: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(
        np.asarray(result, np.float64).ravel(), np.ravel(expected), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(
    ("size", "y", "dx"),
    [
        (1, [0.70710678, 0.89442719, 0.9486833, 0, 0.70710678], [0.35355339, 0, 0.03162278, 2, 0.35355339]),
        (
            2,
            [0.70710678, 0.81649658, 0.80178373, 0, 0.70710678],
            [0.35355339, -0.11454053, 0.09545044, 0.63245553, 0.35355339],
        ),
        (
            3,
            [0.40824829, 0.51639778, 0.80178373, 0, 0.70710678],
            [0.34020691, -0.2506233, 0.09545044, 0.60302269, 0.35355339],
        ),
        (
            4,
            [0.40824829, 0.51639778, 0.77459667, 0, 0.30151134],
            [0.28856713, -0.23936232, 0.02104919, 0.51639778, 0.27410122],
        ),
    ],
)
def test_worked_examples(backend: str, size: int, y: list[float], dx: list[float]) -> None:
    norm = CrossChannelNormalization(size, alpha=size, beta=0.5, delta=1)
    close(norm.forward(X, backend=backend), y)
    close(norm.gradient(G, X, backend=backend), dx)


def test_what_the_hardware_gave(backend: str) -> None:
    x = np.array([1, 2, 5], np.float32).reshape(1, 1, 1, 3)
    y = CrossChannelNormalization(3).forward(x, backend=backend)
    assert float(y[0, 0, 0, 1]) == pytest.approx(1.24184335e-05, rel=2e-6)


def test_documented_defaults() -> None:
    norm = CrossChannelNormalization()
    assert (norm.kernel_size, norm.alpha, norm.beta, norm.delta) == (5, 1, 5, 1)


norms = st.builds(
    CrossChannelNormalization,
    st.integers(1, 12),
    st.sampled_from([0.0, 0.5, 4.0]),
    st.sampled_from([0.5, 0.75, 1.25, 0.3, 3.0, -1.0]),
    st.sampled_from([0.5, 2.0]),
)
shapes = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 8))


@examples(40)
@given(norm=norms, shape=shapes, dtype=st.sampled_from(["float16", "float32"]))
def test_forward_is_the_brute_force(norm: Any, shape: tuple[int, ...], dtype: str) -> None:
    x = noise(shape, 0, dtype)
    y = norm.forward(x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    close(y, oracle.cross_channel(x, norm), 2e-3 if dtype == "float16" else 1e-5)


def test_a_window_over_all_channels_is_an_l2_normalization(backend: str) -> None:
    x = noise((1, 2, 2, 64))
    y = CrossChannelNormalization(128, alpha=128, beta=0.5, delta=0).forward(x, backend=backend)
    close((y.astype(float) ** 2).sum(axis=-1), np.ones((1, 2, 2)), 1e-5)
    huge = CrossChannelNormalization(10**9, alpha=10.0**9, beta=0.5, delta=0)
    close(huge.forward(x, backend=backend), y, 1e-5)
    close(huge.gradient(y, x, backend=backend), np.zeros(x.shape), 1e-5)


@pytest.mark.parametrize(("channels", "size"), [(1, 5), (3, 4), (64, 1), (64, 1200), (5000, 5)])
def test_lines_of_many_lengths(channels: int, size: int) -> None:
    """The cpu backend puts pixels side by side into one line, from several to a part of one."""
    x, g = noise((1, 5, 3, channels)), noise((1, 5, 3, channels), 1)
    norm = CrossChannelNormalization(size, alpha=2.0, beta=0.75)
    close(norm.forward(x, backend="cpu"), norm.forward(x.astype(float)), 1e-5)
    close(norm.gradient(g, x, backend="cpu"), norm.gradient(g.astype(float), x.astype(float)), 1e-5)


def test_a_base_that_is_0_or_negative_follows_ieee(ieee_backend: str) -> None:
    x = np.array([0, 1, 4], np.float32).reshape(1, 1, 3, 1)
    y = CrossChannelNormalization(1, delta=0, beta=0.5).forward(x, backend=ieee_backend)
    np.testing.assert_array_equal(y.ravel(), np.float32([np.nan, 1, 1]))
    for beta, value in ((0.5, np.nan), (0.3, np.nan), (1, -0.25), (2, 1 / 16)):
        y = CrossChannelNormalization(1, alpha=0, delta=-4, beta=beta).forward(x, backend=ieee_backend)
        np.testing.assert_array_equal(y.ravel()[1], np.float32(value))


@cache
def raised() -> Any:
    """Return the compiled powers of the cpu backend."""
    from mpsref_cpu.simd.elementary import raise_to_minus

    @numba.njit  # type: ignore[untyped-decorator]
    def run(beta: Any, base: Any, power: Any) -> None:
        raise_to_minus(beta, base, power, base.size)

    return run


@pytest.mark.parametrize("beta", [-3, -2.75, -0.5, 0, 0.25, 0.5, 0.75, 1, 1.25, 5, 9.75, 10, 0.1, -2.3, 40.0])
def test_powers_of_the_cpu_backend(beta: float) -> None:
    """Roots, products, and the general power: all within 2 units in the last place."""
    base = np.linspace(0.3, 3, 1000, dtype=np.float32)
    power = np.empty_like(base)
    raised()(beta, base, power)
    exact = base.astype(np.float64) ** -np.float64(np.float32(beta))
    assert (np.abs(power - exact) <= 2 * np.spacing(exact.astype(np.float32))).all()


@cache
def summed() -> Any:
    """Return the compiled sums over windows of the cpu backend."""
    from mpsref_cpu.normalization import window_sums

    @numba.njit  # type: ignore[untyped-decorator]
    def run(line: Any, count: int, kernel: int, step: int, sums: Any, room: Any) -> None:
        window_sums.sum_line(line, count, kernel, step, np.float32(5), sums, room)

    return run


@pytest.mark.parametrize("kernel", [1, 2, 7, 16, 31, 48])
@pytest.mark.parametrize("step", [1, 3])
def test_sums_over_windows(kernel: int, step: int) -> None:
    """On integers the sums are exact, however they are put together."""
    from mpsref_cpu.normalization import window_sums

    line = np.random.default_rng(0).integers(-9, 9, 300).astype(np.float32)
    before, count = line.copy(), line.size - window_sums.WIDE - (kernel - 1) * step
    due = 5 + sum(line[t * step : t * step + count] for t in range(kernel))
    sums, room = np.empty_like(line), np.empty_like(line)
    summed()(line, count, kernel, step, sums, room)
    np.testing.assert_array_equal(sums[:count], due)
    np.testing.assert_array_equal(line, before)
