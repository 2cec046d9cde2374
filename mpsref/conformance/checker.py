"""The check: every operation of every backend on real layers and on random problems, failures shrunk to small cases."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache

import hypothesis
from hypothesis import strategies as st

import mpsref
from mpsref import registry
from mpsref.conformance import CASES, zoo
from mpsref.conformance.case import FAMILIES, Case, operation_named
from mpsref.conformance.report import Failure, Report, Row
from mpsref.conformance.runner import Outcome, run_case
from mpsref.conformance.subjects import SUBJECTS
from mpsref.registry import Backend, Operation

__all__ = ["CASES", "cases", "check", "check_operation", "layer_cases", "random_cases", "search"]

ROUND = 8
"""Random cases that Hypothesis is asked for at a time, beside the simplest: from the tenth on it copies."""

SHRINK_SECONDS = 10.0
"""How long a failure may take to shrink; what is smallest by then is reported."""


@lru_cache(maxsize=4)
def cases(operation: Operation, dtypes: tuple[str, ...] = ("float32", "float16")) -> st.SearchStrategy[Case]:
    """Draw cases of ``operation``: geometry, dtype, family of data, seed. They shrink to small and readable ones.

    The seed is drawn by its digits: into ranges beyond 100 Hypothesis mixes numbers from the source of modules that
    happen to be loaded, and each process would draw others.
    """
    return st.builds(
        Case,
        SUBJECTS[operation.spec_type].problems(operation.method),
        st.sampled_from([dtype for dtype in ("float32", "float16") if dtype in dtypes]),
        st.sampled_from(FAMILIES),
        st.tuples(*[st.integers(0, 15)] * 4).map(lambda digits: sum(d << 4 * k for k, d in enumerate(digits))),
    )


def layer_cases(operation: Operation) -> Iterator[tuple[str, Case]]:
    """Yield (layer name, case) for each real layer of the kernel, with few channels so that all of them are quick."""
    for number, layer in enumerate(zoo.LAYERS):
        if type(layer.spec) is operation.spec_type and operation.method in layer.methods:
            problem = layer.small(channels=5).problem(operation.method)
            yield layer.name, Case(problem, "float16" if number % 4 == 3 else "float32", FAMILIES[number % 3], number)


@dataclass
class _Tally:
    """Counts the outcomes of one row."""

    passed: int = 0
    zeros: int = 0
    worst: float = 0.0
    reason: str = ""
    failures: list[Failure] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome that is no failure."""
        self.passed += outcome.status == "passed"
        self.zeros += outcome.status == "mistrusted"
        self.worst = max(self.worst, outcome.fraction)
        if outcome.status == "unsupported":
            self.reason = outcome.message


class _Enough(BaseException):
    """Ends a search whose failure has been shrunk for long enough."""


@lru_cache(maxsize=4)
def random_cases(operation: Operation, dtypes: tuple[str, ...], number: int, seed: int) -> dict[Case, int]:
    """Draw the random cases of a check, the same for all backends; the values are the rounds they were drawn in.

    Hypothesis is asked for a few at a time: left to itself it makes six of seven cases by copying one part of the
    case before to another place, and these find little that the one they are made from has not found.
    """
    drawn: dict[Case, int] = {}
    for turn in range(number):  # each begins with the simplest case, and adds at least one
        if len(drawn) >= number:
            break
        found: list[Case] = []
        _round(operation, dtypes, seed, turn, found.append, min(ROUND, number - len(drawn)))
        drawn |= {case: turn for case in found if case not in drawn}
    return dict(itertools.islice(drawn.items(), number))


def _round(
    operation: Operation,
    dtypes: tuple[str, ...],
    seed: int,
    turn: int,
    test: Callable[[Case], object],
    size: int = ROUND,
) -> None:
    """Call ``test`` with the simplest case and the ``size`` random ones of a round, and where it fails with simpler."""
    settings = hypothesis.settings(
        max_examples=1 + size,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
    )

    def attempt(case: Case) -> None:
        test(case)

    hypothesis.seed(f"{seed}, {turn}")(settings(hypothesis.given(cases(operation, dtypes))(attempt)))()


def search(
    operation: Operation,
    backend: Backend,
    number: int,
    seed: int,
    outcome_of: Callable[[Case], Outcome],
) -> Failure | None:
    """Try ``number`` random cases; return the smallest failing one that is found, or ``None``."""
    passed = set()
    for case, turn in random_cases(operation, backend.dtypes, number, seed).items():
        outcome = outcome_of(case)
        if outcome.status == "failed":
            failure = Failure(str(case), backend.name, outcome.message)
            return _shrunk(failure, operation, backend, seed, turn, lambda c: None if c in passed else outcome_of(c))
        passed.add(case)
    return None


def _shrunk(
    smallest: Failure,
    operation: Operation,
    backend: Backend,
    seed: int,
    turn: int,
    outcome_of: Callable[[Case], Outcome | None],
) -> Failure:
    """Repeat the round of a failure, from which Hypothesis goes on to simpler ones; return the simplest."""
    stop = float("inf")

    def attempt(case: Case) -> None:
        nonlocal smallest, stop
        outcome = outcome_of(case)
        if outcome is not None and outcome.status == "failed":
            # Hypothesis goes on only from failures that are simpler, and ends with the simplest.
            smallest = Failure(str(case), backend.name, outcome.message)
            stop = min(stop, time.monotonic() + SHRINK_SECONDS)
            if time.monotonic() > stop:
                raise _Enough
            raise AssertionError(outcome.message)

    # A flaky failure (one that comes and goes) is a failure all the same.
    with contextlib.suppress(AssertionError, _Enough, hypothesis.errors.Flaky):
        _round(operation, backend.dtypes, seed, turn, attempt)
    return smallest


def check_operation(
    operation: Operation,
    backend: Backend,
    number: int = CASES,
    seed: int = 0,
    step: Callable[[], None] = lambda: None,
) -> Row:
    """Check one operation on one backend; ``step`` is called after each case."""
    properties = SUBJECTS[operation.spec_type].properties[operation.method]
    tally = _Tally()

    def outcome_of(case: Case, with_properties: bool = True) -> Outcome:
        outcome = run_case(case, backend, properties if with_properties else ())
        if outcome.status != "failed":
            tally.add(outcome)
        step()
        return outcome

    for layer, case in layer_cases(operation):
        if case.dtype in backend.dtypes:
            outcome = outcome_of(case, with_properties=False)
            if outcome.status == "failed":
                tally.failures.append(Failure(str(case), backend.name, outcome.message, layer))
    if not tally.reason:
        failure = search(operation, backend, number, seed, outcome_of)
        if failure:
            tally.failures.append(failure)
    return Row(
        str(operation),
        backend.name,
        backend.device() if backend.unavailable() is None else "",
        tally.passed,
        tally.zeros,
        tally.worst,
        tally.reason,
        tuple(tally.failures),
    )


def check(
    backends: Iterable[str | Backend] | None = None,
    operations: Iterable[Operation] | None = None,
    number: int = CASES,
    seed: int = 0,
    progress: Callable[[str, int], Callable[[], None]] = lambda title, total: lambda: None,
    jobs: int = 1,
) -> Report:
    """Check ``backends`` (default: all that are available, but not the reference against itself) on ``operations``.

    ``progress(title, total)`` is called for each row and returns what is to be called after each of its cases. With
    more than one of ``jobs``, operations are shared out among so many processes (where all backends are names of
    installed ones, which are found there, too), and there is one ``progress`` for all of them.
    """
    from mpsref.conformance.case import operations as all_operations

    unavailable = []
    if backends is None:
        known = [info for info in registry.backends() if not info.name.startswith("reference")]
        unavailable = [(info.name, info.reason) for info in known if not info.available]
        backends = [info.name for info in known if info.available]
    backends = list(backends)
    chosen = [registry.get_backend(backend) for backend in backends]
    wanted = list(operations or all_operations())
    names = [backend for backend in backends if isinstance(backend, str) and registry.is_installed(backend)]
    if jobs > 1 and len(wanted) > 1 and len(names) == len(backends):
        shared = _in_processes(wanted, names, number, seed, progress, jobs)
        return Report(mpsref.__version__, seed, tuple(shared), tuple(unavailable))
    rows = []
    for operation in wanted:
        for backend in chosen:  # one after the other: they share what the reference computed
            total = number + sum(1 for _ in layer_cases(operation))
            step = progress(f"{operation} on {backend.name}", total)
            rows.append(check_operation(operation, backend, number, seed, step))
    return Report(mpsref.__version__, seed, tuple(rows), tuple(unavailable))


def _in_processes(
    operations: list[Operation],
    backends: list[str],
    number: int,
    seed: int,
    progress: Callable[[str, int], Callable[[], None]],
    jobs: int,
) -> Iterator[Row]:
    """Yield the rows in their order; each process takes one operation after the other."""
    step = progress("operations", len(operations))
    with ProcessPoolExecutor(min(jobs, len(operations)), multiprocessing.get_context("spawn")) as pool:
        work = [pool.submit(_rows, str(operation), backends, number, seed) for operation in operations]
        for future in work:
            future.add_done_callback(lambda _: step())
        for future in work:
            yield from future.result()


def _rows(operation: str, backends: list[str], number: int, seed: int) -> list[Row]:
    """Check one operation: what a process is asked for."""
    return [check_operation(operation_named(operation), registry.get_backend(name), number, seed) for name in backends]
