"""How weights get from a data source into a kernel: one sequence of calls, checks, and what is done to the numbers.

8-bit weights become numbers, a batch normalization for inference is folded in, and the result is rounded once to the
kernel's weight type; all in float64 until then [choice].

Source: ``MPSCNNConvolutionDataSource`` in ``MPSCNNConvolution.h`` [doc]; the order of the calls [choice].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import OrderError, ShapeError
from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
from mpsref.mps.convolution_types import MPSCNNWeightsQuantizationType, quantization_type, weights_layout

__all__ = ["LoadedWeights", "immutable", "load", "rounded", "shaped"]

REQUIRED = ("load", "data_type", "descriptor", "weights", "bias_terms", "label", "purge")
DATA_TYPES = ("uint8", "float16", "float32")
KERNEL_TYPES = ("float16", "float32")


@dataclass(frozen=True, eq=False)
class LoadedWeights:
    """The weights that a kernel uses, rounded and with everything folded in; arrays that never change."""

    descriptor: MPSCNNConvolutionDescriptor
    """A copy, which nobody else has."""
    weights: Array
    """In the shape of the layout; float32 (float64 after an update in float64)."""
    biases: Array | None
    """(Co,), or ``None``; float32 like the weights."""
    data_type: str
    """What the data source delivers."""
    kernel_type: str
    """What weights are rounded to."""
    label: str | None
    from_data_source: bool = True
    """Whether the data source delivered them; otherwise a state did."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LoadedWeights):
            return NotImplemented
        mine, theirs = (
            (w.descriptor, w.kernel_type, w.label, w.weights.tobytes(), w.biases is None or w.biases.tobytes())
            for w in (self, other)
        )
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]


def load(source: Any) -> LoadedWeights:
    """Run the load sequence of a data source and return a copy of what it delivers.

    Raises ``TypeError`` for a missing method and for arrays of another dtype than announced, ``OrderError`` if
    ``load()`` does not return true, ``ValueError`` (or ``ShapeError``) for whatever else does not fit. ``purge`` is
    called in any case.
    """
    missing = [name for name in REQUIRED if not callable(getattr(source, name, None))]
    if missing:
        raise TypeError(
            f"data_source is of type {type(source).__name__}, which lacks the method(s) {', '.join(missing)}; use an "
            "ArrayConvolutionDataSource, or a class with all methods of MPSCNNConvolutionDataSource"
        )
    try:
        ready = source.load()
        if not ready:
            raise OrderError(f"data_source.load() returned {ready!r}; it must return True once the data is ready")
        data_type = _type_name("data_type", source.data_type(), DATA_TYPES)
        descriptor = _checked(source.descriptor())
        stored = _array("weights()", source.weights(), data_type)
        given = source.bias_terms()
        decoded = _decoder(source, descriptor) if data_type == "uint8" else _plain
        for method in _optional(source, "weights_layout"):
            weights_layout("data_source.weights_layout()", method())
        kernel_type = _kernel_type(source, data_type)
        label = source.label()
        if label is not None and not isinstance(label, str):
            raise TypeError(f"data_source.label() returned {label!r}; it must be a str or None")
        weights = decoded(shaped("data_source.weights()", stored, descriptor.weights_shape))
        biases = None if given is None else _biases(given, descriptor.output_feature_channels)
        if descriptor.batch_normalization is not None:
            weights, biases = descriptor.batch_normalization.folded(weights, biases)
        return LoadedWeights(
            descriptor,
            rounded(weights, kernel_type),
            None if biases is None else immutable(np.array(biases, np.float32)),
            data_type,
            kernel_type,
            label,
        )
    finally:
        source.purge()


def immutable(array: Array) -> Array:
    """Return a view of an array, closed to changes."""
    view = array.view()
    view.setflags(write=False)
    return view


def rounded(weights: Array, kernel_type: str) -> Array:
    """Return a copy rounded to the kernel's weight type, to nearest even, and stored as float32.

    >>> rounded(np.array([0.1]), "float16").item()
    0.0999755859375
    """
    with np.errstate(over="ignore"):  # beyond 65504 float16 has infinity
        return immutable(weights.astype(kernel_type, order="C").astype(np.float32))


def shaped(name: str, array: Array, shape: Shape) -> Array:
    """Return an array in the shape of the layout, which it has, or it is flat; a trailing 1 for depthwise is the same.

    Raises ``ShapeError`` for any other shape.
    """
    size = math.prod(shape)
    if array.shape == shape or array.shape == (size,) or (len(shape) == 3 and array.shape == (*shape, 1)):
        return array.reshape(shape)
    message = f"{name} has shape {array.shape}; it must be {shape} or flat with {size} values"
    if array.ndim == 4 and (array.shape[0], *array.shape[2:], array.shape[1]) in (shape, (*shape, 1)):
        message += "; this looks like (out, in, height, width): use weights.transpose(0, 2, 3, 1)"
    raise ShapeError(message)


def _type_name(method: str, value: Any, legal: tuple[str, ...]) -> str:
    """Return the name of a dtype that a method returned, one of the legal ones."""
    try:
        name = np.dtype(value).name if value is not None else "None"
    except TypeError:
        name = repr(value)
    if name not in legal:
        raise ValueError(f"data_source.{method}() returned {value!r}; it must be one of {', '.join(map(repr, legal))}")
    return name


def _checked(descriptor: Any) -> MPSCNNConvolutionDescriptor:
    if not isinstance(descriptor, MPSCNNConvolutionDescriptor):
        raise TypeError(
            f"data_source.descriptor() returned a {type(descriptor).__name__}; "
            "it must be an MPSCNNConvolutionDescriptor"
        )
    descriptor.check()
    return descriptor.copy()


def _array(method: str, value: Any, dtype: str) -> Array:
    """Return what a method returned as an array, which must have this dtype already."""
    array = np.asarray(value)
    if array.dtype.newbyteorder("=").name != dtype:
        raise TypeError(
            f"data_source.{method} has dtype {array.dtype}; it must be {dtype}: convert it with .astype(numpy.{dtype})"
        )
    return array


def _biases(value: Any, channels: int) -> Array:
    array = _array("bias_terms()", value, "float32")
    if array.shape != (channels,):
        raise ShapeError(
            f"data_source.bias_terms() has shape {array.shape}; it must be ({channels},), one for each output channel"
        )
    return array


def _optional(source: Any, name: str) -> list[Callable[[], Any]]:
    """Return the method, if the data source has it."""
    method = getattr(source, name, None)
    return [method] if callable(method) else []


def _kernel_type(source: Any, data_type: str) -> str:
    methods = _optional(source, "kernel_weights_data_type")
    name = "kernel_weights_data_type"
    kernel_type = _type_name(name, methods[0](), KERNEL_TYPES) if methods else "float16"
    if data_type != "float32" and kernel_type != "float16":
        raise ValueError(
            f"data_source.{name}() returned {kernel_type!r}; with {data_type} weights it must be 'float16'"
        )
    return kernel_type


def _plain(weights: Array) -> Array:
    return weights.astype(np.float64)


def _decoder(source: Any, descriptor: MPSCNNConvolutionDescriptor) -> Callable[[Array], Array]:
    """Return what turns 8-bit weights into numbers. Source: both formulas [doc]."""
    methods = _optional(source, "weights_quantization_type")
    name = "data_source.weights_quantization_type()"
    kind = quantization_type(name, methods[0]()) if methods else MPSCNNWeightsQuantizationType.NONE
    if kind is MPSCNNWeightsQuantizationType.Linear:
        ranges = _table(source, "ranges_for_uint8_kernel", (descriptor.output_feature_channels, 2))
        low, high = (column.reshape((-1,) + (1,) * (len(descriptor.weights_shape) - 1)) for column in ranges.T)
        return lambda codes: codes / 255.0 * (high - low) + low
    if kind is MPSCNNWeightsQuantizationType.LookupTable:
        table = _table(source, "lookup_table_for_uint8_kernel", (256,))
        return lambda codes: table[codes]
    raise ValueError(
        f"data_source has uint8 weights and no quantization; {name} must return "
        f"{MPSCNNWeightsQuantizationType.Linear!r} or {MPSCNNWeightsQuantizationType.LookupTable!r}"
    )


def _table(source: Any, name: str, shape: Shape) -> Array:
    """Return a float32 table that 8-bit weights need, in float64."""
    values = [method() for method in _optional(source, name)]
    if not values or values[0] is None:
        raise ValueError(f"data_source has no {name}(); its 8-bit weights need one, float32 of shape {shape}")
    array = _array(f"{name}()", values[0], "float32")
    if array.shape != shape:
        raise ShapeError(f"data_source.{name}() has shape {array.shape}; it must be {shape}")
    return array.astype(np.float64)
