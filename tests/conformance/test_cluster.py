"""The check on Dask workers: the same report as in one process, whatever happens to the workers.

They check the reference: each process of another backend takes longer to start.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

import mpsref
from mpsref.cli import app
from mpsref.conformance import check, cluster
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.cluster import Cluster
from mpsref.registry import Backend, get_backend
from tests import need, python_path

need("distributed", "Dask is not installed (the extra `cluster`)")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")]

MOVEMENT = [operation_named(name) for name in ("Slice.forward", "Reshape.forward", "Reshape.gradient")]

MODULE = """
import os, signal
import mpsref
from mpsref.conformance import mutants

MOVED, GRADIENT = (mpsref.Slice, "forward"), (mpsref.UpsamplingNearest, "gradient")
POOLING = (mpsref.PoolingL2Norm, "forward")
right = mutants.of_problem(lambda problem: problem)


def spoiled(result, problem, *_):
    rare = problem.spec.kernel_size[1] > 9 and problem.spec.strides[0] == 4 and problem.source_shape[0] == 3
    return result * 1.001 if rare else result


def deadly(problem, *inputs, out):
    if problem.spec.scale[0] > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    right(problem, *inputs, out=out)


rarely_wrong = mpsref.Backend("rarely wrong", {POOLING: mutants.of_result(spoiled)})
dying = mpsref.Backend("dying", {MOVED: right, GRADIENT: deadly})
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a scheduler with two workers, which find the module; it gives a block up after one death."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "faulty_backends.py").write_text(MODULE)
    import dask
    import distributed

    options = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
            started = distributed.LocalCluster(2, **options)
        with started as running:
            yield running.scheduler_address


def test_the_report_is_that_of_one_process(address):
    """With a failure in the second block of one of two backends, which is shrunk on the worker."""
    checked = ["faulty_backends:rarely_wrong", "reference"], [operation_named("PoolingL2Norm.forward")], 150, 6
    alone, several = check(*checked), check(*checked, cluster=Cluster(address))
    assert several == alone
    assert [row.status for row in several.rows] == ["failed", "passed"]
    (failure,) = [failure for failure in several.failures if not failure.layer]
    assert failure.backend == "faulty_backends:rarely_wrong"
    assert np.prod(Case.parse(failure.case).problem.source_shape) <= 32, "not shrunk"


def test_a_case_that_kills_its_worker_is_named(address):
    """The report is that of processes; the other backend and operation pass."""
    two = [operation_named(name) for name in ("UpsamplingNearest.gradient", "Slice.forward")]
    checked = ["reference", "faulty_backends:dying"], two, 5
    several = check(*checked, cluster=Cluster(address))
    assert several == check(*checked, jobs=2)
    assert [row.status for row in several.rows] == ["passed", "failed", "passed", "passed"]
    (failure,) = several.failures
    assert failure.message == "the process that ran it died"
    assert Case.parse(failure.case).problem.spec.scale[0] > 2


@pytest.mark.parametrize("many", [100, 2], ids=["one block at a time", "two blocks at a time"])
def test_a_running_cluster(address, many, monkeypatch):
    monkeypatch.setattr(cluster, "MANY_WORKERS", many)
    report = check("reference", MOVEMENT, 70, 4, cluster=Cluster(address))
    assert report == check("reference", MOVEMENT, 70, 4)


def test_other_versions_are_refused(address, monkeypatch):
    monkeypatch.setattr(mpsref, "__version__", "0.0")
    with pytest.raises(ValueError, match=r"a worker of the cluster has .*, this process .*'0\.0'"):
        check("cpu", MOVEMENT, 1, cluster=Cluster(address))


def test_a_backend_that_workers_lack_is_refused(address):
    with pytest.raises(ValueError, match="backend 'metal' is not available on a worker of the cluster: "):
        check("metal", MOVEMENT, 1, cluster=Cluster(address))
    own = Backend("own", get_backend("cpu").implementations)
    with pytest.raises(ValueError, match="workers of a cluster do not find 'own'"):
        check(own, MOVEMENT, 1, cluster=Cluster(address))


def test_killed_workers_lose_no_result():
    """Of workers that the check starts itself, two are killed while the blocks run, one of them right at the start."""
    alone = check("reference", MOVEMENT, 70, 4)
    done, killed, others = 0, [], {process.pid for process in multiprocessing.active_children()}

    def step():
        nonlocal done
        done += 1
        if done in (1, 120):
            running = (process.pid for process in multiprocessing.active_children())
            killed.append(next(pid for pid in running if pid not in others and pid not in killed))
            os.kill(killed[-1], signal.SIGKILL)

    report = check("reference", MOVEMENT, 70, 4, lambda title, total: step, cluster=Cluster(workers=2))
    assert report == alone
    assert len(killed) == 2
    assert done == 3 * 70
    assert {process.pid for process in multiprocessing.active_children()} <= others


def is_worker(process):
    """Whether a child is there and has threads."""
    try:
        return process.num_threads() > 3
    except psutil.NoSuchProcess:
        return False


def test_ctrl_c_leaves_no_process():
    env = os.environ | {"PYTHONPATH": python_path()}
    check = "check", "-b", "reference", "--cases", "6000", "--workers", "2"
    command = [sys.executable, "-c", "from mpsref.cli import main; main()", *check]
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=env, start_new_session=True)
    everything = set()
    workers = 0
    end = time.monotonic() + 120
    while workers < 2:  # of these the workers, which have threads, and what they start
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
        everything |= {*psutil.Process(process.pid).children(recursive=True)}
        workers = sum(map(is_worker, everything))
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.endswith("mpsref: interrupted\n")
    psutil.wait_procs(everything, timeout=120)
    assert not [child for child in everything if child.is_running()]


def test_without_a_scheduler():
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}), pytest.raises(OSError, match="Timed out"):
        check("cpu", MOVEMENT, 1, cluster=Cluster("tcp://127.0.0.1:9"))


def test_without_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r'pip install -e ".\[cluster\]"'):
        Cluster(workers=2)


def test_ways_to_run_exclude_each_other():
    done = CliRunner().invoke(app, ["check", "--jobs", "2", "--workers", "2"])
    assert str(done.exception) == "--jobs and --workers exclude each other; give one"
