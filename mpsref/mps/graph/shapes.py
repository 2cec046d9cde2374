"""Shape inference: every step is bound to its source shapes before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mpsref.arguments import arrays
from mpsref.arguments.arrays import Shape
from mpsref.errors import ShapeError
from mpsref.mps.graph.call import Bound, BoundState
from mpsref.mps.graph.nodes import MPSNNFilterNode
from mpsref.mps.graph.places import MPSNNImageNode
from mpsref.mps.graph.program import Program
from mpsref.mps.graph.step import Step
from mpsref.mps.graph.trainable import Parameters

__all__ = ["Shapes", "bind", "source_shapes"]


class Shapes(NamedTuple):
    """A program on inputs of known shapes."""

    images: Mapping[MPSNNImageNode, Shape]
    bound: Mapping[MPSNNFilterNode, Bound]
    sources: Mapping[MPSNNFilterNode, tuple[Shape, ...]]
    """The shapes of the source images of each node."""


def source_shapes(given: Mapping[MPSNNImageNode, Any]) -> dict[MPSNNImageNode, Shape]:
    """Check the shapes of the inputs: four axes each, and as many images in all."""
    shapes: dict[MPSNNImageNode, Shape] = {
        image: arrays.as_shape(f"shape of {image.name!r}", tuple(shape)) for image, shape in given.items()
    }
    if len({shape[0] for shape in shapes.values()}) > 1:
        listed = ", ".join(f"{image.name!r} {shape}" for image, shape in shapes.items())
        raise ShapeError(f"the inputs have different numbers of images: {listed}; N must be the same for all")
    return shapes


def bind(
    program: Program, given: Mapping[MPSNNImageNode, Shape], parameters: Mapping[MPSNNFilterNode, Parameters]
) -> Shapes:
    """Bind every step in order; raise ``ShapeError`` that names the step and its inputs where shapes do not fit."""
    known = dict(given)
    bound: dict[MPSNNFilterNode, Bound] = {}
    source: dict[MPSNNFilterNode, tuple[Shape, ...]] = {}
    for step in program.steps:
        node = step.node
        shapes = source[node] = tuple(known[image] for image in node.source_images)
        states = [
            BoundState(bound[state.producer], source[state.producer])
            for state in node.source_states
            if state.producer is not None
        ]
        try:
            bound[node] = step.kernel._bind(shapes, parameters.get(node), states)
        except ValueError as error:
            raise ShapeError(f"{_where(program, step, known)}: {error}") from error
        known[node.result_image] = bound[node].shape
    return Shapes(known, bound, source)


def _where(program: Program, step: Step, known: Mapping[MPSNNImageNode, Shape]) -> str:
    inputs = ", ".join(f"{image.name} {known[image]}" for image in step.node.source_images)
    return f"step {step.number}, {type(step.node).__name__} {program.labels[step.node]!r} on {inputs}"
