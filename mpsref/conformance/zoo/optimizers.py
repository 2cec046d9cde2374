"""Optimizers on the weights of layers of the networks that were published with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import Adam, RMSProp, StochasticGradientDescent
from mpsref.kernels.optimizers import Optimizer
from mpsref.registry import Problem

__all__ = ["LAYERS", "NETWORKS"]

NETWORKS = {
    "alexnet": "AlexNet, Caffe, 227 x 227",
    "inception_v3": "Inception-v3, torchvision, 299 x 299",
    "mobilenet_v2": "MobileNetV2, 224 x 224",
    "resnet50": "ResNet-50, 224 x 224",
    "unet": "U-Net, 572 x 572",
    "vit_b16": "ViT-B/16, 224 x 224: 196 patches and a class token",
}
"""The networks, by the first part of the names of their layers, with the size of their input images."""


@dataclass(frozen=True)
class Weights(Layer):
    """The weights of a layer, whose shape, OHWI, stands where other kernels have that of their source."""

    def problem(self, method: str) -> Problem:
        """Return a step on the weights."""
        problem: Problem = self.spec.problems[method](self.spec, self.source_shape, **self.call)
        return problem

    @property
    def nbytes(self) -> int:
        """Bytes that a step must move: all that it reads and writes, once."""
        problem = self.problem("step")
        return 4 * sum(math.prod(shape) for shape in (*problem.input_shapes.values(), *problem.result_shapes))


def _layer(name: str, optimizer: Optimizer, shape: ImageShape, **call: Any) -> Layer:
    return Weights(name, NETWORKS[name.partition(".")[0]], optimizer, shape, call)


_DECAY: dict[str, Any] = {"regularization_type": "l2", "regularization_scale": 1e-4}

LAYERS: tuple[Layer, ...] = (
    _layer("resnet50.layer4_conv2", StochasticGradientDescent(0.1, 0.9, **_DECAY), (512, 3, 3, 512), momentum=True),
    _layer("alexnet.conv3_update", StochasticGradientDescent(0.01, 0.9, **_DECAY), (384, 3, 3, 256), momentum=True),
    _layer("resnet50.conv1_nesterov", StochasticGradientDescent(0.1, 0.9, True), (64, 7, 7, 3), momentum=True),
    _layer("unet.up1_plain", StochasticGradientDescent(0.01), (512, 3, 3, 512)),
    _layer("inception_v3.mixed_7c_update", RMSProp(0.045, decay=0.9, epsilon=1.0), (448, 1, 1, 2048)),
    _layer("mobilenet_v2.conv_last", RMSProp(0.045, decay=0.9, epsilon=1.0, **_DECAY), (1280, 1, 1, 320)),
    _layer("vit_b16.mlp", Adam(1e-3, beta2=0.999), (3072, 1, 1, 768), time_step=1000),
    _layer("resnet50.layer4_conv2_amsgrad", Adam(1e-3), (512, 3, 3, 512), maximum=True, time_step=7),
)
"""Each with the hyperparameters of its publication, but for the last two and the plain one."""
