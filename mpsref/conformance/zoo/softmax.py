"""Softmax layers of published networks: classes of an image, of each pixel or box, and weights of attention."""

from __future__ import annotations

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import LogSoftMax, SoftMax
from mpsref.registry import Spec

__all__ = ["LAYERS", "NETWORKS"]

NETWORKS = {
    "deeplabv3": "DeepLabv3, 513 x 513, output stride 16",
    "lenet5": "LeNet-5, 32 x 32",
    "resnet50": "ResNet-50, 224 x 224",
    "ssd300": "SSD300, VGG-16, PyTorch, 300 x 300",
    "unet": "U-Net, 572 x 572",
    "vit_b16": "ViT-B/16, 224 x 224: 196 patches and a class token",
}
"""The networks, by the first part of the names of their layers, with the size of their input images."""


def _layer(name: str, spec: Spec, shape: ImageShape) -> Layer:
    return Layer(name, NETWORKS[name.partition(".")[0]], spec, shape)


LAYERS: tuple[Layer, ...] = (
    _layer("resnet50.softmax", SoftMax(), (256, 1, 1, 1000)),
    _layer("resnet50.log_softmax", LogSoftMax(), (256, 1, 1, 1000)),
    _layer("lenet5.log_softmax", LogSoftMax(), (4096, 1, 1, 10)),
    _layer("unet.softmax", SoftMax(), (1, 388, 388, 2)),
    _layer("unet.log_softmax", LogSoftMax(), (1, 388, 388, 2)),
    _layer("deeplabv3.softmax", SoftMax(), (8, 65, 65, 21)),
    _layer("deeplabv3.log_softmax", LogSoftMax(), (8, 65, 65, 21)),
    _layer("ssd300.confidences", SoftMax(), (4, 8732, 1, 21)),
    _layer("vit_b16.attention", SoftMax(), (12, 197, 1, 197)),
)
"""One softmax a pixel; boxes and rows of attention stand as pixels."""
