"""Measure texels a second and core of the clang runtime, without and with checks.

    python scripts/texture_speed.py

64 reads, samples or writes a thread, of a texture of 256 x 256; the best of three launches, by processor time.
"""

from __future__ import annotations

import time

import numpy as np

import anymetal
from anymetal.api import Kernel

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
PLACE = "float2(at.x + 0.3f, ((at.y + i) & 255) + 0.4f) / 256"
CALLS = {
    "read": "v += x.read(uint2(at.x, (at.y + i) & 255));",
    "sample, nearest": f"constexpr sampler s(filter::nearest); v += x.sample(s, {PLACE});",
    "sample, linear": f"constexpr sampler s(filter::linear); v += x.sample(s, {PLACE});",
    "write": "x.write(float4(i), at);",
}
FORMATS = {"rgba32float": "f4", "rgba16float": "f2", "rgba8unorm": "u1", "r32float": "f4"}
SIZE, COUNT = 256, 64


def source(call: str) -> str:
    """Return a kernel that repeats a call."""
    access = "access::write" if "write" in call else "access::sample"
    return HEAD + (
        f"kernel void f(texture2d<float, {access}> x, device float4 *out, uint2 at [[thread_position_in_grid]]) {{\n"
        f"float4 v = 0; for (uint i = 0; i < {COUNT}; i++) {{ {call} }} out[at.y * {SIZE} + at.x] = v; }}"
    )


def speed(kernel: Kernel, name: str, dtype: str) -> float:
    """Return millions of texels a second."""
    shape = (SIZE, SIZE) if name == "r32float" else (SIZE, SIZE, 4)
    texture, out, best = anymetal.Texture(np.zeros(shape, dtype), name), np.zeros((SIZE, SIZE, 4), np.float32), np.inf
    for _ in range(4):
        start = time.process_time()
        kernel((SIZE, SIZE), (16, 16), out, textures=[texture])
        best = min(best, time.process_time() - start)
    return SIZE * SIZE * COUNT / best / 1e6


def main() -> None:
    """Print a table."""
    print(f"| millions a second | {' | '.join(FORMATS)} |")
    print("|---|" + "---|" * len(FORMATS))
    for label, call in CALLS.items():
        kernels = [anymetal.compile(source(call), sanitize=one, check_order=False)["f"] for one in (False, True)]
        row = [" / ".join(f"{speed(one, *form):.0f}" for one in kernels) for form in FORMATS.items()]
        print(f"| {label} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
