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

from mpsref_collections import oracles
from mpsref_collections.collection import Array, Case, Collection, Compared, Draw, at, blank, members, named, record
from mpsref_collections.oracles import ACTIVATIONS, EPSILON, HALF, patches, spread, wide, windows

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
            # That of the formats of 32 elements is declared and not used.
            local = {"q8_0": ROW * each, "iq4_nl": ROW, "iq4_xs": ROW, "mxfp4": ROW}.get(kind, 16 * (kind in UNUSED))
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


# --- blocks of quantized weights --------------------------------------------------------------------------------------

ELEMENTS: Mapping[str, Any] = {"f32": np.float32, "f16": np.float16, "i32": np.int32}
BLOCKS = {
    "q4_0": (32, 18), "q8_0": (32, 34), "q4_K": (256, 144), "q6_K": (256, 210), "q4_1": (32, 20), "q5_0": (32, 22),
    "q5_1": (32, 24), "iq4_nl": (32, 18), "mxfp4": (32, 17), "q2_K": (256, 84), "q3_K": (256, 110), "q5_K": (256, 176),
    "tq2_0": (256, 66), "iq4_xs": (256, 136), "q1_0": (128, 18),
}  # fmt: skip
"""Elements and bytes of a block."""
SCALES = {"q4_K": [0, 2], "q5_K": [0, 2], "q4_1": [0, 2], "q5_1": [0, 2], "q6_K": [208], "q2_K": [80, 82]}
UNUSED = "q4_0", "q4_1", "q5_0", "q5_1"
SCALES |= {"q3_K": [108], "tq2_0": [64], "mxfp4": []}
"""Bytes at which numbers of a block's scales begin, for formats in which it is not the first only."""
NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)
MICRO = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


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


def nibbles(data: Array) -> Array:
    """Return the low and then the high 4 bits of bytes."""
    return np.concatenate((data & 15, data >> 4), -1)


def fields_of(data: Array, shifts: Sequence[int], mask: int) -> Array:
    """Return bits of bytes (..., n) as (..., shifts, n)."""
    return data[..., None, :] >> np.array(shifts, np.uint8)[:, None] & mask


def fives(blocks: Array, first: int) -> Any:
    """Return 32 numbers of 5 bits: 4 bytes of high bits, and 16 bytes of two numbers without it."""
    high = np.unpackbits(blocks[..., first : first + 4], axis=-1, bitorder="little")
    return nibbles(blocks[..., first + 4 :]).astype(np.float64) + 16.0 * high


def q5_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 176): those of q4_K with a bit more."""
    plain = np.concatenate((blocks[..., :16], blocks[..., 48:]), -1)
    bits = fields_of(blocks[..., 16:48], range(8), 1).reshape(*blocks.shape[:-1], 256)
    ones = np.concatenate((blocks[..., :2], 0 * blocks[..., 2:4], blocks[..., 4:16], 0 * blocks[..., 48:] + 17), -1)
    return q4_k(plain) + 16.0 * bits * q4_k(ones)


def q3_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 110): high bits, 2 bits, 16 scales of 6 bits, and a scale of all."""
    shape, packed = blocks.shape[:-1], blocks[..., 96:108]
    high = fields_of(packed[..., 8:], (0, 2, 4, 6), 3).reshape(*shape, 16)
    scales = (nibbles(packed[..., :8]) | high << 4).astype(np.float64) - 32
    low = fields_of(blocks[..., 32:96].reshape(*shape, 2, 32), (0, 2, 4, 6), 3).reshape(*shape, 256)
    bit = fields_of(blocks[..., :32], range(8), 1).reshape(*shape, 256)
    elements = (low.astype(np.float64) - 4.0 * (bit == 0)).reshape(*shape, 16, 16)
    return (halves(blocks[..., 108:])[..., None] * scales[..., None] * elements).reshape(*shape, 256)


def q2_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 84): 16 pairs of a scale and a minimum of 4 bits, 2 bits, two scales."""
    shape, pairs = blocks.shape[:-1], blocks[..., :16, None].astype(np.float64)
    low = fields_of(blocks[..., 16:80].reshape(*shape, 2, 32), (0, 2, 4, 6), 3).reshape(*shape, 16, 16)
    scaled = halves(blocks[..., 80:82])[..., None] * (pairs % 16) * low
    return (scaled - halves(blocks[..., 82:84])[..., None] * (pairs // 16)).reshape(*shape, 256)


def iq4_xs(blocks: Array) -> Any:
    """Return the elements of blocks (..., 136): a scale, 8 scales of 6 bits, and indices of values of 4 bits."""
    shape = blocks.shape[:-1]
    high = fields_of(blocks[..., 2:4], (0, 2, 4, 6), 3).swapaxes(-1, -2).reshape(*shape, 8)
    low = fields_of(blocks[..., 4:8], (0, 4), 15).swapaxes(-1, -2).reshape(*shape, 8)
    scales = halves(blocks[..., :2]) * ((low | high << 4).astype(np.float64) - 32)
    values = NON_LINEAR[nibbles(blocks[..., 8:].reshape(*shape, 8, 16))]
    return (scales[..., None] * values).reshape(*shape, 256)


FORMATS: Mapping[str, Any] = {
    "q4_0": q4_0, "q8_0": q8_0, "q4_K": q4_k, "q6_K": q6_k, "q5_K": q5_k, "q3_K": q3_k, "q2_K": q2_k, "iq4_xs": iq4_xs,
    "q4_1": lambda one: halves(one[..., :2]) * nibbles(one[..., 4:]) + halves(one[..., 2:4]),
    "q5_0": lambda one: halves(one[..., :2]) * (fives(one, 2) - 16),
    "q5_1": lambda one: halves(one[..., :2]) * fives(one, 4) + halves(one[..., 2:4]),
    "iq4_nl": lambda one: halves(one[..., :2]) * NON_LINEAR[nibbles(one[..., 2:])],
    "mxfp4": lambda one: 2.0 ** (one[..., :1].astype(np.float64) - 127) * MICRO[nibbles(one[..., 1:])],
    "tq2_0": lambda one: halves(one[..., 64:]) * (
        fields_of(one[..., :64].reshape(*one.shape[:-1], 2, 32), (0, 2, 4, 6), 3).reshape(*one.shape[:-1], 256) - 1.0
    ),
    "q1_0": lambda one: halves(one[..., :2]) * (np.unpackbits(one[..., 2:], axis=-1, bitorder="little") * 2.0 - 1),
}  # fmt: skip
"""Functions of blocks."""


def dequantized(x: Array, kind: str) -> Any:
    """Return rows of elements or of blocks in float64."""
    if kind in ELEMENTS:
        return x.astype(np.float64)
    _, size = BLOCKS[kind]
    return FORMATS[kind](x.reshape(*x.shape[:-1], -1, size)).reshape(*x.shape[:-1], -1)


def weights(draw: Draw, kind: str, *shape: int) -> Array:
    """Draw rows of elements or of blocks, of any bytes with scales of ordinary size."""
    if kind in ELEMENTS:
        return draw.array(*shape, dtype=ELEMENTS[kind], kind="plain")
    per, size = BLOCKS[kind]
    random = np.random.default_rng(draw.number(0, 2**16))
    made = random.integers(0, 256, (*shape[:-1], shape[-1] // per, size), np.uint8)
    for first in SCALES.get(kind, [0]):
        scales = random.uniform(-0.05, 0.05, made.shape[:-1]).astype(np.float16)
        made[..., first : first + 2] = scales[..., None].view(np.uint8)
    if kind == "mxfp4":
        made[..., 0] = random.integers(118, 128, made.shape[:-1])
    return made.reshape(*shape[:-1], -1)


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
    error = size * EPSILON * (16 + 32 * theta)
    expected, bound = oracles.rotated(x, size * np.cos(theta), size * np.sin(theta), error, neighbours=not neox)
    bound += (HALF * np.abs(expected) + 2**-24) * (x.dtype == np.float16)
    got = ggml.rope(x, positions, dims, base, scale, extrapolation, attention, neox=neox, factors=factors)
    return Compared(got, expected, bound)


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
    largest, terms = (patches(wide(x), kernel, strides, padding, (1, 1), size, fill) for fill in (-np.inf, 0))
    got, average = (ggml.pool_2d(x, kernel, strides, padding, size, maximum=one) for one in (True, False))
    maxima = np.where(np.isnan(largest).any((4, 5)), got, largest.max((4, 5)))
    return [
        Compared(got, maxima), Compared(average, terms.mean((4, 5)), EPSILON * 20 * np.abs(terms).mean((4, 5)))
    ]  # fmt: skip


def im2col(ggml: Ggml, draw: Draw) -> Compared:
    """Taps of windows."""
    x = images(draw)
    about = geometry(draw, x)
    dtype = draw.choice(np.float32, np.float16)
    taken = patches(x, *about, windows(x.shape[2:], *about), 0).transpose(0, 2, 3, 1, 4, 5)
    return Compared(ggml.im2col(x, *about, dtype), taken.reshape(*taken.shape[:3], -1).astype(dtype))


def conv_2d(ggml: Ggml, draw: Draw) -> Compared:
    """Convolution."""
    x = images(draw, "plain")
    about = geometry(draw, x)
    w = draw.array(draw.number(1, 3), x.shape[1], *about[0], dtype=draw.choice(np.float32, np.float16), kind="plain")
    expected, bound = oracles.convolution(patches(x, *about, windows(x.shape[2:], *about), 0), w)
    return Compared(ggml.conv_2d(w, x, *about[1:]), expected, EPSILON * 64 * bound)


def conv_transpose_2d(ggml: Ggml, draw: Draw) -> Compared:
    """Transposed convolution, of single images in versions that launch no others."""
    x = images(draw, "plain")
    x = x if any("tgpig[2] / args.OC" in text for text in ggml.sources.values()) else x[:1]
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
    values = dequantized(table, kind)
    expected = np.stack([[values[i, j][indices[i, j]] for j in range(n1)] for i in range(n2)])
    # q6_K and q4_K are products in float32, and differences of two.
    return Compared(ggml.get_rows(table, kind, indices), expected, 0 if kind in ELEMENTS else EPSILON * 8 * 128)


STEPS = {"q8_0": (127, 0.51), "q4_0": (8, 1.01), "q5_0": (16, 1.01), "q4_1": (15, 0.51), "q5_1": (31, 0.51)}
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
    z = x.astype(np.float64).reshape(*x.shape[:3], -1, 32)
    # A step is the largest element divided by 127 or 8, rounded to float16; of q4_0 there is none for its negative.
    step, (count, most) = np.abs(z).max(-1, keepdims=True), STEPS[other]
    step = (z.max(-1, keepdims=True) - z.min(-1, keepdims=True) if other.endswith("1") else step) / count
    bound = step * most + (np.abs(z) + count * step) * HALF + 2**-20
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


def movement(ggml: Ggml, draw: Draw) -> Compared:
    """Tensors that are repeated, joined, rolled, reflected at their ends, put on a diagonal or written to rows."""
    name = draw.choice("repeat", "concat", "roll", "pad_reflect_1d", "diag", "set_rows", "add_id", "arange", "memset")
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
    elif name == "set_rows":
        kind, many = draw.choice(np.int32, np.int64), n1 + draw.number(0, 3)
        indices = np.stack([np.random.default_rng(i).permutation(many)[:n1] for i in range(n3 * n2)]).reshape(
            1, n3, n2, n1
        )
        indices, more = indices.astype(kind), []
        expected = draw.array(n3, n2, many, n0, kind="plain", dtype=draw.choice(np.float32, np.float16))
        out = expected.copy()
        np.put_along_axis(expected, indices[0][..., None].astype(np.int64), x.astype(expected.dtype), 2)
        values |= fields("1", indices) | fields("", out) | {"nk0": n0}
        kernel = f"kernel_set_rows_f32_{'i64' if kind == np.int64 else 'i32'}_{TYPES[str(out.dtype)]}"
        buffers = [anytype(x), anytype(indices), at(out, np.float32)]
        ggml.call(kernel, "set_rows", values, buffers, (n1, n2, n3), threads)
        return Compared(out, expected)
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
    axis = (1, k), (1, stride), (0, padding), (1, 1), (1, count)
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
    ("kernel_argmax", "same-value"): "all threads of a row store its index",
}
"""What was seen in reports of kernels whose results are right: by the beginning of the kernel's name, and the kind."""

CASES = named(
    soft_max, norm, rms_norm, group_norm, sums, cumsum, argmax, rope, unary, binary, pool_2d, im2col, conv_2d,
    conv_transpose_2d, upscale, pad, get_rows, cpy, mul_mv, mul_mm, gated, movement, argsort, other_sums,
    one_dimensional, optimizers,
)  # fmt: skip
