"""Launches of MSL functions: source text, input buffers, and float32 result buffers.

The MSL functions of a family are in one ``.metal`` file, which is preceded by compile-time constants, the prelude and
shared files. Other values are passed in buffers, scalars in one ``constant`` struct. Results are float32 and are
rounded by NumPy, as in all backends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import DTypeLike

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.device import DeviceArray
from mpsref.errors import UnsupportedError
from mpsref_metal.runtimes import ArrayDevice, Device, Function

STORAGE = {"float32": "float", "float16": "half"}

MOST_THREADS = 2**32 - 2**12
"""Maximum number of threads: positions have 32 bits, and the grid is rounded up to whole threadgroups."""


class Launcher:
    """Runs MSL functions on a device, which is opened at the first launch."""

    def __init__(self, device: Callable[[], Device]) -> None:
        """Store ``device``, which returns the device of a call."""
        self.device = device
        self._function: Callable[..., Function] = cache(self._compile)

    def run(
        self,
        files: tuple[str, ...],
        function: str,
        buffers: Sequence[Array],
        results: Sequence[tuple[Shape, DTypeLike]],
        known: tuple[str, ...] = (),
        count: int | None = None,
    ) -> list[Array]:
        """Run a function and return its results.

        Parameters
        ----------
        files : tuple of str
            The files of the source after the prelude.
        function : str
            The name of the function.
        buffers : sequence of ndarray
            The input buffers, C-contiguous.
        results : sequence of (shape, dtype)
            The result buffers, which follow the input buffers. Float results are initialized with NaN, because a fault
            on a GPU may not be reported.
        known : tuple of str, optional
            Lines of MSL before the prelude: compile-time constants.
        count : int, optional
            Number of threads; default: one for each element of the first result.

        Returns
        -------
        list of ndarray
            On an ``ArrayDevice``, arrays on the device, which NumPy functions copy to the host.
        """
        sizes = [math.prod(shape) for shape, _ in results]
        threads = _checked(sizes[0] if count is None else count, *sizes)
        device = self.device()
        run = self._function(device, files, function, known)
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
        files: tuple[str, ...],
        function: str,
        buffers: Sequence[Array],
        out: Array,
        known: tuple[str, ...] = (),
        count: int | None = None,
    ) -> None:
        """Run a function with one float32 result of the shape of ``out``, and round it into ``out``.

        ``count`` is the number of threads, by default one for each element of ``out``. A float32 array on the device
        is written directly.
        """
        device = self.device()
        if isinstance(device, ArrayDevice) and device.is_result(out):
            threads = _checked(out.size if count is None else count, out.size)
            self._function(device, files, function, known)(threads, *buffers, device.cleared(out))
        else:
            store(self.run(files, function, buffers, [(out.shape, np.float32)], known, count)[0], out)

    def joined(self, arrays: Sequence[Array], dtype: np.dtype[np.generic]) -> Array:
        """Return the concatenated elements of all arrays, on the device if one of the arrays is on it."""
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
        self, files: tuple[str, ...], function: str, images: Sequence[Array], tables: Sequence[Array], out: Array
    ) -> None:
        """Run a gather over windows with one thread for each element of ``out``, and round the results into ``out``.

        The buffers are ``images`` (a source gradient, if any, then the source image), ``tables``, the struct
        ``Problem``, and the result.
        """
        known = typedef("Storage", images[-1]), typedef("Gradient", images[0])
        buffers = [*images, *tables, _problem(images[0], out)]
        self.into(files, function, buffers, out, known)

    @staticmethod
    def _compile(device: Device, files: tuple[str, ...], function: str, known: tuple[str, ...]) -> Function:
        folder = resources.files("mpsref_metal").joinpath("msl")
        texts = [folder.joinpath(f"{file}.metal").read_text("utf-8") for file in ("prelude", *files)]
        # The check of a source that begins with the library's header uses the precompiled header.
        first = "\n".join(["#include <metal_stdlib>", "#define SPECIALIZED", *known])
        source = "\n#line 1\n".join([first, *texts])
        return device.kernel(source).function(function)


def _checked(threads: int, *sizes: int) -> int:
    """Check that 32 bits suffice for thread positions and result elements; return the number of threads."""
    if max(threads, *sizes) > MOST_THREADS:
        raise UnsupportedError(
            f"the result has {max(threads, *sizes)} elements; a launch has at most {MOST_THREADS}: split the batch"
        )
    return threads


def typedef(name: str, image: Array) -> str:
    """Return the MSL typedef ``name`` for the type of the pixels of an image."""
    return f"typedef {STORAGE[image.dtype.name]} {name};"


def store(result: Array, out: Array) -> None:
    """Round a float32 result to the dtype of ``out``."""
    with np.errstate(over="ignore"):
        out[...] = result.reshape(out.shape)


def _problem(gathered: Array, out: Array) -> Array:
    """Return the struct ``Problem`` of the prelude; ``gathered`` is the image whose pixels are summed."""
    _, height, width, channels = out.shape
    return np.array([out.size, channels, height, width, *gathered.shape[1:3]], np.uint32)
