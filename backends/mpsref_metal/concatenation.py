"""Concatenation through ``msl/concatenation.metal``; the gradients are gathers."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.concatenation import Concatenation, ConcatenationForward, ConcatenationGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.launch import Launcher, typedef
from mpsref_metal.movement import gather


def forward(launch: Launcher, problem: ConcatenationForward, *xs: Array, out: Array) -> None:
    """Fill ``out`` with all sources, which are passed in one buffer."""
    sources = launch.joined(xs, out.dtype)
    table = np.zeros(out.shape[3], [("start", "i8"), ("channels", "i4"), ("channel", "i4")])
    table["channel"] = -1
    start = 0
    for offset, c, x in zip(problem.offsets, problem.channels, xs, strict=True):
        own = table[offset : offset + c]
        own["start"], own["channels"], own["channel"] = start, c, np.arange(c)
        start += x.size
    joined = np.array([out.size, out.shape[3]], np.uint32)
    known = typedef("Storage", out), typedef("Gradient", out)
    launch.into(("concatenation",), "concatenate", [sources, table, joined], out, known)


def gradient(launch: Launcher, problem: ConcatenationGradient, g: Array, out: Array | tuple[Array, ...]) -> None:
    """Fill each array of ``out`` with its slice of g."""
    outs = out if isinstance(out, tuple) else (out,)
    for offset, dx in zip(problem.offsets, outs, strict=True):
        rows, columns, channels = (np.arange(length, dtype=np.int32) for length in dx.shape[1:])
        gather(launch, (rows, columns, channels + np.int32(offset)), np.zeros(dx.shape[3]), g, dx)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Concatenation, "forward"): forward,
    (Concatenation, "gradient"): gradient,
}
