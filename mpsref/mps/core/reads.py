"""Temporary images and states: read counts, and the command buffer that they belong to.

A GPU reuses their memory after the last read, so they are neither read nor written then, and only the kernels of one
command buffer use them [doc].

>>> from mpsref import mps
>>> image = mps.MPSTemporaryImage(mps.MPSImageDescriptor("float32", width=2, height=2, feature_channels=1))
>>> image.is_temporary, image.read_count
(True, 1)
>>> _ = mps.MPSCNNSoftMax().encode(image)
>>> mps.MPSCNNSoftMax().encode(image)
Traceback (most recent call last):
mpsref.errors.OrderError: source_image is a temporary image whose read_count is 0, so its contents are gone; set \
read_count to the number of reads before the first of them

Source: ``MPSImage.h``, ``MPSState.h`` [doc].
"""

from __future__ import annotations

from typing import Self

from mpsref.arguments.parameters import integer
from mpsref.errors import OrderError
from mpsref.mps.core.command_buffer import MPSCommandBuffer, MTLCommandBufferStatus, check_encodable


class ReadCounted:
    """An object that may be temporary; each kernel that reads it decrements ``read_count`` [doc]."""

    kind = "object"
    """What it is, in messages."""
    permanent = "one that is not temporary"
    """What to use in place of a temporary one, in messages."""
    _reads: int | None = None
    _command_buffer: MPSCommandBuffer | None = None
    """Of a temporary object, the command buffer that it belongs to; ``None`` for one that was made without it."""

    @property
    def is_temporary(self) -> bool:
        """Whether the contents are gone when ``read_count`` is 0."""
        return self._reads is not None

    @property
    def read_count(self) -> int:
        """The number of reads that are left, 1 by default; 0 unless it is temporary."""
        return self._reads or 0

    @read_count.setter
    def read_count(self, value: int) -> None:
        number = integer("read_count", value, low=0)
        if self._reads is None and number:
            raise ValueError(
                f"read_count is {number}; this {self.kind} is not temporary, so its read_count is 0: leave it at that"
            )
        if self._reads == 0 and number:
            raise OrderError(
                f"read_count is {number}; the contents of this temporary {self.kind} are gone: make another"
            )
        if self._reads is not None:
            self._reads = number

    def _as_temporary(self, command_buffer: MPSCommandBuffer) -> Self:
        """Return the object, from now on temporary with a ``read_count`` of 1."""
        check_encodable(command_buffer)
        self._reads, self._command_buffer = 1, command_buffer
        return self

    def _count_read(self) -> None:
        if self._reads:
            self._reads -= 1

    def _check_usable(self, command_buffer: MPSCommandBuffer | None) -> None:
        """Raise ``OrderError`` unless a kernel may read or write the object, see :func:`check_usable`."""
        if self._reads is not None:
            check_usable(f"the {type(self).__name__}", self, command_buffer)

    def _read_by_kernel(self, command_buffer: MPSCommandBuffer | None) -> None:
        """Count a read; ``OrderError`` if there is none left."""
        self._check_usable(command_buffer)
        self._count_read()


def check_usable(name: str, value: ReadCounted, command_buffer: MPSCommandBuffer | None) -> None:
    """Raise ``OrderError`` for a temporary object whose reads are used up, or that belongs to another command buffer.

    A call without a command buffer is on that of the object, which must be open.
    """
    own = value._command_buffer
    if own is not None and command_buffer is not own:
        if command_buffer is not None:
            raise OrderError(
                f"{name} is a temporary {value.kind} of another command buffer; only kernels on its own may use it: "
                f"pass that one, or {value.permanent}"
            )
        if own._status is not MTLCommandBufferStatus.NotEnqueued:
            raise OrderError(
                f"{name} is a temporary {value.kind} whose command buffer has status {own.status.name}, so its "
                f"contents are gone; use it before commit(), or keep {value.permanent}"
            )
    if value._reads == 0:
        raise OrderError(
            f"{name} is a temporary {value.kind} whose read_count is 0, so its contents are gone; set read_count to "
            "the number of reads before the first of them"
        )
