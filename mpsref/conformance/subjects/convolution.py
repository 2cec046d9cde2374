"""The kernels with weights under test: random problems that shrink to small ones, and which properties they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import strategies as st

from mpsref.conformance.properties import repeatable
from mpsref.conformance.subject import Subject, often, pairs, seldom
from mpsref.conformance.subjects.convolution_properties import (
    adjoint,
    batches_add_up,
    block_diagonal,
    groups_apart,
    images_apart,
    mixed_dtypes,
    odd,
    offset_decomposition,
    translation,
    transposed,
)
from mpsref.geometry import EDGE_MODES
from mpsref.kernels import Convolution, ConvolutionTranspose, FullyConnected, Neuron
from mpsref.kernels.convolution_problems import WeightedKernel
from mpsref.registry import Problem, Spec

__all__ = ["SUBJECTS", "problems"]

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


def _neurons(channels: int) -> st.SearchStrategy[Neuron | None]:
    """Draw no neuron every second time."""
    slopes = st.lists(st.sampled_from([-0.5, 0.0, 0.25, 1.5]), min_size=channels, max_size=channels)
    prelu = st.builds(Neuron, st.just("prelu"), data=slopes)
    return often(None, prelu | st.builds(Neuron, st.sampled_from(SMOOTH)))


@st.composite
def problems(draw: st.DrawFn, spec_type: type[WeightedKernel], method: str) -> Problem:
    """Draw problems of one operation: few channels and pixels, in one or more groups, often depthwise."""
    groups = 1 if spec_type is FullyConnected else draw(st.integers(1, 3) | st.just(1))
    depthwise = groups > 1 and draw(st.booleans())
    inputs = groups * (1 if depthwise else draw(st.integers(1, 4)))
    outputs = groups * draw(st.integers(1, 5))
    n, height, width = draw(st.integers(1, 3)), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    call: dict[str, Any] = {}
    if spec_type is FullyConnected:
        height, width = draw(pairs(1, 4))
        spec: Any = FullyConnected((height, width))
    else:
        spec = draw({Convolution: _convolutions, ConvolutionTranspose: _transposes}[spec_type](method, groups))
        call["output_size" if method == "forward" else "gradient_size"] = draw(pairs(1, 8))
    if method == "forward":
        call["biased"] = draw(st.booleans())
        spec = replace(spec, neuron=draw(_neurons(outputs)))
    problem: Problem = spec.problems[method](spec, (n, height, width, inputs), outputs, **call)
    return problem


_IMAGE = (repeatable, images_apart, groups_apart, block_diagonal, mixed_dtypes, odd, adjoint)
_WEIGHTS = (repeatable, batches_add_up, groups_apart, block_diagonal, mixed_dtypes, odd, adjoint)
_PLACED = (translation, offset_decomposition)
_ONE_PIXEL = frozenset(("height and width are swapped", "channels-first code on channels-last memory", "0 / 0 is NaN"))
"""What cannot go wrong where the result has one pixel, in which something is always added up."""

SUBJECTS: Mapping[type[Spec], Subject] = {
    Convolution: Subject(
        partial(problems, Convolution),
        {
            "forward": (*_IMAGE, *_PLACED),
            "gradient_data": (*_IMAGE, *_PLACED),
            "gradient_weights": (*_WEIGHTS, *_PLACED),
        },
    ),
    ConvolutionTranspose: Subject(
        partial(problems, ConvolutionTranspose),
        {
            "forward": (*_IMAGE, *_PLACED, transposed),
            "gradient_data": (*_IMAGE, *_PLACED, transposed),
            "gradient_weights": (*_WEIGHTS, *_PLACED, transposed),
        },
    ),
    FullyConnected: Subject(
        partial(problems, FullyConnected),
        {"forward": _IMAGE, "gradient_data": _IMAGE, "gradient_weights": _WEIGHTS},
        equivalent_mutants={"forward": _ONE_PIXEL},
    ),
}
