"""Audits of models: results that a framework returned for the layers of a model, compared with the reference.

An audit of a framework records each step of a model as a :class:`Step`, with :class:`Check` objects: a problem, the
numbers that occurred, and what the layer returned. :func:`compare` compares them within the derived bounds;
:func:`smallest` searches for a small case in which a backend that runs the layer is wrong, too; an :class:`Audit` is
the table.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.backend import Backend
from mpsref.conformance import comparator, rules
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.rounded import Rounded
from mpsref.conformance.runner import WRONG, Outcome, run_case
from mpsref.errors import UnsupportedError
from mpsref.kernels import ConvolutionTranspose
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound, gamma
from mpsref.operations import Problem

# --- comparison -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Computed:
    """Results that no problem of mpsref has, in float64, with their error bounds."""

    references: tuple[Array, ...]
    bounds: tuple[ErrorBound, ...]
    where: Callable[[tuple[int, ...]], str] = lambda index: ""
    """Describes an element for a message."""

    @classmethod
    def of(cls, *results: Rounded, where: Callable[[tuple[int, ...]], str] = lambda index: "") -> Computed:
        """Return the results of formulas."""
        values, bounds = zip(*(one.result() for one in results), strict=True)
        return cls(values, bounds, where)


@dataclass(frozen=True)
class Check:
    """Results of a problem, and what the layer returned for them.

    Parameters
    ----------
    problem : Problem or Computed
        A problem of mpsref, the whole layer or a part of it; or what a formula gives for it.
    inputs : tuple of ndarray
        Its inputs: numbers that occurred.
    actual : dict of str to ndarray
        By what they are, the arrays that the layer returned; one of shape (C,) for a result (N, C) is its sum.
    of : tuple of int, optional
        The results of the problem that they are; default: the first ones.
    region : tuple of slice, optional
        The part of these results that is complete in a part of a layer.
    names : tuple of str, optional
        Of the inputs; default: those of the problem.
    """

    problem: Problem | Computed
    inputs: tuple[Array, ...]
    actual: dict[str, Array]
    of: tuple[int, ...] = (0, 1, 2)
    region: tuple[slice, ...] = ()
    names: tuple[str, ...] = ()

    def read(self, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """Return the inputs at an element of a result of this shape, in words."""
        names = self.names or tuple(getattr(self.problem, "input_shapes", ()))
        given = [
            f"{name} is {one[index]:.9g}"
            for name, one in zip(names, self.inputs, strict=False)
            if one.shape == shape and not self.region
        ]
        return f" There {', '.join(given)}." if given else ""


@dataclass(frozen=True)
class Compared:
    """One comparison of a layer.

    Parameters
    ----------
    what : str
        "result", "gradient for x", "gradient for weight" and so on.
    fraction : float
        The worst error as a fraction of its bound; above 1 it is wrong.
    message : str
        The first wrong element; empty if all are right.
    problem : Problem, optional
        The problem of mpsref that was computed.
    """

    what: str
    fraction: float
    message: str = ""
    problem: Problem | None = None
    empty: bool = False
    """Whether a gradient is right and 0 everywhere."""
    unbounded: float = 0.0
    """The fraction of the elements whose error has no bound, which compares nothing."""

    @property
    def method(self) -> str:
        """The method of the operation of mpsref that was computed; empty without a problem."""
        return "" if self.problem is None else self.problem.method


Stores: TypeAlias = Callable[[str], float | None]


@dataclass(frozen=True)
class Manner:
    """How results are compared.

    Parameters
    ----------
    rules : tuple of str, optional
        The rules under which bounds are wider, see :mod:`mpsref.conformance.rules`.
    unit : float, optional
        Unit roundoff of the type in which the results were stored, where that is less precise than float32.
    stored : tuple of float or None, optional
        How many partial results of an element of each result were stored in this type, too; ``None``: all.
    exact : bool, optional
        Whether the inputs are small integers: where nothing need be rounded, results must be equal.
    roundings : int, optional
        How often the results are rounded after sums of these integers, none of which is rounded; default: by the bound.
    """

    rules: tuple[str, ...] = ()
    unit: float = UNIT_ROUNDOFF
    stored: tuple[float | None, ...] = ()
    exact: bool = False
    roundings: int | None = None


TOGETHER = 2**18
"""Elements of the inputs of problems that are computed as one."""


def compare(checks: Sequence[Check], manner: Manner) -> list[list[Compared]]:
    """Compare the results of checks with the reference in float64, which is computed once for all of them.

    Parameters
    ----------
    checks : sequence of Check
        What layers returned for finite inputs; several are of one kind, and fit each other.
    manner : Manner
        How they are compared.

    Returns
    -------
    list of list of Compared
        Of each check, one for each array of its ``actual``.
    """
    check, many = checks[0], len(checks)
    problem: Any = check.problem if many == 1 else _together(check.problem, many)
    of_inputs, of_results = _axes(check.problem) if many > 1 else ([0] * len(check.inputs), [0, 0, 0])
    found: list[list[Compared]] = [[] for _ in checks]
    with np.errstate(all="ignore"), rules.applied(manner.rules):
        if isinstance(problem, Computed):
            references, bounds = problem.references, problem.bounds
        else:
            each = zip(zip(*(one.inputs for one in checks), strict=True), of_inputs, strict=True)
            inputs = tuple(np.concatenate(arrays, axis, dtype=np.float64) for arrays, axis in each)
            references, bounds = problem.operation.results(problem, *inputs), ()
        if manner.roundings is not None and all((abs(one) < WHOLE).all() for one in references):
            bounds = tuple(_rounded(one, manner.roundings) for one in references)
        elif manner.roundings is not None and many > 1:
            raise ValueError("sums that are not exact are compared each by itself")
        plain = bounds or problem.operation.bounds(problem, *inputs)
        wider: tuple[ErrorBound, ...] = bounds
        for n, (what, k) in enumerate(zip(check.actual, check.of, strict=False)):
            actual = _joined([one.actual[what] for one in checks], of_results[k])
            for widens in (False, True):  # rules take time, and seldom decide
                wider = wider or (rules.widened(problem, inputs, plain) if widens else ())
                given = _complete(check, actual, references[k], (wider if widens else plain)[k], manner, n)
                whole = None if given[0].shape != given[1].shape else comparator.compare(*given, manner.exact)
                if whole is not None and not whole.wrong.any():
                    break
            if whole is None and many > 1:
                raise ValueError("shapes that differ are compared each by itself")
            size = actual.shape[of_results[k]] // many if many > 1 else 0
            fractions = np.zeros(0) if whole is None else whole.fractions
            infinite = np.isinf(given[2].limit)
            unbounded = infinite & np.isfinite(given[1]) if infinite.any() else None
            for j, (one, compared) in enumerate(zip(checks, found, strict=True)):
                part = slice(j * size, (j + 1) * size) if many > 1 else ...
                index = (part,) if of_results[k] == 0 else (..., part)
                compared.append(_compared(what, one, given, whole, fractions, unbounded, index, manner.exact))
    return found


def _axes(problem: Any) -> tuple[list[int], list[int]]:
    """Return the axes along which inputs and results of equal problems are joined: images, or groups of channels.

    Both are empty if such problems are not one problem.
    """
    kinds: Any = type(problem), type(problem.spec), (*problem.input_shapes,)
    return ([], []) if getattr(problem.spec, "data", None) else _of_kinds(*kinds)


@functools.cache
def _of_kinds(kind: Any, spec: Any, names: tuple[str, ...]) -> tuple[list[int], list[int]]:
    inputs, results = [kind.inputs[name].dims for name in names], [one.dims for one in kind.results.values()]
    every, has_groups = inputs + results, "groups" in spec.__dataclass_fields__
    if not has_groups and all(dims.startswith("n ") or dims in ("shape", "secondary_shape") for dims in every):
        return [0] * len(inputs), [0] * len(results)
    of_channels = all(dims.endswith(("c", OUTPUTS)) or dims.startswith(OUTPUTS) for dims in every)
    if not of_channels or (OUTPUTS in kind.__dataclass_fields__ and not has_groups):
        return [], []
    of_inputs, of_results = ([0 if dims.startswith(f"{OUTPUTS} ") else -1 for dims in one] for one in (inputs, results))
    return of_inputs, of_results


OUTPUTS = "output_channels"


@functools.lru_cache(maxsize=256)  # it keeps its tables
def _together(problem: Any, many: int) -> Any:
    """Return the problem that equal ones are together."""
    spec, (n, *size, c) = problem.spec, problem.source_shape
    if not any(map(sum, _axes(problem))):
        return replace(
            problem,
            **{
                name: (many * shape[0], *shape[1:])
                for name in ("source_shape", "secondary_shape")
                if (shape := getattr(problem, name, None))
            },
        )
    changes = {"source_shape": (n, *size, many * c)}
    if hasattr(problem, OUTPUTS):
        changes[OUTPUTS] = many * problem.output_channels
    if "groups" in type(spec).__dataclass_fields__:
        changes["spec"] = replace(spec, groups=many * spec.groups)
    return replace(problem, **changes)


def _joined(arrays: Sequence[Array], axis: int) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)


def _complete(
    check: Check, actual: Array, reference: Array, terms: ErrorBound, manner: Manner, n: int
) -> tuple[Array, Array, ErrorBound]:
    """Return a result as it was stored, its reference of the same shape, and the bound."""
    if actual.ndim < reference.ndim and manner.roundings is not None:
        reference = reference.sum(axis=0)
        terms = _rounded(reference, manner.roundings)
    elif actual.ndim < reference.ndim:
        reference, terms = _over_images(reference, terms)
    elif check.region and reference.ndim == 4:
        reference, terms = _part(reference, terms, check.region)
    if manner.unit > UNIT_ROUNDOFF:
        actual, terms = _stored(actual, reference, terms, manner.unit, manner.stored[n])
    return actual, reference, terms


def _rounded(reference: Array, times: int) -> ErrorBound:
    """Return the bound of sums that are exact and then rounded; the reference in float64 has an error, too."""
    return ErrorBound.of_terms(times * (abs(reference) + 2.0**-24), np.float64(1), times == 0)


def _part(reference: Array, terms: ErrorBound, region: tuple[slice, ...]) -> tuple[Array, ErrorBound]:
    return reference[region], ErrorBound(*(np.broadcast_to(one, reference.shape)[region] for one in terms))


def _over_images(reference: Array, terms: ErrorBound) -> tuple[Array, ErrorBound]:
    """Return the sum over the images: the errors of its terms, and those of the additions."""
    n = len(reference)
    total = np.broadcast_to(terms.limit, reference.shape).sum(axis=0) + gamma(n) * abs(reference).sum(axis=0)
    return reference.sum(axis=0), ErrorBound(total)


def _stored(
    actual: Array, reference: Array, terms: ErrorBound, unit: float, stored: float | None
) -> tuple[Array, ErrorBound]:
    """Return results in a less precise type, and their bound: float32 arithmetic, and roundings when they are stored.

    An infinity is right where the result is beyond the largest number of the type, as in float16.
    """
    largest, smallest = (65504.0, 2.0**-24) if unit == HALF else (np.inf, 0.0)
    actual = np.where(np.isinf(actual) & (abs(reference) > largest * (1 - 4 * unit)), reference, actual)
    steps = np.asarray(terms.roundings, np.float64)
    share = 1.0 if stored is None else np.minimum(1.0, stored / np.maximum(steps, 1.0))
    arithmetic = terms.limit * (1 + share * unit / UNIT_ROUNDOFF)
    partial = smallest * (8 + np.minimum(steps, 64) if stored is None else 1 + stored)
    return actual.astype(np.float32), ErrorBound(arithmetic + STORED * unit * abs(reference) + partial)


WHOLE = 2.0**24
"""Integers below it are numbers of float32."""

HALF = 2.0**-11
"""Unit roundoff of float16."""

STORED = 2
"""Roundings to a less precise type of each result: its own, and that of the sum before a bias is added."""


def _compared(
    what: str,
    check: Check,
    given: tuple[Array, Array, ErrorBound],
    whole: comparator.Comparison | None,
    fractions: Array,
    unbounded: Array | None,
    piece: tuple[Any, ...],
    exact: bool,
) -> Compared:
    """Return the comparison of one check, which has a piece of the arrays."""
    actual, reference, terms = given
    reference = reference[piece]
    of = None if isinstance(check.problem, Computed) else check.problem
    if whole is not None and not whole.wrong[piece].any():
        missing = 0.0 if unbounded is None else float(unbounded[piece].mean())
        empty = what.startswith("gradient") and not reference.any()
        return Compared(what, comparator.worst(fractions[piece]), problem=of, empty=empty, unbounded=missing)
    terms = ErrorBound(*(np.broadcast_to(one, given[1].shape)[piece] for one in terms))
    actual, message = actual[piece], ""
    try:
        comparator.check(actual, reference, terms, actual.dtype.name, exact, check.problem.where)
    except Mismatch as mismatch:
        message = f"{mismatch}{'' if mismatch.index is None else check.read(mismatch.index, reference.shape)}"
    return Compared(what, _excess(actual, reference, terms), message, of)


def _excess(actual: Array, reference: Array, terms: ErrorBound) -> float:
    """Return the worst error of wrong results as a fraction of its bound."""
    if actual.shape != reference.shape:
        return np.inf
    limit = np.broadcast_to(comparator.bound(actual, reference, terms), reference.shape)
    error = abs(actual.astype(np.float64) - reference)
    worst = np.divide(error, limit, out=np.where(error > 0, np.inf, 0.0), where=limit > 0)
    return float(np.nan_to_num(worst, nan=np.inf, posinf=np.inf).max(initial=0.0))


# --- the table --------------------------------------------------------------------------------------------------------

FORMAT = 1
"""Version of the JSON form; it increases when programs for the old form would misread the new one."""

NO_NEED = "no gradient: the result does not require one"
"""A reason for which nothing is left out."""

RowStatus: TypeAlias = Literal["right", "in part", "wrong", "not compared"]

TITLES = ("layer", "function", "input", "compared: worst error / bound", "")
"""Of the columns of the table."""


@dataclass(frozen=True)
class Row:
    """One call of a layer.

    Parameters
    ----------
    layer : str
        The module by its path in the model; for a function, the file and line that call it.
    function : str
        The function of the framework, or the class of a module that was compared as a whole.
    shape : tuple of int
        Shape of the input.
    compared : tuple of (str, float)
        What was compared, and the worst error of each as a fraction of its bound.
    message : str
        The first wrong element of a wrong layer.
    case : str
        The case string of a small case in which the layer is wrong, too.
    reasons : tuple of str
        Why something was not compared.
    replay : str
        The command that runs the case again, where a backend shows it.
    layouts : tuple of (str, str)
        The layout in memory of each tensor of four axes.
    notes : tuple of str
        How it was compared, where that is not by the reference.
    required : bool
        Whether an audit that does not compare it has failed: a backward pass that the user wrote.
    """

    layer: str
    function: str
    shape: tuple[int, ...]
    compared: tuple[tuple[str, float], ...] = ()
    message: str = ""
    case: str = ""
    reasons: tuple[str, ...] = ()
    replay: str = ""
    layouts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    required: bool = False

    @property
    def status(self) -> RowStatus:
        """Whether all is right, or all that was compared if ``reasons`` say what was not."""
        if self.message:
            return "wrong"
        partly = any(reason != NO_NEED for reason in self.reasons)
        return "not compared" if not self.compared else "in part" if partly else "right"

    @property
    def shown(self) -> tuple[str, str, str, str]:
        """The cells of a table: layer, function, shape, and what was compared."""
        compared = ", ".join(f"{_short(what)} {_shown(fraction)}" for what, fraction in self.compared)
        return self.layer, self.function, "x".join(map(str, self.shape)), compared

    @property
    def worst(self) -> float:
        """The worst error as a fraction of its bound."""
        return max((fraction for _, fraction in self.compared), default=0.0)


@dataclass(eq=False)
class Step:
    """One step of a model, or equal ones, while they are compared.

    Parameters
    ----------
    place, function, shape
        ``layer``, ``function`` and ``shape`` of its :class:`Row`.
    rules : tuple of str
        The rules under which bounds are wider.
    """

    place: str
    function: str
    shape: tuple[int, ...] = ()
    rules: tuple[str, ...] = ()
    number: int = 1
    """How many equal steps these are."""
    reasons: list[str] = field(default_factory=list)
    """Why something was not compared."""
    notes: list[str] = field(default_factory=list)
    """How it was compared, where that is not by the reference."""
    layouts: dict[str, str] = field(default_factory=dict)
    """Layout in memory of the tensors of the layer, by name."""
    required: bool = False
    """Whether an audit that does not compare it has failed: a backward pass that the user wrote."""
    waiting: Waiting = field(default_factory=lambda: Waiting(), repr=False)
    """The checks that are not compared yet, those of other steps with them."""
    parts: list[list[Compared]] = field(default_factory=list, init=False, repr=False)
    """What was compared, by check."""

    @property
    def compared(self) -> list[Compared]:
        """What was compared, after that what waits is."""
        self.waiting.settle()
        self.parts = [list(itertools.chain(*self.parts))]
        return self.parts[0]

    def judge(
        self,
        checks: Callable[[], Sequence[Check]],
        unit: float = UNIT_ROUNDOFF,
        stored: Stores = lambda what: None,
        *,
        again: bool = False,
        roundings: int | None = None,
        others: Sequence[Step] = (),
    ) -> None:
        """Compare, now or together with checks of the same kind; one that mpsref refuses, or that fails, is a reason.

        ``again``: of a call on small integers, for other steps as well.
        """
        try:
            with np.errstate(all="ignore"):  # formulas of numbers that are not finite
                given = checks()
            for check in given:
                if not all(np.isfinite(one).all() for one in check.inputs):
                    raise UnsupportedError(f"{', '.join(check.actual)}: NaN or infinities in what it is computed from")
                partial = tuple(map(stored, check.actual)) if unit > UNIT_ROUNDOFF else ()
                part: list[Compared] = []
                for step in (self, *others):
                    step.parts.append(part)
                self.waiting.add(Manner(self.rules, unit, partial, again, roundings), check, self, part)
        except FAILURES as error:
            self.refused(error)

    def refused(self, error: Exception) -> None:
        """Say why something is not compared: mpsref does not have it, or arrays do not fit each other."""
        failed = f"its comparison failed: {type(error).__name__}: "
        self.reasons.append(f"{'' if isinstance(error, UnsupportedError) else failed}{error}")

    def accept(self, found: list[Compared], part: list[Compared], again: bool) -> None:
        """Take what was compared of a check."""
        for one in found:
            if one.unbounded:
                self.reasons.append(f"{one.what}: the error of {one.unbounded:.0%} of its elements has no bound")
            if one.unbounded == 1:
                continue
            said = f"called again on small integers: {one.message}" if one.message else ""
            part.append(replace(one, message=said, empty=False) if again else one)

    def empty(self) -> set[str]:
        """Return the gradients that are 0 everywhere, where nothing but 0 was compared with 0."""
        found = {one.what for one in self.compared if one.empty}
        return found - {one.what for one in self.compared if not one.empty}

    def row(self, small: Callable[[Problem], tuple[str, str]] | None = None) -> Row:
        """Return the row of the table.

        ``small(problem)`` searches for a small case in which a wrong step is wrong, too: it returns the case string and
        the command that runs it again, both empty if there is none.
        """
        worst: dict[str, float] = {}
        empty = self.empty()
        for one in self.compared:
            if one.what in empty:
                continue
            what = one.what if self.number == 1 else f"{self.number} {one.what}s"
            worst[what] = max(worst.get(what, 0.0), one.fraction)
        message, case, replay = "", "", ""
        reasons = dict.fromkeys([*self.reasons, *(f"{what}: 0 everywhere" for what in sorted(empty))])
        wrong = next((one for one in self.compared if one.message), None)
        if wrong is not None:
            message = f"{wrong.what}: {wrong.message}"
            if small is not None and wrong.problem is not None:
                case, replay = small(wrong.problem)
                reasons |= {} if case else {"no small case was found in which it is wrong": None}
        layouts = tuple((name, one) for name, one in self.layouts.items() if one)
        compared = tuple(worst.items())
        notes = tuple(dict.fromkeys(self.notes))
        why, required = tuple(reasons), self.required
        where = self.place, self.function, self.shape
        return Row(*where, compared, message, case, why, replay, layouts, notes, required)


FAILURES = UnsupportedError, LookupError, TypeError, ValueError, RuntimeError

Entry: TypeAlias = tuple[Check, Step, list[Compared]]


class Waiting:
    """Checks that are compared together, each for its own step: equal problems are computed as one."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, ...], list[Entry]] = {}

    def add(self, manner: Manner, check: Check, step: Step, part: list[Compared]) -> None:
        """Compare a check now if no other can be of its kind, or when there are enough elements."""
        problem, size = check.problem, sum(one.size for one in check.inputs)
        if isinstance(problem, Computed) or 2 * size > TOGETHER or not any(_axes(problem)):
            _settle(manner, [(check, step, part)])
            return
        # Copies: what works in place writes inputs and results.
        inputs, actual = tuple(map(np.array, check.inputs)), {what: np.array(one) for what, one in check.actual.items()}
        shapes = tuple((what, one.shape, one.dtype) for what, one in actual.items())
        kind = manner, problem, check.of, repr(check.region), shapes
        entries = self._kinds.setdefault(kind, [])
        entries.append((replace(check, inputs=inputs, actual=actual), step, part))
        if len(entries) * size > TOGETHER:
            _settle(manner, self._kinds.pop(kind))

    def settle(self) -> None:
        """Compare all."""
        while self._kinds:
            (manner, *_), entries = self._kinds.popitem()
            _settle(manner, entries)


def _settle(manner: Manner, entries: Sequence[Entry]) -> None:
    try:
        found = compare([check for check, *_ in entries], manner)
    except FAILURES as error:
        if len(entries) == 1:
            entries[0][1].refused(error)
        else:
            for one in entries:
                _settle(manner, [one])
        return
    for compared, (_, step, part) in zip(found, entries, strict=True):
        step.accept(compared, part, manner.exact)


@dataclass(frozen=True)
class Audit:
    """The outcome of an audit.

    Parameters
    ----------
    rows : tuple of Row
        The calls of layers, in their order.
    others : tuple of (str, str, int)
        Functions that mpsref does not have: module, function, and number of calls.
    runtime : str
        The framework with its version, and the device.
    seed : int
        Of the parts that were compared.
    rules : tuple of str
        The documented differences of the framework that bounds allow, see :mod:`mpsref.conformance.rules`.
    seconds : float
        Time of the audit.
    remarks : tuple of str, optional
        What was changed in the model.
    silent : int, optional
        Calls without a row: they move elements, and are right.
    """

    rows: tuple[Row, ...]
    others: tuple[tuple[str, str, int], ...]
    runtime: str
    seed: int
    rules: tuple[str, ...]
    seconds: float
    remarks: tuple[str, ...] = ()
    silent: int = 0

    @property
    def wrong(self) -> tuple[Row, ...]:
        """The layers that are wrong."""
        return tuple(row for row in self.rows if row.status == "wrong")

    @property
    def ok(self) -> bool:
        """Whether something was compared, nothing is wrong, and no backward pass of the user was left out."""
        return not self.wrong and any(row.compared for row in self.rows) and not self.unchecked

    @property
    def unchecked(self) -> tuple[Row, ...]:
        """The functions with a backward pass of their own of which something was not compared."""
        return tuple(row for row in self.rows if row.required and row.status in ("in part", "not compared"))

    @property
    def complete(self) -> bool:
        """Whether all layers and functions were compared, and are right."""
        return self.ok and not self.others and all(row.status == "right" for row in self.rows)

    def json(self) -> str:
        """Return the audit as JSON; its names and their meaning are stable within one ``format``."""
        rows = [
            {
                **{name: getattr(row, name) for name in ("layer", "function", "shape", "status")},
                "compared": [{"what": what, "fraction": _finite(fraction)} for what, fraction in row.compared],
                **{name: getattr(row, name) for name in ("message", "case", "replay")},
                "layouts": dict(row.layouts),
                **{name: getattr(row, name) for name in ("reasons", "notes")},
            }
            for row in self.rows
        ]
        others = [{"layer": layer, "function": function, "calls": calls} for layer, function, calls in self.others]
        whole = {
            "format": FORMAT,
            "ok": self.ok,
            "runtime": self.runtime,
            "seed": self.seed,
            "complete": self.complete,
            "remarks": self.remarks,
            "silent": self.silent,
            "rules": self.rules,
            "seconds": round(self.seconds, 2),
            "rows": rows,
            "others": others,
        }
        return json.dumps(whole, indent=2)

    def __str__(self) -> str:
        lines = [TITLES]
        for row in self.rows:
            right = "no gradient needed" if NO_NEED in row.reasons else ""
            status = {"right": right, "wrong": "WRONG"}.get(row.status, row.status)
            lines.append((*row.shown[:3], row.shown[3] or "-", status))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        for row in self.wrong:
            text += ["", f"WRONG {row.layer}: {row.message}"]
            text += [f"  case {row.case}"] if row.case else []
            text += [f"  {row.replay}"] if row.replay else []
        titles = ("not compared, in whole or in part:", "reasons"), ("compared in another way:", "notes")
        for title, name in titles:
            each = [(row, one) for row in self.rows for one in getattr(row, name) if one != NO_NEED]
            listed = [f"  {row.layer} ({row.function}): {one}" for row, one in each]
            text += ["", title, *listed] if listed else []
        if self.others:
            text += ["", "functions that mpsref does not have, not compared:"]
            for function in dict.fromkeys(name for _, name, _ in self.others):
                places = [(layer, calls) for layer, name, calls in self.others if name == function]
                more = f" and {len(places) - 1} more" if len(places) > 1 else ""
                total = sum(calls for _, calls in places)
                text.append(f"  {function}: {total} in {places[0][0] or 'the model or the loss'}{more}")
        text += ["", *self.remarks]
        text += [f"calls that move elements: {self.silent}, right, without a row"] if self.silent else []
        allowed = f"; documented differences allowed: {len(self.rules)}, which --json lists" if self.rules else ""
        text += [f"{self.runtime}, seed {self.seed}, {self.seconds:.1f} s{allowed}"]
        last = self._counts()
        last += f", {in_part} in part" if (in_part := sum(row.status == "in part" for row in self.rows)) else ""
        unknown = sum(calls for *_, calls in self.others)
        last += f"; {unknown} calls of functions that mpsref does not have" if unknown else ""
        last += f"; {len(self.unchecked)} backward passes of your own not compared" if self.unchecked else ""
        text += [last]
        return "\n".join(text)

    def _counts(self) -> str:
        counts = Counter(row.status for row in self.rows)
        return f"{counts['right']} right, {counts['wrong']} wrong, {counts['not compared']} not compared"

    def _repr_html_(self) -> str:
        """Return the layers as a table for notebooks; the message of a wrong one is in a row below it."""
        from xml.etree import ElementTree
        from xml.etree.ElementTree import Element

        from mpsref.viz.page import add

        root = Element("div")
        add(add(root, "p"), "strong", self._counts())
        table = add(root, "table")
        titles = add(table, "tr")
        for title in TITLES:
            add(titles, "th", title, style="text-align: left")
        for row in self.rows:
            style = {"style": "background: #f6b7b7; color: #000"} if row.status == "wrong" else {}
            line = add(table, "tr", **style)
            for cell in (*row.shown[:3], row.shown[3] or "; ".join(row.reasons), row.status):
                add(line, "td", cell, style="text-align: left")
            if row.message:
                below = add(add(table, "tr"), "td", row.message, colspan="5", style="text-align: left")
                if row.case:
                    add(add(below, "div"), "code", row.replay or row.case)
        add(root, "p", f"{self.runtime}, seed {self.seed}, {self.seconds:.1f} s")
        return ElementTree.tostring(root, encoding="unicode", method="html")


def without_zeros(values: Array, rng: np.random.Generator) -> Array | None:
    """Return a parameter with small positive numbers in place of zeros behind which all gradients are 0.

    A parameter of one axis may be a gain of which some are 0; of others the rows or columns that are 0 as a whole are
    replaced. ``None``: there are none.
    """
    zero = values == 0
    if values.ndim > 1 and zero.any():
        rows, columns = zero.reshape(len(zero), -1).all(1), zero.reshape(-1, zero.shape[-1]).all(0)
        zero = rows.reshape(-1, *(1,) * (zero.ndim - 1)) | np.broadcast_to(columns, zero.shape)
    if not zero.any():
        return None
    most = min(0.2, (max(values.shape[0], values.shape[-1]) / values.size) ** 0.5) if values.ndim else 0.2
    small = most * rng.uniform(0.25, 1.0, values.shape)
    return np.where(zero, small, values).astype(values.dtype)


def filled(names: Sequence[str]) -> str:
    """Return the remark on parameters that were changed."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    shown = ", ".join(names[:3])
    return f"parameters that are 0 were small random numbers in this audit ({shown}{more}); --as-is leaves them 0"


@dataclass(frozen=True)
class Options:
    """What ``mpsref audit`` is asked to do; objects are named ``package.module:name``."""

    model: str
    """What is audited, or a function that makes it."""
    batch: str | None = None
    """What the model gets, or a function that makes it."""
    shape: str | None = None
    """The shape of a random input, ``1,3,256,256``."""
    loss: str | None = None
    device: str = "cpu"
    channels_last: bool = False
    compiles: bool = False
    evaluates: bool = False
    """Whether the model is in evaluation mode."""
    autocast: str | None = None
    """The type in which autocast computes, ``bfloat16`` or ``float16``."""
    as_is: bool = False
    """Whether parameters that are 0 stay so."""
    seed: int = 0
    """Of weights, input and audit."""


def named(text: str) -> Any:
    """Return the object ``package.module:name``; modules of the current folder are found."""
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise ValueError(f"{text!r} names no object; write package.module:name, for the file model.py model:Net")
    if module.endswith(".py"):
        name_of_file = module.removesuffix(".py").replace("/", ".").lstrip(".")
        raise ValueError(f"{text!r}: {module} is a file; write the name of its module, {name_of_file}:{name}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise ValueError(f"{text!r}: {error}") from error
    except AttributeError:
        raise ValueError(f"{text!r}: the module {module!r} has no {name!r}") from None
    return found


SHORT = {"result": "y", "gradient for weight": "dw", "gradient for bias": "db"}


def _short(what: str) -> str:
    """Return a short name of what was compared: dx for a gradient for x."""
    name = what.removeprefix("gradient for ")
    return SHORT.get(what, what if name == what else f"d{name}")


def _shown(fraction: float) -> str:
    return f"{fraction:.2f}" if fraction < 100 else f"{fraction:.3g}"


def _finite(fraction: float) -> float | str:
    return fraction if math.isfinite(fraction) else "inf"


# --- small cases ------------------------------------------------------------------------------------------------------

SECONDS = 4.0
"""Time limit of the search for one layer."""

LARGEST = 2**16
"""Elements of the source of a case."""


def smallest(
    problem: Problem,
    backend: Backend,
    dtype: str,
    layouts: tuple[str, ...] = (),
    run: Callable[[Case, Backend], Outcome] = run_case,
) -> Case | None:
    """Search for a small case of the kind of a problem in which a backend is wrong.

    Parameters
    ----------
    problem : Problem
        A problem of the shapes of a layer.
    backend : Backend
        What runs the layer.
    dtype : str
        Of the images.
    layouts : tuple of str, optional
        Layouts of the inputs, see :mod:`mpsref.arguments.layouts`.
    run : callable, optional
        What runs a case on the backend.

    Returns
    -------
    Case or None
        The smallest wrong case that was found within ``SECONDS``.
    """
    stop = time.monotonic() + SECONDS

    def wrong(problem: Problem) -> Case | None:
        for family, seed in (("exact", 0), ("exact", 1), ("real", 1)):
            case = Case(problem, dtype, family, seed, layouts)  # type: ignore[arg-type]
            outcome = run(case, backend)
            if outcome.status == "failed" and outcome.kind == WRONG:
                return case
        return None

    found = next(filter(None, map(wrong, _begin(problem, stop))), None)
    while found is not None and time.monotonic() < stop:
        smaller = next(filter(None, map(wrong, _until(_smaller(found.problem), stop))), None)
        if smaller is None:
            break
        found = smaller
    return found


def _until(problems: Iterator[Problem], stop: float) -> Iterator[Problem]:
    return itertools.takewhile(lambda _: time.monotonic() < stop, problems)


def _begin(problem: Problem, stop: float) -> Iterator[Problem]:
    """Yield the problem with few images, windows and channels, then with more of them."""
    for images, windows, channels in ((2, 6, 6), (4, 16, 24), (2**62,) * 3):
        candidate: Problem | None = problem
        for change, limit in ((_images, images), (_rows, windows), (_columns, windows), (_channels, channels)):
            candidate = None if candidate is None else change(candidate, limit)
        if candidate is not None and math.prod(_shape(candidate)) <= LARGEST and time.monotonic() < stop:
            yield candidate


def _smaller(problem: Problem) -> Iterator[Problem]:
    """Yield problems that are one step simpler, the simplest first."""
    n, _, _, c = _shape(problem)
    rows, columns = _results(problem)
    sizes: tuple[tuple[Callable[[Problem, int], Problem | None], int], ...] = (
        (_images, n),
        (_rows, rows),
        (_columns, columns),
        (_channels, c),
        (_outputs, getattr(problem, "output_channels", 1)),
    )
    for change, size in sizes:
        for limit in dict.fromkeys((1, 2, size // 2, size - 2, size - 1)):
            if 1 <= limit < size and (candidate := change(problem, limit)) is not None and candidate != problem:
                yield candidate


def _shape(problem: Any) -> tuple[int, int, int, int]:
    found: tuple[int, int, int, int] = problem.source_shape
    return found


def _results(problem: Any) -> tuple[int, int]:
    """Return the number of windows, or rows and columns where there are none."""
    name = problem.size_field()
    found = getattr(problem, name) if name else _shape(problem)[1:3]
    return found[0], found[1]


def _changed(problem: Problem, **changes: Any) -> Problem | None:
    try:
        return replace(problem, **changes)
    except (TypeError, ValueError):
        return None


def _images(problem: Problem, limit: int) -> Problem | None:
    n, *rest = _shape(problem)
    return _changed(problem, source_shape=(min(n, limit), *rest))


def _windows(axis: int, problem: Problem, limit: int) -> Problem | None:
    """Take windows from the end, and the pixels that are between them."""
    results, shape = list(_results(problem)), list(_shape(problem))
    fewer = results[axis] - min(results[axis], limit)
    spec: Any = problem.spec
    stride = spec.strides[axis] if hasattr(spec, "strides") else 1
    if isinstance(spec, ConvolutionTranspose):
        fewer -= fewer % stride
        shape[1 + axis] -= fewer // stride
    else:
        shape[1 + axis] -= fewer * stride
    results[axis] -= fewer
    size = problem.size_field()
    if min(shape) < 1:
        return None
    return _changed(problem, source_shape=tuple(shape), **({size: tuple(results)} if size else {}))


_rows, _columns = functools.partial(_windows, 0), functools.partial(_windows, 1)


def _channels(problem: Problem, limit: int) -> Problem | None:
    """Take channels away, of grouped kernels groups or channels of each group."""
    *rest, c = _shape(problem)
    spec: Any = problem.spec
    own = getattr(type(spec), "__dataclass_fields__", {})
    groups = spec.groups if "groups" in own else 1
    fewer = max(1, min(groups, limit))
    each = max(1, min(c // groups, limit // fewer))
    changes: dict[str, Any] = {"source_shape": (*rest, fewer * each)}
    if groups > 1:
        changes["spec"] = replace(spec, groups=fewer)
    if hasattr(problem, "output_channels"):
        of_group = problem.output_channels // groups
        changes["output_channels"] = fewer * max(1, min(of_group, limit // fewer))
    if getattr(spec, "data", None):
        changes["spec"] = replace(spec, data=spec.data[: fewer * each])
    return _changed(problem, **changes)


def _outputs(problem: Any, limit: int) -> Problem | None:
    if not hasattr(problem, "output_channels"):
        return None
    groups = problem.spec.groups
    return _changed(problem, output_channels=max(groups, limit // groups * groups))
