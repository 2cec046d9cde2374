"""Run functions of JAX on NumPy arrays: compiled once for each problem, their results copied."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import numpy as np

from anymetal.fork_safe import importing
from mpsref.arguments.arrays import Array
from mpsref.frameworks import call_text
from mpsref.frameworks.adapter import CompilingFramework, Function, Tensor


class Jax(CompilingFramework):
    """JAX on its default device; the modules and functions of the package ``jax`` are attributes."""

    title = "JAX"
    package = "jax"
    refusals = ("not implemented",)
    syntax = call_text.Syntax(
        "import jax\nimport numpy as np",
        'jax.numpy.array({}, "float32")',
        "jax.random.normal(jax.random.key(0), {})",
        "jax.vjp(lambda {names}: {call}, {names})[1](g)",
    )

    def __getattr__(self, name: str) -> Any:
        """Return a module or a function of ``jax``, which is imported at its first use."""
        if name.startswith("__"):
            raise AttributeError(name)
        with importing:
            return call_text.named(f"jax.{name}", getattr(import_module("jax"), name))

    def described(self) -> str:
        """Return device and version; without plug-ins the device is the CPU, and JAX need not be imported."""
        others = any(map(find_spec, ("jax_plugins", "libtpu"))) or metadata.entry_points(group="jax_plugins")
        is_open = others or "jax" in sys.modules or "JAX_PLATFORMS" in os.environ
        return f"{self.default_backend().upper() if is_open else 'CPU'}, JAX {metadata.version('jax')}"

    def tensor(self, array: Array) -> Tensor:
        """Return the array, which compiled functions take."""
        return array

    def array(self, tensor: Tensor) -> Array:
        """Return the values of a result."""
        return np.asarray(tensor)

    def compiled(self, function: Function, arrays: Sequence[Array], count: int = 0) -> Function:
        """Return the compiled function; :meth:`differentiate` compiles its gradients."""
        return function if count else self.kept(lambda: self._compiled(function), function)

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        """Return the gradients by ``jax.vjp``."""

        def pullback(g: Tensor, *tensors: Tensor) -> Any:
            rest = tensors[count:]
            return self.vjp(lambda *leaves: function(*leaves, *rest), *tensors[:count])[1](g)

        gradients: Sequence[Tensor] = self.kept(lambda: self._compiled(pullback), function, count)(g, *tensors)
        return gradients

    def _compiled(self, function: Function) -> Function:
        """Return the function under ``jax.jit``, in float32 on all devices: the default of accelerators is less."""

        def precise(*tensors: Tensor) -> Any:
            with self.default_matmul_precision("highest"):
                return function(*tensors)

        compiled: Function = self.jit(precise)
        return compiled
