"""Planted faults of the kernels with weights: where taps lie, what gradients add up, and what all of them read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.convolution_weights import Table, forward, of_input, reading
from mpsref.conformance.faults.planted import Fault, of_problem, of_result, of_results, with_spec
from mpsref.conformance.faults.windows import swap
from mpsref.kernels import Convolution, ConvolutionTranspose, FullyConnected
from mpsref.kernels.convolution import by_group, joined, weights_by_group
from mpsref.kernels.convolution_problems import Weighted
from mpsref.registry import Operation, Spec

__all__ = ["faults"]


def _changed(**changes: Callable[[Any], Any]) -> Callable[..., None]:
    return of_problem(with_spec(**changes))


def _moved(field: str, step: Callable[[int, Any], int]) -> Callable[..., None]:
    """Add ``step(axis, spec)`` to an offset."""
    return _changed(**{field: lambda spec: tuple(o + step(axis, spec) for axis, o in enumerate(getattr(spec, field)))})


def _convolution() -> Table:
    return {
        "the windows start one pixel late": _moved("offset", lambda axis, spec: 1),
        "the rows start one pixel early": _moved("offset", lambda axis, spec: axis - 1),
        "an even window leans the other way": _moved("offset", lambda axis, spec: spec.windows[axis].even),
        "the centre of a dilated kernel is floor(K / 2) * d": _moved(
            "offset", lambda axis, spec: spec.windows[axis].center - spec.size[axis] // 2 * spec.dilations[axis]
        ),
        "the centre of a dilated kernel is floor(K / 2)": _moved(
            "offset", lambda axis, spec: spec.windows[axis].center - spec.size[axis] // 2
        ),
        "the offset is the left edge": _moved("offset", lambda axis, spec: spec.windows[axis].center),
        "the offset has the other sign": _moved("offset", lambda axis, spec: -2 * spec.offset[axis]),
        "the offset of the other axis is taken": _changed(offset=lambda spec: swap(spec.offset)),
        "the stride is ignored": _changed(strides=lambda spec: 1),
        "the stride of the other axis is taken": _changed(strides=lambda spec: swap(spec.strides)),
        "the dilation is ignored": _changed(dilations=lambda spec: 1),
        "the dilation of the other axis is taken": _changed(dilations=lambda spec: swap(spec.dilations)),
        "stride and dilation are exchanged": _changed(
            strides=lambda spec: spec.dilations, dilations=lambda spec: spec.strides
        ),
    }


def _edges() -> Table:
    return {
        "outside reads the border pixel in both edge modes": _changed(edge_mode=lambda spec: "clamp"),
        "outside reads 0 in both edge modes": _changed(edge_mode=lambda spec: "zero"),
    }


def _transpose() -> Table:
    return {
        "the result starts one pixel late": _moved("kernel_offset", lambda axis, spec: 1),
        "the kernel offset is ignored": _changed(kernel_offset=lambda spec: 0),
        "the kernel offset has the other sign": _changed(
            kernel_offset=lambda spec: tuple(-o for o in spec.kernel_offset)
        ),
        "the kernel offset of the other axis is taken": _changed(kernel_offset=lambda spec: swap(spec.kernel_offset)),
        "the offset is ignored": _changed(offset=lambda spec: 0),
        "the offset counts in result pixels": _moved(
            "kernel_offset", lambda axis, spec: spec.offset[axis] * (1 - spec.strides[axis])
        ),
        "the stride is ignored": _changed(strides=lambda spec: 1),
        "the stride of the other axis is taken": _changed(strides=lambda spec: swap(spec.strides)),
        "an even kernel leans the other way": _moved("kernel_offset", lambda axis, spec: 1 - spec.size[axis] % 2),
        "the kernel is anchored at its first tap": _moved("kernel_offset", lambda axis, spec: spec.size[axis] // 2),
        "the kernel is anchored at its last tap": _moved(
            "kernel_offset", lambda axis, spec: spec.size[axis] // 2 + 1 - spec.size[axis]
        ),
    }


# --- what a gradient adds up ------------------------------------------------------------------------------------------


def _overwritten(result: Array, problem: Weighted, g: Array, weights: Array) -> Array:
    """Overlapping windows overwrite each other instead of adding up."""
    dx = np.zeros_like(result)
    source, w, into = by_group(g, problem), weights_by_group(weights, problem), by_group(dx, problem)
    for ty, tx, i, j in joined(problem):
        into[j] = np.einsum("nabgm,gmc->nabgc", source[i].astype(np.float64), w[:, :, ty, tx].astype(np.float64))
    return dx


def _ends_early(result: Array, problem: Weighted, *inputs: Array) -> None:
    """The loops over the source end at the size of the gradient."""
    height, width = problem.result_size
    result[:, height:] = 0
    result[:, :, width:] = 0


def _neighbour_for_zero(result: Array, problem: Weighted, *inputs: Array) -> Array:
    """Pixels that no window reads get the value of their neighbour."""
    return np.where(result.any(axis=(0, 3), keepdims=True), result, np.roll(result, 1, axis=2))


def _without_last_row(g: Array, problem: Weighted) -> Array:
    rest = g.copy()
    rest[:, -1] = 0
    return rest


def _last_image(g: Array, problem: Weighted) -> Array:
    only = np.zeros_like(g)
    only[-1:] = g[-1:]
    return only


def _data(windowed: bool) -> Table:
    table = {
        "the loops end at the size of the gradient": of_result(_ends_early),
        "the last row of windows is left out": of_input("g", _without_last_row),
    }
    windows = {
        "overlapping windows overwrite each other": of_result(_overwritten),
        "pixels that nothing reads get their neighbour's value": of_result(_neighbour_for_zero),
    }
    return table | windows if windowed else table


def _weights(windowed: bool) -> Table:
    def biases(change: Callable[[Array, Array], Array]) -> Callable[..., None]:
        return of_results(lambda results, problem, g, x: (results[0], change(results[1], g.astype(np.float64))))

    pixels: Table = {
        "the mean over the pixels is taken": of_results(
            lambda results, p, g, x: tuple(r / g[0, :, :, 0].size for r in results)
        ),
    }
    return (pixels if windowed else {}) | {
        "the mean over the batch is taken": of_results(lambda results, p, g, x: tuple(r / len(g) for r in results)),
        "only the last image counts": of_input("g", _last_image),
        "the biases' gradient is that of the first image": biases(lambda db, g: g[0].sum((0, 1))),
        "the biases' gradient is a mean": biases(lambda db, g: g.mean((0, 1, 2))),
        "the biases' gradient leaves out the last row": biases(lambda db, g: g[:, :-1].sum((0, 1, 2))),
        "the biases' gradient is 0": biases(lambda db, g: 0 * db),
        "the last row of windows is left out": of_input("g", _without_last_row),
        "the gradient has the other sign": of_results(lambda results, *_: tuple(-r for r in results)),
    }


PLACES: dict[type[Spec], Table] = {Convolution: _convolution(), ConvolutionTranspose: _transpose(), FullyConnected: {}}
"""The faults in where the taps of a kernel lie."""


def faults() -> Iterator[Fault]:
    """Yield the faults of the kernels with weights, beside those that every kernel can have."""
    for spec_type, places in PLACES.items():
        windowed = spec_type is not FullyConnected
        adding = {"forward": forward(), "gradient_data": _data(windowed), "gradient_weights": _weights(windowed)}
        for method, own in adding.items():
            edges = _edges() if spec_type is Convolution and method != "gradient_data" else {}
            for name, run in (places | edges | reading(method, windowed) | own).items():
                yield Fault(name, Operation(spec_type, method), run)
