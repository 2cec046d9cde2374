"""MPSNNCropAndResizeBilinear: the order of its results, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import CropAndResizeBilinear
from mpsref.mps import MPSImage, MPSNNCropAndResizeBilinear, MPSRegion

REGIONS = [((0, 0), (1, 1)), ((0.25, 0.5), (0.5, 0.25)), MPSRegion((-0.5, 0.25, 0), (1, 0.5, 1))]
BOXES = [(0, 0, 1, 1), (0.5, 0.25, 0.75, 0.75), (0.25, -0.5, 0.75, 0.5)]  # (y0, x0, y1, x1)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_an_image_for_each_image_and_box(dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 6, 3)).astype(dtype)
    kernel = MPSNNCropAndResizeBilinear(4, 3, REGIONS)
    y = kernel.encode(x)
    assert (y.shape, y.dtype) == ((6, 3, 4, 3), dtype)
    assert kernel.number_of_regions == 3
    for n in range(2):
        for k, box in enumerate(BOXES):
            expected = CropAndResizeBilinear((3, 4), box).forward(x[n : n + 1])
            np.testing.assert_array_equal(y[3 * n + k], expected[0])
    image = kernel.encode(MPSImage(x))
    assert isinstance(image, MPSImage)
    np.testing.assert_array_equal(np.asarray(image), y)


@pytest.mark.parametrize(
    ("regions", "error", "message"),
    [
        (None, TypeError, "regions is of type NoneType"),
        ([], ValueError, "regions is empty"),
        ([((0, 0), (1, 1)), (0, 1)], TypeError, r"regions\[1\]\.origin is 0"),
        ([((0, 0), (1, -0.5))], ValueError, r"regions\[0\]\.size\.height is -0\.5"),
        ([((0, np.nan), (1, 1))], ValueError, r"regions\[0\]\.origin\.y is nan"),
        ([((0, 0, 0, 0), (1, 1))], ValueError, r"regions\[0\]\.origin .* of length 4"),
    ],
)
def test_bad_regions(regions: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MPSNNCropAndResizeBilinear(2, 2, regions)
    with pytest.raises(ValueError, match="resize_height is 0"):
        MPSNNCropAndResizeBilinear(2, 0, REGIONS)
