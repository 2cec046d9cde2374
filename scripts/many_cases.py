"""Run ranges of seeds of random cases on all cores of a machine, and add up the results of several such runs.

Each seed stands for 60 random cases of every operation on every backend, and for a third of them again on NaN and
infinities where these are tested; the layers of published networks are left out::

    python scripts/many_cases.py run first.json --seeds 0:100 --seconds 3600
    python scripts/many_cases.py run second.json --seeds 100:200 --seconds 3600   # on another machine, another day
    python scripts/many_cases.py add first.json second.json

A run stops at its time limit and writes what is complete. ``run next.json --seeds 0:100 --after first.json`` runs the
remaining seeds. Needs mpsref and what it depends on, and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(help="Run ranges of seeds of random cases, and add up the results.", pretty_exceptions_enable=False)

SEEDS_PER_TASK = 10
"""A process keeps to one operation for so many seeds, because it loads the compiled kernels of each operation once."""

GRACE = 15.0
"""Seconds before the time limit at which processes end; a process that compiles is not waited for longer."""


class Task(NamedTuple):
    """Consecutive seeds of one operation, and the time at which to end."""

    operation: str
    backends: tuple[str, ...]
    seeds: tuple[int, ...]
    end: float


class Done(NamedTuple):
    """The rows of one operation and one seed, as dictionaries, and the seconds that they took."""

    operation: str
    seed: int
    rows: list[dict[str, Any]]
    seconds: float


def check(task: Task) -> list[Done]:
    """Check the seeds of a task that can be begun before its end."""
    from mpsref.conformance import CASES
    from mpsref.conformance.blocks import Block
    from mpsref.conformance.case import operation_named
    from mpsref.conformance.checker import check_block
    from mpsref.registry import get_backends

    operation, backends = operation_named(task.operation), get_backends(task.backends)
    done = []
    for seed in task.seeds:
        start = time.time()
        if start >= task.end:
            break
        rows = check_block(operation, backends, Block(CASES, seed))
        done.append(Done(task.operation, seed, [dataclasses.asdict(row) for row in rows], time.time() - start))
    return done


def _tasks(operations: Sequence[str], backends: tuple[str, ...], seeds: range, known: set[Any], end: float) -> Any:
    """Yield the tasks of all seeds that are not known: many small seeds of all operations first."""
    for first in range(seeds.start, seeds.stop, SEEDS_PER_TASK):
        for operation in operations:
            chunk = seeds[first - seeds.start : first - seeds.start + SEEDS_PER_TASK]
            wanted = tuple(seed for seed in chunk if (operation, seed) not in known)
            if wanted:
                yield Task(operation, backends, wanted, end)


def _results(tasks: Iterator[Task], jobs: int, stop: float) -> Iterator[Done]:
    """Yield what processes have found until the time ``stop``; whatever runs then is ended."""
    for name in ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # read by the processes when they import numba and NumPy
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        found = pool.imap_unordered(check, tasks)
        while True:
            try:
                yield from found.next(timeout=max(0.0, stop - time.time()))
            except (StopIteration, multiprocessing.TimeoutError):
                return


@app.command()
def run(
    output: Annotated[Path, typer.Argument(help="The JSON file to write.")],
    seeds: Annotated[str, typer.Option(help="First seed, and the one after the last: 0:100.")],
    backend: Annotated[list[str] | None, typer.Option("--backend", "-b", help="cpu and metal:clang.")] = None,
    kernel: Annotated[list[str] | None, typer.Option("--kernel", "-k", help="A kernel or an operation; all.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: one for each core.")] = 0,
    seconds: Annotated[float, typer.Option(min=30, help="Time limit; what is complete then is written.")] = 86400.0,
    after: Annotated[list[Path] | None, typer.Option(help="An earlier file, whose seeds are left out.")] = None,
) -> None:
    """Run the random cases of a range of seeds; write counts, failures and worst errors to a file."""
    begin = time.time()
    import mpsref
    from mpsref import machine
    from mpsref.conformance.case import operations
    from mpsref.registry import get_backends

    first, _, last = seeds.partition(":")
    if not (first.isdecimal() and last.isdecimal()):
        raise typer.BadParameter(f"--seeds is {seeds!r}; write FIRST:LAST, where LAST is not included")
    wanted = range(int(first), int(last))
    backends = tuple(backend or ("cpu", "metal:clang"))
    try:
        chosen = get_backends(backends)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    for one in chosen:
        if reason := one.unavailable():
            raise typer.BadParameter(f"backend {one.name!r} is not available: {reason}")
    names = [str(op) for op in operations() if not kernel or {str(op), op.spec_type.__name__} & {*kernel}]
    if not names:
        raise typer.BadParameter(f"no operation is called {' or '.join(kernel or ())}")
    known = {(name, seed) for file in after or () for name, done in _read(file)["seeds"].items() for seed in done}
    processes = jobs or machine.cores()
    stop = begin + seconds
    result: dict[str, Any] = {
        "mpsref": mpsref.__version__,
        "commit": machine.commit(),
        "machine": machine.name(),
        "processes": processes,
        "seconds": 0.0,
        "seeds": defaultdict(list),
        "core_seconds": defaultdict(float),
        "rows": {},
    }
    progress, shown = Console(stderr=True), begin
    for done in _results(_tasks(names, backends, wanted, known, stop - GRACE), processes, stop - GRACE / 3):
        result["seeds"][done.operation].append(done.seed)
        result["core_seconds"][done.operation] += done.seconds
        for row in done.rows:
            _add(result["rows"].setdefault(f"{row['operation']} {row['backend']}", {}), _counted(row))
        if time.time() > shown + 10:
            shown = time.time()
            progress.print(f"{shown - begin:.0f} s: {_cases(result):,} cases, {len(_failures(result))} failures")
    result["seconds"] = time.time() - begin
    output.write_text(json.dumps(result, indent=1), "utf-8")
    _print(result)
    raise typer.Exit(1 if _failures(result) else 0)


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of the row of one seed."""
    numbers = "passed", "zeros", "refused", "worst", "used"
    kept = {name: row[name] for name in ("operation", "backend", "runtime", *numbers)}
    failures = [{name: failure[name] for name in ("case", "backend", "message")} for failure in row["failures"]]
    return {**kept, "failures": failures}


def _add(total: dict[str, Any], row: dict[str, Any]) -> None:
    """Add the counts of ``row`` to those of ``total``."""
    for name, value in row.items():
        if name in ("worst", "used"):  # of results in float16 alone None is used
            total[name] = max(total.get(name, 0.0), value or 0.0)
        elif name == "failures":
            total[name] = [*total.get(name, []), *value]
        elif isinstance(value, str):
            total[name] = value
        else:
            total[name] = total.get(name, 0) + value


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


@app.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Files of runs, with different seeds or operations.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
) -> None:
    """Add up runs; a seed of an operation that two files have is an error."""
    total: dict[str, Any] = {
        "seconds": 0.0,
        "seeds": defaultdict(list),
        "core_seconds": defaultdict(float),
        "rows": {},
    }
    for file in files:
        found = _read(file)
        for operation, seeds in found["seeds"].items():
            if twice := {*seeds} & {*total["seeds"][operation]}:
                raise typer.BadParameter(f"{file}: seed {min(twice)} of {operation} is in an earlier file, too")
            total["seeds"][operation] += seeds
            total["core_seconds"][operation] += found["core_seconds"][operation]
        for name, row in found["rows"].items():
            _add(total["rows"].setdefault(name, {}), row)
        total["seconds"] += found["seconds"]
    _print(total, markdown)
    raise typer.Exit(1 if _failures(total) else 0)


def _cases(result: dict[str, Any]) -> int:
    return sum(_ran(row) for row in result["rows"].values())


def _ran(row: dict[str, Any]) -> int:
    return int(row["passed"] + row["zeros"] + len(row["failures"]))


def _failures(result: dict[str, Any]) -> list[dict[str, str]]:
    return [failure for row in result["rows"].values() for failure in row["failures"]]


def _print(result: dict[str, Any], markdown: bool = False) -> None:
    """Print a line for each operation: cases and used part of the bound of each backend, seconds of a core."""
    backends = list(dict.fromkeys(row["backend"] for row in result["rows"].values()))
    operations = list(dict.fromkeys(row["operation"] for row in result["rows"].values()))
    head = ["operation", "seeds", "seconds of a core"]
    for backend in backends:
        head += [f"cases on {backend}", "failures", "used of bound"]
    lines = []
    for operation in sorted(operations):
        line = [operation, str(len(result["seeds"][operation])), f"{result['core_seconds'][operation]:,.0f}"]
        for backend in backends:
            row = result["rows"].get(f"{operation} {backend}")
            if row is None or not _ran(row):
                line += ["-", "-", "-"]
            else:
                line += [f"{_ran(row):,}", str(len(row["failures"])), f"{row.get('used', row['worst']):.3f}"]
        lines.append(line)
    console = Console(width=200) if not Console().is_terminal else Console()
    if markdown:
        for cells in (head, ["---"] * len(head), *lines):
            console.print(f"| {' | '.join(cells)} |", markup=False, soft_wrap=True, highlight=False)
    else:
        table = Table(*head)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    for failure, times in Counter((f["case"], f["backend"], f["message"]) for f in _failures(result)).items():
        console.print(
            f"FAILED {failure[0]} on {failure[1]} ({times} seeds)\n  {failure[2]}", markup=False, soft_wrap=True
        )
    seeds = [seed for found in result["seeds"].values() for seed in found]
    cases, wall = _cases(result), result["seconds"]
    console.print(
        f"{cases:,} cases of {len(operations)} operations, seeds {min(seeds, default=0)} to {max(seeds, default=0)}, "
        f"{len(_failures(result))} failures; {wall:,.0f} s, {cases / max(wall, 1e-9):,.0f} cases a second",
        highlight=False,
    )


if __name__ == "__main__":
    app()
