"""The Metal kernels of candle, launched as ``candle-metal-kernels/src/kernels/*.rs`` does, and what NumPy computes.

They are in the repository only. Sizes and strides are those of NumPy in elements, as unsigned integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from published import candle_ggml, oracles
from published.collection import (
    Array,
    Case,
    Collection,
    Compared,
    Draw,
    at,
    blank,
    members,
    named,
    record,
    steps,
)
from published.formats import BLOCKS, dequantized
from published.formats import weights as blocks_of
from published.mlx import ints, longs, shape, views
from published.oracles import ACTIVATIONS, EPSILON, HALF, patches, rounded, spread, wide, windows

MOST_THREADS = 1024
TYPES = {"f32": np.float32, "f16": np.float16, "u8": np.uint8, "u32": np.uint32, "i64": np.int64}
NAMES = {np.dtype(one): name for name, one in TYPES.items()}


def sizes(values: Sequence[int]) -> Array:
    """Return integers as an array of ``size_t``, which is not empty."""
    return np.array([*values] or [0], np.uint64)


def layout(*arrays: Array) -> list[Array]:
    """Return the lengths and the strides of arrays."""
    return [one for x in arrays for one in (sizes(x.shape), sizes(steps(x)))]


class Candle(Collection):
    """Launches of candle's kernels."""

    name = "candle"
    marker = "candle-metal-kernels/src/metal_src/reduce.metal"
    package = "a checkout of candle with candle-metal-kernels"
    version = "3.1"

    def include(self) -> list[Path]:
        """Return the folder of the sources."""
        return [self.marker_file.parent]

    def kinds(self, file: str, kernel: str) -> list[str]:
        """Return the types of a kernel that NumPy has."""
        there = self.library(self.marker_file.with_name(file), {}, False).functions
        return [kind for kind in TYPES if f"{kernel}_{kind}" in there]

    def struct(self, file: str, name: str, **values: Any) -> Array:
        """Return a struct of arguments that a file declares, zero where there are no values."""
        fields = members(self.marker_file.with_name(file).read_text(), name)
        return record(fields, {one: 0 for one, *_ in fields} | values)

    def split(self, file: str, kernel: str, count: int, *arguments: Any) -> None:
        """Launch threadgroups for ``count`` threads."""
        width = min(MOST_THREADS, count)
        grid = (-(-count // width), 1, 1)
        self.launch(self.marker_file.with_name(file), kernel, grid, (width, 1, 1), *arguments)

    def elements(self, file: str, kernel: str, views: Sequence[Array], *arguments: Any, each: bool = True) -> None:
        """Launch a thread for a few elements of dense arrays, or of views for one, and if not ``each`` for a few."""
        x, dense = views[0], all(one.flags.c_contiguous for one in views)
        about = [] if dense else [np.uint64(x.ndim), sizes(x.shape), *(sizes(steps(one)) for one in views)]
        threads = x.size if each and not dense else -(-x.size // max(1, 8 // x.itemsize))
        self.split(file, kernel + "_strided" * (not dense), threads, np.uint64(x.size), *about, *arguments)

    def unary(self, name: str, x: Array) -> Array:
        """Return a function of each element."""
        out = blank(x.shape, x.dtype)
        self.elements("unary.metal", f"{name}_{NAMES[x.dtype]}", [x], at(x), out)
        return out

    def binary(self, name: str, x: Array, y: Array, dtype: Any) -> Array:
        """Return a function of two arrays."""
        out = blank(x.shape, dtype)
        self.elements("binary.metal", f"{name}_{NAMES[x.dtype]}", [x, y], at(x), at(y), out, each=False)
        return out

    def rows(self, kernel: str, count: int, length: int, *arguments: Any) -> None:
        """Launch a threadgroup for each row."""
        half = length // 2
        width = min(MOST_THREADS, 1 << (half - 1).bit_length() if half > 1 else 1)
        self.launch(self.marker_file, kernel, (count, 1, 1), (width, 1, 1), *arguments)

    def reduce(self, name: str, x: Array, out: Array) -> Array:
        """Write reductions of the last axes of a view."""
        kernel, length = f"fast_{name}_{NAMES[x.dtype]}", x.size // out.size
        about = [np.uint32(x.size), np.uint32(x.ndim), sizes(x.shape).astype(np.uint32)]
        if not x.flags.c_contiguous:
            kernel, about = f"{kernel}_strided", [*about, sizes(steps(x)).astype(np.uint32)]
        self.rows(kernel, out.size, length, *about, np.uint32(length), at(x), out)
        return out

    def normalized(self, kernel: str, x: Array, *more: Any) -> Array:
        """Return softmax or a normalization of rows."""
        out = blank(x.shape, x.dtype)
        about = np.uint32(x.size), np.uint32(x.shape[1])
        self.rows(f"{kernel}_{NAMES[x.dtype]}", len(x), x.shape[1], *about, x, out, *more)
        return out

    def images(self, kernel: str, out: Array, numbers: Sequence[Any], *arrays: Array) -> Array:
        """Launch a kernel of windows or positions: an element of the result for each thread."""
        given = *numbers, *layout(*arrays), *map(at, arrays)
        self.split("conv.metal", f"{kernel}_{NAMES[arrays[0].dtype]}", out.size, *given, out)
        return out

    def mul_mv(self, kind: str, weights: Array, x: Array, rows: int) -> Array:
        """Return products of quantized rows and vectors (batch, m, k)."""
        b, m, k = x.shape
        out = blank((b, m, rows))
        columns, high, per = TILES.get(kind, (8, 8, 8))
        if kind == "f32":  # its factors are bytes
            columns, high, weights, x = 32, 1, weights.view(np.int8), x.view(np.int8)
        zeros, ones = [np.uint64(0)] * 3, [np.uint32(1)] * 2
        first, second, last = (map(np.int64, three) for three in ((k, rows, b), (k, m, b), (rows, m)))
        arguments = weights, x, out, *first, *zeros, *second, *zeros, *last, *ones
        grid, file = (-(-rows // per), m, b), self.marker_file.with_name("quantized.metal")
        self.launch(file, f"kernel_mul_mv_{kind}_f32", grid, (columns, high, 1), *arguments)
        return out


TILES = dict.fromkeys(("q2_K", "q3_K", "q5_K"), (2, 32, 4)) | {"q4_K": (4, 8, 4), "q6_K": (2, 32, 2)}
"""Columns and rows of a threadgroup for products of vectors, and the rows of weights that the host counts on."""


# --- cases ------------------------------------------------------------------------------------------------------------


def numbers(draw: Draw, kind: str, *lengths: int) -> Array:
    """Draw numbers of a type: small integers that are not negative for types without a sign."""
    x = draw.array(*lengths, kind=draw.choice("plain", "ties") if kind[0] == "f" else "ties")
    return (np.abs(x) if kind[0] == "u" else x).astype(TYPES[kind])


def unit(kind: str) -> float:
    """Return the rounding of a type."""
    return {"f32": EPSILON, "f16": HALF}.get(kind, 0.0)


UNARY: Mapping[str, Any] = {
    **{name: ACTIVATIONS[name] for name in ("silu", "gelu", "gelu_erf", "sigmoid")}, "abs": np.abs, "tanh": np.tanh,
    **{name: getattr(np, name) for name in ("sqrt", "cos", "sin", "exp", "log", "ceil", "floor", "sign")},
    "sqr": np.square, "neg": np.negative, "recip": np.reciprocal, "copy": np.positive, "erf": oracles.erf,
    "relu": lambda x: np.where(x < 0, 0, x), "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}  # fmt: skip
"""Functions by the names of the kernels."""

BINARY: Mapping[str, Any] = {
    "badd": np.add, "bsub": np.subtract, "bmul": np.multiply, "bdiv": np.divide, "bminimum": np.minimum,
    "bmaximum": np.maximum, "eq": np.equal, "ne": np.not_equal, "le": np.less_equal, "lt": np.less,
    "ge": np.greater_equal, "gt": np.greater,
}  # fmt: skip


def unary(candle: Candle, draw: Draw) -> Compared:
    """A function of each element of a view with positive strides."""
    name, dtype = draw.choice(*UNARY), draw.choice(np.float32, np.float16)
    finite = name in ("gelu", "gelu_erf", "silu", "sign", "erf")
    x = views(draw, shape(draw), dtype, draw.choice("plain", "ties") if finite else None, signed=False)
    z = wide(x)
    expected = UNARY[name](z)
    error = 5e-7 * (1 + np.abs(z)) * ("erf" in name) + EPSILON * 16 * (1 + np.abs(z) + expected**2)
    error = error + HALF * 16 * (np.abs(expected) + np.abs(z) + 1) * (dtype == np.float16)
    return Compared(candle.unary(name, x), *rounded(expected, dtype, error))


def binary(candle: Candle, draw: Draw) -> Compared:
    """A function of two arrays without NaN: that of the maximum depends on the order."""
    name, dtype, whole = draw.choice(*BINARY), draw.choice(np.float32, np.float16), shape(draw)
    kind = draw.choice("plain", "ties")
    x, y = (views(draw, whole, dtype, kind, signed=False) for _ in range(2))
    expected = BINARY[name](wide(x), wide(y))
    got = candle.binary(name, x, y, np.bool_ if expected.dtype == bool else dtype)
    return Compared(got, *rounded(wide(expected), dtype))


LENGTHS = 1, 2, 3, 5, 31, 33, 64, 100, 1023, 1025, 2052
"""Of rows that fill powers of two or not."""


def reduce(candle: Candle, draw: Draw) -> Compared:
    """Sums, products, maxima and minima of the last axis of a view, and their first positions."""
    name, kind = draw.choice("sum", "mul", "max", "min", "argmax", "argmin"), draw.choice(*TYPES)
    x = np.abs(numbers(draw, kind, draw.number(1, 3), draw.choice(*LENGTHS)))
    x = np.where(x == 0, 1, np.sign(x)).astype(x.dtype) if name == "mul" else x
    x = np.asfortranarray(x) if draw.choice(False, True) else x
    got, z = candle.reduce(name, x, blank((len(x),), np.uint32 if "arg" in name else x.dtype)), wide(x)
    expected = getattr(np, "prod" if name == "mul" else name)(z, axis=1)
    expected = expected % 256 if kind == "u8" and name == "sum" else expected
    return Compared(got, expected, unit(kind) * 64 * expected * (name == "sum"))


def softmax(candle: Candle, draw: Draw) -> Compared:
    """Softmax of rows of finite numbers."""
    dtype = draw.choice(np.float32, np.float16)
    x = draw.array(draw.number(1, 3), draw.choice(*LENGTHS), dtype=dtype, kind=draw.choice("plain", "ties"))
    expected, bound = oracles.softmax(wide(x), unit=2 * EPSILON if dtype == np.float32 else 4 * HALF)
    return Compared(candle.normalized("softmax", x), *rounded(expected, dtype, bound))


def norm(candle: Candle, draw: Draw, *, centred: bool) -> Compared:
    """Rows divided by their root mean squares, or normalized."""
    dtype = draw.choice(np.float32, np.float16)
    count, length = draw.number(1, 3), draw.choice(*LENGTHS)
    x = draw.array(count, length, dtype=dtype, kind="plain")
    factors = [draw.array(length, dtype=dtype, kind="plain") for _ in range(2)][: 1 + centred]
    expected, bound = oracles.normalized(
        x, *factors, centred=centred, unit=EPSILON if dtype == np.float32 else 2 * HALF
    )
    got = candle.normalized("layernorm" if centred else "rmsnorm", x, *factors, np.float32(1e-5))
    return Compared(got, *rounded(expected, dtype, bound))


def layer_norm(candle: Candle, draw: Draw) -> Compared:
    """Normalized rows."""
    return norm(candle, draw, centred=True)


def rms_norm(candle: Candle, draw: Draw) -> Compared:
    """Rows divided by their root mean squares."""
    return norm(candle, draw, centred=False)


def image(draw: Draw, kind: str = "f32") -> Array:
    """Draw a batch of images without NaN, dense or channels last."""
    x = numbers(draw, kind, draw.number(1, 2), draw.choice(1, 3), draw.choice(3, 5, 9), draw.choice(3, 8, 31))
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if draw.choice(False, True) else x


def pool(candle: Candle, draw: Draw) -> Compared:
    """Maxima or means of windows without padding."""
    name = draw.choice("max_pool2d", "avg_pool2d")
    kind = draw.choice(*candle.kinds("conv.metal", name))
    x, kernel, stride = image(draw, kind), *([draw.number(1, 3) for _ in range(2)] for _ in range(2))
    size = windows(x.shape[2:], kernel, stride, (0, 0))
    found, out = patches(wide(x), kernel, stride, (0, 0), (1, 1)), blank((*x.shape[:2], *size), x.dtype)
    got = candle.images(name, out, [*map(np.uint64, (*kernel, *stride))], x)
    if name == "max_pool2d":
        return Compared(got, found.max((4, 5)))
    mean = found.sum((4, 5)) / (kernel[0] * kernel[1])
    expected = mean if kind[0] == "f" else np.floor(mean)
    return Compared(got, expected, (EPSILON * 16 + unit(kind) * (kind == "f16")) * np.abs(found).mean((4, 5)))


def im2col(candle: Candle, draw: Draw) -> Compared:
    """The elements of windows."""
    x = image(draw, draw.choice(*candle.kinds("conv.metal", "im2col")))
    kernel, stride, dilation = [draw.number(1, 3) for _ in range(2)], draw.number(1, 2), draw.number(1, 2)
    padding = draw.number(0, 2)
    fits = all(n + 2 * padding > dilation * (k - 1) for n, k in zip(x.shape[2:], kernel, strict=True))
    padding = padding if fits else 2
    pairs: Any = [(one, one) for one in (stride, padding, dilation)]
    size = windows(x.shape[2:], kernel, *pairs)
    expected = patches(x, kernel, *pairs).transpose(0, 2, 3, 1, 4, 5)
    about = map(np.uint64, (expected.size, *size, *kernel, stride, padding, dilation))
    return Compared(candle.images("im2col", blank(expected.shape, x.dtype), [*about], x), expected)


def upsample(candle: Candle, draw: Draw) -> Compared:
    """Images of another size, of the nearest elements or interpolated."""
    nearest, kind = draw.choice(False, True), draw.choice(*candle.kinds("conv.metal", "upsample_nearest2d"))
    x, size = image(draw, kind), (draw.choice(1, 2, 5, 18), draw.choice(1, 3, 16, 33))
    align = not nearest and draw.choice(False, True)
    name, out = "nearest" if nearest else "bilinear", blank((*x.shape[:2], *size), x.dtype)
    expected = oracles.resized(x, size, name, align_corners=align)
    if nearest:
        scales = [np.float32(a / b) for a, b in zip(x.shape[2:], size, strict=True)]
        return Compared(candle.images("upsample_nearest2d", out, [*map(np.uint64, size), *scales], x), expected)
    flags = [np.bool_(align), np.bool_(False), np.float32(0), np.bool_(False), np.float32(0)]
    got = candle.images("upsample_bilinear2d", out, [*map(np.uint64, size[::-1]), *flags], x)
    error = EPSILON * 64 * (1 + max(x.shape[2:])) + unit(kind) + (kind[0] == "u")  # integers are cut off
    return Compared(got, expected, error * (np.abs(x).max() if kind[0] == "f" else 1))


def conv_transpose(candle: Candle, draw: Draw) -> Compared:
    """A transposed convolution of images."""
    kind = draw.choice(*candle.kinds("conv.metal", "conv_transpose2d"))
    x = image(draw, kind)
    channels, kernel = draw.number(1, 3), [draw.number(1, 3) for _ in range(2)]
    stride, dilation = draw.number(1, 2), draw.number(1, 2)
    padding, more = draw.number(0, 1), draw.number(0, stride - 1)
    weights = numbers(draw, kind, x.shape[1], channels, *kernel)
    full = np.pad(oracles.transposed_convolution(x, weights, stride, dilation), [(0, 0), (0, 0), (0, more), (0, more)])
    expected = full[:, :, padding : full.shape[2] - padding, padding : full.shape[3] - padding]
    if not expected.size:
        return Compared(np.zeros(1), np.zeros(1))
    about = map(np.uint64, (*expected.shape[:1:-1], stride, padding, more, dilation))
    got = candle.images("conv_transpose2d", blank(expected.shape, x.dtype), [*about], x, weights)
    return Compared(
        got, expected, (EPSILON * 64 + unit(kind)) * np.abs(x).max() * np.abs(weights).max() * x.shape[1] * 9
    )


def mul_mv(candle: Candle, draw: Draw, *kinds: str, exact: bool = False) -> Compared:
    """Products of rows, also quantized ones, and vectors; of whole tiles unless ``exact``."""
    kind = draw.choice(*(kinds or ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q3_K", "q4_K", "q5_K", "q6_K")))
    per = BLOCKS[kind][0] if kind in BLOCKS else 4
    rows = draw.choice(1, 3, 7) if exact else 8 * draw.number(1, 2)
    b, m, k = draw.number(1, 2) if kind == "f32" else 1, draw.number(1, 2), per * draw.choice(1, 2, 4)
    x, weights = draw.array(b, m, k, kind="plain"), blocks_of(draw, kind, b, rows, k)
    return product(candle.mul_mv(kind, weights, x, rows), dequantized(weights, kind), x)


def product(got: Array, weights: Array, x: Array, rounding: float = 0.0) -> Compared:
    """Compare products of rows of weights (..., n, k) and x (..., m, k), whose factors are rounded."""
    pairs = (weights, wide(x)), (np.abs(weights), np.abs(wide(x)))
    expected, size = (np.einsum("...rk,...mk->...mr", *both) for both in pairs)
    return Compared(got, expected, (EPSILON * 256 + rounding) * (size + 4 * np.abs(wide(x)).sum(-1)[..., None]))


def mul_mm(candle: Candle, draw: Draw, *rows: int) -> Compared:
    """Products of matrices, whose factors are rounded to float16, of whole blocks of 32 terms."""
    kind = draw.choice("f32", "f16", *candle_ggml.HOST)
    b, n, m = draw.number(1, 2), draw.choice(*(rows or (4, 60, 64, 68))), draw.choice(1, 9, 32, 33)
    k = draw.choice(32, 64, 96) if kind not in BLOCKS else BLOCKS[kind][0] * draw.number(1, 2)
    x, weights = draw.array(1, b, m, k, kind="plain"), blocks_of(draw, kind, 1, b, n, k)
    out, groups = blank((1, b, m, n)), (-(-m // 32), -(-n // 64), b)
    about = {"ne00": k, "r2": 1, "r3": 1}
    candle_ggml.run(
        candle, f"kernel_mul_mm_{kind}_f32", groups, 128, weights, x, out, function="kernel_mul_mm", local=8192, **about
    )
    return product(out, dequantized(weights, kind), x, 2 * HALF)


GEMM = {"f32": (64, 64, 16, 2, 2), "f16": (64, 64, 16, 1, 2), "either": (64, 32, 32, 2, 2), "wide": (32, 64, 16, 1, 2)}
"""Rows, columns and terms of a block, and its simdgroups: which of them is chosen depends on the GPU, too."""


def gemm(candle: Candle, draw: Draw) -> Compared:
    """Batches of products of matrices, either of them transposed, also with one matrix for all."""
    kind, b = draw.choice("f32", "f16"), draw.number(1, 3)
    m, n, k = (draw.choice(2, 15, 17, 64, 65) for _ in range(3))
    flips, shared = (draw.choice(False, True), draw.choice(False, True)), draw.choice(False, True)
    x = draw.array(b, *((k, m) if flips[0] else (m, k)), dtype=TYPES[kind], kind="plain")
    y = draw.array(1 if shared else b, *((n, k) if flips[1] else (k, n)), dtype=TYPES[kind], kind="plain")
    left, right = (wide(one).swapaxes(1, 2) if flip else wide(one) for one, flip in zip((x, y), flips, strict=True))
    out = blank((b, m, n), x.dtype)
    many, rows = (1, b * m) if shared and not flips[0] else (b, m)
    bm, bn, bk, wm, wn = (32, 32, 16, 2, 2) if rows < 16 else GEMM[draw.choice(kind, "either", "wide")]
    tiles = -(-n // bn), -(-rows // bm)
    strides = (0, 0) if many < b else (m * k, 0 if shared else k * n)
    params = candle.struct(
        "mlx_gemm.metal", "GEMMParams", M=rows, N=n, K=k, lda=x.shape[2], ldb=y.shape[2], ldd=n, tiles_n=tiles[0],
        tiles_m=tiles[1], batch_stride_a=strides[0], batch_stride_b=strides[1], batch_stride_d=m * n, batch_ndim=1,
        gemm_k_iterations_aligned=k // bk,
    )  # fmt: skip
    known: dict[int | str, Any] = {10: many > 1, 100: False, 110: False, 300: False}
    known |= {200: rows % bm == 0, 201: n % bn == 0, 202: k % bk == 0}
    batch = [np.int32(many), sizes(strides)] if many > 1 else []
    kernel = f"gemm_{''.join('nt'[flip] for flip in flips)}_{kind}_{kind}_{bm}_{bn}_{bk}_{wm}_{wn}"
    source = candle.marker_file.with_name("mlx_gemm.metal")
    candle.launch(source, kernel, (*tiles, many), (32, wn, wm), x, y, out, params, *batch, constants=known)
    size = np.abs(left) @ np.abs(right)
    return Compared(out, *rounded(left @ right, x.dtype, EPSILON * 64 * size))


def gemv(candle: Candle, draw: Draw, *, several: bool = False) -> Compared:
    """Products of matrices with vectors; each row by one simdgroup, unless ``several``: then of transposes, too."""
    kind, transposed, b = draw.choice("f32", "f16"), several and draw.choice(False, True), draw.number(1, 2)
    size = draw.choice(1, 4, 515) if several else draw.choice(3, 4, 5, 33, 70)
    length = draw.choice(70, 130, 1025) if several else draw.choice(1, 3, 31, 64, size * 15)
    matrix = draw.array(b, *((length, size) if transposed else (size, length)), dtype=TYPES[kind], kind="plain")
    vector, out = draw.array(b, length, dtype=TYPES[kind], kind="plain"), blank((b, size), TYPES[kind])
    if transposed:
        bm, bn, sm, sn, tm, tn = 1, 4 if size >= 512 else 2, 8, 4, 4, 1 if size < 4 else 4
    else:
        bm, bn, sm, sn = (1, 1, 8, 4) if length <= 64 else (1, 8, 1, 32) if length >= 16 * size else (4, 1, 1, 32)
        tm, tn = 1 if size < 4 else 4, 4
    per = bn * sn * tn if transposed else bm * sm * tm
    kernel = f"gemv{'_t' * transposed}_{vector.dtype}_bm{bm}_bn{bn}_sm{sm}_sn{sn}_tm{tm}_tn{tn}_nc0_axpby0"
    about = map(np.int32, (length, size, matrix.shape[2])), map(np.float32, (1, 0))
    batch = np.int32(1), ints([b]), longs([length]), longs([length * size]), longs([0]), np.int32(1)
    candle.launch(
        candle.marker_file.with_name("gemv.metal"), kernel, (-(-size // per), 1, b), (32, bn, bm), matrix, vector,
        np.zeros(1, vector.dtype), out, *about[0], *about[1], *batch,
    )  # fmt: skip
    left, right = wide(matrix.swapaxes(1, 2) if transposed else matrix), wide(vector)[..., None]
    size_of = (np.abs(left) @ np.abs(right))[..., 0]
    return Compared(out, *rounded((left @ right)[..., 0], out.dtype, EPSILON * 64 * size_of))


def attention_of_one(candle: Candle, draw: Draw) -> Compared:
    """Attention of a query for each head, by one kernel, or by 32 parts of the keys that another one joins."""
    dtype, d, two = draw.choice(np.float32, np.float16), draw.choice(32, 64, 96, 128), draw.choice(False, True)
    b, of, shared, keys = draw.number(1, 2), draw.number(1, 2), draw.choice(1, 2), draw.choice(1, 5, 33, 70)
    q = draw.array(b, of * shared, 1, d, dtype=dtype, kind="plain")
    k, v = (draw.array(b, of, keys, d, dtype=dtype, kind="plain") for _ in "kv")
    scale, out, many = d**-0.5, blank(q.shape, dtype), b * of * shared
    about = np.int32(shared), np.int32(keys), *map(np.uint64, (keys * d, keys * d)), np.float32(scale), np.float32(1)
    source, kind = candle.marker_file.with_name("scaled_dot_product_attention.metal"), f"{q.dtype}_t_{d}"
    kind = kind if dtype == np.float16 else f"float_{d}"
    known: dict[int | str, Any] = {20: False}
    if not two:
        given = q, k, v, out, *about
        candle.launch(source, f"sdpa_vector_{kind}", (1, many, 1), (1024, 1, 1), *given, constants=known)
    else:
        parts = blank((many, 32, d)), blank((many, 32)), blank((many, 32))
        given = q, k, v, *parts, *about
        candle.launch(source, f"sdpa_vector_2pass_1_{kind}", (1, many, 32), (256, 1, 1), *given, constants=known)
        candle.launch(source, f"sdpa_vector_2pass_2_{kind}", (1, many, 1), (1024, 1, 1), *parts, out)
    expected = oracles.attention(q, k, v, scale)
    error = (EPSILON * 256 + HALF * 8 * (dtype == np.float16)) * np.abs(wide(v)).max()
    return Compared(out, *rounded(expected, dtype, error))


def attention(candle: Candle, draw: Draw, *, ragged: bool = False) -> Compared:
    """Attention of many queries, with a mask that is added or the causal order: of whole blocks unless ``ragged``."""
    dtype, d = draw.choice((np.float32, 64), (np.float32, 128), (np.float16, 32), (np.float16, 80), (np.float16, 256))
    b, of, shared = draw.number(1, 2), draw.number(1, 2), draw.choice(1, 2)
    count, keys, how = draw.choice(1, 8, 33, 64), draw.choice(1, 31, 64, 70), draw.choice("none", "causal", "mask")
    how = "causal" if ragged else how
    count = 64 if how == "causal" and not ragged else count
    keys = max(keys, count) if how == "causal" else keys
    q = draw.array(b, of * shared, count, d, dtype=dtype, kind="plain")
    k, v = (draw.array(b, of, keys, d, dtype=dtype, kind="plain") for _ in "kv")
    mask = draw.array(b, of * shared, count, keys, dtype=dtype, kind="plain") if how == "mask" else None
    bq, bk, out, scale = 32, 32 if d < 128 else 16, blank(q.shape, dtype), d**-0.5
    file, blocks = "scaled_dot_product_attention.metal", (-(-count // bq), of * shared, b)
    params = candle.struct(
        file, "AttnParams", B=b, H=of * shared, D=d, qL=count, kL=keys, gqa_factor=shared, scale=scale, softcapping=1,
        NQ=blocks[0], NK=-(-keys // bk), NQ_aligned=count // bq, NK_aligned=keys // bk, qL_rem=count % bq,
        kL_rem=keys % bk, qL_off=keys - count,
        **{f"{name}_strides": steps(one)[:3] for name, one in zip("QKVO", (q, k, v, out), strict=True)},
    )  # fmt: skip
    more = [] if mask is None else [candle.struct(file, "AttnMaskParams", M_strides=steps(mask)[:3]), mask]
    known: dict[int | str, Any] = {200: count % bq == 0, 201: keys % bk == 0, 300: how == "mask", 301: how == "causal"}
    kernel = f"steel_attention_{q.dtype}_bq{bq}_bk{bk}_bd{d}_wm4_wn1_mask{q.dtype}"
    given = q, k, v, out, params, *more
    candle.launch(candle.marker_file.with_name(file), kernel, blocks, (32, 4, 1), *given, constants=known)
    expected = oracles.attention(q, k, v, scale, mask=mask, causal=keys - count if how == "causal" else None)
    error = (EPSILON * 256 + HALF * 8 * (dtype == np.float16)) * np.abs(wide(v)).max()
    return Compared(out, *rounded(expected, dtype, error))


def largest_of_nan(candle: Candle, draw: Draw) -> Compared:
    """The larger of NaN and a number: NaN in either order on other devices."""
    x, y = np.array([np.nan, 1], np.float32), np.array([1, np.nan], np.float32)
    return Compared(candle.binary("bmaximum", x, y, np.float32), np.full(2, np.nan))


def wide_heads(candle: Candle, draw: Draw) -> Compared:
    """The kernel for attention of float32 with heads of 256 is within the limits of a threadgroup."""
    constants: dict[int | str, Any] = {200: True, 201: True, 300: False, 301: False}
    library = candle.library(candle.marker_file.with_name("scaled_dot_product_attention.metal"), constants, True)
    used = library["steel_attention_float32_bq32_bk16_bd256_wm4_wn1_maskfloat32"].describe()["threadgroup_bytes"]
    return Compared(np.array([used <= 32768]), np.array([True]))


ELEMENTWISE: Mapping[str, tuple[tuple[float, ...], Any]] = {
    "affine": ((2.5, -1.0), lambda z: z * 2.5 - 1), "powf": ((1.5,), lambda z: np.abs(z) ** 1.5),
    "elu": ((0.5,), lambda z: np.where(z > 0, z, 0.5 * np.expm1(z))), "cast": ((), np.positive),
}  # fmt: skip
"""Numbers and functions by the names of the kernels."""


def elementwise(candle: Candle, draw: Draw) -> Compared:
    """Affine functions, powers, ELU and casts of a view."""
    name, dtype = draw.choice(*ELEMENTWISE), draw.choice(np.float32, np.float16)
    kind = NAMES[np.dtype(dtype)]
    other = draw.choice(*TYPES) if name == "cast" else kind
    x = np.abs(views(draw, shape(draw), dtype, draw.choice("plain", "ties"), signed=False))
    x = x - dtype(1) if name == "elu" else x
    (given, function), out = ELEMENTWISE[name], blank(x.shape, TYPES[other])
    file = f"{'affine' if name != 'cast' else 'cast'}.metal"
    kernel = f"{name}_{kind}{f'_{other}' * (name == 'cast')}"
    candle.elements(file, kernel, [x], *map(np.float32, given), at(x), out)
    expected = np.trunc(wide(x)) if other[0] in "ui" else function(wide(x))
    error = 2 * HALF if "f16" in (kind, other) else EPSILON
    return Compared(out, expected, 0 if name == "cast" and other != "f16" else error * 16 * (1 + np.abs(expected)))


def selected(candle: Candle, draw: Draw) -> Compared:
    """Elements of two views by a condition, constants, and parts of matrices."""
    name, dtype = draw.choice("where", "fill", "const_set", "copy2d"), draw.choice(*TYPES)
    kind = draw.choice("u8", "u32", "i64")
    whole, real = shape(draw), TYPES[dtype]
    if name == "where":
        ids = np.abs(views(draw, whole, np.int64, "ties", signed=False)).astype(TYPES[kind])
        x, y = (np.abs(views(draw, whole, real, "ties", signed=False)) for _ in range(2))
        three, out = (ids, x, y), blank(whole, real)
        about = np.uint64(ids.size), np.uint64(ids.ndim), sizes(whole), *(sizes(steps(one)) for one in three)
        known: dict[int | str, Any] = dict(enumerate(one.flags.c_contiguous for one in three))
        per = max(1, 8 // out.itemsize)
        width = min(MOST_THREADS, -(-ids.size // per))
        grid, file = (-(-ids.size // (per * width)), 1, 1), candle.marker_file.with_name("ternary.metal")
        given = *about, *map(at, three), out
        candle.launch(file, f"where_{kind}_{dtype}", grid, (width, 1, 1), *given, constants=known)
        return Compared(out, np.where(ids != 0, x, y))
    value = np.array([5], real)
    if name == "fill":
        out = blank((draw.length(),), real)
        candle.split("fill.metal", f"fill_{dtype}", out.size, out, value, np.uint64(out.size))
        return Compared(out, np.full(out.shape, 5))
    if name == "const_set":
        out, step = np.zeros(whole, real), draw.choice(1, 2)
        expected, view = out.copy(), out[..., ::step]
        candle.elements("unary.metal", f"const_set_{dtype}", [view], value, at(view))
        expected[..., ::step] = 5
        return Compared(out, expected)
    d1, d2 = draw.number(1, 5), draw.length()
    x, out = np.abs(draw.array(d1, d2 + 2, kind="ties")).astype(real), np.zeros((d1, d2 + 3), real)
    lengths, grid = map(np.int64, (d1, d2, d2 + 2, d2 + 3)), (d1, d2, 1)
    source = candle.marker_file.with_name("unary.metal")
    candle.launch(source, f"copy2d_{dtype}", grid, (min(d1, 8), min(d2, 32), 1), *lengths, x, out, whole=False)
    return Compared(out, np.pad(x[:, :d2], [(0, 0), (0, 3)]))


def indexed(candle: Candle, draw: Draw, *, dense: bool = True) -> Compared:
    """Elements of an axis taken, put and added by indices."""
    name = draw.choice("is", "gather", "s", "sa", "ia") if dense else "is"
    kind = draw.choice("u8", "u32", "i64")
    real = draw.choice(*candle.kinds("indexing.metal", f"{name}_{kind}")) if dense else "f32"
    left, rows, right = draw.number(1, 3), draw.number(1, 9), draw.choice(1, 3, 33)
    count = draw.number(1, 12)
    random, kernel = np.random.default_rng(draw.number(0, 2**16)), f"{name}_{kind}_{real}"
    x = numbers(draw, real, left, rows, right)

    def run(threads: int, lengths: Sequence[int], *arguments: Any) -> None:
        candle.split("indexing.metal", kernel, threads, *map(np.uint64, lengths), *arguments)

    if name in ("is", "gather"):
        ids = random.integers(0, rows, (left, count, right) if name == "gather" else count).astype(TYPES[kind])
        out = blank((left, count, right), x.dtype)
        view = x if dense else np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)
        about = [np.bool_(view.flags.c_contiguous), *layout(view)] if name == "is" else []
        run(out.size, (out.size, left, rows, right, count), *about, at(view), ids, out)
        taken = ids.astype(int)
        return Compared(out, np.take_along_axis(x, taken, 1) if name == "gather" else x[:, taken])
    many = draw.number(1, 9)
    out = numbers(draw, real, left, many, right)
    expected, z = wide(out), np.indices(x.shape)
    ids = random.integers(0, many, rows if name == "ia" else x.shape).astype(TYPES[kind])
    where = np.broadcast_to((ids[None, :, None] if name == "ia" else ids).astype(int), x.shape)
    if name == "s":
        for j in range(rows):  # the last one stays
            expected[z[0][:, j], where[:, j], z[2][:, j]] = x[:, j]
    else:
        np.add.at(expected, (z[0], where, z[2]), x)
    run(left * right, [left * right, left, rows, right, many, *[rows] * (name == "ia")], x, ids, out)
    return Compared(out, expected, 0 if name == "s" else unit(real) * 64)


def arg_sort(candle: Candle, draw: Draw) -> Compared:
    """Positions of the numbers of rows in order."""
    rows, length, order = draw.number(1, 3), draw.choice(1, 2, 5, 33, 100, 700, 1024), draw.choice("asc", "desc")
    kind = draw.choice(*TYPES)
    x = draw.array(rows, length, kind="ties" if kind[0] in "ui" else draw.choice("plain", "ties"))
    x = (np.abs(x) if kind[0] in "u" else x).astype(TYPES[kind])
    padded, out = 1 << (length - 1).bit_length(), blank((rows, length), np.uint32)
    candle.launch(
        candle.marker_file.with_name("sort.metal"), f"asort_{order}_{kind}", (1, rows, 1), (padded, 1, 1), x, out,
        np.int64(length), np.int64(padded), local={0: max(16, 4 * padded)},
    )  # fmt: skip
    return oracles.in_order(x, out, descending=order == "desc")


def sort_of_blocks(candle: Candle, draw: Draw, *, several: bool = False, floats: bool = True) -> Compared:
    """Positions of the numbers of rows in order by MLX's kernels: one block, or several that are merged."""
    kind = "f32" if several and floats else draw.choice(*(("u8", "u32", "f16") if several else TYPES))
    length = draw.choice(4100, 6000) if several else draw.choice(1, 2, 33, 700, 1025, 2049, 4095)
    length = min(length, 2047) if kind == "i64" else length
    x, blocks = numbers(draw, kind, draw.number(1, 2), length), -(-length // 8)
    threads = 512 if blocks > 256 and kind != "i64" else 256 if blocks > 128 else 128
    source, (rows, _) = candle.marker_file.with_name("mlx_sort.metal"), x.shape
    name = f"{x.dtype}_uint32_bn{threads}_tn8"
    grid, group, row, one = (1, rows, 1), (threads, 1, 1), np.int32(length), np.int32(1)
    if not several:
        out, given = blank(x.shape, np.uint32), list[Any]([row, one, one])
        general = draw.choice(False, True)
        given += [one, ints([rows]), longs([length]), longs([length])] if general else [row, row]
        candle.launch(source, f"{'n' * general}carg_block_sort_{name}", grid, group, x, out, *given)
        return oracles.in_order(x, out)
    pairs = [(blank(x.shape, x.dtype), blank(x.shape, np.uint32)) for _ in range(2)]
    blocks, tiles = -(-length // (8 * threads)), 2
    about, all_of = (row, one, one, ints([rows]), longs([length])), (blocks, rows, 1)
    candle.launch(source, f"sort_mbsort_{name}", all_of, group, x, *pairs[0], *about)
    places = blank((rows, blocks + 1), np.uint32)
    while tiles // 2 < blocks:
        lengths = row, np.int32(tiles), np.int32(blocks)
        several_of = min(blocks + 1, MOST_THREADS), 1, 1
        candle.launch(source, f"partition_mbsort_{name}", grid, several_of, places, *pairs[0], *lengths)
        # Their host takes the kernel of float32 for all types: see FINDINGS.
        merge = f"merge_mbsort_float32_uint32_bn{threads}_tn8"
        values = [[at(first, np.float32), second] for first, second in pairs]
        candle.launch(source, merge, all_of, group, places, *values[0], *values[1], *lengths)
        pairs, tiles = pairs[::-1], 2 * tiles
    return oracles.in_order(x, pairs[0][1])


def rope(candle: Candle, draw: Draw) -> Compared:
    """Rotations of halves, of neighbours, and of heads behind the tokens."""
    name, dtype = draw.choice("rope", "rope_i", "rope_thd"), draw.choice(np.float32, np.float16)
    b, h, t, d = draw.number(1, 2), draw.number(1, 3), draw.number(1, 5), 2 * draw.number(1, 17)
    batched, thd = draw.choice(False, True), name == "rope_thd"
    x = draw.array(b, *((t, h) if thd else (h, t)), d, dtype=dtype, kind="plain")
    cos, sin = (draw.array(*[b] * batched, t, d // 2, dtype=dtype, kind="plain") for _ in range(2))
    about = {"rope": (b * h, t * d, d), "rope_i": (b * h, t * d), "rope_thd": (b, t, h, d)}[name]
    out, lengths = blank(x.shape, dtype), (*about, h * t * d if batched else 0)
    candle.split("reduce.metal", f"{name}_{NAMES[x.dtype]}", x.size // 2, *map(np.uint64, lengths), x, cos, sin, out)
    c, s = (np.expand_dims(wide(one), -2 if thd else -3) for one in (cos, sin))
    expected, _ = oracles.rotated(x, c, s, 0.0, neighbours=name == "rope_i")
    error = EPSILON if dtype == np.float32 else HALF * 8
    return Compared(out, expected, error * 4 * (1 + np.abs(x).max() * max(np.abs(cos).max(), np.abs(sin).max())))


def one_dimensional(candle: Candle, draw: Draw) -> list[Compared]:
    """Taps of windows, sums of columns, and transposed convolution along one axis."""
    b, c, length, k = draw.number(1, 2), draw.number(1, 3), draw.choice(1, 5, 33), draw.number(1, 4)
    stride, dilation, features = draw.number(1, 3), draw.number(1, 2), draw.number(1, 3)
    padding = draw.number(0, 2) + max(0, dilation * (k - 1) + 1 - length)
    kind = draw.choice(*candle.kinds("conv.metal", "im2col1d"))
    x = numbers(draw, kind, b, c, length)
    x, error = np.asfortranarray(x) if draw.choice(False, True) else x, 16 * unit(kind)
    axis = (1, k), (1, stride), (0, padding), (1, dilation)
    count = windows((1, length), *axis)[1]
    taken = patches(x[:, :, None], *axis)[:, :, 0, :, 0].transpose(0, 2, 1, 3)
    about = map(np.uint64, (taken.size, count, k, stride, padding, dilation))
    made = [Compared(candle.images("im2col1d", blank(taken.shape, x.dtype), [*about], x), taken)]
    columns = numbers(draw, kind, b, length, c, k)
    added = spread(wide(columns).transpose(0, 2, 1, 3), stride)
    about, out = map(np.uint64, (added.size, added.shape[2], length, c, k, stride)), blank(added.shape, x.dtype)
    candle.split("conv.metal", f"col2im1d_{kind}", out.size, *about, columns, out)
    made.append(Compared(out, added, error * k * np.abs(columns).max()))
    weights, crop = numbers(draw, kind, c, features, k), draw.number(0, 1)
    full = spread(np.einsum("bil,iok->bolk", wide(x), wide(weights)), stride, dilation)
    expected = full[:, :, crop : full.shape[2] - crop]
    if not expected.size:
        return made
    about = map(np.uint64, (expected.shape[2], stride, crop, 0, dilation))
    got = candle.images("conv_transpose1d", blank(expected.shape, x.dtype), [*about], x, weights)
    return [*made, Compared(got, expected, error * 4 * np.abs(x).max() * np.abs(weights).max() * c * k)]


def random(candle: Candle, draw: Draw, *counts: int) -> Compared:
    """Uniform numbers are in the interval, normal ones are finite, and all are written."""
    n, dtype = draw.choice(*(counts or (1, 2, 5, 33, 1000, 2048))), draw.choice("f32", "f16")
    out, seed = blank((n,), TYPES[dtype]), np.array([299792458, 7], np.uint32)
    about, name = (np.uint64(n), np.float32(-2), np.float32(3)), draw.choice("uniform", "normal")
    candle.split("random.metal", f"rand_{name}_{dtype}", n // 2 + n % 2, *about, seed, out)
    return Compared((out >= -2) & (out <= 3) if name == "uniform" else np.isfinite(out), np.ones(n))


FINDINGS: Mapping[str, tuple[Case, str]] = {
    "attention of heads of 256": (
        wide_heads,
        "in float32 the kernel has more threadgroup memory than a threadgroup may have",
    ),
    "mul_mv of rows that do not fill a tile": (
        lambda candle, draw: mul_mv(candle, draw, "q4_K", "q6_K", exact=True),
        "the K-quant kernels write all rows of a tile, also those behind the end of the result",
    ),
    "mul_mv of q2_K": (
        lambda candle, draw: mul_mv(candle, draw, "q2_K"),
        "the host launches a threadgroup for 4 rows, and the kernel computes 8, without a look at their number",
    ),
    "sort of long rows that are not float32": (
        lambda candle, draw: sort_of_blocks(candle, draw, several=True, floats=False),
        "`call_mlx_arg_sort` merges blocks of any type by the kernel of float32",
    ),
    "causal attention of queries that do not fill a block": (
        lambda candle, draw: attention(candle, draw, ragged=True),
        "the last block of queries reads blocks of keys and values behind the last one, whose factors are 0",
    ),
    "sort of long rows": (
        lambda candle, draw: sort_of_blocks(candle, draw, several=True),
        "`merge_step` reads an element behind the threadgroup's array if a block is full; it does not count",
    ),
    "mul_mm of rows that are no multiple of 4": (
        lambda candle, draw: mul_mm(candle, draw, 31, 70),
        "a block at the border is stored as float4 at addresses that are multiples of 4 bytes",
    ),
    "gemv by several simdgroups": (
        lambda candle, draw: gemv(candle, draw, several=True),
        "a barrier that only some threads reach, with mem_none, between writes and reads",
    ),
    "flash attention": (
        candle_ggml.old_attention,
        "lanes read what others have just stored, without a simdgroup_barrier, or float4 at multiples of 4 bytes; "
        "candle does not launch these kernels",
    ),
    "mul_mv of float32": (
        lambda candle, draw: mul_mv(candle, draw, "f32"),
        "a threadgroup computes one row, and the host launches one for 8 rows: the others are not written",
    ),
    "group_norm of several simdgroups": (
        lambda candle, draw: candle_ggml.old_group_norm(candle, draw, most=1024),
        "sums of the mean are read while the memory for those of the variance is cleared; candle does not launch it",
    ),
    "index_select of a view": (
        lambda candle, draw: indexed(candle, draw, dense=False),
        "the length of the axis is passed to `get_strided_index` as the number of axes",
    ),
    "random numbers of more than 2048": (
        lambda candle, draw: random(candle, draw, 3000, 4097),
        "threads of the last threadgroup that are too many write numbers of others again, without an order",
    ),
    "maximum of NaN": (
        largest_of_nan,
        "`x > y ? x : y` is the number if the first operand is NaN, and NaN if the second is",
    ),
}
"""Cases in which the kernels differ from NumPy or stop, and why."""

ALARM = "a false alarm: the compiler stores elements of a matrix without a value by a load and a store of their column"

REVIEWED: Mapping[tuple[str, str], str] = {
    ("", "fence"): "barriers with mem_none between writes and reads, see the page of findings; the results are right",
    (
        "",
        "inactive-lane",
    ): "with less than 32 threads all but the first lane add lanes that do not exist; only it counts",
    ("", "same-value"): "threads of the last threadgroup that are too many repeat elements of others",
    ("kernel_get_rows_iq", "uninitialized"): ALARM,
    ("kernel_mul_mm_id_iq", "uninitialized"): ALARM,
    ("", "uncovered"): "a part of an array is written; the results are compared as a whole",
}
"""What was seen in reports of kernels whose results are right: by the beginning of the kernel's name, and the kind."""

NOT_RUN: Mapping[str, str] = {
    "*_bf16*": "NumPy has no bfloat16; the same text of the macro is run with float32 and float16",
}
"""Why functions are not run, by patterns of their names."""


HOST: Mapping[str, str] = {
    "unary": (
        "threads as tiles of max(1, 8 / bytes) contiguous elements of the result, in threadgroups of as many "
        "as the pipeline allows; strided: as elements"
    ),
    "binary": (
        "threads as tiles of max(1, 8 / bytes) contiguous elements of the result, in threadgroups of as many "
        "as the pipeline allows; strided: as elements"
    ),
    "elementwise": (
        "threads as tiles of max(1, 8 / bytes) contiguous elements of the result, in threadgroups of as many "
        "as the pipeline allows; strided: as elements (`affine`, `cast`, `powf`, `elu`)"
    ),
    "selected": (
        "threads as elements of the result, in threadgroups of as many as the pipeline allows; `copy2d`: a "
        "grid of the rows and columns"
    ),
    "indexed": ("threads as elements of the result, in threadgroups of as many as the pipeline allows"),
    "pool": ("threads as elements of the result, in threadgroups of as many as the pipeline allows"),
    "im2col": ("threads as elements of the result, in threadgroups of as many as the pipeline allows"),
    "upsample": ("threads as elements of the result, in threadgroups of as many as the pipeline allows"),
    "conv_transpose": ("threads as elements of the result, in threadgroups of as many as the pipeline allows"),
    "one_dimensional": ("threads as elements of the result, in threadgroups of as many as the pipeline allows"),
    "reduce": (
        "a threadgroup for each result, of the power of 2 from half of the reduced length on, at most what "
        "the pipeline allows"
    ),
    "softmax": (
        "a threadgroup for each result, of the power of 2 from half of the reduced length on, at most what "
        "the pipeline allows"
    ),
    "layer_norm": (
        "a threadgroup for each result, of the power of 2 from half of the reduced length on, at most what "
        "the pipeline allows"
    ),
    "rms_norm": (
        "a threadgroup for each result, of the power of 2 from half of the reduced length on, at most what "
        "the pipeline allows"
    ),
    "random": ("half as many threads as numbers, rounded up"),
    "mul_mv": (
        "threadgroups of 8 x 8 threads for 8 rows of q4_0 to q8_1, of 4 x 8 for 4 rows of q4_K, of 2 x 32 "
        "for 4 rows of q2_K, q3_K and q5_K and for 2 of q6_K, of 32 for 8 rows of floats"
    ),
    "gemm": (
        "tiles by the class of the GPU and the sizes; `align_m`, `align_n`, `align_k` where the tile "
        "divides; `has_batch` for more than one"
    ),
    "gemv": ("bn, sm, sn and tn by the length of the vectors (64, 2048 and others)"),
    "attention": (
        "d of 32, 64, 72, 80, 96, 128, 256, 512; queries by 32, keys by 32, or by 16 for d of 128 on; other "
        "blocks for 512"
    ),
    "attention_of_one": ("threadgroups of 1024 threads; d of 32, 64, 96, 128, 256, 512"),
    "arg_sort": ("one threadgroup a row, of the columns rounded up to a power of 2"),
    "sort_of_blocks": ("8 elements a thread; blocks by the columns; merges by at most 1024 threads"),
}
"""What the host passes in commit 2a13b0f3f, as `candle-metal-kernels/src/kernels` says."""

CASES = named(
    unary, binary, reduce, softmax, layer_norm, rms_norm, pool, im2col, upsample, conv_transpose, mul_mv, mul_mm, gemm,
    gemv, attention_of_one, attention, elementwise, selected, indexed, arg_sort, sort_of_blocks, rope,
    one_dimensional, random, *candle_ggml.ALL,
)  # fmt: skip
