"""The Metal kernels of candle, launched as ``candle-metal-kernels/src/kernels/*.rs`` does, and what NumPy computes.

They are in the repository only. Sizes and strides are those of NumPy in elements, as unsigned integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpsref_collections import oracles
from mpsref_collections.collection import Array, Case, Collection, Compared, Draw, at, blank, named, steps
from mpsref_collections.formats import BLOCKS, dequantized
from mpsref_collections.mlx import shape, views
from mpsref_collections.oracles import ACTIVATIONS, EPSILON, HALF, patches, rounded, spread, wide, windows

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
        columns, high, per = {"q4_K": (4, 8, 4), "q6_K": (2, 32, 2)}.get(kind, (8, 8, 8))
        if kind == "f32":  # its factors are bytes
            columns, high, weights, x = 32, 1, weights.view(np.int8), x.view(np.int8)
        zeros, ones = [np.uint64(0)] * 3, [np.uint32(1)] * 2
        first, second, last = (map(np.int64, three) for three in ((k, rows, b), (k, m, b), (rows, m)))
        arguments = weights, x, out, *first, *zeros, *second, *zeros, *last, *ones
        grid, file = (-(-rows // per), m, b), self.marker_file.with_name("quantized.metal")
        self.launch(file, f"kernel_mul_mv_{kind}_f32", grid, (columns, high, 1), *arguments)
        return out


# --- cases ------------------------------------------------------------------------------------------------------------


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
    name = draw.choice("sum", "mul", "max", "min", "argmax", "argmin")
    whole, dtype = (draw.number(1, 3), draw.choice(*LENGTHS)), draw.choice(np.float32, np.uint32, np.int64)
    x = draw.array(*whole, kind=draw.choice("plain", "ties") if dtype == np.float32 else "ties")
    x = np.where(x == 0, 1, np.sign(x)) if name == "mul" else x
    x = (x if dtype == np.float32 else np.abs(x)).astype(dtype)
    x = np.asfortranarray(x) if draw.choice(False, True) else x
    got, z = candle.reduce(name, x, blank((len(x),), np.uint32 if "arg" in name else dtype)), wide(x)
    bound = EPSILON * 64 * np.abs(z).sum(1) if name == "sum" and dtype == np.float32 else 0
    return Compared(got, getattr(np, "prod" if name == "mul" else name)(z, axis=1), bound)


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


def image(draw: Draw, dtype: Any = np.float32) -> Array:
    """Draw a batch of images without NaN, dense or channels last."""
    whole = (draw.number(1, 2), draw.choice(1, 3), draw.choice(3, 5, 9), draw.choice(3, 8, 31))
    x = draw.array(*whole, kind=draw.choice("plain", "ties"), dtype=dtype)
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if draw.choice(False, True) else x


def pool(candle: Candle, draw: Draw) -> Compared:
    """Maxima or means of windows without padding."""
    x, maximum = image(draw), draw.choice(False, True)
    kernel, stride = [draw.number(1, 3) for _ in range(2)], [draw.number(1, 3) for _ in range(2)]
    size = windows(x.shape[2:], kernel, stride, (0, 0))
    found, out = patches(wide(x), kernel, stride, (0, 0), (1, 1)), blank((*x.shape[:2], *size))
    got = candle.images("max_pool2d" if maximum else "avg_pool2d", out, [*map(np.uint64, (*kernel, *stride))], x)
    if maximum:
        return Compared(got, found.max((4, 5)))
    return Compared(got, found.mean((4, 5)), EPSILON * 16 * np.abs(found).mean((4, 5)))


def im2col(candle: Candle, draw: Draw) -> Compared:
    """The elements of windows."""
    x = image(draw, draw.choice(np.float32, np.float16))
    kernel, stride, dilation = [draw.number(1, 3) for _ in range(2)], draw.number(1, 2), draw.number(1, 2)
    padding = draw.number(0, 2)
    fits = all(n + 2 * padding > dilation * (k - 1) for n, k in zip(x.shape[2:], kernel, strict=True))
    padding = padding if fits else 2
    numbers: Any = [(one, one) for one in (stride, padding, dilation)]
    size = windows(x.shape[2:], kernel, *numbers)
    expected = patches(x, kernel, *numbers).transpose(0, 2, 3, 1, 4, 5)
    about = map(np.uint64, (expected.size, *size, *kernel, stride, padding, dilation))
    return Compared(candle.images("im2col", blank(expected.shape, x.dtype), [*about], x), expected)


def upsample(candle: Candle, draw: Draw) -> Compared:
    """Images of another size, of the nearest elements or interpolated."""
    x, nearest = image(draw), draw.choice(False, True)
    size = draw.choice(1, 2, 5, 18), draw.choice(1, 3, 16, 33)
    align = not nearest and draw.choice(False, True)
    name, out = "nearest" if nearest else "bilinear", blank((*x.shape[:2], *size))
    expected = oracles.resized(x, size, name, align_corners=align)
    if nearest:
        scales = [np.float32(a / b) for a, b in zip(x.shape[2:], size, strict=True)]
        return Compared(candle.images("upsample_nearest2d", out, [*map(np.uint64, size), *scales], x), expected)
    flags = [np.bool_(align), np.bool_(False), np.float32(0), np.bool_(False), np.float32(0)]
    got = candle.images("upsample_bilinear2d", out, [*map(np.uint64, size[::-1]), *flags], x)
    return Compared(got, expected, EPSILON * 64 * (1 + max(x.shape[2:])) * np.abs(x).max())


def conv_transpose(candle: Candle, draw: Draw) -> Compared:
    """A transposed convolution of images."""
    x = image(draw)
    channels, kernel = draw.number(1, 3), [draw.number(1, 3) for _ in range(2)]
    stride, dilation = draw.number(1, 2), draw.number(1, 2)
    padding, more = draw.number(0, 1), draw.number(0, stride - 1)
    weights = draw.array(x.shape[1], channels, *kernel, kind="plain")
    full = np.pad(oracles.transposed_convolution(x, weights, stride, dilation), [(0, 0), (0, 0), (0, more), (0, more)])
    expected = full[:, :, padding : full.shape[2] - padding, padding : full.shape[3] - padding]
    if not expected.size:
        return Compared(np.zeros(1), np.zeros(1))
    numbers = map(np.uint64, (*expected.shape[:1:-1], stride, padding, more, dilation))
    got = candle.images("conv_transpose2d", blank(expected.shape), [*numbers], x, weights)
    return Compared(got, expected, EPSILON * 64 * np.abs(x).max() * np.abs(weights).max() * x.shape[1] * 9)


def mul_mv(candle: Candle, draw: Draw, *kinds: str, exact: bool = False) -> Compared:
    """Products of rows, also quantized ones, and vectors; of whole tiles unless ``exact``."""
    kind = draw.choice(*(kinds or ("q4_0", "q8_0", "q4_K", "q6_K")))
    per = BLOCKS[kind][0] if kind in BLOCKS else 4
    rows = draw.choice(1, 3, 7) if exact else 8 * draw.number(1, 2)
    b, m, k = draw.number(1, 2) if kind == "f32" else 1, draw.number(1, 2), per * draw.choice(1, 2, 4)
    x = draw.array(b, m, k, kind="plain")
    if kind == "f32":
        weights: Array = draw.array(b, rows, k, kind="plain")
        elements: Any = wide(weights)
    else:
        _, size = BLOCKS[kind]
        blocks = np.random.default_rng(draw.number(0, 2**16)).integers(0, 256, (b, rows, k // per, size), np.uint8)
        for first in {"q4_0": [0], "q8_0": [0], "q4_K": [0, 2], "q6_K": [208]}[kind]:
            blocks[..., first : first + 2] = np.array([0.02], np.float16).view(np.uint8)
        weights = blocks.reshape(b, rows, -1)
        elements = dequantized(weights, kind)
    expected, size = (
        np.einsum("brk,bmk->bmr", *both) for both in ((elements, wide(x)), map(np.abs, (elements, wide(x))))
    )
    return Compared(candle.mul_mv(kind, weights, x, rows), expected, EPSILON * 256 * size)


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
    (numbers, function), out = ELEMENTWISE[name], blank(x.shape, TYPES[other])
    file = f"{'affine' if name != 'cast' else 'cast'}.metal"
    kernel = f"{name}_{kind}{f'_{other}' * (name == 'cast')}"
    candle.elements(file, kernel, [x], *map(np.float32, numbers), at(x), out)
    expected = np.trunc(wide(x)) if other[0] in "ui" else function(wide(x))
    unit = 2 * HALF if "f16" in (kind, other) else EPSILON
    return Compared(out, expected, 0 if name == "cast" and other != "f16" else unit * 16 * (1 + np.abs(expected)))


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
    numbers, grid = map(np.int64, (d1, d2, d2 + 2, d2 + 3)), (d1, d2, 1)
    source = candle.marker_file.with_name("unary.metal")
    candle.launch(source, f"copy2d_{dtype}", grid, (min(d1, 8), min(d2, 32), 1), *numbers, x, out, whole=False)
    return Compared(out, np.pad(x[:, :d2], [(0, 0), (0, 3)]))


def indexed(candle: Candle, draw: Draw, *, dense: bool = True) -> Compared:
    """Elements of an axis taken, put and added by indices."""
    name = draw.choice("is", "gather", "s", "sa", "ia") if dense else "is"
    kind = draw.choice("u8", "u32", "i64")
    left, rows, right = draw.number(1, 3), draw.number(1, 9), draw.choice(1, 3, 33)
    count = draw.number(1, 12)
    random, kernel = np.random.default_rng(draw.number(0, 2**16)), f"{name}_{kind}_f32"
    x = draw.array(left, rows, right, kind="plain")

    def run(threads: int, lengths: Sequence[int], *arguments: Any) -> None:
        candle.split("indexing.metal", kernel, threads, *map(np.uint64, lengths), *arguments)

    if name in ("is", "gather"):
        ids = random.integers(0, rows, (left, count, right) if name == "gather" else count).astype(TYPES[kind])
        out = blank((left, count, right))
        view = x if dense else np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)
        about = [np.bool_(view.flags.c_contiguous), *layout(view)] if name == "is" else []
        run(out.size, (out.size, left, rows, right, count), *about, at(view), ids, out)
        taken = ids.astype(int)
        return Compared(out, np.take_along_axis(x, taken, 1) if name == "gather" else x[:, taken])
    many = draw.number(1, 9)
    out = draw.array(left, many, right, kind="plain")
    expected, z = wide(out), np.indices(x.shape)
    ids = random.integers(0, many, rows if name == "ia" else x.shape).astype(TYPES[kind])
    where = np.broadcast_to((ids[None, :, None] if name == "ia" else ids).astype(int), x.shape)
    if name == "s":
        for j in range(rows):  # the last one stays
            expected[z[0][:, j], where[:, j], z[2][:, j]] = x[:, j]
    else:
        np.add.at(expected, (z[0], where, z[2]), x)
    run(left * right, [left * right, left, rows, right, many, *[rows] * (name == "ia")], x, ids, out)
    return Compared(out, expected, 0 if name == "s" else EPSILON * 64)


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


def rope(candle: Candle, draw: Draw) -> Compared:
    """Rotations of halves, of neighbours, and of heads behind the tokens."""
    name, dtype = draw.choice("rope", "rope_i", "rope_thd"), draw.choice(np.float32, np.float16)
    b, h, t, d = draw.number(1, 2), draw.number(1, 3), draw.number(1, 5), 2 * draw.number(1, 17)
    batched, thd = draw.choice(False, True), name == "rope_thd"
    x = draw.array(b, *((t, h) if thd else (h, t)), d, dtype=dtype, kind="plain")
    cos, sin = (draw.array(*[b] * batched, t, d // 2, dtype=dtype, kind="plain") for _ in range(2))
    numbers = {"rope": (b * h, t * d, d), "rope_i": (b * h, t * d), "rope_thd": (b, t, h, d)}[name]
    out, lengths = blank(x.shape, dtype), (*numbers, h * t * d if batched else 0)
    candle.split("reduce.metal", f"{name}_{NAMES[x.dtype]}", x.size // 2, *map(np.uint64, lengths), x, cos, sin, out)
    c, s = (np.expand_dims(wide(one), -2 if thd else -3) for one in (cos, sin))
    expected, _ = oracles.rotated(x, c, s, 0.0, neighbours=name == "rope_i")
    unit = EPSILON if dtype == np.float32 else HALF * 8
    return Compared(out, expected, unit * 4 * (1 + np.abs(x).max() * max(np.abs(cos).max(), np.abs(sin).max())))


def one_dimensional(candle: Candle, draw: Draw) -> list[Compared]:
    """Taps of windows, sums of columns, and transposed convolution along one axis."""
    b, c, length, k = draw.number(1, 2), draw.number(1, 3), draw.choice(1, 5, 33), draw.number(1, 4)
    stride, dilation, features = draw.number(1, 3), draw.number(1, 2), draw.number(1, 3)
    padding = draw.number(0, 2) + max(0, dilation * (k - 1) + 1 - length)
    x = draw.array(b, c, length, kind="plain")
    x = np.asfortranarray(x) if draw.choice(False, True) else x
    axis = (1, k), (1, stride), (0, padding), (1, dilation)
    count = windows((1, length), *axis)[1]
    taken = patches(x[:, :, None], *axis)[:, :, 0, :, 0].transpose(0, 2, 1, 3)
    numbers = map(np.uint64, (taken.size, count, k, stride, padding, dilation))
    made = [Compared(candle.images("im2col1d", blank(taken.shape), [*numbers], x), taken)]
    columns = draw.array(b, length, c, k, kind="plain")
    added = spread(wide(columns).transpose(0, 2, 1, 3), stride)
    numbers, out = map(np.uint64, (added.size, added.shape[2], length, c, k, stride)), blank(added.shape)
    candle.split("conv.metal", "col2im1d_f32", out.size, *numbers, columns, out)
    made.append(Compared(out, added, EPSILON * 16 * k * np.abs(columns).max()))
    weights, crop = draw.array(c, features, k, kind="plain"), draw.number(0, 1)
    full = spread(np.einsum("bil,iok->bolk", wide(x), wide(weights)), stride, dilation)
    expected = full[:, :, crop : full.shape[2] - crop]
    if not expected.size:
        return made
    numbers = map(np.uint64, (expected.shape[2], stride, crop, 0, dilation))
    got = candle.images("conv_transpose1d", blank(expected.shape), [*numbers], x, weights)
    return [*made, Compared(got, expected, EPSILON * 64 * np.abs(x).max() * np.abs(weights).max() * c * k)]


def random(candle: Candle, draw: Draw, *counts: int) -> Compared:
    """Uniform numbers are in the interval, and all are written."""
    n, dtype = draw.choice(*(counts or (1, 2, 5, 33, 1000, 2048))), draw.choice("f32", "f16")
    out, seed = blank((n,), TYPES[dtype]), np.array([299792458, 7], np.uint32)
    numbers = np.uint64(n), np.float32(-2), np.float32(3)
    candle.split("random.metal", f"rand_uniform_{dtype}", n // 2 + n % 2, *numbers, seed, out)
    return Compared((out >= -2) & (out <= 3), np.ones(n))


FINDINGS: Mapping[str, tuple[Case, str]] = {
    "attention of heads of 256": (
        wide_heads,
        "in float32 the kernel has more threadgroup memory than a threadgroup may have",
    ),
    "mul_mv of rows that do not fill a tile": (
        lambda candle, draw: mul_mv(candle, draw, "q4_K", "q6_K", exact=True),
        "the K-quant kernels write all rows of a tile, also those behind the end of the result",
    ),
    "mul_mv of float32": (
        lambda candle, draw: mul_mv(candle, draw, "f32"),
        "a threadgroup computes one row, and the host launches one for 8 rows: the others are not written",
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

REVIEWED: Mapping[tuple[str, str], str] = {
    ("", "fence"): "barriers with mem_none between writes and reads, see the page of findings; the results are right",
    (
        "",
        "inactive-lane",
    ): "with less than 32 threads all but the first lane add lanes that do not exist; only it counts",
    ("", "same-value"): "threads of the last threadgroup that are too many repeat elements of others",
    ("", "uncovered"): "a part of an array is written; the results are compared as a whole",
}
"""What was seen in reports of kernels whose results are right: by the beginning of the kernel's name, and the kind."""

CASES = named(
    unary, binary, reduce, softmax, layer_norm, rms_norm, pool, im2col, upsample, conv_transpose, mul_mv, elementwise,
    selected, indexed, arg_sort, rope, one_dimensional, random,
)  # fmt: skip
