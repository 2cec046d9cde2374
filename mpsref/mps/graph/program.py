"""The program of a graph: which nodes run, in which order, and what each step is for.

The order is a depth-first one from the results, so that a forward node comes before the gradient nodes that need its
state. What no needed result, no export and no training depends on is left out.

Source: ``MPSNNGraph.h`` [doc]; the order where Apple leaves it open [choice].
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from mpsref.errors import GraphError
from mpsref.mps.graph.nodes import (
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNTrainingStyle,
)
from mpsref.mps.graph.places import MPSNNImageNode, MPSNNStateNode
from mpsref.mps.graph.step import Step
from mpsref.mps.graph.trainable import TrainableGradientNode
from mpsref.mps.graph.training import label, post_order

__all__ = ["Program"]


class Program:
    """The steps for some results, in order; made once, never changed."""

    def __init__(self, result_images: Sequence[MPSNNImageNode], results_are_needed: Sequence[bool]) -> None:
        """Collect, label and prune; raises ``GraphError`` where nothing is left to compute."""
        self.result_images = tuple(result_images)
        self.results_are_needed = tuple(results_are_needed)
        roots = []
        for k, image in enumerate(result_images):
            if image.producer is None:
                raise GraphError(
                    f"result_images[{k}] ({image.name!r}) is made by no filter, so there is nothing to compute; pass "
                    "the result_image of a node"
                )
            roots.append(image.producer)
        collected = post_order(roots, _dependencies)
        label(collected)
        kept = self._kept(collected)
        if not kept:
            raise GraphError(
                "nothing is left to compute: no result is needed, nothing is exported and no gradient node trains; "
                "set results_are_needed, export_from_graph or training_style"
            )
        self.labels = _distinct([node for node in collected if node in kept])
        self.steps = tuple(self._steps([node for node in collected if node in kept]))
        self.forward_steps = tuple(step for step in self.steps if step.forward is step.node)
        """Those that have a state of their own."""
        self.updated_at_the_end = tuple(step for step in self.steps if step.updates is MPSNNTrainingStyle.CPU)
        nodes = [step.node for step in self.steps]
        images = dict.fromkeys(image for node in nodes for image in node.source_images)
        self.source_images = tuple(image for image in images if image.producer is None)
        """The inputs, in order of first use."""
        states = dict.fromkeys(state for node in nodes for state in node.source_states)
        self.source_states = tuple(state for state in states if state.producer is None)
        """The input states, such as labels, in order of first use."""
        results = (node.result_image for node in nodes)
        self.exported_images = tuple(image for image in results if image.export_from_graph)
        """The images with ``export_from_graph``, in program order."""
        self.intermediate_images = tuple(dict.fromkeys([*self.exported_images, *self.result_images[1:]]))
        """The exported images, then every result but the first that is not among them."""
        made = (state for node in nodes for state in node.result_states or ())
        self.result_states = tuple(state for state in made if state.export_from_graph)
        """The states with ``export_from_graph``, in program order."""
        for number, image in enumerate((i for i in self.source_images if i.label is None), start=1):
            image._number = number

    def _kept(self, collected: Sequence[MPSNNFilterNode]) -> set[MPSNNFilterNode]:
        required = [
            image.producer
            for image, needed in zip(self.result_images, self.results_are_needed, strict=True)
            if needed and image.producer
        ]
        for node in collected:
            exports = node.result_image.export_from_graph or any(s.export_from_graph for s in node.result_states or ())
            if exports or trains(node):
                required.append(node)
        return set(post_order(required, _dependencies))

    def _steps(self, nodes: Sequence[MPSNNFilterNode]) -> Iterator[Step]:
        kept = {image for image, needed in zip(self.result_images, self.results_are_needed, strict=True) if needed}
        kept |= {node.result_image for node in nodes if node.result_image.export_from_graph}
        pixels = {node: tuple(i for i in node.source_images if reads_pixels(node, i)) for node in nodes}
        last_reader = {image: node for node in nodes for image in pixels[node]}
        last_gradient = {node.forward: node for node in nodes if isinstance(node, MPSNNGradientFilterNode)}
        styles = {node.forward: node.training_style for node in nodes if trains(node)}
        read = {image for node in nodes for image in node.source_images}
        states = {state for node in nodes for state in node.source_states}
        for number, node in enumerate(nodes):
            result = node.result_image
            released = [i for i in dict.fromkeys(node.source_images) if last_reader.get(i) is node and i not in kept]
            if result in read and result not in kept and result not in last_reader:
                released.append(result)  # only its size is asked for
            updates = MPSNNTrainingStyle.NONE
            gradients = node in last_gradient
            if isinstance(node, MPSNNGradientFilterNode):
                exported = any(state.export_from_graph for state in node.forward.result_states or ())
                gradients = trains(node) or exported
                if last_gradient[node.forward] is node:
                    updates = styles.get(node.forward, updates)
            yield Step(
                number,
                node,
                node.forward if isinstance(node, MPSNNGradientFilterNode) else node,
                copy.copy(node),
                result_is_needed=result in read or result in kept,
                result_is_kept=result in kept,
                state_is_read=any(state in states for state in node.result_states or ()),
                trains=gradients,
                updates=updates,
                pixels=pixels[node],
                released=tuple(released),
            )

    def read_count(self, place: MPSNNImageNode | MPSNNStateNode) -> int:
        """Return how many arguments of steps are this image or state."""
        places = ([*step.node.source_images, *step.node.source_states] for step in self.steps)
        return sum(each.count(place) for each in places)


def _dependencies(node: MPSNNFilterNode) -> list[MPSNNFilterNode | None]:
    return [place.producer for place in (*node.source_images, *node.source_states)]


def trains(node: MPSNNFilterNode) -> TypeGuard[TrainableGradientNode]:
    """Tell whether ``node`` is a gradient node that updates parameters."""
    return isinstance(node, TrainableGradientNode) and node.training_style is not MPSNNTrainingStyle.NONE


def reads_pixels(node: MPSNNFilterNode, image: MPSNNImageNode) -> bool:
    """Tell whether a step reads the pixels of ``image``; some gradient nodes need only the size of the forward one."""
    if not isinstance(node, MPSNNGradientFilterNode) or node.reads_pixels:
        return True
    return image is node.source_gradient


def _distinct(nodes: Sequence[MPSNNFilterNode]) -> dict[MPSNNFilterNode, str]:
    """Return the labels; equal ones get ``#2``, ``#3``, ..."""
    met: Counter[str] = Counter()
    labels = {}
    for node in nodes:
        met[node.name] += 1
        labels[node] = node.name if met[node.name] == 1 else f"{node.name}#{met[node.name]}"
    return labels
