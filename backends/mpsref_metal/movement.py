"""Gathers and their adjoints through ``msl/movement.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.movement import Gather, Readers
from mpsref_metal.launch import Launcher, typedef


def gather(launch: Launcher, table: Gather, fills: Array, source: Array, out: Array) -> None:
    """Fill ``out`` with the elements of ``source`` in ``table``, and with ``fills`` where ``table`` has no element."""
    buffers = [source, *table, fills.astype(np.float32), _layout(source, out)]
    _run(launch, "gather", buffers, source, out)


def gather_sums(launch: Launcher, table: tuple[Readers, Readers, Readers], source: Array, out: Array) -> None:
    """Fill each element of ``out`` with the sum of its elements of ``source`` in ``table``."""
    buffers = [source, *(column for axis in table for column in axis), _layout(source, out)]
    _run(launch, "gather_sums", buffers, source, out)


def _run(launch: Launcher, function: str, buffers: list[Array], source: Array, out: Array) -> None:
    known = (typedef("Storage", source), typedef("Gradient", source))
    launch.into(("movement",), function, buffers, out, known)


def _layout(source: Array, out: Array) -> Array:
    """Return the struct ``Layout``."""
    return np.array([out.size, *out.shape[1:], *source.shape[1:]], np.uint32)
