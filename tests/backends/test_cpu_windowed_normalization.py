"""Tiles and sums of the windowed normalizations: rows that are wider than a tile, and a rest; long, narrow windows."""

import numpy as np
import pytest

from mpsref import LocalContrastNormalization
from mpsref.conformance.case import Case
from mpsref.conformance.runner import run_case
from mpsref.registry import get_backend
from mpsref_cpu.normalization.window_sums import ImageWindows


@pytest.mark.parametrize("operation", ["forward", "gradient"])
@pytest.mark.parametrize("kernel", ["LocalContrastNormalization", "SpatialNormalization"])
@pytest.mark.parametrize("shape", ["n2h7w131c48,k3x5", "n1h3w91c50,k2x40", "n1h40w3c11,k33x1"])
def test_tiles_and_long_windows(kernel, operation, shape):
    case = Case.parse(f"{kernel}.{operation}:{shape},o1x-2,float32,hard,seed=1")
    width, tile = case.problem.source_shape[2], ImageWindows.of(case.problem).tile
    assert tile >= width or width % tile
    outcome = run_case(case, get_backend("cpu"))
    assert outcome.status == "passed", outcome.message


def test_the_most_terms_in_sequence_are_those_of_a_column_and_a_row():
    problem = LocalContrastNormalization((3, 5)).problems["forward"](LocalContrastNormalization((3, 5)), (1, 9, 9, 1))
    assert ImageWindows.of(problem).most_terms == 3 + 5


def test_the_variance_may_be_beyond_the_range_of_float32():
    spec, random = LocalContrastNormalization(3, alpha=1.0, beta=0.5, delta=1.0), np.random.default_rng(0)
    x, g = (random.standard_normal((1, 5, 6, 4)).astype(np.float32) for _ in range(2))
    x *= np.float32(1e25)
    y, dx = spec.forward(x, backend="cpu"), spec.gradient(g, x, backend="cpu")
    np.testing.assert_allclose(y, spec.forward(x), rtol=1e-5)
    np.testing.assert_allclose(dx, spec.gradient(g, x), rtol=1e-4, atol=1e-5 * np.abs(dx).max())
    assert np.abs(y).max() > 0.1
