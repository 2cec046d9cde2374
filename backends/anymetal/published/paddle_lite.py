"""Kernels of Paddle-Lite on images with four channels a slice, launched as its host does, and what NumPy computes.

They are compiled for 32-bit floats, as with the option LITE_WITH_METAL_FULL of its build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import anymetal
from published.collection import Array, Case, Collection, Compared, Draw, blank, members, record

GROUP = 4, 4, 1
BOUND = 1e-5


class PaddleLite(Collection):
    """Launches of Paddle-Lite's kernels on textures."""

    name = "Paddle-Lite"
    marker = "metal/metal_kernel/texture/Common.metal"
    package = "a checkout of PaddlePaddle/Paddle-Lite"

    def define(self) -> dict[str, Any]:
        """Return the macro of 32-bit floats."""
        return {"LITE_WITH_METAL_FULL": 1}

    def files(self) -> list[Path]:
        """Return its kernels on textures."""
        return sorted(self.marker_file.parent.glob("*.metal"))

    def structure(self, file: str, name: str, values: Mapping[str, Any]) -> Array:
        """Return the parameters of a kernel."""
        return record(members(self.marker_file.with_name(file).read_text(), name), values)

    def run(
        self, file: str, kernel: str, x: Array, size: tuple[int, int], *buffers: Any, group: Any = GROUP, grid: Any = ()
    ) -> Array:
        """Return the images (N, H, W, C) of ``size`` that a kernel makes of others."""
        slices = anymetal.slices(x)
        out = blank((len(slices), *size, 4))
        grid = grid or (size[1], size[0], len(slices))
        source = self.marker_file.with_name(file)
        self.launch(source, kernel, grid, group, *buffers, whole=False, textures=[slices, out])
        return anymetal.unslice(out, x.shape[3])


def images(draw: Draw) -> Array:
    """Return images of any number of channels."""
    shape = draw.number(1, 2), draw.number(1, 6), draw.number(1, 6), draw.number(1, 9)
    return draw.array(*shape, kind="plain")


def sigmoid(x: Array) -> Array:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: Mapping[str, tuple[str, Mapping[str, float], Callable[..., Array]]] = {
    "exp": ("", {}, np.exp),
    "relu": ("", {}, lambda x: np.maximum(x, 0)),
    "relu6": ("Relu6Param", {"threshold": 1.5}, lambda x, threshold: np.clip(x, 0, threshold)),
    "leaky_relu": ("LeakyReluParam", {"alpha": 0.25}, lambda x, alpha: np.maximum(x, alpha * x)),
    "sigmoid": ("", {}, sigmoid),
    "hard_sigmoid": (
        "HardSigmoidParam",
        {"slope": 0.5, "offset": 0.25},
        lambda x, slope, offset: np.clip(slope * x + offset, 0, 1),
    ),
    "swish": ("SwishParam", {"beta": 1.5}, lambda x, beta: x * sigmoid(beta * x)),
    "hard_swish": (
        "HardSwishParam",
        {"offset": 3.0, "threshold": 6.0, "scale": 6.0},
        lambda x, offset, threshold, scale: x * np.clip(x + offset, 0, threshold) / scale,
    ),
}


def activation(name: str) -> Case:
    """Return the case of a function of each number."""
    struct, values, formula = ACTIVATIONS[name]

    def case(paddle: PaddleLite, draw: Draw) -> Compared:
        x = images(draw)
        buffers = [paddle.structure("Common.metal", struct, values)] if struct else []
        got = paddle.run("ActivationKernel.metal", name, x, x.shape[1:3], *buffers)
        expected = formula(x.astype(np.float64), **values)
        return Compared(got, expected, BOUND * (1 + abs(expected)))

    return case


SCALE = np.dtype([("scale", "f4"), ("bias", "f4"), ("activation", "u2"), ("padding", "u2"), ("others", "f4", 5)])
"""ScaleParam with MetalActivationParam in it."""


def scaled(kernel: str, formula: Callable[[Array], Array], activation: int) -> Case:
    """Return the case of a scale and a bias, and of one of the activations."""

    def case(paddle: PaddleLite, draw: Draw) -> Compared:
        x = images(draw)
        values = np.array([(1.5, -0.25, activation, 0, (0, 0, 0, 0, 0))], SCALE)
        got = paddle.run("ScaleKernel.metal", kernel, x, x.shape[1:3], values)
        expected = formula(x.astype(np.float64))
        expected = np.maximum(expected, 0) if activation else expected
        return Compared(got, expected, BOUND * (1 + abs(expected)))

    return case


def pooled(kind: int, exclusive: int) -> Case:
    """Return the case of pooling: of maxima, or of means with or without the padding."""

    def case(paddle: PaddleLite, draw: Draw) -> Compared:
        x = images(draw)
        kernel, stride = draw.number(1, 3), draw.number(1, 2)
        padding = draw.number(0, kernel - 1)
        size = tuple(max((n + 2 * padding - kernel) // stride + 1, 0) for n in x.shape[1:3])
        if 0 in size:
            size, kernel, stride, padding = x.shape[1:3], 1, 1, 0
        names = "ksizeX", "ksizeY", "strideX", "strideY", "paddingX", "paddingY"
        numbers = kernel, kernel, stride, stride, padding, padding
        values = dict(zip(names, numbers, strict=True)) | {"poolType": kind, "exclusive": exclusive}
        got = paddle.run("PoolKernel.metal", "pool", x, size, paddle.structure("PoolKernel.metal", "PoolParam", values))
        expected = np.zeros((len(x), *size, x.shape[3]))
        for i, j in np.ndindex(*size):
            top, left = i * stride - padding, j * stride - padding
            window = x[:, max(top, 0) : max(top + kernel, 0), max(left, 0) : max(left + kernel, 0)].astype(np.float64)
            count = window.shape[1] * window.shape[2] if exclusive else kernel * kernel
            expected[:, i, j] = window.sum((1, 2)) / count if kind else window.max((1, 2))
        return Compared(got, expected, BOUND * (1 + abs(expected)))

    return case


def means(paddle: PaddleLite, draw: Draw) -> Compared:
    """Means of whole images, each by one threadgroup of more than 32 threads."""
    x = draw.array(1, 16, 16, 4, kind="plain")
    got = paddle.run("PoolKernel.metal", "global_pool", x, (1, 1), group=(16, 16, 1), grid=(16, 16, 1))
    return Compared(got, x.mean((1, 2), keepdims=True, dtype=np.float64), BOUND)


CASES: Mapping[str, Case] = {name: activation(name) for name in ACTIVATIONS} | {
    "bias_after_scale": scaled("bias_after_scale", lambda x: 1.5 * x - 0.25, 0),
    "bias_before_scale and relu": scaled("bias_before_scale", lambda x: 1.5 * (x - 0.25), 1),
    "pool of maxima": pooled(0, 0),
    "pool of means": pooled(1, 0),
    "pool of means without the padding": pooled(1, 1),
}

FINDINGS: Mapping[str, tuple[Case, str]] = {
    "global_pool": (means, "threads read shared sums that others write once more, with nothing between"),
}

REVIEWED: Mapping[tuple[str, str], str] = {}

FILES: Mapping[str, str] = {}
