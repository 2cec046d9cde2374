"""Run functions of MLX on arrays (N, H, W, C), in the order in memory that these have."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import install
from mpsref.frameworks import call_text
from mpsref.frameworks.adapter import Framework, Function, Tensor


class Mlx(Framework):
    """MLX on the CPU."""

    title = "MLX"
    package = "mlx"
    syntax = call_text.Syntax(
        "import mlx.core, mlx.nn",
        "mlx.core.array({}, mlx.core.float32)",
        "mlx.core.random.normal({})",
        "mlx.core.vjp(lambda {names}: {call}, [{names}], [g])[1]",
    )

    def unavailable(self) -> str | None:
        """Return ``None``, or the reason why the framework does not run here, and what to install."""
        reason = super().unavailable()
        if reason is None:
            try:
                _ = self.core
            except ImportError as error:  # on Linux the package alone has no library
                return f"MLX cannot be imported ({error}): {install('mlx')}"
        return reason

    @property
    def core(self) -> ModuleType:
        """``mlx.core``."""
        import mlx.core

        core: ModuleType = call_text.named("mlx.core", mlx.core)
        return core

    @property
    def nn(self) -> Any:
        """``mlx.nn``."""
        import mlx.nn

        return call_text.named("mlx.nn", mlx.nn)

    def tensor(self, array: Array) -> Tensor:
        """Return an array as a tensor, in the same order in memory."""
        order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        memory = self.core.array(array.transpose(order).copy())
        return memory.transpose(*map(int, np.argsort(order)))

    def array(self, tensor: Tensor) -> Array:
        """Return a tensor as an array, an image with its channels last."""
        return np.array(tensor)

    def on_device(self) -> AbstractContextManager[Any]:
        """Return a context in which new tensors are on the CPU."""
        context: AbstractContextManager[Any] = self.core.stream(self.core.cpu)
        return context

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        """Return the gradients by ``mlx.core.vjp``."""
        first, rest = tensors[:count], tensors[count:]
        _, found = self.core.vjp(lambda *leaves: function(*leaves, *rest), first, [g])
        self.core.eval(found)
        return list(found)
