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
)

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


def sums(state: Any) -> tuple[Array, Array]:
    """The gradients for weights and biases that the host reads after a synchronization."""
    state.synchronize()
    return state.gradient_for_weights, state.gradient_for_biases


ONE_TO_FIVE = (1, 2, 3, 4, 5)
POWERS = (1, 10, 100)
EXAMPLES = {
    "E1": Example(
        3, 2, 1, 0, ONE_TO_FIVE, POWERS, 0.5, (210.5, 432.5, 54.5), 0, -1, (1, 2, 3), (10, 102, 20, 203, 30),
        (16, 22, 10), 6,
    ),
    "E2": Example(2, 2, 1, 1, ONE_TO_FIVE, POWERS[:2], None, (21, 43), 0, 0, (1, 2), (1, 10, 2, 20, 0), (7, 10), 3),
    "E3": Example(
        2, 1, 1, 0, ONE_TO_FIVE, POWERS[:2], None, (10, 21, 32, 43, 54), 1, -1, ONE_TO_FIVE, (12, 23, 34, 45, 50),
        (40, 55), 15,
    ),
    "E4": Example(
        3, 1, 2, 1, ONE_TO_FIVE, POWERS, None, (420, 531, 42, 53), -1, -1, (1, 2, 3, 4), (2, 13, 24, 130, 240),
        (20, 40, 14), 10,
    ),
    "E5": Example(
        3, 1, 1, -1, (1, 2, 3), POWERS, None, (100, 210, 321, 32, 3), 1, -2, ONE_TO_FIVE, (123, 234, 345),
        (26, 20, 14), 15,
    ),
}  # fmt: skip


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
