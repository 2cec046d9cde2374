"""The Gram matrix: kernel, gradient and nodes, against NumPy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.mps import graph

X = np.random.default_rng(0).standard_normal((3, 4, 5, 6))
G = np.random.default_rng(1).standard_normal((3, 1, 6, 6))
ALPHA = 0.25


def expected(x: Array) -> Array:
    return ALPHA * np.einsum("nyxf,nyxc->nfc", x, x)[:, None]


def test_values(backend: str) -> None:
    x = X.astype(np.float32)
    kernel = mps.MPSNNGramMatrixCalculation(ALPHA, backend=backend)
    y, state = kernel.encode(x, return_state=True)
    np.testing.assert_allclose(y, expected(X), rtol=1e-4, atol=1e-5)
    gradient = mps.MPSNNGramMatrixCalculationGradient(backend=backend)
    g = G.astype(np.float32)
    dx = gradient.encode(g, x, state)
    assert gradient.alpha == ALPHA
    both = ALPHA * (G[:, 0] + G[:, 0].swapaxes(1, 2))
    np.testing.assert_allclose(dx, np.einsum("nfc,nyxc->nyxf", both, X), rtol=1e-4, atol=1e-5)
    into = np.zeros_like(x)
    np.testing.assert_array_equal(gradient.encode(g, x, None, into), dx)


def test_the_gradient_is_the_derivative() -> None:
    kernel = mps.MPSNNGramMatrixCalculation(ALPHA)
    _, state = kernel.encode(X, return_state=True)
    dx = mps.MPSNNGramMatrixCalculationGradient(ALPHA).encode(G, X, state)
    step, direction = 1e-6, np.random.default_rng(2).standard_normal(X.shape)
    slope = np.sum(G * (kernel.encode(X + step * direction) - kernel.encode(X - step * direction))) / (2 * step)
    assert np.sum(dx * direction) == pytest.approx(slope, rel=1e-7)


def test_nodes() -> None:
    x = graph.MPSNNImageNode("x")
    node = graph.MPSNNGramMatrixCalculationNode(x, ALPHA)
    start = graph.MPSNNInitialGradientNode(node.result_image)
    compiled = graph.MPSNNGraph(
        [node.result_image, graph.training_graph(start).gradient_image(x)], format="float64", backend="reference"
    )
    gram, dx = compiled.run([X]).images
    np.testing.assert_allclose(gram, expected(X), rtol=1e-12)
    _, state = mps.MPSNNGramMatrixCalculation(ALPHA).encode(X, return_state=True)
    ones = np.ones((3, 1, 6, 6))
    np.testing.assert_allclose(dx, mps.MPSNNGramMatrixCalculationGradient().encode(ones, X, state), rtol=1e-12)
