"""The adapters of softmax and log-softmax, of images and of matrices; the functions are the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.golden_entries import Adapter, Comparison, Entry, Values
from mpsref.kernels import LogSoftMax, SoftMax
from mpsref.registry import Backend


def forward(kernel: SoftMax | LogSoftMax, on_the_cpu: Callable[[Array], Array]) -> Adapter:
    """Return the adapter of a forward kernel; a relation is to what a CPU computes, over pixels of one row."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        if entry.kind != "relation":
            yield Comparison("y", kernel.forward(entry.image("x"), backend=backend), entry.expected["y"])
            return
        for case, draw in entry.cases():
            x = draw((case["n"], 1, 1, case["c"])).astype(entry.dtype or "float32")
            expected = on_the_cpu(x.astype(np.float64))
            yield Comparison("y", kernel.forward(x, backend=backend), Values.all_given(expected))

    return adapter


def gradient(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare the gradient of softmax; the entry gives the source of the forward pass, whose result it reads."""
    y = SoftMax().forward(entry.image("x_of_forward"), backend=backend)
    yield Comparison("dx", SoftMax().gradient(entry.image("g"), y, backend=backend), entry.expected["dx"])


def _softmax(x: Array) -> Array:
    return np.asarray(np.exp(x) / np.exp(x).sum(3, keepdims=True))


ADAPTERS: dict[str, Adapter] = {
    "MPSCNNSoftMax": forward(SoftMax(), _softmax),
    "MPSCNNLogSoftMax": forward(LogSoftMax(), lambda x: np.log(_softmax(x))),
    "MPSMatrixSoftMax": forward(SoftMax(), _softmax),
    "MPSMatrixLogSoftMax": forward(LogSoftMax(), lambda x: np.log(_softmax(x))),
    "MPSMatrixSoftMaxGradient": gradient,
}
"""The adapter of each MPS class."""
