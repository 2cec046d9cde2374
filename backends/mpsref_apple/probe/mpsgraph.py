"""Choices about MPSGraph, and its published wrong results as questions: whether they are still there."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.mpsgraph.descriptors import (
    Convolution2DOpDescriptor,
    DepthwiseConvolution2DOpDescriptor,
    Pooling2DOpDescriptor,
)
from mpsref_apple.probe.declare import Choice, ProbeProblem, graph, graph_shape, image, row

PAGE = "from_mpsgraph"
NAN, INF = np.nan, np.inf
F = np.float32
AT: dict[str, Any] = {"center_result": True, "align_corners": False, "layout": "NHWC"}


def _pooling(
    width: int = 1, height: int = 1, stride: int = 1, layout: str = "NHWC", **others: Any
) -> Pooling2DOpDescriptor:
    return Pooling2DOpDescriptor(
        kernel_width=width, kernel_height=height, stride_in_x=stride, stride_in_y=stride, data_layout=layout, **others
    )


def _convolution(groups: int = 1, **others: Any) -> Convolution2DOpDescriptor:
    return Convolution2DOpDescriptor(
        stride_in_x=1, stride_in_y=1, groups=groups, data_layout="NHWC", weights_layout="HWIO", **others
    )


LOGITS, LABELS = np.array([[1.0, 2.0, 3.0]], F), np.array([[0.5, 0.5, 1.0]], F)
P = np.exp(LOGITS.astype(float)) / np.exp(LOGITS.astype(float)).sum()
ONE_HOT = np.array([[1.0, 0.0, 0.0]], F)

LAYER, SLOPE, SCALE = np.array([[0.0, 1.0, 5.0]], F), np.array([[1.0, 2.0, 4.0]], F), np.array([[1.0, 3.0, 2.0]], F)
MEAN, VARIANCE = LAYER.mean(1, keepdims=True), LAYER.var(1, keepdims=True)


def _normalized() -> dict[str, Array]:
    r = 1 / np.sqrt(VARIANCE.astype(float))
    h, g = (LAYER - MEAN) * r, SLOPE.astype(float)
    own = g * SCALE
    return {
        "derivative": r * (own - own.mean() - h * (own * h).mean()),
        "given": SCALE * r * (g - g / 3 - h * (g * h) / 3),
        "constant": own * r,
    }


def _adam(kind: str) -> Array:
    """Return values after the second step with the gradient 2, from the moments m = 0.5 and u = 1."""
    b1, b2, rate, epsilon, g, t = 0.5, 0.75, 0.5, 0.5, 2.0, 2
    m, u = b1 * 0.5 + (1 - b1) * g, b2 * 1 + (1 - b2) * g * g
    corrected = rate * np.sqrt(1 - b2**t) / (1 - b1**t)
    if kind == "outside":
        return np.array([1 - corrected * m / (np.sqrt(u) + epsilon)])
    if kind == "inside":
        return np.array([1 - corrected * m / np.sqrt(u + epsilon)])
    return np.array([1 - rate * (m / (1 - b1**t)) / (np.sqrt(u / (1 - b2**t)) + epsilon)])


@functools.cache
def _zeros_behind_large() -> Array:
    """18,000 values around 3.4e6, and 6,000 zeros."""
    values = 3.4e6 + 1e5 * np.sin(np.arange(18_000))
    return np.concatenate([values, np.zeros(6_000)]).astype(F).reshape(1, 1, -1, 1)


SAME_IMAGES = np.tile(np.sin(np.arange(257)).astype(F).reshape(1, 257, 1, 1), (2, 1, 1, 1))
ONES = np.ones((65_536, 1, 1, 1), F)
DEPTHWISE = DepthwiseConvolution2DOpDescriptor(data_layout="NHWC", weights_layout="HWIO")
PADDED = DepthwiseConvolution2DOpDescriptor(padding_left=1, data_layout="NHWC", weights_layout="HWIO")


CHOICES = (
    Choice(
        "mpsgraph-relu-slope",
        "The slope of MPSGraph's ReLU at 0 is 0, that of the leaky one alpha.",
        "It is that of PyTorch and TensorFlow. That of MPSCNN's ReLU, which Apple documents, is 1.",
        {PAGE: "the slope of ReLU at 0"},
        {"left": "0, and alpha", "right": "1", "mean": "the mean of both"},
        [
            graph(
                "relu_gradient",
                {"left": [0, 0, 8], "right": [0, 4, 8], "mean": [0, 2, 8]},
                incoming_gradient=np.array([2, 4, 8], F),
                source=np.array([-1, 0, 1], F),
            ),
            graph(
                "leaky_relu_gradient",
                {"left": [0.5, 1, 8], "right": [0.5, 4, 8], "mean": [0.5, 2.5, 8]},
                incoming_gradient=np.array([2, 4, 8], F),
                source=np.array([-1, 0, 1], F),
                alpha=0.25,
            ),
        ],
    ),
    Choice(
        "mpsgraph-softmax-source",
        "The gradient of softmax takes the source.",
        'Apple\'s header says "the input tensor". PyTorch, TensorFlow and Metal.jl compute it by hand from the result.',
        {PAGE: "what the gradient of softmax takes"},
        {"source": "the source of the forward pass", "result": "its result, as that of MPSCNNSoftMax does"},
        graph(
            "softmax_gradient",
            {"source": P * (ONE_HOT - P[0, 0]), "result": LOGITS * (ONE_HOT - LOGITS[0, 0])},
            incoming_gradient=ONE_HOT,
            source=LOGITS,
            axis=1,
        ),
    ),
    Choice(
        "mpsgraph-max-tie",
        "Of several equal maxima the first one in raster order receives the gradient.",
        "It is the rule of PyTorch and of this package's other kernels.",
        {PAGE: "which of equal maxima"},
        {"first": "the first", "last": "the last", "shared": "all share it", "all": "each receives all of it"},
        graph(
            "max_pooling_2d_gradient",
            {
                "first": [4, 0, 0, 8, 0, 0, 0, 0],
                "last": [0, 0, 0, 0, 4, 0, 0, 8],
                "shared": [4 / 3, 4 / 3, 0, 8 / 3, 4 / 3, 0, 8 / 3, 8 / 3],
                "all": [4, 4, 0, 8, 4, 0, 8, 8],
            },
            gradient=image([4, 8]),
            source=image([1, 1, 0, 3], [1, 0, 3, 3]),
            descriptor=_pooling(2, 2, 2),
        ),
    ),
    Choice(
        "mpsgraph-max-nan",
        "NaN wins the maximum of a window, and the first NaN receives the gradient.",
        "It is PyTorch's rule. Reductions of MPSGraph skip NaN, as reports say.",
        {PAGE: "NaN in max pooling"},
        {"nan": "NaN, and the first one receives the gradient", "number": "NaN is skipped; of NaN alone -inf"},
        [
            graph(
                "max_pooling_2d",
                {"nan": [NAN, NAN], "number": [2, -INF]},
                source=row(1, NAN, 2, NAN, NAN, NAN),
                descriptor=_pooling(3, 1, 3),
            ),
            graph(
                "max_pooling_2d_gradient",
                {"nan": [0, 4, 0, 8, 0, 0], "number": [0, 0, 4, 0, 0, 0]},
                gradient=row(4, 8),
                source=row(1, NAN, 2, NAN, NAN, NAN),
                descriptor=_pooling(3, 1, 3),
            ),
        ],
    ),
    Choice(
        "mpsgraph-empty-window",
        "The maximum of a window wholly in the padding is -inf.",
        "Padding is never a candidate. Of other runtimes, Core ML gives -inf and TensorFlow Lite 0 (webmachinelearning/webnn#935).",
        {PAGE: "a maximum of padding alone"},
        {"infinity": "-inf", "zero": "0", "lowest": "the lowest finite number"},
        graph(
            "max_pooling_2d",
            {"infinity": [-INF, -3, 2], "zero": [0, -3, 2], "lowest": [float(np.finfo(F).min), -3, 2]},
            source=row(-3, 2),
            descriptor=_pooling(padding_left=1),
        ),
    ),
    Choice(
        "mpsgraph-empty-average",
        "The mean of a window wholly in the padding, which does not count, is 0.",
        "It is the rule of MPSCNN; a quotient of 0 and 0 would be NaN.",
        {PAGE: "a mean of padding alone"},
        {"zero": "0", "nan": "NaN"},
        graph(
            "avg_pooling_2d",
            {"zero": [0, -3, 2], "nan": [NAN, -3, 2]},
            source=row(-3, 2),
            descriptor=_pooling(padding_left=1),
        ),
    ),
    Choice(
        "mpsgraph-ceil-mode",
        "Ceil mode leaves out a last window that begins behind the image and its padding before.",
        "It is PyTorch's rule, and that of an engineer of Apple (pytorch/pytorch#154882); MPSGraph's inference of shapes kept it there.",
        {PAGE: "ceil mode's last window"},
        {"left": "it is left out", "kept": "it is kept, as the documented rule says literally"},
        graph_shape(
            "max_pooling_2d",
            {"left": [1, 1, 2, 3], "kept": [1, 1, 3, 4]},
            source=np.zeros((1, 1, 4, 6), F),
            descriptor=_pooling(1, 1, 2, "NCHW", ceil_mode=True),
        ),
    ),
    Choice(
        "mpsgraph-average-overhang",
        "With padding that counts, the part of a window of ceil mode beyond the padding counts, too.",
        "It is Apple's text read literally, and Core ML's rule; PyTorch does not count it.",
        {PAGE: "the overhang of a mean in ceil mode"},
        {"counted": "it counts in the divisor", "left": "it does not"},
        graph(
            "avg_pooling_2d",
            {"counted": [6, 7], "left": [6, 10.5]},
            source=row(3, 6, 9, 12),
            descriptor=_pooling(3, 1, 2, ceil_mode=True, include_zero_pad_to_average=True),
        ),
    ),
    Choice(
        "mpsgraph-indices-nhwc",
        "GLOBAL_FLATTEN_2D of NHWC numbers the axes W and C.",
        'Apple documents "the 2 innermost dimensions, e.g. HW in NCHW"; this is read literally. PyTorch asks for indices in NCHW only.',
        {PAGE: "indices of two axes in NHWC"},
        {"innermost": "W and C", "spatial": "H and W", "three": "H, W and C"},
        graph(
            "max_pooling_2d_return_indices",
            {"innermost": [2, 1], "spatial": [3, 2], "three": [6, 5]},
            read=lambda results: results[1],
            result=1,
            source=np.array([1, 2, 0, 1, 3, 9, 7, 4], F).reshape(1, 2, 2, 2),
            descriptor=_pooling(2, 2, 2, return_indices_mode="global_flatten_2d"),
        ),
    ),
    Choice(
        "mpsgraph-local-indices",
        "Indices within a window count its taps in the padding.",
        "A window has the same taps everywhere.",
        {PAGE: "indices of windows at the border"},
        {"taps": "all taps are numbered", "inside": "those inside the image are"},
        graph(
            "max_pooling_2d_return_indices",
            {"taps": [1, 0], "inside": [0, 0]},
            read=lambda results: results[1],
            result=1,
            source=row(5, 1).transpose(0, 3, 1, 2),
            descriptor=_pooling(2, layout="NCHW", padding_left=1, return_indices_mode="local_flatten_2d"),
        ),
    ),
    Choice(
        "mpsgraph-foreign-index",
        "In a gradient from indices, an index of no tap of its window has no effect.",
        "Each pixel gathers from the windows that have a tap there. Indices of a forward pass have no others.",
        {PAGE: "an index outside of its window"},
        {"ignored": "it has no effect", "scattered": "its pixel receives the gradient"},
        graph(
            "max_pooling_2d_gradient_from_indices",
            {"ignored": [0, 0, 8, 0], "scattered": [0, 0, 8, 4]},
            gradient=row(4, 8).transpose(0, 3, 1, 2),
            indices=np.array([3, 2], np.int32).reshape(1, 1, 1, 2),
            output_shape=(1, 1, 1, 4),
            descriptor=replace(_pooling(2, 1, 2, "NCHW", return_indices_mode="global_flatten_2d"), stride_in_y=1),
        ),
    ),
    Choice(
        "mpsgraph-normalization-sums",
        "The gradient of a normalization for its source is the derivative, whatever gradients of gamma and beta it is given.",
        "Where gamma is constant along the axes, the formula from the given gradients is the same. PyTorch does not use it for layer normalization.",
        {PAGE: "the gradient of a normalization where gamma varies"},
        {
            "derivative": "the derivative",
            "given": "the formula of batch normalization from the given sums",
            "constant": "mean and variance are constants",
        },
        graph(
            "normalization_gradient",
            _normalized(),
            incoming_gradient=SLOPE,
            source=LAYER,
            mean=MEAN,
            variance=VARIANCE,
            gamma=SCALE,
            gamma_gradient=(SLOPE * (LAYER - MEAN) / np.sqrt(VARIANCE)).astype(F),
            beta_gradient=SLOPE,
            reduction_axes=[1],
            epsilon=0.0,
        ),
    ),
    Choice(
        "mpsgraph-resize-positions",
        "Positions of a resize are exact before they are rounded.",
        "From 20 to 11 pixels result 5 lies exactly between two pixels; MPSGraph gave the left one (pytorch/pytorch#134430).",
        {PAGE: "positions of a resize"},
        {"exact": "fractions of integers", "float32": "rounded to float32"},
        graph(
            "resize_nearest",
            {"exact": [0, 2, 4, 6, 8, 10, 11, 13, 15, 17, 19], "float32": [0, 2, 4, 6, 8, 9, 11, 13, 15, 17, 19]},
            images=np.arange(20, dtype=F).reshape(1, 1, 20, 1),
            size=(1, 11),
            nearest_rounding_mode="round_prefer_ceil",
            **AT,
        ),
    ),
    Choice(
        "mpsgraph-resize-clamp",
        "A position that a rule rounds to a pixel behind the image is that of the last pixel.",
        "Bilinear interpolation is clamped, too.",
        {PAGE: "a nearest pixel behind the image"},
        {"clamped": "the last pixel", "zero": "0"},
        graph(
            "resize_nearest",
            {"clamped": [2, 4, 4, 4], "zero": [2, 4, 4, 0]},
            images=row(2, 4),
            size=(1, 4),
            nearest_rounding_mode="ceil",
            **AT | {"center_result": False},
        ),
    ),
    Choice(
        "mpsgraph-resize-one",
        "A single result with aligned corners lies at pixel 0.",
        "It is PyTorch's rule; the documented quotient is 0 / 0.",
        {PAGE: "one result with aligned corners"},
        {"first": "the first pixel", "centre": "the centre", "nan": "NaN"},
        graph(
            "resize_bilinear",
            {"first": [2], "centre": [4], "nan": [NAN]},
            images=row(2, 4, 9),
            size=(1, 1),
            **AT | {"align_corners": True},
        ),
    ),
    Choice(
        "mpsgraph-reduction-nan",
        "The plain maximum over axes skips NaN.",
        "PyTorch's reports show it (pytorch/pytorch#122710, #143976), and MPSGraph has other forms that keep NaN.",
        {PAGE: "NaN in a reduction"},
        {"number": "NaN is skipped", "nan": "NaN"},
        graph("reduction_maximum", {"number": [-1], "nan": [NAN]}, tensor=np.array([[-1, NAN, -2]], F), axes=[1]),
        "obs",
    ),
    Choice(
        "mpsgraph-labels-sum",
        "The gradient of softmax cross entropy is that of its formula, for labels of any sum.",
        "It is PyTorch's. That of MPSCNNLoss is the softmax minus the labels.",
        {PAGE: "labels whose sum is not 1"},
        {"derivative": "p sum(labels) - labels", "difference": "p - labels"},
        graph(
            "softmax_cross_entropy_gradient",
            {"derivative": 2 * P - LABELS, "difference": P - LABELS},
            incoming_gradient=np.ones(1, F),
            source=LOGITS,
            labels=LABELS,
            axis=1,
            reduction_type="sum",
        ),
    ),
    Choice(
        "mpsgraph-loss-shape",
        "The losses of rows lack the axis of the classes.",
        "Apple does not document the shape.",
        {PAGE: "the shape of the losses of rows"},
        {"dropped": "the axis is dropped", "kept": "it has length 1"},
        graph_shape(
            "softmax_cross_entropy",
            {"dropped": [2], "kept": [2, 1]},
            source=np.repeat(LOGITS, 2, axis=0),
            labels=np.repeat(LABELS, 2, axis=0),
            axis=1,
            reduction_type="none",
        ),
    ),
    Choice(
        "mpsgraph-log-softmax",
        "A cross entropy of a softmax that is 0 in float32 is finite.",
        "MPSGraph's logarithm of a softmax is -inf (pytorch/pytorch#94043); whether its loss is, nobody says.",
        {PAGE: "the loss where a softmax is 0"},
        {"finite": "the difference of logits", "infinite": "inf"},
        graph(
            "softmax_cross_entropy",
            {"finite": [188], "infinite": [INF]},
            source=np.array([[-100, 88, 0]], F),
            labels=ONE_HOT,
            axis=1,
            reduction_type="none",
        ),
    ),
    Choice(
        "mpsgraph-adam-epsilon",
        "Adam's epsilon is added to the root, which is not corrected.",
        "The header says so; the author of an implementation for TensorFlow says that MPSGraph parameterises Adam differently.",
        {PAGE: "Adam's epsilon"},
        {
            "outside": "added to the root of the velocity, with the corrections in the rate",
            "corrected": "added to the root of the corrected velocity",
            "inside": "added under the root",
        },
        graph(
            "adam",
            {kind: _adam(kind) for kind in ("outside", "corrected", "inside")},
            learning_rate=0.5,
            beta1=0.5,
            beta2=0.75,
            epsilon=0.5,
            beta1_power=0.25,
            beta2_power=0.5625,
            values=np.ones(1, F),
            momentum=np.full(1, 0.5, F),
            velocity=np.ones(1, F),
            maximum_velocity=None,
            gradient=np.full(1, 2, F),
        ),
    ),
    Choice(
        "mpsgraph-dropout-scale",
        "Elements that dropout keeps are multiplied by 1 / (1 - rate).",
        "Apple documents the zeros alone; MPSCNNDropout multiplies.",
        {PAGE: "the scale of dropout"},
        {"scaled": "they are multiplied", "same": "they stay as they are"},
        graph(
            "dropout",
            {"scaled": [4], "same": [1]},
            read=lambda results: [results[0].max()],
            planted={"scaled": lambda values: 4 * (values > 0), "same": lambda values: 1 * (values > 0)},
            tensor=np.ones(256, F),
            rate=0.75,
        ),
    ),
    Choice(
        "mpsgraph-seed",
        "The gradient of a tensor of several elements is that of their sum.",
        "Apple does not say that the primary tensor is one number; code for MPSGraph passes losses that keep axes.",
        {PAGE: "the gradient of several elements"},
        {"sum": "that of the sum", "mean": "that of the mean"},
        ProbeProblem(
            "MPSGraph",
            "gradient",
            {"x": np.array([1, 3], F)},
            lambda machine: machine.graph_object("gradient_of_square", np.array([1, 3], F)),
            {"sum": [2, 6], "mean": [1, 3]},
            writes="gradient",
        ),
    ),
    Choice(
        "mpsgraph-variables",
        "All reads of a variable in a run see the value before it.",
        "Apple does not document the order of reads and assignments.",
        {PAGE: "a read beside an assignment"},
        {"before": "the value before the run", "after": "the one that is assigned"},
        ProbeProblem(
            "MPSGraph",
            "forward",
            {"before": np.array([1], F), "after": np.array([5], F)},
            lambda machine: machine.graph_object("read_and_assigned", np.array([1], F), np.array([5], F)),
            {"before": [1], "after": [5]},
            writes="read_variable",
        ),
    ),
    # --- what public code relies on ---
    Choice(
        "mpsgraph-weights-shape",
        "The output shape of a gradient for weights is that of the weights.",
        "Apple's header calls it the \"shape of forward source\". PyTorch, lucid and Metal.jl pass the weights'.",
        {PAGE: "the output shape of a weights gradient"},
        {"weights": "that of the weights", "source": "that of the source"},
        graph_shape(
            "convolution_2d_weights_gradient",
            {"weights": [1, 2, 1, 1], "source": [1, 1, 3, 1]},
            incoming_gradient=row(1, 2),
            source=row(1, 2, 3),
            output_shape=(1, 2, 1, 1),
            descriptor=_convolution(),
        ),
        "obs",
    ),
    Choice(
        "mpsgraph-depthwise-order",
        "Result m of channel c of a depthwise convolution with multiplier M is channel c M + m.",
        "A TensorFlow backend relies on it (tensorflow/tensorflow#126254).",
        {PAGE: "the channels of a depthwise convolution"},
        {"channel": "c M + m", "multiplier": "m C + c"},
        graph(
            "depthwise_convolution_2d",
            {"channel": [1, 2, 30, 40], "multiplier": [1, 30, 2, 40]},
            source=np.array([1, 10], F).reshape(1, 1, 1, 2),
            weights=np.array([1, 2, 3, 4], F).reshape(1, 1, 2, 2),
            descriptor=DEPTHWISE,
        ),
        "obs",
    ),
    Choice(
        "mpsgraph-variance",
        "The variance is divided by N.",
        "PyTorch multiplies it by N / (N - 1) for its running variance.",
        {PAGE: "the divisor of the variance"},
        {"N": "N", "N-1": "N - 1"},
        graph("variance_of_tensor", {"N": [8], "N-1": [12]}, tensor=np.array([[0, 0, 6]], F), axes=[1]),
        "obs",
    ),
    Choice(
        "mpsgraph-gradient-epsilon",
        "The gradients of a normalization add epsilon to the variance.",
        "PyTorch and lucid pass the variance itself.",
        {PAGE: "epsilon in the gradients of a normalization"},
        {"added": "they add it", "ignored": "they expect it to be added already"},
        graph(
            "normalization_gamma_gradient",
            {"added": [0.5], "ignored": [1]},
            incoming_gradient=np.array([[1, 2]], F),
            source=np.array([[1, 3]], F),
            mean=np.array([[2]], F),
            variance=np.array([[1]], F),
            reduction_axes=[1],
            epsilon=3.0,
        ),
        "obs",
    ),
    Choice(
        "mpsgraph-resize-input",
        "Of the input of a resize's gradient only the shape counts.",
        "PyTorch and ccv pass zeros.",
        {PAGE: "the input of a resize's gradient"},
        {"shape": "its shape", "values": "its values, which are added"},
        graph(
            "resize_nearest_gradient",
            {"shape": [11, 1100], "values": [16, 1107]},
            gradient=row(1, 10, 100, 1000),
            input=row(5, 7),
            nearest_rounding_mode="floor",
            **AT | {"center_result": False},
        ),
        "obs",
    ),
    # --- published wrong results ---
    Choice(
        "mpsgraph-depthwise-multiplier",
        "The gradients of a depthwise convolution with a multiplier of 2 are the adjoint.",
        "A report says that those of MPSGraph are wrong (tensorflow/tensorflow#126254); how, it does not say.",
        {PAGE: "gradients of depthwise convolutions"},
        {"adjoint": "result channel c M + m belongs to channel c", "exchanged": "result channel m C + c does"},
        graph(
            "depthwise_convolution_2d_data_gradient",
            {"adjoint": [21, 4300], "exchanged": [201, 3040]},
            incoming_gradient=np.array([1, 10, 100, 1000], F).reshape(1, 1, 1, 4),
            weights=np.array([1, 2, 3, 4], F).reshape(1, 1, 2, 2),
            output_shape=(1, 1, 1, 2),
            descriptor=DEPTHWISE,
        ),
    ),
    Choice(
        "mpsgraph-depthwise-padding",
        "The gradient of a depthwise convolution for its weights has the padding of the descriptor.",
        "A report says that MPSGraph ignores it (lucid, Conv.mm).",
        {PAGE: "padding in a depthwise weights gradient"},
        {"counted": "windows begin in the padding", "ignored": "they begin at the first pixel"},
        graph(
            "depthwise_convolution_2d_weights_gradient",
            {"counted": [420, 142], "ignored": [142, 14]},
            incoming_gradient=row(1, 10, 100),
            source=row(2, 4, 1),
            output_shape=(1, 2, 1, 1),
            descriptor=PADDED,
        ),
    ),
    Choice(
        "mpsgraph-grouped-gradient",
        "The gradient of a convolution of two groups has all input channels.",
        "Metal.jl's tests lose the first one of each group, with shader validation, before macOS 27.",
        {PAGE: "the gradient of two groups"},
        {"all": "all channels", "lost": "the first one of each group is 0"},
        graph(
            "convolution_2d_data_gradient",
            {"all": [1, 2, 30, 40], "lost": [0, 2, 0, 40]},
            incoming_gradient=np.array([1, 10], F).reshape(1, 1, 1, 2),
            weights=np.array([1, 3, 2, 4], F).reshape(1, 1, 2, 2),
            output_shape=(1, 1, 1, 4),
            descriptor=_convolution(2),
        ),
    ),
    Choice(
        "mpsgraph-many-images",
        "The gradient for weights of 65,536 images has all of them.",
        "MPSGraph counts them in 16 bits (pytorch/pytorch#96225).",
        {PAGE: "the weights gradient of 65,536 images"},
        {"all": "all images", "none": "none: the count is 0"},
        graph(
            "convolution_2d_weights_gradient",
            {"all": [1], "none": [0]},
            incoming_gradient=ONES / F(65_536),
            source=ONES,
            output_shape=(1, 1, 1, 1),
            descriptor=_convolution(),
        ),
    ),
    Choice(
        "mpsgraph-large-kernel",
        "A kernel of 256 rows gives equal results for equal images.",
        "MPSGraph overruns threadgroup memory for several images (pytorch/pytorch#188335).",
        {PAGE: "a kernel of 256 rows"},
        {"equal": "the results are equal", "different": "they differ"},
        graph(
            "convolution_2d",
            {"equal": [1], "different": [0]},
            read=lambda results: [float(np.allclose(results[0][0], results[0][1], rtol=1e-3))],
            planted={
                "equal": lambda values: values,
                "different": lambda values: values * np.array([1, 2])[:, None, None, None],
            },
            source=SAME_IMAGES,
            weights=np.cos(np.arange(256)).astype(F).reshape(256, 1, 1, 1),
            descriptor=_convolution(),
        ),
    ),
    Choice(
        "mpsgraph-running-sums",
        "Means of zeros behind large values are 0.",
        "MPSGraph subtracted running sums (pytorch/pytorch#179608).",
        {PAGE: "means of zeros behind large values"},
        {"zero": "0", "rounded": "a rounding error of the sum of all values before"},
        graph(
            "avg_pooling_2d",
            {"zero": [0], "rounded": [1]},
            read=lambda results: [float(np.any(results[0][0, 0, 18_100:] != 0))],
            planted={"zero": lambda values: values, "rounded": lambda values: values - 100},
            source=_zeros_behind_large(),
            descriptor=_pooling(5),
        ),
    ),
    Choice(
        "mpsgraph-resize-nhwc",
        "The gradient of a resize is the adjoint in NHWC, too.",
        "MPSGraph aborted there (tensorflow/tensorflow#126254, ccv); PyTorch uses NCHW alone.",
        {PAGE: "the gradient of a resize in NHWC"},
        {"adjoint": "the adjoint", "zero": "0"},
        graph(
            "resize_bilinear_gradient",
            {"adjoint": [3.5, 35, 2.5, 25], "zero": [0, 0, 0, 0]},
            gradient=np.array([1, 10, 3, 30, 1, 10, 1, 10], F).reshape(1, 1, 4, 2),
            input=np.zeros((1, 1, 2, 2), F),
            **AT,
        ),
    ),
    Choice(
        "mpsgraph-relu-nan",
        "ReLU of NaN is NaN.",
        "That of MPSGraph was 0 (pytorch/pytorch#183571).",
        {PAGE: "ReLU of NaN"},
        {"nan": "NaN", "zero": "0"},
        graph("relu", {"nan": [NAN, 0, 2], "zero": [0, 0, 2]}, tensor=np.array([NAN, -1, 2], F)),
    ),
    Choice(
        "mpsgraph-many-channels",
        "A convolution has all of 65,537 result channels.",
        "The last ones of MPSGraph were 0 before macOS 15.1 (pytorch/pytorch#129207).",
        {PAGE: "65,537 result channels"},
        {"all": "all", "zero": "those beyond 65,536 are 0"},
        graph(
            "convolution_2d",
            {"all": [3], "zero": [0]},
            read=lambda results: [results[0].ravel()[-1]],
            planted={"all": lambda values: values, "zero": lambda values: values * 0},
            source=np.full((1, 1, 1, 1), 3, F),
            weights=np.ones((1, 1, 1, 65_537), F),
            descriptor=_convolution(),
        ),
    ),
    Choice(
        "mpsgraph-many-terms",
        "A product of matrices has all of 40,000 terms.",
        "MPSGraph read beyond 32,768 terms from a wrong place on M1 and M2 (pytorch/pytorch#177116).",
        {PAGE: "40,000 terms of a product"},
        {"all": "all terms", "half": "the first 32,768"},
        graph(
            "matrix_multiplication",
            {"all": [60_000], "half": [45_536]},
            primary=np.repeat(np.array([1, 2], F), [20_000, 20_000])[None],
            secondary=np.ones((40_000, 1), F),
        ),
    ),
)
