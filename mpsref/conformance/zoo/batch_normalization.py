"""Batch normalization layers of published networks, in the words of each: epsilon, parameters, what follows."""

from __future__ import annotations

import math
from typing import Any

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels.batch_normalization import BatchNormalization
from mpsref.kernels.neuron import Neuron
from mpsref.registry import Problem

__all__ = ["LAYERS", "NETWORKS", "BatchLayer"]

NETWORKS = {
    "darknet53": "Darknet-53 of YOLOv3, 416 x 416",
    "dcgan": "DCGAN, discriminator, 64 x 64",
    "densenet121": "DenseNet-121, 224 x 224",
    "efficientnet_b0": "EfficientNet-B0, 224 x 224",
    "inception_v3": "Inception-v3, torchvision, 299 x 299",
    "inception_v3_tf": "Inception-v3, TensorFlow, 299 x 299",
    "mobilenet_v2": "MobileNetV2, 224 x 224",
    "resnet50": "ResNet-50, 224 x 224",
    "vgg16_bn": "VGG-16 with batch normalization, 224 x 224",
    "xception": "Xception, TensorFlow, 299 x 299",
}

TORCH = 1e-5
"""The default epsilon of PyTorch; TensorFlow's is 1e-3."""

RELU, LEAKY = Neuron("relu"), Neuron("relu", a=0.1)


class BatchLayer(Layer):
    """A layer in training: its batch is complete, so the sums that its gradient is given are over all its pixels."""

    def problem(self, method: str) -> Problem:
        """Return the problem of one of the operations."""
        kind = self.spec.problems[method]
        known: dict[str, Any] = {} if method == "statistics" else dict(self.call)
        if method == "gradient":
            known["count"] = math.prod(self.source_shape[:3])
        problem: Problem = kind(self.spec, self.source_shape, **known)
        return problem


def _layer(
    name: str, shape: ImageShape, epsilon: float = TORCH, neuron: Neuron | None = None, gamma: bool = True
) -> BatchLayer:
    spec = BatchNormalization(epsilon, neuron)
    return BatchLayer(name, NETWORKS[name.partition(".")[0]], spec, shape, {"gamma": gamma, "beta": True})


LAYERS: tuple[Layer, ...] = (
    _layer("resnet50.bn1", (4, 112, 112, 64)),
    _layer("resnet50.layer1.bn1", (8, 56, 56, 64)),
    _layer("resnet50.layer1.bn3", (4, 56, 56, 256)),
    _layer("resnet50.layer2.bn2", (8, 28, 28, 128)),
    _layer("resnet50.layer2.bn3", (8, 28, 28, 512)),
    _layer("resnet50.layer3.bn2", (16, 14, 14, 256)),
    _layer("resnet50.layer3.bn3", (8, 14, 14, 1024)),
    _layer("resnet50.layer4.bn2", (16, 7, 7, 512)),
    _layer("resnet50.layer4.bn3", (8, 7, 7, 2048)),
    _layer("inception_v3.conv_1a", (4, 149, 149, 32), 1e-3),
    _layer("inception_v3.conv_4a", (2, 71, 71, 192), 1e-3),
    _layer("inception_v3.mixed_5b_bn", (8, 35, 35, 96), 1e-3),
    _layer("inception_v3.mixed_6b_bn", (16, 17, 17, 192), 1e-3),
    _layer("inception_v3.mixed_7c_bn", (16, 8, 8, 384), 1e-3),
    _layer("inception_v3_tf.mixed_6b_bn", (16, 17, 17, 192), 1e-3, gamma=False),
    _layer("inception_v3_tf.mixed_7c_bn", (16, 8, 8, 320), 1e-3, RELU, gamma=False),
    _layer("vgg16_bn.conv1_2", (1, 224, 224, 64)),
    _layer("densenet121.denseblock1.norm1", (8, 56, 56, 64), TORCH, RELU),
    _layer("densenet121.transition3.norm", (8, 14, 14, 1024), TORCH, RELU),
    _layer("mobilenet_v2.block1.expand", (2, 112, 112, 96), TORCH, Neuron("relun", a=0.0, b=6.0)),
    _layer("mobilenet_v2.block13.project", (16, 14, 14, 96)),
    _layer("efficientnet_b0.block2.project", (8, 56, 56, 24), 1e-3),
    _layer("efficientnet_b0.head", (8, 7, 7, 1280), 1e-3),
    _layer("xception.block4_bn", (4, 37, 37, 728), 1e-3),
    _layer("darknet53.conv1", (1, 208, 208, 64), TORCH, LEAKY),
    _layer("darknet53.block5", (8, 13, 13, 1024), TORCH, LEAKY),
    _layer("dcgan.conv2", (32, 16, 16, 128), TORCH, Neuron("relu", a=0.2)),
    _layer("dcgan.conv4", (64, 4, 4, 512), TORCH, Neuron("relu", a=0.2)),
)
