"""Mutants of the construction and execution of graphs, each of which the checks detect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpsref.mps import graph
from mpsref.mps.graph import training
from mpsref.mps.graph.compile import Program
from mpsref.mps.graph.execute import Execution
from tests.mps.graph_checks import check
from tests.mps.graph_plans import Action, Plan

PLANS = (
    # x is read three times; a difference, a product, and a concatenation of two widths
    Plan((Action("tanh", 1), Action("sub", 0, 2), Action("mul", 0, 3), Action("cat", 0, 4), Action("softmax"))),
    # residual: conv, bn, add
    Plan(
        (Action("conv", 1), Action("bn"), Action("relu"), Action("conv"), Action("bn"), Action("add", 0, 2)),
        (("softmaxcrossentropy", 0), ("meansquarederror", 1)),
        seed=1,
    ),
    # masks, pools and sizes
    Plan((Action("drop", 1), Action("pavg"), Action("near"), Action("twice"), Action("logsoftmax")), (("forward", 0),)),
)

Patch = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Patch] = {}


def mutant(patch: Patch) -> Patch:
    """Register a mutant by its name."""
    MUTANTS[patch.__name__.replace("_", " ")] = patch
    return patch


def changed(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method by ``change(original, self, *arguments)``."""
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **words: change(original, *args, **words))


def steps_changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[list[Any]], Any]) -> None:
    changed(monkeypatch, Program, "_steps", lambda original, *args: iter(change(list(original(*args)))))


# --- construction -------------------------------------------------------------------------------------------------


@mutant
def gradients_of_a_fan_out_are_not_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(original: Any, self: Any, image: Any) -> Any:
        self.arrived[image] = self.arrived.get(image, [])[:1]
        return original(self, image)

    changed(monkeypatch, training._Builder, "_total", first)


@mutant
def only_two_of_three_gradients_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    def two(original: Any, self: Any, image: Any) -> Any:
        self.arrived[image] = self.arrived.get(image, [])[:2]
        return original(self, image)

    changed(monkeypatch, training._Builder, "_total", two)


@mutant
def an_addition_adds_one_gradient_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(left: Any, right: Any, **words: Any) -> Any:
        return graph.MPSNNAdditionNode(right, right, **words)

    monkeypatch.setattr(training, "graph", SimpleNamespace(MPSNNAdditionNode=twice))


@mutant
def a_gradient_goes_on_before_all_have_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong_order(roots: Any, producers: Any) -> list[Any]:
        order = original(roots, producers)
        return [*reversed(order[:-1]), order[-1]] if len(order) > 2 else order

    module = vars(training)
    original = module["post_order"]
    monkeypatch.setitem(module, "post_order", wrong_order)


@mutant
def the_softmax_gradient_reads_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient(self: Any, g: Any, index: int) -> Any:
        return self.gradient_class(g, self.source_images[0], self._state)

    for kind in (graph.MPSCNNSoftMaxNode, graph.MPSCNNLogSoftMaxNode):
        monkeypatch.setattr(kind, "_gradient_node", gradient)


@mutant
def a_product_reads_its_own_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(original: Any, self: Any, g: Any, index: int) -> Any:
        node = original(self, g, index)
        node._source_images = (g, self.source_images[index])
        return node

    changed(monkeypatch, graph.MPSNNMultiplicationNode, "_gradient_node", own)


@mutant
def operands_exchange_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def exchanged(original: Any, self: Any, g: Any, index: int) -> Any:
        node = original(self, g, 1 - index)
        node._source_index = index
        return node

    changed(monkeypatch, graph.MPSNNBinaryArithmeticNode, "_gradient_node", exchanged)


@mutant
def the_second_operand_of_a_difference_keeps_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    def positive(original: Any, self: Any, g: Any, index: int) -> Any:
        node = original(self, g, index)
        node.primary_scale = abs(node.primary_scale)
        return node

    changed(monkeypatch, graph.MPSNNSubtractionNode, "_gradient_node", positive)


@mutant
def slices_of_a_concatenation_in_the_wrong_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(original: Any, self: Any, call: Any, *images: Any) -> Any:
        shapes = tuple(reversed(call.forward_shapes))
        node = replace_index(self, len(shapes) - 1 - self.source_index)
        return original(node, replace(call, forward_shapes=shapes), *images)

    def replace_index(node: Any, index: int) -> Any:
        twin = object.__new__(type(node))
        vars(twin).update(vars(node) | {"_source_index": index})
        return twin

    changed(monkeypatch, graph.MPSNNConcatenationGradientNode, "_compute", other)


@mutant
def the_initial_gradient_is_not_one(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(
        monkeypatch,
        graph.MPSNNInitialGradientNode,
        "_compute",
        lambda original, self, call, *images: original(self, call, *images) / np.prod(images[0].shape[1:]),
    )


# --- the program --------------------------------------------------------------------------------------------------


@mutant
def an_image_is_released_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(steps: list[Any]) -> list[Any]:
        released = [step.released for step in steps[1:]] + [()]
        return [replace(step, released=images) for step, images in zip(steps, released, strict=True)]

    steps_changed(monkeypatch, early)


@mutant
def images_are_never_released(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_changed(monkeypatch, lambda steps: [replace(step, released=()) for step in steps])


@mutant
def a_step_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_changed(monkeypatch, lambda steps: [*steps, replace(steps[-1], number=len(steps))])


@mutant
def a_gradient_step_runs_before_its_forward_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_changed(monkeypatch, lambda steps: [replace(s, number=k) for k, s in enumerate([steps[-1], *steps[:-1]])])


@mutant
def a_normalization_is_left_in_inference_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_changed(
        monkeypatch,
        lambda steps: [replace(s, trains=s.trains and s.node.form == "gradient") for s in steps],
    )


# --- execution ----------------------------------------------------------------------------------------------------


@mutant
def the_sources_of_a_difference_are_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(
        monkeypatch,
        graph.MPSNNBinaryArithmeticNode,
        "_compute",
        lambda original, self, call, x, y: (
            original(self, call, y, x) if self.kind == "sub" and call.trains else original(self, call, x, y)
        ),
    )


@mutant
def a_gradient_step_has_the_state_of_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(original: Any, self: Any, step: Any, backend: Any, state: Any) -> Any:
        alike = [s.node for s in self.program.steps if type(s.node) is type(step.forward)]
        wrong = self.states[alike[0]] if step.node is not step.forward else state
        return original(self, step, backend, wrong)

    changed(monkeypatch, Execution, "_call", other)


@mutant
def statistics_of_the_previous_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[Any, Any] = {}

    def stale(original: Any, self: Any, call: Any, *images: Any) -> Any:
        if call.trains:
            spec = call.spec
            known.setdefault(self.label, spec.statistics(images[0], backend=call.backend))
            call.state["statistics"] = statistics = known[self.label]
            scale = call.parameters["gamma"], call.parameters["beta"]
            return spec.forward(images[0], statistics.mean, statistics.variance, *scale, backend=call.backend)
        return original(self, call, *images)

    changed(monkeypatch, graph.MPSCNNBatchNormalizationNode, "_compute", stale)


@mutant
def statistics_are_taken_for_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    def constant(original: Any, self: Any, call: Any, *images: Any) -> Any:
        statistics, known = call.state["statistics"], call.parameters
        original(self, call, *images)
        scale = known["gamma"], known["beta"]
        return call.spec.gradient(*images, statistics.mean, statistics.variance, *scale, backend=call.backend)

    changed(monkeypatch, graph.MPSCNNBatchNormalizationGradientNode, "_compute", constant)


@mutant
def the_mask_is_drawn_again_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(original: Any, self: Any, call: Any, g: Any) -> Any:
        mask = self.function.mask(g.shape, call.sequence + 1, backend=call.backend)
        return self.function.gradient(g, mask, backend=call.backend)

    changed(monkeypatch, graph.MPSCNNDropoutGradientNode, "_compute", again)


@mutant
def the_second_loss_overwrites_gradients_of_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (graph.MPSCNNConvolutionGradientNode, graph.MPSCNNBatchNormalizationGradientNode):
        last = lambda state, name, gradients: state.update({name: gradients})  # noqa: E731
        monkeypatch.setattr(sys.modules[kind.__module__], "accumulate", last)


@mutant
def gradients_of_parameters_outlive_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before: dict[Any, Any] = {}

    def kept(original: Any, self: Any, step: Any, backend: Any, state: Any) -> Any:
        if step.trains and isinstance(step.node, graph.MPSCNNConvolutionGradientNode) and step.node in before:
            state.setdefault("gradients", before[step.node])
        call = original(self, step, backend, state)
        before[step.node] = state.get("gradients")
        return call

    def note(original: Any, self: Any, step: Any) -> Any:
        result = original(self, step)
        before[step.node] = self.states[step.forward].get("gradients")
        return result

    changed(monkeypatch, Execution, "_call", kept)
    changed(monkeypatch, Execution, "_step", note)


@mutant
def weights_of_the_gradient_are_those_of_another_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(original: Any, self: Any, call: Any, *images: Any) -> Any:
        weights = np.roll(call.parameters["weights"], 1, axis=0)
        return original(self, replace(call, parameters={**call.parameters, "weights": weights}), *images)

    changed(monkeypatch, graph.MPSCNNConvolutionGradientNode, "_compute", other)


@mutant
def a_gradient_step_reads_the_wrong_forward_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(original: Any, self: Any, step: Any) -> list[Any]:
        arrays = original(self, step)
        if isinstance(step.node, graph.MPSNNGradientFilterNode) and len(arrays) > 1:
            arrays[1] = arrays[1][::-1]
        return arrays

    changed(monkeypatch, Execution, "_inputs", shifted)


def test_without_a_mutant_the_checks_pass() -> None:
    for plan in PLANS:
        check(plan)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(map(fails, PLANS)), f"{name}: no check noticed"


def fails(plan: Any) -> bool:
    try:
        check(plan)
    except (AssertionError, KeyError, ValueError):  # a failed check, or a failed run
        return True
    return False
