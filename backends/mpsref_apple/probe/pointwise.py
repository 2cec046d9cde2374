"""Choices about neurons, softmax, upsampling, arithmetic, data movement and reductions."""

from __future__ import annotations

import numpy as np

from mpsref import Arithmetic, Neuron, UpsamplingBilinear
from mpsref_apple.probe.declare import Choice, ProbeProblem, operation, pixel, row

LARGEST = float(np.finfo(np.float32).max)
ARGUMENT = "MPSNNReduceFeatureChannelsArgumentMax"
NAN, INF = np.nan, np.inf
WITH_NAN = np.array([[1, 3, NAN, 2], [NAN] * 4, [NAN, -INF, NAN, -INF], [4, 1, 4, 2]], np.float32).reshape(1, 1, 4, 4)
TWELVE = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 3, 2)
COMPARED = row(1, 1.8, 2, 2.8, 3, 3.5)
CLAMPED = Arithmetic("add", maximum_value=4.0)

CHOICES = (
    Choice(
        "neuron-absolute",
        "The slope of the absolute value at 0 is 0.",
        "Apple documents sign(x), which is 0 at 0 in NumPy and in Metal, and was measured to be so on an M4 Pro (charon).",
        {"neuron": "the derivative of the absolute value at 0 is 0"},
        {"zero": "0", "one": "1", "minus": "-1"},
        operation(
            "MPSCNNNeuronGradient",
            Neuron("absolute"),
            "gradient",
            {"g": row(1, 1, 1), "x": row(-2, 0, 2)},
            {"zero": [-1, 0, 1], "one": [-1, 1, 1], "minus": [-1, -1, 1]},
        ),
        tag="obs",
    ),
    Choice(
        "neuron-relun",
        "ReLUN has slope 0 beyond its clamp.",
        "The derivative of a constant is 0. Apple documents the slope b; MPSMatrixNeuronGradient gives 0.",
        {"neuron": "ReLUN has slope 0 at and beyond its clamp"},
        {"zero": "0", "b": "b"},
        operation(
            "MPSCNNNeuronGradient",
            Neuron("relun", 0.5, 3.0),
            "gradient",
            {"g": row(1, 1, 1), "x": row(-2, 2, 5)},
            {"zero": [0.5, 1, 0], "b": [0.5, 1, 3]},
        ),
        tag="obs",
    ),
    Choice(
        "neuron-gelu",
        "The gradient of GeLU is its derivative.",
        "Apple's printed formula lacks a bracket. Taken literally, its second term is twice that of the derivative.",
        {"neuron": "the derivative of GeLU"},
        {"derivative": "the derivative", "printed": "the second term is doubled"},
        operation(
            "MPSCNNNeuronGradient",
            Neuron("gelu"),
            "gradient",
            {"g": row(1, 1, 1), "x": row(-1, 0, 1)},
            {"derivative": [-0.0833155, 0.5, 1.0833155], "printed": [-0.3252862, 0.5, 1.3252862]},
            tolerance=1e-4,
        ),
    ),
    Choice(
        "neuron-hardsigmoid",
        "HardSigmoid has its slope where a x + b is in [0, 1].",
        "It is the derivative, and the condition of later headers. The header of macOS 10.15 has the condition on x.",
        {"neuron": "HardSigmoid's condition"},
        {"a x + b": "where a x + b is in [0, 1]", "x": "where x is in [0, 1]"},
        operation(
            "MPSCNNNeuronGradient",
            Neuron("hardsigmoid", 0.25, 0.5),
            "gradient",
            {"g": row(1, 1, 1, 1), "x": row(-1, 0.5, 1.5, 3)},
            {"a x + b": [0.25, 0.25, 0.25, 0], "x": [0, 0.25, 0, 0]},
        ),
    ),
    Choice(
        "neuron-nan",
        "The result of NaN is NaN.",
        "A NaN is not lost. In Metal with fast math the result is not defined.",
        {"neuron": "the result of NaN is NaN"},
        {"nan": "NaN", "zero": "0"},
        operation(
            "MPSCNNNeuron",
            Neuron("relu"),
            "forward",
            {"x": row(1, np.nan)},
            {"nan": [1, np.nan], "zero": [1, 0]},
        ),
    ),
    Choice(
        "neuron-defaults",
        "Power, Exponential and Logarithm have the defaults a = 1, b = 0, and c = 1 or -1.",
        "The identity, and the natural base. Apple documents no defaults for them.",
        {"neuron": "Defaults are those of Apple"},
        {"identity": "a = 1, b = 0, c = 1", "zeros": "zeros"},
        ProbeProblem(
            "MPSNNNeuronDescriptor",
            "property",
            {},
            lambda machine: machine.apple.neuron_defaults("Power"),
            {"identity": [1, 0, 1], "zeros": [0, 0, 0]},
            writes="a, b, c",
        ),
    ),
    Choice(
        "softmax-validate",
        "The gradient classes have an argument that checks the forward result.",
        "Passing the source is a silent mistake.",
        {"softmax": "`validate=True` of the gradient classes"},
        tag="design",
    ),
    Choice(
        "upsampling-clamp",
        "Bilinear upsampling with edge mode Clamp repeats the last pixel.",
        "Core ML, which runs on MPS, limits positions to the last pixel: min(L - 1, i (L - L/O) / (O - 1)), quoted in TNN.",
        {"upsampling": 'edge mode `"clamp"` repeats the last pixel'},
        {"repeats": "the last pixel", "zero": "0, as with Zero"},
        operation(
            "MPSCNNUpsamplingBilinear",
            UpsamplingBilinear((1, 2), edge_mode="clamp"),
            "forward",
            {"x": row(1, 3, 9)},
            {"repeats": [1, 2, 3, 6, 9, 9], "zero": [1, 2, 3, 6, 9, 4.5]},
        ),
        tag="obs",
    ),
    Choice(
        "upsampling-positions",
        "Without aligned corners output i reads position i / s; beyond the last pixel values are 0.",
        "Printed results of macOS 10.14, and Core ML's formula, quoted in TNN. macOS 10.13 had half-pixel centres.",
        {"upsampling": ("without it, the position of output i is `i / s`", "macOS 10.13 had half-pixel centres")},
        {"i/s": "i / s", "half": "half-pixel centres"},
        operation(
            "MPSCNNUpsamplingBilinear",
            UpsamplingBilinear((1, 2)),
            "forward",
            {"x": row(1, 3, 9)},
            {"i/s": [1, 2, 3, 6, 9, 4.5], "half": [0.75, 1.5, 2.5, 4.5, 7.5, 6.75]},
        ),
        tag="obs",
    ),
    Choice(
        "upsampling-weight-zero",
        "A neighbour of weight 0 is not read.",
        "An output at the position of a pixel is then a copy of it.",
        {"upsampling": "A neighbour with weight 0 is not read"},
        {"copied": "the pixel is copied", "multiplied": "an infinite neighbour gives NaN"},
        operation(
            "MPSCNNUpsamplingBilinear",
            UpsamplingBilinear((1, 2), edge_mode="clamp"),
            "forward",
            {"x": row(1, np.inf, 2)},
            {"copied": [1, *[np.inf] * 3, 2, 2], "multiplied": [np.nan, *[np.inf] * 3, 2, 2]},
        ),
    ),
    Choice(
        "upsampling-scale",
        "A scale is an integer.",
        "Every public initializer takes one, although the property is a double.",
        {"upsampling": "a scale is an integer"},
        tag="design",
    ),
    Choice(
        "upsampling-aligned-gradient",
        "The gradient class has align_corners, so that it is the adjoint of its forward class.",
        "Apple's class has no such property.",
        {"upsampling": "the gradient class has `align_corners`"},
        {"adjoint": "the adjoint of the aligned result", "free": "that of a result without aligned corners"},
        ProbeProblem(
            "MPSCNNUpsamplingBilinearGradient",
            "gradient",
            {"g": row(1, 2, 3, 4, 5, 6)},
            lambda machine: machine.apple.aligned_upsampling_gradient((1, 2), row(1, 2, 3, 4, 5, 6), (1, 1, 3, 1)),
            {"adjoint": [2.8, 8.4, 9.8], "free": [2, 6, 10]},
            {"alignCorners": True},
        ),
    ),
    Choice(
        "resize-positions",
        "Resizing reads position i L / O, and the last pixel beyond it.",
        "Core ML's formula of upsampling, min(L - 1, i (L - L/O) / (O - 1)), quoted in TNN, is i L / O.",
        {"upsampling": "resize reads `i L / O`"},
        {"i L / O": "i L / O", "half": "half-pixel centres"},
        ProbeProblem(
            "MPSNNResizeBilinear",
            "forward",
            {"x": row(3, 6, 12)},
            lambda machine: machine.apple.resized(row(3, 6, 12), 5),
            {"i L / O": [3, 4.8, 7.2, 10.8, 12], "half": [3, 4.2, 6, 9.6, 12]},
            {"resizeWidth": 5},
        ),
        tag="obs",
    ),
    Choice(
        "crop-boxes",
        "Positions in a box are those of TensorFlow.",
        "The header mentions an extrapolation value and shows none.",
        {"upsampling": "positions in a box and zeros outside the image"},
        {
            "tensorflow": "0 is the first pixel and 1 the last, and outside is 0",
            "clamped": "0 is the first pixel and 1 the last, and outside is the nearest pixel",
            "centres": "0 and 1 are the edges of the image, and the centres of pixels are sampled",
        },
        ProbeProblem(
            "MPSNNCropAndResizeBilinear",
            "forward",
            {"x": row(10, 20, 40)},
            lambda machine: machine.apple.cropped(row(10, 20, 40), 0.25, 1.5, 4),
            {"tensorflow": [15, 30, 0, 0], "clamped": [15, 30, 40, 40], "centres": [18.125, 38.75, 0, 0]},
            {"resizeWidth": 4, "origin": 0.25, "width": 1.5},
        ),
    ),
    Choice(
        "arithmetic-mask",
        "The gradient applies the mask of the clamp.",
        "It is the derivative then. The header contradicts itself.",
        {"arithmetic": "the gradient applies the mask"},
        {"mask": "it is 0 where the result was clamped", "none": "the clamp has no effect on it"},
        operation(
            "MPSCNNAddGradient",
            CLAMPED,
            "gradient",
            {"g": row(1, 2, 3), "x": row(1, 2, 3), "y": row(1, 2, 3)},
            {"mask": [1, 0, 0], "none": [1, 2, 3]},
        ),
    ),
    Choice(
        "arithmetic-mask-nan",
        "Where the mask is 0 the gradient is 0, also for a source gradient of NaN.",
        "The mask selects, so that a clamped element has no influence.",
        {"arithmetic": "the mask selects"},
        {"selects": "0", "multiplies": "NaN", "none": "there is no mask"},
        operation(
            "MPSCNNAddGradient",
            CLAMPED,
            "gradient",
            {"g": row(1, np.nan, 5), "x": row(1, 3, 4), "y": row(1, 3, 4)},
            {"selects": [1, 0, 0], "multiplies": [1, np.nan, 0], "none": [1, np.nan, 5]},
        ),
    ),
    Choice(
        "arithmetic-bounds",
        "The default bounds are infinite.",
        "1/0 is infinity in a test that ran on Apple devices; the header says FLT_MAX.",
        {"arithmetic": "the default bounds are infinite"},
        {"infinite": "1/0 is infinity", "largest": "1/0 is the largest number"},
        operation(
            "MPSCNNDivide",
            Arithmetic("divide"),
            "forward",
            {"x": row(1, -1), "y": row(0, 0)},
            {"infinite": [np.inf, -np.inf], "largest": [LARGEST, -LARGEST]},
        ),
        tag="obs",
    ),
    Choice(
        "arithmetic-lengths",
        "The length of a result follows from strides and offsets; a length of 1 is not broadcast.",
        "Apple's kernels write the destination that the caller gives.",
        {
            "arithmetic": (
                "lengths of the result; a batch is not broadcast",
                "The length of the result *",
            )
        },
        tag="design",
    ),
    Choice(
        "arithmetic-channel-offset",
        "Channel offsets need not be multiples of 4.",
        "The formula is the same. Apple documents other offsets as illegal.",
        {
            "arithmetic": "channel offsets need not be multiples of 4",
            "data_movement": "a channel offset need not be a multiple of 4",
        },
        tag="design",
    ),
    Choice(
        "compare-threshold",
        "The orderings of a comparison ignore the threshold.",
        "Only equality is documented with one.",
        {"arithmetic": "the orderings of a comparison ignore the threshold"},
        {"ignored": "it has no effect", "margin": "x < y - threshold"},
        ProbeProblem(
            "MPSNNCompare",
            "forward",
            {"x": COMPARED, "y": row(*[2.5] * 6)},
            lambda machine: machine.apple.compared(COMPARED, row(*[2.5] * 6), "Less", 0.75),
            {"ignored": [1, 1, 1, 0, 0, 0], "margin": [1, 0, 0, 0, 0, 0]},
            {"comparisonType": "Less", "threshold": 0.75},
        ),
    ),
    Choice(
        "concatenation-padding",
        "Padding channels of a concatenation are 0.",
        "On an M4 Pro the fourth channel is 1 for sources of one or two channels, whose textures have no fourth component.",
        {"data_movement": ("on an M4 Pro the fourth of four channels is 1", "padding channels are 0")},
        {
            "zero": "0",
            "alpha": "0, and 1 for the fourth channel of a source of one or two channels",
        },
        ProbeProblem(
            "MPSNNGraph",
            "forward",
            {"x0": pixel(3), "x1": pixel(5, 6)},
            lambda machine: machine.apple.concatenated(pixel(3), pixel(5, 6)),
            {"zero": [3, 0, 0, 0, 5, 6, 0, 0], "alpha": [3, 0, 0, 1, 5, 6, 0, 1]},
            {"node": "MPSNNConcatenationNode"},
        ),
    ),
    Choice(
        "reshape-order",
        "A reshape keeps the order channel, column, row, the channel fastest.",
        "A layer on a reshaped image then equals a fully connected layer.",
        {"data_movement": "the order of the elements of a reshape"},
        {"HWC": "the channel fastest", "CHW": "the column fastest, the channel slowest"},
        ProbeProblem(
            "MPSNNReshape",
            "forward",
            {"x": TWELVE},
            lambda machine: machine.apple.reshaped(TWELVE, 1, 1, 12),
            {"HWC": TWELVE, "CHW": TWELVE.transpose(0, 3, 1, 2)},
            {"shape": [1, 1, 12]},
        ),
    ),
    Choice(
        "reduction-weights",
        "A weighted mean divides by the number of channels; pixels with zero weights are 0.",
        "The header has no formula.",
        {"reductions": "a weighted mean divides by the number of channels"},
        {
            "channels": "by the number of channels",
            "weights": "by the sum of the weights",
            "non-zero": "by the non-zero weights",
        },
        ProbeProblem(
            "MPSNNReduceFeatureChannelsAndWeightsMean",
            "forward",
            {"x": pixel(1, 2, 3, 6), "weights": pixel(2, 0, 3, 1)},
            lambda machine: machine.apple.weighted_mean(pixel(1, 2, 3, 6), pixel(2, 0, 3, 1)),
            {"channels": [17 / 4], "weights": [17 / 6], "non-zero": [17 / 3]},
        ),
    ),
    Choice(
        "reduction-tie",
        "Among equal extrema the index is the lowest one.",
        "Measured with MPSGraph on an M4 Pro (charon).",
        {"reductions": ("the lowest index among equal extrema", "among equal extrema it is the lowest index")},
        {"lowest": "the lowest index", "highest": "the highest index"},
        ProbeProblem(
            "MPSNNReduceFeatureChannelsArgumentMax",
            "forward",
            {"x": pixel(1, 3, 3, 2, 3)},
            lambda machine: machine.apple.unary(ARGUMENT, pixel(1, 3, 3, 2, 3), (1, 1, 1, 1)),
            {"lowest": [1], "highest": [4]},
        ),
        tag="obs",
    ),
    Choice(
        "reduction-nan",
        "An extremum skips NaN; of NaN alone a maximum is -inf, a minimum +inf, and the index -1.",
        "Measured with MPSGraph on an M4 Pro (charon), and reported for PyTorch on Apple GPUs (pytorch/pytorch#130295, "
        "#143976, #187039, #191100).",
        {"reductions": "extrema skip NaN"},
        {
            "number": "NaN is skipped; of NaN alone -inf and -1",
            "started": "the same by a search from -inf on, so that the index of -inf alone is -1 too",
            "zero": "NaN is skipped; of NaN alone -inf and the index 0",
            "nan": "NaN, and the index of the first one",
        },
        [
            ProbeProblem(
                f"MPSNNReduceFeatureChannels{name}",
                "forward",
                {"x": WITH_NAN},
                lambda machine, name=name: machine.apple.unary(  # type: ignore[misc]
                    f"MPSNNReduceFeatureChannels{name}", WITH_NAN, (1, 1, 4, 1)
                ),
                dict(zip(("number", "started", "zero", "nan"), expected, strict=True)),
            )
            for name, expected in (
                ("ArgumentMax", ([1, -1, 1, 0], [1, -1, -1, 0], [1, 0, 1, 0], [2, 0, 0, 0])),
                ("Max", (*[[3, -np.inf, -np.inf, 4]] * 3, [np.nan, np.nan, np.nan, 4])),
                ("Min", (*[[1, np.inf, -np.inf, 1]] * 3, [np.nan, np.nan, np.nan, 1])),
            )
        ],
        tag="obs",
    ),
    Choice(
        "reduction-empty",
        "A clip that does not overlap the image is an error.",
        "There is nothing to reduce. In MPS the result is undefined.",
        {"reductions": "a clip that does not overlap the image is an error"},
        tag="design",
    ),
    Choice(
        "reduction-shapes",
        "The shapes of reductions over channels and of the spatial mean.",
        "A test that ran on Apple devices has them.",
        {"reductions": "the shapes of the results over channels and of the spatial mean"},
        {"one": "one channel, and one pixel", "kept": "those of the source"},
        [
            ProbeProblem(
                "MPSNNGraph",
                "forward",
                {"x": np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)},
                lambda machine, node=node: machine.apple.reduced_size(node, (1, 2, 3, 4)),  # type: ignore[misc]
                {"one": one, "kept": [2, 3, 4]},
                {"node": node, "result": "height, width, feature channels"},
                "size",
            )
            for node, one in (
                ("MPSNNReductionFeatureChannelsSumNode", [2, 3, 1]),
                ("MPSNNReductionSpatialMeanNode", [1, 1, 4]),
            )
        ],
        tag="obs",
    ),
)
