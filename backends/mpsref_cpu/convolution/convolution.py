"""Convolution and transposed convolution; the weight gradient is in :mod:`mpsref_cpu.convolution.weight_gradient`.

:func:`mpsref_cpu.convolution.plan.plan` settles what depends on the problem alone. Here weights are packed, and blocks
of rows and channels are shared out among threads. Workspace: the packed weights, and for each thread a block of rows
where images are not computed in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.convolution import Convolution, Forward, GradientData
from mpsref.kernels.convolution_transpose import ConvolutionTranspose
from mpsref.kernels.neuron import Neuron
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.activation.functions import compiled_form
from mpsref_cpu.convolution.dense import dense
from mpsref_cpu.convolution.depthwise import depthwise
from mpsref_cpu.convolution.few_outputs import dots
from mpsref_cpu.convolution.index_lists import Units
from mpsref_cpu.convolution.microkernels import LANES
from mpsref_cpu.convolution.packing import pack
from mpsref_cpu.convolution.plan import PRODUCTS_A_BYTE, Packing, Plan, plan
from mpsref_cpu.convolution.storage import finish, slabs, source_rows
from mpsref_cpu.convolution.weight_gradient import gradient_weights
from mpsref_cpu.simd.half import as_storage
from mpsref_cpu.threads import Step, for_rows


def forward(problem: Forward, x: Array, weights: Array, biases: Array | None = None, *, out: Array) -> None:
    """Fill ``out`` with y."""
    _run(plan(problem), x, weights, biases, problem.spec.neuron, out)


def gradient_data(problem: GradientData, g: Array, weights: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    _run(plan(problem), g, weights, None, None, out)


def _run(p: Plan, source: Array, weights: Array, biases: Array | None, neuron: Neuron | None, out: Array) -> None:
    stored, results, vectors = as_storage(source), as_storage(out), _packed(p.packing, weights)
    begins = np.zeros(p.sizes.pitch + LANES, np.float32)  # a vector from the last channel on
    if biases is not None:
        begins[: biases.size] = biases
    in_place = stored.dtype == results.dtype == np.float32 and p.repeats == p.adds == 1
    nbytes = source.nbytes + out.nbytes + p.products // PRODUCTS_A_BYTE
    for first, last in [(0, p.all_rows)] if in_place else slabs(p.all_rows, p.rows):
        given, first_source, sums = stored, 0, results
        if not in_place:
            given, first_source = source_rows(stored, p.span, p.sizes, p.repeats, first, last)
            sums = np.empty((last - first) * p.sizes.width * p.sizes.pitch, np.float32)
        units = Units(first, last, p.rows, len(p.bounds) - 1, first_source, first)
        steps: list[Step] = [
            (
                COMPILED[p.path],
                ((0,) * lanes, units, given, sums, p.sizes, p.y, p.x, p.kernel, vectors, begins, *blocks),
            )
            for lanes, *blocks in p.blocks
        ]
        if neuron is not None or not in_place:
            steps.append((finish, (units, p.sizes.width, p.bounds, p.adds, compiled_form(neuron), sums, results)))
        (kernel, values), *then = steps
        for_rows(kernel, units.pieces, *values, nbytes=nbytes * (last - first) // p.all_rows, then=then)


def _packed(packing: Packing, weights: Array) -> Array:
    """Return the weights in the order in which they are read."""
    stored, packed = as_storage(weights), np.empty(packing.size, np.float32)
    for lanes, blocks in packing.blocks:
        how = blocks, lanes, packing.steps, packing.counts, packing.flipped
        for_rows(pack, len(blocks), *how, stored, packed, nbytes=weights.nbytes + packed.nbytes)
    return packed


COMPILED: dict[str, Any] = {"dense": dense, "depthwise": depthwise, "dots": dots}

METHODS: dict[str, Implementation] = {
    "forward": forward,
    "gradient_data": gradient_data,
    "gradient_weights": gradient_weights,
}

IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (kernel, method): function for kernel in (Convolution, ConvolutionTranspose) for method, function in METHODS.items()
}
