"""Every gradient is the derivative of its forward pass, by central differences in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Loss
from mpsref.conformance.case import operations
from tests.subjects.derivatives import CASES, Shapes, forward, gradients


def test_every_kernel_with_a_gradient_has_a_case() -> None:
    with_gradient = {one.spec_type for one in operations() if one.method.startswith("gradient")}
    assert {type(spec) for spec, *_ in CASES} == with_gradient


@pytest.mark.parametrize(("spec", "shapes", "options"), CASES, ids=str)
def test_gradients_are_derivatives(spec: Any, shapes: Shapes, options: dict[str, Any]) -> None:
    """Along a direction in which every element of one input changes."""
    rng, step = np.random.default_rng(0), 1e-5
    inputs = [rng.uniform(0.1, 0.9, s) if isinstance(spec, Loss) else rng.standard_normal(s) for s in shapes]
    if "weights" in options:
        *pixels, c = shapes[0]
        options = {"weights": np.repeat(np.arange(np.prod(pixels)) % 3.0, c).reshape(shapes[0])}
    if getattr(spec, "type", "") == "softmaxcrossentropy":
        inputs[1] /= inputs[1].sum(3, keepdims=True)  # probabilities
    y = forward(spec, inputs, options)
    g = rng.standard_normal(y.shape)
    for k, gradient in enumerate(gradients(spec, inputs, y, g, options)):
        direction, ends = rng.standard_normal(inputs[k].shape), []
        for sign in (1, -1):
            moved = [x + sign * step * direction if n == k else x for n, x in enumerate(inputs)]
            ends.append(forward(spec, moved, options))
        slope = np.sum(g * (ends[0] - ends[1])) / (2 * step)
        assert gradient.shape == inputs[k].shape
        assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-6, abs=1e-7), k
