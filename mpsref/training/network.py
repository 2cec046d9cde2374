"""The network: a residual block, two kinds of pooling side by side, dropout and a fully connected layer.

Its nodes make two graphs: one for training, whose steps end with updated weights, and one for inference, in which
batch normalization uses the running statistics and nothing is dropped.
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.mps import MPSCNNLossDescriptor, MPSCNNLossLabels, MPSNNOptimizer, graph
from mpsref.registry import Backend
from mpsref.training.digits import CLASSES
from mpsref.training.learner import Learner
from mpsref.training.sources import LearnedConvolution, LearnedNormalization, convolution, normalization

__all__ = ["Network"]

CHANNELS = 16
KEEP_PROBABILITY = 0.8


class Network:
    """Nodes, data sources and both graphs."""

    def __init__(self, optimizer: MPSNNOptimizer, batch: int, seed: int, backend: str | Backend | None) -> None:
        """Build the network with weights drawn from ``seed``; the loss is the mean over ``batch`` images."""
        generator = np.random.default_rng(seed)
        self.sources: dict[str, LearnedConvolution | LearnedNormalization] = {
            "conv1": convolution(3, 1, CHANNELS, generator),
            "bn1": normalization(CHANNELS),
            "conv2": convolution(3, CHANNELS, CHANNELS, generator),
            "bn2": normalization(CHANNELS),
            "fc": convolution(4, 2 * CHANNELS, CLASSES, generator),
        }
        self.learner = Learner(optimizer, list(self.sources.values()))
        x = graph.MPSNNImageNode("images")
        conv1 = graph.MPSCNNConvolutionNode(x, self.sources["conv1"], label="conv1")
        bn1 = graph.MPSCNNBatchNormalizationNode(conv1.result_image, self.sources["bn1"], label="bn1")
        relu1 = graph.MPSCNNNeuronReLUNode(bn1.result_image, a=0, label="relu1")
        conv2 = graph.MPSCNNConvolutionNode(relu1.result_image, self.sources["conv2"], label="conv2")
        bn2 = graph.MPSCNNBatchNormalizationNode(conv2.result_image, self.sources["bn2"], label="bn2")
        add = graph.MPSNNAdditionNode(bn2.result_image, relu1.result_image, label="add")
        relu2 = graph.MPSCNNNeuronReLUNode(add.result_image, a=0, label="relu2")
        largest = graph.MPSCNNPoolingMaxNode(relu2.result_image, filter_size=2, label="largest")
        average = graph.MPSCNNPoolingAverageNode(relu2.result_image, filter_size=2, label="average")
        both = graph.MPSNNConcatenationNode([largest.result_image, average.result_image], label="both")
        dropped = graph.MPSCNNDropoutNode(both.result_image, KEEP_PROBABILITY, seed, label="dropped")
        fc = graph.MPSCNNFullyConnectedNode(dropped.result_image, self.sources["fc"], label="fc")
        x.stop_gradient = True  # nobody needs the gradient of the pixels
        self.loss_weight = 1 / batch
        loss = MPSCNNLossDescriptor("softmaxcrossentropy", "sum", weight=self.loss_weight)
        self.loss = graph.MPSCNNLossNode(fc.result_image, loss, label="loss")
        self.made = graph.training_graph(self.loss)
        termini = [node.result_image for node in self.made.termini]
        self.training = graph.MPSNNGraph(termini, [False] * len(termini), backend=backend)
        logits = graph.MPSCNNFullyConnectedNode(both.result_image, self.sources["fc"], label="logits")
        self.inference = graph.MPSNNGraph(logits.result_image, backend=backend)

    def train(self, images: Array, labels: Array, sequence: int) -> float:
        """Make a step on a batch; return the sum of its losses. ``sequence`` selects the dropout mask."""
        wanted = MPSCNNLossLabels((1, 1, 1), labels)
        result = self.training.run([images], [wanted], dropout_sequence=sequence)
        return float(result.loss["loss"].sum(dtype=np.float64)) / self.loss_weight

    def scores(self, images: Array) -> Array:
        """Return a number for each digit, (N, 10), with the weights that the data sources have now."""
        self.inference.reload_from_data_sources()
        result = self.inference.run([images]).image
        assert result is not None
        return result[:, 0, 0]
