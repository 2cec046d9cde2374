"""Kernels of mpsref as functions of tensors that autograd differentiates, see :func:`mpsref_torch.function`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from mpsref import (
    BatchNormalization,
    Concatenation,
    Convolution,
    ConvolutionTranspose,
    Dropout,
    FullyConnected,
    GraphPoolingMax,
    GroupNormalization,
    InstanceNormalization,
    Loss,
    Neuron,
    frameworks,
)
from mpsref.arguments.arrays import Array
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.operations import Spec
from mpsref.registry import Backend

Given: TypeAlias = tuple[Array | None, ...]
"""The arrays of a call; ``None`` for an optional one that is not passed."""

Gradients: TypeAlias = Sequence[Array | None]


@dataclass
class Call:
    """A call of a kernel: what its forward pass got, and which gradients are wanted."""

    spec: Any
    backend: Backend
    options: dict[str, Any]
    given: Given = ()
    result: Array | None = None
    needs: tuple[bool, ...] = field(default=())

    def run(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the kernel on the backend."""
        return getattr(self.spec, method)(*arguments, backend=self.backend, **options)

    def wanted(self, number: int, gradient: Callable[[], Array]) -> Array | None:
        """Return a gradient if it is wanted."""
        return gradient() if self.needs[number] else None


class Kind(NamedTuple):
    """How kernels of a kind are called."""

    tensors: tuple[str, ...]
    """Names of the tensors, in the order of the call."""
    required: int
    """How many of them must be passed."""
    gradients: Callable[[Call, Array], Gradients]
    """From dL/dy, for each tensor; ``None`` for one that has no gradient, or needs none."""
    forward: Callable[[Call], Array] = lambda call: call.run("forward", *call.given, **call.options)
    options: tuple[str, ...] = ()
    """Names of keyword arguments of a call."""
    constants: tuple[str, ...] = ()
    """Names of tensors without a gradient."""
    reads_result: bool = False
    """Whether the gradients are computed from the result."""


def _declared(call: Call, g: Array) -> Gradients:
    """Of all that the gradient of the kernel returns; it reads tensors of the call, or the result."""
    problems = call.spec.problems
    given = dict(zip(problems["forward"].inputs, call.given, strict=True))
    read = (given.get(name, call.result) for name in problems["gradient"].inputs if name != "g")
    found = call.run("gradient", g, *read)
    return [found] if isinstance(found, np.ndarray) else list(found)


def _convolution(call: Call, g: Array) -> Gradients:
    """Of the neuron first: the gradients of the kernel are those of the convolution alone."""
    x, weights, *_ = call.given
    assert x is not None
    plain = replace(call, spec=replace(call.spec, neuron=None))
    if call.spec.neuron is not None:
        g = call.spec.neuron.gradient(g, plain.run("forward", *call.given, **call.options), backend=call.backend)
    dx = call.wanted(0, lambda: plain.run("gradient_data", g, weights, x.shape))
    of_parameters = plain.run("gradient_weights", g, x) if any(call.needs[1:]) else (None, None)
    return [dx, *of_parameters]


def _batch_forward(call: Call) -> Array:
    x, gamma, beta, mean, variance = call.given
    if (mean is None) != (variance is None):
        raise ValueError("mean and variance are passed together, for evaluation; in training the image has them")
    if mean is None:
        seen = call.run("statistics", x)
        call.given = (x, gamma, beta, seen.mean, seen.variance)
        call.options = {"training": True}
    _, _, _, mean, variance = call.given
    y: Array = call.run("forward", x, mean, variance, gamma, beta)
    return y


def _batch(call: Call, g: Array) -> Gradients:
    x, gamma, beta, mean, variance = call.given
    sums = call.run("statistics_gradient", g, x, mean, variance, gamma, beta)
    of_training = sums if call.options else None
    dx = call.wanted(0, lambda: call.run("gradient", g, x, mean, variance, gamma, beta, of_training))
    return [dx, sums.dgamma, sums.dbeta, None, None]


def _groups(call: Call, g: Array) -> Gradients:
    """Of a batch: MPS has the gradients of gamma and beta for each image."""
    x, gamma, _ = call.given
    dx, *of_parameters = call.run("gradient", g, x, gamma)
    return [dx, *(one.sum(axis=0) for one in of_parameters)]


def _neuron(call: Call) -> Any:
    """Return the neuron with the slopes of the call."""
    slopes = call.given[1]
    return call.spec if slopes is None else replace(call.spec, data=tuple(map(float, slopes)))


def _neuron_forward(call: Call) -> Array:
    y: Array = _neuron(call).forward(call.given[0], backend=call.backend)
    return y


def _neuron_gradients(call: Call, g: Array) -> Gradients:
    neuron, x = _neuron(call), call.given[0]
    dx = call.wanted(0, lambda: neuron.gradient(g, x, backend=call.backend))
    return [dx, call.wanted(1, lambda: neuron.parameter_gradient(g, x, backend=call.backend))]


def _concatenated(call: Call) -> Array:
    y: Array = call.run("forward", call.given)
    return y


def _parts(call: Call, g: Array) -> Gradients:
    return list(call.run("gradient", g, call.given))


def _dropped(call: Call) -> Array:
    x, mask = call.given
    assert x is not None
    if mask is None:
        call.given = x, call.run("mask", x.shape, **call.options)
    y: Array = call.run("forward", *call.given)
    return y


def _kept(call: Call, g: Array) -> Gradients:
    return [call.run("gradient", g, call.given[1]), None]


def _pooled(call: Call) -> Array:
    y: Array
    y, indices = call.run("forward", *call.given, **call.options)
    call.given = *call.given, indices
    return y


def _from_indices(call: Call, g: Array) -> Gradients:
    x, indices = call.given
    assert x is not None
    return [call.run("gradient", g, indices, x.shape)]


def _loss(call: Call, g: Array) -> Gradients:
    """Of the result: the gradients of the kernel are those of the sum, whatever its reduction divides by."""
    y, t, weights = call.given
    assert y is not None
    assert t is not None
    if call.spec.reduction != "none":
        problem = call.spec.problems["forward"](call.spec, y.shape, t.shape[3], weights is not None)
        divisors = problem.divisors(weights).reshape(-1, 1, 1, 1)
        g = np.divide(g, divisors, out=np.zeros_like(g), where=divisors > 0)
    dy = call.wanted(0, lambda: call.run("gradient", g, *call.given))
    return [dy, call.wanted(1, lambda: call.run("gradient_labels", g, *call.given)), None]


_WEIGHTED = Kind(("x", "weights", "biases"), 2, _convolution, options=("output_size",))

KINDS: dict[type[Spec], Kind] = {
    **dict.fromkeys((Convolution, ConvolutionTranspose, FullyConnected), _WEIGHTED),
    **dict.fromkeys((InstanceNormalization, GroupNormalization), Kind(("x", "gamma", "beta"), 1, _groups)),
    BatchNormalization: Kind(
        ("x", "gamma", "beta", "mean", "variance"), 1, _batch, _batch_forward, constants=("mean", "variance")
    ),
    Neuron: Kind(("x", "slopes"), 1, _neuron_gradients, _neuron_forward),
    Concatenation: Kind((), 1, _parts, _concatenated),
    Dropout: Kind(("x", "mask"), 1, _kept, _dropped, ("sequence", "first_image_index"), ("mask",)),
    GraphPoolingMax: Kind(("x",), 1, _from_indices, _pooled, ("output_size",)),
    Loss: Kind(("y", "t", "weights"), 2, _loss, options=("validate",), constants=("weights",)),
}
"""Of the kernels whose calls or gradients are not what they declare."""


def kind_of(spec_type: type[Any]) -> Kind | None:
    """Return how a kernel is called, by default as its forward pass; ``None`` if it has no gradient."""
    if spec_type in KINDS or "gradient" not in spec_type.problems:
        return KINDS.get(spec_type)
    _, *arguments = inspect.signature(spec_type.forward).parameters.values()
    tensors = tuple(spec_type.problems["forward"].inputs)
    options = tuple(one.name for one in arguments if one.name not in (*tensors, "out", "backend"))
    reads_result = not {*spec_type.problems["gradient"].inputs} <= {"g", *tensors}
    return Kind(tensors, len(tensors), _declared, options=options, reads_result=reads_result)


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel as a differentiable function of tensors, as :func:`mpsref_torch.function` makes it."""

    spec: Spec
    backend: Backend
    layout: str
    kind: Kind

    def __call__(self, *tensors: Tensor | None, **options: Any) -> Tensor:
        """Compute the kernel; arguments as in :func:`mpsref_torch.function`."""
        kind = self.kind
        names = kind.tensors or tuple(f"xs[{k}]" for k in range(len(tensors)))
        unknown = {*options} - {*names[kind.required :], *kind.options}
        if unknown:
            legal = ", ".join((*names, *kind.options))
            raise TypeError(f"{min(unknown)} is no argument of {type(self.spec).__name__}; it takes {legal}")
        passed = [*tensors, *(options.pop(name, None) for name in names[len(tensors) :])]
        if not kind.required <= len(tensors) or len(passed) > len(names):
            raise TypeError(
                f"{type(self.spec).__name__} takes {', '.join(names) or 'xs'}; it got {len(tensors)} tensors"
            )
        for number, (name, tensor) in enumerate(zip(names, passed, strict=True)):
            if not isinstance(tensor, torch.Tensor) and (tensor is not None or number < kind.required):
                raise TypeError(f"{name} is {shown(tensor)} of type {type(tensor).__name__}; it must be a torch.Tensor")
            if tensor is not None and tensor.requires_grad and name in kind.constants:
                raise UnsupportedError(f"{name} requires a gradient, which MPS does not compute: pass {name}.detach()")
        result: Tensor = _Differentiated.apply(self, options, *passed)
        return result

    def __repr__(self) -> str:
        return f"mpsref_torch.function({self.spec!r}, backend={self.backend.name!r}, layout={self.layout!r})"

    def array(self, number: int, name: str, tensor: Tensor | None) -> Array | None:
        """Return a tensor as the array that the kernel reads."""
        if tensor is None:
            return None
        array: Array = tensor.detach().cpu().numpy()
        if self.layout == "nhwc" or array.ndim == 1:
            return array
        if array.ndim != 4:
            raise ShapeError(f"{name} has shape {tuple(tensor.shape)}; images and weights have four axes, (N, C, H, W)")
        return (
            self._weights(array, frameworks.weights_from) if self._is_weights(number) else array.transpose(0, 2, 3, 1)
        )

    def tensor(self, number: int, array: Array | None, like: Tensor) -> Tensor | None:
        """Return an array that the kernel computed as a tensor: the result (-1), or the gradient of a tensor."""
        if array is None:
            return None
        if self.layout == "nchw" and array.ndim == 4:
            is_weights = self._is_weights(number)
            array = self._weights(array, frameworks.weights_to) if is_weights else array.transpose(0, 3, 1, 2)
        return torch.from_numpy(array).to(like)

    def _is_weights(self, number: int) -> bool:
        return number == 1 and self.kind is _WEIGHTED

    def _weights(self, array: Array, exchange: Callable[..., Array]) -> Array:
        transposed = isinstance(self.spec, ConvolutionTranspose)
        exchanged: Array = exchange(array, "OIHW", getattr(self.spec, "groups", 1), transposed)
        return exchanged


class _Differentiated(torch.autograd.Function):  # type: ignore[misc]
    """The function of a call in the graph of autograd."""

    @staticmethod
    def forward(ctx: Any, function: Function, options: dict[str, Any], *tensors: Tensor | None) -> Tensor:
        kind = function.kind
        names = kind.tensors or tuple(f"xs[{k}]" for k in range(len(tensors)))
        given = tuple(
            function.array(k, name, tensor) for k, (name, tensor) in enumerate(zip(names, tensors, strict=True))
        )
        ctx.call = Call(function.spec, function.backend, options, given)
        ctx.call.result = kind.forward(ctx.call)
        ctx.function = function
        y = function.tensor(-1, ctx.call.result, tensors[0])
        # The arrays are the memory of these tensors: autograd refuses backward if one of them has changed.
        ctx.save_for_backward(*tensors, *([y] if kind.reads_result else []))
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        function, call = ctx.function, ctx.call
        call.needs = ctx.needs_input_grad[2:]
        tensors = ctx.saved_tensors[: len(call.needs)]
        found = function.kind.gradients(call, function.array(-1, "the source gradient", g))
        return (
            None,
            None,
            *(
                function.tensor(k, gradient, tensor) if needed else None
                for k, (gradient, tensor, needed) in enumerate(zip(found, tensors, call.needs, strict=True))
            ),
        )
