"""The gradient kernel with a destination: every property counts as it is set; and calls that are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpsref
from mpsref import mps, registry
from mpsref.errors import OrderError, ShapeError, UnsupportedError
from tests import examples
from tests.mps.convolution_layers import EXAMPLES, layer, row, sums

E1 = EXAMPLES["E1"]


def mps_form(kernel: int, stride: int, dilation: int, e: int, w: Any, g: Any, n: int) -> list[float]:
    """dx of one row as Apple writes it: the rotated window over the zero-inserted source gradient."""
    extent = (kernel - 1) * dilation + 1
    result = []
    for j in range(n):
        total = 0.0
        for t in range(kernel):
            u = j + e - extent // 2 + dilation * t
            if u >= 0 and u % stride == 0 and u // stride < len(g):
                total += w[kernel - 1 - t] * g[u // stride]
        result.append(total)
    return result


@examples(80)
@given(
    kernel=st.integers(1, 4), stride=st.integers(1, 3), dilation=st.integers(1, 3), primary=st.integers(-3, 3),
    kernel_offset=st.integers(-6, 6), secondary=st.integers(-4, 4), length=st.integers(1, 8), outputs=st.integers(1, 5),
    origin=st.integers(0, 2), edge_mode=st.sampled_from([mps.MPSImageEdgeMode.Zero, mps.MPSImageEdgeMode.Clamp]),
)  # fmt: skip
def test_by_hand_every_property_counts_as_it_is_set(
    kernel: int, stride: int, dilation: int, primary: int, kernel_offset: int, secondary: int, length: int,
    outputs: int, origin: int, edge_mode: Any,
) -> None:  # fmt: skip
    descriptor = mps.MPSCNNConvolutionDescriptor(kernel, 1, 1, 1, stride_in_pixels_x=stride, dilation_rate_x=dilation)
    forward, gradient = layer(descriptor)
    w = forward.data_source.weights_array.ravel().tolist()
    x, g = list(range(1, length + 1)), [10**i for i in range(outputs)]
    _, state = forward.encode(row(*x), return_state=True)
    gradient.primary_offset, gradient.kernel_offset_x = (primary, 0, 0), kernel_offset
    gradient.clip_rect = (origin, 0, 0), (4, 1, 1)
    into = np.full((1, 1, 6, 1), -7, np.float32)
    gradient.gradient_option = 1
    gradient.encode(row(*g), row(*x), None, into)
    n = min(4, 6 - origin)
    expected = mps_form(kernel, stride, dilation, primary * stride + kernel_offset, w, g, n)
    assert into.ravel().tolist() == [-7] * origin + expected + [-7] * (6 - origin - n)

    gradient.gradient_option = 2
    gradient.secondary_offset, gradient.secondary_edge_mode = (secondary, 0, 0), edge_mode
    gradient.encode(row(*g), row(*x), state, into)
    dw, db = sums(state)

    def pixel(j: int) -> float:
        if edge_mode is mps.MPSImageEdgeMode.Clamp:
            return x[min(max(j, 0), length - 1)]
        return x[j] if 0 <= j < length else 0

    taps = [sum(g[i] * pixel(stride * i + secondary + dilation * t) for i in range(outputs)) for t in range(kernel)]
    assert (dw.ravel().tolist(), db.tolist()) == (taps, [sum(g)])


def test_decompositions_of_the_effective_offset_are_equal() -> None:
    results = []
    for primary, offset in ((0, 4), (1, 2), (2, 0), (3, -2)):
        gradient = E1.gradient(gradient_option=1, primary_offset=(primary, 0, 0), kernel_offset_x=offset)
        results.append(gradient.encode(row(1, 2, 3), row(*E1.x), None, np.zeros((1, 1, 5, 1), np.float32)).tolist())
    assert results[0] == results[1] == results[2] == results[3] != [[[[0]] * 5]]


def test_images_that_do_not_fit() -> None:
    forward, gradient = layer(mps.MPSCNNConvolutionDescriptor(1, 1, 2, 3))
    x, g = np.zeros((1, 2, 2, 2), np.float32), np.zeros((1, 2, 2, 3), np.float32)
    _, state = forward.encode(x, return_state=True)
    into = np.zeros_like(x)
    with pytest.raises(ShapeError, match="2 channels are read of source_gradient; they must be 3"):
        gradient.encode(g[..., :2], x, state, into)
    with pytest.raises(ShapeError, match="1 channels are read of source_image; they must be 2"):
        gradient.encode(g, x[..., :1], state, into)
    with pytest.raises(ShapeError, match="source_image has shape"):
        gradient.encode(g, x[:, :1], state)
    with pytest.raises(ValueError, match=r"source_image has only 1"):
        gradient.encode(np.concatenate([g, g]), x, state, np.concatenate([into, into]))
    done = mps.MPSCommandBuffer()
    done.commit()
    with pytest.raises(OrderError):
        gradient.encode(g, x, state, command_buffer=done)
    state.synchronize()
    assert not state.gradient_for_weights.any()


def test_an_error_in_the_second_gradient_leaves_the_state_alone() -> None:
    """The reference does everything; a backend that lacks the gradient for the data must not add to the state first."""
    reference = registry.get_backend("reference")
    table = {key: one for key, one in reference.implementations.items() if key != (mpsref.Convolution, "gradient_data")}
    lame = mpsref.Backend("lame", table)
    _, state = E1.run()
    state.synchronize()
    with pytest.raises(UnsupportedError, match="lame"):
        E1.gradient(lame).encode(row(1, 2, 3), row(*E1.x), state)
    assert not state.gradient_for_weights.any()


def test_what_cannot_be_trained() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, 1, 4)
    descriptor.fused_neuron_descriptor = mps.MPSNNNeuronDescriptor(mps.MPSCNNNeuronType.ReLU, 0.0)
    with pytest.raises(ValueError, match=r"fused_neuron_descriptor is .*; a convolution that is trained"):
        layer(descriptor)
    normalized = mps.MPSCNNConvolutionDescriptor(1, 1, 1, 4)
    normalized.set_batch_normalization_parameters_for_inference()
    with pytest.raises(ValueError, match="batch normalization for inference"):
        layer(normalized)
    with pytest.raises(NotImplementedError, match="sub_pixel_scale_factor is 2; there is no gradient"):
        layer(mps.MPSCNNSubPixelConvolutionDescriptor(1, 1, 1, 4, sub_pixel_scale_factor=2))
    assert layer(mps.MPSCNNSubPixelConvolutionDescriptor(1, 1, 1, 4))
    plain = mps.MPSCNNConvolutionDescriptor(1, 1, 1, 4)
    _, gradient = layer(plain)
    plain.fused_neuron_descriptor = descriptor.fused_neuron_descriptor
    with pytest.raises(ValueError, match="must have none"):
        gradient.reload_weights_and_biases_from_data_source()
