"""A launch as data, to run in this process or, with limits of time and memory, in one of its own."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as shorten
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import clang
from .clang.device import launch_seconds, positive
from .clang.findings import Finding
from .clang.launcher import prepare
from .clang.lines import Place
from .clang.report import found_error
from .frontend.options import Options
from .frontend.signature import At, Record
from .interface import CompileError, LaunchError

MEMORY = 4096
"""MiB of memory of a process beyond its buffers; ``ANYMETAL_LAUNCH_MEMORY`` is another limit."""

GRACE = 60
"""Seconds that a process has to start, to compile, and to transfer its buffers."""

START = "import sys; sys.path[:] = {!r}; from anymetal import isolation; isolation.serve({})"
ERRORS = {error.__name__: error for error in (LaunchError, CompileError, TypeError, MemoryError)}


class Results(NamedTuple):
    """What a launch did."""

    memory: Mapping[int, NDArray[np.uint8]]
    """The bytes of memory after the launch, for each that may be written."""
    findings: Sequence[Finding]
    written: Sequence[int]
    """The bytes that each buffer was written, if the checks were on."""
    unreached: Sequence[Place] = ()
    """The lines that no thread reached."""
    unread: Mapping[int | str, int] | None = None
    """The bytes of each buffer and of threadgroup memory that nothing read, if that was counted."""


@dataclass(frozen=True)
class Request:
    """A source, how it is compiled, and how its kernels run."""

    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    device: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int | str, Any] = field(default_factory=dict)
    runtime: str = "clang"
    rounding: str = "rtz"
    is_apart: bool = False
    """Whether accesses of several places of the source stay apart, for the columns of findings."""

    def open(self) -> Any:
        """Check the source; return a kernel of the runtime."""
        if self.runtime == "cuda":
            from . import cuda

            return cuda.open_device().kernel(self.source, **self.options)
        if self.runtime == "metalcompute":
            from . import metalcompute

            return metalcompute.Device().kernel(self.source, **self.options)
        prepare(Options.of(**self.options, checks=self.device.get("sanitize") is True))
        return clang.Device(**self.device).kernel(self.source, **self.options)

    def function(self, kernel: Any, name: str) -> Any:
        """Compile a kernel with the constants that the source has, for exact grids."""
        if self.runtime == "metalcompute":
            return kernel.exact(name, self.constants)
        more = {"is_exact": True} if self.runtime == "cuda" else {"is_apart": True} if self.is_apart else {}
        return kernel.function(name, constants=self.constants, **more)


class Call(NamedTuple):
    """A call of ``Function.dispatch`` or ``Function.dispatch_threadgroups``."""

    method: str
    grid: Any
    group: Any
    memory: Sequence[NDArray[np.uint8]]
    written: Sequence[int]
    """The positions in ``memory`` of what may be written."""
    arguments: Sequence[bytes | At | Record]
    """For each buffer its bytes, or a position in ``memory`` (None: not bound), or a struct with pointers to such."""
    local: Any
    seconds: Any

    def run(self, function: Any) -> Results:
        """Launch on copies of the memory; return what is in them."""
        buffers = [function.device.buffer(one) for one in self.memory]
        bound = [one if isinstance(one, bytes) else placed(one, buffers.__getitem__) for one in self.arguments]
        launch = getattr(function, self.method)
        done = launch(self.grid, *bound, threadgroup=self.group, local=self.local, seconds=self.seconds)
        found = {position: _contents(buffers[position]) for position in self.written}
        if not function.device.checks:
            return Results(found, (), ())
        return Results(found, done.findings, done.written, done.unreached, done.unread)


def _contents(buffer: Any) -> NDArray[np.uint8]:
    """Return the bytes of a buffer, copied from a device."""
    return np.asarray(buffer) if hasattr(buffer, "__array__") else np.frombuffer(buffer, np.uint8)


def placed(argument: Any, find: Callable[[Any], Any]) -> Any:
    """Return an argument with ``find(buffer)`` in place of each of its buffers."""
    if isinstance(argument, At):
        return argument if argument.buffer is None else At(find(argument.buffer), *argument[1:])
    targets = {place: placed(one.target, find) for place, one in argument.pointers.items()}
    pointers = {place: one._replace(target=targets[place]) for place, one in argument.pointers.items()}
    return argument._replace(pointers=pointers)


def run(request: Request, name: str, call: Call) -> Results:
    """Run a call of a kernel in a process of its own; raise LaunchError if the process crashes or exceeds a limit."""
    seconds, memory = launch_seconds(call.seconds), positive("ANYMETAL_LAUNCH_MEMORY", None, MEMORY, "MiB")
    with _channel() as channel:  # the process and what it imports may print
        number = channel.fileno()
        command = [sys.executable, "-c", START.format([os.path.abspath(folder) for folder in sys.path], number)]
        try:
            done = subprocess.run(
                command, input=pickle.dumps((request, name, call, seconds, memory)), stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, check=False, timeout=GRACE + 10 * seconds, pass_fds=(number,),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            text = f"kernel `{name}`, in a process of its own, did not end; the process was killed"
            raise LaunchError(text) from None
        channel.seek(0)
        head, data = channel.readline(), channel.read()
    if done.returncode:
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit status {done.returncode}"
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise LaunchError(f"kernel `{name}` ended its process with {how}{': ' + said[-1][:500] if said else ''}")
    try:
        error, results = _read(head, data, call)
    except (ValueError, KeyError, TypeError, IndexError) as wrong:
        raise LaunchError(
            f"kernel `{name}`, in a process of its own, left no results that can be read ({shorten(str(wrong))}): it "
            "may have overwritten the memory of its process"
        ) from None
    if error:
        raise error
    return results


def _channel() -> IO[bytes]:
    """Return a file that a process inherits and writes its results to, in memory if the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("anymetal"), "w+b")
    return tempfile.TemporaryFile()


def _read(head: bytes, data: bytes, call: Call) -> tuple[Exception | None, Results]:
    """Return what a process answered: the error, if it is one, and the results."""
    answer = json.loads(head)
    findings = [Finding.described(row) for row in answer["findings"]]
    unreached = [Place(*row) for row in answer["unreached"]]
    if answer["error"] == LaunchError.__name__:
        return found_error(answer["message"], findings), Results({}, (), ())
    if answer["error"] is not None:
        return ERRORS[answer["error"]](answer["message"]), Results({}, (), ())
    *ends, end = itertools.accumulate((call.memory[position].nbytes for position in call.written), initial=0)
    if len(data) != end:
        raise ValueError(f"{len(data)} bytes of {end}")
    parts = np.split(np.frombuffer(data, np.uint8), ends[1:])
    return None, Results(
        dict(zip(call.written, parts, strict=False)), findings, answer["written"], unreached, dict(answer["unread"])
    )


def serve(channel: int) -> None:
    """Run the call that arrives at the standard input, and write the results to a file that is open.

    The answer is JSON and bytes, since what a kernel has damaged must not be unpickled.
    """
    request, name, call, seconds, memory = pickle.load(sys.stdin.buffer)
    results = list[NDArray[np.uint8]]()
    answer: dict[str, Any] = {
        "error": None,
        "message": "",
        "findings": [],
        "written": [],
        "unreached": [],
        "unread": [],
    }
    try:
        function = request.function(request.open(), name)
        _limit(seconds, memory * 2**20 + function.device.memory(sum(one.nbytes for one in call.memory)))
        done = call.run(function)
        results = [done.memory[position] for position in call.written]
        answer |= {"findings": [one.describe() for one in done.findings], "written": done.written}
        answer["unread"] = [*(done.unread or {}).items()]
        answer["unreached"] = [(one.file, one.line, one.column) for one in done.unreached]
    except tuple(ERRORS.values()) as error:
        name = next(key for key, kind in ERRORS.items() if isinstance(error, kind))
        found = [one.describe() for one in getattr(error, "findings", ())]
        answer |= {"error": name, "message": str(error), "findings": found}
    with os.fdopen(channel, "wb") as stream:
        stream.write(json.dumps(answer).encode() + b"\n")
        for one in results:
            stream.write(one.data)


def _limit(seconds: float, nbytes: float) -> None:
    """Limit this process: it has used some time, and stops on its own before it is killed."""
    import resource

    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    for kind, most in (
        (resource.RLIMIT_CPU, used + seconds + 10),
        (resource.RLIMIT_AS, nbytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        limit = int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard)
        resource.setrlimit(kind, (limit, limit))
