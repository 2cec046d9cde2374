"""Golden values of the convolution and fully connected classes, and of their graph nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpsref import padding
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Pair
from mpsref.conformance.golden_entries import Adapter, Comparison, Entry, Values, node_output_size, over_windows
from mpsref.kernels import Convolution, FullyConnected, Neuron
from mpsref.kernels.neuron import value
from mpsref.padding import PaddingMethod
from mpsref.registry import Backend

LARGEST = 24
"""Relations hold for images of any size; larger ones are cut to this height and width, and to two images."""

UNNAMED = 2.0**-4
"""Factor of the data where a source names none: float16 results of about 0.1 stay within the tolerances."""

SPEC = ("kernel_size", "strides", "offset", "groups", "edge_mode")


def convolution(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare a forward pass, or for a gradient entry dx."""
    if entry.kind == "relation":
        yield from _relation(entry, backend)
        return
    if entry.direction == "size":
        yield _size(entry)
        return
    spec = Convolution(**{name: entry.parameters[name] for name in SPEC if name in entry.parameters})
    if entry.direction == "gradient":
        dx = entry.expected["dx"]
        weights = _weights(entry)
        yield Comparison("dx", spec.gradient_data(entry.image("g"), weights, dx.array.shape, backend=backend), dx)
        return
    output_size = entry.parameters["output_size"]
    y = spec.forward(entry.image("x"), _weights(entry), _biases(entry), output_size, backend=backend)
    yield Comparison("y", y, entry.expected["y"])


def _size(entry: Entry) -> Comparison:
    """Compare the size of a result; MPS's policy "same" gives it for every kernel size alike."""
    source, strides = entry.inputs["source_size"].array.astype(int), entry.parameters["strides"]
    placement = padding.mps(source.tolist(), 3, strides, policy=PaddingMethod.SizeSame)
    return Comparison("output size", np.array(placement.output_size), entry.expected["output_size"])


def fully_connected(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare a forward pass."""
    if entry.kind == "relation":
        for case, draw in entry.cases():
            size, channels = (case.get("h", 1), case.get("w", 1)), case["c"]
            x, weights = draw((case["n"], *size, channels)), draw((case["out_channels"], *size, channels))
            biases = draw((case["out_channels"],))
            y = _connected(entry, x, weights, biases, backend)
            expected = x.reshape(len(x), -1) @ weights.reshape(len(weights), -1).T + biases
            yield Comparison(f"{case}: y", y, Values.all_given(expected.reshape(y.shape)))
        return
    y = _connected(entry, entry.inputs["x"].array, _weights(entry), _biases(entry), backend)
    yield Comparison("y", y, entry.expected["y"])


def _connected(entry: Entry, x: Array, weights: Array, biases: Array, backend: Backend) -> Array:
    layer = FullyConnected(x.shape[1:3], neuron=_neuron(entry.parameters.get("neuron")))
    dtype = entry.dtype or "float32"
    return layer.forward(x.astype(dtype), weights.astype(np.float32), biases.astype(np.float32), backend=backend)


def matrix(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare a product of matrices: rows are images of one pixel, and ``alpha`` is a factor of the weights."""
    alpha, layer = entry.parameters["alpha"], FullyConnected(1)
    columns = entry.inputs["weights_in_out"].array.T
    weights = (alpha * columns[:, None, None]).astype(np.float32)
    if entry.direction == "forward":
        y = layer.forward(entry.image("x"), weights, _biases(entry), backend=backend)
        yield Comparison("y", y, entry.expected["y"])
        return
    g, x = entry.image("g"), entry.image("x")
    dw, db = layer.gradient_weights(g, x, backend=backend)
    yield Comparison("dx", layer.gradient_data(g, weights, x.shape, backend=backend), entry.expected["dx"])
    yield Comparison("dweights", alpha * dw[:, 0, 0].T, entry.expected["dweights_in_out"])
    yield Comparison("dbiases", db, entry.expected["dbiases"])


@dataclass(frozen=True)
class _Case:
    """One case of a relation: sizes (y, x), and pads (top, left, bottom, right)."""

    source: Pair
    channels: Pair
    kernel: Pair
    strides: Pair
    pads: tuple[int, int, int, int]
    groups: int
    neuron: Neuron | None


def _relation(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    for drawn, draw in entry.cases():
        case = _read(drawn, entry.parameters)
        n, (inputs, outputs) = min(drawn.get("n", 1), 2), case.channels
        scale = 1.0 if entry.data else UNNAMED
        x = scale * draw((n, *case.source, inputs))
        weights, biases = scale * draw((outputs, *case.kernel, inputs // case.groups)), scale * draw((outputs,))
        offset = case.kernel[0] // 2 - case.pads[0], case.kernel[1] // 2 - case.pads[1]
        expected = _on_the_cpu(case, x, weights, biases)
        y = Convolution(case.kernel, case.strides, 1, offset, case.groups, "zero", case.neuron).forward(
            x.astype(entry.dtype or "float32"),
            weights.astype(np.float32),
            biases.astype(np.float32),
            expected.shape[1:3],
            backend=backend,
        )
        yield Comparison(f"{case}: y", y, Values.all_given(expected))


def _read(drawn: Mapping[str, Any], parameters: Mapping[str, Any]) -> _Case:
    """Return the case of the drawn values; where they have no size, it is 8 x 12."""
    size = drawn.get("size", 12)
    width, height = size if isinstance(size, list) else (size, size)
    source = drawn.get("h", height if "size" in drawn else 8), drawn.get("w", width)
    kernel = drawn.get("kernel_y", drawn.get("kernel", 3)), drawn.get("kernel_x", drawn.get("kernel", 3))
    stride = drawn.get("stride", 1)
    strides = drawn.get("stride_y", stride), drawn.get("stride_x", stride)
    half = {"none": 0, "half": kernel[0] // 2}
    top, left, bottom, right = (
        half[drawn[f"pad_{side}"]]
        if f"pad_{side}" in drawn
        else drawn.get(f"pad_{axis}", drawn.get("pad", kernel[0] // 2))
        for side, axis in (("top", "y"), ("left", "x"), ("bottom", "y"), ("right", "x"))
    )
    inputs, outputs = drawn["channels"] if "channels" in drawn else (drawn["c"], drawn.get("out_channels", drawn["c"]))
    depthwise = parameters.get("descriptor") == "depthwise"
    height, width = (
        max(min(length, LARGEST), extent - before - after)
        for length, extent, before, after in zip(source, kernel, (top, left), (bottom, right), strict=True)
    )
    return _Case(
        (height, width),
        (inputs, outputs),
        kernel,
        strides,
        (top, left, bottom, right),
        inputs if depthwise else drawn.get("groups", 1),
        _neuron(drawn.get("neuron", parameters.get("neuron"))),
    )


def _on_the_cpu(case: _Case, x: Array, weights: Array, biases: Array) -> Array:
    """Compute as CPU frameworks do: over the zero-padded image, while the window fits."""
    top, left, bottom, right = case.pads
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    by_group = weights.reshape(case.groups, -1, *weights.shape[1:])

    def products(window: Array, axis: Pair) -> Array:
        read = window.reshape(len(x), *case.kernel, case.groups, -1)
        return np.asarray(np.einsum("nyxgc,goyxc->ngo", read, by_group).reshape(len(x), -1))

    y = over_windows(products, padded, case.kernel, case.strides, [0, 0, 0, 0]) + biases
    return y if case.neuron is None else value(case.neuron, y)


def _weights(entry: Entry) -> Array:
    return entry.inputs["weights"].array.astype(np.float32)


def _biases(entry: Entry) -> Array:
    return entry.inputs["biases"].array.astype(np.float32)


def _neuron(named: str | Mapping[str, Any] | None) -> Neuron | None:
    """Return the neuron that an entry names, alone or with its parameters."""
    if named is None:
        return None
    if isinstance(named, str):
        return Neuron(named.lower())
    return Neuron(named["neuron_type"].lower(), *([named["a"]] if "a" in named else []))


def transpose_node(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare the size of the result of a transposed convolution with its default padding policy."""
    from mpsref import mps
    from mpsref.mps import graph  # only these entries need it

    (kernel_height, kernel_width), (sy, sx) = entry.parameters["kernel_size"], entry.parameters["strides"]
    descriptor = mps.MPSCNNConvolutionDescriptor(
        kernel_width, kernel_height, 1, 1, stride_in_pixels_x=sx, stride_in_pixels_y=sy
    )
    weights = mps.ArrayConvolutionDataSource(descriptor, np.zeros(descriptor.weights_shape, np.float32))
    source = graph.MPSNNImageNode("source")
    yield node_output_size(entry, graph.MPSCNNConvolutionTransposeNode(source, None, weights), backend)


ADAPTERS: dict[str, Adapter] = {
    "MPSCNNConvolution": convolution,
    "MPSCNNConvolutionNode": convolution,
    "MPSCNNConvolutionGradientNode": convolution,
    "MPSCNNConvolutionTransposeNode": transpose_node,
    "MPSCNNFullyConnected": fully_connected,
    "MPSMatrixFullyConnected": matrix,
    "MPSMatrixFullyConnectedGradient": matrix,
}
