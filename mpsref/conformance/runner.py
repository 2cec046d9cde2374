"""Run one case on one backend: guarded memory, comparison with the reference, then the properties."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.layouts import PLAIN
from mpsref.arguments.text import legible
from mpsref.conformance import comparator, rules
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Comparison, Mismatch
from mpsref.conformance.data import INTEGERS, DataFamily
from mpsref.conformance.guards import GuardedArray
from mpsref.errors import UnsupportedError
from mpsref.frameworks.call_text import noted
from mpsref.kernels.reference import ErrorBound, Functions, functions
from mpsref.registry import Backend, Problem

Status: TypeAlias = Literal["passed", "failed", "unsupported", "mistrusted"]

Property: TypeAlias = Callable[[Case, Backend], None]
"""``property(case, backend)`` raises :class:`Mismatch` if it does not hold; it returns, or raises
:class:`InapplicableError`, if it does not apply."""


WRONG, CRASHED, TIME, MEMORY = "wrong", "crashed", "time", "memory"
"""Kinds of failures. A crash is followed by its signal: "crashed SIGSEGV". A fifth kind is "raised TypeError"."""


MANY, FEW = 1024, 4100
"""Terms of a sum: of the first number on, a dropped one may fit the bound; up to the second one, no sum of products of
integers up to 63 is rounded.
"""

SHOWN_ELEMENTS = 400
"""Larger results of a failure are not kept."""


class InapplicableError(Exception):
    """Raised by a property that makes no statement about a case."""


class NotJudgedError(InapplicableError):
    """Raised by a property that cannot be judged because another operation is wrong; the message says which."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case; ``fraction`` is the worst error as a fraction of its bound."""

    status: Status
    fraction: float = 0.0
    message: str = ""
    kind: str = ""
    """Of a failure: "wrong" or "raised TypeError"; in isolation also "crashed SIGSEGV", "time" or "memory"."""
    results: tuple[tuple[float, ...], ...] = field(default=(), compare=False)
    """Of a wrong value: the elements of all results, if they are few enough to be shown."""
    used: float | None = field(default=None, compare=False)
    """The worst part of the bound of the arithmetic that results in float32 used; ``None`` without such results."""
    case: str = field(default="", compare=False)
    """Of a failure: the case that failed, if a property ran another one."""
    call: str = field(default="", compare=False)
    """Of a wrong value of a framework: the calls of its functions, as text that runs."""
    unjudged: str = field(default="", compare=False)
    """Of a case that passed: the property that was not judged because another operation is wrong."""

    def __post_init__(self) -> None:
        """Escape what a report cannot hold: exceptions of backends have any text, and their types any name."""
        for name in ("message", "kind"):
            object.__setattr__(self, name, legible(getattr(self, name)))


def run_case(case: Case, backend: Backend, properties: tuple[Property, ...] = ()) -> Outcome:
    """Run one case on one backend.

    Parameters
    ----------
    case, backend
        The case and the backend.
    properties
        Checked after agreement with the reference, on finite data.

    Returns
    -------
    Outcome
        The status is "passed", "failed", "unsupported" (with the reason), or "mistrusted": only zeros were expected, so
        that agreement shows little. A property for which the backend refuses another problem is left out. Sums that
        float32 computes exactly of small integers are computed of these once more: all of a backend that runs only if
        it is named, such as a framework, and of others those of :data:`MANY` terms.
    """
    reason = backend.why_not_problem(case.problem)
    if reason is None and case.dtype not in backend.dtypes:
        reason = f"backend {backend.name!r} does not take {case.dtype}"
    if reason is None and case.family == "nonfinite" and backend.fast_math:
        reason = f"backend {backend.name!r} has fast math, where NaN and infinities are unspecified"
    if reason is not None:
        return Outcome("unsupported", message=reason)
    with rules.applied(backend.rules):
        if rules.left_out(case.family, case.problem.operation):
            return Outcome("unsupported", message=f"data of the family {case.family!r} give other results, by a rule")
        outcome = _run(case, backend, properties)
        again = _on_integers(case, 0 if backend.named_only else MANY) if outcome.status == "passed" else None
        if again is None:
            return outcome
        found = _run(again, backend, ())
        if not found.kind:
            return outcome
        return replace(found, message=f"on small integers, {again}: {found.message}", case=found.case or str(again))


def _on_integers(case: Case, least: int) -> Case | None:
    """Return the case on integers of which sums of at least so many terms are exact; ``None`` if it has no such sums.

    Of few terms these are larger integers, which differ from their neighbours.
    """
    most = -1.0
    with rules.applied(rules.not_widening()):
        each = expected(case)
    for _, terms in each:
        sums = np.asarray(terms.exact) & (np.asarray(terms.limit) > 0)
        most = max(most, float(np.max(np.broadcast_to(terms.roundings, sums.shape), where=sums, initial=-1.0)))
    family: DataFamily = "exact" if most <= FEW else "small"
    return (
        None if most < max(least, 0) or case.family in (family, "nonfinite", "small") else replace(case, family=family)
    )


def _run(case: Case, backend: Backend, properties: tuple[Property, ...]) -> Outcome:
    """Run a case that the backend does not refuse, under the rules that are applied."""
    results: tuple[Array, ...] = ()
    found: list[Comparison] = []
    unjudged = ""
    check: Property | None = None
    try:
        with np.errstate(all="ignore"):  # wrong results may be NaN and infinities
            results = _guarded(case, backend)
            found = compared(case, results)
            for check in properties if case.family != "nonfinite" else ():
                if rules.left_out(getattr(check, "__name__", ""), case.problem.operation):
                    continue
                with contextlib.suppress(InapplicableError, UnsupportedError):
                    try:
                        check(case, backend)
                    except NotJudgedError as error:
                        unjudged = str(error)
    except UnsupportedError as error:
        return Outcome("unsupported", message=str(error))
    except Mismatch as mismatch:
        shown = check is None and sum(array.size for array in results) <= SHOWN_ELEMENTS
        elements = tuple(tuple(array.astype(np.float64).ravel().tolist()) for array in results if shown)
        failed = Case.parse(mismatch.case) if mismatch.case else case
        again = _guarded if check is None or mismatch.case else check
        call = _call(functools.partial(again, failed, backend)) if backend.named_only else ""
        message = f"{mismatch}{_statement(check)}"
        return Outcome("failed", message=message, kind=WRONG, results=elements, case=mismatch.case, call=call)
    except (Exception, SystemExit) as error:  # an exception on a legal problem is a failure
        kind = f"raised {type(error).__name__}"
        return Outcome("failed", message=f"{kind}: {_text(error)}", kind=kind)
    informative = any(np.any(reference) for reference, _ in expected(case))
    return Outcome(
        "passed" if informative else "mistrusted",
        max(one.fraction for one in found),
        used=max((one.used for one, of in zip(found, results, strict=True) if of.dtype == np.float32), default=None),
        unjudged=unjudged,
    )


def _statement(check: Property | None) -> str:
    """Return what a property says, for its message: in the first line of its documentation."""
    lines = (getattr(check, "__doc__", None) or "").strip().splitlines()
    return f"\n  what must hold: {lines[0]}" if check is not None and lines else ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:  # in the exception's own method
        return f"{type(another).__name__} in __str__"


def _call(failing: Callable[[], object]) -> str:
    """Return the calls of a framework in what has failed, as text; nothing if they have none, or raise."""
    with noted() as calls, contextlib.suppress(Exception):  # it may fail in another way
        failing()
    return "\n".join(dict.fromkeys(calls))


def agree(case: Case, results: tuple[Array, ...]) -> float:
    """Compare the results with the reference; return the worst fraction of the bound or raise :class:`Mismatch`."""
    return max(one.fraction for one in compared(case, results))


def agrees(case: Case, backend: Backend) -> None:
    """Run another case than a property was given; raise :class:`Mismatch` that names it."""
    try:
        agree(case, compute(case.problem, backend, *case.inputs()))
    except Mismatch as mismatch:
        raise Mismatch(str(mismatch), mismatch.index, str(case)) from None


def compared(case: Case, results: tuple[Array, ...]) -> list[Comparison]:
    """Compare each result with the reference; raise :class:`Mismatch` at the first that breaks its bound."""
    exact = case.family in INTEGERS
    return [
        comparator.checked(result, reference, terms, dtype.name, exact, case.problem.where)
        for result, (reference, terms), dtype in zip(results, expected(case), case.result_dtypes(), strict=True)
    ]


def expected(case: Case) -> tuple[tuple[Array, ErrorBound], ...]:
    """Return for each result the reference in float64, not rounded, and the terms of its error bound."""
    return _expected(case, rules.current(case.problem.operation))


@lru_cache(maxsize=300)
def _expected(case: Case, current: tuple[str, ...]) -> tuple[tuple[Array, ErrorBound], ...]:
    inputs = case.inputs()
    return tuple(zip(references(case.problem, *inputs), terms(case.problem, *inputs), strict=True))


def references(problem: Problem, *inputs: Array) -> tuple[Array, ...]:
    """Return the results of the reference, in float64 and not rounded."""
    found: tuple[Array, ...] = _evaluated("results", None, problem, *map(_Contents.of, inputs))
    return found


def terms(problem: Problem, *inputs: Array) -> tuple[ErrorBound, ...]:
    """Return for each result the terms of its error bound."""
    found: tuple[ErrorBound, ...] = _evaluated("bounds", functions(), problem, *map(_Contents.of, inputs))
    return rules.widened(problem, tuple(array.astype(np.float64) for array in inputs), found)


class _Contents(NamedTuple):
    """The contents of an array as a cache key."""

    dtype: str
    shape: Shape
    values: bytes

    @classmethod
    def of(cls, array: Array) -> _Contents:
        return cls(array.dtype.str, array.shape, array.tobytes())


@lru_cache(maxsize=128)
def _evaluated(
    which: Literal["results", "bounds"], accuracy: Functions | None, problem: Problem, *inputs: _Contents
) -> Any:
    """Evaluate a formula of the reference; all backends, and several properties, need the same.

    Bounds are those for functions of this accuracy.
    """
    arrays = [np.frombuffer(each.values, each.dtype).reshape(each.shape).astype(np.float64) for each in inputs]
    found = getattr(problem.operation, which)(problem, *arrays)
    for one in found:
        for array in one if isinstance(one, ErrorBound) else (one,):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)  # it is cached
    return found


def compute(problem: Problem, backend: Backend, *inputs: Array) -> tuple[Array, ...]:
    """Run a problem without guards; return a tuple of results.

    Raise :class:`InapplicableError` for a dtype that the backend does not take.
    """
    if (name := backend.untaken(problem, inputs)) is not None:
        raise InapplicableError(f"backend {backend.name!r} does not take the dtype of {name}")
    results = registry.run(problem, *inputs, backend=backend)
    return results if isinstance(results, tuple) else (results,)


def _guarded(case: Case, backend: Backend) -> tuple[Array, ...]:
    problem = case.problem
    arrays = case.inputs()
    layouts = case.layouts or [PLAIN] * len(arrays)
    sources = [
        GuardedArray(name, array.shape, array.dtype, array, layout)
        for name, array, layout in zip(problem.input_shapes, arrays, layouts, strict=True)
    ]
    dtypes: tuple[np.dtype[Any], ...] = problem.result_dtypes(*(array.dtype for array in arrays))
    targets = [
        GuardedArray(f"result {k}" if k else "the result", shape, dtype)
        for k, (shape, dtype) in enumerate(zip(problem.result_shapes, dtypes, strict=True))
    ]
    out = tuple(target.array for target in targets)
    registry.run(problem, *(source.array for source in sources), out=out, backend=backend)
    for guarded in (*sources, *targets):
        guarded.check()
    return out
