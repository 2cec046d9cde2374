"""The Metal kernels of llama.cpp (ggml), launched as ``ggml-metal-ops.cpp`` does, and what NumPy computes.

The files are in the sdists of ``llama-cpp-python`` and of ``libggml-python``. Arrays have the axes of ggml's tensors in
the order of NumPy: (ne3, ne2, ne1, ne0). Arguments of kernels are the structs of ``ggml-metal-impl.h``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from published import oracles
from published.collection import Array, Case, Collection, Compared, Draw, at, blank, members, named, record
from published.formats import BLOCKS, ELEMENTS, dequantized, points, weights
from published.oracles import ACTIVATIONS, EPSILON, HALF, patches, spread, wide, windows

MOST_THREADS = 1024
TYPES = {"float32": "f32", "float16": "f16", "int32": "i32"}
SHARED = {
    "iq2_xxs": 256 * 8 + 128, "iq2_xs": 512 * 8 + 128, "iq3_xxs": 256 * 4 + 128, "iq3_s": 512 * 4, "q8_0": 256,
    **dict.fromkeys(("iq4_nl", "iq4_xs", "mxfp4"), 128), **dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1", "iq2_s"), 16),
}  # fmt: skip
"""Bytes of threadgroup memory of a product of vectors; those of the last five are declared and not used."""
ROW = 32 * 4
"""Bytes of a number for each simdgroup."""


class Ggml(Collection):
    """Launches of the kernels of llama.cpp."""

    name = "llama.cpp"
    marker = "ggml-metal/ggml-metal-impl.h"
    package = "the sdist of llama-cpp-python or libggml-python"

    def include(self) -> list[Path]:
        """Return the folders of Metal's and of ggml's sources."""
        return [self.marker_file.parent, self.marker_file.parents[1]]

    def define(self) -> dict[str, Any]:
        """Return what the host defines for a GPU with bfloat."""
        return {"GGML_METAL_HAS_BF16": 1}

    @cached_property
    def header(self) -> str:
        """The text of the header that Metal and host share."""
        return self.marker_file.read_text()

    def number(self, name: str) -> int:
        """Return the value of a macro of the header."""
        found = re.search(rf"#define\s+{name}\s+(\d+)", self.header)
        if found is None:
            raise ValueError(f"{self.marker_file} has no macro {name}")
        return int(found[1])

    @cached_property
    def sources(self) -> dict[Path, str]:
        """The Metal files: one, or since 2026 one for each group of operations."""
        return {path: path.read_text() for path in sorted(self.marker_file.parent.rglob("*.metal"))}

    @cached_property
    def formats(self) -> str:
        """The text of the header of formats."""
        return (self.marker_file.parents[1] / "ggml-common.h").read_text()

    def table(self, name: str) -> Array:
        """Return the points of a lattice: numbers of 4 or 8 bytes of a table in the header of formats."""
        return points(self.formats, name)

    @cached_property
    def all(self) -> str:
        """The text of all Metal files."""
        return "".join(self.sources.values())

    def source(self, kernel: str) -> Path:
        """Return the file of a kernel."""
        said = f'host_name("{kernel}"', f"kernel void {kernel}("
        for path, text in self.sources.items():
            if any(one in text for one in said):
                return path
        raise ValueError(f"the files of {self.name} in {self.marker_file.parent} have no kernel {kernel}")

    def call(
        self,
        kernel: str,
        struct: str,
        values: Mapping[str, Any],
        buffers: Sequence[Any],
        groups: Sequence[int],
        group: Sequence[int],
        local: int = 0,
        constants: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Launch threadgroups; ``constants`` are lists of function constants by the macro of the first one's index."""
        known: dict[int | str, Any] = {
            self.number(first) + i: value
            for first, given in (constants or {}).items()
            for i, value in enumerate(given)
            if value is not None
        }
        arguments = record(members(self.header, f"ggml_metal_kargs_{struct}"), values)
        memory = {0: -(-local // 16) * 16} if local else None
        self.launch(
            self.source(kernel), kernel, groups, group, arguments, *buffers, local=memory, constants=known, whole=True
        )

    # --- rows ---------------------------------------------------------------------------------------------------------

    def soft_max(
        self, x: Array, mask: Array | None = None, sinks: Array | None = None, scale: float = 1, bias: float = 0
    ) -> Array:
        """Return softmax of rows, after a scale, a mask with ALiBi's slope, and a term for each head in the sum."""
        out = blank(x.shape)
        n3, n2, n1, n0 = x.shape
        power = 1 << int(math.log2(n2))
        values = fields("0", x) | fields("1", x if mask is None else mask) | fields("", out)
        values |= {"scale": scale, "max_bias": bias, "n_head_log2": power}
        values |= {"m0": 2.0 ** (-bias / power), "m1": 2.0 ** (-bias / 2 / power)}
        kind, is_vector = TYPES[str((x if mask is None else mask).dtype)], n0 % 4 == 0
        threads = 32
        while threads < (n0 // 4 if is_vector else n0) and threads * n1 * n2 * n3 < 256:
            threads *= 2
        second, third = x if mask is None else mask, x if sinks is None else sinks
        self.call(
            f"kernel_soft_max_{kind}{'_4' * is_vector}", "soft_max", values,
            [raw(x), raw(second), raw(third), raw(out)], (n1, n2, n3), (threads, 1, 1), ROW,
        )  # fmt: skip
        return out

    def norm(self, x: Array, factors: Array | None = None, terms: Array | None = None, eps: float = 1e-5, *,
             rms: bool = False) -> Array:  # fmt: skip
        """Return rows normalized by mean and variance, or by their root mean square, times factors, plus terms."""
        out = blank(x.shape)
        n3, n2, n1, n0 = x.shape
        length = n0 // 4 if n0 % 4 == 0 else n0
        three = [x, x if factors is None else factors, x if terms is None else terms]
        values = fields("", out) | {"ne00": n0, "ne00_t": length, "eps": eps, "scale": 1}
        for axis in (1, 2, 3):
            values[f"nef{axis}"] = [one.shape[3 - axis] for one in three]
            values[f"nbf{axis}"] = [one.strides[3 - axis] for one in three]
        threads = 32
        while threads < length and threads < MOST_THREADS:
            threads *= 2
        threads = min(threads, -(-length // 32) * 32)
        fused = "_mul" * (factors is not None) + "_add" * (terms is not None)
        kernel = f"kernel_{'rms_' * rms}norm{fused}_f32{'_4' * (n0 % 4 == 0)}"
        constants = {"FC_NORM": [False]} if "FC_NORM " in self.header else {}
        self.call(kernel, "norm", values, [*map(raw, three), raw(out)], (n1, n2, n3), (threads, 1, 1), ROW, constants)
        return out

    def group_norm(self, x: Array, groups: int, eps: float) -> Array:
        """Return groups of channels (axis 1) normalized by their means and variances."""
        out = blank(x.shape)
        values = fields("0", x) | {"ngrp": groups, "eps": eps}
        self.call("kernel_group_norm_f32", "group_norm", values, [x, out], (groups, 1, 1), (32, 1, 1), ROW)
        return out

    def sum(self, x: Array) -> Array:
        """Return the sum of all elements."""
        out, threads = blank((1,)), 32
        while threads < x.size and threads < MOST_THREADS:
            threads *= 2
        threads = min(threads, x.size)
        local = 4 * -(-threads // 32)
        self.call("kernel_op_sum_f32", "sum", {"np": x.size}, [x, out], (1, 1, 1), (threads, 1, 1), local)
        return out

    def sum_rows(self, x: Array, *, mean: bool = False) -> Array:
        """Return the sums or means of rows."""
        n3, n2, n1, n0 = x.shape
        out, is_vector, threads = blank((n3, n2, n1, 1)), n0 % 4 == 0, 32
        length = n0 // 4 if is_vector else n0
        while threads < length and threads < MOST_THREADS:
            threads *= 2
        threads = min(threads, length)
        number = self.number("OP_SUM_ROWS_NUM_MEAN" if mean else "OP_SUM_ROWS_NUM_SUM_ROWS")
        self.call(
            f"kernel_sum_rows_f32_f32{'_4' * is_vector}", "sum_rows",
            fields("0", x) | fields("", out) | {"ne00": length}, [raw(x), raw(out)],
            (n1, n2, n3), (threads, 1, 1), ROW * (4 if is_vector else 1), {"FC_SUM_ROWS": [number]},
        )  # fmt: skip
        return out

    def cumsum(self, x: Array) -> Array:
        """Return cumulative sums of rows: of blocks, of the sums of blocks, and both added."""
        n3, n2, n1, n0 = x.shape
        threads = 1
        while threads < n0 and 2 * threads <= MOST_THREADS:
            threads *= 2
        blocks = -(-n0 // threads)
        out, sums = blank(x.shape), blank((n3, n2, n1, blocks))
        is_long = n0 > threads
        values = fields("0", x) | fields("t", sums) | {"outb": is_long}
        grid, group = (blocks * n1, n2, n3), (threads, 1, 1)
        self.call("kernel_cumsum_blk_f32", "cumsum_blk", values, [raw(x), raw(sums), raw(out)], grid, group, ROW)
        if is_long:
            again = fields("0", sums) | fields("t", sums) | {"outb": False}
            three = [raw(sums)] * 3
            self.call("kernel_cumsum_blk_f32", "cumsum_blk", again, three, (n1, n2, n3), group, ROW)
            self.call("kernel_cumsum_add_f32", "cumsum_add", values, [raw(sums), raw(out)], grid, group)
        return out

    def argmax(self, x: Array) -> Array:
        """Return the index of the maximum of each row of a matrix."""
        rows, length = x.shape
        out, threads = blank((rows,), np.int32), 32
        while threads < length and threads * rows < 256:
            threads *= 2
        values = {"ne00": length, "nb01": x.strides[0]}
        self.call("kernel_argmax_f32", "argmax", values, [raw(x), raw(out)], (rows, 1, 1), (threads, 1, 1), 2 * ROW)
        return out

    def rope(self, x: Array, positions: Array, dims: int, base: float, scale: float, extrapolation: float,
             attention: float, kind: str, sections: Sequence[int], *, factors: Array | None = None,
             back: bool = False) -> Array:  # fmt: skip
        """Return rows of heads (batch, tokens, heads, length) rotated by the positions of their tokens."""
        out = blank(x.shape, x.dtype)
        n3, n2, n1, n0 = x.shape
        values = fields("0", x) | fields("", out) | {"n_past": 0, "n_dims": dims, "n_offs": 0, "n_ctx_orig": 4096}
        values |= {"freq_base": base, "freq_scale": scale, "ext_factor": extrapolation, "attn_factor": attention}
        values |= {"beta_fast": 32, "beta_slow": 1, "src2": factors is not None, "inplace": False}
        values |= {f"sect_{i}": count for i, count in enumerate(sections)}
        has_back = "FC_rope_is_back" in self.all
        self.call(
            f"kernel_rope_{kind.replace('imrope', 'multi')}_{TYPES[str(x.dtype)]}", "rope", values,
            [raw(x), raw(positions), raw(x if factors is None else factors), raw(out)],
            (n1, n2, n3), (min(MOST_THREADS, n0), 1, 1), 0, {"FC_ROPE": [kind == "imrope", *[back] * has_back]},
        )  # fmt: skip
        return out

    # --- elements -----------------------------------------------------------------------------------------------------

    def unary(self, name: str, x: Array, **parameters: float) -> Array:
        """Return a function of each element; ``name`` ends a macro ``OP_UNARY_NUM_...`` of the header."""
        out = blank(x.shape, x.dtype)
        n3, n2, n1, n0 = x.shape
        is_vector, is_flat = n0 % 4 == 0, x.flags.c_contiguous and x.size < 32768
        values = dict.fromkeys(("slope", "scale", "bias", "val", "min", "max"), 0.0) | parameters
        length = n0 // 4 if is_vector else n0
        values |= fields("0", x) | fields("", out) | {"ne00": length, "ne0": length}
        threads = min(length, 256)
        many = (n3 * n2 * n1 * length, 1, 1) if is_flat else (-(-length // threads) * n1, n2, n3)
        kind = TYPES[str(x.dtype)]
        self.call(
            f"kernel_unary_{kind}_{kind}{'_4' * is_vector}", "unary", values, [raw(x), raw(out)], many,
            (1 if is_flat else threads, 1, 1), 0, {"FC_UNARY": [self.number(f"OP_UNARY_NUM_{name}"), is_flat]},
        )  # fmt: skip
        return out

    def binary(self, operation: int, x: Array, y: Array) -> Array:
        """Return x + y, x - y, x * y or x / y, with y repeated along each axis."""
        out = blank(x.shape, x.dtype)
        n3, n2, n1, n0 = x.shape
        is_vector = n0 % 4 == 0 and y.shape[3] % 4 == 0
        is_flat = x.flags.c_contiguous and y.flags.c_contiguous and y.shape[:3] == (1, 1, 1) and out.size < 65536
        values = fields("0", x) | fields("1", y) | fields("", out) | {"offs": 0, "o1": [0] * 8}
        lanes = 4 if is_vector else 1
        values |= {"ne00": n0 // lanes, "ne10": y.shape[3] // lanes, "ne0": n0 // lanes}
        threads = 1
        while 2 * threads < n0 // lanes and threads < 256:
            threads *= 2
        kind = TYPES[str(x.dtype)]
        self.call(
            f"kernel_bin_fuse_{kind}_{kind}_{kind}{'_4' * is_vector}", "bin", values, [raw(x), raw(y), raw(out)],
            (n0 // lanes, n1 * n2 * n3, 1) if is_flat else (n1, n2, n3), (1 if is_flat else threads, 1, 1), 0,
            {"FC_BIN": [operation, 1, is_flat, n0 != y.shape[3]]},
        )  # fmt: skip
        return out

    # --- images (N, C, H, W) ------------------------------------------------------------------------------------------

    def pool_2d(
        self, x: Array, kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int], size: Sequence[int],
        *, maximum: bool,
    ) -> Array:  # fmt: skip
        """Return maxima, or means over whole windows, of ``size`` windows; pairs are (y, x)."""
        out = blank((*x.shape[:2], *size))
        pairs = {"k": kernel, "s": strides, "p": padding}
        values = {f"{name}{i}": pair[1 - i] for name, pair in pairs.items() for i in (0, 1)}
        values |= {"IH": x.shape[2], "IW": x.shape[3], "OH": size[0], "OW": size[1], "np": out.size}
        threads = min(MOST_THREADS, out.size)
        kind = "max" if maximum else "avg"
        grid = (-(-out.size // threads), 1, 1)
        self.call(f"kernel_pool_2d_{kind}_f32", "pool_2d", values, [x, out], grid, (threads, 1, 1))
        return out

    def im2col(
        self, x: Array, kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int],
        dilations: Sequence[int], dtype: Any,
    ) -> Array:  # fmt: skip
        """Return the taps of each window as a row (N, OH, OW, C * KH * KW)."""
        n, channels, *lengths = x.shape
        high, wide = windows(lengths, kernel, strides, padding, dilations)
        taps = kernel[0] * kernel[1]
        out = blank((n, high, wide, channels * taps), dtype)
        values = {"ofs0": x.strides[0] // 4, "ofs1": x.strides[1] // 4, "IH": lengths[0], "IW": lengths[1], "N": n}
        values |= {"CHW": channels * taps, "KH": kernel[0], "KW": kernel[1], "KHW": taps}
        values |= steps(strides, padding, dilations)
        many = taps > MOST_THREADS
        group = (min(n, MOST_THREADS), 1, 1) if many else (min(MOST_THREADS // taps, n), *kernel)
        name = f"kernel_im2col{'_ext' * many}_{TYPES[str(out.dtype)]}"
        groups = (channels * taps if many else channels, high, wide)
        self.call(name, "im2col", values, [x, raw(out)], groups, group)
        return out

    def conv_2d(
        self, weights: Array, x: Array, strides: Sequence[int], padding: Sequence[int], dilations: Sequence[int],
        size: Sequence[int] | None = None,
    ) -> Array:  # fmt: skip
        """Return the convolution of images with weights (OC, C, KH, KW)."""
        high, wide = size or windows(x.shape[2:], weights.shape[2:], strides, padding, dilations)
        out = blank((len(x), len(weights), high, wide))
        values = fields("0", weights) | fields("1", x) | fields("", out) | steps(strides, padding, dilations)
        values |= {"IH": x.shape[2], "IW": x.shape[3], "KH": weights.shape[2], "KW": weights.shape[3], "N": len(x)}
        values |= {"IC": x.shape[1], "OC": len(weights), "OH": high, "OW": wide}
        self.call(
            f"kernel_conv_2d_{TYPES[str(weights.dtype)]}_f32", "conv_2d", values, [raw(weights), raw(x), raw(out)],
            (-(-out.size // 256), 1, 1), (256, 1, 1),
        )  # fmt: skip
        return out

    def conv_transpose_2d(self, weights: Array, x: Array, stride: int) -> Array:
        """Return the transposed convolution of images with weights (C, OC, KH, KW)."""
        (n, channels, *lengths), (_, features, *kernel) = x.shape, weights.shape
        high, wide = ((one - 1) * stride + k for one, k in zip(lengths, kernel, strict=True))
        out = blank((n, features, high, wide))
        values = fields("", out) | {"IC": channels, "IH": lengths[0], "IW": lengths[1], "OC": features, "s0": stride}
        values |= {"KH": kernel[0], "KW": kernel[1]}
        self.call(
            f"kernel_conv_transpose_2d_{TYPES[str(weights.dtype)]}_f32", "conv_transpose_2d", values,
            [weights, x, raw(out)], (wide, high, features * n), (kernel[1], kernel[0], 1), 4 * kernel[0] * kernel[1],
        )  # fmt: skip
        return out

    def upscale(
        self, x: Array, size: Sequence[int], mode: str, *, align_corners: bool = False, antialias: bool = False
    ) -> Array:
        """Return images resized to ``size`` rows and columns: nearest, bilinear or bicubic."""
        out = blank((*x.shape[:2], *size))
        factors = [out.shape[3 - i] / x.shape[3 - i] for i in range(4)]
        if align_corners:
            pairs = [(out.shape[3 - i] - 1, x.shape[3 - i] - 1) for i in (0, 1)]
            factors[:2] = [a / b if a and b else factors[i] for i, (a, b) in enumerate(pairs)]
        values = fields("0", x) | fields("", out) | {f"sf{i}": factor for i, factor in enumerate(factors)}
        values["poffs"] = 0.0 if align_corners else 0.5
        constants = {"FC_UPSCALE": [antialias]} if "FC_UPSCALE " in self.header else {}
        self.call(
            f"kernel_upscale_{mode}_f32", "upscale", values, [raw(x), raw(out)],
            (size[0], *out.shape[1::-1]), (min(MOST_THREADS, size[1]), 1, 1), 0, constants,
        )  # fmt: skip
        return out

    def pad(self, x: Array, pairs: Sequence[Sequence[int]], *, circular: bool = False) -> Array:
        """Return an array with zeros, or with its other end, before and after each axis."""
        out = blank([n + sum(pair) for n, pair in zip(x.shape, pairs, strict=True)])
        values = fields("0", x) | fields("", out) | {f"lp{i}": pairs[3 - i][0] for i in range(4)}
        n3, n2, n1, n0 = out.shape
        groups = (-(-n0 // 1024) * n1, n2, n3)
        constants = {"FC_PAD": [circular]} if "FC_PAD " in self.header else {}
        self.call("kernel_pad_f32", "pad", values, [raw(x), raw(out)], groups, (min(n0, 64), 1, 1), 0, constants)
        return out

    # --- rows of matrices, quantized or not ---------------------------------------------------------------------------

    def get_rows(self, x: Array, kind: str, indices: Array) -> Array:
        """Return the rows of x with the given indices (n2, n1, n0) as floats."""
        length = x.shape[3] if kind in ELEMENTS else x.shape[3] // BLOCKS[kind][1] * BLOCKS[kind][0]
        out = blank((*indices.shape, length))
        many = length if kind in ELEMENTS else length // 16
        values = fields("0", x) | fields("1", indices[None]) | fields("", out) | {"ne00": length, "ne00t": many}
        threads = min(many, MOST_THREADS)
        n2, n1, n0 = indices.shape
        groups = (-(-many // threads) * n0, n1, n2)
        four = [anytype(x), anytype(indices), anytype(out)]
        self.call(f"kernel_get_rows_{kind}", "get_rows", values, four, groups, (threads, 1, 1))
        return out

    def cpy(self, x: Array, kind: str, other: str) -> Array:
        """Return a copy as another type: of a contiguous array, or of any view of elements."""
        n3, n2, n1, _ = x.shape
        per, size = BLOCKS.get(kind, (1, x.itemsize))
        length = x.shape[3] // size * per if kind in BLOCKS else x.shape[3]
        many = length
        if other in BLOCKS:
            many = length // BLOCKS[other][0]
            out = blank((n3, n2, n1, many * BLOCKS[other][1]), np.uint8)
        else:
            many = length // 16 if kind in BLOCKS else length
            out = blank((n3, n2, n1, length), ELEMENTS[other])
        threads, rows = min(many * n1, 256), 1
        if kind not in BLOCKS and other not in BLOCKS and threads > many:
            rows, threads = -(-threads // many), many
            rows -= rows * threads > 256
        threads = min(threads, many)
        values = fields("0", x) | fields("", out) | {"nk0": many, "ne00": length, "ne0": length}
        values |= {"nb00": size, "nb0": BLOCKS.get(other, (1, out.itemsize))[1]}
        wide = -(-many // threads) if rows == 1 else 1
        groups = (wide * (n1 + rows - 1) // rows, n2, n3)
        self.call(f"kernel_cpy_{kind}_{other}", "cpy", values, [raw(x), raw(out)], groups, (threads, rows, 1))
        return out

    def tile(self, kind: str, length: int, *, short: bool = True) -> tuple[int, int, str, int]:
        """Return simdgroups, rows of each, the end of the kernel's name and shared bytes, of products of vectors."""
        if kind in BLOCKS:
            return self.number(f"N_SG_{kind.upper()}"), self.number(f"N_R0_{kind.upper()}"), "", SHARED.get(kind, 0)
        if short and length < 32:
            return 1, 32, "_short", 0
        return min(4, -(-length // 128)), 2, "_4" * (length % 4 == 0), 2 * ROW

    def mul_mv(self, weights: Array, kind: str, x: Array, *, exact: bool = False) -> Array:
        """Return x (n3, n2, n1, k) times the transposed weights (m3, m2, rows, k), a simdgroup for a few rows.

        ``exact`` leaves no memory behind the weights.
        """
        rows, out = weights.shape[2], blank((*x.shape[:3], weights.shape[2]))
        groups, each, suffix, local = self.tile(kind, x.shape[3])
        values = self._product(weights, kind, x, out) | {"nr0": each}
        # Rows of a last tile that is not full are read, and their products dropped: see FINDINGS.
        tail = np.zeros(0 if exact else 2 * each * groups * weights.strides[2], np.int8)
        memory = np.concatenate((weights.reshape(-1).view(np.int8), tail))
        tall = each if kind in ELEMENTS or kind == "q8_0" else each * groups
        constants = [groups, None, x.shape[1], x.shape[1] // weights.shape[1], len(x) // len(weights), False]
        if "FC_mul_mv_r3" not in self.sources[self.source("kernel_mul_mv_f32_f32")]:
            constants = constants[:1]
        elif "FC_mul_mv_split" not in self.sources[self.source("kernel_mul_mv_f32_f32")]:
            constants = constants[:5]
        self.call(
            f"kernel_mul_mv_{kind}_{TYPES[str(x.dtype)]}{suffix}", "mul_mv", values, [memory, raw(x), raw(out)],
            (-(-rows // tall), x.shape[2], len(x) * x.shape[1]), (32, groups, 1), local, {"FC_MUL_MV": constants},
        )  # fmt: skip
        return out

    def mul_mm(self, weights: Array, kind: str, x: Array) -> Array:
        """Return the same in blocks of 64 rows and 32 columns, by products of matrices of a simdgroup."""
        length, rows = x.shape[3], weights.shape[2]
        out = blank((*x.shape[:3], rows))
        columns = x.shape[2]
        is_ragged, is_open = length % 32 != 0, rows % 64 != 0 or columns % 32 != 0
        constants = [is_ragged, is_open, x.shape[1], len(x), x.shape[1] // weights.shape[1], len(x) // len(weights)]
        if "FC_mul_mm_r3" not in self.sources[self.source(f"kernel_mul_mm_{kind}_f32")]:
            constants = constants[:2]
        self.call(
            f"kernel_mul_mm_{kind}_{TYPES[str(x.dtype)]}", "mul_mm", self._product(weights, kind, x, out),
            [raw(weights), raw(x), raw(out)], (-(-columns // 32), -(-rows // 64), len(x) * x.shape[1]), (32, 4, 1),
            8192 if is_open else 4096 + 2048, {"FC_MUL_MM": constants},
        )  # fmt: skip
        return out

    def _product(self, weights: Array, kind: str, x: Array, out: Array) -> dict[str, Any]:
        values = fields("0", weights) | fields("1", x) | fields("", out)
        values |= {"ne00": x.shape[3], "nb00": BLOCKS.get(kind, (1, weights.itemsize))[1]}
        return values | {"r2": x.shape[1] // weights.shape[1], "r3": len(x) // len(weights)}


# --- arguments --------------------------------------------------------------------------------------------------------


def fields(which: str, array: Array) -> dict[str, Any]:
    """Return the lengths and strides of a tensor as ggml names them."""
    axes = range(array.ndim)
    lengths = {f"ne{which}{i}": array.shape[array.ndim - 1 - i] for i in axes}
    return lengths | {f"nb{which}{i}": array.strides[array.ndim - 1 - i] for i in axes}


def steps(strides: Sequence[int], padding: Sequence[int], dilations: Sequence[int]) -> dict[str, Any]:
    """Return pairs (y, x) as ggml names them."""
    pairs = {"s": strides, "p": padding, "d": dilations}
    return {f"{name}{i}": pair[1 - i] for name, pair in pairs.items() for i in (0, 1)}


def raw(array: Array) -> Any:
    """Bind an array or a view as ``char``."""
    return at(array, np.int8)


def anytype(array: Array) -> Any:
    """Bind an array or a view as ``void``."""
    return at(array, np.uint8)


# --- what NumPy computes ----------------------------------------------------------------------------------------------


def shape(draw: Draw) -> tuple[int, int, int, int]:
    """Draw the lengths of a tensor: few rows, of any length."""
    return draw.number(1, 2), draw.number(1, 3), draw.number(1, 3), draw.length()


def alibi(heads: int, bias: float) -> Array:
    """Return the slopes of heads, for a largest bias."""
    power, i = 2 ** math.floor(math.log2(heads)), np.arange(heads)
    exponents = np.where(i < power, i + 1, (2 * (i - power) + 1) / 2)
    return np.asarray(2.0 ** (-bias / power * exponents))


def soft_max(ggml: Ggml, draw: Draw) -> Compared:
    """Softmax with and without a mask of either type, sinks and ALiBi."""
    n3, n2, n1, n0 = shape(draw)
    x = draw.strided(n3, n2, n1, n0)
    mask = draw.array(1, draw.choice(1, n2), n1, n0, dtype=draw.choice(np.float32, np.float16), kind="plain")
    mask = draw.choice(None, mask)
    sinks = draw.choice(None, draw.array(n2, kind="plain"))
    scale, bias = draw.choice(1.0, 0.125), 0.0 if mask is None else draw.choice(0.0, 8.0)
    z = wide(x) * np.float32(scale)
    if mask is not None:
        z = z + (alibi(n2, bias)[:, None, None] if bias else 1) * mask
    expected, bound = oracles.softmax(z, sinks=None if sinks is None else sinks[:, None, None])
    return Compared(ggml.soft_max(x, mask, sinks, scale, bias), expected, bound)


def norm(ggml: Ggml, draw: Draw, *, rms: bool = False) -> Compared:
    """Normalized rows, with factors and terms that are repeated."""
    n3, n2, n1, n0 = shape(draw)
    x = draw.strided(n3, n2, n1, n0)
    factors = draw.choice(None, draw.array(1, draw.choice(1, n2), draw.choice(1, n1), n0, kind="plain"))
    terms = None if factors is None else draw.choice(None, draw.array(1, 1, 1, n0, kind="plain"))
    eps = draw.choice(1e-5, 1e-6)
    given = 1 if factors is None else factors, 0 if terms is None else terms
    expected, bound = oracles.normalized(x, *given, eps=eps, centred=not rms)
    return Compared(ggml.norm(x, factors, terms, eps, rms=rms), expected, bound)


def rms_norm(ggml: Ggml, draw: Draw) -> Compared:
    """The same without means."""
    return norm(ggml, draw, rms=True)


def group_norm(ggml: Ggml, draw: Draw, images: int = 1) -> Compared:
    """Groups of channels of an image."""
    groups = draw.number(1, 3)
    n, channels, high, across = images, groups * draw.number(1, 2), draw.number(1, 5), draw.number(1, 40)
    x = draw.array(n, channels, high, across)
    expected, bound = (one.reshape(x.shape) for one in oracles.normalized(x.reshape(n, groups, -1)))
    return Compared(ggml.group_norm(x, groups, 1e-5), expected, bound)


def sums(ggml: Ggml, draw: Draw) -> list[Compared]:
    """The sum of all, and sums and means of rows."""
    x = draw.strided(*shape(draw))
    z, count = wide(x), x.shape[3]
    rows, magnitude = z.sum(-1, keepdims=True), np.abs(z).sum(-1, keepdims=True)
    bound = EPSILON * (16 + count / 32) * magnitude
    of_all = EPSILON * (16 + x.size / 32) * magnitude.sum()
    return [
        Compared(ggml.sum(np.ascontiguousarray(x)), z.sum().reshape(1), of_all),
        Compared(ggml.sum_rows(x), rows, bound),
        Compared(ggml.sum_rows(x, mean=True), rows / count, bound / count),
    ]


def cumsum(ggml: Ggml, draw: Draw) -> Compared:
    """Cumulative sums."""
    x = draw.strided(*shape(draw))
    return Compared(ggml.cumsum(x), wide(x).cumsum(-1), EPSILON * 64 * np.abs(wide(x)).cumsum(-1))


def argmax(ggml: Ggml, draw: Draw, kind: str | None = None) -> Compared:
    """An index of the largest number of each row: of several, any; NaN counts as none."""
    x = draw.array(draw.number(1, 3), draw.length() + (kind is None), kind=kind)
    got = ggml.argmax(x)
    real = np.where(np.isnan(x), -np.inf, x)
    legal = (got >= 0) & (got < x.shape[1])
    found = np.where(legal, real[np.arange(len(x)), np.where(legal, got, 0)], np.nan)
    return Compared(found, real.max(1))


def rope(ggml: Ggml, draw: Draw) -> Compared:
    """Rotations of pairs, neighbours or halves, of one or several positions, with YaRN's two factors."""
    n3, n2, n1 = draw.number(1, 2), draw.number(1, 4), draw.number(1, 3)
    length = 2 * draw.number(1, 20)
    kind = draw.choice("norm", "neox", "multi", "imrope", "vision")
    dims = length // 2 if kind == "vision" else 2 * draw.number(1, length // 2)
    half = dims if kind == "vision" else dims // 2
    x = draw.strided(n3, n2, n1, length, dtype=draw.choice(np.float32, np.float16), kind="plain")
    random = np.random.default_rng(draw.number(0, 99))
    positions, sections = random.integers(0, 64, (4, n2), np.int32), random.integers(1, 4, 4)
    sections = sections * np.array([1, 1, 0, 0]) if kind == "vision" else sections
    sections[1] = sections[0] if kind == "vision" else sections[1]
    factors = draw.choice(None, np.abs(draw.array(half, kind="plain")) + 0.5)
    base, scale, extrapolation, attention = draw.choice(1e4, 5e5), draw.choice(1.0, 0.5), draw.choice(0.0, 1.0), 1.25
    i = np.arange(half)
    ends, sector, powers = np.cumsum(sections), i % sections.sum(), i
    which = 0 * i if kind in ("norm", "neox") else np.searchsorted(ends, sector, "right")
    if kind == "imrope":  # the first three positions by turns, as long as they last
        which = np.where(sector < 3 * sections[sector % 3], sector % 3, 3)
    if kind == "vision":
        powers = sector - sections[0] * which
    angles = positions[which].T * float(base) ** (-2 * powers / dims) / (1 if factors is None else factors)
    theta, size = angles * scale, attention
    if extrapolation:
        ramps = [dims * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1)]
        first, last = max(0.0, math.floor(ramps[0])), min(dims - 1.0, math.ceil(ramps[1]))
        ramp = 1 - np.clip((i - first) / max(0.001, last - first), 0, 1)
        theta = theta * (1 - ramp * extrapolation) + angles * ramp * extrapolation
        size *= 1 + 0.1 * math.log(1 / scale)
    theta = theta[:, None, :]
    error = size * EPSILON * (16 + 32 * theta)
    expected, bound = oracles.rotated(x, size * np.cos(theta), size * np.sin(theta), error, neighbours=kind == "norm")
    bound += (HALF * np.abs(expected) + 2**-24) * (x.dtype == np.float16)
    about: Any = dims, base, scale, extrapolation, attention, kind, sections
    return Compared(ggml.rope(x, positions, *about, factors=factors), expected, bound)


UNARY: Mapping[str, tuple[Any, Mapping[str, float]]] = {
    "SCALE": (lambda x, scale, bias: scale * x + bias, {"scale": 2.5, "bias": -1}),
    "CLAMP": (lambda x, min, max: np.clip(x, min, max), {"min": -0.5, "max": 1}),
    "SQR": (np.square, {}), "SQRT": (np.sqrt, {}), "SIN": (np.sin, {}), "COS": (np.cos, {}), "LOG": (np.log, {}),
    "LEAKY_RELU": (lambda x, slope: np.where(x > 0, x, slope * x), {"slope": 0.25}),
    "TANH": (np.tanh, {}), "RELU": (lambda x: np.fmax(x, 0), {}), "SIGMOID": (ACTIVATIONS["sigmoid"], {}),
    **{name.upper(): (ACTIVATIONS[name], {}) for name in ("gelu", "gelu_erf", "gelu_quick", "silu")},
    "ELU": (lambda x: np.where(x > 0, x, np.expm1(x)), {}),
    "NEG": (np.negative, {}), "ABS": (np.abs, {}), "SGN": (lambda x: (x > 0) * 1.0 - (x < 0), {}),
    "STEP": (lambda x: (x > 0) * 1.0, {}), "HARDSIGMOID": (lambda x: np.fmax(0, np.fmin(1, x / 6 + 0.5)), {}),
    "HARDSWISH": (lambda x: x * np.fmax(0, np.fmin(1, x / 6 + 0.5)), {}), "EXP": (np.exp, {}),
    "SOFTPLUS": (lambda x: np.where(x > 20, x, np.log1p(np.exp(x))), {}), "EXPM1": (np.expm1, {}),
    "FLOOR": (np.floor, {}), "CEIL": (np.ceil, {}), "TRUNC": (np.trunc, {}),
    "ROUND": (lambda x: np.trunc(x + np.copysign(0.5, x)), {}),
}  # fmt: skip
"""Functions and their parameters by the names of the header."""


def unary(ggml: Ggml, draw: Draw, *only: str) -> Compared:
    """A function of each element."""
    name = draw.choice(*(only or UNARY))
    function, parameters = UNARY[name]
    kind = "plain" if name == "LEAKY_RELU" and not only else None
    x = draw.strided(*shape(draw), dtype=draw.choice(np.float32, np.float16), kind=kind)
    expected = function(wide(x), **parameters)
    # Rounding of terms of the size of 1, and of erf's approximation to 1.5e-7 and half of x.
    bound = EPSILON * 8 * (1 + np.abs(x) + np.abs(expected))
    if x.dtype == np.float16:
        bound = bound + HALF * np.abs(expected) + 2**-24
        expected = np.where(np.abs(expected) >= 65520, np.copysign(np.inf, expected), expected)
    return Compared(ggml.unary(name, x, **parameters), expected, bound)


def binary(ggml: Ggml, draw: Draw) -> Compared:
    """The four operations, with the second array repeated along each axis."""
    dtype = draw.choice(np.float32, np.float16)
    x = draw.strided(*shape(draw), dtype=dtype)
    y = draw.array(*(draw.choice(1, n) for n in x.shape), dtype=dtype)
    operation = draw.number(0, 3)
    # Of two such numbers one rounding.
    return Compared(ggml.binary(operation, x, y), (np.add, np.subtract, np.multiply, np.divide)[operation](x, y))


def images(draw: Draw, kind: str | None = None) -> Array:
    """Draw images (N, C, H, W)."""
    return draw.array(draw.number(1, 2), draw.number(1, 3), draw.number(1, 9), draw.number(1, 9), kind=kind)


def pair(draw: Draw, low: int, high: int) -> tuple[int, int]:
    """Draw a pair (y, x)."""
    return draw.number(low, high), draw.number(low, high)


def geometry(draw: Draw, x: Array, *, dilated: bool = True) -> tuple[tuple[int, int], ...]:
    """Draw kernel, strides, padding and dilations that have a window."""
    dilations = pair(draw, 1, 2) if dilated else (1, 1)
    strides, padding = pair(draw, 1, 3), pair(draw, 0, 2)
    most = [min(4, (n + 2 * p - 1) // d + 1) for n, p, d in zip(x.shape[2:], padding, dilations, strict=True)]
    return (draw.number(1, most[0]), draw.number(1, most[1])), strides, padding, dilations


def pool_2d(ggml: Ggml, draw: Draw) -> list[Compared]:
    """Maxima and means; the mean is over a whole window, and NaN may or may not be the maximum."""
    x = images(draw)
    kernel, strides, padding, _ = geometry(draw, x, dilated=False)
    size = windows(x.shape[2:], kernel, strides, padding)
    largest, terms = (patches(wide(x), kernel, strides, padding, (1, 1), fill) for fill in (-np.inf, 0))
    got, average = (ggml.pool_2d(x, kernel, strides, padding, size, maximum=one) for one in (True, False))
    maxima = np.where(np.isnan(largest).any((4, 5)), got, largest.max((4, 5)))
    return [
        Compared(got, maxima), Compared(average, terms.mean((4, 5)), EPSILON * 20 * np.abs(terms).mean((4, 5)))
    ]  # fmt: skip


def im2col(ggml: Ggml, draw: Draw) -> Compared:
    """Taps of windows."""
    x = images(draw)
    kernel, strides, padding, dilations = (33, 32), (1, 1), (1, 0), (1, 1)
    if draw.choice(False, False, True):  # more taps than threads
        x = draw.array(draw.number(1, 2), draw.number(1, 2), 33, 33)
    else:
        kernel, strides, padding, dilations = geometry(draw, x)
    dtype = draw.choice(np.float32, np.float16)
    taken = patches(x, kernel, strides, padding, dilations).transpose(0, 2, 3, 1, 4, 5)
    return Compared(
        ggml.im2col(x, kernel, strides, padding, dilations, dtype), taken.reshape(*taken.shape[:3], -1).astype(dtype)
    )


def conv_2d(ggml: Ggml, draw: Draw) -> Compared:
    """Convolution."""
    x = images(draw, "plain")
    about: Any = geometry(draw, x)
    w = draw.array(draw.number(1, 3), x.shape[1], *about[0], dtype=draw.choice(np.float32, np.float16), kind="plain")
    expected, bound = oracles.convolution(patches(x, *about), w)
    return Compared(ggml.conv_2d(w, x, *about[1:]), expected, EPSILON * 64 * bound)


def conv_transpose_2d(ggml: Ggml, draw: Draw) -> Compared:
    """Transposed convolution, of single images in versions that launch no others."""
    x = images(draw, "plain")
    x = x if "tgpig[2] / args.OC" in ggml.all else x[:1]
    kernel, stride = pair(draw, 1, 4), draw.number(1, 3)
    w = draw.array(x.shape[1], draw.number(1, 3), *kernel, dtype=draw.choice(np.float32, np.float16), kind="plain")
    expected, bound = (oracles.transposed_convolution(*both, stride) for both in ((x, w), (np.abs(x), np.abs(w))))
    return Compared(ggml.conv_transpose_2d(w, x, stride), expected, EPSILON * 64 * bound)


def upscale(ggml: Ggml, draw: Draw) -> Compared:
    """Images of other sizes, by the three methods."""
    mode = draw.choice("nearest", "bilinear", "bicubic")
    x = images(draw, "plain")
    size = tuple(n * draw.number(1, 4) for n in x.shape[2:]) if mode == "nearest" else pair(draw, 1, 16)
    align = mode != "nearest" and draw.choice(False, True)
    antialias = mode == "bilinear" and not align and "FC_UPSCALE " in ggml.header and draw.choice(False, True)
    expected = oracles.resized(x, size, mode, align_corners=align, antialias=antialias)
    bound = 0.0 if mode == "nearest" else EPSILON * 256 * np.abs(x).max() * 4
    return Compared(ggml.upscale(x, size, mode, align_corners=align, antialias=antialias), expected, bound)


def pad(ggml: Ggml, draw: Draw) -> Compared:
    """Zeros, or the other end, around a tensor; rows of any length."""
    x = draw.strided(*shape(draw))
    circular = "FC_PAD " in ggml.header and draw.choice(False, True)
    left = 3 * ("lp0" in ggml.header)  # older versions pad behind only
    pairs = [(draw.number(0, min(n, left)), draw.number(0, min(n, 3))) for n in x.shape]
    expected = np.pad(x, pairs, "wrap") if circular else np.pad(x, pairs)
    return Compared(ggml.pad(x, pairs, circular=circular), expected)


def get_rows(ggml: Ggml, draw: Draw) -> Compared:
    """Rows of a table, as floats."""
    kind = draw.choice("f32", "f16", *BLOCKS)
    n2, n1, rows = draw.number(1, 2), draw.number(1, 2), draw.number(1, 5)
    length = draw.length() if kind in ELEMENTS else draw.number(1, 5) * BLOCKS[kind][0]
    table = weights(draw, kind, n2, n1, rows, length)
    indices = np.random.default_rng(draw.number(0, 99)).integers(0, rows, (n2, n1, draw.number(1, 6)), np.int32)
    values = dequantized(table, kind, ggml.table)
    expected = np.stack([[values[i, j][indices[i, j]] for j in range(n1)] for i in range(n2)])
    # q6_K and q4_K are products in float32, and differences of two.
    return Compared(ggml.get_rows(table, kind, indices), expected, 0 if kind in ELEMENTS else EPSILON * 8 * 128)


STEPS = {"q8_0": (127, 0.51), "q4_0": (8, 1.01), "q5_0": (16, 1.01), "q4_1": (15, 0.51), "q5_1": (31, 0.51)}
THREE = {"tq2_0": (1, 0.51)}
UNEVEN = {"iq4_nl": (1, 0.2)}
"""Steps between 0 or the least and the largest number of a block, and how much of one a rounding may be."""


def cpy(ggml: Ggml, draw: Draw) -> Compared:
    """Copies of views as other types; of blocks; and to blocks, within half a step of each."""
    kind, other = draw.choice(
        ("f32", "f32"), ("f32", "f16"), ("f16", "f32"), ("f16", "f16"), ("f32", "i32"), ("i32", "f32"),
        *((one, other) for one in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0") for other in ("f32", "f16")), ("i32", "i32"),
        *(("f32", one) for one in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1")),
    )  # fmt: skip
    n3, n2, n1, n0 = shape(draw)
    if kind in BLOCKS or other in BLOCKS:
        n0 = draw.number(1, 5) * 32
    if kind in BLOCKS:
        x = weights(draw, kind, n3, n2, n1, n0)
    else:
        whole = kind == "i32" or other == "i32"
        chosen = "ties" if whole else "plain" if other in BLOCKS else None
        x = draw.strided(n3, n2, n1, n0, dtype=ELEMENTS[kind], kind=chosen)
    got = ggml.cpy(x, kind, other)
    if other not in BLOCKS:
        expected = dequantized(x, kind)
        with np.errstate(invalid="ignore"):
            rounding = HALF * np.abs(expected) + 2**-24 if other == "f16" else EPSILON * np.abs(expected)
            # A 16th of a small scale is subnormal as float16, and is multiplied by up to 240; or two terms cancel.
            rounding = rounding + {"q4_0": 240 * 2**-25, "q4_1": 240 * 2**-25}.get(kind, EPSILON * 2)
            return Compared(got, expected, rounding if kind in BLOCKS or other == "f16" else EPSILON * np.abs(expected))
    return near(got, other, x)


def near(got: Array, kind: str, x: Array) -> Compared:
    """Compare rows of blocks with the numbers that they hold, within half a step of each block."""
    z = wide(x).reshape(*x.shape[:-1], -1, BLOCKS[kind][0])
    # A step is the largest element divided by 127 or 8, rounded to float16; of q4_0 there is none for its negative.
    step, (count, most) = np.abs(z).max(-1, keepdims=True), (STEPS | THREE | UNEVEN)[kind]
    step = (z.max(-1, keepdims=True) - z.min(-1, keepdims=True) if kind.endswith("1") else step) / count
    bound = step * most + (np.abs(z) + count * step) * HALF + 2**-20
    return Compared(dequantized(got, kind).reshape(z.shape), z, bound)


def product(ggml: Ggml, draw: Draw, *, matrix: bool, **odd: Any) -> Compared:
    """Products of batches of matrices, by either kernel."""
    kind = draw.choice("f32", "f16", *BLOCKS)
    length = draw.length() if kind in ELEMENTS else draw.number(1, 3) * BLOCKS[kind][0]
    rows = (draw.choice(65, 70) if odd else draw.choice(4, 60, 64, 68)) if matrix else draw.number(1, 9)
    columns = draw.choice(1, 9, 32, 33) if matrix else draw.number(1, 3)
    m3, m2, r3, r2 = 1, draw.number(1, 2), draw.number(1, 2), draw.number(1, 2)
    if matrix:  # the host takes this kernel for longer rows only, and elements of 4 are read at once
        length = max(64, length)
    w = weights(draw, kind, m3, m2, rows, length)
    dtype = np.float16 if kind == "f16" and not matrix and draw.choice(False, True) else np.float32
    x = draw.strided(m3 * r3, m2 * r2, columns, length, dtype=dtype, kind="plain")
    z = dequantized(w, kind, ggml.table).repeat(r2, 1).repeat(r3, 0)
    expected = np.einsum("abik,abjk->abij", x.astype(np.float64), z)
    magnitude = np.einsum("abik,abjk->abij", np.abs(x.astype(np.float64)), np.abs(z))
    # Blocks are rounded to float16, and so are products of two such numbers.
    rounding = 2 * HALF * (matrix or dtype == np.float16) + EPSILON * (length / 8 + 64)
    if kind not in ("f32", "f16", "q8_0"):  # sums of the two parts of differences
        magnitude = magnitude + np.abs(x).sum(-1, dtype=np.float64)[..., None] * 4
    got = ggml.mul_mm(w, kind, x) if matrix else ggml.mul_mv(w, kind, x, **odd)
    return Compared(got, expected, rounding * magnitude + 2**-24)


def mul_mv(ggml: Ggml, draw: Draw) -> Compared:
    """Products with few columns."""
    return product(ggml, draw, matrix=False)


def mul_mm(ggml: Ggml, draw: Draw) -> Compared:
    """Products with many columns, whose factors are rounded to float16."""
    return product(ggml, draw, matrix=True)


GATED: Mapping[str, Any] = {
    "reglu": lambda x: np.where(x > 0, x, 0), "geglu": ACTIVATIONS["gelu"], "swiglu": ACTIVATIONS["silu"],
    "geglu_erf": ACTIVATIONS["gelu_erf"], "geglu_quick": ACTIVATIONS["gelu_quick"],
}  # fmt: skip


def gated(ggml: Ggml, draw: Draw, *only: str) -> Compared:
    """A function of the one half of rows times the other half, or of two arrays."""
    name, dtype = draw.choice(*(only or (*GATED, "swiglu_oai"))), draw.choice(np.float32, np.float16)
    rows, length, one = draw.number(1, 4), draw.length(), draw.choice(False, True)
    x = draw.array(rows, length * (1 + one), dtype=dtype, kind="special" if only else "plain")
    y = x if one else draw.array(rows, length, dtype=dtype, kind="plain")
    out, at_y = blank((rows, length), dtype), length * one
    values = {"ne00": x.shape[1], "nb01": x.strides[0], "ne10": y.shape[1], "nb11": y.strides[0], "ne0": length}
    values |= {"nb1": out.strides[0], "i00": 0, "i10": at_y, "alpha": 1.5, "limit": 1.0}
    kernel, three = f"kernel_{name}_{TYPES[np.dtype(dtype).name]}", [raw(x), raw(y), raw(out)]
    ggml.call(kernel, "glu", values, three, (rows, 1, 1), (min(length, MOST_THREADS), 1, 1))
    a, b = wide(x[:, :length]), wide(y[:, at_y : at_y + length])
    if name == "swiglu_oai":
        a, b = np.minimum(a, 1), 1 + np.clip(b, -1, 1)
    first = a / (1 + np.exp(-1.5 * a)) if name == "swiglu_oai" else GATED[name](a)
    rounding = (HALF * 2 * np.abs(first * b) + 2**-24) * (dtype == np.float16)
    return Compared(out, first * b, EPSILON * 8 * (1 + np.abs(a)) * np.abs(b) + rounding)


def set_rows(ggml: Ggml, draw: Draw) -> Compared:
    """Rows written to those that are named, as numbers or as blocks."""
    n3, n2, n1, n0 = shape(draw)
    kind, many, blocks = draw.choice("i32", "i64"), n1 + draw.number(0, 3), draw.choice(None, *STEPS, *THREE)
    places = np.stack([np.random.default_rng(i).permutation(many)[:n1] for i in range(n3 * n2)])
    where = places.reshape(n3, n2, n1, 1)
    indices = where[None, ..., 0].astype({"i32": np.int32, "i64": np.int64}[kind])
    per, size = BLOCKS.get(blocks, (1, 4))
    x = draw.strided(n3, n2, n1, 2 * per if blocks else n0, kind="plain")
    dtype = np.uint8 if blocks else draw.choice(np.float32, np.float16)
    expected = (
        np.zeros((n3, n2, many, 2 * size), np.uint8)
        if blocks
        else draw.array(n3, n2, many, n0, kind="plain", dtype=dtype)
    )
    out, count = expected.copy(), x.shape[3] // per
    values = fields("0", x) | fields("1", indices) | fields("", out) | {"nk0": count}
    high = 16 if blocks else 1
    kernel = f"kernel_set_rows_f32_{kind}_{blocks or TYPES[str(out.dtype)]}"
    buffers, threads = [anytype(x), anytype(indices), at(out, np.float32)], (min(count, MOST_THREADS), high, 1)
    ggml.call(kernel, "set_rows", values, buffers, (-(-n1 // high), n2, n3), threads)
    if blocks:
        return near(np.take_along_axis(out, where, 2), blocks, x)
    np.put_along_axis(expected, where, x.astype(dtype), 2)
    return Compared(out, expected)


def movement(ggml: Ggml, draw: Draw) -> Compared:
    """Tensors that are repeated, joined, rolled, reflected at their ends, or put on a diagonal."""
    name = draw.choice("repeat", "concat", "roll", "pad_reflect_1d", "diag", "add_id", "arange", "memset")
    n3, n2, n1, n0 = size = shape(draw)
    x = draw.strided(*size, kind="plain") if name != "roll" else draw.array(*size)
    groups, threads = (n1, n2, n3), (min(n0, MOST_THREADS), 1, 1)
    values, kernel, more = fields("0", x), f"kernel_{name}_f32", []
    if name == "repeat":
        expected = np.tile(x, [draw.number(1, 3) for _ in size])
    elif name == "concat":
        axis, y = draw.number(0, 3), draw.array(*size, kind="plain")
        expected, more = np.concatenate((x, y), axis), [raw(y)]
        values |= fields("1", y) | {"dim": 3 - axis}
    elif name == "roll":
        shifts = [draw.number(1 - n, n - 1) for n in size]
        expected = np.roll(x, shifts, (0, 1, 2, 3))
        values |= {f"s{i}": shifts[3 - i] for i in range(4)}
    elif name == "pad_reflect_1d":
        pair = [draw.number(0, min(3, n0 - 1)) for _ in range(2)]
        expected = np.pad(x, [(0, 0)] * 3 + [tuple(pair)], "reflect")
        values |= {"p0": pair[0], "p1": pair[1]}
    elif name == "diag":
        x = draw.array(n3, n2, 1, min(n0, 70))
        expected = np.where(np.eye(x.shape[3], dtype=bool), x, 0)
        values, threads = {**fields("0", x), "nb01": 4 * x.shape[3]}, (32, 1, 1)
    elif name == "add_id":
        x, rows = np.ascontiguousarray(x[0]), draw.number(1, 4)
        table, which = (
            draw.array(rows, n0, kind="plain"),
            np.random.default_rng(n0).integers(0, rows, (n2, n1), np.int32),
        )
        values = {"ne0": n0, "ne1": n1, "nb01": x.strides[1], "nb02": x.strides[0], "nb11": table.strides[0]}
        values, kernel = values | {"nb21": which.strides[0]}, "kernel_add_id"
        expected, more, groups = x + table[which], [raw(table), raw(which)], (n1, n2, 1)
    else:
        values, groups = (
            ({"ne0": n0, "start": 2, "step": 0.5}, (1, 1, 1)) if name == "arange" else ({"val": 7}, (n0, 1, 1))
        )
        threads, kernel = (threads, kernel) if name == "arange" else ((1, 1, 1), "kernel_memset_i64")
        expected = 2 + 0.5 * np.arange(n0) if name == "arange" else np.full(n0, 7)
        out = blank((n0,), np.float32 if name == "arange" else np.int64)
        ggml.call(kernel, name, values, [raw(out) if name == "arange" else out], groups, threads)
        return Compared(out, expected)
    out = blank(expected.shape)
    if out.ndim == 4:
        values |= fields("", out)
        groups = (out.shape[2], out.shape[1], out.shape[0])
    ggml.call(kernel, name, values, [raw(x), *more, raw(out)], groups, threads)
    return Compared(out, expected)


def tri(ggml: Ggml, draw: Draw) -> Compared:
    """The elements on one side of the diagonal."""
    x, which = draw.array(1, 1, draw.number(1, 5), draw.number(1, 5), kind="plain"), draw.number(0, 3)
    i, j, out = *np.indices(x.shape[2:]), blank(x.shape)
    values, group = fields("0", x) | fields("", out), (x.shape[3], 1, 1)
    ggml.call(f"kernel_tri_f32_{which}", "tri", values, [raw(x), raw(out)], (x.shape[2], 1, 1), group)
    return Compared(out, np.where([j >= i, j > i, j <= i, j < i][which], x, 0))


def argsort(ggml: Ggml, draw: Draw) -> Compared:
    """Positions of the numbers of rows in order, or of the first of them: of blocks, which are merged."""
    n3, n2, n1 = (draw.number(1, 2) for _ in range(3))
    n0, order = draw.choice(1, 2, 33, 70, 128, 1000, 1025, 2500), draw.choice("asc", "desc")
    limit = draw.choice(128, 1024)
    x = draw.array(n3, n2, n1, n0, kind=draw.choice("plain", "ties"))
    threads = 1
    while threads < n0 and 2 * threads <= limit:
        threads *= 2
    blocks = -(-n0 // threads)
    top = n0 if order == "asc" else draw.choice(n0, min(n0, threads, 5))
    per = min(top, threads)
    whole = (blocks - 1) * per + min(n0 - (blocks - 1) * threads, per)
    some = blank((n3, n2, n1, whole), np.int32)
    values, kernel = fields("0", x) | fields("", some) | {"top_k": per}, f"kernel_argsort_f32_i32_{order}"
    ggml.call(kernel, "argsort", values, [raw(x), some], (n1 * blocks, n2, n3), (threads, 1, 1), 4 * threads)
    length, kernel = per, f"kernel_argsort_merge_f32_i32_{order}"
    while length < whole:
        size = top if 2 * length >= whole else whole
        values = fields("0", x) | {f"ne{i}": some.shape[3 - i] for i in range(4)} | {"top_k": size, "len": length}
        other, merged = blank((n3, n2, n1, size), np.int32), -(-whole // (2 * length))
        group = (min(512, -(-whole // 32) * 32), 1, 1)
        ggml.call(kernel, "argsort_merge", values, [raw(x), some, other], (merged * n1, n2, n3), group)
        some, length = other, 2 * length
    return oracles.in_order(x, some[..., :top], descending=order == "desc")


def other_sums(ggml: Ggml, draw: Draw) -> list[Compared]:
    """Rows divided by their lengths, a Hadamard transform, equal elements, and the embedding of times."""
    size = shape(draw)
    n3, n2, n1, n0 = size
    x, y = draw.strided(*size, kind="plain"), blank(size)
    is_vector = n0 % 4 == 0
    values, threads = fields("0", x) | fields("", y) | {"eps": 1e-6, "ne00": n0 // (4 if is_vector else 1)}, 32
    while threads < values["ne00"] and threads < MOST_THREADS:
        threads *= 2
    kernel = f"kernel_l2_norm_f32_f32{'_4' * is_vector}"
    ggml.call(kernel, "l2_norm", values, [raw(x), raw(y)], (n1, n2, n3), (threads, 1, 1), ROW)
    z = x.astype(np.float64)
    unit = z / np.maximum(np.sqrt((z**2).sum(-1, keepdims=True)), 1e-6)
    made = [Compared(y, unit, EPSILON * 64)]
    count, rows = draw.choice(64, 128, 256), draw.number(1, 5)
    h, out, sign = draw.array(rows, count, kind="plain"), blank((rows, count)), np.ones((1, 1))
    while len(sign) < count:
        sign = np.block([[sign, sign], [sign, -sign]])
    ggml.call(f"kernel_fwht_f32_{count}", "fwht", {"nrows": rows}, [h, out], (-(-rows // 2), 1, 1), (64, 1, 1))
    transform = h.astype(np.float64) @ sign / math.sqrt(count)
    made.append(Compared(out, transform, EPSILON * 64 * np.abs(h.astype(np.float64)).sum(-1, keepdims=True)))
    a, b = (draw.array(*size, dtype=np.int32, kind="ties") for _ in range(2))
    equal, group = np.zeros(1, np.int32), min(1024, -(-n0 // 32) * 32)
    values = fields("0", a) | fields("1", b)
    nsg = {"FC_COUNT_EQUAL": [group // 32]}
    three = [raw(a), raw(b), equal]
    ggml.call("kernel_count_equal_i32", "count_equal", values, three, (n1, n2, n3), (group, 1, 1), 4 * 32, nsg)
    made.append(Compared(equal, np.array([(a == b).sum()])))
    times, dim = draw.array(draw.number(1, 4), kind="ties"), draw.choice(1, 2, 5, 64, 70)
    embedded = blank((times.size, dim))
    values = {"nb1": 4 * dim, "dim": dim, "max_period": 100}
    groups, half = (times.size, 1, 1), dim // 2
    buffers = [raw(times), raw(embedded)]
    ggml.call(
        "kernel_timestep_embedding_f32", "timestep_embedding", values, buffers, groups, (min(1024, max(half, 1)), 1, 1)
    )
    angles = times[:, None] * np.exp(-math.log(100) * np.arange(half) / max(half, 1))
    zeros = np.zeros((times.size, dim % 2))
    return [*made, Compared(embedded, np.concatenate((np.cos(angles), np.sin(angles), zeros), 1), EPSILON * 16)]


def one_dimensional(ggml: Ggml, draw: Draw) -> list[Compared]:
    """Pooling, transposed convolution and sums of columns along one axis, and a periodic activation."""
    rows, length = draw.number(1, 3), draw.choice(1, 5, 33, 70)
    k, stride = draw.number(1, 4), draw.number(1, 3)
    x = draw.array(rows, length, kind="plain")
    k = min(k, length)
    padding = draw.number(0, k // 2)
    count = windows((length,), (k,), (stride,), (padding,))[0]
    axis = (1, k), (1, stride), (0, padding), (1, 1)
    taken = patches(wide(x)[None, :, None], *axis, np.nan)[0, :, 0, :, 0]
    values, made = {"k0": k, "s0": stride, "p0": padding, "IW": length, "OW": count, "np": rows * count}, []
    threads = min(MOST_THREADS, rows * count)
    for kind, function in (("max", np.nanmax), ("avg", np.nanmean)):
        out, grid = blank((rows, count)), (-(-rows * count // threads), 1, 1)
        ggml.call(f"kernel_pool_1d_{kind}_f32", "pool_1d", values, [x, out], grid, (threads, 1, 1))
        made.append(Compared(out, function(taken, -1), EPSILON * 8 * np.abs(x).max()))
    features, dtype = draw.number(1, 3), draw.choice(np.float32, np.float16)
    w = draw.array(rows, features, k, dtype=dtype, kind="plain")
    expected = spread(np.einsum("il,iok->olk", wide(x), wide(w)), stride)
    out, high = blank(expected.shape), expected.shape[1]
    values = {"IC": rows, "IL": length, "K": k, "s0": stride, "nb0": 4, "nb1": 4 * high}
    kernel = f"kernel_conv_transpose_1d_{TYPES[np.dtype(dtype).name]}_f32"
    ggml.call(kernel, "conv_transpose_1d", values, [w, x, raw(out)], (high, features, 1), (1, 1, 1))
    made.append(Compared(out, expected, EPSILON * 64 * rows * k * np.abs(x).max() * np.abs(wide(w)).max()))
    column, crop = draw.array(length, features, k, kind="plain"), draw.number(0, min(2, (high - 1) // 2))
    added = spread(wide(column).transpose(1, 0, 2), stride)[:, crop : high - crop]
    out = blank(added.shape)
    values = {"T_in": length, "T_out": out.shape[1], "OC": features, "K": k, "K_OC": k * features, "s0": stride}
    grid, group = (-(-out.size // 64), 1, 1), (64, 1, 1)
    ggml.call("kernel_col2im_1d_f32", "col2im_1d", values | {"p0": crop}, [column, out], grid, group)
    made.append(Compared(out, added, EPSILON * 8 * k * np.abs(column).max()))
    a, b, out = draw.array(rows, kind="plain"), draw.array(rows, kind="plain"), blank(x.shape)
    grid = (-(-x.size // 64), 1, 1)
    ggml.call("kernel_snake_f32", "snake", {"T": length, "C": rows}, [x, a, b, out], grid, group)
    sine = np.sin(wide(a)[:, None] * x) ** 2 * b[:, None]
    return [*made, Compared(out, x + sine, EPSILON * 16 * (1 + np.abs(x)) * (1 + np.abs(a * b)).max())]


def optimizers(ggml: Ggml, draw: Draw) -> list[Compared]:
    """Steps of AdamW and SGD, and the gradient of SiLU."""
    n = draw.length()
    x, g, m = (draw.array(n, kind="plain") for _ in range(3))
    v, group = np.abs(draw.array(n, kind="plain")), (min(n, 256), 1, 1)
    numbers = np.array([0.01, 0.9, 0.99, 1e-8, 0.1, 2, 3], np.float32)
    alpha, beta1, beta2, eps, decay, first, second = numbers.astype(np.float64)
    mean, square = m * beta1 + g * (1 - beta1), v * beta2 + g.astype(np.float64) ** 2 * (1 - beta2)
    new = x * (1 - alpha * decay) - alpha * mean * first / (np.sqrt(square * second) + eps)
    plain, groups = x.copy(), (-(-n // group[0]), 1, 1)
    ggml.call("kernel_opt_step_adamw_f32", "opt_step_adamw", {"np": n}, [x, g, m, v, numbers], groups, group)
    made = [
        Compared(x, new, EPSILON * 32 * (1 + np.abs(new))),
        Compared(m, mean, EPSILON * 8),
        Compared(v, square, EPSILON * 8 * (1 + square)),
    ]
    expected = plain * (1 - alpha * beta1) - alpha * g
    ggml.call("kernel_opt_step_sgd_f32", "opt_step_sgd", {"np": n}, [plain, g, numbers], groups, group)
    z, out = draw.array(n, kind="plain"), blank((n,))
    ggml.call("kernel_silu_back_f32", "silu_back", {"ne": n}, [g, z, out], groups, group)
    s = ACTIVATIONS["sigmoid"](wide(z))
    gradient = g * s * (1 + z * (1 - s))
    return [
        *made,
        Compared(plain, expected, EPSILON * 8),
        Compared(out, gradient, EPSILON * 16 * (1 + np.abs(g)) * (1 + np.abs(z))),
    ]


def solve_tri(ggml: Ggml, draw: Draw, n: int = 0) -> Compared:
    """Solutions of triangular systems, a column for each simdgroup."""
    n, columns, batch = n or draw.choice(32, 64), draw.choice(1, 3, 8, 9), draw.number(1, 2)
    a = np.tril(draw.array(batch, 1, n, n, kind="plain") * 0.1, -1) + 2 * np.eye(n, dtype=np.float32)
    b, out = draw.array(batch, 1, n, columns, kind="plain"), np.zeros((batch, 1, n, columns), np.float32)
    values, nsg = fields("0", a) | fields("1", b) | fields("", out), 8
    constants = {"FC_SOLVE_TRI": [nsg, n, columns]}
    groups, local = (-(-columns // nsg), 1, batch), 4 * nsg * (-(-n // 32) * 32)
    out[...] = np.nan if n % 32 else 0
    ggml.call(
        "kernel_solve_tri_f32", "solve_tri", values, [raw(a), raw(b), raw(out)], groups, (32, nsg, 1), local, constants
    )
    return Compared(
        out, np.linalg.solve(a.astype(np.float64), b.astype(np.float64)), EPSILON * 64 * n * np.abs(b).max()
    )


def dot_products(ggml: Ggml, draw: Draw) -> Compared:
    """Products with 2 to 8 columns, by a few threads for each row."""
    kind = draw.choice("f32", "f16", *(one for one in BLOCKS if f"kernel_mul_mv_ext_{one}_f32" in ggml.all))
    length, rows, columns = 128 * draw.choice(2, 4), draw.number(1, 40), draw.number(4 if kind[-2:] == "_K" else 2, 8)
    m2, r2, r3 = draw.number(1, 2), draw.number(1, 2), draw.number(1, 2)
    w = weights(draw, kind, 1, m2, rows, length)
    x = draw.strided(r3, m2 * r2, columns, length, kind="plain")
    out, across = blank((*x.shape[:3], rows)), 16 if columns < 3 else 8
    high = {2: 2, 3: 3, 6: 3, 5: 5}.get(columns, 4)
    kernel, groups = (
        f"kernel_mul_mv_ext_{kind}_f32_r1_{high}",
        (-(-rows // (64 // across)), -(-columns // high), r3 * m2 * r2),
    )
    constants = {"FC_MUL_MV": [2, across, m2 * r2, r2, r3]}
    three = [raw(w), raw(x), raw(out)]
    ggml.call(kernel, "mul_mv_ext", ggml._product(w, kind, x, out), three, groups, (32, 2, 1), 0, constants)
    left, right = wide(x), dequantized(w, kind, ggml.table).repeat(r2, 1).repeat(r3, 0).swapaxes(-1, -2)
    bound = EPSILON * (length / 8 + 64) * (np.abs(left) @ np.abs(right) + 4 * np.abs(left).sum(-1, keepdims=True))
    return Compared(out, left @ right, bound)


def experts(ggml: Ggml, draw: Draw) -> Compared:
    """Products with the matrices that each token chooses, by vectors, or by blocks of the tokens of a matrix."""
    kind, blocks = draw.choice("f32", "f16", *BLOCKS), draw.choice(False, True)
    many, used, tokens = 4, draw.choice(1, 2, 4), draw.choice(1, 5, 33) if blocks else draw.number(1, 3)
    length = draw.choice(64, 68) if kind in ELEMENTS else BLOCKS[kind][0] * 2
    rows, of = draw.choice(4, 64, 68) if blocks else draw.number(1, 9), draw.choice(1, used)
    w = weights(draw, kind, 1, many, rows, length)
    x = draw.array(1, tokens, of, length, kind="plain")
    ids = np.stack([np.random.default_rng(i).permutation(many)[:used] for i in range(tokens)]).astype(np.int32)
    out = blank((1, tokens, used, rows))
    values = fields("0", w) | fields("1", x) | fields("2", ids) | fields("", out) | {"r2": 1, "r3": 1}
    values |= {
        "nei0": used,
        "nei1": tokens,
        "nbi1": ids.strides[0],
        "ne00": length,
        "nb00": BLOCKS.get(kind, (1, w.itemsize))[1],
    }
    if blocks:
        counts, lists = np.zeros(many, np.uint32), np.zeros((many, max(tokens, 2)), np.int32)
        three, kernel = [raw(ids), raw(counts), raw(lists)], f"kernel_mul_mm_id_map0_ne20_{used}"
        ggml.call(kernel, "mul_mm_id_map0", values, three, (1, 1, 1), (many, 1, 1), 2 * many * used)
        five, groups = [raw(w), raw(x), *three[1:], raw(out)], (-(-tokens // 32), -(-rows // 64), many)
        constants = {"FC_MUL_MM": [length % 32 != 0]}
        ggml.call(f"kernel_mul_mm_id_{kind}_f32", "mul_mm_id", values, five, groups, (128, 1, 1), 8192, constants)
    else:
        simds, each, suffix, local = ggml.tile(kind, length, short=False)
        tail = np.zeros(2 * each * simds * w.strides[2], np.int8)  # rows of a last tile: see FINDINGS
        memory, tall = np.concatenate((w.reshape(-1).view(np.int8), tail)), each
        tall = each if kind in ELEMENTS or kind == "q8_0" else each * simds
        four, groups = [memory, raw(x), raw(out), raw(ids)], (-(-rows // tall), 1, used * tokens)
        kernel, constants = f"kernel_mul_mv_id_{kind}_f32{suffix}", {"FC_MUL_MV": [simds, None, 1, 1, 1]}
        ggml.call(kernel, "mul_mv_id", values | {"nr0": each}, four, groups, (32, simds, 1), max(local, 16), constants)
    z = dequantized(w, kind, ggml.table)[0][ids]
    left = np.broadcast_to(wide(x)[0], (tokens, used, length))
    expected, size = (np.einsum("tuk,turk->tur", *both)[None] for both in ((left, z), (np.abs(left), np.abs(z))))
    size = size + 4 * np.abs(left).sum(-1)[None, ..., None] * (kind in BLOCKS and kind != "q8_0")
    return Compared(out, expected, (2 * HALF * blocks + EPSILON * (length / 8 + 64)) * size + 2**-24)


def flash_attention(ggml: Ggml, draw: Draw, *, ragged: bool = False) -> Compared:
    """Attention by blocks of queries and of keys, and by vectors in 32 parts, with masks, ALiBi and sinks."""
    kind, size = draw.choice("f32", "f16", *STEPS), draw.choice(64, 128)
    vectors, masked = not ragged and draw.choice(False, True), ragged or draw.choice(False, True)
    batch, shared, of = draw.number(1, 2), draw.choice(1, 2), draw.number(1, 2)
    # The mask has whole blocks of queries: see FINDINGS.
    count = draw.number(1, 3) if vectors else draw.choice(1, 20) if ragged else 8 if masked else draw.choice(1, 8, 20)
    heads, keys = shared * of, draw.choice(64, 100) if ragged else draw.choice(1, 32, 33, 64, 100)
    q = draw.array(batch, heads, count, size, kind="plain")
    k, v = (weights(draw, kind, batch, of, keys, size) for _ in "kv")
    mask = draw.array(1, 1, count, keys, dtype=np.float16, kind="plain") if masked else None
    sinks, bias = draw.choice(None, draw.array(heads, kind="plain")), 0.0 if mask is None else draw.choice(0.0, 8.0)
    out, scale, power = blank((batch, count, heads, size)), 1 / math.sqrt(size), 2 ** int(math.log2(heads))
    given = np.zeros((1, 1, 1, 1), np.float16) if mask is None else mask
    values = fields("0", q) | fields("1", k) | fields("2", v) | fields("3", given) | fields("", out)
    values |= {"ne_12_2": of, "ne_12_3": batch, "scale": scale, "max_bias": bias, "logit_softcap": 0.0}
    values |= {
        "n_head_log2": power,
        "m0": 2.0 ** (-bias / power),
        "m1": 2.0 ** (-bias / 2 / power),
        "nrows": batch * count * heads,
    }
    per = BLOCKS.get(kind, (1, k.itemsize))[1]
    values |= {f"ns{i}0": one.strides[2] // per for i, one in ((1, k), (2, v))}
    step = 32 if vectors else 64
    pad = np.zeros(step * (k[:, :, 0].nbytes + v[:, :, 0].nbytes + 2 * given[..., 0].size) + 16, np.int8)
    ragged, five = keys % step != 0, [raw(q), raw(k), raw(v), raw(given), raw(given if sinks is None else sinks)]
    if ragged:
        constants = {"FC_FLASH_ATTN_EXT_PAD": [mask is not None, *[None] * 24, step]}
        groups, buffers = (step, of, batch), [*five[1:4], pad]
        ggml.call("kernel_flash_attn_ext_pad", "flash_attn_ext_pad", values, buffers, groups, (32, 1, 1), 0, constants)
    flags = [mask is not None, sinks is not None, bias != 0, False, ragged, *[None] * 5]
    ends, simds = [values["ns10"], values["ns20"]], 1 if vectors else 4
    kernel = f"kernel_flash_attn_ext{'_vec' * vectors}_{kind}_dk{size}_dv{size}"
    if vectors:
        parts = blank((out.size // size * 32 * (size + 2),))
        known = {"FC_FLASH_ATTN_EXT_VEC": [*flags, *[None] * 10, *ends, simds, 32]}
        local = (128 + 4 * 32 + 2 * 128) * 2
        groups = (count, heads, batch * 32)
        ggml.call(kernel, "flash_attn_ext_vec", values, [*five, pad, raw(parts)], groups, (32, simds, 1), local, known)
        known, kernel = {"FC_FLASH_ATTN_EXT_VEC_REDUCE": [size, 32]}, "kernel_flash_attn_ext_vec_reduce"
        two = [raw(parts), raw(out)]
        ggml.call(kernel, "flash_attn_ext_vec_reduce", values, two, (values["nrows"], 1, 1), (1024, 1, 1), 0, known)
    else:
        many = -(-count // 8), -(-keys // 64)
        blk = np.zeros(-(-math.prod(many) // 32) * 32, np.int8)
        if mask is not None:
            known, groups = {"FC_FLASH_ATTN_EXT_BLK": [*[None] * 24, 8, 64]}, (*many[::-1], 1)
            two = [raw(given), blk]
            ggml.call("kernel_flash_attn_ext_blk", "flash_attn_ext_blk", values, two, groups, (32, 1, 1), 0, known)
        known = {"FC_FLASH_ATTN_EXT": [*flags, mask is not None and count % 8 != 0, *[None] * 9, *ends, simds]}
        local = (8 * (size + 2 * -(-size // 64) * 64 + 2 * 128) + (kind in BLOCKS) * 16 * 32 * simds) * 2
        buffers, groups = [*five, pad, blk, raw(out)], (many[0], heads, batch)
        ggml.call(kernel, "flash_attn_ext", values, buffers, groups, (32, simds, 1), local, known)
    added = None if mask is None else wide(mask) * (alibi(heads, bias)[:, None, None] if bias else 1)
    k, v = (dequantized(one, kind) for one in (k, v))
    expected = oracles.attention(q, k, v, scale, mask=added, sinks=sinks).transpose(0, 2, 1, 3)
    return Compared(out, expected, HALF * 16 * (1 + np.abs(k).max()) * (np.abs(v).max() + 2**-10))


def lightning_indexer(ggml: Ggml, draw: Draw) -> Compared:
    """Weighted sums over 64 heads of the positive products of queries with keys."""
    kind, streams, keys, count = (
        draw.choice("f32", "f16", *STEPS),
        draw.number(1, 2),
        draw.choice(1, 33, 70),
        draw.number(1, 9),
    )
    q, w = draw.array(streams, count, 64, 128, kind="plain"), draw.array(streams, 1, count, 64, kind="plain")
    k = weights(draw, kind, streams, keys, 1, 128)
    mask, out = draw.array(streams, 1, count, keys, dtype=np.float16, kind="plain"), blank((streams, 1, count, keys))
    values = {"n_kv": keys, "n_batch": count, "mask_ne3": streams, "nb1": out.strides[2], "nb3": out.strides[0]}
    values |= {f"nbq{i}": q.strides[3 - i] for i in (1, 2, 3)} | {f"nbk{i}": k.strides[3 - i] for i in (2, 3)}
    values |= {f"nb{n}{i}": one.strides[3 - i] for n, one in (("w", w), ("m", mask)) for i in (1, 3)}
    buffers, groups = [raw(one) for one in (q, k, w, mask, out)], (-(-keys // 64), -(-count // 8), streams)
    ggml.call(f"kernel_lightning_indexer_{kind}", "lightning_indexer", values, buffers, groups, (32, 8, 1))
    products = np.einsum("sbhd,skd->sbhk", wide(q), dequantized(k, kind)[:, :, 0])
    sizes = np.einsum("sbhd,skd->sbhk", np.abs(wide(q)), np.abs(dequantized(k, kind)[:, :, 0]))
    expected, bound = (
        np.einsum("sbhk,sbh->sbk", a, b) for a, b in ((np.maximum(products, 0), w[:, 0]), (sizes, np.abs(w[:, 0])))
    )
    return Compared(out[:, 0], expected + mask[:, 0], 2 * HALF * bound + EPSILON * 64)


def hyper_connections(ggml: Ggml, draw: Draw) -> list[Compared]:
    """Four streams mixed by weights, and weights made doubly stochastic by turns."""
    tokens, length, turns, eps = draw.number(1, 9), draw.choice(1, 33, 200), draw.number(1, 4), 1e-3
    mixes, scale, base = draw.array(tokens, 24, kind="plain"), draw.array(3, kind="plain"), draw.array(24, kind="plain")
    comb, simds = blank((tokens, 4, 4)), 4
    values = {"n_tokens": tokens, "n_iter": turns, "n_embd": length, "eps": eps}

    def run(name: str, groups: Sequence[int], **tensors: Array) -> None:
        of = {f"nb_{n}{i}": one.strides[one.ndim - 1 - i] for n, one in tensors.items() for i in range(one.ndim)}
        arrays = [raw(one) for one in tensors.values()]
        ggml.call(f"kernel_dsv4_hc_{name}_f32", f"dsv4_hc_{name}", values | of, arrays, groups, (32, simds, 1))

    run("comb", (-(-tokens // simds), 1, 1), m=mixes, s=scale, b=base, d=comb)
    v = wide(mixes)[:, 8:].reshape(tokens, 4, 4) * scale[2] + base[8:].reshape(4, 4)
    v = np.exp(v - v.max(2, keepdims=True))
    v = v / v.sum(2, keepdims=True) + eps
    v = v / (v.sum(1, keepdims=True) + eps)
    for _ in range(turns - 1):
        for axis in (2, 1):
            v = v / (v.sum(axis, keepdims=True) + eps)
    made, groups = [Compared(comb, v, EPSILON * 64)], (-(-length // (32 * simds)), tokens, 1)
    x, w, out = (
        draw.array(tokens, 4, length, kind="plain"),
        draw.array(tokens, 4, kind="plain"),
        blank((tokens, length)),
    )
    run("pre", groups, x=x, w=w, d=out)
    made.append(Compared(out, np.einsum("tse,ts->te", wide(x), w), EPSILON * 16 * np.abs(x).max() * np.abs(w).max()))
    y, out = draw.array(tokens, length, kind="plain"), blank((tokens, 4, length))
    run("post", groups, x=y, r=x, p=w, c=comb, d=out)
    expected = wide(y)[:, None] * w[..., None] + np.einsum("tse,tsd->tde", wide(x), comb)
    return [
        *made,
        Compared(out, expected, EPSILON * 64 * (1 + np.abs(x).max()) * (1 + np.abs(y).max()) * (1 + np.abs(w).max())),
    ]


def recurrent(ggml: Ggml, draw: Draw) -> list[Compared]:
    """States that each token changes and reads: RWKV 6 and 7, and gated delta rules."""
    name = draw.choice("rwkv_wkv6", "rwkv_wkv7", "gated_delta_net")
    batch, heads, tokens = draw.number(1, 2), draw.number(1, 3), draw.number(1, 5)
    size = draw.choice(32, 64, 128) if name == "gated_delta_net" else 64
    a = [draw.array(batch, tokens, heads, size, kind="plain") * np.float32(0.5) for _ in range(6)]
    state = draw.array(batch, heads, size, size, kind="plain")
    out, z, s = blank((a[0].size + state.size,)), [np.moveaxis(wide(one), 1, 0) for one in a], wide(state)
    rows = []
    if name == "gated_delta_net":
        gates = draw.choice(1, size)
        q, k, v, g = a[0], a[1], a[2], -np.abs(a[3][..., :gates]).copy()
        beta = np.abs(a[4][..., 0]).copy()
        values = fields("", out.reshape(1, 1, 1, -1))
        for which, one in (("0", q), ("1", k), ("2", v)):
            values |= fields(which, one) | {f"ns{which}2": one.strides[1] // 4}
            # Axes are tokens, then heads: as ggml has them, the other way round.
            values |= {
                f"ne{which}1": heads,
                f"ne{which}2": tokens,
                f"nb{which}1": 4 * size,
                f"nb{which}2": 4 * size * heads,
            }
        kernel, simds, buffers = f"kernel_gated_delta_net_f32_{size // 32}", size // 32, [q, k, v, g, beta, state]
        known = {"FC_GATED_DELTA_NET": [size, gates, 1]}
        groups, group = (size // simds, heads, batch), (32, simds, 1)
        ggml.call(kernel, "gated_delta_net", values, [*map(raw, buffers), raw(out)], groups, group, 0, known)
        decay, beta = np.exp(np.moveaxis(wide(g), 1, 0)), np.moveaxis(wide(beta), 1, 0)
        for t in range(tokens):  # rows of the state belong to elements of v
            s = s * decay[t][:, :, None]
            change = (z[2][t] - np.einsum("bhvk,bhk->bhv", s, z[1][t])) * beta[t][..., None]
            s = s + change[..., None] * z[1][t][:, :, None]
            rows.append(np.einsum("bhvk,bhk->bhv", s, z[0][t]) / math.sqrt(size))
    else:
        six = name == "rwkv_wkv6"
        arrays = [a[0], a[1], a[2], np.ascontiguousarray(a[3][0, 0]), a[4]] if six else a
        numbers = [np.uint32(one) for one in (batch, batch * tokens, heads * size, heads)]
        kernel = f"kernel_{name}_f32"
        ggml.launch(ggml.source(kernel), kernel, (batch * heads, 1, 1), (size, 1, 1), *arrays, state, out, *numbers)
        for t in range(tokens):
            if six:  # k, v, r, a bonus and the decay; rows of the state belong to elements of k
                added = z[0][t][..., None] * z[1][t][:, :, None]
                rows.append(np.einsum("bhk,bhkv->bhv", z[2][t], s + wide(arrays[3])[..., None] * added))
                s = s * z[4][t][..., None] + added
            else:  # r, w, k, v, a, b; rows belong to elements of v
                seen = np.einsum("bhvk,bhk->bhv", s, z[4][t])
                s = (
                    s * z[1][t][:, :, None]
                    + z[3][t][..., None] * z[2][t][:, :, None]
                    + seen[..., None] * z[5][t][:, :, None]
                )
                rows.append(np.einsum("bhvk,bhk->bhv", s, z[0][t]))
    expected = np.concatenate((np.stack(rows, 1).ravel(), s.ravel()))
    return [Compared(out, expected, EPSILON * 64 * (1 + np.abs(expected).max()) * tokens * size)]


def state_space(ggml: Ggml, draw: Draw, *, by_fours: bool = False) -> list[Compared]:
    """The convolution in front of a state space model, and its scan, with decays of heads or of states."""
    seqs, channels, tokens = draw.number(1, 2), draw.number(1, 5), 2 if by_fours else draw.choice(1, 2, 9, 40)
    taps = draw.choice(4, 8) if by_fours else draw.choice(3, *[4] * (tokens == 1))  # see FINDINGS
    x, w = draw.array(seqs, channels, tokens + taps - 1, kind="plain"), draw.array(channels, taps, kind="plain")
    out = blank((seqs, tokens, channels))
    values = fields("0", x) | fields("1", w) | fields("", out) | {"ne0": channels, "ne1": tokens, "ne2": seqs}
    many = max(2, min(256, 1 << (tokens - 1).bit_length())) if tokens > 1 else 1
    many = 8 if many == 4 and tokens > 4 else many
    kernel = f"kernel_ssm_conv_f32_f32{'_batched' * (many > 1)}{'_4' * (taps % 4 == 0)}"
    known = {"FC_SSM_CONV": [many]} if many > 1 else {}
    three, groups = [anytype(x), anytype(w), out], (channels, -(-tokens // many), seqs)
    ggml.call(kernel, "ssm_conv", values, three, groups, (many, 1, 1), 0, known)
    windows = np.lib.stride_tricks.sliding_window_view(wide(x), taps, -1)
    expected, size = (np.einsum("sctk,ck->stc", *both) for both in ((windows, w), (np.abs(windows), np.abs(w))))
    made = [Compared(out, expected, EPSILON * 16 * size)]
    heads, dim, states, of_heads = 2 * draw.number(1, 2), draw.number(1, 3), draw.choice(16, 64, 128), draw.choice(1, 0)
    tokens, shares = min(tokens, 9), draw.choice(1, 2)
    s = draw.array(seqs + 1, heads, dim, states, kind="plain")
    x, dt = draw.array(seqs, tokens, heads, dim, kind="plain"), draw.array(seqs, tokens, heads, kind="plain")
    a = -np.abs(draw.array(heads, 1 if of_heads else states, kind="plain"))
    b, c = (draw.array(seqs, tokens, shares, states, kind="plain") for _ in "bc")
    ids, simds = np.arange(seqs, 0, -1).astype(np.int32), -(-states // 32)
    out = blank((x.size + seqs * s[0].size,))
    values = {
        "d_state": states,
        "d_inner": dim,
        "n_head": heads,
        "n_group": shares,
        "n_seq_tokens": tokens,
        "n_seqs": seqs,
    }
    values |= {
        "K": 1,
        "s_off": x.nbytes,
        "nb0": 4,
        "ne30": a.shape[1],
        "nb31": a.strides[0],
        "ns12": heads * dim,
        "ns21": heads,
    }
    values |= {
        f"nb{i}{j}": one.strides[one.ndim - 1 - j] for i, one in enumerate((s, x, dt, a, b, c)) for j in range(one.ndim)
    }
    values |= {"ns42": shares * states, "ns52": shares * states}
    buffers, group = [*map(anytype, (s, x, dt, a, b, c, ids)), out], (states, 1, 1)
    ggml.call("kernel_ssm_scan_f32", "ssm_scan", values, buffers, (dim, heads, seqs), group, 34 * 4 * simds)
    z, rows = wide(s)[ids], []
    step = np.where(dt > 20, wide(dt), np.log1p(np.exp(wide(dt))))
    left, right = (np.repeat(wide(one), heads // shares, 2) for one in (b, c))
    for t in range(tokens):
        z = (
            z * np.exp(step[:, t, :, None, None] * a[:, None])
            + left[:, t, :, None] * (step[:, t, :, None] * x[:, t])[..., None]
        )
        rows.append((z * right[:, t, :, None]).sum(-1))
    expected = np.concatenate((np.stack(rows, 1).ravel(), z.ravel()))
    return [*made, Compared(out, expected, EPSILON * 64 * states * (1 + np.abs(z).max()) * (1 + np.abs(c).max()))]


def other_convolutions(ggml: Ggml, draw: Draw) -> list[Compared]:
    """Convolutions of each channel, of either order of axes, and of volumes."""
    x = images(draw, "plain")
    about: Any = geometry(draw, x)
    kernel, strides, padding, dilations = about
    dtype, last = draw.choice(np.float32, np.float16), draw.choice(False, True)
    w = draw.array(x.shape[1], 1, *kernel, dtype=dtype, kind="plain")
    expected, bound = oracles.convolution(patches(x, *about), w, x.shape[1])
    out = blank(expected.shape)
    if last:
        x, out = (np.ascontiguousarray(one.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for one in (x, out))
    n, channels, high, across = out.shape
    values = fields("0", w[:, 0]) | fields("1", x) | fields("", out) | steps(strides, padding, dilations)
    values |= {
        "IW": x.shape[3],
        "IH": x.shape[2],
        "KW": kernel[1],
        "KH": kernel[0],
        "C": channels,
        "OW": across,
        "OH": high,
        "N": n,
    }
    tiled = x.strides[1] < x.strides[3]
    groups = (-(-channels // 256), high, across * n) if tiled else (-(-across // 256), high, channels * n)
    name, three = f"kernel_conv_2d_dw{'_tiled' * tiled}_{TYPES[str(w.dtype)]}_f32", [raw(w), raw(x), raw(out)]
    ggml.call(name, "conv_2d_dw", values, three, groups, (256, 1, 1))
    made = [Compared(out, expected, EPSILON * 64 * bound)]
    x = draw.array(draw.number(1, 2), draw.number(1, 3), *(draw.number(2, 5) for _ in range(3)), kind="plain")
    w = draw.array(draw.number(1, 3), x.shape[1], *(draw.number(1, 2) for _ in range(3)), dtype=dtype, kind="plain")
    numbers: Any = [tuple(draw.number(low, 2) for _ in range(3)) for low in (1, 0, 1)]
    if any(n + 2 * p <= d * (k - 1) for n, p, d, k in zip(x.shape[2:], *numbers[1:], w.shape[2:], strict=True)):
        return made
    expected, bound = oracles.convolution(patches(x, w.shape[2:], *numbers), w)
    out = blank(expected.shape)
    flat = [one.reshape(-1, *one.shape[2:]) for one in (w, x, out)]
    values = fields("0", flat[0]) | fields("1", flat[1]) | fields("", flat[2])
    values |= {f"{n}{2 - i}": one[i] for n, one in zip("spd", numbers, strict=True) for i in range(3)}
    values |= {f"{n}{'DHW'[i]}": one.shape[2 + i] for n, one in (("I", x), ("O", out), ("K", w)) for i in range(3)}
    values |= {"IC": x.shape[1], "N": len(x), "OC": len(w)}
    groups = (-(-math.prod(out.shape[2:]) // 32), len(w), len(x))
    three = [raw(w), raw(x), raw(out)]
    ggml.call(f"kernel_conv_3d_{TYPES[str(w.dtype)]}_f32", "conv_3d", values, three, groups, (32, 1, 1))
    return [*made, Compared(out, expected, EPSILON * 64 * bound)]


FINDINGS: Mapping[str, tuple[Case, str]] = {
    "group_norm of several images": (
        lambda ggml, draw: group_norm(ggml, draw, 2),
        "only the groups of the first image are launched: those of the others are not written",
    ),
    "argmax of infinities": (
        lambda ggml, draw: argmax(ggml, draw, "infinite"), "the index of a row of -infinity is -1, outside of the row",
    ),
    "leaky_relu of infinity": (
        lambda ggml, draw: unary(ggml, draw, "LEAKY_RELU"), "it adds 0 * infinity: NaN instead of infinity",
    ),
    "reglu of infinity": (
        lambda ggml, draw: gated(ggml, draw, "reglu"), "it multiplies by 0 where x is negative: NaN for -infinity",
    ),
    "tri": (tri, "the result is declared as const, and written through a pointer from which the cast removes it"),
    "ssm_conv of several tokens with taps by fours": (
        lambda ggml, draw: state_space(ggml, draw, by_fours=True),
        "the taps of a token are read as float4 at addresses that are multiples of 4 bytes",
    ),
    "flash_attn_ext_blk of queries that do not fill a block": (
        lambda ggml, draw: flash_attention(ggml, draw, ragged=True),
        "the scan of a block reads all 8 rows of the mask, also those behind the last one; the result does not change",
    ),
    "solve_tri": (
        solve_tri,
        "lanes read what lane 0 has just written to device memory; no barrier with mem_device is between",
    ),
    "solve_tri of a size that is no multiple of 32": (
        lambda ggml, draw: solve_tri(ggml, draw, 33),
        "elements behind a row are read and multiplied by 0, also unwritten ones of the result: NaN stays NaN",
    ),
    "mul_mm of rows that are no multiple of 4": (
        lambda ggml, draw: product(ggml, draw, matrix=True, odd=True),
        "a block at the border is stored as float4 at addresses that are multiples of 4 bytes",
    ),
    "mul_mv without memory behind the weights": (
        lambda ggml, draw: product(ggml, draw, matrix=False, exact=True),
        "a tile reads all of its rows, also those behind the last one; the products are dropped",
    ),
}  # fmt: skip
"""Cases in which the kernels differ from NumPy or stop, and why."""

REVIEWED: Mapping[tuple[str, str], str] = {
    ("kernel_soft_max", "fence"): "maxima are overwritten behind a barrier with mem_none, after all have read them",
    ("kernel_cumsum_blk", "uninitialized"): "sums of simdgroups that do not exist; no result depends on them",
    ("kernel_mul_mv", "same-value"): "each simdgroup of a threadgroup copies the same table of values",
    ("kernel_set_rows", "uncovered"): "rows without an index are not written",
    ("kernel_mul_mm_id_map0", "uncovered"): "the list of each expert has room for all tokens",
    ("kernel_flash_attn_ext_pad", "uncovered"): "the host leaves room to align what comes behind",
    ("kernel_flash_attn_ext", "lockstep"): (
        "a simdgroup overwrites the dequantized block that it has just multiplied by, with no simdgroup_barrier between"
    ),
    ("kernel_argmax", "same-value"): "all threads of a row store its index",
}
"""What was seen in reports of kernels whose results are right: by the beginning of the kernel's name, and the kind."""

NOT_RUN: Mapping[str, str] = {}
"""Why functions are not run, by patterns of their names."""


HOST: Mapping[str, str] = {
    "soft_max": (
        "a threadgroup a row; 32 threads, doubled while below the length (a quarter of it by four) and rows "
        "x threads below 256"
    ),
    "norm": (
        "a threadgroup a row; 32 threads, doubled up to the length and what the pipeline allows, at most the "
        "length rounded up to 32"
    ),
    "rms_norm": (
        "a threadgroup a row; 32 threads, doubled up to the length and what the pipeline allows, at most the "
        "length rounded up to 32"
    ),
    "group_norm": ("a threadgroup a group, of 32 threads"),
    "sums": (
        "a threadgroup a row; 32 threads, doubled up to the length and what the pipeline allows, at most the "
        "length; the sum of all: one such threadgroup"
    ),
    "rope": ("a threadgroup a row, of min(1024, length) threads"),
    "unary": ("a row in threadgroups of min(256, length) threads"),
    "binary": (
        "a threadgroup a row; 1 thread, doubled while twice as many are below the length, up to 256; a whole "
        "row as the second operand: a thread an element"
    ),
    "upscale": ("a threadgroup a row, of as many threads as elements, up to what the pipeline allows"),
    "get_rows": ("as many threads as elements (blocks of 16 of quantized rows), up to what the pipeline allows"),
    "cpy": ("min(256, elements) threads; rows shorter than that share a threadgroup"),
    "set_rows": ("32 threads, doubled up to the blocks of a row; rows shorter than that share a threadgroup"),
    "argsort": (
        "the power of 2 from the length on, up to what the pipeline allows; longer rows in blocks of it, "
        "merged by at most 512 threads"
    ),
    "gated": ("a threadgroup a row, of half of its length in threads, up to what the pipeline allows"),
    "mul_mm": ("k from 64 on and more than 8 columns"),
    "mul_mv": ("up to 8 columns, or k below 64"),
    "experts": ("`mul_mm_id` for k from 64 on and at least 32 tokens"),
}
"""What the host passes in ggml at d99724f2, as `ggml-metal-ops.cpp` says."""

CASES = named(
    soft_max, norm, rms_norm, group_norm, sums, cumsum, argmax, rope, unary, binary, pool_2d, im2col, conv_2d,
    conv_transpose_2d, upscale, pad, get_rows, cpy, mul_mv, mul_mm, gated, movement, set_rows, argsort,
    other_sums,
    one_dimensional, optimizers, dot_products, experts, flash_attention, lightning_indexer, hyper_connections,
    recurrent, state_space, other_convolutions,
)  # fmt: skip
