"""Fully connected layers: products of matrices whose largest, the weights, is read or written once.

With x as (N, K), weights as (Co, K) and g as (N, Co): forward is ``x @ w.T``, the data gradient ``g @ w`` and the
weight gradient ``g.T @ x``. The forward pass multiplies rows with rows, in vectors along K. Both gradients have vectors
of results along K, and copy a few of the rows that they read so that these vectors follow each other; with few images
the data gradient reads rows where they lie. Sums over more than 1,024 terms are sums of sums. Workspace: a block of
rows or columns for each thread; float16 operands other than the weights are copied as float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.images import Array
from mpsref.kernels.convolution import ConvolutionForward, ConvolutionGradientData, ConvolutionGradientWeights
from mpsref.kernels.fully_connected import FullyConnected
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.convolution_biases import bias_gradient
from mpsref_cpu.convolution_storage import finish, operand, widened
from mpsref_cpu.convolution_tiles import LANES, ROWS, add_lanes, add_scaled, add_to, empty, places, put, sums_of_rows
from mpsref_cpu.half import as_storage, load
from mpsref_cpu.neuron_curves import compiled_form
from mpsref_cpu.parallel import for_rows

__all__ = ["IMPLEMENTATIONS"]

OUTPUTS = 96
"""Outputs of a piece of forward work: whole tiles, by rows and by lanes."""

MANY_IMAGES = 16
"""From so many on, it pays to copy what all of them are multiplied with."""

SEQUENCE = 512
"""Columns that are summed over at a time."""

COLUMNS = 512
"""Columns of a piece of gradient work."""

SUMMED = 128
"""Rows that are copied, and summed over, at a time: 256 KB of so many columns."""

LANES_TUPLE = (0,) * LANES


def forward(problem: ConvolutionForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array) -> None:
    """Fill ``out`` with y."""
    images, outputs = out.shape[0], out.shape[3]
    columns = x.size // images
    begins = np.zeros(outputs, np.float32) if biases is None else biases.astype(np.float32)
    pixels, stored, results = _float32(x), operand(weights), as_storage(out)
    form = compiled_form(problem.spec.neuron)
    multiply = _add_packed_rows if images >= MANY_IMAGES else _add_rows

    def body(begin: int, end: int) -> None:
        for piece in range(begin, end):
            first, last = piece * OUTPUTS, min((piece + 1) * OUTPUTS, outputs)
            rows, start = stored, first * columns
            if stored.dtype != np.float32:
                rows, start = widened(stored, start, (last - first) * columns, 1), 0
            sums = np.empty(images * OUTPUTS, np.float32)
            sums.reshape(images, OUTPUTS)[:, : last - first] = begins[first:last]
            multiply(LANES_TUPLE, columns, rows, start, last - first, pixels, images, sums)
            finish(images, sums, (0, OUTPUTS), 1, form, results, (first, outputs, first), last - first)

    for_rows(body, -(-outputs // OUTPUTS), x.nbytes + weights.nbytes + out.nbytes)


def gradient_data(problem: ConvolutionGradientData, g: Array, weights: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    images, outputs = g.shape[0], g.shape[3]
    columns = out.size // images
    gradients, stored, results = _float32(g), operand(weights), as_storage(out)
    form = compiled_form(None)

    def body(begin: int, end: int) -> None:
        for piece in range(begin, end):
            first, last = piece * COLUMNS, min((piece + 1) * COLUMNS, columns)
            sums = np.empty(images * COLUMNS, np.float32)
            place = first, last, columns
            if images < MANY_IMAGES:
                _scaled_rows(place, outputs, stored, images, gradients, sums)
            else:
                _columns(LANES_TUPLE, place, outputs, stored, images, gradients, (outputs, 1), sums, (0, COLUMNS))
            finish(images, sums, (0, COLUMNS), 1, form, results, (first, columns, 0), last - first)

    for_rows(body, -(-columns // COLUMNS), g.nbytes + weights.nbytes + out.nbytes)


def gradient_weights(problem: ConvolutionGradientWeights, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    """Fill ``out`` with dw and db."""
    dw, db = out
    images, outputs = g.shape[0], g.shape[3]
    columns = x.size // images
    gradients, stored, results = _float32(g), operand(x), as_storage(dw)
    bias_gradient(g, db)

    def body(begin: int, end: int) -> None:
        for piece in range(begin, end):
            place = piece * COLUMNS, min((piece + 1) * COLUMNS, columns), columns
            into = place[0], columns
            _columns(LANES_TUPLE, place, images, stored, outputs, gradients, (1, outputs), results, into)

    for_rows(body, -(-columns // COLUMNS), g.nbytes + x.nbytes + dw.nbytes)


def _float32(array: Array) -> Array:
    """Return an operand in float32: itself if it is."""
    stored = operand(array)
    return stored if stored.dtype == np.float32 else widened(stored, 0, stored.size, 1)


@compiled
def _add_rows(lanes: Any, columns: int, w: Any, start: int, rows: int, x: Any, images: int, sums: Any) -> None:
    """Add the products of rows of ``x`` and of ``w[start:]`` to ``sums`` (images, OUTPUTS)."""
    width = len(lanes)
    zeros = empty(ROWS, lanes)
    starts = np.empty(ROWS, np.int64)
    for first in range(0, rows, ROWS):
        for r in range(ROWS):
            starts[r] = start + min(first + r, rows - 1) * columns
        for k in range(0, columns, SEQUENCE):
            length = min(SEQUENCE, columns - k)
            vectors = length // width
            for image in range(images):
                at = image * columns + k
                tile = add_lanes(zeros, w, places(zeros, starts, 0), k, x, at, vectors, width, width)
                totals = sums_of_rows(tile)
                for r in range(min(ROWS, rows - first)):
                    total = totals[r]
                    for i in range(vectors * width, length):
                        total += w[starts[r] + k + i] * x[at + i]
                    sums[image * OUTPUTS + first + r] += total


@compiled
def _add_packed_rows(lanes: Any, columns: int, w: Any, start: int, rows: int, x: Any, images: int, sums: Any) -> None:
    """Do the same, with a copy of some of ``w`` in which the rows lie side by side."""
    width = len(lanes)
    zeros = empty(ROWS, lanes)
    of, to = _padded(images, columns), _padded(images, OUTPUTS)
    panel = np.zeros(SEQUENCE * width, np.float32)
    for first in range(0, rows, width):
        for k in range(0, columns, SEQUENCE):
            length = min(SEQUENCE, columns - k)
            for lane in range(min(width, rows - first)):
                at = np.uintp(start + (first + lane) * columns + k)
                for i in range(np.uintp(length)):
                    panel[i * np.uintp(width) + np.uintp(lane)] = w[at + i]
            for image in range(0, images, ROWS):
                tile = add_scaled(zeros, x, places(zeros, of, image), k, panel, 0, length, 1, width)
                add_to(tile, sums, places(zeros, to, image), first)


@inlined
def _padded(count: int, step: int) -> Any:
    """Return 0, step, 2 * step, ... for ``count`` rows, and the last of them again for a whole tile."""
    starts = np.empty(count + ROWS, np.int64)
    for i in range(starts.size):
        starts[i] = min(i, count - 1) * step
    return starts


@compiled
def _scaled_rows(place: Any, terms: int, stored: Any, rows: int, factors: Any, result: Any) -> None:
    """Do what :func:`_columns` does for a few rows of the result, four terms at a time, without a copy."""
    first, last, columns = place
    size = last - first
    room = np.empty(rows * COLUMNS, np.float32)
    result[:] = 0
    for begin in range(0, terms, SEQUENCE):
        room[:] = 0
        end = min(begin + SEQUENCE, terms)
        for t in range(begin, end, 4):
            t1, t2, t3 = min(t + 1, end - 1), min(t + 2, end - 1), min(t + 3, end - 1)
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
                if t + 4 <= end:
                    for i in range(np.uintp(size)):
                        near = f0 * load(stored[w0 + i]) + f1 * load(stored[w1 + i])
                        room[at + i] += near + (f2 * load(stored[w2 + i]) + f3 * load(stored[w3 + i]))
                else:
                    for u in range(t, end):
                        factor, w = factors[r * terms + u], np.uintp(u * columns + first)
                        for i in range(np.uintp(size)):
                            room[at + i] += factor * load(stored[w + i])
        for i in range(rows * COLUMNS):
            result[i] += room[i]


@compiled
def _columns(
    lanes: Any,
    place: Any,
    terms: int,
    stored: Any,
    rows: int,
    factors: Any,
    steps: Any,
    result: Any,
    into: Any,
) -> None:
    """Set rows of ``result`` to sums of rows of ``stored`` times factors, in some columns.

    Row r is the sum over t of ``factors[r * steps[0] + t * steps[1]]`` times row t. ``place`` is (first column, last,
    columns of ``stored``), ``into`` where the first row of the result begins, and from one to the next.
    """
    first, last, columns = place
    width = len(lanes)
    zeros = empty(ROWS, lanes)
    strips = -(-(last - first) // width)
    panel = np.zeros(strips * min(SUMMED, terms) * width, np.float32)
    edge, edges = np.empty(ROWS * width, np.float32), np.arange(ROWS) * width
    of, to = _padded(rows, steps[0]), _padded(rows, into[1])
    for begin in range(0, terms, SUMMED):
        count = min(SUMMED, terms - begin)
        for t in range(count):
            row = (begin + t) * columns + first
            for strip in range(strips):
                at, start = np.uintp((strip * count + t) * width), np.uintp(row + strip * width)
                for lane in range(np.uintp(min(width, last - first - strip * width))):
                    panel[at + lane] = load(stored[start + lane])
        for r in range(0, rows, ROWS):
            starts, targets = places(zeros, of, r), places(zeros, to, r)
            for strip in range(strips):
                vectors, column = strip * count * width, into[0] + strip * width
                tile = add_scaled(zeros, factors, starts, begin * steps[1], panel, vectors, count, steps[1], width)
                if (strip + 1) * width > last - first:
                    put(tile, edge, places(zeros, edges, 0), 0)
                    for i in range(min(ROWS, rows - r)):
                        for lane in range(last - first - strip * width):
                            at = to[r + i] + column + lane
                            result[at] = edge[i * width + lane] + (result[at] if begin else np.float32(0))
                elif begin:
                    add_to(tile, result, targets, column)
                else:
                    put(tile, result, targets, column)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (FullyConnected, "forward"): forward,
    (FullyConnected, "gradient_data"): gradient_data,
    (FullyConnected, "gradient_weights"): gradient_weights,
}
