"""Published results of batch normalization: what the hardware gave with the statistics of a data source."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpsref.conformance.hardware.adapter import Adapter, Compared
from mpsref.conformance.hardware.entries import Entry
from mpsref.kernels.batch_normalization import BatchNormalization
from mpsref.registry import Backend

__all__ = ["ADAPTERS"]


def inference(entry: Entry, backend: Backend) -> Iterator[Compared]:
    """Run the forward pass with the statistics that the entry gives."""
    norm = BatchNormalization(entry.parameters["epsilon"])
    given = (entry.inputs[name].array for name in ("mean", "variance", "gamma", "beta"))
    yield Compared("y", norm.forward(entry.image("x"), *given, backend=backend), entry.expected["y"])


def matrix(entry: Entry, backend: Backend) -> Iterator[Compared]:
    """Run a matrix, whose rows stand as images, with the statistics of its own where the kernel computed them."""
    norm, x = BatchNormalization(entry.parameters["epsilon"]), entry.image("x")
    mean, variance, gamma, beta = (
        entry.inputs[name].array if name in entry.inputs else None for name in ("mean", "variance", "gamma", "beta")
    )
    if entry.parameters.get("compute_statistics"):
        seen = norm.statistics(x, backend=backend)
        mean, variance = seen.mean, np.asarray(seen.variance)
        yield Compared("mean", mean, entry.expected["mean"])
        yield Compared("variance", variance, entry.expected["variance"])
    yield Compared("y", norm.forward(x, mean, variance, gamma, beta, backend=backend), entry.expected["y"])


ADAPTERS: dict[str, Adapter] = {
    "MPSCNNBatchNormalization": inference,
    "MPSCNNBatchNormalizationNode": inference,
    "MPSMatrixBatchNormalization": matrix,
}
