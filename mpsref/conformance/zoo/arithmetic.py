"""Sums, products and comparisons of published networks: residual connections, gates of channels and of pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import Arithmetic, Compare
from mpsref.registry import Spec

__all__ = ["LAYERS", "NETWORKS"]

NETWORKS = {
    "attention_unet": "Attention U-Net, 256 x 256",
    "bam_resnet50": "BAM ResNet-50, 224 x 224",
    "cbam_resnet50": "CBAM ResNet-50, 224 x 224",
    "fpn_resnet50": "Feature pyramid of ResNet-50, 800 x 1216",
    "preprocessing": "Mean and deviation of ImageNet, 224 x 224 (no network)",
    "resnet18": "ResNet-18, 224 x 224",
    "se_resnext50": "SE-ResNeXt-50 32x4d, 224 x 224",
}

CHANNELS: dict[str, Any] = {"secondary_strides": (0, 0, 1)}
PIXELS: dict[str, Any] = {"secondary_strides": (1, 1, 0)}


class Paired(Layer):
    """A layer with two operands; the axes of the second one that are as long as the first's stay so."""

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels and images."""
        return self._fitted(super().small(channels, batch))

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of its operands longer."""
        return self._fitted(super().grown(axis, factor))

    def _fitted(self, changed: Self) -> Self:
        shapes = zip(self.source_shape, changed.source_shape, self.call["secondary_shape"], strict=True)
        return replace(changed, call={"secondary_shape": tuple(new if y == old else y for old, new, y in shapes)})


def _layer(name: str, spec: Spec, source_shape: ImageShape, note: str = "") -> Layer:
    """Return a layer whose second operand has one row, column or channel where its stride is 0."""
    strides = vars(spec)["secondary_strides"]
    shape = source_shape[0], *(length if t else 1 for length, t in zip(source_shape[1:], strides, strict=True))
    return Paired(name, NETWORKS[name.partition(".")[0]], spec, source_shape, {"secondary_shape": shape}, note=note)


# fmt: off
LAYERS: tuple[Layer, ...] = (
    _layer("resnet18.layer1", Arithmetic("add"), (8, 56, 56, 64), "A residual connection."),
    _layer("resnet18.layer2", Arithmetic("add"), (16, 28, 28, 128)),
    _layer("resnet18.layer4", Arithmetic("add", minimum_value=0.0), (32, 7, 7, 512), "With the ReLU as a clamp."),
    _layer("fpn_resnet50.p4", Arithmetic("add"), (1, 50, 76, 256), "Lateral and top-down feature maps."),
    _layer("se_resnext50.layer1", Arithmetic("multiply", **CHANNELS), (8, 56, 56, 256), "A gate for each channel."),
    _layer("se_resnext50.layer4", Arithmetic("multiply", **CHANNELS), (16, 7, 7, 2048)),
    _layer("cbam_resnet50.layer2", Arithmetic("multiply", **PIXELS), (8, 28, 28, 512), "A gate for each pixel."),
    _layer("attention_unet.gate1", Arithmetic("multiply", **PIXELS), (1, 256, 256, 64)),
    _layer("bam_resnet50.layer1", Arithmetic("add", **CHANNELS), (8, 56, 56, 256), "Attention of channels."),
    _layer("preprocessing.mean", Arithmetic("subtract", primary_scale=1 / 255, **CHANNELS), (16, 224, 224, 3)),
    _layer("preprocessing.deviation", Arithmetic("multiply", **CHANNELS), (16, 224, 224, 3), "By the reciprocal."),
    _layer("attention_unet.mask", Compare("greaterorequal", secondary_strides=(0, 0, 0)), (1, 256, 256, 64),
           "Where a gate is open."),
)
# fmt: on
