"""Names of before, until every family has moved."""

from mpsref.conformance.family import KernelTests as Subject
from mpsref.conformance.strategies import often, pairs, seldom

__all__ = ["Subject", "often", "pairs", "seldom"]
