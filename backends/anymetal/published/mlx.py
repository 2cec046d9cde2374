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

from published import oracles
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
    owner,
    record,
)
from published.formats import MICRO
from published.oracles import EPSILON, HALF, rounded, wide

MOST_THREADS = 1024
READS = 4
"""Elements that a thread reads at once in most kernels of rows."""
LOOPED = 4096
"""The longest row that a threadgroup holds in registers."""
FOLDER = "mlx/backend/metal/kernels/"
TYPES = {
    "float32": "float", "float16": "half", "int32": "int", "int64": "int64_t", "uint8": "uint8_t", "bool": "bool",
    "uint32": "uint", "int8": "int8_t", "int16": "int16_t", "uint16": "uint16_t", "uint64": "uint64_t",
}  # fmt: skip
FLOATS = np.float32, np.float16
OPERATIONS: Mapping[str, tuple[Any, float]] = {
    "Sum": (np.add, 0), "Prod": (np.multiply, 1), "Max": (np.maximum, -np.inf), "Min": (np.minimum, np.inf),
}  # fmt: skip
"""Functions by the names of ``reduction/ops.h``, and their results for nothing."""
STEEL = {
    "gemm": ("fused", 3), "gather_mm": ("gather", 3), "gather_mm_rhs": ("gather", 3), "segmented_mm": ("segmented", 2),
    "gemm_splitk": ("splitk", 0), "block_masked_gemm": ("masked", 0),
}  # fmt: skip
"""Products of steel: the end of the name of their file, and how many constants say whether sizes fill blocks."""
QUANTIZED = {
    "affine": "steel/gemm/gemm.h quantized_utils.h quantized.h",
    "fp": "steel/gemm/gemm.h quantized_utils.h fp4.h fp8.h fp_quantized.h",
}
"""Headers of products with weights that are integers or floating-point numbers of a few bits."""
INTEGERS = np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64


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
        whole: bool = False, constants: Mapping[int | str, Any] | None = None, prefix: str = "",
    ) -> None:  # fmt: skip
        """Launch a kernel, or an instantiation of a template, of the headers, behind a text that the host writes."""
        included = "".join(f'#include "{FOLDER}{one}"\n' for one in ("defines.h", "utils.h", *headers.split()))
        name = re.sub(r"\W+", "_", kernel)
        text = f"#include <metal_stdlib>\nusing namespace metal;\n{prefix}{included}"
        if "<" in kernel:
            text += f'template [[host_name("{name}")]] [[kernel]] decltype({kernel}) {kernel};\n'
        self.launch(text, name, threads, group, *arguments, whole=whole, constants=constants)

    def has_parameter(self, file: str, kernel: str, parameter: str) -> bool:
        """Return whether a kernel of a header has a parameter."""
        path = self.marker_file.with_name(file)
        found = re.search(rf"void {kernel}\(([^{{]*)", path.read_text() if path.is_file() else "")
        return found is not None and parameter in found[1]

    def global_scale(self, kernel: str, many: int) -> list[Array]:
        """Return the scale of each matrix, 1, if a product of quantized weights has it as a parameter."""
        has = kernel.startswith("fp") and self.has_parameter(QUANTIZED["fp"].split()[-1], kernel, "global_scale")
        return [np.ones(many, np.float32)] if has else []

    def struct(self, file: str, name: str, values: Mapping[str, Any], axes: int = 0) -> Array:
        """Return a struct of steel, zero where there are no values; of a template for a number of axes."""
        text = (self.marker_file.with_name("steel") / file).read_text()
        text = re.sub(r"\n  static .*?(?=\n\};)", "", text, flags=re.DOTALL)
        text = text.replace("[NDIM + 2]", f"[{axes + 2}]").replace("[NDIM]", f"[{axes}]")
        fields = members(text, name)
        return record(fields, {one: 0 for one, *_ in fields} | dict(values))

    def file(self, name: str) -> Path:
        """Return a ``.metal`` file, which only the repository has."""
        return self.marker_file.with_name(name)

    # --- elements -----------------------------------------------------------------------------------------------------

    def dense(
        self, headers: str, kernel: str, kinds: str, item: int, count: int, *arguments: Any, many: bool, large: bool
    ) -> None:
        """Launch a thread for each element or few of arrays that a number of 32 bits counts unless ``large``."""
        per, size = max(1, 8 // item) if many else 1, np.int64(count) if large else np.uint32(count)
        count = -(-count // per)
        grid = (count // 2, 2, 1) if large and count % 2 == 0 else (count, 1, 1)
        group = (min(grid[0], MOST_THREADS), 1, 1)
        self.run(headers, f"{kernel}{'2' * large}<{kinds}, {per}>", grid, group, *arguments, size)

    def general(self, headers: str, kernel: str, kinds: str, shape: Sequence[int], large: bool, arrays: Sequence[Any],
                strides: Sequence[Any], *more: Any) -> None:  # fmt: skip
        """Launch a thread for each element or few of views, by a kernel for their number of axes."""
        ndim, kind = len(shape), "int64_t" if large else "int"
        grid = lengths(shape)
        if ndim <= 3:
            strides = [np.int64(one[0]) if ndim == 1 else one for one in strides]
            self.run(headers, f"{kernel}_nd{ndim}<{kinds}, {kind}>", grid, block(grid), *arrays, *strides, *more)
            return
        many = 4 if large else 2
        wide, last = (-(-grid[0] // many), *grid[1:]), np.int32(ndim)
        kernel = f"{kernel}<{kinds}, {many}, {kind}>"
        self.run(headers, kernel, wide, block(wide), *arrays, ints(shape), *strides, last, *more)

    def unary(self, name: str, x: Array, out: Array, *, many: bool = False, large: bool = False) -> Array:
        """Write a function of each element: of a dense array, several for each thread or not, or of a view."""
        kinds = f"{typed(x)}, {typed(out)}, {name}"
        headers = "unary_ops.h unary.h"
        if x.flags.c_contiguous:
            self.dense(headers, "unary_v", kinds, x.itemsize, x.size, at(x), out, many=many, large=large)
            return out
        per, kind = (4, "int64_t") if large else (1, "int")
        across, *rest = lengths(x.shape)
        grid = (-(-across // per), *rest)
        about = ints(x.shape), steps(x), np.array([x.ndim], np.int32)
        self.run(headers, f"unary_g<{kinds}, {per}, {kind}>", grid, block(grid), at(x), out, *about)
        return out

    def binary(self, name: str, x: Array, y: Array, *out: Array, many: bool = False, large: bool = False) -> Array:
        """Write one or two functions of two arrays: dense ones, scalars, or views of up to any number of axes."""
        kinds = f"{typed(x)}, {typed(out[0])}, {name}"
        headers = f"binary_ops.h binary{'_two' * (len(out) - 1)}.h"
        which = "".join("s" if one.size == 1 else "v" for one in (x, y))
        arrays = at(x), at(y), *out
        if which == "ss":
            self.run(headers, f"binary_ss<{kinds}>", (1, 1, 1), (1, 1, 1), *arrays)
        elif is_dense(out[0].shape, x, y):
            count = out[0].size
            self.dense(headers, f"binary_{which}", kinds, x.itemsize, count, *arrays, many=many, large=large)
        else:
            two = [np.broadcast_to(one, out[0].shape) for one in (x, y)]
            arrays = *map(at, two), *out
            self.general(headers, "binary_g", kinds, out[0].shape, large, arrays, [*map(steps, two)])
        return out[0]

    def select(self, condition: Array, x: Array, y: Array, *, many: bool = False, large: bool = False) -> Array:
        """Return x where the condition holds, else y, which may be scalars."""
        out, kinds = blank(condition.shape, x.dtype), f"{typed(x)}, Select"
        headers, three = "ternary_ops.h ternary.h", (condition, x, y)
        if condition.flags.c_contiguous and is_dense(out.shape, x, y):
            kinds += "".join(f", {flag(one.size == 1)}" for one in (x, y))
            arrays = *map(at, three), out
            self.dense(headers, "ternary_v", kinds, x.itemsize, out.size, *arrays, many=many, large=large)
            return out
        views = [np.broadcast_to(one, out.shape) for one in three]
        arrays = *map(at, views), out
        self.general(headers, "ternary_g", kinds, out.shape, large, arrays, [*map(steps, views)])
        return out

    def copy(self, x: Array, out: Array, *, many: bool = False, large: bool = False, dynamic: bool = False) -> Array:
        """Write a scalar, or a view of any strides, into another, with a conversion; from offsets if ``dynamic``."""
        kinds = f"{typed(x)}, {typed(out)}"
        if out.flags.c_contiguous and not dynamic and (x.size == 1 or x.flags.c_contiguous):
            kernel, two = f"copy_{'s' if x.size == 1 else 'v'}", (at(x), at(out))
            self.dense("copy.h", kernel, kinds, out.itemsize, out.size, *two, many=many, large=large)
            return out
        x = np.broadcast_to(x, out.shape)
        if not dynamic:
            both = [x] if out.flags.c_contiguous else [x, out]
            kernel = "copy_g" + "g" * (len(both) - 1)
            self.general("copy.h", kernel, kinds, out.shape, large, [at(x), at(out)], [*map(steps, both)])
            return out
        # The shape is at index 2, strides at 3 and 4, the number of axes at 5.
        pairs = [(*owner(one), one) for one in (x, out)]
        given: dict[int, Any] = {i: memory.view(one.dtype) for i, (memory, _, one) in enumerate(pairs)}
        given |= {3 + i: np.int64(steps(one)[0]) if x.ndim == 1 else steps(one) for i, (*_, one) in enumerate(pairs)}
        given |= {6 + i: np.int64(first // one.itemsize) for i, (_, first, one) in enumerate(pairs)}
        grid, kind = lengths(x.shape), "int64_t" if large else "int"
        kernel = f"copy_gg_dynamic_nd{x.ndim}<{kinds}, {kind}>"
        if x.ndim > 3:
            given |= {2: ints(x.shape), 5: np.int32(x.ndim)}
            grid, kernel = (-(-grid[0] // 2), *grid[1:]), f"copy_gg_dynamic<{kinds}, 2, {kind}>"
        self.run("copy.h", kernel, grid, block(grid), *(given[i] for i in sorted(given)))
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
        """Return the rows of a view in ascending order, or the indices of it: one block for each row, or several."""
        length = x.shape[-1]
        threads = next((n for n in (32, 64, 128, 256) if 4 * n >= length), 256 if x.itemsize > 4 else 512)
        out, flag = blank(x.shape, np.uint32 if indices else x.dtype), str(indices).lower()
        row, (*rest, step) = np.int32(length), steps(x)
        rows = x.size // length
        if length > 4 * threads:
            return self._merge_sort(x, threads, indices=indices)
        one, kinds, numbers = (
            np.int32(1),
            f"{typed(x)}, {typed(out)}, {flag}, {threads}, 4",
            list[Any]([row, np.int32(step)]),
        )
        kernel, all_steps = "block_sort", steps(x)
        is_dense = min(all_steps) > 0 and x.transpose(np.argsort(-all_steps, kind="stable")).flags.c_contiguous
        if is_dense and step in (min(all_steps), max(all_steps)):
            least = [min((n for n, many in zip(which, x.shape, strict=False) if many > 1), default=2**31 - 1)
                     for which in (rest, steps(out)[:-1])]  # fmt: skip
            numbers += [one, *map(np.int32, least)]
        else:
            kernel = "block_sort_nc"
            numbers = [*numbers, one, np.int32(x.ndim - 1), ints(x.shape[:-1]), longs(rest), steps(out)[:-1]]
        self.run("sort.h", f"{kernel}<{kinds}>", (1, rows, 1), (threads, 1, 1), at(x), out, *numbers, whole=True)
        return out

    def _merge_sort(self, x: Array, threads: int, *, indices: bool) -> Array:
        length, (*rest, step) = x.shape[-1], steps(x)
        rows, blocks = x.size // length, -(-length // (4 * threads))
        kinds, row, group = f"{typed(x)}, uint, true, {threads}, 4", np.int32(length), (threads, 1, 1)
        pairs = [(blank((rows, length), x.dtype), blank((rows, length), np.uint32)) for _ in range(2)]
        about = row, np.int32(step), np.int32(x.ndim - 1), ints(x.shape[:-1]), longs(rest)
        grid = (blocks, rows, 1)
        self.run("sort.h", f"mb_block_sort<{kinds}>", grid, group, at(x), *pairs[0], *about, whole=True)
        places, tiles = blank((rows, blocks + 1), np.uint32), 2
        while tiles // 2 < blocks:
            numbers, several = (row, np.int32(tiles), np.int32(blocks)), (min(blocks + 1, MOST_THREADS), 1, 1)
            self.run(
                "sort.h", f"mb_block_partition<{kinds}>", (1, rows, 1), several, places, *pairs[0], *numbers, whole=True
            )
            self.run(
                "sort.h", f"mb_block_merge<{kinds}>", grid, group, places, *pairs[0], *pairs[1], *numbers, whole=True
            )
            pairs, tiles = pairs[::-1], 2 * tiles
        return pairs[0][indices].reshape(x.shape)

    def attention(
        self, q: Array, k: Array, v: Array, mask: Array | None, sinks: Array | None, scale: float, *, causal: bool,
        blocks: int = 0,
    ) -> Array:  # fmt: skip
        """Return attention of a few queries (batch, heads, count, size), by blocks of keys and twice if there are."""
        batch, heads, count, size = q.shape
        keys, wide, shared = k.shape[2], v.shape[3], heads // k.shape[1]
        out, kind = blank((batch, heads, count, wide), q.dtype), typed(q)
        if k.shape[1] == 1:  # the axis of heads has any stride
            k, v = (one.transpose(1, 0, 2, 3) for one in (k, v))
        numbers = [np.int32(keys), *(np.uint64(steps(one)[i]) for one in (k, v) for i in (1, 2)), np.float32(scale)]
        is_bool = mask is not None and mask.dtype == bool
        known: dict[int | str, Any] = {20: mask is not None, 21: False, 22: causal, 23: is_bool}
        known |= {24: mask is not None and not is_bool, 25: sinks is not None}
        more: list[Any] = []
        if mask is not None:
            of_mask = [int(n) if many > 1 else 0 for n, many in zip(steps(mask), mask.shape, strict=True)]
            more = [at(mask), np.int32(of_mask[3]), np.int32(of_mask[2]), np.int32(of_mask[1] or of_mask[0])]
        three, kinds = [*map(at, (q, k, v))], f"{kind}, {size}, {wide}"
        if not blocks:
            more += [] if sinks is None else [sinks, np.int32(heads)]
            arguments = *three, out, np.int32(shared), *numbers, *more
            grid = (batch * heads, count, 1)
            kernel = f"sdpa_vector<{kinds}>"
            self.run("sdpa_vector.h", kernel, grid, (1024, 1, 1), *arguments, whole=True, constants=known)
            return out
        known[26] = blocks
        some, sums, maxima = (
            blank((*out.shape[:3], blocks, wide), q.dtype),
            *(blank((*out.shape[:3], blocks)) for _ in "12"),
        )
        more += [] if sinks is None else [sinks]
        many = size == wide and shared == 8 and count == 1 and mask is sinks is None
        many = many and self.has_parameter("sdpa_vector.h", "sdpa_vector_2pass_1_gqa", "queries")  # from 0.32 on
        kernel = f"sdpa_vector_2pass_1{f'_gqa<{kinds}, 8, {8 if size == 64 else 4}' if many else f'<{kinds}'}>"
        grid = (heads // shared, batch, blocks)
        arguments = *three, some, sums, maxima, *numbers, *more
        self.run("sdpa_vector.h", kernel, grid, (32, shared, count), *arguments, whole=True, constants=known)
        kernel, grid = f"sdpa_vector_2pass_2<{kind}, {wide}>", (batch * heads, count, 1)
        arguments = some, sums, maxima, out, np.int32(blocks)
        self.run("sdpa_vector.h", kernel, grid, (1024, 1, 1), *arguments, whole=True, constants=known)
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

        def again(some: Array) -> None:
            """Reduce the results of blocks of rows."""
            numbers = [
                np.uint64(len(some)), np.int64(out.size), ints([0]), longs([0]), np.int32(0), ints([len(some)]),
                longs([out.size]), np.int32(1), np.uint64(1),
            ]  # fmt: skip
            grid = (256 * -(-out.size // 32), 1, 1)
            kernel = f"col_reduce_looped<{kinds}, int, 1, 32, 32>"
            self.run(headers, kernel, grid, (256, 1, 1), some, out, *numbers, *start)

        if length < 32:
            blocks = -(-c // READS)
            group = (min(blocks, 32), min(8, MOST_THREADS // min(blocks, 32), length), 1)
            grid = (-(-blocks // group[0]), outer, 1)
            kernel = f"col_reduce_small<{kinds}, int, 1>"
            self.run(headers, kernel, grid, group, x, out, *about(length, ndim), whole=True)
        elif c < 32 and length >= 1024:
            blocks = 128 if length >= 32768 else 32
            some, group = blank((blocks, *out.shape), x.dtype), (c, min(32, -(-length // blocks)), 1)
            kernel, (_, _, *rest) = f"col_reduce_longcolumn<{kinds}, int, 1>", about(length, ndim)
            sizes = np.uint64(length), np.uint64(c), *rest, np.uint64(out.size)
            self.run(headers, kernel, (outer, 1, blocks), group, x, some, *sizes, whole=True)
            again(some)
        elif length > 256 and out.size // 32 < 1024:
            some = blank((32, *out.shape), x.dtype)
            grid, group = (256 * columns, outer * 32, 1), (256, 1, 1)
            kernel = f"col_reduce_2pass<{kinds}, int, 1, 32, 32>"
            self.run(headers, kernel, grid, group, x, some, *about(length, ndim), *start, np.uint64(out.size // c))
            again(some)
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

    def steel(
        self, kernel: str, a: Array, b: Array, out: Array, *between: Any, flips: tuple[bool, bool],
        blocks: Sequence[int], constants: Mapping[int | str, Any] | None = None,
        more: Sequence[Any] = (), batch: int = 1, **values: int,
    ) -> None:  # fmt: skip
        """Launch a product of steel: blocks of rows, columns, terms, and two of simdgroups."""
        m, n = out.shape[-2:]
        k = a.shape[-2] if flips[0] else a.shape[-1]
        bm, bn, bk, wm, wn = blocks
        name = kernel.partition("<")[0]
        tiles = {"tiles_n": -(-n // bn), "tiles_m": -(-m // bm)}
        sizes = {"M": m, "N": n, "K": k, "lda": a.shape[-1], "ldb": b.shape[-1], "ldd": n, "ldc": n}
        sizes |= {"gemm_k_iterations_aligned": k // bk, "batch_stride_d": m * n} | tiles | values
        file, aligned = STEEL[name]
        headers = f"steel/gemm/gemm.h steel/gemm/kernels/steel_gemm_{file}.h"
        struct = "GEMMSpiltKParams" if name == "gemm_splitk" else "GEMMParams"
        params = self.struct("gemm/params.h", struct, {"batch_ndim": 1} | sizes)
        first, _, last = kernel.partition("BLOCKS")
        grid = (sizes["tiles_n"], sizes["tiles_m"], batch)
        text = f"{first}{bm}, {bn}, {bk}, {wm}, {wn}, {', '.join(map(flag, flips))}{last}"
        known: dict[int | str, Any] = {200: m % bm == 0, 201: n % bn == 0, 202: k % bk == 0}
        known = {**dict([*known.items()][:aligned]), **(constants or {})}
        buffers = at(a), at(b), *between, out, params, *more
        self.run(headers, text, grid, (32, wn, wm), *buffers, whole=True, constants=known)

    def norm(self, x: Array, weight: Array, bias: Array | None, eps: float) -> Array:
        """Return normalized rows times weights plus biases, or without these, divided by their root mean squares."""
        out, (count, length) = blank(x.shape, x.dtype), x.shape
        file, kernel, reads, most = (
            ("rms_norm", "rms", READS, LOOPED) if bias is None else ("layer_norm",) * 2 + (8, 6656)
        )
        group = MOST_THREADS if length > most else self._row(length, reads)
        factors = [weight] if bias is None else [weight, bias]
        numbers = np.float32(eps), np.uint32(length), *(np.uint32(one.size > 1) for one in factors)
        name = f"{kernel}{'_looped' * (length > most)}{x.dtype}"
        arguments = x, *factors, out, *numbers
        self.launch(self.file(f"{file}.metal"), name, (count * group, 1, 1), (group, 1, 1), *arguments, whole=False)
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


def lengths(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return a grid with a thread for each element: the last axis, the one before, and the rest."""
    shape = (1, 1, *shape)
    return shape[-1], shape[-2], math.prod(shape[:-2])


def flag(value: bool) -> str:
    """Return a truth value as Metal writes it."""
    return str(value).lower()


def is_dense(shape: Sequence[int], *arrays: Array) -> bool:
    """Return whether all arrays are scalars, or contiguous and of a shape."""
    return all(one.size == 1 or (one.flags.c_contiguous and one.shape == tuple(shape)) for one in arrays)


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


def product(x: Array, y: Array, dtype: Any) -> tuple[Array, Array]:
    """Return the product of matrices as a type holds it, and the bound."""
    return rounded(x @ y, dtype, EPSILON * 64 * (np.abs(x) @ np.abs(y)))


def views(draw: Draw, shape: Sequence[int], dtype: Any, kind: str | None = None, *, signed: bool = True) -> Array:
    """Draw a view with strides of any kind along all axes."""
    return draw.strided(*shape, dtype=dtype, kind=kind, rows=False, signed=signed)


def shape(draw: Draw) -> tuple[int, ...]:
    """Draw the shape of an array of one to five axes."""
    return (*(draw.number(1, 3) for _ in range(draw.number(0, 4))), draw.choice(1, 3, 8, 33, 70, 1025))


UNARY: Mapping[str, Any] = {
    "Abs": np.abs, "ArcTan": np.arctan, "ArcSinh": np.arcsinh, "Ceil": np.ceil, "Cos": np.cos, "Erf": oracles.erf,
    "Exp": np.exp, "Expm1": np.expm1, "Floor": np.floor, "Log": np.log, "Log2": np.log2, "Log1p": np.log1p,
    "Negative": np.negative, "Round": np.rint, "Sigmoid": oracles.sigmoid, "Sign": np.sign,
    "Sin": np.sin, "Square": np.square, "Sqrt": np.sqrt, "Rsqrt": lambda x: 1 / np.sqrt(x), "Tan": np.tan,
    "Tanh": np.tanh, "Sinh": np.sinh, "Cosh": np.cosh, "ArcCos": np.arccos, "ArcSin": np.arcsin,
    "ArcCosh": np.arccosh, "Log10": np.log10, "LogicalNot": np.logical_not, "BitwiseInvert": np.invert,
}  # fmt: skip
"""Functions by the names of ``unary_ops.h``."""


WHOLE = "Abs", "Negative", "Square", "Sign", "BitwiseInvert", "LogicalNot", "Ceil", "Floor"
"""Those that integers have."""


def sized(draw: Draw) -> dict[str, bool]:
    """Draw whether a thread has several elements, and whether the sizes have 64 bits."""
    return {name: draw.choice(False, True) for name in ("many", "large")}


def unary(mlx: Mlx, draw: Draw) -> Compared:
    """A function of each element of a view."""
    dtype = draw.choice(*FLOATS, *FLOATS, *INTEGERS)
    is_whole = dtype not in FLOATS
    name = draw.choice(*(WHOLE if is_whole else [one for one in UNARY if one not in ("BitwiseInvert", "LogicalNot")]))
    x = views(draw, shape(draw), dtype, "ties" if is_whole else None)
    got = mlx.unary(name, x, blank(x.shape, np.bool_ if name == "LogicalNot" else dtype), **sized(draw))
    if is_whole:
        return Compared(got, UNARY[name](x))
    expected = UNARY[name](wide(x))
    expected = np.where(np.isnan(x), got, expected) if name == "Sign" else expected
    error = (HALF * 8 * np.abs(expected) + 2 * HALF) * (dtype == np.float16)
    # Near their roots and poles functions are as good as their argument, and exp is the sum of several roundings.
    return Compared(got, *rounded(expected, dtype, error + EPSILON * 16 * (1 + np.abs(x) + expected**2)))


BINARY: Mapping[str, Any] = {
    "Add": np.add, "Subtract": np.subtract, "Multiply": np.multiply, "Divide": np.divide, "Maximum": np.maximum,
    "Minimum": np.minimum, "ArcTan2": np.arctan2, "Equal": np.equal, "Greater": np.greater, "LessEqual": np.less_equal,
    "NotEqual": np.not_equal, "LogAddExp": np.logaddexp, "Less": np.less, "GreaterEqual": np.greater_equal,
    "LogicalAnd": np.logical_and, "LogicalOr": np.logical_or, "FloorDivide": lambda x, y: np.floor(x / y),
    "NaNEqual": lambda x, y: (x == y) | (np.isnan(x) & np.isnan(y)), "Remainder": np.mod,
}  # fmt: skip
OF_INTEGERS: Mapping[str, Any] = {
    **{name: BINARY[name] for name in ("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Equal", "Less")},
    "FloorDivide": np.floor_divide, "Remainder": np.mod, "Power": np.power, "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor, "LeftShift": np.left_shift,
    "RightShift": np.right_shift,
}  # fmt: skip
"""Functions by the names of ``binary_ops.h``."""


def operands(draw: Draw, dtype: Any, *names: str) -> tuple[str, Array, Array]:
    """Draw a function and two arrays, views or scalars; integers are legal for it."""
    name, whole, is_whole = draw.choice(*names), shape(draw), dtype not in FLOATS
    kind = "ties" if is_whole else None
    x, y = views(draw, whole, dtype, kind), views(draw, whole, dtype, kind)
    scalar = draw.choice("none", "none", "x", "y", "both")
    x = draw.array(1, dtype=dtype, kind=kind) if scalar in ("x", "both") else x
    y = draw.array(1, dtype=dtype, kind=kind) if scalar in ("y", "both") else y
    if is_whole and name in ("FloorDivide", "Remainder", "DivMod"):
        y = np.where(y == 0, dtype(3), y)
    if is_whole and name in ("Power", "LeftShift", "RightShift"):
        y = np.where((y < 0) | (y > 2), dtype(2), y)
        x = np.abs(x) if name == "LeftShift" else x
    return name, x, y


def binary(mlx: Mlx, draw: Draw) -> Compared:
    """A function of two arrays, views or scalars."""
    dtype = draw.choice(np.float32, np.float32, *INTEGERS)
    functions = BINARY if dtype == np.float32 else OF_INTEGERS
    name, x, y = operands(draw, dtype, *functions)
    if dtype != np.float32:
        whole = functions[name](x, y)
        return Compared(mlx.binary(name, x, y, blank(whole.shape, whole.dtype), **sized(draw)), whole)
    rounds = name in ("FloorDivide", "LogicalAnd", "LogicalOr")  # of the rounded quotient; NaN is true
    expected = functions[name](*((x, y) if rounds else (wide(x), wide(y))))
    bound = EPSILON * 8 * np.abs(wide(expected)) + EPSILON * (name == "LogAddExp")
    bound = bound + EPSILON * np.abs(y) * (name == "Remainder")
    out = blank(expected.shape, np.bool_ if expected.dtype == np.bool_ else np.float32)
    return Compared(mlx.binary(name, x, y, out, **sized(draw)), expected, bound)


def div_mod(mlx: Mlx, draw: Draw) -> list[Compared]:
    """Quotients and remainders at once."""
    dtype = draw.choice(*INTEGERS)
    _, x, y = operands(draw, dtype, "DivMod")
    expected = np.divmod(x, y)
    out = [blank(one.shape, dtype) for one in expected]
    mlx.binary("DivMod", x, y, *out, **sized(draw))
    return [Compared(*pair) for pair in zip(out, expected, strict=True)]


def select(mlx: Mlx, draw: Draw) -> Compared:
    """Elements of two arrays or scalars by a condition."""
    whole, dtype = shape(draw), draw.choice(*FLOATS, *INTEGERS)
    condition = views(draw, whole, np.int32, "ties") > 0
    condition = condition[..., ::-1] if draw.choice(False, True) else condition
    kind = None if dtype in FLOATS else "ties"
    x, y = (
        draw.array(1, dtype=dtype, kind=kind) if draw.choice(False, False, True) else views(draw, whole, dtype, kind)
        for _ in range(2)
    )
    return Compared(mlx.select(condition, x, y, **sized(draw)), np.where(condition, x, y))


def copy(mlx: Mlx, draw: Draw) -> Compared:
    """A scalar or a view copied into a dense array or another view, as the same or another type."""
    every = *FLOATS, *INTEGERS, np.bool_
    kind, other = draw.choice(*every), draw.choice(*every)
    whole = shape(draw)
    has_whole = not {kind, other} <= {*FLOATS}
    x = views(draw, whole, kind, "ties" if has_whole else None)
    x = draw.array(1, dtype=kind, kind="ties") if draw.choice(False, False, True) else x
    # Negative numbers of a floating-point type have no value of an unsigned one.
    x = np.abs(x) if kind in FLOATS and np.dtype(other).kind == "u" else x
    out, dynamic = blank(whole, other), draw.choice(False, False, True)
    how = draw.choice("dense", "transposed", "every other")
    if how != "dense":
        out = blank(whole[::-1], other).transpose() if how == "transposed" else blank((*whole, 2), other)[..., 0]
    return Compared(mlx.copy(x, out, **sized(draw), dynamic=dynamic), np.broadcast_to(x.astype(other), whole))


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
    expected, bound = oracles.softmax(wide(x), unit=2 * EPSILON if precise or dtype == np.float32 else 4 * HALF)
    return Compared(mlx.softmax(x, precise=precise), *rounded(expected, dtype, bound))


def logsumexp(mlx: Mlx, draw: Draw) -> Compared:
    """Logarithms of sums of exponentials."""
    dtype = draw.choice(np.float32, np.float16)
    x = draw.array(*rows(draw), dtype=dtype)
    error = EPSILON * (64 + x.shape[1] / 16) * (1 + np.abs(np.nan_to_num(wide(x).max(1))))
    return Compared(mlx.logsumexp(x), *rounded(oracles.logsumexp(wide(x)), dtype, error))


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
    rounding = 2 * HALF * (dtype == np.float16)
    expected, bound = oracles.normalized(x, weight, bias if centred else 0, centred=centred, rounding=rounding)
    return Compared(mlx.norm(x, weight, bias if centred else None, 1e-5), *rounded(expected, dtype, bound))


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
    h = wide(g) * weight
    gradient, plain, r = oracles.norm_gradient(wide(x), h, centred=centred)
    gx, gw = mlx.norm_vjp(x, weight, g, 1e-5, centred=centred)
    unit, far = EPSILON * (64 + length / 16), 1 + np.abs(x).max() * r
    size_of = r * far * (1 + np.abs(plain).max(1, keepdims=True)) ** 2 * np.abs(h).max(1, keepdims=True)
    products = (np.abs(g * plain) * unit * far).sum(0) + count * EPSILON * np.abs(g).max()
    return [Compared(gx, gradient, unit * size_of), Compared(gw.sum(0, dtype=np.float64), (g * plain).sum(0), products)]


def arg_reduce(mlx: Mlx, draw: Draw) -> Compared:
    """The first largest or smallest element along any axis of a view; NaN is none."""
    whole = (draw.number(1, 3), draw.choice(1, 3, 33, 130), draw.choice(1, 2, 40))
    x = views(draw, whole, np.float32, draw.choice("plain", "ties"))
    axis, largest = draw.number(0, 2), draw.choice(True, False)
    got = mlx.arg_reduce(x, axis, largest=largest)
    return Compared(got, (np.argmax if largest else np.argmin)(x, axis))


def sort(mlx: Mlx, draw: Draw, *, several: bool = False, swapped: bool = False) -> Compared:
    """Rows in order, NaN last; and the indices of it, of which equal elements may have any order."""
    dtype = draw.choice(*FLOATS, *INTEGERS)
    length = draw.choice(2049, 4100, 9000) if several else draw.choice(1, 2, 5, 127, 128, 129, 600, 1023, 1025, 2048)
    length = min(length, 1024) if np.dtype(dtype).itemsize == 8 and not several else length
    x = draw.array(draw.number(1, 2), draw.number(1, 3), length, dtype=dtype, kind=None if dtype in FLOATS else "ties")
    if swapped:
        x = np.concatenate((x, x[::-1]))
        return Compared(mlx.sort(np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)), np.sort(x, -1))
    how = draw.choice("plain", "axes", "reversed", "every other")
    x = {"plain": x, "axes": np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0)}.get(
        how, x[::-1, :, ::-1] if how == "reversed" else np.repeat(x, 2, 1)[:, ::2]
    )
    if draw.choice(False, True):
        return oracles.in_order(x, mlx.sort(x, indices=True))
    return Compared(mlx.sort(x), np.sort(x, -1))


def merge_sort(mlx: Mlx, draw: Draw) -> Compared:
    """The same of rows of several blocks."""
    return sort(mlx, draw, several=True)


def arange(mlx: Mlx, draw: Draw) -> Compared:
    """Numbers at equal distances; the index is a number of their type."""
    dtype, count = draw.choice(*FLOATS, *INTEGERS), draw.length()
    start, step = (np.array([draw.number(0, 5)], dtype) for _ in range(2))
    out, kernel = blank((count,), dtype), f"arange<{typed(start)}>"
    mlx.run("arange.h", kernel, (count, 1, 1), (min(count, MOST_THREADS), 1, 1), start, step, out)
    whole = int(start[0]) + np.arange(count) * int(step[0])
    return Compared(out, whole if dtype in FLOATS else whole.astype(dtype), whole * HALF * 4 * (dtype == np.float16))


def searchsorted(mlx: Mlx, draw: Draw) -> Compared:
    """Positions in a sorted view at which elements keep the order, NaN last."""
    dtype, right = draw.choice(*FLOATS, *INTEGERS), draw.choice(False, True)
    kind = None if dtype in FLOATS else "ties"
    a = np.sort(draw.array(draw.length(), dtype=dtype, kind=kind))
    a = {"every other": np.repeat(a, 2)[::2], "reversed": a[::-1].copy()[::-1]}.get(
        draw.choice("", "every other", "reversed"), a
    )
    v = draw.array(draw.number(1, 3), draw.length(), dtype=dtype, kind=kind)
    out, kernel = blank(v.shape, np.uint32), f"searchsorted<{typed(v)}, {str(right).lower()}>"
    arguments = at(a), v, out, np.uint32(a.size), np.int64(steps(a)[0])
    mlx.run("sort.h searchsorted.h", kernel, (v.size, 1, 1), (min(v.size, MOST_THREADS), 1, 1), *arguments)
    return Compared(out, np.searchsorted(a, v, "right" if right else "left"))


def threefry(key: Array, counts: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return Threefry 2x32 of 20 rounds."""
    keys = [key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)]
    x, y = counts[0] + keys[0], counts[1] + keys[1]
    for i in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x = x + y
            y = (y << np.uint32(turn) | y >> np.uint32(32 - turn)) ^ x
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x, y


def random_bits(mlx: Mlx, draw: Draw, *, short: bool = False, back: bool = False) -> Compared:
    """Bytes of each of several keys; if ``short`` less than four, if ``back`` of keys in reverse order."""
    count, size = (
        draw.number(2, 4) if short or back else draw.number(1, 4),
        draw.choice(1, 2, 3) if short else draw.number(4, 70),
    )
    words = np.random.default_rng(draw.number(0, 2**16)).integers(0, 2**32, (2 * count, 2), np.uint32)
    keys = words[count - 1 :: -1] if back else words[::2] if draw.choice(False, True) else words[:count].copy()
    high, odd = -(-size // 8) if size % 8 else size // 8, -(-size // 4) % 2
    first = np.arange(high, dtype=np.uint32)
    with np.errstate(over="ignore"):
        second = np.where(first == high - odd, 0, first + high).astype(np.uint32)
        pairs = [threefry(key, (first, second)) for key in keys]
    expected = np.stack([np.concatenate((x, y[: high - odd])).view(np.uint8)[:size] for x, y in pairs])
    out, grid = blank((count, size), np.uint8), (count, high, 1)
    more = [] if keys.flags.c_contiguous else [np.int32(2), ints(keys.shape), steps(keys)]
    kernel = "rbits" if more else "rbitsc"
    arguments = at(keys), out.view(np.int8), np.bool_(odd), np.uint64(size), *more
    mlx.launch(mlx.file("random.metal"), kernel, grid, block(grid), *arguments, whole=False)
    return Compared(out, expected)


def rope(mlx: Mlx, draw: Draw) -> Compared:
    """Rotations of pairs, neighbours or halves, of several offsets and frequencies, or their inverse."""
    dtype, traditional, forward = draw.choice(*FLOATS), draw.choice(False, True), draw.choice(False, True)
    batch, heads, tokens, half = draw.number(1, 2), draw.number(1, 6), draw.number(1, 5), draw.choice(1, 3, 16, 33)
    x = draw.array(batch, heads, tokens, 2 * half, dtype=dtype, kind="plain")
    swapped = tokens > 1 and draw.choice(False, True)
    x = np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) if swapped else x
    offset = np.random.default_rng(draw.number(0, 99)).integers(0, 50, draw.choice(1, batch), np.int32)
    single, scale = tokens == 1 and offset.size == 1, draw.choice(1.0, 0.5)
    freqs = np.abs(draw.array(half, kind="plain")) + 1 if draw.choice(False, True) else None
    inverse = 10000.0 ** (-np.arange(half) / half) if freqs is None else 1 / wide(freqs)
    at_token = scale * (np.arange(tokens) + np.broadcast_to(offset[:, None], (batch, tokens)))
    theta = (at_token[..., None] * inverse)[:, None] * (1 if forward else -1)
    error = EPSILON * (8 + 8 * np.abs(theta))
    expected, bound = oracles.rotated(x, np.cos(theta), np.sin(theta), error, neighbours=traditional)
    out, name = blank(x.shape, dtype), f"rope_{'single_' * single}{'freqs_' * (freqs is not None)}{dtype.__name__}"
    strides = [int(n) for n in steps(x)]
    three = longs([strides[1] if swapped else tokens * 2 * half, *strides[2:]])
    numbers = [longs([2 * half])] if single else [three, steps(out)[1:], np.int64(offset.size > 1), np.int32(heads)]
    last = [np.float32(math.log2(10000))] if freqs is None else [freqs, np.int64(1)]
    grid = (half, batch * heads, 1) if single else (half, tokens, batch * -(-heads // 4))
    known: dict[int | str, Any] = {1: forward, 2: traditional, 3: swapped}
    given = at(x), out, offset, np.float32(scale), *numbers, *last
    mlx.launch(mlx.file("rope.metal"), name, grid, block(grid), *given, whole=False, constants=known)
    return Compared(out, *rounded(expected, dtype, bound))


def attention(mlx: Mlx, draw: Draw) -> Compared:
    """Attention of a few queries, also by blocks of keys, with masks, the causal order, sinks and shared heads."""
    dtype, size = draw.choice(*FLOATS), draw.choice(64, 96, 128, 192, 256)
    shared, blocks = draw.choice(1, 2, 8), draw.choice(0, 32, 64)
    count, keys = draw.choice(1, 1, 2, 4), draw.choice(4, 31, 33, 70, 130)
    batch, of = draw.number(1, 2), draw.number(1, 2)
    across = 128 if size == 192 and draw.choice(False, True) else size
    # Before 0.32.4 the kernel for eight queries of a head takes the keys of the first batch for all.
    is_old = "keys + kv_head_idx * k_head_stride + s0" in mlx.marker_file.with_name("sdpa_vector.h").read_text()
    batch = 1 if is_old and shared == 8 else batch
    q = draw.array(batch, of * shared, count, size, dtype=dtype, kind="plain")
    k, v = (draw.array(batch, of, keys, n, dtype=dtype, kind="plain") for n in (size, across))
    how, scale = draw.choice("none", "none", "causal", "bool", "float"), 1 / math.sqrt(size)
    mask = None
    if how in ("bool", "float"):
        heads = draw.choice(1, of * shared) if batch == 1 else of * shared
        mask = draw.array(batch, heads, draw.choice(1, count), keys, dtype=dtype, kind="plain")
        mask = mask > 0 if how == "bool" else mask
    sinks = draw.choice(None, draw.array(of * shared, dtype=dtype, kind="plain"))
    got = mlx.attention(q, k, v, mask, sinks, scale, causal=how == "causal", blocks=blocks)
    causal = keys - count if how == "causal" else None
    expected = oracles.attention(q, k, v, scale, mask=mask, sinks=sinks, causal=causal)
    error = (EPSILON * 256 + HALF * 8 * (dtype == np.float16 and blocks > 0)) * np.abs(wide(v)).max()
    return Compared(got, *rounded(expected, dtype, error))


def scan(mlx: Mlx, draw: Draw) -> Compared:
    """Cumulative sums, products, maxima and minima in either direction."""
    operation = draw.choice("Sum", "Prod", "Max", "Min")
    strided, reverse, inclusive = (draw.choice(False, True) for _ in range(3))
    whole: tuple[int, ...] = draw.number(1, 2), draw.choice(1, 31, 32, 33, 70), draw.choice(1, 3, 31, 33, 70)
    if not strided:
        whole = draw.number(1, 2), draw.choice(1, 5, 127, 128, 129, 1025, 4097, 8200)
    x = draw.array(*whole)
    if operation == "Prod":
        x = np.where(np.abs(x) > 0.2, np.sign(x), x).astype(np.float32)
    z = np.flip(wide(x), 1) if reverse else wide(x)
    function, first = OPERATIONS[operation]
    expected = function.accumulate(z, 1)
    sizes = np.abs(z) if operation == "Sum" else np.zeros(z.shape)
    bound = EPSILON * 128 * (np.add.accumulate(sizes, 1) + (operation == "Prod") * np.abs(expected))
    if not inclusive:
        start = np.full_like(expected[:, :1], first)
        expected, bound = (
            np.concatenate(two, 1) for two in ((start, expected[:, :-1]), (0 * sizes[:, :1], bound[:, :-1]))
        )
    bound = bound + 1e-38  # products that are subnormal
    expected, bound = (np.flip(one, 1) if reverse else one for one in (expected, bound))
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
    function, first = OPERATIONS[operation]
    expected = function.reduce(wide(x), axis=axes, initial=first)
    bound = EPSILON * 256 * np.abs(wide(x)).sum(axes) * (operation == "Sum")
    return Compared(mlx.reduce(x, operation, axes).reshape(expected.shape), expected, np.nan_to_num(bound))


def long_columns(mlx: Mlx, draw: Draw) -> Compared:
    """The same of few long columns, in two steps."""
    return reduce(mlx, draw, (draw.number(1, 2), draw.choice(1024, 1100, 33000), draw.choice(1, 3, 31)))


def gemv(mlx: Mlx, draw: Draw, *, long: bool = False) -> Compared:
    """Products of matrices with vectors; each row by one simdgroup, unless ``long``: then of transposes, too."""
    batch, rows = draw.number(1, 2), draw.choice(1, 4) if long else draw.choice(3, 4, 5, 33, 70)
    columns = draw.choice(70, 130, 1025) if long else draw.choice(1, 3, 4, 31, 64, rows * 15)
    transposed, dtype = long and draw.choice(False, True), draw.choice(np.float32, np.float16)
    matrix = draw.array(batch, rows, columns, dtype=dtype, kind="plain")
    vector = draw.array(batch, rows if transposed else columns, dtype=dtype, kind="plain")
    left = wide(matrix).swapaxes(1, 2) if transposed else wide(matrix)
    expected, bound = product(left, wide(vector)[..., None], dtype)
    return Compared(mlx.gemv(matrix, vector, transposed=transposed), expected[..., 0], bound[..., 0])


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


def packed(elements: Array, bits: int) -> Array:
    """Return rows of numbers of a few bits, the lowest first, as words."""
    stream = (elements[..., None] >> np.arange(bits) & 1).astype(np.uint8)
    return np.packbits(stream.reshape(*elements.shape[:-1], -1), axis=-1, bitorder="little").view(np.uint32)


def fp8(bits: Array) -> Array:
    """Return numbers of a sign, 4 bits of an exponent and 3 of a fraction."""
    exponent, fraction = bits >> 3 & 15, bits & 7
    size = np.where(exponent, (8 + fraction) * 2.0 ** (exponent - 10.0), fraction * 2.0**-9)
    return np.where(bits & 128, -1, 1) * size


def scaled(scales: Array, group: int) -> Array:
    """Return the scales of floating-point weights: powers of two for groups of 32, and numbers of 8 bits of 16."""
    return 2.0 ** (scales.astype(np.float64) - 127) if group == 32 else fp8(scales.astype(np.int64))


def decoded(elements: Array, bits: int) -> Array:
    """Return floating-point weights of 4 or 8 bits."""
    return fp8(elements) if bits == 8 else MICRO[elements]


def conversions(mlx: Mlx, draw: Draw) -> list[Compared]:
    """Weights rounded to a few bits and back, with integers or floating-point numbers."""
    dtype, name = draw.choice(*FLOATS), draw.choice("affine", "fp")
    bits, group = width(draw, name)
    rows, count = draw.number(1, 3), 4 * max(32, group) * draw.number(1, 2)
    w = draw.array(rows, count, dtype=dtype, kind=draw.choice("plain", "ties"))
    kind, again = f"{typed(w)}, {group}, {bits}", blank(w.shape, dtype)
    out, grid = blank((rows, count * bits // 8), np.uint8), (w.size // max(1, group // 32), 1, 1)

    def run(kernel: str, grid: tuple[int, int, int], *arrays: Array) -> None:
        mlx.run(QUANTIZED[name], kernel, grid, block(grid), *arrays, constants={200: True, 201: True, 202: True})

    if name == "fp":
        scales, one = blank((rows, count // group), np.uint8), np.ones(1, np.float32)
        run(f"fp_quantize<{kind}, false>", grid, w, out, scales, one)
        run(f"fp_dequantize<{kind}, false>", (out.size, 1, 1), out, scales, one, again)
        elements = out if bits == 8 else np.stack((out & 15, out >> 4), -1).reshape(rows, count)
        size = scaled(scales, group).repeat(group, 1)
        expected, both = decoded(elements.astype(np.int64), bits) * size, blank(w.shape, dtype)
        run(f"fp_quantize_dequantize<{kind}, false>", grid, w, one, both)
        # Half a step between neighbours, and a scale of 8 bits that was rounded.
        step = np.abs(wide(w)) / (3.9 if bits == 4 else 15) + size * (0.26 if bits == 4 else 2**-9)
        step = step + (group == 16) * (np.abs(w) / 8 + size * 0.5)
        exact = rounded(expected, dtype)
        return [Compared(again, *exact), Compared(both, *exact), Compared(expected, wide(w), step)]
    scales, biases = (blank((rows, count // group), dtype) for _ in range(2))
    run(f"affine_quantize<{kind}>", grid, w, out, scales, biases)
    stream = np.unpackbits(out, axis=-1, bitorder="little").reshape(rows, count, bits)
    numbers = (stream * (1 << np.arange(bits))).sum(-1)
    size, base = (wide(one.repeat(group, 1)) for one in (scales, biases))
    per = {3: 8, 5: 8, 6: 4}.get(bits, 8 // bits)
    run(f"affine_dequantize<{kind}>", (w.size // per, 1, 1), out, scales, biases, again)
    error = (2 * HALF if dtype == np.float16 else EPSILON) * 4 * (np.abs(base) + np.abs(size) * 2**bits)
    # A step of the largest interval, since 0 or an end has a number of its own.
    return [
        Compared(again, numbers * size + base, error),
        Compared(numbers * size + base, wide(w), 1.01 * np.abs(size) + error),
    ]


def width(draw: Draw, format_: str, *bits: int) -> tuple[int, int]:
    """Draw the bits of a weight, of those that are given or of all, and how many weights have a scale."""
    if format_ == "fp":
        found: tuple[int, int] = draw.choice((4, 16), (4, 32), (8, 32))
        return found
    return draw.choice(*(bits or (2, 3, 4, 5, 6, 8))), draw.choice(32, 64, 128)


def coded(
    random: np.random.Generator, shape: Sequence[int], bits: int, group: int, format_: str, dtype: Any
) -> tuple[Array, list[Array], Array, Array]:
    """Return weights in words, their scales and biases, what they are, and the sizes of their terms."""
    elements, of_groups = random.integers(0, 2**bits, shape), (*shape[:-1], shape[-1] // group)
    if format_ == "fp":
        elements = np.where(elements & 127 == 127, 0, elements)  # NaN of 8 bits
        least, most = (124, 129) if group == 32 else (32, 64)
        scales = random.integers(least, most, of_groups, np.uint8)
        weights = decoded(elements, bits) * scaled(scales, group).repeat(group, -1)
        return packed(elements, bits), [scales], weights, np.abs(weights)
    factors = [random.uniform(-0.1, 0.1, of_groups).astype(dtype) for _ in range(2)]
    size, base = (wide(one.repeat(group, -1)) for one in factors)
    return packed(elements, bits), factors, elements * size + base, elements * np.abs(size) + np.abs(base)


def quantized(mlx: Mlx, draw: Draw, *, ragged: bool = False, odd: bool = False) -> Compared:
    """Products with weights of 2 to 8 bits, transposed or not, in short rows, and of gathered matrices."""
    kernels = ("qmm_t", "qmm_n") if odd else ("qmv", "qmv_fast", "qmm_t", "qvm", "qmm_n")
    how = "" if ragged else draw.choice("", "", "gather_")
    name = "qmv_quad" if ragged else draw.choice(*kernels, *["qmv_quad"] * (not how and not odd))
    format_, dtype = "affine" if ragged else "fp" if odd else draw.choice("affine", "fp"), draw.choice(*FLOATS)
    quad, fast, matrix, gathers, many = (
        name == "qmv_quad",
        name == "qmv_fast",
        "qmm" in name,
        bool(how),
        draw.number(1, 3),
    )
    bits, group = (4, 16) if odd else width(draw, format_, *[2, 4, 8] * quad)
    random = np.random.default_rng(draw.number(0, 2**16))
    by_rows = name in ("qvm", "qmm_n")  # groups are along the result
    # The host takes multiples of the group: of 16 also those that are none of 32. Vectors are read by 512.
    of_group = group if odd or name == "qmv" else max(32, group)
    k = 512 * draw.number(1, 2) if fast else draw.choice(64, 128) if quad else of_group * draw.choice(1, 3, 7, 33)
    k = max(k, group)
    n = of_group * draw.choice(1, 3) if by_rows else draw.choice(draw.number(1, 7), 8, 33, 40)
    n = 64 * draw.number(1, 2) if quad and not ragged else 8 * n if fast else n
    batch, m = 4 if gathers else 1, draw.choice(1, 2, 33) if matrix else draw.number(1, 2)
    w, factors, weights, sizes = coded(random, (many, *((k, n) if by_rows else (n, k))), bits, group, format_, dtype)
    x = draw.array(many if gathers else 1, m, k, dtype=dtype, kind="plain")
    pairs = random.integers(0, many, (2, batch), np.uint32) if gathers else np.zeros((2, 1), np.uint32)
    out, left = blank((batch, m, n), dtype), wide(x)[pairs[0]]
    right, magnitude = (one[pairs[1]] if by_rows else one[pairs[1]].swapaxes(1, 2) for one in (weights, sizes))
    numbers = [np.int32(k), np.int32(n), *[np.int32(m)] * matrix]
    about = [np.int32(1), ints(x.shape), steps(x), np.int32(1), ints(w.shape), steps(w), *map(steps, factors)]
    about += [np.int32(1), ints([batch]), longs([1]), longs([1])] * gathers
    flags = [f"{k}"] * quad + [flag(n % 32 == 0)] * (name == "qmm_t") + ["false"] * (not gathers)
    template = f"{format_}_{how}{name}"
    kernel = f"{template}<{', '.join([typed(x), str(group), str(bits), *flags])}>"
    columns = {"qvm": 2 * min(32, group), "qmv_quad": 64}.get(name, 8)
    grid = (-(-n // 32), -(-m // 32), batch) if matrix else (m, -(-n // columns), batch)
    threads = (32, 2, 2) if matrix else (32, 1 if quad else 2, 1)
    whole = mlx.global_scale(template, many)
    buffers = [w, *factors, *whole, x, *(list(pairs) if gathers else []), out, *numbers, *about]
    mlx.run(
        QUANTIZED[format_], kernel, grid, threads, *buffers, whole=True, constants={200: True, 201: True, 202: True}
    )
    bound = (EPSILON * 64 + HALF * 8 * (dtype == np.float16)) * (np.abs(left) @ magnitude)
    return Compared(out, *rounded(left @ right, dtype, bound))


def quantized_parts(mlx: Mlx, draw: Draw) -> Compared:
    """The same for several vectors at once, for parts of the terms, and for rows that are sorted by their matrix."""
    rows = {
        "qmv_wide": (2, 5, 6, 11),
        "qvm_split_k": (1, 2),
        "qmm_t_splitk": (1, 2, 33),
        "gather_qmm_rhs": (16, 17, 40),
    }
    name, format_, dtype = draw.choice(*rows), draw.choice("affine", "fp"), draw.choice(*FLOATS)
    m, (bits, group), template = draw.choice(*rows[name]), width(draw, format_), f"{format_}_{name}"
    random, unit, is_sorted = np.random.default_rng(draw.number(0, 2**16)), max(32, group), name == "gather_qmm_rhs"
    many = draw.number(1, 3) if is_sorted else 1
    by_rows = name == "qvm_split_k" or (is_sorted and draw.choice(False, True))  # groups are along the result
    n = unit * draw.number(1, 2) if by_rows else draw.choice(draw.number(1, 7), 8, 33, 40)
    parts = draw.number(2, 3) if name == "qmm_t_splitk" else 1
    k = unit * draw.number(1, 3) * parts
    if name == "qvm_split_k":
        k = draw.choice(1024, 1025, 1100, 8200)
        parts = 32 if k > 8192 else 8
    w, factors, weights, sizes = coded(random, (many, *((k, n) if by_rows else (n, k))), bits, group, format_, dtype)
    x, which = draw.array(m, k, dtype=dtype, kind="plain"), np.sort(random.integers(0, many, m))
    # Before 0.32.4 sums of tiles have the type of the vectors.
    single = mlx.has_parameter(QUANTIZED[format_].split()[-1], template, "device float* y")
    out = blank((parts, m, n), np.float32 if single else dtype)
    given, one, each = [w, *factors, *mlx.global_scale(template, many)], np.int32(1), -(-k // parts)
    known: dict[int | str, Any] = {200: m % 16 == 0, 201: n % 32 == 0, 202: k % 32 == 0}
    threads, more, flags = (32, 2, 1), list[Any](), list[Any]()
    if name == "qmv_wide":
        vectors, lanes = -(-m // -(-m // 5)), 16 if format_ == "fp" else 8
        flags, grid = [vectors, lanes, "false"], (-(-m // vectors), -(-n // (64 // lanes)), 1)
        none = one, ints([1]), longs([0])  # of batches
        arguments = [*given, x, out, *map(np.int32, (k, n, m)), *none, *none, *[longs([0])] * len(factors)]
    elif name == "qvm_split_k":
        flags, grid = [parts], (m, -(-n // (2 * min(32, group))), parts)
        jumps = [longs([each * array.shape[-1]]) for array in (w, *factors)]
        more = [one, ints([parts, m, each]), longs([each]), one, ints([parts, each, n]), *jumps]
        arguments = [*given, x, out, np.int32(each), np.int32(n), *more, np.int32(k - (parts - 1) * each)]
    elif name == "qmm_t_splitk":
        flags, grid, threads = [flag(n % 32 == 0)], (-(-n // 32), -(-m // 32), parts), (32, 2, 2)
        arguments = [*given, x, out, *map(np.int32, (k, n, m, each, m * n))]
    else:
        groups: Array = which.astype(np.uint32)
        flags, grid = ["16, 32, 32, 1, 2", flag(not by_rows)], (-(-n // 32), -(-m // 16), 1)
        if mlx.has_parameter(QUANTIZED[format_].split()[-1], template, "num_groups"):  # as in gather_mm_rhs
            groups = np.searchsorted(which, np.arange(many)).astype(np.int32)
            more, grid = [np.int32(many)], (grid[0], grid[1] + many, 1)
        arguments = [x, *given, groups, out, *map(np.int32, (m, n, k)), *more]
    kernel = f"{template}<{', '.join(map(str, (typed(x), group, bits, *flags)))}>"
    mlx.run(QUANTIZED[format_], kernel, grid, threads, *arguments, whole=True, constants=known)
    left, (right, magnitude) = wide(x)[:, None], (array[which] for array in (weights, sizes))
    right, magnitude = (array if by_rows else array.swapaxes(1, 2) for array in (right, magnitude))
    bound = (EPSILON * 64 + HALF * 8 * (dtype == np.float16)) * (np.abs(left) @ magnitude)
    return Compared(out.sum(0, dtype=np.float64), *rounded((left @ right)[:, 0], dtype, bound[:, 0]))


def gemm(mlx: Mlx, draw: Draw, *, back: bool = False) -> Compared:
    """Products, plain, by gathered matrices, of segments or of parts of the terms, and with masks of blocks."""
    name = "gather_mm" if back else draw.choice(*STEEL)
    dtype = draw.choice(*FLOATS)
    flips = name != "gather_mm_rhs" and draw.choice(False, True), draw.choice(False, True)
    m, n, k = (draw.choice(1, 15, 17, 64, 65) for _ in range(3))
    k, many = k if name != "gemm_splitk" else draw.choice(40, 64, 100, 513), draw.number(1, 3)
    random, kind = np.random.default_rng(draw.number(0, 2**16)), TYPES[np.dtype(dtype).name]
    b = draw.array(many, *((n, k) if flips[1] else (k, n)), dtype=dtype, kind="plain")
    stack = [many] if name in ("gemm", "gather_mm") else []
    a = draw.array(*stack, *((k, m) if flips[0] else (m, k)), dtype=dtype, kind="plain")
    left, right = (wide(one).swapaxes(-1, -2) if flip else wide(one) for one, flip in zip((a, b), flips, strict=True))
    words: dict[str, Any] = {"flips": flips, "blocks": (64, 64, 16, 2, 2)}
    if name == "gemm":
        out = blank((many, m, n), dtype)
        fused = (mlx.marker_file.with_name("steel") / "gemm/kernels/steel_gemm_fused.h").read_text()
        words["constants"] = {i: False for i in (10, 100, 110, 300) if f"function_constant({i})" in fused}
        words |= {"batch": many, "batch_stride_a": m * k, "batch_stride_b": n * k}
        mlx.steel(f"gemm<{kind}, BLOCKS>", a, b, out, **words)
        x, y = left, right
    elif name == "gather_mm":
        pairs = random.integers(0, many, (2, 4), np.uint32)
        if back:
            b, right, many = np.concatenate((b, b))[::-1], np.concatenate((right, right))[::-1], 2 * many
        out = blank((4, m, n), dtype)
        about = [x for one in (a, b) for x in (np.int32(1), ints([len(one)]), steps(one)[:1])]
        words |= {"constants": {10: False}, "batch": 4, "batch_stride_a": 1, "batch_stride_b": 1}
        more = [ints([4]), longs([1]), longs([1]), *about]
        mlx.steel(f"gather_mm<{kind}, BLOCKS>", a, b, out, *pairs, more=more, **words)
        x, y = left[pairs[0]], right[pairs[1]]
    elif name == "gather_mm_rhs":
        indices, out = np.sort(random.integers(0, many, m, np.uint32)), blank((m, n), dtype)
        words |= {"blocks": (16, 64, 16, 1, 2), "batch_stride_b": b[0].size}
        groups: Array = indices
        if "num_groups" in (mlx.marker_file.with_name("steel") / "gemm/kernels/steel_gemm_gather.h").read_text():
            # Since 0.32.4 where the rows of each matrix begin; a matrix has tiles of its own.
            groups = np.searchsorted(indices, np.arange(many)).astype(np.int32)
            words |= {"more": [np.int32(many)], "tiles_m": -(-m // 16) + many}
        mlx.steel(f"gather_mm_rhs<{kind}, BLOCKS>", a, b, out, groups, **words)
        x, y = left[:, None], right[indices]
    elif name == "segmented_mm":
        ends, out = np.sort(random.integers(0, k + 1, (many, 2)).astype(np.uint32), 1), blank((many, m, n), dtype)
        mlx.steel(f"segmented_mm<{kind}, BLOCKS>", a, b[0], out, ends, constants={199: True}, batch=many, **words)
        inside = [(np.arange(k) >= first) & (np.arange(k) < last) for first, last in ends]
        x, y = np.stack([left * one for one in inside]), right[0]
    elif name == "gemm_splitk":
        out, x, y = blank((m, n), dtype), left, right[0]
        sides, parts = [16 if one < 40 else 32 for one in (m, n)], draw.choice(2, 4)
        some, size = blank((parts, m, n)), k // 16 // parts * 16
        aligned = ", ".join(map(flag, (m % sides[0] == n % sides[1] == 0, k % 16 == 0)))
        words |= {"blocks": (*sides, 16, 2, 2), "batch": parts, "split_k_partitions": parts}
        words |= {"gemm_k_iterations_aligned": size // 16, "split_k_partition_stride": m * n}
        mlx.steel(f"gemm_splitk<{kind}, float, BLOCKS, {aligned}>", a, b[0], some, split_k_partition_size=size, **words)
        headers, grid = "steel/gemm/gemm.h steel/gemm/kernels/steel_gemm_splitk.h", (n, m, 1)
        numbers, more = (np.int32(parts), np.int32(m * n), np.int32(n)), draw.choice(False, True)
        c, scales = draw.array(m, n, dtype=dtype, kind="plain"), (np.float32(0.5), np.float32(2))
        rest = (c, np.int32(n), np.int32(1), *scales) if more else ()
        kernel = f"gemm_splitk_accum{'_axpby' * more}<float, {kind}>"
        mlx.run(headers, kernel, grid, block(grid), some, out, *numbers, *rest)
        size_of = np.abs(x) @ np.abs(y) + np.abs(c) * more
        error = EPSILON * 64 * size_of + HALF * 8 * size_of * more * (dtype == np.float16)
        return Compared(out, *rounded(0.5 * (x @ y) + 2.0 * c if more else x @ y, dtype, error))
    else:
        out, side, shapes = blank((many, m, n), dtype), draw.choice(32, 64), ((m, n), (m, k), (k, n))
        masks = [random.integers(0, 2, (-(-i // side), -(-j // side))) > 0 for i, j in shapes]
        whole = [one.repeat(side, 0).repeat(side, 1)[:i, :j] for one, (i, j) in zip(masks, shapes, strict=True)]
        aligned = ", ".join(map(flag, (m % side == n % side == 0, k % 16 == 0)))
        strides = ints([i for one in masks for i in (1, one.shape[1])])
        batch = [ints([many]), longs([0, b[0].size, 0, 0, 0]), *masks, strides]
        words |= {"blocks": (side, side, 16, 2, 2), "batch": many, "batch_stride_b": b[0].size}
        mlx.steel(f"block_masked_gemm<{kind}, bool, bool, BLOCKS, {aligned}>", a, b, out, more=batch, **words)
        expected, bound = product(left * whole[1], right * whole[2], dtype)
        return Compared(out, np.where(whole[0], expected, 0), bound)
    expected, bound = product(x, y, dtype)
    return Compared(out, expected.reshape(out.shape), bound.reshape(out.shape))


def dot(mlx: Mlx, draw: Draw) -> Compared:
    """Products of two vectors by several threadgroups."""
    dtype, n = draw.choice(*FLOATS), draw.choice(1, 3, 8, 33, 1025, 4100, 16385, 40000)
    a, b = (draw.array(n, dtype=dtype, kind="plain") for _ in range(2))
    out = blank((-(-n // 16384),))
    mlx.run(
        "dot.h", f"dot_product<{typed(a)}, 32, 512, 16>", (out.size * 512, 1, 1), (512, 1, 1), a, b, out, np.int32(n)
    )
    terms = a.astype(np.float64) * b
    return Compared(out.sum(dtype=np.float64)[None], terms.sum()[None], EPSILON * 64 * np.abs(terms).sum())


def hadamard(mlx: Mlx, draw: Draw) -> Compared:
    """Products with matrices of Sylvester, of rows or of strided elements, and with one that the host writes."""
    dtype, power, batch = draw.choice(*FLOATS), draw.choice(1, 3, 4, 6, 10, 11), draw.number(1, 2)
    n, step, scale = 1 << power, draw.choice(1, 1, 4), np.float32(0.25)
    x = draw.array(batch, n, step, dtype=dtype, kind="plain")
    sign, out, radix = np.ones((1, 1)), blank(x.shape, dtype), min(n, 16)
    for _ in range(power):
        sign = np.block([[sign, sign], [sign, -sign]])
    read = 2 if n == 2 else 4
    kernel = f"hadamard_n<{typed(x)}, {n}, {radix}, {read}, {step}>"
    grid, group = (n // radix, batch, step), (n // radix, 1, 1)
    text = "hadamard.h"
    mlx.run(
        text,
        kernel,
        grid,
        group,
        x,
        out,
        scale if step == 1 else np.float32(1),
        prefix="void hadamard_radix_m(thread float *);\n",
    )
    expected = np.einsum("ij,bjs->bis", sign, x.astype(np.float64)) * (scale if step == 1 else 1)
    size = np.abs(x.astype(np.float64)).sum(1, keepdims=True)
    if step > 1 or n > 64:
        return Compared(
            out, *rounded(expected, dtype, (EPSILON if dtype == np.float32 else 2 * HALF * power) * 16 * size)
        )
    m = draw.choice(12, 20, 28)
    signs = np.random.default_rng(m).choice([-1, 1], (m, m))
    terms = [" ".join(f"{'-+'[int(one > 0)]} x[{j}]" for j, one in enumerate(row)) for row in signs]
    lines = "".join(f"t[{i}] = {one};\n" for i, one in enumerate(terms))
    codelet = f"void hadamard_radix_m(thread float *x) {{ float t[{m}];\n{lines}"
    codelet += f"for (int i = 0; i < {m}; i++) x[i] = t[i]; }}\n"
    y = draw.array(batch, m, n, dtype=dtype, kind="plain")
    read, out = 2 if n == 2 or m == 28 else 4, blank(y.shape, dtype)
    group = (min(n // read, 256), 1, 1)
    grid = (group[0], y.size // m // read // group[0], 1)
    mlx.run(text, f"hadamard_m<{typed(y)}, {n}, {m}, {read}>", grid, group, y, out, scale, prefix=codelet)
    expected = np.einsum("ij,bjn->bin", signs, y.astype(np.float64)) * scale
    return Compared(out, *rounded(expected, dtype, EPSILON * 64 * np.abs(y.astype(np.float64)).sum(1, keepdims=True)))


def indexing(mlx: Mlx, draw: Draw) -> Compared:
    """Elements of an axis, of rows and behind a mask, read and written by indices, also negative ones."""
    name = draw.choice("gather_axis", "gather_front", "scatter_axis", "masked_assign_impl", "slice_update_op_impl")
    dtype, index = draw.choice(*FLOATS, np.int32, np.uint32), draw.choice(np.int32, np.uint32, np.int64, np.uint8)
    kind, large = "ties" if dtype not in FLOATS else None, draw.choice("int", "int64_t")
    random, pre, post = np.random.default_rng(draw.number(0, 2**16)), draw.number(1, 3), draw.choice(1, 3, 33, 70)
    rows, count = draw.number(1, 9), draw.number(1, 12)
    headers, t, i = (
        f"atomic.h reduction/ops.h indexing/{name.replace('_impl', '').replace('assign', 'scatter')}.h",
        TYPES[np.dtype(dtype).name],
        TYPES[np.dtype(index).name],
    )
    src = draw.array(pre, rows, post, dtype=dtype, kind=kind)
    least = 0 if np.dtype(index).kind == "u" else -rows
    where = random.integers(least, rows, (pre, count, post)).astype(index)
    if name == "gather_front":
        many = 2 if post > 8 and np.dtype(dtype).itemsize < 4 else 1
        flat, out = where[:, :, 0].ravel(), blank((pre * count, post), dtype)
        grid = (-(-post // many), flat.size, 1)
        arguments = src[0].copy(), flat, out, np.int64(post), np.int32(rows)
        mlx.run(headers, f"gather_front<{t}, {i}, {large}, {many}>", grid, block(grid), *arguments)
        return Compared(out, src[0][flat.astype(np.int64)])
    if name in ("gather_axis", "scatter_axis"):
        swapped = [draw.choice(False, True) for _ in range(2)]
        data = src if name == "gather_axis" else draw.array(*where.shape, dtype=dtype, kind=kind)
        if name == "scatter_axis":  # each place once
            where = np.argsort(random.random((pre, max(count, rows), post)), 1)[:, :count].astype(index) % rows
            where, data = where[:, : min(count, rows)], data[:, : min(count, rows)]
            where = np.argsort(random.random((pre, rows, post)), 1)[:, : where.shape[1]].astype(index)
        pair = [
            np.ascontiguousarray(one.transpose(2, 1, 0)).transpose(2, 1, 0) if flip else np.ascontiguousarray(one)
            for one, flip in zip((data, where), swapped, strict=True)
        ]
        out = blank(where.shape, dtype) if name == "gather_axis" else src.copy()
        flags = ", ".join(str(one.flags.c_contiguous).lower() for one in pair)
        rest = [np.delete(one, 1) for one in (ints(where.shape), steps(pair[0]), steps(pair[1]))]
        ends = [np.uint64(steps(one)[1]) for one in pair]
        numbers = np.uint64(2), np.int32(1), np.int32(rows), *ends
        grid = (post, where.shape[1], pre)
        adds = name == "scatter_axis" and draw.choice(False, True)
        op = "" if name == "gather_axis" else f"Sum<{t}>, " if adds else "None, "
        kernel = f"{name}<{t}, {i}, {large}, {op}{flags}>"
        mlx.run(headers, kernel, grid, block(grid), *map(at, pair), out, *rest, *numbers)
        at_index = where.astype(np.int64) % rows
        if name == "gather_axis":
            return Compared(out, np.take_along_axis(src, at_index, 1))
        with np.errstate(all="ignore"):
            expected = src.copy()
            before = np.take_along_axis(src, at_index, 1)
            np.put_along_axis(expected, at_index, before + data if adds else data, 1)
        return Compared(out, expected)
    if name == "masked_assign_impl":
        mask: Array = random.integers(0, 2, (pre, rows * post)) > 0
        out = src.reshape(pre, -1).copy()
        offsets = (np.cumsum(mask, 1) - mask).astype(np.uint32)
        size = max(1, int(mask.sum(1).max()))
        values = (
            draw.array(size, pre, dtype=dtype, kind=kind).T
            if draw.choice(False, True)
            else draw.array(pre, size, dtype=dtype, kind=kind)
        )
        about = ints(values.shape), steps(values), np.int32(2), np.int64(size), np.int64(rows * post)
        kernel, grid = f"masked_assign_impl<{t}, {str(values.flags.c_contiguous).lower()}>", (mask.size, 1, 1)
        mlx.run(headers, kernel, grid, block(grid), mask, offsets, at(values), out, *about)
        taken = np.take_along_axis(values, np.minimum(offsets, size - 1).astype(np.int64), 1)
        return Compared(out, np.where(mask, taken, src.reshape(pre, -1)))
    axes = draw.number(1, 4)
    room = *(draw.number(1, 4) for _ in range(axes - 1)), draw.choice(1, 2, 6, 8, 33)
    target = draw.array(*(2 * n for n in room), dtype=dtype, kind=kind)
    view = target[tuple(slice(draw.choice(0, 1), None, 2) for _ in room)]
    view = view[..., ::-1] if draw.choice(False, True) else view
    update, scalar = views(draw, room, dtype, kind), draw.choice(False, False, True)
    update = draw.array(*[1] * axes, dtype=dtype, kind=kind) if scalar else update
    operation, function = draw.choice(("Sum", np.add), ("Max", np.maximum), ("Min", np.minimum), ("Prod", np.multiply))
    with np.errstate(all="ignore"):
        expected = target.copy()
        there = np.ndarray(view.shape, dtype, expected, owner(view)[1], view.strides)
        there[...] = function(there, update)
    many, last = 4 if room[-1] % 4 == 0 else 2 if room[-1] % 2 == 0 else 1, room[-1]
    ndim, dense = 0 if axes > 3 else axes, update.flags.c_contiguous
    flags = f"false, {str(dense).lower()}, {str(scalar).lower()}, {many}, {ndim}"
    grid = (last // many, *lengths(room)[1:])
    numbers = (
        ints(room),
        steps(np.broadcast_to(update, room)),
        np.int32(axes),
        np.int64(math.prod(room)),
        steps(view),
        np.int64(owner(view)[1] // view.itemsize),
    )
    mlx.run(
        headers.replace("slice_update_op", "scatter"),
        f"slice_update_op_impl<{t}, {large}, {operation}<{t}>, {flags}>",
        grid,
        block(grid),
        at(update),
        target,
        *numbers,
    )
    return Compared(target, expected)


def fft(mlx: Mlx, draw: Draw, *, ragged: bool = False) -> list[Compared]:
    """Fourier transforms: of products of small primes, of primes by Rader's and by Bluestein's ways, in two steps."""
    way, back = (
        "fft" if ragged else draw.choice("fft", "fft", "rader", "bluestein", "four_step"),
        draw.choice(False, True),
    )
    of_two = 2, 4, 8, 16, 64, 256, 512, 1024
    n = {"rader": 17, "bluestein": 19, "four_step": 8192}.get(way) or draw.choice(*of_two, 5, 7, 11, 13, 27, 30, 100)
    real = way == "fft" and not back and draw.choice(False, True)
    # Threadgroups are full: see FINDINGS.
    batch = (
        1 if way == "four_step" else max(256 // (64 if way == "bluestein" else n), 1) * draw.number(1, 2) * (1 + real)
    )
    batch = 3 if ragged else batch
    parts = draw.array(batch, n, 1 if real else 2, kind="plain")
    x, out = parts.reshape(batch, -1), blank((batch, (n // 2 + 1 if real else n) * 2))
    z = wide(parts) @ [1] if real else wide(parts) @ [1, 1j]
    expected = np.fft.rfft(z) if real else np.fft.ifft(z) if back else np.fft.fft(z)
    kinds, length = "float, float2" if real else "float2, float2", 64 if way == "bluestein" else n

    def run(
        kernel: str,
        length: int,
        source: Array,
        to: Array,
        *arrays: Any,
        count: int = batch,
        plan: int = 0,
        rader: int = 0,
    ) -> None:
        radices = 13, 11, 8, 7, 6, 5, 4, 3, 2
        known: dict[int | str, Any] = {
            0: back,
            1: length & (length - 1) == 0,
            3: plan // rader if rader else 0,
            22: False,
        }
        used = list[int]()
        for first, rest in ((4, length // rader if rader else length), (13, rader - 1 if rader else 1)):
            for i, radix in enumerate(radices):
                known[first + i] = 0
                while rest % radix == 0 and not (radix > 4 and length & (length - 1) == 0 and length < 512):
                    known[first + i], rest, used = known[first + i] + 1, rest // radix, [*used, radix]
        each = sorted(set(used))[len(set(used)) // 2]
        many, known[2] = max(256 // length, 1), each
        many = max(many, 4) if "step" in kernel else many
        memory, threads = 1 << (many * length - 1).bit_length(), -(-length // each)
        grid = (-(-(-(-count // 2) if real else count) // many), many, threads)
        kernel = kernel.replace("SIZE", str(max(256, memory)))
        mlx.run("fft.h", kernel, grid, (1, many, threads), source, to, *arrays, constants=known)

    ends = np.int32(n), np.int32(batch)
    if way == "fft":
        run(f"fft<SIZE, {kinds}>", n, x, out, *ends)
    elif way == "rader":
        powers = 3 ** np.arange(n - 1) % n  # of a primitive root
        inverse = np.roll(powers[::-1], 1)
        b = np.fft.fft(np.exp(-2j * np.pi * inverse / n)).astype(np.complex64).view(np.float32)
        run(
            f"rader_fft<SIZE, {kinds}>",
            n,
            x,
            out,
            b,
            powers.astype(np.int16),
            inverse.astype(np.int16),
            *ends,
            np.int32(n),
            plan=n,
            rader=n,
        )
    elif way == "bluestein":
        w = np.exp(-1j * np.pi / n * np.arange(1 - n, n) ** 2.0)
        filters = np.fft.fft(1 / w, length), w[n - 1 :]
        tables = [one.astype(np.complex64).view(np.float32) for one in filters]
        run(f"bluestein_fft<SIZE, {kinds}>", length, x, out, *tables, np.int32(n), np.int32(length), np.int32(batch))
    else:
        some, sides = blank(x.shape), (np.int32(64), np.int32(128))
        for step, (source, to) in enumerate(((x, some), (some, out))):
            count = batch * n // int(sides[step])
            run(
                f"four_step_fft<SIZE, {kinds}, {step}>",
                int(sides[step]),
                source,
                to,
                *sides,
                np.int32(count),
                count=count,
            )
    size = EPSILON * 32 * np.abs(z).sum(1, keepdims=True) / (n if back else 1)
    table = blank((584, 2))
    mlx.run("fft.h", "generate_bluestein_twiddles", (584, 1, 1), (584, 1, 1), table)
    angles = np.concatenate([np.arange(p) / (8 * p) for p in (8, 64, 512)])
    twiddles = np.exp(-2j * np.pi * angles)
    got = out.reshape(batch, -1, 2)
    return [
        Compared(got[..., 0], expected.real, size), Compared(got[..., 1], expected.imag, size),
        Compared(table, np.stack((twiddles.real, twiddles.imag), 1), 1e-6),
    ]  # fmt: skip


def cross_entropy(mlx: Mlx, draw: Draw) -> list[Compared]:
    """Cross entropies of rows and their gradients."""
    dtype = draw.choice(*FLOATS)
    x = draw.array(*rows(draw), dtype=dtype, kind="plain")
    count, length = x.shape
    targets = np.random.default_rng(draw.number(0, 99)).integers(0, length, count, np.int32)
    loss, out, g = blank((count,)), blank(x.shape, dtype), draw.array(count, kind="plain")
    group, size = min(MOST_THREADS, rounded_up(-(-length // 4), 32)), np.int32(length)
    grid = (count * group, 1, 1)
    mlx.run("cross_entropy.h", f"cross_entropy<{typed(x)}>", grid, (group, 1, 1), x, targets, loss, size)
    total, place = oracles.logsumexp(wide(x)), (np.arange(count), targets)
    expected, unit = total - wide(x)[place], EPSILON * (64 + length / 16)
    kernel = f"cross_entropy_vjp<{typed(x)}>"
    mlx.run("cross_entropy.h", kernel, grid, (group, 1, 1), x, targets, loss, g, out, size)
    gradient = np.exp(wide(x) - total[:, None])
    gradient[place] -= 1
    bound = unit * 8 * np.abs(g)[:, None]
    return [
        Compared(loss, expected, unit * (1 + np.abs(total) + np.abs(expected))),
        Compared(out, *rounded(gradient * g[:, None], dtype, bound)),
    ]


def attention_parts(mlx: Mlx, draw: Draw) -> list[Compared]:
    """The copy of scaled queries, and the causal mask, of attention by products of matrices."""
    dtype, batch, heads, count, size = draw.choice(*FLOATS), draw.number(1, 2), draw.number(1, 3), draw.number(1, 9), 64
    q, first = (
        draw.array(batch, count + 3, heads, size, dtype=dtype, kind="plain").transpose(0, 2, 1, 3),
        draw.number(0, 3),
    )
    out, grid = blank((batch, heads, count, size), dtype), (size, count, batch * heads)
    numbers = np.float32(0.125), steps(q)[:3], *map(np.int32, (heads, count, size, first))
    mlx.run("sdpa_blocked.h", f"sdpa_blocked_scale_copy<{typed(q)}>", grid, block(grid), at(q), out, *numbers)
    columns = count + draw.number(0, 5)
    scores = draw.array(batch * heads * count, columns, dtype=dtype, kind="plain")
    expected, rows = scores.copy(), np.arange(len(scores)) % count
    expected[:, columns - count :][np.arange(count) > rows[:, None]] = np.finfo(dtype).min
    grid = (count, len(scores), 1)
    sizes = np.int32(count), np.int32(columns)
    mlx.run("sdpa_blocked.h", f"sdpa_blocked_causal_mask<{typed(q)}>", grid, block(grid), scores, *sizes)
    copied = wide(q[:, :, first : first + count]) * 0.125
    return [Compared(out, copied.astype(dtype)), Compared(scores, expected)]


def full_attention(mlx: Mlx, draw: Draw) -> Compared:
    """Attention of many queries by blocks, with masks, the causal order, sinks and shared heads."""
    dtype, size, shared, of = draw.choice(*FLOATS), draw.choice(64, 128), draw.choice(1, 2), draw.number(1, 2)
    batch, count, keys = draw.number(1, 2), draw.choice(1, 8, 33, 64), draw.choice(1, 31, 64, 70)
    heads, how = of * shared, draw.choice("none", "causal", "bool", "float")
    keys = max(keys, count) if how == "causal" else keys
    q, k, v = (
        draw.array(batch, h, n, size, dtype=dtype, kind="plain") for h, n in ((heads, count), (of, keys), (of, keys))
    )
    mask = draw.array(batch, heads, count, keys, dtype=dtype, kind="plain") if how in ("bool", "float") else None
    mask = mask > -3 if mask is not None and how == "bool" else mask
    sinks, out, scale = (
        draw.choice(None, draw.array(heads, dtype=dtype, kind="plain")),
        blank(q.shape, dtype),
        1 / math.sqrt(size),
    )
    bq, bk = 32, 16 if size == 128 else 32
    values: dict[str, Any] = {
        "B": batch,
        "H": heads,
        "D": size,
        "qL": count,
        "kL": keys,
        "gqa_factor": shared,
        "scale": scale,
    }
    values |= {"NQ": -(-count // bq), "NK": -(-keys // bk), "NQ_aligned": count // bq, "NK_aligned": keys // bk}
    values |= {"qL_rem": count % bq, "kL_rem": keys % bk, "qL_off": keys - count}
    values |= {f"{name}_strides": steps(one)[:3] for name, one in (("Q", q), ("K", k), ("V", v), ("O", out))}
    params = mlx.struct("attn/params.h", "AttnParams", values)
    known: dict[int | str, Any] = {
        200: count % bq == 0,
        201: keys % bk == 0,
        300: mask is not None,
        301: how == "causal",
    }
    known |= {302: sinks is not None, 303: False}
    more = [] if mask is None else [mlx.struct("attn/params.h", "AttnMaskParams", {"M_strides": steps(mask)[:3]}), mask]
    headers, grid = "steel/attn/kernels/steel_attention.h", (values["NQ"], heads, batch)
    # Before 0.32 values are as wide as queries.
    text = mlx.marker_file.with_name("steel").joinpath("attn/kernels/steel_attention.h").read_text()
    widths = f"{size}, {size}" if "int BV," in text else f"{size}"
    kinds = f"{typed(q)}, {bq}, {bk}, {widths}, 4, 1, {'bool' if how == 'bool' else typed(q)}, float"
    arguments = q, k, v, out, params, *more, *([] if sinks is None else [sinks])
    mlx.run(headers, f"attention<{kinds}>", grid, (32, 4, 1), *arguments, whole=True, constants=known)
    causal = keys - count if how == "causal" else None
    expected = oracles.attention(q, k, v, scale, mask=mask, sinks=sinks, causal=causal)
    error = (EPSILON * 256 + HALF * 8 * (dtype == np.float16)) * np.abs(wide(v)).max()
    return Compared(out, *rounded(expected, dtype, error))


def conv_params(
    mlx: Mlx, x: Array, w: Array, out: Array, kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int],
    dilations: Sequence[int], holes: Sequence[int] = (1, 1, 1), flip: bool = False,
) -> Array:  # fmt: skip
    """Return the struct of a convolution, channels last, in which the input may be dilated and the weights flipped."""
    axes = len(kernel)
    values: dict[str, Any] = {"N": len(x), "C": x.shape[-1], "O": len(w), "groups": 1, "flip": flip}
    values |= {"iS": x.shape[1:-1], "wS": kernel, "oS": out.shape[1:-1], "idil": holes[:axes]}
    values |= {"str": strides, "pad": padding, "kdil": dilations}
    values |= {f"{name}_strides": steps(one) for name, one in (("in", x), ("wt", w), ("out", out))}
    return mlx.struct("conv/params.h", "MLXConvParams", values, axes)


def convolution(mlx: Mlx, draw: Draw) -> Compared:
    """Convolutions of images and volumes, channels last, by products of blocks."""
    axes, dtype, channels = draw.choice(2, 3), draw.choice(*FLOATS), 16 * draw.number(1, 2)
    lengths, kernel = [draw.number(3, 8) for _ in range(axes)], [draw.number(1, 3) for _ in range(axes)]
    strides, padding, dilations = ([draw.number(low, 2) for _ in range(axes)] for low in (1, 0, 1))
    padding = [
        max(p, -(-(d * (k - 1) + 1 - n) // 2)) for p, d, k, n in zip(padding, dilations, kernel, lengths, strict=True)
    ]
    x = draw.array(draw.number(1, 2), *lengths, channels, dtype=dtype, kind="plain")
    w = draw.array(draw.choice(1, 8, 32), *kernel, channels, dtype=dtype, kind="plain")
    about = kernel, strides, padding, dilations
    size = oracles.windows(lengths, *about)
    out = blank((len(x), *size, len(w)), dtype)
    params, bk = conv_params(mlx, x, w, out, *about), 16
    bm, bn = 32, 8 if len(w) <= 8 else 32
    wm, wn = (4, 1) if bn == 8 else (2, 2)
    m, jumps = out.size // len(w), [int(a) * b for a, b in zip(steps(x)[1:-1], dilations, strict=True)]
    back = [jump * (k - 1) for jump, k in zip(jumps, kernel, strict=True)]
    sizes = {"M": m, "N": len(w), "K": w[0].size, "gemm_k_iterations": w[0].size // bk, "tiles_n": -(-len(w) // bn)}
    sizes |= {
        "tiles_m": -(-m // bm),
        "inp_jump_w": jumps[-1],
        "inp_jump_h": jumps[-2] - back[-1],
        "inp_jump_c": bk - sum(back),
    }
    if axes == 3:
        sizes["inp_jump_d"] = jumps[0] - back[1] - back[2]
    of_gemm = mlx.struct("conv/params.h", f"ImplicitGemmConv{axes}DParams", sizes)
    headers = f"steel/conv/conv.h steel/conv/kernels/steel_conv{'_3d' * (axes == 3)}.h"
    flags = ", 0" * (axes == 2) + draw.choice(", true", ", false")
    name = f"implicit_gemm_conv_{axes}d<{typed(x)}, {bm}, {bn}, {bk}, {wm}, {wn}{flags}>"
    grid = (sizes["tiles_n"], sizes["tiles_m"], 1)
    mlx.run(headers, name, grid, (32, wn, wm), x, w, out, params, of_gemm, whole=True)
    first, second = (np.moveaxis(one, -1, 1) for one in (x, w))
    expected, bound = (np.moveaxis(one, 1, -1) for one in oracles.convolution(oracles.patches(first, *about), second))
    return Compared(out, *rounded(expected, dtype, EPSILON * 64 * bound))


def general_convolution(mlx: Mlx, draw: Draw) -> Compared:
    """Convolutions of images with zeros between their elements, of any channels, also with flipped weights."""
    dtype, flip, channels = draw.choice(*FLOATS), draw.choice(False, True), draw.choice(1, 3, 16, 33)
    image, kernel = [draw.number(1, 6) for _ in "yx"], [draw.number(1, 4) for _ in "yx"]
    strides, dilations, holes = ([draw.number(1, 3) for _ in "yx"] for _ in range(3))
    spread = [(n - 1) * hole + 1 for n, hole in zip(image, holes, strict=True)]
    sizes = zip(dilations, kernel, spread, strict=True)
    padding = [max(draw.number(0, 2), -(-(d * (k - 1) + 1 - n) // 2)) for d, k, n in sizes]
    about = kernel, strides, padding, dilations
    x = draw.array(draw.number(1, 2), *image, channels, dtype=dtype, kind="plain")
    w = draw.array(draw.choice(1, 8, 33), *kernel, channels, dtype=dtype, kind="plain")
    out = blank((len(x), *oracles.windows(spread, *about), len(w)), dtype)
    # Windows that are a period apart have the same taps, at equal distances: tables have the first one and the number.
    pairs = [*zip(*about, holes, strict=True)]
    periods, every = ([math.lcm(one[-1], one[i]) // one[i] for one in pairs] for i in (1, 3))
    tables = list[Array]()
    for (k, s, p, d, hole), period, step in zip(pairs, periods, every, strict=True):
        taps = [[j for j in range(k) if (i * s - p + (k - 1 - j if flip else j) * d) % hole == 0] + [k]
                for i in range(period)]  # fmt: skip
        tables.append(ints([(one[0], -(-(k - one[0]) // step)) for one in taps]))
    grid = [-(-n // period) for n, period in zip(out.shape[1:3], periods, strict=True)]
    m = len(x) * math.prod(grid)
    tiles = {"tiles_n": -(-len(w) // 32), "tiles_m": -(-m // 32), "gemm_k_iterations": -(-channels // 16)}
    sizes_of = {"M": out.size // len(w), "N": len(w), "K": w[0].size} | tiles
    structs = (
        conv_params(mlx, x, w, out, *about, holes, flip),
        mlx.struct("conv/params.h", "ImplicitGemmConv2DParams", sizes_of),
    )
    jumps = ints([*every, *periods, *grid, math.prod(grid), m])
    headers = "steel/conv/conv.h steel/conv/kernels/steel_conv_general.h"
    blocks = tiles["tiles_n"], tiles["tiles_m"], math.prod(periods)
    name = f"implicit_gemm_conv_2d_general<{typed(x)}, 32, 32, 16, 2, 2>"
    known: dict[int | str, Any] = {200: channels % 16 == 0}
    arguments = x, w, out, *structs, jumps, *tables
    mlx.run(headers, name, blocks, (32, 2, 2), *arguments, whole=True, constants=known)
    full = np.zeros((len(x), *spread, channels))
    full[:, :: holes[0], :: holes[1]] = x
    first, second = (np.moveaxis(one, -1, 1) for one in (full, w[:, ::-1, ::-1] if flip else w))
    expected, bound = (np.moveaxis(one, 1, -1) for one in oracles.convolution(oracles.patches(first, *about), second))
    return Compared(out, *rounded(expected, dtype, EPSILON * 64 * bound))


def gated_delta(mlx: Mlx, draw: Draw) -> list[Compared]:
    """Gated delta rules, one token after the other and by chunks of eight, and gradients."""
    batch, of, shared, dk, dv, every = (
        draw.number(1, 2),
        draw.number(1, 2),
        draw.choice(1, 2),
        draw.choice(32, 64),
        8,
        4,
    )
    heads, tokens = of * shared, draw.choice(1, 5, 9)
    q, k = (draw.array(batch, tokens, of, dk, kind="plain") * np.float32(0.3) for _ in range(2))
    v, co = (draw.array(batch, tokens, heads, dv, kind="plain") for _ in range(2))
    g, beta = (1 / (1 + np.exp(draw.array(batch, tokens, heads, kind="plain"))) for _ in range(2))
    state, ch = (draw.array(batch, heads, dv, dk, kind="plain") for _ in range(2))
    y, last, parts = blank(v.shape), blank(state.shape), -(-tokens // every)
    kept, kinds = blank((batch * heads, parts, dv, dk)), f"<float, {dk}, {dv}, {of}, {heads}, {every}>"
    grid, group, length = (32, dv, batch * heads), (32, 4, 1), np.int32(tokens)
    arguments = q, k, v, state, g, beta, y, last, length, kept
    headers = "atomic.h gated_delta_update.h"
    mlx.run(headers, f"gated_delta_seq{kinds}", grid, group, *arguments, constants={200: True})
    chunks, kernel = [blank(v.shape), blank(state.shape)], f"gated_delta_fused_chunk{kinds.replace('4>', '8>')}"
    blocks = 32, dv // 8, batch * heads
    mlx.run(headers, kernel, blocks, group, q, k, v, state, g, beta, *chunks, length, constants={200: True})
    made = [
        blank(v.shape) if one is v else blank(state.shape) if one is state else np.zeros_like(one)
        for one in (q, k, v, g, beta, state)
    ]
    given = q, k, v, g, beta, co, ch, kept, length, *made
    mlx.run(
        f"{headers} gated_delta_update_vjp.h", f"gated_delta_vjp_seq{kinds}", grid, group, *given, constants={200: True}
    )
    left, right = (np.repeat(wide(one), shared, 2) for one in (q, k))
    z, outs, entered = wide(state), [], []
    for t in range(tokens):  # rows of the state belong to elements of v
        entered.append(z)
        z = z * g[:, t, :, None, None]
        change = beta[:, t, :, None] * (v[:, t] - np.einsum("bhvk,bhk->bhv", z, right[:, t]))
        z = z + change[..., None] * right[:, t, :, None]
        outs.append(np.einsum("bhvk,bhk->bhv", z, left[:, t]))
    expected, h = (
        [np.zeros(left.shape), np.zeros(left.shape), np.zeros(v.shape), np.zeros(g.shape), np.zeros(g.shape)],
        wide(ch),
    )
    for t in reversed(range(tokens)):
        decayed, kt, b = entered[t] * g[:, t, :, None, None], right[:, t, :, None], beta[:, t]
        rest = v[:, t] - (decayed * kt).sum(-1)
        h = h + co[:, t, ..., None] * left[:, t, :, None]
        after, w = decayed + (b[..., None] * rest)[..., None] * kt, (h * kt).sum(-1)
        expected[0][:, t], expected[2][:, t] = (after * co[:, t, ..., None]).sum(2), b[..., None] * w
        expected[1][:, t] = (h * (b[..., None] * rest)[..., None] - (b[..., None] * w)[..., None] * decayed).sum(2)
        expected[4][:, t] = (w * rest).sum(-1)
        h = h - (b[..., None] * w)[..., None] * kt
        expected[3][:, t] = (h * entered[t]).sum((2, 3))
        h = h * g[:, t, :, None, None]
    for i in (0, 1):  # of heads with the same queries and keys
        expected[i] = expected[i].reshape(batch, tokens, of, shared, dk).sum(3)
    forward = [np.stack(outs, 1), z]
    pairs = [*zip((y, last, *chunks, *made), (*forward, *forward, *expected, h), strict=True)]
    return [Compared(got, one, EPSILON * 256 * tokens * (1 + np.abs(one).max())) for got, one in pairs]


def other_gemv(mlx: Mlx, draw: Draw, *, ragged: bool = False) -> Compared:
    """Products of gathered matrices with gathered vectors, and of transposes with masks."""
    names = ["gemv_t_gather"] if ragged else ["gemv_gather", "gemv_t_gather", "gemv_t_masked"]
    name, dtype, rows = draw.choice(*names), draw.choice(*FLOATS), draw.choice(*([] if ragged else [4]), 33, 64)
    flip = "_t" in name
    # Threadgroups of transposes are full if there is more than a block of rows: see FINDINGS.
    columns = 4 if ragged else draw.choice(31, 64, *[4] * (not flip or rows < 32))
    length, size = (rows, columns) if flip else (columns, rows)
    if name == "gemv_t_masked":
        matrix, vector = draw.array(rows, columns, kind="plain"), draw.array(rows, kind="plain")
        masks = [draw.array(*n, kind="ties", dtype=np.int32) > 0 for n in ((2,), (2, 2), (2,))]
        over = [np.repeat(masks[0], 32)[:columns], masks[1].repeat(32, 0).repeat(32, 1)[:rows, :columns]]
        out, strides = blank((columns,)), ints([1, 1, 1, 2, 1, 1])
        numbers = np.int32(rows), np.int32(columns), np.int32(columns), np.int32(1), ints([1]), longs([0]), longs([0])
        kernel, about = "gemv_t_masked<float, bool, bool, 1, 1, 8, 4, 4, 4, false>", (*masks, strides, longs([0, 0, 0]))
        mlx.run(
            "gemv_masked.h",
            kernel,
            (-(-columns // 16), 1, 1),
            (32, 1, 1),
            matrix,
            vector,
            out,
            *numbers,
            *about,
            whole=True,
        )
        left = (wide(matrix) * over[1]).T
        expected, bound = product(left, (wide(vector) * np.repeat(masks[2], 32)[:rows])[:, None], np.float32)
        return Compared(out, expected[:, 0] * over[0], bound[:, 0])
    matrices, vectors = (
        draw.array(3, rows, columns, dtype=dtype, kind="plain"),
        draw.array(2, length, dtype=dtype, kind="plain"),
    )
    random, count = np.random.default_rng(draw.number(0, 99)), draw.number(1, 4)
    which = [random.integers(0, n, count, np.uint32) for n in (2, 3)]
    out, one, sm, sn = blank((count, size), dtype), np.int32(1), *((8, 4) if flip else (1, 32))
    tiles = (1, 2, sm, sn, 4, 4) if flip else (4, 1, sm, sn, 4, 4)
    per = 2 * sn * 4 if flip else 4 * sm * 4
    sizes = np.int32(length), np.int32(size), np.int32(columns), np.float32(1), np.float32(0)
    batch = one, ints([count]), longs([1, 1]), one, ints([2]), longs([length]), one, ints([3]), longs([rows * columns])
    kernel, group = f"{name}<{typed(out)}, {', '.join(map(str, tiles))}>", (32, *tiles[1::-1])
    unused = np.zeros(1, dtype)
    arguments = matrices, vectors, unused, out, *sizes, *batch, *which
    mlx.run(
        "steel/utils.h gemv.h",
        kernel,
        (-(-size // per), 1, count),
        group,
        *arguments,
        whole=True,
        constants={0: False, 1: False},
    )
    left = wide(matrices)[which[1]]
    expected, bound = product(left.swapaxes(1, 2) if flip else left, wide(vectors)[which[0]][..., None], dtype)
    return Compared(out, expected[..., 0], bound[..., 0])


def wide_gemv(mlx: Mlx, draw: Draw) -> Compared:
    """Products of matrices with several vectors at once, also scaled and added to others, and of gathered ones."""
    gathers, m, n = draw.choice(False, True), draw.number(2, 15), draw.choice(2, 33, 66)
    adds, k, passes = not gathers and draw.choice(False, True), 4 * draw.choice(1, 8, 25, 257), -(-m // 5)
    vectors, matrices = (draw.array(3, one, k, dtype=np.float16, kind="plain") for one in (m, n))
    count, one = 4 if gathers else 3, np.int32(1)
    random, out = np.random.default_rng(draw.number(0, 99)), blank((count, m, n), np.float16)
    pairs = random.integers(0, 3, (2, count), np.uint32) if gathers else np.stack([np.arange(3)] * 2)
    lanes = 32 if passes == 1 or n <= 64 else 16
    kernel = f"gemv_wide{'_gather' * gathers}<half, {-(-m // passes)}, {lanes}>"
    c, jumps = draw.array(count, m, n, dtype=np.float16, kind="plain"), (longs([m * k]), longs([n * k]))
    three = (one, ints([3]))
    batch = (*three, *jumps) if not gathers else (
        one, ints([count]), longs([1, 1]), *three, jumps[0], *three, jumps[1], *pairs
    )  # fmt: skip
    scales, more = (np.float32(0.5), np.float32(2)), (longs([m * n]), np.int32(n), one)
    mlx.run(
        "steel/utils.h gemv.h", kernel, (draw.choice(1, passes), -(-n // 4), count), (32, lanes // 8, 1), matrices,
        vectors, *([c] if adds or gathers else []), out, *map(np.int32, (k, n, m, k, k)), *(scales if adds else ()),
        *batch, *(more if adds else ()), whole=True, constants={0: False, 1: adds},
    )  # fmt: skip
    left, right = wide(vectors)[pairs[0]], wide(matrices)[pairs[1]].swapaxes(1, 2)
    size = EPSILON * 64 * (np.abs(left) @ np.abs(right) + np.abs(wide(c)))
    return Compared(out, *rounded(0.5 * (left @ right) + 2.0 * c if adds else left @ right, np.float16, size))


NO_NEGATIVE_STRIDES = "`elem_to_loc` of a uint computes with 32 bits, in which no stride is negative"

FINDINGS: Mapping[str, tuple[Case, str]] = {
    "layer_norm of short rows": (
        lambda mlx, draw: normalized(mlx, draw, (1, draw.number(1, 40)), centred=True),
        "threads behind the end of a row write their array from a negative index on",
    ),
    "gemv by several simdgroups": (
        lambda mlx, draw: gemv(mlx, draw, long=True),
        "a barrier that only the first lane of each simdgroup reaches, with mem_none, between writes and reads",
    ),
    "gemv_t of few columns": (
        lambda mlx, draw: other_gemv(mlx, draw, ragged=True),
        "a barrier in the loop over rows, with mem_none, that threads behind the last column do not reach",
    ),
    "reduce of short columns": (
        lambda mlx, draw: reduce(mlx, draw, (1, draw.number(2, 31), 130)),
        "threads behind the last column return before a barrier that the others wait at",
    ),
    "gemv_masked of 1 to 3 rows in the last block": (
        lambda mlx, draw: gemv_masked(mlx, draw, 33, 34, 67),
        "the last thread computes 4 rows, some of them of the block before, with the masks of its own block",
    ),
    "fft of a batch that does not fill a threadgroup": (
        lambda mlx, draw: fft(mlx, draw, ragged=True),
        "threads behind the last transform return before barriers that the others wait at",
    ),
    "random bits of less than 4 bytes": (
        lambda mlx, draw: random_bits(mlx, draw, short=True),
        "4 bytes are written for each key, over those of the next one, or behind the end",
    ),
    "random bits of keys in reverse order": (
        lambda mlx, draw: random_bits(mlx, draw, back=True),
        NO_NEGATIVE_STRIDES,
    ),
    "gather_mm of a batch in reverse order": (
        lambda mlx, draw: gemm(mlx, draw, back=True),
        NO_NEGATIVE_STRIDES,
    ),
    "products with short rows of weights": (
        lambda mlx, draw: quantized(mlx, draw, ragged=True),
        "scales and biases of rows behind the last one are read, and not used",
    ),
    "products of matrices with groups of 16, not a multiple of 32 along them": (
        lambda mlx, draw: quantized(mlx, draw, odd=True),
        "blocks of 32 are read: scales behind the last group of a row, and the results are wrong (#3912)",
    ),
    "sort of an array whose first axes are exchanged": (
        lambda mlx, draw: sort(mlx, draw, swapped=True),
        "rows are read in the order of the memory, and written in the order of the axes",
    ),
    "sort of rows of more than 1023 blocks": (
        partition, "the places of a row begin at a multiple of 1024 and are read at a multiple of one more",
    ),
}  # fmt: skip
"""Cases in which the kernels differ from NumPy or stop, and why."""

REVIEWED: Mapping[tuple[str, str], str] = {
    ("unary_g", "out-of-bounds"): "the stride before the first is read for one axis, and multiplied by 0",
    ("unary_", "truncation"): "integers of 8 and 16 bits wrap, as in NumPy",
    ("binary_", "truncation"): "integers of 8 and 16 bits wrap, as in NumPy",
    ("unary_", "float-cast"): "expm1 converts NaN and large numbers to int; the result does not depend on it",
    ("contiguous_scan", "uninitialized"): "sums of simdgroups that do not exist; no result depends on them",
    ("fft", "same-value"): "the last thread of a transform repeats elements; with a single one, so does its partner",
    ("rader_fft", "same-value"): "the last thread of a transform repeats elements of the one before",
    ("gemv", "inactive-lane"): "lanes of rows behind the last one have returned; the sums with them are dropped",
    ("gemv", "same-value"): "the last thread repeats rows of the one before",
    ("row_reduce_simple", "same-value"): "the last threadgroup repeats rows of the one before",
    ("gather_mm_rhs", "fence"): "blocks are overwritten behind a barrier with mem_none, after all have read them",
    ("fp_", "truncation"): "of a word the lowest 4 bits are wanted: it is cut to 8 bits, and then masked",
    ("copy_gg", "uncovered"): "every other element is written",
    ("sdpa_blocked_causal_mask", "uncovered"): "the scores that are masked are written",
    ("slice_update", "uncovered"): "a part of the array is written",
    ("gated_delta_fused_chunk", "lockstep"): (
        "a simdgroup overwrites the decays of the chunk that it has just read, with no simdgroup_barrier between"
    ),
    ("affine_gather_qmv", "same-value"): "the last simdgroup repeats rows of the one before",
    ("affine_qmv", "same-value"): "the last simdgroup repeats rows of the one before",
}
"""What was seen in reports of kernels whose results are right: by the beginning of the kernel's name, and the kind."""

FILES = {
    "layer_norm": "layer_norm.metal",
    "rms_norm": "rms_norm.metal",
    "arg_reduce": "arg_reduce.metal",
    "random": "random.metal",
    "rope": "rope.metal",
}
"""Files that a case needs, of those that a wheel lacks, by the beginning of its name."""

TENSORS = "products by the tensor operations of MSL 4.0, which hosts choose on GPUs that have them: not run yet"
NOT_RUN: Mapping[str, str] = {"*_nax*": TENSORS, "gated_delta_dgamma_to_dg": TENSORS}
"""Why functions are not run, by patterns of their names."""

HOST: Mapping[str, str] = {
    "quantized": (
        "k, and n where groups are along the result, are multiples of the group, which may be 16 from 0.30 on; n is "
        "any number else, and 1 to 7 have a way of their own (wrong before #3096, #3804). `qmv_quad` for k of 64, 128, "
        "and bits that are a power of 2; `qmv_fast` if n is a multiple of 8 and k of 512. Threadgroups of `qvm` "
        "have 64 columns, from 0.30 on 2 * min(group, 32)"
    ),
    "quantized_parts": (
        "as above. `qvm_split_k`: 32 parts for k above 8192, else 8; the grid has n / columns threadgroups, rounded "
        "down to 0.32.0 (#4250), here up. `qmm_t_splitk`: as many parts as are multiples of max(32, group). "
        "`qmv_wide`: from 0.32 on, for 2 rows and more"
    ),
    "attention": "`sdpa_vector_2pass_1_gqa` from 0.32 on, for 8 heads of queries for one of keys, and one query",
    "full_attention": "queries by 32, keys by 32, or by 16 for 128 numbers; before 0.32 values are as wide as queries",
    "attention_parts": "not in 0.31.2",
}
"""What hosts pass, by version, as their sources say."""

CASES = named(
    unary, binary, div_mod, select, copy, softmax, logsumexp, layer_norm, rms_norm, layer_norm_vjp, rms_norm_vjp,
    arg_reduce, sort, merge_sort, scan, reduce, long_columns, gemv, gemv_masked, gemm, quantized, quantized_parts,
    arange, searchsorted, random_bits, rope, attention, dot, hadamard, indexing, conversions, fft, cross_entropy,
    attention_parts, full_attention, convolution, general_convolution, gated_delta, other_gemv, wide_gemv,
)  # fmt: skip
