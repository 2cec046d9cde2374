"""How ONNX computes kernels with windows: by its own attributes, or without padding on a grown image."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref import PoolingAverage, frameworks
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref.frameworks import Selection, Words
from mpsref.frameworks.words import OnnxStyle
from mpsref.operations import Problem, planned
from mpsref_onnxruntime.run import evaluate

STYLES: tuple[OnnxStyle, ...] = ("ceil_mode", "pads", "auto_pad")


class Way(NamedTuple):
    """Attributes of an operator, and the image that it reads."""

    words: Words
    image: Selection | None

    def source(self, x: Array) -> Array:
        """Return the image that the operator reads."""
        return x if self.image is None else self.image.copy(x)


@planned
def way(problem: Problem) -> Way:
    """Return how ONNX computes a problem with windows."""
    # One of the ways in which a model may have it, the same one in every run.
    dilated = tuple(getattr(problem.spec, "dilations", (1, 1))) != (1, 1)  # then ONNX Runtime has no auto_pad
    style = "pads" if dilated else STYLES[sum(problem.source_shape) % 3]  # type: ignore[attr-defined]
    try:
        return Way(frameworks.onnx(problem, style), None)
    except UnsupportedError:
        inner = frameworks.without_padding(problem)
        if isinstance(problem.spec, PoolingAverage):
            given, whole = (np.multiply.outer(*one.reciprocals()) for one in (problem, inner))  # type: ignore[attr-defined]
            if not np.array_equal(given, whole):
                raise
        return Way(frameworks.onnx(inner), frameworks.grown(problem))


def pooled(operator: str, problem: Problem, x: Array, out: Array, **attributes: Any) -> None:
    """Compute pooling by an operator."""
    found = way(problem)
    keywords = found.words.keywords | attributes
    out[...] = found.words.crop(evaluate(problem, lambda graph, x: graph(operator, x, **keywords), found.source(x)))
