"""Run functions of PyTorch on arrays (N, H, W, C): tensors (N, C, H, W) on their memory, results and gradients."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError, install

Tensor: TypeAlias = Any
"""A ``torch.Tensor``; PyTorch need not be installed."""

Function: TypeAlias = Callable[..., Tensor]
"""A function of tensors."""

REFUSALS = ("not implemented for", "Expected more than 1", "does not support", "not currently implemented", "can't be")
"""Parts of the messages with which PyTorch refuses arguments; other errors are failures."""


@dataclass(eq=False)
class Torch:
    """PyTorch on one device, eager or compiled."""

    device: str
    compiles: bool = False
    _compiled: dict[object, Function] = field(default_factory=dict, repr=False)

    def unavailable(self) -> str | None:
        """Return ``None``, or why PyTorch does not run on this device here."""
        if importlib.util.find_spec("torch") is None:
            return f"PyTorch is not installed: {install('torch')}"
        if self.device == "cpu" or getattr(self.torch, self.device if self.device != "mps" else "mps").is_available():
            return None
        return f"PyTorch {self.torch.__version__} has no device {self.device!r} on this machine"

    def described(self) -> str:
        """Return device and version."""
        how = ", compiled" if self.compiles else ""
        return f"{self.device.upper()}, PyTorch {metadata.version('torch')}{how}"

    @cached_property
    def torch(self) -> ModuleType:
        """The module."""
        import torch

        module: ModuleType = torch
        return module

    @property
    def functional(self) -> Any:
        """``torch.nn.functional``."""
        return self.torch.nn.functional

    def tensor(self, array: Array) -> Tensor:
        """Return a tensor on the memory of an array, with the channels of an image on axis 1."""
        if not array.flags.writeable or min(array.strides, default=0) < 0:  # no tensor can have this memory
            array = array.copy(order="K") if min(array.strides, default=0) >= 0 else array.copy()
        tensor = self.torch.from_numpy(array)
        return (tensor.permute(0, 3, 1, 2) if array.ndim == 4 else tensor).to(self.device)

    def array(self, tensor: Tensor) -> Array:
        """Return the array of a tensor, with the channels of an image last."""
        tensor = tensor.detach().cpu()
        found: Array = (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).numpy()
        return found

    def __call__(self, function: Function, *arrays: Array) -> Array:
        """Return ``function(*tensors)``."""
        with self._refusing(), self.torch.no_grad():
            return self.array(self._callable(function, arrays, 0)(*map(self.tensor, arrays)))

    def gradients(self, function: Function, arrays: Sequence[Array], g: Array, count: int = 1) -> tuple[Array, ...]:
        """Return the gradients of ``function(*tensors)`` for the first ``count`` tensors, from the source gradient."""
        with self._refusing():
            leaves = [self.tensor(array).detach() for array in arrays]
            for leaf in leaves[:count]:
                leaf.requires_grad_()
            y = self._callable(function, (*arrays, g), count)(*leaves)
            found = self.torch.autograd.grad(y, leaves[:count], self.tensor(g), allow_unused=True)
            zeros = map(self.torch.zeros_like, leaves)
            return tuple(self.array(z if d is None else d) for d, z in zip(found, zeros, strict=False))

    def gradient(self, function: Function, g: Array, *arrays: Array) -> Array:
        """Return the gradient for the first tensor."""
        return self.gradients(function, arrays, g)[0]

    def _callable(self, function: Function, arrays: Sequence[Array], count: int) -> Function:
        """Return the function, compiled for these shapes, strides and number of gradients if this backend compiles."""
        if not self.compiles:
            return function
        # Compiled functions are kept by their code; after a few closures of one code PyTorch would run them eagerly.
        key = (identity(function), count, *((array.shape, array.strides, array.dtype.str) for array in arrays))
        if key not in self._compiled:
            self.torch.compiler.reset()
            self._compiled.clear()
            self._compiled[key] = self.torch.compile(function, dynamic=False)
        return self._compiled[key]

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raise ``UnsupportedError`` where PyTorch refuses arguments."""
        try:
            yield
        except (RuntimeError, ValueError, NotImplementedError) as error:
            if isinstance(error, UnsupportedError) or not any(part in str(error) for part in REFUSALS):
                raise
            raise UnsupportedError(f"PyTorch: {str(error).splitlines()[0]}") from error


def identity(value: object) -> object:
    """Return what two equal closures, with equal parameters, have in common."""
    closure = getattr(value, "__closure__", None)
    if hasattr(value, "__code__"):
        return value.__code__, tuple(identity(cell.cell_contents) for cell in closure or ())
    return value if callable(value) else repr(value)


def like(array: Array, shape: Sequence[int]) -> Array:
    """Return zeros of a shape in the order in memory of an image: a source of which only the shape counts."""
    return np.zeros_like(array, shape=tuple(shape))
