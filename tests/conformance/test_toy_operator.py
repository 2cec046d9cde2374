"""An operator in a package of its own: the definition, a backend and the tests are found without a shared file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import python_path

KERNEL = """
import numpy as np
from mpsref import codecs
from mpsref.codecs import parameter
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Spec, operation
from mpsref.registry import call

class Scale(Spec):
    factor: float = parameter(codecs.number("f"), default=2.0)

    def forward(self, x, *, out=None, backend=None):
        return call(self, "forward", (x,), out=out, backend=backend)

def bound(problem, x):
    return ErrorBound.of_terms(abs(problem.spec.factor * x), 2)

@operation(Scale, method="forward", inputs={"x": "n h w c"}, results={"y": "n h w c"}, bound=bound)
def scale(problem, x):
    return problem.spec.factor * x
"""

BACKEND = """
import numpy as np
from mpsref import Backend, Operation
from toy.kernel import Scale

def forward(problem, x, out):
    np.multiply(x, x.dtype.type(problem.spec.factor), out=out)

def wrong(problem, x, out):
    forward(problem, x, out)
    out[..., -1] = 0

right = Backend("toy", {Operation(Scale, "forward"): forward})
faulty = Backend("toy:faulty", {Operation(Scale, "forward"): wrong})
"""

FAMILY = """
from hypothesis import strategies as st
from mpsref.conformance.family import Family, KernelTests
from toy.kernel import Scale

def problems(method):
    shapes = st.tuples(*[st.integers(1, 4)] * 4)
    return st.builds(Scale.problems[method], st.builds(Scale, st.sampled_from([0.5, 2.0, -3.0])), shapes)

FAMILY = Family("toy", {Scale: KernelTests(problems, {"forward": ()})})
"""

ENTRY_POINTS = """
[mpsref.kernels]
toy = toy.kernel
[mpsref.backends]
toy = toy.backend:right
toy:faulty = toy.backend:faulty
[mpsref.families]
toy = toy.family:FAMILY
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    files = {"kernel.py": KERNEL, "backend.py": BACKEND, "family.py": FAMILY, "__init__.py": ""}
    (tmp_path / "toy").mkdir()
    for name, text in files.items():
        (tmp_path / "toy" / name).write_text(text)
    about = tmp_path / "toy-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    return os.environ | {"PYTHONPATH": python_path(tmp_path)}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from mpsref.cli import main; main()", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_its_kernel_is_checked(environment: dict[str, str]) -> None:
    ran = run(environment, "check", "-k", "Scale", "-b", "toy", "--jobs", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Scale.forward" in ran.stdout
    assert "1 passed" in ran.stdout


@pytest.mark.slow
def test_its_mistake_is_found_and_replays(environment: dict[str, str]) -> None:
    ran = run(environment, "check", "-k", "Scale", "-b", "toy:faulty", "--jobs", "1")
    assert ran.returncode == 1
    assert "Scale.forward:n1h1w1c1" in ran.stdout + ran.stderr
    case = "Scale.forward:n1h1w1c2,f-3.0,float32,seed=1"
    assert run(environment, "replay", case, "-b", "toy").returncode == 0
    assert run(environment, "replay", case, "-b", "toy:faulty").returncode == 1


@pytest.mark.slow
def test_the_list_of_kernels_has_it(environment: dict[str, str]) -> None:
    assert "Scale.forward" in run(environment, "kernels").stdout
