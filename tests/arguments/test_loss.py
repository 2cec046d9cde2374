"""What a loss refuses: parameters, images that do not fit, and, where asked to look, values outside its domain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Loss, ShapeError
from mpsref.arguments.arrays import Array

Y = np.full((2, 2, 3, 4), 0.5, np.float32)


def changed(value: float, at: tuple[int, ...] = (1, 0, 2, 3)) -> Array:
    image = Y.copy()
    image[at] = value
    return image


def test_numbers_are_names() -> None:
    assert Loss(6, 2) == Loss("huber", "mean")


@pytest.mark.parametrize(
    ("t", "weights", "error", "match"),
    [
        (Y[:1], None, ShapeError, "t has shape \\(1, 2, 3, 4\\); with y of shape"),
        (Y[:, :1], None, ShapeError, "t has shape \\(2, 1, 3, 4\\).* it must have shape \\(2, 2, 3, 4\\)"),
        (Y[..., :3], None, ShapeError, "t has 3 channels and y has 4; the labels need at least as many"),
        (Y, Y[..., :3], ShapeError, "weights has shape \\(2, 2, 3, 3\\)"),
        (Y, Y[:1], ShapeError, "weights has shape \\(1, 2, 3, 4\\)"),
        (Y.astype(np.int32), None, TypeError, "t has dtype int32"),
        (Y, Y.astype(bool), TypeError, "weights has dtype bool"),
        (None, None, TypeError, "t "),
        (Y[0], None, ShapeError, "rank 4"),
    ],
)
def test_images_that_do_not_fit(t: Any, weights: Any, error: type[Exception], match: str) -> None:
    loss = Loss("huber")
    for run in (
        lambda: loss.forward(Y, t, weights),
        lambda: loss.gradient(None, Y, t, weights),
        lambda: loss.gradient_labels(None, Y, t, weights),
    ):
        with pytest.raises(error, match=match):
            run()


def test_source_gradients_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"g has shape \(2, 2, 3, 4\).*it must have shape \(2, 1, 1, 1\)"):
        Loss("huber").gradient(Y, Y, Y)
    with pytest.raises(ShapeError, match=r"g has shape \(2, 1, 1, 1\).*reduction 'none'"):
        Loss("huber", "none").gradient(Y[:, :1, :1, :1], Y, Y)
    with pytest.raises(ShapeError, match=r"g has shape \(1, 1, 1, 1\)"):
        Loss("huber", reduce_across_batch=True).gradient_labels(Y[:1, :1, :1, :1], Y, Y)


def test_cosine_distance_takes_no_weights_image() -> None:
    with pytest.raises(ValueError, match="weights are given with the loss type 'cosinedistance'"):
        Loss("cosinedistance").forward(Y, Y, Y)


@pytest.mark.parametrize(
    ("loss_type", "y", "t", "match"),
    [
        ("categoricalcrossentropy", changed(0), Y, r"y\[1, 0, 2, 3\] is 0.0; with .* must be finite and > 0 and <= 1"),
        ("categoricalcrossentropy", changed(1.5), Y, r"y\[1, 0, 2, 3\] is 1.5"),
        ("categoricalcrossentropy", Y, changed(-0.25), r"t\[1, 0, 2, 3\] is -0.25.*>= 0 and <= 1"),
        ("log", changed(-0.01), Y, r"y\[1, 0, 2, 3\] is -0.00999"),
        ("log", Y, changed(2), r"t\[1, 0, 2, 3\] is 2.0"),
        ("hinge", Y, changed(-1), r"t\[1, 0, 2, 3\] is -1.0"),
        ("softmaxcrossentropy", Y, changed(3), r"t\[1, 0, 2, 3\] is 3.0"),
        ("sigmoidcrossentropy", changed(np.inf), Y, r"y\[1, 0, 2, 3\] is inf"),
        ("kullbackleiblerdivergence", -changed(-0.5), Y, r"y\[1, 0, 2, 3\] is 0.5"),
        ("meansquarederror", changed(np.nan), Y, r"y\[1, 0, 2, 3\] is nan"),
        ("huber", Y, changed(-np.inf), r"t\[1, 0, 2, 3\] is -inf"),
    ],
)
def test_validation_names_the_first_value_outside(loss_type: str, y: Array, t: Array, match: str) -> None:
    loss, out = Loss(loss_type, "none"), np.full_like(Y, 7)
    for run in (
        lambda: loss.forward(y, t, validate=True, out=out),
        lambda: loss.gradient(None, y, t, validate=True, out=out),
        lambda: loss.gradient_labels(None, y, t, validate=True, out=out),
    ):
        with pytest.raises(ValueError, match=match):
            run()
    assert (out == 7).all()


def test_validation_passes_the_ends_and_ignores_further_channels() -> None:
    y, t = np.float32([[[[1, 1e-9]]]]), np.float32([[[[0, 1, 77]]]])
    Loss("categoricalcrossentropy").forward(y, t, validate=True)
    Loss("log").forward(np.float32([[[[0, 1]]]]), t, validate=True)


def test_a_cosine_distance_is_a_sum() -> None:
    with pytest.raises(ValueError, match="reduction is 'mean'; it must be 'sum'"):
        Loss("cosinedistance", "mean")
