"""The probe: problems that show what Apple's kernels do where their documentation does not say it.

>>> from mpsref_apple.probe import choice
>>> tie = choice("max-tie")
>>> tie.chosen, list(tie.alternatives)
('first', ['first', 'last', 'shared', 'all'])
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from mpsref.arguments.text import shown

if TYPE_CHECKING:
    from mpsref_apple.probe.declare import Choice

__all__ = ["choice", "choices"]


@functools.cache
def choices() -> tuple[Choice, ...]:
    """Return all declarations, in the order of the page."""
    from mpsref_apple.probe import mpsgraph, normalization, placement, pointwise, pooling, training, weighted

    found = tuple(
        one
        for family in (pooling, weighted, normalization, pointwise, training, placement, mpsgraph)
        for one in family.CHOICES
    )
    names = [one.id for one in found]
    if len(set(names)) < len(names):
        raise ValueError(f"an identifier occurs twice: {sorted({name for name in names if names.count(name) > 1})}")
    return found


def choice(id: str) -> Choice:
    """Return the choice of an identifier; raise ``ValueError`` for an unknown one."""
    for one in choices():
        if one.id == id:
            return one
    raise ValueError(f"no choice is called {shown(id)}; `mpsref probe --list` shows them all")
