"""The bench of kernel faults: published faults of Metal kernels, each written again, which the checks must find.

``faults/kernels.toml`` describes each pair: a kernel that has the fault with the macro ``WRONG`` and none without, and
how it is run. The format is that of ``tests/faults/README.md``, with the kind ``result`` for a kernel whose
accesses are legal and whose numbers are wrong: they are compared with those of ``result``.
"""

from __future__ import annotations

import math
import re
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import anymetal
from anymetal.clang.findings import Finding

MARKS = re.compile(r"[;{)\]].*// ((?:here|first|second)(?:, second)?)$")

KERNEL = re.compile(r"^kernel void (\w+)\(")


class Ran(NamedTuple):
    """What a kernel did."""

    findings: Sequence[Finding]
    arguments: list[Any]


class Pairs:
    """A folder of kernels with and without a fault.

    Parameters
    ----------
    folder : Path
        Where the kernels are.
    file : str
        The TOML file that describes them.
    """

    def __init__(self, folder: Path, file: str) -> None:
        self.folder = folder
        self.programs: dict[str, Any] = tomllib.loads((folder / file).read_text("utf-8"))

    def path(self, name: str) -> Path:
        """Return the file of a kernel, which may have others, too."""
        return self.folder / f"{self.programs[name].get('file', name)}.metal"

    def rows(self, name: str) -> list[tuple[int, str]]:
        """Return the lines of a kernel with their numbers; in a file of several, with the functions right before it."""
        every, rows, kernel = list(enumerate(self.path(name).read_text("utf-8").splitlines(), 1)), [], ""
        for number, line in every if "file" in self.programs[name] else ():
            rows.append((number, line))
            kernel = found[1] if (found := KERNEL.search(line)) else kernel
            if line == "}" and kernel == name:
                return rows
            if line == "}" and kernel:
                rows, kernel = [], ""
        return every

    def marked(self, name: str) -> dict[str, set[int]]:
        """Return the lines of a kernel by their marks."""
        lines: dict[str, set[int]] = {"here": set(), "first": set(), "second": set()}
        for number, line in self.rows(name):
            for mark in found[1].split(", ") if (found := MARKS.search(line)) else ():
                lines[mark].add(number)
        return lines

    def run(self, name: str, *, wrong: bool) -> Ran:
        """Run a kernel with its fault or without."""
        program = self.programs[name] | (self.programs[name].get("wrong", {}) if wrong else {})
        described = [*program["buffers"], *program.get("textures", [])]
        arguments = [_argument(one) for one in described]
        for i, one in enumerate(described):
            if "same" in one:
                arguments[i] = arguments[len(program["buffers"]) + one["same"]]
        bound = [
            anymetal.undefined(one) if isinstance(one, np.ndarray) and not KNOWN & set(buffer) else one
            for buffer, one in zip(described, arguments, strict=True)
        ]
        count = len(program["buffers"])
        textures = [_texture(*pair) for pair in zip(described[count:], bound[count:], strict=True)]
        samplers = [anymetal.Sampler(**one) for one in program.get("samplers", [])]
        local = {int(index): length for index, length in program.get("threadgroup", {}).items()}
        try:
            library = anymetal.compile(
                self.path(name),
                version=program.get("version", "3.1"),
                define={"WRONG": None} if wrong else None,
                sanitize=True,
                check_order=False,
                levels={"unread": "off"},  # a fault and its repair have the same parameters
            )
            images: dict[str, Any] = {"textures": textures, "samplers": samplers} if textures else {}
            done = library[name](program["grid"], program["group"], *bound[:count], local=local, seconds=2, **images)
        except anymetal.LaunchError as error:
            return Ran(error.findings, arguments)
        return Ran(done.findings, arguments)

    def is_named(self, name: str, finding: Finding) -> bool:
        """Return whether a finding has the kind, the level and the lines of the fault."""
        expected, lines = self.programs[name]["finding"], lines_of(finding)
        marks = self.marked(name).values()
        same = (finding.kind, finding.level) == (expected["kind"], expected.get("level", "error"))
        return same and all(not marked or bool(marked & lines) for marked in marks)

    def differences(self, name: str, arguments: Sequence[Any]) -> list[str]:
        """Return a sentence for each buffer that does not have the result of the repaired kernel."""
        texts = []
        described = [*self.programs[name]["buffers"], *self.programs[name].get("textures", [])]
        for index, (buffer, argument) in enumerate(zip(described, arguments, strict=True)):
            if "result" not in buffer:
                continue
            expected, found = numbers(buffer["result"], buffer), np.ravel(argument)
            wrong = np.flatnonzero(~np.isclose(found, expected, rtol=1e-6, atol=0, equal_nan=True))
            if wrong.size:
                at = wrong[0]
                texts.append(f"element {at} of buffer {index} is {found[at]}, expected {expected[at]}")
        return texts

    def message(self, name: str, ran: Ran) -> str:
        """Return what names the fault of a kernel; empty if nothing does."""
        if self.programs[name]["finding"]["kind"] == "result":
            return next(iter(self.differences(name, ran.arguments)), "")
        return next((described(one) for one in ran.findings if self.is_named(name, one)), "")


def described(finding: Finding) -> str:
    """Return the message of a finding, and the lines that it names."""
    lines = [str(place.line) for place in (finding.place, finding.other) if place is not None]
    return finding.message + (f", line{'s' * (len(lines) > 1)} {', '.join(lines)}" if lines else "")


def lines_of(finding: Finding) -> set[int]:
    """Return the numbers of the lines that a finding names."""
    return {place.line for place in (finding.place, finding.other) if place is not None}


def numbers(described: Any, buffer: dict[str, Any]) -> NDArray[Any]:
    """Return contents as the TOML file describes them."""
    each, values = (described["each"], described["values"]) if isinstance(described, dict) else (1, described)
    if values in ("index", "count"):
        values = np.arange(_length(buffer)) + (values == "count")
    return np.resize(np.repeat(values, each), _length(buffer)).astype(buffer["dtype"])


KNOWN = frozenset(("contents", "sparse", "same"))
"""Entries of a buffer whose contents are defined."""


def _length(buffer: dict[str, Any]) -> int:
    return buffer["length"] if "length" in buffer else math.prod(buffer["shape"])


def _texture(described: dict[str, Any], array: Any) -> Any:
    """Return an array, or an undefined one, in the shape of a texture."""
    if isinstance(array, np.ndarray):
        return array.reshape(described["shape"])
    return array._replace(buffer=array.buffer.reshape(described["shape"]))


def _argument(buffer: dict[str, Any]) -> Any:
    """Return what is bound to a buffer: an array for undefined contents, too."""
    if buffer.get("null"):
        return None
    if "value" in buffer:
        value = np.array(buffer["value"], buffer["dtype"])
        return value.tobytes() if value.ndim else value[()]
    if buffer.get("sparse"):
        return anymetal.sparse(buffer["length"], buffer["dtype"])
    if "contents" in buffer:
        return numbers(buffer["contents"], buffer)
    return np.full(_length(buffer), 0x55, buffer["dtype"])


PAIRS = Pairs(Path(__file__).with_name("faults"), "kernels.toml")


@dataclass(frozen=True)
class KernelBug:
    """A published fault of a Metal kernel.

    Parameters
    ----------
    name : str
        The kernel.
    issue : str
        The issue or pull request on GitHub, ``owner/repository#number``.
    mechanism : str
        The mistake, in a sentence.
    versions : str
        The versions in which it was seen.
    kind : str
        The check that finds it.
    find : callable
        Runs the kernel with the fault; returns the message that names it, empty if none does.
    alarm : callable
        Runs the repaired kernel; returns the message of what is found there, empty if nothing is.
    """

    name: str
    issue: str
    mechanism: str
    versions: str
    kind: str
    find: Callable[[], str]
    alarm: Callable[[], str]

    @property
    def link(self) -> str:
        """The address of the issue."""
        repository, _, number = self.issue.partition("#")
        return f"https://github.com/{repository}/issues/{number}" if number else ""

    def run(self) -> FoundKernel:
        """Run the kernel that has the fault, and the repaired one, under all checks.

        Returns
        -------
        FoundKernel
            Whether a check named the fault, the message, and what was found in the repaired kernel.

        Raises
        ------
        anymetal.CompileError
            If there is no clang.

        Examples
        --------
        >>> from published.bench import KERNELS
        >>> found = next(bug for bug in KERNELS if bug.issue == "ml-explore/mlx#2340").run()
        >>> found.detected, found.bug.kind, found.alarm
        (True, 'race', '')
        """
        start = time.perf_counter()
        message = self.find()
        return FoundKernel(self, bool(message), time.perf_counter() - start, message, self.alarm())


class FoundKernel(NamedTuple):
    """The result of :meth:`KernelBug.run`."""

    bug: KernelBug
    detected: bool
    seconds: float
    """Time to compile and run the kernel with the fault."""
    message: str
    """The finding of the check that names the fault."""
    alarm: str
    """What is found in the repaired kernel; empty if nothing is."""


def _again(name: str) -> str:
    return PAIRS.message(name, PAIRS.run(name, wrong=True))


def _alarm(name: str) -> str:
    ran = PAIRS.run(name, wrong=False)
    return next(iter([*map(described, ran.findings), *PAIRS.differences(name, ran.arguments)]), "")


KERNELS: tuple[KernelBug, ...] = tuple(
    KernelBug(
        name,
        one["issue"],
        one["mechanism"],
        one["versions"],
        one["finding"]["kind"],
        partial(_again, name),
        partial(_alarm, name),
    )
    for name, one in PAIRS.programs.items()
)
"""The faults that are written again."""
