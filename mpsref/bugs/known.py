"""Checks of frameworks without the defects that their installed versions are known to have."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.bugs.findings import FINDINGS, Finding
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import isolated_runner, made_by, outcome_of
from mpsref.conformance.isolation import Limits
from mpsref.errors import UnsupportedError
from mpsref.registry import Backend, Operation

ATTEMPTS = 10
"""How often the case of a defect is tried until it fails: a result in the wrong place may be right by chance."""


class Confirmation(NamedTuple):
    """The result of the case of a finding on a backend."""

    finding: Finding
    backend: str
    expected: bool
    """Whether the case failed on a version with the defect, or passed on another one."""
    text: str
    """What happened; if it was not expected, with the next step."""


def _live(backend: str) -> list[Finding]:
    """Return the defects that a backend has with the installed version of its framework."""
    return [one for one in FINDINGS if backend in one.backends and one.version() in one.versions]


def without_defects(backend: Backend) -> Backend:
    """Return a backend that refuses the calls that may show a defect of the installed version of its framework.

    Parameters
    ----------
    backend : Backend
        A backend that :data:`mpsref.bugs.FINDINGS` may name.

    Returns
    -------
    Backend
        The same backend, if none of its defects is known.
    """
    live = _live(backend.name)
    return _without(backend, live) if live else backend


def _without(backend: Backend, findings: Sequence[Finding]) -> Backend:
    """Return a backend that refuses the calls that any of some findings concerns."""
    implementations = dict(backend.implementations)
    for name in {operation for finding in findings for operation in finding.operations}:
        concerned = [finding for finding in findings if name in finding.operations]
        implementations[operation_named(name)] = _Refusing(implementations[operation_named(name)], concerned)
    found = replace(backend, implementations=implementations)
    if registry.is_installed(backend.name) and registry.get_backend(backend.name) is backend:
        made_by[found] = functools.partial(_named_without, backend.name, tuple(one.script for one in findings))
    return found


@functools.cache
def _named_without(name: str, scripts: tuple[str, ...]) -> Backend:
    """Return an installed backend without some defects, in a new interpreter."""
    own = [one for one in FINDINGS if one.script in scripts and name in one.backends]
    return _without(registry.get_backend(name), own)


def defect_of(text: str, backend: str) -> Finding | None:
    """Return the defect of the installed version that a failing case of a backend belongs to, or ``None``.

    It is one that concerns the case; or, if a property has failed that makes other calls, one without whose calls the
    case does not fail, which is run again for it.

    >>> defect_of("SoftMax.forward:n1h1w1c2,float32,seed=0", "cpu")
    """
    live = _live(backend)
    if not live or not text:
        return None
    case = Case.parse(text)
    found = [one for one in live if str(case.problem.operation) in one.operations]
    concerned = next((one for one in found if one.concerns(case.problem, case.inputs())), None)
    if concerned is not None or not found:
        return concerned
    tested = registry.get_backend(backend)
    if outcome_of(case, tested).status != "failed":
        return None
    return next((one for one in found if outcome_of(case, _without(tested, [one])).status != "failed"), None)


class _Refusing:
    """An implementation that raises ``UnsupportedError`` for the calls that a finding concerns."""

    def __init__(self, run: Any, findings: Sequence[Finding]) -> None:
        self._run, self._findings = run, findings

    def __call__(self, problem: Any, *inputs: Array, out: Any) -> None:
        for finding in self._findings:
            if finding.concerns(problem, inputs):
                raise UnsupportedError(f"{finding.package} {finding.version()} has the defect {finding.script}")
        self._run(problem, *inputs, out=out)


def _taken(case: Case, backend: Backend) -> Case:
    """Return a case in a dtype that a backend takes."""
    return case if case.dtype in backend.dtypes else replace(case, dtype=backend.dtypes[0])


def confirm(backends: Sequence[Backend], operations: Collection[Operation] | None = None) -> Iterator[Confirmation]:
    """Run the case of each finding on the backends that it names, in a process of its own.

    Parameters
    ----------
    backends : sequence of Backend
        The backends; those that are not available are left out.
    operations : collection of Operation, optional
        Only cases of these; default: all.

    Yields
    ------
    Confirmation
        For each finding and backend, except where the defect needs another machine.
    """
    for backend in backends:
        named = [(one, _taken(Case.parse(one.case), backend)) for one in FINDINGS if backend.name in one.backends]
        if operations is not None:
            named = [(finding, case) for finding, case in named if case.problem.operation in operations]
        if not named or backend.unavailable() is not None:
            continue
        with contextlib.closing(isolated_runner(backend, Limits())) as runner:
            for finding, case in named:
                is_listed = finding.version() in finding.versions
                outcomes = [runner(case, True)]
                while is_listed and outcomes[-1].status != "failed" and len(outcomes) < ATTEMPTS:
                    outcomes.append(runner(case, True))
                outcome = outcomes[-1]
                fails = outcome.status == "failed"
                if is_listed and not fails and finding.show().startswith("not affected"):
                    continue
                text = f"{finding.script}: {case} on {backend.name} {outcome.status}"
                if is_listed == fails:
                    text += ", as expected"
                else:
                    step = f"take {finding.version()} from" if is_listed else f"add {finding.version()} to"
                    text += f"; {step} its versions in mpsref/bugs/findings.py. {outcome.message}".rstrip()
                yield Confirmation(finding, backend.name, is_listed == fails, text)
