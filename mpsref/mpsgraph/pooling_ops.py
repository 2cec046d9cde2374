"""Maximum and average pooling, and their gradients.

With (i, t) standing for a window and a tap on both axes, and ``j = i stride + t dilation - padding before``:

Maximum  ``result[i] = max over the taps inside the image of source[j]``; the gradient goes to the pixel of the first
         maximum in raster order, and ``indices[i]`` is its number in the image, or in the window
Average  ``result[i] = sum over the taps inside the image of source[j] / N(i)``; ``result[j] = sum over (i, t) at j of
         gradient[i] / N(i)``

Padding is never a candidate for a maximum [math]: a window wholly in the padding is -inf [choice
mpsgraph-empty-window]. NaN wins, and of several NaN the first [choice mpsgraph-max-nan]; of equal maxima the first one
[choice mpsgraph-max-tie]. N counts the taps inside the image, or with ``include_zero_pad_to_average`` all taps [doc],
also those beyond the padding where ceil mode has a window more [choice mpsgraph-average-overhang]. An average without
any taps is 0 [choice mpsgraph-empty-average]. Sizes: see :mod:`mpsref.mpsgraph.descriptors`.

GLOBAL_FLATTEN_nD numbers the elements of the last n axes of the data layout: H and W of NCHW for 2 [doc]. Of NHWC
these are W and C, read literally, so that an index lacks the row [choice mpsgraph-indices-nhwc]. LOCAL_FLATTEN_nD
numbers the taps of the window; taps in the padding count [choice mpsgraph-local-indices].

Source: ``MPSGraphPoolingOps.h``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from mpsref.arguments.arrays import Array, Shape, as_array
from mpsref.arguments.parameters import Pair
from mpsref.backend import BackendLike
from mpsref.errors import ShapeError
from mpsref.geometry import EdgeMode
from mpsref.kernels import Arithmetic, Convolution, GraphPoolingMax, PoolingAverage
from mpsref.kernels.graph_pooling import MODES
from mpsref.mpsgraph.descriptors import (
    Pooling2DOpDescriptor,
    PoolingReturnIndicesMode,
    TensorNamedDataLayout,
    arranged,
    described,
    dilations,
    given_back,
    member,
    placed,
    shape_in,
    strides,
)
from mpsref.mpsgraph.function import Tensor, flat, function

HEADER = "MPSGraphPoolingOps.h"
LOCAL = PoolingReturnIndicesMode.LOCAL_FLATTEN_4D


def _windows(of: Pooling2DOpDescriptor, source: Shape, gradient: Array | None = None) -> tuple[Pair, Pair, Pair, Pair]:
    """Return kernel, padding before and after, and number of windows; check the gradient of an image NHWC."""
    kernel = of.kernel_height, of.kernel_width
    before, after, windows = placed(of, (source[1], source[2]), kernel)
    expected = (source[0], *windows, source[3])
    if gradient is not None and gradient.shape != expected:
        raise ShapeError(
            f"gradient is N, H, W, C = {gradient.shape} and the source {source}; with the descriptor the gradient must "
            f"be {expected}"
        )
    return kernel, before, after, windows


def _centre(kernel: Pair, dilation: Pair = (1, 1), before: Pair = (0, 0)) -> Pair:
    """Return the offset of a kernel of mpsref whose first tap is ``before`` the image."""
    y, x = (((k - 1) * d + 1) // 2 - p for k, d, p in zip(kernel, dilation, before, strict=True))
    return y, x


def _numbered(of: Pooling2DOpDescriptor, shape: Shape, mode: PoolingReturnIndicesMode) -> tuple[GraphPoolingMax, Pair]:
    """Return max pooling with indices of a mode, for images of a shape NHWC, and the number of windows."""
    kernel, before, _, windows = _windows(of, shape)
    layout: Literal["NHWC", "NCHW"] = "NHWC" if of.data_layout == TensorNamedDataLayout.NHWC else "NCHW"
    offset = _centre(kernel, dilations(of), before)
    return GraphPoolingMax(kernel, strides(of), offset, dilations(of), MODES[mode - 1], layout), windows


def _maximum(
    of: Pooling2DOpDescriptor, x: Array, mode: PoolingReturnIndicesMode, backend: BackendLike
) -> tuple[Array, Array]:
    """Return the maxima of an image NHWC, and their indices; NaN, which the kernel skips, is the largest number."""
    pool, windows = _numbered(of, x.shape, mode)
    y, indices = pool.forward(x, windows, backend=backend)
    is_nan = np.isnan(x)
    if not is_nan.any():
        return y, indices
    _, indices = pool.forward(np.where(is_nan, np.inf, np.minimum(x, np.finfo(x.dtype).max)), windows, backend=backend)
    has_nan, _ = pool.forward(is_nan.astype(x.dtype), windows, backend=backend)
    return np.where(has_nan == 1, np.nan, y), indices


def _average(of: Pooling2DOpDescriptor, shape: Shape) -> PoolingAverage:
    """Return the average pooling of images without dilation."""
    kernel, before, _, _ = _windows(of, shape)
    edge: EdgeMode = "zero" if of.include_zero_pad_to_average else "clamp"
    return PoolingAverage(kernel, strides(of), _centre(kernel, before=before), edge)


def _dilated(of: Pooling2DOpDescriptor, shape: Shape) -> tuple[Convolution, Array, Array]:
    """Return a depthwise convolution, the weights with which it is a sum over windows, and N of each window."""
    kernel, before, _, windows = _windows(of, shape)
    layer = Convolution(kernel, strides(of), dilations(of), _centre(kernel, dilations(of), before), shape[3])
    counts = []
    for window, length, number in zip(layer.windows, shape[1:3], windows, strict=True):
        taps = [[0 <= window.tap(i, t) < length for t in range(window.kernel)] for i in range(number)]
        counts.append(np.full(number, window.kernel) if of.include_zero_pad_to_average else np.sum(taps, axis=1))
    n = np.multiply.outer(*counts).astype(np.float64)
    return layer, np.ones((shape[3], *kernel, 1)), np.maximum(n, 1)[None, :, :, None]


def _quotient(x: Array, n: Array, backend: BackendLike) -> Array:
    divisors = np.broadcast_to(n, x.shape).astype(x.dtype)
    return Arithmetic("divide").forward(flat(x), flat(divisors), backend=backend).reshape(x.shape)


def _mode_of(of: Pooling2DOpDescriptor) -> PoolingReturnIndicesMode:
    mode = member("return_indices_mode", of.return_indices_mode, PoolingReturnIndicesMode)
    if mode == PoolingReturnIndicesMode.NONE:
        raise ValueError(
            "return_indices_mode is NONE, with which there are no indices; it must be one of "
            f"{', '.join(one.name for one in list(PoolingReturnIndicesMode)[1:])}"
        )
    return mode


def _in_layout(of: Pooling2DOpDescriptor, image: Array) -> Array:
    return given_back(image, "NHWC", of.data_layout)


@function("maxPooling2DWithSourceTensor:descriptor:name:", "11.0", HEADER, "source")
def max_pooling_2d(source: Tensor, descriptor: Pooling2DOpDescriptor, *, backend: BackendLike = None) -> Array:
    """Take the maximum of each window.

    Parameters
    ----------
    source : array_like, in the data layout
        Images.
    descriptor : Pooling2DOpDescriptor
        Kernel, strides, dilation rates, padding and layout.

    Returns
    -------
    ndarray, in the data layout

    Examples
    --------
    >>> from mpsref.mpsgraph import Pooling2DOpDescriptor
    >>> d = Pooling2DOpDescriptor(kernel_width=2, kernel_height=1, stride_in_x=1, stride_in_y=1, dilation_rate_in_x=2,
    ...                           padding_left=1, padding_right=1, data_layout="NHWC")
    >>> max_pooling_2d(np.float32([9, 1, 2, 3]).reshape(1, 1, 4, 1), d).ravel().tolist()
    [1.0, 9.0, 3.0, 2.0]
    """
    described("descriptor", descriptor, Pooling2DOpDescriptor)
    x = arranged("source", source, descriptor.data_layout, "NHWC")
    return _in_layout(descriptor, _maximum(descriptor, x, LOCAL, backend)[0])


@function("maxPooling2DReturnIndicesWithSourceTensor:descriptor:name:", "12.2", HEADER, "source")
def max_pooling_2d_return_indices(
    source: Tensor, descriptor: Pooling2DOpDescriptor, *, backend: BackendLike = None
) -> tuple[Array, Array]:
    """Take the maximum of each window, and number it.

    Parameters
    ----------
    source : array_like, in the data layout
        Images.
    descriptor : Pooling2DOpDescriptor
        Kernel, strides, dilation rates, padding, layout, and ``return_indices_mode``: GLOBAL numbers the elements of
        the last axes of the data layout, LOCAL those of the window.

    Returns
    -------
    result, indices : ndarray, in the data layout
        The maxima, and their numbers, int32; -1 for a window wholly in the padding.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import Pooling2DOpDescriptor
    >>> d = Pooling2DOpDescriptor(kernel_width=2, kernel_height=1, stride_in_x=2, stride_in_y=1, data_layout="NCHW",
    ...                           return_indices_mode="global_flatten_2d")
    >>> result, indices = max_pooling_2d_return_indices(np.float32([9, 1, 2, 3]).reshape(1, 1, 1, 4), d)
    >>> result.ravel().tolist(), indices.ravel().tolist()
    ([9.0, 3.0], [0, 3])
    """
    described("descriptor", descriptor, Pooling2DOpDescriptor)
    mode = _mode_of(descriptor)
    x = arranged("source", source, descriptor.data_layout, "NHWC")
    y, indices = _maximum(descriptor, x, mode, backend)
    return _in_layout(descriptor, y), _in_layout(descriptor, indices)


@function("maxPooling2DGradientWithGradientTensor:sourceTensor:descriptor:name:", "11.0", HEADER, "gradient", "source")
def max_pooling_2d_gradient(
    gradient: Tensor, source: Tensor, descriptor: Pooling2DOpDescriptor, *, backend: BackendLike = None
) -> Array:
    """Compute the gradient of a maximum for its source, whose maxima are searched again.

    Parameters
    ----------
    gradient, source : array_like, in the data layout
        Gradient of the result, and the images of the forward pass.
    descriptor : Pooling2DOpDescriptor
        That of the forward pass.

    Returns
    -------
    ndarray, in the data layout
        Of the shape of ``source``.

    Examples
    --------
    >>> from mpsref.mpsgraph import Pooling2DOpDescriptor
    >>> d = Pooling2DOpDescriptor(kernel_width=2, kernel_height=1, stride_in_x=1, stride_in_y=1, data_layout="NHWC")
    >>> g, source = np.float32([1, 10, 100]).reshape(1, 1, 3, 1), np.float32([2, 2, 1, 0]).reshape(1, 1, 4, 1)
    >>> max_pooling_2d_gradient(g, source, d).ravel().tolist()
    [1.0, 10.0, 100.0, 0.0]
    """
    described("descriptor", descriptor, Pooling2DOpDescriptor)
    g = arranged("gradient", gradient, descriptor.data_layout, "NHWC")
    x = arranged("source", source, descriptor.data_layout, "NHWC")
    _windows(descriptor, x.shape, g)
    indices = _maximum(descriptor, x, LOCAL, backend)[1]
    pool, _ = _numbered(descriptor, x.shape, LOCAL)
    return _in_layout(descriptor, pool.gradient(g, indices, x.shape, backend=backend))


@function(
    "maxPooling2DGradientWithGradientTensor:indicesTensor:outputShape:descriptor:name:", "13.0", HEADER, "gradient"
)
def max_pooling_2d_gradient_from_indices(
    gradient: Tensor,
    indices: Tensor,
    output_shape: Shape,
    descriptor: Pooling2DOpDescriptor,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of a maximum from the indices of the forward pass; overlapping windows add up.

    Parameters
    ----------
    gradient : array_like, in the data layout
        Gradient of the result.
    indices : array_like of int32, in the data layout
        The second result of :func:`max_pooling_2d_return_indices`. A number of no pixel of its window has no effect.
    descriptor : Pooling2DOpDescriptor
        That of the forward pass, with its ``return_indices_mode``, which must number all axes of the window.

    Returns
    -------
    ndarray, in the data layout
        Of the shape ``output_shape``.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import Pooling2DOpDescriptor
    >>> d = Pooling2DOpDescriptor(kernel_width=2, kernel_height=1, stride_in_x=1, stride_in_y=1, data_layout="NCHW",
    ...                           return_indices_mode="global_flatten_2d")
    >>> g, indices = np.float32([1, 10, 100]).reshape(1, 1, 1, 3), np.int32([1, 1, 3]).reshape(1, 1, 1, 3)
    >>> max_pooling_2d_gradient_from_indices(g, indices, (1, 1, 1, 4), d).ravel().tolist()
    [0.0, 11.0, 0.0, 100.0]
    """
    described("descriptor", descriptor, Pooling2DOpDescriptor)
    mode = _mode_of(descriptor)
    g = arranged("gradient", gradient, descriptor.data_layout, "NHWC")
    i = arranged("indices", as_array("indices", indices), descriptor.data_layout, "NHWC")
    shape = shape_in("output_shape", output_shape, descriptor.data_layout, "NHWC")
    _windows(descriptor, shape, g)
    pool, _ = _numbered(descriptor, shape, mode)
    return _in_layout(descriptor, pool.gradient(g, i, shape, backend=backend))


@function("avgPooling2DWithSourceTensor:descriptor:name:", "11.0", HEADER, "source")
def avg_pooling_2d(source: Tensor, descriptor: Pooling2DOpDescriptor, *, backend: BackendLike = None) -> Array:
    """Take the mean of each window.

    Parameters
    ----------
    source : array_like, in the data layout
        Images.
    descriptor : Pooling2DOpDescriptor
        Kernel, strides, dilation rates, padding, layout, and whether padding counts.

    Returns
    -------
    ndarray, in the data layout

    Examples
    --------
    >>> from mpsref.mpsgraph import Pooling2DOpDescriptor
    >>> d = dict(kernel_width=2, kernel_height=1, stride_in_x=2, stride_in_y=1, padding_left=1, data_layout="NHWC")
    >>> source = np.float32([2, 4, 8]).reshape(1, 1, 3, 1)
    >>> avg_pooling_2d(source, Pooling2DOpDescriptor(**d)).ravel().tolist()
    [2.0, 6.0]
    >>> avg_pooling_2d(source, Pooling2DOpDescriptor(**d, include_zero_pad_to_average=True)).ravel().tolist()
    [1.0, 6.0]
    """
    described("descriptor", descriptor, Pooling2DOpDescriptor)
    x = arranged("source", source, descriptor.data_layout, "NHWC")
    windows = _windows(descriptor, x.shape)[3]
    if dilations(descriptor) == (1, 1):
        y = _average(descriptor, x.shape).forward(x, windows, backend=backend)
    else:
        layer, ones, n = _dilated(descriptor, x.shape)
        y = _quotient(layer.forward(x, ones.astype(x.dtype), None, windows, backend=backend), n, backend)
    return _in_layout(descriptor, y)


@function("avgPooling2DGradientWithGradientTensor:sourceTensor:descriptor:name:", "11.0", HEADER, "gradient", "source")
def avg_pooling_2d_gradient(
    gradient: Tensor, source: Tensor, descriptor: Pooling2DOpDescriptor, *, backend: BackendLike = None
) -> Array:
    """Compute the gradient of a mean for its source, of which only the shape counts.

    Parameters
    ----------
    gradient, source : array_like, in the data layout
        Gradient of the result, and the images of the forward pass.
    descriptor : Pooling2DOpDescriptor
        That of the forward pass.

    Returns
    -------
    ndarray, in the data layout
        Of the shape of ``source``.

    Examples
    --------
    >>> from mpsref.mpsgraph import Pooling2DOpDescriptor
    >>> d = Pooling2DOpDescriptor(kernel_width=2, kernel_height=1, stride_in_x=1, stride_in_y=1, data_layout="NHWC")
    >>> avg_pooling_2d_gradient(np.float32([2, 20]).reshape(1, 1, 2, 1), np.zeros((1, 1, 3, 1), np.float32), d).ravel()
    array([ 1., 11., 10.], dtype=float32)
    """
    described("descriptor", descriptor, Pooling2DOpDescriptor)
    g = arranged("gradient", gradient, descriptor.data_layout, "NHWC")
    shape = arranged("source", source, descriptor.data_layout, "NHWC").shape
    _windows(descriptor, shape, g)
    if dilations(descriptor) == (1, 1):
        dx = _average(descriptor, shape).gradient(g, shape, backend=backend)
    else:
        layer, ones, n = _dilated(descriptor, shape)
        dx = layer.gradient_data(_quotient(g, n, backend), ones.astype(g.dtype), shape, backend=backend)
    return _in_layout(descriptor, dx)
