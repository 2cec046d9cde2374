"""From a problem to a launch: source text, buffers in, one float32 buffer out.

A family's kernels are one ``.metal`` file; the parts that it names (the prelude, what windows read) and what is known
when it is compiled go in front of it. The rest travels in buffers, the scalars in one ``constant`` struct. Results
come back as float32 and are rounded by NumPy, so that all backends round alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.device import DeviceArray
from mpsref.errors import UnsupportedError
from mpsref_metal.runtimes import ArrayDevice, Device

STORAGE = {"float32": "float", "float16": "half"}

MOST_THREADS = 2**32 - 2**12
"""Thread positions are 32 bits wide, and the grid is rounded up."""


class Launcher:
    """Runs functions of the MSL families on a device that is opened at the first launch."""

    def __init__(self, device: Callable[[], Device]) -> None:
        """Keep what returns the device of a call."""
        self.device = device
        self._function: Callable[..., Any] = cache(self._compile)

    def run(
        self,
        parts: tuple[str, ...],
        function: str,
        buffers: Sequence[Array],
        results: Sequence[tuple[Shape, Any]],
        known: tuple[str, ...] = (),
        count: int | None = None,
    ) -> list[Array]:
        """Run ``count`` threads (default: one for each element of the first result); return the results.

        ``parts`` are the files of the source after the prelude, ``known`` lines of MSL before it: what is known when it
        is compiled. The function's buffers are ``buffers``, C-contiguous, then one for each of ``results``, (shape,
        dtype). Results of floats start as NaN: a fault on the GPU is not reported, and must not look like a result.
        A device with arrays of its own returns such arrays; NumPy's functions read them, and copy them to the host.
        """
        sizes = [math.prod(shape) for shape, _ in results]
        threads = _checked(sizes[0] if count is None else count, *sizes)
        device = self.device()
        run = self._function(device, parts, function, known)
        if isinstance(device, ArrayDevice):
            made = [device.result(shape, dtype) for shape, dtype in results]
            run(threads, *buffers, *made)
            return made
        memories = [
            device.buffer(size * np.dtype(dtype).itemsize) for size, (_, dtype) in zip(sizes, results, strict=True)
        ]
        arrays = [
            np.frombuffer(memory, dtype).reshape(shape)
            for memory, (shape, dtype) in zip(memories, results, strict=True)
        ]
        for array in arrays:
            array.fill(np.nan if array.dtype.kind == "f" else 0)
        handle = run(threads, *buffers, *memories)
        del handle  # waits
        return arrays

    def into(
        self,
        parts: tuple[str, ...],
        function: str,
        buffers: Sequence[Array],
        out: Array,
        known: tuple[str, ...] = (),
        count: int | None = None,
    ) -> None:
        """Run a function with one result of the shape of ``out``, float32, and round it into ``out``.

        ``count`` threads run, by default one for each element of ``out``. Memory of the device is written directly
        where it needs no rounding.
        """
        device = self.device()
        if isinstance(device, ArrayDevice) and device.is_result(out):
            threads = _checked(out.size if count is None else count, out.size)
            self._function(device, parts, function, known)(threads, *buffers, device.cleared(out))
        else:
            store(self.run(parts, function, buffers, [(out.shape, np.float32)], known, count)[0], out)

    def joined(self, arrays: Sequence[Array], dtype: np.dtype[Any]) -> Array:
        """Return the elements of all arrays in one, on the device if one of them is there."""
        if not any(isinstance(array, DeviceArray) for array in arrays):
            return np.concatenate([array.reshape(-1).astype(dtype, copy=False) for array in arrays])
        device = self.device()
        assert isinstance(device, ArrayDevice)
        made: Array = device.result((sum(array.size for array in arrays),), dtype)
        start = 0
        for array in arrays:
            made[start : start + array.size] = array.reshape(-1)
            start += array.size
        return made

    def __call__(
        self, parts: tuple[str, ...], function: str, images: Sequence[Array], tables: Sequence[Array], out: Array
    ) -> None:
        """Run one thread for each element of ``out``, a gather over windows, and write their float32 results there.

        Buffers are the ``images`` (the source image last, a source gradient before it), the ``tables``, the struct
        ``Problem``, the result.
        """
        known = typedef("Storage", images[-1]), typedef("Gradient", images[0])
        buffers = [*images, *tables, _problem(images[0], out)]
        self.into(parts, function, buffers, out, known)

    @staticmethod
    def _compile(device: Device, parts: tuple[str, ...], function: str, known: tuple[str, ...]) -> Any:
        folder = resources.files("mpsref_metal").joinpath("msl")
        texts = [folder.joinpath(f"{part}.metal").read_text("utf-8") for part in ("prelude", *parts)]
        # A source that begins with the library's header is checked with the one that clang has parsed already.
        first = "\n".join(["#include <metal_stdlib>", "#define SPECIALIZED", *known])
        source = "\n#line 1\n".join([first, *texts])
        return device.kernel(source).function(function)


def _checked(threads: int, *sizes: int) -> int:
    """Return the number of threads, if 32 bits hold their positions and those of the results' elements."""
    if max(threads, *sizes) > MOST_THREADS:
        raise UnsupportedError(
            f"the result has {max(threads, *sizes)} elements; a launch has at most {MOST_THREADS}: split the batch"
        )
    return threads


def typedef(name: str, image: Array) -> str:
    """Return the line of MSL that calls the type of an image's pixels ``name``."""
    return f"typedef {STORAGE[image.dtype.name]} {name};"


def store(result: Array, out: Array) -> None:
    """Round a float32 result to the dtype of ``out``."""
    with np.errstate(over="ignore"):
        out[...] = result.reshape(out.shape)


def _problem(gathered: Array, out: Array) -> Array:
    """Return the struct ``Problem`` of the prelude: ``gathered`` is the image whose pixels are added up."""
    _, height, width, channels = out.shape
    return np.array([out.size, channels, height, width, *gathered.shape[1:3]], np.uint32)
