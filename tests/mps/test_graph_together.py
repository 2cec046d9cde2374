"""Data sources that are updated together: the arrays they get, and what becomes of their answers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from mpsref.mps import ArrayConvolutionDataSource, BatchNormalizationDataSource
from mpsref.mps.graph import MPSNNGraph, training_graph
from tests.mps.residual import X, labels, network

RATE = np.float32(1e-3)

WEIGHTED = {"conv1": "w1", "bn1": "d1", "conv2": "w2", "bn2": "d2", "fc": "w3"}


class Weights(ArrayConvolutionDataSource):
    """Plain descent; the answer can be replaced."""

    answer: Any = None
    given: Any = None
    fails: BaseException | None = None

    def update_together(self, gradients: tuple[Array, Array]) -> Callable[[], Any]:
        if self.fails is not None:
            raise self.fails
        self.given = gradients
        dw, db = gradients
        new = {"weights": self.weights_array - RATE * dw, "biases": self.biases_array - RATE * db}
        return lambda: new if self.answer is None else self.answer

    def update(self, gradient_state: Any, source_state: Any, command_buffer: Any = None) -> Any:
        raise AssertionError("not asked where update_together is there")


class Vectors(BatchNormalizationDataSource):
    """The same for gamma and beta; statistics are taken as they are."""

    answer: Any = None
    given: Any = None

    def update_together(self, gradients: tuple[Array, Array], statistics: Any) -> Callable[[], Any]:
        self.given = gradients, statistics
        gamma, beta = (
            np.float32(old) - RATE * g for old, g in zip((self.gamma_array, self.beta_array), gradients, strict=True)
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


def compiled(net: SimpleNamespace) -> MPSNNGraph:
    return MPSNNGraph([node.result_image for node in training_graph(net.loss).termini], False)


def in_force(net: SimpleNamespace, of: MPSNNGraph) -> dict[tuple[str, str], Array]:
    found = {(name, key): array for name in WEIGHTED for key, array in of.parameters_of(getattr(net, name)).items()}
    return {key: array.copy() for key, array in found.items() if array is not None}


def test_gradients_are_those_of_the_states() -> None:
    net, plain = learning(), network("none")
    for name in WEIGHTED:
        getattr(plain, name).result_state.export_from_graph = True
    other = MPSNNGraph(training_graph(plain.loss).gradient_image(plain.x))
    states = {state.producer.label: value for state, value in other.run([X], [labels()]).result_states.items()}
    compiled(net).run([X], [labels()])
    for name in ("conv1", "conv2", "fc"):
        dw, db = getattr(net, WEIGHTED[name]).given
        assert np.array_equal(dw.reshape(states[name].gradient_for_weights.shape), states[name].gradient_for_weights)
        assert np.array_equal(db, states[name].gradient_for_biases)
    for name in ("bn1", "bn2"):
        (dgamma, dbeta), (mean, variance) = getattr(net, WEIGHTED[name]).given
        found = dgamma, dbeta, mean, variance
        for key, array in zip(("gradient_for_gamma", "gradient_for_beta", "mean", "variance"), found, strict=True):
            assert np.array_equal(getattr(states[name], key), array), key


def test_answers_come_into_force_when_the_run_has_ended() -> None:
    net = learning()
    training = compiled(net)
    before = in_force(net, training)
    training.run([X], [labels()])
    after = in_force(net, training)
    dw, db = net.w2.given
    assert np.array_equal(after["conv2", "weights"], before["conv2", "weights"] - RATE * dw)
    assert np.array_equal(after["conv2", "biases"], before["conv2", "biases"] - RATE * db)
    (dgamma, _), (mean, variance) = net.d2.given
    assert np.array_equal(after["bn2", "gamma"], before["bn2", "gamma"] - RATE * dgamma)
    assert np.array_equal(after["bn2", "mean"], mean)
    assert np.array_equal(after["bn2", "variance"], variance)
    first = float(training.run([X], [labels()]).loss["loss"].sum())
    assert first != float(compiled(learning()).run([X], [labels()]).loss["loss"].sum())


def test_an_array_that_may_be_written_is_copied_and_what_is_left_out_stays() -> None:
    net = learning()
    training = compiled(net)
    before = in_force(net, training)
    mine = np.ones_like(before["conv1", "biases"])
    net.w1.answer = {"biases": mine}
    net.d1.answer = {}
    training.run([X], [labels()])
    mine[:] = 7
    after = in_force(net, training)
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
    training = compiled(net)
    before = in_force(net, training)
    getattr(net, source).answer = answer
    with pytest.raises(error, match=message):
        training.run([X], [labels()])
    after = in_force(net, training)
    assert all(np.array_equal(after[key], before[key]) for key in before)


@pytest.mark.parametrize("error", [RuntimeError("disk full"), KeyboardInterrupt()], ids=["error", "interruption"])
def test_one_that_raises_leaves_the_parameters_of_all(error: BaseException) -> None:
    net = learning()
    training = compiled(net)
    before = in_force(net, training)
    net.w1.fails = error  # the last that is asked
    with pytest.raises(type(error)):
        training.run([X], [labels()])
    assert net.w3.given is not None, "another one had been asked before"
    after = in_force(net, training)
    assert all(np.array_equal(after[key], before[key]) for key in before)
    net.w1.fails, net.w3.answer = None, {}
    training.run([X], [labels()])
    after = in_force(net, training)
    assert not np.array_equal(after["conv1", "weights"], before["conv1", "weights"])
    assert np.array_equal(after["fc", "weights"], before["fc", "weights"]), "the answer of the run that failed is gone"


def test_updates_on_the_cpu_need_their_callback() -> None:
    with pytest.raises(NotImplementedError, match="no method update_cpu"):
        compiled(learning("cpu"))


def test_what_cannot_be_called_is_no_callback() -> None:
    net = learning()
    net.w1.update_together = None  # and the class's own update answers, as for any data source without it
    with pytest.raises(AssertionError, match="not asked"):
        compiled(net).run([X], [labels()])
    net = network("gpu")
    net.w1.update_together = 3
    with pytest.raises(NotImplementedError, match="no method update"):
        compiled(net)
