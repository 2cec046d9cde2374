"""The Metal headers in PyTorch's wheels: reductions, special functions, sorting and attention.

The wheels have no ``.metal`` files, but the headers that these include. ``c10/metal`` has functions for kernels: each
is called by a small kernel here. Expected values of special functions are those of SciPy.
"""

from __future__ import annotations

import math
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
    record,
    steps,
)
from published.oracles import EPSILON, wide

TYPES = {"float32": "float", "int32": "int", "int64": "long"}
RADIX = {"float32": ("float", 512, 4, 8), "int32": ("int", 512, 4, 8), "float16": ("half", 1024, 4, 8)}
RADIX["int8"] = "char", 512, 8, 4
"""Types of radix sorts: their names, threads, elements of a thread, and bits of a digit."""
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n#include <c10/metal/utils.h>\n"


class TorchHeaders(Collection):
    """Launches of kernels of PyTorch's headers."""

    name = "PyTorch headers"
    marker = "c10/metal/reduction_utils.h"
    package = "an installed PyTorch"
    version = "3.2"

    def include(self) -> list[Path]:
        """Return the folder of ``c10`` and ``ATen``."""
        return [self.marker_file.parents[2]]

    def files(self) -> list[Path]:
        """Return the headers of both folders."""
        places = self.marker_file.parent, self.include()[0] / "ATen/native/mps/kernels"
        return [path for place in places for path in sorted(place.glob("*.h"))]

    def reduce(self, function: str, x: Array) -> Array:
        """Return what each thread of a threadgroup gets for its elements."""
        kind, result = TYPES[str(x.dtype)], "int" if "arg" in function else TYPES[str(x.dtype)]
        pair = f"threadgroup {kind} a[32]; threadgroup int b[32]; y[i] = {function}(a, b, x[i], int(i), i, n);"
        single = f"threadgroup opmath_t<{kind}> a[32]; y[i] = {function}<{kind}>(a, x[i], i, n);"
        source = (
            f"{HEAD}#include <c10/metal/reduction_utils.h>\nusing namespace c10::metal;\n"
            f"kernel void call_{function}(device const {kind} *x, device {result} *y,"
            f" uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]])"
            f" {{ {pair if 'arg' in function else single} }}\n"
        )
        out = blank(x.shape, np.int32 if "arg" in function else x.dtype)
        self.launch(source, f"call_{function}", (1, 1, 1), (x.size, 1, 1), x, out)
        return out

    def special(self, function: str, *arrays: Array) -> Array:
        """Return a function of the elements of one or two arrays."""
        out = blank(arrays[0].shape)
        names = "xz"[: len(arrays)]
        source = (
            f"{HEAD}#include <c10/metal/special_math.h>\n"
            f"kernel void call_{function}({''.join(f'device const float *{one}, ' for one in names)}device float *y,"
            f" uint i [[thread_position_in_grid]]) {{ y[i] = c10::metal::{function}"
            f"({', '.join(f'{one}[i]' for one in names)}); }}\n"
        )
        count = out.size
        self.launch(source, f"call_{function}", (count, 1, 1), (min(count, 256), 1, 1), *arrays, out, whole=False)
        return out

    def sort(self, x: Array, *, descending: bool, stable: bool) -> tuple[Array, Array]:
        """Return sorted rows of a view, and where their elements were: a threadgroup for each row."""
        rows, length = x.shape
        threads = next(n for n in (32, 64, 128, 256, 512, 1024) if 4 * n >= length)
        values, places = blank(x.shape, x.dtype), blank(x.shape, np.int64)
        kernel = f"sort_block_{TYPES[str(x.dtype)]}_tptg{threads}{'_stable' * stable}"
        strides = np.array([x.strides[1] // x.itemsize, x.strides[0] // x.itemsize], np.int64)
        source = f"{HEAD}#include <ATen/native/mps/kernels/SortMerge.h>\n"
        arguments = at(x), values, places, np.int32(length), strides, np.bool_(descending)
        self.launch(source, kernel, (1, rows, 1), (threads, 1, 1), *arguments)
        return values, places

    def radix_sort(
        self, x: Array, *, descending: bool, way: str, part: tuple[int, int] | None = None
    ) -> tuple[Array, Array]:
        """Return sorted rows and where their elements were, by digits that are counted in one of three ways."""
        kind, threads, each, bits = RADIX[str(x.dtype)]
        (rows, length), group = x.shape, (threads, 1, 1)
        blocks, size, passes = -(-length // (threads * each)), 1 << bits, 8 * x.itemsize // bits
        source = "#include <ATen/native/mps/kernels/SortTopK.h>\n"
        keys, places = x, np.zeros(1, np.uint16)
        for i in range(passes):
            dims = np.array([length, blocks, i * bits, 0], np.int32)
            counts, is_descending = blank((rows, size * blocks), np.uint32), np.bool_(descending)
            name = "radix_count_scan" if way == "count_scan" else "radix_count"
            grid = (1 if way == "count_scan" else blocks, rows, 1)
            kernel = f"{name}_{kind}_{bits}bit{'_mb4' * (way == 'count_scan')}"
            self.launch(HEAD + source, kernel, grid, group, keys, counts, dims, is_descending)
            if way == "scan":
                numbers = counts, np.int32(size * blocks)
                self.launch(HEAD + source, "radix_scan", (1, rows, 1), (1024, 1, 1), *numbers)
            last = "_final" * (i == passes - 1)
            ends = [np.array(part, np.int32)] if last and part else []
            whole = (rows, part[1]) if last and part else x.shape
            results = blank(whole, x.dtype), blank(whole, np.int64 if last else np.uint16)
            topk = "_topk" * len(ends)
            kernel = f"radix_scatter{'_fused' * (way == 'fused')}{last}{topk}_{kind}_{bits}bit_u16"
            arguments = keys, places, *results, counts, dims, np.array([descending, i == 0]), *ends
            self.launch(HEAD + source, kernel, (blocks, rows, 1), group, *arguments)
            keys, places = results
        return keys, places

    def merge_sort(
        self, x: Array, *, descending: bool, by_keys: bool, part: tuple[int, int] | None
    ) -> tuple[Array, Array]:
        """Return sorted rows and where their elements were, or a part of them: of blocks, which are merged."""
        (rows, length), threads, kind = x.shape, 256, TYPES[str(x.dtype)]
        blocks, key = -(-length // (4 * threads)), "_fkey" * by_keys
        source = f"{HEAD}#include <ATen/native/mps/kernels/SortTopK.h>\n"
        strides, desc, group = (
            np.array([1, x.strides[0] // x.itemsize], np.int64),
            np.bool_(descending),
            (threads, 1, 1),
        )
        ends = [] if part is None else [np.array(part, np.int32)]
        size = (rows, length if part is None else part[1])
        values, places = blank(size, x.dtype), blank(size, np.int64)
        if blocks == 1:
            kernel, three = f"sort_block_topk_{kind}_tptg{threads}", (x, values, places)
            self.launch(source, kernel, (1, rows, 1), group, *three, np.int32(length), strides, desc, *ends)
            return values, places
        some = blank(x.shape, np.uint32 if by_keys else x.dtype), blank(x.shape, np.uint32)
        grid, kernel = (blocks, rows, 1), f"mb_sort_block{key}_{kind}_tptg{threads}"
        self.launch(source, kernel, grid, group, x, *some, np.int32(length), strides, desc)
        tiles = 2
        while tiles < blocks:
            other, dims = (
                (np.empty_like(some[0]), blank(x.shape, np.uint32)),
                np.array([length, tiles, blocks, 0], np.int32),
            )
            kernel = f"mb_merge_{'uint' if by_keys else kind}_tptg{threads}"
            self.launch(source, kernel, grid, group, *some, *other, dims, np.bool_(descending and not by_keys))
            some, tiles = other, 2 * tiles
        kernel = f"mb_merge_final{'_topk' * (part is not None)}{key}_{kind}_tptg{threads}"
        dims = np.array([length, tiles, blocks, 0], np.int32)
        self.launch(source, kernel, grid, group, *some, values, places, dims, desc, *ends)
        return values, places

    def prefill(self, q: Array, k: Array, v: Array, mask: Array | None, scale: float, *, causal: bool) -> Array:
        """Return attention of many queries (batch, heads, count, size), by blocks."""
        batch, heads, count, size = q.shape
        out, (block, keys, simds) = blank(q.shape), {128: (32, 16, 4), 256: (16, 8, 2)}.get(size, (32, 32, 4))
        path = self.include()[0] / "ATen/native/mps/kernels/PrefillAttention.h"
        tensors = {"Q": q, "K": k, "V": v, "O": out}
        values = {"B": batch, "H": heads, "D": size, "qL": count, "kL": k.shape[2], "gqa_factor": heads // k.shape[1]}
        values |= {"scale": scale, "softcapping": 1, **{f"{n}_strides": steps(one)[:3] for n, one in tensors.items()}}
        given = np.zeros((1, 1, 1, 1), np.float32) if mask is None else mask
        text = path.read_text()
        params = record(members(text, "PrefillAttnParams"), values)
        of_mask = record(members(text, "PrefillAttnMaskParams"), {"M_strides": steps(given)})
        kernel = (
            f"prefill_attention_float32_bq{block}_bk{keys}_bd{size}_wm{simds}_wn1_hm{int(mask is not None)}"
            f"_dc{int(causal)}_mask{'bool_' if given.dtype == bool else 'float32'}"
        )
        source = f"{HEAD}#include <ATen/native/mps/kernels/PrefillAttention.h>\n"
        grid, arguments = (-(-count // block), heads, batch), (*map(at, (q, k, v)), out, params, of_mask, at(given))
        self.launch(source, kernel, grid, (32, simds, 1), *arguments)
        return out

    def attention(
        self, q: Array, k: Array, v: Array, mask: Array | None, scale: float, *, causal: bool, parts: bool = False
    ) -> Array:
        """Return attention of a few queries (batch, heads, count, size), at once or of 32 parts of the keys."""
        batch, heads, count, size = q.shape
        out = blank((batch, heads, count, v.shape[3]))
        suffix = "_masknone" if mask is None else "_maskbool" if mask.dtype == bool else "_maskfloat"
        kernel = f"sdpa_vector{'_2pass_1' * parts}_float_{size}_{v.shape[3]}{suffix}{'_causal' * causal}"
        steps = [[stride // one.itemsize for stride in one.strides] for one in (q, k, v)]
        source = f"{HEAD}#include <c10/metal/reduction_utils.h>\n#include <ATen/native/mps/kernels/DecodeAttention.h>\n"
        instances = ["VECTOR_2PASS_1(float", f"VECTOR_AGGREGATION(float, {size})\n"] if parts else ["VECTOR(float"]
        source += f"INSTANTIATE_SDPA_{instances[0]}, {size}, {v.shape[3]})\n"
        source += "".join(f"INSTANTIATE_SDPA_{one}" for one in instances[1:])
        given = np.zeros((1, 1, 1, 1), np.float32) if mask is None else mask
        of_mask = [stride // given.itemsize for stride in given.strides]
        numbers = (
            np.uint32(heads // k.shape[1]), np.uint32(k.shape[2]),
            np.array([*(one[1] for one in steps), 0], np.uint32), np.array([*(one[2] for one in steps), 0], np.uint32),
            np.float32(scale), at(given), np.array(of_mask[::-1], np.uint32),
            np.array([*(one[0] for one in steps), heads], np.uint32),
        )  # fmt: skip
        grid, three = (batch * heads, count, 32 if parts else 1), [*map(at, (q, k, v))]
        if not parts:
            self.launch(source, kernel, grid, (1024, 1, 1), *three, out, *numbers)
            return out
        some = blank((*out.shape[:3], 32, size)), *(blank((*out.shape[:3], 32)) for _ in range(2))
        self.launch(source, kernel, grid, (256, 1, 1), *three, *some, *numbers)
        self.launch(source, f"sdpa_vector_2pass_2_float_{size}", (batch * heads, count, 1), (1024, 1, 1), *some, out)
        return out


# --- cases ------------------------------------------------------------------------------------------------------------

REDUCTIONS: Mapping[str, Any] = {
    "threadgroup_sum": np.sum, "threadgroup_prod": np.prod, "threadgroup_max": np.max, "threadgroup_min": np.min,
    "threadgroup_argmax": np.argmax, "threadgroup_argmin": np.argmin,
}  # fmt: skip


def reduction(torch: TorchHeaders, draw: Draw, *functions: str) -> Compared:
    """A reduction that all threads of a threadgroup of any size get, of int64 that of given functions."""
    function = draw.choice(*(functions or REDUCTIONS))
    dtype = np.int64 if functions else draw.choice(np.float32, np.int32)
    kind = "ties" if dtype != np.float32 else "plain" if "arg" in function else draw.choice("plain", "ties", "special")
    dtype = np.float32 if "arg" in function else dtype
    x = draw.array(draw.choice(1, 2, 31, 32, 33, 64, 100, 1023, 1024), kind=kind)
    x = np.where(x == 0, 1, np.sign(x)) if function == "threadgroup_prod" else x
    x = x.astype(dtype)
    got = torch.reduce(function, x)
    with np.errstate(invalid="ignore"):
        expected = np.full(x.shape, float(REDUCTIONS[function](x.astype(np.float64))))
        bound = EPSILON * 64 * np.abs(x.astype(np.float64)).sum() if function == "threadgroup_sum" else 0
    return Compared(got, expected, np.nan_to_num(bound, posinf=0))


SPECIAL: Mapping[str, tuple[str, float, float, float]] = {
    "erf": ("erf", -5, 5, 4e-7), "erfinv": ("erfinv", -0.999, 0.999, 2e-5), "i0": ("i0", -20, 20, 2e-6),
    "i0e": ("i0e", -20, 20, 2e-6), "i1": ("i1", -20, 20, 2e-6), "i1e": ("i1e", -20, 20, 2e-6),
    "log_gamma": ("gammaln", 0.1, 30, 1e-5), "gamma": ("gamma", 0.1, 20, 2e-5), "digamma": ("psi", 0.1, 30, 1e-5),
    "bessel_j0_forward": ("j0", -20, 20, 1e-5), "bessel_j1_forward": ("j1", -20, 20, 1e-5),
    "bessel_y0_forward": ("y0", 0.1, 20, 1e-5), "bessel_y1_forward": ("y1", 0.1, 20, 1e-5),
    "modified_bessel_i0_forward": ("i0", -20, 20, 2e-6), "modified_bessel_i1_forward": ("i1", -20, 20, 2e-6),
    "modified_bessel_k0_forward": ("k0", 0.1, 20, 5e-6), "modified_bessel_k1_forward": ("k1", 0.1, 20, 5e-6),
    "scaled_modified_bessel_k0_forward": ("k0e", 0.1, 20, 5e-6),
    "scaled_modified_bessel_k1_forward": ("k1e", 0.1, 20, 5e-6), "entr": ("entr", 0, 5, 2e-6),
    "spherical_bessel_j0": ("spherical_jn", 0.01, 20, 2e-6),
}  # fmt: skip
"""Functions, their names in SciPy, intervals, and errors relative to 1 or the value."""


def special_function(torch: TorchHeaders, draw: Draw) -> Compared:
    """A function of one number on an interval where it is finite."""
    from scipy import special

    function = draw.choice(*SPECIAL)
    name, low, high, error = SPECIAL[function]
    random = np.random.default_rng(draw.number(0, 2**16))
    x = random.uniform(low, high, draw.choice(1, 5, 33, 300)).astype(np.float32)
    z = x.astype(np.float64)
    expected = special.spherical_jn(0, z) if name == "spherical_jn" else getattr(special, name)(z)
    slope = np.abs(np.gradient(expected, z)).max() if x.size > 300 else 0
    return Compared(torch.special(function, x), expected, error * (1 + np.abs(expected)) + EPSILON * slope)


def xlogy(torch: TorchHeaders, draw: Draw) -> Compared:
    """x log y and x log(1 + y), which are 0 for an x of 0, and NaN for a y of NaN."""
    from scipy import special

    function, n = draw.choice("xlogy", "xlog1py"), draw.length()
    x, y = draw.array(n, kind="ties"), np.abs(draw.array(n))
    with np.errstate(all="ignore"):
        expected = getattr(special, function)(x.astype(np.float64), y.astype(np.float64))
    return Compared(torch.special(function, x, y), expected, EPSILON * 8 * (np.abs(expected) + np.abs(x)))


def stably(x: Array, *, descending: bool) -> Array:
    """Return the places of the elements of rows in either order, in which NaN are the largest."""
    z, is_nan = wide(x), np.isnan(x)
    keys = np.where(is_nan, np.inf, z) * (-1 if descending else 1), is_nan != descending
    return np.stack([np.lexsort((keys[1][i], keys[0][i])) for i in range(len(x))])


def sort(torch: TorchHeaders, draw: Draw) -> list[Compared]:
    """Rows in either order, NaN last or first, and the places of equal elements if it is stable."""
    dtype = draw.choice(np.float32, np.int32)
    shape = draw.number(1, 3), draw.choice(1, 2, 5, 31, 33, 127, 128, 129, 600, 1025, 4096)
    kind = "ties" if dtype == np.int32 else draw.choice("plain", "ties", "special")
    x = draw.array(*shape, dtype=dtype, kind=kind)
    x = np.asfortranarray(x) if draw.choice(False, True) else x
    descending, stable = draw.choice(False, True), draw.choice(False, True)
    values, places = torch.sort(x, descending=descending, stable=stable)
    order = stably(x, descending=descending)
    expected = np.take_along_axis(x, order, 1)
    legal = np.sort(places, 1) == np.arange(x.shape[1])
    there = np.take_along_axis(x, np.where(legal, places, 0), 1)
    return [Compared(values, expected), Compared(places, order) if stable else Compared(there, expected)]


def merge_sort(torch: TorchHeaders, draw: Draw) -> list[Compared]:
    """Rows of several blocks in either order, or a part of them, by their numbers or by keys of these."""
    by_keys, descending = draw.choice(False, True), draw.choice(False, True)
    kind = draw.choice("plain", "ties") if by_keys else draw.choice("plain", "ties", "special")
    x = draw.array(draw.number(1, 2), draw.choice(33, 1025, 2100, 4100), kind=kind)
    x = np.where(x == 0, np.float32(0), x)
    first, count = x.shape[1] // 2, draw.choice(1, 5)
    part = (first, count) if x.shape[1] <= 1024 else draw.choice(None, (first, count))
    values, places = torch.merge_sort(x, descending=descending, by_keys=by_keys, part=part)
    order = stably(x, descending=descending)
    order = order if part is None else order[:, first : first + count]
    expected = np.take_along_axis(x, order, 1)
    legal = (places >= 0) & (places < x.shape[1])
    there = np.take_along_axis(x, np.where(legal, places, 0), 1)
    return [Compared(values, expected), Compared(np.where(legal, there, 0.5), expected)]


def radix_sort(torch: TorchHeaders, draw: Draw, *, signed: bool = False) -> list[Compared]:
    """Rows in either order, of one or several blocks; NaN are the largest, and equal elements keep their order."""
    dtype, descending = draw.choice(np.float32, np.float16, np.int32, np.int8), draw.choice(False, True)
    dtype, kind = (np.float32, "ties") if signed else (dtype, "ties" if dtype in (np.int32, np.int8) else None)
    x = draw.array(draw.number(1, 2), 5 if signed else draw.choice(1, 2, 33, 2047, 2049, 4500), dtype=dtype, kind=kind)
    x = np.where(x == 0, dtype(0), x)  # of one sign: see FINDINGS
    if signed:
        x[:, :2] = 0, -0.0
    way = draw.choice("scan", "fused", "count_scan")
    part = None if signed else draw.choice(None, (x.shape[1] // 2, min(5, x.shape[1] - x.shape[1] // 2)))
    values, places = torch.radix_sort(x, descending=descending, way=way, part=part)
    first, count = part or (0, x.shape[1])
    order = stably(x, descending=descending)[:, first : first + count]
    return [Compared(values, np.take_along_axis(x, order, 1)), Compared(places, order)]


def prefill(torch: TorchHeaders, draw: Draw) -> Compared:
    """Attention of many queries, whose rows may be masked as a whole: then 0."""
    return attention(torch, draw, blocks=True)


def attention(torch: TorchHeaders, draw: Draw, *, blocks: bool = False) -> Compared:
    """Attention of a few queries with shared heads, masks or the causal order."""
    batch, shared, keys = draw.number(1, 2), draw.choice(1, 2), draw.choice(1, 2, 31, 33, 70)
    count = draw.choice(1, 8, 31, 32, 33, 65) if blocks else draw.number(1, 3)
    heads, size = shared * draw.number(1, 2), draw.choice(64, 128)
    q = draw.array(batch, heads, count, size, kind="plain")
    k, v = (draw.array(batch, keys, heads // shared, size, kind="plain").transpose(0, 2, 1, 3) for _ in range(2))
    how, scale = draw.choice("none", "causal", "bool", "float"), 1 / math.sqrt(size)
    mask = None
    if how == "bool":
        mask = draw.array(batch, 1, count, keys, kind="ties") > -2
        mask[..., 0] |= not blocks
    elif how == "float":
        mask = draw.array(batch, 1, count, keys, kind="plain")
    given = None if mask is None else np.broadcast_to(mask, (batch, heads, count, keys))
    words = {"causal": how == "causal"} | ({} if blocks else {"parts": draw.choice(False, True)})
    got = (torch.prefill if blocks else torch.attention)(q, k, v, given, scale, **words)
    expected = oracles.attention(q, k, v, scale, mask=given, causal=0 if how == "causal" else None)
    return Compared(got, expected, EPSILON * 256 * np.abs(v).max())


SCALARS = {"uint8": 0, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6}
"""Numbers of types in ``c10::ScalarType``."""
PAIRS = [
    f"{one}{cast}" for cast in ("", "_cast")
    for one in ("dense", "strided", "dense_broadcast", "dense_broadcast_rhs", "dense_scalar", "dense_scalar_lhs")
]  # fmt: skip
FUNCTORS = """#include <c10/metal/indexing.h>
struct twice_functor { template <typename T> T operator()(const T a) { return a + a; } };
struct scaled_functor { template <typename T> T operator()(const T a, const T b) { return a * b; } };
struct less_functor { template <typename T> T operator()(const T a, const T b) { return a - b - b; } };
struct mixed_functor { template <typename T> T operator()(const T a, const T b, const T c) { return a + b * c; } };
struct three_functor { template <typename T> T operator()(const T a, const T b, const T c) { return a + b - c - c; } };
REGISTER_UNARY_OP(twice, KIND, KIND);
REGISTER_UNARY_ALPHA_OP(scaled, KIND, KIND, KIND);
REGISTER_BINARY_OP(less, KIND, KIND);
REGISTER_BINARY_CASTOUT_OP(less, KIND, KIND);
REGISTER_BINARY_ALPHA_OP(mixed, KIND, KIND, KIND);
REGISTER_TERNARY_OP(three, KIND, KIND);
"""
ALPHA = 3
OPERATORS: Mapping[str, tuple[int, Any, Sequence[str]]] = {
    "twice": (
        1,
        lambda a: 2 * a,
        ("dense", "dense_scalar", "strided", "dense_castout", "dense_castout_ilp", "strided_castout"),
    ),
    "scaled": (1, lambda a: ALPHA * a, ("dense", "strided")),
    "less": (2, lambda a, b: a - 2 * b, ("dense_ilp4", "strided_castout", *PAIRS)),
    "mixed": (2, lambda a, b: a + ALPHA * b, PAIRS),
    "three": (3, lambda a, b, c: a + b - 2 * c, ("dense", "strided", "dense_cast", "strided_cast")),
}
"""Operators of a user: how many arrays they have, what they compute, and their kernels."""


def elementwise(torch: TorchHeaders, draw: Draw) -> Compared:
    """The kernels of operators of one to three arrays, with functions of their user: dense, views, casts."""
    dtype, other = draw.choice(np.float32, np.float16, np.int32), draw.choice(*SCALARS)
    name = draw.choice(*OPERATORS)
    count, function, forms = OPERATORS[name]
    form = draw.choice(*forms)
    alpha = [np.array([ALPHA], dtype)] * (name in ("scaled", "mixed"))
    whole = (*(draw.number(1, 3) for _ in range(draw.number(0, 3))), draw.choice(1, 3, 33, 70))
    views, first, cast = "strided" in form, "hs" in form, form.endswith("_cast")
    of_inputs = np.dtype(other) if cast else np.dtype(dtype)
    inputs = [draw.strided(*whole, dtype=dtype, kind="ties", rows=False) for _ in range(count)]
    inputs = [(np.abs(one) if other[0] == "u" else one).astype(of_inputs) if cast else one for one in inputs]
    unsigned = "castout" in form and other[0] == "u"
    inputs = [np.abs(one) * (not unsigned or i == 0) for i, one in enumerate(inputs)] if unsigned else inputs
    if not views:
        inputs = [np.ascontiguousarray(one) for one in inputs]
    out = blank(whole, np.dtype(other) if "castout" in form else dtype)
    least = inputs[0].ravel()[: whole[-1] if "broadcast" in form else 1].copy()
    if count == 2 and ("broadcast" in form or "scalar" in form):
        inputs[0 if first else 1] = least
    types = [SCALARS[str(one.dtype)] for one in inputs]
    widths = [one.itemsize for one in inputs]
    ndim, per = len(whole), 4 if "ilp" in form or (name == "twice" and form == "dense") else 1
    grid = (-(-out.size // per), 1, 1)
    arrays = [at(one, np.uint8) if views or cast else one for one in (out, *inputs)]
    if views:
        strides = [np.array(one.strides[::-1], np.int64) for one in (*inputs, out)]
        sizes = np.array(whole[::-1], np.int64)
        ends = [strides[0], strides[1]] if count == 1 else [strides[-1], *strides[:-1]]
        number = np.array([ndim, *types, SCALARS[str(out.dtype)]][:4] + [0] * (3 - count), np.uint32)
        last: list[Any] = [np.uint32(ndim)]
        if count == 1 and form == "strided_castout":
            last = [np.array([ndim, SCALARS[other]], np.uint32)]
        elif count == 2:
            last = [number if "castout" in form else np.array([ndim, *types, 0], np.uint32)]
        elif cast:
            last = [*last, np.array([*types, 0], np.uint32)]
        grid = (whole[-1], out.size // whole[-1], 1) if count == 1 else grid
        arguments = [*arrays, *(alpha if count == 2 else []), sizes, *ends, *last, *(alpha if count == 1 else [])]
    else:
        arrays[0] = out
        number_of = [np.int64(least.size)] * ("broadcast" in form)
        ends = [np.array([*widths, *types], np.uint32)] if cast and count == 2 else []
        if cast and count == 3:
            ends = [np.array([*one, 0], np.uint32) for one in (widths, types)]
        if "castout" in form:
            ends = [np.array([out.itemsize, SCALARS[other], *[out.size, 0] * ("ilp" in form)], np.uint32)]
        ends += [np.array(out.size, np.uint32)] * (per == 4 and "castout" not in form)
        arguments = [*arrays, *number_of, *alpha, *ends]
    kind = {"float32": "float", "float16": "half", "int32": "int"}[np.dtype(dtype).name]
    once = (count == 1 and "castout" in form) or (count == 3 and cast)
    kernel = f"{name}_{form}{f'_{kind}' * (1 if once else 2 + (len(alpha) > 0))}"
    source, group = HEAD + FUNCTORS.replace("KIND", kind), (min(256, grid[0]), 1, 1)
    torch.launch(source, kernel, grid, group, *arguments, whole=False)
    return Compared(out, np.broadcast_to(function(*(wide(np.broadcast_to(one, whole)) for one in inputs)), whole))


FINDINGS: Mapping[str, tuple[Case, str]] = {
    "sums and products of int64": (
        lambda torch, draw: reduction(torch, draw, "threadgroup_sum", "threadgroup_prod"),
        "the last step takes values of lanes that do not take part, unless there are 1024 threads",
    ),
    "radix sort of zeros of both signs": (
        lambda torch, draw: radix_sort(torch, draw, signed=True),
        "-0 comes before 0: a stable sort keeps the order of equal numbers",
    ),
}
"""Cases in which the kernels differ from NumPy or stop, and why."""

REVIEWED: Mapping[tuple[str, str], str] = {}
"""What was seen in reports of kernels whose results are right: by the beginning of the kernel's name, and the kind."""

NOT_RUN: Mapping[str, str] = {}
"""Why functions are not run, by patterns of their names."""

CASES = named(reduction, special_function, xlogy, sort, merge_sort, radix_sort, attention, prefill, elementwise)
