"""How an image-valued convolution is computed: which pixels each tap joins, and how the work is cut.

Forward and data gradient of convolution and transposed convolution are one sum over taps and channels. They differ in
the pixels that a tap joins, which the problem's tables say, and in the axis of the weights that is summed over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.convolution import (
    ConvolutionForward,
    ConvolutionGradientData,
    GradientData,
    WeightedForward,
    WeightedProblem,
)
from mpsref.kernels.convolution_transpose import TransposeForward, TransposeGradientData
from mpsref.operations import cached_in_problem
from mpsref_cpu.convolution.index_lists import ListBlock, ListSizes
from mpsref_cpu.convolution.microkernels import LANES
from mpsref_cpu.convolution.tap_groups import Span, Table, TapGroups, by_used_taps, span

WIDTHS = tuple(lanes for lanes in (32, 16, 8, 4) if lanes <= LANES)

PIXELS = 1024
"""Approximate number of pixels of a chunk of rows: each chunk reads all weights, and source rows at its edges again."""

DEPTHWISE_BYTES = 1 << 20
"""Approximate number of bytes of results of a chunk of rows of a depthwise kernel, which are written block by block."""

CHUNKS = 16
"""Minimum number of chunks if there is enough work: usually more than there are threads."""

CHUNK_PRODUCTS = 1 << 21
"""Minimum number of products of a chunk: 20 microseconds or more."""

PRODUCTS_A_BYTE = 8
"""Approximate number of products that take as long as to read or write a byte."""

MOST_MULTIPLIED = 4
"""Maximum number of output channels of a group with one input channel that runs as a depthwise kernel."""

ADJACENT_TAPS, ADJACENT_LANES = (3, 5, 7), 16
"""Numbers of taps of a row, and minimum number of lanes, of depthwise kernels with specialized code."""

FEW_RESULTS = 4
"""Maximum number of results of a pixel and group for which vectors run along the channels that are summed over."""


class Packing(NamedTuple):
    """The arguments of :func:`mpsref_cpu.convolution.packing.pack`."""

    size: int
    """Size of the copy."""
    blocks: tuple[tuple[int, Array], ...]
    """For each number of lanes its blocks, as (first weight, index in the copy, number of channels)."""
    steps: tuple[int, int, int]
    """Distances of the weights of neighbouring channels, taps and terms."""
    counts: tuple[int, int]
    """The numbers of taps, and of terms of a tap."""
    flipped: bool
    """Whether the copy begins with the last tap."""


@dataclass(frozen=True, eq=False)
class ConvolutionPlan:
    """How a problem is computed."""

    path: str
    """The name of the compiled code, see :func:`path_of`."""
    sizes: ListSizes
    """Sizes of the images with their channels repeated according to :attr:`repeats` and :attr:`adds`."""
    y: TapGroups
    x: TapGroups
    span: Span
    kernel: tuple[int, int]
    """The numbers of taps of a kernel row, and of terms of a tap."""
    repeats: int
    """The number of copies of each source channel."""
    adds: int
    """The number of computed channels that are added up for one of the result."""
    packing: Packing
    blocks: tuple[tuple[Any, ...], ...]
    """For each number of lanes its blocks of channels and the first block of each chunk; for depthwise kernels also two
    tuples, see :func:`_adjacent`.
    """
    bounds: Array
    """The channels of the result at which its chunks begin."""
    rows: int
    """The number of rows of a chunk, of :attr:`all_rows` in all images."""
    all_rows: int
    products: int


@cached_in_problem
def plan(problem: WeightedForward | GradientData) -> ConvolutionPlan:
    """Return how ``problem`` is computed."""
    forward = isinstance(problem, WeightedForward)
    images, height, width, channels = problem.result_shapes[0]
    _, source_height, source_width, source_channels = next(iter(problem.input_shapes.values()))
    path = path_of(problem, not forward)
    multiplier = problem.output_channels // problem.spec.groups if path == "depthwise" else 1
    repeats, adds = (multiplier, 1) if forward else (1, multiplier)
    blocks, packing = layout(problem, not forward, path)
    products = images * height * width * channels * adds * math.prod(packing.counts)
    pixels = PIXELS
    if path == "depthwise":
        pixels = min(PIXELS, max(1, DEPTHWISE_BYTES // (4 * channels * adds)))
    elif problem.spec.groups > 1:  # each group reads a few channels of all source pixels, which should stay in a cache
        pixels = max(1, PIXELS * height * width // max(height * width, source_height * source_width))
    rows, channel_chunks = _cut_rows(images * height, width, pixels, len(blocks) if adds == 1 else 1, products)
    if path == "depthwise" and rows > height:
        rows -= rows % height  # the borders of whole images fill more of a tile
    edges = [len(blocks) * k // channel_chunks for k in range(channel_chunks + 1)]
    y, x = _pixels(problem)
    columns = by_used_taps(x)
    tables = _by_chunk(blocks, edges)
    if path == "depthwise":
        tables = tuple((*table, _adjacent(columns, table[0])) for table in tables)
    return ConvolutionPlan(
        path,
        ListSizes(height, width, channels * adds, source_height, source_width, source_channels * repeats),
        by_used_taps(y),
        columns,
        span(y),
        (problem.spec.size[1], packing.counts[1]),
        repeats,
        adds,
        packing,
        tables,
        np.array([*(blocks[k][1].channel for k in edges[:-1]), channels * adds]) // adds,
        rows,
        images * height,
        products,
    )


def path_of(problem: WeightedProblem, back: bool) -> str:
    """Return the compiled code for a problem: "dense", "depthwise" or "few_outputs"; ``back`` as for :func:`layout`."""
    groups, inputs = problem.spec.groups, problem.weights_shape[3]
    outputs = problem.output_channels // groups
    if groups > 1 and inputs == 1 and outputs <= MOST_MULTIPLIED:
        return "depthwise"
    results, terms = (inputs, outputs) if back else (outputs, inputs)
    return "few_outputs" if results <= FEW_RESULTS and terms >= LANES and terms % WIDTHS[-1] == 0 else "dense"


def layout(problem: WeightedProblem, back: bool, path: str) -> tuple[list[tuple[int, ListBlock]], Packing]:
    """Return blocks of result channels, each with its lanes, and how their weights are packed.

    ``back`` is for results that have the kernel's input channels, and sum over its output channels.
    """
    groups, outputs, (_, *size, inputs) = problem.spec.groups, problem.output_channels, problem.weights_shape
    taps, outputs = math.prod(size), outputs // groups
    terms, into, steps = inputs, outputs, (taps * inputs, inputs, 1)
    if path == "depthwise":
        groups, into, outputs = 1, problem.output_channels, problem.output_channels
    elif back:
        terms, into, steps = outputs, inputs, (1, inputs, taps * inputs)
    vectors = next(lanes for lanes in WIDTHS if terms % lanes == 0) if path == "few_outputs" else 0
    blocks: list[tuple[int, ListBlock]] = []
    packed: list[tuple[int, tuple[int, int, int]]] = []
    end = 0
    for group in range(groups):
        for first, count, lanes in cut(into, path):
            channel = group * into + first
            blocks.append(
                (vectors or lanes, ListBlock(channel, channel if path == "depthwise" else group * terms, end, count))
            )
            packed.append((lanes, (group * outputs * taps * inputs + first * steps[0], end, count)))
            end += lanes * taps * terms
    return blocks, Packing(end, by_lanes(packed), steps, (taps, terms), back)


def _pixels(problem: WeightedForward | GradientData) -> tuple[Table, Table]:
    """Return, for y and x, the source pixel of each position and tap, in the order in which weights are packed."""
    joined = problem.convolution if isinstance(problem, (TransposeForward, TransposeGradientData)) else problem
    if isinstance(joined, ConvolutionGradientData):  # from the last tap to the first, its pixels ascend
        y, x = (table[:, ::-1] for table in joined.windows())
        return y, x
    assert isinstance(joined, ConvolutionForward)
    return joined.pixels()


def cut(channels: int, path: str) -> list[tuple[int, int, int]]:
    """Cut channels into blocks (first, channels, lanes), the widest first.

    Remaining channels are a block with as many lanes as the blocks before it, or, if there are none, with the fewest
    lanes that hold them: each number of lanes is another pass over the image. Depthwise kernels, which read vectors of
    the source, have no lanes beyond its channels, and with few outputs a block is one channel.

    >>> cut(11, "dense"), cut(11, "depthwise"), cut(2, "few_outputs")
    ([(0, 11, 16)], [(0, 8, 8), (8, 2, 2), (10, 1, 1)], [(0, 1, 1), (1, 1, 1)])
    """
    if path == "few_outputs":
        return [(channel, 1, 1) for channel in range(channels)]
    blocks, first = [], 0
    while first < channels:
        rest = channels - first
        fitting = [lanes for lanes in (*WIDTHS, 2, 1) if lanes <= rest]
        lanes = fitting[0]
        if path == "dense" and rest < LANES:
            lanes = LANES if first else min(lanes for lanes in WIDTHS if lanes >= rest)
        blocks.append((first, min(lanes, rest), lanes))
        first += lanes
    return blocks


def _adjacent(x: TapGroups, lanes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return tuples whose lengths are the number of taps of the largest group of columns, and the distance of these."""
    most = int(np.diff(x.start).argmax())
    taps, first = int(np.diff(x.tap_start)[most]), int(x.start[most])
    step = int(x.base[first + 1] - x.base[first]) if np.diff(x.start)[most] > 1 else 0
    if lanes < ADJACENT_LANES or taps not in ADJACENT_TAPS or not 1 <= step <= 2:
        taps = step = 1
    return (0,) * taps, (0,) * step


def _cut_rows(rows: int, width: int, pixels: int, blocks: int, products: int) -> tuple[int, int]:
    """Return the rows of a chunk, and the number of chunks of channels."""
    chunks = min(CHUNKS, max(1, products // CHUNK_PRODUCTS))
    row_chunks = max(1, -(-rows * width // pixels))
    channel_chunks = max(1, min(blocks, chunks // row_chunks))
    row_chunks = min(rows, max(row_chunks, -(-chunks // channel_chunks)))
    return -(-rows // row_chunks), channel_chunks


def _by_chunk(blocks: list[tuple[int, ListBlock]], edges: list[int]) -> tuple[tuple[Any, ...], ...]:
    """Return the blocks of each number of lanes as a table, and the first of each chunk; chunks begin at ``edges``."""
    tables = []
    for lanes, table in by_lanes(blocks):
        before = np.cumsum([0, *(of_block == lanes for of_block, _ in blocks)])
        tables.append((lanes, table, before[edges]))
    return tuple(tables)


def by_lanes(
    rows: list[tuple[int, ListBlock]] | list[tuple[int, tuple[int, int, int]]],
) -> tuple[tuple[int, Array], ...]:
    """Return the rows of each number of lanes as a table."""
    lanes = dict.fromkeys(lanes for lanes, _ in rows)
    return tuple((n, np.array([row for lanes, row in rows if lanes == n], np.int64)) for n in lanes)
