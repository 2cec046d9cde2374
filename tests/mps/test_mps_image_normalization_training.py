"""Instance and group normalization classes: reloads, training, archives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref.errors import NotSynchronizedError, OrderError, ShapeError
from mpsref.mps import (
    InstanceNormalizationDataSource,
    MPSCNNGroupNormalization,
    MPSCNNInstanceNormalization,
    MPSCNNNormalizationGammaAndBetaState,
)
from mpsref.mps.core.command_buffer import MPSCommandBuffer
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
    norm.reload_gamma_and_beta(MPSCNNNormalizationGammaAndBetaState([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]))
    np.testing.assert_array_equal([norm.gamma, norm.beta], [[1, 2, 3, 4], [6, 7, 8, 9]])
    short = MPSCNNNormalizationGammaAndBetaState([1, 2], [3, 4])
    with pytest.raises(ShapeError, match=r"has 2 channels; a kernel with 4 needs at least as many"):
        norm.reload_gamma_and_beta(short)
    with pytest.raises(TypeError, match=r"gamma_and_beta_state is of type list"):
        norm.reload_gamma_and_beta([1, 2, 3, 4])
    buffer = MPSCommandBuffer()
    buffer.commit()
    with pytest.raises(OrderError):
        norm.reload_gamma_and_beta(MPSCNNNormalizationGammaAndBetaState([1] * 4, [1] * 4), buffer)
    np.testing.assert_array_equal([norm.gamma, norm.beta], [[1, 2, 3, 4], [6, 7, 8, 9]])


def test_another_data_source_for_instance_normalization_alone() -> None:
    norm = MPSCNNInstanceNormalization(source(INSTANCE))
    other = InstanceNormalizationDataSource(4, [4, 3, 2, 1])
    norm.reload_data_source(other)
    assert norm.data_source is other
    np.testing.assert_array_equal(norm.gamma, [4, 3, 2, 1])
    with pytest.raises(ValueError, match=r"is now 2; a reload cannot change it from 4"):
        norm.reload_data_source(InstanceNormalizationDataSource(2))
    assert norm.data_source is other
    assert not hasattr(MPSCNNGroupNormalization, "reload_data_source")


def test_groups_are_read_again_with_a_reload() -> None:
    ds = source(GROUP)
    norm, x = MPSCNNGroupNormalization(ds), noise(1, 2, 2, 4)
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
    pair_state = ds.update_gamma_and_beta(state, MPSCommandBuffer())
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
def test_copies_and_archives(pair: Any) -> None:
    norm = pair[0](source(pair), epsilon=0.5)
    twin = pair[0].from_json(norm.to_json())
    assert twin == norm == norm.copy()
    assert twin.data_source == norm.data_source
    x = noise(1, 3, 3, 4)
    np.testing.assert_array_equal(twin.encode(x), norm.encode(x))
    twin.epsilon = 1.0
    assert norm.epsilon == 0.5
    assert "4 channels" in repr(norm)
    assert pair[1].from_json(pair[1]().to_json()) == pair[1]()


@by_class
def test_values_in_force_are_saved_where_the_data_source_cannot_be(pair: Any) -> None:
    for norm in (pair[0](plain(pair, GAMMA, BETA)), pair[0](source(pair))):
        norm.epsilon = 0.5
        norm.reload_gamma_and_beta(MPSCNNNormalizationGammaAndBetaState([1, 2, 3, 4], BETA))
        twin = pair[0].from_dict(norm.to_dict())
        np.testing.assert_array_equal([twin.gamma, twin.beta], [norm.gamma, norm.beta])
        assert twin.epsilon == 0.5
        assert getattr(twin, "number_of_groups", 2) == 2
