"""One optimizer for all data sources: the bits of one for each, and no step before the last gradients have come."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from mpsref.images import Array
from mpsref.mps.graph.execution import Execution
from mpsref.mps.graph.step import Step
from mpsref.training import Settings, Trainer
from mpsref.training.learner import Learned, Learner
from mpsref.training.sources import convolution, normalization

pytest.importorskip("sklearn", reason="scikit-learn, which has the digits, is not installed")


class GradientState(NamedTuple):
    """As much of a state with gradients as the data sources read."""

    gradient_for_gamma: Array
    gradient_for_beta: Array

    def device_read(self, command_buffer: Any) -> GradientState:
        return self


def sources() -> list[Any]:
    generator = np.random.default_rng(7)
    return [convolution(3, 2, 4, generator), normalization(4), convolution(1, 4, 3, generator)]


def gradients(source: Learned, generator: np.random.Generator) -> GradientState:
    return GradientState(*(generator.standard_normal(one.shape).astype(np.float32) for one in source.parameters))


def update(source: Any, state: GradientState) -> Any:
    return source.update(state, None) if hasattr(source, "update") else source.update_gamma_and_beta(state)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_step_for_all_is_a_step_for_each(name: str) -> None:
    settings = Settings(name)
    learned = sources()
    Learner(settings.optimizer_on("cpu"), learned)
    values = [[one.ravel() for one in source.parameters] for source in sources()]
    optimizers = [[settings.optimizer_on("cpu") for _ in range(2)] for _ in values]
    moments = [
        [{key.removesuffix("s"): np.zeros(v.size, np.float32) for key in optimizers[0][0].moments} for v in pair]
        for pair in values
    ]
    generator = np.random.default_rng(0)
    for _ in range(3):
        states = [gradients(source, generator) for source in learned]
        answers = [update(source, state) for source, state in zip(learned, states, strict=True)]
        for k, state in enumerate(states):
            for i in range(2):
                values[k][i] = optimizers[k][i].encode(
                    input_gradient_vector=state[i].ravel(), input_values_vector=values[k][i], **moments[k][i]
                )
        for k, source in enumerate(learned):
            for i in range(2):
                assert np.array_equal(source.parameters[i].ravel(), values[k][i])
                assert np.array_equal(answers[k].device_read()[i].ravel(), values[k][i])


def test_nothing_changes_before_the_last_gradients_have_come() -> None:
    learned = sources()
    learner = Learner(Settings().optimizer_on("cpu"), learned)
    before = [source.parameters for source in learned]
    kept = [tuple(part.copy() for part in pair) for pair in before]
    generator = np.random.default_rng(1)
    for source in learned[:-1]:
        answer = update(source, gradients(source, generator))
        assert all(map(np.array_equal, answer.device_read(), source.parameters))
    for source, pair in zip(learned, before, strict=True):
        assert all(mine is old for mine, old in zip(source.parameters, pair, strict=True))
    assert not any(moment.any() for moment in learner.moments.values())
    update(learned[-1], gradients(learned[-1], generator))
    for source, pair in zip(learned, kept, strict=True):
        assert not any(map(np.array_equal, source.parameters, pair))
    assert all(map(np.array_equal, sum(before, ()), sum(kept, ()))), "what a step began with stays as it was"


def test_a_step_that_breaks_off_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients that had come by then, of other images, are not used by the next step."""
    broken, whole = Trainer(Settings(), "cpu"), Trainer(Settings(), "cpu")
    learn = broken.learn
    images, labels = learn.images, learn.one_hot()
    step = Execution._step

    def interrupted(self: Execution, one: Step) -> None:
        if self.program.labels[one.node] == "conv2.grad":  # those of fc and bn2 are there
            raise KeyboardInterrupt
        step(self, one)

    with monkeypatch.context() as patch:
        patch.setattr(Execution, "_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            broken.network.train(images[64:96], labels[64:96], 0)
    for trainer in (broken, whole):
        for k in range(2):
            part = slice(32 * k, 32 * k + 32)
            trainer.network.train(images[part], labels[part], k)
    for name, array in whole._arrays().items():
        if not name.endswith((".mean", ".variance")):  # each data source keeps its own running statistics
            assert np.array_equal(array, broken._arrays()[name]), name
