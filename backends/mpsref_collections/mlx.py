"""The Metal kernels of MLX, launched as ``mlx/backend/metal/*.cpp`` does, and what NumPy computes.

The headers are in the wheels ``mlx-cpu`` and ``mlx-metal``; ``layer_norm.metal``, ``rms_norm.metal`` and
``arg_reduce.metal`` only in the repository of MLX. Kernels are instantiated by name here, as MLX does where it compiles
at run time. Strides are those of NumPy, of either sign and zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpsref_collections.collection import Array, Case, Collection, Compared, Draw, at, blank, members, record

EPSILON = float(np.finfo(np.float32).eps)
HALF = float(np.finfo(np.float16).eps)
MOST_THREADS = 1024
READS = 4
"""Elements that a thread reads at once in most kernels of rows."""
LOOPED = 4096
"""The longest row that a threadgroup holds in registers."""
FOLDER = "mlx/backend/metal/kernels/"
TYPES = {
    "float32": "float", "float16": "half", "int32": "int", "int64": "int64_t", "uint8": "uint8_t", "bool": "bool",
    "uint32": "uint",
}  # fmt: skip


def typed(array: Array) -> str:
    """Return the type of the elements in Metal."""
    return TYPES[str(array.dtype)]


class Mlx(Collection):
    """Launches of the kernels of MLX."""

    name = "MLX"
    marker = f"{FOLDER}softmax.h"
    package = "the wheel mlx-cpu or the repository of MLX"
    version = "3.2"

    def include(self) -> list[Path]:
        """Return the folder that contains ``mlx``."""
        return [self.marker_file.parents[4]]

    def run(
        self, headers: str, kernel: str, threads: Sequence[int], group: Sequence[int], *arguments: Any,
        whole: bool = False, constants: Mapping[int | str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Launch an instantiation of a template in one of the headers."""
        included = "".join(f'#include "{FOLDER}{one}"\n' for one in ("defines.h", "utils.h", *headers.split()))
        name = re.sub(r"\W+", "_", kernel)
        text = (
            f"#include <metal_stdlib>\nusing namespace metal;\n{included}"
            f'template [[host_name("{name}")]] [[kernel]] decltype({kernel}) {kernel};\n'
        )
        self.launch(text, name, threads, group, *arguments, whole=whole, constants=constants)

    def file(self, name: str) -> Path:
        """Return a ``.metal`` file, which only the repository has."""
        return self.marker_file.with_name(name)

    # --- elements -----------------------------------------------------------------------------------------------------

    def unary(self, name: str, x: Array, out: Array, *, many: bool = False) -> Array:
        """Write a function of each element: of a dense array, several for each thread or not, or of a view."""
        kinds = f"{typed(x)}, {typed(out)}, {name}"
        if x.flags.c_contiguous:
            per = max(1, 8 // x.itemsize) if many else 1
            threads = -(-x.size // per)
            self.run(
                "unary_ops.h unary.h", f"unary_v<{kinds}, {per}>", (threads, 1, 1), (min(threads, MOST_THREADS), 1, 1),
                at(x), out, np.uint32(x.size),
            )  # fmt: skip
            return out
        grid = lengths(x)
        shape, strides = ints(x.shape), steps(x)
        self.run(
            "unary_ops.h unary.h", f"unary_g<{kinds}, 1, int>", grid, block(grid), at(x), out, shape, strides,
            np.array([x.ndim], np.int32),
        )  # fmt: skip
        return out

    def binary(self, name: str, x: Array, y: Array, out: Array) -> Array:
        """Write a function of two arrays: dense ones, scalars, or views of up to any number of axes."""
        kinds = f"{typed(x)}, {typed(out)}, {name}"
        which = "".join("s" if one.size == 1 else "v" for one in (x, y))
        if x.size == y.size == 1:
            self.run("binary_ops.h binary.h", f"binary_ss<{kinds}>", (1, 1, 1), (1, 1, 1), at(x), at(y), out)
            return out
        if all(one.size == 1 or (one.flags.c_contiguous and one.shape == out.shape) for one in (x, y)):
            group = (min(out.size, MOST_THREADS), 1, 1)
            size = np.uint32(out.size)
            self.run(
                "binary_ops.h binary.h", f"binary_{which}<{kinds}, 1>", (out.size, 1, 1), group, at(x), at(y), out, size
            )
            return out
        x, y = (np.broadcast_to(one, out.shape) for one in (x, y))
        grid, ndim = lengths(out), out.ndim
        if ndim <= 3:
            strides = (np.int64(steps(x)[0]), np.int64(steps(y)[0])) if ndim == 1 else (steps(x), steps(y))
            kernel = f"binary_g_nd{ndim}<{kinds}, int>"
            self.run("binary_ops.h binary.h", kernel, grid, block(grid), at(x), at(y), out, *strides)
            return out
        wide = (-(-grid[0] // 2), *grid[1:])
        self.run(
            "binary_ops.h binary.h", f"binary_g<{kinds}, 2, int>", wide, block(wide), at(x), at(y), out,
            ints(out.shape), steps(x), steps(y), np.int32(ndim),
        )  # fmt: skip
        return out

    def select(self, condition: Array, x: Array, y: Array) -> Array:
        """Return x where the condition holds, else y."""
        out = blank(condition.shape, x.dtype)
        kinds = f"{typed(x)}, Select"
        headers = "ternary_ops.h ternary.h"
        three = condition, x, y
        if all(one.flags.c_contiguous and one.shape == out.shape for one in three):
            size = np.uint32(out.size)
            group = (min(out.size, MOST_THREADS), 1, 1)
            kernel = f"ternary_v<{kinds}, false, false, 1>"
            self.run(headers, kernel, (out.size, 1, 1), group, *map(at, three), out, size)
            return out
        views = [np.broadcast_to(one, out.shape) for one in three]
        grid, ndim = lengths(out), out.ndim
        strides = [np.int64(steps(one)[0]) if ndim == 1 else steps(one) for one in views]
        if ndim <= 3:
            kernel = f"ternary_g_nd{ndim}<{kinds}, int>"
            self.run(headers, kernel, grid, block(grid), *map(at, views), out, *strides)
            return out
        wide = (-(-grid[0] // 2), *grid[1:])
        kernel, shape = f"ternary_g<{kinds}, 2, int>", ints(out.shape)
        self.run(headers, kernel, wide, block(wide), *map(at, views), out, shape, *strides, np.int32(ndim))
        return out

    def copy(self, x: Array, out: Array) -> Array:
        """Write a view of any strides into another, with a conversion."""
        kinds = f"{typed(x)}, {typed(out)}"
        if x.flags.c_contiguous and out.flags.c_contiguous:
            group = (min(out.size, MOST_THREADS), 1, 1)
            self.run("copy.h", f"copy_v<{kinds}, 1>", (out.size, 1, 1), group, at(x), at(out), np.uint32(out.size))
            return out
        grid, ndim, dense = lengths(out), out.ndim, out.flags.c_contiguous
        both = [x] if dense else [x, out]
        strides: list[Any] = [np.int64(steps(one)[0]) if ndim == 1 else steps(one) for one in both]
        kind = "g" if dense else "gg"
        if ndim <= 3:
            self.run("copy.h", f"copy_{kind}_nd{ndim}<{kinds}, int>", grid, block(grid), at(x), at(out), *strides)
            return out
        wide = (-(-grid[0] // 2), *grid[1:])
        self.run(
            "copy.h", f"copy_{kind}<{kinds}, 2, int>", wide, block(wide), at(x), at(out), ints(out.shape), *strides,
            np.int32(ndim),
        )  # fmt: skip
        return out

    # --- rows ---------------------------------------------------------------------------------------------------------

    def softmax(self, x: Array, *, precise: bool = False) -> Array:
        """Return softmax of the rows of a matrix."""
        out = blank(x.shape, x.dtype)
        kinds = f"{typed(x)}, {'float' if precise else typed(x)}"
        group = self._row(x.shape[1])
        kernel = "softmax_looped" if x.shape[1] > LOOPED else "softmax_single_row"
        threads = (len(x) * group, 1, 1)
        self.run("softmax.h", f"{kernel}<{kinds}>", threads, (group, 1, 1), x, out, np.int32(x.shape[1]))
        return out

    def logsumexp(self, x: Array) -> Array:
        """Return the logarithms of the sums of exponentials of rows."""
        out, group = blank((len(x),), x.dtype), self._row(x.shape[1])
        kernel = "logsumexp_looped" if x.shape[1] > LOOPED else "logsumexp"
        threads = (len(x) * group, 1, 1)
        self.run("logsumexp.h", f"{kernel}<{typed(x)}>", threads, (group, 1, 1), x, out, np.int32(x.shape[1]))
        return out

    @staticmethod
    def _row(length: int, reads: int = READS) -> int:
        """Return the threads of a row."""
        return MOST_THREADS if length > LOOPED else rounded_up(-(-length // reads), 32)

    def layer_norm(self, x: Array, weight: Array, bias: Array, eps: float) -> Array:
        """Return normalized rows times weights plus biases, which are vectors or scalars."""
        out = blank(x.shape, x.dtype)
        long = x.shape[1] > 6656
        group = MOST_THREADS if long else self._row(x.shape[1], 8)
        self.launch(
            self.file("layer_norm.metal"), f"layer_norm{'_looped' * long}{x.dtype}", (len(x) * group, 1, 1),
            (group, 1, 1), x, weight, bias, out, np.float32(eps), np.uint32(x.shape[1]), np.uint32(weight.size > 1),
            np.uint32(bias.size > 1), whole=False,
        )  # fmt: skip
        return out

    def rms_norm(self, x: Array, weight: Array, eps: float) -> Array:
        """Return rows divided by their root mean squares, times weights."""
        out = blank(x.shape, x.dtype)
        group = self._row(x.shape[1])
        self.launch(
            self.file("rms_norm.metal"), f"rms{'_looped' * (x.shape[1] > LOOPED)}{x.dtype}", (len(x) * group, 1, 1),
            (group, 1, 1), x, weight, out, np.float32(eps), np.uint32(x.shape[1]), np.uint32(weight.size > 1),
            whole=False,
        )  # fmt: skip
        return out

    def norm_vjp(self, x: Array, weight: Array, g: Array, eps: float, *, centred: bool) -> tuple[Array, Array]:
        """Return the gradients for x and for the weights, that of groups of rows, of either normalization."""
        rows, length = x.shape
        many = 1 if centred or length > LOOPED else -(-rows // 512)
        gx, gw = blank(x.shape, x.dtype), blank((-(-rows // many), length), x.dtype)
        name, file, reads, most = (
            ("layer_norm", "layer_norm", 8, 8192) if centred else ("rms", "rms_norm", READS, LOOPED)
        )
        looped = length > most
        group = MOST_THREADS if looped else rounded_up(-(-length // reads), 32)
        numbers = [np.float32(eps), np.uint32(length), np.uint32(weight.size > 1)]
        if not centred and not looped:
            numbers += [np.uint32(rows), np.uint32(many)]
        self.launch(
            self.file(f"{file}.metal"), f"vjp_{name}{'_looped' * looped}{x.dtype}", (len(gw) * group, 1, 1),
            (group, 1, 1), x, weight, g, gx, gw, *numbers, whole=False, constants={20: True},
        )  # fmt: skip
        return gx, gw

    def arg_reduce(self, x: Array, axis: int, *, largest: bool) -> Array:
        """Return the index of the first largest or smallest element along an axis."""
        rest = np.delete(np.array(x.shape), axis)
        out = blank(tuple(rest), np.uint32)
        group = -(-min(-(-x.shape[axis] // READS), MOST_THREADS) // 32) * 32
        strides = steps(x)
        self.launch(
            self.file("arg_reduce.metal"), f"arg{'max' if largest else 'min'}_{x.dtype}", (group, out.size, 1),
            (group, 1, 1), at(x), out, ints(rest), np.delete(strides, axis), steps(out), np.uint64(rest.size),
            np.int64(strides[axis]), np.uint64(x.shape[axis]), whole=False,
        )  # fmt: skip
        return out

    def sort(self, x: Array, *, indices: bool = False) -> Array:
        """Return the rows of a matrix in ascending order, or the indices of it: one block for each row."""
        length = x.shape[1]
        block_threads = next(n for n in (32, 64, 128, 256, 512) if 4 * n >= length)
        out = blank(x.shape, np.uint32 if indices else x.dtype)
        kernel = f"block_sort<{typed(x)}, {typed(out)}, {str(indices).lower()}, {block_threads}, 4>"
        one, row = np.int32(1), np.int32(length)
        self.run("sort.h", kernel, (1, len(x), 1), (block_threads, 1, 1), x, out, row, one, one, row, row, whole=True)
        return out

    def scan(self, x: Array, operation: str, *, reverse: bool, inclusive: bool, strided: bool) -> Array:
        """Return cumulative results along the last axis, or if ``strided`` along the second of three axes."""
        out = blank(x.shape, x.dtype)
        flags = f"{str(inclusive).lower()}, {str(reverse).lower()}"
        kinds = f"{typed(x)}, {typed(x)}, Cum{operation}<{typed(x)}>, 4, {flags}"
        if strided:
            length, stride = x.shape[1:]
            blocks = -(-stride // 32)
            self.run(
                "scan.h", f"strided_scan<{kinds}>", (256, len(x) * blocks, 1), (256, 1, 1), x, out, np.uint64(length),
                np.uint64(stride), np.uint64(blocks),
            )  # fmt: skip
            return out
        length = x.shape[-1]
        group = MOST_THREADS
        if length <= 4 * 2048:
            group = -(-(length if length <= 4 * 1024 else length // 2) // 128) * 32
        kernel = f"contiguous_scan<{kinds}>"
        self.run("scan.h", kernel, (group, x.size // length, 1), (group, 1, 1), x, out, np.uint64(length))
        return out

    # --- reductions of dense arrays of three axes ---------------------------------------------------------------------

    def reduce(self, x: Array, operation: str, axes: tuple[int, ...]) -> Array:
        """Return the reduction along (0, 1, 2), (2,), (0, 2), (1,) or (0, 1)."""
        kinds = f"{typed(x)}, {typed(x)}, {operation}<{typed(x)}>"
        headers = "atomic.h reduction/ops.h reduce.h"
        if not x.size:
            out = blank([n for i, n in enumerate(x.shape) if i not in axes], x.dtype)
            grid, kernel = (out.size, 1, 1), f"init_reduce<{typed(x)}, {operation}<{typed(x)}>>"
            self.run(headers, kernel, grid, block(grid), out)
            return out
        if len(axes) == 3:
            return self._all(headers, kinds, x)
        return (self._rows if 2 in axes else self._columns)(headers, kinds, x, axes)

    def _all(self, headers: str, kinds: str, x: Array) -> Array:
        out = blank((1,), x.dtype)
        if x.size <= READS * 1024:
            group = rounded_up(-(-x.size // READS), 32)
            size = np.uint64(x.size)
            self.run(headers, f"all_reduce<{kinds}>", (group, 1, 1), (group, 1, 1), x, out, size, size)
            return out
        rows = 32 * READS
        some, row = blank((rows,), x.dtype), -(-x.size // rows)
        group = -(-min(-(-row // READS), 1024) // 32) * 32
        sizes = np.uint64(x.size), np.uint64(row)
        self.run(headers, f"all_reduce<{kinds}>", (group, rows, 1), (group, 1, 1), x, some, *sizes)
        size = np.uint64(rows)
        self.run(headers, f"all_reduce<{kinds}>", (32, 1, 1), (32, 1, 1), some, out, size, size)
        return out

    def _rows(self, headers: str, kinds: str, x: Array, axes: tuple[int, ...]) -> Array:
        b, n, c = x.shape
        many = b if 0 in axes else 1
        out = blank((n,) if 0 in axes else (b, n), x.dtype)
        about = [
            np.int64(c), np.int64(many), ints([out.size]), longs([c]), np.int32(1), ints([many if many > 1 else 0]),
            longs([n * c if many > 1 else 0]), np.int32(many > 1),
        ]  # fmt: skip
        if c <= 64:
            is_simple = (many < 32 and c <= 8) or many <= 8
            threads = (out.size, 1, 1) if is_simple else (32, out.size, 1)
            group = (min(out.size, 1024) if is_simple else 32, 1, 1)
            self.run(headers, f"row_reduce_small<{kinds}, int, 1>", threads, group, x, out, *about)
            return out
        wide = 32 if c <= 512 else 128 if c <= 1024 else min(1024, rounded_up(-(-c // READS), 32))
        if many == 1 and x.size // c >= 32:
            sizes = np.uint64(c), np.int64(out.size)
            threads = (wide, -(-out.size // 4), 1)
            self.run(headers, f"row_reduce_simple<{kinds}>", threads, (wide, 1, 1), x, out, *sizes)
            return out
        threads = (wide, out.size, 1)
        self.run(headers, f"row_reduce_looped<{kinds}, int, 1>", threads, (wide, 1, 1), x, out, *about)
        return out

    def _columns(self, headers: str, kinds: str, x: Array, axes: tuple[int, ...]) -> Array:
        b, n, c = x.shape
        length, outer = (b * n, 1) if 0 in axes else (n, b)
        out = blank((c,) if 0 in axes else (b, c), x.dtype)
        shape, strides, ndim = ([], [], 0) if outer == 1 else ([outer], [n * c], 1)

        def about(length: int, ndim: int) -> list[Any]:
            return [
                np.uint64(length), np.int64(c), ints(shape or [0]), longs(strides or [0]), np.int32(ndim),
                ints([length]), longs([c]), np.int32(1), np.uint64(1),
            ]  # fmt: skip

        columns = -(-c // 32)
        # Kernels of blocks of columns may begin at a later one, since 0.32.4.
        text = (self.marker_file.with_name("reduction") / "reduce_col.h").read_text()
        start = [np.int64(0)] * ("column_offset" in text)
        if length < 32:
            blocks = -(-c // READS)
            group = (min(blocks, 32), min(8, MOST_THREADS // min(blocks, 32), length), 1)
            grid = (-(-blocks // group[0]), outer, 1)
            kernel = f"col_reduce_small<{kinds}, int, 1>"
            self.run(headers, kernel, grid, group, x, out, *about(length, ndim), whole=True)
        elif length > 256 and out.size // 32 < 1024:
            some = blank((32, *out.shape), x.dtype)
            grid, group = (256 * columns, outer * 32, 1), (256, 1, 1)
            kernel = f"col_reduce_2pass<{kinds}, int, 1, 32, 32>"
            self.run(headers, kernel, grid, group, x, some, *about(length, ndim), *start, np.uint64(out.size // c))
            again = [
                np.uint64(32), np.int64(out.size), ints([0]), longs([0]), np.int32(0), ints([32]), longs([out.size]),
                np.int32(1), np.uint64(1),
            ]  # fmt: skip
            grid = (256 * -(-out.size // 32), 1, 1)
            self.run(headers, f"col_reduce_looped<{kinds}, int, 1, 32, 32>", grid, group, some, out, *again, *start)
        else:
            grid, group = (256 * columns, outer, 1), (256, 1, 1)
            kernel = f"col_reduce_looped<{kinds}, int, 1, 32, 32>"
            self.run(headers, kernel, grid, group, x, out, *about(length, ndim), *start)
        return out

    # --- products -----------------------------------------------------------------------------------------------------

    def gemv(self, matrix: Array, vector: Array, *, transposed: bool) -> Array:
        """Return batches of products of matrices, or of their transposes, with vectors."""
        batch, rows, columns = matrix.shape
        length, size = (rows, columns) if transposed else (columns, rows)
        out = blank((batch, size), matrix.dtype)
        tiles = (1, 1)
        if transposed:
            sm, sn = (4, 8) if length >= 8192 and size >= 2048 else (8, 4)
            tiles = (1, 16 if size >= 2048 else 4 if size >= 512 else 2)
            tm, tn = 4, 1 if size < 4 else 4
            per = tiles[1] * sn * tn
        else:
            sm, sn = (8, 4) if length <= 64 else (1, 32)
            tiles = (1, 1) if length <= 64 else (1, 8) if length >= 16 * size else (8 if size >= 4096 else 4, 1)
            tm, tn = 1 if size < 4 else 4, 4
            per = tiles[0] * sm * tm
        name = "gemv_t" if transposed else "gemv"
        kernel = f"{name}<{typed(matrix)}, {tiles[0]}, {tiles[1]}, {sm}, {sn}, {tm}, {tn}, false, false>"
        unused, zero = np.zeros(1, matrix.dtype), longs([0])
        self.run(
            "steel/utils.h gemv.h", kernel, (-(-size // per), 1, batch), (32, *tiles[::-1]), matrix, vector, unused,
            out, np.int32(length), np.int32(size), np.int32(columns), np.float32(1), np.float32(0), np.int32(1),
            ints([batch]), longs([length]), longs([rows * columns]), zero, np.int32(1), whole=True,
            constants={0: False, 1: False},
        )  # fmt: skip
        return out

    def gemv_masked(
        self, matrix: Array, vector: Array, out_mask: Array, matrix_mask: Array, vector_mask: Array
    ) -> Array:
        """Return the product of a matrix with a vector, both of which have a mask of blocks of 32."""
        rows, columns = matrix.shape
        out = blank((rows,), matrix.dtype)
        kernel = f"gemv_masked<{typed(matrix)}, bool, bool, 2, 1, 4, 8, 4, 4, false>"
        strides = ints([1, 1, 1, matrix_mask.shape[1], 1, 1])
        self.run(
            "gemv_masked.h", kernel, (-(-rows // 32), 1, 1), (32, 1, 2), matrix, vector, out, np.int32(columns),
            np.int32(rows), np.int32(columns), np.int32(1), ints([1]), longs([0]), longs([0]), out_mask, matrix_mask,
            vector_mask, strides, longs([0, 0, 0]), whole=True,
        )  # fmt: skip
        return out

    def gemm(self, a: Array, b: Array, *, transpose_a: bool, transpose_b: bool) -> Array:
        """Return batches of products, of transposes or not, by the kernel of steel for blocks of 64 x 64."""
        batch, m, k = a.shape if not transpose_a else (a.shape[0], a.shape[2], a.shape[1])
        n = b.shape[1] if transpose_b else b.shape[2]
        out = blank((batch, m, n), a.dtype)
        bm, bn, bk = 64, 64, 16
        flags = f"{str(transpose_a).lower()}, {str(transpose_b).lower()}"
        kernel = f"gemm<{typed(a)}, {bm}, {bn}, {bk}, 2, 2, {flags}>"
        tiles_n, tiles_m = -(-n // bn), -(-m // bm)
        values = {"M": m, "N": n, "K": k, "lda": a.shape[2], "ldb": b.shape[2], "ldd": n, "tiles_n": tiles_n}
        values |= {"tiles_m": tiles_m, "batch_stride_a": m * k, "batch_stride_b": n * k, "batch_stride_d": m * n}
        values |= {"swizzle_log": 0, "gemm_k_iterations_aligned": k // bk, "batch_ndim": 1}
        header = self.marker_file.with_name("steel") / "gemm/params.h"
        parameters = record(members(header.read_text(), "GEMMParams"), values)
        constants: dict[int | str, Any] = {10: False, 100: False, 110: False}
        constants |= {200: m % bm == 0, 201: n % bn == 0, 202: k % bk == 0}
        if "300" in re.findall(r"function_constant\((\d+)\)", self._fused()):
            constants[300] = False
        self.run(
            "steel/gemm/gemm.h steel/gemm/kernels/steel_gemm_fused.h", kernel, (tiles_n, tiles_m, batch), (32, 2, 2), a,
            b, out, parameters, whole=True, constants=constants,
        )  # fmt: skip
        return out

    def _fused(self) -> str:
        return (self.marker_file.with_name("steel") / "gemm/kernels/steel_gemm_fused.h").read_text()

    def quantized(
        self, x: Array, words: Array, scales: Array, biases: Array, bits: int, group: int, *, matrix: bool
    ) -> Array:
        """Return x (rows, k) times the transpose of weights (n, k) of a few bits, a vector or a block at a time."""
        (m, k), n = x.shape, len(words)
        out = blank((m, n), x.dtype)
        headers = "steel/gemm/gemm.h quantized_utils.h quantized.h"
        kinds = f"{typed(x)}, {group}, {bits}"
        four = words, scales, biases, x, out
        rest = [np.int32(1), ints([m, k]), longs([k, 1]), np.int32(0), ints([n, k]), longs([k, 1]), longs([1, 1])]
        rest.append(longs([1, 1]))
        if matrix:
            kernel = f"affine_qmm_t<{kinds}, {str(n % 32 == 0).lower()}, false>"
            grid, threads = (-(-n // 32), -(-m // 32), 1), (32, 2, 2)
            sizes = np.int32(k), np.int32(n), np.int32(m)
        else:
            fast = n % 8 == 0 and k % 512 == 0
            kernel = f"affine_qmv{'_fast' * fast}<{kinds}, false>"
            grid, threads = (m, -(-n // 8), 1), (32, 2, 1)
            sizes = np.int32(k), np.int32(n)  # type: ignore[assignment]
        known: dict[int | str, Any] = {200: True, 201: True, 202: True}
        self.run(headers, kernel, grid, threads, *four, *sizes, *rest, whole=True, constants=known)
        return out


# --- arguments --------------------------------------------------------------------------------------------------------


def ints(values: Any) -> Array:
    """Return the bytes of a vector of lengths."""
    return np.array(values, np.int32)


def longs(values: Any) -> Array:
    """Return the bytes of a vector of strides."""
    return np.array(values, np.int64)


def steps(x: Array) -> Array:
    """Return the strides of a view in elements."""
    return longs([stride // x.itemsize for stride in x.strides])


def lengths(x: Array) -> tuple[int, int, int]:
    """Return a grid with a thread for each element: the last axis, the one before, and the rest."""
    shape = (1, 1, *x.shape)
    return shape[-1], shape[-2], math.prod(shape[:-2])


def rounded_up(number: int, multiple: int) -> int:
    """Return the least multiple that is not less."""
    return -(-number // multiple) * multiple


def block(grid: Sequence[int]) -> tuple[int, int, int]:
    """Return a threadgroup of up to 1024 threads, of powers of two that grow by turns."""
    made = [1, 1, 1]
    while math.prod(made) < MOST_THREADS:
        before = math.prod(made)
        for axis, length in enumerate(grid):
            if 2 * made[axis] <= length and math.prod(made) < MOST_THREADS:
                made[axis] *= 2
        if math.prod(made) == before:
            break
    return made[0], made[1], made[2]


# --- what NumPy computes ----------------------------------------------------------------------------------------------


def views(draw: Draw, shape: Sequence[int], dtype: Any, kind: str | None = None, *, signed: bool = True) -> Array:
    """Draw a view with strides of any kind along all axes."""
    return draw.strided(*shape, dtype=dtype, kind=kind, rows=False, signed=signed)


def shape(draw: Draw) -> tuple[int, ...]:
    """Draw the shape of an array of one to five axes."""
    return (*(draw.number(1, 3) for _ in range(draw.number(0, 4))), draw.choice(1, 3, 8, 33, 70, 1025))


def rounded(expected: Array, dtype: Any, error: Any = 0.0) -> tuple[Array, Array]:
    """Return results as a type holds them, and the bound: an error, and a rounding."""
    if np.dtype(dtype) == np.float16:
        with np.errstate(invalid="ignore"):
            over = np.abs(expected) >= 65520
        expected = np.where(over, np.copysign(np.inf, expected), expected)
        return expected, error + HALF * np.abs(expected) + 2**-24
    return expected, error + EPSILON * np.abs(expected)


erf = np.vectorize(math.erf, otypes=[np.float64])


UNARY: Mapping[str, Any] = {
    "Abs": np.abs, "ArcTan": np.arctan, "ArcSinh": np.arcsinh, "Ceil": np.ceil, "Cos": np.cos, "Erf": erf,
    "Exp": np.exp, "Expm1": np.expm1, "Floor": np.floor, "Log": np.log, "Log2": np.log2, "Log1p": np.log1p,
    "Negative": np.negative, "Round": np.rint, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Sign": np.sign,
    "Sin": np.sin, "Square": np.square, "Sqrt": np.sqrt, "Rsqrt": lambda x: 1 / np.sqrt(x), "Tan": np.tan,
    "Tanh": np.tanh, "Sinh": np.sinh, "Cosh": np.cosh,
}  # fmt: skip
"""Functions by the names of ``unary_ops.h``."""


def unary(mlx: Mlx, draw: Draw) -> Compared:
    """A function of each element of a view."""
    name, dtype = draw.choice(*UNARY), draw.choice(np.float32, np.float16)
    x = views(draw, shape(draw), dtype)
    got = mlx.unary(name, x, blank(x.shape, dtype), many=draw.choice(False, True))
    with np.errstate(all="ignore"):
        expected = UNARY[name](x.astype(np.float64))
        if name == "Sign":
            expected = np.where(np.isnan(x), got, expected)
        error = 0.0 if dtype == np.float32 else HALF * np.abs(expected) * 4 + HALF
        # Near their roots and poles functions are as good as their argument, and exp is the sum of several roundings.
        expected, bound = rounded(expected, dtype, error + EPSILON * 16 * (1 + np.abs(x) + expected**2) ** 1.0)
    return Compared(got, expected, bound)


BINARY: Mapping[str, Any] = {
    "Add": np.add, "Subtract": np.subtract, "Multiply": np.multiply, "Divide": np.divide, "Maximum": np.maximum,
    "Minimum": np.minimum, "ArcTan2": np.arctan2, "Equal": np.equal, "Greater": np.greater, "LessEqual": np.less_equal,
    "NotEqual": np.not_equal, "LogAddExp": np.logaddexp,
}  # fmt: skip
"""Functions by the names of ``binary_ops.h``."""


def binary(mlx: Mlx, draw: Draw) -> Compared:
    """A function of two arrays, views or scalars."""
    name = draw.choice(*BINARY)
    whole = shape(draw)
    x, y = views(draw, whole, np.float32), views(draw, whole, np.float32)
    scalar = draw.choice("none", "none", "x", "y", "both")
    x = draw.array(1) if scalar in ("x", "both") else x
    y = draw.array(1) if scalar in ("y", "both") else y
    with np.errstate(all="ignore"):
        expected = BINARY[name](x.astype(np.float64), y.astype(np.float64))
        bound = EPSILON * 8 * np.abs(expected.astype(np.float64)) + EPSILON * (name == "LogAddExp")
    out = blank(expected.shape, np.bool_ if expected.dtype == np.bool_ else np.float32)
    return Compared(mlx.binary(name, x, y, out), expected, bound)


def select(mlx: Mlx, draw: Draw) -> Compared:
    """Elements of two arrays by a condition."""
    whole = shape(draw)
    condition = views(draw, whole, np.int32, "ties") > 0
    x, y = views(draw, whole, np.float32), views(draw, whole, np.float32)
    return Compared(mlx.select(condition, x, y), np.where(condition, x, y))


def copy(mlx: Mlx, draw: Draw) -> Compared:
    """A view copied into a dense array or another view, as the same or another type."""
    kind, other = draw.choice(*((a, b) for a in (np.float32, np.float16, np.int32) for b in (np.float32, np.int32)))
    whole = shape(draw)
    x = views(draw, whole, kind, "ties" if np.int32 in (kind, other) else None)
    out = blank(whole, other)
    if draw.choice(False, True):
        out = blank(whole[::-1], other).transpose()
    return Compared(mlx.copy(x, out), x.astype(other))


def rows(draw: Draw) -> tuple[int, int]:
    """Draw the shape of a matrix with long rows."""
    return draw.number(1, 3), draw.choice(1, 2, 5, 31, 32, 33, 128, 1023, 1025, 4096, 4097)


def partition(mlx: Mlx, draw: Draw) -> Compared:
    """Where the blocks of two sorted rows begin: all places are written, also beyond 1024 blocks."""
    blocks, threads = draw.choice(1024, 1025), 512
    length = blocks * threads * 4
    row = np.sort(draw.array(1, length, kind="plain"))
    x, places = np.repeat(row, 2, 0), blank((2, blocks + 1), np.uint32)
    indices = np.tile(np.arange(length, dtype=np.uint32), (2, 1))
    one, kernel = np.int32(2), f"mb_block_partition<float, uint, true, {threads}, 4>"
    group, sizes = (MOST_THREADS, 1, 1), (np.int32(length), one, np.int32(blocks))
    mlx.run("sort.h", kernel, (1, 2, 1), group, places, x, indices, *sizes, whole=True)
    return Compared(places[1] == np.iinfo(np.uint32).max, np.zeros(blocks + 1))


def softmax(mlx: Mlx, draw: Draw) -> Compared:
    """Softmax of rows in registers and of longer ones."""
    dtype = draw.choice(np.float32, np.float16)
    x = draw.array(*rows(draw), dtype=dtype)
    precise = dtype == np.float16 and draw.choice(False, True)
    with np.errstate(invalid="ignore"):
        z = x.astype(np.float64)
        powers = np.exp(z - z.max(1, keepdims=True))
        expected = powers / powers.sum(1, keepdims=True)
        spread = np.nan_to_num(np.abs(z), posinf=0).max() + 1
        error = (EPSILON if precise or dtype == np.float32 else HALF) * (x.shape[1] / 8 + 64 + 16 * spread) * expected
    return Compared(mlx.softmax(x, precise=precise), *rounded(expected, dtype, error + 1e-38))


def logsumexp(mlx: Mlx, draw: Draw) -> Compared:
    """Logarithms of sums of exponentials."""
    dtype = draw.choice(np.float32, np.float16)
    x = draw.array(*rows(draw), dtype=dtype)
    with np.errstate(invalid="ignore"):
        z = x.astype(np.float64)
        top = z.max(1)
        expected = np.where(np.isinf(top), top, np.log(np.exp(z - top[:, None]).sum(1)) + top)
        error = EPSILON * (64 + x.shape[1] / 16) * (1 + np.abs(np.nan_to_num(top)))
    return Compared(mlx.logsumexp(x), *rounded(expected, dtype, error))


def layer_norm(mlx: Mlx, draw: Draw) -> Compared:
    """Normalized rows that fill their threads or are longer, with vectors or scalars of weights and biases."""
    return normalized(mlx, draw, (draw.number(1, 3), draw.choice(256, 1024, 4096, 6657)), centred=True)


def rms_norm(mlx: Mlx, draw: Draw) -> Compared:
    """Rows divided by their root mean squares."""
    return normalized(mlx, draw, rows(draw), centred=False)


def normalized(mlx: Mlx, draw: Draw, size: tuple[int, int], *, centred: bool) -> Compared:
    """Either normalization."""
    dtype = draw.choice(np.float32, np.float16)
    count, length = size
    x = draw.array(count, length, dtype=dtype)
    weight, bias = (draw.array(draw.choice(1, length), dtype=dtype, kind="plain") for _ in range(2))
    with np.errstate(invalid="ignore"):
        z = x.astype(np.float64)
        mean = z.mean(1, keepdims=True) if centred else 0.0
        deviation = np.sqrt(((z - mean) ** 2).mean(1, keepdims=True) + 1e-5)
        plain = (z - mean) / deviation
        error = EPSILON * (64 + length / 16) * (np.abs(z).max(1, keepdims=True) / deviation + np.abs(plain))
        expected = plain * weight + (bias if centred else 0)
        if dtype == np.float16:
            error = error + HALF * (np.abs(plain) + 1)
        error = error * np.abs(weight.astype(np.float64)) + EPSILON * np.abs(bias.astype(np.float64))
        if dtype == np.float16:
            error = error + HALF * (np.abs(plain * weight) + np.abs(bias))
    got = mlx.layer_norm(x, weight, bias, 1e-5) if centred else mlx.rms_norm(x, weight, 1e-5)
    return Compared(got, *rounded(expected, dtype, error))


def layer_norm_vjp(mlx: Mlx, draw: Draw) -> list[Compared]:
    """The gradient of normalized rows that fill their threads or are longer."""
    return norm_vjp(mlx, draw, (draw.number(1, 3), draw.choice(256, 1024, 4096, 8193)), centred=True)


def rms_norm_vjp(mlx: Mlx, draw: Draw) -> list[Compared]:
    """The gradient of rows divided by their root mean squares, also of many rows in a threadgroup."""
    size = (draw.choice(513, 1100), draw.choice(1, 5, 33)) if draw.choice(False, False, True) else rows(draw)
    return norm_vjp(mlx, draw, size, centred=False)


def norm_vjp(mlx: Mlx, draw: Draw, size: tuple[int, int], *, centred: bool) -> list[Compared]:
    """Either gradient."""
    count, length = size
    x, g = (draw.array(count, length, kind="plain") for _ in range(2))
    weight = draw.array(length, kind="plain")
    z, h = x.astype(np.float64), g.astype(np.float64) * weight
    d = z - z.mean(1, keepdims=True) if centred else z
    r = 1 / np.sqrt((d**2).mean(1, keepdims=True) + 1e-5)
    plain = d * r
    mean = h.mean(1, keepdims=True) if centred else 0.0
    gradient = r * (h - mean - plain * (h * plain).mean(1, keepdims=True))
    gx, gw = mlx.norm_vjp(x, weight, g, 1e-5, centred=centred)
    unit = EPSILON * (64 + length / 16)
    far = 1 + np.abs(z).max() * r
    size_of = r * far * (1 + np.abs(plain).max(1, keepdims=True)) ** 2 * np.abs(h).max(1, keepdims=True)
    products = np.abs(g * plain) * unit * far
    return [
        Compared(gx, gradient, unit * size_of),
        Compared(gw.sum(0, dtype=np.float64), (g * plain).sum(0), products.sum(0) + count * EPSILON * np.abs(g).max()),
    ]


def arg_reduce(mlx: Mlx, draw: Draw) -> Compared:
    """The first largest or smallest element along any axis of a view; NaN is none."""
    whole = (draw.number(1, 3), draw.choice(1, 3, 33, 130), draw.choice(1, 2, 40))
    x = views(draw, whole, np.float32, draw.choice("plain", "ties"))
    axis, largest = draw.number(0, 2), draw.choice(True, False)
    got = mlx.arg_reduce(x, axis, largest=largest)
    return Compared(got, (np.argmax if largest else np.argmin)(x, axis))


def sort(mlx: Mlx, draw: Draw) -> Compared:
    """Rows in order, NaN last; and the indices of it, of which equal elements may have any order."""
    x = draw.array(draw.number(1, 3), draw.choice(1, 2, 5, 127, 128, 129, 600, 1023, 1025, 2048))
    if draw.choice(False, True):
        indices = mlx.sort(x, indices=True)
        legal = np.sort(indices, 1) == np.arange(x.shape[1])
        got = np.where(legal, np.take_along_axis(x, np.where(legal, indices, 0).astype(np.int64), 1), np.nan)
        return Compared(got, np.sort(x, 1))
    return Compared(mlx.sort(x), np.sort(x, 1))


def scan(mlx: Mlx, draw: Draw) -> Compared:
    """Cumulative sums, products, maxima and minima in either direction."""
    operation = draw.choice("Sum", "Prod", "Max", "Min")
    strided, reverse, inclusive = (draw.choice(False, True) for _ in range(3))
    whole = (draw.number(1, 2), draw.choice(1, 31, 32, 33, 70), draw.choice(1, 3, 31, 33, 70))
    x = (
        draw.array(*whole)
        if strided
        else draw.array(draw.number(1, 2), draw.choice(1, 5, 127, 128, 129, 1025, 4097, 8200))
    )
    if operation == "Prod":
        x = np.where(np.abs(x) > 0.2, np.sign(x), x).astype(np.float32)
    axis = 1
    z = np.flip(x, axis) if reverse else x
    function = {"Sum": np.add, "Prod": np.multiply, "Max": np.maximum, "Min": np.minimum}[operation]
    first = {"Sum": 0, "Prod": 1, "Max": -np.inf, "Min": np.inf}[operation]
    with np.errstate(all="ignore"):
        expected = function.accumulate(z.astype(np.float64), axis)
        sizes = np.abs(z.astype(np.float64)) if operation == "Sum" else np.zeros(z.shape)
        bound = EPSILON * 128 * (np.add.accumulate(sizes, axis) + (operation == "Prod") * np.abs(expected))
        if not inclusive:
            start = np.full_like(expected[:, :1], first)
            expected = np.concatenate((start, expected[:, :-1]), axis)
            bound = np.concatenate((0 * start if np.isfinite(first) else np.zeros_like(start), bound[:, :-1]), axis)
    bound = bound + 1e-38  # products that are subnormal
    if reverse:
        expected, bound = np.flip(expected, axis), np.flip(bound, axis)
    got = mlx.scan(x, operation, reverse=reverse, inclusive=inclusive, strided=strided)
    return Compared(got, expected, bound)


def reduce(mlx: Mlx, draw: Draw, whole: tuple[int, ...] = ()) -> Compared:
    """Sums, products, maxima and minima over all, rows or columns, and of nothing."""
    operation = draw.choice("Sum", "Prod", "Max", "Min")
    axes = (1,) if whole else draw.choice((0, 1, 2), (2,), (0, 2), (1,), (0, 1))
    rows = draw.choice(1, 2, 31, 33, 300, *[0] * (1 in axes))
    whole = whole or (draw.number(1, 40), rows, draw.choice(1, 3, 8, 33, 65, 512))
    x = draw.array(*whole, kind=None if operation != "Prod" else "ties")
    if operation == "Prod":
        x = np.where(x == 0, 1, np.sign(x)).astype(np.float32)
    functions: Mapping[str, Any] = {
        "Sum": (np.sum, 0), "Prod": (np.prod, 1), "Max": (np.max, -np.inf), "Min": (np.min, np.inf),
    }  # fmt: skip
    function, first = functions[operation]
    with np.errstate(invalid="ignore"):
        expected = function(x.astype(np.float64), axis=axes, initial=first)
        bound = EPSILON * 256 * np.abs(x.astype(np.float64)).sum(axes) * (operation == "Sum")
    return Compared(mlx.reduce(x, operation, axes).reshape(expected.shape), expected, np.nan_to_num(bound))


def gemv(mlx: Mlx, draw: Draw, *, long: bool = False) -> Compared:
    """Products of matrices with vectors; each row by one simdgroup, unless ``long``: then of transposes, too."""
    batch, rows = draw.number(1, 2), draw.choice(1, 4) if long else draw.choice(3, 4, 5, 33, 70)
    columns = draw.choice(70, 130, 1025) if long else draw.choice(1, 3, 4, 31, 64, rows * 15)
    transposed, dtype = long and draw.choice(False, True), draw.choice(np.float32, np.float16)
    matrix = draw.array(batch, rows, columns, dtype=dtype, kind="plain")
    vector = draw.array(batch, rows if transposed else columns, dtype=dtype, kind="plain")
    how = "bji,bj->bi" if transposed else "bij,bj->bi"
    expected = np.einsum(how, matrix.astype(np.float64), vector.astype(np.float64))
    size = np.einsum(how, np.abs(matrix.astype(np.float64)), np.abs(vector.astype(np.float64)))
    return Compared(mlx.gemv(matrix, vector, transposed=transposed), *rounded(expected, dtype, EPSILON * 64 * size))


def gemv_masked(mlx: Mlx, draw: Draw, *many: int) -> Compared:
    """A product in which blocks of the matrix, the vector and the result count or do not."""
    rows, columns = draw.choice(*(many or (16, 31, 32, 36, 64, 100))), draw.choice(1, 31, 32, 33, 64, 70, 128)
    matrix, vector = draw.array(rows, columns, kind="plain"), draw.array(columns, kind="plain")
    high, wide = -(-rows // 32), -(-columns // 32)
    masks = [draw.array(*size, kind="ties", dtype=np.int32) > 0 for size in ((high,), (high, wide), (wide,))]
    over = [np.repeat(masks[0], 32)[:rows], masks[1].repeat(32, 0).repeat(32, 1)[:rows, :columns]]
    z = matrix * over[1] @ (vector * np.repeat(masks[2], 32)[:columns]).astype(np.float64)
    bound = EPSILON * 64 * np.abs(matrix).astype(np.float64) @ np.abs(vector)
    return Compared(mlx.gemv_masked(matrix, vector, *masks), z * over[0], bound)


def gemm(mlx: Mlx, draw: Draw) -> Compared:
    """Products of matrices that are no multiples of a block."""
    batch, m, n, k = draw.number(1, 2), *(draw.choice(1, 15, 17, 64, 65) for _ in range(3))
    flip_a, flip_b = draw.choice(False, True), draw.choice(False, True)
    dtype = draw.choice(np.float32, np.float16)
    a = draw.array(batch, *((k, m) if flip_a else (m, k)), dtype=dtype, kind="plain")
    b = draw.array(batch, *((n, k) if flip_b else (k, n)), dtype=dtype, kind="plain")
    left, right = (
        x.astype(np.float64).swapaxes(1, 2) if flip else x.astype(np.float64) for x, flip in ((a, flip_a), (b, flip_b))
    )
    got = mlx.gemm(a, b, transpose_a=flip_a, transpose_b=flip_b)
    return Compared(got, *rounded(left @ right, dtype, EPSILON * 64 * (np.abs(left) @ np.abs(right))))


def quantized(mlx: Mlx, draw: Draw) -> Compared:
    """Products with weights of 4 or 8 bits in groups."""
    bits, group, matrix = draw.choice(4, 8), draw.choice(32, 64), draw.choice(False, True)
    k = group * draw.choice(1, 2, 3, 8) if draw.choice(True, False) else 512
    n, m = draw.choice(1, 3, 7, 8, 32, 33, 40), draw.choice(1, 2, 33) if matrix else draw.number(1, 2)
    # Before 0.32.4 a block at the border reads scales of rows that do not exist.
    is_old = "bi >= src_tile_dim.x" in mlx.marker_file.with_name("quantized.h").read_text()
    n = 32 if matrix and is_old else n
    random = np.random.default_rng(draw.number(0, 2**16))
    elements = random.integers(0, 2**bits, (n, k))
    per = 32 // bits
    shifts = (np.arange(per) * bits).astype(np.uint64)
    words = (elements.reshape(n, -1, per).astype(np.uint64) << shifts).sum(-1).astype(np.uint32)
    scales, biases = (random.uniform(-0.1, 0.1, (n, k // group)).astype(np.float32) for _ in range(2))
    x = draw.array(m, k, kind="plain")
    weights = elements * scales.repeat(group, 1).astype(np.float64) + biases.repeat(group, 1)
    size = (
        np.abs(x.astype(np.float64)) @ (elements * np.abs(scales.repeat(group, 1)) + np.abs(biases.repeat(group, 1))).T
    )
    got = mlx.quantized(x, words, scales, biases, bits, group, matrix=matrix)
    return Compared(got, x.astype(np.float64) @ weights.T, EPSILON * 64 * size)


FINDINGS: Mapping[str, tuple[Case, str]] = {
    "layer_norm of short rows": (
        lambda mlx, draw: normalized(mlx, draw, (1, draw.number(1, 40)), centred=True),
        "threads behind the end of a row write their array from a negative index on",
    ),
    "gemv by several simdgroups": (
        lambda mlx, draw: gemv(mlx, draw, long=True),
        "a barrier that only the first lane of each simdgroup reaches, with mem_none, between writes and reads",
    ),
    "reduce of short columns": (
        lambda mlx, draw: reduce(mlx, draw, (1, draw.number(2, 31), 130)),
        "threads behind the last column return before a barrier that the others wait at",
    ),
    "gemv_masked of 1 to 3 rows in the last block": (
        lambda mlx, draw: gemv_masked(mlx, draw, 33, 34, 67),
        "the last thread computes 4 rows, some of them of the block before, with the masks of its own block",
    ),
    "sort of rows of more than 1023 blocks": (
        partition, "the places of a row begin at a multiple of 1024 and are read at a multiple of one more",
    ),
}  # fmt: skip
"""Cases in which the kernels differ from NumPy or stop, and why."""

REVIEWED: Mapping[tuple[str, str], str] = {
    ("unary_g", "out-of-bounds"): "the stride before the first is read for one axis, and multiplied by 0",
    ("unary_", "float-cast"): "expm1 converts NaN and large numbers to int; the result does not depend on it",
    ("contiguous_scan", "uninitialized"): "sums of simdgroups that do not exist; no result depends on them",
    ("gemv", "inactive-lane"): "lanes of rows behind the last one have returned; the sums with them are dropped",
    ("gemv", "same-value"): "the last thread repeats rows of the one before",
    ("row_reduce_simple", "same-value"): "the last threadgroup repeats rows of the one before",
    ("affine_qmv", "same-value"): "the last simdgroup repeats rows of the one before",
}
"""What was seen in reports of kernels whose results are right: by the beginning of the kernel's name, and the kind."""

FILES = {"layer_norm": "layer_norm.metal", "rms_norm": "rms_norm.metal", "arg_reduce": "arg_reduce.metal"}
"""Files that a case needs, of those that a wheel lacks, by the beginning of its name."""

CASES: Mapping[str, Case] = {
    case.__name__: case
    for case in (
        unary, binary, select, copy, softmax, logsumexp, layer_norm, rms_norm, layer_norm_vjp, rms_norm_vjp,
        arg_reduce, sort, scan, reduce, gemv, gemv_masked, gemm, quantized,
    )
}  # fmt: skip
