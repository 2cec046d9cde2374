"""The plain kernels on textures in ``msl/simple``, with the checks of anymetal, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref

anymetal = pytest.importorskip("anymetal")
pytestmark = pytest.mark.skipif(anymetal.clang.unavailable() is not None, reason=str(anymetal.clang.unavailable()))


def launch(file: str, kernel: str, result: Any, textures: list[Any], *arguments: Any) -> Any:
    """Run a kernel on textures of images; return the images of the result."""
    from mpsref_metal.launch import SOURCES

    library = anymetal.compile(SOURCES / "simple" / f"{file}.metal", levels={"texel": "error"})
    n, height, width, channels = result
    y = anymetal.slices(np.zeros(result, np.float16))
    bound = [np.array(one, np.int32).tobytes() if isinstance(one, list) else one for one in arguments]
    given = [*map(anymetal.slices, textures), anymetal.undefined(y)]
    done = library[kernel]((width, height, len(y)), (4, 4, 2), *bound, textures=given)
    assert done.written["texture(1)"] == height * width * n * -(-channels // 4)
    assert not done.findings
    return anymetal.unslice(y, channels)


@pytest.mark.parametrize(("edge_mode", "channels"), [("zero", 5), ("clamp", 3)])
def test_the_gradient_of_average_pooling(edge_mode: str, channels: int) -> None:
    spec = mpsref.PoolingAverage(kernel_size=3, strides=2, edge_mode=edge_mode)
    x = np.zeros((2, 7, 6, channels), np.float16)
    y = spec.forward(x, backend="reference")
    g = np.random.default_rng(0).standard_normal(y.shape).astype(np.float16)
    expected = spec.gradient(g, x.shape, backend="reference")
    axes = [
        [length, count, window.kernel, window.stride, window.offset, int(edge_mode == "clamp"), 0]
        for length, count, window in zip(x.shape[1:3], y.shape[1:3], spec.windows, strict=True)
    ]
    dx = launch("pooling_average_texture", "gradient", x.shape, [g], *axes)
    np.testing.assert_allclose(dx.astype(np.float32), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("into", "out"), [(5, 6), (3, 4)])
def test_a_convolution(into: int, out: int) -> None:
    random = np.random.default_rng(1)
    spec = mpsref.Convolution(kernel_size=3, strides=2)
    x = random.standard_normal((2, 7, 6, into)).astype(np.float16)
    weights = (random.standard_normal((out, 3, 3, into)) / 4).astype(np.float16)
    bias = random.standard_normal(out).astype(np.float16)
    expected = spec.forward(x, weights, biases=bias, backend="reference")
    axes = [
        [length, count, window.kernel, window.stride, window.offset]
        for length, count, window in zip(x.shape[1:3], expected.shape[1:3], spec.windows, strict=True)
    ]
    y = launch("convolution_texture", "forward", expected.shape, [x], weights, bias, *axes, [into, out])
    np.testing.assert_allclose(y.astype(np.float32), expected.astype(np.float32), rtol=4e-3, atol=4e-3)
