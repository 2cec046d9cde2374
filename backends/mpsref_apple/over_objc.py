"""The backend ``mps``: its table, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpsref import Backend
from mpsref.backend import Implementation
from mpsref.operations import Problem
from mpsref_apple import normalization, pointwise, training, weighted, windows
from mpsref_apple.runtime import described, in_use, unavailable

__all__ = ["backend"]

FAMILIES = (windows, weighted, pointwise, normalization, training)
REFUSALS: dict[type[Any], Callable[[Any], str | None]] = {}
for family in FAMILIES:
    REFUSALS |= getattr(family, "REFUSALS", {})


def _on_the_runtime(function: Callable[..., None]) -> Implementation:
    def implementation(problem: Problem, *inputs: Any, out: Any) -> None:
        run = in_use()
        with run.objc.autorelease_pool():  # a check makes many images
            function(run, problem, *inputs, out=out)

    return implementation


def _refuses(problem: Problem) -> str | None:
    refuses = REFUSALS.get(type(problem.spec))
    return refuses(problem) if refuses else None


backend = Backend(
    "mps",
    {key: _on_the_runtime(function) for family in FAMILIES for key, function in family.IMPLEMENTATIONS.items()},
    unavailable=unavailable,
    device=described,
    dtypes=("float32",),
    fast_math=True,
    refuses=_refuses,
    named_only=True,
    isolated=True,  # an assertion of Metal ends the process; Metal starts in the new interpreter, and is never forked
)
