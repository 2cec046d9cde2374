"""Kernels of metal-tools on images, launched as its host does, and what NumPy computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from published.collection import Array, Case, Collection, Compared, Draw, blank

CONSTANTS: dict[int | str, Any] = {
    "deviceSupportsNonuniformThreadgroups": True,
    "multiplierFC": 0.5,
    "halfSizedCbCr": False,
}


class MetalTools(Collection):
    """Launches of the kernels of metal-tools on textures."""

    name = "metal-tools"
    marker = "MetalComputeTools/Kernels/TextureMix/TextureMix.metal"
    package = "a checkout of computer-graphics-tools/metal-tools"

    def include(self) -> list[Path]:
        """Return the folder that has the header of all kernels."""
        return [self.marker_file.parents[3]]

    def files(self) -> list[Path]:
        """Return its kernels."""
        return sorted(self.marker_file.parents[1].rglob("*.metal"))

    def run(self, kernel: str, *images: Array, **values: Any) -> Array:
        """Return the image that a kernel makes of others."""
        out = blank(images[0].shape)
        folder = kernel[0].upper() + kernel[1:]
        source = self.marker_file.parents[1] / folder / f"{folder}.metal"
        given: dict[str, Any] = {
            name: np.float32(value) if np.ndim(value) == 0 else np.array(value, np.float32)
            for name, value in values.items()
        }
        grid = (*images[0].shape[1::-1], 1)
        self.launch(source, kernel, grid, (8, 4, 1), whole=False, constants=CONSTANTS, textures=[*images, out], **given)
        return out


def mixed(x: Array, y: Array, part: Any) -> Any:
    """Return a part of one image, and the rest of another."""
    return x * (1 - part) + y * part


COLOR = [0.25, 0.5, 0.75, 1.0]
KERNELS: Mapping[str, tuple[int, Mapping[str, Any], Callable[..., Any]]] = {
    "textureMultiplyAdd": (2, {}, lambda x, y: x + y * CONSTANTS["multiplierFC"]),
    "textureMaskedMix": (3, {}, lambda x, y, mask: mixed(x, y, mask[..., :1])),
    "textureWeightedMix": (2, {"weight": 0.25}, lambda x, y, weight: mixed(x, y, weight)),
    "textureDifferenceHighlight": (
        2,
        {"color": COLOR, "threshold": 1.25},
        lambda x, y, color, threshold: np.where(abs(x - y).sum(-1, keepdims=True) >= threshold, color, y),
    ),
}
"""The number of images, the values of the parameters, and what NumPy computes."""


def of_kernel(name: str) -> Case:
    """Return the case of a kernel."""
    count, values, formula = KERNELS[name]

    def case(tools: MetalTools, draw: Draw) -> Compared:
        height, width, seed = draw.number(1, 9), draw.number(1, 9), draw.number(0, 2**16)
        images = np.random.default_rng(seed).integers(0, 65, (count, height, width, 4)).astype(np.float32) / 64
        return Compared(tools.run(name, *images, **values), formula(*images.astype(np.float64), **values), 1e-5)

    return case


CASES: Mapping[str, Case] = {name: of_kernel(name) for name in KERNELS}

FINDINGS: Mapping[str, tuple[Case, str]] = {}

REVIEWED: Mapping[tuple[str, str], str] = {}

FILES: Mapping[str, str] = {}
