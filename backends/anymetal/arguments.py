"""Conversion of Python values to the arguments of a kernel, by the types in its declaration."""

from __future__ import annotations

import math
import sys
from reprlib import repr as shorten
from typing import Any

import numpy as np

from . import LaunchError
from .frontend.signature import LAYOUT, Parameter

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
        bits = _bfloat(number.astype(np.float32)) if dtype == "bfloat16" else number.astype(dtype)
    finite = np.uint32(int(bits) << 16).view(np.float32) if dtype == "bfloat16" else bits
    if math.isinf(finite) and not (isinstance(value, float) and math.isinf(value)):
        raise LaunchError(f"{what}: its type is {dtype}, and {shorten(value)} is too large for it")
    return bytes(bits.tobytes())


def _bfloat(number: np.float32) -> np.uint16:
    """Return the upper half of a float, rounded to nearest, ties to even."""
    bits = int(number.view(np.uint32))
    return np.uint16(0x7FC0 if np.isnan(number) else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def check_array(array: Any, known: Parameter, what: str) -> None:
    """Raise for an array or a scalar of NumPy that does not hold the elements of a parameter, or cannot be changed."""
    if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):  # its import takes 30 ms
        raise TypeError(f"{what}: the mask of a masked array would be lost; pass its data")
    if array.dtype.hasobject:
        raise TypeError(f"{what}: the array holds Python objects; pass an array of numbers")
    if not array.flags.c_contiguous:
        raise LaunchError(f"{what}: the array is not C-contiguous: pass numpy.ascontiguousarray(...)")
    if array.size == 0:
        raise LaunchError(f"{what}: the array has no elements, of shape {array.shape}; a buffer has a byte or more")
    if known.is_written and isinstance(array, np.ndarray) and not array.flags.writeable:
        raise LaunchError(f"{what}: the kernel may write it, and the array is read-only; pass a copy")
    name, found = known.dtype, array.dtype
    if name is not None and (found.name not in (name, EQUIVALENT.get(name)) or not found.isnative):
        raise LaunchError(f"{what}: its elements have the dtype {name}, not {found}")
    if found.fields is not None and found.itemsize != known.nbytes:
        raise LaunchError(f"{what}: its elements have {known.nbytes} bytes, and the dtype {found.itemsize}{LAYOUT}")
    if name is None and 1 < known.nbytes < found.itemsize:  # 1: void, too
        raise LaunchError(f"{what}: its elements have {known.nbytes} bytes, and those of {found} {found.itemsize}")
