"""The table of ONNX Runtime: functions that add nodes to a model, whose images are (N, C, H, W)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import mpsref
from mpsref import InstanceNormalization, Neuron, UnsupportedError, UpsamplingNearest, frameworks
from mpsref.frameworks.adapter import Function, Table
from mpsref.frameworks.words import CallArguments, OnnxStyle
from mpsref.operations import Problem
from mpsref_onnxruntime.run import OnnxRuntime, Symbol, node

onnx = OnnxRuntime()


# --- windows ----------------------------------------------------------------------------------------------------------

STYLES: tuple[OnnxStyle, ...] = ("ceil_mode", "pads", "auto_pad")


def windows(problem: Problem) -> CallArguments:
    """Return the attributes of a problem: one of the ways in which a model may have it, the same one in every run."""
    dilated = tuple(getattr(problem.spec, "dilations", (1, 1))) != (1, 1)  # then ONNX Runtime has no auto_pad
    return frameworks.onnx(problem, "pads" if dilated else STYLES[sum(problem.source_shape) % 3])  # type: ignore[attr-defined]


def operator(name: str, **attributes: Any) -> Function:
    """Return a node as a function of its inputs."""
    return lambda *inputs, **words: node(name, *inputs, **words, **attributes)


def linear(x: Symbol, weights: Symbol, *bias: Symbol) -> Symbol:
    return node("Unsqueeze", node("Gemm", x, weights, *bias, transB=1), (2, 3))


# --- normalization ----------------------------------------------------------------------------------------------------


def normalization(problem: Any) -> Function:
    if isinstance(problem.spec, InstanceNormalization):
        return operator("InstanceNormalization", epsilon=problem.spec.epsilon)
    return operator("GroupNormalization", epsilon=problem.spec.epsilon, num_groups=problem.spec.groups)


def batch_normalization(problem: Any) -> Function:
    return operator("BatchNormalization", epsilon=problem.spec.epsilon)


def moments(x: Symbol) -> tuple[Symbol, Symbol]:
    pixels = 0, 2, 3
    deviation = x - node("ReduceMean", x, pixels)
    return node("ReduceMean", x, pixels, keepdims=0), node("ReduceMean", deviation * deviation, pixels, keepdims=0)


def local_response(problem: Any) -> Function:
    spec = problem.spec
    if spec.kernel_size % 2 == 0:
        raise UnsupportedError(f"kernel_size is {spec.kernel_size}; LRN of ONNX Runtime takes an odd one")
    return operator("LRN", size=spec.kernel_size, alpha=spec.alpha, beta=spec.beta, bias=spec.delta)


# --- elements ---------------------------------------------------------------------------------------------------------


def _rectified(n: Neuron) -> Function:
    return operator("Relu") if n.a == 0 else operator("LeakyRelu", alpha=n.a)


NEURONS: Mapping[str, Callable[[Neuron], Function]] = {
    "none": lambda n: operator("Identity"),
    "relu": _rectified,
    "linear": lambda n: lambda x: n.a * x + n.b,
    "sigmoid": lambda n: operator("Sigmoid"),
    "hardsigmoid": lambda n: operator("HardSigmoid", alpha=n.a, beta=n.b),
    "tanh": lambda n: lambda x: n.a * node("Tanh", n.b * x),
    "absolute": lambda n: operator("Abs"),
    "softplus": lambda n: lambda x: n.a * node("Softplus", n.b * x),
    "softsign": lambda n: operator("Softsign"),
    "elu": lambda n: operator("Elu", alpha=n.a),
    "prelu": lambda n: lambda x, slopes: node("PRelu", x, onnx.on_channels(slopes)),
    "relun": lambda n: lambda x: node("Clip", _rectified(n)(x), None, n.b),
    "power": lambda n: lambda x: node("Pow", n.a * x + n.b, n.c),
    "exponential": lambda n: lambda x: node("Exp", (n.a * x + n.b) * n.log_base),
    "logarithm": lambda n: lambda x: node("Log", n.a * x + n.b) / n.log_base,
    "gelu": lambda n: operator("Gelu"),
}


neuron = onnx.of_type(NEURONS)


# --- movement ---------------------------------------------------------------------------------------------------------


def resize(
    problem: Any, mode: str = "linear", coordinates: str = "", box: tuple[float, ...] = (), rounding: str = "floor"
) -> Function:
    """Return ``Resize`` with a mode, a transformation of coordinates, a box (y0, x0, y1, x1) if any, and a rounding."""
    n, height, width, c = problem.large_shape
    default = "align_corners" if getattr(problem.spec, "align_corners", False) else "asymmetric"
    words = {"mode": mode, "coordinate_transformation_mode": coordinates or default, "nearest_mode": rounding}
    roi = np.array([0, 0, *box[:2], 1, 1, *box[2:]]) if box else None
    return lambda x: node("Resize", x, roi, None, (n, c, height, width), **words)


def graph_resize(problem: Any) -> Function:
    spec = problem.spec
    rounding = getattr(spec, "rounding", "floor")
    if spec.scale_offset is not None or rounding.startswith("round_to"):
        raise UnsupportedError("Resize of ONNX has no scales with offsets, and does not round to even or odd pixels")
    coordinates = "half_pixel" if spec.center_result and not spec.align_corners else ""
    return resize(
        problem, "linear" if isinstance(spec, mpsref.GraphResizeBilinear) else "nearest", coordinates, rounding=rounding
    )


def upsampling(problem: Any) -> Function:
    spec = problem.spec
    if isinstance(spec, UpsamplingNearest):
        return resize(problem, "nearest")
    if spec.edge_mode == "zero" and not spec.align_corners and spec.factors != (1, 1):
        raise UnsupportedError('edge_mode is "zero"; Resize of ONNX holds the last pixel behind it')
    return resize(problem)


def crop_and_resize(problem: Any) -> Function:
    return resize(problem, "linear", "tf_crop_and_resize", problem.spec.box)


def pad(x: Symbol, pairs: Any, mode: str = "constant", fill: float = 0.0) -> Symbol:
    before, after = zip(*pairs, strict=True)
    return node("Pad", x, (*before, *after), fill, mode=mode)


def reduce(x: Symbol, operation: str, axes: Any) -> Symbol:
    if operation.startswith("argument"):
        return node(f"Arg{operation.removeprefix('argument').title()}", x, axis=axes).as_floats()
    return node(f"Reduce{operation.title()}", x, axes if isinstance(axes, tuple) else (axes,))


TABLE: Table = {
    **onnx.pooling(mpsref.PoolingMax, windows, operator("MaxPool")),
    **onnx.pooling(mpsref.PoolingAverage, windows, operator("AveragePool")),
    **onnx.pooling(mpsref.PoolingL2Norm, windows, operator("LpPool", p=2)),
    **onnx.convolution(windows, operator("Conv"), neuron, "OIHW"),
    **onnx.transposed_convolution(frameworks.onnx, operator("ConvTranspose"), neuron, "OIHW", biased=True),
    **onnx.fully_connected(linear, neuron),
    **onnx.group_normalization(InstanceNormalization, normalization),
    **onnx.group_normalization(mpsref.GroupNormalization, normalization),
    **onnx.batch_normalization(moments, batch_normalization, neuron),
    **onnx.layer(mpsref.CrossChannelNormalization, local_response),
    **onnx.neurons(neuron),
    **onnx.softmax(operator("Softmax", axis=1), operator("LogSoftmax", axis=1)),
    **onnx.layer((UpsamplingNearest, mpsref.UpsamplingBilinear), upsampling),
    **onnx.layer(mpsref.ResizeBilinear, resize),
    **onnx.layer((mpsref.GraphResizeBilinear, mpsref.GraphResizeNearest), graph_resize),
    **onnx.layer(mpsref.CropAndResizeBilinear, crop_and_resize),
    **onnx.padding({"zero": "constant", "constant": "constant", "clamp": "edge", "mirror": "reflect"}, pad),
    **onnx.reductions(reduce),
    **onnx.slices(pad),
    **onnx.reshape(lambda x, shape: x.reshape(*shape), lambda x, axes: node("Transpose", x, perm=axes)),
    **onnx.concatenation(lambda images, axis: node("Concat", *images, axis=axis), pad),
    **onnx.arithmetic(operator("Clip")),
    **onnx.compare(operator("Abs"), lambda mask: mask.as_floats()),
}

FORWARD_PASSES = {key: run for key, run in onnx.keeping(TABLE).items() if key[1] in ("forward", "statistics")}
"""The operations that are no gradients."""
