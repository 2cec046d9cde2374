"""Recorded calls: the launches of an implementation, repeated without the Python code that prepares them.

The launches of a problem depend on the problem and on the dtypes and alignments of its arrays, unless the
implementation reads values of the device. The first call runs the implementation. The second call also records its
launches, copies and allocations; constants that it uploaded stay on the device. Later calls repeat them for the
addresses of their arrays.

A sequence of calls, such as a run of a graph, is recorded in the same way, as one list of launches. It is not repeated
if a call in it reads an array of the host or has a number that varies (the time step of Adam).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from . import driver
from .array import Array
from .device import Arrays, Device, current_recorder, recording, recording_device
from .driver import Explained
from .memory import Memory, copy

ALIGNMENT = 16
"""Implementations choose the width of their loads by the alignment of arrays, up to that of float4."""

SCRATCH_ALIGNMENT = 256

KEPT = 16
"""Maximum number of recorded calls of a problem, for different dtypes and alignments."""

LARGEST = 1 << 28
"""Maximum number of bytes that a recorded sequence of calls allocates: its memory is not reused between the calls."""

Known = dict[tuple[Any, ...], "Recording | None"]
"""Recorded calls by their kind; None after the first call."""

About = TypeVar("About")


class Place(NamedTuple):
    """An address: that of an array of the call, 0, or that of allocated memory, and a number of bytes after it."""

    base: int
    offset: int


class Result(NamedTuple):
    """An array that a recorded sequence of calls returns."""

    place: Place
    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...] | None
    is_writable: bool


class Recording:
    """The steps of one call, while it runs and for later calls."""

    def __init__(self, given: Sequence[Array], limit: float = math.inf) -> None:
        """Start with no steps; ``given`` are the arrays of the call, ``limit`` the bytes that it may allocate."""
        self._given, self._limit = given, limit
        self._allocated: dict[Memory, int] = {}
        self._constants: dict[Memory, None] = {}
        self._sizes: list[int] = []
        self._blocks: list[tuple[bool, int]] = []
        self._results: list[Result] = []
        self.about: Any = None
        """What a sequence of calls returns in addition to arrays."""
        self.steps: list[Callable[[Any, Sequence[int]], object]] = []
        self.names: list[str] = []
        """The names of the kernels."""
        self.totals = [0, 0]
        """Bytes of the memory that the call allocated: for its own use, and for results."""
        self.is_valid = not any(one.overlaps(other) for one, other in itertools.combinations(given, 2))
        """Whether the call can be repeated."""

    def invalidate(self) -> None:
        """Record that the call read values, on which its steps may depend."""
        self.is_valid = False

    def allocated(self, memory: Memory) -> None:
        """Record an allocation."""
        self._limit -= memory.nbytes
        if self._limit < 0:
            self.invalidate()
            self._allocated.clear()
            return
        self._allocated[memory] = len(self._sizes)
        self._sizes.append(-(-memory.nbytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT)

    def uploaded(self, memory: Memory) -> None:
        """Record an allocation with constant contents."""
        if memory in self._allocated:
            self._sizes[self._allocated.pop(memory)] = 0
        self._constants[memory] = None

    def launched(self, name: str, kernel: Any, config: Any, arrays: Sequence[Array]) -> None:
        """Record a launch."""
        places, launch = [self._place(array) for array in arrays], driver.core().launch
        self.names.append(name)
        self.steps.append(
            lambda stream, bases: launch(stream, config, kernel, *[bases[base] + offset for base, offset in places])
        )

    def copied(self, source: Array, target: Array) -> None:
        """Record a copy of bytes."""
        (first, start), (second, end), nbytes = self._place(source), self._place(target), source.nbytes
        self.steps.append(lambda stream, bases: copy(bases[first] + start, bases[second] + end, nbytes, stream, self))

    def set(self, array: Array, value: int) -> None:
        """Record a fill."""
        (base, offset), nbytes = self._place(array), array.nbytes
        from_handle = driver.core().Buffer.from_handle
        self.steps.append(
            lambda stream, bases: from_handle(bases[base] + offset, nbytes, owner=self).fill(value, stream=stream)
        )

    def _place(self, array: Array) -> Place:
        memory, count = array.memory, len(self._given)
        if memory in self._allocated:
            return Place(count + 1 + self._allocated[memory], array.offset)
        for k, given in enumerate(self._given):
            if given.memory is memory:
                offset = array.offset - given.offset
                if offset >= 0 and offset + array.nbytes <= given.nbytes:
                    return Place(k, offset)
        if memory not in self._constants:
            self.invalidate()
        return Place(count, array.address)

    def finish(self, results: Sequence[Array] = ()) -> None:
        """Release the arrays of the call; memory of ``results`` will be allocated apart from the scratch memory."""
        if any(type(array) is not Array for array in results):
            self.invalidate()
        for array in results if self.is_valid else ():
            place, strides = self._place(array), None if array.is_contiguous else array.strides
            if place.base == len(self._given):
                self.invalidate()  # the caller may write into it, and the steps read it
            self._results.append(Result(place, array.shape, array.dtype, strides, array.is_writable))
        returned = {result.place.base - len(self._given) - 1 for result in self._results}
        for k, size in enumerate(self._sizes):
            self._blocks.append((k in returned, self.totals[k in returned]))
            self.totals[k in returned] += size
        self._given, self._allocated = (), {}
        if not self.is_valid:
            self._constants, self._results, self.steps = {}, [], []

    def repeat(self, device: Device, given: Sequence[Array]) -> list[Array]:
        """Run the steps on other arrays of the same sizes; return new arrays for the results."""
        with Explained(device.context, "a call cannot be repeated"):
            stream = device.stream
            bases = []
            for array in given:
                if array.memory.stream is not stream:
                    array.memory.use_on(stream)
                bases.append(array.address)
            for memory in self._constants:
                if memory.stream is not stream:
                    memory.use_on(stream)
            memories = [device.allocate(total) if total else None for total in self.totals]
            starts = [0 if memory is None else memory.address for memory in memories]
            bases.append(0)
            bases += [starts[is_returned] + offset for is_returned, offset in self._blocks]
            device.context.launched(*self.names)
            for step in self.steps:
                step(stream, bases)
        made = []
        for (base, offset), shape, dtype, strides, is_writable in self._results:
            owner = given[base].memory if base < len(given) else memories[True]
            assert owner is not None
            array = Array(owner, shape, dtype, strides, bases[base] + offset - owner.address)
            array.is_writable = array.is_writable and is_writable
            made.append(array)
        return made


def recorded(implementation: Callable[..., None]) -> Callable[..., None]:
    """Return an implementation that repeats its launches in calls with arrays on the device."""

    @functools.wraps(getattr(implementation, "func", implementation))
    def run(problem: Any, *inputs: Any, out: Any) -> None:
        given = (*inputs, *(out if type(out) is tuple else (out,)))
        device = recording_device()
        key: list[Any] = [implementation, device]
        for array in given:
            if type(array) is not Array:
                device = None
                break
            key += array.dtype, array.address % ALIGNMENT
        if device is None:
            recorder = current_recorder()
            if recorder is not None and (problem.is_varied or any(type(array) is np.ndarray for array in given)):
                recorder.invalidate()  # values of the host, which may be others in the next run
            implementation(problem, *inputs, out=out)
            return
        known: Known | None = problem.__dict__.get("_recorded")
        if known is None:
            known = problem.__dict__["_recorded"] = {}
        kind = tuple(key)
        found = known.get(kind)
        if found is not None and found.is_valid:
            found.repeat(device, given)
        elif _is_to_be_recorded(known, kind):
            with recording(Recording(given)) as made:
                implementation(problem, *inputs, out=out)
            made.finish()
            known[kind] = made
        else:
            implementation(problem, *inputs, out=out)

    return run


def _is_to_be_recorded(known: Known, kind: tuple[Any, ...]) -> bool:
    """Return whether a call is the second one of a kind: most problems of a check occur once."""
    if kind in known:
        return known[kind] is None
    if len(known) >= KEPT:
        known.clear()
    known[kind] = None
    return False


class RepeatedArrays(Arrays):
    """Arrays on NVIDIA GPUs, with sequences of calls that are recorded."""

    def repeated(
        self, known: Known, given: Iterable[Any], call: Callable[[], tuple[Sequence[Any], About]]
    ) -> tuple[Sequence[Any], About]:
        """Return the arrays that ``call`` computes of ``given`` arrays, and what else it returns, by repetition.

        ``known`` keeps recorded calls. The call runs if an array is not contiguous, or not on the device of the scope.
        """
        device = recording_device()
        arrays: list[Array] = []
        key: list[Any] = [device]
        for array in given:
            if array is None:
                key.append(None)
            elif type(array) is Array and array.memory.device is device and array.is_contiguous:
                arrays.append(array)
                key += array.dtype, array.shape, array.address % ALIGNMENT
            else:
                device = None
                break
        if device is None:
            return call()
        kind = tuple(key)
        found = known.get(kind)
        if found is not None and found.is_valid:
            return found.repeat(device, arrays), found.about
        if not _is_to_be_recorded(known, kind):
            return call()
        with recording(Recording(arrays, LARGEST)) as made:
            results, made.about = call()
        made.finish(results)
        known[kind] = made
        return results, made.about
