"""The optimizer classes on arrays: forms of encode, what is updated and what is not, construction, saving."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import ShapeError
from mpsref.arguments.arrays import Array
from mpsref.mps.optimizer import (
    MPSNNOptimizer,
    MPSNNOptimizerAdam,
    MPSNNOptimizerDescriptor,
    MPSNNOptimizerRMSProp,
    MPSNNOptimizerStochasticGradientDescent,
    MPSNNRegularizationType,
)
from tests.mps.fakes import NAMES

F32 = np.float32
SGD, RMSPROP, ADAM = MPSNNOptimizerStochasticGradientDescent, MPSNNOptimizerRMSProp, MPSNNOptimizerAdam
KINDS: list[Any] = [SGD, RMSPROP, ADAM]


def vector(*numbers: float) -> Array:
    return np.array(numbers, F32)


def moments_of(optimizer: Any, ending: str = "_vector", **extra: Any) -> dict[str, Any]:
    """Zeros for each moment that the class names, by the name that the form of encode gives it."""
    return {name.removesuffix("_vectors") + ending: vector(0, 0) for name in optimizer.moments} | extra


STEPS = vector(0.5, 4), vector(-0.25, 1)


@pytest.mark.parametrize(
    ("optimizer", "after", "moments"),
    [
        (SGD(0.1, momentum_scale=0.9), [0.93, -2.86], [[0.02, 0.46]]),
        (SGD(0.1, momentum_scale=0.9, use_nesterov_momentum=True), [0.912, -3.274], [[0.2, 4.6]]),
        (RMSPROP(0.1), [0.831214201, -2.396810059], [[0.02875, 1.54]]),
        (ADAM(0.1), [0.873366374, -2.183059739], [[0.02, 0.46], [0.00031225, 0.016984]]),
    ],
)
@pytest.mark.parametrize("form", ["vector", "matrix"])
def test_two_steps_on_arrays(backend: str, optimizer: Any, after: Any, moments: Any, form: str) -> None:
    optimizer = optimizer.copy()
    optimizer.backend = backend
    shape = (2,) if form == "vector" else (1, 2)
    state = {name: m.reshape(shape) for name, m in moments_of(optimizer, f"_{form}").items()}
    values = vector(1, -2).reshape(shape)
    for gradient in STEPS:
        given = {f"input_gradient_{form}": gradient.reshape(shape), f"input_values_{form}": values}
        result = optimizer.encode(**given, **{f"result_values_{form}": values}, **state)
        assert result is values
    np.testing.assert_allclose(values.ravel(), after, rtol=3e-6)
    for moment, expected in zip(state.values(), moments, strict=True):
        np.testing.assert_allclose(moment.ravel(), expected, rtol=3e-6)


def test_amsgrad_and_the_time_step() -> None:
    adam = ADAM(0.1)
    state = moments_of(adam, maximum_velocity_vector=vector(0, 0.02))
    values = vector(1, -2)
    for k, gradient in enumerate(STEPS):
        assert adam.time_step == k
        values = adam.encode(input_gradient_vector=gradient, input_values_vector=values, **state)
    np.testing.assert_allclose(values, [0.873366374, -2.165983971], rtol=3e-6)
    np.testing.assert_allclose(state["maximum_velocity_vector"], [0.00031225, 0.02], rtol=3e-6)
    assert adam.time_step == 2
    adam.time_step = 0
    first = adam.encode(input_gradient_vector=STEPS[0], input_values_vector=vector(1, -2), **moments_of(adam))
    np.testing.assert_allclose(first, [0.9, -2.1], rtol=1e-6)


def test_a_momentum_of_none_is_the_plain_step() -> None:
    sgd = SGD(0.1, momentum_scale=0.9)
    given = {"input_gradient_vector": STEPS[0], "input_values_vector": vector(1, -2)}
    for momentum in ({}, {"input_momentum_vector": None}):
        np.testing.assert_allclose(sgd.encode(**given, **momentum), [0.95, -2.4], rtol=1e-6)
    for optimizer in (RMSPROP(0.1), ADAM(0.1)):
        with pytest.raises(ValueError, match=r"is None; .* needs it"):
            optimizer.encode(**given, **dict.fromkeys(moments_of(optimizer)))


def test_aliasing() -> None:
    """The result may be the values and nothing else; a moment is alone in its memory."""
    g, v, m = vector(0.5, 4), vector(1, -2), vector(0, 0)
    sgd = SGD(0.1, momentum_scale=0.9)

    def encode(gradient: Array, values: Array, momentum: Array, result: Array) -> None:
        sgd.encode(
            input_gradient_vector=gradient,
            input_values_vector=values,
            input_momentum_vector=momentum,
            result_values_vector=result,
        )

    for arrays, match in [
        ((g, v, m, g), "result_values_vector shares memory with input_gradient_vector"),
        ((g, v, m, m), "result_values_vector shares memory with input_momentum_vector"),
        ((g, v, g, v), "shares memory with input_gradient_vector"),
        ((g, v, v, vector(0, 0)), "shares memory with input_values_vector"),
    ]:
        with pytest.raises(ValueError, match=match):
            encode(*arrays)
    assert [a.tolist() for a in (g, v, m)] == [[0.5, 4], [1, -2], [0, 0]]
    both = vector(0, 0)
    with pytest.raises(ValueError, match="shares memory"):
        ADAM(0.1).encode(
            input_gradient_vector=g, input_values_vector=v, input_momentum_vector=both, input_velocity_vector=both
        )


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"input_gradient_vector": vector(1)}, ShapeError, r"input_gradient_vector has shape \(1,\)"),
        ({"input_gradient_vector": np.array([1.0, 2.0])}, TypeError, "gradient has dtype float64"),
        ({"input_gradient_vector": np.array([1, 2])}, TypeError, "input_gradient_vector has dtype int64"),
        ({"input_values_vector": vector(1, 2).reshape(1, 2)}, ShapeError, "input_values_vector has shape"),
        ({"input_momentum_vector": vector(1, 2, 3)}, ShapeError, "input_momentum_vector has 3 elements"),
        ({"result_values_vector": vector(1)}, ShapeError, "result_values_vector has 1 elements"),
        ({"result_values_vector": [1, 2]}, TypeError, "result_values_vector is of type list"),
    ],
)
def test_arrays_that_do_not_fit(change: dict[str, Any], error: type[Exception], match: str) -> None:
    given = {
        "input_gradient_vector": vector(0.5, 4),
        "input_values_vector": vector(1, -2),
        "input_momentum_vector": vector(0, 0),
    }
    with pytest.raises(error, match=match):
        SGD(0.1, momentum_scale=0.9).encode(**{**given, **change})
    assert given["input_momentum_vector"].tolist() == [0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_learning_rate_or_a_descriptor(kind: Any) -> None:
    described = MPSNNOptimizerDescriptor(
        0.5, 2.0, apply_gradient_clipping=True, gradient_clip_max=1, gradient_clip_min=-1, regularization_type="l1"
    )
    optimizer = kind(optimizer_descriptor=described)
    assert optimizer.optimizer_descriptor == described
    described.learning_rate = 9
    assert optimizer.learning_rate == 0.5
    assert optimizer.regularization_type is MPSNNRegularizationType.L1
    optimizer.set_learning_rate(-1)
    optimizer.apply_gradient_clipping = False
    assert (optimizer.learning_rate, optimizer.apply_gradient_clipping) == (-1, False)
    with pytest.raises(TypeError, match=r"gradient_rescale of .* is read-only"):
        optimizer.gradient_rescale = 1.0
    for arguments in ({}, {"learning_rate": 0.1, "optimizer_descriptor": described}):
        with pytest.raises(ValueError, match="pass exactly one of them"):
            kind(**arguments)
    with pytest.raises(TypeError, match="optimizer_descriptor is of type float"):
        kind(optimizer_descriptor=0.1)
    with pytest.raises(ValueError, match="learning_rate is inf"):
        kind(np.inf)


def test_descriptors() -> None:
    descriptor = MPSNNOptimizerDescriptor()
    assert (descriptor.learning_rate, descriptor.gradient_rescale) == (1e-3, 1)
    assert (descriptor.gradient_clip_min, descriptor.gradient_clip_max) == (-np.inf, np.inf)
    assert (descriptor.regularization_type, descriptor.regularization_scale) == (MPSNNRegularizationType.NONE, 0)
    changed = MPSNNOptimizerDescriptor(-0.1, gradient_clip_min=0, regularization_type=2, regularization_scale=-1)
    for twin in (MPSNNOptimizerDescriptor.from_json(changed.to_json()), eval(repr(changed), NAMES), changed.copy()):
        assert twin == changed
    for words, error, match in [
        ({"gradient_clip_min": 1, "gradient_clip_max": 0}, ValueError, "gradient_clip_min is 1.0"),
        ({"gradient_clip_min": np.nan}, ValueError, "gradient_clip_min is nan"),
        ({"learning_rate": np.nan}, ValueError, "learning_rate is nan"),
        ({"gradient_rescale": True}, TypeError, "gradient_rescale is True"),
        ({"regularization_type": 3}, ValueError, "regularization_type is 3"),
        ({"regularization_type": 1.0}, TypeError, "regularization_type is 1.0"),
    ]:
        with pytest.raises(error, match=match):
            MPSNNOptimizerDescriptor(**words)


@pytest.mark.parametrize(
    ("kind", "bad", "error"),
    [
        (RMSPROP, {"decay": 1.5}, ValueError),
        (RMSPROP, {"epsilon": -1}, ValueError),
        (ADAM, {"beta1": 1}, ValueError),
        (ADAM, {"beta2": -1}, ValueError),
        (ADAM, {"time_step": -1}, ValueError),
        (ADAM, {"time_step": 1.0}, TypeError),
        (SGD, {"momentum_scale": np.nan}, ValueError),
        (SGD, {"use_nesterov_momentum": 1}, TypeError),
        (SGD, {"momentum": 0.9}, TypeError),
    ],
)
def test_illegal_parameters(kind: Any, bad: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(bad))):
        kind(0.1, **bad)


def test_the_old_spelling_of_nesterov() -> None:
    assert SGD(0.1, use_nestrov_momentum=True) == SGD(0.1, use_nesterov_momentum=True)
    assert SGD(0.1, use_nestrov_momentum=True).use_nestrov_momentum


def test_the_base_class_is_abstract() -> None:
    with pytest.raises(TypeError, match="MPSNNOptimizer is abstract; make one of MPSNNOptimizerAdam"):
        MPSNNOptimizer(0.1)  # type: ignore[abstract]


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.1, momentum_scale=0.9, use_nesterov_momentum=True),
        RMSPROP(optimizer_descriptor=MPSNNOptimizerDescriptor(0.2, 3.0, gradient_clip_max=5), decay=0.5),
        ADAM(0.1, beta1=0.5, time_step=7),
    ],
    ids=lambda o: type(o).__name__,
)
def test_optimizers_print_copy_and_save(optimizer: Any) -> None:
    for twin in (eval(repr(optimizer), NAMES), optimizer.copy(), type(optimizer).from_json(optimizer.to_json())):
        assert twin == optimizer
