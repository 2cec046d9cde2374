"""Nearest and bilinear upsampling: worked numbers, the adjoint, PyTorch without alignment, NaN, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import ShapeError, UpsamplingBilinear, UpsamplingNearest
from mpsref.arguments.arrays import Array
from mpsref.kernels.interpolation import Sampling
from tests import examples

F32 = np.float32


def image(rows: Any) -> Array:
    """Rows of one channel of one image; a flat list is one row."""
    return np.atleast_2d(np.array(rows, F32))[None, :, :, None]


def rows(result: Array) -> Any:
    return result[0, :, :, 0].tolist()


@pytest.mark.parametrize(
    ("spec", "y"),
    [
        (UpsamplingNearest((1, 2)), [0, 0, 3, 3, 9, 9]),
        (UpsamplingBilinear((1, 2)), [0, 1.5, 3, 6, 9, 4.5]),
        (UpsamplingBilinear((1, 2), edge_mode="clamp"), [0, 1.5, 3, 6, 9, 9]),
        (UpsamplingBilinear((1, 3)), [0, 1, 2, 3, 5, 7, 9, 6, 3]),
        (UpsamplingBilinear((1, 3), edge_mode="clamp"), [0, 1, 2, 3, 5, 7, 9, 9, 9]),
        (UpsamplingBilinear((1, 2), align_corners=True), [0, 1.2, 2.4, 4.2, 6.6, 9]),
    ],
)
def test_a_row(backend: str, spec: Any, y: list[float]) -> None:
    np.testing.assert_allclose(spec.forward(image([0, 3, 9]), backend=backend).ravel(), y, rtol=1e-6)


@pytest.mark.parametrize(
    ("spec", "dx"),
    [
        (UpsamplingNearest((1, 2)), [3, 7, 11]),
        (UpsamplingBilinear((1, 2)), [2, 6, 10]),
        (UpsamplingBilinear((1, 2), edge_mode="clamp"), [2, 6, 13]),
        (UpsamplingBilinear((1, 2), align_corners=True), [2.8, 8.4, 9.8]),
    ],
)
def test_the_adjoint_of_a_row(backend: str, spec: Any, dx: list[float]) -> None:
    g = image([1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(spec.gradient(g, (1, 1, 3, 1), backend=backend).ravel(), dx, rtol=1e-6)
    np.testing.assert_allclose(spec.gradient(g, backend=backend).ravel(), dx, rtol=1e-6)


THIRDS = [[1, 4 / 3, 5 / 3, 2], [5 / 3, 2, 7 / 3, 8 / 3], [7 / 3, 8 / 3, 3, 10 / 3], [3, 10 / 3, 11 / 3, 4]]


@pytest.mark.parametrize(
    ("spec", "y", "ones"),
    [
        (UpsamplingNearest(2), [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]], [[4, 4], [4, 4]]),
        (
            UpsamplingBilinear(2),
            [[1, 1.5, 2, 1], [2, 2.5, 3, 1.5], [3, 3.5, 4, 2], [1.5, 1.75, 2, 1]],
            [[2.25, 3], [3, 4]],
        ),
        (
            UpsamplingBilinear(2, edge_mode="clamp"),
            [[1, 1.5, 2, 2], [2, 2.5, 3, 3], [3, 3.5, 4, 4], [3, 3.5, 4, 4]],
            [[2.25, 3.75], [3.75, 6.25]],
        ),
        (UpsamplingBilinear(2, align_corners=True), THIRDS, [[4, 4], [4, 4]]),
        (UpsamplingBilinear(2, True, "clamp"), THIRDS, [[4, 4], [4, 4]]),
    ],
)
def test_a_square(backend: str, spec: Any, y: Any, ones: Any) -> None:
    x = image([[1, 2], [3, 4]])
    np.testing.assert_allclose(rows(spec.forward(x, backend=backend)), y, rtol=1e-6)
    np.testing.assert_allclose(rows(spec.gradient(image(np.ones((4, 4))), x, backend=backend)), ones, rtol=1e-6)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (1, 1, 5, 2), (2, 4, 1, 1)])
def test_axes_of_one_pixel(backend: str, shape: Any, aligned: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(F32)
    up = UpsamplingBilinear((2, 4), aligned, "clamp")
    y = up.forward(x, backend=backend)
    for axis in (1, 2):
        if shape[axis] == 1:
            np.testing.assert_array_equal(y, np.broadcast_to(y.take([0], axis), y.shape))
    np.testing.assert_allclose(up.gradient(y, x, backend=backend).sum(), y.sum(), rtol=1e-5)


@pytest.mark.parametrize(("edge_mode", "padding_mode"), [("zero", "zeros"), ("clamp", "border")])
def test_pytorch_without_alignment(backend: str, edge_mode: Any, padding_mode: str) -> None:
    """PyTorch's interpolate has no such grid; its grid_sample takes any positions."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")
    rng = np.random.default_rng(4)
    (sy, sx), (height, width) = (2, 3), (4, 5)
    x = rng.standard_normal((2, height, width, 3)).astype(F32)
    positions = [torch.arange(s * n) / s * 2 / (n - 1) - 1 for s, n in ((sy, height), (sx, width))]
    grid = torch.stack(torch.meshgrid(positions[1], positions[0], indexing="xy"), -1)
    there = torch.from_numpy(x).permute(0, 3, 1, 2).requires_grad_()
    theirs = torch.nn.functional.grid_sample(
        there, grid.expand(2, -1, -1, -1), padding_mode=padding_mode, align_corners=True
    )
    g = rng.standard_normal(theirs.permute(0, 2, 3, 1).shape).astype(F32)
    theirs.backward(torch.from_numpy(g).permute(0, 3, 1, 2))
    spec = UpsamplingBilinear((sy, sx), edge_mode=edge_mode)
    expected = theirs.detach().permute(0, 2, 3, 1)
    np.testing.assert_allclose(spec.forward(x, backend=backend), expected, rtol=1e-4, atol=1e-5)
    dx = spec.gradient(g, x, backend=backend)
    np.testing.assert_allclose(dx, there.grad.permute(0, 2, 3, 1), rtol=1e-4, atol=1e-5)


@given(
    st.integers(1, 9), st.integers(1, 24), st.integers(0, 12), st.integers(1, 24), st.sampled_from(["zero", "clamp"]),
    st.booleans(),
)  # fmt: skip
@examples(150)
def test_tables_say_what_the_definition_says(
    length: int, outputs: int, numerator: int, denominator: int, edge: Any, nearest: bool
) -> None:
    if (outputs - 1) * numerator >= length * denominator:
        numerator = 0  # positions lie before the end of the axis
    axis = Sampling(length, outputs, numerator, denominator, edge, "floor" if nearest else None)
    matrices = np.zeros((3, outputs, length))
    forward, gradient = axis.forward(), axis.gradient()
    for i in range(outputs):
        for j, weight in axis.reads(i):
            matrices[0, i, j] += weight
        for k in range(forward.number[i]):
            matrices[1, i, forward.first[i] + k] += forward.weights[forward.start[i] + k]
    for j in range(length):
        for k in range(gradient.number[j]):
            matrices[2, gradient.first[j] + k, j] += gradient.weights[gradient.start[j] + k]
    np.testing.assert_array_equal(matrices[0], matrices[1])
    np.testing.assert_array_equal(matrices[0], matrices[2])


def test_nan_spoils_what_reads_it_alone(ieee_backend: str) -> None:
    x = image([1, np.nan, 3, 4])
    nearest = UpsamplingNearest((1, 2)).forward(x, backend=ieee_backend).ravel()
    assert np.isnan(nearest).tolist() == [False, False, True, True, False, False, False, False]
    bilinear = UpsamplingBilinear((1, 2)).forward(x, backend=ieee_backend).ravel()
    assert np.isnan(bilinear).tolist() == [False, True, True, True, False, False, False, False]
    copied = UpsamplingBilinear(1).forward(x, backend=ieee_backend)
    np.testing.assert_array_equal(copied, x)


def test_bad_parameters_and_shapes() -> None:
    up = UpsamplingNearest(2)
    with pytest.raises(
        ShapeError, match=r"g has shape \(1, 3, 4, 1\).*it must have shape .*scale \(2, 2\) times the length"
    ):
        up.gradient(np.zeros((1, 3, 4, 1), F32))
    with pytest.raises(ShapeError, match=r"it must have shape \(1, 4, 6, 1\)"):
        up.gradient(np.zeros((1, 4, 4, 1), F32), (1, 2, 3, 1))
