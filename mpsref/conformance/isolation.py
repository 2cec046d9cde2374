"""Isolation: cases run in a child process, so that a crash, an endless loop or a leak costs one case.

The child of an installed backend is a new interpreter. That of any other object is forked: nothing needs to be pickled,
but libraries that have started threads in this process do not have them in the child. Inside of :func:`kept` an
interpreter serves one block of cases after another: a framework is imported once.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, TypeAlias

from mpsref.arguments.parameters import real
from mpsref.arguments.text import cut
from mpsref.conformance import guards
from mpsref.conformance.case import Case
from mpsref.conformance.runner import CRASHED, MEMORY, TIME, Outcome

GIB = 1 << 30

GROWTH = 400 << 20
"""Bytes by which a process may grow after its first block of cases: compilers keep all that they have compiled."""

INTERVAL = 0.1
"""Seconds between two looks at the memory of the child."""

ORPHAN_SECONDS = 5
"""A child ends so long after the time limit if this process could not end it."""

PROGRAM = "import sys; sys.path[:] = {!r}; from mpsref.conformance.isolation import serve_input; serve_input()"
"""What a new interpreter runs, with the path of its modules."""


@dataclass(frozen=True)
class Limits:
    """What an isolated case may take.

    Parameters
    ----------
    seconds : float
        Time of a case. Backends that compile need some of it in their first case.
    gib : float
        Memory in GiB by which the process of the cases may grow in all.

    Raises
    ------
    TypeError, ValueError
        If a limit is not a number, or less than 0.001.
    """

    seconds: float = 60.0
    gib: float = 4.0

    def __post_init__(self) -> None:
        """Check the limits."""
        real("seconds", self.seconds, low=0.001)
        real("gib", self.gib, low=0.001)


Run: TypeAlias = Callable[..., Any]
"""``run(case, of_layer)`` runs a case; any other function of :meth:`IsolatedRunner.ask`."""

_pipes: set[Connection] = set()
"""The ends of this process, which children close: a child ends when nothing else holds the end of its own pipe."""


class IsolatedRunner:
    """Runs cases in a child process, which starts with the first case, and again after each death.

    Parameters
    ----------
    run
        Runs a case; it is called in the child.
    limits
        What a case may take.
    new
        Whether the child is a new interpreter, to which ``run`` is pickled, and not a fork of this process.

    Raises
    ------
    ValueError
        If this system has no ``fork``.
    """

    def __init__(self, run: Run, limits: Limits, new: bool = False) -> None:
        """Check that there is ``fork``; start nothing."""
        if not hasattr(os, "fork"):
            raise ValueError(f"isolation needs fork, which {platform.system()} does not have; check with isolate=False")
        self._run, self._limits, self._new = run, limits, new
        self.seconds = limits.seconds
        """The time limit of the next case."""
        self.slowest = 0.0
        """Seconds of the slowest case that ended by itself."""
        self._child = 0
        self._count = 0
        self._first = 0  # bytes of the child after its first block
        self._pipe: Connection | None = None
        self._printed: IO[bytes]

    def __call__(self, case: Case, of_layer: bool) -> Outcome:
        """Return the outcome of a case; "crashed", "time" and "memory" are kinds of failures."""
        outcome: Outcome = self.ask(case, of_layer)
        return outcome

    def ask(self, *arguments: Any) -> Any:
        """Return what the function returns in the child, or the outcome "failed" if the child did not end it."""
        if self._pipe is not None and not self._count and self._pipe.poll():  # it has died since its last block
            self.close()
        pipe = self._pipe or self._start()
        self._count += 1
        begin = time.monotonic()
        try:
            pipe.send((arguments, self.seconds))
            while not pipe.poll(INTERVAL):
                if time.monotonic() > begin + self.seconds:
                    self.close()
                    return Outcome("failed", kind=TIME, message=f"no result after {self.seconds:g} s")
                if self._has_grown():
                    return self._out_of_memory()
            outcome: Any = pipe.recv()
        except (EOFError, ConnectionError):
            printed = self._new_output()
            return _died(self.close(), printed)
        sys.stderr.write(self._new_output())
        self.slowest = max(self.slowest, time.monotonic() - begin)
        if isinstance(outcome, Exception):
            raise outcome
        return self._out_of_memory() if self._has_grown() else outcome

    def _has_grown(self) -> bool:
        return anonymous_memory(self._child) > self._before + self._limits.gib * GIB

    def _out_of_memory(self) -> Outcome:
        message = f"the process grew by more than {self._limits.gib:g} GiB, in its case number {self._count}"
        self.close()
        return Outcome("failed", kind=MEMORY, message=message)

    def close(self) -> int:
        """End the child, if there is one; return its exit status, which is negative for a signal."""
        if self._pipe is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)  # without effect on the status of one that is dead
        _pipes.discard(self._pipe)
        self._pipe.close()
        self._pipe = None
        sys.stderr.write(self._new_output())
        self._printed.close()
        return os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])

    def end_block(self) -> bool:
        """Prepare for another block of cases, as if the child were new; return whether this is possible."""
        if not self._new:
            return False
        self.seconds, self.slowest, self._count = self._limits.seconds, 0.0, 0
        if self._pipe is not None:
            self._before = anonymous_memory(self._child)
            self._first = self._first or self._before
            if self._before > self._first + GROWTH:
                self.close()
        return True

    def _new_output(self) -> str:
        """Return what the child has printed to its standard error since the last call."""
        if not (size := os.fstat(self._printed.fileno()).st_size):
            return ""
        text = os.pread(self._printed.fileno(), size, 0).decode(errors="replace")
        self._printed.seek(0)  # of the child, too
        self._printed.truncate()
        return text

    def _start(self) -> Connection:
        ours, theirs = multiprocessing.Pipe()
        self._printed = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open as long as the child lives
        self._child = self._spawn(theirs) if self._new else self._fork(ours, theirs)
        theirs.close()
        _pipes.add(ours)
        self._pipe, self._count, self._first = ours, 0, 0
        if self._new:
            try:
                ours.send(self._run)
                ours.recv()
            except (EOFError, ConnectionError):
                how = _how(self.close())
                raise RuntimeError(f"the interpreter of isolated cases did not start: {how}; see its output") from None
        self._before = anonymous_memory(self._child)
        return ours

    def _spawn(self, theirs: Connection) -> int:
        """Start an interpreter with a pipe as its standard input."""
        command = [sys.executable, "-c", PROGRAM.format(sys.path)]
        files = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), (os.POSIX_SPAWN_DUP2, self._printed.fileno(), 2)]
        return os.posix_spawn(command[0], command, os.environ, file_actions=files)

    def _fork(self, ours: Connection, theirs: Connection) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which the child does not have
            child = os.fork()
        if child == 0:
            status = 1
            try:
                for pipe in (*_pipes, ours):
                    pipe.close()
                os.dup2(self._printed.fileno(), 2)
                _serve(theirs, self._run)
                status = 0
            finally:
                os._exit(status)
        return child


_idle: dict[Hashable, list[IsolatedRunner]] = {}
_keepers = 0
_lock = threading.Lock()
"""Of the number of keepers, which may be in several threads."""


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep interpreters for the next blocks of cases; the outermost ``with`` block ends them."""
    global _keepers
    with _lock:
        _keepers += 1
    try:
        yield
    finally:
        with _lock:
            _keepers -= 1
            ended = [] if _keepers else [runner for runners in _idle.values() for runner in runners]
            if ended:
                _idle.clear()
        for runner in ended:
            runner.close()


@contextlib.contextmanager
def borrowed(key: Hashable, make: Callable[[], IsolatedRunner]) -> Iterator[IsolatedRunner]:
    """Return a runner for a block of cases, one of an earlier block with this key if there is one."""
    try:
        runner = _idle[key].pop()
    except (KeyError, IndexError):
        runner = make()
    try:
        yield runner
    except BaseException:  # it may have a case to answer
        runner.close()
        raise
    if _keepers and runner.end_block():
        _idle.setdefault(key, []).append(runner)
    else:
        runner.close()


def serve_input() -> None:
    """Run cases in a new interpreter, whose standard input is the pipe."""
    pipe = Connection(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    run = pipe.recv()
    pipe.send(None)
    _serve(pipe, run)
    os._exit(0)


def _serve(pipe: Connection, run: Run) -> None:
    """Run cases in the child until the pipe is closed."""
    import resource

    guards.close_pages()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    while True:
        try:
            arguments, seconds = pipe.recv()
        except (EOFError, ConnectionError):
            return
        signal.alarm(math.ceil(seconds) + ORPHAN_SECONDS)
        try:
            outcome: Any = run(*arguments)
        except Exception as error:
            outcome = error
        signal.alarm(0)
        sys.stdout.flush()
        pipe.send(outcome)


def _how(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"


def _died(status: int, printed: str) -> Outcome:
    how = _how(status)
    hint = "; a system that is out of memory ends processes by SIGKILL" if status == -signal.SIGKILL else ""
    lines = printed.strip().splitlines()
    said = f"; it printed {cut(lines[0])}" if lines else ""
    return Outcome("failed", kind=f"{CRASHED} {how}", message=f"the process that ran it ended by {how}{hint}{said}")


def anonymous_memory(process: int) -> int:
    """Return the bytes of memory of a process, without those of files where the system counts them."""
    counts = Path(f"/proc/{process}/statm")
    if counts.exists():
        _, resident, shared, *_ = map(int, counts.read_text().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    found = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=False)
    return int(found.stdout or 0) * 1024
