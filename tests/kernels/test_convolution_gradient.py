"""The gradients of clamped windows against central differences, and all of them against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpsref import Convolution
from mpsref.arguments.arrays import Array
from mpsref.kernels.convolution import GradientWeights


def differences(loss: Callable[[], float], array: Array, step: float = 1e-3) -> Array:
    """Central differences; exact but for rounding, because the loss is linear in each array."""
    slopes = np.empty_like(array)
    for index in np.ndindex(array.shape):
        kept = array[index]
        array[index] = kept + step
        above = loss()
        array[index] = kept - step
        slopes[index] = (above - loss()) / (2 * step)
        array[index] = kept
    return slopes


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_finite_differences_of_the_weights_with_clamp() -> None:
    spec, rng = Convolution((3, 2), (2, 1), (1, 2), (-1, 3), 2, "clamp"), np.random.default_rng(1)
    x, g = rng.standard_normal((1, 3, 4, 4)), rng.standard_normal((1, 3, 4, 2))
    weights = rng.standard_normal((2, 3, 2, 2))
    expected = differences(lambda: float(np.sum(g * spec.forward(x, weights, output_size=(3, 4)))), weights)
    close(spec.gradient_weights(g, x)[0], expected)


def test_problem_of_a_weight_gradient_lists_its_results() -> None:
    problem = GradientWeights(Convolution(2, groups=2), (1, 4, 4, 6), 4, (3, 3))
    assert problem.input_shapes == {"g": (1, 3, 3, 4), "x": (1, 4, 4, 6)}
    assert problem.result_shapes == ((4, 2, 2, 3), (4,))
