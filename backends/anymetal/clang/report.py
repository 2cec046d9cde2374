"""Error messages for the undefined behaviour of a launch."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .launcher import FaultReport

FAULT, GUARD, DIVERGENCE, ORDER, ARRAY, MEMORY, UNEXPECTED = range(1, 8)


def explain(
    report: FaultReport,
    kernel: str,
    size: int,
    grid: str,
    parameters: Mapping[int, str],
    buffers: Sequence[NDArray[np.uint8]],
) -> str:
    """Return the message for a report that is not empty; ``size`` is that of a full threadgroup."""

    def buffer(index: int) -> str:
        text = parameters.get(index, "not a parameter")
        return f"buffer({index}), `{text}`, of {buffers[index].nbytes} bytes"

    def side(index: int, offset: int) -> str:
        return "before its start" if offset < 0 else "past its end" if offset >= buffers[index].nbytes else "inside it"

    start = f"kernel `{kernel}` "
    if report.kind == FAULT and report.count in (signal.SIGFPE, signal.SIGILL):
        what = "divided an integer by zero" if report.count == signal.SIGFPE else "reached undefined behaviour"
        return f"{start}{what} ({grid})"
    if report.kind == FAULT and report.buffer < 0:
        return f"{start}accessed memory far outside all of its buffers, or overran its stack ({grid})"
    if report.kind == FAULT:
        did = {1: "read", 2: "wrote"}.get(report.others, "accessed memory")
        return (
            f"{start}{did} out of bounds: at byte offset {report.offset} of {buffer(report.buffer)}, "
            f"{side(report.buffer, report.offset)} ({grid})"
        )
    if report.kind == GUARD:
        return (
            f"{start}wrote out of bounds: at byte offset {report.offset} of {buffer(report.buffer)}, "
            f"{side(report.buffer, report.offset)} ({grid})"
        )
    if report.kind == DIVERGENCE:
        missing = size - report.count - report.others
        rest = [f"{missing} have returned"] * (missing > 0)
        rest += [f"{report.others} wait at line {report.other_line}"] * (report.others > 0)
        return (
            f"{start}has a barrier that not all threads reach: in threadgroup {report.group}, {report.count} of {size} "
            f"threads wait at line {report.line}, column {report.column}, while {' and '.join(rest)} ({grid})"
        )
    if report.kind == ORDER:
        return (
            f"{start}gives a result that depends on the order of its threads: the first difference is at byte offset "
            f"{report.offset} of {buffer(report.buffer)}. A barrier is missing or too weak, or threads write the same "
            f"place; if this is intended, use Device(check_order=False) ({grid})"
        )
    if report.kind == ARRAY:
        return (
            f"{start}used index {report.offset} of an array of {report.count} elements, "
            f"at line {report.line}, column {report.column} ({grid})"
        )
    if report.kind == UNEXPECTED:
        return f"{start}synchronizes in a way that this runtime cannot detect: call the barrier from a plain function"
    return f"{start}could not run: no memory ({grid})"
