"""Variables of the environment. Those named ``MPSREF_*`` are of the time before this package had a name of its own."""

from __future__ import annotations

import os
import warnings

FORMER = "MPSREF_"
"""How the names began; they are read in version 0.1 only."""

_told: set[str] = set()


def variable(name: str) -> str | None:
    """Return the value of a variable ``ANYMETAL_*``, else that of its former name, with a warning; None if empty."""
    former = FORMER + name.removeprefix("ANYMETAL_")
    if value := os.environ.get(name):
        return value
    value = os.environ.get(former)
    if value and former not in _told:
        _told.add(former)
        warnings.warn(f"{former} is read in this version only: set {name}", FutureWarning, stacklevel=3)
    return value or None
