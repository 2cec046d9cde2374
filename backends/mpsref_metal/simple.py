"""The plain kernels in ``msl/simple``, as the backend ``metal:simple``: a second opinion, with all checks of anymetal.

Their sources contain the geometry, and nothing of :mod:`mpsref.tables`: they agree with the other backends only if both
are right. They are slow, and refuse what the plain formulas do not have: clips, effective offsets, neurons, batches in
parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import anymetal
import mpsref
from mpsref.arguments.arrays import Array
from mpsref.operations import Problem
from mpsref_metal.launch import SOURCES

MOST_TERMS = 1024
"""Maximum number of terms that a thread adds one after the other, for which the error bounds are derived."""

GROUP = 4, 4, 2
"""The threads of a threadgroup."""


@cache
def _library(file: str) -> anymetal.Library:
    return anymetal.compile(SOURCES / "simple" / f"{file}.metal")


def _launch(file: str, kernel: str, threads: tuple[int, ...], *arguments: Any) -> None:
    """Run a kernel on a grid of one to three axes; lists of numbers become structs of 32-bit integers."""
    group = (32,) if len(threads) == 1 else GROUP[: len(threads)]
    bound = [np.array(one, np.uint32).tobytes() if isinstance(one, list) else one for one in arguments]
    _library(file)[kernel](threads, group, *bound)


def _threads(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a thread for each element of an image: channel, column, row of all images together."""
    n, height, width, channels = shape
    return channels, width, n * height


def _axes(problem: Any, *names: str) -> list[list[int]]:
    """Return of each axis: length, number of windows, kernel, stride, offset, and what ``names`` says."""
    windows = zip(problem.source_shape[1:3], problem.result_size, problem.spec.windows, strict=True)
    clamps = int(problem.spec.edge_mode == "clamp")
    axes = []
    for axis, (length, count, window) in enumerate(windows):
        more = {"dilation": window.dilation, "clamps": clamps}
        more["zero_pad"] = problem.spec.zero_pad[axis] if "zero_pad" in names else 0
        given = [length, count, window.kernel, window.stride, window.offset, *(more[name] for name in names)]
        axes.append([number & 0xFFFFFFFF for number in given])
    return axes


def _windowed(file: str, *names: str) -> Callable[..., None]:
    """Return the implementation of a pooling kernel, forward and gradient."""

    def implementation(problem: Problem, *images: Array, out: Array) -> None:
        _launch(file, problem.method, _threads(out.shape), *images, out, *_axes(problem, *names))

    return implementation


def _channels(problem: Any) -> list[int]:
    return [problem.source_shape[3], problem.output_channels, problem.spec.groups]


def _convolution_forward(problem: Any, x: Array, weights: Array, *biases: Array, out: Array) -> None:
    bias = biases[0] if biases else np.zeros(problem.output_channels, np.float32)
    axes = _axes(problem, "dilation", "clamps")
    _launch("convolution_forward", "forward", _threads(out.shape), x, weights, bias, out, *axes, _channels(problem))


def _convolution_gradient_data(problem: Any, g: Array, weights: Array, out: Array) -> None:
    arguments = g, weights, out, *_axes(problem, "dilation", "clamps"), _channels(problem)
    _launch("convolution_gradient_data", "gradient_data", _threads(out.shape), *arguments)


def _convolution_gradient_weights(problem: Any, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    dw, db = out
    channels_out, height, width, channels_in = dw.shape
    axes, file = _axes(problem, "dilation", "clamps"), "convolution_gradient_weights"
    threads = channels_in, height * width, channels_out
    _launch(file, "gradient_weights", threads, g, x, dw, *axes, [*_channels(problem), len(x)])
    _launch(file, "gradient_biases", (channels_out,), g, db, g.size // channels_out)


def _statistics(problem: Any, x: Array, out: tuple[Array, Array]) -> None:
    _launch("batch_normalization", "statistics", (problem.channels,), x, *out, problem.pixels)


def _one_or(problem: Any, name: str, given: Any, default: float) -> Array:
    """Return a scale or shift, or the vector of what it is where none is given."""
    vector = getattr(given, name)
    return np.full(problem.channels, default, np.float32) if vector is None else vector


def _normalized(problem: Any, *inputs: Array, out: Array) -> None:
    given = problem.named(inputs)
    scale = _one_or(problem, "gamma", given, 1), _one_or(problem, "beta", given, 0)
    arguments = given.x, given.mean, given.variance, *scale, out, np.float32(problem.spec.epsilon)
    _launch("batch_normalization", "forward", (problem.channels, problem.pixels), *arguments)


def _statistics_gradient(problem: Any, *inputs: Array, out: tuple[Array, Array]) -> None:
    g, x, mean, variance = inputs[:4]
    arguments = g, x, mean, variance, *out, np.float32(problem.spec.epsilon), problem.pixels
    _launch("batch_normalization_gradient", "statistics_gradient", (problem.channels,), *arguments)


def _normalization_gradient(problem: Any, *inputs: Array, out: Array) -> None:
    given = problem.named(inputs)
    vectors = given.mean, given.variance, *(_one_or(problem, name, given, 1) for name in ("gamma", "dbeta", "dgamma"))
    arguments = given.g, given.x, *vectors, out, np.float32(problem.spec.epsilon), problem.count
    _launch("batch_normalization_gradient", "gradient", (problem.channels, problem.pixels), *arguments)


def _softmax(problem: Problem, *images: Array, out: Array) -> None:
    channels = out.shape[3]
    _launch("softmax", problem.method, (out.size // channels,), *images, out, channels)


def _bilinear(problem: Any, image: Array, out: Array) -> None:
    clamps = int(problem.spec.edge_mode == "clamp")
    axes = [[one.length, one.outputs, one.numerator, one.denominator, clamps] for one in problem.axes]
    _launch("upsampling_bilinear", problem.method, _threads(out.shape), image, out, *axes)


def _mask(problem: Any, out: Array) -> None:
    drawing = [problem.elements, problem.first_image_index, *problem.words, problem.spec.threshold]
    _launch("dropout", "mask", (problem.blocks, len(out)), out, drawing)


def _masked(problem: Any, image: Array, mask: Array, out: Array) -> None:
    bits = np.ascontiguousarray(np.broadcast_to(mask, image.shape))
    _launch("dropout", "apply", (out.size,), image, bits, out, problem.spec.scale)


def _refuses(problem: Problem) -> str | None:
    """Return what of a problem the plain formulas do not have."""
    beyond = {"primary_offset": (0, 0), "source_size": None, "kernel_offset": None, "clip": None}
    for name, plain in beyond.items():
        if getattr(problem, name, plain) != plain:
            return f"the plain kernels have no {name}"
    if getattr(problem.spec, "neuron", None) is not None:
        return "the plain kernels have no neuron"
    if getattr(problem, "count", 0) and problem.method != "gradient":
        return "the plain kernels take a batch as a whole"
    terms = max(math.prod(shape) for shape in (*problem.input_shapes.values(), *problem.result_shapes))
    if terms > MOST_TERMS:
        return f"the plain kernels add one after the other: images have at most {MOST_TERMS} elements"
    return None


backend = mpsref.Backend(
    "metal:simple",
    {
        (mpsref.PoolingAverage, "forward"): _windowed("pooling_average", "clamps", "zero_pad"),
        (mpsref.PoolingAverage, "gradient"): _windowed("pooling_average", "clamps", "zero_pad"),
        (mpsref.PoolingMax, "forward"): _windowed("pooling_max", "dilation", "clamps"),
        (mpsref.PoolingMax, "gradient"): _windowed("pooling_max", "dilation", "clamps"),
        (mpsref.PoolingL2Norm, "forward"): _windowed("pooling_l2norm", "clamps"),
        (mpsref.PoolingL2Norm, "gradient"): _windowed("pooling_l2norm", "clamps"),
        (mpsref.Convolution, "forward"): _convolution_forward,
        (mpsref.Convolution, "gradient_data"): _convolution_gradient_data,
        (mpsref.Convolution, "gradient_weights"): _convolution_gradient_weights,
        (mpsref.BatchNormalization, "statistics"): _statistics,
        (mpsref.BatchNormalization, "forward"): _normalized,
        (mpsref.BatchNormalization, "statistics_gradient"): _statistics_gradient,
        (mpsref.BatchNormalization, "gradient"): _normalization_gradient,
        (mpsref.SoftMax, "forward"): _softmax,
        (mpsref.SoftMax, "gradient"): _softmax,
        (mpsref.UpsamplingBilinear, "forward"): _bilinear,
        (mpsref.UpsamplingBilinear, "gradient"): _bilinear,
        (mpsref.Dropout, "mask"): _mask,
        (mpsref.Dropout, "forward"): _masked,
        (mpsref.Dropout, "gradient"): _masked,
    },
    unavailable=anymetal.clang.unavailable,
    device=lambda: "CPU, with the checks of anymetal",
    dtypes=("float32",),
    fast_math=True,
    refuses=_refuses,
    named_only=True,
)
