"""Published defects of inputs whose memory is not packed: slices, strides, an offset, another order of the axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.layouts import ORDERS
from mpsref.bugs.bug import Bug
from mpsref.conformance.mutants import computed, correct_results
from mpsref.kernels import Adam, Convolution, GroupNormalization, PoolingAverage, SoftMax
from mpsref.operations import Operation, Problem
from mpsref.registry import Implementation

LAYOUTS = ("nchw", "nhwc", "nchw-gap", "nhwc-gap", "nchw-offset", "ncwh")

NHWC, NCHW = ORDERS["nhwc"], ORDERS["nchw"]


def _reading(**changes: Callable[[Array], Array]) -> Implementation:
    """Read ``change(array)`` in place of an input of this name: another array on its memory."""

    def run(problem: Problem, *inputs: Array, out: Any) -> None:
        named = zip(problem.input_shapes, inputs, strict=True)
        computed(correct_results)(problem, *(changes.get(name, np.asarray)(array) for name, array in named), out=out)

    return run


def _is_packed(array: Array, order: tuple[int, ...]) -> bool:
    return array.transpose(order).flags.c_contiguous


def _packed(array: Array, order: tuple[int, ...]) -> Array:
    """Read the memory of an array of positive strides as if it were packed, the axes in this order."""
    length = 1 + sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)) // array.itemsize
    memory = np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,))
    return np.resize(memory, [array.shape[axis] for axis in order]).transpose(np.argsort(order))


def _from_the_begin(array: Array) -> Array:
    """Read one element before an array that does not begin where memory is allocated."""
    interface = array.__array_interface__
    address = interface["data"][0]
    if address % 16 == 0:
        return array
    described = {**interface, "data": (address - array.itemsize, False), "strides": array.strides}
    return np.array(type("Memory", (), {"__array_interface__": described})())


def _in_c_order(array: Array) -> Array:
    return _packed(array, tuple(range(array.ndim)))


def _by_place(array: Array) -> Array:
    """Read the memory of an array without gaps."""
    order = tuple(np.argsort(array.strides)[::-1].tolist())
    return _in_c_order(array) if _is_packed(array, order) else array


def _strided_weights(weights: Array) -> Array:
    return weights if _is_packed(weights, NCHW) else _packed(weights, NCHW)


def _strided_channels_last(g: Array) -> Array:
    """Of an image whose innermost axis is that of the channels."""
    is_last = g.shape[3] > 1 and g.strides[3] == g.itemsize and not _is_packed(g, NCHW)
    return _packed(g, NHWC) if is_last else g


BUGS = (
    Bug(
        "pytorch/pytorch#131750",
        Operation(GroupNormalization, "forward"),
        "The offset of a slice is not added: the image is read from the begin of its memory.",
        "MPS, layer_norm, 2024-07",
        _reading(x=_from_the_begin),
        LAYOUTS,
    ),
    Bug(
        "pytorch/pytorch#192212",
        Operation(Convolution, "forward"),
        "Weights with strides are read as packed.",
        "MPS on macOS 15, 2.7 to 2.13",
        _reading(weights=_strided_weights),
        LAYOUTS,
    ),
    Bug(
        "pytorch/pytorch#189233",
        Operation(PoolingAverage, "gradient"),
        "A channels_last gradient with strides is read as packed.",
        "MPS, 2026-07",
        _reading(g=_strided_channels_last),
        LAYOUTS,
    ),
    Bug(
        "ml-explore/mlx#657",
        Operation(SoftMax, "forward"),
        "A slice of rows whose elements are next to each other is read as packed.",
        "Metal, 0.2.0",
        _reading(x=_strided_channels_last),
        LAYOUTS,
    ),
    Bug(
        "pytorch/pytorch#118115",
        Operation(Adam, "step"),
        "The value is read as packed by addcdiv.",
        "MPS, 2024-01",
        _reading(value=_in_c_order),
        LAYOUTS,
    ),
    Bug(
        "bitsandbytes-foundation/bitsandbytes#1185",
        Operation(Adam, "step"),
        "Gradient and value are paired by their places in memory: a column-first gradient is read as row-first.",
        "0.43.1",
        _reading(gradient=_by_place),
        LAYOUTS,
    ),
)
