"""Rules that no choice lists, as wrong kernels over the fake: the probe must answer "none of the alternatives".

A problem that takes such a kernel for an alternative is blind: its data agree by chance. The page "open choices" names
the rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias
from unittest import mock

import numpy as np
from numpy.typing import ArrayLike

from mpsref import Convolution
from mpsref.arguments.arrays import Array
from mpsref.conformance import families
from mpsref.conformance.case import operation_named
from mpsref.conformance.mutants import computed, correct, of_input, of_result, of_spec
from mpsref.mps.yolo_loss import Boxes, YOLOLoss
from mpsref.registry import Backend, Implementation, Operation, OperationKey, get_backend
from mpsref_apple.probe.declare import Choice, Machine, ProbeProblem
from mpsref_apple.probe.run import NONE, Results, fake, probed, result_of
from tests.subjects import unlisted_mpsgraph

Writes: TypeAlias = Callable[[Any, Any], ArrayLike]
"""``writes(values, given)`` returns what a kernel writes in place of ``values``."""


class Given:
    """The inputs of a problem as attributes, in float64, and its parameters."""

    def __init__(self, problem: ProbeProblem) -> None:
        self.parameters, self.direction, self._inputs = problem.parameters, problem.direction, problem.inputs

    def __getattr__(self, name: str) -> Array:
        return np.asarray(self._inputs[name], np.float64)


class Rule(NamedTuple):
    """What a kernel could do and no alternative says."""

    text: str
    kernels: Mapping[str, Implementation] = {}
    """Implementations by the name of an operation."""
    writes: Writes | None = None
    patch: tuple[Any, str, Any] | None = None
    """An object, the name of an attribute, and its value."""


@contextlib.contextmanager
def planted(rule: Rule, problem: ProbeProblem) -> Iterator[Machine]:
    """Yield the backend over a fake that follows a rule."""
    correct_ones = get_backend("reference").implementations
    wrong: dict[OperationKey, Implementation] = {operation_named(name): kernel for name, kernel in rule.kernels.items()}
    backend = Backend(f"unlisted: {rule.text}", {**correct_ones, **wrong}) if wrong else "reference"
    with contextlib.ExitStack() as stack:
        if rule.patch is not None:
            stack.enter_context(mock.patch.object(*rule.patch))
        on, device = stack.enter_context(fake(backend))
        if rule.writes is not None:
            names = problem.writes.split(", ")
            for number, name in enumerate(names):
                number_of_one = number if len(names) > 1 else None
                device.planted[problem.kernel, name] = _writing(rule.writes, Given(problem), number_of_one)
        yield on


def _writing(writes: Writes, given: Given, number: int | None) -> Callable[[Array], Any]:
    def change(values: Array) -> Any:
        with np.errstate(all="ignore"):
            result = writes(np.asarray(values), given)
        if given.direction == "property":
            return result if number is None else np.ravel(result)[number]
        return np.reshape(result, np.shape(values))

    return change


def answered(choice: Choice, rule: Rule) -> Results:
    """Run a choice over a fake that follows a rule."""
    results: list[Any] = []
    for problem in choice.problems:
        with planted(rule, problem) as on:
            results.append(result_of(problem, on))
    return Results(choice, results)


# --- how rules are made -----------------------------------------------------------------------------------------------


def kernel(name: str, text: str, implementation: Implementation | None = None) -> Rule:
    """Return the rule of an implementation of an operation; by default the mutant of the operation with this text."""
    return Rule(text, {name: implementation or _mutant(name, text)})


def _mutant(name: str, text: str) -> Implementation:
    key = operation_named(name)
    (table,) = [one.mutants[key] for one in families.load() if key in one.mutants]
    return table[text]


def _where(condition: Callable[..., Any], value: Any) -> Implementation:
    """Write a number, or ``value(result, problem, *inputs)``, where ``condition(*inputs)`` holds."""

    def change(result: Array, problem: Any, *inputs: Array) -> Array:
        found = value(result, problem, *inputs) if callable(value) else value
        return np.where(np.broadcast_to(condition(*inputs), result.shape), found, result)

    return of_result(change)


def _reading(name: str, mode: Any) -> dict[str, Implementation]:
    """Windows read outside of an image what ``numpy.pad`` has there; its gradient is the adjoint."""

    def pads(problem: Any) -> list[tuple[int, int]]:
        return [(0, 0), *((4, 4) if n > 1 else (0, 0) for n in problem.source_shape[1:3]), (0, 0)]

    def enlarged(problem: Any) -> Any:
        (y, _), (x, _) = around = pads(problem)[1:3]
        n, height, width, channels = problem.source_shape
        dy, dx = problem.spec.offset
        shape = n, height + sum(around[0]), width + sum(around[1]), channels
        return replace(problem, spec=replace(problem.spec, offset=(dy + y, dx + x)), source_shape=shape)

    def forward(problem: Any, x: Array) -> Array:
        return correct(enlarged(problem), np.pad(x, pads(problem), mode))

    def gradient(problem: Any, g: Array, *x: Array) -> Array:
        large = correct(enlarged(problem), g, *(np.pad(one, pads(problem), mode) for one in x))
        dx = np.zeros(problem.source_shape)
        places = np.pad(np.arange(dx.size).reshape(dx.shape), pads(problem), mode)
        np.add.at(dx.reshape(-1), places.ravel(), large.ravel())
        return dx

    return {f"{name}.forward": computed(forward), f"{name}.gradient": computed(gradient)}


def reading(name: str, mode: str, text: str) -> Rule:
    """Return the rule that an operation reads outside of an image what ``numpy.pad`` has there."""
    return Rule(text, _reading(name, mode))


def _windows(problem: Any, x: Array) -> Array:
    """Return windows of one row that follow each other, (windows, taps)."""
    return x.reshape(-1, problem.spec.kernel_size[1])


def _last_nan(problem: Any, x: Array) -> Array:
    """The maximum by ``best >= value ? best : value``: a NaN counts at the last tap."""
    best = _windows(problem, x)[:, 0]
    for value in _windows(problem, x)[:, 1:].T:
        best = np.where(best >= value, best, value)
    return best.reshape(1, 1, -1, 1)


def _mirrored(problem: Any, *images: Array) -> Array:
    """Take the first from the right, of windows that cover the image."""
    return correct(problem, *(one[:, :, ::-1] for one in images))[:, :, ::-1]


def _of_two(g: Array) -> Array:
    """The gradient of an average of 2 by windows that follow each other, without the pixel before the image."""
    return np.append(np.repeat(g.ravel() / 2, 2)[1:], 0)


def _moved(row: Array, by: int) -> Array:
    """Move a row to the right, and put zeros in place of what was there."""
    found = np.zeros_like(row)
    inside = (np.arange(row.size) - by >= 0) & (np.arange(row.size) - by < row.size)
    found[inside] = row[(np.arange(row.size) - by)[inside]]
    return found


def _float32_sums(order: str) -> Implementation:
    """Add the taps of windows of four that follow each other in float32, in an order."""

    def average(problem: Any, x: Array) -> Array:
        taps = _windows(problem, x).astype(np.float32)
        if order == "from the end":
            sums = np.cumsum(x.ravel()[::-1], dtype=np.float32)[::-1]
            found = sums[::4] - np.append(sums[4::4], np.float32(0))
        else:
            found = (taps[:, 0] + taps[:, 2]) + (taps[:, 1] + taps[:, 3])
        return (found / 4).reshape(1, 1, -1, 1)

    return computed(average)


def _by_rounded_norm(number: Callable[[Any], Any]) -> Implementation:
    """Divide by a norm that is rounded; the image is one window."""
    return of_result(lambda dx, problem, g, x: dx * np.linalg.norm(x) / number(x))


def _bfloat16(value: Any) -> Any:
    bits = np.float32(value).view(np.uint32) + np.uint32(0x8000)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def _to_float16_upwards(value: Array) -> Array:
    """Round to a float16 that is not smaller."""
    near = value.astype(np.float16)
    return np.where(near < value, np.nextafter(near, np.float16(np.inf)), near)


def _to_odd(value: Array) -> Array:
    """Round to the nearest float16, ties to odd."""
    near = value.astype(np.float16)
    beyond = np.nextafter(near, np.where(near < value, np.float16(np.inf), np.float16(-np.inf)).astype(np.float16))
    tie = (value != near) & (abs(value - near) == abs(beyond.astype(float) - value))
    return np.where(tie, beyond, near)


def _adjoint(given: Any, mode: Any) -> Array:
    """The data gradient of a convolution of one row, whose source was padded by ``numpy.pad``."""
    w, g = given.weights.ravel(), given.g.ravel()
    large, dx = np.convolve(g, w), np.zeros(g.size)
    np.add.at(dx, np.pad(np.arange(g.size), 1, mode), large)
    return dx


def _interpolated(x: Array, positions: Any) -> Array:
    """Sample one row at positions; beyond its ends it is 0."""
    found: Array = np.interp(positions, np.arange(x.size), x.ravel(), 0, 0)
    return found


def _half_pixel(outputs: int, length: int) -> Array:
    """Return the weights of half-pixel centres, (outputs, length), with zeros outside."""
    positions = (np.arange(outputs) + 0.5) * length / outputs - 0.5
    weights: Array = np.maximum(1 - abs(positions[:, None] - np.arange(length)), 0)
    return weights


def _reordered(order: str) -> Implementation:
    """Take the elements of an image in another order of its axes."""
    axes = [0, *(1 + "hwc".index(axis) for axis in order)]
    return computed(lambda problem, x: x.transpose(axes).reshape(problem.result_shapes[0]))


def _after_the_first(means: Array, given: Any, mean: Any) -> Array:
    """Return the mean of the first call, and another one after the second."""
    return np.where(means == given.first.mean(), means, mean)


def _repeated(pixel: Array, times: int) -> list[float]:
    """Return the channels of a pixel, and the last of them more often."""
    return [*pixel.ravel().tolist(), *[float(pixel.ravel()[-1])] * times]


def _mean_index(x: Array) -> Array:
    same = x == x.max(axis=3, keepdims=True)
    index: Array = (same * np.arange(x.shape[3])).sum(axis=3, keepdims=True) / same.sum(axis=3, keepdims=True)
    return index


def _squared(given: Any) -> Any:
    """Return the squared error, or its slope."""
    error = given.y - given.t
    return error**2 if given.direction == "forward" else 2 * error


def _spatial(x: Array, mode: Any) -> Any:
    """Normalize one row by windows of 3 of what ``numpy.pad`` has outside, with the default parameters."""
    squares = np.convolve(np.pad(x.ravel(), 1, mode) ** 2, np.ones(3), "valid")
    return x.ravel() / (1 + squares / 3) ** 5


def _fused(x: Array, mean: Array, variance: Array) -> Any:
    scale = np.float32(1 / np.sqrt(variance))
    return np.float64(scale) * x + np.float32(-mean * scale)


def _normalized(x: Array, epsilon: Any) -> Any:
    return (x - x.mean()) / np.sqrt(x.var() + epsilon)


def _gelu_slope(x: Array) -> Any:
    """The derivative of x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + np.tanh(u)) + 0.5 * x * slope / np.cosh(u) ** 2


def _sigmoid_slope(x: Array) -> Any:
    """The derivative of x sigmoid(1.702 x)."""
    s = 1 / (1 + np.exp(-1.702 * x))
    return s + 1.702 * x * s * (1 - s)


def _resized(positions: Callable[[Any, Any], Any]) -> Implementation:
    """Resize one row: positions of (begin and end of the box, length) and of the outputs."""

    def resize(problem: Any, x: Array) -> Array:
        _, begin, _, end = getattr(problem.spec, "box", (0.0, 0.0, 1.0, 1.0))
        outputs = np.arange(problem.result_shapes[0][2])
        return _interpolated(x, positions((begin, end, x.shape[2]), outputs)).reshape(1, 1, -1, 1)

    return computed(resize)


def _with_order(order: Sequence[int]) -> Implementation:
    """Normalize groups of channels in another order."""
    order = list(order)

    def normalize(problem: Any, x: Array, *others: Array) -> Array:
        y = np.empty_like(x)
        y[..., order] = correct(problem, x[..., order], *others)
        return y

    return computed(normalize)


def _shifted(axis_offset: int, field: str = "kernel_offset") -> Implementation:
    return of_spec(**{field: lambda spec: (getattr(spec, field)[0], getattr(spec, field)[1] + axis_offset)})


def _extra(given: Any) -> tuple[int, int]:
    """Return centre and number of padded pixels of a pooling kernel for valid windows alone."""
    size, stride = given.parameters["kernelWidth"], given.parameters["strideInPixelsX"]
    length = int(given.length[0])
    return size // 2, (length - size) // stride * stride + size - length


def _placed(text: str, pad: Callable[[int], int]) -> Rule:
    """A padding policy pads so many pixels before the image."""
    return Rule(text, writes=lambda _, a: (_extra(a)[0] - pad(_extra(a)[1]), 0, 0))


def _constant(text: str, *values: float) -> Rule:
    """A property has another value."""
    return Rule(text, writes=lambda _, a: values if values[1:] else values[0])


def _softmax(values: Array) -> Any:
    return np.exp(values) / np.exp(values).sum()


def _best_alone(self: YOLOLoss, y: Array, t: Array) -> Boxes:
    boxes = YOLO(self, y, t)
    best = boxes.overlap.argmax(axis=-1)[..., None] == np.arange(boxes.overlap.shape[-1])
    return boxes._replace(has_object=best, is_absent=~best & (boxes.overlap < self.absence))


def _of_the_label(self: YOLOLoss, y: Array, t: Array) -> Boxes:
    """The intersection counts relative to the label, not to the union."""
    size = np.array(self.anchors) * np.exp(y[..., 2:4].astype(float))
    share = np.minimum(size, t[..., 2:4]).prod(-1) / t[..., 2:4].prod(-1)
    boxes = YOLO(self, y, t)
    best = share.argmax(axis=-1)[..., None] == np.arange(share.shape[-1])
    has = best | (share > self.presence)
    return boxes._replace(has_object=has, is_absent=~has & (share < self.absence))


YOLO = YOLOLoss.assigned


def _sizes(given: Any) -> tuple[Array, Array, Array]:
    """Return raw sizes, sizes of the label and the anchor of the only box."""
    return given.y.ravel()[2:4], given.t.ravel()[2:4], given.anchors.ravel()


def _in_sizes(function: Callable[..., Any]) -> Writes:
    """Write the gradient of the sizes of the only box: ``function(raw, label, anchor, confidence)``."""

    def writes(values: Any, given: Any) -> Array:
        result = np.array(values, float)
        result[..., 2:4] = function(*_sizes(given), given.y.ravel()[4])
        return result

    return writes


def _overlap(raw: Any, label: Any, anchor: Any, union: bool) -> Any:
    """The derivative of the overlap of nested boxes for the raw sizes, of the intersection or of the union alone."""
    area, whole = float(np.prod(anchor * np.exp(raw))), float(np.prod(label))
    return np.full(2, area / whole if not union else -area * area / whole**2)


def _halved(values: Array) -> Array:
    return np.where(np.arange(values.size).reshape(values.shape) % 2, values, 0)


STEP = "StochasticGradientDescent.step"
LOG_EPSILON = 1e-3

RULES: dict[str, tuple[Rule, ...]] = {
    "max-tie": (
        kernel("PoolingMax.gradient", "ties are broken in column order"),
        kernel("PoolingMax.gradient", "the first from the right in the top row", computed(_mirrored)),
    ),
    "max-nan": (
        kernel("PoolingMax.forward", "a NaN counts at the last tap alone", computed(_last_nan)),
        kernel("PoolingMax.forward", "a NaN counts as 0", of_input("x", lambda x, p: np.where(np.isnan(x), 0, x))),
        kernel("PoolingMax.gradient", "a NaN counts as minus infinity"),
        kernel("PoolingMax.gradient", "a window with a NaN has no gradient"),
    ),
    "max-clamp-dilated": (
        reading("PoolingMax", "constant", "taps outside are 0"),
        reading("PoolingMax", "reflect", "taps outside are mirrored"),
    ),
    "max-clamp-outside": (
        reading("PoolingMax", "wrap", "taps outside are those of the other end"),
        reading("PoolingMax", "reflect", "taps outside are mirrored"),
        kernel(
            "PoolingMax.gradient",
            "the nearest pixel, which has no gradient",
            _where(lambda g, x: np.arange(x.shape[2])[:, None] == x.shape[2] - 1, lambda dx, p, g, x: g[:, :, 1:2]),
        ),
    ),
    "l2-clamp": (
        reading("PoolingL2Norm", "reflect", "taps outside are mirrored"),
        kernel("PoolingL2Norm.forward", "partial windows are scaled up"),
    ),
    "l2-clamp-gradient": (
        reading("PoolingL2Norm", "reflect", "taps outside are mirrored"),
        reading("PoolingL2Norm", "constant", "taps outside are left out, in the norm too"),
    ),
    "l2-zero": (
        kernel("PoolingL2Norm.gradient", "1", _where(lambda g, x: x == 0, 1.0)),
        kernel("PoolingL2Norm.gradient", "1 / sqrt(K)", _where(lambda g, x: x == 0, 0.5**0.5)),
    ),
    "l2-clamp-outside": (
        reading("PoolingL2Norm", "wrap", "taps outside are those of the other end"),
        kernel(
            "PoolingL2Norm.forward",
            "the nearest pixel, once",
            of_result(lambda y, p, x: y / np.sqrt([[1 if k == 1 else 2] for k in range(y.shape[2])])),
        ),
    ),
    "l2-overflow": (
        kernel(
            "PoolingL2Norm.forward", "the largest float32", of_result(lambda y, *_: np.finfo(np.float32).max + 0 * y)
        ),
        kernel("PoolingL2Norm.forward", "the largest magnitude", of_result(lambda y, p, x: abs(x).max() + 0 * y)),
    ),
    "l2-gradient-norm": (
        kernel(
            "PoolingL2Norm.gradient",
            "the norm is rounded to bfloat16",
            _by_rounded_norm(lambda x: _bfloat16(np.linalg.norm(x))),
        ),
        kernel(
            "PoolingL2Norm.gradient",
            "the sum of squares is rounded to float16",
            _by_rounded_norm(lambda x: np.sqrt(float(np.float16((x * x).sum())))),
        ),
    ),
    "pooling-kernel-offset": (
        Rule("it is added, one pixel further", writes=lambda _, a: _moved(_of_two(a.g), -1 - int(a.kernelOffsetX[0]))),
        Rule("it is added, two pixels back", writes=lambda _, a: _moved(_of_two(a.g), 2 - int(a.kernelOffsetX[0]))),
        Rule("it is subtracted", writes=lambda _, a: _moved(_of_two(a.g), int(a.kernelOffsetX[0]))),
        Rule("it is multiplied by the stride", writes=lambda _, a: _moved(_of_two(a.g), -2 * int(a.kernelOffsetX[0]))),
    ),
    "pooling-primary-offset": (
        Rule(
            "the primary offset alone counts",
            writes=lambda _, a: _moved(np.repeat(a.g / 3, 3), -3 * int(a.primaryOffsetX[0])),
        ),
        Rule(
            "the kernel offset alone counts",
            writes=lambda _, a: _moved(np.repeat(a.g / 3, 3), -int(a.kernelOffsetX[0])),
        ),
    ),
    "pooling-state-position": (
        Rule("the first pixel is the centre of the first window", writes=lambda y, a: np.roll(y, -2)),
        Rule("the last pixel is that of the last window", writes=lambda y, a: np.roll(y, 1)),
    ),
    "pooling-state-offset": (
        Rule("minus the offset of the forward kernel", writes=lambda _, a: -a.parameters["offset"][1]),
        Rule("half the size", writes=lambda _, a: a.parameters["kernel_size"][1] // 2),
    ),
    "pooling-strides": (
        Rule("half the size", writes=lambda _, a: int(a.kernelWidth[0]) // 2),
        _constant("2", 2),
    ),
    "average-clamp": (
        reading("PoolingAverage", "edge", "the nearest pixels are averaged"),
        reading("PoolingAverage", "reflect", "mirrored pixels are averaged"),
    ),
    "window-offset": (
        kernel("PoolingAverage.forward", "the offset is the left edge"),
        kernel("PoolingAverage.forward", "the offset has the other sign"),
    ),
    "summation": (
        kernel("PoolingAverage.forward", "even and odd taps apart", _float32_sums("even and odd")),
        kernel("PoolingAverage.forward", "running sums from the end", _float32_sums("from the end")),
    ),
    "convolution-secondary-offset": (
        kernel("Convolution.gradient_weights", "the windows start one pixel late", _shifted(-1, "offset")),
        kernel("Convolution.gradient_weights", "the kernel is rotated by 180 degrees"),
    ),
    "convolution-left-edge": (
        kernel("Convolution.gradient_weights", "the windows start one pixel late", _shifted(-1, "offset")),
        kernel("Convolution.gradient_weights", "the kernel is rotated by 180 degrees"),
    ),
    "convolution-infinite-weight": (
        kernel("Convolution.forward", "outside reads the border pixel in both edge modes"),
        kernel(
            "Convolution.forward",
            "weights are limited to the largest float32",
            of_input("weights", lambda w, p: np.minimum(w, np.finfo(np.float32).max)),
        ),
    ),
    "convolution-clamp-gradient": (
        Rule("the adjoint of mirrored reads", writes=lambda _, a: _adjoint(a, "reflect")),
        Rule("the adjoint of reads at the other end", writes=lambda _, a: _adjoint(a, "wrap")),
    ),
    "convolution-bias-gradient": (
        Rule("the mean over the pixels", writes=lambda _, a: a.g.mean()),
        Rule("the sum over the first row", writes=lambda _, a: a.g[0, 0].sum()),
    ),
    "gradient-option-destination": (
        Rule("0", writes=lambda y, a: 0 * y),
        Rule(
            "the data gradient is added",
            writes=lambda _, a: (
                a.destination + Convolution((1, 3), (1, 2)).gradient_data(a.g, a.weights, (1, 1, 5, 1)).ravel()
            ),
        ),
    ),
    "convolution-accumulates": (
        Rule("the mean of the encodes", writes=lambda w, a: w / 2),
        Rule("the first encode is kept", writes=lambda w, a: w / 3),
    ),
    "convolution-batch-sum": (
        kernel("Convolution.gradient_weights", "only the last image counts"),
        kernel(
            "Convolution.gradient_weights",
            "the mean over the pixels",
            of_result(lambda dw, p, g, x: dw / g.shape[2]),
        ),
    ),
    "convolution-correlation": (
        kernel("Convolution.forward", "the rows of the kernel are flipped"),
        kernel("Convolution.forward", "the columns of the kernel are flipped"),
    ),
    "convolution-layout": (
        kernel("Convolution.forward", "weights are (out, in, height, width)"),
        kernel("Convolution.forward", "weights are (height, width, in, out)"),
    ),
    "transpose-anchor": (
        kernel("ConvolutionTranspose.forward", "the kernel is anchored at its first tap"),
        kernel("ConvolutionTranspose.forward", "the kernel is anchored at its last tap"),
    ),
    "transpose-groups": (
        kernel("ConvolutionTranspose.forward", "every group takes the channels of the first"),
        kernel(
            "ConvolutionTranspose.forward",
            "the channels of the result are interleaved",
            of_result(lambda y, p, *_: y.reshape(*y.shape[:3], 2, -1).swapaxes(3, 4).reshape(y.shape)),
        ),
    ),
    "transpose-paired": (
        kernel("ConvolutionTranspose.forward", "-o for an even kernel, too", _shifted(-1)),
        kernel("ConvolutionTranspose.forward", "o", _shifted(-5)),
    ),
    "fully-connected-order": (
        kernel("FullyConnected.forward", "weights are (out, in, height, width)"),
        kernel("FullyConnected.forward", "weights are (height, width, in, out)"),
    ),
    "weights-at-encode": (
        Rule("the reload counts for the encode before it", writes=lambda y, a: a.weights + a.reloaded - y),
        Rule(
            "the reload adds to the weights",
            writes=lambda y, a: np.where(y == a.reloaded, a.weights + a.reloaded, y),
        ),
    ),
    "reload-without-biases": (
        Rule("weights and biases are kept", writes=lambda _, a: a.x + a.biases),
        Rule("the weights are the biases, too", writes=lambda _, a: a.x * a.weights + a.weights),
    ),
    "weight-rounding": (
        Rule("the weight is rounded before it is folded alone", writes=lambda _, a: np.float16(a.weights) * a.gamma),
        Rule(
            "the weight is rounded upwards before it is folded, and after it to the nearest",
            writes=lambda _, a: np.float16(_to_float16_upwards(a.weights) * a.gamma),
        ),
    ),
    "transpose-gradient-geometry": (
        kernel("ConvolutionTranspose.gradient_data", "a kernel offset counts with the other sign", _shifted(-1)),
        kernel("ConvolutionTranspose.gradient_data", "a kernel offset counts in result pixels", _shifted(2)),
    ),
    "spatial-gradient": (
        kernel("SpatialNormalization.gradient", "the adjoint windows are not mirrored"),
        kernel("SpatialNormalization.gradient", "1 / N is missing"),
    ),
    "contrast-gradient": (
        kernel("LocalContrastNormalization.gradient", "the term of the mean is missing"),
        kernel("LocalContrastNormalization.gradient", "the adjoint windows are not mirrored"),
    ),
    "channel-gradient": (
        kernel("CrossChannelNormalization.gradient", "the factor 2 is missing"),
        kernel("CrossChannelNormalization.gradient", "the exponent of the term of the window is -beta"),
    ),
    "channel-divisor": (
        kernel("CrossChannelNormalization.forward", "alpha is not divided by the window size"),
        kernel("CrossChannelNormalization.forward", "the window continues at the other end"),
    ),
    "windowed-edge-mode": (
        Rule("mirrored pixels", writes=lambda _, a: _spatial(a.x, "reflect")),
        Rule("the pixels of the other end", writes=lambda _, a: _spatial(a.x, "wrap")),
    ),
    "contrast-centred": (
        kernel("LocalContrastNormalization.forward", "the variance is not centred"),
        kernel("LocalContrastNormalization.forward", "the variance is unbiased"),
    ),
    "channel-default-size": (_constant("7", 7), _constant("0", 0)),
    "contrast-outside": (
        reading("LocalContrastNormalization", "edge", "the nearest pixels are counted"),
        reading("LocalContrastNormalization", "reflect", "mirrored pixels are counted"),
    ),
    "windowed-even": (
        kernel("SpatialNormalization.forward", "the window is one pixel larger"),
        kernel("SpatialNormalization.forward", "the pixel itself is left out of its window"),
    ),
    "batch-gamma": (
        Rule("the result is the source", writes=lambda _, a: a.x),
        Rule("the mean is subtracted alone", writes=lambda _, a: a.x - a.x.mean()),
    ),
    "batch-weighting": (
        Rule("the last call alone", writes=lambda m, a: _after_the_first(m, a, a.second.mean())),
        Rule(
            "the sum of the means",
            writes=lambda m, a: _after_the_first(m, a, sum(map(np.mean, (a.first, a.second)))),
        ),
    ),
    "batch-restart": (
        Rule("the first call is kept", writes=lambda m, a: np.full_like(m, a.first.mean())),
        Rule(
            "a running mean with the factor 0.1",
            writes=lambda m, a: _after_the_first(m, a, 0.9 * a.first.mean() + 0.1 * a.second.mean()),
        ),
    ),
    "batch-variance": (
        Rule("the mean of the squares", writes=lambda _, a: (a.x**2).mean()),
        Rule("the standard deviation", writes=lambda _, a: a.x.std()),
    ),
    "batch-sums": (
        Rule("the sum of both", writes=lambda s, a: 4 * s),
        Rule("not divided by the deviation", writes=lambda _, a: (a.g * (a.x - a.mean)).sum()),
    ),
    "batch-frozen": (
        kernel(
            "BatchNormalization.gradient",
            "the mean is that of the batch",
            of_result(lambda dx, p, *_: dx - dx.mean()),
        ),
        kernel(
            "BatchNormalization.gradient",
            "the variance is that of the batch",
            of_result(
                lambda dx, p, g, x, mean, variance, *_: (
                    dx - (x - mean) * (dx * (x - mean)).mean() / (variance + p.spec.epsilon)
                )
            ),
        ),
    ),
    "batch-evaluation": (
        kernel(
            "BatchNormalization.forward",
            "the mean is subtracted in float16",
            of_result(lambda y, p, x, mean, *_: np.float16(x).astype(float) - np.float16(mean) + 0 * y),
        ),
        kernel(
            "BatchNormalization.forward",
            "a x + b, the sum rounded once",
            of_result(lambda y, p, x, mean, variance, *_: _fused(x, mean, variance)),
        ),
    ),
    "batch-zero-variance": (
        kernel("BatchNormalization.forward", "0", of_result(lambda y, *_: 0 * np.isnan(y))),
        kernel(
            "BatchNormalization.forward",
            "epsilon is at least 1e-5",
            of_result(lambda y, p, x, mean, *_: (x - mean) / np.sqrt(1e-5)),
        ),
    ),
    "batch-epsilon": (
        Rule("the sum of both", writes=lambda _, a: _normalized(a.x, a.epsilon + a.source)),
        Rule("the larger of both", writes=lambda _, a: _normalized(a.x, np.maximum(a.epsilon, a.source))),
        Rule("none", writes=lambda _, a: _normalized(a.x, 0)),
    ),
    "instance-variance": (
        kernel(
            "InstanceNormalization.forward",
            "divided by M + 1",
            of_result(lambda y, p, x, *_: (x - x.mean()) / np.sqrt(x.var() * x.size / (x.size + 1) + p.spec.epsilon)),
        ),
        kernel("InstanceNormalization.forward", "epsilon is outside the root"),
    ),
    "normalization-constant": (
        Rule("NaN", writes=lambda y, a: np.full_like(y, np.nan)),
        Rule("rounding errors of some elements", writes=lambda y, a: _halved(y + 1)),
    ),
    "group-order": (
        kernel("GroupNormalization.forward", "every channel is a group"),
        kernel("GroupNormalization.forward", "the outer channels, and the inner ones", _with_order((0, 3, 1, 2))),
    ),
    "instance-overwrites": (
        Rule("the mean of the encodes", writes=lambda _, a: 1.5 * a.g.sum()),
        Rule("the first encode is kept", writes=lambda _, a: a.g.sum()),
    ),
    "neuron-absolute": (
        kernel("Neuron.gradient", "1/2", _where(lambda g, x: x == 0, 0.5)),
        kernel("Neuron.gradient", "NaN", _where(lambda g, x: x == 0, np.nan)),
    ),
    "neuron-relun": (
        kernel("Neuron.gradient", "1", _where(lambda g, x: x > 3, 1.0)),
        kernel("Neuron.gradient", "a", _where(lambda g, x: x > 3, lambda dx, p, g, x: p.spec.a)),
    ),
    "neuron-gelu": (
        kernel("Neuron.gradient", "of the approximation by tanh", of_result(lambda dx, p, g, x: g * _gelu_slope(x))),
        kernel(
            "Neuron.gradient",
            "of the approximation by a sigmoid",
            of_result(lambda dx, p, g, x: g * _sigmoid_slope(x)),
        ),
    ),
    "neuron-hardsigmoid": (
        kernel(
            "Neuron.gradient",
            "where a x is in [0, 1]",
            of_result(lambda dx, p, g, x: p.spec.a * (abs(p.spec.a * x - 0.5) <= 0.5)),
        ),
        kernel("Neuron.gradient", "everywhere", of_result(lambda dx, p, g, x: p.spec.a * g)),
    ),
    "neuron-nan": (
        kernel("Neuron.forward", "infinity", _where(np.isnan, np.inf)),
        kernel("Neuron.forward", "the largest float16", _where(np.isnan, 65504.0)),
    ),
    "neuron-defaults": (_constant("a = 1, b = 0, c = 0", 1, 0, 0), _constant("a = 0, b = 0, c = 1", 0, 0, 1)),
    "upsampling-clamp": (
        kernel("UpsamplingBilinear.forward", "the image is periodic"),
        kernel(
            "UpsamplingBilinear.forward",
            "the line through the last two pixels continues",
            _where(
                lambda x: np.arange(2 * x.shape[2])[:, None] == 5, lambda y, p, x: 1.5 * x[0, 0, -1] - 0.5 * x[0, 0, -2]
            ),
        ),
    ),
    "upsampling-positions": (
        kernel("UpsamplingBilinear.forward", "corners are always aligned"),
        kernel("UpsamplingBilinear.forward", "pixels are one too early"),
    ),
    "upsampling-weight-zero": (
        kernel("UpsamplingBilinear.forward", "the nearest pixel is taken"),
        kernel(
            "UpsamplingBilinear.forward",
            "numbers are limited to the largest float32",
            of_input("x", lambda x, p: np.minimum(x, np.finfo(np.float32).max)),
        ),
    ),
    "upsampling-aligned-gradient": (
        Rule("that of nearest pixels", writes=lambda y, a: a.g.reshape(3, 2).sum(axis=1)),
        Rule("that of half-pixel centres", writes=lambda y, a: _half_pixel(6, 3).T @ a.g.ravel()),
    ),
    "resize-positions": (
        kernel("ResizeBilinear.forward", "corners are aligned", _resized(lambda box, i: i * (box[2] - 1) / i[-1])),
        kernel("ResizeBilinear.forward", "the nearest pixel before it", _resized(lambda box, i: i * box[2] // len(i))),
    ),
    "crop-boxes": (
        kernel(
            "CropAndResizeBilinear.forward",
            "outputs begin at the box and do not reach its end",
            _resized(lambda box, i: (box[0] + i * (box[1] - box[0]) / len(i)) * (box[2] - 1)),
        ),
        kernel(
            "CropAndResizeBilinear.forward",
            "the centres of the parts of a box between the first pixel and the last",
            _resized(lambda box, i: (box[0] + (i + 0.5) * (box[1] - box[0]) / len(i)) * (box[2] - 1)),
        ),
    ),
    "arithmetic-mask": (
        Rule("the bounds are inside", writes=lambda _, a: a.g * (a.x + a.y <= 4)),
        Rule("it is scaled as the result is", writes=lambda _, a: a.g * np.minimum(1, 4 / (a.x + a.y))),
    ),
    "arithmetic-mask-nan": (
        Rule("the bound", writes=lambda _, a: np.where(a.x + a.y < 4, a.g, 4)),
        Rule("NaN where it is clamped", writes=lambda _, a: np.where(a.x + a.y < 4, a.g, np.nan)),
    ),
    "arithmetic-bounds": (
        kernel("Arithmetic.forward", "1/0 is the largest float16", of_result(lambda z, *_: np.clip(z, -65504, 65504))),
        kernel("Arithmetic.forward", "1/0 is NaN", of_result(lambda z, *_: np.nan * z)),
    ),
    "compare-threshold": (
        kernel("Compare.forward", "x < y + threshold", of_result(lambda z, p, x, y: x < y + p.spec.threshold)),
        kernel("Compare.forward", "x < threshold y", of_result(lambda z, p, x, y: x < p.spec.threshold * y)),
    ),
    "concatenation-padding": (
        Rule("1", writes=lambda z, a: np.where(z == 0, 1, z)),
        Rule(
            "the last channel of the source",
            writes=lambda _, a: _repeated(a.x0, 3) + _repeated(a.x1, 2),
        ),
    ),
    "reshape-order": (
        kernel("Reshape.forward", "width, height, channel", _reordered("whc")),
        kernel("Reshape.forward", "channel, width, height", _reordered("cwh")),
    ),
    "reduction-weights": (
        Rule("by nothing", writes=lambda _, a: (a.x * a.weights).sum()),
        Rule(
            "by the root of the sum of squared weights",
            writes=lambda _, a: (a.x * a.weights).sum() / np.linalg.norm(a.weights),
        ),
    ),
    "reduction-tie": (
        kernel("Reduce.forward", "an index counts from 1"),
        kernel("Reduce.forward", "the mean index of equal ones", of_result(lambda y, p, x: _mean_index(x))),
    ),
    "reduction-nan": (
        kernel("Reduce.forward", "NaN counts as an infinity for an index"),
        kernel("Reduce.forward", "a maximum of NaN alone is NaN"),
        kernel("Reduce.forward", "a minimum of NaN alone is NaN"),
        kernel("Reduce.forward", "a NaN counts as 0", of_input("x", lambda x, p: np.where(np.isnan(x), 0, x))),
    ),
    "reduction-shapes": (
        Rule("the axes are reversed", writes=lambda size, a: size[::-1]),
        Rule("the height stays", writes=lambda size, a: [a.x.shape[1], 1, 1]),
    ),
    "yolo-object": (
        Rule("the best box alone", patch=(YOLOLoss, "assigned", _best_alone)),
        Rule("the intersection counts relative to the label", patch=(YOLOLoss, "assigned", _of_the_label)),
    ),
    "yolo-size": (
        Rule("the logarithm is not divided by the anchor", writes=_in_sizes(lambda w, t, a, c: 20 * (w - np.log(t)))),
        Rule("the quotient by the anchor, without a logarithm", writes=_in_sizes(lambda w, t, a, c: 20 * (w - t / a))),
    ),
    "yolo-rescore": (
        Rule(
            "the gradient goes through the union alone",
            writes=_in_sizes(lambda w, t, a, c: 200 * (0.4 - c) * _overlap(w, t, a, True)),
        ),
        Rule(
            "the gradient has the other sign",
            writes=_in_sizes(lambda w, t, a, c: 200 * (c - 0.4) * _overlap(w, t, a, False)),
        ),
    ),
    "loss-absolute": (
        kernel("Loss.gradient", "the sign of 0 is 1"),
        Rule("-1", writes=lambda _, a: np.where(a.y > a.t, 1, -1)),
    ),
    "loss-softmax": (
        Rule("sigmoid(y) - t", writes=lambda _, a: 1 / (1 + np.exp(-a.y)) - a.t),
        Rule("log(softmax(y)) - t", writes=lambda _, a: np.log(_softmax(a.y)) - a.t),
    ),
    "loss-hinge": (
        Rule("the squared hinge", writes=lambda _, a: np.maximum(1 - (2 * a.t - 1) * a.y, 0) ** 2),
        Rule("without a margin", writes=lambda _, a: np.maximum(-(2 * a.t - 1) * a.y, 0)),
    ),
    "loss-huber": (
        kernel("Loss.forward", "the quadratic part of Huber is not halved"),
        Rule(
            "delta is 1/4",
            writes=lambda _, a: (
                np.where(abs(a.y - a.t) < 0.25, (a.y - a.t) ** 2 / 2, 0.25 * abs(a.y - a.t) - 0.25**2 / 2)
                if a.direction == "forward"
                else np.clip(a.y - a.t, -0.25, 0.25)
            ),
        ),
        Rule(
            "the smooth square root of 1 + e^2",
            writes=lambda _, a: (
                np.sqrt(1 + (a.y - a.t) ** 2) - 1
                if a.direction == "forward"
                else (a.y - a.t) / np.sqrt(1 + (a.y - a.t) ** 2)
            ),
        ),
    ),
    "loss-divergence": (
        Rule("exp(y) - t", writes=lambda _, a: np.exp(a.y) - a.t),
        Rule("-t y", writes=lambda _, a: -a.t * a.y),
    ),
    "loss-cosine": (
        Rule("1 - the mean over the image", writes=lambda _, a: 1 - (a.y * a.t).mean()),
        Rule(
            "1 - the sum of the normalized vectors",
            writes=lambda _, a: 1 - (a.y * a.t).sum() / np.linalg.norm(a.y) / np.linalg.norm(a.t),
        ),
    ),
    "loss-weights": (
        Rule("their sum", writes=lambda _, a: (a.weights + 0.5) * _squared(a)),
        Rule("the larger one", writes=lambda _, a: np.maximum(a.weights, 0.5) * _squared(a)),
    ),
    "loss-across-softmax": (
        kernel("Loss.forward", "the mean is a sum"),
        kernel("Loss.forward", "by the images", of_result(lambda loss, p, y, *_: loss * y.shape[1] * y.shape[2])),
    ),
    "loss-across-weights": (
        kernel("Loss.forward", "weights of 0 count too"),
        kernel(
            "Loss.forward",
            "those of the last image",
            of_result(lambda loss, p, y, t, w: loss * np.count_nonzero(w) / np.count_nonzero(w[-1])),
        ),
    ),
    "loss-zero-logarithm": (
        Rule("the logarithm of y + 0.001", writes=lambda _, a: -a.t * np.log(a.y + LOG_EPSILON)),
        Rule("infinity", writes=lambda _, a: np.where(a.y == 0, np.inf, -a.t * np.log(a.y))),
    ),
    "optimizer-l1": (kernel(STEP, "the penalty is subtracted"), kernel(STEP, "L1 and L2 are swapped")),
    "optimizer-rescale": (kernel(STEP, "the rescale divides"), kernel(STEP, "the L2 penalty is twice the value")),
    "optimizer-negative": (
        Rule("their magnitudes count", writes=lambda _, a: a.value - 0.1 * (a.gradient + a.value)),
        Rule("a negative scale counts as 0", writes=lambda _, a: a.value + 0.1 * a.gradient),
    ),
    "optimizer-time-step": (
        Rule("one for each element", writes=lambda _, a: a.gradient.size),
        _constant("1000", 1000),
    ),
    "optimizer-clip-bounds": (_constant("0 and 1", 0, 1), _constant("-1000 and 1000", -1000, 1000)),
    "optimizer-biases": (
        Rule("the gradient is written", writes=lambda _, a: a.g.sum()),
        Rule("they are updated with half the rate", writes=lambda _, a: a.biases - 0.05 * a.g.sum()),
    ),
    "optimizer-constants": (
        Rule("beta2 is rounded to float16", writes=lambda _, a: (1 - float(np.float16(0.999))) * a.gradient**2),
        Rule("1 - beta2 is rounded to float16", writes=lambda _, a: float(np.float16(1 - 0.999)) * a.gradient**2),
    ),
    "dropout-scale": (
        Rule(
            "1/p is rounded to float16",
            writes=lambda y, a: np.where(y == 0, 0, a.x * np.float16(1 / a.keepProbability)),
        ),
        Rule("kept elements are not scaled", writes=lambda y, a: np.where(y == 0, 0, a.x)),
    ),
    "dropout-zero": (
        Rule("they keep their value", writes=lambda y, a: np.full_like(y, np.inf)),
        Rule("every second one is NaN", writes=lambda y, a: np.where(_halved(np.ones_like(y)) == 0, np.nan, y)),
    ),
    "dropout-generator": (
        Rule("everything is kept", writes=lambda y, a: np.ones_like(y)),
        Rule(
            "a share 1 - p, the same mask",
            writes=lambda y, a: np.where(np.arange(y.size).reshape(y.shape) % 4 == 0, 4, 0),
        ),
    ),
    "padding-crop": (_placed("nothing is cropped", lambda extra: 0), _placed("it is not halved", lambda extra: extra)),
    "padding-align-crop": (
        _placed("half of it at each side", lambda extra: extra // 2),
        _placed("at the side with the other sign", lambda extra: -extra),
    ),
    "padding-tensorflow-valid": (
        _placed("windows end at the last pixel", lambda extra: extra),
        _placed("windows start one pixel before", lambda extra: 1),
    ),
    "padding-reverse": (
        Rule("-(K - 1)", writes=lambda _, a: 1 - a.parameters["kernelWidth"]),
        Rule("the stride", writes=lambda _, a: a.parameters["strideInPixelsX"]),
    ),
    "padding-inverse": (_constant("the same policy", 0), _constant("the sides of remainders alone", 12)),
    "float16-store": (
        kernel("Neuron.forward", "towards plus infinity", of_result(lambda y, p, x: _to_float16_upwards(x))),
        kernel("Neuron.forward", "nearest, ties to odd", of_result(lambda y, p, x: _to_odd(x))),
    ),
    "graph-additions": (
        Rule("the last node alone", writes=lambda _, a: a.slopes[:, 2]),
        Rule("the mean", writes=lambda _, a: a.slopes.sum(axis=1) / 3),
    ),
    "graph-updates": (_constant("never", 0), _constant("once for each node", 3)),
    "graph-order": (
        Rule("the last of the order of first use first", writes=lambda order, a: order[::-1]),
        Rule("the first of the order of first use last", writes=lambda order, a: np.roll(order, -1)),
    ),
    "data-source-calls": (
        Rule("purge before biasTerms", writes=lambda ranks, a: [0, 1, 2, 4, 3]),
        Rule("purge after load", writes=lambda ranks, a: [0, 2, 3, 4, 1]),
    ),
}
"""For each choice, rules that it does not list."""

RULES |= {
    id: tuple(Rule(text, writes=writes) for text, writes in rules.items())
    for id, rules in unlisted_mpsgraph.WRITES.items()
}

NOT_EXAMINED = {"batch-barrier": "a BOOL has the two values that are listed"}
NOT_EXAMINED |= unlisted_mpsgraph.NOT_EXAMINED
"""Choices without such rules, and why."""


LISTED: dict[tuple[str, str], tuple[str, ...]] = {
    ("average-clamp", "counted"): ("outside reads 0 in both edge modes",),
    ("batch-evaluation", "folded"): ("mean and factor are fused in float32",),
    ("batch-frozen", "batch"): ("frozen statistics have the terms of the batch",),
    ("channel-divisor", "cut"): ("the divisor shrinks where the window is clipped",),
    ("channel-gradient", "printed"): ("the formula that Apple prints: 1 / N is missing",),
    ("contrast-gradient", "printed"): ("the formula that Apple prints",),
    ("contrast-outside", "shrunk"): ("the divisors shrink at the border",),
    ("convolution-batch-sum", "mean"): ("the mean over the batch is taken",),
    ("convolution-correlation", "flipped"): ("the kernel is rotated by 180 degrees",),
    ("convolution-layout", "OWHI"): ("weights are (out, width, height, in)",),
    ("convolution-left-edge", "centre"): ("the offset is the left edge",),
    ("fully-connected-order", "width"): ("weights are (out, width, height, in)",),
    ("group-order", "interleaved"): ("channel k belongs to group k % G",),
    ("instance-variance", "M-1"): ("the variance is unbiased",),
    ("l2-clamp", "shrinks"): ("outside reads 0 in both edge modes",),
    ("loss-across-softmax", "elements"): ("the mean of softmax is over channels too",),
    ("loss-divergence", "-t/y"): ("the gradient of the divergence is -t / y",),
    ("loss-hinge", "unchanged"): ("hinge labels are not mapped to -1 and 1",),
    ("loss-softmax", "logits"): ("the gradient of softmax is y - t",),
    ("max-nan", "started"): ("the search starts from the lowest finite number",),
    ("max-tie", "all"): ("all equal maxima get the gradient",),
    ("max-tie", "last"): ("the last of equal maxima is taken",),
    ("neuron-absolute", "one"): ("the slope of the magnitude at 0 is 1",),
    ("neuron-gelu", "printed"): ("the slope of GELU is the formula that Apple prints",),
    ("neuron-nan", "zero"): ("ReLU of a NaN is 0",),
    ("neuron-relun", "b"): ("ReLUN has the slope b above its clamp",),
    ("optimizer-l1", "one"): ("the L1 penalty is 1 for negative values too",),
    ("optimizer-rescale", "both"): ("the gradient is clipped after the penalty", "the penalty is rescaled"),
    ("spatial-gradient", "printed"): ("the formula that Apple prints",),
    ("transpose-anchor", "before"): ("an even kernel has its extra tap on the other side",),
    ("transpose-groups", "interleaved"): ("channel k belongs to group k % G",),
    ("upsampling-clamp", "zero"): ("past the last pixel it is always 0",),
    ("upsampling-positions", "half"): ("positions are shifted by half a pixel",),
    ("window-offset", "bottom-right"): ("an even window has its extra tap on the other side",),
    ("windowed-even", "bottom-right"): ("even windows extend further to the bottom right",),
}
"""The mutants of the conformance suite that are an alternative of a choice; on its problems no others look like one."""


def taken_for_alternatives() -> dict[tuple[str, str], tuple[str, ...]]:
    """Plant all mutants of the operations of problems; return those that problems take for another alternative."""
    tables = {str(Operation(*key)): table for one in families.load() for key, table in one.mutants.items()}
    taken: dict[tuple[str, str], tuple[str, ...]] = {}
    for one in probed():
        calls = (str(problem.parameters.get("call", "")) for problem in one.problems)
        names = {f"{call.partition('(')[0]}.{call.rpartition('.')[2]}" for call in calls}
        own = answered(one, Rule("")).verdict
        for name in sorted(names & tables.keys()):
            for text, implementation in tables[name].items():
                verdict = answered(one, Rule(text, {name: implementation})).verdict
                if verdict not in (own, NONE):
                    taken[one.id, verdict] = (*taken.get((one.id, verdict), ()), text)
    return taken


PAGE = """## Rules that are not listed

A problem could take a kernel that follows no alternative for one of them, where both agree on its data by chance. In
tests the rules below are planted as wrong kernels, and the answer must be "none of the alternatives". No mutant of the
conformance suite is taken for an alternative that it is not. Other rules may still agree by chance.

| choice | rules |
|---|---|
"""


def page() -> str:
    """Return a section of the page "open choices": the rules of each choice, or why it has none."""
    cells = {id: "; ".join(rule.text for rule in rules).replace("|", "\\|") for id, rules in RULES.items()}
    cells |= {id: f"not examined: {why}" for id, why in NOT_EXAMINED.items()}
    return PAGE + "".join(f"| [{id}](#{id}) | {text} |\n" for id, text in cells.items())
