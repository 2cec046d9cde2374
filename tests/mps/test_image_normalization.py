"""Instance and group normalization classes: examples, parameters, states, errors, reloads, training, archives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import NotSynchronizedError, OrderError, ShapeError
from mpsref.kernels.normalization import FLT_MIN

INSTANCE = mps.MPSCNNInstanceNormalization, mps.MPSCNNInstanceNormalizationGradient

GROUP = mps.MPSCNNGroupNormalization, mps.MPSCNNGroupNormalizationGradient

PAIRS: list[Any] = [INSTANCE, GROUP]

GAMMA, BETA = [2.0, 3.0, -1.0, 0.5], [0.0, 1.0, 0.25, -2.0]

by_class = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)


def noise(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng((seed, *shape)).uniform(-2, 2, shape).astype(dtype)


def source(pair: Any, gamma: Any = GAMMA, beta: Any = BETA, epsilon: float = 0.25, optimizer: Any = None) -> Any:
    if pair is INSTANCE:
        return mps.InstanceNormalizationDataSource(4, gamma, beta, epsilon, optimizer)
    return mps.GroupNormalizationDataSource(4, 2, gamma, beta, epsilon, optimizer)


def function(pair: Any, epsilon: float = 0.25) -> Any:
    return mpsref.InstanceNormalization(epsilon) if pair is INSTANCE else mpsref.GroupNormalization(2, epsilon)


class Plain:
    """A user's data source: what the protocol of instance normalization names, and no more."""

    number_of_feature_channels = 4

    def __init__(self, gamma: Any = None, beta: Any = None) -> None:
        self.vectors = gamma, beta

    def gamma(self) -> Any:
        return self.vectors[0]

    def beta(self) -> Any:
        return self.vectors[1]

    def label(self) -> str:
        return "plain"


class Grouped(Plain):
    number_of_groups = 2


def plain(pair: Any, *vectors: Any) -> Any:
    return (Plain if pair is INSTANCE else Grouped)(*vectors)


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
    assert isinstance(instance, mps.MPSCNNInstanceNormalizationDataSource)
    assert isinstance(group, mps.MPSCNNGroupNormalizationDataSource)
    assert not isinstance(instance, mps.MPSCNNGroupNormalizationDataSource)
    assert mps.GroupNormalizationDataSource(4).number_of_groups == 1
    group.number_of_groups = 4
    with pytest.raises(ValueError, match=r"number_of_groups is 3; it must divide number_of_feature_channels, 4"):
        group.number_of_groups = 3
    assert group.number_of_groups == 4
    with pytest.raises(TypeError, match=r"which lacks number_of_groups"):
        mps.MPSCNNGroupNormalization(Plain())


@by_class
def test_epsilon_can_be_set(pair: Any) -> None:
    x = noise(1, 3, 3, 4)
    norm = pair[0](source(pair), epsilon=0.5)
    assert norm.epsilon == 0.5
    norm.epsilon = 2.0
    np.testing.assert_array_equal(norm.encode(x), function(pair, 2.0).forward(x, GAMMA, BETA))


@by_class
def test_the_gradient_reads_gamma_and_epsilon_through_the_state(pair: Any) -> None:
    x, g = noise(1, 3, 3, 4), noise(1, 3, 3, 4, seed=1)
    norm = pair[0](source(pair))
    _, state = norm.encode(x, return_state=True)
    norm.epsilon = 2.0
    norm.reload_gamma_and_beta(mps.MPSCNNNormalizationGammaAndBetaState([1, 1, 1, 5], [0, 0, 0, 0]))
    np.testing.assert_array_equal(state.gamma, [1, 1, 1, 5])
    dx = pair[1]().encode(g, x, state)
    np.testing.assert_array_equal(dx, function(pair, 2.0).gradient(g, x, [1, 1, 1, 5])[0])


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
def test_a_state_carries_a_row_for_each_image(pair: Any) -> None:
    x, g = noise(3, 3, 3, 4), noise(3, 3, 3, 4, seed=1)
    norm = pair[0](source(pair))
    _, state = norm.encode(x, return_state=True)
    kind = (
        mps.MPSCNNInstanceNormalizationGradientState if pair is INSTANCE else mps.MPSCNNGroupNormalizationGradientState
    )
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
def test_an_image_of_a_state_is_read_after_a_synchronization(pair: Any) -> None:
    x, buffer = noise(1, 3, 3, 4), mps.MPSCommandBuffer()
    _, state = pair[0](source(pair)).encode(x, return_state=True)
    pair[1]().encode(x.copy(), x, state, command_buffer=buffer)
    with pytest.raises(NotSynchronizedError, match="gradient_for_beta"):
        _ = state[0].gradient_for_beta
    assert state.device_read().gradient_for_gamma.shape == (1, 4)
    assert state[0].device_read(mps.MPSCommandBuffer()).gradient_for_beta.shape == (4,)
    state[0].synchronize(buffer)
    buffer.wait_until_completed()
    assert state.gradient_for_gamma.shape == (1, 4)


@by_class
def test_a_refreshed_state_has_no_gradients(pair: Any) -> None:
    x = noise(2, 3, 3, 4)
    norm = pair[0](source(pair))
    _, state = norm.encode(x, return_state=True)
    pair[1]().encode(x.copy(), x, state)
    y, again = norm.encode(x[:1], destination_state=state, return_state=True)
    assert again is state
    assert (len(state), state.gradient_for_gamma, y.shape[0]) == (1, None, 1)


@by_class
def test_images_and_states_that_do_not_fit(pair: Any) -> None:
    x = noise(2, 3, 3, 4)
    norm, gradient = pair[0](source(pair)), pair[1]()
    _, state = norm.encode(x, return_state=True)
    _, twin = pair[0](source(pair)).encode(x, return_state=True)
    attempts: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: norm.encode(noise(1, 3, 3, 5)), ShapeError, r"source_image has 5 channels"),
        (lambda: norm.encode(x, destination_size=(2, 3)), ShapeError, r"has room for"),
        (lambda: norm.encode(x, np.zeros((2, 3, 4, 4), np.float32)), ShapeError, r"has room for"),
        (lambda: norm.encode(x, destination_state=twin), ValueError, r"made by another kernel"),
        (lambda: norm.encode(x, destination_state=state[0]), ValueError, r"that of one image"),
        (lambda: gradient.encode(x.copy(), x), ValueError, r"gradient_state is None"),
        (lambda: gradient.encode(x.copy(), x, state[0]), ValueError, r"that of one image"),
        (lambda: gradient.encode(x.copy(), x, state, np.zeros((2, 3, 3, 8), np.float32)), ShapeError, r"must be equal"),
    ]
    for attempt, error, message in attempts:
        with pytest.raises(error, match=message):
            attempt()
    assert state.gradient_for_gamma is None
    assert len(state) == 2


@by_class
def test_reload_from_the_data_source(pair: Any) -> None:
    ds = plain(pair, GAMMA, BETA)
    norm = pair[0](ds, epsilon=0.5)
    ds.vectors = [1, 2, 3, 4], None
    np.testing.assert_array_equal(norm.gamma, np.float32(GAMMA))
    norm.reload_gamma_and_beta_from_data_source()
    np.testing.assert_array_equal([norm.gamma, norm.beta], [[1, 2, 3, 4], [0] * 4])
    assert norm.epsilon == 0.5
    ds.number_of_feature_channels, ds.vectors = 2, (None, None)
    with pytest.raises(ValueError, match=r"data_source.number_of_feature_channels is now 2; a reload cannot change"):
        norm.reload_gamma_and_beta_from_data_source()
    np.testing.assert_array_equal(norm.gamma, [1, 2, 3, 4])


@by_class
def test_reload_from_a_state(pair: Any) -> None:
    norm = pair[0](source(pair))
    norm.reload_gamma_and_beta(mps.MPSCNNNormalizationGammaAndBetaState([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]))
    np.testing.assert_array_equal([norm.gamma, norm.beta], [[1, 2, 3, 4], [6, 7, 8, 9]])
    short = mps.MPSCNNNormalizationGammaAndBetaState([1, 2], [3, 4])
    with pytest.raises(ShapeError, match=r"has 2 channels; a kernel with 4 needs at least as many"):
        norm.reload_gamma_and_beta(short)
    with pytest.raises(TypeError, match=r"gamma_and_beta_state is of type list"):
        norm.reload_gamma_and_beta([1, 2, 3, 4])
    buffer = mps.MPSCommandBuffer()
    buffer.commit()
    with pytest.raises(OrderError):
        norm.reload_gamma_and_beta(mps.MPSCNNNormalizationGammaAndBetaState([1] * 4, [1] * 4), buffer)
    np.testing.assert_array_equal([norm.gamma, norm.beta], [[1, 2, 3, 4], [6, 7, 8, 9]])


def test_another_data_source_for_instance_normalization_alone() -> None:
    norm = mps.MPSCNNInstanceNormalization(source(INSTANCE))
    other = mps.InstanceNormalizationDataSource(4, [4, 3, 2, 1])
    norm.reload_data_source(other)
    assert norm.data_source is other
    np.testing.assert_array_equal(norm.gamma, [4, 3, 2, 1])
    with pytest.raises(ValueError, match=r"is now 2; a reload cannot change it from 4"):
        norm.reload_data_source(mps.InstanceNormalizationDataSource(2))
    assert norm.data_source is other
    assert not hasattr(mps.MPSCNNGroupNormalization, "reload_data_source")


def test_groups_are_read_again_with_a_reload() -> None:
    ds = source(GROUP)
    norm, x = mps.MPSCNNGroupNormalization(ds), noise(1, 2, 2, 4)
    ds.number_of_groups = 4
    assert norm.number_of_groups == 2
    norm.reload_gamma_and_beta_from_data_source()
    np.testing.assert_array_equal(norm.encode(x), mpsref.GroupNormalization(4, 0.25).forward(x, GAMMA, BETA))


class Descent:
    """An optimizer with one moment, as far as data sources use one: plain descent that counts its steps."""

    moments = ("input_momentum_vectors",)

    def encode(
        self, *, input_gradient_vector: Any, input_values_vector: Any, input_momentum_vector: Any, **more: Any
    ) -> Any:
        assert set(more) == {"command_buffer"}
        input_momentum_vector += 1
        return input_values_vector - np.float32(0.5) * input_gradient_vector


@by_class
def test_an_update_steps_along_the_summed_gradients(pair: Any) -> None:
    x, g = noise(2, 3, 3, 4), noise(2, 3, 3, 4, seed=1)
    ds = source(pair, gamma=None, optimizer=Descent())
    norm = pair[0](ds)
    _, state = norm.encode(x, return_state=True)
    with pytest.raises(OrderError, match=r"state has no gradients yet"):
        ds.update_gamma_and_beta(state)
    pair[1]().encode(g, x, state)
    pair_state = ds.update_gamma_and_beta(state, mps.MPSCommandBuffer())
    _, dgamma, dbeta = function(pair).gradient(g, x)
    np.testing.assert_allclose(pair_state.gamma, 1 - 0.5 * dgamma.sum(0), rtol=1e-5)
    np.testing.assert_allclose(pair_state.beta, BETA - 0.5 * dbeta.sum(0), rtol=1e-5)
    norm.reload_gamma_and_beta(pair_state)
    np.testing.assert_array_equal(norm.gamma, pair_state.gamma)
    with pytest.raises(NotSynchronizedError):
        ds.update_gamma_and_beta_cpu(state)
    np.testing.assert_array_equal(ds.gamma(), pair_state.gamma)
    state.synchronize()
    assert ds.update_gamma_and_beta_cpu(list(state)) is True
    norm.reload_gamma_and_beta_from_data_source()
    np.testing.assert_allclose(norm.gamma, 1 - dgamma.sum(0), rtol=1e-5, atol=1e-6)
    assert set(ds._moments) == {"input_momentum_vector"}
    np.testing.assert_array_equal(ds._moments["input_momentum_vector"], [2] * 8)


@by_class
def test_no_optimizer_leaves_everything_alone(pair: Any) -> None:
    x = noise(1, 3, 3, 4)
    ds = source(pair)
    _, state = pair[0](ds).encode(x, return_state=True)
    assert ds.update_gamma_and_beta(state) is None
    assert ds.update_gamma_and_beta_cpu(state) is False
    np.testing.assert_array_equal(ds.gamma(), np.float32(GAMMA))


@by_class
def test_values_in_force_are_saved_where_the_data_source_cannot_be(pair: Any) -> None:
    for norm in (pair[0](plain(pair, GAMMA, BETA)), pair[0](source(pair))):
        norm.epsilon = 0.5
        norm.reload_gamma_and_beta(mps.MPSCNNNormalizationGammaAndBetaState([1, 2, 3, 4], BETA))
        twin = pair[0].from_dict(norm.to_dict())
        np.testing.assert_array_equal([twin.gamma, twin.beta], [norm.gamma, norm.beta])
        assert twin.epsilon == 0.5
        assert getattr(twin, "number_of_groups", 2) == 2
