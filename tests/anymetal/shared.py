"""Two kernels, and a fresh interpreter, for tests of several runtimes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from tests import python_path

ROOT = Path(__file__).parents[2]

COPY = """
#include <metal_stdlib>
struct Size { uint n, unused; };
kernel void copy(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                 constant Size& size [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    if (i < size.n) out[i] = x[i];
}"""
SUMS = """
#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(128)]]
kernel void sums(device const int* x [[buffer(0)]], device int* out [[buffer(1)]],
                 uint t [[thread_index_in_threadgroup]], uint i [[thread_position_in_grid]],
                 uint group [[threadgroup_position_in_grid]]) {
    threadgroup int tile[128];
    tile[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint s = 64; s > 0; s /= 2) {
        if (t < s) tile[t] += tile[t + s];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t == 0) out[group] = tile[0];
}"""


def size(n: int) -> Any:
    """Return the struct ``Size`` of the first one."""
    return np.array([n, 0], np.uint32)


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a process that imports the packages of this one."""
    return os.environ | {"PYTHONPATH": python_path()} | changes


def python(code: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=False, timeout=120, env=environment(**changes),
    )  # fmt: skip
