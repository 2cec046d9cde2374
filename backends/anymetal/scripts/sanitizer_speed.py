"""Time eight kernels with and without the checks of accesses: ``python scripts/sanitizer_speed.py``.

Prints, for each, the processor time of a launch without checks on one core, the ratio with them, the accesses, and the
nanoseconds of one; then, without checks and with them, how many times as fast a launch is that is spread over the cores
(by the clock), and how many times the processor time it takes. The medians are of launches in turns, in one process.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from anymetal import clang

HEAD = """
#include <metal_stdlib>
using namespace metal;
"""

SOFTMAX = """
kernel void softmax(device const float *x, device float *y, constant uint &n, uint row [[threadgroup_position_in_grid]],
                    uint i [[thread_position_in_threadgroup]], uint width [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]], uint group [[simdgroup_index_in_threadgroup]]) {
    threadgroup float part[32];
    x += row * n, y += row * n;
    float most = -INFINITY, sum = 0;
    for (uint k = i; k < n; k += width) most = max(most, x[k]);
    most = simd_max(most);
    if (lane == 0) part[group] = most;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < width / 32; k++) most = max(most, part[k]);
    for (uint k = i; k < n; k += width) sum += exp(x[k] - most);
    sum = simd_sum(sum);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) part[group] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = 0;
    for (uint k = 0; k < width / 32; k++) sum += part[k];
    for (uint k = i; k < n; k += width) y[k] = exp(x[k] - most) / sum;
}
"""

LAYER_NORM = """
kernel void layer_norm(device const float *x, device const float *gain, device float *y, constant uint &n,
                       uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    x += row * n, y += row * n;
    float sum = 0, square = 0;
    for (uint k = lane; k < n; k += 32) sum += x[k], square += x[k] * x[k];
    const float mean = simd_sum(sum) / n, scale = rsqrt(simd_sum(square) / n - mean * mean + 1e-5f);
    for (uint k = lane; k < n; k += 32) y[k] = (x[k] - mean) * scale * gain[k];
}
"""

PRODUCT = """
kernel void product(device const float *a, device const float *b, device float *c, constant uint &n,
                    uint2 tile [[threadgroup_position_in_grid]]) {
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f), left, right;
    for (uint k = 0; k < n; k += 8) {
        simdgroup_load(left, a + tile.y * 8 * n + k, n);
        simdgroup_load(right, b + k * n + tile.x * 8, n);
        simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_store(sum, c + tile.y * 8 * n + tile.x * 8, n);
}
"""

SCAN = """
kernel void scan(device const float *x, device float *y, constant uint &n, uint row [[threadgroup_position_in_grid]],
                 uint i [[thread_position_in_threadgroup]], uint width [[threads_per_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]], uint group [[simdgroup_index_in_threadgroup]]) {
    threadgroup float ends[32];
    float before = 0;
    for (uint start = 0; start < n; start += width) {
        const uint at = row * n + start + i;
        const float value = x[at], sum = simd_prefix_inclusive_sum(value);
        if (lane == 31) ends[group] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float total = 0, mine = before;
        for (uint k = 0; k < width / 32; k++) {
            if (k < group) mine += ends[k];
            total += ends[k];
        }
        y[at] = mine + sum;
        before += total;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}
"""

SORT = """
kernel void sort(device float *x, uint i [[thread_position_in_threadgroup]], uint row [[threadgroup_position_in_grid]],
                 uint width [[threads_per_threadgroup]]) {
    threadgroup float part[512];
    const uint n = 2 * width;
    part[i] = x[row * n + i], part[i + width] = x[row * n + i + width];
    for (uint size = 2; size <= n; size *= 2)
        for (uint step = size / 2; step > 0; step /= 2) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            const uint a = 2 * i - (i & (step - 1)), b = a + step;
            const float low = min(part[a], part[b]), high = max(part[a], part[b]);
            const bool is_up = (a & size) == 0;
            part[a] = is_up ? low : high, part[b] = is_up ? high : low;
        }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[row * n + i] = part[i], x[row * n + i + width] = part[i + width];
}
"""

CONVOLUTION = """
kernel void convolution(device const float *x, device const float *w, device float *y, constant uint3 &size,
                        uint3 at [[thread_position_in_grid]]) {
    const uint height = size.y, width = size.x, channels = size.z;
    float sum = 0;
    for (uint dy = 0; dy < 3; dy++)
        for (uint dx = 0; dx < 3; dx++) {
            const uint row = at.y + dy, column = at.x + dx;
            if (row < 1 || row > height || column < 1 || column > width) continue;
            for (uint c = 0; c < channels; c++)
                sum += x[((row - 1) * width + column - 1) * channels + c]
                     * w[((at.z * 3 + dy) * 3 + dx) * channels + c];
        }
    y[(at.y * width + at.x) * channels + at.z] = sum;
}
"""

# With checks the second one also runs with weak exchanges that fail, and in four interleavings; the first one does not.
ADDITIONS = """
kernel void additions(device atomic_uint *y, uint i [[thread_position_in_grid]]) {
    for (uint j = 0; j < 16; j++)
        atomic_fetch_add_explicit(&y[i % 64], j, memory_order_relaxed);
}
"""

EXCHANGES = """
kernel void exchanges(device atomic_uint *y, uint i [[thread_position_in_grid]]) {
    for (uint j = 0; j < 8; j++) {
        uint e = atomic_load_explicit(&y[i % 64], memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(&y[i % 64], &e, e + j, memory_order_relaxed,
                                                      memory_order_relaxed)) {}
    }
}
"""


def cases() -> dict[str, tuple[str, Any, Any, list[Any], int]]:
    """Return for each kernel its source, grid, threadgroup, buffers, and the accesses to them of a launch."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32)

    wide = normal(512, 1000)
    square = normal(2, 256, 256)
    return {
        "softmax": (SOFTMAX, 512 * 128, 128, [wide, wide * 0, np.uint32(1000)], 512 * (4 * 1000 + 2 * 128 * 4)),
        "layer_norm": (LAYER_NORM, 512 * 32, 32, [wide, normal(1000), wide * 0, np.uint32(1000)], 512 * 1000 * 4),
        "product": (PRODUCT, (32 * 32, 32), (32, 1), [*square, square[0] * 0, np.uint32(256)], 32**2 * 128 * 33),
        "scan": (SCAN, 256 * 256, 256, [normal(256, 1024), normal(256, 1024), np.uint32(1024)], 256 * 1024 * 10),
        "sort": (SORT, 512 * 256, 256, [normal(512, 512)], 512 * 256 * (8 + 45 * 4)),
        "convolution": (
            CONVOLUTION, (32, 32, 32), (32, 8, 1), [normal(32, 32, 32), normal(32, 3, 3, 32), normal(32, 32, 32),
            np.array((32, 32, 32, 0), np.uint32)], 32**3 * 9 * 32 * 2,
        ),
        "additions": (ADDITIONS, 2**14, 256, [np.zeros(64, np.uint32)], 2**18),
        "exchanges": (EXCHANGES, 2**14, 256, [np.zeros(64, np.uint32)], 2**18),
    }  # fmt: skip


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Return the time of a call, and the processor time of this process and of those that it starts."""
    start, used = time.perf_counter(), processor_time()
    call()
    return time.perf_counter() - start, processor_time() - used


def processor_time() -> float:
    """Return the processor time of this process and of those that it started."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def device(workers: str, sanitize: bool) -> clang.Device:
    """Return a device whose launches have so many processes; with "", those that are long have one for each core."""
    os.environ["ANYMETAL_LAUNCH_WORKERS"] = workers
    return clang.Device(check_order=False, sanitize=sanitize)


def main() -> None:
    """Print the table."""
    devices = [device(workers, sanitize) for sanitize in (False, True) for workers in ("1", "")]
    print(f"{'kernel':12} {'ms':>8} {'ratio':>6} {'accesses':>10} {'ns each':>8} {'spread':>13} {'with checks':>13}")
    for name, (source, grid, group, buffers, accesses) in cases().items():
        functions = [one.kernel(HEAD + source, fast_math=False).function(name) for one in devices]
        bound = [[one.device.buffer(buffer) for buffer in buffers] for one in functions]

        def run(i: int) -> tuple[float, float]:
            return seconds(lambda: functions[i].dispatch(grid, *bound[i], threadgroup=group))  # noqa: B023

        times = [[one for i in range(4) for one in run(i)] for _ in range(9)]
        medians = [statistics.median(column) for column in zip(*times, strict=True)]
        off, on = medians[1], medians[5]
        each = (on - off) / accesses * 1e9
        spread = (f"{medians[i] / medians[i + 2]:6.2f} {medians[i + 3] / medians[i + 1]:6.2f}" for i in (0, 4))
        print(f"{name:12} {off * 1e3:8.2f} {on / off:6.2f} {accesses:10} {each:8.1f} {' '.join(spread)}")


if __name__ == "__main__":
    main()
