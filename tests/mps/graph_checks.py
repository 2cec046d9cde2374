"""Checks of every graph: gradients, agreement of backends, sums of gradients, and the program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.mps import graph
from mpsref.mps.graph import MPSNNImageNode, RunResult, TrainingGraph, training_graph
from tests.mps.graph_plans import SEQUENCE, Plan, build

STEP = 1e-4
"""Step of central differences of fourth order: the error is 1e-16 times the fifth derivative, and rounding of 1e-12."""
SLOPE = 1e-8
"""Legal error of a gradient, of its norm plus 1: a hundred times the largest error of 150 random graphs, 1.1e-10."""
EACH = 1e-5
"""Legal error of one step in float32: 2**-24 times a few hundred operations; the largest seen is 9e-7."""
WHOLE = 1e-4
"""Legal error of a whole graph in float32: that of ten steps; the largest seen is 5e-6."""
NEAR = 2e-3
"""Minimum distance of the inputs of ReLU and max pooling from a kink, larger than the step of a difference."""


def names(node: Any) -> tuple[str, ...]:
    """The parameters of a node."""
    return ("weights", "biases") if isinstance(node, graph.MPSCNNConvolutionNode) else ("gamma", "beta")


class Trained:
    """A plan with its training graphs, compiled for the gradients of all inputs."""

    def __init__(self, plan: Plan, **words: Any) -> None:
        self.network = build(plan)
        self.made: list[TrainingGraph] = [
            training_graph(last, node_handler=lambda *_: None) for last in self.network.lasts
        ]
        results = [node.result_image for made in self.made for node in made.termini]
        self.losses = [last.result_image for last in self.network.lasts]
        self.compiled = graph.MPSNNGraph([*results, *self.losses], **words)

    @property
    def inputs(self) -> dict[MPSNNImageNode, Array]:
        """The inputs of the graph."""
        return {image: self.network.inputs[image] for image in self.compiled.source_images}

    def run(self, inputs: Mapping[MPSNNImageNode, Array] | None = None, **words: Any) -> RunResult:
        given = self.inputs if inputs is None else {image: inputs[image] for image in self.compiled.source_images}
        labels = {state: self.network.labels[state] for state in self.compiled.source_states}
        return self.compiled.run(given, labels, dropout_sequence=SEQUENCE, **words)

    def gradients(self, result: RunResult) -> dict[tuple[int, str], Array]:
        """Return the gradients of inputs and parameters: (number of the node, "" or name)."""
        position = {image: k for k, image in enumerate(self.compiled.program.result_images)}
        found: dict[tuple[int, str], Array] = {}
        for k, image in enumerate(self.network.inputs):
            for made in self.made:
                if image in made._totals:
                    part = result.images[position[made.gradient_image(image)]]
                    assert part is not None
                    found[k, ""] = found.get((k, ""), 0) + part
        for k, node in enumerate(self.network.weighted):
            state = result.result_states.get(node.result_state)
            for name in names(node):
                value = getattr(state, f"gradient_for_{name}", None)
                if value is not None:
                    value = value.sum(0) if value.ndim == 2 else value  # instance normalization has one an image
                    found[k, name] = value
        return found


class Objective:
    """The forward graph of a plan in float64: a number as a function of inputs and parameters."""

    def __init__(self, plan: Plan) -> None:
        self.network = build(plan, flags="always")
        self.compiled = graph.MPSNNGraph(self.network.outputs, format="float64", backend="reference")
        self.labels = {state: self.network.labels[state] for state in self.compiled.source_states}

    def value(self, key: tuple[int, str] | None = None, change: Array | float = 0.0) -> float:
        """Return the objective with one input or parameter changed."""
        inputs = {image: self.network.inputs[image] for image in self.compiled.source_images}
        before = self.compiled._compiled.arrays
        if key is not None:
            k, name = key
            if name:
                node = self.network.weighted[k]
                moved = np.asarray(before[node][name], np.float64) + change
                self.compiled._compiled.arrays = before | {node: {**before[node], name: moved}}
            else:
                image = list(self.network.inputs)[k]
                inputs[image] = inputs[image] + change
        try:
            result = self.compiled.run(inputs, self.labels, dropout_sequence=SEQUENCE)
        finally:
            self.compiled._compiled.arrays = before
        total = 0.0
        for last, image in zip(self.network.lasts, result.images, strict=True):
            values = result.loss[last.label] if last.kind == "loss" else image
            total += float(np.sum(values))
        return total

    def slope(self, key: tuple[int, str], direction: Array) -> float:
        """Return the derivative along a direction, by a central difference of fourth order."""
        one, two = (self.value(key, k * STEP * direction) - self.value(key, -k * STEP * direction) for k in (1, 2))
        return (8 * one - two) / (12 * STEP)


def smooth(plan: Plan) -> bool:
    """Return whether no input of ReLU or max pooling is near a kink, and no value is large."""
    trained = Trained(plan, format="float64", backend="reference")
    images = trained.run(keep_all=True).all_images
    for node in (step.node for step in trained.compiled.program.steps):
        x = images[node.source_images[0]]
        if isinstance(node, graph.MPSCNNNeuronReLUNode) and np.abs(x).min() < NEAR:
            return False
        if isinstance(node, graph.MPSCNNPoolingMaxNode):
            n, h, w, c = x.shape
            windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (1, 2)).reshape(n, h - 1, w - 1, c, 4)
            largest = np.sort(windows, axis=-1)
            if (largest[..., -1] - largest[..., -2]).min() < NEAR:
                return False
    return max(float(np.abs(image).max()) for image in images.values()) < 1e4


def check_gradients(plan: Plan) -> None:
    """Check that automatic gradients are central differences, and do not depend on earlier runs."""
    trained, objective = Trained(plan, format="float64", backend="reference"), Objective(plan)
    trained.run(trained.network.floats(7))
    found = trained.gradients(trained.run())
    reachable = {image for made in trained.made for image in made._totals}
    for k, image in enumerate(trained.network.inputs):
        assert ((k, "") in found) == (image in reachable)
    for k, node in enumerate(trained.network.weighted):
        assert ((k, names(node)[0]) in found) == (node.result_image in reachable)
    rng = np.random.default_rng(plan.seed)
    for key, gradient in found.items():
        for _ in range(2):
            direction = rng.normal(size=gradient.shape)
            direction /= np.linalg.norm(direction)
            expected, got = objective.slope(key, direction), float(np.sum(gradient * direction))
            scale = float(np.linalg.norm(gradient)) + 1
            assert abs(expected - got) <= SLOPE * scale, (key, expected, got)


def check_backends(plan: Plan, backends: list[str]) -> None:
    """Check that backends agree with the reference, in each step and over the whole graph."""
    exact = Trained(plan, format="float64", backend="reference")
    expected = exact.gradients(exact.run())
    for backend in backends:
        trained = Trained(plan, backend=backend)
        found = trained.gradients(trained.run())
        assert found.keys() == expected.keys()
        # Errors are relative to the largest gradient: those of biases before a batch normalization cancel to 0.
        largest = max(1.0, *(float(np.abs(gradient).max()) for gradient in expected.values()))
        for key, gradient in found.items():
            assert np.abs(gradient - expected[key]).max() <= WHOLE * largest, (backend, key)
        labels = {state: trained.network.labels[state] for state in trained.compiled.source_states}
        for row in trained.compiled.compare([backend], trained.inputs, labels):
            assert row.absolute <= EACH or row.relative <= EACH, row


def check_sums(plan: Plan) -> None:
    """Check that an image with k gradients has k - 1 additions, the last of which is the total."""
    network = build(plan)
    for last in network.lasts:
        made = training_graph(last, node_handler=lambda *_: None)
        arrived = Counter(node.forward_source for node in made.nodes if node.form == "gradient")
        if last.kind not in ("loss", "one"):
            arrived[last.result_image] += 1
        assert len(made.additions) == sum(count - 1 for count in arrived.values())
        for image, count in arrived.items():
            total = made.gradient_image(image).producer
            assert (total in made.additions) == (count > 1)


def check_program(plan: Plan) -> None:
    """Check the order of steps, that none is repeated, and that images are released after their last reader."""
    trained = Trained(plan)
    steps = trained.compiled.program.steps
    made: set[Any] = set(trained.compiled.source_images)
    finished: set[Any] = set()
    alive: set[Any] = set(made)
    kept = set(trained.compiled.program.result_images)
    for step in steps:
        assert step.node not in finished
        assert made.issuperset(step.node.source_images)
        assert alive.issuperset(step.pixels), step.node
        assert all(state.producer in finished for state in step.node.source_states if state.producer is not None)
        finished.add(step.node)
        made.add(step.node.result_image)
        alive.add(step.node.result_image)
        assert alive.issuperset(step.released)
        alive -= set(step.released)
        later = {image for other in steps[step.number + 1 :] for image in other.pixels}
        assert {image for image in alive if image.producer is not None} == (made & (later | kept)) - set(
            trained.compiled.source_images
        )
    assert [state.producer.label for state in trained.compiled.result_states] == [
        step.node.label for step in steps if step.node in trained.network.weighted
    ]
    # The program does not depend on the order in which nodes are constructed.
    assert Trained(plan).compiled.table() == trained.compiled.table()


def check(plan: Plan) -> None:
    """Run all checks of a plan except those of other backends."""
    check_sums(plan)
    check_program(plan)
    check_gradients(plan)
