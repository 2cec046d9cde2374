"""How PyTorch computes kernels with windows: by its own arguments, or without padding on a grown image."""

from __future__ import annotations

from typing import Any

from mpsref import frameworks
from mpsref.arguments.arrays import Array
from mpsref.frameworks import Way
from mpsref.operations import Problem, planned
from mpsref.registry import ImageProblem
from mpsref_torch.run import Torch, like


@planned
def way(problem: Problem) -> Way:
    """Return how PyTorch computes a problem with windows."""
    return frameworks.way(problem, frameworks.pytorch)


def pooled(torch: Torch, problem: Any, function: Any, x: Array, out: Array) -> None:
    """Compute forward pooling."""
    found = way(problem)
    keywords = found.keywords
    out[...] = found.crop(torch(lambda x: function(x, **keywords), found.copy(x)))


def pooling_gradient(torch: Torch, problem: Any, function: Any, g: Array, x: Array | None, out: Array) -> None:
    """Compute the gradient of pooling; without ``x`` of an image in the order in memory of ``g``."""
    simple = frameworks.canonical(problem)
    if simple is None:
        out[...] = 0
        return
    found = way(simple)
    keywords = found.keywords
    source = found.copy(like(g, problem.source_shape) if x is None else x)
    g = found.extend(frameworks.counted(problem, g))
    out[...] = problem.place(found.adjoint(torch.gradient(lambda x: function(x, **keywords), g, source)))


def biases_of(problem: ImageProblem, biases: tuple[Array, ...]) -> Array | float:
    """Return what a result is where no tap reaches."""
    return biases[0] if biases else 0.0
