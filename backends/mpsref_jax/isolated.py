"""Equations that run in a process of their own: one that XLA cannot compile may end the process that compiles it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from mpsref.arguments.arrays import Array
from mpsref.conformance.isolation import IsolatedRunner, Limits
from mpsref.conformance.runner import Outcome
from mpsref.frameworks.adapter import Tensor

LIMITS = Limits(seconds=600, gib=64)
"""Equations of a large model may need much of both."""

_idle: list[IsolatedRunner] = []
"""A process for the next audit, which need not import JAX again."""


_programs: dict[object, bytes | None] = {}
"""What was sent in any audit, by form; see :func:`_form`."""

MOST_PROGRAMS = 1024
"""Of these the first are dropped."""


class EndedError(Exception):
    """An equation ended the process that ran it, or did not return."""


@contextlib.contextmanager
def running() -> Iterator[Equations]:
    """Run equations in a process, if this one has a CPU only: a GPU may have no memory for two."""
    isolates = jax.default_backend() == "cpu" and hasattr(os, "fork")
    runner = (_idle.pop() if _idle else IsolatedRunner(_run, LIMITS, new=True)) if isolates else None
    equations = Equations(runner)
    token = _current.set(equations)
    try:
        yield equations
    except BaseException:  # it may have an equation to answer
        if runner is not None:
            runner.close()
        raise
    finally:
        _current.reset(token)
    if runner is not None:
        runner.end_block()
        _idle.append(runner)


@atexit.register
def _end() -> None:
    while _idle:
        _idle.pop().close()


class Equations:
    """Runs equations of a jaxpr, each compiled alone, in a process or in this one."""

    def __init__(self, runner: IsolatedRunner | None = None) -> None:
        self._runner = runner
        self._programs: dict[object, bytes | None] = {}
        """By form, what is sent in this audit alone; ``None`` for what no other process can run, such as a callback."""
        self._ended: dict[object, str] = {}
        """By form, how equations ended their process."""

    @property
    def ended(self) -> bool:
        """Whether an equation ended its process."""
        return bool(self._ended)

    def bind(self, equation: Any, operands: Sequence[Tensor]) -> Any:
        """Return what the primitive of an equation returns."""
        runner = self._runner
        if runner is None:
            return equation.primitive.bind(*operands, **equation.params)
        key, lasts = _form(equation, operands)
        programs = _programs if lasts else self._programs
        if key not in programs:
            programs[key] = _exported(equation, operands)
            if len(_programs) > MOST_PROGRAMS:
                del _programs[next(iter(_programs))]
        if (program := programs[key]) is None:
            return equation.primitive.bind(*operands, **equation.params)
        if key not in self._ended:
            arrays = [np.asarray(one, jnp.result_type(one)) for one in operands]
            found = runner.ask(program, bool(jax.config.jax_enable_x64), arrays)
            if not isinstance(found, Outcome):
                results = [jnp.asarray(one) for one in found]
                return results if equation.primitive.multiple_results else results[0]
            self._ended[key] = found.message
        raise EndedError(self._ended[key])


_current: ContextVar[Equations] = ContextVar("equations")


def bind(equation: Any, operands: Sequence[Tensor]) -> Any:
    """Return what the primitive of an equation returns; raise ``EndedError`` if that ends the process which runs it."""
    return _current.get(Equations()).bind(equation, operands)


def _form(equation: Any, operands: Sequence[Tensor]) -> tuple[object, bool]:
    """Return what equations have in common that are the same program, and whether that holds in other audits.

    An equation with functions in it is alone. The text of a parameter with an address or an ellipsis may be that of
    another one later.
    """
    shapes = tuple((np.shape(one), jnp.result_type(one)) for one in operands)
    given = [one if isinstance(one, (tuple, list)) else (one,) for one in equation.params.values()]
    calls = any(hasattr(each, "eqns") or hasattr(each, "jaxpr") for one in given for each in one)
    text = str(equation.params)
    settings = jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision
    form = equation.primitive, id(equation) if calls else text, shapes, *settings
    return form, not (calls or " at 0x" in text or "..." in text)


def _exported(equation: Any, operands: Sequence[Tensor]) -> bytes | None:
    """Return the program of an equation, or ``None`` if it needs this process, or numbers that have no array."""
    dtypes = [jnp.result_type(one) for one in (*operands, *(one.aval for one in equation.outvars))]
    if equation.effects or any(jnp.issubdtype(dtype, jax.dtypes.extended) for dtype in dtypes):
        return None

    def function(*given: Tensor) -> Any:
        return equation.primitive.bind(*given, **equation.params)

    kinds = [jax.ShapeDtypeStruct(np.shape(one), jnp.result_type(one)) for one in operands]
    try:
        return bytes(export.export(jax.jit(function))(*kinds).serialize())
    except (NotImplementedError, TypeError, ValueError):
        return None


def _run(program: bytes, x64: bool, arrays: Sequence[Array]) -> list[Array]:
    """Run a program in the other process."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", x64)
    return [np.asarray(one) for one in jax.tree.leaves(_compiled(program)(*arrays))]


@functools.lru_cache(maxsize=1024)
def _compiled(program: bytes) -> Callable[..., Any]:
    found: Callable[..., Any] = jax.jit(export.deserialize(bytearray(program)).call)
    return found
