"""How PyTorch spells the pooling kernels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref import padding
from mpsref.arguments.arrays import Array
from mpsref.bench.pytorch import Call, Spelling, nchw
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.registry import Spec

__all__ = ["SPELLINGS"]


def average_pooling(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: tuple[Array, ...] | None) -> Call | None:
    """Return average pooling; ``None`` for windows that PyTorch cannot place."""
    words = avg_pool2d(problem)
    if words is None:
        return None
    tensor = nchw(torch, inputs[0])
    out = nchw(torch, outs[0]) if outs else None
    aten = torch.ops.aten
    if problem.method == "forward":
        if out is None:
            return lambda: aten.avg_pool2d(tensor, *words)
        return lambda: aten.avg_pool2d.out(tensor, *words, out=out)
    source = nchw(torch, np.empty(problem.source_shape, np.float32))
    if out is None:
        return lambda: aten.avg_pool2d_backward(tensor, source, *words, None)
    return lambda: aten.avg_pool2d_backward.grad_input(tensor, source, *words, None, grad_input=out)


def avg_pool2d(problem: Any) -> tuple[Any, ...] | None:
    """Return (kernel, stride, padding, ceil_mode, count_include_pad) for these windows and weights, or ``None``."""
    spec, size = problem.spec, problem.source_shape[1:3]
    outputs = problem.output_size if problem.method == "forward" else problem.gradient_size
    pads = [window.center - window.offset for window in spec.windows]
    if any(not 0 <= pad <= window.kernel // 2 for pad, window in zip(pads, spec.windows, strict=True)):
        return None
    for ceil_mode, include in itertools.product((False, True), (False, True)):
        placed = padding.pytorch(size, spec.kernel_size, spec.strides, pads, 1, ceil_mode, include)
        same = replace(spec, offset=placed.offset, edge_mode=placed.edge_mode, zero_pad_size=placed.zero_pad_size)
        weights = zip(replace(problem, spec=same).reciprocals(), problem.reciprocals(), strict=True)
        if placed.output_size == outputs and all(np.array_equal(a, b) for a, b in weights):
            return list(spec.kernel_size), list(spec.strides), pads, ceil_mode, include
    return None


def max_pooling(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: tuple[Array, ...] | None) -> Call | None:
    """Return max pooling, whose gradient gets the positions of the maxima for free; ``None`` for other windows."""
    words = max_pool2d(problem)
    if words is None:
        return None
    *gradient, tensor = (nchw(torch, array) for array in inputs)
    out = nchw(torch, outs[0]) if outs else None
    aten = torch.ops.aten
    value, positions = aten.max_pool2d_with_indices(tensor, *words)
    if problem.method == "forward" and out is None:
        return lambda: aten.max_pool2d_with_indices(tensor, *words)[0]
    if problem.method == "forward":
        return lambda: aten.max_pool2d_with_indices.out(tensor, *words, out=out, indices=positions)[0]
    backward, (g,) = aten.max_pool2d_with_indices_backward, gradient
    if g.shape != value.shape:
        return None
    if out is None:
        return lambda: backward(g, tensor, *words, positions)
    return lambda: backward.grad_input(g, tensor, *words, positions, grad_input=out)


def max_pool2d(problem: Any) -> tuple[Any, ...] | None:
    """Return (kernel, stride, padding, dilation, ceil_mode) for these windows, or ``None``."""
    spec, size = problem.spec, problem.source_shape[1:3]
    outputs = problem.output_size if problem.method == "forward" else problem.gradient_size
    pads = [window.center - window.offset for window in spec.windows]
    padded = any(pads) and (spec.edge_mode == "zero" or spec.spread != (1, 1))  # PyTorch pads with minus infinity
    if padded or any(not 0 <= pad <= window.kernel // 2 for pad, window in zip(pads, spec.windows, strict=True)):
        return None
    for ceil_mode in (False, True):
        placed = padding.pytorch(size, spec.kernel_size, spec.strides, pads, spec.spread, ceil_mode)
        beyond = ceil_mode and spec.edge_mode == "zero"
        if placed.output_size == outputs and not beyond:
            return list(spec.kernel_size), list(spec.strides), pads, list(spec.spread), ceil_mode
    return None


def l2norm_pooling(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: tuple[Array, ...] | None) -> Call | None:
    """Return ``lp_pool2d`` or its gradient through autograd; ``None`` for padded windows, and into given memory."""
    spec = problem.spec
    outputs = problem.output_size if problem.method == "forward" else problem.gradient_size
    placed = padding.pytorch(problem.source_shape[1:3], spec.kernel_size, spec.strides)
    if outs or (placed.offset, placed.output_size) != (spec.offset, outputs):
        return None
    words = 2.0, list(spec.kernel_size), list(spec.strides)
    pool = torch.nn.functional.lp_pool2d
    if problem.method == "forward":
        tensor = nchw(torch, inputs[0])
        return lambda: pool(tensor, *words)
    with torch.inference_mode(False), torch.enable_grad():
        g, x = (nchw(torch, array) for array in inputs)
        x.requires_grad_()
        y = pool(x, *words)

    def backward() -> Any:
        with torch.inference_mode(False):
            return torch.autograd.grad(y, x, g, retain_graph=True)[0]

    return backward


SPELLINGS: Mapping[type[Spec], Spelling] = {
    PoolingAverage: average_pooling,
    PoolingMax: max_pooling,
    PoolingL2Norm: l2norm_pooling,
}
