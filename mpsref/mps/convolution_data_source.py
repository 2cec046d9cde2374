"""Weights of convolutions: data sources, their load sequence, and the state with weights and biases.

>>> from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
>>> source = ArrayConvolutionDataSource(MPSCNNConvolutionDescriptor(3, 1, 1, 1), [1, 10, 100], [0.5])
>>> source.weights().shape, source.bias_terms()
((1, 1, 3, 1), array([0.5], dtype=float32))

A kernel loads its weights in one sequence of calls. It decodes 8-bit weights and folds a batch normalization for
inference into them, in float64, and rounds the result once to its weight type [choice weight-rounding].

Source: ``MPSCNNConvolutionDataSource``, ``MPSCNNConvolutionWeightsAndBiasesState`` in ``MPSCNNConvolution.h`` [doc];
the order of the calls [choice data-source-calls].
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mpsref.arguments.arrays import Array, Shape, as_array, copied, is_contiguous
from mpsref.arguments.parameters import integer
from mpsref.arguments.text import shown
from mpsref.errors import OrderError, ShapeError
from mpsref.mps.convolution_descriptor import (
    MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionWeightsLayout,
    MPSCNNWeightsQuantizationType,
)
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.properties import Alias, hinting, instance_of, label_like
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.core.state import Buffer, Synchronized, SynchronizedState, check_buffers
from mpsref.mps.core.types import MPSDataType, member


class MPSCNNConvolutionDataSource(Protocol):
    """The methods that a kernel calls when it is made and when it reloads, always between ``load`` and ``purge``.

    The order of the calls is ``load``, ``data_type``, ``descriptor``, ``weights``, ``bias_terms``, those for 8-bit
    weights, ``weights_layout``, ``kernel_weights_data_type``, ``label``, ``purge``; ``purge`` also after an error.
    Everything is copied before ``purge``: arrays need not outlive it, and later changes wait for a reload.

    Optional methods: ``weights_quantization_type()`` and ``ranges_for_uint8_kernel()``, float32 (Co, 2) of minimum and
    maximum, or ``lookup_table_for_uint8_kernel()``, float32 (256,), which 8-bit weights need; ``weights_layout()``;
    ``kernel_weights_data_type()``, the type that weights are rounded to, "float16" where the method is missing [doc];
    ``copy_with_device(device)`` or ``copy()``, for copies of a kernel; ``update(gradient_state, source_state,
    command_buffer=None)`` and ``update_cpu(gradient_state, source_state)``, which a training graph calls.
    """

    def load(self) -> bool:
        """Make the data ready; return whether that succeeded."""

    def data_type(self) -> DTypeLike | MPSDataType:
        """Return the type of the weights: a dtype, or a member of :class:`mpsref.mps.MPSDataType`."""

    def descriptor(self) -> MPSCNNConvolutionDescriptor:
        """Return the descriptor of the convolution."""

    def weights(self) -> Array:
        """Return the weights in the order of ``descriptor().weights_shape``, shaped like that or flat."""

    def bias_terms(self) -> Array | None:
        """Return the biases, float32 (Co,), or ``None``."""

    def label(self) -> str | None:
        """Return a name, or ``None``."""

    def purge(self) -> None:
        """Release the data."""


@hinting
@secure_coding(version=1, arguments=("descriptor", "weights", "biases", "kernel_weights_data_type", "label"))
class ArrayConvolutionDataSource(SecureCoding):
    """A data source with float32 arrays, which kernels round to ``kernel_weights_data_type``.

    ``weights_array`` and ``biases_array`` are float32 copies of the arguments, and may be changed: a kernel reads them
    again when it reloads. Kernels check them, and the descriptor, when they load.

    Parameters
    ----------
    descriptor : MPSCNNConvolutionDescriptor
        The convolution.
    weights : array_like
        In the order of ``descriptor.weights_shape``; flat weights of the right size get that shape.
    biases : array_like, optional
        One for each output channel.
    kernel_weights_data_type : {"float32", "float16"} or MPSDataType
        The type that kernels round the weights to; with float32 they are not rounded.
    label : str, optional
        The name of the layer.

    Raises
    ------
    TypeError
        For arrays that are not of real numbers.
    """

    def __init__(
        self,
        descriptor: MPSCNNConvolutionDescriptor,
        weights: ArrayLike,
        biases: ArrayLike | None = None,
        kernel_weights_data_type: DTypeLike | MPSDataType = "float32",
        label: str | None = None,
    ) -> None:
        instance_of("descriptor", descriptor, MPSCNNConvolutionDescriptor)
        self._descriptor, self._kernel_weights_data_type, self._label = descriptor, kernel_weights_data_type, label
        self.weights_array = _numbers("weights", weights)
        """The weights, float32."""
        if self.weights_array.ndim == 1 and self.weights_array.size == np.prod(descriptor.weights_shape):
            self.weights_array = self.weights_array.reshape(descriptor.weights_shape)
        self.biases_array = None if biases is None else np.atleast_1d(_numbers("biases", biases))
        """The biases, float32, or ``None``."""

    def load(self) -> bool:
        """Return ``True``: there is nothing to load."""
        return True

    def data_type(self) -> str:
        """Return "float32"."""
        return "float32"

    def descriptor(self) -> MPSCNNConvolutionDescriptor:
        """Return the descriptor that was passed in."""
        return self._descriptor

    def weights(self) -> Array:
        """Return ``weights_array``."""
        return self.weights_array

    def bias_terms(self) -> Array | None:
        """Return ``biases_array``."""
        return self.biases_array

    def kernel_weights_data_type(self) -> DTypeLike | MPSDataType:
        """Return the type that kernels round the weights to."""
        return self._kernel_weights_data_type

    def label(self) -> str | None:
        """Return the label that was passed in."""
        return self._label

    def purge(self) -> None:
        """Do nothing."""

    def copy(self) -> Self:
        """Return a data source with copies of the arrays and of the descriptor."""
        arrays = self.weights_array, self.biases_array
        return type(self)(self._descriptor.copy(), *arrays, self._kernel_weights_data_type, self._label)

    def saved_values(self) -> dict[str, object]:
        """Return the values to save; arrays flat."""
        biases = self.biases_array
        return {
            "descriptor": self._descriptor,
            "weights": tuple(self.weights_array.ravel().tolist()),
            "biases": None if biases is None else tuple(biases.tolist()),
            "kernel_weights_data_type": np.dtype(self._kernel_weights_data_type).name,
            "label": self._label,
        }

    def __eq__(self, other: object) -> bool:
        """Whether both deliver equal values."""
        return self.saved_values() == other.saved_values() if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # arrays change

    def __repr__(self) -> str:
        biases = "without biases" if self.biases_array is None else "with biases"
        return f"<{type(self).__name__}: weights {self.weights_array.shape}, {biases}>"


def _numbers(name: str, value: ArrayLike) -> Array:
    """Return a float32 copy of an array of real numbers."""
    array = as_array(name, value)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} has dtype {array.dtype}; it must be an array of real numbers")
    return copied(name, array, np.float32)


REQUIRED = ("load", "data_type", "descriptor", "weights", "bias_terms", "label", "purge")
DATA_TYPES = ("uint8", "float16", "float32")
KERNEL_TYPES = ("float16", "float32")


@dataclass(frozen=True, eq=False)
class LoadedWeights:
    """The weights of a kernel, decoded, folded and rounded; the arrays are read-only."""

    descriptor: MPSCNNConvolutionDescriptor
    """A copy of that of the data source."""
    weights: Array
    """In the shape of the layout; float32 (float64 after an update in float64)."""
    biases: Array | None
    """(Co,), or ``None``; float32 like the weights."""
    data_type: str
    """The type of the weights in the data source."""
    kernel_type: str
    """The type that the weights are rounded to."""
    label: str | None
    from_data_source: bool = True
    """Whether the data source delivered them; otherwise a state did."""

    @functools.cached_property
    def fixed(self) -> tuple[object, ...]:
        """What a reload may not change of the descriptor, of which the copy here never changes."""
        return self.descriptor.fixed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LoadedWeights):
            return NotImplemented
        mine, theirs = (
            (w.descriptor, w.kernel_type, w.label, w.weights.tobytes(), w.biases is None or w.biases.tobytes())
            for w in (self, other)
        )
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]


def load(source: MPSCNNConvolutionDataSource) -> LoadedWeights:
    """Run the load sequence of a data source; return copies of its values.

    Raises ``TypeError`` for a missing method and for arrays of another dtype than announced, ``OrderError`` if
    ``load()`` does not return true, ``ValueError`` (or ``ShapeError``) for values that do not fit. ``purge`` is called
    in any case.
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
            raise OrderError(f"data_source.load() returned {shown(ready)}; it must return True once the data is ready")
        data_type = _type_name("data_type", source.data_type(), DATA_TYPES)
        descriptor = MPSCNNConvolutionDescriptor._checked_copy("data_source.descriptor()", source.descriptor())
        stored = _array("weights()", source.weights(), data_type)
        given = source.bias_terms()
        decoded = _decoder(source, descriptor) if data_type == "uint8" else _as_float64
        layout = _called(source, "weights_layout", MPSCNNConvolutionWeightsLayout.OHWI)
        member("data_source.weights_layout()", layout, MPSCNNConvolutionWeightsLayout)
        kernel_type = _kernel_type(source, data_type)
        label = label_like("data_source.label()", source.label())
        weights = decoded(shaped("data_source.weights()", stored, descriptor.weights_shape))
        biases = None
        if given is not None:
            shape = (descriptor.output_feature_channels,)
            biases = _array("bias_terms()", given, "float32", shape, ", one for each output channel")
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
    """Return a read-only view of an array."""
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
    """Return an array of weights in the shape of the layout; it may be flat, or have a trailing 1 for depthwise.

    Raises ``ShapeError`` for another shape.
    """
    size = math.prod(shape)
    if array.shape == shape or array.shape == (size,) or (len(shape) == 3 and array.shape == (*shape, 1)):
        return array.reshape(shape)
    message = f"{name} has shape {array.shape}; it must be {shape} or flat with {size} values"
    if array.ndim == 4 and (array.shape[0], *array.shape[2:], array.shape[1]) in (shape, (*shape, 1)):
        message += "; this looks like (out, in, height, width): use weights.transpose(0, 2, 3, 1)"
    raise ShapeError(message)


def _type_name(method: str, value: DTypeLike | MPSDataType, legal: tuple[str, ...]) -> str:
    """Return the name of a type that a method returned, one of the legal ones."""
    if isinstance(value, MPSDataType):
        value = value.dtype
    try:
        name = np.dtype(value).name if value is not None else "None"
    except TypeError:
        name = repr(value)
    if name not in legal:
        raise ValueError(
            f"data_source.{method}() returned {shown(value)}; it must be one of {', '.join(map(repr, legal))}"
        )
    return name


def _array(method: str, value: object, dtype: str, shape: Shape | None = None, hint: str = "") -> Array:
    """Return the value of a method as an array, which must have this dtype and shape."""
    array = np.asarray(as_array(f"data_source.{method}", value))  # parameters are decoded on the host
    if array.dtype.newbyteorder("=").name != dtype:
        raise TypeError(
            f"data_source.{method} has dtype {array.dtype}; it must be {dtype}: convert it with .astype(numpy.{dtype})"
        )
    if shape not in (None, array.shape):
        raise ShapeError(f"data_source.{method} has shape {array.shape}; it must be {shape}{hint}")
    return array


def _called(source: object, name: str, default: object) -> Any:
    """Return the value of an optional method of a data source, or ``default``."""
    method = getattr(source, name, None)
    return method() if callable(method) else default


def _kernel_type(source: object, data_type: str) -> str:
    name = "kernel_weights_data_type"
    kernel_type = _type_name(name, _called(source, name, "float16"), KERNEL_TYPES)
    if data_type != "float32" and kernel_type != "float16":
        raise ValueError(
            f"data_source.{name}() returned {shown(kernel_type)}; with {data_type} weights it must be 'float16'"
        )
    return kernel_type


def _as_float64(weights: Array) -> Array:
    return weights.astype(np.float64)


def _decoder(source: object, descriptor: MPSCNNConvolutionDescriptor) -> Callable[[Array], Array]:
    """Return the function that decodes 8-bit weights. Source: both formulas [doc]."""
    name = "data_source.weights_quantization_type()"
    given = _called(source, "weights_quantization_type", MPSCNNWeightsQuantizationType.NONE)
    kind = member(name, given, MPSCNNWeightsQuantizationType)
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


def _table(source: object, name: str, shape: Shape) -> Array:
    """Return a float32 table that 8-bit weights need, in float64."""
    value = _called(source, name, None)
    if value is None:
        raise ValueError(f"data_source has no {name}(); its 8-bit weights need one, float32 of shape {shape}")
    return _array(f"{name}()", value, "float32", shape).astype(np.float64)


class ConvolutionBuffers(NamedTuple):
    """Read-only weights and biases, as kernels read them."""

    weights: Array
    """In the shape of the layout: output channel, row, column, input channel of the group."""
    biases: Array | None
    """One for each output channel, or ``None`` where the convolution has none."""


class MPSCNNConvolutionWeightsAndBiasesState(SynchronizedState):
    """The weights and biases of a convolution.

    Kernels export and reload the state and optimizers write it, with :meth:`device_read` and :meth:`device_write`, in
    the order in which they are encoded. The host reads it after :meth:`synchronize`.

    Parameters
    ----------
    weights : array_like, optional
        A float32 buffer. As in MPS the state shares an array that may be written: it has what the caller writes into
        it, and kernels that write the state write into it. Other values, such as lists, are copied.
    weights_offset : int, default 0
        Where its numbers start, in bytes, a multiple of 4; with a ``cnn_convolution_descriptor``. ``(weights, biases)``
        is also legal.
    biases : array_like, optional
        As ``weights``; ``None`` makes a state without biases.
    biases_offset : int, default 0
        As ``weights_offset``.
    cnn_convolution_descriptor : MPSCNNConvolutionDescriptor, optional
        The convolution. Without buffers, it allocates zeros, and may be the only argument.

    Raises
    ------
    TypeError, ValueError
        For another dtype, and for buffers that are too short.

    Examples
    --------
    >>> state = MPSCNNConvolutionWeightsAndBiasesState(MPSCNNConvolutionDescriptor(3, 1, 1, 1))
    >>> state.device_write(np.ones((1, 1, 3, 1), np.float32))
    >>> state.synchronize()
    >>> state.weights.ravel().tolist(), state.biases.tolist()
    ([1.0, 1.0, 1.0], [0.0])
    """

    _weights: Buffer
    _biases: Buffer | None

    def __init__(
        self,
        weights: ArrayLike | MPSCNNConvolutionDescriptor | None = None,
        weights_offset: int | ArrayLike | None = 0,
        biases: ArrayLike | None = None,
        biases_offset: int = 0,
        cnn_convolution_descriptor: MPSCNNConvolutionDescriptor | None = None,
    ) -> None:
        if weights_offset is None or as_array("weights_offset", weights_offset).ndim:
            if biases is not None:
                raise TypeError(f"weights_offset is {shown(weights_offset)}; it must be an integer, in bytes")
            weights_offset, biases = 0, weights_offset
        descriptor = cnn_convolution_descriptor
        if weights is None:
            weights, descriptor = descriptor, None
        self._weights_offset = _byte_offset("weights_offset", weights_offset)
        self._biases_offset = _byte_offset("biases_offset", biases_offset)
        if isinstance(weights, MPSCNNConvolutionDescriptor):
            if biases is not None or descriptor is not None:
                raise TypeError(
                    "weights is a descriptor, and biases or cnn_convolution_descriptor are given; pass a descriptor "
                    "alone, or buffers and cnn_convolution_descriptor="
                )
            weights.check()
            channels = weights.output_feature_channels
            made = np.zeros(weights.weights_shape, np.float32), np.zeros(channels, np.float32)
            self._weights, self._biases = (Buffer(immutable(array)) for array in made)
            return
        w = _buffer("weights", weights)  # type: ignore[arg-type]  # None raises there
        b = None if biases is None else _buffer("biases", biases)
        if descriptor is not None:
            instance_of("cnn_convolution_descriptor", descriptor, MPSCNNConvolutionDescriptor).check()
            w = _from_offset("weights", w, self._weights_offset, descriptor.weights_shape)
            if b is not None:
                b = _from_offset("biases", b, self._biases_offset, (descriptor.output_feature_channels,))
        elif weights_offset or biases_offset:
            raise ValueError(
                "weights_offset and biases_offset need a cnn_convolution_descriptor, which says how many numbers follow"
            )
        self._weights, self._biases = Buffer.of(weights, w), None if b is None else Buffer.of(biases, b)

    @property
    def _buffers(self) -> ConvolutionBuffers:
        return ConvolutionBuffers(self._weights.array, None if self._biases is None else self._biases.array)

    @classmethod
    def sharing(cls, weights: Array, biases: Array | None) -> Self:
        """Return a state with read-only arrays, which are not copied."""
        state = object.__new__(cls)
        state._weights_offset = state._biases_offset = 0
        state._weights, state._biases = Buffer(weights), None if biases is None else Buffer(biases)
        return state

    @classmethod
    def temporary_state(cls, command_buffer: MPSCommandBuffer, descriptor: MPSCNNConvolutionDescriptor) -> Self:
        """Return a state of zeros for one command buffer, whose ``read_count`` is 1."""
        return cls(descriptor)._as_temporary(command_buffer)

    weights: Synchronized[Array] = Synchronized(
        "_buffers.weights", "The weights, read-only; ``NotSynchronizedError`` unless :meth:`synchronize` has completed."
    )
    biases: Synchronized[Array | None] = Synchronized(
        "_buffers.biases",
        "The biases, read-only, or ``None``; ``NotSynchronizedError`` unless :meth:`synchronize` has completed.",
    )
    weights_offset: Alias[int] = Alias("_weights_offset", "Where the weights started in their buffer, in bytes.")
    biases_offset: Alias[int] = Alias("_biases_offset", "Where the biases started in their buffer, in bytes.")

    def device_read(self, command_buffer: MPSCommandBuffer | None = None) -> ConvolutionBuffers:
        """Return the arrays of a kernel that is encoded now; ``OrderError`` for a committed command buffer."""
        check_encodable(command_buffer)
        self._read_by_kernel(command_buffer)
        return ConvolutionBuffers(self._weights.read(), None if self._biases is None else self._biases.read())

    def device_write(
        self, weights: ArrayLike, biases: ArrayLike | None = None, *, command_buffer: MPSCommandBuffer | None = None
    ) -> None:
        """Write copies of the results of a kernel that is encoded now.

        Parameters
        ----------
        weights : array_like
            In the shape of the state, or flat.
        biases : array_like, optional
            ``None`` keeps the biases.
        command_buffer : MPSCommandBuffer, optional
            The command buffer to encode on.

        Raises
        ------
        ShapeError, TypeError
            For arrays that do not fit. No error changes the state.
        ValueError
            For biases if the state has none, and for shared buffers that overlap.
        OrderError
            For a committed command buffer.
        """
        before = self._buffers
        check_encodable(command_buffer)
        self._check_usable(command_buffer)
        new = None
        if biases is not None:
            if before.biases is None:
                raise ValueError("biases are to be written, but the state has none; pass biases=None")
            new = _written("biases", biases, before.biases)
        values = _written("weights", weights, before.weights)
        check_buffers(weights=self._weights, biases=self._biases)
        self._weights = self._weights.written(values)
        if self._biases is not None and new is not None:
            self._biases = self._biases.written(new)
        self.written()

    def __repr__(self) -> str:
        biases = "without biases" if self._buffers.biases is None else "with biases"
        return f"<{type(self).__name__}: weights {self._buffers.weights.shape}, {biases}>"


def _byte_offset(name: str, value: object) -> int:
    if type(value) is int and value == 0:
        return value
    number = integer(name, value, low=0)
    if number % 4:
        raise ValueError(f"{name} is {number}; it is in bytes and must be a multiple of 4, the size of a float32")
    return number


def _buffer(name: str, value: ArrayLike) -> Array:
    """Return a float32 array (or float64, for work in float64)."""
    array = as_array(name, value)
    if array.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name} has dtype {array.dtype}; it must be float32: convert it with .astype(numpy.float32)")
    return array


def _from_offset(name: str, buffer: Array, offset: int, shape: Shape) -> Array:
    """Return the numbers of a buffer that begin at an offset in bytes, in a shape."""
    first, size = offset // 4, math.prod(shape)
    if not is_contiguous(buffer):
        raise ValueError(f"{name} has gaps between its elements, strides {buffer.strides}; pass a C-contiguous array")
    if first + size > buffer.size:
        raise ShapeError(
            f"{name} has {4 * buffer.size} bytes; from {name}_offset {offset} on it must have {4 * size}, for {shape}"
        )
    return buffer.reshape(-1)[first : first + size].reshape(shape)


def _written(name: str, value: ArrayLike, before: Array) -> Array:
    new = shaped(name, _buffer(name, value), before.shape)
    return immutable(copied(name, new, new.dtype))
