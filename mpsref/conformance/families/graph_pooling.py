"""Tests of MPSGraph's max pooling with indices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import properties
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.geometry_mutants import window_mutants
from mpsref.conformance.mutants import MutantTable, computed, of_input, of_result, of_spec, zeroed
from mpsref.conformance.properties import repeatable
from mpsref.conformance.runner import compute
from mpsref.conformance.strategies import channels, framework_windows, often, pairs, seldom, sizes, thirds
from mpsref.kernels import GraphPoolingMax, PoolingMax
from mpsref.kernels.graph_pooling import MODES, GraphPoolingForward, GraphPoolingGradient, GraphPoolingProblem
from mpsref.kernels.pooling_max import first_tap
from mpsref.registry import Backend, Implementation, Operation, OperationKey, Problem

# --- strategies -------------------------------------------------------------------------------------------------------


def problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of every mode, one third of them by the arguments of frameworks."""
    spec = st.builds(
        GraphPoolingMax,
        kernel_size=pairs(1, 4) | pairs(1, 9),
        strides=pairs(1, 4),
        offset=pairs(0, 1) | pairs(-3, 3) | seldom((1, 1), pairs(-6, 9)),
        dilations=often((1, 1), pairs(1, 4)),
        indices=st.sampled_from(MODES),
        layout=st.sampled_from(["NCHW", "NHWC"]),
    )
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), channels(9))
    placed = st.tuples(spec, shapes, sizes(7))
    drawn = thirds(placed, _of_frameworks("global_flatten_2d") | _of_frameworks("local_flatten_2d"))
    return drawn.map(partial(_problem, method))


def framework_problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw problems as users of PyTorch write them."""
    return _of_frameworks("global_flatten_2d").map(partial(_problem, method))


@st.composite
def _of_frameworks(draw: st.DrawFn, mode: str) -> tuple[GraphPoolingMax, tuple[int, ...], tuple[int, int]]:
    windows = draw(framework_windows(pooling=True, dilated=True))
    placement = windows.placement
    spec = GraphPoolingMax(windows.kernel_size, windows.strides, placement.offset, windows.dilations, mode)  # type: ignore[arg-type]
    return spec, (draw(st.integers(1, 3)), *windows.input_size, draw(channels(9))), placement.output_size


def _problem(method: str, drawn: tuple[GraphPoolingMax, tuple[int, ...], tuple[int, int]]) -> Problem:
    """Return the problem; a gradient of a mode that does not number all taps is one of another mode."""
    spec, shape, size = drawn
    make = GraphPoolingMax.problems[method]
    try:
        problem: Problem = make(spec, shape, size)
    except ValueError:
        mode: Any = spec.indices[:-2] + ("2d" if spec.layout == "NCHW" else "3d")
        problem = make(replace(spec, indices=mode), shape, size)
    return problem


# --- properties -------------------------------------------------------------------------------------------------------


def one_image_at_a_time(case: Case, backend: Backend) -> None:
    """The images of a batch are independent, unless they are numbered."""
    if not case.of(GraphPoolingProblem).numbering[0]:
        properties.one_image_at_a_time(case, backend)


def indices_name_the_maxima(case: Case, backend: Backend) -> None:
    """Of the taps of a window inside the image one has its index, and the pixel there is the result."""
    problem = case.of(GraphPoolingForward)
    (x,) = case.inputs()
    y, indices = compute(problem, backend, x)
    for a, b, rows, columns, numbers in problem.windows_of(problem.output_size):
        named = (numbers == indices[:, a, b]) & (x[:, rows, columns].swapaxes(0, 1) == y[:, a, b])
        missing = (indices[:, a, b] == -1) & np.isneginf(y[:, a, b])
        if not (named.any(axis=0) | missing).all():
            raise Mismatch(f"indices name the maxima: those of window ({a}, {b}) do not", (0, a, b, 0))


def the_result_is_that_of_mps(case: Case, backend: Backend) -> None:
    """Without dilation, where all windows touch the image, the result is that of max pooling with edge mode "clamp"."""
    problem = case.of(GraphPoolingForward)
    if problem.spec.dilation != (1, 1) or not all(table.number.all() for table in problem.tables()):
        return
    spec = PoolingMax(problem.spec.kernel_size, problem.spec.strides, problem.spec.offset, "clamp")
    (x,) = case.inputs()
    y, _ = compute(problem, backend, x)
    if not np.array_equal(spec.forward(x, problem.output_size, backend="reference"), y):
        raise Mismatch('max pooling of MPS: the result is not that with edge mode "clamp"')


# --- mutants ----------------------------------------------------------------------------------------------------------


def _choosing(choose: Callable[[Array], Array]) -> Implementation:
    """Select the tap ``choose(values)`` (N, C) of the values (N, taps, C) of each window."""

    def formula(problem: GraphPoolingForward, x: Array) -> tuple[Array, Array]:
        shape, _ = problem.result_shapes
        y, indices = np.full(shape, -np.inf), np.full(shape, -1)
        n, c = np.ogrid[: shape[0], : shape[3]]
        for a, b, rows, columns, numbers in problem.windows_of(problem.output_size):
            if rows.size:
                values = x[:, rows, columns]
                tap = choose(values)
                y[:, a, b] = np.where(tap >= 0, values[n, tap, c], -np.inf)
                indices[:, a, b] = np.where(tap >= 0, numbers[tap, n, c], -1)
        return y, indices

    return computed(formula)


def _last_tap(values: Array) -> Array:
    last = first_tap(values[:, ::-1])
    return np.where(last >= 0, values.shape[1] - 1 - last, -1)


def _of_mps(edge_mode: str) -> Implementation:
    """Take the results of max pooling of MPS with an edge mode."""

    def change(y: Array, problem: GraphPoolingForward, x: Array) -> Array:
        own = problem.spec
        spec = PoolingMax(own.kernel_size, own.strides, own.offset, edge_mode, own.dilations)  # type: ignore[arg-type]
        return spec.forward(x, problem.output_size)

    return of_result(change)


def _numbered(change: Callable[[Array, GraphPoolingForward], Array]) -> Implementation:
    """Change the indices, except those of -1."""

    def formula(problem: GraphPoolingForward, x: Array) -> tuple[Array, Array]:
        y, indices = problem.operation.results(problem, x)
        return y, np.where(indices >= 0, change(indices, problem), indices)

    return computed(formula)


def _of_padded_image(indices: Array, problem: GraphPoolingForward) -> Array:
    """The rows and columns before the image are numbered, too."""
    if problem.is_local:
        return indices
    before = (max(0, -window.start(0)) for window in problem.spec.windows)
    return np.asarray(indices + sum(k * step for k, step in zip(before, problem.numbering[1:3], strict=True)))


def _of_taps_inside(indices: Array, problem: GraphPoolingForward) -> Array:
    """The first tap inside the image is tap 0."""
    if not problem.is_local:
        return indices
    rows, columns = (
        [window.taps_between(i, 0, length).start * step for i in range(outputs)]
        for window, outputs, length, step in zip(
            problem.spec.windows,
            problem.output_size,
            problem.source_shape[1:3],
            problem.numbering[1:3],
            strict=True,
        )
    )
    return np.asarray(indices - np.add.outer(rows, columns)[None, :, :, None])


def _refused_as_0(run: Implementation) -> Implementation:
    """Where a gradient refuses the other problem no window has an effect."""

    def other(problem: Problem, *inputs: Array, out: Any) -> None:
        try:
            run(problem, *inputs, out=out)
        except ValueError:
            out[...] = 0

    return other


def _axes(spec: GraphPoolingMax, by: int) -> str:
    axes = min(4, max(1, int(spec.indices[-2]) + by))
    return f"{spec.indices[:-2]}{axes}d"


_MODES: MutantTable = {
    "taps are numbered, not pixels": of_spec(indices=lambda spec: spec.indices.replace("global", "local")),
    "pixels are numbered, not taps": of_spec(indices=lambda spec: spec.indices.replace("local", "global")),
    "one axis less is numbered": of_spec(indices=lambda spec: _axes(spec, -1)),
    "one axis more is numbered": of_spec(indices=lambda spec: _axes(spec, 1)),
    "the axes of the other layout are numbered": of_spec(
        layout=lambda spec: "NHWC" if spec.layout == "NCHW" else "NCHW"
    ),
    "the last row is left out": zeroed(np.s_[:, -1]),
}


_FORWARD: MutantTable = {
    **_MODES,
    "padding is 0": _of_mps("zero"),
    "padding repeats the border": _of_mps("clamp"),
    "the last of equal maxima is selected": _choosing(_last_tap),
    "the first NaN is selected": _choosing(lambda v: v.argmax(axis=1)),
    "a NaN counts as minus infinity": _choosing(lambda v: np.where(np.isnan(v), -np.inf, v).argmax(axis=1)),
    "the search starts from 0": _choosing(lambda v: np.where((v > 0).any(axis=1), first_tap(v), -1)),
    "the search starts from the lowest finite number": _choosing(
        lambda v: np.where((v > -np.inf).any(axis=1), first_tap(v), -1)
    ),
    "the largest magnitude is taken": _choosing(lambda v: first_tap(np.abs(v))),
    "padding is numbered": _numbered(_of_padded_image),
    "the first tap inside the image is tap 0": _numbered(_of_taps_inside),
    "numbers begin at 1": _numbered(lambda indices, problem: indices + 1),
    "a window without a number has the index 0": computed(
        lambda problem, x: tuple(
            result if k == 0 else np.maximum(result, 0)
            for k, result in enumerate(problem.operation.results(problem, x))
        )
    ),
}


def _overwriting(problem: GraphPoolingGradient, g: Array, indices: Array) -> Array:
    """Overlapping windows overwrite each other."""
    dx = np.zeros(problem.source_shape)
    for a, b, rows, columns, numbers in problem.windows_of(problem.gradient_size):
        for row, column, number in zip(rows, columns, numbers, strict=True):
            dx[:, row, column] = np.where(indices[:, a, b] == number, g[:, a, b], dx[:, row, column])
    return dx


def _as_one_plane(problem: GraphPoolingGradient, g: Array, indices: Array) -> Array:
    """Every index is that of a pixel of a plane (H, W), and the windows do not count."""
    n, height, width, c = problem.source_shape
    dx = np.zeros((n, height * width, c))
    at = indices.astype(np.int64).reshape(n, -1, c)
    i, k = np.ogrid[:n, :c]
    for window in range(at.shape[1]):
        legal = (at[:, window] >= 0) & (at[:, window] < height * width)
        dx[i, np.where(legal, at[:, window], 0), k] += np.where(legal, g.reshape(n, -1, c)[:, window], 0)
    return dx.reshape(problem.source_shape)


_GRADIENT: MutantTable = {
    **_MODES,
    "overlapping windows overwrite each other": computed(_overwriting),
    "every index is that of a pixel of its plane": computed(_as_one_plane),
    "the index of the first window is taken for all": of_input(
        "indices", lambda indices, problem: np.broadcast_to(indices[:, :1, :1], indices.shape)
    ),
    "the gradient is the mean of the windows": of_result(
        lambda dx, problem, *_: dx / np.maximum(1, np.multiply.outer(*(t.number for t in problem.tables())))[:, :, None]
    ),
    "a NaN in the source gradient reaches no pixel": of_input("g", lambda g, problem: np.where(np.isnan(g), 0, g)),
}


MUTANTS: dict[OperationKey, MutantTable] = {
    Operation(GraphPoolingMax, "forward"): {**window_mutants(GraphPoolingMax), **_FORWARD},
    Operation(GraphPoolingMax, "gradient"): {
        name: _refused_as_0(run) for name, run in {**window_mutants(GraphPoolingMax), **_GRADIENT}.items()
    },
}


FAMILY = Family(
    "graph_pooling",
    kernels={
        GraphPoolingMax: KernelTests(
            problems,
            {
                "forward": (repeatable, one_image_at_a_time, indices_name_the_maxima, the_result_is_that_of_mps),
                "gradient": (repeatable, one_image_at_a_time),
            },
            {"forward": frozenset({"a NaN becomes 0"})},  # no result is NaN
            nonfinite=("forward", "gradient"),
            by_framework=framework_problems,
        )
    },
    mutants=MUTANTS,
)
