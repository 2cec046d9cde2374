"""Updates of parameters: three styles, when new parameters count, and what a failure leaves behind."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import Array
from mpsref.errors import OrderError, UnsupportedError
from mpsref.mps import (
    ArrayConvolutionDataSource,
    BatchNormalizationDataSource,
    GroupNormalizationDataSource,
    InstanceNormalizationDataSource,
    MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionWeightsAndBiasesState,
    MPSNNOptimizerAdam,
    MPSNNOptimizerStochasticGradientDescent,
    graph,
)
from mpsref.mps.graph import MPSNNImageNode, training_graph
from mpsref.mps.graph.execute import Execution
from tests.mps.residual import X, drawn, labels, network

RATE = 1e-4


class Learning(ArrayConvolutionDataSource):
    """Weights that learn with an optimizer, on the device or on the host."""

    optimizer: Any = None
    fails: BaseException | None = None
    calls = 0

    def _stepped(self, gradient_state: Any, source_state: Any) -> Any:
        self.calls += 1
        if self.fails is not None:
            raise self.fails
        if self.optimizer is None:
            self.optimizer = MPSNNOptimizerStochasticGradientDescent(RATE)
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
    """The residual network with data sources that learn."""
    net = network(style)
    for name in ("w1", "w2", "w3"):
        net.__dict__[name].__class__ = Learning
    for name in ("d1", "d2"):
        source = net.__dict__[name]
        source.gamma_array, source.beta_array = np.float32(source.gamma_array), np.float32(source.beta_array)
        source.optimizer = MPSNNOptimizerStochasticGradientDescent(RATE)
    return net


def trained(net: SimpleNamespace, **words: Any) -> graph.MPSNNGraph:
    made = training_graph(net.loss)
    return graph.MPSNNGraph([node.result_image for node in made.termini], False, **words)


def without_updates(net: SimpleNamespace) -> graph.MPSNNGraph:
    return graph.MPSNNGraph(training_graph(net.loss).gradient_image(net.x))


WEIGHTED = ("conv1", "bn1", "conv2", "bn2", "fc")


def parameters(net: SimpleNamespace, compiled: graph.MPSNNGraph) -> dict[tuple[str, str], Array]:
    """A copy of all parameters in force."""
    return {
        (name, key): value.copy()
        for name in WEIGHTED
        for key, value in compiled.parameters_of(net.__dict__[name]).items()
        if value is not None
    }


def same(first: dict[Any, Array], second: dict[Any, Array]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def loss_of(result: graph.RunResult) -> float:
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
        old = MPSCNNConvolutionWeightsAndBiasesState(source.weights_array, source.biases_array)
        assert source.update_cpu(states[name], old)
    for name, source in (("bn1", net.d1), ("bn2", net.d2)):
        assert source.update_gamma_and_beta_cpu(states[name])
        assert source.update_mean_and_variance_cpu(states[name])
    compiled.reload_from_data_sources()
    by_hand = parameters(net, compiled)
    assert same(found["gpu"], found["cpu"])
    assert same(found["gpu"], by_hand)
    assert not same(before, by_hand)


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
    inference, training = graph.MPSNNGraph(net.fc.result_image), trained(net)
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
    def layers(rate_of_second: float) -> tuple[Any, graph.MPSNNGraph]:
        x = MPSNNImageNode("x")
        weights, biases = np.full((4, 1, 1, 4), 0.5), np.zeros(4)
        source = Learning(MPSCNNConvolutionDescriptor(1, 1, 4, 4), weights, biases)
        conv = graph.MPSCNNConvolutionNode(x, source, training_style=kind)
        one = graph.MPSNNInitialGradientNode(graph.MPSCNNNeuronLinearNode(conv.result_image, 1.0).result_image)
        two = graph.MPSCNNNeuronLinearNode(conv.result_image, rate_of_second)
        ends = [training_graph(one), training_graph(graph.MPSNNInitialGradientNode(two.result_image))]
        return source, graph.MPSNNGraph([made.gradient_image(x) for made in ends])

    image = np.ones((1, 1, 1, 4))
    source, compiled = layers(3.0)
    compiled.run([image])
    assert source.calls == 1
    found = compiled._compiled.parameters[compiled.program.steps[0].node].arrays()["weights"]
    assert found.ravel() == pytest.approx(0.5 - RATE * (1 + 3))


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["gpu", "cpu"])
def learner(request: pytest.FixtureRequest) -> tuple[SimpleNamespace, graph.MPSNNGraph]:
    """A network whose last update, that of conv1, can be made to fail."""
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

    monkeypatch.setattr(graph.MPSCNNConvolutionGradientNode, "_compute", interrupted)
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


# --- planted faults ----------------------------------------------------------------------------------------------


def check_updates() -> None:
    """One update for each node, from complete gradients, that counts only when the run has ended well."""
    for style in ("gpu", "cpu"):
        test_gradients_by_several_losses_are_complete_before_the_one_update(style)
        test_new_parameters_count_from_the_next_run_on(style)
        net = learning_network(style)
        test_a_data_source_that_raises_leaves_all_parameters((net, trained(net)), RuntimeError("full"))


def update_at_each_gradient_step(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Execution._step

    def step(self: Any, one: Any) -> None:
        real(self, one)
        style = getattr(one.node, "training_style", None)
        if self.updates and one.node.form == "gradient" and style is graph.MPSNNTrainingStyle.GPU and not one.updates:
            self._update(replace(one, updates=style))

    monkeypatch.setattr(Execution, "_step", step)


def update_in_the_middle_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Execution._update

    def update(self: Any, step: Any) -> None:
        real(self, step)
        self.compiled.atomically(self.replacements)

    monkeypatch.setattr(Execution, "_update", update)


def no_update_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Execution, "_update_on_the_cpu", lambda self: None)


def failed_replacements_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Any) -> Any:
        for step in self.program.steps:
            try:
                self._step(step)
            except RuntimeError:
                self.compiled.atomically(self.replacements)
                raise
        return real(self)

    real = Execution.run
    monkeypatch.setattr(Execution, "run", run)


def test_without_a_fault_the_checks_pass() -> None:
    check_updates()


@pytest.mark.parametrize(
    "fault",
    [
        update_at_each_gradient_step,
        update_in_the_middle_of_the_run,
        no_update_on_the_cpu,
        failed_replacements_stay,
    ],
)
def test_fault_is_caught(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        check_updates()


# --- learning -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["gpu", "cpu"])
def test_loss_of_the_residual_network_falls(backend: str, style: str) -> None:
    net = learning_network(style)
    compiled = trained(net, backend=backend)
    losses = [loss_of(compiled.run([X], [labels()])) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("kind", ["instance", "group", "batch"])
def test_normalizations_learn(kind: str) -> None:
    x = MPSNNImageNode("x")
    words: dict[str, Any] = {"gamma": [1.0] * 4, "optimizer": MPSNNOptimizerAdam(0.05)}
    if kind == "instance":
        source: Any = InstanceNormalizationDataSource(4, epsilon=1e-3, **words)
        node: Any = graph.MPSCNNInstanceNormalizationNode(x, source)
    elif kind == "group":
        source = GroupNormalizationDataSource(4, 2, epsilon=1e-3, **words)
        node = graph.MPSCNNGroupNormalizationNode(x, source)
    else:
        source = BatchNormalizationDataSource(4, epsilon=1e-3, **words)
        node = graph.MPSCNNBatchNormalizationNode(x, source)
    square = graph.MPSNNMultiplicationNode(node.result_image, node.result_image)
    made = training_graph(graph.MPSNNInitialGradientNode(square.result_image))
    compiled = graph.MPSNNGraph([square.result_image, made.gradient_image(x)], [True, False])
    image = drawn((2, 3, 3, 4), 1, 0.3)
    sums = [float(compiled.run([image]).image.sum()) for _ in range(5)]
    assert sums == sorted(sums, reverse=True)
    assert np.abs(compiled.parameters_of(node)["gamma"]).max() < 1


def test_a_group_count_that_changes_is_seen_at_the_next_reload() -> None:
    x = MPSNNImageNode("x")
    source = GroupNormalizationDataSource(4, 1)
    node = graph.MPSCNNGroupNormalizationNode(x, source)
    compiled = graph.MPSNNGraph(node.result_image)
    image = drawn((1, 2, 2, 4), 1, 0)
    one = compiled.run([image]).image
    source.number_of_groups = 2
    assert np.array_equal(compiled.run([image]).image, one)
    compiled.reload_from_data_sources()
    assert not np.allclose(compiled.run([image]).image, one)
