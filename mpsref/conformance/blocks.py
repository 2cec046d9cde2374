"""Blocks of cases: the unit of work that processes and machines share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mpsref.conformance import CASES


@dataclass(frozen=True)
class Block:
    """Some of the cases of a check of one operation, independent of the cases of other blocks."""

    number: int
    """Number of random cases, at most :data:`~mpsref.conformance.CASES`."""
    seed: int
    """Of the random cases."""
    layers: bool = False
    """Whether the layers of published networks are checked, too: in the first block."""


def blocks(number: int, seed: int) -> Iterator[Block]:
    """Yield the blocks of ``number`` random cases: each full block is followed by one of the next seed.

    >>> [(block.number, block.seed) for block in blocks(150, seed=7)]
    [(60, 7), (60, 8), (30, 9)]
    """
    for k, start in enumerate(range(0, number, CASES)):
        yield Block(min(CASES, number - start), seed + k, layers=k == 0)
