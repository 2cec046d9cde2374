"""Published results of batch normalization: measured on Apple hardware with the statistics of a data source."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.kernels.batch_normalization import BatchNormalization
from mpsref.registry import Backend


def inference(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run the forward pass with the statistics that the entry gives."""
    norm = BatchNormalization(entry.parameters["epsilon"])
    given = (entry.inputs[name].array for name in ("mean", "variance", "gamma", "beta"))
    yield Comparison("y", norm.forward(entry.image("x"), *given, backend=backend), entry.expected["y"])


def matrix(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run a matrix, whose rows stand as images, with the statistics of its own where the kernel computed them."""
    norm, x = BatchNormalization(entry.parameters["epsilon"]), entry.image("x")
    mean, variance, gamma, beta = (
        entry.inputs[name].array if name in entry.inputs else None for name in ("mean", "variance", "gamma", "beta")
    )
    if entry.parameters.get("compute_statistics"):
        seen = norm.statistics(x, backend=backend)
        mean, variance = seen.mean, np.asarray(seen.variance)
        yield Comparison("mean", mean, entry.expected["mean"])
        yield Comparison("variance", variance, entry.expected["variance"])
    yield Comparison("y", norm.forward(x, mean, variance, gamma, beta, backend=backend), entry.expected["y"])


ADAPTERS: dict[str, Adapter] = {
    "MPSCNNBatchNormalization": inference,
    "MPSCNNBatchNormalizationNode": inference,
    "MPSMatrixBatchNormalization": matrix,
}
