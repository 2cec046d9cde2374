"""Choices about losses, optimizers and dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpsref import Adam, Convolution, Dropout, Loss, StochasticGradientDescent
from mpsref.arguments.arrays import Array
from mpsref_apple.probe.declare import Choice, ProbeProblem, operation, pixel, row

FORWARD, GRADIENT = "MPSNNForwardLoss", "MPSNNLossGradient"
SOFTMAX = np.exp([1.0, 2.0, 3.0]) / np.exp([1.0, 2.0, 3.0]).sum()
TWO = np.array([[1, 2, 3, 4], [0, 0, 1, 1]], np.float32).reshape(2, 1, 2, 2)
LOGITS = np.array([[1, 0], [0, 1], [2, 1], [1, 3], [0, 2], [1, 1]], np.float32).reshape(2, 1, 3, 2)
ONE_HOT = np.array([[1, 0]] * 6, np.float32).reshape(2, 1, 3, 2)
CROSS = float((np.log(np.exp(LOGITS.astype(float)).sum(axis=3)) - LOGITS[..., 0]).sum())
WEIGHTS = np.array([[1, 0, 2, 1], [0, 0, 0, 0.5]], np.float32).reshape(2, 1, 2, 2)
VALUE, STEP = np.array([1, -2], np.float32), np.array([0.5, 0.5], np.float32)
ONE = np.ones(1, np.float32)
P = 0.9
SCALE = np.float32(1) / np.float32(P)


def _differs() -> np.float32:
    """Return a number whose quotient by p is not its product with the scale."""
    numbers = np.linspace(1, 2, 1001, dtype=np.float32)
    return numbers[numbers * SCALE != numbers / np.float32(P)][0]  # type: ignore[no-any-return]


X = _differs()


def _nan_or_zero(y: Array) -> list[float]:
    return [float(np.isnan(y).any()), float((y == 0).any())]


def _with_nan(values: Array) -> Array:
    return np.where(values == 0, np.nan, values)


LABEL = np.array([2.0, 1.5])
"""Width and height of the labels of YOLO problems."""
NARROW, LARGE = (0.8, 0.5), (1.6, 1.2)
"""Anchor boxes, whose overlaps with the label, at the same centre, are 0.13 and 0.64."""
CELLS = (((1.2, 1.0), (1.2, 1.0), (4.0, 3.0), (4.0, 3.0)), ((1.8, 1.35), (1.9, 1.425), (1.75, 1.3125), (1.0, 0.75)))
"""By cell, the predicted sizes: their overlaps are 0.4, 0.4, 0.25, 0.25, and 0.81, 0.9025, 0.765625, 0.25."""
RAW = np.log(np.array(CELLS[0][0]) / NARROW)
OF_OBJECT = [[200 * (0.5 - u) for u in cell] for cell in ((0.4, 0.4, 0.25, 0.25), (0.81, 0.9025, 0.765625, 0.25))]
NO_OBJECT = 5.0


def _assigned(*cells: str) -> list[list[float]]:
    """Return the gradients of the confidences: "o" is a box with an object, "-" one without, "." does not count."""
    return [
        [{"o": g, "-": NO_OBJECT, ".": 0.0}[one] for one, g in zip(cell, gradients, strict=True)]
        for cell, gradients in zip(cells, OF_OBJECT, strict=True)
    ]


def _yolo(
    cells: Any, anchors: Any, expected: dict[str, list[list[float]]], channels: list[int], **scales: float
) -> ProbeProblem:
    """Return a problem of boxes with predicted sizes, by cell, and equal labels: channels of the gradient."""
    sizes = np.array(cells)
    y, t = np.zeros((2, 1, *sizes.shape[:2], 6), np.float32)
    y[..., 2:4], y[..., 4] = np.log(sizes / anchors), 0.5
    t[..., :2], t[..., 2:4], t[..., 4:] = 0.5, LABEL, 1
    y, t = (one.reshape(1, 1, len(sizes), -1) for one in (y, t))

    def spread(values: list[list[float]]) -> Callable[[Array], Array]:
        def change(result: Array) -> Array:
            result = np.array(result)
            result[..., channels] = values
            return result

        return change

    return ProbeProblem(
        "MPSCNNYOLOLoss",
        "gradient",
        {"y": y, "t": t, "anchors": np.array(anchors)},
        lambda machine: machine.apple.yolo_gradient(y, t, anchors, channels, **scales),
        expected,
        {"channels": channels, **scales},
        planted={name: spread(values) for name, values in expected.items()},
        tolerance=1e-4,
    )


CHOICES = (
    Choice(
        "yolo-object",
        "Of the boxes of a cell with a label, the one that overlaps it most has an object, and each above the threshold.",
        "The header names the thresholds, and the overlap of the prediction and the label. Turi Create, by Apple, has the "
        "same loss for machines without Metal (_mx_detector.py, _tf_model_architecture.py): there the overlap of the "
        "anchor box counts, at the same centre, and all of equal anchors have the object.",
        {"yolo_loss": "which boxes have an object"},
        {
            "best": "the predicted box with the largest overlap, the first of equal ones, and those above the threshold",
            "all equal": "the same with all of equal ones",
            "anchor": "the anchor with the largest overlap, all of equal ones, and those above the threshold",
            "first anchor": "the same with the first of equal ones",
            "labels": "each box whose label has a confidence above 0",
            "threshold": "the predicted boxes above the threshold alone",
        },
        _yolo(
            CELLS,
            (NARROW, NARROW, LARGE, LARGE),
            {
                "best": _assigned("o.--", "ooo-"),
                "all equal": _assigned("oo--", "ooo-"),
                "anchor": _assigned("--oo", "--oo"),
                "first anchor": _assigned("--o.", "--o."),
                "labels": _assigned("oooo", "oooo"),
                "threshold": _assigned("..--", "ooo-"),
            },
            [4, 10, 16, 22],
            ScaleClass=0.0,
            ScaleXY=0.0,
            ScaleWH=0.0,
        ),
    ),
    Choice(
        "yolo-size",
        "Labels of w and h are in cells; the loss compares their logarithm, divided by the anchor box, with the raw value.",
        "Turi Create, by Apple, writes sizes in cells into the labels of this loss (od_yolo.cpp).",
        {"yolo_loss": "what the labels of w and h are"},
        {"cells": "sizes in cells", "raw": "the raw value that is to be predicted"},
        _yolo(
            [[CELLS[0][0]]],
            (NARROW,),
            {"cells": [[*(20 * (RAW - np.log(LABEL / NARROW)))]], "raw": [[*(20 * (RAW - LABEL))]]},
            [2, 3],
            ScaleObject=0.0,
        ),
        tag="obs",
    ),
    Choice(
        "yolo-rescore",
        "The overlap in the label of the confidence is a constant.",
        "Turi Create, by Apple, does not differentiate it in the same loss for machines without Metal.",
        {"yolo_loss": "whether the gradient goes through the overlap"},
        {"constant": "it is a constant", "derivative": "w and h get a gradient from it"},
        _yolo(
            [[CELLS[0][0]]],
            (NARROW,),
            {"constant": [[0, 0]], "derivative": [[200 * (0.4 - 0.5) * 0.4] * 2]},
            [2, 3],
            ScaleWH=0.0,
        ),
        tag="obs",
    ),
    Choice(
        "loss-absolute",
        "The gradient of the absolute error at y = t is 0.",
        "0 is a subgradient. Apple's formula is 0/0.",
        {"losses": "absolute error: Apple's gradient is 0/0"},
        {"zero": "0", "nan": "NaN"},
        operation(
            GRADIENT,
            Loss("meanabsoluteerror"),
            "gradient",
            {"g": np.ones((1, 1, 1, 1), np.float32), "y": pixel(1, 2, 3), "t": pixel(1, 0, 5)},
            {"zero": [0, 1, -1], "nan": [np.nan, 1, -1]},
        ),
    ),
    Choice(
        "loss-softmax",
        "The gradient of the softmax cross entropy is softmax(y) - t.",
        "The loss applies the softmax, so y are logits. Apple writes y - t.",
        {"losses": "softmax: Apple writes `y - t` with y the logits"},
        {"softmax": "softmax(y) - t", "logits": "y - t"},
        operation(
            GRADIENT,
            Loss("softmaxcrossentropy"),
            "gradient",
            {"g": np.ones((1, 1, 1, 1), np.float32), "y": pixel(1, 2, 3), "t": pixel(0, 0, 1)},
            {"softmax": SOFTMAX - [0, 0, 1], "logits": [1, 2, 2]},
        ),
    ),
    Choice(
        "loss-hinge",
        "The hinge loss maps labels 0 and 1 to -1 and +1.",
        "Apple's gradient does. With unchanged labels the loss of label 0 is constant.",
        {"losses": "hinge: Apple's loss uses the labels unchanged"},
        {"mapped": "max(1 - (2 t - 1) y, 0)", "unchanged": "max(1 - t y, 0)"},
        operation(
            FORWARD,
            Loss("hinge", "none"),
            "forward",
            {"y": pixel(-2, 0.5, -0.25, -1), "t": pixel(0, 1, 0, 1)},
            {"mapped": [0, 0.5, 0.75, 2], "unchanged": [1, 0.5, 1, 2]},
        ),
    ),
    Choice(
        "loss-huber",
        "The Huber loss squares the error, and its gradient has the sign of the error.",
        "Apple squares the prediction, which makes the loss discontinuous, and omits the sign.",
        {"losses": "Huber: Apple squares the prediction and omits the sign"},
        {"error": "of the error, with its sign", "printed": "the formulas of the header"},
        [
            operation(
                FORWARD,
                Loss("huber", "none"),
                "forward",
                {"y": pixel(2.5, 5, -3), "t": pixel(2, 2, 0)},
                {"error": [0.125, 2.5, 2.5], "printed": [3.125, 2.5, 2.5]},
            ),
            operation(
                GRADIENT,
                Loss("huber"),
                "gradient",
                {"g": np.ones((1, 1, 1, 1), np.float32), "y": pixel(2.5, 5, -3), "t": pixel(2, 2, 0)},
                {"error": [0.5, 1, -1], "printed": [0.5, 1, 1]},
            ),
        ],
    ),
    Choice(
        "loss-divergence",
        "The gradient of the Kullback-Leibler divergence is -t.",
        "y are logarithms in Apple's loss. Its gradient repeats that of the cross entropy.",
        {"losses": "Kullback-Leibler: Apple's gradient is that of the cross entropy"},
        {"-t": "-t", "-t/y": "-t / y"},
        operation(
            GRADIENT,
            Loss("kullbackleiblerdivergence"),
            "gradient",
            {"g": np.ones((1, 1, 1, 1), np.float32), "y": pixel(-2, -0.5), "t": pixel(0.25, 0.75)},
            {"-t": [-0.25, -0.75], "-t/y": [0.125, 1.5]},
        ),
    ),
    Choice(
        "loss-cosine",
        "The cosine distance is one number for each image.",
        "Apple calls it applied to each element, and defines one number.",
        {"losses": "cosine distance: one number per image"},
        {"image": "1 - the sum over the image", "elements": "the sum of 1 - y t over the elements"},
        operation(
            FORWARD,
            Loss("cosinedistance"),
            "forward",
            {"y": pixel(0.6, 0.9, 0), "t": pixel(0, 1, 0)},
            {"image": [0.1], "elements": [2.1]},
        ),
    ),
    Choice(
        "loss-weights",
        "weight and the weights image multiply, and scale loss and gradient.",
        "Both are documented as a factor of the loss.",
        {"losses": "`weight` and the weights image multiply"},
        {"product": "their product", "image": "the weights image alone", "weight": "weight alone"},
        [
            operation(
                FORWARD,
                Loss("meansquarederror", "none", weight=0.5),
                "forward",
                {"y": pixel(1, 2), "t": pixel(0, 0), "weights": pixel(3, 0.25)},
                {"product": [1.5, 0.5], "image": [3, 1], "weight": [0.5, 2]},
            ),
            operation(
                GRADIENT,
                Loss("meansquarederror", weight=0.5),
                "gradient",
                {"g": np.ones((1, 1, 1, 1), np.float32), "y": pixel(1, 2), "t": pixel(0, 0), "weights": pixel(3, 0.25)},
                {"product": [3, 0.5], "image": [6, 1], "weight": [1, 2]},
            ),
        ],
    ),
    Choice(
        "loss-image-size",
        "A loss image of 1 x 1 x 1 implies a reduction, one of the size of the source none.",
        "Two statements of Apple's combined.",
        {"losses": "a loss image of 1 x 1 x 1 implies a reduction"},
        tag="design",
    ),
    Choice(
        "loss-across-softmax",
        "Across the batch, the mean of the softmax cross entropy divides by H W N.",
        "It is the rule for one image, carried over.",
        {"losses": "across the batch: softmax divides by H W N"},
        {
            "pixels": "by the pixels of the batch",
            "elements": "by the elements of the batch",
            "images": "by those of one image",
        },
        operation(
            FORWARD,
            Loss("softmaxcrossentropy", "mean", True),
            "forward",
            {"y": LOGITS, "t": ONE_HOT},
            {
                "pixels": [CROSS / 6, 0],
                "elements": [CROSS / 12, 0],
                "images": [CROSS / 3, 0],
            },
        ),
    ),
    Choice(
        "loss-across-weights",
        "Across the batch, non-zero weights of all images are counted.",
        "The sum runs over all images.",
        {"losses": "non-zero weights are those of all images"},
        {"all": "those of all images", "first": "those of the first image"},
        operation(
            FORWARD,
            Loss("meansquarederror", "sumbynonzeroweights", True),
            "forward",
            {"y": TWO, "t": TWO * 0, "weights": WEIGHTS},
            {"all": [35.5 / 4, 0], "first": [35.5 / 3, 0]},
        ),
    ),
    Choice(
        "loss-zero-logarithm",
        "A product with a factor t of 0 is 0 for every logarithm.",
        "A label of 0 has no influence then.",
        {"losses": "a product with a factor t or 1 - t of 0 is 0"},
        {"zero": "0", "nan": "0 times infinity is NaN"},
        operation(
            FORWARD,
            Loss("categoricalcrossentropy", "none"),
            "forward",
            {"y": pixel(0, 0.5), "t": pixel(0, 1)},
            {"zero": [0, np.log(2)], "nan": [np.nan, np.log(2)]},
        ),
    ),
    Choice(
        "optimizer-l1",
        "The gradient of the L1 penalty has the sign of the value.",
        "It is the derivative. Apple's text makes it 1.",
        {"optimizers": 'L1: according to Apple the gradient "turns to be 1"'},
        {"sign": "the sign of the value", "one": "1"},
        operation(
            "MPSNNOptimizerStochasticGradientDescent",
            StochasticGradientDescent(0.1, regularization_type="l1", regularization_scale=0.5),
            "step",
            {"gradient": STEP, "value": VALUE},
            {"sign": [0.9, -2.0], "one": [0.9, -2.1]},
            writes="result",
        ),
    ),
    Choice(
        "optimizer-rescale",
        "The rescale of the gradient does not apply to the penalty.",
        "It follows from the documented order of the steps.",
        {"optimizers": "the rescale does not apply to the penalty"},
        {"gradient": "it scales the gradient", "both": "it scales gradient and penalty"},
        operation(
            "MPSNNOptimizerStochasticGradientDescent",
            StochasticGradientDescent(0.1, gradient_rescale=0.5, regularization_type="l2", regularization_scale=1.0),
            "step",
            {"gradient": STEP, "value": VALUE},
            {"gradient": [0.875, -1.825], "both": [0.925, -1.925]},
            writes="result",
        ),
    ),
    Choice(
        "optimizer-negative",
        "Negative learning rates and scales are legal.",
        "Turi Create computes running averages with them.",
        {"optimizers": "Negative learning rates and scales are legal"},
        {"legal": "they count as they are", "zero": "they count as 0"},
        operation(
            "MPSNNOptimizerStochasticGradientDescent",
            StochasticGradientDescent(-0.1, regularization_type="l2", regularization_scale=-1.0),
            "step",
            {"gradient": np.array([5], np.float32), "value": np.array([2], np.float32)},
            {"legal": [2.3], "zero": [2]},
            writes="result",
        ),
        tag="obs",
    ),
    Choice(
        "optimizer-time-step",
        "One encode is one time step of Adam.",
        "Apple's sample compares its own counter with timeStep.",
        {"optimizers": "one encode on states is one time step"},
        {"one": "1 after the first encode", "zero": "0"},
        ProbeProblem(
            "MPSNNOptimizerAdam",
            "property",
            {"gradient": STEP, "value": VALUE},
            lambda machine: machine.apple.time_step_after_adam(STEP, VALUE),
            {"one": [1], "zero": [0]},
            writes="timeStep",
        ),
        tag="obs",
    ),
    Choice(
        "optimizer-clip-bounds",
        "The default clip bounds are infinite.",
        "Apple names no defaults.",
        {"optimizers": "the default clip bounds are infinite"},
        {
            "infinite": "infinities",
            "largest": "the largest numbers",
            "unit": "-1 and 1",
            "zero": "0",
        },
        ProbeProblem(
            "MPSNNOptimizerDescriptor",
            "property",
            {},
            lambda machine: machine.apple.default_clip_bounds(),
            {
                "infinite": [-np.inf, np.inf],
                "largest": [-3.4028234663852886e38, 3.4028234663852886e38],
                "unit": [-1, 1],
                "zero": [0, 0],
            },
            writes="gradientClipMin, gradientClipMax",
        ),
    ),
    Choice(
        "optimizer-ranges",
        "decay is in [0, 1], beta in [0, 1), epsilon at least 0.",
        "Other values make no running mean.",
        {"optimizers": "legal ranges of decay, beta and epsilon"},
        tag="design",
    ),
    Choice(
        "optimizer-aliasing",
        "The result may share memory only with the values.",
        "Elements are read before they are written only there. Other overlaps are races in MPS.",
        {"optimizers": "the result may share memory only with the values"},
        tag="design",
    ),
    Choice(
        "optimizer-biases",
        "Biases that are not updated are copied to the result.",
        "A reload from it then does not change them.",
        {"optimizers": "biases that are not updated are copied to the result"},
        {"copied": "they are copied", "updated": "they are updated", "kept": "the result keeps what it held"},
        ProbeProblem(
            "MPSNNOptimizerStochasticGradientDescent",
            "gradient",
            {"g": row(1, 2, 3), "x": row(1, 2, 3, 4, 5), "biases": [2]},
            lambda machine: machine.apple.biases_after_step(
                Convolution((1, 3), (1, 2)), row(1, 2, 3), row(1, 2, 3, 4, 5), np.array([2], np.float32)
            ),
            {"copied": [2], "updated": [1.4], "kept": [0]},
            {"learningRate": 0.1, "inputMomentumVectors": 1},
            "biases",
        ),
    ),
    Choice(
        "optimizer-constants",
        "Constants are computed in float64 and rounded once.",
        "It is the most exact way.",
        {"optimizers": "constants such as `1 - beta2`"},
        {"wide": "1 - beta2 is rounded", "float32": "beta2 is rounded before it is subtracted from 1"},
        operation(
            "MPSNNOptimizerAdam",
            Adam(beta2=0.999),
            "step",
            {"gradient": ONE, "value": ONE, "m": ONE * 0, "v": ONE * 0},
            {"wide": [1 - 0.999], "float32": [1 - np.float32(0.999)]},
            result=2,
            writes="moment",
            tolerance=1e-6,
        ),
    ),
    Choice(
        "dropout-scale",
        "The scale 1/p is rounded once, and kept elements are multiplied by it.",
        "A division costs more, and has another last digit.",
        {"dropout": "`scale` is rounded to float32 once"},
        {"product": "x times the rounded 1/p", "quotient": "x / p"},
        ProbeProblem(
            "MPSCNNDropout",
            "forward",
            {"x": [X], "keepProbability": [P]},
            lambda machine: machine.apple.kept_value(P, X),
            {"product": [X * SCALE], "quotient": [X / np.float32(P)]},
            {"keepProbability": P},
            planted={
                "product": lambda values: np.where(values == 0, 0, X * SCALE),
                "quotient": lambda values: np.where(values == 0, 0, X / np.float32(P)),
            },
            tolerance=1e-8,
        ),
    ),
    Choice(
        "dropout-zero",
        "Dropped elements are 0 for every source value.",
        "They are selected, not multiplied by a mask.",
        {
            "dropout": (
                "dropped elements are +0 for every source value",
                "Dropped elements are selected, not multiplied",
            )
        },
        {"selected": "0", "multiplied": "an infinite one becomes NaN"},
        ProbeProblem(
            "MPSCNNDropout",
            "forward",
            {"x": [np.inf], "keepProbability": [0.5]},
            lambda machine: _nan_or_zero(machine.apple.dropped(0.5, np.full((1, 8, 8, 4), np.inf))[0]),
            {"selected": [0, 1], "multiplied": [1, 0]},
            {"keepProbability": 0.5, "result": "whether elements are NaN, and are 0"},
            planted={"selected": lambda values: values, "multiplied": _with_nan},
        ),
    ),
    Choice(
        "dropout-generator",
        "A mask is drawn by Philox4x32-10, and each encode draws another one.",
        "Apple documents no generator. That of MPSGraph was measured on an M4 Pro (charon): Philox4x32-10 with the key "
        "(seed, 0) and the counter (0, 0, 0, block). Nothing says that dropout uses it, but the first mask is drawn so.",
        {
            "dropout": (
                "generator, layout of counter and key, sequence numbers",
                "The masks of mpsref are defined to the bit",
            )
        },
        {
            "philox": "the first mask is that of mpsref, bit for bit, and another one at each encode",
            "philox, same": "the mask of mpsref, the same one at each encode",
            "p": "a share p is kept, by other numbers, another mask at each encode",
            "same": "a share p, by other numbers, the same mask",
            "1-p": "a share 1 - p",
        },
        ProbeProblem(
            "MPSCNNDropout",
            "forward",
            {"keepProbability": [0.75]},
            lambda machine: machine.apple.distribution(0.75),
            {"philox": [1, 1, 1], "philox, same": [1, 0, 1], "p": [1, 1, 0], "same": [1, 0, 0], "1-p": [0, 1, 0]},
            {
                "keepProbability": 0.75,
                "columns": "whether the share is p within 5 deviations; whether masks differ; whether the first is that "
                "of Philox4x32-10 with counter (0, 0, 0, block) and key (1, 0)",
            },
            planted={
                "philox": lambda values: values,
                "philox, same": lambda values: Dropout(0.75, 1).mask(values.shape) / 0.75,
                "p": lambda values: np.flip(values),
                "same": lambda values: np.where(np.arange(values.size).reshape(values.shape) % 4 == 0, 0, 4 / 3),
                "1-p": lambda values: np.where(values == 0, 4, 0),
            },
        ),
    ),
    Choice(
        "dropout-smallest",
        "p is at least 2^-126.",
        "The scale is finite then.",
        {"dropout": "p is at least 2^-126"},
        tag="design",
    ),
    Choice(
        "dropout-mask-format",
        "A mask is an array of 0 and 1, which can be passed.",
        "The format of Apple's bytes is not documented.",
        {"dropout": "format of the mask, argument `mask=`"},
        tag="design",
    ),
    Choice(
        "dropout-state",
        "A gradient kernel with another p, seed or mask stride than its state raises.",
        "Its result would be wrong without a message. In MPS the result is undefined.",
        {"dropout": "a gradient kernel with another p, seed or mask stride"},
        tag="design",
    ),
    Choice(
        "dropout-whole-images",
        "The forward kernel has the default offset, clip rectangle and channels.",
        "Apple does not describe a mask for others.",
        {"dropout": "offset, clip rectangle and channels of the forward kernel"},
        tag="design",
    ),
)
