"""What batch normalization refuses, with a message that says what would be right; and that nothing is changed then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref.kernels.batch_normalization import BatchGradientSums, BatchNormalization, BatchStatistics
from mpsref.kernels.neuron import Neuron

F32 = np.float32
X = np.arange(12, dtype=F32).reshape(1, 2, 3, 2)
TWO = np.array([1, 2], F32)


def test_the_default_epsilon_is_the_smallest_normal_float32() -> None:
    assert BatchNormalization().epsilon == np.finfo(F32).tiny
    assert BatchNormalization(0).epsilon == 0.0


def test_slopes_of_prelu_are_one_for_each_channel() -> None:
    norm = BatchNormalization(neuron=Neuron("prelu", data=[0.1, 0.2, 0.3]))
    with pytest.raises(mpsref.ShapeError, match=r"the neuron's data has 3 values and the image 2 channels"):
        norm.forward(X, TWO, TWO)


def calls(norm: BatchNormalization, **vectors: Any) -> list[Any]:
    """The three operations that are given vectors, with some of them replaced."""
    given = {"mean": TWO, "variance": TWO, "gamma": TWO, "beta": TWO} | vectors
    return [
        lambda: norm.forward(X, **given),
        lambda: norm.statistics_gradient(X, X, **given),
        lambda: norm.gradient(X, X, **given),
    ]


@pytest.mark.parametrize("name", ["mean", "variance"])
def test_statistics_must_be_given(name: str) -> None:
    for call in calls(BatchNormalization(), **{name: None}):
        with pytest.raises(TypeError, match=f"^{name} "):
            call()


def test_a_negative_variance() -> None:
    for call in calls(BatchNormalization(), variance=[1.0, -0.5]):
        with pytest.raises(ValueError, match=r"variance\[1\] is -0.5; it must be >= 0"):
            call()
    with pytest.raises(ValueError, match=r"state.m2\[0\] is -1.0; it must be >= 0"):
        BatchNormalization().statistics(X, BatchStatistics(3, TWO, -TWO))


def test_g_and_x_have_one_shape() -> None:
    norm = BatchNormalization()
    for method in (norm.statistics_gradient, norm.gradient):
        with pytest.raises(mpsref.ShapeError, match=r"x has shape \(1, 2, 3, 2\); with g of shape \(1, 2, 2, 2\)"):
            method(X[:, :, :2], X, TWO, TWO)


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ((3, TWO, TWO), TypeError, r"state is of type tuple; it must be a BatchStatistics or None"),
        (BatchGradientSums(3, TWO, TWO), TypeError, r"state is of type BatchGradientSums"),
        (BatchStatistics(-1, TWO, TWO), ValueError, r"state.n is -1; it must be an integer >= 0"),
        (BatchStatistics(1.0, TWO, TWO), TypeError, r"state.n is 1.0"),  # type: ignore[arg-type]
        (BatchStatistics(3, None, TWO), TypeError, r"state.mean has dtype object"),  # type: ignore[arg-type]
        (BatchStatistics(3, TWO[:1], TWO), mpsref.ShapeError, r"state.mean has shape \(1,\)"),
        (BatchStatistics(3, TWO, np.ones(3, F32)), mpsref.ShapeError, r"state.m2 has shape \(3,\)"),
    ],
)
def test_the_state_of_statistics(state: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        BatchNormalization().statistics(X, state)


@pytest.mark.parametrize(
    ("sums", "error", "text"),
    [
        (
            BatchStatistics(3, TWO, TWO),
            TypeError,
            r"is of type BatchStatistics; it must be a BatchGradientSums or None",
        ),
        (BatchGradientSums(3, TWO[:1], TWO), mpsref.ShapeError, r"\.dbeta has shape \(1,\)"),
        (BatchGradientSums(3, TWO, TWO[:1]), mpsref.ShapeError, r"\.dgamma has shape \(1,\)"),
        (BatchGradientSums(-2, TWO, TWO), ValueError, r"\.n is -2"),
    ],
)
def test_the_sums_of_the_gradient(sums: Any, error: type[Exception], text: str) -> None:
    norm = BatchNormalization()
    with pytest.raises(error, match=f"^state{text}" if text[0] == "\\" else f"^state {text}"):
        norm.statistics_gradient(X, X, TWO, TWO, state=sums)
    with pytest.raises(error, match=f"^sums{text}" if text[0] == "\\" else f"^sums {text}"):
        norm.gradient(X, X, TWO, TWO, sums=sums)


def test_a_gradient_before_its_sums() -> None:
    with pytest.raises(mpsref.OrderError, match=r"sums.n is 0; call statistics_gradient"):
        BatchNormalization().gradient(X, X, TWO, TWO, sums=BatchGradientSums(0, TWO, TWO))


def test_a_result_may_not_overwrite_what_is_read() -> None:
    norm, mean, m2 = BatchNormalization(), TWO.copy(), TWO.copy()
    with pytest.raises(ValueError, match="shares memory with an input"):
        norm.statistics(X, BatchStatistics(3, mean, m2), out=(mean, np.empty(2, F32)))
    with pytest.raises(ValueError, match="shares memory with an input"):
        norm.statistics_gradient(X, X, mean, m2, state=BatchGradientSums(3, mean, m2), out=(np.empty(2, F32), m2))
    assert mean.tolist() == m2.tolist() == [1, 2]


def test_vectors_may_be_any_numbers() -> None:
    norm = BatchNormalization(1e-3)
    expected = norm.forward(X, TWO, TWO, TWO, TWO)
    for vector in ([1, 2], (1.0, 2.0), np.array([1, 2], np.float64), np.array([1, 2], np.int32)):
        assert norm.forward(X, vector, vector, vector, vector).tobytes() == expected.tobytes()
