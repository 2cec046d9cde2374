"""Pair states, reloads from them and from data sources, and archives of batch normalization kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.errors import NotSynchronizedError, OrderError, ShapeError
from mpsref.mps import (
    BatchNormalizationDataSource,
    MPSCNNBatchNormalization,
    MPSCNNBatchNormalizationGradient,
    MPSCNNBatchNormalizationStatistics,
    MPSCNNBatchNormalizationStatisticsGradient,
    MPSCNNNormalizationGammaAndBetaState,
    MPSCNNNormalizationMeanAndVarianceState,
    MPSNNNeuronDescriptor,
)
from tests.mps.batch_normalization_step import F32, flat
from tests.mps.fakes import NAMES

# --- pair states ------------------------------------------------------------------------------------------------------

PAIRS = [
    (MPSCNNNormalizationGammaAndBetaState, ("gamma", "beta")),
    (MPSCNNNormalizationMeanAndVarianceState, ("mean", "variance")),
]


@pytest.mark.parametrize(("kind", "names"), PAIRS)
def test_pair_states(kind: Any, names: tuple[str, str]) -> None:
    first = np.array([1, 2], F32)
    state = kind(first, [3.0, 4.0])
    first[0] = 9
    assert [flat(getattr(state, name)) for name in names] == [[1, 2], [3, 4]]
    assert [flat(vector) for vector in state.device_read(1)] == [[1], [3]]
    assert repr(state) == f"<{kind.__name__}: 2 channels>"
    with pytest.raises(AttributeError):
        setattr(state, names[0], first)
    with pytest.raises(ValueError, match="read-only"):
        getattr(state, names[0])[0] = 1
    with pytest.raises(ShapeError, match="2 channels; a kernel with 3 needs"):
        state.device_read(3)
    for bad, error in ((([1.0], [1.0, 2.0]), ShapeError), (([], []), ShapeError), (("a", "b"), TypeError)):
        with pytest.raises(error, match=names[0]):
            kind(*bad)
    for bad, error in ((([1.0], [1.0]), ShapeError), ((["a", "b"],), TypeError)):
        with pytest.raises(error, match=names[0]):
            state.device_write(*bad)
    assert flat(getattr(state, names[0])) == [1, 2]  # neither written nor closed to the host
    state.device_write([5.0, 6.0])
    with pytest.raises(NotSynchronizedError, match=f"{kind.__name__}.{names[1]}"):
        getattr(state, names[1])
    state.synchronize()
    assert [flat(getattr(state, name)) for name in names] == [[5, 6], [3, 4]]
    buffer = mps.MPSCommandBuffer()
    assert kind.temporary_state(buffer, 3).number_of_feature_channels == 3
    buffer.commit()
    for call in (lambda: kind.temporary_state(buffer, 3), lambda: state.device_read(None, buffer)):
        with pytest.raises(OrderError):
            call()
    with pytest.raises(ValueError, match="number_of_feature_channels is 0"):
        kind.temporary_state(mps.MPSCommandBuffer(), 0)


def test_a_negative_variance_in_a_pair_state() -> None:
    with pytest.raises(ValueError, match=r"variance\[1\] is -2.0"):
        MPSCNNNormalizationMeanAndVarianceState([0.0, 0.0], [1.0, -2.0])
    state = MPSCNNNormalizationMeanAndVarianceState([0.0], [1.0])
    with pytest.raises(ValueError, match=r"variance\[0\] is -1.0"):
        state.device_write([0.0], [-1.0])
    assert flat(state.variance) == [1]


# --- reloads ----------------------------------------------------------------------------------------------------------


def test_a_kernel_changes_by_a_reload_alone() -> None:
    source = BatchNormalizationDataSource(1, [2.0], [0.5], [4.0], [1.5], 0.25)
    norm = MPSCNNBatchNormalization(source)
    x = np.ones((1, 1, 1, 1), F32)
    before = flat(norm.encode(x))
    source.gamma_array, source.beta_array = np.array([0.0], F32), np.array([7.0], F32)
    source.mean_array, source.variance_array = np.array([1.0], F32), np.array([3.75], F32)
    assert flat(norm.encode(x)) == before
    norm.reload_gamma_and_beta_from_data_source()
    assert flat(norm.encode(x)) == [7]
    norm.reload_gamma_and_beta(MPSCNNNormalizationGammaAndBetaState([2.0, 99.0], [1.0, 99.0]))  # a longer one is legal
    assert flat(norm.encode(2 + x)) == [float(F32(1 - 2 / np.sqrt(1.75)))]
    norm.reload_mean_and_variance_from_data_source()
    assert flat(norm.encode(2 + x)) == [2 * (3 - 1) / 2 + 1]
    norm.reload_mean_and_variance(MPSCNNNormalizationMeanAndVarianceState([2.0], [0.0]))
    assert flat(norm.encode(2 + x)) == [2 * (3 - 2) / 0.5 + 1]
    norm.reload_data_source(BatchNormalizationDataSource(1))
    assert norm.statistics == (None, None)
    assert [flat(vector) for vector in norm.scale] == [[1], [0]]


def test_reloads_that_do_not_fit() -> None:
    norm = MPSCNNBatchNormalization(BatchNormalizationDataSource(2, [1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]))
    statistics, scale = norm.statistics, norm.scale[0]
    for call, error, text in (
        (
            lambda: norm.reload_gamma_and_beta(MPSCNNNormalizationGammaAndBetaState([1.0], [1.0])),
            ShapeError,
            "1 channels",
        ),
        (
            lambda: norm.reload_mean_and_variance(MPSCNNNormalizationMeanAndVarianceState([1.0], [1.0])),
            ShapeError,
            "1 channels",
        ),
        (
            lambda: norm.reload_gamma_and_beta(MPSCNNNormalizationMeanAndVarianceState([1.0] * 2, [1.0] * 2)),
            TypeError,
            "MPSCNNNormalizationGammaAndBetaState",
        ),
        (lambda: norm.reload_mean_and_variance(None), TypeError, "MPSCNNNormalizationMeanAndVarianceState"),
        (
            lambda: norm.reload_data_source(BatchNormalizationDataSource(3)),
            ShapeError,
            "is 3; the kernel was made with 2",
        ),
        (lambda: norm.reload_data_source(None), TypeError, "lacks"),
    ):
        with pytest.raises(error, match=text):
            call()
    assert norm.statistics == statistics
    assert norm.scale[0] is scale


# --- archives ---------------------------------------------------------------------------------------------------------


class Foreign(BatchNormalizationDataSource):
    """A data source of a class that is not registered for saving."""


def test_kernels_and_data_sources_are_saved() -> None:
    relu = MPSNNNeuronDescriptor("relu", a=0.25)
    source = BatchNormalizationDataSource(2, [1.0, 2.0], None, [0.5, 0.1], [1.0, 2.0], 1e-3, 0.75)
    twin = BatchNormalizationDataSource.from_json(source.to_json())
    assert twin == source
    assert (twin.epsilon(), twin.momentum, twin.label()) == (1e-3, 0.75, None)
    norm = MPSCNNBatchNormalization(source, relu)
    norm.epsilon = 0.5
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 2)).astype(F32)
    again = MPSCNNBatchNormalization.from_json(norm.to_json())
    assert again == norm
    assert again.encode(x).tobytes() == norm.encode(x).tobytes()
    assert norm.copy() == norm
    norm.reload_mean_and_variance(MPSCNNNormalizationMeanAndVarianceState([9.0, 8.0], [7.0, 6.0]))
    again = MPSCNNBatchNormalization.from_json(norm.to_json())  # the data source has not what is in force
    assert again.encode(x).tobytes() == norm.encode(x).tobytes()
    assert again.epsilon == 0.5
    foreign = MPSCNNBatchNormalization(Foreign(2, mean=[1.0, 1.0], variance=[1.0, 1.0]))
    assert MPSCNNBatchNormalization.from_json(foreign.to_json()).encode(x).tobytes() == foreign.encode(x).tobytes()
    for kernel in (
        MPSCNNBatchNormalizationStatistics(),
        MPSCNNBatchNormalizationStatisticsGradient(relu),
        MPSCNNBatchNormalizationGradient(relu),
    ):
        assert type(kernel).from_json(kernel.to_json()) == kernel
        assert kernel.copy() == kernel
        assert eval(repr(kernel), NAMES) == kernel
    assert "2 channels" in repr(norm)
    assert repr(source) == "<BatchNormalizationDataSource: 2 channels, epsilon=0.001>"
