"""Build models of ONNX and run them in ONNX Runtime, on images (N, H, W, C)."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from importlib import metadata
from typing import Any, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError, install
from mpsref.operations import Problem, planned

Build: TypeAlias = Callable[..., str]
"""``build(graph, *names)`` adds nodes for the inputs of these names, and returns the name of the result."""

OLDEST = 21
"""The first opset with GroupNormalization of a scale for each channel."""

REFUSALS = "NOT_IMPLEMENTED", "_ > 0.0f was false"
"""Parts of the messages with which ONNX Runtime refuses a model; other errors are failures."""


def unavailable() -> str | None:
    """Return ``None``, or why ONNX Runtime does not run here."""
    for package in ("onnxruntime", "onnx"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed: {install('onnxruntime')}"
    return None


def described() -> str:
    """Return device and version."""
    return f"CPU, ONNX Runtime {metadata.version('onnxruntime')}, opset {_opset()}"


class Graph:
    """The nodes and constants of a model."""

    def __init__(self) -> None:
        """Start without nodes."""
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, operator: str, *inputs: str | Array, **attributes: Any) -> str:
        """Add a node; return the name of its result. Arrays become constants, "" is an input that is left out."""
        from onnx import helper

        names = [one if isinstance(one, str) else self._constant(one) for one in inputs]
        result = f"{operator}{len(self.nodes)}"
        given = {name: int(value) if isinstance(value, bool) else value for name, value in attributes.items()}
        self.nodes.append(helper.make_node(operator, names, [result], **given))
        return result

    def _constant(self, array: Array) -> str:
        from onnx import numpy_helper

        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name


def evaluate(problem: Problem, build: Build, *arrays: Array) -> Array:
    """Return the result of the model that ``build`` describes, kept with the problem; axis 3 of images is C."""
    given = {f"x{k}": _nchw(array) for k, array in enumerate(arrays)}
    sessions = _sessions(problem)
    key = build.__code__, tuple((array.shape, array.dtype) for array in given.values())
    if key not in sessions:
        graph = Graph()
        sessions[key] = _session(graph, build(graph, *given), given)
    (result,) = sessions[key].run(None, given)
    return np.asarray(result.transpose(0, 2, 3, 1) if result.ndim == 4 else result)


def floats(*values: float) -> Array:
    """Return a constant of float32: a scalar, or a vector of several values."""
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def integers(*values: int) -> Array:
    """Return a constant vector of integers, such as axes."""
    return np.array(values, np.int64)


def _nchw(array: Array) -> Array:
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2) if array.ndim == 4 else array)


@planned
def _sessions(problem: Problem) -> dict[Any, Any]:
    """Return the sessions of a problem."""
    return {}


def _session(graph: Graph, result: str, given: dict[str, Array], opset: int | None = None) -> Any:
    import onnxruntime
    from onnx import helper

    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in given.items()}
    inputs = [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in given.items()]
    output = helper.make_tensor_value_info(result, helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)), None)
    whole = helper.make_graph(graph.nodes, "problem", inputs, [output], graph.constants)
    opsets = [helper.make_opsetid("", opset or _opset())]
    model = helper.make_model(whole, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # a session with threads takes 6 ms to start, one without 0.2 ms
    options.log_severity_level = 4  # errors are raised
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the exceptions of ONNX Runtime have no common base
        if any(part in str(error) for part in REFUSALS):
            raise UnsupportedError(f"ONNX Runtime: {str(error).splitlines()[0]}") from error
        raise


@functools.cache
def _opset() -> int:
    """Return the newest opset that ONNX and ONNX Runtime have."""
    from onnx import defs

    for opset in range(defs.onnx_opset_version(), OLDEST, -1):
        graph = Graph()
        try:
            _session(graph, graph("Relu", "x"), {"x": np.zeros(1, np.float32)}, opset)
        except Exception:  # the opset is under development
            continue
        return opset
    return OLDEST
