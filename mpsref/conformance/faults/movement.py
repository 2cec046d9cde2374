"""Planted faults of the kernels that move pixels: from where, in which order, and what fills the gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, honest, of_problem, of_result, of_results, with_spec
from mpsref.kernels import Concatenation, Pad, Reshape, Slice
from mpsref.kernels.broadcasting import Triple
from mpsref.kernels.concatenation import ConcatenationForward, ConcatenationGradient
from mpsref.kernels.pad import PadGradient, PadProblem
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]


# --- concatenation ----------------------------------------------------------------------------------------------------


def _joined(offsets: Callable[[ConcatenationForward], list[int]], order: int = 1) -> Callable[..., None]:
    """Put the sources, in this or the reverse ``order``, to other offsets, as far as they fit."""

    def change(result: Array, problem: ConcatenationForward, *xs: Array) -> Array:
        wrong = np.zeros_like(result)
        for offset, x in zip(offsets(problem), xs[::order], strict=True):
            room = wrong[..., offset : offset + x.shape[3]]
            room[...] = x[..., : room.shape[3]]
        return wrong

    return of_result(change)


def _tight(problem: Any) -> list[int]:
    return [sum(problem.channels[:k]) for k in range(len(problem.channels))]


def _right_aligned(problem: Any) -> list[int]:
    """Padding comes before the channels of a source."""
    pads = (problem.spec.aligned(c) - c for c in problem.channels)
    return [offset + pad for offset, pad in zip(problem.offsets, pads, strict=True)]


def _reversed_offsets(problem: Any) -> list[int]:
    sizes = [problem.spec.aligned(c) for c in problem.channels[::-1]]
    return [sum(sizes[:k]) for k in range(len(sizes))]


def _padded_with(value: Callable[[Array], Any]) -> Callable[..., None]:
    """Something else than 0 stands in the padding channels."""

    def change(result: Array, problem: ConcatenationForward, *xs: Array) -> None:
        for offset, x in zip(problem.offsets, xs, strict=True):
            end = offset + problem.spec.aligned(x.shape[3])
            result[..., offset + x.shape[3] : end] = value(x)

    return of_result(change)


def _concatenation_forward() -> Table:
    return {
        "sources are not padded": _joined(_tight),
        "padding comes before the channels": _joined(_right_aligned),
        "the sources come in reverse order": _joined(_reversed_offsets, -1),
        "padding channels are 1": _padded_with(lambda x: 1.0),
        "padding channels repeat the last channel": _padded_with(lambda x: x[..., -1:]),
        "padding channels are never written": _padded_with(lambda x: np.nan),
        "the first source stands for all": of_result(_first_for_all),
        "the last source is left out": of_result(_last_source_missing),
    }


def _first_for_all(result: Array, problem: ConcatenationForward, *xs: Array) -> None:
    for offset, x in zip(problem.offsets, xs, strict=True):
        c = min(x.shape[3], xs[0].shape[3])
        result[..., offset : offset + c] = xs[0][..., :c]


def _last_source_missing(result: Array, problem: ConcatenationForward, *xs: Array) -> None:
    result[..., problem.offsets[-1] :] = 0


def _cut(offsets: Callable[[ConcatenationGradient], list[int]]) -> Callable[..., None]:
    """Cut g at other offsets; what lies beyond its end is 0."""

    def change(results: tuple[Array, ...], problem: ConcatenationGradient, g: Array) -> tuple[Array, ...]:
        wide = np.concatenate([g, np.zeros_like(g)], axis=3)
        return tuple(wide[..., o : o + c] for o, c in zip(offsets(problem), problem.channels, strict=True))

    return of_results(change)


def _padding_counts(results: tuple[Array, ...], problem: ConcatenationGradient, g: Array) -> tuple[Array, ...]:
    for dx, offset in zip(results, problem.offsets, strict=True):
        end = offset + problem.spec.aligned(dx.shape[3])
        dx[..., -1] += g[..., offset + dx.shape[3] : end].astype(np.float64).sum(axis=3)
    return results


def _concatenation_gradient() -> Table:
    return {
        "the slices leave no gaps": _cut(_tight),
        "padding is taken to come before the channels": _cut(_right_aligned),
        "the offsets are those of the reverse order": _cut(_reversed_offsets),
        "every source gets the first slice": _cut(lambda problem: [0] * len(problem.channels)),
        "the slices begin one channel late": _cut(lambda problem: [o + 1 for o in problem.offsets]),
        "the gradient of padding channels counts": of_results(_padding_counts),
        "the last source gets nothing": of_results(lambda results, *_: (*results[:-1], np.zeros_like(results[-1]))),
    }


# --- slice ------------------------------------------------------------------------------------------------------------


def _moved(change: Callable[[Triple], Triple]) -> Callable[..., None]:
    """Cut a box of the same size at another offset."""

    def moved(problem: Any) -> Any:
        spec = replace(problem.spec, offset=change(problem.spec.offset), size=problem.part_shape[1:])
        return replace(problem, spec=spec)

    return of_problem(moved)


def _outside(mode: str) -> Callable[..., None]:
    """Read something else than 0 outside the image."""

    def change(result: Array, problem: Any, x: Array) -> Array:
        for axis, (offset, size) in enumerate(zip(problem.spec.offset, problem.part_shape[1:], strict=True), start=1):
            read = np.arange(size) + offset
            length = x.shape[axis]
            x = x.take(read % length if mode == "wrap" else np.clip(read, 0, length - 1), axis)
        return x

    return of_result(change)


def _slice() -> Table:
    return {
        "the offset is ignored": _moved(lambda o: (0, 0, 0)),
        "the channel offset is ignored": _moved(lambda o: (*o[:2], 0)),
        "the channel offset is rounded down to a multiple of 4": _moved(lambda o: (*o[:2], o[2] // 4 * 4)),
        "the offset of the other axis is taken": _moved(lambda o: (o[1], o[0], o[2])),
        "the offset has the other sign": _moved(lambda o: (-o[0], -o[1], o[2])),
        "rows begin one late": _moved(lambda o: (o[0] + 1, *o[1:])),
        "columns begin one early": _moved(lambda o: (o[0], o[1] - 1, o[2])),
    }


# --- padding ----------------------------------------------------------------------------------------------------------


def _edge(**words: str) -> Callable[..., None]:
    """Take one edge mode for another."""
    return of_problem(with_spec(edge_mode=lambda spec: words.get(spec.edge_mode, spec.edge_mode)))


def _exchanged(problem: PadProblem) -> PadProblem:
    return replace(problem, spec=replace(problem.spec, before=problem.spec.after, after=problem.spec.before))


def _padding() -> Table:
    return {
        "clamp fills with zeros": _edge(clamp="zero"),
        "zero repeats the border": _edge(zero="clamp"),
        "mirror repeats the edge": _edge(mirror="mirrorwithedge"),
        "mirrorwithedge leaves out the edge": _edge(mirrorwithedge="mirror"),
        "mirror repeats the border": _edge(mirror="clamp"),
        "before and after are exchanged": of_problem(_exchanged),
    }


def _zeros_in_padding_channels(result: Array, problem: PadProblem, *_: Array) -> None:
    first = problem.spec.before[2]
    result[..., :first] = 0
    result[..., first + problem.source_shape[3] :] = 0


def _fills_from_the_first_source_channel(problem: Any) -> Any:
    fills, first = problem.spec.fill_values, problem.spec.before[2]
    return replace(problem, spec=replace(problem.spec, fill_values=fills and fills[:1] * first + fills))


def _padding_forward() -> Table:
    return {
        "the fill value is ignored": of_problem(with_spec(fill_value=lambda spec: 0.0)),
        "the fill values are ignored": of_problem(with_spec(fill_values=lambda spec: None)),
        "the first fill value stands for all": of_problem(
            with_spec(fill_values=lambda spec: spec.fill_values and spec.fill_values[:1] * len(spec.fill_values))
        ),
        "fill values begin with the first source channel": of_problem(_fills_from_the_first_source_channel),
        "padding channels are zero in every mode": of_result(_zeros_in_padding_channels),
    }


def _overwriting(result: Array, problem: PadGradient, g: Array) -> Array:
    """Copies of a pixel overwrite each other instead of adding up."""
    dx = g.astype(np.float64)
    for axis, table in enumerate(problem.readers(), start=1):
        last = table.order[table.start[1:] - 1]
        dx = dx.take(last, axis)
    return dx


def _mean_of_copies(result: Array, problem: PadGradient, *_: Array) -> Array:
    y, x, c = (np.diff(table.start) for table in problem.readers())
    return result / np.multiply.outer(np.multiply.outer(y, x), c)[None]


def _inner_part(result: Array, problem: PadGradient, g: Array) -> Array:
    """Only the pixel itself counts, in every mode."""
    return honest(replace(problem, spec=replace(problem.spec, edge_mode="zero")), g)


def _padding_gradient() -> Table:
    return {
        "copies of a pixel overwrite each other": of_result(_overwriting),
        "the mean of the copies is taken": of_result(_mean_of_copies),
        "copies do not count": of_result(_inner_part),
    }


# --- reshape ----------------------------------------------------------------------------------------------------------


def _in_order(*axes: int) -> Callable[..., None]:
    """Take the elements in another order of the axes."""
    return of_result(lambda result, problem, source: source.transpose(axes).reshape(result.shape))


def _reshape() -> Table:
    def order(problem: Any) -> Any:
        other = "CHW" if problem.spec.element_order == "HWC" else "HWC"
        return replace(problem, spec=replace(problem.spec, element_order=other))

    return {
        "the other element order is taken": of_problem(order),
        "columns run faster than channels": _in_order(0, 1, 3, 2),
        "rows run faster than columns": _in_order(0, 2, 1, 3),
        "images of a batch are mixed": _in_order(1, 2, 3, 0),
        "the elements run backwards": of_result(lambda result, *_: result[:, ::-1, ::-1, ::-1]),
        "elements are one place late": of_result(lambda result, *_: np.roll(result, 1, axis=(1, 2, 3))),
        "the last pixel is left out": of_result(_last_pixel_missing),
    }


def _last_pixel_missing(result: Array, *_: Any) -> None:
    result[:, -1, -1] = 0


def faults() -> Iterator[Fault]:
    """Yield the faults of the kernels that move pixels, beside those that every kernel can have."""
    outside = {"outside is the border pixel": _outside("clamp"), "the image is periodic": _outside("wrap")}
    for operation, table in {
        Operation(Concatenation, "forward"): _concatenation_forward(),
        Operation(Concatenation, "gradient"): _concatenation_gradient(),
        Operation(Slice, "forward"): _slice() | outside,
        Operation(Slice, "gradient"): _slice(),
        Operation(Pad, "forward"): _padding() | _padding_forward(),
        Operation(Pad, "gradient"): _padding() | _padding_gradient(),
        Operation(Reshape, "forward"): _reshape(),
        Operation(Reshape, "gradient"): _reshape(),
    }.items():
        for name, run in table.items():
            yield Fault(name, operation, run)
