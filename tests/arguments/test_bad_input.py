"""Bad input: a clear error that names the parameter, nothing changed, nothing crashed, on every backend alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import PoolingAverage, ShapeError, UnsupportedError, mps, mpsgraph
from mpsref.arguments.arrays import Array
from mpsref.mps import graph

POOL = PoolingAverage(3, 2)
HUGE = 2**62  # the largest parameter that is accepted


def ramp(*shape: int, dtype: Any = np.float32) -> Array:
    return np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)


X = ramp(2, 5, 4, 3)
G = ramp(2, 3, 2, 3)
for _shared in (X, G):
    _shared.flags.writeable = False  # whoever writes into them is found out


# ---- what a spec takes ----------------------------------------------------------------------------------------------


def test_parameters_that_a_spec_does_not_have() -> None:
    with pytest.raises(TypeError, match="kernel_size"):
        PoolingAverage()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="dilations"):
        PoolingAverage(3, dilations=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^stride is no parameter of PoolingMax: did you mean strides\?; those are: "):
        mpsref.PoolingMax(3, stride=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("word", ["padding", "ceil_mode", "auto_pad"])
def test_the_padding_of_frameworks_leads_to_its_conversion(word: str) -> None:
    call = (
        r"mpsref\.padding\.pytorch\(\(height, width\), kernel_size, strides, padding\) returns offset and output_size"
    )
    named: dict[str, Any] = {word: 1}
    for spec in (mpsref.PoolingMax, mpsref.Convolution):
        with pytest.raises(TypeError, match=rf"^{word} is no parameter of {spec.__name__}, .*{call}"):
            spec(3, **named)
    with pytest.raises(TypeError, match=rf"^{word} is no parameter of SoftMax; those are: none$"):
        mpsref.SoftMax(**named)


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (mpsref, "PoolingAvg", "did you mean PoolingAverage?"),
        (mpsref, "MaxPool", "did you mean PoolingMax?"),
        (mpsref, "MPSCNNPoolingMax", "it is in mpsref.mps"),
        (mps, "MPSCNNPoolingAvg", "did you mean MPSCNNPoolingAverage?"),
        (mps, "MPSNNAdam", "did you mean MPSNNOptimizerAdam?"),
        (graph, "MPSCNNPoolingAvgNode", "did you mean MPSCNNPoolingAverageNode?"),
        (graph, "MPSCNNConv", "did you mean MPSCNNConvolutionNode?"),
        (mpsgraph, "conv2d", "did you mean convolution_2d?"),
    ],
)
def test_names_that_do_not_exist_lead_to_those_that_they_abbreviate(module: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value) == f"module {module.__name__!r} has no attribute {name!r}: {hint}"


# ---- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(1, 3, 2, 3), (3, 3, 2, 3), (2, 3, 2, 2), (2, 3, 2, 4), (0, 3, 2, 3)], ids=["N-", "N+", "C-", "C+", "N=0"]
)
def test_gradients_of_another_batch_or_channel_count(backend: str, shape: tuple[int, ...]) -> None:
    for source in (X, X.shape):
        with pytest.raises(
            ShapeError, match=r"g has shape .*; with x of shape \(2, 5, 4, 3\) it must have shape \(2, 3, 2, 3\)"
        ):
            POOL.gradient(ramp(*shape), source, backend=backend)


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (7, 1)])
def test_gradients_of_any_size_have_their_windows(backend: str, size: tuple[int, int]) -> None:
    """Windows are counted by the gradient image; more of them lie outside, fewer read less."""
    dx = POOL.gradient(ramp(2, *size, 3), X, backend=backend)
    assert dx.shape == X.shape
    assert dx.any()


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((2, 5, 4), ShapeError, r"x_or_shape has shape \(2, 5, 4\) of rank 3"),
        ((2, 5, 4, 3, 1), ShapeError, "of rank 5"),
        ((2, 0, 4, 3), ShapeError, "H, W and C must be >= 1"),
        ((2, -5, 4, 3), ValueError, r"x_or_shape\[1\] is -5; it must be an integer >= 0"),
        ((2, True, 4, 3), TypeError, r"x_or_shape\[1\] is the bool True"),
        ((2, 5.0, 4, 3), TypeError, r"x_or_shape\[1\] is 5.0 of type float"),
        ((2, HUGE, 4, 3), ShapeError, r"x_or_shape has shape .*; each axis must be <= 2147483647"),
        ((2, 2**31 - 1, 2**31 - 1, 3), ShapeError, r"which cannot be allocated .*; choose a smaller size"),
    ],
)
def test_shapes_in_place_of_the_source(backend: str, shape: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        POOL.gradient(G, shape, backend=backend)


@pytest.mark.parametrize("shape", [[2, 5, 4, 3], tuple(map(np.int64, X.shape))])
def test_other_ways_to_write_a_shape(backend: str, shape: Any) -> None:
    expected = POOL.gradient(G, X.shape, backend=backend)
    assert np.array_equal(POOL.gradient(G, shape, backend=backend), expected)


# ---- dtypes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thing", [None, "abc", b"abc", 3, 1.5, {}, object()])
def test_things_that_are_no_arrays(thing: Any) -> None:
    with pytest.raises((TypeError, ShapeError), match=r"^x "):
        POOL.forward(thing)


# ---- huge numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", ["zero", "clamp"])
@pytest.mark.parametrize("power", [31, 32, 53, 62])
def test_huge_parameters(backend: str, power: int, edge: Any) -> None:
    """Nothing overflows on the way: the answers are those of plain reasoning."""
    huge = 2**power
    mean = X.mean(axis=(1, 2), dtype=np.float64)
    x, g = {"x": X, "backend": backend}, {"g": G, "x_or_shape": X, "backend": backend}

    for offset in (huge, -huge, (0, huge), (-huge, 0)):
        away = PoolingAverage(3, 2, offset, edge, 1)
        assert not away.forward(output_size=(3, 2), **x).any()
        assert not away.gradient(**g).any()

    wide = PoolingAverage(huge, 1, 0, edge, huge)  # N = huge * huge, or the ring's part of it
    n = huge if edge == "zero" else None
    y = wide.forward(**x)
    if n is not None:
        np.testing.assert_allclose(y[:, 0, 0], mean * 20 / n / n, rtol=1e-5)
    assert np.isfinite(y).all()
    np.testing.assert_allclose(PoolingAverage(huge, 1, 0, "clamp").forward(**x)[:, -1, -1], mean, rtol=1e-5)

    sparse = PoolingAverage(1, huge, 1, edge)
    assert np.array_equal(sparse.forward(**x), X[:, 1:2, 1:2])
    dx = sparse.gradient(**g)
    assert np.array_equal(dx[:, 1, 1], G[:, 0, 0])
    assert np.count_nonzero(dx) == dx[:, 1, 1].size

    ringed = PoolingAverage(3, 2, 0, "clamp", huge)
    assert np.array_equal(ringed.forward(**x), POOL.forward(**x))


@pytest.mark.parametrize("power", [31, 61])
def test_huge_arguments_of_a_gradient(backend: str, power: int) -> None:
    huge = 2**power
    plain = POOL.gradient(G, X, backend=backend)
    for call in ({"source_size": huge}, {"clip": ((0, 0), (huge, huge))}):
        assert np.array_equal(POOL.gradient(G, X, **call, backend=backend), plain)
    for nothing in (
        {"primary_offset": huge},
        {"primary_offset": (0, -huge)},
        {"kernel_offset": (huge, 0)},
        {"kernel_offset": -huge},
        {"clip": ((huge, 0), (huge, huge))},
    ):
        assert not POOL.gradient(G, X, **nothing, backend=backend).any()
    # The windows that are pushed far away by the primary offset are brought back by the offset.
    back = PoolingAverage(3, 2, 2 * huge).gradient(G, X, primary_offset=huge, kernel_offset=None, backend=backend)
    assert not back.any()
    back = PoolingAverage(3, 2, -2 * huge).gradient(G, X, primary_offset=-huge, backend=backend)
    assert np.array_equal(back, plain)


@pytest.mark.parametrize("size", [HUGE, (1, HUGE), (2**31, 1), 2**31 - 1], ids=str)
def test_results_that_no_machine_can_hold(backend: str, size: Any) -> None:
    for x in (X, X[:0]):
        with pytest.raises(
            ShapeError, match=r"the result would have shape .*cannot be allocated.*choose a smaller size"
        ):
            POOL.forward(x, size, backend=backend)
    with pytest.raises(ShapeError, match="cannot be allocated"):
        PoolingAverage(3, 1, offset=-HUGE).forward(X, backend=backend)


# ---- not a number ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_nan_and_infinity_propagate(ieee_backend: str, dtype: str) -> None:
    pool = PoolingAverage((1, 3), (1, 3), (0, 1))
    nan, inf = np.nan, np.inf
    x = np.array([1, 2, 3, nan, 1, 2, inf, 1, 2, -inf, 1, 2, inf, 0, -inf], dtype).reshape(1, 1, 15, 1)
    y = pool.forward(x, backend=ieee_backend)
    np.testing.assert_array_equal(y.ravel(), [2, nan, inf, -inf, nan])
    dx = pool.gradient(y, x, backend=ieee_backend)
    expected = np.repeat(y.ravel().astype(np.float64) / 3, 3)
    np.testing.assert_allclose(dx.ravel(), expected, rtol=1e-3)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("edge", ["zero", "clamp"])
def test_excluded_values_do_not_leak(ieee_backend: str, poison: float, edge: Any) -> None:
    """0 * NaN is NaN: what a window does not read, it must not even multiply by zero."""
    spaced = PoolingAverage(2, 4, 1, edge)  # reads rows and columns 0, 1, 4, 5, ...
    x = ramp(1, 7, 7, 3)
    y = spaced.forward(x, backend=ieee_backend)
    x[:, 2:4], x[:, :, 2:4] = poison, poison
    assert np.array_equal(spaced.forward(x, backend=ieee_backend), y)

    g = ramp(1, 4, 4, 3)
    call: dict[str, Any] = {"primary_offset": 1, "source_size": (2, 1), "backend": ieee_backend}
    dx = PoolingAverage(3, 1, 0, edge).gradient(g, (1, 4, 4, 3), **call)
    g[:, [0, 3]], g[:, :, [0, 2, 3]] = poison, poison
    assert np.array_equal(PoolingAverage(3, 1, 0, edge).gradient(g, (1, 4, 4, 3), **call), dx)

    outside = PoolingAverage(2, 3, -1, edge)  # windows 0 and 2 lie outside a row of two
    g = np.full((1, 3, 3, 3), poison, np.float32)
    g[:, 1, 1] = 8
    assert np.isfinite(outside.gradient(g, (1, 2, 2, 3), backend=ieee_backend)).all()


# ---- backends -------------------------------------------------------------------------------------------------------


def test_unknown_backends() -> None:
    for name in ("nope", "CPU", ""):
        with pytest.raises(
            ValueError, match=rf"unknown backend '{name}'(: did you mean \w+\?)?; `mpsref backends` lists all"
        ):
            POOL.forward(X, backend=name)
    with pytest.raises(TypeError, match=r"backend is of type int; it must be a name, an mpsref.Backend or None"):
        POOL.forward(X, backend=1)


def test_backends_that_cannot_run_here() -> None:
    for info in mpsref.backends():
        if not info.available:
            with pytest.raises(UnsupportedError) as caught:
                POOL.forward(X, backend=info.name)
            assert str(caught.value) == info.reason
            assert len(info.reason) > 20


def test_metal_names_what_runs_instead() -> None:
    info = {row.name: row for row in mpsref.backends()}["metal"]
    if info.available:
        pytest.skip("this machine has an Apple GPU, and backend 'metal' runs")
    with pytest.raises(UnsupportedError, match=r'Apple silicon.*backend="metal:clang"'):
        POOL.forward(X, backend="metal")
    assert issubclass(UnsupportedError, ValueError)
