"""Instance, group, spatial, local contrast and cross-channel normalization layers of published networks.

Frameworks differ in their words for the windowed ones. Caffe's ``alpha`` is divided by the window as ours is, and its
``norm_region: WITHIN_CHANNEL`` is spatial normalization; TensorFlow's is not divided, and its ``depth_radius`` r is a
window of 2 r + 1 channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo import pooling
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import (
    CrossChannelNormalization,
    GroupNormalization,
    InstanceNormalization,
    LocalContrastNormalization,
    SpatialNormalization,
)
from mpsref.registry import Spec

__all__ = ["LAYERS", "NETWORKS", "NormalizationLayer"]

NETWORKS = {
    "bit_r50x1": "BiT ResNet-50x1, 224 x 224",
    "caffenet": "CaffeNet, Caffe, 227 x 227",
    "cifar10_full": "Caffe's second CIFAR-10 example",
    "cifar10_tensorflow": "TensorFlow's CIFAR-10 tutorial, 24 x 24",
    "cuda_convnet": "cuda-convnet's contrast normalization on the maps of its CIFAR-10 layers (no published network)",
    "cyclegan": "CycleGAN, 256 x 256",
    "ddpm_cifar10": "DDPM, CIFAR-10",
    "fast_style": "Fast neural style, 256 x 256",
    "jarrett_caltech101": "Jarrett et al., Caltech-101, 151 x 151",
    "mask_rcnn_gn": "Mask R-CNN with group normalization, box head",
    "parsenet": "ParseNet, VGG-16, 512 x 512",
    "resnet50_gn": "ResNet-50 with group normalization, 224 x 224",
    "stable_diffusion": "Stable Diffusion, U-Net, 512 x 512",
    "stylegan": "StyleGAN, 1024 x 1024",
    "vgg_cnn_m": "VGG-CNN-M, Caffe, 224 x 224",
    "zf": "ZF of Faster R-CNN, Caffe, 600 x 1000",
}
"""The networks that have no pooling layers in the zoo."""

KNOWN = {**pooling.NETWORKS, **NETWORKS}

MOST_PIXELS = 20
"""On an axis of a small windowed layer: windows lie at every pixel, and more of them show nothing new."""


@dataclass(frozen=True)
class NormalizationLayer(Layer):
    """A layer whose windows or groups shrink with it."""

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels, groups, images and, where there are windows, pixels.

        >>> from mpsref.conformance import zoo
        >>> small = zoo.by_name("resnet50_gn.layer4").small(channels=5)
        >>> small.spec.groups, small.source_shape
        (2, (1, 7, 7, 4))
        """
        spec = self.spec
        _, height, width, _ = self.source_shape
        if isinstance(spec, GroupNormalization):
            groups = spec.groups if channels >= spec.groups else 2
            spec, channels = replace(spec, groups=groups), channels // groups * groups
        if not isinstance(spec, (GroupNormalization, InstanceNormalization)):
            height, width = min(height, MOST_PIXELS), min(width, MOST_PIXELS)
        return replace(self, spec=spec, source_shape=(batch, height, width, channels))


def _layer(name: str, source_shape: ImageShape, spec: Spec, note: str = "", **call: bool) -> NormalizationLayer:
    network = KNOWN[name.partition(".")[0]]
    return NormalizationLayer(name, network, spec, source_shape, call, note=note)


def _plain(name: str, source_shape: ImageShape, epsilon: float, note: str = "") -> NormalizationLayer:
    """Return an instance normalization without gamma and beta."""
    return _layer(name, source_shape, InstanceNormalization(epsilon), note, scaled=False, shifted=False)


def _affine(name: str, source_shape: ImageShape, note: str = "") -> NormalizationLayer:
    """Return an instance normalization with gamma and beta, and PyTorch's epsilon."""
    return _layer(name, source_shape, InstanceNormalization(1e-5), note)


def _group(name: str, source_shape: ImageShape, groups: int = 32, epsilon: float = 1e-5) -> NormalizationLayer:
    return _layer(name, source_shape, GroupNormalization(groups, epsilon))


def _lrn(
    name: str, source_shape: ImageShape, size: int = 5, alpha: float = 1e-4, k: float = 1.0, note: str = ""
) -> NormalizationLayer:
    return _layer(name, source_shape, CrossChannelNormalization(size, alpha, 0.75, k), note)


_ADAIN = "The statistics of adaptive instance normalization; its styles come after it."
_BOX = "With a box in place of the published Gaussian window, and each map by itself."
_L2 = "L2 normalization: a window that always covers all channels."

# fmt: off
INSTANCE: tuple[NormalizationLayer, ...] = (
    _plain("cyclegan.c7s1_64", (1, 256, 256, 64), 1e-5),
    _plain("cyclegan.d128", (1, 128, 128, 128), 1e-5),
    _plain("cyclegan.r256", (4, 64, 64, 256), 1e-5),
    _affine("fast_style.conv1", (2, 256, 256, 32)),
    _affine("fast_style.conv2", (4, 128, 128, 64)),
    _affine("fast_style.residual", (4, 64, 64, 128)),
    _plain("munit.content", (4, 64, 64, 256), 1e-5),
    _plain("stylegan.4x4", (32, 4, 4, 512), 1e-8, note=_ADAIN),
    _plain("stylegan.16x16", (8, 16, 16, 512), 1e-8, note=_ADAIN),
    _plain("stylegan.64x64", (2, 64, 64, 256), 1e-8, note=_ADAIN),
    _plain("stylegan.128x128", (2, 128, 128, 128), 1e-8, note=_ADAIN),
)
"""Instance normalization layers."""

GROUP: tuple[NormalizationLayer, ...] = (
    _group("resnet50_gn.conv1", (2, 112, 112, 64)),
    _group("resnet50_gn.layer1", (4, 56, 56, 256)),
    _group("resnet50_gn.layer2", (8, 28, 28, 512)),
    _group("resnet50_gn.layer3", (8, 14, 14, 1024)),
    _group("resnet50_gn.layer4", (16, 7, 7, 2048)),
    _group("bit_r50x1.block1", (4, 56, 56, 64)),
    _group("mask_rcnn_gn.box", (64, 7, 7, 256)),
    _group("ddpm_cifar10.down1", (16, 32, 32, 128), epsilon=1e-6),
    _group("ddpm_cifar10.down2", (16, 16, 16, 256), epsilon=1e-6),
    _group("ddpm_cifar10.middle", (64, 4, 4, 256), epsilon=1e-6),
    _group("stable_diffusion.down1", (2, 64, 64, 320)),
    _group("stable_diffusion.down2", (2, 32, 32, 640)),
    _group("stable_diffusion.middle", (8, 8, 8, 1280)),
    _group("poolformer_s12.norm1", (8, 56, 56, 64), groups=1),
    _group("poolformer_s12.norm3", (8, 14, 14, 320), groups=1),
)
"""Group normalization layers, the last two with all channels in one group."""

CROSS_CHANNEL: tuple[NormalizationLayer, ...] = (
    _lrn("alexnet.norm1", (4, 55, 55, 96)),
    _lrn("alexnet.norm2", (8, 27, 27, 256)),
    _lrn("caffenet.norm1", (16, 27, 27, 96), note="AlexNet with pooling before normalization."),
    _lrn("caffenet.norm2", (32, 13, 13, 256)),
    _lrn("googlenet.norm1", (4, 56, 56, 64)),
    _lrn("googlenet.norm2", (4, 56, 56, 192)),
    _lrn("vgg_cnn_m.norm1", (2, 109, 109, 96), alpha=5e-4, k=2.0),
    _lrn("vgg_cnn_m.norm2", (16, 26, 26, 256), alpha=5e-4, k=2.0),
    _lrn("cifar10_tensorflow.norm1", (128, 12, 12, 64), size=9, alpha=1e-3, note="alpha 0.001 / 9, not divided."),
    _layer("parsenet.conv4_3", (1, 64, 64, 512), CrossChannelNormalization(1024, 1024.0, 0.5, 0.0), note=_L2),
)
"""Cross-channel normalization layers."""

SPATIAL: tuple[NormalizationLayer, ...] = (
    _layer("zf.norm1", (1, 300, 500, 96), SpatialNormalization(3, 5e-5, 0.75)),
    _layer("zf.norm2", (1, 76, 126, 256), SpatialNormalization(3, 5e-5, 0.75)),
    _layer("cifar10_full.norm1", (100, 16, 16, 32), SpatialNormalization(3, 5e-5, 0.75)),
    _layer("cifar10_full.norm2", (100, 8, 8, 32), SpatialNormalization(3, 5e-5, 0.75)),
)
"""Spatial normalization layers."""

LOCAL_CONTRAST: tuple[NormalizationLayer, ...] = (
    _layer("jarrett_caltech101.input", (8, 151, 151, 1), LocalContrastNormalization(9, 1.0), note=_BOX),
    _layer("jarrett_caltech101.layer1", (2, 143, 143, 64), LocalContrastNormalization(9, 1.0), note=_BOX),
    _layer("torch_svhn.norm1", (64, 14, 14, 64), LocalContrastNormalization(7, 0.0, delta=1.0), note=_BOX),
    _layer("cuda_convnet.cnorm1", (100, 16, 16, 32), LocalContrastNormalization(3, 5e-5, 0.75, 1.0, p0=0.0),
           note="The mean is subtracted in the denominator alone."),
)
"""Local contrast normalization layers."""
# fmt: on

LAYERS: tuple[NormalizationLayer, ...] = (*INSTANCE, *GROUP, *CROSS_CHANNEL, *SPATIAL, *LOCAL_CONTRAST)
