"""A graph of the functions of MPSGraph: placeholders, constants, variables, automatic differentiation, and runs.

Tensors of a graph have a shape and a type, which are inferred, and checked, when a function is called. A gradient is
more tensors of the same graph; the primary tensor is summed, its gradient is 1 everywhere [choice mpsgraph-seed].

In a run, all reads of variables see the values before it [choice mpsgraph-variables].

Source: ``MPSGraph.h``, ``MPSGraphMemoryOps.h``, ``MPSGraphAutomaticDifferentiation.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mpsref.arguments.arrays import Array, Shape, as_array
from mpsref.arguments.parameters import integer
from mpsref.arguments.text import near, shown
from mpsref.backend import Backend, BackendLike, Implementation
from mpsref.errors import GraphError, MissingSourceError, NoGradientError, ShapeError, UnknownSourceError
from mpsref.mpsgraph.function import FUNCTIONS as FUNCTIONS
from mpsref.mpsgraph.rules import RULES
from mpsref.operations import OperationKey

for _family in ("activation", "arithmetic", "convolution", "normalization", "pooling", "resize", "training"):
    import_module(f"mpsref.mpsgraph.{_family}_ops")  # declares functions

DTYPES = ("float16", "float32", "float64", "int32")


@dataclass(eq=False)
class GraphOperation:
    """A call in a graph: a function of MPSGraph, or "placeholder", "constant", "variable", "assign"."""

    graph: Graph
    name: str
    arguments: Mapping[str, Any]
    """By name; tensors of the graph among them."""
    label: str | None = None
    """What the ``name`` of the call says."""
    results: list[GraphTensor] = field(default_factory=list)

    @property
    def sources(self) -> list[GraphTensor]:
        """The tensors that it reads."""
        return [value for value in self.arguments.values() if isinstance(value, GraphTensor)]


@dataclass(eq=False, frozen=True)
class GraphTensor:
    """A tensor of a graph: its operation, shape and type. Graphs make them."""

    operation: GraphOperation
    shape: Shape
    dtype: np.dtype[Any]

    def __repr__(self) -> str:
        label = "" if self.operation.label is None else f" {self.operation.label!r}"
        return f"<{self.operation.name}{label}: {self.shape}, {self.dtype}>"


class _Nothing(Mapping[OperationKey, Implementation]):
    """Implementations that compute nothing: only shapes and types of their results count."""

    def __getitem__(self, key: OperationKey) -> Implementation:
        return self._fill

    def __iter__(self) -> Iterator[OperationKey]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, key: object) -> bool:
        return True

    @staticmethod
    def _fill(problem: Any, *inputs: Array, out: Any) -> None:
        for one in out if isinstance(out, tuple) else (out,):
            one.fill(LEGAL)


LEGAL = 0.5
"""A value that every parameter may have."""

SHAPES = Backend("shapes of MPSGraph", _Nothing(), dtypes=DTYPES[:3])


class Graph:
    """A graph: every function of :mod:`mpsref.mpsgraph` is a method that takes and returns tensors of the graph.

    As in MPSGraph, each of them may be given a ``name``, which messages then have.

    Examples
    --------
    >>> graph = Graph()
    >>> x = graph.placeholder((3,))
    >>> w = graph.variable([2, 3, 4])
    >>> loss = graph.reduction_sum(graph.multiplication(x, graph.multiplication(w, w)), 0)
    >>> gradient = graph.gradient_for_primary_tensor(loss, [w])[w]
    >>> step = graph.assign_variable(w, graph.stochastic_gradient_descent(0.5, w, gradient))
    >>> found = graph.run({x: np.float32([1, 10, 0])}, [loss, gradient], [step])
    >>> found[loss].tolist(), found[gradient].tolist(), graph.run({}, [w])[w].tolist()
    ([94.0], [4.0, 60.0, 0.0], [0.0, -27.0, 4.0])
    """

    def __init__(self) -> None:
        """Make an empty graph."""
        self._operations: list[GraphOperation] = []
        self._values: dict[GraphTensor, Array] = {}
        """Of constants and variables."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in FUNCTIONS:
            raise AttributeError(f"MPSGraph has no operation {name!r} here{near(name, FUNCTIONS)}")
        return lambda *args, **kwargs: self._call(name, args, kwargs)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *FUNCTIONS]

    # --- tensors ------------------------------------------------------------------------------------------------------

    def placeholder(self, shape: Sequence[int], dtype: DTypeLike = np.float32, name: str | None = None) -> GraphTensor:
        """Return a tensor whose values each run is given.

        Parameters
        ----------
        shape : sequence of int
            Its shape; unknown lengths, -1 in MPSGraph, are not supported.
        dtype : dtype, optional
            float32, float16 or int32; float64 on the reference.
        name : str, optional
            Its name in messages.
        """
        lengths = tuple(integer(f"shape[{axis}]", length, low=0) for axis, length in enumerate(shape))
        return self._leaf("placeholder", lengths, _dtype(dtype), name)

    def constant(
        self,
        data: ArrayLike,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike = np.float32,
        name: str | None = None,
    ) -> GraphTensor:
        """Return a tensor with fixed values; one number fills the ``shape``."""
        return self._with_values("constant", data, shape, dtype, name)

    def variable(
        self,
        data: ArrayLike,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike = np.float32,
        name: str | None = None,
    ) -> GraphTensor:
        """Return a tensor whose values runs may change, from its first values on."""
        return self._with_values("variable", data, shape, dtype, name)

    def read_variable(self, variable: GraphTensor) -> GraphTensor:
        """Return the variable, which is the tensor of its values before the run."""
        return self._variable(variable)

    def assign_variable(self, variable: GraphTensor, tensor: GraphTensor) -> GraphOperation:
        """Return the operation that gives a variable the values of a tensor, as a target operation of a run."""
        self._own("tensor", tensor)
        if (self._variable(variable).shape, variable.dtype) != (tensor.shape, tensor.dtype):
            raise ShapeError(
                f"tensor has shape {tensor.shape} and type {tensor.dtype}; the variable has {variable.shape}, "
                f"{variable.dtype}"
            )
        return self._add(GraphOperation(self, "assign", {"variable": variable, "tensor": tensor}))

    def apply_stochastic_gradient_descent(
        self, learning_rate: float | GraphTensor, variable: GraphTensor, gradient: GraphTensor
    ) -> GraphOperation:
        """Return the operation that makes a step of gradient descent of a variable."""
        step = self.stochastic_gradient_descent(learning_rate, self._variable(variable), gradient)
        return self.assign_variable(variable, step)

    # --- gradients ----------------------------------------------------------------------------------------------------

    def gradient_for_primary_tensor(
        self, primary_tensor: GraphTensor, tensors: Collection[GraphTensor]
    ) -> dict[GraphTensor, GraphTensor]:
        """Return the gradients of the sum of a tensor with respect to others.

        Parameters
        ----------
        primary_tensor : GraphTensor
            The loss; if it has several elements, their sum.
        tensors : collection of GraphTensor
            The tensors, on which it depends.

        Returns
        -------
        dict
            The gradient of each of the ``tensors``.

        Raises
        ------
        NoGradientError
            If the primary tensor does not depend on a tensor, or through a function that Apple's automatic
            differentiation is not known to support.
        """
        wanted = [self._own("tensors", tensor) for tensor in tensors]
        depends, until = set(wanted), self._own("primary_tensor", primary_tensor).operation
        for operation in self._needed([primary_tensor]):
            if depends.intersection(operation.sources):
                depends.update(operation.results)
        ones = self.constant(1.0, primary_tensor.shape, primary_tensor.dtype)
        gradients = {primary_tensor: ones}
        for operation in reversed(self._needed([until])):
            if gradients.keys() & set(operation.results):
                self._chain(operation, depends, gradients)
        for tensor in wanted:
            if tensor not in gradients:
                raise NoGradientError(f"{tensor}: not a predecessor of primaryTensor, {primary_tensor}")
        return {tensor: gradients[tensor] for tensor in wanted}

    def _chain(
        self, operation: GraphOperation, depends: set[GraphTensor], gradients: dict[GraphTensor, GraphTensor]
    ) -> None:
        """Add to the gradients of what an operation reads."""
        rules, (first, *others) = RULES.get(operation.name, {}), operation.results
        of = SimpleNamespace(**operation.arguments, result=first)
        for name, source in operation.arguments.items():
            if not isinstance(source, GraphTensor) or source not in depends:
                continue
            if name not in rules or gradients.keys() & set(others):
                raise NoGradientError(
                    f"{operation.name} has no gradient for {name}, as far as is known of Apple's automatic "
                    f"differentiation: {source} is not a predecessor of primaryTensor; use other operations"
                )
            gradient = rules[name](self, gradients[first], of)
            known = gradients.get(source)
            gradients[source] = gradient if known is None else self.addition(known, gradient)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run(
        self,
        feeds: Mapping[GraphTensor, ArrayLike],
        target_tensors: Sequence[GraphTensor],
        target_operations: Sequence[GraphOperation] = (),
        *,
        backend: BackendLike = None,
    ) -> dict[GraphTensor, Array]:
        """Compute tensors.

        Parameters
        ----------
        feeds : mapping
            The values of the placeholders.
        target_tensors : sequence of GraphTensor
            What is computed.
        target_operations : sequence of GraphOperation, optional
            Operations of :meth:`assign_variable` and :meth:`apply_stochastic_gradient_descent`.

        Returns
        -------
        dict
            The values of each of the ``target_tensors``, in their order.

        Raises
        ------
        MissingSourceError, UnknownSourceError
            If a placeholder has no values, or something else has some.
        """
        values = self._values | {tensor: self._fed(tensor, value) for tensor, value in feeds.items()}
        targets = [self._own("target_tensors", tensor) for tensor in target_tensors]
        writes = [operation for operation in target_operations if self._assigns(operation)]
        assigned = [operation.arguments["variable"] for operation in writes]
        if len(set(assigned)) < len(assigned):
            raise GraphError(
                "target_operations assign a variable twice; the order of operations in a run is not defined"
            )
        needed = self._needed([*targets, *writes])
        missing = [one.results[0] for one in needed if one.name == "placeholder" and one.results[0] not in values]
        if missing:
            raise MissingSourceError(f"feeds lacks {', '.join(map(self._numbered, missing))}, which the targets need")
        for operation in needed:
            if operation.name in FUNCTIONS:
                arguments = {
                    name: values[value] if isinstance(value, GraphTensor) else value
                    for name, value in operation.arguments.items()
                }
                results = FUNCTIONS[operation.name].run({**arguments, "backend": backend})
                several = results if isinstance(results, tuple) else (results,)
                values.update(zip(operation.results, several, strict=True))
        found = {tensor: values[tensor].copy() for tensor in targets}
        self._values |= {operation.arguments["variable"]: values[operation.arguments["tensor"]] for operation in writes}
        return found

    # --- inside -------------------------------------------------------------------------------------------------------

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Add a call of a function, whose results have the shapes and types of those for tensors without values."""
        if "backend" in kwargs:
            raise TypeError(f"backend is given to {name}; a graph is given it in run")
        label = _label(kwargs.pop("name", None))
        bound = FUNCTIONS[name].bind(*args, **kwargs, backend=SHAPES)
        bound.apply_defaults()
        given = {key: value for key, value in bound.arguments.items() if key != "backend"}
        for key, value in given.items():
            if isinstance(value, GraphTensor):
                self._own(f"{name}: {key}", value)
                bound.arguments[key] = np.full(value.shape, LEGAL).astype(value.dtype)
        results = FUNCTIONS[name].run(bound.arguments)
        operation = self._add(GraphOperation(self, name, given, label))
        several = results if isinstance(results, tuple) else (results,)
        operation.results += [GraphTensor(operation, one.shape, one.dtype) for one in several]
        return tuple(operation.results) if isinstance(results, tuple) else operation.results[0]

    def _add(self, operation: GraphOperation) -> GraphOperation:
        self._operations.append(operation)
        return operation

    def _leaf(self, name: str, shape: Shape, dtype: np.dtype[Any], label: str | None) -> GraphTensor:
        operation = self._add(GraphOperation(self, name, {}, _label(label)))
        operation.results.append(GraphTensor(operation, shape, dtype))
        return operation.results[0]

    def _with_values(
        self, name: str, data: ArrayLike, shape: Sequence[int] | None, dtype: DTypeLike, label: str | None
    ) -> GraphTensor:
        array = as_array("data", data)
        if array.dtype.kind not in "fiu":
            raise TypeError(f"data has dtype {array.dtype}; it must hold numbers")
        lengths = array.shape if shape is None else tuple(integer("shape", length, low=0) for length in shape)
        if array.size != 1 and array.size != int(np.prod(lengths)):
            raise ShapeError(
                f"data has {array.size} elements; with the shape {lengths} it must have one, or all of them"
            )
        values = np.array(array.reshape(lengths) if array.shape != () else np.full(lengths, array), _dtype(dtype))
        tensor = self._leaf(name, values.shape, values.dtype, label)
        self._values[tensor] = values
        return tensor

    def _numbered(self, placeholder: GraphTensor) -> str:
        """Return a placeholder with its number, as many have no name."""
        number = [one for one in self._operations if one.name == "placeholder"].index(placeholder.operation) + 1
        return f"{placeholder} (placeholder {number} of the graph)"

    def _own(self, name: str, tensor: object) -> GraphTensor:
        if not isinstance(tensor, GraphTensor) or tensor.operation.graph is not self:
            raise TypeError(f"{name} is {shown(tensor)}; it must be a tensor of this graph")
        return tensor

    def _variable(self, variable: GraphTensor) -> GraphTensor:
        if self._own("variable", variable).operation.name != "variable":
            raise TypeError(f"variable is {variable}; it must be a result of variable()")
        return variable

    def _assigns(self, operation: object) -> bool:
        if isinstance(operation, GraphOperation) and operation.graph is self and operation.name == "assign":
            return True
        raise TypeError(f"target_operations contains {shown(operation)}; it must be a result of assign_variable()")

    def _fed(self, tensor: GraphTensor, value: ArrayLike) -> Array:
        if self._own("feeds", tensor).operation.name != "placeholder":
            raise UnknownSourceError(f"feeds has values of {tensor}; it must have those of placeholders alone")
        array = as_array("feeds", value)
        if array.shape != tensor.shape or array.dtype != tensor.dtype:
            raise ShapeError(
                f"feeds has an array of shape {array.shape}, {array.dtype}, for {tensor}; both must be as "
                "in placeholder()"
            )
        return array

    def _needed(self, of: Sequence[GraphTensor | GraphOperation]) -> list[GraphOperation]:
        """Return the operations that some tensors and operations need, in an order in which they can run."""
        needed = {one.operation if isinstance(one, GraphTensor) else one for one in of}
        for operation in reversed(self._operations):  # which is later than all that it reads
            if operation in needed:
                needed.update(source.operation for source in operation.sources)
        return [operation for operation in self._operations if operation in needed]


def _label(name: object) -> str | None:
    if name is None or isinstance(name, str):
        return name
    raise TypeError(f"name is {shown(name)}; it must be a string, or None")


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    found = np.dtype(dtype)
    if found.name not in DTYPES:
        raise TypeError(f"dtype is {found}; it must be one of {', '.join(DTYPES)}")
    return found


def page() -> str:
    """Return a table of all functions, for the documentation."""
    rows = [
        f"| {{py:func}}`~mpsref.mpsgraph.{name}` | `{one.selector}` | {one.since} | {'yes' if name in RULES else ''} |"
        for name, one in sorted(FUNCTIONS.items())
    ]
    return "\n".join(["| function | selector | macOS | differentiated in a graph |", "|---|---|---|---|", *rows]) + "\n"
