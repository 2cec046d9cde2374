"""Fully connected layers: products of matrices, which the BLAS of NumPy computes.

With x as (N, K), weights as (Co, K) and g as (N, Co): forward is ``x @ w.T``, the data gradient ``g @ w`` and the
weight gradient ``g.T @ x``. The BLAS runs in threads of its own, and its bits may depend on their number. float16
operands are copied as float32, weights some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.convolution import ConvolutionForward, ConvolutionGradientData, ConvolutionGradientWeights
from mpsref.kernels.fully_connected import FullyConnected
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.activation.neuron import activate
from mpsref_cpu.convolution.bias_gradient import bias_gradient

COPIED = 1 << 24
"""Approximate number of elements of float16 weights that are copied at a time."""

MOST_TERMS = 1 << 15
"""Maximum number of terms of a sum: for one image, a BLAS may add them up in as few as 32 partial sums."""


def forward(problem: ConvolutionForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array) -> None:
    """Fill ``out`` with y."""
    images, outputs = out.shape[0], out.shape[3]
    pixels, sums = _float32(x.reshape(images, -1)), _sums(out)
    with np.errstate(all="ignore"):
        for rows in _row_chunks(weights):
            _multiply(pixels, _float32(weights[rows].reshape(-1, pixels.shape[1])).T, sums[:, rows])
        if biases is not None:
            sums += biases
        if problem.spec.neuron is not None:
            activate(problem.spec.neuron, sums.reshape(out.shape), out)
        elif sums.dtype != out.dtype:
            out.reshape(images, outputs)[...] = sums


def gradient_data(problem: ConvolutionGradientData, g: Array, weights: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    images, outputs = g.shape[0], g.shape[3]
    gradients, sums = _float32(g.reshape(images, outputs)), _sums(out)
    with np.errstate(all="ignore"):
        for rows in _row_chunks(weights):
            stored = _float32(weights[rows].reshape(-1, sums.shape[1]))
            _multiply(gradients[:, rows], stored, sums, add=rows.start > 0)
        if sums.dtype != out.dtype:
            out.reshape(sums.shape)[...] = sums


def gradient_weights(problem: ConvolutionGradientWeights, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    """Fill ``out`` with dw and db."""
    dw, db = out
    images, outputs = g.shape[0], g.shape[3]
    gradients, pixels = _float32(g.reshape(images, outputs)), _float32(x.reshape(images, -1))
    results = dw.reshape(outputs, -1)
    bias_gradient(g, db)
    with np.errstate(all="ignore"):
        for rows in _row_chunks(dw):
            sums = _sums(dw[rows])
            _multiply(gradients[:, rows].T, pixels, sums)
            if sums.dtype != dw.dtype:
                results[rows] = sums


def _multiply(a: Array, b: Array, out: Array, add: bool = False) -> None:
    """Set ``out`` to ``a @ b``, or add it; long sums are sums of sums."""
    for first in range(0, a.shape[1], MOST_TERMS):
        terms = slice(first, first + MOST_TERMS)
        if first or add:
            out += a[:, terms] @ b[terms]
        else:
            np.matmul(a[:, terms], b[terms], out=out)


def _sums(out: Array) -> Array:
    """Return a matrix for the sums of a result, which may be the result itself."""
    shape = out.shape[0], out.size // out.shape[0]
    return out.reshape(shape) if out.dtype == np.float32 else np.empty(shape, np.float32)


def _float32(array: Array) -> Array:
    return array.astype(np.float32, copy=False)


def _row_chunks(weights: Array) -> Iterator[slice]:
    """Return the rows of weights that are multiplied at a time: all where they are float32."""
    outputs = weights.shape[0]
    step = outputs if weights.dtype == np.float32 else max(1, COPIED * outputs // weights.size)
    return (slice(first, min(first + step, outputs)) for first in range(0, outputs, step))


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (FullyConnected, "forward"): forward,
    (FullyConnected, "gradient_data"): gradient_data,
    (FullyConnected, "gradient_weights"): gradient_weights,
}
