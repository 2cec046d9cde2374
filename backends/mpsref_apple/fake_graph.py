"""What the objects of MPSGraph do in the fake: graphs of :mod:`mpsref.mpsgraph` with the same calls.

PyObjC's behaviour is that of its bridge: an ``NSArray`` is a sequence and no list, a shape is one of ``NSNumber``,
which are subclasses of ``int``, and dictionaries have tensors as keys and tensor data as values. A run blocks until it
has ended. Methods with a block, such as a completion handler, are not among those that the fake has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpsref import mpsgraph
from mpsref.mpsgraph.graph import FUNCTIONS
from mpsref_apple.fake import Object, Refusal, headers, snake
from mpsref_apple.mpsgraph import DTYPES, parameters_of

NAMES = {one.selector: name for name, one in FUNCTIONS.items()} | {"varianceOfTensor:axes:name:": "variance_of_tensor"}


class NSNumber(int):
    """A number that a method of MPSGraph returns: under PyObjC a subclass of int."""


def _dtype(number: int) -> str:
    found = [name for name, kind in DTYPES.items() if headers()["enumerations"]["MPSDataType"][kind] == number]
    if not found:
        raise Refusal(f"the fake has no tensors of MPSDataType {number}")
    return found[0]


class Graph:
    on_init = Object.on_init
    values: dict[str, Any]

    def made(self: Any) -> None:
        self.graph = mpsgraph.Graph()
        self.placed: dict[Any, Any] = {}

    def wrapped(self: Any, tensor: Any, name: str, value: Any = None) -> Any:
        """Return the object of a tensor, the same one for each."""
        if tensor not in self.placed:
            self.placed[tensor] = _ready(self.fake, "MPSGraphTensor", tensor=tensor, name=name, value=value)
        return self.placed[tensor]

    def on_placeholderWithShape_dataType_name_(self: Any, shape: list[int], kind: int, name: str | None) -> Any:
        return self.wrapped(self.graph.placeholder(shape, _dtype(kind)), "placeholder")

    def on_constantWithScalar_dataType_(self: Any, scalar: float, kind: int) -> Any:
        return self.wrapped(self.graph.constant(scalar, dtype=_dtype(kind)), "constant")

    def on_constantWithData_shape_dataType_(self: Any, data: bytes, shape: list[int], kind: int) -> Any:
        array = _array(data, shape, kind)
        return self.wrapped(self.graph.constant(array, dtype=array.dtype), "constant", array)

    def on_variableWithData_shape_dataType_name_(
        self: Any, data: bytes, shape: list[int], kind: int, name: str | None
    ) -> Any:
        array = _array(data, shape, kind)
        return self.wrapped(self.graph.variable(array, dtype=array.dtype), "read_variable")

    def on_readVariable_name_(self: Any, variable: Any, name: str | None) -> Any:
        return self.wrapped(self.graph.read_variable(variable.values["tensor"]), "read_variable")

    def on_assignVariable_withValueOfTensor_name_(self: Any, variable: Any, tensor: Any, name: str | None) -> Any:
        operation = self.graph.assign_variable(variable.values["tensor"], tensor.values["tensor"])
        return _ready(self.fake, "MPSGraphOperation", operation=operation)

    def on_gradientForPrimaryTensor_withTensors_name_(
        self: Any, primary: Any, tensors: list[Any], name: str | None
    ) -> Any:
        found = self.graph.gradient_for_primary_tensor(
            primary.values["tensor"], [one.values["tensor"] for one in tensors]
        )
        return {one: self.wrapped(found[one.values["tensor"]], "gradient") for one in tensors}

    def on_runWithMTLCommandQueue_feeds_targetOperations_resultsDictionary_(
        self: Any,
        queue: Any,
        feeds: Mapping[Any, Any],
        operations: list[Any] | None,
        results: Mapping[Any, Any],
    ) -> None:
        given = {tensor.values["tensor"]: data.array() for tensor, data in feeds.items()}
        targets = [operation.values["operation"] for operation in operations or ()]
        found = self.graph.run(
            given, [tensor.values["tensor"] for tensor in results], targets, backend=self.fake.backend
        )
        for tensor, data in results.items():
            values = self.fake.alter("MPSGraph", tensor.values["name"], found[tensor.values["tensor"]])
            data.write(np.reshape(values, found[tensor.values["tensor"]].shape))

    def perform(self: Any, selector: str, arguments: list[Any]) -> Any:
        """Call a function of mpsref as a method of the graph."""
        name = NAMES.get(selector)
        if name is None:
            raise NotImplementedError(f"the fake has no behaviour for MPSGraph {selector}")
        words = ("tensor", "axes") if selector.startswith("varianceOfTensor:axes") else parameters_of(name)
        given = {word: _plain(word, value) for word, value in zip(words, arguments, strict=False)}
        found = getattr(self.graph, name)(**given)
        several = found if isinstance(found, tuple) else (found,)
        objects = [self.wrapped(one, f"{name} {k}" if k else name) for k, one in enumerate(several)]
        return objects if isinstance(found, tuple) else objects[0]


def _plain(word: str, value: Any) -> Any:
    """Return an argument as a function of mpsref takes it: tensors of the graph, the values of a size."""
    if not isinstance(value, Object):
        return value
    if "tensor" in value.values:
        return value.values["value"].tolist() if word == "size" else value.values["tensor"]
    kind = getattr(mpsgraph, value.class_name.removeprefix("MPSGraph"))
    return kind(**{snake(name): one for name, one in value.values.items()})


def _array(data: bytes, shape: list[int], kind: int) -> Any:
    dtype = np.dtype(_dtype(kind))
    if len(data) != dtype.itemsize * int(np.prod(shape)):
        raise Refusal(f"the data have {len(data)} bytes; {shape} elements of {dtype} need another number")
    return np.frombuffer(data, dtype).reshape(shape)


def _ready(fake: Any, kind: str, **values: Any) -> Any:
    made = fake.kind(kind)()
    made.values, made.ready = values, True
    return made


class Tensor:
    values: dict[str, Any]

    def on_shape(self: Any) -> list[NSNumber]:
        shape = self.fake.alter("MPSGraph", f"shape of {self.values['name']}", np.array(self.values["tensor"].shape))
        return [NSNumber(n) for n in shape]

    def on_dataType(self: Any) -> int:
        return int(headers()["enumerations"]["MPSDataType"][DTYPES[self.values["tensor"].dtype.name]])


class TensorData:
    on_init = Object.on_init
    values: dict[str, Any]

    def made(self: Any) -> None:
        self.array()  # raises for a buffer of another size

    def array(self: Any) -> Any:
        """Return the elements."""
        memory = bytes(self.values["mTLBuffer"].values["memory"])
        return _array(memory, self.values["shape"], self.values["dataType"])

    def write(self: Any, values: Any) -> None:
        """Store the values of a result."""
        before = self.array()
        if before.shape != values.shape:
            raise Refusal(f"the result has the shape {values.shape}, and its data {before.shape}")
        with np.errstate(all="ignore"):
            self.values["mTLBuffer"].values["memory"][:] = values.astype(before.dtype).tobytes()


class Descriptor:
    on_init = Object.on_init
    perform = Object.perform

    def made(self) -> None:
        """Take the values as they are."""


GRAPHS: dict[str, type[Any]] = {
    "MPSGraph": Graph,
    "MPSGraphTensor": Tensor,
    "MPSGraphTensorData": TensorData,
    "MPSGraphOperation": Descriptor,
    "MPSGraphConvolution2DOpDescriptor": Descriptor,
    "MPSGraphDepthwiseConvolution2DOpDescriptor": Descriptor,
    "MPSGraphPooling2DOpDescriptor": Descriptor,
}
