"""Data sources that learn: a learner steps their parameters, and a graph takes these over after each run."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.mps import (
    ArrayConvolutionDataSource,
    BatchNormalizationDataSource,
    MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionWeightsAndBiasesState,
    MPSCNNNormalizationGammaAndBetaState,
    MPSCommandBuffer,
)
from mpsref.training.learner import Learned

__all__ = ["LearnedConvolution", "LearnedNormalization", "convolution", "normalization"]


class LearnedConvolution(Learned, ArrayConvolutionDataSource):
    """Weights and biases that a learner updates."""

    names = "weights", "biases"
    state_class = MPSCNNConvolutionWeightsAndBiasesState

    def update(self, gradient_state: Any, source_state: Any, command_buffer: MPSCommandBuffer | None = None) -> Any:
        """Let the learner make a step; return the state that has the result when the last gradients have come."""
        return self.learner.update(self, gradient_state.device_read(command_buffer), command_buffer)


class LearnedNormalization(Learned, BatchNormalizationDataSource):
    """Scale, shift and running statistics; a learner updates the first two."""

    names = "gamma", "beta", "mean", "variance"
    state_class = MPSCNNNormalizationGammaAndBetaState

    def update_gamma_and_beta(self, state: Any, command_buffer: MPSCommandBuffer | None = None) -> Any:
        """Let the learner make a step; return the state that has the result when the last gradients have come."""
        found = state.device_read(command_buffer)
        return self.learner.update(self, (found.gradient_for_gamma, found.gradient_for_beta), command_buffer)


def convolution(size: int, inputs: int, outputs: int, generator: np.random.Generator) -> LearnedConvolution:
    """Return weights drawn for ReLU (He et al., 2015), size x size pixels, and biases of 0."""
    deviation = np.sqrt(2 / (size * size * inputs))
    weights = generator.standard_normal((outputs, size, size, inputs)) * deviation
    descriptor = MPSCNNConvolutionDescriptor(size, size, inputs, outputs)
    return LearnedConvolution(descriptor, weights.astype(np.float32), np.zeros(outputs, np.float32))


def normalization(channels: int) -> LearnedNormalization:
    """Return a normalization that changes nothing yet."""
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    return LearnedNormalization(channels, ones, zeros, zeros, ones, epsilon=1e-5, momentum=0.9)
