"""Bilinear resize: published numbers, PyTorch, sizes up and down, no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import NoGradientError, ResizeBilinear, UpsamplingBilinear
from mpsref.arguments.arrays import Array

F32 = np.float32


def image(rows: Any) -> Array:
    return np.atleast_2d(np.array(rows, F32))[None, :, :, None]


@pytest.mark.parametrize(
    ("size", "aligned", "x", "y"),
    [
        ((1, 3), False, [3, 6], [[3, 5, 6]]),
        ((3, 3), False, [[3, 4], [6, 10]], [[3, 11 / 3, 4], [5, 7, 8], [6, 26 / 3, 10]]),
        ((1, 2), False, [0, 1, 2, 3, 4], [[0, 2.5]]),
        ((1, 2), True, [0, 1, 2, 3, 4], [[0, 4]]),
        ((1, 1), True, [5, 1, 2], [[5]]),
        ((1, 1), False, [5, 1, 2], [[5]]),
        ((1, 4), True, [7], [[7, 7, 7, 7]]),
    ],
)
def test_worked_examples(backend: str, size: Any, aligned: bool, x: Any, y: Any) -> None:
    result = ResizeBilinear(size, aligned).forward(image(x), backend=backend)
    np.testing.assert_allclose(result[0, :, :, 0], y, rtol=1e-6)


def test_integer_factors_are_upsampling_with_clamp(backend: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 3)).astype(F32)
    for aligned in (False, True):
        resized = ResizeBilinear((8, 15), aligned).forward(x, backend=backend)
        np.testing.assert_array_equal(resized, UpsamplingBilinear((2, 3), aligned, "clamp").forward(x, backend=backend))


def test_pytorch(backend: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")
    x = np.random.default_rng(1).standard_normal((2, 5, 7, 3)).astype(F32)
    there = torch.from_numpy(x).permute(0, 3, 1, 2)
    for size in ((9, 4), (2, 13), (5, 7), (1, 1)):
        theirs = torch.nn.functional.interpolate(there, size=size, mode="bilinear", align_corners=True)
        y = ResizeBilinear(size, align_corners=True).forward(x, backend=backend)
        np.testing.assert_allclose(y, theirs.permute(0, 2, 3, 1), rtol=1e-5, atol=1e-5)


def test_there_is_no_gradient() -> None:
    with pytest.raises(NoGradientError, match="UpsamplingBilinear"):
        ResizeBilinear(4).gradient(np.zeros((1, 4, 4, 1), F32))
