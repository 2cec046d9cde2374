"""How PyTorch computes kernels with windows: by its own arguments, or without padding on a grown image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mpsref import frameworks
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref.operations import Problem, planned
from mpsref.registry import ImageProblem
from mpsref_torch.run import Torch, like


class Way(NamedTuple):
    """Arguments of PyTorch's function, and what becomes of images before and after it."""

    keywords: dict[str, Any]
    copy: Callable[[Array], Array]
    """Of the source image: what PyTorch gets."""
    adjoint: Callable[[Array], Array]
    """Of the gradient for that: the gradient for the source image."""
    crop: Callable[[Array], Array]
    extend: Callable[[Array], Array]
    grown: bool


@planned
def way(problem: Problem) -> Way:
    """Return how PyTorch computes a problem with windows."""
    try:
        words = frameworks.pytorch(problem)
        return Way(words.keywords, _same, _same, words.crop, words.extend, False)
    except UnsupportedError:
        image, words = frameworks.grown(problem), frameworks.pytorch(frameworks.without_padding(problem))
        return Way(words.keywords, image.copy, image.adjoint, words.crop, words.extend, True)


def _same(image: Array) -> Array:
    return image


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
