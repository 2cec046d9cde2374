"""Filters of the library Harbeth on images, launched as its host does, and what NumPy computes.

Its host binds the result to texture 0, the image to 1 and a second image to 2, and each number of a filter to a buffer
of its own. Images are of 16-bit floats, numbers of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from published.collection import Array, Case, Collection, Compared, Draw, blank

FOLDER = "Sources/Compute"
LUMINANCE = np.array([0.2125, 0.7154, 0.0721])
BOUND = 6e-3
"""Of half arithmetic with a few operations on numbers up to 4."""
GROUP = 8, 4, 1

Numbers: TypeAlias = Mapping[str, Any]
Formula: TypeAlias = Callable[..., Array]


class Harbeth(Collection):
    """Launches of Harbeth's filters."""

    name = "Harbeth"
    marker = f"{FOLDER}/Color Adjustment/C7Brightness.metal"
    package = "a checkout of yangKJ/Harbeth"

    def run(self, kernel: str, numbers: Numbers, *images: Array) -> Array:
        """Return the image that a filter writes."""
        folder = self.marker_file.parents[1]
        height, width, _ = images[0].shape
        out = blank((height, width, 4), np.float16)
        file = next(folder.rglob(f"{FILES_OF.get(kernel, kernel)}.metal"), folder / kernel)
        given: dict[str, Any] = {name: np.array(value, np.float32).reshape(-1) for name, value in numbers.items()}
        self.launch(file, kernel, (width, height, 1), GROUP, whole=False, textures=[out, *images], **given)
        return out

    def files(self) -> list[Path]:
        """Return its filters."""
        return sorted(self.marker_file.parents[1].rglob("*.metal"))


GRAYS = ("Luminosity", "Desaturation", "Average", "Maximum", "Minimum")
FILES_OF = {f"C7Grayed{one}": "C7Grayed" for one in GRAYS} | {"C7LevelsFilter": "C7Levels"}


def with_alpha(color: Array, x: Array) -> Array:
    """Return a color with the alpha of an image."""
    return np.concatenate([np.broadcast_to(color, (*x.shape[:2], 3)), x[..., 3:]], -1)


def luma(x: Array) -> Any:
    """Return the luminance."""
    return (x[..., :3] @ LUMINANCE)[..., None]


def mixed(x: Array, y: Array, part: Any) -> Any:
    """Return a part of one image, and the rest of another."""
    return x * (1 - part) + y * part


def gray(x: Array, value: Array, intensity: float) -> Any:
    """Return an image mixed with a gray one."""
    return mixed(x, np.concatenate([value[..., None].repeat(3, -1), np.ones_like(x[..., 3:])], -1), intensity)


def vibrant(x: Array, vibrance: float) -> Array:
    """Return an image in which the largest component is moved away from the mean."""
    color = x[..., :3]
    most = color.max(-1, keepdims=True)
    return with_alpha(mixed(color, most, -3 * vibrance * (most - color.mean(-1, keepdims=True))), x)


def two_colors(x: Array, firstVector: Any, secondVector: Any) -> Array:  # the names of the kernel
    """Return an image of two colors and what is between them."""
    return with_alpha(mixed(np.array(firstVector[:3]), np.array(secondVector[:3]), luma(x)), x)


def tinted(x: Array, warmth: float) -> Array:
    """Return a warmer or a colder image."""
    part = [0.3, 0.2, -0.2] if warmth > 0 else [0.2, 0.1, -0.3]
    return with_alpha(x[..., :3] + np.array(part) * warmth, x)


def levels(x: Array, **given: Any) -> Array:
    """Return an image whose range is stretched, bent and moved."""
    low, middle, high, out, top = (np.asarray(value)[:3] for value in given.values())
    part = np.clip((x[..., :3] - low) / (high - low), 0, 1) ** (1 / middle)
    return with_alpha(out + (top - out) * part, x)


def hazy(x: Array, hazeDistance: float, slope: float) -> Array:
    """Return an image without the white of haze, which grows with the row."""
    part = (np.arange(len(x)) / len(x) * slope + hazeDistance)[:, None, None]
    return (x - part) / (1 - part)


def matrix(x: Array, intensity: float, colorMatrix: Any, **offsets: float) -> Any:
    """Return an image whose color is multiplied by a matrix."""
    y = x @ np.reshape(colorMatrix, (4, 4)).T + np.array(list(offsets.values()))
    return mixed(x, y, intensity)


OFFSETS = {"redOffset": 0.125, "greenOffset": 0.0, "blueOffset": -0.25, "alphaOffset": 0.5}
SEPIA = np.array([[0.3588, 0.7044, 0.1368], [0.2990, 0.5870, 0.1140], [0.2392, 0.4696, 0.0912]])

FILTERS: Mapping[str, tuple[Numbers, Formula]] = {
    "C7Brightness": ({"brightness": 0.25}, lambda x, brightness: with_alpha(x[..., :3] + brightness, x)),
    "C7Contrast": ({"contrast": 1.5}, lambda x, contrast: with_alpha(0.5 + (x[..., :3] - 0.5) * contrast, x)),
    "C7Exposure": ({"exposure": -1.0}, lambda x, exposure: with_alpha(x[..., :3] * 2.0**exposure, x)),
    "C7Gamma": ({"gamma": 2.0}, lambda x, gamma: with_alpha(x[..., :3] ** gamma, x)),
    "C7Opacity": ({"opacity": 0.75}, lambda x, opacity: x * np.array([1, 1, 1, opacity])),
    "C7Posterize": ({"colorLevelsPointer": 4.0}, lambda x, colorLevelsPointer: np.floor(x * 4 + 0.5) / 4),
    "C7Luminance": ({"luminance": 0.25}, lambda x, luminance: with_alpha(mixed(luma(x), x[..., :3], luminance), x)),
    "C7Saturation": ({"saturation": 1.5}, lambda x, saturation: with_alpha(mixed(luma(x), x[..., :3], saturation), x)),
    "C7Vibrance": ({"vibrance": 0.5}, vibrant),
    "C7FalseColor": ({"firstVector": [0.25, 0.5, 0.75, 0], "secondVector": [1.0, 0.0, 0.5, 0]}, two_colors),
    "C7Fade": ({"intensity": 0.25}, lambda x, intensity: with_alpha(mixed(x[..., :3], np.ones(3), intensity), x)),
    "C7Sepia": (
        {"intensity": 0.5},
        lambda x, intensity: mixed(x, with_alpha(x[..., :3] @ SEPIA.T, x), intensity),
    ),
    "C7ColorRGBA": (
        {"intensity": 0.5, "colorVector": [0.5, 1.0, 0.25, 1.0]},
        lambda x, intensity, colorVector: mixed(x, x * np.array(colorVector), intensity),
    ),
    "C7ChannelControl": (
        {"red": 0.5, "green": -0.5, "blue": 0.0, "alpha": 0.5, "blend": 0.25},
        lambda x, red, green, blue, alpha, blend: mixed(x, x * np.array([red + 1, green + 1, blue + 1, alpha]), blend),
    ),
    "C7Warmth": ({"warmth": 0.5}, tinted),
    "C7ColorMatrix4x4": (
        {"intensity": 0.5, "colorMatrix": np.arange(16) / 16, **OFFSETS},
        matrix,
    ),
    "C7LevelsFilter": (
        {
            "minimum": [0.125, 0.25, 0.0, 0], "middle": [1.0, 2.0, 1.0, 0], "maximum": [0.75, 1.0, 0.5, 0],
            "minOutput": [0.0, 0.25, 0.0, 0], "maxOutput": [1.0, 0.75, 1.0, 0],
        },
        levels,
    ),
    "C7Haze": ({"hazeDistance": 0.25, "slope": -0.25}, hazy),
    "C7SolidColor": ({"colorVector": [0.25, 0.5, 1.0, 0.75]}, lambda x, colorVector: np.zeros_like(x) + colorVector),
    "C7Flip": ({"horizontal": 1.0, "vertical": 1.0}, lambda x, horizontal, vertical: x[::-1, ::-1]),
    "C7Mirror": ({}, lambda x: x[:, ::-1]),
    "C7GrayedLuminosity": (
        {"intensity": 0.5},
        lambda x, intensity: gray(x, x[..., :3] @ np.array([0.299, 0.587, 0.114]), intensity),
    ),
    "C7GrayedDesaturation": (
        {"intensity": 0.5},
        lambda x, intensity: gray(x, (x[..., :3].max(-1) + x[..., :3].min(-1)) / 2, intensity),
    ),
    "C7GrayedAverage": ({"intensity": 0.5}, lambda x, intensity: gray(x, x[..., :3].mean(-1), intensity)),
    "C7GrayedMaximum": ({"intensity": 0.5}, lambda x, intensity: gray(x, x[..., :3].max(-1), intensity)),
    "C7GrayedMinimum": ({"intensity": 0.5}, lambda x, intensity: gray(x, x[..., :3].min(-1), intensity)),
}  # fmt: skip


def over(x: Array, y: Array) -> Any:
    """Return what both images show outside of each other."""
    return y * (1 - x[..., 3:]) + x * (1 - y[..., 3:])


BLENDS: Mapping[str, Formula] = {
    "Multiply": lambda x, y: x * y + over(x, y),
    "Screen": lambda x, y: 1 - (1 - x) * (1 - y),
    "Lighten": np.maximum,
    "Difference": lambda x, y: with_alpha(abs(x - y)[..., :3], x),
    "Exclusion": lambda x, y: with_alpha((y * x[..., 3:] + x * y[..., 3:] - 2 * x * y + over(x, y))[..., :3], x),
    "LinearBurn": lambda x, y: with_alpha((x + y)[..., :3] - 1, x),
    "Subtract": lambda x, y: with_alpha((x - y)[..., :3], x),
    "Dissolve": lambda x, y: y,
}
"""Of an image and the second one, both of which are mixed with the first."""


def pixels(draw: Draw) -> Array:
    """Return an image: multiples of 1/64, which half arithmetic adds exactly."""
    height, width, seed = draw.number(1, 9), draw.number(1, 9), draw.number(0, 2**16)
    return (np.random.default_rng(seed).integers(0, 65, (height, width, 4)) / 64).astype(np.float16)


def between(x: Array) -> Any:
    """Return linear samples at the upper left corners of pixels: the means of four of them."""
    above = np.concatenate([x[:1], x[:-1]])
    rows = x + above
    return (rows + np.concatenate([rows[:, :1], rows[:, :-1]], 1)) / 4


def filtered(name: str) -> Case:
    """Return the case of a filter."""
    numbers, formula = FILTERS[name]

    def case(harbeth: Harbeth, draw: Draw) -> Compared:
        x = pixels(draw)
        expected = formula(x.astype(np.float64), **numbers)
        return Compared(harbeth.run(name, numbers, x), expected, BOUND * (1 + abs(expected)))

    return case


def blended(name: str, sampled: Callable[[Array], Array] = between) -> Case:
    """Return the case of a blend of two images of one size, of which the second one is sampled linearly."""

    def case(harbeth: Harbeth, draw: Draw) -> Compared:
        x, part = pixels(draw), draw.choice(0.25, 1.0)
        y = x[::-1, ::-1, [1, 2, 0, 3]].copy()
        wide = x.astype(np.float64)
        expected = mixed(wide, BLENDS[name](wide, sampled(y.astype(np.float64))), part)
        got = harbeth.run(f"C7Blend{name}", {"intensity": part}, x, y)
        return Compared(got, expected, BOUND * (1 + abs(expected)))

    return case


def sobel(harbeth: Harbeth, draw: Draw) -> Compared:
    """Return an image without edges, at whose border the filter reads coordinates that are negative halfs."""
    x = np.full((4, draw.number(4, 8), 4), 0.5, np.float16)
    return Compared(harbeth.run("C7Sobel", {"edgeStrength": 1.0}, x), np.zeros_like(x) + np.array([0, 0, 0, 0.5]), 1e-3)


def blur(harbeth: Harbeth, draw: Draw) -> Compared:
    """Return the blur of an image of one color, which is that image."""
    x = np.full((8, draw.number(8, 12), 4), 1, np.float16)
    return Compared(harbeth.run("C7GaussianBlur", {"blurRadius": 50.0}, x), np.ones_like(x), 1e-2)


CASES: Mapping[str, Case] = {name: filtered(name) for name in FILTERS} | {
    f"C7Blend{name}": blended(name) for name in BLENDS
}

FINDINGS: Mapping[str, tuple[Case, str]] = {
    "C7Sobel": (sobel, "coordinates are computed in half: negative ones become unsigned"),
    "C7GaussianBlur": (blur, "the coordinate 1.0 times the width is outside: borders become dark"),
    "a blend of an image with itself": (
        blended("Dissolve", lambda y: y),
        "the second image is sampled at the corner of a pixel: it moves by half a pixel, and is blurred",
    ),
}

REVIEWED: Mapping[tuple[str, str], str] = {}

FILES: Mapping[str, str] = {}
