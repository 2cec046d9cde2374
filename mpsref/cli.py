"""The command line: ``mpsref check``, ``replay``, ``explore``, ``bench`` and others; see ``mpsref --help``."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json as jsonlib
import math
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
import typer
from typer.core import TyperGroup, TyperOption

import mpsref
from anymetal.environment import variable
from mpsref import registry
from mpsref.arguments.text import near, shown
from mpsref.conformance import CASES
from mpsref.errors import loaded

if TYPE_CHECKING:  # rich, too, takes as long to import as `mpsref --help` needs otherwise
    from rich.console import Console
    from rich.table import Table

    from mpsref.conformance.golden import Status, SummaryRow
    from mpsref.conformance.isolation import Limits
    from mpsref.conformance.report import Report, Row

__all__ = ["app", "main"]

WIDE = 120
"""Columns of a terminal from which on the summary of a check has all columns."""

CASE_STRING = (
    "A case string, as a failure prints it: the operation and the fields of a problem, such as "
    "'PoolingAverage.gradient:n1h5w5c1,k3x3,s2x2,clamp': shape, kernel, strides, edge mode."
)

FEW = 3
"""Failures of an operation that are named beside the one that is shown."""

BOUND_MEANS = (
    "(error - ulp/2) / (bound - ulp/2), the worst of the results in float32; rounding explains an error of at most 1"
)

EACH = 30.0
"""Seconds between the lines that say how far a check is, where the output is not a terminal."""

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


COMMANDS = "mpsref.commands"
"""The group of entry points of commands in other packages: applications of typer with one command."""


@functools.cache
def _others() -> metadata.EntryPoints:
    """Return the commands of other packages."""
    return metadata.entry_points(group=COMMANDS)


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of other packages last."""
        return [*super().list_commands(ctx), *_others().names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; import the package that has it only then."""
        known = super().get_command(ctx, cmd_name)
        found = () if known else _others().select(name=cmd_name)
        command = typer.main.get_command(loaded(next(iter(found)))) if found else known
        for one in () if command is None else command.params:
            if isinstance(one, TyperOption) and one.metavar is None and not one.is_flag:
                one.metavar = str(one.name).upper()  # in place of a type of Python
        return command

    def invoke(self, ctx: Any) -> object:  # the Context of click, or of a copy in typer
        """Run a command; Ctrl-C ends it with one line, not a traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("mpsref: interrupted", err=True)
            raise SystemExit(INTERRUPTED) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of a line; ``check --golden`` is an old spelling of ``golden``."""
        if args[0] == "check" and "--golden" in args:
            typer.echo("mpsref: check --golden is a command of its own now: mpsref golden", err=True)
            args = ["golden", *(word for word in args[1:] if word != "--golden")]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    help="An executable reference for the CNN training kernels of Metal Performance Shaders.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)

BackendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend", "-b", help="A backend by name, or your own as my_module:backend; may be given several times."
    ),
]
KernelOption = Annotated[
    list[str] | None,
    typer.Option("--kernel", "-k", help="A kernel (PoolingAverage) or one operation (PoolingAverage.gradient)."),
]
CHECKOUTS = "ANYMETAL_COLLECTIONS"
"""The environment variable with folders of published kernels, for backends such as pytorch:mps."""

CheckoutOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--checkout",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help=f"A checkout or package of Metal kernels, besides those of {CHECKOUTS}; may be given several times.",
    ),
]

IsolateOption = Annotated[
    bool | None,
    typer.Option(help="Run cases in a process of their own, which may crash; by default if the backend declares it."),
]
TimeLimitOption = Annotated[
    float | None, typer.Option(help="Seconds of an isolated case, by default 60.", show_default=False)
]
MemoryLimitOption = Annotated[
    float | None, typer.Option(help="GiB of the process of isolated cases, by default 4.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; its form is stable.")]


def main() -> None:
    """Run the command line; user errors print one line without a traceback."""
    os.environ.setdefault(
        "HYPOTHESIS_STORAGE_DIRECTORY", str(Path(platformdirs.user_cache_dir("mpsref")) / "hypothesis")
    )
    try:
        app()
    except (ValueError, TypeError, OSError) as error:
        typer.echo(f"mpsref: {error}", err=True)
        raise SystemExit(2) from None


def _console() -> Console:
    """Return a console, without colours and line breaks if the output is not a terminal; brackets are no markup."""
    from rich.console import Console

    console = Console(markup=False)
    if console.is_terminal:
        return console
    width = None if "COLUMNS" in os.environ else 200  # of tables
    return Console(width=width, soft_wrap=True, no_color=True, highlight=False, markup=False)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)


def _named_values(thing: object, *names: str) -> dict[str, Any]:
    """Return some attributes by name."""
    return {name: getattr(thing, name) for name in names}


def _print_json(value: object) -> None:
    typer.echo(value if isinstance(value, str) else jsonlib.dumps(value, indent=2))


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """An executable reference for the CNN training kernels of Metal Performance Shaders."""
    if version:
        typer.echo(mpsref.__version__)
        raise typer.Exit


@app.command("backends")
def list_backends(json: JsonOption = False) -> None:
    """List the backends: what they run on, or why they cannot run here."""
    rows = mpsref.backends()
    if json:
        return _print_json([row._asdict() for row in rows])
    table = _table("backend", "available", "runs on, or why not")
    for row in rows:
        table.add_row(row.name, "yes" if row.available else "no", row.device or row.reason)
    return _console().print(table)


@app.command("kernels")
def list_kernels(json: JsonOption = False) -> None:
    """List the operations and which backends implement them."""
    from mpsref.conformance.case import operations

    names = [info.name for info in mpsref.backends()]
    known = {name: registry.get_backend(name).implementations for name in names}
    rows = {str(op): [name for name in names if op in known[name]] for op in operations()}
    if json:
        return _print_json(rows)
    table = _table("operation", "backends that implement it")
    for operation, having in rows.items():
        table.add_row(operation, ", ".join(having))
    return _console().print(table)


@app.command()
def check(
    backend: BackendOption = None,
    kernel: KernelOption = None,
    checkout: CheckoutOption = None,
    cases: Annotated[int, typer.Option(min=1, help="Random cases for each operation on each backend.")] = CASES,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random cases.")] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: one for each core.")] = 0,
    workers: Annotated[
        int, typer.Option(min=0, help="Start a Dask cluster of so many worker processes on this machine.")
    ] = 0,
    scheduler: Annotated[str, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster of this scheduler.")] = "",
    known: Annotated[
        Path | None,
        typer.Option(envvar="MPSREF_KNOWN", help="The folder of failures of earlier checks; by default the user's."),
    ] = None,
    only_known: Annotated[bool, typer.Option("--only-known", help="Run only failures of earlier checks.")] = False,
    isolate: IsolateOption = None,
    time_limit: TimeLimitOption = None,
    memory_limit: MemoryLimitOption = None,
    except_defects: Annotated[
        bool,
        typer.Option(
            "--except-defects",
            help="Leave out what the defects of `mpsref bugs --live` concern; a case of each must fail.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print all rows, and reasons and rules of each.")
    ] = False,
    json: JsonOption = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write one HTML page here.")] = None,
    record: Annotated[Path | None, typer.Option(help="Append what ran where to this Markdown table.")] = None,
) -> None:
    """Check backends against the reference, on layers of published networks and on random cases.

    The exit status is 1 if anything failed, or was compared with nothing.
    """
    _check_folders(junit, html, record)
    _look_in(checkout)
    ways = {"--jobs": jobs, "--workers": workers, "--scheduler": scheduler}
    if sum(map(bool, ways.values())) > 1:
        raise ValueError(f"{' and '.join(name for name, value in ways.items() if value)} exclude each other; give one")
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from mpsref.conformance import checker
    from mpsref.conformance.cluster import Cluster
    from mpsref.conformance.failure_database import FailureDatabase, default_folder
    from mpsref.conformance.progress import Remaining, State
    from mpsref.conformance.report import Report
    from mpsref.machine import cores

    database = FailureDatabase(known or default_folder())
    cluster = Cluster(scheduler, workers) if scheduler or workers else None
    chosen, unexpected = _except_defects(backend, kernel) if except_defects else (backend, 0)
    console = _console()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        Remaining(),
    )
    progress, state = Progress(*columns), State()
    live = Live(Group(progress, state), console=Console(stderr=True), transient=True)
    interrupted = False
    with live if console.is_terminal else contextlib.nullcontext():
        said = time.monotonic()

        def begin(title: str, total: int) -> Callable[[], None]:
            task, done = progress.add_task(title, total=total), itertools.count(1)

            def advance() -> None:
                nonlocal said
                progress.advance(task)
                completed = next(done)
                if not console.is_terminal and time.monotonic() - said > EACH:
                    said = time.monotonic()
                    typer.echo(f"mpsref: {title}: {completed} of {total}", err=True)

            return advance

        try:
            report = checker.check(
                chosen,
                _operations(kernel),
                0 if only_known else cases,
                seed,
                begin,
                jobs or cores(),
                failures=database,
                cluster=cluster,
                isolate=_isolation(isolate, time_limit, memory_limit),
                watch=state.watch,
            )
        except KeyboardInterrupt:
            if not state.rows:
                raise
            report, interrupted = Report.of_blocks(seed, state.rows), True
    nothing_known = only_known and not report.rows
    if json:
        _print_json(report.json())
    elif nothing_known:
        console.print(f"no failures of these backends are known in {known or default_folder()}", highlight=False)
    else:
        _print_report(report, console, verbose)
    if junit:
        junit.write_text(report.junit(), "utf-8")
    if html:
        from mpsref.conformance.html_report import page

        html.write_text(page(report), "utf-8")
    if interrupted:
        typer.echo("mpsref: interrupted; the report has what had finished", err=True)
        raise typer.Exit(INTERRUPTED)
    if record:
        _record(report, record)
    raise typer.Exit(0 if (report.ok or nothing_known) and not unexpected else 1)


def _except_defects(names: list[str] | None, kernels: list[str] | None) -> tuple[list[registry.Backend], int]:
    """Return the backends without their known defects, and how many defects are no longer, or newly, there."""
    from mpsref.bugs import known

    if not names:
        raise ValueError("--except-defects is for frameworks, which are checked if they are named; add --backend")
    backends = registry.get_available(names)
    unexpected = 0
    for one in known.confirm(backends, _operations(kernels)):  # before the check: in forks of this process
        typer.echo(one.text, err=True)
        unexpected += not one.expected
    return [known.without_defects(backend) for backend in backends], unexpected


def _isolation(isolate: bool | None, seconds: float | None, gib: float | None) -> bool | Limits | None:
    """Return what the options of isolation say; a limit includes ``--isolate``."""
    given = {name: value for name, value in {"seconds": seconds, "gib": gib}.items() if value is not None}
    if not given:
        return isolate
    if isolate is False:
        raise ValueError("--time-limit and --memory-limit are limits of isolated cases; leave --no-isolate out")
    from mpsref.conformance.isolation import Limits

    return Limits(**given)


def _record(report: Report, file: Path) -> None:
    """Append a row for each backend to the table in ``file``, which is created if necessary."""
    from datetime import UTC, datetime

    from mpsref.conformance.report import RECORD
    from mpsref.machine import commit, name

    rows = report.record(datetime.now(UTC).date().isoformat(), commit(), name())
    with file.open("a", encoding="utf-8") as table:
        table.write(("" if table.tell() else RECORD) + "".join(f"{row}\n" for row in rows))


def _check_folders(*files: Path | None) -> None:
    """Raise ``ValueError`` for a file in a folder that does not exist, and for a folder, before any work."""
    for file in files:
        if file is not None and file.is_dir():
            raise ValueError(f"{str(file)!r} is a folder; add the name of a file")
        if file is not None and not file.absolute().parent.is_dir():
            raise ValueError(f"there is no folder {str(file.absolute().parent)!r} for {file.name}; make it first")


def _operations(kernels: list[str] | None) -> list[registry.Operation] | None:
    """Return the operations selected by ``--kernel``; ``None`` for all."""
    from mpsref.conformance.case import operations
    from mpsref.frameworks import chains

    if not kernels:
        return None
    everything = [*operations(), chains.OPERATION]
    chosen = []
    for name in kernels:
        found = [op for op in everything if name in (str(op), op.spec_type.__name__)]
        if not found:
            known = [*dict.fromkeys(op.spec_type.__name__ for op in everything), *map(str, everything)]
            raise ValueError(f"unknown kernel {shown(name)}{near(name, known)}; `mpsref kernels` lists all")
        chosen += found
    return chosen


def _print_report(report: Report, console: Console, verbose: bool) -> None:
    """Print a line for each backend, and the rows that did not pass; with ``verbose`` all rows."""
    from mpsref.conformance.progress import used
    from mpsref.conformance.report import details, result_of

    is_wide = console.width >= WIDE
    wide = ("ran on",) if is_wide else ()
    backends = _table("backend", *wide, "operations", "cases", "used of bound", "result")
    ran = set()
    for backend, runtime, rows in report.of_backends():
        ran.add(backend)
        worst = max(rows, key=used)
        cases = f"{sum(row.cases for row in rows):,}"
        error = worst.shown_worst if not (is_wide and worst.passed) else f"{worst.shown_worst} {worst.operation}"
        backends.add_row(backend, *((runtime,) if is_wide else ()), str(len(rows)), cases, error, result_of(rows))
    last = ("only zeros", "used of bound") if is_wide else ()
    table = _table("operation", "backend", *wide, "status", "cases", *last)
    for row in report.rows:
        # Lines below say why others did not run.
        if verbose or (row.status != "passed" and row.cases and row.backend in ran):
            more = ((row.runtime,), (str(row.zeros), row.shown_worst)) if is_wide else ((), ())
            table.add_row(row.operation, row.backend, *more[0], row.status, row.shown_cases, *more[1])
    for one in (backends, table):
        if one.row_count:
            console.print(one)
    if backends.row_count:
        console.print(f"used of bound: {BOUND_MEANS}", highlight=False)
    for row in report.rows:
        shown_failures = row.failures if verbose else row.failures[-1:]  # random ones, which shrink, are last
        for failure in shown_failures:  # soft_wrap: a case can be copied
            console.print(f"FAILED {failure.case}{failure.origin} on {failure.backend}: {failure.kind}", soft_wrap=True)
            console.print(f"  {failure.message}")
            for line in [*details(failure, row.rules), *_of_defect(failure.case, failure.backend)]:
                console.print(f"  {line}", soft_wrap=True)
            console.print(f"  {failure.replay}", soft_wrap=True)
        if others := row.failures[: len(row.failures) - len(shown_failures)]:
            names = [failure.layer or failure.case for failure in others]
            unnamed = "" if len(names) <= FEW else f", and {len(names) - FEW} more"
            console.print(f"  also {', '.join(names[:FEW])}{unnamed}; --verbose prints each", soft_wrap=True)
    of_rules: dict[Any, list[Row]] = defaultdict(list)
    of_reasons: dict[Any, list[Row]] = defaultdict(list)
    for row in report.rows:
        each = row.operation if verbose else ""
        of_rules[row.backend, row.rules, each].append(row)
        of_reasons[row.backend, row.reason.replace(row.operation, "this operation"), not row.cases, each].append(row)
    for rows in of_rules.values():
        if rows[0].rules:
            console.print(f"allowed differences: {_named(rows)} on {rows[0].backend}: {', '.join(rows[0].rules)}")
    for (_, reason, *_), rows in of_reasons.items():
        if reason:
            refused = f"{sum(row.refused for row in rows)} case(s) of " if rows[0].cases else ""
            reason = rows[0].reason if len(rows) == 1 else reason
            console.print(f"not run: {refused}{_named(rows)} on {rows[0].backend}: {reason}")
    for row in report.rows:
        if row.unjudged:
            console.print(f"not judged on {row.backend}: {row.unjudged}")
    for line in _values(report) if verbose else ():
        console.print(line, soft_wrap=True, highlight=False)
    for name, reason in report.unavailable:
        console.print(f"not available: {name}: {reason}")
    console.print(", ".join(f"{number} {status}" for status, number in report.counts.items()))


def _values(report: Report) -> Iterator[str]:
    """Yield a line for each operation: how many cases of all backends had which values of its parameters."""
    from mpsref.conformance.case import operation_named
    from mpsref.conformance.checker import random_cases
    from mpsref.conformance.tally import added, described, unreached

    for name in dict.fromkeys(row.operation for row in report.rows if row.tried):
        operation, tried = operation_named(name), added(row.tried for row in report.rows if row.operation == name)
        (case,) = random_cases(operation, ("float32",), 1, 0)
        missing = unreached(case.problem, tried)
        yield f"values of {name}: {described(operation, tried)}" + f"; not tried: {', '.join(missing)}" * bool(missing)


def _of_defect(case: str, backend: str) -> list[str]:
    """Return the known defect that a failing case belongs to, and the check without it."""
    from mpsref.bugs.known import defect_of

    finding = defect_of(case, backend)
    if finding is None:
        return []
    step = f"mpsref check --backend '{backend}' --kernel {case.partition(':')[0]} --except-defects"
    return [
        f"known defect {finding.script} of {finding.package} {finding.version()}: {finding.text}",
        f"without the calls that it concerns: {step}",
    ]


def _named(rows: Sequence[Row]) -> str:
    """Return the operations of rows: their names if they are few, else their number."""
    return ", ".join(row.operation for row in rows) if len(rows) <= 3 else f"{len(rows)} operations"


@app.command()
def golden(
    backend: BackendOption = None,
    kernel: Annotated[
        list[str] | None, typer.Option("--kernel", "-k", help="A kernel by Apple's name (MPSCNNPoolingMax).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare backends with golden results, which others published from Apple's kernels.

    The exit status is 1 if a difference is not listed with a reason.
    """
    from mpsref.conformance import golden as published

    left_out = [] if backend else registry.named_only()
    names = backend or [info.name for info in mpsref.backends() if info.available and info.name not in left_out]
    results = published.run(names, kernel or None)
    unexpected = published.unexpected(results)
    if json:
        of_entry, of_result = ("id", "kernels", "kind"), ("backend", "status", "worst", "reason", "unexpected")
        rows = [_named_values(one.entry, *of_entry) | _named_values(one, *of_result) for one in results]
        _print_json({"ok": not unexpected, "results": rows})
    else:
        _print_golden(published.summary(results), names, len(unexpected))
    raise typer.Exit(1 if unexpected else 0)


def _print_golden(rows: list[SummaryRow], backends: list[str], unexpected: int) -> None:
    console = _console()
    statuses: tuple[Status, ...] = ("agree", "disagree", "not applicable", "not implemented yet")
    table = _table("kernel", "kind", *statuses)
    for row in rows:
        table.add_row(row.kernel, row.kind, *(str(row.counts[status] or "") for status in statuses))
    console.print(table)
    for row in rows:
        for reason in row.reasons:
            console.print(reason)
    totals = ", ".join(f"{sum(row.counts[status] for row in rows)} {status}" for status in statuses)
    console.print(f"{totals}; {unexpected} unexpected. Ran on {', '.join(backends)}.")


def _look_in(checkouts: Sequence[Path] | None) -> None:
    """Let backends, also in other processes, find published kernels in folders."""
    if checkouts:
        known = [one for one in [variable(CHECKOUTS)] if one]
        os.environ[CHECKOUTS] = os.pathsep.join([*(str(one.resolve()) for one in checkouts), *known])


@app.command()
def replay(
    case: Annotated[str, typer.Argument(help=CASE_STRING)],
    backend: Annotated[
        str, typer.Option("--backend", "-b", help="The backend to run it on, by name or as my_module:backend.")
    ],
    checkout: CheckoutOption = None,
    isolate: IsolateOption = None,
    time_limit: TimeLimitOption = None,
    memory_limit: MemoryLimitOption = None,
) -> None:
    """Run one case again, and print the difference from the reference."""
    _look_in(checkout)
    from mpsref.conformance.case import Case
    from mpsref.conformance.checker import outcome_of

    parsed = Case.parse(case)
    chosen = registry.get_backend(backend)
    outcome = outcome_of(parsed, chosen, _isolation(isolate, time_limit, memory_limit))
    runtime = chosen.device() if chosen.unavailable() is None else "not available"
    console = _console()
    kind = f", {outcome.kind}" if outcome.kind else ""
    console.print(f"{parsed}\non {chosen.name} ({runtime}): {outcome.status}{kind}", highlight=False)
    if outcome.message:
        console.print(outcome.message, highlight=False)
    if outcome.unjudged:
        console.print(f"not judged: {outcome.unjudged}", highlight=False)
    if outcome.status == "failed":
        from mpsref.conformance.report import Failure, details
        from mpsref.conformance.rules import concerning

        named = outcome.case or str(parsed)
        failure = Failure(named, chosen.name, outcome.message, results=outcome.results, call=outcome.call)
        applied = concerning(chosen.rules, parsed.problem.operation)
        for line in [*details(failure, applied), *_of_defect(named, chosen.name)]:
            console.print(line, highlight=False, soft_wrap=True)
    elif outcome.status == "mistrusted":
        console.print("The result agrees, but nothing but zeros was expected.")
    elif outcome.status == "passed":
        console.print(f"worst error / bound: {outcome.fraction:.3f}")
    raise typer.Exit(0 if outcome.status == "passed" else 1)


@app.command()
def explain(case: Annotated[str, typer.Argument(help=f"{CASE_STRING} Dtype and seed may be left out.")]) -> None:
    """Print the windows of a case, N(x), and the terms of each pixel of a gradient."""
    from mpsref.conformance.case import Case
    from mpsref.viz.explain import explain as text

    typer.echo(text(Case.parse(case).problem))


@app.command()
def plot(
    case: Annotated[str, typer.Argument(help="A case string; or digits: the graph of the network of mpsref train.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: .png, .svg or .pdf.")],
    pixel: Annotated[
        tuple[int, int] | None, typer.Option(help="Of a gradient, the pixel (y x) whose sum is shown.")
    ] = None,
) -> None:
    """Draw the windows of a case, N(x), and for a gradient the terms of a pixel."""
    from mpsref.conformance.case import Case
    from mpsref.viz import graph_figure
    from mpsref.viz.plotting import plot as draw

    if case == "digits":
        from mpsref.training import Network, Settings

        settings = Settings()
        network = Network(settings.optimizer_on(None), settings.batch, settings.seed, "reference")
        graph_figure.draw(network.training, output)
    else:
        draw(Case.parse(case).problem, output, pixel=pixel)
    typer.echo(f"wrote {output}")


@app.command()
def explore(
    case: Annotated[str, typer.Argument(help=CASE_STRING)] = "",
    port: Annotated[int, typer.Option(help="The port of the page on this machine.")] = 8642,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Show the windows, N(x) and gradients of a kernel as a page in the browser, with its parameters as controls."""
    from mpsref.explore.app import serve

    serve(case, port, browser)


@app.command()
def lessons(
    number: Annotated[int, typer.Argument(min=0, max=10, help="The lesson to copy; 0: list all.")] = 0,
    folder: Annotated[Path, typer.Option(help="Where the copy goes.")] = Path(),
) -> None:
    """List the lessons, or copy a notebook with exercises to a folder, to be opened with Jupyter."""
    from mpsref.lessons import EXERCISES
    from mpsref.lessons.notebooks import copied, notebooks

    if number:
        typer.echo(f"wrote {copied(number, folder)}; open it with: jupyter lab, or any editor for notebooks")
        return
    table = _table("lesson", "title", "functions to fill in")
    for lesson, title in notebooks().items():
        table.add_row(str(lesson), title, ", ".join(one.name for one in EXERCISES if one.lesson == lesson))
    _console().print(table)


@app.command()
def bench(
    backend: BackendOption = None,
    kernel: KernelOption = None,
    layer: Annotated[
        list[str] | None, typer.Option(help="A layer of a published network; may be given several times.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the median counts.")] = 7,
    scaling: Annotated[bool, typer.Option(help="Also time three sizes of each axis.")] = False,
    all_layers: Annotated[
        bool, typer.Option("--all", help="All layers and sizes in all rounds: half an hour at most.")
    ] = False,
    json: JsonOption = False,
    html: Annotated[Path | None, typer.Option(help="Write one HTML page with pictures here.")] = None,
) -> None:
    """Time the backends on layers of published networks, against PyTorch (if installed) and a plain copy.

    Without --all, a dozen layers of each operation are measured, in about four minutes, and a minute longer if kernels
    must be compiled. After Ctrl-C or SIGTERM the report has what was measured until then.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from mpsref import bench as benchmark
    from mpsref.bench import html_report
    from mpsref.conformance import layers
    from mpsref.viz.figures import figure_type

    _check_folders(html)
    if html:
        figure_type()

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("about"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
    ) as shown:
        task = shown.add_task("")

        def progress(title: str, done: float, total: float) -> None:
            if not done:
                shown.console.print(f"about {max(1, round(min(total, seconds) / 60))} minutes")
            shown.update(task, description=title, completed=done, total=total)

        chosen = layer or (layers.load() if all_layers else None)
        seconds = math.inf if all_layers else benchmark.SECONDS
        status = 0
        try:
            with _terminated_as_interrupted():
                report = benchmark.run(
                    backend or ["cpu"], _operations(kernel), chosen, rounds, scaling or all_layers, seconds, progress
                )
        except benchmark.Interrupted as stopped:
            report, status = stopped.report, INTERRUPTED
    if json:
        _print_json(report.json())
    else:
        benchmark.render(report, _console())
    if html:
        html.write_text(html_report.page(report), "utf-8")
    if status:
        typer.echo("mpsref: interrupted; the report has what had finished", err=True)
        raise typer.Exit(status)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, which ``timeout`` and schedulers send, raise KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@app.command()
def bugs(
    issue: Annotated[list[str] | None, typer.Option(help="An issue, or a part of its name; default: all.")] = None,
    cases: Annotated[int, typer.Option(min=1, help="Random cases for each defect.")] = CASES,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random cases.")] = 0,
    live: Annotated[
        bool, typer.Option("--live", help="Run the scripts that show defects of installed frameworks.")
    ] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Run Metal kernels with published faults under the checks of anymetal.")
    ] = False,
    packages: Annotated[
        Path | None, typer.Option(help="With --kernels: also releases that have a fault, from PyPI into this folder.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check backends with published defects of frameworks: the check must detect each of them.

    The exit status is 1 if a defect is not detected, or a script of --live ended with an error; with --kernels, also if
    a check finds something in a repaired kernel.
    """
    from mpsref import bugs as bench
    from mpsref import machine

    console = _console()
    if kernels:
        _kernel_bugs(issue, packages, json=json)
    if packages:
        raise ValueError("--packages needs --kernels")
    if live:
        shown = {finding.script: (finding.version() or "", finding.show()) for finding in bench.FINDINGS}
        if json:
            _print_json(shown)
        table = _table("script", "version", "result")
        for script, (version, outcome) in shown.items():
            table.add_row(script, version, outcome)
        if not json:
            console.print(table)
        raise typer.Exit(1 if any(outcome.startswith("failed") for _, outcome in shown.values()) else 0)
    table = _table("issue", "operation", "mistake", "detected", "s", "layers", "smallest case")
    lacking = "no defect is called {}; `mpsref bugs` lists all"
    found = _run_bugs(bench.BUGS, issue, lambda bug: bench.run(bug, cases, seed), lacking)
    for one in found:
        mark = "yes" if one.detected else "no"
        row = one.bug.issue, str(one.bug.operation), one.bug.mechanism, mark, f"{one.seconds:.1f}", str(one.layers)
        table.add_row(*row, one.case)
    if json:
        rows = [
            _named_values(one.bug, "issue", "link")
            | {"operation": str(one.bug.operation)}
            | _named_values(one.bug, "mechanism", "versions")
            | {"detected": one.detected, "seconds": round(one.seconds, 2), "layers": one.layers, "case": one.case}
            for one in found
        ]
        _print_json({"version": mpsref.__version__, "machine": machine.name(), "bugs": rows})
    else:
        console.print(table)
        console.print(f"{sum(one.detected for one in found)} of {len(found)} defects were detected")
    raise typer.Exit(0 if all(one.detected for one in found) else 1)


def _run_bugs(bugs: Sequence[Any], issue: list[str] | None, run: Callable[[Any], Any], lacking: str) -> list[Any]:
    """Run those of some issues, or all, with a bar; raise ValueError with the words ``lacking`` if there are none."""
    chosen = [bug for bug in bugs if not issue or any(one in bug.issue for one in issue)]
    if not chosen:
        raise ValueError(lacking.format(", ".join(issue or ())))
    from rich.console import Console
    from rich.progress import Progress

    is_terminal = _console().is_terminal
    with Progress(console=Console(stderr=True), transient=True, disable=not is_terminal) as progress:
        return [run(bug) for bug in progress.track(chosen)]


def _kernel_bugs(issue: list[str] | None, packages: Path | None, *, json: bool) -> None:
    from rich.text import Text

    from mpsref import machine

    try:
        (bugs,) = [loaded(point) for point in metadata.entry_points(group="mpsref.bugs", name="kernels")]
    except ModuleNotFoundError as error:
        raise ValueError(f"{error}: the published kernels are in a clone of mpsref, and not in its wheel") from None
    console = _console()
    lacking = "no fault is called {}; `mpsref bugs --kernels` lists all"
    found = _run_bugs(bugs(packages), issue, lambda bug: bug.run(), lacking)
    if json:
        rows = [
            _named_values(one.bug, "name", "issue", "link", "mechanism", "versions")
            | {"check": one.bug.kind, "detected": one.detected, "seconds": round(one.seconds, 2)}
            | {"message": one.message, "alarm": one.alarm}
            for one in found
        ]
        _print_json({"version": mpsref.__version__, "machine": machine.name(), "kernels": rows})
    else:
        table = _table("kernel", "issue", "mistake", "check", "found", "s", "message", "in the repair")
        for one in found:
            mark = "yes" if one.detected else "no"
            row = one.bug.name, one.bug.issue, one.bug.mechanism, one.bug.kind, mark, f"{one.seconds:.1f}"
            table.add_row(*row, Text(one.message), Text(one.alarm))
        console.print(table)
        console.print(f"{sum(one.detected for one in found)} of {len(found)} faults were found")
        if not packages:
            console.print("--packages DIR adds faults that releases on PyPI have (300 MB)")
    raise typer.Exit(0 if all(one.detected and not one.alarm for one in found) else 1)


@app.command()
def audit(
    model: Annotated[
        str,
        typer.Argument(
            metavar="PACKAGE.MODULE:NAME",
            help="A torch.nn.Module, or a function that makes one; with --jax a function of arrays of JAX.",
        ),
    ],
    shape: Annotated[
        str | None, typer.Option("--input", metavar="N,C,H,W", help="The shape of a random input, such as 1,3,256,256.")
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE:NAME",
            help="In place of --input: an input, or a tuple (input, *targets); with --jax all arguments.",
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(metavar="PACKAGE.MODULE:NAME", help="loss(output, *targets); default: a sum with random weights."),
    ] = None,
    device: Annotated[str, typer.Option(help="A device of PyTorch: cpu, cuda, mps and so on.")] = "cpu",
    jax: Annotated[bool, typer.Option("--jax", help="A function of JAX, with its arguments in --batch.")] = False,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Model and input in channels_last.")] = False,
    compiles: Annotated[bool, typer.Option("--compile", help="Run each layer through torch.compile.")] = False,
    evaluates: Annotated[bool, typer.Option("--eval", help="The model in evaluation mode; default: training.")] = False,
    as_is: Annotated[bool, typer.Option("--as-is", help="Leave parameters that are 0.")] = False,
    autocast: Annotated[str | None, typer.Option(help="bfloat16 or float16: the forward pass under autocast.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if anything was not compared.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, input, and the parts that are compared.")] = 0,
    json: JsonOption = False,
) -> None:
    """Run a step of training of a PyTorch model or a function of JAX, and compare what it returned with the reference.

    The exit status is 1 if a layer is wrong or nothing was compared, and 3 if nothing is wrong but a backward pass of
    your own was not compared, with --strict if anything was not.
    """
    from importlib import import_module

    from mpsref.conformance.audit import Options

    # A backend, which mpsref does not import otherwise.
    run = import_module("mpsref_jax.command" if jax else "mpsref_torch.auditing.command").run
    report = run(Options(model, batch, shape, loss, device, channels_last, compiles, evaluates, autocast, as_is, seed))
    typer.echo(report.json() if json else str(report))
    compared = any(row.compared for row in report.rows)
    right = report.complete if strict else report.ok
    raise typer.Exit(1 if report.wrong or not compared else 0 if right else 3)


@app.command()
def train(
    backend: Annotated[str, typer.Option("--backend", "-b", help="A backend by name.")] = "cpu",
    epochs: Annotated[int, typer.Option(min=1, help="Epochs in total, including those of a resumed run.")] = 12,
    optimizer: Annotated[str, typer.Option(help="adam or sgd.")] = "adam",
    learning_rate: Annotated[float, typer.Option(min=0.0, help="0: the usual one of the optimizer.")] = 0.0,
    batch: Annotated[int, typer.Option(min=1, help="Images in a batch.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, batches and dropout.")] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="A file that is written after each epoch.")] = None,
    resume: Annotated[Path | None, typer.Option(help="A checkpoint to continue from, with its settings.")] = None,
    curve: Annotated[Path | None, typer.Option(help="A picture of loss and accuracy, PNG.")] = None,
    against_pytorch: Annotated[bool, typer.Option(help="Time an epoch of the same network in PyTorch, too.")] = False,
    json: JsonOption = False,
) -> None:
    """Train a small CNN on handwritten digits through the graph layer."""
    from mpsref.training import Settings, Trainer
    from mpsref.training.command import run

    _check_folders(checkpoint, curve)
    try:
        trainer = (
            Trainer.resume(resume, backend)
            if resume
            else Trainer(Settings(optimizer, learning_rate, batch, seed), backend)
        )
        if against_pytorch:
            from mpsref.training.pytorch import compare

            typer.echo(compare(trainer))
            return
        raise typer.Exit(run(trainer, epochs, checkpoint or resume, curve, json, _console()))
    except ImportError as error:
        raise ValueError(str(error)) from error
