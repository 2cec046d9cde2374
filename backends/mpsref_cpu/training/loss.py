"""Losses: one pass over predictions and labels, a block at a time, whose values are stored or summed up.

Sums of blocks are float64; which blocks there are depends on the shapes alone, so results do not depend on the number
of threads. The formulas are in :mod:`mpsref_cpu.training.loss_formulas` and :mod:`mpsref_cpu.training.loss_softmax`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.loss import Loss, LossForward, LossGradient, LossProblem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, generic, inlined
from mpsref_cpu.simd.vectors import load_vector, plus, store_vector, zeros
from mpsref_cpu.threads import as_storage, for_rows
from mpsref_cpu.training.loss_formulas import (
    ELEMENT,
    LABEL_SLOPE,
    SLOPE,
    SoftMaxCrossEntropy,
    compiled_form,
    loop_of,
)
from mpsref_cpu.training.loss_softmax import fill_pixels, pixels_of

BLOCK = 2048
"""Approximate number of elements of a block; a block of softmax has at least one pixel."""

LANES = 32
"""Number of partial sums of a block."""

real = np.float32


class Cut(NamedTuple):
    """How each image of ``size`` elements is cut into blocks of ``long`` elements, all but the last."""

    size: int
    long: int
    channels: int

    @property
    def blocks(self) -> int:
        """Blocks of an image."""
        return -(-self.size // self.long)


def forward(problem: LossForward, y: Array, t: Array, weights: Array | None = None, *, out: Array) -> None:
    """Fill ``out`` with the loss image."""
    if problem.spec.reduction == "none":
        _run(problem, ELEMENT, None, y, t, weights, out)
        return
    sums = _run(problem, ELEMENT, None, y, t, weights, None) * problem.spec.weight
    with np.errstate(over="ignore"):
        out[...] = problem.loss_image(sums, weights)


def gradient(problem: LossGradient, *inputs: Array, out: Array) -> None:
    """Fill ``out`` with dy."""
    _run(problem, SLOPE, *problem.named_inputs(inputs), out)


def gradient_labels(problem: LossGradient, *inputs: Array, out: Array) -> None:
    """Fill ``out`` with dt."""
    channels = problem.source_shape[3]
    read = out if problem.label_channels == channels else np.empty(problem.source_shape, out.dtype)
    _run(problem, LABEL_SLOPE, *problem.named_inputs(inputs), read)
    if read is not out:
        out[..., :channels] = read
        out[..., channels:] = 0


def _run(
    problem: LossProblem, what: int, g: Array | None, y: Array, t: Array, weights: Array | None, out: Array | None
) -> Array:
    """Fill ``out`` with the function ``what``, multiplied by all factors.

    Without ``out``, return its sum over each image, float64, multiplied only by the image of weights.
    """
    n, *_, channels = y.shape
    form, images = compiled_form(problem.spec), n
    factor: Any = problem.spec.weight * (form.a if what == LABEL_SLOPE else 1)
    if g is not None and problem.spec.reduction != "none":
        assert isinstance(problem, LossGradient)
        factor = np.full(n, factor) * problem.source_gradient(g).ravel()
        g = None
    elif out is not None:
        images = 1  # one factor for all of them
    pixels = max(1, BLOCK // channels) * channels
    cut = Cut(y.size // images, pixels if problem.function.over_channels else BLOCK, channels)
    # Empty arrays in place of absent ones: each combination would be compiled separately.
    y, t = as_storage(y), as_storage(t if t.shape == y.shape else np.ascontiguousarray(t[..., :channels]))
    g, weights, stored = (y[:0] if array is None else as_storage(array) for array in (g, weights, out))
    factors, sums = np.empty(images, real), np.zeros(images * cut.blocks)
    factors[:] = factor
    nbytes = g.nbytes + y.nbytes + t.nbytes + weights.nbytes + stored.nbytes
    for_rows(_compute, images * cut.blocks, cut, what, form, factors, g, y, t, weights, stored, sums, nbytes=nbytes)
    return sums if out is not None else np.add.reduce(sums.reshape(images, -1), axis=1)


@compiled
def _compute(begin, end, cut, what, form, factors, g, y, t, weights, out, sums):
    """Compute blocks from ``begin`` to ``end``, counted through all images, each of which has a factor."""
    values, lanes = np.empty(cut.long, real), np.empty(LANES, real)
    memory = _memory_for(form, cut.long, cut.channels)
    blocks = -(-cut.size // cut.long)
    for row in range(begin, end):
        image, block = divmod(row, blocks)
        at, count = np.uintp(image * cut.size + block * cut.long), min(cut.long, cut.size - block * cut.long)
        _fill(what, values, form, memory, y, t, at, count, cut.channels)
        n = np.uintp(count)
        if weights.size:
            for i in range(n):
                values[i] *= weights[at + i]
        if g.size:
            for i in range(n):
                values[i] *= g[at + i]
        if out.size:
            factor = factors[image]
            for i in range(n):
                out[at + i] = real(factor * values[i])
        else:
            sums[row] = _total_of(values, count, lanes)


@generic
def _memory_for(form, size, channels):
    """Return the workspace of a loss for a block."""
    return pixels_of if form.instance_class is SoftMaxCrossEntropy else lambda form, size, channels: None


@generic
def _fill(what, values, form, memory, y, t, at, count, channels):
    """Set ``values`` to the function ``what`` of the ``count`` elements from ``at`` on."""

    if form.instance_class is SoftMaxCrossEntropy:
        return fill_pixels
    element, slope, label_slope = map(loop_of, form.instance_class.formulas)

    def elements(what, values, form, memory, y, t, at, count, channels):
        if what == ELEMENT:
            element(values, form, y, t, at, count)
        elif what == SLOPE:
            slope(values, form, y, t, at, count)
        else:
            label_slope(values, form, y, t, at, count)

    return elements


@inlined
def _total_of(values, count, lanes):
    """Return the sum of ``count`` values: LANES partial sums, stored in ``lanes`` and added up in float64."""
    sums, whole = zeros(LANES), np.uintp(count // LANES * LANES)
    for i in range(np.uintp(0), whole, np.uintp(LANES)):
        sums = plus(sums, load_vector(values, i, sums))
    store_vector(lanes, 0, sums)
    total = np.float64(0)
    for k in range(np.uintp(LANES)):
        total += lanes[k]
    for i in range(whole, np.uintp(count)):
        total += values[i]
    return total


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Loss, "forward"): forward,
    (Loss, "gradient"): gradient,
    (Loss, "gradient_labels"): gradient_labels,
}
