"""Layers of published networks: geometries against published sizes, PyTorch, and MPS padding policies."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref import PoolingAverage, PoolingL2Norm, padding
from mpsref.conformance import layers
from mpsref.conformance.layer import Layer

AVERAGE_POOLING, MAX_POOLING, L2_POOLING = map(layers.load, ("PoolingAverage", "PoolingMax", "PoolingL2Norm"))
POOLING = (*AVERAGE_POOLING, *MAX_POOLING, *L2_POOLING)

SIZES = """
    lenet5: s2 14x14, s4 5x5
    densenet121: transition1 28x28, transition2 14x14, transition3 7x7, global 1x1, pool0 56x56
    inception_v3: mixed_5b 35x35, mixed_6b 17x17, mixed_7b 8x8, aux 5x5, global 1x1, maxpool2 35x35, mixed_6a 17x17
    inception_v3: mixed_7a 8x8
    inception_v3_onnx: mixed_5b 35x35
    inception_v3_tf: mixed_5b 35x35, aux_logits 5x5, logits 1x1
    inception_v4: inception_a 35x35
    googlenet: loss1 4x4, loss2 4x4, pool5 1x1, pool1 56x56, pool2 28x28, pool3 14x14, pool4 7x7, inception_3a 28x28
    googlenet: inception_4a 14x14, inception_5a 7x7
    resnet50: global 1x1, maxpool 56x56
    resnet50d: layer2.downsample 28x28, layer3.downsample 14x14, layer4.downsample 7x7
    resnet50d_176: layer4.downsample 6x6
    res2net50: layer1 56x56, layer2 28x28
    clip_rn50: stem 56x56
    squeezenet1_0: global 1x1, pool4 27x27
    shufflenet_v1: stage2 28x28, stage3 14x14, stage4 7x7
    nasnet_mobile: stem0 56x56, normal1 28x28, reduction1 14x14, reduction1_max 14x14
    nasnet_large: normal1 42x42, reduction2 11x11
    darts: reduction 16x16
    munit: downsample 128x128
    pspnet: pool1 1x1, pool2 2x2, pool3 3x3, pool6 6x6
    cifar10_quick: pool2 8x8, pool3 4x4, pool1 16x16
    nin_cifar10: pool2 8x8, pool3 1x1
    vgg19_style: pool3 47x63
    alexnet: pool1 27x27, pool2 13x13, pool5 6x6
    vgg16: pool1 112x112, pool2 56x56, pool3 28x28, pool4 14x14, pool5 7x7
    resnet50_keras: pool1 56x56
    xception: block3 37x37, block4 19x19, block13 10x10
    ssd300: pool3 38x38, pool5 19x19
    deeplab_largefov: pool4 41x41
    unet: pool4 32x32
    lenet_caffe: pool1 12x12, pool2 4x4
    tiny_yolov2: pool5 13x13, pool6 13x13
    yolov3_spp: spp5 19x19, spp9 19x19, spp13 19x19
    yolov5s: sppf 20x20
    vgg16_dense: pool3 57x57, pool4 49x49, pool5 33x33
    alexnet_dense: pool2 49x49, pool5 41x41
    torch_svhn: pool1 14x14, pool2 5x5
    openface_nn4_small2: inception_3b 4x4, inception_4a 2x2, inception_5a 1x1
    facenet_nn2: inception_3b 28x28, inception_4a 14x14, inception_5a 7x7
    dists: stage3 64x64, stage4 32x32, stage5 16x16
"""
PUBLISHED = {
    f"{network}.{layer}": (int(height), int(width))
    for network, row in re.findall(r"(\w+): (.*)", SIZES)
    for layer, height, width in re.findall(r"(\S+) (\d+)x(\d+)", row)
}
"""Output sizes as the networks' papers and model files give them, typed in by hand."""


def overhang(layer: Layer) -> tuple[int, int]:
    """How far the last window reaches beyond the end of the image, per axis."""
    ends = (
        window.offset + window.stride * (outputs - 1) - window.center + window.extent - length
        for window, outputs, length in zip(
            layer.spec.windows, layer.call["output_size"], layer.source_shape[1:3], strict=True
        )
    )
    y, x = ends
    return y, x


def is_global(layer: Layer) -> bool:
    return layer.call["output_size"] == (1, 1) and layer.spec.kernel_size == layer.source_shape[1:3]


KINDS: dict[str, Callable[[Layer], bool]] = {
    "global": is_global,
    "TensorFlow SAME, padding on both sides": lambda x: ("padding", "SAME") in x.words and x.spec.offset == (0, 0),
    "TensorFlow SAME, padding at the end only": lambda x: ("padding", "SAME") in x.words and x.spec.offset == (1, 1),
    "TensorFlow VALID": lambda x: ("padding", "VALID") in x.words,
    "padding counts, zero pad": lambda x: x.spec.edge_mode == "clamp" and x.spec.zero_pad_size == (1, 1),
    "padding counts, edge mode zero": lambda x: x.spec.edge_mode == "zero" and max(overhang(x)) > 0,
    "padding does not count": lambda x: {("padding", 1), ("count_include_pad", False)} <= set(x.words),
    "PyTorch ceil mode that matters": lambda x: ("ceil_mode", True) in x.words and max(overhang(x)) > 0,
    "Caffe ceil that matters": lambda x: x.framework == "caffe" and max(overhang(x)) > 0,
    "not square": lambda x: x.source_shape[1] != x.source_shape[2],
    "overlapping windows": lambda x: x.spec.strides < x.spec.kernel_size and not is_global(x),
    "even window": lambda x: x.spec.kernel_size[0] % 2 == 0 and not is_global(x),
    "channels no multiple of four": lambda x: x.source_shape[3] % 4 != 0,
}
MAX_KINDS: dict[str, Callable[[Layer], bool]] = {
    "TensorFlow SAME, padding on both sides": lambda x: ("padding", "SAME") in x.words and x.spec.offset == (0, 0),
    "TensorFlow SAME, padding at the end only": lambda x: ("padding", "SAME") in x.words and x.spec.offset == (1, 1),
    "stride 1, even window, size kept": lambda x: (
        x.spec.kernel_size == (2, 2) and x.spec.strides == (1, 1) and x.call["output_size"] == x.source_shape[1:3]
    ),
    "spatial pyramid": lambda x: x.spec.kernel_size == (13, 13) and x.spec.strides == (1, 1),
    "zeros that may win": lambda x: x.spec.edge_mode == "zero" and x.spec.offset == (0, 0),
    "padding that cannot win": lambda x: x.spec.edge_mode == "clamp" and x.spec.offset == (0, 0),
    "PyTorch ceil mode that matters": lambda x: ("ceil_mode", True) in x.words and max(overhang(x)) > 0,
    "Caffe ceil that matters": lambda x: x.framework == "caffe" and x.spec.offset == (1, 1) and max(overhang(x)) > 0,
    "even window, dilated": lambda x: x.spec.kernel_size == (2, 2) and x.spec.dilations == (16, 16),
    "odd window, dilated": lambda x: x.spec.kernel_size == (3, 3) and x.spec.dilations == (4, 4),
    "channels no multiple of four": lambda x: x.source_shape[3] % 4 != 0,
}
L2_KINDS: dict[str, Callable[[Layer], bool]] = {
    "even window": lambda x: x.spec.kernel_size == (2, 2),
    "windows side by side": lambda x: x.spec.kernel_size == x.spec.strides == (3, 3),
    "the image itself": lambda x: x.spec.kernel_size == x.source_shape[1:3],
    "overlapping, padded": lambda x: x.spec.strides == (1, 1) and x.spec.offset == (0, 0),
    "overlapping, padded, strided": lambda x: x.spec.strides == (2, 2) and x.spec.offset == (0, 0),
}
FAMILIES = {
    "average": (AVERAGE_POOLING, KINDS, 30),
    "max": (MAX_POOLING, MAX_KINDS, 30),
    "l2": (L2_POOLING, L2_KINDS, 10),
}
NETWORKS = (
    *("DenseNet-121", "Inception-v3", "ResNet-50", "MobileNetV2", "NASNet", "SqueezeNet", "LeNet-5", "AlexNet"),
    *("VGG-16", "GoogLeNet", "Tiny YOLOv2", "YOLOv3-SPP", "OpenFace", "DISTS"),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_names_are_unique_and_there_are_many(family: str) -> None:
    names = [layer.name for layer in layers.load()]
    assert len(set(names)) == len(names)
    of_family, _, many = FAMILIES[family]
    assert len(of_family) >= many
    assert set(of_family) <= set(layers.load())


def test_every_max_and_l2_layer_has_a_published_size() -> None:
    assert {layer.name for layer in (*MAX_POOLING, *L2_POOLING)} <= set(PUBLISHED)


def test_output_sizes_are_the_published_ones() -> None:
    assert {name: layers.by_name(name).call["output_size"] for name in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family in FAMILIES for kind in FAMILIES[family][1]])
def test_every_kind_of_layer_is_there(family: str, kind: str) -> None:
    of_family, kinds, _ = FAMILIES[family]
    assert any(kinds[kind](layer) for layer in of_family)


@pytest.mark.parametrize("network", NETWORKS)
def test_named_networks_are_there(network: str) -> None:
    assert any(layer.network.startswith(network) for layer in layers.load())


def test_every_network_has_a_layer() -> None:
    assert {layer.name.partition(".")[0] for layer in layers.load()} == set(layers.networks())


def test_most_layers_have_at_least_a_megabyte_and_none_more_than_32() -> None:
    sizes = [layer.nbytes for layer in POOLING]
    assert sum(size >= 1e6 for size in sizes) >= 0.9 * len(sizes)
    assert max(sizes) < 32e6


def test_nbytes_counts_source_and_result() -> None:
    assert layers.by_name("densenet121.transition1").nbytes == 4 * 128 * (4 * 56 * 56 + 4 * 28 * 28)


def test_small_changes_nothing_but_batch_and_channels() -> None:
    for layer in POOLING:
        small, size = layer.small(channels=5, batch=2), layer.call["output_size"]
        assert small.source_shape == (2, *layer.source_shape[1:3], 5)
        assert (small.name, small.spec, small.call["output_size"]) == (layer.name, layer.spec, size)


def test_unknown_name_says_which_are_near() -> None:
    with pytest.raises(ValueError, match=r"'densenet121.transition4'.*densenet121.transition3"):
        layers.by_name("densenet121.transition4")
    with pytest.raises(ValueError, match=r"'mnasnet'.*resnet50"):
        layers.by_name("mnasnet")


def by_torch(layer: Layer, functional: Any, source: Any) -> Any:
    """Give the published arguments to PyTorch itself; an L2 pooling and explicit zeros are padded by hand."""
    words: dict[str, Any] = dict(layer.words)
    window = layer.spec.kernel_size, layer.spec.strides
    if isinstance(layer.spec, PoolingAverage):
        return functional.avg_pool2d(source, *window, **words)
    if layer.spec.edge_mode == "zero":
        source = functional.pad(source, [words.pop("padding", 0)] * 4)
    if isinstance(layer.spec, PoolingL2Norm):
        return functional.lp_pool2d(source, 2, *window, **words)
    dilation = words.pop("dilations", 1)
    return functional.max_pool2d(source, *window, dilation=dilation, **words)


@pytest.mark.parametrize("layer", [x for x in POOLING if x.framework == "pytorch"], ids=lambda layer: layer.name)
def test_pytorch_layers_against_pytorch(layer: Layer) -> None:
    """The published arguments, given to PyTorch itself, make the same values and gradients."""
    torch = pytest.importorskip("torch")
    small = layer.small()
    rng = np.random.default_rng(0)
    x = rng.standard_normal(small.source_shape)
    source = torch.tensor(x.transpose(0, 3, 1, 2), requires_grad=True)
    y = by_torch(layer, torch.nn.functional, source)
    assert tuple(y.shape[2:]) == layer.call["output_size"]
    np.testing.assert_allclose(
        small.spec.forward(x, small.call["output_size"]),
        y.detach().numpy().transpose(0, 2, 3, 1),
        rtol=1e-12,
        atol=1e-14,
    )
    g = rng.standard_normal((1, *small.call["output_size"], 3))
    y.backward(torch.tensor(g.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(
        small.spec.gradient(g, x), source.grad.numpy().transpose(0, 2, 3, 1), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(
    "layer", [x for x in AVERAGE_POOLING if x.framework == "tensorflow"], ids=lambda layer: layer.name
)
def test_tensorflow_layers_have_an_mps_policy(layer: Layer) -> None:
    """The policies that MPS made for TensorFlow put the windows where TensorFlow's own rule puts them."""
    same = ("padding", "SAME") in layer.words
    policy = padding.TENSORFLOW_AVERAGE_POOLING if same else padding.TENSORFLOW_AVERAGE_POOLING_VALID_ONLY
    spec = layer.spec
    placed = padding.mps(layer.source_shape[1:3], spec.kernel_size, spec.strides, policy=policy)
    assert placed == (spec.offset, layer.call["output_size"], spec.edge_mode, spec.zero_pad_size)


def test_the_two_inception_v3_differ_at_the_border_alone() -> None:
    """Counting the padding or not: one network, two frameworks, two results."""
    counted, shrunk, onnx = (layers.by_name(f"inception_v3{which}.mixed_5b").small() for which in ("", "_tf", "_onnx"))
    x = np.random.default_rng(0).standard_normal(counted.source_shape)
    a, b, c = (layer.spec.forward(x, layer.call["output_size"]) for layer in (counted, shrunk, onnx))
    np.testing.assert_array_equal(a, c)
    np.testing.assert_array_equal(a[:, 1:-1, 1:-1], b[:, 1:-1, 1:-1])
    np.testing.assert_allclose(a[:, 0, 0] * 9, b[:, 0, 0] * 4)
