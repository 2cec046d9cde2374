from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mpsref import ConvolutionTranspose, frameworks
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_onnxruntime.neuron import activated
from mpsref_onnxruntime.run import Graph, evaluate


def forward(problem: Any, x: Array, weights: Array, *biases: Array, out: Array) -> None:
    spec = problem.spec
    own = frameworks.weights_to(weights, "OIHW", spec.groups, transposed=True).transpose(0, 2, 3, 1)
    cropped: Callable[[Array], Array]
    try:
        words = frameworks.onnx(problem)
        keywords, cropped = words.keywords, words.crop
    except UnsupportedError:
        keywords = {"kernel_shape": spec.size, "strides": spec.strides, "group": spec.groups}
        cropped = partial(frameworks.unpadded(problem).copy, fill=biases[0] if biases else 0.0)
    y = cropped(evaluate(problem, lambda graph, *inputs: graph("ConvTranspose", *inputs, **keywords), x, own, *biases))
    if spec.neuron is not None:

        def neuron(graph: Graph, y: str) -> str:
            return activated(graph, spec.neuron, y)

        y = evaluate(problem, neuron, y)
    out[...] = y


IMPLEMENTATIONS = {(ConvolutionTranspose, "forward"): forward}
