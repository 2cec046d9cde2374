"""Graphs of MPS: nodes, automatic training graphs, and compiled graphs that run on any backend.

>>> import numpy as np
>>> from mpsref.mps import graph
>>> x = graph.MPSNNImageNode("x")
>>> relu = graph.MPSCNNNeuronReLUNode(x, a=0.5)
>>> start = graph.MPSNNInitialGradientNode(relu.result_image)
>>> gradient = graph.training_graph(start).gradient_image(x)
>>> graph.MPSNNGraph([relu.result_image, gradient]).run([np.array([[[[-2.0, 3.0]]]])]).images
(array([[[[-1.,  3.]]]], dtype=float32), array([[[[0.5, 1. ]]]], dtype=float32))

Source: ``MPSNNGraphNodes.h``, ``MPSNNGraph.h`` [doc].
"""

import ast
import importlib
import pathlib
from typing import Any

from anymetal.fork_safe import importing
from mpsref.arguments.text import no_such_name

_MODULES = {
    alias.name: "." * node.level + (node.module or "")
    for node in ast.parse(pathlib.Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""The module of each name, from the stub; lazy_loader imports from within one package only."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise no_such_name(__name__, name, __name__.rpartition(".")[0])
    with importing:
        value = globals()[name] = getattr(importlib.import_module(_MODULES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return __all__
