"""From a problem to a launch: source text, buffers in, one float32 buffer out.

A family's kernels are one ``.metal`` file, valid as it stands. What is known when it is compiled goes in front of it as
declarations; the rest travels in buffers, the scalars in one ``constant`` struct. Results come back as float32 and are
rounded by NumPy, so that all backends round alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from mpsref import tables
from mpsref.errors import UnsupportedError
from mpsref.images import Array
from mpsref_metal.runtimes import Device

__all__ = ["Launcher", "runs_buffer"]

STORAGE = {"float32": "float", "float16": "half"}


class Launcher:
    """Runs functions of the MSL families on a device that is opened at the first launch."""

    def __init__(self, open_device: Callable[[], Device]) -> None:
        """Keep the runtime's ``Device`` for later."""
        self.device = cache(open_device)
        self._function = cache(self._compile)

    def __call__(self, family: str, function: str, scalars: dict[str, int], inputs: list[Array], out: Array) -> None:
        """Run one thread for each element of ``out``, and write their float32 results there.

        ``inputs`` are buffers 0, 1, ...; the struct of ``scalars`` comes next, with ``count`` first, then the result.
        """
        limit = 2**32 - 2**12  # thread positions are 32 bits wide, and the grid is rounded up
        if out.size > limit:
            raise UnsupportedError(
                f"the result has {out.size} elements; one launch has at most {limit}: split the batch"
            )
        run = self._function(family, function, STORAGE[inputs[0].dtype.name])
        parameters = np.array([out.size, *scalars.values()], np.uint32)
        memory = self.device().buffer(out.size * 4)
        result = np.frombuffer(memory, np.float32)
        result.fill(np.nan)  # a fault on the GPU is not reported: it must not look like a result
        handle = run(out.size, *inputs, parameters, memory)
        del handle  # waits
        with np.errstate(over="ignore"):
            out[...] = result.reshape(out.shape)

    def _compile(self, family: str, function: str, storage: str) -> Any:
        text = resources.files("mpsref_metal").joinpath("msl", f"{family}.metal").read_text("utf-8")
        source = f"#define SPECIALIZED\ntypedef {storage} Storage;\n#line 1\n{text}"
        return self.device().kernel(source).function(function)


def runs_buffer(runs: tables.Runs) -> Array:
    """Return a table as the array of ``struct Run {int first; int count;}`` that the kernels read."""
    return np.stack([runs.first, runs.count], axis=1)
