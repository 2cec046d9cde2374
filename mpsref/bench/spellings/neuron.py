"""How PyTorch spells the neurons; what a gradient needs beside g and x is computed before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bench.pytorch import Call, Spelling, nchw
from mpsref.kernels import Neuron
from mpsref.registry import Spec

__all__ = ["SPELLINGS"]

Words = tuple[Any, ...]
"""An operation of PyTorch's and its arguments."""


def neuron(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: tuple[Array, ...] | None) -> Call | None:
    """Return a neuron or its gradient; ``None`` where PyTorch has no operation for it."""
    spec = problem.spec
    if problem.method == "parameter_gradient":
        return None  # it comes with the gradient for x, at no less cost
    tensors = [nchw(torch, array) for array in inputs]
    if spec.type == "prelu":
        return _prelu(torch, spec, tensors, outs)
    word = (_forward if problem.method == "forward" else _gradient)(torch.ops.aten, spec, *tensors)
    if word is None:
        return None
    operation, *arguments = word
    if outs is None:
        return lambda: operation(*arguments)
    out, name = nchw(torch, outs[0]), "grad_input" if "backward" in str(operation) else "out"
    into = getattr(operation, "Tensor_Scalar_out" if "pow" in str(operation) else name)
    return lambda: into(*arguments, **{name: out})


def _prelu(torch: Any, spec: Neuron, tensors: list[Any], outs: tuple[Array, ...] | None) -> Call | None:
    slopes = torch.from_numpy(np.array(spec.data, np.float32)).reshape(1, -1, 1, 1)
    if outs is not None:
        return None
    aten = torch.ops.aten
    if len(tensors) == 1:
        return lambda: aten._prelu_kernel(tensors[0], slopes)
    g, x = tensors
    return lambda: aten._prelu_kernel_backward(g, x, slopes)[0]


def _plain(spec: Neuron) -> bool:
    """Whether the parameters are those that PyTorch's function of the same name has."""
    return (spec.a, spec.b, spec.c) in ((0, 0, 0), (1, 1, 0), (1, 0, -1))


def _forward(aten: Any, spec: Neuron, x: Any) -> Words | None:
    a, b, c = spec.a, spec.b, spec.c
    table: Mapping[str, Callable[[], Words | None]] = {
        "relu": lambda: (aten.leaky_relu, x, a) if a else (aten.relu, x),
        "hardsigmoid": lambda: (aten.hardsigmoid, x) if (a, b) == (1 / 6, 0.5) else None,
        "softplus": lambda: (aten.softplus, x, b, 1e4 / b) if a * b == 1 else None,
        "elu": lambda: (aten.elu, x, a),
        "relun": lambda: (aten.hardtanh, x, 0, b) if a == 0 else None,
        "power": lambda: (aten.pow, x, c) if (a, b) == (1, 0) else None,
        "gelu": lambda: (aten.gelu, x),
        "absolute": lambda: (aten.abs, x),
        "sigmoid": lambda: (aten.sigmoid, x),
        "tanh": lambda: (aten.tanh, x) if _plain(spec) else None,
        "exponential": lambda: (aten.exp, x) if _plain(spec) else None,
        "logarithm": lambda: (aten.log, x) if _plain(spec) else None,
    }
    return table[spec.type]() if spec.type in table else None


def _gradient(aten: Any, spec: Neuron, g: Any, x: Any) -> Words | None:
    a, b = spec.a, spec.b
    table: Mapping[str, Callable[[], Words | None]] = {
        "relu": lambda: (aten.leaky_relu_backward, g, x, a, False) if a else (aten.threshold_backward, g, x, 0),
        "sigmoid": lambda: (aten.sigmoid_backward, g, aten.sigmoid(x)),
        "hardsigmoid": lambda: (aten.hardsigmoid_backward, g, x) if (a, b) == (1 / 6, 0.5) else None,
        "tanh": lambda: (aten.tanh_backward, g, aten.tanh(x)) if _plain(spec) else None,
        "softplus": lambda: (aten.softplus_backward, g, x, b, 1e4 / b) if a * b == 1 else None,
        "elu": lambda: (aten.elu_backward, g, a, 1, 1, False, x),
        "relun": lambda: (aten.hardtanh_backward, g, x, 0, b) if a == 0 else None,
        "exponential": lambda: (aten.mul, g, aten.exp(x)) if _plain(spec) else None,
        "logarithm": lambda: (aten.div, g, x) if _plain(spec) else None,
        "gelu": lambda: (aten.gelu_backward, g, x),
    }
    return table[spec.type]() if spec.type in table else None


SPELLINGS: Mapping[type[Spec], Spelling] = {Neuron: neuron}
