"""Transposed convolution: worked numbers, the picture in the header, and the convolution it belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import Convolution, ConvolutionTranspose, Neuron
from mpsref.arguments.arrays import Array
from mpsref.conformance.strategies import pairs
from mpsref.kernels.convolution_transpose import exchanged
from tests import examples

F32 = np.float32
RGB = (1, 10, 100)


def line(*values: float) -> Array:
    """One row of one channel."""
    return np.array(values, F32).reshape(1, 1, -1, 1)


def along_x(kernel: int, stride: int, offset: int, kernel_offset: int, **more: Any) -> ConvolutionTranspose:
    return ConvolutionTranspose((1, kernel), (1, stride), (0, offset), (0, kernel_offset), **more)


# fmt: off
LINES = {
    "T1 same": (along_x(3, 2, 0, 0), (1, 2, 3, 4), RGB,
                (10, 201, 20, 302, 30, 403, 40), [1] * 7, (11, 111, 111, 110), (6, 10, 9)),
    "T2 full": (along_x(3, 2, 0, -1), (1, 2, 3), RGB,
                (100, 10, 201, 20, 302, 30, 3), range(1, 8), (123, 345, 567), (34, 28, 22)),
    "T3 even": (along_x(2, 2, 0, 0), (1, 2, 3), (1, 10),
                (10, 1, 20, 2, 30, 3), range(1, 7), (12, 34, 56), (28, 22)),
}
# fmt: on
"""Of each example: spec, x, w, y, g, dx, dw."""


@pytest.mark.parametrize("name", LINES)
def test_worked_lines(backend: str, name: str) -> None:
    spec, x, w, y, g, dx, dw = LINES[name]
    forward = spec.forward(line(*x), line(*w), output_size=(1, len(y)), backend=backend)
    assert forward.ravel().tolist() == list(y)
    data = spec.gradient_data(line(*g), line(*w), (1, 1, len(x), 1), backend=backend)
    assert data.ravel().tolist() == list(dx)
    weight_gradient, bias_gradient = spec.gradient_weights(line(*g), line(*x), backend=backend)
    assert weight_gradient.ravel().tolist() == list(dw)
    assert bias_gradient.tolist() == [sum(g)]


@pytest.mark.parametrize(
    ("offset", "kernel_offset", "y"),
    [
        (0, 0, (10, 201, 20, 302, 30, 403, 40)),
        (0, 1, (201, 20, 302, 30, 403, 40, 4)),
        (0, -1, (100, 10, 201, 20, 302, 30, 403)),
        (2, 0, (30, 403, 40, 4, 0, 0, 0)),
        (1, 2, (30, 403, 40, 4, 0, 0, 0)),
        (3, -2, (30, 403, 40, 4, 0, 0, 0)),
    ],
)
def test_the_picture_in_the_header(backend: str, offset: int, kernel_offset: int, y: Any) -> None:
    spec = along_x(3, 2, offset, kernel_offset)
    assert spec.forward(line(1, 2, 3, 4), line(*RGB), output_size=(1, 7), backend=backend).ravel().tolist() == list(y)


@pytest.mark.parametrize(
    ("kernel_offset", "y"),
    [(0, (10, 1, 20, 2, 30, 3, 40, 4)), (1, (1, 20, 2, 30, 3, 40, 4, 0)), (-1, (0, 10, 1, 20, 2, 30, 3, 40))],
)
def test_an_even_kernel(backend: str, kernel_offset: int, y: Any) -> None:
    spec = along_x(2, 2, 0, kernel_offset)
    assert spec.forward(line(1, 2, 3, 4), line(1, 10), output_size=(1, 8), backend=backend).ravel().tolist() == list(y)


def test_the_default_size_keeps_the_image_with_zeros_in_between() -> None:
    y = ConvolutionTranspose(3, (2, 3)).forward(np.ones((1, 4, 5, 1), F32), np.ones((1, 3, 3, 1), F32))
    assert y.shape == (1, 7, 13, 1)


def test_biases_and_a_neuron_come_last(backend: str) -> None:
    spec = along_x(2, 2, 0, 0, neuron=Neuron("relu", a=0.5))
    y = spec.forward(line(1, 2), line(1, 10), np.array([-12], F32), (1, 4), backend=backend)
    assert y.ravel().tolist() == [-1, -5.5, 8, -5]


def test_results_that_nothing_reaches_are_the_bias(backend: str) -> None:
    y = along_x(1, 3, 0, 0).forward(line(1, 2), line(5), np.array([7], F32), (1, 5), backend=backend)
    assert y.ravel().tolist() == [12, 7, 7, 17, 7]


@st.composite
def transposes(draw: st.DrawFn) -> tuple[ConvolutionTranspose, tuple[int, ...], int]:
    groups = draw(st.integers(1, 3))
    spec = ConvolutionTranspose(draw(pairs(1, 4)), draw(pairs(1, 3)), draw(pairs(-1, 2)), draw(pairs(-3, 4)), groups)
    shape = (draw(st.integers(1, 2)), *draw(pairs(1, 6)), groups * draw(st.integers(1, 3)))
    return spec, shape, groups * draw(st.integers(1, 3))


@given(transposes(), pairs(1, 9))
@examples(40)
def test_it_is_the_data_gradient_of_a_convolution(drawn: Any, size: tuple[int, int]) -> None:
    """With weights exchanged; its own data gradient is that convolution's forward pass, its weights' that one's."""
    spec, shape, outputs = drawn
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal(shape), rng.standard_normal((shape[0], *size, outputs))
    weights = rng.standard_normal((outputs, *spec.size, shape[3] // spec.groups))
    conv, swapped = spec.convolution, exchanged(weights, spec.groups)
    close(spec.forward(x, weights, output_size=size), conv.gradient_data(x, swapped, g.shape))
    close(spec.gradient_data(g, weights, shape), conv.forward(g, swapped, output_size=shape[1:3]))
    close(exchanged(spec.gradient_weights(g, x)[0], spec.groups), conv.gradient_weights(x, g)[0])


def close(actual: Array, expected: Array) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_paired_with_a_convolution_it_is_the_adjoint(kernel: int, stride: int) -> None:
    """Rotated weights with channels exchanged, and ``kernel_offset = -o + (1 if K is even else 0)``."""
    rng = np.random.default_rng(0)
    for offset in (-2, 0, 1):
        conv = Convolution(kernel, stride, offset=offset)
        x, weights = rng.standard_normal((1, 7, 7, 2)), rng.standard_normal((3, kernel, kernel, 2))
        y = conv.forward(x, weights)
        g = rng.standard_normal(y.shape)
        back = ConvolutionTranspose(kernel, stride, kernel_offset=-offset + (kernel % 2 == 0))
        close(back.forward(g, exchanged(weights, 1), output_size=(7, 7)), conv.gradient_data(g, weights, x.shape))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_exchanged_twice_is_the_same_again(groups: int) -> None:
    weights = np.random.default_rng(0).standard_normal((6, 3, 4, 12 // groups))
    once = exchanged(weights, groups)
    assert once.shape == (12, 3, 4, 6 // groups)
    np.testing.assert_array_equal(exchanged(once, groups), weights)
