"""What the functions of MPSGraph do where ports go wrong, and the errors for what does not fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref import PoolingMax, mpsgraph
from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.mpsgraph import (
    Convolution2DOpDescriptor,
    DepthwiseConvolution2DOpDescriptor,
    PaddingStyle,
    Pooling2DOpDescriptor,
    PoolingReturnIndicesMode,
    not_built,
)
from mpsref.mpsgraph.descriptors import arranged, given_back, placed
from mpsref.mpsgraph.graph import FUNCTIONS

random = np.random.default_rng(3)
BACKENDS = ["reference", "cpu", "metal:clang"]
PLAIN: dict[str, Any] = {"stride_in_x": 1, "stride_in_y": 1, "data_layout": "NHWC"}
ROW: dict[str, Any] = {"kernel_height": 1, **PLAIN}
WEIGHTS: dict[str, Any] = {**PLAIN, "weights_layout": "HWIO"}


def row(*values: float) -> Array:
    return np.array(values, np.float32).reshape(1, 1, -1, 1)


# --- traps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_is_never_a_maximum_where_clamp_reads_the_edge(backend: str) -> None:
    of = Pooling2DOpDescriptor(kernel_width=2, dilation_rate_in_x=2, padding_left=1, padding_right=0, **ROW)
    x = row(9, 1, 2, 3)
    assert mpsgraph.max_pooling_2d(x, of, backend=backend).ravel().tolist() == [1, 9, 3]
    clamped = PoolingMax((1, 2), dilations=(1, 2), edge_mode="clamp", offset=(0, 0))
    assert clamped.forward(x, (1, 3)).ravel().tolist() == [9, 9, 3]
    g = row(1, 10, 100)
    assert mpsgraph.max_pooling_2d_gradient(g, x, of, backend=backend).ravel().tolist() == [10, 1, 0, 100]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_window_in_the_padding_alone(backend: str) -> None:
    of = {"kernel_width": 1, "padding_left": 1, **ROW}
    x, g = row(-5, 2), row(1, 10, 100)
    pool = Pooling2DOpDescriptor(**of)
    assert mpsgraph.max_pooling_2d(x, pool, backend=backend).ravel().tolist() == [-np.inf, -5, 2]
    assert mpsgraph.max_pooling_2d_gradient(g, x, pool, backend=backend).ravel().tolist() == [10, 100]
    for include in (False, True):
        mean = Pooling2DOpDescriptor(**of, include_zero_pad_to_average=include)
        assert mpsgraph.avg_pooling_2d(x, mean, backend=backend).ravel().tolist() == [0, -5, 2]
        assert mpsgraph.avg_pooling_2d_gradient(g, x, mean, backend=backend).ravel().tolist() == [10, 100]


def test_minus_infinity_in_the_image_is_not_padding() -> None:
    of = Pooling2DOpDescriptor(kernel_width=2, padding_left=1, **ROW)
    assert mpsgraph.max_pooling_2d_gradient(row(1, 10), row(-np.inf, -np.inf), of).ravel().tolist() == [11, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_wins_a_maximum(backend: str) -> None:
    of = Pooling2DOpDescriptor(kernel_width=3, stride_in_x=3, **{k: v for k, v in ROW.items() if k != "stride_in_x"})
    x = row(np.inf, np.nan, 1, np.nan, np.nan, 2, 1, 5, 2)
    found = mpsgraph.max_pooling_2d(x, of, backend=backend).ravel()
    np.testing.assert_array_equal(found, [np.nan, np.nan, 5])
    gradient = mpsgraph.max_pooling_2d_gradient(row(1, 10, 100), x, of, backend=backend).ravel()
    assert gradient.tolist() == [0, 1, 0, 10, 0, 0, 0, 100, 0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("mode", [mode for mode in PoolingReturnIndicesMode if mode])
def test_indices_number_the_last_axes_of_the_layout(backend: str, layout: str, mode: PoolingReturnIndicesMode) -> None:
    of = Pooling2DOpDescriptor(
        kernel_width=2, kernel_height=3, stride_in_x=2, stride_in_y=1, dilation_rate_in_x=2, padding_left=1,
        padding_top=1, data_layout=layout, return_indices_mode=mode,
    )  # fmt: skip
    order = (0, 1, 2, 3) if layout == "NHWC" else (0, 3, 1, 2)
    x = random.permutation(2 * 5 * 7 * 3).reshape(2, 5, 7, 3).astype(np.float32)
    y, indices = mpsgraph.max_pooling_2d_return_indices(x.transpose(order), of, backend=backend)
    np.testing.assert_array_equal(y, mpsgraph.max_pooling_2d(x.transpose(order), of, backend=backend))
    assert indices.dtype == np.int32
    where = np.stack(np.nonzero(np.isin(x, y)), axis=1)  # all values are different
    at = {x[tuple(one)]: one for one in where}
    axes = int(mode.name[-2])
    for index in np.ndindex(y.shape):
        pixel = at[y[index]]
        lengths, position = np.array(x.shape)[list(order)], pixel[list(order)]
        if mode.name.startswith("LOCAL"):
            letters = dict(zip(layout, index, strict=True))
            taps = pixel[1] - letters["H"] + 1, (pixel[2] - 2 * letters["W"] + 1) // 2
            local = {"N": (0, 1), "C": (0, 1), "H": (taps[0], 3), "W": (taps[1], 2)}
            position, lengths = np.array([local[letter] for letter in layout]).T
        assert indices[index] == np.ravel_multi_index(tuple(position[-axes:]), tuple(lengths[-axes:]))


@pytest.mark.parametrize("mode", ["local_flatten_2d", "global_flatten_2d", "global_flatten_4d"])
def test_the_gradient_from_indices_is_that_from_the_source(mode: str) -> None:
    of = Pooling2DOpDescriptor(
        kernel_width=2, kernel_height=3, stride_in_x=1, stride_in_y=1, dilation_rate_in_x=2, padding_left=1,
        padding_top=1, data_layout="NCHW", return_indices_mode=mode,
    )  # fmt: skip
    x = np.round(random.standard_normal((2, 3, 5, 7)))
    y, indices = mpsgraph.max_pooling_2d_return_indices(x, of)
    g = random.standard_normal(y.shape)
    wanted = mpsgraph.max_pooling_2d_gradient(g, x, of)
    np.testing.assert_allclose(mpsgraph.max_pooling_2d_gradient_from_indices(g, indices, x.shape, of), wanted)


@pytest.mark.parametrize(
    ("mode", "pixels"),
    [("round_prefer_ceil", [1, 3, 5]), ("round_prefer_floor", [0, 2, 4]), ("ceil", [1, 3, 5]), ("floor", [0, 2, 4]),
     ("round_to_even", [0, 2, 4]), ("round_to_odd", [1, 3, 5])],
)  # fmt: skip
def test_rounding_modes(mode: str, pixels: list[int]) -> None:
    """At positions of 0.5, 2.5 and 4.5, and at 10/3, where ceil alone takes the next pixel."""
    x = np.arange(6.0).reshape(1, 6)
    assert mpsgraph.resize_nearest(x, (1, 3), mode, True, False, "HW").ravel().tolist() == pixels
    assert mpsgraph.resize_nearest(x, (1, 9), mode, False, False, "HW")[0, 5] == (4 if mode == "ceil" else 3)


def test_ceil_mode_drops_a_last_window_that_begins_behind_the_image() -> None:
    """Row 8 of the wrong results of MPSGraph: its own inference of shapes keeps it."""
    of = Pooling2DOpDescriptor(
        kernel_width=1, kernel_height=1, stride_in_x=2, stride_in_y=2, ceil_mode=True, data_layout="NCHW"
    )
    assert mpsgraph.max_pooling_2d(np.zeros((1, 1, 4, 6)), of).shape == (1, 1, 2, 3)
    larger = Pooling2DOpDescriptor(kernel_width=2, kernel_height=2, stride_in_x=2, stride_in_y=2, ceil_mode=True,
                                   padding_left=1, padding_top=1, data_layout="NHWC")  # fmt: skip
    assert placed(larger, (3, 4), (2, 2)) == ((1, 1), (0, 1), (2, 3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_need_not_sum_to_one(backend: str) -> None:
    x, labels = np.float32([[1, 2, 3]]), np.float32([[0.5, 0.5, 1]])
    one = np.float32(1)
    found = mpsgraph.softmax_cross_entropy_gradient(one, x, labels, 1, "sum", backend=backend)
    p = np.exp(x) / np.exp(x).sum()
    np.testing.assert_allclose(found, p * 2 - labels, atol=1e-6)  # not p - labels, the gradient of MPSCNNLoss
    loss = mpsgraph.softmax_cross_entropy(x, labels, 1, "sum", backend=backend)
    np.testing.assert_allclose(loss, -(labels * np.log(p)).sum(), rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_of_softmax_takes_the_source(backend: str) -> None:
    x, g = np.float32([[1, 2, 3]]), np.float32([[1, 0, 0]])
    y = np.exp(x) / np.exp(x).sum()
    found = mpsgraph.softmax_gradient(g, x, 1, backend=backend)
    np.testing.assert_allclose(found, y * (g - (g * y).sum()), atol=1e-6)
    assert not np.allclose(found, x * (g - (g * x).sum()))


def test_the_output_shape_of_a_weights_gradient_is_that_of_the_weights() -> None:
    of = Convolution2DOpDescriptor(**PLAIN, weights_layout="OIHW")
    g, x = np.ones((1, 3, 4, 2), np.float32), np.ones((1, 4, 6, 5), np.float32)
    assert mpsgraph.convolution_2d_weights_gradient(g, x, (2, 5, 2, 3), of).shape == (2, 5, 2, 3)
    with pytest.raises(ShapeError, match="weights are O, H, W, I"):
        mpsgraph.convolution_2d_weights_gradient(g, x, x.shape, of)


def test_padding_styles_have_the_meaning_of_their_names_not_of_the_comments() -> None:
    """In Apple's header each comment stands at the constant before its own."""
    assert [style.value for style in PaddingStyle] == [0, 1, 2, 3, 4]
    found = {
        style: placed(Convolution2DOpDescriptor(**WEIGHTS, padding_style=style), (5, 5), (2, 4))
        for style in ("TF_VALID", "TF_SAME", "ONNX_SAME_LOWER")
    }
    assert found["TF_VALID"] == ((0, 0), (0, 0), (4, 2))
    assert found["TF_SAME"] == ((0, 1), (1, 2), (5, 5))
    assert found["ONNX_SAME_LOWER"] == ((1, 2), (0, 1), (5, 5))


def test_the_padding_of_a_descriptor_counts_only_with_the_explicit_style() -> None:
    given = Convolution2DOpDescriptor(**WEIGHTS, padding_style="TF_SAME", padding_left=7, padding_top=9)
    assert placed(given, (5, 5), (2, 4)) == ((0, 1), (1, 2), (5, 5))


def test_the_descriptors_order_is_x_then_y() -> None:
    """Ports that exchange them: pytorch/pytorch#82711, pytorch/executorch#1316."""
    of = Convolution2DOpDescriptor(stride_in_x=2, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    one = np.ones((1, 1, 1, 1), np.float32)
    assert mpsgraph.convolution_2d(np.ones((1, 4, 4, 1), np.float32), one, of).shape == (1, 4, 2, 1)
    assert mpsgraph.convolution_transpose_2d(row(1, 2), one, (1, 1, 4, 1), of).ravel().tolist() == [1, 0, 2, 0]


@pytest.mark.parametrize("alpha", [-0.5, 0.25, 1.0, 3.0])
def test_leaky_relu_is_the_maximum_for_any_alpha(alpha: float) -> None:
    x, g = np.array([-2.0, -1, 0, 1, 2]), np.array([1.0, 10, 100, 1000, 10000])
    np.testing.assert_array_equal(mpsgraph.leaky_relu(x, alpha), np.maximum(x, alpha * x))
    slope = np.where(x == 0, alpha, np.where((x > 0) == (alpha <= 1), 1, alpha))
    np.testing.assert_array_equal(mpsgraph.leaky_relu_gradient(g, x, alpha), g * slope)


def test_softmax_that_is_0_has_a_finite_logarithm() -> None:
    x, labels = np.float32([[-100, 88, 0]]), np.float32([[1, 0, 0]])
    assert mpsgraph.softmax_cross_entropy(x, labels, -1, "none").tolist() == [188]
    assert mpsgraph.softmax(x, -1)[0, 0] == 0


def test_float16_is_rounded_once() -> None:
    x = random.standard_normal((3, 40)).astype(np.float16)
    mean, variance = (f(x.astype(np.float32), [1]) for f in (mpsgraph.mean_of_tensor, mpsgraph.variance_of_tensor))
    y = mpsgraph.softmax_gradient(x, x, 1)
    assert y.dtype == np.float16
    wanted = mpsgraph.softmax_gradient(x.astype(np.float32), x.astype(np.float32), 1).astype(np.float16)
    np.testing.assert_array_equal(y, wanted)
    assert mpsgraph.variance_of_tensor(x, [1]).dtype == np.float16
    np.testing.assert_array_equal(mpsgraph.variance_of_tensor(x, [1]), variance.astype(np.float16))
    np.testing.assert_array_equal(mpsgraph.mean_of_tensor(x, [1]), mean.astype(np.float16))


@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
@pytest.mark.parametrize("include", [False, True])
def test_the_gradient_of_an_average_is_its_adjoint(dilation: tuple[int, int], include: bool) -> None:
    of = Pooling2DOpDescriptor(
        kernel_width=3, kernel_height=2, stride_in_x=2, stride_in_y=1, dilation_rate_in_y=dilation[0],
        dilation_rate_in_x=dilation[1], padding_left=2, padding_right=1, padding_top=1, ceil_mode=True,
        include_zero_pad_to_average=include, data_layout="NCHW",
    )  # fmt: skip
    x = random.standard_normal((2, 3, 7, 8))
    y = mpsgraph.avg_pooling_2d(x, of)
    g = random.standard_normal(y.shape)
    np.testing.assert_allclose((y * g).sum(), (x * mpsgraph.avg_pooling_2d_gradient(g, x, of)).sum())
    ones = mpsgraph.avg_pooling_2d(np.ones_like(x), of)
    assert (ones < 1 - 1e-9).any() == include


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_layouts_are_conversions_at_the_border(layout: str) -> None:
    x = random.standard_normal((2, 5, 6, 4)).astype(np.float32)
    w = random.standard_normal((3, 2, 2, 6)).astype(np.float32)
    of = {"stride_in_x": 2, "stride_in_y": 1, "groups": 2, "padding_style": "TF_SAME"}
    wanted = mpsgraph.convolution_2d(x, w, Convolution2DOpDescriptor(**of, data_layout="NHWC", weights_layout="HWIO"))
    other = Convolution2DOpDescriptor(**of, data_layout=layout, weights_layout="OIHW")
    order = (0, 1, 2, 3) if layout == "NHWC" else (0, 3, 1, 2)
    found = mpsgraph.convolution_2d(x.transpose(order), w.transpose(3, 2, 0, 1), other)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, wanted.transpose(order))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "CHW", "HWC", "HW"])
def test_arranged_is_undone(layout: str) -> None:
    x = random.standard_normal((1, 3, 1, 4)[: len(layout)])
    np.testing.assert_array_equal(given_back(arranged("x", x, layout, "NHWC"), "NHWC", layout), x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inputs_are_not_written_and_not_returned(name: str) -> None:
    given = CALLS[name]
    arrays = [value for value in given.values() if isinstance(value, np.ndarray)]
    before = [array.copy() for array in arrays]
    results = FUNCTIONS[name].call(**given)
    for result in results if isinstance(results, tuple) else (results,):
        assert isinstance(result, np.ndarray)
        assert result.flags.c_contiguous
        assert not any(np.shares_memory(result, array) for array in arrays)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


IMAGE = random.standard_normal((1, 3, 3, 2)).astype(np.float32)
KERNEL = random.standard_normal((1, 1, 2, 2)).astype(np.float32)
PIXELWISE = Convolution2DOpDescriptor(**WEIGHTS)
DEPTHWISE = DepthwiseConvolution2DOpDescriptor(data_layout="NHWC", weights_layout="HWIO")
DEEP = IMAGE.repeat(2, axis=3)
IDENTITY = Pooling2DOpDescriptor(kernel_width=1, **ROW)
NUMBERED = Pooling2DOpDescriptor(kernel_width=1, return_indices_mode="local_flatten_2d", **ROW)
MEAN, VARIANCE = IMAGE.mean((0, 1, 2), keepdims=True), IMAGE.var((0, 1, 2), keepdims=True)
MOMENTS = {"values": IMAGE, "momentum": IMAGE, "velocity": IMAGE**2, "maximum_velocity": IMAGE**2, "gradient": IMAGE}
BETAS = {"beta1": 0.5, "beta2": 0.5, "epsilon": 0.0}
AT = {"center_result": True, "align_corners": False, "layout": "NHWC"}
CALLS: dict[str, dict[str, Any]] = {
    "convolution_2d": {"source": IMAGE, "weights": KERNEL, "descriptor": PIXELWISE},
    "convolution_2d_data_gradient": {
        "incoming_gradient": IMAGE, "weights": KERNEL, "output_shape": IMAGE.shape, "descriptor": PIXELWISE},
    "convolution_2d_weights_gradient": {
        "incoming_gradient": IMAGE, "source": IMAGE, "output_shape": KERNEL.shape, "descriptor": PIXELWISE},
    "convolution_transpose_2d": {
        "source": IMAGE, "weights": KERNEL, "output_shape": IMAGE.shape, "descriptor": PIXELWISE},
    "convolution_transpose_2d_data_gradient": {
        "incoming_gradient": IMAGE, "weights": KERNEL, "output_shape": IMAGE.shape, "descriptor": PIXELWISE},
    "convolution_transpose_2d_weights_gradient": {
        "incoming_gradient": IMAGE, "source": IMAGE, "output_shape": KERNEL.shape, "descriptor": PIXELWISE},
    "depthwise_convolution_2d": {"source": IMAGE, "weights": KERNEL, "descriptor": DEPTHWISE},
    "depthwise_convolution_2d_data_gradient": {
        "incoming_gradient": DEEP, "weights": KERNEL, "output_shape": IMAGE.shape, "descriptor": DEPTHWISE},
    "depthwise_convolution_2d_weights_gradient": {
        "incoming_gradient": DEEP, "source": IMAGE, "output_shape": KERNEL.shape, "descriptor": DEPTHWISE},
    **{f"{kind}_pooling_2d": {"source": IMAGE, "descriptor": IDENTITY} for kind in ("max", "avg")},
    **{
        f"{kind}_pooling_2d_gradient": {"gradient": IMAGE, "source": IMAGE, "descriptor": IDENTITY}
        for kind in ("max", "avg")
    },
    "max_pooling_2d_return_indices": {"source": IMAGE, "descriptor": NUMBERED},
    "max_pooling_2d_gradient_from_indices": {
        "gradient": IMAGE, "indices": np.zeros(IMAGE.shape, np.int32), "output_shape": IMAGE.shape,
        "descriptor": NUMBERED},
    "mean_of_tensor": {"tensor": IMAGE, "axes": [0, 1, 2]},
    "variance_of_tensor": {"tensor": IMAGE, "axes": [0, 1, 2], "mean": MEAN},
    "normalization": {"tensor": IMAGE, "mean": MEAN, "variance": VARIANCE, "gamma": VARIANCE, "beta": MEAN},
    "normalization_gamma_gradient": {
        "incoming_gradient": IMAGE, "source": IMAGE, "mean": MEAN, "variance": VARIANCE, "reduction_axes": [0, 1, 2]},
    "normalization_beta_gradient": {"incoming_gradient": IMAGE, "source": IMAGE, "reduction_axes": [0, 1, 2]},
    "normalization_gradient": {
        "incoming_gradient": IMAGE, "source": IMAGE, "mean": MEAN, "variance": VARIANCE, "gamma": VARIANCE,
        "gamma_gradient": MEAN, "beta_gradient": MEAN, "reduction_axes": [0, 1, 2]},
    "resize": {"images": IMAGE, "size": (3, 3), "mode": "nearest", **AT},
    "resize_gradient": {"gradient": IMAGE, "input": IMAGE, "mode": "nearest", **AT},
    "resize_nearest": {"images": IMAGE, "size": (3, 3), "nearest_rounding_mode": "ceil", **AT},
    "resize_nearest_gradient": {"gradient": IMAGE, "input": IMAGE, "nearest_rounding_mode": "ceil", **AT},
    "resize_bilinear": {"images": IMAGE, "size": (3, 3), **AT},
    "resize_bilinear_gradient": {"gradient": IMAGE, "input": IMAGE, **AT},
    **{name: {"tensor": IMAGE} for name in ("relu", "sigmoid", "square_root")},
    **{f"{name}_gradient": {"incoming_gradient": IMAGE, "source": IMAGE} for name in ("relu", "sigmoid")},
    "leaky_relu": {"tensor": IMAGE, "alpha": 0.5},
    "leaky_relu_gradient": {"incoming_gradient": IMAGE, "source": IMAGE, "alpha": 0.5},
    "softmax": {"tensor": IMAGE, "axis": 3},
    "softmax_gradient": {"incoming_gradient": IMAGE, "source": IMAGE, "axis": 3},
    "softmax_cross_entropy": {"source": IMAGE, "labels": IMAGE, "axis": 3, "reduction_type": "none"},
    "softmax_cross_entropy_gradient": {
        "incoming_gradient": IMAGE[..., 0], "source": IMAGE, "labels": IMAGE, "axis": 3, "reduction_type": "none"},
    "stochastic_gradient_descent": {"learning_rate": 0.5, "values": IMAGE, "gradient": IMAGE},
    "adam": {"learning_rate": 0.5, **BETAS, "beta1_power": 0.5, "beta2_power": 0.5, **MOMENTS},
    "adam_with_current_learning_rate": {"current_learning_rate": 0.5, **BETAS, **MOMENTS},
    "dropout": {"tensor": IMAGE, "rate": 0.5},
    **{
        name: {"primary": IMAGE, "secondary": IMAGE}
        for name in ("addition", "subtraction", "multiplication", "division")
    },
    **{
        f"reduction_{name}": {"tensor": IMAGE[:, :1, :1, :1], "axes": [1]}
        for name in ("sum", "maximum", "minimum", "maximum_propagate_nan", "minimum_propagate_nan")
    },
    **{f"reduction_arg_{name}": {"tensor": IMAGE, "axis": 1} for name in ("maximum", "minimum")},
    "matrix_multiplication": {"primary": IMAGE[0, 0], "secondary": IMAGE[0, 0].T},
    "reshape": {"tensor": IMAGE, "shape": IMAGE.shape},
    "transpose": {"tensor": IMAGE, "dimension": 0, "with_dimension": 0},
    "broadcast": {"tensor": IMAGE, "shape": IMAGE.shape},
}  # fmt: skip
"""A legal call of every function whose results may be its inputs themselves."""

# --- errors -----------------------------------------------------------------------------------------------------------


def pooled(**changes: Any) -> Callable[[], object]:
    return lambda: Pooling2DOpDescriptor(**{"kernel_width": 2, **ROW} | changes)


def called(name: str, **changes: Any) -> Callable[[], object]:
    return lambda: FUNCTIONS[name].call(**CALLS[name] | changes)


HALF = IMAGE.astype(np.float16)
ILLEGAL: list[tuple[Callable[[], object], type[Exception], str]] = [
    (pooled(kernel_width=0), ValueError, "kernel_width is 0; it must be an integer >= 1"),
    (pooled(stride_in_x=True), TypeError, "stride_in_x is the bool True; it must be an integer >= 1"),
    (pooled(padding_left=-1), ValueError, "padding_left is -1; it must be an integer >= 0"),
    (pooled(padding_style="SAME"), ValueError, "padding_style is 'SAME'; it must be one of EXPLICIT .0., TF_VALID .1."),
    (pooled(padding_style=3), UnsupportedError, "padding_style is EXPLICIT_OFFSET, which Apple documents for the sten"),
    (pooled(data_layout="HWIO"), ValueError, "data_layout is 'HWIO'; it must be one of NHWC .1., NCHW .0."),
    (pooled(data_layout=PaddingStyle.TF_VALID), ValueError, "data_layout is <PaddingStyle.TF_VALID: 1>; it must be on"),
    (pooled(ceil_mode=1), TypeError, "ceil_mode is 1 of type int; it must be True or False"),
    (pooled(count_include_pad=True), TypeError, "no property 'count_include_pad': MPSGraph has include_zero_pad_to_av"),
    (pooled(kernelWidth=2), TypeError, "no property 'kernelWidth': did you mean kernel_width"),
    (pooled(return_indices_mode="2d"), ValueError, "return_indices_mode is '2d'; it must be one of NONE .0., GLOBAL_F"),
    (lambda: Convolution2DOpDescriptor(**WEIGHTS | {"weights_layout": 1}), ValueError, "weights_layout is 1; .* HWIO"),
    (called("relu", tensor=[1, 2]), TypeError, "tensor has dtype int64; it must be float16 or float32"),
    (called("relu", tensor=None), TypeError, "tensor is None; it must be a tensor"),
    (called("relu", tensors=None), TypeError, "relu has no parameter 'tensors': did you mean tensor"),
    (called("convolution_2d", weights=HALF), TypeError, "weights has dtype float16 and source has float32; all tensor"),
    (called("convolution_2d", source=IMAGE[0]), ShapeError, r"source has shape \(3, 3, 2\); with the layout NHWC it m"),
    (called("convolution_2d", descriptor=DEPTHWISE), TypeError, "descriptor is Depthwise.*; it must be a Convolution2"),
    (called("convolution_2d", source=DEEP), ShapeError, "before the convolution has 4 channels; it must have I groups"),
    (called("convolution_2d", weights=KERNEL.repeat(4, 0)), ShapeError, "no window fits: the height of the source is"),
    (called("convolution_2d_data_gradient", output_shape=(1, 4, 3, 2)), ShapeError, r"the latter must be \(1, 4, 3, 2"),
    (called("convolution_2d_data_gradient", output_shape=(3, 3)), ShapeError, r"output_shape is \(3, 3\); with the la"),
    (called("convolution_transpose_2d", output_shape=(1, 2, 3, 2)), ShapeError, r"must be \(1, 2, 3, 2\), or smaller"),
    (called("depthwise_convolution_2d", weights=KERNEL[:, :, :1]), ShapeError, "weights are O, H, W, I"),
    (called("max_pooling_2d_gradient", gradient=DEEP), ShapeError, r"the gradient must be \(1, 3, 3, 2\)"),
    (called("max_pooling_2d_return_indices", descriptor=IDENTITY), ValueError, "return_indices_mode is NONE, with wh"),
    (called("max_pooling_2d_gradient_from_indices", indices=IMAGE), TypeError, "indices has dtype float32"),
    (called("mean_of_tensor", axes=[0, 4]), ValueError, r"axes is \[0, 4\], with the axis 4; it must be .* in \[-4, 4"),
    (called("mean_of_tensor", axes=[0, -4]), ValueError, r"axes is \[0, -4\]; each axis may occur once"),
    (called("softmax", axis=1.0), ValueError, "axis is 1.0, with the axis 1.0"),
    (called("normalization", mean=MEAN[0]), ShapeError, "variance has shape .* they must be equal"),
    (called("normalization", mean=DEEP, variance=DEEP), ShapeError, "mean has shape .* length 1 on the axes over whic"),
    (called("normalization", gamma=DEEP), ShapeError, "gamma has shape .*; it must broadcast to the tensor's"),
    (called("normalization", variance=-VARIANCE), ValueError, "variance.0. is -.*; it must be >= 0"),
    (called("normalization", epsilon=-1.0), ValueError, "epsilon is -1.0; it must be a number >= 0"),
    (called("resize", mode="cubic"), ValueError, "mode is 'cubic'; it must be one of NEAREST .0., BILINEAR .1."),
    (called("resize", size=(0, 3)), ValueError, r"size\[0\] is 0; it must be an integer >= 1"),
    (called("resize", layout="NDHWC"), ValueError, "layout is 'NDHWC'; it must be one of NHWC"),
    (called("resize_bilinear", center_result=None), TypeError, "center_result or align_corners is missing"),
    (called("resize_bilinear", scale_offset=[1, 2]), ValueError, r"scale_offset is \[1, 2\]; it must be \[scaleY, sca"),
    (called("resize_gradient", gradient=DEEP), ShapeError, "but for H and W they must be equal"),
    (called("softmax_cross_entropy", labels=DEEP), ShapeError, "labels has shape .* they must be equal"),
    (called("softmax_cross_entropy", reduction_type="max"), ValueError, "reduction_type is 'max'; it must be one of N"),
    (called("softmax_cross_entropy_gradient", reduction_type="sum"), ShapeError, "incoming_gradient has .*; it must h"),
    (called("adam", beta1=1.0), ValueError, "beta1 is 1.0; it must be a finite number >= 0 and < 1"),
    (called("adam", velocity=DEEP), ShapeError, "velocity has shape .* they must be equal"),
    (called("adam", learning_rate=IMAGE), TypeError, "learning_rate has shape .*; it must be a number, or a"),
    (called("dropout", rate=1.0), ValueError, "rate is 1.0; it must be a finite number > 0 and < 1"),
    (called("addition", secondary=IMAGE[:, :2]), ShapeError, "the lengths must be equal, or one of them 1"),
    (called("matrix_multiplication", secondary=IMAGE[0, 0]), ShapeError, r"they must be \(M, K\) and \(K, N\)"),
    (called("reshape", shape=(5, -1)), ShapeError, r"shape is \(5, -1\); it must have as many elements as the tensor"),
    (called("broadcast", shape=(3, 2)), ShapeError, r"shape is \(3, 2\); the tensor of shape .* must broadcast to it"),
    (called("mean_of_tensor", tensor=IMAGE[:0]), ShapeError, r"tensor has shape \(0, 3, 3, 2\); each axis must be >="),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), ILLEGAL, ids=[text[:40] for _, _, text in ILLEGAL])
def test_what_does_not_fit_is_named(call: Callable[[], object], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


def test_what_is_not_built_says_so() -> None:
    for name in ("convolution_3d", "max_pooling_4d", "lstm"):
        with pytest.raises(
            UnsupportedError, match=rf"^{name} \(macOS 1\d\.\d\) is not built: mpsref has .*(use|unroll)"
        ):
            getattr(not_built, name)(1, descriptor=None)
    with pytest.raises(AttributeError, match="did you mean Pooling2DOpDescriptor"):
        _ = mpsgraph.MPSGraphPooling2DOpDescriptor


@pytest.mark.parametrize("name", ["convolution_2d", "max_pooling_2d", "avg_pooling_2d", "relu", "addition"])
def test_an_empty_batch_has_an_empty_result(name: str) -> None:
    given = {key: value[:0] if value is IMAGE else value for key, value in CALLS[name].items()}
    assert FUNCTIONS[name].call(**given).shape == (0, 3, 3, 2)


def test_each_function_says_where_it_comes_from() -> None:
    for name, one in FUNCTIONS.items():
        doc = one.call.__doc__ or ""
        assert f"``{one.selector}`` in ``{one.header}``, macOS {one.since} [" in doc, name
        assert "Examples\n--------\n>>> " in doc, name
        assert one.selector.endswith(":name:"), name
        assert set(CALLS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_documentation_has_each_parameter_once_and_the_result(name: str) -> None:
    """Also parameters that are as in other functions, which are documented in one place."""
    call = FUNCTIONS[name].call
    _, _, parameters = (call.__doc__ or "").partition("Parameters\n----------\n")
    entries, _, rest = parameters.partition("\n\nReturns\n-------\n")
    heads = [re.split(" :|,? \\*", line)[0] for line in entries.splitlines() if not line.startswith(" ")]
    found = [one for head in heads for one in head.split(", ")]
    assert sorted([*found, "backend"]) == sorted(inspect.signature(call).parameters)
    assert re.match(r"(\w+, )*\w+ : |ndarray|tuple", rest)


def test_what_a_function_documents_itself_replaces_what_is_the_same_in_others() -> None:
    assert "axis : int\n    The axis of the forward pass." in (FUNCTIONS["softmax_gradient"].call.__doc__ or "")
    assert "axis : int\n    The axis; a negative one counts" in (FUNCTIONS["softmax"].call.__doc__ or "")
