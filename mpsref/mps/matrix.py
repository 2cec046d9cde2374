"""Matrices and vectors with Apple's names: arrays of matrices in a buffer, with an offset and strides in bytes.

Element (i, j) of matrix k begins at byte ``offset + k matrix_bytes + i row_bytes + j itemsize``.

>>> import numpy as np
>>> matrix = MPSMatrix(np.arange(8, dtype=np.float32), 4, MPSMatrixDescriptor(2, 2, row_bytes=12))
>>> matrix.to_array().tolist()
[[[1.0, 2.0], [4.0, 5.0]]]
>>> MPSVector(np.float32([1, 2])).length
2

Source: ``MPSMatrix.h`` [doc].
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from operator import itemgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array, DType, as_array, empty
from mpsref.arguments.parameters import integer
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.properties import Alias, NoNewAttributes, PropertyError, hinting, instance_of
from mpsref.mps.core.types import MPSDataType, member


class _Descriptor:
    """Sizes and strides; a stride of ``None`` is the smallest one, and is replaced by it when it is read."""

    _sizes: ClassVar[tuple[str, ...]]
    """The names of the lengths of the axes."""
    _steps: ClassVar[tuple[str, ...]]
    """The names of their strides, but for the last axis, whose elements follow each other."""
    data_type: MPSDataType

    def __setattr__(self, name: str, value: object) -> None:
        settable = *self._sizes, *reversed(self._steps), "data_type"
        if name not in settable:
            raise PropertyError(
                f"{type(self).__name__} has no property {shown(name)}; those that can be set are: {', '.join(settable)}"
            )
        if name == "data_type":
            value = member(name, value, MPSDataType)
        elif value is not None or name in self._sizes:
            value = integer(name, value, 1)
        object.__setattr__(self, name, value)

    dtype: Alias[DType] = Alias("data_type.dtype", "The dtype of NumPy.")

    def checked(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and strides; raise ``ValueError`` for strides that are too small, or no multiple."""
        if self.data_type is MPSDataType.UInt8:
            raise ValueError("data_type is UInt8; it must be Float32 or Float16")
        shape, strides = tuple(getattr(self, name) for name in self._sizes), [self.dtype.itemsize]
        for name, length in zip(reversed(self._steps), reversed(shape), strict=False):
            unit, given = strides[0], getattr(self, name)
            stride = length * unit if given is None else given
            if stride < length * unit or stride % unit:
                raise ValueError(
                    f"{name} is {stride}; it must be a multiple of {unit} bytes, and at least {length * unit}"
                )
            strides.insert(0, stride)
        return shape, tuple(strides)


@hinting
@dataclass
class MPSMatrixDescriptor(_Descriptor):
    """The sizes, strides and data type of an array of matrices.

    Parameters
    ----------
    rows, columns : int
        Size of a matrix, >= 1.
    matrices : int, default 1
        Number of matrices, >= 1.
    row_bytes, matrix_bytes : int, optional
        Distance in bytes of consecutive rows, a multiple of the size of an element, and of consecutive matrices, a
        multiple of ``row_bytes``; by default without a gap.
    data_type : MPSDataType, int or str, default "float32"
        ``Float32`` or ``Float16``.

    Raises
    ------
    TypeError, ValueError
        For a value that is not legal. Strides are checked when a matrix is made.
    """

    rows: int
    columns: int
    matrices: int = 1
    _: KW_ONLY
    row_bytes: int | None = None
    matrix_bytes: int | None = None
    data_type: MPSDataType = MPSDataType.Float32

    _sizes = "matrices", "rows", "columns"
    _steps = "matrix_bytes", "row_bytes"

    @classmethod
    def matrix_descriptor_with_rows_columns_row_bytes_data_type(
        cls, rows: int, columns: int, row_bytes: int, data_type: MPSDataType
    ) -> Self:
        """Return the descriptor of one matrix."""
        return cls(rows, columns, row_bytes=row_bytes, data_type=data_type)

    @classmethod
    def matrix_descriptor_with_rows_columns_matrices_row_bytes_matrix_bytes_data_type(
        cls, rows: int, columns: int, matrices: int, row_bytes: int, matrix_bytes: int, data_type: MPSDataType
    ) -> Self:
        """Return a new descriptor; equivalent to the constructor."""
        return cls(rows, columns, matrices, row_bytes=row_bytes, matrix_bytes=matrix_bytes, data_type=data_type)

    @staticmethod
    def row_bytes_for_columns(columns: int, data_type: MPSDataType) -> int:
        """Return the number of bytes of a row: here there is no faster distance of rows."""
        return integer("columns", columns, 1) * member("data_type", data_type, MPSDataType).dtype.itemsize


@hinting
@dataclass
class MPSVectorDescriptor(_Descriptor):
    """The length, stride and data type of an array of vectors.

    Parameters
    ----------
    length : int
        Number of elements of a vector, >= 1.
    vectors : int, default 1
        Number of vectors, >= 1.
    vector_bytes : int, optional
        Distance in bytes of consecutive vectors, a multiple of the size of an element; by default without a gap.
    data_type : MPSDataType, int or str, default "float32"
        ``Float32`` or ``Float16``.

    Raises
    ------
    TypeError, ValueError
        For a value that is not legal. The stride is checked when a vector is made.
    """

    length: int
    vectors: int = 1
    _: KW_ONLY
    vector_bytes: int | None = None
    data_type: MPSDataType = MPSDataType.Float32

    _sizes = "vectors", "length"
    _steps = ("vector_bytes",)

    @classmethod
    def vector_descriptor_with_length_data_type(cls, length: int, data_type: MPSDataType) -> Self:
        """Return the descriptor of one vector."""
        return cls(length, data_type=data_type)

    @classmethod
    def vector_descriptor_with_length_vectors_vector_bytes_data_type(
        cls, length: int, vectors: int, vector_bytes: int, data_type: MPSDataType
    ) -> Self:
        """Return a new descriptor; equivalent to the constructor."""
        return cls(length, vectors, vector_bytes=vector_bytes, data_type=data_type)

    @staticmethod
    def vector_bytes_for_length(length: int, data_type: MPSDataType) -> int:
        """Return the number of bytes of a vector: here there is no faster distance of vectors."""
        return integer("length", length, 1) * member("data_type", data_type, MPSDataType).dtype.itemsize


class _Stored(NoNewAttributes):
    """An array in a buffer."""

    _kind: ClassVar[type[_Descriptor]]
    _array: Array
    _offset: int

    def __init__(self, buffer: ArrayLike | None = None, offset: int = 0, descriptor: _Descriptor | None = None) -> None:
        name, self._offset = type(self).__name__, integer("offset", offset, 0)
        if descriptor is None:
            if buffer is None:
                raise TypeError(f"{name} needs a descriptor, or an array in the place of a buffer")
            if offset:
                raise ValueError(f"offset is {offset}; without a descriptor it must be 0")
            self._array = self._of(as_array("buffer", buffer))
            return
        instance_of("descriptor", descriptor, self._kind)
        shape, strides = descriptor.checked()
        needed = self._offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + strides[-1]
        if self._offset % strides[-1]:
            raise ValueError(
                f"offset is {offset}; it must be a multiple of the size of an element, {strides[-1]} bytes"
            )
        memory: Any = buffer
        if buffer is None:
            memory = empty(f"the {name}", (needed,), np.dtype(np.uint8))
            memory.fill(0)
        elif not isinstance(buffer, np.ndarray):
            raise TypeError(f"buffer is of type {type(buffer).__name__}; it must be a NumPy array, which is shared")
        if not memory.flags.c_contiguous or not memory.flags.writeable:
            raise ValueError("buffer is not contiguous or read-only; pass a contiguous array that may be written")
        if memory.nbytes < needed:
            raise ShapeError(f"buffer has {memory.nbytes} bytes; offset and descriptor need {needed}")
        flat = memory.reshape(-1).view(np.uint8)
        self._array = np.ndarray(shape, descriptor.dtype, flat, self._offset, strides)

    def _of(self, array: Array) -> Array:
        """Return an array that is given in the place of a buffer with all axes; its memory is shared."""
        rank = len(self._kind._sizes)
        if array.dtype not in (np.float32, np.float16):
            raise TypeError(f"buffer has dtype {array.dtype}; it must be float32 or float16")
        if array.ndim not in (rank - 1, rank) or not array.size:
            raise ShapeError(f"buffer has shape {array.shape}; it must have {rank - 1} or {rank} axes, and elements")
        if not array.flags.writeable:
            raise ValueError("buffer is read-only; pass an array that may be written, or a copy")
        return array if array.ndim == rank else array[None]

    @property
    def data_type(self) -> MPSDataType:
        """The type of an element."""
        return member("data_type", self._array.dtype.name, MPSDataType)

    offset: Alias[int] = Alias("_offset", "The first byte in the buffer.")
    data: Alias[Array] = Alias(
        "_array", "The elements, sharing the memory of the buffer: writing into this array writes into the object."
    )

    def to_array(self) -> Array:
        """Return a copy of the elements."""
        return self._array.copy()

    def synchronize(self, on_command_buffer: MPSCommandBuffer | None = None) -> None:
        """Check the command buffer: the host may read at any time. Raises ``OrderError`` for a committed one."""
        check_encodable(on_command_buffer)

    synchronize_on_command_buffer = synchronize

    @property
    def resource_size(self) -> int:
        """The number of bytes from the first element to the last one."""
        spans = zip(self._array.shape, self._array.strides, strict=True)
        return int(sum((n - 1) * stride for n, stride in spans)) + self._array.itemsize


class MPSMatrix(_Stored):
    """An array of matrices of one size.

    Parameters
    ----------
    buffer : ndarray, optional
        The memory, which is shared. Without it, memory of zeros. Without a descriptor, the matrices themselves: float32
        or float16, (rows, columns) or (matrices, rows, columns).
    offset : int, default 0
        The byte in the buffer at which the matrices begin, a multiple of the size of an element.
    descriptor : MPSMatrixDescriptor, optional
        Sizes, strides and type.

    Raises
    ------
    TypeError, ValueError
        For values that are not legal, also ``ShapeError`` for a buffer that is too small.
    """

    _kind = MPSMatrixDescriptor

    rows: Alias[int] = Alias("_array.shape", "The number of rows of a matrix.", itemgetter(1))
    columns: Alias[int] = Alias("_array.shape", "The number of columns of a matrix.", itemgetter(2))
    matrices: Alias[int] = Alias("_array.shape", "The number of matrices.", itemgetter(0))
    row_bytes: Alias[int] = Alias("_array.strides", "The distance of consecutive rows in bytes.", itemgetter(1))
    matrix_bytes: Alias[int] = Alias("_array.strides", "The distance of consecutive matrices in bytes.", itemgetter(0))

    def __repr__(self) -> str:
        return f"<MPSMatrix: {self.matrices} x {self.rows} x {self.columns}, {self.data_type.name}>"


class MPSVector(_Stored):
    """An array of vectors of one length.

    Parameters
    ----------
    buffer : ndarray, optional
        The memory, which is shared. Without it, memory of zeros. Without a descriptor, the vectors themselves: float32
        or float16, (length,) or (vectors, length).
    offset : int, default 0
        The byte in the buffer at which the vectors begin, a multiple of the size of an element.
    descriptor : MPSVectorDescriptor, optional
        Length, stride and type.

    Raises
    ------
    TypeError, ValueError
        For values that are not legal, also ``ShapeError`` for a buffer that is too small.
    """

    _kind = MPSVectorDescriptor

    length: Alias[int] = Alias("_array.shape", "The number of elements of a vector.", itemgetter(1))
    vectors: Alias[int] = Alias("_array.shape", "The number of vectors.", itemgetter(0))
    vector_bytes: Alias[int] = Alias("_array.strides", "The distance of consecutive vectors in bytes.", itemgetter(0))

    def __repr__(self) -> str:
        return f"<MPSVector: {self.vectors} x {self.length}, {self.data_type.name}>"
