"""The Metal kernels of candle, launched as ``candle-metal-kernels/src/kernels/*.rs`` does, and what NumPy computes.

They are in the repository only. Sizes and strides are those of NumPy in elements, as unsigned integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpsref_collections.collection import Array, Case, Collection, Compared, Draw, at, blank, steps
from mpsref_collections.ggml import BLOCKS, dequantized
from mpsref_collections.mlx import EPSILON, HALF, erf, rounded, shape, views
from mpsref_collections.pytorch import positions, taps

MOST_THREADS = 1024
TYPES = {"float32": "f32", "float16": "f16", "uint8": "u8", "uint32": "u32", "int64": "i64"}


def sizes(values: Sequence[int]) -> Array:
    """Return integers as an array of ``size_t``, which is not empty."""
    return np.array([*values] or [0], np.uint64)


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

    def unary(self, name: str, x: Array) -> Array:
        """Return a function of each element."""
        out, kernel = blank(x.shape, x.dtype), f"{name}_{TYPES[str(x.dtype)]}"
        if x.flags.c_contiguous:
            threads = -(-x.size // max(1, 8 // x.itemsize))
            self.split("unary.metal", kernel, threads, np.uint64(x.size), at(x), out)
        else:
            about = np.uint64(x.size), np.uint64(x.ndim), sizes(x.shape), sizes(steps(x))
            self.split("unary.metal", f"{kernel}_strided", x.size, *about, at(x), out)
        return out

    def binary(self, name: str, x: Array, y: Array, dtype: Any) -> Array:
        """Return a function of two arrays."""
        out, kernel = blank(x.shape, dtype), f"{name}_{TYPES[str(x.dtype)]}"
        threads = -(-x.size // max(1, 8 // x.itemsize))
        if x.flags.c_contiguous and y.flags.c_contiguous:
            self.split("binary.metal", kernel, threads, np.uint64(x.size), at(x), at(y), out)
        else:
            about = np.uint64(x.size), np.uint64(x.ndim), sizes(x.shape), sizes(steps(x)), sizes(steps(y))
            self.split("binary.metal", f"{kernel}_strided", threads, *about, at(x), at(y), out)
        return out

    def rows(self, kernel: str, count: int, length: int, *arguments: Any) -> None:
        """Launch a threadgroup for each row."""
        half = length // 2
        width = min(MOST_THREADS, 1 << (half - 1).bit_length() if half > 1 else 1)
        self.launch(self.marker_file, kernel, (count, 1, 1), (width, 1, 1), *arguments)

    def reduce(self, name: str, x: Array, out: Array) -> Array:
        """Write reductions of the last axes of a view."""
        kernel, length = f"fast_{name}_{TYPES[str(x.dtype)]}", x.size // out.size
        about = [np.uint32(x.size), np.uint32(x.ndim), sizes(x.shape).astype(np.uint32)]
        if not x.flags.c_contiguous:
            kernel, about = f"{kernel}_strided", [*about, sizes(steps(x)).astype(np.uint32)]
        self.rows(kernel, out.size, length, *about, np.uint32(length), at(x), out)
        return out

    def normalized(self, kernel: str, x: Array, *more: Any) -> Array:
        """Return softmax or a normalization of rows."""
        out = blank(x.shape, x.dtype)
        about = np.uint32(x.size), np.uint32(x.shape[1])
        self.rows(f"{kernel}_{TYPES[str(x.dtype)]}", len(x), x.shape[1], *about, x, out, *more)
        return out

    def images(self, kernel: str, x: Array, out: Array, *numbers: Any) -> Array:
        """Launch a kernel of windows or positions: an element of the result for each thread."""
        name = f"{kernel}_{TYPES[str(x.dtype)]}"
        self.split("conv.metal", name, out.size, *numbers, sizes(x.shape), sizes(steps(x)), at(x), out)
        return out

    def transposed(self, kernel: str, x: Array, weights: Array, out: Array, *numbers: int) -> Array:
        """Launch a transposed convolution."""
        about = [array for one in (x, weights) for array in (sizes(one.shape), sizes(steps(one)))]
        name = f"{kernel}_{TYPES[str(x.dtype)]}"
        self.split("conv.metal", name, out.size, *map(np.uint64, numbers), *about, at(x), at(weights), out)
        return out

    def mul_mv(self, kind: str, weights: Array, x: Array, rows: int) -> Array:
        """Return products of quantized rows and vectors (batch, m, k)."""
        b, m, k = x.shape
        out = blank((b, m, rows))
        wide, high, per = {"q4_K": (4, 8, 4), "q6_K": (2, 32, 2)}.get(kind, (8, 8, 8))
        if kind == "f32":  # its factors are bytes
            wide, high, weights, x = 32, 1, weights.view(np.int8), x.view(np.int8)
        zeros, one = [np.uint64(0)] * 3, np.uint32(1)
        numbers = [
            *map(np.int64, (k, rows, b)),
            *zeros,
            *map(np.int64, (k, m, b)),
            *zeros,
            np.int64(rows),
            np.int64(m),
            one,
            one,
        ]
        grid, kernel = (-(-rows // per), m, b), f"kernel_mul_mv_{kind}_f32"
        self.launch(
            self.marker_file.with_name("quantized.metal"), kernel, grid, (wide, high, 1), weights, x, out, *numbers
        )
        return out


# --- cases ------------------------------------------------------------------------------------------------------------


def gelu(x: Array) -> Any:
    """Return the approximation with tanh."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


UNARY: Mapping[str, Any] = {
    "sqrt": np.sqrt, "sqr": np.square, "neg": np.negative, "recip": np.reciprocal, "copy": np.positive,
    "silu": lambda x: x / (1 + np.exp(-x)), "gelu": gelu, "relu": lambda x: np.where(x < 0, 0, x), "cos": np.cos,
    "sin": np.sin, "exp": np.exp, "log": np.log, "abs": np.abs, "ceil": np.ceil, "floor": np.floor,
    "erf": erf, "gelu_erf": lambda x: x * (1 + erf(x * math.sqrt(0.5))) / 2, "sign": np.sign, "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}  # fmt: skip
"""Functions by the names of the kernels."""

BINARY: Mapping[str, Any] = {
    "badd": np.add, "bsub": np.subtract, "bmul": np.multiply, "bdiv": np.divide, "bminimum": np.minimum,
    "bmaximum": np.maximum, "eq": np.equal, "ne": np.not_equal, "le": np.less_equal, "lt": np.less,
    "ge": np.greater_equal, "gt": np.greater,
}  # fmt: skip


def unary(candle: Candle, draw: Draw, *names: str, kind: str | None = None) -> Compared:
    """A function of each element of a view with positive strides."""
    name, dtype = draw.choice(*(names or UNARY)), draw.choice(np.float32, np.float16)
    special = kind or (
        None if name not in ("gelu", "gelu_erf", "silu", "sign", "erf") else draw.choice("plain", "ties")
    )
    x = views(draw, shape(draw), dtype, special, signed=False)
    got = candle.unary(name, x)
    with np.errstate(all="ignore"):
        z = x.astype(np.float64)
        expected = UNARY[name](z)
        error = 5e-7 * (1 + np.abs(z)) if "erf" in name else 0.0
        error = error + (0.0 if dtype == np.float32 else HALF * 8 * (np.abs(expected) + np.abs(z) + 1))
        expected, bound = rounded(expected, dtype, error + EPSILON * 16 * (1 + np.abs(z) + expected**2))
    return Compared(got, expected, bound)


def binary(candle: Candle, draw: Draw) -> Compared:
    """A function of two arrays without NaN: that of the maximum depends on the order."""
    name, dtype, whole = draw.choice(*BINARY), draw.choice(np.float32, np.float16), shape(draw)
    kind = draw.choice("plain", "ties")
    x, y = (views(draw, whole, dtype, kind, signed=False) for _ in range(2))
    with np.errstate(all="ignore"):
        expected = BINARY[name](x.astype(np.float64), y.astype(np.float64))
    got = candle.binary(name, x, y, np.bool_ if expected.dtype == bool else dtype)
    return Compared(got, *rounded(expected.astype(np.float64), dtype))


def reduce(candle: Candle, draw: Draw) -> Compared:
    """Sums, products, maxima and minima of the last axis of a view, and their first positions."""
    name = draw.choice("sum", "mul", "max", "min", "argmax", "argmin")
    whole = (draw.number(1, 3), draw.choice(1, 2, 3, 5, 31, 33, 64, 100, 1023, 1025, 2052))
    dtype = draw.choice(np.float32, np.uint32, np.int64)
    x = (
        draw.array(*whole, kind=draw.choice("plain", "ties"))
        if dtype == np.float32
        else draw.array(*whole, kind="ties")
    )
    x = np.where(x == 0, 1, np.sign(x)) if name == "mul" else x
    x = x.astype(dtype) if dtype == np.float32 else np.abs(x).astype(dtype)
    x = np.asfortranarray(x) if draw.choice(False, True) else x
    got = candle.reduce(name, x, blank((len(x),), np.uint32 if "arg" in name else dtype))
    z = x.astype(np.float64)
    function = {"mul": np.prod}.get(name) or getattr(np, name)
    bound = EPSILON * 64 * np.abs(z).sum(1) if name == "sum" and dtype == np.float32 else 0
    return Compared(got, function(z, axis=1), bound)


def length_of_rows(draw: Draw) -> int:
    """Return the length of rows that fill powers of two or not."""
    return int(draw.choice(1, 2, 3, 5, 31, 33, 64, 100, 1023, 1025, 2052))


def softmax(candle: Candle, draw: Draw) -> Compared:
    """Softmax of rows of finite numbers."""
    dtype = draw.choice(np.float32, np.float16)
    x = draw.array(draw.number(1, 3), length_of_rows(draw), dtype=dtype, kind=draw.choice("plain", "ties"))
    z = x.astype(np.float64)
    powers = np.exp(z - z.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True)
    relative = (EPSILON if dtype == np.float32 else HALF) * (64 + x.shape[1] / 8 + 16 * np.abs(z).max())
    return Compared(candle.normalized("softmax", x), *rounded(expected, dtype, relative * expected + 1e-38))


def norm(candle: Candle, draw: Draw, *, centred: bool) -> Compared:
    """Rows divided by their root mean squares, or normalized."""
    dtype = draw.choice(np.float32, np.float16)
    count, length = draw.number(1, 3), length_of_rows(draw)
    x = draw.array(count, length, dtype=dtype, kind="plain")
    weight, bias = (draw.array(length, dtype=dtype, kind="plain") for _ in range(2))
    z = x.astype(np.float64)
    mean = z.mean(1, keepdims=True) if centred else 0.0
    deviation = np.sqrt(((z - mean) ** 2).mean(1, keepdims=True) + 1e-5)
    plain = (z - mean) / deviation
    factors = [weight, bias] if centred else [weight]
    expected = plain * weight + (bias if centred else 0)
    unit = EPSILON if dtype == np.float32 else HALF
    error = unit * (64 + length / 16) * (np.abs(z).max(1, keepdims=True) / deviation + np.abs(plain)) * np.abs(weight)
    got = candle.normalized("layernorm" if centred else "rmsnorm", x, *factors, np.float32(1e-5))
    return Compared(got, *rounded(expected, dtype, error + unit * np.abs(bias.astype(np.float64))))


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
    size = (*x.shape[:2], *((n - k) // s + 1 for n, k, s in zip(x.shape[2:], kernel, stride, strict=True)))
    words = {"kernel_size": kernel, "stride": stride, "padding": (0, 0), "dilation": (1, 1)}
    found, _ = taps(x, words, size, 0)
    numbers = map(np.uint64, (*kernel, *stride))
    got = candle.images("max_pool2d" if maximum else "avg_pool2d", x, blank(size), *numbers)
    if maximum:
        return Compared(got, found.max(-1))
    return Compared(got, found.mean(-1, dtype=np.float64), EPSILON * 16 * np.abs(found).mean(-1))


def im2col(candle: Candle, draw: Draw) -> Compared:
    """The elements of windows."""
    x = image(draw, draw.choice(np.float32, np.float16))
    kernel, stride, dilation = [draw.number(1, 3) for _ in range(2)], draw.number(1, 2), draw.number(1, 2)
    padding = draw.number(0, 2)
    room = [n + 2 * padding - dilation * (k - 1) - 1 for n, k in zip(x.shape[2:], kernel, strict=True)]
    if min(room) < 0:
        padding, room = 2, [n + 4 - dilation * (k - 1) - 1 for n, k in zip(x.shape[2:], kernel, strict=True)]
    high, wide = (one // stride + 1 for one in room)
    words = {"kernel_size": kernel, "stride": (stride,) * 2, "padding": (padding,) * 2, "dilation": (dilation,) * 2}
    found, _ = taps(x, words, (*x.shape[:2], high, wide), 0)
    expected = found.transpose(0, 2, 3, 1, 4).reshape(len(x), high, wide, x.shape[1], *kernel)
    out = blank(expected.shape, x.dtype)
    numbers = map(np.uint64, (out.size, high, wide, *kernel, stride, padding, dilation))
    return Compared(candle.images("im2col", x, out, *numbers), expected)


def upsample(candle: Candle, draw: Draw) -> Compared:
    """Images of another size, of the nearest elements or interpolated."""
    x, nearest = image(draw), draw.choice(False, True)
    size = (*x.shape[:2], draw.choice(1, 2, 5, 18), draw.choice(1, 3, 16, 33))
    align = not nearest and draw.choice(False, True)
    rows, columns = (
        positions(a, b, "nearest" if nearest else "bilinear", align_corners=align)
        for a, b in zip(x.shape[2:], size[2:], strict=True)
    )
    expected = np.einsum("ncij,ai,bj->ncab", x.astype(np.float64), rows, columns)
    if nearest:
        scales = (np.float32(a / b) for a, b in zip(x.shape[2:], size[2:], strict=True))
        numbers = [*map(np.uint64, size[2:]), *scales]
        return Compared(candle.images("upsample_nearest2d", x, blank(size), *numbers), expected)
    no, zero = np.bool_(False), np.float32(0)
    flags: list[Any] = [np.bool_(align), no, zero, no, zero]
    numbers = [np.uint64(size[3]), np.uint64(size[2]), *flags]
    bound = EPSILON * 64 * (1 + max(x.shape[2:])) * np.abs(x).max()
    return Compared(candle.images("upsample_bilinear2d", x, blank(size), *numbers), expected, bound)


def conv_transpose(candle: Candle, draw: Draw) -> Compared:
    """A transposed convolution of images."""
    x = image(draw)
    channels, kernel = draw.number(1, 3), [draw.number(1, 3) for _ in range(2)]
    stride, dilation = draw.number(1, 2), draw.number(1, 2)
    padding, more = draw.number(0, 1), draw.number(0, stride - 1)
    weights = draw.array(x.shape[1], channels, *kernel, kind="plain")
    whole = [(n - 1) * stride + dilation * (k - 1) + 1 for n, k in zip(x.shape[2:], kernel, strict=True)]
    full, size = np.zeros((len(x), channels, whole[0] + more, whole[1] + more)), np.zeros(0)
    for i, j in np.ndindex(*kernel):
        part = np.einsum("nihw,io->nohw", x.astype(np.float64), weights[:, :, i, j].astype(np.float64))
        at_y, at_x = (
            slice(d * dilation, d * dilation + (n - 1) * stride + 1, stride)
            for d, n in zip((i, j), x.shape[2:], strict=True)
        )
        full[:, :, at_y, at_x] += part
    high, wide = (n + more - 2 * padding for n in whole)
    if min(high, wide) < 1:
        return Compared(np.zeros(1), np.zeros(1))
    expected = full[:, :, padding : padding + high, padding : padding + wide]
    size = blank(expected.shape)
    got = candle.transposed("conv_transpose2d", x, weights, size, wide, high, stride, padding, more, dilation)
    bound = EPSILON * 64 * np.abs(x).max() * np.abs(weights).max() * x.shape[1] * 9
    return Compared(got, expected, bound)


def mul_mv(candle: Candle, draw: Draw, *kinds: str, exact: bool = False) -> Compared:
    """Products of rows, also quantized ones, and vectors; of whole tiles unless ``exact``."""
    kind = draw.choice(*(kinds or ("q4_0", "q8_0", "q4_K", "q6_K")))
    per = BLOCKS[kind][0] if kind in BLOCKS else 4
    rows = draw.choice(1, 3, 7) if exact else 8 * draw.number(1, 2)
    b, m, k = draw.number(1, 2) if kind == "f32" else 1, draw.number(1, 2), per * draw.choice(1, 2, 4)
    x = draw.array(b, m, k, kind="plain")
    if kind == "f32":
        weights: Array = draw.array(b, rows, k, kind="plain")
        elements: Any = weights.astype(np.float64)
    else:
        _, size = BLOCKS[kind]
        blocks = np.random.default_rng(draw.number(0, 2**16)).integers(0, 256, (b, rows, k // per, size), np.uint8)
        for first in {"q4_0": [0], "q8_0": [0], "q4_K": [0, 2], "q6_K": [208]}[kind]:
            blocks[..., first : first + 2] = np.array([0.02], np.float16).view(np.uint8)
        weights = blocks.reshape(b, rows, -1)
        elements = dequantized(weights, kind)
    expected = np.einsum("brk,bmk->bmr", elements, x.astype(np.float64))
    size = np.einsum("brk,bmk->bmr", np.abs(elements), np.abs(x.astype(np.float64)))
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


TYPES_OF_CASTS = {"f32": np.float32, "f16": np.float16, "u8": np.uint8, "u32": np.uint32, "i64": np.int64}


def elementwise(candle: Candle, draw: Draw) -> Compared:
    """Affine functions, powers, ELU and casts of a view."""
    name, dtype = draw.choice("affine", "powf", "elu", "cast"), draw.choice(np.float32, np.float16)
    other = draw.choice(*TYPES_OF_CASTS) if name == "cast" else TYPES[np.dtype(dtype).name]
    x = np.abs(views(draw, shape(draw), dtype, draw.choice("plain", "ties"), signed=False))
    x = x - dtype(1) if name == "elu" else x
    numbers = {"affine": (2.5, -1.0), "powf": (1.5,), "elu": (0.5,), "cast": ()}[name]
    z, out = x.astype(np.float64), blank(x.shape, TYPES_OF_CASTS[other])
    results: Mapping[str, Any] = {
        "affine": z * 2.5 - 1, "powf": np.abs(z) ** 1.5, "elu": np.where(z > 0, z, 0.5 * np.expm1(z)),
        "cast": np.trunc(z) if other[0] in "ui" else z,
    }  # fmt: skip
    expected = results[name]
    kind, arguments = TYPES[np.dtype(dtype).name], [*map(np.float32, numbers), at(x), out]
    file, kernel = f"{'affine' if name != 'cast' else 'cast'}.metal", f"{name}_{kind}{f'_{other}' * (name == 'cast')}"
    if x.flags.c_contiguous:
        candle.split(file, kernel, -(-x.size // max(1, 8 // x.itemsize)), np.uint64(x.size), *arguments)
    else:
        about = np.uint64(x.size), np.uint64(x.ndim), sizes(x.shape), sizes(steps(x))
        candle.split(file, f"{kernel}_strided", x.size, *about, *arguments)
    unit = HALF if np.float16 in (dtype, TYPES_OF_CASTS[other]) else EPSILON
    return Compared(out, expected, 0 if name == "cast" and other != "f16" else unit * 16 * (1 + np.abs(expected)))


def selected(candle: Candle, draw: Draw) -> Compared:
    """Elements of two views by a condition, constants, and parts of matrices."""
    name, dtype = draw.choice("where", "fill", "const_set", "copy2d"), draw.choice(*TYPES_OF_CASTS)
    kind = draw.choice("u8", "u32", "i64")
    whole, real = shape(draw), TYPES_OF_CASTS[dtype]
    if name == "where":
        ids = np.abs(views(draw, whole, TYPES_OF_CASTS["i64"], "ties", signed=False)).astype(TYPES_OF_CASTS[kind])
        x, y = (np.abs(views(draw, whole, real, "ties", signed=False)) for _ in range(2))
        out, about = blank(whole, real), list[Any]([np.uint64(ids.size), np.uint64(ids.ndim), sizes(whole)])
        strides = [sizes(steps(one)) for one in (ids, x, y)]
        per, flags = max(1, 8 // out.itemsize), [one.flags.c_contiguous for one in (ids, x, y)]
        known: dict[int | str, Any] = dict(enumerate(flags))
        width = min(MOST_THREADS, -(-ids.size // per))
        grid = (-(-ids.size // (per * width)), 1, 1)
        candle.launch(
            candle.marker_file.with_name("ternary.metal"), f"where_{kind}_{dtype}", grid, (width, 1, 1), *about,
            *strides, *map(at, (ids, x, y)), out, constants=known,
        )  # fmt: skip
        return Compared(out, np.where(ids != 0, x, y))
    value = np.array([5], real)
    if name == "fill":
        out = blank((draw.length(),), real)
        candle.split("fill.metal", f"fill_{dtype}", out.size, out, value, np.uint64(out.size))
        return Compared(out, np.full(out.shape, 5))
    if name == "const_set":
        out = np.zeros(whole, real)
        view, threads = out[..., :: draw.choice(1, 2)], out.size
        about, threads = [np.uint64(view.size)], -(-view.size // max(1, 8 // out.itemsize))
        if not view.flags.c_contiguous:
            about, threads = [*about, np.uint64(view.ndim), sizes(view.shape), sizes(steps(view))], view.size
        kernel = f"const_set_{dtype}{'_strided' * (not view.flags.c_contiguous)}"
        candle.split("unary.metal", kernel, threads, *about, value, at(view))
        expected = np.zeros(whole)
        expected[..., :: 1 if view.flags.c_contiguous and view.shape == out.shape else 2] = 5
        return Compared(out, expected)
    d1, d2 = draw.number(1, 5), draw.length()
    x, out = np.abs(draw.array(d1, d2 + 2, kind="ties")).astype(real), np.zeros((d1, d2 + 3), real)
    numbers, grid = map(np.int64, (d1, d2, d2 + 2, d2 + 3)), (d1, d2, 1)
    source = candle.marker_file.with_name("unary.metal")
    candle.launch(source, f"copy2d_{dtype}", grid, (min(d1, 8), min(d2, 32), 1), *numbers, x, out, whole=False)
    expected = np.zeros(out.shape)
    expected[:, :d2] = x[:, :d2]
    return Compared(out, expected)


def indexed(candle: Candle, draw: Draw, *, dense: bool = True) -> Compared:
    """Elements of an axis taken, put and added by indices."""
    name = draw.choice("is", "gather", "s", "sa", "ia") if dense else "is"
    kind, (left, rows, right) = (
        draw.choice("u8", "u32", "i64"),
        (draw.number(1, 3), draw.number(1, 9), draw.choice(1, 3, 33)),
    )
    count = draw.number(1, 12)
    random, dtype = np.random.default_rng(draw.number(0, 2**16)), TYPES_OF_CASTS[kind]
    x = draw.array(left, rows, right, kind="plain")
    if name == "is":
        ids, out = random.integers(0, rows, count).astype(dtype), blank((left, count, right))
        view = x if dense else np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)
        numbers = [*map(np.uint64, (out.size, left, rows, right, count)), np.bool_(view.flags.c_contiguous)]
        strides = sizes(view.shape), sizes(steps(view))
        candle.split("indexing.metal", f"is_{kind}_f32", out.size, *numbers, *strides, at(view), ids, out)
        return Compared(out, x[:, ids.astype(int)])
    if name == "gather":
        ids, out = random.integers(0, rows, (left, count, right)).astype(dtype), blank((left, count, right))
        of_gather = map(np.uint64, (out.size, left, rows, right, count))
        candle.split("indexing.metal", f"gather_{kind}_f32", out.size, *of_gather, x, ids, out)
        return Compared(out, np.take_along_axis(x, ids.astype(int), 1))
    many = draw.number(1, 9)
    out = draw.array(left, many, right, kind="plain")
    expected, z = out.astype(np.float64), np.indices(x.shape)
    if name == "ia":
        ids = random.integers(0, many, rows).astype(dtype)
        where = np.broadcast_to(ids[None, :, None].astype(int), x.shape)
    else:
        ids = random.integers(0, many, x.shape).astype(dtype)
        where = ids.astype(int)
    if name == "s":
        for j in range(rows):  # the last one stays
            expected[z[0][:, j], where[:, j], z[2][:, j]] = x[:, j]
    else:
        np.add.at(expected, (z[0], where, z[2]), x)
    lengths = [left * right, left, rows, right, many, *[rows] * (name == "ia")]
    kernel = f"{name}_{kind}_f32"
    candle.split("indexing.metal", kernel, left * right, *map(np.uint64, lengths), x, ids, out)
    return Compared(out, expected, 0 if name == "s" else EPSILON * 64)


def arg_sort(candle: Candle, draw: Draw) -> Compared:
    """Positions of the numbers of rows in order."""
    rows, length, order = draw.number(1, 3), draw.choice(1, 2, 5, 33, 100, 700, 1024), draw.choice("asc", "desc")
    kind = draw.choice(*TYPES_OF_CASTS)
    x = draw.array(rows, length, kind="ties" if kind[0] in "ui" else draw.choice("plain", "ties"))
    x = (np.abs(x) if kind[0] in "u" else x).astype(TYPES_OF_CASTS[kind])
    padded, out = 1 << (length - 1).bit_length(), blank((rows, length), np.uint32)
    candle.launch(
        candle.marker_file.with_name("sort.metal"), f"asort_{order}_{kind}", (1, rows, 1), (padded, 1, 1), x, out,
        np.int64(length), np.int64(padded), local={0: max(16, 4 * padded)},
    )  # fmt: skip
    legal = np.sort(out, 1) == np.arange(length)
    there = np.take_along_axis(x, np.where(legal, out, 0).astype(int), 1).astype(np.float64)
    z = x.astype(np.float64)
    return Compared(np.where(legal, there, np.nan), np.sort(z, 1) if order == "asc" else -np.sort(-z, 1))


def rope(candle: Candle, draw: Draw) -> Compared:
    """Rotations of halves, of neighbours, and of heads behind the tokens."""
    name, dtype = draw.choice("rope", "rope_i", "rope_thd"), draw.choice(np.float32, np.float16)
    b, h, t, d, batched = (
        draw.number(1, 2),
        draw.number(1, 3),
        draw.number(1, 5),
        2 * draw.number(1, 17),
        draw.choice(False, True),
    )
    x = draw.array(b, *((t, h) if name == "rope_thd" else (h, t)), d, dtype=dtype, kind="plain")
    cos, sin = (draw.array(*[b] * batched, t, d // 2, dtype=dtype, kind="plain") for _ in range(2))
    stride = h * t * d if batched else 0
    numbers = {"rope": (b * h, t * d, d, stride), "rope_i": (b * h, t * d, stride), "rope_thd": (b, t, h, d, stride)}[
        name
    ]
    out, kernel = blank(x.shape, dtype), f"{name}_{TYPES[np.dtype(dtype).name]}"
    candle.split("reduce.metal", kernel, x.size // 2, *map(np.uint64, numbers), x, cos, sin, out)
    c, s = (np.expand_dims(one.astype(np.float64), -2 if name == "rope_thd" else -3) for one in (cos, sin))
    pairs = (np.s_[..., ::2], np.s_[..., 1::2]) if name == "rope_i" else (np.s_[..., : d // 2], np.s_[..., d // 2 :])
    first, second = (x[one].astype(np.float64) for one in pairs)
    expected = np.zeros(x.shape)
    expected[pairs[0]], expected[pairs[1]] = first * c - second * s, first * s + second * c
    unit = EPSILON if dtype == np.float32 else HALF * 4
    return Compared(out, expected, unit * 4 * (1 + np.abs(x).max() * max(np.abs(cos).max(), np.abs(sin).max())))


def one_dimensional(candle: Candle, draw: Draw) -> list[Compared]:
    """Taps of windows, sums of columns, and transposed convolution along one axis."""
    b, c, length, k = draw.number(1, 2), draw.number(1, 3), draw.choice(1, 5, 33), draw.number(1, 4)
    stride, dilation, features = draw.number(1, 3), draw.number(1, 2), draw.number(1, 3)
    padding = draw.number(0, 2) + max(0, dilation * (k - 1) + 1 - length)
    x = draw.array(b, c, length, kind="plain")
    x = np.asfortranarray(x) if draw.choice(False, True) else x
    count = (length + 2 * padding - dilation * (k - 1) - 1) // stride + 1
    where = np.arange(count)[:, None] * stride - padding + np.arange(k) * dilation
    inside = (where >= 0) & (where < length)
    taken = np.where(inside, x[:, :, np.clip(where, 0, length - 1)], 0).transpose(0, 2, 1, 3)
    out = blank(taken.shape)
    numbers = map(np.uint64, (out.size, count, k, stride, padding, dilation))
    candle.split("conv.metal", "im2col1d_f32", out.size, *numbers, sizes(x.shape), sizes(steps(x)), at(x), out)
    made = [Compared(out, taken)]
    wide = (length - 1) * stride + k
    columns, out, added = draw.array(b, length, c, k, kind="plain"), blank((b, c, wide)), np.zeros((b, c, wide))
    for j in range(k):
        added[:, :, j : j + (length - 1) * stride + 1 : stride] += columns[..., j].transpose(0, 2, 1)
    numbers = map(np.uint64, (out.size, wide, length, c, k, stride))
    candle.split("conv.metal", "col2im1d_f32", out.size, *numbers, columns, out)
    made.append(Compared(out, added, EPSILON * 16 * k * np.abs(columns).max()))
    weights, crop = draw.array(c, features, k, kind="plain"), draw.number(0, 1)
    wide = (length - 1) * stride + dilation * (k - 1) + 1
    if wide <= 2 * crop:
        return made
    full = np.zeros((b, features, wide))
    for j in range(k):
        part = np.einsum("bil,io->bol", x.astype(np.float64), weights[:, :, j].astype(np.float64))
        full[:, :, j * dilation : j * dilation + (length - 1) * stride + 1 : stride] += part
    out = blank((b, features, wide - 2 * crop))
    about = [one for y in (x, weights) for one in (sizes(y.shape), sizes(steps(y)))]
    numbers = map(np.uint64, (out.shape[2], stride, crop, 0, dilation))
    candle.split("conv.metal", "conv_transpose1d_f32", out.size, *numbers, *about, at(x), weights, out)
    bound = EPSILON * 64 * np.abs(x).max() * np.abs(weights).max() * c * k
    return [*made, Compared(out, full[:, :, crop : wide - crop], bound)]


def random(candle: Candle, draw: Draw, *counts: int) -> Compared:
    """Uniform numbers are in the interval, and all are written."""
    n, dtype = draw.choice(*(counts or (1, 2, 5, 33, 1000, 2048))), draw.choice(np.float32, np.float16)
    out, seed = blank((n,), dtype), np.array([299792458, 7], np.uint32)
    kernel = f"rand_uniform_{TYPES[np.dtype(dtype).name]}"
    threads, numbers = n // 2 + n % 2, (np.uint64(n), np.float32(-2), np.float32(3))
    candle.split("random.metal", kernel, threads, *numbers, seed, out)
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

FILES: Mapping[str, str] = {}
"""Files that a case needs, of those that a package lacks."""

CASES: Mapping[str, Case] = {
    case.__name__: case
    for case in (
        unary, binary, reduce, softmax, layer_norm, rms_norm, pool, im2col, upsample, conv_transpose, mul_mv,
        elementwise, selected, indexed, arg_sort, rope, one_dimensional, random,
    )
}  # fmt: skip
