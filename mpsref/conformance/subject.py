"""What the suite needs to know of a kernel: how to draw its problems, and which properties it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from mpsref.conformance.runner import Property
from mpsref.registry import Problem

__all__ = ["Subject"]


@dataclass(frozen=True)
class Subject:
    """A kernel under test."""

    problems: Callable[[str], st.SearchStrategy[Problem]]
    """Draws problems of one method."""
    properties: Mapping[str, tuple[Property, ...]]
    """What must hold beside agreement, by method."""
