"""Choices about convolution, its transpose, fully connected layers, and training of their weights."""

from __future__ import annotations

import numpy as np

from mpsref import Convolution, ConvolutionTranspose, FullyConnected
from mpsref.arguments.arrays import Array
from mpsref_apple.probe.declare import Choice, ProbeProblem, operation, row

X, G = row(1, 2, 3, 4, 5), row(1, 2, 3)
W = np.array([1, 10, 100], np.float32).reshape(1, 1, 3, 1)
STRIDED = Convolution((1, 3), (1, 2))


def _grouped(x: Array, w: Array, interleaved: bool) -> Array:
    """Return a 1 x 1 transposed convolution of 8 channels with 2 groups."""
    inputs = x.reshape(8)
    of_group = [inputs[r::2] if interleaved else inputs[4 * r : 4 * r + 4] for r in (0, 1)]
    return np.array([w[o, 0, 0] @ of_group[o // 4] for o in range(8)])


WEIGHTS8 = np.arange(1, 33, dtype=np.float32).reshape(8, 1, 1, 4)
HALFWAY = 1 + 2.0**-11
"""The number halfway between two float16 numbers."""
FACTOR = float(np.float32(3.0009))
"""As a float16 number it is 3."""
X8 = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 1, 8)
DECIMAL = np.array([[1, 10, 100], [1000, 10000, 100000]], np.float32).reshape(1, 2, 3, 1)
DIGITS = np.arange(1, 7, dtype=np.float32).reshape(1, 2, 3, 1)
PIXELS = np.array([1, 20, 300, 7, 50, 110, 13, 400, 31, 2, 75, 160], np.float32).reshape(1, 2, 3, 2)
WEIGHTS = np.arange(1, 25, dtype=np.float32).reshape(2, 2, 3, 2)


def _of_layouts(**layouts: str) -> dict[str, Array]:
    """Return the products of an image of one window and weights whose memory has another order of the same axes."""
    sizes = dict(zip("ohwi", WEIGHTS.shape, strict=True))
    return {
        name: np.einsum(
            f"{order},hwi->o", WEIGHTS.reshape([sizes[axis] for axis in order]).astype(np.float64), PIXELS[0]
        )
        for name, order in layouts.items()
    }


DILATED = Convolution((1, 3), (1, 2), (1, 2))
X9 = row(1, 2, 4, 8, 16, 32, 64, 128, 256)


def _weight_gradient(secondary_offset: int, before: int) -> Array:
    """Return the weight gradient of windows that begin ``before`` pixels before the secondary offset."""
    padded = np.pad(X9.reshape(-1).astype(np.float64), 9)
    first = 9 + secondary_offset - before
    return np.array([sum(n * padded[first + 2 * i + 2 * p] for i, n in enumerate((1, 2, 3))) for p in range(3)])


CHOICES = (
    Choice(
        "convolution-secondary-offset",
        "A secondaryOffset that is set by hand is the left edge of the first window.",
        "It is the formula of later headers, and the only one that fits a kernel with dilation that is centred by its extent.",
        {"convolution": "a `secondaryOffset` that is set by hand"},
        {
            "edge": "tap p of window i reads pixel s i + secondaryOffset + d p, as later headers say",
            "half": "s i + secondaryOffset - d K / 2 + d p, as the header of 10.14 says",
            "centre": "s i + secondaryOffset - floor(E / 2) + d p, with the dilated extent E",
        },
        ProbeProblem(
            "MPSCNNConvolutionGradient",
            "gradient",
            {"g": G, "x": X9, "secondaryOffsetX": [3]},
            lambda machine: machine.apple.weight_gradient_by_hand(DILATED, G, X9, 3),
            {name: _weight_gradient(3, before) for name, before in (("edge", 0), ("half", 3), ("centre", 2))},
            {"kernel_size": [1, 3], "strides": [1, 2], "dilations": [1, 2]},
            "gradientForWeights",
        ),
    ),
    Choice(
        "convolution-left-edge",
        "The weight gradient reads the source from offset - floor(E / 2) on, the left edge of the first window.",
        "It is the derivative, and the formula of the header. One sentence of the header names the offset itself.",
        {"convolution": "the weight gradient; its left edge is"},
        {"edge": "from the left edge of the first window on", "centre": "from the centre of the first window on"},
        operation(
            "MPSCNNConvolutionGradient",
            STRIDED,
            "gradient_weights",
            {"g": G, "x": X},
            {"edge": [16, 22, 10], "centre": [22, 10, 13]},
            writes="gradientForWeights",
        ),
    ),
    Choice(
        "convolution-infinite-weight",
        "A tap outside the image is skipped.",
        "An infinite weight would give NaN otherwise.",
        {"convolution": "a tap outside the image is skipped"},
        {"skipped": "it is skipped", "multiplied": "the weight is multiplied by 0"},
        operation(
            "MPSCNNConvolution",
            Convolution((1, 3)),
            "forward",
            {"x": row(1, 2), "weights": np.array([np.inf, 1, 1], np.float32).reshape(1, 1, 3, 1)},
            {"skipped": [3, np.inf], "multiplied": [np.nan, np.inf]},
        ),
    ),
    Choice(
        "convolution-groups",
        "Any number of groups that divides the channels is legal.",
        "The formula is the same. MPS requires multiples of 4 channels in a group because of its textures.",
        {"convolution": "any number of groups that divides the channels"},
        tag="design",
    ),
    Choice(
        "convolution-multiplier",
        "A depthwise convolution may have a channel multiplier above 1.",
        "The headers define it, and say that it is not supported at present.",
        {"convolution": "a depthwise multiplier above 1"},
        tag="design",
    ),
    Choice(
        "convolution-clamp-gradient",
        "The data gradient of a convolution with edge mode Clamp raises an error.",
        "Apple's form has no gradient for clamped reads; the derivative has one.",
        {
            "convolution": 'the data gradient of a convolution with `"clamp"` raises',
            "convolution_training": "so the data gradient raises",
        },
        {"zero": "as with zeros outside", "derivative": "clamped reads send their gradient to the border pixel"},
        ProbeProblem(
            "MPSCNNConvolutionGradient",
            "gradient",
            {"g": row(1, 2, 3, 4, 5), "weights": W},
            lambda machine: machine.apple.clamped_data_gradient(Convolution((1, 3)), row(1, 2, 3, 4, 5), W),
            {"zero": [12, 123, 234, 345, 450], "derivative": [13, 123, 234, 345, 950]},
            {"kernel_size": [1, 3], "edge_mode": "clamp"},
        ),
        ours="",
    ),
    Choice(
        "convolution-neuron-gradient",
        "Gradients of a convolution with a neuron raise an error.",
        "The input of the neuron is not kept. Apple documents the combination as illegal in training.",
        {"convolution": "gradients of a convolution with a neuron raise"},
        tag="design",
    ),
    Choice(
        "convolution-bias-gradient",
        "The gradient for the biases is computed also for a convolution without biases.",
        "The property of the state is never nil.",
        {"convolution_training": "dL/db, one for each output channel"},
        {"computed": "the sum of the source gradient", "zero": "the buffer is not written"},
        operation(
            "MPSCNNConvolutionGradient",
            STRIDED,
            "gradient_weights",
            {"g": np.concatenate([G, 4 * G], 1), "x": np.concatenate([X, X], 1)},
            {"computed": [30], "zero": [0]},
            result=1,
            writes="gradientForBiases",
        ),
    ),
    Choice(
        "gradient-option-destination",
        "With GradientWithWeightsAndBias a destination that is given is not written.",
        "Apple does not describe it.",
        {"convolution_training": "a given destination is not written"},
        {"kept": "the destination keeps its pixels", "written": "the data gradient is written"},
        ProbeProblem(
            "MPSCNNConvolutionGradient",
            "gradient",
            {"g": G, "x": X, "weights": W, "destination": [7] * 5},
            lambda machine: machine.apple.weights_only_destination(STRIDED, G, X, W, 7.0),
            {"kept": [7, 7, 7, 7, 7], "written": [10, 102, 20, 203, 30]},
            {"gradientOption": 2},
        ),
    ),
    Choice(
        "convolution-accumulates",
        "A new state holds zeros, and every encode adds to its gradients.",
        "Headers describe a state that is used for each part of a batch in turn.",
        {"convolution_training": "a new state contains zeros, every encode adds"},
        {"adds": "a second encode adds", "overwrites": "a second encode overwrites"},
        ProbeProblem(
            "MPSCNNConvolutionGradient",
            "gradient",
            {"g": G, "x": X},
            lambda machine: machine.apple.twice_into_a_state(STRIDED, G, X),
            {"adds": [48, 66, 30], "overwrites": [32, 44, 20]},
            {"encodes": "of g and 2 g"},
            "gradientForWeights",
            {"adds": lambda values: values, "overwrites": lambda values: values * 2 / 3},
        ),
    ),
    Choice(
        "convolution-batch-sum",
        "Gradients for weights and biases are sums over the batch.",
        "Apple's sample of training puts the batch size into the weight of the loss.",
        {"convolution": "sums over the batch, not means"},
        {"sum": "the sum over the images", "mean": "the mean over the images"},
        operation(
            "MPSCNNConvolutionGradient",
            STRIDED,
            "gradient_weights",
            {"g": np.concatenate([G, row(1, 1, 1)]), "x": np.concatenate([X, row(5, 4, 3, 2, 1)])},
            {"sum": [22, 31, 16], "mean": [11, 15.5, 8]},
            writes="gradientForWeights",
        ),
        tag="obs",
    ),
    Choice(
        "convolution-correlation",
        "Taps are not flipped.",
        "Networks trained elsewhere run on Apple devices without flipped weights; a test of KataGo has numbers of MPSGraph.",
        {"convolution": "cross-correlation, no flipped taps"},
        {"correlation": "cross-correlation", "flipped": "convolution with flipped taps"},
        operation(
            "MPSCNNConvolution",
            Convolution((2, 3), offset=(1, 1)),
            "forward",
            {"x": DECIMAL, "weights": DIGITS},
            {"correlation": [654321], "flipped": [123456]},
            output_size=(1, 1),
            tolerance=1e-6,
        ),
        tag="obs",
    ),
    Choice(
        "convolution-layout",
        "Weights are in the order output channel, kernel row, kernel column, input channel.",
        "Turi Create and PyTorch convert their weights to it.",
        {"convolution": "weights `[outputChannel][kernelHeight][kernelWidth]"},
        {"OHWI": "rows before columns", "OWHI": "columns before rows"},
        operation(
            "MPSCNNConvolution",
            Convolution((2, 3), offset=(1, 1)),
            "forward",
            {"x": PIXELS, "weights": WEIGHTS},
            _of_layouts(OHWI="ohwi", OWHI="owhi"),
            output_size=(1, 1),
            tolerance=1e-6,
        ),
        tag="obs",
    ),
    Choice(
        "transpose-anchor",
        "The anchor of a transposed convolution is tap floor(K / 2), for even kernels too.",
        "Caffe2 and converters of ONNX models compute their kernel offsets with it.",
        {"convolution_transpose": "the anchor `K // 2`"},
        {"half": "floor(K / 2)", "before": "floor((K - 1) / 2)"},
        operation(
            "MPSCNNConvolutionTranspose",
            ConvolutionTranspose((1, 4), (1, 2)),
            "forward",
            {"x": row(1, 2, 3), "weights": np.array([1, 10, 100, 1000], np.float32).reshape(1, 1, 4, 1)},
            {"half": [100, 2010, 201, 3020, 302, 30], "before": [2010, 201, 3020, 302, 30, 3]},
            output_size=(1, 6),
        ),
        tag="obs",
    ),
    Choice(
        "transpose-groups",
        "Groups of a transposed convolution are contiguous blocks, as those of a convolution.",
        "The property exists, its meaning is not described.",
        {"convolution_transpose": "groups as for a convolution; no dilation"},
        {"blocks": "contiguous blocks of channels", "interleaved": "every G-th channel"},
        operation(
            "MPSCNNConvolutionTranspose",
            ConvolutionTranspose((1, 1), groups=2),
            "forward",
            {"x": X8, "weights": WEIGHTS8},
            {"blocks": _grouped(X8, WEIGHTS8, False), "interleaved": _grouped(X8, WEIGHTS8, True)},
        ),
    ),
    Choice(
        "transpose-paired",
        "Paired with the state of a convolution of offset o, the kernel offset is -o, one more for an even kernel.",
        "It makes the transpose the adjoint of the convolution. Apple says that it is set, not to what.",
        {"convolution_transpose": "paired with a convolution's state"},
        {"adjoint": "-o, one more for an even kernel", "zero": "0"},
        ProbeProblem(
            "MPSCNNConvolutionTranspose",
            "forward",
            {"x": row(1, 10, 100, 1000), "weights": [1, 2]},
            lambda machine: machine.apple.paired_transpose((1, 2), (1, 2), (0, -2), row(1, 10, 100, 1000), (1, 2), 8),
            {"adjoint": [10, 200, 100, 2000, 1000, 0, 0, 0], "zero": [2, 1, 20, 10, 200, 100, 2000, 1000]},
            {"kernel_size": [1, 2], "strides": [1, 2], "offset": [0, -2]},
        ),
    ),
    Choice(
        "fully-connected-order",
        "Weights of a fully connected layer have the height before the width.",
        "One text of Apple's has the width first; networks that run on Apple devices pass the height first.",
        {"fully_connected": "weights `(out, height, width, in)`"},
        {"height": "height before width", "width": "width before height"},
        operation(
            "MPSCNNFullyConnected",
            FullyConnected((2, 3)),
            "forward",
            {"x": PIXELS, "weights": WEIGHTS},
            _of_layouts(height="ohwi", width="owhi"),
            tolerance=1e-6,
        ),
    ),
    Choice(
        "fully-connected-groups",
        "A fully connected layer has one group and no dilation.",
        "Apple requires one group and does not mention dilation.",
        {"fully_connected": "one group, no dilation"},
        tag="design",
    ),
    Choice(
        "training-folded",
        "Gradients of a convolution with a batch normalization for inference raise an error.",
        "They would be those of the folded weights. Apple documents the combination as illegal in training.",
        {"convolution_training": "dw would be that of the folded weights"},
        tag="design",
    ),
    Choice(
        "host-reads",
        "The host waits for a synchronization and the end of its command buffer, on every backend.",
        "A program that runs on one backend then runs on all. In MPS an earlier read is a race.",
        {"convolution_training": "the host waits for `synchronize`"},
        tag="design",
    ),
    Choice(
        "weights-at-encode",
        "An encode uses the weights at the time of the call.",
        "Apple requires that the GPU has finished before a reload on the host.",
        {"convolution_training": "an encode uses the weights at the time of the call"},
        {
            "encode": "a reload has an effect on later encodes only",
            "last": "all encodes of a command buffer use the weights of the last reload",
            "first": "a reload has no effect before the command buffer has completed",
        },
        ProbeProblem(
            "MPSCNNConvolution",
            "forward",
            {"x": row(1), "weights": [2], "reloaded": [5]},
            lambda machine: machine.apple.reloaded_between(2, 5),
            {"encode": [2, 5], "last": [5, 5], "first": [2, 2]},
            {"kernel_size": [1, 1]},
            planted={
                "encode": lambda values: values,
                "last": lambda values: values * 0 + 5,
                "first": lambda values: values * 0 + 2,
            },
        ),
    ),
    Choice(
        "state-of-another-layer",
        "A gradient kernel raises for the state of a layer with other properties.",
        "Its result would be wrong without a message. In MPS the result is undefined.",
        {"convolution_training": "the gradient kernel raises for a state of a layer that differs"},
        tag="design",
    ),
    Choice(
        "archived-weights",
        "An archive contains the current weights if the data source does not have them.",
        "A kernel that is read back would compute something else.",
        {"convolution_training": "it contains the current weights if they came from a state"},
        tag="design",
    ),
    Choice(
        "reload-without-biases",
        "A state without biases does not change those of the kernel.",
        "The argument is nullable, its meaning is not described.",
        {"convolution_training": "A state without biases does not change those of the kernel"},
        {"kept": "the biases are kept", "cleared": "the biases are 0"},
        ProbeProblem(
            "MPSCNNConvolution",
            "forward",
            {"x": row(1, 2), "weights": [3], "biases": [5]},
            lambda machine: machine.apple.reloaded(row(1, 2), np.array([3], np.float32), np.array([5], np.float32)),
            {"kept": [8, 11], "cleared": [3, 6]},
        ),
    ),
    Choice(
        "weight-rounding",
        "Weights are folded and dequantized in float64, and rounded once to the type of the kernel.",
        "It is the most exact way.",
        {},
        {
            "once": "the folded weight is rounded",
            "twice": "the weight is rounded before it is folded, and after it",
            "float32": "the folded weight is not rounded to the type of the kernel",
        },
        ProbeProblem(
            "MPSCNNConvolution",
            "forward",
            {"x": row(1), "weights": [HALFWAY], "gamma": [FACTOR]},
            lambda machine: machine.apple.folded(HALFWAY, FACTOR),
            {"once": [float(np.float16(FACTOR * HALFWAY))], "twice": [3], "float32": [FACTOR * HALFWAY]},
            {"kernelWeightsDataType": "Float16", "mean": 0, "variance": 1, "beta": 0, "epsilon": 0},
            tolerance=1e-6,
        ),
    ),
    Choice(
        "transpose-gradient-geometry",
        "The gradient of a transposed convolution takes its geometry from the state alone.",
        "Apple describes no other use.",
        {},
        {"state": "from the state alone", "kernel": "a kernel offset that is set has an effect"},
        ProbeProblem(
            "MPSCNNConvolutionTransposeGradient",
            "gradient",
            {"g": row(1, 2, 3, 4, 5, 6), "weights": [1, 10]},
            lambda machine: machine.apple.transposed_data_gradient(
                ConvolutionTranspose((1, 2), (1, 2)),
                row(1, 2, 3, 4, 5, 6),
                np.array([1, 10], np.float32).reshape(1, 1, 2, 1),
                (1, 1, 3, 1),
                1,
            ),
            {"state": [12, 34, 56], "kernel": [1, 23, 45]},
            {"kernel_size": [1, 2], "strides": [1, 2], "kernelOffsetX": 1},
        ),
    ),
)
