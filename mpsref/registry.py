"""Operations, backends, and the one place where they meet.

An *operation* is a spec class and a method name, ``(PoolingAverage, "gradient")``. A *problem* is one call of it
without the pixels: the spec, the shapes, the geometry. A *backend* has a name and a table from operations to functions
``implementation(problem, *inputs, out)`` that fill ``out``. :func:`run` checks everything once and then calls one of
them; an implementation never sees an illegal problem, a strange layout or an empty array.

Backends come in through entry points of the group ``mpsref.backends``, the built-in ones by the same door as others.
What a backend lacks is an error with its reason; nothing ever runs on another backend than the one asked for.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.backend import Backend, BackendInfo, Implementation
from mpsref.errors import UnsupportedError
from mpsref.operations import ImageProblem, Operation, OperationKey, Problem, Spec

if TYPE_CHECKING:
    from importlib import metadata

__all__ = [
    "BUILT_IN",
    "Backend",
    "BackendInfo",
    "ImageProblem",
    "Implementation",
    "Operation",
    "OperationKey",
    "Problem",
    "Spec",
    "backends",
    "get_available",
    "get_backend",
    "get_backends",
    "is_installed",
    "register",
    "run",
    "run_one",
    "set_backend",
    "use_backend",
]

ENTRY_POINT_GROUP = "mpsref.backends"

BUILT_IN = ("reference", "reference:input-dtype")
"""The backends that are no entry points: the formulas in float64, and in the dtype of the inputs."""


_registered: dict[str, Backend] = {}
_default: str | Backend = "reference"
_override: ContextVar[str | Backend | None] = ContextVar("mpsref_backend", default=None)


@functools.cache
def _installed() -> tuple[metadata.EntryPoint, ...]:
    from importlib import metadata  # takes as long as all of mpsref, and is needed at the first use of a backend

    return tuple(metadata.entry_points(group=ENTRY_POINT_GROUP))


@functools.cache
def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in _installed()}


def _names() -> list[str]:
    return [*_registered, *(name for name in _entry_points() if name not in _registered)]


@functools.cache
def _load(name: str) -> Backend:
    """Import an installed backend; one that cannot be imported is there, with the reason why not."""
    point = _entry_points()[name]
    claims = sorted({other.value for other in _installed() if other.name == name})
    if len(claims) > 1:
        clash = f"backend name {name!r} is claimed by {' and '.join(claims)}; uninstall all but one"
        return Backend(name, {}, unavailable=lambda: clash)
    try:
        loaded = point.load()
        if not isinstance(loaded, Backend):
            raise TypeError(f"{point.value} is a {type(loaded).__name__}, not an mpsref.Backend")
    except Exception as error:  # whatever a third party's import may raise, the other backends stay usable
        reason = f"backend {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
        return Backend(point.name, {}, unavailable=lambda: reason)
    return loaded


def is_installed(name: str) -> bool:
    """Tell whether other processes know the backend, too: the reference, and what is not registered at run time.

    >>> is_installed("reference"), is_installed("unheard of")
    (True, False)
    """
    return name in _entry_points() or name in BUILT_IN


def register(backend: Backend) -> Backend:
    """Make ``backend`` known by its name in this process, beside those that are installed; return it."""
    if not isinstance(backend, Backend):
        raise TypeError(f"backend is of type {type(backend).__name__}; it must be an mpsref.Backend")
    if backend.name in _names():
        raise ValueError(f"backend name {backend.name!r} is taken; known: {', '.join(_names())}")
    _registered[backend.name] = backend
    return backend


def get_backend(backend: str | Backend | None = None) -> Backend:
    """Return the backend of this name; ``None`` is the one set by :func:`use_backend` or :func:`set_backend`.

    Raises ``ValueError`` for an unknown name. A known backend that cannot run here is returned all the same: its
    ``unavailable()`` says why.

    >>> get_backend().name
    'reference'
    """
    chosen = backend if backend is not None else _override.get() or _default
    if isinstance(chosen, Backend):
        return chosen
    if not isinstance(chosen, str):
        raise TypeError(f"backend is of type {type(chosen).__name__}; it must be a name, an mpsref.Backend or None")
    if chosen in _registered:
        return _registered[chosen]
    if chosen in _entry_points():
        return _load(chosen)
    raise ValueError(f"unknown backend {chosen!r}; installed: {', '.join(map(repr, _names()))}")


def get_backends(backends: str | Backend | Iterable[str | Backend]) -> list[Backend]:
    """Return all of ``backends``, which may be a single one."""
    several = [backends] if isinstance(backends, (str, Backend)) else backends
    return [get_backend(backend) for backend in several]


def get_available(backends: str | Backend | Iterable[str | Backend]) -> list[Backend]:
    """Return all of ``backends``; ``UnsupportedError`` names one that cannot run here, and why."""
    chosen = get_backends(backends)
    for backend in chosen:
        if (reason := backend.unavailable()) is not None:
            raise UnsupportedError(f"backend {backend.name!r} is not available: {reason}")
    return chosen


def set_backend(backend: str | Backend) -> None:
    """Set what ``backend=None`` means in this process; at the start it is "reference"."""
    global _default
    _default = _known(backend)


@contextlib.contextmanager
def use_backend(backend: str | Backend) -> Iterator[None]:
    """Set what ``backend=None`` means inside a ``with`` block, for this thread or task alone.

    >>> with use_backend("reference"):
    ...     get_backend().name
    'reference'
    """
    token = _override.set(_known(backend))
    try:
        yield
    finally:
        _override.reset(token)


def backends() -> list[BackendInfo]:
    """List the reference and every installed backend: name, available, device, or the sentence why not."""
    return [_describe(name) for name in _names()]


def _describe(name: str) -> BackendInfo:
    try:
        backend = get_backend(name)
        reason = backend.unavailable()
        device = "" if reason else backend.device()
    except Exception as error:  # one broken plug-in must not hide the others
        reason, device = f"backend {name!r} failed to describe itself: {type(error).__name__}: {error}", ""
    return BackendInfo(name, reason is None, device, reason or "")


def run(
    problem: Problem, *inputs: Array, out: Any = None, backend: str | Backend | None = None
) -> Array | tuple[Array, ...]:
    """Run ``problem`` on ``inputs`` with a backend; return its result, or a tuple of them where there are several.

    ``inputs`` have passed :func:`arrays.as_image` and fit the problem's ``input_shapes``. ``out`` is an array
    (a tuple for several results) that fits and overlaps no input. ``UnsupportedError`` says why a backend cannot.
    """
    chosen = backend if type(backend) is Backend else get_backend(backend)
    sources, ready = inputs, problem.__dict__.get("_ready")  # each line is run for every kernel, and counts
    if ready is None or ready.backend is not chosen:
        sources, ready = _made_ready(problem, chosen, inputs)
    else:
        for array, dtype in zip(inputs, ready.dtypes, strict=True):
            if array.dtype is not dtype or type(array) is not np.ndarray or not array.flags.c_contiguous:
                sources, ready = _made_ready(problem, chosen, inputs)
                break
    implementation = chosen.implementations[ready.operation]
    if out is not None or ready.is_empty:
        return _run_into(ready, problem, implementation, sources, inputs, out)
    made = ready.made
    try:
        results = (np.empty(*made[0]),) if len(made) == 1 else tuple([np.empty(*one) for one in made])
    except MemoryError:  # say for what
        results = tuple([arrays.empty("the result", *one) for one in made])
    if len(results) == 1:
        implementation(problem, *sources, out=results[0])
        return results[0]
    implementation(problem, *sources, out=results)
    return results


class _Ready(NamedTuple):
    """What is known of every call of a problem on one backend with inputs of such dtypes."""

    backend: Backend
    operation: OperationKey
    dtypes: list[np.dtype[Any]]
    """In native byte order; other inputs are made so each time."""
    made: list[tuple[Shape, np.dtype[Any]]]
    """Shape and dtype of each result."""
    is_empty: bool
    """Whether an input has no elements; then results are zeros."""


def _made_ready(problem: Problem, backend: Backend, given: tuple[Array, ...]) -> tuple[tuple[Array, ...], _Ready]:
    """Check that the backend takes such a problem and such inputs; return them as it reads them, and what is known."""
    inputs = tuple(map(arrays.native, given))
    known: _Ready | None = problem.__dict__.get("_ready")
    if known is not None and known.backend is backend and known.dtypes == [array.dtype for array in inputs]:
        return inputs, known
    operation = type(problem.spec), problem.method
    reason = backend.why_not(operation, problem.spec)
    if reason is not None:
        raise UnsupportedError(reason)
    dtypes = [array.dtype for array in inputs]
    for name, dtype in zip(problem.input_shapes, dtypes, strict=True):
        if dtype.kind == "f" and dtype.type not in backend._taken:
            raise TypeError(
                f"{name} has dtype {dtype}; backend {backend.name!r} takes {', '.join(backend.dtypes)}: "
                'convert it, or use backend="reference"'
            )
    made = list(zip(problem.result_shapes, problem.result_dtypes(*dtypes), strict=True))
    for one in made:  # each may be too large
        arrays.empty("the result", *one)
    ready = _Ready(backend, operation, dtypes, made, not all(array.size for array in inputs))
    problem.__dict__["_ready"] = problem.__dict__.get("_followed", problem).__dict__["_ready"] = ready
    return inputs, ready


def _run_into(
    ready: _Ready,
    problem: Problem,
    implementation: Implementation,
    sources: tuple[Array, ...],
    inputs: tuple[Array, ...],
    out: Any,
) -> Array | tuple[Array, ...]:
    """Run a problem whose inputs are empty, or whose results go into arrays of the caller."""
    made = ready.made
    results = tuple([arrays.empty("the result", *one) for one in made]) if out is None else _checked(made, inputs, out)
    # A backend writes into plain memory; only a caller's strided array takes the way over a copy.
    targets = tuple(r if r.flags.c_contiguous else np.empty_like(r, order="C") for r in results)
    single = len(targets) == 1
    if ready.is_empty:
        for target in targets:
            target.fill(0)
    else:
        implementation(problem, *sources, out=targets[0] if single else targets)
    for result, target in zip(results, targets, strict=True):
        if result is not target:
            result[...] = target
    return results[0] if single else results


run_one = cast("Callable[..., Array]", run)
"""The same, for an operation with a single result."""


def _checked(made: list[tuple[Shape, np.dtype[Any]]], inputs: tuple[Array, ...], out: Any) -> tuple[Array, ...]:
    """Return the caller's arrays if the results may be written into them."""
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) != len(made):
        raise TypeError(f"out has {len(outs)} arrays; the operation has {len(made)} results: pass one for each")
    names = ["out"] if len(outs) == 1 else [f"out[{k}]" for k in range(len(outs))]
    return tuple(
        arrays.checked_out(name, one, shape, dtype, inputs)
        for name, one, (shape, dtype) in zip(names, outs, made, strict=True)
    )


def _known(backend: Any) -> str | Backend:
    if backend is None:
        raise TypeError("backend is None; it must be a name or an mpsref.Backend")
    get_backend(backend)
    return backend  # type: ignore[no-any-return]
