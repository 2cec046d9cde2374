"""Gathers and their adjoints through ``msl/movement.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.movement import Gather, Readers
from mpsref_metal.launch import WIDE, Launcher, extent, packs_together, short_sums, types, width_of


def gather(launch: Launcher, table: Gather, fills: Array, source: Array, out: Array) -> None:
    """Fill ``out`` with the elements of ``source`` in ``table``, and with ``fills`` where ``table`` has no element."""
    rows, columns, channels = table
    packs = _packs(channels)
    width = _width(packs, source, out)
    tables = [rows, columns, channels if width == 1 or packs is None else packs]
    _run(launch, "gather", [source, *tables, fills.astype(np.float32)], out, width)


def gather_sums(launch: Launcher, table: tuple[Readers, Readers, Readers], source: Array, out: Array) -> None:
    """Fill each element of ``out`` with the sum of its elements of ``source`` in ``table``."""
    *others, (start, order) = table
    packs = _packs(order) if np.array_equal(start, np.arange(len(start))) else None
    width = _width(packs, source, out)
    channels = [start, order] if width == 1 or packs is None else [start[: len(packs) + 1], packs]
    terms = math.prod(int(np.diff(firsts).max()) for firsts, _ in table)
    _run(launch, "gather_sums", [source, *(column for axis in others for column in axis), *channels], out, width, terms)


def _packs(channels: Array) -> Array | None:
    """Return the packs of ``WIDE`` channels that a table of channels consists of, -1 for none; else ``None``."""
    if len(channels) % WIDE:
        return None
    rows = channels.reshape(-1, WIDE)
    first = rows[:, :1]
    followed = np.where(first < 0, rows == first, (rows == first + np.arange(WIDE)) & (first % WIDE == 0))
    return np.where(first < 0, -1, first // WIDE).astype(np.int32).reshape(-1) if followed.all() else None


def _width(packs: Array | None, source: Array, out: Array) -> int:
    return 1 if packs is None else width_of(source.shape[3], source, out)


def _run(launch: Launcher, function: str, buffers: list[Array], out: Array, width: int, terms: int = 1) -> None:
    """Run a function with the buffers and the struct ``Layout``."""
    source, (_, height, columns, channels) = buffers[0], out.shape
    # Copies of packs are fast enough.
    together = launch.gpu.together_of(out.size, channels, width, terms) if width == 1 else 1
    count = out.size // width // together
    (_, *pixels, source_channels), groups = source.shape, channels // width // together
    layout = np.array([count, *pixels, source_channels // width, *extent(height, columns, groups)], np.uint32)
    known = *types(width, Storage=source, Gradient=source), *short_sums(terms), *packs_together(together)
    launch.into(("movement",), function, [*buffers, layout], out, known, count)
