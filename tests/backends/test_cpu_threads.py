"""The cpu backend among threads, processes and file systems: same bits, no hang, no crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from mpsref import Concatenation, Convolution, PoolingAverage
from mpsref.arguments.arrays import Array
from mpsref.backend import LazyImplementations
from mpsref.registry import get_backend
from mpsref_cpu import backend, spin_pool, threads
from mpsref_cpu.compiling import compiled
from mpsref_cpu.data_movement import gather
from tests import python_path

POOL = PoolingAverage(3, 2, edge_mode="clamp")
SHAPE = 8, 64, 64, 48
"""6 MB: enough work for several threads."""


def image(seed: int, *shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def forward_and_gradient(seed: int, dtype: str = "float32") -> list[bytes]:
    x, g = image(seed, *SHAPE, dtype=dtype), image(seed + 1, 8, 32, 32, 48, dtype=dtype)
    results = POOL.forward(x, backend=backend), POOL.gradient(g, SHAPE, backend=backend)
    return [result.tobytes() for result in results]


@pytest.fixture
def set_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets how many threads a kernel may use, on any machine."""
    return lambda count: monkeypatch.setattr(threads, "thread_count", lambda: count)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bits_do_not_depend_on_the_number_of_threads(set_threads: Any, dtype: str) -> None:
    set_threads(1)
    alone = forward_and_gradient(0, dtype)
    for count in (2, 3, 7):
        set_threads(count)
        for _ in range(5):
            assert forward_and_gradient(0, dtype) == alone


@compiled
def mark(begin: int, end: int, seen: Any) -> None:
    """Count each row once."""
    for row in range(begin, end):
        seen[row] += 1


@compiled
def add_to(begin: int, end: int, values: Any, sums: Any) -> None:
    for row in range(begin, end):
        sums[row] += values[row]


@compiled
def meet(begin: int, end: int, inside: Any, met: Any) -> None:
    """Wait until both parts have begun; give up after some seconds."""
    spin_pool._store(inside, begin, 1)
    for _ in range(1_000_000_000):
        if spin_pool._load(inside, 0) + spin_pool._load(inside, 1) == 2:
            met[begin] = 1
            break


@compiled
def fail(begin: int, end: int, row: int, seen: Any) -> None:
    """Raise an exception at one row."""
    for k in range(begin, end):
        seen[k] += 1
        if k == row:
            raise ValueError("that row")


def helper_met_caller() -> bool:
    """Run a kernel whose two parts wait for each other in two threads.

    It can fail where other processes keep the processor busy: a helper goes to sleep if the caller is interrupted for
    some milliseconds before it hands over the work, and the caller then computes alone.
    """
    inside, met = np.zeros((2, 2), np.int64)
    threads.for_rows(meet, 2, inside, met, nbytes=2 * threads.GRAIN)
    return met.tolist() == [1, 1]


def test_the_kernel_runs_in_several_threads(set_threads: Any) -> None:
    set_threads(2)
    assert any(helper_met_caller() for _ in range(50))


def test_little_work_stays_in_the_calling_thread(set_threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    set_threads(2)
    monkeypatch.setattr(threads, "_shared", None)
    seen = np.zeros(100, np.int64)
    threads.for_rows(mark, 100, seen, nbytes=2 * threads.GRAIN - 1)
    assert seen.all()


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 1000])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_row_is_computed_once(set_threads: Any, rows: int, count: int) -> None:
    set_threads(count)
    for nbytes in (10 * threads.GRAIN, 1000 * threads.GRAIN):
        seen = np.zeros(rows, np.int64)
        threads.for_rows(mark, rows, seen, nbytes=nbytes)
        assert (seen == 1).all()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_steps_follow_each_other(set_threads: Any, count: int) -> None:
    set_threads(count)
    first, second = np.zeros(50, np.int64), np.zeros(50, np.int64)
    later = (add_to, (first, second)), (mark, (first,))
    threads.for_rows(mark, 50, first, nbytes=10 * threads.GRAIN, then=later)
    assert (first == 2).all()
    assert (second == 1).all(), "the second step saw what the first one wrote, and not what the third did"


class Scale(NamedTuple):
    """Numbers of several types, and an array between them."""

    flag: bool
    factors: Any
    shift: np.float32


@compiled
def spread(begin: int, end: int, nothing: Any, scale: Any, bits: Any, nested: Any, sums: Any, offset: float) -> None:
    for row in range(begin, end):
        value = scale.factors[row % 3, 1] * scale.shift + offset + bits[row % 4] + nested[0][1] + nested[1][0][row]
        sums[row] += value if scale.flag else -value


@pytest.mark.parametrize("flag", [False, True])
def test_threads_get_arguments_of_all_types(set_threads: Any, flag: bool) -> None:
    rows, scale = 40, Scale(flag, np.arange(6, dtype=np.float32).reshape(3, 2), np.float32(0.5))
    nested = ((1, 2.5), (np.arange(rows),))
    results = []
    for count in (1, 2):
        set_threads(count)
        sums = np.ones(rows)
        threads.for_rows(
            spread, rows, (), scale, np.arange(4, dtype=np.uint8), nested, sums, 1.25, nbytes=100 * threads.GRAIN
        )
        results.append(sums.tolist())
    assert results[0] == results[1]
    expected = [0.5 * (2 * (k % 3) + 1) + 1.25 + k % 4 + 2.5 + k for k in range(rows)]
    assert results[0] == [1 + (value if flag else -value) for value in expected]


def test_kernels_share_what_hands_them_to_threads(set_threads: Any) -> None:
    """Nothing but the kernel is compiled for new types of arguments."""
    set_threads(2)
    for kind in (np.int16, np.uint32):
        threads.for_rows(mark, 100, np.zeros(100, kind), nbytes=100 * threads.GRAIN)
    run_job: Any = spin_pool.run_job
    assert len(run_job.signatures) == 1


@pytest.mark.parametrize("row", [0, 50, 99])
def test_a_failure_in_any_part_reaches_the_caller(set_threads: Any, row: int) -> None:
    set_threads(2)
    seen = np.zeros(100, np.int64)
    with pytest.raises(MemoryError, match="workspace of fail"):
        threads.for_rows(fail, 100, row, seen, nbytes=10 * threads.GRAIN)
    later = seen.copy()
    time.sleep(0.01)
    assert (seen == later).all(), "a part was still running when the exception arrived"
    assert (seen <= 1).all(), "and none is computed twice"
    assert forward_and_gradient(0)  # and the threads go on working


def test_busy_helpers_are_not_waited_for(set_threads: Any) -> None:
    set_threads(2)
    expected = forward_and_gradient(0)
    assert threads._team is not None
    threads._team.pool[spin_pool.OWNED] = 1  # as if another thread had work for them that lasts forever
    try:
        results: list[list[bytes]] = []
        caller = threading.Thread(target=lambda: results.append(forward_and_gradient(0)), daemon=True)
        caller.start()
        caller.join(30)
    finally:
        threads._team.pool[spin_pool.OWNED] = 0
    assert results == [expected]


def test_sleeping_helpers_wake_up(set_threads: Any) -> None:
    set_threads(2)
    assert any(helper_met_caller() for _ in range(50))
    assert threads._team is not None
    woken = 0
    for _ in range(50):
        deadline = time.monotonic() + 30
        while not threads._team.asleep and time.monotonic() < deadline:
            time.sleep(0.001)
        assert threads._team.asleep == {0}
        woken += helper_met_caller()
        if woken == 10:
            return
    pytest.fail(f"a sleeping helper took part in {woken} of 50 calls")


def test_numba_sets_the_number_of_threads() -> None:
    most = numba.config.NUMBA_NUM_THREADS
    numba.set_num_threads(1)
    try:
        assert threads.thread_count() == 1
        assert backend.device() == "CPU, 1 thread"
    finally:
        numba.set_num_threads(most)
    assert threads.thread_count() == most


def test_many_threads_at_once() -> None:
    calls = [(seed, dtype) for seed in range(2) for dtype in ("float32", "float16")]
    expected = [forward_and_gradient(*call) for call in calls]
    with ThreadPoolExecutor(8) as users:
        for k, result in enumerate(users.map(lambda k: forward_and_gradient(*calls[k % 4]), range(16))):
            assert result == expected[k % 4]


# forks


def in_child(work: Any, seconds: float = 60) -> int:
    """Run ``work`` in a forked child and return its exit status; a child that hangs is killed and fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: forking with threads is what we test
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail(f"the forked child did not finish within {seconds} s")


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")


@needs_fork
def test_a_forked_child_computes(set_threads: Any) -> None:
    set_threads(2)
    expected = forward_and_gradient(0)  # the parent has its threads now

    def child() -> bool:
        inherited = threads._team
        return forward_and_gradient(0) == expected and inherited is None and threads._team is not None

    for _ in range(3):
        assert in_child(child) == 0
    assert forward_and_gradient(0) == expected
    assert in_child(lambda: in_child(child) == 0) == 0, "a grandchild"


@needs_fork
def test_a_forked_child_computes_a_convolution(set_threads: Any) -> None:
    set_threads(2)
    conv, x, weights = Convolution(3), image(0, 4, 60, 60, 16), image(1, 32, 3, 3, 16)

    def bits() -> list[bytes]:
        y = conv.forward(x, weights, backend=backend)
        dx = conv.gradient_data(y, weights, x.shape, backend=backend)
        return [one.tobytes() for one in (y, dx, *conv.gradient_weights(y, x, backend=backend))]

    parent = bits()
    assert in_child(lambda: bits() == parent) == 0
    assert bits() == parent


@needs_fork
def test_forking_while_another_thread_starts_helpers(set_threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other thread holds the lock of the helpers for longer than usual."""
    set_threads(2)
    expected, start, has_lock = forward_and_gradient(0), threads._Team._start, threading.Event()

    def start_slowly(team: threads._Team, helper: int) -> None:
        has_lock.set()
        time.sleep(0.2)
        start(team, helper)

    monkeypatch.setattr(threads, "_team", None)
    monkeypatch.setattr(threads._Team, "_start", start_slowly)
    other = threading.Thread(target=forward_and_gradient, args=(1,))
    other.start()
    assert has_lock.wait(60)
    assert in_child(lambda: forward_and_gradient(0) == expected, seconds=20) == 0
    other.join()


@pytest.mark.slow
@needs_fork
def test_forking_while_another_thread_compiles() -> None:
    stop = threading.Event()

    def compile_more() -> None:
        while not stop.is_set():
            numba.njit(lambda x: x + 1)(1.0)

    other = threading.Thread(target=compile_more)
    other.start()
    try:
        for _ in range(2):  # without the lock the first one hangs
            assert in_child(lambda: numba.njit(lambda x: x + 2)(1.0) == 3) == 0
    finally:
        stop.set()
        other.join()


@pytest.mark.slow
@needs_fork
def test_forking_while_another_thread_imports_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "slow_backend"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pooling_average.py").write_text(
        "import time; from mpsref import PoolingAverage\n"
        "time.sleep(0.3); IMPLEMENTATIONS = {(PoolingAverage, 'forward'): print}"
    )
    monkeypatch.syspath_prepend(tmp_path)
    implementations = LazyImplementations("slow_backend")
    other = threading.Thread(target=lambda: implementations[PoolingAverage, "forward"])
    other.start()
    while "slow_backend.pooling_average" not in sys.modules:
        time.sleep(0.001)
    assert in_child(lambda: implementations[PoolingAverage, "forward"] is print) == 0
    other.join()


FORKS_EARLY = """
import faulthandler, os, signal, sys, threading, time
import numpy as np, mpsref
x = np.ones((2, 8, 8, 4), np.float32)
def use(): return mpsref.PoolingMax(2, 2).forward(x, backend=sys.argv[1]).sum()
other = threading.Thread(target=use)
begin = time.monotonic()
other.start()
children = {}
for delay in (0, 0.02, 0.1, 0.3):
    time.sleep(max(0, begin + delay - time.monotonic()))
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        os._exit(int(use() != 128))
    children[child] = delay
other.join()
failed = [delay for child, delay in children.items() if os.waitpid(child, 0)[1]]
sys.exit(f"forked after {failed} s" if failed else 0)
"""


@pytest.mark.slow
@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["cpu", "metal:clang"])
def test_a_fork_during_the_first_call(name: str) -> None:
    """A child computes whenever it was forked, also while another thread imported or compiled."""
    if reason := get_backend(name).unavailable():
        pytest.skip(reason)
    command = [sys.executable, "-W", "ignore", "-c", FORKS_EARLY, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_first_call_imports_only_where_a_fork_waits() -> None:
    """In sections that enter ``importing``, or under numba's lock."""
    code = """
import sys, threading
from anymetal.fork_safe import importing
class Spy:
    def find_spec(self, name, path=None, target=None):
        numba = sys.modules.get("mpsref_cpu._numba")
        if threading.get_ident() not in importing._inside and not (numba and numba.compiler_lock.is_locked()):
            print(name, sys.argv[1:])
import numpy as np, mpsref
x = np.ones((8, 64, 64, 16), np.float32)
sys.meta_path.insert(0, Spy())
for name in ("cpu", "metal:clang"):
    if mpsref.registry.get_backend(name).unavailable() is None:
        mpsref.PoolingMax(2, 2).forward(x, backend=name)
        mpsref.SoftMax().forward(x, backend=name)
"""
    assert run(code) == ""


# new processes


def run(code: str, **environment: str) -> str:
    known = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    known |= {"PYTHONPATH": python_path()} | environment
    done = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.strip()


USE = """
import numpy as np, mpsref
from mpsref_cpu import backend
x = np.ones((8, 64, 64, 16), np.float32)
print(mpsref.PoolingAverage(2, 2, 1).forward(x, backend=backend).sum())
"""


@pytest.mark.slow
def test_a_thread_that_outlives_the_main_thread() -> None:
    """While the interpreter ends it starts no new threads; a kernel called then runs in the calling thread."""
    late = """
import threading, time
def late():
    threading.main_thread().join()
    time.sleep(0.2)
    print(mpsref.PoolingAverage(2, 2, 1).forward(x, backend=backend).sum())
threading.Thread(target=late).start()
"""
    assert run(USE + late).split() == ["131072.0"] * 2
    assert run(USE.replace("print(", "(").rstrip() + late) == "131072.0", "no thread had been started before"


def test_asking_for_the_device_starts_no_threads() -> None:
    code = "import threading, numba, mpsref_cpu; print(mpsref_cpu.backend.device()); print(threading.active_count())"
    code += "\ntry: numba.threading_layer()\nexcept ValueError: print('numba idle')"
    device, count, layer = run(code, NUMBA_NUM_THREADS="2").splitlines()
    assert (device, count, layer) == ("CPU, 2 threads", "1", "numba idle")


@pytest.mark.parametrize("channels", [(3, 1, 2), (64, 48, 130)])
def test_concatenation_is_one_job(monkeypatch: pytest.MonkeyPatch, channels: tuple[int, ...]) -> None:
    """It is, with short and with long pixels, float16 beside float32."""
    xs = [image(c, 2, 100, 150, c) for c in channels]
    xs[1] = xs[1].astype(np.float16)
    jobs: list[str] = []

    def counting(kernel: Any, *arguments: Any, **keywords: Any) -> None:
        jobs.append(kernel.__name__)
        threads.for_rows(kernel, *arguments, **keywords)

    monkeypatch.setattr(gather, "for_rows", counting)
    tight = Concatenation(channel_alignment=1)
    y = tight.forward(xs, backend="cpu")
    assert (y == np.concatenate(xs, axis=3)).all()
    slices = tight.gradient(y, xs, backend="cpu")
    assert all((dx == x).all() for dx, x in zip(slices, xs, strict=True))
    assert len(jobs) == 2
