"""Dropout through ``msl/dropout.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.dropout import Dropout, DropoutProblem, MaskProblem, halves
from mpsref_metal.launch import Launcher, types, width_of

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
    known = types(1, Storage=np.float32, Mask=np.uint8)  # required by the source, but not used by this function
    launch.into(("dropout",), "mask", [drawing], out, known, count, np.uint8)


def apply(launch: Launcher, problem: DropoutProblem, image: Array, mask: Array, out: Array) -> None:
    """Run ``apply``: y from x, or dx from g."""
    # The mask is broadcast along axes of length 1.
    strides = [math.prod(mask.shape[axis + 1 :]) if length > 1 else 0 for axis, length in enumerate(mask.shape)]
    of_channel = strides[3]
    width = width_of(image.shape[3], image, out, *([mask] if of_channel else []))
    _, height, columns, channels = image.shape
    # Strides are in packs of the mask, which has one value for a pixel if all channels share it.
    packs = [stride // (width if of_channel else 1) for stride in strides[:3]]
    count = image.size // width
    masked = np.array([(count, height, columns, channels // width, *packs, of_channel, problem.spec.scale)], MASKED)
    known = types(width, Storage=image)
    known += types(width if of_channel else 1, Mask=np.uint8)[-1:]
    launch.into(("dropout",), "apply", [image, mask, masked], out, known, count)


IMPLEMENTATIONS = {(Dropout, "mask"): mask, (Dropout, "forward"): apply, (Dropout, "gradient"): apply}
