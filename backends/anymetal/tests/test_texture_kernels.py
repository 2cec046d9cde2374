"""Short kernels on images, each against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anymetal
from anymetal import clang

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

HEAD = """
#include <metal_stdlib>
using namespace metal;
constexpr sampler nearest(coord::pixel, filter::nearest);
constexpr sampler linear(coord::normalized, filter::linear);
constexpr sampler around(coord::normalized, filter::nearest, address::repeat);
constant float3 luma(0.25f, 0.5f, 0.25f);
"""
KERNEL = """
kernel void {}(texture2d<float> x, texture2d<float> z, texture2d<float, access::write> y, uint2 at [[thread_position_in_grid]]) {{
    const uint2 size(x.get_width(), x.get_height());
    float4 v = x.read(at), w = z.read(at);
    {}
    y.write(v, at);
}}
"""


def shifted(x: Any, down: int, right: int) -> Any:
    """Return an image whose pixel is the one so far below and to the right, or the nearest one of the edge."""
    rows, columns = (np.arange(n) for n in x.shape[:2])
    return x[np.clip(rows + down, 0, x.shape[0] - 1)][:, np.clip(columns + right, 0, x.shape[1] - 1)]


def around(x: Any) -> list[Any]:
    return [shifted(x, i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


NEAR = "uint2(clamp(int2(at) + int2({}, {}), 0, int2(size) - 1))"
LOOP = (
    "for (int i = -1; i <= 1; i++) for (int j = -1; j <= 1; j++) "
    "{ float4 n = x.read(uint2(clamp(int2(at) + int2(j, i), 0, int2(size) - 1))); %s }"
)
Formula = Callable[[Any, Any], Any]
KERNELS: dict[str, tuple[str, Formula]] = {
    "inverted": ("v.rgb = 1 - v.rgb;", lambda x, z: np.dstack([1 - x[..., :3], x[..., 3:]])),
    "gray": ("v.rgb = dot(v.rgb, luma);", lambda x, z: np.dstack([*[x[..., :3] @ np.float32([0.25, 0.5, 0.25])] * 3, x[..., 3]])),
    "swapped": ("v = v.bgra;", lambda x, z: x[..., [2, 1, 0, 3]]),
    "gained": ("v = saturate(v * 1.5f - 0.25f);", lambda x, z: np.clip(x * 1.5 - 0.25, 0, 1)),
    "gamma_corrected": ("v.rgb = precise::pow(v.rgb, 1 / 2.2f);", lambda x, z: np.dstack([x[..., :3] ** (1 / 2.2), x[..., 3:]])),
    "thresholded": ("v = select(float4(0), float4(1), v > 0.5f);", lambda x, z: (x > 0.5) * 1.0),
    "posterized": ("v = floor(v * 4) / 4;", lambda x, z: np.floor(x * 4) / 4),
    "premultiplied": ("v.rgb *= v.a;", lambda x, z: np.dstack([x[..., :3] * x[..., 3:], x[..., 3:]])),
    "blended": ("v = mix(v, w, 0.25f);", lambda x, z: 0.75 * x + 0.25 * z),
    "over": ("v = w + v * (1 - w.a);", lambda x, z: z + x * (1 - z[..., 3:])),
    "multiplied": ("v *= w;", lambda x, z: x * z),
    "screened": ("v = 1 - (1 - v) * (1 - w);", lambda x, z: 1 - (1 - x) * (1 - z)),
    "darkest": ("v = min(v, w);", lambda x, z: np.minimum(x, z)),
    "differing": ("v = abs(v - w);", lambda x, z: abs(x - z)),
    "overlaid": (
        "v = select(2 * v * w, 1 - 2 * (1 - v) * (1 - w), v > 0.5f);",
        lambda x, z: np.where(x > 0.5, 1 - 2 * (1 - x) * (1 - z), 2 * x * z),
    ),
    "flipped": ("v = x.read(uint2(size.x - 1 - at.x, at.y));", lambda x, z: x[:, ::-1]),
    "turned": ("v = x.read(size - 1 - at);", lambda x, z: x[::-1, ::-1]),
    "rolled": (
        "v = x.sample(around, (float2(at) + float2(2.5f, 1.5f)) / float2(size));",
        lambda x, z: np.roll(x, (-1, -2), (0, 1)),
    ),
    "pixelated": ("v = x.read(at / 2 * 2);", lambda x, z: x[::2, ::2].repeat(2, 0).repeat(2, 1)[: len(x), : x.shape[1]]),
    "shifted": ("v = x.read(" + NEAR.format(1, -1) + ");", lambda x, z: shifted(x, -1, 1)),
    "box_blurred": ("v = 0; " + LOOP % "v += n / 9;", lambda x, z: sum(around(x)) / 9),
    "dilated": (LOOP % "v = max(v, n);", lambda x, z: np.max(around(x), 0)),
    "eroded": (LOOP % "v = min(v, n);", lambda x, z: np.min(around(x), 0)),
    "sharpened": (
        "float4 s = 0; " + LOOP % "s += n;" + " v = v * 10 - s;",
        lambda x, z: 10 * x - sum(around(x)),
    ),
    "edges": (
        f"float4 h = x.read({NEAR.format(1, 0)}) - x.read({NEAR.format(-1, 0)}), g = x.read({NEAR.format(0, 1)}) - "
        f"x.read({NEAR.format(0, -1)}); v = sqrt(h * h + g * g);",
        lambda x, z: np.hypot(shifted(x, 0, 1) - shifted(x, 0, -1), shifted(x, 1, 0) - shifted(x, -1, 0)),
    ),
    "local_contrast": (
        "float4 low = v, high = v; " + LOOP % "low = min(low, n); high = max(high, n);" + " v = high - low;",
        lambda x, z: np.max(around(x), 0) - np.min(around(x), 0),
    ),
    "halved_rows": (
        "v = x.sample(linear, float2((at.x + 0.5f) / size.x, (at.y + 1.0f) / size.y));",
        lambda x, z: (x + shifted(x, 1, 0)) / 2,
    ),
    "gathered": (
        "v = x.gather(nearest, float2(at) + 1.0f);",
        lambda x, z: np.stack([shifted(x, i, j)[..., 0] for i, j in ((1, 0), (1, 1), (0, 1), (0, 0))], -1),
    ),
    "looked_up": (
        "v = z.read(uint2(uint(v.r * 3.999f), 0));",
        lambda x, z: z[0][(x[..., 0] * np.float32(3.999)).astype(int)],
    ),
    "vignetted": (
        "v *= 1 - distance((float2(at) + 0.5f) / float2(size), float2(0.5f));",
        lambda x, z: x * (1 - np.hypot(*((np.mgrid[: x.shape[0], : x.shape[1]] + 0.5) / np.reshape(x.shape[:2], (2, 1, 1)) - 0.5)))[..., None],
    ),
    "checkered": (
        "if ((at.x + at.y) % 2) v = 0;",
        lambda x, z: x * ((np.indices(x.shape[:2]).sum(0) + 1) % 2)[..., None],
    ),
    "luminance_chroma": (
        "v = float4(dot(v.rgb, luma), v.b - v.g, v.r - v.g, v.a);",
        lambda x, z: np.stack([x[..., :3] @ np.float32([0.25, 0.5, 0.25]), x[..., 2] - x[..., 1], x[..., 0] - x[..., 1], x[..., 3]], -1),
    ),
}  # fmt: skip
FAST = ("gray", "box_blurred", "rolled", "gathered")


@pytest.fixture(scope="module", params=["clang", pytest.param("cuda", marks=pytest.mark.nvidia)])
def library(request: pytest.FixtureRequest) -> anymetal.Library:
    source = HEAD + "".join(KERNEL.format(name, body) for name, (body, _) in KERNELS.items())
    return anymetal.compile(source, runtime=request.param)


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one not in FAST)) for one in KERNELS])
def test_a_kernel_equals_numpy(library: anymetal.Library, name: str) -> None:
    random = np.random.default_rng(0)
    x, z = (random.random((5, 7, 4)).astype(np.float32) for _ in range(2))
    y = np.full_like(x, np.nan)
    done = library[name]((7, 5), (4, 2), textures=[x, z, y])
    np.testing.assert_allclose(y, KERNELS[name][1](x, z), rtol=2e-5, atol=2e-6)
    assert not done.findings
    assert done.written in ({"texture(2)": 35}, None)  # cuda does not count
