"""Gradient states and weight states: who may read what when, what the buffers hold, what kernels may write."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import NotSynchronizedError, OrderError, ShapeError
from tests.mps.convolution_layers import EXAMPLES, numbers, row

E1 = EXAMPLES["E1"]
G, X = row(*E1.g), row(*E1.x)
WIDE = mps.MPSCNNConvolutionDescriptor(2, 3, 4, 5)


def unreadable(state: Any) -> bool:
    names = ("gradient_for_weights", "gradient_for_biases")
    if isinstance(state, mps.MPSCNNConvolutionWeightsAndBiasesState):
        names = ("weights", "biases")
    refused = []
    for name in names:
        try:
            getattr(state, name)
        except NotSynchronizedError as error:
            refused += [str(error)]
    assert not refused or all(name in message for name, message in zip(names, refused, strict=True))
    return bool(refused)


def test_a_state_knows_its_convolution_and_source() -> None:
    forward = mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(WIDE, np.zeros(120)))
    _, state = forward.encode(np.zeros((3, 7, 9, 4), np.float32), return_state=True)
    assert isinstance(state, mps.MPSNNGradientState)
    assert type(state) is mps.MPSCNNConvolutionGradientState
    assert state.convolution is forward
    assert (state.source_width, state.source_height) == (9, 7)
    assert state.gradient_for_weights_layout is mps.MPSCNNConvolutionWeightsLayout.OHWI
    state.synchronize()
    assert (state.gradient_for_weights.shape, state.gradient_for_biases.shape) == ((5, 3, 2, 4), (5,))
    assert state.gradient_for_weights.dtype == state.gradient_for_biases.dtype == np.float32
    assert not state.gradient_for_weights.any()
    assert "MPSCNNConvolution, (3, 7, 9, 4) -> (3, 7, 9, 5)" in repr(state)


def test_depthwise_gradients_have_three_axes() -> None:
    descriptor = mps.MPSCNNDepthWiseConvolutionDescriptor(2, 3, 4, 8)
    forward = mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(descriptor, np.zeros(48)))
    _, state = forward.encode(np.zeros((1, 7, 9, 4), np.float32), return_state=True)
    state.synchronize()
    assert state.gradient_for_weights.shape == (8, 3, 2)


def test_buffers_outlive_the_state() -> None:
    _, state = E1.run()
    E1.gradient().encode(G, X, state)
    state.synchronize()
    dw, db = state.gradient_for_weights, state.gradient_for_biases
    del state
    assert (dw.ravel().tolist(), db.tolist()) == (list(E1.dw), [E1.db])


def test_biases_have_a_gradient_also_where_there_are_none() -> None:
    example = EXAMPLES["E2"]
    assert example.b is None
    _, state = example.run()
    example.gradient().encode(row(*example.g), row(*example.x), state)
    state.synchronize()
    assert state.gradient_for_biases.tolist() == [example.db]


def batches(backend: str) -> tuple[mps.MPSCNNConvolution, mps.MPSCNNConvolutionGradient, Array, Array]:
    generator = np.random.default_rng(0)
    source = mps.ArrayConvolutionDataSource(WIDE, numbers(generator, *WIDE.weights_shape))
    x, g = numbers(generator, 5, 4, 6, 4), numbers(generator, 5, 4, 6, 5)
    return mps.MPSCNNConvolution(source, backend=backend), mps.MPSCNNConvolutionGradient(source, backend=backend), x, g


@pytest.mark.parametrize("parts", [[5], [2, 3], [1, 1, 1, 1, 1], [0, 5, 0]])
def test_encodes_of_parts_of_a_batch_add_up(parts: list[int]) -> None:
    """Sub-batches: the forward encode is given the state, and must not reset it."""
    forward, gradient, x, g = batches("reference")
    whole = forward.encode(x, return_state=True)[1]
    gradient.encode(g, x, whole)
    state, first = None, 0
    for count in parts:
        part = slice(first, first + count)
        _, state = forward.encode(x[part], return_state=True, destination_state=state)
        gradient.encode(g[part], x[part], state)
        first += count
    assert state is not None
    for one in (whole, state):
        one.synchronize()
    np.testing.assert_array_equal(state.gradient_for_weights, whole.gradient_for_weights)
    np.testing.assert_array_equal(state.gradient_for_biases, whole.gradient_for_biases)
    np.testing.assert_array_equal(state.gradient_for_biases, g.sum(axis=(0, 1, 2)))


def test_all_forward_passes_may_come_before_the_gradients() -> None:
    forward, gradient, x, g = batches("reference")
    state = forward.encode(x, return_state=True)[1]
    for _ in range(3):
        forward.encode(x, destination_state=state)
    gradient.encode(g, x, state)
    state.synchronize()
    np.testing.assert_array_equal(state.gradient_for_biases, g.sum(axis=(0, 1, 2)))


def test_a_renewed_state_has_the_geometry_of_the_later_pass() -> None:
    forward, gradient = E1.forward(), E1.gradient()
    _, state = forward.encode(X, destination_size=(1, 3), return_state=True)
    forward.offset = 1, 0, 0
    forward.encode(row(1, 2, 3, 4), destination_size=(1, 2), destination_state=state)
    assert gradient.encode(row(1, 2), row(1, 2, 3, 4), state).shape == (1, 1, 4, 1)
    assert gradient.kernel_offset_x == -1
    assert state.source_width == 4


def test_a_new_batch_needs_a_new_state() -> None:
    """Encodes before the gradients are read are of one batch; after that, each is an error and changes nothing."""
    for read in ("gradient_for_weights", "gradient_for_biases", "device_read"):
        forward, gradient = E1.forward(), E1.gradient()
        _, state = forward.encode(X, return_state=True)
        for _ in range(2):
            forward.encode(X, destination_state=state)
            gradient.encode(G, X, state)
        state.synchronize()
        _ = state.device_read() if read == "device_read" else getattr(state, read)
        into = np.zeros((1, 1, 3, 1), np.float32)
        with pytest.raises(OrderError, match="destination_state has the gradients of a batch, which have been read"):
            forward.encode(X, into, destination_state=state)
        dx = np.zeros_like(X)
        with pytest.raises(OrderError, match=r"not reusable across batches: take the new state of encode\("):
            gradient.encode(G, X, state, dx)
        assert not dx.any()
        with pytest.raises(OrderError, match="not reusable"):
            state.accumulate(np.ones(3), np.ones(1), np.float32)
        assert not into.any()
        assert state.gradient_for_weights.ravel().tolist() == [2 * n for n in E1.dw]
        gradient.gradient_option = "gradientwithdata"
        assert gradient.encode(G, X, state).shape == X.shape, "reads the state alone"


def test_a_state_belongs_to_one_kernel() -> None:
    forward, other = E1.forward(), E1.forward()
    _, state = forward.encode(X, return_state=True)
    into = np.zeros((1, 1, 3, 1), np.float32)
    with pytest.raises(ValueError, match="destination_state was made by another kernel"):
        other.encode(X, into, destination_state=state)
    assert not into.any()
    with pytest.raises(TypeError, match="destination_state is of type object"):
        forward.encode(X, destination_state=object())
    _, again = forward.encode(X, return_state=True, destination_state=[state])
    assert again is state
    assert state == state
    assert state != forward.encode(X, return_state=True)[1]
    assert len({state, again}) == 1


def test_each_encode_adds_its_float64_total_and_rounds_once() -> None:
    """2**24 + 1 has no float32, so 2**24 and three ones make 2**24 + 4 in one sum, and stay 2**24 one by one."""
    forward = mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1), [1]))
    gradient = mps.MPSCNNConvolutionGradient(forward.data_source)
    big, one = row(2.0**24), row(1)

    def total(*encodes: Array) -> float:
        state = None
        for g in encodes:
            _, state = forward.encode(g, return_state=True, destination_state=state)
            gradient.encode(g, g, state)
        assert state is not None
        state.synchronize()
        return float(state.gradient_for_biases[0])

    assert total(big, one, one, one) == 2.0**24
    assert total(big, np.concatenate([one, one, one])) == 2.0**24 + 4, "3 is added, and the sum rounded to even"
    assert total(np.concatenate([big, one, one, one])) == 2.0**24 + 4


def test_float64_buffers_stay_float64() -> None:
    _, state = E1.run()
    gradient = E1.gradient()
    gradient.encode(G.astype(np.float64) / 3, X.astype(np.float64), state)
    gradient.encode(G, X, state)
    state.synchronize()
    assert state.gradient_for_weights.dtype == np.float64
    np.testing.assert_allclose(state.gradient_for_weights.ravel(), np.array(E1.dw) * 4 / 3, rtol=1e-15)


def test_kernels_on_the_device_need_no_synchronization() -> None:
    buffer = mps.MPSCommandBuffer()
    _, state = E1.run()
    zero = state.device_read(buffer)
    E1.gradient().encode(G, X, state, command_buffer=buffer)
    E1.gradient().encode(G, X, state, command_buffer=buffer)
    read = state.device_read(buffer)
    assert not zero.weights.any()
    assert not zero.biases.any()
    assert read.weights.ravel().tolist() == [2 * n for n in E1.dw]
    assert read.biases.tolist() == [2 * E1.db]
    with pytest.raises(ValueError, match="read-only"):
        read.weights[...] = 0
    buffer.commit()
    with pytest.raises(OrderError):
        state.device_read(buffer)


# --- weights and biases -------------------------------------------------------------------------------------------


def test_a_weight_state_from_a_descriptor_is_zero() -> None:
    for state in (
        mps.MPSCNNConvolutionWeightsAndBiasesState(WIDE),
        mps.MPSCNNConvolutionWeightsAndBiasesState.temporary_state(mps.MPSCommandBuffer(), WIDE),
    ):
        assert unreadable(state)
        state.synchronize()
        assert (state.weights.shape, state.biases.shape) == ((5, 3, 2, 4), (5,))
        assert state.weights.dtype == np.float32
        assert not state.weights.any()
        assert (state.weights_offset, state.biases_offset) == (0, 0)
    with pytest.raises(ValueError, match="groups"):
        mps.MPSCNNConvolutionWeightsAndBiasesState(mps.MPSCNNConvolutionDescriptor(1, 1, 3, 3, groups=2))
    done = mps.MPSCommandBuffer()
    done.commit()
    with pytest.raises(OrderError):
        mps.MPSCNNConvolutionWeightsAndBiasesState.temporary_state(done, WIDE)


def test_a_weight_state_shares_the_buffers_of_the_caller() -> None:
    """Later writes of the caller count, and kernels write there; what was read before does not change."""
    w, b = np.arange(6, dtype=np.float32).reshape(2, 1, 3, 1), np.array([1, 2], np.float32)
    state = mps.MPSCNNConvolutionWeightsAndBiasesState(w, b)
    before = state.device_read()
    w[...], b[...] = 9, 8
    assert unreadable(state)
    state.synchronize()
    assert (state.weights.tolist(), state.biases.tolist()) == (w.tolist(), [8, 8])
    for read in (before, state.device_read()):
        with pytest.raises(ValueError, match="read-only"):
            read.weights[...] = 0
    with pytest.raises(ValueError, match="read-only"):
        state.weights[...] = 0
    assert before.weights.ravel().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ShapeError, match="biases has shape"):
        state.device_write(np.zeros(6, np.float32), np.zeros(3, np.float32))
    assert (w == 9).all(), "nothing is written after an error"
    state.device_write(np.arange(6, dtype=np.float64))
    assert (w.ravel().tolist(), b.tolist()) == ([0, 1, 2, 3, 4, 5], [8, 8])
    state.device_write(w, [3.0, 4.0])
    assert b.tolist() == [3, 4]
    without = mps.MPSCNNConvolutionWeightsAndBiasesState(weights=w)
    without.synchronize()
    assert without.biases is None
    assert repr(without) == "<MPSCNNConvolutionWeightsAndBiasesState: weights (2, 1, 3, 1), without biases>"
    twin = copy.deepcopy(without)
    twin.device_write(w + 1)
    twin.synchronize()
    assert (twin.weights == w + 1).all()
    for bad, words in (
        ((w, w.reshape(-1)[:2]), "biases shares memory with weights"),
        ((np.lib.stride_tricks.as_strided(w, (6, 6), (4, 4)), b), "weights overlaps itself"),
    ):
        overlapping = mps.MPSCNNConvolutionWeightsAndBiasesState(*bad)
        with pytest.raises(ValueError, match=words):
            overlapping.device_write(bad[0])
    with pytest.raises(ValueError, match="has gaps"):
        mps.MPSCNNConvolutionWeightsAndBiasesState(
            np.zeros((12, 2), np.float32)[:, 0], 0, b, 0, mps.MPSCNNConvolutionDescriptor(3, 1, 2, 2)
        )


def test_values_that_cannot_be_written_are_copied() -> None:
    w = np.ones(3, np.float32)
    w.setflags(write=False)
    for given in (w, [1.0, 1.0, 1.0]):
        state = mps.MPSCNNConvolutionWeightsAndBiasesState(given)
        state.device_write([2.0, 2.0, 2.0])
        assert state.device_read().weights.tolist() == [2, 2, 2]
    assert w.tolist() == [1, 1, 1]


def test_a_reload_reads_what_an_update_kernel_has_written() -> None:
    """Way 3 of the header: the destination is made once from buffers, which a kernel of the application writes."""
    source = mps.ArrayConvolutionDataSource(
        mps.MPSCNNConvolutionDescriptor(1, 1, 4, 4), np.ones((4, 1, 1, 4)), np.zeros(4)
    )
    forward, gradient = mps.MPSCNNConvolution(source), mps.MPSCNNConvolutionGradient(source)
    x = np.ones((1, 1, 1, 4), np.float32)
    w, b = np.zeros(16, np.float32), np.zeros(4, np.float32)
    made = mps.MPSCNNConvolutionWeightsAndBiasesState(w, b)
    expected = np.ones(16, np.float32)
    for _ in range(3):
        y, state = forward.encode(x, return_state=True)
        gradient.encode(y, x, state)
        old, new = forward.export_weights_and_biases().device_read(), state.device_read()
        np.testing.assert_array_equal(old.weights.ravel(), expected)
        w[:], b[:] = (old.weights - 0.1 * new.weights).ravel(), old.biases - 0.1 * new.biases
        expected = w.copy()
        for kernel in (forward, gradient):
            kernel.reload_weights_and_biases(made)
        w[:] = 7  # after the reload
    np.testing.assert_array_equal(forward.export_weights_and_biases().device_read().weights.ravel(), expected)


def test_a_weight_state_from_parts_of_buffers() -> None:
    buffer = np.arange(200, dtype=np.float32)
    depthwise = mps.MPSCNNDepthWiseConvolutionDescriptor(3, 1, 2, 4)
    state = mps.MPSCNNConvolutionWeightsAndBiasesState(buffer, 40, buffer, 784, depthwise)
    state.synchronize()
    assert state.weights.tolist() == buffer[10:22].reshape(4, 1, 3).tolist()
    assert state.biases.tolist() == [196, 197, 198, 199]
    assert (state.weights_offset, state.biases_offset) == (40, 784)
    make = mps.MPSCNNConvolutionWeightsAndBiasesState
    with pytest.raises(ShapeError, match=r"biases has 800 bytes; from biases_offset 788 on it must have 16"):
        make(buffer, 0, buffer, 788, depthwise)
    with pytest.raises(ShapeError, match=r"weights has 44 bytes; from weights_offset 0 on it must have 48"):
        make(buffer[:11], buffer, cnn_convolution_descriptor=depthwise)
    assert make(buffer[:12], None, cnn_convolution_descriptor=depthwise).device_read().biases is None
    for bad, error in ((2, ValueError), (-4, ValueError), (4.0, TypeError)):
        with pytest.raises(error, match="weights_offset is"):
            make(buffer, bad, buffer, 0, depthwise)
        with pytest.raises(error, match="biases_offset is"):
            make(buffer, 0, buffer, bad, depthwise)
    with pytest.raises(ValueError, match="need a cnn_convolution_descriptor"):
        make(buffer, 4, buffer)
    with pytest.raises(TypeError, match="weights has dtype float16; it must be float32"):
        make(buffer.astype(np.float16))
    with pytest.raises(TypeError, match="biases has dtype int64"):
        make(buffer, np.arange(3))
    with pytest.raises(TypeError, match="pass a descriptor alone"):
        make(depthwise, buffer)


def test_a_kernel_of_anyones_writes_a_weight_state() -> None:
    state = mps.MPSCNNConvolutionWeightsAndBiasesState(mps.MPSCNNConvolutionDescriptor(3, 1, 1, 2))
    state.synchronize()
    buffer = mps.MPSCommandBuffer()
    new = np.arange(6, dtype=np.float32)
    state.device_write(new, new[:2], command_buffer=buffer)
    assert unreadable(state), "written"
    before = state.device_read(buffer)
    state.device_write(new + 1, command_buffer=buffer)
    new[:] = 9
    assert before.weights.ravel().tolist() == [0, 1, 2, 3, 4, 5]
    assert state.device_read(buffer).biases.tolist() == [0, 1], "kept"
    state.synchronize(buffer)
    buffer.wait_until_completed()
    assert state.weights.tolist() == [[[[1], [2], [3]]], [[[4], [5], [6]]]]
    with pytest.raises(OrderError):
        state.device_write(new, command_buffer=buffer)
    with pytest.raises(OrderError):
        state.device_read(buffer)
    for weights, biases, error, words in [
        (new[:5], None, ShapeError, r"weights has shape \(5,\); it must be \(2, 1, 3, 1\) or flat with 6"),
        (new.reshape(1, 1, 3, 2), None, ShapeError, "weights has shape"),
        (new, new[:3], ShapeError, r"biases has shape \(3,\)"),
        (new.astype(np.float16), None, TypeError, "weights has dtype float16"),
    ]:
        with pytest.raises(error, match=words):
            state.device_write(weights, biases)
    assert state.weights[0, 0, 0, 0] == 1, "nothing was written"
    without = mps.MPSCNNConvolutionWeightsAndBiasesState(new)
    with pytest.raises(ValueError, match="biases are to be written, but the state has none"):
        without.device_write(new, new[:2])
