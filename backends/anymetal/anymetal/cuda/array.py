"""Arrays in device memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..interface import LaunchError
from . import driver
from .memory import Memory, MemoryDevice

CUDA = 2
"""The device type kDLCUDA of DLPack."""

RANK = 6
"""Maximum number of axes of a copy."""

MOST = 2**32 - 1
"""Most elements that a kernel here counts."""

TYPES = {
    "float16": "half",
    "float32": "float",
    "uint8": "uchar",
    "int8": "char",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
}

COPY = f"""#include <metal_stdlib>

struct Copy {{
    uint count;
    uint shape[{RANK}];
    long source[{RANK}];  // strides in elements
    long target[{RANK}];
    long from;  // the first element
    long to;
}};

kernel void copy(device const Source* x [[buffer(0)]],
                 device Target* y [[buffer(1)]],
                 constant Copy& copy [[buffer(2)]],
                 uint id [[thread_position_in_grid]]) {{
    if (id >= copy.count) {{
        return;
    }}
    uint rest = id;
    long from = copy.from;
    long to = copy.to;
    for (int axis = {RANK - 1}; axis >= 0; --axis) {{
        uint at = rest % copy.shape[axis];
        rest /= copy.shape[axis];
        from += copy.source[axis] * long(at);
        to += copy.target[axis] * long(at);
    }}
    y[to] = Target(x[from]);
}}
"""
ELEMENTWISE = """#include <metal_stdlib>

kernel void elementwise(device const Element* x [[buffer(0)]],
                        device const Element* y [[buffer(1)]],
                        device Element* z [[buffer(2)]],
                        constant float* numbers [[buffer(3)]],
                        constant uint& count [[buffer(4)]],
                        uint i [[thread_position_in_grid]]) {
    if (i < count) {
        z[i] = Element(RESULT);
    }
}
"""

PARTS = 16
"""Maximum number of arrays that one launch joins."""

STRUCT = np.dtype(
    [
        *(
            ("count", "u4"),
            ("shape", "u4", (RANK,)),
            ("pad", "u4"),
            ("source", "i8", (RANK,)),
            ("target", "i8", (RANK,)),
        ),
        *(("from", "i8"), ("to", "i8")),
    ]
)


class ArrayOwner(MemoryDevice, Protocol):
    """The interface of a device for its arrays."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an uninitialized array."""
        ...

    def array(self, values: NDArray[Any]) -> Array:
        """Return a copy of a NumPy array."""
        ...

    def copy(self, source: Array, target: Array) -> None:
        """Copy the bytes of one array to another."""
        ...

    def download(self, array: Array) -> NDArray[np.uint8]:
        """Return the bytes of an array."""
        ...

    def set_bytes(self, array: Array, value: int) -> None:
        """Set all bytes of an array."""
        ...

    def active(self) -> AbstractContextManager[None]:
        """Make this the current device of the thread."""
        ...

    def foreign_stream(self, handle: int) -> Any:
        """Return the stream at an address."""
        ...

    def kernel(self, source: str, /) -> Any:
        """Compile MSL."""
        ...


class Array:
    """An array in the memory of an NVIDIA GPU, returned by ``Device.buffer`` and by calls with arrays on the device.

    Views (slices, ``transpose``, ``reshape`` of contiguous arrays) share the memory. ``numpy.asarray(array)`` waits and
    copies the array to the host. ``torch.from_dlpack``, ``cupy.from_dlpack`` and consumers of
    ``__cuda_array_interface__`` use it without a copy, ordered after the launches that write it.
    """

    __slots__ = ("_strides", "address", "dtype", "is_writable", "memory", "offset", "shape", "size")

    def __init__(
        self,
        memory: Memory,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        """View ``memory`` from byte ``offset`` on; ``strides`` are in bytes, default: C order."""
        self.memory, self.shape, self.dtype, self.offset = memory, shape, np.dtype(dtype), offset
        self.address = memory.address + offset
        """The address of the first element."""
        self.size = math.prod(shape)
        """The number of elements."""
        self._strides = strides if strides is not None and strides != self._in_order() else None
        self.is_writable = not getattr(memory.owner, "readonly", False)
        """Whether the owner of the memory, and :meth:`setflags`, allow writes."""

    def _in_order(self) -> tuple[int, ...]:
        sizes = [max(length, 1) for length in self.shape]
        return tuple([self.dtype.itemsize * math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))])

    # ------------------------------------------------------------------------------------------ properties

    @property
    def device(self) -> ArrayOwner:
        """The device of the memory."""
        return cast(ArrayOwner, self.memory.device)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances of the elements of each axis, in bytes."""
        return self._in_order() if self._strides is None else self._strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the array is C-contiguous."""
        if self._strides is None or self.size < 2:
            return True
        ordered = zip(self.shape, self._strides, self._in_order(), strict=True)
        return all(length == 1 or stride == wanted for length, stride, wanted in ordered)

    def setflags(self, write: bool) -> None:
        """Make this view of the memory read-only (``write=False``)."""
        self.is_writable = self.is_writable and write

    def overlaps(self, other: Any) -> bool:
        """Return whether the array may share memory with ``other``: their address ranges overlap."""
        if not isinstance(other, Array) or not self.size or not other.size:
            return False
        (first, end), (other_first, other_end) = self._extent(), other._extent()
        return first < other_end and other_first < end

    def _extent(self) -> tuple[int, int]:
        steps = [stride * (length - 1) for stride, length in zip(self.strides, self.shape, strict=True)]
        lowest = self.address + sum(min(step, 0) for step in steps)
        return lowest, self.address + sum(max(step, 0) for step in steps) + self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"cuda.Array(shape={self.shape}, dtype={self.dtype}, device={self.device.index})"

    # ------------------------------------------------------------------------------------------ views

    def _of(self, shape: tuple[int, ...], dtype: DTypeLike, strides: tuple[int, ...] | None, offset: int) -> Array:
        """Return another view of the memory, read-only if this one is."""
        made = Array(self.memory, shape, dtype, strides, offset)
        made.is_writable = self.is_writable
        return made

    def _view(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Array:
        """Return the view that corresponds to ``change`` on a NumPy array of these strides, which is never read."""
        model = as_strided(np.empty(1, self.dtype), self.shape, self.strides)
        seen = change(model)
        moved = seen.__array_interface__["data"][0] - model.__array_interface__["data"][0]
        return self._of(seen.shape, seen.dtype, seen.strides, self.offset + moved)

    def __getitem__(self, key: Any) -> Array:
        """Return a view; ``key`` has integers, slices, ``...`` and ``None``."""
        keys = key if isinstance(key, tuple) else (key,)
        if not all(one is None or one is Ellipsis or isinstance(one, (int, np.integer, slice)) for one in keys):
            raise TypeError("an array on a device is indexed with integers and slices; copy it with numpy.asarray")
        if self._strides is None and len(keys) == self.ndim and all(type(one) is slice for one in keys):
            bounds = [one.indices(length) for one, length in zip(keys, self.shape, strict=True)]
            if bounds[1:] == [(0, length, 1) for length in self.shape[1:]] and bounds[0][2] == 1:
                first, end, _ = bounds[0]
                shape = max(end - first, 0), *self.shape[1:]
                row = self.dtype.itemsize * math.prod(self.shape[1:])
                return self._of(shape, self.dtype, None, self.offset + first * row)
        return self._view(lambda model: model[(*keys, ...)] if Ellipsis not in keys else model[keys])

    def transpose(self, *axes: int) -> Array:
        """Return a view with permuted axes."""
        return self._view(lambda model: model.transpose(*axes))

    def swapaxes(self, first: int, second: int) -> Array:
        """Return a view with two axes exchanged."""
        return self._view(lambda model: model.swapaxes(first, second))

    def reshape(self, *shape: Any) -> Array:
        """Return a view with another shape, or a copy if the array is not C-contiguous."""
        if not self.is_contiguous:
            return self.copy().reshape(*shape)
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if math.prod(wanted) == self.size and min(wanted, default=1) > 0:
            return self._of(wanted, self.dtype, None, self.offset)
        lengths = np.broadcast_to(np.uint8(0), self.shape).reshape(*shape).shape if self.size else shape[-1]
        return self._of(tuple(lengths), self.dtype, None, self.offset)

    def ravel(self) -> Array:
        """Return a vector: a view, or a copy if the array is not C-contiguous."""
        return self.reshape(self.size)

    def view(self, dtype: DTypeLike | None = None) -> Array:
        """Return a view of the same shape, or of a contiguous array as a vector of another dtype."""
        if dtype is None:
            return self._of(self.shape, self.dtype, self._strides, self.offset)
        return self._of((self.nbytes // np.dtype(dtype).itemsize,), dtype, None, self.offset)

    # ------------------------------------------------------------------------------------------ copies on the device

    def copy(self) -> Array:
        """Return a copy in C order."""
        return self.astype(self.dtype)

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Array:
        """Return a C-contiguous copy of a dtype, or the array itself if ``copy`` is false and no copy is needed."""
        if not copy and self.dtype == dtype and self.is_contiguous:
            return self
        made = self.device.empty(self.shape, dtype)
        made[...] = self
        return made

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return a new uninitialized array on the same device."""
        return self.device.empty(shape, dtype)

    def upload(self, values: NDArray[Any]) -> Array:
        """Return a copy of a NumPy array on the same device."""
        return self.device.array(values)

    def joined(self, others: Sequence[Array]) -> Array:
        """Return this array and ``others``, of one dtype, one after the other along the first axis."""
        parts = [part if part.is_contiguous else part.copy() for part in (self, *others)]
        made = self.empty((sum(part.shape[0] for part in parts), *self.shape[1:]), self.dtype)
        start = 0
        for k in range(0, len(parts), PARTS):
            group = parts[k : k + PARTS]
            end = start + sum(part.shape[0] for part in group)
            _join(group, made[start:end])
            start = end
        return made

    def __add__(self, other: Array) -> Array:
        return self._elementwise("x[i] + y[i]", other)

    def __mul__(self, factor: float) -> Array:
        return self._elementwise("numbers[0] * x[i]", self, factor)

    def __truediv__(self, divisor: float) -> Array:
        return self._elementwise("x[i] / numbers[0]", self, divisor)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Raise ``TypeError``: NumPy would copy the array to the host."""
        raise TypeError(f"numpy.{ufunc.__name__} does not compute with {self!r}: pass numpy.asarray(array)")

    def mixed(self, other: Array, own: float, its: float) -> Array:
        """Return ``own * self + its * other``."""
        return self._elementwise("numbers[0] * x[i] + numbers[1] * y[i]", other, own, its)

    def _elementwise(self, result: str, other: Array, *numbers: float) -> Array:
        """Return a new array whose elements are an expression of MSL, computed in float32."""
        if not isinstance(other, Array):
            return NotImplemented
        operands = [array if array.is_contiguous else array.copy() for array in (self, other)]
        if self.dtype.name not in ("float16", "float32") or (other.dtype, other.shape) != (self.dtype, self.shape):
            raise TypeError(f"{self!r} and {other!r} must be arrays of one shape, both float32 or both float16")
        made = self.empty(self.shape, self.dtype)
        kernel = self.device.kernel(_elementwise_source(self.dtype, result))
        values = np.array(numbers or (0,), np.float32)
        kernel.function("elementwise")(self.size, *operands, made, values, np.uint32(_counted(self)))
        return made

    def fill(self, value: float) -> None:
        """Set all elements."""
        if value == 0 and self.is_contiguous and self.is_writable:
            self.device.set_bytes(self, 0)
        else:
            self[...] = value

    def __setitem__(self, key: Any, value: ArrayLike | Array) -> None:
        if not self.is_writable:
            raise ValueError(f"{self!r} is read-only")
        target = self if key is Ellipsis else self[key]
        source = value if isinstance(value, Array) else self.device.array(np.asarray(value, self.dtype))
        if source.shape != target.shape:
            source = source._view(lambda model: np.broadcast_to(model, target.shape))
        if not target.size or (source.address == target.address and source.strides == target.strides):
            return
        if source.dtype == target.dtype and source.is_contiguous and target.is_contiguous:
            self.device.copy(source, target)
        else:
            _copy_elements(source, target)

    # ------------------------------------------------------------------------------------------ exchange

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array on the device cannot be a NumPy array without a copy")
        source = self if self.is_contiguous else self.copy()
        found = self.device.download(source).view(self.dtype).reshape(self.shape)
        return found if dtype is None else found.astype(dtype, copy=False)

    def tolist(self) -> Any:
        """Return the elements as nested lists, copied to the host."""
        return np.asarray(self).tolist()

    def __buffer__(self, flags: int) -> memoryview:
        """Return the contents copied to the host; used by NumPy from Python 3.12 on."""
        return self.__array__().data

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.address, False),
            "shape": self.shape,
            "strides": None if self.is_contiguous else self.strides,
            "typestr": self.dtype.str,
            "stream": int(self.memory.stream.handle),
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the array; the consumer's ``stream`` is None or 1 (legacy default stream), -1 (none) or an address."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("an array on the device is exported there, without a copy")
        if stream != -1:
            with self.device.active():
                self.memory.use_on(self.device.foreign_stream(1 if stream is None else stream))
        core, item = driver.core(), self.dtype.itemsize
        buffer = core.Buffer.from_handle(self.address, max(self.nbytes, 1), owner=self.memory)
        strides = tuple(stride // item for stride in self.strides)
        exported = core.utils.StridedMemoryView.from_buffer(buffer, self.shape, strides, dtype=self.dtype)
        return exported.__dlpack__(stream=-1, max_version=max_version)


@functools.cache
def _elementwise_source(dtype: np.dtype[Any], result: str) -> str:
    defined = f"#define Element {TYPES[dtype.name]}\n#define RESULT {result}"
    return f"#include <metal_stdlib>\n{defined}\n{ELEMENTWISE}"


@functools.cache
def _join_source(dtype: np.dtype[Any], count: int) -> str:
    name = TYPES[dtype.name]
    arguments = "".join(f"device const {name}* x{k} [[buffer({k})]], " for k in range(count))
    choices = "".join(f"i < ends[{k}] ? x{k}[i - ends[{k - 1}]] : " for k in range(1, count))
    return f"""#include <metal_stdlib>
kernel void join({arguments}device {name}* y [[buffer({count})]], constant uint* ends [[buffer({count + 1})]],
                 uint i [[thread_position_in_grid]]) {{
    if (i < ends[{count - 1}]) {{
        y[i] = i < ends[0] ? x0[i] : {choices}x0[0];
    }}
}}
"""


def _counted(array: Array) -> int:
    """Return the number of elements of a result, for kernels that count them in 32 bits."""
    if array.size > MOST:
        raise LaunchError(f"{array.size} elements in one launch: at most {MOST}; use parts of {array!r}")
    return array.size


def _copy_elements(source: Array, target: Array) -> None:
    """Copy arrays of any strides and dtypes with the kernel ``copy``."""
    types = [TYPES.get(array.dtype.name) for array in (source, target)]
    if None in types or target.ndim > RANK:
        raise LaunchError(
            f"no copy on the device from {source!r} to {target!r}: at most {RANK} axes of {', '.join(TYPES)}"
        )
    struct = np.zeros(1, STRUCT)
    struct["count"], struct["shape"] = _counted(target), 1
    struct["shape"][0, RANK - target.ndim :] = target.shape
    whole = []
    for strides, first, array in (("source", "from", source), ("target", "to", target)):
        item = array.dtype.itemsize
        struct[strides][0, RANK - target.ndim :] = [stride // item for stride in array.strides]
        below = sum(min(stride, 0) * (length - 1) for stride, length in zip(array.strides, array.shape, strict=True))
        struct[first] = -below // item
        whole.append(Array(array.memory, (array.size,), array.dtype, None, array.offset + below))
    text = "\n".join([f"typedef {types[0]} Source;", f"typedef {types[1]} Target;", COPY])
    target.device.kernel(text).function("copy")(target.size, *whole, struct)


def _join(parts: Sequence[Array], target: Array) -> None:
    """Copy the elements of contiguous arrays, one array after the other, with one launch."""
    parts = [part for part in parts if part.size]
    if not parts:
        return
    ends = np.cumsum([part.size for part in parts], dtype=np.uint32)
    kernel = target.device.kernel(_join_source(target.dtype, len(parts)))
    kernel.function("join")(_counted(target), *parts, target, ends)
