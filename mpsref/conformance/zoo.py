"""Real layers by name: the geometries of published networks, next to the random cases.

Each row is written in the words of the framework that published the layer, and :mod:`mpsref.padding` turns them into
an offset and an output size, so that a row can be compared with its source at a glance. There is one table a kernel
family, and :data:`LAYERS` joins them; a family adds its table and the small function that reads its rows.

>>> from mpsref.conformance import zoo
>>> layer = zoo.by_name("inception_v3.mixed_5b")
>>> layer.spec
PoolingAverage(kernel_size=(3, 3), strides=(1, 1), offset=(0, 0), edge_mode='clamp', zero_pad_size=(1, 1))
>>> layer.source_shape, layer.output_size
((4, 35, 35, 192), (35, 35))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mpsref import padding
from mpsref.images import ImageShape, Shape
from mpsref.kernels import PoolingAverage
from mpsref.padding import Placement
from mpsref.parameters import Pair
from mpsref.registry import Spec

__all__ = ["AVERAGE_POOLING", "LAYERS", "NETWORKS", "Layer", "by_name"]

NETWORKS = {
    "cifar10_quick": "Caffe's CIFAR-10 example",
    "clip_rn50": "CLIP ResNet-50, 224 x 224",
    "darts": "DARTS, search on CIFAR-10",
    "deeplabv3": "DeepLabv3, 513 x 513, output stride 16",
    "densenet121": "DenseNet-121, 224 x 224",
    "efficientnet_b0": "EfficientNet-B0, 224 x 224",
    "googlenet": "GoogLeNet, Caffe, 224 x 224",
    "inception_resnet_v2": "Inception-ResNet-v2, PyTorch, 299 x 299",
    "inception_v3": "Inception-v3, torchvision, 299 x 299",
    "inception_v3_onnx": "Inception-v3, torchvision exported to ONNX, 299 x 299",
    "inception_v3_tf": "Inception-v3, TensorFlow, 299 x 299",
    "inception_v4": "Inception-v4, TensorFlow, 299 x 299",
    "lenet5": "LeNet-5, 32 x 32",
    "mobilenet_v1": "MobileNetV1, TensorFlow, 224 x 224",
    "mobilenet_v2": "MobileNetV2, 224 x 224",
    "mobilenet_v3_large": "MobileNetV3-Large, 224 x 224",
    "munit": "MUNIT, 256 x 256",
    "nasnet_large": "NASNet-A Large, 331 x 331",
    "nasnet_mobile": "NASNet-A Mobile, 224 x 224",
    "nin_cifar10": "Network in Network, Caffe, CIFAR-10",
    "nin_imagenet": "Network in Network, Caffe, 224 x 224",
    "poolformer_s12": "PoolFormer-S12, 224 x 224",
    "pspnet": "PSPNet, Caffe, 473 x 473",
    "res2net50": "Res2Net-50 26w 4s, 224 x 224",
    "resnet50": "ResNet-50, 224 x 224",
    "resnet50d": "ResNet-50-D, 224 x 224",
    "resnet50d_176": "ResNet-50-D, 176 x 176",
    "se_resnet50": "SE-ResNet-50, 224 x 224",
    "shufflenet_v1": "ShuffleNet v1, 3 groups, 224 x 224",
    "squeezenet1_0": "SqueezeNet 1.0, 224 x 224",
    "vgg19_style": "VGG-19 with average pooling (neural style), Caffe, 375 x 500",
    "wide_resnet28_10": "Wide ResNet-28-10, CIFAR-10",
    "xception": "Xception, TensorFlow, 299 x 299",
}
"""The networks, by the first part of the names of their layers, with the size of their input images."""


@dataclass(frozen=True)
class Layer:
    """One kernel of a published network, at the batch size that is benchmarked."""

    name: str
    """The network's key in :data:`NETWORKS`, a dot, and what the network calls the layer."""
    network: str
    spec: Spec
    source_shape: ImageShape
    output_size: Pair
    framework: str
    """The function of :mod:`mpsref.padding` that placed the windows."""
    words: tuple[tuple[str, Any], ...]
    """The other arguments of that function, as published."""
    note: str = ""

    def small(self, channels: int = 3, batch: int = 1) -> Layer:
        """Return this layer with fewer channels and images, for a quick check; the windows lie where they lay.

        >>> by_name("resnet50.global").small().source_shape
        (1, 7, 7, 3)
        """
        _, height, width, _ = self.source_shape
        return replace(self, source_shape=(batch, height, width, channels))

    @property
    def nbytes(self) -> int:
        """Bytes that one float32 forward call must move: all that it reads and writes, once."""
        problem = self.spec.problems["forward"](self.spec, self.source_shape, self.output_size)
        shapes: list[Shape] = [*problem.input_shapes.values(), *problem.result_shapes]
        return 4 * sum(math.prod(shape) for shape in shapes)


def _average(
    name: str,
    source_shape: ImageShape,
    place: Callable[..., Placement],
    kernel_size: int,
    strides: int | None = None,
    note: str = "",
    **words: Any,
) -> Layer:
    """Return an average pooling layer; without ``strides`` its windows do not overlap."""
    strides = kernel_size if strides is None else strides
    placed = place(source_shape[1:3], kernel_size, strides, **words)
    spec = PoolingAverage(
        (kernel_size, kernel_size), (strides, strides), placed.offset, placed.edge_mode, placed.zero_pad_size
    )
    network = NETWORKS[name.partition(".")[0]]
    published = tuple(sorted(words.items()))
    return Layer(name, network, spec, source_shape, placed.output_size, place.__name__, published, note)


_caffe, _tensorflow, _torch = padding.caffe, padding.tensorflow, padding.pytorch
_EXCLUDED: dict[str, Any] = {"count_include_pad": False}
_CEIL: dict[str, Any] = {"ceil_mode": True, "count_include_pad": False}

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
# fmt: on

LAYERS: tuple[Layer, ...] = (*AVERAGE_POOLING,)
"""Every layer there is."""


def by_name(name: str) -> Layer:
    """Return the layer of this name; raise ``ValueError`` for one that is not in :data:`LAYERS`."""
    for layer in LAYERS:
        if layer.name == name:
            return layer
    network = name.partition(".")[0]
    near = [layer.name for layer in LAYERS if layer.name.partition(".")[0] == network] or sorted(NETWORKS)
    raise ValueError(f"no layer is called {name!r}; known here: {', '.join(near)}")
