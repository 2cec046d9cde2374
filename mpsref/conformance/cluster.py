"""The check on a Dask cluster: blocks of cases are sent to its workers, whose rows come back.

A block whose worker is lost runs again on another one. One whose workers are lost several times is a failure, which
names the case that was running.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import hypothesis.errors

import mpsref
from mpsref import registry
from mpsref.conformance import isolation
from mpsref.conformance.blocks import CheckTask, Schedule, Task, Watch, unwatched
from mpsref.conformance.processes import advance, note_case, rows_of_dead, uninterrupted
from mpsref.conformance.report import Row
from mpsref.errors import install

if TYPE_CHECKING:
    from distributed import Client, Future

ARRIVAL_SECONDS = 60
"""How long to wait for the first worker of a cluster."""

MANY_WORKERS = 100
"""From this number of workers on, several blocks are sent at a time: a scheduler handles some 250 messages a second."""

ATTEMPTS = 3
"""How often a block that the scheduler has given up is sent again if it had not begun when its workers were lost."""

_turn = threading.Lock()  # Hypothesis draws from global state: blocks of one process run one after the other


class Cluster:
    """A Dask cluster that checks blocks of cases.

    Parameters
    ----------
    scheduler : str
        The address of a running scheduler, such as ``"tcp://10.0.0.1:8786"``. Its workers need the same versions of
        mpsref and Hypothesis, and the packages of the backends under test. A worker process checks one block at a
        time, whatever its number of threads.
    workers : int
        Without a scheduler, the number of worker processes that are started on this machine.

    Raises
    ------
    ValueError
        If Dask is not installed.
    """

    def __init__(self, scheduler: str = "", workers: int = 1) -> None:
        """Check that Dask is installed; connect later."""
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise ValueError(f"a cluster needs Dask: {install('cluster')}") from None
        self._scheduler, self._workers = scheduler, workers

    def run(self, check: CheckTask, schedule: Schedule, step: Callable[[], None], watch: Watch = unwatched) -> None:
        """Check all blocks of a schedule; call ``step`` for each random case."""
        from distributed import KilledWorker, as_completed

        folder = f"mpsref-{uuid4().hex}"
        sent: dict[Future, tuple[list[Task], int]] = {}
        with self._client() as client:
            done = as_completed(loop=client.loop)

            def send(tasks: list[Task], attempt: int = 0) -> None:
                future = client.submit(_check, check, tasks, _versions(), folder, pure=False)
                sent[future] = tasks, attempt
                done.add(future)

            try:
                workers, counted = 0, 0.0
                while schedule.waiting or sent:
                    if time.monotonic() > counted + 1:  # workers come and go
                        workers, counted = len(client.nthreads()), time.monotonic()
                    # Blocks that wait on a worker would be blamed, too, when those before them kill the worker.
                    while schedule.waiting and len(sent) < max(workers, 1):
                        send(schedule.take_several(1 + workers // MANY_WORKERS))
                    future = next(done)
                    tasks, attempt = sent.pop(future)
                    try:
                        found = future.result()
                    except KilledWorker:
                        single = [task._replace(backends=(name,)) for task in tasks for name in task.backends]
                        if len(single) > 1:
                            for task in single:
                                send([task])
                            continue
                        client.wait_for_workers(1, timeout=ARRIVAL_SECONDS)
                        read = client.run(_noted, folder, single[0], on_error="ignore").values()
                        case = next(filter(None, read), "")
                        if not case and attempt < ATTEMPTS:
                            send(single, attempt + 1)
                            continue
                        found = [rows_of_dead(single[0], case)]
                    except ImportError as error:
                        raise ValueError(
                            f"a worker of the cluster lacks a package: {error}; install it there"
                        ) from error
                    for task, rows in zip(tasks, found, strict=True):
                        schedule.add(task, rows)
                        advance(step, task)
                        watch([one.operation for tasks, _ in sent.values() for one in tasks], rows)
            finally:
                client.cancel([*sent], force=True)
                client.run(_forget, folder, on_error="ignore")

    @contextlib.contextmanager
    def _client(self) -> Iterator[Client]:
        """Connect to the scheduler, or start workers; end the workers whatever happens."""
        from distributed import Client, LocalCluster

        if self._scheduler:
            with Client(self._scheduler, set_as_default=False) as client:
                try:
                    client.wait_for_workers(1, timeout=ARRIVAL_SECONDS)
                except TimeoutError:
                    start = f"start some with: dask worker {self._scheduler}"
                    raise ValueError(f"the cluster at {self._scheduler} has no workers; {start}") from None
                yield client
            return
        with uninterrupted():
            cluster = LocalCluster(
                n_workers=self._workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=None,
                dashboard_address=":0",
                silence_logs=logging.CRITICAL,
            )
        with cluster, Client(cluster, set_as_default=False) as client:
            try:
                yield client
            except BaseException:
                _kill(worker.pid for worker in cluster.workers.values())
                raise


def _kill(pids: Iterable[int | None]) -> None:
    """Kill what workers have started, such as compilers; the workers themselves end with their cluster."""
    import psutil

    for pid in filter(None, pids):
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(pid).children(recursive=True):
                child.kill()


# --- on the workers ---------------------------------------------------------------------------------------------------


def _check(check: CheckTask, tasks: list[Task], versions: dict[str, str], folder: str) -> list[list[Row]]:
    """Check blocks in a worker, with the current case in a file."""
    if versions != _versions():
        raise ValueError(f"a worker of the cluster has {_versions()}, this process {versions}; install the same there")
    for backend in registry.get_backends({name: None for task in tasks for name in task.backends}):
        if reason := backend.unavailable():
            raise ValueError(f"backend {backend.name!r} is not available on a worker of the cluster: {reason}")
    found = []
    with isolation.kept():
        for task in tasks:
            note = _note(folder, task)
            note.parent.mkdir(exist_ok=True)
            with _turn, warnings.catch_warnings():
                # Another thread of the worker uses the module random meanwhile; Hypothesis takes it for a strategy.
                warnings.simplefilter("ignore", hypothesis.errors.HypothesisDeprecationWarning)
                found.append(check(task, functools.partial(note_case, note)))
            note.unlink(missing_ok=True)
    return found


def _versions() -> dict[str, str]:
    """Return the versions of the packages that determine the cases."""
    return {"mpsref": mpsref.__version__, "hypothesis": hypothesis.__version__}


def _note(folder: str, task: Task) -> Path:
    name = "-".join((task.operation, str(task.position), *task.backends))
    return Path(tempfile.gettempdir()) / folder / name.replace("/", "-")


def _noted(folder: str, task: Task) -> str:
    """Return the case at which this machine lost a worker that ran the block, or nothing."""
    note = _note(folder, task)
    return note.read_text("utf-8") if note.exists() else ""


def _forget(folder: str) -> None:
    shutil.rmtree(Path(tempfile.gettempdir()) / folder, ignore_errors=True)
