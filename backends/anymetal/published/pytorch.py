"""The Metal kernels of PyTorch, launched as ``aten/src/ATen/native/mps/operations/*.mm`` does, and what NumPy computes.

They are in no package for Linux: the folder ``aten/src/ATen/native/mps/kernels`` of a checkout is needed, or some files
of it. Headers that the checkout lacks, such as ``c10/metal``, are those of an installed PyTorch. Arrays may be views.
"""

from __future__ import annotations

import math
import re
import sys
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
from published.oracles import EPSILON, HALF, positions, rounded_sizes, wide

MOST_THREADS = 1024
FOLDER = "ATen/native/mps/kernels/"
TYPES = {"float32": "float", "float16": "half"}
ROWS_OF_A_GRID = 65535
CHUNK = 65536
"""Elements of a tensor that a threadgroup of an optimizer updates."""
GEOMETRY = "kernel_size", "stride", "padding", "dilation"
IGNORED = -100
"""The class of rows that do not count."""


def pair(value: Any) -> tuple[int, int]:
    """Return a number for both axes, or the two."""
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))


def sized(values: Sequence[int], count: int) -> list[int]:
    """Return integers, filled up with ones."""
    return [*map(int, values), *[1] * (count - len(values))]


class Pytorch(Collection):
    """Launches of PyTorch's kernels."""

    name = "PyTorch"
    marker = f"aten/src/{FOLDER}Pooling.metal"
    package = "a checkout of PyTorch with aten/src/ATen/native/mps/kernels"
    version = "3.2"

    def include(self) -> list[Path]:
        """Return ``aten/src``, and the folder of ``c10``: of the checkout, else of an installed PyTorch."""
        root = self.marker_file.parents[6]
        installed = (Path(one) / "torch/include" for one in sys.path)
        places = (root, *installed)
        return [self.marker_file.parents[4], *[one for one in places if (one / "c10/metal").is_dir()][:1]]

    def run(
        self, file: str, kernel: str, threads: Sequence[int] | int, *arguments: Any, group: Sequence[int] = (),
        whole: bool = False,
    ) -> None:  # fmt: skip
        """Launch a kernel of a file, by default as a job of one dimension."""
        grid = (threads, 1, 1) if isinstance(threads, int) else threads
        size = group or (min(MOST_THREADS, grid[0]), 1, 1)
        self.launch(self.marker_file.with_name(file), kernel, grid, size, *arguments, whole=whole)

    def struct(self, file: str, name: str, types: Mapping[str, str], length: int, values: Mapping[str, Any]) -> Array:
        """Return a struct of a header, with types in the place of the names of its template, and its length N."""
        found = (one / FOLDER / file for one in self.include())
        text = next(one for one in found if one.is_file()).read_text()
        text = re.sub(r"#ifndef __METAL_VERSION__.*?#endif", "", text, flags=re.DOTALL)
        for parameter, kind in types.items():
            text = re.sub(rf"\b{parameter}\b", kind, text)
        lengths = {"N": length, "N - 2": length - 2, "::c10::metal::max_ndim": 16}
        text = re.sub(
            r"::c10::metal::array<\s*(\w+)\s*,\s*([^>]+?)\s*>\s*(\w+);",
            lambda one: f"{one[1]} {one[3]}[{lengths[one[2]]}];", text,
        )  # fmt: skip
        return record(members(text, name), values)

    def _pooling(self, name: str, x: Array, out: Array, values: Mapping[str, Any], *, grad: str = "") -> Array:
        axes = {f"{grad}input": x, f"{grad}output": out, "indices": values.get("indices", out)}
        about: dict[str, Any] = {"dims": x.ndim, "pooling_dims": x.ndim - 2, "tid_offset": 0}
        for what, array in axes.items():
            about |= {f"{what}_sizes": sized(array.shape, 5), f"{what}_strides": steps(array, 5)}
        words = {word: sized(values[word], 3) for word in GEOMETRY}
        return self.struct("Pooling.h", name, {"idx_type_t": "int32_t"}, 5, {**about, **words, **values, **words})

    def _pool(self, name: str, x: Array) -> str:
        suffix = "_u32" * ("_u32" in self.marker_file.read_text())
        return f"{name}_{TYPES[str(x.dtype)]}{suffix}"

    def max_pool(self, x: Array, out: Array, indices: Array, **words: Any) -> None:
        """Write the maxima of windows, and their indices, for tensors (N, C, *spatial)."""
        about = {**words, "indices": indices, "return_indices": True, "adaptive": False}
        params = self._pooling("PoolingParams", x, out, about)
        self.run("Pooling.metal", self._pool("max_pool", x), out.size, at(x), at(out), at(indices), params)

    def max_pool_backward(self, dx: Array, g: Array, indices: Array, **words: Any) -> None:
        """Add the gradient at the indices."""
        params = self._pooling("PoolingBackwardParams", dx, g, {**words, "indices": indices}, grad="grad_")
        self.run("Pooling.metal", self._pool("max_pool_backward", g), g.size, at(dx), at(g), at(indices), params)

    def avg_pool(self, x: Array, out: Array, *, backward: bool = False, **words: Any) -> None:
        """Write means of windows; or add to ``x`` the gradient for it from ``out``, that for the means.

        The kernel of the gradient is for three dimensions: images are those of depth 1.
        """
        if backward and x.ndim == 4:
            x, out = x[:, :, None], out[:, :, None]
            words |= {word: (int(word != "padding"), *words[word]) for word in GEOMETRY}
        divisor = words.pop("divisor_override")
        about = {**words, "has_divisor_override": divisor is not None, "divisor_override": divisor or 0}
        params = self._pooling("AvgPoolingParams", x, out, about)
        self.run("Pooling.metal", self._pool("avg_pool" + "_backward" * backward, x), out.size, at(x), at(out), params)

    def adaptive_pool(self, x: Array, out: Array, *, backward: bool = False) -> None:
        """Write means of parts of about the same size; or the gradient for ``x`` from that for the means."""
        names = ("B", "C", "input_height", "input_width")
        values = dict(zip(names, x.shape, strict=True), output_height=out.shape[2], output_width=out.shape[3])
        values |= {"input_strides": steps(x), "output_strides": steps(out)}
        params = self.struct("AdaptivePooling.h", "AdaptiveAvgPool2DParams", {}, 0, values)
        way, arrays = ("backward", (out, x)) if backward else ("forward", (x, out))
        kernel = f"adaptive_avg_pool2d_{way}_{TYPES[str(x.dtype)]}"
        self.run("AdaptivePooling.metal", kernel, arrays[1].size, *map(at, arrays), params)

    def upsample(self, name: str, x: Array, out: Array, *, align_corners: bool = False, backward: bool = False) -> None:
        """Write a larger or smaller image; or add the gradient for ``x`` from ``out``, that for the other image."""
        scales = [
            (a - 1) / (b - 1) if align_corners and b > 1 else 0.0 if align_corners else a / b
            for a, b in zip(x.shape[:1:-1], out.shape[:1:-1], strict=True)
        ]
        values: dict[str, Any] = {"scales": scales, "align_corners": align_corners}
        for what, array in (("input", x), ("output", out)):
            values |= {f"{what}_sizes": array.shape, f"{what}_strides": steps(array)}
        params = self.struct("UpSample.h", "UpsampleParams", {}, x.ndim, values)
        kernel = f"upsample_{name}{'_backward' * backward}_{TYPES[str(x.dtype)]}"
        self.run("UpSample.metal", kernel, math.prod(out.shape[2:]), at(x), at(out), params)

    def _softmax(self, x: Array, axis: int, chunks: int) -> Array:
        length, sizes = x.shape[axis], sized(x.shape, 16)
        strides = [0 if n == 1 else step for n, step in zip(sizes, steps(x, 16), strict=True)]
        values = {
            "dim_size": length, "num_rows": x.size // length, "inner_size": math.prod(x.shape[axis + 1 :]),
            "chunk_size": -(-length // chunks), "n_chunks": chunks, "ndim": x.ndim, "dim": axis,
            "sizes": sizes, "strides": strides,
        }  # fmt: skip
        return self.struct("SoftMax.h", "SoftmaxParams", {"index_t": "uint32_t"}, 0, values)

    def softmax(self, x: Array, out: Array, axis: int, *, logarithmic: bool = False) -> None:
        """Write softmax along an axis, or its logarithm, into a contiguous array."""
        kind, length = TYPES[str(x.dtype)], x.shape[axis]
        name, rows = "log_softmax" if logarithmic else "softmax", x.size // length
        dense = x.flags.c_contiguous and axis == x.ndim - 1
        if dense and length <= 2048 and (length <= 1024 or rows >= 128):
            grid = (-(-rows // 8), 1, 1)
            params = self._softmax(x, axis, 1)
            kernel = f"{name}_row_{kind}_u32"
            self.run("SoftMax.metal", kernel, grid, at(x), out, params, group=(256, 1, 1), whole=True)
            return
        chunks = max(1, min(512 // rows, -(-length // 2048)))
        params = self._softmax(x, axis, chunks)
        if dense and chunks > 1:
            some, grid = blank((rows, chunks, 2)), (chunks, rows, 1)
            words: dict[str, Any] = {"group": (256, 1, 1), "whole": True}
            self.run("SoftMax.metal", f"softmax_partial_{kind}_u32", grid, at(x), some, params, **words)
            self.run("SoftMax.metal", f"{name}_finalize_{kind}_u32", grid, at(x), out, some, params, **words)
            return
        inner = math.prod(x.shape[axis + 1 :])
        wide = min(inner, 64 if x.itemsize == 2 else 32)
        high = min(1 << (length - 1).bit_length(), 256, 1 << (1024 // wide).bit_length() - 1)
        grid = (-(-inner // wide), rows // inner, 1)
        kernel = f"{name}_{kind}_u32"
        self.run("SoftMax.metal", kernel, grid, at(x), out, params, group=(wide, high, 1), whole=True)

    def softmax_backward(self, g: Array, y: Array, dx: Array) -> None:
        """Write the gradient of softmax along the last axis of contiguous arrays."""
        rows, length = y.size // y.shape[-1], y.shape[-1]
        looped = length > 4 * MOST_THREADS or y.itemsize == 2
        threads = MOST_THREADS if length > 4 * MOST_THREADS else -(-length // 128) * 32
        grid = (min(rows, ROWS_OF_A_GRID), -(-rows // ROWS_OF_A_GRID), 1)
        kernel = f"softmax_backward_{'looped' if looped else 'row'}_{TYPES[str(y.dtype)]}_u32"
        params = self._softmax(y, y.ndim - 1, 1)
        self.run("SoftMax.metal", kernel, grid, g, y, dx, params, group=(threads, 1, 1), whole=True)

    def _groups(self, x: Array, groups: int, epsilon: float) -> tuple[Array, dict[str, Any]]:
        n, c = x.shape[:2]
        hw = x.size // (n * c)
        values = {
            "HxW": hw, "num_groups": groups, "channels_per_group": c // groups,
            "elements_per_group": c // groups * hw, "C": c, "N_times_HxW": n * hw, "eps": epsilon,
        }  # fmt: skip
        return self.struct("GroupNorm.h", "GroupNormParams", {"idx_T": "uint32_t"}, 0, values), values

    def _reduced(self, kernel: str, count: int, length: int, *arguments: Any) -> None:
        threads = min(MOST_THREADS, 32 * -(-length // 128))
        self.run("GroupNorm.metal", kernel, (count, 1, 1), *arguments, group=(threads, 1, 1), whole=True)

    def group_norm(self, x: Array, gamma: Array, beta: Array, groups: int, epsilon: float) -> tuple[Array, ...]:
        """Return normalized groups of channels of a contiguous tensor, the means and the reciprocal deviations."""
        params, values = self._groups(x, groups, epsilon)
        y, mean, rstd = blank(x.shape), blank((len(x), groups)), blank((len(x), groups))
        kernel = "group_norm_float_float_float_float_uint32_t"
        self._reduced(kernel, mean.size, values["elements_per_group"], y, mean, rstd, x, gamma, beta, params)
        return y, mean, rstd

    def group_norm_backward(
        self, g: Array, x: Array, mean: Array, rstd: Array, gamma: Array, groups: int
    ) -> tuple[Array, ...]:
        """Return the gradients for x, gamma and beta."""
        params, values = self._groups(x, groups, 0)
        dx, dgamma, dbeta = blank(x.shape), blank(gamma.shape), blank(gamma.shape)
        kernel, length = "group_norm_backward_x_float_float_float_uint32_t", values["elements_per_group"]
        self._reduced(kernel, mean.size, length, dx, g, x, mean, rstd, gamma, params)
        kernel, length = "group_norm_backward_affine_float_float_float_uint32_t", values["N_times_HxW"]
        self._reduced(kernel, x.shape[1], length, dgamma, dbeta, g, x, mean, rstd, params)
        return dx, dgamma, dbeta

    def layer_norm(self, x: Array, weight: Array, bias: Array, epsilon: float) -> tuple[Array, ...]:
        """Return normalized rows, their means and reciprocal deviations."""
        rows, length = x.shape
        y, mean, rstd = blank(x.shape, x.dtype), blank((rows,), x.dtype), blank((rows,), x.dtype)
        looped = length > 4 * MOST_THREADS
        threads = MOST_THREADS if looped else 32 * -(-length // 128)
        kernel = f"layer_norm_{'looped' if looped else 'single_row'}_i32_{TYPES[str(x.dtype)]}"
        one = np.int32(1)
        arguments = x, y, mean, rstd, np.uint32(length), np.float32(epsilon), one, one, weight, bias
        self.run("LayerNorm.metal", kernel, (rows, 1, 1), *arguments, group=(threads, 1, 1), whole=True)
        return y, mean, rstd

    def conv2d(
        self, x: Array, weight: Array, bias: Array | None, out: Array, *, stride: Sequence[int],
        padding: Sequence[int], dilation: Sequence[int], wide: bool | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """Write a convolution of contiguous tensors; ``wide`` computes four columns in a thread."""
        columns = -(-out.shape[3] // 4)
        wide = out.size // out.shape[3] * columns >= 32768 if wide is None else wide
        of_groups = {"C_in_per_group": weight.shape[1], "C_out_per_group": len(weight) * weight.shape[1] // x.shape[1]}
        names = ("N", "C_in", "H", "W", "C_out", "outH", "outW", "kH", "kW", "sH", "sW", "padH", "padW", "dH", "dW")
        numbers = (*x.shape, *out.shape[1:], *weight.shape[2:], *stride, *padding, *dilation)
        values = dict(zip(names, numbers, strict=True)) | of_groups | {"has_bias": bias is not None}
        params = self.struct("Convolution.h", "Conv2DParams", {}, 0, values)
        threads = out.size // out.shape[3] * columns if wide else out.size
        kernel = f"conv2d_r{4 if wide else 1}_i32_{TYPES[str(x.dtype)]}"
        self.run("Convolution.metal", kernel, threads, x, weight, weight if bias is None else bias, out, params)

    def cross_entropy(self, x: Array, target: Array, weight: Array | None, smoothing: float) -> tuple[Array, ...]:
        """Return losses of rows, the logarithms of their sums, the weights of the targets, and a count of errors."""
        loss, logarithm, weights = (blank((len(x),)) for _ in range(3))
        errors = np.zeros(1 + 30 * 128, np.uint32)  # a count, and messages of 512 bytes
        params, *of_weights = self._cross_entropy(x, weight, smoothing)
        arguments = x, target, *of_weights, loss, logarithm, weights, params, errors
        self._rows("cross_entropy_forward_float", len(x), *arguments)
        return loss, logarithm, weights, errors[:1]

    def cross_entropy_backward(
        self, g: Array, x: Array, target: Array, weight: Array | None, logarithm: Array, smoothing: float
    ) -> Array:
        """Return the gradient of cross entropies."""
        dx = blank(x.shape)
        params, *of_weights = self._cross_entropy(x, weight, smoothing)
        self._rows("cross_entropy_backward_float", len(x), g, x, target, *of_weights, logarithm, dx, params)
        return dx

    def _cross_entropy(self, x: Array, weight: Array | None, smoothing: float) -> tuple[Array, Array, Array]:
        values = {"vocab_size": x.shape[1], "batch_size": len(x), "ignore_index": IGNORED, "label_smoothing": smoothing}
        values["has_weight"] = weight is not None
        given = np.zeros(1, np.float32) if weight is None else weight
        params = self.struct("CrossEntropyKernel.h", "CrossEntropyParams", {}, 0, values)
        return params, given, given.sum(keepdims=True, dtype=np.float32)

    def _rows(self, kernel: str, count: int, *arguments: Any) -> None:
        words: dict[str, Any] = {"group": (MOST_THREADS, 1, 1), "whole": True}
        self.run("CrossEntropyKernel.metal", kernel, (count, 1, 1), *arguments, **words)

    def ctc(self, log_probs: Array, targets: Array, lengths: Array, of_targets: Array, g: Array) -> tuple[Array, ...]:
        """Return losses of a batch (time, batch, label) of logarithms, and the gradient: blanks are 0."""
        time, batch, labels = log_probs.shape
        most = targets.shape[1]
        states, offsets = 2 * most + 1, (np.arange(batch) * most).astype(np.int32)
        loss, alpha, dx = blank((batch,)), blank((batch, time, states)), np.full(log_probs.shape, -np.inf, np.float32)
        beta = np.full(alpha.shape, -np.inf, np.float32)
        values = {"BLANK": 0, "max_input_length": time, "max_target_length": most, "batch_size": batch}
        values |= {"tg_target_stride": 1, "num_labels": labels, "grad_out_batch_stride": 1, "zero_infinity": False}
        for name, array, axes in (
            ("log_probs", log_probs, "time batch token"), ("grad", dx, "time batch token"),
            ("log_alpha", alpha, "batch time target"), ("log_alpha_beta", alpha, "batch time target"),
        ):  # fmt: skip
            values |= {f"{name}_{axis}_stride": n for axis, n in zip(axes.split(), steps(array), strict=True)}
        params, collect = (
            self.struct("LossOps.h", name, {"index_t": "int32_t"}, 0, values)
            for name in ("CTCLossParams", "CTCLossBackwardCollectParams")
        )
        about, kind = (at(log_probs), targets, lengths, of_targets, offsets, params), "float_int_int32_t"
        words: dict[str, Any] = {"group": (min(MOST_THREADS, states), 1, 1), "whole": True}
        self.run("LossOps.metal", f"ctc_loss_{kind}", (batch, 1, 1), loss, alpha, *about, **words)
        self.run("LossOps.metal", f"ctc_loss_backward_log_beta_{kind}", (batch, 1, 1), beta, *about, **words)
        arrays = dx, g, alpha, beta, at(log_probs), targets, lengths, of_targets, loss, offsets, collect
        grid, group = (time, batch, 1), (min(time, MOST_THREADS), 1, 1)
        self.run("LossOps.metal", f"ctc_loss_backward_collect_{kind}", grid, *arrays, group=group)
        return loss, dx

    def dropout(self, x: Array, p: float, seed: int, offset: int) -> tuple[Array, Array]:
        """Return x with elements dropped at random, and the mask."""
        y, mask = blank(x.shape), blank(x.shape, np.bool_)
        params = np.array([1 - p, 1 / (1 - p)], np.float32)
        seeds = np.array([seed, offset], np.int64)
        threads = -(-x.size // 4)
        self.run("Dropout.metal", "dropout_fwd_float", threads, y, mask, x, params, seeds, np.uint32(x.size))
        return y, mask

    def dropout_backward(self, g: Array, mask: Array, scale: float) -> Array:
        """Return the gradient of dropout."""
        dx = blank(g.shape)
        self.run("Dropout.metal", "dropout_bwd_float", g.size, dx, g, mask, np.float32(scale))
        return dx

    def optimizer(self, kernel: str, tensors: Mapping[str, Sequence[Array]], *numbers: Any) -> None:
        """Update parameters and moments in place: lists of arrays by the names of the kernel's struct."""
        sizes = [one.size for one in tensors["params"]]
        parts = [(i, part) for i, size in enumerate(sizes) for part in range(-(-size // CHUNK))]
        table = np.zeros(1, [("numels", "u8", 32), ("tensor", "u8", 32), ("chunk", "u8", 32)])
        table["numels"][0, : len(sizes)] = sizes
        for group, (i, part) in enumerate(parts):
            table["tensor"][0, group], table["chunk"][0, group] = i, part
        pointers = {name: [*arrays, *[None] * (32 - len(arrays))] for name, arrays in tensors.items()}
        file, group_size = "FusedOptimizerOps.metal", (MOST_THREADS, 1, 1)
        self.run(file, kernel, (len(parts), 1, 1), pointers, table, *numbers, group=group_size, whole=True)


# --- cases ------------------------------------------------------------------------------------------------------------


def image(draw: Draw, *, kind: str | None = None, dtype: Any = np.float32) -> Array:
    """Draw a batch of images: channels last or transposed, every other row from either end, or a single one."""
    shape = (draw.number(1, 2), draw.choice(1, 3, 33), draw.choice(1, 2, 5, 9), draw.choice(1, 3, 8, 31))
    axes = draw.choice((0, 1, 2, 3), (0, 2, 3, 1), (1, 0, 3, 2))
    x = draw.array(*(shape[i] * (1 + (i == 2)) for i in axes), kind=kind, dtype=dtype)
    x = x.transpose(np.argsort(axes))[:, :, :: draw.choice(2, -2)]
    return np.broadcast_to(x[:1], x.shape) if draw.choice(False, False, True) else x


def windows(draw: Draw, x: Array, *, dilates: bool) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Draw windows that begin and end at pixels, and the size of the result."""
    axes = []
    for n in x.shape[2:]:
        dilation = draw.number(1, 2) if dilates else 1
        kernel = draw.number(1, min(4, (n - 1) // dilation + 1))
        # An even kernel with dilation may lie beside the image as a whole: see FINDINGS.
        padding = 0 if dilation > 1 else draw.number(0, kernel // 2)
        axes.append((kernel, draw.number(1, 3), padding, dilation))
    about = [*map(list, zip(*axes, strict=True))]
    return dict(zip(GEOMETRY, about, strict=True)), (*x.shape[:2], *oracles.windows(x.shape[2:], *about))


def added(values: Array, places: Array, size: Sequence[int]) -> Array:
    """Return images to which values (N, C, OH, OW, taps) are added at their positions, -1 for none."""
    made = np.zeros((*size[:2], size[2] * size[3] + 1))
    for n, c in np.ndindex(*size[:2]):
        np.add.at(made[n, c], places[n, c], values[n, c])
    return made[..., :-1].reshape(size)


def taps(x: Array, words: Mapping[str, Any], size: Sequence[int], fill: float) -> tuple[Array, Array]:
    """Return the elements of each window, and their positions in the image, -1 outside."""
    kernel, strides, padding, dilations = (words[word] for word in GEOMETRY)
    places = np.arange(x[0, 0].size).reshape(1, 1, *x.shape[2:])
    found, place = (
        oracles.patches(one, kernel, strides, padding, dilations, outside) for one, outside in ((x, fill), (places, -1))
    )
    flat = (*size, -1)
    return found.reshape(flat), np.broadcast_to(place, found.shape).reshape(flat)


def max_pool(torch: Pytorch, draw: Draw) -> list[Compared]:
    """Maxima of windows without NaN and their places, and the gradient for them."""
    x = image(draw, kind=draw.choice("plain", "ties"), dtype=draw.choice(np.float32, np.float16))
    words, size = windows(draw, x, dilates=True)
    out, indices = blank(size, x.dtype), blank(size, np.int64)
    torch.max_pool(x, out, indices, **words)
    found, place = taps(x, words, size, -np.inf)
    first = found.argmax(-1)[..., None]
    g, dx = draw.array(*size, kind="ties"), np.zeros(x.shape, np.float32)
    torch.max_pool_backward(dx, g, indices, **words)
    where = np.take_along_axis(place, first, -1)
    bound = 1e-6 * np.abs(g).max() * 9
    return [
        Compared(out, found.max(-1)), Compared(indices, where[..., 0]),
        Compared(dx, added(g[..., None], where, x.shape), bound),
    ]  # fmt: skip


def avg_pool(torch: Pytorch, draw: Draw, *, large: bool = False) -> list[Compared]:
    """Means of windows over all taps, those inside, or a number; and their gradient."""
    dtype = np.float16 if large else draw.choice(np.float32, np.float16)
    x = image(draw, kind=draw.choice("plain", "ties"), dtype=dtype)
    words, size = windows(draw, x, dilates=False)
    beyond = 65_536 if large or dtype == np.float32 else 65_504  # the largest number of half
    include, divisor = draw.choice(True, False), beyond if large else draw.choice(None, 3, 2048, beyond)
    more = {"count_include_pad": include, "divisor_override": divisor}
    out = blank(size, dtype)
    torch.avg_pool(x, out, **words, **more)
    found, place = taps(x, words, size, 0)
    counts = np.full(size, float(divisor)) if divisor else (place >= 0).sum(-1).astype(float)
    if include and not divisor:
        counts[...] = math.prod(words["kernel_size"])
    taken = HALF * found.shape[-1] * 2 if dtype == np.float16 else EPSILON * 32
    error = taken * np.abs(wide(found)).sum(-1) / counts + 2.0**-24 * (dtype == np.float16)
    g, dx = draw.array(*size, kind="ties"), np.zeros(x.shape, np.float32)
    torch.avg_pool(dx, g, backward=True, **words, **more)
    expected = added(np.broadcast_to((g / counts)[..., None], place.shape), place, x.shape)
    return [
        Compared(out, found.sum(-1, dtype=np.float64) / counts, error),
        Compared(dx, expected, EPSILON * 64 * np.abs(g).max() * 16),
    ]


def adaptive_pool(torch: Pytorch, draw: Draw) -> list[Compared]:
    """Means of parts, which may overlap, and their gradient."""
    x = image(draw)
    size = (*x.shape[:2], draw.choice(1, 2, 7), draw.choice(1, 3, 10))
    parts = [np.zeros((b, a)) for a, b in zip(x.shape[2:], size[2:], strict=True)]
    for matrix in parts:
        b, a = matrix.shape
        for i in range(b):
            first, last = i * a // b, -(-(i + 1) * a // b)
            matrix[i, first:last] = 1 / (last - first)
    out = blank(size)
    torch.adaptive_pool(x, out)
    g, dx = draw.array(*size, kind="plain"), blank(x.shape)
    torch.adaptive_pool(dx, g, backward=True)
    finite, special = np.where(np.isfinite(x), x, 0), x[~np.isfinite(x)]
    means, bad = (np.einsum("ncij,ai,bj->ncab", one, *parts) for one in (wide(finite), ~np.isfinite(x) * 1.0))
    expected = np.where(bad > 0, special[0] if special.size else 0, means)
    gradient = np.einsum("ncab,ai,bj->ncij", wide(g), *parts)
    bounds = EPSILON * 256 * np.abs(finite).max(), EPSILON * 256 * np.abs(g).max()
    return [Compared(out, expected, bounds[0]), Compared(dx, gradient, bounds[1])]


def upsample(torch: Pytorch, draw: Draw) -> list[Compared]:
    """Images of another size, and where there is a kernel the gradient."""
    name, kind = draw.choice("nearest2d", "nearest_exact2d", "bilinear2d", "bicubic2d"), draw.choice("plain", "ties")
    rows = draw.choice(*rounded_sizes(name)) if name.startswith("nearest") and draw.choice(False, True) else None
    x = draw.array(1, 2, rows[0], 3, kind=kind) if rows else image(draw, kind=kind)
    size = (*x.shape[:2], rows[1] if rows else draw.choice(1, 2, 5, 18), draw.choice(1, 3, 16, 33))
    align = not name.startswith("nearest") and draw.choice(False, True)
    out = blank(size)
    torch.upsample(name, x, out, align_corners=align)
    weights = [positions(a, b, name, align_corners=align) for a, b in zip(x.shape[2:], size[2:], strict=True)]
    expected = np.einsum("ncij,ai,bj->ncab", wide(x), *weights)
    error = EPSILON * 64 * (1 + max(x.shape[2:])) * np.abs(x).max()
    compared = [Compared(out, expected, 0 if name.startswith("nearest") else error)]
    volume = {"nearest2d": "nearest_3d", "nearest_exact2d": "nearest_exact_3d", "bilinear2d": "trilinear"}
    g, dx = draw.array(*size, kind="plain"), np.zeros(x.shape, np.float32)
    both = (dx, g) if name == "bicubic2d" else (dx[:, :, None], g[:, :, None])
    torch.upsample(volume.get(name, name), *both, align_corners=align, backward=True)
    gradient = np.einsum("ncab,ai,bj->ncij", wide(g), *weights)
    bound = EPSILON * 64 * (1 + max(x.shape[2:])) * np.einsum("ncab->nc", np.abs(g))[:, :, None, None]
    return [*compared, Compared(dx, gradient, bound)]


def softmax(torch: Pytorch, draw: Draw) -> list[Compared]:
    """Softmax and its logarithm along any axis, by each of the kernels."""
    rows = draw.choice((1,), (2,), (3, 2), (130,))
    shape = (*rows, draw.choice(1, 2, 31, 33, 1025)) if rows == (130,) else (*rows, draw.length())
    shape = (*rows, draw.choice(2049, 4200)) if draw.choice(False, False, True) else shape
    x = draw.strided(*shape, rows=draw.choice(True, False))
    axis = draw.number(0, x.ndim - 1)
    logarithmic, out = draw.choice(False, True), blank(x.shape)
    torch.softmax(x, out, axis, logarithmic=logarithmic)
    z = wide(x)
    powers, error = oracles.softmax(z, axis, unit=2 * EPSILON)
    expected = powers
    if logarithmic:
        expected = z - np.expand_dims(oracles.logsumexp(np.moveaxis(z, axis, -1)), axis)
        error = (error - 1e-38) / powers * (np.abs(expected) + 1) + 1e-38
    g = draw.array(*shape, kind="plain")
    y = np.moveaxis(np.where(np.isnan(expected), 0, powers), axis, -1)
    y, h = np.ascontiguousarray(y, np.float32), np.ascontiguousarray(np.moveaxis(g, axis, -1))
    dx = blank(y.shape)
    torch.softmax_backward(h, y, dx)
    products = wide(y) * h
    gradient = products - y * products.sum(-1, keepdims=True)
    bound = EPSILON * 64 * (np.abs(products) + y * np.abs(products).sum(-1, keepdims=True)) + 1e-38
    return [Compared(out, expected, error), Compared(dx, gradient, bound)]


def group_norm(torch: Pytorch, draw: Draw) -> list[Compared]:
    """Normalized groups of channels, and their gradients; the variance is that of squares."""
    groups, per = draw.choice(1, 2, 3), draw.number(1, 3)
    shape = (draw.number(1, 2), groups * per, draw.choice(1, 3, 7), draw.choice(1, 5, 33, 400))
    x = draw.array(*shape, kind="plain")
    gamma, beta = (draw.array(groups * per, kind="plain") for _ in range(2))
    y, *_ = torch.group_norm(x, gamma, beta, groups, 1e-5)
    z = wide(x).reshape(len(x), groups, -1)
    scale, shift = wide(gamma).reshape(1, -1, 1, 1), beta.reshape(1, -1, 1, 1)
    g = draw.array(*shape, kind="plain")
    h = (g * scale).reshape(z.shape)
    gradient, p, r = oracles.norm_gradient(z, h)
    m, plain = z.mean(-1, keepdims=True), p.reshape(shape)
    # From squares, the variance has an error of the squares' rounding.
    relative = EPSILON * (64 + z.shape[-1] / 16) * (1 + (z**2).mean(-1, keepdims=True) * r * r)
    error = (relative * (1 + np.abs(p) + np.abs(m) * r)).reshape(shape) * np.abs(scale) + EPSILON * np.abs(shift)
    of_rows = m.astype(np.float32)[..., 0], r.astype(np.float32)[..., 0]
    dx, dgamma, dbeta = torch.group_norm_backward(g, x, *of_rows, gamma, groups)
    size = EPSILON * (256 + z.shape[-1]) * r * (np.abs(h).max(-1, keepdims=True) * (1 + np.abs(p)) + 1e-6)
    size = size * (1 + np.abs(m) * r) * (1 + np.abs(p).max(-1, keepdims=True))
    over, many = (0, 2, 3), EPSILON * (256 + plain[:, 0].size)
    return [
        Compared(y, plain * scale + shift, error),
        Compared(dx, gradient.reshape(shape), size.reshape(shape)),
        Compared(dgamma, (g * plain).sum(over), many * (np.abs(g) * (1 + np.abs(plain))).sum(over)),
        Compared(dbeta, g.sum(over, dtype=np.float64), many * np.abs(g).sum(over)),
    ]


def layer_norm(torch: Pytorch, draw: Draw) -> Compared:
    """Normalized rows that fit into the registers of a threadgroup, and longer ones."""
    count, length = draw.number(1, 3), draw.choice(1, 2, 5, 31, 33, 128, 1023, 4096, 4097)
    x = draw.array(count, length) + np.float32(draw.choice(0, 1000))
    weight, bias = (draw.array(length, kind="plain") for _ in range(2))
    y, *_ = torch.layer_norm(x, weight, bias, 1e-5)
    _, plain, r = oracles.norm_gradient(wide(x), wide(x))
    far = np.abs(wide(x).mean(1, keepdims=True)) * r + 1
    error = EPSILON * (64 + length / 16) * (far * (1 + np.abs(plain)) * np.abs(weight)) * 4
    return Compared(y, plain * weight + bias, error + EPSILON * np.abs(bias))


def conv2d(torch: Pytorch, draw: Draw) -> Compared:
    """Convolution of all channels or of each, by either kernel; PyTorch launches it for filters from 256 on."""
    x = np.ascontiguousarray(image(draw))
    words, size = windows(draw, x, dilates=True)
    groups, dtype = draw.choice(1, x.shape[1]), draw.choice(np.float32, np.float16)
    x, per = x.astype(dtype), draw.number(1, 2)
    weight = draw.array(groups * per, x.shape[1] // groups, *words["kernel_size"], kind="plain", dtype=dtype)
    bias = draw.choice(None, draw.array(len(weight), kind="plain", dtype=dtype))
    out = blank((len(x), len(weight), *size[2:]), dtype)
    torch.conv2d(x, weight, bias, out, wide=draw.choice(False, True), **words)
    found = oracles.patches(x, *(words[word] for word in GEOMETRY))
    expected, total = oracles.convolution(found, weight, groups)
    term = 0.0 if bias is None else wide(bias)[:, None, None]
    rounding = (HALF * np.abs(expected + term) + 2**-24) * (dtype == np.float16)
    return Compared(out, expected + term, EPSILON * 64 * (total + np.abs(term)) + rounding)


def cross_entropy(torch: Pytorch, draw: Draw, *, masked: bool = False) -> list[Compared]:
    """Cross entropies with weights and smoothed labels, rows that do not count, and the gradient; or of -infinity."""
    x = draw.array(draw.number(1, 3), 33 if masked else draw.length(), kind="plain" if masked else None)
    count, classes = x.shape
    x[:] = np.where(np.isneginf(x), 1, x)  # see FINDINGS
    x[:, 32 if masked else classes :] = -np.inf
    target = np.random.default_rng(draw.number(0, 99)).integers(0, min(classes, 32), count)
    target[0] = target[0] if masked else draw.choice(target[0], IGNORED, classes)
    weight = None if masked else draw.choice(None, np.abs(draw.array(classes, kind="plain")))
    smoothing = 0.0 if masked else draw.choice(0.0, 0.1)
    loss, logarithm, weights, errors = torch.cross_entropy(x, target, weight, smoothing)
    g = draw.array(count, kind="plain")
    dx = torch.cross_entropy_backward(g, x, target, weight, logarithm, smoothing)
    counts, row = (target >= 0) & (target < classes), np.arange(count)
    at, w = np.where(counts, target, 0), np.ones(classes) if weight is None else weight.astype(np.float64)
    with np.errstate(invalid="ignore"):
        z = x.astype(np.float64)
        top = z.max(1)
        total = np.log(np.exp(z - top[:, None]).sum(1)) + top
        softmax = np.exp(z - total[:, None])
        share = smoothing / classes
        smooth = share * (w.sum() * total - (w * z).sum(1)) if share else 0.0
        expected = (1 - smoothing) * w[at] * (total - z[row, at]) + smooth
        gradient = (1 - smoothing) * w[at][:, None] * (softmax - (np.arange(classes) == at[:, None]))
        gradient = gradient + share * (w.sum() * softmax - w)
        unit = EPSILON * (64 + classes / 16) * (1 + np.abs(total) + np.abs(z).max(1, initial=0, where=np.isfinite(z)))
        most = np.nan_to_num(unit * (1 + w[at] + share * w.sum()))
    return [
        Compared(loss, np.where(counts, expected, 0), most),
        Compared(logarithm, np.where(counts, total, 0), np.nan_to_num(unit)),
        Compared(weights, np.where(counts, w[at], 0)), Compared(errors, np.array([np.sum(target == classes)])),
        Compared(dx, np.where(counts[:, None], g[:, None] * gradient, 0), (most * np.abs(g))[:, None]),
    ]  # fmt: skip


def philox(seed: int, offset: int, count: int, rounds: int) -> Array:
    """Return ``count`` times four random numbers of Philox4x32, of a key and counters from ``offset`` on."""
    at = np.uint64(offset) + np.arange(count, dtype=np.uint64)
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [np.zeros(count, np.uint64), np.zeros(count, np.uint64), at >> high, at & low]
    keys = [seed >> 32, seed & 0xFFFFFFFF]
    for _ in range(rounds):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            second >> high ^ c[1] ^ np.uint64(keys[0]),
            second & low,
            first >> high ^ c[3] ^ np.uint64(keys[1]),
            first & low,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1)


def dropout(torch: Pytorch, draw: Draw, rounds: int = 9) -> list[Compared]:
    """Elements that random numbers keep, and the gradient; ``philox4::rand`` of PyTorch runs 9 rounds."""
    x = draw.array(draw.length(), kind="plain")
    p, seed, offset = draw.choice(0.0, 0.5, 0.9), draw.number(0, 2**40), draw.number(0, 2**33)
    y, mask = torch.dropout(x, p, seed, offset)
    bits = philox(seed, offset, -(-x.size // 4), rounds).ravel()[: x.size]
    uniform = (bits & np.uint64(0x7FFFFFFF)) * 4.6566127342e-10
    sure = np.abs(uniform - (1 - p)) > 1e-6
    g, scale = draw.array(x.size, kind="plain"), 1 / (1 - p)
    dx, error = torch.dropout_backward(g, mask, scale), 4 * EPSILON * scale
    return [
        Compared(np.where(sure, mask, False), np.where(sure, uniform < 1 - p, False)),
        Compared(y, np.where(mask, x * scale, 0), error * np.abs(x)),
        Compared(dx, np.where(mask, g * scale, 0), error * np.abs(g)),
    ]


def adam(torch: Pytorch, draw: Draw) -> list[Compared]:
    """A step of Adam, AdamW and AMSGrad for several tensors, some longer than a chunk."""
    sizes = [draw.choice(1, 5, 1025) for _ in range(draw.number(1, 3))]
    sizes = [CHUNK + 1, *sizes] if draw.choice(False, False, False, True) else sizes
    weighted, maxima = draw.choice("adam", "adamw"), draw.choice(False, True)
    names = ["params", "grads", "exp_avgs", "exp_avg_sqs", *["max_exp_avg_sqs"] * maxima]
    lists = {name: [draw.array(n, kind="plain") for n in sizes] for name in names}
    for name in names[3:]:
        lists[name] = [one * one for one in lists[name]]
    step, maximize = draw.number(1, 40), draw.choice(0, 1)
    rate, beta1, beta2, decay, epsilon = (
        float(np.float32(one)) for one in (0.1, 0.9, 0.99, draw.choice(0.0, 0.1), 1e-6)
    )
    before = {name: [one.astype(np.float64) for one in arrays] for name, arrays in lists.items()}
    lists["state_steps"] = [np.array([step], np.float32) for _ in sizes]
    numbers = map(np.float32, (rate, beta1, beta2, decay, epsilon))
    kernel = f"fused_{weighted}{'_amsgrad' * maxima}_float_float"
    torch.optimizer(kernel, lists, *numbers, np.uint8(maximize))
    compared = []
    for i in range(len(sizes)):
        p, g, m, v = (before[name][i] for name in names[:4])
        g = -g if maximize else g
        g, p = (g + decay * p, p) if weighted == "adam" else (g, p - rate * decay * p)
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        top = np.maximum(v, before["max_exp_avg_sqs"][i]) if maxima else v
        change = rate / (1 - beta1**step) * m / (np.sqrt(top / (1 - beta2**step)) + epsilon)
        size = EPSILON * 64 / min(1 - beta2**step, 1 - beta1**step)
        compared += [
            Compared(lists["params"][i], p - change, size * (np.abs(p) + np.abs(change) + 1)),
            Compared(lists["exp_avgs"][i], m, EPSILON * 8 * (np.abs(m) + np.abs(g))),
            Compared(lists["exp_avg_sqs"][i], v, EPSILON * 8 * v),
            Compared(lists["grads"][i], before["grads"][i]),
        ]
    return compared


def early_steps(torch: Pytorch, draw: Draw) -> Compared:
    """The third step of Adam with a beta2 of 0.9999, within 1e-5."""
    gradients, (m, v) = draw.array(3, 64, kind="plain"), np.zeros((2, 64), np.float32)
    exact, p = np.zeros((2, 64)), m.copy()
    for step, g in enumerate(gradients, 1):
        p[:] = 0
        lists = {"params": [p], "grads": [g.copy()], "exp_avgs": [m], "exp_avg_sqs": [v]}
        lists["state_steps"] = [np.array([step], np.float32)]
        numbers = map(np.float32, (1, 0.9, 0.9999, 0, 1e-8))
        torch.optimizer("fused_adam_float_float", lists, *numbers, np.uint8(0))
        exact += np.array([0.1, 0.0001])[:, None] * (np.array([g, g.astype(np.float64) ** 2]) - exact)
    change = -exact[0] / (1 - 0.9**3) / np.sqrt(exact[1] / (1 - 0.9999**3))
    return Compared(p, change, 1e-5 * np.abs(change) + 1e-6)


def sgd(torch: Pytorch, draw: Draw) -> list[Compared]:
    """A step of gradient descent, with momentum or without."""
    n, decay, rate, maximize = draw.length(), draw.choice(0.0, 0.1), 0.1, draw.choice(0, 1)
    p, g, m = (draw.array(n, kind="plain") for _ in range(3))
    plain = [one.astype(np.float64) for one in (p, g, m)]
    change = (-plain[1] if maximize else plain[1]) + decay * plain[0]
    if draw.choice(False, True):
        momentum, dampening, nesterov, first = 0.9, draw.choice(0.0, 0.5), draw.choice(0, 1), draw.choice(0, 1)
        lists = {"params": [p], "grads": [g], "momentum_buffer_list": [m]}
        numbers = map(np.float32, (decay, momentum, rate, dampening))
        torch.optimizer("fused_sgd_momentum_float", lists, *numbers, *map(np.uint8, (nesterov, maximize, first)))
        moment = change if first else momentum * plain[2] + (1 - dampening) * change
        change = change + momentum * moment if nesterov else moment
    else:
        lists = {"params": [p], "grads": [g]}
        torch.optimizer("fused_sgd_float", lists, np.float32(decay), np.float32(rate), np.uint8(maximize))
        moment = plain[2]
    bound = EPSILON * 16 * (np.abs(plain[0]) + np.abs(plain[1]) + np.abs(plain[2]))
    return [Compared(p, plain[0] - rate * change, bound), Compared(m, moment, bound)]


def beside(torch: Pytorch, draw: Draw) -> Compared:
    """A window of which no tap is inside the image: its maximum is -infinity."""
    x = draw.array(1, 1, 1, 1, kind="plain")
    out, indices = blank(x.shape), blank(x.shape, np.int64)
    torch.max_pool(x, out, indices, kernel_size=(2, 2), stride=(1, 1), padding=(1, 1), dilation=(2, 2))
    return Compared(out, np.full(x.shape, -np.inf))


def later_nan(torch: Pytorch, draw: Draw) -> Compared:
    """A NaN that is not the first of its window: the maximum is NaN on other devices."""
    x = np.zeros((1, 1, 1, 2), np.float32)
    x[..., 1] = np.nan
    out, indices = blank((1, 1, 1, 1)), blank((1, 1, 1, 1), np.int64)
    torch.max_pool(x, out, indices, kernel_size=(1, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1))
    return Compared(out, np.full(out.shape, np.nan))


def far_from_zero(torch: Pytorch, draw: Draw) -> Compared:
    """Groups of mean 1000 and deviation 1, normalized within a thousandth."""
    x = draw.array(1, 2, 8, 32, kind="plain") + np.float32(1000)
    y, *_ = torch.group_norm(x, np.ones(2, np.float32), np.zeros(2, np.float32), 2, 1e-5)
    expected = oracles.normalized(x.reshape(2, -1))[0].reshape(x.shape)
    return Compared(y, expected, 1e-3 * (1 + np.abs(expected)))


def ctc(pytorch: Pytorch, draw: Draw, *, long: bool = False) -> list[Compared]:
    """Connectionist temporal classification and its gradient, of sequences of several lengths, also impossible ones."""
    time, batch, labels = draw.choice(1, 2, 5, 12), draw.number(1, 3), draw.choice(2, 3, 30)
    most = draw.choice(1, 2, 5, 20)
    if long:  # more than 1024 states
        time, batch, labels, most = 600, 1, 30, 513
    random = np.random.default_rng(draw.number(0, 2**16))
    x = draw.array(time, batch, labels, kind="plain").astype(np.float64)
    logs = (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(np.float32)
    targets = random.integers(1, labels, (batch, most), np.int32)
    lengths = random.integers(1, time + 1, batch, np.int32)
    possible = draw.choice(True, True, False)
    of_targets = random.integers(0, (np.minimum(lengths, most) if possible else most) + 1, batch, np.int32)
    if long:
        lengths[:], of_targets[:] = time, most
    g = draw.array(batch, kind="plain")
    losses, gradient = np.zeros(batch), np.zeros(x.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        for b in range(batch):
            n, t = 2 * int(of_targets[b]) + 1, int(lengths[b])
            states = np.zeros(n, int)
            states[1::2] = targets[b, : of_targets[b]]
            skips = (np.arange(n) > 1) & (states != np.roll(states, 2)) & (states != 0)
            steps_of = np.eye(n) + np.eye(n, k=1) + np.eye(n, k=2) * skips
            p = np.exp(logs[:t, b].astype(np.float64))[:, states]
            ends, logarithm, forth, back = np.arange(n) >= n - 2, 0.0, [p[0] * (np.arange(n) < 2)], [p[-1]]
            back[0] = back[0] * ends
            for i in range(1, t):
                forth.append(forth[-1] @ steps_of * p[i])
                back.append(steps_of @ back[-1] * p[t - 1 - i])
                for one in (forth, back):  # their logarithm may be below that of the least number
                    size = one[-1].max() or 1.0
                    one[-1], logarithm = one[-1] / size, logarithm + (math.log(size) if one is forth else 0)
            losses[b] = -np.log((forth[-1] * ends).sum()) - logarithm
            through = np.stack(forth) * np.stack(back[::-1]) / p
            through = through / through.sum(1, keepdims=True)
            counts = np.stack([through[:, states == c].sum(1) for c in range(labels)], 1)
            gradient[:t, b] = g[b] * (np.exp(logs[:t, b]) - counts)
    got, dx = pytorch.ctc(logs, targets, lengths, of_targets, g)
    error = EPSILON * 256 * (1 + time) * np.abs(g).max()
    return [Compared(got, losses, EPSILON * 64 * (1 + np.abs(losses))), Compared(dx, gradient, error)]


FINDINGS: Mapping[str, tuple[Case, str]] = {
    "ctc of targets of more than 511 labels": (
        lambda pytorch, draw: ctc(pytorch, draw, long=True),
        "the states of the gradient are computed in blocks of 1024 from the first on, and need those behind them",
    ),
    "max_pool of windows beside the image": (
        beside, "the first tap is read even if it lies behind the image: another element, or memory behind the buffer",
    ),
    "avg_pool of halves with a divisor above 65,504": (
        lambda torch, draw: avg_pool(torch, draw, large=True),
        "the divisor is converted to half, where it is infinite: zeros",
    ),
    "max_pool of NaN": (later_nan, "a NaN that is not the first tap of its window is ignored"),
    "dropout by Philox4x32-10": (
        lambda torch, draw: dropout(torch, draw, rounds=10),
        "philox4::rand stops after 9 of 10 rounds: other numbers than those of the generator that it is named after",
    ),
    "adam of the first steps": (
        early_steps, "1 - pow(beta2, step) is a difference of float32 numbers: up to 5e-5 of the step",
    ),
    "cross_entropy of -infinity": (
        lambda torch, draw: cross_entropy(torch, draw, masked=True),
        "NaN if the first classes of a thread are all -infinity: the maximum is subtracted from itself",
    ),
    "group_norm far from zero": (
        far_from_zero, "the variance is the difference of two large numbers: wrong digits, and NaN if it is negative",
    ),
}  # fmt: skip
"""Cases in which the kernels differ from NumPy or stop, and why."""

REVIEWED: Mapping[tuple[str, str], str] = {
    ("max_pool_backward", "uncovered"): "the gradient is added at the maxima; the host has filled the rest with zeros",
    ("avg_pool_backward", "uncovered"): "the same: pixels between windows",
    ("upsample", "uncovered"): "the gradient is added at the pixels that were read; the host has filled the rest",
    ("upsample", "uninitialized"): "to_vec sets each component of the vector in a loop",
}
"""What was seen in reports of kernels whose results are right: by the beginning of the kernel's name, and the kind."""

FILES = {
    "max_pool": "Pooling.metal", "avg_pool": "Pooling.metal", "adaptive": "AdaptivePooling.metal",
    "upsample": "UpSample.metal", "softmax": "SoftMax.metal", "group_norm": "GroupNorm.metal",
    "layer_norm": "LayerNorm.metal", "dropout": "Dropout.metal", "adam": "FusedOptimizerOps.metal",
    "sgd": "FusedOptimizerOps.metal", "conv2d": "Convolution.metal", "cross_entropy": "CrossEntropyKernel.metal",
    "ctc": "LossOps.metal",
}  # fmt: skip
"""Files that a case needs, by the beginning of its name."""

HOST: Mapping[str, str] = {
    "avg_pool": "any divisor but 0, an integer of 32 bits, for float, half and bfloat",
    "upsample": "scales are quotients of the sizes in float32, or those of the caller; so are the positions",
}
"""What the host passes, as its sources say."""

CASES = named(
    max_pool, avg_pool, adaptive_pool, upsample, softmax, group_norm, layer_norm, dropout, adam, sgd, conv2d,
    cross_entropy, ctc,
)  # fmt: skip
