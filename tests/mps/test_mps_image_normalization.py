"""Instance and group normalization classes: worked examples, parameters, images, states of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref.errors import NotSynchronizedError, OrderError
from mpsref.kernels.normalization import FLT_MIN
from mpsref.mps import (
    GroupNormalizationDataSource,
    InstanceNormalizationDataSource,
    MPSCNNGroupNormalizationDataSource,
    MPSCNNGroupNormalizationGradientState,
    MPSCNNInstanceNormalization,
    MPSCNNInstanceNormalizationDataSource,
    MPSCNNInstanceNormalizationGradient,
    MPSCNNInstanceNormalizationGradientState,
    MPSCNNNormalizationGammaAndBetaState,
)
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.image import MPSImage, MPSImageBatch
from tests.mps.image_normalization_layers import (
    BETA,
    GAMMA,
    GROUP,
    INSTANCE,
    by_class,
    function,
    noise,
    plain,
    source,
)


def test_the_worked_example_of_instance_normalization() -> None:
    norm = MPSCNNInstanceNormalization(InstanceNormalizationDataSource(2, [2, 3], [0, 1], 3.0))
    x = np.array([[[1, 10], [3, 14]], [[0, 2], [4, 2]]], np.float32).reshape(2, 1, 2, 2)
    g = np.array([[[1, 1], [2, 0]], [[-1, 3], [1, 1]]], np.float32).reshape(2, 1, 2, 2)
    y, state = norm.encode(x, return_state=True)
    np.testing.assert_allclose(y[0, 0], [[-1, -1.26778684], [1, 3.26778684]], rtol=1e-6)
    dx = MPSCNNInstanceNormalizationGradient().encode(g, x, state)
    np.testing.assert_allclose(dx[1, 0], [[-0.32396955, 1.73205081], [0.32396955, -1.73205081]], rtol=1e-6)
    state.synchronize()
    np.testing.assert_allclose(state.gradient_for_gamma, [[0.5, -0.75592895], [1.51185789, 0]], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(state.gradient_for_beta, [[3, 1], [0, 4]])


@by_class
def test_the_functional_form_computes(pair: Any) -> None:
    x, g = noise(2, 3, 4, 4), noise(2, 3, 4, 4, seed=1)
    norm, gradient = pair[0](source(pair)), pair[1]()
    y, state = norm.encode(x, return_state=True)
    np.testing.assert_array_equal(y, function(pair).forward(x, GAMMA, BETA))
    results = function(pair).gradient(g, x, GAMMA)
    np.testing.assert_array_equal(gradient.encode(g, x, state), results[0])
    state.synchronize()
    np.testing.assert_array_equal(state.gradient_for_gamma, results[1])
    np.testing.assert_array_equal(state.gradient_for_beta, results[2])


@by_class
def test_parameters_that_a_data_source_does_not_have(pair: Any) -> None:
    """No gamma is 1, no beta 0, no epsilon the smallest normal number, and load and purge need not exist."""
    x = noise(1, 3, 3, 4)
    norm = pair[0](plain(pair))
    assert norm.epsilon == FLT_MIN
    np.testing.assert_array_equal(norm.encode(x), function(pair, FLT_MIN).forward(x))
    np.testing.assert_array_equal([norm.gamma, norm.beta], [[1] * 4, [0] * 4])
    assert not norm.is_result_state_reused_across_batch


def test_ready_data_sources_have_the_members_of_the_protocols() -> None:
    instance, group = source(INSTANCE), source(GROUP)
    assert isinstance(instance, MPSCNNInstanceNormalizationDataSource)
    assert isinstance(group, MPSCNNGroupNormalizationDataSource)
    assert not isinstance(instance, MPSCNNGroupNormalizationDataSource)
    assert GroupNormalizationDataSource(4).number_of_groups == 1
    group.number_of_groups = 4
    with pytest.raises(ValueError, match=r"number_of_groups is 3; it must divide number_of_feature_channels, 4"):
        group.number_of_groups = 3
    assert group.number_of_groups == 4


@by_class
def test_epsilon_can_be_set(pair: Any) -> None:
    x = noise(1, 3, 3, 4)
    norm = pair[0](source(pair), epsilon=0.5)
    assert norm.epsilon == 0.5
    norm.epsilon = 2.0
    np.testing.assert_array_equal(norm.encode(x), function(pair, 2.0).forward(x, GAMMA, BETA))
    for bad, error in ((-1.0, ValueError), (float("nan"), ValueError), ("1", TypeError)):
        with pytest.raises(error, match=r"^epsilon is"):
            norm.epsilon = bad
    assert norm.epsilon == 2.0


@by_class
def test_the_gradient_reads_gamma_and_epsilon_through_the_state(pair: Any) -> None:
    x, g = noise(1, 3, 3, 4), noise(1, 3, 3, 4, seed=1)
    norm = pair[0](source(pair))
    _, state = norm.encode(x, return_state=True)
    norm.epsilon = 2.0
    norm.reload_gamma_and_beta(MPSCNNNormalizationGammaAndBetaState([1, 1, 1, 5], [0, 0, 0, 0]))
    np.testing.assert_array_equal(state.gamma, [1, 1, 1, 5])
    dx = pair[1]().encode(g, x, state)
    np.testing.assert_array_equal(dx, function(pair, 2.0).gradient(g, x, [1, 1, 1, 5])[0])


@by_class
def test_images_and_batches(pair: Any) -> None:
    x, g = noise(2, 3, 3, 4), noise(2, 3, 3, 4, seed=1)
    norm, gradient = pair[0](source(pair)), pair[1]()
    due = norm.encode(x)
    result = norm.encode(MPSImage(x))
    assert isinstance(result, MPSImage)
    np.testing.assert_array_equal(result.array, due)
    batch, state = norm.encode_batch(MPSImageBatch.from_array(x), return_state=True)
    np.testing.assert_array_equal(np.concatenate([image.array for image in batch]), due)
    destination = np.empty_like(x)
    assert gradient.encode(g, x, state, destination) is destination
    np.testing.assert_array_equal(destination, function(pair).gradient(g, x, GAMMA)[0])


@by_class
def test_a_list_of_arrays_is_their_images_in_turn(pair: Any) -> None:
    x, g = noise(3, 3, 3, 4), noise(3, 3, 3, 4, seed=1)
    norm, gradient = pair[0](source(pair)), pair[1]()
    results, state = norm.encode_batch([x[:1], x[1:]], return_state=True)
    assert [result.shape[0] for result in results] == [1, 2]
    np.testing.assert_array_equal(np.concatenate(results), norm.encode(x))
    assert len(state) == 3
    parts = gradient.encode_batch([g[:1], g[1:]], [x[:1], x[1:]], state)
    np.testing.assert_array_equal(np.concatenate(parts), function(pair).gradient(g, x, GAMMA)[0])
    for attempt, message in (
        (lambda: norm.encode([x, x[:, :2]]), r"source_image is a list of images with \(H, W, C\) of"),
        (lambda: norm.encode([x, x], np.zeros((6, 3, 3, 4), np.float32)), r"destination_image is given"),
        (lambda: gradient.encode([g[:2], g[2:]], [x[:1], x[1:]], state), r"source_gradient has \[2, 1\] parts"),
        (lambda: gradient.encode(g, [x[:1], x[1:]], state), r"source_gradient has no parts"),
        (lambda: gradient.encode([g], [x], state, np.zeros_like(x)), r"destination_gradient is given"),
    ):
        with pytest.raises(ValueError, match=message):
            attempt()


@by_class
def test_float64_for_work_in_float64(pair: Any) -> None:
    x, g = noise(2, 3, 3, 4, dtype="float64"), noise(2, 3, 3, 4, seed=1, dtype="float64")
    norm = pair[0](source(pair))
    _, state = norm.encode(x, return_state=True)
    assert pair[1]().encode(g, x, state).dtype == np.float64
    state.synchronize()
    assert state.gradient_for_gamma.dtype == np.float64


@by_class
def test_a_state_carries_a_row_for_each_image(pair: Any) -> None:
    x, g = noise(3, 3, 3, 4), noise(3, 3, 3, 4, seed=1)
    norm = pair[0](source(pair))
    _, state = norm.encode(x, return_state=True)
    kind = MPSCNNInstanceNormalizationGradientState if pair is INSTANCE else MPSCNNGroupNormalizationGradientState
    assert type(state) is kind
    assert (state.instance_normalization if pair is INSTANCE else state.group_normalization) is norm
    assert (state.gradient_for_gamma, state.gradient_for_beta, state[1].gradient_for_gamma) == (None, None, None)
    pair[1]().encode(g, x, state)
    state.synchronize()
    assert state.gradient_for_gamma.shape == state.gradient_for_beta.shape == (3, 4)
    assert len(state) == len(list(state)) == 3
    total = np.zeros(4)
    for one in state:  # as a callback for a batch of states does it
        assert isinstance(one, kind)
        total += one.gradient_for_gamma
        np.testing.assert_array_equal(one.gamma, GAMMA)
    np.testing.assert_allclose(total, state.gradient_for_gamma.sum(0), rtol=1e-6)
    np.testing.assert_array_equal(state[-1].gradient_for_beta, state.gradient_for_beta[2])
    for index in (3, -4):
        with pytest.raises(IndexError, match=r"the state is of 3 image\(s\)"):
            state[index]
    with pytest.raises(TypeError, match=r"image is 1.0"):
        state[1.0]
    with pytest.raises(TypeError, match=r"the state is that of one image"):
        state[0][0]
    with pytest.raises(ValueError, match=r"read-only"):
        state.gradient_for_gamma[0] = 1


@by_class
def test_a_gradient_overwrites_what_was_there(pair: Any) -> None:
    x, g = noise(2, 3, 3, 4), noise(2, 3, 3, 4, seed=1)
    _, state = pair[0](source(pair)).encode(x, return_state=True)
    gradient = pair[1]()
    for factor in (1, 2):
        gradient.encode(np.float32(factor) * g, x, state)
    state.synchronize()
    np.testing.assert_allclose(state.gradient_for_beta, 2 * g.sum((1, 2)), rtol=1e-5, atol=1e-6)


@by_class
def test_the_host_reads_after_a_synchronization(pair: Any) -> None:
    x = noise(1, 3, 3, 4)
    _, state = pair[0](source(pair)).encode(x, return_state=True)
    gradient, buffer = pair[1](), MPSCommandBuffer()
    gradient.encode(x.copy(), x, state, command_buffer=buffer)
    names = "gradient_for_gamma", "gradient_for_beta"
    for name in names:
        with pytest.raises(NotSynchronizedError, match=name):
            getattr(state, name)
        with pytest.raises(NotSynchronizedError, match=name):
            getattr(state[0], name)
    assert state.device_read().gradient_for_gamma.shape == (1, 4)
    assert state[0].device_read(MPSCommandBuffer()).gradient_for_beta.shape == (4,)
    state[0].synchronize(buffer)
    with pytest.raises(NotSynchronizedError):
        _ = state.gradient_for_gamma
    buffer.wait_until_completed()
    assert state.gradient_for_gamma.shape == (1, 4)
    with pytest.raises(OrderError, match=r"Completed"):
        gradient.encode(x.copy(), x, state, command_buffer=buffer)
    gradient.encode(x.copy(), x, state)
    with pytest.raises(NotSynchronizedError):
        _ = state.gradient_for_beta


@by_class
def test_a_refreshed_state_has_no_gradients(pair: Any) -> None:
    x = noise(2, 3, 3, 4)
    norm = pair[0](source(pair))
    _, state = norm.encode(x, return_state=True)
    pair[1]().encode(x.copy(), x, state)
    y, again = norm.encode(x[:1], destination_state=state, return_state=True)
    assert again is state
    assert (len(state), state.gradient_for_gamma, y.shape[0]) == (1, None, 1)
