"""Pooling layers of published networks, each written in the words of the framework that published it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mpsref import padding
from mpsref.arguments.arrays import ImageShape
from mpsref.arguments.parameters import Pair
from mpsref.conformance.zoo.layer import Layer
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.kernels.pooling import Pooling
from mpsref.padding import Placement

__all__ = ["AVERAGE_POOLING", "L2_POOLING", "LAYERS", "MAX_POOLING", "NETWORKS"]

NETWORKS = {
    "alexnet": "AlexNet, Caffe, 227 x 227",
    "alexnet_dense": "AlexNet on every pixel of its first layer: pooling of stride 1, dilated (no published network)",
    "cifar10_quick": "Caffe's CIFAR-10 example",
    "clip_rn50": "CLIP ResNet-50, 224 x 224",
    "darts": "DARTS, search on CIFAR-10",
    "deeplab_largefov": "DeepLab-LargeFOV, VGG-16, Caffe, 321 x 321",
    "deeplabv3": "DeepLabv3, 513 x 513, output stride 16",
    "densenet121": "DenseNet-121, 224 x 224",
    "dists": "DISTS, VGG-16, 256 x 256",
    "efficientnet_b0": "EfficientNet-B0, 224 x 224",
    "facenet_nn2": "FaceNet NN2, 224 x 224",
    "googlenet": "GoogLeNet, Caffe, 224 x 224",
    "inception_resnet_v2": "Inception-ResNet-v2, PyTorch, 299 x 299",
    "inception_v3": "Inception-v3, torchvision, 299 x 299",
    "inception_v3_onnx": "Inception-v3, torchvision exported to ONNX, 299 x 299",
    "inception_v3_tf": "Inception-v3, TensorFlow, 299 x 299",
    "inception_v4": "Inception-v4, TensorFlow, 299 x 299",
    "lenet5": "LeNet-5, 32 x 32",
    "lenet_caffe": "LeNet, Caffe, MNIST",
    "mobilenet_v1": "MobileNetV1, TensorFlow, 224 x 224",
    "mobilenet_v2": "MobileNetV2, 224 x 224",
    "mobilenet_v3_large": "MobileNetV3-Large, 224 x 224",
    "munit": "MUNIT, 256 x 256",
    "nasnet_large": "NASNet-A Large, 331 x 331",
    "nasnet_mobile": "NASNet-A Mobile, 224 x 224",
    "nin_cifar10": "Network in Network, Caffe, CIFAR-10",
    "nin_imagenet": "Network in Network, Caffe, 224 x 224",
    "openface_nn4_small2": "OpenFace nn4.small2, 96 x 96",
    "poolformer_s12": "PoolFormer-S12, 224 x 224",
    "pspnet": "PSPNet, Caffe, 473 x 473",
    "res2net50": "Res2Net-50 26w 4s, 224 x 224",
    "resnet50": "ResNet-50, 224 x 224",
    "resnet50_keras": "ResNet-50, Keras, 224 x 224",
    "resnet50d": "ResNet-50-D, 224 x 224",
    "resnet50d_176": "ResNet-50-D, 176 x 176",
    "se_resnet50": "SE-ResNet-50, 224 x 224",
    "shufflenet_v1": "ShuffleNet v1, 3 groups, 224 x 224",
    "squeezenet1_0": "SqueezeNet 1.0, 224 x 224",
    "ssd300": "SSD300, VGG-16, PyTorch, 300 x 300",
    "tiny_yolov2": "Tiny YOLOv2, ONNX, 416 x 416",
    "torch_svhn": "ConvNet of Torch's supervised tutorial, SVHN",
    "unet": "U-Net, 572 x 572",
    "vgg16": "VGG-16, 224 x 224",
    "vgg16_dense": "VGG-16 on every pixel of a 64 x 64 image: pooling of stride 1, dilated (no published network)",
    "vgg19_style": "VGG-19 with average pooling (neural style), Caffe, 375 x 500",
    "wide_resnet28_10": "Wide ResNet-28-10, CIFAR-10",
    "xception": "Xception, TensorFlow, 299 x 299",
    "yolov3_spp": "YOLOv3-SPP, 608 x 608",
    "yolov5s": "YOLOv5s, 640 x 640",
}
"""The networks, by the first part of the names of their layers, with the size of their input images."""


def _row(
    spec_of: Callable[[Pair, Pair, Placement, Pair], Pooling],
    name: str,
    source_shape: ImageShape,
    place: Callable[..., Placement],
    kernel_size: int,
    strides: int | None = None,
    note: str = "",
    **words: Any,
) -> Layer:
    """Return a pooling layer with square windows; without ``strides`` they do not overlap."""
    strides = kernel_size if strides is None else strides
    placed = place(source_shape[1:3], kernel_size, strides, **words)
    dilations = words.get("dilations", 1)
    spec = spec_of((kernel_size, kernel_size), (strides, strides), placed, (dilations, dilations))
    network = NETWORKS[name.partition(".")[0]]
    published = tuple(sorted(words.items()))
    call = {"output_size": placed.output_size, "gradient_size": placed.output_size}
    return Layer(name, network, spec, source_shape, call, place.__name__, published, note)


def _average_spec(kernel_size: Pair, strides: Pair, placed: Placement, dilations: Pair) -> PoolingAverage:
    return PoolingAverage(kernel_size, strides, placed.offset, placed.edge_mode, placed.zero_pad_size)


def _max_spec(kernel_size: Pair, strides: Pair, placed: Placement, dilations: Pair) -> PoolingMax:
    """Padding never wins: a window that touches the image has its maximum there, with "clamp"."""
    return PoolingMax(kernel_size, strides, placed.offset, "clamp", dilations)


def _zeros_max_spec(kernel_size: Pair, strides: Pair, placed: Placement, dilations: Pair) -> PoolingMax:
    """Zeros are put around the image before, and may win."""
    return PoolingMax(kernel_size, strides, placed.offset, "zero", dilations)


def _l2_spec(kernel_size: Pair, strides: Pair, placed: Placement, dilations: Pair) -> PoolingL2Norm:
    """Padding adds nothing to the sum of squares."""
    return PoolingL2Norm(kernel_size, strides, placed.offset, "zero")


_average, _max, _zeros_max, _l2 = (
    partial(_row, spec_of) for spec_of in (_average_spec, _max_spec, _zeros_max_spec, _l2_spec)
)
_caffe, _tensorflow, _torch = padding.caffe, padding.tensorflow, padding.pytorch
_EXCLUDED: dict[str, Any] = {"count_include_pad": False}
_CEIL: dict[str, Any] = {"ceil_mode": True, "count_include_pad": False}
_HANN = "Without the Hann weights and the divisor of its window."
_ROOT_OF_MEAN = "Published as the root of the mean: this over the kernel size."

# fmt: off
AVERAGE_POOLING: tuple[Layer, ...] = (
    _average("lenet5.s2", (256, 28, 28, 6), _torch, 2, note="The first subsampling layer; its coefficients left out."),
    _average("lenet5.s4", (256, 10, 10, 16), _torch, 2),
    _average("densenet121.transition1", (4, 56, 56, 128), _torch, 2),
    _average("densenet121.transition2", (8, 28, 28, 256), _torch, 2),
    _average("densenet121.transition3", (16, 14, 14, 512), _torch, 2),
    _average("densenet121.global", (32, 7, 7, 1024), _torch, 7),
    _average("inception_v3.mixed_5b", (4, 35, 35, 192), _torch, 3, 1, padding=1, note="Padding counts in the mean."),
    _average("inception_v3.mixed_6b", (4, 17, 17, 768), _torch, 3, 1, padding=1),
    _average("inception_v3.mixed_7b", (8, 8, 8, 1280), _torch, 3, 1, padding=1),
    _average("inception_v3.aux", (8, 17, 17, 768), _torch, 5, 3, note="The auxiliary classifier."),
    _average("inception_v3.global", (8, 8, 8, 2048), _torch, 8),
    _average("inception_v3_onnx.mixed_5b", (4, 35, 35, 192), padding.onnx, 3, 1, pads=(1, 1, 1, 1),
             count_include_pad=True, note="Edge mode zero: padding counts, however far the window reaches out."),
    _average("inception_v3_tf.mixed_5b", (4, 35, 35, 192), _tensorflow, 3, 1, padding="SAME",
             note="The layer of inception_v3.mixed_5b, but padding does not count."),
    _average("inception_v3_tf.mixed_6b", (4, 17, 17, 768), _tensorflow, 3, 1, padding="SAME"),
    _average("inception_v3_tf.mixed_7b", (8, 8, 8, 1280), _tensorflow, 3, 1, padding="SAME"),
    _average("inception_v3_tf.aux_logits", (8, 17, 17, 768), _tensorflow, 5, 3, padding="VALID"),
    _average("inception_v3_tf.logits", (8, 8, 8, 2048), _tensorflow, 8, 1, padding="VALID"),
    _average("inception_v4.inception_a", (4, 35, 35, 384), _tensorflow, 3, 1, padding="SAME"),
    _average("inception_v4.inception_b", (4, 17, 17, 1024), _tensorflow, 3, 1, padding="SAME"),
    _average("inception_v4.inception_c", (8, 8, 8, 1536), _tensorflow, 3, 1, padding="SAME"),
    _average("inception_resnet_v2.mixed_5b", (4, 35, 35, 192), _torch, 3, 1, padding=1, **_EXCLUDED),
    _average("inception_resnet_v2.global", (8, 8, 8, 1536), _torch, 8),
    _average("googlenet.loss1", (8, 14, 14, 512), _caffe, 5, 3, note="Auxiliary classifier after inception 4a."),
    _average("googlenet.loss2", (8, 14, 14, 528), _caffe, 5, 3, note="Auxiliary classifier after inception 4d."),
    _average("googlenet.pool5", (32, 7, 7, 1024), _caffe, 7, 1),
    _average("resnet50.global", (16, 7, 7, 2048), _torch, 7),
    _average("resnet50d.layer2.downsample", (4, 56, 56, 256), _torch, 2, **_CEIL),
    _average("resnet50d.layer3.downsample", (8, 28, 28, 512), _torch, 2, **_CEIL),
    _average("resnet50d.layer4.downsample", (8, 14, 14, 1024), _torch, 2, **_CEIL),
    _average("resnet50d_176.layer4.downsample", (8, 11, 11, 1024), _torch, 2, **_CEIL,
             note="An odd size: the last windows hold one row or column."),
    _average("res2net50.layer1", (8, 56, 56, 26), _torch, 3, 1, padding=1),
    _average("res2net50.layer2", (8, 56, 56, 52), _torch, 3, 2, padding=1),
    _average("se_resnet50.layer1.squeeze", (4, 56, 56, 256), _torch, 56),
    _average("wide_resnet28_10.global", (32, 8, 8, 640), _torch, 8),
    _average("clip_rn50.stem", (2, 112, 112, 64), _torch, 2),
    _average("clip_rn50.layer2.downsample", (4, 56, 56, 256), _torch, 2),
    _average("mobilenet_v1.global", (32, 7, 7, 1024), _tensorflow, 7, 1, padding="VALID"),
    _average("mobilenet_v2.global", (32, 7, 7, 1280), _torch, 7),
    _average("mobilenet_v3_large.features4.squeeze", (16, 28, 28, 72), _torch, 28),
    _average("efficientnet_b0.block1.squeeze", (4, 112, 112, 32), _torch, 112),
    _average("efficientnet_b0.global", (32, 7, 7, 1280), _torch, 7),
    _average("squeezenet1_0.global", (16, 13, 13, 1000), _torch, 13, note="After the classifier: a channel a class."),
    _average("xception.global", (8, 10, 10, 2048), _tensorflow, 10, 1, padding="VALID"),
    _average("shufflenet_v1.stage2", (8, 56, 56, 24), _torch, 3, 2, padding=1, note="The shortcut of a stride-2 unit."),
    _average("shufflenet_v1.stage3", (8, 28, 28, 240), _torch, 3, 2, padding=1),
    _average("shufflenet_v1.stage4", (16, 14, 14, 480), _torch, 3, 2, padding=1),
    _average("nasnet_mobile.stem0", (8, 111, 111, 11), _tensorflow, 3, 2, padding="SAME",
             note="An odd size: one row of padding on either side; channels no multiple of four."),
    _average("nasnet_mobile.normal1", (8, 28, 28, 44), _tensorflow, 3, 1, padding="SAME"),
    _average("nasnet_mobile.reduction1", (8, 28, 28, 88), _tensorflow, 3, 2, padding="SAME",
             note="An even size: padding after the image alone."),
    _average("nasnet_large.normal1", (4, 42, 42, 168), _tensorflow, 3, 1, padding="SAME"),
    _average("nasnet_large.reduction2", (4, 21, 21, 672), _tensorflow, 3, 2, padding="SAME"),
    _average("nasnet_large.global", (4, 11, 11, 4032), _tensorflow, 11, 1, padding="VALID"),
    _average("darts.normal", (64, 32, 32, 16), _torch, 3, 1, padding=1, **_EXCLUDED),
    _average("darts.reduction", (64, 32, 32, 32), _torch, 3, 2, padding=1, **_EXCLUDED),
    _average("poolformer_s12.stage1", (8, 56, 56, 64), _torch, 3, 1, padding=1, **_EXCLUDED,
             note="The token mixer of every block."),
    _average("poolformer_s12.stage2", (8, 28, 28, 128), _torch, 3, 1, padding=1, **_EXCLUDED),
    _average("poolformer_s12.stage3", (8, 14, 14, 320), _torch, 3, 1, padding=1, **_EXCLUDED),
    _average("poolformer_s12.stage4", (16, 7, 7, 512), _torch, 3, 1, padding=1, **_EXCLUDED),
    _average("munit.downsample", (8, 256, 256, 3), _torch, 3, 2, padding=1, **_EXCLUDED,
             note="Between the scales of the discriminator: three channels."),
    _average("deeplabv3.image_pooling", (2, 33, 33, 2048), _torch, 33),
    _average("pspnet.pool1", (1, 60, 60, 2048), _caffe, 60, note="One bin of the pyramid."),
    _average("pspnet.pool2", (1, 60, 60, 2048), _caffe, 30),
    _average("pspnet.pool3", (1, 60, 60, 2048), _caffe, 20),
    _average("pspnet.pool6", (1, 60, 60, 2048), _caffe, 10),
    _average("cifar10_quick.pool2", (100, 16, 16, 32), _caffe, 3, 2, note="Rounded up: the last windows shrink."),
    _average("cifar10_quick.pool3", (100, 8, 8, 64), _caffe, 3, 2),
    _average("nin_cifar10.pool2", (32, 16, 16, 192), _caffe, 3, 2),
    _average("nin_cifar10.pool3", (128, 8, 8, 10), _caffe, 8, 1),
    _average("nin_imagenet.pool4", (16, 6, 6, 1000), _caffe, 6, 1),
    _average("vgg19_style.pool3", (1, 94, 125, 256), _caffe, 2, note="Not square, and rounded up on one axis alone."),
)
"""Average pooling layers."""

MAX_POOLING: tuple[Layer, ...] = (
    _max("alexnet.pool1", (8, 55, 55, 96), _caffe, 3, 2),
    _max("alexnet.pool2", (16, 27, 27, 256), _caffe, 3, 2),
    _max("alexnet.pool5", (32, 13, 13, 256), _caffe, 3, 2),
    _max("vgg16.pool1", (1, 224, 224, 64), _torch, 2),
    _max("vgg16.pool2", (2, 112, 112, 128), _torch, 2),
    _max("vgg16.pool3", (4, 56, 56, 256), _torch, 2),
    _max("vgg16.pool4", (8, 28, 28, 512), _torch, 2),
    _max("vgg16.pool5", (16, 14, 14, 512), _torch, 2),
    _max("googlenet.pool1", (4, 112, 112, 64), _caffe, 3, 2, note="Rounded up: the last windows shrink."),
    _max("googlenet.pool2", (4, 56, 56, 192), _caffe, 3, 2),
    _max("googlenet.pool3", (8, 28, 28, 480), _caffe, 3, 2),
    _max("googlenet.pool4", (16, 14, 14, 832), _caffe, 3, 2),
    _max("googlenet.inception_3a", (8, 28, 28, 192), _caffe, 3, 1, pad=1, note="The pooling branch."),
    _max("googlenet.inception_4a", (16, 14, 14, 480), _caffe, 3, 1, pad=1),
    _max("googlenet.inception_5a", (32, 7, 7, 832), _caffe, 3, 1, pad=1),
    _max("resnet50.maxpool", (4, 112, 112, 64), _torch, 3, 2, padding=1),
    _zeros_max("resnet50_keras.pool1", (4, 112, 112, 64), _torch, 3, 2, padding=1,
               note="A layer of zero padding comes before: after a ReLU its zeros win ties at the top left."),
    _max("densenet121.pool0", (2, 112, 112, 64), _torch, 3, 2, padding=1),
    _max("inception_v3.maxpool2", (4, 71, 71, 192), _torch, 3, 2),
    _max("inception_v3.mixed_6a", (8, 35, 35, 288), _torch, 3, 2),
    _max("inception_v3.mixed_7a", (8, 17, 17, 768), _torch, 3, 2),
    _max("xception.block3", (2, 74, 74, 256), _tensorflow, 3, 2, padding="SAME",
         note="An even size: padding after the image alone."),
    _max("xception.block4", (4, 37, 37, 728), _tensorflow, 3, 2, padding="SAME",
         note="An odd size: one row of padding on either side."),
    _max("xception.block13", (8, 19, 19, 1024), _tensorflow, 3, 2, padding="SAME"),
    _max("nasnet_mobile.reduction1_max", (8, 28, 28, 88), _tensorflow, 3, 2, padding="SAME"),
    _max("squeezenet1_0.pool4", (8, 54, 54, 256), _torch, 3, 2, ceil_mode=True, note="Rounded up."),
    _max("ssd300.pool3", (4, 75, 75, 256), _torch, 2, ceil_mode=True, note="Rounded up: 38 rows from 75."),
    _max("ssd300.pool5", (8, 19, 19, 512), _torch, 3, 1, padding=1),
    _max("deeplab_largefov.pool4", (2, 41, 41, 512), _caffe, 3, 1, pad=1),
    _max("unet.pool4", (2, 64, 64, 512), _torch, 2),
    _max("lenet_caffe.pool1", (128, 24, 24, 20), _caffe, 2),
    _max("lenet_caffe.pool2", (128, 8, 8, 50), _caffe, 2, note="Channels no multiple of four."),
    _max("cifar10_quick.pool1", (32, 32, 32, 32), _caffe, 3, 2),
    _max("tiny_yolov2.pool5", (16, 26, 26, 256), padding.onnx, 2, 2, auto_pad="SAME_UPPER"),
    _max("tiny_yolov2.pool6", (16, 13, 13, 512), padding.onnx, 2, 1, auto_pad="SAME_UPPER",
         note="Stride 1 and the size kept: padding at the end alone."),
    _max("yolov3_spp.spp5", (4, 19, 19, 512), _torch, 5, 1, padding=2, note="Spatial pyramid pooling."),
    _max("yolov3_spp.spp9", (4, 19, 19, 512), _torch, 9, 1, padding=4),
    _max("yolov3_spp.spp13", (4, 19, 19, 512), _torch, 13, 1, padding=6),
    _max("yolov5s.sppf", (8, 20, 20, 256), _torch, 5, 1, padding=2),
    _max("vgg16_dense.pool3", (2, 61, 61, 256), _torch, 2, 1, dilations=4,
         note="What a stride of 2 becomes where no pixel is dropped; each pool doubles the dilation of the next."),
    _max("vgg16_dense.pool4", (2, 57, 57, 512), _torch, 2, 1, dilations=8),
    _max("vgg16_dense.pool5", (2, 49, 49, 512), _torch, 2, 1, dilations=16),
    _max("alexnet_dense.pool2", (2, 53, 53, 256), _torch, 3, 1, dilations=2),
    _max("alexnet_dense.pool5", (4, 49, 49, 256), _torch, 3, 1, dilations=4),
)
"""Max pooling layers, the last five with dilation."""

L2_POOLING: tuple[Layer, ...] = (
    _l2("torch_svhn.pool1", (64, 28, 28, 64), _torch, 2, note=_ROOT_OF_MEAN),
    _l2("torch_svhn.pool2", (128, 10, 10, 64), _torch, 2, note=_ROOT_OF_MEAN),
    _l2("openface_nn4_small2.inception_3b", (16, 12, 12, 256), _tensorflow, 3, padding="VALID"),
    _l2("openface_nn4_small2.inception_4a", (32, 6, 6, 640), _tensorflow, 3, padding="VALID"),
    _l2("openface_nn4_small2.inception_5a", (32, 3, 3, 1024), _tensorflow, 3, padding="VALID"),
    _l2("facenet_nn2.inception_3b", (8, 28, 28, 256), _torch, 3, 1, padding=1),
    _l2("facenet_nn2.inception_4a", (8, 14, 14, 640), _torch, 3, 1, padding=1),
    _l2("facenet_nn2.inception_5a", (16, 7, 7, 1024), _torch, 3, 1, padding=1),
    _l2("dists.stage3", (2, 128, 128, 128), _torch, 3, 2, padding=1, note=_HANN),
    _l2("dists.stage4", (4, 64, 64, 256), _torch, 3, 2, padding=1, note=_HANN),
    _l2("dists.stage5", (8, 32, 32, 512), _torch, 3, 2, padding=1, note=_HANN),
)
"""L2-norm pooling layers."""
# fmt: on

LAYERS: tuple[Layer, ...] = (*AVERAGE_POOLING, *MAX_POOLING, *L2_POOLING)
