"""The batch normalization classes: the worked example, parts of a batch, destinations, what is unavailable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.mps import (
    BatchNormalizationDataSource,
    MPSCNNBatchNormalization,
    MPSCNNBatchNormalizationStatistics,
    MPSCNNBatchNormalizationStatisticsGradient,
)
from tests.mps.batch_normalization_step import F32, RELU, G, Step, X, flat, kernel, snapshot

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


def test_inference_as_the_hardware_gave_it() -> None:
    """Epsilon is set after the kernel was made, and counts."""
    norm = MPSCNNBatchNormalization(BatchNormalizationDataSource(1, [2.0], [0.5], [4.0], [1.5]))
    norm.epsilon = 0.25
    y = norm.encode(np.arange(1, 10, dtype=F32).reshape(1, 3, 3, 1))
    np.testing.assert_allclose(flat(y)[:2], [-4.0355735, -2.5237157], rtol=2e-7)


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
    for bad, text in (((2, 2), r"size \(2, 2\)"), ((1, 1), r"size \(1, 1\)")):
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
    assert MPSCNNBatchNormalizationStatistics().append_batch_barrier is True
    assert MPSCNNBatchNormalizationStatisticsGradient().append_batch_barrier is True
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
