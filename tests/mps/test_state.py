"""Gradient states: recorded values, immutability, and replacement by an encode."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.errors import UnsupportedError
from mpsref.mps import MPSNNGradientState, MPSOffset
from tests.mps.fakes import Difference, Shift, ShiftGradient

X = np.zeros((3, 6, 7, 12), np.float32)


def test_everything_of_the_forward_kernel_is_recorded() -> None:
    pool = mps.MPSCNNPoolingAverage(
        2,
        3,
        4,
        5,
        offset=(1, 2, 1),
        edge_mode="clamp",
        clip_rect=((1, 2, 1), (99, 98, 2)),
        source_feature_channel_offset=8,
        source_feature_channel_max_count=99,
        destination_feature_channel_offset=4,
        zero_pad_size_x=6,
        zero_pad_size_y=7,
    )
    _, state = pool.encode(X, np.zeros((3, 5, 4, 9), np.float32), return_state=True)
    record = state.record
    assert record.kernel_class is mps.MPSCNNPoolingAverage
    assert state.source == (MPSOffset(1, 2, 1), mps.MPSImageEdgeMode.Clamp, 2, 3, 4, 5, 1, 1, 8, 4)
    assert (record.source_shapes, record.destination_shape) == ((X.shape,), (3, 5, 4, 9))
    assert record.clip_rect == ((1, 2, 1), (3, 3, 2))
    assert (record.destination_feature_channel_offset, record.destination_feature_channels) == (4, 4)
    assert dict(record.extras) == {"zero_pad_size_x": 6, "zero_pad_size_y": 7}
    assert (state.source_width, state.source_height) == (7, 6)


def test_the_offset_is_the_one_that_padding_has_set() -> None:
    pool = mps.MPSCNNPoolingMax(2, 2, padding=mps.MPSNNDefaultPadding.padding_for_tensorflow_average_pooling())
    _, state = pool.encode(X, return_state=True)
    assert state.source.offset == (1, 1, 0)
    assert state.source.edge_mode is mps.MPSImageEdgeMode.Clamp


def test_a_state_cannot_be_changed() -> None:
    _, state = Shift().encode(X, return_state=True)
    with pytest.raises(AttributeError):
        state.record = None
    with pytest.raises(AttributeError):
        state.source.offset = (1, 1, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.record.destination_shape = (1, 1, 1, 1)
    with pytest.raises(TypeError):
        state.record.extras["factor"] = 2
    with pytest.raises(AttributeError):
        state.anything = 1


def test_states_of_equal_passes_are_equal() -> None:
    states = [Shift(offset=(x, 0, 0)).encode(X, X + 1, return_state=True)[1] for x in (0, 0, 1)]
    assert states[0] == states[1]
    assert states[0] != states[2]
    assert states[0] != "state"
    assert repr(states[0]) == "<MPSNNGradientState: Shift, (3, 6, 7, 12) -> (3, 6, 7, 12)>"


def test_an_encode_renews_the_state_that_it_is_given() -> None:
    _, state = Shift().encode(X, return_state=True)
    old = state.record
    result = Shift(offset=(3, 0, 0)).encode(X, X + 1, destination_state=state)
    assert isinstance(result, np.ndarray)
    assert (old.sources[0].offset, state.source.offset) == ((0, 0, 0), (3, 0, 0))
    both = Shift(offset=(4, 0, 0)).encode(X, X + 1, destination_state=state, return_state=True)
    assert both[1] is state
    assert state.source.offset == (4, 0, 0)


@pytest.mark.parametrize("wrong", ["state", 1, X])
def test_only_a_state_of_the_right_class_is_renewed(wrong: Any) -> None:
    _, binary = Difference().encode(X, X, return_state=True)
    for other in (wrong, binary):
        target = np.full_like(X, 7)
        with pytest.raises(TypeError, match="destination_state is of type"):
            Shift().encode(X, target, destination_state=other)
        assert (target == 7).all()


def test_an_error_leaves_the_state_as_it_was() -> None:
    _, state = Shift().encode(X, return_state=True)
    old = state.record
    with pytest.raises(ValueError, match="offset"):
        Shift(offset=(0, 0, 4)).encode(X, X + 1, destination_state=state)
    assert state.record is old
    assert isinstance(state, MPSNNGradientState)
    assert isinstance(state, mps.MPSState)


WEIGHTS = mps.ArrayConvolutionDataSource(
    mps.MPSCNNConvolutionDescriptor(1, 1, 12, 2), np.ones((2, 1, 1, 12), np.float32)
)


@pytest.mark.parametrize(
    "kernel",
    [Shift(offset=(1, 0, 0)), mps.MPSCNNPoolingMax(2, 2, 2, 2), mps.MPSCNNConvolution(WEIGHTS), mps.MPSCNNSoftMax(),
     mps.MPSCNNConvolutionTranspose(WEIGHTS), mps.MPSCNNUpsamplingNearest(2, 2),
     mps.MPSCNNInstanceNormalization(mps.InstanceNormalizationDataSource(12))],
    ids=lambda kernel: type(kernel).__name__,
)  # fmt: skip
def test_a_state_is_made_before_the_encode(kernel: Any) -> None:
    was = kernel.copy()
    for states in (None, (), []):
        made = kernel.result_state_for_source_image(X, states)
        assert kernel == was
        result, returned = kernel.copy().encode(X, return_state=True)
        assert type(made) is type(returned)
        if "Transpose" not in type(kernel).__name__:
            assert made.record.sources == returned.record.sources
        assert made.record.destination_shape == returned.record.destination_shape
    into = np.zeros_like(result)
    made = kernel.result_state_for_source_image(X, None, into)
    _, returned = kernel.encode(X, into, return_state=True)
    assert made.record.sources == returned.record.sources
    assert kernel.encode(X, into, destination_state=made) is into
    with pytest.raises(TypeError, match=r"source_states\[0\] is of type int"):
        kernel.result_state_for_source_image(X, [1])
    _, other = Shift().encode(X, return_state=True)
    with pytest.raises((ValueError, TypeError), match="state"):
        kernel.result_state_for_source_image(X, [other])


def test_a_state_of_a_reshape_needs_its_size() -> None:
    with pytest.raises(UnsupportedError, match="reshaped_width"):
        mps.MPSNNReshape().result_state_for_source_image(X)
    made = mps.MPSNNReshape().result_state_for_source_image(X, None, np.zeros((3, 12, 42, 1), np.float32))
    assert made.record.destination_shape == (3, 12, 42, 1)


NORM = mps.MPSCNNInstanceNormalization(mps.InstanceNormalizationDataSource(12))
RESHAPED = {"reshaped_width": 12, "reshaped_height": 3, "reshaped_feature_channels": 14}
PAIRS: list[Any] = [
    (Shift(), ShiftGradient(), {}),
    (mps.MPSCNNPoolingMax(3, 2, 2, 2), mps.MPSCNNPoolingMaxGradient(3, 2, 2, 2), {}),
    (mps.MPSCNNPoolingAverage(3, 3, 2, 2), mps.MPSCNNPoolingAverageGradient(3, 3, 2, 2), {"destination_size": (3, 3)}),
    (NORM, mps.MPSCNNInstanceNormalizationGradient(), {}),
    (mps.MPSCNNSoftMax(), mps.MPSCNNSoftMaxGradient(), {}),
    (mps.MPSCNNUpsamplingNearest(2, 2), mps.MPSCNNUpsamplingNearestGradient(2, 2), {}),
    (mps.MPSCNNAdd(maximum_value=0.5), mps.MPSCNNAddGradient(maximum_value=0.5), {}),
    (mps.MPSNNReshape(), mps.MPSNNReshapeGradient(), RESHAPED),
]
NOISE = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)


@pytest.mark.parametrize(("forward", "gradient", "arguments"), PAIRS, ids=lambda kernel: type(kernel).__name__)
def test_a_state_for_each_image_of_a_batch(forward: Any, gradient: Any, arguments: dict[str, Any]) -> None:
    sources = (NOISE, NOISE[:, ::-1].copy()) if isinstance(forward, mps.MPSCNNAdd) else (NOISE,)
    y, whole = forward.encode(*sources, **arguments, return_state=True)
    states = [forward.encode(*sources, **arguments, return_state=True)[1] for _ in sources[0]]
    for _ in range(2):  # the second encode may be a prepared one
        result, returned = forward.encode(*sources, **arguments, return_state=True, destination_state=states)
        assert [id(state) for state in returned] == [id(state) for state in states]
        np.testing.assert_array_equal(result, y)
    g = np.random.default_rng(2).normal(size=y.shape).astype(np.float32)
    expected = gradient.encode(g, NOISE, whole)
    np.testing.assert_array_equal(gradient.encode(g, NOISE, states), expected)
    for k, state in enumerate(states):
        image = slice(k, k + 1)
        position = {"first_image_index": k} if isinstance(forward, mps.MPSCNNDropout) else {}
        _, alone = forward.encode(*(source[image] for source in sources), **arguments, **position, return_state=True)
        extras = [dict(one.record.extras) for one in (state, alone)]
        np.testing.assert_array_equal(*(one.pop("mask", None) for one in extras))
        assert extras[0] == extras[1]
        assert dataclasses.replace(state.record, extras={}) == dataclasses.replace(alone.record, extras={})
        np.testing.assert_array_equal(gradient.encode(g[image], NOISE[image], state), expected[image])
    if forward is NORM:
        for state in (whole, *states):
            state.synchronize()
        np.testing.assert_array_equal([state.gradient_for_gamma[0] for state in states], whole.gradient_for_gamma)
        updated = []
        for given in (whole, states, [whole]):
            optimizer = mps.MPSNNOptimizerStochasticGradientDescent(0.1)
            data_source = mps.InstanceNormalizationDataSource(12, optimizer=optimizer)
            assert data_source.update_gamma_and_beta_cpu(given)
            updated.append(data_source.gamma())
        np.testing.assert_array_equal(updated, [updated[0]] * 3)
        assert (updated[0] != 1).all()


def test_the_states_of_a_batch_before_the_encode() -> None:
    for kernel in (Shift(), mps.MPSCNNPoolingMax(2, 2, 2, 2), NORM):
        assert not kernel.is_result_state_reused_across_batch
        states = kernel.result_state_batch_for_source_image(X)
        assert len({id(state) for state in states}) == len(X)
        y = kernel.encode_batch(source_images=X, destination_states=states)
        for state in states:
            assert state.record == kernel.encode(X[:1], return_state=True)[1].record
        assert y.shape[0] == len(X)


def test_the_states_of_a_loss() -> None:
    loss = mps.MPSNNForwardLoss(mps.MPSCNNLossDescriptor("meansquarederror", "sum", weight=3))
    gradient = mps.MPSNNLossGradient(mps.MPSCNNLossDescriptor("meansquarederror", "sum"))
    g = np.ones((3, 1, 1, 1), np.float32)
    _, whole = loss.encode(NOISE, X, return_state=True)
    states = loss.result_state_batch_for_source_image(NOISE)
    loss.encode(NOISE, X, destination_state=states)
    expected = gradient.encode(g, NOISE, X, source_state=whole)
    np.testing.assert_array_equal(gradient.encode(g, NOISE, X, source_state=states), expected)


def test_lists_of_states_that_do_not_fit_the_images() -> None:
    kernel = Shift()
    states = kernel.result_state_batch_for_source_image(X)
    records = [state.record for state in states]
    target = np.full_like(X, 7)
    for bad in (states[:2], [*states, states[0]], [states[0], states[1], states[0]]):
        with pytest.raises(ValueError, match=r"destination_state is a list of .* different state for each of 3 image"):
            kernel.encode(X, target, destination_state=bad)
    with pytest.raises(ValueError, match="images 1 to 1 are written"):
        Shift(clip_rect=((0, 0, 1), (7, 6, 1))).encode(X, target, destination_state=states)
    larger = np.full((4, *X.shape[1:]), 7, X.dtype)
    with pytest.raises(ValueError, match="'destination_image': 4"):
        Shift(clip_rect=((0, 0, 0), (7, 6, 3))).encode(X, larger, destination_state=states)
    _, binary = Difference().encode(X, X, return_state=True)
    with pytest.raises(TypeError, match="destination_state is of type MPSNNBinaryGradientState"):
        kernel.encode(X, target, destination_state=[*states[:2], binary])
    shared = mps.MPSCNNConvolution(WEIGHTS)
    convolved = [shared.result_state_for_source_image(X) for _ in X]
    with pytest.raises(ValueError, match="one and the same state for each of 3 image"):
        shared.encode(X, destination_state=convolved)
    assert (target == 7).all()
    assert all(state.record is record for state, record in zip(states, records, strict=True))
    assert kernel.encode(X, target, destination_state=[states[0]] * 3) is target
    assert states[0].record.source_shapes == (X.shape,)
