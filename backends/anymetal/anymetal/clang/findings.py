"""What the checks of a launch found: kinds, levels, places in the source, and messages."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import struct
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from reprlib import repr as shorten
from typing import Any

from ..frontend.lexer import NAME
from ..frontend.signature import Parameter, Signature, Texels
from ..interface import LaunchError
from .lines import Place, lines_of

MOST_BUFFERS = 160
"""``ANYMETAL_MAX_BUFFERS`` of abi.h, from which on the index of a buffer is that of threadgroup memory."""
LEVELS = ("error", "warning", "note", "off")

KINDS = {
    "race": "error",
    "lockstep": "warning",
    "fence": "error",
    "mixed-atomic": "error",
    "same-value": "note",
    "uninitialized": "error",
    "out-of-bounds": "error",
    "read-only": "error",
    "inactive-lane": "error",
    "not-uniform": "warning",
    "weak-exchange": "warning",
    "lost-update": "error",
    "aba": "error",
    "check-then-act": "warning",
    "waits": "warning",
    "lifetime": "error",
    "endless": "error",
    "barriers": "error",
    "misaligned": "error",
    "overflow": "error",
    "truncation": "error",
    "shift": "error",
    "shift-base": "warning",
    "float-cast": "error",
    "argument": "error",
    "division": "error",
    "null": "error",
    "divergent-barrier": "error",
    "order": "error",
    "texel": "warning",
    "texture-fence": "error",
    "coordinate": "error",
    "filter": "error",
    "half-index": "warning",
    "atomic-format": "error",
    "uncovered": "note",
    "unread": "note",
    "fault": "error",
    "launch": "error",
    "compile": "error",
}
"""The kinds of findings, and their levels unless the caller chooses others."""

FATAL = frozenset((
    "out-of-bounds", "null", "misaligned", "division", "endless", "barriers", "divergent-barrier", "fault", "launch",
    "compile",
))  # fmt: skip
"""Kinds that end a launch, whose results are incomplete then."""

NUMBERED = (
    *("", "race", "lockstep", "fence", "mixed-atomic", "same-value", "uninitialized", "out-of-bounds", "read-only"),
    *("inactive-lane", "endless", "barriers", "out-of-bounds", "misaligned", "overflow", "truncation", "shift"),
    *("float-cast", "division", "divergent-barrier", "not-uniform", "weak-exchange", "lost-update", "aba"),
    *("check-then-act", "waits", "shift-base", "argument", "lifetime"),
    *("texel", "texture-fence", "coordinate", "filter", "half-index", "atomic-format"),
)
"""The kinds in the order of ``anymetal_kind`` of abi.h."""
NO_BUFFER, VARIABLES = -1, -2
OUTSIDE_VARIABLE = 12
"""``ANYMETAL_PRIVATE``, the second kind of an access out of bounds."""
UNKNOWN = 0xFFFFFFFF
LANES = 32
NO_LANE = f"which cannot exist: a simdgroup has {LANES} lanes"
MOST_FINDINGS = 64
FIRST_PAGE = 4096

ADVICE = {
    "race": "Put threadgroup_barrier({flags}) between them, or let one thread do both.",
    "between groups": "Nothing orders two threadgroups of a launch: use an atomic, or two launches.",
    "several writers": "Let one thread write the element, use an atomic, or give each thread an element of its own.",
    "lockstep": "The specification does not keep lanes in step: put simdgroup_barrier({flags}) between.",
    "fence": "A barrier orders only the memory that its flags name: it needs {flags}.",
    "mixed-atomic": "Use atomic operations for both, or put a barrier between them.",
    "uninitialized": "Write it first; if another thread writes it, put a barrier between.",
    "private": "Write it first.",
    "inactive-lane": "Its value is undefined: let all lanes take part, or ask only for lanes that do.",
    "not-uniform": "Let all lanes pass the same one; simd_shuffle and quad_shuffle take a lane of each thread's own.",
    "weak-exchange": "Repeat it while it fails and the value is still the expected one.",
    "lost-update": "Use one operation that reads and writes (atomic_fetch_add_explicit, atomic_fetch_max_explicit, "
    "atomic_exchange_explicit), or a loop of atomic_compare_exchange_weak_explicit.",
    "aba": "Let the value never recur: put a tag beside it that each change counts up.",
    "check-then-act": "Decide by what one operation returns: atomic_exchange_explicit, atomic_fetch_add_explicit, or a "
    "compare and exchange.",
    "truncation": "Use a wider type, or a cast if the loss is intended.",
    "overflow": "Use a wider type.",
    "shift-base": "Shift an unsigned number.",
    "lifetime": "Declare it in the block in which its address is used, or return its value.",
    "texel": "A read gives 0 there, a write does nothing: compare coordinates with get_width() and get_height().",
    "texture-fence": "Call fence() of the texture between the write and the read.",
    "half-index": "Compute coordinates and indices in float, or in integers.",
    "atomic-format": "Pass an array of uint32 or int32 with one component.",
}


@dataclass(frozen=True)
class Finding:
    """A defect of a kernel, or something to look at.

    Attributes
    ----------
    kind : str
        What it is: a key of ``KINDS``.
    level : {"error", "warning", "note"}
        How serious.
    message : str
        A sentence, without the place.
    place, other : Place or None
        Where it happened, and where the access was that it conflicts with.
    buffer : str or None
        The memory: the name of a parameter or variable.
    index : int or None
        The element of that memory.
    threads, groups : tuple of (int or None)
        The threads and their threadgroups, in the order of the places; None for one of several.
    count : int
        How often it happened.
    advice : str
        What to write instead, if that can be said.
    """

    kind: str
    level: str
    message: str
    place: Place | None = None
    other: Place | None = None
    buffer: str | None = None
    index: int | None = None
    threads: tuple[int | None, ...] = ()
    groups: tuple[int | None, ...] = ()
    count: int = 1
    advice: str = ""

    def describe(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)

    @classmethod
    def described(cls, row: Mapping[str, Any]) -> Finding:
        """Return the finding that :meth:`describe` described."""
        places = {name: Place(**row[name]) if row[name] else None for name in ("place", "other")}
        return cls(**{**row, **places, "threads": tuple(row["threads"]), "groups": tuple(row["groups"])})

    def text(self, files: Mapping[str, str]) -> str:
        """Return it for people, with the lines of the source."""
        lines = [f"{f'{self.place}: ' if self.place else ''}{self.level}: {self.message} [{self.kind}]"]
        lines += _excerpt(self.place, files)
        if self.other and self.other != self.place:
            lines += [f"{self.other}: note: the other access", *_excerpt(self.other, files)]
        return "\n".join((*lines, *([f"  {self.advice}"] if self.advice else [])))


def _excerpt(place: Place | None, files: Mapping[str, str]) -> list[str]:
    rows = files.get(place.file, "").split("\n") if place else []
    if not place or not 0 < place.line <= len(rows):
        return []
    caret = " " * (place.column - 1) + "^"
    return [f"{place.line:5} | {rows[place.line - 1]}", *([f"      | {caret}"] if place.column else [])]


def levels_of(given: Any) -> dict[str, str]:
    """Return the level of each kind; raise for unknown ones."""
    if not isinstance(given, Mapping | None):
        raise TypeError(f"levels is of type {type(given).__name__}; it is a mapping from kinds of findings to levels")
    for kind, level in (given or {}).items():
        if kind not in KINDS:
            raise LaunchError(f"levels: {shorten(kind)} is no kind of finding; the kinds are {', '.join(KINDS)}")
        if level not in LEVELS:
            raise LaunchError(f"levels[{kind!r}]={shorten(level)}: the levels are {', '.join(LEVELS)}")
        if kind in FATAL and level != "error":
            raise LaunchError(f"levels[{kind!r}]={level!r}: this kind ends a launch, it is always an error")
    return {**KINDS, **(given or {})}


@dataclass(frozen=True)
class Suppression:
    """Findings that are known and accepted."""

    kind: str
    reason: str
    kernel: str = "*"
    """The name of the kernel, with ``*`` for any characters."""
    line: str = ""
    """A part of the line of the source."""

    def covers(self, finding: Finding, kernel: str, files: Mapping[str, str]) -> bool:
        """Return whether a finding of a kernel is one of these."""
        texts = (text for place in (finding.place, finding.other) for text in _excerpt(place, files)[:1])
        is_here = not self.line or any(self.line in text for text in texts)
        return finding.kind == self.kind and fnmatchcase(kernel, self.kernel) and is_here


def suppressions(file: str | os.PathLike[str] | None) -> tuple[Suppression, ...]:
    """Return the suppressions in a TOML file; raise LaunchError for one that is illegal."""
    if file is None:
        return ()
    try:
        rows = tomllib.loads(Path(file).read_text()).get("suppress", [])
        found = tuple(Suppression(**row) for row in rows)
    except (OSError, ValueError, TypeError) as error:
        raise LaunchError(
            f"suppress={str(file)!r}: {error}. It has a table [[suppress]] for each, with kind and reason, and perhaps "
            "kernel and line"
        ) from None
    for one in found:
        if one.kind not in KINDS or one.kind in FATAL or not str(one.reason).strip():
            legal = ", ".join(kind for kind in KINDS if kind not in FATAL)
            raise LaunchError(f"suppress={str(file)!r}: {one}: a reason is text, and the kinds are {legal}")
    return found


class Site(ctypes.Structure):
    """``anymetal_site`` of abi.h."""

    _fields_ = (("file", ctypes.c_char_p), ("line", ctypes.c_uint32), ("column", ctypes.c_uint32))

    @property
    def place(self) -> Place | None:
        """The place, if there is one."""
        return Place((self.file or NAME.encode()).decode(), self.line, self.column) if self.line else None

    def __str__(self) -> str:
        at = self.place
        return f"line {self.line}, column {self.column}" + (f" of {at.file}" if at and at.file != NAME else "")


class FindingRecord(ctypes.Structure):
    """``anymetal_finding`` of abi.h."""

    _fields_ = (
        ("at", Site),
        ("type", ctypes.c_char_p),
        ("place", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        *((name, ctypes.c_uint32) for name in ("kind", "count", "bytes")),
        ("buffer", ctypes.c_int32),
        *(
            (name, ctypes.c_uint32)
            for name in ("is_write", "was_write", "group", "other_group", "thread_index", "other_thread")
        ),
        ("barrier", Site),
        ("barrier_flags", ctypes.c_uint32),
        ("schedule", ctypes.c_uint32),
        ("load", ctypes.c_uint64),
        ("values", ctypes.c_uint64 * 3),
    )


class VariableRecord(ctypes.Structure):
    """``anymetal_variable`` of abi.h."""

    _fields_ = (("at", ctypes.c_uint32), ("bytes", ctypes.c_uint32), ("unread", ctypes.c_uint64))


class ChecksRecord(ctypes.Structure):
    """``anymetal_checks`` of abi.h."""

    _fields_ = (
        ("findings", ctypes.POINTER(FindingRecord)),
        ("variables", ctypes.POINTER(VariableRecord)),
        ("code", ctypes.c_uint64),
        ("code_bytes", ctypes.c_uint64),
        ("reached", ctypes.c_void_p),
        ("block_count", ctypes.c_uint64),
        ("variable_count", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        *((name, ctypes.c_uint32) for name in ("has_atomics", "counts_unread", "trials", "schedule", "tried")),
    )


@dataclass(frozen=True)
class Reader:
    """Makes findings of the records of a launch."""

    signature: Signature
    variables: Sequence[tuple[int, int, str]]
    library: Path
    bytes: Sequence[int]
    """Of the buffers."""
    offsets: Sequence[int]
    """Where in the buffers the pointers of the kernel point."""
    local: Mapping[int, int]
    levels: Mapping[str, str]
    rows: Callable[[str, int], Sequence[str]]
    """The text of a line as the compiler read it."""
    seed: int
    """That of the device."""

    def read(self, record: FindingRecord) -> Finding:
        """Return a finding."""
        kind = NUMBERED[record.kind]
        is_anywhere = record.buffer == NO_BUFFER and record.kind != OUTSIDE_VARIABLE
        if kind == "out-of-bounds" and is_anywhere and 0 <= record.offset < FIRST_PAGE:
            kind = "null"
        is_late_write = kind == "fence" and record.is_write and not record.was_write
        level = "note" if is_late_write and self.levels[kind] == "error" else self.levels[kind]
        level = "off" if kind == "truncation" and self._wraps(record) else level
        if kind == "lockstep" and self._texture(record) and level == KINDS[kind]:
            level = "error"  # writes of a texture are not seen by other lanes, even if these run in step
        name, index, what = self._memory(record)
        message, advice = self._say(kind, record, what)
        message += in_schedule(record.schedule, self.seed)
        count = 2 if kind in BY_TWO else 0 if kind == "weak-exchange" else 1
        threads = [None if one == UNKNOWN else one for one in (record.thread_index, record.other_thread)]
        groups = [None if one == UNKNOWN else one for one in (record.group, record.other_group)]
        place, other = self._own(record), self._place(record.other)
        return Finding(
            kind,
            level,
            message,
            place,
            other,
            name,
            index,
            tuple(threads[:count]),
            tuple(groups[:count]),
            record.count,
            advice,
        )

    def _wraps(self, record: FindingRecord) -> bool:
        """Return whether a number that wraps is changed in place, as by ``a += b``: it is promoted before."""
        at, is_narrow = record.at.place, re.search(rb"unsigned (char|short)", record.type or b"")
        return bool(at and is_narrow and any(CHANGES.match(row, at.column - 1) for row in self.rows(at.file, at.line)))

    def _expression(self, at: Place | None) -> str:
        """Return the variable with members and indices at a place, or an empty text."""
        for row in self.rows(at.file, at.line) if at and at.column else ():
            start = at.column - 1 + (row[at.column - 1 : at.column] == "*") if at else 0
            found = next((one[0] for one in VARIABLE.finditer(row) if one.start() <= start < one.end()), "")
            if found:
                return found
        return ""

    def _own(self, record: FindingRecord) -> Place | None:
        at = record.at.place
        return at if at and at.is_users else self._place(record.place) or at

    def _place(self, code: int) -> Place | None:
        return lines_of(self.library).place(code) if code else None

    def _texture(self, record: FindingRecord) -> Parameter | None:
        """Return the texture that a finding is about."""
        known = self.signature.parameters.get(record.buffer)
        return known if known and known.texels else None

    def _memory(self, record: FindingRecord) -> tuple[str | None, int | None, str]:
        """Return the name of the memory, the index of the element, and both in words."""
        at = record.offset
        if (texture := self._texture(record)) and texture.texels:
            name = texture.name or texture.text
            if NUMBERED[record.kind] in ("texel", "coordinate", "filter", "atomic-format"):
                return name, None, f"`{texture.text}` of {texture.texels}"
            return name, at // texture.nbytes, f"the texel {texture.texels.place(at)} of `{texture.text}`"
        if record.buffer == VARIABLES:
            found = [one for one in self.variables if one[0] <= at] or list(self.variables[:1])
            start, nbytes, name = found[-1] if found else (0, 0, "threadgroup memory")
            size, at = max(record.bytes, 1), at - start
            total = f"threadgroup variable `{name}` of {nbytes} bytes"
        elif record.buffer < 0:
            is_own = NUMBERED[record.kind] == "uninitialized"
            used = self._expression(self._own(record)) if record.place else ""
            variable = re.split(r"\W", used)[0] or None
            own = "a private variable" if record.place else "the result of a function that returns none"
            own = f"`{used}`, {own}" if used else own
            return variable, None, own if is_own else f"memory by `{used}`" if used else "memory"
        else:
            is_local = record.buffer >= MOST_BUFFERS
            number = record.buffer - MOST_BUFFERS if is_local else record.buffer
            known = (self.signature.locals if is_local else self.signature.parameters).get(number)
            nbytes = self.local.get(number, 0) if is_local else self.bytes[number]
            at -= 0 if is_local else self.offsets[number]
            size = known.nbytes if known else 1
            found_name = re.findall(r"\w+", re.sub(r"\[.*", "", known.text)) if known else []
            name = found_name[-1] if found_name else f"buffer({number})"
            kind = "threadgroup" if is_local else "buffer"
            title = _title(kind, number, known) if known else f"{kind}({number}) `{name}`"
            total = f"{title} of {nbytes} bytes"
        index, rest = divmod(at, size)
        byte = f" (byte {rest} of it)" if rest else ""
        return name, index, f"{name}[{index}]{byte}, byte offset {at} of {total}"

    def _number(self, value: int, record: FindingRecord) -> str:
        """Return a value of an element as the declaration has it."""
        known = self.signature.parameters.get(record.buffer) if 0 <= record.buffer < MOST_BUFFERS else None
        letter, size = divmod(known.numbers, 256) if known else (0, 0)
        if letter == ord("f") and size == record.bytes == 4:
            return f"{struct.unpack('f', struct.pack('I', value))[0]:g}"
        is_negative = letter == ord("i") and value >> (8 * record.bytes - 1)
        return str(value - (is_negative << 8 * record.bytes))

    def _coordinates(self, record: FindingRecord) -> str:
        """Return where a texel outside of a texture would be, in words."""
        known = self._texture(record)
        texels = known.texels if known and known.texels else Texels(2, 2, 1, 1, 1, 1)
        parts = {
            "x": (record.offset & UNKNOWN, 2),
            "y": (record.offset >> 32 & UNKNOWN, texels.height),
            "z": (record.other_thread, texels.depth),
            "slice": (record.other_group, texels.slices),
            "level": (record.barrier_flags, texels.levels),
        }
        return ", ".join(f"{name} = {value}" for name, (value, size) in parts.items() if value or size > 1)

    def _say(self, kind: str, record: FindingRecord, what: str) -> tuple[str, str]:
        """Return the message and the advice."""
        here, there = self._own(record), self._place(record.other)
        did, had = ("writes", "wrote") if record.is_write else ("reads", "wrote")
        had = had if record.was_write else "read"
        is_local = record.buffer >= MOST_BUFFERS or record.buffer == VARIABLES
        memory = "mem_threadgroup" if is_local else "mem_texture" if self._texture(record) else "mem_device"
        flags = f"mem_flags::{memory}"
        is_far = record.group != record.other_group and not is_local
        who = f"thread {record.thread_index}" + (f" of threadgroup {record.group}" if is_far else "")
        group = f" of threadgroup {record.other_group}" if record.other_group != UNKNOWN else " of another threadgroup"
        whom = "another thread" if record.other_thread == UNKNOWN else f"thread {record.other_thread}"
        whom += group if is_far else ""
        size = f"{record.bytes} byte{'s' * (record.bytes != 1)}"
        pair = f"{who} {did} {what}, which {whom} {had}" + (f" at line {there.line}" if there and there != here else "")
        case = "between groups" if is_far and kind == "race" else kind
        case = "private" if kind == "uninitialized" and record.buffer == NO_BUFFER else case
        if kind == "race" and record.is_write and record.was_write and here == there:
            case = "several writers"
        advice = ADVICE.get(case, "").format(flags=flags) if kind != "inactive-lane" or record.offset < LANES else ""
        shown = [self._number(value, record) for value in record.values]
        load = self._place(record.load)
        loaded = f" at line {load.line}" if load else ""
        other = f" at line {there.line}" if there else ""
        flag_names = {1: "mem_device", 2: "mem_threadgroup", 4: "mem_texture"}
        given = " | ".join(name for flag, name in flag_names.items() if record.barrier_flags & flag) or "mem_none"
        text = re.sub(r"__\w+ ", "", re.sub(r"'(.*?)'.*", r"\1", (record.type or b"").decode()))
        where = "an address" if record.buffer == NO_BUFFER else what[what.find("byte offset") :]
        if kind == "misaligned":
            element = re.sub(r"[234]$", "", text)
            advice = f"Use packed_{text}, which is aligned as a {element}, or an" if element != text else "Use an"
            advice += f" offset that is a multiple of {record.bytes}."
        known = self.signature.parameters.get(record.buffer)
        three = re.search(r"(?<!_)\b(\w+)3\b", known.text) if kind == "out-of-bounds" and known else None
        if known and three and self.bytes[record.buffer] % (known.nbytes // 4 * 3) == 0:
            advice = (
                f"A {three[0]} takes {known.nbytes} bytes in memory: three numbers an element are a packed_{three[0]}."
            )
        messages = {
            "race": f"{pair}, and nothing orders the two",
            "lockstep": f"{pair}, in the same simdgroup and without a barrier between",
            "fence": f"{pair}; the barrier between, at {record.barrier}, has the flags "
                     f"{given}, which do not order this memory",
            "mixed-atomic": f"{pair}; one of the accesses is atomic, the other is not, and nothing orders them",
            "same-value": f"{pair}, and nothing orders the two; the write leaves the value as it is",
            "uninitialized": f"{who} reads {what}, before anything wrote it",
            "out-of-bounds": f"{who} accesses {what} outside of a variable"
                             if record.kind == OUTSIDE_VARIABLE else f"{who} {did} {size} out of bounds: {what}",
            "read-only": f"{who} writes {what}, which the declaration does not allow to be written",
            "inactive-lane": f"{who} takes the value of lane {record.offset}, "
                             + ("which does not take part" if 0 <= record.offset < LANES else NO_LANE),
            "endless": f"{who} waits in a loop of atomic loads for a value that another thread would have to write; "
                       "Metal does not guarantee that other threads run while one waits",
            "barriers": f"{who} passes more barriers than the checks can count (131,071)",
            "null": f"{who} {did} {size} through a null pointer",
            "misaligned": f"{who} accesses a {text} at {where}, which is no multiple of its alignment of "
                          f"{record.bytes} bytes",
            "overflow": f"{who} computes a value of type {text} that is out of range",
            "truncation": f"{who} converts a value to the type {text}, which cannot hold it",
            "shift": f"{who} shifts a {text} by {record.offset} bits, which are its width or more, or fewer than 0",
            "shift-base": f"{who} shifts a negative {text} to the left, or bits out of it: undefined before C++20",
            "float-cast": f"{who} converts a floating-point number to the type {text}, out of whose range it is",
            "not-uniform": f"{who} passes {record.values[0]} to a function of lanes for which thread "
                           f"{record.other_thread} passes {record.values[1]}; Metal says that it is the same for all",
            "weak-exchange": "a weak exchange may fail although it finds the value that it expects; where some at this "
                             f"line do, the result is another one, first in {what}",
            "lost-update": f"{who} stores {shown[2]} to {what}, which it loaded as {shown[0]}{loaded}; {whom} had "
                           f"changed it to {shown[1]} by then{other}: that is lost",
            "aba": f"{who} exchanges {what}, which is {shown[0]} as when it was loaded, though {whom} had changed it "
                   f"by then{other}: what was read{loaded} was {record.values[1]} and is {record.values[2]} now",
            "check-then-act": f"{who} and {whom}{other} act on {what}, which both had loaded as {shown[0]}{loaded}; "
                              "the result is that of no order of the threads that was tried",
            "waits": f"{who} waits for a change of {what}, which {whom} makes{other}: "
                     f"{PROGRESS[min(record.values[0], 2)]}",
            "divergent-barrier": f"{record.offset} of {record.bytes} lanes of a simdgroup wait at a barrier, which the "
                                 "others do not reach",
            "argument": f"{who} calls {(record.type or b'').decode()}: the result is undefined",
            "lifetime": f"{who} {did} the variable `{(record.type or b'').decode()}` of line {record.barrier.line}, "
                        "whose block has ended",
            "texel": f"{who} {did} at {self._coordinates(record)}, outside of {what}",
            "texture-fence": f"{who} reads {what}, which it wrote before, without a fence() between",
            "coordinate": f"{who} samples {what} at a coordinate that is NaN or infinite: the result is undefined",
            "filter": f"{who} samples {what} with a linear filter, which integer formats do not have",
            "atomic-format": f"{who} calls an atomic function of {what}, whose format is not r32uint or r32sint",
            "half-index": f"{who} converts the half {record.offset} to a component of a vector of integers: a half of "
                          "2048 or more has lost odd numbers",
            "division": f"{who} divides a value of type {text} by zero, or the smallest by -1",
        }  # fmt: skip
        return messages[kind], advice


def in_schedule(number: int, seed: int) -> str:
    """Return what a message says of the interleaving that it is about; nothing for 0."""
    return f" (in schedule {number} of seed {seed}, one interleaving of the atomic operations)" if number else ""


def unset(row: Sequence[Any], levels: Mapping[str, str]) -> Finding:
    """Return the finding for a variable of a thread that the compiler found to be used before it is set."""
    file, line, column, name, is_sure = row
    level = levels["uninitialized"]
    message = f"the variable {name} {'is' if is_sure else 'may be'} used before it is set"
    level = level if is_sure or level == "off" else "note"
    return Finding("uninitialized", level, message, Place(file, line, column), buffer=name)


def _title(kind: str, number: int, known: Parameter) -> str:
    return known.text if known.is_inner else f"{kind}({number}) `{known.text}`"


def uncovered_by(written: int, index: int, known: Parameter, nbytes: int, levels: Mapping[str, str]) -> Finding:
    """Return the finding for a buffer of which some bytes were written, and the others neither written nor read."""
    count, size = written // known.nbytes, nbytes // known.nbytes
    what = (
        f"{count} of the {size} elements of {_title('buffer', index, known)} {'were' if count > 1 else 'was'} written"
    )
    message = f"{what}, and nothing used the others: the grid may be too small for it"
    return Finding("uncovered", levels["uncovered"], message)


def unread_by(index: int, known: Parameter, levels: Mapping[str, str]) -> Finding:
    """Return the finding for a buffer that a kernel only reads, and of which no thread used anything."""
    message = f"no thread read {_title('buffer', index, known)}, or no result depends on what it read"
    return Finding("unread", levels["unread"], message)


VARIABLE = re.compile(r"[A-Za-z_]\w*(?:\s*(?:\.|->)\s*[A-Za-z_]\w*|\[[^]]*\])*")
CHANGES = re.compile(r"\+\+|--|([-+*/%&|^]|<<|>>)=")
PAIRS = frozenset(("race", "lockstep", "fence", "mixed-atomic", "same-value"))
NO_RACE = frozenset(("not-uniform", "weak-exchange", "check-then-act", "waits"))
"""Warnings that explain no difference between two orders of the threads."""
BY_TWO = PAIRS | {"not-uniform", "lost-update", "aba", "check-then-act", "waits"}
"""Kinds that are about two accesses, of which one pair of lines has one, and all that are about two threads."""
PROGRESS = (
    "Metal does not say that a lane runs while another one of its simdgroup waits",
    "Metal does not say that a simdgroup runs while another one waits",
    "Metal does not say that a threadgroup runs while another one waits; not all GPUs of Apple do so",
)
"""What a program that waits relies on: for a lane, a simdgroup, a threadgroup."""


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings without those that are off, and those that say less of what another one says.

    Of a pair of lines the most serious stays, whichever line came first; so does a race of what was read too early.
    """

    def lines(one: Finding) -> tuple[Any, ...]:
        return (one.buffer, *sorted({str(one.place), str(one.other)} - {"None"}))

    order = sorted(findings, key=lambda one: (LEVELS.index(KINDS[one.kind]), one.other is None))
    pairs = {lines(one): one for one in reversed(order) if one.kind in PAIRS}
    early = {
        (one.buffer, str(place))
        for one in pairs.values()
        if one.kind != "same-value"
        for place in (one.place, one.other)
    }
    lost = {one.place for one in findings if one.kind == "lost-update"}
    kept = (
        one for one in findings
        if one.level != "off" and (one.kind not in PAIRS or pairs[lines(one)] is one)
        and not (one.kind == "uninitialized" and (one.buffer, str(one.place)) in early)
        and not (one.kind == "check-then-act" and one.place in lost)
    )  # fmt: skip
    # Code that is inlined several times finds one thing several times.
    return list({(one.kind, one.place, one.other, one.buffer, one.place or one.message): one for one in kept}.values())


def summary(findings: Sequence[Finding], name: str, files: Mapping[str, str], grid: str) -> str:
    """Return the text of an error for findings, the most serious first."""
    order = sorted(findings, key=lambda one: LEVELS.index(one.level))
    found = [(level, len(list(group))) for level, group in itertools.groupby(one.level for one in order)]
    counts = [f"{count} {level}{'s' * (count > 1)}" for level, count in found]
    return "\n".join((f"kernel `{name}`: {', '.join(counts)} ({grid})", *(one.text(files) for one in order)))
