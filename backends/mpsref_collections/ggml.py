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

from mpsref_collections.collection import Array, Case, Collection, Compared, Draw, at, blank, members, record

EPSILON = float(np.finfo(np.float32).eps)
HALF = 2.0**-11
"""The largest relative rounding to float16."""
MOST_THREADS = 1024
TYPES = {"float32": "f32", "float16": "f16", "int32": "i32"}
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

    def source(self, kernel: str) -> Path:
        """Return the file of a kernel."""
        said = f'host_name("{kernel}")', f"kernel void {kernel}("
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
             attention: float, *, neox: bool, factors: Array | None = None, back: bool = False) -> Array:  # fmt: skip
        """Return rows of heads (batch, tokens, heads, length) rotated by the positions of their tokens."""
        out = blank(x.shape, x.dtype)
        n3, n2, n1, n0 = x.shape
        values = fields("0", x) | fields("", out) | {"n_past": 0, "n_dims": dims, "n_offs": 0, "n_ctx_orig": 4096}
        values |= {"freq_base": base, "freq_scale": scale, "ext_factor": extrapolation, "attn_factor": attention}
        values |= {"beta_fast": 32, "beta_slow": 1, "src2": factors is not None, "inplace": False}
        values |= dict.fromkeys(("sect_0", "sect_1", "sect_2", "sect_3"), 0)
        has_back = any("FC_rope_is_back" in text for text in self.sources.values())
        self.call(
            f"kernel_rope_{'neox' if neox else 'norm'}_{TYPES[str(x.dtype)]}", "rope", values,
            [raw(x), raw(positions), raw(x if factors is None else factors), raw(out)],
            (n1, n2, n3), (min(MOST_THREADS, n0), 1, 1), 0, {"FC_ROPE": [False, *[back] * has_back]},
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
        group = (min(MOST_THREADS // taps, n), *kernel)
        name = f"kernel_im2col_{TYPES[str(out.dtype)]}"
        self.call(name, "im2col", values, [x, raw(out)], (channels, high, wide), group)
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

    def mul_mv(self, weights: Array, kind: str, x: Array, *, exact: bool = False) -> Array:
        """Return x (n3, n2, n1, k) times the transposed weights (m3, m2, rows, k), a simdgroup for a few rows.

        ``exact`` leaves no memory behind the weights.
        """
        length, rows = x.shape[3], weights.shape[2]
        out = blank((*x.shape[:3], rows))
        suffix, local = "", 0
        if kind in ELEMENTS and length < 32:
            groups, each, suffix = 1, 32, "_short"
        elif kind in ELEMENTS:
            groups, each, suffix = min(4, -(-length // 128)), 2, "_4" * (length % 4 == 0)
            local = ROW * each
        else:
            groups, each = self.number(f"N_SG_{kind.upper()}"), self.number(f"N_R0_{kind.upper()}")
            local = {"q8_0": ROW * each, "q4_0": 16}.get(kind, 0)  # that of q4_0 is declared and not used
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


def windows(
    lengths: Sequence[int], kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int],
    dilations: Sequence[int] = (1, 1),
) -> tuple[int, int]:  # fmt: skip
    """Return the numbers of windows."""
    high, wide = (
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(lengths, kernel, strides, padding, dilations, strict=True)
    )
    return high, wide


# --- blocks of quantized weights --------------------------------------------------------------------------------------

ELEMENTS: Mapping[str, Any] = {"f32": np.float32, "f16": np.float16, "i32": np.int32}
BLOCKS = {"q4_0": (32, 18), "q8_0": (32, 34), "q4_K": (256, 144), "q6_K": (256, 210)}
"""Elements and bytes of a block."""


def halves(data: Array) -> Any:
    """Return two bytes of each block as a float16."""
    return np.ascontiguousarray(data).view(np.float16).astype(np.float64)


def q4_0(blocks: Array) -> Any:
    """Return the elements of blocks (..., 18): a scale, then 16 bytes with elements i and i + 16."""
    low, high = blocks[..., 2:] & 15, blocks[..., 2:] >> 4
    return halves(blocks[..., :2]) * (np.concatenate((low, high), -1).astype(np.float64) - 8)


def q8_0(blocks: Array) -> Any:
    """Return the elements of blocks (..., 34): a scale, then 32 signed bytes."""
    return halves(blocks[..., :2]) * blocks[..., 2:].view(np.int8)


def q4_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 144): two scales, 8 pairs of 6 bits, and 128 bytes of two elements."""
    packed, bits = blocks[..., 4:16].astype(np.int64), blocks[..., 16:].reshape(*blocks.shape[:-1], 4, 1, 32)
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate((first & 63, third & 15 | first >> 6 << 4), -1)
    minima = np.concatenate((second & 63, third >> 4 | second >> 6 << 4), -1)
    elements = np.concatenate((bits & 15, bits >> 4), -2).reshape(*blocks.shape[:-1], 8, 32)
    scaled = (halves(blocks[..., :2]) * scales)[..., None] * elements
    return (scaled - (halves(blocks[..., 2:4]) * minima)[..., None]).reshape(*blocks.shape[:-1], 256)


def q6_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 210): low 4 bits, high 2 bits, 16 signed scales, and a scale of all."""
    low = blocks[..., :128].reshape(*blocks.shape[:-1], 2, 64)
    high = blocks[..., 128:192].reshape(*blocks.shape[:-1], 2, 1, 32)
    fours = np.concatenate((low & 15, low >> 4), -1).reshape(*low.shape[:-1], 4, 32)
    twos = high >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    elements = (fours | twos << 4).astype(np.float64) - 32
    scales = blocks[..., 192:208].view(np.int8).reshape(*blocks.shape[:-1], 16, 1).astype(np.float64)
    scaled = elements.reshape(*blocks.shape[:-1], 16, 16) * scales
    return scaled.reshape(*blocks.shape[:-1], 256) * halves(blocks[..., 208:])


def dequantized(x: Array, kind: str) -> Any:
    """Return rows of elements or of blocks in float64."""
    if kind in ELEMENTS:
        return x.astype(np.float64)
    _, size = BLOCKS[kind]
    function = {"q4_0": q4_0, "q8_0": q8_0, "q4_K": q4_k, "q6_K": q6_k}[kind]
    return function(x.reshape(*x.shape[:-1], -1, size)).reshape(*x.shape[:-1], -1)


def weights(draw: Draw, kind: str, *shape: int) -> Array:
    """Draw rows of elements or of blocks, of any bytes with scales of ordinary size."""
    if kind in ELEMENTS:
        return draw.array(*shape, dtype=ELEMENTS[kind], kind="plain")
    per, size = BLOCKS[kind]
    random = np.random.default_rng(draw.number(0, 2**16))
    made = random.integers(0, 256, (*shape[:-1], shape[-1] // per, size), np.uint8)
    for first in {"q4_0": [0], "q8_0": [0], "q4_K": [0, 2], "q6_K": [208]}[kind]:
        scales = random.uniform(-0.05, 0.05, made.shape[:-1]).astype(np.float16)
        made[..., first : first + 2] = scales[..., None].view(np.uint8)
    return made.reshape(*shape[:-1], -1)


# --- what NumPy computes ----------------------------------------------------------------------------------------------


def shape(draw: Draw) -> tuple[int, int, int, int]:
    """Draw the lengths of a tensor: few rows, of any length."""
    return draw.number(1, 2), draw.number(1, 3), draw.number(1, 3), draw.length()


def soft_max(ggml: Ggml, draw: Draw) -> Compared:
    """Softmax with and without a mask of either type, sinks and ALiBi."""
    n3, n2, n1, n0 = shape(draw)
    x = draw.strided(n3, n2, n1, n0)
    mask = draw.array(1, draw.choice(1, n2), n1, n0, dtype=draw.choice(np.float32, np.float16), kind="plain")
    mask = draw.choice(None, mask)
    sinks = draw.choice(None, draw.array(n2, kind="plain"))
    scale, bias = draw.choice(1.0, 0.125), 0.0 if mask is None else draw.choice(0.0, 8.0)
    power = 2 ** math.floor(math.log2(n2))
    heads = np.arange(n2)
    slopes = np.where(
        heads < power, 2.0 ** (-bias / power * (heads + 1)), 2.0 ** (-bias / 2 / power * (2 * (heads - power) + 1))
    )
    with np.errstate(invalid="ignore", over="ignore"):
        z = x.astype(np.float64) * np.float32(scale)
        if mask is not None:
            z = z + (slopes[:, None, None] if bias else 1) * mask
        top = z.max(-1, keepdims=True)
        top = top if sinks is None else np.maximum(top, sinks[:, None, None])
        powers = np.exp(z - top)
        total = powers.sum(-1, keepdims=True) + (0 if sinks is None else np.exp(sinks[:, None, None] - top))
        expected = powers / total
        spread = np.nan_to_num(np.abs(z), posinf=0).max() + 1
    return Compared(
        ggml.soft_max(x, mask, sinks, scale, bias), expected, EPSILON * (n0 / 32 + 32 + 8 * spread) * expected + 1e-38
    )


def norm(ggml: Ggml, draw: Draw, *, rms: bool = False) -> Compared:
    """Normalized rows, with factors and terms that are repeated."""
    n3, n2, n1, n0 = shape(draw)
    x = draw.strided(n3, n2, n1, n0)
    factors = draw.choice(None, draw.array(1, draw.choice(1, n2), draw.choice(1, n1), n0, kind="plain"))
    terms = None if factors is None else draw.choice(None, draw.array(1, 1, 1, n0, kind="plain"))
    eps = draw.choice(1e-5, 1e-6)
    z = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        mean = 0.0 if rms else z.mean(-1, keepdims=True)
        deviation = np.sqrt(((z - mean) ** 2).mean(-1, keepdims=True) + eps)
        expected = (z - mean) / deviation
        error = np.abs(z).max(-1, keepdims=True) / deviation + np.abs(expected)
    expected = expected * (1 if factors is None else factors) + (0 if terms is None else terms)
    error = error * (1 if factors is None else np.abs(factors)) + (0 if terms is None else np.abs(terms))
    return Compared(ggml.norm(x, factors, terms, eps, rms=rms), expected, EPSILON * (64 + n0 / 16) * error)


def rms_norm(ggml: Ggml, draw: Draw) -> Compared:
    """The same without means."""
    return norm(ggml, draw, rms=True)


def group_norm(ggml: Ggml, draw: Draw, images: int = 1) -> Compared:
    """Groups of channels of an image."""
    groups = draw.number(1, 3)
    n, channels, high, wide = images, groups * draw.number(1, 2), draw.number(1, 5), draw.number(1, 40)
    x = draw.array(n, channels, high, wide)
    z = x.astype(np.float64).reshape(n, groups, -1)
    with np.errstate(invalid="ignore"):
        mean = z.mean(-1, keepdims=True)
        deviation = np.sqrt(((z - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
        expected = (z - mean) / deviation
        error = np.broadcast_to(np.abs(z).max(-1, keepdims=True) / deviation, z.shape) + np.abs(expected)
    bound = EPSILON * (64 + z.shape[2] / 16) * error
    return Compared(ggml.group_norm(x, groups, 1e-5), expected.reshape(x.shape), bound.reshape(x.shape))


def sums(ggml: Ggml, draw: Draw) -> list[Compared]:
    """The sum of all, and sums and means of rows."""
    x = draw.strided(*shape(draw))
    z = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        rows, magnitude = z.sum(-1, keepdims=True), np.abs(z).sum(-1, keepdims=True)
        count = x.shape[3]
        whole = np.ascontiguousarray(x)
        bound = EPSILON * (16 + count / 32)
        return [
            Compared(ggml.sum(whole), z.sum().reshape(1), EPSILON * (16 + x.size / 32) * magnitude.sum()),
            Compared(ggml.sum_rows(x), rows, bound * magnitude),
            Compared(ggml.sum_rows(x, mean=True), rows / count, bound * magnitude / count),
        ]


def cumsum(ggml: Ggml, draw: Draw) -> Compared:
    """Cumulative sums."""
    x = draw.strided(*shape(draw))
    z = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return Compared(ggml.cumsum(x), z.cumsum(-1), EPSILON * 64 * np.abs(z).cumsum(-1))


def argmax(ggml: Ggml, draw: Draw, kind: str | None = None) -> Compared:
    """An index of the largest number of each row: of several, any; NaN counts as none."""
    x = draw.array(draw.number(1, 3), draw.length() + (kind is None), kind=kind)
    got = ggml.argmax(x)
    real = np.where(np.isnan(x), -np.inf, x)
    legal = (got >= 0) & (got < x.shape[1])
    found = np.where(legal, real[np.arange(len(x)), np.where(legal, got, 0)], np.nan)
    return Compared(found, real.max(1))


def rope(ggml: Ggml, draw: Draw) -> Compared:
    """Rotations of pairs, neighbours or halves, with YaRN's two factors; dimensions beyond are copied."""
    n3, n2, n1 = draw.number(1, 2), draw.number(1, 4), draw.number(1, 3)
    length = 2 * draw.number(1, 20)
    dims = 2 * draw.number(1, length // 2)
    x = draw.strided(n3, n2, n1, length, dtype=draw.choice(np.float32, np.float16), kind="plain")
    positions = np.random.default_rng(draw.number(0, 99)).integers(0, 64, n2, np.int32)
    factors = draw.choice(None, np.abs(draw.array(dims // 2, kind="plain")) + 0.5)
    base, scale, extrapolation, attention = draw.choice(1e4, 5e5), draw.choice(1.0, 0.5), draw.choice(0.0, 1.0), 1.25
    neox = draw.choice(True, False)
    i = np.arange(dims // 2)
    angles = positions[:, None] * float(base) ** (-2 * i / dims) / (1 if factors is None else factors)
    theta, size = angles * scale, attention
    if extrapolation:
        ends = [dims * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1)]
        first, last = max(0.0, math.floor(ends[0])), min(dims - 1.0, math.ceil(ends[1]))
        ramp = 1 - np.clip((i - first) / max(0.001, last - first), 0, 1)
        theta = theta * (1 - ramp * extrapolation) + angles * ramp * extrapolation
        size *= 1 + 0.1 * math.log(1 / scale)
    theta = theta[:, None, :]
    z = x.astype(np.float64)
    pairs = (slice(0, dims // 2), slice(dims // 2, dims)) if neox else (slice(0, dims, 2), slice(1, dims, 2))
    a, b = z[..., pairs[0]], z[..., pairs[1]]
    expected, bound = z.copy(), np.zeros_like(z)
    expected[..., pairs[0]] = size * (a * np.cos(theta) - b * np.sin(theta))
    expected[..., pairs[1]] = size * (a * np.sin(theta) + b * np.cos(theta))
    error = size * (np.abs(a) + np.abs(b)) * EPSILON * (16 + 32 * theta)
    bound[..., pairs[0]] = bound[..., pairs[1]] = error
    if x.dtype == np.float16:
        bound += HALF * np.abs(expected) + 2**-24
    got = ggml.rope(x, positions, dims, base, scale, extrapolation, attention, neox=neox, factors=factors)
    return Compared(got, expected, bound)


def sigmoid(x: Array) -> Any:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Any:
    """Return the approximation of GELU by a hyperbolic tangent."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))


def gelu_erf(x: Array) -> Any:
    """Return GELU."""
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


UNARY: Mapping[str, tuple[Any, Mapping[str, float]]] = {
    "SCALE": (lambda x, scale, bias: scale * x + bias, {"scale": 2.5, "bias": -1}),
    "CLAMP": (lambda x, min, max: np.clip(x, min, max), {"min": -0.5, "max": 1}),
    "SQR": (np.square, {}), "SQRT": (np.sqrt, {}), "SIN": (np.sin, {}), "COS": (np.cos, {}), "LOG": (np.log, {}),
    "LEAKY_RELU": (lambda x, slope: np.where(x > 0, x, slope * x), {"slope": 0.25}),
    "TANH": (np.tanh, {}), "RELU": (lambda x: np.fmax(x, 0), {}), "SIGMOID": (sigmoid, {}),
    "GELU": (gelu, {}), "GELU_ERF": (gelu_erf, {}), "GELU_QUICK": (lambda x: x / (1 + np.exp(-1.702 * x)), {}),
    "SILU": (lambda x: x / (1 + np.exp(-x)), {}), "ELU": (lambda x: np.where(x > 0, x, np.expm1(x)), {}),
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
    with np.errstate(all="ignore"):
        expected = function(x.astype(np.float64), **parameters)
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
    divisors = [draw.choice(1, n) for n in x.shape]
    y = draw.array(*divisors, dtype=dtype)
    operation = draw.number(0, 3)
    with np.errstate(all="ignore"):
        function = (np.add, np.subtract, np.multiply, np.divide)[operation]
        expected = function(x, y)  # of two such numbers one rounding
        return Compared(ggml.binary(operation, x, y), expected)


def images(draw: Draw, kind: str | None = None) -> Array:
    """Draw images (N, C, H, W)."""
    return draw.array(draw.number(1, 2), draw.number(1, 3), draw.number(1, 9), draw.number(1, 9), kind=kind)


def patches(
    x: Array, kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilations: Sequence[int],
    size: Sequence[int], fill: float,
) -> Array:  # fmt: skip
    """Return the taps of windows (N, C, OH, OW, KH, KW), ``fill`` outside of the image."""
    rows, columns = (
        np.arange(o)[:, None] * s - p + np.arange(k) * d
        for o, s, p, k, d in zip(size, strides, padding, kernel, dilations, strict=True)
    )
    inside = [(one >= 0) & (one < n) for one, n in zip((rows, columns), x.shape[2:], strict=True)]
    y, z = (np.clip(one, 0, n - 1) for one, n in zip((rows, columns), x.shape[2:], strict=True))
    taken = x[:, :, y[:, None, :, None], z[None, :, None, :]]
    return np.where(inside[0][:, None, :, None] & inside[1][None, :, None, :], taken, fill)


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
    z = x.astype(np.float64)
    largest = patches(z, kernel, strides, padding, (1, 1), size, -np.inf)
    terms = patches(z, kernel, strides, padding, (1, 1), size, 0)
    got = ggml.pool_2d(x, kernel, strides, padding, size, maximum=True)
    with np.errstate(invalid="ignore"):
        maxima = np.where(np.isnan(largest).any((4, 5)), got, largest.max((4, 5)))
        means, magnitude = terms.mean((4, 5)), np.abs(terms).mean((4, 5))
    average = ggml.pool_2d(x, kernel, strides, padding, size, maximum=False)
    return [Compared(got, maxima), Compared(average, means, EPSILON * 20 * magnitude)]


def im2col(ggml: Ggml, draw: Draw) -> Compared:
    """Taps of windows."""
    x = images(draw)
    kernel, strides, padding, dilations = geometry(draw, x)
    size = windows(x.shape[2:], kernel, strides, padding, dilations)
    dtype = draw.choice(np.float32, np.float16)
    taken = patches(x, kernel, strides, padding, dilations, size, 0).transpose(0, 2, 3, 1, 4, 5)
    expected = taken.reshape(*taken.shape[:3], -1).astype(dtype)
    return Compared(ggml.im2col(x, kernel, strides, padding, dilations, dtype), expected)


def conv_2d(ggml: Ggml, draw: Draw) -> Compared:
    """Convolution."""
    x = images(draw, "plain")
    kernel, strides, padding, dilations = geometry(draw, x)
    w = draw.array(draw.number(1, 3), x.shape[1], *kernel, dtype=draw.choice(np.float32, np.float16), kind="plain")
    size = windows(x.shape[2:], kernel, strides, padding, dilations)
    terms = patches(x.astype(np.float64), kernel, strides, padding, dilations, size, 0)
    expected = np.einsum("nchwyx,ocyx->nohw", terms, w.astype(np.float64))
    bound = np.einsum("nchwyx,ocyx->nohw", np.abs(terms), np.abs(w.astype(np.float64)))
    return Compared(ggml.conv_2d(w, x, strides, padding, dilations), expected, EPSILON * 64 * bound)


def conv_transpose_2d(ggml: Ggml, draw: Draw) -> Compared:
    """Transposed convolution, of single images in versions that launch no others."""
    x = images(draw, "plain")
    x = x if any("tgpig[2] / args.OC" in text for text in ggml.sources.values()) else x[:1]
    kernel, stride = pair(draw, 1, 4), draw.number(1, 3)
    w = draw.array(x.shape[1], draw.number(1, 3), *kernel, dtype=draw.choice(np.float32, np.float16), kind="plain")
    high, wide = ((n - 1) * stride + k for n, k in zip(x.shape[2:], kernel, strict=True))
    expected, bound = np.zeros((2, len(x), w.shape[1], high, wide))
    for i, j in np.ndindex(*kernel):
        to = np.s_[:, :, i : i + stride * x.shape[2] : stride, j : j + stride * x.shape[3] : stride]
        tap = w[:, :, i, j].astype(np.float64)
        expected[to] += np.einsum("nchw,co->nohw", x, tap)
        bound[to] += np.einsum("nchw,co->nohw", np.abs(x), np.abs(tap))
    return Compared(ggml.conv_transpose_2d(w, x, stride), expected, EPSILON * 64 * bound)


def cubic(x: Array) -> Any:
    """Return the weight of a tap at a distance, with a = -0.75."""
    a, x = -0.75, np.abs(x)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def interpolation(mode: str, before: int, after: int, *, align: bool, antialias: bool) -> Any:
    """Return a matrix (after, before) of the weights along an axis."""
    i, j = np.arange(after)[:, None], np.arange(before)
    factor = (after - 1) / (before - 1) if align and after > 1 and before > 1 else after / before
    if mode == "nearest":
        return (i * before // after == j) * 1.0
    offset = 0.0 if align else 0.5
    place = (i + offset) / factor - offset
    if antialias:
        support = max(1.0, 1 / factor)
        near = (j >= np.floor(place - support + offset)) & (j < np.ceil(place + support + offset))
        weight = np.maximum(0, 1 - np.abs(j - place) / support) * near
        return weight / weight.sum(1, keepdims=True)
    if mode == "bilinear":
        return np.maximum(0, 1 - np.abs(j - np.clip(place, 0, before - 1)))
    taps = np.floor(place).astype(int) + np.arange(-1, 3)
    made = np.zeros((after, before))
    for tap in taps.T:
        made[i[:, 0], np.clip(tap, 0, before - 1)] += cubic(place[:, 0] - tap)
    return made


def upscale(ggml: Ggml, draw: Draw) -> Compared:
    """Images of other sizes, by the three methods."""
    mode = draw.choice("nearest", "bilinear", "bicubic")
    x = images(draw, "plain")
    size = tuple(n * draw.number(1, 4) for n in x.shape[2:]) if mode == "nearest" else pair(draw, 1, 16)
    align = mode != "nearest" and draw.choice(False, True)
    antialias = mode == "bilinear" and not align and "FC_UPSCALE " in ggml.header and draw.choice(False, True)
    rows, columns = (
        interpolation(mode, before, after, align=align, antialias=antialias)
        for before, after in zip(x.shape[2:], size, strict=True)
    )
    expected = np.einsum("nchw,yh,xw->ncyx", x.astype(np.float64), rows, columns)
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
    values = dequantized(table, kind)
    expected = np.stack([[values[i, j][indices[i, j]] for j in range(n1)] for i in range(n2)])
    # q6_K and q4_K are products in float32, and differences of two.
    return Compared(ggml.get_rows(table, kind, indices), expected, 0 if kind in ELEMENTS else EPSILON * 8 * 128)


def cpy(ggml: Ggml, draw: Draw) -> Compared:
    """Copies of views as other types; of blocks; and to blocks, within half a step of each."""
    kind, other = draw.choice(
        ("f32", "f32"), ("f32", "f16"), ("f16", "f32"), ("f16", "f16"), ("f32", "i32"), ("i32", "f32"),
        ("q4_0", "f32"), ("q8_0", "f32"), ("q8_0", "f16"), ("f32", "q8_0"), ("f32", "q4_0"),
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
            return Compared(
                got, expected, HALF * np.abs(expected) + 2**-24 if other == "f16" else EPSILON * np.abs(expected)
            )
    z = x.astype(np.float64).reshape(*x.shape[:3], -1, 32)
    # A step is the largest element divided by 127 or 8, rounded to float16; of q4_0 there is none for its negative.
    step = np.abs(z).max(-1, keepdims=True) / (127 if other == "q8_0" else 8)
    bound = step * (0.51 if other == "q8_0" else 1.01) + np.abs(z) * HALF + 2**-20
    return Compared(dequantized(got, other).reshape(z.shape), z, bound)


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
    z = dequantized(w, kind).repeat(r2, 1).repeat(r3, 0)
    expected = np.einsum("abik,abjk->abij", x.astype(np.float64), z)
    magnitude = np.einsum("abik,abjk->abij", np.abs(x.astype(np.float64)), np.abs(z))
    # Blocks are rounded to float16, and so are products of two such numbers.
    rounding = 2 * HALF * (matrix or dtype == np.float16) + EPSILON * (length / 8 + 64)
    if kind in ("q4_K", "q4_0", "q6_K"):  # sums of the two parts of differences
        magnitude = magnitude + np.abs(x).sum(-1, dtype=np.float64)[..., None] * 4
    got = ggml.mul_mm(w, kind, x) if matrix else ggml.mul_mv(w, kind, x, **odd)
    return Compared(got, expected, rounding * magnitude + 2**-24)


def mul_mv(ggml: Ggml, draw: Draw) -> Compared:
    """Products with few columns."""
    return product(ggml, draw, matrix=False)


def mul_mm(ggml: Ggml, draw: Draw) -> Compared:
    """Products with many columns, whose factors are rounded to float16."""
    return product(ggml, draw, matrix=True)


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
    ("kernel_argmax", "same-value"): "all threads of a row store its index",
}
"""What was seen in reports of kernels whose results are right: by the beginning of the kernel's name, and the kind."""

FILES: Mapping[str, str] = {}
"""Files that a case needs and that some packages lack, by the beginning of its name."""

CASES: Mapping[str, Case] = {
    case.__name__: case
    for case in (
        soft_max, norm, rms_norm, group_norm, sums, cumsum, argmax, rope, unary, binary, pool_2d, im2col, conv_2d,
        conv_transpose_2d, upscale, pad, get_rows, cpy, mul_mv, mul_mm,
    )
}  # fmt: skip
