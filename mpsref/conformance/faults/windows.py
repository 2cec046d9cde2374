"""Planted faults in the geometry of any pooling kernel: where windows lie, which gradient pixels belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, honest, of_problem, of_result, with_spec
from mpsref.geometry import tdiv2
from mpsref.kernels.pooling import Pooling, PoolingGradient
from mpsref.registry import Operation

__all__ = ["faults", "swap"]


def swap(pair: tuple[int, int]) -> tuple[int, int]:
    """Return the value of the other axis for each."""
    return pair[1], pair[0]


def _offset_by(step: Callable[[Any], tuple[int, ...]]) -> Callable[[Any], Any]:
    """Return a change that moves the windows by ``step(windows)``."""
    return with_spec(offset=lambda spec: tuple(o + d for o, d in zip(spec.offset, step(spec.windows), strict=True)))


def _gradient_image_for_source(problem: PoolingGradient, *inputs: Array, out: Array) -> None:
    """Take the size of the gradient image for that of the source, in N and in the bounds of the image."""
    n, source_height, source_width, c = problem.source_shape
    height, width = problem.gradient_size
    smaller = replace(problem, source_shape=(n, height, width, c))
    shapes = list(smaller.input_shapes.values())
    cut = [inputs[0], *(np.resize(x, shape) for x, shape in zip(inputs[1:], shapes[1:], strict=True))]
    wrong = honest(smaller, *cut)
    out[...] = 0
    part = np.s_[:, : min(height, source_height), : min(width, source_width)]
    out[part] = wrong[part]


def _last_of_overlapping(result: Array, problem: PoolingGradient, g: Array, *x: Array) -> Array:
    """Overlapping windows overwrite each other instead of adding up."""
    dx = np.zeros_like(result)
    (py, px), (rows, columns) = problem.primary_offset, problem.included
    y_window, x_window = problem.spec.windows
    for a in rows:
        for b in columns:
            spec = replace(
                problem.spec, offset=(y_window.start(a) + y_window.center, x_window.start(b) + x_window.center)
            )
            single = type(problem)(spec, problem.source_shape, (1, 1))
            part = honest(single, g[:, py + a, px + b][:, None, None], *x)
            dx = np.where(part != 0, part, dx)
    return problem.place(dx)


def _neighbour_for_zero(result: Array, problem: PoolingGradient, *inputs: Array) -> None:
    """Pixels that no window reads get the value of their neighbour instead of 0."""
    empty = np.multiply.outer(*(runs.count for runs in problem.runs())) == 0
    result[:, empty] = np.roll(result, 1, axis=2)[:, empty]


def _last_row_missing(result: Array, problem: Any, *inputs: Array) -> None:
    result[:, -1] = 0


def _last_row_of_gradient_missing(problem: PoolingGradient) -> PoolingGradient:
    """The last window of a column is left out: < for <= in the bound of the candidate windows."""
    rows, columns = problem.included
    return replace(problem, source_size=(max(0, rows.stop - 1), columns.stop))


def _every_operation() -> dict[str, Callable[..., None]]:
    return {
        "the windows start one pixel late": of_problem(_offset_by(lambda windows: (1, 1))),
        "the rows start one pixel early": of_problem(_offset_by(lambda windows: (-1, 0))),
        "an even window leans the other way": of_problem(_offset_by(lambda ws: tuple(w.even for w in ws))),
        "the stride of the other axis is taken": of_problem(with_spec(strides=lambda s: swap(s.strides))),
        "the kernel size of the other axis is taken": of_problem(with_spec(kernel_size=lambda s: swap(s.kernel_size))),
        "the offset of the other axis is taken": of_problem(with_spec(offset=lambda s: swap(s.offset))),
        "a negative index is divided as C divides": of_problem(
            _offset_by(lambda windows: tuple(tdiv2(w.offset) - w.offset // 2 for w in windows))
        ),
        "the last row is left out": of_result(_last_row_missing),
    }


def _gradient_only() -> dict[str, Callable[..., None]]:
    return {
        "the primary offset is ignored": of_problem(lambda p: replace(p, primary_offset=(0, 0))),
        "the primary offset counts in source pixels": of_problem(
            lambda p: replace(
                p,
                primary_offset=tuple(-(-u // w.stride) for u, w in zip(p.primary_offset, p.spec.windows, strict=True)),
            )
        ),
        "the source size is ignored": of_problem(lambda p: replace(p, source_size=None)),
        "the last window is left out": of_problem(_last_row_of_gradient_missing),
        "the kernel offset is ignored": of_problem(lambda p: replace(p, kernel_offset=None)),
        "the kernel offset has the other sign": of_problem(
            lambda p: replace(p, kernel_offset=p.kernel_offset and tuple(-k for k in p.kernel_offset))
        ),
        "the clip is ignored": of_problem(lambda p: replace(p, clip=None)),
        "the clip's origin moves the values too": of_problem(
            lambda p: (
                p
                if p.clip is None or p.kernel_offset is not None
                else replace(p, kernel_offset=tuple(w.kernel_offset() for w in p.spec.windows))
            )
        ),
        "the gradient image's size is taken for the source's": _gradient_image_for_source,
        "overlapping windows overwrite each other": of_result(_last_of_overlapping),
        "unread pixels get their neighbour's value": of_result(_neighbour_for_zero),
    }


def faults(spec_type: type[Pooling]) -> Iterator[Fault]:
    """Yield the faults that any pooling kernel can have in its geometry."""
    for method in spec_type.problems:
        own = _every_operation() | (_gradient_only() if method == "gradient" else {})
        for name, run in own.items():
            yield Fault(name, Operation(spec_type, method), run)
