"""One batch normalization kernel with its state, and the four calls of a training step: the worked example."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.mps import (
    BatchNormalizationDataSource,
    MPSCNNBatchNormalization,
    MPSCNNBatchNormalizationGradient,
    MPSCNNBatchNormalizationState,
    MPSCNNBatchNormalizationStatistics,
    MPSCNNBatchNormalizationStatisticsGradient,
    MPSNNNeuronDescriptor,
)

F32 = np.float32
X = np.array([1, 2, 4, 5], F32).reshape(2, 1, 2, 1)
G = np.array([1, 2, 3, 4], F32).reshape(2, 1, 2, 1)
RELU = MPSNNNeuronDescriptor("relu")


def source(**changes: Any) -> BatchNormalizationDataSource:
    return BatchNormalizationDataSource(1, **{"gamma": [2.0], "beta": [0.5], "epsilon": 1.5} | changes)


def kernel(neuron: Any = None, **changes: Any) -> MPSCNNBatchNormalization:
    return MPSCNNBatchNormalization(source(**changes), neuron)


def flat(array: Any) -> list[float]:
    return [float(value) for value in np.asarray(array).ravel()]


def snapshot(state: MPSCNNBatchNormalizationState) -> Any:
    """Everything in a state."""
    vectors = [None if vector is None else vector.tobytes() for vector in state.device_read()]
    return vectors, state.count, state._sums, state._statistics_used, state._sums_used, state._version


class Step:
    """One kernel, its state, and the four calls."""

    def __init__(self, neuron: Any = None, **changes: Any) -> None:
        self.norm = kernel(neuron, **changes)
        self.state = self.norm.result_state_for_source_image(X)
        self.statistics = MPSCNNBatchNormalizationStatistics()
        self.statistics_gradient = MPSCNNBatchNormalizationStatisticsGradient(neuron)
        self.gradient = MPSCNNBatchNormalizationGradient(neuron)

    def forward(self, x: Array = X) -> Array:
        self.statistics.encode_batch(x, self.state)
        return self.norm.encode(x, batch_normalization_state=self.state)

    def backward(self, g: Array = G, x: Array = X) -> Array:
        self.statistics_gradient.encode_batch(g, x, self.state)
        return self.gradient.encode(g, x, self.state)

    def read(self) -> MPSCNNBatchNormalizationState:
        """The state, synchronized."""
        self.state.synchronize()
        return self.state
