"""Spatial and local contrast normalization: worked examples, brute force, PyTorch, windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import LocalContrastNormalization, SpatialNormalization
from mpsref.arguments.arrays import Array
from mpsref.kernels.normalization_windows import WindowedNormalization
from tests import examples, few
from tests.kernels import oracle_normalization as oracle
from tests.kernels.oracle_normalization import noise

X = np.array([[1, 2, 0], [0, 1, 3], [2, 0, 1]], np.float32).reshape(1, 3, 3, 1)
G = np.array([[1, 0, 1], [0, 2, 0], [1, 0, -1]], np.float32).reshape(1, 3, 3, 1)
SIXTEEN = np.arange(1, 17, dtype=np.float32).reshape(1, 4, 4, 1)

ORACLES: dict[type[WindowedNormalization], Any] = {
    SpatialNormalization: oracle.spatial,
    LocalContrastNormalization: oracle.local_contrast,
}


def close(result: Array, expected: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(
        np.asarray(result, np.float64).ravel(), np.ravel(expected), rtol=tolerance, atol=tolerance
    )


# --- worked examples --------------------------------------------------------------------------------------------------

SPATIAL = [
    (
        SpatialNormalization(2, alpha=4, beta=0.5),
        [[0.70710678, 0.81649658, 0], [0, 0.37796447, 0.77459667], [0.89442719, 0, 0.28867513]],
        [[0.24556354, -0.2159797, 0.4472136], [0, 0.67199536, 0.07216878], [0.08944272, 0, -0.26461887]],
    ),
    (
        SpatialNormalization(3, alpha=9, beta=0.5),
        [[0.37796447, 0.5, 0], [0, 0.21821789, 0.75], [0.81649658, 0, 0.28867513]],
        [[0.30318689, -0.14955516, 0.25819889], [0, 0.2496317, 0.00982082], [0.09451745, 0, -0.28540153]],
    ),
]
LOCAL_CONTRAST = [
    (
        LocalContrastNormalization(2, alpha=1, delta=1),
        [[0.6882472, 0.96225045, -0.37796447], [-0.22941573, 0, 1], [1.13389342, -0.57735027, -0.16903085]],
        [
            [0.1713283, -0.51623814, 0.53994925],
            [-0.51623814, 1.39860518, 0.13522468],
            [0.32396955, 0.19317812, -0.5022631],
        ],
    ),
    (
        LocalContrastNormalization(3, alpha=1, delta=1),
        [
            [0.45834925, 0.85120556, -0.45883147],
            [-0.51639778, -0.07881104, 1.54764647],
            [1.38675049, -0.54167626, 0.32128773],
        ],
        [
            [0.55549933, -0.33965643, 0.42826367],
            [-0.30056775, 1.00569496, -0.03517888],
            [0.41202181, -0.15434679, -0.79288527],
        ],
    ),
]


@pytest.mark.parametrize(("norm", "y", "dx"), SPATIAL + LOCAL_CONTRAST, ids=str)
def test_worked_examples(backend: str, norm: Any, y: Any, dx: Any) -> None:
    close(norm.forward(X, backend=backend), y)
    close(norm.gradient(G, X, backend=backend), dx)


def test_worked_example_with_an_offset(backend: str) -> None:
    norm = SpatialNormalization(2, alpha=4, beta=0.5, offset=(1, 1))
    close(norm.forward(X, backend=backend), [[0.37796447, 0.77459667], [0, 0.28867513]])
    g = np.array([[1, 2], [3, -1]], np.float32).reshape(1, 2, 2, 1)
    dx = [[-0.05399492, -0.31454896, 0], [0, 0.24474625, 0.2787279], [0, 1.22474487, -0.26461887]]
    close(norm.gradient(g, X, backend=backend), dx)


def test_what_the_hardware_gave(backend: str) -> None:
    """Corners of the 4x4 image 1 ... 16, which show the full divisor, and sums of squares of an even window."""
    assert float(SpatialNormalization(3).forward(SIXTEEN, backend=backend)[0, 0, 0, 0]) == pytest.approx(
        2.48832257e-05, rel=2e-6
    )
    corner = LocalContrastNormalization(3).forward(SIXTEEN, backend=backend)[0, 0, 0, 0]
    assert float(corner) == pytest.approx(-17.7777786, rel=1e-6)
    corner = LocalContrastNormalization(3, alpha=1).forward(SIXTEEN, backend=backend)[0, 0, 0, 0]
    assert float(corner) == pytest.approx(-0.25060245, rel=2e-6)
    squares = [[1, 5, 13, 25], [26, 66, 98, 138], [106, 242, 306, 378], [250, 546, 642, 746]]
    quotients = SIXTEEN / SpatialNormalization(2, alpha=4, beta=1).forward(SIXTEEN, backend=backend)
    close(quotients, np.array(squares) + 1)


def test_documented_defaults() -> None:
    spatial, contrast = SpatialNormalization(3), LocalContrastNormalization(3)
    assert (spatial.alpha, spatial.beta, spatial.delta) == (1, 5, 1)
    assert (contrast.alpha, contrast.beta, contrast.delta, contrast.p0, contrast.pm, contrast.ps) == (
        0,
        0.5,
        2**-10,
        1,
        0,
        1,
    )
    assert spatial.kernel_size == (3, 3)


# --- other computations of the same -----------------------------------------------------------------------------------


@st.composite
def calls(draw: st.DrawFn) -> tuple[Any, tuple[int, int], Array, Array]:
    """A spec, an output size, x and g: windows inside, across and beyond the border."""
    pair = st.tuples(st.integers(1, 5), st.integers(1, 5))
    near = st.tuples(st.integers(-3, 4), st.integers(-3, 4))
    parameters: dict[str, Any] = {
        "alpha": draw(st.sampled_from([0.0, 0.5, 4.0])),
        "beta": draw(st.sampled_from([0.5, 0.75, 1.25, 0.3, 3.0, -1.0])),
        "delta": draw(st.sampled_from([0.5, 2.0])),
    }
    kind = draw(st.sampled_from([SpatialNormalization, LocalContrastNormalization]))
    if kind is LocalContrastNormalization:
        parameters |= {name: draw(st.sampled_from([0.0, 1.0, -0.5])) for name in ("p0", "pm", "ps")}
    norm = kind(kernel_size=draw(pair), offset=draw(near), **parameters)
    n, (height, width), size, channels = draw(st.integers(1, 2)), draw(pair), draw(pair), draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(["float16", "float32"]))
    return norm, size, noise((n, height, width, channels), 0, dtype), noise((n, *size, channels), 1, dtype)


@examples(40)
@given(calls())
def test_forward_is_the_brute_force(call: Any) -> None:
    norm, size, x, _ = call
    y = norm.forward(x, size)
    assert (y.dtype, y.shape) == (x.dtype, (x.shape[0], *size, x.shape[3]))
    close(y, oracle.windowed(x, norm, size, ORACLES[type(norm)]), 2e-3 if x.dtype == "float16" else 1e-5)


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ORACLES))
@pytest.mark.parametrize("kernel", few([((9, 4),), ((10**9, 3),), ((40, 40),)], 2), ids=str)
def test_windows_larger_than_the_image(backend: str, kind: Any, kernel: tuple[int, int]) -> None:
    """What lies far outside is 0, and costs nothing; the divisor counts it."""
    x, g = noise((1, 3, 4, 2)), noise((1, 5, 4, 2), 1)
    norm = kind(kernel, alpha=float(kernel[0] * kernel[1]), beta=0.5, delta=1.0, offset=(-1, 0))
    y, dx = norm.forward(x, (5, 4), backend=backend), norm.gradient(g, x, backend=backend)
    close(y, norm.forward(x.astype(float), (5, 4)), 1e-5)
    close(dx, norm.gradient(g.astype(float), x.astype(float)), 1e-5)
    if kernel[0] < 100:
        close(y, oracle.windowed(x, norm, (5, 4), ORACLES[kind]), 1e-5)


@pytest.mark.parametrize("kind", list(ORACLES))
@pytest.mark.parametrize("offset", [-(10**12), 10**12, -7, 9])
def test_windows_wholly_outside_the_image(backend: str, kind: Any, offset: int) -> None:
    norm = kind(3, alpha=1.0, delta=1.0, offset=offset)
    x = noise((1, 4, 4, 1))
    assert not norm.forward(x, (2, 2), backend=backend).any()
    assert not norm.gradient(noise((1, 2, 2, 1)), x, backend=backend).any()


@pytest.mark.parametrize("kind", list(ORACLES))
def test_the_default_output_is_the_source_less_the_offset(kind: Any) -> None:
    x = noise((1, 5, 6, 2))
    assert kind(3).forward(x).shape == x.shape
    assert kind(3, offset=(2, -1)).forward(x).shape == (1, 3, 7, 2)
    with pytest.raises(ValueError, match=r"the default output size would be \(0, 6\); name one"):
        kind(3, offset=(5, 0)).forward(x)
    assert kind(3, offset=(5, 0)).forward(x, (1, 1)).shape == (1, 1, 1, 2)


@pytest.mark.parametrize("kernel", [2, 5, 31])
@pytest.mark.parametrize("kind", list(ORACLES))
def test_many_rows_and_long_windows(kind: Any, kernel: int) -> None:
    """Bands, blocks of rows and doubled sums of the cpu backend meet at many places of a large image."""
    x, g = noise((2, 70, 45, 3)), noise((2, 68, 50, 3), 1)
    norm = kind(kernel, alpha=1.0, beta=0.75, delta=0.5, offset=(1, -2))
    close(norm.forward(x, (68, 50), backend="cpu"), norm.forward(x.astype(float), (68, 50)), 1e-5)
    close(norm.gradient(g, x, backend="cpu"), norm.gradient(g.astype(float), x.astype(float)), 3e-5)


@pytest.mark.slow  # sums in float64 are compiled for this test alone
@pytest.mark.parametrize("kernel", [(3000, 1), (1, 3000)])
def test_windows_of_many_terms_are_summed_in_float64(kernel: tuple[int, int]) -> None:
    """On equal pixels each float32 addition would be rounded in the same direction: 3e-5 of the result."""
    parameters: dict[str, Any] = {"alpha": 1.0, "beta": 5.0, "delta": 2.0**-7}
    x = np.full((1, *kernel, 1), 1.3, np.float32)
    inside = SpatialNormalization(kernel, offset=(kernel[0] // 2, kernel[1] // 2), **parameters)
    y = inside.forward(x, (1, 1), backend="cpu")
    expected = float(x[0, 0, 0, 0]) * (2.0**-7 + float(x[0, 0, 0, 0]) ** 2) ** -5
    assert abs(y.item() / expected - 1) < 2e-7
    if 1 in kernel:
        norm, g = SpatialNormalization(kernel, **parameters), np.ones_like(x)
        dx = norm.gradient(g, x, backend="cpu")
        np.testing.assert_allclose(dx, norm.gradient(g.astype(float), x.astype(float)), rtol=2e-7)


def test_a_large_mean_leaves_the_variance_alone(backend: str) -> None:
    """The mean square less the squared mean would have no digit left in float32."""
    x = (np.float32(1000) + noise((1, 8, 8, 2)) / 8).astype(np.float32)
    norm = LocalContrastNormalization(3, alpha=1.0, delta=1 / 64)
    y = norm.forward(x, backend=backend)[:, 1:-1, 1:-1]
    close(y, norm.forward(x.astype(float))[:, 1:-1, 1:-1], 2e-3)


# --- corner cases -----------------------------------------------------------------------------------------------------


def test_a_base_that_is_0_or_negative_follows_ieee(ieee_backend: str) -> None:
    x = np.array([0, 1, 4], np.float32).reshape(1, 1, 3, 1)
    with_0 = SpatialNormalization(1, delta=0, beta=0.5).forward(x, backend=ieee_backend).ravel()
    np.testing.assert_array_equal(with_0, np.float32([np.nan, 1, 1]))
    negative = LocalContrastNormalization(1, delta=-4, p0=0)
    np.testing.assert_array_equal(negative.forward(x, backend=ieee_backend), np.full_like(x, np.nan))
    whole = LocalContrastNormalization(1, delta=-4, p0=0, beta=1).forward(x, backend=ieee_backend)
    np.testing.assert_array_equal(whole.ravel(), [0, -0.25, -1])
    infinite = LocalContrastNormalization(1, delta=0, p0=0, beta=1).forward(x, backend=ieee_backend).ravel()
    np.testing.assert_array_equal(infinite, np.float32([np.nan, np.inf, np.inf]))


@pytest.mark.parametrize("kind", list(ORACLES))
def test_what_is_not_finite_stays_in_its_windows(ieee_backend: str, kind: Any) -> None:
    x = noise((1, 6, 6, 2))
    norm = kind(3, alpha=1.0, delta=1.0)
    clean = norm.forward(x, backend=ieee_backend)
    x[0, 2, 2, 0] = np.nan
    y = norm.forward(x, backend=ieee_backend)
    assert np.isnan(y[0, 1:4, 1:4, 0]).all()
    y[0, 1:4, 1:4, 0] = clean[0, 1:4, 1:4, 0]
    np.testing.assert_array_equal(y, clean)


def test_a_window_of_one_pixel(backend: str) -> None:
    x, g = noise((1, 3, 3, 2)), noise((1, 3, 3, 2), 1)
    norm = LocalContrastNormalization(1, alpha=5.0, delta=0.25, p0=0.5, pm=2.0, ps=3.0)
    close(norm.forward(x, backend=backend), 2 + 3 * 0.5 * x / 0.5)
    close(norm.gradient(g, x, backend=backend), 3 * 0.5 * g / 0.5)
