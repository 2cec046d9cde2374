"""The checks of graphs on fixed plans, and faults of graphs that they notice: order, lifetimes, wiring, modes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

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


def changed(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method by ``change(original, self, *arguments)``."""
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **words: change(original, *args, **words))


def first(count: int) -> Callable[..., Any]:
    """Sum the first gradients alone that have arrived at an image."""

    def total(original: Any, self: Any, image: Any) -> Any:
        self.arrived[image] = self.arrived.get(image, [])[:count]
        return original(self, image)

    return total


def exchanged(original: Any, self: Any, g: Any, index: int) -> Any:
    node = original(self, g, 1 - index)
    node._source_index = index
    return node


def other_state(original: Any, self: Any, step: Any, backend: Any, state: Any) -> Any:
    alike = [s.node for s in self.program.steps if type(s.node) is type(step.forward)]
    return original(self, step, backend, self.states[alike[0]] if step.node is not step.forward else state)


def other_image(original: Any, self: Any, step: Any) -> list[Any]:
    arrays: list[Any] = original(self, step)
    if isinstance(step.node, graph.MPSNNGradientFilterNode) and len(arrays) > 1:
        arrays[1] = arrays[1][::-1]
    return arrays


def steps(change: Callable[[list[Any]], list[Any]]) -> tuple[Any, str, Callable[..., Any]]:
    return Program, "_steps", lambda original, *args: iter(change(list(original(*args))))


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "gradients of a fan out are not summed": (training._Builder, "_total", first(1)),
    "two of three gradients are summed": (training._Builder, "_total", first(2)),
    "operands exchange their gradients": (graph.MPSNNBinaryArithmeticNode, "_gradient_node", exchanged),
    "an image is released too early": steps(
        lambda all_: [replace(a, released=b.released) for a, b in pairwise([*all_, replace(all_[-1], released=())])]
    ),
    "images are never released": steps(lambda all_: [replace(step, released=()) for step in all_]),
    "a step comes twice": steps(lambda all_: [*all_, replace(all_[-1], number=len(all_))]),
    "a gradient step runs before its forward step": steps(
        lambda all_: [replace(step, number=k) for k, step in enumerate([all_[-1], *all_[:-1]])]
    ),
    "a normalization is left in inference mode": steps(
        lambda all_: [replace(step, trains=step.trains and step.node.form == "gradient") for step in all_]
    ),
    "a gradient step has the state of another node": (Execution, "_call", other_state),
    "a gradient step reads the wrong forward image": (Execution, "_inputs", other_image),
    "the mask is drawn again in the backward pass": (
        graph.MPSCNNDropoutGradientNode,
        "_compute",
        lambda original, self, call, g: self.function.gradient(g, self.function.mask(g.shape, call.sequence + 1)),
    ),
}


def test_without_a_mutant_the_checks_pass() -> None:
    for plan in PLANS:
        check(plan)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, *MUTANTS[name])
    assert any(map(fails, PLANS)), f"{name}: no check noticed"


def fails(plan: Any) -> bool:
    try:
        check(plan)
    except (AssertionError, KeyError, ValueError):  # a failed check, or a failed run
        return True
    return False
