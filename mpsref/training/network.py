"""The network: a residual block, max and average pooling in parallel, dropout and a fully connected layer.

Its nodes make two graphs: one for training, each run of which updates the weights, and one for inference, in which
batch normalization uses the running statistics and there is no dropout. One optimizer updates the parameters of all
data sources (:class:`JointOptimizer`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from mpsref.arguments.arrays import Array, concatenated, placed_like
from mpsref.mps import (
    ArrayConvolutionDataSource,
    BatchNormalizationDataSource,
    MPSCNNConvolutionDescriptor,
    MPSCNNLossDescriptor,
    MPSCNNLossLabels,
    MPSNNOptimizer,
    graph,
)
from mpsref.mps.convolution_data_source import immutable
from mpsref.registry import Backend
from mpsref.training.digits import CLASSES

CHANNELS = 16
KEEP_PROBABILITY = 0.8


class Trainable:
    """Base class of the data sources of a joint optimizer: named arrays, the first two of which are trained."""

    names: ClassVar[tuple[str, ...]]
    joint: JointOptimizer

    @property
    def parameters(self) -> tuple[Array, Array]:
        """The two trained arrays."""
        first, second = self.trained().values()
        return first, second

    @parameters.setter
    def parameters(self, values: tuple[Array, Array]) -> None:
        for name, value in zip(self.names[:2], values, strict=True):
            setattr(self, f"{name}_array", value)

    def trained(self) -> dict[str, Array]:
        """Return the two trained arrays by name."""
        return {name: getattr(self, f"{name}_array") for name in self.names[:2]}

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield name and value of each array that a checkpoint holds."""
        for name in self.names:
            yield name, getattr(self, f"{name}_array")


class TrainableConvolution(Trainable, ArrayConvolutionDataSource):
    """Weights and biases."""

    names = "weights", "biases"

    def joint_update(self, gradients: Sequence[Array]) -> Callable[[], dict[str, Array]]:
        """Pass the gradients on; return a function for the new parameters, valid after the last gradients."""
        self.joint.update(self, gradients)
        return self.trained


class TrainableNormalization(Trainable, BatchNormalizationDataSource):
    """Scale and shift, which are trained, and the running statistics."""

    names = "gamma", "beta", "mean", "variance"

    def joint_update(
        self, gradients: Sequence[Array], statistics: tuple[Array, Array]
    ) -> Callable[[], dict[str, Array]]:
        """Pass the gradients on; return a function that updates the running statistics and returns all arrays."""
        self.joint.update(self, gradients)

        def result() -> dict[str, Array]:
            self.mean_array, self.variance_array = self.moved(*statistics)
            return {**self.trained(), "mean": self.mean_array, "variance": self.variance_array}

        return result


def convolution(size: int, inputs: int, outputs: int, generator: np.random.Generator) -> TrainableConvolution:
    """Return ``size`` x ``size`` weights drawn for ReLU (He et al., 2015) and biases of 0."""
    deviation = np.sqrt(2 / (size * size * inputs))
    weights = generator.standard_normal((outputs, size, size, inputs)) * deviation
    descriptor = MPSCNNConvolutionDescriptor(size, size, inputs, outputs)
    return TrainableConvolution(descriptor, weights.astype(np.float32), np.zeros(outputs, np.float32))


def normalization(channels: int) -> TrainableNormalization:
    """Return a normalization with the parameters and statistics of the identity."""
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    return TrainableNormalization(channels, ones, zeros, zeros, ones, epsilon=1e-5, momentum=0.9)


class JointOptimizer:
    """One optimizer for the parameters of several data sources, which are stored in one vector.

    A graph passes the gradients of each data source after the last step of a run. After the last gradients, one step
    updates all parameters, and the graph reads them at the end of the run. The update is elementwise, so it equals the
    updates of one optimizer per data source. A run that fails leaves the parameters unchanged.

    Parameters
    ----------
    optimizer : MPSNNOptimizer
        Computes the step.
    sources : sequence of Trainable
        The data sources, whose attribute ``joint`` is set to this object.
    """

    def __init__(self, optimizer: MPSNNOptimizer, sources: Sequence[Trainable]) -> None:
        self.optimizer, self.sources = optimizer, sources
        self.join()
        self.moments = {name.removesuffix("s"): np.zeros_like(self.values) for name in optimizer.moments}
        """The moments of the optimizer, by the name of the operand of ``encode``."""
        self._numbers = {id(source): k for k, source in enumerate(sources)}
        self._gradients: dict[int, Sequence[Array]] = {}
        for source in sources:
            source.joint = self

    def join(self) -> None:
        """Read the parameters from the data sources."""
        pairs = [source.parameters for source in self.sources]
        self._shapes = [array.shape for pair in pairs for array in pair]
        self._set(_joined(pairs))

    def _set(self, values: Array) -> None:
        """Set the vector of all parameters and the read-only views of the data sources."""
        self.values, closed = values, immutable(values)
        views, end = [], 0
        for shape in self._shapes:
            start, end = end, end + math.prod(shape)
            views.append(closed[start:end].reshape(shape))
        for k, source in enumerate(self.sources):
            source.parameters = views[2 * k], views[2 * k + 1]

    def update(self, source: Trainable, gradients: Sequence[Array]) -> None:
        """Record the gradients of a data source; step when those of all data sources are recorded."""
        self._gradients[self._numbers[id(source)]] = gradients
        if len(self._gradients) == len(self.sources):
            gradient = _joined([self._gradients[k] for k in range(len(self.sources))])
            self._gradients.clear()
            # Once, before the first step: from then on all vectors are where the gradients are.
            self.moments = {name: placed_like(moment, gradient) for name, moment in self.moments.items()}
            operands: dict[str, Any] = {
                "input_gradient_vector": gradient,
                "input_values_vector": placed_like(self.values, gradient),
                **self.moments,
            }
            self._set(self.optimizer.encode(**operands))


def _joined(pairs: Sequence[Sequence[Array]]) -> Array:
    return concatenated([array.ravel() for pair in pairs for array in pair])


class Network:
    """Nodes, data sources and both graphs.

    Parameters
    ----------
    optimizer : MPSNNOptimizer
        Updates the parameters of all layers.
    batch : int
        The loss is the mean over this number of images.
    seed : int
        Seed of the initial weights and of the dropout masks.
    backend : str, Backend or None
        Runs both graphs.
    """

    def __init__(self, optimizer: MPSNNOptimizer, batch: int, seed: int, backend: str | Backend | None) -> None:
        generator = np.random.default_rng(seed)
        weights = {
            "conv1": convolution(3, 1, CHANNELS, generator),
            "conv2": convolution(3, CHANNELS, CHANNELS, generator),
            "fc": convolution(4, 2 * CHANNELS, CLASSES, generator),
        }
        scales = {"bn1": normalization(CHANNELS), "bn2": normalization(CHANNELS)}
        self.sources: dict[str, TrainableConvolution | TrainableNormalization] = {
            name: weights[name] if name in weights else scales[name] for name in ("conv1", "bn1", "conv2", "bn2", "fc")
        }
        self.optimizer = JointOptimizer(optimizer, list(self.sources.values()))
        x = graph.MPSNNImageNode("images")
        conv1 = graph.MPSCNNConvolutionNode(x, weights["conv1"], label="conv1")
        bn1 = graph.MPSCNNBatchNormalizationNode(conv1.result_image, scales["bn1"], label="bn1")
        relu1 = graph.MPSCNNNeuronReLUNode(bn1.result_image, a=0, label="relu1")
        conv2 = graph.MPSCNNConvolutionNode(relu1.result_image, weights["conv2"], label="conv2")
        bn2 = graph.MPSCNNBatchNormalizationNode(conv2.result_image, scales["bn2"], label="bn2")
        add = graph.MPSNNAdditionNode(bn2.result_image, relu1.result_image, label="add")
        relu2 = graph.MPSCNNNeuronReLUNode(add.result_image, a=0, label="relu2")
        largest = graph.MPSCNNPoolingMaxNode(relu2.result_image, filter_size=2, label="largest")
        average = graph.MPSCNNPoolingAverageNode(relu2.result_image, filter_size=2, label="average")
        both = graph.MPSNNConcatenationNode([largest.result_image, average.result_image], label="both")
        dropped = graph.MPSCNNDropoutNode(both.result_image, KEEP_PROBABILITY, seed, label="dropped")
        fc = graph.MPSCNNFullyConnectedNode(dropped.result_image, weights["fc"], label="fc")
        x.stop_gradient = True  # the gradient of the pixels is not needed
        self.loss_weight = 1 / batch
        loss = MPSCNNLossDescriptor("softmaxcrossentropy", "sum", weight=self.loss_weight)
        self.loss = graph.MPSCNNLossNode(fc.result_image, loss, label="loss")
        self.made = graph.training_graph(self.loss)
        termini = [node.result_image for node in self.made.termini]
        self.training = graph.MPSNNGraph(termini, [False] * len(termini), backend=backend)
        logits = graph.MPSCNNFullyConnectedNode(both.result_image, weights["fc"], label="logits")
        self.inference = graph.MPSNNGraph(logits.result_image, backend=backend)

    def train(self, images: Array, labels: Array, sequence: int) -> float:
        """Make a training step on a batch.

        Parameters
        ----------
        images : ndarray of shape (N, 8, 8, 1)
        labels : ndarray of shape (N, 1, 1, 10)
            One-hot labels.
        sequence : int
            Selects the dropout mask.

        Returns
        -------
        float
            The sum of the losses of the batch.
        """
        wanted = MPSCNNLossLabels((1, 1, 1), labels)
        result = self.training.run([images], [wanted], dropout_sequence=sequence)
        return float(result.loss["loss"].sum(dtype=np.float64)) / self.loss_weight

    def scores(self, images: Array) -> Array:
        """Return the logits of images with the current weights of the data sources.

        Parameters
        ----------
        images : ndarray of shape (N, 8, 8, 1)

        Returns
        -------
        ndarray of shape (N, 10)
        """
        self.inference.reload_from_data_sources()
        result = self.inference.run([images]).image
        assert result is not None
        return result[:, 0, 0]
