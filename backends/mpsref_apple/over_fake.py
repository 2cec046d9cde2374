"""The backend ``mps:fake``: that of Apple's kernels over the fake of the Objective-C runtime, for machines without MPS.

It shows that the calls are those of Apple's headers, and nothing of what Apple's kernels compute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import ParamSpec, TypeVar

import mpsref_apple
from mpsref_apple import fake_kernels
from mpsref_apple.runtime import Runtime, described, using

__all__ = ["backend"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@functools.cache
def _runtime() -> Runtime:
    return fake_kernels.device().runtime()


def _over_the_fake(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    def inside(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        with using(_runtime()):
            return function(*arguments, **options)

    return inside


backend = replace(
    mpsref_apple.backend,
    name="mps:fake",
    implementations={key: _over_the_fake(one) for key, one in mpsref_apple.backend.implementations.items()},
    unavailable=lambda: None,
    device=_over_the_fake(described),
    isolated=False,  # NumPy computes
)
