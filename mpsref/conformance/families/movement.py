"""Tests of concatenation, slice, padding and reshape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Triple
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.golden_entries import Comparison, Entry
from mpsref.conformance.layer import Layer
from mpsref.conformance.mutants import MutantTable, of_problem, of_result, of_results, of_spec
from mpsref.conformance.properties import Counterparts, adjoint, judge_itself, one_image_at_a_time, repeatable
from mpsref.conformance.runner import compute
from mpsref.conformance.strategies import often, seldom
from mpsref.kernels import Concatenation, Pad, Reshape, Slice
from mpsref.kernels.concatenation import ConcatenationForward, ConcatenationGradient, ConcatenationProblem
from mpsref.kernels.pad import EDGES, Edge, PadGradient, PadProblem
from mpsref.kernels.reshape import ORDERS
from mpsref.kernels.slice_ import SliceProblem
from mpsref.registry import Backend, ImageProblem, Implementation, Operation, OperationKey, Problem, Spec

# --- strategies -------------------------------------------------------------------------------------------------------


SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))


@st.composite
def concatenation(draw: st.DrawFn, method: str) -> Problem:
    """Draw channel counts from 1 to 9, so that every remainder of the alignment occurs."""
    spec = Concatenation(draw(often(4, st.integers(1, 6))))
    batch = draw(SHAPES)[:3]
    channels = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    problem: Problem = spec.problems[method](spec, batch, channels)
    return problem


@st.composite
def slices(draw: st.DrawFn, method: str) -> Problem:
    """Draw boxes inside the image, across its edges and wholly outside."""
    shape = draw(SHAPES)
    offset, size = [], []
    for length in shape[1:3]:
        offset.append(draw(st.integers(0, length - 1) | st.integers(-4, length - 1)))
        size.append(draw(st.none() | st.integers(1, 8)))
    first = draw(st.integers(0, shape[3] - 1))
    y, x = offset
    height, width = size
    spec = Slice((y, x, first), (height, width, draw(st.none() | st.integers(1, shape[3] - first))))
    problem: Problem = spec.problems[method](spec, shape)
    return problem


PADS = st.tuples(st.integers(0, 3), st.integers(0, 3) | st.integers(0, 9), often(0, st.integers(0, 3)))
CONSTANT: Edge = "constant"
EDGE_MODES = st.sampled_from(EDGES)
FORWARD_EDGE_MODES = EDGE_MODES | seldom(CONSTANT, EDGE_MODES)


@st.composite
def padding(draw: st.DrawFn, method: str) -> Problem:
    """Draw all edge modes; padding is often wider than the image, so that it is mirrored several times."""
    shape = draw(SHAPES)
    before, after = draw(PADS), draw(PADS)
    edge_mode = draw(FORWARD_EDGE_MODES if method == "forward" else EDGE_MODES)
    fills = None
    if edge_mode == "constant" and draw(st.booleans()):
        channels = before[2] + shape[3] + after[2]
        fills = tuple(draw(st.lists(st.integers(-8, 8).map(float), min_size=channels, max_size=channels)))
    spec = Pad(before, after, edge_mode, draw(st.sampled_from([-1.5, 0.1])), fills)
    problem: Problem = spec.problems[method](spec, shape)
    return problem


@st.composite
def reshapes(draw: st.DrawFn, method: str) -> Problem:
    """Draw three factors of the number of elements for the new size."""
    n, *lengths = draw(SHAPES)
    elements = int(np.prod(lengths))
    height = draw(st.sampled_from([k for k in range(1, elements + 1) if elements % k == 0]))
    rest = elements // height
    width = draw(st.sampled_from([k for k in range(1, rest + 1) if rest % k == 0]))
    spec = Reshape((height, width, rest // width), draw(st.sampled_from(ORDERS)))
    problem: Problem = spec.problems[method](spec, (n, *lengths))
    return problem


# --- properties -------------------------------------------------------------------------------------------------------


def round_trip(case: Case, backend: Backend) -> None:
    """The slices of a concatenation are what went in."""
    problem = case.of(ConcatenationProblem)
    forward, gradient, *_ = both(problem)
    if any(backend.why_not(one.operation, one.spec) for one in (forward, gradient)):
        return
    sources = replace(case, problem=forward).inputs()
    whole = compute(forward, backend, *sources)
    slices = compute(gradient, backend, *whole)
    for k, (source, slice_) in enumerate(zip(sources, slices, strict=True)):
        if not np.array_equal(source, slice_):
            limits = [[(one, np.zeros(one.shape)) for one in results] for results in (whole, slices)]
            judge_itself(problem, (forward, sources, limits[0]), (gradient, whole, limits[1]))
            raise Mismatch(f"round trip: slice {k} of the concatenation is not source {k}")


def both(problem: ConcatenationProblem | ImageProblem) -> Counterparts:
    """Return the forward and the gradient problem of the same shapes."""
    if isinstance(problem, ConcatenationProblem):
        fields = problem.spec, problem.batch_shape, problem.channels
        return Counterparts(ConcatenationForward(*fields), ConcatenationGradient(*fields))
    spec = problem.spec
    if isinstance(spec, Pad) and spec.edge_mode == "constant":
        spec = replace(spec, edge_mode="zero")  # linear only where nothing is added
    return Counterparts(*(spec.problems[method](spec, problem.source_shape) for method in ("forward", "gradient")))


# --- mutants of concatenation -----------------------------------------------------------------------------------------


def _joined(offsets: Callable[[ConcatenationForward], list[int]], order: int = 1) -> Implementation:
    """Put the sources, in this or the reverse ``order``, to other offsets, as far as they fit."""

    def change(result: Array, problem: ConcatenationForward, *xs: Array) -> Array:
        wrong = np.zeros_like(result)
        for offset, x in zip(offsets(problem), xs[::order], strict=True):
            room = wrong[..., offset : offset + x.shape[3]]
            room[...] = x[..., : room.shape[3]]
        return wrong

    return of_result(change)


def _tight(problem: ConcatenationProblem) -> list[int]:
    return [sum(problem.channels[:k]) for k in range(len(problem.channels))]


def _right_aligned(problem: ConcatenationProblem) -> list[int]:
    """Padding comes before the channels of a source."""
    pads = (problem.spec.aligned(c) - c for c in problem.channels)
    return [offset + pad for offset, pad in zip(problem.offsets, pads, strict=True)]


def _reversed_offsets(problem: ConcatenationProblem) -> list[int]:
    sizes = [problem.spec.aligned(c) for c in problem.channels[::-1]]
    return [sum(sizes[:k]) for k in range(len(sizes))]


def _padded_with(value: Callable[[Array], Array | float]) -> Implementation:
    """Padding channels are not 0."""

    def change(result: Array, problem: ConcatenationForward, *xs: Array) -> None:
        for offset, x in zip(problem.offsets, xs, strict=True):
            end = offset + problem.spec.aligned(x.shape[3])
            result[..., offset + x.shape[3] : end] = value(x)

    return of_result(change)


def _first_for_all(result: Array, problem: ConcatenationForward, *xs: Array) -> None:
    for offset, x in zip(problem.offsets, xs, strict=True):
        c = min(x.shape[3], xs[0].shape[3])
        result[..., offset : offset + c] = xs[0][..., :c]


_CONCATENATION_FORWARD: MutantTable = {
    "sources are not padded": _joined(_tight),
    "padding comes before the channels": _joined(_right_aligned),
    "the sources come in reverse order": _joined(_reversed_offsets, -1),
    "padding channels are 1": _padded_with(lambda x: 1.0),
    "padding channels repeat the last channel": _padded_with(lambda x: x[..., -1:]),
    "padding channels are never written": _padded_with(lambda x: np.nan),
    "the first source is taken for all": of_result(_first_for_all),
}


def _cut(offsets: Callable[[ConcatenationGradient], list[int]]) -> Implementation:
    """Cut g at other offsets; what lies beyond its end is 0."""

    def change(results: tuple[Array, ...], problem: ConcatenationGradient, g: Array) -> tuple[Array, ...]:
        wide = np.concatenate([g, np.zeros_like(g)], axis=3)
        return tuple(wide[..., o : o + c] for o, c in zip(offsets(problem), problem.channels, strict=True))

    return of_results(change)


def _padding_counts(results: tuple[Array, ...], problem: ConcatenationGradient, g: Array) -> tuple[Array, ...]:
    for dx, offset in zip(results, problem.offsets, strict=True):
        end = offset + problem.spec.aligned(dx.shape[3])
        dx[..., -1] += g[..., offset + dx.shape[3] : end].sum(axis=3)
    return results


_CONCATENATION_GRADIENT: MutantTable = {
    "the slices leave no gaps": _cut(_tight),
    "padding is taken to come before the channels": _cut(_right_aligned),
    "the offsets are those of the reverse order": _cut(_reversed_offsets),
    "every source gets the first slice": _cut(lambda problem: [0] * len(problem.channels)),
    "the gradient of padding channels counts": of_results(_padding_counts),
}


# --- mutants of slice -------------------------------------------------------------------------------------------------


def _moved(change: Callable[[Triple], Triple]) -> Implementation:
    """Cut a box of the same size at another offset."""

    def moved(problem: SliceProblem) -> SliceProblem:
        spec = replace(problem.spec, offset=change(problem.spec.offset), size=problem.part_shape[1:])
        return replace(problem, spec=spec)

    return of_problem(moved)


def _outside(mode: str) -> Implementation:
    """Outside the image, something other than 0 is read."""

    def change(result: Array, problem: SliceProblem, x: Array) -> Array:
        for axis, (offset, size) in enumerate(zip(problem.spec.offset, problem.part_shape[1:], strict=True), start=1):
            read = np.arange(size) + offset
            length = x.shape[axis]
            x = x.take(read % length if mode == "wrap" else np.clip(read, 0, length - 1), axis)
        return x

    return of_result(change)


_SLICE: MutantTable = {
    "the offset is ignored": _moved(lambda o: (0, 0, 0)),
    "the channel offset is ignored": _moved(lambda o: (*o[:2], 0)),
    "the channel offset is rounded down to a multiple of 4": _moved(lambda o: (*o[:2], o[2] // 4 * 4)),
    "the offset of the other axis is taken": _moved(lambda o: (o[1], o[0], o[2])),
    "the offset has the other sign": _moved(lambda o: (-o[0], -o[1], o[2])),
}


# --- mutants of padding -----------------------------------------------------------------------------------------------


def _edge(**modes: str) -> Implementation:
    """Take one edge mode for another."""
    return of_spec(edge_mode=lambda spec: modes.get(spec.edge_mode, spec.edge_mode))


_PADDING: MutantTable = {
    "clamp fills with zeros": _edge(clamp="zero"),
    "zero repeats the border": _edge(zero="clamp"),
    "mirror repeats the edge": _edge(mirror="mirrorwithedge"),
    "mirrorwithedge leaves out the edge": _edge(mirrorwithedge="mirror"),
    "mirror repeats the border": _edge(mirror="clamp"),
    "before and after are exchanged": of_spec(before=lambda spec: spec.after, after=lambda spec: spec.before),
}


def _zeros_in_padding_channels(result: Array, problem: PadProblem, *_: Array) -> None:
    first = problem.spec.before[2]
    result[..., :first] = 0
    result[..., first + problem.source_shape[3] :] = 0


_PADDING_FORWARD: MutantTable = {
    "the fill value is ignored": of_spec(fill_value=lambda spec: 0.0),
    "the fill values are ignored": of_spec(fill_values=lambda spec: None),
    "the first fill value is taken for all": of_spec(
        fill_values=lambda spec: spec.fill_values and spec.fill_values[:1] * len(spec.fill_values)
    ),
    "fill values begin with the first source channel": of_spec(
        fill_values=lambda spec: spec.fill_values and spec.fill_values[:1] * spec.before[2] + spec.fill_values
    ),
    "padding channels are zero in every mode": of_result(_zeros_in_padding_channels),
}


def _overwriting(result: Array, problem: PadGradient, g: Array) -> Array:
    """Copies of a pixel overwrite each other instead of adding up."""
    dx = g
    for axis, table in enumerate(problem.readers(), start=1):
        last = table.order[table.start[1:] - 1]
        dx = dx.take(last, axis)
    return dx


def _mean_of_copies(result: Array, problem: PadGradient, *_: Array) -> Array:
    y, x, c = (np.diff(table.start) for table in problem.readers())
    return result / np.multiply.outer(np.multiply.outer(y, x), c)[None]


_PADDING_GRADIENT: MutantTable = {
    "copies of a pixel overwrite each other": of_result(_overwriting),
    "the mean of the copies is taken": of_result(_mean_of_copies),
    "only the pixel itself counts, not its copies": of_spec(edge_mode=lambda spec: "zero"),
}


# --- mutants of reshape -----------------------------------------------------------------------------------------------


def _in_order(*axes: int) -> Implementation:
    """Take the elements in another order of the axes."""
    return of_result(lambda result, problem, source: source.transpose(axes).reshape(result.shape))


_RESHAPE: MutantTable = {
    "the other element order is taken": of_spec(
        element_order=lambda spec: {"HWC": "CHW", "CHW": "HWC"}[spec.element_order]
    ),
    "columns run faster than channels": _in_order(0, 1, 3, 2),
    "rows run faster than columns": _in_order(0, 2, 1, 3),
    "images of a batch are mixed": _in_order(1, 2, 3, 0),
}

_OUTSIDE: MutantTable = {"outside reads the border pixel": _outside("clamp"), "the image is periodic": _outside("wrap")}

MUTANTS: dict[OperationKey, MutantTable] = {
    Operation(Concatenation, "forward"): _CONCATENATION_FORWARD,
    Operation(Concatenation, "gradient"): _CONCATENATION_GRADIENT,
    Operation(Slice, "forward"): {**_SLICE, **_OUTSIDE},
    Operation(Slice, "gradient"): _SLICE,
    Operation(Pad, "forward"): {**_PADDING, **_PADDING_FORWARD},
    Operation(Pad, "gradient"): {**_PADDING, **_PADDING_GRADIENT},
    Operation(Reshape, "forward"): _RESHAPE,
    Operation(Reshape, "gradient"): _RESHAPE,
}


# --- golden values ----------------------------------------------------------------------------------------------------


def golden_concatenation(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run an entry on its sources x0, x1, ..."""
    sources = [entry.image(name) for name in sorted(entry.inputs)]
    y = Concatenation(entry.parameters["channel_alignment"]).forward(sources, backend=backend)
    yield Comparison("y", y, entry.expected["y"])


# --- layers -----------------------------------------------------------------------------------------------------------


class ConcatenationLayer(Layer):
    """A concatenation; the channels of the source shape are those of all sources."""

    @classmethod
    def read(  # type: ignore[override]
        cls, *, batch_shape: tuple[int, int, int], channels: tuple[int, ...], **row: Any
    ) -> Self:
        """Return the layer of a row."""
        row.setdefault("parameters", {"channel_alignment": 4})
        return super().read(source_shape=(*batch_shape, sum(channels)), call={"channels": channels}, **row)

    def problem(self, method: str) -> Problem:
        """Return the problem of one of the operations."""
        problem: Problem = self.spec.problems[method](self.spec, self.source_shape[:3], self.call["channels"])
        return problem

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer images, and one more channel for each next source."""
        counts = tuple(channels + k for k in range(len(self.call["channels"])))
        return replace(super().small(sum(counts), batch), call={"channels": counts})

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of all sources longer."""
        counts = tuple(c * factor if axis == 3 else c for c in self.call["channels"])
        return replace(super().grown(axis, factor), call={"channels": counts})


class ReshapeLayer(Layer):
    """A reshape, whose size has to fit the image."""

    def _fitted(self, changed: Self) -> Self:
        assert isinstance(self.spec, Reshape)
        _, height, width, channels = changed.source_shape
        size = (1, 1, height * width * channels) if self.spec.size[0] == 1 else (height * width, 1, channels)
        return replace(changed, spec=replace(self.spec, size=size))


class ChannelSliceLayer(Layer):
    """A slice of channels, which has to fit the image."""

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with all its channels and fewer images."""
        return super().small(self.source_shape[3], batch)


def layer(kernel: type[Spec], **row: Any) -> Layer:
    """Return the layer of a row; a size "rest" extends to the end of the axis."""
    if kernel is Slice and "size" in row["parameters"]:
        size = tuple(None if length == "rest" else length for length in row["parameters"]["size"])
        row["parameters"] = {**row["parameters"], "size": size}
    kind = {Concatenation: ConcatenationLayer, Reshape: ReshapeLayer}.get(kernel, Layer)
    if kernel is Slice and row["parameters"]["offset"][2]:
        kind = ChannelSliceLayer
    return kind.read(kernel=kernel, **row)


_EVERY = (repeatable, one_image_at_a_time, adjoint(both))
_CONCATENATION = (*_EVERY, round_trip)

FAMILY = Family(
    "movement",
    kernels={
        kernel: KernelTests(draw, {"forward": checks, "gradient": checks}, nonfinite=("forward", "gradient"))
        for kernel, draw, checks in (
            (Concatenation, concatenation, _CONCATENATION),
            (Slice, slices, _EVERY),
            (Pad, padding, _EVERY),
            (Reshape, reshapes, _EVERY),
        )
    },
    mutants=MUTANTS,
    golden={"MPSNNConcatenationNode": golden_concatenation},
    layer=layer,
)
