"""Functions with rules of differentiation of their own, each against the derivative of its own forward pass."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from mpsref.arguments.arrays import Array
from mpsref.conformance import derivative
from mpsref.conformance.audit import Check, Computed, Step
from mpsref.kernels.reference import ErrorBound

KINDS: tuple[Any, ...] = jax.custom_vjp, jax.custom_jvp

CALLS = 2
"""Calls of a function with arguments of the same shapes that are compared."""

ALONE = threading.RLock()
"""Held while the classes are changed: an audit in another thread waits."""

CONTEXT = jax.make_user_context(None) if hasattr(jax, "make_user_context") else None
"""What is traced under one of its values is not used under another."""


@contextlib.contextmanager
def _traced_as(value: object) -> Iterator[None]:
    """Trace functions under ``jit`` anew where ``value`` is new, and use none of these traces outside."""
    if CONTEXT is not None:
        with CONTEXT(value):
            yield
        return
    jax.clear_caches()
    try:
        yield
    finally:
        jax.clear_caches()


@contextlib.contextmanager
def calling(instead: Callable[[Any, Any, Any, Any], Any]) -> Iterator[None]:
    """Call ``instead(call, function, args, keywords)`` for all functions with rules of the user, in this thread."""
    thread = threading.get_ident()
    with ALONE, _traced_as(instead):
        before = [(kind, kind.__call__) for kind in KINDS]
        for kind, plain in before:

            def call(self: Any, *args: Any, plain: Any = plain, **keywords: Any) -> Any:
                if threading.get_ident() != thread or not any(True for _ in _written(self)):
                    return plain(self, *args, **keywords)
                return instead(plain, self, args, keywords)

            kind.__call__ = call
        try:
            yield
        finally:
            for kind, plain in before:
                kind.__call__ = plain


def _written(function: Any) -> Iterator[Any]:
    """Yield what is no part of JAX of a function and its rules, also where JAX has wrapped them."""
    pending = [getattr(function, name, None) for name in ("fun", "fwd", "bwd", "jvp")]
    for one in pending[:]:
        for cell in getattr(one, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # the cell is empty
                pending.append(cell.cell_contents)
    for one in pending:
        for each in one if isinstance(one, tuple) else (one,):
            own = inspect.unwrap(each.func if isinstance(each, partial) else each) if callable(each) else None
            if own is not None and str(getattr(own, "__module__", "")).partition(".")[0] != "jax":
                yield own


def _place(function: Any) -> tuple[str, str]:
    """Return file and line of a function, and its name."""
    own = next(_written(function))
    code, name = getattr(own, "__code__", None), getattr(own, "__qualname__", type(own).__name__)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else str(own.__module__), name


def argument_name(path: Any, function: Any = None) -> str:
    """Return the name of an array in the arguments of a function, by their names there if that is given."""
    k = path[0].idx
    return f"{derivative.parameter(function, k) or f'argument {k}'}{jax.tree_util.keystr(path[1:])}"


def _dtype(one: Any) -> Any:
    return jnp.result_type(one)


def _is_number(one: Any) -> bool:
    return isinstance(one, (jax.Array, np.ndarray)) and jnp.issubdtype(_dtype(one), jnp.floating)


def _unit(dtype: Any) -> float:
    return float(jnp.finfo(dtype).eps) / 2


@dataclass(frozen=True)
class _Form:
    """What calls have in common that are compared in one row."""

    function: Any
    tree: Any
    paths: tuple[str, ...]
    """The names of the leaves of the arguments."""
    wanted: tuple[int, ...]
    arrays: tuple[tuple[int, Any, Any], ...]
    """Positions, shapes and dtypes of the leaves that are arrays."""
    others: tuple[tuple[int, Any], ...]
    """The other leaves: numbers, functions and so on."""

    @classmethod
    def of(cls, function: Any, args: Any, keywords: Any) -> tuple[_Form, list[Any]]:
        """Return the form of a call, and its arrays."""
        with contextlib.suppress(TypeError, ValueError):  # without a signature, there are no names
            bound = inspect.signature(function.fun).bind(*args, **keywords)
            bound.apply_defaults()
            args = bound.args
        pairs, tree = jax.tree_util.tree_flatten_with_path(args)
        paths = tuple(argument_name(path, function.fun) for path, _ in pairs)
        fixed = {k % len(args) for k in function.nondiff_argnums}
        arrays = {k: one for k, (_, one) in enumerate(pairs) if isinstance(one, (jax.Array, np.ndarray))}
        wanted = tuple(k for k, one in arrays.items() if _is_number(one) and pairs[k][0][0].idx not in fixed)
        others = tuple((k, one) for k, (_, one) in enumerate(pairs) if k not in arrays)
        shapes = tuple((k, one.shape, _dtype(one)) for k, one in arrays.items())
        return cls(function, tree, paths, wanted, shapes, others), list(arrays.values())

    def key(self) -> object:
        """Return what can be compared; other leaves need not be hashable."""
        others = tuple((k, one if isinstance(one, (int, float, str)) else id(one)) for k, one in self.others)
        return id(self.function), str(self.tree), self.arrays, others

    def call(self, function: Callable[..., Any], leaves: Sequence[Any]) -> list[Any]:
        """Call a function with leaves, and return the results that are numbers."""
        found = function(*jax.tree.unflatten(self.tree, leaves))
        return [one for one in jax.tree.leaves(found) if jnp.issubdtype(_dtype(one), jnp.floating)]


def _without_rules(plain: Any, function: Any, args: Any, keywords: Any) -> Any:
    return function.fun(*args, **keywords)


class Recorder:
    """Keeps the arguments of calls, also of those in loops, with a callback in what is traced."""

    def __init__(self) -> None:
        self.calls: dict[object, tuple[_Form, list[Any]]] = {}
        self.count: Counter[object] = Counter()
        self._within: list[Any] = []

    def __call__(self, plain: Any, function: Any, args: Any, keywords: Any) -> Any:
        """Record a call, and run it; its rules may call the function itself."""
        form, arrays = _Form.of(function, args, keywords)
        if form.wanted and function not in self._within:
            key = form.key()
            self.calls.setdefault(key, (form, []))
            jax.debug.callback(partial(self._take, key), *arrays)
        self._within.append(function)
        try:
            return plain(function, *args, **keywords)
        finally:
            self._within.pop()

    def _take(self, key: object, *arrays: Any) -> None:
        self.count[key] += 1
        if self.count[key] <= CALLS:
            self.calls[key][1].append(arrays)

    def steps(self, rng: np.random.Generator, ended: bool = False) -> list[Step]:
        """Compare the gradients of the calls, unless an equation ``ended`` the process that ran it."""
        jax.effects_barrier()
        steps = []
        for key, (form, calls) in self.calls.items():
            first = form.arrays[[k for k, *_ in form.arrays].index(form.wanted[0])]
            step = Step(*_place(form.function), first[1], required=True)
            if not calls:
                step.reasons.append("its backward: it was traced, but not called")
            if self.count[key] > CALLS:
                step.notes.append(f"its backward at the first {CALLS} of {self.count[key]} calls")
            if ended:
                step.reasons.append("its backward: not called again, as an equation of this audit ends its process")
            for arrays in calls[: 0 if ended else None]:
                _check(step, form, arrays, rng)
            steps.append(step)
        self.calls.clear()  # what was traced, and is kept, refers to this object
        return steps


def _check(step: Step, form: _Form, arrays: Sequence[Any], rng: np.random.Generator) -> None:
    try:
        call = _Call(step, form, arrays, rng)
    except Exception as error:  # what a user's function raises is anything
        step.reasons.append(f"its backward: it does not run again: {type(error).__name__}: {error}")
        return
    call.check()
    with np.errstate(all="ignore"):
        step.judge(call.results)


class _Call(derivative.Applied):
    """A call, for what compares its gradients, on a random gradient of its results."""

    def __init__(self, step: Step, form: _Form, arrays: Sequence[Any], rng: np.random.Generator) -> None:
        self.step, self.form, self.wanted = step, form, form.wanted
        leaves = dict(form.others) | {k: jnp.asarray(one) for (k, *_), one in zip(form.arrays, arrays, strict=True)}
        self._own = [leaves[k] for k in range(len(leaves))]
        self.arguments = [_double(one) if _is_number(one) else one for one in self._own]
        self.unit = max(_unit(_dtype(self._own[k])) for k in self.wanted)
        self.outputs = self.again(self.arguments)
        by_rule, pullback = jax.vjp(self._of_wanted(form.function), *(self._own[k] for k in self.wanted))
        source = [jnp.asarray(rng.standard_normal(y.shape), y.dtype) for y in by_rule]
        self.g = [_double(one) for one in source]
        self.found = [np.asarray(one).astype(np.float32 if one.itemsize < 4 else one.dtype) for one in pullback(source)]
        self._by_rule = [_double(one) for one in by_rule]

    def _of_wanted(self, function: Callable[..., Any], leaves: Sequence[Any] | None = None) -> Callable[..., Any]:
        """Return a function of the wanted arguments."""

        def call(*given: Any) -> list[Any]:
            changed = dict(zip(self.wanted, given, strict=True))
            own = self._own if leaves is None else leaves
            return self.form.call(function, [changed.get(k, one) for k, one in enumerate(own)])

        return call

    def name(self, k: int) -> str:
        return self.form.paths[k]

    @contextlib.contextmanager
    def _plain(self) -> Iterator[None]:
        """Compute in float64, by functions without rules of the user."""
        with _x64(), calling(_without_rules):
            yield

    def _doubles(self, arguments: Sequence[Any]) -> list[Any]:
        return [jnp.asarray(one) if isinstance(one, np.ndarray) else one for one in arguments]

    def forward(self, arguments: Sequence[Any]) -> list[Array | None]:
        with self._plain():
            return [_double(one) for one in self.form.call(self.form.function.fun, self._doubles(arguments))]

    def inside(self) -> float:
        with self._plain():
            leaves = self._doubles(self.arguments)
            given = self._of_wanted(self.form.function.fun, leaves)
            traced = jax.make_jaxpr(given)(*(leaves[k] for k in self.wanted))
        return max([2.0**-53, *map(_unit, _dtypes(traced))])

    def derivative(self, arguments: Sequence[Any]) -> list[Array]:
        with self._plain():
            leaves = self._doubles(arguments)
            given = self._of_wanted(self.form.function.fun, leaves)
            results, pullback = jax.vjp(given, *(leaves[k] for k in self.wanted))
            found = pullback([jnp.asarray(g, y.dtype) for g, y in zip(self.g, results, strict=True)])
            return [_double(one) for one in found]

    def again(self, arguments: Sequence[Any], *, double: bool = False) -> list[Array | None]:
        with _x64() if double else contextlib.nullcontext():
            leaves = [
                jnp.asarray(new, None if double else _dtype(old)) if _is_number(old) else old
                for new, old in zip(arguments, self._own, strict=True)
            ]
            results = jax.block_until_ready(self.form.call(self.form.function, leaves))  # callbacks look at the context
        if double and not all(_dtype(one) == np.float64 for one in results):
            raise TypeError("its results are not in float64")
        return [_double(one) for one in results]

    def results(self) -> list[Check]:
        """Return the comparison of what its forward rule returns with what it returns without differentiation.

        They may be computed in different ways: half of the digits are compared.
        """
        pairs = [
            (y, own)
            for y, own, same in zip(self.outputs, self._by_rule, self.again(self.arguments), strict=True)
            if y is not None and same is not None and y.size and np.array_equal(y, same)
        ]
        return [
            Check(
                Computed((y,), (ErrorBound(self.unit**0.5 * (abs(y) + np.sqrt(np.square(y).mean()))),)),
                (),
                {"result of its rule": own.astype(np.float32)},
            )
            for y, own in pairs
            if np.isfinite(y).all()
        ]


def _double(one: Any) -> Array:
    return np.asarray(one).astype(np.float64)


@contextlib.contextmanager
def _x64() -> Iterator[None]:
    """Enable float64 in all threads: callbacks run in those of JAX, which do not know a setting of this thread."""
    if hasattr(jax, "enable_x64"):
        here = jax.enable_x64(True)
    else:
        from jax.experimental import enable_x64

        here = enable_x64()
    changes = not jax.config.jax_enable_x64  # a setting of the user for this thread is not made one of all threads
    if changes:
        jax.config.update("jax_enable_x64", True)
    try:
        with here:
            yield
    finally:
        if changes:
            jax.config.update("jax_enable_x64", False)


def _dtypes(traced: ClosedJaxpr | Any) -> Iterator[Any]:
    """Yield the dtypes of the numbers that the equations of a jaxpr and of those in it return."""
    for equation in getattr(traced, "jaxpr", traced).eqns:
        for one in equation.outvars:
            if jnp.issubdtype(one.aval.dtype, jnp.floating):
                yield one.aval.dtype
        for given in equation.params.values():
            for one in given if isinstance(given, (tuple, list)) else (given,):
                if hasattr(one, "eqns") or hasattr(one, "jaxpr"):
                    yield from _dtypes(one)
