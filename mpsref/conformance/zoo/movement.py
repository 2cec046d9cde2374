"""Concatenations, slices, paddings and reshapes of published networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import Concatenation, Pad, Reshape, Slice
from mpsref.registry import Problem, Spec

__all__ = ["LAYERS", "NETWORKS"]

NETWORKS = {
    "cyclegan": "CycleGAN, 256 x 256",
    "densenet121_block": "DenseNet-121, 224 x 224",
    "googlenet_block": "GoogLeNet, 224 x 224",
    "mobilenet_v1_tf": "MobileNetV1, TensorFlow, 224 x 224",
    "resnet_a": "ResNet with padded shortcuts (option A), CIFAR-10",
    "shufflenet_v2": "ShuffleNet v2 1x, 224 x 224",
    "squeezenet_fire": "SqueezeNet 1.0, 224 x 224",
    "unet_crop": "U-Net, 572 x 572",
    "vgg16_flat": "VGG-16, 224 x 224",
    "vit_tiny": "ViT-Ti/16, 224 x 224",
}


class Joined(Layer):
    """A concatenation; the channels of the source shape are those of all sources together."""

    def problem(self, method: str) -> Problem:
        """Return the problem of one of the operations."""
        problem: Problem = self.spec.problems[method](self.spec, self.source_shape[:3], self.call["channels"])
        return problem

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with as many channels a source, one more for each next one, and fewer images."""
        counts = tuple(channels + k for k in range(len(self.call["channels"])))
        return replace(super().small(sum(counts), batch), call={"channels": counts})

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of all sources longer."""
        counts = tuple(c * factor if axis == 3 else c for c in self.call["channels"])
        return replace(super().grown(axis, factor), call={"channels": counts})


class Sized(Layer):
    """A reshape, whose size has to fit the image."""

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels and images."""
        return self._fitted(super().small(channels, batch))

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of the image longer."""
        return self._fitted(super().grown(axis, factor))

    def _fitted(self, changed: Self) -> Self:
        assert isinstance(self.spec, Reshape)
        _, height, width, channels = changed.source_shape
        size = (1, 1, height * width * channels) if self.spec.size[0] == 1 else (height * width, 1, channels)
        return replace(changed, spec=replace(self.spec, size=size))


class Channeled(Layer):
    """A slice of channels, which has to fit the image."""

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with all its channels and fewer images."""
        return super().small(self.source_shape[3], batch)


def _concatenation(name: str, batch: tuple[int, int, int], *channels: int, alignment: int = 4) -> Layer:
    network = NETWORKS[name.partition(".")[0]]
    call = {"channels": channels}
    return Joined(name, network, Concatenation(alignment), (*batch, sum(channels)), call)


def _layer(kind: type[Layer], name: str, spec: Spec, source_shape: ImageShape, note: str = "") -> Layer:
    return kind(name, NETWORKS[name.partition(".")[0]], spec, source_shape, note=note)


# fmt: off
LAYERS: tuple[Layer, ...] = (
    _concatenation("googlenet_block.inception_3a", (8, 28, 28), 64, 128, 32, 32),
    _concatenation("googlenet_block.inception_4e", (16, 14, 14), 256, 320, 128, 128),
    _concatenation("squeezenet_fire.fire2", (4, 54, 54), 64, 64),
    _concatenation("densenet121_block.layer1", (4, 56, 56), 64, 32),
    _concatenation("densenet121_block.layer6", (4, 56, 56), 224, 32, alignment=1),
    _concatenation("unet_crop.up4", (1, 392, 392), 64, 64),
    _layer(Layer, "unet_crop.crop4", Slice((88, 88, 0), (392, 392, None)), (1, 568, 568, 16)),
    _layer(Channeled, "shufflenet_v2.split", Slice((0, 0, 58)), (16, 28, 28, 116), "The second half of the channels."),
    _layer(Layer, "cyclegan.conv1", Pad((3, 3, 0), (3, 3, 0), "mirror"), (4, 256, 256, 3)),
    _layer(Layer, "cyclegan.residual", Pad((1, 1, 0), (1, 1, 0), "mirror"), (4, 64, 64, 256)),
    _layer(Layer, "mobilenet_v1_tf.conv1", Pad((0, 0, 0), (1, 1, 0)), (16, 224, 224, 3), "Padding of SAME, stride 2."),
    _layer(Layer, "resnet_a.layer2", Pad((0, 0, 8), (0, 0, 8)), (64, 16, 16, 16), "Channels of a shortcut."),
    _layer(Sized, "vgg16_flat.flatten", Reshape((1, 1, 25088)), (32, 7, 7, 512)),
    _layer(Sized, "vit_tiny.tokens", Reshape((196, 1, 192)), (16, 14, 14, 192), "Pixels as a column."),
)
# fmt: on
