"""The batch normalization classes: the worked example, chunks of a batch, destinations, the state and its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import OrderError, ShapeError, UnsupportedError
from mpsref.kernels.batch_normalization import BatchStatistics

F32 = np.float32

X = np.array([1, 2, 4, 5], F32).reshape(2, 1, 2, 1)

G = np.array([1, 2, 3, 4], F32).reshape(2, 1, 2, 1)

RELU = mps.MPSNNNeuronDescriptor("relu")


def source(**changes: Any) -> mps.BatchNormalizationDataSource:
    return mps.BatchNormalizationDataSource(1, **{"gamma": [2.0], "beta": [0.5], "epsilon": 1.5} | changes)


def kernel(neuron: Any = None, **changes: Any) -> mps.MPSCNNBatchNormalization:
    return mps.MPSCNNBatchNormalization(source(**changes), neuron)


def flat(array: Any) -> list[float]:
    return [float(value) for value in np.asarray(array).ravel()]


def snapshot(state: mps.MPSCNNBatchNormalizationState) -> Any:
    """Everything in a state."""
    vectors = [None if vector is None else vector.tobytes() for vector in state.device_read()]
    return vectors, state.count, state._sums, state._statistics_used, state._sums_used, state._version


class Step:
    """One kernel, its state, and the four calls."""

    def __init__(self, neuron: Any = None, **changes: Any) -> None:
        self.norm = kernel(neuron, **changes)
        self.state = self.norm.result_state_for_source_image(X)
        self.statistics = mps.MPSCNNBatchNormalizationStatistics()
        self.statistics_gradient = mps.MPSCNNBatchNormalizationStatisticsGradient(neuron)
        self.gradient = mps.MPSCNNBatchNormalizationGradient(neuron)

    def forward(self, x: Array = X) -> Array:
        self.statistics.encode_batch(x, self.state)
        return self.norm.encode(x, batch_normalization_state=self.state)

    def backward(self, g: Array = G, x: Array = X) -> Array:
        self.statistics_gradient.encode_batch(g, x, self.state)
        return self.gradient.encode(g, x, self.state)

    def read(self) -> mps.MPSCNNBatchNormalizationState:
        """The state, synchronized."""
        self.state.synchronize()
        return self.state


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("neuron", "y", "s1", "s2", "dmean", "dvariance", "dx"),
    [
        (None, [-1.5, -0.5, 1.5, 2.5], 10, 3.5, -10, -0.875, [-0.625, -0.0625, 0.0625, 0.625]),
        (RELU, [0, 0, 1.5, 2.5], 7, 5.5, -7, -1.375, [-0.375, -1.0625, 0.5625, 0.875]),
    ],
)
def test_the_worked_example_image_by_image(
    neuron: Any, y: Any, s1: float, s2: float, dmean: float, dvariance: float, dx: Any
) -> None:
    step = Step(neuron)
    step.statistics.encode_batch(X[:1], step.state)
    state = step.read()
    assert (state.count, flat(state.mean), flat(state.variance)) == (2, [1.5], [0.25])
    step.statistics.encode_batch(X[1:], step.state)
    state = step.read()
    assert (state.count, flat(state.mean), flat(state.variance)) == (4, [3], [2.5])
    for k in (1, 0):
        assert flat(step.norm.encode(X[k : k + 1], batch_normalization_state=state)) == y[2 * k : 2 * k + 2]
    for k in (0, 1):
        step.statistics_gradient.encode_batch(G[k : k + 1], X[k : k + 1], state)
    step.read()
    assert (flat(state.gradient_for_beta), flat(state.gradient_for_gamma)) == ([s1], [s2])
    assert (flat(state.gradient_for_mean), flat(state.gradient_for_variance)) == ([dmean], [dvariance])
    for k in (1, 0, 1):
        assert flat(step.gradient.encode(G[k : k + 1], X[k : k + 1], state)) == dx[2 * k : 2 * k + 2]


def test_every_backend(backend: str) -> None:
    step = Step(RELU)
    for one in (step.norm, step.statistics, step.statistics_gradient, step.gradient):
        one.backend = backend
    assert flat(step.forward()) == [0, 0, 1.5, 2.5]
    assert flat(step.backward()) == [-0.375, -1.0625, 0.5625, 0.875]


def test_frozen_statistics() -> None:
    """Without statistics of a batch those of the kernel are constants, and the gradient needs no sums."""
    step = Step(mean=[1.0], variance=[2.5])
    assert flat(step.norm.encode(X)) == [0.5, 1.5, 3.5, 4.5]
    assert flat(step.norm.encode(X, batch_normalization_state=step.state)) == [0.5, 1.5, 3.5, 4.5]
    assert flat(step.gradient.encode(G, X, step.state)) == [1, 2, 3, 4]
    assert step.state.gradient_for_gamma is step.state.gradient_for_beta is step.state.gradient_for_mean is None
    step.statistics_gradient.encode_batch(G, X, step.state)
    state = step.read()
    assert (flat(state.gradient_for_beta), flat(state.gradient_for_gamma)) == ([10], [13.5])
    assert (flat(state.mean), flat(state.variance)) == ([1], [2.5])
    assert flat(step.gradient.encode(G, X, step.state)) == [1, 2, 3, 4]


def test_parts_of_different_sizes_as_one_batch() -> None:
    """A list of arrays means the images in turn; pixels count alike whatever image they are in."""
    generator = np.random.default_rng(0)
    parts = [generator.standard_normal(shape).astype(F32) for shape in ((2, 3, 4, 1), (1, 1, 5, 1), (3, 2, 2, 1))]
    everything = np.concatenate([part.ravel() for part in parts]).astype(np.float64)
    one, three = Step(), Step()
    one.statistics.encode_batch(parts, one.state)
    for part in parts[::-1]:
        three.statistics.encode_batch(part, three.state)
    for step in (one, three):
        state = step.read()
        assert state.count == everything.size
        np.testing.assert_allclose([state.mean, state.variance], [[everything.mean()], [everything.var()]], rtol=1e-5)
    results = one.norm.encode(parts, batch_normalization_state=one.state)
    assert [y.shape for y in results] == [part.shape for part in parts]
    one.statistics_gradient.encode_batch(parts, parts, one.state)
    given = [np.zeros_like(part) for part in parts]
    gradients = one.gradient.encode(parts, parts, one.state, given)
    assert all(a is b for a, b in zip(gradients, given, strict=True))
    assert abs(sum(float(dx.sum(dtype=np.float64)) for dx in gradients)) < 1e-5


def test_images_go_in_and_come_out_as_what_they_are() -> None:
    step = Step()
    image, batch = mps.MPSImage(X), mps.MPSImageBatch.from_array(X)
    step.statistics.encode_batch(batch, [step.state, step.state])
    assert isinstance(step.norm.encode(image, batch_normalization_state=step.state), mps.MPSImage)
    y = step.norm.encode_batch(batch, batch_normalization_state=[step.state, step.state])
    assert isinstance(y, mps.MPSImageBatch)
    assert flat(y.to_array()) == [-1.5, -0.5, 1.5, 2.5]
    step.statistics_gradient.encode_batch(mps.MPSImageBatch.from_array(G), batch, [step.state, step.state])
    dx = step.gradient.encode_batch(mps.MPSImageBatch.from_array(G), batch, [step.state, step.state])
    assert flat(dx.to_array()) == [-0.625, -0.0625, 0.0625, 0.625]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_dtypes(dtype: Any) -> None:
    step = Step()
    x, g = X.astype(dtype), G.astype(dtype)
    assert step.forward(x).dtype == dtype
    assert flat(step.backward(g, x)) == [-0.625, -0.0625, 0.0625, 0.625]
    state = step.read()
    assert state.mean is not None
    assert state.mean.dtype == (np.float64 if dtype == np.float64 else F32)
    mixed = step.gradient.encode(G, X.astype(np.float16), step.state)
    assert mixed.dtype == F32


def test_a_destination_is_written_in_place() -> None:
    step = Step()
    step.statistics.encode_batch(X, step.state)
    for y in (np.full_like(X, 9), np.full(X.shape, 9, np.float16), np.full((2, 1, 4, 1), 9, F32)[:, :, ::2]):
        assert step.norm.encode(X, y, step.state) is y
        assert flat(y) == [-1.5, -0.5, 1.5, 2.5]
        step.statistics_gradient.encode_batch(G, X, step.state)
        assert step.gradient.encode(G, X, step.state, y) is y
        assert flat(y) == [-0.625, -0.0625, 0.0625, 0.625]
    assert flat(step.norm.encode(X, destination_size=(1, 2), batch_normalization_state=step.state))[0] == -1.5
    for bad, text in (((2, 2), r"room for \(2, 2, 2, 1\)"), ((1, 1), r"room for \(2, 1, 1, 1\)")):
        with pytest.raises(ShapeError, match=text):
            step.norm.encode(X, destination_size=bad, batch_normalization_state=step.state)
    with pytest.raises(ShapeError, match=r"destination_image has shape \(1, 1, 2, 1\)"):
        step.norm.encode(X, np.zeros((1, 1, 2, 1), F32), step.state)
    with pytest.raises(ValueError, match="shares memory"):
        step.gradient.encode(G, X, step.state, X)
    with pytest.raises(ValueError, match="both given"):
        step.norm.encode(X, np.zeros_like(X), step.state, destination_size=(1, 2))


# --- what Apple's header marks as unavailable -------------------------------------------------------------------------


def test_unavailable_encodes_say_why() -> None:
    step = Step()
    step.forward()
    before = snapshot(step.state)
    batch_form = r"makes no image; use encode_batch\("
    for call, text in (
        (lambda: step.statistics.encode(X), batch_form),
        (lambda: step.statistics.encode(X, np.zeros_like(X), return_state=True), batch_form),
        (lambda: step.statistics_gradient.encode(G, X, step.state), batch_form),
        (lambda: step.statistics_gradient.encode(G, X, step.state, np.zeros_like(X)), batch_form),
        (lambda: step.statistics_gradient.encode_batch(G, X, gradient_states=[step.state]), "gradient states"),
        (lambda: step.statistics_gradient.encode_batch(G, X, step.state, np.zeros_like(X)), "destinations"),
        (lambda: step.norm.encode(X, return_state=True), "result_state_for_source_image"),
        (lambda: step.norm.encode(X, destination_state=step.state), "result_state_for_source_image"),
    ):
        with pytest.raises(UnsupportedError, match=text):
            call()
        with pytest.raises(NotImplementedError):
            call()
    assert snapshot(step.state) == before


WHOLE = {"offset": (1, 0, 0), "clip_rect": ((0, 0, 0), (1, 1, 1)), "destination_feature_channel_offset": 4}

CHANNELS = {"source_feature_channel_offset": 4, "source_feature_channel_max_count": 1}


@pytest.mark.parametrize(("name", "value"), (WHOLE | CHANNELS).items())
def test_only_whole_images(name: str, value: Any) -> None:
    step = Step(mean=[0.0], variance=[1.0])
    before = snapshot(step.state)
    for one, call in (
        (step.statistics, lambda: step.statistics.encode_batch(X, step.state)),
        (step.norm, lambda: step.norm.encode(X, np.zeros_like(X))),
    ):
        setattr(one, name, value)
        with pytest.raises(UnsupportedError, match=f"^{name} is "):
            call()
    assert snapshot(step.state) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name, value in WHOLE.items() if name != "offset"),
        *((f"{side}_{name}", value) for side in ("primary", "secondary") for name, value in CHANNELS.items()),
        ("primary_offset", (0, 1)),
        ("secondary_offset", (0, 1)),
        ("kernel_offset_x", 1),
        ("secondary_stride_in_pixels_y", 2),
    ],
)
def test_only_whole_gradients(name: str, value: Any) -> None:
    step = Step()
    step.forward()
    for one, call in (
        (step.statistics_gradient, lambda: step.statistics_gradient.encode_batch(G, X, step.state)),
        (step.gradient, lambda: step.gradient.encode(G, X, step.state)),
    ):
        setattr(one, name, value)
        with pytest.raises(UnsupportedError, match=f"^{name} is "):
            call()


def test_barriers_and_states_for_batches() -> None:
    assert mps.MPSCNNBatchNormalizationStatistics().append_batch_barrier is True
    assert mps.MPSCNNBatchNormalizationStatisticsGradient().append_batch_barrier is True
    norm = kernel()
    assert norm.is_result_state_reused_across_batch is True
    state = norm.result_state_batch_for_source_image([X, X])
    assert state.batch_normalization is norm
    assert state is not norm.result_state_for_source_image(X, [], np.zeros_like(X))
    assert (state.source_width, state.source_height) == (2, 1)
    assert repr(state) == "<MPSCNNBatchNormalizationState: 1 channels, statistics of 0 pixels, sums over 0>"
    for bad, error in (((X, [state]), ValueError), (([],), ValueError), ((np.zeros((1, 1, 1, 2), F32),), ShapeError)):
        with pytest.raises(error, match=r"source_states|empty list|2 channels"):
            norm.result_state_for_source_image(*bad)


def test_used_statistics_end_a_batch() -> None:
    """The next statistics start another one: without a reset they would be those of all batches so far."""
    step = Step()
    for shift in (0, 10):
        step.forward(X + F32(shift))
        step.backward()
        state = step.read()
        assert (state.count, flat(state.mean), flat(state.variance)) == (4, [3 + shift], [2.5])
        assert flat(state.gradient_for_beta) == [10]


def test_statistics_that_were_not_used_add_up() -> None:
    step = Step()
    for _ in range(3):
        step.statistics.encode_batch(X, step.state)
    assert step.state.count == 12


@pytest.mark.parametrize("use", ["forward", "statistics gradient"])
def test_what_counts_as_use_of_the_statistics(use: str) -> None:
    step = Step()
    step.statistics.encode_batch(X, step.state)
    if use == "forward":
        step.norm.encode(X[:1], batch_normalization_state=step.state)
    else:
        step.statistics_gradient.encode_batch(G, X, step.state)
    step.statistics.encode_batch(X[:1], step.state)
    assert step.state.count == 2
    assert step.state.device_read().gradient_for_gamma is None  # the sums of the batch that ended are gone


def test_used_sums_start_anew() -> None:
    step = Step()
    step.forward()
    step.statistics_gradient.encode_batch(G[:1], X[:1], step.state)
    step.statistics_gradient.encode_batch(G[1:], X[1:], step.state)
    first = step.gradient.encode(G, X, step.state)
    step.statistics_gradient.encode_batch(G, X, step.state)
    assert flat(step.read().gradient_for_beta) == [10]
    assert flat(step.gradient.encode(G, X, step.state)) == flat(first)


@pytest.mark.parametrize("parts", [[], [0], [0, 0], [0, 1, 1]])
def test_sums_over_another_number_of_pixels(parts: list[int]) -> None:
    step = Step()
    step.forward()
    for k in parts:
        step.statistics_gradient.encode_batch(G[k : k + 1], X[k : k + 1], step.state)
    before = snapshot(step.state)
    if parts == [0, 0]:  # as many pixels, if not the right ones: nobody can tell
        assert step.gradient.encode(G, X, step.state).shape == X.shape
        return
    out = np.full_like(X, 7)
    with pytest.raises(OrderError, match=rf"gradient sums over {2 * len(parts)} pixels and statistics of 4"):
        step.gradient.encode(G, X, step.state, out)
    assert snapshot(step.state) == before
    assert flat(out) == [7, 7, 7, 7]


def test_no_statistics_at_all() -> None:
    step = Step()
    before = snapshot(step.state)
    for call in (
        lambda: step.norm.encode(X),
        lambda: step.norm.encode(X, batch_normalization_state=step.state),
        lambda: step.statistics_gradient.encode_batch(G, X, step.state),
        lambda: step.gradient.encode(G, X, step.state),
    ):
        with pytest.raises(OrderError, match=r"mean and variance|no statistics"):
            call()
    assert snapshot(step.state) == before
    assert step.state.mean is step.state.variance is None


def test_statistics_that_an_application_writes() -> None:
    """Those over no pixels are none; a negative variance is refused before anything changes."""
    step = Step()
    with pytest.raises(ValueError, match=r"^variance\[0\] is -1.0; it must be >= 0"):
        step.state.write_statistics(BatchStatistics(4, np.zeros(1, F32), np.full(1, -4, F32)))
    step.state.write_statistics(BatchStatistics(0, np.zeros(1, F32), np.zeros(1, F32)))
    assert (step.state.count, step.read().mean) == (0, None)
    with pytest.raises(OrderError, match="no statistics"):
        step.norm.encode(X, batch_normalization_state=step.state)
    step.state.write_statistics(BatchStatistics(4, np.full(1, 3, F32), np.full(1, 10, F32)))
    assert flat(step.norm.encode(X, batch_normalization_state=step.state)) == [-1.5, -0.5, 1.5, 2.5]


def test_reset_makes_a_state_as_new() -> None:
    step = Step(mean=[7.0], variance=[1.0])
    step.forward()
    step.backward()
    step.state.reset()
    assert step.state.count == 0
    assert step.state.gradient_for_gamma is None
    assert flat(step.state.mean) == [7]
    step.statistics.encode_batch(X[:1], step.state)
    step.statistics.encode_batch(X[1:], step.state)
    assert flat(step.read().mean) == [3]


def test_a_batch_without_images_changes_nothing() -> None:
    step = Step()
    step.forward()
    step.backward()
    before = snapshot(step.state)
    for nothing in (X[:0], []):
        step.statistics.encode_batch(nothing, step.state)
        step.statistics_gradient.encode_batch(nothing, nothing, step.state)
        assert np.size(step.gradient.encode(nothing, nothing, step.state)) == 0
        assert np.size(step.norm.encode(nothing, batch_normalization_state=step.state)) == 0
    assert snapshot(step.state) == before


def test_gamma_beta_and_epsilon_are_those_of_now() -> None:
    """A state keeps no copy: it stays right when its kernel is reloaded."""
    step = Step()
    step.forward()
    step.norm.reload_gamma_and_beta(mps.MPSCNNNormalizationGammaAndBetaState([4.0], [0.0]))
    assert (flat(step.state.gamma), flat(step.state.beta)) == ([4], [0])
    assert flat(step.backward()) == [-1.25, -0.125, 0.125, 1.25]
    step.norm.epsilon = 4 * 2.5 - 2.5 + 4 * 1.5  # twice the root
    assert flat(step.norm.encode(X, batch_normalization_state=step.state)) == [-2, -1, 1, 2]
    assert flat(step.backward())[:1] != [-1.25]


# --- when the host may read -------------------------------------------------------------------------------------------


def test_a_normalization_writes_no_number_of_the_state() -> None:
    step = Step()
    assert step.state.mean is step.state.gradient_for_beta is None  # nothing was written yet
    step.statistics.encode_batch(X, step.state)
    assert (flat(step.state.gamma), flat(step.state.beta)) == ([2], [0.5])  # no kernel writes these
    step.state.synchronize()
    step.norm.encode(X, batch_normalization_state=step.state)
    assert flat(step.state.mean) == [3]
    step.statistics_gradient.encode_batch(G, X, step.state)
    found = step.read().gradient_for_beta
    step.statistics_gradient.encode_batch(G, X, step.state)
    assert flat(found) == [10]


def test_a_committed_command_buffer() -> None:
    step, buffer = Step(), mps.MPSCommandBuffer()
    step.forward()
    step.statistics_gradient.encode_batch(G, X, step.state)
    buffer.commit()
    before = snapshot(step.state)
    pair = mps.MPSCNNNormalizationGammaAndBetaState([9.0], [9.0])
    for call in (
        lambda: step.statistics.encode_batch(X, step.state, command_buffer=buffer),
        lambda: step.norm.encode(X, batch_normalization_state=step.state, command_buffer=buffer),
        lambda: step.statistics_gradient.encode_batch(G, X, step.state, command_buffer=buffer),
        lambda: step.gradient.encode(G, X, step.state, command_buffer=buffer),
        lambda: step.norm.reload_gamma_and_beta(pair, buffer),
        lambda: step.state.device_read(buffer),
    ):
        with pytest.raises(OrderError, match="NotEnqueued"):
            call()
    assert snapshot(step.state) == before
