"""Dropout in published networks; probabilities are those of keeping."""

from __future__ import annotations

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import Dropout

__all__ = ["LAYERS", "NETWORKS"]

NETWORKS = {
    "alexnet": "AlexNet, Caffe, 227 x 227",
    "enet": "ENet, 512 x 512",
    "googlenet": "GoogLeNet, Caffe, 224 x 224",
    "inception_v3": "Inception-v3, torchvision, 299 x 299",
    "mobilenet_v2": "MobileNetV2, 224 x 224",
    "nin_imagenet": "Network in Network, Caffe, 224 x 224",
    "squeezenet1_0": "SqueezeNet 1.0, 224 x 224",
    "vgg16": "VGG-16, 224 x 224",
    "wide_resnet28_10": "Wide ResNet-28-10, CIFAR-10",
}
"""The networks, by the first part of the names of their layers, with the size of their input images."""


def _layer(name: str, shape: ImageShape, keep: float, whole_channels: bool = False) -> Layer:
    spec = Dropout(keep, seed=1, mask_strides=(0, 0, 1) if whole_channels else (1, 1, 1))
    return Layer(name, NETWORKS[name.partition(".")[0]], spec, shape)


LAYERS: tuple[Layer, ...] = (
    _layer("wide_resnet28_10.group1_dropout", (4, 32, 32, 160), 0.7),
    _layer("alexnet.drop6", (128, 1, 1, 4096), 0.5),
    _layer("vgg16.drop7", (64, 1, 1, 4096), 0.5),
    _layer("googlenet.pool5_drop", (32, 1, 1, 1024), 0.6),
    _layer("inception_v3.dropout", (32, 1, 1, 2048), 0.5),
    _layer("mobilenet_v2.dropout", (32, 1, 1, 1280), 0.8),
    _layer("nin_imagenet.drop", (32, 6, 6, 384), 0.5),
    _layer("squeezenet1_0.drop9", (8, 13, 13, 512), 0.5),
    _layer("enet.bottleneck2_1_regularizer", (2, 64, 64, 128), 0.9, whole_channels=True),
)
"""Sorted by hand: the first is what the benchmark grows along each axis."""
