"""Optimizers: worked steps, preprocessing, trajectories, corners, bad input."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpsref import Adam, RMSProp, StochasticGradientDescent
from mpsref.kernels.optimizers import AdamStep

F32 = np.float32
VALUES, GRADIENTS = [1.0, -2.0], ([0.5, 4.0], [-0.25, 1.0])

SGD = StochasticGradientDescent
PLAIN, HEAVY, NESTEROV = SGD(0.1), SGD(0.1, 0.9), SGD(0.1, 0.9, True)
RMS, ADAM = RMSProp(0.1), Adam(0.1)


def walk(optimizer: Any, backend: str, *moments: list[float] | None) -> list[list[float]]:
    """Two steps; return the values after each, then the moments."""
    value, state = F32(VALUES), [None if m is None else F32(m) for m in moments]
    after: list[Any] = []
    for k, gradient in enumerate(GRADIENTS):
        time = {"time_step": k + 1} if isinstance(optimizer, Adam) else {}
        value, *state = optimizer.step(F32(gradient), value, *state, **time, backend=backend)
        after.append(value)
    return [array.tolist() for array in (*after, *state) if array is not None]


@pytest.mark.parametrize(
    ("optimizer", "moments", "expected"),
    [
        (PLAIN, [None], [[0.95, -2.4], [0.975, -2.5]]),
        (HEAVY, [[0, 0]], [[0.95, -2.4], [0.93, -2.86], [0.02, 0.46]]),
        (NESTEROV, [[0, 0]], [[0.905, -2.76], [0.912, -3.274], [0.2, 4.6]]),
        (RMS, [[0, 0]], [[0.683772254, -2.316227764], [0.831214201, -2.396810059], [0.02875, 1.54]]),
        (
            ADAM,
            [[0, 0], [0, 0]],
            [[0.900000063, -2.099999992], [0.873366374, -2.183059739], [0.02, 0.46], [0.00031225, 0.016984]],
        ),
        (
            ADAM,
            [[0, 0], [0, 0], [0, 0.02]],
            [
                [0.900000063, -2.089442713],
                [0.873366374, -2.165983971],
                [0.02, 0.46],
                [0.00031225, 0.016984],
                [0.00031225, 0.02],
            ],
        ),
    ],
    ids=["sgd", "momentum", "nesterov", "rmsprop", "adam", "amsgrad"],
)
def test_worked_steps(backend: str, optimizer: Any, moments: Any, expected: Any) -> None:
    np.testing.assert_allclose(walk(optimizer, backend, *moments), expected, rtol=3e-6)


@pytest.mark.parametrize(("kind", "used"), [("l2", [0.35, 0.3]), ("l1", [0.35, 0.4]), ("none", [0.25, 0.5])])
def test_a_gradient_is_clipped_then_rescaled_then_joined_with_the_penalty(backend: str, kind: str, used: Any) -> None:
    sgd = SGD(
        1.0,
        gradient_rescale=0.5,
        apply_gradient_clipping=True,
        gradient_clip_min=-1,
        gradient_clip_max=1,
        regularization_type=kind,
        regularization_scale=0.1,
    )
    value, m = sgd.step(F32([0.5, 4]), F32(VALUES), backend=backend)
    assert m is None
    np.testing.assert_allclose(F32(VALUES) - value, used, rtol=1e-6)
    lazy = replace(sgd, apply_gradient_clipping=False, regularization_type="none")
    np.testing.assert_allclose(lazy.step(F32([0.5, 4]), F32(VALUES), backend=backend)[0], [0.75, -4], rtol=1e-6)


def test_a_running_average_is_a_step_with_a_negative_learning_rate(backend: str) -> None:
    average = SGD(-0.1, regularization_type="l2", regularization_scale=-1)
    np.testing.assert_allclose(average.step(F32([5]), F32([2]), backend=backend)[0], [2.3], rtol=1e-6)


def test_the_penalty_at_0_is_0(backend: str) -> None:
    sgd = SGD(1.0, regularization_type="l1", regularization_scale=0.5)
    assert sgd.step(F32([0, 0, 0]), F32([0, 2, -2]), backend=backend)[0].tolist() == [0, 1.5, -1.5]


def test_nan_passes_the_clip(ieee_backend: str) -> None:
    sgd = SGD(1.0, apply_gradient_clipping=True, gradient_clip_min=-1, gradient_clip_max=1)
    value, _ = sgd.step(F32([np.nan, np.inf, -np.inf]), F32([0, 0, 0]), backend=ieee_backend)
    assert np.isnan(value[0])
    assert value[1:].tolist() == [-1, 1]


@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_nan_passes_the_penalty(ieee_backend: str, kind: str) -> None:
    sgd = SGD(1.0, 0.5, regularization_type=kind, regularization_scale=0.5)
    value, m = sgd.step(F32([0, 0]), F32([np.nan, 0]), F32([0, 0]), backend=ieee_backend)
    np.testing.assert_array_equal(m, F32([np.nan, 0]))
    np.testing.assert_array_equal(value, F32([np.nan, 0]))


def test_nan_is_the_largest_velocity(ieee_backend: str) -> None:
    zeros, umax = np.zeros(3, F32), F32([1, np.nan, 1])
    value, _, u, largest = ADAM.step(F32([np.nan, 0, 0]), zeros, zeros, zeros, umax, backend=ieee_backend)
    np.testing.assert_array_equal(u, F32([np.nan, 0, 0]))
    np.testing.assert_array_equal(largest, F32([np.nan, np.nan, 1]))
    np.testing.assert_array_equal(value, F32([np.nan, np.nan, 0]))


def test_more_illegal_calls() -> None:
    one = F32([1])
    with pytest.raises(TypeError, match="gradient has dtype float16"):
        PLAIN.step(one.astype(np.float16), one)
    with pytest.raises(TypeError, match="m has dtype float64 and value has dtype float32"):
        HEAVY.step(one, one, one.astype(np.float64))
    with pytest.raises(TypeError, match=r"s is None.*zeros before the first step"):
        RMS.step(one, one, None)
    with pytest.raises(TypeError, match="u is None"):
        ADAM.step(one, one, one, None)
    for bad, error in ((0, ValueError), (-1, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="time_step is"):
            ADAM.step(one, one, one, one, time_step=bad)


def test_steps_that_share_what_is_known_of_them_still_look_at_backend_and_dtype() -> None:
    vectors = [np.arange(1.0, 4.0)] * 4
    for time_step, (backend, dtype) in enumerate(
        [("cpu", np.float32), ("reference", np.float64), ("reference", np.float64)], start=1
    ):
        value, *_ = ADAM.step(*[one.astype(dtype) for one in vectors], time_step=time_step, backend=backend)
        exact, *_ = Adam(ADAM.learning_rate).step(*vectors, time_step=time_step)
        assert value.dtype == dtype
        np.testing.assert_allclose(value, exact, rtol=1e-6)
    with pytest.raises(TypeError, match="backend 'cpu' takes"):
        ADAM.step(*vectors, time_step=5, backend="cpu")


def test_problems_that_follow_one_another_are_pickled_without_what_is_remembered() -> None:
    first = AdamStep(ADAM, (3,))
    second = first.varied({"time_step": 2})
    assert pickle.loads(pickle.dumps(second)) == second == AdamStep(ADAM, (3,), time_step=2) != first
