"""A small residual network with fan-out, batch normalization, pooling and concatenation, and values known for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from mpsref import mps
from mpsref.arguments.arrays import Array

SHAPE = (2, 8, 8, 3)


def drawn(shape: Any, amplitude: float, phase: float) -> Array:
    """Return a sine over the elements in C order."""
    return (amplitude * np.sin(0.7 * np.arange(np.prod(shape)) + phase)).reshape(shape)


X = drawn(SHAPE, 1, 10)


def convolution_source(inputs: int, outputs: int, size: int, weights: Array, biases: Array) -> Any:
    return mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(size, size, inputs, outputs), weights, biases)


def labels() -> mps.MPSCNNLossLabels:
    """The classes 1 and 3."""
    data = np.zeros((2, 1, 1, 5), np.float32)
    data[0, 0, 0, 1] = data[1, 0, 0, 3] = 1
    return mps.MPSCNNLossLabels(
        (1, 1, 1), mps.MPSCNNLossDataDescriptor(data, "heightxwidthxfeaturechannels", (1, 1, 5))
    )


def network(style: str = "none") -> SimpleNamespace:
    """Return the nodes by name, and the data sources."""
    x = mps.graph.MPSNNImageNode("x")
    w1 = convolution_source(3, 8, 3, drawn((8, 3, 3, 3), 0.3, 0), drawn(8, 0.1, 1))
    w2 = convolution_source(8, 8, 3, drawn((8, 3, 3, 8), 0.3, 4), drawn(8, 0.1, 5))
    w3 = convolution_source(16, 5, 4, drawn((5, 4, 4, 16), 0.3, 8), drawn(5, 0.1, 9))
    d1 = mps.BatchNormalizationDataSource(8, gamma=1 + drawn(8, 0.1, 2), beta=drawn(8, 0.1, 3), epsilon=1e-5)
    d2 = mps.BatchNormalizationDataSource(8, gamma=1 + drawn(8, 0.1, 6), beta=drawn(8, 0.1, 7), epsilon=1e-5)
    trained: dict[str, Any] = {"training_style": style}
    conv1 = mps.graph.MPSCNNConvolutionNode(x, w1, label="conv1", **trained)
    bn1 = mps.graph.MPSCNNBatchNormalizationNode(conv1.result_image, d1, label="bn1", **trained)
    relu1 = mps.graph.MPSCNNNeuronReLUNode(bn1.result_image, a=0, label="relu1")
    conv2 = mps.graph.MPSCNNConvolutionNode(relu1.result_image, w2, label="conv2", **trained)
    bn2 = mps.graph.MPSCNNBatchNormalizationNode(conv2.result_image, d2, label="bn2", **trained)
    add = mps.graph.MPSNNAdditionNode(bn2.result_image, relu1.result_image, label="add")
    relu2 = mps.graph.MPSCNNNeuronReLUNode(add.result_image, a=0, label="relu2")
    pmax = mps.graph.MPSCNNPoolingMaxNode(relu2.result_image, filter_size=2, label="pmax")
    pavg = mps.graph.MPSCNNPoolingAverageNode(relu2.result_image, filter_size=2, label="pavg")
    cat = mps.graph.MPSNNConcatenationNode([pmax.result_image, pavg.result_image], label="cat")
    fc = mps.graph.MPSCNNFullyConnectedNode(cat.result_image, w3, label="fc", **trained)
    descriptor = mps.MPSCNNLossDescriptor("softmaxcrossentropy", "sum")
    loss = mps.graph.MPSCNNLossNode(fc.result_image, descriptor, label="loss")
    return SimpleNamespace(**{name: value for name, value in locals().items() if name not in ("style", "trained")})
