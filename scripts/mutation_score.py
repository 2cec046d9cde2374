"""Measure how many small mistakes in the code the tests notice.

Sites of mutations are sampled, as many from each group of files: geometry and tables, the definitions, checks of
arguments, the registry, the classes of MPS, the cpu backend, the Metal backend, and its MSL. Each mutant is one changed
operator, comparison, number or name, or an error that is not raised, in a copy of the tree. It meets the quickest tests
that should notice it: the tests in its own file and in the test files of its name, and the check of the operations that
depend on it, on the backends concerned (``--no-check``: the tests alone). A mutant that nothing notices survives::

    python scripts/mutation_score.py run mutants.json --number 400 --seed 1
    python scripts/mutation_score.py show mutants.json

The same tests run without a mutation first; those that fail then are left out. ``run`` stops at its time limit; the
same command continues. Tests that are marked slow run with ``PYTEST_ADDOPTS="-m ''"``.
``equivalent_mutants.toml`` names mutants that no test can notice, with the reason; they do not count.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")

GROUPS = {
    "geometry and tables": ("mpsref/geometry.py", "mpsref/tables.py"),
    "definitions": ("mpsref/kernels/*.py",),
    "arguments": ("mpsref/arguments/*.py", "mpsref/codecs.py", "mpsref/padding.py"),
    "registry": ("mpsref/registry.py", "mpsref/operations.py", "mpsref/backend.py"),
    "mps": ("mpsref/mps/*.py", "mpsref/mps/*/*.py"),
    "cpu backend": ("backends/mpsref_cpu/*.py", "backends/mpsref_cpu/*/*.py"),
    "Metal backend": ("backends/mpsref_metal/*.py",),
    "MSL": ("backends/mpsref_metal/msl/*.metal",),
}
SOURCES = (".", "backends", "backends/anymetal")
TREE = ("mpsref", "backends", "tests", "pyproject.toml")
"""What a copy of the tree has."""

TIME_LIMIT = 300.0
"""Seconds for the tests of one mutant; one that takes longer is noticed, since its tests end without a mutation."""

ALSO = {
    "mpsref/arguments/": (
        "tests/arguments/test_arrays.py",
        "tests/arguments/test_bad_input.py",
        "tests/contracts/test_operations.py",
        "tests/contracts/test_legal_values.py",
    ),
    "mpsref/mps/": (
        "tests/mps/test_apple_interface.py",
        "tests/mps/test_serialization.py",
        "tests/contracts/test_encodes.py",
        "tests/contracts/test_objects.py",
        "tests/contracts/test_legal_values.py",
        "tests/contracts/test_states.py",
    ),
    "mpsref/mps/normalization": (
        "tests/mps/test_batch_normalization.py",
        "tests/mps/test_batch_normalization_data_source.py",
        "tests/mps/test_image_normalization.py",
    ),
    "mpsref/mps/neuron": ("tests/mps/test_pixelwise.py",),
    "mpsref/mps/softmax": ("tests/kernels/test_softmax.py", "tests/mps/test_pixelwise.py"),
    "mpsref/kernels/": (
        "tests/kernels/test_error_bounds.py",
        "tests/contracts/test_derivatives.py",
        "tests/contracts/test_legal_values.py",
    ),
    "mpsref_cpu/simd/": ("tests/kernels/test_neuron.py", "tests/backends/test_cpu_neuron.py"),
    "mpsref_cpu/normalization/": ("tests/backends/test_cpu_windowed_normalization.py",),
    "mpsref_metal/": ("tests/backends/test_metal_launch.py",),
}
"""Test files for all files of a folder, or whose path has these words, in addition to those of their names."""

OPERATIONS = 8
"""Most operations that are checked for a file of other operations' code, evenly among those that depend on it."""

SURVIVED, NOTICED, MISPLACED = 0, 1, 3
"""Exit statuses of the tests of a mutant."""

app = typer.Typer(help="Measure how many small mistakes in the code the tests notice.", pretty_exceptions_enable=False)


# --- mutations --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutation:
    """One change of one line of a file."""

    file: str
    line: int
    column: int
    before: str
    after: str
    text: str
    """The line, without its indentation."""

    @property
    def group(self) -> str:
        """The group of the file."""
        return next(name for name, patterns in GROUPS.items() if any(Path(self.file).match(one) for one in patterns))

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        assert line[self.column :].startswith(self.before), (self, line)
        lines[self.line - 1] = line[: self.column] + self.after + line[self.column + len(self.before) :]
        return "".join(lines)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before} -> {self.after} in: {self.text}"


OPERATORS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "//", "<<": ">>", ">>": "<<", "&": "|", "|": "&",
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+=": "-=", "-=": "+=", "*=": "+=",
    "and": "or", "or": "and", "&&": "||", "||": "&&", "not": "", "is": "is not", "is not": "is", "in": "not in",
    "not in": "in", "min": "max", "max": "min", "True": "False", "False": "True", "raise": "if 0: raise",
}  # fmt: skip
"""What each operator or name becomes."""


def number_after(text: str) -> str:
    """Return another number in place of one in source code: the next integer, or half of a fraction.

    >>> number_after("0"), number_after("0.5"), number_after("1.0f"), number_after("0x1f")
    ('1', '0.25', '2.0f', '32')
    """
    suffix = text[-1] if text[-1] in "fuhFU" and not text.startswith("0x") else ""
    digits = text[: len(text) - len(suffix)]
    try:
        return f"{int(digits, 0) + 1}{suffix}"
    except ValueError:
        value = float(digits)
        return f"{value / 2 if value % 1 else value + 1}{suffix}"


MSL_TOKEN = re.compile(
    r"(?<= )(?:\+|-|\*|/|%|<<|>>|&&|\|\||<=|>=|<|>|==|!=|\+=|-=|\*=|&|\|)(?= )"
    r"|\b(?:min|max)(?=\()|(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?[fuh]?(?![\w.])|\b(?:true|false)\b"
)


def msl_mutations(file: str, source: str) -> Iterator[Mutation]:
    """Yield the mutations of a Metal source; lines of the preprocessor and comments have none."""
    blanked = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match[0]), source, flags=re.DOTALL)
    for number, (code_and_comment, line) in enumerate(zip(blanked.splitlines(), source.splitlines(), strict=True), 1):
        code = code_and_comment.partition("//")[0]
        if code.lstrip().startswith("#"):
            continue
        attributes = [match.span() for match in re.finditer(r"\[\[.*?\]\]|template ?<[^>]*>", code)]
        for match in MSL_TOKEN.finditer(code):
            before, column = match[0], match.start()
            if any(start <= column < end for start, end in attributes):
                continue
            after = {"true": "false", "false": "true"}.get(before) or OPERATORS.get(before) or number_after(before)
            yield Mutation(file, number, column, before, after, line.strip())


def python_mutations(file: str, source: str) -> Iterator[Mutation]:
    """Yield the mutations of a Python source, except in annotations, messages of errors and what is not executed."""
    tree, lines = ast.parse(source), source.splitlines()
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign | ast.arg):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            parts = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.keyword) and node.arg == "strict":  # of zip, whose arguments have equal lengths
            parts = [node.value]
        elif isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            parts = [node]
        skipped |= {id(child) for part in parts if part is not None for child in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for place, before in _tokens(node, lines):
            after = OPERATORS.get(before)
            if after is None:
                after = number_after(before)
            line, column = place
            yield Mutation(file, line, column, before, after, lines[line - 1].strip())


def _tokens(node: ast.AST, lines: list[str]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the operators, numbers and names of a node that can be mutated, with line and column."""
    if isinstance(node, ast.BinOp):
        yield from _between(node.left, node.right, lines)
    elif isinstance(node, ast.BoolOp):
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from _between(left, right, lines)
    elif isinstance(node, ast.Compare):
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
            yield from _between(left, right, lines)
    elif isinstance(node, ast.If):
        yield from (((one.lineno, one.col_offset), "raise") for one in node.body if isinstance(one, ast.Raise))
    elif isinstance(node, ast.AugAssign):
        yield from _between(node.target, node.value, lines)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield (node.lineno, _column(node, lines)), "not"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        text = lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
        yield (node.lineno, _column(node, lines)), text
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        yield (node.lineno, _column(node.func, lines)), node.func.id


def _column(node: ast.expr, lines: list[str]) -> int:
    return len(lines[node.lineno - 1].encode()[: node.col_offset].decode())


BETWEEN = re.compile(r"(?<![\w])(?:is not|not in|and|or|is|in)(?![\w])|\*\*|//=?|<<|>>|[-+*]=|<=|>=|==|!=|[-+*/%<>&|]")


def _between(left: ast.expr, right: ast.expr, lines: list[str]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the operator between two expressions of one line."""
    assert left.end_col_offset is not None
    if left.end_lineno != right.lineno:
        return
    line = lines[right.lineno - 1].encode()
    gap = line[left.end_col_offset : right.col_offset].decode()
    match = BETWEEN.search(gap)
    if match and match[0] in OPERATORS:
        yield (right.lineno, len(line[: left.end_col_offset].decode()) + match.start()), match[0]


@functools.cache
def mutations(file: Path) -> list[Mutation]:
    """Return all mutations of a file."""
    name, source = file.relative_to(ROOT).as_posix(), file.read_text("utf-8")
    found = msl_mutations(name, source) if file.suffix == ".metal" else python_mutations(name, source)
    return sorted(found, key=lambda one: (one.line, one.column))


def sample(number: int, seed: int, only: Iterable[str] = ()) -> list[Mutation]:
    """Return ``number`` mutations, as many of each group as of every other, or of the groups of some files alone."""
    chooser, chosen = random.Random(seed), list[Mutation]()
    wanted = {ROOT / name for name in only}
    groups = []
    for patterns in GROUPS.values():
        files = sorted({file for pattern in patterns for file in ROOT.glob(pattern)})
        groups.append([file for file in files if (file in wanted if wanted else file.name != "__init__.py")])
    groups = [files for files in groups if files]
    for k, files in enumerate(groups):
        sites = [one for file in files for one in mutations(file)]
        share = number * (k + 1) // len(groups) - number * k // len(groups)
        chosen += chooser.sample(sites, min(share, len(sites)))
    return chosen


@functools.cache
def _reasons() -> dict[tuple[str, str, str, str], str]:
    if not EQUIVALENT.exists():
        return {}
    rows = tomllib.loads(EQUIVALENT.read_text("utf-8")).get("mutant", [])
    return {(row["file"], row["text"], row["before"], row["after"]): row["reason"] for row in rows}


def reason_of(mutation: Mutation) -> str:
    """Return why no test can notice a mutation, or nothing."""
    return _reasons().get((mutation.file, mutation.text, mutation.before, mutation.after), "")


# --- the tests of a mutant, in a process of their own, in a copy of the tree ------------------------------------------


IMPORT = re.compile(r"^from ((?:mpsref_cpu|mpsref_metal|mpsref)[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


@functools.cache
def _imported(file: Path) -> frozenset[Path]:
    """Return the files of this tree that a file imports, or that its Metal launches are compiled from, and itself."""
    found, left = {file}, [file]
    while left:
        one = left.pop()
        text = one.read_text("utf-8")
        names = [name for name, _ in IMPORT.findall(text)]
        names += [f"{name}.{word}" for name, words in IMPORT.findall(text) for word in re.findall(r"\w+", words)]
        paths = [folder / name.replace(".", "/") for name in names for folder in (ROOT, ROOT / "backends")]
        files = [path.with_name(f"{path.name}.py") for path in paths]
        if "mpsref_metal" in one.parts:
            msl = ROOT / "backends" / "mpsref_metal" / "msl"
            files += [msl / f"{word}.metal" for word in re.findall(r'"(\w+)"', text)] + [msl / "prelude.metal"]
        for new in files:
            if new not in found and new.is_file() and "anymetal" not in new.parts:
                found.add(new)
                if new.suffix == ".py":
                    left.append(new)
    return frozenset(found)


def _implementation(operation: Any, backend: str) -> Path | None:
    """Return the file of a backend that implements an operation."""
    family = operation.spec_type.__module__.rpartition(".")[2]
    folder = ROOT / "backends" / ("mpsref_cpu" if backend == "cpu" else "mpsref_metal")
    return next(iter(folder.rglob(f"{family}.py")), None)


def targets(file: Path) -> tuple[list[Any], list[str]]:
    """Return the operations that depend on a file, and the backends to check."""
    from mpsref.conformance.case import operations

    name = file.relative_to(ROOT).as_posix()
    if name.startswith("backends/"):
        backends = ["cpu" if "mpsref_cpu" in name else "metal:clang"]
        files = {op: _implementation(op, backends[0]) for op in operations()}
    else:
        backends = ["cpu"]
        files = {op: ROOT / f"{op.spec_type.__module__.replace('.', '/')}.py" for op in operations()}
    chosen = [op for op, one in files.items() if one is not None and file in _imported(one)]
    own = [op for op in chosen if op.spec_type.__module__.endswith(f".{file.stem}")]
    others = [op for op in chosen if op not in own]
    return own + others[:: max(1, -(-len(others) // OPERATIONS))], backends


def test_files(file: Path) -> list[str]:
    """Return the test files that are named after a file, or after its folder in the cpu backend."""
    names = {file.stem.strip("_"), file.stem.split("_")[0]}
    in_cpu = "mpsref_cpu" in file.parts
    if in_cpu:
        names.add(file.parent.name)
    if "mps" in file.parts:
        found = [path for name in names for path in (ROOT / "tests" / "mps").glob(f"test_{name}*.py")]
    elif "kernels" not in file.parts:
        wanted = {f"test_{word}" for name in names for word in (name, f"cpu_{name}", f"metal_{name}")}
        if in_cpu and file.parent.name in ("mpsref_cpu", "simd"):
            wanted |= {"test_cpu_pooling_average", "test_cpu_threads"}
        found = [path for path in (ROOT / "tests").rglob("test_*.py") if path.stem in wanted]
    else:
        folders = [ROOT / "tests" / folder for folder in ("kernels", "arguments")]
        found = [path for folder in folders for name in names for path in folder.glob(f"test_{name}*.py")]
    chosen = {path.relative_to(ROOT).as_posix() for path in found if path.parent.name != "frameworks"}
    chosen |= {name for folder, names in ALSO.items() if folder in file.as_posix() for name in names}
    return sorted(chosen, key=lambda name: ("test_cpu_pooling_average" in name or "threads" in name, name))


@app.command("test", hidden=True)
def run_tests(
    file: str, tree: Path, left_out: Annotated[list[str] | None, typer.Argument()] = None, check: bool = True
) -> None:
    """Run the tests of a mutant in the working directory, without some; print the first that fails, and end."""
    import mpsref

    if not Path(mpsref.__file__).is_relative_to(tree.resolve()):
        raise SystemExit(MISPLACED)
    from mpsref.conformance import CASES
    from mpsref.conformance.blocks import Block
    from mpsref.conformance.checker import check_block
    from mpsref.registry import get_backends

    operations, backends = targets(ROOT / file)

    def noticed(name: str) -> None:
        if name not in (left_out or ()):
            print(name)
            raise SystemExit(NOTICED)

    def run_check(block: Block) -> None:
        for operation in operations if check else ():
            for row in check_block(operation, get_backends(backends), block):
                if row.failures:
                    noticed(f"check of {row.operation} on {row.backend}")

    run_check(Block(CASES, 0))
    for one in [name for name in (file, *test_files(ROOT / file)) if name.endswith(".py")]:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", one]
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode not in (0, 5):  # 5: no tests
            noticed(one)
    run_check(Block(CASES, 1, layers=True))
    raise SystemExit(SURVIVED)


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What happened to a mutant."""

    mutation: Mutation
    noticed: bool
    by: str
    """The test that noticed it."""
    seconds: float


_running: set[int] = set()
"""The processes of tests, each the first of its session."""


class Trees:
    """Copies of the tree: one without a mutation, whose compiled kernels the copies of mutants share.

    The tests of each file run without a mutation first; those that fail then are left out.
    """

    def __init__(self, folder: Path, check: bool) -> None:
        """Copy the tree, unless the folder has the copy of an earlier run."""
        self._options = [] if check else ["--no-check"]
        self._folder, self._base, self._known = folder, folder / "base", folder / "left_out.json"
        if not self._known.exists():
            for name in (*TREE, "scripts"):
                copy: Callable[..., Any] = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
                self._base.mkdir(parents=True, exist_ok=True)
                copy(ROOT / name, self._base / name)
            self._known.write_text("{}")
        self.left_out: dict[str, list[str]] = json.loads(self._known.read_text())
        """By file, its tests that fail without a mutation; of files whose tests end in time."""

    def prepare(self, file: str) -> None:
        """Run the tests of a file without a mutation."""
        failing: list[str] = []
        while True:
            status, output = self._test(file, self._base, failing)
            if status != NOTICED:
                break
            failing.append(_last_line(output))
        if status == SURVIVED:
            self.left_out[file] = failing
            self._known.write_text(json.dumps(self.left_out))
        else:
            Console(stderr=True).print(f"{file}: {output[-2000:]}", markup=False)

    def run(self, mutation: Mutation) -> Result:
        """Run the tests of a mutant."""
        tree = Path(tempfile.mkdtemp(dir=self._folder)) / "tree"
        shutil.copytree(self._base, tree, copy_function=os.link)
        changed = tree / mutation.file
        source = changed.read_text("utf-8")
        changed.unlink()  # it is a link to that of the base
        changed.write_text(mutation.apply(source), "utf-8")
        start = time.monotonic()
        try:
            status, output = self._test(mutation.file, tree, self.left_out[mutation.file])
        finally:
            shutil.rmtree(tree.parent, ignore_errors=True)
        by = "" if status == SURVIVED else _last_line(output)
        return Result(mutation, status != SURVIVED, by, time.monotonic() - start)

    def _test(self, file: str, tree: Path, left_out: list[str]) -> tuple[int | None, str]:
        roots = [str(tree / name) for name in SOURCES]
        path = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
        caches = ("MPSREF_CACHE_DIR", "ANYMETAL_CACHE_DIR")
        ours = {"PYTHONPATH": path, **{name: os.environ.get(name, str(self._folder / "cache")) for name in caches}}
        threads = dict.fromkeys(("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "2")
        process = subprocess.Popen(
            [
                sys.executable,
                str(tree / "scripts" / Path(__file__).name),
                "test",
                *self._options,
                file,
                str(tree),
                *left_out,
            ],
            cwd=tree,
            env={**os.environ, **threads, **ours},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        _running.add(process.pid)
        try:
            output, _ = process.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            output = f"no end after {TIME_LIMIT:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _running.discard(process.pid)
        if process.returncode == MISPLACED:
            raise RuntimeError(f"Python imports mpsref from elsewhere than {tree}; install no copy of it")
        return process.returncode, output


def _last_line(output: str) -> str:
    return "".join(output.strip().splitlines()[-1:])


@app.command()
def run(
    output: Annotated[Path, typer.Argument(help="The JSON file to write; if it exists, it is continued.")],
    number: Annotated[int, typer.Option(help="How many mutants to sample.")] = 400,
    seed: Annotated[int, typer.Option(help="The seed of the sample.")] = 1,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Mutants at a time; 0: one for each core.")] = 0,
    seconds: Annotated[float, typer.Option(help="Time limit; what is complete then is written.")] = 86400.0,
    folder: Annotated[Path | None, typer.Option(help="A folder for copies of the tree, kept for the next run.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Only mutants of this group of files.")] = None,
    file: Annotated[list[str] | None, typer.Option(help="Only mutants of this file.")] = None,
    survivors: Annotated[bool, typer.Option("--survivors", help="Run those that survived again.")] = False,
    check: Annotated[bool, typer.Option(help="Run the check, too; without it the score is that of the tests.")] = True,
) -> None:
    """Sample mutants and run the tests of each."""
    stop, found = time.monotonic() + seconds, list[Result]()
    sys.path[:0] = [str(ROOT / name) for name in SOURCES]
    from mpsref.machine import cores

    chosen = [
        one for one in sample(number, seed, file or ()) if not reason_of(one) and (not group or one.group in group)
    ]
    if output.exists():
        found = [one for one in _read(output) if one.mutation in {*chosen} and (one.noticed or not survivors)]
    left = [one for one in chosen if one not in {result.mutation for result in found}]
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as temporary:
        trees = Trees(folder or Path(temporary), check)
        files = sorted({one.file for one in left} - trees.left_out.keys())
        for _ in _all(trees.prepare, files, jobs or cores(), stop):
            pass
        failing = {name for names in trees.left_out.values() for name in names}
        console.print(f"prepared {len(trees.left_out)} files; left out, as they fail anyway: {sorted(failing)}")
        for result in _all(trees.run, [one for one in left if one.file in trees.left_out], jobs or cores(), stop):
            found.append(result)
            state = f"noticed by {result.by}" if result.noticed else "survived"
            console.print(f"{len(found)} of {len(chosen)}: {result.mutation} {state}", markup=False, highlight=False)
            output.write_text(json.dumps([asdict(one) for one in found], indent=1), "utf-8")
    show([output])


def _all(function: Callable[[Any], Any], arguments: Iterable[Any], jobs: int, stop: float) -> Iterator[Any]:
    """Yield the results of calls in ``jobs`` threads, those that are complete before ``stop``."""
    waiting, running = deque(arguments), set[Future[Any]]()
    pool = ThreadPoolExecutor(jobs)
    try:
        while (waiting or running) and time.monotonic() < stop:
            while waiting and len(running) < jobs:
                running.add(pool.submit(function, waiting.popleft()))
            done, running = wait(running, timeout=max(0.0, stop - time.monotonic()), return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        for process in {*_running}:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        pool.shutdown(cancel_futures=True)


def _read(file: Path) -> list[Result]:
    rows = json.loads(file.read_text("utf-8"))
    return [Result(**{**row, "mutation": Mutation(**row["mutation"])}) for row in rows]


@app.command()
def show(
    files: Annotated[list[Path], typer.Argument(help="The files of runs.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
) -> None:
    """Print the score and every survivor."""
    results = list({one.mutation: one for file in files for one in _read(file)}.values())
    equivalent = Counter(one.mutation.group for one in results if reason_of(one.mutation))
    counted = [one for one in results if not reason_of(one.mutation)]
    total, noticed = (
        Counter(one.mutation.group for one in counted),
        Counter(one.mutation.group for one in counted if one.noticed),
    )
    head = ("group", "mutants", "noticed", "survived", "equivalent", "score")
    lines = [
        (name, str(total[name]), str(noticed[name]), str(total[name] - noticed[name]), str(equivalent[name]),
         f"{100 * noticed[name] / total[name]:.1f} %" if total[name] else "-")
        for name in GROUPS
    ]  # fmt: skip
    every, seen = total.total(), noticed.total()
    score = f"{100 * seen / max(every, 1):.1f} %"
    lines.append(("all", str(every), str(seen), str(every - seen), str(equivalent.total()), score))
    console = Console(width=160) if not Console().is_terminal else Console()
    if markdown:
        for cells in (head, ("---",) * len(head), *lines):
            console.print(f"| {' | '.join(cells)} |", highlight=False)
    else:
        table = Table(*head)
        for cells in lines:
            table.add_row(*cells)
        console.print(table)
    for one in counted:
        if not one.noticed:
            console.print(f"survived: {one.mutation}", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    app()
