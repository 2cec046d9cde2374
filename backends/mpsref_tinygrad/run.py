"""Run functions of tinygrad on arrays (N, H, W, C): tensors (N, C, H, W) on its CPU device."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.frameworks import call_text
from mpsref.frameworks.adapter import Framework, Function, Tensor


class Tinygrad(Framework):
    """tinygrad on the CPU."""

    title = "tinygrad"
    package = "tinygrad"
    axes = "NCHW"
    syntax = call_text.Syntax(
        "import tinygrad",
        "tinygrad.Tensor({})",
        "tinygrad.Tensor.randn(*{})",
        "{call}.gradient({names}, gradient=g)",
    )

    def unavailable(self) -> str | None:
        """Return ``None``, or the reason why the framework does not run here, and what to install."""
        compiler = os.environ.get("CC", "clang")
        if (reason := super().unavailable()) is not None or shutil.which(compiler) is not None:
            return reason
        return f"tinygrad compiles with {compiler!r}, which is not installed: install clang, or set CC to a clang"

    @property
    def nn(self) -> Any:
        """``tinygrad.nn``."""
        import tinygrad.nn

        return call_text.named("tinygrad.nn", tinygrad.nn)

    def on_device(self) -> AbstractContextManager[None]:
        """Return a context in which new tensors are on the CPU."""
        import tinygrad

        context: AbstractContextManager[None] = tinygrad.Context(DEV="CPU")
        return context

    def tensor(self, array: Array) -> Tensor:
        """Return an array as a tensor, an image with its channels first."""
        import tinygrad

        return tinygrad.Tensor(np.ascontiguousarray(array.transpose(0, 3, 1, 2) if array.ndim == 4 else array))

    def array(self, tensor: Tensor) -> Array:
        """Return a tensor as an array, an image with its channels last."""
        found: Array = tensor.numpy()
        return found.transpose(0, 2, 3, 1) if found.ndim == 4 else found

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        """Return the gradients by ``Tensor.backward``."""
        function(*tensors).backward(g)
        return [x.zeros_like() if x.grad is None else x.grad for x in tensors[:count]]
