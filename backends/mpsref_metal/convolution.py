"""Convolution through ``msl/convolution.metal``, weight gradients through ``msl/convolution_sums.metal``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.kernels import Convolution, Neuron
from mpsref.kernels.convolution import (
    ConvolutionForward,
    ConvolutionGradientData,
    ConvolutionGradientWeights,
    IntTable,
    SlidingProblem,
)
from mpsref.kernels.convolution_transpose import exchanged
from mpsref.operations import cached_in_problem
from mpsref_metal.fold import fold
from mpsref_metal.launch import (
    LONGEST,
    STORAGE,
    WIDE,
    Launcher,
    Step,
    Tables,
    extent,
    short_sums,
    store,
    types,
    width_of,
)
from mpsref_metal.neuron import neuron_parameters

SUMS = ("convolution_sums",)

PIXELS = 4
"""Least number of pixels in a row that a thread of a depthwise convolution computes."""

TILE_K = 8
"""Number of terms of a tile, as in the MSL source."""

LEAST_CHANNELS, LEAST_PRODUCTS = 12, 2**16
"""Minimum numbers of channels of the source or the result in a group, and of multiplications, of convolutions that are
computed as products of matrices, in tiles. The others have simpler kernels."""

LENGTHS = 128, 64, 32
"""Numbers of rows and of columns of the tiles of a product."""

LARGE = 2**14
"""Number of elements of the largest tile, 128 x 128: a thread computes 16 of its rows, and 8 of other tiles. It is
faster only for gradients of weights."""

RESIDENT = 3 * 2**13
"""Number of elements of tiles that a core computes at once, 12 SIMD groups; two of the largest tile, 8 SIMD groups."""

LOAD, START, ADDITION, FOLD_COST = 12, 64, 0.5, 2**19
"""Costs in the estimate of a product's time, as numbers of multiplications: to load an element, to start and end a
threadgroup (for each element of its tile), to add up an element of a chunk, and to launch the sum of chunks. Fitted to
measured times."""

WORKSPACE = 2**24
"""Maximum number of elements of all chunks of a product, or that of the largest of its images if they have more."""

PACKS, ROWS = (16, 8), 4
"""Numbers of packs and of rows that neighbouring threads of a depthwise convolution compute: 16 packs if at most an
eighth of the threads is idle. ``ROWS`` is that of the MSL source."""

REGISTERS = 32
"""Maximum number of taps whose sums a thread of a depthwise convolution keeps in registers."""

CHUNKS = 1024
"""Maximum number of chunks of a product."""


def forward(
    launch: Launcher, problem: ConvolutionForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array
) -> None:
    """Convolve the source, with the table of pixels that the taps of each window read."""
    convolved(launch, x, weights, pixels_of(problem), out, problem.spec.groups, False, biases, problem.spec.neuron)


def gradient_data(launch: Launcher, problem: ConvolutionGradientData, g: Array, weights: Array, out: Array) -> None:
    """Convolve the source gradient, with the table of windows whose taps read each pixel."""
    strides = problem.spec.windows[0].stride, problem.spec.windows[1].stride
    convolved(launch, g, weights, windows_of(problem), out, problem.spec.groups, True, strides=strides)


@cached_in_problem
def pixels_of(problem: SlidingProblem) -> Tables:
    """Return the pixels that the taps of the windows read, for both axes."""
    return Tables(problem.pixels())


@cached_in_problem
def windows_of(problem: SlidingProblem) -> Tables:
    """Return the windows whose taps read the pixels, for both axes."""
    return Tables(problem.windows())


def gradient_weights(
    launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array, out: tuple[Array, Array]
) -> None:
    """Sum chunks of the rows of ``g``, then sum the chunks."""
    dw, db = out
    channels, *kernel, inputs = problem.weights_shape
    if channels == problem.spec.groups and inputs == 1 and g.size * math.prod(kernel) >= LEAST_PRODUCTS:
        sums = _depthwise_sums(launch, problem, g, x)
        if sums is not None:
            store(sums[:-1].reshape(*kernel, 1, channels).transpose(3, 0, 1, 2), dw)
            store(sums[-1], db)
            return
    weight_sums(launch, problem, g, x, dw)
    bias_sums(launch, g, db)


def convolved(
    launch: Launcher,
    source: Array,
    weights: Array,
    taps: Tables,
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
    products = math.prod(out.shape[:3]) * weights.size
    if _is_product(outputs, inputs, products) and (inputs % WIDE == 0 or groups == 1):
        if inputs % WIDE:
            source, weights = _padded(launch, source, 3), _padded(launch, weights, 0 if along else 3)
        steps = _Product(source, weights, out, groups, along, turned)
        steps.run(launch, taps, strides, biases, neuron)
        return
    if turned:
        weights = exchanged(weights, groups)
        along = not along
    if outputs == inputs == 1 and products >= LEAST_PRODUCTS:
        _depthwise(launch, source, weights, taps, out, biases, neuron)
    else:
        simple = by_outputs(weights, groups) if along else by_inputs(weights)
        filtered(launch, source, simple, taps, out, groups, biases, neuron)


def _is_product(outputs: int, inputs: int, products: int) -> bool:
    """Return whether a convolution is computed in tiles."""
    return max(outputs, inputs) >= LEAST_CHANNELS and products >= LEAST_PRODUCTS


def _depthwise(
    launch: Launcher,
    source: Array,
    weights: Array,
    taps: Tables,
    out: Array,
    biases: Array | None,
    neuron: Neuron | None,
) -> None:
    """Run ``depthwise``; ``weights`` are (C, kH, kW, 1)."""
    n, height, columns, channels = out.shape
    added = _added(biases, channels)
    if _shift(taps[1][:, ::-1]) < _shift(taps[1]):  # as in a data gradient
        taps = Tables([taps[0], np.ascontiguousarray(taps[1][:, ::-1])])
        weights = weights[:, :, ::-1]
    weights = by_inputs(weights)
    width = width_of(channels, source, weights, added, out)
    packs = channels // width
    together = next((k for k in PACKS if -packs % k <= packs // 8), PACKS[-1])
    count = n * -(-packs // together) * -(-height // ROWS) * -(-columns // _pixels(taps[1])) * together * ROWS
    struct = np.array([count, packs, height, columns, *source.shape[1:3]], np.uint32)
    buffers = [source, weights, added, taps, neuron_parameters(neuron), struct]
    known = *types(width, Storage=source, Gradient=source, Weight=weights), *_taps(taps, together)
    known += short_sums(math.prod(weights.shape[1:3]))
    launch.into(("neuron", "depthwise"), "depthwise", buffers, out, known, count)


def _taps(taps: Tables, packs: int = PACKS[-1]) -> tuple[str, ...]:
    """Return the compile-time constants of depthwise convolution."""
    rows, columns = taps
    kernel = _constant("PACKS", packs), _constant("TAPS_Y", rows.shape[1]), _constant("TAPS_X", columns.shape[1])
    return *kernel, _constant("SHIFT", _shift(columns)), _constant("PIXELS", _pixels(columns))


def _pixels(columns: IntTable) -> int:
    """Return the number of pixels in a row that a thread computes: more if they read many columns and share some."""
    taps, shift = columns.shape[1], _shift(columns)
    return 2 * PIXELS if shift < taps and taps + shift > PIXELS else PIXELS


def _shift(columns: IntTable) -> int:
    """Return by how many taps a pixel reads the columns of the pixel before it; the number of taps if it does not."""
    taps = columns.shape[1]
    return next(shift for shift in range(1, taps + 1) if (columns[1:, : taps - shift] == columns[:-1, shift:]).all())


def _depthwise_sums(launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array) -> Array | None:
    """Return dw for each tap, then db, float32, of a depthwise convolution: (taps + 1, channels).

    ``None`` if there are more taps than a thread has registers, or few pixels.
    """
    channels, *kernel, _ = problem.weights_shape
    n, height, columns, _ = g.shape
    width = width_of(channels, g, x)
    lines, packs, taps = n * height, channels // width, math.prod(kernel)
    pixels = _pixels(pixels_of(problem)[1])
    tiles = -(-columns // pixels)
    chunk = min(-(-lines * tiles * packs // (launch.gpu.threads // 2)), LONGEST // pixels)
    chunks = -(-lines // chunk) * tiles
    if taps > REGISTERS or chunks * taps > lines * columns:
        return None
    count = chunks * packs
    sums = np.array([count, lines, height, columns, packs, *x.shape[1:3], chunk, tiles], np.uint32)
    known = *types(width, Storage=x, Gradient=g, Weight=np.float32), *_taps(pixels_of(problem)), *short_sums(taps)
    step = Step("depthwise_sums", [g, x, pixels_of(problem), sums], known, count)
    return _summed(launch, ("neuron", "depthwise"), [step], chunks, (taps + 1, channels))


def _summed(
    launch: Launcher,
    files: tuple[str, ...],
    steps: Sequence[Step],
    chunks: int,
    shape: Shape,
    out: Array | None = None,
    neuron: Neuron | None = None,
) -> Array:
    """Run launches that fill the sums of chunks of a float32 result; return the activated sums of the chunks.

    They are rounded into ``out``, if any.
    """
    if chunks == 1 and neuron is None:
        return launch.in_parts(files, steps, shape, out)
    partial = launch.in_parts(files, steps, (1, chunks, *shape))
    return fold(launch, partial, out, None if neuron is None else neuron_parameters(neuron)).reshape(shape)


@lru_cache(4096)
def _tiling(
    rows: int, columns: int, terms: int, products: int, workspace: int, largest: int, cores: int
) -> tuple[int, int, int]:
    """Return the rows and columns of the tiles of products of matrices, and the number of chunks of their terms.

    The choice has the least estimated time on ``cores`` cores, of tiles with ``largest`` elements at most. A core
    computes several tiles at once; with few, it mostly waits for memory.
    """

    def cost(choice: tuple[int, int, int]) -> float:
        down, across, chunks = choice
        size = down * across
        tiles = -(-rows // down) * -(-columns // across) * products * chunks
        each = (-(-terms // chunks) + START) * (size + LOAD * (down + across))
        resident = RESIDENT // size if size < LARGE else 2
        rounds, rest = divmod(-(-tiles // cores), resident)
        turns = rounds * 2 * resident + (rest + resident if rest else 0)
        added = FOLD_COST + (chunks + 1) * rows * columns * products * ADDITION / cores if chunks > 1 else 0
        return turns * each + added

    most = max(1, min(terms // (4 * TILE_K), workspace, CHUNKS))
    chunks = [*range(1, min(most, 64) + 1), *range(64, most + 1, 32)]
    tiles = [(down, across) for down in LENGTHS for across in LENGTHS if down * across <= largest]
    tiles = [tile for tile in tiles if _threads(*tile) >= 32]
    return min(((*tile, count) for tile in tiles for count in chunks), key=cost)


def _padded(launch: Launcher, array: Array, axis: int) -> Array:
    """Return an array with zeros behind the elements of its first or last axis, up to a multiple of ``WIDE``."""
    shape = tuple(length + (-length % WIDE if at == axis else 0) for at, length in enumerate(array.shape))
    rows, width = (1, array.size) if axis == 0 else (array.size // array.shape[3], array.shape[3])
    packs = math.prod(shape) // rows // WIDE
    scalars = np.array([rows * packs, width, packs], np.uint32)
    step = Step("widen", [array, scalars], types(1, Storage=array, Gradient=array), rows * packs)
    return launch.in_parts(("widen",), [step], shape)


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
        taps: Tables,
        strides: tuple[int, int],
        biases: Array | None,
        neuron: Neuron | None,
    ) -> None:
        """Run ``products`` for each class of pixels that share their taps, and ``fold`` where it is needed."""
        channels = self.out.shape[3]
        added = _added(biases, channels)
        classes = [(top, left) for top in range(strides[0]) for left in range(strides[1])]
        classes = [(top, left) for top, left in classes if top < self.out.shape[1] and left < self.out.shape[2]]
        outputs, inputs = channels // self.groups, self.source.shape[3] // self.groups
        pixels = -(-math.prod(self.out.shape[:3]) // len(classes))
        terms = max(1, math.prod(self.weights.shape[1:3]) * inputs // len(classes))
        workspace = max(WORKSPACE, self.source.size, self.weights.size) // self.out.size
        tiling = _tiling(pixels, outputs, terms, self.groups, workspace, LARGE // 2, launch.gpu.cores)
        steps = [self._step(taps, strides, first, added, tiling) for first in classes]
        _summed(launch, ("tiles", "convolution_tiles"), steps, tiling[2], self.out.shape, self.out, neuron)

    def _step(
        self,
        taps: Tables,
        strides: tuple[int, int],
        first: tuple[int, int],
        biases: Array | Tables,
        tiling: tuple[int, int, int],
    ) -> Step:
        """Return the launch of ``products`` for the pixels at distances of ``strides`` from ``first``."""
        outputs, inputs = self.out.shape[3] // self.groups, self.source.shape[3] // self.groups
        aligned = outputs % WIDE == 0 and width_of(WIDE, self.out) == WIDE
        wide = width_of(inputs, self.source)
        other = width_of(outputs if self.along else inputs, self.weights)
        images = [(image.shape, image.dtype) for image in (self.source, self.weights, self.out)]
        key = *images, self.groups, self.along, self.turned, strides, first, tiling, aligned, wide, other
        if key not in taps.made:
            taps.made[key] = self._of_class(taps, strides, first, tiling, aligned, wide, other)
        tables, known, count = taps.made[key]
        return Step("products", [self.source, self.weights, biases, tables], known, count)

    def _of_class(
        self,
        taps: Tables,
        strides: tuple[int, int],
        first: tuple[int, int],
        tiling: tuple[int, int, int],
        aligned: bool,
        wide: int,
        other: int,
    ) -> tuple[Tables, tuple[str, ...], int]:
        """Return the tables, the lines of MSL and the number of threads of a launch."""
        outputs, inputs = self.out.shape[3] // self.groups, self.source.shape[3] // self.groups
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
        down, across, chunks = tiling
        tiles = -(-pixels // down), -(-outputs // across)
        terms = numbers.size * inputs
        chunk = -(-terms // chunks // TILE_K) * TILE_K if terms else TILE_K
        layer = [pixels, len(rows), len(columns), *first, *strides, height, width, self.groups, outputs, inputs]
        layer += [*self.source.shape[1:3], numbers.size, len(used[0]), len(used[1]), kernel_height * kernel_width]
        layer += [chunk, *tiles, self.out.size, aligned]
        known = *_tile_types(self.source, wide, self.weights, other), *_tile(down, across)
        same = _is_same(taps, self.source, self.out, self.weights.shape[1:3])
        known += _bool("ALONG", self.along), _bool("SAME", same)
        nothing = np.full((1, 1), -1, np.int32)
        tables = [one if one.size else nothing for one in (rows, columns)]
        count = math.prod(tiles) * self.groups * chunks * _threads(down, across)
        return Tables([*tables, table, np.array(layer, np.uint32)]), known, count


def _is_same(taps: Tables, source: Array, windows: Array, kernel: Shape) -> bool:
    """Return whether the only tap of each window reads the pixel of the source at its place."""
    own = all(np.array_equal(table[:, 0], np.arange(len(table))) for table in taps)
    return own and kernel == (1, 1) and source.shape[:3] == windows.shape[:3]


def _rows(down: int, across: int) -> int:
    """Return the number of rows of a tile that a thread computes; it computes 8 columns."""
    return 16 if down * across == LARGE else 8


def _threads(down: int, across: int) -> int:
    """Return the number of threads of the threadgroup of a tile."""
    return down // _rows(down, across) * (across // 8)


def _tile_types(source: Array, width: int, other: Array, other_width: int) -> tuple[str, ...]:
    """Return the types of the operands of a product."""
    lanes = "" if other_width == 1 else str(other_width)
    return (
        *types(width, Storage=source, Gradient=source),
        f"#define Others float{lanes}",
        f"#define Other {STORAGE[other.dtype.name]}{lanes}",
    )


def _tile(down: int, across: int) -> tuple[str, ...]:
    """Return the sizes of a tile."""
    return _constant("TILE_M", down), _constant("TILE_N", across), _constant("ROWS", _rows(down, across))


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
    taps: Tables,
    out: Array,
    groups: int,
    biases: Array | None = None,
    neuron: Neuron | None = None,
) -> None:
    """Fill ``out`` with the sums over all taps of source pixel times weight.

    ``taps`` are tables of the source index of each tap, for the rows and the columns of ``out``; ``weights`` has the
    shape (source channels / G, kH, kW, result channels).
    """
    added = _added(biases, out.shape[3])
    width = width_of(out.shape[3] // groups, weights, added, out)
    known, scalars = _of_shapes(
        out.shape, source.shape, weights.shape[1:3], groups, width, neuron, source.dtype, weights.dtype
    )
    buffers = [source, weights, added, taps, scalars]
    launch.into(("neuron", "convolution"), "filtered", buffers, out, known, out.size // width)


@lru_cache(256)
def _of_shapes(
    shape: Shape,
    source_shape: Shape,
    kernel: tuple[int, int],
    groups: int,
    width: int,
    neuron: Neuron | None,
    storage: DType,
    weight: DType,
) -> tuple[tuple[str, ...], Tables]:
    """Return the lines of MSL of ``filtered``, and the parameters of the activation and the sizes that it reads."""
    *pixels, channels = shape[1:]
    count, inputs = math.prod(shape) // width, source_shape[3] // groups
    sizes = channels // groups // width, inputs, *source_shape[1:], *kernel
    scalars = np.array([count, *extent(*pixels, channels // width), *sizes], np.uint32)
    known = *types(width, Weight=weight), *types(1, Storage=storage, Gradient=storage)[-2:]
    return (*known, *short_sums(inputs * math.prod(kernel))), Tables([neuron_parameters(neuron), scalars])


def _added(biases: Array | None, channels: int) -> Array | Tables:
    """Return the biases in float32, zeros without any."""
    return _zeros(channels) if biases is None else biases.astype(np.float32)


@lru_cache(64)
def _zeros(channels: int) -> Tables:
    return Tables([np.zeros(channels, np.float32)])


def weight_sums(
    launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array, out: Array | None = None
) -> Array:
    """Return dw, float32, or round it into ``out``."""
    shape, groups = problem.weights_shape, problem.spec.groups
    outputs, inputs, kernel = shape[0] // groups, shape[3], shape[1:3]
    products = math.prod(g.shape[:3]) * math.prod(shape)
    if _is_product(outputs, inputs, products) and (outputs % WIDE == inputs % WIDE == 0 or groups == 1):
        return _weight_products(launch, problem, g, x, out)
    width = width_of(inputs, x)
    size, lines = math.prod(shape) // width, g.shape[0] * g.shape[1]
    most = max(g.size, x.size) // math.prod(shape)  # limits the workspace to the size of an image
    chunk = _chunk(g, size, most, launch.gpu.threads)
    chunks = -(-lines // chunk)
    (*source, channels), sizes = x.shape[1:], (lines, *g.shape[1:], outputs, inputs // width)
    scalars = np.array([chunks * size, *sizes, *source, channels // width, *kernel, chunk], np.uint32)
    known = *types(width, Storage=x), *types(1, Gradient=g)[-1:], *short_sums(chunk * g.shape[2])
    step = Step("weight_sums", [g, x, pixels_of(problem), scalars], known, chunks * size)
    return _summed(launch, SUMS, [step], chunks, shape, out)


def _chunk(g: Array, packs: int, most: int, threads: int) -> int:
    """Return the number of rows of ``g`` per thread, such that ``packs`` results in about ``threads`` threads.

    It depends only on the shapes and the GPU, and so does the order of the additions.
    """
    lines = int(g.shape[0] * g.shape[1])
    chunks = max(1, min(-(-threads // packs), lines, most, CHUNKS))
    return -(-lines // chunks)


def _weight_products(
    launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array, out: Array | None
) -> Array:
    """Return dw, float32, or round it into ``out``: ``weight_products``, then the sum of its chunks."""
    wanted, groups = problem.weights_shape, problem.spec.groups
    g, x = (image if image.shape[3] // groups % WIDE == 0 else _padded(launch, image, 3) for image in (g, x))
    shape = g.shape[3], *wanted[1:3], x.shape[3] // groups
    outputs, inputs = shape[0] // groups, shape[3]
    weights, size, pixels = math.prod(shape[1:]), math.prod(shape), math.prod(g.shape[:3])
    workspace = max(WORKSPACE, g.size, x.size) // size
    down, across, chunks = _tiling(outputs, weights, pixels, groups, workspace, LARGE, launch.gpu.cores)
    tiles = -(-outputs // down), -(-weights // across)
    chunk = -(-pixels // chunks // TILE_K) * TILE_K
    chunks = -(-pixels // chunk)
    direct = out if shape == wanted else None
    aligned = weights % WIDE == 0 and (direct is None or width_of(WIDE, direct) == WIDE)
    layer = [pixels, *g.shape[1:3], groups, outputs, inputs, *x.shape[1:3], *shape[1:3], chunk, *tiles, size, aligned]
    known = *_tile_types(x, width_of(inputs, x), g, width_of(outputs, g)), *_tile(down, across)
    known += (_bool("SAME", _is_same(pixels_of(problem), x, g, shape[1:3])),)
    buffers = [g, x, pixels_of(problem), np.array(layer, np.uint32)]
    step = Step("weight_products", buffers, known, chunks * math.prod(tiles) * groups * _threads(down, across))
    sums = _summed(launch, ("tiles", "weight_tiles"), [step], chunks, shape, direct)
    if shape != wanted:
        sums = sums[: wanted[0], :, :, : wanted[3]]
        if out is not None:
            store(sums, out)
    return sums


def bias_sums(launch: Launcher, g: Array, out: Array) -> None:
    """Round db into ``out``."""
    fold(launch, g.reshape(1, -1, g.shape[3]), out)


def _bool(name: str, value: bool) -> str:
    return f"constant constexpr bool {name} = {str(value).lower()};"


def _constant(name: str, value: int) -> str:
    return f"constant constexpr uint {name} = {value};"


IMPLEMENTATIONS = {
    (Convolution, "forward"): forward,
    (Convolution, "gradient_data"): gradient_data,
    (Convolution, "gradient_weights"): gradient_weights,
}
