"""Data sources of batch normalization: members, updates, pair states, reloads, archives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.errors import NotSynchronizedError, OrderError, ShapeError

F32 = np.float32

X = np.array([1, 2, 4, 5], F32).reshape(2, 1, 2, 1)

G = np.array([1, 2, 3, 4], F32).reshape(2, 1, 2, 1)


def flat(array: Any) -> list[float]:
    return [float(value) for value in np.asarray(array).ravel()]


class Diary:
    """A data source that notes every call; each answer can be replaced."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[str] = []
        self.answers = {
            "number_of_feature_channels": 2,
            **dict.fromkeys(("gamma", "beta", "mean", "variance", "label")),
            "load": True,
            "purge": None,
        } | answers

    @property
    def number_of_feature_channels(self) -> Any:
        self.calls.append("number_of_feature_channels")
        return self.answers["number_of_feature_channels"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.answers:
            raise AttributeError(name)
        if name == "number_of_groups":
            return self.answers[name]

        def answer() -> Any:
            self.calls.append(name)
            return self.answers[name]

        return answer


def test_everything_is_read_between_load_and_purge() -> None:
    source = Diary(epsilon=0.5)
    norm = mps.MPSCNNBatchNormalization(source)
    assert (source.calls[0], source.calls[-1]) == ("load", "purge")
    assert set(source.calls[1:-1]) == {"number_of_feature_channels", "gamma", "beta", "mean", "variance", "epsilon"}
    assert (norm.number_of_feature_channels, norm.epsilon, norm.data_source) == (2, 0.5, source)
    for reload in (norm.reload_gamma_and_beta_from_data_source, norm.reload_mean_and_variance_from_data_source):
        source.calls.clear()
        reload()
        assert [source.calls.count(name) for name in ("load", "purge")] == [1, 1]
        assert (source.calls[0], source.calls[-1]) == ("load", "purge")


def test_what_a_data_source_leaves_out() -> None:
    norm = mps.MPSCNNBatchNormalization(Diary())
    assert norm.epsilon == np.finfo(F32).tiny
    assert [flat(vector) for vector in norm.scale] == [[1, 1], [0, 0]]
    assert norm.statistics == (None, None)
    assert norm.fused_neuron_descriptor is None


KINDS = mps.MPSCNNBatchNormalization, mps.MPSCNNInstanceNormalization, mps.MPSCNNGroupNormalization
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"load": False}, OrderError, r"load\(\) returned False"),
    ({"load": None}, OrderError, r"load\(\) returned None"),
    ({"gamma": [1.0]}, ShapeError, r"gamma\(\) has shape \(1,\); it must be \(2,\)"),
    ({"beta": [1.0, 2.0, 3.0]}, ShapeError, r"beta\(\) has shape \(3,\)"),
    ({"gamma": ["a", "b"]}, TypeError, r"gamma\(\) has dtype"),
    ({"gamma": [[1.0], [2.0, 3.0]]}, TypeError, r"gamma\(\) of type list cannot be read as a NumPy array"),
    ({"epsilon": -1.0}, ValueError, r"epsilon\(\) is -1.0"),
    ({"epsilon": float("nan")}, ValueError, r"epsilon\(\) is nan"),
    ({"epsilon": "1"}, TypeError, r"epsilon\(\) is '1'"),
    ({"number_of_feature_channels": 0}, ValueError, r"number_of_feature_channels is 0"),
    ({"number_of_feature_channels": 2.0}, TypeError, r"number_of_feature_channels is 2.0"),
]
OF_ONE_KIND: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (
        KINDS[0],
        {"mean": [1.0, 2.0], "variance": None},
        ValueError,
        r"variance\(\) returned None; mean and variance",
    ),
    (KINDS[0], {"mean": None, "variance": [1.0, 2.0]}, ValueError, r"mean\(\) returned None"),
    (KINDS[0], {"mean": [1.0, 2.0], "variance": [1.0, -0.5]}, ValueError, r"variance\(\)\[1\] is -0.5"),
    (KINDS[0], {"mean": [1.0, 2.0], "variance": [1.0]}, ShapeError, r"variance\(\) has shape \(1,\)"),
    (
        KINDS[2],
        {"number_of_groups": 3},
        ValueError,
        r"number_of_groups is 3; it must divide number_of_feature",
    ),
    (KINDS[2], {"number_of_groups": 0}, ValueError, r"number_of_groups is 0; it must be an integer >= 1"),
    (KINDS[2], {"number_of_groups": 2.0}, TypeError, r"number_of_groups is 2.0"),
]


@pytest.mark.parametrize(
    ("kind", "answers", "error", "text"), [(kind, *row) for kind in KINDS for row in WRONG] + OF_ONE_KIND
)
def test_answers_that_do_not_fit(kind: Any, answers: dict[str, Any], error: type[Exception], text: str) -> None:
    """A kernel is not made; and one that reloads stays as it was. ``purge`` is called all the same."""
    source = Diary(**({"number_of_groups": 1} | answers))
    with pytest.raises(error, match=text):
        kind(source)
    assert source.calls[-1] == "purge"
    good = Diary(gamma=[1.0, 2.0], mean=[3.0, 4.0], variance=[5.0, 6.0], number_of_groups=1)
    norm = kind(good)
    before = norm.to_json()
    good.answers |= answers
    for name in ("reload_gamma_and_beta_from_data_source", "reload_mean_and_variance_from_data_source"):
        if hasattr(norm, name):
            with pytest.raises(error):
                getattr(norm, name)()
    if hasattr(norm, "reload_data_source"):
        with pytest.raises(error):
            norm.reload_data_source(source)
    assert norm.to_json() == before
    assert norm.data_source is good


@pytest.mark.parametrize(
    ("kind", "missing"),
    [(kind, name) for kind in KINDS for name in ("gamma", "beta", "label")]
    + [(KINDS[0], name) for name in ("mean", "variance", "load", "purge")],
)
def test_a_missing_method(kind: Any, missing: str) -> None:
    source = Diary(number_of_groups=1)
    del source.answers[missing]
    with pytest.raises(TypeError, match=rf"Diary, which lacks {missing}; use an? \w+NormalizationDataSource"):
        kind(source)
    assert source.calls == []
    with pytest.raises(TypeError, match=r"object, which lacks gamma, beta.*number_of_feature_channels"):
        kind(object())


def test_images_must_have_the_channels_of_the_data_source() -> None:
    norm = mps.MPSCNNBatchNormalization(Diary(mean=[0.0, 0.0], variance=[1.0, 1.0]))
    state = norm.result_state_for_source_image(np.zeros((1, 1, 1, 2), F32))
    for call in (
        lambda: norm.encode(X),
        lambda: norm.result_state_for_source_image(X),
        lambda: mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state),
        lambda: mps.MPSCNNBatchNormalizationStatistics().encode_batch([np.zeros((1, 1, 1, 2), F32), X], state),
        lambda: mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(X, X, state),
        lambda: mps.MPSCNNBatchNormalizationGradient().encode(X, X, state),
    ):
        with pytest.raises(ShapeError, match=r"has 1 channels; number_of_feature_channels of the data source is 2"):
            call()
    assert state.count == 0


def test_states_and_neurons_that_do_not_fit() -> None:
    relu = mps.MPSNNNeuronDescriptor("relu")
    norm, twin = (mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(1), relu) for _ in range(2))
    state = norm.result_state_for_source_image(X)
    statistics = mps.MPSCNNBatchNormalizationStatistics()
    statistics.encode_batch(X, state)
    with pytest.raises(ValueError, match="made by another kernel"):
        twin.encode(X, batch_normalization_state=state)
    for kind in (mps.MPSCNNBatchNormalizationStatisticsGradient, mps.MPSCNNBatchNormalizationGradient):
        for other in (None, mps.MPSNNNeuronDescriptor("relu", a=0.5), mps.MPSNNNeuronDescriptor("elu")):
            with pytest.raises(ValueError, match=r"fused_neuron_descriptor is .*both must be equal"):
                kind(other).encode_batch(G, X, state)
        with pytest.raises(TypeError, match="fused_neuron_descriptor"):
            kind("relu")
        with pytest.raises(TypeError, match=r"batch_normalization_state is of type NoneType"):
            kind(relu).encode_batch(G, X)
        with pytest.raises(
            ShapeError, match=r"source_gradient has shape \(1, 1, 2, 1\) and source_image \(2, 1, 2, 1\)"
        ):
            kind(relu).encode_batch(G[:1], X, state)
        with pytest.raises(ShapeError, match=r"source_gradient has 1 parts and source_image 2"):
            kind(relu).encode_batch([G], [X, X], state)
    with pytest.raises(TypeError, match="both given"):
        mps.MPSCNNBatchNormalizationGradient(relu).encode(G, X, state, gradient_state=state)
    with pytest.raises(ValueError, match="one and the same state"):
        norm.encode(X, batch_normalization_state=[state])
    assert (state.count, state.device_read().gradient_for_gamma) == (4, None)
    statistics.encode_batch(X, state)
    assert state.count == 8  # the calls that failed did not use the statistics
    with pytest.raises(ShapeError, match="fused_neuron_descriptor has 2 slopes"):
        mps.MPSCNNBatchNormalization(
            mps.BatchNormalizationDataSource(1), mps.MPSNNNeuronDescriptor("prelu", data=[0.1, 0.2])
        )


def test_the_type_none_is_no_neuron() -> None:
    none = mps.MPSNNNeuronDescriptor("none")
    norm = mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(1, epsilon=1.5, gamma=[2.0]), none)
    state = norm.result_state_for_source_image(X)
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state)
    mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(G, X, state)
    assert flat(mps.MPSCNNBatchNormalizationGradient(none).encode(G, X, gradient_state=state))[0] == -0.625


# --- the ready data source --------------------------------------------------------------------------------------------


def test_the_ready_data_source_is_one() -> None:
    assert isinstance(mps.BatchNormalizationDataSource(1), mps.MPSCNNBatchNormalizationDataSource)
    assert not isinstance(object(), mps.MPSCNNBatchNormalizationDataSource)


class Descent:
    """An optimizer with a moment: value - 0.1 * the gradients so far."""

    moments = ("sums",)

    def encode(self, *, batch_normalization_state: Any, sums: Any, command_buffer: Any = None) -> Any:
        found = batch_normalization_state.device_read(command_buffer)
        new = []
        gradients = found.gradient_for_gamma, found.gradient_for_beta
        for value, gradient, total in zip((found.gamma, found.beta), gradients, sums, strict=True):
            total += gradient
            new.append(value - F32(0.1) * total)
        return mps.MPSCNNNormalizationGammaAndBetaState(*new)


@pytest.mark.parametrize("form", ["gpu", "cpu"])
def test_updates(form: str) -> None:
    """Running statistics from 0 and 1, and two steps of an optimizer, in both forms."""
    source = mps.BatchNormalizationDataSource(1, [2.0], [0.5], epsilon=1.5, optimizer=Descent())
    norm = mps.MPSCNNBatchNormalization(source)
    state = norm.result_state_for_source_image(X)
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state)
    mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(G, X, state)

    def update() -> None:
        if form == "gpu":
            norm.reload_gamma_and_beta(source.update_gamma_and_beta(state))
            norm.reload_mean_and_variance(source.update_mean_and_variance(state))
            return
        state.synchronize()
        assert source.update_gamma_and_beta_cpu(state) is source.update_mean_and_variance_cpu(state) is True
        norm.reload_gamma_and_beta_from_data_source()
        norm.reload_mean_and_variance_from_data_source()

    update()
    np.testing.assert_allclose([*norm.statistics, *norm.scale], [[0.3], [1.15], [1.65], [-0.5]], rtol=1e-6)
    update()
    np.testing.assert_allclose([*norm.statistics, *norm.scale], [[0.57], [1.285], [0.95], [-2.5]], rtol=1e-6)


@pytest.mark.parametrize(
    "optimizer",
    [
        mps.MPSNNOptimizerStochasticGradientDescent(0.1, momentum_scale=0.9),
        mps.MPSNNOptimizerRMSProp(0.1),
        mps.MPSNNOptimizerAdam(0.1),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_an_optimizer_learns_with_moments_of_its_own(optimizer: Any) -> None:
    """Two steps of a data source are two steps of the optimizer on plain vectors."""
    source = mps.BatchNormalizationDataSource(1, [2.0], [0.5], epsilon=1.5, optimizer=optimizer.copy())
    norm = mps.MPSCNNBatchNormalization(source)
    state = norm.result_state_for_source_image(X)
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state)
    mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(G, X, state)
    by_hand = optimizer.copy()
    moments = {name.removesuffix("s"): np.zeros(2, F32) for name in optimizer.moments}
    values, gradients = np.array([2.0, 0.5], F32), np.array([3.5, 10.0], F32)
    for _ in range(2):
        norm.reload_gamma_and_beta(source.update_gamma_and_beta(state))
        values = by_hand.encode(input_gradient_vector=gradients, input_values_vector=values, **moments)
        np.testing.assert_allclose(np.concatenate(norm.scale), values, rtol=1e-6)


def test_running_statistics_are_a_step_of_plain_descent() -> None:
    """Learning rate -(1 - momentum), L2 regularization of scale -1, the statistic as the gradient."""
    descriptor = mps.MPSNNOptimizerDescriptor(
        -0.25, regularization_type=mps.MPSNNRegularizationType.L2, regularization_scale=-1.0
    )
    descent = mps.MPSNNOptimizerStochasticGradientDescent(optimizer_descriptor=descriptor)
    source = mps.BatchNormalizationDataSource(1, mean=[8.0], variance=[4.0], momentum=0.75)
    state = mps.MPSCNNBatchNormalization(source).result_state_for_source_image(X)
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state)
    found = source.update_mean_and_variance(state)
    batch, running = np.array([3.0, 2.5], F32), np.array([8.0, 4.0], F32)
    expected = descent.encode(input_gradient_vector=batch, input_values_vector=running)
    assert [*flat(found.mean), *flat(found.variance)] == flat(expected) == [6.75, 3.625]


def test_the_host_form_of_an_update_reads_what_is_synchronized() -> None:
    source = mps.BatchNormalizationDataSource(1, optimizer=Descent())
    norm = mps.MPSCNNBatchNormalization(source)
    state = norm.result_state_for_source_image(X)
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state)
    for update in (source.update_mean_and_variance_cpu, source.update_gamma_and_beta_cpu):
        with pytest.raises(NotSynchronizedError):
            update(state)
    assert source.mean() is source.gamma() is None


def test_no_optimizer_and_no_statistics() -> None:
    source = mps.BatchNormalizationDataSource(1)
    state = mps.MPSCNNBatchNormalization(source).result_state_for_source_image(X)
    assert source.update_gamma_and_beta(state) is None
    assert source.update_gamma_and_beta_cpu(state) is False
    for update in (source.update_mean_and_variance, source.update_mean_and_variance_cpu):
        with pytest.raises(OrderError, match="no statistics"):
            update(state)
    assert source.mean() is None


def test_a_copy_learns_on_its_own():
    source = mps.BatchNormalizationDataSource(2, gamma=np.array([1.0, 2.0]), optimizer=mps.MPSNNOptimizerAdam(0.1))
    source._moments = {"input_momentum_vectors": [np.zeros(2), np.zeros(2)]}
    twin = source.copy()
    assert twin == source
    assert twin.optimizer is not source.optimizer
    twin._moments["input_momentum_vectors"][0][0] = 1
    twin.optimizer.time_step = 5
    assert source._moments["input_momentum_vectors"][0][0] == 0
    assert source.optimizer.time_step == 0


# --- pair states ------------------------------------------------------------------------------------------------------

PAIRS = [
    (mps.MPSCNNNormalizationGammaAndBetaState, ("gamma", "beta")),
    (mps.MPSCNNNormalizationMeanAndVarianceState, ("mean", "variance")),
]


@pytest.mark.parametrize(("kind", "names"), PAIRS)
def test_pair_states(kind: Any, names: tuple[str, str]) -> None:
    first = np.array([1, 2], F32)
    state = kind(first, [3.0, 4.0])
    assert [flat(getattr(state, name)) for name in names] == [[1, 2], [3, 4]]
    assert [flat(vector) for vector in state.device_read(1)] == [[1], [3]]
    assert repr(state) == f"<{kind.__name__}: 2 channels>"
    with pytest.raises(AttributeError):
        setattr(state, names[0], first)
    with pytest.raises(ShapeError, match="2 channels; a kernel with 3 needs"):
        state.device_read(3)
    for bad, error in ((([1.0], [1.0, 2.0]), ShapeError), (([], []), ShapeError), (("a", "b"), TypeError)):
        with pytest.raises(error, match="|".join(names)):
            kind(*bad)
    for bad, error in ((([1.0], [1.0]), ShapeError), ((["a", "b"],), TypeError)):
        with pytest.raises(error, match=names[0]):
            state.device_write(*bad)
    assert flat(getattr(state, names[0])) == [1, 2]  # neither written nor closed to the host
    state.device_write([5.0, 6.0])
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


@pytest.mark.parametrize(("kind", "names"), PAIRS)
def test_a_pair_state_shares_the_arrays_of_the_caller(kind: Any, names: tuple[str, str]) -> None:
    first, second = np.array([1, 2], F32), np.array([3, 4], np.float64)
    state = kind(first, second)
    first[0] = 9
    read = state.device_read()
    assert [flat(vector) for vector in read] == [[9, 2], [3, 4]]
    state.device_write([5.0, 6.0])
    assert (flat(first), flat(second), flat(read[0])) == ([5, 6], [3, 4], [9, 2])
    state.synchronize()
    assert [flat(getattr(state, name)) for name in names] == [[5, 6], [3, 4]]
    for vector in (getattr(state, names[0]), state.device_read()[1]):
        with pytest.raises(ValueError, match="read-only"):
            vector[0] = 1
    with pytest.raises(ShapeError, match=names[0]):
        state.device_write([1.0])
    assert flat(first) == [5, 6]
    second.setflags(write=False)
    copied = kind(np.array([1, 2]), second)
    copied.device_write([5.0, 6.0], [7.0, 8.0])
    assert flat(second) == [3, 4]
    with pytest.raises(ValueError, match=f"{names[1]} shares memory with {names[0]}"):
        kind(first, first).device_write([1.0, 2.0])
    assert flat(first) == [5, 6]


def test_a_negative_variance_in_a_pair_state() -> None:
    shared = np.array([1.0], F32)
    buffers = mps.MPSCNNNormalizationMeanAndVarianceState([0.0], shared)
    shared[0] = -3
    with pytest.raises(ValueError, match=r"variance\[0\] is -3.0"):
        buffers.device_read()
    with pytest.raises(ValueError, match=r"variance\[1\] is -2.0"):
        mps.MPSCNNNormalizationMeanAndVarianceState([0.0, 0.0], [1.0, -2.0])
    state = mps.MPSCNNNormalizationMeanAndVarianceState([0.0], [1.0])
    with pytest.raises(ValueError, match=r"variance\[0\] is -1.0"):
        state.device_write([0.0], [-1.0])
    assert flat(state.variance) == [1]


# --- reloads ----------------------------------------------------------------------------------------------------------


def test_a_kernel_changes_by_a_reload_alone() -> None:
    source = mps.BatchNormalizationDataSource(1, [2.0], [0.5], [4.0], [1.5], 0.25)
    norm = mps.MPSCNNBatchNormalization(source)
    x = np.ones((1, 1, 1, 1), F32)
    before = flat(norm.encode(x))
    source.gamma_array, source.beta_array = np.array([0.0], F32), np.array([7.0], F32)
    source.mean_array, source.variance_array = np.array([1.0], F32), np.array([3.75], F32)
    assert flat(norm.encode(x)) == before
    norm.reload_gamma_and_beta_from_data_source()
    assert flat(norm.encode(x)) == [7]
    norm.reload_gamma_and_beta(
        mps.MPSCNNNormalizationGammaAndBetaState([2.0, 99.0], [1.0, 99.0])
    )  # a longer one is legal
    assert flat(norm.encode(2 + x)) == [float(F32(1 - 2 / np.sqrt(1.75)))]
    norm.reload_mean_and_variance_from_data_source()
    assert flat(norm.encode(2 + x)) == [2 * (3 - 1) / 2 + 1]
    norm.reload_mean_and_variance(mps.MPSCNNNormalizationMeanAndVarianceState([2.0], [0.0]))
    assert flat(norm.encode(2 + x)) == [2 * (3 - 2) / 0.5 + 1]
    norm.reload_data_source(mps.BatchNormalizationDataSource(1))
    assert norm.statistics == (None, None)
    assert [flat(vector) for vector in norm.scale] == [[1], [0]]
    assert norm.epsilon == 0.25  # only the four vectors are reloaded


def test_reloads_that_do_not_fit() -> None:
    norm = mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(2, [1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]))
    statistics, scale = norm.statistics, norm.scale[0]
    for call, error, text in (
        (
            lambda: norm.reload_gamma_and_beta(mps.MPSCNNNormalizationGammaAndBetaState([1.0], [1.0])),
            ShapeError,
            "1 channels",
        ),
        (
            lambda: norm.reload_mean_and_variance(mps.MPSCNNNormalizationMeanAndVarianceState([1.0], [1.0])),
            ShapeError,
            "1 channels",
        ),
        (
            lambda: norm.reload_gamma_and_beta(mps.MPSCNNNormalizationMeanAndVarianceState([1.0] * 2, [1.0] * 2)),
            TypeError,
            "MPSCNNNormalizationGammaAndBetaState",
        ),
        (lambda: norm.reload_mean_and_variance(None), TypeError, "MPSCNNNormalizationMeanAndVarianceState"),
        (
            lambda: norm.reload_data_source(mps.BatchNormalizationDataSource(3)),
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


class Foreign(mps.BatchNormalizationDataSource):
    """A data source of a class that is not registered for saving."""


def test_kernels_and_data_sources_are_saved() -> None:
    relu = mps.MPSNNNeuronDescriptor("relu", a=0.25)
    source = mps.BatchNormalizationDataSource(2, [1.0, 2.0], None, [0.5, 0.1], [1.0, 2.0], 1e-3, 0.75)
    twin = mps.BatchNormalizationDataSource.from_json(source.to_json())
    assert twin == source
    assert (twin.epsilon(), twin.momentum, twin.label()) == (1e-3, 0.75, None)
    norm = mps.MPSCNNBatchNormalization(source, relu)
    norm.epsilon = 0.5
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 2)).astype(F32)
    again = mps.MPSCNNBatchNormalization.from_json(norm.to_json())
    assert again == norm
    assert again.encode(x).tobytes() == norm.encode(x).tobytes()
    norm.reload_mean_and_variance(mps.MPSCNNNormalizationMeanAndVarianceState([9.0, 8.0], [7.0, 6.0]))
    again = mps.MPSCNNBatchNormalization.from_json(norm.to_json())  # the data source has not what is in force
    assert again.encode(x).tobytes() == norm.encode(x).tobytes()
    assert again.epsilon == 0.5
    foreign = mps.MPSCNNBatchNormalization(Foreign(2, mean=[1.0, 1.0], variance=[1.0, 1.0]))
    assert mps.MPSCNNBatchNormalization.from_json(foreign.to_json()).encode(x).tobytes() == foreign.encode(x).tobytes()
    assert "2 channels" in repr(norm)
    assert repr(source) == "<BatchNormalizationDataSource: 2 channels, epsilon=0.001>"
