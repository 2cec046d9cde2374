"""How a published hardware result becomes a call of mpsref: one adapter an MPS class.

An adapter runs an entry on a backend and yields each result beside what the hardware gave. A relation states no numbers
but what a CPU computes: that side is computed here, in the plainest way, without the code under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from mpsref.arguments.arrays import Array
from mpsref.conformance.hardware.entries import Entry, Values
from mpsref.registry import Backend

__all__ = ["Adapter", "Compared"]


class Compared(NamedTuple):
    """What a backend gave, and what the hardware gave or must have given."""

    where: str
    got: Array
    expected: Values


Adapter: TypeAlias = Callable[[Entry, Backend], Iterator[Compared]]
