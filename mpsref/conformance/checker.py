"""The check: every operation of every backend on layers and on random problems; failures are shrunk to small cases."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Self, TypeAlias
from weakref import WeakKeyDictionary

import hypothesis
from hypothesis import strategies as st

import mpsref
from mpsref import registry
from mpsref.arguments.arrays import Shape
from mpsref.arguments.layouts import PLAIN, way_of
from mpsref.conformance import CASES, data, families, layers, rules, worked
from mpsref.conformance.blocks import Block, KnownCases, Schedule, Task, Watch, blocks, unwatched
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.case import operations as all_operations
from mpsref.conformance.cluster import Cluster
from mpsref.conformance.failure_database import FailureDatabase
from mpsref.conformance.isolation import IsolatedRunner, Limits, borrowed, kept
from mpsref.conformance.processes import check_in_processes
from mpsref.conformance.report import Failure, Report, Row
from mpsref.conformance.runner import CRASHED, MEMORY, TIME, Outcome, run_case
from mpsref.conformance.tally import Tally, added, possible_layouts, tally
from mpsref.conformance.wide import wide_cases
from mpsref.frameworks.chains import OPERATION as CHAINS
from mpsref.registry import Backend, Operation

DTYPES = ("float32", "float16", "float64")
"""Of images, the simplest first."""

ROUND = 8
"""Random cases of a round, in addition to the simplest: from the tenth on, Hypothesis copies parts of others."""

LARGE, FEW_CHANNELS = 1 << 13, 2
"""Layers with more pixels are checked with so few channels."""

ARRANGED = "in every layout"
"""The name of cases that a backend with layouts runs in all of them."""

WORKED = "worked example"
"""The name of cases whose results were worked out by hand."""

Isolate: TypeAlias = bool | Limits | None
"""Whether cases run in isolation; ``None``: those of backends that declare it."""

DEATHS = (CRASHED, TIME, MEMORY)
"""Kinds of failures that end a process."""

SLOW_FAILURES = 3
"""A block ends after so many cases that took too much time or memory."""

SHRINK_SECONDS = 10.0
"""Time limit for shrinking a failure; the smallest case up to then is reported."""

CRASH_FACTOR = 4
"""Shrinking a crash or a chain may take this many times as long: each costs the start of a process or a compilation."""

CHAIN_FACTOR = 4
"""A backend that compiles has this many times as many chains as problems of another operation."""


@lru_cache(maxsize=64)
def cases(
    operation: Operation,
    dtypes: tuple[str, ...] = Backend.dtypes,
    layouts: tuple[str, ...] = (),
    compiles_each_problem: bool = False,
) -> st.SearchStrategy[Case]:
    """Return the strategy of cases of ``operation``: problem, dtype, family of data, seed, and layouts of the inputs.

    ``compiles_each_problem``: of a backend. Problems are then as users of frameworks write them.

    The seed is drawn by its digits: into larger ranges Hypothesis mixes numbers from the source of loaded modules, and
    processes would draw different ones.
    """
    tests = families.kernel_tests(operation.spec_type)
    problems = (compiles_each_problem and tests.by_framework) or tests.problems
    plain = st.builds(
        Case,
        problems(operation.method),
        st.sampled_from([dtype for dtype in DTYPES if dtype in dtypes]),
        st.sampled_from(data.FINITE),
        st.tuples(*[st.integers(0, 15)] * 4).map(lambda digits: sum(d << 4 * k for k, d in enumerate(digits))),
    )
    return plain.flatmap(lambda case: _in_layouts(case, layouts)) if layouts else plain


def _in_layouts(case: Case, layouts: tuple[str, ...]) -> st.SearchStrategy[Case]:
    """Draw layouts of the inputs of a case: every second time one for all of them."""
    number, one = len(case.problem.input_shapes), st.sampled_from(layouts)
    same = one.map(lambda layout: (layout,) * number)
    return (same | st.tuples(*[one] * number)).map(lambda drawn: replace(case, layouts=drawn))


def layer_cases(operation: Operation) -> Iterator[tuple[str, Case]]:
    """Yield (name, case) for the layers of an operation, with few channels, its wide cases and its worked examples."""
    for number, layer in enumerate(layers.load()):
        if type(layer.spec) is operation.spec_type and operation.method in layer.methods:
            many = math.prod(layer.source_shape[1:3]) > LARGE
            problem = layer.small(FEW_CHANNELS if many else layer.checked_channels).problem(operation.method)
            dtype = "float16" if number % 4 == 3 else "float32"
            yield layer.name, Case(problem, dtype, data.FINITE[number % 3], number)
    for number, case in enumerate(cases_of_all_sizes(operation)):
        yield f"wide case {number + 1}", case
    for number, case in enumerate(worked.cases(operation)):
        yield f"{WORKED} {number + 1}", case


def layout_cases(operation: Operation, backend: Backend, runs: Callable[[Case], bool]) -> Iterator[Case]:
    """Yield cases in every layout of a backend: of a problem with one image and of one with several.

    Images have one layout, or the first another than the others; parameters have each way to lie, together and alone.
    Odd strides are also those of weights with an axis of length 1, without groups and with them.
    The problems are those of the random cases of seed 0 that have many inputs, and are short to write. ``runs`` says
    whether the backend runs a case, whose results are not all 0. A backend that compiles each problem has none.
    """
    if not backend.layouts or backend.distinct_problems is not None:
        return
    dtype = next(dtype for dtype in DTYPES if dtype in backend.dtypes)
    drawn = dict.fromkeys(case.problem for case in random_cases(operation, ("float32",), CASES, 0))
    able = sorted((Case(problem, dtype, seed=1) for problem in drawn), key=_rank)
    for is_single in (True, False):
        case = next((one for one in able if _is_single(one) is is_single and runs(one)), None)
        if case is not None and case.problem.input_shapes:
            shapes = [*case.problem.input_shapes.values()]
            arranged = [replace(case, layouts=one) for one in _arrangements(backend.layouts, shapes)]
            yield from dict.fromkeys(arranged)
    odd = [layout for layout in backend.layouts if way_of(layout) == "-odd"]
    narrow = [case for case in able if odd and any(_is_narrow(one) for one in _weights(case))]
    for grouped in (False, True):
        cases = (case for case in narrow if (getattr(case.problem.spec, "groups", 1) > 1) is grouped)
        if (case := next(filter(runs, cases), None)) is not None:
            for first, second in itertools.product(backend.layouts[:2], odd):
                yield replace(case, layouts=(first, second, *(first,) * (len(case.problem.input_shapes) - 2)))


def _weights(case: Case) -> list[Shape]:
    """Return the shapes of the second input, if it is of rank 4 and another shape than the first."""
    shapes = [*case.problem.input_shapes.values()]
    return [one for one in shapes[1:2] if len(one) == 4 and one != shapes[0]]


def _is_narrow(shape: Shape) -> bool:
    return 1 in shape[1:3] and max(shape[1:3]) > 1 < shape[3]


def _is_single(case: Case) -> bool:
    """Whether the first input of a case is one image, or there is no image."""
    shape = next(iter(case.problem.input_shapes.values()), ())
    return len(shape) != 4 or shape[0] == 1


def _rank(case: Case) -> tuple[int, int, int]:
    """Return what orders cases: few axes of length 1 beside the batch, many inputs, few words."""
    shapes = case.problem.input_shapes.values()
    ones = sum(shape[1:].count(1) for shape in shapes)
    return min(ones, 1), -len(shapes), len(str(case))


def _arrangements(layouts: Sequence[str], shapes: Sequence[Shape]) -> Iterator[tuple[str, ...]]:
    """Yield layouts of inputs of these shapes."""
    ways = dict.fromkeys(map(way_of, layouts))
    plain = [layout for layout in layouts if not way_of(layout)][:2]
    images = [k for k, shape in enumerate(shapes) if len(shape) == 4]
    others = [k for k in range(len(shapes)) if k not in images]
    for layout in layouts:
        yield (layout,) * len(shapes)
        for first in plain:
            yield tuple(layout if k == images[0] else first for k in range(len(shapes))) if images else (layout,)
            yield tuple(layout if k in images[1:] else first for k in range(len(shapes)))
    for first, way in itertools.product(plain, ways):
        strided = PLAIN + way
        yield tuple(strided if k in others else first for k in range(len(shapes)))
        for one in others:
            yield tuple(strided if k == one else first for k in range(len(shapes)))


def cases_of_all_sizes(operation: Operation) -> Iterator[Case]:
    """Yield the wide cases of an operation; without a row in their table, made of random ones."""
    return wide_cases(operation, lambda: random_cases(operation, ("float32",), 20, 0))


def random_cases(
    operation: Operation,
    dtypes: tuple[str, ...],
    number: int,
    seed: int,
    layouts: tuple[str, ...] = (),
    compiles_each_problem: bool = False,
) -> dict[Case, int]:
    """Return the random cases of a check, the same for all backends, each with the round in which it was drawn.

    A round is small: in a large one, Hypothesis makes six of seven cases by copying a part of the case before to
    another place, and these rarely detect more than the case that they were made from.
    """
    drawn: dict[Case, int] = {}
    for turn in range(number):  # each begins with the simplest case, and adds at least one
        if len(drawn) >= number:
            break
        found = _cases_of_round(operation, dtypes, layouts, compiles_each_problem, seed, turn, min(ROUND, number))
        drawn |= {case: turn for case in found if case not in drawn}
    return dict(itertools.islice(drawn.items(), number))


@lru_cache(maxsize=1024)
def _cases_of_round(
    operation: Operation,
    dtypes: tuple[str, ...],
    layouts: tuple[str, ...],
    compiles_each_problem: bool,
    seed: int,
    turn: int,
    size: int,
) -> list[Case]:
    """Return the cases of a round, with which checks of any number of cases begin."""
    found: list[Case] = []
    _round(cases(operation, dtypes, layouts, compiles_each_problem), seed, turn, found.append, size)
    return found


def checked_cases(
    operation: Operation,
    dtypes: tuple[str, ...],
    number: int,
    seed: int,
    layouts: tuple[str, ...] = (),
    compiles_each_problem: bool = False,
) -> dict[Case, int]:
    """Return the random cases, then a third of them again on NaN and infinities if the operation is tested on these."""
    drawn = random_cases(operation, dtypes, number, seed, layouts, compiles_each_problem)
    again = itertools.islice(drawn.items(), _number_nonfinite(operation, number))
    return drawn | {replace(case, family="nonfinite"): turn for case, turn in again}


def _number_nonfinite(operation: Operation, number: int) -> int:
    tested = families.kernel_tests(operation.spec_type).nonfinite
    return -(-number // 3) if operation.method in tested else 0


def _round(
    strategy: st.SearchStrategy[Case], seed: int, turn: int, test: Callable[[Case], object], size: int = ROUND
) -> None:
    """Call ``test`` with the simplest case and ``size`` random ones; where it fails, with simpler ones."""
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

    hypothesis.seed(f"{seed}, {turn}")(settings(hypothesis.given(strategy)(attempt)))()


def _drawn(operation: Operation, backend: Backend, block: Block) -> ItemsView[Case, int]:
    """Return the random cases of a block for a backend, each with its round; those of a compiled problem together."""
    compiles_each_problem = backend.distinct_problems is not None
    number = min(block.number, _distinct(operation, backend) or block.number)
    drawn = checked_cases(operation, backend.dtypes, number, block.seed, backend.layouts, compiles_each_problem)
    again = itertools.cycle(list(drawn.items()))
    while len(drawn) < block.number:  # only for a backend with few distinct problems
        case, turn = next(again)
        drawn = drawn | {replace(case, seed=case.seed + len(drawn)): turn}
    if compiles_each_problem:
        place = {problem: k for k, problem in enumerate(dict.fromkeys((case.problem, case.layouts) for case in drawn))}
        drawn = dict(sorted(drawn.items(), key=lambda one: place[one[0].problem, one[0].layouts]))
    return drawn.items()


def _distinct(operation: Operation, backend: Backend) -> int | None:
    """Return how many problems of an operation a backend compiles: more chains, since these are what it compiles."""
    number = backend.distinct_problems
    return number * CHAIN_FACTOR if number is not None and operation == CHAINS else number


def search(
    operation: Operation, backend: Backend, number: int, seed: int, outcome_of: Callable[[Case], Outcome]
) -> Failure | None:
    """Search random cases for a failure.

    Parameters
    ----------
    operation, backend
        The operation under test, and the backend.
    number, seed
        Number of random cases, and their seed.
    outcome_of
        Runs a case.

    Returns
    -------
    Failure or None
        The smallest failing case that was found, or ``None``.
    """
    for block in blocks(number, seed):
        for case, turn in _drawn(operation, backend, block):
            outcome = outcome_of(case)
            if outcome.status == "failed":
                failure, nonfinite = _failure(case, backend, outcome), case.family == "nonfinite"
                return _shrunk(failure, operation, backend, block.seed, (turn, nonfinite), outcome_of)
    return None


def _failure(case: Case, backend: Backend, outcome: Outcome, layer: str = "", known: bool = False) -> Failure:
    named = outcome.case or str(case)
    return Failure(named, backend.name, outcome.message, layer, known, outcome.kind, outcome.results, outcome.call)


class _TimeOver(BaseException):
    """Ends the shrinking of a failure."""


def _shrunk(
    smallest: Failure,
    operation: Operation,
    backend: Backend,
    seed: int,
    drawn: tuple[int, bool],
    outcome_of: Callable[[Case], Outcome],
) -> Failure:
    """Repeat the round of a failure, which Hypothesis continues with simpler cases.

    ``drawn`` is the round, and whether its cases had NaN and infinities. Return the simplest failure of the same kind.
    """
    stop = float("inf")
    turn, nonfinite = drawn

    def attempt(case: Case) -> None:
        nonlocal smallest, stop
        case = replace(case, family="nonfinite") if nonfinite else case
        outcome = outcome_of(case)
        if outcome.status == "failed" and outcome.kind == smallest.kind:
            # Hypothesis continues only from failures that are simpler, and ends with the simplest.
            smallest = _failure(case, backend, outcome)
            factor = CRASH_FACTOR if smallest.kind.startswith(CRASHED) or operation == CHAINS else 1
            stop = min(stop, time.monotonic() + factor * SHRINK_SECONDS)
            if time.monotonic() > stop:
                raise _TimeOver
            raise AssertionError(outcome.message)

    # A flaky failure is a failure, too.
    with contextlib.suppress(AssertionError, _TimeOver, hypothesis.errors.Flaky):
        compiles_each_problem = backend.distinct_problems is not None
        _round(cases(operation, backend.dtypes, backend.layouts, compiles_each_problem), seed, turn, attempt)
    return smallest


@dataclass
class _Progress:
    """The row of one operation on one backend while its cases run."""

    operation: Operation
    backend: Backend
    limits: Limits | None
    """Those of a case in isolation; ``None`` without isolation."""
    step: Callable[[], None] = lambda: None
    before: Callable[[Case], None] = lambda case: None
    passed: int = 0
    zeros: int = 0
    worst: float = 0.0
    used: float | None = None
    refused: int = 0
    reason: str = ""
    unjudged: str = ""
    failures: list[Failure] = field(default_factory=list)
    turns: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """The rounds of the random cases that failed, by kind of failure, and whether these had NaN and infinities."""
    tried: list[Tally] = field(default_factory=list)
    is_over: bool = False
    """Whether further random cases are left out."""
    isolated: IsolatedRunner | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Run cases in the ``with`` block, in isolation if there are limits."""
        if self.limits is None:
            yield self
            return
        discovered = families.is_discovered(self.operation)
        make = functools.partial(isolated_runner, self.backend, self.limits, discovered)
        with borrowed((self.backend, self.limits, discovered), make) as self.isolated:
            yield self

    def outcome_of(self, case: Case, of_layer: bool = False) -> Outcome:
        """Run a case; the case of a layer without the properties."""
        self.before(case)
        return (self.isolated or functools.partial(_run, lambda: self.backend))(case, of_layer)

    def count(self, case: Case, outcome: Outcome, layer: str = "", turn: int | None = None) -> None:
        """Add the outcome of a case: of a layer, a random one of round ``turn``, or else a known one."""
        if layer != ARRANGED:
            self.step()
        if outcome.status != "unsupported":
            fraction = outcome.fraction if outcome.status == "passed" else None
            self.tried.append(tally(case, fraction))
        if outcome.status == "failed":
            self._fail(case, outcome, layer, turn)
            return
        self.passed += outcome.status == "passed"
        self.zeros += outcome.status == "mistrusted"
        self.worst = max(self.worst, outcome.fraction)
        self.unjudged = self.unjudged or outcome.unjudged
        if outcome.used is not None:
            self.used = max(self.used or 0.0, outcome.used)
        if outcome.status == "unsupported":
            self.refused += 1
            self.reason = self.reason or outcome.message

    def _fail(self, case: Case, outcome: Outcome, layer: str, turn: int | None) -> None:
        """Add a failure. After a death further random cases run, up to the second of its kind."""
        if outcome.kind in self.turns and turn is not None:
            self.is_over = True
            return
        is_known = not layer and turn is None
        if outcome.kind.startswith(CRASHED) and self.outcome_of(case, bool(layer)).kind != outcome.kind:
            alone = "; in a new process it does not: another case may have damaged the one that ended"
            outcome = replace(outcome, message=outcome.message + alone)
        self.failures.append(_failure(case, self.backend, outcome, layer, is_known))
        if turn is not None:
            self.turns[outcome.kind] = turn, case.family == "nonfinite"
            self.is_over |= outcome.kind.partition(" ")[0] not in DEATHS
        self.is_over |= sum(failure.kind in (TIME, MEMORY) for failure in self.failures) == SLOW_FAILURES

    def arrange(self) -> None:
        """Run cases in all layouts, up to the first that fails: others fail for the same reason."""
        for case in layout_cases(self.operation, self.backend, self._runs):
            outcome = self.outcome_of(case, of_layer=True)
            self.count(case, outcome, ARRANGED)
            if outcome.status == "failed":
                return

    def _runs(self, case: Case) -> bool:
        return self.outcome_of(case, of_layer=True).status in ("passed", "failed")

    def shrink(self, seed: int) -> None:
        """Replace the random failures by smaller ones, and complete their messages."""
        self.failures = [
            self._explained(failure)
            if not failure.is_random
            else self._shrunk_in_time(failure, seed)
            if failure.kind == TIME
            else self._shrunk(failure, seed)
            for failure in self.failures
        ]

    def _shrunk(self, failure: Failure, seed: int) -> Failure:
        turn = self.turns[failure.kind]
        return self._explained(_shrunk(failure, self.operation, self.backend, seed, turn, self.outcome_of))

    def _explained(self, failure: Failure) -> Failure:
        """Say of a failure in float16 alone how a backend that is not installed declares its dtypes."""
        if failure.layer or ",float16" not in failure.case or not registry.is_own(self.backend.name):
            return failure
        if self.outcome_of(replace(Case.parse(failure.case), dtype="float32")).status != "passed":
            return failure
        hint = "In float32 the case passes; a backend that takes float32 alone is Backend(..., dtypes=('float32',))."
        return replace(failure, message=f"{failure.message} {hint}")

    def _shrunk_in_time(self, failure: Failure, seed: int) -> Failure:
        """Shrink a case that takes too long with a lower time limit, and confirm it."""
        assert self.isolated is not None
        assert self.limits is not None
        self.isolated.seconds = min(self.limits.seconds, max(SHRINK_SECONDS / 20, 10 * self.isolated.slowest))
        smaller = self._shrunk(failure, seed)
        self.isolated.seconds = self.limits.seconds
        confirmed = smaller.case != failure.case and self.outcome_of(Case.parse(smaller.case)).kind == TIME
        return replace(smaller, message=failure.message) if confirmed else failure

    def row(self) -> Row:
        """Return the row of the report."""
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
            rules.concerning(self.backend.rules, self.operation),
            added([possible_layouts(self.operation, self.backend.layouts), *self.tried]),
            self.used,
            self.unjudged,
        )


def _run(make: Callable[[], Backend], case: Case, of_layer: bool) -> Outcome:
    backend = make()
    compiles = backend.distinct_problems is not None
    own = () if of_layer or compiles else families.properties(case.problem.operation)
    return run_case(case, backend, (worked.worked_example, *own))


made_by: WeakKeyDictionary[Backend, Callable[[], Backend]] = WeakKeyDictionary()
"""For backends that are not installed: a function that makes them in a new interpreter, to which it is pickled."""


def isolated_runner(backend: Backend, limits: Limits, discovered: bool = True) -> IsolatedRunner:
    """Return what runs cases in isolation: in a new interpreter, if that finds the backend and the operations."""
    make = _maker(backend) if discovered else None
    return IsolatedRunner(functools.partial(_run, make or (lambda: backend)), limits, new=make is not None)


def _maker(backend: Backend) -> Callable[[], Backend] | None:
    """Return what makes a backend in a new interpreter, if there is a way."""
    return functools.partial(registry.get_backend, backend.name) if _is_installed(backend) else made_by.get(backend)


def _is_installed(backend: Backend) -> bool:
    return registry.is_installed(backend.name) and registry.get_backend(backend.name) is backend


def check_operation(
    operation: Operation,
    backends: Sequence[Backend],
    number: int = CASES,
    seed: int = 0,
    steps: Sequence[Callable[[], None]] = (),
    before: Callable[[Case], None] = lambda case: None,
    known: KnownCases | None = None,
    isolate: Isolate = None,
) -> list[Row]:
    """Check one operation on several backends, block by block.

    All backends run a case before the next one, and share its arrays and the results of the reference.

    Parameters
    ----------
    operation, backends
        The operation under test, and the backends.
    number, seed
        Number of random cases, and their seed. After each 60 cases, the next seed follows.
    steps
        For each backend, a function that is called after each of its cases.
    before
        Called with each case before it runs.
    known
        By backend, the cases that are tried first.
    isolate
        As in :func:`check`.

    Returns
    -------
    list of Row
        One row for each backend.
    """
    steps = steps or [lambda: None] * len(backends)
    found: list[list[Row]] = [[] for _ in backends]
    for block in blocks(number, seed, known):
        left = [k for k, rows in enumerate(found) if not any(row.is_last for row in rows)]
        rows = check_block(operation, [backends[k] for k in left], block, [steps[k] for k in left], before, isolate)
        for k, row in zip(left, rows, strict=True):
            found[k].append(row)
    return [Row.merged(rows) for rows in found]


def check_block(
    operation: Operation,
    backends: Sequence[Backend],
    block: Block,
    steps: Sequence[Callable[[], None]] = (),
    before: Callable[[Case], None] = lambda case: None,
    isolate: Isolate = None,
) -> list[Row]:
    """Check one operation on several backends with the cases of one block; parameters as in ``check_operation``."""
    running = [
        _Progress(operation, backend, _limits(backend, isolate), step, before)
        for backend, step in zip(backends, steps or [lambda: None] * len(backends), strict=True)
    ]
    for one in running:
        one.reason = one.backend.lacks(operation) or ""
    with contextlib.ExitStack() as stack:
        _run_block(operation, [stack.enter_context(one.running()) for one in running if not one.reason], block)
    return [one.row() for one in running]


def _limits(backend: Backend, isolate: Isolate) -> Limits | None:
    if isinstance(isolate, Limits):
        return isolate
    if isolate is None:  # a framework is not forked: it may have computed in this process, whose threads a fork lacks
        isolate = backend.isolated and hasattr(os, "fork") and (not backend.named_only or _maker(backend) is not None)
    return Limits() if isolate else None


def _run_block(operation: Operation, able: list[_Progress], block: Block) -> None:
    """Run the known cases, the layers and the random cases of a block, then shrink the random failures."""
    for one in able:
        for case in map(Case.parse, block.known.get(one.backend.name, ())):
            one.count(case, one.outcome_of(case))
    layers = list(layer_cases(operation)) if block.layers else []
    chosen = [{*_chosen(layers, one.backend, block.number)} for one in able]
    for layer, case in layers:
        for one, cases in zip(able, chosen, strict=True):
            if case in cases and not one.is_over:
                layouts = case.layouts or one.backend.layouts[:1] * len(case.problem.input_shapes)
                arranged = replace(case, layouts=layouts)
                one.count(arranged, one.outcome_of(arranged, of_layer=True), layer)
    for one in able if block.layers else ():
        one.arrange()
    lists = [_drawn(operation, one.backend, block) for one in able]
    for row in itertools.zip_longest(*lists, fillvalue=(None, None)):
        for one, (drawn, turn) in zip(able, row, strict=True):
            if drawn is not None and not one.is_over:
                one.count(drawn, one.outcome_of(drawn), turn=turn)
    for one in able:
        one.shrink(block.seed)


def _chosen(layers: Iterable[tuple[str, Case]], backend: Backend, number: int) -> list[Case]:
    """Return the layers that a backend runs: of one that compiles them a few, spread over all networks.

    Half of these few, or less, are worked examples.
    """
    named = [(name.startswith(WORKED), case) for name, case in layers if case.dtype in backend.dtypes]
    examples, able = ([case for is_worked, case in named if is_worked is which] for which in (True, False))
    if backend.distinct_problems is None or (able and able[0].problem.operation == CHAINS):
        return able + examples
    few = min(backend.distinct_problems, number)
    examples = examples[: few // 2]
    few = min(few - len(examples), len(able))
    return [able[(2 * k + 1) * len(able) // (2 * few)] for k in range(few)] + examples


def outcome_of(case: Case, backend: Backend, isolate: Isolate = None) -> Outcome:
    """Run a case with the properties of its operation, in isolation as in :func:`check`."""
    with _Progress(case.problem.operation, backend, _limits(backend, isolate)).running() as one:
        return one.outcome_of(case)


def check_by_name(task: Task, before: Callable[[Case], None], isolate: Isolate = None) -> list[Row]:
    """Check a block in another process, which finds the operation and installed backends by name."""
    backends = registry.get_backends(task.backends)
    return check_block(operation_named(task.operation), backends, task.block, before=before, isolate=isolate)


def check(
    backends: str | Backend | Iterable[str | Backend] | None = None,
    operations: Iterable[Operation] | None = None,
    number: int = CASES,
    seed: int = 0,
    progress: Callable[[str, int], Callable[[], None]] = lambda title, total: lambda: None,
    jobs: int = 1,
    failures: FailureDatabase | None = None,
    cluster: Cluster | None = None,
    isolate: Isolate = None,
    watch: Watch = unwatched,
) -> Report:
    """Check backends against the reference, on layers of published networks and on random cases.

    Parameters
    ----------
    backends
        Names or objects; by default all available backends except the reference.
    operations
        By default all.
    number, seed
        Number of random cases for each operation on each backend, and their seed. With 0 only the cases of
        ``failures`` run.
    progress
        ``progress(title, total)`` is called for each row, and returns a function that is called after each case.
    jobs
        Number of processes. With more than one, blocks of cases are distributed among them, with one ``progress`` for
        all; backends and families that are not installed, only registered in this process, are checked in this process.
    failures
        The failures of earlier checks, which are tried first; those of this check are added.
    cluster
        The Dask cluster that runs the blocks, in place of ``jobs``. Backends and families must be installed on it.
    isolate
        Whether the cases of a backend run in a process of their own, so that a crash, an endless loop or a leak costs
        one case, which is a failure: yes, no, or yes with given limits. By default the backends with ``isolated=True``,
        as those of frameworks. The process is a new interpreter for an installed backend, for other objects a fork of
        this process; frameworks that are not installed are forked only if this is ``True`` or has limits.
    watch
        ``watch(running, rows)`` is called when a block of cases begins or is done, with the operations that are
        running and with the new rows.

    Returns
    -------
    Report
        A row for each operation on each backend, and all failures. It depends neither on ``jobs`` nor on the number of
        workers of a cluster.

    Examples
    --------
    >>> from mpsref.conformance import check
    >>> from mpsref.conformance.case import operation_named
    >>> report = check("cpu", [operation_named("SoftMax.forward")], number=5)
    >>> report.ok, report.rows[0].status
    (True, 'passed')
    """
    unavailable = []
    if backends is None:
        left_out = {*registry.BUILT_IN, *registry.named_only()}
        infos = [info for info in registry.backends() if info.name not in left_out]
        unavailable = [(info.name, info.reason) for info in infos if not info.available]
        backends = [info.name for info in infos if info.available]
    chosen = registry.get_backends(backends)
    known = {} if failures is None else failures.cases([one.name for one in chosen])
    if operations is None:
        chains_too = any(CHAINS in one.implementations for one in chosen)
        operations = [*all_operations(), *([CHAINS] if chains_too else [])]
    wanted = [op for op in operations if number or op in known]
    local = [str(op) for op in wanted if not families.is_discovered(op)]
    local += [one.name for one in chosen if not _is_installed(one)]
    if cluster is not None and local:
        raise ValueError(f"workers of a cluster do not find {local[0]!r}: install its package, see the entry points")
    if cluster is not None or (jobs > 1 and (len(wanted) > 1 or number > CASES) and not local):
        names = list(dict.fromkeys(one.name for one in chosen))
        schedule = Schedule(wanted, names, number, seed, known)
        step = progress("random cases", schedule.size)
        task = functools.partial(check_by_name, isolate=isolate)
        if cluster is not None:
            cluster.run(task, schedule, step, watch)
        else:
            check_in_processes(task, schedule, step, jobs, watch)
        rows = schedule.rows()
    else:
        rows = []
        with kept():
            for operation in wanted:
                total = sum(block.number + _number_nonfinite(operation, block.number) for block in blocks(number, seed))
                total += sum(1 for _ in layer_cases(operation))
                steps = [progress(f"{operation} on {backend.name}", total) for backend in chosen]
                watch([str(operation)], [])
                found = check_operation(
                    operation, chosen, number, seed, steps, known=known.get(operation), isolate=isolate
                )
                watch([], found)
                rows += found
    report = Report(mpsref.__version__, seed, tuple(rows), tuple(unavailable))
    if failures is not None:
        failures.add(report.failures)
    return report
