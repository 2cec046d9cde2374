"""Updates of parameters by graphs: styles, callbacks, joint updates, failures."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import OrderError, ShapeError, UnsupportedError
from mpsref.mps.graph import MPSNNGraph, MPSNNImageNode, training_graph
from tests.mps.residual import X, drawn, labels, network

RATE = 1e-4


class Learning(mps.ArrayConvolutionDataSource):
    """Weights that an optimizer updates, on the device or on the host."""

    optimizer: Any = None
    fails: BaseException | None = None
    calls = 0

    def _stepped(self, gradient_state: Any, source_state: Any) -> Any:
        self.calls += 1
        if self.fails is not None:
            raise self.fails
        if self.optimizer is None:
            self.optimizer = mps.MPSNNOptimizerStochasticGradientDescent(RATE)
            self.momentum = [np.zeros_like(self.weights_array.ravel()), np.zeros_like(self.biases_array)]
        return self.optimizer.encode(
            convolution_gradient_state=gradient_state,
            convolution_source_state=source_state,
            input_momentum_vectors=self.momentum,
        )

    def update(self, gradient_state: Any, source_state: Any, command_buffer: Any = None) -> Any:
        return self._stepped(gradient_state, source_state)

    def update_cpu(self, gradient_state: Any, source_state: Any) -> bool:
        new = self._stepped(gradient_state, source_state)
        new.synchronize()
        self.weights_array, self.biases_array = new.weights, new.biases
        return True


def learning_network(style: str) -> SimpleNamespace:
    """The residual network with data sources that are updated."""
    net = network(style)
    for name in ("w1", "w2", "w3"):
        net.__dict__[name].__class__ = Learning
    for name in ("d1", "d2"):
        source = net.__dict__[name]
        source.gamma_array, source.beta_array = np.float32(source.gamma_array), np.float32(source.beta_array)
        source.optimizer = mps.MPSNNOptimizerStochasticGradientDescent(RATE)
    return net


def trained(net: SimpleNamespace, **words: Any) -> mps.graph.MPSNNGraph:
    made = training_graph(net.loss)
    return mps.graph.MPSNNGraph([node.result_image for node in made.termini], False, **words)


def without_updates(net: SimpleNamespace) -> mps.graph.MPSNNGraph:
    return mps.graph.MPSNNGraph(training_graph(net.loss).gradient_image(net.x))


WEIGHTED = ("conv1", "bn1", "conv2", "bn2", "fc")


def parameters(net: SimpleNamespace, compiled: mps.graph.MPSNNGraph) -> dict[tuple[str, str], Array]:
    """Return a copy of the current parameters."""
    return {
        (name, key): value.copy()
        for name in WEIGHTED
        for key, value in compiled.parameters_of(net.__dict__[name]).items()
        if value is not None
    }


def same(first: dict[Any, Array], second: dict[Any, Array]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def loss_of(result: mps.graph.RunResult) -> float:
    return float(result.loss["loss"].sum())


# --- styles -------------------------------------------------------------------------------------------------------


def test_styles_give_identical_parameters() -> None:
    found = {}
    for style in ("gpu", "cpu"):
        net = learning_network(style)
        compiled = trained(net)
        compiled.run([X], [labels()])
        found[style] = parameters(net, compiled)
    net = learning_network("none")
    for name in WEIGHTED:
        net.__dict__[name].result_state.export_from_graph = True
    compiled = without_updates(net)
    before = parameters(net, compiled)
    result = compiled.run([X], [labels()])
    states = {state.producer.label: value for state, value in result.result_states.items()}
    assert same(parameters(net, compiled), before), "nothing is updated"
    assert net.w1.calls == 0
    for name, source in (("conv1", net.w1), ("conv2", net.w2), ("fc", net.w3)):
        old = mps.MPSCNNConvolutionWeightsAndBiasesState(source.weights_array, source.biases_array)
        assert source.update_cpu(states[name], old)
    for name, source in (("bn1", net.d1), ("bn2", net.d2)):
        assert source.update_gamma_and_beta_cpu(states[name])
        assert source.update_mean_and_variance_cpu(states[name])
    compiled.reload_from_data_sources()
    by_hand = parameters(net, compiled)
    assert same(found["gpu"], found["cpu"])
    assert same(found["gpu"], by_hand)
    assert not same(before, by_hand)


@pytest.mark.parametrize("on_cpu", [("conv1",), ("fc", "conv2"), ("conv1", "fc")])
def test_updates_on_the_gpu_come_before_those_on_the_cpu(
    on_cpu: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in the order of the gradient steps."""
    net, called = learning_network("gpu"), list[str]()
    for name in on_cpu:
        net.__dict__[name].training_style = "cpu"
    compiled = trained(net)
    real = Learning._stepped

    def spy(self: Any, gradient: Any, source: Any) -> Any:
        called.extend(name for name, own in (("conv1", net.w1), ("conv2", net.w2), ("fc", net.w3)) if self is own)
        return real(self, gradient, source)

    monkeypatch.setattr(Learning, "_stepped", spy)
    compiled.run([X], [labels()])
    assert called == sorted(("fc", "conv2", "conv1"), key=on_cpu.__contains__)


@pytest.mark.parametrize("style", ["gpu", "cpu"])
def test_new_parameters_count_from_the_next_run_on(style: str) -> None:
    net = learning_network(style)
    compiled = trained(net)
    seen: list[Array] = []
    before = parameters(net, compiled)
    real = Learning._stepped

    def spy(self: Any, gradient: Any, source: Any) -> Any:
        seen.append(source.weights.copy())
        assert same(parameters(net, compiled), before), "inside a run everything is as it was"
        return real(self, gradient, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learning, "_stepped", spy)
        first = compiled.run([X], [labels()])
    assert len(seen) == 3
    after = parameters(net, compiled)
    assert not any(np.array_equal(after[key], before[key]) for key in before if key[1] == "weights")
    second = compiled.run([X], [labels()])
    assert loss_of(second) < loss_of(first)


def test_a_graph_for_inference_sees_updates_after_a_reload() -> None:
    net = learning_network("cpu")
    inference, training = mps.graph.MPSNNGraph(net.fc.result_image), trained(net)
    for _ in range(2):
        training.run([X], [labels()])
    with pytest.raises(OrderError, match="no mean and variance"):
        inference.run([X])
    inference.reload_from_data_sources()
    now = parameters(net, training)
    assert same(parameters(net, inference), now)
    assert np.isfinite(inference.run([X]).image).all()


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_gradients_by_several_losses_are_complete_before_the_one_update(kind: str) -> None:
    def layers(rate_of_second: float) -> tuple[Any, mps.graph.MPSNNGraph]:
        x = MPSNNImageNode("x")
        weights, biases = np.full((4, 1, 1, 4), 0.5), np.zeros(4)
        source = Learning(mps.MPSCNNConvolutionDescriptor(1, 1, 4, 4), weights, biases)
        conv = mps.graph.MPSCNNConvolutionNode(x, source, training_style=kind)
        one = mps.graph.MPSNNInitialGradientNode(mps.graph.MPSCNNNeuronLinearNode(conv.result_image, 1.0).result_image)
        two = mps.graph.MPSCNNNeuronLinearNode(conv.result_image, rate_of_second)
        ends = [training_graph(one), training_graph(mps.graph.MPSNNInitialGradientNode(two.result_image))]
        return source, mps.graph.MPSNNGraph([made.gradient_image(x) for made in ends])

    image = np.ones((1, 1, 1, 4))
    source, compiled = layers(3.0)
    compiled.run([image])
    assert source.calls == 1
    found = compiled._compiled.parameters[compiled.program.steps[0].node].arrays()["weights"]
    assert found.ravel() == pytest.approx(0.5 - RATE * (1 + 3))


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["gpu", "cpu"])
def learner(request: pytest.FixtureRequest) -> tuple[SimpleNamespace, mps.graph.MPSNNGraph]:
    """A network whose last update, that of conv1, can fail."""
    net = learning_network(request.param)
    return net, trained(net)


@pytest.mark.parametrize("error", [RuntimeError("disk full"), KeyboardInterrupt()], ids=["error", "interruption"])
def test_a_data_source_that_raises_leaves_all_parameters(learner: Any, error: BaseException) -> None:
    net, compiled = learner
    before = parameters(net, compiled)
    net.w1.fails = error
    with pytest.raises(type(error)):
        compiled.run([X], [labels()])
    assert same(parameters(net, compiled), before)
    assert net.w3.calls == 1, "another one had been asked before"
    net.w1.fails = None
    from_the_start = without_updates(learning_network("none")).run([X], [labels()])
    assert loss_of(compiled.run([X], [labels()])) == loss_of(from_the_start)


def test_an_interruption_of_a_kernel_leaves_all_parameters(learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net, compiled = learner
    before = parameters(net, compiled)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(mps.graph.MPSCNNConvolutionGradientNode, "_compute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled.run([X], [labels()])
    monkeypatch.undo()
    assert same(parameters(net, compiled), before)
    compiled.run([X], [labels()])
    assert not same(parameters(net, compiled), before)


def test_a_reload_that_fails_leaves_all_parameters() -> None:
    net = learning_network("none")
    compiled = without_updates(net)
    before = parameters(net, compiled)
    net.w1.weights_array = net.w1.weights_array + 1
    net.w3.biases_array = np.zeros(7, np.float32)
    with pytest.raises(ValueError, match="7"):
        compiled.reload_from_data_sources()
    assert same(parameters(net, compiled), before)
    net.w3.biases_array = np.zeros(5, np.float32)
    compiled.reload_from_data_sources()
    assert np.array_equal(compiled.parameters_of(net.conv1)["weights"], net.w1.weights_array)


def test_an_interrupted_replacement_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    net = learning_network("gpu")
    compiled = trained(net)
    before = parameters(net, compiled)

    original = compiled._compiled.atomically

    def interrupted(changes: Any) -> None:
        def stop() -> None:
            raise KeyboardInterrupt

        original([*changes, stop])

    monkeypatch.setattr(compiled._compiled, "atomically", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled.run([X], [labels()])
    assert same(parameters(net, compiled), before)


@pytest.mark.parametrize(
    ("source", "method", "answer", "error", "message"),
    [
        ("w1", "update", 3, TypeError, "returned a int; it must return an MPSCNNConvolutionWeightsAndBiasesState"),
        ("w1", "update_cpu", None, TypeError, "returned None; it must return True or False"),
        ("w1", "update_cpu", False, OrderError, "could not update its weights"),
        ("d1", "update_gamma_and_beta", 3, TypeError, "MPSCNNNormalizationGammaAndBetaState"),
        ("d1", "update_mean_and_variance", 3, TypeError, "MPSCNNNormalizationMeanAndVarianceState"),
        ("d1", "update_gamma_and_beta_cpu", None, TypeError, "must return True, or False"),
    ],
)
def test_wrong_answers(source: str, method: str, answer: Any, error: type[Exception], message: str) -> None:
    net = learning_network("cpu" if method.endswith("cpu") else "gpu")
    compiled = trained(net)
    before = parameters(net, compiled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(net.__dict__[source]), method, lambda *args, **words: answer)
        with pytest.raises(error, match=message):
            compiled.run([X], [labels()])
    assert same(parameters(net, compiled), before)


def test_a_normalization_that_is_not_updated_is_no_failure() -> None:
    net = learning_network("cpu")
    net.d1.optimizer = net.d2.optimizer = None
    compiled = trained(net)
    before = parameters(net, compiled)
    compiled.run([X], [labels()])
    after = parameters(net, compiled)
    assert np.array_equal(after["bn1", "gamma"], before["bn1", "gamma"])
    assert not np.array_equal(after["conv1", "weights"], before["conv1", "weights"])


def test_styles_need_their_callbacks() -> None:
    for style, method in (("gpu", "update"), ("cpu", "update_cpu")):
        with pytest.raises(UnsupportedError, match=rf"no method {method};.*NONE"):
            trained(network(style))


# --- learning -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["gpu", "cpu"])
def test_loss_of_the_residual_network_falls(style: str) -> None:
    net = learning_network(style)
    compiled = trained(net)
    losses = [loss_of(compiled.run([X], [labels()])) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("kind", ["instance", "group", "batch"])
def test_normalizations_learn(kind: str) -> None:
    x = MPSNNImageNode("x")
    words: dict[str, Any] = {"gamma": [1.0] * 4, "optimizer": mps.MPSNNOptimizerAdam(0.05)}
    if kind == "instance":
        source: Any = mps.InstanceNormalizationDataSource(4, epsilon=1e-3, **words)
        node: Any = mps.graph.MPSCNNInstanceNormalizationNode(x, source)
    elif kind == "group":
        source = mps.GroupNormalizationDataSource(4, 2, epsilon=1e-3, **words)
        node = mps.graph.MPSCNNGroupNormalizationNode(x, source)
    else:
        source = mps.BatchNormalizationDataSource(4, epsilon=1e-3, **words)
        node = mps.graph.MPSCNNBatchNormalizationNode(x, source)
    square = mps.graph.MPSNNMultiplicationNode(node.result_image, node.result_image)
    made = training_graph(mps.graph.MPSNNInitialGradientNode(square.result_image))
    compiled = mps.graph.MPSNNGraph([square.result_image, made.gradient_image(x)], [True, False])
    image = drawn((2, 3, 3, 4), 1, 0.3)
    sums = [float(compiled.run([image]).image.sum()) for _ in range(5)]
    assert sums == sorted(sums, reverse=True)
    assert np.abs(compiled.parameters_of(node)["gamma"]).max() < 1


def test_a_group_count_that_changes_is_seen_at_the_next_reload() -> None:
    x = MPSNNImageNode("x")
    source = mps.GroupNormalizationDataSource(4, 1)
    node = mps.graph.MPSCNNGroupNormalizationNode(x, source)
    compiled = mps.graph.MPSNNGraph(node.result_image)
    image = drawn((1, 2, 2, 4), 1, 0)
    one = compiled.run([image]).image
    source.number_of_groups = 2
    assert np.array_equal(compiled.run([image]).image, one)
    compiled.reload_from_data_sources()
    assert not np.allclose(compiled.run([image]).image, one)


STEP = np.float32(1e-3)

SOURCES = {"conv1": "w1", "bn1": "d1", "conv2": "w2", "bn2": "d2", "fc": "w3"}


class Weights(mps.ArrayConvolutionDataSource):
    """Gradient descent; the returned state can be replaced."""

    answer: Any = None
    given: Any = None
    fails: BaseException | None = None

    def joint_update(self, gradients: tuple[Array, Array]) -> Callable[[], Any]:
        if self.fails is not None:
            raise self.fails
        self.given = gradients
        dw, db = gradients
        new = {"weights": self.weights_array - STEP * dw, "biases": self.biases_array - STEP * db}
        return lambda: new if self.answer is None else self.answer

    def update(self, gradient_state: Any, source_state: Any, command_buffer: Any = None) -> Any:
        raise AssertionError("not asked where joint_update is there")


class Vectors(mps.BatchNormalizationDataSource):
    """Gradient descent for gamma and beta; the statistics are those of the batch."""

    answer: Any = None
    given: Any = None

    def joint_update(self, gradients: tuple[Array, Array], statistics: Any) -> Callable[[], Any]:
        self.given = gradients, statistics
        gamma, beta = (
            np.float32(old) - STEP * g for old, g in zip((self.gamma_array, self.beta_array), gradients, strict=True)
        )
        new = {"gamma": gamma, "beta": beta, "mean": statistics[0], "variance": statistics[1]}
        return lambda: new if self.answer is None else self.answer


def learning(style: str = "gpu") -> SimpleNamespace:
    net = network(style)
    for name in ("w1", "w2", "w3"):
        net.__dict__[name].__class__ = Weights
    for name in ("d1", "d2"):
        source = net.__dict__[name]
        source.__class__ = Vectors
        source.gamma_array, source.beta_array = np.float32(source.gamma_array), np.float32(source.beta_array)
    return net


def test_gradients_are_those_of_the_states() -> None:
    net, plain = learning(), network("none")
    for name in SOURCES:
        getattr(plain, name).result_state.export_from_graph = True
    other = MPSNNGraph(training_graph(plain.loss).gradient_image(plain.x))
    states = {state.producer.label: value for state, value in other.run([X], [labels()]).result_states.items()}
    trained(net).run([X], [labels()])
    for name in ("conv1", "conv2", "fc"):
        dw, db = getattr(net, SOURCES[name]).given
        assert np.array_equal(dw.reshape(states[name].gradient_for_weights.shape), states[name].gradient_for_weights)
        assert np.array_equal(db, states[name].gradient_for_biases)
    for name in ("bn1", "bn2"):
        (dgamma, dbeta), (mean, variance) = getattr(net, SOURCES[name]).given
        found = dgamma, dbeta, mean, variance
        for key, array in zip(("gradient_for_gamma", "gradient_for_beta", "mean", "variance"), found, strict=True):
            assert np.array_equal(getattr(states[name], key), array), key


def test_answers_come_into_force_when_the_run_has_ended() -> None:
    net = learning()
    training = trained(net)
    before = parameters(net, training)
    training.run([X], [labels()])
    after = parameters(net, training)
    dw, db = net.w2.given
    assert np.array_equal(after["conv2", "weights"], before["conv2", "weights"] - STEP * dw)
    assert np.array_equal(after["conv2", "biases"], before["conv2", "biases"] - STEP * db)
    (dgamma, _), (mean, variance) = net.d2.given
    assert np.array_equal(after["bn2", "gamma"], before["bn2", "gamma"] - STEP * dgamma)
    assert np.array_equal(after["bn2", "mean"], mean)
    assert np.array_equal(after["bn2", "variance"], variance)
    first = float(training.run([X], [labels()]).loss["loss"].sum())
    assert first != float(trained(learning()).run([X], [labels()]).loss["loss"].sum())


def test_an_array_that_may_be_written_is_copied_and_what_is_left_out_stays() -> None:
    net = learning()
    training = trained(net)
    before = parameters(net, training)
    mine = np.ones_like(before["conv1", "biases"])
    net.w1.answer = {"biases": mine}
    net.d1.answer = {}
    training.run([X], [labels()])
    mine[:] = 7
    after = parameters(net, training)
    assert (after["conv1", "biases"] == 1).all()
    assert ("bn1", "mean") not in after
    for key in (("conv1", "weights"), ("bn1", "gamma"), ("bn1", "beta")):
        assert np.array_equal(after[key], before[key])
    assert not training.parameters_of(net.conv1)["biases"].flags.writeable  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("source", "answer", "error", "message"),
    [
        ("w1", 3, TypeError, "must be a mapping with some of weights, biases"),
        ("w1", {"weights": np.zeros(3, np.float32)}, ShapeError, r"weights of shape \(3,\)"),
        ("w1", {"weights": 3.0}, TypeError, "must be an array of dtype float32"),
        ("w1", {"biases": np.zeros(8, ">f4")}, TypeError, "must be an array of dtype float32"),
        ("w1", {"gamma": np.zeros(3, np.float32)}, TypeError, "some of weights, biases"),
        ("d1", {"gamma": np.zeros(8, np.int32)}, TypeError, "must be an array of dtype float32"),
        ("d1", {"variance": np.full(8, -1, np.float32)}, ValueError, r"variance\[0\] is -1"),
        ("d1", {"weights": np.zeros(4, np.float32)}, TypeError, "some of gamma, beta, mean, variance"),
    ],
)
def test_wrong_answers_change_nothing(source: str, answer: Any, error: type[Exception], message: str) -> None:
    net = learning()
    training = trained(net)
    before = parameters(net, training)
    getattr(net, source).answer = answer
    with pytest.raises(error, match=message):
        training.run([X], [labels()])
    after = parameters(net, training)
    assert same(after, before)


@pytest.mark.parametrize("error", [RuntimeError("disk full"), KeyboardInterrupt()], ids=["error", "interruption"])
def test_one_that_raises_leaves_the_parameters_of_all(error: BaseException) -> None:
    net = learning()
    training = trained(net)
    before = parameters(net, training)
    net.w1.fails = error  # its update is the last
    with pytest.raises(type(error)):
        training.run([X], [labels()])
    assert net.w3.given is not None, "another one had been asked before"
    after = parameters(net, training)
    assert same(after, before)
    net.w1.fails, net.w3.answer = None, {}
    training.run([X], [labels()])
    after = parameters(net, training)
    assert not np.array_equal(after["conv1", "weights"], before["conv1", "weights"])
    assert np.array_equal(after["fc", "weights"], before["fc", "weights"]), "the answer of the run that failed is gone"


def test_what_cannot_be_called_is_no_callback() -> None:
    net = learning()
    net.w1.joint_update = None  # the graph calls update, as for any data source without joint_update
    with pytest.raises(AssertionError, match="not asked"):
        trained(net).run([X], [labels()])
    net = network("gpu")
    net.w1.joint_update = 3
    with pytest.raises(NotImplementedError, match="no method update"):
        trained(net)
