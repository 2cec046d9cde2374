"""The optimizer classes on arrays, and on the states of convolutions and batch normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import OrderError, ShapeError, mps
from mpsref.arguments.arrays import Array
from tests.mps.fakes import NAMES

F32 = np.float32

SGD, RMSPROP, ADAM = mps.MPSNNOptimizerStochasticGradientDescent, mps.MPSNNOptimizerRMSProp, mps.MPSNNOptimizerAdam

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
def test_two_steps_on_arrays(optimizer: Any, after: Any, moments: Any, form: str) -> None:
    optimizer = optimizer.copy()
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
    described = mps.MPSNNOptimizerDescriptor(
        0.5, 2.0, apply_gradient_clipping=True, gradient_clip_max=1, gradient_clip_min=-1, regularization_type="l1"
    )
    optimizer = kind(optimizer_descriptor=described)
    assert optimizer.optimizer_descriptor == described
    described.learning_rate = 9
    assert optimizer.learning_rate == 0.5
    assert optimizer.regularization_type is mps.MPSNNRegularizationType.L1
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
    descriptor = mps.MPSNNOptimizerDescriptor()
    assert (descriptor.learning_rate, descriptor.gradient_rescale) == (1e-3, 1)
    assert (descriptor.gradient_clip_min, descriptor.gradient_clip_max) == (-np.inf, np.inf)
    assert (descriptor.regularization_type, descriptor.regularization_scale) == (mps.MPSNNRegularizationType.NONE, 0)
    changed = mps.MPSNNOptimizerDescriptor(-0.1, gradient_clip_min=0, regularization_type=2, regularization_scale=-1)
    for twin in (mps.MPSNNOptimizerDescriptor.from_json(changed.to_json()), eval(repr(changed), NAMES), changed.copy()):
        assert twin == changed
    with pytest.raises(ValueError, match=r"gradient_clip_min is 1\.0"):
        mps.MPSNNOptimizerDescriptor(gradient_clip_min=1, gradient_clip_max=0)


def test_the_old_spelling_of_nesterov() -> None:
    assert SGD(0.1, use_nestrov_momentum=True) == SGD(0.1, use_nesterov_momentum=True)
    assert SGD(0.1, use_nestrov_momentum=True).use_nestrov_momentum


DESCRIPTOR = mps.MPSCNNConvolutionDescriptor(3, 1, 1, 1)

X = vector(1, 2, 3, 4, 5).reshape(1, 1, 5, 1)

G = vector(1, 2, 3).reshape(1, 1, 3, 1)

WEIGHTS, BIASES = vector(1, 10, 100).reshape(1, 1, 3, 1), vector(0.5)


class Layer:
    """A convolution of stride 2 and its gradient: dw = 16 22 10, db = 6."""

    def __init__(self, backend: str = "reference") -> None:
        descriptor = mps.MPSCNNConvolutionDescriptor(3, 1, 1, 1, stride_in_pixels_x=2)
        self.source = mps.ArrayConvolutionDataSource(descriptor, WEIGHTS.copy(), BIASES.copy())
        self.convolution = mps.MPSCNNConvolution(self.source, backend=backend)
        self.gradient = mps.MPSCNNConvolutionGradient(self.source, backend=backend)

    def forward(self, buffer: mps.MPSCommandBuffer | None = None) -> Any:
        return self.convolution.encode_batch(X, destination_size=(1, 3), return_state=True, command_buffer=buffer)

    def backward(self, buffer: mps.MPSCommandBuffer | None = None) -> Any:
        _, state = self.forward(buffer)
        self.gradient.encode_batch(G, X, state, command_buffer=buffer)
        return state


def weights_state() -> mps.MPSCNNConvolutionWeightsAndBiasesState:
    return mps.MPSCNNConvolutionWeightsAndBiasesState(WEIGHTS.copy(), BIASES.copy())


def test_two_steps_with_momentum_in_place() -> None:
    layer, sgd = Layer(), SGD(0.01, momentum_scale=0.9)
    weights, momenta = weights_state(), [np.zeros(3, F32), np.zeros(1, F32)]
    for _ in range(2):
        state = layer.backward()
        found = sgd.encode(
            convolution_gradient_state=state,
            convolution_source_state=weights,
            input_momentum_vectors=momenta,
            result_state=weights,
        )
        assert found is weights
    weights.synchronize()
    np.testing.assert_allclose(weights.weights.ravel(), [0.536, 9.362, 99.71], rtol=1e-6)
    np.testing.assert_allclose(weights.biases, [0.326], rtol=1e-6)
    np.testing.assert_allclose(momenta[0], [0.304, 0.418, 0.19], rtol=1e-5)


@pytest.mark.parametrize(
    "optimizer", [SGD(0.1, momentum_scale=0.5), RMSPROP(0.1), ADAM(0.1)], ids=lambda o: type(o).__name__
)
def test_states_are_updated_as_their_arrays_would_be(optimizer: Any) -> None:
    layer, twin = Layer(), optimizer.copy()
    optimizer = optimizer.copy()
    lists = {name: [np.zeros(3, F32), np.zeros(1, F32)] for name in optimizer.moments}
    result = optimizer.encode(
        convolution_gradient_state=layer.backward(), convolution_source_state=weights_state(), **lists
    )
    result.synchronize()
    if isinstance(optimizer, ADAM):
        assert optimizer.time_step == 1  # weights and biases are one step
    for k, (dw, w, new) in enumerate(
        [(vector(16, 22, 10), WEIGHTS.ravel(), result.weights.ravel()), (vector(6), BIASES, result.biases)]
    ):
        moments = {name.removesuffix("s"): np.zeros(w.size, F32) for name in optimizer.moments}
        expected = twin.copy().encode(input_gradient_vector=dw, input_values_vector=w, **moments)
        np.testing.assert_array_equal(new, expected)
        for name in optimizer.moments:
            np.testing.assert_array_equal(lists[name][k], moments[name.removesuffix("s")])


def test_a_list_of_one_moment_leaves_the_biases() -> None:
    """The result receives a copy of them, so that a reload from it is safe."""
    momentum = [np.zeros(3, F32)]
    target = mps.MPSCNNConvolutionWeightsAndBiasesState(DESCRIPTOR)
    SGD(0.01, momentum_scale=0.9).encode(
        convolution_gradient_state=Layer().backward(),
        convolution_source_state=weights_state(),
        input_momentum_vectors=momentum,
        result_state=target,
    )
    target.synchronize()
    np.testing.assert_allclose(target.weights.ravel(), [0.84, 9.78, 99.9], rtol=1e-6)
    assert target.biases is not None
    assert target.biases.tolist() == [0.5]


@pytest.mark.parametrize("momenta", [None, [np.zeros(3, F32)], [np.zeros(3, F32), np.zeros(1, F32)]])
def test_a_state_without_biases(momenta: Any) -> None:
    source = mps.MPSCNNConvolutionWeightsAndBiasesState(WEIGHTS.copy())
    result = SGD(0.01, momentum_scale=0.9).encode(
        convolution_gradient_state=Layer().backward(), convolution_source_state=source, input_momentum_vectors=momenta
    )
    result.synchronize()
    assert result.biases is None
    np.testing.assert_allclose(result.weights.ravel(), [0.84, 9.78, 99.9], rtol=1e-6)
    if momenta is not None and len(momenta) == 2:
        assert not momenta[1].any()


def normalization() -> tuple[Any, Any, Any]:
    """A state with the gradients of two channels."""
    norm = mps.MPSCNNBatchNormalization(
        mps.BatchNormalizationDataSource(2, gamma=[2.0, 1.0], beta=[0.5, 0.0], epsilon=1.5)
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 2)).astype(F32)
    state = norm.result_state_for_source_image(x)
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(x, state)
    return norm, x, state


@pytest.mark.parametrize("kind", KINDS)
def test_gamma_and_beta(kind: Any) -> None:
    norm, x, state = normalization()
    names = kind(0.1).moments
    with pytest.raises(OrderError, match="batch_normalization_state holds no gradients yet"):
        kind(0.1).encode(
            batch_normalization_state=state, **{name: [np.zeros(2, F32), np.zeros(2, F32)] for name in names}
        )
    mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(np.ones_like(x), x, state)
    buffers = state.device_read()
    results = []
    for given in (
        {"batch_normalization_state": state},
        {"batch_normalization_gradient_state": state, "batch_normalization_source_state": state},
        {
            "batch_normalization_state": state,
            "result_state": mps.MPSCNNNormalizationGammaAndBetaState(np.zeros(2, F32), np.zeros(2, F32)),
        },
    ):
        lists = {name: [np.zeros(2, F32), np.zeros(2, F32)] for name in names}
        result = kind(0.1).encode(**given, **lists)
        assert given.get("result_state", result) is result
        result.synchronize()
        results.append((result.gamma, result.beta))
    for gamma, beta in results:
        for new, old, gradient in (
            (gamma, buffers.gamma, buffers.gradient_for_gamma),
            (beta, buffers.beta, buffers.gradient_for_beta),
        ):
            moments = {name.removesuffix("s"): np.zeros(2, F32) for name in names}
            expected = kind(0.1).encode(input_gradient_vector=gradient, input_values_vector=old, **moments)
            np.testing.assert_array_equal(new, expected)
    norm.reload_gamma_and_beta(result)
    assert norm.scale[0].tolist() == results[-1][0].tolist()


def test_gradients_and_source_in_two_states() -> None:
    """Gamma and beta are those of the source state's kernel, the gradients those of the other state."""
    (_, x, first), (other, _, second) = normalization(), normalization()
    mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(np.ones_like(x), x, first)
    other.reload_gamma_and_beta(mps.MPSCNNNormalizationGammaAndBetaState(vector(7, 8), vector(-1, -2)))
    result = SGD(0.5).encode(batch_normalization_gradient_state=first, batch_normalization_source_state=second)
    result.synchronize()
    gradients = first.device_read()
    np.testing.assert_allclose(result.gamma, vector(7, 8) - 0.5 * gradients.gradient_for_gamma, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.beta, vector(-1, -2) - 0.5 * gradients.gradient_for_beta, rtol=1e-5)


def test_keywords_must_make_up_one_form() -> None:
    g, v = vector(0.5, 4), vector(1, -2)
    state, weights = Layer().backward(), weights_state()
    for given in [
        {},
        {"input_gradient_vector": g},
        {"input_gradient_vector": g, "input_values_vector": v, "result_state": weights},
        {"input_gradient_vector": g, "input_values_matrix": v},
        {"input_gradient_vector": g, "input_values_vector": v, "input_momentum_vectors": [v]},
        {"convolution_gradient_state": state, "convolution_source_state": weights, "input_values_vector": v},
        {"gradient": g, "value": v},
    ]:
        with pytest.raises(TypeError, match="are no way to encode; one is: input_gradient_vector"):
            SGD(0.1).encode(**given)
    with pytest.raises(TypeError, match="no way to encode"):
        ADAM(0.1).encode(input_gradient_vector=g, input_values_vector=v, input_momentum_vector=v)
    with pytest.raises(TypeError, match="the operands of an optimizer are keywords: write input_gradient_vector"):
        SGD(0.1).encode(g, v)
    with pytest.raises(TypeError, match="first argument is an MPSCommandBuffer; command buffers are passed by keyword"):
        SGD(0.1).encode(mps.MPSCommandBuffer(), input_gradient_vector=g, input_values_vector=v)


def test_errors_update_nothing() -> None:
    adam, layer, buffer = ADAM(0.1), Layer(), mps.MPSCommandBuffer()
    state, weights = layer.backward(), weights_state()
    target = mps.MPSCNNConvolutionWeightsAndBiasesState(DESCRIPTOR)
    buffer.commit()
    good = [np.zeros(3, F32), np.zeros(1, F32)]
    closed = np.zeros(1, F32)
    closed.setflags(write=False)

    def lists(second: Any = good) -> dict[str, Any]:
        return {"input_momentum_vectors": good, "input_velocity_vectors": second}

    own = [np.zeros(3, F32), np.zeros(1, F32)]
    for change, error, match in [
        ({"command_buffer": buffer, **lists(own)}, OrderError, "NotEnqueued"),
        (lists([own[0], np.zeros(2, F32)]), ShapeError, r"input_velocity_vectors\[1\] has 2 elements"),
        (lists([own[0].reshape(1, 3), own[1]]), ShapeError, r"input_velocity_vectors\[0\] has shape"),
        (lists([own[0].astype(np.float64), own[1]]), TypeError, r"input_velocity_vectors\[0\] has dtype float64"),
        (lists([[0, 0, 0], own[1]]), TypeError, r"input_velocity_vectors\[0\] is of type list"),
        (lists([own[0], closed]), ValueError, r"input_velocity_vectors\[1\] is read-only"),
        (lists([own[0]]), ValueError, "different lengths"),
        (lists([]), ValueError, "has 0 vectors"),
        (lists(own[0]), TypeError, "input_velocity_vectors is of type ndarray"),
        (lists(None), ValueError, "input_velocity is None"),
        (lists(good), ValueError, "shares memory"),
        ({**lists(own), "result_state": "x"}, TypeError, "result_state is of type str"),
        (
            {**lists(own), "result_state": mps.MPSCNNConvolutionWeightsAndBiasesState(WEIGHTS.copy())},
            ValueError,
            "the state has none",
        ),
        ({**lists(own), "convolution_gradient_state": weights}, TypeError, "convolution_gradient_state is of type"),
        (
            {**lists(own), "convolution_source_state": mps.MPSCNNConvolutionWeightsAndBiasesState(vector(1, 2))},
            ShapeError,
            "has 3 weights",
        ),
    ]:
        given = {"convolution_gradient_state": state, "convolution_source_state": weights, "result_state": target}
        with pytest.raises(error, match=match):
            adam.encode(**{**given, **change})
        target.synchronize()
        assert not target.weights.any()
        assert adam.time_step == 0
        assert not any(moment.any() for moment in (*good, *own))
