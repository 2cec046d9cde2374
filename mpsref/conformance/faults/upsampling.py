"""Planted faults of upsampling and resize: in where outputs lie, in the weights, at the edge, in the adjoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, of_problem, of_result, with_spec
from mpsref.kernels import CropAndResizeBilinear, ResizeBilinear, UpsamplingBilinear, UpsamplingNearest
from mpsref.kernels.interpolation import Sampling
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]

Weights = Callable[[Sampling, int], list[tuple[int, float]]]
"""``weights(axis, i)``: which pixels output i reads, with what weights."""


def _matrix(axis: Sampling, weights: Weights) -> Array:
    """Return what each output reads of each pixel, (outputs, length); reads outside the axis are dropped."""
    matrix = np.zeros((axis.outputs, axis.length))
    for i in range(axis.outputs):
        for j, weight in weights(axis, i):
            if 0 <= j < axis.length:
                matrix[i, j] += weight
    return matrix


def _by(weights: Weights) -> Callable[..., None]:
    """Sample by other weights, and in the gradient by the adjoint of them."""

    def change(result: Array, problem: Any, image: Array) -> Array:
        y, x = (_matrix(axis, weights) for axis in problem.axes)
        if problem.method == "gradient":
            y, x = y.T, x.T
        return np.asarray(np.einsum("ij,njkc,lk->nilc", y, image.astype(np.float64), x))

    return of_result(change)


def _at(position: Callable[[Sampling, int], float], clamped: bool = True) -> Callable[..., None]:
    """Sample linearly at other positions."""

    def weights(axis: Sampling, i: int) -> list[tuple[int, float]]:
        p = position(axis, i)
        j = int(np.floor(p))
        near, far = (j, 1 - (p - j)), (j + 1, p - j)
        if clamped and axis.edge_mode == "clamp":
            return [(min(max(k, 0), axis.length - 1), w) for k, w in (near, far)]
        return [near, far]

    return _by(weights)


def _p(axis: Sampling, i: int) -> float:
    return (axis.start + i * axis.numerator) / axis.denominator


def _half_pixel(axis: Sampling, i: int) -> float:
    return float((i + 0.5) * axis.length / axis.outputs - 0.5)


def _aligned(axis: Sampling, i: int) -> float:
    return i * (axis.length - 1) / max(1, axis.outputs - 1)


def _not_aligned(axis: Sampling, i: int) -> float:
    return i * axis.length / axis.outputs


def _exchanged_weights(axis: Sampling, i: int) -> list[tuple[int, float]]:
    return [(j, 1 - w if 0 < w < 1 else w) for j, w in axis.reads(i)]


def _off_by(shift: int) -> Weights:
    return lambda axis, i: [(j + shift, w) for j, w in axis.reads(i)]


def _wrapped(axis: Sampling, i: int) -> list[tuple[int, float]]:
    """Behind the last pixel comes the first one."""
    j, remainder = divmod(i * axis.numerator, axis.denominator)
    f = remainder / axis.denominator
    return [(j, 1 - f), ((j + 1) % axis.length, f)]


_HALF = "positions are shifted by half a pixel"


def _linear() -> Table:
    return {
        _HALF: _at(_half_pixel),
        "corners are always aligned": _at(_aligned),
        "corners are never aligned": _at(_not_aligned),
        "the nearest pixel is taken": _by(lambda axis, i: [(int(_p(axis, i)), 1.0)]),
        "the weights are exchanged": _by(_exchanged_weights),
        "pixels are one too early": _by(_off_by(-1)),
        "pixels are one too late": _by(_off_by(1)),
        "the image is periodic": _by(_wrapped),
        "weights are a smooth step": _by(lambda axis, i: [(j, w * w * (3 - 2 * w)) for j, w in axis.reads(i)]),
        "weights are rounded to 1/256": _by(lambda axis, i: [(j, round(w * 256) / 256) for j, w in axis.reads(i)]),
    }


def _edges() -> Table:
    return {
        "behind the last pixel it is always 0": of_problem(with_spec(edge_mode=lambda spec: "zero")),
        "behind the last pixel it is always the last pixel": of_problem(with_spec(edge_mode=lambda spec: "clamp")),
    }


def _gradient() -> Table:
    return {
        "the mean is taken, not the sum": of_result(_mean),
        "one of the pixels of a block is taken": of_result(_first_of_block),
        "the last output is left out": of_result(_without_the_last),
    }


def _mean(result: Array, problem: Any, g: Array) -> Array:
    sy, sx = problem.spec.factors
    return np.asarray(result / (sy * sx))


def _first_of_block(result: Array, problem: Any, g: Array) -> Array:
    sy, sx = problem.spec.factors
    return g[:, ::sy, ::sx].astype(np.float64)


def _without_the_last(result: Array, problem: Any, g: Array) -> Array:
    y, x = (_matrix(axis, lambda one, i: one.reads(i) if i + 1 < one.outputs else []) for axis in problem.axes)
    return np.asarray(np.einsum("ij,nikc,kl->njlc", y, g.astype(np.float64), x))


def _nearest() -> Table:
    return {
        "positions are rounded": _by(lambda axis, i: [(min(int(np.floor(_p(axis, i) + 0.5)), axis.length - 1), 1.0)]),
        "pixels are one too early": _by(lambda axis, i: [(max((i - 1) // axis.denominator, 0), 1.0)]),
        "the image is repeated, not its pixels": _by(lambda axis, i: [(i % axis.length, 1.0)]),
        "corners are aligned": _by(lambda axis, i: [(int(_aligned(axis, i)), 1.0)]),
        "pixels are interpolated": _at(_p, clamped=False),
        "pixels are spread out with zeros": _by(
            lambda axis, i: [(i // axis.denominator, float(i % axis.denominator == 0))]
        ),
        "every second row is left out": of_result(_every_second_row_missing),
    }


def _every_second_row_missing(result: Array, *_: Any) -> None:
    result[:, 1::2] = 0


def _resize() -> Table:
    return {
        **_linear(),
        "positions are for the scale rounded down": _by(
            lambda axis, i: [(min(i // max(1, axis.outputs // axis.length), axis.length - 1), 1.0)]
        ),
    }


def _box(change: Callable[[float, float, float, float], tuple[float, ...]]) -> Callable[..., None]:
    """Resize another box."""
    return of_problem(with_spec(box=lambda spec: change(*spec.box)))


def _clamped(axis: Sampling, i: int) -> list[tuple[int, float]]:
    """Beside the image its edge is repeated."""
    if axis.reads(i):
        return axis.reads(i)
    return [(0 if _p(axis, i) < 0 else axis.length - 1, 1.0)]


def _of_length(axis: Sampling, i: int) -> list[tuple[int, float]]:
    """The box is in units of L pixels, not of L - 1."""
    if axis.length == 1:
        return axis.reads(i)
    scaled = replace(axis, start=axis.start * axis.length, numerator=axis.numerator * axis.length)
    return replace(scaled, denominator=axis.denominator * (axis.length - 1)).reads(i)


def _over_outputs(axis: Sampling, i: int) -> list[tuple[int, float]]:
    """The step is a part of O, not of O - 1."""
    factor = axis.outputs
    scaled = replace(axis, start=axis.start * factor, numerator=axis.numerator * max(1, factor - 1))
    return replace(scaled, denominator=axis.denominator * factor).reads(i)


def _partly_outside(axis: Sampling, i: int) -> list[tuple[int, float]]:
    """Less than a pixel beside the image the edge still counts in part."""
    j = int(np.floor(_p(axis, i)))
    return [(j, 1 - (_p(axis, i) - j)), (j + 1, _p(axis, i) - j)]


def _begins(spec: CropAndResizeBilinear) -> tuple[float, ...]:
    """A single output is at the beginning of the box."""
    (y0, x0, y1, x1), (rows, columns) = spec.box, spec.sizes
    return y0, x0, y0 if rows == 1 else y1, x0 if columns == 1 else x1


def _crop() -> Table:
    return {
        **{name: run for name, run in _linear().items() if "aligned" not in name and name != _HALF},
        "beside the image its edge is repeated": _by(_clamped),
        "the box is in units of all pixels": _by(_of_length),
        "the step is a part of the number of outputs": _by(_over_outputs),
        "the edge fades out over a pixel": _by(_partly_outside),
        "a single output is not in the middle": of_problem(with_spec(box=_begins)),
        "y and x are exchanged": _box(lambda y0, x0, y1, x1: (x0, y0, x1, y1)),
        "the second corner is a size": _box(lambda y0, x0, y1, x1: (y0, x0, y0 + abs(y1), x0 + abs(x1))),
        "the box is cut to the image": _box(lambda *box: tuple(min(max(edge, 0.0), 1.0) for edge in box)),
        "the whole image is resized": _box(lambda *box: (0.0, 0.0, 1.0, 1.0)),
        "the box is stored as float16": _box(lambda *box: tuple(float(np.float16(edge)) for edge in box)),
    }


def faults() -> Iterator[Fault]:
    """Yield the faults of upsampling and resize, beside those that every kernel can have."""
    for operation, table in {
        Operation(UpsamplingNearest, "forward"): _nearest(),
        Operation(UpsamplingNearest, "gradient"): _nearest() | _gradient(),
        Operation(UpsamplingBilinear, "forward"): _linear() | _edges(),
        Operation(UpsamplingBilinear, "gradient"): _linear() | _edges() | _gradient(),
        Operation(ResizeBilinear, "forward"): _resize(),
        Operation(CropAndResizeBilinear, "forward"): _crop(),
    }.items():
        for name, run in table.items():
            yield Fault(name, operation, run)
