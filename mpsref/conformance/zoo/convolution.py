"""Convolution, transposed convolution and fully connected layers of published networks, as their frameworks say it.

The batch sizes make a layer cost a processor some 5 to 60 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from mpsref import padding
from mpsref.arguments.arrays import ImageShape
from mpsref.arguments.parameters import Pair
from mpsref.conformance.zoo import pooling
from mpsref.conformance.zoo.layer import Layer
from mpsref.geometry import Window, ceil_div
from mpsref.kernels import Convolution, ConvolutionTranspose, FullyConnected
from mpsref.padding import Placement
from mpsref.registry import Spec

__all__ = ["CONVOLUTIONS", "FULLY_CONNECTED", "LAYERS", "NETWORKS", "TRANSPOSES", "WeightedLayer"]

NETWORKS = {
    "dcgan_generator": "DCGAN, generator, PyTorch, 64 x 64",
    "fcn8s": "FCN-8s, VGG-16, Caffe, 500 x 500",
    "resnext50_32x4d": "ResNeXt-50 32x4d, 224 x 224",
}
"""The networks whose pooling layers are not in the zoo; the others are in :mod:`mpsref.conformance.zoo.pooling`."""

FEW = 12
"""Windows on an axis of a small layer, beside those that may reach over its end."""


@dataclass(frozen=True)
class WeightedLayer(Layer):
    """A layer with weights."""

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels, groups and images, for a quick check.

        Of large images, whole windows are cut off: how the first and the last lie to the border stays as published.

        >>> from mpsref.conformance import zoo
        >>> small = zoo.by_name("alexnet.conv1").small(channels=5)
        >>> small.source_shape, small.call["output_size"], small.call["output_channels"]
        ((1, 67, 67, 3), (15, 15), 6)
        """
        groups, inputs, outputs = self._fewer(channels)
        _, height, width, _ = self.source_shape
        if isinstance(self.spec, FullyConnected):
            call = {**self.call, "output_channels": outputs}
            return replace(self, source_shape=(batch, height, width, inputs), call=call)
        assert isinstance(self.spec, (Convolution, ConvolutionTranspose))
        spec, result = replace(self.spec, groups=groups), self.call["output_size"]
        if isinstance(spec, ConvolutionTranspose):  # its windows are counted in the source, their pixels in the result
            (height, result_height), (width, result_width) = map(
                _cut, spec.convolution.windows, (height, width), result
            )
        else:
            (result_height, height), (result_width, width) = map(_cut, spec.windows, result, (height, width))
        size = result_height, result_width
        call = {**self.call, "output_channels": outputs, "output_size": size, "gradient_size": size}
        return replace(self, spec=spec, source_shape=(batch, height, width, inputs), call=call)

    def _fewer(self, channels: int) -> tuple[int, int, int]:
        """Return groups, input and output channels of the small layer; depthwise stays so, and groups stay groups."""
        groups, inputs, outputs = getattr(self.spec, "groups", 1), self.source_shape[3], self.call["output_channels"]
        if groups == 1:
            return 1, min(inputs, channels), min(outputs, channels + 1)
        if groups == inputs:
            return channels, channels, channels * outputs // groups
        own = max(1, channels // 2)
        return 2, 2 * own, 2 * own

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of its source ``factor`` times as long."""
        if not isinstance(self.spec, FullyConnected):
            return super().grown(axis, factor)
        n, height, width, c = (length * factor if k == axis else length for k, length in enumerate(self.source_shape))
        return replace(self, spec=replace(self.spec, kernel_size=(height, width)), source_shape=(n, height, width, c))


def _cut(window: Window, windows: int, pixels: int) -> Pair:
    """Return fewer windows, and the pixels without those that only the windows left out have read first."""
    kept = min(windows, FEW + ceil_div(window.extent, window.stride))
    return kept, pixels - window.stride * (windows - kept)


def _layer(
    spec: Spec,
    name: str,
    source_shape: ImageShape,
    channels: int,
    size: Pair,
    framework: str = "",
    words: dict[str, Any] | None = None,
    biased: bool = False,
    note: str = "",
) -> WeightedLayer:
    call = {"output_channels": channels, "output_size": size, "gradient_size": size, "biased": biased}
    network = (pooling.NETWORKS | NETWORKS)[name.partition(".")[0]]
    return WeightedLayer(name, network, spec, source_shape, call, framework, tuple(sorted((words or {}).items())), note)


def _conv(
    name: str,
    source_shape: ImageShape,
    channels: int,
    place: Callable[..., Placement],
    kernel_size: int,
    strides: int = 1,
    groups: int = 1,
    biased: bool = False,
    note: str = "",
    **words: Any,
) -> WeightedLayer:
    """Return a convolution with square windows and ``channels`` output channels."""
    placed = place(source_shape[1:3], kernel_size, strides, **words)
    spec = Convolution(kernel_size, strides, words.get("dilations", 1), placed.offset, groups)
    return _layer(spec, name, source_shape, channels, placed.output_size, place.__name__, words, biased, note)


def _transpose(
    name: str,
    source_shape: ImageShape,
    channels: int,
    kernel_size: int,
    strides: int,
    pads: int = 0,
    biased: bool = False,
    note: str = "",
) -> WeightedLayer:
    """Return a transposed convolution in the words of PyTorch and Caffe: ``pads`` pixels are cut off all around."""
    kernel_offset = kernel_size // 2 - kernel_size + 1 + pads
    spec = ConvolutionTranspose(kernel_size, strides, kernel_offset=kernel_offset)
    height, width = ((length - 1) * strides - 2 * pads + kernel_size for length in source_shape[1:3])
    return _layer(spec, name, source_shape, channels, (height, width), words={"pads": pads}, biased=biased, note=note)


def _connected(name: str, source_shape: ImageShape, channels: int, note: str = "") -> WeightedLayer:
    spec = FullyConnected(source_shape[1:3])
    return _layer(spec, name, source_shape, channels, (1, 1), biased=True, note=note)


_torch, _tensorflow = padding.pytorch, padding.tensorflow
_SAME: dict[str, Any] = {"padding": "SAME"}

# fmt: off
CONVOLUTIONS: tuple[WeightedLayer, ...] = (
    _conv("alexnet.conv1", (16, 227, 227, 3), 96, _torch, 11, 4, biased=True),
    _conv("alexnet.conv2", (16, 27, 27, 96), 256, _torch, 5, groups=2, biased=True, padding=2),
    _conv("alexnet.conv3", (16, 13, 13, 256), 384, _torch, 3, biased=True, padding=1),
    _conv("alexnet.conv4", (32, 13, 13, 384), 384, _torch, 3, groups=2, biased=True, padding=1),
    _conv("vgg16.conv1_1", (2, 224, 224, 3), 64, _torch, 3, biased=True, padding=1),
    _conv("vgg16.conv1_2", (1, 224, 224, 64), 64, _torch, 3, biased=True, padding=1),
    _conv("vgg16.conv2_2", (1, 112, 112, 128), 128, _torch, 3, biased=True, padding=1),
    _conv("vgg16.conv3_2", (2, 56, 56, 256), 256, _torch, 3, biased=True, padding=1),
    _conv("vgg16.conv4_2", (2, 28, 28, 512), 512, _torch, 3, biased=True, padding=1),
    _conv("vgg16.conv5_2", (4, 14, 14, 512), 512, _torch, 3, biased=True, padding=1),
    _conv("googlenet.conv1", (8, 224, 224, 3), 64, _torch, 7, 2, biased=True, padding=3),
    _conv("googlenet.conv2_reduce", (16, 56, 56, 64), 64, _torch, 1, biased=True),
    _conv("googlenet.conv2", (4, 56, 56, 64), 192, _torch, 3, biased=True, padding=1),
    _conv("googlenet.inception_3a.1x1", (24, 28, 28, 192), 64, _torch, 1, biased=True),
    _conv("googlenet.inception_3a.3x3", (16, 28, 28, 96), 128, _torch, 3, biased=True, padding=1),
    _conv("googlenet.inception_3a.5x5_reduce", (32, 28, 28, 192), 16, _torch, 1, biased=True),
    _conv("googlenet.inception_3a.5x5", (32, 28, 28, 16), 32, _torch, 5, biased=True, padding=2),
    _conv("googlenet.inception_5b.3x3", (32, 7, 7, 192), 384, _torch, 3, biased=True, padding=1),
    _conv("resnet50.conv1", (8, 224, 224, 3), 64, _torch, 7, 2, padding=3),
    _conv("resnet50.layer1.conv1", (8, 56, 56, 256), 64, _torch, 1),
    _conv("resnet50.layer1.conv2", (8, 56, 56, 64), 64, _torch, 3, padding=1),
    _conv("resnet50.layer1.conv3", (8, 56, 56, 64), 256, _torch, 1),
    _conv("resnet50.layer2.conv2_strided", (8, 56, 56, 128), 128, _torch, 3, 2, padding=1),
    _conv("resnet50.layer2.downsample", (8, 56, 56, 256), 512, _torch, 1, 2),
    _conv("resnet50.layer2.conv2", (16, 28, 28, 128), 128, _torch, 3, padding=1),
    _conv("resnet50.layer2.conv3", (16, 28, 28, 128), 512, _torch, 1),
    _conv("resnet50.layer3.conv1", (16, 14, 14, 1024), 256, _torch, 1),
    _conv("resnet50.layer3.conv2", (16, 14, 14, 256), 256, _torch, 3, padding=1),
    _conv("resnet50.layer4.downsample", (16, 14, 14, 1024), 2048, _torch, 1, 2),
    _conv("resnet50.layer4.conv2", (16, 7, 7, 512), 512, _torch, 3, padding=1),
    _conv("resnet50.layer4.conv3", (32, 7, 7, 512), 2048, _torch, 1),
    _conv("resnext50_32x4d.layer1.conv2", (16, 56, 56, 128), 128, _torch, 3, groups=32, padding=1),
    _conv("resnext50_32x4d.layer2.conv2_strided", (8, 56, 56, 256), 256, _torch, 3, 2, groups=32, padding=1),
    _conv("resnext50_32x4d.layer2.conv2", (16, 28, 28, 256), 256, _torch, 3, groups=32, padding=1),
    _conv("resnext50_32x4d.layer4.conv2", (32, 7, 7, 1024), 1024, _torch, 3, groups=32, padding=1),
    _conv("mobilenet_v2.stem", (16, 224, 224, 3), 32, _torch, 3, 2, padding=1),
    _conv("mobilenet_v2.block1.depthwise", (16, 112, 112, 32), 32, _torch, 3, groups=32, padding=1),
    _conv("mobilenet_v2.block2.expand", (4, 112, 112, 16), 96, _torch, 1),
    _conv("mobilenet_v2.block2.depthwise", (6, 112, 112, 96), 96, _torch, 3, 2, groups=96, padding=1),
    _conv("mobilenet_v2.block2.project", (16, 56, 56, 96), 24, _torch, 1),
    _conv("mobilenet_v2.block5.depthwise", (32, 28, 28, 192), 192, _torch, 3, groups=192, padding=1),
    _conv("mobilenet_v2.block8.depthwise", (64, 14, 14, 384), 384, _torch, 3, groups=384, padding=1),
    _conv("mobilenet_v2.block16.depthwise", (128, 7, 7, 960), 960, _torch, 3, groups=960, padding=1),
    _conv("mobilenet_v2.head", (64, 7, 7, 320), 1280, _torch, 1),
    _conv("efficientnet_b0.stem", (16, 224, 224, 3), 32, _tensorflow, 3, 2, **_SAME,
          note="An even size: padding after the image alone."),
    _conv("efficientnet_b0.block2.depthwise", (6, 112, 112, 96), 96, _tensorflow, 3, 2, groups=96, **_SAME),
    _conv("efficientnet_b0.block4.depthwise", (16, 56, 56, 144), 144, _tensorflow, 5, 2, groups=144, **_SAME,
          note="Five taps: one row of padding before the image and two after it."),
    _conv("efficientnet_b0.block5.depthwise", (32, 28, 28, 240), 240, _tensorflow, 5, groups=240, **_SAME),
    _conv("efficientnet_b0.block7.project", (64, 14, 14, 480), 80, _tensorflow, 1, **_SAME),
    _conv("efficientnet_b0.block13.depthwise", (128, 7, 7, 1152), 1152, _tensorflow, 5, groups=1152, **_SAME),
    _conv("deeplab_largefov.conv5_3", (1, 41, 41, 512), 512, _torch, 3, biased=True, padding=2, dilations=2),
    _conv("deeplab_largefov.fc6", (1, 41, 41, 512), 1024, _torch, 3, biased=True, padding=12, dilations=12),
    _conv("deeplabv3.aspp6", (1, 33, 33, 2048), 256, _torch, 3, padding=6, dilations=6),
    _conv("deeplabv3.aspp18", (1, 33, 33, 2048), 256, _torch, 3, padding=18, dilations=18,
          note="Windows wider than the image: only the centre tap is always inside."),
    _conv("unet.down2", (1, 140, 140, 128), 256, _torch, 3, biased=True, note="No padding."),
    _conv("unet.down4", (1, 32, 32, 512), 1024, _torch, 3, biased=True, note="No padding."),
)
"""Convolutions, with depthwise ones and others in groups."""

TRANSPOSES: tuple[WeightedLayer, ...] = (
    _transpose("unet.up1", (2, 28, 28, 1024), 512, 2, 2, biased=True, note="An even kernel; results do not overlap."),
    _transpose("unet.up2", (2, 52, 52, 512), 256, 2, 2, biased=True),
    _transpose("unet.up3", (1, 100, 100, 256), 128, 2, 2, biased=True),
    _transpose("dcgan_generator.main3", (64, 4, 4, 512), 256, 4, 2, pads=1, note="An even kernel; results overlap."),
    _transpose("dcgan_generator.main9", (32, 16, 16, 128), 64, 4, 2, pads=1),
    _transpose("dcgan_generator.main12", (64, 32, 32, 64), 3, 4, 2, pads=1),
    _transpose("fcn8s.upscore2", (16, 16, 16, 21), 21, 4, 2),
    _transpose("fcn8s.upscore8", (1, 70, 70, 21), 21, 16, 8, note="A large kernel; 568 rows, cut to 500 afterwards."),
)
"""Transposed convolutions."""

FULLY_CONNECTED: tuple[WeightedLayer, ...] = (
    _connected("alexnet.fc6", (64, 6, 6, 256), 4096),
    _connected("alexnet.fc7", (64, 1, 1, 4096), 4096),
    _connected("alexnet.fc8", (64, 1, 1, 4096), 1000),
    _connected("vgg16.fc6", (16, 7, 7, 512), 4096, note="The largest of them: 103 million weights."),
    _connected("vgg16.fc7", (16, 1, 1, 4096), 4096),
)
"""Fully connected layers."""
# fmt: on

LAYERS: tuple[WeightedLayer, ...] = (*CONVOLUTIONS, *TRANSPOSES, *FULLY_CONNECTED)
