"""Fully connected layers: products of matrices, which the BLAS of NumPy computes.

With x as (N, K), weights as (Co, K) and g as (N, Co): forward is ``x @ w.T``, the data gradient ``g @ w`` and the
weight gradient ``g.T @ x``. The BLAS runs in threads of its own, and its bits may depend on their number.
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.convolution import ConvolutionForward, ConvolutionGradientData, ConvolutionGradientWeights
from mpsref.kernels.fully_connected import FullyConnected
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.activation.neuron import activate
from mpsref_cpu.convolution.bias_gradient import bias_gradient

MOST_TERMS = 1 << 15
"""Maximum number of terms of a sum: for one image, a BLAS may add them up in as few as 32 partial sums."""


def forward(problem: ConvolutionForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array) -> None:
    """Fill ``out`` with y."""
    sums = _matrix(out)
    with np.errstate(all="ignore"):
        _multiply(_matrix(x), _matrix(weights).T, sums)
        if biases is not None:
            sums += biases
    if problem.spec.neuron is not None:
        activate(problem.spec.neuron, out, out)


def gradient_data(problem: ConvolutionGradientData, g: Array, weights: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    with np.errstate(all="ignore"):
        _multiply(_matrix(g), _matrix(weights), _matrix(out))


def gradient_weights(problem: ConvolutionGradientWeights, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    """Fill ``out`` with dw and db."""
    dw, db = out
    bias_gradient(g, db)
    with np.errstate(all="ignore"):
        _multiply(_matrix(g).T, _matrix(x), _matrix(dw))


def _multiply(a: Array, b: Array, out: Array) -> None:
    """Set ``out`` to ``a @ b``; long sums are sums of sums."""
    for first in range(0, a.shape[1], MOST_TERMS):
        terms = slice(first, first + MOST_TERMS)
        if first:
            out += a[:, terms] @ b[terms]
        else:
            np.matmul(a[:, terms], b[terms], out=out)


def _matrix(array: Array) -> Array:
    """Return the view with a row for each image or output."""
    return array.reshape(array.shape[0], -1)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (FullyConnected, "forward"): forward,
    (FullyConnected, "gradient_data"): gradient_data,
    (FullyConnected, "gradient_weights"): gradient_weights,
}
