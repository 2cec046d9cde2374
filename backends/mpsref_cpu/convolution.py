"""Convolution and transposed convolution; the weight gradient is in :mod:`mpsref_cpu.convolution_weights`.

:func:`mpsref_cpu.convolution_plan.plan` settles what depends on the problem alone. Here weights are packed, and blocks
of rows and channels are shared out among threads. Workspace: the packed weights, and for each thread a block of rows
where images are not computed in place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpsref.images import Array
from mpsref.kernels.convolution import Convolution
from mpsref.kernels.convolution_problems import Forward, GradientData
from mpsref.kernels.convolution_transpose import ConvolutionTranspose
from mpsref.kernels.neuron import Neuron
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.convolution_dense import dense
from mpsref_cpu.convolution_depthwise import depthwise
from mpsref_cpu.convolution_dots import dots
from mpsref_cpu.convolution_packing import pack
from mpsref_cpu.convolution_plan import PRODUCTS_A_BYTE, Packing, Plan, plan
from mpsref_cpu.convolution_storage import finish, operand, source_rows
from mpsref_cpu.convolution_tiles import LANES
from mpsref_cpu.convolution_weights import gradient_weights
from mpsref_cpu.half import as_storage
from mpsref_cpu.neuron_curves import compiled_form
from mpsref_cpu.parallel import for_rows

__all__ = ["IMPLEMENTATIONS"]


def forward(problem: Forward, x: Array, weights: Array, biases: Array | None = None, *, out: Array) -> None:
    """Fill ``out`` with y."""
    _run(plan(problem), x, weights, biases, problem.spec.neuron, out)


def gradient_data(problem: GradientData, g: Array, weights: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    _run(plan(problem), g, weights, None, None, out)


def _run(p: Plan, source: Array, weights: Array, biases: Array | None, neuron: Neuron | None, out: Array) -> None:
    stored, results, vectors = operand(source), as_storage(out), _packed(p.packing, weights)
    begins = np.zeros(p.sizes.pitch + LANES, np.float32)  # a vector from the last channel on
    if biases is not None:
        begins[: biases.size] = biases
    compute, more = COMPILED[p.path], (p.near,) if p.path == "depthwise" else ()
    form = compiled_form(neuron)
    direct = stored.dtype == np.float32 and p.repeats == 1
    in_place = results.dtype == np.float32 and p.adds == 1
    width, pitch = p.sizes.width, out.shape[3]

    def body(begin: int, end: int) -> None:
        wide, first_source, widened = stored, 0, -1
        whole = in_place and direct and neuron is None and len(p.shares) == 1
        at_once = end - begin if whole else 1
        for unit in range(begin, end, at_once):
            block, share = divmod(unit, len(p.shares))
            row, last = block * p.rows, min((block + at_once) * p.rows, p.all_rows)
            if not direct and widened != block:
                wide, first_source = source_rows(stored, p.span, p.sizes, p.repeats, row, last)
                widened = block
            first, stop, blocks = p.shares[share]
            sizes, sums, first_row, first_channel = p.sizes, results, 0, 0
            if not in_place:
                sizes, first_row, first_channel = p.sizes._replace(pitch=stop - first), row, first
                sums = np.empty((last - row) * width * sizes.pitch, np.float32)
            rows = row, last, p.rows, first_source, first_row, first_channel
            for lanes, table in blocks:
                tables = sizes, p.y, p.x, p.kernel, vectors, begins, table
                compute((0,) * lanes, rows, wide, sums, *tables, *more)
            into = row * width * pitch + first // p.adds, pitch, first // p.adds
            if not in_place:
                channels = (stop - first) // p.adds
                finish((last - row) * width, sums, (0, sizes.pitch), p.adds, form, results, into, channels)
            elif neuron is not None:
                finish((last - row) * width, sums, into[:2], 1, form, results, into, stop - first)

    for_rows(body, p.blocks * len(p.shares), source.nbytes + out.nbytes + p.products // PRODUCTS_A_BYTE)


def _packed(packing: Packing, weights: Array) -> Array:
    """Return the weights in the order in which they are read."""
    stored, packed = operand(weights), np.empty(packing.size, np.float32)
    for lanes, blocks in packing.blocks:

        def body(begin: int, end: int, lanes: int = lanes, blocks: Array = blocks) -> None:
            pack(blocks[begin:end], lanes, packing.steps, packing.counts, packing.flipped, stored, packed)

        for_rows(body, len(blocks), weights.nbytes + packed.nbytes)
    return packed


COMPILED: dict[str, Callable[..., None]] = {"dense": dense, "depthwise": depthwise, "dots": dots}

METHODS: dict[str, Implementation] = {
    "forward": forward,
    "gradient_data": gradient_data,
    "gradient_weights": gradient_weights,
}

IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (kernel, method): function for kernel in (Convolution, ConvolutionTranspose) for method, function in METHODS.items()
}
