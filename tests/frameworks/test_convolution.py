"""Convolution on layers of published networks against PyTorch, and clamped windows against padding by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import Convolution, ConvolutionTranspose, FullyConnected
from mpsref.arguments.arrays import Array
from mpsref.conformance import layers
from mpsref.conformance.layer import Layer
from mpsref.conformance.strategies import pairs
from tests import examples

torch = pytest.importorskip("torch")
F = torch.nn.functional

MARGIN = 40

CONVOLUTIONS = layers.load("Convolution")
LAYERS = (*CONVOLUTIONS, *layers.load("ConvolutionTranspose", "FullyConnected"))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Convolution, tuple[int, ...], int]:
    """Draw windows from before the image to behind it, with an image and a number of output channels."""
    groups, multiplier = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    spec = Convolution(draw(pairs(1, 4)), draw(pairs(1, 3)), draw(pairs(1, 3)), draw(pairs(-4, 5)), groups)
    shape = (draw(st.integers(1, 2)), *draw(pairs(1, 8)), groups * draw(st.integers(1, 3)))
    return spec, shape, groups * multiplier


def nchw(array: Array, grad: bool = True) -> Any:
    return torch.tensor(np.ascontiguousarray(array.transpose(0, 3, 1, 2)), requires_grad=grad)


def nhwc(tensor: Any) -> Array:
    array: Array = tensor.detach().numpy().transpose(0, 2, 3, 1)
    return array


def close(actual: Array, expected: Array) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-11)


@given(convolutions(), pairs(1, 6), st.integers(0, 99))
@examples(15)
def test_clamp_is_replicated_padding(
    drawn: tuple[Convolution, tuple[int, ...], int], size: tuple[int, int], seed: int
) -> None:
    """Pad by hand with the nearest pixel, and all windows are inside."""
    spec, shape, outputs = drawn
    rng = np.random.default_rng(seed)
    clamped = Convolution(spec.kernel_size, spec.strides, spec.dilations, spec.offset, spec.groups, "clamp")
    x, g = rng.standard_normal(shape), rng.standard_normal((shape[0], *size, outputs))
    weights = rng.standard_normal((outputs, *spec.size, shape[3] // spec.groups))
    wide = np.pad(x, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)), mode="edge")
    y, x_ = (window.offset + MARGIN for window in spec.windows)
    inner = Convolution(spec.kernel_size, spec.strides, spec.dilations, (y, x_), spec.groups)
    close(clamped.forward(x, weights, output_size=size), inner.forward(wide, weights, output_size=size))
    close(clamped.gradient_weights(g, x)[0], inner.gradient_weights(g, wide)[0])


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=lambda layer: layer.name)
def test_layers_of_published_networks(layer: Layer) -> None:
    """The published words, given to PyTorch itself on the small image, make the same sizes, values and gradients."""
    small, words = layer.small(channels=4), dict(layer.words)
    spec, rng = small.spec, np.random.default_rng(0)
    assert isinstance(spec, Convolution)
    x = rng.standard_normal(small.source_shape)
    outputs, inputs = small.call["output_channels"], x.shape[3] // spec.groups
    weights = rng.standard_normal((outputs, *spec.size, inputs))
    source, w = nchw(x), nchw(weights)
    padding = words.get("padding", 0)
    if padding == "SAME":  # TensorFlow: what is missing, the larger half of it at the end
        missing = [
            max((n - 1) * window.stride + window.extent - length, 0)
            for window, n, length in zip(spec.windows, small.call["output_size"], x.shape[1:3], strict=True)
        ]
        (top, left), (bottom, right) = (m // 2 for m in missing), (m - m // 2 for m in missing)
        padded, padding = F.pad(source, [left, right, top, bottom]), 0
    else:
        padded = source
    y = F.conv2d(padded, w, None, spec.strides, padding, words.get("dilations", 1), spec.groups)
    assert tuple(y.shape[2:]) == small.call["output_size"]
    close(spec.forward(x, weights, output_size=small.call["output_size"]), nhwc(y))
    g = rng.standard_normal(nhwc(y).shape)
    y.backward(nchw(g, grad=False))
    close(spec.gradient_data(g, weights, x.shape), nhwc(source.grad))
    close(spec.gradient_weights(g, x)[0], nhwc(w.grad))


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_small_layers_keep_their_windows(layer: Layer) -> None:
    """Fewer channels, images and windows, but the same geometry at both ends of an image."""
    small = layer.small(channels=5, batch=2)
    assert small.source_shape[0] == 2
    assert small.source_shape[3] <= 5
    problem = small.problem("forward")
    assert problem.flops < 2e7
    if isinstance(layer.spec, FullyConnected):
        assert small.spec == layer.spec
        return
    taken: list[Any] = [layer.spec, small.spec]
    if isinstance(layer.spec, ConvolutionTranspose):
        taken = [spec.convolution for spec in taken]
    assert taken[0].windows == taken[1].windows
    ends = []
    for spec, one in zip(taken, (layer, small), strict=True):
        sizes = one.call["output_size"], one.source_shape[1:3]
        windows, pixels = sizes[::-1] if isinstance(layer.spec, ConvolutionTranspose) else sizes
        ends.append([w.tap(n - 1, 0) - length for w, n, length in zip(spec.windows, windows, pixels, strict=True)])
    assert ends[0] == ends[1]


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["alexnet.fc6", "resnet50.layer1.conv2", "unet.up1", "mobilenet_v2.block8.depthwise"])
def test_grown_layers_are_legal(name: str, axis: int) -> None:
    """One axis of the source twice as long, whatever has to follow; all three operations."""
    (layer,) = (layer for layer in LAYERS if layer.name == name)
    grown = layer.small(channels=4, batch=2).grown(axis, 2)
    before, after = layer.small(channels=4, batch=2).source_shape, grown.source_shape
    assert after == tuple(length * (2 if k == axis else 1) for k, length in enumerate(before))
    for method in grown.spec.problems:
        assert grown.problem(method).flops > 0


def test_published_sizes() -> None:
    """Sizes as papers and model files give them, typed in by hand."""
    sizes = {layer.name: layer.call["output_size"][0] for layer in LAYERS}
    published = {
        "alexnet.conv1": 55, "alexnet.conv2": 27, "vgg16.conv4_2": 28, "googlenet.conv1": 112, "resnet50.conv1": 112,
        "resnet50.layer2.conv2_strided": 28, "resnet50.layer4.downsample": 7, "mobilenet_v2.block2.depthwise": 56,
        "efficientnet_b0.stem": 112, "efficientnet_b0.block4.depthwise": 28, "deeplab_largefov.fc6": 41,
        "deeplabv3.aspp18": 33, "unet.down2": 138, "unet.down4": 30, "unet.up1": 56, "unet.up3": 200,
        "dcgan_generator.main3": 8, "dcgan_generator.main12": 64, "fcn8s.upscore2": 34, "fcn8s.upscore8": 568,
        "vgg16.fc6": 1,
    }  # fmt: skip
    assert {name: sizes[name] for name in published} == published


def test_an_evenly_padded_network_of_tensorflow_is_not_that_of_pytorch() -> None:
    """EfficientNet's stride-2 layers have their padding at the end; MobileNetV2's in PyTorch on both sides."""
    by_name: dict[str, Any] = {layer.name: layer.spec for layer in CONVOLUTIONS}
    assert by_name["efficientnet_b0.stem"].offset == (1, 1)
    assert by_name["mobilenet_v2.stem"].offset == (0, 0)
