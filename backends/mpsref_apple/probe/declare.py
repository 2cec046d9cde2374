"""What a choice is: a statement that Apple's documentation does not decide, its alternatives, and problems that do.

A statement about mpsref alone, such as which calls raise an error, is tagged *design* and has neither.

A :class:`Choice` is declared once. The page "open choices" and ``mpsref probe`` are made from the declarations; the
documentation links to the identifiers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array
from mpsref.backend import Backend
from mpsref.mpsgraph.graph import FUNCTIONS
from mpsref.operations import Spec
from mpsref_apple import mpsgraph

Run: TypeAlias = "Callable[[Machine], ArrayLike]"


@dataclass(frozen=True)
class Machine:
    """What a problem runs on: the backend ``mps``, and calls that no operation makes."""

    backend: Backend
    apple: Any
    """The module :mod:`mpsref_apple.probe.objects`, whose functions use objects of MPS directly."""

    def call(self, spec: Spec, method: str, *arrays: object, **options: object) -> Any:
        """Call an operation on the backend."""
        return getattr(spec, method)(*arrays, backend=self.backend, **options)

    def graph(self, name: str, **arguments: Any) -> tuple[Array, ...]:
        """Return the results of a function of :mod:`mpsref.mpsgraph`: of Apple's, or of the backend."""
        if self.backend.name == "mps":
            return mpsgraph.call(name, **arguments)
        found = FUNCTIONS[name].call(**arguments, backend=self.backend)
        return found if isinstance(found, tuple) else (found,)

    def graph_object(self, name: str, *arrays: Array) -> Array:
        """Return what a function of :mod:`mpsref_apple.mpsgraph` finds, which uses graphs directly."""
        found: Array = getattr(self.apple, name)(*arrays)
        return found

    def graph_shape(self, name: str, **arguments: Any) -> list[int]:
        """Return the shape of the first result."""
        if self.backend.name == "mps":
            return mpsgraph.result_shape(name, **arguments)
        return list(self.graph(name, **arguments)[0].shape)


@dataclass(frozen=True, eq=False)
class ProbeProblem:
    """A computation whose result tells alternatives apart.

    Parameters
    ----------
    kernel : str
        The class of MPS whose result is examined.
    direction : {"forward", "gradient", "property"}
        As in golden entries.
    inputs : mapping of str to array_like
        The arrays, for the record.
    run : callable
        Returns the result.
    expected : mapping of str to array_like
        The result of each alternative.
    parameters : mapping, optional
        The parameters of the kernel, for the record.
    writes : str, optional
        What the kernel writes: its destination, or the buffer of a state, or a property that is read.
    planted : mapping of str to callable, optional
        For the dry run: what the kernel writes under an alternative, if that is not the expected result.
    tolerance : float, optional
        The largest difference, relative to the largest expected number.
    """

    kernel: str
    direction: Literal["forward", "gradient", "property"]
    inputs: Mapping[str, ArrayLike]
    run: Run
    expected: Mapping[str, ArrayLike]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    writes: str = "destination"
    planted: Mapping[str, Callable[[Array], ArrayLike]] = field(default_factory=dict)
    tolerance: float = 1e-5

    def matching(self, result: Array) -> list[str]:
        """Return the alternatives that a result agrees with."""
        return [name for name, expected in self.expected.items() if agrees(result, expected, self.tolerance)]


@dataclass(frozen=True, eq=False)
class Choice:
    """A statement tagged *choice*, *obs* or *design*.

    Parameters
    ----------
    id : str
        The identifier.
    statement : str
        What mpsref does.
    why : str
        The reason.
    where : mapping of str to str or sequence of str
        By page, the beginnings or parts of the tagged lines.
    alternatives : mapping of str to str, optional
        Text by name; the first one is what mpsref does unless ``ours`` names another one.
    deciding : ProbeProblem or sequence of them, optional
        The problems that tell the alternatives apart.
    tag : {"choice", "obs", "design"}, optional
        How the documentation tags it. Only *design* has no problems.
    ours : str, optional
        The alternative of mpsref; empty if mpsref raises an error.
    """

    id: str
    statement: str
    why: str
    where: Mapping[str, str | Sequence[str]]
    alternatives: Mapping[str, str] = field(default_factory=dict)
    deciding: ProbeProblem | Sequence[ProbeProblem] = ()
    tag: Literal["choice", "obs", "design"] = "choice"
    ours: str | None = None

    def __post_init__(self) -> None:
        """Check that a choice has problems, unless it is about mpsref alone, and that names of alternatives fit."""
        if bool(self.problems) == (self.tag == "design"):
            raise ValueError(f"choice {self.id}: give problems, or the tag design")
        for problem in self.problems:
            if set(problem.expected) != set(self.alternatives):
                raise ValueError(f"choice {self.id}: a problem expects {set(problem.expected)}")

    @property
    def problems(self) -> Sequence[ProbeProblem]:
        """The problems that tell the alternatives apart."""
        return [self.deciding] if isinstance(self.deciding, ProbeProblem) else self.deciding

    @property
    def chosen(self) -> str:
        """The name of the alternative of mpsref; empty if mpsref raises an error."""
        return next(iter(self.alternatives), "") if self.ours is None else self.ours

    def lines(self) -> list[tuple[str, str]]:
        """Return the page and a part of each tagged line."""
        return [
            (page, one) for page, parts in self.where.items() for one in ([parts] if isinstance(parts, str) else parts)
        ]


def agrees(result: Array, expected: ArrayLike, tolerance: float) -> bool:
    """Return whether a result is the expected one: NaN and infinities at the same places, the rest within a tolerance."""
    wanted = np.asarray(expected, np.float64)
    if result.size != wanted.size:
        return False
    found, wanted = result.astype(np.float64).ravel(), wanted.ravel()
    finite = np.isfinite(wanted)
    if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return False
    largest = np.abs(wanted[finite]).max(initial=0)
    return bool((np.abs(found[finite] - wanted[finite]) <= tolerance * largest).all())


def row(*values: float) -> Array:
    """Return an image of one row and one channel."""
    return np.array(values, np.float32).reshape(1, 1, -1, 1)


def pixel(*values: float) -> Array:
    """Return an image of one pixel."""
    return np.array(values, np.float32).reshape(1, 1, 1, -1)


def image(*rows: Sequence[float]) -> Array:
    """Return an image of one channel."""
    return np.array(rows, np.float32)[None, :, :, None]


def graph(
    name: str,
    expected: Mapping[str, ArrayLike],
    read: Callable[[tuple[Array, ...]], ArrayLike] = lambda results: results[0],
    result: int = 0,
    planted: Mapping[str, Callable[[Array], ArrayLike]] | None = None,
    tolerance: float = 1e-5,
    **arguments: Any,
) -> ProbeProblem:
    """Return the problem of a function of MPSGraph; ``result`` is the one that a planted alternative changes."""
    inputs = {key: value for key, value in arguments.items() if isinstance(value, np.ndarray)}
    return ProbeProblem(
        "MPSGraph",
        "gradient" if name.endswith("gradient") else "forward",
        inputs,
        lambda machine: read(machine.graph(name, **arguments)),
        expected,
        {"function": name} | {key: str(value) for key, value in arguments.items() if key not in inputs},
        f"{name} {result}" if result else name,
        planted or {},
        tolerance,
    )


def graph_shape(name: str, expected: Mapping[str, Sequence[int]], **arguments: Any) -> ProbeProblem:
    """Return the problem of the shape that MPSGraph infers for the result of a function."""
    problem = graph(name, expected, **arguments)
    planted = {one: functools.partial(_instead, np.array(shape)) for one, shape in expected.items()}
    return replace(
        problem,
        run=lambda machine: machine.graph_shape(name, **arguments),
        writes=f"shape of {name}",
        planted=planted,
    )


def _instead(shape: Array, values: Array) -> Array:
    return shape


def operation(
    kernel: str,
    spec: Spec,
    method: str,
    inputs: Mapping[str, ArrayLike],
    expected: Mapping[str, ArrayLike],
    result: int = 0,
    writes: str = "destination",
    tolerance: float = 1e-5,
    planted: Mapping[str, Callable[[Array], ArrayLike]] | None = None,
    **options: object,
) -> ProbeProblem:
    """Return the problem of an operation; of several results, ``result`` is the number of the one that counts."""

    def run(machine: Machine) -> ArrayLike:
        found = machine.call(spec, method, *inputs.values(), **options)
        return found[result] if isinstance(found, tuple) else found  # type: ignore[no-any-return]

    direction: Literal["forward", "gradient"] = "forward" if method in ("forward", "statistics") else "gradient"
    return ProbeProblem(
        kernel,
        direction,
        inputs,
        run,
        expected,
        {"call": f"{spec!r}.{method}", **options},
        writes,
        planted or {},
        tolerance,
    )
