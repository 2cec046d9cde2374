"""Layers with windows or weights: convolutions, linear layers, pooling and upsampling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mpsref import (
    Convolution,
    ConvolutionTranspose,
    FullyConnected,
    PoolingAverage,
    PoolingL2Norm,
    PoolingMax,
    UpsamplingBilinear,
    UpsamplingNearest,
    frameworks,
)
from mpsref import padding as placement
from mpsref.arguments.arrays import Array
from mpsref.conformance.audit import Check
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.geometry import Window
from mpsref.kernels.pooling import Pooling
from mpsref.operations import Problem
from mpsref.padding import Placement
from mpsref_torch.auditing import formulas, sampled
from mpsref_torch.auditing.layer import Sampled, Translated, made, problem_of
from mpsref_torch.auditing.sampled import WINDOWS, WORK, Block, Draw, Range, array, image

Pair = tuple[int, int]

SMALLEST = -(2.0**127)
"""What max pooling reads outside of the image, if it is no pixel of the image."""


def pair(value: Any, rank: int = 2) -> Pair:
    """Return an argument of PyTorch for each axis; a one-dimensional layer has a height of 1."""
    values = tuple(value) if isinstance(value, (Sequence, tuple)) else (value,) * rank
    if len(values) == 1 and rank == 2:
        values *= 2
    return (int(values[-2]), int(values[-1])) if rank == 2 else (0, int(values[-1]))


def _placed(shape: Sequence[int], *windows: Any) -> Placement:
    """Return where the windows of PyTorch lie on images (N, C, H, W)."""
    _, _, height, width = shape
    return placement.pytorch((height, width), *windows)


def as_images(tensor: Tensor, rank: int) -> Tensor:
    """Return a tensor (N, C, H, W) from one with a batch or without, of ``rank`` spatial axes, or from means (N, C)."""
    if tensor.dim() == rank == 2:
        return tensor[..., None, None]
    found = tensor.unsqueeze(0) if tensor.dim() == rank + 1 else tensor
    return found.unsqueeze(2) if rank == 1 else found


def _read(begin: int, end: int, pixels: Range, count: int, length: int) -> Range:
    """Return what pixels read; a block that is not a whole axis reads zeros beyond it, so that blocks are equal."""
    if pixels == (0, count):
        begin, end = min(max(0, begin), length - 1), min(end, length)
    return begin, max(begin + 1, end)


class Weighted(Translated):
    """A convolution or a transposed convolution of one or two axes, or a product with a matrix."""

    transposed = False
    strides = dilations = (1, 1)
    offsets: Pair = (0, 0)
    images, members, side = 2, 8, 8
    """The most images, channels, and channels of a gradient for weights that are compared."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
        self.rank = weight.dim() - 2
        self.inputs = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
        self.bias, self.groups = bias, int(groups)
        self.weight = self.kernel(weight)
        self.x_shape = tuple(self.as_images(x).shape)
        self.y_shape: tuple[int, ...] = ()
        self.size: Pair = (self.weight.shape[2], self.weight.shape[3])
        self.kept: Array | None = None
        self.in_group = self.x_shape[1] // self.groups
        self.out_group = (self.weight.shape[1] if self.transposed else self.weight.shape[0] // self.groups) or 1

    def spec(self, offsets: Pair, groups: int) -> Any:
        """Return the spec with other offsets and groups."""
        return made(Convolution, self.size, self.strides, self.dilations, offsets, groups)

    def _window(self, axis: int) -> Window:
        return Window(self.size[axis], self.strides[axis], self.dilations[axis], self.offsets[axis])

    def forward_crop(self, axis: int, pixels: Range) -> sampled.Crop:
        """Return source, windows and offset that give these pixels of the result."""
        window = self._window(axis)
        first, end = window.start(pixels[0]), window.tap(pixels[1] - 1, window.kernel - 1) + 1
        low, high = _read(first, end, pixels, self.y_shape[2 + axis], self.x_shape[2 + axis])
        return sampled.Crop((low, high), pixels, window.offset + window.stride * pixels[0] - low)

    def backward_crop(self, axis: int, pixels: Range) -> sampled.Crop:
        """Return windows and offset that give the gradient of these pixels of the source."""
        window = self._window(axis)
        first = -((window.tap(0, window.kernel - 1) - pixels[0]) // window.stride)
        end = (pixels[1] - 1 - window.start(0)) // window.stride + 1
        low, high = _read(first, end, pixels, self.x_shape[2 + axis], self.y_shape[2 + axis])
        return sampled.Crop(pixels, (low, high), window.offset + window.stride * low - pixels[0])

    def as_images(self, tensor: Tensor) -> Tensor:
        """Return the source, the result or a gradient of it as (N, C, H, W)."""
        if self.rank not in (1, 2):
            raise UnsupportedError(f"a convolution of {self.rank} axes; mpsref has those of one and two")
        return as_images(tensor, self.rank)

    @staticmethod
    def kernel(tensor: Tensor) -> Tensor:
        """Return weights, or their gradient, with the axes of the pixels."""
        return tensor.detach().reshape(*tensor.shape[:2], *(1,) * (4 - tensor.dim()), *tensor.shape[2:])

    def channels(self, groups: list[int], members: list[int], size: int) -> list[int]:
        """Return the channels that are ``members`` of the groups."""
        return [group * size + member for group in groups for member in members]

    def weights(self, tensor: Tensor, groups: list[int], outputs: list[int], inputs: list[int]) -> Array:
        """Return the weights OHWI of some members of some groups."""
        if self.transposed:  # (in, out / groups, kH, kW)
            rows, columns = self.channels(groups, inputs, self.in_group), outputs
        else:
            rows, columns = self.channels(groups, outputs, self.out_group), inputs
        return frameworks.weights_from(
            image(tensor, rows, columns).transpose(0, 3, 1, 2), "OIHW", len(groups), self.transposed
        )

    def _some(self, wanted: int, summed: int, count: int, draw: Draw) -> tuple[list[int], list[int], list[int], int]:
        """Return some groups, some of the ``wanted`` channels of each, some images, and the products of a pixel."""
        groups, members = draw.some(self.groups, 8), draw.some(wanted, self.members if self.groups == 1 else 2)
        each = len(groups) * len(members) * summed * math.prod(self.size)
        images = draw.some(count, max(2, min(self.images, WORK // each)))
        return groups, members, images, each * len(images)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        y, x = self.as_images(y), self.as_images(self.inputs["x"])
        self.y_shape = tuple(y.shape)
        groups, members, images, each = self._some(self.out_group, self.in_group, len(x), draw)
        inputs = list(range(self.in_group))
        w = self.weights(self.weight, groups, members, inputs)
        outputs = self.channels(groups, members, self.out_group)
        found = []
        for block in draw.blocks(self.y_shape[2:], WORK // each):
            crops = [self.forward_crop(axis, pixels) for axis, pixels in enumerate(block)]
            part = image(x, images, self.channels(groups, inputs, self.in_group), crops[0].source, crops[1].source)
            spec = self.spec((crops[0].offset, crops[1].offset), len(groups))
            size = tuple(stop - start for start, stop in block)
            problem = problem_of(spec, "forward", part.shape, len(outputs), size, self.bias is not None)
            biases = () if self.bias is None else (array(self.bias)[outputs],)
            actual = {"result": image(y, images, outputs, *block)}
            found.append(Check(problem, (part, w, *biases), actual))
        if {"weight", "bias"} & wanted:
            # All pixels of all images: as few channels as the number of products allows.
            pairs = max(1, WORK // (math.prod(self.y_shape[::2]) * self.y_shape[3] * math.prod(self.size)))
            side = min(self.side, max(2, math.isqrt(pairs)))
            self.groups_of_weights = draw.some(self.groups, 1 if self.groups == 1 else min(8, max(2, pairs)))
            self.outputs_of_weights = draw.some(self.out_group, side)
            self.inputs_of_weights = draw.some(self.in_group, side)
            channels = self.channels(self.groups_of_weights, self.inputs_of_weights, self.in_group)
            self.kept = image(x, list(range(len(x))), channels)
        return found

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        g = self.as_images(g)
        checks = list(self._data(g, self.as_images(found["x"]), draw)) if "x" in found else []
        if self.kept is not None:
            checks.append(self._weights(g, found))
        return checks

    def _data(self, g: Tensor, dx: Tensor, draw: Draw) -> Iterator[Check]:
        groups, members, images, each = self._some(self.in_group, self.out_group, len(dx), draw)
        outputs = list(range(self.out_group))
        w = self.weights(self.weight, groups, outputs, members)
        inputs = self.channels(groups, members, self.in_group)
        for block in draw.blocks(self.x_shape[2:], WORK // each):
            crops = [self.backward_crop(axis, pixels) for axis, pixels in enumerate(block)]
            part = image(g, images, self.channels(groups, outputs, self.out_group), crops[0].windows, crops[1].windows)
            spec = self.spec((crops[0].offset, crops[1].offset), len(groups))
            size = tuple(stop - start for start, stop in block)
            source = (len(images), *size, len(inputs))
            problem = problem_of(spec, "gradient_data", source, part.shape[3], part.shape[1:3])
            yield Check(problem, (part, w), {"gradient for x": image(dx, images, inputs, *block)})

    def _weights(self, g: Tensor, found: dict[str, Tensor]) -> Check:
        assert self.kept is not None
        groups, members = self.groups_of_weights, self.inputs_of_weights
        outputs = self.channels(groups, self.outputs_of_weights, self.out_group)
        part, source = image(g, list(range(len(g))), outputs), self.kept
        spec = self.spec(self.offsets, len(groups))
        problem = problem_of(spec, "gradient_weights", source.shape, len(outputs), part.shape[1:3])
        actual, of = {}, []
        if "weight" in found:
            dw = self.weights(self.kernel(found["weight"]), groups, self.outputs_of_weights, members)
            actual["gradient for weight"] = dw
            of.append(0)
        if "bias" in found:
            actual["gradient for bias"] = array(found["bias"])[outputs]
            of.append(1)
        self.kept = None
        return Check(problem, (part, source), actual, tuple(of))

    def whole(self, method: str) -> Problem | None:
        n, inputs, *source = self.x_shape
        spec, outputs = self.spec(self.offsets, self.groups), self.y_shape[1]
        options = (self.bias is not None,) if method == "forward" else ()
        return problem_of(spec, method, (n, *source, inputs), outputs, self.y_shape[2:], *options)


class ConvolutionLayer(Weighted):
    """``conv1d`` and ``conv2d``."""

    def __init__(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> None:
        super().__init__(input, weight, bias, groups)
        s, d = pair(stride, self.rank), pair(dilation, self.rank)
        self.strides, self.dilations = (max(1, s[0]), s[1]), (max(1, d[0]), d[1])
        if padding == "same":
            pads: Any = [(k - 1) * step // 2 for k, step in zip(self.size, self.dilations, strict=True)]
        else:
            pads = (0, 0) if padding == "valid" else pair(padding, self.rank)
        self.offsets = _placed(self.x_shape, self.size, self.strides, pads, self.dilations).offset


class TransposedLayer(Weighted):
    """``conv_transpose1d`` and ``conv_transpose2d``; ``output_padding`` shows in the size of the result."""

    transposed = True

    def __init__(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> None:
        super().__init__(input, weight, bias, groups)
        if max(pair(dilation, self.rank)) > 1:
            raise UnsupportedError(f"dilation is {dilation}; transposed convolutions of mpsref have none")
        s, pads = pair(stride, self.rank), pair(padding, self.rank)
        self.strides = (max(1, s[0]), s[1])
        # The first pixel of the result is number `pad` of all that a tap reaches.
        y, x = (pad + k // 2 - k + 1 for pad, k in zip(pads, self.size, strict=True))
        self.offsets = y, x

    def spec(self, offsets: Pair, groups: int) -> ConvolutionTranspose:
        return ConvolutionTranspose(self.size, self.strides, kernel_offset=offsets, groups=groups)

    def _first(self, axis: int) -> int:
        """Return the result pixel of source pixel 0 and the last tap."""
        return -self.offsets[axis] + self.size[axis] // 2 - self.size[axis] + 1

    def forward_crop(self, axis: int, pixels: Range) -> sampled.Crop:
        stride, first = self.strides[axis], self._first(axis)
        begin, end = -((first + self.size[axis] - 1 - pixels[0]) // stride), (pixels[1] - 1 - first) // stride + 1
        low, high = _read(begin, end, pixels, self.y_shape[2 + axis], self.x_shape[2 + axis])
        return sampled.Crop((low, high), pixels, self.offsets[axis] - low * stride + pixels[0])

    def backward_crop(self, axis: int, pixels: Range) -> sampled.Crop:
        stride, first = self.strides[axis], self._first(axis)
        begin, end = pixels[0] * stride + first, (pixels[1] - 1) * stride + first + self.size[axis]
        low, high = _read(begin, end, pixels, self.x_shape[2 + axis], self.y_shape[2 + axis])
        return sampled.Crop(pixels, (low, high), self.offsets[axis] - pixels[0] * stride + low)


class LinearLayer(Weighted):
    """``linear``: a fully connected layer on images of one pixel; all leading axes are the batch."""

    images, members, side = 64, 32, 64

    def __init__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
        if weight.dim() != 2:
            raise UnsupportedError("weights of one axis, a product with a vector")
        self.rows = math.prod(input.shape[:-1])
        super().__init__(input, weight, bias, 1)

    def as_images(self, tensor: Tensor) -> Tensor:
        return tensor.detach().reshape(self.rows, tensor.numel() // max(1, self.rows), 1, 1)

    def spec(self, offsets: Pair, groups: int) -> FullyConnected:
        return FullyConnected(1)


class PoolingLayer(Translated):
    """Pooling with windows of one size; max pooling pads with the smallest number, as a clamped edge does."""

    def __init__(self, input: Tensor, spec: Pooling, rank: int = 2, grown: Pair = (0, 0)) -> None:
        self.inputs, self.rank, self.layer, self.grown = {"x": input}, rank, spec, grown
        n, c, height, width = as_images(input, rank).shape
        self.x_shape = (n, c, height + 2 * grown[0], width + 2 * grown[1])
        self.y_shape: tuple[int, ...] = ()

    def _source(self, tensor: Tensor, fill: float) -> Tensor:
        """Return a source image, or its gradient, with ``fill`` in the rows and columns of the padding."""
        image = as_images(tensor, self.rank)
        if not any(self.grown):
            return image
        (y, x), (_, _, height, width) = self.grown, image.shape
        found = image.new_full(self.x_shape, fill)
        found[:, :, y : y + height, x : x + width] = image.detach()
        return found

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        y, x = as_images(y, self.rank), self._source(self.inputs["x"], SMALLEST)
        self.y_shape = tuple(y.shape)
        images, channels, checks = draw.some(len(x), 2), draw.some(x.shape[1], 16), []
        for block in draw.blocks(self.y_shape[2:], WINDOWS):
            crops = list(map(sampled.forward, self.layer.windows, self.x_shape[2:], block))
            part = image(x, images, channels, crops[0].source, crops[1].source)
            spec = replace(self.layer, offset=(crops[0].offset, crops[1].offset))
            problem = problem_of(spec, "forward", part.shape, tuple(stop - start for start, stop in block))
            checks.append(Check(problem, (part,), {"result": image(y, images, channels, *block)}))
        if "x" in wanted:
            self.images, self.channels = images, channels
            self.pixels = draw.blocks(
                self.x_shape[2:], WINDOWS * math.prod(window.stride for window in self.layer.windows)
            )
            self.kept = [
                image(x, images, channels, *(crop.source for crop in self._both(block)))
                if self.layer.reads_source
                else None
                for block in self.pixels
            ]
        return checks

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        g, dx, checks = as_images(g, self.rank), self._source(found["x"], 0.0), []
        images, channels = self.images, self.channels
        for block, kept in zip(self.pixels, self.kept, strict=True):
            crops = self._both(block)
            part = image(g, images, channels, crops[0].windows, crops[1].windows)
            spec = replace(self.layer, offset=(crops[0].offset, crops[1].offset))
            size = tuple(crop.source[1] - crop.source[0] for crop in crops)
            problem = problem_of(spec, "gradient", (len(images), *size, len(channels)), part.shape[1:3])
            rows, columns = (
                slice(pixels[0] - crop.source[0], pixels[1] - crop.source[0])
                for pixels, crop in zip(block, crops, strict=True)
            )
            inputs = (part,) if kept is None else (part, kept)
            actual = {"gradient for x": image(dx, images, channels, *block)}
            checks.append(Check(problem, inputs, actual, region=(slice(None), rows, columns)))
        self.kept = []
        return checks

    def _both(self, block: Block) -> list[sampled.Crop]:
        return list(map(sampled.both, self.layer.windows, self.y_shape[2:], self.x_shape[2:], block))

    def whole(self, method: str) -> Problem:
        n, channels, height, width = self.x_shape
        (y, x), spec = self.grown, self.layer
        if any(self.grown):
            (a, b) = (window.offset for window in spec.windows)
            spec = replace(spec, offset=(a - y, b - x), edge_mode="clamp")
        source = (n, height - 2 * y, width - 2 * x, channels)
        return problem_of(spec, method, source, self.y_shape[2:])


class MeanOfPixels(PoolingLayer):
    """``mean`` over both axes of images: average pooling with one window."""

    def __init__(self, input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> None:
        axes = {axis % max(1, input.dim()) for axis in (dim if isinstance(dim, (list, tuple)) else [])}
        if input.dim() != 4 or axes != {2, 3} or dtype not in (None, input.dtype):
            raise UnsupportedError("a mean over other axes than those of the pixels")
        height, width = input.shape[2:]
        super().__init__(input, PoolingAverage((height, width), offset=(height // 2, width // 2)))


def _windows(kernel: Any, stride: Any, padding: Any, dilation: Any, rank: int) -> tuple[Pair, Pair, Pair, Pair]:
    """Return kernel, strides, pads and dilations of both axes."""
    k, d, pads = pair(kernel, rank), pair(dilation, rank), pair(padding, rank)
    s = k if stride is None or (isinstance(stride, (list, tuple)) and not stride) else pair(stride, rank)
    if rank == 1:
        k, s, d = (1, k[1]), (1, s[1]), (1, d[1])
    return k, s, pads, d


def average(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    rank: int = 2,
) -> Translated:
    """Translate ``avg_pool1d`` and ``avg_pool2d``."""
    k, s, pads, _ = _windows(kernel_size, stride, padding, 1, rank)
    placed = _placed(as_images(input, rank).shape, k, s, pads, (1, 1), ceil_mode, count_include_pad)
    if divisor_override is not None:
        if divisor_override != math.prod(k):
            raise UnsupportedError(f"divisor_override is {divisor_override}; MPS divides by the size of the window")
        return PoolingLayer(input, PoolingAverage(k, s, placed.offset), rank)
    return PoolingLayer(input, PoolingAverage(k, s, placed.offset, placed.edge_mode, placed.zero_pad_size), rank)


def largest(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    rank: int = 2,
) -> Translated:
    """Translate ``max_pool1d`` and ``max_pool2d``."""
    k, s, pads, d = _windows(kernel_size, stride, padding, dilation, rank)
    shape = as_images(input, rank).shape
    if max(pads) and max(d) > 1:  # a clamped edge would read pixels that are in no window
        whole = (*shape[:2], shape[2] + 2 * pads[0], shape[3] + 2 * pads[1])
        offset = _placed(whole, k, s, (0, 0), d, ceil_mode).offset
        return PoolingLayer(input, PoolingMax(k, s, offset, "zero", d), rank, pads)
    return PoolingLayer(input, PoolingMax(k, s, _placed(shape, k, s, pads, d, ceil_mode).offset, "clamp", d), rank)


def norm(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False, *, rank: int = 2
) -> Translated:
    """Translate ``lp_pool1d`` and ``lp_pool2d``."""
    if norm_type != 2:
        raise UnsupportedError(f"norm_type is {norm_type}; MPS has the L2 norm")
    k, s, _, _ = _windows(kernel_size, stride, 0, 1, rank)
    offset = _placed(as_images(input, rank).shape, k, s, (0, 0), (1, 1), ceil_mode).offset
    return PoolingLayer(input, PoolingL2Norm(k, s, offset), rank)


def adaptive(
    input: Tensor, output_size: Any, return_indices: bool = False, *, largest: bool, rank: int = 2
) -> Translated:
    """Translate adaptive pooling, maxima only of windows that all have one size."""
    lengths = tuple(as_images(input, rank).shape[2:])
    wanted = output_size if isinstance(output_size, (list, tuple)) else (output_size,) * rank
    sizes = [length if size is None else int(size) for length, size in zip(lengths[-rank:], wanted, strict=True)]
    sizes = [1] * (2 - rank) + sizes
    if any(not size or length % size for length, size in zip(lengths, sizes, strict=True)):
        if not all(sizes):
            raise UnsupportedError(f"{tuple(sizes)} windows")
        if largest:
            return formulas.UnevenMax(input, lengths, sizes)
        return formulas.Separable(input, lengths, sizes, *map(formulas.means, lengths, sizes))
    k = (lengths[0] // sizes[0], lengths[1] // sizes[1])
    kind = PoolingMax if largest else PoolingAverage
    return PoolingLayer(input, kind(k, k, placement.pytorch(lengths, k).offset), rank)


def _sizes(input: Tensor, size: Any, scale_factor: Any) -> Pair:
    if size is not None:
        return pair(size)
    factors = scale_factor if isinstance(scale_factor, (list, tuple)) else (scale_factor,) * 2
    return math.floor(input.shape[2] * factors[0]), math.floor(input.shape[3] * factors[1])


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Translated:
    """Translate ``interpolate``."""
    if input.dim() != 4 or mode not in ("nearest", "nearest-exact", "bilinear", "bicubic") or antialias:
        raise UnsupportedError(f"mode {mode!r}{' with antialias' * antialias} of images of {input.dim() - 2} axes")
    lengths, sizes = tuple(input.shape[2:]), _sizes(input, size, scale_factor)
    integral = not any(n % length for n, length in zip(sizes, lengths, strict=True))
    aligned = mode == "bilinear" and align_corners and integral
    if aligned or "nearest" in mode:
        if not integral:
            raise UnsupportedError(f"mode {mode!r} from {lengths} to {sizes} pixels; MPS has integer factors")
        scale = sizes[0] // lengths[0], sizes[1] // lengths[1]
        spec = UpsamplingBilinear(scale, align_corners=True) if aligned else UpsamplingNearest(scale)
        return UpsamplingLayer(input, spec)
    scales: Any = (None, None)
    if size is None and not recompute_scale_factor:
        scales = scale_factor if isinstance(scale_factor, (list, tuple)) else (scale_factor,) * 2
    return formulas.resized(input, sizes, scales, bool(align_corners), cubic=mode == "bicubic")


class UpsamplingLayer(Sampled):
    """``interpolate`` by integer factors; some images and channels, all of their pixels."""

    def choose(self, draw: Draw) -> None:
        n, c, *lengths = self.shape
        pixels = max(1, math.prod((*lengths, *self.layer.factors)))
        self.some = draw.some(n, 2), draw.some(c, min(16, max(1, sampled.VALUES // pixels)))

    def part(self, tensor: Tensor) -> Array:
        return image(tensor, *self.some)
