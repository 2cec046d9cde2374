"""Run the problems, compare with the alternatives, and write what was found as golden entries."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array
from mpsref.backend import Backend
from mpsref.errors import UnsupportedError
from mpsref_apple import backend as mps_backend
from mpsref_apple import fake_kernels, runtime
from mpsref_apple.probe import choice, choices, objects
from mpsref_apple.probe.declare import Choice, Machine, ProbeProblem

NONE = "none of the alternatives"

SECONDS = 120
"""Maximum number of seconds of a problem in a process of its own."""


@dataclass(frozen=True, eq=False)
class Results:
    """The results of the problems of a choice: arrays, and the error messages of problems that failed."""

    choice: Choice
    results: Sequence[Array | str]

    @property
    def verdict(self) -> str:
        """The alternative that all results agree with, or why there is none."""
        errors = [result for result in self.results if isinstance(result, str)]
        if errors:
            return f"failed: {errors[0]}"
        matching = set(self.choice.alternatives)
        for problem, result in zip(self.choice.problems, self.results, strict=True):
            assert not isinstance(result, str)
            matching &= set(problem.matching(result))
        return " or ".join(name for name in self.choice.alternatives if name in matching) or NONE

    def __str__(self) -> str:
        note = "" if self.same else f" (mpsref: {self.choice.chosen or 'an error'})"
        return f"{self.choice.id}: {self.verdict}{note}"

    @property
    def same(self) -> bool:
        """Whether it is the alternative of mpsref."""
        return self.verdict == self.choice.chosen


def probed(only: Sequence[str] = ()) -> list[Choice]:
    """Return the choices that have problems, all or those of some identifiers."""
    return [one for one in choices() if one.problems and (not only or one.id in only)]


def machine() -> Machine:
    """Return the backend ``mps``; raise ``UnsupportedError`` with the reason where it cannot run."""
    reason = mps_backend.unavailable()
    if reason:
        raise UnsupportedError(reason)
    return Machine(mps_backend, objects)


@contextmanager
def fake(backend: Backend | str = "reference") -> Iterator[tuple[Machine, Any]]:
    """Yield the backend over the fake of the Objective-C runtime, whose kernels run on a backend, and the fake."""
    device = fake_kernels.device(backend)
    with runtime.using(device.runtime()):
        yield machine(), device


def find(choice: Choice, on: Machine) -> Results:
    """Run the problems of a choice."""
    return Results(choice, [result_of(problem, on) for problem in choice.problems])


def result_of(problem: ProbeProblem, on: Machine) -> Array | str:
    """Return the result of a problem, or the message of its error."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(problem.run(on), np.float64)
    except Exception as error:  # PyObjC raises the exceptions of Objective-C, of any kind
        return f"{type(error).__name__}: {error}"


def in_processes(chosen: Sequence[Choice], done: Callable[[Results], None]) -> list[Results]:
    """Run each problem in a process of its own: MPS aborts the process when an assertion of its own fails."""
    findings = []
    for one in chosen:
        findings.append(Results(one, [_in_process(one.id, n) for n in range(len(one.problems))]))
        done(findings[-1])
    return findings


def _in_process(id: str, number: int) -> Array | str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.npy"
        code = f"from mpsref_apple.probe.run import child; child({id!r}, {number}, {str(file)!r})"
        try:
            ended = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"it did not end within {SECONDS} s"
        if ended.returncode or not file.exists():
            lines = ended.stderr.strip().splitlines()
            return f"the process ended with {ended.returncode}: {lines[-1] if lines else ''}"
        found: Array = np.load(file)
        return str(found) if found.dtype.kind == "U" else found


def child(id: str, number: int, file: str) -> None:
    """Run a problem and store its result; called in a process of its own."""
    np.save(file, np.asarray(result_of(choice(id).problems[number], machine())))


# --- the dry run ------------------------------------------------------------------------------------------------------


def recognized(choice: Choice, alternative: str) -> Results:
    """Run a choice over a fake in which an alternative was planted."""
    results: list[Array | str] = []
    for problem in choice.problems:
        with fake() as (on, device):
            device.planted.update(plants(problem, alternative))
            results.append(result_of(problem, on))
    return Results(choice, results)


def plants(problem: ProbeProblem, alternative: str) -> dict[tuple[str, str], Callable[[Array], Array]]:
    """Return the functions that change what the kernel of a problem writes, so that it follows an alternative."""
    expected = np.asarray(problem.expected[alternative], np.float64)

    def reshaped(values: Array) -> ArrayLike:
        return expected.reshape(values.shape)

    function = problem.planted.get(alternative, reshaped)
    if problem.direction == "property":
        if problem.planted:
            return {(problem.kernel, problem.writes): lambda values: np.asarray(function(values))}
        names = problem.writes.split(", ")
        return {(problem.kernel, name): _constant(expected.ravel()[n]) for n, name in enumerate(names)}
    return {(problem.kernel, problem.writes): lambda values: np.asarray(function(values))}


def _constant(value: float) -> Callable[[Array], Any]:
    return lambda _: value


# --- the file ---------------------------------------------------------------------------------------------------------


def system() -> str:
    """Return the operating system with its build."""
    if platform.system() != "Darwin":
        return platform.platform()
    build = subprocess.run(["sw_vers", "-buildVersion"], capture_output=True, text=True, check=False).stdout.strip()
    return f"macOS {platform.mac_ver()[0]} ({build})"


def destination() -> str:
    """Return where to send the file: the issues of the repository that this copy was cloned from."""
    command = ["git", "-C", str(Path(__file__).parent), "remote", "get-url", "origin"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        found = ""
    found = re.sub(r"^git@([^:]+):", r"https://\1/", found).removesuffix(".git")
    return f"{found}/issues/new" if found.startswith("https://") else "a new issue of the repository that it came from"


def document(findings: Sequence[Results], device: str) -> dict[str, Any]:
    """Return findings as golden entries, see :mod:`mpsref.conformance.golden_entries`; failed problems are left out."""
    key = "probe-" + re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    verdicts = "; ".join(f"{one.choice.id}: {one.verdict}" for one in findings)
    entries = [
        _entry(finding, number, problem, result, device, key)
        for finding in findings
        for number, (problem, result) in enumerate(zip(finding.choice.problems, finding.results, strict=True))
        if not isinstance(result, str)
    ]
    note = f"Written by mpsref probe. {verdicts}"
    sources = {key: {"repository": "mpsref", "paths": ["mpsref probe"], "note": note}}
    return {"sources": sources, "entries": sorted(entries, key=lambda entry: str(entry["id"]))}


def _entry(found: Results, number: int, problem: ProbeProblem, result: Array, device: str, key: str) -> dict[str, Any]:
    described = {
        name: value if isinstance(value, (int, float, list)) else str(value)
        for name, value in problem.parameters.items()
    }
    return {
        "id": f"{key}-{found.choice.id}-{number}",
        "kernels": [problem.kernel],
        "direction": problem.direction,
        "kind": "measured",
        "dtype": "float32",
        "parameters": {"probe": found.choice.id, "problem": number} | described,
        "tolerance": {"absolute": 0, "relative": problem.tolerance, "of": "largest"},
        "device": device,
        "source": key,
        "note": f"Apple's kernel: {found.verdict}. mpsref: {found.choice.chosen or 'an error'}.",
        "inputs": {name: nested(values) for name, values in problem.inputs.items()},
        "expected": {"result": nested(result)},
        "origin": "printed",
    }


def nested(values: ArrayLike) -> Any:
    """Return an array as nested lists, with texts for NaN and infinities."""
    array = np.asarray(values, np.float64)
    names: Mapping[str, str] = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    if array.ndim:
        return [nested(one) for one in array]
    number = float(array)
    return names.get(str(number), int(number) if number.is_integer() and abs(number) < 2**53 else number)


class _NoObjects:
    """Replaces the calls that only the backend ``mps`` has."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(f"{name} uses objects of MPS; only the backend mps has them")


def replay(id: str, number: int, backend: Backend) -> Array:
    """Return the result of a problem on any backend; ``UnsupportedError`` for one that uses objects of MPS."""
    (problem,) = [one.problems[number] for one in choices() if one.id == id]
    apple = objects if backend.name == "mps" else _NoObjects()
    with np.errstate(all="ignore"):
        return np.asarray(problem.run(Machine(backend, apple)), np.float64)


# --- the page ---------------------------------------------------------------------------------------------------------

DESIGN = """## Design of mpsref

These statements decide nothing about results of MPS: they are about which calls raise an error, arguments and objects that only mpsref has, and problems that Apple documents as illegal or leaves undefined.
"""


def page() -> str:
    """Return the sections of the page "open choices" as Markdown."""
    lines = ["## Questions to Apple's kernels"]
    for one in sorted(choices(), key=lambda one: one.tag == "design"):
        if one.tag == "design" and DESIGN not in lines:
            lines += [DESIGN]
        lines += ["", f"### {one.id}", "", f"{one.statement} *[{one.tag}]*", "", one.why]
        if one.alternatives:
            lines += ["", "| alternative | meaning | mpsref |", "|---|---|---|"]
            lines += [
                f"| `{name}` | {text} | {'yes' if name == one.chosen else ''} |"
                for name, text in one.alternatives.items()
            ]
            lines += [] if one.chosen else ["", "mpsref raises an error."]
        if one.problems:
            kernels = dict.fromkeys(f"`{problem.kernel}`" for problem in one.problems)
            lines += ["", f"Problems: {len(one.problems)}, on {', '.join(kernels)}."]
        pages = dict.fromkeys(page for page, _ in one.lines())
        if pages:
            lines += ["", "See " + ", ".join(f"[{page}]({page}.md)" for page in pages) + "."]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"
