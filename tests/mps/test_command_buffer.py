"""Command buffers: the order of calls, and reads of states by the host."""

from __future__ import annotations

from typing import Any

import pytest

from mpsref.errors import NotSynchronizedError, OrderError
from mpsref.mps.core.command_buffer import MPSCommandBuffer, MTLCommandBufferStatus, check_encodable
from mpsref.mps.core.state import SynchronizedState

NotEnqueued, Committed, Completed = (
    MTLCommandBufferStatus.NotEnqueued,
    MTLCommandBufferStatus.Committed,
    MTLCommandBufferStatus.Completed,
)


class Mask(SynchronizedState):
    """A state with one accessor."""

    def __init__(self) -> None:
        self._value = 0

    @property
    def value(self) -> int:
        self.check_readable("value")
        return self._value


def write(state: Mask, command_buffer: MPSCommandBuffer | None = None) -> None:
    check_encodable(command_buffer)
    state._value += 1
    state.written()


def test_the_life_of_a_command_buffer() -> None:
    buffer = MPSCommandBuffer()
    assert buffer.status is NotEnqueued
    buffer.commit()
    assert buffer.status is Committed
    buffer.wait_until_completed()
    assert buffer.status is Completed
    assert repr(buffer) == "<MPSCommandBuffer: Completed>"


def test_waiting_commits_first_and_may_be_repeated() -> None:
    buffer = MPSCommandBuffer()
    calls: list[MPSCommandBuffer] = []
    buffer.add_completed_handler(calls.append)
    buffer.wait_until_completed()
    buffer.wait_until_completed()
    assert buffer.status is Completed
    assert calls == [buffer]


@pytest.mark.parametrize("end", ["commit", "wait_until_completed"])
def test_nothing_goes_into_a_committed_buffer(end: str) -> None:
    buffer = MPSCommandBuffer()
    getattr(buffer, end)()
    status = buffer.status
    state = Mask()
    message = f"^command_buffer has status {status.name}; it must be NotEnqueued: encode before commit"
    for late in (
        lambda: check_encodable(buffer),
        lambda: state.synchronize(buffer),
        lambda: buffer.add_completed_handler(print),
        buffer.commit,
    ):
        with pytest.raises(OrderError, match=message):
            late()
    assert buffer.status is status


def test_handlers_run_in_order_when_the_work_is_done() -> None:
    buffer, seen = MPSCommandBuffer(), []
    for k in range(3):
        buffer.add_completed_handler(lambda done, k=k: seen.append((k, done.status)))
    buffer.commit()
    assert seen == []
    buffer.wait_until_completed()
    assert seen == [(0, Completed), (1, Completed), (2, Completed)]


def test_a_handler_that_raises_does_not_stop_the_others() -> None:
    buffer, state, seen = MPSCommandBuffer(), Mask(), []

    def fail(_: MPSCommandBuffer) -> None:
        raise KeyError("mine")

    buffer.add_completed_handler(fail)
    state.synchronize(buffer)
    buffer.add_completed_handler(seen.append)
    with pytest.raises(KeyError, match="mine"):
        buffer.wait_until_completed()
    assert seen == [buffer]
    assert state.value == 0
    buffer.wait_until_completed()
    assert seen == [buffer]


@pytest.mark.parametrize("handler", [None, 3, "print"])
def test_a_handler_must_be_callable(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"^handler is of type \w+; it must be a function of the command buffer"):
        MPSCommandBuffer().add_completed_handler(handler)


def test_encodes_leave_the_buffer_open() -> None:
    buffer = MPSCommandBuffer()
    for _ in range(2):
        check_encodable(buffer)
    check_encodable(None)
    assert buffer.status is NotEnqueued


@pytest.mark.parametrize("value", [0, True, "buffer", MPSCommandBuffer], ids=str)
def test_a_command_buffer_must_be_one(value: Any) -> None:
    for use in (lambda: check_encodable(value), lambda: Mask().synchronize(value)):
        with pytest.raises(TypeError, match=r"^command_buffer is of type \w+; it must be an MPSCommandBuffer or None$"):
            use()


def test_a_state_is_read_only_after_a_completed_synchronization() -> None:
    state, buffer = Mask(), MPSCommandBuffer()
    never = r"^Mask\.value cannot be read: no synchronization of the state has completed yet; call synchronize\("
    with pytest.raises(NotSynchronizedError, match=never):
        _ = state.value  # fresh
    write(state, buffer)
    with pytest.raises(NotSynchronizedError, match=never):
        _ = state.value  # before synchronize
    state.synchronize(buffer)
    with pytest.raises(NotSynchronizedError, match=never):
        _ = state.value  # before the commit
    buffer.commit()
    with pytest.raises(NotSynchronizedError, match=never):
        _ = state.value  # before completion
    buffer.wait_until_completed()
    assert state.value == 1
    write(state)
    with pytest.raises(NotSynchronizedError, match="a kernel has written the state since the last completed"):
        _ = state.value  # after one more kernel
    state.synchronize()
    assert state.value == 2


def test_a_fresh_state_can_be_synchronized() -> None:
    state = Mask()
    state.synchronize()
    assert state.value == 0


def test_an_older_buffer_that_completes_later_takes_nothing_back() -> None:
    state, older, newer = Mask(), MPSCommandBuffer(), MPSCommandBuffer()
    write(state, older)
    state.synchronize(older)
    write(state, newer)
    state.synchronize(newer)
    newer.wait_until_completed()
    assert state.value == 2
    older.wait_until_completed()
    assert state.value == 2


def test_states_do_not_share_their_bookkeeping() -> None:
    one, other = Mask(), Mask()
    write(one)
    one.synchronize()
    assert one.value == 1
    with pytest.raises(NotSynchronizedError, match="no synchronization"):
        _ = other.value
