"""Mistakes in shared code: the reference and the backends make them alike, and agree with each other.

Other mutants are one backend that differs from the reference. These change a function that both call. Only a result
that was found without it can show them: a worked example of :mod:`mpsref.conformance.worked`.

>>> from mpsref.conformance import checker, common_mode, worked
>>> from mpsref.registry import get_backend
>>> mistake = next(one for one in common_mode.MISTAKES if "bias correction" in one.name)
>>> reference = get_backend("reference")
>>> with common_mode.planted(mistake):
...     found = [checker.outcome_of(case, reference) for case in worked.cases(mistake.operation)]
>>> [outcome.status for outcome in found]
['failed']
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpsref.conformance.case import operation_named, operations
from mpsref.registry import Operation

Change = Callable[..., Any]
"""``change(value, *arguments)`` returns what a function returns in place of its value."""


@dataclass(frozen=True)
class Mistake:
    """A mistake in one shared function, or in a shared constant."""

    name: str
    """The mistake in a few words."""
    shared: str
    """The function or constant, such as ``geometry.Window.center``."""
    operation: Operation
    """An operation whose worked examples show it."""
    change: Change


def _without_alignment(_: Any, problem: Any) -> list[int]:
    return [sum(problem.channels[:k]) for k in range(len(problem.channels))]


def _arguments_of(axis: str, value: Any) -> Change:
    """Change one argument of the tables of both axes."""
    return lambda axes, problem: [{**one, axis: value} for one in axes]


def _swapped(value: Any, *_: Any) -> Any:
    return value[::-1]


TABLE: dict[str, dict[str, tuple[str, Change]]] = {
    "geometry.by_axis": {"y and x are exchanged": ("Convolution.forward", _swapped)},
    "geometry.ceil_div": {"the quotient is rounded down": ("PoolingAverage.forward", lambda q, a, b: a // b)},
    "geometry.clip": {
        "the origin counts in the size": (
            "PoolingAverage.gradient",
            lambda c, origin, size, length: (origin, max(0, min(length, origin + (size or length)) - 2 * origin)),
        )
    },
    "geometry.effective_offset": {
        "the offset is not multiplied by the stride": (
            "ConvolutionTranspose.forward",
            lambda e, primary, kernel, stride: primary + kernel,
        )
    },
    "geometry.included_windows": {
        "the source size is ignored": (
            "PoolingAverage.gradient",
            lambda windows, primary, size, length: range(windows.start, max(windows.start, length - primary)),
        ),
        "the primary offset has the other sign": (
            "PoolingAverage.gradient",
            lambda windows, primary, size, length: range(
                max(0, primary), max(0, primary, min(length + primary, size or length))
            ),
        ),
    },
    "geometry.Window.center": {
        "the centre of an even window is one pixel to the left": (
            "PoolingAverage.forward",
            lambda center, window: (window.extent - 1) // 2,
        ),
        "the dilation does not count in the centre": (
            "PoolingMax.forward",
            lambda center, window: window.kernel // 2,
        ),
    },
    "geometry.Window.default_outputs": {
        "the last window that begins outside is left out": (
            "PoolingAverage.forward",
            lambda count, window, length: (length - window.offset) // window.stride,
        )
    },
    "geometry.Window.even": {
        "an even window counts as an odd one": ("PoolingAverage.gradient", lambda even, window: 0)
    },
    "geometry.Window.extent": {
        "the extent is the kernel size times the dilation": (
            "PoolingMax.forward",
            lambda extent, window: window.kernel * window.dilation,
        )
    },
    "geometry.Window.kernel_offset": {
        "the origin of the clip is not added": (
            "PoolingAverage.gradient",
            lambda offset, window, origin=0: offset - origin,
        )
    },
    "geometry.Window.start": {
        "the windows start one pixel late": ("Convolution.forward", lambda start, window, i: start + 1)
    },
    "geometry.Window.tap": {
        "the taps are in reverse order": (
            "Convolution.forward",
            lambda tap, window, i, t: window.start(i) + window.dilation * (window.kernel - 1 - t),
        )
    },
    "kernels.arithmetic.Arithmetic.clamps": {
        "a single bound does not clamp": (
            "Arithmetic.gradient",
            lambda clamps, spec: math.isfinite(spec.minimum_value) and math.isfinite(spec.maximum_value),
        )
    },
    "kernels.arithmetic.ArithmeticGradient.of": {"dx and dy are exchanged": ("Arithmetic.gradient", _swapped)},
    "kernels.batch_normalization.BatchProblem.named": {
        "the sums are exchanged": (
            "BatchNormalization.gradient",
            lambda known, problem, inputs: known._replace(dbeta=known.dgamma, dgamma=known.dbeta),
        )
    },
    "kernels.broadcasting.Broadcasting.operands": {
        "the offsets of the operands are exchanged": (
            "Arithmetic.forward",
            lambda both, spec: (both[0]._replace(offset=both[1].offset), both[1]._replace(offset=both[0].offset)),
        )
    },
    "kernels.broadcasting.Operand.part": {
        "the first element is repeated, not that at the offset": (
            "Arithmetic.forward",
            lambda part, operand, image: image[
                (slice(None), *(slice(o, None) if t else slice(1) for t, o in zip(*operand, strict=True)))
            ],
        )
    },
    "kernels.concatenation.Concatenation.aligned": {
        "a source has no padding channels": ("Concatenation.forward", lambda count, spec, channels: channels)
    },
    "kernels.concatenation.ConcatenationProblem.offsets": {
        "the padding channels do not count": ("Concatenation.gradient", _without_alignment)
    },
    "kernels.convolution.Convolution.windows": {
        "the windows of y and x are exchanged": ("Convolution.forward", _swapped),
    },
    "kernels.convolution._Gradient.result_size": {
        "height and width are exchanged": ("Convolution.gradient_data", _swapped)
    },
    "kernels.convolution_transpose.ConvolutionTranspose.effective_offsets": {
        "those of y and x are exchanged": ("ConvolutionTranspose.forward", _swapped)
    },
    "kernels.crop_and_resize._sampling": {
        "the last output is left out of the step": (
            "CropAndResizeBilinear.forward",
            lambda axis, length, outputs, low, high: replace(axis, denominator=axis.denominator * outputs),
        )
    },
    "kernels.cross_channel_normalization.CrossChannelNormalization.window": {
        "the window is one channel larger": (
            "CrossChannelNormalization.forward",
            lambda window, spec: replace(window, kernel=window.kernel + 1),
        )
    },
    "kernels.dropout.Dropout.mask_shape": {
        "an axis without values of its own has all": ("Dropout.mask", lambda _, spec, shape: shape)
    },
    "kernels.dropout.Dropout.scale": {
        "kept elements are multiplied by the probability": (
            "Dropout.forward",
            lambda scale, spec: np.float32(spec.keep_probability),
        )
    },
    "kernels.dropout.Dropout.threshold": {
        "the words are taken for signed ones": (
            "Dropout.mask",
            lambda threshold, spec: max(1, math.floor(spec.keep_probability * 2.0**31)),
        )
    },
    "kernels.dropout.MULTIPLIERS": {"the multipliers are exchanged": ("Dropout.mask", _swapped)},
    "kernels.dropout.MaskProblem.words": {
        "seed and sequence are exchanged": ("Dropout.mask", lambda words, problem: words[2:] + words[:2])
    },
    "kernels.dropout.ROUNDS": {"there are seven rounds": ("Dropout.mask", lambda rounds: 7)},
    "kernels.dropout.MaskedProblem.mask_shape": {
        "channels share a mask element": ("Dropout.mask", lambda shape, problem: (*shape[:3], 1))
    },
    "kernels.dropout.WEYL": {"the key is not changed between rounds": ("Dropout.mask", lambda weyl: (0, 0))},
    "kernels.dropout.halves": {"the high word comes first": ("Dropout.mask", _swapped)},
    "kernels.graph_pooling.GraphPoolingMax.dilation": {
        "those of y and x are exchanged": ("GraphPoolingMax.forward", _swapped)
    },
    "kernels.graph_pooling.GraphPoolingProblem.is_local": {
        "pixels are numbered in all modes": ("GraphPoolingMax.forward", lambda is_local, problem: False)
    },
    "kernels.graph_pooling.GraphPoolingProblem.numbering": {
        "the next row adds what the next column does": (
            "GraphPoolingMax.forward",
            lambda steps, problem: (steps[0], steps[2], steps[1], steps[3]),
        )
    },
    "kernels.group_normalization.GroupNormalization.groups_in": {
        "the number of groups is taken for the channels of a group": (
            "GroupNormalization.forward",
            lambda groups, spec, channels: channels // groups,
        )
    },
    "kernels.group_normalization.GroupsProblem.count": {
        "the variance is the unbiased one": ("GroupNormalization.gradient", lambda count, problem: count - 1)
    },
    "kernels.group_normalization.GroupsProblem.groups": {
        "all channels are one group": ("GroupNormalization.gradient", lambda groups, problem: 1)
    },
    "kernels.group_normalization.InstanceNormalization.groups_in": {
        "all channels are one group": ("InstanceNormalization.forward", lambda groups, spec, channels: 1)
    },
    "kernels.group_normalization.NormalizationForward.parameters": {
        "gamma and beta are exchanged": ("GroupNormalization.forward", _swapped)
    },
    "kernels.group_normalization.NormalizationGradient.parameters": {
        "gamma is left out": ("GroupNormalization.gradient", lambda gamma, problem, *_: np.ones_like(gamma))
    },
    "kernels.interpolation.rounded": {
        "a half is rounded down": (
            "GraphResizeNearest.forward",
            lambda pixel, rule, n, d: pixel - (2 * n % (2 * d) == d) * (rule == "round_prefer_ceil"),
        )
    },
    "kernels.interpolation.sampling_at": {
        "the first position is 0": (
            "GraphResizeBilinear.forward",
            lambda axis, length, outputs, start, step, *options: replace(axis, start=0),
        )
    },
    "kernels.loss.Loss.smoothing": {
        "label smoothing of the sigmoid loss is as for one class": (
            "Loss.forward",
            lambda factors, loss: (factors[0], loss.label_smoothing if "sigmoid" in loss.type else factors[1]),
        ),
        "label smoothing of the softmax loss does not divide by the classes": (
            "Loss.gradient",
            lambda factors, loss: (factors[0], loss.label_smoothing if "softmax" in loss.type else factors[1]),
        ),
    },
    "kernels.loss.Loss.loss_shape": {
        "the loss image has one image": ("Loss.forward", lambda shape, loss, image: (1, *shape[1:]))
    },
    "kernels.loss.LossProblem.loss_shape": {
        "the loss image has one image": ("Loss.forward", lambda shape, problem: (1, *shape[1:]))
    },
    "kernels.loss.LossGradient.named_inputs": {
        "labels are taken for weights": (
            "Loss.gradient",
            lambda given, problem, inputs: given if given[3] is None else (*given[:2], *given[:1:-1]),
        )
    },
    "kernels.loss.LossForward.divisors": {
        "the mean over elements divides by pixels": (
            "Loss.forward",
            lambda counts, problem, weights: (
                counts / problem.source_shape[3] if problem.spec.reduction == "mean" else counts
            ),
        ),
        "weights that are 0 count": (
            "Loss.forward",
            lambda counts, problem, weights: (
                counts if weights is None else np.where(counts > 0, counts + np.sum(weights == 0), counts)
            ),
        ),
    },
    "kernels.loss.LossForward.loss_image": {
        "the cosine distance is 1 minus the weighted sum": (
            "Loss.forward",
            lambda image, problem, sums, weights: (
                image + 1 - problem.spec.weight if problem.spec.type == "cosinedistance" else image
            ),
        )
    },
    "kernels.loss.LossGradient.source_gradient": {
        "each image has its own source gradient across a batch": ("Loss.gradient", lambda _, problem, g: g)
    },
    "kernels.neuron.Neuron.log_base": {
        "the logarithm of the base is inverted": ("Neuron.forward", lambda value, spec: 1 / value)
    },
    "kernels.normalization_windows.WindowedNormalization.taps": {
        "only the rows of a window count": ("SpatialNormalization.forward", lambda n, spec: spec.windows[0].kernel)
    },
    "kernels.normalization_windows.WindowedNormalization.windows": {
        "the windows of y and x are exchanged": ("SpatialNormalization.forward", _swapped)
    },
    "kernels.optimizers.Adam.corrected_rate": {
        "Adam has no bias correction": ("Adam.step", lambda rate, spec, t: spec.learning_rate),
        "the time step is counted from 0": (
            "Adam.step",
            lambda rate, spec, t: (
                spec.learning_rate * math.sqrt(1 - spec.beta2 ** (t - 1)) / (1 - spec.beta1 ** (t - 1))
            ),
        ),
        "the correction of the velocity has no root": (
            "Adam.step",
            lambda rate, spec, t: rate * math.sqrt(1 - spec.beta2**t),
        ),
    },
    "kernels.pad.PadProblem.padded_shape": {
        "there is one more row": ("Pad.forward", lambda shape, problem: (shape[0], shape[1] + 1, *shape[2:]))
    },
    "kernels.pad.Pad.fills": {"the values of channels are in reverse order": ("Pad.forward", _swapped)},
    "kernels.pooling.Windowed.dilation": {
        "the taps are two pixels apart": ("PoolingAverage.forward", lambda dilation, spec: (2, 2))
    },
    "kernels.pooling.Windowed.windows": {"the windows of y and x are exchanged": ("PoolingMax.forward", _swapped)},
    "kernels.pooling.PoolingGradient._axes": {
        "the kernel offset is ignored": ("PoolingAverage.gradient", _arguments_of("kernel_offset", None)),
        "the clip is ignored": (
            "PoolingAverage.gradient",
            lambda axes, problem: [{**one, "clip_origin": 0, "clip_size": None} for one in axes],
        ),
    },
    "kernels.pooling_average.PoolingAverage.zero_pad": {
        "the zero pad of y is taken for x": ("PoolingAverage.forward", lambda pad, spec: (pad[0], pad[0]))
    },
    "kernels.pooling_max.PoolingMax.dilation": {"those of y and x are exchanged": ("PoolingMax.forward", _swapped)},
    "kernels.reduce.ReduceProblem.clipped_shape": {
        "it is that of the image": ("Reduce.gradient", lambda shape, problem: problem.source_shape)
    },
    "kernels.reduce.ReduceProblem.count": {
        "the pixels outside the clip count": (
            "Reduce.gradient",
            lambda count, problem: math.prod(problem.source_shape[1:3]),
        )
    },
    "kernels.reduce.ReduceProblem.region": {
        "the origin of the clip is that of the other axis": (
            "Reduce.forward",
            lambda region, problem: (region[0][::-1], region[1]),
        )
    },
    "kernels.reshape.ReshapeProblem.shape": {
        "height and width are exchanged": (
            "Reshape.forward",
            lambda shape, problem: (shape[0], shape[2], shape[1], shape[3]),
        )
    },
    "kernels.reshape.reshape": {
        "the order of the elements is HWC": (
            "Reshape.forward",
            lambda result, problem, image: image.reshape(result.shape),
        )
    },
    "kernels.resize.Resize.sizes": {"height and width are exchanged": ("ResizeBilinear.forward", _swapped)},
    "kernels.resize._sampling": {
        "the corners are always aligned": (
            "ResizeBilinear.forward",
            lambda axis, length, outputs, aligned: replace(
                axis, numerator=length - 1 if outputs > 1 else 0, denominator=max(1, outputs - 1)
            ),
        ),
        "the corners are never aligned": (
            "ResizeBilinear.forward",
            lambda axis, length, outputs, aligned: replace(axis, numerator=length, denominator=outputs),
        ),
    },
    "kernels.resize.GraphResize.sampling": {
        "centres of pixels do not count": (
            "GraphResizeBilinear.forward",
            lambda axes, spec, shape: tuple(replace(axis, start=0) for axis in axes),
        ),
        "a scale is the distance of two positions": (
            "GraphResizeNearest.forward",
            lambda axes, spec, shape: tuple(
                replace(axis, numerator=axis.denominator, denominator=axis.numerator) for axis in axes
            ),
        ),
    },
    "kernels.upsampling.Upsampling.factors": {
        "those of y and x are exchanged": ("UpsamplingNearest.forward", _swapped)
    },
    "kernels.upsampling.UpsamplingBilinear.sampling": {
        "outside is clamped in both edge modes": (
            "UpsamplingBilinear.forward",
            lambda axis, spec, length, s: replace(axis, edge_mode="clamp"),
        )
    },
    "kernels.upsampling.UpsamplingNearest.sampling": {
        "the corners are aligned": (
            "UpsamplingNearest.forward",
            lambda axis, spec, length, s: replace(axis, numerator=length - 1, denominator=max(1, length * s - 1)),
        )
    },
}
"""By the shared function or constant: its mistakes, the operation whose worked examples show each, and the change."""

SHAPES = "a mistake is an error of shapes, not a wrong number"

WITHOUT: dict[str, str] = {
    "kernels.arithmetic.ArithmeticGradient.gives_dx": SHAPES,
    "kernels.arithmetic.ArithmeticGradient.gives_dy": SHAPES,
    "kernels.arithmetic.ArithmeticGradient.reads": "exchanged operands do not pass the property `adjoint`",
    "kernels.arithmetic.ArithmeticGradient.reads_x": "what is read in vain changes nothing; if it is missing: `clamps`",
    "kernels.arithmetic.ArithmeticGradient.reads_y": "what is read in vain changes nothing; if it is missing: `clamps`",
    "kernels.concatenation.ConcatenationProblem.joined_shape": SHAPES,
    "kernels.convolution.WeightedForward.result_size": SHAPES,
    "kernels.convolution.WeightedProblem.group_channels": SHAPES,
    "kernels.convolution.WeightedProblem.weights_shape": SHAPES,
    "kernels.convolution.WeightedSpec.groups": SHAPES,
    "kernels.convolution.WeightedSpec.size": SHAPES,
    "kernels.crop_and_resize.CropAndResizeForward.axes": SHAPES,
    "kernels.dropout.MaskProblem.blocks": "more blocks than are used change nothing; fewer are an error of shapes",
    "kernels.dropout.MaskProblem.elements": SHAPES,
    "kernels.group_normalization.GroupsProblem.grouped_shape": SHAPES,
    "kernels.loss.LossProblem.function": "its formulas are those of the reference, which backends do not call",
    "kernels.resize.GraphResizeForward.axes": SHAPES,
    "kernels.resize.ResizeForward.axes": SHAPES,
    "kernels.upsampling.UpsamplingProblem.axes": SHAPES,
}
"""Shared functions of which no mistake is planted, each with the reason."""

MISTAKES = tuple(
    Mistake(name, shared, operation_named(operation), change)
    for shared, table in TABLE.items()
    for name, (operation, change) in table.items()
)


@contextlib.contextmanager
def planted(mistake: Mistake) -> Iterator[None]:
    """Make a mistake in this process, in all modules that have imported the function, and undo it at the end."""
    *path, name = mistake.shared.split(".")
    module = sys.modules.get(".".join(["mpsref", *path]))
    owner: Any = module or getattr(sys.modules[".".join(["mpsref", *path[:-1]])], path[-1])
    correct = vars(owner)[name]
    wrong = _changed(correct, mistake.change)
    if isinstance(wrong, functools.cached_property):
        wrong.__set_name__(owner, name)

    def exchange(one: Any, other: Any) -> None:
        for user in _modules() if module else [owner]:
            if vars(user).get(name) is one:
                setattr(user, name, other)
        for operation in operations():
            if operation.formula is one:
                declared = operation.spec_type.declared
                declared[operation.method] = declared[operation.method]._replace(formula=other)
        _forget()

    exchange(correct, wrong)
    try:
        yield
    finally:
        exchange(wrong, correct)  # also in modules that were imported since


def _changed(correct: Any, change: Change) -> Any:
    """Return a function, a property or a constant with the change."""
    if isinstance(correct, property):
        assert correct.fget is not None
        return property(_changed(correct.fget, change))
    if isinstance(correct, functools.cached_property):
        return type(correct)(_changed(correct.func, change))
    if not callable(correct):
        return change(correct)

    @functools.wraps(correct)
    def wrong(*arguments: Any, **named: Any) -> Any:
        return change(correct(*arguments, **named), *arguments, *named.values())

    return wrong


def _modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.partition(".")[0].startswith("mpsref")]


def _forget() -> None:
    """Empty all caches: of tables, of cases, of results of the reference, and of what backends plan."""
    for module in _modules():
        for value in list(vars(module).values()):
            if hasattr(type(value), "cache_clear"):  # not of the value: a framework's attributes import the framework
                value.cache_clear()
