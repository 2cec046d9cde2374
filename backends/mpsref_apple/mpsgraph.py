"""The functions of :mod:`mpsref.mpsgraph`, computed by Apple's MPSGraph through PyObjC.

A call makes a graph with one operation. Tensors are placeholders, whose data are Metal buffers; small vectors of
integers and single numbers, which decide shapes or are parameters, are constants. ``mpsgraph.json`` has the types of
arguments, from the metadata of PyObjC.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from importlib import resources
from typing import Any

import numpy as np

from mpsref import mpsgraph
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref.mpsgraph.descriptors import member
from mpsref.mpsgraph.graph import FUNCTIONS
from mpsref_apple.runtime import SHARED, Object, Runtime, in_use

DTYPES = {"float16": "MPSDataTypeFloat16", "float32": "MPSDataTypeFloat32", "int32": "MPSDataTypeInt32"}

ORDER = {"variance_of_tensor": ("tensor", "mean", "axes")}
"""The parameters in the order of the selector, where this is another one."""

PROPERTIES = {"MPSGraphPooling2DOpDescriptor": ("ceil_mode", "include_zero_pad_to_average", "return_indices_mode")}
"""What the factory of a descriptor does not take."""


@functools.cache
def names() -> dict[str, Any]:
    """Return the classes with the types of their methods, and the enumerations, of MPSGraph."""
    found: dict[str, Any] = json.loads(resources.files(__package__).joinpath("mpsgraph.json").read_text("utf-8"))
    return found


def camel(name: str) -> str:
    """Return the name of a property in Apple's spelling."""
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def parameters_of(name: str) -> tuple[str, ...]:
    """Return the parameters of a function in the order of its selector, without its name."""
    found = inspect.signature(FUNCTIONS[name].call).parameters.values()
    return ORDER.get(name) or tuple(one.name for one in found if one.kind is not one.KEYWORD_ONLY)


class GraphRun:
    """A graph, and the data of its placeholders."""

    def __init__(self, run: Runtime) -> None:
        self.run, self.graph = run, run.graphs.MPSGraph.alloc().init()
        self.feeds: dict[Object, Object] = {}

    def data_type(self, dtype: np.dtype[Any]) -> int:
        """Return the member of MPSDataType."""
        return self.run.constant(DTYPES[dtype.name])

    def buffer(self, array: Array) -> Object:
        """Return a buffer with the elements of an array."""
        memory = array.tobytes()
        return self.run.device.newBufferWithBytes_length_options_(memory, len(memory), SHARED)

    def data(self, buffer: Object, array: Array) -> Object:
        """Return the data of a tensor that lie in a buffer."""
        made = self.run.graphs.MPSGraphTensorData.alloc()
        return made.initWithMTLBuffer_shape_dataType_(buffer, list(array.shape), self.data_type(array.dtype))

    def tensor(self, value: Any) -> Object:
        """Return a tensor with the values of an array or a number."""
        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value, np.float32)
        array = array.astype(
            {"f": array.dtype if array.dtype == np.float16 else np.float32}.get(array.dtype.kind, np.int32)
        )
        kind = self.data_type(array.dtype)
        if array.ndim == 0:
            return self.graph.constantWithScalar_dataType_(float(array), kind)
        if array.ndim == 1 and array.dtype == np.int32:
            return self.graph.constantWithData_shape_dataType_(array.tobytes(), list(array.shape), kind)
        placed = self.graph.placeholderWithShape_dataType_name_(list(array.shape), kind, None)
        self.feeds[placed] = self.data(self.buffer(array), array)
        return placed

    def descriptor(self, kind: str, given: Any) -> Object:
        """Return a descriptor with the properties of one of mpsref."""
        ((selector, declared),) = (
            one for one in names()["classes"][kind]["methods"].items() if one[1]["receiver"] == "class"
        )
        snake = {camel(name): value for name, value in vars(given).items()}
        make = getattr(getattr(self.run.graphs, kind), selector.replace(":", "_"))
        made = make(*(int(snake[word]) for word, _ in declared["arguments"]))
        for name in PROPERTIES.get(kind, ()):
            value = getattr(given, name)
            setter = camel(name)
            getattr(made, f"set{setter[0].upper()}{setter[1:]}_")(value if isinstance(value, bool) else int(value))
        return made

    def argument(self, kind: str, name: str, value: Any) -> Any:
        """Return an argument of a type."""
        kind = kind.removesuffix("?")
        if value is None:
            return None
        if kind == "MPSGraphTensor":
            return self.tensor(value)
        if kind.endswith("Descriptor"):
            return self.descriptor(kind, value)
        if kind.startswith("NSArray"):
            return [int(one) for one in ([value] if np.ndim(value) == 0 else value)]
        if kind in names()["enumerations"]:
            enumeration: type[IntEnum] = getattr(mpsgraph, kind.removeprefix("MPSGraph"))
            return int(member(name, value, enumeration))
        return {"BOOL": bool, "float": float, "double": float}.get(kind, int)(value)

    def called(self, name: str, given: Mapping[str, Any]) -> list[Object]:
        """Return the tensors of the results of a function."""
        selector, parameters = FUNCTIONS[name].selector, parameters_of(name)
        for other in given.keys() - {*parameters}:
            raise UnsupportedError(f"{other} is given to {name}; MPSGraph's {selector} has no such argument")
        if name == "variance_of_tensor" and given.get("mean") is None:
            selector, parameters = "varianceOfTensor:axes:name:", ("tensor", "axes")
        kinds = [kind for _, kind in names()["classes"]["MPSGraph"]["methods"][selector]["arguments"][:-1]]
        values = [
            self.argument(kind, one, given.get(one, _default(name, one)))
            for kind, one in zip(kinds, parameters, strict=True)
        ]
        found = getattr(self.graph, selector.replace(":", "_"))(*values, None)
        return list(found) if isinstance(found, Sequence) else [found]

    def values(self, tensors: Sequence[Object], operations: Sequence[Object] = ()) -> tuple[Array, ...]:
        """Run the graph, and return the values of tensors."""
        kinds = {self.run.constant(kind): np.dtype(dtype) for dtype, kind in DTYPES.items()}
        arrays, buffers, results = [], [], {}
        for tensor in tensors:
            shape, dtype = [int(n) for n in tensor.shape()], kinds[int(tensor.dataType())]
            arrays.append(np.full(shape, np.nan if dtype.kind == "f" else -(2**31), dtype))
            buffers.append(self.buffer(arrays[-1]))
            results[tensor] = self.data(buffers[-1], arrays[-1])
        run = self.graph.runWithMTLCommandQueue_feeds_targetOperations_resultsDictionary_
        run(self.run.queue, self.feeds, list(operations) or None, results)
        return tuple(
            np.frombuffer(bytes(buffer.contents().as_buffer(array.nbytes)), array.dtype).reshape(array.shape)
            for array, buffer in zip(arrays, buffers, strict=True)
        )


def _default(function: str, parameter: str) -> Any:
    default = inspect.signature(FUNCTIONS[function].call).parameters[parameter].default
    return None if default is inspect.Parameter.empty else default


def call(name: str, **given: Any) -> tuple[Array, ...]:
    """Return the results of a function, computed by MPSGraph."""
    run = GraphRun(in_use())
    return run.values(run.called(name, given))


def result_shape(name: str, **given: Any) -> list[int]:
    """Return the shape of the first result that MPSGraph infers, without a run."""
    return [int(n) for n in GraphRun(in_use()).called(name, given)[0].shape()]


def gradient_of_square(x: Array) -> Array:
    """Return the gradient of ``x * x``, a primary tensor of several elements, by automatic differentiation."""
    run = GraphRun(in_use())
    source = run.tensor(x)
    square = run.graph.multiplicationWithPrimaryTensor_secondaryTensor_name_(source, source, None)
    found = run.graph.gradientForPrimaryTensor_withTensors_name_(square, [source], None)
    return run.values([found[source]])[0]


def read_and_assigned(before: Array, after: Array) -> Array:
    """Return what is read of a variable in the run that assigns it."""
    run = GraphRun(in_use())
    kind = run.data_type(before.dtype)
    variable = run.graph.variableWithData_shape_dataType_name_(before.tobytes(), list(before.shape), kind, None)
    assign = run.graph.assignVariable_withValueOfTensor_name_(variable, run.tensor(after), None)
    return run.values([run.graph.readVariable_name_(variable, None)], [assign])[0]
