"""Run functions of PyTorch on arrays (N, H, W, C): tensors (N, C, H, W) on their memory, results and gradients."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from anymetal.fork_safe import cached_property
from mpsref.arguments.arrays import Array
from mpsref.frameworks import call_text
from mpsref.frameworks.adapter import Framework, Function, Tensor

SYNTAX = call_text.Syntax(
    "import torch\nimport torch.nn.functional as F",
    "torch.tensor({})",
    "torch.rand({})",
    "torch.autograd.grad({call}, [{names}], g, allow_unused=True)",
    "{}.requires_grad_()",
)

ALIGNMENT = 16
"""Bytes: a multiple is the address of allocated memory, and every other address has a byte of it before."""

KEPT = 4
"""Compiled functions that are kept: a case has those of its results and gradients, and PyTorch keeps 8 of a code."""

COMPILED = "torch.compile(lambda {all}: {call})({all})"


def _preceded(array: Array, offset: int, length: int) -> Array:
    """Return ``length`` elements of the memory of an array from its first one on, after ``offset`` elements."""
    before = array.ctypes.data - offset * array.itemsize
    described = {**array.__array_interface__, "data": (before, False), "shape": (offset + length,), "strides": None}
    holder = type("Memory", (), {"__array_interface__": described, "array": array})()
    return np.asarray(holder)


@dataclass(eq=False)
class Torch(Framework):
    """PyTorch on one device, eager or compiled."""

    title = "PyTorch"
    package = "torch"
    axes = "NCHW"
    optional_bias = True
    syntax: ClassVar[call_text.Syntax | None] = SYNTAX
    refusals = (
        "not implemented for",
        "Expected more than 1",
        "batch_norm eps must be positive",
        "does not support",
        "not currently implemented",
        "can't be",
    )

    fused: ClassVar[bool] = False
    """Whether optimizers are single operators."""

    device: str = "cpu"
    compiles: bool = False
    _compiled: dict[object, Function] = field(default_factory=dict, repr=False)

    def unavailable(self) -> str | None:
        """Return ``None``, or why PyTorch does not run on this device here."""
        if (reason := super().unavailable()) is not None:
            return reason
        version = metadata.version("torch")
        known = {"mps": sys.platform != "darwin", "cuda": version.endswith("+cpu")}  # without an import
        lacks = known.get(self.device, False)
        if self.device == "cpu" or (not lacks and getattr(self.torch, self.device).is_available()):
            return None
        return f"PyTorch {version} has no device {self.device!r} on this machine"

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

    @property
    def aten(self) -> Any:
        """The operators that autograd calls."""
        return self.torch.ops.aten

    def tensor(self, array: Array) -> Tensor:
        """Return a tensor on the memory of an array, with the channels of an image on axis 1."""
        if not array.flags.writeable or min(array.strides, default=0) < 0:  # no tensor can have this memory
            array = array.copy(order="K") if min(array.strides, default=0) >= 0 else array.copy()
        # A device gets the memory of the array, since a copy would not keep gaps and repeated elements; an array that
        # does not begin where memory is allocated is a slice, at an offset in this memory.
        offset = 1 if array.ctypes.data % ALIGNMENT else 0
        strides = [stride // array.itemsize for stride in array.strides]
        length = 1 + sum((n - 1) * stride for n, stride in zip(array.shape, strides, strict=True))
        memory = self.torch.from_numpy(_preceded(array, offset, length)).to(self.device)
        tensor = memory.as_strided(array.shape, strides, offset)
        return tensor.permute(0, 3, 1, 2) if array.ndim == 4 else tensor

    def array(self, tensor: Tensor) -> Array:
        """Return the array of a tensor, with the channels of an image last."""
        tensor = tensor.detach().cpu()
        found: Array = (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).numpy()
        return found

    def vectors(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return float32 for images in float16."""
        return np.promote_types(dtype, np.float32)

    def run(self, function: Function, *arrays: Array) -> Array:
        """Return ``function(*tensors)`` as an array."""
        with self.torch.no_grad():
            return super().run(function, *arrays)

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        """Return the gradients by ``torch.autograd.grad``."""
        leaves = [tensor.detach().requires_grad_(k < count) for k, tensor in enumerate(tensors)]
        found = self.torch.autograd.grad(function(*leaves), leaves[:count], g, allow_unused=True)
        zeros = map(self.torch.zeros_like, leaves)
        return [z if d is None else d for d, z in zip(found, zeros, strict=False)]

    def note(self, function: Function, arrays: Sequence[Array], count: int = 0) -> None:
        """Note a call; of a compiled one with its compilation."""
        syntax = SYNTAX._replace(call=COMPILED) if self.compiles and self.syntax else self.syntax
        call_text.note(syntax, function, lambda: [self.written(one) for one in arrays], count)

    def written(self, array: Array) -> str:
        """Return the text of a tensor with the strides of an array."""
        tensor = self.tensor(array)
        text = call_text.values(SYNTAX, tensor.numpy())
        if array.dtype != np.float32:
            text += f".{ {'float16': 'half', 'float64': 'double'}.get(array.dtype.name, array.dtype.name) }()"
        is_channels_last = tensor.dim() == 4 and tensor.shape[1] > 1 == tensor.stride(
            1
        )  # contiguous, too, if of one pixel
        if tensor.is_contiguous() and not is_channels_last:
            return text
        strided = f"torch.empty_strided({tuple(tensor.shape)}, {tensor.stride()}, dtype={tensor.dtype})"
        return f"{strided}.copy_({text})"

    def compiled(self, function: Function, arrays: Sequence[Array], count: int = 0) -> Function:
        """Return the function, compiled for these shapes, strides and number of gradients if this backend compiles."""
        if not self.compiles:
            return function
        # PyTorch keeps compiled functions by their code, and runs further closures of a code eagerly.
        key = (identity(function), count, *((array.shape, array.strides, array.dtype.str) for array in arrays))
        if key not in self._compiled:
            if len(self._compiled) == KEPT:
                self.torch.compiler.reset()
                self._compiled.clear()
            self._compiled[key] = self.torch.compile(function, dynamic=False)
        return self._compiled[key]


def identity(value: object) -> object:
    """Return what two equal closures, with equal parameters and default arguments, have in common."""
    closure = getattr(value, "__closure__", None)
    if hasattr(value, "__code__"):
        defaults = repr((value.__defaults__, value.__kwdefaults__))  # type: ignore[attr-defined]
        return value.__code__, defaults, tuple(identity(cell.cell_contents) for cell in closure or ())
    return value if callable(value) else repr(value)
