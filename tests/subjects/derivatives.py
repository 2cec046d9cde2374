"""Kernels with a gradient, each with shapes of its inputs; their forward pass and gradients as functions of arrays.

A kernel without a row has a random call.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import mpsref
from mpsref.arguments.arrays import Array
from mpsref.kernels.loss import LOSS_TYPES
from mpsref.kernels.neuron import TYPES
from mpsref.operations import Operation, operations
from tests.subjects.operations import typical

Shapes = list[tuple[int, ...]]

IMAGE = (2, 3, 4, 5)

CASES: list[tuple[Any, Shapes, dict[str, Any]]] = [
    (mpsref.PoolingAverage(3, 2, offset=1, edge_mode="clamp", zero_pad_size=1), [IMAGE], {"output_size": (2, 3)}),
    (mpsref.PoolingAverage((2, 3), 1, offset=(-1, 2)), [IMAGE], {"output_size": (4, 3)}),
    (mpsref.PoolingMax((2, 3), (2, 1), offset=1, dilations=(1, 2)), [IMAGE], {}),
    (mpsref.PoolingL2Norm(2, 2, offset=1), [IMAGE], {}),
    (mpsref.BatchNormalization(), [IMAGE], {}),
    (mpsref.BatchNormalization(neuron=mpsref.Neuron("tanh")), [IMAGE, (5,), (5,)], {}),
    (mpsref.InstanceNormalization(), [IMAGE, (5,), (5,)], {}),
    (mpsref.GroupNormalization(5), [IMAGE], {}),
    (mpsref.Neuron("prelu", data=[0.25, -0.5, 2.0, 1.0, 0.0]), [IMAGE], {}),
    (mpsref.Neuron("prelu", data=[0] * 5), [IMAGE, (5,)], {}),
    (mpsref.Arithmetic("multiply", primary_scale=0.5), [IMAGE, IMAGE], {}),
    (mpsref.Arithmetic("multiply", secondary_strides=(0, 0, 1)), [IMAGE, (2, 1, 1, 5)], {}),
    (mpsref.Concatenation(), [IMAGE, (2, 3, 4, 1), (2, 3, 4, 2)], {}),
    (mpsref.Pad((1, 2, 0), (0, 1, 1), edge_mode="mirror"), [IMAGE], {}),
    (mpsref.Slice((1, 0, 1), (2, 3, 2)), [IMAGE], {}),
    (mpsref.Reshape((5, 2, 6)), [IMAGE], {}),
    (mpsref.Reduce("mean", "spatial"), [IMAGE], {}),
    (mpsref.Dropout(0.5), [IMAGE], {"sequence": 3}),
    (mpsref.Loss("meansquarederror", "mean"), [IMAGE, IMAGE], {}),
    (mpsref.Loss("meansquarederror", "sumbynonzeroweights", reduce_across_batch=True), [IMAGE, IMAGE], {"weights": 1}),
    (mpsref.PoolingMax(3, 1, edge_mode="clamp"), [IMAGE], {}),
    (mpsref.PoolingMax(2, 3, offset=(2, -1), dilations=2), [(2, 7, 6, 2)], {"output_size": (3, 4)}),
    (mpsref.PoolingL2Norm((2, 3), (2, 1), (-1, 1), "clamp"), [IMAGE], {"output_size": (3, 4)}),
    (
        mpsref.Convolution((3, 2), (2, 1), (1, 2), (0, 1), 2),
        [(2, 5, 4, 4), (2, 3, 2, 2), (2,)],
        {"output_size": (3, 4)},
    ),
    (mpsref.Convolution((2, 4), 1, 1, (-1, 3)), [(1, 3, 5, 2), (3, 2, 4, 2), (3,)], {"output_size": (4, 4)}),
    (mpsref.Convolution(3, 3, 2, 1, 3), [(1, 6, 6, 3), (6, 3, 3, 1), (6,)], {"output_size": (2, 3)}),
    (mpsref.ConvolutionTranspose((3, 2), (2, 3), (0, 1), (1, -1), 2), [(2, 3, 2, 4), (2, 3, 2, 2), (2,)], {}),
    (mpsref.ConvolutionTranspose(4, 2, 0, -1), [(1, 3, 3, 2), (3, 4, 4, 2), (3,)], {"output_size": (6, 7)}),
    (mpsref.FullyConnected((2, 3)), [(2, 2, 3, 2), (3, 2, 3, 2), (3,)], {}),
    *((mpsref.GroupNormalization(n, e), [(2, 2, 3, 6), (6,), (6,)], {}) for n, e in ((1, 0.5), (3, 1e-38), (6, 0.1))),
    *((mpsref.SoftMax(), [(2, 3, 2, c)], {}) for c in (1, 2, 17)),
    *((mpsref.LogSoftMax(), [(2, 3, 2, c)], {}) for c in (1, 2, 17)),
    *((mpsref.CrossChannelNormalization(k, 0.5, b, 1.5), [(2, 3, 4, 7)], {}) for k, b in ((1, 0.75), (4, -1), (9, 2))),
    (mpsref.SpatialNormalization((4, 3), 2.0, 0.75, 0.5, (1, -1)), [IMAGE], {"output_size": (4, 6)}),
    (mpsref.LocalContrastNormalization((2, 5), 2.0, 0.75, 0.5, 0.3, 1.0, 2.0, (0, 2)), [IMAGE], {}),
    (mpsref.UpsamplingNearest((4, 1)), [(2, 1, 1, 3)], {}),
    (mpsref.UpsamplingBilinear((2, 3)), [IMAGE], {}),
    (mpsref.UpsamplingBilinear((4, 1), edge_mode="clamp"), [IMAGE], {}),
    (mpsref.GraphPoolingMax((2, 3), (2, 1), dilations=(1, 2)), [IMAGE], {"output_size": (2, 4)}),
    (mpsref.GraphPoolingMax(2, 1, (0, 1), 1, "local_flatten_3d", "NHWC"), [IMAGE], {"output_size": (4, 4)}),
    (mpsref.Arithmetic("subtract", 2.0, 0.5, 1.0, (1, 0, 1)), [IMAGE, IMAGE], {}),
    *((mpsref.Neuron(kind), [IMAGE], {}) for kind in TYPES if kind not in ("prelu", "power", "logarithm")),
    (mpsref.Neuron("power", a=0.75, b=0.5, c=3), [IMAGE], {}),
    (mpsref.Neuron("power", a=0.5, b=4.5, c=1.5), [IMAGE], {}),
    (mpsref.Neuron("power", a=-0.5, b=4.5, c=-0.5), [IMAGE], {}),
    (mpsref.Neuron("logarithm", a=0.5, b=5, c=2), [IMAGE], {}),
    (mpsref.Neuron("relun", a=-0.5, b=1), [IMAGE], {}),
    (mpsref.Neuron("relun", a=0.25, b=-1), [IMAGE], {}),
    (mpsref.Neuron("tanh", a=-1.5, b=0.5), [IMAGE], {}),
    (mpsref.Neuron("softplus", a=0.5, b=-2), [IMAGE], {}),
    (mpsref.Neuron("exponential", a=-0.5, b=0.25, c=0.5), [IMAGE], {}),
    (mpsref.Neuron("hardsigmoid", a=-0.5, b=0.25), [IMAGE], {}),
    *(
        (mpsref.Loss(kind, weight=0.7, label_smoothing=0.2, number_of_classes=5, delta=0.3), [IMAGE, IMAGE], words)
        for kind in LOSS_TYPES
        for words in ({}, {"weights": 1})
        if not words or kind != "cosinedistance"
    ),
    (mpsref.BatchNormalization(0.5, mpsref.Neuron("relu", a=0.25)), [IMAGE, (5,), (5,)], {}),
    (mpsref.BatchNormalization(1e-12, mpsref.Neuron("prelu", data=[0.5] * 5)), [IMAGE, (5,), (5,)], {}),
]
"""Kernels, the shapes of their inputs, and further arguments; with ``weights``, the loss has those of a test."""


def drawn(kernel: type[Any]) -> tuple[Any, Shapes, dict[str, Any]]:
    """Return a small random call of the forward pass."""
    problem = typical(Operation(kernel, "forward")).problem
    named = {*inspect.signature(kernel.forward).parameters} & {*problem.field_names}
    return problem.spec, [*problem.input_shapes.values()], {name: getattr(problem, name) for name in named}


def _without_row() -> list[type[Any]]:
    """Return the kernels with a gradient of which no case is listed."""
    found = dict.fromkeys(one.spec_type for one in operations() if one.method.startswith("gradient"))
    return [kernel for kernel in found if kernel not in {type(spec) for spec, *_ in CASES}]


CASES += map(drawn, _without_row())


def forward(spec: Any, inputs: list[Array], options: dict[str, Any]) -> Array:
    """Return the result of the forward pass, of a training step where there is one."""
    match spec:
        case mpsref.Concatenation():
            return spec.forward(inputs)
        case mpsref.GraphPoolingMax():
            return spec.forward(*inputs, **options)[0]
        case mpsref.BatchNormalization():
            x, *rest = inputs
            seen = spec.statistics(x)
            return spec.forward(x, seen.mean, seen.variance, *rest)
        case mpsref.Loss() if spec.reduction != "none":
            return replace(spec, reduction="sum").forward(*inputs, **options)  # of which the gradient is, by definition
        case mpsref.Dropout():
            return spec.forward(*inputs, spec.mask(inputs[0].shape, **options))
        case mpsref.Neuron() if len(inputs) == 2:
            return replace(spec, data=inputs[1]).forward(inputs[0])
        case _:
            return spec.forward(*inputs, **options)


def gradients(spec: Any, inputs: list[Array], y: Array, g: Array, options: dict[str, Any]) -> list[Array]:
    """Return the gradient of each input."""
    x, *rest = inputs
    match spec:
        case mpsref.Convolution() | mpsref.ConvolutionTranspose() | mpsref.FullyConnected():
            return [spec.gradient_data(g, rest[0], x.shape), *spec.gradient_weights(g, x)][: len(inputs)]
        case mpsref.BatchNormalization():
            seen = spec.statistics(x)
            sums = spec.statistics_gradient(g, x, seen.mean, seen.variance, *rest)
            dx = spec.gradient(g, x, seen.mean, seen.variance, *rest, sums=sums)
            return [dx, sums.dgamma, sums.dbeta][: len(inputs)]
        case mpsref.InstanceNormalization() | mpsref.GroupNormalization():
            dx, dgamma, dbeta = spec.gradient(g, x, *rest[:1])
            return [dx, dgamma.sum(0), dbeta.sum(0)][: len(inputs)]
        case mpsref.SoftMax() | mpsref.LogSoftMax():
            return [spec.gradient(g, y)]
        case mpsref.GraphPoolingMax():
            return [spec.gradient(g, spec.forward(x, **options)[1], x.shape)]
        case mpsref.Arithmetic():
            return list(spec.gradient(g, *inputs))
        case mpsref.Concatenation():
            return list(spec.gradient(g, inputs))
        case mpsref.Loss():
            return [spec.gradient(g, *inputs, **options), spec.gradient_labels(g, *inputs, **options)]
        case mpsref.Dropout():
            return [spec.gradient(g, spec.mask(x.shape, **options))]
        case mpsref.Neuron() if rest:
            known = replace(spec, data=rest[0])
            return [known.gradient(g, x), known.parameter_gradient(g, x)]
        case _:
            return [spec.gradient(g, x)]
