"""Reductions of published networks: global means, attention over channels, class decisions."""

from __future__ import annotations

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import Reduce

__all__ = ["LAYERS", "NETWORKS"]

NETWORKS = {
    "cbam_gates": "CBAM ResNet-50, 224 x 224",
    "class_map": "Segmentation with 21 classes, 512 x 512",
    "coordinate_attention": "Coordinate attention on MobileNetV2, 224 x 224",
    "global_mean": "ResNet-50 and SE gates, 224 x 224",
}


def _layer(name: str, spec: Reduce, source_shape: ImageShape, note: str = "") -> Layer:
    return Layer(name, NETWORKS[name.partition(".")[0]], spec, source_shape, note=note)


# fmt: off
LAYERS: tuple[Layer, ...] = (
    _layer("global_mean.head", Reduce("mean", "spatial"), (32, 7, 7, 2048)),
    _layer("global_mean.se_layer1", Reduce("mean", "spatial"), (8, 56, 56, 256)),
    _layer("cbam_gates.channel_mean", Reduce("mean", "featurechannels"), (8, 56, 56, 256)),
    _layer("cbam_gates.channel_max", Reduce("max", "featurechannels"), (8, 56, 56, 256)),
    _layer("class_map.argmax", Reduce("argumentmax", "featurechannels"), (1, 512, 512, 21)),
    _layer("coordinate_attention.height", Reduce("mean", "row"), (8, 28, 28, 192)),
    _layer("coordinate_attention.width", Reduce("mean", "column"), (8, 28, 28, 192)),
)
# fmt: on
