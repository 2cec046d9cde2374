"""Losses that published networks were trained with."""

from __future__ import annotations

from typing import Any

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import Loss

__all__ = ["LAYERS", "NETWORKS"]

NETWORKS = {
    "cyclegan": "CycleGAN, 256 x 256",
    "deeplabv3": "DeepLabv3, 513 x 513, output stride 16",
    "inception_v3": "Inception-v3, torchvision, 299 x 299",
    "pix2pix": "pix2pix, 256 x 256",
    "resnet50": "ResNet-50, 224 x 224",
    "sagan": "SAGAN, 128 x 128",
    "srresnet": "SRResNet, 96 x 96",
    "ssd300": "SSD300, VGG-16, PyTorch, 300 x 300",
    "vae_mnist": "Variational autoencoder, MNIST",
    "yolov3_spp": "YOLOv3-SPP, 608 x 608",
}
"""The networks, by the first part of the names of their layers, with the size of their input images."""


def _layer(name: str, loss: Loss, shape: ImageShape, **call: Any) -> Layer:
    return Layer(name, NETWORKS[name.partition(".")[0]], loss, shape, call)


LAYERS: tuple[Layer, ...] = (
    _layer("srresnet.content", Loss("meansquarederror"), (4, 96, 96, 3)),
    _layer("pix2pix.l1", Loss("meanabsoluteerror"), (4, 256, 256, 3)),
    _layer("cyclegan.patches", Loss("meansquarederror"), (4, 30, 30, 1)),
    _layer("resnet50.classes", Loss("softmaxcrossentropy"), (256, 1, 1, 1000)),
    _layer(
        "inception_v3.classes",
        Loss("softmaxcrossentropy", label_smoothing=0.1, number_of_classes=1000),
        (256, 1, 1, 1000),
    ),
    _layer("deeplabv3.pixels", Loss("softmaxcrossentropy"), (1, 513, 513, 21)),
    _layer("ssd300.boxes", Loss("huber"), (8, 1, 8732, 4)),
    _layer("yolov3_spp.objects", Loss("sigmoidcrossentropy", "none"), (8, 76, 76, 3), weighted=True),
    _layer("yolov3_spp.classes", Loss("sigmoidcrossentropy"), (4, 38, 38, 240)),
    _layer("vae_mnist.pixels", Loss("log", "mean", True), (128, 28, 28, 1)),
    _layer("sagan.discriminator", Loss("hinge", "mean"), (64, 1, 1, 1)),
)
"""Each with the batch that is benchmarked; the first is what the benchmark grows along each axis."""
