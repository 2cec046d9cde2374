"""Hypothesis strategies that several families share."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
U = TypeVar("U")


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    """Draw two integers (y, x)."""
    return st.tuples(st.integers(low, high), st.integers(low, high))


def sizes(high: int) -> st.SearchStrategy[tuple[int, int]]:
    """Draw a size (height, width) of a result, often of one row or one column: frameworks have special cases there."""
    lengths = st.integers(1, high)
    return pairs(1, high) | st.tuples(st.just(1), lengths) | st.tuples(lengths, st.just(1))


def seldom(usual: T, strategy: st.SearchStrategy[U]) -> st.SearchStrategy[T | U]:
    """Draw ``usual`` three times out of four."""
    alone = st.just(usual)  # made once: Hypothesis examines every new strategy
    return st.integers(0, 3).flatmap(lambda k: strategy if k == 3 else alone)


def often(usual: T, strategy: st.SearchStrategy[U]) -> st.SearchStrategy[T | U]:
    """Draw ``usual`` every second time: for parameters of which two must occur together to expose a mistake."""
    alone = st.just(usual)
    return st.booleans().flatmap(lambda other: strategy if other else alone)
