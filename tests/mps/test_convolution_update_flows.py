"""The three ways of updating weights, as programs; and what each of them leaves alone.

Common to all: x = 1 2 3 4 5, w = 1 10 100, b = 0.5, stride 2, g = 1 2 3 and a learning rate of 0.01. The buffers of the
state hold +dL/dw; that the step goes downhill is the application's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import Array
from mpsref.mps import (
    ArrayConvolutionDataSource,
    MPSCNNConvolution,
    MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionGradient,
    MPSCNNConvolutionGradientState,
    MPSCNNConvolutionWeightsAndBiasesState,
)
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.optimizer import MPSNNOptimizerStochasticGradientDescent
from tests.mps.convolution_layers import EXAMPLES, require, row

RATE = 0.01
E1 = EXAMPLES["E1"]
X, G = row(*E1.x), row(*E1.g)
DESCRIPTOR = E1.descriptor
UPDATED = ([0.84, 9.78, 99.9], 0.44)


@dataclass
class Layer:
    """A data source, the two kernels made from it, and the batch that they run on."""

    source: Any
    x: Array
    g: Array
    backend: str = "reference"
    size: tuple[int, int] = (1, 3)
    convolution: MPSCNNConvolution = field(init=False)
    gradient: MPSCNNConvolutionGradient = field(init=False)

    def __post_init__(self) -> None:
        self.convolution = MPSCNNConvolution(self.source, backend=self.backend)
        self.gradient = MPSCNNConvolutionGradient(self.source, backend=self.backend)

    def backward(self, buffer: MPSCommandBuffer | None = None) -> tuple[Array, Array, MPSCNNConvolutionGradientState]:
        """One forward and one backward pass with a new state, on ``buffer``: y, dx, state."""
        y, state = self.convolution.encode_batch(
            self.x, destination_size=self.size, return_state=True, command_buffer=buffer
        )
        dx = self.gradient.encode_batch(self.g, self.x, state, command_buffer=buffer)
        return y, dx, state


def small(backend: str = "reference", kind: Any = ArrayConvolutionDataSource) -> Layer:
    return Layer(kind(DESCRIPTOR.copy(), [1, 10, 100], [0.5]), X, G, require(backend))


def weights_of(kernel: MPSCNNConvolution) -> tuple[Array, Array | None]:
    """What is in force in a kernel."""
    state = kernel.export_weights_and_biases()
    state.synchronize()
    return state.weights, state.biases


def close(values: Array, expected: Any) -> None:
    np.testing.assert_allclose(values.ravel(), expected, rtol=2e-6)


# --- two update rules: of the application's own, and an optimizer -------------------------------------------------


class Own:
    """A kernel of the application's own: it reads and writes where kernels do, in the order of the buffer."""

    def __init__(self, backend: str) -> None:
        pass

    def on_host(self, value: Array, gradient: Array) -> Array:
        return value - RATE * gradient

    def on_device(self, gradient_state: Any, source_state: Any, result_state: Any, buffer: MPSCommandBuffer) -> None:
        gradient, old = gradient_state.device_read(buffer), source_state.device_read(buffer)
        new = (self.on_host(*one) for one in zip(old, gradient, strict=True))
        result_state.device_write(*new, command_buffer=buffer)


class Optimizer(Own):
    """Stochastic gradient descent, as a function on the host and as a kernel on the device."""

    def __init__(self, backend: str) -> None:
        self.kernel = MPSNNOptimizerStochasticGradientDescent(RATE, backend=backend)

    def on_host(self, value: Array, gradient: Array) -> Array:
        vectors = {"input_gradient_vector": gradient.ravel(), "input_values_vector": value.ravel()}
        return self.kernel.encode(**vectors, input_momentum_vector=None).reshape(value.shape)

    def on_device(self, gradient_state: Any, source_state: Any, result_state: Any, buffer: MPSCommandBuffer) -> None:
        self.kernel.encode(
            convolution_gradient_state=gradient_state,
            convolution_source_state=source_state,
            input_momentum_vectors=None,
            result_state=result_state,
            command_buffer=buffer,
        )


RULES = {"own": Own, "optimizer": Optimizer}


@pytest.fixture(params=RULES)
def rule(request: pytest.FixtureRequest) -> Own:
    """An update rule."""
    return RULES[request.param]("reference")


# --- the three programs -------------------------------------------------------------------------------------------


def check_pointing(layer: Layer, rule: Own) -> None:
    """Flow A: the host reads the gradients and writes the data source. The kernels do not notice."""
    buffer = MPSCommandBuffer()
    _, _, state = layer.backward(buffer)
    state.synchronize(buffer)
    buffer.commit()
    buffer.wait_until_completed()
    layer.source.weights_array[...] = rule.on_host(layer.source.weights_array, state.gradient_for_weights)
    layer.source.biases_array[...] = rule.on_host(layer.source.biases_array, state.gradient_for_biases)


def host_update(layer: Layer, rule: Own) -> None:
    """Flow B: flow A, then both kernels reload from the data source."""
    check_pointing(layer, rule)
    layer.convolution.reload_weights_and_biases_from_data_source()
    layer.gradient.reload_weights_and_biases_from_data_source()


def device_update(layer: Layer, rule: Own) -> Array:
    """Flow C: everything on one command buffer, the next forward pass too; the data source is left alone."""
    buffer = MPSCommandBuffer()
    _, _, state = layer.backward(buffer)
    source = layer.convolution.export_weights_and_biases(result_state_can_be_temporary=False, command_buffer=buffer)
    result = MPSCNNConvolutionWeightsAndBiasesState(layer.source.descriptor())
    rule.on_device(state, source, result, buffer)
    layer.convolution.reload_weights_and_biases(result, command_buffer=buffer)
    layer.gradient.reload_weights_and_biases(result, command_buffer=buffer)
    y: Array = layer.convolution.encode_batch(layer.x, destination_size=layer.size, command_buffer=buffer)
    buffer.commit()
    buffer.wait_until_completed()
    return y


def larger(backend: str) -> Layer:
    generator = np.random.default_rng(0)
    descriptor = MPSCNNConvolutionDescriptor(3, 3, 8, 16, groups=2, stride_in_pixels_x=2)
    w, b = generator.standard_normal(descriptor.weights_shape), generator.standard_normal(16)
    x = generator.standard_normal((4, 9, 10, 8)).astype(np.float32)
    g = generator.standard_normal((4, 9, 5, 16)).astype(np.float32)
    return Layer(ArrayConvolutionDataSource(descriptor, w, b), x, g, require(backend), (9, 5))


@pytest.mark.parametrize("make", [small, larger])
def test_all_flows_give_the_same_weights(make: Callable[[str], Layer], backend: str, rule: Own) -> None:
    """FC3: the same operations in float32 make the same bits."""
    layers = [make(backend) for _ in range(3)]
    check_pointing(layers[0], rule)
    host_update(layers[1], rule)
    device_update(layers[2], rule)
    new = MPSCNNConvolution(layers[0].source)
    expected = weights_of(new)
    for kernel in (layers[1].convolution, layers[2].convolution):
        for mine, theirs in zip(weights_of(kernel), expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(expected[0], weights_of(layers[0].convolution)[0])
    np.testing.assert_array_equal(layers[1].gradient._loaded.weights, layers[2].gradient._loaded.weights)


# --- B ------------------------------------------------------------------------------------------------------------


def test_fb1_both_kernels_use_the_new_weights(backend: str, rule: Own) -> None:
    layer = small(backend)
    host_update(layer, rule)
    weights, biases = weights_of(layer.convolution)
    close(weights, UPDATED[0])
    assert biases is not None
    close(biases, UPDATED[1])
    y, dx, _ = layer.backward()
    close(y, [210.02, 431.06, 52.70])
    close(dx, [9.78, 101.58, 19.56, 202.32, 29.34])


def test_fb2_kernels_are_reloaded_one_by_one() -> None:
    layer = small()
    check_pointing(layer, Own("reference"))
    layer.convolution.reload_weights_and_biases_from_data_source()
    y, dx, _ = layer.backward()
    close(y, [210.02, 431.06, 52.70])
    assert dx.ravel().tolist() == [10, 102, 20, 203, 30]


def test_fb3_a_reload_equals_new_kernels() -> None:
    layer = small()
    host_update(layer, Own("reference"))
    new = Layer(layer.source, X, G, "reference")
    for mine, theirs in zip(layer.backward()[:2], new.backward()[:2], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_fb5_an_encode_keeps_the_weights_of_its_moment() -> None:
    layer, buffer = small(), MPSCommandBuffer()
    y, dx, state = layer.backward(buffer)
    layer.source.weights_array[...] = 0
    layer.convolution.reload_weights_and_biases_from_data_source()
    layer.gradient.reload_weights_and_biases_from_data_source()
    state.synchronize(buffer)
    buffer.wait_until_completed()
    assert y.ravel().tolist() == [210.5, 432.5, 54.5]
    assert dx.ravel().tolist() == [10, 102, 20, 203, 30]
    assert layer.backward()[0].ravel().tolist() == [0.5] * 3


# --- C ------------------------------------------------------------------------------------------------------------


def test_fc1_the_next_encode_on_the_same_command_buffer_has_the_new_weights(backend: str, rule: Own) -> None:
    layer, buffer = small(backend), MPSCommandBuffer()
    y, _, state = layer.backward(buffer)
    source = layer.convolution.export_weights_and_biases(command_buffer=buffer)
    result = MPSCNNConvolutionWeightsAndBiasesState(DESCRIPTOR)
    rule.on_device(state, source, result, buffer)
    layer.convolution.reload_weights_and_biases(result, command_buffer=buffer)
    layer.gradient.reload_weights_and_biases(result, command_buffer=buffer)
    y2 = layer.convolution.encode_batch(X, destination_size=(1, 3), command_buffer=buffer)
    later = MPSCommandBuffer()
    dx2 = layer.backward(later)[1]
    assert y.ravel().tolist() == [210.5, 432.5, 54.5]
    close(y2, [210.02, 431.06, 52.70])
    close(dx2, [9.78, 101.58, 19.56, 202.32, 29.34])


def test_fc2_the_data_source_is_left_alone() -> None:
    layer = small()
    close(device_update(layer, Own("reference")), [210.02, 431.06, 52.70])
    assert layer.source.weights_array.ravel().tolist() == [1, 10, 100]
    assert layer.source.biases_array.tolist() == [0.5]
    layer.convolution.reload_weights_and_biases_from_data_source()
    assert layer.backward()[0].ravel().tolist() == [210.5, 432.5, 54.5]


@pytest.mark.parametrize("name", RULES)
def test_fc3_in_place(name: str) -> None:
    """The state that is read may be the one that is written."""
    layer, buffer, rule = small(), MPSCommandBuffer(), RULES[name]("reference")
    _, _, state = layer.backward(buffer)
    both = layer.convolution.export_weights_and_biases(command_buffer=buffer)
    rule.on_device(state, both, both, buffer)
    layer.convolution.reload_weights_and_biases(both, command_buffer=buffer)
    other = small()
    device_update(other, rule)
    np.testing.assert_array_equal(weights_of(layer.convolution)[0], weights_of(other.convolution)[0])


def test_float16_kernel_weights_are_rounded_at_every_reload() -> None:
    source = ArrayConvolutionDataSource(DESCRIPTOR, [1, 2, 3], None, "float16")
    convolution = MPSCNNConvolution(source)
    convolution.reload_weights_and_biases(MPSCNNConvolutionWeightsAndBiasesState(np.full(3, 0.1, np.float32)))
    assert weights_of(convolution)[0].ravel().tolist() == [0.0999755859375] * 3
