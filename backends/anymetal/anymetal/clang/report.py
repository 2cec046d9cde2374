"""Error messages for the undefined behaviour of a launch."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence

from ..frontend.signature import Signature
from ..interface import LaunchError
from .findings import MOST_BUFFERS, Finding
from .launcher import FaultReport
from .lines import Place

FAULT, GUARD, DIVERGENCE, ORDER, ARRAY, MEMORY, STOPPED, NO_TIMER, FOUND = range(1, 10)
STACK = 2
"""The offset of a fault at the end of the stack."""
STACK_KIB = 256
"""``ANYMETAL_STACK_BYTES`` of abi.h."""


def explain(
    report: FaultReport,
    signature: Signature,
    size: int,
    grid: str,
    bindings: Sequence[tuple[int, int]],
    local: Mapping[int, int],
    seconds: float,
    files: Mapping[str, str] | None = None,
) -> str:
    """Return the message for a report that is not empty.

    ``size`` is that of a full threadgroup, ``bindings`` are the bytes of the buffers and the offsets in them, ``local``
    the bytes of threadgroup memory. With the texts of the files a finding tells its place, and the name of an array.
    """

    def place(index: int, at: int) -> tuple[str, str]:
        if index >= MOST_BUFFERS:
            kind, number, known = "threadgroup", index - MOST_BUFFERS, signature.locals
            nbytes, offset = local[number], 0
        else:
            kind, number, known = "buffer", index, signature.parameters
            nbytes, offset = bindings[index]
        bound = f" bound at offset {offset}" if offset else ""
        if number in known and (texels := getattr(known[number], "texels", None)) and 0 <= at < nbytes:
            return f"the texel {texels.place(at)} of `{known[number].text}`", "inside it"
        side = "before its start" if at < 0 else "past its end" if at >= nbytes else "inside it"
        text = known[number].text if number in known else "not a parameter"
        what = text if number in known and known[number].is_inner else f"{kind}({number}), `{text}`,"
        return f"at byte offset {at} of {what} of {nbytes} bytes{bound}", side

    start = f"kernel `{signature.name}` "
    if report.kind == FAULT and report.count in (signal.SIGFPE, signal.SIGILL):
        what = "divided an integer by zero" if report.count == signal.SIGFPE else "reached undefined behaviour"
        return f"{start}{what} ({grid})"
    if report.kind == FAULT and report.buffer < 0 and report.offset == STACK:
        what = f"its private arrays and calls take more than {STACK_KIB} KiB for a thread"
        return f"{start}overran its stack: {what} ({grid})"
    if report.kind == FAULT and report.buffer < 0 and report.offset:
        return (
            f"{start}used a vector at an address that is not a multiple of its alignment, or memory far outside all of "
            f"its buffers: a float4 is at a multiple of 16 bytes, a packed_float4 anywhere ({grid})"
        )
    if report.kind == FAULT and report.buffer < 0:
        return f"{start}accessed memory far outside all of its buffers ({grid})"
    if report.kind == FAULT:
        did = {1: "read", 2: "wrote"}.get(report.others, "accessed memory")
        return f"{start}{did} out of bounds: {', '.join(place(report.buffer, report.offset))} ({grid})"
    if report.kind == GUARD:
        return f"{start}wrote out of bounds: {', '.join(place(report.buffer, report.offset))} ({grid})"
    if report.kind == DIVERGENCE:
        missing = size - report.count - report.others
        rest = [f"{missing} have returned"] * (missing > 0)
        rest += [f"{report.others} wait at {report.other}"] * (report.others > 0)
        return (
            f"{start}has a barrier that not all threads reach: in threadgroup {report.group}, {report.count} of {size} "
            f"threads wait at {report.at}, while {' and '.join(rest)} ({grid})"
        )
    if report.kind == ORDER:
        return (
            f"{start}gives a result that depends on the order of its threads: the first difference is "
            f"{place(report.buffer, report.offset)[0]}. A barrier is missing or too weak, or threads write the same "
            f"place; if this is intended, use check_order=False ({grid})"
        )
    if report.kind == ARRAY:
        array = f"an array of {report.count} elements"
        if name := _indexed(report.at.place, files):
            array, start = f"`{name}`, {array}", f"thread {report.others} of threadgroup {report.group} "
        return f"{start}used index {report.offset} of {array}{'' if name else f', at {report.at}'} ({grid})"
    if report.kind == STOPPED:
        last = f"{report.at}" if report.at.line else "none"
        where = f"in threadgroup {report.group} (the last barrier or simdgroup function of the thread: {last}; {grid})"
        if report.count == signal.SIGINT:
            return f"{start}was interrupted {where}"
        return (
            f"{start}did not end within {seconds:g} seconds of processor time: it was stopped {where}. If it is not "
            "endless, raise ANYMETAL_LAUNCH_SECONDS"
        )
    reason = "the system gave it no timer" if report.kind == NO_TIMER else "no memory"
    return f"{start}could not run: {reason} ({grid})"


def _indexed(place: Place | None, files: Mapping[str, str] | None) -> str:
    """Return the name of an array that is indexed at a place of a file."""
    rows = (files or {}).get(place.file, "").split("\n") if place else []
    if not place or not 0 < place.line <= len(rows):
        return ""
    found = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)\s*\[").match(rows[place.line - 1], max(place.column - 1, 0))
    return found[1] if found else ""


def finding_of(report: FaultReport, text: str, level: str = "error", place: Place | None = None) -> Finding:
    """Return the finding for a report that the launcher makes without checks of accesses."""
    kinds = {GUARD: "out-of-bounds", ARRAY: "out-of-bounds", DIVERGENCE: "divergent-barrier", ORDER: "order"}
    kind = (kinds | {STOPPED: "endless"}).get(report.kind, "fault")
    if report.kind == FAULT:
        kind = "division" if report.count == signal.SIGFPE else "fault" if report.buffer < 0 else "out-of-bounds"
    other = report.other.place if report.kind == DIVERGENCE else None
    return Finding(kind, level, text, place or report.at.place, other, groups=(report.group,))


ATOMIC_ORDER = (
    "the kernel gives a result that depends on the order of its atomic operations, which is legal: sums of floats are "
    "rounded in that order, and a counter hands out its values in it"
)
UNCHECKED_ORDER = "; the opposite order was not checked to its end: the limits of time or memory did not suffice"


def found_error(text: str, findings: Sequence[Finding]) -> LaunchError:
    """Return the error for findings."""
    error = LaunchError(text)
    error.findings = tuple(findings)
    return error
