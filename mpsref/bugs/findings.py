"""Defects of released frameworks that mpsref found or confirmed, each with a script that shows it without mpsref."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import operator
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpsref import frameworks
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref.frameworks.chains import Chain
from mpsref.kernels.group_normalization import ALL_VALUES

LIVE = Path(__file__).with_name("live")

OVERFLOWS = 88.0
"""A number whose exponential is nearly the largest of float32."""

SECONDS = 300.0
"""Time limit of a script; the first call of ``torch.compile`` runs a C++ compiler."""


Concerns: TypeAlias = Callable[[Any, tuple[Array, ...]], bool]
"""``concerns(problem, inputs)`` returns whether a call may show a defect; the inputs have the strides of the call."""


def _instance_norm(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """Of any batch: adapters compute gradients of parameters from one image at a time."""
    return not inputs[0].transpose(0, 3, 1, 2).flags.c_contiguous


def _strided_statistics(problem: Any, inputs: tuple[Array, ...]) -> bool:
    given = problem.named(inputs)
    return not (given.mean.flags.c_contiguous and given.variance.flags.c_contiguous)


def _strided_scale(problem: Any, inputs: tuple[Array, ...]) -> bool:
    gamma = dict(zip(problem.input_shapes, inputs, strict=True)).get("gamma")
    return gamma is not None and not gamma.flags.c_contiguous


def _odd_batch_stride(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """Of an image with the memory of NHWC, but for strides of axes of length 1."""
    images = [one for one in inputs if one.ndim == 4 and one.flags.c_contiguous]
    return any(
        one.strides != np.empty(one.shape, one.dtype).strides and not one.transpose(0, 3, 1, 2).flags.c_contiguous
        for one in images
    )


def _odd_weights(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """Of a kernel with an axis of length 1, weights with the memory of NHWC, but for the stride of this axis."""
    weights = dict(zip(problem.input_shapes, inputs, strict=True)).get("weights")
    if weights is None or problem.spec.groups == 1:
        return False
    return bool(weights.flags.c_contiguous) and weights.strides != np.empty(weights.shape, weights.dtype).strides


def _odd_grouped_image(problem: Any, inputs: tuple[Array, ...]) -> bool:
    return problem.spec.groups > 1 and _odd_batch_stride(problem, inputs)


def _one_channel(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """Also where the result is wider than a pixel: an adapter may crop a result."""
    channels = problem.output_channels if problem.operation.method == "gradient_data" else problem.source_shape[3]
    return bool(channels == 1 and problem.spec.strides[1] > 1)


def _one_term(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """Whether each element is one product, and there are more than 32,768 channels of such."""
    before, after, method = problem.source_shape[3], problem.output_channels, problem.operation.method
    if method == "gradient_weights":
        g = problem.input_shapes["g"]
        return bool(math.prod(g[:3]) == 1 and after > 2**15)
    terms, channels = (after, before) if method == "gradient_data" else (before, after)
    return bool(terms // problem.spec.groups * math.prod(problem.spec.size) == 1 and channels > 2**15)


def _keyword(name: str, problem: Any, words: Callable[[Any], frameworks.CallArguments] = frameworks.pytorch) -> Any:
    """Return a keyword of the layer in the words of a framework; nothing if it has no such words."""
    try:
        return words(problem).keywords[name]
    except UnsupportedError:
        return ()


def _ceil_mode(problem: Any, inputs: tuple[Array, ...]) -> bool:
    simple = frameworks.canonical(problem)
    return simple is not None and bool(_keyword("ceil_mode", simple))


def _wider_than_the_image(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """Along one axis; along the other the kernel and the dilation of the image are 2, without padding (XLA)."""
    pads, sizes, strides = _keyword("padding", problem, frameworks.jax), problem.spec.size, problem.spec.strides
    if not pads or problem.spec.groups > 1:
        return False
    lengths = problem.source_shape[1:3]
    if problem.operation.method == "gradient_data":  # the image is the source gradient
        pads = [
            (k - 1 - before, n + k - 2 - (count - 1) * s - (k - 1 - before))
            for (before, _), k, s, n, count in zip(pads, sizes, strides, lengths, problem.result_size, strict=True)
        ]
        lengths = problem.result_size
    axes = list(zip(lengths, sizes, strides, pads, strict=True))
    return any(
        k == s == 2 and tuple(pad) == (0, 0) and n > 2 and other_k > other_n
        for (n, k, s, pad), (other_n, other_k, *_) in (axes, axes[::-1])
    )


def _pads_of_pooling(problem: Any) -> tuple[int, ...]:
    """Return those of ``reduce_window``; none if it has no words for a problem."""
    simple = frameworks.canonical(problem) if problem.operation.method == "gradient" else problem
    pairs = () if simple is None else _keyword("padding", simple, frameworks.jax)
    return tuple(pad for pair in pairs for pad in pair)


def _negative_pooling(problem: Any, inputs: tuple[Array, ...]) -> bool:
    return min(_pads_of_pooling(problem), default=0) < 0


def _cropped_elements(problem: Any, inputs: tuple[Array, ...]) -> bool:
    pads, windows = _pads_of_pooling(problem), problem.spec.windows
    whole = all(one.kernel == one.stride == one.dilation == 1 for one in windows)
    return whole and min(pads, default=0) < 0 and max(pads) <= 0


def _nearly_constant(problem: Any, inputs: tuple[Array, ...]) -> bool:
    groups = inputs[0].reshape(problem.grouped_shape).astype(np.float64)
    return bool((groups.var(ALL_VALUES) <= 1e-5 * groups.mean(ALL_VALUES) ** 2).any())


def _same_size(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """Of rows or of columns: these are then those of the image."""
    return any(map(operator.eq, problem.result_shapes[0][1:3], problem.source_shape[1:3]))


def _strided_point(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """Of few channels: from 16 on nothing is written beyond the memory."""
    return bool(problem.spec.size == (1, 1) and max(problem.spec.strides) > 1 and problem.source_shape[3] < 16)


def _constant_power(problem: Any, inputs: tuple[Array, ...]) -> bool:
    neuron = problem.spec
    return bool(neuron.type == "power" and neuron.c == 0 and (neuron.a * inputs[1] + neuron.b == 0).any())


def _rounded_scale(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """PyTorch multiplies the index of a pixel by 1 / factor in float32."""
    return any(
        (np.floor(np.arange(size, dtype=np.float32) * np.float32(1 / factor)) != np.arange(size) // factor).any()
        for factor, size in zip(problem.spec.scale, problem.large_shape[1:3], strict=True)
    )


def _same_planes(problem: Any, inputs: tuple[Array, ...]) -> bool:
    """Of the source and its pooled image, more than one: inductor merges the indices of planes and of pixels."""
    images, *size, channels = inputs[0].shape
    return [*inputs[1].shape[1:3]] == size and images * channels > 1


EAGER = ("torch", "torch:channels_last")


class Finding(NamedTuple):
    """A defect of a released framework."""

    script: str
    """Name of the script in ``mpsref/bugs/live``."""
    package: str
    """The package of the framework."""
    versions: tuple[str, ...]
    """The versions in which the script showed the defect."""
    text: str
    """The defect, in a sentence."""
    case: str = ""
    """A case that fails on each of :attr:`backends`."""
    backends: tuple[str, ...] = ()
    """Names of the backends that have the defect; empty if there is no such backend."""
    operations: tuple[str, ...] = ()
    """The operations with the defect, such as "PoolingAverage.gradient"."""
    concerns: Concerns = lambda problem, inputs: True
    """Whether a call of these operations may show it."""

    @property
    def path(self) -> Path:
        """The script."""
        return LIVE / f"{self.script}.py"

    def version(self) -> str | None:
        """Return the installed version of the framework, or its build for CPUs, without its local part, or ``None``."""
        for package in (self.package, f"{self.package}-cpu"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(package).partition("+")[0]
        return None

    def show(self) -> str:
        """Run the script in a process of its own; return what it prints, or how it ended.

        The text begins with "wrong", "crashed", "fixed", "failed", "not affected" or "not installed"; "failed" if the
        script ended with an error, which says nothing about the defect.
        """
        version = self.version()
        if version is None:
            return f"not installed: {self.package}"
        try:
            done = subprocess.run(
                [sys.executable, str(self.path)], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"crashed: no result after {SECONDS:g} s"
        if done.returncode < 0:
            return f"crashed: {signal.Signals(-done.returncode).name}"
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            return f"failed: {lines[-1]}"
        return done.stdout.strip()


FINDINGS = (
    Finding(
        "torch_instance_norm",
        "torch",
        ("2.13.0", "2.15.0"),
        "The gradient of InstanceNorm2d is wrong if the batch is 1 and the source gradient is channels_last.",
        "InstanceNormalization.gradient:n1h1w2c2,eps1e-05,float32,exact,memory=nhwc+nchw+nchw,seed=0",
        (*EAGER, "torch:float16"),
        ("InstanceNormalization.gradient",),
        _instance_norm,
    ),
    Finding(
        "torch_batch_norm_strided",
        "torch",
        ("2.13.0", "2.15.0"),
        "The gradient of batch_norm in evaluation mode reads running statistics with strides as if they were "
        "contiguous, if the image is channels_last.",
        "BatchNormalization.gradient:n1h1w1c2,eps0.001,float32,exact,memory=nhwc-gap+nhwc-gap+nhwc-gap+nhwc-gap,seed=0",
        EAGER,
        ("BatchNormalization.gradient", "BatchNormalization.statistics_gradient"),
        _strided_statistics,
    ),
    Finding(
        "torch_batch_norm_weight_strided",
        "torch",
        ("2.13.0",),
        "The gradient of batch_norm reads a weight with strides as contiguous, if the image is channels_last.",
        "BatchNormalization.gradient:n1h1w1c2,gamma,float32,exact,memory=nhwc+nhwc+nhwc+nhwc+nhwc-gap,seed=0",
        EAGER,
        ("BatchNormalization.gradient",),
        _strided_scale,
    ),
    Finding(
        "torch_batch_norm_weight_strided",
        "torch",
        ("2.13.0",),
        "The gradient of batch_norm in training reads a strided weight as contiguous, if the image is channels_last.",
        "InstanceNormalization.gradient:n1h3w6c8,eps3.0,float32,memory=nhwc+nhwc+nhwc-gap,seed=1",
        ("torch:batch_norm",),
        ("InstanceNormalization.gradient",),
        _strided_scale,
    ),
    Finding(
        "torch_batch_norm_tokens",
        "torch",
        ("2.13.0",),
        "The gradient of BatchNorm2d is wrong for a batch of 1 that is read as tokens: the source gradient lies in "
        "memory as channels_last, but for the stride of the batch axis. Strides of other axes of length 1 matter, too.",
        "BatchNormalization.gradient:n1h2w3c4,eps0.001,float32,exact,memory=nhwc-odd+nchw+nchw+nchw,seed=1",
        (*EAGER, "torch:float16"),
        ("BatchNormalization.gradient", "BatchNormalization.statistics_gradient"),
        _odd_batch_stride,
    ),
    Finding(
        "torch_conv2d_one_channel",
        "torch",
        ("2.13.0", "2.15.0"),
        "float32 conv2d of one channel with NHWC strides puts results in wrong places if the output is one pixel wide "
        "and the horizontal stride is above 1 (oneDNN on AVX-512).",
        "Convolution.forward:n2h6w2c1,k3x3,s1x2,co1,float32,exact,seed=0",
        EAGER,
        ("Convolution.forward", "ConvolutionTranspose.gradient_data"),
        _one_channel,
    ),
    Finding(
        "torch_conv2d_crash",
        "torch",
        ("2.13.0",),
        "conv2d with a bias on channels_last images ends the process if windows lie in the padding and a kernel of "
        "one column has a dilation (oneDNN on AVX-512).",
        "Convolution.forward:n2h2w1c5,k1x1,s1x2,d1x2,o-2x-5,co1,out6x6,biased,float32,seed=0",
        EAGER,
        ("Convolution.forward", "Convolution.gradient_data", "Convolution.gradient_weights"),
        lambda problem, inputs: any(one.kernel == 1 and one.dilation > 1 for one in problem.spec.windows),
    ),
    Finding(
        "torch_conv2d_grouped_weight",
        "torch",
        ("2.13.0",),
        "Grouped conv2d on channels_last images reads wrong weights if these lie in memory as channels_last, but for "
        "the stride of an axis of length 1; its gradient for the image does, too.",
        "Convolution.forward:n2h5w3c4,k3x1,groups2,co6,float32,memory=nhwc+nhwc-odd,seed=1",
        EAGER,
        ("Convolution.forward", "Convolution.gradient_data"),
        _odd_weights,
    ),
    Finding(
        "torch_conv2d_grouped_half",
        "torch",
        ("2.13.0",),
        "In float16 the gradient of grouped conv2d for the weight is wrong for one channels_last image whose batch "
        "stride is below its size.",
        "Convolution.gradient_weights:n1h2w3c4,k1x1,groups2,co4,float16,memory=nhwc+nhwc-odd,seed=1",
        ("torch:float16",),
        ("Convolution.gradient_weights", "ConvolutionTranspose.gradient_weights"),
        _odd_grouped_image,
    ),
    Finding(
        "torch_conv2d_column",
        "torch",
        ("2.13.0",),
        "conv2d on channels_last images writes behind its memory if the result is one pixel wide and the vertical "
        "stride is above the height of the kernel (oneDNN on AVX-512).",
    ),
    Finding(
        "torch_cuda_avg_pool2d",
        "torch",
        ("2.11.0",),
        "On CUDA the gradient of avg_pool2d with padding is wrong for channels_last images.",
        "PoolingAverage.gradient:n1h3w3c2,k3x3,float32,seed=0",
        ("torch:cuda",),
        ("PoolingAverage.gradient",),
        lambda problem, inputs: any(_keyword("padding", frameworks.canonical(problem) or problem)),
    ),
    Finding(
        "torch_compile_avg_pool2d",
        "torch",
        ("2.13.0", "2.15.0"),
        "The compiled gradient of avg_pool2d with ceil_mode divides the last windows by the full kernel size.",
        "PoolingAverage.gradient:n1h7w7c1,k2x2,s2x2,o1x1,clamp,g4x4,float32,seed=0",
        ("torch:compile", "torch:metal"),
        ("PoolingAverage.gradient", "PoolingL2Norm.gradient"),
        _ceil_mode,
    ),
    Finding(
        "torch_compile_where",
        "torch",
        ("2.13.0",),
        "The compiled gradient of where(mask, conv, max_pool2d(conv, 3, 1, 1)) is wrong for two channels and more.",
        "Chain.gradient:n1h4w5c2,conv3+max3+where,float32,memory=nchw+nchw+nchw+nchw,seed=1",
        ("torch:compile",),
        ("Chain.gradient",),
        lambda problem, inputs: "max3" in problem.spec.steps,
    ),
    Finding(
        "torch_compile_chunk",
        "torch",
        ("2.11.0",),
        "On CUDA the compiled gradient of scale and shift of tokens is wrong if they are chunks of a parameter, from "
        "about 5 million elements on.",
        "Chain.gradient:n1h256w128c160,modulate,float32,seed=1",
        ("torch:cuda:compile",),
        ("Chain.gradient",),
        lambda problem, inputs: "modulate" in problem.spec.steps and inputs[0].size > 1 << 22,
    ),
    Finding(
        "torch_compile_pad",
        "torch",
        ("2.13.0",),
        "The compiled gradient of pad with negative padding reads behind the end of the source gradient.",
        "Chain.gradient:n2h4w4c3,crop,float32,memory=nchw+nchw,seed=1",
        ("torch:compile",),
        ("Chain.gradient",),
        lambda problem, inputs: "crop" in problem.spec.steps,
    ),
    Finding(
        "torch_metal_max_pool2d",
        "torch",
        ("2.13.0",),
        "The kernel that torch.compile writes for the gradient of max_pool2d on Apple GPUs uses a variable without "
        "declaration if the result has the size of the image and there are several planes.",
        "PoolingMax.gradient:n1h7w7c2,k3x3,clamp,float32,memory=nchw+nchw,seed=0",
        ("torch:metal",),
        ("PoolingMax.gradient",),
        _same_planes,
    ),
    Finding(
        "torch_upsample_nearest",
        "torch",
        ("2.11.0", "2.13.0"),
        "interpolate with nearest by 41 and some larger factors takes the pixel before at some borders, because the "
        "inverse of the factor is rounded to float32.",
        "UpsamplingNearest.forward:n1h1w70c1,s1x41,float32,seed=0",
        ("torch", "torch:channels_last", "torch:float16", "torch:cuda", "torch:compile", "torch:metal"),
        ("UpsamplingNearest.forward", "UpsamplingNearest.gradient"),
        _rounded_scale,
    ),
    Finding(
        "mlx_conv_transpose2d",
        "mlx",
        ("0.32.4",),
        "The gradient of conv_transpose2d with output_padding has a wrong shape.",
        "ConvolutionTranspose.gradient_data:n1h1w1c1,k1x1,s1x2,co1,g1x2,float32,exact,seed=0",
        ("mlx",),
        tuple(f"ConvolutionTranspose.{method}" for method in ("forward", "gradient_data", "gradient_weights")),
        lambda problem, inputs: any(_keyword("output_padding", problem)),
    ),
    Finding(
        "mlx_conv_transpose2d_padding",
        "mlx",
        ("0.32.4",),
        "conv_transpose2d with a padding of the kernel size or more returns other pixels, and its gradient raises.",
        "ConvolutionTranspose.forward:n1h1w3c1,k1x1,s1x2,ko0x1,co1,out1x1,float32,exact,seed=0",
        ("mlx",),
        tuple(f"ConvolutionTranspose.{method}" for method in ("forward", "gradient_data", "gradient_weights")),
        lambda problem, inputs: any(map(operator.ge, _keyword("padding", problem), problem.spec.size)),
    ),
    Finding(
        "mlx_log_softmax",
        "mlx",
        ("0.32.4",),
        "nn.log_softmax of an axis of length 1 writes beyond its memory, which ends the process.",
        "LogSoftMax.forward:n1h3w4c1,float32,seed=0",
        ("mlx",),
        ("LogSoftMax.forward", "LogSoftMax.gradient"),
        lambda problem, inputs: bool(problem.source_shape[3] == 1),
    ),
    Finding(
        "mlx_prelu",
        "mlx",
        ("0.32.4",),
        "The slope of nn.prelu at 0 is 1 + alpha, the sum of the slopes of both sides.",
        "Neuron.gradient:n1h4w4c1,prelu,data2.0,float32,exact,seed=0",
        ("mlx",),
        ("Neuron.gradient",),
        lambda problem, inputs: bool(problem.spec.type == "prelu" and (inputs[1] == 0).any()),
    ),
    Finding(
        "mlx_elu",
        "mlx",
        ("0.32.4",),
        "The gradients of nn.elu and nn.selu are NaN for numbers above 88.7, whose exponential is infinite.",
        "Neuron.gradient:n1h1w3c5,elu,float32,hard,seed=0",
        ("mlx",),
        ("Neuron.gradient",),
        lambda problem, inputs: bool(problem.spec.type == "elu" and (inputs[1] > OVERFLOWS).any()),
    ),
    Finding(
        "mlx_power",
        "mlx",
        ("0.32.4",),
        "The slope of power with the exponent 0 is NaN at 0.",
        "Neuron.gradient:n1h1w2c4,power,a0.25,c0.0,float32,exact,seed=0",
        ("mlx",),
        ("Neuron.gradient",),
        _constant_power,
    ),
    Finding(
        "tensorflow_conv2d_gradient",
        "tensorflow",
        ("2.21.0",),
        "The gradient of the weights of a strided 1 x 1 conv2d of few channels writes beyond its memory, which ends "
        "the process (oneDNN).",
        "Convolution.gradient_weights:n1h256w256c3,k1x1,s2x2,co6,float32,seed=0",
        ("tensorflow",),
        ("Convolution.gradient_weights",),
        _strided_point,
    ),
    Finding(
        "tensorflow_conv2d_one_channel",
        "tensorflow",
        ("2.21.0",),
        "float32 conv2d of one channel puts results in wrong places if the output is one pixel wide and the horizontal "
        "stride is above 1 (oneDNN on AVX-512).",
        "Convolution.forward:n2h6w2c1,k3x3,s1x2,co1,float32,exact,seed=0",
        ("tensorflow",),
        ("Convolution.forward", "ConvolutionTranspose.gradient_data"),
        _one_channel,
    ),
    Finding(
        "tensorflow_conv2d_column",
        "tensorflow",
        ("2.21.0",),
        "conv2d writes behind its memory if the result is one pixel wide and the vertical stride is above the height "
        "of the kernel (oneDNN on AVX-512).",
    ),
    Finding(
        "tensorflow_max_pool",
        "tensorflow",
        ("2.21.0",),
        "max_pool2d of windows of minus infinity is the lowest finite number.",
    ),
    Finding(
        "tensorflow_softmax",
        "tensorflow",
        ("2.21.0",),
        "softmax of values with a NaN or an infinity is 0 in the other channels, not NaN.",
        "SoftMax.forward:n1h1w1c2,float32,nonfinite,seed=0",
        ("tensorflow",),
        ("SoftMax.forward",),
        lambda problem, inputs: not np.isfinite(inputs[0]).all(),
    ),
    Finding(
        "tinygrad_compare_nan",
        "tinygrad",
        ("0.14.0",),
        "Comparisons with NaN by <= and >= are true.",
        "Compare.forward:n1h1w1c2,float32,nonfinite,seed=0",
        ("tinygrad",),
        ("Compare.forward",),
        lambda problem, inputs: not all(np.isfinite(one).all() for one in inputs),
    ),
    Finding(
        "tinygrad_interpolate",
        "tinygrad",
        ("0.14.0",),
        "interpolate with align_corners to an axis of one pixel returns NaN.",
        "UpsamplingBilinear.forward:n1h1w1c1,s1x1,aligned,float32,seed=1",
        ("tinygrad",),
        ("UpsamplingBilinear.forward", "UpsamplingBilinear.gradient"),
        lambda problem, inputs: 1 in problem.large_shape[1:3],
    ),
    Finding(
        "onnxruntime_average_pool",
        "onnxruntime",
        ("1.20.1",),
        "AveragePool of opset 18 with ceil_mode and count_include_pad counts cells after the padding.",
    ),
    Finding(
        "onnxruntime_group_normalization",
        "onnxruntime",
        ("1.31.1",),
        "GroupNormalization of a constant image is NaN: the variance is a difference of rounded numbers, below 0.",
        "GroupNormalization.forward:n1h1w3c1,eps1e-05,float32,hard,seed=24",
        ("onnxruntime",),
        ("GroupNormalization.forward",),
        _nearly_constant,
    ),
    Finding(
        "onnxruntime_resize_box",
        "onnxruntime",
        ("1.31.1",),
        'Resize with "tf_crop_and_resize" returns the image itself if the result has its size, whatever the box.',
        "CropAndResizeBilinear.forward:n1h1w2c1,size1x2,box0.0_0.0_0.0_0.0,float32,exact,seed=0",
        ("onnxruntime",),
        ("CropAndResizeBilinear.forward",),
        _same_size,
    ),
    Finding(
        "onnxruntime_max_pool_infinity",
        "onnxruntime",
        ("1.31.1",),
        "MaxPool of a window of minus infinities is -3.4e38, with padding, or if the window is the image.",
    ),
    Finding(
        "onnxruntime_reduce_max_nan",
        "onnxruntime",
        ("1.31.1",),
        "ReduceMax and ReduceMin of values with a NaN are NaN or not, depending on its place.",
    ),
    Finding(
        "jax_conv_negative_padding",
        "jax",
        ("0.10.2",),
        "A float32 convolution with negative padding before a row and zeros behind it reads the next row (CPU).",
        "ConvolutionTranspose.forward:n2h7w8c15,k1x2,ko0x2,co1,out1x7,biased,float32,exact,seed=0",
        ("jax",),
        ("ConvolutionTranspose.forward",),
        lambda problem, inputs: any(before < 0 for before, _ in _keyword("padding", problem, frameworks.jax)),
    ),
    Finding(
        "jax_conv_one_term",
        "jax",
        ("0.10.2",),
        "A float32 convolution of one product for each element does not write results of more than 32,768 channels "
        "(CPU).",
        "Convolution.gradient_weights:n1h1w1c1,k1x1,co65540,float32,seed=11",
        ("jax",),
        tuple(
            f"{kernel}.{method}"
            for kernel in ("Convolution", "ConvolutionTranspose")
            for method in ("forward", "gradient_data", "gradient_weights")
        ),
        _one_term,
    ),
    Finding(
        "jax_conv_transpose_abort",
        "jax",
        ("0.10.2",),
        "A transposed convolution, also as the gradient of a strided one, ends the process when it is compiled, if the "
        "kernel is wider than the image and has 2 rows, the stride 2 and no padding along the other axis (CPU).",
        "ConvolutionTranspose.forward:n1h3w1c1,k2x3,s2x1,ko1x-1,co1,out4x4,float32,exact,seed=0",
        ("jax",),
        ("ConvolutionTranspose.forward", "Convolution.gradient_data"),
        _wider_than_the_image,
    ),
    Finding(
        "jax_reduce_window_abort",
        "jax",
        ("0.10.2",),
        "reduce_window of windows of one element ends the process when it is compiled, if a padding is negative and "
        "none is positive (CPU).",
        "PoolingAverage.forward:n1h3w1c1,k1x1,o1x0,float32,exact,seed=0",
        ("jax",),
        (
            *("PoolingMax.forward", "PoolingAverage.forward", "PoolingL2Norm.forward", "PoolingL2Norm.gradient"),
            "Chain.gradient",
        ),
        lambda problem, inputs: (
            "cropped" in problem.spec.steps if isinstance(problem.spec, Chain) else _cropped_elements(problem, inputs)
        ),
    ),
    Finding(
        "jax_reduce_window_dilation",
        "jax",
        ("0.10.2",),
        "reduce_window of 8,192 elements and more ignores base_dilation along an axis whose windows and strides are 1 "
        "(CPU).",
        "Chain.gradient:n1h64w130c1,dilated,float32,seed=10",
        ("jax",),
        ("Chain.gradient",),
        lambda problem, inputs: "dilated" in problem.spec.steps,
    ),
    Finding(
        "jax_pad_folded",
        "jax",
        ("0.10.2",),
        "A negative padding, in an operation that also dilates, is added to the padding of the windows or of the "
        "convolution after it, when both are compiled.",
        "Chain.gradient:n1h1w5c2,apart+sum3,float32,seed=13",
        ("jax",),
        ("Chain.gradient",),
        lambda problem, inputs: "apart" in problem.spec.steps,
    ),
    Finding(
        "jax_max_pool_negative_padding",
        "jax",
        ("0.10.2",),
        "The gradient of a maximum by reduce_window raises TypeError if a padding is negative.",
        "PoolingMax.gradient:n1h3w1c1,k1x1,o1x0,clamp,float32,exact,seed=0",
        ("jax",),
        ("PoolingMax.gradient",),
        _negative_pooling,
    ),
)
"""The catalogue of live defects."""
