"""Command buffers: the order of encoding, commit and reads by the host.

A kernel computes when it is encoded, so an image is valid as soon as the call returns. Command buffers check that a
program would also be correct on a GPU: nothing is encoded after the commit, and the host reads a state that kernels
write (weight gradients, statistics, masks) only after a synchronization on a command buffer that has completed.

>>> buffer = MPSCommandBuffer()
>>> buffer.status
MTLCommandBufferStatus.NotEnqueued
>>> buffer.wait_until_completed()
>>> buffer.status
MTLCommandBufferStatus.Completed
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from mpsref.errors import OrderError
from mpsref.mps.core.properties import Alias, NoNewAttributes
from mpsref.mps.core.types import Enumeration


class MTLCommandBufferStatus(Enumeration):
    """The status of a command buffer: here ``NotEnqueued``, ``Committed`` or ``Completed``.

    Source: ``MTLCommandBuffer.h`` [doc].
    """

    NotEnqueued = 0
    Enqueued = 1
    Committed = 2
    Scheduled = 3
    Completed = 4
    Error = 5


class MPSCommandBuffer(NoNewAttributes):
    """A sequence of encoded kernels: open, then committed, then completed; used once.

    Notes
    -----
    ``MPSCommandBuffer.h`` and Metal's ``MTLCommandBuffer.h`` [doc].

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref import mps
    >>> buffer = MPSCommandBuffer()
    >>> pool = mps.MPSCNNPoolingMax(2, 2, 2, 2)
    >>> y = pool.encode(np.ones((1, 4, 4, 1), np.float32), command_buffer=buffer)
    >>> buffer.commit()
    >>> buffer.wait_until_completed()
    >>> buffer
    <MPSCommandBuffer: Completed>
    """

    def __init__(self) -> None:
        """Start open and empty."""
        self._status = MTLCommandBufferStatus.NotEnqueued
        self._handlers: list[Callable[[MPSCommandBuffer], object]] = []

    status: Alias[MTLCommandBufferStatus] = Alias(
        "_status", "``NotEnqueued`` while kernels may be encoded, then ``Committed``, then ``Completed``."
    )

    def __repr__(self) -> str:
        return f"<MPSCommandBuffer: {self._status.name}>"

    def check_open(self) -> None:
        """Raise ``OrderError`` if this command buffer was committed."""
        if self._status is not MTLCommandBufferStatus.NotEnqueued:
            raise OrderError(
                f"command_buffer has status {self._status.name}; it must be NotEnqueued: encode before commit(), and "
                "make a new MPSCommandBuffer for further work"
            )

    def add_completed_handler(self, handler: Callable[[MPSCommandBuffer], object]) -> None:
        """Call ``handler(command_buffer)`` on completion; handlers run in the order in which they were added.

        Parameters
        ----------
        handler : callable
            A function of the command buffer; its result is ignored.

        Raises
        ------
        OrderError
            If the command buffer was committed.
        TypeError
            If ``handler`` is not callable.
        """
        if not callable(handler):
            raise TypeError(f"handler is of type {type(handler).__name__}; it must be a function of the command buffer")
        self.check_open()
        self._handlers.append(handler)

    def commit(self) -> None:
        """Commit the work, after which nothing can be encoded; ``OrderError`` if it was committed before."""
        self.check_open()
        self._status = MTLCommandBufferStatus.Committed

    def wait_until_completed(self) -> None:
        """Wait for the work and run the completed handlers; commit first if necessary.

        Later calls have no effect. If a handler raises, the others still run before the error is raised.
        """
        if self._status is MTLCommandBufferStatus.NotEnqueued:
            self.commit()
        if self._status is MTLCommandBufferStatus.Committed:
            self._status = MTLCommandBufferStatus.Completed
            if self._handlers:
                with ExitStack() as stack:
                    while self._handlers:
                        stack.callback(self._handlers.pop(), self)


def check_encodable(command_buffer: MPSCommandBuffer | None) -> None:
    """Raise ``OrderError`` for a committed command buffer, ``TypeError`` for another object; ``None`` is legal."""
    if command_buffer is None:
        return
    if not isinstance(command_buffer, MPSCommandBuffer):
        raise TypeError(
            f"command_buffer is of type {type(command_buffer).__name__}; it must be an MPSCommandBuffer or None"
        )
    if command_buffer._status is not MTLCommandBufferStatus.NotEnqueued:
        command_buffer.check_open()  # raises


def check_not_a_command_buffer(name: str, value: object, instead: str = "encode(..., command_buffer=buffer)") -> None:
    """Raise ``TypeError`` for a command buffer, which is the first argument of Apple's methods."""
    if isinstance(value, MPSCommandBuffer):
        raise TypeError(f"{name} is an MPSCommandBuffer; command buffers are passed by keyword, last: write {instead}")
