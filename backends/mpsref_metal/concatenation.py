"""Concatenation through ``msl/concatenation.metal``; the gradients are gathers."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.concatenation import Concatenation, ConcatenationForward, ConcatenationGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.launch import Launcher, Step, divisor, types, width_of
from mpsref_metal.movement import gather


def forward(launch: Launcher, problem: ConcatenationForward, *xs: Array, out: Array) -> None:
    """Copy each source to its channels of ``out``, and fill the channels between them with zeros."""
    joined, pixels = out.shape[3], math.prod(out.shape[:3])
    steps, end = [], 0
    pieces: list[tuple[int, int, Array | None]] = []
    for offset, c, x in zip(problem.offsets, problem.channels, xs, strict=True):
        pieces += [(end, offset - end, None), (offset, c, x)]
        end = offset + c
    for offset, c, image in (*pieces, (end, joined - end, None)):
        if c:
            images = [] if image is None else [image]
            width = width_of(math.gcd(offset, c, joined), out, *images)
            part = np.array([pixels * c // width, *divisor(c // width), joined // width, offset // width], np.uint32)
            known = types(width, Storage=out if image is None else image)
            steps.append(Step("copy" if images else "zeros", [*images, part], known, pixels * c // width))
    launch.in_parts(("concatenation",), steps, out.shape, out)


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
