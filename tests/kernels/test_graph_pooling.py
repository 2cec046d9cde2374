"""MPSGraph's max pooling with indices: modes, padding, ties, indices that no tap has, PyTorch, bad calls."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from mpsref import GraphPoolingMax, PoolingMax, ShapeError
from mpsref.arguments.arrays import Array
from mpsref.kernels.graph_pooling import MODES

F32 = np.float32


def image(values: Any, *shape: int) -> Array:
    return np.array(values, F32).reshape(shape)


def test_padding_is_never_the_maximum_with_dilation_either(backend: str) -> None:
    """Taps at -1, 1 and 3: with edge mode "clamp" of MPS the first would read the 9."""
    x = image([9, 1, 2, 3], 1, 1, 4, 1)
    pool = GraphPoolingMax((1, 3), offset=(0, 1), dilations=(1, 2))
    y, indices = pool.forward(x, (1, 2), backend=backend)
    assert (y.ravel().tolist(), indices.ravel().tolist()) == ([3, 9], [3, 0])
    clamped = PoolingMax((1, 3), offset=(0, 1), edge_mode="clamp", dilations=(1, 2))
    assert clamped.forward(x, (1, 2), backend=backend).ravel().tolist() == [9, 9]
    assert GraphPoolingMax(1, offset=-1).forward(x - 10, (2, 2), backend=backend)[0].ravel().tolist() == [
        *[-np.inf] * 3,
        -1,
    ]


def test_ties_and_overlapping_windows(backend: str) -> None:
    x = image([1, 5, 5, 2, 3, 5, 0, 4, 6, 1, 6, 6], 1, 3, 4, 1)
    g = image([1, 4, 9, 16, 25, 36], 1, 2, 3, 1)
    pool = GraphPoolingMax(2, offset=1)
    _, indices = pool.forward(x, (2, 3), backend=backend)
    assert indices.ravel().tolist() == [1, 1, 2, 8, 10, 10]
    dx = pool.gradient(g, indices, x.shape, backend=backend)
    assert dx.ravel().tolist() == [0, 5, 9, 0, 0, 0, 0, 0, 16, 0, 61, 0]


@pytest.mark.parametrize(("mode", "layout"), list(product(MODES, ["NCHW", "NHWC"])))
def test_modes_are_those_of_numpy(backend: str, mode: Any, layout: str) -> None:
    """A global number is that of ``ravel_multi_index`` in the last axes, a local one that in a window."""
    n, h, w, c = shape = 2, 3, 4, 4
    x = np.random.default_rng(0).permutation(n * h * w * c).astype(F32).reshape(shape)
    pool = GraphPoolingMax((2, 3), 1, (1, 1), 1, mode, layout)  # type: ignore[arg-type]
    y, indices = pool.forward(x, (3, 4), backend=backend)
    axes = layout[-int(mode[-2]) :]
    for at in np.ndindex(*y.shape):
        place = dict(zip("NHWC", np.argwhere(x == y[at])[0], strict=True))
        lengths = dict(zip("NHWC", shape, strict=True))
        if mode.startswith("local"):  # window (a, b) begins at row a and column b
            place = {"N": 0, "H": place["H"] - at[1], "W": place["W"] - at[2], "C": 0}
            lengths = {"N": 1, "H": 2, "W": 3, "C": 1}
        number = np.ravel_multi_index([place[axis] for axis in axes], [lengths[axis] for axis in axes])
        assert indices[at] == number, at


@pytest.mark.parametrize("indices", ["global_flatten_2d", "local_flatten_2d", "global_flatten_4d"])
def test_a_number_of_no_tap_of_its_window_has_no_effect(backend: str, indices: Any) -> None:
    """Whatever the number, nothing outside of the windows is written."""
    pool = GraphPoolingMax((1, 2), (1, 2), (0, 1), 1, indices)
    g = np.ones((2, 3, 2, 5), F32)
    for number in (-1, -(2**31), 2**31 - 1, 10**6):
        dx = pool.gradient(g, np.full(g.shape, number, np.int32), (2, 3, 4, 5), backend=backend)
        assert not dx.any(), number


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_gradient_that_is_not_finite_reaches_the_selected_pixel_alone(name: str) -> None:
    x, g = image([1, 2, 4, 3], 1, 1, 4, 1), image([np.nan, np.inf], 1, 1, 2, 1)
    pool = GraphPoolingMax((1, 2), (1, 2), offset=(0, 1))
    _, indices = pool.forward(x, (1, 2), backend=name)
    np.testing.assert_array_equal(pool.gradient(g, indices, x.shape, backend=name).ravel(), [0, np.nan, np.inf, 0])


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_nan_is_never_selected(name: str) -> None:
    x = np.random.default_rng(3).choice([1, 2, np.nan], (1, 5, 5, 9)).astype(F32)
    y, indices = GraphPoolingMax(2).forward(x, backend=name)
    np.testing.assert_array_equal(y, PoolingMax(2, edge_mode="clamp").forward(x, backend="reference"))
    np.testing.assert_array_equal(y == -np.inf, indices == -1)
    selected = np.take_along_axis(x.reshape(25, 9), indices.reshape(-1, 9).clip(0), 0).reshape(y.shape)
    np.testing.assert_array_equal(selected, np.where(indices < 0, x[0, 0, 0], y))


def test_the_gradient_is_that_of_max_pooling_where_the_edge_is_read(backend: str) -> None:
    rng = np.random.default_rng(1)
    for mode, channels in (("global_flatten_2d", 4), ("global_flatten_3d", 45), ("local_flatten_2d", 13)):
        x = rng.integers(-4, 5, (2, 6, 7, channels)).astype(F32)
        pool, mps = GraphPoolingMax(3, 2, indices=mode), PoolingMax(3, 2, edge_mode="clamp")
        y, indices = pool.forward(x, backend=backend)
        np.testing.assert_array_equal(y, mps.forward(x, backend=backend))
        g = rng.integers(-9, 9, y.shape).astype(F32)
        dx = pool.gradient(g, indices, x.shape, backend=backend)
        np.testing.assert_array_equal(dx, mps.gradient(g, x, backend=backend))


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "ceil"),
    [(2, 2, 0, 1, False), (3, 2, 1, 1, True), ((2, 3), (1, 2), (1, 1), (2, 1), False), (3, 1, 1, 2, False)],
)
def test_pytorch_returns_the_same_indices(
    backend: str, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")
    x = np.random.default_rng(2).integers(-3, 4, (2, 7, 8, 4)).astype(F32)
    there = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()
    theirs, numbers = torch.nn.functional.max_pool2d(
        there, kernel, stride, padding, dilation, ceil, return_indices=True
    )
    offset = [
        ((k - 1) * d + 1) // 2 - p
        for k, d, p in zip(*(np.broadcast_to(pair, 2).tolist() for pair in (kernel, dilation, padding)), strict=True)
    ]
    pool = GraphPoolingMax(kernel, stride, offset, dilation)  # type: ignore[arg-type]
    y, indices = pool.forward(x, tuple(theirs.shape[2:]), backend=backend)
    np.testing.assert_array_equal(y, theirs.permute(0, 2, 3, 1))
    np.testing.assert_array_equal(indices, numbers.permute(0, 2, 3, 1))


def test_bad_calls_name_the_next_step() -> None:
    pool, g = GraphPoolingMax(2, 2, 1), np.ones((1, 2, 2, 1), F32)
    with pytest.raises(TypeError, match=r"indices has dtype int64; it must be int32: pass indices\.astype"):
        pool.gradient(g, np.zeros(g.shape, np.int64), (1, 4, 4, 1))
    with pytest.raises(ShapeError, match=r"indices has shape \(1, 2, 1, 1\)"):
        pool.gradient(g, np.zeros((1, 2, 1, 1), np.int32), (1, 4, 4, 1))
    for mode, layout, axis in (("local_flatten_1d", "NCHW", "rows"), ("global_flatten_2d", "NHWC", "rows")):
        one = GraphPoolingMax(2, 2, 1, 1, mode, layout)  # type: ignore[arg-type]
        with pytest.raises(
            ValueError, match=f"indices is '{mode}' with layout '{layout}', which does not number the {axis}"
        ):
            one.gradient(g, np.zeros(g.shape, np.int32), (1, 4, 4, 1))
    with pytest.raises(ValueError, match="indices is 'global'"):
        GraphPoolingMax(2, indices="global")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"indices is 'local_flatten_2d', which numbers 4294967296 elements"):
        GraphPoolingMax(2**16, indices="local_flatten_2d").forward(np.zeros((1, 2, 2, 1), F32), (1, 1))
