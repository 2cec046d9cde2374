"""What the suite needs to know of a kernel: how to draw its problems, and which properties it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from mpsref.conformance.runner import Property
from mpsref.registry import Problem

__all__ = ["Subject", "often", "pairs", "seldom"]


@dataclass(frozen=True)
class Subject:
    """A kernel under test."""

    problems: Callable[[str], st.SearchStrategy[Problem]]
    """Draws problems of one method."""
    properties: Mapping[str, tuple[Property, ...]]
    """What must hold beside agreement, by method."""
    immune: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By method, the common planted faults that cannot happen to it, such as a layout where the result is no image."""


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    """Draw two integers (y, x)."""
    return st.tuples(st.integers(low, high), st.integers(low, high))


def seldom(usual: Any, strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw ``usual`` three times out of four."""
    alone = st.just(usual)  # made once: Hypothesis examines every new strategy
    return st.integers(0, 3).flatmap(lambda k: strategy if k == 3 else alone)


def often(usual: Any, strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw ``usual`` every second time: for what must come together with something else to tell mistakes apart."""
    alone = st.just(usual)
    return st.booleans().flatmap(lambda other: strategy if other else alone)
