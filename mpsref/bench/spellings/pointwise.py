"""How PyTorch spells resampling, arithmetic and data movement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.bench.pytorch import Call, Spelling, nchw
from mpsref.kernels import Arithmetic, Concatenation, UpsamplingBilinear, UpsamplingNearest
from mpsref.registry import Spec

__all__ = ["SPELLINGS"]

Outs = tuple[Array, ...] | None


def arithmetic(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: Outs) -> Call | None:
    """Return a sum, product or quotient with scales but without clamp and offsets; gradients write both operands'."""
    spec = problem.spec
    if spec.clamps or spec.bias or any(any(operand.offset) for operand in spec.operands):
        return None
    tensors = [nchw(torch, array) for array in inputs]
    targets = [nchw(torch, out) for out in outs] if outs else [None, None]
    if problem.method == "gradient":
        return _gradient(torch, problem, tensors, targets)
    x, y = tensors
    if spec.operation in ("multiply", "divide"):
        scale = spec.primary_scale * spec.secondary_scale
        function = torch.mul if spec.operation == "multiply" else torch.div
        return (lambda: function(x, y, out=targets[0])) if scale == 1 else None
    sign = -1 if spec.operation == "subtract" else 1
    if spec.primary_scale == 1:
        return lambda: torch.add(x, y, alpha=sign * spec.secondary_scale, out=targets[0])
    return lambda: torch.add(x * spec.primary_scale, y, alpha=sign * spec.secondary_scale, out=targets[0])


def _gradient(torch: Any, problem: Any, tensors: list[Any], targets: list[Any]) -> Call | None:
    """Return both gradients; where an operand is as large as the result and is not scaled, its gradient is a copy."""
    spec = problem.spec
    if (spec.primary_scale, spec.secondary_scale) != (1, 1):
        return None
    folded = [tuple((2, 3, 1)[axis] for axis, t in enumerate(operand.strides) if t == 0) for operand in spec.operands]
    g, *operands = tensors

    def terms(k: int, out: Any) -> Any:
        if spec.operation == "multiply":
            return torch.mul(g, operands[1 - k], out=out)
        if spec.operation == "subtract" and k == 1:
            return torch.neg(g, out=out)
        if folded[k]:
            return g
        return g.clone() if out is None else out.copy_(g)

    def both() -> Any:
        return [
            torch.sum(terms(k, None), axes, keepdim=True, out=targets[k]) if axes else terms(k, targets[k])
            for k, axes in enumerate(folded)
        ]

    return both


def upsampling(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: Outs) -> Call | None:
    """Return nearest or aligned bilinear interpolation; PyTorch knows no other positions."""
    spec = problem.spec
    aten, out = torch.ops.aten, nchw(torch, outs[0]) if outs else None
    (image,) = (nchw(torch, array) for array in inputs)
    n, large_height, large_width, c = problem.large_shape
    small = [n, c, *problem.source_shape[1:3]]
    size = [large_height, large_width]
    if isinstance(spec, UpsamplingNearest):
        forward, backward, corners = aten.upsample_nearest2d, aten.upsample_nearest2d_backward, []
    elif spec.align_corners:
        forward, backward, corners = aten.upsample_bilinear2d, aten.upsample_bilinear2d_backward, [True]
    else:
        return None
    if problem.method == "forward":
        if out is None:
            return lambda: forward(image, size, *corners)
        return lambda: forward.out(image, size, *corners, out=out)
    if out is None:
        return lambda: backward(image, size, small, *corners)
    return lambda: backward.grad_input(image, size, small, *corners, grad_input=out)


def concatenation(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: Outs) -> Call | None:
    """Return ``cat`` where no source is padded; its gradient, which PyTorch gives as views, as copies."""
    if any(problem.spec.aligned(c) != c for c in problem.channels):
        return None
    tensors = [nchw(torch, array) for array in inputs]
    targets = [nchw(torch, out) for out in outs] if outs else None
    if problem.method == "forward":
        return lambda: torch.cat(tensors, 1, out=targets[0]) if targets else torch.cat(tensors, 1)
    (g,) = tensors
    parts = torch.split(g, list(problem.channels), 1)
    channels_last = torch.channels_last
    if targets:
        return lambda: [target.copy_(part) for target, part in zip(targets, parts, strict=True)]
    return lambda: [part.clone(memory_format=channels_last) for part in parts]


SPELLINGS: Mapping[type[Spec], Spelling] = {
    Arithmetic: arithmetic,
    UpsamplingNearest: upsampling,
    UpsamplingBilinear: upsampling,
    Concatenation: concatenation,
}
"""The function of each kernel."""
