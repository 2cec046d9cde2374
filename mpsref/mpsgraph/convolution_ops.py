"""Convolution, its transpose, and the depthwise one, each with its gradients for data and weights.

With (i, t) standing for a window and a tap on both axes, and ``j = i stride + t dilation - padding before``:

Forward  ``result[n, i, o] = sum over t, c of source[n, j, group(o) I + c] weights[t, c, o]``, 0 outside the image
Data     ``result[n, j, group(o) I + c] = sum over (i, t) at j, o of incoming[n, i, o] weights[t, c, o]``
Weights  ``result[t, c, o] = sum over n, i of incoming[n, i, o] source[n, j, group(o) I + c]``

It is a cross-correlation: taps are not flipped. I is the number of channels of one group, and ``group(o)`` is
``o // (O / groups)`` [doc]. There is no bias and no activation. Pixels that no window reads get exactly 0 [math].

Source: ``MPSGraphConvolutionOps.h``, ``MPSGraphConvolutionTransposeOps.h``, ``MPSGraphDepthwiseConvolutionOps.h``.
"""

from __future__ import annotations

import functools
from typing import TypeAlias

from mpsref.arguments.arrays import Array, Shape
from mpsref.backend import BackendLike
from mpsref.errors import ShapeError
from mpsref.kernels import Convolution
from mpsref.mpsgraph.descriptors import (
    Convolution2DOpDescriptor,
    DepthwiseConvolution2DOpDescriptor,
    arranged,
    described,
    dilations,
    given_back,
    placed,
    shape_in,
    strides,
)
from mpsref.mpsgraph.function import Tensor, function

HEADER = "MPSGraphConvolutionOps.h"
TRANSPOSE = "MPSGraphConvolutionTransposeOps.h"
DEPTHWISE = "MPSGraphDepthwiseConvolutionOps.h"

_convolution = functools.lru_cache(maxsize=1024)(Convolution)

Descriptor: TypeAlias = Convolution2DOpDescriptor | DepthwiseConvolution2DOpDescriptor

# --- all of them as convolutions of images NHWC with weights OHWI -----------------------------------------------------


def _order(of: Descriptor) -> str:
    """Return the axes of weights that become OHWI; O of a depthwise convolution numbers the results of a channel."""
    return "OHWI" if isinstance(of, Convolution2DOpDescriptor) else "IOHW"


def _ohwi(of: Descriptor, moved: Shape) -> tuple[Shape, int]:
    """Return the shape OHWI of weights in the order of :func:`_order`, and the number of groups."""
    return (
        (moved, of.groups)
        if isinstance(of, Convolution2DOpDescriptor)
        else (
            (moved[0] * moved[1], *moved[2:], 1),
            moved[0],
        )
    )


def _layer(of: Descriptor, x: Shape, weights: tuple[Shape, int], y: Shape, may_end: bool = False) -> Convolution:
    """Return the kernel of a convolution from x to y, both NHWC, after a check of the shapes.

    y has all windows that fit; for a transposed convolution it ``may_end`` earlier.
    """
    (outputs, *kernel, inputs), groups = weights
    if inputs * groups != x[3] or outputs % groups:
        raise ShapeError(
            f"weights are O, H, W, I = {weights[0]} for groups = {groups}, and the image before the convolution has "
            f"{x[3]} channels; it must have I groups = {inputs * groups}, and groups must divide O"
        )
    before, _, windows = placed(of, (x[1], x[2]), (kernel[0], kernel[1]))
    fits = all(n <= most if may_end else n == most for n, most in zip(y[1:3], windows, strict=True))
    if y[0] != x[0] or y[3] != outputs or not fits:
        raise ShapeError(
            f"the image is N, H, W, C = {x} before the convolution and {y} after it; by the weights and the "
            f"descriptor the latter must be {(x[0], *windows, outputs)}{', or smaller in H and W' * may_end}"
        )
    extents = ((k - 1) * d + 1 for k, d in zip(kernel, dilations(of), strict=True))
    centre = tuple(extent // 2 - padding for extent, padding in zip(extents, before, strict=True))
    return _convolution((kernel[0], kernel[1]), strides(of), dilations(of), (centre[0], centre[1]), groups)


def _forward(of: Descriptor, name: str, image: Array, weights: Array, shape: object, backend: BackendLike) -> Array:
    """Convolve an image, to an image of a shape or with all windows."""
    x = arranged(name, image, of.data_layout, "NHWC")
    w = arranged("weights", weights, of.weights_layout, _order(of))
    ohwi, groups = _ohwi(of, w.shape)
    if shape is None:
        y: Shape = (x.shape[0], *placed(of, (x.shape[1], x.shape[2]), (ohwi[1], ohwi[2]))[2], ohwi[0])
    else:
        y = shape_in("output_shape", shape, of.data_layout, "NHWC")
    layer = _layer(of, x.shape, (ohwi, groups), y, shape is not None)
    result = layer.forward(x, w.reshape(ohwi), None, (y[1], y[2]), backend=backend)
    return given_back(result, "NHWC", of.data_layout)


def _data(
    of: Descriptor, name: str, image: Array, weights: Array, shape: object, may_end: bool, backend: BackendLike
) -> Array:
    """Return the gradient for the data from an image after the convolution."""
    g = arranged(name, image, of.data_layout, "NHWC")
    w = arranged("weights", weights, of.weights_layout, _order(of))
    x, ohwi = shape_in("output_shape", shape, of.data_layout, "NHWC"), _ohwi(of, w.shape)
    layer = _layer(of, x, ohwi, g.shape, may_end)
    return given_back(layer.gradient_data(g, w.reshape(ohwi[0]), x, backend=backend), "NHWC", of.data_layout)


def _weights(
    of: Descriptor,
    names: tuple[str, str],
    images: tuple[Array, Array],
    shape: object,
    may_end: bool,
    backend: BackendLike,
) -> Array:
    """Return the gradient for weights of a shape from the images after and before the convolution."""
    g, x = (arranged(name, image, of.data_layout, "NHWC") for name, image in zip(names, images, strict=True))
    moved = shape_in("output_shape", shape, of.weights_layout, _order(of))
    dw, _ = _layer(of, x.shape, _ohwi(of, moved), g.shape, may_end).gradient_weights(g, x, backend=backend)
    return given_back(dw.reshape(moved), _order(of), of.weights_layout)


# --- the functions of MPSGraph ----------------------------------------------------------------------------------------


@function("convolution2DWithSourceTensor:weightsTensor:descriptor:name:", "11.0", HEADER, "source", "weights")
def convolution_2d(
    source: Tensor, weights: Tensor, descriptor: Convolution2DOpDescriptor, *, backend: BackendLike = None
) -> Array:
    """Convolve images with weights.

    Parameters
    ----------
    source : array_like, in the data layout
        Images, of groups times I channels.
    weights : array_like, in the weights layout
        I input channels of each group, O output channels.
    descriptor : Convolution2DOpDescriptor
        Strides, dilation rates, groups, padding and layouts.

    Returns
    -------
    ndarray, in the data layout
        Of O channels.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import Convolution2DOpDescriptor
    >>> d = Convolution2DOpDescriptor(stride_in_x=2, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    >>> source, weights = np.float32([2, 3, 3, 0, 3]).reshape(1, 1, 5, 1), np.float32([1, 10]).reshape(1, 2, 1, 1)
    >>> convolution_2d(source, weights, d).ravel().tolist()
    [32.0, 3.0]
    """
    described("descriptor", descriptor, Convolution2DOpDescriptor)
    return _forward(descriptor, "source", source, weights, None, backend)


@function(
    "convolution2DDataGradientWithIncomingGradientTensor:weightsTensor:outputShape:forwardConvolutionDescriptor:name:",
    "11.0",
    HEADER,
    "incoming_gradient",
    "weights",
)
def convolution_2d_data_gradient(
    incoming_gradient: Tensor,
    weights: Tensor,
    output_shape: Shape,
    descriptor: Convolution2DOpDescriptor,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of a convolution for its source.

    Returns
    -------
    ndarray, in the data layout
        Of the shape ``output_shape``; pixels that no window reads are 0.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import Convolution2DOpDescriptor
    >>> d = Convolution2DOpDescriptor(stride_in_x=2, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    >>> g, weights = np.float32([1, 2]).reshape(1, 1, 2, 1), np.float32([1, 10]).reshape(1, 2, 1, 1)
    >>> convolution_2d_data_gradient(g, weights, (1, 1, 5, 1), d).ravel().tolist()
    [1.0, 10.0, 2.0, 20.0, 0.0]
    """
    described("descriptor", descriptor, Convolution2DOpDescriptor)
    return _data(descriptor, "incoming_gradient", incoming_gradient, weights, output_shape, False, backend)


@function(
    "convolution2DWeightsGradientWithIncomingGradientTensor:sourceTensor:outputShape:forwardConvolutionDescriptor:name:",
    "11.0",
    HEADER,
    "incoming_gradient",
    "source",
)
def convolution_2d_weights_gradient(
    incoming_gradient: Tensor,
    source: Tensor,
    output_shape: Shape,
    descriptor: Convolution2DOpDescriptor,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of a convolution for its weights.

    Parameters
    ----------
    output_shape : tuple of int
        Shape of the weights, in the weights layout. Apple's header calls it the "shape of forward source", wrongly:
        public code passes the weights' [obs mpsgraph-weights-shape].

    Returns
    -------
    ndarray, in the weights layout
        Of the shape ``output_shape``.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import Convolution2DOpDescriptor
    >>> d = Convolution2DOpDescriptor(stride_in_x=2, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    >>> g, source = np.float32([1, 2]).reshape(1, 1, 2, 1), np.float32([2, 3, 3, 0, 3]).reshape(1, 1, 5, 1)
    >>> convolution_2d_weights_gradient(g, source, (1, 2, 1, 1), d).ravel().tolist()
    [8.0, 3.0]
    """
    described("descriptor", descriptor, Convolution2DOpDescriptor)
    return _weights(
        descriptor, ("incoming_gradient", "source"), (incoming_gradient, source), output_shape, False, backend
    )


@function(
    "convolutionTranspose2DWithSourceTensor:weightsTensor:outputShape:descriptor:name:",
    "11.0",
    TRANSPOSE,
    "source",
    "weights",
)
def convolution_transpose_2d(
    source: Tensor,
    weights: Tensor,
    output_shape: Shape,
    descriptor: Convolution2DOpDescriptor,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the transpose of a convolution: exactly :func:`convolution_2d_data_gradient`.

    Parameters
    ----------
    source : array_like, in the data layout
        Images, of O channels.
    weights : array_like, in the weights layout
        O channels of the source, I of the result in each group.
    output_shape : tuple of int
        Shape of the result, in the data layout: it decides among the sizes that fit,
        ``(S - 1) stride + 1 + (K - 1) dilation <= size + padding`` for S pixels of the source.
    descriptor : Convolution2DOpDescriptor
        That of the convolution whose transpose this is.

    Returns
    -------
    ndarray, in the data layout
        Of the shape ``output_shape``.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import Convolution2DOpDescriptor
    >>> d = Convolution2DOpDescriptor(stride_in_x=2, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    >>> source, weights = np.float32([-3, 1]).reshape(1, 1, 2, 1), np.float32([-1]).reshape(1, 1, 1, 1)
    >>> convolution_transpose_2d(source, weights, (1, 1, 4, 1), d).ravel().tolist()
    [3.0, 0.0, -1.0, 0.0]
    """
    described("descriptor", descriptor, Convolution2DOpDescriptor)
    return _data(descriptor, "source", source, weights, output_shape, True, backend)


@function(
    "convolutionTranspose2DDataGradientWithIncomingGradientTensor:weightsTensor:outputShape:forwardConvolutionDescriptor:name:",
    "11.0",
    TRANSPOSE,
    "incoming_gradient",
    "weights",
    tag="math",
)
def convolution_transpose_2d_data_gradient(
    incoming_gradient: Tensor,
    weights: Tensor,
    output_shape: Shape,
    descriptor: Convolution2DOpDescriptor,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of a transposed convolution for its source: a convolution.

    Returns
    -------
    ndarray, in the data layout
        Of the shape ``output_shape``.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import Convolution2DOpDescriptor
    >>> d = Convolution2DOpDescriptor(stride_in_x=2, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    >>> g, weights = np.float32([1, 2, 3, 4]).reshape(1, 1, 4, 1), np.float32([-1]).reshape(1, 1, 1, 1)
    >>> convolution_transpose_2d_data_gradient(g, weights, (1, 1, 2, 1), d).ravel().tolist()
    [-1.0, -3.0]
    """
    described("descriptor", descriptor, Convolution2DOpDescriptor)
    return _forward(descriptor, "incoming_gradient", incoming_gradient, weights, output_shape, backend)


@function(
    "convolutionTranspose2DWeightsGradientWithIncomingGradientTensor:sourceTensor:outputShape:forwardConvolutionDescriptor:name:",
    "11.0",
    TRANSPOSE,
    "incoming_gradient",
    "source",
    tag="math",
)
def convolution_transpose_2d_weights_gradient(
    incoming_gradient: Tensor,
    source: Tensor,
    output_shape: Shape,
    descriptor: Convolution2DOpDescriptor,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of a transposed convolution for its weights: a convolution's, with the images exchanged.

    Parameters
    ----------
    output_shape : tuple of int
        Shape of the weights, in the weights layout.

    Returns
    -------
    ndarray, in the weights layout
        Of the shape ``output_shape``.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import Convolution2DOpDescriptor
    >>> d = Convolution2DOpDescriptor(stride_in_x=2, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    >>> g, source = np.float32([1, 2, 3, 4]).reshape(1, 1, 4, 1), np.float32([-3, 1]).reshape(1, 1, 2, 1)
    >>> convolution_transpose_2d_weights_gradient(g, source, (1, 1, 1, 1), d).ravel().tolist()
    [0.0]
    """
    described("descriptor", descriptor, Convolution2DOpDescriptor)
    return _weights(
        descriptor, ("source", "incoming_gradient"), (source, incoming_gradient), output_shape, True, backend
    )


@function(
    "depthwiseConvolution2DWithSourceTensor:weightsTensor:descriptor:name:", "11.0", DEPTHWISE, "source", "weights"
)
def depthwise_convolution_2d(
    source: Tensor, weights: Tensor, descriptor: DepthwiseConvolution2DOpDescriptor, *, backend: BackendLike = None
) -> Array:
    """Convolve each channel with weights of its own.

    Parameters
    ----------
    source : array_like, in the data layout
        Images, of I channels.
    weights : array_like, in the weights layout
        O is the channel multiplier: channel c of the source becomes the channels ``c O ... c O + O - 1`` [obs
        mpsgraph-depthwise-order].
    descriptor : DepthwiseConvolution2DOpDescriptor
        Strides, dilation rates, padding and layouts.

    Returns
    -------
    ndarray, in the data layout
        Of I O channels.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import DepthwiseConvolution2DOpDescriptor
    >>> d = DepthwiseConvolution2DOpDescriptor(stride_in_x=2, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    >>> source = np.float32([2, 3, 3, 0, 3]).reshape(1, 1, 5, 1)
    >>> weights = np.float32([1, 5, 10, 50]).reshape(1, 2, 1, 2)
    >>> depthwise_convolution_2d(source, weights, d).tolist()
    [[[[32.0, 160.0], [3.0, 15.0]]]]
    """
    described("descriptor", descriptor, DepthwiseConvolution2DOpDescriptor)
    return _forward(descriptor, "source", source, weights, None, backend)


@function(
    "depthwiseConvolution2DDataGradientWithIncomingGradientTensor:weightsTensor:outputShape:descriptor:name:",
    "11.0",
    DEPTHWISE,
    "incoming_gradient",
    "weights",
)
def depthwise_convolution_2d_data_gradient(
    incoming_gradient: Tensor,
    weights: Tensor,
    output_shape: Shape,
    descriptor: DepthwiseConvolution2DOpDescriptor,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of a depthwise convolution for its source.

    Parameters
    ----------
    descriptor : DepthwiseConvolution2DOpDescriptor
        That of the forward pass.

    Returns
    -------
    ndarray, in the data layout
        Of the shape ``output_shape``.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import DepthwiseConvolution2DOpDescriptor
    >>> d = DepthwiseConvolution2DOpDescriptor(stride_in_x=1, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    >>> g, weights = np.float32([1, 2]).reshape(1, 1, 1, 2), np.float32([1, 5, 10, 50]).reshape(1, 2, 1, 2)
    >>> depthwise_convolution_2d_data_gradient(g, weights, (1, 1, 2, 1), d).ravel().tolist()
    [11.0, 110.0]
    """
    described("descriptor", descriptor, DepthwiseConvolution2DOpDescriptor)
    return _data(descriptor, "incoming_gradient", incoming_gradient, weights, output_shape, False, backend)


@function(
    "depthwiseConvolution2DWeightsGradientWithIncomingGradientTensor:sourceTensor:outputShape:descriptor:name:",
    "11.0",
    DEPTHWISE,
    "incoming_gradient",
    "source",
)
def depthwise_convolution_2d_weights_gradient(
    incoming_gradient: Tensor,
    source: Tensor,
    output_shape: Shape,
    descriptor: DepthwiseConvolution2DOpDescriptor,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of a depthwise convolution for its weights.

    Parameters
    ----------
    output_shape : tuple of int
        Shape of the weights, in the weights layout.
    descriptor : DepthwiseConvolution2DOpDescriptor
        That of the forward pass.

    Returns
    -------
    ndarray, in the weights layout
        Of the shape ``output_shape``.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mpsgraph import DepthwiseConvolution2DOpDescriptor
    >>> d = DepthwiseConvolution2DOpDescriptor(stride_in_x=1, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
    >>> g, source = np.float32([1, 2]).reshape(1, 1, 1, 2), np.float32([3, 4]).reshape(1, 1, 2, 1)
    >>> depthwise_convolution_2d_weights_gradient(g, source, (1, 2, 1, 2), d).tolist()
    [[[[3.0, 6.0]], [[4.0, 8.0]]]]
    """
    described("descriptor", descriptor, DepthwiseConvolution2DOpDescriptor)
    return _weights(
        descriptor, ("incoming_gradient", "source"), (incoming_gradient, source), output_shape, False, backend
    )
