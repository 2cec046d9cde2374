"""A third party's three lines, in a real pytest run of their own."""

import re
import subprocess
import sys

import pytest

THREE_LINES = """
from mpsref.conformance import conformance_test
from my_backend import backend
test_mine = conformance_test(backend)
"""

BACKEND = """
import mpsref
from mpsref.conformance.mutants import correct

def forward(problem, x, out):
    out[...] = correct(problem, x) {error}

backend = mpsref.Backend("mine", {{(mpsref.Slice, "forward"): forward}})
"""


def _pytest(folder, error=""):
    (folder / "my_backend.py").write_text(BACKEND.format(error=error))
    (folder / "test_mine.py").write_text(THREE_LINES)
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--mpsref-cases=10", "--mpsref-seed=3"]
    plugin = ["-p", "mpsref.conformance.pytest_plugin"] if _not_installed() else []
    return subprocess.run(
        [*command, *plugin, "test_mine.py", "-k", "Slice"], cwd=folder, capture_output=True, text=True, timeout=300
    )


def _not_installed():
    from importlib import metadata

    return not any(point.name == "mpsref" for point in metadata.entry_points(group="pytest11"))


def test_a_right_backend(tmp_path):
    run = _pytest(tmp_path)
    assert run.returncode == 0, run.stdout
    assert re.search(r"1 passed, \d+ skipped", run.stdout)
    assert "backend 'mine' does not implement Slice.gradient" in run.stdout


@pytest.mark.slow
def test_a_wrong_backend(tmp_path):
    run = _pytest(tmp_path, error="* 1.0001")
    assert run.returncode == 1
    assert "1 failed" in run.stdout
    assert "replay: mpsref replay 'Slice.forward:n1h1w1c1" in run.stdout
