"""The kernels with weights under test: strategies, layers, and the tables of the other modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Self, cast

from hypothesis import strategies as st

from mpsref import padding
from mpsref.arguments.arrays import ImageShape
from mpsref.arguments.parameters import Pair
from mpsref.conformance.families.convolution.golden import ADAPTERS
from mpsref.conformance.families.convolution.mutants import MUTANTS
from mpsref.conformance.families.convolution.properties import (
    adjoint,
    batches_add_up,
    block_diagonal,
    groups_apart,
    mixed_dtypes,
    odd,
    offset_decomposition,
    translation,
    transposed,
)
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.layer import Layer
from mpsref.conformance.properties import one_image_at_a_time, repeatable
from mpsref.conformance.strategies import channels, framework_windows, often, pairs, seldom, sizes, thirds
from mpsref.geometry import EDGE_MODES, Window, ceil_div
from mpsref.kernels import Convolution, ConvolutionTranspose, FullyConnected, Neuron
from mpsref.kernels.convolution import WeightedSpec
from mpsref.registry import Problem, Spec

OFFSETS = pairs(0, 1) | pairs(-3, 3) | seldom((1, 1), pairs(-6, 9))

SMOOTH = (
    "relu",
    "linear",
    "sigmoid",
    "hardsigmoid",
    "tanh",
    "absolute",
    "softplus",
    "softsign",
    "elu",
    "relun",
    "gelu",
)
"""Neurons that are finite everywhere."""


def _convolutions(method: str, groups: int) -> st.SearchStrategy[Convolution]:
    """Draw windows from one pixel to larger than the image, partly and wholly outside it."""
    return st.builds(
        Convolution,
        kernel_size=pairs(1, 3) | pairs(1, 6),
        strides=pairs(1, 3),
        dilations=often((1, 1), pairs(1, 4)),
        offset=OFFSETS,
        groups=st.just(groups),
        edge_mode=st.just("zero") if method == "gradient_data" else st.sampled_from(EDGE_MODES),
    )


def _transposes(method: str, groups: int) -> st.SearchStrategy[ConvolutionTranspose]:
    return st.builds(
        ConvolutionTranspose,
        kernel_size=pairs(1, 3) | pairs(1, 6),
        strides=pairs(1, 3),
        offset=seldom((0, 0), pairs(-2, 3)),
        kernel_offset=OFFSETS,
        groups=st.just(groups),
    )


@st.composite
def _framework_convolutions(draw: st.DrawFn, groups: int) -> tuple[Convolution, Pair, Pair]:
    """Draw a convolution, the size of its source, and that of its result."""
    windows = draw(framework_windows(pooling=False, dilated=True))
    offset, result = windows.placement.offset, windows.placement.output_size
    spec = Convolution(windows.kernel_size, windows.strides, windows.dilations, offset, groups)
    return spec, windows.input_size, result


@st.composite
def _narrow_convolutions(draw: st.DrawFn) -> tuple[Convolution, Pair, Pair, int]:
    """Draw a convolution as above with one column, and the channels of its source.

    Either the image has one channel and the result one column, or the image has one column, which no window reads.
    oneDNN has a defect in each.
    """
    kernel, strides, dilations, pad = draw(pairs(2, 5)), (1, draw(st.integers(2, 4))), (1, 1), 0
    width, inputs = kernel[1] + draw(st.integers(0, strides[1] - 1)), 1
    if draw(st.booleans()):
        kernel, dilations = (kernel[0], 1), (1, draw(st.integers(2, 4)))
        pad = strides[1] * draw(st.integers(0, 1)) + draw(st.integers(1, strides[1] - 1))
        width, inputs = 1, draw(channels(4)) + 1
    size = kernel[0] + draw(st.integers(0, 6)), width
    placement = padding.pytorch(size, kernel, strides, (0, pad), dilations)
    return Convolution(kernel, strides, dilations, placement.offset), size, placement.output_size, inputs


@st.composite
def _framework_transposes(draw: st.DrawFn, groups: int) -> tuple[ConvolutionTranspose, Pair, Pair]:
    """Draw a transposed convolution with padding and output_padding, as above."""
    kernel, strides = draw(pairs(1, 3) | pairs(1, 6)), draw(pairs(1, 3) | pairs(1, 6))
    pads, more = (draw(st.tuples(*(st.integers(0, high - 1) for high in highs))) for highs in (kernel, strides))
    size = draw(sizes(6))
    offset_y, offset_x = (k // 2 - k + 1 + p for k, p in zip(kernel, pads, strict=True))
    height, width = (
        max(1, (length - 1) * s - 2 * p + k + m)
        for length, s, p, k, m in zip(size, strides, pads, kernel, more, strict=True)
    )
    spec = ConvolutionTranspose(kernel, strides, kernel_offset=(offset_y, offset_x), groups=groups)
    return spec, size, (height, width)


_STRATEGIES = {
    Convolution: (_convolutions, _framework_convolutions),
    ConvolutionTranspose: (_transposes, _framework_transposes),
}


@cache  # Hypothesis examines every new strategy
def _neurons(channels: int) -> st.SearchStrategy[Neuron | None]:
    """Draw no neuron every second time."""
    slopes = st.lists(st.sampled_from([-0.5, 0.0, 0.25, 1.5]), min_size=channels, max_size=channels)
    prelu = st.builds(Neuron, st.just("prelu"), data=slopes)
    return often(None, prelu | st.builds(Neuron, st.sampled_from(SMOOTH)))


@cache  # Hypothesis examines every new strategy
def _placed(
    spec_type: type[WeightedSpec], method: str, groups: int
) -> st.SearchStrategy[tuple[WeightedSpec, Pair, Pair]]:
    """Draw the windows of a problem, the size of its source, and that of its result; one third by a framework."""
    placed, by_framework = _STRATEGIES[spec_type]
    return thirds(st.tuples(placed(method, groups), pairs(1, 9), sizes(8)), by_framework(groups))


@st.composite
def problems(draw: st.DrawFn, spec_type: type[WeightedSpec], method: str) -> Problem:
    """Draw problems of one operation: few channels and pixels, in one or more groups, often depthwise.

    One third of them have windows by the arguments of frameworks; one sixth of convolutions have one column.
    """
    groups = 1 if spec_type is FullyConnected else draw(st.integers(1, 3) | st.just(1))
    depthwise = groups > 1 and draw(st.booleans())
    inputs = groups * (1 if depthwise else draw(channels(4)))
    outputs = groups * draw(channels(5))
    n = draw(st.integers(1, 3))
    call: dict[str, Pair | bool] = {}
    if spec_type is FullyConnected:
        size = draw(pairs(1, 4))
        spec: WeightedSpec = FullyConnected(size)
    else:
        spec, size, result = draw(_placed(cast(Any, spec_type), method, groups))
        if spec_type is Convolution and draw(st.integers(0, 5)) == 5:
            spec, size, result, inputs = draw(_narrow_convolutions())
        call["output_size" if method == "forward" else "gradient_size"] = result
    if method == "forward":
        call["biased"] = draw(st.booleans())
        spec = replace(cast(Convolution, spec), neuron=draw(_neurons(outputs)))
    problem: Problem = spec.problems[method](spec, (n, *size, inputs), outputs, **call)
    return problem


FEW = 12
"""Windows on an axis of a small layer, in addition to those that may extend past its end."""

MANY = 40
"""Channels of a checked layer with few pixels."""


@dataclass(frozen=True)
class WeightedLayer(Layer):
    """A layer with weights."""

    @property
    def checked_channels(self) -> int:
        """Number of channels in a check: in results with few pixels so many that backends compute them in tiles."""
        return MANY if max(self.call["output_size"]) <= FEW + 2 else super().checked_channels

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels, groups and images, for a quick check.

        Of large images, whole windows are cut off: how the first and the last lie to the border stays as published.

        >>> from mpsref.conformance import layers
        >>> small = layers.by_name("alexnet.conv1").small(channels=5)
        >>> small.source_shape, small.call["output_size"], small.call["output_channels"]
        ((1, 67, 67, 3), (15, 15), 6)
        """
        groups, inputs, outputs = self._fewer(channels)
        _, height, width, _ = self.source_shape
        if isinstance(self.spec, FullyConnected):
            call = {**self.call, "output_channels": outputs}
            return replace(self, source_shape=(batch, height, width, inputs), call=call)
        assert isinstance(self.spec, (Convolution, ConvolutionTranspose))
        spec, result = replace(self.spec, groups=groups), self.call["output_size"]
        if isinstance(spec, ConvolutionTranspose):  # its windows are counted in the source, their pixels in the result
            (height, result_height), (width, result_width) = map(
                _cut, spec.convolution.windows, (height, width), result
            )
        else:
            (result_height, height), (result_width, width) = map(_cut, spec.windows, result, (height, width))
        size = result_height, result_width
        call = {**self.call, "output_channels": outputs, "output_size": size, "gradient_size": size}
        return replace(self, spec=spec, source_shape=(batch, height, width, inputs), call=call)

    def _fewer(self, channels: int) -> tuple[int, int, int]:
        """Return groups, input and output channels of the small layer; depthwise stays so, and groups stay groups."""
        groups, inputs, outputs = getattr(self.spec, "groups", 1), self.source_shape[3], self.call["output_channels"]
        if groups == 1:
            return 1, min(inputs, channels), min(outputs, channels + 1)
        if groups == inputs:
            return channels, channels, channels * outputs // groups
        own = max(1, channels // 2)
        return 2, 2 * own, 2 * own

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of its source ``factor`` times as long."""
        if not isinstance(self.spec, FullyConnected):
            return super().grown(axis, factor)
        n, height, width, c = (length * factor if k == axis else length for k, length in enumerate(self.source_shape))
        return replace(self, spec=replace(self.spec, kernel_size=(height, width)), source_shape=(n, height, width, c))


def layer(
    name: str,
    network: str,
    kernel: type[Spec],
    source_shape: ImageShape,
    output_channels: int,
    kernel_size: int = 1,
    strides: int = 1,
    groups: int = 1,
    biased: bool = False,
    framework: str = "",
    words: Mapping[str, Any] = MappingProxyType({}),
    pads: int = 0,
    note: str = "",
) -> WeightedLayer:
    """Return the layer of a row. Of a transposed convolution, ``pads`` pixels are cut off, as in PyTorch and Caffe."""
    spec: Spec
    if kernel is Convolution:
        placement = getattr(padding, framework)(source_shape[1:3], kernel_size, strides, **words)
        spec = Convolution(kernel_size, strides, words.get("dilations", 1), placement.offset, groups)
        size = placement.output_size
    elif kernel is ConvolutionTranspose:
        spec = ConvolutionTranspose(kernel_size, strides, kernel_offset=kernel_size // 2 - kernel_size + 1 + pads)
        height, width = ((length - 1) * strides - 2 * pads + kernel_size for length in source_shape[1:3])
        size, words = (height, width), {"pads": pads}
    else:
        spec, size, biased = FullyConnected(source_shape[1:3]), (1, 1), True
    call = {"output_channels": output_channels, "output_size": size, "gradient_size": size, "biased": biased}
    return WeightedLayer(name, network, spec, source_shape, call, framework, tuple(sorted(words.items())), note)


def _cut(window: Window, windows: int, pixels: int) -> Pair:
    """Return fewer windows, and the pixels without those that only the windows left out have read first."""
    kept = min(windows, FEW + ceil_div(window.extent, window.stride))
    return kept, pixels - window.stride * (windows - kept)


_IMAGE = (repeatable, one_image_at_a_time, groups_apart, block_diagonal, mixed_dtypes, odd, adjoint)
_WEIGHTS = (repeatable, batches_add_up, groups_apart, block_diagonal, mixed_dtypes, odd, adjoint)
_ONE_PIXEL = frozenset(("height and width are swapped", "channels-first code on channels-last memory", "0 / 0 is NaN"))
"""Mutants that are equivalent where the result has one pixel, a sum that is never 0 / 0."""

FAMILY = Family(
    "convolution",
    kernels={
        kernel: KernelTests(
            partial(problems, kernel),
            {
                "forward": (*_IMAGE, *placed),
                "gradient_data": (*_IMAGE, *placed),
                "gradient_weights": (*_WEIGHTS, *placed),
            },
            equivalent_mutants={"forward": _ONE_PIXEL} if kernel is FullyConnected else {},
        )
        for kernel, placed in (
            (Convolution, (translation, offset_decomposition)),
            (ConvolutionTranspose, (translation, offset_decomposition, transposed)),
            (FullyConnected, ()),
        )
    },
    mutants=MUTANTS,
    golden=ADAPTERS,
    layer=layer,
)
