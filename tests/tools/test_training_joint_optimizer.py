"""One optimizer for all data sources: the bits of one per data source, and no step before the last gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import Array
from mpsref.mps.graph.execute import Execution
from mpsref.mps.graph.nodes import Step
from mpsref.training import Settings, Trainer
from mpsref.training.network import JointOptimizer, Trainable, TrainableNormalization, convolution, normalization
from tests import need

need("sklearn", "scikit-learn, which has the digits, is not installed")


def sources() -> list[Any]:
    generator = np.random.default_rng(7)
    return [convolution(3, 2, 4, generator), normalization(4), convolution(1, 4, 3, generator)]


def gradients(source: Trainable, generator: np.random.Generator) -> list[Array]:
    return [generator.standard_normal(one.shape).astype(np.float32) for one in source.parameters]


def statistics(source: Any) -> tuple[Any, ...]:
    """The arguments of ``joint_update`` after the gradients."""
    channels = source.parameters[0].shape
    ones = np.ones(channels, np.float32)
    return ((2 * ones, 3 * ones),) if isinstance(source, TrainableNormalization) else ()


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_step_for_all_is_a_step_for_each(name: str) -> None:
    settings = Settings(name)
    learned = sources()
    JointOptimizer(settings.optimizer_on("cpu"), learned)
    values = [[one.ravel() for one in source.parameters] for source in sources()]
    optimizers = [[settings.optimizer_on("cpu") for _ in range(2)] for _ in values]
    moments = [
        [{key.removesuffix("s"): np.zeros(v.size, np.float32) for key in optimizers[0][0].moments} for v in pair]
        for pair in values
    ]
    generator = np.random.default_rng(0)
    for _ in range(3):
        given = [gradients(source, generator) for source in learned]
        later = [source.joint_update(one, *statistics(source)) for source, one in zip(learned, given, strict=True)]
        for k, arrays in enumerate(given):
            for i in range(2):
                values[k][i] = optimizers[k][i].encode(
                    input_gradient_vector=arrays[i].ravel(), input_values_vector=values[k][i], **moments[k][i]
                )
        for k, source in enumerate(learned):
            for i in range(2):
                assert np.array_equal(source.parameters[i].ravel(), values[k][i])
                assert np.array_equal(later[k]()[source.names[i]].ravel(), values[k][i])


def test_nothing_changes_before_the_last_gradients_have_come() -> None:
    learned = sources()
    joint = JointOptimizer(Settings().optimizer_on("cpu"), learned)
    before = [source.parameters for source in learned]
    kept = [tuple(part.copy() for part in pair) for pair in before]
    generator = np.random.default_rng(1)
    for source in learned[:-1]:
        source.joint_update(gradients(source, generator), *statistics(source))
    for source, pair in zip(learned, before, strict=True):
        assert all(mine is old for mine, old in zip(source.parameters, pair, strict=True))
    assert not any(moment.any() for moment in joint.moments.values())
    learned[-1].joint_update(gradients(learned[-1], generator))
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
        assert np.array_equal(array, broken._arrays()[name]), name
