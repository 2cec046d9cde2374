"""A backend by somebody else: a real package, built and installed by pip, found next to the built-in backends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import python_path

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "their-backend"
version = "1.0"

[project.entry-points."mpsref.backends"]
theirs = "their_backend:backend"
broken = "their_backend.missing:backend"

[tool.hatch.build.targets.wheel]
only-include = ["their_backend.py"]
"""

MODULE = '''
"""Average pooling as two small matrix products."""

import numpy as np
import mpsref


def indicator(runs, length):
    """1 where a result (row) has a term (column)."""
    matrix = np.zeros((len(runs.first), length))
    for row, first, count in zip(matrix, runs.first, runs.count):
        row[first : first + runs.step * count : runs.step] = 1
    return matrix


def average(problem, source, out):
    y, x = (indicator(runs, length) for runs, length in zip(problem.runs(), source.shape[1:3]))
    y_scale, x_scale = problem.reciprocals()
    if problem.method == "forward":
        y, x = y * y_scale[:, None], x * x_scale[:, None]
    else:
        y, x = y * y_scale, x * x_scale
    out[...] = np.einsum("ah,bw,nhwc->nabc", y, x, source.astype(np.float64), optimize=True)


FORWARD, GRADIENT = ((mpsref.PoolingAverage, method) for method in ("forward", "gradient"))
backend = mpsref.Backend("theirs", {FORWARD: average, GRADIENT: average}, device=lambda: "their device", fast_math=True)

'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package is installed in."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    (source / "pyproject.toml").write_text(PROJECT, "utf-8")
    (source / "their_backend.py").write_text(MODULE, "utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*pip, "--target", str(target), str(source)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return target


def command(installed: Path, *arguments: str) -> tuple[int, Any]:
    """Run ``mpsref ... --json`` where the package is on the path."""
    done = subprocess.run(
        [sys.executable, "-c", "from mpsref.cli import main; main()", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"PYTHONPATH": python_path(installed)},
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_it_is_listed_next_to_the_others(installed: Path) -> None:
    status, rows = command(installed, "backends")
    assert status == 0
    known = {row["name"]: row for row in rows}
    assert {*known} >= {"reference", "cpu", "metal", "metal:clang", "theirs", "broken"}
    assert known["theirs"] == {"name": "theirs", "available": True, "device": "their device", "reason": ""}
    assert not known["broken"]["available"]
    assert "cannot be loaded: ModuleNotFoundError" in known["broken"]["reason"]


@pytest.mark.slow
def test_it_is_checked_like_the_others(installed: Path) -> None:
    status, report = command(installed, "check", "--backend", "theirs", "--kernel", "PoolingAverage", "--cases", "20")
    assert status == 0
    assert [(row["operation"], row["status"], row["runtime"]) for row in report["rows"]] == [
        ("PoolingAverage.forward", "passed", "their device"),
        ("PoolingAverage.gradient", "passed", "their device"),
    ]
    assert all(row["cases"] >= 20 for row in report["rows"])
