"""Planted faults: backends that are wrong in one way each. The suite must catch every one of them.

A fault is a small backend made of the reference and one mistake that people make: in the geometry it reads, in the
data, in the arithmetic or in the memory. What they have in common is that their results look plausible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpsref import kernels, registry
from mpsref.conformance.case import operations
from mpsref.images import Array
from mpsref.registry import Backend, Operation, Problem, Spec

__all__ = ["Fault", "Formula", "faults", "honest", "of_problem", "of_result"]

Formula = Callable[..., Array]
"""``formula(problem, *inputs) -> result``, float64 in and out, as the reference's."""


@dataclass(frozen=True)
class Fault:
    """One mistake in one operation."""

    name: str
    """What is wrong, in a few words."""
    operation: Operation
    run: Callable[..., None]
    """The implementation: ``run(problem, *inputs, out)``."""

    @property
    def backend(self) -> Backend:
        """The backend that makes this mistake, and is right in all else."""
        right = registry.get_backend("reference").implementations
        return Backend(f"fault: {self.name}", {**right, self.operation: self.run})


def honest(problem: Problem, *inputs: Array) -> Array:
    """Return what the reference computes, in float64."""
    result = kernels.REFERENCE[problem.operation](problem, *(array.astype(np.float64) for array in inputs))
    assert isinstance(result, np.ndarray)
    return result


def of_problem(change: Callable[[Any], Any]) -> Callable[..., None]:
    """Solve another problem than the one that was asked: ``change(problem)``."""

    def run(problem: Problem, *inputs: Array, out: Array) -> None:
        out[...] = honest(change(problem), *inputs)

    return run


def of_result(change: Callable[..., Array | None]) -> Callable[..., None]:
    """Spoil an honest result: ``change(result, problem, *inputs)`` returns another, or changes it in place."""

    def run(problem: Problem, *inputs: Array, out: Array) -> None:
        result = honest(problem, *inputs)
        changed = change(result, problem, *inputs)
        with np.errstate(invalid="ignore", over="ignore"):
            out[...] = result if changed is None else changed

    return run


def in_memory(write: Callable[[Array, Array], None]) -> Callable[..., None]:
    """Compute honestly, then ``write(result, out)`` wrongly."""

    def run(problem: Problem, *inputs: Array, out: Array) -> None:
        write(honest(problem, *inputs).astype(out.dtype), out)

    return run


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


def _write_into_input(problem: Problem, *inputs: Array, out: Array) -> None:
    out[...] = honest(problem, *inputs)
    inputs[0].reshape(-1)[0] += 1


def _stale() -> Callable[..., None]:
    """Return the previous result where its shape fits: a cache with too small a key."""
    kept: dict[Any, Array] = {}

    def run(problem: Problem, *inputs: Array, out: Array) -> None:
        key = (problem, out.dtype)
        out[...] = kept.setdefault(key, honest(problem, *inputs).astype(out.dtype))

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


def _common(operation: Operation) -> Iterator[Fault]:
    """Yield the mistakes that any kernel over images can make."""
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
        yield Fault(name, operation, run)


def with_spec(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a change of a problem that sets fields of its spec: each is computed from the spec."""

    def change(problem: Any) -> Any:
        spec: Spec = problem.spec
        return replace(problem, spec=replace(spec, **{name: value(spec) for name, value in changes.items()}))

    return change


def faults() -> tuple[Fault, ...]:
    """Return every planted fault."""
    from mpsref.conformance import faults_pooling

    found = [fault for operation in operations() for fault in _common(operation)]
    return (*found, *faults_pooling.faults())
