"""The check: every operation of every backend on real layers and on random problems, failures shrunk to small cases."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import hypothesis
from hypothesis import strategies as st

import mpsref
from mpsref import registry
from mpsref.conformance import CASES, families, layers
from mpsref.conformance.case import FAMILIES, Case
from mpsref.conformance.report import Failure, Report, Row
from mpsref.conformance.runner import Outcome, run_case
from mpsref.registry import Backend, Operation

__all__ = ["CASES", "cases", "check", "check_operation", "layer_cases", "random_cases", "search"]

DTYPES = ("float32", "float16", "float64")
"""Of images, the simplest first."""

ROUND = 8
"""Random cases that Hypothesis is asked for at a time, beside the simplest: from the tenth on it copies."""

SHRINK_SECONDS = 10.0
"""How long a failure may take to shrink; what is smallest by then is reported."""


@lru_cache(maxsize=4)
def cases(operation: Operation, dtypes: tuple[str, ...] = Backend.dtypes) -> st.SearchStrategy[Case]:
    """Draw cases of ``operation``: geometry, dtype, family of data, seed. They shrink to small and readable ones.

    The seed is drawn by its digits: into ranges beyond 100 Hypothesis mixes numbers from the source of modules that
    happen to be loaded, and each process would draw others.
    """
    return st.builds(
        Case,
        families.kernel_tests(operation.spec_type).problems(operation.method),
        st.sampled_from([dtype for dtype in DTYPES if dtype in dtypes]),
        st.sampled_from(FAMILIES),
        st.tuples(*[st.integers(0, 15)] * 4).map(lambda digits: sum(d << 4 * k for k, d in enumerate(digits))),
    )


def layer_cases(operation: Operation) -> Iterator[tuple[str, Case]]:
    """Yield (layer name, case) for each real layer of the kernel, with few channels so that all of them are quick."""
    for number, layer in enumerate(layers.load()):
        if type(layer.spec) is operation.spec_type and operation.method in layer.methods:
            problem = layer.small(channels=5).problem(operation.method)
            yield layer.name, Case(problem, "float16" if number % 4 == 3 else "float32", FAMILIES[number % 3], number)


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
    operation: Operation, backend: Backend, number: int, seed: int, outcome_of: Callable[[Case], Outcome]
) -> Failure | None:
    """Try ``number`` random cases; return the smallest failing one that is found, or ``None``."""
    for case, turn in random_cases(operation, backend.dtypes, number, seed).items():
        outcome = outcome_of(case)
        if outcome.status == "failed":
            return _shrunk(
                Failure(str(case), backend.name, outcome.message), operation, backend, seed, turn, outcome_of
            )
    return None


class _Enough(BaseException):
    """Ends a search whose failure has been shrunk for long enough."""


def _shrunk(
    smallest: Failure,
    operation: Operation,
    backend: Backend,
    seed: int,
    turn: int,
    outcome_of: Callable[[Case], Outcome],
) -> Failure:
    """Repeat the round of a failure, from which Hypothesis goes on to simpler ones; return the simplest."""
    stop = float("inf")

    def attempt(case: Case) -> None:
        nonlocal smallest, stop
        outcome = outcome_of(case)
        if outcome.status == "failed":
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


@dataclass
class _Running:
    """A row in the making."""

    operation: Operation
    backend: Backend
    step: Callable[[], None]
    before: Callable[[Case], None]
    passed: int = 0
    zeros: int = 0
    worst: float = 0.0
    refused: int = 0
    reason: str = ""
    failures: list[Failure] = field(default_factory=list)
    turn: int | None = None
    """The round of the random case that failed, if one did: the others are left out."""

    def outcome_of(self, case: Case, layer: str = "") -> Outcome:
        """Run a case; one of a layer without the properties."""
        self.before(case)
        return run_case(case, self.backend, () if layer else families.properties(self.operation))

    def count(self, case: Case, outcome: Outcome, layer: str = "", turn: int | None = None) -> None:
        """Add what came of a case: of a layer, or a random one of round ``turn``."""
        self.step()
        if outcome.status == "failed":
            self.failures.append(Failure(str(case), self.backend.name, outcome.message, layer))
            self.turn = turn
            return
        self.passed += outcome.status == "passed"
        self.zeros += outcome.status == "mistrusted"
        self.worst = max(self.worst, outcome.fraction)
        if outcome.status == "unsupported":
            self.refused += 1
            self.reason = self.reason or outcome.message

    def row(self) -> Row:
        """Return what was found."""
        return Row(
            str(self.operation),
            self.backend.name,
            self.backend.device() if self.backend.unavailable() is None else "",
            self.passed,
            self.zeros,
            self.worst,
            self.reason,
            tuple(self.failures),
            self.refused,
        )


def check_operation(
    operation: Operation,
    backends: Sequence[Backend],
    number: int = CASES,
    seed: int = 0,
    steps: Sequence[Callable[[], None]] = (),
    before: Callable[[Case], None] = lambda case: None,
) -> list[Row]:
    """Check one operation on backends; of ``steps``, one for each of them, it is called after each of its cases.

    ``before`` is called with each case that is about to run.

    All run a case before the next one comes: they share its arrays, and what the reference makes of them.
    """
    running = [
        _Running(operation, backend, step, before)
        for backend, step in zip(backends, steps or [lambda: None] * len(backends), strict=True)
    ]
    for one in running:
        one.reason = one.backend.lacks(operation) or ""
    going = [one for one in running if not one.reason]
    for layer, case in layer_cases(operation):
        for one in going:
            if case.dtype in one.backend.dtypes:
                one.count(case, one.outcome_of(case, layer), layer)
    lists = [random_cases(operation, one.backend.dtypes, number, seed).items() for one in going]
    for row in itertools.zip_longest(*lists, fillvalue=(None, None)):
        for one, (drawn, turn) in zip(going, row, strict=True):
            if drawn is not None and one.turn is None:
                one.count(drawn, one.outcome_of(drawn), turn=turn)
    for one in going:
        if one.turn is not None:
            one.failures[-1] = _shrunk(one.failures[-1], operation, one.backend, seed, one.turn, one.outcome_of)
    return [one.row() for one in running]


def check(
    backends: str | Backend | Iterable[str | Backend] | None = None,
    operations: Iterable[Operation] | None = None,
    number: int = CASES,
    seed: int = 0,
    progress: Callable[[str, int], Callable[[], None]] = lambda title, total: lambda: None,
    jobs: int = 1,
) -> Report:
    """Check ``backends`` (default: all that are available, but not the reference against itself) on ``operations``.

    ``progress(title, total)`` is called for each row and returns what is to be called after each of its cases. With
    more than one of ``jobs``, operations are shared out among so many processes (where all backends are installed ones,
    which are found there, too), and there is one ``progress`` for all of them.
    """
    from mpsref.conformance.case import operations as all_operations

    unavailable = []
    if backends is None:
        known = [info for info in registry.backends() if info.name not in registry.BUILT_IN]
        unavailable = [(info.name, info.reason) for info in known if not info.available]
        backends = [info.name for info in known if info.available]
    chosen = registry.get_backends(backends)
    wanted = list(all_operations() if operations is None else operations)
    installed = [
        one.name for one in chosen if registry.is_installed(one.name) and registry.get_backend(one.name) is one
    ]
    if jobs > 1 and len(wanted) > 1 and len(installed) == len(chosen) and all(map(families.is_discovered, wanted)):
        from mpsref.conformance.processes import check_in_processes

        shared = check_in_processes(wanted, installed, number, seed, progress, jobs)
        return Report(mpsref.__version__, seed, tuple(shared), tuple(unavailable))
    rows = []
    for operation in wanted:
        total = number + sum(1 for _ in layer_cases(operation))
        steps = [progress(f"{operation} on {backend.name}", total) for backend in chosen]
        rows += check_operation(operation, chosen, number, seed, steps)
    return Report(mpsref.__version__, seed, tuple(rows), tuple(unavailable))
