"""From a problem to a launch: source text, buffers in, one float32 buffer out.

A family's kernels are one ``.metal`` file; the parts that it names (the prelude, what windows read) and what is known
when it is compiled go in front of it. The rest travels in buffers, the scalars in one ``constant`` struct. Results
come back as float32 and are rounded by NumPy, so that all backends round alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from mpsref.errors import UnsupportedError
from mpsref.images import Array
from mpsref_metal.runtimes import Device

__all__ = ["Launcher"]

STORAGE = {"float32": "float", "float16": "half"}

MOST_THREADS = 2**32 - 2**12
"""Thread positions are 32 bits wide, and the grid is rounded up."""


class Launcher:
    """Runs functions of the MSL families on a device that is opened at the first launch."""

    def __init__(self, open_device: Callable[[], Device]) -> None:
        """Keep the runtime's ``Device`` for later."""
        self.device = cache(open_device)
        self._function = cache(self._compile)

    def __call__(
        self, parts: tuple[str, ...], function: str, images: Sequence[Array], tables: Sequence[Array], out: Array
    ) -> None:
        """Run one thread for each element of ``out``, and write their float32 results there.

        ``parts`` are the files of the source after the prelude. Buffers are the ``images`` (the source image last, a
        source gradient before it), the ``tables``, the struct ``Problem``, the result.
        """
        if out.size > MOST_THREADS:
            raise UnsupportedError(
                f"the result has {out.size} elements; one launch has at most {MOST_THREADS}: split the batch"
            )
        storages = STORAGE[images[-1].dtype.name], STORAGE[images[0].dtype.name]
        run = self._function(parts, function, *storages)
        memory = self.device().buffer(out.size * 4)
        result = np.frombuffer(memory, np.float32)
        result.fill(np.nan)  # a fault on the GPU is not reported: it must not look like a result
        handle = run(out.size, *images, *tables, _problem(images[0], out), memory)
        del handle  # waits
        with np.errstate(over="ignore"):
            out[...] = result.reshape(out.shape)

    def _compile(self, parts: tuple[str, ...], function: str, storage: str, gradient: str) -> Any:
        folder = resources.files("mpsref_metal").joinpath("msl")
        texts = [folder.joinpath(f"{part}.metal").read_text("utf-8") for part in ("prelude", *parts)]
        known = f"#define SPECIALIZED\ntypedef {storage} Storage;\ntypedef {gradient} Gradient;"
        source = "\n#line 1\n".join([known, *texts])
        return self.device().kernel(source).function(function)


def _problem(gathered: Array, out: Array) -> Array:
    """Return the struct ``Problem`` of the prelude: ``gathered`` is the image whose pixels are added up."""
    _, height, width, channels = out.shape
    return np.array([out.size, channels, height, width, *gathered.shape[1:3]], np.uint32)
