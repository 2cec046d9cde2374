"""Checkpoints: one file with arrays and a header, replaced atomically."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from mpsref.arguments.arrays import Array
from mpsref.arguments.text import cut, shown

FORMAT = "mpsref digits 2"

MOST_BYTES = 2**26
"""Size limit of a file: that of more than ten thousand epochs."""

MOST_ARRAYS = 64
"""Limit of the number of members of a file."""


def write(path: Path, header: Mapping[str, object], arrays: Mapping[str, Array]) -> None:
    """Write a checkpoint to a temporary file next to ``path``, then rename it."""
    text = json.dumps({"format": FORMAT, **header})
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            np.savez(file, header=np.array(text), **arrays)  # type: ignore[arg-type]  # names of arrays, not parameters
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every exception that a damaged file may cause into a ``ValueError`` with its path."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"checkpoint {str(path)!r} does not exist; pass a file that --checkpoint wrote") from None
    except Exception as error:  # readers of archives and of arrays raise many kinds for damaged files
        raise ValueError(
            f"checkpoint {str(path)!r} cannot be used ({type(error).__name__}: {cut(error)}); pass another, or start a "
            "new run without it"
        ) from error


def read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return header and arrays; raise ``ValueError`` if the file is damaged or not a checkpoint.

    The header is checked before any array is read. The arrays are stored without compression, and each must have the
    size that its shape claims, so that memory is bounded by the size of the file.
    """
    with reading(path):
        size = _size(path)
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, size)
            header = _header(str(_array("header", archive.read(members.pop("header")), "U")[()]))
            arrays = {name: _array(name, archive.read(member), "f") for name, member in members.items()}
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ValueError(f"{name} has values that are not finite")
        return header, arrays


def _size(path: Path) -> int:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    if status.st_size > MOST_BYTES:
        raise ValueError(f"it has {status.st_size} bytes; a checkpoint has at most {MOST_BYTES}")
    return status.st_size


def _header(text: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"it is not of the format {FORMAT!r}")
    return header


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an archive of ``size`` bytes by the names of their arrays."""
    found = archive.infolist()
    members = {member.filename.removesuffix(".npy"): member for member in found}
    if len(found) > MOST_ARRAYS or len(members) < len(found):
        raise ValueError(f"it has {len(found)} members; a checkpoint has at most {MOST_ARRAYS}, with different names")
    for name, member in members.items():
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{shown(name)} is compressed; the members of a checkpoint are not")
    claimed = sum(member.file_size for member in found)
    if claimed > size:
        raise ValueError(f"its members claim {claimed} bytes, the file has {size}")
    return members


def _array(name: str, content: bytes, kind: str) -> Array:
    """Return the array of a member whose dtype has this kind, and the size of the member."""
    file = io.BytesIO(content)
    if npy.read_magic(file) != (1, 0):
        raise ValueError(f"{shown(name)} is not in version 1.0 of the format of NumPy")
    shape, by_columns, dtype = npy.read_array_header_1_0(file)
    claimed, has = math.prod(shape) * dtype.itemsize, len(content) - file.tell()
    if dtype.kind != kind or by_columns or claimed != has:
        order = "F" if by_columns else "C"
        raise ValueError(
            f"{shown(name)} has shape {shown(shape)}, dtype {dtype} and order {order}, {claimed} bytes, and a member "
            f"of {has} bytes; it must have the order C, a dtype of kind {kind!r}, and as many bytes as its member"
        )
    return np.frombuffer(content, dtype, offset=file.tell()).reshape(shape).copy()
