"""Crop and resize: numbers by hand, PyTorch, boxes across the edge, what it has in common with resize, bad input."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mpsref import CropAndResizeBilinear, NoGradientError, ResizeBilinear
from mpsref.kernels.crop_and_resize import CropAndResizeForward

F32 = np.float32


def ramp(height: int, width: int) -> Any:
    """Return an image whose pixel (y, x) is 10 y + x: interpolation gives that at any position."""
    return (10 * np.arange(height)[:, None] + np.arange(width)).astype(F32).reshape(1, height, width, 1)


@pytest.mark.parametrize(
    ("size", "box", "expected"),
    [
        ((2, 2), (0, 0, 1, 1), [[0, 4], [20, 24]]),
        ((1, 1), (0, 0, 1, 1), [[12]]),  # a single output is in the middle
        ((1, 3), (0.5, 0.25, 0.5, 0.75), [[11, 12, 13]]),
        ((3, 1), (0, 0.5, 1, 0.5), [[2], [12], [22]]),
        ((2, 3), (-0.5, 0.5, 0.5, 1.5), [[0, 0, 0], [12, 14, 0]]),  # rows -1 and 1, columns 2, 4 and 6
        ((2, 2), (1.25, 0, 2, 1), [[0, 0], [0, 0]]),  # beside the image
        ((1, 2), (1, 1, 1, 1), [[24, 24]]),  # a box without an extent, on the last pixel
        ((2, 1), (0, 0, 2.0**-126, 0), [[0], [20 * 2.0**-126]]),  # a fraction that no machine word holds
    ],
)
def test_by_hand(size: Any, box: Any, expected: Any, backend: str) -> None:
    y = CropAndResizeBilinear(size, box).forward(ramp(3, 5), backend=backend)
    assert y[0, :, :, 0].tolist() == expected


def test_the_whole_image_is_resize_with_aligned_corners(backend: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 7, 3)).astype(F32)
    for size in ((9, 4), (2, 2), (5, 7)):
        expected = ResizeBilinear(size, align_corners=True).forward(x, backend=backend)
        np.testing.assert_array_equal(CropAndResizeBilinear(size).forward(x, backend=backend), expected)


def test_positions_are_exact() -> None:
    spec = CropAndResizeBilinear((4, 3), (0.1, -0.2, 0.9, 1e-300))
    for axis, low, high in zip(
        CropAndResizeForward(spec, (1, 50, 70, 1)).axes, (0.1, -0.2), (0.9, 1e-300), strict=True
    ):
        start, step = Fraction(low), (Fraction(high) - Fraction(low)) / (axis.outputs - 1)
        for i in range(axis.outputs):
            position = (start + i * step) * (axis.length - 1)
            assert Fraction(axis.start + i * axis.numerator, axis.denominator) == position
            assert sum(j * Fraction(w) for j, w in axis.reads(i)) == pytest.approx(
                float(position) if position >= 0 else 0
            )


def test_nothing_beside_the_image_is_read(backend: str) -> None:
    x = np.full((1, 3, 3, 2), np.nan, F32)
    x[:, 1:, 1:] = 1
    y = CropAndResizeBilinear((3, 5), (0.5, 0.5, 1, 2.5)).forward(x, backend=backend)
    assert y[0, :, :, 0].tolist() == [[1, 1, 0, 0, 0]] * 3


def test_pytorch(backend: str) -> None:
    torch = pytest.importorskip("torch", reason="an oracle of its own")
    x = np.random.default_rng(0).standard_normal((2, 6, 9, 3)).astype(F32)
    y0, x0, y1, x1 = box = (0.1, 0.25, 0.85, 0.9)
    rows, columns = np.linspace(y0, y1, 5) * 2 - 1, np.linspace(x0, x1, 4) * 2 - 1
    grid = np.stack(np.meshgrid(columns, rows), axis=-1)[None].repeat(2, axis=0)
    image = torch.from_numpy(x.astype(np.float64)).permute(0, 3, 1, 2)
    expected = torch.nn.functional.grid_sample(image, torch.from_numpy(grid), align_corners=True).permute(0, 2, 3, 1)
    result = CropAndResizeBilinear((5, 4), box).forward(x, backend=backend)
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-5, atol=2e-6)


def test_bad_input() -> None:
    for box in ((0, 0, 1), "half", 1, (0.5, 0, 0.25, 1), (0, 1, 1, 0.5), (0, 0, np.nan, 1), (0, 0, np.inf, 1)):
        with pytest.raises(ValueError, match=r"^box"):
            CropAndResizeBilinear(2, box)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^box\[3\]"):
        CropAndResizeBilinear(2, (0, 0, 1, True))
    with pytest.raises(ValueError, match="size"):
        CropAndResizeBilinear((0, 2))
    with pytest.raises(NoGradientError, match="no gradient kernel"):
        CropAndResizeBilinear(2).gradient(ramp(2, 2))
