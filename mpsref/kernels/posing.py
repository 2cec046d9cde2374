"""Problems, and what is made of specs, are remembered: to make and check one takes as long as a small kernel runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

AnyProblem = TypeVar("AnyProblem")
Asked = TypeVar("Asked")
Made = TypeVar("Made")

CAPACITY = 64
"""How many problems each spec remembers."""


def posed(kind: Callable[..., AnyProblem], spec: Any, *fields: Any) -> AnyProblem:
    """Return ``kind(spec, *fields)``; asked again, the same object.

    ``fields`` have passed their checks, or come from arrays: where one is 2, 2.0 would pass for it. Each spec has
    problems of its own, as specs that differ in the sign of a zero alone are equal.

    >>> from mpsref.kernels.slice_ import Slice, SliceForward
    >>> cut = Slice()
    >>> posed(SliceForward, cut, (1, 2, 2, 1)) is posed(SliceForward, cut, (1, 2, 2, 1))
    True
    """
    try:
        found: AnyProblem = spec.__dict__["_posed"][kind, fields]
        return found
    except KeyError:
        pass  # and an error of the problem is none that happens while this one is handled
    problem = kind(spec, *fields)
    known = spec.__dict__.setdefault("_posed", {})
    if len(known) >= CAPACITY:
        known.clear()
    known[kind, fields] = problem
    return problem


def following(problem: AnyProblem, **changes: Any) -> AnyProblem:
    """Return ``problem`` with a few fields changed, on which nothing depends that is remembered with a problem.

    What is found out about one of them is known of all that follow the same one.

    >>> from mpsref.kernels.optimizers import Adam
    >>> from mpsref.kernels.optimizers import AdamStep
    >>> following(AdamStep(Adam(), (2,)), time_step=7) == AdamStep(Adam(), (2,), time_step=7)
    True
    """
    twin = object.__new__(type(problem))
    vars(twin).update(vars(problem), **changes, _followed=problem)
    return twin


def kept(make: Callable[[Any], Made], spec: Any) -> Made:
    """Return ``make(spec)``; asked again, the same object, which is kept with this spec and not with its equals.

    >>> from mpsref.kernels.slice_ import Slice
    >>> cut = Slice()
    >>> kept(repr, cut) is kept(repr, cut)
    True
    """
    known: dict[Any, Made] = spec.__dict__.setdefault("_kept", {})
    if make not in known:
        known[make] = make(spec)
    return known[make]


def remembered(make: Callable[[Asked], Made]) -> Callable[[Asked], Made]:
    """Make a function of a problem, or of a spec, whose answer is kept with that object: nothing need be hashed.

    >>> from mpsref.kernels.slice_ import Slice
    >>> cut, text = Slice(), remembered(repr)
    >>> text(cut) is text(cut)
    True
    """

    @functools.wraps(make)
    def found(asked: Asked) -> Made:
        return kept(make, asked)

    return found
