"""The gradients of weights and biases of convolution and transposed convolution.

Rows are cut into splits with sums of their own, and the sums of each into slices; both depend on the problem alone. At
the end the splits are added up. Workspace: the sums, and some rows for each thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.convolution import ConvolutionGradientWeights, GradientWeights
from mpsref.kernels.convolution_transpose import TransposeGradientWeights
from mpsref.operations import cached_in_problem
from mpsref_cpu.convolution.bias_gradient import bias_gradient
from mpsref_cpu.convolution.depthwise import reduce_depthwise
from mpsref_cpu.convolution.index_lists import SEQUENCE, ListSizes, ReductionChunks
from mpsref_cpu.convolution.microkernels import LANES, MANY_ROWS, ROWS
from mpsref_cpu.convolution.packing import unpack
from mpsref_cpu.convolution.plan import CHUNK_PRODUCTS, CHUNKS, PRODUCTS_A_BYTE, Packing, by_lanes, layout, path_of
from mpsref_cpu.convolution.storage import cut_rows, repeated, source_rows
from mpsref_cpu.convolution.tap_groups import Span, TapGroups, by_tap, by_used_taps, span
from mpsref_cpu.convolution.weight_gradient_dense import reduce_dense
from mpsref_cpu.threads import as_storage, for_rows

PIXELS = 256
"""Approximate number of pixels that are added up at a time: their vectors of a block fill half of an L1 cache."""

MOST_REPEATED = 0.05
"""Largest part of the rows of tall tiles that repeat others, in addition to those of usual tiles."""

FEW_CHANNELS = 16
"""Maximum number of channels for which the taps inside the image share tiles."""


@dataclass(frozen=True, eq=False)
class WeightGradientPlan:
    """How a problem is computed, in terms of the convolution from "source" to "gradient"."""

    depthwise: bool
    exchanged: bool
    """Whether x takes the place of the gradient, as in a transposed convolution."""
    sizes: ListSizes
    y: TapGroups
    x: TapGroups
    span: Span
    kernel: tuple[int, int]
    """The numbers of taps of a kernel row, and of terms of a tap."""
    multiplier: int
    """The number of copies of each channel of x."""
    blocks: tuple[tuple[int, Array], ...]
    packing: Packing
    all_rows: int
    rows: int
    """The number of rows that are added up at a time."""
    splits: int
    slices: int
    products: int


@cached_in_problem
def plan(problem: GradientWeights) -> WeightGradientPlan:
    """Return how ``problem`` is computed."""
    exchanged = isinstance(problem, TransposeGradientWeights)
    joined = problem.convolution if isinstance(problem, TransposeGradientWeights) else problem
    assert isinstance(joined, ConvolutionGradientWeights)
    images, height, width, channels = joined.result_image
    _, source_height, source_width, source_channels = joined.source_shape
    depthwise = path_of(problem, exchanged) == "depthwise"
    multiplier = problem.output_channels // problem.spec.groups if depthwise else 1
    blocks, packing = layout(problem, exchanged, "depthwise" if depthwise else "dense")
    y, x = joined.pixels()
    cut = by_used_taps if depthwise or packing.counts[1] <= FEW_CHANNELS else by_tap
    if exchanged:
        channels *= multiplier
    else:
        source_channels *= multiplier
    rows = max(1, PIXELS // width)
    all_rows, pixels = images * height, images * height * width
    products = pixels * problem.weights_shape[0] * math.prod(problem.weights_shape[1:])
    operand = max(math.prod(shape) for shape in (*problem.input_shapes.values(), *problem.result_shapes))
    chunks = min(CHUNKS, max(1, products // CHUNK_PRODUCTS))
    splits = max(1, min(chunks, operand // packing.size, all_rows // rows))
    if splits < chunks and problem.spec.groups > 1 and not depthwise:
        splits = 1  # slices read the channels of their groups alone
    splits = max(splits, -(-all_rows // (rows * SEQUENCE)))
    slices = min(-(-chunks // splits), len(blocks) * (1 if depthwise else -(-packing.counts[1] // ROWS)))
    return WeightGradientPlan(
        depthwise,
        exchanged,
        ListSizes(height, width, channels, source_height, source_width, source_channels),
        cut(y),
        cut(x),
        span(y),
        (problem.spec.size[1], packing.counts[1]),
        multiplier,
        by_lanes(blocks),
        packing,
        all_rows,
        rows,
        splits,
        slices,
        products,
    )


def _rows_of_tile(lanes: int, terms: int) -> int:
    """Return the rows of tiles: many read the gradient less often, but more of them may be repetitions."""
    usual, tall = (-(-terms // rows) * rows for rows in (ROWS, MANY_ROWS))
    return MANY_ROWS if lanes == LANES and tall <= (1 + MOST_REPEATED) * usual else ROWS


def gradient_weights(problem: GradientWeights, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    """Fill ``out`` with dw and db."""
    dw, db = out
    bias_gradient(g, db)
    source, gradient = (g, x) if isinstance(problem, TransposeGradientWeights) else (x, g)
    p, stored, gradients = plan(problem), as_storage(source), as_storage(gradient)
    repeats = (1, p.multiplier) if p.exchanged else (p.multiplier, 1)
    in_place = p.multiplier == 1
    sums = np.zeros((p.splits, p.packing.size), np.float32)
    add: Any = reduce_depthwise
    if not p.depthwise:
        add = reduce_dense
    nbytes = source.nbytes + gradient.nbytes + p.products // PRODUCTS_A_BYTE
    pitch = p.sizes.width * p.sizes.pitch
    for first, last in [(0, p.all_rows)] if in_place else cut_rows(p.all_rows, p.rows):
        values, slopes, first_source, first_row = stored, gradients, 0, 0
        if not in_place:
            values, first_source = source_rows(stored, p.span, p.sizes, repeats[0], first, last)
            slopes = repeated(gradients, first * pitch // repeats[1], (last - first) * pitch, repeats[1])
            first_row = first
        rows = ReductionChunks(first, last, p.rows, p.all_rows, p.splits, p.slices, first_source, first_row)
        for lanes, blocks in p.blocks:
            tile = () if p.depthwise else ((0,) * _rows_of_tile(lanes, p.packing.counts[1]),)
            tables = *tile, (0,) * lanes, rows, values, slopes, p.sizes, p.y, p.x, p.kernel, blocks, sums
            for_rows(add, p.splits * p.slices, *tables, nbytes=nbytes * (last - first) // p.all_rows)
    packing, weights = p.packing, dw.reshape(-1)
    for lanes, blocks in packing.blocks:
        how = blocks, lanes, packing.steps, packing.counts, packing.flipped
        for_rows(unpack, len(blocks), *how, sums, weights, nbytes=sums.nbytes + weights.nbytes)
