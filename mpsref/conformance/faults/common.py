"""Planted faults that any kernel over images can have; where there are several results, they are in the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, honest_results, of_result
from mpsref.conformance.subjects import SUBJECTS
from mpsref.registry import Operation, Problem

__all__ = ["faults"]


def in_memory(write: Callable[[Array, Array], None]) -> Callable[..., None]:
    """Compute honestly, then ``write(result, out)`` wrongly."""

    def run(problem: Problem, *inputs: Array, out: Array | tuple[Array, ...]) -> None:
        first, *others = zip(honest_results(problem, *inputs), _targets(out), strict=True)
        for result, target in others:
            target[...] = result
        write(first[0].astype(first[1].dtype), first[1])

    return run


def _targets(out: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    return out if isinstance(out, tuple) else (out,)


def _past_the_end(result: Array, out: Array) -> None:
    out[...] = result
    np.lib.stride_tricks.as_strided(out.reshape(-1), (out.size + 1,))[-1] = 1


def _before_the_start(result: Array, out: Array) -> None:
    out[...] = result
    at = out.__array_interface__["data"][0] - out.itemsize
    interface = {"data": (at, False), "shape": (1,), "typestr": out.dtype.str, "version": 3}
    np.asarray(type("Memory", (), {"__array_interface__": interface})())[0] = 1


def _one_unwritten(result: Array, out: Array) -> None:
    last = out.reshape(-1)[-1].copy()
    out[...] = result
    out.reshape(-1)[-1] = last


def _accumulated(result: Array, out: Array) -> None:
    out += result


def _write_into_input(problem: Problem, *inputs: Array, out: Array | tuple[Array, ...]) -> None:
    for result, target in zip(honest_results(problem, *inputs), _targets(out), strict=True):
        target[...] = result
    inputs[0].reshape(-1)[0] += 1


def _stale() -> Callable[..., None]:
    """Return the previous results where their shapes fit: a cache with too small a key."""
    kept: dict[Any, tuple[Array, ...]] = {}

    def run(problem: Problem, *inputs: Array, out: Array | tuple[Array, ...]) -> None:
        targets = _targets(out)
        fresh = tuple(
            result.astype(target.dtype)
            for result, target in zip(honest_results(problem, *inputs), targets, strict=True)
        )
        for target, result in zip(targets, kept.setdefault((problem, targets[0].dtype), fresh), strict=True):
            target[...] = result

    return run


def _low_precision(result: Array, problem: Problem, *inputs: Array) -> Array:
    return result.astype(np.float16).astype(np.float64)


def _last_image_missing(result: Array, problem: Problem, *inputs: Array) -> None:
    if len(result) > 1:
        result[-1] = 0


def _channel_tail_missing(result: Array, problem: Problem, *inputs: Array) -> None:
    result[..., result.shape[-1] // 4 * 4 :] = 0


def _nan_for_zero(result: Array, problem: Problem, *inputs: Array) -> None:
    result[result == 0] = np.nan


def _transposed(result: Array, problem: Problem, *inputs: Array) -> Array:
    return result.swapaxes(1, 2).reshape(result.shape)


def _wrong_layout(result: Array, problem: Problem, *inputs: Array) -> Array:
    """Channels-first code on channels-last memory."""
    n, height, width, c = result.shape
    return result.reshape(n, c, height, width).transpose(0, 2, 3, 1)


def faults(operation: Operation) -> Iterator[Fault]:
    """Yield the mistakes that any kernel over images can make, but for those that this operation is immune to."""
    immune = SUBJECTS[operation.spec_type].immune.get(operation.method, frozenset())
    for name, run in {
        "one element past the end is written": in_memory(_past_the_end),
        "one element before the start is written": in_memory(_before_the_start),
        "the last element is never written": in_memory(_one_unwritten),
        "nothing is written": lambda problem, *inputs, out: None,
        "the result is added to what was there": in_memory(_accumulated),
        "the result is always zero": of_result(lambda result, *_: np.zeros_like(result)),
        "an input is written": _write_into_input,
        "the result of an earlier call is returned": _stale(),
        "accumulation in float16": of_result(_low_precision),
        "the last image of a batch is left out": of_result(_last_image_missing),
        "channels past a multiple of 4 are left out": of_result(_channel_tail_missing),
        "0 / 0 is NaN": of_result(_nan_for_zero),
        "height and width are swapped": of_result(_transposed),
        "channels-first code on channels-last memory": of_result(_wrong_layout),
    }.items():
        if name not in immune:
            yield Fault(name, operation, run)
