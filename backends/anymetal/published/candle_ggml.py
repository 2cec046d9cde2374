"""The older copy of llama.cpp's kernels in candle's ``quantized.metal``, and what NumPy computes.

candle launches products and ``get_rows`` only. The other kernels are launched as llama.cpp did then: their parameters
are lengths ``ne`` and strides ``nb`` of tensors by ggml's names, which are read from the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from published import oracles
from published.collection import Array, Collection, Compared, Draw, at, blank
from published.formats import BLOCKS, LATTICES, dequantized, nibbles, points, weights
from published.ggml import UNARY as FUNCTIONS
from published.ggml import alibi, fields, near, shape
from published.oracles import EPSILON, HALF, patches, wide, windows

MOST_THREADS = 1024
HOST = "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"
"""Formats of candle's tensors."""
FORMATS = *HOST, "iq4_nl", "iq4_xs", *LATTICES
NUMBERS = {
    "int64_t": np.int64, "uint64_t": np.uint64, "int32_t": np.int32, "int": np.int32, "uint": np.uint32,
    "uint32_t": np.uint32, "float": np.float32,
}  # fmt: skip
BYTES = {"char": np.int8, "void": np.uint8, "uchar": np.uint8, "float": np.float32}
"""Types as which memory is bound, whatever its elements are."""
TENSORS = {"dst": "", "q": "0", "k": "1", "v": "2", "mask": "3", "x": "0", "src0s": "0", "ids": "i"}
"""What tensors are called in the names of their lengths; ``src1`` is 1."""
SHARED = {"iq2_xxs": 256 * 8 + 128, "iq2_xs": 512 * 8 + 128, "iq3_xxs": 256 * 4 + 128, "iq3_s": 512 * 4}
SHARED |= {"iq4_nl": 128, "iq4_xs": 128}
"""Bytes of threadgroup memory of products of vectors."""
TILES = {"q2_K": (2, 32, 8), "q3_K": (2, 32, 4), "q5_K": (2, 32, 4), "q4_K": (4, 8, 4), "q6_K": (2, 32, 2)}
TILES |= {"iq4_nl": (4, 16, 4), "iq4_xs": (4, 16, 4), "f16": (32, 1, 1), "f32": (32, 1, 1)}
TILES |= dict.fromkeys(LATTICES, (4, 16, 8))
"""Columns and rows of a threadgroup, and the rows of weights of it."""


@cache
def parameters(file: Path, function: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the types and names of a kernel's pointers and of its numbers."""
    found = re.search(rf"kernel void {function}\((.*?)\)\s*\{{", file.read_text(), re.DOTALL)
    if found is None:
        raise ValueError(f"{file} has no kernel {function}")
    pointers = re.findall(r"device\s+(?:const\s+)?(\w+)\s*\*\s*(\w+)", found[1])
    return pointers, re.findall(r"constant\s+(\w+)\s*&\s*(\w+)", found[1])


def run(
    candle: Collection, kernel: str, groups: Sequence[int], width: int | Sequence[int], *tensors: Array,
    function: str = "", local: int = 0, **values: Any,
) -> None:  # fmt: skip
    """Launch threadgroups: lengths and strides are those of the tensors unless there are other ``values``."""
    file = candle.marker_file.with_name("quantized.metal")
    pointers, numbers = parameters(file, function or kernel)
    known: dict[str, Any] = {}
    for (_, name), one in zip(pointers, tensors, strict=True):
        known |= fields(TENSORS.get(name, name[3:]), one)
    known |= values
    given = [at(one, BYTES.get(kind)) for (kind, _), one in zip(pointers, tensors, strict=True)]
    arguments = *given, *(NUMBERS[kind](known[name]) for kind, name in numbers)
    group = (width, 1, 1) if isinstance(width, int) else width
    candle.launch(file, kernel, groups, group, *arguments, local={0: -(-local // 16) * 16} if local else None)


def rows_of(x: Array) -> tuple[tuple[int, int, int], int]:
    """Return a threadgroup for each row, and its threads."""
    n3, n2, n1, n0 = x.shape
    return (n1, n2, n3), min(n0, MOST_THREADS)


def power(least: int, most: int) -> int:
    """Return the first of 32, 64, ... that is not below a number, or the largest."""
    return min(most, max(32, 1 << (least - 1).bit_length()))


def table(candle: Collection, name: str) -> Array:
    """Return the points of a lattice; of one the file has nibbles, a number above the elements."""
    text = candle.marker_file.with_name("quantized.metal").read_text()
    if name != "iq1s_grid":
        return points(text, name)
    packed = points(text, "iq1s_grid_gpu").view(np.uint8).reshape(-1, 4)
    return np.ascontiguousarray(nibbles(packed).view(np.int8) - np.int8(1)).view(np.uint64).ravel()


def elements(candle: Collection, w: Array, kind: str) -> Any:
    """Return the elements of rows of blocks."""
    return dequantized(w, kind, lambda name: table(candle, name))


# --- cases ------------------------------------------------------------------------------------------------------------

BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


def old_binary(candle: Collection, draw: Draw) -> Compared:
    """A function of two tensors, of which the second is repeated or is a row."""
    name, size = draw.choice(*BINARY), shape(draw)
    is_row = draw.choice(False, True)
    if is_row:
        n3, n2, n1, n0 = size
        size = n3, n2, n1, 4 * n0
        x, y = draw.array(*size, kind="plain"), draw.array(size[3], kind="plain")
        out = blank(size)
        run(candle, f"kernel_{name}_row", (x.size // 4, 1, 1), 1, x, y, out, nb=n0)
    else:
        x = draw.strided(*size, kind="plain")
        y, out = draw.array(*(draw.choice(1, n) for n in size), kind="plain"), blank(size)
        run(candle, f"kernel_{name}", *rows_of(out), x, y, out, offs=0)
    expected = BINARY[name](wide(x), wide(y))
    return Compared(out, expected, EPSILON * 4 * np.abs(expected))


UNARY = "relu", "sigmoid", "tanh", "gelu", "gelu_quick", "silu", "sqr", "sqrt", "sin", "cos", "scale", "clamp"


def old_unary(candle: Collection, draw: Draw) -> Compared:
    """A function of each element, or of four of them."""
    name = draw.choice(*UNARY, "leaky_relu")
    given: dict[str, Any] = {
        "scale": {"scale": 2.5},
        "clamp": {"min": -0.5, "max": 1.0},
        "leaky_relu": {"slope": 0.25},
    }.get(name, {})
    by_four = name in ("gelu", "gelu_quick", "silu", "scale") and draw.choice(False, True)
    x = draw.array(4 * draw.length() if by_four else draw.length(), kind=draw.choice("plain", "ties"))
    out, kernel = blank(x.shape), f"kernel_{name}{'_4' * by_four}{'_f32' * (name == 'leaky_relu')}"
    run(candle, kernel, (x.size // (4 if by_four else 1), 1, 1), 1, x, out, **given)
    function, more = FUNCTIONS[name.upper()][0], {"bias": 0.0} if name == "scale" else {}
    expected = function(wide(x), **given, **more)
    return Compared(out, expected, EPSILON * 8 * (1 + np.abs(x) + np.abs(expected)))


def old_rows(candle: Collection, draw: Draw) -> list[Compared]:
    """Sums, softmax with a mask and ALiBi, norms, and the causal order."""
    n3, n2, n1, n0 = size = shape(draw)
    x = draw.array(*size, kind="plain")
    z, many = wide(x), n1 * n2 * n3
    sums, normal, square = blank((n3, n2, n1, 1)), blank(size), blank(size)
    run(candle, "kernel_sum_rows", (n1, n2, n3), 1, x, sums, **fields("1", x))
    made = [Compared(sums, z.sum(-1, keepdims=True), EPSILON * (16 + n0) * np.abs(z).sum(-1, keepdims=True))]
    threads = min(256, 1 << (n0 - 1).bit_length())
    run(candle, "kernel_norm", (many, 1, 1), threads, x, normal, local=4 * threads, eps=1e-5)
    made.append(Compared(normal, *oracles.normalized(x)))
    mask = draw.choice(None, draw.array(1, 1, n1, n0, dtype=draw.choice(np.float32, np.float16), kind="plain"))
    bias, heads = 0.0 if mask is None else draw.choice(0.0, 8.0), 2 ** int(math.log2(n2))
    by_four, out = n0 % 4 == 0, blank(size)
    about: dict[str, Any] = {"scale": 0.5, "max_bias": bias, "n_head_log2": heads}
    about |= {"m0": 2.0 ** (-bias / heads), "m1": 2.0 ** (-bias / 2 / heads)}
    kind = "f16" if mask is not None and mask.dtype == np.float16 else "f32"
    width, four = power(n0 // 4 if by_four else n0, 256), "_4" * by_four
    run(
        candle, f"kernel_soft_max_{kind}{four}", (many, 1, 1), width, x, x if mask is None else mask, out,
        function=f"kernel_soft_max{four}", local=128, **fields("0", x), **about,
    )  # fmt: skip
    slope = alibi(n2, bias)[:, None, None] if bias else 1.0
    made.append(Compared(out, *oracles.softmax(z * 0.5 + (0 if mask is None else slope * mask))))
    if by_four:
        run(candle, "kernel_rms_norm", (many, 1, 1), power(n0 // 4, 1024), x, square, local=128, eps=1e-5)
        made.append(Compared(square, *oracles.normalized(x, centred=False)))
    past, causal = draw.number(0, 3), blank(size)
    if n0 % 8 == 0:
        run(candle, "kernel_diag_mask_inf_8", (x.size // 8, 1, 1), 1, x, causal, n_past=past)
    else:
        run(candle, "kernel_diag_mask_inf", (n0, n1, n2 * n3), 1, x, causal, n_past=past)
    later = np.arange(n0) > past + np.arange(n1)[:, None]
    return [*made, Compared(causal, np.where(later, -np.inf, x))]


def old_group_norm(candle: Collection, draw: Draw, *, most: int = 32) -> Compared:
    """Groups of channels of an image, by one simdgroup: for more see FINDINGS."""
    groups = draw.number(1, 3)
    x = draw.array(1, groups * draw.number(1, 2), draw.number(1, 5), draw.number(1, 40), kind="plain")
    out, width = blank(x.shape), power(x.size // groups, most)
    run(candle, "kernel_group_norm", (groups, 1, 1), width, x, out, n_groups=groups, eps=1e-5, local=128)
    expected, bound = (one.reshape(x.shape) for one in oracles.normalized(x.reshape(1, groups, -1)))
    return Compared(out, expected, bound)


def old_movement(candle: Collection, draw: Draw) -> Compared:
    """Tensors that are repeated, joined, padded, enlarged or copied as another type."""
    name, size = draw.choice("repeat", "concat", "pad_f32", "upscale_f32", "cpy"), shape(draw)
    kernel, function, more, values = f"kernel_{name}", "", [], {}
    if name == "repeat":
        kind, dtype = draw.choice(("f32", np.float32), ("f16", np.float16), ("i32", np.int32), ("i16", np.int16))
        x = draw.array(*size, kind="ties").astype(dtype)
        expected, kernel, function = np.tile(x, [draw.number(1, 2) for _ in size]), f"{kernel}_{kind}", kernel
    elif name == "cpy":
        kind, other = (
            draw.choice("f32", "f16"),
            draw.choice("f32", "f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"),
        )
        if other in BLOCKS:
            x = draw.array(*size[:3], 32 * draw.number(1, 4), kind="plain")
            out = np.zeros((*size[:3], x.shape[3] // 32 * BLOCKS[other][1]), np.uint8)
            known = {"ne0": x.shape[3], "nb0": BLOCKS[other][1]}
            run(candle, f"kernel_cpy_f32_{other}", *rows_of(x), x, out, **known)
            return near(out, other, x)
        types = {"f32": np.float32, "f16": np.float16}
        x = draw.strided(*size, dtype=types[kind], kind="plain")
        expected, kernel, function = x.astype(types[other]), f"{kernel}_{kind}_{other}", kernel
    else:
        x = draw.strided(*size, kind="plain")
        if name == "concat":
            axis, y = draw.number(0, 3), draw.array(*size, kind="plain")
            expected, more, values = np.concatenate((x, y), axis), [y], {"dim": 3 - axis}
        elif name == "pad_f32":
            expected = np.pad(x, [(0, draw.number(0, 3)) for _ in size])
        else:
            factors = [draw.number(1, 3) for _ in size]
            expected, values = x, {f"sf{i}": factors[3 - i] for i in range(4)}
            for axis, factor in enumerate(factors):
                expected = expected.repeat(factor, axis)
    out = blank(expected.shape, expected.dtype)
    groups, width = rows_of(x if name == "cpy" else out)
    run(candle, kernel, groups, width, x, *more, out, function=function, **values)
    return Compared(out, expected)


def old_sequences(candle: Collection, draw: Draw) -> list[Compared]:
    """Numbers with a step, the embedding of times, and positions in order."""
    n, out = draw.length(), blank((draw.length(),))
    run(candle, "kernel_arange_f32", (1, 1, 1), min(out.size, MOST_THREADS), out, start=2, step=0.5)
    made = [Compared(out, 2 + 0.5 * np.arange(out.size))]
    times, half = draw.array(draw.number(1, 4), kind="ties"), draw.choice(1, 2, 32, 35)
    embedded = blank((times.size, 2 * half))
    about: dict[str, Any] = {"dim": 2 * half, "max_period": 100}
    run(candle, "kernel_timestep_embedding_f32", (times.size, 1, 1), half, times, embedded, **about)
    angles = times[:, None] * np.exp(-math.log(100) * np.arange(half) / half)
    made.append(Compared(embedded, np.concatenate((np.cos(angles), np.sin(angles)), 1), EPSILON * 16))
    x, order = (
        draw.array(draw.number(1, 3), min(n, 1024), kind=draw.choice("plain", "ties")),
        draw.choice("asc", "desc"),
    )
    rows, n = x.shape
    places, padded = blank(x.shape, np.int32), 1 << (n - 1).bit_length()
    run(
        candle, f"kernel_argsort_f32_i32_{order}", (1, rows, 1), padded, x, places, function="kernel_argsort_f32_i32",
        ncols=n, ncols_pad=padded, local=4 * padded,
    )  # fmt: skip
    return [*made, oracles.in_order(x, places, descending=order == "desc")]


def old_images(candle: Collection, draw: Draw) -> Compared:
    """Taps of windows by both kernels, and maxima and means of windows."""
    x = draw.array(draw.number(1, 2), draw.number(1, 3), draw.choice(3, 5, 9), draw.choice(3, 8, 31), kind="plain")
    kernel, strides = [draw.number(1, 3) for _ in "yx"], [draw.number(1, 3) for _ in "yx"]
    padding, dilations = [draw.number(0, n // 2) for n in kernel], [1, 1]
    name, (n, c, high, across) = draw.choice("im2col", "im2col_ext", "pool_2d_max_f32", "pool_2d_avg_f32"), x.shape
    size = windows((high, across), kernel, strides, padding)
    values: dict[str, Any] = {
        f"{one}{i}": pair[1 - i] for one, pair in (("s", strides), ("p", padding), ("d", dilations)) for i in (0, 1)
    }
    if name.startswith("im2col"):
        kind = draw.choice("f32", "f16")
        dtype = np.float32 if kind == "f32" else np.float16
        taken = patches(x, kernel, strides, padding, dilations).transpose(0, 2, 3, 1, 4, 5)
        out, taps = blank(taken.shape, dtype), kernel[0] * kernel[1]
        values |= {"ofs0": c * high * across, "ofs1": high * across, "IW": across, "IH": high, "CHW": c * taps}
        values |= {"N": n, "KH": kernel[0], "KW": kernel[1]}
        extended = name == "im2col_ext"
        groups, group = (c * taps if extended else c, *size), (n, 1, 1) if extended else (n, *kernel)
        run(candle, f"kernel_{name}_{kind}", groups, group, x, out, function=f"kernel_{name}", **values)
        return Compared(out, taken.astype(dtype))
    values |= {"k0": kernel[1], "k1": kernel[0], "IH": high, "IW": across, "OH": size[0], "OW": size[1]}
    maximum, out = name == "pool_2d_max_f32", blank((n, c, *size))
    width = min(out.size, MOST_THREADS)
    run(candle, f"kernel_{name}", (-(-out.size // width), 1, 1), width, x, out, parallel_elements=out.size, **values)
    found = patches(wide(x), kernel, strides, padding, (1, 1), -np.inf if maximum else 0)
    expected = found.max((4, 5)) if maximum else found.mean((4, 5))
    return Compared(out, expected, 0 if maximum else EPSILON * 20 * np.abs(found).mean((4, 5)))


def old_rope(candle: Collection, draw: Draw) -> Compared:
    """Rotations of neighbours or of halves, with factors of frequencies."""
    kind, dtype = draw.choice("norm", "neox"), draw.choice(np.float32, np.float16)
    n3, n2, n1, n0 = draw.number(1, 2), draw.number(1, 4), draw.number(1, 3), 2 * draw.number(1, 20)
    dims = 2 * draw.number(1, n0 // 2)
    x, positions = draw.array(n3, n2, n1, n0, dtype=dtype, kind="plain"), np.arange(n2, dtype=np.int32) * 7
    factors = draw.choice(None, np.abs(draw.array(dims // 2, kind="plain")) + np.float32(0.5))
    out, name = blank(x.shape, dtype), f"kernel_rope_{kind}"
    about: dict[str, Any] = {
        "n_past": 0,
        "n_dims": dims,
        "n_ctx_orig": 4096,
        "freq_base": 1e4,
        "freq_scale": 0.5,
        "ext_factor": 0,
    }
    about |= {"attn_factor": 1.25, "beta_fast": 32, "beta_slow": 1}
    third = x if factors is None else factors
    suffix = "f32" if dtype == np.float32 else "f16"
    run(
        candle,
        f"{name}_{suffix}",
        (n1, n2, n3),
        min(n0, MOST_THREADS),
        x,
        positions,
        third,
        out,
        function=name,
        **about,
    )
    angles = positions[:, None] * 1e4 ** (-2 * np.arange(dims // 2) / dims) / (1 if factors is None else factors)
    theta = (angles * 0.5)[:, None, :]
    error = 1.25 * EPSILON * (16 + 32 * theta)
    expected, bound = oracles.rotated(x, 1.25 * np.cos(theta), 1.25 * np.sin(theta), error, neighbours=kind == "norm")
    return Compared(out, expected, bound + (HALF * np.abs(expected) + 2**-24) * (dtype == np.float16))


def old_get_rows(candle: Collection, draw: Draw) -> Compared:
    """Rows of a table, as candle's host gets them."""
    kind = draw.choice("f32", "f16", "i32", *FORMATS)
    rows, count = draw.number(1, 5), draw.number(1, 6)
    w = weights(draw, kind, rows, draw.length() if kind not in BLOCKS else BLOCKS[kind][0] * draw.number(1, 3))
    length = elements(candle, w, kind).shape[1]
    ids = np.random.default_rng(draw.number(0, 99)).integers(0, rows, count, np.uint32)
    out = blank((count, length), np.int32 if kind == "i32" else np.float32)
    function = f"kernel_get_rows_{'q' if kind in BLOCKS else 'i32' if kind == 'i32' else 'f'}"
    about: dict[str, Any] = {"ne00": length, "nb01": w.strides[0], "nb02": 0, "ne10": count, "nb10": 4, "nb11": 0}
    known = about | {"nb1": out.strides[0], "nb2": 0}
    run(candle, f"kernel_get_rows_{kind}", (count, 1, 1), 128, w, ids, out, function=function, **known)
    return Compared(out, elements(candle, w, kind)[ids], EPSILON * 1024 * (kind in BLOCKS))


def old_products(candle: Collection, draw: Draw) -> Compared:
    """Products of vectors by all formats, plain or with the matrices that each token chooses."""
    kind = draw.choice("f32", "f16", *FORMATS)
    chosen = draw.choice(False, True)
    k = draw.choice(64, 100, 256) if kind not in BLOCKS else BLOCKS[kind][0] * draw.choice(2, 4)
    columns, high, per = TILES.get(kind, (8, 8, 8))
    rows, local = per * draw.number(1, 2), SHARED.get(kind, 16 if chosen else 0)
    of = BLOCKS.get(kind, (1, 2 if kind == "f16" else 4))[1]
    if chosen:
        many, used, tokens = 4, draw.choice(1, 2), draw.number(1, 3)
        w, x = weights(draw, kind, 1, many, rows, k), draw.array(1, tokens, used, k, kind="plain")
        ids = np.stack([np.random.default_rng(i).permutation(many)[:used] for i in range(tokens)]).astype(np.int32)
        out = blank((1, tokens, used, rows))
        about: dict[str, Any] = {"nei0": used, "nei1": tokens, "nbi1": ids.strides[0], "ne00": k, "nb00": of}
        blocks = draw.choice(False, True)
        if blocks:
            groups, group = (-(-used * tokens // 32), -(-rows // 64), many), (128, 1, 1)
            local = 8192 + 4 * used * tokens
        else:
            groups, group = (-(-rows // per), 1, used * tokens), (columns, high, 1)
        name = f"kernel_mul_m{'m' if blocks else 'v'}_id"
        run(candle, f"{name}_{kind}_f32", groups, group, w, x, out, ids, function=name, local=local, **about)
        z = elements(candle, w, kind)[0][ids]
        pairs = (wide(x)[0], z), (np.abs(wide(x))[0], np.abs(z))
        expected, size = (np.einsum("tuk,turk->tur", *both)[None] for both in pairs)
        size = size + 4 * np.abs(wide(x)).sum(-1)[..., None]
        return Compared(out, expected, (2 * HALF * blocks + EPSILON * 256) * size)
    m, b = draw.number(1, 3), draw.number(1, 2)
    w, x = weights(draw, kind, 1, b, rows, k), draw.array(1, b, m, k, kind="plain")
    out = blank((1, b, m, rows))
    about = {"ne00": k, "nb00": of, "r2": 1, "r3": 1}
    how = draw.choice("", "_1row", "_l4") if kind == "f16" else ""
    function = f"kernel_mul_mv{how}" if kind in ("f16", "f32") else f"kernel_mul_mv_{kind}_f32"
    many_of = 1 if how == "_l4" else -(-m // 4) if function == "kernel_mul_mv" else m
    run(
        candle, f"kernel_mul_mv_{kind}_f32{how}", (-(-rows // per), many_of, b), (columns, high, 1), w, x, out,
        function=function, local=SHARED.get(kind, 0), **about,
    )  # fmt: skip
    z = elements(candle, w, kind)
    pairs = (z, wide(x)), (np.abs(z), np.abs(wide(x)))
    expected, size = (np.einsum("abrk,abmk->abmr", *both) for both in pairs)
    return Compared(out, expected, EPSILON * 256 * (size + 4 * np.abs(wide(x)).sum(-1)[..., None]))


def old_state_space(candle: Collection, draw: Draw) -> list[Compared]:
    """The convolution in front of a state space model, and its scan."""
    seqs, channels, tokens, taps = draw.number(1, 2), draw.number(1, 5), draw.choice(1, 2, 9), draw.choice(3, 4)
    x, w = draw.array(seqs, channels, tokens + taps - 1, kind="plain"), draw.array(channels, taps, kind="plain")
    out = blank((seqs, tokens, channels))
    run(candle, "kernel_ssm_conv_f32", (channels, tokens, seqs), 1, x, w, out)
    taken = np.lib.stride_tricks.sliding_window_view(wide(x), taps, -1)
    expected, size = (np.einsum("sctk,ck->stc", *both) for both in ((taken, w), (np.abs(taken), np.abs(w))))
    made = [Compared(out, expected, EPSILON * 16 * size)]
    states = draw.choice(1, 16, 33)
    s, a = draw.array(seqs, channels, states, kind="plain"), -np.abs(draw.array(channels, states, kind="plain"))
    x, dt = (draw.array(seqs, tokens, channels, kind="plain") for _ in "xd")
    b, c = (draw.array(seqs, tokens, states, kind="plain") for _ in "bc")
    out, about = blank((x.size + s.size,)), {"d_state": states, "d_inner": channels, "n_seq_tokens": tokens}
    known = about | {"n_seqs": seqs, "nb13": x.nbytes}
    run(candle, "kernel_ssm_scan_f32", (channels, seqs, 1), 1, s, x, dt, a, b, c, out, **known)
    z, rows, step = wide(s), [], np.log1p(np.exp(wide(dt)))
    for t in range(tokens):
        z = z * np.exp(step[:, t, :, None] * a) + b[:, t, None] * (step[:, t] * x[:, t])[..., None]
        rows.append((z * c[:, t, None]).sum(-1))
    expected = np.concatenate((np.stack(rows, 1).ravel(), z.ravel()))
    return [*made, Compared(out, expected, EPSILON * 64 * states * (1 + np.abs(z).max()) * (1 + np.abs(c).max()))]


def old_attention(candle: Collection, draw: Draw) -> Compared:
    """Attention by blocks of queries and of 32 keys, and by vectors, with masks and ALiBi."""
    vectors = draw.choice(False, True)
    size, count = (128, draw.number(1, 3)) if vectors else (draw.choice(64, 80, 96, 112, 128), draw.choice(1, 8, 20))
    batch, shared, of, keys = draw.number(1, 2), draw.choice(1, 2), draw.number(1, 2), draw.choice(32, 64, 96)
    heads = shared * of
    q = draw.array(batch, heads, count, size, kind="plain")
    k, v = (draw.array(batch, of, keys, size, dtype=np.float16, kind="plain") for _ in "kv")
    # The mask has whole blocks of 32 queries.
    mask = draw.choice(None, draw.array(1, 1, 32, keys, dtype=np.float16, kind="plain"))
    bias, heads2 = 0.0 if mask is None else draw.choice(0.0, 8.0), 2 ** int(math.log2(heads))
    out, scale = blank((batch, count, heads, size)), 1 / math.sqrt(size)
    about: dict[str, Any] = {"scale": scale, "max_bias": bias, "n_head_log2": heads2, "logit_softcap": 0.0}
    about |= {"m0": 2.0 ** (-bias / heads2), "m1": 2.0 ** (-bias / 2 / heads2), "nb31": 2 * keys}
    rows, simds = (1, 2) if vectors else (8, 4)
    local = 2 * (rows * (size + 2 * simds * (32 + rows)) + simds * size * vectors)
    name = f"kernel_flash_attn_ext{'_vec' * vectors}_f16"
    groups, fourth = (-(-count // rows), heads, batch), q if mask is None else mask
    run(
        candle, f"{name}_h{size}", groups, (32, simds, 1), q, k, v, fourth, out, function=name, local=local,
        **fields("0", q), **about,
    )  # fmt: skip
    slope = alibi(heads, bias)[:, None, None] if bias else 1.0
    added = None if mask is None else wide(mask)[:, :, :count] * slope
    expected = oracles.attention(q, k, v, scale, mask=added).transpose(0, 2, 1, 3)
    return Compared(out, expected, HALF * 16 * (1 + np.abs(k).max()) * (np.abs(v).max() + 2**-10))


ALL: Sequence[Callable[[Any, Draw], Any]] = (
    old_binary, old_unary, old_rows, old_group_norm, old_movement, old_sequences, old_images, old_rope, old_get_rows,
    old_products, old_state_space,
)  # fmt: skip
"""The cases."""
