"""Textures and samplers of the command: files of NumPy, PNG, and new textures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .images import Sampler, Texture, format_named
from .interface import LaunchError

TEXTURE = "FILE.png, FILE.npy, NAME=FILE, NAME:FORMAT:FILE, or NAME:FORMAT:WIDTHxHEIGHT[xDEPTH] for a new one"
SAMPLER = "NAME=VALUE,..., such as filter=linear,address=repeat, or PARAMETER:NAME=VALUE,..."
MODES = {"L": 1, "LA": 2, "RGBA": 4, "I;16": 1}


class Picture(NamedTuple):
    """What an option binds to a texture."""

    option: str
    name: str
    """A name, or an index in digits."""
    texture: Texture
    origin: str


def picture(text: str) -> Picture:
    """Return what an option ``--texture`` binds; raise LaunchError for an illegal one."""
    option = f"--texture {text}"
    if new := re.fullmatch(r"(\w+):(\w+):(\d{1,5}(?:x\d{1,5}){0,2})", text):
        form = format_named(new[2])
        shape = tuple(map(int, new[3].split("x")))[::-1]
        array = np.zeros((*shape, *([form.components] if form.components > 1 else [])), form.dtype)
        return Picture(option, new[1], Texture(array, form.name), "new, zeros")
    found = re.fullmatch(r"(?:(\w+)=|(\w+):(\w+):)?(.+\.(?:npy|png))", text)
    if not found:
        raise LaunchError(f"{option}: it is {TEXTURE}")
    path = Path(found[4])
    array = read_png(path) if path.suffix == ".png" else _read(path)
    return Picture(option, found[1] or found[2] or path.stem, Texture(array, found[3]), found[4])


def _read(path: Path) -> NDArray[Any]:
    try:
        with path.open("rb") as stream:
            return np.ascontiguousarray(np.lib.format.read_array(stream, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise LaunchError(f"{path} cannot be read: {error}") from None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise LaunchError("PNG needs Pillow: pip install 'anymetal[images]', or use .npy") from None
    return Image


def read_png(path: Path) -> NDArray[Any]:
    """Return a picture of 8 or 16 bits as an array; colors without alpha have an alpha of 255."""
    library = _pillow()
    try:
        with library.open(path) as opened:
            one = opened.convert("RGBA") if opened.mode in ("RGB", "P", "1") else opened
            if one.mode not in MODES:
                raise LaunchError(f"{path} has the mode {one.mode}; legal are pictures of 8 bits, and gray ones of 16")
            return np.ascontiguousarray(np.asarray(one))
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, LaunchError):
            raise
        raise LaunchError(f"{path} is no PNG that can be read: {error}") from None


def save(folder: Path, name: str, texture: Texture) -> list[Path]:
    """Write a texture as NAME.npy, and one with unsigned components of 8 bits, or a gray one of 16, as NAME.png."""
    array = texture.array
    assert array is not None
    files = [folder / f"{name}.npy"]
    np.save(files[0], array)
    form = texture.format
    channels = form.components if form else 0
    is_plain = form and form.sort in ("unorm", "unorm_srgb", "uint") and channels
    is_flat = array.ndim - (array.ndim > 2) == 2
    if form and is_plain and is_flat and (form.dtype == np.uint8 or (form.dtype == np.uint16 and channels == 1)):
        pixels = array[..., [2, 1, 0, 3]] if form.name.startswith("bgra") else array
        pixels = pixels[..., 0] if channels == 1 and pixels.ndim == 3 else pixels
        files.append(folder / f"{name}.png")
        _pillow().fromarray(np.ascontiguousarray(pixels)).save(files[1])
    return files


def sampler(text: str) -> tuple[str, Sampler]:
    """Return the name that an option ``--sampler`` binds, or an empty one, and the sampler."""
    name, _, rest = text.rpartition(":")
    given: dict[str, Any] = {}
    for part in rest.split(","):
        key, mark, value = part.partition("=")
        if not mark:
            raise LaunchError(f"--sampler {text}: it is {SAMPLER}")
        given[key] = value
    try:
        return name, Sampler(**given)
    except TypeError:
        legal = ", ".join(("filter", *Sampler.NAMES))
        raise LaunchError(f"--sampler {text}: its names are {legal}") from None


def bound(kind: str, images: Mapping[int, Any], given: Iterable[tuple[str, str, Any]]) -> dict[int, Any]:
    """Return values by index, from (option, name, value): by name or index, else in order."""
    names, rest = {image.name: index for index, image in images.items()}, list[tuple[str, Any]]()
    found = dict[int, Any]()
    listed = ", ".join(f"{kind}({index}) is `{image.text}`" for index, image in images.items()) or f"it has no {kind}"
    for option, name, value in given:
        index = int(name) if name.isdecimal() else names.get(name)
        if index is None:
            rest.append((option, value))
        elif index not in images or index in found:
            problem = "is bound already" if index in found else f"does not exist: {listed}"
            raise LaunchError(f"{option}: {kind}({index}) {problem}")
        else:
            found[index] = value
    free = [index for index in images if index not in found]
    if len(rest) > len(free):
        raise LaunchError(f"{rest[len(free)][0]}: the kernel has no {kind} left for it: {listed}")
    return found | {index: value for index, (_, value) in zip(free, rest, strict=False)}
