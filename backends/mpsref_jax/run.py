"""Run functions of JAX on NumPy arrays: compiled once for each problem, their results copied."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.backend import Implementation
from mpsref.errors import UnsupportedError, install
from mpsref.operations import planned

JaxArray: TypeAlias = Any
"""A ``jax.Array``, or a tracer."""

Function: TypeAlias = Callable[..., Any]
"""A function of JAX arrays."""


def unavailable() -> str | None:
    """Return ``None``, or why JAX does not run here."""
    if importlib.util.find_spec("jax") is None:
        return f"JAX is not installed: {install('jax')}"
    return None


def described() -> str:
    """Return device and version."""
    import jax

    return f"{jax.default_backend().upper()}, JAX {jax.__version__}"


def implementation(make: Callable[[Any], Function]) -> Implementation:
    """Return the implementation of an operation from the function that ``make(problem)`` returns."""
    import jax

    compiled = planned(lambda problem: jax.jit(make(problem)))

    def run(problem: Any, *inputs: Array, out: Any) -> None:
        try:
            with jax.default_matmul_precision("highest"):  # on accelerators the default is lower than float32
                results = compiled(problem)(*inputs)
        except NotImplementedError as error:
            if isinstance(error, UnsupportedError):
                raise
            raise UnsupportedError(f"JAX: {str(error).splitlines()[0]}") from error
        if not isinstance(out, tuple):
            out, results = (out,), (results,)
        for target, result in zip(out, results, strict=True):
            target[...] = np.asarray(result)

    return run


def pullback(function: Function, g: JaxArray, *primals: JaxArray) -> tuple[JaxArray, ...]:
    """Return the gradients for all ``primals`` of ``function(*primals)``, from the source gradient."""
    import jax

    found: tuple[JaxArray, ...] = jax.vjp(function, *primals)[1](g)
    return found
