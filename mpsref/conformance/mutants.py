"""Mutants: backends with one mistake each, all of which the suite must detect.

A mutant is the reference with one mistake that people make: in the geometry, in the data, in the arithmetic or in
memory. Its results look plausible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.registry import Backend, Implementation, Operation, Problem

MutantTable: TypeAlias = Mapping[str, Implementation]
"""The mutants of an operation: the mistake in a few words, and the implementation that makes it."""

Out: TypeAlias = Array | tuple[Array, ...]

OtherProblem: TypeAlias = Callable[..., Problem]
"""``change(problem)`` returns the problem that is solved instead."""

OtherField: TypeAlias = Callable[..., object]
"""``change(spec)`` returns the value of a field that is used instead."""


@dataclass(frozen=True)
class Mutant:
    """One mistake in one operation."""

    name: str
    """The mistake in a few words."""
    operation: Operation
    run: Implementation

    @cached_property
    def backend(self) -> Backend:
        """The backend with this mistake, and no other."""
        correct = registry.get_backend("reference").implementations
        return Backend(f"mutant: {self.name}", {**correct, self.operation: self.run})


# --- how mutants are made ---------------------------------------------------------------------------------------------


def correct_results(problem: Problem, *inputs: Array) -> tuple[Array, ...]:
    """Return all results of the reference, in float64."""
    return problem.operation.results(problem, *_float64(inputs))


def correct(problem: Problem, *inputs: Array) -> Array:
    """Return the only result of the reference, in float64."""
    (result,) = correct_results(problem, *inputs)
    return result


def computed(formula: Callable[..., Array | tuple[Array, ...]]) -> Implementation:
    """Return the implementation that stores ``formula(problem, *inputs)``, whose inputs are in float64."""

    def run(problem: Problem, *inputs: Array, out: Out) -> None:
        with np.errstate(all="ignore"):
            for target, result in zip(_tuple(out), _tuple(formula(problem, *_float64(inputs))), strict=True):
                target[...] = result

    return run


def in_half(formula: Callable[..., Array | tuple[Array, ...]]) -> Implementation:
    """Return the implementation that stores ``formula(problem, *inputs)`` for images in float16, else what is right."""

    def run(problem: Problem, *inputs: Array, out: Out) -> None:
        computed(formula if inputs[0].dtype == np.float16 else correct_results)(problem, *inputs, out=out)

    return run


def of_problem(change: OtherProblem) -> Implementation:
    """Solve another problem: ``change(problem)``."""
    return computed(lambda problem, *inputs: correct_results(change(problem), *inputs))


def of_spec(**changes: OtherField) -> Implementation:
    """Solve the problem of another spec: ``changes`` maps names of fields to functions of the spec."""
    return of_problem(with_spec(**changes))


def with_spec(**changes: OtherField) -> OtherProblem:
    """Return a function of a problem that replaces fields of its spec, each by a function of the spec."""

    def change(problem: Problem) -> Problem:
        spec = problem.spec
        return replace(problem, spec=replace(spec, **{name: value(spec) for name, value in changes.items()}))

    return change


def of_result(change: Callable[..., Array | None]) -> Implementation:
    """Change the first correct result: ``change(result, problem, *inputs)`` returns another, or changes it in place."""

    def formula(problem: Problem, *inputs: Array) -> tuple[Array, ...]:
        first, *others = correct_results(problem, *inputs)
        changed = change(first, problem, *inputs)
        return (first if changed is None else changed, *others)

    return computed(formula)


def zeroed(part: Any) -> Implementation:
    """Leave a part of the first result, the elements of an index, 0."""

    def change(result: Array, *_: object) -> None:
        result[part] = 0

    return of_result(change)


def of_results(change: Callable[..., tuple[Array, ...]]) -> Implementation:
    """Change several correct results: ``change(results, problem, *inputs)`` returns others."""
    return computed(lambda problem, *inputs: change(correct_results(problem, *inputs), problem, *inputs))


def of_input(name: str, change: Callable[..., Array]) -> Implementation:
    """Read ``change(array, problem)`` in place of the input ``name``, where there is one."""

    def formula(problem: Problem, *inputs: Array) -> tuple[Array, ...]:
        named = zip(problem.input_shapes, inputs, strict=True)
        changed = [change(array.astype(np.float64), problem) if known == name else array for known, array in named]
        return correct_results(problem, *changed)

    return computed(formula)


def _tuple(arrays: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    return arrays if isinstance(arrays, tuple) else (arrays,)


def _float64(inputs: Iterable[Array]) -> Iterator[Array]:
    """Yield copies of the inputs in float64; those of integers stay as they are."""
    return (array.astype(np.float64) if array.dtype.kind == "f" else array for array in inputs)


# --- mutants of any operation; of several results the first is wrong --------------------------------------------------


def common_mutants() -> MutantTable:
    """Return the mutants that any operation on images can have, and that only suitable cases expose."""
    return {
        "the result of an earlier call is returned": _stale(),
        "accumulation in float16": of_result(lambda result, *_: result.astype(np.float16).astype(np.float64)),
        "the last image of a batch is left out": of_result(_last_image_missing),
        "channels past a multiple of 4 are left out": of_result(_channel_tail_missing),
        "0 / 0 is NaN": of_result(lambda result, *_: np.where(result == 0, np.nan, result)),
        "height and width are swapped": of_result(lambda result, *_: result.swapaxes(1, 2).reshape(result.shape)),
        "channels-first code on channels-last memory": of_result(_channels_first),
    }


LAYOUT_MUTANTS = frozenset({"height and width are swapped", "channels-first code on channels-last memory"})
"""The common mutants that need a result with height, width and channels."""


def nonfinite_mutants() -> MutantTable:
    """Return the mutants of any operation that is tested on NaN and infinities."""
    largest = float(np.finfo(np.float16).max)  # finite in every dtype
    return {
        "a NaN becomes 0": of_result(lambda result, *_: np.where(np.isnan(result), 0, result)),
        "an infinity becomes the largest float16": of_result(
            lambda result, *_: np.where(np.isinf(result), np.sign(result) * largest, result)
        ),
    }


def memory_mutants() -> MutantTable:
    """Return the mutants that any case exposes, because guarded memory and comparison do not depend on its data."""
    return {
        "one element past the end is written": _in_memory(_past_the_end),
        "one element before the start is written": _in_memory(_before_the_start),
        "the last element is never written": _in_memory(_last_unwritten),
        "nothing is written": lambda problem, *inputs, out: None,
        "the result is added to the memory": _in_memory(_added),
        "the result is always zero": of_result(lambda result, *_: np.zeros_like(result)),
        "an input is written": _write_into_input,
    }


def _in_memory(write: Callable[[Array, Array], None]) -> Implementation:
    """Compute correctly, then ``write(result, out)`` wrongly."""

    def run(problem: Problem, *inputs: Array, out: Out) -> None:
        first, *others = zip(correct_results(problem, *inputs), _tuple(out), strict=True)
        for result, target in others:
            target[...] = result
        write(first[0].astype(first[1].dtype), first[1])

    return run


def _past_the_end(result: Array, out: Array) -> None:
    out[...] = result
    np.lib.stride_tricks.as_strided(out.reshape(-1), (out.size + 1,))[-1] = 1


def _before_the_start(result: Array, out: Array) -> None:
    out[...] = result
    address = out.__array_interface__["data"][0] - out.itemsize
    interface = {"data": (address, False), "shape": (1,), "typestr": out.dtype.str, "version": 3}
    np.asarray(type("Memory", (), {"__array_interface__": interface})())[0] = 1


def _last_unwritten(result: Array, out: Array) -> None:
    last = out.reshape(-1)[-1].copy()
    out[...] = result
    out.reshape(-1)[-1] = last


def _added(result: Array, out: Array) -> None:
    out += result


def _write_into_input(problem: Problem, *inputs: Array, out: Out) -> None:
    computed(correct_results)(problem, *inputs, out=out)
    inputs[0].reshape(-1)[0] += 1


def _stale() -> Implementation:
    """Return the previous results where their shapes fit: a cache with too small a key."""
    kept: dict[tuple[Problem, np.dtype[np.generic]], tuple[Array, ...]] = {}

    def run(problem: Problem, *inputs: Array, out: Out) -> None:
        targets = _tuple(out)
        results = zip(correct_results(problem, *inputs), targets, strict=True)
        fresh = tuple(result.astype(target.dtype) for result, target in results)
        for target, result in zip(targets, kept.setdefault((problem, targets[0].dtype), fresh), strict=True):
            target[...] = result

    return run


def _last_image_missing(result: Array, *_: object) -> None:
    if len(result) > 1:
        result[-1] = 0


def _channel_tail_missing(result: Array, *_: object) -> None:
    result[..., result.shape[-1] // 4 * 4 :] = 0


def _channels_first(result: Array, *_: object) -> Array:
    n, height, width, channels = result.shape
    return result.reshape(n, channels, height, width).transpose(0, 2, 3, 1)
