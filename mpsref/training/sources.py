"""Data sources that learn: a learner steps their parameters, and a graph takes these over after each run.

They are updated together (:mod:`mpsref.mps.graph.trainable`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.mps import ArrayConvolutionDataSource, BatchNormalizationDataSource, MPSCNNConvolutionDescriptor
from mpsref.training.learner import Learned

__all__ = ["LearnedConvolution", "LearnedNormalization", "convolution", "normalization"]


class LearnedConvolution(Learned, ArrayConvolutionDataSource):
    """Weights and biases that a learner updates."""

    names = "weights", "biases"

    def update_together(self, gradients: Sequence[Array]) -> Callable[[], dict[str, Array]]:
        """Give the gradients to the learner; return what has the result when the last ones have come."""
        self.learner.update(self, gradients)
        return self.learned


class LearnedNormalization(Learned, BatchNormalizationDataSource):
    """Scale, shift and running statistics; a learner updates the first two."""

    names = "gamma", "beta", "mean", "variance"

    def update_together(
        self, gradients: Sequence[Array], statistics: tuple[Array, Array]
    ) -> Callable[[], dict[str, Array]]:
        """Give the gradients to the learner; return what has the result, and moves the running statistics."""
        self.learner.update(self, gradients)

        def later() -> dict[str, Array]:
            self.mean_array, self.variance_array = self.moved(*statistics)
            return {**self.learned(), "mean": self.mean_array, "variance": self.variance_array}

        return later


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
