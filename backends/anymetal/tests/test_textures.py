"""Textures and samplers: formats, coordinates, filters, arguments, and misuse."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import anymetal
from anymetal import CompileError, LaunchError, Sampler, Texture, clang
from anymetal.images import FORMATS

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
INDEX = "uint i [[thread_position_in_grid]]"


def reading(name: str, texture: str, place: str, call: str, result: str = "float4") -> str:
    """Return a kernel that puts what a call of a texture gives at each place into a buffer."""
    return (
        f"kernel void {name}({texture} x [[texture(0)]], sampler s [[sampler(0)]], device const {place} *at, "
        f"device {result} *out, {INDEX}) {{ out[i] = {call}; }}\n"
    )


def writing(name: str, component: str) -> str:
    """Return a kernel that writes vectors to the texels of a row."""
    return (
        f"kernel void {name}(texture2d<{component}, access::write> y, device const {component}4 *v, {INDEX}) "
        "{ y.write(v[i], uint2(i, 0)); }\n"
    )


SOURCE = HEAD + "".join((
    *(reading(f"read_{one}", f"texture2d<{one}>", "uint2", "x.read(at[i])", f"{one}4") for one in ("float", "half", "int", "uint")),
    *(writing(f"write_{one}", one) for one in ("float", "half", "int", "uint")),
    reading("sample", "texture2d<float>", "float2", "x.sample(s, at[i])"),
    reading("gathered", "texture2d<float>", "float2", "x.gather(s, at[i])"),
    reading("levels", "texture2d<float>", "float4", "x.sample(s, at[i].xy, level(at[i].z))"),
    reading("sample_1d", "texture1d<float>", "float", "x.sample(s, at[i])"),
    reading("sample_3d", "texture3d<float>", "float4", "x.sample(s, at[i].xyz)"),
    reading("sample_cube", "texturecube<float>", "float4", "x.sample(s, at[i].xyz)"),
    reading("sample_slice", "texture2d_array<float>", "float4", "x.sample(s, at[i].xy, uint(at[i].z))"),
    reading("read_slice", "texture2d_array<float>", "uint4", "x.read(at[i].xy, at[i].z)"),
    reading("compared", "depth2d<float>", "float4", "x.sample_compare(s, at[i].xy, at[i].z)", "float"),
))  # fmt: skip


RUNTIMES = ["clang", pytest.param("cuda", marks=pytest.mark.nvidia)]


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def library(runtime: str) -> anymetal.Library:
    return anymetal.compile(SOURCE, runtime=runtime)


def told(runtime: str, *kinds: str) -> list[str]:
    """Return the kinds of findings of a launch: the cuda runtime runs without the checks."""
    return list(kinds) if runtime == "clang" else []


def read(
    library: anymetal.Library, texture: Any, at: Any, kernel: str = "read_float", sampler: Sampler | None = None
) -> Any:
    """Run a kernel of SOURCE; return what it gives at each place, and the kinds of its findings."""
    name = kernel.partition("_")[2]
    places = np.array(at, np.uint32 if "read" in kernel else np.float32)
    dtype = {"int": np.int32, "uint": np.uint32, "half": np.float16}.get(name, np.float32)
    out = np.zeros(len(places) if kernel == "compared" else (len(places), 4), dtype)
    done = library[kernel](len(places), len(places), places, out, textures=[texture], samplers=[sampler or Sampler()])
    return out, [one.kind for one in done.findings]


def write(library: anymetal.Library, form: str, values: Any, component: str = "float", **more: Any) -> Any:
    """Write vectors to a row of texels; return these."""
    dtype = {"int": np.int32, "uint": np.uint32, "half": np.float16}.get(component, np.float32)
    v = np.array(values, dtype)
    known = FORMATS[form]
    y = np.zeros((1, len(v), *([known.components] if known.components else [])), known.dtype)
    library[f"write_{component}"](len(v), len(v), v, textures=[Texture(y, form)])
    return y[0]


def test_unorm_is_rounded_to_nearest_even_and_nan_is_zero(library: anymetal.Library) -> None:
    found = write(library, "rgba8unorm", [(0.5, 1.7, -3, np.nan), np.array([0.5, 1.5, 2.5, 254.5]) / 255])
    assert found.tolist() == [[128, 255, 0, 0], [0, 2, 2, 254]]


def test_snorm_has_two_codes_for_minus_one_and_writes_one(library: anymetal.Library) -> None:
    out, _ = read(library, np.array([[[-128, -127, 64, 127]]], np.int8), [(0, 0)])
    np.testing.assert_allclose(out, [[-1, -1, 64 / 127, 1]], rtol=1e-7)
    assert write(library, "rgba8snorm", [(-1, -2, 0.5, 1)]).tolist() == [[-127, -127, 64, 127]]


@pytest.mark.parametrize("fast_math", [True, False])
def test_nan_is_written_as_zero(fast_math: bool, runtime: str) -> None:
    options = {} if runtime == "cuda" else {"sanitize": False, "fast_math": fast_math}
    library = anymetal.compile(HEAD + writing("write_float", "float"), runtime=runtime, **options)
    values = [(np.nan,) * 4, (np.nan, 1, np.nan, 1)]
    for form in ("rgba8snorm", "rgba16snorm", "rgba8unorm", "rgba16unorm", "rgba8unorm_srgb", "bgra8unorm"):
        high = np.iinfo(FORMATS[form].dtype).max
        order = [0, high, 0, high]
        assert write(library, form, values).tolist() == [[0] * 4, order]
    assert write(library, "rgb10a2unorm", values).tolist() == [0, 3 << 30 | 1023 << 10]
    assert (
        write(library, "rgb9e5float", values).tolist()
        == write(library, "rgb9e5float", [(0, 0, 0, 0), (0, 1, 0, 1)]).tolist()
    )
    assert np.isnan(write(library, "rgba16float", values)[0]).all()


def test_missing_components_are_0_0_1(library: anymetal.Library) -> None:
    assert read(library, np.array([[0.25]], np.float32), [(0, 0)])[0].tolist() == [[0.25, 0, 0, 1]]
    out, _ = read(library, np.array([[[51, 102]]], np.uint8), [(0, 0)])
    np.testing.assert_allclose(out, [[0.2, 0.4, 0, 1]], rtol=1e-7)
    assert read(library, np.array([[7]], np.uint16), [(0, 0)], "read_uint")[0].tolist() == [[7, 0, 0, 1]]


def test_outside_a_read_gives_zeros_and_a_write_changes_nothing(library: anymetal.Library, runtime: str) -> None:
    x = np.ones((2, 2, 4), np.float32)
    assert read(library, x, [(2, 0), (0, 2), (0, 1)])[0].tolist() == [[0] * 4, [0] * 4, [1] * 4]
    out, kinds = read(library, x[..., 0].copy(), [(2**32 - 1, 0)])
    assert out.tolist() == [[0, 0, 0, 1]]
    assert kinds == told(runtime, "texel")
    y = np.ones((1, 2, 4), np.float32)
    done = library["write_float"](3, 3, np.full((3, 4), 5, np.float32), textures=[y])
    assert (y == 5).all()
    if runtime == "cuda":
        return
    assert done.changed == done.written == {"texture(0)": 2}
    (finding,) = done.findings
    assert finding.level == "warning"
    assert finding.place
    assert finding.place.line > 2
    assert finding.message == (
        "thread 2 writes at x = 2, outside of `texture2d<float , access::write> y` of 2x1 texels"
    )


def test_srgb_is_decoded_and_encoded_but_for_alpha(library: anymetal.Library) -> None:
    out, _ = read(library, Texture(np.array([[[128, 10, 255, 128]]], np.uint8), "rgba8unorm_srgb"), [(0, 0)])
    np.testing.assert_allclose(out, [[0.215861, 0.003035, 1, 0.501961]], rtol=2e-4)
    assert write(library, "rgba8unorm_srgb", [(0.5, 0.001, 0.21405, 0.5)]).tolist() == [[188, 3, 128, 128]]
    codes = np.arange(256, dtype=np.uint8)
    out, _ = read(library, Texture(codes[None, :, None].repeat(4, 2), "bgra8unorm_srgb"), [(i, 0) for i in range(256)])
    assert (write(library, "bgra8unorm_srgb", out) == codes[:, None]).all()


def test_components_are_rgba_whatever_their_order_in_memory(library: anymetal.Library) -> None:
    out, _ = read(library, Texture(np.array([[[0, 51, 255, 102]]], np.uint8), "bgra8unorm"), [(0, 0)])
    np.testing.assert_allclose(out, [[1, 0.2, 0, 0.4]], rtol=1e-7)
    assert write(library, "bgra8unorm", [(1, 0, 0, 1)]).tolist() == [[0, 0, 255, 255]]


def test_integers_are_saturated(library: anymetal.Library) -> None:
    assert write(library, "rgba8uint", [(300, 255, 7, 70000)], "uint").tolist() == [[255, 255, 7, 255]]
    assert write(library, "rgba8sint", [(-300, 128, -128, 5)], "int").tolist() == [[-128, 127, -128, 5]]
    assert write(library, "rg16sint", [(-(2**31), 2**31 - 1, 0, 0)], "int").tolist() == [[-32768, 32767]]
    assert write(library, "r32uint", [(2**32 - 1, 0, 0, 0)], "uint").tolist() == [[2**32 - 1]]


GRID = np.array([[0, 4], [8, 12]], np.float32)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("clamp_to_edge", [6, 0, 4]),
        ("clamp_to_zero", [6, 0, 0]),
        ("repeat", [6, 2, 0]),
        ("mirrored_repeat", [6, 0, 4]),
    ],
)
def test_linear_samples_at_the_edges(library: anymetal.Library, address: str, expected: list[float]) -> None:
    sampler = Sampler(filter="linear", address=address)
    out, _ = read(library, GRID, [(0.5, 0.5), (0, 0.25), (1.25, 0.25)], "sample", sampler)
    assert out[:, 0].tolist() == expected
    assert (out[:, 3] == 1).all()


def test_nearest_and_gather(library: anymetal.Library) -> None:
    pixel = Sampler(coord="pixel")
    assert read(library, GRID, [(0.99, 0), (1, 1), (-5, 9)], "sample", pixel)[0][:, 0].tolist() == [0, 12, 8]
    assert read(library, GRID, [(1, 1)], "gathered", pixel)[0].tolist() == [[8, 12, 4, 0]]


def test_a_slice_is_clamped_for_a_sample_and_not_for_a_read(library: anymetal.Library, runtime: str) -> None:
    x = np.array([0, 1], np.float32).reshape(2, 1, 1)
    assert read(library, x, [(0.5, 0.5, 9, 0)], "sample_slice")[0][0, 0] == 1
    out, kinds = read(library, x, [(0, 0, 9, 0)], "read_slice")
    assert out.tolist() == [[0, 0, 0, 1]]
    assert kinds == told(runtime, "texel")


def test_borders(library: anymetal.Library) -> None:
    x, at = np.full((1, 1, 4), 0.5, np.float32), [(-1, 0.5)]
    for border, expected in (
        ("opaque_white", [1, 1, 1, 1]),
        ("opaque_black", [0, 0, 0, 1]),
        ("transparent_black", [0] * 4),
    ):
        sampler = Sampler(address="clamp_to_border", border_color=border)
        assert read(library, x, at, "sample", sampler)[0].tolist() == [expected]
    assert read(library, x, at, "sample", Sampler(address="clamp_to_zero"))[0].tolist() == [[0] * 4]


def test_volumes_and_cubes(library: anymetal.Library) -> None:
    linear = Sampler(filter="linear")
    volume = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    assert read(library, volume, [(0.5, 0.5, 0.5, 0)], "sample_3d", linear)[0][0, 0] == 3.5
    faces = np.arange(6, dtype=np.float32).reshape(6, 1, 1)
    directions = [(1, 0, 0, 0), (0, -1, 0, 0), (0.1, 0.2, 1, 0), (-1, 0.5, 0, 0)]
    assert read(library, faces, directions, "sample_cube")[0][:, 0].tolist() == [0, 3, 4, 1]


def test_a_cube_is_filtered_across_its_edges(library: anymetal.Library) -> None:
    """An affine function of the direction has no step where two faces meet."""
    n = 16
    c = (np.arange(n) + 0.5) / n * 2 - 1
    s, t = np.meshgrid(c, c)
    one = np.ones_like(s)
    rows = [(one, -t, -s), (-one, -t, s), (s, one, t), (s, -one, -t), (s, -t, one), (-s, -t, -one)]
    faces = np.stack([x + 2 * y + 3 * z for x, y, z in rows]).astype(np.float32)
    near = [(1, 0.3, 0.999, 0), (0.999, 0.3, 1, 0), (0.2, 1, -0.999, 0), (0.2, 0.999, -1, 0)]
    out = read(library, faces, near, "sample_cube", Sampler(filter="linear"))[0][:, 0]
    assert abs(out[0] - out[1]) < 0.05
    assert abs(out[2] - out[3]) < 0.05


def test_narrow_floats_are_written_toward_zero_unless_told_otherwise(library: anymetal.Library, runtime: str) -> None:
    values = [(1.0014648, 65520, -65520, np.inf)]
    found = write(library, "rgba16float", values)
    assert found.tolist() == [[1.0009765625, 65504, -65504, np.inf]]
    nearest = anymetal.compile(SOURCE, texture_write_rounding="rte", runtime=runtime)
    assert write(nearest, "rgba16float", values).tolist() == [[1.001953125, np.inf, -np.inf, np.inf]]


def decoded(form: str, codes: Any) -> Any:
    """Return the components of texels, in NumPy."""
    known = FORMATS[form]
    if known.sort in ("uint", "sint", "float"):
        found = codes.astype(np.float32 if known.sort == "float" else codes.dtype.kind + "4")
    else:
        found = np.maximum(codes.astype(np.float32) / np.float32(np.iinfo(codes.dtype).max), -1)
    if "srgb" in form:
        color = found[..., :3]
        found[..., :3] = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    found = np.concatenate(
        [found, np.resize(np.array([0, 0, 0, 1], found.dtype), (len(found), 4))[:, found.shape[1] :]], 1
    )
    return found[:, [2, 1, 0, 3]] if "bgra" in form else found


@pytest.mark.parametrize("form", [name for name, one in FORMATS.items() if one.components])
def test_every_code_is_read_and_written_again(library: anymetal.Library, form: str) -> None:
    """All codes of 8 bits, and drawn ones of more."""
    known, random = FORMATS[form], np.random.default_rng(0)
    codes = random.integers(0, 256, (1024, known.components * known.dtype.itemsize)).astype(np.uint8).view(known.dtype)
    if known.dtype.itemsize == 1:
        codes[:256] = np.arange(256).astype(known.dtype)[:, None]
    if known.sort == "float":
        codes = np.where(
            np.isfinite(codes) & (abs(codes) >= np.finfo(known.dtype).tiny), codes, np.array(0.5, known.dtype)
        )
    component = {"uint": "uint", "sint": "int"}.get(known.sort, "float")
    out, _ = read(library, Texture(codes[None], form), [(i, 0) for i in range(1024)], f"read_{component}")
    np.testing.assert_allclose(out, decoded(form, codes), rtol=1e-6 if "srgb" in form else 1.2e-7)
    again = write(library, form, out, component)
    lowest = np.iinfo(known.dtype).min if known.sort == "snorm" else None
    np.testing.assert_array_equal(again, codes if lowest is None else np.where(codes == lowest, lowest + 1, codes))


PACKED = {
    "rgb10a2unorm": (0b01_0000000011_1111111111_0000000001, [1 / 1023, 1, 3 / 1023, 1 / 3]),
    "bgr10a2unorm": (0b01_0000000011_1111111111_0000000001, [3 / 1023, 1, 1 / 1023, 1 / 3]),
    "b5g6r5unorm": (0b00001_000001_11111, [1 / 31, 1 / 63, 1, 1]),
    "bgr5a1unorm": (0b1_00001_00010_11111, [1 / 31, 2 / 31, 1, 1]),
    "a1bgr5unorm": (0b00001_00010_11111_0, [1 / 31, 2 / 31, 1, 0]),
    "abgr4unorm": (0x123F, [1 / 15, 2 / 15, 3 / 15, 1]),
    "a8unorm": (51, [0, 0, 0, 0.2]),
    "rg11b10float": (0x1E0 << 22 | 0x3C0 << 11 | 0x3E0, [1.5, 1, 1, 1]),
    "rgb9e5float": (16 << 27 | 256 << 18 | 128 << 9 | 511, [511 / 256, 0.5, 1, 1]),
}


@pytest.mark.parametrize("form", PACKED)
def test_packed_formats(library: anymetal.Library, form: str) -> None:
    code, expected = PACKED[form]
    out, _ = read(library, Texture(np.array([[code]], FORMATS[form].dtype), form), [(0, 0)])
    np.testing.assert_allclose(out[0], expected, rtol=1e-6)
    assert write(library, form, out).tolist() == [code]


def test_packed_integers(library: anymetal.Library) -> None:
    code = 0b01_0000000011_1111111111_0000000001
    out, _ = read(library, Texture(np.array([[code]], np.uint32), "rgb10a2uint"), [(0, 0)], "read_uint")
    assert out.tolist() == [[1, 1023, 3, 1]]
    assert write(library, "rgb10a2uint", [(5000, 0, 0, 9)], "uint").tolist() == [3 << 30 | 1023]


def test_levels(library: anymetal.Library) -> None:
    levels = [np.full((4, 4), 0, np.float32), np.full((2, 2), 1, np.float32), np.full((1, 1), 2, np.float32)]
    at = [(0.5, 0.5, z, 0) for z in (0, 0.4, 0.6, 1.5, 9)]
    for mips, expected in (("none", [0] * 5), ("nearest", [0, 0, 1, 2, 2]), ("linear", [0, 0.4, 0.6, 1.5, 2])):
        out, _ = read(library, Texture(levels=levels), at, "levels", Sampler(mip_filter=mips))
        np.testing.assert_allclose(out[:, 0], expected, atol=1e-6)
    out, _ = read(library, Texture(levels=levels), at, "levels", Sampler(mip_filter="nearest", lod_clamp=(1, 1)))
    assert (out[:, 0] == 1).all()


def test_comparisons_of_depths(library: anymetal.Library) -> None:
    depth = np.array([[0.2, 0.8]], np.float32)
    at = [(0.5, 0.5, 0.5, 0), (0.25, 0.5, 0.1, 0)]
    assert read(library, depth, at, "compared", Sampler(compare_func="less"))[0].tolist() == [1, 1]
    linear = Sampler(compare_func="less", filter="linear")
    assert read(library, depth, at, "compared", linear)[0].tolist() == [0.5, 1]


def sampled(x: Any, at: Any, sampler: dict[str, str]) -> Any:
    """Sample one component of a 2D texture, in NumPy."""
    height, width = x.shape
    points = np.float32(at) * (1 if sampler["coord"] == "pixel" else np.float32([width, height]))

    def texel(i: Any, j: Any) -> Any:
        def inside(k: Any, n: int) -> tuple[Any, Any]:
            mode = sampler["address"]
            if mode == "repeat":
                return k % n, True
            if mode == "mirrored_repeat":
                return np.minimum(k % (2 * n), 2 * n - 1 - k % (2 * n)), True
            return np.clip(k, 0, n - 1), (k >= 0) & (k < n) if mode == "clamp_to_zero" else True

        (a, has_a), (b, has_b) = inside(i, width), inside(j, height)
        return np.where(np.logical_and(has_a, has_b), x[b, a], 0)

    if sampler["filter"] == "nearest":
        return texel(*np.floor(points).astype(int).T)
    points = points - np.float32(0.5)
    low = np.floor(points).astype(int)
    (u, v), (i, j) = (points - low).T, low.T
    rows = [texel(i, j + k) * (1 - u) + texel(i + 1, j + k) * u for k in (0, 1)]
    return rows[0] * (1 - v) + rows[1] * v


@pytest.mark.parametrize("address", ["clamp_to_edge", "clamp_to_zero", "repeat", "mirrored_repeat"])
def test_samples_equal_those_of_numpy(library: anymetal.Library, address: str) -> None:
    random = np.random.default_rng(0)
    for filters, coord, shape in itertools.product(("nearest", "linear"), ("normalized", "pixel"), ((1, 1), (5, 3))):
        if coord == "pixel" and "repeat" in address:
            continue
        given = {"filter": filters, "coord": coord, "address": address}
        x = random.standard_normal(shape).astype(np.float32)
        at = (random.random((64, 2)) * 4 - 1.5) * (1 if coord == "normalized" else shape[::-1])
        out, _ = read(library, x, at, "sample", Sampler(**given))
        np.testing.assert_allclose(out[:, 0], sampled(x, at, given), atol=2e-5)


def one(source: str, **options: Any) -> Any:
    """Return the only kernel of a source."""
    library = anymetal.compile(HEAD + source, **options)
    (name,) = library
    return library[name]


MEMBERS = {
    "texture1d": ("float4 v = x.read(i) + x.sample(s, 0.5f); v.x += x.get_width() + x.get_num_mip_levels();", (4,)),
    "texture1d_array": ("float4 v = x.read(i, 1) + x.sample(s, 0.5f, 1); v.x += x.get_array_size();", (2, 4)),
    "texture2d": (
        "float2 c(0.5f); float4 v = x.read(ushort2(0), 0) + x.sample(s, c, int2(1)) + x.sample(s, c, level(0), int2(1))"
        " + x.sample(s, c, bias(1)) + x.sample(s, c, gradient2d(c, c)) + x.sample(s, c, min_lod_clamp(1))"
        " + x.gather(s, c, int2(0), component::y); v.x += x.get_height(1) + x.get_num_mip_levels();",
        (2, 4),
    ),
    "texture2d_array": ("float4 v = x.read(uint2(0), 1u, 0) + x.sample(s, float2(0), 1, level(0)) + x.gather(s, float2(0), 1);", (2, 2, 4)),
    "texture3d": ("float4 v = x.read(uint3(0)) + x.sample(s, float3(0), gradient3d(float3(0), float3(0)), int3(0)); v.x += x.get_depth();", (2, 2, 2)),
    "texturecube": ("float4 v = x.read(uint2(0), 5) + x.sample(s, float3(1), level(0)) + x.gather(s, float3(1), component::x);", (6, 2, 2)),
    "texturecube_array": ("float4 v = x.read(uint2(0), 5, 1) + x.sample(s, float3(1), 1); v.x += x.get_array_size();", (12, 2, 2)),
    "depth2d": ("float4 v = x.read(uint2(0)) + x.sample(s, float2(0)) + x.sample_compare(s, float2(0), 0.5f, level(0)) + x.gather_compare(s, float2(0), 0.5f);", (2, 2)),
    "depth2d_array": ("float4 v = x.read(uint2(0), 1) + x.sample(s, float2(0), 1) + x.sample_compare(s, float2(0), 1, 0.5f);", (2, 2, 2)),
    "depthcube": ("float4 v = x.read(uint2(0), 1) + x.sample(s, float3(1)) + x.sample_compare(s, float3(1), 0.5f);", (6, 2, 2)),
    "depthcube_array": ("float4 v = x.read(uint2(0), 1, 0) + x.sample(s, float3(1), 0) + x.sample_compare(s, float3(1), 0, 0.5f);", (6, 2, 2)),
    "texture2d_ms": ("float4 v = x.read(uint2(0), 3); v.x += x.get_num_samples();", (4, 2, 2)),
    "texture2d_ms_array": ("float4 v = x.read(uint2(0), 1, 3); v.x += x.get_array_size();", (2, 4, 2, 2)),
    "depth2d_ms": ("float4 v = x.read(uint2(0), 3);", (4, 2, 2)),
    "depth2d_ms_array": ("float4 v = x.read(uint2(0), 1, 3);", (2, 4, 2, 2)),
    "texture_buffer": ("float4 v = x.read(i); v.x += x.get_width();", (4,)),
}  # fmt: skip


@pytest.mark.parametrize("kind", MEMBERS)
def test_the_members_of_each_type(kind: str, runtime: str) -> None:
    body, shape = MEMBERS[kind]
    source = f"kernel void f({kind}<float> x, sampler s, device float *out, {INDEX}) {{ {body} out[i] = v.x; }}"
    options = {"check_order": False} if runtime == "clang" else {}
    kernel, out = one(source, runtime=runtime, **options), np.full(1, np.nan, np.float32)
    kernel(1, 1, out, textures=[np.ones(shape, np.float32)], samplers=[Sampler(mip_filter="linear", address="repeat")])
    assert out[0] > 0
    assert kernel.images["texture"][0].text == f"{kind}<float> x"


@pytest.mark.parametrize(
    ("texture", "body", "message"),
    [
        ("texture2d<float>", "x.write(float4(0), uint2(0));", "a texture is written with access::write or access::read_write alone"),
        ("texture2d<float, access::write>", "x.read(uint2(0));", "a texture with access::write is not read"),
        ("texture2d<float, access::read>", "x.sample(s, float2(0));", "a texture is sampled with access::sample alone"),
        ("texture2d<float, access::write>", "x.fence();", "fence() and atomic functions are of textures with access::read_write"),
        ("texture2d<uint>", "x.atomic_fetch_add(uint2(0), uint4(1));", "fence() and atomic functions"),
        ("depth2d<half>", "x.read(uint2(0));", "the component of a depth texture is float"),
        ("depth2d<float, access::write>", "x.get_width();", "a depth texture has access::sample or access::read"),
        ("texture2d_ms<float, access::write>", "x.get_width();", "a multisampled texture has access::read"),
        ("texture2d<float4>", "x.get_width();", "the components of a texture are"),
        ("texture2d<float>", "x.read(int2(0));", "no matching member function for call to 'read'"),
        ("texture2d<float>", "x.read(float2(0));", "no matching member function for call to 'read'"),
        ("texture2d<float>", "x.sample(s, uint2(0));", "no matching member function for call to 'sample'"),
        ("texture2d<float>", "x.gather(s, uint2(0));", "no matching member function for call to 'gather'"),
        ("texture2d<float>", "x.nothing();", "no member named 'nothing'"),
        ("texture2d<float>", "out[0] = x.calculate_clamped_lod(s, float2(0));", "calculate_clamped_lod: the level of a sample follows from"),
        ("depthcube<float>", "out[0] = x.calculate_unclamped_lod(s, float3(0));", "calculate_unclamped_lod: the level of a sample follows"),
        ("texture2d<half>", "sparse_color<half4> c = x.sparse_sample(s, float2(0));", "sparse_sample: sparse textures are not supported"),
        ("texture2d<uint>", "out[0] = x.sparse_read(uint2(0)).resident();", "sparse_read: sparse textures are not supported"),
        ("texture2d<float>", "constexpr sampler t(coord::pixel, address::repeat);", "must be initialized by a constant"),
    ],
)  # fmt: skip
def test_misuse_is_an_error_at_its_line(texture: str, body: str, message: str) -> None:
    source = f"kernel void f({texture} x, sampler s,\ndevice float *out) {{\n  {body}\n}}\n"
    with pytest.raises(CompileError) as caught:
        anymetal.compile(HEAD + source + "kernel void g(device float *x) {}")["f"]
    text = str(caught.value)
    assert message in text
    assert text.startswith(
        ("<msl>:5:", "<msl>:3:") if "component" in message or "has access" in message else "<msl>:5:"
    )


def test_arrays_structs_templates_and_functions() -> None:
    source = """
struct Layers { texture2d<float> x [[id(0)]]; sampler s [[id(1)]]; device float *out [[id(2)]]; float scale; array<texture2d<float>, 2> more; };
struct Reader { texture2d<half> t; half4 at(uint2 p) const { return t.read(p); } };
constexpr sampler pixels(coord::pixel, filter::nearest);
constant sampler wide(filter::linear, address::repeat);
template <class T, access A> T total(texture2d<T, A> t) { return t.read(uint2(0)).x; }
float second(array<texture2d<float>, 2> t, uint i) { return t[i].read(uint2(0)).x; }
template <typename T> kernel void f(constant Layers &l [[buffer(0)]], array<texture2d<T>, 2> a [[texture(3)]],
    texture2d<T, access::write> y [[texture(1)]], texture2d<half> h [[texture(0)]], array<sampler, 2> q [[sampler(1)]],
    device float *out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Reader r = {h};
  const texture2d<float> copy = l.x;
  out[0] = l.x.read(uint2(0)).x + l.x.sample(l.s, float2(0.5f)).x + copy.sample(pixels, float2(0)).x;
  out[1] = total(a[i]) + 10 * total(a[1]) + second(a, 1) * 100;
  out[2] = r.at(uint2(0)).x + a[1].sample(q[1], float2(0.5f)).x + l.more[1].read(uint2(0)).x + a[0].sample(wide, float2(2.5f)).x;
  l.out[0] = l.scale;
  y.write(7, uint2(0));
}
template [[host_name("f")]] kernel void f<float>(constant Layers &, array<texture2d<float>, 2>, texture2d<float, access::write>,
    texture2d<half>, array<sampler, 2>, device float *, uint);
"""
    kernel = one(source)
    x, a, b, h, more = (np.full((1, 1), v, np.float32) for v in (1, 2, 3, 4, 5))
    out, inner, y = np.zeros(3, np.float32), np.zeros(1, np.float32), np.zeros((1, 1), np.float32)
    layers = {"x": x, "s": Sampler(), "out": inner, "scale": 9, "more": [x, more]}
    samplers = {1: Sampler(), 2: Sampler(filter="linear")}
    done = kernel(1, 1, layers, out, textures={3: a, 4: b, 1: y, 0: h.astype(np.float16)}, samplers=samplers)
    assert out.tolist() == [3, 2 + 30 + 300, 4 + 3 + 5 + 2]
    assert inner[0] == 9
    assert y[0, 0] == 7
    assert done.changed == {1: 3, "0.out": 1, "texture(1)": 1}
    kernel(1, 1, l=layers, out=out, a=[a, b], y=y, h=h.astype(np.float16), q=[Sampler()] * 2)
    assert [one["kind"] for one in kernel.describe()["arguments"]] == [
        *["buffer"] * 2,
        *["texture"] * 4,
        *["sampler"] * 2,
    ]


def test_a_function_of_arrays_of_any_length() -> None:
    source = """
struct Layers { array<texture2d<float>, 2> x; };
float total(array_ref<texture2d<float>> t, array_ref<sampler> s) {
  float sum = 10 * s.size();
  for (size_t i = 0; i < t.size(); i++) sum += t[i].sample(s[0], float2(0.5f)).x;
  return sum;
}
kernel void f(constant Layers &l, array<texture2d<float>, 3> x, array<sampler, 1> s, device float *out) {
  out[0] = total(x, s);
  out[1] = total(l.x, s) + array_ref<sampler>().empty();
}"""
    x, out = [np.full((1, 1), v, np.float32) for v in (1, 2, 4)], np.zeros(2, np.float32)
    one(source)(1, 1, {"x": x[1:]}, out, textures=x, samplers=[Sampler()])
    assert out.tolist() == [17, 17]
    with pytest.raises(CompileError, match=r"<msl>:\d+:\d+: error: parameter `array_ref<.*> x` of kernel"):
        one("kernel void f(array_ref<texture2d<float>> x, device float *out) { out[0] = x.size(); }")


def test_a_sampler_that_is_no_constant() -> None:
    source = """
float4 sampled(texture2d<float> x, sampler s, uint2 at) { return x.sample(s, float2(at) + 0.5f); }
kernel void f(texture2d<float> x, texture2d<float, access::write> y, uint2 at [[thread_position_in_grid]]) {
  sampler s(coord::pixel, address::clamp_to_edge, filter::nearest);
  y.write(sampled(x, s, at), at);
}"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = np.zeros_like(x)
    one(source)((3, 2), (3, 2), textures=[x, y])
    np.testing.assert_array_equal(x, y)


def test_atomic_functions_of_texels(runtime: str) -> None:
    kernel = one(
        """
kernel void count(texture2d<uint> x, texture2d<uint, access::read_write> bins, uint2 at [[thread_position_in_grid]]) {
  bins.atomic_fetch_add(uint2(x.read(at).x, 0), uint4(1));
  bins.atomic_fetch_max(uint2(0, 1), uint4(at.x + 10 * at.y));
}""",
        runtime=runtime,
    )
    x = np.random.default_rng(0).integers(0, 8, (16, 16)).astype(np.uint8)
    bins = np.zeros((2, 8), np.uint32)
    kernel((16, 16), (8, 8), textures=[x, bins])
    np.testing.assert_array_equal(bins[0], np.bincount(x.ravel(), minlength=8))
    for other in (np.zeros((2, 8), np.uint8), np.zeros((2, 8, 4), np.uint8)) if runtime == "clang" else ():
        with pytest.raises(
            LaunchError, match=r"an atomic function of .* whose format is not r32uint or r32sint \[atomic"
        ):
            kernel((16, 16), (8, 8), textures=[x, other])
        assert not other.any()
    assert bins[1, 0] == 165


def test_atomic_functions_of_64_bits(runtime: str) -> None:
    kernel = one(
        """
kernel void latest(texture2d<ulong, access::read_write> y, uint i [[thread_position_in_grid]]) {
  y.atomic_max(uint2(i % 2, 0), ulong4(ulong(i) << 32 | 5));
}""",
        runtime=runtime, version="3.1",
    )  # fmt: skip
    y = np.zeros((1, 2, 2), np.uint32)
    kernel(8, 8, textures=[y])
    assert y.tolist() == [[[5, 6], [5, 7]]]
    with pytest.raises(LaunchError, match="a texture of ulong has the format rg32uint, not r32uint"):
        kernel(8, 8, textures=[np.zeros((1, 2), np.uint32)])


def test_null_textures() -> None:
    source = f"kernel void f(texture2d<float> x, device float *out, {INDEX}) {{ out[i] = is_null_texture(x) ? 5 : x.read(uint2(0)).x; }}"
    kernel, out = one(source), np.zeros(1, np.float32)
    kernel(1, 1, out, textures=[None])
    assert out[0] == 5
    with pytest.raises(LaunchError, match=r"<msl>:3:.*through a null pointer \[null\]"):
        one(source.replace("is_null_texture(x)", "false"))(1, 1, out, textures=[None])


PLAIN = "kernel void f(texture2d<half> x, sampler s, texture2d<uint, access::read_write> y, device float *out) { out[0] = 1; }"
GOOD: dict[str, Any] = {"x": np.zeros((2, 3), np.float16), "y": np.zeros((2, 3), np.uint8), "s": Sampler()}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.zeros((2, 3), np.float32)}, "texture(0) of kernel `f`, `texture2d<half> x`: the format r32float has 32-bit floats"),
        ({"x": np.zeros((2, 3, 3), np.uint8)}, "has 3 components, of shape (2, 3, 3); a texel has 1, 2 or 4: append one, with numpy.dstack"),
        ({"x": np.zeros(3, np.uint8)}, "has the shape (3,); a texture2d has the axes (height, width)"),
        ({"x": np.zeros((2, 3), np.int32)}, "no format has components of int32 for half"),
        ({"x": Texture(np.zeros((2, 3), np.uint8), "r8uint")}, "the format r8uint is not read as half"),
        ({"x": Texture(np.zeros((2, 3), np.uint8), "rg8unorm")}, "the format rg8unorm has 2 components of uint8, and the array 1 of uint8"),
        ({"x": np.zeros((1, 16385), np.uint8)}, "its width is 16385; that of a texture2d is at most 16384"),
        ({"x": np.zeros((2, 6), np.uint8)[:, ::2]}, "not C-contiguous"),
        ({"x": np.zeros((0, 3), np.uint8)}, "has no texels"),
        ({"x": "a.png"}, "a texture is an array of NumPy, an anymetal.Texture or None, not 'a.png'"),
        ({"y": np.zeros((2, 3, 2), np.uint8)}, "access::read_write is not for the format rg8uint; it is for r8unorm, "),
        ({"s": "linear"}, "sampler(0) of kernel `f`, `sampler s`: it is an anymetal.Sampler, not 'linear'"),
        ({"z": GOOD["x"]}, "`z` is no buffer of it"),
        ({"textures": [GOOD["x"]]}, "kernel `f`: `x` is bound by its index, too"),
        ({"textures": {7: GOOD["x"]}}, "kernel `f` has no texture(7): texture(0) is `texture2d<half> x`, texture(1)"),
        ({"textures": 5}, "textures is of type int; it is a list, or a mapping from indices"),
    ],
)  # fmt: skip
def test_an_argument_that_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    kernel, out = one(PLAIN), np.zeros(1, np.float32)
    with pytest.raises((LaunchError, TypeError)) as caught:
        kernel(1, 1, out, **{**GOOD, **given})
    assert message in str(caught.value)
    assert out[0] == 0


def test_missing_textures_and_illegal_names_are_refused() -> None:
    kernel, out = one(PLAIN), np.zeros(1, np.float32)
    with pytest.raises(LaunchError, match=r"kernel `f`: texture\(1\) is not bound: texture\(0\) is"):
        kernel(1, 1, out, textures=[GOOD["x"]], samplers=[Sampler()])
    with pytest.raises(LaunchError, match=r"format='rgb8': the formats are those of MTLPixelFormat .* r8unorm, "):
        Texture(out, "rgb8")
    for wrong in ({"filter": "cubic"}, {"address": ["repeat"]}, {"coord": "pixel", "address": "repeat"}):
        with pytest.raises(LaunchError, match=r"address|filter"):
            Sampler(**wrong)  # type: ignore[arg-type]
    levels = Texture(levels=[np.zeros((4, 4), np.float16), np.zeros((3, 2), np.float16)])
    with pytest.raises(LaunchError, match="level 1 has the shape"):
        kernel(1, 1, out, textures=[levels, GOOD["y"]], samplers=[Sampler()])
    with pytest.raises(LaunchError, match="has no texture"):
        one("kernel void f(device float *x) { x[0] = 1; }")(1, 1, out, textures=[out])
    with pytest.raises(CompileError, match="the texture index is above 127"):
        one("kernel void f(texture2d<half> x [[texture(128)]]) {}")
    with pytest.raises(CompileError, match="uses a texture index twice: 1"):
        one("kernel void f(texture2d<half> x [[texture(1)]], texture2d<half> y [[texture(1)]]) {}")


def test_images_of_mps() -> None:
    x = np.arange(2 * 3 * 2 * 5, dtype=np.float16).reshape(2, 3, 2, 5)
    images = anymetal.slices(x)
    assert images.shape == (4, 3, 2, 4)
    assert np.isnan(images[1, ..., 1:]).all()
    np.testing.assert_array_equal(anymetal.unslice(images, 5), x)
    with pytest.raises(LaunchError, match="padding is NaN, which the dtype uint8 does not hold"):
        anymetal.slices(np.zeros((1, 1, 5), np.uint8))
    with pytest.raises(LaunchError, match="slices of images with 9 channels are"):
        anymetal.unslice(images, 9)


def test_a_launch_in_a_process_of_its_own_and_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "kernel void f(texture2d<float> x, texture2d<float, access::write> y, uint2 at [[thread_position_in_grid]]) { y.write(x.read(at) * 2, at); }"
    x = np.random.default_rng(0).random((64, 32)).astype(np.float32)
    found = []
    for isolate, workers in ((True, "1"), (False, "3"), (False, "1")):
        monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", workers)
        y = np.zeros_like(x)
        done = one(source, isolate=isolate)((32, 64), (8, 8), textures=[x, y])
        assert done.written == {"texture(1)": x.size}
        found.append(y.tobytes())
    assert found == [(x * 2).tobytes()] * 3


def test_a_result_that_depends_on_the_order_names_the_texel() -> None:
    source = f"kernel void f(texture2d<float, access::write> y, {INDEX}) {{ y.write(float(i), uint2(2, 1)); }}"
    with pytest.raises(
        LaunchError, match=r"the first difference is the texel \(2, 1\) of `texture2d<float , access::write> y`"
    ):
        one(source, sanitize=False)(4, 4, textures=[np.zeros((2, 4), np.float32)])


def test_cuda_runs_the_same_code(fake_cuda: Any) -> None:
    """The fake device runs the table that the runtime has made; PTX is what clang writes."""
    source = """
kernel void f(texture2d<float> x [[texture(2)]], texture2d<float, access::write> y [[texture(0)]], sampler s, device float *out,
              uint2 at [[thread_position_in_grid]]) {
  y.write(x.sample(s, (float2(at) + 0.5f) / float2(x.get_width(), x.get_height())) * 2, at);
  if (at.x + at.y == 0) out[0] = x.get_width();
}"""
    kernel = one(source, runtime="cuda")
    without_buffers = one("kernel void g(texture2d<float, access::write> y) { y.write(1, uint2(0)); }", runtime="cuda")
    x = np.random.default_rng(0).integers(0, 120, (4, 6, 4)).astype(np.uint8)
    y, out = np.zeros_like(x), np.zeros(1, np.float32)
    kernel((6, 4), (6, 4), out, textures={2: x, 0: y}, samplers=[Sampler()])
    np.testing.assert_array_equal(y, 2 * x)
    assert out[0] == 6
    without_buffers(1, 1, textures=[y])
    assert y[0, 0].tolist() == [255] * 4
    with pytest.raises(LaunchError, match="undefined\\(\\) is for the checks of the clang runtime"):
        kernel((6, 4), (6, 4), out, textures={2: anymetal.undefined(x), 0: y}, samplers=[Sampler()])


def test_other_runtimes_and_interfaces_say_what_they_lack(fake_cuda: Any) -> None:
    source = HEAD + "struct A { texture2d<float> t; }; kernel void f(constant A &a, device float *x) { x[0] = 1; }"
    with pytest.raises(LaunchError, match="a struct with pointers"):
        anymetal.compile(source, runtime="cuda")["f"]
    function = clang.Device().kernel(HEAD + PLAIN).function("f")
    with pytest.raises(LaunchError, match=r"call a kernel of anymetal.compile, which takes textures=\[...\]"):
        function(1, np.zeros(1, np.float32))
