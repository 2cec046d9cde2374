"""Planted faults of the pooling kernels: in what they divide by, what they select, and what lies outside the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults import windows
from mpsref.conformance.faults.planted import Fault, honest, of_problem, of_result, with_spec
from mpsref.conformance.faults.windows import swap
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.kernels.pooling import PoolingForward, PoolingGradient, taps
from mpsref.kernels.pooling_l2norm import norm
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]

ALWAYS_CLAMP = of_problem(with_spec(edge_mode=lambda spec: "clamp"))
ALWAYS_ZERO = of_problem(with_spec(edge_mode=lambda spec: "zero"))


def _window_size(problem: Any) -> int:
    return int(np.prod(problem.spec.kernel_size))


def _average() -> Table:
    def ring(change: Callable[[Any], Any]) -> Callable[..., None]:
        return of_problem(with_spec(zero_pad_size=lambda spec: change(spec.zero_pad_size)))

    return {
        "windows shrink at the border in both edge modes": of_problem(
            with_spec(
                edge_mode=lambda spec: "clamp",
                zero_pad_size=lambda spec: spec.zero_pad_size if spec.edge_mode == "clamp" else 0,
            )
        ),
        "windows never shrink at the border": ALWAYS_ZERO,
        "the zero pad is ignored": ring(lambda z: 0),
        "the zero pad of the other axis is taken": ring(swap),
        "the zero pad is one wider": ring(lambda z: (z[0] + 1, z[1] + 1)),
        "the sum is not divided": of_result(lambda result, problem, *_: result * _window_size(problem)),
    }


# --- max: another rule of selection -----------------------------------------------------------------------------------


def _selecting(choose: Callable[..., Array]) -> Callable[..., None]:
    """Return max pooling that selects by ``choose(values, rows, columns) -> weights (N, taps, C)``."""

    def run(problem: Any, *inputs: Array, out: Array) -> None:
        *g, x = (array.astype(np.float64) for array in inputs)
        if isinstance(problem, PoolingForward):
            y = np.zeros(problem.result_shapes[0])
            for a, b in np.ndindex(*problem.output_size):
                values, rows, columns, _ = taps(problem, x, a, b)
                chosen = choose(values, rows, columns)
                y[:, a, b] = (values * chosen).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)
            out[...] = y
            return
        dx = np.zeros(problem.source_shape)
        (py, px), (included_rows, included_columns) = problem.primary_offset, problem.included
        for a in included_rows:
            for b in included_columns:
                values, rows, columns, _ = taps(problem, x, a, b)
                share = choose(values, rows, columns) * g[0][:, None, py + a, px + b]
                for tap in np.flatnonzero((rows >= 0) & (columns >= 0)):
                    dx[:, rows[tap], columns[tap]] += share[:, tap]
        out[...] = problem.place(dx)

    return run


def _one(selected: Array, like: Array) -> Array:
    """Return weights that are 1 at the tap ``selected`` (N, C) and 0 elsewhere."""
    return np.asarray(np.arange(like.shape[1])[:, None] == selected[:, None], np.float64)


def _last_of_ties(values: Array, rows: Array, columns: Array) -> Array:
    return _one(values.shape[1] - 1 - values[:, ::-1].argmax(axis=1), values)


def _all_of_ties(values: Array, rows: Array, columns: Array) -> Array:
    return np.asarray(values == values.max(axis=1, keepdims=True), np.float64)


def _inside_only(values: Array, rows: Array, columns: Array) -> Array:
    """Padding of minus infinity: what other frameworks do."""
    inside = ((rows >= 0) & (columns >= 0))[:, None]
    return np.asarray(_one(np.where(inside, values, -np.inf).argmax(axis=1), values) * inside)


def _outside_loses_ties(values: Array, rows: Array, columns: Array) -> Array:
    """Zeros outside are looked at last, so that a 0 inside the image wins."""
    order = np.argsort(~((rows >= 0) & (columns >= 0)), kind="stable")
    return _one(order[values[:, order].argmax(axis=1)], values)


def _column_order(values: Array, rows: Array, columns: Array) -> Array:
    order = np.argsort(columns, kind="stable")
    return _one(order[values[:, order].argmax(axis=1)], values)


def _from_zero(values: Array, rows: Array, columns: Array) -> Array:
    """The search starts from 0, so that a window of negative values finds nothing."""
    best = values.argmax(axis=1)
    return np.asarray(_one(best, values) * (values.max(axis=1) > 0)[:, None])


def _max() -> Table:
    return {
        "outside reads the border pixel in both edge modes": ALWAYS_CLAMP,
        "outside reads 0 in both edge modes": ALWAYS_ZERO,
        "padding is minus infinity": _selecting(_inside_only),
        "the search starts from 0": _selecting(_from_zero),
        "the largest magnitude is taken": _selecting(lambda v, r, c: _one(np.abs(v).argmax(axis=1), v)),
        "the smallest is taken": _selecting(lambda v, r, c: _one(v.argmin(axis=1), v)),
        "the dilation is ignored": of_problem(with_spec(dilations=lambda spec: 1)),
        "the dilation of the other axis is taken": of_problem(with_spec(dilations=lambda spec: swap(spec.dilations))),
        "the centre of a dilated window is floor(K / 2) * d": of_problem(
            with_spec(offset=lambda spec: tuple(w.offset + w.center - w.kernel // 2 * w.dilation for w in spec.windows))
        ),
        "the mean is taken": _selecting(lambda v, r, c: np.full(v.shape, 1 / v.shape[1]) * v.shape[1]),
    }


def _max_gradient() -> Table:
    return {
        "the last of equal maxima is taken": _selecting(_last_of_ties),
        "all equal maxima get the gradient": _selecting(_all_of_ties),
        "zeros outside lose against zeros inside": _selecting(_outside_loses_ties),
        "ties are broken in column order": _selecting(_column_order),
    }


# --- L2 norm: another formula -----------------------------------------------------------------------------------------


def _slope(formula: Callable[[Array, Array, Array], Array]) -> Callable[..., None]:
    """Return the gradient of L2 pooling with ``formula(values, norm, times)`` in place of ``times * values / norm``."""

    def run(problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
        g, x = g.astype(np.float64), x.astype(np.float64)
        dx = np.zeros(problem.source_shape)
        (py, px), (included_rows, included_columns) = problem.primary_offset, problem.included
        for a in included_rows:
            for b in included_columns:
                values, rows, columns, times = taps(problem, x, a, b)
                root = norm(values, times)[:, None]
                share = g[:, None, py + a, px + b] * formula(values, np.where(root > 0, root, np.inf), times[:, None])
                for tap in np.flatnonzero((rows >= 0) & (columns >= 0)):
                    dx[:, rows[tap], columns[tap]] += share[:, tap]
        out[...] = problem.place(dx)

    return run


def _l2norm() -> Table:
    def scaled(power: float) -> Callable[..., None]:
        return of_result(lambda result, problem, *_: result * float(_window_size(problem)) ** power)

    return {
        "outside reads the border pixel in both edge modes": ALWAYS_CLAMP,
        "outside reads 0 in both edge modes": ALWAYS_ZERO,
        "the mean of squares is taken, not the sum": scaled(-0.5),
        "the result is scaled by the window's size": scaled(1.0),
    }


def _l2norm_forward() -> Table:
    return {
        "the root is forgotten": of_result(lambda result, *_: result**2),
        "the sum of magnitudes is taken": _magnitudes,
        "partial windows are scaled up": _scaled_up,
    }


def _magnitudes(problem: PoolingForward, x: Array, out: Array) -> None:
    for a, b in np.ndindex(*problem.output_size):
        values, _, _, times = taps(problem, x.astype(np.float64), a, b)
        out[:, a, b] = (np.abs(values) * times[:, None]).sum(axis=1)


def _scaled_up(problem: PoolingForward, x: Array, out: Array) -> None:
    """Windows that reach past the image are scaled to their full size, as PyTorch does in ceil mode."""
    inside = np.multiply.outer(*(runs.count for runs in problem.runs()))[None, :, :, None]
    out[...] = honest(problem, x) * np.sqrt(_window_size(problem) / np.maximum(inside, 1))


def _l2norm_gradient() -> Table:
    return {
        "clamped taps do not count": _slope(lambda v, y, times: v / y * (times > 0)),
        "the norm is not divided by": _slope(lambda v, y, times: times * v),
        "the square of the norm is divided by": _slope(lambda v, y, times: times * v / y**2),
        "the factor 2 of the square stays": _slope(lambda v, y, times: 2 * times * v / y),
        "the sign is lost": _slope(lambda v, y, times: times * np.abs(v) / y),
        "the norm comes from a float16 result": _slope(
            lambda v, y, times: times * v / np.minimum(y, 65000).astype(np.float16).astype(np.float64)
        ),
    }


TABLES: dict[type, tuple[Table, Table, Table]] = {
    PoolingAverage: (_average(), {}, {}),
    PoolingMax: (_max(), {}, _max_gradient()),
    PoolingL2Norm: (_l2norm(), _l2norm_forward(), _l2norm_gradient()),
}
"""Of each kernel the faults of both operations, of the forward pass and of the gradient."""


def faults() -> Iterator[Fault]:
    """Yield the faults of the pooling kernels, beside those that every kernel can have."""
    for spec_type, (both, forward, gradient) in TABLES.items():
        yield from windows.faults(spec_type)
        for method, own in {"forward": forward, "gradient": gradient}.items():
            for name, run in (both | own).items():
                yield Fault(name, Operation(spec_type, method), run)
