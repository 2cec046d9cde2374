"""Convolution: worked numbers of all three operations, and windows, groups and values in all the odd places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import Convolution, Neuron, ShapeError
from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case

F32 = np.float32


def line(*values: float) -> Array:
    """One row of one channel."""
    return np.array(values, F32).reshape(1, 1, -1, 1)


def along_x(kernel: int, stride: int, dilation: int, offset: int, **more: Any) -> Convolution:
    return Convolution((1, kernel), (1, stride), (1, dilation), (0, offset), **more)


E1 = along_x(3, 2, 1, 0)
FIVE = (1, 2, 3, 4, 5)
# fmt: off
LINES = {
    "E1": (E1, FIVE, (1, 10, 100), 0.5,
           (210.5, 432.5, 54.5), (1, 2, 3), (10, 102, 20, 203, 30), (16, 22, 10)),
    "E2 even, valid": (along_x(2, 2, 1, 1), FIVE, (1, 10), 0,
                       (21, 43), (1, 2), (1, 10, 2, 20, 0), (7, 10)),
    "E3 even, centred": (along_x(2, 1, 1, 0), FIVE, (1, 10), 0,
                         (10, 21, 32, 43, 54), FIVE, (12, 23, 34, 45, 50), (40, 55)),
    "E4 dilated": (along_x(3, 1, 2, 1), FIVE, (1, 10, 100), 0,
                   (420, 531, 42, 53), (1, 2, 3, 4), (2, 13, 24, 130, 240), (20, 40, 14)),
    "E5 negative offset": (along_x(3, 1, 1, -1), (1, 2, 3), (1, 10, 100), 0,
                           (100, 210, 321, 32, 3), FIVE, (123, 234, 345), (26, 20, 14)),
}
# fmt: on
"""Of each example: spec, x, w, b, y, g, dx, dw."""


@pytest.mark.parametrize("name", LINES)
def test_worked_lines(backend: str, name: str) -> None:
    spec, x, w, b, y, g, dx, dw = LINES[name]
    weights = line(*w)
    forward = spec.forward(line(*x), weights, np.array([b], F32), (1, len(y)), backend=backend)
    assert forward.ravel().tolist() == list(y)
    data = spec.gradient_data(line(*g), weights, (1, 1, len(x), 1), backend=backend)
    assert data.ravel().tolist() == list(dx)
    weight_gradient, bias_gradient = spec.gradient_weights(line(*g), line(*x), backend=backend)
    assert weight_gradient.ravel().tolist() == list(dw)
    assert bias_gradient.tolist() == [sum(g)]


def test_groups(backend: str) -> None:
    """E6: two groups of four channels, in tenths that float32 rounds."""
    spec = Convolution(1, groups=2)
    x = np.arange(1, 9, dtype=F32).reshape(1, 1, 1, 8)
    weights = (0.1 * np.outer(np.arange(1, 9), np.arange(1, 5))).astype(F32).reshape(8, 1, 1, 4)
    y = spec.forward(x, weights, backend=backend)
    np.testing.assert_allclose(y.ravel(), [3, 6, 9, 12, 35, 42, 49, 56], rtol=1e-6)
    g = np.array([1, 0, 0, 0, 0, 0, 0, 2], F32).reshape(1, 1, 1, 8)
    dx = spec.gradient_data(g, weights, x.shape, backend=backend)
    np.testing.assert_allclose(dx.ravel(), [0.1, 0.2, 0.3, 0.4, 1.6, 3.2, 4.8, 6.4], rtol=1e-6)
    dw, db = spec.gradient_weights(g, x, backend=backend)
    assert dw[:, 0, 0].tolist() == [[1, 2, 3, 4], *[[0] * 4] * 6, [10, 12, 14, 16]]
    assert db.tolist() == g.ravel().tolist()


def test_depthwise_with_two_results_a_channel(backend: str) -> None:
    """E7: result channel k * M + q is source channel k with filter (k, q)."""
    spec = Convolution((1, 3), groups=2)
    x = np.array([[1, 10], [2, 20], [3, 30]], F32).reshape(1, 1, 3, 2)
    weights = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], F32).reshape(4, 1, 3, 1)
    y = spec.forward(x, weights, backend=backend)
    assert y[0, 0].tolist() == [[0, 1, 20, 30], [1, 2, 30, 60], [2, 3, 0, 50]]
    g = np.ones((1, 1, 3, 4), F32)
    assert spec.gradient_data(g, weights, x.shape, backend=backend)[0, 0].tolist() == [[2, 2], [2, 4], [1, 3]]
    dw, db = spec.gradient_weights(g, x, backend=backend)
    assert dw[:, 0, :, 0].tolist() == [[3, 6, 5], [3, 6, 5], [30, 60, 50], [30, 60, 50]]
    assert db.tolist() == [3, 3, 3, 3]


def test_weight_gradients_of_a_batch_are_summed(backend: str) -> None:
    x = np.concatenate([line(1, 2, 3, 4, 5), line(5, 4, 3, 2, 1)])
    g = np.concatenate([line(1, 2, 3), line(1, 1, 1)])
    dw, db = E1.gradient_weights(g, x, backend=backend)
    assert (dw.ravel().tolist(), db.tolist()) == ([22, 31, 16], [9])


def test_clamp_reads_the_nearest_pixel(backend: str) -> None:
    spec = along_x(3, 1, 1, -1, edge_mode="clamp")
    x, w, g = line(2, 3), line(1, 10, 100), line(1, 2, 3, 4)
    assert spec.forward(x, w, output_size=(1, 4), backend=backend).ravel().tolist() == [222, 322, 332, 333]
    dw, _ = spec.gradient_weights(g, x, backend=backend)
    assert dw.ravel().tolist() == [2 + 4 + 6 + 12, 2 + 4 + 9 + 12, 2 + 6 + 9 + 12]


def test_a_window_wholly_outside_gives_the_bias(backend: str) -> None:
    spec = along_x(3, 9, 1, 0)
    y = spec.forward(line(1, 2), line(1, 10, 100), np.array([7], F32), (1, 3), backend=backend)
    assert y.ravel().tolist() == [217, 7, 7]


def test_pixels_that_no_window_reads_get_exactly_0(backend: str) -> None:
    dx = along_x(1, 3, 1, 0).gradient_data(line(1, 2), line(5), (1, 1, 5, 1), backend=backend)
    assert dx.ravel().tolist() == [5, 0, 0, 10, 0]


def test_a_skipped_tap_is_not_multiplied(ieee_backend: str) -> None:
    """An infinite weight outside the image makes no NaN, as 0 times infinity would."""
    spec, weights = along_x(3, 1, 1, 0), line(np.inf, 10, 1)
    assert spec.forward(line(1, 2), weights, backend=ieee_backend).ravel().tolist() == [12, np.inf]
    dx = spec.gradient_data(line(1, 2), weights, (1, 1, 2, 1), backend=ieee_backend)
    assert dx.ravel().tolist() == [np.inf, 21]


def test_nan_reaches_the_windows_that_read_it_and_no_other(ieee_backend: str) -> None:
    y = along_x(3, 1, 1, 0).forward(line(1, np.nan, 3, 4, 5), line(1, 10, 100), backend=ieee_backend)
    assert np.isnan(y.ravel()).tolist() == [True, True, True, False, False]


def test_a_neuron_comes_last(backend: str) -> None:
    spec = along_x(3, 2, 1, 0, neuron=Neuron("relun", a=0.5, b=100))
    x, biases = line(1, 2, 3, 4, 5), np.array([-220], F32)
    assert spec.forward(x, line(1, 10, 100), biases, backend=backend).ravel().tolist() == [-5, 100, -83]


def test_a_neuron_with_a_slope_for_each_channel(backend: str) -> None:
    spec = Convolution(1, neuron=Neuron("prelu", data=(0.5, 0.25)))
    y = spec.forward(line(-4, 4), np.ones((2, 1, 1, 1), F32), backend=backend)
    assert y[0, 0].tolist() == [[-2, -1], [4, 4]]


def test_far_and_huge_parameters(backend: str) -> None:
    far = Convolution(2, 2**40, 2**50, (-(2**60), 2**60))
    x, weights = np.ones((1, 3, 4, 2), F32), np.ones((3, 2, 2, 2), F32)
    assert not far.forward(x, weights, output_size=(2, 2), backend=backend).any()
    assert not far.gradient_data(np.ones((1, 2, 2, 3), F32), weights, x.shape, backend=backend).any()
    dw, db = far.gradient_weights(np.ones((1, 2, 2, 3), F32), x, backend=backend)
    assert not dw.any()
    assert db.tolist() == [4, 4, 4]


def test_the_default_output_ends_with_the_last_centre_inside() -> None:
    x, weights = np.ones((1, 5, 8, 1), F32), np.ones((1, 1, 1, 1), F32)
    sizes = [Convolution(1, s, offset=o).forward(x, weights).shape[1:3] for s, o in [(1, 0), (3, 2), (2, -3)]]
    assert sizes == [(5, 8), (1, 2), (4, 6)]
    with pytest.raises(ShapeError, match=r"offset is \(0, 8\).*behind an image of shape \(1, 5, 8, 1\).*5, 0"):
        Convolution(1, offset=(0, 8)).forward(x, weights)


@pytest.mark.parametrize(
    "text",
    [
        "Convolution.forward:n2h7w6c4,k3x2,s2x1,d1x2,o1x0,groups2,clamp,neuron:relu:a0.1,co6,out3x3,biased,float32,seed=7",
        "Convolution.gradient_data:n1h5w5c1,k3x3,co1,float16,exact,seed=0",
        "Convolution.gradient_weights:n1h5w5c2,k1x1,o-1x0,co3,g2x2,float32,hard,seed=3",
    ],
)
def test_case_strings(text: str) -> None:
    case = Case.parse(text)
    assert str(case) == text
    assert [array.shape for array in case.inputs()] == list(case.problem.input_shapes.values())


def test_flops_count_the_taps_inside() -> None:
    spec = mpsref.Convolution((1, 3), (1, 2))
    problem = spec.problems["forward"](spec, (2, 1, 5, 4), 6, (1, 3))
    assert problem.flops == 2 * 2 * (2 + 3 + 2) * 4 * 6
