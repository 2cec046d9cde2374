"""Losses: worked values, reductions, kinks, corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Loss
from mpsref.arguments.arrays import Array
from mpsref.kernels.loss import LOSS_TYPES

F32 = np.float32
INF = np.inf


def row(*values: float) -> Array:
    """One pixel."""
    return np.array(values, F32).reshape(1, 1, 1, -1)


def same(actual: Array, expected: Any, rtol: float = 2e-6, atol: float = 2e-7) -> None:
    """Equal to numbers that are written with seven digits."""
    np.testing.assert_allclose(actual.ravel(), np.ravel(expected), rtol=rtol, atol=atol)


WORKED: list[tuple[str, Loss, list[float], list[float], list[float], list[float], list[float]]] = [
    ("mae", Loss(0, "none"), [1, 2, 3], [1, 0, 5], [0, 2, 2], [0, 1, -1], [0, -1, 1]),
    ("mse", Loss(1, "none"), [1, 2, 3], [1, 0, 5], [0, 4, 4], [0, 4, -4], [0, -4, 4]),
    (
        "softmax",
        Loss("softmaxcrossentropy", "none"),
        [1, 2, 3],
        [0, 0, 1],
        [0, 0, 0.407606],
        [0.0900306, 0.2447285, -0.3347590],
        [2.407606, 1.407606, 0.407606],
    ),
    (
        "softmax, smoothed",
        Loss("softmaxcrossentropy", "none", label_smoothing=0.3, number_of_classes=3),
        [1, 2, 3],
        [0, 0, 1],
        [0.2407606, 0.1407606, 0.3260848],
        [-0.0099694, 0.1447285, -0.1347590],
        [1.6853242, 0.9853242, 0.2853242],
    ),
    (
        "sigmoid",
        Loss("sigmoidcrossentropy", "none"),
        [-2, 0, 3],
        [0, 1, 1],
        [0.1269280, 0.6931472, 0.0485874],
        [0.1192029, -0.5, -0.0474259],
        [2, 0, -3],
    ),
    (
        "sigmoid, smoothed",
        Loss("sigmoidcrossentropy", "none", label_smoothing=0.2),
        [-2, 0, 3],
        [0, 1, 1],
        [0.3269280, 0.6931472, 0.3485874],
        [0.0192029, -0.4, 0.0525741],
        [1.6, 0, -2.4],
    ),
    (
        "categorical",
        Loss("categoricalcrossentropy", "none"),
        [0.2, 0.3, 0.5],
        [0, 0, 1],
        [0, 0, 0.6931472],
        [0, 0, -2],
        [1.6094379, 1.2039728, 0.6931472],
    ),
    ("hinge", Loss("hinge", "none"), [-2, 0.5, 1, -1], [0, 1, 1, 0], [0, 0.5, 0, 0], [0, -1, 0, 0], [0, -1, 0, 0]),
    (
        "huber",
        Loss("huber", "none"),
        [0.5, 2, -3, 1],
        [0, 0, 0, 0],
        [0.125, 1.5, 2.5, 0.5],
        [0.5, 1, -1, 1],
        [-0.5, -1, 1, -1],
    ),
    (
        "log",
        Loss("log", "none"),
        [0.2, 0.7],
        [0, 1],
        [0.2231434, 0.3566748],
        [1.2499998, -1.4285712],
        [1.3862940, -0.8472977],
    ),
    (
        "divergence",
        Loss("kullbackleiblerdivergence", "none"),
        np.log([0.2, 0.3, 0.5]).tolist(),
        [0.1, 0.25, 0.9],
        [-0.0693147, -0.0455804, 0.5290080],
        [-0.1, -0.25, -0.9],
        [0.3068528, 0.8176784, 1.5877867],
    ),
]


@pytest.mark.parametrize(("name", "loss", "y", "t", "values", "dy", "dt"), WORKED, ids=[each[0] for each in WORKED])
def test_worked_values(
    backend: str,
    name: str,
    loss: Loss,
    y: list[float],
    t: list[float],
    values: list[float],
    dy: Any,
    dt: Any,
) -> None:
    prediction, label = row(*y), row(*t)
    same(loss.forward(prediction, label, backend=backend), values)
    same(loss.gradient(None, prediction, label, backend=backend), dy)
    same(loss.gradient_labels(None, prediction, label, backend=backend), dt)


def test_the_divergence_of_a_label_of_0(backend: str) -> None:
    loss, y, t = Loss("kullbackleiblerdivergence", "none"), row(*np.log([0.2, 0.3])), row(0.1, 0)
    same(loss.forward(y, t, backend=backend), [-0.0693147, 0])
    same(loss.gradient(None, y, t, backend=backend), [-0.1, 0])
    if not backend.startswith("metal"):  # fast math has no infinities
        same(loss.gradient_labels(None, y, t, backend=backend), [0.3068528, -INF])


def test_cosine_distance_is_one_number_an_image(backend: str) -> None:
    loss, y, t = Loss("cosinedistance", weight=0.5), row(0.6, 0.8, 0), row(0, 1, 0)
    same(loss.forward(y, t, backend=backend), [0.1])
    same(loss.gradient(None, y, t, backend=backend), [0, -0.5, 0])
    same(loss.gradient_labels(None, y, t, backend=backend), [-0.3, -0.4, 0])
    two = np.concatenate([y, 2 * y]), np.concatenate([t, t])
    same(Loss("cosinedistance", reduce_across_batch=True).forward(*two, backend=backend), [0.2 - 0.6, 0])


BATCH = np.array([[[[1, 2], [3, 4]]], [[[0, 0], [1, 1]]]], F32)
WEIGHTS = np.array([[[[1, 0], [2, 1]]], [[[0, 0], [0, 0.5]]]], F32)
ONE_HOT = np.broadcast_to(F32([1, 0]), BATCH.shape)


@pytest.mark.parametrize(
    ("reduction", "each", "across"),
    [
        ("none", [0.5, 0, 9, 8, 0, 0, 0, 0.25], [0.5, 0, 9, 8, 0, 0, 0, 0.25]),
        ("sum", [17.5, 0.25], [17.75, 0]),
        ("mean", [4.375, 0.0625], [2.21875, 0]),
        ("sumbynonzeroweights", [5.8333333, 0.25], [4.4375, 0]),
    ],
)
def test_reductions(backend: str, reduction: str, each: list[float], across: list[float]) -> None:
    for whole, expected in ((False, each), (True, across)):
        loss = Loss("meansquarederror", reduction, whole, weight=0.5)
        same(loss.forward(BATCH, 0 * BATCH, WEIGHTS, backend=backend), expected)
        gradient = loss.gradient(None, BATCH, 0 * BATCH, WEIGHTS, backend=backend)
        assert gradient.ravel().tolist() == [1, 0, 6, 4, 0, 0, 0, 0.5]


def test_reductions_of_softmax_count_pixels(backend: str) -> None:
    for reduction, each, across in [
        ("sum", [2.6265234, 1.3862944], [4.0128177, 0]),
        ("mean", [1.3132617, 0.6931472], [1.0032044, 0]),
    ]:
        for whole, expected in ((False, each), (True, across)):
            loss = Loss("softmaxcrossentropy", reduction, whole)
            same(loss.forward(BATCH, ONE_HOT, backend=backend), expected)


def test_weights_of_zero(backend: str) -> None:
    def loss(weight: float) -> Loss:
        return Loss("meansquarederror", "sumbynonzeroweights", weight=weight)

    zero = 0 * BATCH
    assert loss(1).forward(BATCH, zero, zero, backend=backend).ravel().tolist() == [0, 0]
    assert loss(0).forward(BATCH, zero, backend=backend).ravel().tolist() == [0, 0]
    assert loss(2).forward(BATCH, zero, backend=backend).ravel().tolist() == [15, 1]


def test_further_label_channels_are_ignored(backend: str) -> None:
    loss, y = Loss("meansquarederror", "none"), np.arange(12, dtype=F32).reshape(2, 1, 3, 2)
    t = np.concatenate([y + 1, np.full((2, 1, 3, 3), 100, F32)], axis=3)
    w = np.concatenate([np.full_like(y, 3), np.full((2, 1, 3, 1), 100, F32)], axis=3)
    assert (loss.forward(y, t, w, backend=backend) == 3).all()
    assert (loss.gradient(None, y, t, w, backend=backend) == -6).all()
    dt = loss.gradient_labels(None, y, t, w, backend=backend)
    assert dt.shape == t.shape
    assert (dt[..., :2] == 6).all()
    assert not dt[..., 2:].any()


def test_source_gradients(backend: str) -> None:
    y, t = BATCH, 0 * BATCH
    none = Loss("meansquarederror", "none")
    g = np.arange(8, dtype=F32).reshape(y.shape)
    assert (none.gradient(g, y, t, backend=backend) == 2 * g * y).all()
    each = Loss("meansquarederror", "mean")
    g = F32([2, 3]).reshape(2, 1, 1, 1)
    assert (each.gradient(g, y, t, backend=backend) == 2 * g * y).all()
    assert (each.gradient_labels(g, y, t, backend=backend) == -2 * g * y).all()
    across = Loss("meansquarederror", "mean", reduce_across_batch=True)
    assert (across.gradient(g, y, t, backend=backend) == 4 * y).all()
    whole = Loss("meansquarederror", "none", reduce_across_batch=True)  # has no effect
    g = np.arange(8, dtype=F32).reshape(y.shape)
    assert (whole.gradient(g, y, t, backend=backend) == 2 * g * y).all()


def test_kinks(backend: str) -> None:
    """The subgradient is 0 at the kink of the absolute error and of the hinge; Huber's branches agree at delta."""
    zero = row(0, 0)
    assert not Loss(0).gradient(None, zero, zero, backend=backend).any()
    assert Loss("hinge").gradient(None, row(1, -1, 0.5), row(1, 0, 1), backend=backend).tolist() == [[[[0, 0, -1]]]]
    huber = Loss("huber", "none", delta=0.5)
    assert huber.forward(row(0.5, -0.5), zero, backend=backend).ravel().tolist() == [0.125, 0.125]
    assert huber.gradient(None, row(0.5, -0.5), zero, backend=backend).ravel().tolist() == [0.5, -0.5]


def test_large_logits_do_not_overflow(backend: str) -> None:
    y = row(1000, 1001, -1000)
    softmax = Loss("softmaxcrossentropy", "none")
    same(softmax.forward(y, row(0, 1, 0), backend=backend), [0, 0.313262, 0], rtol=1e-5)
    same(softmax.gradient(None, y, row(0, 1, 0), backend=backend), [0.268941, -0.268941, 0], rtol=1e-5)
    sigmoid = Loss("sigmoidcrossentropy", "none")
    y, t = row(1000, -1000, 1000), row(1, 0, 0)
    same(sigmoid.forward(y, t, backend=backend), [0, 0, 1000])
    same(sigmoid.gradient(None, y, t, backend=backend), [0, 0, 1])


def test_the_log_gradient_keeps_its_digits_near_1(backend: str) -> None:
    y = row(1 - 2**-23, 1 - 2**-20, 0.75)
    found = Loss("log").gradient(None, y, row(1, 1, 1), backend=backend)
    same(found, -1 / (y.astype(np.float64) + 1e-7), rtol=1e-6)


def test_corners(ieee_backend: str) -> None:
    """0 times a logarithm is 0; otherwise IEEE 754 decides."""

    def run(loss: Loss, y: Array, t: Array) -> tuple[list[float], list[float]]:
        forward = loss.forward(y, t, backend=ieee_backend).ravel().tolist()
        return forward, loss.gradient(None, y, t, backend=ieee_backend).ravel().tolist()

    values, dy = run(Loss("categoricalcrossentropy", "none"), row(0, 0, -1, -1), row(0, 1, 0, 1))
    assert values[:3] == [0, INF, 0]
    assert dy[:2] == [0, -INF]
    assert np.isnan(values[3])
    assert dy[2:] == [0, 1]
    values, _ = run(Loss("log", "none", epsilon=0), row(0, 0, 1, 1, 2), row(0, 1, 1, 0, 1))
    assert values[:4] == [0, INF, 0, INF]
    assert abs(values[4] + np.log(2)) < 1e-6  # the other factor is 0
    _, dy = run(Loss("log", "none", epsilon=0), row(0, 1), row(0, 1))
    assert dy == [1, -1]
    values, dy = run(Loss("kullbackleiblerdivergence", "none"), row(-1, -1), row(0, -0.5))
    assert (values[0], dy) == (0, [0, 0.5])
    assert np.isnan(values[1])
    values, _ = run(Loss("softmaxcrossentropy", "none"), row(-INF, 0, 0), row(0, 1, 0))
    same(np.array(values), [0, np.log(2), 0])


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_nan_stays_where_it_is(ieee_backend: str, loss_type: str) -> None:
    reduction = "sum" if loss_type == "cosinedistance" else "none"
    loss = Loss(loss_type, reduction)
    y, t = np.full((1, 1, 3, 2), 0.5, F32), np.ones((1, 1, 3, 2), F32)
    y[0, 0, 0, 0] = t[0, 0, 2, 1] = np.nan
    bad = np.zeros(y.shape, bool)
    bad[0, 0, 0, 0] = bad[0, 0, 2, 1] = True
    if loss_type == "softmaxcrossentropy":
        bad[0, 0, 0] = bad[0, 0, 2] = True
    for found in (
        loss.gradient(None, y, t, backend=ieee_backend),
        loss.gradient_labels(None, y, t, backend=ieee_backend),
        *([loss.forward(y, t, backend=ieee_backend)] if reduction == "none" else []),
    ):
        np.testing.assert_array_equal(np.isnan(found), bad)
    assert np.isnan(Loss(loss_type, "sum").forward(y, t, backend=ieee_backend)).all()


@pytest.mark.parametrize(("y", "exact"), [(15.0, True), (16.0, False)])
def test_a_gradient_is_exact_below_2048(y: float, exact: bool) -> None:
    """The weight is a factor of the magnitude: 64 * 2 * 15 = 1920."""
    loss = Loss("meansquarederror", "none", weight=64.0)
    problem = loss.problems["gradient"](loss, (1, 1, 1, 1), label_channels=1)
    image = np.full((1, 1, 1, 1), y)
    bound = problem.operation.error_bound(problem, image, np.zeros_like(image))
    assert bool(np.all(bound.exact)) is exact
