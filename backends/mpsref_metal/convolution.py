"""Convolution through ``msl/convolution.metal``, weight gradients through ``msl/convolution_sums.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.kernels import Convolution, Neuron
from mpsref.kernels.convolution import ConvolutionForward, ConvolutionGradientData, ConvolutionGradientWeights, IntTable
from mpsref_metal.launch import Launcher, store, typedef
from mpsref_metal.neuron import neuron_parameters

SUMS = ("convolution_sums",)

TILE = 4
"""Number of pixels in the tile of a thread, and of channels if a group has more than one."""

THREADS = 2**16
"""Approximate number of threads of a sum over pixels."""

CHUNKS = 1024
"""Maximum number of chunks of pixels; the sums of the chunks are added sequentially."""


def forward(
    launch: Launcher, problem: ConvolutionForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array
) -> None:
    """Convolve the source: ``filtered`` with the table of pixels that the taps of each window read."""
    taps, spec = by_inputs(weights), problem.spec
    filtered(launch, x, taps, problem.pixels(), out, spec.groups, biases, spec.neuron)


def gradient_data(launch: Launcher, problem: ConvolutionGradientData, g: Array, weights: Array, out: Array) -> None:
    """Run ``filtered`` with the table of windows whose taps read each pixel; pixels a stride apart share their taps."""
    taps = by_outputs(weights, problem.spec.groups)
    stride = problem.spec.windows[1].stride
    filtered(launch, g, taps, problem.windows(), out, problem.spec.groups, spread=stride)


def gradient_weights(
    launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array, out: tuple[Array, Array]
) -> None:
    """Sum chunks of the rows of ``g``, then sum the chunks."""
    dw, db = out
    store(weight_sums(launch, problem, g, x), dw)
    store(bias_sums(launch, g), db)


def by_inputs(weights: Array) -> Array:
    """Return OHWI weights in the layout of ``filtered`` for the forward pass: (Ci / G, kH, kW, Co)."""
    return weights.transpose(3, 1, 2, 0).copy()


def by_outputs(weights: Array, groups: int) -> Array:
    """Return OHWI weights in the layout of ``filtered`` for the data gradient: (Co / G, kH, kW, Ci)."""
    outputs, height, width, inputs = weights.shape
    grouped = weights.reshape(groups, outputs // groups, height, width, inputs).transpose(1, 2, 3, 0, 4)
    return grouped.copy().reshape(outputs // groups, height, width, groups * inputs)


def filtered(
    launch: Launcher,
    source: Array,
    weights: Array,
    taps: tuple[IntTable, IntTable],
    out: Array,
    groups: int,
    biases: Array | None = None,
    neuron: Neuron | None = None,
    spread: int = 1,
) -> None:
    """Fill ``out`` with the sums over all taps of source pixel times weight.

    ``taps`` are tables of the source index of each tap, for the rows and the columns of ``out``; ``weights`` has the
    shape (source channels / G, kH, kW, result channels). Pixels at a distance of ``spread`` in a row share their taps.
    """
    n, height, width, channels = out.shape
    spread = min(spread, width)
    tiles = spread * math.ceil(width / (spread * TILE))
    outputs, inputs = channels // groups, source.shape[3] // groups
    count = n * height * tiles * groups * math.ceil(outputs / _tile(outputs))
    scalars = [count, height, width, groups, outputs, inputs, *source.shape[1:3], *weights.shape[1:3], spread, tiles]
    added = np.zeros(channels) if biases is None else biases
    parameters = neuron_parameters(neuron)
    buffers = [source, weights, added.astype(np.float32), *taps, parameters, np.array(scalars, np.uint32)]
    types = typedef("Storage", source), typedef("Gradient", source), typedef("Weight", weights)
    known = (*types, _constant("OUTPUTS", _tile(outputs)))
    launch.into(("neuron", "convolution"), "filtered", buffers, out, known, count)


def weight_sums(launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array) -> Array:
    """Return dw, float32."""
    shape, groups = problem.weights_shape, problem.spec.groups
    outputs, inputs, kernel = shape[0] // groups, shape[3], shape[1:3]
    tile = _tile(outputs), _tile(inputs)
    tiles = math.prod(kernel) * groups * math.ceil(outputs / tile[0]) * math.ceil(inputs / tile[1])
    chunk = _chunk(
        g, tiles, most=max(g.size, x.size) // math.prod(shape)
    )  # limits the workspace to the size of an image
    chunks = math.ceil(g.shape[0] * g.shape[1] / chunk)
    scalars = _sums(chunks * tiles, g, groups, inputs, (*x.shape[1:3], *kernel), chunk)
    known = _known(x, g, *tile)
    results = [((chunks, *shape), np.float32)]
    partial = launch.run(SUMS, "weight_sums", [g, x, *problem.pixels(), scalars], results, known, chunks * tiles)[0]
    return _total(launch, partial, known)


def bias_sums(launch: Launcher, g: Array) -> Array:
    """Return db, float32."""
    channels = g.shape[3]
    chunk = _chunk(g, channels, most=CHUNKS)
    chunks = math.ceil(g.shape[0] * g.shape[1] / chunk)
    scalars = _sums(chunks * channels, g, 1, 1, (1, 1, 1, 1), chunk)
    known = _known(g, g, TILE, TILE)
    partial = launch.run(SUMS, "bias_sums", [g, scalars], [((chunks, channels), np.float32)], known)[0]
    return _total(launch, partial, known)


def _total(launch: Launcher, partial: Array, known: tuple[str, ...]) -> Array:
    """Return the sum over the first axis."""
    shape = partial.shape[1:]
    if len(partial) == 1:
        return partial.reshape(shape)
    scalars = np.array([math.prod(shape), len(partial)], np.uint32)
    return launch.run(SUMS, "total", [partial, scalars], [(shape, np.float32)], known)[0]


def _chunk(g: Array, tiles: int, most: int) -> int:
    """Return the number of rows of ``g`` per thread, such that ``tiles`` result in about ``THREADS`` threads.

    It depends only on the shapes, and so does the order of the additions.
    """
    lines = int(g.shape[0] * g.shape[1])
    chunks = max(1, min(-(-THREADS // tiles), lines, most, CHUNKS))
    return -(-lines // chunks)


def _sums(count: int, g: Array, groups: int, inputs: int, source_and_kernel: Shape, chunk: int) -> Array:
    """Return the struct ``Sums``."""
    n, height, width, channels = g.shape
    return np.array(
        [count, n * height, height, width, groups, channels // groups, inputs, *source_and_kernel, chunk], np.uint32
    )


def _tile(channels: int) -> int:
    """Return the number of channels of a tile."""
    return TILE if channels > 1 else 1


def _known(source: Array, gradient: Array, outputs: int, inputs: int) -> tuple[str, ...]:
    """Return the compile-time constants of the sums as lines of MSL."""
    tile = _constant("OUTPUTS", outputs), _constant("INPUTS", inputs)
    return typedef("Storage", source), typedef("Gradient", gradient), *tile


def _constant(name: str, value: int) -> str:
    return f"constant constexpr uint {name} = {value};"


IMPLEMENTATIONS = {
    (Convolution, "forward"): forward,
    (Convolution, "gradient_data"): gradient_data,
    (Convolution, "gradient_weights"): gradient_weights,
}
