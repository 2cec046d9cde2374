"""The loss curves of two backends agree within what the bounds of their kernels add up to.

Every call of a kernel is off by no more than its derived bound b. A change e of an image changes the loss L by
sum(dL/dimage * e), so the roundings of a forward pass change it by no more than sum(|dL/dimage| * b) over all images,
and parameters that differ by d by sum(|dL/dparameter| * |d|). The gradients are those of the training graph itself.
SECOND_ORDER is for terms of second order and for roundings of the gradients. A backend whose every call is within its
bound, and whose parameters are as near, cannot have another loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.mps import MPSCNNLossLabels
from mpsref.mps.graph.execute import RunResult
from mpsref.mps.graph.nodes import Step
from mpsref.registry import Operation
from mpsref.training import Settings, Trainer
from tests import few, need

need("sklearn", "scikit-learn, which has the digits, is not installed")

SECOND_ORDER = 1 + 2.0**-10
BATCH = 32


class Call(NamedTuple):
    """One call of a kernel, and how far each of its results may be off."""

    operation: Operation
    inputs: tuple[Array, ...]
    results: tuple[Array, ...]
    bounds: tuple[Array, ...]


class Checked(Mapping[registry.OperationKey, registry.Implementation]):
    """The implementations of a backend, each of whose results must lie within the derived bound of its inputs."""

    def __init__(self, name: str) -> None:
        self.inner = registry.get_backend(name).implementations
        self.calls: list[Call] = []

    def __getitem__(self, key: registry.OperationKey) -> registry.Implementation:
        return self.run

    def __iter__(self) -> Iterator[registry.OperationKey]:
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)

    def run(self, problem: registry.Problem, *inputs: Array, out: Any) -> None:
        operation = problem.operation
        self.inner[operation](problem, *inputs, out=out)
        wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in inputs]
        results, expected, terms = (
            as_results(one) for one in (out, operation.formula(problem, *wide), operation.error_bound(problem, *wide))
        )
        bounds = []
        for got, reference, of_result in zip(results, expected, terms, strict=True):
            comparator.check(got, np.asarray(reference), of_result, got.dtype.name)
            bounds.append(comparator.bound(got, np.asarray(reference), of_result))
        self.calls.append(Call(operation, inputs, results, tuple(bounds)))


def as_results(value: Any) -> tuple[Any, ...]:
    """Return one result, or several, as a tuple; terms are tuples, too."""
    return value if type(value) is tuple else (value,)


class Run:
    """A run of the digits network on one backend, step by step, and what is known of the errors of the last step."""

    def __init__(self, name: str, optimizer: str) -> None:
        self.checked = Checked(name)
        self.trainer = Trainer(Settings(optimizer), registry.Backend("checked", self.checked))
        self.steps: tuple[Step, ...] = self.trainer.network.training.program.steps

    def step(self, number: int) -> None:
        """Make a step, after noting the parameters that it begins with."""
        part = slice(BATCH * number, BATCH * (number + 1))
        labels = MPSCNNLossLabels((1, 1, 1), self.trainer.learn.one_hot()[part])
        network = self.trainer.network
        self.parameters = {name: dict(source.arrays()) for name, source in network.sources.items()}
        self.checked.calls.clear()
        self.result: RunResult = network.training.run(
            [self.trainer.learn.images[part]], [labels], dropout_sequence=number, keep_all=True
        )
        self.loss = float(self.result.loss["loss"].sum(dtype=np.float64))

    def made(self, image: Array) -> Call:
        """Return the call that made an image."""
        return next(call for call in self.checked.calls if call.results[0] is image)

    def reading(self, method: str, image: Array) -> Call | None:
        """Return the call of a method that read an image."""
        found = (call for call in self.checked.calls if call.operation.method == method)
        return next((call for call in found if any(one is image for one in call.inputs)), None)

    def forward(self) -> Iterator[tuple[Step, Array, Array, Array]]:
        """Yield each forward step but the loss, its (first) source, its result, and dL/dresult."""
        images, gradient_of = self.result.all_images, self.trainer.network.made.gradient_image
        for step in self.steps:
            if step.kind == "forward" and step.node.name != "loss":
                source, result = step.node.source_images[0], step.node.result_image
                yield step, images[source], images[result], images[gradient_of(result)].astype(np.float64)

    def of_roundings(self) -> float:
        """Return how far the loss may be off for given parameters."""
        total = sum(call.bounds[0].sum() for call in self.checked.calls if str(call.operation) == "Loss.forward")
        assert total > 0
        for _, source, result, gradient in self.forward():
            total += (np.abs(gradient) * self.made(result).bounds[0]).sum()
            statistics = self.reading("statistics", source)
            if statistics is not None:
                total += of_statistics(statistics, source.astype(np.float64), self.made(result), gradient)
        return float(total)

    def of_parameters(self, other: Run) -> float:
        """Return by how much the loss may differ because the parameters do."""
        total = 0.0
        for step, source, result, _ in self.forward():
            mine, theirs = (run.parameters.get(step.node.name) for run in (self, other))
            if mine is None or theirs is None:
                continue
            if "gamma" in mine:
                call = self.reading("statistics_gradient", source)
                names: tuple[str, ...] = ("beta", "gamma")
            else:
                call = self.reading("gradient_weights", source)
                names = ("weights", "biases")
            assert call is not None, result
            for name, gradient in zip(names, call.results, strict=True):
                difference = mine[name].astype(np.float64).ravel() - theirs[name].ravel()
                total += (np.abs(gradient.ravel().astype(np.float64)) * np.abs(difference)).sum()
        return float(total)

    def pieces(self) -> dict[str, Array]:
        """Return on which side of their kinks ReLU and maximum are."""
        found = {}
        for step, source, _, _ in self.forward():
            if step.node.name.startswith("relu"):
                found[step.node.name] = source > 0
            elif step.node.name == "largest":
                call = next(one for one in self.checked.calls if str(one.operation) == "PoolingMax.gradient")
                found["largest"] = call.results[0] != 0
        return found


def of_statistics(call: Call, x: Array, normalized: Call, g: Array) -> float:
    """Return how far the loss may be off because mean and variance are."""
    (mean_bound, m2_bound), pixels = call.bounds, x[..., 0].size
    _, mean, variance, gamma, _ = (one.astype(np.float64) for one in normalized.inputs)
    root = 1 / np.sqrt(variance + 1e-5)
    of_mean = np.abs(gamma * root * g.sum((0, 1, 2)))
    of_variance = np.abs(0.5 * gamma * root**3 * (g * (x - mean)).sum((0, 1, 2)))
    variance_bound = m2_bound / pixels + np.spacing(variance.astype(np.float32)).astype(np.float64) / 2
    return float((of_mean * mean_bound + of_variance * variance_bound).sum())


@pytest.mark.parametrize(
    ("backend", "optimizer"), few([("cpu", "adam"), ("cpu", "sgd"), ("metal:clang", "adam"), ("metal:clang", "sgd")], 1)
)
def test_the_loss_curves_of_the_first_steps_agree_within_the_derived_bound(backend: str, optimizer: str) -> None:
    reason = registry.get_backend(backend).unavailable()
    if reason:
        pytest.skip(reason)
    exact, other = Run("reference", optimizer), Run(backend, optimizer)
    counts: Counter[str] = Counter()
    for number in range(5):
        for run in (exact, other):
            run.step(number)
        counts.update(str(call.operation) for call in other.checked.calls)
        for name, side in exact.pieces().items():  # else the loss is not smooth between the two
            assert np.array_equal(side, other.pieces()[name]), name
        bound = exact.of_roundings() + other.of_roundings() + exact.of_parameters(other)
        assert abs(exact.loss - other.loss) <= SECOND_ORDER * bound
    assert len(counts) >= 20
    assert counts["Convolution.forward"] == counts["Convolution.gradient_weights"] == 10
    assert counts[f"{'Adam' if optimizer == 'adam' else 'StochasticGradientDescent'}.step"] == 5
