"""Neurons of published networks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import Neuron

__all__ = ["LAYERS", "NETWORKS"]

NETWORKS = {
    "alexnet": "AlexNet, Caffe, 227 x 227",
    "convnext_tiny": "ConvNeXt-T, 224 x 224",
    "darknet_yolov3": "YOLOv3, Darknet, 416 x 416",
    "elu_cifar": "ELU network of Clevert et al., CIFAR-100",
    "lenet5": "LeNet-5, 32 x 32",
    "mobilenet_v2": "MobileNetV2, 224 x 224",
    "mobilenet_v3_large": "MobileNetV3-Large, 224 x 224",
    "mtcnn": "MTCNN P-Net, 12 x 12 crops of a 320 x 240 image",
    "resnet50": "ResNet-50, 224 x 224",
    "se_resnet50": "SE-ResNet-50, 224 x 224",
    "srresnet": "SRResNet, 96 x 96",
    "vgg16": "VGG-16, 224 x 224",
    "vit_b16": "ViT-B/16, 224 x 224: 196 patches and a class token",
}
"""The networks, by the first part of the names of their layers, with the size of their input images."""


@dataclass(frozen=True)
class NeuronLayer(Layer):
    """A layer whose neuron may have a slope for each channel; only then these have a gradient."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The operations that this layer has."""
        known = tuple(self.spec.problems)
        return known if isinstance(self.spec, Neuron) and self.spec.data else known[:2]

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels and images, and with fewer slopes."""
        small = super().small(channels, batch)
        spec = small.spec
        if isinstance(spec, Neuron) and spec.data:
            return replace(small, spec=replace(spec, data=spec.data[:channels]))
        return small


def _layer(name: str, neuron: Neuron, shape: ImageShape) -> Layer:
    return NeuronLayer(name, NETWORKS[name.partition(".")[0]], neuron, shape)


def _prelu(channels: int) -> Neuron:
    """Slopes start at 0.25 and are learned; these stand for learned ones."""
    return Neuron("prelu", data=tuple(0.25 + 0.5 * (c % 7 - 3) / 8 for c in range(channels)))


LAYERS: tuple[Layer, ...] = (
    _layer("alexnet.relu1", Neuron("relu"), (4, 55, 55, 96)),
    _layer("vgg16.relu3_1", Neuron("relu"), (2, 56, 56, 256)),
    _layer("resnet50.layer2_relu", Neuron("relu"), (4, 28, 28, 512)),
    _layer("darknet_yolov3.leaky_4", Neuron("relu", a=0.1), (1, 104, 104, 128)),
    _layer("mobilenet_v2.relu6_2", Neuron("relun", a=0, b=6), (4, 56, 56, 144)),
    _layer("mobilenet_v3_large.hsigmoid", Neuron("hardsigmoid", a=1 / 6, b=0.5), (8, 1, 1, 960)),
    _layer("se_resnet50.gate", Neuron("sigmoid"), (8, 1, 1, 2048)),
    _layer("lenet5.tanh1", Neuron("tanh", a=1.7159, b=2 / 3), (64, 28, 28, 6)),
    _layer("elu_cifar.stack2", Neuron("elu", a=1), (16, 16, 16, 192)),
    _layer("srresnet.prelu", _prelu(64), (4, 96, 96, 64)),
    _layer("mtcnn.pnet_prelu1", _prelu(10), (1, 238, 318, 10)),
    _layer("convnext_tiny.stage1_gelu", Neuron("gelu"), (1, 56, 56, 384)),
    _layer("vit_b16.mlp_gelu", Neuron("gelu"), (1, 197, 1, 3072)),
)
"""Neurons of these networks, at batch sizes of 0.03 to 8 MB a source image."""
