"""Tests of upsampling, resize and crop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.golden_entries import Comparison, Entry, Values
from mpsref.conformance.mutants import MutantTable, of_result, of_spec, zeroed
from mpsref.conformance.properties import Counterparts, adjoint, near, one_image_at_a_time, repeatable
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.strategies import often, pairs
from mpsref.geometry import EDGE_MODES
from mpsref.kernels import (
    CropAndResizeBilinear,
    GraphResizeBilinear,
    GraphResizeNearest,
    ResizeBilinear,
    UpsamplingBilinear,
    UpsamplingNearest,
)
from mpsref.kernels.crop_and_resize import Box, CropAndResizeForward
from mpsref.kernels.interpolation import ROUNDINGS, Sampling
from mpsref.kernels.resize import GraphResize, ResizeForward
from mpsref.kernels.upsampling import SampledProblem, Upsampling, UpsamplingProblem
from mpsref.registry import Backend, Implementation, Operation, OperationKey, Problem

# --- strategies -------------------------------------------------------------------------------------------------------


SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
BILINEAR = {"align_corners": st.booleans(), "edge_mode": st.sampled_from(EDGE_MODES)}


def upsampling(spec_type: type[Upsampling], method: str) -> st.SearchStrategy[Problem]:
    """Draw factors from 1 to 5, powers of two more often: then nothing is rounded."""
    scales = pairs(1, 5) | st.tuples(*[st.sampled_from([1, 2, 4])] * 2)
    options = BILINEAR if spec_type is UpsamplingBilinear else {}
    return st.builds(spec_type.problems[method], st.builds(spec_type, scales, **options), SHAPES)


def resizes(method: str) -> st.SearchStrategy[Problem]:
    """Draw sizes smaller and larger than the image."""
    return st.builds(ResizeForward, st.builds(ResizeBilinear, pairs(1, 12), BILINEAR["align_corners"]), SHAPES)


def boxes() -> st.SearchStrategy[Box]:
    """Draw boxes inside an image, across its edges and outside it; corners in eighths, or any numbers."""
    coordinate = st.integers(-6, 14).map(lambda eighths: eighths / 8) | st.floats(-0.75, 1.75, width=32)
    axis = st.tuples(coordinate, coordinate).map(sorted)
    return st.tuples(axis, axis).map(lambda axes: (axes[0][0], axes[1][0], axes[0][1], axes[1][1]))


def crops(method: str) -> st.SearchStrategy[Problem]:
    """Draw boxes, and sizes smaller and larger than they are."""
    sizes = pairs(1, 12) | pairs(1, 3)  # a single output has a rule of its own
    return st.builds(CropAndResizeForward, st.builds(CropAndResizeBilinear, sizes, boxes()), SHAPES)


PYTORCH: dict[type[GraphResize], st.SearchStrategy[Any]] = {
    GraphResizeBilinear: st.sampled_from([{}, {"align_corners": True}]),
    GraphResizeNearest: st.sampled_from([{}, {"rounding": "floor", "center_result": False}]),
}
"""The parameters of its interpolation, "nearest-exact" and "nearest" among them."""


def graph_resizes(spec_type: type[GraphResize], method: str) -> st.SearchStrategy[Problem]:
    """Draw parameters of PyTorch, or all flags, and scales and offsets in quarters."""
    scales, offsets = (st.integers(low, 12).map(lambda quarters: quarters / 4) for low in (1, -12))
    options: dict[str, st.SearchStrategy[Any]] = {
        "center_result": st.booleans(),
        "align_corners": often(False, st.booleans()),
        "scale_offset": often(None, st.tuples(scales, scales, offsets, offsets)),
    }
    if spec_type is GraphResizeNearest:
        options["rounding"] = st.sampled_from(ROUNDINGS)
    return _resizes_by(spec_type, method, PYTORCH[spec_type] | st.fixed_dictionaries(options))


def graph_resizes_of_pytorch(spec_type: type[GraphResize], method: str) -> st.SearchStrategy[Problem]:
    """Draw parameters of PyTorch."""
    return _resizes_by(spec_type, method, PYTORCH[spec_type])


def _resizes_by(spec_type: type[GraphResize], method: str, words: st.SearchStrategy[Any]) -> st.SearchStrategy[Problem]:
    spec = st.builds(lambda size, words: spec_type(size, **words), pairs(1, 12), words)
    return st.builds(spec_type.problems[method], spec, SHAPES)


# --- properties -------------------------------------------------------------------------------------------------------


def both(problem: SampledProblem) -> Counterparts:
    """Return the forward and the gradient problem of the same shapes."""
    problems = problem.spec.problems
    return Counterparts(*(problems[method](problem.spec, problem.source_shape) for method in ("forward", "gradient")))


def factor_1_is_a_copy(case: Case, backend: Backend) -> None:
    """Both directions of a factor of 1 are the identity."""
    problem = case.of(UpsamplingProblem)
    if problem.spec.factors != (1, 1):
        return
    (image,), (result,) = case.inputs(), compute(problem, backend, *case.inputs())
    if not np.array_equal(image, result):
        raise Mismatch("factor 1 is a copy: the result is not the image")


def the_total_stays(case: Case, backend: Backend) -> None:
    """The weights of an output add up to 1, except with zeros outside: dx has the same sum as g."""
    problem = case.of(SampledProblem)
    spec = problem.spec
    if isinstance(spec, UpsamplingBilinear) and spec.edge_mode == "zero" and not spec.align_corners:
        return
    (g,), (dx,) = case.inputs(), compute(problem, backend, *case.inputs())
    ((reference, terms),) = expected(case)
    with np.errstate(invalid="ignore"):  # a wrong result may be anything
        limit = comparator.bound(dx, reference, terms).sum((1, 2)) + 1e-12 * np.abs(g.astype(np.float64)).sum((1, 2))
    near("the total stays", dx.sum((1, 2), np.float64), g.sum((1, 2), np.float64), limit)


# --- mutants ----------------------------------------------------------------------------------------------------------


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


def _by(weights: Weights) -> Implementation:
    """Sample by other weights, and in the gradient by the adjoint of them."""

    def change(result: Array, problem: SampledProblem, image: Array) -> Array:
        y, x = (_matrix(axis, weights) for axis in problem.axes)
        if problem.method == "gradient":
            y, x = y.T, x.T
        return np.asarray(np.einsum("ij,njkc,lk->nilc", y, image, x))

    return of_result(change)


def _at(position: Callable[[Sampling, int], float], clamped: bool = True) -> Implementation:
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


def _aligned(axis: Sampling, i: int) -> float:
    return i * (axis.length - 1) / max(1, axis.outputs - 1)


def _wrapped(axis: Sampling, i: int) -> list[tuple[int, float]]:
    """The image is periodic."""
    j, remainder = divmod(i * axis.numerator, axis.denominator)
    f = remainder / axis.denominator
    return [(j, 1 - f), ((j + 1) % axis.length, f)]


_HALF = "positions are shifted by half a pixel"


_LINEAR: MutantTable = {
    _HALF: _at(lambda axis, i: (i + 0.5) * axis.length / axis.outputs - 0.5),
    "corners are always aligned": _at(_aligned),
    "corners are never aligned": _at(lambda axis, i: i * axis.length / axis.outputs),
    "the nearest pixel is taken": _by(lambda axis, i: [(int(_p(axis, i)), 1.0)]),
    "the weights are exchanged": _by(lambda axis, i: [(j, 1 - w if 0 < w < 1 else w) for j, w in axis.reads(i)]),
    "pixels are one too early": _by(lambda axis, i: [(j - 1, w) for j, w in axis.reads(i)]),
    "the image is periodic": _by(_wrapped),
    "weights are a smooth step": _by(lambda axis, i: [(j, w * w * (3 - 2 * w)) for j, w in axis.reads(i)]),
    "weights are rounded to 1/256": _by(lambda axis, i: [(j, round(w * 256) / 256) for j, w in axis.reads(i)]),
}


_EDGES: MutantTable = {
    "past the last pixel it is always 0": of_spec(edge_mode=lambda spec: "zero"),
    "past the last pixel it is always the last pixel": of_spec(edge_mode=lambda spec: "clamp"),
}


def _mean(result: Array, problem: UpsamplingProblem, g: Array) -> Array:
    sy, sx = problem.spec.factors
    return np.asarray(result / (sy * sx))


def _first_of_block(result: Array, problem: UpsamplingProblem, g: Array) -> Array:
    sy, sx = problem.spec.factors
    return g[:, ::sy, ::sx]


_ADJOINT: MutantTable = {
    "the mean is taken, not the sum": of_result(_mean),
    "one of the pixels of a block is taken": of_result(_first_of_block),
}


_NEAREST: MutantTable = {
    "positions are rounded": _by(lambda axis, i: [(min(int(np.floor(_p(axis, i) + 0.5)), axis.length - 1), 1.0)]),
    "pixels are one too early": _by(lambda axis, i: [(max((i - 1) // axis.denominator, 0), 1.0)]),
    "the image is repeated, not its pixels": _by(lambda axis, i: [(i % axis.length, 1.0)]),
    "corners are aligned": _by(lambda axis, i: [(int(_aligned(axis, i)), 1.0)]),
    "pixels are interpolated": _at(_p, clamped=False),
    "pixels are spread out with zeros": _by(
        lambda axis, i: [(i // axis.denominator, float(i % axis.denominator == 0))]
    ),
    "every second row is left out": zeroed(np.s_[:, 1::2]),
}


_RESIZED: MutantTable = {
    **_LINEAR,
    "positions are for the scale rounded down": _by(
        lambda axis, i: [(min(i // max(1, axis.outputs // axis.length), axis.length - 1), 1.0)]
    ),
}


def _scales(change: Callable[[Array], Array]) -> Implementation:
    """Take other scales and offsets."""
    return of_spec(scale_offset=lambda spec: spec.scale_offset and tuple(change(np.array(spec.scale_offset))))


_ADJOINT_OF_RESIZE: MutantTable = {
    "the gradient is divided by the scale": of_result(
        lambda result, problem, g: result * np.prod(result.shape[1:3]) / np.prod(g.shape[1:3])
    ),
}


_GRAPH: MutantTable = {
    "positions outside the image read zeros": _at(_p, clamped=False),
    "the flag for centres is ignored": of_spec(center_result=lambda spec: False),
    "centres always count": of_spec(center_result=lambda spec: True),
    "centres count with aligned corners, too": of_spec(
        align_corners=lambda spec: spec.align_corners and not spec.center_result
    ),
    "corners are always aligned": of_spec(align_corners=lambda spec: True),
    "corners are never aligned": of_spec(align_corners=lambda spec: False),
    "scale and offset are ignored": of_spec(scale_offset=lambda spec: None),
    "scales and offsets are of x, then y": _scales(lambda given: given[[1, 0, 3, 2]]),
    "the scale is inverted": _scales(lambda given: np.append(1 / given[:2], given[2:])),
    "the offset has the other sign": _scales(lambda given: given * [1, 1, -1, -1]),
    "the offset is added after the division": _scales(lambda given: np.append(given[:2], given[2:] * given[:2])),
}


_GRAPH_LINEAR: MutantTable = {
    **_GRAPH,
    **{name: run for name, run in _LINEAR.items() if "aligned" not in name and name != _HALF},
}


_GRAPH_NEAREST: MutantTable = {
    **{name: run for name, run in _GRAPH.items() if "zeros" not in name},
    **{f"positions are rounded by {rule!r}": of_spec(rounding=lambda spec, rule=rule: rule) for rule in ROUNDINGS},
    "halves are rounded away from zero": _by(
        lambda axis, i: [
            (min(max(int(np.copysign(np.floor(abs(_p(axis, i)) + 0.5), _p(axis, i))), 0), axis.length - 1), 1.0)
        ]
    ),
    "outputs outside the image are 0": _by(
        lambda axis, i: [(j, w * (0 <= _p(axis, i) <= axis.length - 1)) for j, w in axis.reads(i)]
    ),
    "pixels are interpolated": _at(_p),
    "every second row is left out": zeroed(np.s_[:, 1::2]),
}


def _box(change: Callable[[float, float, float, float], tuple[float, ...]]) -> Implementation:
    """Resize another box."""
    return of_spec(box=lambda spec: change(*spec.box))


def _clamped(axis: Sampling, i: int) -> list[tuple[int, float]]:
    """Outside the image its edge is repeated."""
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
    """The step is divided by O, not by O - 1."""
    factor = axis.outputs
    scaled = replace(axis, start=axis.start * factor, numerator=axis.numerator * max(1, factor - 1))
    return replace(scaled, denominator=axis.denominator * factor).reads(i)


def _partly_outside(axis: Sampling, i: int) -> list[tuple[int, float]]:
    """Less than a pixel outside the image, outputs are interpolated with 0."""
    j = int(np.floor(_p(axis, i)))
    return [(j, 1 - (_p(axis, i) - j)), (j + 1, _p(axis, i) - j)]


def _begins(spec: CropAndResizeBilinear) -> tuple[float, ...]:
    """A single output is at the beginning of the box."""
    (y0, x0, y1, x1), (rows, columns) = spec.box, spec.sizes
    return y0, x0, y0 if rows == 1 else y1, x0 if columns == 1 else x1


_CROP: MutantTable = {
    **{name: run for name, run in _LINEAR.items() if "aligned" not in name and name != _HALF},
    "outside the image its edge is repeated": _by(_clamped),
    "the box is in units of L pixels, not of L - 1": _by(_of_length),
    "the step is divided by O, not by O - 1": _by(_over_outputs),
    "outputs less than a pixel outside are interpolated with 0": _by(_partly_outside),
    "a single output is not in the middle": of_spec(box=_begins),
    "y and x are exchanged": _box(lambda y0, x0, y1, x1: (x0, y0, x1, y1)),
    "the second corner is a size": _box(lambda y0, x0, y1, x1: (y0, x0, y0 + abs(y1), x0 + abs(x1))),
    "the box is cut to the image": _box(lambda *box: tuple(min(max(edge, 0.0), 1.0) for edge in box)),
    "the box is stored as float16": _box(lambda *box: tuple(float(np.float16(edge)) for edge in box)),
}


MUTANTS: dict[OperationKey, MutantTable] = {
    Operation(UpsamplingNearest, "forward"): _NEAREST,
    Operation(UpsamplingNearest, "gradient"): {**_NEAREST, **_ADJOINT},
    Operation(UpsamplingBilinear, "forward"): {**_LINEAR, **_EDGES},
    Operation(UpsamplingBilinear, "gradient"): {**_LINEAR, **_EDGES, **_ADJOINT},
    Operation(ResizeBilinear, "forward"): _RESIZED,
    Operation(CropAndResizeBilinear, "forward"): _CROP,
    Operation(GraphResizeBilinear, "forward"): _GRAPH_LINEAR,
    Operation(GraphResizeBilinear, "gradient"): {**_GRAPH_LINEAR, **_ADJOINT_OF_RESIZE},
    Operation(GraphResizeNearest, "forward"): _GRAPH_NEAREST,
    Operation(GraphResizeNearest, "gradient"): {**_GRAPH_NEAREST, **_ADJOINT_OF_RESIZE},
}


# --- golden values ----------------------------------------------------------------------------------------------------


def _scale(entry: Entry) -> tuple[int, int]:
    return entry.parameters["integer_scale_factor_y"], entry.parameters["integer_scale_factor_x"]


def golden_nearest(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run an entry of nearest upsampling; its relation is to pixels that are repeated."""
    up = UpsamplingNearest(_scale(entry))
    if entry.kind != "relation":
        yield Comparison("y", up.forward(entry.image("x"), backend=backend), entry.expected["y"])
        return
    sy, sx = up.factors
    for case, draw in entry.cases():
        x = draw((case["n"], case["h"], case["w"], case["c"])).astype(entry.dtype or "float32")
        expected = x.repeat(sy, 1).repeat(sx, 2).astype(np.float64)
        got = up.forward(x, backend=backend)
        yield Comparison(f"{x.shape}: y", got, Values.all_given(expected))


def golden_bilinear(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run an entry of bilinear upsampling."""
    options = {name: entry.parameters[name] for name in ("align_corners", "edge_mode") if name in entry.parameters}
    y = UpsamplingBilinear(_scale(entry), **options).forward(entry.image("x"), backend=backend)
    yield Comparison("y", y, entry.expected["y"])


def golden_resize(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run an entry of which one corner is known: an aligned result begins with the first pixel of the source."""
    given = entry.parameters
    spec = ResizeBilinear((given["resize_height"], given["resize_width"]), given["align_corners"])
    x: Array = np.zeros((1, 65, 65, 1), entry.dtype or "float32")
    x[0, 0, 0] = entry.inputs["x00"].array
    yield Comparison("y00", spec.forward(x, backend=backend)[0, 0, 0], entry.expected["y00"])


_FORWARD = (repeatable, one_image_at_a_time, adjoint(both), factor_1_is_a_copy)
_GRADIENT = (*_FORWARD, the_total_stays)
_RESIZE = {"forward": (repeatable, one_image_at_a_time)}
_GRAPH_RESIZE = {
    "forward": (*_RESIZE["forward"], adjoint(both)),
    "gradient": (*_RESIZE["forward"], adjoint(both), the_total_stays),
}

FAMILY = Family(
    "upsampling",
    kernels={
        UpsamplingNearest: KernelTests(
            partial(upsampling, UpsamplingNearest),
            {"forward": _FORWARD, "gradient": _GRADIENT},
            nonfinite=("forward", "gradient"),
        ),
        UpsamplingBilinear: KernelTests(
            partial(upsampling, UpsamplingBilinear), {"forward": _FORWARD, "gradient": _GRADIENT}
        ),
        ResizeBilinear: KernelTests(resizes, _RESIZE),
        CropAndResizeBilinear: KernelTests(crops, _RESIZE),
        **{
            kernel: KernelTests(
                partial(graph_resizes, kernel),
                _GRAPH_RESIZE,
                nonfinite=("forward", "gradient") if kernel is GraphResizeNearest else (),
                by_framework=partial(graph_resizes_of_pytorch, kernel),
            )
            for kernel in PYTORCH
        },
    },
    mutants=MUTANTS,
    golden={
        "MPSCNNUpsamplingBilinear": golden_bilinear,
        "MPSCNNUpsamplingBilinearNode": golden_bilinear,
        "MPSCNNUpsamplingNearest": golden_nearest,
        "MPSNNResizeBilinear": golden_resize,
    },
)
