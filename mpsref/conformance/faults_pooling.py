"""Planted faults of average pooling and of the geometry of windows and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.conformance.faults import Fault, honest, of_problem, of_result, with_spec
from mpsref.geometry import tdiv2
from mpsref.images import Array
from mpsref.kernels import PoolingAverage
from mpsref.kernels.pooling import PoolingGradient
from mpsref.registry import Operation

__all__ = ["faults"]


def _swap(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[1], pair[0]


def _offset_by(step: Callable[[Any], tuple[int, int]]) -> Callable[[Any], Any]:
    """Return a change that moves the windows by ``step(windows)``."""

    def moved(spec: Any) -> tuple[int, int]:
        (oy, ox), (dy, dx) = spec.offset, step(spec.windows)
        return oy + dy, ox + dx

    return with_spec(offset=moved)


def _size_of_result(problem: Any) -> Any:
    """Take the size of the gradient image for that of the source, in N and in the bounds of the image."""
    n, _, _, c = problem.source_shape
    return replace(problem, source_shape=(n, *problem.gradient_size, c))


def _n_from_gradient_size(problem: PoolingGradient, g: Array, out: Array) -> None:
    wrong = honest(_size_of_result(problem), g)
    out[...] = 0
    height, width = (min(sizes) for sizes in zip(out.shape[1:3], wrong.shape[1:3], strict=True))
    out[:, :height, :width] = wrong[:, :height, :width]


def _sum_instead_of_mean(result: Array, problem: Any, *inputs: Array) -> Array:
    return result * int(np.prod(problem.spec.kernel_size))


def _last_of_overlapping(result: Array, problem: PoolingGradient, g: Array) -> Array:
    """Overlapping windows overwrite each other instead of adding up."""
    dx = np.zeros_like(result)
    (py, px), (rows, columns) = problem.primary_offset, problem.included
    _, height, width, _ = problem.source_shape
    y, x = problem.spec.windows
    for a in rows:
        for b in columns:
            spec = replace(problem.spec, offset=(y.start(a) + y.center, x.start(b) + x.center))
            single = PoolingAverage.problems["gradient"](spec, problem.source_shape, (1, 1))
            part = honest(single, g[:, py + a, px + b][:, None, None])
            box = np.s_[:, y.inside(a, height), x.inside(b, width)]
            dx[box] = part[box]
    return problem.place(dx)


def _nearest_window(result: Array, problem: PoolingGradient, g: Array) -> None:
    """Pixels that no window reads get the value of their neighbour instead of 0."""
    empty = np.multiply.outer(*(runs.count for runs in problem.runs())) == 0
    result[:, empty] = np.roll(result, 1, axis=2)[:, empty]


def _without_corner(result: Array, problem: Any, *inputs: Array) -> None:
    result[:, -1] = 0


def _truncated(problem: Any) -> Any:
    """C's division, which truncates, where the formula floors: windows left of the image move."""
    return _offset_by(lambda windows: tuple(tdiv2(w.offset) - w.offset // 2 for w in windows))(problem)


def _every_operation() -> dict[str, Callable[..., None]]:
    return {
        "the windows start one pixel late": of_problem(_offset_by(lambda windows: (1, 1))),
        "the rows start one pixel early": of_problem(_offset_by(lambda windows: (-1, 0))),
        "an even window leans the other way": of_problem(_offset_by(lambda ws: tuple(w.even for w in ws))),
        "the stride of the other axis is taken": of_problem(with_spec(strides=lambda s: _swap(s.strides))),
        "the kernel size of the other axis is taken": of_problem(with_spec(kernel_size=lambda s: _swap(s.kernel_size))),
        "the offset of the other axis is taken": of_problem(with_spec(offset=lambda s: _swap(s.offset))),
        "windows shrink at the border in both edge modes": of_problem(
            with_spec(
                edge_mode=lambda s: "clamp",
                zero_pad_size=lambda s: s.zero_pad_size if s.edge_mode == "clamp" else 0,
            )
        ),
        "windows never shrink at the border": of_problem(with_spec(edge_mode=lambda s: "zero")),
        "the zero pad is ignored": of_problem(with_spec(zero_pad_size=lambda s: 0)),
        "the zero pad of the other axis is taken": of_problem(
            with_spec(zero_pad_size=lambda s: _swap(s.zero_pad_size))
        ),
        "the zero pad is one wider": of_problem(
            with_spec(zero_pad_size=lambda s: tuple(z + 1 for z in s.zero_pad_size))
        ),
        "a negative index is divided as C divides": of_problem(_truncated),
        "the sum is not divided": of_result(_sum_instead_of_mean),
        "the last row is left out": of_result(_without_corner),
    }  # fmt: skip


def _gradient_only() -> dict[str, Callable[..., None]]:
    return {
        "the primary offset is ignored": of_problem(lambda p: replace(p, primary_offset=(0, 0))),
        "the primary offset counts in source pixels": of_problem(
            lambda p: replace(p, primary_offset=tuple(
                -(-u // w.stride) for u, w in zip(p.primary_offset, p.spec.windows, strict=True)))
        ),
        "the source size is ignored": of_problem(lambda p: replace(p, source_size=None)),
        "the kernel offset is ignored": of_problem(lambda p: replace(p, kernel_offset=None)),
        "the kernel offset has the other sign": of_problem(
            lambda p: replace(p, kernel_offset=p.kernel_offset and tuple(-k for k in p.kernel_offset))
        ),
        "the clip is ignored": of_problem(lambda p: replace(p, clip=None)),
        "the clip's origin moves the values too": of_problem(
            lambda p: p if p.clip is None or p.kernel_offset is not None
            else replace(p, kernel_offset=tuple(w.kernel_offset() for w in p.spec.windows))
        ),
        "N is that of the gradient image's size": _n_from_gradient_size,
        "overlapping windows overwrite each other": of_result(_last_of_overlapping),
        "unread pixels get their neighbour's value": of_result(_nearest_window),
    }  # fmt: skip


def faults() -> Iterator[Fault]:
    """Yield the faults of average pooling, beside those that every kernel can have."""
    for method in ("forward", "gradient"):
        operation = Operation(PoolingAverage, method)
        own = _every_operation() | (_gradient_only() if method == "gradient" else {})
        for name, run in own.items():
            yield Fault(name, operation, run)
