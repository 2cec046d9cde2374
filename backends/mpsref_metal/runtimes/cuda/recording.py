"""Recorded calls: the launches of an implementation, repeated without the Python code that prepares them.

The launches of a problem depend on the problem and on the dtypes and alignments of its arrays, unless the
implementation reads values of the device. The first call runs the implementation. The second call also records its
launches, copies and allocations; constants that it uploaded stay on the device. Later calls repeat them for the
addresses of their arrays.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import driver
from .array import Array
from .device import Device, Function, recording, recording_device
from .driver import Explained
from .memory import Memory, copy

ALIGNMENT = 16
"""Implementations choose the width of their loads by the alignment of arrays, at most to that of float4."""

SCRATCH_ALIGNMENT = 256

KEPT = 16
"""Maximum number of recorded calls of a problem, for different dtypes and alignments."""


class Place(NamedTuple):
    """An address: that of an array of the call, of the scratch memory, or 0, and a number of bytes after it."""

    base: int
    offset: int


class Recording:
    """The steps of one call, while it runs and for later calls."""

    def __init__(self, given: Sequence[Array]) -> None:
        """Start with no steps; ``given`` are the arrays of the call."""
        self._given = given
        self._allocated: dict[Memory, int] = {}
        self._constants: dict[Memory, None] = {}
        self.steps: list[Callable[[Any, Sequence[int]], object]] = []
        self.names: list[str] = []
        """The names of the kernels."""
        self.scratch = 0
        """Bytes of the memory that the call allocated."""
        self.is_valid = not any(one.overlaps(other) for one, other in itertools.combinations(given, 2))
        """Whether the call can be repeated."""

    def invalidate(self) -> None:
        """Record that the call read values, on which its steps may depend."""
        self.is_valid = False

    def allocated(self, memory: Memory) -> None:
        """Record an allocation."""
        self._allocated[memory] = self.scratch
        self.scratch += -(-memory.nbytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT

    def uploaded(self, memory: Memory) -> None:
        """Record an allocation with constant contents."""
        self.scratch = self._allocated.pop(memory, self.scratch)
        self._constants[memory] = None

    def launched(self, function: Function, config: Any, arrays: Sequence[Array]) -> None:
        """Record a launch."""
        places, launch, kernel = [self._place(array) for array in arrays], driver.core().launch, function.kernel
        self.names.append(function.name)
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
            return Place(count, self._allocated[memory] + array.offset)
        for k, given in enumerate(self._given):
            if given.memory is memory:
                offset = array.offset - given.offset
                if offset >= 0 and offset + array.nbytes <= given.nbytes:
                    return Place(k, offset)
        if memory not in self._constants:
            self.invalidate()
        return Place(count + 1, array.address)

    def finish(self) -> None:
        """Release the arrays of the call."""
        self._given, self._allocated = (), {}

    def repeat(self, device: Device, given: Sequence[Array]) -> None:
        """Run the steps on other arrays of the same sizes."""
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
            scratch = device.allocate(self.scratch) if self.scratch else None
            bases += [0 if scratch is None else scratch.address, 0]
            device.context.launched(*self.names)
            for step in self.steps:
                step(stream, bases)


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
            implementation(problem, *inputs, out=out)
            return
        known = problem.__dict__.get("_recorded")
        if known is None:
            known = problem.__dict__["_recorded"] = {}
        kind = tuple(key)
        found = known.get(kind)
        if found is not None and found.is_valid:
            found.repeat(device, given)
        elif kind in known and found is None:
            with recording(Recording(given)) as made:
                implementation(problem, *inputs, out=out)
            made.finish()
            known[kind] = made
        else:
            if len(known) >= KEPT:
                known.clear()
            known.setdefault(kind, None)  # recorded at the next call: most problems of a check occur once
            implementation(problem, *inputs, out=out)

    return run
