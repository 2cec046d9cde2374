"""The disk cache of compiled kernels: found again by the next process, and left aside when the code has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mpsref_cpu
from mpsref_cpu import cache_fingerprint
from mpsref_cpu.cache_fingerprint import fingerprint

PROGRAM = """
import numpy as np
from mpsref_cpu.convolution import bias_gradient as family
sums = np.empty(2, np.float32)
family.bias_gradient(np.arange(6, dtype=np.float32).reshape(1, 1, 3, 2), sums)
print(sums.tolist(), sum(family._add_pixels.stats.cache_hits.values()))
"""


POOLING = """
import numpy as np
from mpsref import PoolingAverage
from mpsref_cpu.pooling import pooling_average as family
y = PoolingAverage(2, 2, 1).forward(np.ones((1, 4, 4, 1), np.float32), backend=__import__("mpsref_cpu").backend)
print(y.sum(), sum(family._gather.stats.cache_hits.values()))
"""


def outcome(folder: Path, program: str = PROGRAM) -> str:
    """Return what a new process computes with the backend in ``folder``, and how often it finds compiled code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_change_in_another_file_is_noticed(tmp_path: Path) -> None:
    copied = tmp_path / "mpsref_cpu"
    shutil.copytree(Path(mpsref_cpu.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    assert outcome(tmp_path) == "[6.0, 9.0] 0"
    assert outcome(tmp_path) == "[6.0, 9.0] 1"
    helper = copied / "simd" / "half.py"
    text = helper.read_text("utf-8")
    assert text.count("        return pixel\n") == 1
    helper.write_text(text.replace("        return pixel\n", "        return 2 * pixel\n"), "utf-8")
    assert outcome(tmp_path) == "[12.0, 18.0] 0"
    helper.write_text(text, "utf-8")
    os.utime(helper)  # as git does it
    assert outcome(tmp_path).startswith("[6.0, 9.0]")


def test_a_cache_that_names_a_former_class_is_discarded(tmp_path: Path) -> None:
    copied = tmp_path / "mpsref_cpu"
    shutil.copytree(Path(mpsref_cpu.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    assert outcome(tmp_path, POOLING) == "4.0 0"
    assert outcome(tmp_path, POOLING) == "4.0 1"
    family = copied / "pooling" / "pooling_average.py"
    family.write_text(family.read_text("utf-8").replace("Rows", "Raws"), "utf-8")
    assert outcome(tmp_path, POOLING) == "4.0 0"


@pytest.mark.parametrize(
    "part", ["mpsref_cpu.training.dropout", "mpsref_cpu.simd.half", "mpsref_cpu.compiling", "mpsref.kernels.dropout"]
)
def test_what_the_mask_is_made_of(part: str) -> None:
    assert part in cache_fingerprint._sources("mpsref_cpu.training.dropout")


def test_what_runs_kernels_is_no_part_of_them() -> None:
    assert cache_fingerprint._sources("mpsref_cpu.training.dropout").isdisjoint(
        {"mpsref_cpu.threads", "mpsref_cpu.activation.neuron", "mpsref.arguments.arrays"}
    )
    assert fingerprint("mpsref_cpu.training.dropout") != fingerprint("mpsref_cpu.simd.half")
