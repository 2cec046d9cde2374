"""The state of batch normalization: what each call makes of it, in which order, and when the host may read it."""

from __future__ import annotations

import numpy as np
import pytest

from mpsref import mps
from mpsref.errors import NotSynchronizedError, OrderError
from tests.mps.batch_normalization_step import F32, G, Step, X, flat, snapshot


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

READS = ("mean", "variance", "gradient_for_gamma", "gradient_for_beta", "gradient_for_mean", "gradient_for_variance")


def test_host_reads_follow_a_synchronization() -> None:
    step, buffer = Step(), mps.MPSCommandBuffer()
    assert step.state.mean is step.state.gradient_for_beta is None  # nothing was written yet

    def refused() -> bool:
        for name in READS:
            with pytest.raises(NotSynchronizedError, match=rf"MPSCNNBatchNormalizationState.{name} cannot be read"):
                getattr(step.state, name)
        return flat(step.state.gamma) == [2] and flat(step.state.beta) == [0.5]  # no kernel writes these

    step.statistics.encode_batch(X, step.state, command_buffer=buffer)
    assert refused()
    step.state.synchronize(buffer)
    assert refused()
    buffer.wait_until_completed()
    assert flat(step.state.mean) == [3]
    step.norm.encode(X, batch_normalization_state=step.state)
    assert flat(step.state.mean) == [3]  # a normalization writes no number of the state
    step.statistics_gradient.encode_batch(G, X, step.state)
    assert refused()
    step.state.synchronize()
    assert flat(step.state.gradient_for_beta) == [10]
    found = step.state.gradient_for_beta
    step.statistics_gradient.encode_batch(G, X, step.state)
    assert flat(found) == [10]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


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
