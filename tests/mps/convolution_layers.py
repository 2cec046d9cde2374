"""What the tests of the convolution classes share: small layers, data sources that take notes, the worked examples."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mpsref import kernels, registry
from mpsref.arguments.arrays import Array
from mpsref.mps import (
    ArrayConvolutionDataSource,
    MPSCNNConvolution,
    MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionGradient,
    MPSCNNDepthWiseConvolutionDescriptor,
)
from tests.kernels.test_convolution import LINES

METHODS = ("forward", "gradient_data", "gradient_weights")


def require(backend: str, spec_type: Any = kernels.Convolution, methods: tuple[str, ...] = METHODS) -> str:
    """Skip the test, with the reason, where a backend lacks an operation."""
    spec = spec_type(3)
    for method in methods:
        reason = registry.get_backend(backend).why_not((spec_type, method), spec)
        if reason:
            pytest.skip(reason)
    return backend


def row(*values: float) -> Array:
    """One image of one row and one channel."""
    return np.array(values, np.float32).reshape(1, 1, -1, 1)


def numbers(generator: np.random.Generator, *shape: int) -> Array:
    """Small integers, with which every backend is exact."""
    return generator.integers(-4, 5, shape).astype(np.float32)


@dataclass(frozen=True)
class Example:
    """A worked example on one row and one channel."""

    kernel: int
    stride: int
    dilation: int
    offset: int
    x: tuple[float, ...]
    w: tuple[float, ...]
    b: float | None
    y: tuple[float, ...]
    kernel_offset: int
    secondary_offset: int
    g: tuple[float, ...]
    dx: tuple[float, ...]
    dw: tuple[float, ...]
    db: float

    @property
    def descriptor(self) -> MPSCNNConvolutionDescriptor:
        return MPSCNNConvolutionDescriptor(
            self.kernel, 1, 1, 1, stride_in_pixels_x=self.stride, dilation_rate_x=self.dilation
        )

    @property
    def source(self) -> ArrayConvolutionDataSource:
        return ArrayConvolutionDataSource(self.descriptor, self.w, self.b)

    def forward(self, backend: str = "reference") -> MPSCNNConvolution:
        return MPSCNNConvolution(self.source, backend=backend, offset=(self.offset, 0, 0))

    def gradient(self, backend: str = "reference", **properties: Any) -> MPSCNNConvolutionGradient:
        return MPSCNNConvolutionGradient(self.source, backend=backend, **properties)

    def run(self, backend: str = "reference") -> tuple[Array, Any]:
        """Return the forward result and its state."""
        kernel = self.forward(backend)
        y, state = kernel.encode(row(*self.x), destination_size=(1, len(self.y)), return_state=True)
        return y, state


def layer(descriptor: Any, seed: int = 0, **properties: Any) -> tuple[MPSCNNConvolution, MPSCNNConvolutionGradient]:
    """A convolution with small integers for weights, and its gradient kernel."""
    source = ArrayConvolutionDataSource(descriptor, numbers(np.random.default_rng(seed), *descriptor.weights_shape))
    backend = properties.pop("backend", "reference")
    return MPSCNNConvolution(source, backend=backend, **properties), MPSCNNConvolutionGradient(source, backend=backend)


class RandomLayer:
    """A layer of any kind, with everything that a forward pass can have: properties, an output size, an image."""

    def __init__(self, seed: int, dilated: bool, offsets: tuple[int, int], **shift: tuple[int, int]) -> None:
        self.generator = np.random.default_rng(seed)
        kind, kernel, strides = self.draw(0, 2, 1)[0], self.draw(1, 4), self.draw(1, 3)
        dilations = self.draw(1, 3) if dilated else [1, 1]
        steps = {
            "stride_in_pixels_x": strides[0], "stride_in_pixels_y": strides[1],
            "dilation_rate_x": dilations[0], "dilation_rate_y": dilations[1],
        }  # fmt: skip
        if kind == 0:
            self.descriptor: Any = MPSCNNConvolutionDescriptor(*kernel, *self.draw(1, 5), **steps)
        elif kind == 1:
            self.descriptor = MPSCNNConvolutionDescriptor(*kernel, 8, 16, groups=2, **steps)
        else:
            self.descriptor = MPSCNNDepthWiseConvolutionDescriptor(*kernel, 3, 6, **steps)
        images, first = self.draw(0, 1, 1)[0], 4 * self.draw(0, 1, 1)[0]
        self.properties: dict[str, Any] = {
            "offset": (*self.draw(*offsets), images),
            "clip_rect": None if self.draw(0, 1, 1)[0] else ((*self.draw(0, 2), 0), (*self.draw(1, 6), 1)),
            "source_feature_channel_offset": first,
            **{name: self.draw(*ends, 1)[0] for name, ends in shift.items()},
        }
        self.size = tuple(self.draw(1, 7))
        self.x = self.numbers(2 + images, *self.draw(1, 6), first + self.descriptor.input_feature_channels)

    def draw(self, low: int, high: int, count: int = 2) -> list[int]:
        return [int(n) for n in self.generator.integers(low, high + 1, count)]

    def numbers(self, *shape: int) -> Array:
        return numbers(self.generator, *shape)


def sums(state: Any) -> tuple[Array, Array]:
    """The gradients for weights and biases that the host reads after a synchronization."""
    state.synchronize()
    return state.gradient_for_weights, state.gradient_for_biases


def example(name: str, kernel_offset: int, secondary_offset: int) -> Example:
    """The worked line of the kernel, and where its gradient kernel is placed."""
    spec, x, w, b, y, g, dx, dw = next(line for key, line in LINES.items() if key.startswith(name))
    numbers_of = spec.kernel_size[1], spec.strides[1], spec.dilations[1], spec.offset[1]
    return Example(*numbers_of, x, w, b or None, y, kernel_offset, secondary_offset, g, dx, dw, sum(g))


OFFSETS = {"E1": (0, -1), "E2": (0, 0), "E3": (1, -1), "E4": (-1, -1), "E5": (1, -2)}
EXAMPLES = {name: example(name, *offsets) for name, offsets in OFFSETS.items()}


class NotedSource(ArrayConvolutionDataSource):
    """A data source that notes every call, and hands out arrays that are void after ``purge``."""

    def __init__(self, *arguments: Any, **answers: Any) -> None:
        super().__init__(*arguments)
        self.calls: list[str] = []
        self.answers = answers
        """What a method returns, or raises, instead."""

    def __getattribute__(self, name: str) -> Any:
        get = super().__getattribute__
        value = get(name)
        if name.startswith("_") or not callable(value):
            return value

        def noted() -> Any:
            get("calls").append(name)
            answer = get("answers").get(name, value)
            if isinstance(answer, Exception):
                raise answer
            return answer() if callable(answer) else answer

        return noted


class PlainSource:
    """A data source of the required methods alone."""

    def __init__(self, descriptor: MPSCNNConvolutionDescriptor, weights: Any, biases: Any = None, **extra: Any) -> None:
        self._descriptor, self._weights, self._biases = descriptor, weights, biases
        for name, answer in extra.items():
            setattr(self, name, functools.partial(lambda value: value, answer))

    def load(self) -> bool:
        return True

    def data_type(self) -> Any:
        return self._weights.dtype

    def descriptor(self) -> MPSCNNConvolutionDescriptor:
        return self._descriptor

    def weights(self) -> Any:
        return self._weights

    def bias_terms(self) -> Any:
        return self._biases

    def label(self) -> str | None:
        return None

    def purge(self) -> None:
        return None
