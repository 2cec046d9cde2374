"""The adapters of the neurons, of images and of matrices; the functions are the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.golden_entries import Adapter, Comparison, Entry, Values
from mpsref.kernels import Neuron
from mpsref.registry import Backend

SOURCE_SHAPE = 1, 12, 12, 4
"""Where a relation names no image size."""


def _neuron(entry: Entry) -> Neuron:
    parameters = {name: value for name, value in entry.parameters.items() if name not in ("neuron_type", "alpha")}
    return Neuron(str(entry.parameters["neuron_type"]).lower(), **parameters)


def images(relations: Mapping[Neuron, Callable[[Array], Array]]) -> Adapter:
    """Return the adapter of a neuron class, forward; ``relations`` are what a CPU computes for some neurons."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        if entry.kind != "relation":
            y = _neuron(entry).forward(entry.image("x"), backend=backend)
            yield Comparison("y", y, entry.expected["y"])
            return
        for case, draw in entry.cases():
            shape = tuple(
                case.get("shape") or (1, *(case.get(k, n) for k, n in zip("hwc", SOURCE_SHAPE[1:], strict=True)))
            )
            x = draw(shape).astype(entry.dtype or "float32")
            for neuron, on_the_cpu in relations.items():
                y = neuron.forward(x, backend=backend)
                yield Comparison(f"{neuron}: y", y, Values.all_given(on_the_cpu(x.astype(np.float64))))

    return adapter


def _argument(entry: Entry) -> Array:
    """Return ``alpha*x + bias``, which a matrix neuron takes the function of."""
    bias = entry.inputs["bias"].array if "bias" in entry.inputs else 0.0
    return np.asarray(entry.parameters["alpha"] * entry.inputs["x"].array + bias, entry.dtype or "float32")


def matrix(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare ``MPSMatrixNeuron``: y = f(alpha*x + bias)."""
    yield Comparison("y", _neuron(entry).forward(_argument(entry), backend=backend), entry.expected["y"])


def matrix_gradient(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare ``MPSMatrixNeuronGradient``: dx = alpha * g * f'(u), and the sum of g * f'(u) over the rows."""
    slopes = _neuron(entry).gradient(entry.image("g"), _argument(entry), backend=backend)
    found = {"dx": entry.parameters["alpha"] * slopes, "dbias": slopes.sum((0, 1, 2))}
    for name, expected in entry.expected.items():
        yield Comparison(name, found[name].astype(slopes.dtype), expected)


def _leaky(a: float) -> Callable[[Array], Array]:
    return lambda x: np.where(x < 0, a * x, x)


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


_RELATIONS: Mapping[str, Mapping[Neuron, Callable[[Array], Array]]] = {
    "ReLU": {Neuron("relu", a=a): _leaky(a) for a in (0.0, -0.0125, 0.025)},
    "TanH": {Neuron("tanh"): np.tanh},
    "Sigmoid": {Neuron("sigmoid"): _sigmoid},
    "HardSigmoid": {Neuron("hardsigmoid", a=1 / 6, b=0.5): lambda x: np.clip(x / 6 + 0.5, 0, 1)},
}

ADAPTERS: dict[str, Adapter] = {
    **{f"MPSCNNNeuron{kind}": images(_RELATIONS.get(kind, {})) for kind in ("Absolute", "Linear", *_RELATIONS)},
    "MPSMatrixNeuron": matrix,
    "MPSMatrixNeuronGradient": matrix_gradient,
}
"""The adapter of each MPS class."""
