"""Arrays at the border: what users pass in, and what they get back.

Images are ``(N, H, W, C)``. Anything with ``__array__`` or DLPack goes in, in any layout and byte order; results are
C-contiguous, in native byte order, and never alias an input. Backends get an array of a subclass of ``ndarray`` as one
of the base class in the same memory.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from mpsref.arguments.device import is_on_device
from mpsref.arguments.parameters import integer
from mpsref.arguments.text import cut, shown
from mpsref.errors import ShapeError

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, ...]
ImageShape: TypeAlias = tuple[int, int, int, int]
DType: TypeAlias = np.dtype[Any]

DTYPES = ("float16", "float32", "float64")
"""The dtypes of images; float64 on the reference alone."""

OVERLAP_WORK = 1_000
"""Limit of the search for an address that two strided arrays share, which takes exponential time; slices need 1."""

_NAMES: dict[type, str] = {np.dtype(name).type: name for name in DTYPES}

MOST_AXES = 64
"""NumPy's limit of the rank of an array."""

AXIS_LIMIT = 2**31 - 1
"""The longest axis: per-axis tables hold 32-bit integers."""


def as_image(name: str, value: Any) -> Array:
    """Return ``value`` as an array (N, H, W, C) of one of the legal dtypes, without a copy where possible.

    ``N`` may be 0. Raises ``TypeError`` for what is no array or has another dtype, ``ShapeError`` for another rank and
    for an ``H``, ``W`` or ``C`` of 0.
    """
    array = value if type(value) is np.ndarray else as_array(name, value)
    if array.dtype.type not in _NAMES:
        raise TypeError(
            f"{name} has dtype {array.dtype}; it must be float16 or float32 (float64: reference only): "
            f"convert it, for example with .astype(numpy.float32)"
        )
    if array.ndim != 4 or not 0 < array.size <= AXIS_LIMIT:  # else no axis can be too short or too long
        _check_shape(name, array.shape)
    return array


def dtype_name(array: Array) -> str | None:
    """Return the name of an image's dtype in either byte order, or ``None`` for one that no image has."""
    return _NAMES.get(array.dtype.type)  # NumPy's own dtype.name takes 10 microseconds


def as_array(name: str, value: Any) -> Array:
    """Return anything array-like as an array of the base class, without a copy where possible.

    Raises ``TypeError`` for what is no array.
    """
    if type(value) is np.ndarray or is_on_device(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, and masks have no meaning here; pass {name}.filled(value)")
    dlpack_only = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
    try:
        array = np.from_dlpack(value) if dlpack_only else np.asarray(value)
    except Exception as first:  # an array library may raise anything at all
        try:
            array = np.from_dlpack(value)
        except Exception:
            raise TypeError(
                f"{name} of type {type(value).__name__} cannot be read as a NumPy array ({cut(first)}); "
                "pass a NumPy array, or an object with __array__ or DLPack on the CPU"
            ) from first
    return array


def _check_shape(name: str, shape: Shape) -> None:
    if len(shape) != 4:
        raise ShapeError(
            f"{name} has shape {tuple(shape)} of rank {len(shape)}; it must have rank 4, (N, H, W, C): "
            "a single image has N = 1"
        )
    n, height, width, c = shape
    if height < 1 or width < 1 or c < 1:
        raise ShapeError(f"{name} has shape {tuple(shape)}; H, W and C must be >= 1 (only N may be 0)")
    if n > AXIS_LIMIT or height > AXIS_LIMIT or width > AXIS_LIMIT or c > AXIS_LIMIT:
        raise ShapeError(f"{name} has shape {tuple(shape)}; each axis must be <= {AXIS_LIMIT}")


def is_shape(value: Any) -> bool:
    """Tell a shape, a tuple or list of numbers, from an image, which may be a list of arrays."""
    return isinstance(value, (tuple, list)) and not any(hasattr(n, "__len__") for n in value)


def as_shape(name: str, value: Any) -> ImageShape:
    """Return ``value`` as a legal shape (N, H, W, C)."""
    try:
        if type(value) is not tuple and isinstance(value, (str, bytes, bytearray, memoryview, Set, Mapping)):
            raise TypeError
        if hasattr(value, "__len__") and len(value) > MOST_AXES:
            raise ShapeError(f"{name} has {len(value)} elements; it must be a shape (N, H, W, C)")
        shape = tuple(value)
    except TypeError:
        raise TypeError(f"{name} is {shown(value)}; it must be a shape (N, H, W, C)") from None
    for length in shape:
        if type(length) is not int or length < 0:  # not the shape of an array; names for errors cost time
            shape = tuple(integer(f"{name}[{axis}]", n, low=0) for axis, n in enumerate(shape))
            break
    _check_shape(name, shape)
    n, height, width, c = shape
    return n, height, width, c


def taken(names: Collection[str]) -> frozenset[type]:
    """Return the types of the elements of images whose dtypes have these names."""
    return frozenset(kind for kind, name in _NAMES.items() if name in names)


def native(array: Array, name: str = "an input", *, strided: bool = False) -> Array:
    """Return ``array`` in native byte order, and C-contiguous unless ``strided``; a copy only where it is not so.

    Raises ``ShapeError`` if there is no memory for the copy.
    """
    if is_on_device(array):
        return array if is_contiguous(array) else array.copy()
    if array.dtype.isnative and (strided or array.flags.c_contiguous):
        return array
    try:
        _check_memory(array.nbytes)
        dtype = array.dtype.newbyteorder("=")
        return array.astype(dtype) if strided else np.ascontiguousarray(array, dtype)
    except MemoryError as error:
        raise ShapeError(
            f"{name} has shape {array.shape} ({array.dtype}); a contiguous copy of it has {array.nbytes} bytes, which "
            f"cannot be allocated ({error}); pass a smaller batch"
        ) from error


def _check_memory(nbytes: int) -> None:
    """Raise ``MemoryError`` for more bytes than this machine has, which its system may promise nevertheless."""
    if nbytes > machine_memory():
        raise MemoryError(f"this machine has {machine_memory()} bytes")


@functools.cache
def machine_memory() -> int:
    """Return the memory of this machine in bytes, or the limit of the container; a large number if it is unknown."""
    known = [sys.maxsize]
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not on Windows
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(known)


def available_memory() -> int:
    """Return how many bytes are left in this machine or container; all of them where the system does not say it."""
    known = [machine_memory()]
    with contextlib.suppress(OSError, KeyError, ValueError):  # only on Linux
        known.append(1024 * _numbers(Path("/proc/meminfo"))["MemAvailable:"])
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, KeyError, ValueError):  # no such file, or "max"
        used = int((group / "memory.current").read_text()) - _numbers(group / "memory.stat")["inactive_file"]
        known.append(int((group / "memory.max").read_text()) - used)
    return min(known)


def _numbers(file: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number in each line."""
    lines = map(str.split, file.read_text().splitlines())
    return {name: int(number) for name, number, *_ in lines}


def is_contiguous(array: Any) -> bool:
    """Return whether the elements of an array, on a device or not, lie in C order without gaps."""
    return bool(array.is_contiguous if is_on_device(array) else array.flags.c_contiguous)


def is_writable(array: Any) -> bool:
    """Return whether an array, on a device or not, may be written."""
    return bool(array.is_writable if is_on_device(array) else array.flags.writeable)


def is_array(value: object) -> TypeGuard[Array]:
    """Return whether ``value`` is a NumPy array or an array on a device."""
    return isinstance(value, np.ndarray) or is_on_device(value)


def concatenated(parts: Sequence[Any]) -> Array:
    """Return arrays one after the other along the first axis: on the device of one of them, if it is there."""
    for part in parts:
        if type(part) is not np.ndarray and is_on_device(part):
            first, *others = [placed_like(other, part) for other in parts]
            return cast(Array, first.joined(others))
    return np.concatenate(parts)


def filled(value: float, like: Any) -> Array:
    """Return an array of one value, of the shape and dtype of ``like``, and where it is."""
    made = empty("the result", like.shape, like.dtype, (like,))
    made.fill(value)
    return made


def placed_like(array: Any, other: Any) -> Any:
    """Return ``array`` where ``other`` is: a copy on its device, or the array itself."""
    return other.upload(array) if is_on_device(other) and not is_on_device(array) else array


def empty(name: str, shape: Shape, dtype: np.dtype[Any], sources: Iterable[Any] = ()) -> Array:
    """Allocate a result, on the device of ``sources`` if one of them is on a device.

    Raises ``ShapeError`` where its shape is beyond what this machine can hold.
    """
    for source in sources:
        if type(source) is not np.ndarray and is_on_device(source):
            return cast(Array, source.empty(shape, dtype))
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        if max(shape, default=0) > AXIS_LIMIT:
            raise ValueError(f"an axis is longer than {AXIS_LIMIT}")
        _check_memory(nbytes)
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise ShapeError(
            f"{name} would have shape {shape} ({dtype}, {nbytes} bytes), which cannot be allocated ({error}); choose a "
            "smaller size"
        ) from error


def copied(name: str, array: Array, dtype: npt.DTypeLike) -> Array:
    """Return a C-contiguous copy in a dtype of native byte order; raise ``ShapeError`` if there is no memory for it."""
    made = empty(name, array.shape, np.dtype(dtype).newbyteorder("="), (array,))
    with np.errstate(over="ignore"):  # a smaller dtype may overflow to infinity
        made[...] = array
    return made


def checked_out(name: str, out: Any, shape: Shape, dtype: np.dtype[Any], inputs: Sequence[Array]) -> Array:
    """Return the memory of the caller's ``out`` if a result of this shape and dtype may be written into it."""
    if type(out) is not np.ndarray:
        if not is_array(out) or isinstance(out, np.ma.MaskedArray):
            legal = f"it must be a NumPy array of shape {shape}, {dtype}"
            raise TypeError(f"{name} is of type {type(out).__name__}; {legal}")
        out = as_array(name, out)
    if out.shape != shape:
        raise ShapeError(f"{name} has shape {out.shape}; the result has shape {shape}")
    if out.dtype != dtype:
        raise TypeError(f"{name} has dtype {out.dtype}; the result has dtype {dtype}")
    check_written(name, out, [("an input", array) for array in inputs])
    return cast(Array, out)


def check_written(name: str, array: Any, others: Iterable[tuple[str, Any]], kind: str = "array") -> None:
    """Raise ``ValueError`` unless a kernel may write an array that shares no memory with itself or with ``others``."""
    is_usual = type(array) is np.ndarray  # then the attributes and bounds of NumPy suffice in most cases
    if not (array.flags.writeable if is_usual else is_writable(array)):
        raise ValueError(f"{name} is read-only; pass an {kind} that may be written")
    if not (is_usual and array.flags.c_contiguous):
        check_elements_apart(name, array)
    for other_name, other in others:
        if not is_usual or type(other) is not np.ndarray or np.may_share_memory(array, other):
            check_apart(name, array, other_name, other, f"kernels are out-of-place: pass another {kind}")


def check_apart(name: str, array: Any, other_name: str, other: Any, hint: str = "pass another array") -> None:
    """Raise ``ValueError`` if two arrays share memory, or if this cannot be decided in a short time."""
    if is_on_device(array) != is_on_device(other):
        return
    work: Any = OVERLAP_WORK  # NumPy annotates two special values alone
    try:
        if array.overlaps(other) if is_on_device(array) else np.shares_memory(array, other, max_work=work):
            raise ValueError(f"{name} shares memory with {other_name}; {hint}")
    except np.exceptions.TooHardError:
        raise ValueError(
            f"{name} may share memory with {other_name}: strides {array.strides} and {other.strides} are too irregular "
            f"to decide it; pass an array with memory of its own, or a copy of {other_name}"
        ) from None


def check_elements_apart(name: str, array: Any) -> None:
    """Raise ``ValueError`` if elements of an array that is written may share memory: its strides are not nested."""
    if array.size < 2 or is_contiguous(array):
        return
    extent = array.dtype.itemsize
    for stride, length in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < extent:
            raise ValueError(
                f"{name} overlaps itself: with shape {array.shape} and strides {array.strides} several elements share "
                "memory; pass an array without overlaps, for example of numpy.empty"
            )
        extent += stride * (length - 1)


def as_float(name: str, value: Any) -> Array:
    """Return ``value`` as an array of any shape and one of the dtypes of images."""
    array = as_array(name, value)
    if dtype_name(array) is None:
        raise TypeError(f"{name} has dtype {array.dtype}; it must be float16 or float32 (float64: reference only)")
    return array


def as_vector(name: str, value: Any, shape: Shape, *images: Array) -> Array:
    """Return ``value`` as an array of ``shape``: float32, or float64 where an image is float64.

    Raises ``TypeError`` for what is no array of real numbers, ``ShapeError`` for another shape.

    >>> as_vector("gamma", [1, 2], (2,))
    array([1., 2.], dtype=float32)
    """
    wide = np.result_type(np.float32, *(image.dtype.newbyteorder("=") for image in images))
    array = as_array(name, value)
    if array.dtype == wide and array.shape == shape:
        return array  # not a copy, so that an ``out`` that overlaps it is detected
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}; it must hold real numbers, one for each channel")
    if array.shape != shape:
        raise ShapeError(f"{name} has shape {array.shape}; it must be {shape}: one number for each channel")
    with np.errstate(over="ignore"):  # storing in float32 may overflow to infinity
        return array.astype(wide)
