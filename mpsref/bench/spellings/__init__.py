"""How PyTorch spells the kernels: one module a family, so that the benchmark can time it beside the backends.

Each kernel has one function that turns a problem into a call at PyTorch's lowest level, or says that it has no words
for it. The call computes into ``outs``, or into new memory where that is ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.bench.pytorch import Call, Spelling, Together
from mpsref.bench.spellings import (
    batch_normalization,
    convolution,
    neuron,
    normalization,
    pointwise,
    pooling,
    softmax,
    training,
)
from mpsref.registry import Problem, Spec

__all__ = ["SPELLINGS", "TOGETHER", "call"]

FAMILIES = (batch_normalization, convolution, neuron, normalization, pointwise, pooling, softmax, training)

SPELLINGS: Mapping[type[Spec], Spelling] = {kernel: f for family in FAMILIES for kernel, f in family.SPELLINGS.items()}
"""The function of each kernel."""

TOGETHER: Mapping[type[Spec], Together] = batch_normalization.TOGETHER
"""Kernels of which PyTorch does several operations in one."""


def call(torch: Any, problem: Problem, inputs: tuple[Array, ...], outs: tuple[Array, ...] | None) -> Call | None:
    """Return a call that computes ``problem`` into ``outs``, or into new memory; ``None`` where there is none."""
    spell = SPELLINGS.get(type(problem.spec))
    return spell(torch, problem, inputs, outs) if spell else None
