"""Comparison of two images: the loops of arithmetic with other formulas."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from mpsref.arguments.arrays import Array
from mpsref.kernels.compare import Compare, CompareForward
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.pointwise.arithmetic import combine_images, value


class Near(NamedTuple):
    """``near`` where ``|x - y| <= threshold``, ``else_`` where it is not."""

    threshold: Any
    near: Any
    else_: Any


class Ordered(NamedTuple):
    """1 where ``sign x < sign y``, and where they are equal ``equal``."""

    sign: Any
    equal: Any


@overload(value)
def _value(formula, x, y):
    def near(formula, x, y):
        return formula.near if np.abs(x - y) <= formula.threshold else formula.else_

    def ordered(formula, x, y):
        less = np.float32(1) if formula.sign * x < formula.sign * y else np.float32(0)
        return formula.equal if x == y else less

    return {Near: near, Ordered: ordered}.get(formula.instance_class)


def _formula(spec: Compare) -> Near | Ordered:
    if spec.comparison_type in ("equal", "notequal"):
        equal = np.float32(spec.comparison_type == "equal")
        return Near(np.float32(spec.threshold), equal, 1 - equal)
    sign = 1 if spec.comparison_type.startswith("less") else -1
    return Ordered(np.float32(sign), np.float32(spec.comparison_type.endswith("orequal")))


def forward(problem: CompareForward, x: Array, y: Array, out: Array) -> None:
    """Fill ``out`` with r."""
    combine_images(problem, _formula(problem.spec), x, y, out)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Compare, "forward"): forward}
