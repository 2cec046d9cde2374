"""Dropout through ``msl/dropout.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.dropout import Dropout, DropoutProblem, MaskProblem, halves
from mpsref_metal.launch import Launcher, typedef

MASKED = np.dtype(
    [
        *((name, "u4") for name in ("count", "height", "width", "channels")),
        *((name, "u4") for name in ("of_image", "of_row", "of_pixel", "of_channel")),
        ("scale", "f4"),
    ]
)


def mask(launch: Launcher, problem: MaskProblem, out: Array) -> None:
    """Run ``mask``, one thread per four elements."""
    if not out.size:
        return
    count = problem.source_shape[0] * problem.blocks
    sizes = count, problem.blocks, *halves(problem.elements), problem.first_image_index
    drawing = np.array([*sizes, *problem.words, problem.spec.threshold], np.uint32)
    known = ("typedef float Storage;",)  # required by the source, but not used by this function
    out[...] = launch.run(("dropout",), "mask", [drawing], [(out.shape, np.uint8)], known, count)[0]


def apply(launch: Launcher, problem: DropoutProblem, image: Array, mask: Array, out: Array) -> None:
    """Run ``apply``: y from x, or dx from g."""
    # The mask is broadcast along axes of length 1.
    strides = [math.prod(mask.shape[axis + 1 :]) if length > 1 else 0 for axis, length in enumerate(mask.shape)]
    masked = np.array([(image.size, *image.shape[1:], *strides, problem.spec.scale)], MASKED)
    buffers, known = [image, mask, masked], (typedef("Storage", image),)
    launch.into(("dropout",), "apply", buffers, out, known)


IMPLEMENTATIONS = {(Dropout, "mask"): mask, (Dropout, "forward"): apply, (Dropout, "gradient"): apply}
