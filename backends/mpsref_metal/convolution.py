"""Convolution through ``msl/convolution.metal``, weight gradients through ``msl/convolution_sums.metal``."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.kernels import Convolution, Neuron
from mpsref.kernels.convolution import ConvolutionForward, ConvolutionGradientData, ConvolutionGradientWeights, IntTable
from mpsref.kernels.convolution_transpose import exchanged
from mpsref_metal.launch import LONGEST, STORAGE, WIDE, Launcher, Step, problem_of, store, typedef, types, width_of
from mpsref_metal.neuron import neuron_parameters

SUMS = ("convolution_sums",)

TILE = 4
"""Number of pixels in the tile of a thread, and of channels if a group has more than one."""

THREADS = 2**16
"""Approximate number of threads of a sum over pixels."""

TILES = "neuron", "tiles", "convolution_tiles"

TILE_K = 8
"""Number of terms of a tile, as in the MSL source."""

LEAST_OUTPUTS, LEAST_PRODUCTS = 12, 2**16
"""Convolutions with as many channels of the result in a group, and as many multiplications, are products of matrices in
tiles; others have simpler kernels."""

AT_ONCE = 2**16
"""Number of threads with 128 registers that a large GPU (NVIDIA H200: 132 x 512) runs at once; with fewer, tiles are
smaller, or sums are divided into chunks. The number does not affect results by more than rounding."""

TERMS = 256
"""Minimum number of terms of a chunk."""

REGISTERS = 32
"""Maximum number of taps whose sums a thread of a depthwise convolution keeps."""

CHUNKS = 1024
"""Maximum number of chunks of pixels; the sums of the chunks are added sequentially."""


def forward(
    launch: Launcher, problem: ConvolutionForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array
) -> None:
    """Convolve the source, with the table of pixels that the taps of each window read."""
    convolved(launch, x, weights, problem.pixels(), out, problem.spec.groups, False, biases, problem.spec.neuron)


def gradient_data(launch: Launcher, problem: ConvolutionGradientData, g: Array, weights: Array, out: Array) -> None:
    """Convolve the source gradient, with the table of windows whose taps read each pixel."""
    strides = problem.spec.windows[0].stride, problem.spec.windows[1].stride
    convolved(launch, g, weights, problem.windows(), out, problem.spec.groups, True, strides=strides)


def gradient_weights(
    launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array, out: tuple[Array, Array]
) -> None:
    """Sum chunks of the rows of ``g``, then sum the chunks."""
    dw, db = out
    store(weight_sums(launch, problem, g, x), dw)
    store(bias_sums(launch, g), db)


def convolved(
    launch: Launcher,
    source: Array,
    weights: Array,
    taps: tuple[IntTable, IntTable],
    out: Array,
    groups: int,
    along: bool,
    biases: Array | None = None,
    neuron: Neuron | None = None,
    strides: tuple[int, int] = (1, 1),
    turned: bool = False,
) -> None:
    """Fill ``out`` with the sums over all taps of source pixel times weight.

    Parameters
    ----------
    taps
        Tables of the source index of each tap, for the rows and the columns of ``out``; -1 where there is none.
    along
        Whether the channels of ``out`` are the last axis of the weights, and those of the source the first one; else
        the other way round.
    strides
        The distances of rows and columns of ``out`` that share their taps.
    turned
        Whether the weights are rotated by 180 degrees.
    """
    outputs, inputs = out.shape[3] // groups, source.shape[3] // groups
    if _is_product(outputs, math.prod(out.shape[:3]) * weights.size) and (inputs % WIDE == 0 or groups == 1):
        if inputs % WIDE:
            source, weights = _padded(launch, source, 3), _padded(launch, weights, 0 if along else 3)
        steps = _Product(source, weights, out, groups, along, turned)
        steps.run(launch, taps, strides, biases, neuron)
        return
    if turned:
        weights = exchanged(weights, groups)
        along = not along
    simple = by_outputs(weights, groups) if along else by_inputs(weights)
    if outputs == inputs == 1:
        _depthwise(launch, source, simple, taps, out, biases, neuron)
    else:
        filtered(launch, source, simple, taps, out, groups, biases, neuron, strides[1])


def _is_product(outputs: int, products: int) -> bool:
    """Return whether a convolution is computed in tiles."""
    return outputs >= LEAST_OUTPUTS and products >= LEAST_PRODUCTS


def _depthwise(
    launch: Launcher,
    source: Array,
    weights: Array,
    taps: tuple[IntTable, IntTable],
    out: Array,
    biases: Array | None,
    neuron: Neuron | None,
) -> None:
    """Run ``depthwise``; ``weights`` are (1, kH, kW, C)."""
    channels = out.shape[3]
    added = np.zeros(channels, np.float32) if biases is None else biases.astype(np.float32)
    width = width_of(channels, source, weights, added, out)
    struct = np.concatenate([problem_of(source, out.shape, width), np.array(weights.shape[1:3], np.uint32)])
    buffers = [source, weights, added, *taps, neuron_parameters(neuron), struct]
    known = *types(width, Storage=source, Gradient=source, Weight=weights), *_taps(1, 1)
    launch.into(("neuron", "depthwise"), "depthwise", buffers, out, known, out.size // width)


def _taps(height: int, width: int) -> tuple[str, str]:
    return _constant("TAPS_Y", height), _constant("TAPS_X", width)


def _depthwise_sums(launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array) -> Array | None:
    """Return dw, float32, of a depthwise convolution; ``None`` if its taps or pixels do not fit into a thread."""
    channels, *kernel, _ = problem.weights_shape
    n, height, columns, _ = g.shape
    width = width_of(channels, g, x)
    lines, packs, taps = n * height, channels // width, math.prod(kernel)
    chunk = min(-(-lines * packs // THREADS), LONGEST // columns)
    if taps > REGISTERS or chunk < 1 or -(-lines // chunk) > CHUNKS or -(-lines // chunk) * taps > lines * columns:
        return None
    chunks = -(-lines // chunk)
    sums = np.array([chunks * packs, lines, height, columns, packs, *x.shape[1:3], chunk], np.uint32)
    known = *types(width, Storage=x, Gradient=g, Weight=np.float32), *_taps(*kernel)
    results = [((chunks, *kernel, 1, channels), np.float32)]
    buffers = [g, x, *problem.pixels(), sums]
    partial = launch.run(("neuron", "depthwise"), "depthwise_sums", buffers, results, known, chunks * packs)[0]
    return _total(launch, partial, _known(x, g, TILE, TILE)).transpose(3, 0, 1, 2)


def _padded(launch: Launcher, array: Array, axis: int) -> Array:
    """Return an array with zeros behind the elements of its first or last axis, up to a multiple of ``WIDE``."""
    *rest, last = array.shape if axis else (1, array.size)
    length = array.shape[axis]
    joined = last // length * (length + -length % WIDE) if axis == 0 else last + -last % WIDE
    shape = (*rest, joined) if axis else (length + -length % WIDE, *array.shape[1:])
    pixels = math.prod(rest)
    steps = []
    for function, images, first, count in (("copy", [array], 0, last), ("zeros", [], last, joined - last)):
        width = width_of(math.gcd(first, count, joined), *images)
        part = np.array([pixels * count // width, count // width, joined // width, first // width], np.uint32)
        steps.append(Step(function, [*images, part], types(width, Storage=array), pixels * count // width))
    return launch.in_parts(("concatenation",), [step for step in steps if step.threads], shape)


TAP = np.dtype([("number", "u4"), ("y", "u4"), ("x", "u4")])


class _Product(NamedTuple):
    """A convolution as a product of matrices, in tiles; the arguments of ``convolved``."""

    source: Array
    weights: Array
    out: Array
    groups: int
    along: bool
    turned: bool

    def run(
        self,
        launch: Launcher,
        taps: tuple[IntTable, IntTable],
        strides: tuple[int, int],
        biases: Array | None,
        neuron: Neuron | None,
    ) -> None:
        """Run ``products`` for each class of pixels that share their taps, and ``finish`` where it is needed."""
        channels = self.out.shape[3]
        added = np.zeros(channels, np.float32) if biases is None else biases.astype(np.float32)
        classes = [(top, left) for top in range(strides[0]) for left in range(strides[1])]
        classes = [(top, left) for top, left in classes if top < self.out.shape[1] and left < self.out.shape[2]]
        chunks = self._chunks(math.prod(self.weights.shape[1:3]), len(classes))
        steps = [self._step(taps, strides, first, added, chunks) for first in classes]
        if chunks == 1 and neuron is None:
            launch.in_parts(TILES, steps, self.out.shape, self.out)
            return
        partial = launch.in_parts(TILES, steps, (chunks, *self.out.shape))
        width = width_of(channels, self.out)
        count = self.out.size // width
        shape = np.array([count, channels // width, chunks], np.uint32)
        known = *_tile_types(self.source, width, self.weights, width), *_tile(64, 32, False), _bool("ALONG", False)
        launch.into(TILES, "finish", [partial, neuron_parameters(neuron), shape], self.out, known, count)

    def _sizes(self) -> tuple[int, int]:
        """Return the numbers of channels of the result and of the source in a group."""
        return self.out.shape[3] // self.groups, self.source.shape[3] // self.groups

    def _tiles(self, pixels: int) -> tuple[int, int]:
        """Return the rows and columns of a tile."""
        outputs, _ = self._sizes()
        across = 128 if outputs > 64 else 64 if outputs > 32 else 32
        threads = -(-pixels // 128) * -(-outputs // across) * self.groups * _threads(128, across)
        return (128 if threads >= 4 * AT_ONCE else 64), across

    def _chunks(self, taps: int, classes: int) -> int:
        """Return the number of chunks of the terms of each class of pixels: more than one if there are few tiles."""
        outputs, inputs = self._sizes()
        pixels = -(-math.prod(self.out.shape[:3]) // classes)
        rows, across = self._tiles(pixels)
        tiles = -(-pixels // rows) * -(-outputs // across) * self.groups
        workspace = max(self.source.size, self.weights.size) // self.out.size
        return max(1, min(AT_ONCE // (tiles * _threads(rows, across)), taps * inputs // (classes * TERMS), workspace))

    def _step(
        self,
        taps: tuple[IntTable, IntTable],
        strides: tuple[int, int],
        first: tuple[int, int],
        biases: Array,
        chunks: int,
    ) -> Step:
        """Return the launch for the pixels at distances of ``strides`` from ``first``."""
        outputs, inputs = self._sizes()
        _, kernel_height, kernel_width, _ = self.weights.shape
        own = [table[start::stride] for table, start, stride in zip(taps, first, strides, strict=True)]
        used = [np.flatnonzero((table >= 0).any(axis=0)) for table in own]
        rows, columns = (np.ascontiguousarray(table[:, read]) for table, read in zip(own, used, strict=True))
        numbers = (used[0][:, None] * kernel_width + used[1]).reshape(-1)
        table = np.zeros(max(1, numbers.size), TAP)
        table["number"][: numbers.size] = kernel_height * kernel_width - 1 - numbers if self.turned else numbers
        table["y"][: numbers.size] = np.repeat(np.arange(len(used[0])), len(used[1]))
        table["x"][: numbers.size] = np.tile(np.arange(len(used[1])), len(used[0]))
        n, height, width, _ = self.out.shape
        pixels = n * len(rows) * len(columns)
        down, across = self._tiles(pixels)
        tiles = -(-pixels // down), -(-outputs // across)
        terms = numbers.size * inputs
        chunk = -(-terms // chunks // TILE_K) * TILE_K if terms else TILE_K
        layer = [pixels, len(rows), len(columns), *first, *strides, height, width, self.groups, outputs, inputs]
        layer += [*self.source.shape[1:3], numbers.size, len(used[0]), len(used[1]), kernel_height * kernel_width]
        layer += [chunk, *tiles, self.out.size]
        wide = width_of(inputs, self.source)
        other = width_of(outputs if self.along else inputs, self.weights)
        aligned = outputs % WIDE == 0 and width_of(WIDE, self.out) == WIDE
        known = *_tile_types(self.source, wide, self.weights, other), *_tile(down, across, aligned)
        known += (_bool("ALONG", self.along),)
        nothing = np.full((1, 1), -1, np.int32)
        tables = [one if one.size else nothing for one in (rows, columns)]
        buffers = [self.source, self.weights, biases, *tables, table, np.array(layer, np.uint32)]
        count = math.prod(tiles) * self.groups * chunks * _threads(down, across)
        return Step("products", buffers, known, count)


def _threads(down: int, across: int) -> int:
    """Return the number of threads of the threadgroup of a tile, each with 8 x 8 results."""
    return down // 8 * (across // 8)


def _tile_types(source: Array, width: int, other: Array, other_width: int) -> tuple[str, ...]:
    """Return the types of the operands of a product."""
    lanes = "" if other_width == 1 else str(other_width)
    return (
        *types(width, Storage=source, Gradient=source),
        f"#define Others float{lanes}",
        f"#define Other {STORAGE[other.dtype.name]}{lanes}",
    )


def _tile(down: int, across: int, aligned: bool) -> tuple[str, ...]:
    """Return the sizes of a tile, and whether rows of the result are aligned to four values."""
    return _constant("TILE_M", down), _constant("TILE_N", across), _bool("ALIGNED", aligned)


def _bool(name: str, value: bool) -> str:
    return f"constant bool {name} = {str(value).lower()};"


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
    count = n * height * tiles * groups * math.ceil(outputs / _tile_size(outputs))
    scalars = [count, height, width, groups, outputs, inputs, *source.shape[1:3], *weights.shape[1:3], spread, tiles]
    added = np.zeros(channels) if biases is None else biases
    parameters = neuron_parameters(neuron)
    buffers = [source, weights, added.astype(np.float32), *taps, parameters, np.array(scalars, np.uint32)]
    types = typedef("Storage", source), typedef("Gradient", source), typedef("Weight", weights)
    known = (*types, _constant("OUTPUTS", _tile_size(outputs)))
    launch.into(("neuron", "convolution"), "filtered", buffers, out, known, count)


def weight_sums(launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array) -> Array:
    """Return dw, float32."""
    shape, groups = problem.weights_shape, problem.spec.groups
    outputs, inputs, kernel = shape[0] // groups, shape[3], shape[1:3]
    products = math.prod(g.shape[:3]) * math.prod(shape)
    if _is_product(outputs, products) and (outputs % WIDE == inputs % WIDE == 0 or groups == 1):
        return _weight_products(launch, problem, g, x)
    if outputs == inputs == 1 and (sums := _depthwise_sums(launch, problem, g, x)) is not None:
        return sums
    tile = _tile_size(outputs), _tile_size(inputs)
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


def _weight_products(launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array) -> Array:
    """Return dw, float32: ``weight_products``, then the sum of its chunks."""
    wanted, groups = problem.weights_shape, problem.spec.groups
    g, x = (image if image.shape[3] // groups % WIDE == 0 else _padded(launch, image, 3) for image in (g, x))
    shape = g.shape[3], *wanted[1:3], x.shape[3] // groups
    outputs, inputs = shape[0] // groups, shape[3]
    weights, size, pixels = math.prod(shape[1:]), math.prod(shape), math.prod(g.shape[:3])
    down, across = (128 if length > 64 else 64 for length in (outputs, weights))
    tiles = -(-outputs // down), -(-weights // across)
    workspace = max(g.size, x.size) // size
    threads = math.prod(tiles) * groups * _threads(down, across)
    chunks = max(1, min(AT_ONCE // threads, pixels // TERMS, workspace, CHUNKS))
    chunk = -(-pixels // chunks // TILE_K) * TILE_K
    chunks = -(-pixels // chunk)
    layer = [pixels, *g.shape[1:3], groups, outputs, inputs, *x.shape[1:3], *shape[1:3], chunk, *tiles, size]
    known = *_tile_types(x, width_of(inputs, x), g, width_of(outputs, g)), *_tile(down, across, weights % WIDE == 0)
    buffers = [g, x, *problem.pixels(), np.array(layer, np.uint32)]
    count = chunks * threads
    results = [((chunks, *shape), np.float32)]
    known += (_bool("ALONG", False),)
    partial = launch.run(TILES, "weight_products", buffers, results, known, count)[0]
    return _total(launch, partial, _known(x, g, TILE, TILE))[: wanted[0], :, :, : wanted[3]]


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


def _tile_size(channels: int) -> int:
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
