"""Resize of MPS and of MPSGraph: published numbers, PyTorch, sizes up and down, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import GraphResizeBilinear, GraphResizeNearest, NoGradientError, ResizeBilinear, UpsamplingBilinear
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


# --- MPSGraph ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "options", "words"),
    [
        (GraphResizeBilinear, {}, {"mode": "bilinear", "align_corners": False}),
        (GraphResizeBilinear, {"align_corners": True}, {"mode": "bilinear", "align_corners": True}),
        (GraphResizeNearest, {"center_result": False, "rounding": "floor"}, {"mode": "nearest"}),
        (GraphResizeNearest, {}, {"mode": "nearest-exact"}),
    ],
    ids=["bilinear", "aligned", "nearest", "nearest-exact"],
)
def test_pytorch_is_a_resize_of_mpsgraph(backend: str, kernel: Any, options: Any, words: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 5, 7, 3)).astype(F32)
    for size in ((9, 4), (2, 13), (5, 7), (1, 1), (20, 3)):
        there = torch.from_numpy(x).permute(0, 3, 1, 2).requires_grad_()
        theirs = torch.nn.functional.interpolate(there, size=size, **words)
        spec = kernel(size, **options)
        y = spec.forward(x, backend=backend)
        np.testing.assert_allclose(y, theirs.detach().permute(0, 2, 3, 1), rtol=1e-5, atol=2e-6)
        g = rng.standard_normal(y.shape).astype(F32)
        theirs.backward(torch.from_numpy(g).permute(0, 3, 1, 2))
        dx = spec.gradient(g, x.shape, backend=backend)
        np.testing.assert_allclose(dx, there.grad.permute(0, 2, 3, 1), rtol=1e-5, atol=2e-5)


def test_a_position_of_a_half_is_not_rounded_before(backend: str) -> None:
    """The position of output 5 is exactly 9.5: pytorch/pytorch#134430, where MPSGraph takes pixel 9."""
    y = GraphResizeNearest((1, 11)).forward(image(np.arange(20)), backend=backend)
    assert y.ravel().tolist() == [0, 2, 4, 6, 8, 10, 11, 13, 15, 17, 19]


@pytest.mark.parametrize(
    ("rounding", "pixels"),
    [
        ("round_prefer_ceil", [0, 1, 2, 2, 3, 4, 4]),
        ("round_prefer_floor", [0, 0, 1, 2, 3, 3, 4]),
        ("ceil", [0, 1, 2, 2, 3, 4, 4]),
        ("floor", [0, 0, 1, 2, 2, 3, 4]),
        ("round_to_even", [0, 0, 2, 2, 3, 4, 4]),
        ("round_to_odd", [0, 1, 1, 2, 3, 3, 4]),
    ],
)
def test_rules_of_rounding(backend: str, rounding: Any, pixels: list[int]) -> None:
    x = image(np.arange(5))
    found = []
    for position in (0, 0.5, 1.5, 2, 2.625, 3.5, 4):
        one = GraphResizeNearest(1, scale_offset=(1, 1, 0, -position), rounding=rounding)
        found.append(one.forward(x, backend=backend).item())
    assert found == pixels


def test_outputs_far_outside_read_the_edge(backend: str) -> None:
    x, far = image([3, 5, 8]), (1e-30, 3e30)
    for kernel in (GraphResizeBilinear, GraphResizeNearest):
        for scale in far:
            for offset, pixel in ((-1e30, 8), (1e30, 3)):
                spec = kernel(1, scale_offset=(1, scale, 0, offset * scale))
                assert spec.forward(x, backend=backend).item() == pixel
                g = np.full((1, 1, 1, 1), 2, F32)
                assert spec.gradient(g, x, backend=backend).ravel().tolist() == [
                    2 * (one == pixel) for one in (3, 5, 8)
                ]


def test_flags_are_scales_and_offsets() -> None:
    """A result at pixel * scale + offset: scale O / L; offset (scale - 1) / 2 for centres, as PyTorch passes them."""
    x = np.random.default_rng(3).standard_normal((1, 4, 8, 2)).astype(F32)
    for centered, offset in ((True, 0.5), (False, 0)):
        flags = GraphResizeBilinear((8, 4), center_result=centered)
        by_numbers = GraphResizeBilinear((8, 4), scale_offset=(2, 0.5, offset, -offset / 2))
        np.testing.assert_array_equal(flags.forward(x), by_numbers.forward(x))


@pytest.mark.parametrize("value", [(1, 1, 0), (0, 1, 0, 0), (1, -2, 0, 0), (1, 1, 0, float("nan")), "2"])
def test_bad_scales_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="scale_offset"):
        GraphResizeBilinear(4, scale_offset=value)
