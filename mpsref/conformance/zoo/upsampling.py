"""Upsampling of published networks: nearest in pyramids and decoders, bilinear in segmentation."""

from __future__ import annotations

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import CropAndResizeBilinear, ResizeBilinear, UpsamplingBilinear, UpsamplingNearest
from mpsref.registry import Spec

__all__ = ["LAYERS", "NETWORKS"]

NETWORKS = {
    "deeplabv3_plus": "DeepLabv3+, TensorFlow, 513 x 513, output stride 16",
    "dcgan_resize": "GAN with resize and convolution, 64 x 64",
    "faster_rcnn_tf": "Faster R-CNN, TensorFlow, 600 x 1024, crops of the feature map",
    "fcn_bilinear": "Fully convolutional network with bilinear upsampling, 512 x 512",
    "fpn_resnet101": "Feature pyramid of ResNet-101, 800 x 1216",
    "mask_rcnn": "Mask R-CNN, TensorFlow, 800 x 1216, boxes of the feature pyramid",
    "pspnet_head": "PSPNet, pyramid pooling module, 473 x 473",
    "segnet_nearest": "Encoder and decoder with nearest upsampling, 256 x 256",
    "unet_bilinear": "U-Net with bilinear upsampling, 512 x 512",
    "yolov3": "YOLOv3, 416 x 416",
}


def _layer(name: str, spec: Spec, source_shape: ImageShape, note: str = "") -> Layer:
    return Layer(name, NETWORKS[name.partition(".")[0]], spec, source_shape, note=note)


# fmt: off
LAYERS: tuple[Layer, ...] = (
    _layer("yolov3.upsample1", UpsamplingNearest(2), (8, 13, 13, 256)),
    _layer("yolov3.upsample2", UpsamplingNearest(2), (8, 26, 26, 128)),
    _layer("fpn_resnet101.p5", UpsamplingNearest(2), (1, 25, 38, 256), "Added to the lateral feature map."),
    _layer("segnet_nearest.up1", UpsamplingNearest(2), (4, 64, 64, 64)),
    _layer("dcgan_resize.up3", UpsamplingNearest((2, 2)), (16, 16, 16, 128)),
    _layer("unet_bilinear.up1", UpsamplingBilinear(2, align_corners=True), (1, 32, 32, 512)),
    _layer("unet_bilinear.up3", UpsamplingBilinear(2, align_corners=True), (1, 128, 128, 128)),
    _layer("fcn_bilinear.score", UpsamplingBilinear(8, edge_mode="clamp"), (1, 64, 64, 21)),
    _layer("fcn_bilinear.score2", UpsamplingBilinear(2, edge_mode="zero"), (4, 32, 32, 64), "As MPS by default."),
    _layer("deeplabv3_plus.decoder", ResizeBilinear(129, align_corners=True), (2, 33, 33, 256)),
    _layer("deeplabv3_plus.logits", ResizeBilinear(513, align_corners=True), (1, 129, 129, 21)),
    _layer("pspnet_head.pool3", ResizeBilinear(60, align_corners=True), (2, 3, 3, 512)),
    _layer("pspnet_head.input", ResizeBilinear(237), (2, 473, 473, 3), "Down, without antialiasing."),
    _layer("mask_rcnn.box", CropAndResizeBilinear(7, (0.2, 0.4, 0.55, 0.7)), (1, 50, 76, 256), "One of its boxes."),
    _layer("mask_rcnn.mask", CropAndResizeBilinear(14, (0.5, -0.1, 1.1, 0.3)), (1, 50, 76, 256), "Across the edge."),
    _layer("faster_rcnn_tf.crop", CropAndResizeBilinear(14, (0, 0.25, 0.5, 1)), (1, 38, 64, 1024)),
)
# fmt: on
