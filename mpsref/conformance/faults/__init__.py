"""Planted faults: backends that are wrong in one way each. The suite must catch every one of them.

A fault is a small backend made of the reference and one mistake that people make: in the geometry it reads, in the
data, in the arithmetic or in the memory. What they have in common is that their results look plausible.
"""

from __future__ import annotations

from mpsref.conformance.case import operations
from mpsref.conformance.families import modules_of
from mpsref.conformance.faults import common
from mpsref.conformance.faults.planted import Fault

__all__ = ["Fault", "faults"]

FAMILIES = modules_of(__name__)


def faults() -> tuple[Fault, ...]:
    """Return every planted fault: those that any kernel can have, and those of each family."""
    found = [fault for operation in operations() for fault in common.faults(operation)]
    return (*found, *(fault for family in FAMILIES for fault in family.faults()))
