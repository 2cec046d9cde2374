"""The pooling classes: constructors, worked examples, alignment of a gradient into a given destination."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.mps import MPSImageEdgeMode

PAIRS: list[tuple[Any, Any]] = [
    (mps.MPSCNNPoolingMax, mps.MPSCNNPoolingMaxGradient),
    (mps.MPSCNNPoolingAverage, mps.MPSCNNPoolingAverageGradient),
    (mps.MPSCNNPoolingL2Norm, mps.MPSCNNPoolingL2NormGradient),
    (mps.MPSCNNDilatedPoolingMax, mps.MPSCNNDilatedPoolingMaxGradient),
]
KINDS = [kind for pair in PAIRS for kind in pair]
DILATED = {mps.MPSCNNDilatedPoolingMax, mps.MPSCNNDilatedPoolingMaxGradient}


def row(*values: float) -> Array:
    return np.array(values, np.float32).reshape(1, 1, -1, 1)


def arguments(kind: Any) -> tuple[str, ...]:
    dilations = ("dilation_rate_x", "dilation_rate_y") if kind in DILATED else ()
    return ("kernel_width", "kernel_height", *dilations, "stride_in_pixels_x", "stride_in_pixels_y")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_constructors_take_apples_arguments_in_apples_order(kind: Any) -> None:
    names = arguments(kind)
    kernel = kind(*range(2, 2 + len(names)))
    assert {name: getattr(kernel, name) for name in names} == dict(zip(names, range(2, 99), strict=False))
    assert kind(**dict(zip(names, range(2, 99), strict=False))) == kernel
    required = names[:-2]
    assert kind(*range(2, 2 + len(required))).stride_in_pixels_y == 1
    for side in ("primary", "secondary") if "Gradient" in kind.__name__ else ():
        assert [getattr(kernel, f"{side}_{name}") for name in names] == list(range(2, 2 + len(names)))
    with pytest.raises(TypeError, match="missing 1 required"):
        kind(*range(2, 1 + len(required)))
    for name in names:
        with pytest.raises(TypeError, match="is read-only"):
            setattr(kernel, name, 3)
        for bad, error in ((0, ValueError), (-1, ValueError), (1.0, TypeError), (True, TypeError), ("1", TypeError)):
            with pytest.raises(error, match=f"^{name} is"):
                kind(**dict.fromkeys(names, 1) | {name: bad})
    if kind not in DILATED:
        with pytest.raises(TypeError, match="dilation_rate_x is no property"):
            kind(3, 3, dilation_rate_x=2)


def test_a_saved_kernel_keeps_its_bytes() -> None:
    """A change of this text breaks what users have saved: raise the version of the class with it."""
    assert mps.MPSCNNPoolingAverage(3, 2, stride_in_pixels_y=4, offset=(1, -1), edge_mode="clamp").to_json() == (
        '{"class":"MPSCNNPoolingAverage","properties":{"clip_rect":null,"destination_feature_channel_offset":0,'
        '"edge_mode":1,"kernel_height":2,"kernel_width":3,"offset":[1,-1,0],"padding":{"class":"MPSNNDefaultPadding",'
        '"properties":{"edge_mode":null,"padding_method":16},"version":1},"source_feature_channel_max_count":null,'
        '"source_feature_channel_offset":0,"stride_in_pixels_x":1,"stride_in_pixels_y":4,"zero_pad_size_x":0,'
        '"zero_pad_size_y":0},"version":1}'
    )


AVERAGE, COLUMNS = mps.MPSCNNPoolingAverage(4, 1, 3), row(1, 2, 3, 4, 5)
TWELVES, POWERS = row(12, 12, 12), row(1, 10, 100, 1000)
CLAMP: dict[str, Any] = {"edge_mode": "clamp"}

# kernel, properties, x, g, y, dx
EXAMPLES: dict[str, tuple[Any, dict[str, Any], Array, Array, list[float], list[float]]] = {
    "average, zero": (AVERAGE, {}, COLUMNS, TWELVES, [0.75, 3.5, 1.25], [3, 6, 3, 3, 6]),
    "average, clamp": (AVERAGE, CLAMP, COLUMNS, TWELVES, [1.5, 3.5, 5], [6, 9, 3, 3, 15]),
    "average, ring": (AVERAGE, CLAMP | {"zero_pad_size_x": 1}, COLUMNS, TWELVES, [1, 3.5, 2.5], [4, 7, 3, 3, 9]),
    "average, outside": (
        mps.MPSCNNPoolingAverage(2, 1, 3), CLAMP | {"offset": (-1, 0)}, row(2, 4), row(1, 10, 100), [0, 4, 0], [0, 10]
    ),
    "max, outside": (
        mps.MPSCNNPoolingMax(2, 1, 3), CLAMP | {"offset": (-1, 0)}, row(2, 4), row(1, 10, 100), [2, 4, 4], [1, 110]
    ),
    "max, negative": (mps.MPSCNNPoolingMax(3, 1), {}, row(-1, -2, -3), row(1, 10, 100), [0, -1, 0], [10, 0, 0]),
    "max, tie outside": (mps.MPSCNNPoolingMax(3, 1, 2), {}, row(0, 0, 5, 0), row(1, 10), [0, 5], [0, 0, 10, 0]),
    "dilated": (
        mps.MPSCNNDilatedPoolingMax(2, 1, 3, 1), {"offset": (2, 0)}, row(5, 1, 2, 9, 3, 4, 0), POWERS,
        [9, 3, 4, 9], [0, 0, 0, 1001, 10, 100, 0],
    ),
    "dilated, clamp": (
        mps.MPSCNNDilatedPoolingMax(2, 1, 2, 1), CLAMP, row(7, 1, 2, 3), POWERS, [7, 7, 3, 3], [11, 0, 0, 1100]
    ),
    "norm": (
        mps.MPSCNNPoolingL2Norm(2, 1, 2), {"offset": (1, 0)}, row(3, 4, 0, 0, 5, 12), row(1, 10, 13),
        [5, 0, 13], [0.6, 0.8, 0, 0, 5, 12],
    ),
    "norm, clamp": (
        mps.MPSCNNPoolingL2Norm(3, 1), CLAMP, row(3, 4), row(1, 1), [5.830952, 6.403124], [1.497513, 1.935384]
    ),
}  # fmt: skip


def gradient_of(pool: Any) -> Any:
    kind = dict(PAIRS)[type(pool)]
    return kind(**{name: getattr(pool, name) for name in arguments(kind)}, backend=pool.backend)


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name: str) -> None:
    pool, properties, x, g, y, dx = EXAMPLES[name]
    pool = pool.copy()
    for key, value in properties.items():
        setattr(pool, key, value)
    gradient = gradient_of(pool)
    result, state = pool.encode(x, destination_size=(1, g.shape[2]), return_state=True)
    np.testing.assert_allclose(result.ravel(), y, rtol=1e-6)
    np.testing.assert_allclose(gradient.encode(g, x, state).ravel(), dx, rtol=1e-6)


# Fourth numeric row of the worked gradient geometry, as average pooling: taps {1,2,3} {5,6,7}, the first window inside.
INSIDE = {"kernel_width": 3, "kernel_height": 1, "stride_in_pixels_x": 4}


def given(length: int, **properties: Any) -> list[float]:
    gradient = mps.MPSCNNPoolingAverageGradient(**INSIDE, secondary_offset=(2, 0, 0), **properties)
    return (
        gradient.encode(row(3, 30), row(*range(9)), None, np.full((1, 1, length, 1), -1, np.float32)).ravel().tolist()
    )


def test_a_kernel_offset_of_0_aligns_the_clip_with_the_first_window() -> None:
    assert given(9, clip_rect=((1, 0, 0), (8, 1, 1))) == [-1, 1, 1, 1, 0, 10, 10, 10, 0]
    assert given(9) == [1, 1, 1, 0, 10, 10, 10, 0, 0]
    assert given(4) == [1, 1, 1, 0]
    assert given(12) == [1, 1, 1, 0, 10, 10, 10, 0, 0, 0, 0, 0]
    assert given(12, clip_rect=((3, 0, 0), (4, 1, 1))) == [-1, -1, -1, 1, 1, 1, 0, -1, -1, -1, -1, -1]


def test_a_kernel_offset_moves_the_gradient() -> None:
    assert given(9, kernel_offset_x=-1) == [0, 1, 1, 1, 0, 10, 10, 10, 0]
    assert given(9, kernel_offset_x=1) == [1, 1, 0, 10, 10, 10, 0, 0, 0]
    assert given(9, kernel_offset_x=-3) == [0, 0, 0, 1, 1, 1, 0, 10, 10]
    for far in (-(2**40), 2**40, -12, 12):
        assert given(9, kernel_offset_x=far) == [0] * 9
    assert given(9, kernel_offset_x=-1, kernel_offset_y=1) == [0] * 9


def test_primary_offset_and_source_size_select_gradient_pixels() -> None:
    whole = {"kernel_offset_x": -1}
    assert given(9, primary_offset=(1, 0), **whole) == [0, 10, 10, 10, 0, 0, 0, 0, 0]
    assert given(9, primary_offset=(-1, 0), **whole) == [0, 0, 0, 0, 0, 1, 1, 1, 0]
    assert given(9, source_size=(1, 1, 0), **whole) == [0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert given(9, source_size=(1, 0, 0), **whole) == [0] * 9
    assert given(9, primary_offset=(5, 0), **whole) == [0] * 9


def test_of_an_even_window_the_first_pixel_inside_is_the_first_of_the_clip() -> None:
    """The windows {-1, 0} and {1, 2}; the formula of other gradient kernels gives [0, .5, 5, 5] in place of this."""
    for properties in ({}, {"kernel_offset_x": 0}):
        gradient = mps.MPSCNNPoolingAverageGradient(2, 1, 2, 1, **properties)
        assert gradient.encode(row(1, 10), row(0, 0, 0, 0), None, row(7, 7, 7, 7)).ravel().tolist() == [0.5, 5, 5, 0]


@pytest.mark.parametrize("offset", range(-3, 6))
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_state_sets_the_kernel_offset_for_source_pixel_equal_to_destination_pixel(offset: int, size: int) -> None:
    x, g = row(*range(1, 10)), row(1, 2, 4)
    _, state = mps.MPSCNNPoolingAverage(size, 1, 2, offset=(offset, 0)).encode(
        x, destination_size=(1, 3), return_state=True
    )
    gradient = mps.MPSCNNPoolingAverageGradient(size, 1, 2)
    dx = gradient.encode(g, x, state)
    first = max(0, offset - size // 2)
    assert (gradient.kernel_offset_x, gradient.kernel_offset_y) == (-first, 0)
    gradient.kernel_offset_x = 0
    into = np.zeros_like(x)
    gradient.clip_rect = (first, 0, 0), (9, 1, 1)
    gradient.encode(g, x, None, into)
    np.testing.assert_array_equal(into, dx)
    assert np.count_nonzero(dx)


def test_the_edge_mode_that_changes_the_gradient_is_the_secondary_one() -> None:
    x, g = row(1, 2), row(6, 6)
    results = []
    for mode in MPSImageEdgeMode.Zero, MPSImageEdgeMode.Clamp:
        gradient = mps.MPSCNNPoolingAverageGradient(3, 1, secondary_edge_mode=mode)
        results.append(gradient.encode(g, x, None, np.zeros_like(x)).ravel().tolist())
    assert results == [[4, 4], [6, 6]]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_any_secondary_image_of_the_right_size_gives_the_same_average_gradient(dtype: Any) -> None:
    """Apple advises a temporary image there: the average gradient needs the size alone."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((2, 6, 7, 5)).astype(dtype)
    pool = mps.MPSCNNPoolingAverage(3, 2, 2, 3, edge_mode="clamp", zero_pad_size_x=1)
    y, state = pool.encode(x, return_state=True)
    g = generator.standard_normal(y.shape).astype(dtype)
    gradient = mps.MPSCNNPoolingAverageGradient(3, 2, 2, 3)
    expected = gradient.encode(g, x, state)
    assert np.count_nonzero(expected)
    descriptor = mps.MPSImageDescriptor(np.dtype(dtype).name, width=7, height=6, feature_channels=5, number_of_images=2)
    for other in (
        mps.MPSTemporaryImage(descriptor),
        np.full_like(x, np.nan),
        x[:, ::-1],
        np.broadcast_to(x[:1, :1, :1], x.shape),
    ):
        np.testing.assert_array_equal(gradient.encode(g, other, state), expected)
