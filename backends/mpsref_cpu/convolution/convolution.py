"""Convolution and transposed convolution: forward pass and data gradient.

:func:`mpsref_cpu.convolution.plan.plan` determines all that depends on the problem alone. Here weights are packed, and
chunks of rows and channels are distributed among threads. Workspace: the packed weights, and some rows for each thread
where images are not computed in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.convolution import Convolution, GradientData, WeightedForward
from mpsref.kernels.convolution_transpose import ConvolutionTranspose
from mpsref.kernels.neuron import Neuron
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.activation.functions import Identity, split
from mpsref_cpu.activation.neuron import activate
from mpsref_cpu.convolution.dense import dense
from mpsref_cpu.convolution.depthwise import depthwise
from mpsref_cpu.convolution.few_outputs import few_outputs
from mpsref_cpu.convolution.index_lists import ListChunks
from mpsref_cpu.convolution.microkernels import LANES
from mpsref_cpu.convolution.packing import pack
from mpsref_cpu.convolution.plan import PRODUCTS_A_BYTE, plan
from mpsref_cpu.convolution.storage import cut_rows, finish, source_rows
from mpsref_cpu.convolution.weight_gradient import gradient_weights
from mpsref_cpu.simd.vectors import CACHE_LINE
from mpsref_cpu.threads import as_storage, for_rows

KERNELS: dict[str, Any] = {"dense": dense, "depthwise": depthwise, "few_outputs": few_outputs}


def forward(problem: WeightedForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array) -> None:
    """Fill ``out`` with y."""
    _run(problem, x, weights, biases, problem.spec.neuron, out)


def gradient_data(problem: GradientData, g: Array, weights: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    _run(problem, g, weights, None, None, out)


def _run(
    problem: WeightedForward | GradientData,
    source: Array,
    weights: Array,
    biases: Array | None,
    neuron: Neuron | None,
    out: Array,
) -> None:
    p = plan(problem)
    packing, packed = p.packing, np.empty(p.packing.size + CACHE_LINE // 4, np.float32)
    packed = packed[-packed.__array_interface__["data"][0] % CACHE_LINE // 4 :]  # no vector crosses a line
    for lanes, blocks in packing.blocks:
        how = blocks, lanes, packing.steps, packing.counts, packing.flipped
        for_rows(pack, len(blocks), *how, weights, packed, nbytes=packed.nbytes)
    first_sums = np.zeros(p.sizes.pitch + LANES, np.float32)  # a vector from the last channel on
    if biases is not None:
        first_sums[: biases.size] = biases
    fused, separate = split(neuron)
    in_place = p.repeats == p.adds == 1
    work = p.products // PRODUCTS_A_BYTE
    if not in_place:
        work += source.nbytes + out.nbytes
    for first, last in [(0, p.all_rows)] if in_place else cut_rows(p.all_rows, p.rows):
        given, first_source, sums = source, 0, out
        if not in_place:
            given, first_source = source_rows(as_storage(source), p.span, p.sizes, p.repeats, first, last)
            sums = np.empty((last - first) * p.sizes.width * p.sizes.pitch, np.float32)
        chunks = ListChunks(first, last, p.rows, len(p.bounds) - 1, first_source, first)
        steps = [
            (
                KERNELS[p.path],
                ((0,) * lanes, chunks, given, sums, p.sizes, p.y, p.x, p.kernel, packed, first_sums, *blocks),
            )
            for lanes, *blocks in p.blocks
        ]
        if not in_place or not isinstance(fused, Identity):
            steps.append((finish, (chunks, p.sizes.width, p.bounds, p.adds, fused, sums, out)))
        (kernel, arguments), *then = steps
        for_rows(kernel, chunks.number, *arguments, nbytes=work * (last - first) // p.all_rows, then=then)
    if separate:
        activate(separate, out, out)


METHODS: dict[str, Implementation] = {
    "forward": forward,
    "gradient_data": gradient_data,
    "gradient_weights": gradient_weights,
}

IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (kernel, method): function for kernel in (Convolution, ConvolutionTranspose) for method, function in METHODS.items()
}
