"""Conversion of Python values to the arguments of a kernel, by the types in its declaration."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from reprlib import repr as shorten
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .frontend.kernels import TENSOR
from .frontend.signature import LAYOUT, At, Member, Parameter, Pointer, Record
from .interface import LaunchError

EQUIVALENT = {"bool": "uint8", "bfloat16": "uint16"}
"""Dtypes that hold the same bits, and are accepted as well."""


def as_number(value: Any, dtype: str | None, what: str) -> bytes:
    """Return the bytes of a Python number as a dtype; raise LaunchError if it is out of range."""
    if dtype is None:
        raise LaunchError(
            f"{what}: its type is not that of a number: pass a NumPy scalar, a structured array, or bytes"
        )
    is_float = dtype.endswith(("float16", "float32"))
    if isinstance(value, bool) != (dtype == "bool") or (isinstance(value, float) and not is_float):
        raise TypeError(f"{what}: its type is {dtype}, not {shorten(value)} of type {type(value).__name__}")
    if not is_float:
        least, most = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not least <= value <= most:
            raise LaunchError(f"{what}: its type is {dtype}, from {least} to {most}, not {shorten(value)}")
        return np.array(value, dtype).tobytes()
    with np.errstate(over="ignore"):
        try:
            number = np.float64(value)
        except OverflowError:  # an int beyond float64
            number = np.float64(math.inf)
        bits = bfloat(number.astype(np.float32)) if dtype == "bfloat16" else number.astype(dtype)
    finite = np.uint32(int(bits) << 16).view(np.float32) if dtype == "bfloat16" else bits
    if math.isinf(finite) and not (isinstance(value, float) and math.isinf(value)):
        raise LaunchError(f"{what}: its type is {dtype}, and {shorten(value)} is too large for it")
    return bytes(bits.tobytes())


def bfloat(number: np.float32) -> np.uint16:
    """Return the upper half of a float, rounded to nearest, ties to even."""
    bits = int(number.view(np.uint32))
    return np.uint16(0x7FC0 if np.isnan(number) else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def check_array(array: Any, known: Parameter, what: str) -> None:
    """Raise for an array or a scalar of NumPy that does not hold the elements of a parameter, or cannot be changed."""
    check_memory(array, known.is_written, what)
    name, found = known.dtype, array.dtype
    if name is not None and (name_of(found) not in (name, EQUIVALENT.get(name)) or not found.isnative):
        raise LaunchError(f"{what}: its elements have the dtype {name}, not {found}")
    if found.fields is not None and found.itemsize != known.nbytes:
        raise LaunchError(f"{what}: its elements have {known.nbytes} bytes, and the dtype {found.itemsize}{LAYOUT}")
    if name is None and 1 < known.nbytes < found.itemsize:  # 1: void, too
        raise LaunchError(f"{what}: its elements have {known.nbytes} bytes, and those of {found} {found.itemsize}")


def check_memory(array: Any, is_written: int, what: str) -> None:
    """Raise for an array of NumPy whose memory a kernel cannot use, or not change."""
    if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):  # its import takes 30 ms
        raise TypeError(f"{what}: the mask of a masked array would be lost; pass its data")
    if array.dtype.hasobject:
        raise TypeError(f"{what}: the array holds Python objects; pass an array of numbers")
    if not array.flags.c_contiguous:
        raise LaunchError(f"{what}: the array is not C-contiguous: pass numpy.ascontiguousarray(...)")
    if array.size == 0:
        raise LaunchError(f"{what}: the array has no elements, of shape {array.shape}; a buffer has a byte or more")
    if is_written and isinstance(array, np.ndarray) and not array.flags.writeable:
        raise LaunchError(f"{what}: the kernel may write it, and the array is read-only; pass a copy")


@functools.lru_cache(maxsize=256)
def name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, which NumPy composes anew each time."""
    return dtype.name


def record(known: Parameter, value: Any, what: str, table: Any = None, index: int = 0) -> Record:
    """Return a mapping from members to values, or for a pointer several of them, as structs with pointers.

    Their textures become entries of the table of the launch.
    """
    rows = [value] if isinstance(value, Mapping) or known.is_reference else value
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(
            f"{what}: it holds pointers: pass a mapping from the names of its members, {', '.join(known.members)}, to "
            f"arrays and numbers, not {shorten(value)}"
        )
    data, pointers, textures = bytearray(known.nbytes * len(rows)), dict[int, Pointer](), dict[int, int]()
    for i, row in enumerate(rows):
        given, of_row = dict(_flat(row)), f"{i}." if len(rows) > 1 else ""
        if given.keys() != known.members.keys():
            wrong = next(iter(given.keys() ^ known.members.keys()))
            problem = "is missing" if wrong in known.members else "is unknown"
            raise LaunchError(f"{what}: the member {wrong!r} {problem}; it has {', '.join(known.members)}")
        for name, member in known.members.items():
            place = known.nbytes * i + member.offset
            if member.image:
                for i_th, one in enumerate(_several(member, given[name], f"the member `{name}` of {what}")):
                    here, place_of_one = f"the member `{name}` of {what}", place + 8 * i_th
                    if member.image.kind == SAMPLER:
                        data[place_of_one : place_of_one + 8] = table.sampler(one, here)
                    else:
                        key = f"{index}.{of_row}{name}" + (f"[{i_th}]" if member.length > 1 else "")
                        textures[place_of_one] = table.add(key, member.image, one, here)
            elif member.is_pointer:
                targets = _pointers(member, given[name], place, f"the member `{name}` of {what}")
                pointers |= {at: one._replace(name=of_row + one.name) for at, one in targets.items()}
            else:
                number = _value(member, given[name], f"the member `{name}` of {what}")
                data[place : place + len(number)] = number
    return Record(bytes(data), pointers, textures)


SAMPLER = 255
"""The kind of a sampler among those of textures."""


def tensor(known: Parameter, value: Any, what: str) -> Record:
    """Return an array as a tensor, whose first dimension is the last axis of the array."""
    given = At.of(value)
    array, size = given.buffer, known.element.nbytes
    if not isinstance(array, np.ndarray) or given.offset:
        raise TypeError(f"{what}: a tensor is an array of NumPy, without an offset, not {shorten(value)}")
    if array.ndim != known.rank:
        raise LaunchError(f"{what}: it has {known.rank} dimensions, and the array {array.ndim}")
    first = array[(slice(1),) * array.ndim].reshape(-1)
    check_array(first, known.element, what)
    steps = [step for step, length in zip(array.strides, array.shape, strict=True) if length > 1]
    if any(step <= 0 or step % size for step in steps) or (array.shape[-1] > 1 and array.strides[-1] != size):
        raise LaunchError(
            f"{what}: the strides of the array are {array.strides} bytes; those of a tensor are positive multiples of "
            f"{size}, and that of the last axis is {size}: pass numpy.ascontiguousarray(...)"
        )
    count = sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)) // size + 1
    whole = array if array.flags.c_contiguous else as_strided(first, (count,), (size,))
    lengths, strides = known.members[TENSOR[1]], known.members[TENSOR[2]]
    data = bytearray(known.nbytes)
    for member, numbers in ((lengths, array.shape), (strides, [step // size for step in array.strides])):
        part = np.array(numbers[::-1], f"i{member.about.nbytes}").tobytes()
        data[member.offset : member.offset + len(part)] = part
    return Record(bytes(data), {0: Pointer("data", known.element, given._replace(buffer=whole))})


def _flat(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a mapping; those of a mapping in it are ``outer.inner``."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", one) for inner, one in _flat(value))
        else:
            yield name, value


def _pointers(member: Member, value: Any, place: int, what: str) -> dict[int, Pointer]:
    """Return the pointers of a member by their offsets; ``None`` is a null pointer."""
    found = {}
    for i, one in enumerate(_several(member, value, what)):
        target = one if isinstance(one, At) else At(one, 0)
        array = target.buffer
        if array is None:
            continue
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{what}: it is a pointer, pass an array of NumPy, not {shorten(array)}")
        check_array(array, member.about, what)
        name = f"{member.about.text}[{i}]" if member.length > 1 else member.about.text
        found[place + 8 * i] = Pointer(name, member.about, target)
    return found


def _several(member: Member, value: Any, what: str) -> Sequence[Any]:
    """Return the values of a member that is one pointer, texture or sampler, or an array of such."""
    values = [value] if member.length == 1 else value
    if not isinstance(values, Sequence) or len(values) != member.length:
        raise TypeError(f"{what}: it is a sequence of {member.length} arrays, not {shorten(value)}")
    return values


def _value(member: Member, value: Any, what: str) -> bytes:
    """Return the bytes of a member that is no pointer."""
    wanted = member.length * member.about.nbytes
    if isinstance(value, (np.ndarray, np.generic)):
        check_array(value, member.about._replace(is_written=0), what)
    elif not isinstance(value, bytes):
        value = as_number(value, member.about.dtype, what)
    data = bytes(value) if isinstance(value, bytes) else value.tobytes()
    if len(data) != wanted:
        raise LaunchError(f"{what}: it has {wanted} bytes, not {len(data)}{LAYOUT if wanted > 8 else ''}")
    return data
