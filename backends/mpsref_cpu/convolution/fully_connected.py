"""Fully connected layers: products of matrices whose largest, the weights, is read or written once.

With x as (N, K), weights as (Co, K) and g as (N, Co): forward is ``x @ w.T``, the data gradient ``g @ w`` and the
weight gradient ``g.T @ x``. The forward pass multiplies rows with rows, in vectors along K. Both gradients have vectors
of results along K, and pack a few of the rows that they read; with few images the data gradient reads rows in place.
Sums over more than 1,024 terms are sums of sums. Workspace: a block of rows or columns for each thread; float16
operands other than the weights are copied as float32.
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.convolution import ConvolutionForward, ConvolutionGradientData, ConvolutionGradientWeights
from mpsref.kernels.fully_connected import FullyConnected
from mpsref.kernels.neuron import Neuron
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.activation.functions import compiled_form
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.convolution.bias_gradient import bias_gradient
from mpsref_cpu.convolution.index_lists import ListChunks
from mpsref_cpu.convolution.microkernels import (
    LANES,
    ROWS,
    add_products,
    add_scaled,
    add_to,
    empty,
    offsets,
    row_sums,
    store_rows,
)
from mpsref_cpu.convolution.storage import cut_rows, finish, widened
from mpsref_cpu.simd.half import as_storage, load
from mpsref_cpu.threads import for_rows

OUTPUTS = 96
"""Outputs of a chunk of the forward pass: whole tiles, by rows and by lanes."""

MANY_IMAGES = 16
"""Images from which it pays to pack the operand that all of them share."""

SEQUENCE = 512
"""Columns summed over at a time."""

COLUMNS = 512
"""Columns of a chunk of a gradient."""

SUMMED = 128
"""Rows packed and summed over at a time: 256 KB of COLUMNS columns."""

LANES_TUPLE = (0,) * LANES


def forward(problem: ConvolutionForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array) -> None:
    """Fill ``out`` with y."""
    images, outputs = out.shape[0], out.shape[3]
    first_sums = np.zeros(outputs, np.float32) if biases is None else biases.astype(np.float32)
    pixels, stored, results = _float32(x), as_storage(weights), as_storage(out)
    sums = results if results.dtype == np.float32 else np.empty(results.size, np.float32)
    multiply = _packed_rows if images >= MANY_IMAGES else _rows
    nbytes = x.nbytes + weights.nbytes + out.nbytes
    in_place = stored.dtype == np.float32
    for first, last in [(0, outputs)] if in_place else cut_rows(outputs, OUTPUTS):
        rows = stored if in_place else _wide_rows(stored, first, last, x.size // images)
        bounds = first, last, 0 if in_place else first
        count, channel_chunk = -(-(last - first) // OUTPUTS), nbytes * (last - first) // outputs
        for_rows(multiply, count, LANES_TUPLE, bounds, rows, pixels, images, first_sums, sums, nbytes=channel_chunk)
    if problem.spec.neuron is not None or sums is not results:
        _finish(images, OUTPUTS, problem.spec.neuron, sums, results)


def gradient_data(problem: ConvolutionGradientData, g: Array, weights: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    images, outputs = g.shape[0], g.shape[3]
    columns = out.size // images
    gradients, stored, results = _float32(g), as_storage(weights), as_storage(out)
    sums = results if results.dtype == np.float32 else np.empty(results.size, np.float32)
    chunks, nbytes = -(-columns // COLUMNS), g.nbytes + weights.nbytes + out.nbytes
    if images < MANY_IMAGES:
        for_rows(_scaled_rows, chunks, columns, outputs, stored, images, gradients, sums, nbytes=nbytes)
    else:
        of = columns, outputs, stored
        for_rows(_columns, chunks, LANES_TUPLE, *of, images, gradients, (outputs, 1), sums, nbytes=nbytes)
    if sums is not results:
        _finish(images, COLUMNS, None, sums, results)


def gradient_weights(problem: ConvolutionGradientWeights, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    """Fill ``out`` with dw and db."""
    dw, db = out
    images, outputs = g.shape[0], g.shape[3]
    columns = x.size // images
    bias_gradient(g, db)
    of = columns, images, as_storage(x), outputs, _float32(g), (1, outputs)
    nbytes = g.nbytes + x.nbytes + dw.nbytes
    for_rows(_columns, -(-columns // COLUMNS), LANES_TUPLE, *of, as_storage(dw), nbytes=nbytes)


def _finish(images: int, chunk: int, neuron: Neuron | None, sums: Array, results: Array) -> None:
    """Store the activations of all sums, ``chunk`` outputs at a time."""
    outputs = results.size // images
    bounds = np.minimum(np.arange(0, outputs + chunk, chunk), outputs)
    chunks = ListChunks(0, images, images, bounds.size - 1, 0, 0)
    for_rows(finish, chunks.number, chunks, 1, bounds, 1, compiled_form(neuron), sums, results, nbytes=sums.nbytes)


def _wide_rows(stored: Array, first: int, last: int, columns: int) -> Array:
    return widened(stored, first * columns, (last - first) * columns, 1)


def _float32(array: Array) -> Array:
    """Return an operand as a float32 vector, itself if possible."""
    stored = as_storage(array)
    return stored if stored.dtype == np.float32 else widened(stored, 0, stored.size, 1)


@compiled
def _rows(begin, end, lanes, bounds, w, x, images, first_sums, sums):
    """Set ``sums`` (images, outputs) to ``first_sums`` and the products of rows of ``x`` and of ``w``.

    ``bounds`` is (first output, the one after the last, the output of the first row of ``w``).
    """
    width, columns, outputs = len(lanes), x.size // images, first_sums.size
    zeros = empty(ROWS, lanes)
    starts = np.empty(ROWS, np.int64)
    for first in range(bounds[0] + begin * OUTPUTS, min(bounds[1], bounds[0] + end * OUTPUTS), ROWS):
        rows = min(ROWS, bounds[1] - first)
        for r in range(ROWS):
            starts[r] = (first - bounds[2] + min(r, rows - 1)) * columns
        for image in range(images):
            for r in range(rows):
                sums[image * outputs + first + r] = first_sums[first + r]
        for k in range(0, columns, SEQUENCE):
            length = min(SEQUENCE, columns - k)
            vectors = length // width
            for image in range(images):
                at = image * columns + k
                tile = add_products(zeros, w, offsets(zeros, starts, 0), k, x, at, vectors, width, width)
                totals = row_sums(tile)
                for r in range(rows):
                    total = totals[r]
                    for i in range(vectors * width, length):
                        total += w[starts[r] + k + i] * x[at + i]
                    sums[image * outputs + first + r] += total


@compiled
def _packed_rows(begin, end, lanes, bounds, w, x, images, first_sums, sums):
    """Like :func:`_rows`, with packed rows of ``w``."""
    width, columns, outputs = len(lanes), x.size // images, first_sums.size
    zeros = empty(ROWS, lanes)
    of, to = _padded(images, columns), _padded(images, width)
    panel = np.zeros(SEQUENCE * width, np.float32)
    pixel_lists = np.empty(images * width, np.float32)
    for first in range(bounds[0] + begin * OUTPUTS, min(bounds[1], bounds[0] + end * OUTPUTS), width):
        rows = min(width, bounds[1] - first)
        pixel_lists[:] = 0
        for k in range(0, columns, SEQUENCE):
            length = min(SEQUENCE, columns - k)
            for lane in range(rows):
                at = np.uintp((first - bounds[2] + lane) * columns + k)
                for i in range(np.uintp(length)):
                    panel[i * np.uintp(width) + np.uintp(lane)] = w[at + i]
            for image in range(0, images, ROWS):
                tile = add_scaled(zeros, x, offsets(zeros, of, image), k, panel, 0, length, 1, width)
                add_to(tile, pixel_lists, offsets(zeros, to, image), 0)
        for image in range(images):
            for lane in range(rows):
                sums[image * outputs + first + lane] = first_sums[first + lane] + pixel_lists[image * width + lane]


@inlined
def _padded(count, step):
    """Return 0, step, 2 * step, ... for ``count`` rows, with the last one repeated to fill a tile."""
    starts = np.empty(count + ROWS, np.int64)
    for i in range(starts.size):
        starts[i] = min(i, count - 1) * step
    return starts


@compiled
def _scaled_rows(begin, end, columns, terms, stored, rows, factors, result):
    """Like :func:`_columns`, for a few rows of the result, four terms at a time, without packing."""
    pixel_lists = np.empty(rows * COLUMNS, np.float32)
    for chunk in range(begin, end):
        first = chunk * COLUMNS
        size = min(COLUMNS, columns - first)
        for start in range(0, terms, SEQUENCE):
            pixel_lists[:] = 0
            last = min(start + SEQUENCE, terms)
            for t in range(start, last, 4):
                t1, t2, t3 = min(t + 1, last - 1), min(t + 2, last - 1), min(t + 3, last - 1)
                w0, w1 = np.uintp(t * columns + first), np.uintp(t1 * columns + first)
                w2, w3 = np.uintp(t2 * columns + first), np.uintp(t3 * columns + first)
                for r in range(rows):
                    f0, f1, f2, f3 = (
                        factors[r * terms + t],
                        factors[r * terms + t1],
                        factors[r * terms + t2],
                        factors[r * terms + t3],
                    )
                    at = np.uintp(r * COLUMNS)
                    if t + 4 <= last:
                        for i in range(np.uintp(size)):
                            adjacent = f0 * load(stored[w0 + i]) + f1 * load(stored[w1 + i])
                            pixel_lists[at + i] += adjacent + (f2 * load(stored[w2 + i]) + f3 * load(stored[w3 + i]))
                    else:
                        for u in range(t, last):
                            factor, w = factors[r * terms + u], np.uintp(u * columns + first)
                            for i in range(np.uintp(size)):
                                pixel_lists[at + i] += factor * load(stored[w + i])
            for r in range(rows):
                at, to = np.uintp(r * COLUMNS), np.uintp(r * columns + first)
                for i in range(np.uintp(size)):
                    result[to + i] = pixel_lists[at + i] + (result[to + i] if start else np.float32(0))


@compiled
def _columns(begin, end, lanes, columns, terms, stored, rows, factors, steps, result):
    """Set rows of ``result`` to sums of rows of ``stored`` times factors, for some chunks of columns.

    Row r is the sum over t of ``factors[r * steps[0] + t * steps[1]]`` times row t.
    """
    width = len(lanes)
    zeros = empty(ROWS, lanes)
    panel = np.zeros(-(-COLUMNS // width) * min(SUMMED, terms) * width, np.float32)
    edge, edges = np.empty(ROWS * width, np.float32), np.arange(ROWS) * width
    of, to = _padded(rows, steps[0]), _padded(rows, columns)
    for first in range(begin * COLUMNS, min(end * COLUMNS, columns), COLUMNS):
        last = min(first + COLUMNS, columns)
        strips = -(-(last - first) // width)
        for start in range(0, terms, SUMMED):
            count = min(SUMMED, terms - start)
            for t in range(count):
                row = (start + t) * columns + first
                for strip in range(strips):
                    at, x = np.uintp((strip * count + t) * width), np.uintp(row + strip * width)
                    for lane in range(np.uintp(min(width, last - first - strip * width))):
                        panel[at + lane] = load(stored[x + lane])
            for r in range(0, rows, ROWS):
                starts, targets = offsets(zeros, of, r), offsets(zeros, to, r)
                for strip in range(strips):
                    vectors, column = strip * count * width, first + strip * width
                    tile = add_scaled(zeros, factors, starts, start * steps[1], panel, vectors, count, steps[1], width)
                    if column + width > last:
                        store_rows(tile, edge, offsets(zeros, edges, 0), 0)
                        for i in range(min(ROWS, rows - r)):
                            for lane in range(last - column):
                                q = to[r + i] + column + lane
                                result[q] = edge[i * width + lane] + (result[q] if start else np.float32(0))
                    elif start:
                        add_to(tile, result, targets, column)
                    else:
                        store_rows(tile, result, targets, column)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (FullyConnected, "forward"): forward,
    (FullyConnected, "gradient_data"): gradient_data,
    (FullyConnected, "gradient_weights"): gradient_weights,
}
