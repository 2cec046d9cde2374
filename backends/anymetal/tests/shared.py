"""Kernels, and a fresh interpreter, for tests of several runtimes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anymetal

ROOT = Path(__file__).parents[1]
PATH = str(Path(anymetal.__file__).parents[1])

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


REVERSE = """
#include <metal_stdlib>
using namespace metal;
kernel void reverse(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
                    threadgroup float4 *first [[threadgroup(0)]], threadgroup float *tile [[threadgroup(2)]],
                    uint2 i [[thread_position_in_grid]], uint2 n [[threads_per_grid]],
                    uint t [[thread_index_in_threadgroup]], uint2 e [[threads_per_threadgroup]],
                    uint2 g [[threadgroup_position_in_grid]], uint2 w [[dispatch_threads_per_threadgroup]]) {
    threadgroup float factor;
    tile[t] = x[i.y * n.x + i.x];
    if (t == 0) first[0] = g.x + 10 * g.y;
    if (t == 0) factor = w.x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i.y * n.x + i.x] = factor * tile[e.x * e.y - 1 - t] + first[0].x;
}"""


def reversed_in_groups(x, width):
    """Return what the kernel computes."""
    y = np.empty_like(x)
    for row in range(0, x.shape[0], width[1]):
        for column in range(0, x.shape[1], width[0]):
            here = np.s_[row : row + width[1], column : column + width[0]]
            group = column // width[0] + 10 * (row // width[1])
            y[here] = width[0] * x[here].reshape(-1)[::-1].reshape(x[here].shape) + group
    return y


def size(n: int) -> Any:
    """Return the struct ``Size`` of the first one."""
    return np.array([n, 0], np.uint32)


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a process that imports this package."""
    return os.environ | {"PYTHONPATH": PATH} | changes


def python(code: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=False, timeout=120, env=environment(**changes),
    )  # fmt: skip


def few(values: Sequence[Any], number: int) -> list[Any]:
    """Return the values of a parametrized test, of which only the first ones run by default: the others are slow."""
    rows = (one if type(one) is tuple else (one,) for one in values)
    return [pytest.param(*row, marks=[pytest.mark.slow] * (i >= number)) for i, row in enumerate(rows)]
