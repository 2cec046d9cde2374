"""The pooling kernels under test: strategies, properties, mutants, golden values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from mpsref import padding
from mpsref.arguments.arrays import Array, ImageShape
from mpsref.arguments.parameters import Pair, PairLike
from mpsref.conformance import comparator, properties
from mpsref.conformance.case import Case
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.geometry_mutants import swap, window_mutants
from mpsref.conformance.golden_entries import Adapter, Comparison, Entry, Values, node_output_size, over_windows
from mpsref.conformance.layer import Layer
from mpsref.conformance.mutants import MutantTable, computed, correct, of_input, of_problem, of_result, of_spec, zeroed
from mpsref.conformance.properties import (
    Counterparts,
    EquivalentProblem,
    equivalent,
    near,
    one_image_at_a_time,
    repeatable,
    same,
)
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.strategies import channels, framework_windows, often, pairs, seldom, sizes, thirds
from mpsref.geometry import EDGE_MODES, EdgeMode, ceil_div
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.kernels.pooling import Pooling, PoolingForward, PoolingGradient, taps
from mpsref.kernels.pooling_l2norm import norm
from mpsref.kernels.pooling_max import first_tap
from mpsref.kernels.reduce import greatest
from mpsref.padding import Placement
from mpsref.registry import Backend, Implementation, Operation, OperationKey, Problem

PoolingProblem: TypeAlias = PoolingForward | PoolingGradient

# --- strategies -------------------------------------------------------------------------------------------------------


def specs(spec_type: type[Pooling]) -> st.SearchStrategy[Pooling]:
    """Draw parameters: windows from one pixel to larger than the image, partly and wholly outside it."""
    own = {"zero_pad_size": pairs(0, 3), "dilations": often((1, 1), pairs(1, 4))}
    return st.builds(
        spec_type,
        kernel_size=pairs(1, 5) | pairs(1, 16),
        strides=pairs(1, 4),
        offset=pairs(0, 1) | pairs(-3, 3) | seldom((1, 1), pairs(-6, 9)),
        edge_mode=st.sampled_from(EDGE_MODES),
        **{field.name: own[field.name] for field in fields(spec_type) if field.name in own},
    )


def problems(spec_type: type[Pooling], method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation of a pooling kernel, one third of them by the arguments of frameworks."""
    return thirds(placed_problems(spec_type, method), framework_problems(spec_type, method))


def placed_problems(spec_type: type[Pooling], method: str) -> st.SearchStrategy[Problem]:
    """Draw problems with windows anywhere."""
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(1, 12), channels(9))
    if method == "forward":
        call: dict[str, st.SearchStrategy[object]] = {"output_size": sizes(9)}
    else:
        call = {
            "gradient_size": sizes(9),
            "primary_offset": seldom((0, 0), pairs(-2, 3)),
            "source_size": often(None, pairs(1, 9) | pairs(0, 9)),
            "kernel_offset": seldom(None, pairs(-3, 3)),
            "clip": seldom(None, st.tuples(pairs(0, 4), pairs(1, 13) | pairs(0, 13))),
        }
    return st.builds(spec_type.problems[method], specs(spec_type), shapes, **call)


_EDGE_MODES: Mapping[type[Pooling], EdgeMode] = {PoolingMax: "clamp", PoolingL2Norm: "zero"}
"""How kernels other than average pooling read the padding of frameworks: never the maximum, or zeros."""


@st.composite
def framework_problems(draw: st.DrawFn, spec_type: type[Pooling], method: str) -> Problem:
    """Draw problems as users of PyTorch, TensorFlow and ONNX write them."""
    names = [field.name for field in fields(spec_type)]
    windows = draw(framework_windows(pooling=True, dilated="dilations" in names))
    placement = windows.placement
    own = {"zero_pad_size": placement.zero_pad_size, "dilations": windows.dilations}
    spec = spec_type(
        windows.kernel_size,
        windows.strides,
        offset=placement.offset,
        edge_mode=_EDGE_MODES.get(spec_type, placement.edge_mode),
        **{name: value for name, value in own.items() if name in names},
    )
    shape = (draw(st.integers(1, 3)), *windows.input_size, draw(channels(9)))
    problem: Problem = spec.problems[method](spec, shape, placement.output_size)
    return problem


# --- properties -------------------------------------------------------------------------------------------------------


def both(problem: PoolingProblem) -> Counterparts | None:
    """Return the forward and the gradient problem of the same windows, and the parts of y and g of those that count."""
    if isinstance(problem, PoolingForward):
        gradient = problem.spec.problems["gradient"](problem.spec, problem.source_shape, problem.output_size)
        return Counterparts(problem, gradient)
    (py, px), (rows, columns) = problem.primary_offset, problem.included
    if not rows or not columns:
        return None
    return Counterparts(
        problem.spec.problems["forward"](problem.spec, problem.source_shape, (rows.stop, columns.stop)),
        replace(problem, kernel_offset=None, clip=None),
        lambda y: _cropped(y, (rows.start, rows.stop, columns.start, columns.stop)),
        lambda g: _cropped(g, (py + rows.start, py + rows.stop, px + columns.start, px + columns.stop)),
    )


adjoint = properties.adjoint(both)
"""For a linear kernel: the gradient is the forward pass with the arrow reversed."""


def _cropped(image: Array, bounds: tuple[int, int, int, int]) -> Array:
    y0, y1, x0, x1 = bounds
    return image[:, y0:y1, x0:x1]


def clip_is_a_crop(case: Case, backend: Backend) -> None:
    """With canonical alignment a clip gives the gradient of its pixels, and zeros outside."""
    problem = case.of(PoolingGradient)
    if problem.clip is None:
        return
    inputs = case.inputs()
    whole = replace(case, problem=replace(problem, kernel_offset=None, clip=None))
    (full,) = compute(whole.problem, backend, *inputs)
    (clipped,) = compute(replace(problem, kernel_offset=None), backend, *inputs)
    (y0, x0), (height, width) = problem.clip
    masked = np.zeros_like(full)
    masked[:, y0 : y0 + height, x0 : x0 + width] = full[:, y0 : y0 + height, x0 : x0 + width]
    same("clip is a crop", clipped, masked, expected(whole)[0][1])


def joint_shift(case: Case, backend: Backend) -> None:
    """Effective offset: (p0 - 1, ko + s, o - s) is the same gradient, as long as the same pixels count."""
    problem = case.of(PoolingGradient)
    (sy, oy), (sx, ox) = ((window.stride, window.offset) for window in problem.spec.windows)
    start = replace(problem, primary_offset=(0, 0))
    ko, size = problem.kernel_offset, problem.source_size
    shifted = replace(
        start,
        spec=replace(problem.spec, offset=(oy - sy, ox - sx)),
        primary_offset=(-1, -1),
        kernel_offset=ko and (ko[0] + sy, ko[1] + sx),
        source_size=size and (size[0] + 1, size[1] + 1),
    )
    inputs = case.inputs()
    (first,), (second,) = compute(start, backend, *inputs), compute(shifted, backend, *inputs)
    same("joint shift", first, second, expected(replace(case, problem=start))[0][1])


@equivalent
def translation(problem: PoolingForward, x: Array) -> EquivalentProblem | None:
    """With zeros around the image, one more zero row and column in front is undone by an offset of one more."""
    if problem.spec.edge_mode != "zero":
        return None
    n, height, width, c = problem.source_shape
    oy, ox = (window.offset for window in problem.spec.windows)
    moved = replace(
        problem,
        spec=replace(problem.spec, offset=(oy + 1, ox + 1)),
        source_shape=(n, height + 1, width + 1, c),
    )
    return EquivalentProblem(moved, [np.pad(x, ((0, 0), (1, 0), (1, 0), (0, 0)))])


def all_is_given_back(case: Case, backend: Backend) -> None:
    """With "clamp" every window of max pooling selects a pixel: dx sums to what the included g sum to."""
    problem = case.of(PoolingGradient)
    if problem.spec.edge_mode == "zero":
        return
    problem = replace(problem, kernel_offset=None, clip=None)
    (py, px), (rows, columns) = problem.primary_offset, problem.included
    g, x = case.inputs()
    (dx,) = compute(problem, backend, g, x)
    ((reference, terms),) = expected(replace(case, problem=problem))
    limit = comparator.bound(dx, reference, terms).sum((1, 2))
    counted = _cropped(g, (py + rows.start, py + rows.stop, px + columns.start, px + columns.stop))
    near("all is given back", dx.sum((1, 2), np.float64), counted.sum((1, 2), np.float64), limit)


# --- mutants of all pooling kernels -----------------------------------------------------------------------------------


def _gradient_image_for_source(problem: PoolingGradient, *inputs: Array, out: Array) -> None:
    """Take the size of the gradient image for that of the source, in N and in the bounds of the image."""
    n, source_height, source_width, c = problem.source_shape
    height, width = problem.gradient_size
    smaller = replace(problem, source_shape=(n, height, width, c))
    shapes = list(smaller.input_shapes.values())
    cut = [inputs[0], *(np.resize(x, shape) for x, shape in zip(inputs[1:], shapes[1:], strict=True))]
    wrong = correct(smaller, *cut)
    out[...] = 0
    both = np.s_[:, : min(height, source_height), : min(width, source_width)]
    out[both] = wrong[both]


def _last_of_overlapping(result: Array, problem: PoolingGradient, g: Array, *x: Array) -> Array:
    """Overlapping windows overwrite each other instead of adding up."""
    dx = np.zeros_like(result)
    y_window, x_window = problem.spec.windows
    for a, b, of_pixel in problem.counted(g):
        offset = y_window.start(a) + y_window.center, x_window.start(b) + x_window.center
        single = type(problem)(replace(problem.spec, offset=offset), problem.source_shape, (1, 1))
        of_window = correct(single, of_pixel[:, None, None], *x)
        dx = np.where(of_window != 0, of_window, dx)
    return problem.place(dx)


def _neighbour_for_zero(result: Array, problem: PoolingGradient, *_: Array) -> None:
    empty = np.multiply.outer(*(runs.count for runs in problem.runs())) == 0
    result[:, empty] = np.roll(result, 1, axis=2)[:, empty]


def _without_last_window(problem: PoolingGradient) -> PoolingGradient:
    """The last window of a column is left out: < for <= in the bound of the candidate windows."""
    rows, columns = problem.included
    return replace(problem, source_size=(max(0, rows.stop - 1), columns.stop))


def _primary_offset_in_source_pixels(problem: PoolingGradient) -> PoolingGradient:
    (y, x), (rows, columns) = problem.primary_offset, problem.spec.windows
    return replace(problem, primary_offset=(ceil_div(y, rows.stride), ceil_div(x, columns.stride)))


def _moved_by_clip(problem: PoolingGradient) -> PoolingGradient:
    if problem.clip is None or problem.kernel_offset is not None:
        return problem
    rows, columns = problem.spec.windows
    return replace(problem, kernel_offset=(rows.kernel_offset(), columns.kernel_offset()))


_LAST_ROW: MutantTable = {"the last row is left out": zeroed(np.s_[:, -1])}
_GRADIENT_MUTANTS: MutantTable = {
    "the primary offset is ignored": of_problem(lambda p: replace(p, primary_offset=(0, 0))),
    "the primary offset counts in source pixels": of_problem(_primary_offset_in_source_pixels),
    "the source size is ignored": of_problem(lambda p: replace(p, source_size=None)),
    "the last window is left out": of_problem(_without_last_window),
    "the kernel offset is ignored": of_problem(lambda p: replace(p, kernel_offset=None)),
    "the kernel offset has the other sign": of_problem(
        lambda p: replace(p, kernel_offset=p.kernel_offset and tuple(-k for k in p.kernel_offset))
    ),
    "the clip is ignored": of_problem(lambda p: replace(p, clip=None)),
    "the clip's origin moves the values too": of_problem(_moved_by_clip),
    "the gradient image's size is taken for the source's": _gradient_image_for_source,
    "overlapping windows overwrite each other": of_result(_last_of_overlapping),
    "unread pixels get their neighbour's value": of_result(_neighbour_for_zero),
}


def _window_size(problem: PoolingProblem) -> float:
    return float(np.prod(problem.spec.kernel_size))


def _scattered(problem: PoolingGradient, g: Array, x: Array, weights: Callable[..., Array]) -> Array:
    """Return the gradient that gives each tap of a window ``weights(values, rows, columns, times)`` of ``g``."""
    dx = np.zeros(problem.source_shape)
    for a, b, of_pixel in problem.counted(g):
        values, rows, columns, times = taps(problem, x, a, b)
        factors = weights(values, rows, columns, times)
        terms = np.where(factors != 0, of_pixel[:, None] * factors, 0)
        for tap in np.flatnonzero((rows >= 0) & (columns >= 0)):
            dx[:, rows[tap], columns[tap]] += terms[:, tap]
    return problem.place(dx)


# --- mutants of average pooling ---------------------------------------------------------------------------------------


def _zero_pad(change: Callable[[Pair], PairLike]) -> Implementation:
    return of_spec(zero_pad_size=lambda spec: change(spec.zero_pad_size))


_AVERAGE_MUTANTS: MutantTable = {
    "windows shrink at the border in both edge modes": of_spec(
        edge_mode=lambda spec: "clamp",
        zero_pad_size=lambda spec: spec.zero_pad_size if spec.edge_mode == "clamp" else 0,
    ),
    "the zero pad is ignored": _zero_pad(lambda z: 0),
    "the zero pad of the other axis is taken": _zero_pad(swap),
    "the zero pad is one wider": _zero_pad(lambda z: (z[0] + 1, z[1] + 1)),
    "the sum is not divided": of_result(lambda result, problem, *_: result * _window_size(problem)),
}


# --- mutants of max pooling: other rules of selection -----------------------------------------------------------------


def _selecting(choose: Callable[..., Array]) -> Implementation:
    """Return max pooling that selects by ``choose(values, rows, columns) -> weights (N, taps, C)``."""

    def formula(problem: PoolingProblem, *inputs: Array) -> Array:
        *g, x = inputs
        if isinstance(problem, PoolingGradient):
            return _scattered(problem, g[0], x, lambda values, rows, columns, _: choose(values, rows, columns))
        y = np.zeros(problem.result_shapes[0])
        for a, b in np.ndindex(*problem.output_size):
            values, rows, columns, _ = taps(problem, x, a, b)
            chosen = choose(values, rows, columns)
            y[:, a, b] = np.where(chosen > 0, values, 0).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)
            y[:, a, b][np.isnan(values).all(axis=1) & ~chosen.any(axis=1)] = -np.inf
        return y

    return computed(formula)


def _one(selected: Array, like: Array) -> Array:
    """Return weights that are 1 at the tap ``selected`` (N, C), unless it is -1, and 0 elsewhere."""
    return np.asarray(np.arange(like.shape[1])[:, None] == selected[:, None], np.float64)


def _first_in(order: Array, values: Array) -> Array:
    """Select the first maximum in another order of the taps."""
    first = first_tap(values[:, order])
    return _one(np.where(first >= 0, order[first], -1), values)


def _inside_only(values: Array, rows: Array, columns: Array) -> Array:
    """Padding of minus infinity, as in other frameworks."""
    inside = ((rows >= 0) & (columns >= 0))[:, None]
    return np.asarray(_one(first_tap(np.where(inside, values, -np.inf)), values) * inside)


def _outside_loses_ties(values: Array, rows: Array, columns: Array) -> Array:
    return _first_in(np.argsort(~((rows >= 0) & (columns >= 0)), kind="stable"), values)


def _column_order(values: Array, rows: Array, columns: Array) -> Array:
    return _first_in(np.argsort(columns, kind="stable"), values)


def _from_zero(values: Array, rows: Array, columns: Array) -> Array:
    """The search starts from 0, so that a window of negative values selects nothing."""
    return np.asarray(_one(first_tap(values), values) * (values > 0))


def _nan_after_the_first(values: Array, rows: Array, columns: Array) -> Array:
    """``value > largest`` is false for every NaN: only one at the first tap is selected."""
    return _one(np.where(np.isnan(values[:, 0]), 0, first_tap(values)), values)


def _none_of_nan(values: Array, rows: Array, columns: Array) -> Array:
    return np.asarray(_one(first_tap(values), values) * ~np.isnan(values).any(axis=1, keepdims=True))


def _all_of_nan(values: Array, rows: Array, columns: Array) -> Array:
    every = np.isnan(values)
    return np.where(every.all(axis=1, keepdims=True), every, _one(first_tap(values), values)).astype(np.float64)


def _as_lowest(values: Array, rows: Array, columns: Array) -> Array:
    """A NaN counts as -inf, with which it ties: the first of both is selected."""
    return _one(np.where(np.isnan(values), -np.inf, values).argmax(axis=1), values)


def _above_lowest(values: Array, rows: Array, columns: Array) -> Array:
    """The search starts from the lowest number, so that a window of negative infinities selects nothing."""
    return np.asarray(_one(first_tap(values), values) * (values != -np.inf))


_MAX_MUTANTS: MutantTable = {
    "the first NaN is the maximum": _selecting(lambda v, r, c: _one(v.argmax(axis=1), v)),
    "of NaN alone the first one is selected": _selecting(lambda v, r, c: _one(np.maximum(first_tap(v), 0), v)),
    "a NaN counts as minus infinity": _selecting(_as_lowest),
    "a NaN is selected only at the first tap": _selecting(_nan_after_the_first),
    "the search starts from the lowest finite number": _selecting(_above_lowest),
    "padding is minus infinity": _selecting(_inside_only),
    "the search starts from 0": _selecting(_from_zero),
    "the largest magnitude is taken": _selecting(lambda v, r, c: _one(first_tap(np.abs(v)), v)),
}
_MAX_GRADIENT_MUTANTS: MutantTable = {
    "the last of equal maxima is taken": _selecting(lambda v, r, c: _first_in(np.arange(v.shape[1])[::-1], v)),
    "all equal maxima get the gradient": _selecting(
        lambda v, r, c: np.asarray(v == greatest(v, axis=1, keepdims=True), np.float64)
    ),
    "ties prefer taps inside the image": _selecting(_outside_loses_ties),
    "ties are broken in column order": _selecting(_column_order),
    "the last NaN of NaN alone is selected": _selecting(lambda v, r, c: _one(first_tap(v) % v.shape[1], v)),
    "all NaN of NaN alone get the gradient": _selecting(_all_of_nan),
    "a window with a NaN has no gradient": _selecting(_none_of_nan),
    "a NaN in the source gradient reaches no pixel": of_input("g", lambda g, problem: np.where(np.isnan(g), 0, g)),
}


# --- mutants of L2-norm pooling: other formulas -----------------------------------------------------------------------


def _slope(formula: Callable[[Array, Array, Array], Array]) -> Implementation:
    """Return the gradient of L2 pooling with ``formula(values, norm, times)`` in place of ``times * values / norm``."""

    def weights(values: Array, rows: Array, columns: Array, times: Array) -> Array:
        root = norm(values, times)[:, None]
        return formula(values, np.where(root > 0, root, np.inf), times[:, None])

    return computed(lambda problem, g, x: _scattered(problem, g, x, weights))


def _scaled_up(result: Array, problem: PoolingForward, x: Array) -> Array:
    """Windows that extend past the image are scaled to their full size, as in PyTorch's ceil mode."""
    inside = np.multiply.outer(*(runs.count for runs in problem.runs()))[None, :, :, None]
    return np.asarray(result * np.sqrt(_window_size(problem) / np.maximum(inside, 1)))


_L2NORM_MUTANTS: MutantTable = {
    "the mean of squares is taken, not the sum": of_result(lambda y, problem, *_: y / np.sqrt(_window_size(problem))),
}
_L2NORM_FORWARD_MUTANTS: MutantTable = {
    "partial windows are scaled up": of_result(_scaled_up),
}
_L2NORM_GRADIENT_MUTANTS: MutantTable = {
    "clamped taps do not count": _slope(lambda v, y, times: v / y * (times > 0)),
    "the norm comes from a float16 result": _slope(
        lambda v, y, times: times * v / np.minimum(y, 65000).astype(np.float16).astype(np.float64)
    ),
}


def _mutants() -> dict[OperationKey, MutantTable]:
    own: dict[type[Pooling], tuple[MutantTable, MutantTable, MutantTable]] = {
        PoolingAverage: (_AVERAGE_MUTANTS, {}, {}),
        PoolingMax: (_MAX_MUTANTS, {}, _MAX_GRADIENT_MUTANTS),
        PoolingL2Norm: (_L2NORM_MUTANTS, _L2NORM_FORWARD_MUTANTS, _L2NORM_GRADIENT_MUTANTS),
    }
    return {
        Operation(spec_type, method): {**window_mutants(spec_type), **_LAST_ROW, **both, **of_method}
        for spec_type, (both, forward, gradient) in own.items()
        for method, of_method in {"forward": forward, "gradient": {**_GRADIENT_MUTANTS, **gradient}}.items()
    }


# --- golden values ----------------------------------------------------------------------------------------------------


def pooling(spec_type: type[Pooling], on_the_cpu: Callable[..., Array]) -> Adapter:
    """Return the adapter of a pooling class, forward.

    Its relations are to CPU pooling, which applies ``on_the_cpu``, NumPy's mean or max, to the pixels of each window
    that lie inside the image.
    """

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        if entry.kind != "relation":
            parameters = dict(entry.parameters)
            output_size = parameters.pop("output_size")
            y = spec_type(**parameters).forward(entry.image("x"), output_size, backend=backend)
            yield Comparison("y", y, entry.expected["y"])
            return
        for kernel, strides, pads, x in pooling_cases(entry):
            placement = padding.onnx(x.shape[1:3], kernel, strides, pads)
            parameters = {"offset": placement.offset, **entry.parameters}
            pool = spec_type(kernel, strides, **parameters)
            y = pool.forward(x.astype(entry.dtype or "float32"), placement.output_size, backend=backend)
            expected = over_windows(on_the_cpu, x, kernel, strides, pads)
            yield Comparison(f"{pool}, pads {pads}: y", y, Values.all_given(expected))

    return adapter


def pooling_cases(entry: Entry) -> Iterator[tuple[Pair, Pair, list[int], Array]]:
    """Draw kernel, strides, pads (top, left, bottom, right), and an image in float64.

    Where the source names no image size, it is 8 x 12 with 4 channels.
    """
    for case, draw in entry.cases():
        if "configuration" in case:
            yield (*_of_pytorch(case["configuration"]), draw(case["configuration"]["shape"]))
            continue
        size = case.get("h", 8), case.get("w", 12)
        stride = case.get("stride", 1)
        strides = case.get("stride_y", stride), case.get("stride_x", stride)
        if case["kernel"] == "image":
            kernel, pads = size, [0, 0, 0, 0]
        else:
            kernel = case["kernel"], case["kernel"]
            sides = [case.get(f"pad_{side}", "none") for side in ("top", "left", "bottom", "right")]
            pads = [{"none": 0, "half": case["kernel"] // 2}[side] for side in sides]
        yield kernel, strides, pads, draw((case.get("n", 1), *size, case.get("c", 4)))


def _of_pytorch(configuration: Mapping[str, Any]) -> tuple[Pair, Pair, list[int]]:
    """Return kernel, strides and pads; to round sizes up is to leave room for another window at the end.

    (PyTorch then drops a window that starts in the padding at the end. No published configuration has one.)
    """
    kernel, stride, pad = configuration["kernel"], configuration["stride"], configuration["pad"]
    end = pad + (stride - 1 if configuration["ceil_mode"] else 0)
    return (kernel, kernel), (stride, stride), [pad, pad, end, end]


def pooling_node(name: str) -> Adapter:
    """Return the adapter of a pooling node: the size of its result with its default padding policy."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        from mpsref.mps import graph  # only these entries need it

        (kernel_height, kernel_width), (sy, sx) = entry.parameters["kernel_size"], entry.parameters["strides"]
        source = graph.MPSNNImageNode("source")
        yield node_output_size(entry, getattr(graph, name)(source, kernel_width, kernel_height, sx, sy), backend)

    return adapter


# --- layers -----------------------------------------------------------------------------------------------------------


def layer(
    name: str,
    network: str,
    kernel: type[Pooling],
    source_shape: ImageShape,
    framework: str,
    kernel_size: int,
    strides: int | None = None,
    words: Mapping[str, Any] = MappingProxyType({}),
    edge_mode: EdgeMode = "clamp",
    note: str = "",
) -> Layer:
    """Return the layer of a row, with square windows, which do not overlap unless ``strides`` says so.

    In max pooling padding never wins: a window that touches the image has its maximum there, with "clamp". With "zero",
    the zeros that were put around the image before may win.
    """
    strides = kernel_size if strides is None else strides
    placement: Placement = getattr(padding, framework)(source_shape[1:3], kernel_size, strides, **words)
    spec: Pooling
    if kernel is PoolingAverage:
        spec = PoolingAverage(kernel_size, strides, placement.offset, placement.edge_mode, placement.zero_pad_size)
    elif kernel is PoolingMax:
        spec = PoolingMax(kernel_size, strides, placement.offset, edge_mode, words.get("dilations", 1))
    else:
        spec = PoolingL2Norm(kernel_size, strides, placement.offset, "zero")
    call = {"output_size": placement.output_size, "gradient_size": placement.output_size}
    return Layer(name, network, spec, source_shape, call, framework, tuple(sorted(words.items())), note)


_FORWARD = (repeatable, one_image_at_a_time, translation)
_GRADIENT = (repeatable, one_image_at_a_time, clip_is_a_crop, joint_shift)

FAMILY = Family(
    "pooling",
    kernels={
        kernel: KernelTests(
            partial(problems, kernel),
            {"forward": (*_FORWARD, *forward), "gradient": (*_GRADIENT, *gradient)},
            equivalent,
            nonfinite=("forward", "gradient"),
            by_framework=partial(framework_problems, kernel),
        )
        for kernel, forward, gradient, equivalent in (
            (PoolingAverage, (adjoint,), (adjoint,), {}),
            (PoolingMax, (), (all_is_given_back,), {"forward": frozenset({"a NaN becomes 0"})}),  # no result is NaN
            (PoolingL2Norm, (), (), {}),
        )
    },
    mutants=_mutants(),
    golden={
        "MPSCNNPoolingAverage": pooling(PoolingAverage, np.mean),
        "MPSCNNPoolingAverageNode": pooling_node("MPSCNNPoolingAverageNode"),
        "MPSCNNPoolingMax": pooling(PoolingMax, np.max),
        "MPSCNNPoolingMaxNode": pooling_node("MPSCNNPoolingMaxNode"),
    },
    layer=layer,
)
