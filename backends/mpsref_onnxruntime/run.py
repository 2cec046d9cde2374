"""Build models of ONNX and run them in ONNX Runtime, on images (N, H, W, C)."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError, install
from mpsref.frameworks import call_text
from mpsref.frameworks.adapter import CompilingFramework, Function, Tensor

OLDEST = 21
"""The first opset with GroupNormalization of a scale for each channel."""


class OnnxRuntime(CompilingFramework):
    """ONNX Runtime on the CPU: a function of :class:`Symbol` objects describes a model."""

    title = "ONNX Runtime"
    package = "onnxruntime"
    axes = "NCHW"
    optional_bias = True
    refusals = "NOT_IMPLEMENTED", "_ > 0.0f was false", "padding values must be non-negative"

    def unavailable(self) -> str | None:
        """Return ``None``, or the reason why the framework does not run here, and what to install."""
        for package in ("onnxruntime", "onnx"):
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed: {install('onnxruntime')}"
        return None

    def described(self) -> str:
        """Return device and versions, which tell the opset."""
        return f"{super().described()}, ONNX {metadata.version('onnx')}"

    def tensor(self, array: Array) -> Tensor:
        """Return an array with the channels of an image on axis 1."""
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2) if array.ndim == 4 else array)

    def array(self, tensor: Tensor) -> Array:
        """Return a result with the channels of an image last."""
        return np.asarray(tensor.transpose(0, 2, 3, 1) if tensor.ndim == 4 else tensor)

    def run(self, function: Function, *arrays: Array) -> Array:
        """Return the result of the model that ``function(*symbols)`` describes."""
        given = {f"x{k}": self.tensor(array) for k, array in enumerate(arrays)}
        with self._refusing():
            call_text.note_text(lambda: _written(function, given))
            session = self.kept(lambda: _session(function, given, _opset()), function)
            (result,) = session.run(None, given)
        return self.array(result)

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        """Raise ``UnsupportedError``: sessions compute forward passes."""
        raise UnsupportedError("ONNX Runtime computes forward passes alone")


Input: TypeAlias = "Symbol | Array | float | tuple[int, ...] | None"
"""An input of a node: constants are arrays, numbers of float32 and vectors of integers; ``None`` is left out."""


class Symbol:
    """A tensor of a model, by its name, with the operators and methods of tensors."""

    def __init__(self, graph: Graph, name: str) -> None:
        """Store the model and the name."""
        self.graph, self.name = graph, name

    def __getitem__(self, index: tuple[slice, ...]) -> Symbol:
        """Return a part, with slices of step 1."""
        cut = {axis: one for axis, one in enumerate(index) if one != slice(None)}
        begins = tuple(one.start or 0 for one in cut.values())
        ends = tuple(np.iinfo(np.int64).max if one.stop is None else one.stop for one in cut.values())
        return node("Slice", self, begins, ends, tuple(cut)) if cut else self

    def reshape(self, *shape: int) -> Symbol:
        """Return the same elements in another shape."""
        return node("Reshape", self, shape)

    def as_floats(self) -> Symbol:
        """Return integers or truth values as numbers of float32."""
        from onnx import TensorProto

        return node("Cast", self, to=TensorProto.FLOAT)

    @staticmethod
    def _operator(name: str) -> Callable[[Symbol, Input], Symbol]:
        return lambda self, other: node(name, self, other)

    __add__ = __radd__ = _operator("Add")
    __sub__ = _operator("Sub")
    __rsub__ = lambda self, other: node("Sub", other, self)  # noqa: E731
    __mul__ = __rmul__ = _operator("Mul")
    __truediv__ = _operator("Div")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("Less", "LessOrEqual", "Greater", "GreaterOrEqual"))


class Graph:
    """The nodes and constants of a model."""

    def __init__(self) -> None:
        """Start without nodes."""
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def name(self, one: Input) -> str:
        """Return the name of an input, which is added if it is a constant."""
        from onnx import numpy_helper

        if one is None or isinstance(one, Symbol):
            return one.name if one else ""
        name = f"constant{len(self.constants)}"
        array = np.asarray(one, np.int64 if isinstance(one, tuple) else np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name


def node(operator: str, *inputs: Input, **attributes: Any) -> Symbol:
    """Add a node to the model of its inputs; return its result."""
    from onnx import helper

    graph = next(one.graph for one in inputs if isinstance(one, Symbol))
    result = f"{operator}{len(graph.nodes)}"
    given = {name: int(value) if isinstance(value, bool) else value for name, value in attributes.items()}
    graph.nodes.append(helper.make_node(operator, [graph.name(one) for one in inputs], [result], **given))
    return Symbol(graph, result)


def _model(function: Function, given: Mapping[str, Array], opset: int) -> Any:
    """Return the model that a function of symbols of these names and shapes describes."""
    from onnx import helper

    graph = Graph()
    result = function(*(Symbol(graph, name) for name in given)).name
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in given.items()}
    inputs = [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in given.items()]
    output = helper.make_tensor_value_info(result, helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)), None)
    whole = helper.make_graph(graph.nodes, "problem", inputs, [output], graph.constants)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(whole, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))


def _session(function: Function, given: Mapping[str, Array], opset: int) -> Any:
    """Return a session of a model."""
    import onnxruntime

    model = _model(function, given, opset)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # a session with threads takes 6 ms to start, one without 0.2 ms
    options.log_severity_level = 4  # errors are raised
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _written(function: Function, given: Mapping[str, Array]) -> str:
    """Return what runs a model, which is in the text form of ONNX."""
    from onnx import printer

    model = _model(function, given, _opset())
    if any(math.prod(one.dims) > call_text.WRITTEN for one in model.graph.initializer):
        return ""
    lines = ["import numpy as np, onnx.parser, onnxruntime"]
    for name, array in given.items():
        dtype = f"np.{array.dtype.name}"
        syntax = call_text.Syntax(
            "", f"np.array({{}}, {dtype})", f"np.random.standard_normal({{}}).astype({dtype})", ""
        )
        lines.append(f"{name} = {call_text.values(syntax, array)}")
    lines.append(f'model = onnx.parser.parse_model("""{printer.to_text(model)}""").SerializeToString()')
    names = ", ".join(f'"{name}": {name}' for name in given)
    return "\n".join([*lines, f"onnxruntime.InferenceSession(model).run(None, {{{names}}})[0]"])


@functools.cache
def _opset() -> int:
    """Return the newest opset that ONNX and ONNX Runtime have."""
    from onnx import defs

    for opset in range(defs.onnx_opset_version(), OLDEST, -1):
        try:
            _session(lambda x: node("Relu", x), {"x": np.zeros(1, np.float32)}, opset)
        except Exception:  # the opset is under development
            continue
        return opset
    return OLDEST
