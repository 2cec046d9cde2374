"""The gradients of clamped windows against central differences, and all of them against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpsref import Convolution, ConvolutionTranspose, FullyConnected
from mpsref.arguments.arrays import Array
from mpsref.conformance.families.convolution import problems
from mpsref.kernels.convolution import GradientWeights, WeightedProblem


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


@pytest.mark.parametrize("spec_type", [Convolution, ConvolutionTranspose, FullyConnected])
def test_the_three_operations_are_one_trilinear_form(spec_type: Any) -> None:
    """<y, g> = <dx, x> = <dw, w> in float64, for whatever the conformance suite draws."""

    @given(problems(spec_type, "gradient_data"), st.integers(0, 99))
    @settings(max_examples=40)
    def check(problem: WeightedProblem, seed: int) -> None:
        spec, rng = problem.spec, np.random.default_rng(seed)
        x, g = rng.standard_normal(problem.source_shape), rng.standard_normal(problem.result_image)
        weights = rng.standard_normal(problem.weights_shape)
        y = spec.forward(x, weights, output_size=problem.result_size)
        dx = spec.gradient_data(g, weights, x.shape)
        dw, db = spec.gradient_weights(g, x)
        form = np.sum(y * g)
        close(np.sum(dx * x), form)
        close(np.sum(dw * weights), form)
        close(db, g.sum(axis=(0, 1, 2)))

    check()


def test_the_mean_over_a_batch_needs_g_of_the_mean() -> None:
    """Weight gradients are sums: dividing by the number of images is the loss's business."""
    spec, rng = Convolution(2), np.random.default_rng(2)
    x, g = rng.standard_normal((3, 4, 4, 2)), rng.standard_normal((3, 4, 4, 2))
    together = spec.gradient_weights(g, x)
    apart = [spec.gradient_weights(g[k : k + 1], x[k : k + 1]) for k in range(3)]
    for whole, *parts in zip(together, *apart, strict=True):
        close(whole, sum(parts))


def test_problem_of_a_weight_gradient_lists_its_results() -> None:
    problem = GradientWeights(Convolution(2, groups=2), (1, 4, 4, 6), 4, (3, 3))
    assert problem.input_shapes == {"g": (1, 3, 3, 4), "x": (1, 4, 4, 6)}
    assert problem.result_shapes == ((4, 2, 2, 3), (4,))
