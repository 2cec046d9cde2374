"""Data sources that learn: weights with an optimizer, whose results a graph takes over after each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpsref.images import Array
from mpsref.mps import (
    ArrayConvolutionDataSource,
    BatchNormalizationDataSource,
    MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionWeightsAndBiasesState,
    MPSCommandBuffer,
    MPSNNOptimizer,
)

__all__ = ["LearnedConvolution", "LearnedNormalization", "convolution", "normalization"]

OptimizerOf = Callable[[], MPSNNOptimizer]


class LearnedConvolution(ArrayConvolutionDataSource):
    """Weights and biases that an optimizer of their own updates."""

    optimizer: MPSNNOptimizer
    moments: dict[str, list[Array]]
    """What the optimizer remembers: for each of its lists, a vector for the weights and one for the biases."""

    def update(
        self, gradient_state: Any, source_state: Any, command_buffer: MPSCommandBuffer | None = None
    ) -> MPSCNNConvolutionWeightsAndBiasesState:
        """Make a step from the weights in force; return the new ones, and keep them."""
        result: MPSCNNConvolutionWeightsAndBiasesState = self.optimizer.encode(
            convolution_gradient_state=gradient_state,
            convolution_source_state=source_state,
            **self.moments,
            command_buffer=command_buffer,
        )
        self.weights_array, self.biases_array = result.device_read(command_buffer)
        return result

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield everything that a checkpoint must hold, by name."""
        assert self.biases_array is not None
        yield "weights", self.weights_array
        yield "biases", self.biases_array
        for name, parts in self.moments.items():
            yield from ((f"{name}.{k}", part) for k, part in enumerate(parts))


class LearnedNormalization(BatchNormalizationDataSource):
    """Scale, shift and running statistics; an optimizer updates the first two."""

    moments: dict[str, list[Array]]

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield everything that a checkpoint must hold, by name."""
        for name in ("gamma", "beta", "mean", "variance"):
            vector = getattr(self, f"{name}_array")
            assert vector is not None
            yield name, vector
        for name, parts in self.moments.items():
            yield from ((f"{name}.{k}", part) for k, part in enumerate(parts))


def convolution(
    size: int, inputs: int, outputs: int, optimizer_of: OptimizerOf, generator: np.random.Generator
) -> LearnedConvolution:
    """Return weights drawn for ReLU (He et al., 2015), size x size pixels, and biases of 0."""
    deviation = np.sqrt(2 / (size * size * inputs))
    weights = generator.standard_normal((outputs, size, size, inputs)) * deviation
    descriptor = MPSCNNConvolutionDescriptor(size, size, inputs, outputs)
    source = LearnedConvolution(descriptor, weights.astype(np.float32), np.zeros(outputs, np.float32))
    source.optimizer = optimizer_of()
    lengths = weights.size, outputs
    source.moments = {name: [np.zeros(n, np.float32) for n in lengths] for name in source.optimizer.moments}
    return source


def normalization(channels: int, optimizer_of: OptimizerOf) -> LearnedNormalization:
    """Return a normalization that changes nothing yet."""
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    optimizer = optimizer_of()
    source = LearnedNormalization(channels, ones, zeros, zeros, ones, epsilon=1e-5, momentum=0.9, optimizer=optimizer)
    source.moments = {name: [np.zeros(channels, np.float32) for _ in range(2)] for name in optimizer.moments}
    source._moments = source.moments
    return source
