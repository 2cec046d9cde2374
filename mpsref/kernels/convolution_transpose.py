"""Transposed convolution: each source pixel spreads its weighted copy over the result; strides count in the result.

With tap t joining the source pixel j to the result pixel ``i = j * s - e + K // 2 - t`` on each axis, and
``e = offset * s + kernel_offset``; r, c and m as for a convolution:

Forward  ``y[n, i, o] = act(b[o] + sum over (j, t) that reach i, and c, of w[o, t, c] * x[n, j, r * Ci/G + c])``
Data     ``dx[n, j, r * Ci/G + c] = sum over t, m of w[r * Co/G + m, t, c] * g[n, i, r * Co/G + m]``
Weights  ``dw[o, t, c] = sum over n, j of g[n, i, o] * x[n, j, r * Ci/G + c]``, ``db[o] = sum over n, i of g[n, i, o]``

This is the unit-stride filter of the source with ``s - 1`` zeros between its pixels, weights used without rotation.
It is also the data gradient of a convolution with the same strides, the offset ``(1 if K is even else 0) - e``, and the
weights rotated by 180 degrees with input and output channels exchanged: see :meth:`ConvolutionTranspose.convolution`.

Source: MPSCNNConvolutionTranspose, MPSCNNConvolutionTransposeGradient in ``MPSCNNConvolution.h``; forward [doc], the
anchor ``K // 2`` [obs transpose-anchor], gradients [math], groups as for a convolution [choice transpose-groups].
"""

from __future__ import annotations

from mpsref import codecs
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.codecs import parameter
from mpsref.geometry import Window, by_axis, effective_offset
from mpsref.kernels.convolution import (
    Convolution,
    ConvolutionForward,
    ConvolutionGradientData,
    ConvolutionGradientWeights,
    GradientData,
    GradientWeights,
    WeightedForward,
    WeightedSpec,
    forward,
    forward_bound,
    gradient_data,
    gradient_data_bound,
    gradient_weights,
    gradient_weights_bound,
)
from mpsref.kernels.neuron import Neuron, neuron_codec
from mpsref.operations import operation


class TransposeForward(WeightedForward):
    """``forward`` of a transposed convolution."""

    spec: ConvolutionTranspose

    @property
    def convolution(self) -> ConvolutionGradientData:
        """The data gradient that gives y from x and the :func:`exchanged` weights, before biases and neuron."""
        n, height, width, channels = self.source_shape
        source = (n, *self.output_size, self.output_channels)
        return ConvolutionGradientData(self.spec.convolution, source, channels, (height, width))

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the source pixels that reach a pixel of the result."""
        return self.convolution.where(index).replace("gradient", "source")


class TransposeGradientData(GradientData):
    """``gradient_data`` of a transposed convolution."""

    spec: ConvolutionTranspose

    @property
    def convolution(self) -> ConvolutionForward:
        """The forward pass that gives dx from g and the :func:`exchanged` weights."""
        n, height, width, channels = self.source_shape
        source = (n, *self.gradient_size, self.output_channels)
        return ConvolutionForward(self.spec.convolution, source, channels, (height, width))

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the pixels of the gradient that a source pixel reaches."""
        return self.convolution.where(index)


class TransposeGradientWeights(GradientWeights):
    """``gradient_weights`` of a transposed convolution."""

    spec: ConvolutionTranspose

    @property
    def convolution(self) -> ConvolutionGradientWeights:
        """The weight gradient that gives dw :func:`exchanged`, with x for its gradient and g for its source."""
        n, height, width, channels = self.source_shape
        source = (n, *self.gradient_size, self.output_channels)
        return ConvolutionGradientWeights(self.spec.convolution, source, channels, (height, width))


class ConvolutionTranspose(WeightedSpec):
    """Transposed convolution of (N, H, W, Ci) with weights (Co, kH, kW, Ci / groups); pairs are (y, x).

    The default output size is ``(L - 1) * stride + 1`` for each axis of length L.

    Parameters
    ----------
    kernel_size : int or pair of int
        Size of the kernel, >= 1.
    strides : int or pair of int
        Distance in the result of two source pixels, >= 1.
    offset, kernel_offset : int or pair of int
        In source pixels and in result pixels; only ``offset * strides + kernel_offset`` matters.
    groups : int
        Number of groups of channels.
    neuron : Neuron, optional
        Applied to each result; the gradients accept none.

    Examples
    --------
    >>> import numpy as np
    >>> layer = ConvolutionTranspose(kernel_size=(1, 3), strides=(1, 2))
    >>> x = np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 4, 1)
    >>> w = np.array([1, 10, 100], np.float32).reshape(1, 1, 3, 1)
    >>> layer.forward(x, w).ravel().tolist()
    [10.0, 201.0, 20.0, 302.0, 30.0, 403.0, 40.0]
    >>> layer.gradient_data(np.ones((1, 1, 7, 1), np.float32), w, x.shape).ravel().tolist()
    [11.0, 111.0, 111.0, 110.0]
    """

    strides: PairLike = parameter(codecs.pair("s", low=1), default=(1, 1))
    offset: PairLike = parameter(codecs.pair("o"), default=(0, 0))
    kernel_offset: PairLike = parameter(codecs.pair("ko"), default=(0, 0))
    groups: int = parameter(codecs.integer("groups", low=1), default=1)
    neuron: Neuron | None = parameter(neuron_codec(), default=None)

    @property
    def effective_offsets(self) -> Pair:
        """e = offset * s + kernel_offset of both axes, in result pixels."""
        return by_axis(effective_offset, self.offset, self.kernel_offset, self.strides)

    @property
    def convolution(self) -> Convolution:
        """The convolution whose data gradient this is, without the neuron."""
        offset = by_axis(lambda k, e: Window(k).even - e, self.size, self.effective_offsets)
        return Convolution(self.kernel_size, self.strides, offset=offset, groups=self.groups)

    def default_outputs(self, shape: Shape) -> Pair:
        """Return ``(L - 1) * s + 1`` for each axis: the source with zeros between its pixels, as large as it is."""
        return by_axis(lambda length, s: (length - 1) * s + 1, shape[1:3], self.strides)

    def pairs(self, axis: int, tap: int, outputs: int, length: int) -> tuple[list[int], list[int]]:
        """Return the result pixels that a tap gives to, and the source pixel of each: the plain definition."""
        stride, e = pair("strides", self.strides)[axis], self.effective_offsets[axis]
        reached = [(j * stride - e + self.size[axis] // 2 - tap, j) for j in range(length)]
        inside = [(i, j) for i, j in reached if 0 <= i < outputs]
        return [i for i, _ in inside], [j for _, j in inside]


def exchanged(weights: Array, groups: int) -> Array:
    """Return weights rotated by 180 degrees, input and output channels exchanged within each group.

    ``(Co, kH, kW, Ci/G)`` becomes ``(Ci, kH, kW, Co/G)``; twice, it is the same again.

    >>> import numpy as np
    >>> exchanged(np.arange(6).reshape(2, 1, 3, 1), groups=1)[0, 0].tolist()
    [[2, 5], [1, 4], [0, 3]]
    """
    outputs, height, width, inputs = weights.shape
    grouped = weights[:, ::-1, ::-1].reshape(groups, outputs // groups, height, width, inputs)
    swapped = grouped.transpose(0, 4, 2, 3, 1).copy()
    return swapped.reshape(groups * inputs, height, width, outputs // groups)


operation(ConvolutionTranspose, problem=TransposeForward, bound=forward_bound)(forward)
operation(ConvolutionTranspose, problem=TransposeGradientData, bound=gradient_data_bound)(gradient_data)
operation(ConvolutionTranspose, problem=TransposeGradientWeights, bound=gradient_weights_bound)(gradient_weights)
