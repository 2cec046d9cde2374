"""The registry of backends, and the dispatch of operations to them.

:func:`call` validates the arguments of a call and runs the implementation of a backend. Implementations receive only
legal problems and non-empty C-contiguous arrays. Backends are entry points of the group ``mpsref.backends``, including
those that ship with mpsref. An operation that a backend does not implement is an error that states the reason; there is
no fallback to another backend.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from anymetal.fork_safe import importing
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.device import DeviceArrays, is_on_device
from mpsref.arguments.text import did_you_mean, near, shown
from mpsref.backend import Backend, BackendInfo, Implementation
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.operations import ImageProblem, Operation, OperationKey, Problem, Spec, operations

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
    "call",
    "get_available",
    "get_backend",
    "get_backends",
    "is_installed",
    "named_only",
    "operations",
    "register",
    "run",
    "run_one",
    "set_backend",
    "use_backend",
]

ENTRY_POINT_GROUP = "mpsref.backends"

BUILT_IN = ("reference", "reference:input-dtype")
"""The reference backends: the formulas evaluated in float64, and in the dtype of the inputs."""


_registered: dict[str, Backend] = {}
_loaded: dict[str, Backend] = {}
"""Backends by name, after their first use."""
_of_modules: set[str] = set()
"""The names of backends that are objects of modules, ``my_module:backend``."""
_default: str | Backend = "reference"
_override: ContextVar[str | Backend | None] = ContextVar("mpsref_backend", default=None)


@functools.cache
def _installed() -> tuple[metadata.EntryPoint, ...]:
    with importing:
        from importlib import metadata  # as slow to import as all of mpsref; needed only at the first use of a backend

        return tuple(metadata.entry_points(group=ENTRY_POINT_GROUP))


@functools.cache
def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in _installed()}


def _names() -> list[str]:
    return [*_registered, *(name for name in _entry_points() if name not in _registered)]


def _packages() -> set[str]:
    """Return the parts before the colon of the names of backends."""
    return {name.partition(":")[0] for name in _names()}


def _load(name: str) -> Backend:
    """Import an installed backend; return an unavailable backend if the import fails."""
    point = _entry_points()[name]
    claims = sorted({other.value for other in _installed() if other.name == name})
    if len(claims) > 1:
        clash = f"backend name {name!r} is claimed by {' and '.join(claims)}; uninstall all but one"
        return Backend(name, {}, unavailable=lambda: clash)
    try:
        with importing:
            loaded = point.load()
        if not isinstance(loaded, Backend):
            raise TypeError(f"{point.value} is a {type(loaded).__name__}, not an mpsref.Backend")
    except (Exception, SystemExit) as error:  # an import may raise anything; the other backends stay usable
        reason = f"backend {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
        return Backend(point.name, {}, unavailable=lambda: reason)
    return loaded


def _of_module(text: str) -> Backend | None:
    """Return the backend ``PACKAGE.MODULE:NAME``, also of a module in the current folder, under this name.

    Return ``None`` for other texts, and for a part of an installed package of backends, such as ``metal:cude``.
    """
    module, colon, attribute = text.partition(":")
    if not (colon and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        return None
    if module in _packages():
        return None
    from importlib import import_module

    if (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)
    try:
        with importing:
            found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is not None and module.startswith(error.name):
            return None
        raise ValueError(f"backend {text!r} cannot be loaded: {error}") from error
    except SystemExit as error:
        raise ValueError(f"backend {text!r} cannot be loaded: SystemExit: {error}") from error
    except AttributeError:
        raise ValueError(f"backend {text!r}: the module {module!r} has no {attribute!r}") from None
    if not isinstance(found, Backend):
        raise TypeError(f"{text} is a {type(found).__name__}; it must be an mpsref.Backend")
    return replace(found, name=text)


def is_installed(name: str) -> bool:
    """Return whether a backend is available by this name in every process, without a call of :func:`register`.

    >>> is_installed("reference"), is_installed("unknown")
    (True, False)
    """
    return not is_own(name) or name in _of_modules


def is_own(name: str) -> bool:
    """Return whether a backend is that of a user: an object, or ``module:attribute``."""
    return name not in _entry_points() and name not in BUILT_IN


def register(backend: Backend) -> Backend:
    """Register a backend under its name in this process, in addition to the installed backends.

    Parameters
    ----------
    backend : Backend
        The backend; its name must not be taken.

    Returns
    -------
    Backend
        The same backend.
    """
    if not isinstance(backend, Backend):
        raise TypeError(f"backend is of type {type(backend).__name__}; it must be an mpsref.Backend")
    if backend.name in _names():
        raise ValueError(f"backend name {backend.name!r} is taken; known: {', '.join(_names())}")
    _registered[backend.name] = backend
    return backend


def get_backend(backend: str | Backend | None = None) -> Backend:
    """Return a backend by its name.

    Parameters
    ----------
    backend : str or Backend, optional
        A name, ``PACKAGE.MODULE:NAME`` of an object in a module, or the backend itself; default: what
        :func:`use_backend` or :func:`set_backend` set.

    Returns
    -------
    Backend
        Also one that cannot run on this machine; its ``unavailable()`` returns the reason.

    Raises
    ------
    ValueError
        For an unknown name.

    Examples
    --------
    >>> get_backend().name
    'reference'
    """
    chosen = backend if backend is not None else _override.get() or _default
    if isinstance(chosen, Backend):
        return chosen
    if not isinstance(chosen, str):
        raise TypeError(f"backend is of type {type(chosen).__name__}; it must be a name, an mpsref.Backend or None")
    if chosen not in _loaded:
        if chosen in _registered:
            _loaded[chosen] = _registered[chosen]
        elif chosen in _entry_points():
            _loaded[chosen] = _load(chosen)
        elif (found := _of_module(chosen)) is not None:
            _loaded[chosen] = found
            _of_modules.add(chosen)
        else:
            raise ValueError(f"unknown backend {shown(chosen)}{_hint(chosen)}; `mpsref backends` lists all")
    return _loaded[chosen]


def _hint(unknown: str) -> str:
    """Return the end of a message for an unknown backend: similar names, such as ``metal:cuda`` for ``cuda``."""
    variants = [name for name in _names() if unknown and name.endswith(f":{unknown}")]
    module, colon, _ = unknown.partition(":")
    missing = f": there is no module {module!r}" if colon and module not in _packages() else ""
    return did_you_mean(" or ".join(variants)) or near(unknown, _names()) or missing


def get_backends(backends: str | Backend | Iterable[str | Backend]) -> list[Backend]:
    """Return a list of backends from names and backends, or from a single one."""
    several = [backends] if isinstance(backends, (str, Backend)) else backends
    return [get_backend(backend) for backend in several]


def get_available(backends: str | Backend | Iterable[str | Backend]) -> list[Backend]:
    """Return a list of backends as :func:`get_backends` does; raise ``UnsupportedError`` if one is unavailable."""
    chosen = get_backends(backends)
    for backend in chosen:
        if (reason := backend.unavailable()) is not None:
            raise UnsupportedError(f"backend {backend.name!r} is not available: {reason}")
    return chosen


def set_backend(backend: str | Backend) -> None:
    """Set the default backend of this process, initially "reference".

    Parameters
    ----------
    backend : str or Backend
        A name, or the backend itself.
    """
    global _default
    _default = _known(backend)


@contextlib.contextmanager
def use_backend(backend: str | Backend) -> Iterator[None]:
    """Set the default backend inside a ``with`` block, for the current thread or task only.

    Parameters
    ----------
    backend : str or Backend
        A name, or the backend itself.

    Examples
    --------
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
    """List all backends.

    Returns
    -------
    list of BackendInfo
        Name, availability, and device or the reason for unavailability.
    """
    return [_describe(name) for name in _names()]


def named_only() -> list[str]:
    """Return the names of the backends that a check of all backends leaves out."""
    return [name for name in _names() if get_backend(name).named_only]


def _describe(name: str) -> BackendInfo:
    try:
        backend = get_backend(name)
        reason = backend.unavailable()
        device = "" if reason else backend.device()
    except Exception as error:  # a broken plug-in must not hide the others
        reason, device = f"backend {name!r} failed to describe itself: {type(error).__name__}: {error}", ""
    return BackendInfo(name, reason is None, device, reason or "")


class _CheckedCall(NamedTuple):
    """A checked call: everything that does not depend on the values of the arrays."""

    problem: Problem
    implementation: Implementation
    results: list[tuple[Shape, np.dtype[Any]]]
    """Shape and dtype of each result."""
    positions: tuple[int, ...]
    """Positions in the call of the arrays that the implementation reads."""
    is_empty: bool
    """Whether an input has no elements; the results are then zeros."""


CALLS = 64
"""Maximum number of checked calls cached for a spec or a problem."""

SPECS = 64
"""Maximum number of different specs whose checked calls are shared by equal specs."""

_calls_of_specs: dict[tuple[type[Spec], str], dict[tuple[Any, ...], _CheckedCall]] = {}


def call(
    spec: Spec,
    method: str,
    given: tuple[Any, ...],
    *,
    out: Any = None,
    backend: str | Backend | None = None,
    varying: Mapping[str, Any] | None = None,
    **options: Any,
) -> Array:
    """Check a call of a method of ``spec`` and run it; return its result, or a tuple of several results.

    Prepared calls are cached, and shared by specs with the same parameters. The cache key consists of the method, the
    backend, the options, and the shapes and dtypes of the arrays; a call with the key of an earlier call is not
    checked again.

    Parameters
    ----------
    given : tuple
        A value for each declared input of the operation: an array-like, ``None`` for an optional input, or a shape for
        an input whose values are not read.
    out : ndarray or tuple of ndarray, optional
        Arrays for the results; they must not overlap the inputs, each other or themselves.
    varying : mapping, optional
        Fields of the problem that are not part of the cache key, such as a time step.
    **options
        Fields of the problem that the shapes of the arrays do not determine.

    Raises
    ------
    ValueError, TypeError
        If an argument is illegal.
    UnsupportedError
        If the backend does not run the operation.
    """
    if type(backend) is Backend:
        chosen = backend
    else:
        chosen = (_loaded.get(backend) if type(backend) is str else None) or get_backend(backend)
    try:  # repr distinguishes 2, 2.0 and True, which are equal as keys
        key: list[Any] = [method, chosen, repr(tuple(options.values())) if options else None]
    except Exception:  # of a value that is nested too deeply, for example; its check raises an error that names it
        key = []
    are_contiguous = True
    for value in given if key else ():
        if type(value) is np.ndarray:
            key += value.shape, value.dtype
            are_contiguous = are_contiguous and value.flags.c_contiguous
        elif value is None or (
            type(value) is tuple
            and len(value) == 4
            and type(value[0]) is type(value[1]) is type(value[2]) is type(value[3]) is int
        ):
            key.append(value)
        else:
            key.clear()  # needs a conversion in each call: not cached
            break
    if chosen.arrays is not None and (not key or out is not None) and _is_on_device(chosen.arrays, given, out):
        return cast(Array, _call_on_device(spec, method, chosen, given, out, varying, options))
    calls = spec.__dict__.get("_calls")
    if calls is None:
        calls = _shared_calls(spec)
    checked = calls.get(tuple(key)) if key else None
    if checked is None:
        checked, sources, inputs = _check_call(spec, method, chosen, given, options, key)
    else:
        sources = []
        for position in checked.positions:
            sources.append(given[position])
        inputs = sources
        if not are_contiguous:
            sources = _sources(checked.problem, inputs, strided=bool(chosen.layouts))
    problem = checked.problem if varying is None else checked.problem.varied(varying)
    result: Array = _execute(checked, problem, sources, inputs, out)
    return result


def _is_on_device(device: DeviceArrays, given: Sequence[Any], out: Any) -> bool:
    return device.finds(given) or (out is not None and device.finds(_listed(out)))


def _listed(out: Any) -> tuple[Any, ...]:
    return out if isinstance(out, tuple) else (out,)


def _call_on_device(
    spec: Spec,
    method: str,
    backend: Backend,
    given: tuple[Any, ...],
    out: Any,
    varying: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> Any:
    """Run a call with arrays on the backend's device; its results stay there."""
    assert backend.arrays is not None
    with backend.arrays.scope((*given, *_listed(out))) as adopt:
        values = tuple(map(adopt, given))
        try:
            key: list[Any] = [method, backend, repr(tuple(options.values())) if options else None]
        except Exception:  # as in call
            key = []
        for value in values if key else ():
            if value is None:
                key.append(value)
            elif is_on_device(value) and value.is_contiguous:
                key += value.shape, value.dtype
            elif type(value) is tuple and set(map(type, value)) == {int}:
                key.append(value)
            else:
                key.clear()
                break
        checked = _shared_calls(spec).get(tuple(key)) if key else None
        if checked is None:
            checked, sources, inputs = _check_call(spec, method, backend, values, options, key)
        else:
            sources = inputs = [values[position] for position in checked.positions]
        problem = checked.problem if varying is None else checked.problem.varied(varying)
        return _execute_on_device(checked, problem, sources, inputs, out, backend.arrays, adopt)


def _check_call(
    spec: Spec, method: str, backend: Backend, given: tuple[Any, ...], options: Mapping[str, Any], key: list[Any]
) -> tuple[_CheckedCall, list[Array], list[Array]]:
    """Check a call; return it checked, its arrays as the backend reads them, and its arrays as they were passed."""
    problem, inputs = spec.problems[method].from_call(spec, given, options)
    sources = _sources(problem, tuple(inputs.values()), strided=bool(backend.layouts))
    checked = _checked_call(problem, backend, sources, tuple(inputs))
    as_passed = all(array is given[position] and array.dtype.isnative for position, array in inputs.items())
    if key and as_passed and _is_plain(tuple(options.values())):
        _keep(spec, tuple(key), checked)
    return checked, sources, list(inputs.values())


def _keep(owner: Spec | Problem, key: tuple[Any, ...], checked: _CheckedCall) -> None:
    """Cache a checked call in its spec or problem; clear the cache if it is full."""
    calls = owner.__dict__.setdefault("_calls", {})
    if len(calls) >= CALLS:
        calls.clear()
    calls[key] = checked


def _shared_calls(spec: Spec) -> dict[tuple[Any, ...], _CheckedCall]:
    """Return the checked calls of a spec, shared with the specs of the same parameters."""
    kept: dict[tuple[Any, ...], _CheckedCall] | None = spec.__dict__.get("_calls")
    if kept is not None:
        return kept
    values = tuple([spec.__dict__[name] for name in spec.field_names])
    calls: dict[tuple[Any, ...], _CheckedCall] = {}
    if _is_plain(values):
        if len(_calls_of_specs) >= SPECS:
            _calls_of_specs.clear()
        calls = _calls_of_specs.setdefault((type(spec), repr(values)), calls)
    spec.__dict__["_calls"] = calls
    return calls


def _is_plain(value: object) -> bool:
    """Return whether the repr of a value determines the value."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _sources(problem: Problem, given: Sequence[Any], *, strided: bool = False) -> list[Any]:
    """Return the inputs of a problem as a backend reads them; raise ``ShapeError`` for other shapes than its own."""
    shapes = problem.input_shapes
    if len(given) != len(shapes):
        raise TypeError(f"{problem.operation} reads {', '.join(shapes) or 'no array'}; {len(given)} arrays are given")
    for (name, shape), array in zip(shapes.items(), given, strict=True):
        if array.shape != shape:
            legal = ", ".join(f"{other} of shape {expected}" for other, expected in shapes.items())
            raise ShapeError(f"{name} has shape {array.shape}; this problem of {problem.operation} reads {legal}")
    return [arrays.native(array, name, strided=strided) for name, array in zip(shapes, given, strict=True)]


def _checked_call(
    problem: Problem, backend: Backend, sources: Sequence[Array], positions: tuple[int, ...] = ()
) -> _CheckedCall:
    """Check that a backend runs a problem on arrays of these dtypes; return the checked call."""
    reason = backend.why_not_problem(problem)
    if reason is not None:
        raise UnsupportedError(reason)
    dtypes, untaken = [array.dtype for array in sources], backend.untaken(problem, sources)
    for name, source, dtype in zip(problem.input_shapes, sources, dtypes, strict=True):
        if backend.arrays is None and is_on_device(source):
            raise TypeError(
                f"{name} is on a device, {source!r}, and backend {backend.name!r} reads NumPy arrays: "
                f"pass numpy.asarray({name}), or use a backend of that device"
            )
        if name == untaken:
            raise TypeError(
                f"{name} has dtype {dtype}; backend {backend.name!r} takes {', '.join(backend.dtypes)}: "
                'convert it, or use backend="reference"'
            )
    results = list(zip(problem.result_shapes, problem.result_dtypes(*dtypes), strict=True))
    for one in results:
        arrays.empty("the result", *one)  # raises if it is too large
    is_empty = not all(array.size for array in sources)
    return _CheckedCall(problem, backend.implementations[problem.operation], results, positions, is_empty)


def run(problem: Problem, *inputs: Array, out: Any = None, backend: str | Backend | None = None) -> Any:
    """Run ``problem`` on ``inputs`` with a backend; return its result, or a tuple of several results.

    Raises ``ShapeError`` unless the inputs have the shapes ``problem.input_shapes``; ``out`` and other errors as in
    :func:`call`.
    """
    chosen = backend if type(backend) is Backend else get_backend(backend)
    if chosen.arrays is not None and _is_on_device(chosen.arrays, inputs, out):
        return _run_on_device(problem, inputs, out, chosen)
    sources = given = [one if type(one) is np.ndarray else arrays.as_array("an input", one) for one in inputs]
    key: list[Any] = [chosen]
    are_contiguous = True
    for array in given:
        key += array.shape, array.dtype  # with the shape, so that a call with a wrong one is not found, and is checked
        are_contiguous = are_contiguous and type(array) is np.ndarray and array.flags.c_contiguous
    checked = problem.__dict__.get("_calls", {}).get(tuple(key))
    if checked is None or not are_contiguous:
        sources = _sources(problem, given, strided=bool(chosen.layouts))
    if checked is None:
        checked = _checked_call(problem, chosen, sources)
        if all(array.dtype.isnative for array in given):
            _keep(problem, tuple(key), checked)
    return _execute(checked, problem, sources, given, out)


def _run_on_device(problem: Problem, inputs: tuple[Any, ...], out: Any, backend: Backend) -> Any:
    """Run a problem with arrays on the backend's device; its results stay there."""
    assert backend.arrays is not None
    with backend.arrays.scope((*inputs, *_listed(out))) as adopt:
        values = tuple(map(adopt, inputs))
        sources = _sources(problem, values)
        checked = _checked_call(problem, backend, sources)
        return _execute_on_device(checked, problem, sources, values, out, backend.arrays, adopt)


run_one = cast("Callable[..., Array]", run)
""":func:`run` for an operation with a single result."""


def _execute(
    checked: _CheckedCall, problem: Problem, sources: Sequence[Array], inputs: Sequence[Array], out: Any
) -> Any:
    """Run a checked call on ``sources``, the ``inputs`` in the layout that the backend reads."""
    if out is None and not checked.is_empty:
        wanted = checked.results
        try:
            result: Any = np.empty(*wanted[0]) if len(wanted) == 1 else tuple([np.empty(*one) for one in wanted])
        except MemoryError:
            several = tuple([arrays.empty("the result", *one) for one in wanted])  # raises an error with the size
            result = several if len(several) > 1 else several[0]
        try:
            checked.implementation(problem, *sources, out=result)
        except MemoryError as error:
            raise _too_large(problem, sources, error) from error
        return result
    if out is None:
        results = tuple([arrays.empty("the result", *one) for one in checked.results])
        return _fill(checked, problem, sources, results, np.empty)
    _fill(checked, problem, sources, _checked(checked.results, inputs, out), np.empty)
    return out[0] if isinstance(out, tuple) and len(out) == 1 else out


def _execute_on_device(
    checked: _CheckedCall,
    problem: Problem,
    sources: Sequence[Any],
    inputs: Sequence[Any],
    out: Any,
    device: DeviceArrays,
    adopt: Callable[[Any], Any],
) -> Any:
    """Run a checked call inside the scope of a device; return arrays of the device, or ``out``."""
    if out is None:
        return _fill(checked, problem, sources, tuple([device.empty(*one) for one in checked.results]), device.empty)
    adopted = tuple(map(adopt, _listed(out)))
    results = _checked(checked.results, inputs, adopted if isinstance(out, tuple) else adopted[0])
    _fill(checked, problem, sources, results, device.empty)
    return out


def _fill(
    checked: _CheckedCall, problem: Problem, sources: Sequence[Any], results: tuple[Any, ...], empty: Callable[..., Any]
) -> Any:
    """Run the implementation into ``results``; ``empty`` allocates a contiguous target for a strided one."""
    # Implementations write into contiguous memory; a strided array of the caller is filled from a copy.
    targets = tuple([r if arrays.is_contiguous(r) else empty(r.shape, r.dtype) for r in results])
    single = len(targets) == 1
    if checked.is_empty:
        for target in targets:
            target.fill(0)
    else:
        try:
            checked.implementation(problem, *sources, out=targets[0] if single else targets)
        except MemoryError as error:
            raise _too_large(problem, sources, error) from error
    for result, target in zip(results, targets, strict=True):
        if result is not target:
            result[...] = target
    return results[0] if single else results


def _too_large(problem: Problem, sources: Sequence[Any], error: MemoryError) -> ShapeError:
    """Return the error for an implementation that could not allocate its intermediate arrays."""
    given = ", ".join(f"{name} of shape {one.shape}" for name, one in zip(problem.input_shapes, sources, strict=True))
    nbytes = sum(array.nbytes for array in sources)
    return ShapeError(
        f"{problem.operation} of {given} ({nbytes} bytes) needs more memory than there is for its intermediate arrays "
        f"({error}); pass a smaller batch, or use another backend"
    )


def _checked(wanted: Sequence[tuple[Shape, np.dtype[Any]]], inputs: Sequence[Array], out: Any) -> tuple[Array, ...]:
    """Check that the results may be written into the caller's arrays; return the memory of these as a tuple."""
    if len(wanted) == 1 and type(out) is np.ndarray:
        return (arrays.checked_out("out", out, *wanted[0], inputs),)
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) != len(wanted):
        raise TypeError(f"out has {len(outs)} arrays; the operation has {len(wanted)} results: pass one for each")
    names = ["out"] if len(outs) == 1 else [f"out[{k}]" for k in range(len(outs))]
    checked = tuple(
        [
            arrays.checked_out(name, one, shape, dtype, inputs)
            for name, one, (shape, dtype) in zip(names, outs, wanted, strict=True)
        ]
    )
    for (first, one), (second, other) in itertools.combinations(zip(names, checked, strict=True), 2):
        arrays.check_apart(second, other, first, one, "pass an array of its own for each result")
    return checked


def _known(backend: str | Backend | None) -> str | Backend:
    if backend is None:
        raise TypeError("backend is None; it must be a name or an mpsref.Backend")
    get_backend(backend)
    return backend
